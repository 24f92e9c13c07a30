# SPDX-License-Identifier: GPL-2.0-or-later
"""The kill of a VM under load, on a raw virtio disk: the rig for such tests of larder, and the proof that it can fail."""

import random
import time
from pathlib import Path

GUEST = Path(__file__).resolve().parents[1] / "guest"


def wait_for_size(file: Path, size: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not (file.exists() and file.stat().st_size >= size):
        assert time.monotonic() < end, f"{file} did not grow to {size} bytes"
        time.sleep(0.05)


def test_kill_and_verify(boots, make_disk_file, share, seed):
    """Killed at an arbitrary moment; the next boot finds all that was flushed.  Then a sector is damaged, and that is found."""
    disk = make_disk_file("disk", 64)
    state, journal = share / "state", share / "journal"
    oracle = ["--dev", "/dev/vda", "--state", state, "--journal", journal]
    m = boots.start(
        ["oracle", "run", *oracle, "--ops", 0, "--size", "16m", "--seed", seed, "--mix", "write=60,fua=5,flush=5,read=30"],
        disks=[disk],
    )
    wait_for_size(journal, random.Random(seed).randrange(50_000, 200_000), 240)
    m.kill()
    assert m.exit_status() is None

    with open(disk, "r+b") as f:
        first = f.read(1 << 24)
    damaged = next(i for i in range(0, 1 << 24, 512) if first[i : i + 8] != bytes(8))
    script = f"""
set -x
cp {state} /tmp/state; cp {journal} /tmp/journal; cp {state} /tmp/state2; cp {journal} /tmp/journal2
oracle verify --dev /dev/vda --state /tmp/state --journal /tmp/journal --after crash || exit 1
dd if=/dev/zero of=/dev/vda bs=512 count=1 seek={damaged // 512} oflag=direct
oracle verify --dev /dev/vda --state /tmp/state && exit 2
exit 0
"""
    boots.run(["sh", "-c", script], disks=[disk])
