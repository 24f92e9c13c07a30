# SPDX-License-Identifier: GPL-2.0-or-later
"""One whole stack by one command: made, stopped, cut off, degraded, removed."""

import os

import pytest
from lib import command, dm, simdisk
from lib.stacks import (
    CONTENT,
    DEGRADED,
    FAILED,
    FSTAB,
    HAND_MADE,
    MOUNTED,
    NAME,
    NOT_FOUND,
    arrays,
    check,
    larder,
    nothing_left,
    on_disk,
    prepare,
    refused,
    release,
    remove,
    rows,
    take_out,
    words,
    write,
)


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    yield from prepare(make_disk, monkeypatch, kernel_log)


@pytest.mark.core
@pytest.mark.limit(900)
def test_whole_stack(disks, key):
    """Five layers: made, stopped, started, cut off, started, degraded, removed; nothing readable on any disk."""
    said = larder(*words(disks, key)).stdout
    assert "unused: 8" in said and "dirty data on two of them" in said
    layers = rows()
    assert [layers[x]["type"] for x in ("filesystem", "luks", "volume", "array")] == ["ext4", "luks2", "writeback", "raid1"]
    assert os.path.ismount(MOUNTED) and str(MOUNTED) in FSTAB.read_text() and FSTAB.read_text().startswith(HAND_MADE)
    assert "fine" in larder("status", "data").stdout
    assert dm.DmDevice("data-crypt").info()["uuid"].startswith("CRYPT-LUKS2-")
    for i in range(8):
        write(i)
    larder("stop", "data")
    assert not dm.names() and not arrays()
    assert "stopped" in larder("status", "data", code=NOT_FOUND).stdout
    assert not on_disk(disks, NAME.encode()) and not on_disk(disks, CONTENT[:27])

    larder("start", "data")
    check(range(8))
    larder("lock", "data")
    assert "locked" in larder("status", "data").stdout and not os.path.ismount(MOUNTED)
    refused(FAILED, ["unlock", "data", "--keyfile", "/etc/hostname"], "no key")
    larder("unlock", "data")
    check(range(8))

    write("durable")
    simdisk.power_cut(mode="random", seed=3)
    release()
    simdisk.power_up()
    larder("start", "data")
    check([*range(8), "durable"])

    (node,) = arrays()
    take_out(node, disks[3])
    assert "array: 1 of 2 disks" in larder("status", "data", code=DEGRADED).stdout
    check([*range(8), "durable"])
    remove()
    command.run("mdadm", "--zero-superblock", disks[3], check=False)  # it had left the stack
    nothing_left(disks)
