# SPDX-License-Identifier: GPL-2.0-or-later
"""The bench itself, without a VM: what is chosen, what is judged, what is refused.  `make bench` measures."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "bench"))

import boot  # noqa: F401 (the search path)
import cases
import chart
import limits
import report
import targets
from results import Row, Store

BENCH = Path(__file__).resolve().parent / "bench"


def script(name: str):
    loader = importlib.machinery.SourceFileLoader(f"bench_{name}", str(BENCH / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def raw(number: int, milliseconds: int, **more: object) -> dict:
    side = {"io_bytes": number * 4096, "total_ios": number, "runtime": milliseconds, "lat_ns": {"mean": 1000.0, "max": 9000}}
    counters = {
        "wbytes": number * 8192,
        "rbytes": 0,
        "media_bytes": 0,
        "nonseq": 0,
        "reads": 0,
        "writes": 2,
        "flushes": 0,
        "fua": 0,
    }
    settled = {"ssd": counters, "hdd": counters}
    return {"fio": {"write": side}, "now": settled, "settled": settled, "scale": 4, "commit": "c", "setup": False} | more


def rows(**iops: int) -> dict:
    """nvme, rw-qd1: so many I/Os in one second of the VM."""
    return {("nvme", p, "rw-qd1"): Row("nvme", p, "rw-qd1", raw(n, 1000)) for p, n in iops.items()}


def test_figures_are_those_of_the_model_not_of_the_stretched_clock():
    row = rows(larder=10000)["nvme", "larder", "rw-qd1"]
    assert row.iops() == 40000
    assert row.latency_us("mean") == 0.25
    assert row.bytes_per_byte("ssd", "wbytes") == 2


@pytest.mark.parametrize(("iops", "met"), [(10324, False), (10325, True)])
def test_a_row_below_its_target_is_short(iops, met):
    """41,300 IOPS are 10,325 a second of the VM."""
    found = [
        v
        for v in targets.judge(rows(larder=iops, bcache=9000, writecache=9500), ("bcache", "writecache"), "6.1.0-56")
        if v.target.metric == "iops"
    ]
    assert [v.met for v in found] == [met]
    assert found[0].best == ("writecache", 38000)


def test_on_another_kernel_the_cpus_rows_are_held_against_a_peer():
    short = {
        raw: [v.met for v in targets.judge(rows(larder=970, rawssd=raw), (), "6.12.1") if v.target.metric == "iops"]
        for raw in (1000, 1020)
    }
    assert short == {1000: [True], 1020: [False]}
    assert not [v for v in targets.judge(rows(larder=970), (), "6.12.1") if v.target.metric == "iops"]


def test_short_rows_are_marked():
    r = report.Report("6.1.0-56", rows(larder=10000, rawssd=11000))
    text = "\n".join(r.model("nvme"))
    assert "40,000 ✗" in text
    assert "44,000 ✗" not in text
    assert any("**short**" in line for line in r.against_targets())


def test_every_target_is_of_a_case_that_is_run():
    for t in targets.load():
        sets = cases.sets_of(t.model, "larder")
        assert any(t.case in cases.names(s, "", "larder") for s in sets), t
        assert t.metric in targets.UNITS, t


def test_a_part_brings_what_it_needs_and_no_more():
    basic = cases.SETS["basic"]
    hot, drain = basic.groups[0], next(g for g in basic.groups if g.name == "drain")
    assert [s.name for s in cases.chosen(hot, "^fsync$", "larder")] == ["prefill", "fsync"]
    assert [s.name for s in cases.chosen(drain, "^drain$", "larder")] == ["dirty", "drain"]
    assert cases.chosen(drain, "^fsync$", "larder") == []
    assert cases.chosen(drain, "", "rawssd") == []


def test_names_of_cases_are_unique_within_a_boot():
    for s in cases.SETS.values():
        for p in cases.PEERS:
            names = cases.names(s, "", p)
            assert len(names) == len(set(names)), (s.name, p)


def test_a_part_measured_again_replaces_its_row_only(tmp_path):
    store = Store(tmp_path)
    first = [{"case": "rw-qd1"} | raw(1, 1), {"case": "rw-qd2"} | raw(1, 1), {"case": "prefill"} | raw(1, 1, setup=True)]
    store.keep("k", "nvme", "larder", "basic", 4, "old", first)
    store.keep("k", "nvme", "larder", "basic", 4, "new", [{"case": "rw-qd1"} | raw(2, 1)])
    found = store.load("k")
    assert {c: r.raw["commit"] for (_, _, c), r in found.items()} == {"rw-qd1": "new", "rw-qd2": "old"}


def test_the_disk_alone_counts_behind_each_ssd(tmp_path):
    store = Store(tmp_path)
    store.keep("k", "sata", "rawhdd", "basic", 4, "c", [{"case": "cold-qd1"} | raw(7, 1)])
    store.keep("k", "nvme", "larder", "basic", 4, "c", [{"case": "cold-qd1"} | raw(9, 1)])
    assert store.load("k")["nvme", "rawhdd", "cold-qd1"].ios == 7


def test_report_keeps_what_was_written_by_hand(tmp_path):
    document = tmp_path / "benchmarks.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write([report.Report("6.1.0-56", rows(larder=1))], document, tmp_path / "charts")
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text and "4.00 ✗" in text


def test_first_touches_are_reads_of_what_nothing_had_touched():
    area = cases.Area(0, 1)  # 256 blocks
    steps = [cases.Case(n, "randread", area, 64, options=cases.SINGLE, seed=seed) for n, seed in (("a", 1), ("b", 2))]
    one, other = (limits.touches(s) for s in steps)
    assert [r for r, _ in one] == [True] * len(one) and len({b for _, b in one}) > 32

    def first(case: str, *before: cases.Case) -> int:
        return limits.first_touches(cases.Set("s", (cases.Group("g", "micro", (*before, *steps)),)), case, "larder")

    assert first("a") == len({b for _, b in one})
    assert first("b") == len({b for _, b in other} - {b for _, b in one}) > 0
    assert first("b", cases.Case("fill", "write", area, 16, bs="64k")) == 0


def test_limit_of_the_mixed_load_is_what_the_disk_takes_for_first_touches():
    disk = {"reads": 300, "media_ops": 300, "media_ns": 300 * 20_000_000, "busy_ns": 6_000_000_000}
    row = Row("nvme", "larder", "mixed", raw(1000, 6000) | {"now": {"hdd": disk}, "set": "basic"})
    # 100 of them, at 5 ms of the model's time each
    assert limits.line(row, 100) == ["nvme", "mixed", "larder", "667", "300", "100", "5.00", "100 %", "2,000"]


def test_what_flash_limits():
    """Twice as much programmed as was written, and idle for half of the time: four times as many at most."""
    ssd = {"media_ns": 10**9, "media_bytes": 8192 * 1000, "flushes": 3}
    raw = {"fio": {"write": {"total_ios": 1000, "runtime": 2000, "io_bytes": 4096 * 1000}}, "now": {"ssd": ssd}, "scale": 4}
    rows = {n: Row("sata", "larder", n, raw) for n in ("rw-qd32", "rw-qd2", "fsync")}
    rows["nvme"] = Row("nvme", "larder", "rw-qd2", raw)
    shown = limits.flash_lines(rows)
    assert shown[0] == ["sata", "rw-qd2", "larder", "2,000", "2.000", "3", "50 %", "8,000"]
    assert [line[1] for line in shown] == ["rw-qd2", "rw-qd32"]


def test_chart_shows_each_series():
    svg = chart.lines("t", "x", "y", {"larder": [(1, 10.0), (2, 1000.0)], "bcache": [(1, 5.0), (2, 6.0)]})
    assert svg.count("<polyline") == 2
    assert svg.endswith("</svg>\n")


def test_profile_counts_instructions_of_blocks(tmp_path):
    profile = script("profile")
    symbols = object.__new__(profile.Symbols)
    base = profile.KERNEL_SPACE
    symbols.addresses, symbols.names = [base, base + 0x100], [(profile.SUBMIT, "kernel"), ("larder_map", "larder")]
    listing = f"IN: a\n0x{base:x}:  90  nop\n\nIN: b\n0x{base + 0x100:x}:  90  nop\n0x{base + 0x101:x}:  c3  ret\n\n"

    def trace(address: int, flags: int = 0) -> str:
        return f"Trace 0: 0x7f00 [0000000000000000/{address:016x}/00000000/{flags:08x}] \n"

    io = trace(base) + trace(base + 0x100) * 3 + trace(base + 0x100, 0x1)
    stopped = trace(base + 0x100) + f"Stopped execution of TB chain before 0x7f00 [{base + 0x100:016x}] \n"
    (tmp_path / "log").write_text(listing + (io + stopped) * 20 + trace(base))
    found = profile.read(tmp_path / "log", symbols)
    assert found.ios == 20
    assert found.functions == {(profile.SUBMIT, "kernel"): 1, ("larder_map", "larder"): 7}


@pytest.mark.parametrize("given", [["--ssd", "", "--hdd", ""], ["--ssd", "/dev/null", "--hdd", "/dev/null"]])
def test_real_refuses_what_is_no_block_device(given):
    r = subprocess.run([BENCH / "real", *given], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert r.returncode == 2
    assert "no block device" in r.stderr or "root is needed" in r.stderr


class Fake:
    def __init__(self, path: str):
        self.path = path

    def __str__(self) -> str:
        return self.path

    def describe(self) -> str:
        return f"  {self.path}"


@pytest.mark.parametrize(
    ("said", "why"), [(None, "unless you say so"), ("b,a", "unless you say so"), ("a", "unless you say so"), ("a,b", "no terminal")]
)
def test_real_overwrites_nothing_without_both_names_and_a_terminal(monkeypatch, capsys, said, why):
    real = script("real")
    monkeypatch.delenv("OVERWRITE", raising=False)
    if said:
        monkeypatch.setenv("OVERWRITE", said)
    with open("/dev/null") as null:
        monkeypatch.setattr(sys, "stdin", null)
        with pytest.raises(real.RefusedError, match=why):
            real.confirm(Fake("a"), Fake("b"))
    shown = capsys.readouterr().err
    assert "OVERWRITES" in shown and "  a\n  b\n" in shown
