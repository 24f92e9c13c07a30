# SPDX-License-Identifier: GPL-2.0-or-later
"""commit=buffered: what was acknowledged from memory is read, flushed, written out and, when the SSD refuses it, not forgotten."""

import os
import threading

import pytest
from lib import aio, dm, memory, simdisk
from lib.block import SECTOR
from lib.command import CommandError
from lib.larder import Cache, Stack, Volume, wait_for
from lib.sets import make_stack

BLOCK = 8  # sectors
LATE_MS = 4000  # an append that takes so long: time enough to look


def buffered_stack(make_disk, ssd: dict | None = None, hdd: dict | None = None, **options: object) -> Stack:
    fast = make_disk("ssd0", **({"model": "null", "mb": 48, "wce": 1, "fua": 1} | (ssd or {})))
    slow = make_disk("hdd0", **({"model": "null", "mb": 128, "wce": 1} | (hdd or {})))
    options = {"cache_commit": "buffered", "sequential_cutoff": 0, "writeback": "off"} | options
    return Stack(fast, slow, format_volume=("--cache", "c"), **options)


def count(stack: Stack, key: str) -> int:
    return stack.volume.status()[key]


def fails(what, *arguments: object) -> bool:
    try:
        what(*arguments)
    except (OSError, CommandError):
        return True
    return False


# ---------------------------------------------------------------- the option


def test_option(make_disk):
    """Set by table or message, in the status and in the table that is printed, which loads again; off unless asked for."""
    stack = buffered_stack(make_disk, cache_commit="auto")
    stack.volume.write(0, os.urandom(BLOCK * SECTOR))
    assert stack.cache.status()["commit"] == "auto" and count(stack, "write_buffered") == 0
    stack.cache.set(commit="buffered")
    assert stack.cache.status()["commit"] == "buffered"
    data = os.urandom(BLOCK * SECTOR)
    stack.volume.write(0, data)
    assert count(stack, "write_buffered") == 1
    table = stack.cache.table()
    assert "commit buffered" in table
    stack.volume.remove()
    stack.cache.remove()
    stack.cache = type(stack.cache).create("c", table)
    assert stack.cache.status()["commit"] == "buffered"
    stack.volume = Volume.start(stack.hdd, stack.cache, **stack.options)
    assert stack.volume.read(0, BLOCK) == data
    stack.cache.set(commit="auto")
    stack.volume.write(0, data)
    assert count(stack, "write_buffered") == 0
    stack.stop()


def test_start_that_is_tried_again(make_disk, kernel_log):
    """The object of a start that failed is replaced by the next one, which buffers too; who asks for its status, or changes a
    setting, meanwhile is answered."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = buffered_stack(make_disk)
    table = stack.cache.table()
    stack.stop()
    stack.cache = Cache.create("c", table, suspended=True)
    stack.ssd.fail(op="write,flush", status="ioerr")
    assert fails(stack.cache.resume)
    done, answers = threading.Event(), []

    def ask() -> None:
        while not done.is_set():
            answers.append((stack.cache.status()["state"], fails(stack.cache.message, "set", "gather", 8)))

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(8):
        assert fails(stack.cache.resume)
    done.set()
    thread.join(60)
    assert answers and {a[0] for a in answers} <= {"suspended", "failed"} and not any(a[1] for a in answers)
    stack.ssd.heal()
    stack.cache.resume()
    assert stack.cache.status()["gather"] == 8
    number = "{major}:{minor}".format(**stack.cache.info())  # it has no node
    stack.volume = Volume.start(stack.hdd, number, **stack.options)
    data = os.urandom(BLOCK * SECTOR)
    stack.volume.write(0, data)
    assert count(stack, "write_buffered") == 1
    assert stack.volume.read(0, BLOCK) == data
    stack.volume.remove()
    stack.cache.remove(retry=True)  # by dmsetup, which misses no node


def test_no_memory_for_a_table(make_disk):
    """A cache whose table finds no memory to buffer in is nobody's: it starts by another table, also while that device is there."""
    stack = buffered_stack(make_disk)
    table = stack.cache.table()
    stack.stop()
    with memory.failing("buffered_create"):
        with pytest.raises(CommandError):
            Cache.create("refused", table, suspended=True)
        assert memory.counts()["failed"]
    stack.start()
    assert "refused" in dm.names()
    data = os.urandom(BLOCK * SECTOR)
    stack.volume.write(0, data)
    assert count(stack, "write_buffered") == 1
    assert stack.volume.read(0, BLOCK) == data
    stack.stop()
    Cache("refused").remove(retry=True)  # by dmsetup, which misses no node


# ---------------------------------------------------------------- what is read


def test_reads_from_memory(make_disk):
    """While no append completes: the newest of overlapping writes, in part, beside what is cached, and what is not."""
    stack = buffered_stack(make_disk)
    before = os.urandom(64 * SECTOR)
    stack.volume.write(1000, before)
    stack.volume.flush()
    content = bytearray(before)
    stack.ssd.fail(op="write", status="ok", delay_ms=LATE_MS)
    applied = stack.cache.status()["records_applied"]
    for at, sectors in ((8, 16), (20, 9), (3, 2), (20, 1), (60, 4), (0, 1)):
        data = os.urandom(sectors * SECTOR)
        stack.volume.write(1000 + at, data)
        content[at * SECTOR : (at + sectors) * SECTOR] = data
    for at, sectors in ((0, 64), (8, 16), (9, 3), (20, 1), (19, 5), (2, 4), (59, 5)):
        assert stack.volume.read(1000 + at, sectors) == content[at * SECTOR : (at + sectors) * SECTOR], (at, sectors)
    assert stack.volume.read(1060, 8)[4 * SECTOR :] == bytes(4 * SECTOR)  # of the backing, behind the last one
    assert stack.cache.status()["records_applied"] == applied, "an append was not late: nothing was shown"
    assert count(stack, "write_buffered") == 7 and count(stack, "read_buffered") >= 9
    stack.ssd.heal()
    stack.volume.flush()
    assert stack.volume.read(1000, 64) == content
    stack.stop()


@pytest.mark.parametrize("qd", [1, 32])
@pytest.mark.parametrize("ssd_block", [512, 4096])
def test_oracle(make_disk, make_oracle, qd, ssd_block):
    """Overlaps of all kinds, with writeback, reclaim and switches of mode and option; also without the cache."""
    stack = buffered_stack(make_disk, {"lbs": ssd_block, "model": "nvme"}, writeback="on", sequential_cutoff=256)
    oracle = make_oracle(stack.volume, size="24m")
    for mix in ("read=35,write=45,fua=5,flush=5,zeroes=5,discard=5", "read=50,write=45,flush=1,zeroes=4"):
        oracle.run(ops=1500, qd=qd, mix=mix)
        oracle.verify()
    assert count(stack, "write_buffered") and count(stack, "read_buffered")
    for commit in ("auto", "buffered", "always", "buffered"):
        stack.cache.set(commit=commit)
        oracle.run(ops=300, qd=qd)
    for mode in ("writethrough", "writeback", "writearound", "writeback"):
        stack.volume.set(mode=mode)
        oracle.run(ops=300, qd=qd)
    oracle.verify()
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)


# ---------------------------------------------------------------- what is durable


def cut(stack: Stack) -> None:
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.start()


def test_flush_and_fua(make_disk):
    """What was flushed, and what was written by FUA, survives all of the disk's caches; nothing else need be."""
    stack = buffered_stack(make_disk)
    a, b, c = (os.urandom(20 * SECTOR) for _ in range(3))
    stack.volume.write(1003, a)
    stack.volume.write(3001, b)
    stack.volume.flush()
    stack.volume.write(1010, c[:SECTOR], fua=True)
    assert count(stack, "write_buffered") == 2
    cut(stack)
    assert stack.volume.read(1003, 20) == a[: 7 * SECTOR] + c[:SECTOR] + a[8 * SECTOR :]
    assert stack.volume.read(3001, 20) == b
    stack.stop()


def test_flush_waits(make_disk):
    """A flush behind a write that was acknowledged from memory ends when its record is on the SSD."""
    stack = buffered_stack(make_disk)
    stack.ssd.fail(op="write", status="ok", delay_ms=LATE_MS, count=1)
    stack.volume.write(0, os.urandom(BLOCK * SECTOR))
    applied = stack.cache.status()["records_applied"]
    done = []
    flush = threading.Thread(target=lambda: (stack.volume.flush(), done.append(stack.cache.status()["records_durable"])))
    flush.start()
    flush.join()
    assert done[0] > applied
    stack.stop()


def test_stop_writes_out(make_disk):
    """Removing volume and cache leaves nothing in memory; detaching and a reload likewise."""
    stack = buffered_stack(make_disk)
    data = [os.urandom(BLOCK * SECTOR) for _ in range(40)]
    for i, d in enumerate(data):
        stack.volume.write(i * 100, d)
    assert count(stack, "write_buffered")
    stack.restart()
    assert all(stack.volume.read(i * 100, BLOCK) == d for i, d in enumerate(data))
    stack.volume.write(0, data[1])
    stack.volume.reload(stack.line())
    assert stack.volume.read(0, BLOCK) == data[1]
    stack.volume.write(0, data[2])
    stack.volume.set(writeback="on")
    stack.detach()
    assert stack.volume.read(0, BLOCK) == data[2]
    stack.stop()


def test_bound_of_time(make_disk):
    """While what is oldest is older than 100 ms nothing more is acknowledged from memory."""
    stack = buffered_stack(make_disk)
    stack.ssd.fail(op="write", status="ok", delay_ms=LATE_MS)
    stack.volume.write(0, os.urandom(BLOCK * SECTOR))
    assert count(stack, "write_buffered") == 1
    wait_for(lambda: stack.ssd.faults()[0]["hits"], 60, "the append, by the timer")
    applied = stack.cache.status()["records_applied"]
    threading.Event().wait(0.3)
    stack.volume.write(100, os.urandom(BLOCK * SECTOR))
    assert count(stack, "write_buffered") == 1, "one was acknowledged behind an append that is 300 ms old"
    assert stack.cache.status()["records_applied"] > applied
    stack.ssd.heal()
    stack.stop()


def test_bound_of_a_region(make_disk):
    """What is acknowledged and not applied is looked through by each read there: of one region only so many are."""
    stack = buffered_stack(make_disk, ssd={"mb": 1024})  # one segment has room for all of it
    data = os.urandom(400 * SECTOR)
    fd = os.open(stack.volume.path, os.O_WRONLY | os.O_DIRECT)
    applied = stack.cache.status()["records_applied"]
    writer = threading.Thread(target=aio.write_many, args=(fd, data, SECTOR, 0))
    stack.ssd.fail(op="write", status="ok", delay_ms=LATE_MS)
    writer.start()
    try:
        wait_for(lambda: count(stack, "write_cached") == 400, 60, "all of them to be under way")
        taken = count(stack, "write_buffered")
        if stack.cache.status()["records_applied"] == applied:  # else others may have been taken behind an append that is complete
            assert 0 < taken <= 128
        assert stack.volume.read(0, taken) == data[: taken * SECTOR]
    finally:
        stack.ssd.heal()
        writer.join(60)
        os.close(fd)
    assert not writer.is_alive() and stack.volume.read(0, 400) == data
    stack.stop()


# ---------------------------------------------------------------- appends that fail


@pytest.mark.parametrize("commit", ["buffered", "auto", "always"])
def test_append_is_tried_again(make_disk, commit):
    """An SSD that refuses it a few times: nobody is told, nothing is lost."""
    stack = buffered_stack(make_disk, cache_commit=commit)
    data = os.urandom(BLOCK * SECTOR)
    stack.ssd.fail(op="write", status="ioerr", count=3)
    stack.volume.write(0, data)
    stack.volume.flush()
    status = stack.cache.status()
    assert (status["state"], status["append_retries"], status["lost_sectors"]) == ("running", 3, 0)
    cut(stack)
    assert stack.volume.read(0, BLOCK) == data
    stack.stop()


def test_doubt_ends_behind_what_is_tried_again(make_disk, trace):
    """Who asks for its end between two failures waits for the append, and for what is looked for behind it; he gets no error."""
    stack = buffered_stack(make_disk)
    data = os.urandom(BLOCK * SECTOR)
    trace.clear()
    stack.ssd.fail(op="write", status="ioerr", delay_ms=LATE_MS, count=1)
    stack.volume.write(0, data)
    wait_for(lambda: trace.commands(stack.ssd, "write"), 60, "the append")
    # none but it: an attempt appends a record, which is not sent again
    place = trace.commands(stack.ssd, "write")[0].sector
    stack.ssd.fail(op="write", from_=place, to=place + BLOCK, status="ioerr", delay_ms=LATE_MS, count=2)
    wait_for(lambda: stack.cache.status()["append_retries"] >= 1, 60, "the append to fail")
    stack.cache.message("checkpoint")
    assert stack.cache.status()["append_retries"] == 3
    cut(stack)
    assert stack.volume.read(0, BLOCK) == data
    stack.stop()


def test_doubt_ends_behind_a_flush_that_fails_late(make_disk, trace):
    """Who asks for its end while a flush of before is under way, which fails then: what he waits for is looked at behind that, too,
    and he gets no error.  The append that is sent again ends later still, so that he is waiting for it."""
    stack = buffered_stack(make_disk)
    data = os.urandom(BLOCK * SECTOR)
    stack.volume.write(1000, data)
    stack.cache.message("commit")
    trace.clear()
    stack.ssd.fail(op="flush", status="ioerr", delay_ms=LATE_MS, count=1)
    flush = threading.Thread(target=fails, args=(stack.volume.flush,))  # whatever he is told
    flush.start()
    wait_for(lambda: trace.commands(stack.ssd, "flush"), 60, "the flush")
    stack.ssd.fail(op="write", status="ioerr", count=1)
    stack.ssd.fail(op="write", status="ok", delay_ms=2 * LATE_MS, count=1)
    stack.volume.write(0, data)
    wait_for(lambda: stack.cache.status()["append_retries"] == 1, 60, "the append to fail")
    assert trace.commands(stack.ssd, "flush")[0].end is None, "the flush was not late: nothing was shown"
    stack.cache.message("checkpoint")
    flush.join(60)
    assert not flush.is_alive() and stack.cache.status()["append_retries"] == 1
    cut(stack)
    assert stack.volume.read(0, BLOCK) == data
    stack.stop()


@pytest.mark.parametrize("commit, tried", [("buffered", 1), ("auto", 0)])
def test_append_that_has_run_out_of_time(make_disk, commit, tried):
    """A user who waits is not kept waiting for as long again: his volume goes on without its SSD.  Who was answered long ago is."""
    stack = buffered_stack(make_disk, cache_commit=commit)
    data = os.urandom(BLOCK * SECTOR)
    stack.ssd.fail(op="write", status="ioerr", delay_ms=LATE_MS, count=1)
    stack.volume.write(0, data)
    stack.volume.flush()
    assert stack.cache.status()["append_retries"] == tried
    assert stack.cache.status()["state"] == ("running" if tried else "failed")
    assert stack.volume.status()["state"] == ("running" if tried else "passing") and stack.volume.read(0, BLOCK) == data
    stack.stop()


def test_append_fails(make_disk, kernel_log):
    """The next flush fails, and each after it; reads have what was acknowledged; that stays dirty, what lies under it is written
    back: it cannot be detached from."""
    stack = buffered_stack(make_disk)
    old, new = os.urandom(64 * SECTOR), os.urandom(BLOCK * SECTOR)
    stack.volume.write(1000, old)
    stack.volume.flush()
    stack.ssd.fail(op="write", status="ioerr")
    kernel_log.mark()
    stack.volume.write(1010, new)
    assert fails(stack.volume.flush) and fails(stack.volume.flush)
    wait_for(lambda: kernel_log.matching("larder: .*1010 to 1017 are on no SSD"), 60, "a line in the kernel log")
    status = stack.cache.status()
    assert (status["state"], status["append_retries"], status["lost_sectors"]) == ("failed", 4, BLOCK)
    content = old[: 10 * SECTOR] + new + old[18 * SECTOR :]
    assert stack.volume.read(1010, BLOCK) == new and stack.volume.read(1000, 64) == content
    assert fails(stack.volume.write, 1010, old[: BLOCK * SECTOR]) and stack.volume.read(1010, BLOCK) == new
    assert stack.volume.dirty() == BLOCK and stack.volume.status()["state"] == "cache-failed"
    stack.stop()
    stack.ssd.heal()
    stack.start()
    assert stack.volume.read(1000, 64) == old  # as it was flushed last
    stack.volume.write(1010, new)
    stack.volume.flush()
    assert stack.volume.read(1000, 64) == content
    stack.stop()


def test_detach_with_lost_data_is_refused(make_disk):
    """Nothing is dirty but what no SSD has."""
    stack = buffered_stack(make_disk, mode="writeback")
    stack.ssd.fail(op="write", status="ioerr")
    stack.volume.write(0, os.urandom(BLOCK * SECTOR))
    assert fails(stack.volume.flush)
    stack.volume.set(mode="writethrough")
    assert fails(stack.volume.reload, stack.line(cached=False))
    assert stack.volume.dirty() == BLOCK
    stack.stop()


def test_other_ssd(make_disk):
    """One of two refuses appends: what was acknowledged is on the other; flushes succeed."""
    stack = make_stack(make_disk, cache_commit="buffered")
    data = os.urandom(BLOCK * SECTOR)
    stack.ssd[0].fail(op="write", status="ioerr")
    stack.volume.write(0, data)
    stack.volume.flush()
    status = stack.cache.status()
    assert (status["state"], status["devices_failed"], status["lost_sectors"]) == ("running", 1, 0)
    assert stack.volume.read(0, BLOCK) == data
    stack.stop()


def test_one_of_two_is_reset(make_disk):
    """It would take an append that is sent again, and has lost what came before: the other one has all, and it leaves the set."""
    stack = make_stack(make_disk, cache_commit="buffered", writeback="off")
    old, data = os.urandom(BLOCK * SECTOR), os.urandom(BLOCK * SECTOR)
    stack.volume.write(0, old)
    before = stack.cache.status()["records_applied"]
    stack.volume.write(0, data)
    wait_for(lambda: stack.cache.status()["records_applied"] > before, 60, "the append")
    stack.ssd[0].fail(op="write", status="reset", count=1)
    stack.volume.write(1000, old)
    wait_for(lambda: stack.ssd[0].faults()[0]["hits"] == 1, 60, "the reset")
    stack.volume.flush()
    status = stack.cache.status()
    assert (status["state"], status["devices_failed"], status["append_retries"]) == ("running", 1, 0)
    assert stack.volume.read(0, BLOCK) == data and stack.volume.read(1000, BLOCK) == old
    stack.stop()


def test_both_copies_fail_once(make_disk):
    """Of three SSDs, at the same moment: one of the two that have it leaves the set, to the other it is sent again."""
    stack = make_stack(make_disk, sizes=(48, 48, 48), cache_commit="buffered", writeback="off")
    data = os.urandom(BLOCK * SECTOR)
    for ssd in stack.ssd:
        ssd.fail(op="write", status="ioerr", delay_ms=LATE_MS, count=1)
    stack.volume.write(0, data)
    wait_for(lambda: sum(ssd.faults()[0]["hits"] for ssd in stack.ssd) == 2, 60, "the append")
    for ssd in stack.ssd:
        if not ssd.faults()[0]["hits"]:
            ssd.heal()
    stack.volume.flush()
    status = stack.cache.status()
    assert (status["state"], status["devices_failed"], status["lost_sectors"]) == ("running", 1, 0)
    assert status["append_retries"] >= 1 and stack.volume.read(0, BLOCK) == data
    stack.stop()
