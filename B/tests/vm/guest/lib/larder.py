# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache and volumes on simulated disks: formatted by the command `larder`, run by plain dmsetup."""

import contextlib
import os
import struct
import subprocess
import time
from collections.abc import Callable

from . import command, dm, dm_ioctl
from .block import BlockDevice
from .oracle import Oracle


def words(options: dict) -> str:
    """#opts and the options, as tables want them."""
    flat = [str(w) for pair in options.items() for w in pair]
    return " ".join([str(len(flat)), *flat])


def larder(*arguments: object, check: bool = True) -> subprocess.CompletedProcess:
    return command.run("larder", *arguments, check=check)


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)


DATA_SECTOR = 2048  # of a backing: where the volume's data begin, by default
RESERVED_SECTORS = 4096  # of a backing: before the data and behind them, by default


WITHOUT_UDEV = os.environ.get("DM_DISABLE_UDEV") == "1"


class Target(dm.DmDevice):
    """A DmDevice, but faster."""

    @classmethod
    def create(cls, name: str, lines: str | list[str], **options: object) -> "Target":
        if options or not WITHOUT_UDEV:
            return super().create(name, lines, **options)
        dm_ioctl.create(name, dm.table(lines))
        return cls(name)

    def remove(self, **options: object) -> None:
        if options or not WITHOUT_UDEV:
            return super().remove(**options)
        return dm_ioctl.remove(self.name)

    @property
    def kernel_name(self) -> str:
        """Without udev /dev/mapper/NAME is no symbolic link."""
        number = os.stat(self.path).st_rdev
        return os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"))

    def load(self, lines: str | list[str]) -> None:
        dm_ioctl.load(self.name, dm.table(lines))

    def suspend(self, *, noflush: bool = False, nolockfs: bool = False) -> None:
        dm_ioctl.suspend(self.name, noflush=noflush, nolockfs=nolockfs)

    def resume(self) -> None:
        dm_ioctl.resume(self.name)

    def message(self, *words: object, sector: int = 0) -> str:
        return dm_ioctl.message(self.name, " ".join(map(str, words)), sector)

    def table(self, *, inactive: bool = False) -> str:
        return super().table(inactive=True) if inactive else dm_ioctl.status(self.name, table=True)

    def status_line(self, *, noflush: bool = False) -> str:
        return dm_ioctl.status(self.name, noflush=noflush)

    def set(self, **options: object) -> None:
        for key, value in options.items():
            self.message("set", key, value)


class Cache(Target):
    """The dm device of a cache."""

    @classmethod
    def format(cls, name: str, ssd: BlockDevice | list[BlockDevice], *arguments: object) -> None:
        given = [w for s in (ssd if isinstance(ssd, list) else [ssd]) for w in ("--cache", s)]
        larder("cache", "create", name, *given, "--yes", *arguments)

    @staticmethod
    def line(ssds: list[BlockDevice | None], **options: object) -> str:
        """None: an SSD of the set that is not there."""
        sectors = sum(s.sectors for s in ssds if s)
        return f"0 {sectors} larder-cache {len(ssds)} {' '.join(str(s or '-') for s in ssds)} {words(options)}"

    @classmethod
    def start(cls, ssd: BlockDevice | list[BlockDevice | None], name: str = "c", **options: object) -> "Cache":
        return cls.create(name, cls.line(ssd if isinstance(ssd, list) else [ssd], **options))

    def behind_a_checkpoint(self, act: Callable[[], object]) -> tuple[dict, dict]:
        """Does it so that the checkpoints named last know nothing of it.  Status before and after."""
        for _ in range(4):
            for _ in range(2):
                self.message("checkpoint")
            before = self.status()
            act()
            after = self.status()
            if after["checkpoints"] == before["checkpoints"]:  # none was due
                return before, after
        raise AssertionError("each time the cache took a checkpoint by itself")


class Volume(Target):
    """The dm device of a volume."""

    @classmethod
    def format(cls, name: str, backing: BlockDevice, *arguments: object) -> None:
        larder("volume", "create", name, "--backing", backing, "--yes", *arguments)

    @staticmethod
    def line(backing: BlockDevice, cache: object, sectors: int, **options: object) -> str:
        return f"0 {sectors} larder {backing} {cache or '-'} {words(options)}"

    @classmethod
    def start(cls, backing: BlockDevice, cache: object, name: str = "v", **options: object) -> "Volume":
        return cls.create(name, cls.line(backing, cache, backing.sectors - RESERVED_SECTORS, **options))

    def dirty(self) -> int:
        return self.status()["dirty_sectors"]

    def drain(self, seconds: float = 60) -> None:
        """Everything dirty goes to the backing."""
        self.message("flush")
        wait_for(lambda: not self.status()["flushing"], seconds, f"{self.name} to be drained")

    def take_told(self) -> None:
        """A superblock of the backing, with a flush in front, was refused: what that may have dropped is perhaps told once, to a
        flush (rule 2)."""
        with contextlib.suppress(OSError):
            self.flush()


def segment_layout(ssd: BlockDevice) -> tuple[int, int, int]:
    """First sector of the segments, sectors of a segment, number of segments: from the superblock (docs/on-disk-format.md)."""
    sb = ssd.read(8, 8)
    size, _, number = struct.unpack_from("<III", sb, 224)
    return struct.unpack_from("<Q", sb, 240)[0] // 512, size // 512, number


def backing_alone(backing: BlockDevice, name: str = "raw") -> dm.DmDevice:
    """The volume's data on its backing, by dm-linear: without any code of larder."""
    return dm.DmDevice.create(name, f"0 {backing.sectors - RESERVED_SECTORS} linear {backing} {DATA_SECTOR}")


class Stack:
    """One SSD, or several, one disk, one cache, one volume."""

    def __init__(
        self,
        ssd: BlockDevice | list[BlockDevice | None],
        hdd: BlockDevice,
        *,
        format_cache: tuple = (),
        format_volume: tuple = (),
        **options: object,
    ):
        """options: of the volume; those that begin with cache_ are the cache's.  On a busy host any SSD looks congested, and what
        avoids it would show in counts, as what mends damage by itself would: off unless asked for."""
        options = {"cache_congestion_read": 0, "cache_congestion_write": 0, "cache_mend": "off"} | options
        self.ssd, self.hdd = ssd, hdd
        self.cache_options = {k.removeprefix("cache_"): v for k, v in options.items() if k.startswith("cache_")}
        self.options = {k: v for k, v in options.items() if not k.startswith("cache_")}
        Cache.format("c", ssd, *format_cache)
        Volume.format("v", hdd, *format_volume)
        self.cache: Cache | None = None
        self.volume: Volume | None = None
        self.start()

    def start(self) -> None:
        self.cache = Cache.start(self.ssd, **self.cache_options)
        self.volume = Volume.start(self.hdd, self.cache, **self.options)

    def stop(self) -> None:
        if self.volume:
            self.volume.remove()
        if self.cache:
            self.cache.remove()
        self.volume = self.cache = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def line(self, cached: bool = True) -> str:
        return Volume.line(self.hdd, self.cache if cached else None, self.volume.sectors, **self.options)

    def detach(self) -> None:
        """With nobody writing."""
        self.volume.set(mode="writethrough")
        self.volume.drain()
        self.volume.reload(self.line(cached=False))
        assert self.volume.status()["state"] == "passthrough"

    def attach(self) -> None:
        self.volume.reload(self.line())
        assert self.volume.status()["state"] == "running"

    def verify_alone(self, oracle: Oracle) -> None:
        """Drains, detaches, stops, and has the oracle judge the backing itself, without larder.  Ends the stack."""
        self.detach()
        self.stop()
        raw = backing_alone(self.hdd)
        oracle.verify(device=raw)
        raw.remove()
