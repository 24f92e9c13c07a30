# SPDX-License-Identifier: GPL-2.0-or-later
"""The peers: how each is made, told what load comes, drained, stopped, started again.  Run in the VM, or on real devices.

Modes: micro: all 4 KiB hits and writes belong on the SSD, no writeback wanted; default: the peer's own settings; mixed: those its
documents recommend in production; auto, buffered: larder's sequential_cutoff=auto, and commit=buffered.  Timers of
the peers are stretched as the simulated devices are (Rig.scale).
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from lib import command, dm

DRAIN_SECONDS = 40000  # of the VM's clock, which costs nothing while it waits


class PeerError(Exception):
    """What could not be made, or did not happen."""


@dataclasses.dataclass(frozen=True)
class Rig:
    """The devices; sizes in MiB.  ssd2, hdd2: alike, for set-ups that have two."""

    ssd: str
    hdd: str
    ssd_mb: int
    hdd_mb: int
    scale: int
    ssd2: str = ""
    hdd2: str = ""


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise PeerError(f"waited {seconds} s for {what}")
        time.sleep(0.05)


def wipe(device: str, mib: int = 1) -> None:
    with open(device, "r+b", buffering=0) as f:
        f.write(bytes(mib << 20))


class Peer:
    """A device without a cache: the reference.  modules: names for modprobe.  programs: beside dmsetup and fio."""

    name = ""
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def __init__(self, rig: Rig):
        self.rig = rig
        self.made: list[dm.DmDevice] = []

    def _dm(self, name: str, line: str) -> dm.DmDevice:
        device = dm.DmDevice.create(name, line)
        self.made.append(device)
        return device

    def create(self) -> str:
        """Formats and starts; returns the device to measure."""
        raise NotImplementedError

    def mode(self, mode: str) -> None:
        pass

    def drain(self) -> None:
        """Writes everything dirty to the disk and waits for it; the disk's own cache is the caller's."""

    def stop(self) -> None:
        """As at a shutdown: dirty data stays in the cache, where the peer can do that."""
        while self.made:
            self.made.pop().remove()

    def start(self) -> None:
        raise NotImplementedError

    def status(self) -> str:
        return ""


class RawSsd(Peer):
    name = "rawssd"

    def create(self) -> str:
        return self.rig.ssd


class RawHdd(Peer):
    name = "rawhdd"

    def create(self) -> str:
        return self.rig.hdd


class Linear(Peer):
    """The floor of what any dm target costs."""

    name = "linear"
    modules = ("dm-mod",)

    def create(self) -> str:
        return str(self._dm("bench-linear", f"0 {self.rig.ssd_mb * 2048} linear {self.rig.ssd} 0"))


class Bcache(Peer):
    name = "bcache"
    modules = ("bcache",)
    programs = ("make-bcache",)
    directory = Path("/sys/block/bcache0/bcache")

    def _set(self, name: str, value: object) -> None:
        (self.directory / name).write_text(str(value))

    def create(self) -> str:
        words = ["--block", "4k", "--bucket", "128k", "--writeback", "--wipe-bcache", "-C", self.rig.ssd, "-B", self.rig.hdd]
        command.run("make-bcache", *words)
        return self.start()

    def start(self) -> str:
        for d in (self.rig.ssd, self.rig.hdd):
            with contextlib.suppress(OSError):  # udev may have been first
                Path("/sys/fs/bcache/register").write_text(d)
        wait_for(Path("/dev/bcache0").is_block_device, 60, "/dev/bcache0")
        wait_for((self.directory / "cache").exists, 60, "the cache of bcache0")
        self._set("cache_mode", "writeback")
        self._set("cache/congested_read_threshold_us", 0)
        self._set("cache/congested_write_threshold_us", 0)
        self._set("cache/journal_delay_ms", 100 * self.rig.scale)
        self._set("writeback_rate_update_seconds", 5 * self.rig.scale)
        return "/dev/bcache0"

    def mode(self, mode: str) -> None:
        self._set("sequential_cutoff", 0 if mode == "micro" else 4 << 20)
        self._set("writeback_percent", 40 if mode == "micro" else 10)
        self._set("writeback_delay", 30 * self.rig.scale)

    def drain(self) -> None:
        self._set("writeback_percent", 0)  # at full speed
        self._set("writeback_delay", 0)
        self._set("writeback_running", 1)
        wait_for(lambda: (self.directory / "state").read_text().strip() == "clean", DRAIN_SECONDS, "bcache to be clean")

    def stop(self) -> None:
        cache = (self.directory / "cache").resolve()
        self._set("stop", 1)
        wait_for(lambda: not Path("/dev/bcache0").exists(), 600, "bcache0 to stop")
        (cache / "stop").write_text("1")
        wait_for(lambda: not cache.exists(), 600, "the cache of bcache0 to stop")

    def status(self) -> str:
        words = {n: (self.directory / n).read_text().strip() for n in ("state", "dirty_data", "cache/cache_available_percent")}
        return " ".join(f"{k}={v}" for k, v in words.items())


class DmCache(Peer):
    """Policy smq, blocks of 64 KiB."""

    name = "dmcache"
    modules = ("dm-cache", "dm-cache-smq")
    block = 128
    metadata = 32768

    def create(self) -> str:
        wipe(self.rig.ssd)
        return self.start()

    def start(self) -> str:
        rest = self.rig.ssd_mb * 2048 - self.metadata
        data = rest // self.block * self.block
        self._dm("bench-meta", f"0 {self.metadata} linear {self.rig.ssd} 0")
        self._dm("bench-data", f"0 {data} linear {self.rig.ssd} {self.metadata}")
        line = f"/dev/mapper/bench-meta /dev/mapper/bench-data {self.rig.hdd} {self.block} 1 writeback smq 0"
        self.device = self._dm("bench-cached", f"0 {self.rig.hdd_mb * 2048} cache {line}")
        return str(self.device)

    def mode(self, mode: str) -> None:
        """smq promotes blocks that are written whole at once: the prefill makes everything a hit."""
        self.device.message("migration_threshold", 0 if mode == "micro" else 2048)

    def drain(self) -> None:
        self.mode("default")  # smq cleans everything when it is idle
        wait_for(lambda: self.device.status_line().split()[13] == "0", DRAIN_SECONDS, "dm-cache to be clean")

    def status(self) -> str:
        return self.device.status_line()


class Writecache(Peer):
    name = "writecache"
    modules = ("dm-writecache",)

    def create(self) -> str:
        wipe(self.rig.ssd)
        return self.start()

    def start(self) -> str:
        timers = f"autocommit_time {1000 * self.rig.scale} pause_writeback {3000 * self.rig.scale}"  # defaults: 1000, 3000
        line = f"0 {self.rig.hdd_mb * 2048} writecache s {self.rig.hdd} {self.rig.ssd} 4096 4 {timers}"
        self.device = self._dm("bench-cached", line)
        return str(self.device)

    def drain(self) -> None:
        self.device.message("flush")
        wait_for(self._clean, DRAIN_SECONDS, "dm-writecache to be clean")

    def _clean(self) -> bool:
        words = self.device.status_line().split()
        return words[4] == words[5]

    def status(self) -> str:
        return self.device.status_line()


class Writeboost(Peer):
    """Acknowledges from memory: what was not flushed is at risk, unlike with the others."""

    name = "writeboost"
    modules = ("dm-writeboost",)

    def create(self) -> str:
        wipe(self.rig.ssd)
        return self.start()

    def start(self) -> str:
        line = f"0 {self.rig.hdd_mb * 2048} writeboost {self.rig.hdd} {self.rig.ssd} 2 writeback_threshold 0"
        self.device = self._dm("bench-cached", line)
        return str(self.device)

    def mode(self, mode: str) -> None:
        self.device.message("writeback_threshold", 0 if mode == "micro" else 70)
        self.device.message("read_cache_threshold", 0 if mode == "micro" else 127)

    def drain(self) -> None:
        self.device.message("writeback_threshold", 100)
        self.device.suspend()
        self.device.resume()
        self.device.message("drop_caches")

    def status(self) -> str:
        return self.device.status_line()


class Larder(Peer):
    name = "larder"
    modules = ("larder",)
    programs = ("larder", "writer")

    def __init__(self, rig: Rig):
        super().__init__(rig)
        self.ssds = [rig.ssd]

    def create(self) -> str:
        members = [w for ssd in self.ssds for w in ("--cache", ssd)]
        command.run("larder", "cache", "create", "bench", *members, "--yes")
        command.run(
            "larder", "volume", "create", "bench", "--backing", self.rig.hdd, "--cache", "bench", "--mode", "writeback", "--yes"
        )
        return self.start()

    def _length(self, device: str, what: str) -> int:
        return int(command.output("larder", "super", "show", device, "-o", what, "--noheadings"))

    def start(self) -> str:
        cache = sum(self._length(ssd, "cache_sectors") for ssd in self.ssds)
        volume = self._length(self.rig.hdd, "volume_sectors")
        scale = self.rig.scale
        # the defaults, stretched
        options = f"commit_interval {10 * scale} congestion_read {2000 * scale} congestion_write {20000 * scale}"
        self.cache = self._dm("bench-larder", f"0 {cache} larder-cache {len(self.ssds)} {' '.join(self.ssds)} 6 {options}")
        self.volume = self._dm("bench-volume", f"0 {volume} larder {self.rig.hdd} {self.cache} 2 mode writeback")
        self.volume.message("set", "writeback_rate_min", 1024 // scale)
        return str(self.volume)

    def mode(self, mode: str) -> None:
        hot = mode in ("micro", "buffered")
        self.cache.message("set", "commit", "buffered" if mode == "buffered" else "auto")
        self.volume.message("set", "writeback", "off" if hot else "on")
        self.volume.message("set", "sequential_cutoff", "auto" if mode == "auto" else 0 if hot else 4096)

    def drain(self) -> None:
        self.volume.message("set", "writeback", "on")
        self.volume.message("flush")
        wait_for(lambda: not self.volume.status()["dirty_sectors"], DRAIN_SECONDS, "larder to be clean")

    def status(self) -> str:
        return f"{self.volume.status_line()}\n{self.cache.status_line()}"


PEERS: dict[str, type[Peer]] = {c.name: c for c in (RawSsd, RawHdd, Linear, Bcache, DmCache, Writecache, Writeboost, Larder)}
