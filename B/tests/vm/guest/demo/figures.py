# SPDX-License-Identifier: GPL-2.0-or-later
"""What is measured, and the table at the end.  Every number was read from fio, from a clock or from the status in this run."""

import dataclasses
import json
from pathlib import Path


@dataclasses.dataclass
class Writes:
    """From a report of fio."""

    number: int
    per_second: float
    mean_ms: float
    slow_ms: float  # 99 % took no longer

    @classmethod
    def read(cls, report: Path) -> "Writes":
        w = json.loads(report.read_text())["jobs"][0]["write"]
        return cls(w["total_ios"], w["iops"], w["clat_ns"]["mean"] / 1e6, w["clat_ns"]["percentile"]["99.000000"] / 1e6)

    def text(self) -> str:
        times = f"one took {self.mean_ms:.2f} ms, 99 % took at most {self.slow_ms:.2f} ms"
        return f"{self.number:,} writes, {self.per_second:,.0f} a second; {times}"


@dataclasses.dataclass
class Reads:
    """Of the tree."""

    seconds: float
    hits: int  # read requests that the SSD served whole
    misses: int  # all others

    def percent(self) -> float:
        return 100 * self.hits / max(1, self.hits + self.misses)

    def text(self) -> str:
        return f"{self.seconds:.1f} s; {self.hits + self.misses:,} read requests, {self.percent():.0f} % of them served by the SSD"


def reads_between(before: dict, after: dict, seconds: float) -> Reads:
    d = {k: after[k] - before[k] for k in ("read_hits", "read_misses", "read_mixed", "read_bypass")}
    return Reads(seconds, d["read_hits"], d["read_misses"] + d["read_mixed"] + d["read_bypass"])


class Table:
    """Rows of a label and two columns."""

    def __init__(self, left: str, right: str):
        self.rows = [("", left, right)]

    def row(self, label: str, left: str, right: str) -> None:
        self.rows.append((label, left, right))

    def text(self) -> str:
        widths = [max(len(r[i]) for r in self.rows) for i in range(3)]
        lines = [f"{r[0]:{widths[0]}}   {r[1]:>{widths[1]}}   {r[2]:>{widths[2]}}" for r in self.rows]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
