# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything at once: a world of a cache and four volumes (two under the oracle, an ext4, an XFS) lives through some rounds.

A round: load on all of them, switches beside it, and one step after the other (SSDs drained, lost, replaced, slow, with read
errors; a scrub; volumes that grow; snapshots; attach and detach; errors of a backing).  It ends by itself or by a power cut, in
the middle of whatever there was.  Behind it everything is brought to rest: the set is whole again, nothing is dirty, the oracle
judges the volumes and then the backings alone, fsck finds nothing, all is stopped, and of what the module has allocated nothing
is left.

What is drawn is a function of seed; what meets what is up to the scheduler.
"""

import collections
import contextlib
import dataclasses
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import command, dm, dm_ioctl, memory, simdisk
from .command import CommandError
from .controls import Switches
from .fault_runs import STATUS, Careless
from .files import FSCK, Files, mount_point
from .larder import Cache, Volume, backing_alone, larder, wait_for
from .oracle import Oracle
from .parts import MIB, Part
from .sets import MODES
from .snapshots import Origin
from .stress import TURNS

PATIENCE = 300  # seconds, for what comes to its end by itself
ROUNDS = 5  # of a world, unless others are asked for
STEPS = ["leave", "lose", "ssd_reads", "ssd_slow", "backing_slow", "scrub", "grow", "modes", "snapshot", "detach"]
# switches that would load or resume a table under the hands of a step
NOT_BESIDE = {step: {"suspend_cache", "reload_cache"} for step in ("leave", "lose", "detach")}
for _step in ("leave", "lose"):
    NOT_BESIDE[_step].add("attach")  # refused while the cache is suspended
NOT_BESIDE["grow"] = {"attach", "reload", "suspend", "suspend_cache", "reload_cache"}
CACHE_OPTIONS = {"congestion_read": 0, "congestion_write": 0}  # a busy host makes any SSD look congested


@dataclasses.dataclass
class Figures:
    """Of all worlds."""

    worlds: int = 0
    rounds: int = 0
    cuts: int = 0
    faults: int = 0
    operations: int = 0
    bytes: int = 0
    files: int = 0
    steps: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def line(self) -> str:
        steps = ",".join(f"{name}:{n}" for name, n in sorted(self.steps.items()))
        words = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "steps"}
        return " ".join(f"{k}={v}" for k, v in words.items()) + f" steps={steps or '-'}"


class Raw:
    """A volume under the oracle; where it has grown there is another region."""

    def __init__(self, device: Volume, make_oracle: Callable[..., Oracle], seed: int):
        self.device, self.make_oracle, self.seed = device, make_oracle, seed
        self.oracles: list[Oracle] = []
        self.add(size="20m")

    def add(self, **region: object) -> None:
        self.oracles.append(self.make_oracle(self.device, seed=self.seed + len(self.oracles), **region))

    def grown(self, before: int) -> None:
        self.add(offset=before * 512, size=(self.device.sectors - before) * 512, unknown=True)

    def kill(self) -> None:
        for oracle in self.oracles:
            if oracle.last and oracle.last.running():
                oracle.last.process.kill()

    def next(self, r: random.Random) -> Oracle:
        """Whose turn it is: the region that has grown last is not left out."""
        return next((o for o in self.oracles if not o.runs), r.choice(self.oracles))

    def verify(self, **options: object) -> None:
        for oracle in self.oracles:
            if oracle.runs:  # of what was not written yet nothing is known
                oracle.verify(**options)


class World:
    def __init__(self, make_disk, make_oracle, seed: int, figures: Figures, log: Callable[[str], None]):
        self.seed, self.figures, self.log = seed, figures, log
        self.random = r = random.Random(f"soak {seed}")
        self.make_disk = make_disk
        self.made = 0
        self.model = r.choice(({"model": "null"}, {"model": "nvme", "jitter_ns": 100000}))
        self.ssd_mb = r.choice((32, 48, 64))
        self.mirror = r.choice(("dirty", "dirty", "all"))
        self.ssds = [self.new_ssd() for _ in range(r.choice((2, 2, 3)))]
        self.hdds = {
            "v": self.hdd("hdd0", 128),
            "w": self.hdd("hdd1", 64),
            "e": self.hdd("hdd2", 96),
        }
        backings = {"v": self.part("v", 64), "w": self.hdds["w"], "e": self.part("e", 48)}
        self.kinds = {"e": "ext4"}
        if shutil.which("mkfs.xfs") and not command.run("modprobe", "xfs", check=False).returncode:
            self.hdds["x"] = backings["x"] = self.hdd("hdd3", 320)
            self.kinds["x"] = "xfs"
        self.store = self.hdd("store", 128)  # of snapshots
        self.backings = backings
        segment = r.choice(("128k", "256k"))
        log(f"world seed={seed} ssds={len(self.ssds)}x{self.ssd_mb}M mirror={self.mirror} segment={segment} {self.model}")
        Cache.format("c", self.ssds, "--segment-size", segment)
        for name, backing in backings.items():
            Volume.format(name, backing, "--cache", "c")
        self.cache = Cache("larder-cache-c")  # as the command calls it
        self.volumes = {name: Volume(name) for name in backings}
        self.origins: dict[str, Origin] = {}  # what the file systems are on
        self.files: dict[str, Files] = {}
        self.deck: list[str] = []  # of steps: none comes again before all have
        self.start()
        self.raws = {name: Raw(self.volumes[name], make_oracle, 64 * seed + 32 * (name == "w") + 1) for name in ("v", "w")}
        for name, kind in self.kinds.items():
            command.run("modprobe", kind, check=False)
            command.run(f"mkfs.{kind}", "-q", self.origins[name])
        self.turns = dict.fromkeys(self.raws, 0)

    # ------------------------------------------------------------------ disks

    def hdd(self, name: str, mb: int) -> simdisk.Simdisk:
        return self.make_disk(name, mb=mb, wce=1, discard=self.random.choice(("none", "zero")), **self.model)

    def new_ssd(self) -> simdisk.Simdisk:
        self.made += 1
        return self.make_disk(f"ssd{self.made}", mb=self.ssd_mb, wce=1, fua=1, discard="random", **self.model)

    def part(self, name: str, mib: int) -> Part:
        return Part.make(f"b{name}", self.hdds[name], mib)

    def powered(self) -> bool:
        return self.hdds["v"].state()["power"] == "on"

    def heal(self) -> None:
        for d in simdisk.all_disks():
            d.heal()

    # ------------------------------------------------------------------ start and stop

    def start(self) -> None:
        """The cache by the command, which finds its SSDs whatever a cut has left of a change of the set."""
        options = CACHE_OPTIONS | {"mirror": self.mirror}
        words = [w for key, value in options.items() for w in ("--option", f"{key}={value}")]
        larder("cache", "start", "c", "--degraded", *words)
        for name, backing in self.backings.items():
            sectors = int(larder("super", "show", backing, "-o", "volume_sectors", "--noheadings").stdout)
            Volume.create(name, Volume.line(backing, self.cache, sectors))
        self.origins = {name: Origin.over(self.volumes[name]) for name in self.kinds}

    def stop(self) -> None:
        for d in (*self.origins.values(), *self.volumes.values()):
            if d.exists():
                dm_ioctl.remove(d.name, PATIENCE)  # a file system that was unmounted lazily goes when it will
        dm_ioctl.remove(self.cache.name, PATIENCE)

    def unblock(self) -> None:
        """What a power cut has left suspended gets an end, as in a machine that is switched off."""
        for d in (self.cache, *self.volumes.values(), *self.origins.values()):
            if not d.exists() or not d.info()["suspended"]:
                continue
            self.log(f"  {d.name} is suspended")
            with contextlib.suppress(CommandError):
                if d is not self.cache:  # a cache takes no other target
                    d.load(f"0 {max(1, d.sectors)} error")
                d.resume()

    # ------------------------------------------------------------------ steps, with the load beside them

    def tell(self, *arguments: object) -> bool:
        """The command; it may fail when there is no power."""
        words = ["larder", *map(str, arguments)]
        running = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        end = time.monotonic() + PATIENCE
        while running.poll() is None:
            time.sleep(0.1)
            if not self.powered() and time.monotonic() < end - 10:
                end = time.monotonic() + 5  # the machine it runs on is off
            if time.monotonic() > end:
                running.kill()
        out = running.communicate()[0]
        if running.returncode and self.powered():
            raise AssertionError(f"{' '.join(words)}: status {running.returncode}\n{out}")
        return not running.returncode

    @contextlib.contextmanager
    def may_lose_power(self) -> Iterator[None]:
        """What fails without it is no finding."""
        try:
            yield
        except (CommandError, OSError):
            if self.powered():
                raise

    def whole(self) -> bool:
        if not self.powered():
            return True
        try:
            status = self.cache.status()
        except CommandError:
            return not self.powered()
        return status["ssds"] == "/".join(["active"] * len(self.ssds)) and status["trouble"] == "-"

    def wait_whole(self) -> None:
        wait_for(self.whole, PATIENCE, "the set to be whole")

    def leave(self) -> None:
        """One is drained, leaves, and joins again."""
        ssd = self.random.choice(self.ssds)
        self.log(f"  leave {ssd}")
        if self.tell("cache", "remove", "c", ssd) and self.tell("cache", "add", "c", ssd, "--yes"):
            self.wait_whole()

    def lose(self) -> None:
        """One fails for good; a new one takes its place, or it is back and joins as a new one."""
        r = self.random
        which, replaced, skip = r.randrange(len(self.ssds)), r.random() < 0.5, r.choice((0, r.randrange(300)))
        ssd = self.ssds[which]
        self.log(f"  lose {ssd} after {skip} commands, {'replaced' if replaced else 'back'}")
        number = larder("super", "show", ssd, "-o", "device_number", "--noheadings", check=False).stdout.strip()
        ssd.fail(op="read,write,flush,discard,zeroes", status="ioerr", skip=skip)
        self.figures.faults += 1

        def left() -> bool:
            if not self.powered():
                return True
            with contextlib.suppress(CommandError):
                self.cache.message("checkpoint")  # writes to each of them
            return bool(self.cache.status()["devices_failed"])

        wait_for(left, PATIENCE, f"{ssd} to leave")
        if not self.powered():
            return
        if replaced:
            new = self.new_ssd()
            if self.tell("cache", "replace", "c", number, new, "--yes"):
                self.ssds[which] = new
                self.wait_whole()
                ssd.heal()
                if self.powered():
                    ssd.remove()
            return
        ssd.heal()
        if self.tell("cache", "add", "c", ssd, "--yes"):
            self.wait_whole()

    def _beside(self, disk: simdisk.Simdisk, **rule: object) -> None:
        """A fault, until it has happened so often, or for a while."""
        self.log(f"  {disk} {simdisk.words(**rule)}")
        self.figures.faults += 1
        disk.fail(**rule)
        end = time.monotonic() + 5
        while time.monotonic() < end and self.powered() and disk.faults():
            time.sleep(0.2)

    def ssd_reads(self) -> None:
        """Nobody notices: the other copy, or the backing, is read."""
        r, ssd = self.random, self.random.choice(self.ssds)
        self._beside(ssd, op="read", status=r.choice(STATUS), skip=r.randrange(50), count=r.randrange(1, 40))
        ssd.heal()

    def ssd_slow(self) -> None:
        self._slow(self.random.choice(self.ssds))

    def backing_slow(self) -> None:
        self._slow(self.hdds[self.random.choice("vw")])

    def _slow(self, disk: simdisk.Simdisk) -> None:
        r = self.random
        self._beside(disk, op="read,write,flush", status="ok", delay_ms=r.choice((20, 200, 1000)), count=r.randrange(1, 5))
        disk.heal()

    def backing_errors(self) -> None:
        """Callers are told; nothing that was acknowledged is lost.  Only in rounds in which w may be told."""
        r = self.random
        ops = r.choice(("read", "write,discard,zeroes", "flush", "read,write,flush,discard,zeroes"))
        count = r.choice((0, 1, r.randrange(2, 40)))
        self._beside(self.hdds["w"], op=ops, status=r.choice(STATUS), skip=r.randrange(100), count=count)
        self.hdds["w"].heal()

    def scrub(self) -> None:
        self.log("  scrub")
        with contextlib.suppress(CommandError):  # one runs; the cache is suspended
            self.cache.message("scrub")

    def grow(self) -> None:
        """v, and the ext4 with its file system, in use."""
        for name, most in (("v", 124), ("e", 92)):
            part, mib = self.backings[name], self.backings[name].sectors // MIB + self.random.choice((1, 4, 8))
            if mib > most:
                continue
            self.log(f"  grow {name} to {mib} MiB")
            before = self.volumes[name].sectors
            part.resize(mib)
            if not self.tell("volume", "resize", name):
                return
            if name == "e":
                with self.may_lose_power():
                    self.origins["e"].grown(self.volumes["e"])
                    command.run("resize2fs", self.origins["e"])
            elif self.volumes[name].sectors > before:
                self.raws[name].grown(before)

    def snapshot(self) -> None:
        """Of a file system in use."""
        name = self.random.choice(list(self.kinds))
        self.log(f"  snapshot of {name}")
        with self.may_lose_power():
            files = self.origins[name].snapshot(self.volumes[name], self.store, self.files[name])
            self.log(f"   it has {files} files")

    def modes(self) -> None:
        for name in self.kinds:
            mode = self.random.choice(("writeback", "writethrough", "writearound"))
            self.log(f"  {name} {mode}")
            with contextlib.suppress(CommandError):
                self.volumes[name].set(mode=mode)

    def detach(self) -> None:
        """w, and attached again."""
        self.log("  detach w")
        switches = Switches(self.volumes["w"], self.cache)
        switches.attach(0)
        if self.volumes["w"].status()["state"] == "passthrough":
            switches.attach(1)

    # ------------------------------------------------------------------ a round

    def draw(self) -> tuple[list[str], bool, bool]:
        """Steps; does the power fail; may w get errors."""
        r = self.random
        cut = r.random() < 0.45
        errors = not cut and r.random() < 0.4
        drawn = []
        for _ in range(r.randrange(2, 5)):
            if not set(self.deck) - ({"detach"} if cut else set()):
                self.deck += r.sample(STEPS, len(STEPS))
            drawn.append(next(s for s in self.deck if not (cut and s == "detach")))
            self.deck.remove(drawn[-1])
        if errors:
            drawn.insert(r.randrange(len(drawn) + 1), "backing_errors")
            drawn = [s for s in drawn if s != "detach"]
        return drawn, cut, errors

    @contextlib.contextmanager
    def in_background(self, *works: Callable[[], object]) -> Iterator[list[threading.Thread]]:
        """Joined at the end; the first failure is raised, unless the body failed."""
        failures: list[BaseException] = []

        def guarded(work: Callable[[], object]) -> None:
            try:
                work()
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=guarded, args=(w,)) for w in works]
        for t in threads:
            t.start()
        try:
            yield threads
        except BaseException:
            for raw in self.raws.values():
                raw.kill()
            raise
        finally:
            for t in threads:
                t.join()
        if failures:
            raise failures[0]

    def load(self, name: str, number: int, steps: list[str], cut: bool, errors: bool) -> None:
        """Of v or w, on one of its regions, and the switches beside it."""
        r = random.Random(f"soak {self.seed} {number} {name}")
        raw, volume = self.raws[name], self.volumes[name]
        options = {"ops": 0, "seconds": 3600, "until_error": True} if cut else {"ops": r.choice((600, 1200))}
        options |= {"qd": r.choice((1, 8, 32)), "every": 60}
        calm = not cut and not errors and name == "v"
        if calm:
            turns = [t for t in dict.fromkeys(TURNS) if not any(t in NOT_BESIDE.get(s, ()) for s in steps)]
            switches = Switches(volume, self.cache)
        else:
            turns, switches = list(Careless.NAMES), Careless(volume, self.cache)
        r.shuffle(turns)
        self.turns[name] = switches.run(raw.next(r), *turns, first=self.turns[name], errors_ok=errors and name == "w", **options)

    def counted(self) -> None:
        for raw in self.raws.values():
            for oracle in raw.oracles:
                if oracle.last and oracle.last.report:
                    self.figures.operations += oracle.last.report.get("ops", 0)
                    self.figures.bytes += sum(oracle.last.report.get(k, 0) for k in ("bytes_read", "bytes_written"))
                    oracle.last = None

    def round(self, number: int) -> None:
        steps, cut, errors = self.draw()
        r = self.random
        cut_before, after, mode = r.randrange(len(steps) + 1), r.randrange(1, 4000), r.choice(MODES)
        ends = [f"cut={mode},{after}"] if cut else []
        self.log(f" round {number} of seed={self.seed}: {' '.join(steps + ends + ['errors'] * errors)}")
        self.files = files = {
            name: Files(self.origins[name], number, kind=kind, point=mount_point(name)) for name, kind in self.kinds.items()
        }
        try:
            works = [lambda n=n: self.load(n, number, steps, cut, errors) for n in self.raws]
            with self.in_background(*works) as threads:
                for i, step in enumerate([*steps, None]):
                    if cut and i == cut_before:
                        simdisk.power_cut(mode=mode, seed=self.seed + number, after=after)
                    if step and self.powered():
                        self.figures.steps[step] += 1
                        getattr(self, step)()
                while cut and any(t.is_alive() for t in threads):
                    time.sleep(0.5)
                    if not self.powered():
                        self.unblock()
        finally:
            for f in files.values():
                f.going = False
        self.counted()
        if cut:
            self.after_cut()
        else:
            for f in files.values():
                f.stop()
            self.raws["v"].verify()
        self.rest()
        for name, f in files.items():
            f.check(self.origins[name])
            self.figures.files += len(f.safe)
        self.figures.rounds += 1

    def after_cut(self) -> None:
        self.figures.cuts += 1
        simdisk.wait_power_off(self.hdds["v"])
        self.unblock()
        for f in self.files.values():
            f.going = True  # not an orderly stop
            f.leave()
        self.stop()
        self.heal()
        simdisk.power_up()
        self.start()
        for raw in self.raws.values():
            raw.verify(after="crash")
            raw.verify()
        for name, f in self.files.items():
            f.check(self.origins[name])

    # ------------------------------------------------------------------ rest

    def mend(self) -> None:
        """The set is whole, whatever a cut has interrupted: whoever is no member is asked to join, until none is missing."""
        self.heal()
        wait_for(lambda: not {"joining", "draining"} & set(self.states()), PATIENCE, "a change of the set to end")
        there = [d for d in simdisk.all_disks() if d.name.startswith("ssd")]
        for ssd in there:
            if not {"failed", "removed"} & set(self.states()):
                break
            if not self.is_member(ssd):
                larder("cache", "add", "c", ssd, "--yes", "--wipe")
        self.ssds = [d for d in there if self.is_member(d)]
        for d in set(there) - set(self.ssds):
            d.remove()
        self.wait_whole()

    def states(self) -> list[str]:
        return self.cache.status()["ssds"].split("/")

    def is_member(self, ssd: simdisk.Simdisk) -> bool:
        """Or about to be one.  One that had left when the power went is in the table behind that, and is not."""
        number = os.stat(str(ssd)).st_rdev
        word = f"{os.major(number)}:{os.minor(number)}"
        places = self.cache.table().split()[4:]
        return any(w == word and state in ("active", "joining") for w, state in zip(places, self.states(), strict=False))

    def rest(self) -> None:
        """Nothing dirty, nothing wrong, and when all is stopped nothing left in memory."""
        self.mend()
        for name, volume in self.volumes.items():
            if volume.status()["state"] == "passthrough":
                Switches(volume, self.cache).attach(0)
            wait_for(lambda v=volume: self.flushes(v), PATIENCE, f"a flush of {name}")
            volume.set(mode="writethrough", writeback_rate_max=0)
            volume.drain(PATIENCE)
            status = volume.status()
            assert not status["dirty_sectors"] and status["trouble"] == "-", f"{name}: {status}"
        self.cache.set(memory_limit=0)
        status = self.cache.status()
        assert not status["dirty_sectors"] and not status["single_sectors"] and status["state"] == "running", status
        wait_for(lambda: self.cache.status()["scrub"] != "running", PATIENCE, "the scrub")
        self.cache.message("scrub")  # one before may have seen errors of a disk
        wait_for(lambda: self.cache.status()["scrub"] != "running", PATIENCE, "the scrub")
        status = self.cache.status()
        assert status["scrub"] == "done" and not any(status[k] for k in ("scrub_errors", "errors_checksum")), status
        for raw in self.raws.values():
            raw.verify()
        self.stop()
        for name, raw in self.raws.items():
            alone = backing_alone(self.backings[name], f"alone-{name}")
            raw.verify(device=alone)
            alone.remove()
        for name, kind in self.kinds.items():
            alone = backing_alone(self.backings[name], f"alone-{name}")
            command.run(*FSCK[kind], alone)
            alone.remove()
        left = memory.held()
        assert not left, f"everything is stopped, and the module holds: {left}"
        self.start()
        self.volumes["v"].set(mode="writeback")
        self.volumes["w"].set(mode=self.random.choice(("writeback", "writeback", "writethrough", "writearound")))
        self.modes()

    @staticmethod
    def flushes(volume: Volume) -> bool:
        try:
            volume.flush()
        except OSError:
            return False
        return True

    def end(self) -> None:
        self.stop()
        for part in ("bv", "be"):
            dm.DmDevice(part).remove()
        for d in simdisk.all_disks():
            d.remove()
        self.figures.worlds += 1


def soak(make_disk, make_oracle, seed: int, minutes: float, results: Path, worlds: int = 0, rounds: int = ROUNDS) -> Figures:
    """World after world, of seeds that follow each other, each of so many rounds, for so long, or so many of them."""
    figures, begin = Figures(), time.monotonic()
    with open(results / "soak.log", "a", buffering=1) as file, memory.counting():

        def log(text: str) -> None:
            file.write(f"{time.monotonic() - begin:8.1f} {text}\n")

        try:
            while figures.worlds < (worlds or 1) or (not worlds and time.monotonic() - begin < 60 * minutes):
                world = World(make_disk, make_oracle, seed + figures.worlds, figures, log)
                for number in range(rounds):
                    world.round(number)
                    if not worlds and time.monotonic() - begin > 60 * minutes:
                        break
                world.end()
        finally:
            log(f"figures {figures.line()}")
    return figures
