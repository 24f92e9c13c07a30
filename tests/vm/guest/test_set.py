# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache on several SSDs: what is dirty is on two of them; one may fail at any time, be missing at a start, or come back."""

import concurrent.futures
import contextlib
import itertools
import os
import random
import struct
import threading
from collections.abc import Callable

import pytest
from lib import command, simdisk
from lib.controls import Switches
from lib.damage import crc32c, damage
from lib.decay import SLOT, Written, commit, flip, places
from lib.larder import DATA_SECTOR, Cache, Stack, Volume, larder, segment_layout, wait_for
from lib.log_blocks import commit_blocks
from lib.oracle import Oracle
from lib.pattern import not_pattern, write_pattern
from lib.sets import MODES, TABLES, kill, make_ssds, make_stack, resynced, small_stack, start_without


@pytest.mark.parametrize(
    ("sizes", "mirror"),
    [
        *(((48, 48), m) for m in ("none", "dirty", "all", "dirty:3")),
        ((32, 96), "dirty"),
        *(((32, 32, 32), m) for m in ("dirty", "all", "dirty:3")),
        ((32, 48, 32, 40), "dirty:3"),
    ],
)
def test_content(make_disk, make_oracle, sizes, mirror):
    stack = make_stack(make_disk, sizes, cache_mirror=mirror)
    status = stack.cache.status()
    assert (status["devices"], status["mirrored"], status["devices_failed"]) == (len(sizes), mirror != "none", 0)
    oracle = make_oracle(stack.volume, size="64m")
    switches = Switches(stack.volume, stack.cache)
    for _ in range(2):
        switches.run(oracle, "modes", "checkpoint", "evict", "suspend", ops=2500, every=60)
        oracle.verify()
        stack.restart()
        oracle.verify()
    assert all(s.stats()["writes"] > 100 for s in stack.ssd)
    stack.verify_alone(oracle)


def test_very_unequal_sizes(make_disk, make_oracle):
    """2 TiB and 130 MiB, as 32 TiB and 2 GiB: what is counted by segments would ask for more pairs than there are."""
    small = make_disk("ssd0", model="null", mb=130, wce=1, fua=1)
    large = make_disk("ssd1", model="null", sectors=1 << 32, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=256, wce=1)
    options = {"cache_memory_limit": 1024, "sequential_cutoff": 0}
    stack = Stack([large, small], hdd, format_cache=("--segment-size", "2m"), format_volume=("--cache", "c"), **options)
    assert stack.cache.status()["mirrored"] == 1 and stack.cache.status()["segments"] > 1 << 20
    oracle = make_oracle(stack.volume, size="192m")
    oracle.run(ops=2500)
    assert stack.volume.status()["write_cached"] > 500
    oracle.verify()
    stack.volume.flush()
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.start()
    oracle.verify(after="crash")
    oracle.run(ops=500)
    stack.stop()
    start_without(stack, 0)
    oracle.verify()
    stack.verify_alone(oracle)


def test_dirty_data_is_on_two(make_disk):
    stack = make_stack(make_disk, cache_commit_interval=60000, writeback="off")
    for s in stack.ssd:
        s.reset_stats()
    for i in range(200):
        stack.volume.write(i * 64, bytes([i]) * 4096)
    stack.cache.message("commit")  # nothing is on its way to either while both are asked
    a, b = (s.stats() for s in stack.ssd)
    summaries = stack.cache.status()["summaries"] * 16384  # only one of the two has them
    assert a["writes"] >= 200 and b["writes"] >= 200 and abs(a["wbytes"] - b["wbytes"]) <= summaries
    stack.volume.flush()
    assert all(s.stats()["flushes"] >= 1 for s in stack.ssd)
    stack.volume.drain()
    for _ in range(2):
        stack.cache.message("checkpoint")
    stack.stop()


def test_second_copies_are_freed(make_disk):
    stack = make_stack(make_disk)
    for i in range(16):
        stack.volume.write(i * 2048, bytes([i]) * (1 << 20))
    held = stack.cache.status()["segments_mirror"]
    stack.volume.set(mode="writethrough")
    stack.volume.drain()

    def fewer() -> bool:
        stack.cache.message("checkpoint")
        return stack.cache.status()["segments_mirror"] < held / 2

    wait_for(fewer, 30, "second copies to be freed")
    for i in range(16):
        assert stack.volume.read(i * 2048, 8) == bytes([i]) * 4096
    stack.stop()


BLOCKS = range(0, 64 << 11, 128)  # of the volume: first sectors of 1024 blocks of 4 KiB, 64 KiB apart


def block(sector: int) -> bytes:
    return sector.to_bytes(8, "little") * 512


def fill_clean(stack: Stack) -> None:
    """Clean data, by reading, until all of it is cached."""
    raw, before = stack.hdd, stack.volume.status()["cached_sectors"]
    for sector in BLOCKS:
        raw.write(2048 + sector, block(sector))

    def filled() -> bool:  # again: a miss that finds no segment opened yet does not fill
        for sector in BLOCKS:
            assert stack.volume.read(sector, 8) == block(sector)
        stack.cache.message("commit")
        return stack.volume.status()["cached_sectors"] == before + 8 * len(BLOCKS)

    wait_for(filled, 120, "the fills")


def misses(stack: Stack) -> int:
    """Reads everything; how much came from the backing."""
    before = stack.hdd.stats()["reads"]
    for sector in BLOCKS:
        assert stack.volume.read(sector, 8) == block(sector)
    return stack.hdd.stats()["reads"] - before


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("mirror", ["dirty", "all"])
def test_clean_data_survives(make_disk, kernel_log, which, mirror):
    """mirror=all: what is clean is still cached when one SSD is lost, and after a start without it; mirror=dirty: half of it."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, cache_mirror=mirror)
    fill_clean(stack)
    assert stack.cache.status()["below_sectors"] == 0
    assert misses(stack) == 0
    kill(stack.ssd[which])
    stack.volume.write(BLOCKS[0], block(BLOCKS[0]))
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 30, "the SSD to leave")
    stack.volume.set(fill="off")
    gone = misses(stack)
    assert (gone == 0) == (mirror == "all")
    status = stack.cache.status()
    assert status["below_sectors"] >= (8 * len(BLOCKS) if mirror == "all" else 8)
    stack.stop()
    start_without(stack, which)
    assert (misses(stack) == 0) == (mirror == "all")
    stack.stop()


def test_the_level_changes(make_disk):
    """What is written from then on obeys it; second copies that are not asked for any more are freed."""
    stack = make_stack(make_disk, cache_mirror="none", writeback="off")
    stack.volume.write(100 << 11, b"a" * 4096)
    assert stack.cache.status()["segments_mirror"] == 0
    stack.cache.set(mirror="all")
    status = stack.cache.status()
    assert (status["mirror"], status["mirrored"]) == ("all", 1)
    for i in range(24):
        stack.volume.write(BLOCKS.stop + i * 2048, bytes([i]) * (1 << 20))
    stack.cache_options["mirror"] = "all"
    stack.restart()
    assert stack.cache.status()["mirror"] == "all"
    fill_clean(stack)
    held = stack.cache.status()["segments_mirror"]
    stack.cache.set(mirror="dirty")

    def fewer() -> bool:
        stack.cache.message("checkpoint")
        return stack.cache.status()["segments_mirror"] < held

    wait_for(fewer, 30, "second copies of clean data to be freed")
    assert stack.cache.table().endswith(" mirror dirty") or " mirror " not in stack.cache.table()
    stack.stop()


def test_without_mirror(make_disk, kernel_log):
    """mirror=none: with an SSD what is dirty there is lost, an error; the rest reads right, and all of it when it is back."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|cannot be read|a flush failed|a failed flush")
    stack = make_stack(make_disk, cache_mirror="none", writeback="off")
    fill_clean(stack)
    dirty = [sector + 64 for sector in BLOCKS]
    for sector in dirty:
        stack.volume.write(sector, block(sector))
    stack.volume.flush()
    kill(stack.ssd[1])
    with pytest.raises(OSError):
        for sector in dirty:
            stack.volume.write(sector, b"x" * 4096, fua=True)
    # where only a flush finds it at first, those who come then get errors, and an attempt to end the doubt finds that it is dead
    wait_for(lambda: stack.cache.status()["state"] == "failed", 60, "the cache to fail")
    wait_for(lambda: stack.volume.status()["state"] == "cache-failed", 60, "the volume to find that it cannot leave")
    assert misses(stack) >= 0  # all of the clean data is right
    errors = 0
    for sector in dirty:
        try:
            assert stack.volume.read(sector, 8) in (block(sector), b"x" * 4096)
        except OSError:
            errors += 1
    assert 0 < errors < len(dirty)
    with pytest.raises(OSError):
        stack.volume.write(dirty[0], b"y" * 4096)
    stack.stop()
    with pytest.raises(command.CommandError):
        start_without(stack, 1)
    stack.ssd[1].heal()
    stack.start()
    for sector in dirty:
        assert stack.volume.read(sector, 8) in (block(sector), b"x" * 4096)
    stack.stop()


def last_written(stack: Stack, trace: simdisk.Trace) -> simdisk.Simdisk:
    """The SSD, by the last write of all, behind a commit."""
    stack.cache.message("commit")
    name = trace.commands(op="write")[-1].disk
    trace.clear()
    return next(s for s in stack.ssd if s.name == name)


def written_before_the_other(stack: Stack, trace: simdisk.Trace) -> simdisk.Simdisk:
    """Writes until one goes to another SSD than the one before: that which has the one before, and no flush since."""
    before = None
    for sector in range(0, 65536, 8):
        stack.volume.write(sector, block(sector))
        ssd = last_written(stack, trace)
        if before not in (None, ssd):
            return before
        before = ssd
    raise AssertionError("all writes go to one SSD")


SSD_ERRORS = "I/O error|critical .* error|Buffer I/O|a flush failed|a failed flush"


def test_dead_without_mirror_is_found_by_a_flush(make_disk, trace, kernel_log):
    """What is written next goes to the other SSD: no record is to find out that this one takes nothing any more."""
    kernel_log.expect(f"{SSD_ERRORS}|takes no writes")
    stack = small_stack(make_disk, 2, cache_mirror="none")
    ssd = written_before_the_other(stack, trace)
    kill(ssd, "write,flush,discard,zeroes")
    with pytest.raises(OSError):
        stack.volume.flush()
    wait_for(lambda: stack.cache.status()["state"] == "failed", 60, "an attempt to end the doubt")
    assert kernel_log.matching("takes no writes")
    ssd.heal()
    stack.restart()
    assert stack.volume.read(0, 8) == block(0)
    stack.volume.write(0, block(8))
    stack.volume.flush()
    stack.stop()


def test_read_only_without_mirror_is_found_by_a_copy(make_disk, trace, kernel_log):
    """It takes flushes, and can be read: a copy of a miss begins the doubt, which no checkpoint ends."""
    kernel_log.expect(f"{SSD_ERRORS}|takes no writes|clean copies|cannot write|no checkpoint")
    stack = small_stack(make_disk, 2, cache_mirror="none")
    ssd = written_before_the_other(stack, trace)
    kill(ssd, "write,discard,zeroes")

    def found() -> bool:
        for sector in range(65536, 131072, 64):
            if stack.cache.status()["trouble"] != "-" or stack.cache.status()["state"] == "failed":
                return True
            stack.volume.read(sector, 8)
            with contextlib.suppress(command.CommandError):  # it may be found dead meanwhile
                stack.cache.message("commit")
        return False

    assert found(), "no copy went to it"
    # who waits for the end of the doubt gets no error: once it is found dead the volume goes on without its cache
    stack.volume.write(8, block(8))
    stack.volume.flush()
    wait_for(lambda: stack.cache.status()["state"] == "failed", 60, "an attempt to end the doubt")
    assert kernel_log.matching("takes no writes")
    ssd.heal()
    stack.restart()
    assert stack.volume.read(0, 16) == block(0) + block(8)
    stack.stop()


def test_flushes_refused_without_mirror(make_disk, trace, kernel_log):
    """An SSD that takes writes is not dead, however often it refuses a flush: it is tried again, and nothing fails for good."""
    kernel_log.expect(SSD_ERRORS)
    stack = small_stack(make_disk, 2, cache_mirror="none")
    ssd = written_before_the_other(stack, trace)
    kill(ssd, "flush")
    with pytest.raises(OSError):
        stack.volume.flush()
    # it is tried again by the cache itself, behind a second and more
    wait_for(lambda: ssd.faults()[0]["hits"] >= 4, 60, "attempts to end the doubt")
    status = stack.cache.status()
    assert (status["state"], status["trouble"]) == ("running", "flush")
    ssd.heal()
    wait_for(lambda: stack.cache.status()["trouble"] == "-", 90, "the end of the doubt")
    stack.volume.write(0, block(8))
    stack.volume.flush()
    assert stack.volume.read(0, 8) == block(8)
    stack.stop()


def reset_in_a_copy(stack: Stack, trace: simdisk.Trace, number: int) -> bool:
    """A miss, and a write; then the copy of another miss finds the SSD of the write reset, if both go to that one.  True: nothing
    had flushed the write before."""
    first, size, _ = segment_layout(stack.ssd[0])
    copy, record = (last_write(stack, trace, do) for do in (
        lambda: stack.volume.read(65536 + number * 16, 8), lambda: stack.volume.write(8, block(8))
    ))
    if not copy or not record or record.disk != copy.disk:
        return False
    ssd = next(s for s in stack.ssd if s.name == copy.disk)
    place = first + (copy.sector - first) // size * size
    if place <= record.sector < place + size:
        return False  # it was no copy: what is filled does not go where the log is
    summary = place + SLOTS * 8
    ssd.fail(op="write", from_=place, to=summary, status="reset", count=1)
    stack.volume.read(65536 + number * 16 + 8, 8)
    stack.cache.message("commit")
    failed = [c for c in trace.commands(ssd, "write") if c.error]
    ssd.heal()
    if not failed:
        return False  # it went to the next segment
    wait_for(lambda: stack.cache.status()["trouble"] == "-", 60, "the end of the doubt")
    return not [f for f in trace.commands(ssd, "flush") if record.seq < f.seq < failed[0].seq]


def last_write(stack: Stack, trace: simdisk.Trace, do: Callable[[], object]) -> simdisk.Command | None:
    """Of what that has written to the SSDs.  None: nothing."""
    trace.clear()
    do()
    stack.cache.message("commit")
    return next(iter(trace.commands(op="write")[::-1]), None)


def test_reset_without_mirror(make_disk, trace, kernel_log):
    """The copy of a miss finds that an SSD was reset, which has data that was not flushed: a user's flush fails, once."""
    kernel_log.expect(f"{SSD_ERRORS}|clean copies|flush has failed|damaged|lost")
    stack = small_stack(make_disk, 2, cache_mirror="none")
    stack.volume.write(0, block(0))
    stack.volume.flush()
    assert any(reset_in_a_copy(stack, trace, n) for n in range(500))
    with pytest.raises(OSError):
        stack.volume.flush()
    stack.volume.flush()
    with pytest.raises(OSError):
        stack.volume.read(8, 8)
    stack.volume.write(8, block(16))
    stack.volume.flush()
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.start()
    assert stack.volume.read(0, 8) == block(0) and stack.volume.read(8, 8) == block(16)
    stack.stop()


def until_left(stack: Stack, oracle: Oracle, number: int) -> None:
    """Load until so many SSDs have left: how many commands one gets depends on what is gathered and filled."""
    for _ in range(20):
        if stack.cache.status()["devices_failed"] == number:
            break
        oracle.run(ops=200)


@pytest.mark.parametrize(
    ("control", "which"), [*itertools.product(("modes", "writeback", "checkpoint evict", "mirror=all"), (0, 1)), ("slow", 0)]
)
def test_one_fails_under_load(make_disk, make_oracle, kernel_log, seed, control, which):
    """It takes nothing any more, at some time; all goes on, and is there after a restart without it.  slow: reads are in flight."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, **({"model": "nvme", "jitter_ns": 100000} if control == "slow" else {}))
    stack = Stack(
        ssds,
        make_disk("hdd0", model="null", mb=128, wce=1),
        format_volume=("--cache", "c"),
        cache_mirror="all" if control == "mirror=all" else "dirty",
        **({"writeback": "off"} if control == "slow" else {}),
    )
    control = control.replace("mirror=all", "modes evict").replace("slow", "checkpoint")
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=1500)
    stack.ssd[which].fail(op="read,write,flush,discard,zeroes", status="ioerr", skip=seed % 700)
    Switches(stack.volume, stack.cache).run(oracle, *control.split(), ops=1200, every=40)
    until_left(stack, oracle, 1)
    oracle.verify()
    status = stack.cache.status()
    assert (status["devices_failed"], status["mirrored"], status["state"]) == (1, 0, "running")
    stack.stop()
    start_without(stack, which)
    oracle.verify()
    oracle.run(ops=800)
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.parametrize(("block", "shift", "count"), [(512, 0, 8), (4096, 1, 3)], ids=["512", "4Kn"])
def test_reads_that_fail_together(make_disk, kernel_log, block, shift, count):
    """Reads of what is dirty in one segment are under way when the SSD begins to fail reads: the other SSD answers each of them."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, lbs=block, pbs=4096)
    stack = Stack(ssds, make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), writeback="off")
    sectors = [SECTOR + 64 * i for i in range(8)]
    for i, sector in enumerate(sectors):
        stack.volume.write(sector, bytes([i + 1]) * 4096)
    stack.volume.flush()
    for s in ssds:
        s.reset_stats()
    assert stack.volume.read(SECTOR, 8) == b"\1" * 4096
    (first,) = [s for s in ssds if s.stats()["reads"]]
    first.fail(op="read", status="ioerr", delay_ms=1000)
    with concurrent.futures.ThreadPoolExecutor(len(sectors)) as readers:
        found = list(readers.map(lambda sector: stack.volume.read(sector + shift, count), sectors))
    assert found == [bytes([i + 1]) * 512 * count for i in range(len(sectors))]
    # in blocks of 4 KiB one is read after the other, by a worker that goes to the other SSD at once behind the first
    assert first.faults()[0]["hits"] > (block == 512), "one alone was under way"
    assert stack.cache.status()["devices_failed"] == 0 and stack.cache.status()["errors_read"] > 0
    stack.stop()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("mirror", ["dirty", "all"])
def test_one_is_missing_after_a_power_cut(make_disk, make_oracle, seed, which, mirror):
    """What was flushed before a power cut that kills one SSD is there after it."""
    ssds = make_ssds(make_disk, model="nvme", jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    stack = Stack(ssds, hdd, format_volume=("--cache", "c"), cache_mirror=mirror)
    oracle = make_oracle(stack.volume, size="32m")
    simdisk.power_cut(mode=MODES[seed % len(MODES)], seed=seed, after=500 + seed % 1500)
    oracle.run_until_cut(stack.ssd[0])
    stack.stop()
    simdisk.power_up()
    start_without(stack, which)
    oracle.verify(after="crash")
    oracle.verify()
    assert stack.cache.status()["devices_failed"] == 1
    stack.verify_alone(oracle)


@pytest.mark.parametrize("mirror", ["dirty", "all"])
def test_power_cuts(make_disk, make_oracle, seed, mirror):
    """Each SSD keeps what it will of what was not flushed."""
    ssds = make_ssds(make_disk, model="nvme", jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    stack = Stack(ssds, hdd, format_volume=("--cache", "c"), cache_mirror=mirror)
    oracle = make_oracle(stack.volume, size="32m")
    control = "dmsetup message c 0 checkpoint; dmsetup message c 0 reclaim 3; dmsetup message v 0 flush"
    controls = 0
    for i in range(10):
        simdisk.power_cut(mode=MODES[(seed + i) % len(MODES)], seed=seed + i, after=200 + (seed * 7919 + i * 104729) % 3000)
        r = oracle.run_until_cut(stack.ssd[0], control=control, every=150, control_may_fail=True)
        controls += r["controls"] - r["controls_failed"]
        stack.stop()
        simdisk.power_up()
        stack.start()
        oracle.verify(after="crash")
        oracle.verify()
    assert controls, "each of them has failed"
    stack.verify_alone(oracle)


def left_by_one(make_disk, make_oracle, kernel_log) -> tuple:
    """A stack, and its oracle, that has gone on without SSD 1."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk)
    oracle = make_oracle(stack.volume, size="32m")
    oracle.run(ops=1500)
    kill(stack.ssd[1])
    oracle.run(ops=1500)
    return stack, oracle


def refused_alone(stack: Stack, kernel_log) -> None:
    """SSD 1 starts by itself, but not the volume, which knows that the others went on."""
    cache = Cache.start([None, stack.ssd[1]])
    with pytest.raises(command.CommandError):
        Volume.start(stack.hdd, cache)
    assert kernel_log.matching("ran with other SSDs")
    # nor does it leave for the asking what it may have dirty on the others: this cache knows of nothing
    with pytest.raises(command.CommandError):
        Volume.start(stack.hdd, None)
    assert kernel_log.matching("dirty data")
    cache.remove()


@pytest.mark.parametrize("then", ["stop", "power"])
def test_one_that_left_is_not_read(make_disk, make_oracle, kernel_log, then):
    """It is back, well, with what it held when it left: stale, whether it comes with the others or alone.  Behind a power cut what
    was written as it left is all that says so: a volume that is unbound may write the tables again."""
    stack, oracle = left_by_one(make_disk, make_oracle, kernel_log)
    if then == "power":
        cut(stack.ssd)
        up(stack)
    else:
        stack.stop()
        stack.ssd[1].heal()
    stack.start()
    assert kernel_log.matching("SSD 1 .* is stale")
    assert stack.cache.status()["devices_failed"] == 1
    oracle.verify(after="crash" if then == "power" else None)
    oracle.verify()
    stack.stop()
    refused_alone(stack, kernel_log)
    start_without(stack, 1)
    oracle.verify()
    stack.verify_alone(oracle)


def test_one_that_left_with_nothing_dirty(make_disk, kernel_log):
    """It knows of nothing that the volume could lose: a table without a cache does not let it leave that side for the asking."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, writeback="off")
    stack.volume.write(0, bytes(4096))
    stack.volume.drain()
    for _ in range(2):
        stack.cache.message("checkpoint")
    kill(stack.ssd[1])
    data = os.urandom(4096)
    stack.volume.write(0, data)
    stack.volume.flush()
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 60, "the SSD to leave")
    cut(stack.ssd)
    up(stack)
    refused_alone(stack, kernel_log)
    start_without(stack, 1)
    assert stack.volume.read(0, 8) == data
    stack.stop()


@pytest.mark.parametrize("absent", ["first", "then"])
def test_another_table_before_the_first_resume(make_disk, kernel_log, absent):
    """With another SSD missing: neither is started with the SSDs of the other one."""
    stack = make_stack(make_disk)
    stack.volume.write(0, bytes(4096))
    stack.stop()
    tables = [Cache.line(stack.ssd), Cache.line([stack.ssd[0], None])]
    first, then = reversed(tables) if absent == "first" else tables
    command.run("dmsetup", "create", "c", "--notable")
    for _ in range(2):
        command.run("dmsetup", "load", "c", "--table", first)
    with pytest.raises(command.CommandError):
        command.run("dmsetup", "load", "c", "--table", then)
    assert kernel_log.matching("dmsetup clear, then load this table")
    command.run("dmsetup", "clear", "c")
    command.run("dmsetup", "load", "c", "--table", then)
    command.run("dmsetup", "resume", "c")
    cache = Cache("c")
    status = cache.status()
    assert (status["state"], status["devices_failed"]) == ("running", int(absent == "then"))
    cache.remove()


@pytest.mark.parametrize("which", [0, 1])
def test_one_that_is_missing_is_no_error(make_disk, which):
    """What was clean on it goes, read by nobody: a start without it, and what comes behind, counts no error of the others."""
    stack = make_stack(make_disk, writeback="off")
    v = stack.volume
    data = os.urandom(8 << 20)
    for at in range(0, len(data), 1 << 16):
        v.write(at >> 9, data[at : at + (1 << 16)])
    v.set(writeback="on")
    v.drain()
    stack.stop()
    start_without(stack, which)
    wait_for(lambda: stack.cache.status()["segments_lost"] == 0, 60, "what was on it to go")
    stack.cache.message("reclaim", stack.cache.status()["segments"])
    assert v.read(0, len(data) >> 9) == data
    assert (stack.cache.status()["errors_read"], stack.cache.status()["devices_failed"]) == (0, 1)
    stack.stop()


def test_one_that_left_has_another_owner(make_disk, make_oracle, kernel_log):
    """It was given a partition table since, which leaves its superblock as it was: nothing of it goes without --wipe."""
    stack, oracle = left_by_one(make_disk, make_oracle, kernel_log)
    stack.stop()
    late = stack.ssd[1]
    late.heal()
    entry = struct.pack("<8B2I", 0, 0, 2, 0, 0x83, 0, 0, 0, 2048, 4096)
    late.write(0, entry.rjust(446 + len(entry), b"\0").ljust(510, b"\0") + b"\x55\xaa")
    late.write(2048, b"F" * (1 << 20))  # what is in the partition
    start_without(stack, 1)
    before = late.read(0, 8192)
    for words in (("add", stack.cache, late), ("replace", stack.cache, "1", late)):
        run = larder("cache", *words, "--yes", check=False)
        assert run.returncode == 5 and "dos" in run.stderr and "--wipe" in run.stderr, run.stderr
    assert late.read(0, 8192) == before
    larder("cache", "add", stack.cache, late, "--wipe", "--yes")
    assert stack.cache.status()["devices_failed"] == 0 and late.read(0, 1)[510:] == bytes(2)
    oracle.verify()
    stack.verify_alone(oracle)


def test_one_that_left_is_refused_alone(make_disk, make_oracle, kernel_log):
    """After a power cut, before anything else was started: the disk knows that the others went on."""
    stack, oracle = left_by_one(make_disk, make_oracle, kernel_log)
    simdisk.power_cut(mode="lose")
    up(stack)
    refused_alone(stack, kernel_log)
    start_without(stack, 1)
    oracle.verify(after="crash")
    stack.verify_alone(oracle)


def test_sides_that_went_apart(make_disk, make_oracle, kernel_log):
    """Each SSD was started without the other: the volume goes with the one it ran with; both together are refused."""
    stack = make_stack(make_disk)
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=500)
    stack.stop()
    start_without(stack, 1)
    oracle.run(ops=500)
    stack.stop()
    cache = Cache.start([None, stack.ssd[1]])
    with pytest.raises(command.CommandError):
        Volume.start(stack.hdd, cache)
    # it may have the only copy of what was written: no SSD that has merely left
    for more, part in (([], "--wipe"), (["--wipe"], "--discard-dirty")):
        run = command.run("larder", "cache", "add", cache, stack.ssd[0], *more, "--yes", check=False)
        assert run.returncode == 5 and part in run.stderr, run.stderr
    cache.remove()
    with pytest.raises(command.CommandError):
        Cache.start(stack.ssd)
    assert kernel_log.matching("used without one another")
    start_without(stack, 1)
    oracle.verify()
    stack.verify_alone(oracle)


def test_sides_that_went_apart_beside_a_newer_set(make_disk, kernel_log):
    """Two tables of the same number with different tags are refused, wherever they and a newer one are."""
    stack = make_stack(make_disk, (48, 48, 48))
    stack.stop()
    saved = [s.read(TABLES["from_"], TABLES["to"] - TABLES["from_"]) for s in stack.ssd]
    changes = ("head.set_generation=+0", "head.set_generation=^2", f"head.set_generation=+{1 << 32}")
    for n, order in enumerate(itertools.permutations(changes), 1):
        for ssd, table, change in zip(stack.ssd, saved, order, strict=True):
            ssd.write(TABLES["from_"], table)
            damage(ssd, ("table-a", "table-b"), change)
        with pytest.raises(command.CommandError):
            Cache.start(stack.ssd)
        assert len(kernel_log.matching("used without one another")) == n, order
    for ssd, table in zip(stack.ssd, saved, strict=True):
        ssd.write(TABLES["from_"], table)
    stack.start()
    assert stack.cache.status()["devices_failed"] == 0
    stack.stop()


def test_stale_one_whose_table_has_the_highest_generation(make_disk, kernel_log):
    """Each of two SSDs was used without the other: one of them saw many changes, and the other one got a third SSD, with which it
    is the newest set.  So many places as that has there are, and what was used alone is stale."""

    def generations(ssd: simdisk.Simdisk) -> tuple[int, int]:
        """Of the set, by its number, and of the table."""
        table = max((ssd.read(place, 1) for place in (256, 512)), key=lambda t: struct.unpack_from("<Q", t, 8))
        generation, of_the_set = struct.unpack_from("<QQ", table, 8)
        return of_the_set >> 32, generation

    def change(cache: Cache, times: int) -> None:
        for i in range(times):
            cache.set(roles=("write", "both")[i % 2])

    ssds = make_ssds(make_disk, (48, 48, 48))
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssds[:2], hdd, format_volume=("--cache", "c"), writeback="off")
    stack.volume.write(SECTOR, OLD)
    stack.volume.drain()
    stack.stop()
    cache = Cache.start([None, ssds[1]])
    change(cache, 40)
    cache.remove()
    start_without(stack, 1)
    larder("cache", "add", stack.cache, ssds[2], "--new-place", "--yes")
    stack.volume.write(SECTOR, NEW)
    stack.volume.flush()
    stack.stop()
    (newest_set, newest_table), stale, third = (generations(s) for s in ssds)
    assert third == (newest_set, newest_table) and stale[0] < newest_set and stale[1] > newest_table
    stack.ssd = ssds
    stack.start()
    assert stack.cache.status()["ssds"] == "active/failed/active" and kernel_log.matching("SSD 1 .* is stale")
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


def test_tables_of_the_newest_cannot_be_read(make_disk, kernel_log):
    """A start does not go on with the SSD that was left, whose table alone can be read: the next one has all."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, writeback="off")
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    stack.stop()
    start_without(stack, 1)
    stack.volume.write(SECTOR, NEW)
    stack.volume.flush()
    stack.stop()
    before = [s.stats()["writes"] for s in stack.ssd]
    stack.ssd[0].fail(op="read", status="ioerr", **TABLES)
    with pytest.raises(command.CommandError):
        Cache.start(stack.ssd)
    assert kernel_log.matching("SSD 0 of .* its table cannot be read, and it is of a newer set than the others")
    assert stack.ssd[0].faults()[0]["hits"] and [s.stats()["writes"] for s in stack.ssd] == before
    stack.ssd[0].heal()
    stack.start()
    assert stack.cache.status()["ssds"] == "active/failed" and kernel_log.matching("SSD 1 .* is stale")
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


CHUNK = 128  # sectors (docs/on-disk-format.md, section 6)


def craft_chain(chunk: bytearray, number: int, again: bool) -> None:
    """The second copy of the segment in which the log is names a third one on the SSD of the first.  number: segments of an SSD."""
    at, end, names = 64, 64 + struct.unpack_from("<I", chunk, 28)[0], {}
    while at < end:
        kind, _, stream, count, first = struct.unpack_from("<BBHIQ", chunk, at)
        at += 16
        if kind == 4 and stream == 0 and count:  # STREAM
            (log,) = struct.unpack_from("<I", chunk, at)
        if kind == 5:  # SEGMENTS
            names |= {first + i: at + 16 * i + 4 for i in range(count)}
        at += count * {1: 8, 2: 8, 3: 8, 4: 32, 5: 16, 6: 0}[kind]
    (second,) = struct.unpack_from("<I", chunk, names[log])
    assert second and log // number != (second - 1) // number
    third = log if again else log // number * number + (log + number // 2) % number
    struct.pack_into("<I", chunk, names[second - 1], third + 1)
    struct.pack_into("<I", chunk, 4, crc32c(bytes(chunk[:4]) + bytes(4) + bytes(chunk[8:])))


@pytest.mark.parametrize("again", [False, True])
def test_chain_of_copies_comes_to_an_ssd_again(make_disk, again):
    """A crafted checkpoint of two SSDs: the second copy of the segment in which the log is names a third one beside the first,
    or the first again."""
    stack = small_stack(make_disk, ssds=2)
    content = {64 * i: bytes([i + 1]) * 4096 for i in range(40)}
    for i, (sector, data) in enumerate(content.items()):
        stack.volume.write(sector, data)
        if i == 20:
            stack.volume.flush()
            stack.cache.message("checkpoint")
    stack.volume.flush()
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    first, size, number = segment_layout(stack.ssd[0])
    used, _, segment, _, _, mirror = struct.unpack_from("<QQIIQI", stack.ssd[0].read(8, 8), 288 + 8)  # checkpoint[0]
    assert used == CHUNK * 512
    for copy in (segment, mirror - 1):
        ssd, at = stack.ssd[copy // number], first + copy % number * size
        chunk = bytearray(ssd.read(at, CHUNK))
        craft_chain(chunk, number, again)
        ssd.write(at, bytes(chunk))
        ssd.flush()
    stack.start()
    assert not [s for s, data in content.items() if stack.volume.read(s, 8) != data]
    stack.stop()


def test_wrong_sets(make_disk, kernel_log):
    ssds = make_ssds(make_disk, (48, 48, 48))
    Cache.format("c", ssds[:2])
    Cache.format("d", ssds[2])
    for line, text in (
        ([ssds[0]], "number 0 of a set of 2"),
        ([ssds[0], ssds[0]], "give each SSD of the set once"),
        ([ssds[0], ssds[2]], "number 0 of a set of 1"),
        ([None, None], ""),
    ):
        with pytest.raises(command.CommandError):
            Cache.create("c", f"0 8192 larder-cache {len(line)} {' '.join(str(s or '-') for s in line)} 0")
        assert not text or kernel_log.matching(text), text
    assert larder("cache", "list").returncode == 0
    cache = Cache.start([ssds[1], ssds[0]])
    assert cache.status()["devices"] == 2
    cache.remove()


def test_table_without_one_that_has_not_left(make_disk, kernel_log):
    """Of a running cache: refused as it is loaded, not as the cache and its volumes are suspended for it."""
    stack = make_stack(make_disk)
    stack.volume.write(4096, b"o" * 4096)
    for given in ([stack.ssd[0], None], [None, stack.ssd[1]]):
        with pytest.raises(command.CommandError):
            stack.cache.load(Cache.line(given, **stack.cache_options))
        assert kernel_log.matching(f"SSD {given.index(None)} is in use, and the table has '-' for it")
        assert not stack.cache.table(inactive=True)
    stack.cache.load(Cache.line(stack.ssd, **stack.cache_options))
    stack.cache.suspend()
    stack.cache.resume()
    assert stack.volume.read(4096, 8) == b"o" * 4096
    stack.stop()


def test_one_cannot_be_read_behind_the_load(make_disk, kernel_log):
    """...of a table: the cache goes on with it all the same, as there are second copies."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk)
    stack.volume.write(4096, b"o" * 4096)
    stack.volume.flush()
    stack.cache.load(Cache.line(stack.ssd, **stack.cache_options))
    for ssd in stack.ssd:
        kill(ssd, "read")
        stack.cache.resume()
        ssd.heal()
        assert stack.volume.read(4096, 8) == b"o" * 4096
        stack.cache.load(Cache.line(stack.ssd, **stack.cache_options))
    stack.cache.resume()
    stack.stop()


@pytest.mark.parametrize("then", ["the one that left", "all"])
def test_backing_that_does_not_take_the_generation(make_disk, make_oracle, kernel_log, then):
    """Its superblock cannot be written when an SSD leaves: nothing of its volume is written or flushed with success before it can,
    for it would accept the SSD that has left, alone.  Another volume of the cache goes on."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk)
    other_disk = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("w", other_disk, "--cache", "c")
    other = Volume.start(other_disk, stack.cache, "w")
    oracle = make_oracle(stack.volume, size="32m")
    oracle.run(ops=1500)
    stack.hdd.fail(op="write", from_=0, to=2048, status="ioerr")  # both copies of the superblock
    events = [d.events() for d in (stack.volume, other)]
    kill(stack.ssd[1])
    oracle.run(ops=600, until_error=True)
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 30, "the SSD to leave")
    wait_for(lambda: stack.volume.events() - events[0] > other.events() - events[1] > 0, 30, "an event more than the other one has")
    for _ in range(3):
        with pytest.raises(OSError):
            stack.volume.write(0, bytes(4096))
        with pytest.raises(OSError):
            stack.volume.discard(64, 8)
        with pytest.raises(OSError):
            stack.volume.flush()
    assert kernel_log.matching("must name the SSDs left")
    other.write(0, b"w" * 4096)
    other.flush()
    if then == "all":
        stack.hdd.heal()
        stack.volume.take_told()
        stack.volume.flush()
        oracle = make_oracle(stack.volume, size="32m", offset="40m")
        oracle.run(ops=500)
        oracle.verify()
        other.remove()
        stack.verify_alone(oracle)
        return
    other.remove()
    stack.stop()
    stack.hdd.heal()
    stack.ssd[1].heal()
    start_without(stack, 0)
    oracle.verify(after="crash")
    oracle.verify()
    with pytest.raises(command.CommandError):
        Volume.start(other_disk, stack.cache, "w")  # it knows better
    stack.verify_alone(oracle)


def test_what_has_decayed_on_one(make_disk, seed):
    """A slot that has decayed on one SSD is what it was again; one that has on both is not read any more."""
    stack = make_stack(make_disk, (32, 32), writeback="off")
    w = Written(stack, seed)
    data = [w.write(i * 64) for i in range(3)]
    commit(stack)
    at = [places(s, data[0])[0] for s in stack.ssd]
    before = stack.ssd[1].read(at[1], 8)
    flip(stack.ssd[1], at[1])
    for s in stack.ssd:
        flip(s, places(s, data[1])[0])
    stack.cache.message("scrub")
    wait_for(lambda: stack.cache.status()["scrub"] == "done", 60, "the scrub")
    status = stack.cache.status()
    assert [status[f"scrub_{k}"] for k in ("errors", "repaired", "dropped", "unrepairable")] == [3, 1, 0, 1]
    assert stack.ssd[1].read(at[1], 8) == before
    with pytest.raises(OSError):
        stack.volume.read(64, 8)
    assert stack.volume.read(0, 8) == data[0] and stack.volume.read(128, 8) == data[2]
    w.write(64)
    assert w.wrong(stack.volume) == {}
    stack.stop()


def test_chunks_of_either_copy(make_disk, kernel_log):
    """Of a checkpoint's segment the first SSD has lost one chunk, the other one the next: each chunk counts for itself."""
    ssds, hdd = make_ssds(make_disk, (512, 512)), make_disk("hdd0", model="null", mb=64, wce=1)  # its segments fill two chunks
    stack = Stack(ssds, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), writeback="off")
    stack.volume.write(0, NEW)
    for _ in range(2):
        stack.cache.message("checkpoint")
    stack.stop()
    for named in range(2):
        pointer = 288 + 64 * named
        number, other = (struct.unpack_from("<I", ssds[0].read(8, 8), pointer + at)[0] for at in (24, 40))
        assert other
        for chunk, segment in enumerate((number, other - 1)):
            for s in ssds:
                first, size, n = segment_layout(s)
                index = segment - struct.unpack_from("<I", s.read(8, 8), 228)[0]
                if 0 <= index < n:
                    at = first + index * size + 128 * chunk
                    assert s.read(at, 8)[:4] == b"LCHK"
                    flip(s, at)
    stack.start()
    for chunk in range(2):
        assert bool(kernel_log.matching(f"chunk {chunk} of a checkpoint is damaged")) == (chunk == 0)
    assert stack.volume.read(0, 8) == NEW
    stack.stop()


@pytest.mark.parametrize("which", [0, 1])
def test_what_neither_has_is_left_alone(make_disk, seed, which):
    """A durable record, one slot of it damaged on both SSDs and another on one: the start mends that one from what is whole, and
    writes to neither of what it cannot mend."""
    stack = make_stack(make_disk, (32, 32), writeback="off")
    w = Written(stack, seed)
    data = w.write(0, 3 * SLOT)
    commit(stack)
    w.write(64)  # its block says that the record before it is durable
    commit(stack)
    cut(stack.ssd, "keep")
    up(stack)
    at = [places(s, data)[0] for s in stack.ssd]
    for i, s in enumerate(stack.ssd):
        flip(s, at[i], 100 + i)
    flip(stack.ssd[which], at[which] + 2 * SLOT)
    damaged = [s.read(a, SLOT) for s, a in zip(stack.ssd, at, strict=True)]
    assert damaged[0] != damaged[1]
    stack.start()
    assert stack.volume.read(SLOT, 2 * SLOT) == data[4096:]
    for s, a, slot in zip(stack.ssd, at, damaged, strict=True):
        assert s.read(a, SLOT) == slot and s.read(a + SLOT, 2 * SLOT) == data[4096:], f"{s}"
    stack.stop()


# ------------------------------------------------------------------ roles


def roles(*given: str) -> tuple:
    return tuple(w for r in given for w in ("--role", r))


MB = 1 << 20


def written(stack: Stack) -> list[int]:
    """MiB that each SSD was sent since the last reset."""
    return [s.stats()["wbytes"] // MB for s in stack.ssd]


def test_roles_are_honoured(make_disk):
    """Two small ones take the write stream, a large one what is clean: counted at each."""
    stack = make_stack(make_disk, (48, 48, 96), format_cache=roles("write", "write", "read"), writeback="off", sequential_cutoff=0)
    status = stack.cache.status()
    assert (status["roles"], status["roles_honoured"]) == ("write/write/read", 1)
    for s in stack.ssd:
        s.reset_stats()
    for i in range(16):
        stack.volume.write(i * 2048, bytes([i]) * MB)
    stack.volume.flush()
    first, second, third = written(stack)
    assert first >= 16 and second >= 16 and third == 0
    for s in stack.ssd:
        s.reset_stats()
    for i in range(32, 48):
        assert stack.volume.read(i * 2048, 2048) == bytes(MB)
    stack.cache.message("commit")
    first, second, third = written(stack)
    filled = stack.volume.status()["fill_sectors"] * 512 // MB  # some may have been dropped
    assert first <= 1 and second <= 1 and third >= filled > 0
    stack.restart()
    assert stack.cache.status()["roles"] == "write/write/read"
    stack.hdd.reset_stats()
    for i in range(48):
        assert stack.volume.read(i * 2048, 2048) == (bytes([i]) * MB if i < 16 else bytes(MB))
    stack.stop()


@pytest.mark.parametrize(
    ("sizes", "given", "mirror"),
    [
        ((32, 96), ("write", "read"), "none"),
        ((32, 96), ("write", "read"), "dirty"),
        ((24, 24, 64), ("write", "both", "read"), "dirty"),
        ((24, 24, 64), ("write", "write", "read"), "all"),
    ],
)
def test_content_with_roles(make_disk, make_oracle, sizes, given, mirror):
    """More is written than those that take the writes can hold: they are emptied for what is new, and for nothing else."""
    stack = make_stack(make_disk, sizes, format_cache=roles(*given), cache_mirror=mirror)
    oracle = make_oracle(stack.volume, size="80m")
    switches = Switches(stack.volume, stack.cache)
    for _ in range(2):
        switches.run(oracle, "modes", "checkpoint", "evict", "suspend", ops=2500, every=60)
        oracle.verify()
        stack.restart()
        assert stack.cache.status()["roles"] == "/".join(given)
        oracle.verify()
    stack.verify_alone(oracle)


def test_small_one_that_takes_the_writes(make_disk):
    """It is written over and over, with nothing to keep on it, while the large one has room: no write waits for ever."""
    stack = make_stack(make_disk, (24, 96), format_cache=roles("write", "read"), cache_mirror="none", sequential_cutoff=0)
    fill_clean(stack)
    for s in stack.ssd:
        s.reset_stats()
    for i in range(96):
        stack.volume.write(BLOCKS.stop + i % 48 * 1024, bytes([i]) * (MB // 2))
    first, second = written(stack)
    assert first >= 48 and second <= 24  # what was hit may have moved
    assert stack.cache.status()["roles_honoured"] == 1
    for i in range(48, 96):
        assert stack.volume.read(BLOCKS.stop + i % 48 * 1024, 1024) == bytes([i]) * (MB // 2)
    assert misses(stack) == 0
    stack.stop()


def test_roles_that_cannot_be_honoured(make_disk, make_oracle, kernel_log):
    """Nobody is left who may take writes: the cache goes on, and says so; and when there is one again."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48), format_cache=roles("write", "read"))
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=1000)
    kill(stack.ssd[0])
    oracle.run(ops=800)
    status = stack.cache.status()
    assert (status["state"], status["devices_failed"], status["roles_honoured"]) == ("running", 1, 0)
    wait_for(lambda: kernel_log.matching("too few SSDs, or too small ones, are left for a role"), 10, "the line in the log")
    oracle.verify()
    stack.cache.set(roles="write/both")
    assert stack.cache.status()["roles_honoured"] == 1
    oracle.run(ops=500)
    stack.stop()
    stack.ssd = [None, stack.ssd[1]]
    stack.start()
    assert stack.cache.status()["roles"] == "write/both"
    oracle.verify()
    stack.verify_alone(oracle)


def test_roles_are_set(make_disk, make_oracle):
    """By message, by table, by the command; what is wrong is refused."""
    ssds = make_ssds(make_disk, (48, 48, 64))
    stack = Stack(ssds[:2], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"))
    assert stack.cache.status()["roles"] == "both/both" and "roles" not in stack.cache.table()
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=500)
    larder("cache", "set", stack.cache, "roles=write/read")
    assert " roles write/read" in stack.cache.table()
    stack.cache.reload(stack.cache.table())
    oracle.run(ops=500)
    for wrong in ("write/write/read", "none", "", "write/"):
        assert larder("cache", "set", stack.cache, f"roles={wrong}", check=False).returncode, wrong
    stack.restart()
    assert stack.cache.status()["roles"] == "write/read"
    larder("cache", "add", stack.cache, ssds[2], "--role", "write", "--yes")
    stack.ssd = ssds
    assert stack.cache.status()["roles"] == "write/read/write"
    assert larder("super", "show", ssds[2], "-o", "role", "--noheadings").stdout.strip() == "write"
    oracle.run(ops=500)
    stack.cache_options["roles"] = "both/both/read"
    stack.restart()
    del stack.cache_options["roles"]
    stack.restart()
    assert stack.cache.status()["roles"] == "both/both/read"
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.parametrize("what", ["roles", "mirror"])
def test_messages_to_a_suspended_cache_write_nothing(make_disk, trace, what):
    """What they ask for is written as the cache is resumed."""
    value = {"roles": "write/both/read", "mirror": "dirty:3"}[what]

    def is_written() -> bool:
        shown = [larder("super", "show", s, "-o", "role", "--noheadings").stdout.strip() for s in stack.ssd]
        return "/".join(shown) == value if what == "roles" else features(stack) == {THIRD}

    stack = make_stack(make_disk, (48, 48, 48), writeback="off")
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    assert not is_written()
    stack.cache.suspend()
    assert stack.cache.status()["state"] == "suspended"
    trace.clear()
    stack.cache.set(**{what: value})
    assert not [c for c in trace.commands() if c.op != "read"] and not is_written()
    stack.cache.resume()
    wait_for(is_written, 60, "what was asked for")
    assert any(trace.commands(s, "write") for s in stack.ssd), "the trace has nothing of them"
    assert stack.cache.status()[what] == value
    assert stack.volume.read(SECTOR, 8) == OLD
    stack.stop()


# ------------------------------------------------------------------ one ordering at a time (rule 14); tests/mutants breaks each

SECTOR = 4096  # of the volume: what these tests write
OLD, NEW = b"o" * 4096, b"n" * 4096


def cut(ssds: list[simdisk.Simdisk], mode: str = "lose") -> None:
    """Now, and everything well again after it; whoever still has something in flight gets an error."""
    simdisk.power_cut(mode=mode)
    for s in ssds:
        simdisk.wait_power_off(s)


def up(stack: Stack) -> None:
    stack.stop()
    for s in stack.ssd:
        s.heal()
    simdisk.power_up()


def never_old(stack: Stack, number: int) -> None:
    """What is served with this SSD alone, if anything is, is the new data."""
    try:
        cache = Cache.start([s if i == number else None for i, s in enumerate(stack.ssd)])
    except command.CommandError:
        return
    try:
        volume = Volume.start(stack.hdd, cache)
    except command.CommandError:
        cache.remove()
        return
    assert volume.read(SECTOR, 8) == NEW
    volume.remove()
    cache.remove()


def durable_on_the_slow_one(stack: Stack, slow: int, fua: bool) -> None:
    """When a write is durable, also on the SSD that is slow to take it; which the power cut leaves alone."""
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    stack.ssd[slow].fail(op="write", status="ok", delay_ms=1500)
    stack.volume.write(SECTOR, NEW, fua=fua)
    if not fua:
        stack.volume.flush()
    assert stack.ssd[slow].faults()[0]["hits"], "nothing was slow"
    cut(stack.ssd)
    up(stack)
    start_without(stack, *(set(range(len(stack.ssd))) - {slow}))
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("fua", [False, True])
def test_what_is_durable_is_on_both(make_disk, kernel_log, slow, fua):
    """A FUA write, or a write and a flush, that one SSD is slow to take; then a power cut that kills the other one."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, writeback="off")
    durable_on_the_slow_one(stack, slow, fua)


def slow_generation(stack: Stack, late: str | None, ssd: int) -> None:
    """The table of that SSD, or the superblock of the backing, is slow to be written."""
    if late == "ssd":
        stack.ssd[ssd].fail(op="write", status="ok", delay_ms=1500, **TABLES)
    elif late == "backing":
        stack.hdd.fail(op="write", status="ok", delay_ms=1500)


@pytest.mark.parametrize("late", ["ssd", "backing"])
def test_nothing_is_answered_before_the_generation(make_disk, kernel_log, late):
    """One SSD dies; the table of the other, or the superblock of the backing, is slow to be written.  What is answered meanwhile
    must not be forgotten by the one that died."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, writeback="off")
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    slow_generation(stack, late, 0)
    kill(stack.ssd[1])
    stack.volume.write(SECTOR, NEW)
    stack.volume.flush()
    assert (stack.ssd[0] if late == "ssd" else stack.hdd).faults()[0]["hits"], "nothing was slow"
    cut(stack.ssd)
    stack.hdd.heal()
    up(stack)
    never_old(stack, 1)
    start_without(stack, 1)
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


@pytest.mark.parametrize("status", ["reset", "hung"])
def test_discard_that_meets_a_reset_in_a_mirror(make_disk, kernel_log, status):
    """What was not flushed may be gone from that SSD, and be read from it: it leaves, as for a write; the other one has all."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|a discard failed")
    ssds = make_ssds(make_disk, (32, 32), discard="zero")
    options = {"writeback": "off", "sequential_cutoff": 0, "cache_checkpoint_percent": 50, "cache_discard": "on"}
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(ssds, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)
    ssds[1].fail(op="discard", status=status, skip=2, count=1)
    ssds[1].fail(op="discard", status="ok", delay_ms=300)  # something is written meanwhile
    content = {}
    for i in range(1500):
        content[8 * i] = i.to_bytes(2, "little") * 2048
        stack.volume.write(8 * i, content[8 * i])
        if ssds[1].faults()[0]["hits"]:
            break
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 60, "the SSD to leave")
    assert not [s for s, data in content.items() if stack.volume.read(s, 8) != data]
    stack.volume.flush()
    cut(stack.ssd)
    up(stack)
    start_without(stack, 1)
    assert not [s for s, data in content.items() if stack.volume.read(s, 8) != data]
    stack.stop()


@pytest.mark.parametrize("which", [0, 1])
def test_flush_that_one_fails(make_disk, kernel_log, which):
    """Once.  It leaves, as it may have lost what was to be flushed; nobody sees an error, for the other one has all of it."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|a flush failed")
    stack = make_stack(make_disk, writeback="off")
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    stack.volume.write(SECTOR, NEW)
    stack.ssd[which].fail(op="flush", status="ioerr", count=1)
    stack.volume.flush()
    assert stack.ssd[which].faults()[0]["hits"] == 1
    status = stack.cache.status()
    assert (status["state"], status["devices_failed"], status["trouble"]) == ("running", 1, "-")
    assert kernel_log.matching(f"SSD {which} .*the cache goes on without it; replace it")
    cut(stack.ssd)
    up(stack)
    never_old(stack, which)
    start_without(stack, which)
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


@pytest.mark.parametrize("other", ["ssd", "backing"])
def test_flush_that_two_devices_fail(make_disk, kernel_log, other):
    """One flush is failed by an SSD, which leaves, and by what stays.  That may have lost what was to be flushed, and says so once:
    the caller gets the error, and the next flush succeeds."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|a flush failed")
    stack = make_stack(make_disk, writeback="off")
    if other == "backing":
        stack.volume.set(mode="writearound")
        stack.volume.write(SECTOR + 4096, OLD)
        stack.volume.set(mode="writeback")
    stack.volume.write(SECTOR, NEW)
    late = stack.hdd if other == "backing" else stack.ssd[0]
    late.fail(op="flush", status="ioerr", delay_ms=1000, count=1)
    stack.ssd[1].fail(op="flush", status="ioerr")
    with pytest.raises(OSError):
        stack.volume.flush()
    assert late.faults()[0]["hits"] == 1
    stack.volume.flush()
    status = stack.cache.status()
    assert (status["state"], status["devices_failed"], status["trouble"]) == ("running", 1, "-")
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()
    start_without(stack, 1)
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


@pytest.mark.parametrize("late", ["ssd", "backing", None])
@pytest.mark.parametrize("power", [False, True])
def test_second_one_dies_before_the_generation(make_disk, kernel_log, late, power):
    """Two of three die, the second one before it is durable that the first one has left; the third one, in each pair by its size,
    holds everything: all goes on.  Also with a power cut as soon as both are gone."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (32, 32, 128), writeback="off")
    sectors = range(0, 64 * 400, 64)
    for sector in sectors:
        stack.volume.write(sector, OLD)
    stack.volume.flush()
    slow_generation(stack, late, 2)
    answered: set[int] = set()
    over = threading.Event()

    def write() -> None:
        # round and round: who is done before the second one is dead makes nobody find that out
        for sector in itertools.cycle(sectors):
            if over.is_set() and len(answered) == len(sectors):
                return
            stack.volume.write(sector, NEW)
            stack.volume.flush()
            answered.add(sector)

    kill(stack.ssd[0])
    with concurrent.futures.ThreadPoolExecutor(1) as writer:
        writing = writer.submit(write)
        try:
            wait_for(lambda: kernel_log.matching("SSD 0 .*the cache goes on without it"), 60, "the first one to leave")
            kill(stack.ssd[1])
            wait_for(lambda: kernel_log.matching("SSD 1 .*the cache goes on without it"), 60, "the second one to leave")
            if power:
                cut(stack.ssd)
                assert writing.exception()
        finally:
            over.set()
        if not power:
            writing.result()
            status = stack.cache.status()
            assert (status["state"], status["devices_failed"], status["mirrored"]) == ("running", 2, 0)
            assert all(stack.volume.read(sector, 8) == NEW for sector in sectors)
            cut(stack.ssd)
    stack.hdd.heal()
    up(stack)
    never = [s for s in sectors if s not in answered]
    start_without(stack, 0, 1)
    for sector in sectors:
        found = stack.volume.read(sector, 8)
        assert found == NEW or (sector in never and found == OLD), sector
    stack.stop()


@pytest.mark.parametrize("late", ["ssd", "backing"])
def test_second_generation_before_an_answer(make_disk, kernel_log, late):
    """Each of three has everything.  The second one dies while the generation without the first one is written: what is answered
    meanwhile must not be forgotten by that second one, which this generation names."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48), cache_mirror="dirty:3", writeback="off")
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    slow_generation(stack, late, 2)
    kill(stack.ssd[0])
    with concurrent.futures.ThreadPoolExecutor(1) as first:
        writing = first.submit(stack.volume.write, 2 * SECTOR, NEW)
        wait_for(lambda: any(d.faults()[0]["hits"] for d in (stack.ssd[2], stack.hdd) if d.faults()), 60, "the generation")
        kill(stack.ssd[1])
        stack.volume.write(SECTOR, NEW, fua=True)
        cut(stack.ssd)
        with contextlib.suppress(OSError):
            writing.result()
    stack.hdd.heal()
    up(stack)
    never_old(stack, 1)
    start_without(stack, 0, 1)
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


def test_backing_that_is_behind_is_told_what_is_durable(make_disk, kernel_log):
    """One of three dies, and the backing cannot be told.  When it can, the second one has just died, and the third one has not yet
    got the generation without it: a power cut then leaves a backing that was told one that the SSDs know."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|lost async page write")
    stack = make_stack(make_disk, (32, 32, 128), writeback="off")
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    stack.hdd.fail(op="write", status="ioerr")
    kill(stack.ssd[0])
    with contextlib.suppress(OSError):
        stack.volume.write(SECTOR + 64, NEW)
        stack.volume.flush()
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 60, "the first one to leave")
    wait_for(lambda: kernel_log.matching("must name the SSDs left"), 60, "the backing to be behind")
    stack.ssd[2].fail(op="write", status="ok", delay_ms=20000, **TABLES)
    kill(stack.ssd[1])

    def quietly(what: Callable[[], object]) -> None:
        with contextlib.suppress(OSError, command.CommandError):
            what()

    with concurrent.futures.ThreadPoolExecutor(2) as others:
        others.submit(quietly, lambda: stack.cache.message("stack", "-"))
        wait_for(lambda: stack.ssd[2].faults()[0]["hits"], 60, "the table without the second one")
        assert "superblock" in stack.volume.status()["trouble"]
        stack.hdd.heal()
        others.submit(quietly, lambda: stack.volume.write(SECTOR + 128, NEW))
        # by that write, or by a tick that came first
        wait_for(lambda: "superblock" not in stack.volume.status()["trouble"], 15, "the backing to be told")
        cut(stack.ssd)
    up(stack)
    start_without(stack, 0)
    assert stack.volume.read(SECTOR, 8) == OLD
    stack.stop()


def test_backing_is_told_before_it_is_written_back_to(make_disk):
    """A start without one of two, with much that is dirty: the backing knows the set before any of it is written.  Else a power
    cut could leave a backing that the other SSD, with what it has clean, takes for what it knows."""
    stack = make_stack(make_disk, writeback="off")
    for i in range(32):
        stack.volume.write(i * 256, NEW * 16)
    stack.volume.flush()
    stack.stop()
    stack.options |= {"writeback": "on", "writeback_percent": 0}
    stack.hdd.fail(op="write", status="ok", delay_ms=5000, from_=8, to=16)
    with simdisk.Trace() as trace:
        start_without(stack, 1)
        stack.hdd.heal()
        stack.volume.drain()
        writes = trace.commands(stack.hdd, "write")
    told = [w for w in writes if w.sector < DATA_SECTOR]
    data = [w for w in writes if w.sector >= DATA_SECTOR]
    assert {w.sector for w in told[:2]} == {8, DATA_SECTOR - 8} and data
    assert max(w.end for w in told[:2]) < data[0].seq
    stack.stop()


def test_generation_without_a_drained_one_is_written_again(make_disk, kernel_log):
    """The table of the other one could not be written at first: nothing is answered before it is."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|lost async page write")
    stack = make_stack(make_disk)
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    stack.ssd[0].fail(op="write", status="ioerr", count=1, **TABLES)
    stack.cache.message("drain", 1)
    wait_for(lambda: stack.ssd[0].faults()[0]["hits"], 120, "the table without it")
    stack.volume.write(SECTOR, NEW)
    stack.volume.flush()
    assert stack.cache.status()["ssds"] == "active/removed"
    cut(stack.ssd)
    up(stack)
    never_old(stack, 1)
    start_without(stack, 1)
    assert stack.cache.status()["ssds"] == "active/removed"
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


def two_die_with_all_opened(stack: Stack, kernel_log) -> None:
    """Of three; the one that is left has nothing that the log could go on in."""
    kill(stack.ssd[0])
    kill(stack.ssd[1])
    with contextlib.suppress(command.CommandError):
        stack.cache.message("stack", "-")
    wait_for(lambda: stack.cache.status()["state"] == "failed", 60, "the cache to fail")
    # said behind the change of state
    wait_for(lambda: kernel_log.matching("all segments that the log had opened were on SSDs which left"), 10, "the line in the log")


def test_all_that_was_opened_was_on_two_that_died(make_disk, kernel_log):
    """Of three; the third one is too small to be in a pair of theirs.  There is nothing left in which the log could say where it
    goes on: the cache fails and says why, clean data is read from the backing, and all can be stopped."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|lost async page write")
    stack = make_stack(make_disk, (128, 128, 32))
    stack.volume.write(SECTOR, OLD)
    stack.volume.drain()
    two_die_with_all_opened(stack, kernel_log)
    assert stack.volume.read(SECTOR, 8) == OLD
    stack.stop()


def test_pairs_that_were_on_two_that_died(make_disk, kernel_log):
    """Two of three die, which a superblock finds out; nothing was dirty.  The log had opened segments on just these two, and may
    have been in one: the third one goes on, and a start with it alone finds all that was flushed since."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48))
    sectors = range(0, 64 * 100, 64)
    for sector in sectors:
        stack.volume.write(sector, OLD)
    stack.volume.drain()
    kill(stack.ssd[0])
    kill(stack.ssd[1])
    with contextlib.suppress(command.CommandError):
        stack.cache.message("stack", "-")  # to the superblocks, not to the log
    wait_for(lambda: stack.cache.status()["devices_failed"] == 2, 30, "both to leave")
    wait_for(lambda: kernel_log.matching("the log goes on without the segments"), 60, "the log to go on")
    for sector in sectors:
        stack.volume.write(sector, NEW)
    stack.volume.flush()
    assert stack.cache.status()["state"] == "running"
    cut(stack.ssd)
    up(stack)
    start_without(stack, 0, 1)
    assert all(stack.volume.read(sector, 8) == NEW for sector in sectors)
    stack.stop()


SLOTS = 28  # of a segment of 128 KiB, without its summary


def small_segments(make_disk, *given: str, **more: object) -> Stack:
    """The first segments that the log opens are on the third SSD, each with its copy on one of the others; or by these roles."""
    given = roles(*(given or ("read", "read", "write")))
    disks, hdd = make_ssds(make_disk, (32, 32, 32)), make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0, "cache_checkpoint_percent": 50} | more
    stack = Stack(disks, hdd, format_cache=("--segment-size", "128k", *given), format_volume=("--cache", "c"), **options)
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    return stack


def newest(stack: Stack):
    """The last commit block, and the segments of the log on the third SSD."""
    blocks = [commit_blocks(s) for s in stack.ssd]
    return max((b for found in blocks for b in found), key=lambda b: b.sequence), {b.segment for b in blocks[2]}


def has_chunks(ssd: simdisk.Simdisk) -> bool:
    """Is a copy of the newest checkpoint's first chunk on it?"""
    sb = ssd.read(8, 8)
    (first,), (chunk,), (second,) = (struct.unpack_from("<I", sb, at) for at in (228, 288 + 24, 288 + 40))
    return any(0 <= n - first < segment_layout(ssd)[2] for n in (chunk, second - 1))


def write_up_to(stack: Stack, segment: int) -> list[int]:
    """Until the log is in the so-many'th one.  The sectors that have OLD * 8."""
    sectors: list[int] = []
    while stack.cache.status()["segments_write"] < segment:
        sectors.append(SECTOR + 64 * (1 + stack.volume.status()["dirty_sectors"] // 64))
        stack.volume.write(sectors[-1], OLD * 8)
        stack.volume.flush()
    return sectors


def both_die(stack: Stack, meanwhile: Callable[[], None]) -> None:
    """The first two; before the third one knows, this is done."""
    stack.ssd[2].fail(op="write", status="ok", delay_ms=3000, **TABLES)
    kill(stack.ssd[0])
    kill(stack.ssd[1])
    with concurrent.futures.ThreadPoolExecutor(2) as both:
        told = both.submit(lambda: stack.cache.message("stack", "-"))
        wait_for(lambda: stack.cache.status()["devices_failed"] == 2, 60, "both to leave")
        doing = both.submit(meanwhile)
        wait_for(lambda: told.done() and doing.done(), 90, "what is done meanwhile")
    doing.result()
    stack.ssd[2].heal()


def test_opened_ones_that_are_lost_are_not_used_up(make_disk, kernel_log):
    """What the log has opened is on two SSDs, which die; it is in a segment that the third one has, too.  Who writes before others
    are opened must not fill that one, or nothing can say any more where the log goes on."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = small_segments(make_disk)
    stack.cache.set(roles="write/write/read")  # what is opened from now on is on these two
    sectors = write_up_to(stack, 6)  # those that were opened before
    last, third = newest(stack)
    print(sorted(third), last, stack.cache.status()["segments_opened"])
    assert len(third) == 6 and last.segment in third
    large, whole = 32 << 11, b"n" * (27 * 4096)  # as much as a segment takes
    both_die(stack, lambda: stack.volume.write(large, whole))
    assert stack.cache.status()["state"] == "running"
    stack.volume.flush()
    assert stack.volume.read(large, 27 * 8) == whole and all(stack.volume.read(s, 64) == OLD * 8 for s in sectors)
    stack.stop()


def test_segment_that_was_full_as_two_died(make_disk, kernel_log):
    """What the log has opened is on two SSDs, which die as the segment of the third one that it is in is full: it can never go on.
    The cache fails and says why."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|lost async page write")
    stack = small_segments(make_disk)
    stack.cache.set(roles="write/write/read")
    write_up_to(stack, 6)
    last, third = newest(stack)
    data = SLOTS - last.slot - 2
    assert len(third) == 6 and last.segment in third and data > 0
    stack.volume.write(32 << 11, NEW * data)
    stack.volume.flush()
    last, third = newest(stack)
    assert len(third) == 6 and last.segment in third and last.slot == SLOTS - 1
    two_die_with_all_opened(stack, kernel_log)
    stack.stop()


def test_opened_ones_that_are_lost_are_passed_over(make_disk, kernel_log):
    """Two SSDs die; the log is in a segment of the third one, too, the next ones that it has opened are on these two, those behind
    them on the third one.  Who writes at once makes it pass over what is lost.  A start with the third one alone finds all that was
    flushed since: none would be able to look there."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = small_segments(make_disk)
    opened = stack.cache.status()["segments_opened"]
    stack.cache.set(roles="write/write/read")
    sectors = write_up_to(stack, 3)
    wait_for(lambda: stack.cache.status()["segments_opened"] >= opened, 30, "some to be opened on the first two")
    stack.cache.set(roles="read/read/write")
    sectors += write_up_to(stack, 6)
    wait_for(lambda: stack.cache.status()["segments_opened"] >= opened, 30, "some to be opened on the third one")
    last, third = newest(stack)
    print(sorted(third), last, stack.cache.status()["segments_opened"])
    assert len(third) == 6 and last.segment in third
    large, whole = 32 << 11, b"n" * (27 * 4096)
    both_die(stack, lambda: stack.volume.write(large, whole))
    wait_for(lambda: kernel_log.matching("the log goes on without the segments"), 60, "the checkpoint")
    stack.volume.flush()
    cut(stack.ssd)
    up(stack)
    start_without(stack, 0, 1)
    assert stack.volume.read(large, 27 * 8) == whole and all(stack.volume.read(s, 64) == OLD * 8 for s in sectors)
    stack.stop()


@pytest.mark.parametrize("kept", [False, True], ids=["left", "kept"])
def test_what_the_log_has_left_was_on_two_that_died(make_disk, kernel_log, kept):
    """A start would look there, though nothing of it is dirty: a checkpoint says that it need not, and the third SSD starts alone.
    kept: reclaim has put those segments into the keep stream since."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = small_segments(make_disk, **{"class": "any:pin-50"})
    opened = stack.cache.status()["segments_opened"]
    for _ in range(2):
        stack.cache.message("checkpoint")
    assert has_chunks(stack.ssd[2])
    stack.cache.set(roles="write/write/read")
    sectors = write_up_to(stack, 4)
    wait_for(lambda: stack.cache.status()["segments_opened"] >= opened, 30, "some to be opened on the first two")
    stack.cache.set(roles="read/read/write")
    sectors += write_up_to(stack, 14)
    stack.volume.drain()
    last, third = newest(stack)
    left = {b.segment for s in stack.ssd[:2] for b in commit_blocks(s)} - third
    print(sorted(third), sorted(left), last, stack.cache.status()["segments_opened"])
    assert last.segment in third and left
    if kept:
        stack.cache.message("reclaim", 20)
        assert stack.cache.status()["reclaim_relinked"] >= 10
    checkpoints = stack.cache.status()["checkpoints"]
    kill(stack.ssd[0])
    kill(stack.ssd[1])
    with contextlib.suppress(command.CommandError):
        stack.cache.message("stack", "-")
    wait_for(lambda: stack.cache.status()["devices_failed"] == 2, 60, "both to leave")
    wait_for(lambda: stack.cache.status()["checkpoints"] > checkpoints, 30, "a checkpoint")
    for sector in sectors:
        stack.volume.write(sector, NEW)
    stack.volume.flush()
    cut(stack.ssd)
    up(stack)
    start_without(stack, 0, 1)
    assert all(stack.volume.read(s, 64) == NEW + OLD * 7 for s in sectors)
    stack.stop()


@pytest.mark.limit(600)
@pytest.mark.parametrize("which", [0, 1])
def test_a_start_makes_the_missing_copies(make_disk, make_oracle, kernel_log, seed, which):
    """What a power cut left on one SSD only, and was shown, is shown when that one is lost after the start."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, model="nvme", jitter_ns=100000)
    stack = Stack(ssds, make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000), format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="16m")
    for cut_at in range(60):
        # a record of one slot is seldom whole on just one where much is kept, one of 27 hardly ever where little is
        keep = (50, 90, 97)[cut_at % 3]
        simdisk.power_cut(mode="random", seed=seed + cut_at, keep=keep, after=100 + (seed + 37 * cut_at) % 400)
        oracle.run_until_cut(ssds[0])
        stack.stop()
        simdisk.power_up()
        stack.start()
        oracle.verify(after="crash")
        if kernel_log.matching("were whole on one SSD only"):
            break
    else:
        raise AssertionError("no power cut left a record on one SSD only")
    stack.stop()
    start_without(stack, which)
    oracle.verify()
    stack.verify_alone(oracle)


def tables(stack: Stack) -> list[bytes]:
    """Both places on every SSD."""
    return [s.read(at, 256) for s in stack.ssd for at in (TABLES["from_"], TABLES["from_"] + 256)]


@pytest.mark.parametrize("mode", ["lose", "torn"])
@pytest.mark.parametrize("sizes", [(48, 48), (48, 48, 48)], ids=["2", "3"])
def test_a_change_of_the_tables_is_cut_off(make_disk, kernel_log, sizes, mode):
    """At each of its writes, and at writes of the start behind it: each SSD is a member still, with the newest table in both
    places, also after one start more, and by itself."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, sizes, writeback="off")
    stack.volume.write(SECTOR, NEW)
    apart = 0
    for after, again in itertools.product(range(1, 2 * len(sizes) + 1), range(3)):
        stack.volume.flush()
        role = "read" if stack.cache.status()["roles"].endswith("both") else "both"
        simdisk.power_cut(mode=mode, seed=after, after=after, ops="write")
        with contextlib.suppress(command.CommandError):
            stack.cache.set(roles="/".join(["both"] * (len(sizes) - 1) + [role]))
        cut(stack.ssd, mode)
        up(stack)
        apart += len(set(tables(stack)[::2])) > 1 or len(set(tables(stack)[1::2])) > 1
        if again:
            simdisk.power_cut(mode=mode, seed=again, after=again, ops="write")
            with contextlib.suppress(command.CommandError):
                stack.start()
            cut(stack.ssd, mode)
            up(stack)
        # before a volume is bound, which writes them, too
        stack.cache = Cache.start(stack.ssd, **stack.cache_options)
        assert stack.cache.status()["devices_failed"] == 0, (after, again)
        assert len(set(tables(stack))) == 1, (after, again)
        cut(stack.ssd, mode)
        up(stack)
        for _ in range(2):
            stack.start()
            assert stack.cache.status()["devices_failed"] == 0, (after, again)
            assert stack.volume.read(SECTOR, 8) == NEW
            assert len(set(tables(stack))) == 1, (after, again)
            stack.stop()
        stack.start()
    assert apart, "no SSD had a table that another one had not"
    stack.stop()
    start_without(stack, 0)
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_a_flush_fails_in_a_start(make_disk, kernel_log, skip):
    """The first one, that of the superblock that was found, or that behind the checkpoint of the new epoch; the power fails at
    each of the writes that follow, if there are any.  The start is refused, and leaves what the next one needs on either SSD."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, writeback="off")
    stack.volume.write(SECTOR, NEW)
    stack.stop()
    refused = failed = 0
    for after in range(1, 13):
        simdisk.power_cut(mode="lose", after=after, ops="write")
        stack.ssd[1].fail(op="flush", status="ioerr", skip=skip)
        try:
            stack.start()
        except command.CommandError:
            refused += 1
        failed += stack.ssd[1].faults()[0]["hits"] > 0
        cut(stack.ssd)
        up(stack)
        stack.start()
        assert stack.cache.status()["devices_failed"] == 0, after
        assert stack.volume.read(SECTOR, 8) == NEW
        stack.stop()
    assert refused == 12 and failed


@pytest.mark.parametrize("starts", [1, 3])
@pytest.mark.parametrize("where", ["superblock", "copy", "power", "table"])
def test_a_start_without_one_does_not_come_to_its_end(make_disk, kernel_log, where, starts):
    """Its superblocks, or the table behind them, cannot be written, or power is cut then; once, or again and again: the one that
    was missing is a member still, and none that is put back from an image."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|cannot write|could not be written")
    stack = make_stack(make_disk, writeback="off")
    stack.volume.write(SECTOR, NEW)
    stack.volume.flush()
    cut(stack.ssd)
    up(stack)
    end = stack.ssd[0].sectors
    places = {"superblock": (8, 16), "copy": (end - 8, end - 1), "table": (TABLES["from_"], TABLES["to"])}
    for _ in range(starts):
        if where == "power":
            simdisk.power_cut(mode="keep", after=1, ops="write")
        else:
            stack.ssd[0].fail(op="write", from_=places[where][0], to=places[where][1], status="ioerr")
        with pytest.raises(command.CommandError):
            start_without(stack, 1)
        stack.ssd[0].heal()
        cut(stack.ssd, "keep")
        up(stack)
    stack.start()
    assert stack.cache.status()["devices_failed"] == 0
    stack.stop()
    start_without(stack, 0)
    assert stack.volume.read(SECTOR, 8) == NEW
    stack.stop()


def description(ssd: simdisk.Simdisk) -> bytes:
    """That of the stacks, in its superblock (docs/on-disk-format.md)."""
    return ssd.read(8, 8)[928 : 928 + 2048]


def test_a_description_is_cut_off(make_disk, kernel_log):
    """At each of its writes: some SSDs have the new one, others the old one, until the start behind it."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|cannot write")
    stack = make_stack(make_disk, writeback="off")
    apart = 0
    for after in range(1, 5):
        simdisk.power_cut(mode="lose", after=after, ops="write")
        with contextlib.suppress(command.CommandError):
            stack.cache.message("stack", f"{after:02x}" * 64)
        cut(stack.ssd)
        up(stack)
        apart += description(stack.ssd[0]) != description(stack.ssd[1])
        stack.start()
        assert description(stack.ssd[0]) == description(stack.ssd[1]), after
    assert apart, "both always had the same one"
    stack.stop()


def test_one_that_joins_is_told_last(make_disk, kernel_log):
    """A power cut as soon as it has a table of its own: then the others know the generation, and the backing."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk)
    stack = Stack(ssds[:1], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), writeback="off")
    stack.volume.write(SECTOR, OLD)
    stack.volume.flush()
    # the first two writes give the new one its place
    ssds[0].fail(op="write", status="ok", delay_ms=2000, skip=2, **TABLES)
    larder("cache", "add", stack.cache, ssds[1], "--yes", "--no-wait")
    stack.ssd = ssds
    assert not any(ssds[1].read(256, 1)), "the table of the new SSD is there before that of the other one"
    wait_for(lambda: any(ssds[1].read(256, 1)), 60, "the table of the new SSD")
    assert ssds[0].faults()[0]["hits"], "nothing was slow"
    cut(ssds)  # what is in flight to the other one is lost
    up(stack)
    start_without(stack, 1)
    stack.volume.write(SECTOR, NEW)
    stack.volume.flush()
    stack.stop()
    never_old(stack, 1)


def test_second_copies_where_clean_data_was(make_disk):
    """What was reclaimed since the last checkpoint becomes second copies of the log: a replay must drop what that checkpoint maps
    there (rule 9)."""
    ssds, hdd = make_ssds(make_disk, (24, 24)), make_disk("hdd0", model="null", mb=128, wce=1)
    pages = sum(s.sectors for s in ssds) // 8
    write_pattern(hdd, pages)
    stack = Stack(ssds, hdd, format_volume=("--cache", "c"), cache_checkpoint_percent=50, sequential_cutoff=0, writeback="off")
    number = 12  # pieces of 128 KiB: pairs of segments, far fewer than are free then, and than make a checkpoint due
    for _ in range(5):
        stack.volume.set(fill="on")
        # more than it holds; again in each try: what one has reclaimed is no data of the next one's checkpoint
        for first in range(0, pages, 16):
            stack.volume.read(8 * first, 128)
        stack.cache.message("commit")
        stack.volume.set(fill="off")
        for _ in range(2):
            stack.cache.message("checkpoint")
        before = stack.cache.status()
        stack.cache.message("reclaim", 120)
        for i in range(number):
            stack.volume.write(8 * pages + 256 * i, bytes([i + 1]) * (128 << 10))
        stack.volume.flush()
        after = stack.cache.status()
        if after["checkpoints"] == before["checkpoints"]:
            break
    else:
        raise AssertionError("each time the cache took a checkpoint by itself")
    dropped, opened = (after[key] - before[key] for key in ("reclaim_dropped_slots", "segment_opens"))
    assert dropped > 40 * number and opened >= number, "what was reclaimed is used again"
    cut(ssds, "keep")
    up(stack)
    stack.start()
    stack.volume.set(fill="off")
    assert stack.cache.status()["live_sectors"] > pages
    assert not not_pattern(stack.volume, pages)
    assert not [i for i in range(number) if stack.volume.read(8 * pages + 256 * i, 256) != bytes([i + 1]) * (128 << 10)]
    stack.stop()


@pytest.mark.parametrize("when", ["at the start", "later", "never"])
def test_pairs_opened_behind_the_end(make_disk, kernel_log, when):
    """The log ends in a torn record that opens a segment anew, with another second copy: nothing was written to that one yet, and
    what the checkpoint maps to the segment is read from the second copy that it has, when its SSD is lost.  never: it is not, and
    the other second copy is a segment that has dirty data, as a first copy: which stays what it is, checksums and all."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack, content = small_stack(make_disk, 3), {}

    def write_more(number: int) -> None:
        for i in range(len(content), len(content) + number):
            content[SECTOR + 64 * i] = block(i + 1)
            stack.volume.write(SECTOR + 64 * i, block(i + 1))
        commit(stack)

    write_more(60)
    # how many SSDs have first copies is up to how fast segments were opened
    while when == "never" and sum(any(b.own for b in commit_blocks(s)) for s in stack.ssd) < 2:
        assert len(content) < 400
        write_more(30)
    taken = next(b for s in stack.ssd for b in commit_blocks(s) if b.own)
    for _ in range(2):
        stack.cache.message("checkpoint")
    before = stack.cache.status()["records_applied"]
    stack.volume.write(0, NEW)
    wait_for(lambda: stack.cache.status()["records_applied"] > before, 60, "the commit block")
    cut(stack.ssd, "keep")
    up(stack)
    blocks = [b for s in stack.ssd for b in commit_blocks(s)[-1:]]
    torn = [b for b in blocks if b.sequence == max(b.sequence for b in blocks)]
    other = next(s for s in stack.ssd if s is not taken.ssd and (when != "never" or any(b.own for b in commit_blocks(s))))
    first, size, number = segment_layout(other)
    blank = next(i for i in range(number // 2, number) if not any(other.read(first + size * i, size)))
    second = struct.unpack_from("<I", other.read(8, 8), 228)[0] + blank
    if when == "never":
        second = next(b for b in commit_blocks(other) if b.own).segment
    entry = ("kind=6", f"sector={taken.segment}", f"cache={second + 1}", "length=0")
    assert len(torn) == 2
    for b in torn:
        assert b.ssd.read(b.sector - 8, 8) == NEW
        b.ssd.write(b.sector - 8, OLD)
        damage(b.ssd, (f"byte:{512 * b.sector}:larder_commit",), *(f"entry[0].{change}" for change in entry))
    if when != "at the start":
        stack.start()
    if when == "later":
        kill(taken.ssd)
    elif when == "at the start":
        start_without(stack, stack.ssd.index(taken.ssd))
    assert {s: stack.volume.read(s, 8) for s in content} == content
    assert stack.volume.read(0, 8) == bytes(4096)
    if when == "never":
        stack.volume.drain()
        status = stack.cache.status()
        assert (status["unchecked_slots"], status["errors_checksum"]) == (0, 0) and status["checked_slots"] > 0
    stack.stop()


@pytest.mark.parametrize("lost", [0, 2])
def test_second_copies_come_back(make_disk, kernel_log, seed, lost):
    """One SSD of three dies.  As soon as the status says that all is well a power cut takes what is not durable, and a second SSD:
    nothing is lost."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48), writeback="off", sequential_cutoff=0)
    r, image = random.Random(seed), bytearray(16 << 20)
    for i in range(400):  # of odd places and lengths, many of them written over in part
        sector, data = r.randrange((len(image) >> 9) - 256), bytes([i % 255 + 1]) * (512 * r.choice((1, 5, 8, 64, 256)))
        image[sector << 9 : (sector << 9) + len(data)] = data
        stack.volume.write(sector, data)
    stack.volume.flush()
    left = [s for i, s in enumerate(stack.ssd) if i != 1]
    for s in left:
        s.reset_stats()
    kill(stack.ssd[1])
    stack.volume.write(0, bytes(image[:512]))
    stack.cache.message("checkpoint")  # writes to every SSD
    status = resynced(stack)
    assert status["resync_sectors"] > 0 and status["dirty_sectors"] > 0
    assert sum(s.stats()["wbytes"] for s in left) >= 2 * 512 * status["resync_sectors"]
    assert kernel_log.matching("sectors of dirty data have one copy")
    wait_for(lambda: kernel_log.matching("all dirty data has two copies again"), 10, "the line in the log")  # said behind the state
    cut(stack.ssd)
    up(stack)
    start_without(stack, 1, lost)
    for first in range(0, len(image), 1 << 20):
        assert stack.volume.read(first >> 9, 2048) == image[first : first + (1 << 20)], f"at {first}"
    stack.stop()


# ------------------------------------------------------------------ three copies


THIRD = 1  # the feature of the superblocks


def features(stack: Stack) -> set[int]:
    """The incompatible features of all superblocks."""
    return {struct.unpack("<Q", s.read(8, 8)[56:64])[0] for s in stack.ssd}


def all_three(stack: Stack, seconds: int = 120) -> dict:
    """What is dirty has all copies that the level asks for.  Status."""
    wait_for(lambda: (s := stack.cache.status())["resync"] == "idle" and not s["below_sectors"], seconds, "the third copies")
    return stack.cache.status()


def many_writes(stack: Stack, seed: int, number: int = 300) -> bytearray:
    """Of odd places and lengths, many of them written over in part.  What the volume has then, all of it dirty."""
    r, image = random.Random(seed), bytearray(12 << 20)
    for i in range(number):
        sector, data = r.randrange((len(image) >> 9) - 256), bytes([(i + seed) % 255 + 1]) * (512 * r.choice((1, 5, 8, 64, 256)))
        image[sector << 9 : (sector << 9) + len(data)] = data
        stack.volume.write(sector, data)
    stack.volume.flush()
    return image


def has(stack: Stack, image: bytearray) -> None:
    for first in range(0, len(image), 1 << 20):
        assert stack.volume.read(first >> 9, 2048) == image[first : first + (1 << 20)], f"at {first}"


@pytest.mark.parametrize("alone", [0, 1, 2])
def test_three_copies_each_alone(make_disk, kernel_log, seed, alone):
    """What was flushed is on each of three, with the log that says so: a power cut, and any one of them is enough."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48), cache_mirror="dirty:3", writeback="off", sequential_cutoff=0)
    assert features(stack) == {THIRD}
    image = many_writes(stack, seed)
    status = stack.cache.status()
    assert status["below_sectors"] == 0 and status["dirty_sectors"] > 0 and status["segments_mirror"] > 2
    cut(stack.ssd)
    up(stack)
    start_without(stack, *({0, 1, 2} - {alone}))
    has(stack, image)
    assert stack.cache.status()["devices_failed"] == 2
    stack.stop()


@pytest.mark.parametrize("slow", [0, 1, 2])
@pytest.mark.parametrize("fua", [False, True])
def test_three_copies_what_is_durable(make_disk, kernel_log, slow, fua):
    """A FUA write, or a write and a flush, that one SSD is slow to take; then a power cut that kills the other two."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48), cache_mirror="dirty:3", writeback="off")
    durable_on_the_slow_one(stack, slow, fua)


@pytest.mark.parametrize("control", ["modes", "writeback", "checkpoint evict"])
@pytest.mark.parametrize("lost", [(0, 1), (2, 0), (1, 2)], ids=str)
def test_three_copies_two_fail_under_load(make_disk, make_oracle, kernel_log, seed, control, lost):
    """At some time each: all goes on, and is there after a restart without them."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48), cache_mirror="dirty:3")
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=1000)
    for i, which in enumerate(lost):
        stack.ssd[which].fail(op="read,write,flush,discard,zeroes", status="ioerr", skip=seed * (7919 + i * 104729) % 600)
    Switches(stack.volume, stack.cache).run(oracle, *control.split(), ops=1200, every=40)
    until_left(stack, oracle, 2)
    oracle.verify()
    status = stack.cache.status()
    assert (status["devices_failed"], status["mirrored"], status["state"]) == (2, 0, "running")
    stack.stop()
    start_without(stack, *lost)
    oracle.verify()
    oracle.run(ops=500)
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.parametrize("ssds, alone", [(n, alone) for n in (2, 3) for alone in (None, *range(n))])
def test_copies_where_copies_were(make_disk, kernel_log, ssds, alone):
    """Further copies that were given up, as what they hold is clean, become further copies of the log, before a checkpoint forgets
    what they waited for.  A start knows them as what they are: all that was flushed is on each SSD, and no copy is used again."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = small_stack(make_disk, ssds, cache_mirror={2: "dirty", 3: "dirty:3"}[ssds], fill="off")
    number, more = 30, 54  # fewer than make a checkpoint due
    for i in range(number):
        stack.volume.write(256 * i, bytes([i + 1]) * (128 << 10))
    held = stack.cache.status()["segments_mirror"]
    stack.volume.drain()
    for _ in range(2):
        stack.cache.message("checkpoint")
    wait_for(lambda: stack.cache.status()["segments_mirror"] < held / 2, 30, "copies to be given up")

    def write_more() -> None:
        for i in range(number, number + more):
            stack.volume.write(256 * i, bytes([i + 1]) * (128 << 10))
        stack.volume.flush()

    # which takes two of them: behind the second one they are free, and it says that they wait
    before, after = stack.cache.behind_a_checkpoint(write_more)
    assert after["segment_opens"] > before["segment_opens"] + more / 2
    cut(stack.ssd, "keep")
    up(stack)
    start_without(stack, *(set() if alone is None else set(range(ssds)) - {alone}))
    if alone is None:
        assert (status := stack.cache.status())["resync_sectors"] == status["below_sectors"] == 0
    for i in range(number + more):
        assert stack.volume.read(256 * i, 256) == bytes([i + 1]) * (128 << 10)
    stack.stop()


@pytest.mark.parametrize("alone", [0, 1, 2])
def test_three_copies_two_are_missing_after_a_power_cut(make_disk, make_oracle, seed, alone):
    """At a random moment: what was flushed before it is on the one that is left."""
    ssds = make_ssds(make_disk, (48, 48, 48), model="nvme", jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    stack = Stack(ssds, hdd, format_volume=("--cache", "c"), cache_mirror="dirty:3")
    oracle = make_oracle(stack.volume, size="32m")
    simdisk.power_cut(mode=MODES[seed % len(MODES)], seed=seed, after=500 + seed % 1500)
    oracle.run_until_cut(stack.ssd[0])
    stack.stop()
    simdisk.power_up()
    start_without(stack, *({0, 1, 2} - {alone}))
    oracle.verify(after="crash")
    oracle.verify()
    assert stack.cache.status()["devices_failed"] == 2
    stack.verify_alone(oracle)


def test_three_copies_level_in_use(make_disk, kernel_log, seed):
    """Raised: what is dirty gets its third copy, and any two may be lost then.  Lowered: the feature goes with the last of them."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48), writeback="off", sequential_cutoff=0)
    image = many_writes(stack, seed)
    assert features(stack) == {0}
    stack.cache.set(mirror="dirty:3")
    assert features(stack) == {THIRD}
    stack.cache_options["mirror"] = "dirty:3"
    status = all_three(stack)
    assert status["resync_sectors"] > 0 and status["dirty_sectors"] > 0
    has(stack, image)
    stack.restart()
    assert stack.cache.status()["mirror"] == "dirty:3" and stack.cache.status()["below_sectors"] == 0
    has(stack, image)
    stack.cache.set(mirror="dirty")
    stack.cache_options["mirror"] = "dirty"
    stack.volume.set(writeback="on")
    places = itertools.cycle(range(16, 48))

    def gone() -> bool:  # what was opened with three copies is written to first
        for _ in range(4):
            stack.volume.write(next(places) << 11, bytes(1 << 20))
        stack.volume.message("flush")
        stack.cache.message("reclaim", "64")
        stack.cache.message("checkpoint")
        return features(stack) == {0}

    wait_for(gone, 120, "the feature to go")
    has(stack, image)
    stack.restart()
    has(stack, image)
    stack.stop()


@pytest.mark.parametrize(
    ("before", "sizes", "failures", "alone"), [*(("none", (48, 48, 48), 1, i) for i in range(3)), ("dirty", (48, 48, 48, 48), 0, 1)]
)
def test_three_copies_whose_superblock_fails(make_disk, kernel_log, seed, before, sizes, failures, alone):
    """The last one refuses the superblock that says there may be three: once, and has to stay; always, and leaves three.  Asked for
    is asked for: in the end there are three copies, and until then the status counts what lacks one."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, sizes, cache_mirror=before, writeback="off", sequential_cutoff=0)
    image, last = many_writes(stack, seed), stack.ssd[-1]
    last.fail(op="write", from_=8, to=16, status="ioerr", count=failures)
    stack.cache.set(mirror="dirty:3")
    stack.cache_options["mirror"] = "dirty:3"
    assert last.faults()[0]["hits"] and kernel_log.matching("superblocks cannot say")
    wait_for(lambda: stack.cache.status()["devices_failed"] == len(sizes) - 3, 30, "what refuses for ever to leave")
    assert all_three(stack, 40)["dirty_sectors"] > 0
    cut(stack.ssd)
    up(stack)
    start_without(stack, *(set(range(len(sizes))) - {alone}))
    has(stack, image)
    stack.stop()


def test_three_copies_come_back(make_disk, kernel_log, seed):
    """One of three is lost: two copies, and status says so.  Another takes its place: three, and the two others are lost."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48, 48), cache_mirror="dirty:3", writeback="off", sequential_cutoff=0)
    image = many_writes(stack, seed)
    kill(stack.ssd[1])
    stack.volume.write(0, bytes(image[:512]))
    stack.cache.message("checkpoint")
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 60, "the SSD to leave")
    status = all_three(stack)
    assert status["resync_sectors"] > 0
    cut(stack.ssd)
    up(stack)
    start_without(stack, 1, 0, 3)
    has(stack, image)
    stack.stop()


def test_third_copy_is_not_made_of_a_bad_one(make_disk, kernel_log):
    """Of three copies the first is known to be bad in places: one that is made anew is made of the second."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = small_stack(make_disk, 3, cache_mirror="dirty:3")
    content = {8000 + 64 * i: bytes([i + 1]) * 4096 for i in range(120)}
    for sector, data in content.items():
        stack.volume.write(sector, data)
        commit(stack)  # a record each: its data is in the slot before its block
    blocks = [b for s in stack.ssd[:2] for b in commit_blocks(s)]
    bad = [b for b in blocks if b.own and b.ssd.read(b.sector - 8, 8) in content.values()]
    assert len({b.segment for b in bad}) > 2
    kill(stack.ssd[2])
    stack.volume.write(80000, b"x" * 4096)
    stack.volume.flush()
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 60, "it to leave")
    for b in bad:
        b.ssd.fail(op="read", from_=b.sector - 8, to=b.sector, status="medium")
    assert {s: stack.volume.read(s, 8) for s in content} == content  # known to be bad now
    for s in stack.ssd[:2]:
        s.heal()
    for b in bad:
        b.ssd.corrupt(b.sector - 8, 8)
    spare = make_disk("ssd3", model="null", mb=32, wce=1, fua=1)
    larder("cache", "replace", stack.cache, 2, spare, "--yes")
    stack.ssd[2] = spare
    stack.stop()
    start_without(stack, 0, 1)
    assert {s: stack.volume.read(s, 8) for s in content} == content
    stack.stop()


@pytest.mark.limit(900)
def test_volume_that_was_away_for_many_sets(make_disk):
    """Its superblock names a set that is long gone, and that these SSDs have been."""
    stack = make_stack(make_disk, (48, 48, 48), writeback="off")
    stack.volume.write(8000, b"x" * 4096)
    stack.volume.flush()
    stack.volume.remove()
    before = int(stack.cache.status()["set_generation"])
    for _ in range(33):
        stack.cache.message("drain", 2)
        wait_for(lambda: stack.cache.status()["ssds"] == "active/active/removed", 60, "the drain")
        larder("cache", "add", stack.cache, stack.ssd[2], "--yes")
    assert int(stack.cache.status()["set_generation"]) > before + 64
    stack.volume = Volume.start(stack.hdd, stack.cache, **stack.options)
    assert stack.volume.read(8000, 8) == b"x" * 4096
    stack.stop()
