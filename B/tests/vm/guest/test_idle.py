# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache with nothing to do: no I/O, no wake-ups; with `quiet` the disks are left alone until more than the target is dirty.

The VM has a clock of its own (--icount), in which hours of idling pass in seconds.
"""

import os
import time

import pytest
from lib import wakeups
from lib.larder import Cache, Stack, Volume
from lib.oracle import Oracle

MIB = 2048  # sectors
SETTLES = 240  # seconds: marks go after 30, may_be_dirty after 60 behind that, then the cache rests after 60
OPERATIONS = ("reads", "writes", "flushes", "discards", "write_zeroes")

pytestmark = pytest.mark.limit(7200)


def idle(stack: Stack, disks: list, seconds: int = 60) -> tuple[list[str], dict[str, int]]:
    """What it does by itself: works and timers of the module, commands to each disk."""
    for d in disks:
        d.reset_stats()
    ran = wakeups.during(seconds)
    return ran, {d.name: n for d in disks if (n := sum(d.stats()[o] for o in OPERATIONS))}


def settled(stack: Stack, disks: list) -> None:
    time.sleep(SETTLES)
    assert idle(stack, disks) == ([], {})


def fill(stack: Stack, sectors: int, first: int = 0) -> None:
    for at in range(first, first + sectors, 256):
        stack.volume.write(at, os.urandom(256 * 512))
    stack.volume.flush()


@pytest.mark.parametrize("mode", ["writeback", "writethrough", "writearound"])
@pytest.mark.parametrize("ssds", [1, 2])
def test_idle_cache(make_disk, make_oracle, mode, ssds):
    """After load of each kind.  What comes later finds it awake: dirty data is written back, and it rests again."""
    disks = [make_disk(f"ssd{i}", model="null", mb=64, wce=1, fua=1) for i in range(ssds)]
    disks.append(make_disk("hdd0", model="null", mb=256, wce=1))
    stack = Stack(disks[:-1], disks[-1], format_volume=("--cache", "c", "--mode", mode))
    oracle: Oracle = make_oracle(stack.volume, size="96m")
    oracle.run(ops=2000)
    assert idle(stack, disks, 2)[0], "or what follows shows nothing"
    settled(stack, disks)
    assert not stack.volume.dirty()
    oracle.run(ops=500)
    time.sleep(20)
    assert not stack.volume.dirty(), "written back with nobody asking"
    settled(stack, disks)
    oracle.verify()
    stack.volume.set(mode="writeback", writeback="off")
    fill(stack, 2 * MIB)
    settled(stack, disks)
    assert stack.volume.dirty() >= 2 * MIB
    stack.volume.set(writeback="on")
    time.sleep(20)
    assert not stack.volume.dirty(), "a message wakes it"
    stack.stop()


def test_a_stop_of_one_that_rests(make_disk, make_oracle):
    disks = [make_disk("ssd0", model="null", mb=64, wce=1, fua=1), make_disk("hdd0", model="null", mb=256, wce=1)]
    stack = Stack(disks[0], disks[1], format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="32m")
    oracle.run(ops=1000)
    settled(stack, disks)
    stack.restart()
    oracle.verify(after="clean")
    settled(stack, disks)
    stack.volume.reload(stack.line())
    oracle.run(ops=500)
    stack.volume.set(writeback="on")
    stack.volume.drain()
    settled(stack, disks)
    oracle.verify()
    stack.stop()


def test_quiet(make_disk):
    """Nothing reaches the disk before more than the target is dirty, then everything; and the cache sleeps meanwhile."""
    disks = ssd, hdd = [make_disk("ssd0", model="null", mb=128, wce=1, fua=1), make_disk("hdd0", model="null", mb=256, wce=1)]
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), quiet="on", sequential_cutoff=0)
    v, c = stack.volume, stack.cache.status()
    target = c["segments"] * c["segment_sectors"] // 10
    fill(stack, 2 * MIB)  # may_be_dirty is set on the disk
    for at in range(2, 6):
        hdd.reset_stats()
        fill(stack, MIB, at * MIB)
        time.sleep(600)
        assert not any(hdd.stats()[o] for o in OPERATIONS)
    settled(stack, disks)
    assert v.dirty() == 6 * MIB < target
    fill(stack, target, 8 * MIB)
    time.sleep(30)
    assert not v.dirty(), "all of it, not what is beyond the target"
    time.sleep(SETTLES)
    hdd.reset_stats()
    fill(stack, MIB, 64 * MIB)
    settled(stack, disks)
    assert not any(hdd.stats()[o] for o in OPERATIONS), "nor does the first write behind that need the disk"
    assert v.dirty() == MIB
    v.drain()
    fill(stack, MIB, 70 * MIB)
    v.set(quiet="off")
    time.sleep(20)
    assert not v.dirty(), "the twin: without it an idle disk gets everything"
    stack.stop()


def test_quiet_beside_a_busy_volume(make_disk):
    """What another volume has dirty does not wake the disk, though it is more than the target."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    disks = [make_disk(f"hdd{i}", model="null", mb=256, wce=1) for i in range(2)]
    Cache.format("c", ssd)
    cache = Cache.start(ssd, congestion_read=0, congestion_write=0)
    volumes = []
    for name, disk in zip("vw", disks, strict=True):
        Volume.format(name, disk, "--cache", "c")
        volumes.append(Volume.start(disk, cache, name=name, quiet="on", sequential_cutoff=0))
    v, busy = volumes
    v.write(0, os.urandom(4096))  # may_be_dirty is set on the disk
    v.flush()
    busy.set(writeback="off")
    for at in range(0, 12 * MIB, 256):
        busy.write(at, os.urandom(256 * 512))
    assert busy.dirty() * 10 > cache.status()["segments"] * cache.status()["segment_sectors"]
    disks[0].reset_stats()
    for at in range(0, MIB, 256):
        v.write(at, os.urandom(256 * 512))
    v.flush()
    time.sleep(SETTLES)
    assert v.dirty() == MIB and not any(disks[0].stats()[o] for o in OPERATIONS)
    for w in volumes:
        w.set(quiet="off", writeback="on")
        w.drain()
        w.remove()
    cache.remove()


def test_quiet_in_a_mirrored_set(make_disk):
    """Dirty data has two copies: the target is a part of what there is room for, not of both SSDs together."""
    ssds = [make_disk(f"ssd{i}", model="null", mb=256, wce=1, fua=1) for i in range(2)]
    hdd = make_disk("hdd0", model="null", mb=512, wce=1)
    stack = Stack(ssds, hdd, format_volume=("--cache", "c"), quiet="on", sequential_cutoff=0, writeback_percent=60)
    half = stack.cache.status()["segments"] * stack.cache.status()["segment_sectors"] // 4 // 256 * 256
    fill(stack, half)
    time.sleep(60)
    assert stack.volume.dirty() == half
    fill(stack, half * 3 // 10, half)
    time.sleep(60)
    assert not stack.volume.dirty()
    stack.stop()
