# SPDX-License-Identifier: GPL-2.0-or-later
"""Stacks made, cut short at every step, resumed, removed; several on one cache; wrong devices; secrets."""

import contextlib
import errno
import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "command"))
from lib import command, dm, simdisk
from lib.damage import crc32c
from lib.larder import wait_for
from lib.parts import Part
from lib.stacks import (
    BROKEN,
    BUSY,
    CONTENT,
    DEGRADED,
    DONE,
    FAILED,
    FSTAB,
    HAND_MADE,
    MOUNTED,
    NAME,
    NOT_FOUND,
    UNSAFE,
    USAGE,
    arrays,
    check,
    larder,
    nothing_left,
    on_disk,
    prepare,
    refused,
    release,
    remove,
    room,
    rows,
    take_out,
    watched,
    words,
    write,
)
from secretive import begin, give

MIB = 1 << 20


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    yield from prepare(make_disk, monkeypatch, kernel_log)


@pytest.mark.core
def test_plain_stacks_of_one_cache(disks):
    """What the search for names finds; the second stack of a cache, which stays when the first one goes."""
    ssd0, _, hdd0, hdd1 = disks
    said = larder("create", "data", "--backing", hdd0, "--cache", ssd0, "--mkfs", "ext4", "--mount", MOUNTED).stdout
    assert "mode writethrough: there is one SSD" in said
    write(0)
    refused(BUSY, ["create", "data", "--backing", hdd1, "--cache", "data"], "label")
    assert "RISK" in larder("create", "more", "--backing", hdd1, "--cache", "data", "--mode", "writeback").stdout
    assert rows("more")["volume"]["type"] == "writeback" and set(rows()) >= {"stack", "volume", "cache", "ssd", "disk"}
    larder("stop", "more")
    assert "data-crypt" not in dm.names() and "larder-cache-data" in dm.names()
    larder("stop", "data")
    assert not dm.names()
    assert on_disk(disks, NAME.encode()) and on_disk(disks, CONTENT[:27])
    larder("start", "data")
    check([0])
    assert "its cache stays" in larder("remove", "data", "--discard-data", rows()["stack"]["uuid"]).stdout
    assert not rows() and "stopped" in rows("more")["stack"]["state"]
    larder("start", "more")
    larder("remove", "more", "--discard-data", rows("more")["stack"]["uuid"])
    # the cache was made with the first stack, and the second one only used it
    larder("cache", "stop", "data")
    command.run("larder", "super", "wipe", ssd0, "--yes")
    nothing_left(disks)


def test_description_outlives_the_kernel(disks):
    """The kernel writes superblocks of its own accord; the description stays."""
    ssd0, ssd1, hdd0, _ = disks
    larder("create", "data", "--backing", hdd0, "--cache", ssd0, "--cache", ssd1, "--class", "special")
    before = rows()
    cache, volume = dm.DmDevice("larder-cache-data"), dm.DmDevice("data")
    volume.write(0, b"\1" * 4096)  # may_be_dirty
    for _ in range(3):
        cache.message("checkpoint")
    volume.message("flush")
    larder("stop", "data")
    assert {k: v["uuid"] for k, v in rows().items()} == {k: v["uuid"] for k, v in before.items()}
    larder("start", "data")
    assert larder("volume", "get", "data", "class").stdout == "class=special\n"
    for text in ("zz", "123", "00" * 2049):
        with pytest.raises(command.CommandError):
            volume.message("stack", text)
        with pytest.raises(command.CommandError):
            cache.message("stack", text)
    assert rows()["stack"]["state"] == "fine"
    # without the disk the SSDs say whose it is; without the SSDs the disk does
    larder("stop", "data")
    command.run("larder", "super", "wipe", hdd0, "--yes", "--discard-dirty", before["volume"]["uuid"])
    assert rows()["stack"]["state"] == "incomplete"
    assert "its disks are not here" in larder("status", "data", code=BROKEN).stdout


def boot_waits():
    """For the device in the line of the stack."""
    lines = [x for x in FSTAB.read_text().splitlines() if "x-larder.stack=" in x]
    return bool(lines) and "nofail" not in lines[0].split()[3].split(",")


@pytest.mark.limit(1200)
@pytest.mark.parametrize("way", ["resume", "remove"])
def test_killed_at_each_step(disks, key, way):
    """Wherever the command dies, --resume or remove comes to an end that is whole."""
    seen = 0
    for step in range(1, 9 if way == "resume" else 8):
        program = [str(w) for w in ("larder", *words(disks, key if way == "resume" else None), "--essential")]
        child = subprocess.Popen(program, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        lines = 0
        for line in child.stdout:
            lines += line.startswith("data: ")
            if lines == step:
                child.kill()
                break
        child.wait()
        child.stdout.close()
        found = rows()
        state = found["stack"]["state"] if found else ""
        assert state in ("", "creating", "fine"), state
        assert state == "fine" or not boot_waits(), "a boot would wait for what nobody starts"
        seen += state == "creating"
        if way == "resume" and state == "creating":
            run = command.run("larder", "create", "--resume", "data", "--essential", check=False)
            # before all disks had their marks there is nothing to go on with, and it says what there is to do
            assert run.returncode == DONE or ("larder remove data" in run.stderr and step <= 2), run.stderr
            state = "fine" if run.returncode == DONE else state
            assert boot_waits() == (state == "fine")
        if state == "fine":
            write(step)
            larder("stop", "data")
            larder("start", "data")
            check([step])
            remove()
        elif state:
            uuid = found["stack"]["uuid"]
            larder("remove", "data", "--discard-data", uuid)
        else:
            for disk in disks:
                command.run("larder", "super", "wipe", disk, "--yes", check=False)
        nothing_left(disks)
    assert seen >= 4


@pytest.mark.limit(1200)
def test_power_cuts_while_it_is_made(disks, key, seed):
    """After the N-th write command; what was made by then is gone on with, or taken away."""
    states = []
    for i, after in enumerate((5, 30, 90, 150, 220)):
        simdisk.power_cut(mode=("random", "lose")[i % 2], seed=seed + i, after=after, ops="write")
        run = command.run("larder", *words(disks, key), check=False)
        cut = any(d.state()["power"] == "off" for d in disks)
        if not cut:
            simdisk.power_cut(mode="random", seed=seed)
        release()
        simdisk.power_up()
        found = rows()
        states.append(found["stack"]["state"] if found else "nothing")
        if found and i % 2 == 0 and states[-1] == "creating":
            run = command.run("larder", "create", "--resume", "data", check=False)
            assert run.returncode == DONE or "larder remove data" in run.stderr, run.stderr
        assert cut or run.returncode == DONE
        if found:
            uuid = found["stack"]["uuid"]
            run = command.run("larder", "remove", "data", "--discard-data", uuid, check=False)
            if run.returncode == NOT_FOUND:
                larder("start", "data")
                larder("remove", "data", "--discard-data", uuid)
        else:
            for disk in disks:
                command.run("larder", "super", "wipe", disk, "--yes", check=False)
                command.run("wipefs", "-a", disk, check=False)
        nothing_left(disks)
    print(states)
    assert "creating" in states


TOGETHER = ("data-1", "data-2")


def separate(disks, key=None):
    ssd0, ssd1, hdd0, hdd1 = disks
    w = ["create", "data", "--backing", hdd0, "--backing", hdd1, "--separate", "--cache", ssd0, "--cache", ssd1]
    return w + (["--encrypt", f"luks2:keyfile={key}", "--iter-time", "10"] if key else [])


def states():
    found = {name: rows(name) for name in TOGETHER}
    return {name: r["stack"]["state"] for name, r in found.items() if r}


def settle_separate(disks, resumed):
    """What a cut left of two stacks is whole in the end, or taken away."""
    begun = bool(states())
    if resumed and "creating" in states().values():
        run = larder("create", "--resume", "data", code=None)
        # before all disks had their marks there is nothing to go on with, and it says what there is to do
        assert run.returncode == DONE or "larder remove data-1" in run.stderr, run.stderr
        if run.returncode == DONE:
            assert states() == dict.fromkeys(TOGETHER, "fine"), states()
    for name, state in states().items():
        if state == "fine":
            assert {name, f"{name}-crypt"} & set(dm.names())
        uuid = rows(name)["stack"]["uuid"]
        if larder("remove", name, "--discard-data", uuid, code=None).returncode == NOT_FOUND:
            larder("start", name)
            larder("remove", name, "--discard-data", uuid)
    if not begun:
        for disk in disks:
            command.run("larder", "super", "wipe", disk, "--yes", check=False)
            command.run("wipefs", "-a", disk, check=False)
    assert not states()
    nothing_left(disks)


@pytest.mark.limit(1200)
@pytest.mark.parametrize("way", ["resume", "remove"])
def test_separate_is_killed(disks, way):
    """Two stacks by one command: dead behind each line that it prints, --resume makes both of them, remove leaves nothing."""
    seen = set()
    for step in range(2, 6):  # the disks, the volume, ready; the second volume
        program = [str(w) for w in ("larder", *separate(disks))]
        child = subprocess.Popen(program, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        lines = 0
        for line in child.stdout:
            lines += line.startswith("data-")
            if lines == step:
                child.kill()
                break
        child.wait()
        child.stdout.close()
        seen.add(tuple(states().values()))
        settle_separate(disks, way == "resume")
    print(seen)
    assert ("creating",) in seen and ("fine", "creating") in seen


@pytest.mark.limit(1200)
def test_power_cuts_in_separate(disks, key, seed):
    """After the N-th write command: the same."""
    seen = set()
    for i, after in enumerate((12, 60, 100)):
        simdisk.power_cut(mode=("random", "lose")[i % 2], seed=seed + i, after=after, ops="write")
        larder(*separate(disks, key), code=None)
        if not any(d.state()["power"] == "off" for d in disks):
            simdisk.power_cut(mode="random", seed=seed)
        release()
        simdisk.power_up()
        seen.add(tuple(states().values()))
        settle_separate(disks, True)
    print(seen)
    assert any("creating" in s for s in seen)


def killed_at(disks, line, *more):
    program = [str(w) for w in ("larder", *words(disks), *more)]
    child = subprocess.Popen(program, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert any(said.startswith(f"data: {line}") for said in child.stdout)
    child.kill()
    child.wait()
    child.stdout.close()


def test_made_with_spares(disks, make_disk):
    """Of array and cache; killed before the array is made, and resumed.  md uses one when a disk fails; remove erases both."""
    spare = make_disk("hdd2", model="null", mb=96, wce=1)
    ssd = make_disk("ssd2", model="null", mb=32, wce=1, fua=1, discard="zero")
    killed_at(disks, "the array", "--spare", spare, "--cache-spare", ssd)
    larder("create", "--resume", "data")
    node = arrays()[0].removeprefix("/dev/")
    member = {d.name: Path(f"/sys/block/{node}/md/dev-{d.name}/state") for d in (*disks[2:], spare)}
    assert sorted(path.read_text().strip() for path in member.values()) == ["in_sync", "in_sync", "spare"]
    assert json.loads(larder("cache", "list", "-o", "spares", "--reportformat", "json").stdout)["caches"] == [{"spares": "1"}]
    write(0)
    failing = next(name for name, path in member.items() if path.read_text().strip() == "in_sync")
    command.run("mdadm", "--quiet", f"/dev/{node}", "--fail", f"/dev/{failing}")
    others = [path for name, path in member.items() if name != failing]
    wait_for(lambda: all(path.read_text().strip() == "in_sync" for path in others), 240, "the spare to be rebuilt")
    check([0])
    remove()
    nothing_left([*disks, spare, ssd])


def test_half_made_and_used_for_something_else(disks):
    """What a disk, or the array, got since is not written over; what was in an array of the same disks before goes."""
    old = ["--level=1", "--raid-devices=2", "--metadata=1.2", "--bitmap=internal", *disks[2:]]
    command.run("mdadm", "--create", "/dev/md/old", "--run", "--quiet", *old)
    (node,) = arrays()
    command.run("mkfs.ext4", "-q", "-F", node)
    command.run("mdadm", "--stop", node)
    for disk in disks[2:]:
        command.run("mdadm", "--zero-superblock", disk)
    # a partition table beside the mark, or beside md's superblock where it had got that far
    killed_at(disks, "the array")
    table = bytes(446) + struct.pack("<B3sB3sII", 0x80, bytes(3), 0x83, bytes(3), 2048, 4096) + bytes(48) + b"\x55\xaa"
    taken = Path(f"/dev/{disks[3].name}")
    with open(taken, "r+b") as file:
        file.write(table)
        os.fsync(file.fileno())
    for node in arrays():
        command.run("mdadm", "--stop", node)
    before = taken.read_bytes()
    for more in ([], ["--wipe"]):
        refused(UNSAFE, ["create", "--resume", "data", *more], taken, "dos", "somebody else's now", "larder remove data")
    larder("remove", "data")
    assert taken.read_bytes() == before
    command.run("wipefs", "-a", taken)
    command.run("mdadm", "--zero-superblock", taken, check=False)
    command.run("larder", "super", "wipe", taken, "--yes", check=False)
    # a filesystem on the array
    for _ in range(5):
        killed_at(disks, "the volume")
        (node,) = arrays()
        if larder("probe", node, code=None).returncode:
            break
        larder("remove", "data", "--discard-data", rows()["stack"]["uuid"])
    assert not command.run("blkid", "-p", node, check=False).stdout, "what was in the old array"
    command.run("mkfs.ext4", "-q", "-F", node)
    before = Path(node).read_bytes()
    refused(UNSAFE, ["create", "--resume", "data"], "ext4", "--wipe")
    assert Path(node).read_bytes() == before
    larder("create", "--resume", "data", "--wipe")
    write(0)
    remove()
    nothing_left(disks)


def test_wrong_devices(disks, make_disk, key, tmp_path):
    """Refused, with the documented code, before anything is changed."""
    ssd0, _, hdd0, hdd1 = disks
    small = make_disk("hdd9", model="null", mb=4, wce=1)
    before = [d.read(0, 8192) for d in disks]  # 4 MiB
    ok = words(disks, key)

    def but(old, new):
        return [new if w is old else w for w in ok]

    refused(NOT_FOUND, but(hdd0, "/dev/nothing"), "/dev/nothing", "no such device")
    refused(USAGE, but(hdd0, hdd1), "given twice")
    refused(USAGE, but(ssd0, hdd1), "given twice")
    link = Path("/run/link-of-test-stack")
    link.unlink(missing_ok=True)
    link.symlink_to(str(hdd1))
    refused(USAGE, but(hdd0, link), "given twice")
    refused(FAILED, but(hdd0, small), "too small")
    refused(FAILED, but(ssd0, small), "too small")
    refused(USAGE, but("data", "../x"), "NAME")
    refused(USAGE, but("data", "x" * 65), "NAME")
    refused(USAGE, but("1", "5"), "at least 3 disks")
    refused(USAGE, but("1", "none"), "none is for one disk")
    refused(NOT_FOUND, but(MOUNTED, "/run/nowhere"), "no such directory")
    refused(BUSY, but(MOUNTED, "/proc"), "mounted there already")
    refused(USAGE, [*ok, "--label", "x" * 17], "--label")
    refused(FAILED, [*ok, "--mkfs", "xfs"], "too small")
    command.run("mkfs.ext4", "-q", small)
    place = tmp_path / "mounted"  # not over the key
    place.mkdir()
    command.run("mount", small, place)
    refused(BUSY, but(hdd0, small), f"mounted on {place}")
    command.run("umount", place)
    refused(UNSAFE, but(hdd0, small), "ext4", "--wipe")
    holder = dm.DmDevice.create("holder", f"0 8 linear {hdd0} 0")
    refused(BUSY, ok, "held by")
    holder.remove()
    taken = dm.DmDevice.create("data-crypt", f"0 8 linear {small} 0")
    refused(BUSY, ok, "data-crypt")
    taken.remove()
    for disk in (hdd1, ssd0):
        command.run("blockdev", "--setro", disk)
        refused(FAILED, ok, disk, "read-only", "blockdev --setrw")
        command.run("blockdev", "--setrw", disk)
    assert [d.read(0, 8192) for d in disks] == before and FSTAB.read_text() == HAND_MADE and not arrays()


@pytest.mark.parametrize("together", [False, True], ids=["apart", "by udev"])
@pytest.mark.parametrize("which", [1, 3], ids=["ssd", "leg"])
def test_one_takes_no_writes(disks, which, together):
    """As an SSD at its end: it is named, and with --degraded all starts without it; nothing was lost."""
    larder(*words(disks))
    write(0)
    larder("stop", "data")
    bad = disks[which]
    command.run("blockdev", "--setro", bad)
    if together:
        for leg in disks[2:]:
            command.run("mdadm", "--incremental", leg)
    refused(UNSAFE, ["start", "data"], bad, "read-only", "blockdev --setrw", "--degraded")
    assert "is read-only" in larder("start", "data", "--degraded").stderr
    check([0])
    write(1)
    said = larder("status", "data", code=DEGRADED).stdout
    assert ("1 of its SSDs failed" if which == 1 else "1 of 2 disks") in said
    larder("stop", "data")
    command.run("blockdev", "--setrw", bad)
    larder("start", "data", "--degraded")
    check([0, 1])
    larder("stop", "data")


def test_array_that_was_made_read_only(disks):
    """By somebody, who knows why: --degraded is no leave to change that."""
    larder(*words(disks))
    larder("stop", "data")
    for leg in disks[2:]:
        command.run("mdadm", "--incremental", leg)
    (node,) = arrays()
    command.run("mdadm", "--readonly", node)
    for w in (["start", "data"], ["start", "data", "--degraded"]):
        refused(UNSAFE, w, node, "read-only", "mdadm --readwrite")
    command.run("mdadm", "--readwrite", node)
    larder("start", "data")
    remove()


def test_others_have_their_turn(disks, monkeypatch, tmp_path):
    """While a filesystem is made, or made larger, which may take long: but nobody goes on with that stack, or takes it away."""
    ssd0, ssd1, hdd0, hdd1 = disks
    hold = tmp_path / "hold"
    for program in ("mkfs.ext4", "resize2fs"):
        real, path = shutil.which(program, path=f"{os.environ['PATH']}:/sbin:/usr/sbin"), tmp_path / program
        path.write_text(f'#!/bin/sh\ntouch {path}.began\nwhile [ -e {hold} ]; do sleep 0.1; done\nexec {real} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    @contextlib.contextmanager
    def held(program, *words):
        """It runs, and goes on behind the block."""
        hold.touch()
        (tmp_path / f"{program}.began").unlink(missing_ok=True)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(["larder", *words], **pipes) as p:
            try:
                wait_for((tmp_path / f"{program}.began").exists, 120, f"{program} to begin")
                yield
            finally:
                hold.unlink()
            said = p.communicate(timeout=120)[1]
        assert p.returncode == 0, said

    made = ["create", "data", "--backing", hdd0, "--cache", ssd0, "--size", "40M", "--mkfs", "ext4", "--mount", MOUNTED, "--yes"]
    with held("mkfs.ext4", *made):
        larder("create", "more", "--backing", hdd1, "--cache", ssd1, "--yes")
        refused(BUSY, ["create", "--resume", "data"], "another larder makes its filesystem")
        for verb in (["remove", "data"], ["stop", "data"], ["volume", "stop", "data"]):
            run = larder(*verb, code=None)
            assert run.returncode and "data" in dm.names(), run
    assert os.path.ismount(MOUNTED) and "fine" in larder("status", "data").stdout
    write(0)
    with held("resize2fs", "resize", "data", "--yes"):
        larder("stop", "more")
        refused(BUSY, ["stop", "data"], "cannot unmount")
    check([0])
    assert room() > 50 * MIB
    larder("start", "more")
    larder("remove", "more", "--discard-data", rows("more")["stack"]["uuid"])
    remove()
    nothing_left(disks)


def test_passphrase_stays_hidden(disks, tmp_path):
    """On stdin; in no process list, no superblock, no log."""
    secret = "correct horse battery staple"
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            for p in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.add(p.read_bytes())

    w = words(disks)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run = larder(*w, "--encrypt", "luks2:passphrase", "--iter-time", "10", stdin=secret + "\n")
    finally:
        stop.set()
        watcher.join()
    assert any(b"create" in x for x in seen) and not any(secret.encode() in x for x in seen)
    assert secret not in run.stdout + run.stderr
    larder("stop", "data")
    assert not on_disk(disks, secret.encode())
    refused(FAILED, ["start", "data", "--keyfile", "/etc/hostname"], "no key")
    larder("start", "data", stdin=secret + "\n")
    assert os.path.ismount(MOUNTED)
    remove()
    nothing_left(disks)


CORES = Path("/proc/sys/kernel/core_pattern")


@pytest.fixture
def cores():
    before = CORES.read_text()
    yield
    CORES.write_text(before)


def test_no_core_has_the_passphrase(disks, cores, tmp_path):
    """Killed as it has it, where others leave it in a core: in a file, and to a program, whatever ulimit says."""
    secret = b"correct horse battery staple"
    larder(*words(disks), "--encrypt", "luks2:passphrase", "--iter-time", "10", stdin=secret.decode() + "\n")
    larder("lock", "data")
    core, catcher = tmp_path / "core", tmp_path / "catcher"
    catcher.write_text(f"#!/bin/sh\ncat >{core}.new && mv {core}.new {core}\n")
    catcher.chmod(0o755)
    program = ["larder", "unlock", "data"]
    other = ["python3", "-c", "import sys; x = sys.stdin.buffer.raw.read(99); sys.stdin.read()"]
    for number, (pattern, how) in enumerate(itertools.product((core, f"|{catcher}"), (signal.SIGABRT, signal.SIGSEGV))):
        CORES.write_text(str(pattern))
        for given in (program, other):
            core.unlink(missing_ok=True)
            process = begin(given, tmp_path / f"{number}-{given[0]}")
            give(process, secret)
            process.send_signal(how)
            said = process.communicate(timeout=120)
            assert process.returncode == -how and secret not in b"".join(said)
            if given == other:  # behind the other one: the kernel would have called the catcher by now, had it been to
                wait_for(core.exists, 120, "a core")
                assert secret in core.read_bytes()
            else:
                assert not list(tmp_path.glob("core*"))
    larder("unlock", "data", stdin=secret.decode() + "\n")
    remove()


def test_renamed(disks, key, monkeypatch, tmp_path):
    """All five layers go by the new name; what somebody changed in fstab stays; cut short, it is gone on with by the UUID."""
    larder(*words(disks, key))
    uuid = rows()["stack"]["uuid"]
    write(0)
    FSTAB.write_text(FSTAB.read_text().replace("nofail,", "noatime,"))
    refused(BUSY, ["rename", "data", "moved"], "larder stop data")
    larder("stop", "data")
    refused(USAGE, ["rename", "data", "../x"], "NEW")
    refused(NOT_FOUND, ["rename", "dada", "moved"], "no such stack")
    taken = dm.DmDevice.create("moved-crypt", f"0 8 linear {disks[0]} 0")
    refused(BUSY, ["rename", "data", "moved"], "moved-crypt")
    taken.remove()
    before, fixed = FSTAB.read_text(), tmp_path / "fixed"
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(tmp_path))  # a directory
    refused(FAILED, ["rename", "data", "moved"], "cannot read it")
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(fixed / "fstab"))
    fixed.mkdir()
    waits_not = before.replace("noatime,", "nofail,")
    for text, parts in ((before, ["cannot change it"]), (waits_not, ["half renamed", f"larder rename {uuid} moved"])):
        command.run("mount", "-t", "tmpfs", "none", fixed)
        (fixed / "fstab").write_text(text)
        command.run("mount", "-o", "remount,ro", fixed)
        assert rows()["stack"]["state"] == "stopped"
        refused(FAILED, ["rename", "data", "moved"], *parts)
        command.run("umount", fixed)
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(FSTAB))
    assert FSTAB.read_text() == before
    larder("rename", uuid, "moved")
    assert FSTAB.read_text() == before.replace("/dev/mapper/data-crypt", "/dev/mapper/moved-crypt")
    assert not arrays() and not rows()
    larder("start", "moved")
    assert "noatime" in command.output("findmnt", "-no", "options", MOUNTED)
    assert sorted(dm.names()) == ["larder-cache-moved", "moved", "moved-crypt"]
    check([0])
    larder("stop", "moved")
    larder("rename", "moved", "data")
    larder("start", "data")
    check([0])
    remove()
    nothing_left(disks)


OTHER = Path("/run/stack-other")


def mountpoint():
    found = json.loads(larder("show", "data", "-o", "layer,mountpoint", "--reportformat", "json").stdout)["stacks"]
    return next(r["mountpoint"] for r in found if r["layer"] == "filesystem")


def at_rest():
    assert not dm.names() and not arrays(), "what was started for a moment is stopped again"


def test_removed_beside_a_failed_cache(disks):
    """Which takes no message: its superblocks are written when it has stopped."""
    larder(*words(disks))
    write(0)
    larder("volume", "flush", "data", "--wait")
    for ssd in disks[:2]:
        ssd.fail(op="read,write,flush", status="ioerr")
    with contextlib.suppress(OSError):
        write(1)
    state = ["cache", "status", "data", "-o", "state", "--noheadings"]
    wait_for(lambda: larder(*state).stdout.strip() == "failed", 60, "the cache to fail")
    for ssd in disks[:2]:
        ssd.heal()
    remove()
    nothing_left(disks)


@pytest.mark.parametrize("running", [True, False])
def test_removed_though_its_disks_are_gone(disks, running):
    """For good, on a cache that others use: its entry goes, and what is dirty of it; what the others have stays, dirty too."""
    ssd0, ssd1, hdd0, hdd1 = disks
    larder("create", "data", "--backing", hdd0, "--cache", ssd0, "--cache", ssd1)
    larder("create", "more", "--backing", hdd1, "--cache", "data")
    for name in ("data", "more"):
        larder("volume", "set", name, "writeback=off", "sequential_cutoff=0")
        dm.DmDevice(name).write(0, name.encode() * 1024)
        dm.DmDevice(name).flush()
    dirty = ["cache", "status", "data", "-o", "dirty_sectors", "--noheadings", "--units", "b", "--nosuffix"]
    before = int(larder(*dirty).stdout)
    uuid = rows()["stack"]["uuid"]
    larder("stop", "data")
    if not running:
        larder("stop", "more")
    hdd0.fail(op="read,write,flush", status="ioerr")
    assert rows()["stack"]["state"] == "incomplete"
    refused(NOT_FOUND, ["remove", "data"], "LOST", uuid)
    assert not running or int(larder(*dirty).stdout) == before
    assert "removed; its cache stays" in larder("remove", "data", "--discard-data", uuid).stdout
    assert not rows() and int(larder(*dirty).stdout) == before - 4096
    if not running:
        larder("start", "more")
    assert dm.DmDevice("more").read(0, 8) == b"more" * 1024
    # the disk comes back: what it has is not taken for all of it
    hdd0.heal()
    refused(FAILED, ["start", "data"], "has lost the dirty data")
    larder("remove", "data", "--discard-data", uuid)
    larder("remove", "more", "--discard-data", rows("more")["stack"]["uuid"])


def test_entry_of_an_array_that_is_here(disks):
    """Its disks are, and show no volume until it is started: refused, with the word as without."""
    larder(*words(disks))
    uuid = rows()["stack"]["uuid"]
    larder("stop", "data")
    for word in ([], ["--discard-data", uuid]):
        refused(NOT_FOUND, ["remove", "data", *word], "disks of its array are", "larder start data")
    larder("start", "data")
    remove()
    nothing_left(disks)


def test_nobody_waits_for_a_mount(disks, monkeypatch, tmp_path):
    """It may take as long as fsck does, or until another stack has started: others have their turn meanwhile."""
    said, script = tmp_path / "said", tmp_path / "mount"
    script.write_text(f'#!/bin/sh\nflock --nonblock /run/larder/lock echo free >> {said}\nexec {shutil.which("mount")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    larder(*words(disks))
    larder("stop", "data")
    larder("start", "data")
    larder("set", "data", "--mount", "none")
    larder("set", "data", "--mount", MOUNTED)
    assert said.read_text() == "free\n" * 3
    remove()
    nothing_left(disks)


def test_set_mount(disks):
    """It moves at once, with its line in fstab; not while it is used; nowhere, it stays so when it is started."""
    OTHER.mkdir(exist_ok=True)
    larder(*words(disks))
    write(0)
    line = FSTAB.read_text()
    with open(MOUNTED / f"{NAME}-0", "rb"):
        refused(BUSY, ["set", "data", "--mount", OTHER], "cannot unmount")
    assert os.path.ismount(MOUNTED) and FSTAB.read_text() == line
    assert mountpoint() == str(MOUNTED)
    larder("set", "data", "--mount", OTHER)
    assert os.path.ismount(OTHER) and not os.path.ismount(MOUNTED)
    assert FSTAB.read_text() == line.replace(str(MOUNTED), str(OTHER)) and mountpoint() == str(OTHER)
    assert (OTHER / f"{NAME}-0").read_bytes() == CONTENT
    larder("set", "data", "--mount", "none")
    assert not os.path.ismount(OTHER) and FSTAB.read_text() == HAND_MADE
    larder("stop", "data")
    larder("start", "data")
    assert not os.path.ismount(OTHER) and not os.path.ismount(MOUNTED)
    larder("stop", "data")
    larder("set", "data", "--mount", MOUNTED)
    at_rest()
    assert FSTAB.read_text() == line
    larder("start", "data")
    check([0])
    remove()
    nothing_left(disks)


def test_set_key(disks, key, tmp_path):
    """What is to open it at a boot opens it: a file whose key fits no slot is refused, and no file where nobody could type."""
    larder(*words(disks, key))
    wrong, second = tmp_path / "wrong", tmp_path / "second"
    wrong.write_bytes(b"w" * 64)
    second.write_bytes(b"s" * 64)
    refused(NOT_FOUND, ["set", "data", "--keyfile", wrong], "fits none of its key slots", "passwd data --add")
    refused(UNSAFE, ["set", "data", "--keyfile", "none"], "larder passwd data --add first")
    larder("stop", "data")
    refused(NOT_FOUND, ["set", "data", "--keyfile", wrong], "fits none of its key slots")
    at_rest()
    larder("passwd", "data", "--add", "--new-keyfile", second, "--iter-time", "10")
    said = larder("set", "data", "--keyfile", second).stdout
    assert f"keyfile: {second}, was {key}" in said
    at_rest()
    os.rename(key, tmp_path / "away")
    larder("start", "data")
    larder("passwd", "data", "--add", "--iter-time", "10", stdin="a phrase\n")
    larder("set", "data", "--keyfile", "none")
    larder("lock", "data")
    os.unlink(second)
    larder("unlock", "data", stdin="a phrase\n")
    assert os.path.ismount(MOUNTED)
    remove()
    nothing_left(disks)


def test_set_class_and_mode(disks):
    """The kernel judges the list, of a stopped stack, too; both hold from each start on."""

    def option(name):
        return larder("volume", "get", "data", name).stdout.strip()

    larder(*words(disks))
    assert larder("set", "data", "--class", "nonsense", code=None).returncode in (FAILED, USAGE)
    assert option("class") == "class=default"
    larder("set", "data", "--class", "special")
    assert option("class") == "class=special"
    refused(BUSY, ["set", "data", "--mode", "writethrough"], "larder stop data", "larder volume set data mode=writethrough")
    larder("stop", "data")
    assert larder("set", "data", "--class", "nonsense", code=None).returncode in (FAILED, USAGE)
    at_rest()
    larder("set", "data", "--mode", "writethrough", "--class", "log")
    at_rest()
    larder("start", "data")
    assert (option("class"), option("mode")) == ("class=log", "mode=writethrough")
    larder("set", "data", "--class", "default")
    larder("stop", "data")
    larder("start", "data")
    assert option("class") == "class=default"
    remove()
    nothing_left(disks)


def store_another(ssd, what, instead):
    """In both copies of the superblock of an SSD, with their checksums."""
    for place in (4096, struct.unpack_from("<Q", ssd.read(8, 8), 88)[0]):
        block = bytearray(ssd.read(place // 512, 8))
        assert block.count(what) == 1
        block[:] = block.replace(what, instead)
        struct.pack_into("<I", block, 16, crc32c(bytes(block[:16]) + bytes(4) + bytes(block[20:])))
        ssd.write(place // 512, bytes(block))


def test_options_that_are_stored(disks):
    """The kernel judges them; each start has them, by hand and by assembly; where the kernel refuses them it goes without."""

    def option(kind, name):
        return larder(kind, "get", "data", name).stdout.strip()

    larder(*words(disks))
    assert larder("cache", "set", "data", "mirror=nonsense", "--persist", code=None).returncode in (FAILED, USAGE)
    assert larder("cache", "get", "data", "--stored").stdout == ""
    larder("cache", "set", "data", "mirror=all", "commit=always", "--persist")
    larder("volume", "set", "data", "share_max=50", "quiet=on", "--persist")
    larder("cache", "set", "data", "gather=2")
    assert (option("cache", "mirror"), option("volume", "quiet")) == ("mirror=all", "quiet=on")
    for start in (("start", "data"), ("assemble", "--all")):
        larder("stop", "data")
        at_rest()
        larder(*start)
        assert (option("cache", "mirror"), option("cache", "commit")) == ("mirror=all", "commit=always")
        assert option("cache", "gather") != "gather=2"
        assert (option("volume", "share_max"), option("volume", "quiet")) == ("share_max=50", "quiet=on")
    # away from what is stored, not from what runs
    larder("cache", "set", "data", "mirror=", "--persist")
    larder("volume", "set", "data", "quiet=", "--persist")
    assert (option("cache", "mirror"), option("volume", "quiet")) == ("mirror=all", "quiet=on")
    larder("stop", "data")
    larder("start", "data")
    assert (option("cache", "mirror"), option("volume", "quiet")) == ("mirror=dirty", "quiet=off")
    # a kernel that does not take one: a boot does not end for it
    larder("stop", "data")
    for ssd in disks[:2]:
        store_another(ssd, b"commit=always", b"commit=nevers")
    for start in (("start", "data"), ("assemble", "--all")):
        run = larder(*start)
        assert run.stderr.count("does not start with its stored options (commit=nevers)") == 1
        assert option("cache", "commit") != "commit=nevers"
        larder("stop", "data")
    larder("start", "data")
    remove()
    nothing_left(disks)


def test_power_cuts_while_it_is_renamed(disks, seed):
    """After the N-th write command: it has one name or the other, and the same command with the UUID ends with the new one."""
    ssd0, ssd1, hdd0, _ = disks
    made = ["create", "name0", "--backing", hdd0, "--cache", ssd0, "--cache", ssd1, "--mkfs", "ext4"]
    larder(*made, "--mount", MOUNTED, "--essential")
    uuid = rows("name0")["stack"]["uuid"]
    assert boot_waits()
    write(0)
    larder("stop", "name0")
    cuts = 0
    for i in range(1, 14):
        old, new = f"name{i - 1}", f"name{i}"
        simdisk.power_cut(mode=("random", "lose")[i % 2], seed=seed + i, after=i, ops="write")
        cuts += command.run("larder", "rename", old, new, check=False).returncode != DONE
        if not any(d.state()["power"] == "off" for d in disks):
            simdisk.power_cut(mode="random", seed=seed)
        simdisk.power_up()
        assert rows(old) or rows(new)
        assert not boot_waits() or any(rows(name) and f"/dev/mapper/{name} " in FSTAB.read_text() for name in (old, new))
        larder("rename", uuid, new)
        assert boot_waits() and f"/dev/mapper/{new} " in FSTAB.read_text()
        larder("start", new)
        assert dm.names() and sorted(dm.names()) == [f"larder-cache-{new}", new]
        check([0])
        larder("stop", new)
    assert 3 <= cuts < 13
    simdisk.power_cut(mode="random", seed=seed, after=1, ops="write")
    assert command.run("larder", "remove", "name13", "--discard-data", uuid, check=False).returncode != DONE
    assert not boot_waits()
    simdisk.power_up()
    larder("remove", "name13", "--discard-data", uuid)
    nothing_left(disks)


def test_bundle_has_no_secrets(disks, make_disk, tmp_path, key):
    """Of `larder collect`: key file, passphrase, volume key, header, and secrets of epochs are nowhere in it; what runs is."""
    larder(*words(disks, key))
    uuid = rows()["stack"]["uuid"]
    raw, spare = os.urandom(64), make_disk("spare0", mb=16)
    command.run("dmsetup", "create", "plain-crypt", stdin=f"0 2048 crypt aes-xts-plain64 {raw.hex()} 0 {spare} 0\n")
    path = tmp_path / "bundle.tar"
    larder("collect", "-o", path)
    data = path.read_bytes()
    header = Path(f"/var/lib/larder/{uuid}.luks-header").read_bytes()
    tables = command.output("dmsetup", "table", "--showkeys").split()
    secrets = [key.read_bytes(), raw, raw.hex().encode()] + [w.encode() for w in tables if len(w) >= 64 and w.isalnum()]
    # of the header what is not text that anybody may know: key slots, 512 bytes at a time
    secrets += [slot for i in range(32768, len(header), 65536) if any(slot := header[i : i + 512])]
    for ssd in disks[:2]:
        epochs = ssd.read(8, 8)[416:928]
        secrets += [secret for i in range(8, 512, 32) if any(secret := epochs[i : i + 8])]
    assert len(secrets) > 8
    for secret in secrets:
        assert secret not in data
    for text in (uuid.encode(), b"larder-cache 2 ", b"crypt aes-xts-plain64 (key left out)"):
        assert text in data
    command.run("dmsetup", "remove", "plain-crypt")
    remove()
    nothing_left(disks)


def test_header_backup(disks, tmp_path, key):
    """It opens the data when the header is gone; nobody else may read it; remove takes it away, but not a file of one's own."""
    larder(*words(disks, key))
    uuid = rows()["stack"]["uuid"]
    backup = Path(f"/var/lib/larder/{uuid}.luks-header")
    assert backup.stat().st_mode & 0o777 == 0o600 and {p.name for p in backup.parent.iterdir()} <= {backup.name, "archive"}
    write(0)
    larder("lock", "data")
    dm.DmDevice("data").write(0, bytes(16 << 20))
    refused(FAILED, ["unlock", "data"], "cannot unlock")
    command.run("cryptsetup", "luksHeaderRestore", "-q", "/dev/mapper/data", "--header-backup-file", backup)
    larder("unlock", "data")
    check([0])
    remove()
    assert not backup.exists()
    own = tmp_path / "header"
    w = [*words(disks, key), "--header-backup"]
    refused(USAGE, [*w, "header"], "absolute")
    refused(FAILED, [*w, tmp_path / "nowhere" / "header"], "nowhere")
    larder(*w, own)
    remove()
    refused(USAGE, [*w, own], "is there already")
    assert own.exists() and not list(backup.parent.glob("*.luks-header"))
    larder(*w, "none")
    assert not list(backup.parent.glob("*.luks-header"))
    remove()
    nothing_left(disks)


def opens(node, key) -> bool:
    return command.run("cryptsetup", "open", "--test-passphrase", "--key-file", key, node, check=False).returncode == 0


@pytest.mark.limit(1500)
def test_keys_of_a_stack(disks, tmp_path, key):
    """`larder passwd`, started and stopped: new keys open it after a restart, gone ones never; backup; no secret in sight."""
    secret, second = "correct horse battery staple", tmp_path / "second"
    second.write_bytes(os.urandom(64))
    typed = tmp_path / "typed"
    typed.write_text(secret)
    quick, node = ("--iter-time", "10"), "/dev/mapper/data"

    def passwd(*more, **options):
        """Each of some guesses costs seconds under TCG."""
        return larder("passwd", "data", *more, seconds=600, **options)

    def slots():
        found = passwd("--list", "-o", "slot,kind,state", "--reportformat", "json")
        return [(int(s["slot"]), s["kind"], s["state"]) for s in json.loads(found.stdout)["slots"]], found.stderr

    def no(code, more, *parts):
        said = passwd(*more, code=code).stderr
        assert all(part in said for part in parts), said

    larder(*words(disks, key))
    uuid = rows()["stack"]["uuid"]
    backup = Path(f"/var/lib/larder/{uuid}.luks-header")
    old_backup = tmp_path / "old-backup"
    shutil.copy(backup, old_backup)
    write(0)
    assert slots() == ([(0, "keyfile", "last")], "")
    with watched(secret):
        run = passwd("--add", *quick, stdin=secret + "\n")
    assert "slot 1: added, passphrase" in run.stdout and str(backup) in run.stdout and not run.stderr
    assert slots() == ([(0, "keyfile", "active"), (1, "passphrase", "active")], "") and opens(backup, typed)
    no(BUSY, ["--add", "--new-keyfile", key, *quick], "slot 0 has this key")
    no(UNSAFE, ["--remove", "0"], "its own key")
    no(NOT_FOUND, ["--remove", "5"], "slot 5", "--list")
    no(FAILED, ["--remove", "0", "--keyfile", second], "no key")
    assert "dry run" in passwd("--remove", "1", "--dry-run").stdout and len(slots()[0]) == 2
    check([0])

    larder("stop", "data")
    run = passwd("--change", "--new-keyfile", second, *quick)
    assert "slot 0: changed, keyfile" in run.stdout
    assert "copy of the LUKS header" in run.stderr and f"{key}: which" in run.stderr
    assert not dm.names() and not arrays()
    assert slots()[0] == [(0, "keyfile", "active"), (1, "passphrase", "active")]
    assert not dm.names() and not arrays()
    refused(FAILED, ["start", "data"], "no key")
    larder("unlock", "data", "--keyfile", second)
    check([0])
    assert not opens(node, key) and opens(node, second) and opens(node, typed)
    assert not opens(backup, key) and opens(backup, second) and opens(old_backup, key)

    larder("volume", "set", "data", "writeback=off")
    with watched(secret):
        run = passwd("--remove", "0", "--keyfile", "-", stdin=secret + "\n")
    assert "larder volume flush data --wait writes it back" in run.stderr
    assert "slot 0: removed" in run.stdout and not opens(node, second) and not opens(backup, second)
    write(1)
    simdisk.power_cut(mode="random", seed=5)
    release()
    simdisk.power_up()
    larder("start", "data", "--keyfile", typed)
    check([0, 1])
    assert slots() == ([(1, "passphrase", "last")], "")
    shutil.copy(old_backup, backup)
    assert f"{backup}: is not of the header as it is now" in slots()[1]
    passwd("--backup")
    assert slots()[1] == "" and not opens(backup, key)
    no(UNSAFE, ["--remove", "1"], "last key", "LOST", uuid)
    passwd("--remove", "1", "--discard-data", uuid)
    assert slots()[0] == [] and not opens(node, typed)
    check([0, 1])
    remove()
    nothing_left(disks)


def test_header_that_is_full_of_tokens(disks, tmp_path, key):
    """What a new key is cannot be noted: the old one is gone all the same, from the backup and from one half written, too."""
    second, foreign, node = tmp_path / "second", tmp_path / "foreign.json", "/dev/mapper/data"
    second.write_bytes(os.urandom(64))
    foreign.write_text('{"type": "foreign", "keyslots": []}')
    larder(*words(disks, key))
    backup = Path(f"/var/lib/larder/{rows()['stack']['uuid']}.luks-header")
    while command.run("cryptsetup", "token", "import", "--json-file", foreign, node, check=False).returncode == 0:
        pass
    half = backup.with_name(f"{backup.name}.larder-new")
    shutil.copy(backup, half)
    with open(half, "rb") as left:
        run = larder("passwd", "data", "--add", "--new-keyfile", second, "--iter-time", "10", seconds=600)
        assert not os.path.exists(half) and left.read(65536) == bytes(65536)
    assert "slot 1: added" in run.stdout and "cannot be noted" in run.stderr and "slot 1" in run.stderr, run
    assert opens(backup, second) and opens(node, second)
    larder("passwd", "data", "--remove", "0", "--keyfile", second, seconds=600)
    assert not opens(backup, key)
    remove()


@pytest.fixture
def tagged(disks, key):
    """Words of create, with authenticated encryption."""
    for module in ("dm-integrity", "chacha20poly1305", "gcm", "authenc", "algif_aead"):
        if command.run("modprobe", module, check=False).returncode:
            pytest.skip(f"this kernel has no {module}")

    def make(cipher):
        return [*words(disks), "--encrypt", f"luks2-aead:keyfile={key}", "--cipher", cipher, "--iter-time", "10"]

    return make


def read_through(node):
    """No sector without its tag: each of them reads."""
    command.run("dd", f"if={node}", "of=/dev/null", "bs=1M", "iflag=direct")


@pytest.mark.limit(1200)
def test_authenticated(disks, key, tagged, kernel_log):
    """Content after a stop and a power cut; a flipped byte is an error, and no other sector is hurt; no discards; no growth."""
    kernel_log.expect("INTEGRITY AEAD ERROR|device-mapper: crypt|device-mapper: integrity")
    said = larder(*tagged("chacha20-poly1305"), seconds=600).stdout
    assert "authenticated by chacha20-poly1305" in said and "cannot grow" in said and "tags: 100 %" in said
    assert rows()["luks"]["type"] == "luks2-aead:chacha20-poly1305"
    assert "fine: encryption: authenticated, chacha20-poly1305" in larder("status", "data").stdout
    crypt, volume = dm.DmDevice("data-crypt"), dm.DmDevice("data")
    assert command.output("blockdev", "--getss", crypt).strip() == "4096"
    assert "allow_discards" not in command.output("dmsetup", "table", "data-crypt")
    read_through(crypt)
    for i in range(4):
        write(i)
    larder("stop", "data")
    assert not dm.names() and not arrays()
    larder("start", "data")
    write("durable")
    simdisk.power_cut(mode="random", seed=7)
    release()
    simdisk.power_up()
    larder("start", "data")
    check([*range(4), "durable"])
    larder("lock", "data")
    assert sorted(dm.names()) == ["data", "larder-cache-data"]
    refused(UNSAFE, ["resize", "data"], "luks2-aead", "cannot grow")
    larder("unlock", "data")
    tables = {name: command.output("dmsetup", "table", name) for name in dm.names()}
    refused(UNSAFE, ["resize", "data", "--array"], "luks2-aead", "cannot grow")
    assert {name: command.output("dmsetup", "table", name) for name in dm.names()} == tables
    check([*range(4), "durable"])

    command.run("umount", MOUNTED)
    at = crypt.sectors - 16
    images = []
    for content in (b"a", b"b"):
        crypt.write(at, content * 4096)
        crypt.flush()
        larder("lock", "data")
        images.append(volume.read(0, volume.sectors))
        command.run("cryptsetup", "open", "--key-file", key, volume, "data-crypt")
        assert crypt.read(at, 8) == content * 4096
    blocks = [i for i in range(0, len(images[0]), 4096) if images[0][i : i + 4096] != images[1][i : i + 4096]]
    larder("lock", "data")
    block = bytearray(volume.read(blocks[-1] // 512, 8))  # behind tags and journal
    block[1000] ^= 1
    volume.write(blocks[-1] // 512, bytes(block))
    larder("unlock", "data")
    with pytest.raises(OSError) as error:
        crypt.read(at, 8)
    assert error.value.errno in (errno.EIO, errno.EILSEQ)
    crypt.read(at - 8, 8)
    crypt.read(at + 8, 8)
    check([*range(4), "durable"])
    block[1000] ^= 1
    larder("lock", "data")
    volume.write(blocks[-1] // 512, bytes(block))
    command.run("cryptsetup", "open", "--key-file", key, volume, "data-crypt")
    command.run("dmsetup", "remove", "data-crypt")  # what a kill between the two leaves
    assert "data-crypt_dif" in dm.names()
    larder("unlock", "data")
    assert crypt.read(at, 8) == b"b" * 4096
    remove()
    nothing_left(disks)


def cut_at(program, percent, how):
    """Runs create until so many percent of the tags are there, and cuts it off; how many there were."""
    child = subprocess.Popen([str(w) for w in program], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    for line in child.stdout:
        done = re.match(r"data: tags: (\d+) %", line)
        if done and int(done[1]) >= percent:
            how(child)
            break
    child.stdout.close()
    child.wait()
    assert rows()["stack"]["state"] == "creating"
    return int(done[1])


@pytest.mark.limit(1500)
def test_authenticated_cut_off(disks, tagged, seed, kernel_log):
    """Without power, or killed, while tags are written: gone on with behind those that are durable, or removed."""
    kernel_log.expect("INTEGRITY AEAD ERROR|device-mapper: crypt|device-mapper: integrity")

    def lose_power(child):
        simdisk.power_cut(mode="random", seed=seed)
        child.kill()
        child.wait()
        release()
        simdisk.power_up()

    def kill(child):
        child.kill()

    for cipher, percent, how in (("aes-gcm", 50, lose_power), ("aes-xts-hmac", 20, kill)):
        before = cut_at(["larder", *tagged(cipher)], percent, how)
        refused(UNSAFE, ["start", "data"], "half made")
        said = [int(p) for p in re.findall(r"tags: (\d+) %", larder("create", "--resume", "data", seconds=600).stdout)]
        # the note of the last part may have been lost
        assert said[-1] == 100 and min(said) >= before and before < 90
        assert rows()["luks"]["type"] == f"luks2-aead:{cipher}"
        read_through("/dev/mapper/data-crypt")
        write(0)
        larder("stop", "data")
        larder("start", "data")
        check([0])
        remove()
        nothing_left(disks)
    cut_at(["larder", *tagged("chacha20-poly1305")], 20, kill)
    larder("remove", "data", "--discard-data", rows()["stack"]["uuid"])
    nothing_left(disks)


def test_without_the_module(disks, key):
    """A kernel without larder: what is dirty goes to the array by `larder rescue`, then the stack comes up without its cache."""
    larder(*words(disks, key))
    write(0)
    larder("stop", "data")
    command.run("rmmod", "larder")
    try:
        refused(FAILED, ["start", "data"], "modprobe larder", "--without-module")
        refused(UNSAFE, ["start", "data", "--without-module"], "may_be_dirty", "larder rescue writeback")
        command.run("larder", "rescue", "writeback", "data", "--cache", "data", "--yes")
        assert "without larder's module" in larder("start", "data", "--without-module").stdout
        check([0])
        write(1)
        assert "without larder's module" in larder("status", "data", code=DEGRADED).stdout
        assert rows()["volume"]["state"] == "linear"
        refused(BUSY, ["rename", "data", "other"], "is started")
        larder("lock", "data")
        larder("unlock", "data")
        check([0, 1])
        larder("stop", "data")
        assert not dm.names() and not arrays()
    finally:
        (module,) = [m for m in os.environ["LARDER_MODULES"].split() if m.endswith("larder.ko")]
        command.run("insmod", module)
    larder("start", "data")
    check([0, 1])
    assert "without its cache" in larder("status", "data", code=DEGRADED).stdout
    larder("stop", "data")
    larder("start", "data", "--locked")
    larder("volume", "stop", "data")
    larder("volume", "start", "data", "--cache", "data", "--option", "stale=discard")
    larder("start", "data")
    check([0, 1])
    larder("status", "data")
    remove()


def test_moved_between_two_machines(disks, monkeypatch, tmp_path, kernel_log):
    """docs/two-machines.md: both see disk and SSD, dirty data goes along; the disk moves alone: the SSD that stayed is stale."""
    ssd0, _, hdd0, _ = disks
    kernel_log.expect("stale|ran without cache")

    def on(machine, *seen):
        identity = tmp_path / machine
        identity.write_text({"a": "1", "b": "2"}[machine] * 32)
        monkeypatch.setenv("LARDER_MACHINE_ID", str(identity))
        if seen:
            monkeypatch.setenv("LARDER_DEVICES", ":".join(map(str, seen)))
        else:
            monkeypatch.delenv("LARDER_DEVICES", raising=False)

    on("a")
    larder("create", "data", "--backing", hdd0, "--cache", ssd0, "--mode", "writeback", "--mkfs", "ext4", "--mount", MOUNTED)
    larder("volume", "set", "data", "writeback=off")
    written = 0
    for here, there in ("ab", "ba", "ab"):
        write(written)
        written += 1
        larder("stop", "data")
        on(there)
        for verb in (["start", "data"], ["volume", "start", "data"], ["cache", "start", "data"]):
            refused(UNSAFE, verb, "another machine", "larder start --import data")
        assert not dm.names()
        larder("start", "--import", "data")
        check(range(written))
        larder("stop", "data")
        on(here)
        refused(UNSAFE, ["start", "data"], "another machine", "larder start --import data")
        on(there)
        larder("start", "data")
    # it is B's now.  Nothing may be dirty, and to unmount writes
    write(written)
    written += 1
    larder("volume", "set", "data", "writeback=off")
    command.run("umount", MOUNTED)
    larder("stop", "data")
    on("a", hdd0)
    refused(UNSAFE, ["start", "--import", "--degraded", "data"], "may_be_dirty")
    on("b")
    larder("start", "data", "--locked")
    larder("volume", "flush", "data", "--wait")
    larder("stop", "data")
    on("a", hdd0)
    refused(UNSAFE, ["start", "data"], "another machine")
    refused(NOT_FOUND, ["start", "--import", "data"], "no SSD of its cache is here", "larder start --degraded data")
    larder("start", "--import", "--degraded", "data")
    check(range(written))
    write(written)
    larder("stop", "data")
    # the SSD that stayed with B, and the disk that is back there
    on("b")
    refused(UNSAFE, ["start", "data"], "another machine")
    run = larder("start", "--import", "data", code=None)
    assert run.returncode and "stale" in run.stderr, run.stderr
    assert "data" not in dm.names()
    larder("volume", "start", "data", "--import", "--option", "stale=discard")
    larder("start", "--import", "data")
    check(range(written + 1))
    remove()


def test_taken_over_without_the_module(disks, monkeypatch, tmp_path):
    """The description is another one before the volume is shown: nobody writes to the superblock of what runs so."""
    ssd0, _, hdd0, _ = disks
    larder("create", "data", "--backing", hdd0, "--cache", ssd0, "--mkfs", "ext4", "--mount", MOUNTED)
    write(0)
    larder("stop", "data")
    uuid, identity = rows()["stack"]["uuid"], tmp_path / "machine-id"
    identity.write_text("1" * 32)
    monkeypatch.setenv("LARDER_MACHINE_ID", str(identity))
    refused(UNSAFE, ["start", "data", "--without-module"], "another machine")
    larder("start", "data", "--import", "--without-module")
    check([0])
    larder("start", "data", "--import", "--without-module")  # again: it runs
    larder("stop", "data")
    # a disk of last month: what its SSDs have seen since is given up
    with open(f"/dev/{hdd0.name}", "rb", buffering=0) as disk:
        size = disk.seek(0, os.SEEK_END)
        parts = {at: (disk.seek(at), disk.read(MIB))[1] for at in (0, size - MIB)}
    larder("set", "data", "--backing-label", "cellar")
    with open(f"/dev/{hdd0.name}", "r+b") as disk:
        for at, part in parts.items():
            disk.seek(at)
            disk.write(part)
        disk.flush()
        os.fsync(disk.fileno())
    refused(UNSAFE, ["start", "data", "--without-module"], "--discard-newer")
    larder("start", "data", "--discard-newer", uuid, "--without-module")
    check([0])
    larder("stop", "data")
    larder("start", "data", "--without-module")
    check([0])
    remove()


def test_array_that_was_started_to_look(disks):
    """A dry run starts none; and of one without the volume, which tells nothing, none stays."""
    larder(*words(disks))
    larder("stop", "data")
    started = "/dev/md77"
    for given in (["set", "data", "--backing-label", "x"], ["replace", "data", "cache", disks[0], "--wipe"]):
        refused(NOT_FOUND, [*given, "--dry-run"], "its array is stopped", "larder start --locked data")
        assert not arrays()
    larder("start", "data", "--locked")
    assert "backing-label: x" in larder("set", "data", "--backing-label", "x", "--dry-run").stdout
    larder("stop", "data")
    command.run("mdadm", "--assemble", started, *disks[2:])
    command.run("dd", "if=/dev/zero", f"of={started}", "bs=1M", "count=1", "conv=fsync")
    size = int(command.output("blockdev", "--getsize64", started))
    command.run("dd", "if=/dev/zero", f"of={started}", "bs=4k", f"seek={(size - MIB) // 4096}", "count=256", "conv=fsync")
    command.run("mdadm", "--stop", started)
    for given in (["set", "data", "--backing-label", "x"], ["rename", "data", "films"], ["start", "data"]):
        refused(NOT_FOUND, given, "its disks are not here")
        assert not arrays()


def test_the_only_ssd_is_gone(disks, key):
    """Clean, as one SSD is writethrough: it starts without its cache, and gets another one, which caches it from then on."""
    ssd0, ssd1, hdd0, _ = disks
    one = ["create", "data", "--backing", hdd0, "--cache", ssd0, "--class", "default", "--mkfs", "ext4", "--mount", MOUNTED]
    larder(*one, "--encrypt", f"luks2:keyfile={key}", "--iter-time", "10")
    write(0)
    larder("stop", "data")
    larder("super", "wipe", ssd0, "--yes")
    refused(NOT_FOUND, ["start", "data"], "no SSD of its cache", "--degraded")
    larder("start", "data", "--degraded")
    check([0])
    write(1)
    assert "without its cache" in larder("status", "data", code=DEGRADED).stdout
    refused(BUSY, ["replace", "data", "cache", ssd1], "is started")
    larder("stop", "data")
    larder("replace", "data", "cache", ssd1, "--yes")
    for number in (2, 3):
        larder("start", "data")
        larder("status", "data")
        check(range(number))
        write(number)
        larder("stop", "data")
    larder("start", "data")
    check(range(4))
    remove()
    nothing_left(disks)


def test_the_only_ssd_is_replaced(disks):
    """Begun, and ended by the same command; where the cache may be dirty, with a word: NEW may have been there before."""
    ssd0, ssd1, hdd0, _ = disks
    larder("create", "data", "--backing", hdd0, "--cache", ssd0, "--mkfs", "ext4", "--mount", MOUNTED)
    write(0)
    uuid, seen = rows()["stack"]["uuid"], dm.DmDevice("larder-cache-data").status
    replace = ["replace", "data", ssd0, ssd1]
    assert "once more, ends it" in larder(*replace, "--no-wait").stdout
    wait_for(lambda: seen()["ssds"] == "active/active", 60, "it to join")
    for _ in range(2):
        larder(*replace)
        assert seen()["ssds"] == "removed/active"
    larder("volume", "set", "data", "mode=writeback")
    write(1)
    replace = ["replace", "data", ssd1, ssd0]
    assert f"once more, with --discard-redundancy {uuid}, ends it" in larder(*replace, "--no-wait").stdout
    wait_for(lambda: seen()["ssds"] == "active/active", 60, "it to join")
    refused(UNSAFE, replace, ssd0, "already", f"larder drop data {ssd1}", f"LOST with --discard-redundancy {uuid}")
    larder(*replace, "--discard-redundancy", uuid)
    assert seen()["ssds"] == "active/removed"
    check([0, 1])
    remove()
    nothing_left(disks)


def test_removal_that_is_refused(disks, key, monkeypatch, tmp_path):
    """What covers its mount, and an fstab that cannot be written, leave all as it was; then the LUKS header is nowhere."""
    header = b"LUKS\xba\xbe"
    larder(*words(disks, key))
    write(0)
    uuid = rows()["stack"]["uuid"]
    command.run("mount", "-t", "tmpfs", "tmpfs", MOUNTED)
    refused(BUSY, ["stop", "data"], "something else is mounted over", str(MOUNTED))
    refused(BUSY, ["remove", "data", "--discard-data", uuid], "something else is mounted over")
    command.run("umount", MOUNTED)
    assert os.path.ismount(MOUNTED)
    larder("volume", "flush", "data", "--wait")
    assert on_disk(disks[2:], header)
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(tmp_path))  # a directory
    refused(FAILED, ["remove", "data", "--discard-data", uuid], "cannot change it")
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(FSTAB))
    larder("start", "data")
    check([0])
    remove()
    assert not on_disk(disks, header)
    nothing_left(disks)


@pytest.mark.parametrize("done", [(), ("array",), ("array", "volume"), ("array", "volume", "crypt")])
def test_stack_grows(disks, key, done):
    """Mounted: array, volume, LUKS, filesystem, from wherever it was cut off; files stay.  The array only if asked to."""
    parts = [Part.make(f"p{i}", disks[2 + i], 80, offset=1) for i in range(2)]
    larder(*words([*disks[:2], *parts], key))
    write(0)
    small, volume, crypt = room(), dm.DmDevice("data").sectors, dm.DmDevice("data-crypt").sectors
    assert "all that there is room for" in larder("resize", "data").stdout and room() == small
    for part in parts:
        part.resize(95)
    assert "--array takes them" in larder("resize", "data").stdout
    assert (dm.DmDevice("data").sectors, room()) == (volume, small)
    said = larder("resize", "data", "--array", "--dry-run").stdout
    assert "mdadm --grow" in said and "cryptsetup resize data-crypt" in said and "resize2fs /dev/mapper/data-crypt" in said
    assert (dm.DmDevice("data").sectors, room()) == (volume, small)
    if "array" in done:
        command.run("mdadm", "--grow", *arrays(), "--size=max")
    if "volume" in done:
        larder("volume", "resize", "data")
    if "crypt" in done:
        command.run("cryptsetup", "resize", "data-crypt", "--key-file", key)
    larder("resize", "data", *(() if done else ("--array",)))
    assert dm.DmDevice("data").sectors > volume + 14 * 2048
    assert dm.DmDevice("data-crypt").sectors > crypt + 14 * 2048 and room() > small + (12 << 20)
    write(1)
    larder("resize", "data", "--array")
    larder("stop", "data")
    refused(NOT_FOUND, ["resize", "data"], "not started")
    larder("start", "data")
    check([0, 1])
    larder("lock", "data")
    refused(NOT_FOUND, ["resize", "data"], "locked")
    larder("unlock", "data")
    remove()


def test_encrypted_stack_grows_by_whole_blocks(disks, key):
    """LUKS has sectors of 4096 bytes, and could not be unlocked on a volume that ends in a part of one."""
    ssd0, ssd1, _, hdd1 = disks
    part = Part.make("p0", hdd1, 80, offset=1)
    made = ["create", "data", "--backing", part, "--cache", ssd0, "--cache", ssd1, "--mkfs", "ext4", "--mount", MOUNTED]
    larder(*made, "--encrypt", f"luks2:keyfile={key}", "--iter-time", "10")
    assert "sector_size:4096" in command.run("dmsetup", "table", "data-crypt").stdout
    write(0)
    small, crypt = dm.DmDevice("data").sectors, dm.DmDevice("data-crypt").sectors
    part.reload(f"0 {(95 << 11) + 3} linear {hdd1} {1 << 11}", noflush=True)
    odd = f"{(small + 9) << 9}b"
    refused(USAGE, ["volume", "resize", "data", "--size", odd], "multiple of 4096")
    refused(USAGE, ["resize", "data", "--size", odd], "multiple of 4096")
    larder("resize", "data")
    now = dm.DmDevice("data").sectors
    assert now == small + (15 << 11) and dm.DmDevice("data-crypt").sectors == crypt + (15 << 11)
    larder("stop", "data")
    larder("start", "data")
    assert (dm.DmDevice("data").sectors, now % 8) == (now, 0)
    check([0])
    # made so by plain dmsetup: it is said while it is open
    volume = dm.DmDevice("data")
    volume.reload(volume.table().replace(f"0 {now} ", f"0 {now + 3} "), noflush=True)
    refused(UNSAFE, ["resize", "data"], "cannot be unlocked again", "volume resize data --size")
    part.reload(f"0 {(95 << 11) + 8} linear {hdd1} {1 << 11}", noflush=True)
    larder("volume", "resize", "data", "--size", f"{(now + 8) << 9}b")
    larder("resize", "data")
    larder("stop", "data")
    larder("start", "data")
    check([0])
    remove()


def array_file(name: str) -> Path:
    return Path(f"/sys/block/{Path(arrays()[0]).name}/md/{name}")


def test_raid_5_grows(disks, key, make_disk):
    """Its log of the parity is off for that moment; what a try that was killed has left is ended; no key is asked for in vain."""
    if command.run("modprobe", "raid456", check=False).returncode:
        pytest.skip("this kernel has no raid456")
    ssd0, ssd1, *_ = disks
    hdds = [make_disk(f"plain{i}", model="null", mb=96, wce=0) for i in range(4)]
    parts = [Part.make(f"p{i}", hdd, 64, offset=1) for i, hdd in enumerate(hdds)]
    backing = [w for p in parts for w in ("--backing", p)]
    made = ["create", "data", *backing, "--raid", "5", "--cache", ssd0, "--cache", ssd1, "--mkfs", "ext4", "--mount", MOUNTED]
    larder(*made, "--encrypt", f"luks2:keyfile={key}", "--iter-time", "10")
    write(0)
    action, policy = array_file("sync_action"), array_file("consistency_policy")
    wait_for(lambda: action.read_text() == "idle\n", 120, "the parity")
    small = room()
    for part in parts:
        part.resize(80)
    take_out(arrays()[0], parts[3])
    refused(UNSAFE, ["resize", "data", "--array", "--yes"], "lacks 1 of its disks", "--take-back")
    larder("start", "data", "--take-back", parts[3])
    wait_for(lambda: rows()["array"]["state"] == "active", 120, "the disk to be whole")
    said = larder("resize", "data", "--array", "--dry-run").stdout
    assert "no log of its parity" in said and said.index("=resync") < said.index("--size=max") < said.index("=ppl")
    action.write_text("frozen")
    larder("resize", "data", "--array")
    assert room() > small + (40 << 20)
    assert action.read_text() != "frozen\n" and policy.read_text() == "ppl\n"
    # killed behind mdadm: nothing is there to grow, and all the same it is ended
    wait_for(lambda: action.read_text() == "idle\n", 120, "the parity of what is new")
    command.run("mdadm", "--grow", arrays()[0], "--consistency-policy=resync")
    action.write_text("frozen")
    assert "the smallest of its disks" in larder("resize", "data", "--array", "--keyfile", "/not/there").stdout
    assert action.read_text() == "idle\n" and policy.read_text() == "ppl\n"
    check([0])
    larder("stop", "data")
    larder("start", "data")
    check([0])
    remove()


def test_made_smaller(disks):
    """A volume of a given size, also where the making was cut short before it; what is free is shown, and taken, part and all."""

    def free():
        found = json.loads(larder("show", "data", "-o", "layer,free", "--units", "b", "--reportformat", "json").stdout)["stacks"]
        return int(next(r["free"] for r in found if r["layer"] == "volume").rstrip("B") or 0)

    killed_at(disks, "the array", "--size", "48M")
    larder("create", "--resume", "data")
    assert dm.DmDevice("data").sectors == 48 << 11
    write(0)
    small, left = room(), free()
    assert left > 20 << 20
    refused(UNSAFE, ["resize", "data", "--size", "40M"], "cannot be made smaller")
    refused(FAILED, ["resize", "data", "--size", "1G"], "--size", "has room for")
    assert "takes 56.00MiB" in larder("resize", "data", "--size", "56M", "--dry-run").stdout
    assert dm.DmDevice("data").sectors == 48 << 11
    larder("resize", "data", "--size", "56M")
    assert dm.DmDevice("data").sectors == 56 << 11 and free() == left - (8 << 20) and room() > small + (6 << 20)
    larder("resize", "data")
    assert dm.DmDevice("data").sectors == (48 << 11) + (left >> 9) and not free()
    check([0])
    remove()


@pytest.mark.parametrize("fs", ["xfs", "btrfs"])
def test_filesystem_grows(make_disk, disks, fs):
    """On one disk, not encrypted."""
    if command.run("modprobe", fs, check=False).returncode:
        pytest.skip(f"this kernel has no {fs}")
    part = Part.make("p", make_disk("large0", model="null", mb=480, wce=1), 400)
    larder("create", "data", "--backing", part, "--cache", disks[0], "--mkfs", fs, "--mount", MOUNTED)
    write(0)
    small = room()
    part.resize(480)
    refused(USAGE, ["resize", "data", "--array"], "it has no array")
    larder("resize", "data")
    assert room() > small + (70 << 20)
    larder("resize", "data")
    command.run("umount", MOUNTED)
    refused(NOT_FOUND, ["resize", "data"], "mount")
    larder("stop", "data")
    larder("start", "data")
    check([0])
    remove()


def test_unlock_that_was_killed(disks, key):
    """Between two steps of libcryptsetup: its device is there, without a table.  The stack is locked, and that goes."""
    larder(*words(disks, key))
    write(0)
    uuid = rows()["luks"]["uuid"].replace("-", "")

    def half():
        command.run("dmsetup", "create", "data-crypt", "--notable", "--uuid", f"CRYPT-LUKS2-{uuid}-data-crypt")
        assert rows()["luks"]["state"] == "locked"

    larder("lock", "data")
    half()
    larder("unlock", "data")
    check([0])
    for verb in ("lock", "stop"):
        larder("lock", "data")
        half()
        larder(verb, "data")
        assert "data-crypt" not in dm.names()
        larder("start", "data")
        check([0])
    larder("lock", "data")
    half()
    remove()
    nothing_left(disks)


def test_half_made_is_not_unlocked(disks, key, monkeypatch, tmp_path):
    """Killed between the end of mkfs and the note of it: what --resume formats, and remove erases without a word, gets no file."""
    program = tmp_path / "mkfs.ext4"
    program.write_text(f'#!/bin/sh\n{shutil.which("mkfs.ext4")} "$@" && kill -9 $PPID\n')
    program.chmod(0o755)
    with monkeypatch.context() as m:
        m.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        larder(*words(disks, key), code=-signal.SIGKILL)
    node = "/dev/mapper/data-crypt"
    assert 'TYPE="ext4"' in command.output("blkid", "-p", node) and rows()["stack"]["state"] == "creating"
    for lock in False, True:
        if lock:
            larder("lock", "data")
        refused(UNSAFE, ["unlock", "data"], "data: is half made", "larder create --resume data", "larder remove data")
        assert os.path.exists(node) != lock and not MOUNTED.is_mount()
    larder("create", "--resume", "data")
    write(0)
    larder("lock", "data")
    larder("unlock", "data")
    check([0])
    remove()
    nothing_left(disks)


def test_scrub(disks):
    """What the disks of an array hold is compared, and made the same only when asked for."""
    hdd1 = disks[3]
    larder(*words(disks))
    write(0)
    larder("volume", "flush", "data", "--wait")
    command.run("mdadm", "--wait", *arrays(), check=False)  # its first resync
    assert " 0 sectors differ" in larder("scrub", "data", "--wait").stdout
    at = int(array_file("rd1/offset").read_text()) + (30 << 11)
    hdd1.corrupt(at, 8)
    before = hdd1.read(at, 8)
    assert "echo check" in larder("scrub", "data", "--dry-run").stdout
    said = larder("scrub", "data", "--wait", code=FAILED)
    assert " 0 sectors differ" not in said.stdout and "--repair" in said.stderr
    assert " 0 errors" in said.stdout and hdd1.read(at, 8) == before != disks[2].read(at, 8)
    assert "were made the same" in larder("scrub", "data", "--repair", "--wait").stdout
    assert hdd1.read(at, 8) == disks[2].read(at, 8)
    assert " 0 sectors differ" in larder("scrub", "--all", "--wait").stdout
    check([0])
    remove()


def catches_term(pid: int) -> bool:
    """Does it handle SIGTERM?"""
    (mask,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def test_scrub_is_stopped_and_goes_on(disks):
    larder(*words(disks))
    command.run("mdadm", "--wait", *arrays(), check=False)
    for name in ("sync_speed_min", "sync_speed_max"):
        array_file(name).write_text("2000")
    larder("scrub", "data")
    wait_for(lambda: int(array_file("sync_completed").read_text().split()[0]) > 4000, 60, "the scrub to come somewhere")
    assert rows()["array"]["state"] == "scrubbing"
    refused(BUSY, ["scrub", "data", "--repair"], "does a check")
    said = larder("scrub", "data", "--stop").stdout
    at = int(said.split("sector ")[1].split()[0])
    assert at >= 4000 and rows()["array"]["state"] == "active"
    array_file("sync_speed_max").write_text("200000")
    disks[3].reset_stats()
    assert f"goes on at sector {at}" in larder("scrub", "data", "--wait").stdout
    rest = disks[3].stats()["rbytes"]
    disks[3].reset_stats()
    assert "goes on" not in larder("scrub", "data", "--wait").stdout
    assert rest + at * 256 < disks[3].stats()["rbytes"]
    # who waits and is told to end stops what it began; what somebody else began goes on
    array_file("sync_speed_max").write_text("2000")
    for begun in (False, True):
        if begun:
            larder("scrub", "data")
        waits = subprocess.Popen(["larder", "scrub", "data", "--wait"], stdout=subprocess.DEVNULL)
        wait_for(lambda: rows()["array"]["state"] == "scrubbing", 60, "the scrub to begin")
        wait_for(lambda p=waits.pid: catches_term(p), 60, "the command to wait")
        waits.terminate()
        assert waits.wait(60) == -signal.SIGTERM
        assert rows()["array"]["state"] == ("scrubbing" if begun else "active")
    larder("scrub", "data", "--stop")
    larder("stop", "data")
    refused(NOT_FOUND, ["scrub", "data"], "not started")
    larder("start", "data")
    remove()


def test_scrub_that_ends_early(disks):
    """Somebody interrupts md: what was not compared is not called the same.  What a part has found is in the sum."""
    hdd1 = disks[3]
    larder(*words(disks))
    write(0)
    command.run("mdadm", "--wait", *arrays(), check=False)
    hdd1.corrupt(int(array_file("rd1/offset").read_text()) + 1000, 8)  # nothing is there, behind the superblock
    completed, action = array_file("sync_completed"), array_file("sync_action")

    def done():
        sectors = completed.read_text().split()[0]
        return int(sectors) if sectors.isdigit() else 0

    def speed(kib):
        for name in ("sync_speed_min", "sync_speed_max"):
            array_file(name).write_text(str(kib))

    for least in (0, 4000):
        speed(2000)
        waits = subprocess.Popen(["larder", "scrub", "data", "--wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda p=waits.pid: catches_term(p) and action.read_text() == "check\n", 60, "the scrub to begin")
        wait_for(lambda n=least: done() >= n, 60, "the scrub to come somewhere")
        action.write_text("idle")
        said, complained = waits.communicate(timeout=60)
        assert waits.returncode == FAILED and "was interrupted at sector" in complained and "sectors differ" not in said
    differ = int(re.search(r"in front of which (\d+) differ", complained)[1])
    assert 8 <= differ < 256, "about: a part that ended at once is compared again, and not counted twice"
    larder("scrub", "data")
    wait_for(lambda: done() > int(re.search(r"at sector (\d+)", complained)[1]), 60, "the scrub to go on")
    assert f"in front of which {differ} differ" in larder("scrub", "data", "--stop").stdout
    speed(200000)
    run = larder("scrub", "data", "--wait", code=FAILED)
    assert "goes on at sector" in run.stdout and f" {differ} sectors differ" in run.stdout
    speed(2000)
    larder("scrub", "data")
    wait_for(lambda: done() > 4000, 60, "the scrub to come somewhere")
    larder("scrub", "data", "--stop")
    speed(200000)
    run = larder("scrub", "data", "--repair", "--wait")
    assert "goes on" not in run.stdout and f" {differ} sectors differed" in run.stdout
    assert " 0 sectors differ" in larder("scrub", "data", "--wait").stdout
    check([0])
    remove()
