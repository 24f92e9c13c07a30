# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of the tests of the command larder; a plugin, so that each test file can ask for it."""

import fcntl
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from harness import TOP, Larder


def build(target, *goals, **variables):
    argv = ["make", "-s", "-C", str(TOP / target), *goals] + [f"{k}={v}" for k, v in variables.items()]
    with open(TOP / "Makefile") as one_at_a_time:  # of the processes that share these tests
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        run = subprocess.run(argv, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="session")
def program():
    """Path of the command."""
    return os.environ.get("LARDER") or build("tools", SANITIZE="1")


@pytest.fixture(scope="session")
def plain_program():
    """The command as it is installed, without sanitizers, which let no process write a core."""
    return build("tools")


@pytest.fixture(scope="session")
def larderd():
    """Path of the daemon."""
    return os.environ.get("LARDERD") or build("daemon", "larderd", SANITIZE="1")


@pytest.fixture(scope="session")
def larder_probe():
    """Path of what the udev rules run."""
    return os.environ.get("LARDER_PROBE") or build("daemon", "larder-probe", SANITIZE="1")


def memory():
    """Where images may lie without a disk waiting for each of their flushes; None: where the system keeps temporary files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture(autouse=True)
def run_directory(tmp_path, monkeypatch):
    """In the place of /run/larder, as far as that is for others to see; not there yet."""
    directory = tmp_path / "run"
    monkeypatch.setenv("LARDER_RUN", str(directory))
    return directory


@pytest.fixture
def larder(program):
    with tempfile.TemporaryDirectory(prefix="larder-", dir=memory()) as directory:
        yield Larder(program, Path(directory))


@pytest.fixture
def loop(larder):
    """Makes loop devices of images."""
    made = []

    def make(path, *options):
        run = subprocess.run(["losetup", "--find", "--show", *options, str(path)], capture_output=True, text=True)
        if run.returncode:
            pytest.skip(f"no loop devices here: {run.stderr.strip()}")
        made.append(run.stdout.strip())
        return made[-1]

    if os.geteuid():
        pytest.skip("loop devices need root; the VM tests run on real block devices")
    yield make
    for device in made:
        subprocess.run(["losetup", "--detach", device], check=True)


@pytest.fixture(scope="module")
def samples(program):
    """A good cache and a good volume of it, for tests that damage them and repair them again."""
    with tempfile.TemporaryDirectory(prefix="larder-", dir=memory()) as directory:
        larder = Larder(program, Path(directory))
        yield larder, larder.cache("fast"), larder.volume("data", 64 << 20, "--cache", "fast")


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    """Directory of the writer and the reader of images, and of the power cut."""
    directory = tmp_path_factory.mktemp("images")
    made = [directory / "writer", directory / "reader"]
    subprocess.run(["make", "-s", "-C", TOP / "tests" / "images", f"BUILD={directory}", *made], check=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
        + ["-o", directory / "power_cut.so", TOP / "tests" / "command" / "power_cut.c"],
        check=True,
    )
    return directory
