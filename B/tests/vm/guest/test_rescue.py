# SPDX-License-Identifier: GPL-2.0-or-later
"""`larder rescue` on what the kernel wrote under load until the power was cut, held against what the kernel reads after its start.

What it finds on images, damaged ones too, and where it is cut off itself: tests/test_command_rescue.py, without a VM.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from lib import command, simdisk
from lib.larder import DATA_SECTOR, Stack, Volume, backing_alone, larder, wait_for
from lib.oracle import Oracle
from lib.sets import MODES, kill, make_ssds

MIB = 32


def digest(device: object, mib: int = 0) -> str:
    """Of MIB MiB from there on, read from the device itself."""
    return command.output("sh", "-c", f"dd if={device} bs=1M skip={mib} count={MIB} iflag=direct status=none | sha256sum")


def rescued_dirty(*words: object) -> int:
    """Sectors that rescue finds dirty; that they are whole is checked too.  words: SSDs, options."""
    larder("rescue", "check", *words)
    out = larder("rescue", "list", *words, "-o", "dirty,damaged", "--units", "s", "--nosuffix", "--reportformat", "json").stdout
    (row,) = json.loads(out)["volumes"]
    assert row["damaged"] == "0"
    return int(row["dirty"])


def crash(stack: Stack, oracle, seed: int, i: int, control: str) -> None:
    """Load until the power goes; then both disks are there, and nothing of larder runs."""
    simdisk.power_cut(mode=MODES[i % len(MODES)], seed=seed + i, after=200 + (seed * 7919 + i * 104729) % 3000)
    oracle.run(ops=0, seconds=60, until_error=True, control=control, every=150, control_may_fail=True)
    simdisk.wait_power_off(stack.hdd)
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
        dirty = rescued_dirty(ssd)
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


# ---------------------------------------------------------------------- several SSDs


def given(ssds: list) -> list:
    """As `writeback` and `serve` want them."""
    return [w for s in ssds for w in ("--cache", s)]


def served_digest(hdd: object, *words: object) -> str:
    """Of what `larder rescue serve` shows."""
    place = Path("/tmp/rescue.socket")
    place.unlink(missing_ok=True)
    argv = ["larder", "rescue", "serve", hdd, "--socket", place, *words]
    with subprocess.Popen(list(map(str, argv)), stderr=subprocess.PIPE, text=True) as server:
        try:
            wait_for(lambda: place.exists() or server.poll() is not None, 60, "the socket")
            assert server.poll() is None, server.stderr.read()
            return command.output("sh", "-c", f"nbdcopy 'nbd+unix:///?socket={place}' - 2>/dev/null | head -c {MIB}M | sha256sum")
        finally:
            server.terminate()


def test_clean_data_that_rescue_has_gone_past(make_disk):
    """What it found dirty is lost to the next start (with an SSD; or in one more power cut), and what is clean there is older."""
    ssd = make_disk("ssd0", model="null", mb=32, wce=1)
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), mode="writeback", sequential_cutoff=0)
    old, new = (word.ljust(4096, b".") for word in (b"old", b"new"))
    stack.volume.write(0, old)
    stack.volume.flush()
    stack.volume.drain()
    stack.volume.set(writeback="off")
    stack.volume.write(16, new)  # dirty: without any the volume would be attached anew
    stack.volume.flush()
    stack.cache.message("checkpoint")
    before = ssd.read(0, 32 << 11)
    stack.volume.write(0, new)
    stack.volume.flush()
    simdisk.power_cut(mode="keep")
    stack.stop()
    simdisk.power_up()
    larder("rescue", "writeback", hdd, "--cache", ssd, "--keep-cache", "--yes")
    assert hdd.read(DATA_SECTOR, 8) == new
    for at in range(0, len(before), 1 << 20):
        ssd.write(at // 512, before[at : at + (1 << 20)])
    stack.start()
    first = stack.volume.read(0, 8)
    stack.volume.message("drop_clean")
    assert stack.volume.read(0, 8) == first == new, "what was read has changed"
    stack.stop()


def judged(stack: Stack, oracle: Oracle, *words: object, serve: bool = False) -> str:
    """Writes back with these SSDs; the oracle judges the disk, and forgets what it saw.  Digest of the disk."""
    shown = served_digest(stack.hdd, *words) if serve else None
    larder("rescue", "writeback", stack.hdd, *words, "--keep-cache", "--yes")
    raw = backing_alone(stack.hdd)
    copy = oracle.state.with_suffix(".copy")
    shutil.copyfile(oracle.state, copy)
    Oracle(raw, state=copy).verify(after="crash", device=raw)
    found = digest(raw)
    assert shown in (None, found), "served is not what is written back"
    raw.remove()
    return found


@pytest.mark.limit(900)
@pytest.mark.parametrize("control", list(CONTROLS))
@pytest.mark.parametrize("sizes", [(48, 48), (32, 32, 32)])
def test_rescue_of_several_ssds(make_disk, make_oracle, seed, sizes, control):
    """After a power cut: with each SSD missing in turn the oracle is content, with all of them it is what the kernel reads then."""
    ssds = make_ssds(make_disk, sizes, model="nvme", jitter_ns=100000)
    hdd = make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000)
    stack = Stack(ssds, hdd, format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size=f"{MIB}m")
    found = 0
    for i in range(3):
        crash(stack, oracle, seed, i, CONTROLS[control])
        for missing in ssds:
            here = [s for s in ssds if s is not missing]
            r = larder("rescue", "check", *here, check=False)
            assert r.returncode == 5 and "is missing" in r.stderr, r.stderr
            rescued_dirty(*here, "--degraded")
            judged(stack, oracle, *given(here), "--degraded", serve=i == 0 and missing is ssds[0])
        dirty = rescued_dirty(*reversed(ssds))
        found += dirty
        rescued = judged(stack, oracle, *given(ssds), serve=i == 0)
        stack.start()
        assert stack.volume.dirty() == dirty
        assert digest(stack.volume) == rescued, "rescue wrote to the disk what the kernel does not read"
        oracle.verify(after="crash")
    assert found > 1000
    # one dies in the power cut, and the cache is given up
    crash(stack, oracle, seed, 3, CONTROLS[control])
    larder("rescue", "writeback", hdd, *given(ssds[1:]), "--degraded", "--yes")
    raw = backing_alone(hdd)
    oracle.verify(after="crash", device=raw)
    raw.remove()
    with pytest.raises(command.CommandError):
        stack.start()
    stack.stop()
    stack.options["stale"] = "discard"
    stack.start()
    oracle.verify()
    stack.verify_alone(oracle)


@pytest.mark.limit(600)
@pytest.mark.parametrize("sizes", [(48, 48), (32, 32, 32)])
@pytest.mark.parametrize("which", [0, 1])
def test_rescue_with_a_stale_one(make_disk, make_oracle, kernel_log, seed, sizes, which):
    """One left the set under load, and is there again, well: it is named, and nothing but its superblock and table is read."""
    kernel_log.expect("I/O error|critical .* error|Buffer I/O")
    ssds = make_ssds(make_disk, sizes, model="nvme", jitter_ns=100000)
    stack = Stack(ssds, make_disk("hdd0", model="nvme", mb=128, jitter_ns=200000), format_volume=("--cache", "c"), writeback="off")
    oracle = make_oracle(stack.volume, size=f"{MIB}m")
    oracle.run(ops=600)
    kill(ssds[which])
    oracle.run(ops=600)
    wait_for(lambda: stack.cache.status()["devices_failed"] == 1, 30, "the SSD to leave")
    crash(stack, oracle, seed, 0, CONTROLS["checkpoints"])
    ssds[which].heal()
    ssds[which].reset_stats()
    r = larder("rescue", "check", *ssds)
    assert f"SSD {which} is stale" in r.stderr
    dirty = rescued_dirty(*ssds)
    rescued = judged(stack, oracle, *given(ssds))
    assert ssds[which].stats()["rbytes"] <= 5 << 20, "more than superblocks and tables"
    others = [s for s in ssds if s is not ssds[which]]
    assert rescued_dirty(*others) == dirty  # none is missing
    for words in (given([ssds[which]]), [*given([ssds[which]]), "--degraded"]):
        r = larder("rescue", "writeback", stack.hdd, *words, "--yes", check=False)
        assert r.returncode == 5, r.stderr
    if len(ssds) == 2:
        assert "ran with other SSDs" in r.stderr
    stack.start()
    assert kernel_log.matching(f"SSD {which} .* is stale")
    assert digest(stack.volume) == rescued
    oracle.verify(after="crash")
    stack.verify_alone(oracle)
