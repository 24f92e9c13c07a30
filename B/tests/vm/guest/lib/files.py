# SPDX-License-Identifier: GPL-2.0-or-later
"""A file system on a volume, used until it is told to stop or the power fails; then what was fsynced must be there."""

import itertools
import os
import shutil
import threading
from pathlib import Path

from . import command
from .block import BlockDevice

MOUNTED = Path("/mnt")
FSCK = {"ext4": ("e2fsck", "-fn"), "xfs": ("xfs_repair", "-n")}


def mount_point(name: str) -> Path:
    """tmpfs has room for it, the host's file system is not written to."""
    point = Path("/run/larder-mnt") / name
    point.mkdir(parents=True, exist_ok=True)
    return point


class Files:
    """Small files, each written and fsynced; those of earlier ones are removed first."""

    def __init__(self, volume: BlockDevice, number: int, *, kind: str = "ext4", point: Path = MOUNTED):
        self.kind, self.point = kind, point
        self.directory = point / str(number)
        self.safe: dict[Path, bytes] = {}
        self.failed: OSError | None = None
        self.going = True
        command.run("mount", volume, point)
        for old in point.glob("[0-9]*"):
            shutil.rmtree(old)
        self.directory.mkdir()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self) -> None:
        try:
            for i in itertools.count():
                if not self.going:
                    return
                path, data = self.directory / str(i % 200), os.urandom(1000 + 997 * (i % 20))
                self.safe.pop(path, None)
                with open(path, "wb") as f:
                    f.write(data)
                    f.flush()
                    os.fsync(f.fileno())
                self.safe[path] = data
        except OSError as e:  # the power has failed
            self.failed = e

    def stop(self) -> None:
        self.going = False
        self.leave()
        if self.failed:
            raise self.failed

    def leave(self) -> None:
        """The power has failed, or stop()."""
        self.thread.join()
        command.run("umount", *(() if not self.going else ("-l",)), self.point, check=not self.going)

    def check(self, volume: BlockDevice) -> None:
        """By the journal what is there is whole."""
        command.run("mount", volume, self.point)
        for path, data in self.safe.items():
            assert path.read_bytes() == data, path
        command.run("umount", self.point)
        command.run(*FSCK[self.kind], volume)
