# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshots of stacks: what they hold, every way of starting, stores that are missing, full or failing, commands cut short."""

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import pytest
from lib import command, database, dm, simdisk
from lib.above import configure_lvm
from lib.question import answered
from lib.stacks import (
    BUSY,
    DEGRADED,
    DONE,
    FAILED,
    MOUNTED,
    NOT_FOUND,
    UNSAFE,
    USAGE,
    arrays,
    check,
    larder,
    nothing_left,
    prepare,
    refused,
    release,
    remove,
    rows,
    words,
    write,
)

SNAPSHOT = Path("/run/snapshot")  # where one is mounted
ONE, TWO = "data@one", "data@two"


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    if command.run("modprobe", "dm-snapshot", check=False).returncode:
        pytest.skip("this kernel has no dm-snapshot")
    kernel_log.expect("Snapshot|snapshots: |XFS")
    SNAPSHOT.mkdir(exist_ok=True)
    yield from prepare(make_disk, monkeypatch, kernel_log)


@pytest.fixture
def store(disks, make_disk):
    """disks first: they are released before it goes."""
    return make_disk("store0", model="null", mb=64, wce=1)


def stack(disks, key=None, raid=False):
    """Made; of one disk, unless it is an array."""
    given = words(disks, key)
    if not raid:
        given = [w for w in given if w not in ("--raid", "1")]
        at = given.index(disks[3])
        del given[at - 1 : at + 1]
    larder(*given)


def snapshots():
    found = json.loads(larder("snapshot", "list", "-o", "all", "--units", "b", "--reportformat", "json").stdout)["snapshots"]
    return {row["snapshot"]: row for row in found}


def states():
    return {name: row["state"] for name, row in snapshots().items()}


def digest(name):
    """Of all that a snapshot shows, past the page cache's memory of it."""
    node = f"/dev/mapper/{name}"
    command.run("blockdev", "--flushbufs", node)
    return hashlib.sha256(Path(node).read_bytes()).hexdigest()


@contextlib.contextmanager
def mounted(name, key=None):
    node = f"/dev/mapper/{name}"
    if key:
        command.run("cryptsetup", "open", "--key-file", key, "--readonly", node, f"{name}-snapshot")
        node += "-snapshot"
    try:
        command.run("mount", "-o", "ro", node, SNAPSHOT)
        try:
            yield SNAPSHOT
        finally:
            command.run("umount", SNAPSHOT)
    finally:
        if key:
            command.run("cryptsetup", "close", f"{name}-snapshot")


class Writer:
    """Transactions, each durable when it is counted, as fast as they go."""

    def __init__(self):
        database.create(str(MOUNTED / "db"), "wal").close()
        self.begun = self.done = 0
        self.longest = 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        with contextlib.closing(database.connect(str(MOUNTED / "db"))) as db:
            while not self.over.is_set():
                self.begun += 1
                before = time.monotonic()
                database.transact(db, self.begun)
                self.longest = max(self.longest, time.monotonic() - before)
                self.done = self.begun

    def __enter__(self):
        self.thread.start()
        while self.done < 20:
            assert self.thread.is_alive()
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def rate(self, number):
        """Transactions a second, of so many more."""
        begin, end = time.monotonic(), self.done + number
        while self.done < end:
            assert self.thread.is_alive()
            time.sleep(0.01)
        return number / (time.monotonic() - begin)


def transactions(directory, tmp_path):
    """How many the database below a directory has had, by a copy, as reading makes files beside it."""
    for name in ("db", "db-wal"):
        if (directory / name).exists():
            (tmp_path / name).write_bytes((directory / name).read_bytes())
    with contextlib.closing(sqlite3.connect(tmp_path / "db")) as db:
        number = db.execute("SELECT number FROM log WHERE key=-1").fetchone()[0]
    assert database.judge(str(tmp_path / "db"), number) == ""
    for file in tmp_path.glob("db*"):
        file.unlink()
    return number


def blocked(said):
    return float(re.search(r"writes were blocked for ([\d.]+) ms", said).group(1))


def unmarked(store):
    larder("probe", store, code=NOT_FOUND)
    assert not command.run("blkid", "-p", store, check=False).stdout


def plain():
    """Of what a snapshot needs nothing is left."""
    assert not [n for n in dm.names() if "@" in n or n.endswith("-origin")]
    assert not states() and "fine" in larder("status", "data").stdout
    assert dm.DmDevice("data").table().split()[2] == "larder"


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "luks"])
def test_of_its_moment(disks, store, key, tmp_path, encrypted):
    """Under load: a state between the last transaction before and the first one after; which it stays, whatever the stack does."""
    key = key if encrypted else None
    stack(disks, key, raid=encrypted)
    write(0)
    with Writer() as writer:
        alone = writer.rate(100)
        before = writer.done
        said = larder("snapshot", "create", ONE, "--store", store).stdout
        after = writer.begun
        beside = writer.rate(100)
        longest = writer.longest
    print(f"blocked for {blocked(said)} ms; the longest transaction took {1000 * longest:.1f} ms")
    print(f"transactions a second: {alone:.0f} alone, {beside:.0f} beside a snapshot")
    assert states() == {ONE: "valid"}
    first = digest(ONE)
    with mounted(ONE, key) as directory:
        assert before <= transactions(directory, tmp_path) <= after
        assert (directory / "lost+found").is_dir()
    assert int(snapshots()[ONE]["used"].rstrip("B")) > 0
    write(1)
    refused(BUSY, ["snapshot", "create", ONE, "--store", store], "there is a snapshot")
    refused(BUSY, ["resize", "data"], "has snapshots")
    refused(BUSY, ["volume", "resize", "data"], "has snapshots")
    refused(BUSY, ["remove", "data", "--discard-data", rows()["stack"]["uuid"]], "has snapshots")
    assert digest(ONE) == first

    larder("stop", "data")
    assert not dm.names() and (encrypted or states() == {ONE: "stopped"})
    larder("start", "data")
    check([0, 1])
    assert digest(ONE) == first
    for i in range(2, 6):
        write(i, os.urandom(1 << 20))
    assert digest(ONE) == first
    larder("stop", "data")
    if not encrypted:  # it has no array, which would have to be started first
        larder("volume", "start", "data")
        assert digest(ONE) == first and states() == {ONE: "valid"}
    larder("start", "data")
    check([0, 1])

    with mounted(ONE, key):
        refused(BUSY, ["snapshot", "remove", ONE], "in use")
        refused(BUSY, ["stop", "data"], "in use")
        assert MOUNTED.is_mount(), "nothing was taken apart"
    assert states() == {ONE: "valid"} and digest(ONE) == first
    larder("snapshot", "remove", ONE)
    plain()
    unmarked(store)
    check([0, 1])
    write(6)
    larder("stop", "data")
    larder("start", "data")
    check([0, 1, 6])
    remove()
    nothing_left([*disks, store])


def test_several(disks, store, make_disk):
    """Of different moments; any of them goes first; writable, for itself; with --without-module, and by its volume alone."""
    other = make_disk("store1", model="null", mb=64, wce=1)
    stack(disks)
    write(0, b"old")
    larder("snapshot", "create", ONE, "--store", store)
    write(0, b"new")
    said = larder("snapshot", "create", TWO, "--store", other).stdout
    print(f"the second one blocked for {blocked(said)} ms")
    write(0, b"newest")
    sums = {name: digest(name) for name in (ONE, TWO)}
    assert states() == {ONE: "valid", TWO: "valid"} and sums[ONE] != sums[TWO]
    for name, content in ((ONE, b"old"), (TWO, b"new")):
        with mounted(name) as directory:
            assert next(directory.glob("telltale*")).read_bytes() == content
    larder("stop", "data")
    larder("volume", "start", "data")
    assert {name: digest(name) for name in (ONE, TWO)} == sums
    larder("volume", "flush", "data", "--wait")
    larder("volume", "stop", "data")
    assert not [n for n in dm.names() if n.startswith("data")]
    larder("start", "--without-module", "data")
    assert {name: digest(name) for name in (ONE, TWO)} == sums
    write(1)
    refused(UNSAFE, ["snapshot", "create", "data@three", "--store", store], "without larder's module")
    refused(BUSY, ["volume", "start", "data", "--name", "other"], "runs already", "/dev/mapper/data")
    assert {name: digest(name) for name in (ONE, TWO)} == sums
    larder("stop", "data")
    assert not [n for n in dm.names() if n.startswith("data")]
    larder("start", "data", code=None)
    assert {name: digest(name) for name in (ONE, TWO)} == sums
    command.run("mount", f"/dev/mapper/{TWO}", SNAPSHOT)
    (SNAPSHOT / "more").write_bytes(b"written to the snapshot")
    command.run("umount", SNAPSHOT)
    assert not (MOUNTED / "more").exists() and digest(ONE) == sums[ONE] and digest(TWO) != sums[TWO]
    larder("snapshot", "remove", ONE)
    assert states() == {TWO: "valid"}
    with mounted(TWO) as directory:
        assert (directory / "more").read_bytes() == b"written to the snapshot"
    larder("snapshot", "remove", TWO)
    assert not states()
    unmarked(store)
    unmarked(other)


def fill(megabytes, begin=0):
    for i in range(begin, begin + megabytes):
        write(f"m{i}", os.urandom(1 << 20))


def test_store_fills_up(disks, make_disk):
    """Said before, then the snapshot is lost, and the stack goes on, and starts again; nothing of it is believed later."""
    small = make_disk("small", model="null", mb=16, wce=1)
    stack(disks)
    write(0)
    larder("snapshot", "create", ONE, "--store", small)
    assert "fine" in larder("status", "data").stdout
    for i in range(40):
        fill(1, i)
        if int(snapshots()[ONE]["percent"]) >= 80:
            break
    assert f"larder snapshot remove {ONE}" in larder("status", "data", code=DEGRADED).stdout
    assert states() == {ONE: "valid"}
    fill(10, 40)
    assert states() == {ONE: "invalid"}
    assert "LOST" in larder("status", "data", code=DEGRADED).stdout
    with pytest.raises(OSError):
        digest(ONE)
    write(1)
    larder("stop", "data")
    assert states() == {ONE: "lost"}
    larder("start", "data")
    check([0, 1])
    assert "data@one" not in dm.names() and "LOST" in larder("status", "data", code=DEGRADED).stdout
    refused(BUSY, ["snapshot", "create", ONE, "--store", small], "larder snapshot remove")
    larder("snapshot", "remove", ONE)
    plain()
    unmarked(small)


@pytest.mark.parametrize("noted", ["stop", "note", "invalid"])
def test_store_fails(disks, store, noted):
    """The stack goes on; a store that could not note that it failed is not believed when it works again."""
    stack(disks)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    store.fail(op="write,flush", status="ioerr")
    for i in range(1, 6):
        write(i, os.urandom(1 << 20))
    assert states() == {ONE: "invalid"} and "LOST" in larder("status", "data", code=DEGRADED).stdout
    check([0])
    if noted == "note":
        larder("start", "--note", "data")
        store.heal()
        release()
    elif noted == "stop":
        larder("stop", "data")
        store.heal()
    else:
        store.heal()
        larder("snapshot", "remove", ONE)
        plain()
        return
    assert states() == {ONE: "lost"}
    larder("start", "data")
    check([0])
    assert "data@one" not in dm.names()
    larder("snapshot", "remove", ONE)
    plain()


@pytest.mark.parametrize("noted", ["stop", "note"])
def test_removed_beside_its_stack(disks, store, noted):
    """By dmsetup, or whoever takes devices that nobody uses: what is overwritten from then on is copied no more."""
    stack(disks)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    command.run("dmsetup", "remove", ONE)
    assert states() == {ONE: "invalid"} and not snapshots()[ONE]["device"]
    assert "LOST: its device was removed" in larder("status", "data", code=DEGRADED).stdout
    write(1, os.urandom(1 << 20))
    if noted == "note":
        larder("start", "--note", "data")
        release()
    else:
        assert "data@one: is lost" in larder("stop", "data").stderr
    assert states() == {ONE: "lost"}
    larder("start", "data")
    check([0])
    assert ONE not in dm.names()
    larder("snapshot", "remove", ONE)
    plain()


def test_store_is_absent(disks, store):
    """Nothing shows the stack without it, unless the snapshot is given up by its name."""
    stack(disks)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    first = digest(ONE)
    larder("volume", "flush", "data", "--wait")
    larder("stop", "data")
    head = Path(f"/dev/{store.name}").read_bytes()[4096:8192]

    def overwrite(data):
        with open(f"/dev/{store.name}", "r+b") as f:
            f.seek(4096)
            f.write(data)
            f.flush()
            os.fsync(f.fileno())

    overwrite(bytes(4096))
    refused(NOT_FOUND, ["start", "data"], "the store of its snapshot one is not here", "--drop-snapshot one")
    refused(NOT_FOUND, ["volume", "start", "data"], "the store of its snapshot one is not here")
    refused(NOT_FOUND, ["start", "--without-module", "data"], "store of its snapshot one")
    assert not [n for n in dm.names() if n.startswith("data")]
    refused(NOT_FOUND, ["start", "data", "--drop-snapshot", "other"], "no snapshot other")
    overwrite(head)
    larder("start", "data")
    assert digest(ONE) == first
    refused(BUSY, ["start", "data", "--drop-snapshot", "one"], "this one runs", "larder snapshot remove data@one")
    assert states() == {ONE: "valid"}
    larder("stop", "data")
    # it cannot be read
    store.fail(op="read", from_=2048, status="ioerr")
    refused(FAILED, ["start", "data"], "--drop-snapshot one")
    assert not [n for n in dm.names() if n.startswith("data")]
    store.heal()
    overwrite(bytes(4096))
    larder("start", "data", "--drop-snapshot", "one")
    check([0])
    assert states() == {ONE: "lost"}
    write(1)
    overwrite(head)
    larder("stop", "data")
    larder("start", "data")
    check([0, 1])
    assert states() == {ONE: "lost"} and "data@one" not in dm.names()
    larder("snapshot", "remove", ONE)
    plain()
    unmarked(store)


@pytest.fixture
def kill_at(tmp_path):
    """larder, killed right behind the N-th change that it makes by device-mapper; what it has begun is over on return."""
    library = tmp_path / "kill_at.so"
    command.run("cc", "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).parents[2] / "command/kill_at.c")

    def run(number, *given, **more):
        env = os.environ | {"LD_PRELOAD": str(library), "KILL_AT": str(number)} | more
        done = subprocess.run(["larder", *map(str, given)], env=env, capture_output=True, text=True)
        assert done.returncode in (DONE, FAILED if more else DONE, -signal.SIGKILL), done.stderr
        shown = [n for n in dm.names() if "@" not in n and not n.endswith("-origin")]
        assert not any(dm.DmDevice(n).info()["suspended"] for n in shown), number
        return done.returncode

    return run


def cut_off(number, key, boot=lambda: None):
    """The stack is there and can be written to; then, each second time, as after a power cut.  boot: what others do behind it."""
    write(number)
    if number % 2:
        release()
        boot()
        larder("start", "data", *(["--keyfile", key] if key else []))
    check([0, number])


@pytest.mark.limit(1800)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "luks"])
def test_killed_at_each_step(disks, store, key, kill_at, encrypted):
    """Nothing is left suspended, every start is right, and the same verb, or `remove`, comes to its end."""
    key = key if encrypted else None
    stack(disks, key)
    write(0)
    for number in range(1, 40):
        code = kill_at(number, "snapshot", "create", ONE, "--store", store)
        if code == DONE:
            break
        cut_off(number, key)
        assert states() in ({}, {ONE: "creating"}, {ONE: "valid"}), number
        if number % 3 == 0 and states():
            larder("snapshot", "remove", ONE)
            plain()
        if states() != {ONE: "valid"}:
            larder("snapshot", "create", ONE, "--store", store)
        first = digest(ONE)
        write(f"b{number}")
        assert digest(ONE) == first and states() == {ONE: "valid"}
        larder("snapshot", "remove", ONE)
        plain()
    assert number > 6
    print(f"create: killed at {number - 1} steps")
    for number in range(1, 40):
        if not states():
            larder("snapshot", "create", ONE, "--store", store)
        code = kill_at(number, "snapshot", "remove", ONE)
        if code == DONE:
            break
        cut_off(number, key)
        assert states() in ({}, {ONE: "removing"}, {ONE: "valid"}), number
        if states():
            larder("snapshot", "remove", ONE)
        plain()
    assert number > 4
    print(f"remove: killed at {number - 1} steps")
    plain()
    unmarked(store)


@pytest.fixture
def group(disks, make_disk, tmp_path, monkeypatch):
    """A volume group with nothing in it; its name.  Its disk has been another's."""
    configure_lvm(tmp_path, monkeypatch)
    disk = make_disk("space0", model="null", mb=256, wce=1)
    old = random.Random(1).randbytes(4096) + command.output("sh", "-c", "printf _BHRfS_M").encode() * 512
    for at in range(0, disk.sectors, 2048):
        disk.write(at, old)
    command.run("pvcreate", "--yes", "--force", "--force", disk)
    command.run("vgcreate", "space", disk)
    yield "space"
    release()
    command.run("vgremove", "--yes", "--force", "space", check=False)
    shutil.rmtree("/dev/space", ignore_errors=True)
    command.run("pvremove", "--yes", "--force", disk, check=False)


def made(group):
    """Logical volumes in it: {name: bytes}."""
    shown = command.output("lvs", "--noheadings", "--nosuffix", "--units", "b", "-o", "lv_name,lv_size,lv_tags", group)
    rows = [line.split() for line in shown.splitlines()]
    assert all(tags == "larder_store" for _, _, tags in rows)
    return {name: int(size) for name, size, _ in rows}


@pytest.mark.limit(600)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "luks"])
def test_store_from_a_volume_group(disks, group, key, encrypted):
    """Free space that was declared: it is taken where no store is named, is there at each start, and goes with the snapshot."""
    stack(disks, key if encrypted else None)
    write(0)
    refused(USAGE, ["snapshot", "create", ONE], "--store: is missing", "larder set data --snapshot-space GROUP")
    refused(NOT_FOUND, ["set", "data", "--snapshot-space", "nobody"], "no such volume group")
    refused(USAGE, ["set", "data", "--snapshot-space", "a/b"], "--snapshot-space", "not a volume group")
    larder("set", "data", "--snapshot-space", group)
    assert "lvcreate" in larder("snapshot", "create", ONE, "--dry-run").stdout and not made(group)
    refused(FAILED, ["snapshot", "create", ONE, "--size", "1G"], "free", "1.00GiB")
    refused(USAGE, ["snapshot", "create", ONE, "--size", "1M"], "too small")
    refused(USAGE, ["snapshot", "create", ONE, "--size", "64M", "--store", "/dev/null"], "--size")
    assert not made(group) and not states()
    larder("snapshot", "create", ONE)
    assert list(made(group).values()) == [64 << 20] and states() == {ONE: "valid"}
    larder("snapshot", "create", TWO, "--size", "32M")
    assert sorted(made(group).values()) == [32 << 20, 64 << 20]
    first = digest(ONE), digest(TWO)
    write(1)
    assert (digest(ONE), digest(TWO)) == first
    larder("stop", "data")
    command.run("vgchange", "--activate", "n", group)
    refused(NOT_FOUND, ["start", "data"], "the store of its snapshot")
    command.run("vgchange", "--activate", "y", group)
    larder("start", "data", *(["--keyfile", key] if encrypted else []))
    check([0, 1])
    assert (digest(ONE), digest(TWO)) == first and states() == {ONE: "valid", TWO: "valid"}
    # what was set since is of no matter for what there is
    larder("set", "data", "--snapshot-space", "none")
    larder("snapshot", "remove", ONE)
    assert list(made(group).values()) == [32 << 20]
    larder("snapshot", "remove", TWO)
    assert not made(group)
    plain()
    refused(USAGE, ["snapshot", "create", ONE], "--store: is missing")


def test_kept_key_slots_leave_an_inactive_volume(disks, group, key, tmp_path):
    """Nobody has activated the store when its snapshot is removed: nothing of the former key stays in the group."""
    new = tmp_path / "new"
    new.write_bytes(os.urandom(64))
    stack(disks, key)
    larder("set", "data", "--snapshot-space", group)
    larder("snapshot", "create", ONE)
    with open("/dev/mapper/data@one", "rb") as snapshot:
        slot = snapshot.read(36 << 10)[-4096:]  # behind both heads
    larder("passwd", "data", "--change", "--keyfile", key, "--new-keyfile", new, "--iter-time", "10", "--header-backup", "none")
    larder("stop", "data")
    command.run("lvchange", "--activate", "n", group)
    node = command.output("pvs", "--noheadings", "--options", "pv_name").strip()

    def kept():
        command.run("blockdev", "--flushbufs", node)
        return Path(node).read_bytes()

    assert slot in kept()
    larder("snapshot", "remove", ONE)
    assert not made(group) and slot not in kept()


@pytest.fixture
def lvm_that_kills(tmp_path, monkeypatch):
    """lvm, by itself: without what kills larder at a change that it makes; and who has run it, behind its N-th lvcreate or
    lvremove, is killed where that is asked for."""
    directory = tmp_path / "bin"
    directory.mkdir()
    lvm = directory / "lvm"
    lvm.write_text(
        '#!/bin/sh\nunset LD_PRELOAD\n/sbin/lvm "$@"\ncode=$?\n'
        f'[ "$1" != "$(cat {tmp_path}/victim 2> /dev/null)" ] || {{ rm {tmp_path}/victim; kill -9 $PPID; }}\nexit $code\n'
    )
    lvm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return tmp_path / "victim"


@pytest.mark.limit(1800)
def test_store_from_a_volume_group_killed(disks, group, lvm_that_kills, kill_at):
    """Wherever it is killed, the same command, or `remove`, comes to its end, and no logical volume is left over."""
    stack(disks)
    write(0)
    larder("set", "data", "--snapshot-space", group)
    lvm_that_kills.write_text("lvcreate")
    assert larder("snapshot", "create", ONE, code=None).returncode == -signal.SIGKILL
    left = set(made(group))
    assert len(left) == 1 and states() == {ONE: "creating"}
    # whatever else is noted meanwhile, it is found
    larder("set", "data", "--backing-label", "shelf")
    lvm_that_kills.write_text("lvcreate")
    assert larder("snapshot", "create", ONE, code=None).returncode == -signal.SIGKILL
    assert len(made(group)) == 1 and left != set(made(group))
    larder("set", "data", "--backing-label", "none")
    larder("snapshot", "remove", ONE)
    assert not made(group)
    for number in range(1, 40):
        code = kill_at(number, "snapshot", "create", ONE)
        if code == DONE:
            break
        cut_off(number, None, lambda: command.run("vgchange", "--activate", "y", group))
        larder("set", "data", "--backing-label", f"shelf{number}")
        assert len(made(group)) <= 1
        if number % 3 == 0 and states():
            larder("snapshot", "remove", ONE)
            assert not made(group)
        if states() != {ONE: "valid"}:
            larder("snapshot", "create", ONE)
        assert len(made(group)) == 1
        larder("snapshot", "remove", ONE)
        assert not made(group)
        plain()
    assert number > 4
    lvm_that_kills.write_text("lvremove")
    assert larder("snapshot", "remove", ONE, code=None).returncode == -signal.SIGKILL
    assert not made(group) and states() == {ONE: "removing"}
    larder("snapshot", "remove", ONE)
    plain()


def test_store_from_a_volume_group_is_not_noted(disks, group, kernel_log):
    """Its SSDs fail in the first note: nothing is taken from the group."""
    kernel_log.expect("device-mapper: larder|critical .* error")
    stack(disks)
    write(0)
    larder("set", "data", "--snapshot-space", group)
    os.sync()
    for ssd in disks[:2]:
        ssd.fail(op="write,flush", status="ioerr")
    larder("snapshot", "create", ONE, code=FAILED)
    assert not made(group) and not states()


@pytest.fixture
def lvm_that_fails(tmp_path, monkeypatch):
    """lvm, by itself; while this file is there, its lvs says nothing, and fails."""
    directory, fails = tmp_path / "bin", tmp_path / "fails"
    directory.mkdir()
    lvm = directory / "lvm"
    lvm.write_text(f'#!/bin/sh\n[ "$1" != lvs ] || [ ! -e {fails} ] || exit 5\nexec /sbin/lvm "$@"\n')
    lvm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return fails


def test_lvm_cannot_be_asked(disks, store, group, lvm_that_fails):
    """A logical volume that was made for a snapshot is not forgotten; another store does not wait for LVM."""
    stack(disks)
    write(0)
    larder("set", "data", "--snapshot-space", group)
    larder("snapshot", "create", ONE)
    larder("snapshot", "create", TWO, "--store", store)
    lvm_that_fails.touch()
    for _ in range(2):  # with the mark of its store, and without
        refused(FAILED, ["snapshot", "remove", ONE], "lvs: has failed", "run the same again")
        assert states() == {ONE: "removing", TWO: "valid"}
    larder("snapshot", "remove", TWO)
    unmarked(store)
    lvm_that_fails.unlink()
    assert len(made(group)) == 1
    larder("snapshot", "remove", ONE)
    assert not made(group)
    plain()


@pytest.mark.limit(900)
def test_dry_run_behind_a_kill(disks, store, make_disk, kill_at):
    """It says what the same command would do, which takes away what is left: names are not taken by that."""
    other = make_disk("store1", model="null", mb=64)
    stack(disks)
    left = set()
    for number in range(1, 40):
        if kill_at(number, "snapshot", "create", ONE, "--store", store) == DONE:
            break
        if states() == {ONE: "creating"}:
            left |= {n for n in dm.names() if "@" in n or n.endswith("-origin")}
            larder("snapshot", "create", ONE, "--store", other, "--dry-run")
            if "data-origin" in dm.names() and "snapshot-origin" not in dm.DmDevice("data").table():
                refused(BUSY, ["snapshot", "create", TWO, "--store", other, "--dry-run"], "data-origin", "snapshot list data")
        if states():
            larder("snapshot", "remove", ONE)
        plain()
    assert left == {"data-origin", ONE, f"{ONE}-store"}


@pytest.mark.limit(1800)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "luks"])
def test_exchange_is_killed(disks, store, key, kill_at, encrypted):
    """The process that carries it out, behind each of its steps: the command goes back, and undoes the rest; nobody waits for ever,
    as for a snapshot that reads what is suspended.  A removal ends when it is asked for again."""
    key = key if encrypted else None
    stack(disks, key)
    write(0)
    for number in range(1, 20):
        if kill_at(number, "snapshot", "create", ONE, "--store", store, KILL_GUARD="1") == DONE:
            break
        assert not states(), number
        plain()
        cut_off(number, key)
        larder("snapshot", "create", ONE, "--store", store)
        first = digest(ONE)
        write(f"b{number}")
        assert digest(ONE) == first
        larder("snapshot", "remove", ONE)
        plain()
    assert number == (6, 8)[encrypted] + 1
    for number in range(1, 20):
        if not states():
            larder("snapshot", "create", ONE, "--store", store)
        if kill_at(number, "snapshot", "remove", ONE, KILL_GUARD="1") == DONE:
            break
        cut_off(number, key)
        assert states() == {ONE: "removing"}, number
        larder("snapshot", "remove", ONE)
        plain()
    assert number == 4 + 1
    plain()
    unmarked(store)


def test_another_store_behind_a_kill(disks, store, make_disk, kill_at):
    """The store of the command that was killed counts no more, here or not: no other one gets its mark."""
    other = make_disk("store1", model="null", mb=64, wce=1)
    stack(disks)
    for here in (True, False):
        write(0, b"then")
        number = 1
        while larder("probe", store, code=None).returncode:  # until the mark is there
            assert kill_at(number, "snapshot", "create", ONE, "--store", store) == -signal.SIGKILL
            number += 1
        assert states() == {ONE: "creating"}
        if not here:
            store.fail(op="read,write", status="ioerr")
        larder("snapshot", "create", ONE, "--store", other)
        first = digest(ONE)
        write(0, b"now")
        larder("stop", "data")
        store.heal()
        larder("start", "data")
        assert states() == {ONE: "valid"} and digest(ONE) == first
        larder("snapshot", "remove", ONE)
        plain()
        unmarked(other)
        if not here:
            larder("super", "wipe", store, "--yes")
        unmarked(store)
    larder("snapshot", "create", ONE, "--store", store)
    larder("stop", "data")
    copy = store.read(0, 2048)
    other.write(0, copy)
    refused(UNSAFE, ["start", "data"], "has it too")
    other.write(0, bytes(len(copy)))
    larder("start", "data")
    assert states() == {ONE: "valid"}


@pytest.mark.limit(900)
def test_start_is_killed(disks, store, kill_at):
    """Behind each device that it makes, and table that it loads: the next start, or stop, ends what it has left."""
    stack(disks)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    first = digest(ONE)
    write(1)
    for number in range(1, 40):
        larder("stop", "data")
        assert not [n for n in dm.names() if n.startswith("data")], number
        if kill_at(number, "start", "data") == DONE:
            break
        if number % 2:
            larder("stop", "data")
            assert not [n for n in dm.names() if n.startswith("data")], number
        larder("start", "data")
        check([0, 1])
        assert states() == {ONE: "valid"} and digest(ONE) == first
    print(f"start: killed at {number - 1} steps")
    assert number > 12


def test_store_on_a_volume_of_its_cache(disks, make_disk):
    """What it keeps is written as the stack is written back, and may wait for the room in the cache that this is to make."""
    stack(disks)
    hdd = make_disk("hdd9", model="null", mb=64, wce=1)
    larder("volume", "create", "other", "--backing", hdd, "--cache", "data")
    larder("volume", "start", "other")
    try:
        same = "/dev/mapper/other: lies on the volume other, which has the same cache"
        refused(UNSAFE, ["snapshot", "create", ONE, "--store", "/dev/mapper/other"], same)
        assert not states()
        larder("volume", "detach", "other", "--flush")
        larder("snapshot", "create", ONE, "--store", "/dev/mapper/other")
        assert states() == {ONE: "valid"}
        larder("snapshot", "remove", ONE)
    finally:
        larder("volume", "stop", "other")


def test_store_on_the_stack_itself(disks, store):
    """By a loop device: what it keeps would change what it is to keep.  Nor on another snapshot of it."""
    stack(disks)
    if command.run("modprobe", "loop", check=False).returncode:
        pytest.skip("this kernel has no loop")
    file = MOUNTED / "store"
    file.write_bytes(bytes(24 << 20))
    loop = command.run("losetup", "--find", "--show", file).stdout.strip()
    try:
        refused(UNSAFE, ["snapshot", "create", ONE, "--store", loop], "lies on data itself")
        assert not states()
        larder("snapshot", "create", ONE, "--store", store)
        create = ["snapshot", "create", TWO, "--wipe", "--yes", "--store"]
        refused(UNSAFE, [*create, loop], "lies on data itself")
        command.run("losetup", "--detach", loop)
        refused(UNSAFE, [*create, f"/dev/mapper/{ONE}"], "or on a snapshot of it")
        loop = command.run("losetup", "--find", "--show", f"/dev/mapper/{ONE}").stdout.strip()
        refused(UNSAFE, [*create, loop], "or on a snapshot of it")
        assert states() == {ONE: "valid"}
    finally:
        command.run("losetup", "--detach", loop)


def test_volume_is_suspended(disks, store):
    """By somebody: nothing resumes it for him."""
    stack(disks)
    write(0)
    data, said = dm.DmDevice("data"), "data: is suspended; dmsetup resume data"
    data.suspend()
    refused(BUSY, ["snapshot", "create", ONE, "--store", store], said)
    assert data.info()["suspended"] and not states()
    data.resume()
    larder("snapshot", "create", ONE, "--store", store)
    data.suspend()
    refused(BUSY, ["snapshot", "remove", ONE], said)
    assert data.info()["suspended"] and states() == {ONE: "valid"}
    data.resume()
    check([0])
    larder("snapshot", "remove", ONE)
    plain()


def test_top_is_suspended(disks, store, key):
    """What is above the volume must come to rest."""
    stack(disks, key)
    write(0)
    command.run("cryptsetup", "luksSuspend", "data-crypt")
    refused(BUSY, ["snapshot", "create", ONE, "--store", store], "data-crypt: is suspended", "luksResume")
    command.run("cryptsetup", "luksResume", "data-crypt", "--key-file", key)
    larder("snapshot", "create", ONE, "--store", store)
    check([0])


def test_question_holds_up_nobody(disks, store):
    """Others have their turn while it is asked whether the store may be wiped; the answer is for what was asked about."""
    stack(disks)
    write(0)
    for changes in (True, False):
        command.run("mkfs.ext4", "-q", "-F", store)

        def others(changes: bool = changes) -> None:
            if changes:
                larder("set", "data", "--backing-label", "shelf", seconds=60)
            else:
                larder("cache", "stop", "nowhere", code=None, seconds=60)  # waits for the lock

        run = answered(["larder", "snapshot", "create", ONE, "--store", store, "--wipe"], "Wipe it?", others)
        assert "ext4" in run.stdout
        if changes:
            assert run.returncode == BUSY and "was changed meanwhile" in run.stderr, run.stderr
            assert not states() and "ext4" in command.output("blkid", "-p", store)
        else:
            assert run.returncode == DONE and states() == {ONE: "valid"}, run.stderr
    check([0])


def test_volume_alone_notes_what_is_lost(disks, store):
    """As `stop` does: the store fails, and works again at the next start."""
    stack(disks)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    store.fail(op="write", status="ioerr")
    write(1)
    command.run("sync")
    assert states() == {ONE: "invalid"}
    command.run("umount", MOUNTED)
    larder("volume", "stop", "data")
    store.heal()
    assert states() == {ONE: "lost"}
    larder("start", "data")
    check([0, 1])
    assert ONE not in dm.names()


@pytest.mark.parametrize("alone", [False, True], ids=["stack", "volume"])
def test_lost_without_the_module(disks, store, alone):
    """Nobody can write to the superblock of what runs by a linear target: it stops, and then what is lost is noted."""
    stack(disks)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    larder("stop", "data")
    larder("volume", "start", "data")
    larder("volume", "flush", "data", "--wait")
    larder("volume", "stop", "data")
    larder("start", "--without-module", "data")
    store.fail(op="write,flush", status="ioerr")
    write(1, os.urandom(1 << 20))
    command.run("sync")
    assert states() == {ONE: "invalid"}
    if alone:
        command.run("umount", MOUNTED)
    said = larder(*(["volume"] if alone else []), "stop", "data").stderr
    assert said.count("data@one: is lost") == 1 and not [n for n in dm.names() if n.startswith("data")]
    store.heal()
    assert states() == {ONE: "lost"}
    larder("start", "data", code=None)
    check([0])
    assert ONE not in dm.names()
    larder("snapshot", "remove", ONE)


def test_cache_takes_no_note(disks, store, kernel_log):
    """Its SSDs fail in the first note: nothing is left; with a cache that has failed a store is not touched."""
    kernel_log.expect("device-mapper: larder|critical .* error")
    stack(disks)
    write(0)
    os.sync()
    create = ["snapshot", "create", ONE, "--store", store, "--wipe", "--yes"]
    command.run("mkfs.ext4", "-q", store)
    for ssd in disks[:2]:
        ssd.fail(op="write,flush", status="ioerr")
    refused(FAILED, create)  # by the note, or before it where something else was written sooner
    assert not states() and not [n for n in dm.names() if "@" in n or n.endswith("-origin")]
    command.run("mkfs.ext4", "-q", "-F", store)
    with contextlib.suppress(OSError):
        write(1)
    assert "state=failed" in command.output("dmsetup", "status", "larder-cache-data")
    refused(FAILED, create, "its cache larder-cache-data is suspended, or failed")
    assert not states() and "ext4" in command.output("blkid", "-p", store)


def test_cache_takes_no_note_of_what_is_lost(disks, store, kernel_log):
    """One that has failed, with all of its SSDs: the volume alone has it, and the stack stops."""
    kernel_log.expect("device-mapper: larder|critical .* error")
    stack(disks)
    write(0)
    larder("volume", "flush", "data")
    larder("snapshot", "create", ONE, "--store", store)
    store.fail(op="write,flush", status="ioerr")
    write(1, os.urandom(1 << 20))
    os.sync()
    assert states() == {ONE: "invalid"}
    for ssd in disks[:2]:
        ssd.fail(op="write,flush", status="ioerr")
    with contextlib.suppress(OSError):
        write(2)
    assert "state=failed" in command.output("dmsetup", "status", "larder-cache-data")
    assert "data@one: is lost" in larder("stop", "data").stderr
    for disk in (store, *disks[:2]):
        disk.heal()
    assert states() == {ONE: "lost"}
    larder("start", "data")
    check([0])
    assert ONE not in dm.names()


def test_lost_beside_what_cannot_be_noted(disks, store, kernel_log):
    """A note of what the array lacks that fails keeps none of a snapshot back."""
    kernel_log.expect("device-mapper: larder|critical .* error|md/raid|has failed")
    stack(disks, raid=True)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    store.fail(op="write,flush", status="ioerr")
    write(1, os.urandom(1 << 20))
    os.sync()
    assert states() == {ONE: "invalid"}
    command.run("mdadm", *arrays(), "--fail", disks[3])
    command.run("mount", "-o", "remount,ro", "/run/larder")
    try:
        refused(FAILED, ["start", "--note", "data"], "/run/larder", "Read-only", "data@one: is lost")
    finally:
        command.run("mount", "-o", "remount,rw", "/run/larder")
    assert "is lost" not in larder("start", "--note", "data").stderr
    larder("stop", "data")
    store.heal()
    larder("start", "data", "--degraded")
    assert states() == {ONE: "lost"}


def test_lost_while_it_is_lent(disks, store, key, tmp_path):
    """A verb that starts a stack, and stops it again, notes what was lost meanwhile."""
    new = tmp_path / "new"
    new.write_bytes(os.urandom(64))
    stack(disks, key)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    larder("stop", "data")
    store.fail(op="write,flush", status="ioerr")
    add = ["--add", "--keyfile", key, "--new-keyfile", new, "--iter-time", "10", "--header-backup", "none"]
    assert "data@one: is lost" in larder("passwd", "data", *add).stderr
    store.heal()
    assert states() == {ONE: "lost"}
    larder("start", "data", "--keyfile", key)
    check([0])
    assert ONE not in dm.names()


def test_kept_key_slots_leave_their_store(disks, store, key, tmp_path):
    """The slot of a key that was changed since is in it as long as the snapshot is."""
    new = tmp_path / "new"
    new.write_bytes(os.urandom(64))
    stack(disks, key)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    with open("/dev/mapper/data@one", "rb") as snapshot:
        slot = snapshot.read(36 << 10)[-4096:]  # behind both heads
    assert slot.strip(b"\0")
    larder("passwd", "data", "--change", "--keyfile", key, "--new-keyfile", new, "--iter-time", "10", "--header-backup", "none")
    write(1, os.urandom(1 << 20))

    def kept():
        command.run("blockdev", "--flushbufs", store)
        with open(store, "rb") as raw:
            return raw.read(8 << 20)

    assert slot in kept() and b'"keyslots"' in kept()
    larder("snapshot", "remove", ONE)
    unmarked(store)
    assert slot not in kept() and b'"keyslots"' not in kept()
    check([0])


def test_what_is_older_is_taken(disks, store, kernel_log):
    """SSDs that have lost what they had acknowledged: a snapshot shares that, and would be of two moments."""
    kernel_log.expect("device-mapper: larder")
    stack(disks)
    write(0)
    larder("stop", "data")
    images = [Path(str(ssd)).read_bytes() for ssd in disks[:2]]
    larder("start", "data")
    write(1)
    larder("snapshot", "create", ONE, "--store", store)
    larder("stop", "data")
    for ssd, image in zip(disks, images, strict=False):
        Path(str(ssd)).write_bytes(image)
    accept = ["volume", "start", "data", "--option", "stale=accept"]
    refused(UNSAFE, ["start", "data"], "larder volume start data --option stale=accept")
    refused(UNSAFE, accept, "its snapshot one shares what is lost", "--drop-snapshot one")
    assert states() == {ONE: "stopped"} and "data" not in dm.names()
    refused(NOT_FOUND, [*accept, "--drop-snapshot", "two"], "it has no snapshot two")
    larder(*accept, "--drop-snapshot", "one")
    assert states() == {ONE: "lost"} and ONE not in dm.names()
    refused(BUSY, [*accept, "--drop-snapshot", "one"], "this one runs")
    larder("stop", "data")
    larder("start", "data")
    assert states() == {ONE: "lost"} and ONE not in dm.names()
    larder("snapshot", "remove", ONE)


def start_behind_the_cut(all_disks, seed):
    """Power fails now, if it has not."""
    if not any(d.state()["power"] == "off" for d in all_disks):
        simdisk.power_cut(mode="random", seed=seed)
    release()
    simdisk.power_up()
    larder("start", "data")
    check([0])


@pytest.mark.limit(1800)
def test_power_cuts(disks, store, key, seed):
    """Of all disks at one instant, while it is made, is used, and is removed."""
    stack(disks)
    write(0)
    seen = set()
    for i, after in enumerate((1, 4, 9, 14, 20, 27, 35, 50, 80)):
        simdisk.power_cut(mode=("random", "lose", "torn")[i % 3], seed=seed + i, after=after, ops="write")
        made = command.run("larder", "snapshot", "create", ONE, "--store", store, check=False).returncode == DONE
        with contextlib.suppress(OSError):
            if made:
                write(f"c{i}", os.urandom(1 << 18))
                command.run("larder", "snapshot", "remove", ONE, check=False)
        start_behind_the_cut((*disks, store), seed)
        seen |= set(states().values())
        found = states().get(ONE)
        if found == "valid":
            with mounted(ONE) as directory:
                assert (directory / "lost+found").is_dir()
        else:
            assert found in (None, "creating", "removing", "lost"), found
        if found:
            larder("snapshot", "remove", ONE)
        plain()
        write(f"p{i}")
    print(f"states behind power cuts: {sorted(seen)}")
    assert "creating" in seen
    command.run("larder", "super", "wipe", store, "--yes", check=False)
    larder("snapshot", "create", ONE, "--store", store)
    larder("snapshot", "remove", ONE)


def test_power_cuts_beside_one(disks, store, seed):
    """What is in a snapshot that was made stays what it is, whatever is written beside it when the power goes."""
    stack(disks)
    write(0)
    larder("snapshot", "create", ONE, "--store", store)
    first = digest(ONE)
    for i in range(6):
        simdisk.power_cut(mode=("random", "lose", "torn")[i % 3], seed=seed + i, after=30 + 20 * i, ops="write")
        with contextlib.suppress(OSError):
            fill(2, 2 * i)
        start_behind_the_cut((*disks, store), seed)
        assert digest(ONE) == first and states() == {ONE: "valid"}, i
    larder("snapshot", "remove", ONE)
    plain()


def test_refused(disks, store, make_disk, tmp_path):
    """Before anything is changed."""
    small, other = make_disk("small", model="null", mb=8), make_disk("other", model="null", mb=32)
    stack(disks)
    write(0)
    before = larder("list", "-o", "all").stdout
    ssd, hdd = disks[0], disks[2]
    for code, given, *parts in (
        (USAGE, ["data", "--store", store], "NAME@SNAPSHOT"),
        (USAGE, ["data@", "--store", store], "NAME@SNAPSHOT"),
        (USAGE, ["@one", "--store", store], "NAME@SNAPSHOT"),
        (USAGE, ["data@" + 32 * "x", "--store", store], "NAME@SNAPSHOT"),
        (USAGE, ["data@a/b", "--store", store], "NAME@SNAPSHOT"),
        (USAGE, [ONE], "--store"),
        (NOT_FOUND, ["other@one", "--store", store], "no such stack"),
        (NOT_FOUND, [ONE, "--store", "/dev/none"], "/dev/none"),
        (FAILED, [ONE, "--store", small], "too small", small),
        (BUSY, [ONE, "--store", ssd], ssd),
        (BUSY, [ONE, "--store", hdd], hdd),
        (BUSY, [ONE, "--store", "/dev/mapper/data"], "/dev/mapper/data"),
    ):
        refused(code, ["snapshot", "create", *given], *parts)
    # whoever made the filesystem; its superblock as it is on a device, where this machine has no mkfs.btrfs
    command.run("umount", MOUNTED)
    with open("/dev/mapper/data", "r+b") as top:
        kept = top.read(1 << 20)
        top.seek(0)
        top.write(bytes(1 << 20))
        top.seek(64 << 10)
        top.write(bytes(0x20) + bytes(range(16)) + bytes(16) + b"_BHRfS_M")
    refused(USAGE, ["snapshot", "create", ONE, "--store", store], "is a btrfs")
    with open("/dev/mapper/data", "r+b") as top:
        top.write(kept)
    command.run("mount", "/dev/mapper/data", MOUNTED)
    before = larder("list", "-o", "all").stdout
    command.run("mkfs.ext4", "-q", store)
    refused(UNSAFE, ["snapshot", "create", ONE, "--store", store], "ext4", "--wipe")
    refused(NOT_FOUND, ["snapshot", "remove", ONE], "no such snapshot")
    refused(NOT_FOUND, ["snapshot", "list", "other"], "no such stack")
    assert "dmsetup" in larder("snapshot", "create", ONE, "--store", store, "--wipe", "--dry-run").stdout
    # a volume that is stopped has its name for its next start
    for label in ("data-origin", "data@one-store"):
        larder("volume", "create", label, "--backing", other, "--yes", "--wipe")
        given = ["snapshot", "create", ONE, "--store", store, "--wipe", "--yes"]
        refused(BUSY, given, f"called {label}", other, "choose another name")
    larder("super", "wipe", other, "--yes")
    taken = dm.DmDevice.create(ONE, f"0 8 linear {small} 0")
    refused(BUSY, ["snapshot", "create", ONE, "--store", store, "--wipe", "--yes"], "choose another name")
    taken.remove()
    assert larder("list", "-o", "all").stdout == before and not states() and "ext4" in command.output("blkid", "-p", store)
    larder("snapshot", "create", ONE, "--store", store, "--wipe", "--yes")
    said = larder("snapshot", "remove", ONE, "--dry-run").stdout
    assert f"dmsetup remove {ONE}\n" in said and states() == {ONE: "valid"}
    for step in ("suspend --nolockfs data", "load data --table", "resume data", "remove data-origin"):  # the last one
        assert f"dmsetup {step}" in said, said
    refused(BUSY, ["snapshot", "create", TWO, "--store", store], store)
    larder("snapshot", "remove", ONE)
    larder("stop", "data")
    refused(NOT_FOUND, ["snapshot", "create", ONE, "--store", store], "larder start data")
    larder("start", "data")
    plain()
