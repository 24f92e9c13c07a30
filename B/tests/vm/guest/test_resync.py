# SPDX-License-Identifier: GPL-2.0-or-later
"""One SSD of several is lost: the cache makes second copies of all that is dirty on the others, and another one may be lost."""

import contextlib
import threading

import pytest
from lib import simdisk
from lib.command import CommandError
from lib.controls import Switches
from lib.larder import Cache, Stack, Volume, larder, wait_for
from lib.sets import MODES, kill, make_ssds, make_stack, resynced, start_without

FAILS = "I/O error|critical .* error|Buffer I/O"
BLOCKS = range(0, 20 << 11, 64)  # first sectors of 640 blocks of 4 KiB, 32 KiB apart


def block(sector: int) -> bytes:
    return sector.to_bytes(8, "little") * 512


def make_dirty(stack: Stack) -> None:
    for sector in BLOCKS:
        stack.volume.write(sector, block(sector))
    stack.volume.flush()


def lose(stack: Stack, number: int) -> None:
    """It fails, and that is noticed."""
    failed = stack.cache.status()["devices_failed"]
    kill(stack.ssd[number])
    stack.volume.write(BLOCKS.stop, block(1))
    stack.volume.flush()
    stack.cache.message("checkpoint")  # the write need not have been for it; this writes to every SSD
    wait_for(lambda: stack.cache.status()["devices_failed"] > failed, 30, "the SSD to leave")


def all_there(stack: Stack) -> bool:
    return all(stack.volume.read(sector, 8) == block(sector) for sector in BLOCKS)


def single(stack: Stack) -> int:
    return stack.cache.status()["single_sectors"]


@pytest.mark.parametrize(("mirror", "which", "lost"), [("dirty", 0, 1), ("dirty", 1, 2), ("all", 2, 0)])
def test_under_load(make_disk, make_oracle, kernel_log, seed, mirror, which, lost):
    """The load writes over what is being copied, discards it, drains it, and goes on; then a second SSD is missing."""
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, (48, 48, 48), cache_mirror=mirror)
    oracle = make_oracle(stack.volume, size="40m")
    oracle.run(ops=1500)
    stack.ssd[which].fail(op="read,write,flush,discard,zeroes", status="ioerr", skip=seed % 300)
    Switches(stack.volume, stack.cache).run(oracle, "modes", "checkpoint", "evict", "suspend", ops=2500, every=60)
    oracle.verify()
    resynced(stack)
    oracle.verify()
    stack.stop()
    start_without(stack, which, lost)
    oracle.verify()
    stack.verify_alone(oracle)


def test_writes_beside_it_all_the_time(make_disk, kernel_log):
    """Some are always in flight in the 2 MiB of what has one copy: it gets its second one."""
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, (48, 48, 48), writeback="off", sequential_cutoff=0)
    cold = range(0, 1024, 64)
    for sector in cold:
        stack.volume.write(sector, block(sector))
    stack.volume.flush()
    for s in stack.ssd:
        s.reset_stats()
    assert all(stack.volume.read(sector, 8) == block(sector) for sector in cold)
    lost = max(range(3), key=lambda i: stack.ssd[i].stats()["reads"])  # it has that
    left = [i for i in range(3) if i != lost]
    for i in left:
        stack.ssd[i].fail(op="write", status="ok", delay_ms=50)  # so that they are in flight for long
    ends = threading.Event()

    def write(i: int) -> None:
        while not ends.is_set():
            stack.volume.write(2048 + 64 * i, block(i))

    writers = [threading.Thread(target=write, args=(i,), daemon=True) for i in range(16)]
    for t in writers:
        t.start()
    try:
        kill(stack.ssd[lost])
        wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 60, "the SSD to leave")
        wait_for(lambda: stack.cache.status()["resync_sectors"] >= 8 * len(cold), 120, "the second copies")
        wait_for(lambda: stack.cache.status()["resync"] == "idle", 120, "the resync to end, under the load")
        assert stack.cache.status()["trouble"] == "-"
    finally:
        ends.set()
        for t in writers:
            t.join()
    assert all(stack.volume.read(sector, 8) == block(sector) for sector in cold)
    stack.ssd[left[1]].heal()
    stack.stop()
    start_without(stack, lost, left[0])
    assert all(stack.volume.read(sector, 8) == block(sector) for sector in cold)
    stack.stop()


def test_power_cuts(make_disk, make_oracle, seed):
    """At any time of it: nothing is lost, and it goes on at the next start, to its end."""
    ssds = make_ssds(make_disk, (48, 48, 48), model="nvme", jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    stack = Stack(ssds, hdd, format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=1000)
    stack.stop()
    stack.ssd = [ssds[0], None, ssds[2]]
    stack.cache_options["resync_rate"] = 1  # but for the load
    stack.start()
    meanwhile = 0
    for i in range(8):
        stack.cache.set(resync_rate=(512, 2048, 1024)[i % 3])
        simdisk.power_cut(mode=MODES[(seed + i) % len(MODES)], seed=seed + i, after=1 + (seed * 7919 + i * 104729) % 1500)
        oracle.run_until_cut(ssds[0])
        copied = stack.cache.status()["resync_sectors"]
        stack.stop()
        simdisk.power_up()
        stack.start()
        print(f"{copied} sectors copied, {single(stack)} left")
        meanwhile += copied > 0 and single(stack) > 0
        oracle.verify(after="crash")
        oracle.verify()
    assert meanwhile > 4, "it was seldom at work"
    stack.cache.set(resync_rate=0)
    resynced(stack)
    stack.stop()
    stack.ssd = [None, None, ssds[2]]
    stack.start()
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.parametrize("volume", [True, False])
def test_start_with_one_missing(make_disk, volume):
    """It begins by itself; also of a volume whose backing is not there."""
    stack = make_stack(make_disk, (48, 48, 48), writeback="off")
    make_dirty(stack)
    dirty = stack.cache.status()["dirty_sectors"]
    stack.stop()
    if volume:
        start_without(stack, 1)
    else:
        stack.cache = Cache.start([stack.ssd[0], None, stack.ssd[2]], **stack.cache_options)
    status = resynced(stack)
    assert 0 < status["resync_sectors"] < dirty and status["dirty_sectors"] == dirty
    stack.stop()
    start_without(stack, 1, 2)
    assert all_there(stack)
    stack.stop()


def test_rate_and_interruptions(make_disk, kernel_log):
    """At a low rate it does not come to its end; a suspend, a restart of the volume, the forgetting of another one come between."""
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, (48, 48, 48), writeback="off", cache_resync_rate=1)
    other = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("w", other, "--cache", "c")
    second = Volume.start(other, stack.cache, "w", writeback="off")
    for sector in range(0, 8192, 64):
        second.write(sector, block(sector))
    make_dirty(stack)
    lose(stack, 1)
    wait_for(lambda: stack.cache.status()["resync"] == "running", 30, "the resync")  # it waits while segments are opened
    before = stack.cache.status()
    assert before["resync"] == "running" and before["trouble"] == "single" and before["single_sectors"] > 0
    uuid = second.status()["uuid"]
    second.remove()
    stack.cache.suspend()
    stack.cache.resume()
    stack.cache.message("forget", uuid, "discard_dirty")
    stack.volume.remove()
    stack.volume = Volume.start(stack.hdd, stack.cache, **stack.options)
    status = stack.cache.status()
    assert status["resync"] == "running" and status["single_sectors"] > 0
    stack.cache.set(resync_rate=0)
    resynced(stack)
    assert all_there(stack)
    stack.stop()
    start_without(stack, 0, 1)
    assert all_there(stack)
    stack.stop()


def write_until_it_fails(stack: Stack) -> None:
    """It does, where an SSD that has failed cannot be spared."""
    with pytest.raises((OSError, CommandError)):
        for sector in BLOCKS:
            stack.volume.write(sector, block(sector), fua=True)
        stack.cache.message("checkpoint")


def fails_with_what_it_alone_has(stack: Stack, kernel_log, number: int) -> None:
    """The cache; what is dirty is read from this SSD all the same once it is well again, and is all there after a start."""
    wait_for(lambda: stack.cache.status()["state"] == "failed", 60, "the cache to fail")
    # what follows the state: the line, and the SSD that is taken back for reads
    wait_for(lambda: kernel_log.matching("an SSD failed that alone had dirty data"), 60, "the log to say why")
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 60, "the other one to be taken back")
    assert stack.cache.status()["ssds"].split("/")[number] == "active"
    stack.ssd[number].heal()
    assert all_there(stack)
    stack.stop()


def test_last_but_one_fails_meanwhile(make_disk, kernel_log):
    """Of three.  It has what no other has: it is not left out."""
    kernel_log.expect(FAILS + "|dirty data")
    stack = make_stack(make_disk, (48, 48, 48), writeback="off", cache_resync_rate=1)
    make_dirty(stack)
    lose(stack, 0)
    wait_for(lambda: stack.cache.status()["resync"] == "running", 30, "the resync")
    kill(stack.ssd[2])
    write_until_it_fails(stack)
    fails_with_what_it_alone_has(stack, kernel_log, 2)
    start_without(stack, 0)
    assert all_there(stack)
    stack.cache.set(resync_rate=0)
    resynced(stack)
    lose(stack, 2)
    status = stack.cache.status()
    assert (status["state"], status["devices_failed"], status["mirrored"], status["trouble"]) == ("running", 2, 0, "-")
    assert all_there(stack)
    stack.stop()


def test_second_one_fails_while_the_first_is_absent(make_disk, kernel_log, trace):
    """Of three.  What has its first copy in the place without a block device is being read as the other copy goes."""
    kernel_log.expect(FAILS + "|dirty data")
    stack = make_stack(make_disk, (48, 48, 48), writeback="off", cache_resync_rate=1)
    blocks = []  # commit blocks: nobody reads them but for the sums of their segment
    for i, sector in enumerate(BLOCKS):
        stack.volume.write(sector, block(sector))
        if i % 32 == 31:
            stack.volume.flush()
            last = trace.commands(stack.ssd[1], "write")[-1:]
            blocks += [c.sector + c.sectors - 8 for c in last]
            trace.clear()
    stack.stop()
    start_without(stack, 0)
    wait_for(lambda: stack.cache.status()["resync"] == "running", 30, "the resync")
    # with these the sums of a segment are read slot by slot, and so slowly that the SSD leaves meanwhile
    stack.ssd[1].fail(op="read", status="ok", delay_ms=20)
    for sector in blocks:
        stack.ssd[1].fail(op="read", status="ioerr", from_=sector, to=sector + 8)
    stack.ssd[1].fail(op="write,flush", status="ioerr", delay_ms=150)
    stack.cache.set(resync_rate=0)
    write_until_it_fails(stack)
    fails_with_what_it_alone_has(stack, kernel_log, 1)
    start_without(stack, 0)
    assert all_there(stack)
    stack.stop()


def test_one_flush_fails_meanwhile(make_disk, kernel_log):
    """Of the one that has all, while the one that joined in a place of its own gets its copies: added, it makes nothing worse."""
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, writeback="off", cache_resync_rate=1)
    spare = make_disk("ssd2", model="null", mb=64, wce=1, fua=1)
    make_dirty(stack)
    lose(stack, 0)
    larder("cache", "add", stack.cache, spare, "--new-place", "--yes")
    stack.ssd = [*stack.ssd, spare]
    wait_for(lambda: stack.cache.status()["resync"] == "running", 30, "the resync")
    stack.ssd[1].fail(op="flush", status="ioerr", count=1)
    with contextlib.suppress(OSError):
        stack.volume.write(BLOCKS.stop + 64, block(1))
        stack.volume.flush()
    fails_with_what_it_alone_has(stack, kernel_log, 1)
    start_without(stack, 0)
    assert all_there(stack)
    stack.cache.set(resync_rate=0)
    resynced(stack)
    stack.stop()
    start_without(stack, 0, 1)
    assert all_there(stack)
    stack.stop()


def add_in_new_place(stack: Stack, make_disk, mb: int) -> None:
    spare = make_disk(f"ssd{len(stack.ssd)}", model="null", mb=mb, wce=1, fua=1)
    larder("cache", "add", stack.cache, spare, "--new-place", "--yes")
    stack.ssd = [*stack.ssd, spare]


@pytest.mark.parametrize("skip", [0, 1])
def test_flush_of_a_checkpoint_fails_meanwhile(make_disk, kernel_log, skip):
    """As test_one_flush_fails_meanwhile, and what was volatile is gone.  That one is taken back for reads: no checkpoint may be
    named that has what it lost."""
    kernel_log.expect(FAILS + "|dirty data|could not be")
    stack = make_stack(make_disk, (48, 48, 160), writeback="off", cache_resync_rate=1)  # the last one has the first copies
    make_dirty(stack)
    lose(stack, 1)
    wait_for(lambda: stack.cache.status()["resync"] == "running", 30, "the resync")
    stack.hdd.fail(op="write", status="ioerr")  # the volume cannot leave
    more = range(BLOCKS.stop + 64, BLOCKS.stop + 64 + 512, 8)
    for sector in more:
        stack.volume.write(sector, block(sector))

    def checkpoint() -> None:
        with contextlib.suppress(CommandError):
            stack.cache.message("checkpoint")

    def flush() -> None:
        with contextlib.suppress(OSError):
            stack.volume.flush()

    stack.ssd[0].fail(op="flush", status="ok", delay_ms=3000, count=1, skip=skip)
    both = [threading.Thread(target=f, daemon=True) for f in (checkpoint, flush)]
    both[0].start()
    wait_for(lambda: stack.ssd[0].state()["inflight"], 60, "a flush of the checkpoint")
    stack.ssd[2].fail(op="flush", status="reset", count=1)
    both[1].start()  # meets it beside that
    wait_for(lambda: stack.cache.status()["state"] == "failed", 60, "the cache to fail")
    both[0].join()
    simdisk.power_cut(mode="keep")
    stack.stop()
    for d in (stack.hdd, stack.ssd[2]):
        d.heal()
    simdisk.power_up()
    both[1].join()
    start_without(stack, 1)
    assert all_there(stack)
    assert [s for s in more if stack.volume.read(s, 8) not in (block(s), bytes(4096))] == []
    # what it lost it has again by the log, which the start went through from an older checkpoint
    assert not kernel_log.matching("of a checkpoint is damaged")
    stack.cache.message("scrub")
    wait_for(lambda: stack.cache.status()["scrub"] != "running", 120, "the scrub to end")
    assert stack.cache.status()["scrub_errors"] == 0
    stack.stop()


def test_reads_while_it_is_decided(make_disk, kernel_log):
    """The one that alone has dirty data fails while a slow disk is still being told of another failure: who reads waits until that
    one is taken back, and sees no error."""
    kernel_log.expect(FAILS + "|dirty data")
    stack = make_stack(make_disk, (48, 160), writeback="off", cache_resync_rate=1)
    make_dirty(stack)
    lose(stack, 0)
    for mb in (160, 32):  # what is written goes to the large ones
        add_in_new_place(stack, make_disk, mb)
    wait_for(lambda: stack.cache.status()["resync"] == "running", 30, "the resync")
    stack.hdd.fail(op="write", status="ok", delay_ms=6000)

    def write() -> None:
        with contextlib.suppress(OSError):
            stack.volume.write(BLOCKS.stop, block(1))

    kill(stack.ssd[2])
    stack.ssd[1].fail(op="write", status="ioerr", delay_ms=2000, count=1)  # the same append
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    wait_for(lambda: stack.hdd.state()["inflight"], 60, "the backing to be told of the first")
    reads = 0
    while stack.cache.status()["state"] != "failed":
        assert all_there(stack)
        reads += 1
    assert reads and all_there(stack)
    for d in (stack.hdd, stack.ssd[1]):
        d.heal()
    writer.join()
    stack.stop()


def test_chunks_of_a_mirror_that_is_raised(make_disk):
    """What is dirty is in pairs, and the checkpoints were taken with mirror=none: raised, they are in pairs again."""
    stack = make_stack(make_disk, (48, 96), writeback="off")
    make_dirty(stack)
    stack.cache.set(mirror="none")
    for sector in (BLOCKS.stop, BLOCKS.stop + 64):
        stack.volume.write(sector, block(1))
        stack.cache.message("checkpoint")
    stack.cache.set(mirror="dirty")
    wait_for(lambda: stack.cache.status()["resync"] == "idle", 60, "the resync")
    simdisk.power_cut(mode="keep")
    stack.stop()
    simdisk.power_up()
    start_without(stack, 1)  # where all chunks of one copy were: it has more room
    assert all_there(stack)
    stack.stop()


def test_one_joins_meanwhile(make_disk, kernel_log):
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, (48, 48, 48), writeback="off", cache_resync_rate=1)
    spare = make_disk("ssd3", model="null", mb=64, wce=1, fua=1)
    make_dirty(stack)
    lose(stack, 1)
    wait_for(lambda: stack.cache.status()["resync"] == "running", 30, "the resync")
    larder("cache", "replace", stack.cache, 1, spare, "--yes")
    stack.ssd[1] = spare
    assert stack.cache.status()["ssds"] == "active/active/active"
    stack.cache.set(resync_rate=0)
    resynced(stack, failed=0)
    stack.stop()
    start_without(stack, 0)
    assert all_there(stack)
    stack.stop()


def test_after_a_drain_that_was_stopped(make_disk, kernel_log):
    """One of two is being drained: what is written meanwhile is on the other one only, until that was given up."""
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, writeback="off")
    stack.volume.write(BLOCKS.stop, block(1))
    stack.hdd.fail(op="write", status="ioerr")  # so that it does not come to its end
    stack.cache.message("drain", 1)
    make_dirty(stack)
    alone = single(stack)  # all but what went into segments that were opened, on both, before
    assert alone > 4 * len(BLOCKS)
    stack.cache.message("drain_stop")
    status = resynced(stack, failed=0)
    assert status["resync_sectors"] >= alone
    for sector in BLOCKS[::2]:  # into segments that were opened before
        stack.volume.write(sector, block(sector))
    stack.volume.flush()
    assert single(stack) == 0
    stack.hdd.heal()
    stack.stop()
    start_without(stack, 0)
    assert all_there(stack)
    stack.stop()


@pytest.mark.parametrize("readable", [True, False])
def test_after_one_joined_in_a_place_of_its_own(make_disk, kernel_log, readable):
    """One of two has failed, and its place stays empty: all that the other one has gets its second copy on the one that joins."""
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, writeback="off")
    spare = make_disk("ssd2", model="null", mb=64, wce=1, fua=1)
    make_dirty(stack)
    lose(stack, 0)
    assert single(stack) >= 8 * len(BLOCKS)
    if readable:
        stack.ssd[0].heal()  # and stays out
    larder("cache", "add", stack.cache, spare, "--new-place", "--yes")
    stack.ssd = [*stack.ssd, spare]
    assert stack.cache.status()["ssds"] == "failed/active/active"
    resynced(stack)
    stack.stop()
    start_without(stack, 0, 1)
    assert all_there(stack)
    stack.stop()


@pytest.mark.parametrize(("how", "level", "lost"), [("message", "dirty", 0), ("message", "all", 1), ("table", "dirty", 1)])
def test_level_is_raised(make_disk, kernel_log, how, level, lost):
    """From none: all that is dirty gets its second copy, without a restart, and one SSD may be lost then."""
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, cache_mirror="none", writeback="off")
    make_dirty(stack)
    assert stack.cache.status()["segments_mirror"] == 0 and single(stack) == 0
    if how == "message":
        stack.cache.set(mirror=level)
    else:
        stack.cache.reload(Cache.line(stack.ssd, **stack.cache_options | {"mirror": level}))
    stack.cache_options["mirror"] = level
    status = resynced(stack, failed=0)
    assert status["resync_sectors"] >= 8 * len(BLOCKS)
    lose(stack, lost)
    assert all_there(stack)
    stack.stop()
    start_without(stack, lost)
    assert all_there(stack)
    stack.stop()


def test_one_fails_while_the_level_is_raised(make_disk, kernel_log):
    """It may have what no other has: it is not left out, but the cache fails, and with it again everything is there."""
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, cache_mirror="none", writeback="off", cache_resync_rate=1)
    make_dirty(stack)
    stack.cache.set(mirror="dirty")
    wait_for(lambda: stack.cache.status()["resync"] == "running", 30, "the resync")
    kill(stack.ssd[1])
    with pytest.raises(OSError):
        for sector in BLOCKS:
            stack.volume.write(sector, block(sector), fua=True)
    assert stack.cache.status()["state"] == "failed"
    stack.stop()
    stack.ssd[1].heal()
    stack.cache_options = {"mirror": "dirty"}
    stack.start()
    assert all_there(stack)
    resynced(stack, failed=0)
    assert all_there(stack)
    stack.stop()


def test_level_is_raised_again_meanwhile(make_disk):
    """A third copy is asked for beside a pass that makes second ones: what that has done already gets its third one, too."""
    stack = make_stack(make_disk, (48, 48, 48), cache_mirror="none", writeback="off", cache_resync_rate=256)
    make_dirty(stack)
    stack.cache.set(mirror="dirty")
    wait_for(lambda: stack.cache.status()["resync_sectors"] > 400, 60, "some second copies")
    stack.cache.set(mirror="dirty:3")
    assert stack.cache.status()["resync"] == "running", "it had ended before"
    stack.cache.set(resync_rate=0)
    wait_for(lambda: (s := stack.cache.status())["resync"] == "idle" and not s["below_sectors"], 120, "third copies")
    stack.cache_options["mirror"] = "dirty:3"
    stack.stop()
    start_without(stack, 0, 1)
    assert all_there(stack)
    stack.stop()


@pytest.mark.parametrize("alone", [0, 1, 2])
def test_level_is_raised_past_a_bad_place(make_disk, kernel_log, trace, alone):
    """A slot of the copy that is read first is unreadable: the third copy is made of the other one, and nobody is told to give up
    what is there."""
    kernel_log.expect(FAILS)
    stack = make_stack(make_disk, (48, 48, 48), writeback="off")
    make_dirty(stack)
    trace.clear()
    assert stack.volume.read(BLOCKS[100], 8) == block(BLOCKS[100])
    (read,) = [c for s in stack.ssd for c in trace.commands(s, "read")]
    bad = next(s for s in stack.ssd if s.name == read.disk)
    bad.fail(op="read", from_=read.sector, to=read.sector + 8, status="medium")
    stack.cache.set(mirror="dirty:3")
    stack.cache_options["mirror"] = "dirty:3"
    wait_for(lambda: stack.cache.status()["resync"] in ("idle", "failed"), 120, "the third copies")
    status = stack.cache.status()
    assert (status["resync"], status["below_sectors"], status["trouble"]) == ("idle", 0, "-")
    assert bad.faults()[0]["hits"] and status["errors_read"] and not kernel_log.matching("dirty data .* discard")
    bad.heal()
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    start_without(stack, *({0, 1, 2} - {alone}))
    assert all_there(stack)
    stack.stop()


@pytest.mark.parametrize("how", ["raised", "lost"])
def test_three_copies_that_are_not_durable(make_disk, kernel_log, how):
    """Dirty data that one SSD alone had, mirror being raised from none, or two of five being lost, has three copies, and no
    checkpoint is named since: without that SSD no start finds it.  The status says so until it is over."""
    kernel_log.expect(FAILS)
    sizes, mirror, lost = {"raised": ((48,) * 3, "none", ()), "lost": ((48,) * 5, "dirty:3", (3, 4))}[how]
    stack = make_stack(make_disk, sizes, cache_mirror=mirror, writeback="off", cache_resync_rate=1)
    make_dirty(stack)
    for number in lost:
        lose(stack, number)
    stack.cache.set(mirror="dirty:3")
    stack.cache_options["mirror"] = "dirty:3"
    wait_for(lambda: stack.cache.status()["resync"] == "running", 30, "the resync")
    assert single(stack) and stack.cache.status()["trouble"] == "single"
    stack.ssd[0].fail(op="write", from_=8, to=16, status="ok", delay_ms=3000)  # a superblock names a checkpoint
    stack.cache.set(resync_rate=0)
    seen = []

    def over() -> bool:
        seen.append(stack.cache.status())
        return seen[-1]["resync"] == "idle"

    wait_for(over, 120, "the third copies")
    between = [s["trouble"] for s in seen if s["resync"] != "idle" and not s["single_sectors"]]
    assert between and set(between) == {"single"}
    assert (seen[-1]["trouble"], seen[-1]["below_sectors"]) == ("-", 0)
    stack.ssd[0].heal()
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    start_without(stack, 0, 1, *lost)
    assert all_there(stack)
    stack.stop()
