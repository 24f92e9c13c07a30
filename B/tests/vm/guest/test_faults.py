# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of the table of failures (docs/testing.md), each made to happen: what callers get, the state, the event, the line in the
kernel log, what the command says, and that all is as if nothing had been when it is over."""

import concurrent.futures
import contextlib
import errno
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lib import aio, command, dm, memory, simdisk
from lib.block import BlockDevice
from lib.damage import SUPER, damage
from lib.decay import Written, commit, places
from lib.fault_runs import Careless
from lib.larder import DATA_SECTOR, RESERVED_SECTORS, Cache, Stack, Volume, backing_alone, larder, wait_for
from lib.log_blocks import FILL, commit_blocks
from lib.parts import Part
from lib.sets import kill, make_stack, small_stack
from lib.told import Told

BLOCK = 4096
SECTORS = 8
N = 64  # blocks


def block(i: int, salt: int = 0) -> bytes:
    return (i + 1000 * salt).to_bytes(8, "little") * (BLOCK // 8)


def write_all(volume: BlockDevice, salt: int = 0, first: int = 0) -> None:
    for i in range(first, first + N):
        volume.write(i * SECTORS, block(i, salt))


def check_all(volume: BlockDevice, salt: int = 0, first: int = 0) -> None:
    for i in range(first, first + N):
        assert volume.read(i * SECTORS, SECTORS) == block(i, salt), i


def fails(what: Callable, *arguments: object, **options: object) -> bool:
    try:
        what(*arguments, **options)
    except OSError:
        return True
    return False


@pytest.fixture
def stack(make_disk) -> Stack:
    """Dirty: the first N blocks."""
    s = Stack(
        make_disk("ssd0", model="null", mb=32, wce=1, fua=1),
        make_disk("hdd0", model="null", mb=64, wce=1),
        format_volume=("--cache", "c"),
        writeback="off",
        sequential_cutoff=0,
    )
    write_all(s.volume)
    s.volume.flush()
    return s


def says(kind: str, name: str, *patterns: str) -> None:
    """What is wrong, and which command mends it.  No pattern: nothing is wrong."""
    text = larder(kind, "status", name).stdout
    wrong = text[text.index("  wrong ") :] if "  wrong " in text else ""
    assert bool(wrong) == bool(patterns), text
    for p in patterns:
        assert re.search(p, wrong), f"{p}: {wrong}"


# ------------------------------------------------------------------ the SSD


def test_clean_data_that_cannot_be_read(stack, kernel_log):
    """From the backing; dropped, counted; an event, and no more of them for what goes on."""
    stack.volume.drain()
    says("volume", "v")
    says("cache", "c")
    with Told(kernel_log, [stack.cache]):
        stack.ssd.fail(op="read", status="medium")
        check_all(stack.volume)
    assert stack.cache.status()["errors_read"] and stack.cache.status()["state"] == "running"
    says("cache", "c", "errors_read: .*larder cache scrub c")
    told = stack.cache.events()
    stack.ssd.heal()
    stack.hdd.reset_stats()
    check_all(stack.volume)  # which caches it again
    errors = stack.cache.status()["errors_read"]
    stack.ssd.fail(op="read", status="medium")
    check_all(stack.volume)
    stack.ssd.heal()
    assert stack.cache.status()["errors_read"] > errors and stack.cache.events() == told
    stack.stop()


@pytest.mark.parametrize("block_size", [512, 4096])
def test_dirty_data_that_cannot_be_read(make_disk, kernel_log, block_size):
    """An error, an event; it stays, and is there when the SSD is well again."""
    ssd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1, lbs=block_size)
    stack = Stack(ssd, make_disk("hdd0", model="null", mb=64, wce=1), format_volume=("--cache", "c"), writeback="off")
    write_all(stack.volume)
    stack.volume.write(N * SECTORS + 1, b"x" * 512)  # no whole block of a 4Kn SSD
    dirty = stack.volume.dirty()
    ssd.fail(op="read", status="medium")
    with Told(kernel_log, [stack.volume, stack.cache], "dirty data in sectors 0 to 7 cannot be read"):
        assert fails(stack.volume.read, 0, SECTORS)
    with pytest.raises(OSError):
        stack.volume.read(N * SECTORS + 1, 1)
    assert stack.volume.dirty() == dirty and stack.cache.status()["state"] == "running"
    says("cache", "c", "errors_read: .*larder cache scrub c")
    ssd.heal()
    check_all(stack.volume)
    assert stack.volume.read(N * SECTORS + 1, 1) == b"x" * 512
    stack.volume.drain()
    stack.stop()


def test_reads_that_fail_at_once(make_disk, kernel_log):
    """Several are in flight to the SSD that cannot read: each gets the other copy, not only the one that finds it out."""
    stack = make_stack(make_disk, writeback="off")
    write_all(stack.volume)
    stack.volume.flush()
    for s in stack.ssd:
        s.fail(op="read", status="ok", delay_ms=1000)  # so that they are there together
    stack.ssd[0].heal()
    stack.ssd[0].fail(op="read", status="medium", delay_ms=1000)
    errors: list[int] = []

    def read(i: int) -> None:
        if fails(stack.volume.read, i * SECTORS, SECTORS):
            errors.append(i)

    readers = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    with Told(kernel_log, [stack.cache]):
        for t in readers:
            t.start()
        for t in readers:
            t.join()
    assert not errors
    assert stack.ssd[0].faults()[0]["hits"] > 1, "one alone was in flight"
    stack.stop()


def test_each_copy_has_a_bad_place(make_disk, seed):
    """Of one segment: what the one cannot read is read from the other, both ways."""
    stack = make_stack(make_disk, writeback="off")
    w = Written(stack, seed)
    data = [w.write(i * SECTORS) for i in range(8)]
    commit(stack)
    for i, s in enumerate(stack.ssd):
        for at in places(s, data[i]):
            s.fail(op="read", from_=at, to=at + SECTORS, status="medium")
    for _ in range(2):
        assert w.wrong(stack.volume) == {}
    assert all(any(f["hits"] for f in s.faults()) for s in stack.ssd), "a bad place was not read"
    stack.stop()


def test_writeback_past_bad_places(make_disk, kernel_log, seed):
    """Each copy has a bad place, and one place is bad in both: that one is named, and stays; all else is written back."""
    stack = make_stack(make_disk, writeback="off")
    w = Written(stack, seed)
    data = [w.write(i * SECTORS) for i in range(64)]
    commit(stack)
    bad = {0: (3, 10), 1: (20, 10)}
    for i, s in enumerate(stack.ssd):
        for at in [at for k in bad[i] for at in places(s, data[k])]:
            s.fail(op="read", from_=at, to=at + SECTORS, status="medium")
    with Told(kernel_log, [stack.volume], f"unreadable dirty data at sector {10 * SECTORS} .segment"):
        stack.volume.message("flush")
        wait_for(lambda: stack.volume.dirty() == SECTORS, 60, "all but the place that is bad in both copies to be written back")
    assert w.not_on_backing() == {10 * SECTORS + k for k in range(SECTORS)}
    status = stack.volume.status()
    assert status["trouble"] == "writeback" and status["errors_checksum"] == 0 and stack.cache.status()["errors_read"] > 0
    for s in stack.ssd:
        s.heal()
    stack.volume.message("flush")
    wait_for(lambda: not stack.volume.dirty(), 60, "the rest to be written back")
    assert w.not_on_backing() == set() and w.wrong(stack.volume) == {}
    stack.stop()


def test_writeback_from_an_ssd_that_reads_nothing(make_disk, kernel_log, seed):
    """The only one: nothing is written back, no place is given up, and all is when it reads again."""
    stack = make_stack(make_disk, (48,), writeback="off")
    w = Written(stack, seed)
    for i in range(200):
        w.write(i * 2 * SECTORS)
    commit(stack)
    dirty = stack.volume.dirty()
    stack.ssd[0].fail(op="read", status="medium")
    with Told(kernel_log, [stack.volume], "dirty data cannot be written back: error -5"):
        stack.volume.message("flush")
    assert stack.volume.dirty() == dirty and stack.cache.status()["state"] == "running"
    stack.ssd[0].heal()
    stack.volume.message("flush")
    wait_for(lambda: not stack.volume.dirty(), 60, "all of it to be written back")
    assert w.not_on_backing() == set()
    stack.stop()


def test_volume_is_stopped_while_reclaim_reads_a_dying_ssd(make_disk, kernel_log):
    """Reclaim has picked what of it is to be written back, and reads on; meanwhile the cache fails, and the volume is stopped."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = small_stack(make_disk)
    for i in range(4 * N):
        stack.volume.write(i * 4 * SECTORS, block(i))
    stack.volume.flush()
    stack.ssd.fail(op="read", status="ok", delay_ms=8000)

    def reclaim() -> None:
        with contextlib.suppress(command.CommandError):  # it finds nothing that it may empty, or the cache has failed
            stack.cache.message("reclaim", 1)

    t = begin(reclaim)
    wait_for(lambda: stack.ssd.faults()[0]["hits"] > 1, 60, "the second segment")
    kill(stack.hdd, "write,flush")
    kill(stack.ssd, "write")
    assert fails(stack.volume.write, 0, block(0)) or fails(stack.volume.flush)
    wait_for(lambda: stack.cache.status()["state"] == "failed", 60, "the cache to fail")
    ends(stack.volume.remove)
    stack.volume = None
    assert t.is_alive(), "it was to read on"
    stack.ssd.heal()  # not the one in flight
    t.end()
    ends(stack.stop)


@pytest.mark.parametrize("fua", [False, True])
def test_writes_that_fail_are_not_counted(make_disk, fua):
    """may_be_dirty cannot be set: nothing was written to the cache, and no counter says so, nor falls when one does."""
    stack = make_stack(make_disk, (48,), writeback="off")
    stack.hdd.fail(op="write", status="ioerr")
    assert fails(stack.volume.write, 0, block(0), fua=fua)
    keys = ("write_cached", "write_cached_sectors", "fuas")
    assert [stack.volume.status()[k] for k in keys] == [0, 0, 0]
    stack.hdd.heal()
    stack.volume.write(0, block(0), fua=fua)
    assert [stack.volume.status()[k] for k in keys] == [1, SECTORS, int(fua)]
    stack.stop()


@pytest.mark.parametrize("started_again", [False, True])
def test_first_write_behind_a_repair(make_disk, started_again):
    """An error of the backing, which nobody has met yet, is not that of a write which comes when it is mended."""
    stack = make_stack(make_disk, (48,), writeback="off")
    stack.hdd.fail(op="write,flush", status="ioerr")
    for i in range(3):
        assert fails(stack.volume.write, i * SECTORS, block(i))
    stack.hdd.heal()
    if started_again:
        line = stack.volume.table()
        stack.volume.remove()
        stack.volume = Volume.create("v", line)
    stack.volume.write(0, block(0))
    assert stack.volume.status()["may_be_dirty"]
    stack.stop()


def test_reload_beside_a_dead_backing(stack, kernel_log):
    """Of the cache, as larderd does it by itself: what is cached can be read as before, and all goes on when the disk is mended."""
    kernel_log.expect("I/O error")
    stack.hdd.fail(op="read,write,flush,discard,zeroes", status="ioerr")
    for _ in range(2):
        ends(stack.cache.reload, stack.cache.table())
        ends(check_all, stack.volume)
        assert stack.volume.status()["state"] == "running"
    ends(stack.volume.write, 0, block(0, salt=1))  # may_be_dirty is set, so the cache takes it
    stack.hdd.heal()
    stack.volume.write(SECTORS, block(1, salt=1))
    stack.volume.drain()
    assert stack.volume.read(0, 2 * SECTORS) == block(0, salt=1) + block(1, salt=1)
    stack.stop()


def test_ssd_that_refuses_writes(stack, kernel_log):
    """state=failed.  While what is dirty cannot be written back writes and flushes fail, and reads go on; a start with it well
    again has everything that was flushed."""
    stack.hdd.fail(op="write", from_=DATA_SECTOR, status="ioerr")
    stack.ssd.fail(op="write", status="ioerr")
    with Told(kernel_log, [stack.volume, stack.cache], "an append to it failed: it has failed"):
        assert fails(stack.volume.write, N * SECTORS, block(N)) or fails(stack.volume.flush)
    wait_for(lambda: stack.volume.status()["state"] == "cache-failed", 60, "it to be known that nothing is written back")
    assert stack.cache.status()["state"] == "failed"
    says("cache", "c", "state: .*larder cache stop c, larder cache start c.*larder rescue writeback")
    says("volume", "v", "state: .*larder cache status")
    assert fails(stack.volume.write, 0, block(5)) and fails(stack.volume.flush) and fails(stack.volume.discard, 0, SECTORS)
    check_all(stack.volume)
    stack.volume.read(N * SECTORS * 4, SECTORS)
    stack.stop()
    stack.ssd.heal()
    stack.hdd.heal()
    stack.start()
    check_all(stack.volume)
    stack.volume.drain()
    stack.stop()


def test_ssd_that_takes_nothing_more(stack, kernel_log):
    """But it can be read: what is dirty is written back, and nobody sees an error."""
    stack.ssd.fail(op="write", status="ioerr")
    with Told(kernel_log, [stack.volume, stack.cache], "what only that had is written back: it goes on without"):
        stack.volume.write(N * SECTORS, block(N))
        stack.volume.flush()
    assert (stack.cache.status()["state"], stack.volume.status()["state"]) == ("failed", "passing")
    says("volume", "v", "it goes on without, as slow as its disk.*larder volume detach v")
    says("cache", "c", "state: .*its volumes go on without it.*larder cache stop c, larder cache start c.*larder volume detach")
    check_all(stack.volume)
    larder("volume", "detach", "v")
    check_all(stack.volume)
    stack.stop()


@pytest.mark.parametrize("stored", [False, True])
def test_clean_copies_that_cannot_be_written(make_disk, kernel_log, stored):
    """A bad place in a segment of misses, of the only SSD: the backing has what was to go there.  Others go elsewhere, and what is
    dirty is written back.  stored: they are there all the same, and must not come back over what is written later."""
    kernel_log.expect("I/O error|critical .* error")
    stack = small_stack(make_disk)
    for i in range(N):
        stack.volume.write(i * SECTORS, block(i))
    first, more, last = range(4096, 4352, 8), range(8192, 8448, 8), range(12288, 12416, 8)
    stack.volume.set(mode="writearound")
    for sector in (*first, *more, *last):
        stack.volume.write(sector, block(sector))
    stack.volume.flush()
    stack.volume.set(mode="writeback")

    def read(sectors: range, salt: int = 0) -> None:
        assert all(stack.volume.read(sector, SECTORS) == block(sector, salt) for sector in sectors)

    def fills() -> list:
        return commit_blocks(stack.ssd, FILL)

    read(first[:4])
    wait_for(fills, 30, "a fill")
    bad = fills()[-1]
    begins = bad.sector - bad.slot * SECTORS
    stack.ssd.fail(op="write", status="medium", from_=begins, to=begins + 256, store=stored)
    with Told(kernel_log, [stack.cache]):
        read(first)
        wait_for(lambda: stack.cache.status()["errors_write"], 30, "the error")
    read(first)
    status = stack.cache.status()
    assert (status["state"], stack.volume.status()["state"]) == ("running", "running")
    assert kernel_log.matching(f"clean copies could not be written to segment {bad.segment}")
    before = status["errors_write"]
    read(more)
    wait_for(lambda: any(b.segment != bad.segment for b in fills()), 30, "a fill elsewhere")
    stack.volume.write(0, block(0, 1))
    stack.volume.flush()
    stack.volume.set(mode="writearound")
    for sector in first:
        stack.volume.write(sector, block(sector, 2))
    stack.volume.flush()
    stack.volume.set(writeback="on")
    stack.volume.drain()
    read(more)
    read(first, 2)
    status = stack.cache.status()
    assert status["state"] == "running" and status["errors_write"] <= before + 2  # one that was gathered, the summary
    simdisk.power_cut(mode="keep")
    stack.stop()
    stack.ssd.heal()
    simdisk.power_up()
    stack.start()
    read(first, 2)
    read(more)
    read(last)
    assert stack.volume.read(0, SECTORS) == block(0, 1) and all(stack.volume.read(i * 8, 8) == block(i) for i in range(1, N))
    stack.stop()


def test_superblock_that_gives_data_away(make_disk, kernel_log):
    """Crafted: it says that the older checkpoint is where dirty data is.  That is not free when the checkpoint is given up."""
    stack = small_stack(make_disk)
    write_all(stack.volume)
    stack.volume.flush()
    segment = commit_blocks(stack.ssd)[0].segment
    for _ in range(2):
        stack.cache.message("checkpoint")
    stack.stop()
    older = (f"checkpoint[1].first_segment={segment}", "checkpoint[1].bytes=65536", "head.generation=+1")
    damage(stack.ssd, SUPER, *older)
    stack.start()
    assert kernel_log.matching(rf"ssd0: superblock: checkpoint\[1\]: its segment {segment} holds other data as well")
    for sector in range(4096, 60 << 11, 128):  # twice what the cache has
        stack.volume.read(sector, 128)
    check_all(stack.volume)
    stack.volume.drain()
    stack.stop()
    raw = backing_alone(stack.hdd)
    check_all(raw)
    raw.remove()


def test_ssd_that_refuses_writes_with_nothing_dirty(stack, kernel_log):
    """The volume goes on without it, and is detached, in use, by a command that needs nothing of the SSD."""
    stack.volume.drain()
    kill(stack.ssd)
    with Told(kernel_log, [stack.volume, stack.cache], "nothing of it was there alone: it goes on without"):
        stack.volume.write(0, block(0))
        stack.volume.flush()
    assert (stack.cache.status()["state"], stack.volume.status()["state"]) == ("failed", "passing")
    says("volume", "v", "it goes on without, as slow as its disk.*larder volume detach v")
    says("cache", "c", "state: .*its volumes go on without it.*larder cache stop c, larder cache start c.*larder volume detach")
    larder("volume", "detach", "v")
    assert stack.volume.status()["state"] == "passthrough"
    check_all(stack.volume)
    write_all(stack.volume, salt=1)
    stack.volume.flush()
    check_all(stack.volume, salt=1)
    stack.stop()


@pytest.mark.parametrize("count", [1, 1000])
def test_ssd_that_refuses_flushes(stack, kernel_log, count):
    """The only one: whoever asks is told, and so is every write until one succeeds (rule 2).  It is not failed."""
    stack.volume.write(0, block(0, 7))
    stack.ssd.fail(op="flush", status="ioerr", count=count)
    # the cache tries again by itself, too: with count=1 the end may come at any time
    began = stack.cache.events()
    with Told(kernel_log, [stack.volume, stack.cache], "ssd0: a flush failed: error -5"):
        assert fails(stack.volume.flush)
    assert stack.cache.status()["state"] == "running"
    if count > 1:
        assert stack.cache.status()["trouble"] == "flush"
        says("cache", "c", "trouble: the last flush of an SSD failed")
        assert fails(stack.volume.write, SECTORS, block(1, 7))
        stack.ssd.heal()
    wait_for(lambda: not fails(stack.volume.flush), 60, "a flush to succeed")
    wait_for(lambda: stack.cache.events() > began + 1, 60, "an event of its end")
    assert kernel_log.matching("larder: .*ssd0: flushes succeed again")
    assert stack.cache.status()["trouble"] == "-"
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.start()
    assert stack.volume.read(0, SECTORS) == block(0, 7)
    stack.volume.drain()
    stack.stop()


def test_doubt_is_no_fault_of_the_disk(stack, kernel_log):
    """While nothing of an SSD becomes durable nothing is written back: that is said of it, and not of the disk; then all is."""
    stack.volume.write(0, block(0, 7))
    stack.ssd.fail(op="flush", status="ioerr", count=1000)
    assert fails(stack.volume.flush)
    before = stack.ssd.faults()[0]["hits"]
    stack.volume.set(writeback="on")
    stack.volume.message("flush")
    with contextlib.suppress(command.CommandError):
        stack.cache.message("reclaim", "4")
    wait_for(lambda: stack.ssd.faults()[0]["hits"] > before + 2, 120, "attempts to flush the SSD")
    assert stack.cache.status()["trouble"] == "flush" and stack.volume.status()["trouble"] == "-"
    stack.ssd.heal()
    wait_for(lambda: not fails(stack.volume.flush), 60, "a flush to succeed")
    stack.volume.drain()
    assert not kernel_log.matching("cannot be written back")
    stack.stop()


@pytest.mark.parametrize("op", ["write", "flush", "read"])
def test_ssd_that_is_slow_for_30_s(stack, op):
    """Who needs it waits; who does not, does not; nobody gets an error."""
    stack.volume.drain()
    stack.ssd.fail(op=op, status="ok", delay_ms=30000, count=1)
    done: list[str] = []

    def use() -> None:
        if op == "read":
            assert stack.volume.read(0, SECTORS) == block(0)
        else:
            stack.volume.write(0, block(0), fua=True)
            stack.volume.flush()
        done.append(op)

    with open(stack.volume.path, "rb", buffering=0):
        waits = threading.Thread(target=use)
        waits.start()
        wait_for(lambda: stack.ssd.faults()[0]["hits"] or done, 20, "the command that is slow")
        assert stack.volume.read(N * SECTORS * 4, SECTORS) == bytes(BLOCK)  # of the backing
        assert not done
        waits.join()
    assert done and stack.cache.status()["state"] == "running"
    check_all(stack.volume)
    stack.stop()


@pytest.mark.parametrize("replayed", [True, False])
@pytest.mark.parametrize("which", [0, 1])
def test_ssd_that_drops_what_was_flushed(make_disk, kernel_log, which, replayed):
    """One of two, the one that is read or not: a scrub mends it from the other; nothing is lost, although the other is lost then.
    Where the start replays the records it has mended them already."""
    stack = small_stack(make_disk, 2)
    stack.ssd[which].set(ignore_flush=1, ignore_fua=1)
    write_all(stack.volume)
    stack.volume.flush()
    if not replayed:
        stack.cache.message("checkpoint")
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.ssd[which].set(ignore_flush=0, ignore_fua=0)
    stack.start()
    assert bool(kernel_log.matching("were whole on one SSD only")) == replayed
    stack.cache.message("scrub")
    wait_for(lambda: stack.cache.status()["scrub"] == "done", 120, "the scrub")
    status = stack.cache.status()
    assert not status["scrub_unrepairable"] and (replayed or status["scrub_repaired"] >= N)
    check_all(stack.volume)
    kill(stack.ssd[1 - which])
    stack.volume.write(N * SECTORS, block(N))
    check_all(stack.volume)
    stack.stop()


def test_ssd_that_leaves_during_a_checkpoint(make_disk, kernel_log):
    """Who asked for it gets one of those that stay."""
    stack = make_stack(make_disk)
    write_all(stack.volume)
    stack.volume.drain()
    commit(stack)  # from here on it is the checkpoint that writes
    before = stack.cache.status()["checkpoints"]
    with Told(kernel_log, [stack.volume, stack.cache], "the cache goes on without it; replace it"):
        kill(stack.ssd[1])
        stack.cache.message("checkpoint")
    status = stack.cache.status()
    assert status["checkpoints"] > before and (status["devices_failed"], status["state"]) == (1, "running")
    says("cache", "c", r"devices_failed: 1 of 2 .*active/failed.*larder cache replace c PLACE NEW-SSD")
    check_all(stack.volume)
    stack.stop()


# ------------------------------------------------------------------ the backing


def test_backing_that_refuses_reads(stack, kernel_log):
    """Cached data reads; misses fail, and do not when it is back."""
    stack.volume.drain()
    stack.hdd.fail(op="read", status="medium")
    check_all(stack.volume)
    with Told(kernel_log, [stack.volume]):
        assert fails(stack.volume.read, N * SECTORS * 4, SECTORS)
    assert stack.volume.status()["errors_read"]
    says("volume", "v", "errors: requests to the disk have failed")
    stack.hdd.heal()
    assert stack.volume.read(N * SECTORS * 4, SECTORS) == bytes(BLOCK)
    stack.stop()


@pytest.mark.parametrize("status", ["ioerr", "nospc"])
def test_backing_that_refuses_writes(stack, kernel_log, status):
    """Dirty data stays, and is read; cached writes go on; bypassed ones fail.  Back: `flush` tries at once."""
    stack.hdd.fail(op="write,zeroes", status=status, from_=2048)
    no_space = ": no space is left below" if status == "nospc" else ""
    with Told(kernel_log, [stack.volume], f"hdd0: volume .* dirty data cannot be written back: error -[0-9]+{no_space}"):
        stack.volume.message("flush")
    assert stack.volume.status()["trouble"] == "writeback" and stack.volume.dirty() == N * SECTORS
    says("volume", "v", "trouble: dirty data cannot be written.*larder volume flush v", "errors: ")
    write_all(stack.volume, salt=1)
    stack.volume.flush()
    check_all(stack.volume, salt=1)
    stack.volume.set(mode="writearound")
    assert fails(stack.volume.write, N * SECTORS * 4, block(1))
    check_all(stack.volume, salt=1)
    stack.hdd.heal()
    with Told(kernel_log, [stack.volume], "dirty data is written back again"):
        stack.volume.drain(240)
    assert stack.volume.status()["trouble"] == "-" and not stack.volume.dirty()
    stack.stop()
    check_all(backing_alone(stack.hdd), salt=1)


def test_trouble_goes_with_its_data(stack, kernel_log):
    """What cannot be written back is discarded: nothing is wrong any more, though the backing would refuse it as before."""
    stack.hdd.fail(op="write,zeroes", status="ioerr", from_=2048)
    with Told(kernel_log, [stack.volume], "hdd0: volume .* dirty data cannot be written back"):
        stack.volume.message("flush")
    assert stack.volume.status()["trouble"] == "writeback"
    stack.volume.discard(0, stack.volume.sectors)
    wait_for(lambda: not stack.volume.dirty(), 60, "nothing to be dirty")
    wait_for(lambda: stack.volume.status()["trouble"] == "-", 60, "the trouble to be over")
    stack.hdd.heal()
    stack.stop()


def test_backing_that_refuses_flushes(stack, kernel_log):
    """Nothing counts as written back before one succeeds; until then flushes and writes fail."""
    stack.hdd.fail(op="flush", status="ioerr")
    with Told(kernel_log, [stack.volume], "hdd0: a flush failed: error -5"):
        stack.volume.message("flush")
    wait_for(lambda: stack.volume.status()["trouble"] == "writeback/flush", 60, "the status to say so")
    assert stack.volume.dirty() == N * SECTORS
    says("volume", "v", "trouble: dirty data cannot be written", "trouble: the last flush of the disk failed")
    assert fails(stack.volume.flush) and fails(stack.volume.write, 0, block(0))
    check_all(stack.volume)
    stack.hdd.heal()
    with Told(kernel_log, [stack.volume], "hdd0: flushes succeed again", "dirty data is written back again"):
        stack.volume.drain(240)
    assert stack.volume.status()["trouble"] == "-" and not stack.volume.dirty()
    simdisk.power_cut(stack.hdd, mode="lose")
    stack.stop()
    simdisk.power_up()
    check_all(backing_alone(stack.hdd))


def test_dead_backing_beside_an_idle_mark(stack, kernel_log):
    """The flush before the mark is cleared had nothing to secure: what the SSD alone can take goes on, and is not told of it."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|a flush failed")
    v = stack.volume
    v.set(mode="writearound")
    v.write(N * SECTORS, block(N))
    v.flush()
    v.read(N * SECTORS, SECTORS)
    v.write(N * SECTORS, block(N))
    v.flush()
    assert v.status()["marks"] == 1 and v.status()["may_be_dirty"]
    v.set(mode="writeback")
    kill(stack.hdd)
    wait_for(lambda: v.status()["errors_flush"], 120, "the flush in front of the clearing")
    for salt in range(3):
        write_all(v, salt)
        v.flush()
    assert v.status()["trouble"] == "-" and v.status()["marks"] == 1
    check_all(v, salt)
    stack.hdd.heal()
    wait_for(lambda: not v.status()["marks"], 120, "the mark to go")
    stack.restart()
    check_all(stack.volume, salt)
    stack.stop()


def test_zeroes_where_the_backing_has_none(make_disk, kernel_log):
    """Written through, whoever asks for them writes them as data: no write has failed, and nobody is told so."""
    stack = Stack(
        make_disk("ssd0", model="null", mb=32, wce=1, fua=1),
        make_disk("hdd0", model="null", mb=64, wce=1),
        format_volume=("--cache", "c"),
        mode="writethrough",
    )
    write_all(stack.volume)
    events = stack.volume.events()
    stack.volume.zero(0, N * SECTORS)
    s = stack.volume.status()
    assert (s["errors_write"], s["write_zeroes"], stack.volume.events() - events) == (0, 0, 0)
    assert stack.hdd.stats()["write_zeroes"] == 0
    assert stack.volume.read(0, N * SECTORS) == bytes(N * BLOCK)
    stack.stop()


# ---------------------------------------------------------------- a backing that hangs


PATIENCE = 90  # seconds: what takes longer hangs


class Begun(threading.Thread):
    """In a thread of its own: who hangs in the kernel can be given up only so."""

    def __init__(self, what: Callable, *arguments: object):
        super().__init__(daemon=True)
        self.what, self.arguments = what, arguments
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.what(*self.arguments)
        except BaseException as e:
            self.error = e

    def end(self) -> None:
        """What it has raised is raised here."""
        self.join(PATIENCE)
        assert not self.is_alive(), f"{self.what} hangs"
        if self.error:
            raise self.error


def begin(what: Callable, *arguments: object) -> Begun:
    return Begun(what, *arguments)


def ends(what: Callable, *arguments: object) -> None:
    """Without an error, too."""
    begin(what, *arguments).end()


def hangs_clearing_a_mark(b: Volume, disk: simdisk.Simdisk, below: Part) -> list[Begun]:
    """An idle mark: its clearing begins with a flush of the backing."""
    b.set(mode="writearound")
    b.write(0, block(9))
    b.flush()
    assert b.status()["marks"] == 1
    flushes = b.status()["backing_flushes"]
    below.suspend(noflush=True)
    wait_for(lambda: b.status()["backing_flushes"] > flushes, PATIENCE, "the flush in front of the clearing")
    return []


def hangs_clearing_the_flag(b: Volume, disk: simdisk.Simdisk, below: Part) -> list[Begun]:
    """Nothing dirty for a minute: the superblock shall say so."""
    b.write(0, block(9))
    b.drain()
    below.suspend(noflush=True)
    wait_for(lambda: not b.status()["may_be_dirty"], 2 * PATIENCE, "the flag to be cleared")
    return []


def hangs_in_the_worker(b: Volume, disk: simdisk.Simdisk, below: Part) -> list[Begun]:
    """A flush has failed: the next write begins with another one, in the worker of deferred requests."""
    b.set(mode="writearound")
    b.write(0, block(9))
    disk.fail(op="flush", status="ioerr")
    assert fails(b.flush)
    disk.heal()
    flushes = b.status()["backing_flushes"]
    below.suspend(noflush=True)
    t = begin(b.write, 0, block(9))
    wait_for(lambda: b.status()["backing_flushes"] > flushes, PATIENCE, "the flush in front of the write")
    return [t]


@pytest.mark.limit(1200)
@pytest.mark.parametrize("hangs", [hangs_clearing_a_mark, hangs_clearing_the_flag, hangs_in_the_worker])
def test_backing_that_hangs(make_disk, hangs):
    """Not: fails.  Another volume of its cache needs a mark, the flag on its backing, the worker, and is reloaded and removed."""
    ssd, hdd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1), make_disk("hdd0", model="null", mb=64, wce=1)
    disk = make_disk("hdd1", model="null", mb=64, wce=1)
    below = Part.make("below", disk, 64)
    Cache.format("c", ssd)
    for name, backing in (("v", hdd), ("w", below)):
        Volume.format(name, backing, "--cache", "c")
    cache = Cache.start(ssd, congestion_read=0, congestion_write=0)
    v, w = (Volume.start(backing, cache, name, sequential_cutoff=0) for name, backing in (("v", hdd), ("w", below)))
    for x in (v, w):
        x.read(0, SECTORS)  # known: what bypasses the cache needs a mark
    hanging = hangs(w, disk, below)
    try:
        v.set(mode="writearound")
        ends(v.write, 0, block(1))
        assert v.status()["marks"] == 1 and not v.status()["may_be_dirty"]
        v.set(mode="writeback")
        ends(v.write, SECTORS, block(2))
        assert v.status()["may_be_dirty"]
        ends(v.reload, v.table())
        assert v.read(0, 2 * SECTORS) == block(1) + block(2)
        ends(v.remove)
    finally:
        below.resume()
        for t in hanging:
            t.end()
    assert w.read(0, SECTORS) == block(9)
    w.remove()
    v = Volume.start(hdd, cache)
    assert v.read(0, 2 * SECTORS) == block(1) + block(2)
    v.remove()
    cache.remove()


def test_no_memory_beside_a_backing_that_hangs(make_disk):
    """The write that hangs has its pages from the pool; another volume's needs some as well."""
    ssd, hdd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1), make_disk("hdd0", model="null", mb=64, wce=1)
    below = Part.make("below", make_disk("hdd1", model="null", mb=64, wce=1), 64)
    Cache.format("c", ssd)
    for name, backing in (("v", hdd), ("w", below)):
        Volume.format(name, backing, "--cache", "c")
    cache = Cache.start(ssd, congestion_read=0, congestion_write=0)
    v, w = (Volume.start(backing, cache, name, writeback="off") for name, backing in (("v", hdd), ("w", below)))
    for x in (v, w):
        x.write(0, block(1))
        x.flush()

    def write_back(x: Volume) -> None:
        """Its first page is not there at once: behind the list of them."""
        with memory.failing("group_alloc", "writeback_window", skip=1, count=1):
            x.message("flush")
            wait_for(lambda: memory.counts()["failed"], 60, "a page to be missing")
            time.sleep(1)  # it has what it needs of the pool, or waits

    below.suspend(noflush=True)
    try:
        write_back(w)
        write_back(v)
        wait_for(lambda: not v.dirty(), PATIENCE, "the other one to be written back")
        assert w.dirty()
    finally:
        below.resume()
    wait_for(lambda: not w.dirty(), PATIENCE, "the one that hung")
    for x in (v, w):
        x.remove()
    cache.remove()


@pytest.mark.limit(1200)
def test_reload_beside_a_backing_that_hangs(make_disk):
    """That of its cache waits.  Volumes of another cache come and go meanwhile, and those without one."""
    made = [make_disk(f"{name}{i}", model="null", mb=64, wce=1, fua=1) for i in range(2) for name in ("ssd", "hdd")]
    third = make_disk("hdd2", model="null", mb=64, wce=1)
    below = Part.make("below", made[1], 64)
    for name, ssd, backing in (("c", made[0], below), ("d", made[2], made[3])):
        Cache.format(name, ssd)
        Volume.format(f"v{name}", backing, "--cache", name)
    Volume.format("alone", third)
    c, d = Cache.start(made[0]), Cache.start(made[2], "d")
    v = Volume.start(below, c, "v", writeback="off")
    below.suspend(noflush=True)
    waiting = [begin(v.read, 0, SECTORS)]
    try:
        waiting.append(begin(c.reload, c.table()))
        for start in (lambda: Volume.start(made[3], d, "w"), lambda: Volume.start(third, None, "w")):
            for _ in range(5):
                ends(lambda start=start: start().remove())
        assert waiting[1].is_alive()
    finally:
        below.resume()
        for t in waiting:
            t.end()
    v.write(0, block(1))
    assert v.read(0, SECTORS) == block(1)
    for x in (v, c, d):
        x.remove()


def test_passthrough_backing_that_hangs(make_disk):
    """The first write of each volume without its cache waits for its own superblock alone."""
    ssd, hdd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1), make_disk("hdd0", model="null", mb=64, wce=1)
    below = Part.make("below", make_disk("hdd1", model="null", mb=64, wce=1), 64)
    Cache.format("c", ssd)
    for name, backing in (("v", hdd), ("w", below)):
        Volume.format(name, backing, "--cache", "c")
    cache = Cache.start(ssd)
    for name, backing in (("v", hdd), ("w", below)):  # from now on their superblocks name the cache
        Volume.start(backing, cache, name).remove()
    cache.remove()
    v, w = Volume.start(hdd, None), Volume.start(below, None, "w")
    below.suspend(noflush=True)
    t = begin(w.write, 0, block(1))
    try:
        wait_for(lambda: w.status()["deferred"] == 1, PATIENCE, "the write to wait for the superblock")
        ends(v.write, 0, block(2))
    finally:
        below.resume()
        t.end()
    assert (w.read(0, SECTORS), v.read(0, SECTORS)) == (block(1), block(2))
    w.remove()
    v.remove()


def test_passthrough_backing_that_fails(make_disk, kernel_log):
    """Each kind of command, of a volume without a cache: an error, an event."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    Volume.format("v", hdd)
    for op, counter in (("read", "errors_read"), ("write", "errors_write"), ("flush", "errors_flush")):
        v = Volume.start(hdd, None)
        v.write(0, block(1))
        v.flush()
        with Told(kernel_log, [v]):
            hdd.fail(op=op, status="ioerr")
            if op == "flush":
                v.write(8, block(2))
            assert fails(*{"read": (v.read, 0, SECTORS), "write": (v.write, 8, block(2)), "flush": (v.flush,)}[op])
        assert v.status()[counter]
        hdd.heal()
        v.flush()
        v.remove()


def test_half_of_the_cache_is_dirty(stack):
    """And its disk takes nothing: the status says so before writes wait, and names what gives it up."""
    stack.hdd.fail(op="write", status="ioerr")
    for i in range(20):
        stack.volume.write(2048 * i, bytes([i]) * (1 << 20))
    says("cache", "c", "dirty_sectors: half of the cache or more.*dmsetup message c 0 forget UUID-OF-VOLUME discard_dirty")
    stack.hdd.heal()
    stack.volume.drain()
    says("cache", "c")
    stack.stop()


def test_full_cache_whose_backing_fails(make_disk, kernel_log):
    """Writes wait for space, and the disk refuses each attempt at once: it is asked once a second, not as often as it can be.  With
    `writeback=off` nobody else would say what is wrong.  Back: writes go on by themselves."""
    stack = Stack(
        make_disk("ssd0", model="null", mb=32, wce=1, fua=1),
        make_disk("hdd0", model="null", mb=128, wce=1),
        format_cache=("--segment-size", "128k"),
        format_volume=("--cache", "c"),
        writeback="off",
        writeback_depth=1,
        sequential_cutoff=0,
    )
    stack.hdd.fail(op="write", status="ioerr", from_=2048)
    step, n = 128, 800  # 50 MB
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        try:
            with Told(kernel_log, [stack.volume, stack.cache], "hdd0: volume .* dirty data cannot be written back"):
                writes = [pool.submit(stack.volume.write, i * step, block(i) * (step // SECTORS)) for i in range(n)]
                wait_for(lambda: stack.hdd.faults()[0]["hits"] >= 2, 120, "reclaim to try")
            began, hits = time.monotonic(), stack.hdd.faults()[0]["hits"]
            wait_for(lambda: stack.hdd.faults()[0]["hits"] >= hits + 10, 120, "reclaim to try again")
            hits, took = stack.hdd.faults()[0]["hits"] - hits, time.monotonic() - began
            status, waiting = stack.volume.status(), not all(w.done() for w in writes)
        finally:
            stack.hdd.heal()
        for w in writes:
            w.result(120)
    assert hits <= 2 * (took + 2), f"{hits} attempts in {took:.1f} s"
    assert waiting and status["trouble"] == "writeback"
    assert stack.volume.status()["trouble"] == "-"
    for i in range(n):
        assert stack.volume.read(i * step, SECTORS) == block(i), i
    stack.stop()


@pytest.mark.limit(300)
@pytest.mark.parametrize("why", ["refused", "stopped", "in-doubt"])
def test_little_that_cannot_be_written_back(make_disk, kernel_log, why):
    """A little of it, of one disk, is in every segment: it goes to the log again, where another disk's writes need the segments;
    and a power cut in that finds what was flushed."""
    kernel_log.expect("I/O error|Buffer I/O")
    stack = Stack(
        make_disk("ssd0", model="null", mb=32, wce=1, fua=1),
        make_disk("hdd0", model="null", mb=64, wce=1),
        format_cache=("--segment-size", "128k"),
        format_volume=("--cache", "c"),
        sequential_cutoff=0,
        writeback="off",
    )
    hdd = make_disk("hdd1", model="null", mb=128, wce=1)
    Volume.format("w", hdd, "--cache", "c")
    other = Volume.start(hdd, stack.cache, name="w", sequential_cutoff=0)
    stack.hdd.fail(op="write", status="ioerr", from_=2048)
    theirs = 27  # blocks, for each of ours: a segment's
    stopped = why != "refused"
    rounds, ours = 700, 235 if stopped else 700  # in nearly all segments: some are to be free, as nothing can be moved in doubt

    def write(i: int) -> None:
        if i < ours:
            stack.volume.write(i * SECTORS, block(i))
        other.write(i * theirs * SECTORS, block(1000 + i) * theirs)

    def write_durably() -> None:
        other.write(0, block(1000) * theirs)
        other.flush()

    for i in range(ours if stopped else rounds // 2):
        write(i)
    stack.volume.flush()
    flushed = min(ours, rounds // 2)
    if stopped:
        stack.volume.remove()
    for i in range(flushed, rounds):
        if why == "in-doubt" and i == rounds // 2:
            stack.ssd.fail(op="flush", status="ioerr")
            assert fails(write_durably)
            time.sleep(3)  # reclaim looks for space meanwhile
            stack.ssd.heal()
            wait_for(lambda: not fails(write_durably), 60, "a flush to succeed")
        write(i)
    s = stack.cache.status()
    print({k: s[k] for k in ("segments", "dirty_sectors", "reclaimed", "reclaim_moved_slots", "waits_space")})
    assert s["reclaim_moved_slots"] >= theirs, "it was in the way: by how much is up to how fast the others' data is written back"
    simdisk.power_cut(mode="random", seed=3)
    other.remove()
    if stopped:
        stack.volume = None
    stack.stop()
    simdisk.power_up()
    stack.hdd.heal()
    stack.start()
    other = Volume.start(hdd, stack.cache, name="w", sequential_cutoff=0)
    for i in range(rounds // 2):
        assert i >= flushed or stack.volume.read(i * SECTORS, SECTORS) == block(i), i
    stack.volume.drain()
    for i in range(flushed):
        assert stack.hdd.read(DATA_SECTOR + i * SECTORS, SECTORS) == block(i), i
    other.remove()
    stack.stop()


@pytest.mark.parametrize("wait", [0, 5], ids=["at-once", "later"])
def test_full_cache_refuses(make_disk, kernel_log, wait):
    """Its disk has no space, and neither has the cache for failure_wait seconds: what would change something of this volume fails,
    with the error of the disk.  What was acknowledged stays; another volume waits.  Back: all goes on."""
    stack = Stack(
        make_disk("ssd0", model="null", mb=32, wce=1, fua=1),
        make_disk("hdd0", model="null", mb=64, wce=1),
        format_cache=("--segment-size", "128k"),
        format_volume=("--cache", "c"),
        failure_wait=wait,
        sequential_cutoff=0,
    )
    hdd = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("w", hdd, "--cache", "c")
    other = Volume.start(hdd, stack.cache, name="w", failure_wait=0)
    stack.hdd.fail(op="write,zeroes", status="nospc", from_=2048)
    written = 0
    refuses = Told(kernel_log, [stack.volume], "the cache is full, and dirty data cannot be written back: writes fail")
    with refuses, pytest.raises(OSError) as refused:
        while True:
            stack.volume.write(written * SECTORS * 8, block(written) * 8)
            written += 1
    assert refused.value.errno == errno.ENOSPC and 200 < written < 1000
    assert fails(stack.volume.discard, 0, SECTORS) and fails(stack.volume.zero, 0, SECTORS)
    assert set(stack.volume.status()["trouble"].split("/")) == {"writeback", "full"}
    says("volume", "v", "trouble: dirty data cannot be written", "trouble: the cache is full of dirty data", "errors: ")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            waits = pool.submit(other.write, 0, block(7))
            time.sleep(1)
            assert not waits.done()
            stack.volume.flush()
            for i in range(written):
                assert stack.volume.read(i * SECTORS * 8, SECTORS * 8) == block(i) * 8, i
        finally:
            stack.hdd.heal()
        waits.result(120)
    stack.volume.write(written * SECTORS * 8, block(written) * 8)
    stack.volume.drain(240)
    assert stack.volume.status()["trouble"] == "-" and other.read(0, SECTORS) == block(7)
    other.remove()
    stack.stop()
    alone = backing_alone(stack.hdd)
    for i in range(written + 1):
        assert alone.read(i * SECTORS * 8, SECTORS * 8) == block(i) * 8, i


def test_misses_beside_an_ssd_that_is_busy(make_disk):
    """It takes one write at a time, and its time over it: who reads what is not cached waits for the disk alone."""
    stack = Stack(
        make_disk("ssd0", model="null", mb=48, wce=1, fua=1, qd=1),
        make_disk("hdd0", model="null", mb=64, wce=1),
        format_volume=("--cache", "c"),
        sequential_cutoff=0,
    )
    stack.ssd.fail(op="write", status="ok", delay_ms=20000)
    step, n = 128, 256  # 16 MB
    for i in range(n):
        assert stack.volume.read(i * step, step) == bytes(step * 512)
    status = stack.volume.status()
    assert status["fill_sectors"] == 0, "reads have waited until copies were on the SSD"
    stack.ssd.heal()
    wait_for(lambda: stack.volume.status()["fill_sectors"], 120, "the copies to enter the index")
    stack.stop()


def test_misses_beside_a_disk_that_hangs(make_disk):
    """It has as many misses in flight as it can have: those of another volume are copied all the same."""
    ssd = make_disk("ssd0", model="null", mb=48, wce=1, fua=1)
    hdds = [make_disk(f"hdd{i}", model="null", mb=256, wce=1) for i in range(2)]
    hdds[0] = Part.make("below", hdds[0], 256)
    Cache.format("c", ssd)
    for name, hdd in zip("vw", hdds, strict=True):
        Volume.format(name, hdd, "--cache", "c")
    cache = Cache.start(ssd, congestion_read=0, congestion_write=0)
    v, w = (Volume.start(hdd, cache, name, sequential_cutoff=0) for name, hdd in zip("vw", hdds, strict=True))
    step, n = 128, 1600  # 100 MiB, more than all that fills may have
    hdds[0].suspend(noflush=True)
    hangs = begin(aio.read_many, v, [i * step for i in range(n)], step)
    try:
        wait_for(lambda: v.status()["fills_denied"], 90, "as many as it may have")
        for i in range(64):
            assert w.read(i * step, step) == bytes(step * 512)
        wait_for(lambda: w.status()["fill_sectors"], 60, "copies of the other volume")
        # of a host that is busy one or two may find no segment opened in time
        assert hangs.is_alive() and w.status()["fills_denied"] < 16
    finally:
        hdds[0].resume()
        hangs.end()
    for x in (v, w, cache):
        x.remove()


class ScsiDisk:
    """A SCSI disk of scsi_debug: its content stays while it is unplugged."""

    def __init__(self, mb: int):
        command.run("modprobe", "sd_mod")
        command.run("modprobe", "scsi_debug", f"dev_size_mb={mb}", "lbpws=0", "delay=0", "no_uld=0")
        self.host = next(h for h in Path("/sys/class/scsi_host").iterdir() if (h / "proc_name").read_text().strip() == "scsi_debug")

    def disk(self) -> BlockDevice:
        target = Path(f"/sys/class/scsi_host/{self.host.name}/device")
        wait_for(lambda: list(target.glob("target*/*/block/*")), 60, "the disk to appear")
        name = next(iter(target.glob("target*/*/block/*"))).name
        wait_for(Path("/dev", name).exists, 60, "its node")
        return BlockDevice(f"/dev/{name}")

    def unplug(self) -> None:
        for f in Path(f"/sys/class/scsi_host/{self.host.name}/device").glob("target*/*/delete"):
            f.write_text("1")

    def plug_in(self) -> None:
        (self.host / "scan").write_text("- - -")

    def close(self) -> None:
        command.run("modprobe", "-r", "scsi_debug", check=False)


@pytest.fixture
def scsi_disk(clean_devices):
    d = ScsiDisk(48)
    yield d
    for name in ("v", "c"):
        if name in dm.names():
            dm.DmDevice(name).remove()
    d.close()


def test_backing_that_is_unplugged(make_disk, scsi_disk, kernel_log):
    """Under dirty data: what is cached reads; the volume is stopped, and started with the disk that was plugged in again."""
    ssd, disk = make_disk("ssd0", model="null", mb=32, wce=1, fua=1), scsi_disk.disk()
    stack = Stack(ssd, disk, format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0)
    write_all(stack.volume)
    stack.volume.flush()
    scsi_disk.unplug()
    check_all(stack.volume)
    assert fails(stack.volume.read, N * SECTORS * 4, SECTORS)
    with Told(kernel_log, [stack.volume], "dirty data cannot be written back"):
        stack.volume.message("flush")
    write_all(stack.volume, salt=1)  # may_be_dirty is set, so the cache takes them
    assert stack.volume.status()["trouble"] == "writeback"
    says("volume", "v", "trouble: dirty data cannot be written")
    stack.volume.remove()
    assert stack.cache.status()["dirty_sectors"] == N * SECTORS
    scsi_disk.plug_in()
    stack.hdd = scsi_disk.disk()
    stack.volume = Volume.start(stack.hdd, stack.cache)
    check_all(stack.volume, salt=1)
    stack.volume.drain()
    stack.stop()
    raw = backing_alone(stack.hdd)
    check_all(raw, salt=1)
    raw.remove()


@pytest.fixture
def thin(make_disk, clean_devices):
    """A thin volume over a pool that is too small for it, and how the pool grows."""
    command.run("modprobe", "dm-thin-pool")
    meta = make_disk("meta0", model="null", mb=8, wce=1)
    data = make_disk("pool0", model="null", mb=128, wce=1)

    def line(mb: int) -> str:
        return f"0 {mb << 11} thin-pool {meta} {data} 128 0 1 error_if_no_space"

    pool = dm.DmDevice.create("pool", line(4))
    command.run("dmsetup", "message", "pool", "0", "create_thin 0")
    disk = dm.DmDevice.create("thin", f"0 {64 << 11} thin {pool} 0")
    yield disk, lambda: pool.reload(line(96))
    for name in ("v", "c", "raw", "thin", "pool"):
        if name in dm.names():
            dm.DmDevice(name).remove()


def test_thin_backing_without_space(make_disk, thin, kernel_log):
    """BLK_STS_NOSPC of a pool that is full: dirty data stays, and goes when the pool has grown."""
    kernel_log.expect("out-of-data-space|switching pool")
    disk, grow = thin
    ssd = make_disk("ssd0", model="null", mb=48, wce=1, fua=1)
    stack = Stack(ssd, disk, format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0)
    for i in range(12):
        stack.volume.write(2048 * i, bytes([i + 1]) * (1 << 20))
    stack.volume.flush()
    with Told(kernel_log, [stack.volume], "dirty data cannot be written back: error -28: no space is left below"):
        stack.volume.message("flush")
    assert stack.volume.dirty() and stack.cache.status()["state"] == "running"
    says("volume", "v", "trouble: .*the space of the pool below it; larder volume flush v")
    for i in range(12):
        assert stack.volume.read(2048 * i, 2048) == bytes([i + 1]) * (1 << 20)
    grow()
    stack.volume.drain(240)
    says("volume", "v", "errors: ")
    assert not stack.volume.dirty()
    stack.stop()
    raw = dm.DmDevice.create("raw", f"0 {disk.sectors - RESERVED_SECTORS} linear {disk} 2048")
    for i in range(12):
        assert raw.read(2048 * i, 2048) == bytes([i + 1]) * (1 << 20)
    raw.remove()


# ------------------------------------------------------------------ memory


@pytest.mark.limit(900)
def test_no_memory_for_a_start(stack):
    """Each allocation of a start in turn: it is refused, or goes without; nothing is left behind, the next one has everything."""
    stack.stop()
    step = refused = 0
    while True:
        with memory.failing(skip=step, count=1):
            try:
                stack.start()
            except command.CommandError:
                refused += 1
            failed = memory.counts()["failed"]
        for name in ("v", "c"):
            if name in dm.names():
                dm.DmDevice(name).remove()
        if not failed:
            break
        step += 1 + step // 8
    print(f"{step} allocations, {refused} refused starts")
    assert refused > 20
    stack.start()
    check_all(stack.volume)
    stack.volume.drain()
    stack.stop()


def test_counters_that_are_not_ready(stack):
    """Memory of each processor, which kernels give to whoever may not do I/O from what is there already: more of it comes soon."""
    stack.stop()
    stack.options["class"] = "special"
    with memory.failing(percpu=1, count=2):
        stack.start()
        assert memory.counts()["failed"] == 2
    with memory.failing(percpu=1, count=1):
        stack.volume.set(**{"class": "default"})
        stack.volume.set(**{"class": "special"})
        assert memory.counts()["failed"] == 1
    check_all(stack.volume)


@pytest.mark.parametrize("odds", [1, 3, 20])
@pytest.mark.parametrize("mode", ["writeback", "writethrough", "writearound"])
def test_no_memory_under_load(make_disk, make_oracle, seed, odds, mode):
    """Nothing fails for it: fills are given up, what cannot go on waits."""
    stack = make_stack(make_disk, mode=mode)
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=300)
    with memory.failing(odds=odds, seed=seed, count=0 if odds > 1 else 200):
        Careless(stack.volume, stack.cache).run(oracle, *Careless.NAMES, ops=700, every=50)
        counts = memory.counts()
    print(counts)
    assert counts["failed"] > 10
    oracle.verify()
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)


# ------------------------------------------------------------------ both


def test_ssd_and_backing_fail(stack):
    """Everything fails, nothing hangs.  The backing is well again: what is dirty is on the SSD alone still, so what would change
    something fails as before.  Both well again, and started: what was flushed is there."""
    kill(stack.ssd)
    kill(stack.hdd)
    assert fails(stack.volume.write, N * SECTORS, block(N)) or fails(stack.volume.flush)
    assert fails(stack.volume.read, 0, SECTORS) and fails(stack.volume.read, N * SECTORS * 4, SECTORS)
    assert fails(stack.volume.flush) and fails(stack.volume.discard, 0, SECTORS)
    stack.hdd.heal()
    assert fails(stack.volume.read, 0, SECTORS) and not fails(stack.volume.read, N * SECTORS * 4, SECTORS)
    assert fails(stack.volume.write, 0, block(0, salt=1)) and fails(stack.volume.flush)
    assert (stack.cache.status()["state"], stack.volume.status()["state"]) == ("failed", "cache-failed")
    stack.stop()
    for d in (stack.ssd, stack.hdd):
        d.heal()
    stack.start()
    check_all(stack.volume)
    stack.volume.drain()
    stack.stop()
    check_all(backing_alone(stack.hdd))


def test_ssd_fails_while_the_backing_does(make_disk):
    """A set that loses an SSD while dirty data cannot be written back: nothing is lost."""
    stack = make_stack(make_disk, writeback_percent=0)
    stack.hdd.fail(op="write", status="ioerr", from_=2048)
    write_all(stack.volume)
    wait_for(lambda: stack.hdd.faults()[0]["hits"], 60, "writeback to be refused")
    kill(stack.ssd[0])
    write_all(stack.volume, first=N)
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 60, "the SSD to leave")
    check_all(stack.volume)
    check_all(stack.volume, first=N)
    stack.hdd.heal()
    stack.volume.drain(240)
    stack.stop()
    raw = backing_alone(stack.hdd)
    check_all(raw)
    check_all(raw, first=N)


def test_machine_is_shut_down_with_all_of_it_failing(stack):
    """Volume and cache are removed while SSD and disk fail whatever they are asked, and what is dirty is to be written back."""
    kill(stack.ssd)
    kill(stack.hdd)
    stack.volume.message("flush")
    assert fails(stack.volume.read, N * SECTORS * 4, SECTORS)  # of the disk
    assert stack.volume.dirty() == N * SECTORS
    stack.volume.remove()
    stack.cache.remove()
    assert not dm.names()
    stack.volume = stack.cache = None
    for d in (stack.ssd, stack.hdd):
        assert d.faults()[0]["hits"], f"{d} was asked nothing"
        d.heal()
    cache = Cache.start(stack.ssd)
    volume = Volume.start(stack.hdd, cache)
    check_all(volume)
    volume.remove()
    cache.remove()
