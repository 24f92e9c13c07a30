# SPDX-License-Identifier: GPL-2.0-or-later
"""org.larder1 beside md: jobs of a stack that runs, ended, paused and resumed over the bus by the real command.

What jobs there are, and what each method runs, is tested without devices: tests/test_command_bus.py, tests/unit/test_jobs.c.
"""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from lib import command
from lib.larder import wait_for
from lib.members import udevd
from lib.stacks import arrays, larder, prepare, remove, rows, words

NAME, ROOT = "org.larder1", "/org/larder1"
SECONDS = 120
CONF = """<busconfig>
  <type>system</type>
  <listen>unix:path={0}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
    <allow send_type="signal"/>
  </policy>
</busconfig>
"""


@pytest.fixture
def disks(make_disk, monkeypatch, kernel_log):
    yield from prepare(make_disk, monkeypatch, kernel_log)


class Bus:
    def __init__(self, directory: Path):
        self.socket, self.log = directory / "bus", directory / "log"
        self.address = f"unix:path={self.socket}"
        (directory / "conf").write_text(CONF.format(self.socket))
        self.directory = directory

    @contextlib.contextmanager
    def running(self):
        """dbus-daemon; larderd comes and goes."""
        with subprocess.Popen(["dbus-daemon", f"--config-file={self.directory / 'conf'}", "--nofork", "--nosyslog"]) as bus:
            try:
                wait_for(self.socket.exists, SECONDS, "the bus")
                yield self
            finally:
                bus.terminate()

    @contextlib.contextmanager
    def larderd(self):
        environment = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": self.address}
        with open(self.log, "a") as log, subprocess.Popen(["larderd"], stderr=log, env=environment) as daemon:
            try:
                wait_for(lambda: any("/stack/" in path for path in self.objects()), SECONDS, "larderd to show the stack")
                yield
            finally:
                daemon.terminate()
        assert daemon.returncode == 0, self.log.read_text()

    def call(self, path: str, interface: str, method: str, *more: object, check: bool = True) -> subprocess.CompletedProcess:
        head = ["busctl", f"--address={self.address}", f"--timeout={SECONDS}", "--json=short", "--", "call", NAME]
        return command.run(*head, path, interface, method, *more, check=check)

    def objects(self) -> dict:
        run = self.call(ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", check=False)
        data = json.loads(run.stdout)["data"][0] if run.returncode == 0 else {}
        return {
            p: {n: v["data"] for n, v in next(ps for i, ps in o.items() if i.startswith(NAME)).items()} for p, o in data.items()
        }

    def jobs(self) -> dict:
        return {p: o for p, o in self.objects().items() if p.startswith(f"{ROOT}/job/")}

    def wait_job(self, **values: str) -> str:
        """Path of the job with these; it is looked at anew until then, as what md begins makes no event."""

        def found() -> str | None:
            self.call(ROOT, f"{NAME}.Manager", "Refresh")
            return next((p for p, job in self.jobs().items() if values.items() <= job.items()), None)

        wait_for(lambda: found() is not None, SECONDS, f"a job with {values}; there are {self.jobs()}")
        return found()

    def wait_gone(self, path: str) -> None:
        def gone() -> bool:
            self.call(ROOT, f"{NAME}.Manager", "Refresh")
            return path not in self.jobs()

        wait_for(gone, SECONDS, f"{path} to go")


def array_file(name: str) -> Path:
    return Path(f"/sys/block/{Path(arrays()[0]).name}/md/{name}")


def scrubbed() -> int:
    """Sectors of each disk."""
    done = array_file("sync_completed").read_text().split()[0]
    return int(done) if done.isdigit() else 0


def test_scrub_of_a_stack(disks, tmp_path):
    """Begun, paused, found again by another larderd, resumed, cancelled; each time md and the note say the same."""
    larder(*words(disks))
    command.run("mdadm", "--wait", *arrays(), check=False)
    for name in ("sync_speed_min", "sync_speed_max"):
        array_file(name).write_text("500")
    of = f"{ROOT}/stack/{rows()['stack']['uuid'].replace('-', '_')}"
    # larderd looks at what udev has marked
    with udevd(), Bus(tmp_path).running() as bus:
        command.run("udevadm", "trigger", "--settle", "--subsystem-match=block")
        with bus.larderd():
            assert bus.objects()[of]["State"] == "running" and not bus.jobs()
            bus.call(of, f"{NAME}.Stack", "Scrub", "a{sv}", 0)
            job = bus.wait_job(Kind="scrub", Stack=of, State="running")
            wait_for(
                lambda: int(array_file("sync_completed").read_text().split()[0]) > 4000, SECONDS, "the scrub to come somewhere"
            )
            seen = bus.jobs()[job]
            assert seen["Unit"] == "bytes" and seen["Done"] + seen["Left"] == seen["Total"] > 0 and seen["CanPause"]
            bus.call(job, f"{NAME}.Job", "Pause")
            assert array_file("sync_action").read_text() == "idle\n"
            assert bus.wait_job(Kind="scrub", Stack=of, State="paused") == job
            at = bus.jobs()[job]["Done"]
            assert at >= 4000 * 512
        with bus.larderd():
            assert bus.jobs()[job]["State"] == "paused" and bus.jobs()[job]["Done"] == at
            bus.call(job, f"{NAME}.Job", "Resume")
            assert bus.wait_job(Kind="scrub", Stack=of, State="running") == job
            assert array_file("sync_action").read_text() == "check\n"
            wait_for(lambda: bus.jobs()[job]["Done"] >= at, SECONDS, "the scrub to go on where it was")
            bus.call(job, f"{NAME}.Job", "Cancel")
            bus.wait_gone(job)
            assert array_file("sync_action").read_text() == "idle\n"
            # and nothing is left that the next one would go on with
            assert "goes on" not in larder("scrub", "data").stdout
            wait_for(lambda: scrubbed() > 4000, SECONDS, "the next scrub to come somewhere")
            larder("scrub", "data", "--stop")
            job = bus.wait_job(Kind="scrub", Stack=of, State="paused")
            bus.call(job, f"{NAME}.Job", "Cancel")
            bus.wait_gone(job)
            # what is lost is named, or the command refuses, in its words
            run = bus.call(of, f"{NAME}.Stack", "Remove", "s", "11111111-2222-4333-8444-555555555555", check=False)
            assert run.returncode and rows()["stack"]["uuid"] in run.stderr
    remove()
