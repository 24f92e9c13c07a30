# SPDX-License-Identifier: GPL-2.0-or-later
"""verify=reads: what an SSD returns wrong reaches nobody who reads.  The damage is done below the cache, to what it has written.
Random work: the runs of fault_runs that decay."""

import time

import pytest
from lib.decay import SLOT, Written, commit, damage_copies, flip, lose_checksums, places, settle
from lib.larder import Stack, wait_for

BASE = 4096


def make_stack(make_disk, ssds: int = 1, block: int = 512, **options: object) -> Stack:
    """Small segments; nothing is written back before a test says so."""
    disks = [make_disk(f"ssd{i}", model="null", mb=32, wce=1, fua=1, lbs=block, pbs=4096) for i in range(ssds)]
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0, "verify": "reads"} | options
    ssd = disks if ssds > 1 else disks[0]
    return Stack(ssd, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)


def nine_blocks(make_disk, seed: int, ssd_block: int, where: str) -> tuple[Stack, Written]:
    """From BASE on, dirty."""
    stack = make_stack(make_disk, block=ssd_block)
    w = Written(stack, seed)
    for i in range(9):
        w.write(BASE + SLOT * i)
    commit(stack)
    settle(stack, w, where)
    return stack, w


def clean(stack: Stack) -> None:
    stack.volume.message("flush")
    wait_for(lambda: not stack.volume.dirty(), 60, "everything to be written back")


def checks(stack: Stack) -> dict:
    status = stack.cache.status()
    return {k: status[k] for k in ("checked_slots", "unchecked_slots", "errors_checksum", "errors_read")}


def reads(stack: Stack, w: Written, sector: int, count: int) -> bool:
    """False: it fails.  What is read is what was written."""
    try:
        data = stack.volume.read(sector, count)
    except OSError:
        return False
    assert data == b"".join(w.content[sector + i] for i in range(count)), f"sector {sector}: not what was written"
    return True


@pytest.fixture(params=[512, 4096], ids=["512", "4Kn"])
def ssd_block(request) -> int:
    return request.param


PIECES = {"slot": (0, 8), "sector": (3, 1), "odd": (5, 9), "several": (0, 24), "odd and long": (-3, 21)}  # around the damaged slot


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("where", ["active", "sealed", "restarted", "crashed sealed"])
def test_clean_data(make_disk, kernel_log, seed, ssd_block, where, piece):
    """It comes from the backing; without the option the reader gets what the SSD returns."""
    stack, w = nine_blocks(make_disk, seed, ssd_block, where)
    clean(stack)
    bad = BASE + 4 * SLOT
    for at in places(stack.ssd, b"".join(w.content[bad + i] for i in range(SLOT))):
        flip(stack.ssd, at + 3)
    stack.volume.set(verify="none")
    assert stack.volume.read(bad, SLOT) != b"".join(w.content[bad + i] for i in range(SLOT)), "the damage is not read"
    stack.volume.set(verify="reads")
    before = checks(stack)
    first, count = PIECES[piece]
    assert reads(stack, w, bad + first, count)
    after = checks(stack)
    if ssd_block == 512 or not (first % SLOT or count % SLOT):  # else what is clean comes from the backing
        assert after["errors_checksum"] == before["errors_checksum"] + 1
        assert stack.volume.status()["errors_checksum"] == 1
        assert kernel_log.said("does not match its checksum: the backing has it")
    assert after["unchecked_slots"] == before["unchecked_slots"]
    assert reads(stack, w, BASE, 9 * SLOT) and w.wrong(stack.volume) == {}
    stack.stop()


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("where", ["active", "sealed", "restarted", "crashed sealed"])
def test_dirty_data(make_disk, seed, ssd_block, where, piece):
    """Nobody else has it: an error for what touches the slot, an event; everything beside it is read.  Written anew it is well."""
    stack, w = nine_blocks(make_disk, seed, ssd_block, where)
    bad = BASE + 4 * SLOT
    at = places(stack.ssd, b"".join(w.content[bad + i] for i in range(SLOT)))[-1]
    flip(stack.ssd, at + 3)
    events = stack.volume.events()
    first, count = PIECES[piece]
    assert not reads(stack, w, bad + first, count)
    assert checks(stack)["errors_checksum"] and checks(stack)["errors_read"] and checks(stack)["unchecked_slots"] == 0
    assert stack.volume.status()["errors_checksum"]
    wait_for(lambda: stack.volume.events() > events, 60, "an event")
    for i in range(9):
        assert reads(stack, w, BASE + SLOT * i, SLOT) == (i != 4), i
    assert not reads(stack, w, bad + 7, 1), "a slot counts as a whole"
    w.write(bad)
    assert reads(stack, w, BASE, 9 * SLOT)
    clean(stack)
    assert w.not_on_backing() == set()
    stack.stop()


@pytest.mark.parametrize("state", ["dirty", "clean"])
@pytest.mark.parametrize("which", [0, 1])
def test_two_copies(make_disk, seed, ssd_block, which, state):
    """What is damaged in one copy, whichever is read, comes from the other; in both, if it is clean, from the backing."""
    stack = make_stack(make_disk, ssds=2, block=ssd_block)
    w = Written(stack, seed)
    copies = damage_copies(stack, w, which)
    if state == "clean":
        clean(stack)
        for s in stack.ssd:
            flip(s, copies[7][s] + 5)
    for sector, count in ((BASE + 9 * SLOT, SLOT), (8191, 13), (BASE + 15 * SLOT + 1, 3), (8201, 2), (BASE + 21 * SLOT, SLOT)):
        assert reads(stack, w, sector, count), sector
    assert w.wrong(stack.volume) == {}
    assert stack.cache.status()["devices_failed"] == 0 and checks(stack)["unchecked_slots"] == 0
    clean(stack)
    assert w.not_on_backing() == set()
    stack.stop()


NEAR = 8  # blocks at BASE that lie in one segment, if each has a record of its own, as on a busy host; all 24 may not


def pairs_with_a_first_copy(make_disk, seed: int) -> tuple[Stack, Written, list]:
    """24 dirty blocks on two SSDs, in a sealed segment; the SSDs, that with the copy which is read first."""
    stack = make_stack(make_disk, ssds=2, cache_mirror="all", cache_mend="on")
    w = Written(stack, seed)
    for i in range(24):
        w.write(BASE + SLOT * i)
    commit(stack)
    settle(stack, w, "sealed")
    before = [s.stats()["reads"] for s in stack.ssd]
    assert reads(stack, w, BASE, SLOT)
    return stack, w, sorted(stack.ssd, key=lambda s: before[stack.ssd.index(s)] - s.stats()["reads"])


def copy_of(w: Written, ssd, block: int) -> int:
    """Its sector there."""
    return places(ssd, w.content[BASE + SLOT * block])[-1]


def test_what_a_read_finds_is_mended(make_disk, kernel_log, seed):
    """Both copies of the segment, each of which has a slot that is damaged; unasked."""
    stack, w, ssds = pairs_with_a_first_copy(make_disk, seed)
    at = [copy_of(w, s, 5 + i) for i, s in enumerate(ssds)]
    whole = [s.read(a, SLOT) for s, a in zip(ssds, at, strict=True)]
    for s, a in zip(ssds, at, strict=True):
        flip(s, a + 3)
    events = stack.cache.events()
    assert reads(stack, w, BASE, 24 * SLOT) and checks(stack)["errors_checksum"]
    wait_for(lambda: stack.cache.status()["mended_slots"] == 2, 60, "both to be mended")
    assert [s.read(a, SLOT) for s, a in zip(ssds, at, strict=True)] == whole
    wait_for(lambda: stack.cache.events() > events, 60, "an event")
    assert kernel_log.matching("was found damaged: 2 slots were mended")
    before = [s.stats()["reads"] for s in ssds]
    assert reads(stack, w, BASE, SLOT)
    assert [s.stats()["reads"] > b for s, b in zip(ssds, before, strict=True)] == [True, False], "the first copy is read again"
    stack.cache.message("scrub")
    wait_for(lambda: stack.cache.status()["scrub"] == "done", 60, "the scrub")
    assert stack.cache.status()["scrub_errors"] == 0
    stack.stop()


def test_what_cannot_be_mended_is_left(make_disk, kernel_log, seed):
    """Once: the other copy is read from then on, until a scrub finds the place well again."""
    stack, w, (first, _) = pairs_with_a_first_copy(make_disk, seed)
    at = copy_of(w, first, 5)
    first.fail(op="read", from_=at, to=at + SLOT - 1, status="medium")
    assert reads(stack, w, BASE, NEAR * SLOT)
    said = "was found damaged, and could not be mended"
    wait_for(lambda: kernel_log.matching(said), 60, "an attempt")
    stack.cache.message("checkpoint")
    before = first.stats()["reads"]
    for _ in range(5):
        assert reads(stack, w, BASE, NEAR * SLOT)
        time.sleep(0.5)  # an attempt a second there would be
    assert len(kernel_log.matching(said)) == 1 and first.stats()["reads"] == before
    assert stack.cache.status()["mended_slots"] == 0 and stack.cache.status()["devices_failed"] == 0
    first.heal()
    stack.cache.message("scrub")
    wait_for(lambda: stack.cache.status()["scrub"] == "done", 60, "the scrub")
    assert stack.cache.status()["scrub_errors"] == 0
    assert reads(stack, w, BASE, SLOT) and first.stats()["reads"] > before
    stack.stop()


def test_without_mend(make_disk, seed):
    """Off: it is found, and stays."""
    stack, w, (first, _) = pairs_with_a_first_copy(make_disk, seed)
    stack.cache.set(mend="off")
    at = copy_of(w, first, 5)
    flip(first, at + 3)
    damaged = first.read(at, SLOT)
    assert reads(stack, w, BASE, 24 * SLOT)
    time.sleep(3)
    assert first.read(at, SLOT) == damaged and stack.cache.status()["mended_slots"] == 0
    stack.cache.set(mend="on")
    stack.cache.message("scrub")
    wait_for(lambda: stack.cache.status()["scrub"] == "done", 60, "the scrub")
    assert stack.cache.status()["scrub_repaired"] == 1 and first.read(at, SLOT) != damaged
    stack.stop()


@pytest.mark.parametrize("commits", ["auto", "always", "buffered"])
def test_before_the_commit_block(make_disk, seed, ssd_block, commits):
    """The sums of what is not complete in the log yet are known as well: nothing is read unchecked."""
    stack = make_stack(make_disk, block=ssd_block, cache_commit=commits, cache_commit_interval=2000)
    w = Written(stack, seed)
    before = checks(stack)["checked_slots"]
    for i in range(200):
        sector = BASE + 3 * SLOT * i
        w.write(sector)
        assert reads(stack, w, sector, SLOT)
    w.write(9001, 77)
    assert reads(stack, w, 9001, 77) and reads(stack, w, 9003, 11)
    found = checks(stack)
    assert found["unchecked_slots"] == found["errors_checksum"] == 0
    assert commits == "buffered" or found["checked_slots"] >= before + 200
    if commits == "auto":
        at = places(stack.ssd, b"".join(w.content[BASE + i] for i in range(SLOT)))[-1]
        last = w.write(20000)
        assert reads(stack, w, 20000, SLOT)
        flip(stack.ssd, places(stack.ssd, last)[-1])
        assert not reads(stack, w, 20000, SLOT), "damaged before its commit block was written, perhaps"
        flip(stack.ssd, at)
        assert not reads(stack, w, BASE, SLOT)
    stack.stop()


@pytest.mark.parametrize("state", ["dirty", "clean"])
def test_checksum_is_lost(make_disk, seed, ssd_block, state):
    """Clean data whose sum is not known comes from the backing; dirty data is believed, and counted."""
    stack = make_stack(make_disk, block=ssd_block)
    w = Written(stack, seed)
    for i in range(9):
        w.write(BASE + SLOT * i)
    if state == "clean":
        clean(stack)
    stack.restart()
    at = places(stack.ssd, b"".join(w.content[BASE + i] for i in range(SLOT)))[-1]
    assert lose_checksums(stack.ssd, at)
    if state == "clean":
        flip(stack.ssd, at)
    assert reads(stack, w, BASE, 9 * SLOT)
    found = checks(stack)
    assert found["errors_checksum"] == 0 and found["unchecked_slots"] == (9 if state == "dirty" else 0)
    assert state == "dirty" or stack.volume.status()["cached_sectors"] == 0
    stack.stop()


@pytest.mark.parametrize("stream", ["fill", "keep"])
def test_copies_of_the_backing(make_disk, seed, stream):
    """What a miss, or reclaim, has written to the SSD."""
    stack = make_stack(make_disk)
    w = Written(stack, seed)
    sectors = [BASE + 3 * SLOT * i for i in range(60)]
    for s in sectors:
        w.write(s)
    clean(stack)
    stack.volume.message("drop_clean")
    for s in sectors:
        assert reads(stack, w, s, SLOT)
    wait_for(lambda: stack.volume.status()["fill_sectors"] >= len(sectors) * SLOT, 60, "the fills")
    if stream == "keep":
        stack.restart()  # from here on a hit counts: it is old
        for s in 2 * sectors:
            assert reads(stack, w, s, SLOT)
        s = stack.cache.status()
        stack.cache.message("reclaim", s["segments_write"] + s["segments_fill"])
        assert stack.cache.status()["reclaim_kept_slots"]
    before, misses = checks(stack), stack.volume.status()["read_misses"]
    for s in sectors:
        assert reads(stack, w, s, SLOT)
    hits = len(sectors) - (stack.volume.status()["read_misses"] - misses)
    assert hits and checks(stack)["checked_slots"] >= before["checked_slots"] + hits
    for s in sectors[::2]:
        for at in places(stack.ssd, b"".join(w.content[s + i] for i in range(SLOT))):
            flip(stack.ssd, at)
    assert w.wrong(stack.volume) == {}
    assert checks(stack)["errors_checksum"] and checks(stack)["unchecked_slots"] == 0
    stack.stop()
