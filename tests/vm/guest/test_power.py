# SPDX-License-Identifier: GPL-2.0-or-later
"""Power cuts: SSD and backing lose what was not flushed, at one instant; then the cache starts and every sector is judged."""

import pytest
from lib import command, simdisk
from lib.larder import Stack, Volume, larder

MODES = ("random", "torn", "lose", "keep", "prefix")

# What happens beside the load, at random
CONTROLS = {
    "writeback": "dmsetup message v 0 flush",
    "modes": "dmsetup message v 0 set mode $(printf 'writeback\\nwritethrough\\nwritearound\\n' | sed -n $(($1 % 3 + 1))p)",
    "checkpoints": "dmsetup message c 0 checkpoint; dmsetup message c 0 reclaim 3",
}


def crash_rounds(stack: Stack, oracle, seed: int, rounds: int, control: str, **load: object) -> None:
    for i in range(rounds):
        simdisk.power_cut(mode=MODES[(seed + i) % len(MODES)], seed=seed + i, after=200 + (seed * 7919 + i * 104729) % 3000)
        r = oracle.run(ops=0, seconds=60, until_error=True, control=control, every=150, control_may_fail=True, **load)
        assert r["errors"] >= 1
        simdisk.wait_power_off(stack.ssd)
        stack.stop()
        simdisk.power_up()
        stack.start()
        oracle.verify(after="crash")
        oracle.verify()
    # what was judged is also what the backing has in the end, without the cache
    stack.volume.message("set", "mode", "writethrough")
    stack.volume.drain()
    oracle.verify()
    stack.volume.reload(Volume.line(stack.hdd, None, stack.volume.sectors))
    oracle.verify()


@pytest.mark.limit(600)
@pytest.mark.parametrize("control", list(CONTROLS))
def test_power_cuts(make_disk, make_oracle, seed, control):
    ssd = make_disk("ssd0", model="nvme", mb=64, jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=256, jitter_ns=200000)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"))
    crash_rounds(stack, make_oracle(stack.volume, size="48m"), seed, 10, CONTROLS[control])
    stack.stop()


@pytest.mark.parametrize("lie", ["ssd", "hdd"])
def test_lost_flushes_are_found(make_disk, make_oracle, seed, lie):
    """The test can fail: with a disk that lies about flushes, data is lost."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=256, wce=1)
    mode = "writeback" if lie == "ssd" else "writearound"
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), mode=mode)
    oracle = make_oracle(stack.volume, size="8m")
    (ssd if lie == "ssd" else hdd).set(ignore_flush=1, **({"ignore_fua": 1} if lie == "ssd" else {}))
    oracle.run(ops=1500, mix="write=60,flush=10")
    simdisk.power_cut(mode="random", seed=seed)
    stack.stop()
    simdisk.power_up()
    started = True
    try:
        stack.start()
    except command.CommandError:
        started = False  # a superblock is among what was lost
    if started:
        with pytest.raises(AssertionError):
            oracle.verify(after="crash")


def test_filesystem_survives(make_disk, seed, tmp_path):
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=256, wce=1)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"))
    command.run("mkfs.ext4", "-q", str(stack.volume))
    for i in range(3):
        command.run("mount", str(stack.volume), "/mnt")
        names = []
        for k in range(40):
            path = f"/mnt/{i}-{k}"
            command.run("dd", "if=/dev/urandom", f"of={path}", "bs=3k", f"count={1 + k % 7}", "conv=fsync", "status=none")
            with open(path, "rb") as f:
                names.append((path, f.read()))
        simdisk.power_cut(mode="random", seed=seed + i)
        command.run("umount", "-l", "/mnt", check=False)
        stack.stop()
        simdisk.power_up()
        stack.start()
        command.run("mount", str(stack.volume), "/mnt")
        for path, content in names:
            with open(path, "rb") as f:
                assert f.read() == content, path
        command.run("umount", "/mnt")
        command.run("e2fsck", "-fn", str(stack.volume))
    assert larder("super", "check", str(hdd)).returncode == 0
    stack.stop()
