# SPDX-License-Identifier: GPL-2.0-or-later
"""Stacks beside larderd and udevd: it starts none that is half made, another machine's, or just being made.

There is no systemd in this VM: what it does above the volume is tested by the suite system.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lib import command, dm, members
from lib.larder import wait_for
from lib.members import ENVIRONMENT, FILES, SECONDS, Larderd, Member, larder, running, settle
from lib.stacks import FSTAB, HAND_MADE, MOUNTED, UNSAFE, rows

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


@pytest.fixture
def stack(monkeypatch) -> Iterator[Stack]:
    MOUNTED.mkdir(exist_ok=True)
    FSTAB.write_text(HAND_MADE)
    monkeypatch.setitem(ENVIRONMENT, "LIBMOUNT_FSTAB", str(FSTAB))
    s = Stack()
    s.plug()
    yield s
    s.off()


@pytest.fixture
def larderd(stack) -> Iterator[Larderd]:
    daemon = Larderd()
    yield daemon
    if daemon.process and daemon.process.poll() is None:
        daemon.stop()


def reboot(stack: Stack, larderd: Larderd) -> None:
    """Everything goes, and comes back; larderd has made its first pass when this returns."""
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
