# SPDX-License-Identifier: GPL-2.0-or-later
"""Targets of larder (targets.json), and whether they are met."""

import dataclasses
import json
from pathlib import Path

from results import Row

FILE = Path(__file__).resolve().parent / "targets.json"
UNITS = {
    "iops": "IOPS",
    "mbs": "MB/s",
    "seconds": "s",
    "transactions": "transactions a second",
    "memory": "MiB of memory",
    "instructions": "instructions over the raw SSD",
    "ssd_bytes": "bytes to the SSD per byte",
    "flash_bytes": "bytes programmed per byte",
    "hdd_flushes": "flushes of the disk per 1,000",
    "nonseq": "writes out of order per 1,000",
    "p999_vs_hdd": "times p99.9 of the disk alone",
    "longest_vs_hdd": "times the longest of the disk alone",
    "iops_vs_hdd": "times IOPS of the disk alone",
}

Rows = dict[tuple[str, str, str], Row]


@dataclasses.dataclass(frozen=True)
class Target:
    model: str
    case: str
    metric: str
    value: float
    most: bool  # the value may not be exceeded; else: has to be reached
    why: str = ""
    times: tuple[str, float] | None = None  # of what peer, where that was measured

    @property
    def limit(self) -> str:
        return ("≤ " if self.most else "≥ ") + number(self.value)

    def met(self, value: float) -> bool:
        return value <= self.value if self.most else value >= self.value


def load() -> list[Target]:
    found = []
    for t in json.loads(FILE.read_text())["targets"]:
        for case in t["case"].split():
            most, times = "most" in t, t.get("times")
            value = t["most" if most else "least"]
            found.append(Target(t["model"], case, t["metric"], value, most, t.get("why", ""), tuple(times) if times else None))
    return found


def for_kernel(t: Target, kernel: str, rows: Rows) -> Target | None:
    """What the CPU limits is held against a peer; where that was not measured, against the figure, on the kernel that it is of."""
    if not t.times:
        return t
    peer, factor = t.times
    value = measure(rows, t.model, peer, t.case, t.metric)
    if value:
        return dataclasses.replace(t, value=value * factor, why=f"{factor:g} times {peer}")
    return t if kernel.startswith(json.loads(FILE.read_text())["kernel"] + ".") else None


def measure(rows: Rows, model: str, peer: str, case: str, metric: str) -> float | None:
    """The metric of a row, or None where it was not measured."""
    row = rows.get((model, peer, case))
    if not row or not row.measured:
        return None
    simple = {
        "iops": row.iops,
        "mbs": row.mbs,
        "seconds": row.seconds,
        "transactions": row.transactions,
        "memory": row.memory_mib,
        "ssd_bytes": lambda: row.bytes_per_byte("ssd", "wbytes"),
        "flash_bytes": lambda: row.bytes_per_byte("ssd", "media_bytes"),
        "hdd_flushes": lambda: row.per_1000("hdd", "flushes"),
        "nonseq": lambda: row.per_1000("ssd", "nonseq"),
    }
    if metric in simple:
        return simple[metric]()
    if metric == "instructions":
        raw = rows.get((model, "rawssd", case))
        return row.instructions() - raw.instructions() if raw and raw.measured else None
    hdd = rows.get((model, "rawhdd", case))
    if not hdd or not hdd.measured:
        return None
    if metric == "p999_vs_hdd":
        return row.latency_us("99.900000") / hdd.latency_us("99.900000")
    if metric == "longest_vs_hdd":
        return row.latency_us("max") / hdd.latency_us("max")
    if metric == "iops_vs_hdd":
        return row.iops() / hdd.iops()
    raise ValueError(f"targets.json: no metric {metric}")


def number(x: float) -> str:
    digits = 0 if abs(x) >= 100 else 1 if abs(x) >= 10 else 2
    return f"{x:,.{digits}f}"


@dataclasses.dataclass
class Verdict:
    target: Target
    value: float
    best: tuple[str, float] | None  # peer

    @property
    def met(self) -> bool:
        return self.target.met(self.value)


def judge(rows: Rows, peers: tuple[str, ...], kernel: str) -> list[Verdict]:
    """Of what larder was measured on."""
    verdicts = []
    for t in load():
        t = for_kernel(t, kernel, rows)
        value = measure(rows, t.model, "larder", t.case, t.metric) if t else None
        if value is None:
            continue
        others = {p: measure(rows, t.model, p, t.case, t.metric) for p in peers}
        others = {p: v for p, v in others.items() if v is not None}
        best = (min if t.most else max)(others.items(), key=lambda x: x[1], default=None)
        verdicts.append(Verdict(t, value, best))
    return verdicts
