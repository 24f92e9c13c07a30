# SPDX-License-Identifier: GPL-2.0-or-later
"""The ordering rules of docs/design.md, one at a time: a command of a disk is held up, or lost, so that the order shows, or power
is cut at the moment that the rule is about.  Each is the test of a mutant (tests/mutants)."""

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable

import pytest
from lib import command, simdisk
from lib.block import SECTOR
from lib.larder import DATA_SECTOR, Stack, Volume, segment_layout, wait_for

BLOCK = 8  # sectors
A, B, C = (os.urandom(BLOCK * SECTOR) for _ in range(3))
REGION = 1 << 17  # sectors that have a mark together
HELD = 2000  # ms: long enough to do something meanwhile; what is judged is the order


def make(
    make_disk,
    hdd_mb: int = 64,
    disk: dict | None = None,
    ssd_discard: str = "none",
    ssd_mb: int = 32,
    ssd_fua: int = 1,
    **options: object,
) -> Stack:
    """Small segments; nothing is written back, or checkpointed, but what the test does; the backing has discards."""
    ssd = make_disk("ssd0", model="null", mb=ssd_mb, wce=1, fua=ssd_fua, discard=ssd_discard)
    hdd = make_disk("hdd0", model="null", mb=hdd_mb, wce=1, discard="zero", **(disk or {}))
    options = {"writeback": "off", "sequential_cutoff": 0, "cache_checkpoint_percent": 50} | options
    return Stack(ssd, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)


def make_written(make_disk, **options: object) -> Stack:
    """The first block is A, and durable."""
    stack = make(make_disk, **options)
    stack.volume.write(0, A)
    stack.volume.flush()
    return stack


class Beside:
    """with Beside(call, ...): it runs meanwhile, and has ended without an error behind it."""

    def __init__(self, call: Callable, *arguments: object):
        self.call, self.arguments = call, arguments
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.call(*self.arguments)
        except Exception as e:
            self.error = e

    def __enter__(self) -> "Beside":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.join()
        if self.error:
            raise self.error


def hold(trace: simdisk.Trace, disk: simdisk.Simdisk, op: str, ms: int = HELD) -> None:
    """The next one is answered late, though its data is taken at once."""
    trace.clear()
    disk.fail(op=op, status="ok", delay_ms=ms, count=1)


def wait_held(trace: simdisk.Trace, disk: simdisk.Simdisk, op: str) -> None:
    wait_for(lambda: trace.commands(disk, op), 60, f"a {op} of {disk}")


def ended(trace: simdisk.Trace, disk: simdisk.Simdisk, op: str) -> bool:
    """The one that was held up."""
    return trace.commands(disk, op)[0].end is not None


def write_record(stack: Stack, sector: int, data: bytes) -> None:
    """Its commit block follows by itself; nothing is flushed."""
    before = stack.cache.status()["records_applied"]
    stack.volume.write(sector, data)
    wait_for(lambda: stack.cache.status()["records_applied"] > before, 60, "the commit block")


def cut(stack: Stack, ssd: str = "lose", hdd: str = "lose", stop: Callable[[], object] | None = None) -> None:
    """Power cut, and a start.  ssd, hdd: what becomes of what was not flushed there."""
    simdisk.power_cut(stack.hdd, mode=hdd)  # first: a cache that fails under a disk with power is left, durably
    simdisk.power_cut(stack.ssd, mode=ssd)
    (stop or stack.stop)()
    simdisk.power_up()
    stack.start()


def settled(stack: Stack, sector: int = 0) -> bytes:
    """What it reads as; it is the same when the cache has dropped what it may drop."""
    found = stack.volume.read(sector, BLOCK)
    stack.volume.message("drop_clean")
    assert stack.volume.read(sector, BLOCK) == found, "it reads as something else without the clean copy"
    return found


# ---------------------------------------------------------------- rules 1, 2, 3


def test_answered_in_order(make_disk, trace):
    """Rule 1: not before the append of the write before it has ended."""
    stack = make(make_disk)
    stack.volume.write(0, A)
    stack.cache.message("commit")
    hold(trace, stack.ssd, "write")
    with Beside(stack.volume.write, 8, B):
        wait_held(trace, stack.ssd, "write")
        stack.volume.write(16, C)
        assert ended(trace, stack.ssd, "write")
    stack.stop()


def test_flush_waits_for_the_one_in_flight(make_disk, trace):
    """Rule 2: it has nothing to flush itself."""
    stack = make_written(make_disk)
    stack.volume.write(0, B)
    hold(trace, stack.ssd, "flush")
    with Beside(stack.volume.flush):
        wait_held(trace, stack.ssd, "flush")
        stack.volume.flush()
        assert ended(trace, stack.ssd, "flush")
    stack.stop()


def test_fua_behind_what_is_not_durable(make_disk):
    """Rule 3: a record that replay does not reach is not durable, FUA or not."""
    stack = make_written(make_disk)
    write_record(stack, 0, B)
    stack.volume.write(8, C, fua=True)
    cut(stack)
    assert stack.volume.read(8, BLOCK) == C
    stack.stop()


# ---------------------------------------------------------------- rules 4, 5, 6, 7


def test_clean_is_durable_below(make_disk):
    """Rule 4: the log says CLEAN, so the backing has it."""
    stack = make_written(make_disk)
    stack.volume.drain()
    stack.cache.message("commit")
    cut(stack, ssd="keep", hdd="lose")
    assert settled(stack) == A
    stack.stop()


def test_written_back_is_durable_above(make_disk):
    """Rule 4: what the backing has already is not taken for the clean data that the log had before."""
    stack = make(make_disk)
    stack.volume.write(0, A)
    stack.volume.drain()
    stack.volume.flush()
    stack.volume.write(0, B)
    stack.volume.drain()
    cut(stack, ssd="lose", hdd="keep")
    assert settled(stack) == B
    stack.stop()


NOISE = "I/O error|critical .* error|Buffer I/O"


def make_scattered(make_disk, **disk: int) -> tuple[Stack, dict[int, bytes]]:
    """Dirty and durable, and written back one by one, in this order.  disk: of the backing."""
    stack = make(make_disk, disk=disk, writeback_depth=1)
    content = {i * 4 * BLOCK: os.urandom(BLOCK * SECTOR) for i in range(8)}
    for sector, data in content.items():
        stack.volume.write(sector, data)
    stack.volume.flush()
    return stack, content


def nothing_went_back(stack: Stack, content: dict[int, bytes]) -> None:
    """All of it is written back, and is there without its copy in the cache."""
    stack.volume.drain()
    stack.volume.message("drop_clean")
    assert [s for s, data in content.items() if stack.volume.read(s, BLOCK) != data] == []


def test_backing_is_reset_in_a_batch(make_disk, kernel_log):
    """Rule 4: it has lost what it had answered of the batch, a write fails, and then all is well: no flush tells."""
    kernel_log.expect(NOISE)
    stack, content = make_scattered(make_disk)
    stack.hdd.fail(op="write", from_=DATA_SECTOR, skip=len(content) // 2, count=1, status="reset")
    nothing_went_back(stack, content)
    assert stack.hdd.faults()[0]["hits"] == 1
    stack.stop()


def test_command_for_zeroes_meets_a_reset(make_disk, kernel_log):
    """Rule 4: the last piece of a batch is zeroes, and their command alone meets it: as data behind that they would hide it."""
    kernel_log.expect(NOISE)
    stack, content = make_scattered(make_disk, write_zeroes=1)
    zeroed = max(content) + 4 * BLOCK
    stack.volume.write(zeroed, A)
    stack.volume.drain()
    for sector in content:
        content[sector] = os.urandom(BLOCK * SECTOR)
        stack.volume.write(sector, content[sector])
    stack.volume.zero(zeroed, BLOCK)
    stack.volume.flush()
    stack.hdd.fail(op="zeroes", from_=DATA_SECTOR, count=1, status="reset")
    nothing_went_back(stack, content)
    assert stack.hdd.faults()[0]["hits"] == 1 and stack.hdd.read(DATA_SECTOR + zeroed, BLOCK) == bytes(BLOCK * SECTOR)
    # one that fails whenever it is asked for is not asked for again, or what is dirty would stay so
    stack.hdd.fail(op="zeroes", status="ioerr")
    stack.volume.write(zeroed, A)
    stack.volume.drain()
    stack.volume.zero(zeroed, BLOCK)
    stack.volume.drain()
    assert stack.hdd.read(DATA_SECTOR + zeroed, BLOCK) == bytes(BLOCK * SECTOR)
    stack.stop()


def test_flush_of_a_user_fails_beside_a_batch(make_disk, kernel_log):
    """Rule 4: it has taken what was written back before with it, and the batch's own flush, behind it, succeeds."""
    kernel_log.expect(NOISE)
    stack, content = make_scattered(make_disk)
    last = DATA_SECTOR + max(content)
    stack.volume.set(mode="writearound")
    stack.hdd.fail(op="write", from_=last, to=last + BLOCK, status="ok", delay_ms=5 * HELD, count=1)
    stack.volume.message("flush")
    wait_for(lambda: stack.hdd.faults()[0]["hits"], 60, "the last write of the batch")
    stack.hdd.fail(op="flush", status="reset", count=1)
    stack.volume.write(8192, A)
    with pytest.raises(OSError):
        stack.volume.flush()
    assert stack.hdd.state()["inflight"], "the batch has ended before"
    nothing_went_back(stack, content)
    stack.stop()


# A flush of the backing fails and drops what it was to secure (rule 2, failed-flush-owed).  A raw disk tells whoever flushes next,
# as that flush is the one which fails; here it may be one of larder's own.


FLUSH_NOISE = f"{NOISE}|a flush failed|a flush has failed that no user was told of"


def make_behind(make_disk) -> Stack:
    """Dirty data, durable, and behind it a bypassed write that is volatile on the backing."""
    stack, _ = make_scattered(make_disk)
    stack.volume.set(mode="writearound")
    stack.volume.write(8192, A)
    return stack


def own_flush_fails(stack: Stack) -> None:
    """Of the writing back; it is then tried again, and its flushes succeed."""
    stack.hdd.fail(op="flush", status="reset", count=1)
    stack.volume.drain()
    assert stack.hdd.faults()[0]["hits"] == 1


def told_once(stack: Stack) -> None:
    with pytest.raises(OSError):
        stack.volume.flush()
    stack.volume.flush()


def test_own_flush_fails(make_disk, kernel_log):
    """The next flush of a user fails, as what was acknowledged is gone, and that once."""
    kernel_log.expect(FLUSH_NOISE)
    stack = make_behind(make_disk)
    own_flush_fails(stack)
    assert stack.hdd.read(DATA_SECTOR + 8192, BLOCK) != A
    told_once(stack)
    stack.stop()


def test_own_flush_fails_before_a_detach(make_disk, kernel_log):
    """The volume has left its cache before anybody was told: who flushes it then is."""
    kernel_log.expect(FLUSH_NOISE)
    stack = make_behind(make_disk)
    own_flush_fails(stack)
    stack.detach()
    told_once(stack)
    stack.stop()


@pytest.mark.parametrize("then", ["resumed", "loaded again", "attached"])
def test_flush_of_a_suspend_fails(make_disk, kernel_log, then):
    """A volume without a cache flushes its disk as it is suspended, which nobody waits for.  What that has dropped is told by the
    next flush of a user, once, though this is one of another table."""
    kernel_log.expect(FLUSH_NOISE)
    stack = make(make_disk)
    stack.detach()
    stack.volume.write(0, A)
    stack.hdd.fail(op="flush", status="reset", count=1)
    if then != "resumed":
        stack.volume.load(stack.line(cached=then == "attached"))
    stack.volume.suspend()
    assert stack.hdd.faults()[0]["hits"] == 1 and stack.hdd.read(DATA_SECTOR, BLOCK) != A, "nothing was dropped by it"
    stack.volume.resume()
    assert stack.volume.status()["state"] == ("running" if then == "attached" else "passthrough")
    told_once(stack)
    stack.stop()


@pytest.mark.parametrize("volatile", ["bypassed", "nothing"])
def test_own_write_meets_a_reset(make_disk, kernel_log, volatile):
    """A write of writeback is all that is told of it: what was acknowledged past the cache is gone, and the next flush of a user
    fails, once; nobody's, where nothing was volatile."""
    kernel_log.expect(FLUSH_NOISE)
    stack = make_behind(make_disk) if volatile == "bypassed" else make_scattered(make_disk)[0]
    stack.hdd.fail(op="write", from_=DATA_SECTOR, skip=4, count=1, status="reset")
    stack.volume.drain()
    assert stack.hdd.faults()[0]["hits"] == 1
    if volatile == "bypassed":
        assert stack.hdd.read(DATA_SECTOR + 8192, BLOCK) != A
        told_once(stack)
    else:
        stack.volume.flush()
    stack.stop()


def test_own_write_meets_a_reset_behind_a_write_through(make_disk, kernel_log):
    """The same of what was written through: the flush tells, and then cache and backing agree."""
    stack = made_through(make_disk, kernel_log)
    stack.volume.set(mode="writeback")
    stack.volume.write(1024, C)
    stack.hdd.fail(op="write", from_=DATA_SECTOR, count=1, status="reset")
    stack.volume.drain()
    assert stack.hdd.faults()[0]["hits"] == 1
    told_once(stack)
    stack.restart()
    settled(stack)
    stack.stop()


@pytest.mark.parametrize("secured", ["nothing", "flushed"])
def test_own_flush_fails_and_costs_nothing(make_disk, kernel_log, secured):
    """Nothing of a user's was volatile: nobody gets an error."""
    kernel_log.expect(FLUSH_NOISE)
    stack = make_behind(make_disk) if secured == "flushed" else make_scattered(make_disk)[0]
    stack.volume.flush()
    own_flush_fails(stack)
    stack.volume.flush()
    stack.stop()


def test_flush_before_a_commit_fails(make_disk, kernel_log):
    """dm drops the error of a flush in front of a write: the write has it (FUA), so that fsync fails, as it does on a raw disk."""
    kernel_log.expect(f"{FLUSH_NOISE}|JBD2|EXT4-fs")
    stack = make(make_disk, mode="writearound")
    command.run("mkfs.ext4", "-q", stack.volume)
    command.run("mount", stack.volume, "/mnt")
    try:
        with open("/mnt/file", "wb") as f:
            f.write(A)
            command.run("sync", "-f", "/mnt")
            f.write(B)
            f.flush()
            stack.hdd.fail(op="flush", status="reset", count=1)
            with pytest.raises(OSError):
                os.fsync(f.fileno())
        assert stack.hdd.faults()[0]["hits"] == 1
    finally:
        command.run("umount", "/mnt")
    stack.stop()


# A flush of the only SSD fails and drops what it was to secure (rule 2, kernel/doubt.c).


SLOTS_READ = 18  # of 28 of a segment, commit blocks too: more than half of them
SSD_NOISE = f"{NOISE}|a flush failed|a flush has failed that no user was told of|damaged|a failed flush|no checkpoint|commit block"


def ssd_flush_drops(stack: Stack) -> None:
    """The next one; those behind it succeed."""
    stack.ssd.fail(op="flush", status="reset", count=1)


def goes_on(stack: Stack) -> None:
    """What is flushed now is there behind a power cut, and so is A."""
    stack.volume.write(16384, C)
    stack.volume.flush()
    cut(stack)
    assert stack.volume.read(0, BLOCK) == A and stack.volume.read(16384, BLOCK) == C
    stack.stop()


def make_dropped(make_disk) -> Stack:
    """A is durable, B was acknowledged, and its flush failed and dropped it."""
    stack = make_written(make_disk)
    write_record(stack, 8192, B)
    ssd_flush_drops(stack)
    with pytest.raises(OSError):
        stack.volume.flush()
    assert stack.ssd.faults()[0]["hits"] == 1
    return stack


def test_ssd_drops_and_goes_on(make_disk, kernel_log):
    """What is flushed behind that is there after a power cut: a replay ends at what is missing, so it begins behind it."""
    kernel_log.expect(SSD_NOISE)
    stack = make_dropped(make_disk)
    stack.volume.write(16384, C)
    assert fails_once(stack.volume.flush)  # B is gone for good, and that is found out now
    assert stack.cache.status()["trouble"] == "-"
    cut(stack)
    assert stack.volume.read(0, BLOCK) == A
    assert stack.volume.read(16384, BLOCK) == C
    stack.stop()


def test_fua_beside_a_reset(make_disk, kernel_log, trace):
    """FUA is a write, and a flush behind it here: that waits for a flush in flight, and finds nothing to do behind a reset."""
    kernel_log.expect(SSD_NOISE)
    stack = make(make_disk, ssd_fua=0)
    stack.volume.write(0, A, fua=True)
    told: list[bool] = []

    def write() -> None:
        try:
            stack.volume.write(8, C, fua=True)
            told.append(True)
        except OSError:
            told.append(False)

    hold(trace, stack.ssd, "flush")
    stack.volume.message("flush")  # writeback begins with one of its own
    wait_held(trace, stack.ssd, "flush")
    before = len(trace.commands(stack.ssd, "write"))
    with Beside(write):
        wait_for(lambda: any(x.end is not None for x in trace.commands(stack.ssd, "write")[before:]), 60, "its data")
        stack.ssd.fail(op="write", status="reset", count=1)
        with Beside(stack.volume.write, 16384, B):
            wait_for(lambda: stack.ssd.faults()[-1]["hits"], 60, "the reset")
            assert not ended(trace, stack.ssd, "flush") and not told
    cut(stack)
    assert told == [False] or stack.volume.read(8, BLOCK) == C
    stack.stop()


def fails_once(flush: Callable[[], None]) -> bool:
    """It may fail, once; it succeeds then."""
    try:
        flush()
    except OSError:
        flush()
    return True


def test_what_the_ssd_dropped_is_not_read(make_disk, kernel_log):
    """It gives an error, until it is written anew; never what was there before."""
    kernel_log.expect(SSD_NOISE)
    stack = make_dropped(make_disk)
    fails_once(stack.volume.flush)
    with pytest.raises(OSError):
        stack.volume.read(8192, BLOCK)
    assert stack.volume.read(0, BLOCK) == A
    stack.volume.write(8192, C)
    assert stack.volume.read(8192, BLOCK) == C
    stack.volume.flush()
    cut(stack)
    assert stack.volume.read(0, BLOCK) == A and stack.volume.read(8192, BLOCK) == C
    stack.stop()


def test_ssd_that_drops_is_not_believed(make_disk, kernel_log):
    """Nor is it before anybody knows what is gone; what is whole is read, and no flush or write succeeds meanwhile."""
    kernel_log.expect(SSD_NOISE)
    stack = make_written(make_disk)
    write_record(stack, 8192, B)
    stack.ssd.fail(op="flush", status="reset", count=1000)
    for _ in range(2):
        with pytest.raises(OSError):
            stack.volume.flush()
    with pytest.raises(OSError):
        stack.volume.write(16384, C)
    with pytest.raises(OSError):
        stack.volume.read(8192, BLOCK)
    assert stack.volume.read(0, BLOCK) == A
    assert stack.cache.status()["trouble"] == "flush"
    stack.ssd.heal()
    fails_once(stack.volume.flush)
    goes_on(stack)


def test_ssd_drops_with_a_flush_of_its_own(make_disk, kernel_log):
    """No user was told: the next flush is, and the one behind it succeeds."""
    kernel_log.expect(SSD_NOISE)
    stack = make_written(make_disk)
    write_record(stack, 8192, B)
    ssd_flush_drops(stack)
    with pytest.raises(command.CommandError, match="EIO"):
        stack.cache.message("checkpoint")
    wait_for(lambda: stack.cache.status()["trouble"] == "-", 60, "the end of the doubt")
    with pytest.raises(OSError):
        stack.volume.flush()
    goes_on(stack)


def test_ssd_drops_clean_copies(make_disk, kernel_log):
    """The backing has what is gone: it is read from there, and nobody gets an error."""
    kernel_log.expect(SSD_NOISE)
    stack = make_written(make_disk)
    stack.hdd.write(DATA_SECTOR + 8192, B)
    assert stack.volume.read(8192, BLOCK) == B
    stack.cache.message("commit")
    assert stack.volume.status()["cached_sectors"] == 2 * BLOCK
    ssd_flush_drops(stack)
    with pytest.raises(command.CommandError, match="EIO"):
        stack.cache.message("checkpoint")
    wait_for(lambda: stack.cache.status()["trouble"] == "-", 60, "the end of the doubt")
    assert stack.volume.read(8192, BLOCK) == B
    stack.volume.flush()
    cut(stack, hdd="keep")
    assert stack.volume.read(0, BLOCK) == A and stack.volume.read(8192, BLOCK) == B
    stack.stop()


def test_ssd_that_drops_is_not_written_back(make_disk, kernel_log):
    """Rule 4: what was not durable does not go to the disk, nor does CLEAN count, while the log has a hole."""
    kernel_log.expect(SSD_NOISE)
    stack = make_dropped(make_disk)
    stack.volume.set(writeback="on")
    stack.volume.write(16384, C)
    fails_once(stack.volume.flush)
    wait_for(lambda: stack.hdd.read(DATA_SECTOR + 16384, BLOCK) == C, 60, "what is whole to be written back")
    assert stack.hdd.read(DATA_SECTOR + 8192, BLOCK) != B
    with pytest.raises(OSError):
        stack.volume.read(8192, BLOCK)
    stack.volume.write(8192, A)
    stack.volume.drain()
    stack.stop()


WRITES = ["superblock", "clean copies", "summary", "chunk", "append", "append of what was answered"]
DISCARDS = ["discard", "discard that hangs"]


@pytest.mark.parametrize("what", WRITES + DISCARDS)
def test_ssd_is_reset_in_another_write(make_disk, trace, kernel_log, what):
    """What it had not secured is gone as by a flush that fails, and nothing else tells: a user's flush does, once."""
    kernel_log.expect(f"{SSD_NOISE}|cannot write|clean copies could not be written")
    discards = what in DISCARDS
    stack = make_written(make_disk, ssd_discard="zero", cache_discard="on" if discards else "off")
    copies = segment_of_copies(stack, trace)
    if what == "summary":
        leave_a_summary(stack)
    else:
        write_record(stack, 8192, B)
    if what == "superblock":
        ssd_flush_drops(stack)
        with pytest.raises(command.CommandError, match="EIO"):
            stack.cache.message("stack", "-")
    elif discards:  # of segments that are opened: a flush goes before, then they come one by one, beside what is written
        hangs = {"status": "hung"}  # each of them would: none is sent again
        stack.ssd.fail(op="discard", skip=2, **({"status": "reset", "count": 1} if what == "discard" else hangs))
        stack.ssd.fail(op="discard", status="ok", delay_ms=300)  # something is written meanwhile, and so behind the flush
        for i in range(2000):
            stack.volume.write(40960 + BLOCK * (i % 1000), C)
            if stack.ssd.faults()[0]["hits"]:
                break
    elif what == "clean copies":
        stack.ssd.fail(op="write", **copies, status="reset", count=1)
        stack.volume.read(32768, BLOCK)
    elif what == "chunk":
        stack.ssd.fail(op="write", status="reset", count=1)
        with pytest.raises(command.CommandError, match="EIO"):
            stack.cache.message("checkpoint")
    elif what != "summary":
        stack.cache.set(commit="auto" if what == "append" else "buffered")
        stack.ssd.fail(op="write", status="reset", count=1)
        stack.volume.write(24576, B)
        wait_for(lambda: stack.cache.status()["append_retries"] == 1, 60, "the append to fail")
    wait_for(lambda: stack.ssd.faults()[0]["hits"] == 1, 60, "the reset")
    wait_for(lambda: stack.cache.status()["trouble"] == "-", 60, "the end of the doubt")
    with pytest.raises(OSError):
        stack.volume.flush()
    goes_on(stack)


def test_flush_before_the_reset_is_known(make_disk, kernel_log):
    """The write that failed is sent again, and that takes long: a user's flush meanwhile waits for what comes of it."""
    kernel_log.expect(f"{SSD_NOISE}|cannot write")
    stack = make_written(make_disk)
    write_record(stack, 8192, B)
    stack.ssd.fail(op="write", status="reset", count=1)  # of a chunk; a superblock would have been flushed for
    stack.ssd.fail(op="write", status="ok", delay_ms=HELD, count=1)

    def refused() -> None:
        with pytest.raises(command.CommandError, match="EIO"):
            stack.cache.message("checkpoint")

    with Beside(refused):
        wait_for(lambda: stack.ssd.faults()[1]["hits"] == 1, 60, "the second write")
        with pytest.raises(OSError):
            stack.volume.flush()
    goes_on(stack)


def segment_of_copies(stack: Stack, trace: simdisk.Trace) -> dict[str, int]:
    """Where the next copy of a miss goes to: behind the last one."""
    trace.clear()
    stack.volume.read(24576, BLOCK)
    stack.cache.message("commit")
    first, size, _ = segment_layout(stack.ssd)
    number = (trace.commands(stack.ssd, "write")[-1].sector - first) // size
    return {"from_": first + number * size, "to": first + (number + 1) * size}


def written_in(stack: Stack, trace: simdisk.Trace, place: dict[str, int]) -> int:
    """Sectors, of what the trace has."""
    return sum(c.sectors for c in trace.commands(stack.ssd, "write") if place["from_"] <= c.sector < place["to"])


def leave_a_summary(stack: Stack) -> None:
    """Records up to the last one of their segment; the summary behind it, which the next one brings, is where the SSD is reset."""
    first, size, _ = segment_layout(stack.ssd)
    place = [first + n * size + size - BLOCK for n in range(segment_layout(stack.ssd)[2])]
    for sector in place:
        stack.ssd.fail(op="write", from_=sector, to=sector + BLOCK, status="reset", count=1)
    number = 0
    while not any(rule["hits"] for rule in stack.ssd.faults()):
        write_record(stack, 65536 + number * BLOCK, B)
        number += 1


def test_segment_of_copies_is_bad(make_disk, trace, kernel_log):
    """Nothing of it can be written or read any more, by an error that may be a reset: what was in it is clean."""
    kernel_log.expect(f"{SSD_NOISE}|clean copies could not be written|dropped")
    stack = make_written(make_disk)
    copies, sector = segment_of_copies(stack, trace), 32768
    while written_in(stack, trace, copies) < SLOTS_READ * BLOCK:
        stack.volume.read(sector, BLOCK)
        stack.cache.message("commit")
        sector += 64
        last = trace.commands(stack.ssd, "write")[-1].sector
        if not copies["from_"] <= last < copies["to"]:
            copies = segment_of_copies(stack, trace)
    stack.ssd.fail(op="read,write", **copies, status="ioerr")
    write_record(stack, 8192, B)
    stack.volume.read(sector, BLOCK)
    wait_for(lambda: stack.ssd.faults()[0]["hits"], 60, "a copy to go there")
    wait_for(lambda: stack.cache.status()["trouble"] == "-", 60, "the end of the doubt")
    assert stack.cache.status()["state"] == "running"
    stack.volume.flush()
    assert stack.volume.read(8192, BLOCK) == B
    for at in range(32768, sector + 64, 64):
        assert stack.volume.read(at, BLOCK) == bytes(BLOCK * SECTOR)
    stack.ssd.heal()
    goes_on(stack)


def test_segment_of_dirty_data_is_bad(make_disk, kernel_log):
    """A flush fails, and what was written before cannot be read, though the SSD can: that is gone, and it goes on."""
    kernel_log.expect(SSD_NOISE)
    stack = make_written(make_disk)
    first, size, number = segment_layout(stack.ssd)
    sectors = range(65536, 65536 + 64 * SLOTS_READ, 64)
    for sector in sectors:
        write_record(stack, sector, B)
    stack.ssd.fail(op="flush", status="ioerr", count=1)
    stack.ssd.fail(op="read", from_=first, to=first + number * size, status="ioerr")
    with pytest.raises(OSError):
        stack.volume.flush()
    wait_for(lambda: stack.cache.status()["trouble"] == "-", 60, "the end of the doubt")
    assert stack.cache.status()["state"] == "running"
    stack.ssd.heal()
    fails_once(stack.volume.flush)
    for sector in sectors:  # nobody knows what may have been there
        with pytest.raises(OSError):
            stack.volume.read(sector, BLOCK)
        stack.volume.write(sector, C)
    stack.volume.flush()
    goes_on(stack)


def test_no_copies_in_doubt(make_disk, kernel_log):
    """One that fails would begin another one."""
    kernel_log.expect(SSD_NOISE)
    stack = make_written(make_disk)
    stack.ssd.fail(op="flush", status="ioerr", count=1000)
    write_record(stack, 8192, B)
    with pytest.raises(OSError):
        stack.volume.flush()
    before = stack.volume.status()
    for sector in range(32768, 33792, 64):
        stack.volume.read(sector, BLOCK)
    after = stack.volume.status()
    assert after["fills_denied"] == before["fills_denied"] + 16 and after["cached_sectors"] == before["cached_sectors"]
    stack.ssd.heal()
    fails_once(stack.volume.flush)
    goes_on(stack)


@pytest.mark.parametrize("status", ["medium", "ioerr"])
def test_place_of_a_superblock_is_bad(make_disk, kernel_log, status):
    """An error of that place alone says nothing of what else was written: what is flushed then counts, and nobody waits.  So one
    that does not say what it is, if it comes again."""
    kernel_log.expect(f"{SSD_NOISE}|cannot write the superblock")
    stack = make_written(make_disk)
    stack.ssd.fail(op="write", from_=8, to=16, status=status)
    write_record(stack, 8192, B)
    with pytest.raises(command.CommandError, match=r"ENODATA|EIO"):
        stack.cache.message("stack", "-")
    stack.volume.write(16384, C)
    stack.volume.flush()
    stack.ssd.heal()
    cut(stack)
    assert [stack.volume.read(s, BLOCK) for s in (0, 8192, 16384)] == [A, B, C]
    stack.stop()


def lost_over_a_block(stack: Stack, trace) -> bytes:
    """A record of one block at sector 0, with its commit block, gets lost: in its place lies one like it of the segment's life
    before.  Others fill the segment up.  Returns what was written."""
    first, size, number = segment_layout(stack.ssd)
    magic = None
    for _ in range(400 * number):
        data = os.urandom(BLOCK * SECTOR)
        stack.volume.write(0, data)
        stack.volume.flush()
        written = [c for c in trace.commands(stack.ssd, "write") if c.sector >= first and c.sectors == 2 * BLOCK]
        trace.clear()
        if not written:
            continue
        magic = magic or stack.ssd.read(written[0].sector + BLOCK, 1)[:4]
        place = written[0].sector + 2 * BLOCK  # of the next one
        if not 0 < (place - first) % size < size // 2 or stack.ssd.read(place + BLOCK, 1)[:4] != magic:
            continue
        data = os.urandom(BLOCK * SECTOR)
        stack.ssd.fail(op="write", from_=place, to=place + 2 * BLOCK, status="lost", count=1)
        stack.volume.write(0, data)
        hit = stack.ssd.faults()[0]["hits"] and stack.ssd.read(place + BLOCK, 1)[:4] == magic
        stack.ssd.heal()
        if hit:
            for i in range(1, 2 * size // BLOCK):
                stack.volume.write(BLOCK * i, C)
            return data
    raise AssertionError("no such place")


def test_block_of_an_older_life_is_not_believed(make_disk, trace, kernel_log):
    """What the SSD has lost in a segment is found by whoever compares it, though what lies there has its own block."""
    kernel_log.expect(SSD_NOISE)
    stack = make(make_disk, ssd_mb=8)
    data = lost_over_a_block(stack, trace)
    stack.cache.message("scrub")
    wait_for(lambda: stack.cache.status()["scrub"] == "done", 60, "the scrub")
    found = []
    attempt(lambda: found.append(stack.volume.read(0, BLOCK)))
    assert found in ([], [data])
    assert stack.cache.status()["scrub_unrepairable"]
    stack.stop()


def test_superblock_that_is_never_written(make_disk, kernel_log):
    """No checkpoint can be named any more: before the log is full the SSD is left, with all that it has."""
    kernel_log.expect(f"{SSD_NOISE}|cannot write the superblock|has failed|leaves")
    stack = make_written(make_disk)
    stack.ssd.fail(op="write", from_=8, to=16, status="medium")
    write_record(stack, 8192, B)
    while stack.cache.status()["state"] == "running":
        with contextlib.suppress(command.CommandError):
            stack.cache.message("checkpoint")
        time.sleep(0.5)
    wait_for(lambda: stack.volume.status()["state"] == "passing", 60, "the volume to leave")
    stack.volume.write(16384, C)
    stack.volume.flush()
    assert [stack.volume.read(s, BLOCK) for s in (0, 8192, 16384)] == [A, B, C]
    simdisk.power_cut(stack.hdd, mode="lose")
    stack.stop()
    simdisk.power_up()
    assert [stack.hdd.read(DATA_SECTOR + s, BLOCK) for s in (0, 8192, 16384)] == [A, B, C]


LATE = HELD + 1000  # ms: an append is not tried again behind that


def attempt(call: Callable, *arguments: object) -> None:
    """It may fail."""
    with contextlib.suppress(OSError, command.CommandError):
        call(*arguments)


def test_what_a_failed_cache_has_dropped_is_not_read(make_disk, kernel_log):
    """Rule 2: the SSD was reset, which one append met, too late to be tried again: nobody was in doubt before."""
    kernel_log.expect(f"{SSD_NOISE}|has failed|leaves|cannot be|out of time|alone")
    stack = make_written(make_disk)
    write_record(stack, 8192, B)  # and not flushed
    stack.hdd.fail(op="write", status="ok", delay_ms=5 * HELD, count=1)  # it is not written back soon
    stack.ssd.fail(op="write", status="reset", delay_ms=LATE, count=1)
    with Beside(attempt, stack.volume.write, 16384, C):
        wait_for(lambda: stack.cache.status()["state"] == "failed", 60, "the cache to fail")
        found = []
        attempt(lambda: found.append(stack.volume.read(8192, BLOCK)))
        assert found in ([], [B])
    stack.stop()


def test_flush_as_the_cache_fails(make_disk, trace, kernel_log):
    """Rule 2: it was sent to an SSD that is left meanwhile: it is answered when the backing has what it is for."""
    kernel_log.expect(f"{SSD_NOISE}|has failed|leaves|cannot be|out of time|alone")
    stack = make_written(make_disk)
    write_record(stack, 8192, B)
    hold(trace, stack.ssd, "flush", 3 * HELD)
    write = Beside(attempt, stack.volume.write, 16384, C)
    with Beside(stack.volume.flush) as flush:
        wait_held(trace, stack.ssd, "flush")
        stack.hdd.fail(op="write", status="ok", delay_ms=5 * HELD, count=1)
        stack.ssd.fail(op="write", status="ioerr")
        write.thread.start()
        wait_for(lambda: stack.cache.status()["state"] == "failed", 60, "the cache to fail")
        assert not ended(trace, stack.ssd, "flush"), "too early: it says nothing"
        flush.thread.join()
        assert stack.volume.status()["state"] == "passing", "answered before the volume had left"
    write.thread.join()
    simdisk.power_cut(stack.hdd, mode="lose")
    stack.stop()
    simdisk.power_up()
    assert [stack.hdd.read(DATA_SECTOR + s, BLOCK) for s in (0, 8192)] == [A, B]


def test_ssd_takes_nothing_more_as_copies_come(make_disk, kernel_log):
    """It can be read.  The first to be told is the copy of a miss; a write behind that finds the SSD dead, and the volume leaves it
    with what is dirty, as always."""
    kernel_log.expect(f"{SSD_NOISE}|clean copies could not be written|has failed|alone|leaves|cannot write")
    stack = make_written(make_disk)
    stack.ssd.fail(op="write,flush,discard,zeroes", status="ioerr")
    stack.volume.read(32768, BLOCK)
    wait_for(lambda: stack.cache.status()["errors_write"], 60, "the copy to fail")
    stack.volume.write(16384, C)
    stack.volume.flush()
    assert stack.volume.status()["state"] == "passing"
    assert [stack.volume.read(s, BLOCK) for s in (0, 16384)] == [A, C]
    assert [stack.hdd.read(DATA_SECTOR + s, BLOCK) for s in (0, 16384)] == [A, C]


def test_ssd_drops_again_and_again(make_disk, kernel_log):
    """Each flush that succeeded counts, whatever was dropped between, behind stops and power cuts, too."""
    kernel_log.expect(SSD_NOISE)
    stack = make_written(make_disk)
    kept, told = {0: A}, 0
    for i in range(1, 13):
        if i % 4 == 0:
            stack.stop()
            stack.start()
        data = os.urandom(BLOCK * SECTOR)
        stack.volume.write(i * 1024, data)
        if i % 3:
            ssd_flush_drops(stack)
        try:
            stack.volume.flush()
        except OSError:
            told += 1
            stack.volume.write(i * 1024, data)
            fails_once(stack.volume.flush)
        kept[i * 1024] = data
        if i % 5 == 0:
            cut(stack)
        for sector, content in kept.items():
            assert stack.volume.read(sector, BLOCK) == content, f"sector {sector} behind write {i}"
    assert told > 3, f"{told} flushes have failed"
    stack.volume.drain()
    stack.stop()


def made_through(make_disk, kernel_log) -> Stack:
    """The first block is A, durably; over it B was written through, and is copied, and has a mark; the disk has not flushed it."""
    kernel_log.expect(FLUSH_NOISE)
    stack = make_written(make_disk)
    stack.volume.drain()
    stack.volume.set(mode="writethrough")
    stack.volume.write(0, B)
    wait_for(lambda: stack.volume.status()["fill_sectors"] >= BLOCK, 60, "the copy")
    assert stack.volume.status()["marks"] == 1
    return stack


def test_mark_of_a_doubtful_copy(make_disk, kernel_log):
    """Rule 6: written through, copied, dropped by the backing; behind a stop in order, without a mark, cache and backing agree."""
    stack = made_through(make_disk, kernel_log)
    stack.hdd.fail(op="flush", status="reset", count=1)
    with pytest.raises(OSError):
        stack.volume.flush()
    stack.volume.flush()
    stack.restart()
    found = stack.volume.read(0, BLOCK)
    stack.volume.message("drop_clean")
    assert stack.volume.read(0, BLOCK) == found
    stack.stop()


def test_mark_of_a_doubtful_copy_that_has_left(make_disk, kernel_log):
    """Rule 6: the same, but the copy leaves the index before the mark is cleared.  A power cut: its record is replayed."""
    stack = made_through(make_disk, kernel_log)
    stack.hdd.fail(op="flush", status="reset", count=1)
    with pytest.raises(OSError):
        stack.volume.flush()
    stack.volume.message("drop_clean")
    stack.volume.remove()
    stack.volume = None
    cut(stack, ssd="keep", hdd="keep")
    assert stack.volume.status()["marks"] == 0
    assert settled(stack) == A
    stack.stop()


def test_disk_that_lost_power_is_bound_again(make_disk, kernel_log):
    """Rule 6: its cache ran on, and has a clean copy of what the disk has lost: not read, nor by a later start."""
    stack = made_through(make_disk, kernel_log)
    simdisk.power_cut(stack.hdd, mode="lose")
    stack.volume.remove()
    simdisk.power_up()
    stack.volume = Volume.start(stack.hdd, stack.cache, **stack.options)
    assert settled(stack) == A
    # what was to be secured is lost: told once
    with pytest.raises(OSError):
        stack.volume.flush()
    stack.volume.flush()
    wait_for(lambda: not stack.volume.status()["marks"], 60, "the mark to go")
    stack.cache.message("commit")
    cut(stack, ssd="keep", hdd="keep")
    assert settled(stack) == A
    stack.stop()


def test_mark_is_cleared_beside_misses(make_disk):
    """Nobody has used its region for a while; the disk is busy all the time."""
    stack = make(make_disk, mode="writethrough", cache_max_marks=64)
    stack.volume.write(0, A)
    assert stack.volume.status()["marks"] == 1
    missed = iter(range(BLOCK, 60 << 11, BLOCK))

    def cleared() -> bool:
        stack.volume.read(next(missed), BLOCK)
        return not stack.volume.status()["marks"]

    wait_for(cleared, 240, "the mark to go")
    stack.stop()


def test_place_that_cannot_be_written_in_a_batch(make_disk, kernel_log):
    """What is beside it is written back all the same."""
    kernel_log.expect(NOISE)
    stack, content = make_scattered(make_disk)
    bad = DATA_SECTOR + sorted(content)[4]
    stack.hdd.fail(op="write", from_=bad, to=bad + BLOCK, status="ioerr")
    stack.volume.message("flush")
    wait_for(lambda: stack.volume.dirty() == BLOCK, 120, "all but that place")
    stack.hdd.heal()
    nothing_went_back(stack, content)
    stack.stop()


@pytest.mark.parametrize("sector", [4, 20])
def test_bypass_beside_dirty_data(make_disk, sector):
    """Rule 5: a part of a block is dirty, before and behind what is written; it was flushed."""
    stack = make(make_disk)
    stack.volume.write(0, A + B + C)
    stack.volume.flush()
    stack.volume.set(mode="writearound")
    new = os.urandom(16 * SECTOR)
    if sector == 4:  # behind it nothing is cached
        stack.volume.discard(8, 16)
        stack.volume.flush()
    stack.volume.write(sector, new)
    stack.cache.message("commit")
    cut(stack, ssd="keep", hdd="lose")
    old = (A if sector == 4 else C)[4 * SECTOR :]
    assert stack.volume.read(sector, 4) in (old, new[: 4 * SECTOR])
    stack.stop()


def test_bypass_under_a_mark(make_disk):
    """Rule 6: of a bypass over clean data the backing keeps the write, the log nothing but what was durable before."""
    stack = make(make_disk)
    stack.volume.write(0, A)
    stack.volume.drain()
    stack.volume.flush()
    stack.volume.set(mode="writearound")
    stack.volume.write(0, B)
    cut(stack, ssd="lose", hdd="keep")
    assert settled(stack) == B
    stack.stop()


def make_marked(make_disk) -> Stack:
    """The first block is A, dirty and durable, and the region has its mark; from now on what is written goes past the cache."""
    stack = make_written(make_disk)
    stack.volume.set(mode="writearound")
    stack.volume.write(1024, B)
    assert stack.volume.status()["marks"] == 1
    return stack


def test_flush_of_what_went_past_the_ssd(make_disk, trace):
    """Rule 2: over clean data as well it waits for the backing alone; power is cut, and the SSD loses all that was not flushed."""
    stack = make_marked(make_disk)
    stack.volume.drain()
    stack.volume.flush()
    content = {sector: os.urandom(BLOCK * SECTOR) for sector in range(0, 16 * BLOCK, BLOCK)}
    trace.clear()
    for sector, data in content.items():
        stack.volume.write(sector, data)
        stack.volume.flush()
    assert not trace.commands(stack.ssd, "flush") and len(trace.commands(stack.hdd, "flush")) == len(content)
    cut(stack)
    assert [sector for sector, data in content.items() if settled(stack, sector) != data] == []
    stack.stop()


@pytest.mark.parametrize("how", ["writeback", "discard", "write"])
def test_flush_spares_no_ssd_that_has_to_know(make_disk, trace, how):
    """Rule 2: what has changed which data is dirty is not durable; a write went past the cache behind that."""
    stack = make_marked(make_disk)
    v = stack.volume
    trace.clear()
    if how == "writeback":
        v.drain()
    elif how == "discard":
        v.discard(0, BLOCK)
    else:
        v.set(mode="writeback")
        write_record(stack, 0, B)
        v.set(mode="writearound")
    v.write(0 if how != "write" else 1024, C)
    # writing back makes durable what it is about to write back
    flushes, writes = (trace.commands(stack.ssd, op) for op in ("flush", "write"))
    assert not flushes or flushes[-1].seq < writes[-1].seq, "it is durable already"
    v.flush()
    cut(stack)
    assert (settled(stack), settled(stack, 1024)) == ((B, C) if how == "write" else (C, B))
    stack.stop()


def test_checkpoint_beside_an_invalidate(make_disk):
    """One that begins when the INVALIDATE of a bypassed write is in the log, and its range still in the index, does not show that.
    The mark, which would drop it at a start, is cleared as the volume is stopped."""
    stack = make_written(make_disk)
    v = stack.volume
    v.set(mode="writethrough")
    v.drain()
    assert v.status()["cached_sectors"] == BLOCK
    v.set(mode="writearound")
    v.write(1024, B)  # now the region has its mark
    odd = os.urandom(3 * BLOCK * SECTOR)  # of a size that nothing else has
    with Beside(v.write, 0, odd):
        time.sleep(0.3)
        stack.cache.message("commit")
        stack.cache.message("checkpoint")
    v.flush()
    v.remove()
    stack.volume = None
    cut(stack)
    assert stack.volume.status()["marks"] == 0
    assert stack.volume.read(0, 3 * BLOCK) == odd


def test_mark_is_cleared(make_disk):
    """Rule 6: of many the least recently used go; what was written under them is durable below before the log knows of that."""
    most = 64
    stack = make(make_disk, hdd_mb=most * REGION * SECTOR >> 20, mode="writethrough", cache_max_marks=most)
    stack.volume.write(0, A)
    stack.volume.flush()
    stack.volume.write(0, B)
    for region in range(1, most * 3 // 4 + 2):
        stack.volume.write(region * REGION, C)
    wait_for(lambda: stack.volume.status()["marks_cleared"], 60, "a mark to be cleared")
    stack.cache.message("commit")
    cut(stack, ssd="keep", hdd="lose")
    assert settled(stack) == B
    stack.stop()


def test_marks_whose_clearing_is_logged(make_disk, trace, kernel_log):
    """Rule 6: a flush of the backing fails, for another mark, while the clearing of these is in the log and not yet applied.  None
    of them is back: who bypasses next sets a new one."""
    kernel_log.expect(FLUSH_NOISE)
    regions, last = 70, 69 * REGION + 2048
    stack = make(make_disk, hdd_mb=(regions + 2) * REGION * SECTOR >> 20, cache_max_marks=128)
    v, sectors = stack.volume, [i * REGION for i in range(regions + 1)]
    for sector in sectors:
        v.write(sector, A)
    v.drain()
    v.flush()
    v.set(mode="writearound")
    for sector in sectors[:regions]:
        v.write(sector + 1024, C)
    stack.cache.message("commit")
    assert v.status()["marks"] == regions
    stack.hdd.fail(op="write", from_=DATA_SECTOR + last, to=DATA_SECTOR + last + BLOCK, status="ok", delay_ms=5 * HELD, count=1)

    def one_more() -> None:
        """Finds too many, and has those cleared that nothing is in flight under; fails with the flush."""
        with contextlib.suppress(OSError):
            v.write(sectors[regions] + 1024, C)

    with Beside(v.write, last, C):
        wait_for(lambda: stack.hdd.faults()[0]["hits"], 60, "the write under the last mark")
        stack.cache.message("commit")  # of its INVALIDATE: else the timer's, in front of the write that is held up
        trace.clear()
        stack.ssd.fail(op="write", status="ok", delay_ms=10 * HELD, count=1)
        stack.cache.set(max_marks=64)
        with Beside(one_more):
            wait_held(trace, stack.ssd, "write")
            stack.hdd.fail(op="flush", status="ioerr")
            wait_for(lambda: stack.hdd.faults()[1]["hits"], 60, "the flush for the last mark")
            assert not ended(trace, stack.ssd, "write")
            stack.cache.set(max_marks=1024)
    stack.cache.message("commit")
    assert ended(trace, stack.ssd, "write")
    stack.hdd.heal()
    # so that the clearing is durable: a flush goes to the SSD for what is dirty alone
    v.set(mode="writeback")
    v.write(sectors[regions] + 2048, C)
    fails_once(v.flush)
    v.set(mode="writearound")
    v.write(0, B)
    cut(stack, ssd="lose", hdd="keep")
    assert settled(stack) == B
    stack.stop()


def test_discard_is_logged(make_disk):
    """Rule 6: a mark is cleared behind the INVALIDATE of what was discarded under it; a replay does not bring it back."""
    stack = make(make_disk)
    stack.volume.write(0, A)
    stack.volume.drain()
    stack.volume.discard(0, BLOCK)
    stack.volume.remove()
    stack.volume = None
    cut(stack, ssd="keep", hdd="keep")
    settled(stack)
    stack.stop()


def test_fill_beside_a_bypass(make_disk, trace):
    """Rule 7: what a miss has read of the backing is not what the backing has any more."""
    stack = make(make_disk, mode="writearound")
    stack.volume.write(0, A)
    stack.volume.flush()
    hold(trace, stack.hdd, "read", 5 * HELD)  # a mark is set meanwhile, on a busy machine
    with Beside(stack.volume.read, 0, BLOCK):
        wait_held(trace, stack.hdd, "read")
        stack.volume.write(0, B)
        assert not ended(trace, stack.hdd, "read")
    stack.cache.message("commit")
    assert stack.volume.read(0, BLOCK) == B
    stack.stop()


# ---------------------------------------------------------------- rules 8, 9, 10


def test_checkpoint_beside_a_write(make_disk, trace):
    """Rule 8: what is in flight when it begins is in it, or replayed."""
    stack = make(make_disk)
    stack.volume.write(0, A)
    stack.cache.message("commit")
    hold(trace, stack.ssd, "write")
    with Beside(stack.volume.write, 8, B):
        wait_held(trace, stack.ssd, "write")
        stack.cache.message("checkpoint")
    stack.volume.flush()
    cut(stack)
    assert stack.volume.read(0, BLOCK) == A and stack.volume.read(8, BLOCK) == B
    stack.stop()


def test_checkpoint_is_durable(make_disk):
    """Rule 8: both that are named."""
    stack = make_written(make_disk)
    for _ in range(2):
        stack.cache.message("checkpoint")
    cut(stack)
    assert stack.volume.read(0, BLOCK) == A
    stack.stop()


def test_segments_that_a_replay_needs(make_disk, seed):
    """Rule 9: the same blocks are written again and again: behind the checkpoint segments are dead soon, but not their records."""
    stack = make(make_disk)
    r, size = random.Random(seed), 64 * 1024
    content = {}
    for _ in range(2):
        stack.cache.message("checkpoint")
    before = stack.cache.status()
    for i in range(96):
        sector = i % 16 * size // SECTOR
        content[sector] = r.randbytes(size)
        stack.volume.write(sector, content[sector])
        if i % 16 == 15:
            stack.cache.message("reclaim", 8)
    stack.volume.flush()
    after = stack.cache.status()
    assert after["checkpoints"] == before["checkpoints"]
    cut(stack)
    assert [s for s, data in content.items() if stack.volume.read(s, size // SECTOR) != data] == []
    stack.stop()


def test_suspend_ends_a_reclaim_that_was_asked_for(make_disk, trace):
    """All volumes would wait until it has emptied as many segments as it was asked for."""
    stack = make(make_disk, mode="writethrough")
    for i in range(120):
        stack.volume.write(i * 128, bytes([i + 1]) * 65536)
    stack.volume.flush()
    before = stack.cache.status()["reclaimed"]
    trace.clear()
    stack.ssd.fail(op="read", status="ok", delay_ms=300)  # what is in a segment is read from it
    with Beside(stack.cache.message, "reclaim", 50):
        wait_held(trace, stack.ssd, "read")
        stack.cache.suspend()
    stack.ssd.heal()
    stack.cache.resume()
    assert stack.cache.status()["reclaimed"] < before + 25
    stack.stop()


def test_reuse_behind_clean(make_disk, seed):
    """Rule 9: what a batch has written back is volatile on the backing, and not CLEAN in the log: reclaim leaves its segments."""
    stack = make(make_disk, writeback_depth=1)
    r, size = random.Random(seed), 64 * 1024 // SECTOR
    content = {i * 2 * size: r.randbytes(size * SECTOR) for i in range(48)}
    for sector, data in content.items():
        stack.volume.write(sector, data)
    stack.volume.flush()
    last = DATA_SECTOR + max(content)
    stack.hdd.fail(op="write", from_=last, to=last + BLOCK, status="ok", delay_ms=5 * HELD, count=1)
    stack.volume.message("flush")
    wait_for(lambda: stack.hdd.faults()[0]["hits"], 60, "the last write of the batch")
    stack.cache.message("reclaim", 8)  # finds nothing that it may empty
    for _ in range(2):
        stack.cache.message("checkpoint")
    assert stack.hdd.state()["inflight"], "the batch has ended before"
    cut(stack, ssd="keep", hdd="lose")
    assert [s for s, data in content.items() if stack.volume.read(s, size) != data] == []
    stack.stop()


def test_second_epoch(make_disk):
    """Rule 10: it is durable before anything is appended to it."""
    stack = make(make_disk)
    for data in (A, B, C):
        stack.volume.write(0, data)
        stack.volume.flush()
        cut(stack)
        assert stack.volume.read(0, BLOCK) == data
        stack.restart()
    assert stack.volume.read(0, BLOCK) == C
    stack.stop()


def test_torn_record(make_disk, trace):
    """Rules 10, 13: its commit block has arrived, its data has not: the log ends before it."""
    stack = make_written(make_disk)
    trace.clear()
    stack.ssd.fail(op="write", status="lost", count=1)
    write_record(stack, 0, B)
    assert [c.sectors for c in trace.commands(stack.ssd, "write")] == [BLOCK, BLOCK], "data, then commit block"
    cut(stack, ssd="keep")
    assert stack.volume.read(0, BLOCK) == A
    stack.stop()


def test_lost_record_is_no_damage(make_disk):
    """What a commit block says to have been durable was so: a record that a power cut took is not missed (section 9)."""
    stack = make_written(make_disk)
    stack.ssd.fail(op="write", status="lost")
    write_record(stack, 8, B)
    assert stack.ssd.faults()[0]["hits"] > 1, "data, and commit block"
    stack.ssd.heal()
    write_record(stack, 16, C)
    cut(stack, ssd="keep")
    assert stack.volume.read(0, BLOCK) == A
    assert stack.volume.read(8, 2 * BLOCK) == bytes(2 * BLOCK * SECTOR), "the log goes on behind what is missing"
    stack.stop()
