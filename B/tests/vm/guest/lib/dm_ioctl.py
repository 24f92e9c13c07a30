# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests do most often with a dm device, by ioctl: in a VM without KVM a run of dmsetup takes longer than what is tested."""

import ctypes
import errno
import os
import stat
import struct
import time
from typing import NamedTuple

from .command import CommandError

CREATE, REMOVE, SUSPEND, STATUS, LOAD, TABLE, MESSAGE = 3, 4, 6, 7, 9, 12, 14  # struct dm_ioctl: DM_DEV_CREATE and so on
WORDS = {
    CREATE: "create",
    REMOVE: "remove",
    SUSPEND: "suspend or resume",
    STATUS: "info",
    LOAD: "load",
    TABLE: "status",
    MESSAGE: "message",
}
FLAG_SUSPEND, FLAG_TABLE, FLAG_FULL, FLAG_SKIP_LOCKFS, FLAG_NOFLUSH, FLAG_DATA_OUT, FLAG_INTERNAL_SUSPEND = (
    1 << 1,
    1 << 4,
    1 << 8,
    1 << 10,
    1 << 11,
    1 << 16,
    1 << 18,
)
HEAD = struct.Struct("=3I2I I i 3I Q 128s 129s 7x")  # version, data_size, data_start, target_count, open_count, flags, ...
TARGET = struct.Struct("=QQiI16s")
ROOM = 65536

# not fcntl.ioctl(), which lets no other thread run while it waits
_libc = ctypes.CDLL(None, use_errno=True)


class Answer(NamedTuple):
    flags: int
    targets: int
    device: int
    data: bytes


def _ioctl(number: int, name: str, flags: int = 0, data: bytes = b"", targets: int = 0) -> Answer:
    buf = bytearray(HEAD.pack(4, 0, 0, HEAD.size + ROOM, HEAD.size, targets, 0, flags, 0, 0, 0, name.encode(), b"") + bytes(ROOM))
    buf[HEAD.size : HEAD.size + len(data)] = data
    fd = os.open("/dev/mapper/control", os.O_RDWR | os.O_CLOEXEC)
    try:
        memory = (ctypes.c_char * len(buf)).from_buffer(buf)
        failed = _libc.ioctl(fd, ctypes.c_ulong(3 << 30 | HEAD.size << 16 | 0xFD << 8 | number), memory)
        error = ctypes.get_errno()
    finally:
        os.close(fd)
    if failed:
        text = data[8:].decode(errors="replace").strip("\0") if number in (LOAD, MESSAGE) else ""
        raise CommandError(["dm ioctl", WORDS[number], name, text], error, "", errno.errorcode.get(error, str(error)) + "\n")
    _, _, _, _, start, count, _, out, _, _, device, *_ = HEAD.unpack_from(buf)
    if out & FLAG_FULL:
        raise OverflowError(f"{name}: the answer does not fit into {ROOM} bytes")
    return Answer(out, count, device, bytes(buf[start:]))


def create(name: str, table: str) -> None:
    """With its node, as dmsetup makes it where no udev does."""
    device = _ioctl(CREATE, name).device
    try:
        load(name, table)
        resume(name)
    except CommandError:
        _ioctl(REMOVE, name)
        raise
    os.mknod(f"/dev/mapper/{name}", 0o600 | stat.S_IFBLK, device)


def remove(name: str, seconds: float = 10) -> None:
    """Somebody may just be closing it."""
    end = time.monotonic() + seconds
    while True:
        try:
            _ioctl(REMOVE, name)
            break
        except CommandError as e:
            if e.status != errno.EBUSY or time.monotonic() > end:
                raise
        time.sleep(0.05)
    os.unlink(f"/dev/mapper/{name}")


def suspend(name: str, *, noflush: bool = False, nolockfs: bool = False) -> None:
    _ioctl(SUSPEND, name, FLAG_SUSPEND | (FLAG_NOFLUSH if noflush else 0) | (FLAG_SKIP_LOCKFS if nolockfs else 0))


def resume(name: str) -> None:
    _ioctl(SUSPEND, name)


def is_held(name: str) -> bool:
    """Suspended by the kernel: who suspends, resumes or removes it waits until that ends."""
    return bool(_ioctl(STATUS, name).flags & FLAG_INTERNAL_SUSPEND)


def load(name: str, table: str) -> None:
    """Lines "START SECTORS TARGET ARGUMENTS..."."""
    data, lines = b"", [x for x in table.splitlines() if x.strip()]
    for line in lines:
        start, sectors, target, *arguments = line.split()
        text = " ".join(arguments).encode() + b"\0"
        text += bytes(-len(text) % 8)
        data += TARGET.pack(int(start), int(sectors), 0, TARGET.size + len(text), target.encode()) + text
    _ioctl(LOAD, name, data=data, targets=len(lines))


def status(name: str, *, table: bool = False, noflush: bool = False) -> str:
    """As dmsetup status or dmsetup table prints it."""
    answer = _ioctl(TABLE, name, (FLAG_TABLE if table else 0) | (FLAG_NOFLUSH if noflush else 0))
    lines, at = [], 0
    for _ in range(answer.targets):
        start, sectors, _, following, target = TARGET.unpack_from(answer.data, at)
        text = answer.data[at + TARGET.size :].partition(b"\0")[0].decode()
        lines.append(f"{start} {sectors} {target.partition(bytes(1))[0].decode()} {text}".rstrip())
        at = following
    return "\n".join(lines)


def message(name: str, text: str, sector: int = 0) -> str:
    """The answer, if the message has one."""
    answer = _ioctl(MESSAGE, name, data=struct.pack("=Q", sector) + text.encode() + b"\0")
    return answer.data.partition(b"\0")[0].decode() if answer.flags & FLAG_DATA_OUT else ""
