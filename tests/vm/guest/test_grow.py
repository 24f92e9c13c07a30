# SPDX-License-Identifier: GPL-2.0-or-later
"""A volume grows with its backing, by reload and in use; power cuts at each step; smaller is refused.

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
from lib.larder import DATA_SECTOR, Cache, Stack, Volume, larder
from lib.parts import MIB, Part

SMALL, LARGE = 96, 160  # MiB, of a backing
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
    """It goes on as large as it was, and grows when the disk is well again; the power may fail in between."""
    kernel_log.expect("I/O error")
    stack = Growing(make_disk)
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=200)
    small, line = stack.volume.sectors, stack.line()
    for copy in (8, DATA_SECTOR - 8):
        stack.hdd.resize(LARGE)
        stack.disk.fail(op="write", from_=copy, to=copy + 8, status="ioerr")
        result = larder("volume", "resize", "v", check=False)
        assert result.returncode == 1 and "could not grow" in result.stderr
        stack.disk.heal()
        assert stack.volume.sectors == small and not stack.volume.info()["suspended"]
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
