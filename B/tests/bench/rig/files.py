# SPDX-License-Identifier: GPL-2.0-or-later
"""A tree of files on ext4: unpacked, and, after it was unmounted, scanned (find) and read (grep)."""

import os
from pathlib import Path

import cases
from mounted import make, mounted, timed


def _unpack(top: Path, files: int) -> None:
    """Sizes as in a source tree: many small ones."""
    for i in range(files):
        directory = top / f"d{i // 100}"
        if i % 100 == 0:
            directory.mkdir()
        fd = os.open(directory / f"f{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, bytes([i % 251]) * (512 << i % 6))
        os.close(fd)
    os.sync()


def _scan(top: Path) -> None:
    for root, _, names in os.walk(top):
        for name in names:
            os.lstat(os.path.join(root, name))


def _read(top: Path) -> None:
    for root, _, names in os.walk(top):
        for name in names:
            fd = os.open(os.path.join(root, name), os.O_RDONLY)
            os.read(fd, 65536)
            os.close(fd)


def run(step: cases.Files, device: str) -> dict:
    """ns: of the part that the step is named after."""
    if step.part == "unpack":
        make(device, step.mib, 2 * step.files)
    parts = {"unpack": lambda: _unpack(top, step.files), "scan": lambda: _scan(top), "read": lambda: _read(top)}
    with mounted(device) as top:
        return {"ns": timed(parts[step.part])}
