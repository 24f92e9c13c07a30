# SPDX-License-Identifier: GPL-2.0-or-later
"""One asynchronous write with RWF_DSYNC: the kernel sends a single write with FUA (after a synchronous one a flush as well)."""

import ctypes
import mmap
import os

SYS_IO_SETUP, SYS_IO_DESTROY, SYS_IO_GETEVENTS, SYS_IO_SUBMIT = 206, 207, 208, 209  # x86-64
IOCB_CMD_PWRITE = 1
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


def write_dsync(fd: int, buf: mmap.mmap, offset: int) -> int:
    """Bytes written; OSError."""
    context = ctypes.c_uint64(0)
    memory = (ctypes.c_char * len(buf)).from_buffer(buf)
    cb = Iocb(opcode=IOCB_CMD_PWRITE, fd=fd, buf=ctypes.addressof(memory), nbytes=len(buf), offset=offset, rw_flags=RWF_DSYNC)
    event = Event()
    _syscall(ctypes.c_long(SYS_IO_SETUP), ctypes.c_long(1), ctypes.byref(context))
    try:
        _syscall(ctypes.c_long(SYS_IO_SUBMIT), context, ctypes.c_long(1), ctypes.byref(ctypes.pointer(cb)))
        _syscall(ctypes.c_long(SYS_IO_GETEVENTS), context, ctypes.c_long(1), ctypes.c_long(1), ctypes.byref(event), None)
    finally:
        _syscall(ctypes.c_long(SYS_IO_DESTROY), context)
        del memory  # or the buffer could not be closed
    if event.res < 0:
        raise OSError(-event.res, os.strerror(-event.res))
    return event.res
