# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that is short, that is not given, and that is to be given back: swap on a volume, the module loaded and unloaded, fault
injection.

Between the kernel and its swap, what larder waits for to write may be memory that only this write makes free: rule 12 of
docs/design.md.  What is judged: the pages that come back, and that all of them do; never how fast.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from lib import cgroup, command, fault_injection, leaks, memory, pressure
from lib.controls import Switches
from lib.fault_runs import Careless
from lib.larder import DATA_SECTOR, Stack, wait_for
from lib.sets import make_stack

PAGE_SECTORS = 8
TURNS = ("modes", "checkpoint", "evict", "writeback")  # beside the load



def comes_to(what: Callable[[], dict], end: dict, words: str) -> None:
    """It does so by itself: some of it is freed by works, and behind RCU."""
    with contextlib.suppress(AssertionError):
        wait_for(lambda: what() == end, 30, words)
    assert what() == end, f"{words}: {what()}; not: {end}"


def fails(what: Callable[[], object]) -> bool:
    try:
        what()
    except OSError:
        return True
    return False


# ------------------------------------------------------------------ swap


def swap_stack(make_disk, ssd_mb: int, hdd_mb: int) -> Stack:
    """The disks take nothing from the memory that is short: all of theirs is there, and they have no power cuts."""
    disks = {"crash": False, "prealloc": 1, "wce": 1}
    return Stack(
        make_disk("ssd0", model="nvme", mb=ssd_mb, fua=1, jitter_ns=100000, **disks),
        make_disk("hdd0", model="nvme", mb=hdd_mb, jitter_ns=300000, **disks),
        format_cache=("--segment-size", "128k"),
        format_volume=("--cache", "c"),
        sequential_cutoff=0,
    )


def make_group(mib: int) -> pressure.Group:
    if not cgroup.possible("memory"):
        pytest.skip("this kernel has no controller of memory (CONFIG_MEMCG)")
    return pressure.Group(mib)


class Beside:
    """Called again and again: one switch after the other."""

    def __init__(self, stack: Stack):
        self.number = 0
        switches = Switches(stack.volume, stack.cache)
        self.switches = [getattr(switches, name) for name in TURNS]

    def __call__(self) -> None:
        self.switches[self.number % len(TURNS)](self.number // len(TURNS))
        self.number += 1


def judge(stack: Stack, hogs: list[pressure.Hog], turns: int, beside: Beside, before: dict[str, int]) -> dict[str, int]:
    """That it was swapped, by what the kernel counts and by what the disks were asked for; that the log went round, and dirty data
    was written back and reclaimed.  Bounds are far below what was seen."""
    seen, cache, volume = pressure.since(before), stack.cache.status(), stack.volume.status()
    ssd, hdd = stack.ssd.stats(), stack.hdd.stats()
    print(
        seen,
        f"switches={beside.number} reclaimed={cache['reclaimed']} checkpoints={cache['checkpoints']} "
        f"cached={volume['write_cached_sectors']} "
        f"writeback={volume['writeback_sectors']} hits={volume['read_hits']} misses={volume['read_misses']} "
        f"waits_memory={cache['waits_memory']} waits_pool={cache['waits_pool']} waits_space={cache['waits_space']} "
        f"deferred={volume['deferred']} ssd={ssd['reads']}/{ssd['writes']} hdd={hdd['reads']}/{hdd['writes']}",
    )
    pages = sum(h.pages for h in hogs)
    assert seen["killed"] == 0
    assert seen["swapped_out"] > pages * (turns + 1) // 4 and seen["swapped_in"] > pages * turns // 4
    assert volume["write_cached_sectors"] > stack.ssd.sectors // 4 and cache["reclaimed"] > 10
    assert volume["writeback_sectors"] > 0 and hdd["writes"] > 100 and ssd["writes"] > 100
    assert volume["read_hits"] > 100 and ssd["reads"] > 100 and hdd["reads"] > 100
    assert beside.number >= 2 * len(TURNS)
    return seen


@pytest.mark.limit(900)
@pytest.mark.parametrize("reserves", [False, True])
def test_swap_of_a_group(make_disk, seed, reserves):
    """Two processes that may keep a part of what they have.  reserves: every mempool of the kernel has nothing but its reserve."""
    stack = swap_stack(make_disk, 32, 160)
    group, turns, beside = make_group(48), 2, Beside(stack)
    with (
        pressure.setting("page-cluster", 0),
        pressure.swap_on(stack.volume),
        pressure.Hog(seed, 40, "private", group) as one,
        pressure.Hog(seed + 1, 40, "shared", group) as two,
    ):
        before, hogs = pressure.vmstat(), [one, two]
        pressure.obey(hogs, "fill", beside)
        with pressure.nothing_but_reserves() if reserves else contextlib.nullcontext():
            for _ in range(turns):
                pressure.obey(hogs, "turn", beside)
            failed = memory.counts()["failed"]
        judge(stack, hogs, turns, beside, before)
        assert not group.killed() and (failed > 1000 or not reserves), failed
        group.limit(None)
        command.run("swapoff", stack.volume, seconds=900)
        pressure.obey(hogs, "check")
    group.remove()
    stack.volume.drain(240)
    assert not stack.volume.dirty() and stack.cache.status()["state"] == "running"
    stack.stop()


@pytest.mark.limit(1500)
def test_swap_of_the_whole_machine(make_disk, seed):
    """All memory is gone but some, and what there is has to be written through us to be of use: kswapd, and whoever allocates."""
    stack = swap_stack(make_disk, 64, 384)
    turns, beside = 2, Beside(stack)
    with (
        pressure.setting("page-cluster", 0),
        pressure.setting("swappiness", 200),
        pressure.setting("min_free_kbytes", 1024),
        pressure.setting("watermark_scale_factor", 1),
        pressure.swap_on(stack.volume),
        pressure.Hog(seed, pressure.available_mib() - 96, "locked"),
        pressure.Hog(seed + 1, 80, "private") as one,
        pressure.Hog(seed + 2, 80, "shared") as two,
    ):
        before, hogs = pressure.vmstat(), [one, two]
        for order in ("fill", *["turn"] * turns):
            pressure.obey(hogs, order, beside)
        seen = judge(stack, hogs, turns, beside, before)
        assert seen["stalled"] > 20
        pressure.obey(hogs, "check")
    stack.volume.drain(240)
    assert not stack.volume.dirty() and stack.cache.status()["state"] == "running"
    stack.stop()


@pytest.mark.limit(600)
def test_wrong_page_is_noticed(make_disk, seed):
    """What the two above judge by can fail: swapped pages are not what they were.  In a group, so that they are nobody else's."""
    stack, group = swap_stack(make_disk, 32, 160), make_group(32)
    with pressure.swap_on(stack.volume), pressure.Hog(seed, 40, "private", group) as hog:
        pressure.obey([hog], "fill")
        assert stack.volume.status()["write_cached"]
        stack.volume.drain(240)
        stack.volume.message("drop_clean")
        stack.hdd.corrupt(DATA_SECTOR + PAGE_SECTORS, stack.volume.sectors - PAGE_SECTORS)
        with pytest.raises(AssertionError, match="wrong pages of"):
            pressure.obey([hog], "check")
    group.remove()
    stack.stop()


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_nothing_but_reserves(make_disk, make_oracle, mode):
    """Each bio, and whatever else comes from a mempool, is one of its reserve: nobody notices."""
    stack = make_stack(make_disk, mode=mode)
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=300)
    with pressure.nothing_but_reserves():
        Careless(stack.volume, stack.cache).run(oracle, *Careless.NAMES, ops=1500, every=50)
        counts = memory.counts()
    print(counts)
    assert counts["failed"] > 1000
    oracle.verify()
    stack.restart()
    stack.verify_alone(oracle)


# ------------------------------------------------------------------ the module, loaded and unloaded

CYCLES = int(os.environ.get("LARDER_RELOADS", "200"))


@pytest.fixture
def module() -> Path:
    """The file, in memory, without what a debugger wants."""
    (built,) = [m for m in os.environ["LARDER_MODULES"].split() if m.endswith("larder.ko")]
    copy = Path("/run/larder/larder.ko")
    command.run("strip", "--strip-debug", "-o", copy, built)
    yield copy
    copy.unlink()


def use(stack: Stack, number: int) -> None:
    """Started, what was written the last time is there, written, now and then all that has buffers of its own, stopped."""
    at, old, new = (number % 64) * PAGE_SECTORS, bytes([number % 251]) * 4096, bytes([(number + 1) % 251]) * 4096
    stack.start()
    if number:
        assert stack.volume.read(at, PAGE_SECTORS) == old
    stack.volume.write(at + PAGE_SECTORS, new)
    stack.volume.write((number + 1) % 64 * PAGE_SECTORS, new, fua=True)
    stack.volume.read(stack.volume.sectors - (number + 1) * PAGE_SECTORS, PAGE_SECTORS)
    if number % 4 == 1:
        stack.volume.discard(4096, 512)
        stack.volume.zero(8192, 512)
        stack.volume.set(mode=("writearound", "writethrough", "writeback")[number // 4 % 3])
        stack.volume.write(16384, new * 64)
        stack.volume.set(mode="writeback")
    if number % 4 == 3:
        stack.volume.drain()
        stack.volume.message("drop_clean")
        for text in ("checkpoint", "reclaim 2", "scrub"):
            stack.cache.message(text)
        wait_for(lambda: stack.cache.status()["scrub"] == "done", 60, "the scrub")
    stack.volume.flush()
    stack.stop()


@pytest.mark.limit(1800)
def test_loaded_and_unloaded(make_disk, module):
    """Nothing is left of it, nor of what the kernel allocated for it."""
    stack = make_stack(make_disk, (32, 32), format_cache=("--segment-size", "128k"))
    stack.stop()
    with leaks.Reloads(module) as reloads, leaks.counting_modules():
        for number in range(CYCLES):
            reloads.load()
            idle = leaks.held()
            use(stack, number)
            comes_to(leaks.held, idle, f"cycle {number}, stopped: the module holds")
            reloads.unload()
            comes_to(reloads.gone, {}, f"cycle {number}, unloaded: there is left")
        comes_to(lambda: reloads.left(CYCLES), {}, "after all cycles there is left")


def test_what_is_left_is_noticed(make_disk, module):
    """A disk in each cycle stands for what the kernel allocates on behalf of the module, a cache for what the module does."""
    cycles = 6
    stack = make_stack(make_disk, (32,))
    stack.stop()
    with leaks.Reloads(module) as reloads, leaks.counting_modules():
        for number in range(cycles):
            reloads.load()
            idle = leaks.held()
            stack.start()
            assert any(n > idle.get(place, 0) for place, n in leaks.held().items())
            stack.stop()
            reloads.unload()
            make_disk(f"left{number}", mb=16)
        left = reloads.left(cycles)
    assert any(place.startswith("memory of each CPU") for place in left) and "vmalloc" in left, left


# ------------------------------------------------------------------ fault injection of the kernel

injected = pytest.mark.skipif(
    not fault_injection.possible(), reason="this kernel has no fault injection (CONFIG_FAILSLAB): make debug-kernel"
)


def judge_all(stack: Stack, oracle) -> None:
    """Nothing fails any more: what was flushed, or acknowledged, is there, drains, is there after a start and on the disk alone;
    stopped, the module holds nothing."""
    wait_for(lambda: not fails(stack.volume.flush), 240, "a flush to succeed")
    stack.volume.drain(240)
    assert not stack.volume.dirty() and stack.volume.status()["trouble"] == "-"
    oracle.verify()
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)
    comes_to(memory.held, {}, "everything is stopped, and the module holds")


@injected
@pytest.mark.limit(900)
@pytest.mark.parametrize("name", ["failslab", "fail_page_alloc"])
@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_allocations_fail(make_disk, make_oracle, kernel_log, name, mode):
    """Of every thread that works for larder: callers are told, or notice nothing."""
    if name == "fail_page_alloc":
        kernel_log.expect("Call Trace:")  # vmalloc() says where it got no page
    with memory.counting():
        stack = make_stack(make_disk, mode=mode)
        oracle = make_oracle(stack.volume, size="24m")
        oracle.run(ops=300)
        switches = Careless(stack.volume, stack.cache)
        with fault_injection.failing_allocations(name, 20) as failed:
            switches.run(oracle, *Careless.NAMES, ops=700, every=50, errors_ok=True)
            print(f"failed={failed()} switches refused={switches.failed} {oracle.last.report}")
            assert failed() > 10
        judge_all(stack, oracle)


@injected
@pytest.mark.limit(900)
@pytest.mark.parametrize("which", ["ssd", "hdd"])
def test_requests_fail_as_they_are_sent(make_disk, make_oracle, kernel_log, which):
    """One SSD of two: it leaves, nobody notices.  The disk: callers are told, and nothing is lost."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    with memory.counting():
        stack = make_stack(make_disk)
        oracle = make_oracle(stack.volume, size="24m")
        oracle.run(ops=300)
        with fault_injection.failing_requests(stack.hdd if which == "hdd" else stack.ssd[1], 20) as failed:
            Careless(stack.volume, stack.cache).run(oracle, *Careless.NAMES, ops=700, every=50, errors_ok=which == "hdd")
            print(f"failed={failed()} {oracle.last.report}")
            assert failed()  # an SSD is asked for nothing more once it has left
        if which == "ssd":
            wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 60, "the SSD to leave")
            stack.ssd = [stack.ssd[0], None]
        judge_all(stack, oracle)
