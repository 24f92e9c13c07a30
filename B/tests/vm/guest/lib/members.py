# SPDX-License-Identifier: GPL-2.0-or-later
"""Members of caches and volumes that come and go, beside real udevd and larderd.

They are files behind loop devices: plugged and unplugged as often as wanted, with their content.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import command, dm
from .larder import wait_for

TOP = Path(__file__).resolve().parents[4]
FILES = Path("/dev/shm/members")
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "DM_DISABLE_UDEV"}
FOR_EVER = 86400
LOOP_CONFIGURE, LOOP_CLR_FD, LOOP_CTL_GET_FREE = 0x4C0A, 0x4C01, 0x4C82
SECONDS = 120  # that a condition may take, on a machine that is busy


def in_memory(*programs: str) -> list[str]:
    """Programs that udev rules run, with their libraries: copies in memory, bound over them.  Starting one takes long where the
    root is that of the host, by 9p."""
    directory, bound = Path(tempfile.mkdtemp(prefix="bound-", dir="/run/larder")), []  # those of a suite before may still run
    for program in programs:
        libraries = command.output("ldd", program)
        for file in [program, *re.findall(r"(/\S+\.so\S*)", libraries)]:
            real = os.path.realpath(file)
            if real not in bound:
                shutil.copy(real, directory)
                command.run("mount", "--bind", directory / Path(real).name, real)
                bound.append(real)
    return bound


@contextlib.contextmanager
def udevd() -> Iterator[None]:
    """With the rules of the work tree, and larder-probe where it was built."""
    command.run("modprobe", "loop")
    bound = in_memory("/sbin/dmsetup", "/bin/udevadm", shutil.which("larder-probe"))
    rules = Path("/run/udev/rules.d")
    rules.mkdir(parents=True, exist_ok=True)
    probe = shutil.which("larder-probe")
    for rule in (TOP / "udev").glob("*.rules"):
        text = rule.read_text().replace("larder-probe $devnode", f"{probe} $devnode")
        (rules / rule.name).write_text(text)
    ran = command.run("udevadm", "control", "--ping", "--timeout=5", check=False).returncode == 0
    if ran:
        command.run("udevadm", "control", "--reload")
    else:
        command.run("/lib/systemd/systemd-udevd", "--daemon", "--resolve-names=never")
        command.run("udevadm", "control", "--ping")
    FILES.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if not ran:
            command.run("udevadm", "settle", "-t", "60", check=False)
            command.run("udevadm", "control", "--exit")
            wait_for(lambda: command.run("pgrep", "-x", "systemd-udevd", check=False).returncode == 1, SECONDS, "udevd to go")
        for rule in rules.glob("*larder*"):
            rule.unlink()
        shutil.rmtree(FILES)
        for file in bound:
            command.run("umount", "-l", file)


def larder(*arguments: object, check: bool = True) -> subprocess.CompletedProcess:
    words = ["larder", *map(str, arguments)]
    r = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=ENVIRONMENT, timeout=SECONDS)
    if check and r.returncode:
        raise command.CommandError(words, r.returncode, r.stdout, r.stderr)
    return r


def settle() -> None:
    command.run("udevadm", "settle", "-t", SECONDS)


class Member:
    def __init__(self, name: str, mb: int):
        self.name, self.file, self.node = name, FILES / name, None
        with open(self.file, "wb") as f:
            f.truncate(mb << 20)

    def __str__(self) -> str:
        return self.node or self.name

    def plug(self) -> "Member":
        with open("/dev/loop-control", "rb") as control, open(self.file, "r+b") as f:
            number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
            self.node = f"/dev/loop{number}"
            wait_for(lambda: Path(self.node).exists(), SECONDS, self.node)
            with open(self.node, "r+b") as loop:
                fcntl.ioctl(loop, LOOP_CONFIGURE, struct.pack("<II296x", f.fileno(), 0))
        return self

    def unplug(self) -> None:
        if self.node:
            with open(self.node, "rb") as loop:
                fcntl.ioctl(loop, LOOP_CLR_FD)
            backing = Path("/sys/block", Path(self.node).name, "loop/backing_file")
            wait_for(lambda: not backing.exists(), SECONDS, f"{self.node} to go")
            self.node = None

    def copy(self, name: str) -> "Member":
        other = Member(name, 0)
        shutil.copy(self.file, other.file)
        return other

    def properties(self) -> dict[str, str]:
        """In udev's database."""
        number = os.stat(self.node).st_rdev
        lines = Path(f"/run/udev/data/b{os.major(number)}:{os.minor(number)}").read_text().splitlines()
        tags = {"TAGS": " ".join(x[2:] for x in lines if x.startswith("G:"))}
        return tags | dict(x[2:].split("=", 1) for x in lines if x.startswith("E:"))


class Larderd:
    """Started, and through its first pass."""

    def __init__(self, wait: int = FOR_EVER):
        self.wait, self.process, self.log = wait, None, FILES / "larderd.log"
        self.log.write_text("")

    def start(self, ready: bool = True) -> "Larderd":
        name = str(FILES / "notify")
        Path(name).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s, open(self.log, "a") as log:
            s.bind(name)
            s.settimeout(SECONDS)
            self.process = subprocess.Popen(
                ["larderd", "--wait", str(self.wait)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENVIRONMENT | {"NOTIFY_SOCKET": name},
                start_new_session=True,
            )
            while ready and b"READY=1" not in s.recv(4096):
                pass
        return self

    def said(self, *texts: str) -> bool:
        lines = self.log.read_text().splitlines()
        return any(all(t in x for t in texts) for x in lines)

    def wait_said(self, *texts: str) -> None:
        try:
            wait_for(lambda: self.said(*texts), SECONDS, f"larderd to say {texts}")
        except AssertionError as e:
            raise AssertionError(f"{e}; it said:\n{self.log.read_text()}") from None

    def kill(self) -> None:
        """With whatever pass it is in."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(SECONDS) == 0


def running(name: str) -> bool:
    return name in dm.names()


def status(name: str) -> dict:
    return dm.DmDevice(name).status()


class Rig:
    """Two SSDs, a disk, a volume `data` on the cache `fast`, and what it must hold."""

    def __init__(self, make_oracle, ssds: int = 2):
        self.ssd = [Member(f"ssd{i}", 24) for i in range(ssds)]
        self.hdd = Member("hdd", 48)
        self.members = [*self.ssd, self.hdd]
        for m in self.members:
            m.plug()
        given = [w for s in self.ssd for w in ("--cache", s)]
        larder("cache", "create", "fast", *given, "--yes")
        larder("volume", "create", "data", "--backing", self.hdd, "--cache", "fast", "--mode", "writeback", "--yes")
        larder("volume", "start", "data", "--option", "writeback=off")
        self.oracle = make_oracle("/dev/mapper/data", size="16m")
        self.oracle.run(ops=400)
        self.off()

    def stop(self) -> None:
        for name in ("data", "larder-cache-fast"):
            if running(name):
                larder("volume" if name == "data" else "cache", "stop", name)

    def off(self) -> None:
        """As a machine that is switched off: nothing runs, nothing is plugged, /run is empty."""
        self.stop()
        for m in self.members:
            m.unplug()
        settle()
        shutil.rmtree("/run/larder/stopped", ignore_errors=True)

    def verify(self, *, failed: int = 0) -> None:
        wait_for(lambda: running("data"), SECONDS, "the volume")
        wait_for(lambda: Path("/dev/mapper/data").exists(), SECONDS, "its node")
        s = status("larder-cache-fast")
        assert (s["devices"], s["devices_failed"]) == (len(self.ssd), failed), s
        self.oracle.verify()


@contextlib.contextmanager
def larderd_of(rig: Rig) -> Iterator[Larderd]:
    """Not started yet."""
    daemon = Larderd()
    yield daemon
    if daemon.process and daemon.process.poll() is None:
        daemon.stop()


@contextlib.contextmanager
def rig_of(make_oracle) -> Iterator[Rig]:
    r = Rig(make_oracle)
    yield r
    r.off()
