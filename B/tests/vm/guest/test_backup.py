# SPDX-License-Identifier: GPL-2.0-or-later
"""`larder super backup` and `restore` beside the kernel: what it starts afterwards, and what it refuses.

What is in the file, and what is written where: tests/test_command_backup.py, without a VM.
"""

import os
import stat
from pathlib import Path

import pytest
from lib import command, dm
from lib.block import BlockDevice
from lib.larder import wait_for
from lib.stacks import BUSY, DONE, UNSAFE, larder, refused

ARCHIVE = Path("/var/lib/larder/archive")
OLD, NEW = b"\1" * 4096, b"\2" * 4096
SECTORS = range(0, 8 * 256, 8)
MIB = 2048  # sectors


def fill(name: str, data: bytes) -> None:
    volume = dm.DmDevice(name)
    for sector in SECTORS:
        volume.write(sector, data)
    volume.flush()


def seen(device: BlockDevice, shift: int = 0) -> set[bytes]:
    """The values of all that was written."""
    return {device.read(shift + sector, 8) for sector in SECTORS}


def uuid(device: object, name: str = "uuid") -> str:
    return command.output("larder", "super", "show", device, "-o", name, "--noheadings").strip()


def stop() -> None:
    larder("volume", "stop", "data")
    if "larder-cache-fast" in dm.names():
        larder("cache", "stop", "fast")


@pytest.fixture
def dirty(disks, tmp_path):
    """OLD on the backing, NEW in the cache, nothing runs; and backups of the time before."""
    ssd, hdd = disks
    larder("cache", "create", "fast", "--cache", ssd)
    larder("volume", "create", "data", "--backing", hdd, "--cache", "fast")
    larder("volume", "start", "data", "--option", "writeback=off")
    fill("data", OLD)
    larder("volume", "flush", "data")
    files = [tmp_path / "ssd", tmp_path / "hdd"]
    larder("super", "backup", ssd, files[0])
    larder("super", "backup", "data", files[1])
    fill("data", NEW)
    assert dm.DmDevice("data").status()["dirty_sectors"] == 8 * len(SECTORS)
    return ssd, hdd, *files


def lose_head(device: BlockDevice) -> None:
    """The first MiB, as by a slip of dd."""
    device.write(0, bytes(512 * MIB))
    device.flush()


def lose_all(device: BlockDevice) -> None:
    """Both superblocks, too."""
    copy = int(command.output("larder", "super", "show", device, "-o", "copy_offset", "--noheadings"))
    lose_head(device)
    device.write(copy // 512, bytes(4096))
    device.flush()


def test_head_of_the_ssd(dirty):
    """Its tables come from the backup, its superblock from the copy at its end: nothing is lost."""
    ssd, _, file, _ = dirty
    refused(BUSY, ["super", "restore", file, ssd], "in use")
    stop()
    name = uuid(ssd, "cache_uuid")
    lose_head(ssd)
    assert command.run("larder", "volume", "start", "data", check=False).returncode != 0
    refused(UNSAFE, ["super", "restore", file, ssd], name)
    larder("super", "restore", file, ssd, "--discard-dirty", name)
    larder("volume", "start", "data", "--option", "writeback=off")
    assert dm.DmDevice("data").status()["dirty_sectors"] == 8 * len(SECTORS) and seen(dm.DmDevice("data")) == {NEW}
    stop()


def test_table_of_before_an_attach(dirty, make_disk):
    """Numbers in the log may be of others by now: such a table never counts.  One that has seen less of a disk does, above."""
    ssd, _, file, _ = dirty
    other = make_disk("other0", model="null", mb=32)
    larder("volume", "create", "other", "--backing", other, "--cache", "fast")
    larder("volume", "start", "other")
    larder("volume", "stop", "other")
    stop()
    lose_head(ssd)
    name = uuid(ssd, "cache_uuid")
    refused(UNSAFE, ["super", "restore", file, ssd, "--discard-dirty", name], "table generation", "newer backup")
    newest = max(ARCHIVE.glob(f"{uuid(ssd)}-*.backup"), key=lambda f: f.stat().st_mtime_ns)
    larder("super", "restore", newest, ssd, "--discard-dirty", name)
    larder("volume", "start", "data")
    assert seen(dm.DmDevice("data")) == {NEW}
    stop()


def test_whole_ssd(dirty):
    """The cache comes back empty; the volume, of which it had dirty data, is refused until that is given up."""
    ssd, hdd, file, _ = dirty
    stop()
    name = uuid(ssd, "cache_uuid")
    lose_all(ssd)
    larder("super", "restore", file, ssd, "--discard-dirty", name)
    larder("cache", "start", "fast")
    assert dm.DmDevice("larder-cache-fast").status()["live_sectors"] == 0
    run = command.run("larder", "volume", "start", "data", check=False)
    assert run.returncode != DONE and "lost the dirty data" in run.stderr, run.stderr
    # given up: what the disk has counts
    hole = dm.DmDevice.create("data", f"0 {volume_sectors(hdd)} larder {hdd} - 0", suspended=True)
    command.run("dmsetup", "resume", "data", check=False)  # refused, but the table is the live one
    hole.message("discard_dirty", name)
    hole.resume()
    assert seen(hole) == {OLD}
    larder("volume", "attach", "data", "--cache", "fast")
    fill("data", NEW)
    stop()
    larder("volume", "start", "data")
    assert seen(dm.DmDevice("data")) == {NEW}
    stop()


def volume_sectors(device: object) -> int:
    return int(command.output("larder", "super", "show", device, "-o", "volume_sectors", "--noheadings"))


def test_backing(dirty, kernel_log):
    """The volume comes back without its cache, whose dirty data never comes over what is written from then on."""
    _, hdd, _, file = dirty
    stop()
    name = uuid(hdd)
    lose_all(hdd)
    refused(UNSAFE, ["super", "restore", file, hdd], name)
    larder("super", "restore", file, hdd, "--discard-dirty", name)
    larder("volume", "start", "data")
    assert seen(dm.DmDevice("data")) == {OLD}
    larder("cache", "start", "fast")
    refused(UNSAFE, ["volume", "attach", "data", "--cache", "fast"], "stale", "ran without cache")
    third = b"\3" * 4096
    dm.DmDevice("data").write(0, third)
    stop()
    # the same file once more: still not the time when the cache belonged to it
    lose_all(hdd)
    larder("super", "restore", file, hdd, "--discard-dirty", name)
    larder("volume", "start", "data")
    assert seen(dm.DmDevice("data")) == {OLD, third}
    larder("cache", "start", "fast")
    refused(UNSAFE, ["volume", "attach", "data", "--cache", "fast"], "stale", "ran without cache")
    stop()


def test_archive(dirty, tmp_path):
    """A copy at each change, of each device; a /var that takes nothing fails no verb."""
    ssd, hdd, *_ = dirty
    for device in (ssd, hdd):
        found = list(ARCHIVE.glob(f"{uuid(device)}-*.backup"))
        assert found and all(stat.S_IMODE(f.stat().st_mode) == 0o600 for f in found)
    newest = max(ARCHIVE.glob(f"{uuid(ssd)}-*.backup"), key=lambda f: f.stat().st_mtime_ns)
    stop()
    name = uuid(ssd, "cache_uuid")
    # the attached volume is in the newest one: taken behind the verb that had the kernel do it
    lose_head(ssd)
    larder("super", "restore", newest, ssd, "--discard-dirty", name)
    larder("volume", "start", "data")
    assert seen(dm.DmDevice("data")) == {NEW}
    stop()
    command.run("mount", "-t", "tmpfs", "-o", "size=4k", "none", ARCHIVE)
    try:
        for options in ("remount,size=4k", "remount,ro"):
            command.run("mount", "-o", options, ARCHIVE)
            said = larder("volume", "start", "data").stderr
            assert said.count("archive: no copy") == 2 and "goes on without" in said, said
            stop()
        assert not os.listdir(ARCHIVE)
    finally:
        command.run("umount", ARCHIVE)


def test_device_that_does_not_answer(dirty, make_disk):
    """The archive waits for it for a while, and not the verb for the archive."""
    slow = make_disk("slow0", model="null", mb=16)
    slow.fail(op="read", status="ok", delay_ms=40000)
    said = larder("volume", "set", "data", "mode=writethrough").stderr
    assert said.count("a device does not answer") == 2, said
    assert dm.DmDevice("data").status()["mode"] == "writethrough"
    slow.heal()
    wait_for(lambda: command.run("pgrep", "-x", "larder", check=False).returncode == 1, 100, "the archive's children")
    stop()
