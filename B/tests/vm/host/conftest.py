# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of tests that boot, and kill, their own machines.  Run by tests/vm/run, which has built what they need."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "guest"))

from host import build, machine, plain, process, system
from lib import dealt, kernel_log, outcome

RESULTS = Path(os.environ["LARDER_RESULTS"])


def pytest_configure(config: pytest.Config) -> None:
    process.end_at(signal.SIGTERM, signal.SIGHUP)
    config.pluginmanager.register(outcome.Recorder(RESULTS), "outcome-recorder")
    config.pluginmanager.register(dealt.Dealer())


@pytest.fixture
def seed() -> int:
    return int(os.environ["LARDER_SEED"])


@pytest.fixture
def share(request: pytest.FixtureRequest) -> Path:
    """A directory that every machine of this test may write, at the same path as here."""
    d = RESULTS / request.node.name / "share"
    d.mkdir(parents=True, exist_ok=True)
    for f in d.iterdir():
        f.unlink()
    return d


@pytest.fixture
def make_disk_file(request: pytest.FixtureRequest) -> Iterator[Callable[[str, int], Path]]:
    """make_disk_file(name, mib) -> an empty sparse file for disks=[...]; the guest finds the n-th by virtio_disk("larderN")."""
    made = []

    def make(name: str, mib: int) -> Path:
        p = RESULTS / request.node.name / f"{name}.img"
        p.parent.mkdir(parents=True, exist_ok=True)
        p.unlink(missing_ok=True)
        with open(p, "wb") as f:
            f.truncate(mib << 20)
        made.append(p)
        return p

    yield make
    for p in made:
        p.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the disk of a system is made (system.py)."""
    return tmp_path_factory.mktemp("system")


@pytest.fixture(scope="module")
def initramfs(directory) -> Path:
    """That mounts it, and no more."""
    return system.initramfs(directory)


# of systemd-shutdown, when nothing is left
TAKEN_APART = "All filesystems, swaps, loop devices, MD devices and DM devices detached."


@pytest.fixture
def boot(initramfs, root) -> Callable:
    """root: the suite's own, of the script that each boot runs (system.SHELL)."""

    def run(
        phase: str, disks: list[Path], append: str = "", orderly: bool = True, options: Iterable[str] = ()
    ) -> tuple[list[str], str]:
        """What it said, and its console.  orderly: it is shut down, not cut off.  options: of QEMU."""
        words = f"phase={phase} systemd.mask=serial-getty@ttyS0.service {append}"
        words += " systemd.mask=systemd-ask-password-console.path"  # its agent hangs up the console that the script speaks on
        console = plain.boot(phase, initramfs, [root, *disks], words, memory=1024, options=options)
        bad = kernel_log.bad_lines(console.splitlines())
        assert not bad, f"kernel log of the boot {phase}:\n" + "\n".join(bad)
        assert not orderly or TAKEN_APART in console, "systemd-shutdown left something mounted, or mapped"
        return system.said(phase, console), console

    return run


class Boots:
    """Machines of one test, numbered; each is gone, and its kernel log judged, at the end."""

    def __init__(self, directory: Path, share: Path):
        self.directory = directory
        self.share = share
        self.made: list[machine.Machine] = []

    def start(self, command: list[object], kind: type[machine.Machine] = machine.Machine, **options: object) -> machine.Machine:
        """Boots, and runs the command in the guest.  Options of machine.Machine: disks, memory, udev, environment ..."""
        products = build.Products(*([Path(p) for p in os.environ[x].split(":")] for x in ("LARDER_MODULES", "LARDER_PROGRAMS")))
        directory = self.directory / f"boot-{len(self.made)}"
        words = [str(c) for c in command]
        m = kind(os.environ["LARDER_KERNEL"], directory, products, words, share=self.share, **options)
        self.made.append(m)
        return m.start()

    def run(self, command: list[object], seconds: float = 300, **options: object) -> machine.Machine:
        """Boots, runs the command, and expects that it comes to its end with status 0."""
        m = self.start(command, **options)
        how = m.wait(seconds)
        text = f"{how}, status {m.exit_status()}\n{m.output()}\n--- console ---\n" + "\n".join(m.console().splitlines()[-60:])
        assert how == "done" and m.exit_status() == 0, text
        return m


@pytest.fixture
def boots(request: pytest.FixtureRequest, share: Path) -> Iterator[Boots]:
    b = Boots(RESULTS / request.node.name, share)
    yield b
    for m in b.made:
        m.kill()
    bad = [x for m in b.made for x in kernel_log.bad_lines(m.console().splitlines())]
    assert not bad, "kernel log:\n" + "\n".join(bad)
