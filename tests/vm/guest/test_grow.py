# SPDX-License-Identifier: GPL-2.0-or-later
"""A volume grows with its backing, a cache with its SSD, by reload and in use; power cuts at each step; smaller is refused.

A simulated disk has one size: what grows is a linear device on top of it.
"""

import errno
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from lib import command, dm, dm_ioctl, simdisk
from lib.larder import DATA_SECTOR, Cache, Stack, Volume, larder, segment_layout, wait_for
from lib.sets import MODES

MIB = 2048  # sectors
SMALL, LARGE = 96, 160  # MiB, of a backing
SSD_SMALL, SSD_LARGE = 32, 56  # MiB, of an SSD
PATTERN = b"what was behind the end of the volume".ljust(512, b".")


class Part(dm.DmDevice):
    """The first sectors of a disk."""

    @classmethod
    def make(cls, name: str, disk: simdisk.Simdisk, mib: int) -> "Part":
        part = cls.create(name, f"0 {mib * MIB} linear {disk} 0")
        part.disk = disk
        return part

    def resize(self, mib: int) -> None:
        self.reload(f"0 {mib * MIB} linear {self.disk} 0", noflush=True)


class Growing(Stack):
    """A stack on parts of its disks; what is below takes power cuts."""

    def __init__(self, make_disk, ssds: tuple[int, ...] = (SSD_SMALL,), model: str = "null", **options: object):
        times = {"jitter_ns": 100000} if model == "nvme" else {}
        disks = [make_disk(f"ssd{i}", model=model, mb=64, wce=1, fua=1, **times) for i in range(len(ssds))]
        self.disk = make_disk("hdd0", model=model, mb=LARGE, wce=1, **times)
        self.ssds = [Part.make(f"s{i}", d, mib) for i, (d, mib) in enumerate(zip(disks, ssds, strict=True))]
        options = {"format_volume": ("--cache", "c"), "format_cache": ("--segment-size", "128k")} | options
        super().__init__(list(self.ssds), Part.make("b", self.disk, SMALL), **options)

    def start(self) -> None:
        """With what the superblocks say."""
        self.cache = Cache.start(self.ssd, **self.cache_options)
        self.volume = Volume.create("v", Volume.line(self.hdd, self.cache, said(self.hdd), **self.options))

    def grow_volume(self, mib: int = LARGE) -> None:
        self.hdd.resize(mib)
        larder("volume", "resize", "v")
        assert self.volume.sectors == said(self.hdd) == mib * MIB - 2 * DATA_SECTOR

    def grow_cache(self, mib: int = SSD_LARGE) -> None:
        was = self.cache.status()["segments"]
        self.ssds[-1].resize(mib)
        larder("cache", "resize", "c")
        assert self.cache.status()["segments"] > was

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


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_flushed_behind_the_old_end(make_disk, mode):
    """The power fails right behind the flush: the volume is as large as it was then, and what was flushed is there."""
    stack = Growing(make_disk, format_volume=("--cache", "c", "--mode", mode), writeback="off")
    stack.volume.write(0, b"dirty".ljust(4096, b"!"))  # may_be_dirty is set before: what follows writes no superblock
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
    for after in range(1, 16):
        size = SMALL + 4 * after
        oracle.run(ops=100)
        stack.volume.flush()
        simdisk.power_cut(mode=mode, seed=seed + after, after=after, ops="write")
        stack.hdd.resize(size)
        larder("volume", "resize", "v", check=False)
        if stack.disk.state()["power"] == "on":
            oracle.run(ops=0, seconds=60, until_error=True)
        was = size - 4
        stack.cut_off()
        assert said(stack.hdd) in (was * MIB - 2 * DATA_SECTOR, size * MIB - 2 * DATA_SECTOR)
        sizes.add(said(stack.hdd) > was * MIB - 2 * DATA_SECTOR)
        known = volume_of_cache(stack.ssds[0])
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


@pytest.mark.limit(600)
def test_power_cuts_while_both_grow(make_disk, make_oracle, seed):
    """Beside a load, at any moment."""
    stack = Growing(make_disk, model="nvme")
    oracle = make_oracle(stack.volume, size="24m")
    oracle.run(ops=500)
    for i in range(8):
        volume, ssd = SMALL + 8 * (i + 1), SSD_SMALL + 3 * (i + 1)
        simdisk.power_cut(mode=MODES[(seed + i) % len(MODES)], seed=seed + i, after=30 + (seed * 7919 + i * 104729) % 500)
        running = oracle.start(ops=0, seconds=120, until_error=True)
        stack.hdd.resize(volume)
        larder("volume", "resize", "v", check=False)
        stack.ssds[0].resize(ssd)
        larder("cache", "resize", "c", check=False)
        simdisk.wait_power_off(stack.disk, 120)
        if stack.volume.info()["suspended"]:
            stack.volume.load(f"0 {stack.volume.sectors} error")
            stack.volume.resume()
        running.wait(120)
        stack.cut_off()
        stack.start()
        oracle.verify(after="crash")
        oracle.verify()
    larder("volume", "resize", "v")
    larder("cache", "resize", "c")
    oracle.run(ops=1000)
    stack.restart()
    oracle.verify()
    stack.stop()


def test_grown_without_its_cache(make_disk):
    """The cache knows fewer sectors than the backing: it learns of the others when the volume starts."""
    stack = Growing(make_disk)
    v = stack.volume
    v.write(0, PATTERN * 8)
    v.drain()
    v.remove()
    v = Volume.create("v", Volume.line(stack.hdd, None, said(stack.hdd)))
    stack.hdd.resize(LARGE)
    larder("resize", "v")  # no write: the cache is still the right one
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
    refused("v", smaller, kernel_log, r"sectors: .* a volume in use cannot be made smaller: give")
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


def test_smaller_ssd_is_refused(make_disk, make_oracle, kernel_log):
    stack = Growing(make_disk)
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=200)
    stack.grow_cache()
    stack.cache.suspend()
    stack.ssds[0].resize(SSD_SMALL)
    refused("c", Cache.line(stack.ssd), kernel_log, r"device_sectors \(the device has become smaller\).*make it as large as it was")
    assert not kernel_log.matching("larder cache create")
    stack.ssds[0].resize(SSD_LARGE)
    stack.cache.resume()
    oracle.run(ops=200)
    stack.stop()
    stack.ssds[0].resize(SSD_SMALL)
    with pytest.raises(command.CommandError):
        Cache.start(stack.ssd)
    if "c" in dm.names():
        dm.DmDevice("c").remove()
    stack.ssds[0].resize(SSD_LARGE)
    stack.start()
    oracle.verify()
    stack.stop()


# ---------------------------------------------------------------- a cache


@pytest.mark.parametrize("ssds", [(SSD_SMALL,), (SSD_LARGE, SSD_SMALL)])
def test_ssd_grows_under_load(make_disk, make_oracle, ssds):
    """The new segments are used; memory follows; a start, and rescue, know them."""
    stack = Growing(make_disk, ssds=ssds, writeback="off", fill="on", sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="16m")
    running = oracle.start(ops=4000)
    before = stack.cache.status()
    stack.ssds[-1].resize(SSD_LARGE)
    stack.ssds[-1].disk.reset_stats()
    larder("cache", "resize", "c")
    after = stack.cache.status()
    assert after["segments"] - before["segments"] > (SSD_LARGE - SSD_SMALL - 1) * 8
    assert after["memory_bytes"] > before["memory_bytes"]
    running.wait(600)
    # more than the cache held before: the last segments are written to
    for at in range(20 * MIB, 70 * MIB, 128):
        stack.volume.read(at, 128)
    stack.cache.message("commit")
    start, sectors, number = segment_layout(stack.ssds[-1])
    first = sum(segment_layout(s)[2] for s in stack.ssds[:-1])
    assert first + number == after["segments"]
    if len(ssds) == 1:
        tail = (start + sectors * (before["segments"] + 1), SSD_LARGE * MIB - 8)
        assert any(stack.ssds[-1].read(at, 8).strip(b"\0") for at in range(*tail, sectors))
    oracle.verify()
    stack.restart()
    assert stack.cache.status()["segments"] == after["segments"]
    oracle.verify()
    oracle.run(ops=500)
    stack.volume.flush()
    simdisk.power_cut(mode="lose")
    stack.cut_off()
    out = larder("rescue", "check", *stack.ssds).stdout
    assert "0 damaged" in out
    larder("super", "check", stack.ssds[-1])
    stack.start()
    oracle.verify(after="crash")
    stack.volume.set(writeback="on")
    stack.verify_alone(oracle)


@pytest.mark.parametrize("mode", ["lose", "torn", "keep"])
def test_power_cut_at_each_step_of_an_ssd(make_disk, make_oracle, seed, mode):
    """As many segments as before, or as there is room for; all that was written is there."""
    stack = Growing(make_disk)
    oracle = make_oracle(stack.volume, size="16m")
    sizes = set()
    for after in range(1, 13):
        size = SSD_SMALL + 2 * after
        oracle.run(ops=100)
        stack.volume.flush()
        before = stack.cache.status()["segments"]
        stack.ssds[0].resize(size)
        # those of the reload itself (commit, summaries, superblock of the stop) come first
        simdisk.power_cut(stack.ssds[0].disk, mode=mode, seed=seed + after, after=after, ops="write")
        larder("cache", "resize", "c", check=False)
        if stack.ssds[0].disk.state()["power"] == "on":
            oracle.run(ops=0, seconds=60, until_error=True)
        simdisk.wait_power_off(stack.ssds[0].disk)
        stack.stop()
        simdisk.power_up()
        stack.start()
        now = stack.cache.status()["segments"]
        assert now in (before, before + 16)
        sizes.add(now > before)
        oracle.verify(after="crash")
        larder("cache", "resize", "c")
        assert stack.cache.status()["segments"] == before + 16
        larder("super", "check", stack.ssds[0])
    assert sizes == {False, True}
    oracle.verify()
    stack.stop()


def test_what_a_cut_off_move_leaves(make_disk, make_oracle):
    """A copy of the superblock at the new end that no other one names is wiped by the next start: it must not be found later."""
    stack = Growing(make_disk)
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=200)
    stack.stop()
    ssd = stack.ssds[0]
    newer = ssd.read(8, 8)
    ssd.resize(SSD_LARGE)
    ssd.write(SSD_LARGE * MIB - 8, newer)
    stack.start()
    assert not ssd.read(SSD_LARGE * MIB - 8, 8).strip(b"\0")
    oracle.verify()
    stack.stop()


def test_only_the_last_ssd_grows(make_disk, make_oracle, kernel_log):
    stack = Growing(make_disk, ssds=(SSD_SMALL, SSD_SMALL))
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=500)
    stack.ssds[0].resize(SSD_LARGE)
    result = larder("cache", "resize", "c", check=False)
    assert result.returncode == 1 and "--new-place" in result.stderr
    refused("c", Cache.line(stack.ssd, grow="on"), kernel_log, r"grow: it is SSD 0, and only the last one")
    stack.grow_cache()
    assert "grow" not in stack.cache.table()
    stack.cache.reload(stack.cache.table())
    oracle.run(ops=1000)
    stack.restart()
    oracle.verify()
    segments = stack.cache.status()["segments"]
    larder("cache", "remove", "c", stack.ssds[0])
    larder("cache", "add", "c", stack.ssds[0], "--new-place", "--yes")
    assert stack.cache.status()["segments"] > segments + (SSD_LARGE - 2) * 8
    oracle.run(ops=500)
    stack.stop()
    stack.ssd = [None, None, stack.ssds[0]]
    stack.start()
    oracle.verify()
    stack.stop()


def test_resize_verb(make_disk):
    """What it says, and that --dry-run does nothing."""
    stack = Growing(make_disk)
    for verb in (("volume", "resize", "v"), ("resize", "v"), ("cache", "resize", "c"), ("resize", "c")):
        assert "all that there is room for" in larder(*verb).stdout
    stack.hdd.resize(LARGE)
    stack.ssds[0].resize(SSD_LARGE)
    sectors, segments = stack.volume.sectors, stack.cache.status()["segments"]
    for verb in (("volume", "resize", "v"), ("cache", "resize", "c")):
        assert "dmsetup" in larder(*verb, "--dry-run").stdout
    assert (stack.volume.sectors, stack.cache.status()["segments"]) == (sectors, segments)
    said_of = larder("resize", "v").stdout
    assert f"{stack.volume.sectors * 512} bytes, {sectors * 512} before" in said_of
    said_of = larder("resize", "c").stdout
    assert f"{segments * 131072} before" in said_of
    assert larder("resize", "nowhere", check=False).returncode == 3
    wait_for(lambda: stack.volume.status()["state"] == "running", 60, "the volume")
    stack.stop()
