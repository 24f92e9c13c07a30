# SPDX-License-Identifier: GPL-2.0-or-later
"""Stacks with dm-integrity below each leg of the array: what a disk returns wrong in silence is read right, and repaired."""

import os
from pathlib import Path

import pytest
from lib import command, dm
from lib.larder import wait_for
from lib.stacks import (
    CONTENT,
    DEGRADED,
    MOUNTED,
    NAME,
    UNSAFE,
    arrays,
    check,
    larder,
    listed,
    nothing_left,
    prepare,
    refused,
    release,
    remove,
    rows,
    write,
)

BLOCK = 4096
NUMBERS = range(4)


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    """Two SSDs, three disks."""
    for module in ("dm-integrity", "raid456"):
        if command.run("modprobe", module, check=False).returncode:
            pytest.skip(f"this kernel has no {module}")
    kernel_log.expect("md/raid|md:|[Ii]ntegrity|INTEGRITY|AEAD|Buffer I/O|I/O error|read error corrected")
    for given in prepare(make_disk, monkeypatch, kernel_log, mb=64):
        yield [*given, make_disk("hdd2", model="null", mb=72, wce=1)]


def words(disks, level, *more):
    backing = [w for d in disks[2 : 4 if level == "1" else 5] for w in ("--backing", d)]
    made = ["create", "data", *backing, "--raid", level, "--integrity", "--cache", disks[0], "--cache", disks[1]]
    return [*made, "--mode", "writearound", "--mkfs", "ext4", "--mount", MOUNTED, *more]


def legs():
    return [n for n in dm.names() if n.startswith("larder-leg-")]


def array():
    return Path("/sys/block") / Path(arrays()[0]).name / "md"


def settled():
    """All sums are there, and the array is whole."""
    status = larder("status", "data", code=None).stdout
    return "computed to" not in status and rows()["array"]["state"] == "active"


def content(number):
    """Of one file: nothing else on a disk has it, and no two blocks of it are the same."""
    return b"".join((b"%d.%d " % (number, i) + CONTENT)[:BLOCK].ljust(BLOCK, b".") for i in range(16))


def fill():
    for number in NUMBERS:
        write(number, content(number))


def read():
    Path("/proc/sys/vm/drop_caches").write_text("3")
    for number in NUMBERS:
        assert (MOUNTED / f"{NAME}-{number}").read_bytes() == content(number), number


def places(disk, number):
    """Where blocks of that file lie on the raw disk."""
    raw = Path(f"/dev/{disk.name}").read_bytes()
    return [at for at in range(0, len(raw), BLOCK) if raw[at : at + BLOCK] in content(number) and raw[at : at + 1] == b"%d" % number]


def spoil(disk, at):
    """By somebody who knows nothing of dm-integrity."""
    with open(f"/dev/{disk.name}", "r+b") as f:
        for place in at:
            f.seek(place)
            f.write(b"spoilt" + os.urandom(BLOCK - 6))
        f.flush()
        os.fsync(f.fileno())


def spoilt(disk):
    Path("/proc/sys/vm/drop_caches").write_text("3")
    return Path(f"/dev/{disk.name}").read_bytes().count(b"spoilt")


@pytest.mark.limit(900)
@pytest.mark.parametrize("level", ["1", "5"])
def test_wrong_in_silence(disks, level):
    """Made, stopped, started; what is written to one disk behind dm-integrity's back is not read, and is repaired."""
    used = disks[2 : 4 if level == "1" else 5]
    plan = larder(*words(disks, level, "--dry-run")).stdout
    assert "crc32c of each 4 KiB" in plan and not dm.names()
    larder(*words(disks, level))
    assert len(legs()) == len(used)
    assert int((array() / "max_read_errors").read_text()) >= 1000000
    fill()
    wait_for(settled, 300, "sums and parity")
    assert {str(d) for d in used} == {r["device"] for r in listed() if r["layer"] == "disk"}
    assert "integrity: crc32c" in larder("status", "data").stdout

    larder("stop", "data")
    assert not dm.names() and not arrays()
    assert rows()["stack"]["state"] == "stopped" and {r["type"] for r in listed() if r["layer"] == "disk"} <= {"crc32c"}
    larder("start", "data")
    assert int((array() / "max_read_errors").read_text()) >= 1000000
    read()

    larder("stop", "data")
    for number in NUMBERS:
        disk = used[number % len(used)]
        at = places(disk, number)
        spoil(disk, at)
        print(f"{disk.name}: {len(at)} blocks of file {number} spoilt")
    assert sum(map(spoilt, used))
    larder("cache", "start", "data")
    larder("start", "data")
    read()
    assert "read wrong" in larder("status", "data").stdout
    (array() / "sync_action").write_text("repair")
    wait_for(lambda: (array() / "sync_action").read_text() == "idle\n", 300, "the repair")
    assert set(r["state"] for r in listed() if r["layer"] == "disk") == {"active"}, "a disk has failed"
    read()
    larder("stop", "data")
    larder("start", "data")
    read()
    (array() / "sync_action").write_text("check")
    wait_for(lambda: (array() / "sync_action").read_text() == "idle\n", 300, "the check")
    assert "read wrong" not in larder("status", "data").stdout, "was not repaired"
    remove()
    nothing_left(disks)
