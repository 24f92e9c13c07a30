# SPDX-License-Identifier: GPL-2.0-or-later
"""Class `special`: a filesystem's metadata and small files are on the SSD, a large file is not; also where LUKS or LVM stands
between the filesystem and the volume.  Counted at the backing.

    tests/ci/vm --suite special --memory 16G --timeout 7200 --env LARDER_SPECIAL_FILES=100000 --env LARDER_SPECIAL_BIG=4096
"""

import os
from pathlib import Path

import pytest
from lib import above, command, simdisk
from lib.block import BlockDevice
from lib.larder import Stack

FILES = int(os.environ.get("LARDER_SPECIAL_FILES", "4000"))
BIG = int(os.environ.get("LARDER_SPECIAL_BIG", "192"))  # MiB
MKFS = {"ext4": ["mkfs.ext4", "-q"], "xfs": ["mkfs.xfs", "-q"]}
DIRECTORY = 100  # files in it
MOUNTED = Path("/mnt")


def content(number: int) -> bytes:
    """From 1 to 12 KiB."""
    return f"file {number}. ".encode() * (90 + number % 12 * 90)


def copy() -> None:
    for i in range(FILES):
        directory = MOUNTED / "tree" / str(i // DIRECTORY)
        if i % DIRECTORY == 0:
            directory.mkdir(parents=True)
        (directory / f"a file with a name, number {i}").write_bytes(content(i))
    with open(MOUNTED / "big", "wb") as f:
        for i in range(BIG):
            f.write(i.to_bytes(4, "little") * (1 << 18))


def mount(device: BlockDevice, kind: str) -> None:
    """With the type, so that nobody looks for it on the device."""
    command.run("mount", "-t", kind, device, MOUNTED)


def look_at_all() -> int:
    """Every name, and what stat says of it."""
    return sum(1 for d, names, files in os.walk(MOUNTED) for name in [*names, *files] if os.lstat(f"{d}/{name}"))


@pytest.mark.limit(3600 + FILES // 10)
@pytest.mark.parametrize("between", above.KINDS)
@pytest.mark.parametrize("kind", MKFS)
def test_metadata_is_on_the_ssd(make_disk, make_layer, kind, between):
    if command.run("modprobe", kind, check=False).returncode:
        pytest.skip(f"this kernel has no {kind}")
    ssd = make_disk("ssd0", model="null", mb=max(256, FILES * 32 >> 10), crash=False)
    hdd = make_disk("hdd0", model="null", mb=1024 + BIG + (FILES * 20 >> 10), crash=False)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), **{"class": "special"})
    layer = make_layer(between, stack.volume)
    device = layer.open(stack.volume)
    command.run(*MKFS[kind], device)
    mount(device, kind)
    copy()
    there = look_at_all()
    command.run("umount", MOUNTED)
    layer.close()
    stack.volume.drain()
    stack.restart()
    device = layer.open(stack.volume)
    Path("/proc/sys/vm/drop_caches").write_text("3")

    hdd.reset_stats()
    ssd.reset_stats()
    with simdisk.Trace(1 << 20) as trace:
        mount(device, kind)
        assert look_at_all() == there == FILES + len(range(0, FILES, DIRECTORY)) + 2 + (kind == "ext4")
        missed = trace.commands(hdd, "read")
    seen = f"{ssd.stats()['reads']} reads of the SSD, {len(missed)} of the backing"
    print(f"{kind}, {between}: mount and stat of {there} names: {seen}")
    assert not missed, [(c.sector, c.sectors, sorted(c.flags)) for c in missed[:50]]
    assert ssd.stats()["rbytes"] > FILES * 128, "or nothing was read"

    for i in range(0, FILES, 7):
        assert (MOUNTED / "tree" / str(i // DIRECTORY) / f"a file with a name, number {i}").read_bytes() == content(i)
    small = hdd.stats()["rbytes"]
    assert small < FILES // 7 * 1024, "nor the small files"
    with open(MOUNTED / "big", "rb") as f:
        assert all(f.read(1 << 20) == i.to_bytes(4, "little") * (1 << 18) for i in range(BIG))
    of_big = hdd.stats()["rbytes"] - small
    print(f"{kind}, {between}: small files: {small >> 10} KiB from the backing; the big one: {of_big >> 20} of {BIG} MiB")
    assert of_big > (BIG << 20) * 95 // 100
    command.run("umount", MOUNTED)
    layer.close()
    stack.stop()
