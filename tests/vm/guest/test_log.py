# SPDX-License-Identifier: GPL-2.0-or-later
"""The end of the log: a commit block that is damaged looks like one that was never written.  A start that would serve older data
is refused; what a power cut leaves never is."""

import itertools
import math
import random
import time

import pytest
from lib import command, simdisk
from lib.damage import damage
from lib.larder import Cache, Stack, larder, segment_layout, wait_for
from lib.log_blocks import FILL, CommitBlock, commit_blocks
from lib.sets import kill, small_stack

BLOCK = 8  # sectors


def write_rounds(stack: Stack, seed: int, rounds: int) -> dict[int, bytes]:
    """Some writes, then a flush; many times.  The same blocks are written again and again.  By sector, what they hold."""
    r, content = random.Random(seed), {}
    for _ in range(rounds):
        for _ in range(3):
            sector = r.randrange(0, 4000) * BLOCK
            content[sector] = r.randbytes(BLOCK * 512)
            stack.volume.write(sector, content[sector])
        stack.volume.flush()
    return content


def crash(stack: Stack) -> None:
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()


def wrong(stack: Stack, content: dict[int, bytes]) -> list[int]:
    return [s for s, data in content.items() if stack.volume.read(s, BLOCK) != data]


def refused(stack: Stack, kernel_log, block: CommitBlock) -> None:
    """Nothing is written, and the line names SSD, segment and record."""
    disks = stack.ssd if isinstance(stack.ssd, list) else [stack.ssd]
    before = [d.stats()["writes"] for d in disks]
    with pytest.raises(command.CommandError):
        Cache.start(stack.ssd, "refused", **stack.cache_options)
    assert kernel_log.matching(rf"{block.ssd.name}: the log is damaged in segment {block.segment}, .* were durable")
    assert kernel_log.matching("larder rescue")
    assert [d.stats()["writes"] for d in disks] == before


def pick(blocks: list[CommitBlock], which: str) -> CommitBlock:
    """The last one that anything says to have been durable is the one before the last flush but one."""
    known = [b for b in blocks if b.sequence <= max(x.durable for x in blocks)]
    assert len(known) > 40
    at = {"first": 0, "middle": len(known) // 2, "last": len(known) - 1}[which]
    # but for the first of all no first one of its segment: the line names the segment before
    while at and known[at].segment != known[at - 1].segment:
        at -= 1
    return known[at]


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_damaged_in_the_durable_part(make_disk, kernel_log, seed, which):
    stack = small_stack(make_disk)
    content = write_rounds(stack, seed, 60)
    crash(stack)
    block = pick(commit_blocks(stack.ssd), which)
    block.flip()
    refused(stack, kernel_log, block)
    check = larder("rescue", "check", stack.ssd, check=False)
    assert check.returncode and "log: it breaks off" in check.stderr
    block.flip()
    stack.start()
    assert not wrong(stack, content)
    stack.stop()


def test_damaged_at_a_segments_end(make_disk, kernel_log, seed):
    """The last block of a segment: what says that it was durable stands in the next one."""
    stack = small_stack(make_disk)
    write_rounds(stack, seed, 60)
    crash(stack)
    blocks = commit_blocks(stack.ssd)
    known = max(b.durable for b in blocks)
    ends = [a for a, b in itertools.pairwise(blocks) if a.segment != b.segment and a.sequence <= known]
    ends[len(ends) // 2].flip()
    refused(stack, kernel_log, ends[len(ends) // 2])


def test_only_the_fill_stream_tells(make_disk, kernel_log, seed):
    """All later blocks of the write stream are damaged too."""
    stack = small_stack(make_disk)
    write_rounds(stack, seed, 20)
    for i in range(20):
        stack.volume.read(40000 + i * BLOCK, BLOCK)
    wait_for(lambda: stack.volume.status()["fill_sectors"] == 20 * BLOCK, 30, "misses to fill")
    stack.volume.write(0, bytes(BLOCK * 512))  # else its flush would spare the SSD
    stack.volume.flush()
    crash(stack)
    blocks, fills = commit_blocks(stack.ssd), commit_blocks(stack.ssd, FILL)
    assert fills and max(b.durable for b in fills) > blocks[5].sequence
    for b in blocks[5:]:
        b.flip()
    refused(stack, kernel_log, blocks[5])


def test_damaged_where_nothing_tells(make_disk, seed):
    """The last block of all might never have been written: a start takes what is before it."""
    stack = small_stack(make_disk, segment="512k")  # the last one is of a write, not what opens segments
    content = write_rounds(stack, seed, 30)
    crash(stack)
    last = commit_blocks(stack.ssd)[-1]
    last.flip()
    stack.start()
    assert 1 <= len(wrong(stack, content)) <= 3
    stack.stop()


@pytest.mark.parametrize("later", [True, False])
def test_records_that_were_dropped(make_disk, kernel_log, seed, later):
    """The only SSD has answered their writes, and the flushes behind them, and stored nothing.  later: refused, as records behind
    them say that they were durable.  Else nothing tells, and what was there before is."""
    # not later: nothing opens segments behind what was lost, or that would tell
    stack = small_stack(make_disk, segment="128k" if later else "512k")
    content = write_rounds(stack, seed, 20)
    stack.ssd.fail(op="write", status="lost")
    lost = write_rounds(stack, seed + 1, 2)
    assert stack.ssd.faults()[0]["hits"] >= 2
    stack.ssd.heal()
    if later:
        write_rounds(stack, seed + 2, 20)
    crash(stack)
    if later:
        before = stack.ssd.stats()["writes"]
        with pytest.raises(command.CommandError):
            Cache.start(stack.ssd, "refused", **stack.cache_options)
        assert kernel_log.matching(r"ssd0: the log is damaged in segment \d+, .* were durable")
        assert stack.ssd.stats()["writes"] == before
        check = larder("rescue", "check", stack.ssd, check=False)
        assert check.returncode and "log: it breaks off" in check.stderr
        return
    stack.start()
    assert not wrong(stack, dict.fromkeys(lost, bytes(BLOCK * 512)) | content)
    stack.stop()


@pytest.mark.parametrize("change", ["magic=0", "used=+9", "hash=^1", "payload[300]=^4"])
def test_damaged_checkpoint(make_disk, kernel_log, seed, change):
    """The one before it counts, with its longer log.  Where that breaks off before what the damaged one stands on: refused."""
    stack = small_stack(make_disk)
    content = write_rounds(stack, seed, 20)
    stack.cache.message("checkpoint")
    content |= write_rounds(stack, seed + 1, 20)
    between = commit_blocks(stack.ssd)
    stack.cache.message("checkpoint")
    content |= write_rounds(stack, seed + 2, 20)
    crash(stack)
    damage(stack.ssd, ("chunk:0:0",), change, keep_crc=change.startswith("payload"))
    # no first one: the line names the segment before
    block = next(b for a, b in itertools.pairwise(between[len(between) // 2 :]) if a.segment == b.segment)
    block.flip()
    refused(stack, kernel_log, block)
    block.flip()
    kernel_log.mark()
    stack.start()
    assert kernel_log.matching(r"ssd0: checkpoint \d+ is not usable: .*, in chunk \d of 1 ")
    assert kernel_log.matching("ssd0: the checkpoint before it, .* are tried")
    assert not wrong(stack, content)
    stack.stop()


def test_second_copy_is_used(make_disk, kernel_log, seed):
    """Damaged in one copy: the other one counts, and repairs it.  In both: refused."""
    stack = small_stack(make_disk, ssds=2)
    content = write_rounds(stack, seed, 60)
    crash(stack)
    by_sequence = {}
    for ssd in stack.ssd:
        for b in commit_blocks(ssd):
            by_sequence.setdefault(b.sequence, []).append(b)
    pairs = [v for _, v in sorted(by_sequence.items()) if len(v) == 2]
    assert len(pairs) > 40
    own = [next(b for b in pair if b.own) for pair in pairs]
    # no first one: the line names the segment before
    at = next(i for i in range(len(pairs) // 2, len(pairs)) if own[i].segment == own[i - 1].segment)
    pair = pairs[at]
    whole = pair[1].ssd.read(pair[1].sector, BLOCK)
    for b in pair:
        b.flip()
    refused(stack, kernel_log, own[at])
    pair[0].flip()
    stack.start()
    assert pair[1].ssd.read(pair[1].sector, BLOCK) == whole
    assert not wrong(stack, content)
    stack.stop()


def copies(make_disk, kernel_log, seed: int, ssds: int = 2, least: int = 20, **options: object) -> tuple[Stack, dict[int, bytes]]:
    """On each SSD, behind a power cut; there is room in the segment behind the last record, and there are others before it."""
    kernel_log.expect("cannot read the log|cannot be read|takes no data|cannot be copied|I/O error|medium error")
    stack = small_stack(make_disk, ssds=ssds, segment="512k", **options)
    content: dict[int, bytes] = {}
    while not content or not least < commit_blocks(stack.ssd[0])[-1].slot < 100:  # of some 127
        content |= write_rounds(stack, seed + len(content), 40 if not content else 5)
    crash(stack)
    return stack, content


def one_copy_is_wrong(make_disk, kernel_log, seed: int, which: int) -> tuple[Stack, dict[int, bytes], CommitBlock]:
    """One of the two has something else for the data of the last record, in the slot before its block."""
    stack, content = copies(make_disk, kernel_log, seed)
    last = commit_blocks(stack.ssd[which])[-1]
    last.ssd.corrupt(last.sector - BLOCK, BLOCK)
    last.ssd.flush()
    return stack, content, last


def leaves(stack: Stack, ssd: simdisk.Simdisk, failed: int = 1) -> None:
    """It fails, and with it so many have left the set."""
    kill(ssd)
    with pytest.raises(command.CommandError):
        stack.cache.message("stack", "-")
    wait_for(lambda: stack.cache.status()["devices_failed"] == failed, 60, "it to leave")


def started_unread(stack: Stack, content: dict[int, bytes], block: CommitBlock, then: str) -> None:
    """Its segment cannot be read there while the cache starts, and can be behind that: nobody knows what it holds.  Nor does the
    next start."""
    first = block.sector - BLOCK * block.slot
    block.ssd.fail(op="read", from_=first, to=first + 1023, status="medium")
    stack.start()
    block.ssd.heal()
    assert not wrong(stack, content)
    if then == "stop":
        stack.restart()
    elif then == "cut":
        crash(stack)
        stack.start()
    assert not wrong(stack, content)


def mended_and_alone(stack: Stack, content: dict[int, bytes], which: int) -> None:
    """What a start could not make whole on this SSD, first copy or second, is made whole behind it: the other one may go then."""
    stack.cache.set(mend="on")
    wait_for(lambda: stack.cache.status()["mended_slots"] == 1, 60, "the copy to be mended")
    leaves(stack, stack.ssd[1 - which])
    assert not wrong(stack, content)
    stack.stop()


@pytest.mark.parametrize("which", [0, 1])
def test_copy_with_a_bad_slot_gets_what_it_lacks(make_disk, kernel_log, seed, which):
    """It cannot read a slot of that segment in which nothing is."""
    stack, content, last = one_copy_is_wrong(make_disk, kernel_log, seed, which)
    bad = last.sector + 4 * BLOCK
    last.ssd.fail(op="read", from_=bad, to=bad + BLOCK - 1, status="medium")
    stack.start()
    assert kernel_log.matching(r"1 slots of segment \d+ cannot be read") and kernel_log.matching("are on both now")
    assert not wrong(stack, content)
    stack.stop()


@pytest.mark.parametrize("which", [0, 1])
def test_copy_with_a_dead_slot(make_disk, kernel_log, seed, which):
    """It takes no data there, and gives none: no reason not to start, as whoever reads it is given the other copy.  One that is
    read, and not written to, would give what it has: refused."""
    stack, content, last = one_copy_is_wrong(make_disk, kernel_log, seed, which)
    at = last.sector - BLOCK
    last.ssd.fail(op="write", from_=at, to=at + BLOCK - 1, status="medium")
    with pytest.raises(command.CommandError):
        Cache.start(stack.ssd, "refused", **stack.cache_options)
    assert kernel_log.matching(f"{last.ssd.name}: a record cannot be copied to segment .* give '-' for this SSD")
    last.ssd.fail(op="read", from_=at, to=at + BLOCK - 1, status="medium")
    stack.start()
    assert kernel_log.matching(f"{last.ssd.name}: slot {last.slot - 1} of segment .* takes no data, and gives none")
    assert not wrong(stack, content)
    last.ssd.heal()
    mended_and_alone(stack, content, which)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("then", ["at once", "stop", "cut"])
def test_copy_that_is_not_looked_at_is_not_read(make_disk, kernel_log, seed, which, then):
    stack, content, last = one_copy_is_wrong(make_disk, kernel_log, seed, which)
    started_unread(stack, content, last, then)
    mended_and_alone(stack, content, which)


def test_copy_that_is_not_looked_at_is_not_read_by_a_worker(make_disk, kernel_log, seed):
    """Of a block of 4 KiB, read in part, of which the first copy fails: an error, and not what the second one has."""
    kernel_log.expect("cannot read the log|cannot be read|I/O error|medium error")
    ssds = [make_disk(f"ssd{i}", model="null", mb=32, wce=1, fua=1, lbs=4096, pbs=4096) for i in range(2)]
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0, "cache_checkpoint_percent": 50}
    stack = Stack(ssds, hdd, format_cache=("--segment-size", "512k"), format_volume=("--cache", "c"), **options)
    r, content = random.Random(seed), {}
    for i in range(30):
        sector = 8000 + 64 * i
        content[sector] = r.randbytes(BLOCK * 512)
        stack.volume.write(sector, content[sector])
        stack.volume.flush()  # a record each: its data is in the slot before its block
    crash(stack)
    first, second = sorted((commit_blocks(s)[-1] for s in ssds), key=lambda b: not b.own)
    assert first.own and not second.own and first.sequence == second.sequence
    assert first.ssd.read(first.sector - BLOCK, BLOCK) == second.ssd.read(second.sector - BLOCK, BLOCK) == content[sector]
    second.ssd.corrupt(second.sector - BLOCK, BLOCK)
    second.ssd.flush()
    started_unread(stack, content, second, "at once")
    first.ssd.fail(op="read", from_=first.sector - BLOCK, to=first.sector, status="medium")
    before = second.ssd.stats()["reads"]
    with pytest.raises(OSError):
        stack.volume.read(sector + 1, 3)
    assert first.ssd.faults()[0]["hits"] and second.ssd.stats()["reads"] == before
    first.ssd.heal()
    assert not wrong(stack, content)
    stack.stop()


def test_copy_that_cannot_be_looked_at_has_breaks(make_disk, kernel_log, seed):
    """Too much of its segment cannot be read, behind the start either: each attempt is as long behind the one before as all before
    it.  Until it can: it is whole then."""
    stack, content = copies(make_disk, kernel_log, seed, least=70)
    last = next(b for b in (commit_blocks(s)[-1] for s in stack.ssd) if not b.own)
    last.ssd.corrupt(last.sector - BLOCK, BLOCK)
    last.ssd.flush()
    first = last.sector - BLOCK * last.slot
    last.ssd.fail(op="read", from_=first, to=first + 1023, status="medium")
    stack.start()
    said = "was found damaged, and could not be mended"
    stack.cache.set(mend="on")
    began = time.monotonic()
    wait_for(lambda: len(kernel_log.matching(said)) > 2, 120, "attempts")
    time.sleep(20)
    assert len(kernel_log.matching(said)) <= 3 + math.log2(time.monotonic() - began)
    assert not wrong(stack, content) and not stack.cache.status()["mended_slots"]
    last.ssd.heal()
    mended_and_alone(stack, content, stack.ssd.index(last.ssd))


@pytest.mark.parametrize("which", [0, 1], ids=["second", "third"])
@pytest.mark.parametrize("then", ["at once", "stop", "cut"])
def test_of_three_the_one_that_was_looked_at_is_read(make_disk, kernel_log, seed, which, then):
    """Of three copies one lacks what is durable, and cannot be read while the cache starts.  Then the SSD with the first one goes,
    and another takes its place: both times what the third one has is read, and that is what all have in the end."""
    stack, content = copies(make_disk, kernel_log, seed, 3, cache_mirror="dirty:3", cache_mend="off")
    last = [commit_blocks(s)[-1] for s in stack.ssd]
    assert len({b.sequence for b in last}) == 1
    at = next(i for i, b in enumerate(last) if b.own)
    others = [b for b in last if not b.own]
    bad, good = others[which], others[1 - which]
    bad.ssd.corrupt(bad.sector - BLOCK, BLOCK)
    bad.ssd.flush()
    started_unread(stack, content, bad, then)
    leaves(stack, stack.ssd[at])
    assert not wrong(stack, content)
    spare = make_disk("ssd3", model="null", mb=32, wce=1, fua=1)
    larder("cache", "replace", stack.cache, at, spare, "--yes")
    assert not wrong(stack, content)
    stack.cache.set(mend="on")
    wait_for(lambda: stack.cache.status()["mended_slots"] == 1, 60, "the copy to be mended")
    leaves(stack, good.ssd)
    assert not wrong(stack, content), "what took the place of the first one, or what was mended"
    leaves(stack, spare, 2)
    assert not wrong(stack, content), "what was mended"
    stack.stop()


def test_bad_slots_of_both_copies(make_disk, kernel_log, seed):
    """Each of them cannot read the data of another record of one segment: together they have all."""
    stack, content = copies(make_disk, kernel_log, seed)
    for ssd, record in zip(stack.ssd, (-1, -2), strict=True):
        block = commit_blocks(ssd)[record]
        ssd.fail(op="read", from_=block.sector - BLOCK, to=block.sector - 1, status="medium")
    stack.start()
    assert len(kernel_log.matching(r"1 slots of segment \d+ cannot be read")) >= 2
    assert not wrong(stack, content)
    stack.stop()


@pytest.mark.limit(1800)
def test_soon_after_a_start(make_disk, seed):
    """Power cuts while the first records of an epoch are written: none of them is taken for damage, by kernel or by rescue."""
    stack = small_stack(make_disk)
    modes = ("random", "torn", "lose", "keep", "prefix")
    content: dict[int, bytes] = {}
    for i in range(40):
        simdisk.power_cut(mode=modes[i % len(modes)], seed=seed + i, after=1 + i % 20)
        flushed, pending = dict(content), {}
        try:
            for k in range(40):
                sector, data = k * BLOCK * 5, random.Random(seed + i * 40 + k).randbytes(BLOCK * 512)
                pending[sector] = data
                stack.volume.write(sector, data)
                if k % 4 == 3:
                    stack.volume.flush()
                    flushed |= pending
                    pending = {}
        except OSError:
            pass
        simdisk.wait_power_off(stack.ssd)
        stack.stop()
        simdisk.power_up()
        check = larder("rescue", "check", stack.ssd, check=False)
        assert "breaks off" not in check.stderr
        stack.start()
        content = {s: stack.volume.read(s, BLOCK) for s in flushed | pending}
        assert not [s for s in flushed if content[s] not in (flushed[s], pending.get(s))]
    stack.stop()


def unread_stack(make_disk, kernel_log) -> tuple[Stack, dict[int, bytes], list[CommitBlock]]:
    """A power cut behind thirty flushed records of one block each, in one segment of the only SSD."""
    kernel_log.expect("I/O error|critical medium error|Buffer I/O")
    disk, hdd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1), make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0, "cache_checkpoint_percent": 50}
    stack = Stack(disk, hdd, format_cache=("--segment-size", "1m"), format_volume=("--cache", "c"), **options)
    content = {}
    for i in range(30):
        content[i * 3 * BLOCK] = bytes([i + 1]) * (BLOCK * 512)
        stack.volume.write(i * 3 * BLOCK, content[i * 3 * BLOCK])
        stack.volume.flush()
    crash(stack)
    blocks = commit_blocks(disk)
    assert len(blocks) >= 30 and len({b.segment for b in blocks}) == 1 and max(b.slot for b in blocks) < 80
    return stack, content, blocks


@pytest.mark.parametrize("where", ["far behind the end", "data that was durable"])
def test_slot_that_cannot_be_read(make_disk, kernel_log, where):
    """In the segment in which the log ends; what nothing stands on does not bar the start, nor what was known to be durable, which
    gives errors by itself."""
    stack, content, blocks = unread_stack(make_disk, kernel_log)
    last = blocks[-1]
    at = last.sector - BLOCK * (last.slot - 240) if where.startswith("far") else blocks[4].sector - BLOCK
    stack.ssd.fail(op="read", from_=at, to=at + BLOCK, status="medium")
    stack.start()
    assert kernel_log.matching(r"1 slots of segment \d+ cannot be read")
    errors = []
    for sector, data in content.items():
        try:
            assert stack.volume.read(sector, BLOCK) == data
        except OSError:
            errors.append(sector)
    assert len(errors) == (0 if where.startswith("far") else 1)
    stack.ssd.heal()
    assert not wrong(stack, content)
    stack.restart()
    assert not wrong(stack, content)
    stack.stop()


@pytest.mark.parametrize("where", ["the next block", "the last block", "data of the last record", "all of the segment"])
def test_end_that_cannot_be_read(make_disk, kernel_log, where):
    """A record that was flushed may be there: refused, with nothing changed; it is no end of the log as a power cut leaves it."""
    stack, content, blocks = unread_stack(make_disk, kernel_log)
    last = blocks[-1]
    one = {"the next block": 2 * BLOCK, "the last block": 0, "data of the last record": -BLOCK}
    at, end = (one[where], one[where] + BLOCK) if where in one else (-BLOCK * last.slot, BLOCK * 100)
    at, end = last.sector + at, last.sector + end
    stack.ssd.fail(op="read", from_=at, to=end, status="medium")
    before = stack.ssd.stats()["writes"]
    with pytest.raises(command.CommandError):
        Cache.start(stack.ssd, "refused", **stack.cache_options)
    assert kernel_log.matching("ssd0: .*nothing was changed: check the device")
    assert stack.ssd.stats()["writes"] == before
    stack.ssd.heal()
    stack.start()
    assert not wrong(stack, content)
    stack.stop()


def test_slot_that_cannot_be_read_behind_a_torn_record(make_disk, kernel_log):
    """It ends in that record, whatever stands in the slot."""
    stack, content, blocks = unread_stack(make_disk, kernel_log)
    last = blocks[-1]
    stack.ssd.corrupt(last.sector - BLOCK, BLOCK)
    stack.ssd.flush()
    at = last.sector + 2 * BLOCK
    stack.ssd.fail(op="read", from_=at, to=at + BLOCK, status="medium")
    stack.start()
    assert stack.ssd.faults()[0]["hits"] and not kernel_log.matching("the log may go on")
    torn, _ = content.popitem()
    assert not wrong(stack, content) and stack.volume.read(torn, BLOCK) == bytes(BLOCK * 512)
    stack.stop()


@pytest.mark.parametrize("how_many", ["one slot", "all of the segment"])
def test_clean_copies_that_cannot_be_read(make_disk, kernel_log, how_many):
    """Behind an orderly stop, in the segment in which the fill stream was: the start goes on without."""
    kernel_log.expect("I/O error|critical medium error|Buffer I/O")
    ssd, hdd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1), make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0, "cache_checkpoint_percent": 50}
    # a segment of which more slots are unread than are looked for one by one
    stack = Stack(ssd, hdd, format_cache=("--segment-size", "1m"), format_volume=("--cache", "c"), **options)
    for i in range(40):
        stack.volume.read(40000 + i * BLOCK, BLOCK)
    wait_for(lambda: stack.volume.status()["fill_sectors"] == 40 * BLOCK, 30, "misses to fill")
    stack.cache.message("commit")
    stack.volume.flush()
    last = commit_blocks(stack.ssd, FILL)[-1]
    _, size, _ = segment_layout(stack.ssd)
    stack.stop()
    begin = last.sector - BLOCK * last.slot
    at, end = (last.sector - BLOCK, last.sector) if how_many == "one slot" else (begin, begin + size)
    stack.ssd.fail(op="read", from_=at, to=end, status="medium")
    stack.start()
    assert stack.ssd.faults()[0]["hits"], "the start did not read it"
    for i in range(40):
        assert stack.volume.read(40000 + i * BLOCK, BLOCK) == bytes(BLOCK * 512)
    stack.ssd.heal()
    stack.stop()
