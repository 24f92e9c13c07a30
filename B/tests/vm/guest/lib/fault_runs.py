# SPDX-License-Identifier: GPL-2.0-or-later
"""A random workload, one random fault of a device beside it, and a judgement by the oracle: a function of a seed, but for
scheduling.  What each kind allows is what docs/testing.md (Failures) says of its row:

  backing_*   callers are told; nothing that was acknowledged is lost, and when the disk is back all is as if nothing had been
  ssd_*       of a mirrored set: nobody notices.  Of a single SSD, or one that is not mirrored: callers are told, what cannot be
              read fails, and after a start with it well again each sector reads as its last flushed value or a later one
  two_*       of two SSDs of three, with three copies: nobody notices
  both_*      as of a single SSD
  decay       a scrub finds it, or with verify=reads whoever reads: a copy, or the backing, mends it; dirty data without a copy is
              unreadable.  Never wrong
  lies        of one SSD of two: nothing is lost.  Of the only one: what it dropped is lost, or the start is refused; nothing is
              invented
  memory      nobody notices
"""

import contextlib
import random

from . import memory, simdisk
from .command import CommandError
from .controls import Switches
from .larder import Stack, Volume, segment_layout, wait_for
from .sets import MODES, make_ssds

REGION = "12m"
EVERYTHING = "read,write,flush,discard,zeroes"
STATUS = ("ioerr", "medium", "timeout", "target", "protection")
LOADS = 3  # at most, until the fault is met
PATIENCE = 240  # seconds: far more than anything here takes


class Careless(Switches):
    """Switches that may be refused, or fail."""

    NAMES = ("modes", "checkpoint", "evict", "writeback")

    def __init__(self, *arguments: object):
        super().__init__(*arguments)
        self.failed = 0
        for name in self.NAMES:
            setattr(self, name, self._tried(getattr(self, name)))

    def _tried(self, switch):
        def careless(number: int) -> None:
            try:
                switch(number)
            except (CommandError, OSError):
                self.failed += 1

        return careless

    @staticmethod
    def _patient(what, *_passing: int) -> None:
        what()


class Run:
    """One of them.  Everything that is drawn comes from the seed."""

    def __init__(self, make_disk, make_oracle, kernel_log, seed: int):
        self.random = r = random.Random(f"fault {seed}")
        self.seed, self.kernel_log = seed, kernel_log
        self.kind = KINDS[seed % len(KINDS)]
        ssds = 3 if self.kind in TWO else r.choice((1, 1, 2, 2, 3))
        self.mirror = r.choice(MIRRORS[ssds])
        if self.kind in TWO:
            self.mirror = "dirty:3"
        sizes = tuple(r.choice((16, 24, 48)) for _ in range(ssds))
        disks = {"model": "null", "discard": r.choice(("none", "random"))}
        self.ssds = make_ssds(make_disk, sizes, **disks)
        self.hdd = make_disk("hdd0", model="null", mb=32, wce=1, discard=r.choice(("none", "zero")))
        self.mode = r.choice(("writeback", "writeback", "writeback", "writethrough", "writearound"))
        options = {"mode": self.mode, "sequential_cutoff": r.choice((0, 64, 4096))}
        options |= {"cache_commit": r.choice(("auto", "auto", "always")), "cache_mend": "on"}
        options |= {"cache_mirror": self.mirror} if ssds > 1 else {}
        options |= {"writeback": r.choice(("on", "off")), "writeback_percent": r.choice((0, 10, 100))}
        # a cache that is full of what the backing refuses is not waited for
        options |= {"failure_wait": 3} if self.kind.startswith(("backing", "both")) else {}
        self.verify = random.Random(f"verify {seed}").choice(("none", "none", "reads"))
        options |= {"verify": self.verify}
        size = r.choice(("128k", "512k") if min(sizes) >= 24 else ("128k",))
        self.stack = Stack(
            self.ssds if ssds > 1 else self.ssds[0],
            self.hdd,
            format_cache=("--segment-size", size),
            format_volume=("--cache", "c"),
            **options,
        )
        self.mirrored = self.mirror != "none"
        self.oracle = make_oracle(self.stack.volume, size=REGION)
        self.turns = r.sample(Careless.NAMES, r.randint(1, 3))
        self.report: dict[str, object] = {}
        self.switched = 0

    # ------------------------------------------------------------------ parts

    def load(self, ops: int = 250, errors_ok: bool = True, **options: object) -> None:
        """A wrong read raises; so does an error, unless callers may get one."""
        switches = Careless(self.stack.volume, self.stack.cache)
        given = {"seed": self.seed * 1009 + self.oracle.runs, "qd": self.random.choice((1, 8, 32)), "every": 40} | options
        self.switched = switches.run(self.oracle, *self.turns, first=self.switched, ops=ops, errors_ok=errors_ok, **given)

    def load_until_met(self, **options: object) -> None:
        """A rule lets some commands pass, or is about a place that few ask for: other loads follow until each disk that has one has
        met it.  Not for ever: where nothing is written back no write of the backing can fail."""
        for _ in range(LOADS):
            self.load(**options)
            met = [any(rule["hits"] for rule in rules) for d in (*self.ssds, self.hdd) if (rules := d.faults())]
            if all(met):
                break
        self.report |= {"met": int(all(met))}

    def arm(self, disk: simdisk.Simdisk, ops: str, **rule: object) -> None:
        """After some commands, for some of them, or all; perhaps in a part of it only."""
        r = self.random
        given = {"op": ops, "status": r.choice(STATUS), "skip": r.choice((0, r.randrange(200)))} | rule
        if "count" not in given:
            given["count"] = r.choice((0, 1, r.randrange(2, 60)))
        if "from_" not in given and r.random() < 0.3:
            first = r.randrange(min(disk.sectors, 26 << 10))  # of a backing: where the load is
            given |= {"from_": first, "to": first + r.randrange(8, disk.sectors)}
        self.report |= {"disk": disk.name} | {k: v for k, v in given.items() if k != "disk"}
        disk.fail(**given)

    def heal(self) -> None:
        for d in (*self.ssds, self.hdd):
            d.heal()

    def settle_backing(self) -> None:
        """The disk is well again: what was refused goes on, by itself or when asked."""
        stack = self.stack
        wait_for(lambda: self.tried(stack.volume.flush), PATIENCE, "a flush to succeed")
        stack.volume.drain(PATIENCE)
        status = stack.volume.status()
        assert status["trouble"] == "-" and not status["dirty_sectors"], status

    @staticmethod
    def tried(what) -> bool:
        try:
            what()
        except (CommandError, OSError):
            return False
        return True

    def restart(self) -> str:
        """In order, whatever the state was; returns what it may have done: see Oracle.verify().  A volume that went on without its
        cache has lost nothing, and is attached anew."""
        stack, left = self.stack, self.stack.volume.status()["state"] == "passing"
        self.report |= {"left": left}
        stack.stop()
        self.heal()
        stack.options = stack.options | ({"stale": "discard"} if left else {})
        stack.start()
        return "clean" if left else "crash"

    def state(self) -> str:
        return self.stack.cache.status()["state"]

    def end(self) -> None:
        """What was judged is what the backing has in the end, without the cache."""
        self.stack.verify_alone(self.oracle)

    # ------------------------------------------------------------------ kinds

    def backing(self, ops: str, **rule: object) -> None:
        self.arm(self.hdd, ops, **rule)
        self.load_until_met()
        self.heal()
        self.oracle.verify()
        assert self.state() == "running"
        self.settle_backing()
        self.oracle.verify()
        self.end()

    def ssd(self, ops: str, **rule: object) -> None:
        which = self.random.sample(range(len(self.ssds)), 2 if self.kind in TWO else 1)
        for i in which:
            self.arm(self.ssds[i], ops, **rule)
        if self.mirrored:
            self.mirrored_ssd(which)
        else:
            self.only_ssd()

    def mirrored_ssd(self, which: list[int]) -> None:
        """Nobody notices.  Those that left may be missing at the next start."""
        before = sum(s.stats()["errors"] for s in self.ssds)
        self.load_until_met(errors_ok=False)
        self.oracle.verify()
        status = self.stack.cache.status()
        assert status["state"] == "running", status
        self.report |= {"injected": sum(s.stats()["errors"] for s in self.ssds) - before, "left": status["devices_failed"]}
        if self.random.random() < 0.5:
            self.heal()
        self.stack.stop()
        self.heal()
        if status["devices_failed"] == len(which) and self.random.random() < 0.5:
            self.stack.ssd = [None if i in which else s for i, s in enumerate(self.stack.ssd)]
        self.stack.start()
        self.oracle.verify()
        self.load(80, errors_ok=False)
        self.oracle.verify()
        self.end()

    def only_ssd(self) -> None:
        self.load_until_met()
        self.oracle.verify(unreadable_ok=True)
        self.heal()
        status = self.stack.cache.status()
        self.report |= {"state": status["state"]}
        if status["state"] == "running":
            self.settle_backing()
            self.oracle.verify()
        elif self.random.random() < 0.5:
            self.oracle.verify()  # well again, it can be read
        self.oracle.verify(after=self.restart())
        self.load(80, errors_ok=False)
        self.oracle.verify()
        self.end()

    def both(self, ssd_ops: str, hdd_ops: str) -> None:
        self.arm(self.random.choice(self.ssds), ssd_ops)
        self.arm(self.hdd, hdd_ops)
        self.load_until_met()
        self.oracle.verify(unreadable_ok=True)
        self.hdd.heal()
        self.report |= {"state": self.state()}
        if self.mirrored:
            assert self.state() == "running"
            self.settle_backing()
            self.oracle.verify()
        self.oracle.verify(after=self.restart())
        self.load(80, errors_ok=False)
        self.oracle.verify()
        self.end()

    # ------------------------------------------------------------------ rows that are no rule of simdisk

    def unplugged(self) -> None:
        """The disk goes, the volume is stopped, the cache stays; then the disk is there again."""
        self.hdd.fail(op=EVERYTHING, status="ioerr", skip=self.random.randrange(300))
        self.load_until_met()
        self.stack.volume.remove()
        self.stack.cache.message("commit")
        self.hdd.heal()
        self.stack.volume = Volume.start(self.hdd, self.stack.cache, **self.stack.options)
        self.oracle.verify()
        self.settle_backing()
        self.load(80, errors_ok=False)
        self.oracle.verify()
        self.end()

    def scrub(self) -> dict:
        cache = self.stack.cache
        cache.message("scrub")
        wait_for(lambda: cache.status()["scrub"] != "running", PATIENCE, "the scrub")
        status = cache.status()
        assert status["scrub"] == "done", status
        return status

    def decay(self) -> None:
        """Nobody reads before the scrub: what an SSD returns without an error is believed.  With verify=reads there is none."""
        stack, r = self.stack, self.random
        self.load(errors_ok=False)
        stack.cache.message("commit")
        disk = r.choice(self.ssds)
        first, size, number = segment_layout(disk)
        patches = r.randrange(20, 400)
        for i in range(patches):
            at = r.randrange(first, first + size * number) // 8 * 8
            disk.corrupt(at, 8 * r.choice((1, 1, 4)), self.seed + i)
        self.load(150, errors_ok=False, mix="write=60,fua=10,flush=10,discard=10,zeroes=10")
        self.report |= {"patches": patches}
        if self.verify == "reads":
            self.load(300, errors_ok=not self.mirrored)
        else:
            self.scrub()
        status = stack.cache.status()
        self.report |= {"errors": status["scrub_errors"], "unrepairable": status["scrub_unrepairable"]}
        found = self.oracle.verify(unreadable_ok=not self.mirrored)
        self.report |= {"unreadable": found["unreadable"]}
        assert not found["unreadable"] or status["scrub_unrepairable"] or status["errors_checksum"]
        if found["unreadable"]:
            stack.stop()
            return
        self.restart()
        self.oracle.verify()
        self.end()

    def lies(self) -> None:
        stack, r = self.stack, self.random
        liar = r.choice(self.ssds)
        liar.set(ignore_flush=1, ignore_fua=1)
        self.load(200, errors_ok=False)
        simdisk.power_cut(mode=r.choice(MODES), seed=self.seed, after=r.randrange(1, 200))
        self.load(800)
        simdisk.power_cut(mode=r.choice(MODES), seed=self.seed)
        for d in (*self.ssds, self.hdd):
            simdisk.wait_power_off(d)
        stack.stop()
        simdisk.power_up()
        liar.set(ignore_flush=0, ignore_fua=0)
        if self.mirrored:
            stack.start()
            self.scrub()
            self.oracle.verify(after="crash")
            self.end()
            return
        try:
            stack.start()
        except CommandError:
            assert self.kernel_log.matching("larder"), "refused, and nothing says why"
            self.report |= {"start": "refused"}
            stack.stop()
            return
        status = self.scrub()
        found = self.oracle.verify(after="loss", unreadable_ok=True)
        self.report |= {"unreadable": found["unreadable"]}
        assert not found["unreadable"] or status["scrub_unrepairable"] or status["errors_checksum"]
        stack.stop()

    def memory(self) -> None:
        """Nothing fails for it."""
        with memory.failing(odds=self.random.choice((2, 5, 30)), seed=self.seed):
            self.load(errors_ok=False)
            self.report |= memory.counts()
        self.oracle.verify()
        self.restart()
        self.oracle.verify()
        self.end()

    def go(self) -> None:
        self.load(150, errors_ok=False)
        ACTS[self.kind](self)

    def line(self) -> str:
        words = {"seed": self.seed, "kind": self.kind, "ssds": len(self.ssds), "mirror": self.mirror, "mode": self.mode}
        words |= {"verify": self.verify}
        words |= self.report
        return " ".join(f"{k}={v}" for k, v in words.items())


def slow(disk_of):
    def act(run: Run) -> None:
        disk = disk_of(run)
        disk.fail(op=EVERYTHING, status="ok", delay_ms=run.random.choice((50, 400, 2000)), count=run.random.randrange(1, 5))
        run.load_until_met(errors_ok=False)
        run.oracle.verify()
        run.end()

    return act


ACTS = {
    "backing_read": lambda run: run.backing("read"),
    "ssd_write": lambda run: run.ssd("write"),
    "backing_write": lambda run: run.backing("write,discard,zeroes"),
    "ssd_read": lambda run: run.ssd("read"),
    "backing_flush": lambda run: run.backing("flush"),
    "ssd_gone": lambda run: run.ssd(EVERYTHING, count=0, from_=0),
    "backing_gone": lambda run: run.backing(EVERYTHING, count=0, from_=0),
    "ssd_flush": lambda run: run.ssd("flush"),
    "backing_full": lambda run: run.backing("write,zeroes", status="nospc", count=0),
    "ssd_slow": slow(lambda run: run.random.choice(run.ssds)),
    "unplugged": Run.unplugged,
    "both_write": lambda run: run.both("write,flush", "write,flush"),
    "decay": Run.decay,
    "both_any": lambda run: run.both("read,write", EVERYTHING),
    "lies": Run.lies,
    "backing_slow": slow(lambda run: run.hdd),
    "memory": Run.memory,
    "two_write": lambda run: run.ssd("write"),
    "two_gone": lambda run: run.ssd(EVERYTHING, count=0, from_=0),
    "two_flush": lambda run: run.ssd("flush"),
}
KINDS = tuple(ACTS)
TWO = frozenset(k for k in KINDS if k.startswith("two_"))
MIRRORS = {1: ("none",), 2: ("dirty", "all", "dirty", "none"), 3: ("dirty", "all", "dirty:3", "none")}  # by the number of SSDs


def run_fault(make_disk, make_oracle, kernel_log, seed: int) -> None:
    run = Run(make_disk, make_oracle, kernel_log, seed)
    try:
        run.go()
    finally:
        with contextlib.suppress(Exception):
            print(f"fault {run.line()}")
