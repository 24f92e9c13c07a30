# SPDX-License-Identifier: GPL-2.0-or-later
"""What may stand on a volume, between it and a filesystem: nothing, LUKS by cryptsetup, a logical volume by LVM."""

import os
from pathlib import Path

import pytest

from . import command
from .block import BlockDevice

KINDS = ["bare", "luks", "lvm"]


def configure_lvm(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes simulated disks, and what stands on them, for disks, and waits for no udev."""
    (directory / "lvm.conf").write_text(
        'devices { types = ["simdisk", 16]\nobtain_device_list_from_udev = 0\nuse_devicesfile = 0 }\n'
        "activation { udev_sync = 0\nudev_rules = 0 }\nglobal { use_lvmpolld = 0 }\n"
    )
    monkeypatch.setenv("LVM_SYSTEM_DIR", str(directory))


class Above:
    """Made on the device once; opened, and closed, as often as that comes and goes."""

    NAME = "above"

    def __init__(self, kind: str, below: BlockDevice, key: Path):
        """key: a file that is made for LUKS."""
        self.kind, self.key = kind, key
        if kind == "luks":
            self.key.write_bytes(os.urandom(64))
            quick = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
            command.run("cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", *quick, below, self.key)
        elif kind == "lvm":
            command.run("pvcreate", "--yes", below)
            command.run("vgcreate", self.NAME, below)
            command.run("lvcreate", "--yes", "--wipesignatures", "n", "--extents", "100%FREE", "--name", "lv", self.NAME)
            self.close()

    def open(self, below: BlockDevice) -> BlockDevice:
        if self.kind == "bare":
            return below
        if self.kind == "luks":
            command.run("cryptsetup", "open", "--key-file", self.key, below, self.NAME)
            return BlockDevice(f"/dev/mapper/{self.NAME}")
        command.run("vgchange", "--activate", "y", self.NAME)
        return BlockDevice(f"/dev/mapper/{self.NAME}-lv")

    def close(self) -> None:
        if self.kind == "luks":
            command.run("cryptsetup", "close", self.NAME)
        elif self.kind == "lvm":
            command.run("vgchange", "--activate", "n", self.NAME)
