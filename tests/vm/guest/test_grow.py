# SPDX-License-Identifier: GPL-2.0-or-later
"""A volume grows with its backing, a cache with its SSD, by reload and in use; power cuts at each step; smaller is refused.

A simulated disk has one size: what grows is a linear device on top of it.
"""

import contextlib
import errno
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from lib import command, dm, dm_ioctl, simdisk
from lib.larder import DATA_SECTOR, Cache, Stack, Volume, larder, segment_layout
from lib.parts import MIB, Part
from lib.sets import kill, start_without

SMALL, LARGE = 96, 160  # MiB, of a backing
STEP = 2  # MiB: the power is cut at one write after another
SSD = 32  # MiB
PATTERN = b"what was behind the end of the volume".ljust(512, b".")


class Growing(Stack):
    """A stack on parts of its disks; what is below takes power cuts."""

    def __init__(self, make_disk, **options: object):
        ssd = make_disk("ssd0", model="null", mb=SSD, wce=1, fua=1)
        self.disk = make_disk("hdd0", model="null", mb=LARGE, wce=1)
        options = {"format_volume": ("--cache", "c"), "format_cache": ("--segment-size", "128k")} | options
        super().__init__(ssd, Part.make("b", self.disk, SMALL), **options)

    def start(self) -> None:
        """With what the superblocks say."""
        self.cache = Cache.start(self.ssd, **self.cache_options)
        self.volume = Volume.create("v", Volume.line(self.hdd, self.cache, said(self.hdd), **self.options))

    def grow_volume(self, mib: int = LARGE) -> None:
        self.hdd.resize(mib)
        larder("volume", "resize", "v")
        assert self.volume.sectors == said(self.hdd) == mib * MIB - 2 * DATA_SECTOR

    def cut_off(self) -> None:
        """The power has failed: whatever is suspended gets an end, as a machine would; then the disks come back."""
        simdisk.wait_power_off(self.disk)
        if self.volume.info()["suspended"]:
            self.volume.load(f"0 {self.volume.sectors} error")
            self.volume.resume()
        self.stop()
        simdisk.power_up()


def said(backing: object) -> int:
    """Sectors of the volume by the superblock of its backing."""
    return int(larder("super", "show", backing, "-o", "volume_sectors", "--noheadings").stdout)


def ends(v: Volume, n: int = 8) -> list[int]:
    """Sectors behind the old end: of what was its reserve, in the middle, the last ones."""
    old = SMALL * MIB - 2 * DATA_SECTOR
    return [old, old + DATA_SECTOR, (old + v.sectors) // 2 // 8 * 8, v.sectors - n]


# ---------------------------------------------------------------- a volume


@pytest.mark.parametrize("mode", ["writeback", "writethrough", "writearound", "-"])
def test_what_was_behind_the_end(make_disk, mode):
    """It reads as the backing has it, cold and warm, and after a start; what is written there stays."""
    stack = Growing(make_disk, format_volume=("--cache", "c", *(("--mode", mode) if mode != "-" else ())))
    v = stack.volume
    for at in range(0, 8 * MIB, 128):
        v.write(v.sectors - 8 * MIB + at, os.urandom(65536))
    if mode == "-":
        stack.detach()
    stack.disk.write(SMALL * MIB - DATA_SECTOR, PATTERN * DATA_SECTOR)
    for at in range(SMALL * MIB, LARGE * MIB, MIB):
        stack.disk.write(at, PATTERN * MIB)
    stack.grow_volume()
    for _ in range(2):
        for at in ends(v):
            assert v.read(at, 8) == PATTERN * 8
    assert not stack.disk.read(LARGE * MIB - DATA_SECTOR, DATA_SECTOR).strip(b"\0"), "its new tail reserve"
    for at in ends(v):
        v.write(at + 2, b"new".ljust(1024, b"!"))
    if mode == "-":
        stack.attach()
    stack.restart()
    v = stack.volume
    assert v.sectors == LARGE * MIB - 2 * DATA_SECTOR
    for at in ends(v):
        assert v.read(at, 8) == PATTERN * 2 + b"new".ljust(1024, b"!") + PATTERN * 4
    stack.stop()


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_volume_grows_under_load(make_disk, make_oracle, mode):
    stack = Growing(make_disk, format_volume=("--cache", "c", "--mode", mode))
    old = make_oracle(stack.volume, size="24m")
    running = old.start(ops=4000)
    stack.grow_volume(SMALL + 20)
    across = make_oracle(stack.volume, size="32m", offset=(stack.volume.sectors - 48 * MIB) * 512)
    across.run(ops=1000)
    stack.grow_volume()
    across.run(ops=1000)
    behind = make_oracle(stack.volume, size="30m", offset=(stack.volume.sectors - 30 * MIB) * 512)
    behind.run(ops=1500)
    running.wait(600)
    for oracle in (old, across, behind):
        oracle.verify()
    stack.restart()
    for oracle in (old, across, behind):
        oracle.verify()
    stack.detach()
    for oracle in (old, across, behind):
        oracle.verify()
    stack.attach()
    behind.run(ops=500)
    behind.verify()
    stack.stop()


def test_mounted_ext4_grows(make_disk):
    """Files written before, meanwhile and after; the new space is filled; fsck finds nothing."""
    if command.run("modprobe", "ext4", check=False).returncode:
        pytest.skip("this kernel has no ext4")
    stack = Growing(make_disk, sequential_cutoff=0)
    command.run("mkfs.ext4", "-q", stack.volume)
    mnt = Path("/mnt")
    command.run("mount", stack.volume, mnt)
    files = {}

    def fill(name: str, mib: int) -> None:
        files[name] = os.urandom(mib << 20)
        (mnt / name).write_bytes(files[name])

    fill("before", 40)
    writer = subprocess.Popen(["sh", "-c", "while [ ! -e /tmp/enough ]; do cp /mnt/before /mnt/copy; sync; done"])
    try:
        stack.grow_volume()
        command.run("resize2fs", stack.volume)
    finally:
        Path("/tmp/enough").touch()
        writer.wait()
        Path("/tmp/enough").unlink()
    assert os.statvfs(mnt).f_blocks * os.statvfs(mnt).f_frsize > SMALL << 20
    fill("after", 50)
    command.run("umount", mnt)
    stack.restart()
    command.run("e2fsck", "-fn", stack.volume)
    command.run("mount", stack.volume, mnt)
    assert all((mnt / name).read_bytes() == data for name, data in files.items())
    command.run("umount", mnt)
    stack.stop()


@pytest.mark.parametrize("mode", ["writeback", "writethrough", "-"])
def test_flushed_behind_the_old_end(make_disk, mode):
    """The power fails right behind the flush: the volume is as large as it was then, and what was flushed is there.  One that has a
    cache gets its superblock written by the start, too, as its second copy is not where it is looked for; one without does not."""
    stack = Growing(make_disk, format_volume=("--cache", "c", *(("--mode", mode) if mode != "-" else ())), writeback="off")
    stack.volume.write(0, b"dirty".ljust(4096, b"!"))  # may_be_dirty is set before: what follows writes no superblock
    if mode == "-":
        stack.detach()
    stack.grow_volume()
    for at in ends(stack.volume):
        stack.volume.write(at, b"flushed".ljust(4096, b"!"))
    stack.volume.flush()
    simdisk.power_cut(mode="lose")
    stack.cut_off()
    stack.start()
    assert stack.volume.sectors == LARGE * MIB - 2 * DATA_SECTOR
    for at in ends(stack.volume):
        assert stack.volume.read(at, 8) == b"flushed".ljust(4096, b"!")
    stack.stop()


@pytest.mark.parametrize("mode", ["lose", "torn", "keep"])
def test_power_cut_at_each_step_of_a_volume(make_disk, make_oracle, seed, mode):
    """Old or new size by the superblock; all that was written is there; the growth is made good on."""
    stack = Growing(make_disk)
    oracle = make_oracle(stack.volume, size="16m")
    sizes = set()
    for after in range(1, (LARGE - SMALL) // STEP):
        size = SMALL + STEP * after
        oracle.run(ops=100)
        stack.volume.flush()
        simdisk.power_cut(mode=mode, seed=seed + after, after=after, ops="write")
        stack.hdd.resize(size)
        larder("volume", "resize", "v", check=False)
        if stack.disk.state()["power"] == "on":
            oracle.run(ops=0, seconds=60, until_error=True)
        was = size - STEP
        stack.cut_off()
        assert said(stack.hdd) in (was * MIB - 2 * DATA_SECTOR, size * MIB - 2 * DATA_SECTOR)
        sizes.add(said(stack.hdd) > was * MIB - 2 * DATA_SECTOR)
        known = volume_of_cache(stack.ssd)
        assert known >= said(stack.hdd)
        stack.start()
        oracle.verify(after="crash")
        stack.grow_volume(size)
    assert sizes == {False, True}
    oracle.verify()
    stack.stop()


def volume_of_cache(ssd: object) -> int:
    """Sectors of the only volume, by the table on the SSD."""
    out = larder("rescue", "list", ssd, "-o", "size", "--units", "s", "--nosuffix", "--reportformat", "json").stdout
    (row,) = json.loads(out)["volumes"]
    return int(row["size"])


def test_grown_without_its_cache(make_disk):
    """The cache knows fewer sectors than the backing: it learns of the others when the volume starts."""
    stack = Growing(make_disk)
    v = stack.volume
    v.write(0, PATTERN * 8)
    v.drain()
    v.remove()
    v = Volume.create("v", Volume.line(stack.hdd, None, said(stack.hdd)))
    stack.hdd.resize(LARGE)
    larder("volume", "resize", "v")  # no write: the cache is still the right one
    v.remove()
    stack.volume = v = Volume.create("v", Volume.line(stack.hdd, stack.cache, said(stack.hdd), writeback="off"))
    assert v.status()["state"] == "running" and v.sectors == LARGE * MIB - 2 * DATA_SECTOR
    for at in ends(v):
        v.write(at, PATTERN * 8)
    v.flush()
    simdisk.power_cut(mode="lose")
    stack.cut_off()
    stack.start()
    assert all(stack.volume.read(at, 8) == PATTERN * 8 for at in [0, *ends(stack.volume)])
    stack.stop()


def test_limits_and_uevent(make_disk):
    """As of a volume that was as large from the beginning; userland is told of the size."""
    stack = Growing(make_disk)
    names = ("logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size", "discard_granularity")
    names += ("discard_max_bytes", "write_zeroes_max_bytes", "max_sectors_kb")
    before = {name: stack.volume.queue(name) for name in names}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as events:  # NETLINK_KOBJECT_UEVENT
        events.bind((0, 1))
        events.settimeout(60)
        stack.grow_volume()
        kernel_name = os.path.basename(stack.volume.kernel_name).encode()
        while True:
            event = events.recv(65536)
            if b"RESIZE=1" in event and kernel_name in event:
                break
    assert {name: stack.volume.queue(name) for name in names} == before
    alignment = Path(f"/sys/block/{stack.volume.kernel_name}/discard_alignment").read_text()
    stack.restart()
    assert {name: stack.volume.queue(name) for name in names} == before
    assert Path(f"/sys/block/{stack.volume.kernel_name}/discard_alignment").read_text() == alignment
    stack.stop()


# ---------------------------------------------------------------- refused


def refused(name: str, line: str, kernel_log, words: str) -> None:
    with pytest.raises(command.CommandError) as e:
        dm_ioctl.load(name, line)
    assert e.value.status in (errno.EINVAL, errno.ENOSPC)
    assert kernel_log.matching(words)


def test_smaller_volume_is_refused(make_disk, make_oracle, kernel_log):
    stack = Growing(make_disk)
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=200)
    sectors, table = stack.volume.sectors, stack.volume.table()
    smaller = Volume.line(stack.hdd, stack.cache, sectors - 8)
    refused("v", smaller, kernel_log, r"sectors: .* a volume cannot be made smaller: give")
    refused("v", Volume.line(stack.hdd, stack.cache, sectors + 8), kernel_log, r"sectors: the table has .* at most")
    assert "all that there is room for" in larder("volume", "resize", "v").stdout and stack.volume.table() == table
    # the backing became smaller beneath it
    stack.hdd.resize(SMALL - 8)
    result = larder("volume", "resize", "v", check=False)
    assert result.returncode == 5 and "smaller" in result.stderr and str(stack.hdd.kernel_name) in result.stderr
    stack.hdd.resize(SMALL)
    oracle.verify()
    stack.volume.remove()
    stack.hdd.resize(SMALL - 8)
    with pytest.raises(command.CommandError):
        Volume.create("v", Volume.line(stack.hdd, stack.cache, sectors))
    assert kernel_log.matching(r"device_sectors \(the device has become smaller\).*make it as large as it was")
    assert not kernel_log.matching("larder volume create")
    if "v" in dm.names():
        dm.DmDevice("v").remove()
    stack.hdd.resize(SMALL)
    stack.volume = None
    stack.cache.remove()
    stack.start()
    oracle.verify()
    stack.stop()


def test_superblock_that_cannot_be_written(make_disk, make_oracle, kernel_log):
    """It goes on, and grows when the disk is well again, if it has not before."""
    kernel_log.expect("I/O error")
    stack = Growing(make_disk)
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=200)
    small, line = stack.volume.sectors, stack.line()
    # behind the first attempt the copies differ: the next one makes them equal before it grows
    for copy, why in ((8, "could not grow"), (DATA_SECTOR - 8, "could not be noted in the superblock")):
        stack.hdd.resize(LARGE)
        stack.disk.fail(op="write", from_=copy, to=copy + 8, status="ioerr")
        result = larder("volume", "resize", "v", check=False)
        assert result.returncode == 1 and why in result.stderr
        stack.disk.heal()
        # nor is there a way back by then, to less than its superblock says: it goes on with the new table
        assert stack.volume.sectors == (small if copy == 8 else said(stack.hdd)) and not stack.volume.info()["suspended"]
        oracle.run(ops=200)
    refused("v", line, kernel_log, "cannot be made smaller")  # the first copy says that it is larger
    larder("volume", "resize", "v")
    assert stack.volume.sectors == said(stack.hdd) > small
    oracle.run(ops=200)
    stack.restart()
    oracle.verify()
    stack.stop()


def test_resize_verb(make_disk):
    """What it says and refuses, and that --dry-run does nothing."""
    stack = Growing(make_disk)
    small = stack.volume.sectors
    assert stack.volume.status()["room_sectors"] == small
    assert "all that there is room for" in larder("volume", "resize", "v").stdout
    stack.hdd.resize(LARGE)
    large = LARGE * MIB - 2 * DATA_SECTOR
    assert stack.volume.status()["room_sectors"] == large
    assert f"0 {large} larder" in larder("volume", "resize", "v", "--dry-run").stdout
    for size, code, words in (
        (small * 512 - 4096, 5, "cannot be made smaller"),
        (large * 512 + 4096, 1, f"room for {large * 512} bytes"),
        (small * 512 + 100, 2, "logical block size"),
    ):
        result = larder("volume", "resize", "v", "--size", f"{size}b", check=False)
        assert result.returncode == code and words in result.stderr and stack.volume.sectors == small
    assert f"{(small + 8) * 512} bytes, {small * 512} before" in larder(
        "volume", "resize", "v", "--size", f"{(small + 8) * 512}b"
    ).stdout
    assert "as asked for" in larder("volume", "resize", "v", "--size", f"{(small + 8) * 512}b").stdout
    stack.volume.load(Volume.line(stack.hdd, stack.cache, large))  # by plain dmsetup
    stack.volume.suspend()
    stack.volume.resume()
    assert stack.volume.sectors == said(stack.hdd) == large
    stack.stop()


def test_ssds_that_grew_come_back(make_disk, make_oracle):
    """One after the other leaves and joins anew, in use: behind the others, with all of it; the other one may be lost then."""
    disks = [make_disk(f"ssd{i}", model="null", mb=64, wce=1, fua=1) for i in range(2)]
    parts = [Part.make(f"s{i}", disk, SSD) for i, disk in enumerate(disks)]
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(list(parts), hdd, format_volume=("--cache", "c"), format_cache=("--segment-size", "128k"))
    oracle = make_oracle(stack.volume, size="16m")
    before = stack.cache.status()["segments"]
    running = oracle.start(ops=4000)
    for i, part in enumerate(parts):
        larder("cache", "remove", "c", part)
        part.resize(64)
        larder("cache", "add", "c", part, "--new-place", "--yes")
        assert stack.cache.status()["ssds"].split("/")[2 + i] == "active"
    running.wait(600)
    assert stack.cache.status()["segments"] >= before + 2 * 62 * 8
    oracle.verify()
    stack.ssd = [None, None, *parts]
    stack.restart()
    oracle.verify()
    oracle.run(ops=500)
    stack.stop()
    for part in parts:
        larder("super", "check", part)
    assert "0 damaged" in larder("rescue", "check", *parts).stdout
    stack.ssd = [None, None, None, parts[1]]
    stack.start()
    oracle.verify()
    stack.verify_alone(oracle)


# ---------------------------------------------------------------- a cache


class GrowingCache(Stack):
    """On parts of its SSDs; segments of 128 KiB, of which a MiB has eight."""

    def __init__(self, make_disk, ssds: int = 1, **options: object):
        self.disks = [make_disk(f"ssd{i}", model="null", mb=96, wce=1, fua=1) for i in range(ssds)]
        parts = [Part.make(f"s{i}", disk, SSD) for i, disk in enumerate(self.disks)]
        hdd = make_disk("hdd0", model="null", mb=128, wce=1)
        options = {"format_volume": ("--cache", "c"), "format_cache": ("--segment-size", "128k")} | options
        super().__init__(parts if ssds > 1 else parts[0], hdd, **options)
        self.parts = parts

    @property
    def last(self) -> Part:
        return self.parts[-1]

    def segments(self) -> int:
        return self.cache.status()["segments"]

    def would_have(self) -> int:
        """Segments, were the last SSD used as far as it goes."""
        start, size, number = segment_layout(self.last)
        return self.segments() - number + (self.last.sectors - 8 - start) // size

    def grow_cache(self, mib: int = 96) -> None:
        self.last.resize(mib)
        wanted = self.would_have()
        assert "bytes" in larder("cache", "resize", "c").stdout
        assert self.segments() == wanted

    def verify_members(self) -> None:
        for part in self.parts:
            larder("super", "check", part)
        assert "0 damaged" in larder("rescue", "check", *self.parts).stdout


@pytest.mark.parametrize("ssds", [1, 2])
def test_cache_grows_under_load(make_disk, make_oracle, trace, ssds):
    """What is behind the old end is written to, counted at the SSD; all content stays, now and after a start."""
    stack = GrowingCache(make_disk, ssds, cache_mirror="all" if ssds > 1 else "dirty", writeback="off", sequential_cutoff=0)
    disk, before = stack.disks[-1], stack.segments()
    oracle = make_oracle(stack.volume, size="12m")
    running = oracle.start(ops=3000)
    stack.grow_cache()
    running.wait(600)
    if ssds > 1:  # the others follow: each leaves and joins anew, behind it
        larder("cache", "remove", "c", stack.parts[0])
        stack.parts[0].resize(96)
        larder("cache", "add", "c", stack.parts[0], "--new-place", "--yes")
        stack.ssd = [None, *reversed(stack.parts)]
    assert stack.segments() > before + 60 * 8
    trace.clear()
    for at in range(0, 48 * MIB, 1024):
        stack.volume.write(64 * MIB + at, os.urandom(512 * 1024))
    stack.volume.flush()
    behind = [c for c in trace.commands(disk, "write") if c.sector >= SSD * MIB and not c.error]
    assert sum(c.sectors for c in behind) > 24 * MIB, "48 MiB are dirty, in pairs of segments where there are two SSDs"
    assert stack.volume.dirty() > 40 * MIB
    oracle.verify()
    stack.restart()
    oracle.verify()
    stack.volume.drain()
    oracle.run(ops=500)
    stack.stop()
    stack.verify_members()
    stack.start()
    stack.verify_alone(oracle)


@pytest.mark.parametrize("ssds", [1, 2])
@pytest.mark.parametrize("mode", ["lose", "torn", "keep"])
def test_power_cut_at_each_write_of_a_cache(make_disk, make_oracle, seed, mode, ssds):
    """Old or new size; rescue understands each state; all that was written is there; the growth is made good on, and used."""
    stack = GrowingCache(make_disk, ssds)
    oracle = make_oracle(stack.volume, size="16m")
    sizes, mib = set(), SSD
    for after in range(1, 8 if ssds == 1 else 12):
        oracle.run(ops=60)
        stack.volume.flush()
        before, mib = stack.segments(), mib + 4
        stack.last.resize(mib)
        wanted = stack.would_have()
        stack.cache.load(Cache.line(stack.parts, **stack.cache_options))
        stack.cache.suspend()
        simdisk.power_cut(mode=mode, seed=seed + after, after=after, ops="write")
        with contextlib.suppress(command.CommandError):
            stack.cache.resume()
        if stack.disks[-1].state()["power"] == "on":
            oracle.run(ops=0, seconds=60, until_error=True)
        simdisk.wait_power_off(stack.disks[-1])
        stack.stop()
        simdisk.power_up()
        larder("rescue", "list", *stack.parts)
        stack.start()
        assert stack.segments() in (before, wanted)
        sizes.add(stack.segments() > before)
        oracle.verify(after="crash")
        larder("cache", "resize", "c")
        assert stack.segments() == wanted
        oracle.run(ops=60)
    assert sizes == {False, True}
    stack.restart()
    oracle.verify()
    stack.stop()
    stack.verify_members()


def test_grown_one_is_lost(make_disk, make_oracle):
    """Second copies lie behind the old end, and the power fails: without that SSD the other one knows all that the log names."""
    stack = GrowingCache(make_disk, 2, writeback="off")
    stack.grow_cache()
    oracle = make_oracle(stack.volume, size="12m")
    oracle.run(ops=1500)
    stack.volume.flush()
    assert b"LCMT" in stack.disks[1].read(SSD * MIB, stack.last.sectors - 8 - SSD * MIB), "the log is not behind the old end"
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    kill(stack.disks[1])
    start_without(stack, 1)
    oracle.verify(after="crash")
    stack.verify_alone(oracle)


def test_pins_grow_with_the_cache(make_disk):
    """What a volume may pin is a share of the cache as it is now."""
    stack = GrowingCache(make_disk, sequential_cutoff=0, **{"class": "any:pin-50"})

    def share() -> int:
        """Half of the cache, in sectors."""
        return stack.segments() * stack.cache.status()["segment_sectors"] // 2

    def pin_all(first: int, mib: int) -> int:
        for sector in range(first * MIB, (first + mib) * MIB, MIB):
            stack.volume.write(sector, os.urandom(MIB * 512))
        stack.volume.drain()
        return stack.volume.status()["pinned_sectors"]

    small = share()
    assert small // 2 < pin_all(0, 24) <= small
    stack.grow_cache()
    assert share() > 2 * small
    assert small * 3 // 2 < pin_all(32, 48) <= share()
    stack.stop()


def test_smaller_cache_is_refused(make_disk, make_oracle, kernel_log):
    """In use and at a start, by command and by table; made as large as it was all is as before."""
    stack = GrowingCache(make_disk)
    oracle = make_oracle(stack.volume, size="12m")
    oracle.run(ops=200)
    assert "all that there is room for" in larder("cache", "resize", "c").stdout
    stack.grow_cache(64)
    stack.volume.drain()
    stack.last.resize(48)
    result = larder("cache", "resize", "c", check=False)
    assert result.returncode == 5 and "cannot be made smaller" in result.stderr and str(48 << 20) in result.stderr
    refused("c", Cache.line(stack.parts, **stack.cache_options), kernel_log, "has become smaller.*make it as large as it was")
    stack.last.resize(64)
    oracle.run(ops=200)
    stack.stop()
    stack.last.resize(48)
    with pytest.raises(command.CommandError):
        stack.start()
    if "c" in dm.names():
        dm.DmDevice("c").remove()
    stack.last.resize(64)
    stack.start()
    oracle.verify()
    stack.stop()


def test_one_that_is_not_the_last(make_disk, make_oracle):
    """Its segments cannot be more, as the numbers behind them are others': said, with what to do."""
    stack = GrowingCache(make_disk, 2)
    oracle = make_oracle(stack.volume, size="12m")
    oracle.run(ops=200)
    before = stack.segments()
    stack.parts[0].resize(64)
    result = larder("cache", "resize", "c", check=False)
    assert result.returncode == 1 and "--new-place" in result.stderr and "no room for more" in result.stderr
    assert stack.segments() == before
    stack.last.resize(64)
    result = larder("cache", "resize", "c")
    assert "--new-place" in result.stderr and stack.segments() == before + 32 * 8
    oracle.verify()
    stack.stop()
    stack.verify_members()


@pytest.mark.parametrize("ssds", [1, 2])
def test_growth_that_cannot_be_written(make_disk, make_oracle, kernel_log, ssds):
    """The new end, and of one SSD the table: it goes on as large as it was, and grows when the SSD is well again."""
    kernel_log.expect("I/O error")
    stack = GrowingCache(make_disk, ssds)
    oracle = make_oracle(stack.volume, size="12m")
    oracle.run(ops=200)
    before, mib = stack.segments(), SSD
    for from_, to in (0, 0), *([(256, 512), (512, 768), (8, 16)] if ssds == 1 else []):
        mib += 4
        stack.last.resize(mib)
        stack.disks[-1].fail(op="write", from_=from_ or mib * MIB - 8, to=to or mib * MIB, status="ioerr")
        result = larder("cache", "resize", "c", check=False)
        assert result.returncode == 1 and stack.segments() == before
        assert kernel_log.matching("could not grow by")
        stack.disks[-1].heal()
        assert not stack.volume.info()["suspended"]
        oracle.run(ops=200)
        assert stack.cache.status()["devices_failed"] == 0
        larder("cache", "resize", "c")
        before += 4 * 8
        assert stack.segments() == before
    oracle.verify()
    stack.restart()
    oracle.verify()
    stack.stop()
    stack.verify_members()


def test_old_copy_behind_the_end(make_disk, make_oracle, seed):
    """Cut off behind its first write a growth leaves a superblock at the new end, which must not be found later on."""
    stack = GrowingCache(make_disk)
    oracle = make_oracle(stack.volume, size="12m")
    oracle.run(ops=200)
    stack.last.resize(64)
    stack.cache.load(Cache.line(stack.parts, **stack.cache_options))
    stack.cache.suspend()
    simdisk.power_cut(mode="lose", seed=seed, after=2, ops="write")
    with contextlib.suppress(command.CommandError):
        stack.cache.resume()
    simdisk.wait_power_off(stack.disks[0])
    stack.stop()
    simdisk.power_up()
    end = 64 * MIB - 8
    assert stack.disks[0].read(end, 8).strip(b"\0"), "the second copy came first, durably"
    stack.start()
    assert not stack.disks[0].read(end, 8).strip(b"\0")
    oracle.verify(after="crash")
    stack.stop()
