# SPDX-License-Identifier: GPL-2.0-or-later
"""What the devices below are asked to do, by their own counters: writes, bytes and flushes of a user's write, the order within a
segment, hits that leave the backing alone, large requests that stay large."""

import mmap
import os
import random

import pytest
from lib import simdisk
from lib.bio_trace import Bio, BioTrace
from lib.controls import Switches
from lib.larder import Stack, segment_layout

BLOCK = 4096
SECTORS = 8
N = 1000
SUMMARY = 4 * BLOCK  # once per segment


@pytest.fixture
def stack(make_disk):
    """commit_interval a minute, so that time is not in the counts; no checkpoint (it is due when replay would read
    2 % of the SSD, which is soon); all else as it is by default."""
    ssd = make_disk("ssd0", model="null", mb=512, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=256, wce=1)
    s = Stack(
        ssd,
        hdd,
        format_cache=("--segment-size", "2m"),
        format_volume=("--cache", "c"),
        cache_commit_interval=60000,
        cache_checkpoint_percent=50,
    )
    yield s
    s.stop()


def pages(seed: int, count: int, room: int) -> list[int]:
    """Sectors of different 4 KiB blocks, in random order."""
    return [SECTORS * i for i in random.Random(seed).sample(range(room), count)]


def settle(stack: Stack) -> None:
    """may_be_dirty is set by the first write, the first segments are open, nothing waits for its commit block."""
    stack.volume.write(0, os.urandom(BLOCK))
    stack.cache.message("commit")
    stack.volume.flush()
    for d in (stack.ssd, stack.hdd):
        d.reset_stats()


def write_all(stack: Stack, sectors: list[int], fsync: bool) -> None:
    fd = os.open(stack.volume.path, os.O_RDWR | os.O_DIRECT)
    try:
        buffer = aligned(BLOCK)
        for s in sectors:
            buffer[:8] = s.to_bytes(8, "little")
            assert os.pwritev(fd, [buffer], s * 512) == BLOCK
            if fsync:
                os.fsync(fd)
    finally:
        os.close(fd)


def aligned(size: int) -> mmap.mmap:
    m = mmap.mmap(-1, size)
    m[:] = os.urandom(size)
    return m


def counted(stack: Stack) -> tuple[dict, dict]:
    ssd, hdd = stack.ssd.stats(), stack.hdd.stats()
    for name, s in (("ssd", ssd), ("hdd", hdd)):
        print(name, {k: s[k] for k in ("reads", "writes", "wbytes", "flushes", "fua")})
    status = stack.cache.status()
    print(
        {k: status[k] for k in ("segment_opens", "segments_opened", "checkpoints", "summaries", "ssd_flushes", "superblock_writes")}
    )
    return ssd, hdd


def untouched(hdd: dict) -> None:
    assert (hdd["reads"], hdd["writes"], hdd["flushes"], hdd["discards"], hdd["write_zeroes"]) == (0, 0, 0, 0, 0)


# ---------------------------------------------------------------- writes


def judge_plain(ssd: dict, hdd: dict, opened: bool = False) -> None:
    """opened: segments have been opened meanwhile, several at once, which takes a flush."""
    assert N <= ssd["writes"] <= N + 20
    assert ssd["wbytes"] <= 1.05 * N * BLOCK
    assert ssd["flushes"] <= opened and ssd["fua"] == 0
    untouched(hdd)


def judge_fsync(ssd: dict, hdd: dict) -> None:
    """A few more appends until it has learnt that flushes follow, and the summaries of sealed segments."""
    assert N <= ssd["writes"] <= N + 20
    assert ssd["flushes"] + ssd["fua"] <= N + 20
    assert ssd["flushes"] + ssd["fua"] >= N
    segments = 1 + ssd["wbytes"] // (2 << 20)
    assert ssd["wbytes"] <= 2.0 * N * BLOCK + segments * SUMMARY + 20 * BLOCK
    untouched(hdd)


@pytest.mark.parametrize("what", ["plain", "fsync"])
def test_writes(stack, seed, what):
    where = pages(seed, N, 8192)
    for existing in (False, True):
        settle(stack)
        opens = stack.cache.status()["segment_opens"]
        write_all(stack, where, what == "fsync")
        print("existing" if existing else "new")
        ssd, hdd = counted(stack)
        if what == "fsync":
            judge_fsync(ssd, hdd)
        else:
            opened = stack.cache.status()["segment_opens"] > opens
            assert existing or not opened, "the first ones are open from the start"
            judge_plain(ssd, hdd, opened)


def test_the_judge_notices(make_disk, seed):
    """commit=always pays a commit block, or a flush, per write: what test_writes would not let pass."""
    ssd = make_disk("ssd0", model="null", mb=128, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=256, wce=1)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), cache_commit="always")
    settle(stack)
    write_all(stack, pages(seed, N, 8192), False)
    with pytest.raises(AssertionError):
        judge_plain(*counted(stack))
    stack.volume.set(mode="writethrough")
    settle(stack)
    write_all(stack, pages(seed + 1, N, 8192), False)
    with pytest.raises(AssertionError):
        untouched(counted(stack)[1])
    stack.stop()


# ---------------------------------------------------------------- the order within a segment


def check_front_to_back(writes: list[Bio], layout: tuple[int, int, int]) -> int:
    """In the order of submission.  Each write of a segment follows the one before it without a gap, but for the summary, which is
    in the last four slots; or it begins the segment anew.  Returns how often one was begun.  Superblocks and tables lie outside,
    checkpoints fill segments of their own, in the same way."""
    first, size, number = layout
    at: dict[int, int] = {}
    begun, wrong = 0, []
    for b in writes:
        if not first <= b.sector < first + number * size:
            continue
        segment, offset = divmod(b.sector - first, size)
        summary = offset == size - SUMMARY // 512 and offset > at.get(segment, 0)
        if offset == 0:
            begun += 1
        elif segment in at and offset != at[segment] and not summary:
            wrong.append(f"segment {segment} has been written up to {at[segment]}, now comes {offset}: {b}")
        at[segment] = offset + b.sectors
        if at[segment] > size:
            wrong.append(f"segment {segment}, offset {offset}: {b} crosses its end")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(writes)} writes:", *wrong[:10]])
    return begun


def test_segments_front_to_back(make_disk, make_oracle, seed):
    ssd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"))
    layout = segment_layout(ssd)
    oracle = make_oracle(stack.volume, size="48m")
    turns = 0
    with BioTrace(ssd) as trace:
        for _ in range(8):  # how much is filled is for the machine
            turns = Switches(stack.volume, stack.cache).run(oracle, "checkpoint", "evict", first=turns, ops=1500, every=150)
            # each segment that is left behind has a summary; those that streams began with may be older than the trace
            if stack.cache.status()["summaries"] > layout[2] + 3:
                break
        stack.volume.drain()
        writes = trace.writes()
    begun = check_front_to_back(writes, layout)
    print(f"{len(writes)} writes, {begun} segments begun of {layout[2]}")
    assert begun > layout[2], "the cache is to be filled more than once"
    # two writes of a segment in the wrong order, and one that overwrites, are found
    first, size, number = layout
    inside = [i for i, b in enumerate(writes) if first <= b.sector < first + number * size and (b.sector - first) % size]
    with pytest.raises(AssertionError):
        check_front_to_back([*writes, writes[inside[-1]]], layout)
    # of three in a row in a segment the last two change places; a summary may follow anything
    ends = (0, layout[1] - SUMMARY // 512)
    rows = [i for i in inside if i + 2 < len(writes) and (writes[i + 2].sector - layout[0]) % layout[1] not in ends]
    rows = [i for i in rows if all(writes[k].sector + writes[k].sectors == writes[k + 1].sector for k in (i, i + 1))]
    i = rows[len(rows) // 2]
    with pytest.raises(AssertionError):
        check_front_to_back([*writes[: i + 1], writes[i + 2], writes[i + 1], *writes[i + 3 :]], layout)
    oracle.verify()
    stack.stop()


# ---------------------------------------------------------------- reads


def test_hits_leave_the_backing_alone(stack, seed):
    where = pages(seed, 200, 8192)
    write_all(stack, where, False)
    stack.volume.drain()
    settle(stack)
    for s in where:
        assert stack.volume.read(s, SECTORS)[:8] == s.to_bytes(8, "little")
    ssd, hdd = counted(stack)
    assert ssd["reads"] == len(where) and ssd["rbytes"] == len(where) * BLOCK
    untouched(hdd)
    assert ssd["writes"] == 0


def test_filled_misses_are_hits(stack, seed):
    where = pages(seed, 200, 8192)
    settle(stack)
    for s in where:
        stack.volume.read(s, SECTORS)
    stack.cache.message("commit")
    assert stack.hdd.stats()["reads"] >= len(where) - 1  # sector 0 is cached
    assert stack.volume.status()["fills_denied"] == 0
    settle(stack)
    for s in where:
        stack.volume.read(s, SECTORS)
    ssd, hdd = counted(stack)
    untouched(hdd)
    assert ssd["reads"] == len(where)


MIB = 2048  # sectors
RECORD = 127 * SECTORS  # sectors of data in a record, at most


def commands(trace: simdisk.Trace, disk: simdisk.Simdisk, op: str) -> list[int]:
    return [c.sectors for c in trace.commands(disk, op)]


def test_large_requests_stay_large(stack, trace):
    """1 MiB, direct.  A record has 508 KiB of data at most, so a cached write is three of them, and a filled miss three reads."""
    v, ssd, hdd = stack.volume, stack.ssd, stack.hdd
    settle(stack)
    v.set(fill="off")
    trace.clear()
    v.read(8 * MIB, MIB)
    assert commands(trace, hdd, "read") == [MIB]
    assert commands(trace, ssd, "read") == []
    v.set(fill="on")
    trace.clear()
    v.read(16 * MIB, MIB)
    assert sum(commands(trace, hdd, "read")) == MIB and len(commands(trace, hdd, "read")) <= 3
    stack.cache.message("commit")  # its copies are no writes, and no extents, of what follows
    trace.clear()
    extents = v.status()["extents"]
    v.write(24 * MIB, os.urandom(MIB * 512))
    assert len(commands(trace, ssd, "write")) <= 4  # one may meet the end of a segment
    added = v.status()["extents"] - extents
    assert 1 <= added <= 4
    trace.clear()
    v.read(24 * MIB, MIB)
    assert sum(commands(trace, ssd, "read")) == MIB and len(commands(trace, ssd, "read")) <= added
    assert commands(trace, hdd, "read") == []
    v.set(mode="writearound")
    trace.clear()
    v.write(32 * MIB, os.urandom(MIB * 512))  # the worker sets the region's mark, and is given what a record holds
    assert sum(commands(trace, hdd, "write")) == MIB and len(commands(trace, hdd, "write")) <= 3
    trace.clear()
    v.write(33 * MIB, os.urandom(MIB * 512))
    assert commands(trace, hdd, "write") == [MIB]


@pytest.mark.parametrize("how", ["fsync", "dsync"])
def test_log_that_is_waited_for(stack, how):
    """In order, and twice as long as sequential_cutoff: but each piece is waited for, at the disk for a turn of it."""
    settle(stack)
    number, buffer = 8 * 256 // 2, aligned(2 * BLOCK)
    fd = os.open(stack.volume.path, os.O_RDWR | os.O_DIRECT | (os.O_DSYNC if how == "dsync" else 0))
    try:
        for i in range(number):
            buffer[:8] = i.to_bytes(8, "little")
            os.pwritev(fd, [buffer], (16 << 20) + i * len(buffer))
            if how == "fsync":
                os.fdatasync(fd)
    finally:
        os.close(fd)
    assert (stack.hdd.stats()["writes"], stack.hdd.stats()["flushes"]) == (0, 0)
    # the same length ahead of its flushes goes there
    large = aligned(1 << 20)
    fd = os.open(stack.volume.path, os.O_RDWR | os.O_DIRECT)
    try:
        for i in range(12):
            os.pwritev(fd, [large], (32 << 20) + i * len(large))
            os.fdatasync(fd)
    finally:
        os.close(fd)
    assert stack.hdd.stats()["wbytes"] >= 6 << 20, stack.hdd.stats()
