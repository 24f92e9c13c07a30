# SPDX-License-Identifier: GPL-2.0-or-later
"""A volume holds what was written: every size and alignment, every kind of request, all modes, a full cache, little memory."""

import mmap
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from lib import dm, simdisk
from lib.block import SECTOR, BlockDevice
from lib.larder import DATA_SECTOR, Stack, Volume, backing_alone, segment_layout, wait_for

MODES = ("writeback", "writethrough", "writearound")


def small_stack(make_disk, ssd: dict | None = None, hdd: dict | None = None, **options: object) -> Stack:
    """32 MiB over 128 MiB."""
    fast = make_disk("ssd0", **({"model": "null", "mb": 32, "wce": 1, "fua": 1} | (ssd or {})))
    slow = make_disk("hdd0", **({"model": "null", "mb": 128, "wce": 1} | (hdd or {})))
    return Stack(fast, slow, format_volume=("--cache", "c"), **options)


# ---------------------------------------------------------------- every size and alignment


class Content:
    """What a region of a device holds, byte by byte; each write is of another random content."""

    def __init__(self, device: BlockDevice, sector: int, sectors: int, seed: int):
        self.device, self.start, self.sectors = device, sector, sectors
        self.bytes = bytearray(sectors * SECTOR)
        self.random = random.Random(seed)

    def set(self, sector: int, data: bytes) -> None:
        at = (sector - self.start) * SECTOR
        self.bytes[at : at + len(data)] = data

    def write(self, sector: int, count: int, fua: bool = False) -> None:
        data = self.random.randbytes(count * SECTOR)
        self.device.write(sector, data, fua=fua)
        self.set(sector, data)

    def zero(self, sector: int, count: int) -> None:
        self.device.zero(sector, count)
        self.set(sector, bytes(count * SECTOR))

    def check(self, sector: int, count: int, device: BlockDevice | None = None) -> None:
        found = (device or self.device).read(sector, count)
        at = (sector - self.start) * SECTOR
        expected = self.bytes[at : at + count * SECTOR]
        if found == expected:
            return
        bad = [i for i in range(count) if found[i * SECTOR : (i + 1) * SECTOR] != expected[i * SECTOR : (i + 1) * SECTOR]]
        raise AssertionError(f"read of {count} sectors at {sector}: wrong are {[sector + i for i in bad]}")

    def check_all(self, device: BlockDevice | None = None) -> None:
        for at in range(0, self.sectors, 1024):
            self.check(self.start + at, min(1024, self.sectors - at), device)


WINDOW = 64  # sectors, each for one write


def shapes(block: int) -> list[tuple[int, int]]:
    """Offset and count: every offset in a page, every count to two pages and one."""
    step = block // SECTOR
    return [(o, n) for o in range(0, 9, step) for n in range(step, 18, step)]


def prepare(state: str, content: Content, volume: Volume) -> None:
    """What is there before: nothing in the cache, dirty, clean, zeroes, or extents of all kinds side by side."""
    mode = volume.status()["mode"]
    volume.set(mode="writearound" if state == "uncached" else "writeback")
    for at in range(content.start, content.start + content.sectors, 512):
        count = min(512, content.start + content.sectors - at)
        if state == "zero":
            content.zero(at, count)
        else:
            content.write(at, count)
    if state in ("clean", "mixed"):
        volume.drain()
    if state == "mixed":
        for at in range(content.start, content.start + content.sectors, WINDOW):
            content.write(at, 8)
            content.zero(at + 8, 8)
            content.write(at + 16, 8)
    volume.set(mode=mode)


STATES = ("uncached", "clean", "dirty", "zero", "mixed")


@pytest.mark.parametrize(
    ("ssd_block", "hdd_block", "mode"),
    [(512, 512, m) for m in MODES] + [(4096, 512, m) for m in MODES] + [(512, 4096, "writeback"), (4096, 4096, "writeback")],
)
def test_sizes_and_alignments(make_disk, seed, ssd_block, hdd_block, mode):
    stack = small_stack(make_disk, {"lbs": ssd_block, "pbs": 4096}, {"lbs": hdd_block, "pbs": 4096}, mode=mode)
    v = stack.volume
    assert v.queue("logical_block_size") == str(hdd_block)
    every = shapes(hdd_block)
    contents = []
    with open(v.path, "rb"):  # the last one to close it would have the kernel look for what is to be written, each time
        for i, state in enumerate(STATES):
            c = Content(v, 4096 * (4 * i + 1) - 8, len(every) * WINDOW, seed + i)  # across borders of 2 MiB
            contents.append(c)
            prepare(state, c, v)
            for k, (offset, count) in enumerate(every):
                c.write(c.start + k * WINDOW + offset + 8, count, fua=k % 7 == 0)
            for k, (offset, count) in enumerate(every):
                c.check(c.start + k * WINDOW + 8 + offset, count)
                # across the ends of what was written
                c.check(c.start + k * WINDOW + 8 + count // 8 * 8, 8 + (offset or 8))
            c.check_all()
    stack.restart()
    for c in contents:
        c.check_all(stack.volume)
    stack.detach()
    stack.stop()
    raw = backing_alone(stack.hdd)
    for c in contents:
        c.check_all(raw)


# ---------------------------------------------------------------- flush, FUA, discard, write-zeroes


@pytest.fixture
def cut(seed: int) -> Iterator:
    """Power is cut so that nothing survives that was not flushed."""

    def lose(stack: Stack) -> None:
        simdisk.power_cut(mode="lose", seed=seed)
        stack.stop()
        simdisk.power_up()
        stack.start()

    return lose


@pytest.mark.parametrize("mode", MODES)
def test_flush_and_fua_are_durable(make_disk, cut, mode):
    stack = small_stack(make_disk, mode=mode)
    a, b, c = (os.urandom(20 * SECTOR) for _ in range(3))
    stack.volume.write(1003, a, fua=True)
    stack.volume.write(3001, b)
    stack.volume.flush()
    stack.volume.write(5000, c)
    cut(stack)
    assert stack.volume.read(1003, 20) == a
    assert stack.volume.read(3001, 20) == b
    # and so is what was not there before the cut
    stack.volume.write(1010, b[:SECTOR], fua=True)
    cut(stack)
    assert stack.volume.read(1003, 20) == a[: 7 * SECTOR] + b[:SECTOR] + a[8 * SECTOR :]
    stack.stop()


@pytest.mark.parametrize("mode", MODES)
def test_fua_is_not_durable_on_a_disk_that_lies(make_disk, cut, mode):
    """The test before can fail."""
    stack = small_stack(make_disk, mode=mode)
    stack.volume.write(999, os.urandom(SECTOR), fua=True)
    for d in (stack.ssd, stack.hdd):
        d.set(ignore_flush=1, ignore_fua=1)
    a = os.urandom(20 * SECTOR)
    stack.volume.write(1003, a, fua=True)
    cut(stack)
    assert stack.volume.read(1003, 20) != a
    for d in (stack.ssd, stack.hdd):
        d.set(ignore_flush=0, ignore_fua=0)
    stack.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trim", ["", "zero", "random"])
def test_zeroes_and_discards(make_disk, seed, mode, trim):
    """Zeroes are zeroes; a discard changes nothing beside its range, and once, whatever the disk makes of it."""
    discard = {"discard": trim} if trim else {}
    stack = small_stack(make_disk, discard, discard, mode=mode)
    v = stack.volume
    c = Content(v, 0, 8192, seed)
    c.check_all()
    c.write(0, 2000)
    for at, count in ((0, 1), (1, 7), (13, 30), (100, 8), (1999, 300), (3000, 4500)):
        c.zero(at, count)
    c.write(3100, 9)
    c.check_all()
    rest = Content(v, 100000, 8192, seed + 1)
    rest.write(100000, 1024)
    rest.write(101024, 1024)
    v.drain()
    rest.write(100500, 1024)
    for at, count in ((100017, 30), (100512, 512), (100999, 33)):
        v.discard(at, count)
        # zeroes, what was there, what was there before that, or anything: then the same for ever
        rest.set(at, v.read(at, count))
    rest.check_all()
    stack.restart()
    c.check_all(stack.volume)
    rest.check_all(stack.volume)
    stack.detach()
    c.check_all(stack.volume)
    rest.check_all(stack.volume)
    stack.stop()


def test_whole_volume_zeroed_and_discarded(make_disk, seed):
    """mkfs does that: more than one bio each."""
    stack = small_stack(make_disk, {"discard": "zero"}, {"discard": "zero"})
    v, c = stack.volume, Content(stack.volume, 65536, 2048, seed)
    c.write(65536, 2048)
    v.zero(0, v.sectors)
    assert v.read(65536, 2048) == bytes(2048 * SECTOR)
    c.write(65540, 1000)
    v.discard(0, v.sectors)
    assert v.status()["cached_sectors"] == 0
    c.write(65536, 2048)
    c.check_all()
    v.drain()
    c.check_all()
    stack.stop()


# ---------------------------------------------------------------- the oracle


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("qd", [1, 32])
def test_oracle(make_disk, make_oracle, mode, qd):
    stack = small_stack(make_disk, {"mb": 64}, mode=mode, sequential_cutoff=256)
    oracle = make_oracle(stack.volume, size="24m")
    for mix in ("read=35,write=45,fua=5,flush=5,zeroes=5,discard=5", "read=60,write=30,fua=5,flush=2,zeroes=3"):
        oracle.run(ops=1500, qd=qd, mix=mix)
        oracle.verify()
    stack.restart()
    oracle.run(ops=500, qd=qd)
    oracle.verify()
    stack.verify_alone(oracle)


BLOCKS = {"512n": {"lbs": 512, "pbs": 512}, "512e": {"lbs": 512, "pbs": 4096}, "4Kn": {"lbs": 4096, "pbs": 4096}}


@pytest.mark.parametrize("ssd_block", BLOCKS)
@pytest.mark.parametrize("hdd_block", BLOCKS)
def test_oracle_of_block_sizes(make_disk, make_oracle, ssd_block, hdd_block):
    """The volume shows the blocks of its backing, whatever those of the SSD."""
    stack = small_stack(make_disk, BLOCKS[ssd_block], BLOCKS[hdd_block])
    for attribute in ("logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size"):
        assert stack.volume.queue(attribute) == stack.hdd.queue(attribute), attribute
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=2000 if "4Kn" in (ssd_block, hdd_block) else 500)
    oracle.verify()
    stack.verify_alone(oracle)


def read_scattered(device: BlockDevice, sector: int, pieces: int) -> bytes:
    """One read into so many pieces of memory: of a sector each, in a page of its own, somewhere in it."""
    pages = [mmap.mmap(-1, mmap.PAGESIZE) for _ in range(pieces)]
    at = [i * SECTOR % mmap.PAGESIZE for i in range(pieces)]
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        n = os.preadv(fd, [memoryview(page)[a : a + SECTOR] for page, a in zip(pages, at, strict=True)], sector * SECTOR)
        assert n == pieces * SECTOR
    finally:
        os.close(fd)
    for page, a in zip(pages, at, strict=True):
        assert not any(page[:a]) and not any(page[a + SECTOR :]), "memory beside that of the caller was written to"
    return b"".join(page[a : a + SECTOR] for page, a in zip(pages, at, strict=True))


@pytest.mark.parametrize("ssd", ["pages", "dm-crypt"])
def test_scattered_reads(make_disk, ssd):
    """Hits on an SSD of 4 KiB blocks, into vectors of 512 bytes, as the blocks of the backing allow them.  The SSD takes a list of
    whole pages, as NVMe does, or whole blocks only, as dm-crypt."""
    disk = make_disk("ssd0", model="null", mb=48, wce=1, fua=1, lbs=4096, virt_boundary=4096 if ssd == "pages" else 0)
    crypt = None
    if ssd == "dm-crypt":
        crypt = dm.DmDevice.create(
            "crypt", f"0 {disk.sectors} crypt aes-xts-plain64 {'07' * 64} 0 {disk} 0 2 sector_size:4096 iv_large_sectors"
        )
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(crypt or disk, hdd, format_volume=("--cache", "c"), writeback="off")
    data = random.Random(ssd).randbytes(64 * SECTOR)
    stack.volume.write(1024, data)
    for state in ("dirty", "clean"):
        for first, count in ((0, 8), (8, 16), (0, 64), (4, 8), (1, 5), (15, 1)):
            assert read_scattered(stack.volume, 1024 + first, count) == data[first * SECTOR : (first + count) * SECTOR], state
            assert stack.volume.read(1024 + first, count) == data[first * SECTOR : (first + count) * SECTOR], state
        stack.volume.set(writeback="on")
        stack.volume.drain()
    status = stack.cache.status()
    assert status["errors_read"] == 0 and stack.volume.status()["cached_sectors"] == 64
    stack.stop()
    if crypt:
        crypt.remove()


def test_writeback_of_neighbours_from_large_blocks(make_disk):
    """What is read goes to the disk together, beside one another in memory: dm-crypt takes no such read of a part of them."""
    disk = make_disk("ssd0", model="null", mb=48, wce=1, fua=1, lbs=4096)
    crypt = dm.DmDevice.create(
        "crypt", f"0 {disk.sectors} crypt aes-xts-plain64 {'07' * 64} 0 {disk} 0 2 sector_size:4096 iv_large_sectors"
    )
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(crypt, hdd, format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0)
    data = random.Random(1).randbytes(67 * SECTOR)
    stack.volume.write(1000, data[: 3 * SECTOR])
    stack.volume.write(1003, data[3 * SECTOR :])
    stack.volume.set(writeback="on")
    stack.volume.drain()
    assert stack.hdd.read(DATA_SECTOR + 1000, 67) == data
    assert stack.cache.status()["errors_read"] == 0
    stack.stop()
    crypt.remove()


def test_oracle_notices(make_disk, make_oracle):
    """A disk that loses writes: what the tests before would not let pass."""
    stack = small_stack(make_disk, mode="writearound")
    oracle = make_oracle(stack.volume, size="8m")
    stack.hdd.fail(op="write", from_=8192, to=12288, status="lost")
    oracle.run(ops=600, mix="write=100")
    with pytest.raises(AssertionError, match="oracle verify: status 1"):
        oracle.verify()
    stack.stop()


@pytest.mark.parametrize("mode", MODES)
def test_full_cache(make_disk, make_oracle, mode):
    """A working set of twice the SSD, until every segment was taken again (how soon is for the mode, and the fills dropped)."""
    stack = small_stack(make_disk, mode=mode, sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="64m")
    for _ in range(20):
        oracle.run(ops=1250, sizes="16k:60,128k:40")
        oracle.verify()
        s = stack.cache.status()
        if s["reclaimed"] >= s["segments"]:
            break
    assert s["state"] == "running" and not s["errors_write"]
    assert mode == "writearound" or s["reclaimed"] >= s["segments"]
    stack.restart()
    oracle.run(ops=500, sizes="16k:60,128k:40")
    oracle.verify()
    stack.verify_alone(oracle)


def test_writes_share_what_writeback_makes_room_for(make_disk, make_oracle):
    """A cache full of dirty data in front of a disk whose flushes take long: writes are let in one by one, whoever else waits."""
    stack = small_stack(make_disk, sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="64m")
    stack.hdd.fail(op="flush", status="ok", delay_ms=300)
    for _ in range(20):
        oracle.run(ops=2500, sizes="4k:100", mix="write=100", qd=32)
        if stack.cache.status()["waits_pace"]:
            break
    assert stack.cache.status()["waits_pace"]
    oracle.run(ops=1000, sizes="4k:60,128k:40", mix="read=30,write=60,discard=5,flush=5", qd=32)
    stack.hdd.heal()
    oracle.verify()
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)


def test_discard_before_reuse(make_disk, make_oracle):
    """The SSD answers a read of what it was told to forget with anything but what was there."""
    stack = small_stack(make_disk, {"discard": "random"}, cache_discard="on", sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="64m")
    oracle.run(ops=2000, sizes="16k:60,128k:40", mix="read=45,write=45,fua=5,flush=5")

    def all_seen_to() -> bool:
        s = stack.cache.status()
        return s["segment_opens"] == s["reclaim_discards"] + s["discards_skipped"]

    wait_for(all_seen_to, 30, "the opened segments to be discarded, or left as they are")
    assert stack.cache.status()["reclaim_discards"] > 0
    assert stack.ssd.stats()["discards"] > 0
    oracle.verify()
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)


class Writers:
    """with Writers(volume, places): a thread for each list of sectors writes blocks to one of them after the other, at random; not
    all at one instant."""

    def __init__(self, volume: Volume, places: list[list[int]], seed: int):
        self.volume, self.done, self.seed = volume, 0, seed
        self.content: dict[int, bytes] = {}
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(n, p), daemon=True) for n, p in enumerate(places)]

    def run(self, number: int, places: list[int]) -> None:
        r = random.Random(self.seed + number)
        while not self.stop.is_set():
            sector, data = r.choice(places), r.randbytes(4096)
            self.volume.write(sector, data)
            self.content[sector] = data
            self.done += 1
            time.sleep(r.choice((0, r.random() / 10)))

    def __enter__(self) -> "Writers":
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for t in self.threads:
            t.join(60)
            assert not t.is_alive(), "a writer hangs"

    def check(self) -> None:
        for sector, data in self.content.items():
            assert self.volume.read(sector, 8) == data, f"sector {sector}"


@pytest.mark.limit(600)
def test_discard_beside_writes(make_disk, seed):
    """As deep as they are: at each instant some are in flight in the 2 MiB where the discard begins, the others are anywhere behind
    it.  It has its turn; what it cannot get at once goes in pieces; the disk is told of all of it, once."""
    gib, first = 1 << 21, 2048
    ssd = make_disk("ssd0", model="null", mb=512, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=3072, wce=1, discard="zero")
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0, cache_gather=64)
    stack.volume.write(first + gib // 2, os.urandom(65536))
    stack.volume.write(first + gib, os.urandom(4096))
    near, far = range(0, first, 8), range(first + gib + 8, first + 2 * gib, 8)
    ssd.fail(op="write", status="ok", delay_ms=200)
    places = [list(near[i::16]) if i < 16 else list(far[i::16]) for i in range(32)]
    with Writers(stack.volume, places, seed) as writers:
        wait_for(lambda: writers.done > 200, 120, "the writers")
        before = stack.volume.status()["discards"]
        p = subprocess.Popen(["blkdiscard", "-f", "-o", str(first * SECTOR), "-l", str(gib * SECTOR), stack.volume.path])
        done = writers.done
        wait_for(lambda: p.poll() is not None or writers.done > done + 10000, 400, "the discard, or ten thousand writes")
        ended = p.poll()
    ssd.heal()
    assert p.wait(60) == 0
    assert ended == 0, "it ended only when nobody wrote any more"
    assert hdd.stats()["dbytes"] == gib * SECTOR
    assert stack.volume.status()["discards"] > before + 1
    assert stack.volume.read(first + gib // 2, 128) == bytes(65536)
    writers.check()
    stack.restart()
    writers.check()
    stack.stop()


def test_rate_of_discards(make_disk, make_oracle):
    """A segment at a time, 64 MiB in a second: no burst has four in the time of one.  (Two it may have: the kernel counts
    that time in ticks, of which a CPU that was taken away gets several at once.)"""
    ssd = make_disk("ssd0", model="null", mb=128, wce=1, fua=1, discard="zero")
    hdd = make_disk("hdd0", model="null", mb=256, wce=1)
    stack = Stack(ssd, hdd, format_cache=("--segment-size", "2M"), format_volume=("--cache", "c"), cache_discard="on")
    stack.volume.set(sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="192m")
    with simdisk.Trace(size=262144) as t:
        oracle.run(ops=1500, sizes="128k:40,256k:60", mix="read=10,write=90")
        found = t.commands(ssd, op="discard")
    first, size, _ = segment_layout(ssd)
    sent = sorted(c.time_ns for c in found if (c.sector - first) % size == 0)  # the block layer may cut one in two
    assert len(sent) > 10
    bursts = [b - a for a, b in zip(sent, sent[3:], strict=False)]
    assert min(bursts) >= 10**9 * 2 // 64, f"{min(bursts)} ns from one to the third behind it"
    oracle.verify()
    stack.verify_alone(oracle)


def test_commit_always(make_disk, make_oracle):
    stack = small_stack(make_disk, cache_commit="always", cache_commit_interval=60000)
    for i in range(20):
        stack.volume.write(1000 * i, os.urandom(3 * SECTOR))
        s = stack.cache.status()
        assert s["records_applied"] >= i + 1, "a write was acknowledged before its record was complete"
    oracle = make_oracle(stack.volume, size="16m", offset="32m", unknown=True)
    oracle.run(ops=1500)
    oracle.verify()
    stack.verify_alone(oracle)


def test_zeroes_wait_for_no_timer(make_disk):
    """With commit=always nothing but their record keeps them from being acknowledged: it is closed at once."""
    # nor is anything written back, whose records would count
    stack = small_stack(
        make_disk, hdd={"write_zeroes": 1}, cache_commit="always", cache_commit_interval=10000, writeback="off"
    )
    data = os.urandom(64 * SECTOR)
    stack.volume.write(0, data)
    before = stack.cache.status()
    for i in range(3):
        stack.volume.zero(16 * i, 16)
    after = stack.cache.status()
    assert stack.volume.status()["write_zeroes"] == 3
    # what the timer finds with commit=always counts as asked for
    assert [after[k] - before[k] for k in ("commits_with_data", "commits_asked", "commits_timer")] == [3, 0, 0]
    assert stack.volume.read(0, 64) == bytes(48 * SECTOR) + data[48 * SECTOR :]
    stack.stop()


def test_zeroes_beyond_what_a_checkpoint_has_room_for(make_disk, kernel_log):
    """They need no slots: the index alone would grow, until no checkpoint of it could be written, and the log could not go on."""
    stack = small_stack(make_disk, {"mb": 6}, hdd={"write_zeroes": 1, "mb": 1024}, writeback="off", sequential_cutoff=0)
    data = os.urandom(1 << 20)
    for i in range(16):  # more than the SSD has
        stack.volume.read(i << 11, 1 << 11)
    stack.volume.write(0, data)
    stack.volume.flush()
    sectors = range(1 << 20, stack.volume.sectors, 2)
    for first in range(0, len(sectors), 4096):
        stack.volume.zero_many(sectors[first : first + 4096], 1)
        if stack.volume.status()["write_bypass"]:
            break
    stack.cache.message("checkpoint")
    assert stack.volume.status()["write_bypass"], "all of them are in the index"
    stack.volume.write(1 << 12, data)
    stack.volume.flush()
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.start()
    assert stack.volume.read(0, 1 << 11) == stack.volume.read(1 << 12, 1 << 11) == data
    stack.volume.drain(240)
    stack.cache.message("checkpoint")
    stack.stop()


def test_shorter_interval(make_disk):
    """It holds at once, also while the timer of the former one would still run."""
    stack = small_stack(make_disk, cache_commit_interval=60000)
    stack.volume.write(0, b"a" * 4096)
    before = stack.cache.status()
    stack.cache.set(commit_interval=10)
    stack.volume.write(64, b"b" * 4096)
    wait_for(lambda: stack.cache.status()["commits_timer"] > before["commits_timer"], 20, "the next record")
    stack.stop()


def test_memory_limit(make_disk, make_oracle):
    """At the bound fills stop, clean extents go, writes pass the cache by or wait; nothing fails, and all of it is right."""
    stack = small_stack(make_disk, {"mb": 64}, sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="24m")
    load = {"sizes": "512:60,4k:40", "mix": "read=35,write=55,fua=3,flush=2,zeroes=5", "qd": 32}
    oracle.run(ops=3000, **load)
    before = stack.cache.status()
    assert before["waits_memory"] == 0 and before["index_bytes"] > 0
    # less than what it needs without any extent
    limit = max((before["memory_bytes"] - before["index_bytes"]) >> 20, 1)
    stack.cache.set(memory_limit=limit)
    stack.volume.drain()
    wait_for(lambda: stack.cache.status()["live_sectors"] < before["live_sectors"], 60, "extents to go")
    oracle.run(ops=3000, **load)
    s = stack.cache.status()
    print(
        {
            k: (before[k], s[k])
            for k in ("memory_limit_bytes", "memory_bytes", "index_bytes", "live_sectors", "waits_memory", "reclaimed")
        }
    )
    assert s["waits_memory"] > 0
    assert s["index_bytes"] <= before["index_bytes"]
    oracle.verify()
    stack.cache.set(memory_limit=0)
    oracle.run(ops=500, **load)
    stack.verify_alone(oracle)
