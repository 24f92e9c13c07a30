# SPDX-License-Identifier: GPL-2.0-or-later
"""ext4 on the peer: made, and mounted with an empty page cache for as long as a step takes."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lib import command

MOUNT = Path("/mnt")


def make(device: str, mib: int, inodes: int = 0) -> None:
    """inodes: at least, where the usual number would be too low."""
    extended = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    command.run("mkfs.ext4", "-q", "-F", "-E", extended, *(["-N", inodes] if inodes else []), device, f"{mib}m")


@contextlib.contextmanager
def mounted(device: str) -> Iterator[Path]:
    MOUNT.mkdir(exist_ok=True)
    command.run("mount", "-t", "ext4", device, MOUNT)
    try:
        yield MOUNT
    finally:
        command.run("umount", MOUNT)
        Path("/proc/sys/vm/drop_caches").write_text("3")


def timed(work: Callable[[], None]) -> int:
    """ns"""
    began = time.monotonic_ns()
    work()
    return time.monotonic_ns() - began
