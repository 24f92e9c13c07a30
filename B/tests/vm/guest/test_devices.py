# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks and SSDs of a stack come and go while it is mounted and written to; cut short at every step, and gone on with."""

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import struct
import subprocess
import threading
from pathlib import Path

import pytest
from lib import command, dm, simdisk
from lib.block import BlockDevice
from lib.larder import wait_for
from lib.members import udevd
from lib.parts import disk_in_two
from lib.question import answered
from lib.sets import kill
from lib.stacks import (
    BUSY,
    DEGRADED,
    DONE,
    FAILED,
    MOUNTED,
    NAME,
    NOT_FOUND,
    UNSAFE,
    USAGE,
    arrays,
    check,
    larder,
    listed,
    mdadm,
    prepare,
    refused,
    release,
    remove,
    rows,
    take_out,
    words,
    write,
)


RUN = Path("/run/larder")
SPEED = Path("/proc/sys/dev/raid/speed_limit_min")


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    """SSDs 0 to 2, disks 0 to 2; the third of each is not in the stack."""
    kernel_log.expect("ssd.*(failed|left|error)|has failed|md/raid:")
    for given in prepare(make_disk, monkeypatch, kernel_log, mb=40):
        before = SPEED.read_text()
        SPEED.write_text("1000000")  # beside a load md would take its time
        ssd = make_disk("ssd2", model="null", mb=32, wce=1, fua=1)
        yield [*given[:2], ssd, *given[2:], make_disk("hdd2", model="null", mb=48, wce=1)]
        SPEED.write_text(before)


def make(disks):
    larder(*words([*disks[:2], *disks[3:5]]))


class Load:
    """Files of changing content, each durable before the next one; what was durable has to be there."""

    def __init__(self, seed=1):
        self.known: dict[int, int] = {}
        self.begun, self.stop = {}, threading.Event()
        self.random, self.error = random.Random(seed), None

    @staticmethod
    def content(seed):
        return random.Random(seed).randbytes(4096 + seed * 977 % 60000)

    def one(self):
        name, seed = self.random.randrange(60), self.random.randrange(1 << 30)
        self.begun = {name: seed}
        write(name, self.content(seed))
        self.known[name] = seed

    def run(self):
        try:
            while not self.stop.is_set():
                self.one()
        except OSError as e:
            self.error = e

    def __enter__(self):
        self.stop.clear()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *what):
        self.stop.set()
        self.thread.join()
        if not what[0]:
            assert not self.error and len(self.known) > 3

    def check(self, cut=False):
        """cut: one file may have been in the writing when the power went."""
        for name, seed in self.known.items():
            if not cut or name not in self.begun:
                assert (MOUNTED / f"{NAME}-{name}").read_bytes() == self.content(seed), name


def members(name="data"):
    """Of the array: states by device."""
    return {row["device"]: row["state"] for row in listed(name) if row["layer"] in ("disk", "spare")}


def ssds(name="data"):
    return {row["device"] for row in listed(name) if row["layer"] == "ssd"}


def unsigned(*devices):
    for device in devices:
        assert not command.run("wipefs", "--no-act", "--noheadings", device).stdout, device
        larder("probe", device, code=NOT_FOUND)


def generation():
    (node,) = arrays()
    return int(BlockDevice(node).read(8, 8).split(b'"generation":')[1].split(b",")[0])


def alone(load, *gone):
    """What is left has everything: the others fail from the first read on."""
    larder("stop", "data")
    for disk in gone:
        kill(disk)
    larder("start", "data", "--degraded")
    load.check()
    larder("stop", "data")
    for disk in gone:
        disk.heal()


def steps(*verbs):
    return [(verb, when) for verb in verbs for when in ("before", "after")]


REPLACE, ADD = steps("--add", "--replace", "--remove", "--zero-superblock"), steps("--add", "--grow")
DROP = steps("--fail", "--remove", "--grow", "--zero-superblock")


def killed(directory, step, *words):
    """At that step, by kill -9, under load."""
    with mdadm(directory, *step, "kill -9 $PPID"):
        assert command.run("larder", *words, check=False).returncode == -9, step
    # which runs on, and has the devices
    wait_for(lambda: command.run("pgrep", "-x", "mdadm", check=False).returncode == 1, 60, "the mdadm that it had begun")


def cut_off(disks, directory, step, load, seed, *words):
    """All devices lose their power at once there; the stack starts again without a word, and all that was durable is there."""
    mode = ("lose", "random")[seed % 2]
    cut = f"echo powercut all mode={mode} seed={seed} >/sys/kernel/debug/simdisk/ctl"
    with mdadm(directory, *step, cut), contextlib.suppress(AssertionError), load:
        command.run("larder", *words, check=False)
    assert any(d.state()["power"] == "off" for d in disks), step
    release()
    simdisk.power_up()
    load.error = None
    larder("start", "data")
    load.check(cut=True)
    for name in load.begun:
        load.known.pop(name, None)


def test_disk_is_replaced(disks):
    """One that works: a copy takes its place; it carries nothing afterwards; the new one alone has all."""
    _, _, _, hdd0, hdd1, hdd2 = disks
    make(disks)
    load, before = Load(), generation()
    with load:
        said = larder("replace", "data", hdd1, hdd2, "--dry-run").stdout
        assert "--add /dev/hdd2" in said and "--replace /dev/hdd1 --with /dev/hdd2" in said and "copy" in said
        assert members() == {"/dev/hdd0": "active", "/dev/hdd1": "active"}
        larder("replace", "data", hdd1, hdd2)
        assert members() == {"/dev/hdd0": "active", "/dev/hdd2": "active"}
        assert "degraded" not in larder("status", "data").stdout, "md has no link rd1 to one that has replaced another"
        unsigned(hdd1)
        assert generation() > before
        assert "already" in larder("replace", "data", hdd1, hdd2).stdout
    load.check()
    alone(load, hdd0)


@pytest.mark.limit(900)
def test_replace_is_killed(disks, tmp_path):
    """By kill -9 before and after each program that it runs; given again, it ends what it began."""
    _, _, _, hdd0, old, new = disks
    make(disks)
    load = Load()
    with load:
        for step in REPLACE:
            killed(tmp_path, step, "replace", "data", old, new)
            larder("replace", "data", old, new)
            assert members() == {str(hdd0): "active", str(new): "active"}, step
            unsigned(old)
            old, new = new, old
    load.check()
    alone(load, hdd0)


def test_another_disk_has_the_name_meanwhile(disks, make_disk, tmp_path):
    """A replace takes hours: who has the path of the one that left by then is not erased for it, even if it was in this array."""
    _, _, _, hdd0, hdd1, hdd2 = disks
    make(disks)
    write(0)
    other = make_disk("hdd3", model="null", mb=48, wce=1)
    (node,) = arrays()
    command.run("mdadm", node, "--add", other)
    wait_for(lambda: not command.run("mdadm", node, "--remove", other, check=False).returncode, 60, "md to let it go")
    was, its = (os.stat(str(d)).st_rdev for d in (hdd1, other))
    node = f"rm -f {hdd1}; mknod {hdd1} b"
    try:
        with mdadm(tmp_path, "--remove", "after", f"{node} {os.major(its)} {os.minor(its)}"):
            said = larder("replace", "data", hdd1, hdd2).stderr
    finally:
        command.run("sh", "-c", f"{node} {os.major(was)} {os.minor(was)}")
    assert f"{hdd1}: is another device than before" in said
    assert "linux_raid_member" in command.run("wipefs", "--no-act", "--noheadings", other).stdout
    assert members().items() >= {str(hdd0): "active", str(hdd2): "active"}.items()
    check([0])


def test_disk_that_failed_is_replaced(disks):
    """It cannot be written: it keeps its superblock, and comes back for nothing.  Then one that is gone, by its number."""
    _, _, _, hdd0, hdd1, hdd2 = disks
    make(disks)
    load = Load()
    with load:
        kill(hdd1)
        wait_for(lambda: members().get("/dev/hdd1") == "failed", 60, "the array to see it")
        said = larder("status", "data", code=DEGRADED).stdout
        assert "1 of 2 disks" in said and "larder replace data disk1 NEW" in said
        said = larder("replace", "data", hdd1, hdd2)
        assert "zero-superblock" in said.stderr
        assert members()["/dev/hdd2"] == "active"
    hdd1.heal()
    assert members()["/dev/hdd1"] == "left"
    larder("stop", "data")
    larder("start", "data")
    assert members() == {"/dev/hdd0": "active", "/dev/hdd1": "left", "/dev/hdd2": "active"}
    load.check()
    (node,) = arrays()
    take_out(node, hdd0)
    command.run("mdadm", "--zero-superblock", hdd0)
    refused(UNSAFE, ["replace", "data", "disk0", hdd1], "--wipe")
    with load:
        larder("replace", "data", "disk0", hdd1, "--wipe")
    assert members() == {"/dev/hdd1": "active", "/dev/hdd2": "active"}
    load.check()
    alone(load, hdd2)


def test_disk_that_failed_is_replaced_by_its_number(disks):
    """md has taken it out of its place, or does as the copy ends behind --no-wait: it leaves the array, and is erased."""
    _, _, _, hdd0, hdd1, hdd2 = disks
    make(disks)
    write(0)
    command.run("mdadm", *arrays(), "--fail", hdd1)
    wait_for(lambda: "disk1" not in {r["number"] for r in listed() if r["device"] == str(hdd1)}, 60, "md to take it out")
    said = larder("replace", "data", "disk1", hdd2, "--dry-run").stdout
    assert f"{hdd1}: has failed" in said and f"--remove {hdd1}" in said and f"--zero-superblock {hdd1}" in said
    for old in "disk1", hdd1:
        refused(USAGE, ["replace", "data", old, hdd0], hdd0, "already, in another place")
    assert members()[str(hdd0)] == "active"
    larder("replace", "data", "disk1", hdd2)
    assert members() == {str(hdd0): "active", str(hdd2): "active"}
    unsigned(hdd1)
    larder("replace", "data", "disk1", hdd1, "--no-wait")
    wait_for(lambda: members().get(str(hdd2)) == "failed", 120, "the copy")
    assert f"{hdd2}: has failed" in larder("replace", "data", "disk1", hdd1).stdout
    assert members() == {str(hdd0): "active", str(hdd1): "active"}
    unsigned(hdd2)
    check([0])
    alone(Load(), hdd0)


def test_disks_beside_a_failed_cache(disks, kernel_log):
    """It takes no message: the disks alone have it that one joins, leaves, or is lost, and its SSDs have it later."""
    ssd0, ssd1, _, hdd0, hdd1, hdd2 = disks
    kernel_log.expect("device-mapper: larder|critical .* error")
    make(disks)
    write(0)
    for ssd in (ssd0, ssd1):
        ssd.fail(op="write,flush", status="ioerr")
    with contextlib.suppress(OSError):
        write(1)
    assert "state=failed" in command.output("dmsetup", "status", "larder-cache-data")
    before = generation()
    said = larder("replace", "data", hdd1, hdd2).stderr
    assert said.count("its SSDs are not told") == 1 and generation() > before
    assert members() == {str(hdd0): "active", str(hdd2): "active"}
    unsigned(hdd1)
    larder("add", "data", "--backing", hdd1)
    larder("drop", "data", hdd0)
    unsigned(hdd0)
    assert members() == {str(hdd1): "active", str(hdd2): "active"}
    before = generation()
    command.run("mdadm", *arrays(), "--fail", hdd1)
    larder("start", "--note", "data")
    assert generation() > before
    larder("replace", "data", hdd1, hdd0)
    larder("stop", "data")
    for ssd in (ssd0, ssd1):
        ssd.heal()
    larder("start", "data")
    check([0])
    assert members() == {str(hdd0): "active", str(hdd2): "active"}
    before = generation()
    larder("add", "data", "--backing", hdd1)
    assert generation() > before


def test_leg_that_had_left(disks):
    """It dropped off, and comes back when the other one is dead: not below the cache of today, unless what is newer is given up."""
    _, _, _, hdd0, hdd1, _ = disks
    make(disks)
    uuid = rows()["stack"]["uuid"]
    load = Load()
    with load:
        wait_for(lambda: len(load.known) > 5, 120, "some files")
    command.run("sync")  # or ext4 writes beside the flush
    larder("volume", "flush", "data", "--wait")
    then = dict(load.known)
    kill(hdd1)
    with load:
        wait_for(lambda: members().get("/dev/hdd1") == "failed", 120, "the array to see it")
    larder("drop", "data", hdd1)
    load.check()
    larder("stop", "data")
    larder("start", "data", "--degraded")  # on the good one: it does not refuse itself
    load.check()
    command.run("sync")
    larder("volume", "flush", "data", "--wait")
    left = dict(load.known)
    larder("stop", "data")
    hdd1.heal()  # earlier, and it would be taken back
    kill(hdd0)
    refused(UNSAFE, ["start", "data", "--degraded"], "have seen", f"LOST with larder start data --discard-newer {uuid}")
    refused(UNSAFE, ["start", "data", "--degraded", "--discard-newer", "11111111-2222-4333-8444-555555555555"], uuid)
    assert not arrays()
    larder("start", "data", "--degraded", "--discard-newer", uuid)
    load.known = then
    load.check()
    for _ in range(2):
        with load:
            known = dict(load.known)
            wait_for(lambda before=known: load.known != before, 120, "a file")
        larder("stop", "data")
        larder("start", "data", "--degraded")
        load.check()
    larder("stop", "data")
    # and the other way round: what the cache has by now is of the older one alone
    kill(hdd1)
    hdd0.heal()
    refused(UNSAFE, ["start", "data", "--degraded"], "have seen")
    larder("start", "data", "--degraded", "--discard-newer", uuid)
    load.known = left
    load.check()
    larder("stop", "data")
    hdd1.heal()


def test_leg_that_left_half_made(disks):
    """It dropped off as the stack was made, which came to its end without it: it knows of one that is half made, and no data."""
    _, _, _, hdd0, hdd1, _ = disks
    program = ["larder", *map(str, words([*disks[:2], *disks[3:5]]))]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as child:
        for line in child.stdout:
            if "the filesystem" in line:
                kill(hdd1)
    assert not child.returncode
    uuid = rows()["stack"]["uuid"]
    write(0)
    larder("stop", "data")
    hdd1.heal()
    kill(hdd0)
    command.run("mdadm", "--assemble", "--run", "/dev/md/old", hdd1)
    refused(UNSAFE, ["create", "--resume", "data"], "have seen", "--discard-newer")
    refused(UNSAFE, ["remove", "data"], f"LOST with --discard-data {uuid}")
    (node,) = arrays()
    command.run("mdadm", "--stop", node)
    hdd0.heal()
    kill(hdd1)
    larder("start", "data", "--degraded")
    check([0])
    larder("stop", "data")
    hdd1.heal()


def test_leg_that_md_failed(disks, tmp_path):
    """Nobody drops it: larderd notes on the other one that it is newer, and so does a start without it."""
    _, _, _, hdd0, hdd1, _ = disks
    make(disks)
    load, before = Load(), generation()
    with larderd(tmp_path, 86400), load:
        kill(hdd1)
        wait_for(lambda: members().get("/dev/hdd1") == "failed", 120, "the array to see it")
        wait_for(lambda: generation() > before, 120, "larderd to note it")
    load.check()
    noted = generation()
    larder("start", "--note", "data")
    assert generation() == noted  # once
    larder("stop", "data")
    hdd1.heal()
    kill(hdd0)
    refused(UNSAFE, ["start", "data", "--degraded"], "have seen")
    hdd0.heal()
    kill(hdd1)
    for path in Path("/run/larder").glob("lacks-*"):
        path.unlink()  # as a reboot does
    larder("start", "data", "--degraded")
    assert generation() > noted
    load.check()
    larder("stop", "data")
    hdd1.heal()


@contextlib.contextmanager
def full(*places):
    """Nothing more can be written to these tmpfs: they are as large as what they hold."""
    sizes = {}
    for place in places:
        there = os.statvfs(place)
        sizes[place] = there.f_blocks * there.f_frsize
        command.run("mount", "-o", f"remount,size={(there.f_blocks - there.f_bfree) * there.f_frsize}", place)
        with pytest.raises(OSError, match="No space left"):
            Path(place, "more").write_bytes(b"x")
    try:
        yield
    finally:
        for place, size in sizes.items():
            command.run("mount", "-o", f"remount,size={size}", place)


def marks():
    """Of what somebody stopped."""
    return set(RUN.joinpath("stopped").glob("*"))


def test_full_run(disks):
    """Whatever has filled /run up: stacks stop and start, who stopped what is known, and what an array lacks is noted, once."""
    hdd1 = disks[4]
    make(disks)
    write(0)
    with full("/run", RUN):
        earlier = marks()
        larder("stop", "data")
        assert marks() > earlier
        larder("start", "data")
        assert marks() == earlier
        check([0])
        before = generation()
        kill(hdd1)
        write(1)
        wait_for(lambda: members().get("/dev/hdd1") == "failed", 120, "the array to see it")
        larder("start", "--note", "data")
        noted = generation()
        larder("start", "--note", "data")
        assert generation() == noted > before
    larder("stop", "data")
    hdd1.heal()


def test_run_cannot_be_written(disks):
    """The mark of a stop is missed, and that is said; two at once wait for each other all the same."""
    hdd1 = disks[4]
    make(disks)
    write(0)
    command.run("mount", "-o", "remount,ro", RUN)
    try:
        earlier = marks()
        said = larder("stop", "data").stderr
        assert said.count("larderd may start it again") == 1 and marks() == earlier
        larder("start", "data")
        lock = os.open("/run", os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        waits = subprocess.Popen(["larder", "stop", "data"], stderr=subprocess.DEVNULL)
        waiting = re.compile(rf"-> FLOCK +ADVISORY +WRITE {waits.pid} ")
        wait_for(lambda: waiting.search(Path("/proc/locks").read_text()), 60, "the command to wait")
        os.close(lock)
        assert waits.wait(120) == 0
        larder("start", "data")
        kill(hdd1)
        write(1)
        wait_for(lambda: members().get("/dev/hdd1") == "failed", 120, "the array to see it")
        refused(FAILED, ["start", "--note", "data"], "/run/larder", "Read-only")
        check([0, 1])
        larder("stop", "data")
    finally:
        command.run("mount", "-o", "remount,rw", RUN)
    hdd1.heal()


def test_array_that_udev_put_together(disks):
    """mdadm --incremental does not run it while a disk is missing, nor ever where it is another host's: it does not run then."""
    _, _, _, hdd0, hdd1, _ = disks
    make(disks)
    write(0)

    def inactive(*gone):
        """As udev does it."""
        larder("stop", "data")
        assert not arrays()
        for disk in gone:
            kill(disk)
        command.run("mdadm", "--incremental", hdd0)
        (node,) = arrays()
        state = Path(f"/sys/block/{node.removeprefix('/dev/')}/md/array_state")
        assert state.read_text().strip() == "inactive"
        return state

    inactive()
    assert rows()["stack"]["state"] == "stopped"
    larder("start", "data")
    check([0])
    assert rows()["array"]["state"] == "active"
    state = inactive(hdd1)
    for mark in marks():
        mark.unlink()  # as a reboot does
    told = ("its array does not run, as it lacks 1 of its 2 disks", "larder start data --degraded")
    with udevd():
        command.run("udevadm", "trigger", "--settle", "--subsystem-match=block")
        refused(UNSAFE, ["assemble", "--all", "--degraded"], *told)
    for words_ in (["start", "data"], ["start", "data", "--locked"]):
        refused(UNSAFE, words_, "1 of", "2 disks", "--degraded")
        assert state.read_text().strip() == "inactive"  # the other one may come yet
    larder("start", "data", "--degraded")
    check([0])
    larder("stop", "data")
    assert not arrays()
    hdd1.heal()


def test_suspended_device_is_not_read(disks):
    """Somebody else's, which answers nobody until it is resumed: no verb that looks for the disks of an array waits for that."""
    hdd2 = disks[5]
    make(disks)
    write(0)
    other = dm.DmDevice.create("other", f"0 {hdd2.sectors} linear {hdd2} 0")
    other.suspend(noflush=True)
    done = threading.Event()

    def verbs() -> None:
        assert rows()["array"]["state"]
        larder("stop", "data")
        larder("start", "data")
        done.set()

    looking = threading.Thread(target=verbs)
    looking.start()
    try:
        assert done.wait(100), "they wait for a device that is suspended"
    finally:
        other.resume()
        looking.join()
    check([0])
    other.remove()


def test_leg_that_had_left_has_another_owner(disks):
    """It left the array, and got a partition table; md's superblock, between that and the first partition, is left."""
    _, _, _, hdd0, hdd1, _ = disks
    make(disks)
    uuid = rows()["stack"]["uuid"]
    (node,) = arrays()
    take_out(node, hdd1)
    command.run("sfdisk", "--quiet", "--wipe", "never", "--no-reread", hdd1, stdin="label: dos\n2048,+,83\n")
    before = hdd1.read(0, 128)
    run = larder("remove", "data", "--discard-data", uuid)
    assert "carries a signature dos" in run.stderr and str(hdd1) in run.stderr
    assert "what is somebody else's now was left" in run.stdout
    assert hdd1.read(0, 128) == before
    unsigned(hdd0)


def test_raid_5(disks, make_disk):
    """One that works is replaced, one that died; one more is a spare, and takes a place."""
    if command.run("modprobe", "raid456", check=False).returncode:
        pytest.skip("this kernel has no raid456")
    ssd0, ssd1, _, hdd0, hdd1, hdd2 = disks
    hdd3 = make_disk("hdd3", model="null", mb=48, wce=1)
    backing = [w for d in (hdd0, hdd1, hdd2) for w in ("--backing", d)]
    made = ["create", "data", *backing, "--raid", "5", "--cache", ssd0, "--cache", ssd1, "--mkfs", "ext4", "--mount", MOUNTED]
    larder(*made)
    wait_for(lambda: set(members().values()) == {"active"}, 120, "the parity")
    load = Load()
    with load:
        larder("replace", "data", hdd1, hdd3)
        assert members() == dict.fromkeys(map(str, (hdd0, hdd2, hdd3)), "active")
        unsigned(hdd1)
        kill(hdd0)
        wait_for(lambda: members().get(str(hdd0)) == "failed", 60, "the array to see it")
        larder("replace", "data", hdd0, hdd1)
    hdd0.heal()
    with load:
        larder("drop", "data", hdd0)
        unsigned(hdd0)
        assert "RAID 5 is not grown" in larder("add", "data", "--backing", hdd0).stdout
        assert members()[str(hdd0)] == "spare"
        # the spare is told to take a place
        larder("replace", "data", hdd2, hdd0)
        unsigned(hdd2)
    uuid = rows()["stack"]["uuid"]
    refused(UNSAFE, ["drop", "data", hdd3], "LOST")
    load.check()
    larder("drop", "data", hdd3, "--discard-redundancy", uuid)
    refused(UNSAFE, ["drop", "data", hdd1, "--discard-redundancy", uuid], "would fail")
    larder("stop", "data")
    larder("start", "data", "--degraded")
    load.check()


def said_behind(code, question, meanwhile, *words):
    """What it says on stderr behind yes, which it gets behind what others do until then."""
    run = answered(["larder", *words], question, meanwhile)
    assert run.returncode == code, run.stderr
    return run.stderr


def test_another_one_fails_at_the_question(disks):
    """Judged again behind the answer: what three disks allowed needs the word where two are left.  Nothing is changed."""
    hdd0, hdd1, hdd2 = disks[3:]
    make(disks)
    larder("add", "data", "--backing", hdd2)
    said = said_behind(UNSAFE, "Drop it?", lambda: command.run("mdadm", *arrays(), "--fail", hdd2), "drop", "data", hdd1)
    assert "LOST" in said and "--discard-redundancy" in said, said
    assert members().items() >= {str(hdd0): "active", str(hdd1): "active", str(hdd2): "failed"}.items()
    remove()


def test_another_ssd_at_the_question(disks):
    """In the place that was shown there is another SSD by the time of the answer, or the same one, anew: it is left there."""
    ssd0, ssd1, ssd2, *_ = disks
    make(disks)
    word = ["--discard-redundancy", rows()["stack"]["uuid"]]
    for old, new in ((ssd1, ssd2), (ssd2, ssd2)):

        def meanwhile(old=old, new=new):
            larder("drop", "data", old, *word)
            larder("add", "data", "--cache", new)

        said = said_behind(BUSY, "Drop it?", meanwhile, "drop", "data", "ssd1", *word)
        assert "is another device" in said and "larder show data" in said, said
        assert states() == "active/active" and ssds() == {str(ssd0), str(ssd2)}
    said = said_behind(BUSY, "Replace it?", lambda: larder("replace", "data", ssd2, ssd1), "replace", "data", "ssd1", ssd1)
    assert "is another device" in said, said
    assert ssds() == {str(ssd0), str(ssd1)}


def test_options_set_at_the_question(disks):
    """While `cache add` asks, somebody sets an option of the cache, and another SSD joins: neither is undone."""
    ssd2, hdd2 = disks[2], disks[5]
    make(disks)
    cache = dm.DmDevice("larder-cache-data")
    add = ["cache", "add", "larder-cache-data", ssd2, "--wipe"]
    command.run("mkfs.ext4", "-q", ssd2)
    said_behind(DONE, "Wipe it?", lambda: larder("cache", "set", "data", "commit=always"), *add)
    assert cache.status()["commit"] == "always" and " commit always" in command.output("dmsetup", "table", "larder-cache-data")
    assert states() == "active/active/active"
    larder("drop", "data", ssd2)
    command.run("mkfs.ext4", "-q", ssd2)
    said = said_behind(BUSY, "Wipe it?", lambda: larder("cache", "add", "data", hdd2), *add)
    assert "have changed meanwhile" in said, said
    assert str(hdd2) in ssds() and str(ssd2) not in ssds()
    assert 'TYPE="ext4"' in command.output("blkid", "-p", ssd2)  # refused, and as it was


def test_volume_of_a_stack_gets_no_other_cache(disks):
    """No verb of the stack would start it then."""
    ssd2 = disks[2]
    make(disks)
    larder("cache", "create", "other", "--cache", ssd2)
    larder("volume", "detach", "data", "--flush")
    refused(UNSAFE, ["volume", "attach", "data", "--cache", "other"], "is the volume of data", "larder replace data cache")
    assert "larder-cache-other" not in dm.names()
    larder("volume", "attach", "data", "--cache", "data")
    larder("stop", "data")
    larder("start", "data")
    larder("super", "wipe", ssd2, "--yes")
    remove()


def test_last_copy_of_what_is_dirty(disks):
    """The word for it: also where the volume writes through and not all is written back, or where others use the cache."""
    ssd1, hdd2 = disks[1], disks[5]
    make(disks)
    uuid = rows()["stack"]["uuid"]
    larder("volume", "set", "data", "writeback=off")
    write(0)
    larder("volume", "set", "data", "mode=writethrough")
    assert int(dm.DmDevice("data").status()["dirty_sectors"])
    refused(UNSAFE, ["drop", "data", ssd1], "LOST", f"--discard-redundancy {uuid}")
    larder("volume", "set", "data", "writeback=on")
    larder("volume", "flush", "data", "--wait")
    assert not dm.DmDevice("larder-cache-data").status()["dirty_sectors"]
    larder("drop", "data", ssd1)
    larder("add", "data", "--cache", ssd1)
    larder("create", "more", "--backing", hdd2, "--cache", "data", "--mode", "writeback")
    for _ in range(2):
        refused(UNSAFE, ["drop", "data", ssd1], "LOST", f"--discard-redundancy {uuid}")
        larder("stop", "more")
    larder("remove", "more", "--discard-data", rows("more")["stack"]["uuid"])
    larder("drop", "data", ssd1)
    assert states().startswith("active/") and len(ssds()) == 1


def test_md_wants_another_disk(disks):
    """From the first write error on, whether it is there or not: it works, and is replaced, by none of the array, or dropped."""
    _, _, _, hdd0, hdd1, hdd2 = disks
    make(disks)
    write(0)
    uuid = rows()["stack"]["uuid"]

    def want(disk):
        """As md does by itself where the disk keeps a list of bad blocks."""
        (node,) = arrays()
        Path(f"/sys/block/{Path(node).name}/md/dev-{disk.name}/state").write_text("want_replacement")
        assert members()[str(disk)] == "active"

    want(hdd1)
    refused(USAGE, ["replace", "data", hdd1, hdd0], "already")
    larder("replace", "data", hdd1, hdd2)
    assert members() == {str(hdd0): "active", str(hdd2): "active"}
    unsigned(hdd1)
    want(hdd2)
    refused(UNSAFE, ["drop", "data", hdd0], "LOST")
    refused(UNSAFE, ["drop", "data", hdd2], "LOST")
    larder("drop", "data", hdd2, "--discard-redundancy", uuid)
    assert {device: state for device, state in members().items() if device} == {str(hdd0): "active"}
    unsigned(hdd2)
    check([0])


@pytest.fixture
def larger_blocks(tmp_path):
    """A disk whose logical blocks are of 4096 bytes."""
    image = tmp_path / "4kn"
    with open(image, "wb") as f:
        f.truncate(64 << 20)
    command.run("modprobe", "loop")
    loop = command.output("losetup", "--find", "--show", "--sector-size", 4096, image).strip()
    yield loop
    command.run("losetup", "--detach", loop)


def test_disk_with_larger_blocks(disks, larger_blocks):
    """md would take it, and nothing upon the array could be mounted any more.  With dm-integrity they are that large anyhow."""
    ssd0, ssd1, _, hdd0, hdd1, hdd2 = disks
    parts = (larger_blocks, "logical block size", "4096", "512")
    spared = [*words([*disks[:2], *disks[3:5]]), "--spare", larger_blocks, "--dry-run"]
    refused(FAILED, spared, *parts)
    if not command.run("modprobe", "dm-integrity", check=False).returncode:
        larder(*spared, "--integrity")
    make(disks)
    write(0)
    for more in ([], ["--dry-run"]):
        refused(FAILED, ["replace", "data", hdd1, larger_blocks, *more], *parts)
        refused(FAILED, ["add", "data", "--backing", larger_blocks, *more], *parts)
        refused(FAILED, ["add", "data", "--backing", larger_blocks, "--spare", *more], *parts)
    assert len(members()) == 2 and not BlockDevice(larger_blocks).read(0, 8192).strip(b"\0")
    remove()
    backing = [w for d in (hdd0, larger_blocks) for w in ("--backing", d)]
    larder("create", "data", *backing, "--raid", "1", "--cache", ssd0, "--cache", ssd1)
    larder("replace", "data", larger_blocks, hdd2)
    larder("replace", "data", hdd2, larger_blocks)
    remove()


def test_parts_of_one_disk(disks, tmp_path):
    """No second one joins; but one takes the place of the other."""
    ssd0, ssd1, _, hdd0, hdd1, _ = disks
    larder("create", "data", "--backing", hdd0, "--backing", hdd1, "--raid", "1", "--cache", ssd0, "--cache", ssd1)
    with disk_in_two(tmp_path, 48) as (_, parts):
        larder("replace", "data", hdd1, parts[0])
        for words in (["add", "data", "--backing", parts[1]], ["replace", "data", hdd0, parts[1]]):
            for more in ([], ["--dry-run"]):
                refused(USAGE, [*words, *more], *parts, "are parts of one disk", "give another disk")
        unsigned(parts[1])
        larder("replace", "data", parts[0], parts[1])
        assert members() == dict.fromkeys(map(str, (hdd0, parts[1])), "active")
        larder("replace", "data", parts[1], hdd1)


@pytest.mark.limit(900)
def test_power_cuts_in_replace(disks, tmp_path, seed):
    """Before and after each step."""
    _, _, _, hdd0, old, new = disks
    make(disks)
    load = Load()
    for i, step in enumerate(REPLACE):
        cut_off(disks, tmp_path, step, load, seed + i, "replace", "data", old, new)
        larder("replace", "data", old, new)
        assert members() == {str(hdd0): "active", str(new): "active"}, step
        unsigned(old)
        load.check()
        old, new = new, old
    alone(load, hdd0)


def test_ssd_is_replaced(disks):
    """One that works is drained; one that failed is not; killed at some moment, the same command ends it."""
    ssd0, ssd1, ssd2, *_ = disks
    make(disks)
    load, before = Load(), generation()
    for more in ["--dry-run"], []:  # one of those that are to stay
        refused(UNSAFE, ["replace", "data", ssd1, ssd0, *more], ssd0, "already", f"larder drop data {ssd1}")
    assert states() == "active/active" and ssds() == {str(ssd0), str(ssd1)}
    with load:
        larder("replace", "data", ssd0, ssd2, "--dry-run")
        assert ssds() == {"/dev/ssd0", "/dev/ssd1"}
        larder("replace", "data", ssd0, ssd2)
        assert ssds() == {"/dev/ssd1", "/dev/ssd2"} and generation() > before
        unsigned(ssd0)
        kill(ssd1)
        cache = dm.DmDevice("larder-cache-data")
        wait_for(lambda: " devices_failed=1 " in cache.status_line(), 60, "the set to see it")
        refused(UNSAFE, ["replace", "data", ssd1, ssd2], ssd2, "already", f"larder drop data {ssd1}")
        larder("replace", "data", ssd1, ssd0)
        assert ssds() >= {"/dev/ssd0", "/dev/ssd2"}
    ssd1.heal()
    load.check()
    old, new = ssd0, ssd1
    with load:
        for tenths in (1, 2, 4, 8, 16):
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.run("larder", "replace", "data", old, new, check=False, seconds=tenths / 10)
            larder("replace", "data", old, new)
            assert ssds() == {"/dev/ssd2", str(new)}
            unsigned(old)
            old, new = new, old
    load.check()
    alone(load, disks[3], ssd2)


def test_ssd_fails_as_the_new_one_joins(disks):
    """It was to be drained, and NEW has a place of its own: that of OLD is given up, and nothing is missed there."""
    ssd0, _, ssd2, *_ = disks
    make(disks)
    load = Load()
    with load:
        wait_for(lambda: len(load.known) > 3, 60, "a load")
        larder("replace", "data", ssd0, ssd2, "--no-wait")
        kill(ssd0)
        wait_for(lambda: states().startswith("failed/"), 60, "the cache to see it")
        assert "cache remove" in larder("replace", "data", ssd0, ssd2, "--dry-run").stdout
        larder("replace", "data", ssd0, ssd2)
        assert states() == "removed/active/active"
    status = dm.DmDevice("larder-cache-data").status
    wait_for(lambda: (s := status())["trouble"] == "-" and not s["single_sectors"], 120, "the second copies")
    assert not status()["devices_failed"]
    larder("stop", "data")
    larder("start", "data")
    load.check()
    ssd0.heal()


def test_disks_come_and_go(disks):
    """A mirror of three, and of two again; a spare that takes the place of one that dies; what needs a word for it."""
    _, _, _, hdd0, hdd1, hdd2 = disks
    make(disks)
    load = Load()
    with load:
        assert "--raid-devices=3" in larder("add", "data", "--backing", hdd2, "--dry-run").stdout and len(members()) == 2
        larder("add", "data", "--backing", hdd2)
        assert members() == dict.fromkeys(map(str, (hdd0, hdd1, hdd2)), "active")
        assert "already" in larder("add", "data", "--backing", hdd2).stdout
        assert "--raid-devices=2" in larder("drop", "data", hdd1, "--dry-run").stdout and len(members()) == 3
        refused(USAGE, ["drop", "data", "disk1"], hdd1)
        larder("drop", "data", hdd1)
        unsigned(hdd1)
    larder("stop", "data")
    larder("start", "data")
    load.check()
    assert members() == {str(hdd0): "active", str(hdd2): "active"}
    with load:
        larder("add", "data", "--backing", hdd1, "--spare")
        assert members()[str(hdd1)] == "spare" and "fine; 1 spare disk" in larder("status", "data").stdout
        refused(BUSY, ["drop", "data", hdd2], "larder replace data")
        kill(hdd2)
        wait_for(lambda: members().get(str(hdd1)) == "active", 60, "the spare to take its place")
        assert "zero-superblock" in larder("drop", "data", hdd2).stderr
    hdd2.heal()
    assert members() == {str(hdd0): "active", str(hdd1): "active", str(hdd2): "left"}
    larder("drop", "data", hdd2)
    unsigned(hdd2)
    uuid = rows()["stack"]["uuid"]
    refused(UNSAFE, ["drop", "data", hdd1], "LOST", f"--discard-redundancy {uuid}")
    refused(UNSAFE, ["drop", "data", hdd1, "--discard-redundancy", "11111111-2222-4333-8444-555555555555"], uuid)
    larder("drop", "data", hdd1, "--discard-redundancy", uuid)
    assert "1 of 2 disks" in larder("status", "data", code=DEGRADED).stdout
    refused(UNSAFE, ["drop", "data", hdd0, "--discard-redundancy", uuid], "would fail")
    refused(UNSAFE, ["add", "data", "--backing", hdd1], "lacks a disk")
    refused(NOT_FOUND, ["drop", "data", "disk1"], "missing already")
    larder("replace", "data", "disk1", hdd1)
    load.check()
    alone(load, hdd0)


@pytest.mark.limit(900)
@pytest.mark.parametrize("way", ["killed", "cut"])
def test_add_and_drop_cut_short(disks, tmp_path, seed, way):
    """Before and after each step of a mirror that gets a third disk, and loses it; the same command ends it."""
    _, _, _, hdd0, hdd1, hdd2 = disks
    make(disks)
    load = Load()
    for i, step in enumerate(DROP):
        words = ["add", "data", "--backing", hdd2]
        if i < len(ADD) and way == "killed":
            killed(tmp_path, ADD[i], *words)
        elif i < len(ADD):
            cut_off(disks, tmp_path, ADD[i], load, seed + i, *words)
        larder(*words)
        assert members() == dict.fromkeys(map(str, (hdd0, hdd1, hdd2)), "active"), step
        for _ in range(5):
            load.one()
        words = ["drop", "data", hdd2]
        if way == "killed":
            killed(tmp_path, step, *words)
        else:
            cut_off(disks, tmp_path, step, load, seed + i, *words)
        run = command.run("larder", *words, check=False)
        # nothing told of it any more
        over = run.returncode == NOT_FOUND and step[0] == "--zero-superblock"
        assert over or not run.returncode, run.stderr
        assert members() == {str(hdd0): "active", str(hdd1): "active"}, step
        unsigned(hdd2)
        load.check()
    alone(load, hdd0)


def torn(disk, places, up=0, behind=1):
    """Its superblock as it was while the array had so many places, and its disks were that far up in them.

    By the layout of linux/raid/md_p.h."""
    sb = bytearray(disk.read(8, 8))
    (events,), (most,) = struct.unpack_from("<Q", sb, 200), struct.unpack_from("<I", sb, 220)
    struct.pack_into("<I", sb, 92, places)
    struct.pack_into("<Q", sb, 200, events - behind)
    for at in range(256, 256 + 2 * most, 2):
        role = struct.unpack_from("<H", sb, at)[0] + up
        if role < 64 + up:
            struct.pack_into("<H", sb, at, role if role < places else 0xFFFF)
    struct.pack_into("<I", sb, 216, 0)  # its checksum
    size = 256 + 2 * most
    total = sum(struct.unpack_from(f"<{size // 4}I", sb))
    total += struct.unpack_from("<H", sb, size - 2)[0] if size % 4 else 0
    struct.pack_into("<I", sb, 216, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)
    disk.write(8, bytes(sb))
    assert "correct" in command.output("mdadm", "--examine", disk)


@pytest.mark.limit(600)
def test_superblocks_of_different_shape(disks):
    """As a power cut between the superblocks of a grow leaves them: it starts, without a word, and all are in it in the end."""
    _, _, _, hdd0, hdd1, hdd2 = disks
    make(disks)
    load = Load()
    with load:
        larder("add", "data", "--backing", hdd2)
    larder("stop", "data")
    torn(hdd1, 2)  # it got a third
    alone_by_mdadm = command.run("mdadm", "--assemble", "/dev/md/torn", hdd0, hdd1, hdd2, check=False)
    assert alone_by_mdadm.returncode and "match others" in alone_by_mdadm.stderr and not arrays()
    said = larder("start", "data").stdout
    assert str(hdd1) in said and "taken back" in said
    load.check()
    wait_for(lambda: members() == dict.fromkeys(map(str, (hdd0, hdd1, hdd2)), "active"), 120, "all to be in it")
    with load:
        larder("drop", "data", hdd0)
    larder("stop", "data")
    torn(hdd2, 3, up=1)  # it lost one, and the others moved up
    said = larder("start", "data").stdout
    assert str(hdd2) in said and "taken back" in said
    load.check()
    two = {str(hdd1): "active", str(hdd2): "active"}
    wait_for(lambda: members() == two, 120, "both to be in it")
    alone(load, hdd1)
    larder("start", "data")
    load.check()
    wait_for(lambda: members() == two, 120, "both to be in it")
    larder("stop", "data")
    torn(hdd2, 3, up=1, behind=5)  # that is no cut: one that was away, and what the other one has had since
    refused(UNSAFE, ["start", "data"], hdd2, "another shape", "--degraded")
    larder("start", "data", "--degraded")
    load.check()
    wait_for(lambda: members() == two, 120, "both to be in it")
    alone(load, hdd1)


@pytest.mark.limit(1500)
def test_power_cuts_in_a_grow(disks, tmp_path, seed):
    """At the N-th write of all devices from the beginning of mdadm's grow on; the test above has the state in between."""
    _, _, _, hdd0, hdd1, hdd2 = disks
    make(disks)
    load = Load()
    for after in range(1, 13):
        words = ["add", "data", "--backing", hdd2] if after % 2 else ["drop", "data", hdd2]
        for _ in range(3):
            load.one()
        cut = f"echo powercut all mode=keep seed={seed} after={after} ops=write >/sys/kernel/debug/simdisk/ctl"
        with mdadm(tmp_path, "--grow", "before", cut):
            larder(*words, code=None)
        if any(d.state()["power"] != "off" for d in disks):
            simdisk.power_cut(mode="random", seed=seed)
        release()
        simdisk.power_up()
        larder("start", "data")
        load.check()
        # not while what it lacks is copied
        wait_for(lambda words=words: not larder(*words, code=None).returncode, 120, "the array to be idle")
        there = (hdd0, hdd1, hdd2) if after % 2 else (hdd0, hdd1)
        wait_for(lambda there=there: members() == dict.fromkeys(map(str, there), "active"), 120, "all to be in it")
        load.check()
    alone(load, hdd0)


def test_ssds_come_and_go(disks):
    """Killed at some moment, the same command ends it; the last but one needs a word, the last one stays."""
    ssd0, ssd1, ssd2, *_ = disks
    make(disks)
    load = Load()
    with load:
        for tenths in (1, 4, 16):
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.run("larder", "add", "data", "--cache", ssd2, check=False, seconds=tenths / 10)
            larder("add", "data", "--cache", ssd2)
            assert ssds() == {str(ssd0), str(ssd1), str(ssd2)}
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.run("larder", "drop", "data", ssd2, check=False, seconds=tenths / 10)
            if str(ssd2) in ssds():
                larder("drop", "data", ssd2)
            assert ssds() == {str(ssd0), str(ssd1)}
            unsigned(ssd2)
        uuid = rows()["stack"]["uuid"]
        refused(UNSAFE, ["drop", "data", "ssd1"], "LOST", f"--discard-redundancy {uuid}")
        larder("drop", "data", "ssd1", "--discard-redundancy", uuid)
        refused(UNSAFE, ["drop", "data", ssd0, "--discard-redundancy", uuid], "last SSD")
        larder("add", "data", "--cache", ssd1)
    larder("stop", "data")
    larder("start", "data")
    load.check()
    # all that is dirty gets its second copy again
    wait_for(lambda: "fine" in larder("status", "data", code=None).stdout, 120, "the second copies")


@contextlib.contextmanager
def larderd(directory, wait):
    """With what it says.  It uses what udev has marked."""
    log, marking = directory / "larderd.log", udevd()
    marking.__enter__()
    try:
        command.run("udevadm", "trigger", "--settle", "--subsystem-match=block")
        with open(log, "ab") as out, subprocess.Popen(["larderd", "--wait", str(wait)], stderr=out) as daemon:
            try:
                yield log.read_text
            finally:
                daemon.terminate()
    finally:
        marking.__exit__(None, None, None)


def wait_said(said, text):
    try:
        wait_for(lambda: text in said(), 120, f"larderd to say: {text}")
    except AssertionError as e:
        plan = command.run("larder", "assemble", rows()["cache"]["uuid"], "--degraded", "--dry-run", check=False)
        raise AssertionError(f"{e}; it said:\n{said()}and the plan is:\n{plan.stdout}{plan.stderr}") from None


def states():
    return dm.DmDevice("larder-cache-data").status()["ssds"]


def is_whole():
    status = dm.DmDevice("larder-cache-data").status()
    return status["ssds"] == "active/active" and status["trouble"] == "-"


def test_tiers(disks):
    """One SSD takes the writes, one the copies, by their labels: one that comes later is what its label says."""
    ssd0, ssd1, ssd2, hdd0, hdd1, _ = disks
    tiers = ["--cache-label", "nvme", "--cache-label", "sata.a", "--backing-label", "hdd"]
    tiers += ["--foreground", "nvme", "--promote", "sata", "--background", "hdd"]
    larder(*words([ssd0, ssd1, hdd0, hdd1]), *tiers)

    def seen(name="data"):
        given = "layer,number,type,label,foreground,promote,background"
        found = json.loads(larder("show", name, "-o", given, "--reportformat", "json").stdout)["stacks"]
        (volume,) = [r for r in found if r["layer"] == "volume"]
        assert {r["label"] for r in found if r["layer"] == "disk"} == {"hdd"}
        assert volume["type"] == "writeback"
        ssds = {r["number"]: (r["label"], r["type"]) for r in found if r["layer"] == "ssd"}
        return ssds, tuple(volume[x] for x in ("foreground", "promote", "background"))

    def roles():
        return dm.DmDevice("larder-cache-data").status()["roles"]

    assert seen() == ({"ssd0": ("nvme", "write"), "ssd1": ("sata.a", "read")}, ("nvme", "sata.a", "hdd"))
    assert roles() == "write/read"
    with Load() as load:
        add = ["add", "data", "--cache", ssd2, "--cache-label", "sata.b"]
        assert "label of SSD 2: sata.b" in larder(*add, "--dry-run").stdout
        larder(*add)
        assert roles() == "write/read/read"
        assert seen()[1] == ("nvme", "sata", "hdd")
        larder("drop", "data", "ssd1")
        larder("replace", "data", "ssd0", ssd1, "--yes")
        ssds, targets = seen()
        assert targets == ("nvme", "sata.b", "hdd") and sorted(ssds.values()) == [("nvme", "write"), ("sata.b", "read")]
        larder("cache", "label", "data", ssd2, "sata")
        assert seen()[1] == ("nvme", "sata", "hdd")
    larder("stop", "data")
    larder("rename", "data", "films")
    larder("start", "films")
    assert seen("films") == ({k: (v[0].partition(".")[0], v[1]) for k, v in ssds.items()}, ("nvme", "sata", "hdd"))
    load.check()
    new = ["create", "new", "--backing", ssd0, "--cache", "films", "--foreground", "sata", "--promote", "sata", "--dry-run"]
    refused(USAGE, new, "role write")
    larder("remove", "films", "--discard-data", rows("films")["stack"]["uuid"])
    assert not arrays() and not dm.names()


def test_spare_ssd(disks, tmp_path):
    """Through a stop it waits; one that dies under load is waited for; then the spare has all that is dirty, alone."""
    ssd0, ssd1, ssd2, _, _, hdd2 = disks
    make(disks)
    load = Load()
    assert "becomes a spare" in larder("add", "data", "--cache", ssd2, "--spare", "--dry-run").stdout
    unsigned(ssd2)
    larder("add", "data", "--cache", ssd2, "--spare")
    spare = ssd2.read(0, 16384)
    assert "already" in larder("add", "data", "--cache", ssd2, "--spare").stdout and ssd2.read(0, 16384) == spare
    refused(BUSY, ["add", "data", "--cache", ssd1, "--spare"], "is no spare while it is in the set")
    larder("drop", "data", ssd2)
    unsigned(ssd2)
    larder("add", "data", "--cache", ssd2, "--spare")
    larder("stop", "data")
    larder("start", "data")
    assert members()[str(ssd2)] == "spare" and "fine; 1 spare SSD" in larder("status", "data").stdout
    with larderd(tmp_path, 86400) as said, load:
        wait_for(lambda: len(load.known) > 3, 60, "a load")
        kill(ssd1)
        wait_said(said, "waits, in case that comes back")
        assert states() == "active/failed" and members()[str(ssd2)] == "spare"
        refused(UNSAFE, ["cache", "replace", "larder-cache-data", "1", hdd2, "--spare"], "is no spare")
        refused(BUSY, ["cache", "replace", "larder-cache-data", "0", ssd2, "--spare"], "is in use")
    with larderd(tmp_path, 1) as said, load:
        wait_said(said, "takes its place")
        wait_for(is_whole, 300, "the second copies")
    assert said().count("takes its place") == 1, said()
    assert str(ssd2) in ssds()
    assert "spare SSD" not in command.run("larder", "status", "data", check=False).stdout
    load.check()
    alone(load, ssd0, ssd1)


@pytest.mark.limit(900)
@pytest.mark.parametrize("when", ["before", "after"])
def test_spare_ssd_is_cut_off(disks, tmp_path, seed, when):
    """By power, at the command that uses it: larderd ends that behind the next start, and the spare has everything alone."""
    ssd0, ssd1, ssd2, *_ = disks
    make(disks)
    larder("add", "data", "--cache", ssd2, "--spare")
    load, path = Load(), os.environ["PATH"]
    mode = ("lose", "random")[seed % 2]
    cut = f"echo powercut all mode={mode} seed={seed} >/sys/kernel/debug/simdisk/ctl"
    with contextlib.suppress(AssertionError), load:
        wait_for(lambda: len(load.known) > 3, 60, "a load")
        kill(ssd1)
        wait_for(lambda: states() == "active/failed", 60, "the cache to see it")
        program = tmp_path / "larder"
        lines = ["#!/bin/sh", cut if when == "before" else "", f'{shutil.which("larder")} "$@"', "code=$?", cut, "exit $code", ""]
        program.write_text("\n".join(lines))
        program.chmod(0o755)
        os.environ["PATH"] = f"{tmp_path}:{path}"
        try:
            with larderd(tmp_path, 1):
                wait_for(lambda: ssd0.state()["power"] == "off", 120, "larderd to use it")
        finally:
            os.environ["PATH"] = path
    assert ssd0.state()["power"] == "off"
    release()
    simdisk.power_up()
    load.error = None
    larder("start", "data", "--degraded")
    load.check(cut=True)
    for name in load.begun:
        load.known.pop(name, None)
    with larderd(tmp_path, 1), load:
        wait_for(is_whole, 300, "the second copies")
    assert str(ssd2) in ssds()
    load.check()
    alone(load, ssd0, ssd1)


def test_refused_disks(disks, make_disk):
    """Before anything is changed."""
    ssd0, _, ssd2, hdd0, hdd1, hdd2 = disks
    make(disks)
    small = make_disk("small", model="null", mb=8, wce=1)
    before = hdd2.read(0, 8192)
    refused(USAGE, ["replace", "data", hdd1, hdd1], "given twice")
    refused(USAGE, ["replace", "data", hdd1, hdd0], "already")
    refused(BUSY, ["replace", "data", hdd1, ssd0], "in use")
    refused(NOT_FOUND, ["replace", "data", hdd2, ssd2], "disk1 or ssd0")
    refused(NOT_FOUND, ["replace", "data", "disk2", hdd2], "disk1 or ssd0")
    refused(FAILED, ["replace", "data", hdd1, small], "too small")
    refused(FAILED, ["add", "data", "--backing", small], "too small")
    command.run("mkfs.ext4", "-q", hdd2)
    before = hdd2.read(0, 8192)
    refused(UNSAFE, ["replace", "data", hdd1, hdd2], "ext4", "--wipe")
    refused(UNSAFE, ["add", "data", "--backing", hdd2], "ext4", "--wipe")
    refused(UNSAFE, ["add", "data", "--cache", hdd2], "ext4", "--wipe")
    assert hdd2.read(0, 8192) == before and len(members()) == 2 and len(ssds()) == 2
    remove()
    for raid, why in (("0", "RAID 0"), ("none", "no array")):
        backing = [w for d in ((hdd0, hdd1) if raid == "0" else (hdd0,)) for w in ("--backing", d)]
        larder("create", "data", *backing, "--raid", raid, "--cache", ssd0)
        refused(USAGE, ["add", "data", "--backing", hdd2, "--wipe"], why)
        refused(UNSAFE, ["drop", "data", ssd0], "last SSD")
        if raid == "0":
            refused(USAGE, ["replace", "data", hdd0, hdd2, "--wipe"], why)
        remove()
