# SPDX-License-Identifier: GPL-2.0-or-later
"""larder pin: files stay on the SSD.  Judges: what the simulated disks were asked to read, and what is in pinned sectors."""

import json
import mmap
import os
import re
import shutil
from pathlib import Path

import pytest
from lib import command, dm
from lib.larder import Stack
from lib.stacks import DONE, FAILED, FSTAB, HAND_MADE, MOUNTED, NAME, NOT_FOUND, USAGE, larder, refused, release

MIB = 2048  # sectors
SIZE = 4 << 20  # of a file
ATTRIBUTE = "trusted.larder.pinned"


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    """A cache of 32 MiB, and a disk on which it is turned over."""
    if command.run("modprobe", "dm-crypt", check=False).returncode:
        pytest.skip("this kernel has no dm-crypt")
    kernel_log.expect("EXT4-fs|XFS|BTRFS|Btrfs|loop")
    MOUNTED.mkdir(exist_ok=True)
    FSTAB.write_text(HAND_MADE)
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(FSTAB))
    yield make_disk("ssd0", model="null", mb=32, wce=1, fua=1, discard="zero"), make_disk("hdd0", model="null", mb=256, wce=1)
    release()


def create(disks, *more):
    larder("create", "data", "--backing", disks[1], "--cache", disks[0], *more)
    tune()


def tune():
    """What is read in a row fills, and neither time nor a slow host has a say."""
    larder("volume", "set", "data", "sequential_cutoff=0")
    larder("cache", "set", "data", "congestion_read=0", "congestion_write=0")


def put(name, size=SIZE, where=MOUNTED):
    """A file whose content is on the disk; returns it."""
    data = os.urandom(size)
    with open(where / name, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    return data


class Open:
    """A file that is read past the page cache: its inode and extents stay in memory, so nothing but its data is asked for."""

    def __init__(self, name, data, disk):
        self.fd, self.data, self.disk = os.open(MOUNTED / name, os.O_RDONLY | os.O_DIRECT), data, disk
        self.read(4096)

    def read(self, size=SIZE):
        """Bytes that came from the disk for it."""
        self.disk.reset_stats()
        with mmap.mmap(-1, size) as buffer:
            assert os.preadv(self.fd, [buffer], 0) == size and buffer[:] == self.data[:size]
        return self.disk.stats()["rbytes"]

    def close(self):
        os.close(self.fd)


def class_of(name="data"):
    return larder("volume", "get", name, "class").stdout.strip().removeprefix("class=")


def ranges(text=None):
    return [(int(a), int(b)) for a, b in re.findall(r"lba-(\d+)-(\d+):pin-75", text or class_of())]


def status(key, noun="volume"):
    return int(dm.DmDevice("data" if noun == "volume" else "larder-cache-data").status()[key])


def flood(turns=1.5):
    """Reads the end of the volume, where nobody's file is, until the cache has been turned over so often."""
    volume = dm.DmDevice("data")
    end = volume.sectors
    assert all(b < end // 2 for _, b in ranges())
    done = status("reclaimed", "cache") + status("segments", "cache") * turns
    for start in (0, 512) * 6:  # each second piece, so that the next time others are read
        for at in range(end // 2 + start, end - 512, 1024):
            if status("reclaimed", "cache") >= done:
                return
            volume.read(at, 512)
    raise AssertionError("the cache was not turned over")


def listed(*words):
    found = json.loads(larder("pin", "--list", *words, "--units", "b", "--nosuffix", "--reportformat", "json").stdout)["pins"]
    return {Path(row["file"]).name: row for row in found}


def on_disk(disk, what):
    last = b""
    with open(f"/dev/{disk.name}", "rb") as f:
        while piece := f.read(1 << 22):
            if what in last + piece:
                return True
            last = piece[-len(what) :]
    return False


@pytest.mark.limit(900)
def test_pinned_file_stays(disks, tmp_path):
    """ext4 on LUKS on the volume."""
    key = tmp_path / "key"
    key.write_bytes(os.urandom(64))
    create(disks, "--mkfs", "ext4", "--mount", MOUNTED, "--encrypt", f"luks2:keyfile={key}", "--iter-time", "10")
    files = {name: put(name) for name in (NAME, "other")}
    assert class_of() == "default"
    said = larder("pin", MOUNTED / NAME)
    assert "1 file pinned" in said.stdout and said.stderr == ""
    assert sum(b - a for a, b in ranges()) == SIZE // 512 and class_of().endswith("/sequential:bypass")
    assert status("pinned_sectors") >= SIZE // 512, "it is on the SSD when the command ends"
    assert listed()[NAME]["state"] == "pinned"

    def judge(turns):
        """Bytes that are read from the disk for the pinned one, after the cache was turned over."""
        both = {name: Open(name, data, disks[1]) for name, data in files.items()}
        flood(turns)
        read = both[NAME].read(), both["other"].read()
        for one in both.values():
            one.close()
        assert read[1] > SIZE // 2, "it is not pinned, and should have gone"
        return read[0]

    assert judge(1.5) == 0
    before = class_of()
    larder("stop", "data")
    for disk in disks:
        assert not on_disk(disk, NAME.encode()), "its name is as secret as it is"
    # what the kernel forgets at a stop, --refresh tells it: nobody reads the file before the flood
    larder("start", "data")
    tune()
    assert class_of() == before and status("pinned_sectors") == 0
    disks[1].reset_stats()
    larder("pin", "--refresh")
    assert status("pinned_sectors") >= SIZE // 512 and class_of() == before
    assert disks[1].stats()["rbytes"] < SIZE // 2, "it was on the SSD all the time"
    assert judge(1.5) == 0
    assert "nothing is pinned" in larder("unpin", MOUNTED / NAME).stdout
    assert class_of() == "default" and status("pinned_sectors") == 0 and not listed()
    larder("stop", "data")
    larder("start", "data")
    assert class_of() == "default"
    larder("stop", "data")


def pinned_content(node="data"):
    volume = dm.DmDevice(node)
    return b"".join(volume.read(a, b - a) for a, b in ranges())


@pytest.mark.limit(600)
@pytest.mark.parametrize("fs", ["ext4", "xfs", "btrfs", "linear"])
def test_sectors_are_the_files(disks, make_disk, fs):
    """What the kernel pins are the sectors with the file's content: each filesystem; two segments of dm-linear, swapped."""
    kind = "ext4" if fs == "linear" else fs
    if command.run("modprobe", kind, check=False).returncode:
        pytest.skip(f"this kernel has no {kind}")
    if fs == "xfs":  # makes none that is smaller
        disks = disks[0], make_disk("large0", model="null", mb=400, wce=1)
    create(disks, *(() if fs == "linear" else ("--mkfs", fs, "--mount", MOUNTED)), "--class", "special")
    if fs == "linear":
        size = dm.DmDevice("data").sectors // 2 & ~7
        dm.DmDevice.create("lin", [f"0 {size} linear /dev/mapper/data {size}", f"{size} {size} linear /dev/mapper/data 0"])
        command.run("mkfs.ext4", "-q", "/dev/mapper/lin")
        command.run("mount", "/dev/mapper/lin", MOUNTED)
    first, second = put("first"), put("second", 1 << 20)
    larder("pin", MOUNTED / "first")
    assert pinned_content() == first and class_of().endswith("/metadata:cache/size-32:cache/any:bypass")
    larder("pin", MOUNTED / "second", "--no-load")
    assert sorted((pinned_content().find(first), pinned_content().find(second))) in ([0, len(first)], [0, len(second)])
    rows = listed("data")
    assert rows == listed() and set(rows) == {"first", "second"}
    assert all(r["state"] == "pinned" and r["extents"] == r["extents_in_place"] for r in rows.values())
    larder("unpin", MOUNTED / "first", MOUNTED / "second")
    assert class_of() == "special" and ATTRIBUTE not in os.listxattr(MOUNTED)
    command.run("umount", MOUNTED)
    if fs == "linear":
        dm.DmDevice("lin").remove()
    larder("stop", "data")


@pytest.mark.limit(600)
def test_file_moves(disks, tmp_path):
    """Rewritten elsewhere, deleted, larger than the list takes, too large for the cache; the administrator's own list."""
    create(disks, "--mkfs", "ext4", "--mount", MOUNTED)
    larder("volume", "set", "data", "class=lba-0-8:pin-5/size-64:cache/any:bypass")
    put("moving")
    put("gone", 1 << 20)
    (MOUNTED / "link").symlink_to("moving")
    larder("pin", MOUNTED / "link", MOUNTED / "gone")
    assert set(listed()) == {"moving", "gone"}
    old = ranges()
    assert class_of().endswith("/lba-0-8:pin-5/size-64:cache/any:bypass")
    refused(USAGE, ["pin", MOUNTED], "no regular file")
    assert os.getxattr(MOUNTED, ATTRIBUTE) == b"moving\ngone\n"

    shutil.copy(MOUNTED / "moving", MOUNTED / "copy")
    os.sync()
    (MOUNTED / "copy").rename(MOUNTED / "moving")
    row = listed()["moving"]
    assert (row["state"], int(row["in_place"]), int(row["size"]) >= SIZE) == ("moved", 0, True)
    larder("pin", "--refresh", "data")
    assert ranges() != old and listed()["moving"]["state"] == "pinned"
    content = (MOUNTED / "moving").read_bytes()
    assert content in pinned_content()

    (MOUNTED / "gone").unlink()
    assert listed()["gone"]["state"] == "missing"
    refused(NOT_FOUND, ["pin", "--refresh"], "gone", "larder unpin")
    assert pinned_content() == content, "its sectors are others' by now"
    larder("unpin", MOUNTED / "gone")
    larder("pin", "--refresh", code=DONE)

    # every second piece is a hole, also on the disk
    put("holes", 2 << 20)
    for at in range(0, 2 << 20, 131072):
        command.run("fallocate", "--punch-hole", "--offset", at, "--length", 65536, MOUNTED / "holes")
    before = class_of()
    refused(FAILED, ["pin", MOUNTED / "holes"], "pieces of the volume", "room for 2", "defragment")
    put("large", 26 << 20)
    refused(FAILED, ["pin", MOUNTED / "large"], "nothing was changed")
    refused(NOT_FOUND, ["unpin", MOUNTED / "holes"], "is not pinned")
    refused(FAILED, ["pin", "/etc/hostname"], "/etc/hostname", "filesystem")
    (MOUNTED / "empty").touch()
    refused(FAILED, ["pin", MOUNTED / "moving", MOUNTED / "empty"], "no data")
    assert class_of() == before and set(listed()) == {"moving"}, "nothing of what was refused was done"

    # a list that was set by hand has no pins; --refresh puts them back
    larder("volume", "set", "data", "class=any:cache")
    assert listed()["moving"]["state"] == "off"
    larder("pin", "--refresh")
    assert class_of() == before.split("/lba-0-8")[0] + "/any:cache"
    # what is in the attribute may have come with the filesystem
    put("copied", 65536)
    for bad in (b"../moving\n", b"/etc/passwd\n", b"moving", b"moving\n\n", b"a\0b\n"):
        os.setxattr(MOUNTED, ATTRIBUTE, bad)
        said = larder("pin", "--list")
        assert "not larder's" in said.stderr and "moving" not in said.stdout
        # nobody knows what is pinned: it stays so, and what is there is not written over
        before = class_of()
        refused(FAILED, ["pin", "--refresh"], ATTRIBUTE, f"setfattr -x {ATTRIBUTE} {MOUNTED}")
        refused(FAILED, ["pin", MOUNTED / "copied"], ATTRIBUTE)
        assert class_of() == before and os.getxattr(MOUNTED, ATTRIBUTE) == bad
    (MOUNTED / "out").symlink_to("/etc/hostname")
    os.setxattr(MOUNTED, ATTRIBUTE, b"out\nmoving\n")
    assert {n: r["state"] for n, r in listed().items()} == {"out": "missing", "moving": "pinned"}
    os.setxattr(MOUNTED, ATTRIBUTE, b"moving\n")

    # a part of it that is mounted elsewhere
    command.run("mount", "--bind", MOUNTED, tmp_path)
    larder("pin", tmp_path / "moving")
    assert os.getxattr(MOUNTED, ATTRIBUTE) == b"moving\n", "the same file"
    command.run("umount", tmp_path)
    (MOUNTED / "part").mkdir()
    put("part/f", 65536)
    command.run("mount", "--bind", MOUNTED / "part", tmp_path)
    refused(FAILED, ["pin", tmp_path / "f"], "a mount of a part")
    command.run("umount", tmp_path)

    command.run("umount", MOUNTED)
    assert "stay as they are" in larder("pin", "--refresh").stderr
    refused(NOT_FOUND, ["pin", "--refresh", "data"], "stay as they are")
    assert listed()[""]["state"] == "unmounted"
    refused(NOT_FOUND, ["unpin", MOUNTED / "moving"], "is not pinned")
    larder("stop", "data")
    assert listed()[""]["state"] == "stopped"


def test_layers_that_mix_sectors(disks, tmp_path):
    """A loop device, a striped mapping above the volume; a volume that is no stack's."""
    create(disks, "--mkfs", "ext4", "--mount", MOUNTED)
    command.run("modprobe", "loop")
    command.run("truncate", "-s", "32M", MOUNTED / "image")
    command.run("mkfs.ext4", "-q", MOUNTED / "image")
    command.run("mount", "-o", "loop", MOUNTED / "image", tmp_path)
    put("f", 65536, tmp_path)
    refused(FAILED, ["pin", tmp_path / "f"], "loop device", "/dev/loop")
    command.run("umount", tmp_path)
    command.run("umount", MOUNTED)
    size = dm.DmDevice("data").sectors // 2 & ~127
    dm.DmDevice.create("mixed", f"0 {2 * size} striped 2 64 /dev/mapper/data 0 /dev/mapper/data {size}")
    command.run("mkfs.ext4", "-q", "/dev/mapper/mixed")
    command.run("mount", "/dev/mapper/mixed", tmp_path)
    put("f", 65536, tmp_path)
    refused(FAILED, ["pin", tmp_path / "f"], "mixed", "striped")
    command.run("umount", tmp_path)
    dm.DmDevice("mixed").remove()
    larder("stop", "data")
    refused(USAGE, ["pin", "--list", "--refresh"], "--list")


def test_no_stack(disks, tmp_path):
    """No description, so nothing to keep a pin in; the words by which it is pinned until the volume is stopped."""
    stack = Stack(*disks)
    command.run("mkfs.ext4", "-q", stack.volume)
    command.run("mount", stack.volume, tmp_path)
    data = put("f", where=tmp_path)
    refused(FAILED, ["pin", tmp_path / "f"], "belongs to no stack", "larder volume set v class=lba-")
    said = larder("pin", tmp_path / "f", code=FAILED).stderr
    larder(*re.search(r"larder (volume set \S+ \S+)$", said, re.M)[1].split())
    assert b"".join(stack.volume.read(a, b - a) for a, b in ranges(class_of("v"))) == data
    command.run("umount", tmp_path)
    stack.stop()
