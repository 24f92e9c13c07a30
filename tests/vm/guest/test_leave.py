# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache fails of which nothing is dirty: its volumes go on without it, and nobody sees an error.  It is stale from then on, if it
comes back, before anything has reached the backing past it."""

import pytest
from lib import simdisk
from lib.larder import Stack, Volume, backing_alone, larder, wait_for
from lib.sets import kill, make_ssds

MODES = ("writethrough", "writearound", "writeback")
EVERYTHING = "read,write,flush,discard,zeroes"
NOISE = "I/O error|critical .* error|Buffer I/O"


def make(make_disk, ssds: int = 1, **options: object) -> Stack:
    disks = make_ssds(make_disk, (32,) * ssds, model="null")
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    return Stack(disks if ssds > 1 else disks[0], hdd, format_volume=("--cache", "c"), **options)


def passing(stack: Stack) -> None:
    wait_for(lambda: stack.volume.status()["state"] == "passing", 60, "the volume to leave")


def is_stale(stack: Stack) -> bool:
    """Starts the stack with its SSDs, as always: what is stale has nothing of it any more, and may have again."""
    flags = ["super", "show", stack.hdd, "-o", "flags", "--noheadings"]
    left = larder(*flags).stdout.strip() == "left"
    stack.start()
    assert not left or not stack.volume.status()["cached_sectors"]
    assert larder(*flags).stdout.strip() in ("none", "may_be_dirty")
    return left


# flushes alone, in writeback: what is written becomes dirty before the first one, and cannot be made durable
@pytest.mark.parametrize(
    ("mode", "ops"), [(m, ops) for m in MODES for ops in (EVERYTHING, "write", "flush") if (m, ops) != ("writeback", "flush")]
)
def test_nobody_sees_an_error(make_disk, make_oracle, kernel_log, mode, ops):
    """The SSD dies under load, but for writeback, where nothing may be dirty.  The load has discards, zeroes, FUA and flushes."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode=mode, sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=1000)
    if mode == "writeback":
        stack.volume.drain()
        kill(stack.ssd, ops)
        oracle.run(ops=1000)
    else:
        load = oracle.start(ops=3000, qd=8)
        wait_for(lambda: stack.ssd.stats()["writes"] > 100, 60, "the load to run")
        kill(stack.ssd, ops)
        load.wait()
        stack.volume.flush()
    passing(stack)
    oracle.verify()
    assert stack.cache.status()["state"] == "failed" and not stack.volume.status()["may_be_dirty"]
    text = larder("volume", "status", "v").stdout
    assert "larder volume detach v" in text and "larder cache status" in text, text
    oracle.run(ops=500)
    simdisk.power_cut(mode="random")
    stack.stop()
    simdisk.power_up()
    raw = backing_alone(stack.hdd)
    oracle.verify(after="crash", device=raw)
    raw.remove()
    stack.ssd.heal()
    assert is_stale(stack)
    oracle.verify()
    oracle.run(ops=500)
    oracle.verify()
    stack.stop()


def test_both_of_a_set_die(make_disk, make_oracle, kernel_log):
    kernel_log.expect(NOISE)
    stack = make(make_disk, ssds=2, mode="writethrough", sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=500)
    load = oracle.start(ops=3000, qd=8)
    for s in stack.ssd:
        kill(s)
    load.wait()
    stack.volume.flush()
    passing(stack)
    oracle.verify()
    stack.stop()


def test_goes_on_behind_a_suspend(make_disk, make_oracle, kernel_log):
    """Suspended and resumed, reloaded, its cache suspended; then detached by the verb."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode="writethrough")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=500)
    kill(stack.ssd)
    oracle.run(ops=100)
    passing(stack)
    for again in (
        lambda: (stack.volume.suspend(), stack.volume.resume()),
        lambda: stack.volume.reload(stack.volume.table()),
        lambda: (stack.cache.suspend(), stack.cache.resume()),
    ):
        again()
        passing(stack)
        oracle.run(ops=200)
        oracle.verify()
    larder("volume", "detach", "v")
    assert stack.volume.status()["state"] == "passthrough"
    oracle.run(ops=200)
    oracle.verify()
    stack.stop()


@pytest.mark.parametrize("mode", ["writethrough", "writeback"])
@pytest.mark.limit(1200)
def test_power_cuts(make_disk, make_oracle, kernel_log, seed, mode):
    """Power fails at each of the first commands that the backing gets behind the death of the SSD; that is well again afterwards,
    and has all that it had.  Started with it: it is stale, or nothing has reached the backing that it does not know of."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode=mode, sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="16m")
    seen = set()
    for after in range(1, 13):
        oracle.run(ops=300, qd=8)
        if mode == "writeback":
            stack.volume.drain()
        load = oracle.start(ops=0, seconds=60, until_error=True, qd=8) if mode != "writeback" else None
        kill(stack.ssd)
        simdisk.power_cut(stack.hdd, mode="random", seed=seed + after, after=after)
        load = load or oracle.start(ops=0, seconds=60, until_error=True, qd=8)
        load.wait()
        simdisk.wait_power_off(stack.hdd)
        simdisk.power_cut(mode="random", seed=seed + after)
        stack.stop()
        stack.ssd.heal()
        simdisk.power_up()
        seen.add(is_stale(stack))
        oracle.verify(after="crash")
        oracle.verify()
        stack.cache.message("reclaim", 100)
        oracle.verify()
    assert True in seen
    stack.stop()


def test_what_is_dirty_stays(make_disk, make_oracle, kernel_log):
    """One of two volumes has dirty data: writes of that one fail, the other one leaves; and at a start with the SSD well again the
    dirty data is there."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode="writeback", writeback="off", sequential_cutoff=0)
    hdd = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("w", hdd, "--cache", "c")
    other = Volume.start(hdd, stack.cache, name="w", mode="writethrough")
    dirty, clean = make_oracle(stack.volume, size="8m"), make_oracle(other, size="8m")
    dirty.run(ops=300)
    stack.volume.flush()
    clean.run(ops=300)
    kill(stack.ssd, "write,flush")
    dirty.run(ops=50, errors_ok=True)
    clean.run(ops=300)
    wait_for(lambda: other.status()["state"] == "passing", 60, "the other one to leave")
    assert stack.volume.status()["state"] == "cache-failed"
    with pytest.raises(OSError):
        stack.volume.write(0, bytes(4096))
    dirty.verify(unreadable_ok=True)
    other.remove()
    stack.stop()
    clean.verify(device=backing_alone(hdd, "other"))
    stack.ssd.heal()
    stack.start()
    dirty.verify(after="crash")
    stack.verify_alone(dirty)
