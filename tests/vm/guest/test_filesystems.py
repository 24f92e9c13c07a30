# SPDX-License-Identifier: GPL-2.0-or-later
"""Filesystems on a volume: made, filled, checked, warm and cold; and signatures at the end of a volume, which must not make its
backing look like something else."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from lib import command
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
    command.run("sgdisk", "--clear", "--new=1:2048:0", device)
    # the backup alone
    command.run("dd", "if=/dev/zero", f"of={device}", "bs=512", "count=34", "oflag=direct", "status=none")


SIGNATURES = {
    "md 0.90": ("mdadm", mdadm("--level=1", "--metadata=0.90")),
    "md 1.0": ("mdadm", mdadm("--level=1", "--metadata=1.0")),
    "ddf": ("mdadm", mdadm("--level=container", "--metadata=ddf")),
    "imsm": ("mdadm", mdadm("--level=container", "--metadata=imsm", IMSM_NO_PLATFORM="1", IMSM_DEVNAME_AS_SERIAL="1")),
    "gpt backup": ("sgdisk", gpt),
}


def claimed(device: object) -> str:
    """What blkid and mdadm find on the device; the superblock of larder is nothing that they know."""
    found = command.run("blkid", "-p", device, check=False).stdout
    if shutil.which("mdadm"):
        found += command.run("mdadm", "--examine", "--brief", device, check=False).stdout
    return "\n".join(x for x in found.splitlines() if "larder" not in x).strip()


@pytest.mark.parametrize("name", list(SIGNATURES))
def test_signature_at_the_end(make_disk, name):
    """Without the reserve at the tail the raw backing is claimed: so the test can fail."""
    program, make = SIGNATURES[name]
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    if program == "mdadm" and any(command.run("modprobe", m, check=False).returncode for m in ("md-mod", "raid1")):
        pytest.skip("this kernel has no md")
    ssd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"))
    make(stack.volume)
    assert claimed(stack.volume), f"{name} is not found on the volume either"
    stack.volume.drain()
    assert not claimed(hdd)
    stack.stop()
    assert not claimed(hdd)

    naked = make_disk("hdd1", model="null", mb=64, wce=1)
    command.run("larder", "volume", "create", "w", "--backing", naked, "--tail-reserve", "0", "--yes")
    w = Volume.create("w", Volume.line(naked, None, naked.sectors - DATA_SECTOR))
    make(w)
    w.remove()
    assert claimed(naked), f"{name} is not found where it must be"
