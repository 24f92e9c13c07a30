# SPDX-License-Identifier: GPL-2.0-or-later
"""Stacks with dm-integrity below each leg of the array: what a disk returns wrong in silence is read right, and repaired."""

import fcntl
import os
import re
import subprocess
from pathlib import Path

import pytest
from lib import command, dm, simdisk
from lib.larder import wait_for
from lib.sets import kill
from lib.stacks import (
    CONTENT,
    DEGRADED,
    DONE,
    FAILED,
    MOUNTED,
    NAME,
    NOT_FOUND,
    UNSAFE,
    USAGE,
    arrays,
    larder,
    listed,
    mdadm,
    nothing_left,
    prepare,
    refused,
    release,
    remove,
    rows,
    write,
)

BLOCK = 4096
NUMBERS = range(4)


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    """Two SSDs, three disks."""
    for module in ("dm-integrity", "raid456"):
        if command.run("modprobe", module, check=False).returncode:
            pytest.skip(f"this kernel has no {module}")
    kernel_log.expect("md/raid|md:|[Ii]ntegrity|INTEGRITY|AEAD|Buffer I/O|I/O error|read error corrected")
    for given in prepare(make_disk, monkeypatch, kernel_log, mb=48):
        yield [*given, make_disk("hdd2", model="null", mb=56, wce=1)]


def words(disks, level="1"):
    """Nothing is read from the SSDs that was not read from the disks before."""
    backing = [w for d in used(disks, level) for w in ("--backing", d)]
    made = ["create", "data", *backing, "--raid", level, "--integrity", "--cache", disks[0], "--cache", disks[1]]
    return [*made, "--mode", "writearound", "--mkfs", "ext4", "--mount", MOUNTED]


def used(disks, level="1"):
    return disks[2 : 4 if level == "1" else 5]


def legs():
    return [n for n in dm.names() if n.startswith("larder-leg-")]


def array():
    return Path("/sys/block") / Path(arrays()[0]).name / "md"


def settled():
    """All sums are there, and the array is whole."""
    return "computed to" not in larder("status", "data", code=None).stdout and rows()["array"]["state"] == "active"


def of_array():
    """Its disks, by path, as far as they are there: the state of each."""
    return {r["device"]: r["state"] for r in listed() if r["layer"] in ("disk", "spare") and r["device"]}


def scrub(how):
    (array() / "sync_action").write_text(how)
    wait_for(lambda: (array() / "sync_action").read_text() == "idle\n", 300, f"the {how}")


def content(number):
    """Of one file: nothing else on a disk has it, and no two blocks of it are the same."""
    return b"".join((b"%d.%d " % (number, i) + CONTENT)[:BLOCK].ljust(BLOCK, b".") for i in range(16))


def fill():
    for number in NUMBERS:
        write(number, content(number))


def make(disks):
    """A mirror with files, all of which have sums."""
    larder(*words(disks))
    fill()
    wait_for(settled, 300, "the sums")


def read():
    Path("/proc/sys/vm/drop_caches").write_text("3")
    for number in NUMBERS:
        assert (MOUNTED / f"{NAME}-{number}").read_bytes() == content(number), number


def places(disk, number):
    """Where blocks of that file lie on the raw disk."""
    raw = Path(f"/dev/{disk.name}").read_bytes()
    blocks = {content(number)[i : i + BLOCK] for i in range(0, len(content(number)), BLOCK)}
    return [at for at in range(0, len(raw), BLOCK) if raw[at : at + BLOCK] in blocks]


def spoil(disk, at):
    """By somebody who knows nothing of dm-integrity."""
    with open(f"/dev/{disk.name}", "r+b") as f:
        for place in at:
            f.seek(place)
            f.write(b"spoilt" + os.urandom(BLOCK - 6))
        f.flush()
        os.fsync(f.fileno())


def spoilt(disk):
    Path("/proc/sys/vm/drop_caches").write_text("3")
    return Path(f"/dev/{disk.name}").read_bytes().count(b"spoilt")


def reads_without(disk):
    """The others have all of it; then it is well again, and the stack is stopped."""
    larder("stop", "data")
    kill(disk)
    larder("start", "data", "--degraded")
    read()
    larder("stop", "data")
    disk.heal()


@pytest.mark.limit(900)
@pytest.mark.parametrize("level", ["1", "5"])
def test_wrong_in_silence(disks, level):
    """Made, stopped, started; what is written to a disk behind dm-integrity's back is not read, and is repaired."""
    hdds = used(disks, level)
    plan = larder(*words(disks, level), "--dry-run").stdout
    assert "crc32c of each 4 KiB" in plan and not dm.names()
    larder(*words(disks, level))
    assert len(legs()) == len(hdds)
    assert int((array() / "max_read_errors").read_text()) >= 1000000
    fill()
    wait_for(settled, 300, "sums and parity")
    assert of_array() == dict.fromkeys(map(str, hdds), "active")
    assert "integrity: crc32c" in larder("status", "data").stdout

    larder("stop", "data")
    assert not dm.names() and not arrays()
    assert rows()["stack"]["state"] == "stopped"
    spoilt_on = []
    for number in NUMBERS:
        found = [(d, places(d, number)) for d in hdds]
        disk, at = found[number] if level == "1" and number < 2 else max(found, key=lambda x: len(x[1]))
        assert len(at) == 16, f"{disk.name} has {len(at)} blocks of file {number}"
        if disk not in spoilt_on[:-1]:  # of one disk in each stripe, or nothing could be repaired
            spoil(disk, at)
            spoilt_on.append(disk)
    assert spoilt_on and any(map(spoilt, hdds))

    larder("start", "data")
    assert int((array() / "max_read_errors").read_text()) >= 1000000
    read()
    scrub("repair")
    assert "read wrong" in larder("status", "data").stdout
    assert set(of_array().values()) == {"active"}, "a disk has failed"
    read()
    larder("stop", "data")
    larder("start", "data")
    scrub("check")
    assert "read wrong" not in larder("status", "data").stdout, "was not repaired"
    read()
    remove()
    nothing_left(disks)


@pytest.mark.limit(900)
def test_legs_are_made_in_turn(disks):
    """Not beside a pass of larderd, which would take one that has no table yet for what somebody left behind."""
    larder(*words(disks))
    larder("stop", "data")
    with open("/run/larder/lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start = subprocess.Popen(["larder", "start", "data"])
        waits = re.compile(rf"-> FLOCK .* {start.pid} ")
        wait_for(lambda: waits.search(Path("/proc/locks").read_text()), 300, "it to wait for its turn")
        assert not dm.names()
    assert start.wait(300) == 0 and len(legs()) == 2
    remove()
    nothing_left(disks)


@pytest.mark.limit(900)
def test_a_disk_is_away(disks):
    """Refused, then degraded by word; the disk that comes back gets what it lacks, and is alone what all was."""
    hdd0, hdd1 = used(disks)
    larder(*words(disks))
    wait_for(settled, 300, "the sums")
    larder("stop", "data")
    kill(hdd1)
    refused(FAILED, ["start", "data"], "assembled from 1 drive")
    assert not dm.names() and not arrays(), "what was begun is left"
    larder("start", "data", "--degraded")
    assert "1 of 2 disks missing" in larder("status", "data", code=DEGRADED).stdout
    fill()
    larder("stop", "data")
    assert not dm.names()

    hdd1.heal()
    larder("start", "data", "--degraded")
    wait_for(lambda: set(of_array().values()) == {"active"} and settled(), 300, "the disk to have all")
    assert larder("status", "data").returncode == DONE
    reads_without(hdd0)


@pytest.mark.limit(900)
def test_a_disk_is_taken_back_by_word(disks):
    """It was not here at the start, so that nobody has started its leg, and no larderd does; not one that was never in it."""
    hdd0, hdd1, hdd2 = disks[2:]
    larder(*words(disks))
    wait_for(settled, 300, "the sums")
    larder("stop", "data")
    kill(hdd1)
    larder("start", "data", "--degraded")
    fill()
    hdd1.heal()
    assert len(legs()) == 1
    refused(UNSAFE, ["start", "data", "--take-back", hdd2], "was no disk")
    assert "is taken back" in larder("start", "data", "--take-back", hdd1).stdout
    wait_for(lambda: of_array() == dict.fromkeys(map(str, (hdd0, hdd1)), "active") and settled(), 300, "the disk to have all")
    reads_without(hdd0)


@pytest.mark.limit(900)
def test_a_disk_is_away_and_back_elsewhere(disks):
    """Gone while the array runs, and here again as another device: what it left is taken out of md, and it has what it lacked."""
    hdd1 = used(disks)[1]

    def device(name, target=f"linear {hdd1} 0"):
        table = f"0 {hdd1.sectors} {target}"
        if name in dm.names():
            command.run("dmsetup", "suspend", "--noflush", "--nolockfs", name)
            command.run("dmsetup", "load", name, "--table", table)
            command.run("dmsetup", "resume", name)
        else:
            command.run("dmsetup", "create", name, "--table", table)
        return f"/dev/mapper/{name}"

    made = words(disks)
    made[made.index(hdd1)] = device("there")
    larder(*made)
    fill()
    wait_for(settled, 300, "the sums")
    device("there", "error")
    write(9, content(9))
    os.sync()
    wait_for(lambda: "failed" in of_array().values(), 60, "the array to see it")
    device("elsewhere")
    before = set(legs())
    larder("start", "data")
    assert set(legs()) == before and "failed" not in of_array().values(), "what it left is still in the array"
    wait_for(lambda: list(of_array().values()) == ["active", "active"] and settled(), 300, "the disk to have all")
    read()
    larder("stop", "data")
    kill(used(disks)[0])
    larder("start", "data", "--degraded")
    read()
    assert (MOUNTED / f"{NAME}-9").read_bytes() == content(9)
    larder("stop", "data")


@pytest.mark.limit(900)
def test_disks_come_and_go(disks):
    """Replaced, one more mirror, dropped: who leaves carries nothing, and who joins has dm-integrity."""
    hdd0, hdd1, hdd2 = disks[2:]
    make(disks)
    said = larder("replace", "data", hdd1, hdd2, "--dry-run").stdout
    assert "gets a copy" in said and not command.run("blkid", "-p", hdd2, check=False).stdout
    larder("replace", "data", hdd1, hdd2)
    assert of_array() == dict.fromkeys(map(str, (hdd0, hdd2)), "active") and len(legs()) == 2
    assert not command.run("wipefs", "--no-act", "--noheadings", hdd1).stdout
    larder("probe", hdd1, code=NOT_FOUND)
    larder("add", "data", "--backing", hdd1)
    assert of_array() == dict.fromkeys(map(str, (hdd0, hdd1, hdd2)), "active") and len(legs()) == 3
    kill(hdd0)
    (MOUNTED / "x").write_text("x")
    os.sync()
    wait_for(lambda: "failed" in of_array().values(), 60, "the array to see it")
    said = larder("drop", "data", hdd0).stderr
    assert f"larder super wipe {hdd0}" in said, "it cannot be written to, and still looks like a disk of the stack"
    assert of_array() == dict.fromkeys(map(str, (hdd1, hdd2)), "active") and len(legs()) == 2
    hdd0.heal()
    larder("super", "wipe", hdd0, "--yes")
    refused(USAGE, ["resize", "data", "--array", "--yes"], "dm-integrity", "nothing was changed")
    larder("stop", "data")
    for old, new in (("data", "more"), ("more", "data")):
        larder("rename", old, new)
        assert not dm.names() and rows(new)["stack"]["state"] == "stopped"
    larder("start", "data")
    read()
    wait_for(settled, 300, "the sums")
    remove()


@pytest.mark.limit(900)
def test_a_disk_that_is_only_marked(disks):
    """As where `replace` or `add` was cut off: the stack starts, and is renamed, without it, and the same command ends it."""
    hdd0, hdd1, hdd2 = disks[2:]
    make(disks)
    mark = Path(hdd1).read_bytes()[: 1 << 20]
    larder("replace", "data", hdd1, hdd2)
    with open(hdd1, "r+b") as disk:
        disk.write(mark)
    larder("stop", "data")
    for old, new in (("data", "more"), ("more", "data")):
        larder("rename", old, new)
    assert f"{hdd1}: is marked as a disk of the stack data" in larder("start", "data").stderr
    assert of_array() == {str(hdd0): "active", str(hdd1): "left", str(hdd2): "active"}
    read()
    larder("add", "data", "--backing", hdd1)
    assert of_array() == dict.fromkeys(map(str, (hdd0, hdd1, hdd2)), "active") and len(legs()) == 3
    read()
    remove()


@pytest.mark.limit(900)
def test_a_disk_that_did_not_join(disks, make_disk, tmp_path):
    """mdadm refuses it, and nothing of it is left; killed before that, `show` has it, and `drop` takes it alone."""
    hdd1, hdd2 = disks[3:]
    hdd3 = make_disk("hdd3", model="null", mb=56, wce=1)
    make(disks)
    replace, add = ["replace", "data", hdd1, hdd3], ["add", "data", "--backing", hdd3]
    with mdadm(tmp_path, "--add", "before", "exit 1"):
        for given in (replace, add):
            refused(FAILED, given, "mdadm cannot add it")
            assert len(legs()) == 2 and not command.run("blkid", "-p", hdd3, check=False).stdout
            larder("probe", hdd3, code=NOT_FOUND)
    larder("add", "data", "--backing", hdd2)
    kill(hdd1)
    (MOUNTED / "x").write_text("x")
    os.sync()
    wait_for(lambda: "failed" in of_array().values(), 60, "the array to see it")
    with mdadm(tmp_path, "--add", "before", "kill -9 $PPID; exit 1"):
        assert command.run("larder", *replace, check=False).returncode == -9
    assert of_array()[str(hdd3)] == "left" and len(legs()) == 4
    assert "has 2 disks then" not in larder("drop", "data", hdd3).stdout
    assert (array() / "raid_disks").read_text() == "3\n" and str(hdd3) not in of_array() and len(legs()) == 3
    assert not command.run("blkid", "-p", hdd3, check=False).stdout
    hdd1.heal()
    larder("drop", "data", hdd1)
    read()
    remove()


@pytest.mark.limit(900)
def test_a_disk_that_is_half_erased(disks):
    """Killed as OLD loses what is on it: it is marked yet, and the same `replace`, or `drop`, ends that."""
    hdd0, hdd1, hdd2 = disks[2:]
    make(disks)
    mark = Path(hdd1).read_bytes()[: 1 << 20]
    given = ["replace", "data", hdd1, hdd2]
    larder(*given)
    for words_ in (given, ["drop", "data", hdd1]):
        with open(hdd1, "r+b") as disk:
            disk.write(mark)
        assert of_array()[str(hdd1)] == "left"
        larder(*words_)
        assert of_array() == dict.fromkeys(map(str, (hdd0, hdd2)), "active") and len(legs()) == 2
        larder("probe", hdd1, code=NOT_FOUND)
    read()
    remove()


@pytest.mark.limit(900)
def test_a_disk_that_failed_is_replaced_by_its_number(disks):
    """Nothing of it is left, neither in the array nor below that."""
    hdd0, hdd1, hdd2 = disks[2:]
    make(disks)
    kill(hdd1)
    (MOUNTED / "x").write_text("x")
    os.sync()
    wait_for(lambda: "disk1" not in {r["number"] for r in listed() if r["device"] == str(hdd1)}, 60, "md to take it out")
    hdd1.heal()
    larder("replace", "data", "disk1", hdd2)
    assert of_array() == dict.fromkeys(map(str, (hdd0, hdd2)), "active") and len(legs()) == 2
    larder("probe", hdd1, code=NOT_FOUND)
    read()
    remove()


@pytest.mark.limit(1200)
def test_power_cuts_while_it_is_made(disks, seed):
    """After the N-th write command; what was made by then is gone on with, or taken away."""
    states = []
    for i, after in enumerate((12, 45, 80, 140)):
        simdisk.power_cut(mode=("random", "lose")[i % 2], seed=seed + i, after=after, ops="write")
        larder(*words(disks), code=None)
        if not any(d.state()["power"] == "off" for d in disks):
            simdisk.power_cut(mode="random", seed=seed)
        release()
        simdisk.power_up()
        found = rows()
        states.append(found["stack"]["state"] if found else "nothing")
        if found and states[-1] == "creating" and i % 2 == 0:
            run = larder("create", "--resume", "data", code=None)
            assert run.returncode == DONE or "larder remove data" in run.stderr, run.stderr
            if run.returncode == DONE:
                write(i)
                larder("stop", "data")
                larder("start", "data")
                assert (MOUNTED / f"{NAME}-{i}").read_bytes() == CONTENT
        if found:
            uuid = found["stack"]["uuid"]
            if larder("remove", "data", "--discard-data", uuid, code=None).returncode == NOT_FOUND:
                larder("start", "data")
                larder("remove", "data", "--discard-data", uuid)
        else:
            for disk in disks:
                larder("super", "wipe", disk, "--yes", code=None)
        nothing_left(disks)
    print(states)
    assert "creating" in states


def hosts(disks):
    """As the superblocks of the legs have them: docs/on-disk-format.md."""
    return {disk.read(8, 8)[144:160] for disk in used(disks)}


def test_import_that_is_refused(disks, monkeypatch, tmp_path):
    """The legs stay the other machine's until it has started here: that starts them as ever."""

    def on(machine):
        identity = tmp_path / machine
        identity.write_text({"a": "1", "b": "2"}[machine] * 32)
        monkeypatch.setenv("LARDER_MACHINE_ID", str(identity))

    on("a")
    larder(*words(disks))
    write(0)
    larder("stop", "data")
    made = hosts(disks)
    assert len(made) == 1
    on("b")
    refused(UNSAFE, ["start", "data"], "another machine")
    disks[1].fail(op="read,write,flush", status="ioerr")
    larder("start", "data", "--import", code=UNSAFE)
    assert hosts(disks) == made
    assert not arrays() and not dm.names()
    disks[1].heal()
    on("a")
    larder("start", "data")
    larder("stop", "data")
    on("b")
    larder("start", "data", "--import")
    assert hosts(disks) != made and len(hosts(disks)) == 1
    assert (MOUNTED / f"{NAME}-0").read_bytes() == CONTENT
    larder("stop", "data")
    larder("start", "data")
    larder("stop", "data")
    on("a")
    refused(UNSAFE, ["start", "data"], "another machine")
    on("b")
    larder("start", "data")
    remove()
