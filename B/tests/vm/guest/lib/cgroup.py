# SPDX-License-Identifier: GPL-2.0-or-later
"""Cgroups (v2), on a hierarchy of the tests' own."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from . import command
from .block import BlockDevice

ROOT = Path("/run/larder-cgroup")


def possible(controller: str) -> bool:
    """Whether the kernel has it.  The hierarchy is mounted, for this test and those behind it."""
    if not ROOT.is_mount():
        ROOT.mkdir(exist_ok=True)
        command.run("mount", "-t", "cgroup2", "larder", ROOT)
    if controller not in (ROOT / "cgroup.controllers").read_text().split():
        return False
    (ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
    return True


class Throttled:
    """Processes that may write two bytes a second to a device: next to nothing."""

    def __init__(self, device: BlockDevice):
        self.path = ROOT / "throttled"
        self.path.mkdir()
        number = os.stat(device).st_rdev
        self.device = f"{os.major(number)}:{os.minor(number)}"
        (self.path / "io.max").write_text(f"{self.device} wbps=2")
        self.processes: list[subprocess.Popen] = []

    def start(self, *argv: object) -> subprocess.Popen:
        enter = 'echo 0 > "$0/cgroup.procs" && exec "$@"'
        process = subprocess.Popen(["sh", "-c", enter, *map(str, (self.path, *argv))], stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def end(self) -> None:
        """What has waited for the limit goes on."""
        (self.path / "io.max").write_text(f"{self.device} wbps=max")
        for process in self.processes:
            process.wait(60)
        self.path.rmdir()


@contextlib.contextmanager
def throttled(device: BlockDevice) -> Iterator[Throttled]:
    group = Throttled(device)
    try:
        yield group
    finally:
        group.end()
