# SPDX-License-Identifier: GPL-2.0-or-later
"""The crash-state explorer pointed at other block stacks, as docs/testing.md tells it: an example, run by hand.

What is found there is printed, and is no failure of ours; that the cache was used, and states were judged, is asserted.
"""

import os
from pathlib import Path

import pytest
from lib import command, dm
from lib.crash import Recording

MB = 1 << 20
STATES = int(os.environ.get("LARDER_CRASH_STATES", "160"))
LOAD = {"mix": "read=20,write=60,fua=8,flush=12", "sizes": "8k:75,32k:22,128k:3", "qd": 8, "ops": 1200}


@pytest.fixture
def recording(request, tmp_path, seed, clean_devices):
    return Recording(request.node.name.removeprefix("test_"), tmp_path, seed=seed)


def explore(r: Recording) -> None:
    report = r.explore(states=STATES, deep=8, accept=True)
    assert report["states"] >= STATES / 4 or report["wrong"]


@pytest.mark.limit(7200)
def test_dm_cache(recording, make_oracle):
    """Writeback, policy smq, blocks of 32 KiB: cached, evicted and written back."""
    if command.run("modprobe", "-a", "dm-cache", "dm-cache-smq", check=False).returncode:
        pytest.skip("this kernel has no dm-cache")
    with recording as r:
        meta, ssd = r.make_disk("meta0", 4, fua=1), r.make_disk("ssd0", 2, fua=1)
        hdd = r.make_disk("hdd0", 8)
        line = f"0 {hdd.sectors} cache {meta} {ssd} {hdd} 64 1 writeback smq 2 migration_threshold 20480"
        v = dm.DmDevice.create("v", line)
        region = r.add_region("v", None, make_oracle(v, size=3 * MB), 3 * MB)
        r.begin()
        region.run(**LOAD)
        status = v.status_line().split()
        v.remove()
        r.tables = [("v", line)]
    print("status", *status[3:])
    assert int(status[12]) > 20, "promotions"
    explore(r)


START = """for d in {ssd} {hdd}; do echo $d >/sys/fs/bcache/register; done
for i in $(seq 500); do [ -b /dev/bcache0 ] && [ -e /sys/block/bcache0/bcache/cache ] && exit 0; sleep 0.005; done
exit 1"""
STOP = """for f in /sys/block/bcache0/bcache/stop /sys/fs/bcache/*-*/stop; do [ ! -e $f ] || echo 1 >$f; done
for i in $(seq 500); do [ -e /sys/block/bcache0 ] || ls -d /sys/fs/bcache/*-* >/dev/null 2>&1 || exit 0; sleep 0.005; done
exit 1"""
SET = {"cache_mode": "writeback", "sequential_cutoff": 0, "writeback_percent": 0, "writeback_delay": 0}


@pytest.mark.limit(7200)
def test_bcache(recording, make_oracle):
    """Writeback, blocks of 512 bytes: written back at full speed."""
    if command.run("modprobe", "bcache", check=False).returncode:
        pytest.skip("this kernel has no bcache")
    with recording as r:
        ssd, hdd = r.make_disk("ssd0", 72, fua=1, discard="zero"), r.make_disk("hdd0", 8)
        command.run("make-bcache", "--block", "512", "--bucket", "64k", "--writeback", "-C", ssd, "-B", hdd)
        r.start, r.stop = START.format(ssd=ssd, hdd=hdd), STOP
        command.run("sh", "-c", r.start)
        directory = Path("/sys/block/bcache0/bcache")
        for name, value in SET.items():
            (directory / name).write_text(str(value))
        region = r.add_region("/dev/bcache0", None, make_oracle("/dev/bcache0", size=3 * MB), 3 * MB)
        r.begin()
        region.run(**LOAD)
        print("written", written := int((directory / "cache/cache0/written").read_text().split(".")[0].rstrip("kMG")))
        assert written > 0
        command.run("sh", "-c", r.stop)
    explore(r)
