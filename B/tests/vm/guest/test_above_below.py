# SPDX-License-Identifier: GPL-2.0-or-later
"""What else stands below and above a volume, in use: multipath below, whose paths come and go; a thin backing; an md mirror of two
volumes, and a loop device, above; a disk that shows larger blocks than before.  The oracle has what was written and flushed."""

import re
from pathlib import Path

import pytest
from lib import above, command, dm, simdisk
from lib.block import BlockDevice
from lib.larder import Cache, Stack, Volume, larder, wait_for
from lib.stacks import arrays, check, listed, prepare, words, write


# ------------------------------------------------------------------ multipath below


class Paths:
    """A SCSI disk with two paths, those of two targets of scsi_debug, which have one store; and multipath on them."""

    def __init__(self, mb: int, mode: str):
        for module in ("sd_mod", "dm-multipath", "dm-round-robin"):
            command.run("modprobe", module)
        command.run("modprobe", "scsi_debug", f"dev_size_mb={mb}", "num_tgts=2", "lbpws=0", "delay=0", "no_uld=0")
        host = next(h for h in Path("/sys/class/scsi_host").iterdir() if (h / "proc_name").read_text().strip() == "scsi_debug")
        wait_for(lambda: len(list((host / "device").glob("target*/*/block/*"))) == 2, 60, "both paths to appear")
        self.devices = sorted((host / "device").glob("target*/*/block/*"))
        wait_for(lambda: all(Path("/dev", d.name).exists() for d in self.devices), 60, "their nodes")
        self.numbers = [(d / "dev").read_text().strip() for d in self.devices]
        disk = BlockDevice(f"/dev/{self.devices[0].name}")
        words = " ".join(f"{n} 1" for n in self.numbers)
        line = f"0 {disk.sectors} multipath 3 queue_if_no_path queue_mode {mode} 0 1 1 round-robin 0 2 1 {words}"
        self.map = dm.DmDevice.create("mp", line)

    def states(self) -> str:
        """A or F of each."""
        line = self.map.status_line(noflush=True)
        return "".join(re.search(rf" {n} ([AF]) ", line)[1] for n in self.numbers)

    def fail(self, *which: int) -> str:
        """For a shell."""
        return "; ".join(f"echo offline > {self.devices[i]}/device/state" for i in which)

    def back(self, *which: int) -> str:
        """As multipathd does, when its checker finds it well."""
        words = [f"echo running > {self.devices[i]}/device/state" for i in which]
        return "; ".join(words + [f"dmsetup message mp 0 reinstate_path {self.numbers[i]}" for i in which])

    def control(self, note: Path) -> str:
        """Beside the load: each path, then both until multipath has none, which is noted."""
        return f"""case $(($1 % 5)) in
0) {self.fail(0)};;
1) {self.back(0)};;
2) {self.fail(1)};;
3) {self.back(1)};;
4)	{self.fail(0, 1)}
	for i in $(seq 300); do
		[ $(dmsetup status --noflush mp | grep -o ' [0-9]*:[0-9]* F ' | wc -l) != 2 ] || break
		sleep 0.1
	done
	dmsetup status --noflush mp | tr ' ' '\\n' | grep -c -x F >> {note}
	sleep 0.3
	{self.back(0, 1)};;
esac
dmsetup message v 0 flush"""


@pytest.fixture(params=["mq", "bio"])
def paths(request, clean_devices):
    p = Paths(96, request.param)
    yield p
    command.run("sh", "-c", p.back(0, 1), check=False)
    for name in ("raw", "v", "c", "mp"):
        if name in dm.names():
            dm.DmDevice(name).remove()
    command.run("modprobe", "-r", "scsi_debug", check=False)


@pytest.mark.limit(900)
def test_multipath(make_disk, make_oracle, kernel_log, paths, tmp_path):
    """Paths fail and come back under load, now and then both: what is asked for then waits, and nobody sees an error."""
    ssd = make_disk("ssd0", model="null", mb=48, wce=1, fua=1)
    stack = Stack(ssd, paths.map, writeback_percent=0)
    oracle = make_oracle(stack.volume, size="64m")
    note = tmp_path / "note"
    oracle.run(ops=10000, every=80, control=paths.control(note))
    command.run("sh", "-c", paths.back(0, 1))
    assert paths.states() == "AA"
    assert "2" in note.read_text().split() and len(kernel_log.matching("Failing path")) >= 4
    assert stack.cache.status()["state"] == "running" and stack.volume.status()["state"] == "running"
    oracle.verify()
    oracle.run(ops=500)
    oracle.verify()
    command.run("sh", "-c", paths.fail(0))
    stack.verify_alone(oracle)


@pytest.fixture
def stack_disks(paths, make_disk, monkeypatch, kernel_log):
    yield from prepare(make_disk, monkeypatch, kernel_log)


def test_multipath_below_an_array(paths, stack_disks):
    """What its paths show is no copy of the leg, which the device above them alone is: each verb takes it."""
    ssd0, ssd1, _, hdd1 = stack_disks
    larder(*words([ssd0, ssd1, paths.map, hdd1]))
    write(0)
    assert {r["state"] for r in listed() if r["layer"] == "disk"} == {"active"}
    larder("stop", "data")
    assert not arrays()
    larder("start", "data")
    check([0])
    larder("stop", "data")


# ------------------------------------------------------------------ a thin backing below


def test_thin_backing_keeps_its_space(make_disk, tmp_path):
    """A file: zeroes that are written back leave it what it has, as writes of them would.  A discard does not."""
    disk, file = make_disk("hdd0", model="null", mb=256, wce=1), tmp_path / "mnt/backing"
    file.parent.mkdir()
    command.run("modprobe", "loop")
    command.run("mkfs.ext4", "-q", disk)
    command.run("mount", disk, file.parent)
    command.run("fallocate", "-l", "64M", file)
    loop = BlockDevice(command.output("losetup", "--find", "--show", "--direct-io=on", file).strip())
    try:
        ssd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1)
        stack = Stack(ssd, loop, format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0)
        stack.volume.write(8192, b"x" * (1 << 20))
        stack.volume.drain()
        had = file.stat().st_blocks
        stack.volume.zero(8192, 4096)
        assert stack.volume.status()["write_zeroes"]
        stack.volume.drain()
        loop.flush()
        assert file.stat().st_blocks >= had
        stack.volume.message("drop_clean")
        assert stack.volume.read(8192, 4096) == bytes(4096 * 512)
        stack.volume.discard(16384, 4096)
        assert file.stat().st_blocks < had, "it is no thin one"
        stack.stop()
    finally:
        for name in ("v", "c"):
            if name in dm.names():
                dm.DmDevice(name).remove()
        command.run("losetup", "-d", loop)
        command.run("umount", file.parent)


# ------------------------------------------------------------------ md above


ARRAY = BlockDevice("/dev/md/above")
MIX = "read=35,write=45,fua=5,flush=5,zeroes=5"  # no discards: what they leave may be another thing on each leg, and md reads any
FAIL_ONE = """case $(($1 % 4)) in
0)	mdadm --quiet /dev/md/above --fail /dev/mapper/v{n}
	mdadm --quiet --wait /dev/md/above
	mdadm --quiet /dev/md/above --remove /dev/mapper/v{n};;
1) dmsetup message v{n} 0 set mode writethrough;;
2) mdadm --quiet /dev/md/above --re-add /dev/mapper/v{n};;
3) dmsetup message v{n} 0 set mode writeback; mdadm --wait /dev/md/above;;
esac
true"""


@pytest.fixture
def no_arrays(clean_devices, monkeypatch):
    """They go before what they stand on."""
    monkeypatch.setenv("MDADM_NO_UDEV", "1")
    yield
    for node in arrays():
        command.run("mdadm", "--quiet", "--stop", node, check=False)


@pytest.mark.limit(1200)
def test_mirror_of_volumes(make_disk, make_oracle, no_arrays, seed):
    """md mirrors two volumes of one cache: a leg fails and comes back under load; power cuts; each leg alone has it all."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1, discard="zero")
    disks = [make_disk(f"hdd{i}", model="null", mb=64, wce=1) for i in range(2)]
    Cache.format("c", ssd)
    for i, disk in enumerate(disks):
        Volume.format(f"v{i}", disk, "--cache", "c")

    def start():
        cache = Cache.start(ssd, congestion_read=0, congestion_write=0)
        return cache, [Volume.start(disk, cache, f"v{i}") for i, disk in enumerate(disks)]

    def stop():
        for node in arrays():
            command.run("mdadm", "--quiet", "--stop", node)
        for d in (*legs, cache):
            d.remove()

    cache, legs = start()
    words = ["--run", "--quiet", "--metadata=1.2", "--level=1", "--bitmap=internal", "--raid-devices=2"]
    command.run("mdadm", "--create", ARRAY, *words, *legs)
    oracle = make_oracle(ARRAY, size="24m", unknown=True)
    for n in (1, 0):
        oracle.run(ops=2500, every=300, mix=MIX, control=FAIL_ONE.format(n=n))
        command.run("mdadm", "--wait", ARRAY, check=False)
        command.run("mdadm", "--quiet", ARRAY, "--re-add", legs[n], check=False)
        command.run("mdadm", "--wait", ARRAY, check=False)
        oracle.verify()
    for i in range(3):
        # not under load: what fails then may be a flush, and md, which notes that of a leg in the log, answers it as done
        oracle.run(ops=200 + 150 * i, mix=MIX)
        simdisk.power_cut(mode="random", seed=seed + i)
        stop()
        simdisk.power_up()
        cache, legs = start()
        command.run("mdadm", "--assemble", "--quiet", "--run", ARRAY, *legs)
        oracle.verify(after="crash")
        oracle.run(ops=300, mix=MIX)
    command.run("mdadm", "--wait", ARRAY, check=False)
    oracle.verify()
    state = command.output("mdadm", "--detail", ARRAY)
    assert len(re.findall("active sync", state)) == 2, state
    offset = int(re.search(r"Data Offset : (\d+) sectors", command.output("mdadm", "--examine", legs[0]))[1])
    command.run("mdadm", "--quiet", "--stop", ARRAY)
    for leg in legs:
        alone = dm.DmDevice.create("alone", f"0 {leg.sectors - offset} linear {leg} {offset}")
        oracle.verify(device=alone)
        alone.remove()
    stop()


# ------------------------------------------------------------------ loop above, and below


@pytest.fixture
def loop(clean_devices):
    """loop(device, option...) -> the loop device on it."""
    command.run("modprobe", "loop")
    made = []

    def make(device, *options):
        made.append(command.output("losetup", "--find", "--show", *options, device).strip())
        return BlockDevice(made[-1])

    make.detach = lambda device: (command.run("losetup", "--detach", device), made.remove(device.path))
    yield make
    dm.remove_all()
    for device in made:
        command.run("losetup", "--detach", device, check=False)


@pytest.mark.limit(900)
@pytest.mark.parametrize("direct", ["on", "off"])
def test_loop_on_a_volume(make_disk, make_oracle, loop, seed, direct):
    """Power cuts under load, and orderly stops."""
    ssd, hdd = make_disk("ssd0", model="null", mb=48, wce=1, fua=1), make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(ssd, hdd)
    above = loop(stack.volume, f"--direct-io={direct}")
    oracle = make_oracle(above, size="32m")
    for i in range(3):
        simdisk.power_cut(mode="random", seed=seed + i, after=300 + 200 * i)
        oracle.run_until_cut(ssd)
        loop.detach(above)
        stack.stop()
        simdisk.power_up()
        stack.start()
        above = loop(stack.volume, f"--direct-io={direct}")
        oracle.verify(after="crash", device=above)
        oracle.run(ops=300, device=above)
        loop.detach(above)
        stack.restart()
        above = loop(stack.volume, f"--direct-io={direct}")
        oracle.verify(device=above)
        oracle.device = above
    loop.detach(above)
    stack.verify_alone(oracle)


@pytest.mark.limit(900)
def test_larger_blocks(make_disk, make_oracle, kernel_log, loop, monkeypatch):
    """A disk behind a bridge that shows blocks of 4096 bytes, with data cached in smaller pieces: refused, and nothing is written,
    until `larder rescue` has written it back; an SSD behind one is as good as without."""
    ssd, hdd = make_disk("ssd0", model="null", mb=48, wce=1, fua=1), make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(ssd, hdd, writeback="off")
    oracle = make_oracle(stack.volume, size="16m")
    oracle.run(ops=1000)
    stack.stop()
    bridge = loop(hdd, "--sector-size", 4096, "--direct-io=on")
    assert bridge.queue("logical_block_size") == "4096"
    stack.hdd = bridge
    cache = Cache.start(ssd)
    before = hdd.stats()["writes"]
    with pytest.raises(command.CommandError):
        Volume.start(bridge, cache)
    assert "v" not in dm.names() or not dm.DmDevice("v").remove()
    assert kernel_log.matching(f"{bridge.path.removeprefix('/dev/')}: its blocks have 4096 bytes here.*larder rescue writeback")
    assert hdd.stats()["writes"] == before
    cache.remove()
    # the SSD alone
    loop.detach(bridge)
    stack.hdd = hdd
    stack.ssd = loop(ssd, "--sector-size", 4096, "--direct-io=on")
    stack.start()
    oracle.verify(device=stack.volume)
    oracle.run(ops=500, device=stack.volume)
    stack.stop()
    loop.detach(stack.ssd)
    # both, once it has been written back
    stack.ssd, stack.hdd = (loop(d, "--sector-size", 4096, "--direct-io=on") for d in (ssd, hdd))
    monkeypatch.setenv("LARDER_DEVICES", f"{stack.ssd}:{stack.hdd}")
    print(larder("rescue", "writeback", "v", "--yes").stdout)
    stack.options["stale"] = "discard"
    stack.start()
    del stack.options["stale"]
    oracle.verify(device=stack.volume)
    oracle.run(ops=500, device=stack.volume)
    oracle.verify(device=stack.volume)
    stack.stop()
    for device in (stack.ssd, stack.hdd):
        loop.detach(device)
    stack.ssd, stack.hdd = ssd, hdd
    stack.start()
    oracle.verify()
    oracle.run(ops=500)
    stack.verify_alone(oracle)


# ------------------------------------------------------------------ LUKS, LVM above


@pytest.mark.parametrize("between", above.KINDS)
def test_streams_are_seen_through(make_disk, make_layer, between):
    """Streams bypass the cache, random writes do not, whoever sends them: dm-crypt does it from threads of its own, in pieces."""
    ssd, hdd = make_disk("ssd0", model="null", mb=96, wce=1, fua=1), make_disk("hdd0", model="null", mb=192, wce=1)
    stack = Stack(ssd, hdd, writeback="off", sequential_cutoff=512)
    layer = make_layer(between, stack.volume)
    device = layer.open(stack.volume)
    mib = 1 << 20

    def grown(disk, what, *words):
        before = disk.stats()[what]
        command.run("dd", "status=none", *words)
        return disk.stats()[what] - before

    for direct in (True, False):
        (into, out) = (["oflag=direct"], ["iflag=direct"]) if direct else (["conv=fsync"], [])
        bypassed = grown(hdd, "wbytes", "if=/dev/zero", f"of={device}", *into, "bs=1M", "count=32", "seek=64")
        assert 31 * mib <= bypassed <= 33 * mib, direct
        Path("/proc/sys/vm/drop_caches").write_text("3")
        filled = grown(ssd, "wbytes", f"if={device}", "of=/dev/null", *out, "bs=1M", "count=32", "skip=64")
        assert filled < 2 * mib, direct
    for i in range(64):
        assert not grown(hdd, "wbytes", "if=/dev/urandom", f"of={device}", "oflag=direct", "bs=16K", "count=1", f"seek={i * 37}")
    assert stack.volume.dirty() >= 64 * 32
    layer.close()
    stack.stop()
