# SPDX-License-Identifier: GPL-2.0-or-later
"""What grows in tests: a simulated disk has one size, the linear device on top of it has not."""

from . import dm, simdisk

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
