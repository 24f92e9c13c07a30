# SPDX-License-Identifier: GPL-2.0-or-later
"""`larder advise --from`: the curve of a trace against caches that are simulated; what traces may hold; table, curve, SVG, words.

Live traffic: tests/vm/guest/test_advise.py.  The estimator alone, with few blocks followed: tests/unit/test_hit_curve.c.
"""

import fcntl
import json
import os
import pty
import random
import re
import struct
import subprocess
import sys
import termios
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
sys.path.append(str(Path(__file__).resolve().parent / "vm/guest/lib"))
import lru
from harness import FAILED, MIB, NOT_FOUND, USAGE, one_line

pytest_plugins = ["larder_fixtures"]

FIELDS = "size,hit_percent,error_percent,overwrite_percent,past_percent,first_percent,knee,reads,writes,lost,seconds"
SVG = "{http://www.w3.org" + "/2000/svg}"


def ftrace(requests, step=0.001):
    """As trace_pipe has them."""
    return "".join(
        f"             fio-611     [001] .....   {100 + step * i:.6f}: block_bio_queue: {device} {op} {sector} + {sectors} [fio]\n"
        for i, (device, op, sector, sectors) in enumerate(requests)
    )


def blkparse(requests, step=0.001):
    """As it prints by default, with what becomes of a request later, and its summary."""
    rows = []
    for i, (device, op, sector, sectors) in enumerate(requests):
        for action, end in (("Q", "[fio]"), ("G", "[fio]"), ("C", "[0]")):
            rows.append(f"  {device}    1 {3 * i:8} {100 + step * i:14.9f}   611  {action}   {op} {sector} + {sectors} {end}\n")
    return "".join(rows) + "CPU1 (sdb):\n Reads Queued:          12,        1MiB\t Writes Queued:           0,        0KiB\n"


def load(seed, count, footprint, skew=3.0, longest=4):
    r = random.Random(seed)
    found = []
    for _ in range(count):
        block = int(footprint * r.random() ** skew) * 48271 % footprint
        found.append(("8,16", "R" if r.random() < 0.7 else "W", 8 * block, 8 * r.randrange(1, longest)))
    return found


@pytest.fixture
def advise(larder):
    """The rows of a trace, as numbers; sizes in bytes."""

    def run(text, *options, fields=FIELDS):
        path = larder.directory / "trace"
        path.write_text(text)
        done = larder("advise", "--from", path, "--reportformat", "json", "--units", "b", "--nosuffix", "-o", fields, *options)
        run.said = done.stderr
        return [{k: float(v) if v else None for k, v in row.items()} for row in json.loads(done.stdout)["advise"]]

    return run


def compare(rows, requests, most=0.051):
    for row in rows:
        reads, writes = lru.served(requests, int(row["size"]) // 4096)
        allowed = most + 4 * row["error_percent"]
        assert abs(row["hit_percent"] - reads) <= allowed, (row, reads)
        assert abs(row["overwrite_percent"] - writes) <= allowed, (row, writes)


@pytest.mark.parametrize("form", [ftrace, blkparse])
def test_small_enough_to_be_exact(advise, form):
    requests = load(1, 20000, 8000)
    rows = advise(form(requests))
    assert [r["size"] for r in rows] == [MIB << i for i in range(6)]
    assert all(r["error_percent"] == 0 and r["seconds"] == 19.999 for r in rows)
    compare(rows, requests)
    assert rows[0]["hit_percent"] < rows[2]["hit_percent"] < rows[4]["hit_percent"]
    assert rows[0]["reads"] + rows[0]["writes"] == len(requests)


def test_sampled(advise):
    requests = load(2, 200000, 200000, 2.0, 2)
    rows = advise(ftrace(requests), "-o", FIELDS + ",sampled_percent,working_set")
    assert 20 < rows[0]["sampled_percent"] < 80
    different = 4096 * len({r[2] for r in requests})
    assert abs(rows[0]["working_set"] / different - 1) < 0.03
    assert 0 < rows[-1]["error_percent"] < 2
    compare(rows, requests, 1.0)


def test_devices_share_the_cache(advise):
    """A request is of its device; and with numbers, of those devices only."""
    one = load(3, 3000, 2000)
    other = [("259,3", *r[1:]) for r in load(4, 3000, 2000)]
    both = [r for pair in zip(one, other, strict=True) for r in pair]
    compare(advise(ftrace(both)), both)
    compare(advise(ftrace(both), "259:3"), other)
    rows = advise(ftrace(both), "259:3", "8:16")
    compare(rows, both)


def test_sizes_of_ones_own(advise):
    requests = load(5, 10000, 3000)
    rows = advise(ftrace(requests), "--size", "1234K", "--size", "3MB")
    assert [r["size"] for r in rows] == sorted([*(MIB << i for i in range(len(rows) - 2)), 1234 << 10, 3000000])
    compare(rows, requests, 0.5)  # between buckets of the histogram


def test_streams_go_past_the_cache(advise):
    """16 MiB read twice in one piece each: all but the first 4 MiB is not filled; read in random order they are."""
    stream = [("8,16", "RA", s, 256) for s in range(0, 16 * 2048, 256)]
    (row, *_) = advise(ftrace(stream * 2), "--size", "64M")
    assert row["past_percent"] == 75 and row["hit_percent"] == 0
    assert advise(ftrace(stream * 2), "--size", "64M")[-1]["hit_percent"] == 12.5
    assert advise(ftrace(stream * 2), "--size", "64M", "--cutoff", "0")[-1]["hit_percent"] == 50
    shuffled = random.Random(6).sample(stream, len(stream))
    row = advise(ftrace(shuffled * 2), "--size", "64M")[-1]
    assert row["hit_percent"] == 50 and row["past_percent"] == 0


def test_discards(advise):
    blocks = [("8,16", "R", 8 * b, 8) for b in range(100)]
    discard = [("8,16", "D", 0, 8 * 50), ("8,16", "DS", 1 << 40, 0xFFFFFFFF)]
    (row, *_) = advise(ftrace(blocks + discard + blocks))
    assert row["hit_percent"] == 25 and row["reads"] == 200 and row["writes"] == 0 and row["overwrite_percent"] is None


def test_what_is_none_of_it(advise):
    """Other lines, and other events; flushes; a flush that comes with a write; lost events."""
    text = """# tracer: nop
#                                _-----=> irqs-off
  kworker/1:1H-97      [001] .....   102.330110: block_rq_issue: 8,16 R 4096 () 2048 + 8 [kworker/1:1H]
           fio-611     [001] .....   102.330214: block_bio_queue: 8,16 R 2048 + 8 [fio]
           fio-611     [001] .....   102.330215: block_bio_queue: 8,16 FF 0 + 0 [fio]
           fio-611     [001] .....   102.330216: block_bio_queue: 8,16 FWFS 2048 + 8 [fio]
           fio-611     [001] .....   102.330217: block_bio_queue: 8,16 N 2048 + 8 [fio]
CPU:1 [LOST 673 EVENTS]
CPU:0 [LOST EVENTS]
 a b:c [x] 7 [000]  102.330218: block:block_bio_queue: 8,16 RM 2048 + 1 [a b]
             fio-611   [001]   102.330218: block_bio_queue:      8,16 W 2048 + 8 [fio]
block_bio_queue-1      [000] d..1.  102.335219: block_bio_queue: 8,16 RM 2049 + 7 [block_bio_queue]
  8,16   3        0     0.000000000     0  m   N cfq611 slice expired
  8,16   3       11     0.009507758   697  Q  FN [fio]
"""
    (row, *_) = advise(text)
    assert (row["reads"], row["writes"], row["lost"]) == (3, 2, 674)
    assert row["hit_percent"] == 66.7 and row["overwrite_percent"] == 100
    assert "674 requests are missing" in advise.said
    assert row["seconds"] == 0.005


@pytest.mark.parametrize(
    "line",
    [
        "block_bio_queue: 8,16 R 2251799813685248 + 8 [x]",  # 1 EiB
        "block_bio_queue: 8,16 R 99999999999999999999999 + 8 [x]",
        "block_bio_queue: 8,16 R 8 + 8388608 [x]",  # 4 GiB
        "block_bio_queue: 8,16 D 8 + 4294967296 [x]",
        "block_bio_queue: 8,16 R -8 + 8 [x]",
        "block_bio_queue: 8,16 R 8 + 8x [x]",
        "block_bio_queue: 4096,16 R 8 + 8 [x]",
        "block_bio_queue: 8;16 R 8 + 8 [x]",
        "block_bio_queue: 8,16",
        "  8,16 1 1 0.5 611 Q R 2251799813685248 + 8 [x]",
    ],
)
def test_numbers_that_cannot_be(advise, line):
    (row, *_) = advise("block_bio_queue: 8,16 R 8 + 8 [x]\n" + line + "\n")
    assert row["reads"] == 1 and row["writes"] == 0
    assert "left out 1 requests" in advise.said


def test_any_bytes(larder):
    r = random.Random(7)
    text = ftrace(load(8, 500, 100)).encode()
    for _ in range(20):
        other = bytearray(text)
        for _ in range(200):
            at = r.randrange(len(other))
            other[at : at + r.randrange(3)] = r.choice([b"", b"\0", b"\xff", b"\n", b" ", b"9", bytes([r.randrange(256)])])
        path = larder.directory / "odd"
        path.write_bytes(bytes(other) + b"x" * 200000)
        larder("advise", "--from", path)


# ---------------------------------------------------------------------- what is shown


@pytest.fixture
def trace(larder):
    path = larder.directory / "trace"
    path.write_text(ftrace(load(9, 20000, 8000)))
    return path


def test_curve_and_words(larder, trace):
    out = larder("advise", "--from", trace).stdout
    assert max(map(len, out.split("\n\n")[1].splitlines())) <= 80
    curve = re.findall(r"^ *(?:\d+ %)? \|(.*)$", out, re.M)
    assert len(curve) == 21
    # from left to right it never falls
    heights = [min(y for y, row in enumerate(curve) if x < len(row) and row[x] == "*") for x in range(max(map(len, curve)))]
    assert heights == sorted(heights, reverse=True) and heights[0] > heights[-1]
    assert re.search(r"^ +1MiB +2MiB +4MiB +8MiB +16MiB +32MiB$", out, re.M)
    assert "20 s: " in out and "LRU" in out
    assert re.fullmatch(r"The knee: 32MiB give \S+ %, half of it \S+ %, twice as much \S+ %\.", out.splitlines()[-1]), out


def test_width_of_the_terminal(larder, program, trace):
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    done = subprocess.Popen([program, "advise", "--from", trace], stdout=terminal, env=larder.environment())
    os.close(terminal)
    out = b""
    try:
        while piece := os.read(controller, 65536):
            out += piece
    except OSError:
        pass
    assert done.wait() == 0
    axis = next(row for row in out.decode().splitlines() if row.lstrip().startswith("+-"))
    assert len(axis.rstrip()) == 118


def test_knee(advise, larder):
    """A loop: nothing serves it but what holds all of it."""
    blocks = random.Random(10).sample(range(3000), 3000)
    loop = [("8,16", "R", 16 * b, 8) for b in blocks] * 10
    rows = advise(ftrace(loop))
    assert [r["size"] for r in rows if r["knee"]] == [16 * MIB]
    assert [r["hit_percent"] for r in rows] == [0, 0, 0, 0, 90]
    assert rows[0]["first_percent"] == 10


def test_too_short_and_of_no_use(larder):
    path = larder.directory / "trace"
    path.write_text(ftrace(("8,16", "R", 16 * b, 8) for b in range(1000)))
    out = larder("advise", "--from", path).stdout
    assert "Too short: 100 % of reads" in out and "No knee: no size serves more than 0.0 %" in out
    path.write_text(ftrace(("8,16", "W", 16 * b, 8) for b in range(1000)))
    out = larder("advise", "--from", path).stdout
    assert "No read was seen" in out and "Too short" not in out


def test_table_alone(larder, trace):
    """For programs: JSON is nothing but JSON, and --noheadings nothing but rows."""
    report = json.loads(larder("advise", "--from", trace, "--reportformat", "json", "-o", "all").stdout)["advise"]
    assert len(report[0]) == 18
    rows = larder("advise", "--from", trace, "--noheadings", "-o", "size,knee").stdout.splitlines()
    assert len(rows) == len(report) and [r.split()[1] for r in rows].count("1") == 1
    assert "hit_percent" in larder("advise", "-o", "help").stdout


def test_standard_input(larder, trace):
    with open(trace) as stdin:
        rows = larder("advise", "--from", "-", "--noheadings", stdin=stdin).stdout
    assert rows == larder("advise", "--from", trace, "--noheadings").stdout


def points(element):
    return [tuple(map(float, p.split(","))) for p in element.get("points").split()]


def test_svg(larder, trace):
    odd = trace.with_name("a&b <c> \"d\" \x01\xe9")
    odd.write_text(trace.read_text() + "CPU:0 [LOST 5 EVENTS]\n")
    path = larder.directory / "curve.svg"
    larder("advise", "--from", odd, "--svg", path)
    root = ET.parse(path).getroot()
    assert root.tag == SVG + "svg"
    width, height = (float(root.get(k)) for k in ("width", "height"))
    assert "a&b <c>" in next(t.text for t in root.iter(SVG + "text"))
    lines = [points(p) for p in root.iter(SVG + "polyline")]
    assert len(lines) == 2
    for line in [*lines, *(points(p) for p in root.iter(SVG + "polygon"))]:
        assert all(0 <= x <= width and 0 <= y <= height for x, y in line)
    for line in lines:
        assert line == sorted(line, key=lambda p: p[0]) and [y for _, y in line] == sorted((y for _, y in line), reverse=True)


def test_svg_is_never_in_the_way(larder, trace):
    path = larder.directory / "there.svg"
    path.write_text("mine")
    one_line(larder("advise", "--from", trace, "--svg", path, code=FAILED), path, "name another")
    assert path.read_text() == "mine"
    new = larder.directory / "new.svg"
    one_line(larder("advise", "--from", larder.directory / "none", "--svg", new, code=NOT_FOUND), "none")
    assert not new.exists()
    one_line(larder("advise", "--from", trace, "--svg", larder.directory / "no" / "x.svg", code=FAILED), "no/x.svg")


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "words, parts",
    [
        ((), ("DEVICE is missing", "--from")),
        (("--from", "T", "--for", "1h"), ("--for", "to its end")),
        (("--for", "0s", "/dev/null"), ("--for", "0s", "30m")),
        (("--for", "1 hour", "/dev/null"), ("--for", "1 hour")),
        (("--for", "-1", "/dev/null"), ("--for",)),
        (("--for", "nan", "/dev/null"), ("--for",)),
        (("--for", "8d", "/dev/null"), ("--for", "7d")),
        (("--from", "T", "--size", "0"), ("--size", "'0'")),
        (("--from", "T", "--size", "big"), ("--size", "big")),
        (("--from", "T", "--cutoff", "x"), ("--cutoff", "x")),
        (("--from", "T", "/dev/sda"), ("/dev/sda", "8:16")),
        (("--from", "T", "8:16x"), ("8:16x",)),
        (("--from", "T", "8:"), ("8:",)),
        (("--from", "T", "-o", "nothing"), ("nothing", "-o help")),
        (("--from", "T", "--reportformat", "xml"), ("xml",)),
        (("--from", "T", *(f"8:{i}" for i in range(65))), ("64",)),
        (("T",), ("trace", "not a block device")),
    ],
)
def test_refused(larder, trace, words, parts):
    one_line(larder("advise", *(trace if w == "T" else w for w in words), code=USAGE), *parts)


def test_nothing_in_it(larder, trace):
    one_line(larder("advise", "--from", trace, "8:17", code=FAILED), trace, "no request to these devices")
    one_line(larder("advise", "--from", larder.directory / "none", code=NOT_FOUND), "none")
    one_line(larder("advise", "--from", larder.directory, code=FAILED), larder.directory)
    one_line(larder("advise", larder.directory / "none", code=NOT_FOUND), "none")
    trace.write_text("nothing\n")
    one_line(larder("advise", "--from", trace, code=FAILED), trace, "ftrace", "blkparse")
