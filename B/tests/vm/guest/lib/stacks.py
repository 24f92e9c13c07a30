# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole stacks by `larder create`: what their tests share."""

import contextlib
import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from . import command, dm
from .larder import wait_for

DONE, FAILED, USAGE, NOT_FOUND, BUSY, UNSAFE = range(6)
DEGRADED, BROKEN = 10, 11
NAME, CONTENT = "telltale-of-a-file-name", b"telltale of what is in it. " * 40
MOUNTED = Path("/run/stack")
FSTAB = Path("/run/stack.fstab")
HAND_MADE = "# by hand\n/dev/none /none ext4 noauto 0 0\n"


def larder(*words, code=DONE, **more):
    """code None: whatever it is."""
    run = command.run("larder", *words, check=False, **more)
    assert code in (None, run.returncode), f"{words}: {run.returncode}, not {code}\n{run.stdout}{run.stderr}"
    return run


def refused(code, words, *parts):
    run = larder(*words, code=code)
    for part in parts:
        assert str(part) in run.stderr, f"{part!r} is not in: {run.stderr}"


def listed(name="data"):
    found = json.loads(larder("list", "-o", "name,layer,number,type,state,uuid,device", "--reportformat", "json").stdout)["stacks"]
    return [row for row in found if row["name"] == name]


def rows(name="data"):
    return {row["layer"]: row for row in listed(name)}


def arrays():
    """Those that run: md forgets one that was stopped only after a while."""
    found = []
    for p in Path("/sys/block").glob("md*"):
        with contextlib.suppress(OSError):
            if (p / "md" / "array_state").read_text().strip() != "clear":
                found.append(f"/dev/{p.name}")
    return found


def take_out(array, disk):
    """As an administrator does it by mdadm.  md keeps it (EBUSY) while something is in flight there, or a resync has not ended, and
    mdadm tries for 50 ms."""
    command.run("mdadm", array, "--fail", disk)
    wait_for(lambda: not command.run("mdadm", array, "--remove", disk, check=False).returncode, 60, "md to let the disk go")


@contextlib.contextmanager
def mdadm(directory, verb, when, action):
    """mdadm as it is, but before or after a call with that word something happens."""
    program, path = directory / "mdadm", os.environ["PATH"]
    hit = f'case " $* " in *" {verb} "*) {action};; esac'
    lines = ["#!/bin/sh", f'{shutil.which("mdadm")} "$@"', "code=$?", "exit $code", ""]
    lines.insert(1 if when == "before" else 3, hit)
    program.write_text("\n".join(lines))
    program.chmod(0o755)
    os.environ["PATH"] = f"{directory}:{path}"
    try:
        yield
    finally:
        os.environ["PATH"] = path


def release():
    """All layers go, as far as a kernel without power lets them."""
    command.run("umount", "-l", MOUNTED, check=False)
    below = ("larder-leg-", "larder-disk-")  # of an array
    if any(n.startswith(below) for n in dm.names()):
        for _ in range(4):  # users before what they use
            for name in dm.names():
                if not name.startswith(below):
                    command.run("dmsetup", "remove", name, check=False)
        for node in arrays():
            command.run("mdadm", "--stop", node, check=False)
    dm.remove_all()
    for node in arrays():
        command.run("mdadm", "--stop", node, check=False)


def words(disks, key=None, **options):
    """Of create: RAID 1, two SSDs, ext4, mounted; encrypted where a key is given."""
    ssd0, ssd1, hdd0, hdd1 = disks
    w = ["create", "data", "--backing", hdd0, "--backing", hdd1, "--raid", "1", "--cache", ssd0, "--cache", ssd1]
    w += ["--mkfs", "ext4", "--mount", MOUNTED]
    return w + (["--encrypt", f"luks2:keyfile={key}", "--iter-time", "10"] if key else [])


def write(number, content=CONTENT, where=MOUNTED):
    """A file that is durable when this returns."""
    with open(where / f"{NAME}-{number}", "wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    directory = os.open(where, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def check(numbers, where=MOUNTED):
    for number in numbers:
        assert (where / f"{NAME}-{number}").read_bytes() == CONTENT, number


def room() -> int:
    """Bytes of the filesystem."""
    return os.statvfs(MOUNTED).f_blocks * os.statvfs(MOUNTED).f_frsize


def remove():
    uuid = rows()["stack"]["uuid"]
    refused(UNSAFE, ["remove", "data"], "LOST", uuid)
    refused(UNSAFE, ["remove", "data", "--discard-data", "11111111-2222-4333-8444-555555555555"], uuid)
    larder("remove", "data", "--discard-data", uuid)


def nothing_left(disks):
    assert not rows() and not dm.names() and not arrays()
    assert FSTAB.read_text() == HAND_MADE
    blank(disks)


def blank(disks):
    """Nobody finds anything on them."""
    for disk in disks:
        assert not command.run("blkid", "-p", disk, check=False).stdout, disk
        assert not command.run("wipefs", "--no-act", "--noheadings", disk).stdout, disk
        assert command.run("mdadm", "--examine", disk, check=False).returncode, disk
        larder("probe", disk, code=NOT_FOUND)


def on_disk(disks, what):
    return [str(d) for d in disks if what in Path(d).read_bytes()]


def prepare(make_disk, monkeypatch, kernel_log, mb=96):
    """Two SSDs, two disks of unequal size; a mount point, and an fstab of our own.  A generator, for a fixture."""
    for module in ("md-mod", "raid1", "dm-crypt"):
        if command.run("modprobe", module, check=False).returncode:
            pytest.skip(f"this kernel has no {module}")
    kernel_log.expect("I/O error|Buffer I/O|md/raid1|super_written|EXT4-fs|JBD2|Aborting journal|md: |lost|shutting down")
    MOUNTED.mkdir(exist_ok=True)
    FSTAB.write_text(HAND_MADE)
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(FSTAB))
    ssds = [make_disk(f"ssd{i}", model="null", mb=32, wce=1, fua=1, discard="zero") for i in range(2)]
    hdds = [make_disk(f"hdd{i}", model="null", mb=mb + 8 * i, wce=1) for i in range(2)]
    yield [*ssds, *hdds]
    release()


@contextlib.contextmanager
def watched(*secrets, verb="passwd"):
    """Words and environment of all processes meanwhile, one of them with the verb, and the kernel's log, do not have them.

    Yields a list, to which others may be added."""
    secrets = list(secrets)
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.wait(0.02):
            for p in [*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")]:
                with contextlib.suppress(OSError):
                    seen.add(p.read_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield secrets
    finally:
        stop.set()
        watcher.join()
    assert any(verb.encode() in x for x in seen)
    for secret in secrets:
        assert not any(secret.encode() in x for x in seen)
        assert secret not in command.output("dmesg")
