# SPDX-License-Identifier: GPL-2.0-or-later
"""The set of SSDs changes while its volume is under load: one joins, is replaced, comes back, leaves."""

import concurrent.futures
import contextlib
import fcntl
import os
import subprocess
import threading
from pathlib import Path

import pytest
from lib import command, simdisk
from lib.damage import SUPER, damage
from lib.larder import DATA_SECTOR, Cache, Stack, Volume, larder, segment_layout, wait_for
from lib.question import answered
from lib.sets import MODES, TABLES, kill, make_ssds, make_stack, resynced, start_without


def states(stack: Stack) -> str:
    return stack.cache.status()["ssds"]


def is_missed(stack: Stack) -> bool:
    """Does the command say that an SSD is?  Other things may be wrong for a moment: copies on their way, much that is dirty."""
    return "SSDs failed, or are missing" in larder("cache", "status", stack.cache).stdout


def during(oracle, *arguments: object, ops: int = 3000) -> None:
    """One verb of the command beside a load, which goes on behind it."""
    running = oracle.start(ops=ops)
    try:
        larder(*arguments)
        running.wait(600)
    finally:
        if running.running():
            running.kill()


def lose_the_others(stack: Stack, oracle, *kept: int) -> None:
    """After a restart with these alone, whatever the others had: everything is there."""
    stack.stop()
    all_of_them = stack.ssd
    stack.ssd = [s if i in kept else None for i, s in enumerate(all_of_them)]
    stack.start()
    oracle.verify()
    stack.verify_alone(oracle)
    stack.ssd = all_of_them


def add(stack: Stack, ssd: simdisk.Simdisk) -> tuple:
    stack.ssd = [*stack.ssd, ssd]
    return ("cache", "add", stack.cache, ssd, "--yes")


@pytest.mark.parametrize(("sizes", "mirror"), [((48, 48), "dirty"), ((32, 96), "dirty"), ((96, 40), "dirty"), ((48, 48), "all")])
def test_second_ssd_is_added(make_disk, make_oracle, sizes, mirror):
    """What only the first one had gets its second copy: the first one can be lost."""
    ssds = make_ssds(make_disk, sizes)
    stack = Stack(ssds[:1], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), cache_mirror=mirror)
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=1500)
    before = stack.cache.status()["segments"]
    during(oracle, *add(stack, ssds[1]))
    status = stack.cache.status()
    assert (status["devices"], status["devices_failed"], status["mirrored"], status["joining"]) == (2, 0, 1, "-")
    assert status["ssds"] == "active/active" and status["segments"] > before
    oracle.verify()
    oracle.run(ops=1500)
    assert ssds[1].stats()["reads"] > 0
    lose_the_others(stack, oracle, 1)


def test_what_is_written_while_one_joins(make_disk, make_oracle):
    """It gets that at once, and what was there before at leisure: the first one can be lost."""
    ssds = make_ssds(make_disk)
    stack = Stack(ssds[:1], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=600)
    ssds[1].fail(op="write", status="ok", delay_ms=20)
    larder(*add(stack, ssds[1]), "--no-wait")
    oracle.run(ops=400)
    assert states(stack) == "active/joining", "all of that was written meanwhile"
    ssds[1].heal()
    wait_for(lambda: states(stack) == "active/active", 60, "the SSD to join")
    lose_the_others(stack, oracle, 1)


def test_first_one_dies_as_soon_as_another_has_joined(make_disk, make_oracle):
    """By a power cut, with no stop and no checkpoint in between, as second copies of what is dirty would bring: its own table says
    that it is a member, in one place.  The checkpoints that its superblock names lie on it, too."""
    ssds = make_ssds(make_disk)
    stack = Stack(ssds[:1], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=600)
    stack.cache.message("checkpoint")
    oracle.run(ops=200)
    ssds[1].fail(op="write", status="ok", delay_ms=100)
    larder(*add(stack, ssds[1]), "--no-wait")
    ssds[1].fail(op="write", status="ok", delay_ms=120000, skip=1, **TABLES)
    assert states(stack) == "active/joining"
    wait_for(lambda: ssds[1].faults()[1]["hits"], 120, "the other place of its table")
    simdisk.power_cut(mode="lose")
    stack.stop()
    ssds[1].heal()
    simdisk.power_up()
    start_without(stack, 0)
    oracle.verify(after="crash")
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.parametrize("told", [{"status": "ok", "delay_ms": 120000}, {"status": "ioerr", "count": 1}], ids=["slow", "fails"])
def test_one_that_is_untold_has_nothing_alone(make_disk, kernel_log, told):
    """With mirror=none.  A power cut while the SSD that has joined has no table of its own yet: it is stale, and what was flushed
    meanwhile is on the other one."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(
        ssds[:1],
        hdd,
        format_cache=("--segment-size", "128k"),
        format_volume=("--cache", "c"),
        cache_mirror="none",
        writeback="off",
        sequential_cutoff=0,
    )
    # the first two writes give the new one its place
    ssds[0].fail(op="write", status="ok", delay_ms=5000, skip=2, **TABLES)
    larder(*add(stack, ssds[1]), "--no-wait")
    ssds[1].fail(op="write", **told, **TABLES)
    wait_for(lambda: ssds[1].faults()[0]["hits"], 60, "the table of the new SSD")
    for i in range(32):
        stack.volume.write(i * 256, bytes([i + 1]) * (128 << 10))
    stack.volume.flush()
    simdisk.power_cut(mode="lose")
    stack.stop()
    for s in ssds:
        s.heal()
    simdisk.power_up()
    stack.start()
    assert all(stack.volume.read(i * 256, 256) == bytes([i + 1]) * (128 << 10) for i in range(32))
    stack.stop()


def test_first_table_of_one_that_joins_is_torn(make_disk, kernel_log):
    """By a power cut, as it is written: the SSD has no table yet, and goes on joining.  It is not thrown out."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssds[:1], hdd, format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0)
    fill(stack, b"o")
    stack.volume.flush()
    # between the table of the other one and its own: the backing is told of the new set
    hdd.fail(op="write", status="ok", delay_ms=10000, to=DATA_SECTOR)
    larder(*add(stack, ssds[1]), "--no-wait")
    wait_for(lambda: hdd.faults()[0]["hits"], 60, "the backing to be told")
    ssds[1].fail(op="write", status="ok", delay_ms=120000, **TABLES)
    hdd.heal()
    wait_for(lambda: ssds[1].faults()[0]["hits"], 60, "its own table")
    assert states(stack) == "active/joining"
    simdisk.power_cut(hdd, ssds[0], mode="lose")
    simdisk.power_cut(ssds[1], mode="keep")
    stack.stop()
    ssds[1].heal()
    simdisk.power_up()
    own, place = ssds[1].read(256, 256), 512 - 256
    assert own in [ssds[0].read(at, place) for at in (256, 512)] and not any(ssds[1].read(512, place)), "it is the first write"
    ssds[1].write(384, bytes(128 * 512))  # a torn one: the head of it is there, the second half is not
    ssds[1].flush()
    assert ssds[1].read(256, 128) == own[: 128 * 512] and any(own[128 * 512 :])
    stack.start()
    assert states(stack) in ("active/joining", "active/active")
    wait_for(lambda: states(stack) == "active/active", 120, "the SSD to join")
    stack.stop()
    start_without(stack, 0)
    assert holds(stack, b"o")
    stack.stop()


def test_table_behind_a_failed_change(make_disk, kernel_log):
    """A volume is attached while an SSD joins, and the table does not take it: what the new SSD gets then is whole, and it can be
    started alone."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk)
    hdd, other = (make_disk(name, model="null", mb=64, wce=1) for name in ("hdd0", "hdd1"))
    stack = Stack(ssds[:1], hdd, format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0)
    data = bytes(range(256)) * 16
    stack.volume.write(0, data)
    stack.volume.flush()
    Volume.format("w", other, "--cache", "c")
    # between the table of the others and its own: the backing is told of the new set
    hdd.fail(op="write", status="ok", delay_ms=10000, to=DATA_SECTOR)
    larder(*add(stack, ssds[1]), "--no-wait")
    wait_for(lambda: hdd.faults()[0]["hits"], 60, "the backing to be told")
    ssds[0].fail(op="write", status="ioerr", **TABLES)
    with pytest.raises(command.CommandError):
        Volume.start(other, stack.cache, "w")
    assert ssds[0].faults()[0]["hits"] and states(stack) == "active/joining"
    ssds[0].heal()
    hdd.heal()
    wait_for(lambda: states(stack) == "active/active", 60, "the SSD to join")
    stack.stop()
    start_without(stack, 0)
    assert stack.volume.read(0, 8) == data
    stack.stop()
    larder("super", "check", ssds[1])


def test_third_ssd_is_added(make_disk, make_oracle):
    ssds = make_ssds(make_disk, (32, 32, 64))
    stack = Stack(ssds[:2], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"))
    oracle = make_oracle(stack.volume, size="64m")
    oracle.run(ops=1500)
    during(oracle, *add(stack, ssds[2]))
    assert states(stack) == "active/active/active"
    oracle.run(ops=2500)
    stack.restart()
    oracle.verify()
    lose_the_others(stack, oracle, 1, 2)


@pytest.mark.parametrize("mirror", ["dirty", "all"])
@pytest.mark.parametrize("which", [0, 1])
def test_failed_ssd_is_replaced(make_disk, make_oracle, kernel_log, which, mirror):
    """The new one has everything: the other one, which was the last, can be lost."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, (48, 48, 64))
    stack = Stack(ssds[:2], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), cache_mirror=mirror)
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=1500)
    kill(ssds[which])
    oracle.run(ops=1500)
    assert stack.cache.status()["devices_failed"] == 1
    during(oracle, "cache", "replace", stack.cache, which, ssds[2], "--yes")
    stack.ssd = [ssds[2] if i == which else s for i, s in enumerate(ssds[:2])]
    assert states(stack) == "active/active"
    oracle.verify()
    oracle.run(ops=1000)
    lose_the_others(stack, oracle, which)


@pytest.mark.parametrize("restart", [False, True])
def test_one_that_was_away_comes_back(make_disk, make_oracle, kernel_log, restart):
    """It is stale, and never read: it joins as a new one."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk)
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=1500)
    kill(stack.ssd[1])
    oracle.run(ops=1500)
    stack.ssd[1].heal()
    if restart:
        stack.restart()
        assert states(stack) == "active/failed"
    reads = stack.ssd[1].stats()["reads"]
    oracle.verify()
    assert stack.ssd[1].stats()["reads"] == reads
    during(oracle, "cache", "add", stack.cache, stack.ssd[1], "--yes")
    assert states(stack) == "active/active"
    oracle.verify()
    lose_the_others(stack, oracle, 1)


@pytest.mark.parametrize("new", [False, True])
def test_power_cuts_while_joining(make_disk, make_oracle, seed, new):
    """Whenever it comes: nothing is lost, and the joining goes on at the next start, or begins again."""
    ssds = make_ssds(make_disk, model="nvme", jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    stack = Stack(ssds[:1] if new else ssds, hdd, format_volume=("--cache", "c"))
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=800)
    if new:
        stack.ssd = ssds
    else:
        stack.stop()
        start_without(stack, 1)
    # what it is to get takes as long as some of these rounds, however slow the kernel is
    ssds[1].fail(op="write", status="ok", delay_ms=30 * int(os.environ.get("LARDER_LIMIT_FACTOR", "1")))
    joining = 0
    for i in range(8):
        if states(stack) != "active/active":
            larder("cache", "add", stack.cache, ssds[1], "--yes", "--no-wait", check=False)
        simdisk.power_cut(mode=MODES[(seed + i) % len(MODES)], seed=seed + i, after=1 + (seed * 7919 + i * 104729) % 900)
        oracle.run_until_cut(ssds[0])
        stack.stop()
        simdisk.power_up()
        # the command that was cut off may not have come so far as to make it one of the set
        listed = larder("super", "show", ssds[1], "-o", "nr_devices", "--noheadings", check=False).stdout.strip() == "2"
        known = larder("super", "show", ssds[0], "-o", "nr_devices", "--noheadings").stdout.strip() == "2"
        stack.ssd = ssds if listed and known else [ssds[0], None] if known else ssds[:1]
        stack.start()
        stack.ssd = ssds
        joining += states(stack) == "active/joining"
        oracle.verify(after="crash")
        oracle.verify()
    ssds[1].heal()
    assert joining > 1, "it was seldom joining"
    if states(stack) == "active/failed" or states(stack) == "active":
        larder("cache", "add", stack.cache, ssds[1], "--yes")
    wait_for(lambda: states(stack) == "active/active", 60, "the SSD to join")
    oracle.run(ops=500)
    lose_the_others(stack, oracle, 1)


@pytest.mark.parametrize("skip", [0, 5, 40, 300, 1200])
def test_joining_ssd_fails(make_disk, make_oracle, kernel_log, skip):
    """It is forgotten: no generation changes, nothing is lost, and another one joins in its place."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, (48, 48, 48))
    stack = Stack(ssds[:1], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"))
    oracle = make_oracle(stack.volume, size="40m")
    oracle.run(ops=1500)
    running = oracle.start(ops=3000)
    # the command writes less than this when it formats
    ssds[1].fail(op="write,flush", status="ioerr", skip=24 + skip)
    larder("cache", "add", stack.cache, ssds[1], "--yes", check=False)
    running.wait(600)
    oracle.verify()
    stack.ssd = ssds[:2]
    failed, met = states(stack) != "active/active", ssds[1].faults()[0]["hits"] > 0
    assert failed == met and (met or skip > 100)
    # it may have been a member by then
    assert stack.cache.status()["devices_failed"] == (states(stack) == "active/failed") <= (skip > 100)
    if failed:
        during(oracle, "cache", "add", stack.cache, ssds[2], "--yes")
        stack.ssd = [ssds[0], ssds[2]]
    assert states(stack) in ("active/active", "active")
    oracle.verify()
    stack.verify_alone(oracle)


def test_nothing_is_appended_to_what_was_stopped_in_order(make_disk, trace):
    """A join goes on as the cache is resumed: behind the superblock that says that it is not stopped any more."""
    ssds = make_ssds(make_disk)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0}
    stack = Stack(ssds[:1], hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)
    for sector in range(0, 16 << 11, 256):
        stack.volume.write(sector, bytes([sector >> 8 & 255]) * (128 << 10))
    stack.volume.flush()
    ssds[1].fail(op="write", status="ok", delay_ms=500)
    larder(*add(stack, ssds[1]), "--no-wait")
    assert states(stack) == "active/joining"
    stack.cache.suspend()
    trace.clear()
    ssds[0].fail(op="write", status="ok", delay_ms=4000, from_=8, to=16, count=1)
    stack.cache.resume()
    for ssd in ssds:
        ssd.heal()
    first, *_ = segment_layout(ssds[0])
    wait_for(lambda: states(stack) == "active/active", 120, "the SSD to join")
    commands = [c for s in ssds for c in trace.commands(s, "write")]
    told = min(c.end for c in commands if c.disk == "ssd0" and c.sector == 8)
    appends = [c for c in commands if c.sector >= first]
    assert appends and min(c.seq for c in appends) > told
    stack.stop()


def test_last_member_fails_while_another_joins(make_disk, make_oracle, kernel_log):
    """As the failure of an only SSD; after it is back, everything is there."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk)
    stack = Stack(ssds[:1], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="40m")
    oracle.run(ops=1500)
    stack.volume.flush()
    ssds[1].fail(op="write", status="ok", delay_ms=20)
    larder("cache", "add", stack.cache, ssds[1], "--yes", "--no-wait")
    assert states(stack) == "active/joining"
    ssds[0].fail(op="write,flush", status="ioerr", skip=50)
    oracle.run(ops=0, seconds=60, until_error=True)
    assert stack.cache.status()["state"] == "failed"
    stack.stop()
    for s in ssds:
        s.heal()
    stack.ssd = ssds
    stack.start()
    oracle.verify(after="crash")
    wait_for(lambda: states(stack) == "active/active", 60, "the SSD to join")
    oracle.verify()
    lose_the_others(stack, oracle, 1)


def test_reloads_and_suspends_while_joining(make_disk, make_oracle):
    """The cache stands still now and then: the joining goes on where it was."""
    ssds = make_ssds(make_disk)
    stack = Stack(ssds[:1], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="40m")
    oracle.run(ops=1500)
    running = oracle.start(ops=3000)
    ssds[1].fail(op="write", status="ok", delay_ms=50)
    larder(*add(stack, ssds[1]), "--no-wait")
    for i in range(6):
        if i % 2:
            stack.cache.reload(stack.cache.table())
        else:
            stack.cache.suspend()
            stack.cache.resume()
        stack.cache.message("set", "gather", 1 + i)
    assert states(stack) == "active/joining", "it had joined before the last of them"
    ssds[1].heal()
    running.wait(600)
    wait_for(lambda: states(stack) == "active/active", 60, "the SSD to join")
    oracle.verify()
    lose_the_others(stack, oracle, 1)


def test_last_member_with_a_copy_fails(make_disk, make_oracle, kernel_log):
    """What has to be copied was on it only: the cache fails, and finds it when that one is back; the joining ends."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, (48, 48, 48, 48))
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssds[:3], hdd, format_volume=("--cache", "c"), writeback="off", cache_resync_rate=1)
    oracle, behind = make_oracle(stack.volume, size="24m"), 64 << 11
    oracle.run(ops=800)
    kill(ssds[1])
    stack.volume.write(behind, bytes(4096))
    stack.volume.flush()
    stack.cache.message("checkpoint")  # this writes to every SSD
    wait_for(lambda: states(stack) == "active/failed/active", 60, "the SSD to leave")
    ssds[3].fail(op="write", status="ok", delay_ms=200)
    larder("cache", "replace", stack.cache, 1, ssds[3], "--yes", "--no-wait")
    assert states(stack) == "active/joining/active"
    ssds[2].fail(op="write,flush", status="ioerr")
    with contextlib.suppress(OSError):
        stack.volume.write(behind, bytes(4096))
        stack.volume.flush()
    wait_for(lambda: stack.cache.status()["state"] == "failed", 120, "the cache to fail")
    stack.stop()
    for s in ssds:
        s.heal()
    stack.ssd = [ssds[0], None, ssds[2]]
    stack.start()
    oracle.verify(after="crash")
    stack.stop()


def test_volume_is_resumed_into_a_start_with_a_join(make_disk, kernel_log):
    """By somebody else, while the first resume of the cache has its SSD join: refused until that has ended."""
    kernel_log.expect("is suspended: resume it|preresume failed")
    ssds = make_ssds(make_disk)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssds[:1], hdd, format_volume=("--cache", "c"), writeback="off")
    stack.volume.write(0, b"d" * 4096)
    stack.volume.flush()
    ssds[1].fail(op="write", status="ok", delay_ms=200)  # or it would have joined before the stop
    larder(*add(stack, ssds[1]), "--no-wait")
    stack.stop()
    ssds[1].heal()
    ssds[1].fail(op="write", status="ok", delay_ms=3000, count=1, **TABLES)  # its table is erased
    # its node is there before it is resumed: or no table of the volume could name it, and the kernel would have nothing to refuse
    stack.cache = Cache.create("c", Cache.line(stack.ssd, **stack.cache_options), suspended=True)
    command.run("dmsetup", "mknodes", "c")
    with concurrent.futures.ThreadPoolExecutor() as threads, simdisk.Trace() as trace:
        starting = threads.submit(stack.cache.resume)
        wait_for(lambda: ssds[1].faults()[0]["hits"], 60, "the join")
        while not stack.volume:
            started = starting.done()
            try:
                stack.volume = Volume.start(hdd, stack.cache, **stack.options)
            except command.CommandError:
                assert not started, "it is refused behind that"
        erased = next(c for c in trace.commands(ssds[1], "write") if TABLES["from_"] <= c.sector < TABLES["to"])
        assert erased.end is not None, "it was bound while the join had just begun"
        starting.result()
    assert kernel_log.said("is suspended: resume it, then volume"), "it was not refused by the kernel as it was resumed"
    assert stack.volume.read(0, 8) == b"d" * 4096
    wait_for(lambda: states(stack) == "active/active", 60, "the SSD to join")
    stack.stop()


def test_member_fails_that_clean_copies_go_to(make_disk, kernel_log):
    """One fails, the other as its successor is to get a copy: these are given up, and the join ends, though nobody reads."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, (32, 32, 32, 32))
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    small = ("--segment-size", "128k")
    stack = Stack(ssds[:3], hdd, format_cache=small, format_volume=("--cache", "c"), cache_mirror="all", sequential_cutoff=0)
    copied = 14  # slots: two records fit into a segment, which stays open behind the first one
    with simdisk.Trace() as trace:
        stack.volume.read(65536, 8 * copied)
        stack.cache.message("commit")
        # with its commit block
        goes_to = [(i, c.sector) for i, s in enumerate(ssds) for c in trace.commands(s, "write") if c.sectors == 8 * copied + 8]

    def leaves(which: int) -> None:
        with contextlib.suppress(command.CommandError):
            stack.cache.message("checkpoint")  # this writes to every SSD
        wait_for(lambda: states(stack).split("/")[which] == "failed", 60, "the SSD to leave")

    (place, _), (lost, sector) = goes_to
    lone = ({0, 1, 2} - {place, lost}).pop()
    kill(ssds[place])
    leaves(place)
    ssds[lost].fail(op="read", status="ioerr", delay_ms=20000, from_=sector, to=sector + 8 * copied)  # what the new one is to get
    larder("cache", "replace", stack.cache, place, ssds[3], "--yes", "--no-wait")
    wait_for(lambda: ssds[lost].faults()[0]["hits"] > 0, 60, "the copy")
    ssds[lost].fail(op="write,flush", status="ioerr")
    leaves(lost)
    assert states(stack).split("/")[place] == "joining"
    wait_for(lambda: states(stack).split("/")[place] == "active", 120, "the SSD to join")
    content = bytes([7]) * 65536
    stack.volume.write(0, content)
    stack.volume.flush()
    kill(ssds[lone])
    stack.volume.write(128, content)
    stack.volume.flush()
    assert stack.volume.read(0, 256) == 2 * content and stack.volume.read(65536, 8 * copied) == bytes(4096 * copied)
    stack.stop()


@pytest.mark.parametrize("mirror", ["dirty", "all"])
@pytest.mark.parametrize(("sizes", "which"), [((48, 48), 0), ((48, 48), 1), ((32, 48, 32), 1), ((64, 32, 32), 0)])
def test_ssd_is_removed(make_disk, make_oracle, sizes, which, mirror):
    """It has nothing any more that somebody needs."""
    stack = make_stack(make_disk, sizes, cache_mirror=mirror)
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=2000)
    during(oracle, "cache", "remove", stack.cache, stack.ssd[which])
    gone = stack.ssd[which]
    stack.ssd = [None if i == which else s for i, s in enumerate(stack.ssd)]
    status = stack.cache.status()
    assert (status["devices"], status["devices_failed"], status["state"]) == (len(sizes) - 1, 0, "running")
    assert states(stack).split("/")[which] == "removed" and status["mirrored"] == (len(sizes) > 2)
    assert larder("probe", gone, check=False).returncode
    gone.reset_stats()
    oracle.run(ops=1500)
    oracle.verify()
    assert not any(gone.stats()[k] for k in ("reads", "writes", "flushes"))
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.parametrize("which", [0, 1])
def test_what_has_no_other_copy_leaves(make_disk, make_oracle, which):
    """With mirror=none: what is dirty there is on the disk before the SSD goes."""
    stack = make_stack(make_disk, cache_mirror="none", writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=1000)
    assert stack.volume.status()["dirty_sectors"]
    larder("cache", "remove", stack.cache, stack.ssd[which])
    gone = stack.ssd[which]
    stack.ssd = [None if i == which else s for i, s in enumerate(stack.ssd)]
    gone.reset_stats()
    oracle.verify()
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)
    assert not gone.stats()["reads"]


@pytest.mark.parametrize("mirror", ["none", "all"])
def test_drained_while_it_is_read(make_disk, mirror):
    """What is clean there is read all the time, by many; what has only its second copy there as well."""
    stack = make_stack(make_disk, writeback="off", sequential_cutoff=0, cache_mirror=mirror)
    content = {s: s.to_bytes(8, "little") * 64 * 64 for s in range(2048, 4096, 64)}
    for sector, data in content.items():
        stack.volume.write(sector, data)
    stack.volume.drain()
    stack.volume.message("drop_clean")
    for sector in content:
        stack.volume.read(sector, 64)
    wait_for(lambda: stack.volume.status()["cached_sectors"] >= 2048, 60, "the fills")
    for s in stack.ssd:
        s.reset_stats()
    for sector in content:
        stack.volume.read(sector, 64)
    busy = max((0, 1), key=lambda i: stack.ssd[i].stats()["reads"])
    assert stack.ssd[busy].stats()["reads"] >= len(content) // 2
    stack.ssd[busy].fail(op="read", status="ok", delay_ms=200)
    number = busy if mirror == "none" else 1 - busy
    ends, wrong = threading.Event(), []

    def read(i: int) -> None:
        mine = list(content)[i::16]
        while not ends.is_set():
            wrong.extend(s for s in mine if stack.volume.read(s, 64) != content[s])

    readers = [threading.Thread(target=read, args=(i,), daemon=True) for i in range(16)]
    for t in readers:
        t.start()
    try:
        stack.cache.message("drain", number)
        wait_for(lambda: states(stack).split("/")[number] == "removed", 120, "the SSD to be drained")
    finally:
        ends.set()
        for t in readers:
            t.join()
    assert not wrong
    stack.stop()


def test_removed_place_is_taken_again(make_disk, make_oracle):
    ssds = make_ssds(make_disk, (48, 48, 64))
    stack = Stack(ssds[:2], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"))
    oracle = make_oracle(stack.volume, size="48m")
    segments = stack.cache.status()["segments"]
    oracle.run(ops=1500)
    during(oracle, "cache", "remove", stack.cache, ssds[0])
    during(oracle, "cache", "add", stack.cache, ssds[2], "--yes")
    stack.ssd = [ssds[2], ssds[1]]
    assert states(stack) == "active/active" and stack.cache.status()["segments"] == segments
    oracle.verify()
    lose_the_others(stack, oracle, 0)


def test_power_cuts_while_draining(make_disk, make_oracle, seed):
    """Before the generation without it is durable it is a member, and has what it has; after that it is stale."""
    ssds = make_ssds(make_disk, model="nvme", jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    stack = Stack(ssds, hdd, format_volume=("--cache", "c"))
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=800)
    hdd.fail(op="write", status="ok", delay_ms=300)
    removed, draining = False, 0
    for i in range(8):
        if removed:
            break
        if i == 4:
            hdd.heal()  # from here on it comes to its end
        stack.cache.message("drain", 1)
        simdisk.power_cut(mode=MODES[(seed + i) % len(MODES)], seed=seed + i, after=1 + (seed * 7919 + i * 104729) % 1500)
        oracle.run_until_cut(ssds[0])
        stack.stop()
        simdisk.power_up()
        stack.start()
        removed = states(stack) == "active/removed"
        draining += not removed
        oracle.verify(after="crash")
        oracle.verify()
    assert draining > 1, "it was drained before the second of them"
    if not removed:
        during(oracle, "cache", "remove", stack.cache, 1)
    stack.ssd = [ssds[0], None]
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.parametrize("which", [0, 1])
def test_one_fails_while_another_is_drained(make_disk, make_oracle, kernel_log, seed, which):
    """Three SSDs: the one being drained, or one that stays."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48), writeback="off")
    oracle = make_oracle(stack.volume, size="48m")
    oracle.run(ops=2000)
    running = oracle.start(ops=3000)
    stack.hdd.fail(op="write", status="ok", delay_ms=1000)  # it takes its time
    stack.cache.message("drain", 1)
    stack.ssd[which].fail(op="read,write,flush,discard,zeroes", status="ioerr", skip=seed % 300)
    left = ("failed/draining/active", "active/failed/active")[which]
    wait_for(lambda: states(stack) == left, 60, "the SSD to leave, before the drain has ended")
    stack.hdd.heal()
    running.wait(600)
    oracle.verify()
    wait_for(lambda: "draining" not in states(stack), 120, "the SSD to be drained")
    oracle.verify()
    stack.stop()
    stack.ssd[which].heal()
    stack.start()
    oracle.verify()
    stack.verify_alone(oracle)


def drained(stack: Stack, number: int) -> None:
    """It is emptied, whoever does what meanwhile, and leaves."""
    stack.cache.message("drain", number)
    wait_for(lambda: states(stack).split("/")[number] == "removed", 120, "the SSD to be drained")


@pytest.mark.parametrize("which", range(4))
def test_drain_of_an_idle_set(make_disk, which):
    """Nobody writes or reads: segments that were opened on it are left all the same."""
    stack = make_stack(make_disk, (48, 48, 48, 48))
    drained(stack, which)
    stack.stop()


@pytest.mark.parametrize(("lost", "which", "writeback"), [(1, 2, "off"), (2, 1, "off"), (3, 0, "off"), (2, 1, "on")])
def test_drain_of_a_set_that_lost_one(make_disk, make_oracle, kernel_log, lost, which, writeback):
    """Of four, with much on it; nobody writes or reads meanwhile."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48, 48), writeback=writeback)
    oracle = make_oracle(stack.volume, size="64m")
    oracle.run(ops=2000)
    kill(stack.ssd[lost])
    oracle.run(ops=1000)
    stack.cache.message("checkpoint")
    wait_for(lambda: "failed" in states(stack), 60, "the SSD to leave")
    drained(stack, which)
    oracle.verify()
    stack.verify_alone(oracle)


def test_drain_of_the_copy_that_is_read(make_disk, kernel_log):
    """The first copies cannot be read: what is on the SSD that is drained is the only data the cache has."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, writeback="off")
    for i in range(16):
        stack.volume.write(64 * i, bytes([i + 1]) * 4096)
    stack.volume.flush()
    for s in stack.ssd:
        s.reset_stats()
    assert stack.volume.read(0, 8) == b"\1" * 4096
    (first,) = [i for i, s in enumerate(stack.ssd) if s.stats()["reads"]]
    stack.ssd[first].fail(op="read", status="medium", count=1)
    assert stack.volume.read(0, 8) == b"\1" * 4096
    drained(stack, 1 - first)
    for i in range(16):
        assert stack.volume.read(64 * i, 8) == bytes([i + 1]) * 4096
    stack.stop()


def test_progress_is_shown(make_disk, kernel_log):
    """Of a join how much is copied, of a drain in how many segments there is something left; in the status, and by the command."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0}
    stack = Stack(ssds[:1], hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)
    seen: list[tuple[int, int]] = []

    def look() -> dict:
        status = stack.cache.status()
        seen.append((status["join_sectors"], status["drain_segments"]))
        return status

    def write(first: int) -> None:
        for i in range(first, first + 48):
            stack.volume.write(i * 256, bytes([i + 1]) * (128 << 10))
        stack.volume.flush()

    write(0)
    assert look()["joining"] == "-" and seen == [(0, 0)]
    ssds[1].fail(op="write", status="ok", delay_ms=200)
    larder(*add(stack, ssds[1]), "--no-wait")
    wait_for(lambda: look()["join_sectors"], 60, "something to be copied")
    assert look()["joining"] == 1 and states(stack) == "active/joining"
    ssds[1].heal()
    wait_for(lambda: look()["ssds"] == "active/active", 60, "the SSD to join")
    joined = [n for n, _ in seen]
    assert look()["joining"] == "-" and joined == sorted(joined) and len(set(joined)) > 1
    assert joined[-1] >= 48 * 256 and not any(n for _, n in seen)

    stack.cache.set(mirror="none")
    write(100)
    hdd.fail(op="write", status="ioerr", from_=DATA_SECTOR)
    stack.cache.message("drain", 1)
    wait_for(lambda: look()["drain_segments"], 60, "the drain to begin")
    shown = larder("cache", "status", stack.cache, "-o", "drain_segments", "--noheadings").stdout
    assert int(shown) > 0 and states(stack) == "active/draining"
    begun = len(seen)
    hdd.heal()
    wait_for(lambda: look()["ssds"] == "active/removed", 120, "the SSD to be drained")
    left = [n for _, n in seen[begun:]]
    assert left == sorted(left, reverse=True) and look()["drain_segments"] == 0
    stack.ssd = [ssds[0], None]
    assert all(stack.volume.read(i * 256, 256) == bytes([i + 1]) * (128 << 10) for i in (*range(48), *range(100, 148)))
    stack.stop()


BLOCKS = range(0, 64 * 16, 64)


def fill(stack: Stack, byte: bytes, sectors: range = BLOCKS) -> None:
    for sector in sectors:
        stack.volume.write(sector, byte * 4096)


def holds(stack: Stack, byte: bytes, sectors: range = BLOCKS) -> bool:
    return all(stack.volume.read(sector, 8) == byte * 4096 for sector in sectors)


@pytest.mark.parametrize(
    ("how", "before", "checkpoints"), [("written over", 0, 4), ("written back", 2, 0), *(("written back", 0, n) for n in (2, 3, 4))]
)
def test_what_emptied_it_is_durable(make_disk, kernel_log, how, before, checkpoints):
    """With mirror=none: old data that was flushed, and is dirty on the SSD that is drained only, is replaced by what is in no
    complete record; or its CLEAN is in the write cache of another SSD.  That is durable before the first table without it.  Two
    checkpoints that are taken before the log has left it have no use for a record there; but a replay would begin there."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    given = [w for role in ("read", "write", "write")[: 2 + (how == "written back")] for w in ("--role", role)]
    stack = make_stack(
        make_disk, (48,) * (len(given) // 2), format_cache=tuple(given), cache_mirror="none", writeback="off", sequential_cutoff=0
    )
    first, gone, *others = stack.ssd
    gone.reset_stats()
    while others and gone.stats()["wbytes"] < 1 << 20:  # the log alternates
        stack.volume.write(1 << 16, bytes(1 << 20))
    fill(stack, b"o")
    stack.volume.flush()
    stack.hdd.fail(op="write", status="ioerr")
    for _ in range(before):
        stack.cache.message("checkpoint")
    stack.cache.message("drain", 1)
    wait_for(lambda: others or stack.cache.status()["drain_segments"] == 1, 60, "nothing to be there but the old data")
    for _ in range(checkpoints):
        stack.cache.message("checkpoint")
    assert states(stack).startswith("active/draining"), "its dirty data cannot be written back"
    tables = first.read(TABLES["from_"], 512)
    if how == "written over":
        stack.cache.message("set", "commit_interval", 60000)
        fill(stack, b"n")
    else:
        others[0].fail(op="flush", status="ok", delay_ms=1500)
        stack.hdd.heal()
    wait_for(lambda: first.read(TABLES["from_"], 512) != tables, 120, "a set without it")
    simdisk.power_cut(mode="lose")
    stack.stop()
    for s in (stack.hdd, *stack.ssd):
        s.heal()
    simdisk.power_up()
    start_without(stack, 1)
    assert holds(stack, b"n" if how == "written over" else b"o")
    stack.stop()


def test_stopped_drain_spares_none(make_disk, kernel_log):
    """One of two.  Its work ends when the batch of writeback in flight does; until then, too, what was written meanwhile is on the
    other SSD only, and the set does not go on without that."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, writeback="off")
    fill(stack, b"o", range(0, 64 * 200, 64))
    stack.volume.flush()
    stack.hdd.fail(op="write", status="ok", delay_ms=1500)
    stack.hdd.reset_stats()
    stack.cache.message("drain", 1)
    wait_for(lambda: stack.hdd.stats()["writes"], 60, "writeback to begin")
    fill(stack, b"n")
    stack.volume.flush()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(stack.cache.message, "drain_stop")
        wait_for(lambda: states(stack) != "active/draining", 60, "the drain to end")
        kill(stack.ssd[0])
        with contextlib.suppress(OSError):
            fill(stack, b"m", range(64 * 300, 64 * 301, 64))
            stack.volume.flush()
        status = stack.cache.status()
        stack.hdd.heal()
        stopping.result()
    assert (status["state"], status["devices_failed"]) == ("failed", 0)
    stack.stop()
    stack.ssd[0].heal()
    stack.start()
    assert holds(stack, b"n")
    stack.stop()


def test_others_have_their_turn_while_one_is_drained(make_disk, make_oracle, kernel_log):
    """What they set stays set: the table without the SSD is read when it is loaded; and that waits for its turn."""
    stack = make_stack(make_disk, writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=300)
    stack.hdd.fail(op="write", status="ioerr")
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    with subprocess.Popen(["larder", "cache", "remove", stack.cache.name, "0"]) as removing, open("/run/larder/lock", "w") as lock:
        wait_for(lambda: states(stack) == "draining/active", 60, "the drain")
        fcntl.flock(lock, fcntl.LOCK_EX)
        larder("cache", "set", stack.cache, "gather=7")
        stack.hdd.heal()
        wait_for(lambda: states(stack) == "removed/active", 60, "the end of the drain")
        wait_for(lambda: f"-> FLOCK  ADVISORY  WRITE {removing.pid} " in locks(), 60, "the command to wait for its turn")
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert removing.wait(600) == 0
    assert "gather 7" in stack.cache.table()
    stack.ssd = [None, stack.ssd[1]]
    oracle.verify()
    stack.verify_alone(oracle)


def locks() -> str:
    return Path("/proc/locks").read_text()


def test_drain_is_refused_and_stopped(make_disk, make_oracle, kernel_log):
    ssds = make_ssds(make_disk, (6, 1024))
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssds, hdd, format_volume=("--cache", "c"), cache_checkpoint_percent=50, writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=300)
    stack.hdd.fail(op="write", status="ioerr")
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    larder("cache", "remove", stack.cache, 0, "--no-wait")
    assert states(stack) == "draining/active"
    # all that a checkpoint can free is free: none are taken while it waits for the backing
    checkpoints = [-1]

    def no_more() -> bool:
        checkpoints.append(stack.cache.status()["checkpoints"])
        return len(checkpoints) > 40 and len(set(checkpoints[-40:])) == 1

    wait_for(no_more, 60, "the end of the checkpoints")
    assert larder("cache", "remove", stack.cache, 1, check=False).returncode
    larder("cache", "remove", stack.cache, 0, "--stop")
    assert states(stack) == "active/active"
    stack.hdd.heal()
    larder("cache", "remove", stack.cache, 0)
    stack.ssd = [None, ssds[1]]
    result = larder("cache", "remove", stack.cache, 1, check=False)
    assert result.returncode and "last one" in result.stderr, result.stderr
    oracle.verify()
    stack.verify_alone(oracle)


def test_stopped_drain_beside_a_disk_that_hangs(make_disk, kernel_log):
    """What was written meanwhile gets its second copy, though the work that was stopped still waits for the disk."""
    stack = make_stack(make_disk, writeback="off")
    fill(stack, b"o", range(0, 64 * 200, 64))
    stack.volume.flush()
    stack.hdd.fail(op="write", status="ok", delay_ms=60000)
    stack.hdd.reset_stats()
    stack.cache.message("drain", 1)
    wait_for(lambda: stack.hdd.stats()["writes"], 60, "writeback to begin")
    fill(stack, b"n")
    stack.volume.flush()
    assert stack.cache.status()["single_sectors"]
    stack.cache.message("drain_stop")
    wait_for(lambda: not stack.cache.status()["single_sectors"], 40, "the second copies")
    assert stack.hdd.state()["inflight"], "the disk has answered"
    stack.hdd.heal()
    stack.cache.message("drain", 1)
    wait_for(lambda: states(stack) == "active/removed", 120, "the drain, once more")
    stack.ssd = [stack.ssd[0], None]
    assert holds(stack, b"n")
    stack.stop()


def test_too_small_to_join_at_a_start(make_disk, kernel_log):
    """In a place that is empty, which was that of one as small while there was no mirror: the cache goes on without it."""
    kernel_log.expect("is too small for second copies")
    ssds = make_ssds(make_disk, (8192, 6, 6))
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    format_cache = ("--segment-size", "128k")
    options = {"cache_checkpoint_percent": 50, "cache_mirror": "none", "writeback": "off"}
    stack = Stack(ssds[:2], hdd, format_cache=format_cache, format_volume=("--cache", "c"), **options)
    first = larder("super", "show", ssds[1], "-o", "first_segment", "--noheadings").stdout.strip()
    larder("cache", "remove", stack.cache, 1)
    assert states(stack) == "active/removed"
    fill(stack, b"o")
    says_that_it_joins(stack, ssds[2], *format_cache)
    damage(ssds[2], SUPER, "device_number=1", "nr_devices=2", f"first_segment={first}")
    stack.stop()
    stack.ssd, stack.cache_options["mirror"] = [ssds[0], ssds[2]], "dirty"
    stack.start()
    assert states(stack) == "active/removed" and kernel_log.matching("is too small for second copies")
    fill(stack, b"n")
    stack.volume.flush()
    stack.cache.message("checkpoint")
    assert holds(stack, b"n")
    stack.stop()


@pytest.mark.parametrize("change", ["first_segment=1", "nr_segments=40"])
def test_joins_in_a_place_that_is_another_one(make_disk, kernel_log, change):
    """An SSD was to join where one has failed, and others have come and gone there since: a start goes on without it."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O|whose place is another one by now")
    ssds = make_ssds(make_disk, (48, 48, 48))
    stack = Stack(ssds[:2], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), writeback="off")
    kill(ssds[1])
    fill(stack, b"o")
    stack.volume.flush()
    wait_for(lambda: states(stack) == "active/failed", 60, "the SSD to fail")
    says_that_it_joins(stack, ssds[2])
    damage(ssds[2], SUPER, "device_number=1", "nr_devices=2", change)
    stack.stop()
    stack.ssd = [ssds[0], ssds[2]]
    stack.start()
    assert states(stack) == "active/failed" and kernel_log.matching("whose place is another one by now")
    assert holds(stack, b"o")
    stack.stop()


def test_too_small_to_join(make_disk, kernel_log):
    """With second copies there would be no room for log and checkpoints: it is refused, and writes go on."""
    kernel_log.expect("is too small for second copies")
    ssds = make_ssds(make_disk, (8192, 6, 8192))
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    format_cache = ("--segment-size", "128k")
    stack = Stack(
        ssds[:1], hdd, format_cache=format_cache, format_volume=("--cache", "c"), cache_checkpoint_percent=50, writeback="off"
    )
    fill(stack, b"o")
    for _ in range(2):
        result = larder("cache", "add", stack.cache, ssds[1], "--yes", check=False)
        assert result.returncode, result.stdout
        assert kernel_log.matching("is too small for second copies")
        assert stack.cache.status()["devices"] == 1 and states(stack) == "active"
    fill(stack, b"n", range(0, 64 * 200, 64))
    stack.volume.flush()
    stack.cache.message("checkpoint")
    stack.stop()
    larder("cache", "start", "c")
    larder("cache", "stop", "c")
    stack.start()
    larder("cache", "add", stack.cache, ssds[2], "--yes")
    assert states(stack) == "active/active"
    stack.ssd = [ssds[0], ssds[2]]
    assert holds(stack, b"n")
    stack.restart()
    assert holds(stack, b"n")
    stack.stop()


def slow_to_join(stack: Stack, ssd: simdisk.Simdisk) -> None:
    """It begins to."""
    ssd.fail(op="write", status="ok", delay_ms=500)
    larder("cache", "add", stack.cache, ssd, "--yes", "--no-wait")
    assert "joining" in states(stack)


def test_one_that_joins_is_removed(make_disk, make_oracle):
    """It was never in the set, and nothing is missing without it."""
    ssds = make_ssds(make_disk)
    stack = Stack(ssds[:1], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=600)
    for _ in range(2):
        slow_to_join(stack, ssds[1])  # the second time anew
    running = oracle.start(ops=600)
    assert states(stack) == "active/joining"
    larder("cache", "remove", stack.cache, ssds[1])
    running.wait(600)
    status = stack.cache.status()
    assert (status["ssds"], status["devices"], status["devices_failed"]) == ("active/removed", 1, 0)
    assert not is_missed(stack)
    ssds[1].heal()
    during(oracle, *add(stack, ssds[1]))
    assert states(stack) == "active/active"
    lose_the_others(stack, oracle, 1)


def test_failed_one_is_not_missed(make_disk, make_oracle, kernel_log):
    """The owner takes it out, and goes on with fewer: nothing is degraded, now or behind a start; a power cut changes nothing."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, (48, 48, 48))
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=600)
    with pytest.raises(command.CommandError):
        stack.cache.message("dismiss", 1)
    kill(stack.ssd[1])
    oracle.run(ops=300)
    resynced(stack)
    assert is_missed(stack)
    gone = stack.ssd[1]
    larder("cache", "remove", stack.cache, gone)
    stack.ssd = [stack.ssd[0], None, stack.ssd[2]]

    def is_fine() -> None:
        status = stack.cache.status()
        assert (status["ssds"], status["devices"], status["devices_failed"]) == ("active/removed/active", 2, 0)
        assert not is_missed(stack)

    is_fine()
    oracle.run(ops=300)
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.start()
    oracle.verify(after="crash")
    is_fine()
    gone.heal()
    stack.stop()
    stack.ssd[1] = gone
    stack.start()
    status = stack.cache.status()
    assert status["ssds"] == "active/removed/active", "it is stale, and taken for a member"
    oracle.verify()
    lose_the_others(stack, oracle, 2)


def test_one_that_was_to_join_cannot_be_read(make_disk, make_oracle, kernel_log):
    """In the place of one that has failed: that is missed still, unless somebody says that it is not, as it could be this one."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, (48, 48, 48))
    stack = Stack(ssds[:2], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"))
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=600)
    kill(ssds[1])
    oracle.run(ops=300)
    resynced(stack)
    remove = ["cache", "remove", stack.cache, ssds[2]]

    def fails(ops: str) -> None:
        slow_to_join(stack, ssds[2])
        ssds[2].heal()
        kill(ssds[2], ops)
        oracle.run(ops=300)
        wait_for(lambda: states(stack) == "active/failed", 60, "the join to end")

    fails("write,flush")
    said = larder(*remove).stdout
    assert "RISK" not in said and (states(stack), is_missed(stack)) == ("active/failed", True)
    ssds[2].heal()
    fails("read,write,flush")
    said = larder(*remove, "--dry-run").stdout
    assert said.startswith(f"RISK: {ssds[2]} cannot be read") and "dismiss 1" in said
    question = ["larder", *remove], "Give up the place?", lambda: None
    run = answered(*question, word=b"n")
    assert run.returncode == 1 and "RISK" in run.stdout, run
    assert (states(stack), is_missed(stack)) == ("active/failed", True)
    run = answered(*question)
    assert run.returncode == 0 and "has left the set" in run.stdout, run
    assert (states(stack), is_missed(stack)) == ("active/removed", False)
    oracle.verify()


def test_member_fails_as_another_has_joined(make_disk, make_oracle, kernel_log):
    """It leaves the set; the one that joins is no worse for it."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, (48, 48, 48))
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssds[:2], hdd, format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=600)
    slow_to_join(stack, ssds[2])
    stack.ssd = ssds
    # the next table is the one that is to name it
    ssds[1].fail(op="write", status="ioerr", **TABLES)
    ssds[2].heal()
    wait_for(lambda: states(stack) == "active/failed/active", 120, "the SSD to join")
    assert ssds[1].faults()[0]["hits"]
    oracle.run(ops=300)
    resynced(stack)
    lose_the_others(stack, oracle, 2)


def test_given_up_copies_of_one_that_joins(make_disk, kernel_log):
    """It has no room for all that is dirty, and so joins for long; what has its second copy there is written back, and the copies
    are given up; the cache stands still, and goes on.  All its segments are of use behind that: it can be drained."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, (48, 12))
    hdd, other = (make_disk(f"hdd{i}", model="null", mb=128, wce=1) for i in range(2))
    stack = Stack(ssds[:1], hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), writeback="off")
    Volume.format("w", other, "--cache", "c")
    w = Volume.start(other, stack.cache, "w", writeback="off", sequential_cutoff=0)
    stack.volume.set(sequential_cutoff=0)
    for i in range(20):
        stack.volume.write(i << 11, bytes([i + 1]) * (1 << 20))
    stack.volume.flush()
    hdd.fail(op="write", status="ioerr")
    larder(*add(stack, ssds[1]), "--no-wait")
    for n in range(4):
        for i in range(40):
            w.write(i * 64, bytes([n]) * 4096)
        w.drain()
        for _ in range(3):
            stack.cache.message("checkpoint")
        stack.cache.suspend()
        stack.cache.resume()
        assert not stack.cache.status()["segments_lost"]
    assert states(stack) == "active/joining"
    hdd.heal()
    stack.volume.drain(240)
    wait_for(lambda: states(stack) == "active/active", 120, "the SSD to join")
    stack.cache.message("drain", 1)
    wait_for(lambda: states(stack) == "active/removed", 120, "the drain")
    stack.ssd = [ssds[0], None]
    assert all(w.read(i * 64, 8) == bytes([3]) * 4096 for i in range(40))
    assert all(stack.volume.read(i << 11, 1 << 11) == bytes([i + 1]) * (1 << 20) for i in range(20))
    w.remove()
    stack.stop()


def test_wrong_ones_do_not_join(make_disk, kernel_log):
    ssds = make_ssds(make_disk, (48, 48, 8, 48))
    stack = Stack(ssds[:2], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"))
    Cache.format("d", ssds[3])
    for arguments, text in (
        (("add", stack.cache, ssds[0], "--yes"), "in use"),
        (("replace", stack.cache, 1, ssds[2], "--yes"), "in use"),
        (("replace", stack.cache, 7, ssds[2], "--yes"), "no such SSD"),
        (("add", stack.cache, ssds[3], "--yes"), "--wipe"),
    ):
        result = larder("cache", *arguments, check=False)
        assert result.returncode and text in result.stderr, (arguments, result.stderr)
    assert states(stack) == "active/active"
    stack.stop()


BUSY = 4


def places(ssd: simdisk.Simdisk) -> int:
    """SSDs of the set, as this one's superblock says."""
    return int(larder("super", "show", ssd, "-o", "nr_devices", "--noheadings").stdout)


def says_that_it_joins(stack: Stack, ssd: simdisk.Simdisk, *format_cache: str) -> str:
    """What `larder cache add` writes to an SSD of a new place.  The table with it."""
    number = len(stack.ssd)
    Cache.format("d", ssd, *format_cache)
    uuid = stack.ssd[0].read(8, 1)[128:144].hex()
    first = stack.cache.status()["segments"]
    changes = ("head.flags=4", f"device_number={number}", f"nr_devices={number + 1}", f"first_segment={first}")
    damage(ssd, SUPER, f"cache_uuid=x:{uuid}", *changes)
    ssd.write(TABLES["from_"], bytes(512 * (TABLES["to"] - TABLES["from_"])))
    return Cache.line([*stack.ssd, ssd], **stack.cache_options)


def stands_still_and_goes_on(stack: Stack) -> None:
    stack.cache.suspend()
    stack.cache.resume()


def test_new_place_has_to_wait_for_a_drain(make_disk, make_oracle, kernel_log):
    """The command refuses it, the load of a table, and the resume of one that was loaded before: nothing changes."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, writeback="off")
    ssds, third = stack.ssd, make_disk("ssd2", model="null", mb=48, wce=1, fua=1)
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=600)
    stack.hdd.fail(op="write", status="ioerr")
    larder("cache", "remove", stack.cache, 0, "--no-wait")
    third.reset_stats()
    result = larder("cache", "add", stack.cache, third, "--yes", check=False)
    assert result.returncode == BUSY and "cache remove c 0 --stop" in result.stderr, result.stderr
    assert not third.stats()["writes"]
    line = says_that_it_joins(stack, third)
    with pytest.raises(command.CommandError):
        stack.cache.load(line)
    result = larder("cache", "remove", stack.cache, 1, "--stop", check=False)  # it is the other one that is drained
    assert result.returncode == BUSY and "SSD 1 is active, and not being drained" in result.stderr, result.stderr
    assert states(stack) == "draining/active"
    larder("cache", "remove", stack.cache, 0, "--stop")
    stack.cache.load(line)
    stack.cache.message("drain", 0)
    for _ in range(2):
        stands_still_and_goes_on(stack)
        stack.cache.message("checkpoint")
        assert states(stack) == "draining/active"
        assert [places(s) for s in ssds] == [2, 2]
    stack.hdd.heal()
    wait_for(lambda: states(stack) == "removed/active", 120, "the SSD to be drained")
    oracle.verify()
    stack.ssd = [None, ssds[1]]
    stack.restart()
    oracle.verify()
    stack.ssd = [*stack.ssd, third]
    stack.cache.reload(Cache.line(stack.ssd, **stack.cache_options))
    wait_for(lambda: states(stack) == "removed/active/active", 60, "the SSD to join")
    lose_the_others(stack, oracle, 2)


def test_new_place_of_an_ssd_that_cannot_be_read(make_disk, make_oracle, kernel_log):
    """The resume does without it, and without its place; a later one has both."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    stack = make_stack(make_disk, writeback="off")
    third = make_disk("ssd2", model="null", mb=48, wce=1, fua=1)
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=600)
    stack.cache.load(says_that_it_joins(stack, third))
    third.fail(op="read", status="ioerr")
    for _ in range(2):
        stands_still_and_goes_on(stack)
        stack.cache.message("checkpoint")
        assert states(stack) == "active/active"
        assert [places(s) for s in stack.ssd] == [2, 2]
    third.heal()
    stands_still_and_goes_on(stack)
    stack.ssd = [*stack.ssd, third]
    wait_for(lambda: states(stack) == "active/active/active", 60, "the SSD to join")
    assert [places(s) for s in stack.ssd] == [3, 3, 3]
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.parametrize("healed", [False, True])
def test_new_place_that_the_table_could_not_get(make_disk, make_oracle, kernel_log, healed):
    """No superblock says more places than the table has, no checkpoint speaks of its segments: a start finds everything."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk)
    stack = Stack(ssds[:1], make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=600)
    stack.cache.load(says_that_it_joins(stack, ssds[1]))
    ssds[0].fail(op="write", status="ioerr", **TABLES)
    stands_still_and_goes_on(stack)
    assert states(stack) == "active/removed"
    for _ in range(2):
        with pytest.raises(command.CommandError):
            stack.cache.message("checkpoint")
    assert places(ssds[0]) == 1
    ssds[0].heal()
    for _ in range(2 if healed else 0):
        stack.cache.message("checkpoint")
        assert places(ssds[0]) == 2
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.ssd = [ssds[0], None] if healed else ssds[:1]
    stack.start()
    oracle.verify(after="crash")
    stack.verify_alone(oracle)


def test_mirror_is_raised_while_one_joins_in_a_new_place(make_disk, make_oracle):
    """Nobody writes: what the log is in, and has one copy, gets another one all the same."""
    ssds = make_ssds(make_disk)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssds[:1], hdd, format_volume=("--cache", "c"), cache_mirror="none", writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=300)
    stack.volume.flush()
    assert stack.volume.dirty()
    stack.cache.load(says_that_it_joins(stack, ssds[1]))
    # its superblock, after the first one: the joining waits there, at a checkpoint
    ssds[1].fail(op="write", status="ok", delay_ms=5000, skip=1, from_=8, to=16)
    stands_still_and_goes_on(stack)
    stack.cache.set(mirror="dirty")
    assert states(stack) == "active/joining"
    ssds[1].heal()
    stack.ssd, stack.cache_options["mirror"] = ssds, "dirty"
    wait_for(lambda: states(stack) == "active/active", 60, "the SSD to join")
    resynced(stack, 0)
    lose_the_others(stack, oracle, 1)


def test_last_one_left_is_told_by_the_next_table(make_disk, kernel_log):
    """It has joined, its own table meets an error, and the only other SSD fails: the table of the set without that one tells it."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, (48, 48, 48))
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssds[:1], hdd, format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0)
    fill(stack, b"o")
    hdd.fail(op="write", status="ok", delay_ms=10000, to=DATA_SECTOR)
    larder(*add(stack, ssds[1]), "--no-wait")
    wait_for(lambda: hdd.faults()[0]["hits"], 60, "the backing to be told")
    ssds[1].fail(op="write", status="medium", delay_ms=4000, count=1, **TABLES)  # no error of the path: no doubt
    hdd.heal()
    wait_for(lambda: ssds[1].faults()[0]["hits"], 60, "its own table")
    kill(ssds[0])
    fill(stack, b"n")
    stack.volume.flush()
    wait_for(lambda: states(stack) == "failed/active", 60, "it to be told")
    stack.cache.set(mirror="none")
    fill(stack, b"m", range(0, 64 * 300, 64))
    stack.volume.flush()
    assert holds(stack, b"m")
    larder("cache", "add", stack.cache, ssds[2], "--new-place", "--yes")
    stack.cache.message("drain", 1)
    wait_for(lambda: states(stack) == "failed/removed/active", 120, "the drain")
    stack.stop()
    stack.ssd = [None, None, ssds[2]]
    stack.start()
    assert holds(stack, b"m")
    stack.stop()
