# SPDX-License-Identifier: GPL-2.0-or-later
"""SCSI disks in memory (scsi_debug): unplugged and plugged in again with their content, while whoever has them open still does.

A disk that returns is another device, as with a cable: sda is still held, so it is sdb."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from . import command
from .larder import wait_for

ADAPTERS = Path("/sys/bus/pseudo/drivers/scsi_debug")
SECONDS = 120


class ScsiDisk:
    def __init__(self, adapter: Path):
        self.adapter = adapter
        self.host = next(adapter.glob("host*")).name
        self.plugged()

    def blocks(self) -> list[Path]:
        return list(self.adapter.glob("host*/target*/*:*/block/sd*"))

    def __str__(self) -> str:
        return f"/dev/{self.blocks()[0].name}"

    def plugged(self) -> None:
        wait_for(lambda: self.blocks() and Path(str(self)).exists(), SECONDS, f"the disk of {self.host}")

    def unplug(self) -> None:
        (self.blocks()[0] / "device/delete").write_text("1")
        wait_for(lambda: not self.blocks(), SECONDS, f"the disk of {self.host} to go")

    def plug(self) -> None:
        Path(f"/sys/class/scsi_host/{self.host}/scan").write_text("- - -")
        self.plugged()

    def write_cache(self, on: bool) -> None:
        (next(self.blocks()[0].glob("device/scsi_disk/*")) / "cache_type").write_text("write back" if on else "write through")

    def written(self) -> int:
        """Bytes, since it was plugged in."""
        return int((self.blocks()[0] / "stat").read_text().split()[6]) * 512


@contextlib.contextmanager
def scsi_disks(number: int, mb: int) -> Iterator[list[ScsiDisk]]:
    command.run("modprobe", "sd_mod")
    options = [f"add_host={number}", f"dev_size_mb={mb}", "per_host_store=1", "num_tgts=1", "max_luns=1", "ndelay=1000"]
    command.run("modprobe", "scsi_debug", *options)
    try:
        yield [ScsiDisk(a) for a in sorted(ADAPTERS.glob("adapter*"))]
    finally:
        wait_for(lambda: command.run("modprobe", "-r", "scsi_debug", check=False).returncode == 0, SECONDS, "the disks to go")
