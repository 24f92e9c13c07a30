# SPDX-License-Identifier: GPL-2.0-or-later
"""Two SSDs, one of which is taken away at a random moment, and put back, or another one in its place, again and again: nothing is
lost.

Everything that is drawn comes from the seed.  LARDER_MOMENTS=N: how many there are in all (100), dealt to the worlds.
"""

import collections
import os
import random

import pytest
from lib import command, simdisk
from lib.controls import Switches
from lib.larder import Stack, larder, wait_for
from lib.sets import MODES, kill, make_ssds, start_without

MOMENTS = int(os.environ.get("LARDER_MOMENTS", "100"))
WORLDS = 10
EVERYTHING = "read,write,flush,discard,zeroes"
STATUS = ("ioerr", "medium", "timeout", "target", "protection")
BESIDE_A_CUT = "dmsetup message c 0 checkpoint; dmsetup message c 0 reclaim 3; dmsetup message v 0 flush"
TURNS = ("modes", "checkpoint", "evict", "writeback", "suspend", "suspend_cache", "reload_cache")


class Turns(Switches):
    def reload_cache(self, number: int) -> None:
        """The table names an SSD that may just have failed, unknown to anybody: then it is refused, and nothing has changed."""
        try:
            self.cache.load(self.cache.table())
        except command.CommandError:
            self.refused += 1
            return
        self.cache.suspend(noflush=bool(number % 2))
        self.cache.resume()


class World:
    """A cache of two, a volume, and a spare SSD."""

    def __init__(self, make_disk, make_oracle, kernel_log, seed: int, number: int, **options: object):
        kernel_log.expect("I/O error|critical .* error|Buffer I/O|lost async page write")
        self.random = r = random.Random(f"taken away {seed}")
        timed = number % 2  # something is in flight when the power fails
        *self.ssds, self.spare = make_ssds(make_disk, (16, 16, 16), **({"model": "nvme", "jitter_ns": 100000} if timed else {}))
        model = {"model": "nvme", "jitter_ns": 200000} if timed else {"model": "null", "wce": 1}
        options = {
            "writeback": r.choice(("on", "off")),
            "writeback_percent": r.choice((0, 10, 100)),
            "sequential_cutoff": r.choice((0, 64)),
            "verify": r.choice(("none", "reads")),
            "cache_mirror": r.choice(("dirty", "dirty", "all")),
            "cache_commit": r.choice(("auto", "auto", "always")),
        } | options
        self.stack = Stack(
            list(self.ssds),
            make_disk("hdd0", mb=32, **model),
            format_cache=("--segment-size", "128k"),
            format_volume=("--cache", "c"),
            **options,
        )
        self.oracle = make_oracle(self.stack.volume, size="8m")
        self.which = self.switched = 0
        self.count, self.dirty = collections.Counter(), []

    # ------------------------------------------------------------------ parts

    @property
    def gone(self) -> simdisk.Simdisk:
        return self.stack.ssd[self.which]

    @property
    def other(self) -> simdisk.Simdisk:
        return self.stack.ssd[1 - self.which]

    def switches(self) -> Turns:
        return Turns(self.stack.volume, self.stack.cache)

    def state(self) -> str:
        return self.stack.cache.status()["ssds"].split("/")[self.which]

    def load(self, ops: int) -> None:
        """Nobody is to notice anything: the oracle fails for an error, too."""
        turns = self.random.sample(TURNS, 2)
        self.switched = self.switches().run(
            self.oracle, *turns, first=self.switched, ops=ops, every=40, qd=self.random.choice((1, 8, 32))
        )
        self.stack.volume.set(mode="writeback")

    def take_at(self, below: int) -> None:
        """It takes nothing from its n-th command on."""
        self.gone.fail(op=EVERYTHING, status=self.random.choice(STATUS), skip=self.random.randrange(below))

    def take_now(self) -> None:
        """At the latest; the cache notices when it writes."""
        kill(self.gone)
        self.oracle.run(ops=40)
        self.switches().checkpoint(0)
        wait_for(lambda: self.state() in ("failed", "removed"), 60, "the SSD to leave")

    def cut(self, *disks: simdisk.Simdisk, after: int | None = None) -> None:
        r = self.random
        simdisk.power_cut(*disks, mode=r.choice(MODES), seed=r.randrange(1 << 30), after=after)

    def cut_now(self) -> None:
        """If it has not come by itself."""
        if self.other.state()["power"] == "on":
            self.cut()
        simdisk.wait_power_off(self.other)
        self.count["power cuts"] += 1

    def start_with_the_other(self, after: str | None) -> None:
        """What was taken away is not there."""
        self.stack.stop()
        simdisk.power_up()
        start_without(self.stack, self.which)
        self.oracle.verify(after=after)
        self.count["starts"] += 1

    # ------------------------------------------------------------------ moments: all end without it, and with the volume in use

    def under_load(self) -> None:
        self.take_at(500)
        self.load(300)
        self.take_now()

    def with_the_power(self) -> None:
        """Before the others, with them, or behind them, which it outlives then for a while."""
        after = self.random.randrange(1, 500)
        when = self.random.choice(("before", "with", "behind"))
        if when == "before":
            self.take_at(after)
        self.cut(*((self.other, self.stack.hdd) if when == "behind" else ()), after=after)
        self.oracle.run_until_cut(self.other, control=BESIDE_A_CUT, every=100, control_may_fail=True)
        self.cut_now()
        self.apart = when == "behind"
        self.start_with_the_other("crash")

    def in_a_start(self) -> None:
        """Behind a stop in order or a power cut; a second one may come in the start, too."""
        r, after = self.random, None
        self.load(150)
        if r.random() < 0.5:
            self.cut(after=r.randrange(1, 300))
            self.oracle.run_until_cut(self.other)
            self.cut_now()
            after = "crash"
        self.stack.stop()
        simdisk.power_up()
        cut = r.random() < 0.4
        if cut:
            self.cut(after=r.randrange(1, 60))
            after = "crash"
        if not cut or r.random() < 0.5:
            self.take_at(60)
        try:
            self.stack.start()
        except command.CommandError:
            self.count["starts refused"] += 1
            if cut:
                self.cut_now()
            self.start_with_the_other(after)
            return
        if cut:
            self.cut_now()
            self.start_with_the_other(after)
            return
        self.oracle.verify(after=after)
        self.take_now()

    def in_work(self) -> None:
        """Of the cache itself, with nobody's load beside it."""
        r, s = self.random, self.stack
        self.load(150)
        switches = self.switches()
        name = r.choice(("checkpoint", "writeback", "drop", "scrub", "suspend", "suspend_cache", "reload_cache", "stop"))
        work = {"drop": lambda: switches.evict(1), "stop": s.stop, "writeback": s.volume.drain}.get(name)
        cut = r.random() < 0.4
        self.take_at(30)
        if cut:
            self.cut(after=r.randrange(1, 60))
            if name == "writeback":
                work = None
        try:
            (work or (lambda: getattr(switches, name)(0)))()
        except command.CommandError:
            if not cut:
                raise
            switches.heal()
        self.count[name] += 1
        if cut:
            self.cut_now()
            self.start_with_the_other("crash")
        elif name == "stop":
            self.start_with_the_other(None)
        else:
            self.take_now()

    def in_its_drain(self) -> None:
        """Or when that has just ended."""
        cut = self.random.random() < 0.3
        self.load(150)
        self.stack.cache.message("drain", self.which)
        self.take_at(800)
        if cut:
            self.cut(after=self.random.randrange(1, 600))
            self.oracle.run_until_cut(self.other)
            self.cut_now()
            self.start_with_the_other("crash")
            return
        self.load(200)
        self.take_now()
        self.count["drained"] += self.state() == "removed"

    def as_it_joins(self) -> None:
        """It was away already, and is taken away again."""
        self.take_now()
        self.oracle.verify()
        cut = self.random.random() < 0.3
        self.gone.heal()
        self.began = True  # or not yet: the command writes more than twenty times before it does
        self.take_at(500)
        if cut:
            self.cut(after=self.random.randrange(1, 600))
            larder("cache", "add", self.stack.cache, self.gone, "--yes", "--no-wait", check=False)
            self.oracle.run_until_cut(self.other)
            self.cut_now()
            self.start_with_the_other("crash")
            return
        load = self.oracle.start(ops=300)
        larder("cache", "add", self.stack.cache, self.gone, "--yes", "--no-wait", check=False)
        load.wait()
        kill(self.gone)
        self.oracle.run(ops=40)
        self.switches().checkpoint(0)
        wait_for(lambda: self.state() == "failed", 60, "the SSD to be away")

    # ------------------------------------------------------------------ and behind them

    def without(self) -> None:
        """All is there; perhaps after another start, or a power cut, too."""
        s, r = self.stack, self.random
        status = s.cache.status()
        assert (status["state"], status["mirrored"], status["trouble"]) == ("running", 0, "-"), status
        assert s.volume.status()["state"] == "running"
        self.dirty.append(status["dirty_sectors"])
        self.oracle.verify()
        self.oracle.run(ops=80)
        again = r.random()
        if again < 0.2:
            self.cut()
            self.cut_now()
            self.start_with_the_other("crash")
        elif again < 0.4:
            self.start_with_the_other(None)

    def come_back(self) -> None:
        """It, stale, or the spare one, under load."""
        s, r = self.stack, self.random
        old = self.gone
        old.heal()
        known, replaced = self.state() == "failed" and not self.apart, r.random() < 0.4
        if known and r.random() < 0.3:
            s.restart()
            self.count[f"{self.state()} at a start"] += 1
            self.oracle.verify()
            if self.began and self.state() != "failed":  # it goes on, or begins again
                self.joined()
                return
            assert self.state() == "failed", "it is stale"
        words = ("add", s.cache, old)
        if replaced:
            words = ("replace", s.cache, self.which, self.spare) if known else ("add", s.cache, self.spare)
            s.ssd[self.which], self.spare = self.spare, old
            self.count["replaced"] += 1
        load = self.oracle.start(ops=200)
        larder("cache", *words, "--yes")
        load.wait()
        self.joined()

    def joined(self) -> None:
        wait_for(lambda: self.stack.cache.status()["ssds"] == "active/active", 60, "the SSD to join")
        status = self.stack.cache.status()
        assert (status["mirrored"], status["devices_failed"], status["trouble"]) == (1, 0, "-"), status

    def moment(self, kind: str) -> None:
        self.which, self.apart, self.began = self.random.randrange(2), False, False
        print(f"moment {self.count['moments']}: SSD {self.which} {kind}", flush=True)
        getattr(self, kind)()
        self.without()
        self.come_back()
        self.count[kind] += 1
        self.count[f"SSD {self.which}"] += 1
        self.count["moments"] += 1

    def line(self) -> str:
        dirty = sorted(self.dirty) or [0]
        self.count["with dirty data"] = sum(n > 0 for n in dirty)
        words = [f"{n} x {name}" for name, n in sorted(self.count.items(), key=lambda x: (-x[1], x[0]))]
        return f"{', '.join(words)}; dirty KiB then: {dirty[0] // 2} to {dirty[-1] // 2}"


KINDS = ("under_load", "with_the_power", "in_a_start", "in_work", "in_its_drain", "as_it_joins")
SO_FAR: collections.Counter = collections.Counter()


@pytest.mark.limit(7200)
@pytest.mark.parametrize("number", range(min(WORLDS, MOMENTS)))
def test_nothing_is_lost(make_disk, make_oracle, kernel_log, seed, number):
    world = World(make_disk, make_oracle, kernel_log, seed, number)
    deck: list[str] = []
    for _ in range(number, MOMENTS, WORLDS):
        if not deck:
            deck = world.random.sample(KINDS, len(KINDS))
        world.moment(deck.pop())
    world.stack.verify_alone(world.oracle)
    SO_FAR.update(world.count)
    print(f"world {number}, seed {seed}: {world.line()}")
    print(f"so far {SO_FAR['moments']} moments, {SO_FAR['power cuts']} power cuts, {SO_FAR['starts']} starts with the other one")


@pytest.mark.parametrize("kind", ["under_load", "with_the_power"])
def test_without_a_second_copy_it_is_seen(make_disk, make_oracle, kernel_log, seed, kind):
    """mirror=none, nothing is written back: whoever judges the moments says that something was lost."""
    world = World(make_disk, make_oracle, kernel_log, seed, 0, writeback="off", cache_mirror="none")
    world.apart = False
    with pytest.raises((AssertionError, command.CommandError)):  # of the oracle, or of a load that ended before the power did
        world.load(200)
        getattr(world, kind)()
    world.stack.stop()
