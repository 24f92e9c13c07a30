# SPDX-License-Identifier: GPL-2.0-or-later
"""Filesystems on a volume: made, filled, checked, warm and cold; and signatures at the end of a volume, which must not make its
backing look like something else."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from lib import command
from lib.block import BlockDevice
from lib.larder import DATA_SECTOR, Stack, Volume

SOURCE = Path(__file__).resolve().parents[1] / "guest"
FILESYSTEMS = {
    "ext4": (["mkfs.ext4", "-q"], ["e2fsck", "-fn"]),
    "xfs": (["mkfs.xfs", "-q"], ["xfs_repair", "-n"]),
    "btrfs": (["mkfs.btrfs", "-q"], ["btrfs", "check", "--readonly"]),
}


def tree(top: Path) -> dict[str, bytes]:
    return {str(p.relative_to(top)): p.read_bytes() for p in sorted(top.rglob("*")) if p.is_file()}


def copy(top: Path) -> dict[str, bytes]:
    shutil.copytree(SOURCE, top, ignore=shutil.ignore_patterns("__pycache__"))
    (top / "large").write_bytes(os.urandom(6 << 20))
    return tree(top)


@pytest.mark.parametrize("kind", list(FILESYSTEMS))
def test_tree(make_disk, kind):
    mkfs, fsck = FILESYSTEMS[kind]
    if not shutil.which(mkfs[0]):
        pytest.skip(f"no {mkfs[0]}")
    if command.run("modprobe", kind, check=False).returncode:
        pytest.skip(f"this kernel has no {kind}")
    ssd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1, discard="random")
    hdd = make_disk("hdd0", model="null", mb=320, wce=1)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), sequential_cutoff=0)
    command.run(*mkfs, stack.volume)
    mnt = Path("/mnt")
    command.run("mount", "-t", kind, stack.volume, mnt)
    first = copy(mnt / "first")
    stack.volume.set(mode="writethrough")
    second = copy(mnt / "second")
    command.run("umount", mnt)
    command.run(*fsck, stack.volume)
    stack.restart()
    command.run(*fsck, stack.volume)
    command.run("mount", "-t", kind, stack.volume, mnt)
    assert tree(mnt / "first") == first
    shutil.rmtree(mnt / "first")
    third = copy(mnt / "third")
    command.run("umount", mnt)
    stack.detach()
    command.run(*fsck, stack.volume)
    command.run("mount", "-t", kind, "-o", "ro", stack.volume, mnt)
    assert tree(mnt / "second") == second
    assert tree(mnt / "third") == third
    assert not (mnt / "first").exists()
    command.run("umount", mnt)
    stack.stop()


# ---------------------------------------------------------------- signatures at the end


def mdadm(*arguments: object, **environment: str) -> Callable[[object], None]:
    def make(device: object) -> None:
        env = [f"{k}={v}" for k, v in environment.items()]
        command.run("env", *env, "mdadm", "--create", "/dev/md9", "--run", "--force", "--raid-devices=1", *arguments, device)
        command.run("mdadm", "--stop", "/dev/md9")

    return make


def gpt(device: object) -> None:
    """The backup alone."""
    command.run("sgdisk", "--clear", "--new=1:2048:0", device)
    command.run("dd", "if=/dev/zero", f"of={device}", "bs=512", "count=34", "oflag=direct", "status=none")


def zfs(device: BlockDevice) -> None:
    """The uberblocks of the four labels, two of them at the end; Debian has no ZFS."""
    uberblocks = struct.pack("<QQQ", 0x00BAB10C, 5000, 1).ljust(1024, b"\0") * 128
    for label in (0, ZFS_LABEL, device.sectors - 2 * ZFS_LABEL, device.sectors - ZFS_LABEL):
        device.write(label + ZFS_LABEL // 2, uberblocks)


ZFS_LABEL = 512  # sectors
# program, what makes it, whether it says where on the device it lies (then it counts nowhere else, with a reserve or without)
SIGNATURES = {
    "md 0.90": ("mdadm", mdadm("--level=1", "--metadata=0.90"), False),
    "md 1.0": ("mdadm", mdadm("--level=1", "--metadata=1.0"), True),
    "ddf": ("mdadm", mdadm("--level=container", "--metadata=ddf"), True),
    "imsm": ("mdadm", mdadm("--level=container", "--metadata=imsm", IMSM_NO_PLATFORM="1", IMSM_DEVNAME_AS_SERIAL="1"), False),
    "gpt backup": ("sgdisk", gpt, True),
    "zfs": ("blkid", zfs, False),
}


def claimed(device: object) -> str:
    """What blkid, wipefs (it also looks for a GPT without a protective MBR) and mdadm find."""
    found = [command.run("blkid", "-p", device, check=False), command.run("wipefs", "--no-act", "--noheadings", device)]
    if shutil.which("mdadm"):
        found.append(command.run("mdadm", "--examine", "--brief", device, check=False))
    return "".join(x.stdout for x in found).strip()


@pytest.mark.parametrize("name", list(SIGNATURES))
def test_signature_at_the_end(make_disk, name):
    """Without the reserve at the tail the raw backing is claimed, unless the signature names its place: so the test can fail."""
    program, make, absolute = SIGNATURES[name]
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    if program == "mdadm" and any(command.run("modprobe", m, check=False).returncode for m in ("md-mod", "raid1")):
        pytest.skip("this kernel has no md")
    ssd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=96, wce=1)  # blkid looks for ZFS from 64 MiB on
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"))
    make(stack.volume)
    assert claimed(stack.volume), f"{name} is not found on the volume either"
    stack.volume.drain()
    assert not claimed(hdd)
    stack.stop()
    assert not claimed(hdd)

    naked = make_disk("hdd1", model="null", mb=96, wce=1)
    command.run("larder", "volume", "create", "w", "--backing", naked, "--tail-reserve", "0", "--yes")
    w = Volume.create("w", Volume.line(naked, None, naked.sectors - DATA_SECTOR))
    make(w)
    assert claimed(w)
    w.remove()
    assert bool(claimed(naked)) != absolute, claimed(naked)
