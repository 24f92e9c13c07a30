# SPDX-License-Identifier: GPL-2.0-or-later
"""What md makes of a flush, without larder: on it rests what larder may take to be durable below."""

import mmap
import os

import pytest
from lib import command

ARRAY = "/dev/md77"
BYTES = 64 << 10


def volatile(legs):
    return sum(leg.state()["volatile_pieces"] for leg in legs)


@pytest.mark.parametrize(
    ("policy", "cache", "kept"),
    [("ppl", 1, False), ("ppl", 0, True), ("resync", 1, True)],
    ids=["log", "log-without-write-caches", "none"],
)
def test_flush_of_raid_5(make_disk, kernel_log, policy, cache, kept):
    """It is answered when all that was written before is on media, but with a log of the parity: so it has one only without caches.

    With a bitmap as without anything, but that is written later, for itself."""
    kernel_log.expect("md/raid|md:|md[0-9]|raid6|xor|async_tx")
    if command.run("modprobe", "raid456", check=False).returncode:
        pytest.skip("this kernel has no raid456")
    legs = [make_disk(f"leg{i}", model="null", mb=64, wce=cache) for i in range(3)]
    made = ["--run", "--level=5", "--raid-devices=3", "--chunk=64", "--assume-clean", f"--consistency-policy={policy}"]
    command.run("mdadm", "--create", ARRAY, *made, *legs)
    try:
        device = os.open(ARRAY, os.O_RDWR | os.O_DIRECT)
        memory = mmap.mmap(-1, BYTES)
        memory.write(os.urandom(BYTES))
        left = []
        for i in range(10):
            for leg in legs:
                leg.fail(op="flush", status="ok", delay_ms=300)
            os.pwritev(device, [memory], i * BYTES)
            os.fsync(device)
            left.append(volatile(legs))
            for leg in legs:
                leg.heal()
            os.fsync(device)
        os.close(device)
        if kept:
            assert not any(left), left
        else:
            assert any(left), "md waits for the disks by now: RAID 5 can have its log back"
    finally:
        for leg in legs:
            leg.heal()
        command.run("udevadm", "settle", check=False)
        command.run("mdadm", "--stop", ARRAY)
