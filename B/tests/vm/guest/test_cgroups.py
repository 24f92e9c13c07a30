# SPDX-License-Identifier: GPL-2.0-or-later
"""A limit of one cgroup is none of the others that use the cache: the log is one for all of them."""

from pathlib import Path

import pytest
from lib import cgroup
from lib.larder import Stack, Volume, wait_for

BLOCK = 4096
PATIENCE = 60  # s


@pytest.fixture
def stack(make_disk):
    """Two volumes: stack.volume, and w."""
    if not cgroup.possible("io"):
        pytest.skip("this kernel has no controller of I/O")
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    s = Stack(ssd, make_disk("hdd0", model="null", mb=64, wce=1, discard="zero"), format_volume=("--cache", "c"))
    s.other_hdd = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("w", s.other_hdd, "--cache", "c")
    s.other = Volume.start(s.other_hdd, s.cache, "w")
    yield s
    s.other.remove()
    s.stop()


def ends(process, what: str) -> None:
    wait_for(lambda: process.poll() is not None, PATIENCE, what)
    assert process.returncode == 0, what


def write(device) -> list:
    return ["dd", "if=/dev/zero", f"of={device}", f"bs={BLOCK}", "count=1", "oflag=direct", "conv=notrunc"]


def test_limit_of_a_sender(stack):
    """Who happens to send an append, or a flush, sends it for all.  A limit that holds for the SSD itself is none of theirs."""
    for volume in (stack.volume, stack.other):
        volume.write(0, bytes(BLOCK))  # the first one is a worker's: it notes on the disk that there is dirty data
        volume.flush()
    with cgroup.throttled(stack.ssd) as group:
        held = group.start(*write(stack.ssd))  # what is in front of the first superblock is nobody's
        wait_for(lambda: Path(f"/proc/{held.pid}/stat").read_text().split()[2] == "D", PATIENCE, "the limit to hold")
        applied = stack.cache.status()["records_applied"]
        ends(group.start(*write(stack.volume)), "a write in the cgroup")
        wait_for(lambda: stack.cache.status()["records_applied"] > applied, PATIENCE, "its record")
        flushes = stack.cache.status()["ssd_flushes"]
        ends(group.start("sync", stack.volume), "a flush in the cgroup, with nothing to commit")
        assert stack.cache.status()["ssd_flushes"] > flushes
        stack.other.write(0, b"w" * BLOCK)
        stack.other.flush()
        assert held.poll() is None, "there was no limit"


def test_limit_of_a_deferred_request(stack):
    """A worker sends it, and the limit of who asked for it holds."""
    stack.hdd.reset_stats()
    with cgroup.throttled(stack.hdd) as group:
        held = group.start("blkdiscard", "--length", 1 << 20, stack.volume)
        wait_for(lambda: stack.volume.status()["deferred"], PATIENCE, "the request")
        stack.volume.write(32768, bytes(BLOCK))  # the first one is the worker's, behind the other
        assert stack.volume.status()["deferred"] > 1
        assert not stack.hdd.stats()["discards"] and held.poll() is None, "there was no limit"
    assert held.returncode == 0 and stack.hdd.stats()["discards"]
