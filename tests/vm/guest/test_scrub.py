# SPDX-License-Identifier: GPL-2.0-or-later
"""The scrub: what decays on the SSDs is found, repaired where another copy has it, dropped where the backing has it, and reported
where nothing does; and what is not damaged is left alone.

The damage is done below the cache, to what it has written, while it runs.  What was written is the oracle, and, of a repair, what
was on the SSD before the damage."""

import contextlib
import errno
import random
import struct
import time

import pytest
from lib import command, simdisk
from lib.block import SECTOR, BlockDevice
from lib.controls import Switches
from lib.damage import crc32c
from lib.decay import SLOT, Written, commit, crash, flip, lose_checksums, places, settle
from lib.larder import DATA_SECTOR, Stack, larder, segment_layout, wait_for
from lib.log_blocks import WRITE, commit_blocks, newest_epoch
from lib.sets import MODES, kill, small_stack, start_without

KEYS = ("errors", "repaired", "dropped", "unrepairable")
COUNT = 12
FIRST = 4096  # sector of the volume


def ssds_of(stack: Stack) -> list[BlockDevice]:
    return stack.ssd if isinstance(stack.ssd, list) else [stack.ssd]


def scrubbed(stack: Stack, state: str = "done") -> dict[str, int]:
    """Scrubs; what was found."""
    stack.cache.message("scrub")
    return scrub_end(stack, state)


def scrub_end(stack: Stack, state: str = "done") -> dict[str, int]:
    wait_for(lambda: stack.cache.status()["scrub"] != "running", 120, "the scrub to end")
    status = stack.cache.status()
    assert status["scrub"] == state, status
    assert state != "done" or status["scrub_segments"] == status["segments"]
    return {k: status[f"scrub_{k}"] for k in KEYS}


def found(errors: int = 0, repaired: int = 0, dropped: int = 0, unrepairable: int = 0) -> dict[str, int]:
    return dict(zip(KEYS, (errors, repaired, dropped, unrepairable), strict=True))


def image(ssd: BlockDevice) -> bytes:
    """All of its segments."""
    first, size, number = segment_layout(ssd)
    return b"".join(ssd.read(at, size) for at in range(first, first + size * number, size))


def place_of_each(ssd: BlockDevice, data: list[bytes]) -> list[int]:
    raw, first = image(ssd), segment_layout(ssd)[0]
    found_at = [raw.find(d[:SECTOR]) for d in data]
    assert -1 not in found_at
    return [first + k // SECTOR for k in found_at]


def quiet(disks: list[BlockDevice]) -> None:
    """Until the cache has done what it does by itself: nothing is written for three of its seconds."""
    for _ in range(20):
        before = [d.stats()["writes"] for d in disks]
        time.sleep(3)
        if [d.stats()["writes"] for d in disks] == before:
            return
    raise AssertionError("it writes without end")


WHERE = ("active", "sealed", "restarted", "restarted sealed", "crashed sealed")


def prepare(stack: Stack, w: Written, where: str) -> list[bytes]:
    """COUNT blocks of dirty data, each of a record of its own."""
    data = []
    for i in range(COUNT):
        data.append(w.write(FIRST + 3 * SLOT * i))
        commit(stack)
    settle(stack, w, where)
    return data


def sector_of(i: int) -> int:
    return FIRST + 3 * SLOT * i


def clean(stack: Stack, w: Written) -> list[bytes]:
    """COUNT blocks that the backing has, in the cache as copies of misses."""
    data = []
    for i in range(COUNT):
        data.append(w.random.randbytes(SLOT * SECTOR))
        stack.hdd.write(DATA_SECTOR + sector_of(i), data[i])
        w.content |= {sector_of(i) + k: data[i][k * SECTOR :][:SECTOR] for k in range(SLOT)}
    stack.hdd.flush()
    for i in range(COUNT):
        assert stack.volume.read(sector_of(i), SLOT) == data[i]
    wait_for(lambda: stack.volume.status()["cached_sectors"] >= COUNT * SLOT, 30, "the misses to fill")
    return data


# ------------------------------------------------------------------ nothing is damaged


@pytest.mark.parametrize("ssds", [1, 2])
@pytest.mark.parametrize("where", WHERE)
def test_nothing_is_damaged(make_disk, seed, ssds, where):
    """All is read, nothing is found, and nothing is written to any device."""
    stack = small_stack(make_disk, ssds)
    w = Written(stack, seed)
    prepare(stack, w, where)
    w.write(60001, 13)
    commit(stack)
    stack.cache.message("checkpoint")
    cached = stack.volume.status()["cached_sectors"]
    stack.volume.read(90000, SLOT)
    wait_for(lambda: stack.volume.status()["cached_sectors"] == cached + SLOT, 30, "the miss to fill")
    disks = [*ssds_of(stack), stack.hdd]
    quiet(disks)
    images = [image(s) for s in ssds_of(stack)]
    for d in disks:
        d.reset_stats()
    live = stack.cache.status()["live_sectors"] // SLOT
    assert scrubbed(stack) == found()
    for d in disks:
        stats = d.stats()
        assert (stats["writes"], stats["flushes"], stats["discards"], stats["write_zeroes"]) == (0, 0, 0, 0), d
    assert stack.hdd.stats()["reads"] == 0
    assert stack.cache.status()["scrub_slots"] >= live * ssds
    assert [image(s) for s in ssds_of(stack)] == images
    assert w.wrong(stack.volume) == {}
    stack.stop()


# ------------------------------------------------------------------ one copy of two is damaged


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("where", WHERE)
def test_one_copy(make_disk, seed, kernel_log, which, where):
    """Slots and commit blocks of one SSD are what they were again; the other SSD is not written to, and may be lost then."""
    stack = small_stack(make_disk, 2)
    w = Written(stack, seed)
    data = prepare(stack, w, where)
    ssd, other = stack.ssd[which], stack.ssd[1 - which]
    before, untouched = image(ssd), image(other)
    at_of = place_of_each(ssd, data)
    bad = [at_of[i] for i in (0, 3, 4, COUNT - 1)]
    for at in bad:
        flip(ssd, at)
    # a block of a record of one slot stands behind it
    blocks = [at_of[i] + SLOT for i in (1, 4)]
    for at in blocks:
        assert ssd.read(at, SLOT)[:4] == b"LCMT"
        flip(ssd, at)
    other.reset_stats()
    n = len(bad) + len(blocks)
    assert scrubbed(stack) == found(errors=n, repaired=n)
    assert other.stats()["writes"] == 0 and image(other) == untouched
    assert image(ssd) == before
    assert scrubbed(stack) == found()
    stack.stop()
    start_without(stack, 1 - which)
    assert w.wrong(stack.volume) == {}
    stack.volume.drain()
    assert w.not_on_backing() == set()
    stack.stop()
    assert kernel_log.matching(r"scrubbed: \d+ slots read, 6 errors, 6 repaired, 0 dropped, 0 unrepairable")


@pytest.mark.parametrize("which", [0, 1])
def test_each_has_what_the_other_lacks(make_disk, seed, which):
    stack = small_stack(make_disk, 2)
    w = Written(stack, seed)
    data = prepare(stack, w, "sealed")
    images = [image(s) for s in stack.ssd]
    at_of = [place_of_each(s, data) for s in stack.ssd]
    for i in range(COUNT):
        flip(stack.ssd[(i + which) % 2], at_of[(i + which) % 2][i])
    assert scrubbed(stack) == found(errors=COUNT, repaired=COUNT)
    assert [image(s) for s in stack.ssd] == images
    stack.volume.drain()
    assert w.not_on_backing() == set() and stack.cache.status()["errors_checksum"] == COUNT
    stack.stop()


@pytest.mark.parametrize("lacks", ["another", "this"])
def test_copy_that_lacks_something_is_read_last(make_disk, seed, kernel_log, lacks):
    """Of three, by a worker (a block of 4 KiB, in part), as the first cannot be read.  The second is known to lack another block,
    and is all that has this one; or to lack this one, which the third has."""
    kernel_log.expect("I/O error|critical .* error")
    ssds = [make_disk(f"ssd{i}", model="null", mb=32, wce=1, fua=1, lbs=4096, pbs=4096) for i in range(3)]
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0, "cache_checkpoint_percent": 50, "cache_mirror": "dirty:3"}
    stack = Stack(ssds, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)
    w = Written(stack, seed)
    data = prepare(stack, w, "active")
    copies = [dict(zip(ssds, at, strict=True)) for at in zip(*(place_of_each(s, data) for s in ssds), strict=True)]
    start, size, _ = segment_layout(ssds[0])
    one, two = 1, 2
    assert all((copies[one][s] - start) // size == (copies[two][s] - start) // size for s in ssds), "in one segment"

    def which_reads(block: int) -> simdisk.Simdisk:
        before = [s.stats()["reads"] for s in ssds]
        assert stack.volume.read(sector_of(block) + 1, 3) == data[block][SECTOR : 4 * SECTOR]
        (asked,) = [s for s, n in zip(ssds, before, strict=True) if s.stats()["reads"] > n]
        return asked

    def unreadable(ssd: simdisk.Simdisk, block: int) -> None:
        ssd.fail(op="read", from_=copies[block][ssd], to=copies[block][ssd] + SLOT, status="medium")

    first = which_reads(one)
    unreadable(first, one)
    before = {s: s.stats()["reads"] for s in ssds}
    assert stack.volume.read(sector_of(one) + 1, 3) == data[one][SECTOR : 4 * SECTOR]
    (second,) = [s for s in ssds if s is not first and s.stats()["reads"] > before[s]]
    (third,) = [s for s in ssds if s not in (first, second)]
    first.heal()
    assert scrubbed(stack) == found() and which_reads(one) is first, "all are whole, and known to be"

    unreadable(second, two if lacks == "another" else one)
    assert scrubbed(stack) == found(1, unrepairable=1)
    if lacks == "another":
        unreadable(third, one)
    else:
        second.heal()
        second.corrupt(copies[one][second], SLOT)
    unreadable(first, one)
    assert stack.volume.read(sector_of(one) + 1, 3) == data[one][SECTOR : 4 * SECTOR]
    assert first.faults()[-1]["hits"] == 1 and (lacks == "this" or third.faults()[0]["hits"] == 1)
    assert stack.cache.status()["devices_failed"] == 0
    stack.stop()


def test_what_no_copy_has_makes_none_bad(make_disk, seed, kernel_log):
    """A block is damaged in both copies: as the first one cannot be read elsewhere, the second is, and from then on."""
    kernel_log.expect("I/O error|critical .* error|damaged")
    stack = small_stack(make_disk, 2)
    w = Written(stack, seed)
    data = prepare(stack, w, "active")
    copies = [dict(zip(stack.ssd, at, strict=True)) for at in zip(*(place_of_each(s, data) for s in stack.ssd), strict=True)]
    start, size, _ = segment_layout(stack.ssd[0])
    assert all((copies[1][s] - start) // size == (copies[2][s] - start) // size for s in stack.ssd), "in one segment"
    before = [s.stats()["reads"] for s in stack.ssd]
    assert stack.volume.read(sector_of(1), SLOT) == data[1]
    (first,) = [s for s, n in zip(stack.ssd, before, strict=True) if s.stats()["reads"] > n]
    for s in stack.ssd:
        flip(s, copies[2][s])
    assert scrubbed(stack) == found(2, unrepairable=1)
    with pytest.raises(OSError):
        stack.volume.read(sector_of(2), SLOT)
    first.fail(op="read", from_=copies[1][first], to=copies[1][first] + SLOT, status="medium")
    for _ in range(3):
        assert stack.volume.read(sector_of(1), SLOT) == data[1]
    assert first.faults()[0]["hits"] == 1, "it is asked again, as if the other one were as bad"
    stack.stop()


@pytest.mark.parametrize("which", [0, 1])
def test_slot_that_cannot_be_read(make_disk, seed, kernel_log, which):
    """A medium error: overwriting the slot heals it, as a disk does that maps it elsewhere."""
    kernel_log.expect("critical .* error|Buffer I/O|I/O error")
    stack = small_stack(make_disk, 2)
    w = Written(stack, seed)
    data = prepare(stack, w, "sealed")
    at = places(stack.ssd[which], data[3])[0]
    # with others, alone; then it was written anew
    stack.ssd[which].fail(op="read", from_=at, to=at + SLOT, status="medium", count=2)
    assert scrubbed(stack) == found(errors=1, repaired=1)
    # one that cannot be written: it is whole on the other one, and that is read from now on
    stack.ssd[which].fail(op="read", from_=at, to=at + SLOT, status="medium")
    assert scrubbed(stack) == found(errors=1, unrepairable=1)
    assert w.wrong(stack.volume) == {}
    stack.ssd[which].heal()
    assert scrubbed(stack) == found()
    stack.stop()


# ------------------------------------------------------------------ no copy is left


@pytest.mark.parametrize("ssds", [1, 2])
@pytest.mark.parametrize("where", ["active", "sealed", "crashed sealed"])
def test_dirty_data_without_a_copy(make_disk, seed, kernel_log, ssds, where):
    """It is counted, named, and not read any more; what is beside it is; writing it anew heals it."""
    kernel_log.expect("I/O error|Buffer I/O")
    stack = small_stack(make_disk, ssds)
    w = Written(stack, seed)
    data = prepare(stack, w, where)
    bad = (2, 7)
    for i in bad:
        for s in ssds_of(stack):
            flip(s, places(s, data[i])[0] + i)
    event = stack.cache.events()
    assert scrubbed(stack) == found(errors=len(bad) * ssds, unrepairable=len(bad))
    wait_for(lambda: stack.cache.events() > event, 10, "an event")
    uuid = stack.volume.status()["uuid"]
    for i in bad:
        pattern = rf"volume {uuid}: damaged dirty data, sectors {sector_of(i)} to {sector_of(i) + SLOT - 1} "
        assert kernel_log.matching(pattern)
        for at, n in ((sector_of(i), SLOT), (sector_of(i) + 3, 1), (sector_of(i) - SLOT, 3 * SLOT)):
            with pytest.raises(OSError) as e:
                stack.volume.read(at, n)
            assert e.value.errno == errno.EIO
    for i in set(range(COUNT)) - set(bad):
        assert stack.volume.read(sector_of(i), SLOT) == data[i]
    stack.volume.message("flush")
    wait_for(lambda: stack.volume.dirty() == len(bad) * SLOT, 60, "the rest to be written back")
    assert w.not_on_backing() == {sector_of(i) + k for i in bad for k in range(SLOT)}
    for i in bad:
        w.write(sector_of(i))
    assert w.wrong(stack.volume) == {}
    assert scrubbed(stack) == found()
    stack.volume.drain()
    assert w.not_on_backing() == set()
    stack.stop()


def test_writeback_knows_it_too(make_disk, seed, kernel_log):
    """What writeback has found damaged is not read either; what turns out to be right after all is."""
    kernel_log.expect("I/O error|Buffer I/O")
    stack = small_stack(make_disk)
    w = Written(stack, seed)
    data = prepare(stack, w, "active")
    at = places(stack.ssd, data[5])[0]
    flip(stack.ssd, at)
    stack.volume.message("flush")
    wait_for(lambda: stack.volume.dirty() == SLOT, 60, "the rest to be written back")
    with pytest.raises(OSError):
        stack.volume.read(sector_of(5), SLOT)
    flip(stack.ssd, at)
    assert scrubbed(stack) == found()
    assert w.wrong(stack.volume) == {}
    stack.stop()


def test_data_that_ends_with_its_checksum(make_disk, seed):
    """The sum of all of it is then 0, as if it were no data: it is data, and mended as such."""
    stack = small_stack(make_disk, 2)
    data = random.Random(seed).randbytes(4092)
    data += struct.pack("<I", crc32c(data))
    assert crc32c(data) == 0
    stack.volume.write(FIRST, data)
    stack.volume.flush()
    assert scrubbed(stack) == found()
    flip(stack.ssd[0], places(stack.ssd[0], data)[0])
    assert scrubbed(stack) == found(errors=1, repaired=1)
    assert places(stack.ssd[0], data)
    assert stack.volume.read(FIRST, 8) == data
    stack.stop()


@pytest.mark.parametrize("ssds", [1, 2])
def test_copies_of_misses_that_a_power_cut_has_torn(make_disk, seed, kernel_log, ssds):
    """Their commit block is there, of their data a part is not: a start leaves them out, and that is no fault of an SSD."""
    stack = small_stack(make_disk, ssds, **({"cache_mirror": "all"} if ssds > 1 else {}))
    w = Written(stack, seed)
    data = clean(stack, w)
    commit(stack)
    cached = stack.volume.status()["cached_sectors"]
    stack.volume.read(90000, SLOT)  # a record of its own: their segment stays in use
    wait_for(lambda: stack.volume.status()["cached_sectors"] == cached + SLOT, 30, "the miss to fill")
    commit(stack)
    at_of = [place_of_each(s, data) for s in ssds_of(stack)]
    simdisk.power_cut(mode="keep")
    stack.stop()
    simdisk.power_up()
    for s, at in zip(ssds_of(stack), at_of, strict=True):
        flip(s, at[0])
    flip(ssds_of(stack)[0], at_of[0][1])  # of two copies one is whole
    stack.start()
    assert kernel_log.matching("records of the log had damaged data") and stack.volume.status()["cached_sectors"]
    assert scrubbed(stack) == found() and stack.cache.status()["errors_checksum"] == 0
    assert w.wrong(stack.volume) == {}
    stack.stop()


@pytest.mark.parametrize("kind", ["filled", "written back"])
@pytest.mark.parametrize("ssds", [1, 2])
def test_clean_data_without_a_copy(make_disk, seed, kind, ssds):
    """It leaves the cache, also for a start after a power cut, and is read from the backing."""
    stack = small_stack(make_disk, ssds)
    w = Written(stack, seed)
    if kind == "filled":
        data = clean(stack, w)
    else:
        data = prepare(stack, w, "sealed")
        stack.volume.drain()
        for _ in range(2):
            stack.cache.message("checkpoint")
    bad, copies = (0, 5, 6), 0
    for i in bad:
        for s in ssds_of(stack):
            try:
                found_at = places(s, data[i])
            except AssertionError:  # of two SSDs one has it, or had a second copy
                continue
            for at in found_at:
                flip(s, at)
    cached = stack.volume.status()["cached_sectors"]
    n = scrubbed(stack)
    copies = n.pop("errors")
    assert len(bad) <= copies <= len(bad) * ssds
    assert n == {"repaired": 0, "dropped": len(bad), "unrepairable": 0}
    assert stack.volume.status()["cached_sectors"] == cached - len(bad) * SLOT
    stack.volume.set(fill="off")
    crash(stack)
    stack.volume.set(fill="off")
    stack.hdd.reset_stats()
    assert w.wrong(stack.volume) == {}
    assert stack.hdd.stats()["rbytes"] >= len(bad) * SLOT * SECTOR
    assert scrubbed(stack) == found()
    stack.stop()


@pytest.mark.parametrize("kind", ["filled", "written back"])
def test_clean_data_whose_checksum_is_lost(make_disk, seed, kind):
    """Nobody can tell whether it is damaged: it leaves the cache.  Dirty data beside it stays."""
    stack = small_stack(make_disk)
    w = Written(stack, seed)
    if kind == "filled":
        data = clean(stack, w)
    else:
        data = prepare(stack, w, "active")
        stack.volume.drain()
    stack.cache.message("checkpoint")
    stack.restart()  # what was known in memory is not
    assert stack.volume.status()["cached_sectors"] == COUNT * SLOT
    first, size, _ = segment_layout(stack.ssd)
    at = {(k - first) // size: k for k in (places(stack.ssd, d)[-1] for d in data)}
    for k in at.values():
        flip(stack.ssd, k)
        assert lose_checksums(stack.ssd, k)
    n = scrubbed(stack)
    assert n["dropped"] >= COUNT and n["errors"] == n["dropped"] and not n["unrepairable"], n
    assert not stack.volume.status()["cached_sectors"]
    assert w.wrong(stack.volume) == {}
    stack.stop()


@pytest.mark.parametrize("scrub", [False, True])
@pytest.mark.parametrize("where", ["active", "sealed"])
def test_commit_block_without_a_copy(make_disk, seed, where, scrub):
    """A power cut after the scrub: no replay needs it any more.  Without a scrub the start is refused."""
    stack = small_stack(make_disk)
    w = Written(stack, seed)
    prepare(stack, w, where)
    block = commit_blocks(stack.ssd)[COUNT // 2]
    flip(stack.ssd, block.sector)
    if scrub:
        assert scrubbed(stack) == found(errors=1, dropped=1)
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    if not scrub:
        with pytest.raises(command.CommandError):
            stack.start()
        return
    stack.start()
    assert w.wrong(stack.volume) == {}
    stack.volume.drain()
    assert w.not_on_backing() == set()
    stack.stop()


def test_commit_block_that_is_whole_again(make_disk, seed):
    """What writeback keeps in memory lacks the sums of a block that it could not read: the block counts when the scrub can."""
    stack = small_stack(make_disk)
    w = Written(stack, seed)
    data = prepare(stack, w, "restarted")
    at = [places(stack.ssd, data[i])[0] for i in (3, 6)]
    block = at[1] + SLOT
    assert stack.ssd.read(block, 4)[:4] == b"LCMT"
    flip(stack.ssd, at[0])
    flip(stack.ssd, block)
    stack.volume.message("flush")
    wait_for(lambda: stack.volume.dirty() == SLOT, 60, "the rest to be written back")
    assert stack.cache.status()["unchecked_slots"] > 0
    flip(stack.ssd, block)
    assert scrubbed(stack) == found(errors=1, unrepairable=1)
    flip(stack.ssd, at[1])
    assert scrubbed(stack) == found(errors=2, unrepairable=1, dropped=1)
    w.write(sector_of(3))
    assert w.wrong(stack.volume) == {}
    stack.volume.drain()
    assert w.not_on_backing() == set()
    stack.stop()


@pytest.mark.parametrize("ssds", [1, 2])
def test_last_block(make_disk, seed, ssds):
    """Of a segment that was being written at a stop, of a record without data: its number alone tells that it is missing."""
    stack = small_stack(make_disk, ssds)
    w = Written(stack, seed)
    prepare(stack, w, "active")
    stack.volume.discard(sector_of(3), SLOT)  # of dirty data: logged
    for k in range(SLOT):
        del w.content[sector_of(3) + k]
    commit(stack)
    stack.restart()
    ssd = ssds_of(stack)[0]
    epoch, raw, last = newest_epoch(ssd), image(ssd), (0, 0)
    for at in range(0, len(raw), SLOT * SECTOR):
        if raw[at : at + 4] == b"LCMT" and raw[at + 60] == WRITE and struct.unpack_from("<I", raw, at + 44)[0] == epoch - 1:
            last = max(last, (struct.unpack_from("<Q", raw, at + 16)[0], at))
    assert last[0] and raw[last[1] - SLOT * SECTOR :][:4] == b"LCMT", "it has no data"
    flip(ssd, segment_layout(ssd)[0] + last[1] // SECTOR)
    assert scrubbed(stack) == (found(errors=1, repaired=1) if ssds == 2 else found(errors=1, dropped=1))
    if ssds == 2:
        assert image(ssd) == raw and scrubbed(stack) == found()
    assert w.wrong(stack.volume) == {}
    stack.stop()


# ------------------------------------------------------------------ superblocks, tables, checkpoints


def chunks(ssd: BlockDevice) -> list[int]:
    """Sectors of the chunks of the newest checkpoint."""
    sequence = struct.unpack_from("<Q", ssd.read(8, 8), 288)[0]
    first = segment_layout(ssd)[0]
    data = image(ssd)
    at = [k for k in range(0, len(data), 65536) if data[k : k + 4] == b"LCHK"]
    newest = [k for k in at if struct.unpack_from("<Q", data, k + 16)[0] == sequence]
    assert newest or at, "it has no chunk"
    return [first + k // SECTOR for k in (newest or at)]


@pytest.mark.parametrize("ssds", [1, 2])
@pytest.mark.parametrize("what", ["superblock", "its copy", "table A", "table B", "superblock and table A"])
def test_superblock_and_table(make_disk, seed, ssds, what):
    stack = small_stack(make_disk, ssds)
    w = Written(stack, seed)
    prepare(stack, w, "sealed")
    ssd = ssds_of(stack)[-1]
    copy = struct.unpack_from("<Q", ssd.read(8, 8), 88)[0] // SECTOR
    places_of = {"superblock": 8, "its copy": copy, "table A": 256, "table B": 512}
    bad = [at for name, at in places_of.items() if name in what.split(" and ")]
    assert bad
    before = {at: ssd.read(at, 256) if at in (256, 512) else ssd.read(at, 8) for at in places_of.values()}
    for at in bad:
        flip(ssd, at)
    assert scrubbed(stack) == found(errors=len(bad), repaired=len(bad))
    assert {at: ssd.read(at, len(data) // SECTOR) for at, data in before.items()} == before
    assert scrubbed(stack) == found()
    stack.restart()
    assert w.wrong(stack.volume) == {}
    stack.stop()


@pytest.mark.parametrize("ssds", [1, 2])
def test_checkpoint(make_disk, seed, ssds):
    """A damaged chunk: from its other copy; without one new checkpoints take the place of that one."""
    stack = small_stack(make_disk, ssds)
    w = Written(stack, seed)
    prepare(stack, w, "sealed")
    for _ in range(2):
        stack.cache.message("checkpoint")
    ssd = ssds_of(stack)[0]
    at = chunks(ssd)[0]
    before = ssd.read(at, 128)
    flip(ssd, at)
    taken = stack.cache.status()["checkpoints"]
    assert scrubbed(stack) == found(errors=1, repaired=1)
    if ssds == 2:
        assert ssd.read(at, 128) == before and stack.cache.status()["checkpoints"] == taken
    else:
        assert stack.cache.status()["checkpoints"] == taken + 2
    assert scrubbed(stack) == found()
    crash(stack)
    assert w.wrong(stack.volume) == {}
    stack.stop()


# ------------------------------------------------------------------ beside others


def slowly(stack: Stack) -> None:
    """A scrub that has begun, and does not end by itself."""
    stack.cache.set(scrub_rate=1)
    stack.cache.message("scrub")
    wait_for(lambda: stack.cache.status()["scrub_slots"], 30, "the scrub to begin")


def place_ahead(stack: Stack, w: Written) -> int:
    """Of a block that is in a segment which the scrub has not come to."""
    first, size, _ = segment_layout(stack.ssd)
    begin = first + (stack.cache.status()["scrub_segments"] + 1) * size
    data = {w.content[s]: s for s in w.content if s % SLOT == 0}
    raw = image(stack.ssd)[(begin - first) * SECTOR :]
    ahead = [k for k in range(0, len(raw), SLOT * SECTOR) if raw[k : k + SECTOR] in data]
    assert ahead, "it has come to all of them"
    return begin + ahead[0] // SECTOR


def test_stop_suspend_remove(make_disk, seed, kernel_log):
    stack = small_stack(make_disk)
    w = Written(stack, seed)
    prepare(stack, w, "sealed")
    for at in range(80000, 84000, SLOT):
        w.write(at)
    commit(stack)
    with pytest.raises(command.CommandError):
        stack.cache.message("scrub_stop")
    assert kernel_log.matching("it is not being scrubbed")
    slowly(stack)
    with pytest.raises(command.CommandError) as e:
        stack.cache.message("scrub")
    assert e.value.status == errno.EBUSY
    event = stack.cache.events()
    stack.cache.message("scrub_stop")
    assert stack.cache.status()["scrub"] == "stopped"
    wait_for(lambda: stack.cache.events() > event, 10, "an event")
    slowly(stack)
    for change in (stack.cache.suspend, stack.cache.resume, lambda: stack.cache.reload(stack.cache.table())):
        change()
        assert stack.cache.status()["scrub"] == "running"
    flip(stack.ssd, place_ahead(stack, w))
    stack.cache.set(scrub_rate=0)
    stack.cache.suspend()
    stack.cache.resume()
    assert scrub_end(stack) == found(errors=1, unrepairable=1)
    slowly(stack)
    stack.stop()
    stack.start()
    assert stack.cache.status()["scrub"] == "idle"
    stack.stop()


def test_ssd_that_is_gone(make_disk, seed, kernel_log):
    """An only SSD that cannot be read at all: that is no damage of data; nothing is given up for it."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = small_stack(make_disk)
    w = Written(stack, seed)
    clean(stack, w)
    prepare(stack, w, "active")
    cached = stack.volume.status()["cached_sectors"]
    stack.ssd.fail(op="read", status="ioerr")
    n = scrubbed(stack, "failed")
    assert (n["dropped"], n["unrepairable"], n["repaired"]) == (0, 0, 0)
    assert stack.volume.status()["cached_sectors"] == cached
    stack.ssd.heal()
    assert scrubbed(stack) == found()
    assert w.wrong(stack.volume) == {}
    stack.stop()


@pytest.mark.parametrize("which", [0, 1])
def test_one_fails_meanwhile(make_disk, seed, kernel_log, which):
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = small_stack(make_disk, 2)
    w = Written(stack, seed)
    prepare(stack, w, "sealed")
    slowly(stack)
    kill(stack.ssd[which])
    w.write(70000)
    commit(stack)
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 30, "the SSD to leave the set")
    stack.cache.set(scrub_rate=0)
    stack.cache.suspend()
    stack.cache.resume()
    assert scrub_end(stack) == found()
    assert w.wrong(stack.volume) == {}
    stack.stop()
    start_without(stack, which)
    assert w.wrong(stack.volume) == {}
    stack.stop()


@pytest.mark.parametrize("ssds", [1, 2])
def test_under_load(make_disk, make_oracle, kernel_log, ssds):
    """Beside modes, reclaim, checkpoints and suspends of the cache: it finds nothing, and changes nothing."""
    disks = [make_disk(f"ssd{i}", model="null", mb=48, wce=1, fua=1) for i in range(ssds)]
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(disks, hdd, format_volume=("--cache", "c"), cache_scrub_rate=0)
    oracle = make_oracle(stack.volume, size="64m")
    switches = Switches(stack.volume, stack.cache)
    switches.run(oracle, "scrub", "modes", "checkpoint", "evict", "scrub", "writeback", "suspend_cache", ops=4000, every=25)
    wait_for(lambda: stack.cache.status()["scrub"] != "running", 60, "the last scrub to end")
    status = stack.cache.status()
    assert {k: status[f"scrub_{k}"] for k in KEYS} == found() and status["scrub"] in ("done", "stopped")
    ended = kernel_log.matching("scrubbed: ")  # of those before the last one nothing else tells
    assert ended and all(", 0 errors, " in x for x in ended), ended
    assert scrubbed(stack) == found()
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.parametrize("round_", range(4))
def test_power_cut_while_it_repairs(make_disk, make_oracle, seed, round_):
    """One SSD has decayed, under load; a power cut at one of the repairs.  A second scrub repairs the rest: what was flushed is
    there then, and the other SSD can be taken away."""
    r = random.Random(seed)
    disks = [make_disk(f"ssd{i}", model="nvme", mb=48, jitter_ns=100000) for i in range(2)]
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    options = {"writeback": "off", "verify": "reads", "cache_checkpoint_percent": 50, "cache_scrub_rate": 0}
    stack = Stack(disks, hdd, format_volume=("--cache", "c"), **options)
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=1500)
    commit(stack)
    which = round_ % 2
    bad, other = disks[which], disks[1 - which]
    blocks = [b.sector for b in commit_blocks(bad)]
    for at in r.sample(blocks, min(60, len(blocks))):
        flip(bad, at)
        flip(bad, at - SLOT)  # of its data, or the block before
    simdisk.power_cut(mode=MODES[seed % len(MODES)], seed=seed, after=20 + seed % 60, ops="write")
    stack.cache.message("scrub")
    oracle.run_until_cut(other)
    stack.stop()
    simdisk.power_up()
    stack.start()
    n = scrubbed(stack)  # first: no read looks whether a slot has decayed
    assert n["errors"] == n["repaired"] and not n["unrepairable"], n
    oracle.verify(after="crash")
    assert scrubbed(stack) == found()
    stack.stop()
    start_without(stack, 1 - which)
    oracle.verify()
    stack.verify_alone(oracle)


def scrubs_until(stack: Stack, condition, what: str) -> None:
    """One after the other; none finds anything."""

    def ended() -> bool:
        status = stack.cache.status()
        assert {k: status[f"scrub_{k}"] for k in KEYS} == found()
        if status["scrub"] != "running":
            with contextlib.suppress(command.CommandError):  # a change of the table is under way
                stack.cache.message("scrub")
        return condition()

    wait_for(ended, 120, what)


def test_beside_changes_of_the_set(make_disk, make_oracle, kernel_log):
    """One SSD joins, one is drained and leaves, beside a load and one scrub after the other."""
    disks = [make_disk(f"ssd{i}", model="null", mb=48, wce=1, fua=1) for i in range(3)]
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(disks[:2], hdd, format_volume=("--cache", "c"), cache_scrub_rate=0)
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=1500)
    load = oracle.start(ops=3000)
    try:
        larder("cache", "add", stack.cache, disks[2], "--yes", "--no-wait")
        scrubs_until(stack, lambda: stack.cache.status()["ssds"] == "active/active/active", "the SSD to join")
        larder("cache", "remove", stack.cache, disks[0], "--no-wait")
        scrubs_until(stack, lambda: stack.cache.status()["ssds"] == "removed/active/active", "the SSD to be drained")
        larder("cache", "remove", stack.cache, disks[0])
        load.wait()
    finally:
        if load.running():
            load.kill()
    scrub_end(stack, "done")
    assert scrubbed(stack) == found()
    oracle.verify()
    stack.ssd = [None, *disks[1:]]
    stack.restart()
    assert not kernel_log.matching(r"\(null\)")
    assert scrubbed(stack) == found()
    stack.verify_alone(oracle)


def test_command(make_disk, seed, kernel_log):
    """larder cache scrub: its words, its exit codes."""
    kernel_log.expect("I/O error|Buffer I/O")
    stack = small_stack(make_disk, 2)
    w = Written(stack, seed)
    data = prepare(stack, w, "sealed")
    flip(stack.ssd[0], places(stack.ssd[0], data[1])[0])
    done = larder("cache", "scrub", "c", "--wait")
    assert " 1 errors: 1 repaired, 0 dropped, 0 unrepairable" in done.stdout
    for s in stack.ssd:
        flip(s, places(s, data[2])[0])
    failed = larder("cache", "scrub", "c", "--wait", check=False)
    assert failed.returncode == 1 and "dmesg names the sectors" in failed.stderr
    assert larder("cache", "scrub", "c", "--stop", check=False).returncode != 0
    assert "scrub          done, " in larder("cache", "status", "c").stdout
    stack.cache.set(scrub_rate=1)
    larder("cache", "scrub", "c")
    assert larder("cache", "scrub", "c", check=False).returncode == 4
    larder("cache", "scrub", "c", "--stop")
    assert stack.cache.status()["scrub"] == "stopped"
    assert larder("cache", "scrub", "c", "--dry-run").stdout.strip() == "dmsetup message c 0 'scrub'"
    stack.stop()
