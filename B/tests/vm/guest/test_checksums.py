# SPDX-License-Identifier: GPL-2.0-or-later
"""A bit of cached data flips on the SSD, and nothing tells the reader: writeback and reclaim see it, and do not copy it.

The damage is done below the cache, to what it has written, while it runs."""

import os
import time

import pytest
from lib import simdisk
from lib.block import SECTOR
from lib.decay import SLOT, Written, commit, crash, damage_copies, flip, lose_checksums, places, settle
from lib.larder import Cache, Stack, segment_layout, wait_for
from lib.log_blocks import FILL, WRITE, commit_blocks
from lib.sets import small_stack

SEGMENT = 256  # sectors: 28 slots of data, 4 of summary
DATA = 224
SUMMARY = 32


@pytest.fixture(params=[512, 4096], ids=["512", "4Kn"])
def ssd_block(request) -> int:
    return request.param


def make_stack(make_disk, block: int = 512, ssd_mb: int = 32, **options: object) -> Stack:
    """Small segments; nothing is written back, and none is asked for, before a test says so."""
    ssd = make_disk("ssd0", model="null", mb=ssd_mb, wce=1, fua=1, lbs=block, pbs=4096)
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0} | options
    return Stack(ssd, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)


def damage(stack: Stack, data: bytes, sector: int = 0) -> int:
    """In this sector of the data.  Returns the segment."""
    found = places(stack.ssd, data)
    for at in found:
        flip(stack.ssd, at + sector)
    first, size, _ = segment_layout(stack.ssd)
    return (found[-1] - first) // size


def settled(stack: Stack, dirty: int) -> None:
    """Everything was written back but so many sectors."""
    stack.volume.message("flush")
    wait_for(lambda: stack.volume.dirty() <= dirty, 60, f"all but {dirty} sectors to be written back")
    assert stack.volume.dirty() == dirty


def counts(stack: Stack) -> dict:
    return {k: stack.cache.status()[k] for k in ("errors_checksum", "checked_slots", "unchecked_slots", "sums_reads")}


# ---------------------------------------------------------------- writeback


def prepare(stack: Stack, w: Written, where: str) -> tuple[list[int], list[bytes]]:
    """Dirty data: a run of blocks, and some that stand alone."""
    sectors = [4096 + SLOT * i for i in range(9)] + [8192 + 100 * SLOT * i for i in range(9)]
    data = [w.write(s) for s in sectors[:9]]
    commit(stack)  # its block stands between them on the SSD: a read error of the one does not take the others with it
    data += [w.write(s) for s in sectors[9:]]
    commit(stack)
    settle(stack, w, where)
    return sectors, data


WHERE = ("active", "sealed", "restarted", "restarted sealed", "crashed", "crashed sealed")


@pytest.mark.parametrize("where", WHERE)
def test_writeback(make_disk, kernel_log, trace, seed, ssd_block, where):
    """Damaged data is left out, whatever was written before and behind it is not; writing it anew heals it."""
    stack = make_stack(make_disk, ssd_block)
    w = Written(stack, seed)
    sectors, data = prepare(stack, w, where)
    bad = (4, 13)  # in the middle of the run; one that stands alone
    segments = {damage(stack, data[i], sector=i % SLOT) for i in bad}
    events = stack.volume.events()
    dirty = stack.volume.dirty()
    trace.clear()
    settled(stack, len(bad) * SLOT)
    assert w.not_on_backing() == {sectors[i] + k for i in bad for k in range(SLOT)}

    found = counts(stack)
    print(where, found)
    assert found["errors_checksum"] >= len(bad) and found["unchecked_slots"] == 0
    assert found["checked_slots"] >= dirty // SLOT - len(bad)
    assert stack.volume.status()["errors_checksum"] == found["errors_checksum"]
    assert stack.volume.events() > events
    for i in bad:
        assert kernel_log.said(rf"volume .* damaged dirty data at sector {sectors[i]} \(segment \d+, ssd0 sector \d+\)")
    assert {int(x.split("(segment ")[1].split(",")[0]) for x in kernel_log.matching("damaged dirty data")} <= segments

    first, size, _ = segment_layout(stack.ssd)
    reads = [c for c in trace.commands(stack.ssd, "read") if c.sector >= first]
    summaries = [c for c in reads if (c.sector - first) % size == DATA and c.sectors == SUMMARY]
    whole = [c for c in reads if (c.sector - first) % size == 0 and c.sectors == DATA]
    if where in ("active", "sealed"):
        assert found["sums_reads"] == 0 and not summaries and not whole
    elif where.endswith("sealed"):
        assert found["sums_reads"] > 0 and summaries
        assert len(whole) < len(summaries), "sealed segments but the last one have summaries"
    else:
        assert found["sums_reads"] > 0 and whole

    # still there after a start, and still not written
    stack.restart()
    assert stack.volume.dirty() == len(bad) * SLOT
    settled(stack, len(bad) * SLOT)
    w.write(sectors[bad[0]])
    w.write(sectors[bad[1]], 5)
    settled(stack, 3)
    stack.volume.discard(sectors[bad[1]] + 5, 3)
    settled(stack, 0)
    for k in range(5, 8):
        del w.content[sectors[bad[1]] + k]
    assert w.not_on_backing() == set() and w.wrong(stack.volume) == {}
    stack.detach()
    assert w.wrong(stack.volume) == {}
    stack.stop()


@pytest.mark.parametrize("where", ["active", "sealed", "crashed sealed"])
def test_nothing_is_damaged(make_disk, seed, ssd_block, where):
    """The twin of the test before: everything is checked, nothing is found, and what was written lately takes no reads but its
    own."""
    stack = make_stack(make_disk, ssd_block)
    w = Written(stack, seed)
    prepare(stack, w, where)
    dirty = stack.volume.dirty()
    stack.ssd.reset_stats()
    settled(stack, 0)
    found = counts(stack)
    print(where, found)
    assert found["errors_checksum"] == found["unchecked_slots"] == 0 and found["checked_slots"] == dirty // SLOT
    if where in ("active", "sealed"):
        assert found["sums_reads"] == 0 and stack.ssd.stats()["rbytes"] == dirty * SECTOR
    assert w.not_on_backing() == set()
    stack.stop()


def test_wrong_once(make_disk, seed, ssd_block):
    """What is right when it is read again is written.  (The kernel's log says so, at a limited rate.)"""
    stack = make_stack(make_disk, ssd_block)
    w = Written(stack, seed)
    _, data = prepare(stack, w, "active")
    at = places(stack.ssd, data[2])[0]
    # all that the command reads is wrong; a second fault would wait for the reading again, if one command read both places
    stack.ssd.fail(op="read", from_=at, to=at + SLOT, status="corrupt", count=1)
    settled(stack, 0)
    assert counts(stack)["errors_checksum"] >= 1 and stack.volume.status()["errors_checksum"] == 0
    assert w.not_on_backing() == set()
    stack.stop()


@pytest.mark.parametrize("which", [0, 1])
def test_two_copies(make_disk, seed, which):
    """On two SSDs what is damaged in one copy, whichever is read, is taken from the other."""
    ssds = [make_disk(f"ssd{i}", model="null", mb=32, wce=1, fua=1) for i in range(2)]
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(
        ssds, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0
    )
    w = Written(stack, seed)
    copies = damage_copies(stack, w, which)
    for s in ssds:
        flip(s, copies[7][s] + 5)
    settled(stack, SLOT)
    assert w.not_on_backing() == {4096 + 3 * SLOT * 7 + k for k in range(SLOT)}
    assert stack.volume.status()["errors_checksum"] > 0 and stack.cache.status()["devices_failed"] == 0
    w.write(4096 + 3 * SLOT * 7)
    settled(stack, 0)
    assert w.not_on_backing() == set()
    stack.stop()


@pytest.mark.parametrize("which", [0, 1])
def test_blocks_of_one_copy(make_disk, seed, which):
    """On two SSDs, a segment that was being written at the stop has no summary, and what is damaged in one copy is data and the
    commit blocks behind it: the sums are those of the other copy's blocks, and scrub mends what it was."""
    ssds = [make_disk(f"ssd{i}", model="null", mb=32, wce=1, fua=1) for i in range(2)]
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(
        ssds, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0
    )
    w = Written(stack, seed)
    _, data = prepare(stack, w, "restarted")
    at = [places(ssds[which], d)[0] for d in (data[3], data[12])]
    first, size, _ = segment_layout(ssds[which])
    starts = {first + (a - first) // size * size for a in at}
    blocks = [s for start in starts for s in range(start, start + DATA, SLOT) if ssds[which].read(s, 4)[:4] == b"LCMT"]
    assert len(blocks) >= 2
    for s in (*at, *blocks):
        flip(ssds[which], s)
    settled(stack, 0)
    assert w.not_on_backing() == set()
    assert counts(stack)["unchecked_slots"] == 0
    stack.cache.message("scrub")
    wait_for(lambda: stack.cache.status()["scrub"] == "done", 60, "the scrub")
    status = stack.cache.status()
    assert status["scrub_errors"] == status["scrub_repaired"]  # none of a second copy that is not needed any more
    assert status["scrub_dropped"] == status["scrub_unrepairable"] == 0
    stack.stop()


def test_damaged_summary(make_disk, seed):
    """Its checksum tells: the commit blocks are read instead, once."""
    stack = make_stack(make_disk)
    w = Written(stack, seed)
    _, data = prepare(stack, w, "restarted sealed")
    segment = damage(stack, data[2])
    first, size, _ = segment_layout(stack.ssd)
    flip(stack.ssd, first + segment * size + DATA + 3)
    with simdisk.Trace() as t:
        settled(stack, SLOT)
        settled(stack, SLOT)
        whole = [c for c in t.commands(stack.ssd, "read") if c.sector == first + segment * size and c.sectors == DATA]
    assert len(whole) == 1
    assert counts(stack)["unchecked_slots"] == 0
    stack.stop()


def test_no_sum_is_known(make_disk, kernel_log, seed):
    """Neither summary nor commit blocks: nothing is known against the data, so it is written, and that is said."""
    stack = make_stack(make_disk)
    w = Written(stack, seed)
    _, data = prepare(stack, w, "restarted")
    first, size, _ = segment_layout(stack.ssd)
    at = places(stack.ssd, data[0])[0]
    start = first + (at - first) // size * size
    blocks = [s for s in range(start, start + DATA, SLOT) if stack.ssd.read(s, SLOT)[:4] == b"LCMT"]
    assert blocks
    for s in blocks:
        flip(stack.ssd, s)
    settled(stack, 0)
    found = counts(stack)
    assert found["unchecked_slots"] > 0 and found["errors_checksum"] == 0
    assert kernel_log.said("no checksum of slot")
    assert w.not_on_backing() == set()
    stack.stop()


def test_segment_that_cannot_be_read_whole(make_disk, seed):
    """One slot of it gives read errors: the sums of the rest are known all the same."""
    stack = make_stack(make_disk)
    w = Written(stack, seed)
    sectors, data = prepare(stack, w, "restarted")
    at = places(stack.ssd, data[3])[0]
    damage(stack, data[13])
    stack.ssd.fail(op="read", from_=at, to=at + SLOT, status="medium")
    settled(stack, 2 * SLOT)  # it, and what is damaged
    assert stack.cache.status()["errors_read"] > 0
    stack.ssd.heal()
    settled(stack, SLOT)
    assert w.not_on_backing() == {sectors[13] + k for k in range(SLOT)}
    assert counts(stack)["unchecked_slots"] == 0
    stack.stop()


UNALIGNED = {
    "one sector": ([(1001, 1)], 0, 0, 1),
    "three sectors": ([(1001, 3)], 0, 2, 3),
    "padding": ([(1001, 3)], 0, 7, 3),
    "overwritten in the middle": ([(1000, 8), (1003, 2)], 0, 0, 6),
    "the part that was overwritten": ([(1000, 8), (1003, 2)], 0, 3, 6),
    "what overwrote it": ([(1000, 8), (1003, 2)], 1, 1, 2),
    "long and odd": ([(1003, 77)], 0, 41, 8),
    "the end of a long one": ([(1003, 77)], 0, 76, 5),
    "odd neighbours": ([(1003, 5), (1008, 16), (1024, 13), (1037, 8)], 2, 9, 5),
    "between odd neighbours": ([(1003, 5), (1008, 16), (1024, 13), (1037, 8)], 1, 15, 8),
    "begun late": ([(1000, 40), (1000, 3)], 0, 6, 5),
    "begun late, in whole slots": ([(1000, 40), (1000, 3)], 0, 8, 8),
}


@pytest.mark.parametrize("case", UNALIGNED)
def test_unaligned(make_disk, seed, ssd_block, case):
    """Pieces that cover slots in part, and such as lie askew in the buffer.  What shares no slot with the damage is written."""
    writes, which, sector, left = UNALIGNED[case]
    stack = make_stack(make_disk, ssd_block)
    w = Written(stack, seed)
    w.write(4096, 3)
    data = [w.write(*one) for one in writes]
    w.write(8191, 30)
    commit(stack)
    damage(stack, data[which], sector)
    before = stack.ssd.stats()["reads"]
    settled(stack, left)
    assert stack.ssd.stats()["reads"] > before
    assert len(w.not_on_backing()) == left
    assert counts(stack)["unchecked_slots"] == 0
    for one in writes:
        w.write(*one)
    settled(stack, 0)
    assert w.not_on_backing() == set() and w.wrong(stack.volume) == {}
    stack.stop()


def test_it_does_not_spin(make_disk, seed):
    """With nothing else to do there is a second between two attempts at least, and more and more."""
    stack = make_stack(make_disk)
    w = Written(stack, seed)
    data = w.write(4096)
    commit(stack)
    damage(stack, data)
    stack.volume.message("flush")
    wait_for(lambda: counts(stack)["errors_checksum"], 60, "the damage to be seen")
    assert stack.volume.status()["dirty_sectors"] == SLOT
    begin, before = time.monotonic(), counts(stack)["errors_checksum"]
    time.sleep(6)
    attempts, seconds = counts(stack)["errors_checksum"] - before, time.monotonic() - begin
    print(f"{attempts} attempts in {seconds:.1f} s")
    assert attempts <= seconds
    stack.stop()


# ---------------------------------------------------------------- reclaim


def hot_data(stack: Stack, w: Written, stream: str, odd: int) -> list[int]:
    """Sectors of blocks that a reclaim keeps, among others that it drops; the cache was started since they were written."""
    sectors = [4096 + odd + 3 * SLOT * i for i in range(60)]
    for i, s in enumerate(sectors):
        w.write(s)
        if i % 9 == 8:
            stack.volume.flush()  # or a fast machine has one commit block in each segment
    settled(stack, 0)
    if stream == "fill":
        stack.volume.message("drop_clean")
        stack.restart()  # what was dropped may be back
        stack.volume.message("drop_clean")
        stack.cache.message("checkpoint")
        for s in sectors:
            assert stack.volume.read(s, SLOT) == b"".join(w.content[s + i] for i in range(SLOT))
        wait_for(lambda: stack.volume.status()["fill_sectors"] >= len(sectors) * SLOT, 60, "the fills")
    stack.restart()  # from here on a hit counts: it is old
    hot = sectors[::3]
    for s in 2 * hot:  # what is hit twice is kept
        stack.volume.read(s, SLOT)
    assert stack.volume.status()["read_hits"] == 2 * len(hot)
    return hot


def reclaimed(stack: Stack) -> dict:
    s = stack.cache.status()
    stack.cache.message("reclaim", s["segments_write"] + s["segments_fill"] + s["segments_keep"])
    found = stack.cache.status()
    print({k: found[k] for k in found if k.startswith("reclaim")}, counts(stack))
    return found


@pytest.mark.parametrize("stream", ["write", "fill"])
@pytest.mark.parametrize("odd", [0, 5], ids=["aligned", "odd"])
def test_reclaim(make_disk, kernel_log, seed, ssd_block, stream, odd):
    """Hot clean data that is damaged is not kept: it comes from the backing again."""
    stack = make_stack(make_disk, ssd_block)
    w = Written(stack, seed)
    hot = hot_data(stack, w, stream, odd)
    bad = hot[7]
    damage(stack, b"".join(w.content[bad + i] for i in range(SLOT)), 3)
    found = reclaimed(stack)
    assert found["errors_checksum"] == 1 and found["unchecked_slots"] == 0
    assert found["reclaim_kept_slots"] == len(hot) - 1
    assert stack.volume.status()["errors_checksum"] == 1
    assert kernel_log.said(rf"sectors {bad} to {bad + 7} of volume .* are dropped")
    before = stack.volume.status()
    assert w.wrong(stack.volume) == {}
    assert stack.volume.status()["read_misses"] > before["read_misses"]
    stack.stop()


@pytest.mark.parametrize("stream", ["write", "fill"])
@pytest.mark.parametrize("odd", [0, 5], ids=["aligned", "odd"])
def test_reclaim_without_checksums(make_disk, kernel_log, seed, stream, odd):
    """The data is damaged, and so is the last commit block, without which no sum of its segment is believed: nothing of that is
    kept, with a new checksum that says it is right."""
    stack = make_stack(make_disk)
    w = Written(stack, seed)
    hot = hot_data(stack, w, stream, odd)
    data = b"".join(w.content[hot[7] + i] for i in range(SLOT))
    damage(stack, data, 3)
    assert lose_checksums(stack.ssd, places(stack.ssd, data)[-1], last=True) == 2
    found = reclaimed(stack)
    assert found["errors_checksum"] == found["unchecked_slots"] == 0
    assert 0 < found["reclaim_kept_slots"] < len(hot)
    if stream == "write":  # else the only block of the segment is the last one: nothing says that there is anything to keep
        assert kernel_log.said("checksums are lost")
    assert w.wrong(stack.volume) == {}
    stack.stop()


def test_space_with_damage(make_disk, make_oracle, seed):
    """A cache that is written over several times with damaged dirty data in it: reclaim goes round it."""
    stack = make_stack(make_disk, ssd_mb=16)
    w = Written(stack, seed)
    data = [w.write(4096 + 2 * SLOT * i) for i in range(40)]
    commit(stack)
    for i in (3, 30):
        damage(stack, data[i])
    oracle = make_oracle(stack.volume, size="24m", offset="16m")
    oracle.run(ops=2500, sizes="4k:40,16k:40,128k:20")
    oracle.verify()
    s = stack.cache.status()
    print({k: s[k] for k in ("reclaimed", "segments", "dirty_sectors", "errors_checksum", "unchecked_slots")})
    assert s["reclaimed"] > s["segments"] and s["errors_checksum"] > 0 and s["unchecked_slots"] == 0
    settled(stack, 2 * SLOT)
    assert w.not_on_backing() == {4096 + 2 * SLOT * i + k for i in (3, 30) for k in range(SLOT)}
    w.write(4096 + 2 * SLOT * 3)
    w.write(4096 + 2 * SLOT * 30)
    settled(stack, 0)
    assert w.not_on_backing() == set()
    stack.verify_alone(oracle)


# ---------------------------------------------------------------- no false alarm


@pytest.mark.parametrize("segment", ["128k", "2m"])
def test_reuse_and_restarts(make_disk, make_oracle, seed, ssd_block, segment):
    """Segments are used again and again, over starts and power cuts: all that is copied matches the sums of this life."""
    ssd = make_disk("ssd0", model="null", mb=96 if segment == "2m" else 16, wce=1, fua=1, lbs=ssd_block, pbs=4096)
    hdd = make_disk("hdd0", model="null", mb=192, wce=1)
    stack = Stack(ssd, hdd, format_cache=("--segment-size", segment), format_volume=("--cache", "c"), sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="24m" if segment == "128k" else "128m")
    checked = 0
    for i in range(6):
        oracle.run(ops=600, sizes="512:10,4k:40,16k:30,128k:20" if segment == "128k" else "512:10,4k:20,128k:30,1m:40")
        if i == 3:
            stack.cache.set(memory_limit=1)  # no sums are kept in memory but a few
            oracle.run(ops=300)
            stack.cache.set(memory_limit=0)
        stack.volume.message("flush")
        s = counts(stack)
        print(i, s, {k: v for k, v in stack.cache.status().items() if k in ("reclaimed", "reclaim_kept_slots", "segments")})
        assert s["errors_checksum"] == s["unchecked_slots"] == 0
        checked += s["checked_slots"]
        if i % 2:
            crash(stack)
            oracle.verify(after="crash")
        else:
            stack.restart()
            oracle.verify()
    assert checked > 1000
    stack.volume.drain()
    s = counts(stack)
    assert s["errors_checksum"] == s["unchecked_slots"] == 0
    stack.verify_alone(oracle)


def other_memory(status: dict) -> int:
    return status["memory_bytes"] - status["index_bytes"]


def test_memory(make_disk, seed):
    """Sums are counted in memory_bytes, grow with what is written, and go when memory is short."""
    stack = make_stack(make_disk, ssd_mb=64)
    os.sync()
    before = stack.cache.status()
    for at in range(0, 60000, 200):
        stack.volume.write(at, os.urandom(100 * SECTOR))
    commit(stack)
    after = stack.cache.status()
    assert other_memory(after) > other_memory(before)
    stack.cache.set(memory_limit=1)
    wait_for(
        lambda: other_memory(stack.cache.status()) <= other_memory(before),
        60,
        "the sums to go",
    )
    stack.cache.set(memory_limit=0)
    stack.volume.drain()
    s = counts(stack)
    assert s["sums_reads"] > 0 and s["errors_checksum"] == s["unchecked_slots"] == 0
    stack.stop()
    assert not Cache("c").exists()


PIECE = 64 << 10


def memory_is_short(stack: Stack) -> None:
    """Not so much that anything has to go, but nothing is filled, and of no more segments sums are kept than of 16."""
    mib = 1 << 20
    used = stack.cache.status()["memory_bytes"]
    limit = (used + (120 << 10)) // mib + 1
    assert limit * mib * 15 // 16 < used
    stack.cache.set(memory_limit=limit)
    blocks = iter(range(32 << 11, 56 << 11, 64))

    def denied() -> bool:
        stack.volume.read(next(blocks), 8)
        return stack.cache.status()["waits_memory"] > 0

    wait_for(denied, 30, "the limit to be seen")


def test_segment_that_a_drain_left_lives_again(make_disk):
    """Clean copies were in it, then the drain seals it, and nothing is filled any more.  What is dirty there in another life is not
    judged by the sums of those copies."""
    stack = small_stack(make_disk, 2, cache_mirror="none")
    for sector in range(0, 24 << 6, 64):
        stack.volume.read(sector, 8)
    memory_is_short(stack)
    stack.cache.message("commit")
    wait_for(lambda: [b for s in stack.ssd for b in commit_blocks(s, FILL)], 30, "the fills")
    left = max((b for s in stack.ssd for b in commit_blocks(s, FILL)), key=lambda b: b.sequence)
    first = left.sector - left.slot * SLOT
    stack.cache.message("drain", 1 - stack.ssd.index(left.ssd))
    wait_for(lambda: "removed" in stack.cache.status()["ssds"], 120, "the SSD to be drained")

    def lives_again() -> bool:
        data = left.ssd.read(first, DATA)
        return any(data[at : at + 4] == b"LCMT" and data[at + 60] == WRITE for at in range(0, len(data), SLOT * SECTOR))

    bytes_of, seen = {}, None
    for at in range(0, 16 << 20, PIECE):
        bytes_of[at // 512] = bytes([1 + at // PIECE % 255]) * PIECE
        stack.volume.write(at // 512, bytes_of[at // 512])
        if seen is None and at % (1 << 20) == 0:
            if lives_again():
                seen = at
                continue
            stack.cache.message("reclaim", 4)
            for _ in range(2):
                stack.cache.message("checkpoint")
    stack.volume.flush()
    # it is sealed, and others behind it
    assert seen is not None and seen < 10 << 20 and stack.volume.dirty() * 512 > 6 << 20
    stack.volume.message("flush")
    wait_for(lambda: stack.cache.status()["errors_checksum"] or not stack.volume.status()["flushing"], 120, "the writeback")
    s = counts(stack)
    assert s["errors_checksum"] == s["unchecked_slots"] == 0 and s["sums_reads"] > 0
    for sector, data in bytes_of.items():
        assert stack.volume.read(sector, PIECE // 512) == data
    stack.stop()
