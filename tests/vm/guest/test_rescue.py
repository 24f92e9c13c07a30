# SPDX-License-Identifier: GPL-2.0-or-later
"""`larder rescue` on what the kernel wrote under load until the power was cut, held against what the kernel reads after its start.

What it finds on images, damaged ones too, and where it is cut off itself: tests/test_command_rescue.py, without a VM.
"""

import json

import pytest
from lib import command, simdisk
from lib.larder import DATA_SECTOR, Stack, Volume, backing_alone, larder

MODES = ("random", "torn", "lose", "keep", "prefix")
MIB = 32


def digest(device: object, mib: int = 0) -> str:
    """Of MIB MiB from there on, read from the device itself."""
    return command.output("sh", "-c", f"dd if={device} bs=1M skip={mib} count={MIB} iflag=direct status=none | sha256sum")


def rescued_dirty(stack: Stack) -> int:
    """Sectors that rescue finds dirty; that they are whole is checked too."""
    larder("rescue", "check", stack.ssd)
    out = larder("rescue", "list", stack.ssd, "-o", "dirty,damaged", "--units", "s", "--nosuffix", "--reportformat", "json").stdout
    (row,) = json.loads(out)["volumes"]
    assert row["damaged"] == "0"
    return int(row["dirty"])


def crash(stack: Stack, oracle, seed: int, i: int, control: str) -> None:
    """Load until the power goes; then both disks are there, and nothing of larder runs."""
    simdisk.power_cut(mode=MODES[i % len(MODES)], seed=seed + i, after=200 + (seed * 7919 + i * 104729) % 3000)
    oracle.run(ops=0, seconds=60, until_error=True, control=control, every=150, control_may_fail=True)
    simdisk.wait_power_off(stack.ssd)
    stack.stop()
    simdisk.power_up()


CONTROLS = {
    "writeback": "dmsetup message v 0 flush",
    "checkpoints": "dmsetup message c 0 checkpoint; dmsetup message c 0 reclaim 3",
}


@pytest.mark.limit(600)
@pytest.mark.parametrize("control", list(CONTROLS))
def test_rescue_agrees_with_the_kernel(make_disk, make_oracle, seed, control):
    ssd = make_disk("ssd0", model="nvme", mb=48, jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size=f"{MIB}m")
    found = 0
    for i in range(5):
        crash(stack, oracle, seed, i, CONTROLS[control])
        dirty = rescued_dirty(stack)
        found += dirty
        larder("rescue", "writeback", hdd, "--cache", ssd, "--keep-cache", "--yes")
        rescued = digest(hdd, DATA_SECTOR // 2048)
        stack.start()
        assert stack.volume.dirty() == dirty
        assert digest(stack.volume) == rescued, "rescue wrote to the disk what the kernel does not read"
        oracle.verify(after="crash")
    assert found > 1000
    # and for good: the disk alone, without any code of larder
    crash(stack, oracle, seed, 5, CONTROLS[control])
    larder("rescue", "writeback", hdd, "--cache", ssd, "--yes")
    raw = backing_alone(hdd)
    oracle.verify(after="crash", device=raw)
    raw.remove()
    # the cache that comes back is stale, and says so; without it the volume starts
    with pytest.raises(command.CommandError):
        stack.start()
    stack.stop()
    stack.volume = Volume.start(hdd, None)
    oracle.verify()
    stack.stop()
    stack.options["stale"] = "discard"
    stack.start()
    oracle.verify()
    stack.stop()


def test_rescue_refuses_devices_in_use(ssd, hdd):
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"))
    for words in (["check", ssd], ["list", ssd], ["writeback", hdd, "--cache", ssd, "--yes"]):
        r = larder("rescue", *words, check=False)
        assert r.returncode == 4 and "in use" in r.stderr, r.stderr
    stack.stop()
