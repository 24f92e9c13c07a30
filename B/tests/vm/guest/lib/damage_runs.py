# SPDX-License-Identifier: GPL-2.0-or-later
"""Damaged images (damage_edits.py) of stacks (damage_bases.py), started by the kernel and read: a function of a seed, but for what
formatting and scheduling make different in the bases.

Whatever the damage is: no oops, no hang, no line of the kernel log that is never right; a refusal says why, and has written
nothing; what was read is read again after writeback, reclaim, a checkpoint and a start, or fails, and is what the backing has once
nothing is dirty.  Beyond that,
  of one SSD, where the others have all that is dirty: what was flushed is there, if need be without that SSD; nothing fails
  of more, no checksum made right: each sector reads as one of its values since the newest checkpoint, or fails
  what is crafted may be believed: `larder rescue`, the second implementation, reads the same
Reads compare checksums (verify=reads); what has lost its checksum is read unchecked, as docs/design.md says, and counted.
"""

import contextlib
import gzip
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from . import command
from .block import SECTOR, BlockDevice
from .command import CommandError
from .damage_bases import KINDS, REGION, Base, Rig
from .damage_edits import EDITS, Atlas, Damage
from .dm import DmDevice
from .kernel_log import KernelLog
from .larder import DATA_SECTOR, RESERVED_SECTORS, Cache, Target, Volume
from .oracle import OracleError
from .refusal import CORE, OURS, START

RESULTS = Path(os.environ.get("LARDER_RESULTS", "/tmp"))
PATIENCE = 60  # seconds: far more than anything here takes
RESCUE_EACH = 4  # of those
BLOCK = 8  # sectors
COUNT = REGION // SECTOR


class Wrong(AssertionError):
    pass


def demand(right: bool, what: str) -> None:
    if not right:
        raise Wrong(what)


def read_range(device: BlockDevice, sector: int, count: int, lost: set[int]) -> bytes:
    """Blocks that cannot be read are zeroes, and in lost."""
    try:
        return device.read(sector, count)
    except OSError:
        if count <= BLOCK:
            lost.add(sector)
            return bytes(count * SECTOR)
    half = count // 2 // BLOCK * BLOCK
    return read_range(device, sector, half, lost) + read_range(device, sector + half, count - half, lost)


class Content:
    """Of the region, as it is read now."""

    def __init__(self, device: BlockDevice, first: int = 0):
        self.lost: set[int] = set()
        self.data = read_range(device, first, COUNT, self.lost)
        self.lost = {s - first for s in self.lost}

    def differs(self, other: "Content | bytes") -> list[int]:
        """Blocks, by their first sector, that both can read."""
        data, lost = (other, set()) if isinstance(other, bytes) else (other.data, other.lost)
        if self.data == data:
            return []
        size = BLOCK * SECTOR
        blocks = [at // SECTOR for at in range(0, REGION, size) if self.data[at : at + size] != data[at : at + size]]
        return [s for s in blocks if s not in self.lost | lost]


class Run:
    def __init__(self, rig: Rig, atlas: Atlas, kernel_log: KernelLog, seed: int, deep: int = 1):
        """deep: each so many-th with all that costs time."""
        self.rig, self.base, self.kernel_log, self.seed = rig, rig.base, kernel_log, seed
        kind = list(EDITS)[seed // len(KINDS) % len(EDITS)]
        self.damage = Damage(atlas, seed, kind)
        turn = seed // len(KINDS)
        self.deep = (turn + seed) % deep == 0
        self.rescue, self.scrub = self.deep and turn % RESCUE_EACH == 0, turn % 2 == 1
        self.cache: Cache | None = None
        self.volume: Volume | None = None
        self.devices: list[BlockDevice] = []
        self.report: dict[str, object] = {"start": "refused"}
        self.options = dict(rig.base.options)
        self.unchecked_ok = True  # data whose checksum is lost may be any

    @property
    def spared(self) -> int | None:
        """The only SSD that is damaged, of several: the others have all that is dirty."""
        changed, ssds = self.damage.disks(), set(self.damage.atlas.ssds)
        return min(changed) if len(changed) == 1 and changed < ssds and not self.damage.crafted else None

    # ------------------------------------------------------------------ parts

    def put(self) -> None:
        self.rig.restore()
        self.damage.put(self.rig)
        self.devices = list(self.rig.disks)
        for i, size in self.damage.left.items():
            self.devices[i] = DmDevice.create(f"cut{i}", f"0 {size // SECTOR} linear {self.rig.disks[i]} 0")

    def started(self, what: str, start: Callable[[], Target], disks: slice) -> Target | None:
        """None: refused, with a line that says why, and not a write to these disks."""
        before, since = self.rig.changes()[disks], len(self.kernel_log.lines())
        try:
            return start()
        except CommandError:
            lines = self.kernel_log.lines()[since:]
        ours = [x for x in lines if OURS.match(x) and START not in x]
        core = [x for x in lines if CORE.match(x) and "the line before" not in x and "preresume failed" not in x]
        demand(bool(ours or core), f"the {what} was refused, and nothing says why")
        after = self.rig.changes()[disks]
        demand(after == before, f"the start of the {what}, which was refused, has written: {before} {after}")
        self.report["why"] = (ours or core)[-1].removeprefix("device-mapper: ").replace(" ", "_")
        return None

    def start(self, without: int | None = None) -> bool:
        """False: refused, in order."""
        *ssds, hdd = self.devices
        ssds = [None if i == without else s for i, s in enumerate(ssds)]
        options = {k.removeprefix("cache_"): v for k, v in self.options.items() if k.startswith("cache_")}
        options |= {"congestion_read": 0, "congestion_write": 0}
        self.cache = self.started("cache", lambda: Cache.start(ssds, **options), slice(None))
        if not self.cache:
            return False
        options = {k: v for k, v in self.options.items() if not k.startswith("cache_")} | {"writeback": "off"}
        line = Volume.line(hdd, self.cache, self.rig.disks[-1].sectors - RESERVED_SECTORS, **options)
        self.volume = self.started("volume", lambda: Volume.create("v", line), slice(-1, None))
        if not self.volume:
            self.stop()
        return bool(self.volume)

    def stop(self) -> None:
        for device in (self.volume, self.cache):
            if device:
                device.remove()
        self.volume = self.cache = None

    def rescued(self) -> Content | None:
        """What `larder rescue` puts on the backing, which has it for that long."""
        given = [w for s in self.devices[:-1] for w in ("--cache", s)]
        r = command.run("larder", "rescue", "writeback", self.devices[-1], *given, "--keep-cache", "--yes", check=False)
        demand(0 <= r.returncode < 64, f"larder rescue: status {r.returncode}\n{r.stdout}{r.stderr}")
        self.report["rescue"] = r.returncode
        judged = not r.returncode and len(self.base.images) - 1 not in self.damage.disks()
        content = Content(self.devices[-1], DATA_SECTOR) if judged else None
        self.end()
        self.put()
        return content

    def end(self) -> None:
        for i in self.damage.left:
            if self.devices[i] is not self.rig.disks[i]:
                self.devices[i].remove()

    # ------------------------------------------------------------------ judgement

    def judge(self, content: Content) -> None:
        status = self.cache.status()
        self.report |= {"unreadable": len(content.lost), "unchecked": status["unchecked_slots"]}
        if self.damage.crafted:
            return
        wrong = content.differs(self.base.content)
        if self.spared is not None:
            demand(not content.lost, f"unreadable, and another SSD has it: sectors {sorted(content.lost)[:8]}")
            demand(not wrong, f"it is not what was flushed: sectors {wrong[:8]}")
        self.report["older"] = len(wrong)
        if wrong:
            try:
                self.base.judge().verify(device=self.volume, after="crash", unreadable_ok=True)
            except OracleError as e:
                demand(self.unchecked_ok and status["unchecked_slots"] > 0, str(e))
                self.report["foreign"] = e.report.get("mismatches")

    def drain(self) -> None:
        """Until nothing is dirty, or something cannot be written back."""
        with self.tolerance():
            self.volume.message("flush")
            end = time.monotonic() + PATIENCE
            while (s := self.volume.status())["flushing"] and s["trouble"] == "-":
                demand(time.monotonic() < end, f"writeback does not come to its end: {s}")
                time.sleep(0.02)

    @contextlib.contextmanager
    def tolerance(self):
        """What is crafted may fail anything; nothing else may."""
        try:
            yield
        except (CommandError, OSError) as e:
            demand(self.damage.crafted, str(e))
            self.report["failed"] = self.report.get("failed", 0) + 1

    def live_on(self, content: Content) -> None:
        """Writeback, reclaim, checkpoints, a scrub and a stop change nothing of what is read."""
        self.drain()
        if self.scrub:
            with self.tolerance():
                self.cache.message("scrub")
            end = time.monotonic() + PATIENCE
            while self.cache.status()["scrub"] == "running":
                demand(time.monotonic() < end, "the scrub does not come to its end")
                time.sleep(0.02)
        with self.tolerance():
            self.cache.message("reclaim", 4)
        with self.tolerance():
            self.cache.message("checkpoint")
        again = Content(self.volume)
        changed = again.differs(content)
        demand(not changed, f"it reads as something else afterwards: sectors {changed[:8]}")
        if not self.damage.crafted and not self.volume.status()["dirty_sectors"]:
            changed = Content(self.devices[-1], DATA_SECTOR).differs(again)
            demand(not changed, f"nothing is dirty, and the backing has something else: sectors {changed[:8]}")
        data = self.damage.random.randbytes(16 * BLOCK * SECTOR)
        sector = self.damage.random.randrange(COUNT // 128) * 128
        with self.tolerance():
            self.volume.write(sector, data)
            self.volume.flush()
            demand(self.volume.read(sector, 128) == data, "what was just written is not read")
        self.stop()
        if not self.start():
            demand(self.damage.crafted, f"it does not start again: {self.report['why']}")
            self.report["again"] = "refused"
            return
        last = Content(self.volume)
        changed = [s for s in last.differs(again) if not sector <= s < sector + 128]
        demand(not changed, f"it reads as something else after a start: sectors {changed[:8]}")

    def go(self) -> None:
        self.put()
        alone = self.rescued() if self.rescue else None
        without = None
        started = self.start()
        if not started and self.spared is not None:
            without = self.spared
            started = self.start(without)
            demand(started, f"without the damaged SSD it does not start: {self.report.get('why')}")
        if not started:
            return
        self.report["start"] = "started" if without is None else "without"
        content = Content(self.volume)
        self.judge(content)
        if alone and without is None:
            different = content.differs(alone)
            demand(not different or self.report["unchecked"], f"larder rescue reads something else: sectors {different[:8]}")
            self.report["rescue"] = "other" if different else "same"
        if self.deep:
            read_range(self.volume, COUNT, self.volume.sectors - COUNT, set())
        if self.deep and without is None:
            self.live_on(content)
        self.stop()

    def line(self) -> str:
        words = {"seed": self.seed, "base": self.base.name, "kind": self.damage.kind, "edit": "/".join(self.damage.words)}
        return " ".join(f"{k}={v}" for k, v in (words | self.report).items())

    def keep(self) -> Path:
        """The disks as they were before the start."""
        directory = RESULTS / f"damage-{self.seed}"
        directory.mkdir(exist_ok=True)
        for i, disk in enumerate(self.rig.disks):
            (directory / f"{disk.name}.gz").write_bytes(gzip.compress(self.damage.image(i), 1))
        return directory


class Rigs:
    """Of the bases that some seeds need."""

    def __init__(self, make_disk, seeds: range):
        names = [n for i, n in enumerate(KINDS) if any(s % len(KINDS) == i for s in seeds[: len(KINDS)])]
        bases = [Base(make_disk, n, 1 + list(KINDS).index(n)) for n in names]  # two caches of one name cannot be there
        self.made = {base.name: (Rig(base), Atlas(base)) for base in bases}

    def of(self, seed: int) -> tuple[Rig, Atlas]:
        return self.made[list(KINDS)[seed % len(KINDS)]]

    def remove(self) -> None:
        for rig, _ in self.made.values():
            rig.remove()


def run_damage(rigs: Rigs, kernel_log: KernelLog, seed: int, deep: int) -> None:
    run = Run(*rigs.of(seed), kernel_log, seed, deep)
    try:
        run.go()
    except (AssertionError, CommandError, OSError, subprocess.TimeoutExpired) as e:
        raise Wrong(f"{e}\ndamage {run.line()}\ndisks: {run.keep()}") from e
    finally:
        with contextlib.suppress(CommandError):
            run.stop()
            run.end()
    print(f"damage {run.line()}", flush=True)
