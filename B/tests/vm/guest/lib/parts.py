# SPDX-License-Identifier: GPL-2.0-or-later
"""Parts of disks: what grows in tests, as a simulated disk has one size, and the linear device on top of it has not; partitions."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from . import command, dm, simdisk
from .larder import wait_for

MIB = 2048  # sectors


class Part(dm.DmDevice):
    """Of a disk, from 'offset' on: with 0, what its head says the whole disk says, too."""

    @classmethod
    def make(cls, name: str, disk: simdisk.Simdisk, mib: int, offset: int = 0) -> "Part":
        part = cls.create(name, f"0 {mib * MIB} linear {disk} {offset * MIB}")
        part.disk, part.offset = disk, offset
        return part

    def resize(self, mib: int) -> None:
        self.reload(f"0 {mib * MIB} linear {self.disk} {self.offset * MIB}", noflush=True)


@contextlib.contextmanager
def in_two(disk: Path, mib: int, *options: str) -> Iterator[tuple[str, list[Path]]]:
    """A loop device over the disk, which need know nothing of partitions, or a file, and two partitions of it."""
    command.run("sgdisk", "--clear", f"--new=1:2048:+{mib}M", f"--new=2:0:+{mib}M", disk)
    command.run("modprobe", "loop")
    whole = command.output("losetup", "--find", "--show", "--partscan", *options, disk).strip()
    try:
        parts = [Path(f"{whole}p{number}") for number in (1, 2)]
        wait_for(lambda: all(part.is_block_device() for part in parts), 10, "partitions")
        yield whole, parts
    finally:
        command.run("losetup", "--detach", whole)


@contextlib.contextmanager
def disk_in_two(directory: Path, mib: int) -> Iterator[tuple[str, list[Path]]]:
    image = directory / "disk"
    with open(image, "wb") as f:
        f.truncate((2 * mib + 64) << 20)
    with in_two(image, mib) as parts:
        yield parts
