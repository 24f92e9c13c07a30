# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache fails: its volumes go on without it, and nobody sees an error, where nothing is dirty, or what is can be read.  It is
stale from then on, if it comes back, before anything has reached the backing past it."""

import concurrent.futures

import pytest
from lib import command, dm_ioctl, simdisk
from lib.larder import DATA_SECTOR, Stack, Volume, backing_alone, larder, wait_for
from lib.oracle import Load, Oracle
from lib.sets import kill, make_ssds

MODES = ("writethrough", "writearound", "writeback")
EVERYTHING = "read,write,flush,discard,zeroes"
NOISE = "I/O error|critical .* error|Buffer I/O"


def make(make_disk, ssds: int = 1, **options: object) -> Stack:
    disks = make_ssds(make_disk, (32,) * ssds, model="null")
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    return Stack(disks if ssds > 1 else disks[0], hdd, format_volume=("--cache", "c"), **options)


def passing(stack: Stack) -> None:
    wait_for(lambda: stack.volume.status()["state"] == "passing", 60, "the volume to leave")


def under_way(stack: Stack, oracle: Oracle, **load: object) -> Load:
    """It has begun: the SSDs get what it writes."""
    ssds = stack.ssd if isinstance(stack.ssd, list) else [stack.ssd]
    for s in ssds:
        s.reset_stats()
    running = oracle.start(qd=8, **load)
    wait_for(lambda: sum(s.stats()["writes"] for s in ssds) > 20, 60, "the load to run")
    return running


def flags(stack: Stack) -> str:
    return larder("super", "show", stack.hdd, "-o", "flags", "--noheadings").stdout.strip()


def is_stale(stack: Stack) -> bool:
    """Starts the stack with its SSDs, as always: what is stale has nothing of it any more, and may have again."""
    left = flags(stack) == "left"
    stack.start()
    assert not left or not stack.volume.status()["cached_sectors"]
    assert flags(stack) in ("none", "may_be_dirty")
    return left


# flushes alone, in writeback: what is written becomes dirty before the first one, and cannot be made durable
@pytest.mark.parametrize(
    ("mode", "ops"), [(m, ops) for m in MODES for ops in (EVERYTHING, "write", "flush") if (m, ops) != ("writeback", "flush")]
)
def test_nobody_sees_an_error(make_disk, make_oracle, kernel_log, mode, ops):
    """The SSD dies under load, but for writeback, where nothing may be dirty.  The load has discards, zeroes, FUA and flushes."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode=mode, sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=1000)
    if mode == "writeback":
        stack.volume.drain()
        kill(stack.ssd, ops)
        oracle.run(ops=1000)
    else:
        load = under_way(stack, oracle, ops=3000)
        kill(stack.ssd, ops)
        assert load.running(), "it has ended before the SSD dies"
        load.wait()
        stack.volume.flush()
    passing(stack)
    oracle.verify()
    assert stack.cache.status()["state"] == "failed" and not stack.volume.status()["may_be_dirty"]
    text = larder("volume", "status", "v").stdout
    assert "larder volume detach v" in text and "larder cache status" in text, text
    oracle.run(ops=500)
    simdisk.power_cut(mode="random")
    stack.stop()
    simdisk.power_up()
    raw = backing_alone(stack.hdd)
    oracle.verify(after="crash", device=raw)
    raw.remove()
    stack.ssd.heal()
    assert is_stale(stack)
    oracle.verify()
    oracle.run(ops=500)
    oracle.verify()
    stack.stop()


def test_both_of_a_set_die(make_disk, make_oracle, kernel_log):
    kernel_log.expect(NOISE)
    stack = make(make_disk, ssds=2, mode="writethrough", sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=500)
    load = under_way(stack, oracle, ops=3000)
    for s in stack.ssd:
        kill(s)
    assert load.running(), "it has ended before they die"
    load.wait()
    stack.volume.flush()
    passing(stack)
    oracle.verify()
    stack.stop()


def made_to_pass(make_disk, make_oracle, kernel_log) -> tuple[Stack, Oracle]:
    """Its only SSD is dead, and nothing was dirty."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode="writethrough")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=500)
    kill(stack.ssd)
    oracle.run(ops=100)
    passing(stack)
    return stack, oracle


def test_goes_on_behind_a_suspend(make_disk, make_oracle, kernel_log):
    """Suspended and resumed, reloaded, its cache suspended; then detached by the verb."""
    stack, oracle = made_to_pass(make_disk, make_oracle, kernel_log)
    for again in (
        lambda: (stack.volume.suspend(), stack.volume.resume()),
        lambda: stack.volume.reload(stack.volume.table()),
        lambda: (stack.cache.suspend(), stack.cache.resume()),
    ):
        again()
        passing(stack)
        oracle.run(ops=200)
        oracle.verify()
    larder("volume", "detach", "v")
    assert stack.volume.status()["state"] == "passthrough"
    oracle.run(ops=200)
    oracle.verify()
    stack.stop()


def all_lose_power(stack: Stack, load: Load, seed: int) -> None:
    """Behind a power cut of the backing, which ends the load; then all is there again, and the SSD is well."""
    load.wait()
    simdisk.wait_power_off(stack.hdd)
    simdisk.power_cut(mode="random", seed=seed)
    stack.stop()
    stack.ssd.heal()
    simdisk.power_up()


@pytest.mark.parametrize("mode", ["writethrough", "writeback"])
@pytest.mark.limit(1200)
def test_power_cuts(make_disk, make_oracle, kernel_log, seed, mode):
    """Power fails at each of the first commands that the backing gets behind the death of the SSD; that is well again afterwards,
    and has all that it had.  Started with it: it is stale, or nothing has reached the backing that it does not know of.  The last
    time the volume has left for certain: among the first ones there may be none but those that were on their way."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode=mode, sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="16m")
    seen = []
    for after in (*range(1, 13), 500):
        oracle.run(ops=300, qd=8)
        if mode == "writeback":
            stack.volume.drain()
        load = oracle.start(ops=0, seconds=60, until_error=True, qd=8) if mode != "writeback" else None
        kill(stack.ssd)
        simdisk.power_cut(stack.hdd, mode="random", seed=seed + after, after=after)
        load = load or oracle.start(ops=0, seconds=60, until_error=True, qd=8)
        all_lose_power(stack, load, seed + after)
        seen.append(is_stale(stack))
        oracle.verify(after="crash")
        oracle.verify()
        stack.cache.message("reclaim", 100)
        oracle.verify()
    assert seen[-1], seen
    stack.stop()


def test_backing_says_so_first(make_disk, kernel_log):
    """Nothing reaches it past the cache that failed before its superblock says that this is stale, which takes two attempts."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode="writeback", sequential_cutoff=0)
    old, new = b"old".ljust(4096, b"."), b"new".ljust(4096, b".")
    stack.volume.write(0, old)
    stack.volume.flush()
    stack.volume.drain()
    kill(stack.ssd)
    stack.hdd.fail(op="write", status="ioerr", to=DATA_SECTOR, count=1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writing = pool.submit(stack.volume.write, 0, new)
        done = False
        while not done:
            done = writing.done()
            there = stack.hdd.read(DATA_SECTOR, 8)
            assert flags(stack) == "left" or there == old
        writing.result()
    passing(stack)
    assert stack.hdd.read(DATA_SECTOR, 8) == new and [f["hits"] for f in stack.hdd.faults()] == [1]
    stack.stop()


READ_ONLY = "write,discard,zeroes"  # a flush that fails is another row: it is tried again, and its caller told


def make_dirty(make_disk, make_oracle, ssds: int = 1, **options: object) -> tuple:
    """A stack with dirty, clean and zeroed data, of which some was written over, and not all was flushed."""
    stack = make(make_disk, ssds=ssds, **{"mode": "writeback", "sequential_cutoff": 0, **options})
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=400, qd=8)
    stack.volume.drain()
    stack.volume.set(writeback="off")
    oracle.run(ops=400, qd=8)
    assert stack.volume.status()["dirty_sectors"] > 1000
    return stack, oracle


@pytest.mark.parametrize(("ssds", "options"), [(1, {}), (1, {"cache_commit": "always"}), (2, {"cache_mirror": "none"})])
def test_dirty_data_of_a_read_only_ssd(make_disk, make_oracle, kernel_log, ssds, options):
    """The SSDs take nothing any more, and can be read.  Under load nobody sees an error, what is dirty reaches the backing, and the
    volume goes on; they are stale afterwards."""
    kernel_log.expect(NOISE)
    stack, oracle = make_dirty(make_disk, make_oracle, ssds, **options)
    load = under_way(stack, oracle, ops=2000)
    for s in stack.ssd if ssds > 1 else [stack.ssd]:
        kill(s, READ_ONLY)
    assert load.running(), "it has ended before they take nothing any more"
    load.wait()
    stack.volume.flush()
    passing(stack)
    status = stack.volume.status()
    assert not status["dirty_sectors"] and not status["may_be_dirty"]
    oracle.verify()
    oracle.run(ops=500, qd=8)
    simdisk.power_cut(mode="random")
    stack.stop()
    simdisk.power_up()
    raw = backing_alone(stack.hdd)
    oracle.verify(after="crash", device=raw)
    raw.remove()
    for s in stack.ssd if ssds > 1 else [stack.ssd]:
        s.heal()
    assert is_stale(stack)
    oracle.verify()
    oracle.run(ops=300)
    stack.verify_alone(oracle)


@pytest.mark.limit(1200)
def test_power_cuts_while_it_is_written_back(make_disk, make_oracle, kernel_log, seed):
    """Power fails at a command of the backing after the SSD has become read-only; all of it is well again afterwards.  What a start
    shows stays what it is behind evictions and writeback; once nothing is dirty a start attaches the volume anew."""
    kernel_log.expect(NOISE)
    stack, oracle = make_dirty(make_disk, make_oracle)
    seen = set()
    for k in range(10):
        stack.volume.set(writeback="off")
        oracle.run(ops=300, qd=8)
        load = oracle.start(ops=0, seconds=60, until_error=True, qd=8)
        kill(stack.ssd, READ_ONLY)
        simdisk.power_cut(stack.hdd, mode="random", seed=seed + k, after=1 + k * k)
        all_lose_power(stack, load, seed + k)
        seen.add(flags(stack))
        void = "clean_void" in flags(stack)
        stack.start()
        oracle.verify(after="crash")
        oracle.verify()
        stack.volume.message("drop_clean")
        oracle.verify()
        stack.volume.set(writeback="on")
        stack.volume.drain()
        stack.volume.message("drop_clean")
        oracle.verify()
        if void:
            assert "clean_void" in flags(stack)
            stack.restart()
            assert flags(stack) in ("none", "may_be_dirty") and not stack.volume.status()["cached_sectors"]
            oracle.verify()
    assert "may_be_dirty,clean_void" in seen, seen
    stack.verify_alone(oracle)


def test_clean_data_that_the_backing_is_past(make_disk, kernel_log):
    """What was acknowledged, and not flushed, is written back as the SSD takes no write and no flush any more, and the power fails:
    it is lost on the SSD, and what is clean there is older than the backing.  At each of the first writes that this gets."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode="writeback", sequential_cutoff=0)
    seen = set()
    for after in range(1, 5):
        old, new = (word.ljust(4096, bytes([after])) for word in (b"old", b"new"))
        stack.volume.set(writeback="on")
        stack.volume.write(0, old)
        stack.volume.flush()
        stack.volume.drain()
        stack.cache.message("checkpoint")  # that it is clean is durable
        stack.volume.set(writeback="off")
        stack.volume.write(4096, new)  # dirty: without any the volume would be attached anew
        stack.volume.flush()
        stack.volume.write(0, new)
        kill(stack.ssd, READ_ONLY + ",flush")
        simdisk.power_cut(stack.hdd, mode="keep", after=after, ops="write")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(stack.volume.write, 8192, new)  # its append fails, and so does the cache
            simdisk.wait_power_off(stack.hdd)
        simdisk.power_cut(stack.ssd, mode="lose")
        stack.stop()
        stack.ssd.heal()
        simdisk.power_up()
        void, backing = "clean_void" in flags(stack), stack.hdd.read(DATA_SECTOR, 8)
        seen.add((void, backing == new))
        stack.start()
        first = stack.volume.read(0, 8)
        assert first in (old, new)
        stack.volume.message("drop_clean")
        assert stack.volume.read(0, 8) == first, "what was read has changed"
    assert (True, True) in seen, seen
    stack.stop()


def test_backing_is_reset_meanwhile(make_disk, make_oracle, kernel_log):
    """While what is dirty is written back the backing loses what it has answered of it; one write fails, the flush succeeds."""
    kernel_log.expect(NOISE)
    stack, oracle = make_dirty(make_disk, make_oracle)
    stack.volume.flush()
    stack.hdd.fail(op="write", from_=DATA_SECTOR, skip=40, count=1, status="reset")
    kill(stack.ssd, READ_ONLY)
    oracle.run(ops=50)
    passing(stack)
    assert stack.hdd.faults()[0]["hits"] == 1
    oracle.verify()
    stack.stop()


def test_it_is_written_back_later(make_disk, make_oracle, kernel_log):
    """The backing fails as well: writes get errors at once, and dirty data can be read.  When it is well again the volume goes on,
    without a hand.  So, too, where the SSD could not be read for a while."""
    kernel_log.expect(NOISE)
    stack, oracle = make_dirty(make_disk, make_oracle)
    for disk, ops in ((stack.hdd, "write"), (stack.ssd, "read")):
        kill(stack.ssd, READ_ONLY)
        disk.fail(op=ops, status="ioerr")
        oracle.run(ops=200, errors_ok=True)
        wait_for(lambda: stack.volume.status()["state"] == "cache-failed", 60, "writes to fail")
        with pytest.raises(OSError):
            stack.volume.write(0, bytes(4096))
        if disk == stack.hdd:
            oracle.verify()
        disk.heal()
        if disk == stack.ssd:
            kill(stack.ssd, READ_ONLY)
        passing(stack)
        oracle.verify()
        stack.volume.take_told()
        oracle.run(ops=200)
        oracle.verify()
        stack.stop()
        stack.ssd.heal()
        stack.start()
        oracle.run(ops=300)
        assert stack.volume.status()["dirty_sectors"]
    stack.volume.set(writeback="on")
    stack.verify_alone(oracle)


def test_nobody_waits_for_it(make_disk, make_oracle, kernel_log):
    """failure_wait=0: errors while it is written back; suspended, resumed, reloaded meanwhile; it goes on when it is."""
    kernel_log.expect(NOISE)
    stack, oracle = make_dirty(make_disk, make_oracle, failure_wait=0)
    assert stack.volume.status()["failure_wait"] == 0
    stack.hdd.fail(op="write", status="ioerr")
    kill(stack.ssd, READ_ONLY)
    oracle.run(ops=100, errors_ok=True)
    stack.volume.suspend()
    stack.volume.resume()
    stack.volume.reload(stack.volume.table())
    stack.hdd.heal()
    passing(stack)
    oracle.verify()
    stack.volume.take_told()
    oracle.run(ops=200)
    oracle.verify()
    stack.stop()


def test_what_is_dirty_stays(make_disk, make_oracle, kernel_log):
    """One of two volumes has dirty data, and the SSD cannot be read: writes of that one fail, the other one leaves; and at a start
    with the SSD well again the dirty data is there."""
    kernel_log.expect(NOISE)
    stack = make(make_disk, mode="writeback", writeback="off", sequential_cutoff=0)
    hdd = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("w", hdd, "--cache", "c")
    other = Volume.start(hdd, stack.cache, name="w", mode="writethrough")
    dirty, clean = make_oracle(stack.volume, size="8m"), make_oracle(other, size="8m")
    dirty.run(ops=300)
    stack.volume.flush()
    clean.run(ops=300)
    kill(stack.ssd)
    dirty.run(ops=50, errors_ok=True)
    clean.run(ops=300)
    wait_for(lambda: other.status()["state"] == "passing", 60, "the other one to leave")
    assert stack.volume.status()["state"] == "cache-failed"
    with pytest.raises(OSError):
        stack.volume.write(0, bytes(4096))
    dirty.verify(unreadable_ok=True)
    other.remove()
    stack.stop()
    clean.verify(device=backing_alone(hdd, "other"))
    stack.ssd.heal()
    stack.start()
    dirty.verify(after="crash")
    stack.verify_alone(dirty)


def remove_by_force(stack: Stack) -> None:
    """The dm device of the cache has `error` from here on; it stays, as a table of the volume names it."""
    command.run("dmsetup", "remove", "--force", "c", check=False)
    assert stack.cache.table().split()[2:] == ["error"]


def test_handle_is_removed_by_force(make_disk, make_oracle, kernel_log):
    """The only SSD is dead, the volume has left: what is done to the handle of the cache does not concern it any more."""
    stack, oracle = made_to_pass(make_disk, make_oracle, kernel_log)
    remove_by_force(stack)
    assert not dm_ioctl.is_held("v") and not stack.volume.info()["suspended"]
    for again in (lambda: None, lambda: (stack.volume.suspend(), stack.volume.resume())):
        again()
        passing(stack)
        oracle.run(ops=200)
        stack.volume.flush()
        oracle.verify()
    stack.volume.reload(stack.line(cached=False))
    assert stack.volume.status()["state"] == "passthrough"
    oracle.run(ops=200)
    oracle.verify()
    stack.volume.remove()
    stack.cache.remove()
    stack.volume = stack.cache = None
    oracle.verify(device=backing_alone(stack.hdd))


def test_handle_is_removed_beside_dirty_data(make_disk, make_oracle, kernel_log):
    """The same with what is dirty on the SSD, which cannot be read: the volume is suspended, and can be removed, or has its data
    given up."""
    kernel_log.expect(NOISE)
    stack, oracle = make_dirty(make_disk, make_oracle)
    stack.volume.flush()
    uuid = stack.cache.status()["uuid"]
    for last in (False, True):
        kill(stack.ssd)
        oracle.run(ops=50, errors_ok=True)
        wait_for(lambda: stack.volume.status()["state"] == "cache-failed", 60, "writes to fail")
        remove_by_force(stack)
        assert not dm_ioctl.is_held("v") and stack.volume.info()["suspended"]
        with pytest.raises(command.CommandError):
            stack.volume.resume()
        assert kernel_log.said("has no table: load that into its device")
        if last:
            stack.volume.message("discard_dirty", uuid)
            stack.volume.load(stack.line(cached=False))
            stack.volume.resume()
            stack.volume.write(0, bytes(4096))
            stack.volume.flush()
            stack.volume.remove()
        else:
            command.run("dmsetup", "remove", "--force", "v", seconds=60)
        stack.cache.remove()
        stack.volume = stack.cache = None
        if not last:
            stack.ssd.heal()
            stack.start()
            oracle.verify(after="crash")
            assert stack.volume.status()["dirty_sectors"]


def test_handle_comes_back(make_disk, make_oracle, kernel_log):
    """Behind a removal by force the table of the cache, loaded into the same device again, lets its volumes go on: of one that runs
    by itself, of one that has failed, and can be read, when they are resumed."""
    kernel_log.expect(NOISE)
    stack, oracle = make_dirty(make_disk, make_oracle)
    table = stack.cache.table()

    def comes_back() -> None:
        stack.cache.load(table)
        stack.cache.resume()

    remove_by_force(stack)
    assert dm_ioctl.is_held("v")
    comes_back()
    assert not dm_ioctl.is_held("v") and not stack.volume.info()["suspended"]
    oracle.verify()
    oracle.run(ops=100)
    assert stack.volume.status()["dirty_sectors"]
    stack.hdd.fail(op="write", status="ioerr")
    kill(stack.ssd, READ_ONLY)
    oracle.run(ops=50, errors_ok=True)
    wait_for(lambda: stack.volume.status()["state"] == "cache-failed", 60, "writes to fail")
    remove_by_force(stack)
    assert not dm_ioctl.is_held("v") and stack.volume.info()["suspended"]
    stack.hdd.heal()
    comes_back()
    stack.volume.resume()
    passing(stack)
    oracle.verify()
    stack.volume.take_told()
    oracle.run(ops=100)
    oracle.verify()
    stack.stop()
