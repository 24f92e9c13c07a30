# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything that can be changed while a volume is in use is changed while the oracle writes to it."""

import concurrent.futures
import errno
import os
import threading
import time

import pytest
from lib import command
from lib.controls import Switches
from lib.larder import DATA_SECTOR, Cache, Stack, Volume, backing_alone, wait_for
from lib.parts import MIB, Part

LOAD = {"ops": 2500, "every": 40}


def make_stack(make_disk, ssd_mb: int = 64, **options: object) -> Stack:
    ssd = make_disk("ssd0", model="null", mb=ssd_mb, wce=1, fua=1, discard="random")
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    return Stack(ssd, hdd, format_volume=("--cache", "c"), **options)


@pytest.mark.parametrize(
    "what", ["modes", "settings", "checkpoint evict writeback", "suspend", "reload", "suspend_cache", "reload_cache"]
)
def test_switches(make_disk, make_oracle, what):
    stack = make_stack(make_disk)
    switches = Switches(stack.volume, stack.cache)
    oracle = make_oracle(stack.volume, size="24m")
    n = switches.run(oracle, *what.split(), **LOAD)
    assert n >= 12
    oracle.verify()
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)


def test_attach_and_detach(make_disk, make_oracle):
    """The volume begins without a cache, and is attached and detached while it is written."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    Cache.format("c", ssd)
    Volume.format("v", hdd)
    cache = Cache.start(ssd)
    v = Volume.start(hdd, None)
    switches = Switches(v, cache)
    oracle = make_oracle(v, size="24m")
    n = 0
    for _ in range(8):
        n = switches.run(oracle, "attach", first=n, ops=1000, every=100, qd=4)
        if switches.detached > 2:
            break
    print(f"attached {switches.attached} times, detached {switches.detached}, refused {switches.refused}")
    assert switches.attached > 2 and switches.detached > 2
    assert v.status()["incarnation"] > switches.detached
    oracle.verify()
    if v.status()["state"] == "passthrough":
        assert cache.status()["volumes"] == 0
        switches.attach(0)
    v.set(writeback="off")
    oracle.run(ops=300)
    assert v.dirty() > 0
    line = v.table()
    with pytest.raises(command.CommandError):  # refused, and nothing has changed
        v.load(Volume.line(hdd, None, v.sectors))
    assert v.table() == line
    oracle.verify()
    v.set(mode="writethrough")
    v.drain()
    v.reload(Volume.line(hdd, None, v.sectors))
    assert cache.status()["volumes"] == 0
    v.remove()
    cache.remove()
    oracle.verify(device=backing_alone(hdd))


def test_many_volumes(make_disk, make_oracle):
    """Three volumes of one small cache, each in another mode, each with an oracle; everything is switched at once."""
    ssd = make_disk("ssd0", model="null", mb=48, wce=1, fua=1)
    Cache.format("c", ssd)
    cache = Cache.start(ssd)
    volumes, oracles, disks = [], [], []
    for i, mode in enumerate(("writeback", "writethrough", "writearound")):
        disks.append(make_disk(f"hdd{i}", model="null", mb=64, wce=1))
        Volume.format(f"v{i}", disks[i])
        volumes.append(Volume.start(disks[i], cache, name=f"v{i}", mode=mode))
        oracles.append(make_oracle(volumes[i], size="20m"))
    turns = (
        ("suspend", "settings", "checkpoint"),
        ("reload", "evict", "modes"),
        ("suspend_cache", "writeback", "reload_cache"),
    )
    failures = []

    def work(i: int) -> None:
        try:
            Switches(volumes[i], cache).run(oracles[i], *turns[i], ops=1000, every=30)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    for o in oracles:
        o.verify()
    assert cache.status()["volumes"] == 3
    for v in volumes:
        v.remove()
    cache.remove()
    cache = Cache.start(ssd)
    for i, o in enumerate(oracles):
        v = Volume.start(disks[i], cache, name=f"v{i}")
        o.verify()
        v.set(mode="writethrough")
        v.drain()
        v.reload(Volume.line(disks[i], None, v.sectors))
        v.remove()
        o.verify(device=backing_alone(disks[i], f"raw{i}"))
    cache.remove()


def test_stop_in_the_middle(make_disk, make_oracle):
    """Volume and cache are removed while writeback, fills, reclaim and a checkpoint are under way, with dirty data."""
    stack = make_stack(make_disk, ssd_mb=32, sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="48m")
    left = 0
    for i in range(4):
        oracle.run(ops=500)
        if i % 2:
            stack.volume.message("flush")
        if i == 2:
            stack.volume.set(mode="writethrough")
        left += stack.volume.dirty() > 0
        stack.restart()
        assert stack.volume.status()["flushing"] == 0
        oracle.verify()
    assert left, "no dirty data was ever left"
    stack.verify_alone(oracle)


def test_remove_with_much_dirty_data(make_disk, make_oracle):
    """It stays in the cache.  The time is printed, and judged by nobody."""
    stack = make_stack(make_disk, ssd_mb=128, sequential_cutoff=0, writeback="off")
    oracle = make_oracle(stack.volume, size="40m")
    oracle.run(ops=300, mix="write=100", sizes="4k:20,1m:80")
    dirty = stack.volume.dirty()
    assert dirty > 20 << 11
    begin = time.monotonic()
    stack.volume.remove()
    removed = time.monotonic()
    stack.cache.remove()
    print(f"{dirty >> 11} MiB dirty: volume removed in {removed - begin:.2f} s, cache in {time.monotonic() - removed:.2f} s")
    assert stack.hdd.stats()["wbytes"] < (20 << 20), "it was written back"
    begin = time.monotonic()
    stack.start()
    print(f"both started in {time.monotonic() - begin:.2f} s")
    assert stack.volume.dirty() == dirty
    oracle.verify()
    stack.verify_alone(oracle)


def test_volume_grows(make_disk, make_oracle):
    """By plain reload, while it is written; the rest is in test_grow.py."""
    disk = make_disk("hdd0", model="null", mb=128, wce=1)
    hdd = Part.make("b", disk, 64)
    stack = Stack(make_disk("ssd0", model="null", mb=64, wce=1, fua=1), hdd, format_volume=("--cache", "c"))
    disk.write(64 * MIB, b"behind" * 256)
    oracle = make_oracle(stack.volume, size="24m")
    running = oracle.start(ops=1500)
    hdd.resize(128)
    room = stack.volume.status()["room_sectors"]
    assert room == 128 * MIB - 2 * DATA_SECTOR
    stack.volume.reload(Volume.line(hdd, stack.cache, room))
    running.wait(300)
    assert stack.volume.sectors == room
    stack.volume.write(room - 8, b"last".ljust(4096, b"!"))
    stack.restart()
    assert stack.volume.read(64 * MIB - DATA_SECTOR, 3) == b"behind" * 256
    assert stack.volume.read(room - 8, 8) == b"last".ljust(4096, b"!")
    oracle.verify()
    stack.verify_alone(oracle)


def test_nothing_is_forgotten_beside_a_reload(make_disk, kernel_log):
    """Volumes are bound again one after the other, while messages come: the second one is in use, though its turn is still to come.
    An SSD was lost meanwhile, so that each backing is told, and the first one hangs."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = [make_disk(f"ssd{i}", model="null", mb=64, wce=1, fua=1) for i in range(2)]
    below = Part.make("below", make_disk("hdd0", model="null", mb=64, wce=1), 64)
    hdd = make_disk("hdd1", model="null", mb=64, wce=1)
    Cache.format("c", ssds)
    cache = Cache.start(ssds)
    data, volumes = os.urandom(4096), []
    for name, backing in (("v", below), ("w", hdd)):
        Volume.format(name, backing)
        volumes.append(Volume.start(backing, cache, name, writeback="off"))
        volumes[-1].write(0, data)
        volumes[-1].flush()
    w = volumes[1]
    uuid, owner = w.status()["uuid"], cache.status()["uuid"]

    def refused(receiver: Cache | Volume, words: tuple, why: str) -> bool:
        """For this reason; another one is that the cache is suspended still."""
        kernel_log.mark()
        with pytest.raises(command.CommandError) as e:
            receiver.message(*words)
        assert e.value.status == errno.EBUSY
        return any(why in x for x in kernel_log.lines())

    cache.suspend()
    ssds[1].fail(op="write", status="ioerr")
    below.suspend(noflush=True)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        try:
            resumed = pool.submit(cache.resume)
            forget = ("forget", uuid, "discard_dirty")
            wait_for(lambda: refused(cache, forget, "is in use: stop it first"), 60, "the cache to take messages again")
            assert refused(w, ("discard_dirty", owner), "unmount it, suspend it")
            assert not resumed.done()
        finally:
            below.resume()
        resumed.result(60)
    assert cache.status()["devices_failed"] == 1
    for v in volumes:
        assert v.status()["state"] == "running" and v.dirty() == 8 and v.read(0, 8) == data
        v.remove()
    cache.remove()
