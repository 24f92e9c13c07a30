# SPDX-License-Identifier: GPL-2.0-or-later
"""An SSD that is slow is left alone, and asked again when it has recovered.  Delays are so much longer than the threshold, and that
so much longer than what a disk without a model takes, that the speed of the machine does not matter."""

import os
import random
import threading
import time
from pathlib import Path

import pytest
from lib.block import BlockDevice
from lib.larder import Stack, wait_for
from lib.parts import in_two
from lib.simdisk import Simdisk
from lib.told import Told

BLOCK = 4096
SECTORS = 8
N = 256  # blocks
SLOW = 150  # ms
THRESHOLD = 40000  # us


@pytest.fixture
def stack(make_disk):
    """The first N blocks are cached and clean."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    s = Stack(ssd, hdd, format_volume=("--cache", "c"), cache_congestion_read=THRESHOLD, cache_congestion_write=THRESHOLD)
    for i in range(N):
        s.volume.write(i * SECTORS, block(i))
    s.volume.drain()
    yield s
    s.stop()


def block(i: int) -> bytes:
    return i.to_bytes(8, "little") * (BLOCK // 8)


def read_some(stack: Stack, count: int, seed: int = 1) -> tuple[int, int]:
    """Reads of what is cached: how many went to the SSD, and to the backing."""
    for d in (stack.ssd, stack.hdd):
        d.reset_stats()
    for i in random.Random(seed).choices(range(N), k=count):
        assert stack.volume.read(i * SECTORS, SECTORS) == block(i)
    ssd, hdd = stack.ssd.stats()["reads"], stack.hdd.stats()["reads"]
    print(f"{ssd} to the SSD, {hdd} to the backing; {stack.cache.status()['read_avoided_percent']} % avoided")
    assert ssd + hdd == count
    return ssd, hdd


def recover(stack: Stack, direction: str, ask, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while stack.cache.status()[f"{direction}_avoided_percent"]:
        assert time.monotonic() < end, "the share does not fall"
        ask()


def test_reads(stack, kernel_log):
    assert read_some(stack, 200) == (200, 0)
    stack.ssd.fail(op="read", delay_ms=SLOW, status="ok")
    with Told(kernel_log, [stack.cache], f"its SSDs take .* us for reads, more than the {THRESHOLD} us allowed"):
        ssd, hdd = read_some(stack, 400)
    assert hdd > ssd, "it is to be left alone"
    assert stack.cache.status()["read_latency_us"] > THRESHOLD
    assert stack.volume.status()["read_congested"] >= hdd
    ssd, hdd = read_some(stack, 400, 2)
    assert hdd > 390
    stack.ssd.heal()
    recover(stack, "read", lambda: read_some(stack, 50, 3))
    assert read_some(stack, 200, 4) == (200, 0)


def test_dirty_data_is_read_from_the_ssd(stack):
    """Rule 5 of reads: the backing has something older."""
    v = stack.volume
    v.set(writeback="off")
    stack.ssd.fail(op="read", delay_ms=SLOW, status="ok")
    read_some(stack, 100)
    assert stack.cache.status()["read_avoided_percent"] > 50
    for i in range(20):
        v.write(i * SECTORS, block(1000 + i))
    stack.hdd.reset_stats()
    for i in range(20):
        assert v.read(i * SECTORS, SECTORS) == block(1000 + i)
    assert stack.hdd.stats()["reads"] == 0
    stack.ssd.heal()


def test_off(stack):
    stack.cache.set(congestion_read=0)
    stack.ssd.fail(op="read", delay_ms=SLOW, status="ok")
    assert read_some(stack, 60) == (60, 0)
    stack.cache.set(congestion_read=THRESHOLD)
    ssd, hdd = read_some(stack, 200)
    assert hdd > ssd
    stack.cache.set(congestion_read=0)
    assert read_some(stack, 20) == (20, 0)
    stack.ssd.heal()


def test_one_that_does_not_answer(stack):
    """It counts by its age: others do not have to wait until it is back."""
    stack.ssd.fail(op="read", delay_ms=8000, count=1, status="ok")
    with open(stack.volume.path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    stuck = threading.Thread(target=lambda: stack.volume.read(0, SECTORS))
    stuck.start()
    wait_for(lambda: stack.ssd.state()["inflight"] > 0, 5, "the read that hangs")
    avoided = 0
    while stuck.is_alive() and not avoided:
        stack.volume.read(random.randrange(1, N) * SECTORS, SECTORS)
        avoided = stack.cache.status()["read_avoided_percent"]
    assert avoided and stuck.is_alive()
    stuck.join()
    recover(stack, "read", lambda: read_some(stack, 50))


@pytest.fixture
def avoided(stack):
    """Its reads are, and nothing heals that."""
    stack.ssd.fail(op="read", delay_ms=SLOW, status="ok")
    while stack.cache.status()["read_avoided_percent"] < 90:
        read_some(stack, 20)
    return stack


def test_backing_that_fails(avoided):
    """What the SSD has is read from it after all; and who need not ask the backing leaves it alone for a while."""
    avoided.hdd.fail(op="read", status="ioerr")
    errors = avoided.volume.status()["errors_read"]
    for d in (avoided.ssd, avoided.hdd):
        d.reset_stats()
    for i in random.Random(2).choices(range(N), k=60):
        assert avoided.volume.read(i * SECTORS, SECTORS) == block(i)
    ssd, hdd = avoided.ssd.stats()["reads"], avoided.hdd.stats()["reads"]
    print(f"{ssd} to the SSD, {hdd} to the backing")
    assert ssd == 60 and 0 < hdd < 30
    assert avoided.volume.status()["errors_read"] == errors + hdd
    avoided.hdd.heal()


def test_backing_that_fails_less_than_a_block(make_disk):
    """An SSD of 4 KiB blocks is not asked for a part of one, unless nobody else has it."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1, lbs=BLOCK, pbs=BLOCK)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    s = Stack(ssd, hdd, format_volume=("--cache", "c"))
    s.volume.write(0, block(7))
    s.volume.drain()
    hdd.reset_stats()
    assert s.volume.read(3, 2) == block(7)[: 2 * 512] and hdd.stats()["reads"] == 1
    hdd.fail(op="read", status="ioerr")
    assert s.volume.read(3, 2) == block(7)[: 2 * 512] and hdd.stats()["reads"] == 2
    assert s.volume.read(5, 2) == block(7)[: 2 * 512] and hdd.stats()["reads"] == 2
    hdd.heal()
    s.stop()


def asked(stack: Stack, sectors: int, disk: Simdisk) -> tuple[threading.Thread, list[bytes]]:
    """A read from the start that the backing has been asked for, and does not answer: by the only rule of this disk."""
    got: list[bytes] = []
    while True:
        reader = threading.Thread(target=lambda: got.append(stack.volume.read(0, sectors)))
        reader.start()
        while reader.is_alive() and not disk.faults()[0]["hits"]:
            time.sleep(0.01)
        if disk.faults()[0]["hits"]:
            return reader, got
        reader.join()  # it was the SSD's turn
        got.clear()


def test_backing_that_fails_what_has_become_two(avoided):
    """A part of it is dirty by then: that comes from where it always does, the rest from the SSD all the same."""
    avoided.volume.set(writeback="off")
    avoided.hdd.fail(op="read", status="ioerr", delay_ms=3000)
    reader, got = asked(avoided, 2 * SECTORS, avoided.hdd)
    avoided.volume.write(0, block(1000))
    assert avoided.volume.status()["errors_read"] == 0
    reader.join()
    assert got == [block(1000) + block(1)] and avoided.volume.status()["errors_read"] >= 1
    avoided.hdd.heal()


def test_part_of_a_disk_that_fails_what_has_become_two(make_disk):
    """A part of it is on the backing alone by then, a partition, which is asked for that at the place where it is."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=256, wce=1)
    with in_two(Path(hdd.path), 64, "--direct-io=on") as (_, parts):
        s = Stack(ssd, BlockDevice(str(parts[1])), format_volume=("--cache", "c"), cache_congestion_read=THRESHOLD)
        for i in range(N):
            s.volume.write(i * SECTORS, block(i))
        s.volume.drain()
        ssd.fail(op="read", delay_ms=SLOW, status="ok")
        while s.cache.status()["read_avoided_percent"] < 90:
            s.volume.read(random.randrange(N) * SECTORS, SECTORS)
        s.volume.set(mode="writearound")
        hdd.fail(op="read", status="ioerr", delay_ms=3000, count=1)
        reader, got = asked(s, 2 * SECTORS, hdd)
        s.volume.write(SECTORS, block(1001))
        assert s.volume.status()["errors_read"] == 0
        reader.join()
        assert got == [block(0) + block(1001)] and s.volume.status()["errors_read"] == 1
        s.stop()


def test_backing_that_fails_more_than_a_request(make_disk):
    """Each side has to split what is asked for, in pieces of its own."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1, max_kb=16)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1, max_kb=64)
    s = Stack(ssd, hdd, format_volume=("--cache", "c"), cache_congestion_read=THRESHOLD)
    content = b"".join(map(block, range(N // 4)))
    s.volume.write(0, content)
    s.volume.drain()
    ssd.fail(op="read", delay_ms=SLOW, status="ok")
    while s.cache.status()["read_avoided_percent"] < 90:
        s.volume.read(random.randrange(N // 4) * SECTORS, SECTORS)
    hdd.fail(op="read", status="ioerr", skip=1)
    errors = s.volume.status()["errors_read"]
    while s.volume.status()["errors_read"] == errors:
        assert s.volume.read(0, len(content) // 512) == content
    hdd.heal()
    s.stop()


def test_backing_that_does_not_answer(avoided):
    """Others are not sent to wait there as well."""
    avoided.hdd.fail(op="read", count=1, delay_ms=30000, status="ok")
    reader, got = asked(avoided, SECTORS, avoided.hdd)
    time.sleep(6)  # it has been silent for long enough
    avoided.hdd.reset_stats()
    for i in range(1, 11):
        assert avoided.volume.read(i * SECTORS, SECTORS) == block(i)
    assert reader.is_alive() and avoided.hdd.stats()["reads"] == 0
    reader.join()
    assert got == [block(0)]


def test_backing_that_fails_before_a_write(stack):
    """Writes that might spare the SSD do not go where something has just failed."""
    v = stack.volume
    v.set(writeback="off", sequential_cutoff=0)
    stack.ssd.fail(op="write", delay_ms=SLOW, status="ok")
    while stack.cache.status()["write_avoided_percent"] < 90:
        write_some(stack, 20, 500)
    stack.hdd.fail(op="read,write", status="ioerr")
    for i in range(4000, 4010):
        with pytest.raises(OSError):
            v.read(100 << 11, SECTORS)  # of what only the backing has
        assert write_some(stack, 1, i) == 0
    stack.hdd.heal()
    assert [v.read((4000 + i) * 3 * SECTORS, SECTORS) for i in range(10)] == [block(4000 + i) for i in range(10)]


def write_some(stack: Stack, count: int, first: int) -> int:
    """How many went to the backing; new blocks."""
    before = stack.volume.status()["write_bypass"]
    for i in range(first, first + count):
        stack.volume.write(i * 3 * SECTORS, block(i))
    return stack.volume.status()["write_bypass"] - before


def test_writes(stack):
    v = stack.volume
    v.set(writeback="off", sequential_cutoff=0)
    assert write_some(stack, 100, 500) == 0
    stack.ssd.fail(op="write", delay_ms=SLOW, status="ok")
    passed = write_some(stack, 100, 600)
    passed += write_some(stack, 100, 700)
    print(f"{passed} of 200 to the backing; {stack.cache.status()['write_avoided_percent']} % avoided")
    assert passed > 100 and v.status()["write_congested"] >= passed
    # what is dirty stays the cache's
    dirty = v.status()["dirty_sectors"]
    bypassed = v.status()["write_bypass"]
    for i in range(500, 510):
        v.write(i * 3 * SECTORS, block(i + 9000))
    assert v.status()["write_bypass"] == bypassed and v.status()["dirty_sectors"] == dirty
    stack.ssd.heal()
    at = [800]

    def ask() -> None:
        write_some(stack, 50, at[0])
        at[0] += 50

    recover(stack, "write", ask)
    assert write_some(stack, 100, at[0]) == 0
    for i in range(500, at[0]):
        assert v.read(i * 3 * SECTORS, SECTORS) == block(i + 9000 if i < 510 else i)
    v.set(writeback="on")


def test_commit_blocks_that_nobody_waits_for(stack):
    """Of what goes past a slow SSD it gets the INVALIDATEs: their records leave as it takes them, however soon each is due."""
    gather, v = 4, stack.volume
    stack.cache.set(commit_interval=1, gather=gather)
    v.set(mode="writearound")
    v.write(0, block(1))  # now the region has its mark
    stack.ssd.fail(op="write", delay_ms=SLOW, status="ok")
    before, most = stack.cache.status()["commits_timer"], 0
    for i in range(4 * N):
        v.write(i % N * SECTORS, block(i))
        most = max(most, stack.ssd.state()["inflight"])
    assert stack.cache.status()["commits_timer"] > before + gather
    assert 1 < most <= 2 * gather
    stack.ssd.heal()
    assert [v.read(i * SECTORS, SECTORS) for i in range(N)] == [block(3 * N + i) for i in range(N)]


def test_marks_in_groups(make_disk):
    """Who wants one mark behind a slow SSD has those of all its neighbours of which anything is known set with it."""
    region, known = 64 << 20 >> 9, 8  # sectors, regions
    s = Stack(
        make_disk("ssd0", model="null", mb=64, wce=1, fua=1),
        make_disk("hdd0", model="null", mb=(known + 2) * 64, wce=1),
        format_volume=("--cache", "c"),
        cache_congestion_write=THRESHOLD,
    )
    places = [i * SECTORS for i in range(N)] + [n * region for n in range(1, known)]
    for i, place in enumerate(places):
        s.volume.write(place, block(i))
    s.volume.drain()
    assert s.volume.status()["marks"] == 0
    s.ssd.fail(op="write", delay_ms=SLOW, status="ok")
    for i in range(N):
        s.volume.write(places[i], block(i + 1))
        if s.volume.status()["marks"]:
            break
    assert s.volume.status()["marks"] == known
    s.ssd.heal()
    s.volume.flush()
    for n in range(N, len(places)):
        s.volume.write(places[n], block(n + 1))
    assert all(s.volume.read(place, SECTORS) == block(n if i < n < N else n + 1) for n, place in enumerate(places))
    s.stop()


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_content_under_congestion(make_disk, make_oracle, mode):
    """The share goes up and down, and what is read is right."""
    ssd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(
        ssd,
        hdd,
        format_volume=("--cache", "c"),
        mode=mode,
        cache_congestion_read=1,
        cache_congestion_write=1,
        sequential_cutoff=256,
    )
    oracle = make_oracle(stack.volume, size="24m")
    for threshold in (1, 1000, 1, 60000000, 1):
        stack.cache.set(congestion_read=threshold, congestion_write=threshold)
        oracle.run(ops=800, qd=8)
    oracle.verify()
    s = stack.volume.status()
    print({k: s[k] for k in ("read_congested", "write_congested", "read_hits", "write_cached", "write_bypass")})
    assert s["read_congested"] > 0 and s["write_congested"] > 0 and s["read_hits"] > 0
    stack.restart()
    oracle.run(ops=500)
    oracle.verify()
    stack.verify_alone(oracle)
