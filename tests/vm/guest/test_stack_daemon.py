# SPDX-License-Identifier: GPL-2.0-or-later
"""Stacks beside larderd and udevd: it starts none that is half made, another machine's, or just being made.

There is no systemd in this VM: what it does above the volume is tested by the suite system.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lib import command, dm, members
from lib.block import BlockDevice
from lib.larder import wait_for
from lib.members import ENVIRONMENT, FILES, SECONDS, Larderd, Member, larder, running, settle
from lib.stacks import FSTAB, HAND_MADE, MOUNTED, NOT_FOUND, UNSAFE, arrays, release, rows

MACHINE_ID = Path("/etc/machine-id")


@pytest.fixture(scope="module", autouse=True)
def udevd() -> Iterator[None]:
    command.run("modprobe", "dm-crypt")
    with members.udevd():
        yield


class Stack:
    """Two SSDs and a disk; `larder create data` of them."""

    def __init__(self) -> None:
        self.ssd, self.hdd = [Member(f"ssd{i}", 32) for i in range(2)], Member("hdd", 64)
        self.members = [*self.ssd, self.hdd]
        self.key = FILES / "key"
        self.key.write_bytes(os.urandom(64))

    def plug(self) -> None:
        for m in self.members:
            m.plug()
        settle()

    def words(self) -> list[object]:
        w = ["create", "data", "--backing", self.hdd, "--cache", self.ssd[0], "--cache", self.ssd[1], "--class", "special", "--yes"]
        return [*w, "--encrypt", f"luks2:keyfile={self.key}", "--iter-time", 10, "--mkfs", "ext4", "--mount", MOUNTED]

    def off(self) -> None:
        """As a machine without power: nothing runs, nothing is plugged, /run is empty."""
        command.run("umount", MOUNTED, check=False)
        dm.remove_all()
        for m in self.members:
            m.unplug()
        settle()
        shutil.rmtree("/run/larder/stopped", ignore_errors=True)


def plugged(s: Stack) -> Iterator[Stack]:
    """For a fixture."""
    s.plug()
    yield s
    s.off()


@pytest.fixture
def own_fstab(monkeypatch) -> None:
    FSTAB.write_text(HAND_MADE)
    monkeypatch.setitem(ENVIRONMENT, "LIBMOUNT_FSTAB", str(FSTAB))


@pytest.fixture
def stack(own_fstab) -> Iterator[Stack]:
    MOUNTED.mkdir(exist_ok=True)
    yield from plugged(Stack())


@pytest.fixture
def larderd(stack) -> Iterator[Larderd]:
    daemon = Larderd()
    yield daemon
    if daemon.process and daemon.process.poll() is None:
        daemon.stop()


def reboot(stack: Stack, larderd: Larderd, *, stop: bool = True) -> None:
    """Everything goes, and comes back; larderd has made its first pass when this returns."""
    if stop:
        larderd.stop()
    stack.off()
    switch_on(stack, larderd)


def switch_on(stack: Stack, larderd: Larderd) -> None:
    """With what lies on the disks."""
    larderd.log.write_text("")
    stack.plug()
    larderd.start()


def fill(text: str) -> None:
    with open(MOUNTED / "content", "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


@pytest.mark.core
def test_made_beside_it(stack, larderd):
    """It keeps still while the stack is made; behind a reboot it starts the volume with its class."""
    larderd.start()
    larder(*stack.words())
    assert os.path.ismount(MOUNTED)
    fill("what was written")
    settle()
    larderd.stop()
    assert not larderd.log.read_text(), "it did, or refused, something while the stack was made"

    reboot(stack, larderd)
    wait_for(lambda: running("data"), SECONDS, "the volume")
    assert larder("volume", "get", "data", "class").stdout == "class=special\n"
    assert "locked" in larder("status", "data").stdout
    larder("unlock", "data")
    assert (MOUNTED / "content").read_text() == "what was written"
    larder("stop", "data")
    assert not dm.names()


@pytest.mark.limit(1200)
def test_killed_while_it_is_made(stack, larderd):
    """At each step: what is half made is not started; create --resume and remove come to their end beside the daemon."""
    larderd.start()
    held = 0
    for step in range(1, 8):
        words = ["larder", *map(str, stack.words())]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
        lines = 0
        for line in child.stdout:
            lines += line.startswith("data: ")
            if lines == step:
                child.kill()
                break
        child.stdout.close()
        child.wait()
        reboot(stack, larderd)
        state = larder("status", "data", check=False).stdout
        if "half made" in state:
            held += larderd.said("the stack data is half made", "larder create --resume data")
            assert not running("data"), larderd.log.read_text()
            resumed = larder("create", "--resume", "data", check=False) if step % 2 else None
            if resumed and resumed.returncode == 0:
                assert os.path.ismount(MOUNTED)
        found = rows()
        if found:
            larder("remove", "data", "--discard-data", found["stack"]["uuid"])
        else:
            for m in stack.members:
                larder("super", "wipe", m, "--yes", check=False)
        assert not dm.names() and FSTAB.read_text() == HAND_MADE
        for m in stack.members:
            assert larder("probe", m, check=False).returncode, f"{m} still carries something"
    assert held >= 3, "too seldom was there a volume of a stack that is half made"


def test_of_another_machine(stack, larderd):
    """It is listed, and neither volume nor cache is started, until it is imported; one that was not stopped there not even then."""
    before = MACHINE_ID.read_text() if MACHINE_ID.exists() else None
    try:
        MACHINE_ID.write_text("1" * 32 + "\n")
        larderd.start()
        larder(*stack.words())
        as_it_runs = {m: m.file.read_bytes() for m in stack.members}
        MACHINE_ID.write_text("2" * 32 + "\n")
        reboot(stack, larderd)
        larderd.wait_said("the stack data was made on another machine", "larder start --import data")
        larderd.wait_said("the cache data is another machine's", "larder start --import data")
        assert not dm.names()
        stopped = {m: m.file.read_bytes() for m in stack.members}
        larderd.stop()
        stack.off()
        for m in stack.members:
            m.file.write_bytes(as_it_runs[m])
        stack.plug()
        r = larder("start", "--import", "data", check=False)
        assert r.returncode == UNSAFE and "may run there" in r.stderr and not dm.names()
        stack.off()
        for m in stack.members:
            assert m.file.read_bytes() == as_it_runs[m], f"{m.name} was written to"
            m.file.write_bytes(stopped[m])
        switch_on(stack, larderd)
        said = larder("status", "data", check=False).stdout
        assert "another machine" in said, said
        assert "data" in larder("list").stdout
        r = larder("start", "data", check=False)
        assert r.returncode == UNSAFE and "--import" in r.stderr
        assert not running("data")
        larder("start", "--import", "data")
        assert os.path.ismount(MOUNTED)
        reboot(stack, larderd)
        wait_for(lambda: running("data"), SECONDS, "the volume of the stack that was taken over")
    finally:
        with contextlib.suppress(FileNotFoundError):
            MACHINE_ID.write_text(before) if before is not None else MACHINE_ID.unlink()


class Separate(Stack):
    """Besides: a large disk, and two of which a mirror, by hand, has a partition."""

    def __init__(self) -> None:
        super().__init__()
        self.large, self.legs = Member("large", 256), [Member(f"leg{i}", 256) for i in range(2)]
        self.members += [self.large, *self.legs]

    def array(self) -> str:
        """Runs: udev's rule for mdadm may have been there before."""
        if not arrays():
            command.run("mdadm", "--assemble", "/dev/md9", *self.legs)
        (node,) = arrays()
        wait_for(lambda: Path(f"{node}p1").exists(), SECONDS, "the partition of the array")
        return f"{node}p1"

    def off(self) -> None:
        command.run("umount", MOUNTED, check=False)
        dm.remove_all()
        tries = 10  # udev's rule for mdadm may put it together again
        while (nodes := arrays()) and tries:
            command.run("mdadm", "--stop", *nodes, check=False)
            settle()
            tries -= 1
        super().off()


@pytest.fixture
def separate(stack) -> Iterator[Separate]:
    """In the place of the smaller one."""
    for module in ("md-mod", "raid1", "btrfs"):
        if command.run("modprobe", module, check=False).returncode:
            pytest.skip(f"this kernel has no {module}")
    stack.off()
    yield from plugged(Separate())


@pytest.mark.limit(900)
def test_separate(separate, larderd):
    """A btrfs, mirror of two volumes of one cache, one upon a partition of an array: back after a reboot, and without a disk."""
    ssd, large = separate.ssd, separate.large
    mirror = ["--run", "--metadata=1.2", "--level=1", "--raid-devices=2", "--bitmap=none"]
    command.run("mdadm", "--create", "/dev/md9", *mirror, *separate.legs)
    command.run("sgdisk", "--clear", "--new=1:2048:0", "/dev/md9")
    larderd.start()
    words = ["--backing", large, "--backing", separate.array(), "--cache", ssd[0], "--cache", ssd[1]]
    larder("create", "data", "--separate", *words, "--yes")
    volumes = [f"/dev/mapper/data-{i}" for i in (1, 2)]
    assert {rows(f"data-{i}")["cache"]["uuid"] for i in (1, 2)} == {rows("data-1")["cache"]["uuid"]}
    command.run("mkfs.btrfs", "-q", "-d", "raid1", "-m", "raid1", *volumes)
    command.run("mount", "-t", "btrfs", volumes[0], MOUNTED)
    fill("what was written")
    settle()
    larderd.stop()
    assert not larderd.said("data-"), "it did, or refused, something while the stacks were made"

    separate.off()
    larderd.log.write_text("")
    larderd.start()
    separate.plug()
    separate.array()
    for i in (1, 2):
        wait_for(lambda i=i: running(f"data-{i}") and Path(volumes[i - 1]).exists(), SECONDS, f"the volume {i}")
    settle()
    command.run("btrfs", "device", "scan")
    command.run("mount", "-t", "btrfs", volumes[1], MOUNTED)
    assert (MOUNTED / "content").read_text() == "what was written"
    assert "missing" not in command.run("btrfs", "filesystem", "show", MOUNTED).stdout
    assert "no errors found" in command.run("btrfs", "scrub", "start", "-B", MOUNTED).stdout
    assert {larder("status", f"data-{i}").returncode for i in (1, 2)} == {0}

    # one disk stays away: the other volume needs nothing of it
    larderd.stop()
    separate.off()
    command.run("btrfs", "device", "scan", "--forget")
    for m in separate.members:
        if m is not large:
            m.plug()
    separate.array()
    larderd.start()
    wait_for(lambda: running("data-2") and Path(volumes[1]).exists(), SECONDS, "the volume whose disk is there")
    assert not running("data-1")
    command.run("mount", "-t", "btrfs", "-o", "degraded,ro", volumes[1], MOUNTED)
    assert (MOUNTED / "content").read_text() == "what was written"


class Many(Stack):
    """Twenty stacks on one cache, each with a disk of its own."""

    NUMBER = 20

    def __init__(self) -> None:
        self.ssd, self.hdds = [Member(f"ssd{i}", 48) for i in range(2)], [Member(f"hdd{i}", 8) for i in range(self.NUMBER)]
        self.members = [*self.ssd, *self.hdds]
        self.names = [f"s{i:02}" for i in range(self.NUMBER)]

    def content(self, name: str) -> bytes:
        return hashlib.sha256(name.encode()).digest() * 2048

    def make(self) -> None:
        caches = [w for s in self.ssd for w in ("--cache", s)]
        for name, hdd in zip(self.names, self.hdds, strict=True):
            larder("create", name, "--backing", hdd, *caches, "--mode", "writeback", "--yes")
            caches = ["--cache", self.names[0]]
            BlockDevice(f"/dev/mapper/{name}").write(0, self.content(name))


@pytest.fixture
def many(own_fstab) -> Iterator[Many]:
    yield from plugged(Many())


@pytest.mark.limit(1200)
def test_twenty_at_once(many, seed):
    """All that they stand on comes in any order, at once: all of them are there, each with what is its own."""
    many.make()
    many.off()
    daemon = Larderd().start()
    try:
        for m in random.Random(seed).sample(many.members, len(many.members)):
            m.plug()
        for name in many.names:
            wait_for(lambda n=name: running(n), SECONDS, name)
            wait_for(lambda n=name: Path(f"/dev/mapper/{n}").exists(), SECONDS, f"the node of {name}")
            assert BlockDevice(f"/dev/mapper/{name}").read(0, 128) == many.content(name), name
        assert not daemon.said("refused") and not daemon.said("WITHOUT")
        stacks = json.loads(larder("list", "-o", "name,layer,state", "--reportformat", "json").stdout)["stacks"]
        assert {r["name"]: r["state"] for r in stacks if r["layer"] == "stack"} == dict.fromkeys(many.names, "fine")
    finally:
        daemon.stop()


class Legs(Stack):
    """In the place of the disk two legs, with dm-integrity."""

    def __init__(self) -> None:
        super().__init__()
        self.legs = [Member(f"leg{i}", 64) for i in range(2)]
        self.members += self.legs

    def words(self) -> list[object]:
        w = ["create", "data", "--backing", self.legs[0], "--backing", self.legs[1], "--raid", "1", "--integrity", "--yes"]
        return [*w, "--cache", self.ssd[0], "--cache", self.ssd[1], "--mkfs", "ext4", "--mount", MOUNTED]

    def off(self) -> None:
        release()
        settle()
        super().off()


@pytest.fixture
def with_legs(stack, kernel_log) -> Iterator[Legs]:
    for module in ("md-mod", "raid1", "dm-integrity"):
        if command.run("modprobe", module, check=False).returncode:
            pytest.skip(f"this kernel has no {module}")
    kernel_log.expect("md/raid1|md: ")
    stack.off()
    yield from plugged(Legs())


def legs_running() -> int:
    return sum(n.startswith("larder-leg-") for n in dm.names())


@pytest.mark.limit(900)
def test_legs_with_integrity(with_legs, larderd):
    """Started behind a reboot, gathered by md's own rules; with one away by word; that one is taken back when it comes."""
    larderd.start()
    larder(*with_legs.words())
    assert rows()["array"]["type"] == "raid1" and legs_running() == 2
    fill("what was written")
    settle()
    reboot(with_legs, larderd)
    wait_for(lambda: running("data"), SECONDS, "the volume")
    errors = Path("/sys/block", Path(arrays()[0]).name, "md/max_read_errors")
    wait_for(lambda: int(errors.read_text()) >= 1000000, SECONDS, "the array to take read errors")
    larder("start", "data")
    assert (MOUNTED / "content").read_text() == "what was written"
    # what somebody stopped stays so
    larder("stop", "data")
    settle()
    larderd.stop()
    larderd.start()
    assert not dm.names() and not legs_running()
    larder("start", "data")

    def back_without(away: Member) -> None:
        larderd.stop()
        with_legs.off()
        larderd.log.write_text("")
        for m in with_legs.members:
            if m is not away:
                m.plug()
        larderd.start()

    # nor does what had not come as far as its volume
    back_without(with_legs.ssd[1])
    wait_for(arrays, SECONDS, "the array")
    settle()
    assert not running("data")
    larder("stop", "data")
    settle()
    larderd.stop()
    larderd.start()
    settle()
    assert not legs_running() and not arrays()

    away = with_legs.legs[1]
    back_without(away)
    wait_for(lambda: legs_running() == 1, SECONDS, "the leg that is here")
    settle()
    assert not running("data")
    larder("start", "--degraded", "data")
    fill("what was written without it")
    away.plug()
    wait_for(lambda: legs_running() == 2, SECONDS, "the leg that is here again")
    wait_for(lambda: rows()["array"]["state"] == "active", SECONDS, "the array to be whole")
    larder("stop", "data")


@pytest.mark.limit(900)
def test_legs_without_larderd(with_legs, tmp_path):
    """By who asks for the volume: an initramfs by the UUID, where larder.conf leaves all, a unit by the stack's name."""
    larder(*with_legs.words())
    fill("what was written")
    volume = larder("volume", "list", "-o", "uuid", "--noheadings").stdout.strip()
    conf = tmp_path / "larder.conf"
    conf.write_text("auto no all\n")

    def assemble(*words: str, conf: object = "/nonexistent") -> int:
        env = ENVIRONMENT | {"LARDER_CONF": str(conf)}
        return subprocess.run(["larder", "assemble", "--conf", *words], env=env, timeout=SECONDS).returncode

    with_legs.off()
    with_legs.plug()
    assert assemble("--all", conf=conf) == 0 and not legs_running()
    assert assemble(volume) in (0, NOT_FOUND) and legs_running() == 2
    wait_for(lambda: assemble(volume) == 0, SECONDS, "the array")
    assert running("data")
    with_legs.off()
    with_legs.plug()
    assert not legs_running()
    assert assemble("--again", "data") == 0 and running("data")
    larder("start", "data")
    assert (MOUNTED / "content").read_text() == "what was written"
    larder("stop", "data")


BUS = """<busconfig>
  <listen>unix:path=/run/larder/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy>
</busconfig>
"""
ADDRESS = "unix:path=/run/larder/bus"


def on_bus(*words: object, check: bool = True) -> subprocess.CompletedProcess:
    return command.run("busctl", f"--address={ADDRESS}", "--json=short", f"--timeout={SECONDS}", *map(str, words), check=check)


@pytest.mark.limit(1200)
def test_by_dbus(stack, larderd, monkeypatch):
    """Beside a bus: methods really stop and start, what was stopped stays so, and events of the kernel become properties."""
    monkeypatch.setitem(ENVIRONMENT, "DBUS_SYSTEM_BUS_ADDRESS", ADDRESS)
    larder(*stack.words())
    number = rows()["volume"]["uuid"]
    path = f"/org/larder1/volume/{number.replace('-', '_')}"
    conf = Path("/run/larder/bus.conf")
    conf.write_text(BUS)
    reboot(stack, larderd, stop=False)
    wait_for(lambda: running("data"), SECONDS, "the volume")
    with subprocess.Popen(["dbus-daemon", f"--config-file={conf}", "--nofork"]) as bus:
        try:

            def state() -> str:
                r = on_bus("get-property", "org.larder1", path, "org.larder1.Volume", "State", check=False)
                return json.loads(r.stdout)["data"] if r.returncode == 0 else r.stderr

            wait_for(lambda: state() == "running", SECONDS, "the volume on the bus")
            stack_path = f"/org/larder1/stack/{rows()['stack']['uuid'].replace('-', '_')}"
            cache_path = f"/org/larder1/cache/{rows()['cache']['uuid'].replace('-', '_')}"

            def stack_state() -> str:
                return json.loads(on_bus("get-property", "org.larder1", stack_path, "org.larder1.Stack", "State").stdout)["data"]

            assert stack_state() == "locked"
            on_bus("call", "org.larder1", stack_path, "org.larder1.Stack", "Unlock")
            assert os.path.ismount(MOUNTED)
            # by the command, too, and by cryptsetup: of that come events of dm alone
            wait_for(lambda: stack_state() == "running", SECONDS, "the bus to show what a method has opened")
            larder("lock", "data")
            wait_for(lambda: stack_state() == "locked", SECONDS, "the bus to show what the command has locked")
            larder("unlock", "data")
            wait_for(lambda: stack_state() == "running", SECONDS, "the bus to show what the command has opened")
            command.run("umount", MOUNTED)
            subprocess.run(["cryptsetup", "close", "data-crypt"], env=ENVIRONMENT, check=True)
            wait_for(lambda: stack_state() == "locked", SECONDS, "the bus to show what cryptsetup has closed")
            larder("unlock", "data")
            assert os.path.ismount(MOUNTED)
            r = on_bus("call", "org.larder1", path, "org.larder1.Volume", "Stop", check=False)
            assert r.returncode and "in use" in r.stderr and running("data"), r.stderr
            on_bus("call", "org.larder1", path, "org.larder1.Volume", "SetOption", "ss", "mode", "writethrough")
            assert larder("volume", "get", "data", "mode").stdout == "mode=writethrough\n"
            on_bus("call", "org.larder1", stack_path, "org.larder1.Stack", "Stop")
            assert not dm.names()
            wait_for(lambda: state() == "stopped", SECONDS, "the bus to show it")
            settle()
            assert not running("data"), "what was stopped was started again"
            on_bus("call", "org.larder1", path, "org.larder1.Volume", "Start")
            wait_for(lambda: state() == "running", SECONDS, "the bus to show it")
            # what udev tells nothing of, and the kernel by an event of dm
            dm.DmDevice("larder-cache-data").message("scrub")
            scrub = ("get-property", "org.larder1", cache_path, "org.larder1.Cache", "Scrub")
            wait_for(lambda: json.loads(on_bus(*scrub).stdout)["data"] == "done", SECONDS, "the end of the scrub")
        finally:
            bus.terminate()
    larderd.stop()
    larderd.process = None
    # the policy file: what it leaves stays down, and starts when it is asked for
    off = Path("/run/larder/larder.conf")
    off.write_text("auto no data\nnonsense\n")
    monkeypatch.setitem(ENVIRONMENT, "LARDER_CONF", str(off))
    reboot(stack, larderd, stop=False)
    larderd.wait_said(f"{off}:2", "'nonsense' is not auto")
    assert not dm.names()
    larder("start", "--locked", "data")
    assert running("data")


class Hanging:
    """A device of a stack that can hang: `below`, which is suspended; or a loop device upon that, with requests in flight."""

    def __init__(self, what: str):
        self.member = Member("below", 64).plug()
        self.below = dm.DmDevice.create("below", f"0 {64 << 11} linear {self.member} 0")
        self.node = self.below.path
        if what != "dm":
            # nobody knows that one lies on the other, and what is on both would be there twice
            words = ["--find", "--show", "--direct-io=on", "--offset", 1 << 20, self.below.path]
            self.node = command.output("losetup", *words).strip()
        number = os.stat(self.node).st_rdev
        self.name = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
        self.says = f"{self.node} has answered nothing for "
        self.more = "it is suspended, and goes on behind dmsetup resume below" if what == "dm" else "in flight"

    def hang(self) -> None:
        self.below.suspend(noflush=True, nolockfs=True)

    def off(self) -> None:
        for name in ("data", "larder-cache-data"):
            if running(name):
                dm.DmDevice(name).remove()
        if self.node != self.below.path:
            command.run("losetup", "--detach", self.node)
        self.below.remove()
        self.member.unplug()


@pytest.mark.limit(1200)
@pytest.mark.parametrize("what", ["disk", "dm", "ssd"])
def test_device_that_hangs(stack, larderd, monkeypatch, what):
    """All that look come to an end, and name it, also where their own read is the first without an answer; larderd tells of it."""
    conf = Path("/run/larder/larder.conf")
    conf.write_text("stall 3\n")
    monkeypatch.setitem(ENVIRONMENT, "LARDER_CONF", str(conf))
    hanging = Hanging(what)
    if what == "ssd":
        words = ["--backing", stack.hdd, "--cache", stack.ssd[0], "--cache", hanging.node]
    else:
        words = ["--backing", hanging.node, "--cache", stack.ssd[0], "--cache", stack.ssd[1]]
    reader = None
    try:
        larder("create", "data", *words, "--yes")
        settle()
        for verb in (["list"], ["show", "data"], ["doctor"]):
            hanging.hang()  # and nothing is in flight: its own read is the first
            r = larder(*verb, check=False)
            assert hanging.says in r.stdout + r.stderr, r
            hanging.below.resume()
            wait_for(lambda: larder("status", "data", check=False).stdout.startswith("data: fine"), SECONDS, "it to answer again")
        larderd.start()
        assert larder("status", "data").stdout.startswith("data: fine")
        content = os.urandom(4096)
        BlockDevice("/dev/mapper/data").write(4096, content)
        larder("volume", "flush", "data")
        hanging.hang()

        def told() -> str:
            r = larder("status", "data", check=False)
            assert r.returncode == 10 and r.stdout.startswith("data: degraded: "), r
            assert hanging.says in r.stdout and hanging.more in r.stdout and r.stdout.count("stall: ") == 1, r
            return r.stdout

        told()  # nothing was in flight before
        words = ["if=/dev/mapper/data", "iflag=direct", "bs=1M", "count=32", "of=/dev/null", "status=none"]
        reader = subprocess.Popen(["dd", *words])
        told()
        assert rows("data")["stack"]["state"] == "degraded"
        kind = "cache" if what == "ssd" else "volume"
        noun = f"{kind} data"
        r = larder("doctor", check=False)
        assert f"wrong: data: stall: {hanging.says}" in r.stdout, r
        larderd.wait_said(f"{noun}: {hanging.says}")
        r = larder("events", "--disks", 0)
        assert f" stalled disk {hanging.name}: {noun}: {hanging.says}" in r.stdout, r.stdout
        assert f'larder_stalled_seconds{{device="{hanging.name}",{kind}="data"}}' in larder("metrics").stdout
        hanging.below.resume()
        larderd.wait_said(f"{noun}: {hanging.name} answers again")
        assert reader.wait(SECONDS) == 0
        wait_for(lambda: "stall" not in larder("status", "data", check=False).stdout, SECONDS, "status to say so, too")
        assert "stalled" not in larder("events", "--disks", 0).stdout
        assert BlockDevice("/dev/mapper/data").read(4096, 8) == content
        larderd.stop()
        assert larderd.log.read_text().count("has answered nothing") == 1
    finally:
        hanging.below.resume()
        if reader:
            reader.wait(SECONDS)
        hanging.off()


@pytest.mark.limit(1200)
def test_others_beside_a_device_that_hangs(stack, larderd):
    """Passes, and commands that change something, do all else; when it answers again its stack starts, without an event."""
    hanging = Hanging("disk")
    try:
        larder("create", "data", "--backing", hanging.node, "--cache", stack.ssd[0], "--yes")
        larder("create", "other", "--backing", stack.hdd, "--cache", stack.ssd[1], "--yes")
        settle()
        for name in ("data", "other"):
            larder("stop", name)
        shutil.rmtree("/run/larder/stopped")
        hanging.hang()  # and nothing is in flight: the first read is that of a pass
        larderd.start()
        assert running("other") and not running("data")
        larderd.wait_said(hanging.node, "answers nothing")
        larder("stop", "other")
        larder("start", "other")
        r = larder("start", "data", check=False)
        assert r.returncode == NOT_FOUND and hanging.says in r.stderr, r
        hanging.below.resume()
        wait_for(lambda: running("data"), SECONDS, "the stack on what answers again")
        assert larder("status", "data").stdout.startswith("data: fine")
        larderd.stop()
        assert larderd.log.read_text().count("answers nothing") == 1
        larder("stop", "other")
    finally:
        hanging.below.resume()
        hanging.off()


def reads(*disks: Member) -> int:
    """Requests that these have had so far."""
    return sum(int(Path("/sys/block", Path(m.node).name, "stat").read_text().split()[0]) for m in disks)


def test_events_of_others_wake_no_disk(stack, larderd):
    """What device-mapper tells of larder's devices has their superblocks read; what it tells of others' has not."""
    larder("create", "data", "--backing", stack.hdd, "--cache", stack.ssd[0], "--yes")
    settle()
    larderd.start()
    settle()
    before = reads(stack.hdd, stack.ssd[0])
    for _ in range(3):
        other = dm.DmDevice.create("other", "0 2048 zero")
        time.sleep(1.5)  # it looks a second behind the first of some events
        other.remove()
        time.sleep(1.5)
    settle()
    assert reads(stack.hdd, stack.ssd[0]) == before
    dm.DmDevice("data").suspend()
    dm.DmDevice("data").resume()
    wait_for(lambda: reads(stack.hdd, stack.ssd[0]) > before, SECONDS, "a pass")
    larderd.stop()


def sums(*nodes: str) -> list[str]:
    return [hashlib.sha256(Path(n).read_bytes()).hexdigest() for n in nodes]


def below() -> list[str]:
    """What there is of a volume with snapshots, or was left of it."""
    return [n for n in dm.names() if n.startswith("data") and not n.endswith("-crypt")]


def with_snapshot(stack) -> Member:
    """Made, written to, and data@one of that; its store."""
    store = Member("store", 64)
    stack.members.append(store)
    store.plug()
    settle()
    larder(*stack.words())
    fill("what was written")
    larder("snapshot", "create", "data@one", "--store", store)
    return store


@pytest.mark.limit(1800)
def test_assembled_with_snapshots(stack, tmp_path):
    """Without the daemon; killed behind each change; and not without the store."""
    node, store = "/dev/mapper/data@one", with_snapshot(stack)
    fill("what came later")
    first = sums(node)
    library = tmp_path / "kill_at.so"
    command.run("cc", "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).parents[2] / "command/kill_at.c")
    for number in range(1, 30):
        stack.off()
        stack.plug()
        env = ENVIRONMENT | {"LD_PRELOAD": str(library), "KILL_AT": str(number)}
        code = subprocess.run(["larder", "assemble", "--all"], env=env).returncode
        if running("data"):
            assert running("data@one"), number
        larder("assemble", "--all")
        assert sums(node) == first and len(below()) == 4, below()
        if code == 0:
            break
    assert number > 4
    larder("unlock", "data")
    assert (MOUNTED / "content").read_text() == "what came later"
    stack.off()
    stack.members.remove(store)
    stack.plug()
    r = larder("assemble", "--all", check=False)
    assert r.returncode and "waits for the store of its snapshot one" in r.stdout + r.stderr and not below()
    r = larder("assemble", "--all", "--degraded", check=False)
    assert r.returncode and "larder start data --drop-snapshot one" in r.stdout + r.stderr and not below()
    store.plug()
    stack.members.append(store)
    settle()
    larder("assemble", "--all")
    assert sums(node) == first
    larder("snapshot", "remove", "data@one")
    assert below() == ["data"]


def test_reboot_with_snapshots(stack, larderd):
    """Behind a reboot larderd shows the stack with its snapshots, and not before their stores are here; /dev/disk/by-uuid never has
    what is on one; a store that fills up is told of, and what was lost counts no more at the next boot."""
    by_uuid, node = Path("/dev/disk/by-uuid"), "/dev/mapper/data@one"
    store, small = Member("store", 64), Member("small", 16)
    stack.members += [store, small]
    store.plug()
    small.plug()
    settle()
    larder(*stack.words())
    fill("what was written")
    before = {p.name: os.path.realpath(p) for p in by_uuid.iterdir()}
    larderd.start()
    larder("snapshot", "create", "data@one", "--store", store)
    fill("what came later")
    settle()
    assert {p.name: os.path.realpath(p) for p in by_uuid.iterdir()} == before
    assert os.path.realpath("/dev/larder/data@one") == os.path.realpath(node)
    assert os.path.realpath("/dev/larder/data") == os.path.realpath("/dev/mapper/data")
    assert not Path("/dev/larder/data-origin").exists() and store.properties()["ID_FS_TYPE"] == "larder_member"
    opened = ["cryptsetup", "open", "--readonly", "--key-file", stack.key, node, "data@one-snapshot"]
    subprocess.run(opened, env=ENVIRONMENT, check=True)
    settle()
    assert {p.name: os.path.realpath(p) for p in by_uuid.iterdir()} == before
    subprocess.run(["cryptsetup", "close", "data@one-snapshot"], env=ENVIRONMENT, check=True)
    first = sums(node)

    larderd.stop()
    stack.off()
    stack.members.remove(store)
    switch_on(stack, larderd)
    larderd.wait_said("volume data: waits for the store of its snapshot one")
    assert not [n for n in dm.names() if n.startswith("data")]
    store.plug()
    stack.members.append(store)
    wait_for(lambda: running("data"), SECONDS, "the volume")
    assert sums(node) == first
    larder("unlock", "data")
    assert (MOUNTED / "content").read_text() == "what came later"
    settle()
    assert {p.name for p in by_uuid.iterdir()} == set(before)

    larder("snapshot", "create", "data@two", "--store", small)
    (MOUNTED / "filler").write_bytes(os.urandom(13 << 20))
    os.sync()
    larderd.wait_said("its snapshot two is lost when its store is full, and that is nearly so")
    (MOUNTED / "more").write_bytes(os.urandom(8 << 20))
    os.sync()
    wait_for(lambda: "lost" in larder("snapshot", "list").stdout, SECONDS, "the note")
    larderd.wait_said("its snapshot two is lost", "larder snapshot remove data@two")
    reboot(stack, larderd)
    wait_for(lambda: running("data"), SECONDS, "the volume")
    assert sums(node) == first and not running("data@two")
    larder("snapshot", "remove", "data@two")
    larder("snapshot", "remove", "data@one")
    larder("unlock", "data")
    assert "fine" in larder("status", "data").stdout
    settle()
    assert {p.name for p in by_uuid.iterdir()} == set(before)
    larder("stop", "data")
    assert not dm.names()


def test_snapshot_is_removed_beside_its_stack(stack, larderd):
    """By dmsetup: what is overwritten is copied no more; larderd notes that it is lost, and no start shows it."""
    with_snapshot(stack)
    larderd.start()
    command.run("dmsetup", "remove", "data@one")
    wait_for(lambda: "lost" in larder("snapshot", "list").stdout, SECONDS, "the note")
    larderd.wait_said("its snapshot one is lost", "larder snapshot remove data@one")
    fill("what came later")
    reboot(stack, larderd)
    wait_for(lambda: running("data"), SECONDS, "the volume")
    assert not running("data@one")
    larder("snapshot", "remove", "data@one")


def stop_of(unit: str, state: str, directory: Path) -> None:
    """As systemd stops a unit; it calls the system's state so."""
    line = re.search("^ExecStop=(.*)", (Path(__file__).parents[3] / "udev" / unit).read_text(), re.M)[1]
    (directory / "systemctl").write_text(f"#!/bin/sh\necho {state}\n")
    (directory / "systemctl").chmod(0o755)
    env = ENVIRONMENT | {"PATH": f"{directory}:{os.environ['PATH']}"}
    subprocess.run(shlex.split(line.replace("$$", "$")), env=env, check=True)


def holds() -> list[str]:
    return command.output("losetup", "--noheadings", "--output", "NAME", "--associated", "/dev/mapper/data@one").split()


@pytest.mark.skipif(not shutil.which("blkdeactivate"), reason="of lvm2")
def test_shutdown_with_lvm(stack, tmp_path):
    """blkdeactivate removes what nobody uses: a snapshot stays beside a stack that cannot be unmounted, and goes on."""
    with_snapshot(stack)
    settle()
    first = sums("/dev/mapper/data@one")
    stop_of("larder-snapshots.service", "running", tmp_path)
    assert not holds()
    stop_of("larder-snapshots.service", "stopping", tmp_path)
    try:
        with open(MOUNTED / "content", "rb"):
            said = subprocess.run(["blkdeactivate", "-u"], env=ENVIRONMENT, capture_output=True, text=True).stdout
        assert re.search(r"deactivating \w+ device data@one .*skipping", said) and running("data@one"), said
        fill("what came later")
        assert sums("/dev/mapper/data@one") == first
        assert command.output("lsblk", "--noheadings", "--output", "FSTYPE,UUID", *holds()).strip() == ""
    finally:
        command.run("losetup", "--detach", *holds())
    larder("stop", "data")
    assert "stopped" in larder("snapshot", "list").stdout
