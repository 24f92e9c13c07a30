# SPDX-License-Identifier: GPL-2.0-or-later
"""A file system on the peer: a tree is unpacked, and, after it was unmounted, scanned (find) and read (grep).  ext4."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import cases
from lib import command

MOUNT = Path("/mnt")


def _timed(work: Callable[[], None]) -> int:
    began = time.monotonic_ns()
    work()
    return time.monotonic_ns() - began


def _unpack(files: int) -> None:
    """Sizes as in a source tree: many small ones."""
    for i in range(files):
        directory = MOUNT / f"d{i // 100}"
        if i % 100 == 0:
            directory.mkdir()
        fd = os.open(directory / f"f{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, bytes([i % 251]) * (512 << i % 6))
        os.close(fd)
    os.sync()


def _scan() -> None:
    for root, _, names in os.walk(MOUNT):
        for name in names:
            os.lstat(os.path.join(root, name))


def _read() -> None:
    for root, _, names in os.walk(MOUNT):
        for name in names:
            fd = os.open(os.path.join(root, name), os.O_RDONLY)
            os.read(fd, 65536)
            os.close(fd)


def run(step: cases.Files, device: str) -> dict:
    """ns: of the part that the step is named after."""
    MOUNT.mkdir(exist_ok=True)
    if step.part == "unpack":
        extended = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        command.run("mkfs.ext4", "-q", "-F", "-E", extended, "-N", 2 * step.files, device, f"{step.mib}m")
    command.run("mount", "-t", "ext4", device, MOUNT)
    try:
        return {"ns": _timed({"unpack": lambda: _unpack(step.files), "scan": _scan, "read": _read}[step.part])}
    finally:
        command.run("umount", MOUNT)
        Path("/proc/sys/vm/drop_caches").write_text("3")
