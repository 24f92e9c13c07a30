# SPDX-License-Identifier: GPL-2.0-or-later
"""Bios in the order in which they were handed to a disk, by the kernel's tracepoint block:block_bio_queue.

simdisk's trace has them as requests, behind the block layer, which merges them, and on some kernels sends those of one plug in the
opposite order."""

import dataclasses
import os
import re
from pathlib import Path

from .block import BlockDevice

ROOT = Path("/sys/kernel/tracing")
EVENT = ROOT / "events/block/block_bio_queue"
LINE = re.compile(r"block_bio_queue: \d+,\d+ (\w+) (\d+) \+ (\d+) ")


@dataclasses.dataclass
class Bio:
    flags: str  # as blktrace has them: W, R, D, F before (flush) or behind (FUA), S...
    sector: int
    sectors: int


class BioTrace:
    """with BioTrace(disk) as t: ...; t.writes()"""

    def __init__(self, disk: BlockDevice, kib: int = 16384):
        self.number = os.stat(disk.path).st_rdev
        self.kib = kib

    def __enter__(self) -> "BioTrace":
        (ROOT / "trace").write_text("")
        (ROOT / "buffer_size_kb").write_text(str(self.kib))
        dev = os.major(self.number) << 20 | os.minor(self.number)
        (EVENT / "filter").write_text(f"dev == {dev}")
        (EVENT / "enable").write_text("1")
        return self

    def __exit__(self, *_: object) -> None:
        (EVENT / "enable").write_text("0")
        (EVENT / "filter").write_text("0")
        (ROOT / "trace").write_text("")
        (ROOT / "buffer_size_kb").write_text("64")

    def writes(self) -> list[Bio]:
        (EVENT / "enable").write_text("0")
        text = (ROOT / "trace").read_text()
        entries = re.search(r"entries-in-buffer/entries-written: (\d+)/(\d+)", text)
        if not entries or entries[1] != entries[2]:
            raise OverflowError("bios lost: BioTrace(kib=...) is too small")
        bios = [Bio(m[1], int(m[2]), int(m[3])) for m in LINE.finditer(text)]
        return [b for b in bios if "W" in b.flags and b.sectors]
