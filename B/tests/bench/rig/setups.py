# SPDX-License-Identifier: GPL-2.0-or-later
"""The set-ups of a small home server: one disk; that encrypted; two disks striped; two replicated; an SSD before one disk; and all
of it: two SSDs with mirrored dirty data before two replicated disks, encrypted.  Each as `larder create` would make its layers.
"""

import dataclasses
from pathlib import Path

from lib import command
from lib.block import BlockDevice
from peers import Larder, Peer, RawHdd, Rig

NODE = Path("/dev/md127")
KEY = "00112233445566778899aabbccddeeff" * 4  # of AES-256 in XTS: 512 bits
CRYPTO = ("dm-crypt", "xts", "aesni-intel")


def array(level: int, rig: Rig) -> str:
    """In sync from the start: zeroes are."""
    words = ["--level", level, "--raid-devices=2", "--metadata=1.2", "--homehost=bench", "--run"]
    if level == 1:
        words += ["--bitmap=internal", "--assume-clean"]
    command.run("mdadm", "--create", NODE, *words, rig.hdd, rig.hdd2)
    if level == 1:
        Path(f"/sys/block/{NODE.name}/md/safe_mode_delay").write_text(f"{0.2 * rig.scale:.1f}")  # 0.2 s, stretched
    return str(NODE)


class Encrypted(Peer):
    """What LUKS2 has: AES in XTS, sectors of 4096 bytes.  below: the device it lies on."""

    name = "encrypted"
    modules = CRYPTO

    def create(self) -> str:
        return self.encrypt(self.rig.hdd)

    def encrypt(self, below: str) -> str:
        sectors = BlockDevice(below).sectors
        line = f"0 {sectors // 8 * 8} crypt aes-xts-plain64 {KEY} 0 {below} 0 1 sector_size:4096"
        return str(self._dm("bench-crypt", line))


class OneDisk(RawHdd):
    name = "one-disk"


class Striped(Peer):
    name = "striped"
    modules = ("raid0",)
    programs = ("mdadm",)

    def create(self) -> str:
        return array(0, self.rig)


class Replicated(Peer):
    name = "replicated"
    modules = ("raid1",)
    programs = ("mdadm",)

    def create(self) -> str:
        return array(1, self.rig)


class Cached(Larder):
    name = "cached"


class AllOfIt(Larder):
    name = "all-of-it"
    modules = (*Larder.modules, *CRYPTO, "raid1")
    programs = (*Larder.programs, "mdadm")

    def __init__(self, rig: Rig):
        super().__init__(rig)
        self.ssds = [rig.ssd, rig.ssd2]

    def create(self) -> str:
        self.rig = dataclasses.replace(self.rig, hdd=array(1, self.rig))
        volume = super().create()
        encrypted = Encrypted(self.rig)
        device = encrypted.encrypt(volume)
        self.made += encrypted.made
        return device


SETUPS: dict[str, type[Peer]] = {c.name: c for c in (OneDisk, Encrypted, Striped, Replicated, Cached, AllOfIt)}
