# SPDX-License-Identifier: GPL-2.0-or-later
"""Asynchronous writes: one with RWF_DSYNC, for which the kernel sends a single write with FUA (after a synchronous one a flush as
well); many that are under way at once."""

import ctypes
import mmap
import os

SYS_IO_SETUP, SYS_IO_DESTROY, SYS_IO_GETEVENTS, SYS_IO_SUBMIT = 206, 207, 208, 209  # x86-64
IOCB_CMD_PREAD, IOCB_CMD_PWRITE = 0, 1
RWF_DSYNC = 0x2

_libc = ctypes.CDLL(None, use_errno=True)


class Iocb(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("fd", ctypes.c_uint32),
        ("buf", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("resfd", ctypes.c_uint32),
    ]


class Event(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("obj", ctypes.c_uint64), ("res", ctypes.c_int64), ("res2", ctypes.c_int64)]


def _syscall(*arguments: object) -> int:
    n = _libc.syscall(*arguments)
    if n < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return n


def _run(cbs: list[Iocb]) -> list[int]:
    """Submits them at once and waits for all: bytes written, of each, in the order in which they ended; OSError."""
    context, n = ctypes.c_uint64(0), ctypes.c_long(len(cbs))
    pointers = (ctypes.POINTER(Iocb) * len(cbs))(*map(ctypes.pointer, cbs))
    events = (Event * len(cbs))()
    _syscall(ctypes.c_long(SYS_IO_SETUP), n, ctypes.byref(context))
    try:
        if _syscall(ctypes.c_long(SYS_IO_SUBMIT), context, n, pointers) != len(cbs):
            raise OSError("not all of them could be submitted")
        _syscall(ctypes.c_long(SYS_IO_GETEVENTS), context, n, n, events, None)
    finally:
        _syscall(ctypes.c_long(SYS_IO_DESTROY), context)
    failed = [e.res for e in events if e.res < 0]
    if failed:
        raise OSError(-failed[0], os.strerror(-failed[0]))
    return [e.res for e in events]


def write_dsync(fd: int, buf: mmap.mmap, offset: int) -> int:
    """Bytes written; OSError."""
    memory = (ctypes.c_char * len(buf)).from_buffer(buf)
    cb = Iocb(opcode=IOCB_CMD_PWRITE, fd=fd, buf=ctypes.addressof(memory), nbytes=len(buf), offset=offset, rw_flags=RWF_DSYNC)
    try:
        (n,) = _run([cb])
    finally:
        del memory  # or the buffer could not be closed
    return n


def write_many(fd: int, data: bytes, size: int, offset: int) -> None:
    """Writes of size bytes each, all of them under way at once.  fd: open with O_DIRECT."""
    buf = mmap.mmap(-1, len(data))
    buf[:] = data
    memory = (ctypes.c_char * len(buf)).from_buffer(buf)
    at = ctypes.addressof(memory)
    try:
        _run(
            [
                Iocb(opcode=IOCB_CMD_PWRITE, fd=fd, buf=at + i, nbytes=size, offset=offset + i)
                for i in range(0, len(data), size)
            ]
        )
    finally:
        del memory
    buf.close()


def read_many(device: str | os.PathLike, sectors: list[int], count: int) -> None:
    """Reads of so many sectors each, at these sectors, all of them under way at once; what they read is thrown away."""
    buf = mmap.mmap(-1, count * 512)
    memory = (ctypes.c_char * len(buf)).from_buffer(buf)
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        at = ctypes.addressof(memory)
        _run([Iocb(opcode=IOCB_CMD_PREAD, fd=fd, buf=at, nbytes=len(buf), offset=s * 512) for s in sectors])
    finally:
        os.close(fd)
        del memory
    buf.close()
