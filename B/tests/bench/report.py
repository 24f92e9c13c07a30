# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables in Markdown and charts of what was measured on one kernel."""

import re
from collections.abc import Callable
from pathlib import Path

import cases
import chart
import limits
import targets
from results import Row
from targets import Rows, Verdict, number

BEGIN, END = "<!-- What follows is made by `make bench`. -->", "<!-- What `make bench` makes ends here. -->"
PLAIN = {
    "rawssd": "raw SSD",
    "rawhdd": "raw HDD",
    "linear": "dm-linear",
    "bcache": "bcache",
    "dmcache": "dm-cache",
    "writecache": "dm-writecache",
    "writeboost": "dm-writeboost",
    "larder": "**larder**",
    "one-disk": "one disk",
    "encrypted": "encrypted",
    "striped": "two striped",
    "replicated": "two replicated",
    "cached": "**SSD before one**",
    "all-of-it": "**all of it**",
}
MODELS = {
    "null": "SSD that answers at once",
    "sata": "old SATA SSD",
    "nvme": "NVMe SSD",
    "nvmeplp": "NVMe SSD with power-loss protection",
    "slow": "cheap, slow SSD",
    "worn": "SSD that is slower than the disk",
}
LATENCIES = (("mean", "mean"), ("50.000000", "median"), ("99.000000", "p99"), ("99.900000", "p99.9"), ("max", "longest"))
Cell = Callable[[Row], float | None]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in rows), ""]


def steps() -> dict[str, str]:
    """Case to its description, in the order of the sets."""
    found: dict[str, str] = {}
    for s in cases.SETS.values():
        for g in s.groups:
            for step in g.steps:
                if not step.setup:
                    found.setdefault(step.name, "")
                    found[step.name] = found[step.name] or step.what or step.name
    return found


def seconds(row: Row) -> float | None:
    """Where they are what a step is about."""
    return row.seconds() if not {"fio", "transactions", "bytes"} & row.raw.keys() else None


def line(r: Row) -> str:
    """What it came to."""
    if r.failed:
        return f"{r.case}: {r.failed}"
    if r.instructions():
        return f"{r.case}: {number(r.instructions())} instructions"
    for value, unit in ((r.transactions(), "transactions a second"), (r.memory_mib(), "MiB")):
        if value is not None:
            return f"{r.case}: {number(value)} {unit}"
    if "fio" not in r.raw:
        return f"{r.case}: {number(r.seconds())} s"
    words = [f"{name} {number(r.latency_us(key) or 0)}" for key, name in LATENCIES]
    return f"{r.case}: {number(r.iops())} IOPS, {number(r.mbs())} MB/s, µs: {', '.join(words)}"


class Report:
    def __init__(self, kernel: str, rows: Rows):
        self.kernel, self.rows = kernel, rows
        self.verdicts = targets.judge(rows, cases.PEERS[3:-1], kernel)
        self.short = {(v.target.model, v.target.case, v.target.metric) for v in self.verdicts if not v.met}

    def peers(self, model: str, known: tuple[str, ...] = cases.PEERS) -> list[str]:
        return [p for p in known if any(m == model and q == p for m, q, _ in self.rows)]

    def head(self) -> list[str]:
        commits: dict[str, int] = {}
        for (_, peer, _), row in self.rows.items():
            if peer == "larder":
                commits[row.raw["commit"]] = commits.get(row.raw["commit"], 0) + 1
        said = ", ".join(f"{c} ({n} rows)" if len(commits) > 1 else c for c, n in sorted(commits.items(), key=lambda x: -x[1]))
        return [f"Kernel {self.kernel}; larder at commit {said or 'none'}.", ""]

    def against_targets(self, only_short: bool = False) -> list[str]:
        shown = [v for v in self.verdicts if not (only_short and v.met)]
        missed = sum(not v.met for v in self.verdicts)
        lines = [f"{len(self.verdicts)} targets, {missed} missed.", ""]
        return lines + table(
            ["model", "case", "of", "larder", "target", "", "best peer", "why this target"], [self._verdict(v) for v in shown]
        )

    @staticmethod
    def _verdict(v: Verdict) -> list[str]:
        t = v.target
        best = f"{number(v.best[1])} ({PLAIN[v.best[0]]})" if v.best else ""
        return [t.model, t.case, targets.UNITS[t.metric], number(v.value), t.limit, "" if v.met else "**short**", best, t.why]

    def per_case(
        self, model: str, cell: Cell, metric: str = "", names: list[str] | None = None, known: tuple[str, ...] = cases.PEERS
    ) -> list[str]:
        """Rows that nobody has a figure for are left out."""
        peers = self.peers(model, known)
        rows = []
        for case, what in steps().items():
            if names and case not in names:
                continue
            values = [self._cell(model, p, case, cell, metric) for p in peers]
            if any(values):
                rows.append([f"{what} (`{case}`)", *values])
        return table(["case", *(PLAIN[p] for p in peers)], rows) if rows else []

    def _cell(self, model: str, peer: str, case: str, cell: Cell, metric: str) -> str:
        row = self.rows.get((model, peer, case))
        if not row:
            return ""
        if row.failed:
            return "failed"
        value = cell(row) if row.measured else None
        if value is None:
            return ""
        mark = " ✗" if peer == "larder" and (model, case, metric) in self.short else ""
        return number(value) + mark

    def folded(self, title: str, lines: list[str]) -> list[str]:
        return ["<details>", f"<summary>{title}</summary>", "", *lines, "</details>", ""] if lines else []

    def model(self, model: str) -> list[str]:
        out = [f"### {MODELS[model][0].upper()}{MODELS[model][1:]} (`{model}`)", ""]
        if model == "null":
            out += ["Instructions per I/O, without those on the raw SSD (for that: all, fio's and the model's included).", ""]
            out += self.per_case(model, self._instructions, "instructions")
            scaling = self.per_case(model, self._scaling)
            return out + (
                ["I/Os per second as a multiple of one job's, on 4 CPUs; depends on the host:", "", *scaling] if scaling else []
            )
        out += ["I/Os per second:", "", *self.per_case(model, lambda r: r.iops() if "fio" in r.raw else None, "iops")]
        streams = [c for c in steps() if "1m" in c.lower() or "128k" in c]
        out += ["MB/s:", "", *self.per_case(model, lambda r: r.mbs() if "fio" in r.raw else None, "mbs", streams)]
        out += ["Seconds:", "", *self.per_case(model, seconds, "seconds")]
        for title, known, cell, metric in (
            ("Transactions a second", cases.PEERS, Row.transactions, "transactions"),
            ("MiB of memory", cases.PEERS, Row.memory_mib, "memory"),
            ("A small home server, MB/s", cases.SETUPS, lambda r: r.mbs() if "fio" in r.raw else None, ""),
        ):
            lines = self.per_case(model, cell, metric, known=known)
            out += [f"{title}:", "", *lines] if lines else []
        for key, name in LATENCIES:
            out += self.folded(f"{name} latency, µs", self.per_case(model, lambda r, k=key: r.latency_us(k)))
        for title, cell, metric in (
            ("bytes written to the SSD per byte written", lambda r: r.bytes_per_byte("ssd", "wbytes"), "ssd_bytes"),
            (
                "bytes programmed in the SSD's flash per byte written",
                lambda r: r.bytes_per_byte("ssd", "media_bytes"),
                "flash_bytes",
            ),
            ("bytes written to the disk per byte written", lambda r: r.bytes_per_byte("hdd", "wbytes"), ""),
            ("bytes read from the disk per byte read", lambda r: r.bytes_per_byte("hdd", "rbytes"), ""),
            ("commands to the SSD per 1,000 I/Os", lambda r: r.per_1000("ssd", "reads", "writes", "flushes"), ""),
            ("commands to the disk per 1,000 I/Os", lambda r: r.per_1000("hdd", "reads", "writes", "flushes"), ""),
            ("flushes of the SSD, and FUA writes, per 1,000 I/Os", lambda r: r.per_1000("ssd", "flushes", "fua"), ""),
            ("flushes of the disk per 1,000 I/Os", lambda r: r.per_1000("hdd", "flushes"), "hdd_flushes"),
            ("writes to the SSD that continue no other, per 1,000 I/Os", lambda r: r.per_1000("ssd", "nonseq"), "nonseq"),
        ):
            out += self.folded(title, self.per_case(model, cell, metric))
        return out

    def _instructions(self, row: Row) -> float | None:
        raw = self.rows.get((row.model, "rawssd", row.case))
        if row.peer == "rawssd" or not raw or not raw.measured:
            return row.instructions()
        return row.instructions() - raw.instructions()

    def _scaling(self, row: Row) -> float | None:
        one = self.rows.get((row.model, row.peer, re.sub(r"[0-9]+job$", "1job", row.case)))
        return row.iops() / one.iops() if row.raw.get("set") == "scaling" and one and one.measured else None

    def charts(self) -> dict[str, str]:
        """File name to SVG."""
        made = {}
        for model in cases.MODELS[1:]:
            depth = {p: self._by_depth(model, p) for p in self.peers(model)}
            depth = {p: s for p, s in depth.items() if len(s) > 1}
            if depth:
                title = f"Random writes of 4 KiB, {MODELS[model]}"
                made[f"writes-{model}.svg"] = chart.lines(title, "queue depth", "IOPS", depth, list(cases.DEPTHS))
            over = {p: self._over_time(model, p) for p in self.peers(model)}
            over = {p: s for p, s in over.items() if s}
            if over:
                title = f"Random writes for ten times the cache's size, {MODELS[model]}"
                made[f"sustained-{model}.svg"] = chart.lines(title, "seconds", "IOPS", over)
        return made

    def _by_depth(self, model: str, peer: str) -> chart.Points:
        rows = {d: self.rows.get((model, peer, f"rw-qd{d}")) for d in cases.DEPTHS}
        return [(d, r.iops()) for d, r in rows.items() if r and r.measured]

    def _over_time(self, model: str, peer: str) -> chart.Points:
        row = self.rows.get((model, peer, "sustained"))
        if not row or not row.measured:
            return []
        return [(ms / 1000 / row.scale, max(1.0, iops * row.scale)) for ms, iops in row.raw.get("log", [])]

    def limits(self) -> list[str]:
        mixed = (
            "Where everything that was touched once is cached, the disk is what a mixed load waits for: for each block that is "
            "read and was never touched before (*first touch*, by the addresses that fio chose in this case and those before it; "
            "sequential streams count as kept), in the time that the disk took for a command then."
        )
        flash = (
            "The flash of the old SATA SSD takes what it takes: busy all the time, with nothing but the user's bytes and each of "
            "them once (*IOPS at most*), it has no room for commit blocks, nor for the flushes before which a segment is opened. "
            "At depth 1 the time of a command is in the way before."
        )
        out = []
        for what, said, head, shown in (
            ("the mixed load", mixed, limits.HEAD, limits.lines(self.rows)),
            ("writes to the old SATA SSD", flash, limits.FLASH_HEAD, limits.flash_lines(self.rows)),
        ):
            if shown:
                out += [f"### What limits {what}", "", said, "", *table(head, shown)]
        return out

    def text(self, charts: Path) -> str:
        out = [*self.head(), *self.against_targets(), *self.limits()]
        made = self.charts()
        for model in cases.MODELS:
            if not self.peers(model):
                continue
            out += self.model(model)
            out += [f"![{n}]({charts.name}/{n})\n" for n in made if n.endswith(f"-{model}.svg")]
        return "\n".join(out)


def replace(document: Path, begin: str, end: str, made: str) -> None:
    before, rest = document.read_text().split(begin, 1)
    after = rest.split(end, 1)[1]
    document.write_text(f"{before}{begin}\n\n{made}\n{end}{after}")


def write(reports: list[Report], document: Path, charts: Path) -> None:
    """Replaces the generated part of the document, and the charts (of the first report)."""
    replace(document, BEGIN, END, "\n".join(r.text(charts) for r in reports))
    charts.mkdir(exist_ok=True)
    for name, svg in reports[0].charts().items():
        (charts / name).write_text(svg)
