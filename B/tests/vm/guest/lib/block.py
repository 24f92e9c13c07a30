# SPDX-License-Identifier: GPL-2.0-or-later
"""A block device, with direct I/O.  Sectors are of 512 bytes."""

import fcntl
import mmap
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from . import aio

BLKDISCARD = 0x1277
BLKZEROOUT = 0x127F
BLKGETSIZE64 = 0x80081272
BLKFLSBUF = 0x1261
SECTOR = 512


class BlockDevice:
    """Opens the device for each operation, so that it holds nothing."""

    def __init__(self, path: str | Path):
        self.path = str(path)

    def __repr__(self) -> str:
        return self.path

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    @property
    def kernel_name(self) -> str:
        return os.path.basename(os.path.realpath(self.path))

    def _open(self, flags: int = os.O_RDWR) -> int:
        return os.open(self.path, flags | os.O_DIRECT | os.O_CLOEXEC)

    @property
    def sectors(self) -> int:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return struct.unpack("Q", fcntl.ioctl(fd, BLKGETSIZE64, bytes(8)))[0] // SECTOR
        finally:
            os.close(fd)

    def queue(self, attribute: str) -> str:
        """/sys/block/NAME/queue/ATTRIBUTE, e.g. logical_block_size, fua, write_cache, discard_max_bytes."""
        return Path("/sys/block", self.kernel_name, "queue", attribute).read_text().strip()

    def read(self, sector: int, count: int) -> bytes:
        buf = mmap.mmap(-1, count * SECTOR)
        fd = self._open(os.O_RDONLY)
        try:
            n = os.preadv(fd, [buf], sector * SECTOR)
            if n != count * SECTOR:
                raise OSError(f"{self.path}: {n} bytes read of {count * SECTOR}")
            return buf[:]
        finally:
            os.close(fd)
            buf.close()

    def write(self, sector: int, data: bytes, fua: bool = False) -> None:
        """fua: a write with FUA, nothing else (where the device has no FUA, the kernel sends a flush after it)."""
        if not data or len(data) % SECTOR:
            raise ValueError("whole sectors only")
        buf = mmap.mmap(-1, len(data))
        buf[:] = data
        fd = self._open()
        try:
            n = aio.write_dsync(fd, buf, sector * SECTOR) if fua else os.pwritev(fd, [buf], sector * SECTOR)
            if n != len(data):
                raise OSError(f"{self.path}: {n} bytes written of {len(data)}")
        finally:
            os.close(fd)
            buf.close()

    def flush(self) -> None:
        fd = self._open()
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _range(self, request: int, sector: int, count: int) -> None:
        fd = self._open()
        try:
            fcntl.ioctl(fd, request, struct.pack("QQ", sector * SECTOR, count * SECTOR))
        finally:
            os.close(fd)

    def discard(self, sector: int, count: int) -> None:
        self._range(BLKDISCARD, sector, count)

    def zero(self, sector: int, count: int) -> None:
        self._range(BLKZEROOUT, sector, count)

    def zero_many(self, sectors: Iterable[int], count: int) -> None:
        """So many sectors at each of these, one after the other."""
        fd = self._open()
        try:
            for sector in sectors:
                fcntl.ioctl(fd, BLKZEROOUT, struct.pack("QQ", sector * SECTOR, count * SECTOR))
        finally:
            os.close(fd)


def virtio_disk(serial: str) -> BlockDevice:
    """A disk that the host attached; "larder0" is the first of Machine(disks=...)."""
    for d in Path("/sys/block").glob("vd*"):
        if (d / "serial").read_text().strip() == serial:
            return BlockDevice(f"/dev/{d.name}")
    raise FileNotFoundError(f"no virtio disk with serial {serial}")
