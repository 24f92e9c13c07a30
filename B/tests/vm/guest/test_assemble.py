# SPDX-License-Identifier: GPL-2.0-or-later
"""Caches and volumes come up by themselves: real udevd and larderd, members that appear and go one by one (lib/members.py).

What a volume holds is judged by the oracle.  Nothing is judged by the clock: where larderd waits for what is missing, it waits for
ever or not at all.  More of it: test_members.py.
"""

import itertools
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lib import command, dm, members
from lib.members import Larderd, Rig, larder, running, settle

@pytest.fixture(scope="module", autouse=True)
def udevd() -> Iterator[None]:
    with members.udevd():
        yield


@pytest.fixture
def rig(make_oracle) -> Iterator[Rig]:
    with members.rig_of(make_oracle) as r:
        yield r


@pytest.fixture
def larderd(rig) -> Iterator[Larderd]:
    with members.larderd_of(rig) as daemon:
        yield daemon


@pytest.mark.core
def test_every_order(rig, larderd):
    """It starts when the last member has come, never without one that is still to come."""
    larderd.start()
    for order in itertools.permutations(rig.members):
        for m in order:
            m.plug()
        rig.verify()
        larderd.stop()  # or it would take the stop of the volume for somebody's wish
        rig.off()
        larderd.start()
    assert not larderd.said("WITHOUT")


@pytest.mark.parametrize("away", [0, 1])
def test_missing_ssd(rig, larderd, away):
    """Waits; then starts without it, which loses nothing; the SSD is stale then, and never used again by itself."""
    larderd.start()
    late, other = rig.ssd[away], rig.ssd[1 - away]
    other.plug()
    rig.hdd.plug()
    larderd.wait_said("cache fast: waits for 1 of its 2 SSDs")
    assert not running("data") and not running("larder-cache-fast")
    larderd.stop()
    larderd.wait = 0
    larderd.start()
    rig.verify(failed=1)
    assert larderd.said("larder-cache-fast: started", "WITHOUT ALL OF ITS SSDs")
    rig.oracle.run(ops=200)
    before = late.file.read_bytes()
    late.plug()
    larderd.wait_said(late.node, "is stale", "larder cache add fast")
    rig.verify(failed=1)
    larderd.stop()
    rig.off()

    # the stale one and the disk: not even without a wait
    larderd.start()
    late.plug()
    rig.hdd.plug()
    larderd.wait_said("the volume on", "ran with other SSDs")
    assert not running("data") and not running("larder-cache-fast")
    other.plug()
    rig.verify(failed=1)
    assert late.file.read_bytes() == before, "the stale SSD was written to"


def test_again(rig):
    """Without larderd: its own looks are no events, so that the pauses grow; what comes is looked at at once."""
    late = rig.ssd[1]
    rig.ssd[0].plug()
    rig.hdd.plug()
    settle()
    name = str(members.FILES / "notify-again")
    Path(name).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(name)
        s.settimeout(members.SECONDS)
        words = ["larder", "assemble", "--again", "--conf", "data"]
        with subprocess.Popen(words, env=members.ENVIRONMENT | {"NOTIFY_SOCKET": name}, stderr=subprocess.DEVNULL) as process:
            try:
                for pause in (5, 10, 20, 40):
                    assert s.recv(4096).decode().endswith(f"and in {pause} s")
                assert process.poll() is None and not running("data")
                began = time.monotonic()
                late.plug()
                assert s.recv(4096).decode().startswith("READY=1\nSTATUS=started")
                assert time.monotonic() < began + 30, "it slept on"
                assert process.wait(members.SECONDS) == 0
            finally:
                process.kill()
    rig.verify()


def test_killed_anywhere(rig, larderd, seed):
    """With its pass, at a random moment, again and again while members come: in the end all of it runs, once."""
    rng = random.Random(seed)
    for _ in range(2):
        order = rng.sample(rig.members, 3)
        larderd.start(ready=False)
        for m in order:
            m.plug()
            time.sleep(rng.uniform(0, 0.6))
            larderd.kill()
            larderd.start(ready=False)
        time.sleep(rng.uniform(0, 0.6))
        larderd.kill()
        larderd.start()
        rig.verify()
        assert sorted(dm.names()) == ["data", "larder-cache-fast"]
        larderd.stop()
        rig.off()


def test_word_on_the_command_line(rig, larderd, tmp_path):
    """larder.auto=no: nothing starts by itself, and what is asked for by name does."""
    words = tmp_path / "cmdline"
    words.write_text(Path("/proc/cmdline").read_text().rstrip() + " larder.auto=no\n")
    for m in rig.members:
        m.plug()
    settle()
    command.run("mount", "--bind", words, "/proc/cmdline")
    try:
        for how in (["assemble", "--all"], ["assemble", "--conf", "data"]):
            assert "larder.auto=no" in larder(*how).stderr and not dm.names()
        larderd.start()
        assert larderd.process.wait(60) == 0 and larderd.said("larder.auto=no") and not dm.names()
        larder("assemble", "data")
        rig.verify()
    finally:
        command.run("umount", "/proc/cmdline")


@pytest.mark.core
def test_assemble_without_the_daemon(rig):
    a, b = rig.ssd
    a.plug()
    rig.hdd.plug()
    settle()
    r = larder("assemble", "--all", check=False)
    assert r.returncode == 3 and "waits for 1 of its 2 SSDs" in r.stderr and not running("larder-cache-fast")
    b.plug()
    settle()
    r = larder("assemble", "--all", "--dry-run")
    uuid = a.properties()["ID_FS_UUID"]
    lines = r.stdout.splitlines()
    assert len(lines) == 2, lines
    assert lines[0].startswith(f"dmsetup create larder-cache-fast --uuid LARDER-{uuid}-cache --table '0 "), lines
    assert lines[0].endswith(f"larder-cache 2 {a} {b} 0'"), lines
    assert lines[1].endswith(f"larder {rig.hdd} /dev/mapper/larder-cache-fast 0'"), lines
    assert not running("larder-cache-fast")
    assert [x.split()[0] for x in larder("assemble", "data").stdout.splitlines()] == ["cache", "volume"]
    rig.verify()
    assert larder("assemble", "--all").stdout == ""
    rig.off()

    b.plug()
    rig.hdd.plug()
    settle()
    r = larder("assemble", "--all", "--degraded")
    assert "WITHOUT ALL OF ITS SSDs" in r.stderr
    rig.verify(failed=1)
