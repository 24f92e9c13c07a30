# SPDX-License-Identifier: GPL-2.0-or-later
"""What a refusal must be: one line in the kernel log that says what is wrong, and no write to any disk."""

import re
from collections.abc import Callable
from pathlib import Path

from . import command, dm, simdisk
from .kernel_log import KernelLog

HEAD = 2048  # sectors: superblock and tables, or the superblocks of a volume
OURS = re.compile(r"^device-mapper: larder: ")
CORE = re.compile(r"^device-mapper: (table|core): ")
START = "the start failed"  # of a cache: follows the line that says why


def changes() -> dict[str, tuple]:
    """Commands so far that may have changed a simulated disk, by disk."""
    stats = {d.name: d.stats() for d in simdisk.all_disks()}
    return {name: (s["writes"], s["discards"], s["write_zeroes"]) for name, s in stats.items()}


def areas() -> dict[str, bytes]:
    """Superblocks and tables of every simulated disk, byte by byte."""
    return {d.name: d.read(0, min(HEAD, d.sectors)) + d.read(max(0, d.sectors - 8), min(8, d.sectors)) for d in simdisk.all_disks()}


def said(log: KernelLog) -> list[str]:
    """Lines of larder since the mark; if it said none, that of the dm core, which has the target's reason."""
    lines = log.lines()
    ours = [x for x in lines if OURS.match(x)]
    return ours or [x for x in lines if CORE.match(x) and "the line before" not in x]


def refused(log: KernelLog, attempt: Callable[[], object], *patterns: str) -> str:
    """The attempt fails, says so in one line that every pattern matches, and has changed nothing.  Returns the line."""
    before = changes()
    log.mark()
    try:
        attempt()
    except command.CommandError:
        pass
    else:
        raise AssertionError(f"it was not refused; expected {patterns}")
    lines = said(log)
    reasons = [x for x in lines if START not in x]
    assert len(reasons) == 1 and len(lines) <= 2, f"not one line: {lines}"
    for p in patterns:
        assert re.search(p, reasons[0]), f"{p!r} is not in: {reasons[0]}"
    after = changes()
    assert after == before, f"a refused request changed a disk (writes, discards, write-zeroes): {before} {after}"
    return reasons[0]


def module_users() -> int:
    """Tables that hold the module: 0 when it can be removed."""
    return int(Path("/sys/module/larder/refcnt").read_text())


def assert_unused() -> None:
    assert dm.names() == [], dm.names()
    assert module_users() == 0, "the module is held, and no dm device is there"
