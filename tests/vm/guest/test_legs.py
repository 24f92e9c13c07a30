# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks of an array that are unplugged and return; arrays that were cut off, and lack a disk."""

import contextlib
import os
import re
from pathlib import Path

import pytest
from lib import command, members, simdisk
from lib.block import BlockDevice
from lib.larder import wait_for
from lib.members import Larderd, settle
from lib.scsi_disks import scsi_disks
from lib.sets import kill
from lib.stacks import (
    BUSY,
    DEGRADED,
    DONE,
    FAILED,
    MOUNTED,
    UNSAFE,
    USAGE,
    arrays,
    check,
    larder,
    listed,
    prepare,
    refused,
    release,
    rows,
    take_out,
    write,
)

MB = 96
OTHER = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def udevd():
    """Before there are disks, as on any machine."""
    with members.udevd():
        yield


@pytest.fixture
def ssds(make_disk, monkeypatch, kernel_log):
    for module in ("raid456", "raid10", "raid0"):
        if command.run("modprobe", module, check=False).returncode:
            pytest.skip(f"this kernel has no {module}")
    kernel_log.expect("md/raid|md:|md[0-9]|sd |scsi|Buffer I/O|I/O error")
    for given in prepare(make_disk, monkeypatch, kernel_log):
        yield given[:2]


@pytest.fixture
def hdds(ssds):
    with scsi_disks(3, MB) as disks:
        yield disks
        release()


def words(ssds, hdds, level="1", mode="writearound"):
    """What is read comes from the disks."""
    made = ["create", "data", *(w for d in hdds for w in ("--backing", d)), "--raid", level]
    return [*made, "--cache", ssds[0], "--cache", ssds[1], "--mode", mode, "--mkfs", "ext4", "--mount", MOUNTED]


def state():
    return rows()["array"]["state"]


def whole():
    wait_for(lambda: state() == "active", 300, "the array to be whole")


def array():
    return Path("/sys/block") / Path(arrays()[0]).name / "md"


def unplug(disk):
    """And md sees it."""
    disk.unplug()
    command.run("sync")
    wait_for(lambda: (array() / "degraded").read_text() != "0\n", 120, "the array to see it")


def stays_dirty(on=True):
    """From the next write on md does not call it clean, as under a load that has no pauses."""
    (array() / "safe_mode_delay").write_text("600" if on else "0.2")


def only(*disks):
    """Stopped, and started on these alone: what is read is theirs."""
    larder("stop", "data")
    for disk in disks:
        disk.unplug()
    larder("start", "data", "--degraded")


@pytest.mark.limit(900)
def test_leg_returns(ssds, hdds):
    """By its bitmap, whatever md still keeps of it; then newer than an array that ran without it: it is left, in either order."""
    hdd0, hdd1, _ = hdds
    hdd1.write_cache(False)
    larder(*words(ssds, hdds[:2]))
    whole()
    write(0)
    unplug(hdd1)
    write(1)
    hdd1.plug()
    hdd1.write_cache(False)
    assert state() == "degraded"
    assert f"{hdd1} is taken back into its array, and gets what it lacks" in larder("start", "data", "--take-back", hdd1).stdout
    whole()
    assert hdd1.written() < 80 << 20, "all of it was copied: a bit of the bitmap is 64 MiB"
    assert larder("status", "data").returncode == DONE
    assert "failed" not in [r["state"] for r in listed()]
    only(hdd0)
    check([0, 1])

    # hdd1 ran alone: it has what hdd0 has not
    write(2)
    hdd0.plug()
    larder("start", "data")
    whole()
    larder("stop", "data")

    # each ran without the other one
    hdd1.unplug()
    larder("start", "data", "--degraded")
    write(3)
    larder("stop", "data")
    for _ in range(3):  # so that md takes it for the newer one, whatever happens to the other
        larder("start", "data", "--degraded")
        larder("stop", "data")
    hdd0.unplug()
    hdd1.plug()
    uuid = rows()["stack"]["uuid"]
    larder("start", "data", "--degraded", "--discard-newer", uuid)
    check([0, 1, 2])
    for _ in range(2):
        hdd0.plug()
        refused(UNSAFE, ["start", "data", "--take-back", hdd0], hdd0, "larder replace data")
        assert state() == "degraded" and {r["device"]: r["state"] for r in listed()}[str(hdd0)] == "left"
        larder("stop", "data")
        larder("start", "data", "--degraded")
        check([0, 1, 2])
        hdd0.unplug()


def marked(disk):
    """Bits of the bitmap that are set on it, each for 64 MiB."""
    said = command.output("mdadm", "--examine-bitmap", disk)
    return int(re.search(r"(\d+) dirty", said).group(1))


def has(disk, what):
    return any(what in disk.read(sector, 2048) for sector in range(0, disk.sectors - 2047, 2048))


@pytest.mark.limit(900)
@pytest.mark.parametrize("clean", [False, True])
def test_leg_that_lost_its_cache_returns(ssds, make_disk, clean):
    """It had answered a write, and lost it with its power: md forgets that write, as both had it.  All is copied to it, but where
    md had called the array clean, for which each disk has written what was in its cache."""
    hdd0, hdd1 = hdds = [make_disk(f"leg{i}", model="null", mb=192, wce=1) for i in range(2)]
    at, before, new = (80 << 20) // 512, b"what was before.".ljust(4096), b"what fsync took for safe.".ljust(4096)
    larder(*words(ssds, hdds)[:-4])
    volume = BlockDevice("/dev/mapper/data")
    volume.write(at, before)
    volume.flush()
    whole()
    wait_for(lambda: not marked(hdd0), 120, "md to clear its bitmap")
    stays_dirty(not clean)
    volume.write(at, new)
    if clean:
        wait_for(lambda: (array() / "array_state").read_text() == "clean\n", 60, "md to call it clean")
    simdisk.power_cut(hdd1, mode="lose")
    volume.write(0, before)  # md sees it
    volume.flush()
    wait_for(lambda: (array() / "degraded").read_text() != "0\n", 120, "the array to see it")
    wait_for(lambda: marked(hdd0) == 1, 120, "md to forget the first write")
    simdisk.power_up(hdd1)
    assert has(hdd0, new) and has(hdd1, new) == clean
    wait_for(lambda: not command.run("mdadm", arrays()[0], "--remove", hdd1, check=False).returncode, 60, "md to let the disk go")
    gets = "gets what it lacks" if clean else "all is copied to it, as it left while the array was written to"
    with slowly():
        assert f"{hdd1} is taken back into its array, and {gets}" in larder("start", "data", "--take-back", hdd1).stdout
        assert "in the array of data already" in larder("start", "data", "--take-back", hdd1).stderr
    whole()
    larder("stop", "data")
    kill(hdd0)
    larder("start", "data", "--degraded")
    assert volume.read(at, 8) == new
    hdd0.heal()


@pytest.mark.limit(900)
@pytest.mark.parametrize(
    ("caches", "kept", "gets"), [(False, "ppl", "all is copied to it\n"), (True, "bitmap", "all is copied to it, as it left")]
)
def test_leg_of_raid_5_returns(ssds, hdds, caches, kept, gets):
    """On disks without write caches it has a log of its parity and no bitmap: rebuilt in full.  With them on again it is told.

    With them, and a bitmap, as well, as it is unplugged while it is written to."""
    for disk in hdds:
        disk.write_cache(caches)
    larder(*words(ssds, hdds, "5"))
    assert policy() == kept
    whole()
    stays_dirty()
    write(0)
    unplug(hdds[1])
    write(1)
    hdds[1].plug()
    hdds[1].write_cache(True)
    run = larder("start", "data")
    assert gets in run.stdout and (f"hdparm -W 0 {hdds[1]}" in run.stderr) == (not caches)
    hdds[1].write_cache(caches)
    whole()
    assert "flush" not in larder("status", "data").stdout
    hdds[0].write_cache(True)
    said = larder("status", "data", code=DONE if caches else DEGRADED).stdout
    assert ("answers it before its disks have written" in said) == (not caches)
    only(hdds[2])
    check([0, 1])


@pytest.mark.limit(900)
def test_leg_returns_beside_larderd(udevd, ssds, hdds):
    """larderd takes it back, where mdadm's rules for udev do not; not one that somebody took out while it was here."""
    hdd0, hdd1, _ = hdds
    larder(*words(ssds, hdds[:2]))
    whole()
    stays_dirty()
    write(1)
    unplug(hdd1)
    write(0)
    hdd1.plug()
    settle()
    assert state() == "degraded", "mdadm --incremental does it now"
    hdd1.unplug()
    larderd = Larderd().start()
    try:
        hdd1.plug()
        larderd.wait_said(str(hdd1), "is taken back into the array of the stack data, and all is copied to it, as it left while")
        whole()
        take_out(arrays()[0], hdd1)
        larderd.wait_said(str(hdd1), "was taken out of the array of the stack data while it was here")
        assert state() == "degraded"
        hdd1.unplug()
        hdd1.plug()
        whole()
    finally:
        larderd.stop()
    only(hdd0)
    check([0, 1])


@pytest.mark.limit(900)
def test_older_half_is_gathered(udevd, ssds, hdds):
    """Of a mirror, and the other half when it runs: larderd says what is to be done, and `start` does it."""
    hdd0, hdd1, _ = hdds
    larder(*words(ssds, hdds[:2]))
    whole()
    write(0)
    unplug(hdd1)
    write(1)
    larder("stop", "data")
    hdd1.plug()
    command.run("mdadm", "--incremental", "--run", hdd1, check=False)  # as mdadm's rules and timer do it
    command.run("mdadm", "--incremental", hdd0, check=False)
    command.run("udevadm", "trigger", "--settle", "--subsystem-match=block")
    (node,) = arrays()
    for mark in Path("/run/larder/stopped").glob("*"):
        mark.unlink()  # as a reboot does
    larderd = Larderd().start()
    try:
        larderd.wait_said(f"{hdd0} is another half of its array", f"mdadm --stop {node}, then larder start data")
    finally:
        larderd.stop()
    with open(node, "rb"):
        refused(FAILED, ["start", "data"], node)  # not under somebody
    larder("start", "data")
    whole()  # the other one has nothing that this has not
    only(hdd0)
    check([0, 1])


@pytest.mark.limit(1800)
@pytest.mark.parametrize("level", ["1", "5"])
def test_power_cuts_while_it_is_taken_back(ssds, make_disk, level, seed):
    """After the N-th write command of that, and of a writer beside it: what was durable is there, whichever disk is gone then.

    RAID 5 with the log of its parity, so without write caches."""
    hdds = [make_disk(f"leg{i}", model="null", mb=48, wce=int(level == "1")) for i in range({"1": 2, "5": 3}[level])]
    larder(*words(ssds, hdds, level))
    whole()
    files, cuts = [0], 0
    write(0)
    for i, after in enumerate((1, 2, 3, 5, 8, 13, 21, 34, 55, 89)):
        number, back = 10 * (i + 1), hdds[i % len(hdds)]
        kill(back)
        write(number)
        files.append(number)
        wait_for(lambda: (array() / "degraded").read_text() != "0\n", 120, "the array to see that a disk fails")
        back.heal()
        simdisk.power_cut(mode=("random", "lose")[i % 2], seed=seed + i, after=after, ops="write")
        larder("start", "data", code=None)
        with contextlib.suppress(OSError):
            for more in range(number + 1, number + 10):
                write(more)
                files.append(more)
        cuts += ssds[0].state()["power"] == "off"
        if ssds[0].state()["power"] != "off":
            simdisk.power_cut(mode="random", seed=seed)
        release()
        simdisk.power_up()
        larder("start", "data")
        whole()
        check(files)
    assert cuts > 6
    for disk in hdds:
        larder("stop", "data")
        kill(disk)
        larder("start", "data", "--degraded")
        check(files)
        larder("stop", "data")
        disk.heal()
        larder("start", "data", code=None)
        whole()


def cut_off(disks, seed):
    """While the array is written to."""
    simdisk.power_cut(mode="random", seed=seed, after=60, ops="write")
    try:
        for number in range(100, 2000):
            write(number, os.urandom(40000))
    except OSError:
        pass
    simdisk.wait_power_off(disks[0])
    release()
    simdisk.power_up()


@pytest.mark.limit(1200)
@pytest.mark.parametrize("level", ["5", "6"])
def test_write_hole(ssds, make_disk, kernel_log, seed, level):
    """With a bitmap alone, cut off, and short of a disk: by a word that names it; with all there without one."""
    hdds = [make_disk(f"leg{i}", model="null", mb=48, wce=1) for i in range(4)]
    assert "parity: has no log" in larder(*words(ssds, hdds, level), "--dry-run").stdout
    larder(*words(ssds, hdds, level, "writethrough"))
    whole()
    write(0)
    uuid = rows()["stack"]["uuid"]
    cut_off([*ssds, *hdds], seed)
    kill(hdds[3])
    told = ("array", "lacks 1 of its 4 disks", "may be wrong", f"larder start data --degraded --accept-write-hole {uuid}")
    refused(UNSAFE, ["start", "data", "--degraded"], *told)
    assert not arrays()
    refused(UNSAFE, ["start", "data", "--degraded", "--accept-write-hole", OTHER], uuid)
    refused(USAGE, ["start", "data", "--accept-write-hole", uuid], "--degraded")
    said = larder("start", "data", "--degraded", "--accept-write-hole", uuid)
    assert "parity that may be wrong" in said.stderr
    check([0])
    assert "1 of 4 disks missing" in larder("status", "data", code=DEGRADED).stdout
    hdds[3].heal()
    larder("start", "data")
    whole()
    cut_off([*ssds, *hdds], seed + 1)
    larder("start", "data")  # with all of its disks md makes parity anew
    check([0])


@pytest.mark.limit(1200)
def test_parity_with_its_log_is_cut_off(ssds, make_disk, seed):
    """RAID 5 on disks without write caches."""
    hdds = [make_disk(f"leg{i}", model="null", mb=48, wce=0) for i in range(3)]
    assert "parity:" not in larder(*words(ssds, hdds, "5"), "--dry-run").stdout
    larder(*words(ssds, hdds, "5", "writethrough"))
    assert policy() == "ppl"
    whole()
    write(0)
    cut_off([*ssds, *hdds], seed)
    kill(hdds[1])
    larder("start", "data", "--degraded")
    check([0])
    hdds[1].heal()


@pytest.mark.limit(1200)
def test_levels(ssds, make_disk):
    """Made, stopped, started; and without as many disks as each can do without."""
    hdds = [make_disk(f"leg{i}", model="null", mb=48, wce=1) for i in range(4)]
    for level, spared in (("0", []), ("10", [hdds[1], hdds[2]]), ("6", [hdds[0], hdds[3]])):
        said = larder(*words(ssds, hdds, level), "--dry-run").stdout
        assert ("has no log" in said) == (level == "6"), said
        larder(*words(ssds, hdds, level))
        assert rows()["array"]["type"] == f"raid{level}"
        whole()
        write(0)
        larder("stop", "data")
        larder("start", "data")
        check([0])
        larder("stop", "data")
        for disk in spared or [hdds[0]]:
            kill(disk)
        run = larder("start", "data", code=None)
        assert run.returncode in (FAILED, UNSAFE) and not arrays(), run.stderr
        if spared:
            larder("start", "data", "--degraded")
            check([0])
            larder("stop", "data")
        for disk in spared or [hdds[0]]:
            disk.heal()
        larder("start", "data", *(["--degraded"] if spared else []))
        whole()
        check([0])
        larder("remove", "data", "--discard-data", rows()["stack"]["uuid"])


def reshaping():
    return (array() / "sync_action").read_text() == "reshape\n"


def write_cache(disk, on):
    """As the kernel takes it to be."""
    Path(f"/sys/block/{Path(str(disk)).name}/queue/write_cache").write_text("write back" if on else "write through")


def policy():
    return (array() / "consistency_policy").read_text().strip()


@contextlib.contextmanager
def slowly():
    """Of every array, an assembled one as well."""
    limits = [Path("/proc/sys/dev/raid") / f"speed_limit_{end}" for end in ("min", "max")]
    before = [limit.read_text() for limit in limits]
    for limit, speed in zip(limits, ("1\n", "20\n"), strict=True):
        limit.write_text(speed)
    try:
        yield
    finally:
        for limit, speed in zip(reversed(limits), reversed(before), strict=True):
            limit.write_text(speed)


@pytest.mark.limit(1800)
@pytest.mark.parametrize(("level", "caches"), [("5", 0), ("5", 1), ("6", 1), ("10", 1)])
def test_reshape(ssds, make_disk, level, caches):
    """An array spread over one more disk, under a file system: stopped in the middle, started, up to the file system.

    Not cut off: 6.12's md waits for ever in a reshape all of whose disks fail, which is what a simulated power cut is to it."""
    least = {"5": 3, "6": 4, "10": 2}[level]
    hdds = [make_disk(f"leg{i}", model="null", mb=48, wce=1) for i in range(least + 1)]
    new = hdds[least]
    log = not caches
    kept = "ppl" if log else "bitmap"
    for disk in hdds if log else ():
        write_cache(disk, False)
    larder(*words(ssds, hdds[:least], level, "writethrough"))
    whole()
    write(0)
    refused(USAGE, ["add", "data", "--backing", new, "--reshape", "--spare"], "--spare")
    refused(USAGE, ["add", "data", "--cache", new, "--reshape"], "--backing")
    spare = make_disk("spare", model="null", mb=48, wce=1)
    if log:
        told = ("volatile write cache", f"hdparm -W 0 {spare}", "--bitmap=internal")
        refused(UNSAFE, ["add", "data", "--backing", spare, "--spare"], spare, *told)
        refused(UNSAFE, ["replace", "data", hdds[0], spare, "--dry-run"], spare, "hdparm -W 0")
        write_cache(spare, False)
    larder("add", "data", "--backing", spare, "--spare")
    refused(BUSY, ["add", "data", "--backing", new, "--reshape", "--yes"], spare, f"larder drop data {spare}")
    larder("drop", "data", spare)
    said = larder("add", "data", "--backing", new, "--reshape", "--dry-run").stdout
    assert "all that is in it is moved" in said and f"--raid-devices={least + 1}" in said
    assert ("no log of its parity" in said) == log == ("--consistency-policy=resync" in said)
    assert policy() == kept and (array() / "raid_disks").read_text() == f"{least}\n"
    before = int((array().parent / "size").read_text())

    with slowly():
        assert "being rebuilt" in larder("add", "data", "--backing", new, "--reshape", "--no-wait", "--yes").stdout
        assert reshaping() and policy() == ("resync" if log else "bitmap")
        write(1)
        larder("stop", "data")
        larder("start", "data")
        assert reshaping()
        check([0, 1])
    write(2)
    larder("add", "data", "--backing", new, "--reshape", "--yes")
    assert not reshaping() and policy() == kept and state() == "active"
    assert "is a disk of it already" in larder("add", "data", "--backing", new, "--reshape", "--yes").stdout
    for cache in (0, 1) if log else ():  # who was killed behind the reshape; and a disk's write cache is on by then
        write_cache(hdds[1], bool(cache))
        command.run("mdadm", "--grow", arrays()[0], "--consistency-policy=resync")
        assert "no log of its parity" in larder("status", "data", code=DEGRADED).stdout
        larder("add", "data", "--backing", hdds[0], "--reshape", "--yes")
        assert policy() == ("bitmap" if cache else "ppl")
    larder("status", "data")
    assert int((array().parent / "size").read_text()) > before
    free = os.statvfs(MOUNTED).f_blocks
    larder("resize", "data", "--yes")
    assert os.statvfs(MOUNTED).f_blocks > free
    check([0, 1, 2])
    larder("stop", "data")
    kill(hdds[0])
    larder("start", "data", "--degraded")
    check([0, 1, 2])
    hdds[0].heal()
