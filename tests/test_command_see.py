# SPDX-License-Identifier: GPL-2.0-or-later
"""What shows the running state: `larder metrics`, `monitor`, `top`, `events`.

The status comes from a file (LARDER_STATUS), made of the keys that docs/interface.md lists, so that no kernel module is needed.
"""

import contextlib
import email
import fcntl
import json
import os
import pty
import re
import resource
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from pathlib import Path

import pyte
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import harness
from harness import FAILED, NOT_FOUND, TOP, USAGE, VOLUME, one_line
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
from smart import Smartctl, ata
from status_lines import CACHE_UUID, VOLUME_UUID, Fed, keys, line, options

pytest_plugins = ["larder_fixtures"]

OTHERS = "root: 0 4194304 linear \nswap: 0 100 crypt \nlonely: 0 8 larder-cached x=1\n"
PARSERS = {
    "openmetrics": openmetrics.text_string_to_metric_families,
    "prometheus": parser.text_string_to_metric_families,
}


@pytest.fixture
def running(larder):
    """Writes what runs; returns the environment for the command."""

    def write(*lines):
        path = larder.directory / "status"
        new = larder.directory / "status.new"
        new.write_text("".join(lines))
        new.rename(path)
        return {"LARDER_STATUS": str(path)}

    return write


def scrape(larder, env, form="openmetrics"):
    """Samples by name and labels; no sample twice."""
    samples = {}
    text = larder("metrics", "--format", form, env=env).stdout
    for family in PARSERS[form](text):
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def of(samples, name, **labels):
    """The samples of that name that have these labels, by the labels they have beside them."""
    return {
        tuple(pair for pair in key[1:] if pair not in labels.items()): value
        for key, value in samples.items()
        if key[0] == name and set(labels.items()) <= set(key[1:])
    }


UNITS = [("_sectors", "_bytes", 512), ("_us", "_seconds", 1e-6), ("_ms", "_seconds", 1e-3), ("_percent", "_ratio", 1e-2)]


def converted(key, value):
    """Name and value of the metric that a number of the status becomes."""
    if key == "writeback_rate":
        return "writeback_rate_bytes_per_second", value * 512
    if key.startswith("stream_"):
        return f"{key}_bytes_per_second", value * 1024
    for end, unit, factor in UNITS:
        if key.endswith(end):
            return key.removesuffix(end) + unit, pytest.approx(value * factor, rel=1e-12)
    return key, value


WORDS = {"uuid", "cache", "state", "mode", "trouble", "scrub", "resync", "ssds", "joining"}
WORDS |= {"class_reads", "class_writes", "class_read_sectors", "class_write_sectors"}


@pytest.mark.parametrize("form", PARSERS)
def test_every_number_of_the_status_is_a_metric(larder, running, form):
    numbers = {noun: {key: 1001 + 7 * i for i, key in enumerate(keys(noun)) if key not in WORDS} for noun in ("cache", "volume")}
    env = running(OTHERS, line("cache", "larder-cache-fast", **numbers["cache"]), line("volume", "data", **numbers["volume"]))
    samples = scrape(larder, env, form)
    for noun, labels in (("cache", {"cache": "fast"}), ("volume", {"volume": "data", "cache": "fast"})):
        assert len(numbers[noun]) > 40
        for key, value in numbers[noun].items():
            name, value = converted(key, value)
            found = [of(samples, f"larder_{noun}_{name}{end}", **labels) for end in ("", "_total")]
            assert {(): value} in found and {} in found, key
    assert of(samples, "larder_volume_size_bytes", volume="data") == {(("cache", "fast"),): 2048 * 512}


def test_words(larder, running):
    trouble = {"state": "cache-failed", "trouble": "writeback/superblock"}
    env = running(
        line(
            "cache",
            "larder-cache-fast",
            state="failed",
            ssds="active/failed/brand-new",
            joining=1,
            trouble="flush/single",
            resync="waiting",
            scrub="done",
        ),
        line("volume", "data", mode="writearound", class_reads="5/7", class_read_sectors="8/16", **trouble),
        line("volume", "bare", cache="-", state="passthrough", mode="passthrough"),
    )
    samples = scrape(larder, env)

    def true(name, label, **labels):
        return {dict(key)[label] for key, value in of(samples, name, **labels).items() if value == 1}

    assert true("larder_cache_state", "state") == {"failed"}
    assert set(of(samples, "larder_cache_state", cache="fast")) == {(("state", s),) for s in ("running", "suspended", "failed")}
    assert [true("larder_cache_ssd_state", "state", ssd=str(i)) for i in range(3)] == [{"active"}, {"failed"}, {"brand-new"}]
    assert true("larder_cache_trouble", "trouble") == {"flush", "single"}
    assert true("larder_cache_resync", "resync") == {"waiting"}
    assert true("larder_cache_scrub", "scrub") == {"done"}
    assert of(samples, "larder_cache_joining", cache="fast") == {(): 1}
    assert true("larder_volume_trouble", "trouble", volume="data") == {"writeback", "superblock"}
    assert true("larder_volume_trouble", "trouble", volume="bare") == set()
    assert true("larder_volume_mode", "mode", volume="data") == {"writearound"}
    assert true("larder_volume_state", "state", volume="bare", cache="") == {"passthrough"}
    rules = of(samples, "larder_volume_class_reads_total", volume="data", cache="fast")
    assert rules == {(("rule", "0"),): 5, (("rule", "none"),): 7}
    sectors = of(samples, "larder_volume_class_read_bytes_total", volume="data", cache="fast")
    assert sectors == {(("rule", "0"),): 4096, (("rule", "none"),): 8192}
    assert of(samples, "larder_volume_class_reads_total", volume="bare") == {}
    problems = {dict(key)["volume"]: value for key, value in of(samples, "larder_volume_problems").items()}
    assert problems == {"data": 3, "bare": 0}


def test_info(larder, running):
    samples = scrape(larder, running(line("cache", "larder-cache-fast", gather=17), line("volume", "data", fill="off")))
    assert of(samples, "larder_cache_info", cache="fast") == {(("uuid", str(CACHE_UUID)),): 1}
    ((labels, value),) = of(samples, "larder_volume_info", volume="data", cache="fast").items()
    assert dict(labels) == {"uuid": str(VOLUME_UUID), "cache_uuid": str(CACHE_UUID)} and value == 1
    for noun, key, value in (("cache", "gather", "17"), ("volume", "fill", "off")):
        ((labels, one),) = of(samples, f"larder_{noun}_options_info").items()
        shown = dict(labels)
        assert one == 1 and shown[key] == value
        assert set(options(noun)) <= set(shown), set(options(noun)) - set(shown)


def test_names_that_collide_or_confuse(larder, running):
    """Names for dm may be anything without a slash; no two series are the same."""
    lines = [line("cache", name, uuid=str(CACHE_UUID)) for name in ("fast", "larder-cache-fast", "larder-cache-other")]
    lines += [line("volume", name) for name in ('a"b', "a\\b", "a: b", "grün", "a{b}=,c")]
    samples = scrape(larder, running(*lines))
    assert {dict(key)["cache"] for key in of(samples, "larder_cache_devices")} == {"fast", "larder-cache-fast", "other"}
    assert {dict(key)["volume"] for key in of(samples, "larder_volume_extents")} == {'a"b', "a\\b", "a: b", "grün", "a{b}=,c"}


WRONG_NUMBERS = ["", "-1", "x", "1x", "0x10", "1.5", "99999999999999999999", str(1 << 60)]


@pytest.mark.parametrize("value", WRONG_NUMBERS)
def test_wrong_numbers_are_left_out(larder, running, value):
    samples = scrape(larder, running(line("volume", "data", dirty_sectors=value, extents=5)))
    assert of(samples, "larder_volume_dirty_bytes") == {}
    assert list(of(samples, "larder_volume_extents", volume="data").values()) == [5]


def test_keys_of_an_older_and_a_newer_kernel(larder, running):
    samples = scrape(larder, running(line("cache", "c", commits=None, brand_new=5)))
    assert of(samples, "larder_cache_commits_total") == {} and not any("brand_new" in key[0] for key in samples)


def test_nothing_runs(larder, running):
    assert larder("metrics", env=running(OTHERS)).stdout == "# EOF\n"
    assert larder("metrics", "--format", "prometheus", env=running("No devices found\n")).stdout == ""


def test_the_file_is_replaced(larder, running):
    path = larder.directory / "larder.prom"
    env = running(line("volume", "data", extents=1))
    old = os.umask(0o027)
    try:
        larder("metrics", "--output", path, env=env)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with open(path) as before:
        env = running(line("volume", "data", extents=2))
        assert larder("metrics", "--output", path, env=env).stdout == ""
        assert 'larder_volume_extents{volume="data",cache=""} 1\n' in before.read(), "who had it open reads on in the old one"
    assert path.read_text() == larder("metrics", env=env).stdout
    assert [p.name for p in larder.directory.glob("larder.prom*")] == ["larder.prom"]


def test_the_file_cannot_be_written(larder, running):
    env = running(line("volume", "data"))
    one_line(larder("metrics", "--output", larder.directory / "none" / "x.prom", env=env, code=FAILED), "none/x.prom", "--output")
    directory = larder.directory / "taken"
    directory.mkdir()
    one_line(larder("metrics", "--output", directory, env=env, code=USAGE), directory, "--output")
    assert not list(larder.directory.glob("taken.*")), "nothing is left behind"
    one_line(larder("metrics", "--output", "/dev/full/x", env=env, code=FAILED), "/dev/full/x")


def test_only_files_are_replaced(larder, running):
    """/dev/null is none."""
    env = running(line("volume", "data", extents=1))
    fifo, link, nowhere, to_file = (larder.directory / name for name in ("fifo", "link", "nowhere", "to-file"))
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    nowhere.symlink_to(larder.directory / "none")
    for path in (fifo, link, nowhere):
        before = path.lstat()
        one_line(larder("metrics", "--output", path, env=env, code=USAGE), path, "no regular file", "--output")
        assert path.lstat().st_ino == before.st_ino
    real = larder.directory / "real.prom"
    real.write_text("old")
    to_file.symlink_to(real)
    larder("metrics", "--output", to_file, env=env)
    assert to_file.is_symlink() and real.read_text() == larder("metrics", env=env).stdout


def test_usage_of_metrics(larder, running):
    one_line(larder("metrics", "--format", "xml", env=running(), code=USAGE), "--format", "xml")
    one_line(larder("metrics", "data", env=running(), code=USAGE), "too many words")
    one_line(larder("metrics", env={"LARDER_STATUS": "/nowhere/status"}, code=NOT_FOUND), "/nowhere/status", "LARDER_STATUS")
    one_line(larder("metrics", env={"LARDER_STATUS": "/"}, code=FAILED), "LARDER_STATUS")


def test_documented_metrics(larder):
    """docs/metrics.md has exactly the rows that follow from `larder metrics --list`."""
    rows = ["| `{}` | {} | {} | {} |".format(*row.split(None, 3)) for row in larder("metrics", "--list").stdout.splitlines()]
    table = (TOP / "docs" / "metrics.md").read_text().split("\n## All metrics\n", 1)[1]
    assert re.findall(r"^\| `.*", table, re.M) == rows


@pytest.mark.parametrize("noun", ["cache", "volume"])
def test_every_status_field_has_a_metric(larder, running, noun):
    """Of the fields that `cache status` and `volume status` know: a new one without a metric is found here."""
    fields = [row.split()[0] for row in larder(noun, "status", "-o", "help").stdout.splitlines()]
    fields = fields[fields.index("uuid") :]  # those before are not of the kernel
    assert set(keys(noun)) <= set(fields)
    text = larder("metrics", env=running(line(noun, "x", **dict.fromkeys(fields, 1)))).stdout
    names = set(re.findall(r"^(\w+?)(?:_total)?[{]", text, re.M))
    labels = set(re.findall(r'(\w+)="', text))
    for key in fields:
        known = {"cache": "cache_uuid" in labels, "ssds": "larder_cache_ssd_state" in names}.get(key, key in labels)
        assert known or f"larder_{noun}_{converted(key, 1)[0]}" in names, f"{noun}: {key} has no metric; add it to lib/metrics.c"


# ---------------------------------------------------------------------- status


def test_hit_ratio(larder, running):
    """Misses that bypass the cache are among the misses, pieces of mixed requests among hits and misses: each counts once."""
    counts = {"read_hits": 50, "read_zeroes": 10, "read_misses": 40, "read_bypass": 40, "read_mixed": 20}
    env = running(line("cache", "larder-cache-fast"), line("volume", "data", **counts))
    assert larder("volume", "status", "-o", "hit_percent,cache_name", "--noheadings", env=env).stdout.split() == ["60.0", "fast"]
    assert " 60.0 % hits\n" in larder("volume", "status", "data", env=env).stdout


def test_advice_on_a_status_from_elsewhere(larder, running):
    env = running(line("cache", "larder-cache-fast", errors_checksum=3), line("volume", "data", trouble="writeback"))
    assert re.search(r"wrong .*larder cache scrub", larder("cache", "status", "fast", env=env).stdout)
    assert re.search(r"wrong .*larder volume flush data", larder("volume", "status", env=env).stdout)


# What a status says, and all that the command says of it: each text of lib/advice.c with what mends it.  NAME: whose it is.
MIRRORED = {"devices": 2, "mirrored": 1, "mirror": "dirty", "segment_sectors": 16}
ADVICE = [
    ("cache", {"state": "suspended"}, ["its start failed: the kernel's log says why; dmsetup resume NAME$"]),
    (
        "cache",
        {"state": "failed", "dirty_sectors": 8},
        [
            "of a volume that is leaving writes and flushes wait for that, of one that is cache-failed they fail "
            ".larder volume status"
            ".. Check the SSD, stop the volumes, then larder cache stop NAME, larder cache start NAME; .*: larder rescue writeback$"
        ],
    ),
    (
        "cache",
        {"state": "failed"},
        ["its volumes go on without it. .*larder cache stop NAME, larder cache start NAME; .*: larder volume detach VOLUME$"],
    ),
    (
        "cache",
        {"devices": 3, "devices_failed": 1, "ssds": "active/failed/active"},
        [
            "^devices_failed: 1 of 3 SSDs failed.*active/failed/active.*larder cache replace NAME PLACE NEW-SSD, "
            "larder cache add NAME SSD if .*, or larder cache remove NAME PLACE"
        ],
    ),
    ("cache", {"roles_honoured": 0}, ["too few SSDs are left for a role.*larder cache add NAME SSD --role ROLE$"]),
    ("cache", {"trouble": "flush"}, ["the last flush of an SSD failed.*each tries again; check the SSD and its cables$"]),
    (
        "cache",
        {"trouble": "single", "single_sectors": 24, "resync": "running"},
        ["24 sectors. has one copy.*resync: running.*do not take another SSD away before that has ended$"],
    ),
    ("cache", {"trouble": "single", "resync": "waiting"}, ["resync: waiting.*no room.*when some is written back, or add an SSD$"]),
    ("cache", {"trouble": "single", "resync": "failed"}, ["resync: failed.*cannot be read.*write it anew or discard it$"]),
    (
        "cache",
        {"trouble": "flush/single", "resync": "running"},
        ["the last flush of an SSD failed", "an SSD has left: dirty data"],
    ),
    (
        "cache",
        {"lost_sectors": 40},
        ["^lost_sectors: 40 sectors .*commit=buffered.*copy what you need.*larder cache stop NAME gives it up$"],
    ),
    (
        "cache",
        {"scrub_unrepairable": 3, "errors_checksum": 4},
        ["^scrub_unrepairable: 3 damaged slots without a whole copy.*write them anew or discard"],
    ),
    (
        "cache",
        {"errors_checksum": 4},
        ["^errors_checksum: 4 times data of an SSD did not match its checksum; larder cache scrub NAME reads"],
    ),
    ("cache", {"errors_checksum": 4, "scrub": "done"}, []),
    ("cache", {"scrub": "failed"}, ["the last scrub could not read an SSD.*check it, then larder cache scrub NAME$"]),
    (
        "cache",
        {"errors_read": 5},
        [
            "^errors_read: 5 reads of an SSD have failed since .*, perhaps of one that was replaced since; check it .smartctl.; "
            "larder cache scrub NAME tells .*; behind larder cache stop NAME, larder cache start NAME it is counted anew$"
        ],
    ),
    (
        "cache",
        {"segment_sectors": 16, "dirty_sectors": 8000},
        ["half of the cache or more.*larder volume flush VOLUME;.*dmsetup message NAME 0 forget UUID-OF-VOLUME discard_dirty"],
    ),
    ("cache", {"segment_sectors": 16, "dirty_sectors": 7999}, []),
    # counted once, written as often as there are copies; on an SSD that is gone there is no room
    ("cache", MIRRORED | {"dirty_sectors": 4000}, ["half of the cache or more"]),
    ("cache", MIRRORED | {"dirty_sectors": 3999}, []),
    ("cache", MIRRORED | {"mirror": "all", "segments_lost": 400, "dirty_sectors": 2400}, ["half of the cache or more"]),
    ("cache", MIRRORED | {"mirror": "all", "segments_lost": 400, "dirty_sectors": 2399}, []),
    ("cache", MIRRORED | {"mirror": "dirty:3", "dirty_sectors": 3999}, []),
    ("cache", MIRRORED | {"mirror": "dirty:3", "devices": 3, "dirty_sectors": 2666}, ["half of the cache or more"]),
    ("cache", {"segment_sectors": 16, "segments_lost": 1000}, []),
    (
        "cache",
        {"read_avoided_percent": 50, "write_avoided_percent": 7},
        ["answers slowly: 50 % of the reads and 7 % of the writes.*larder cache set NAME congestion_read=0 congestion_write=0"],
    ),
    ("cache", {"write_avoided_percent": 50}, ["answers slowly: 0 % of the reads and 50 % of the writes"]),
    ("cache", {"read_avoided_percent": 49, "write_avoided_percent": 49}, []),
    (
        "volume",
        {"state": "passing"},
        [
            "it goes on without.*for another one: of a stack larder stop NAME, larder replace NAME cache SSD...; "
            "else larder volume detach NAME, larder volume attach NAME --cache OTHER$"
        ],
    ),
    (
        "volume",
        {"state": "leaving"},
        ["written to the disk .dirty_sectors.; writes wait for that.*then it goes on without, by itself$"],
    ),
    (
        "volume",
        {"state": "cache-failed"},
        ["writes and flushes fail; larder cache status .*; nothing is dirty.*larder volume detach NAME$"],
    ),
    (
        "volume",
        {"state": "cache-failed", "dirty_sectors": 8},
        ["writes and flushes fail, until.*; larder cache status says what mends it$"],
    ),
    (
        "volume",
        {"trouble": "writeback"},
        ["dirty data cannot be written.*the space of the pool below it; larder volume flush NAME tries"],
    ),
    ("volume", {"trouble": "flush"}, ["the last flush of the disk failed.*check the disk and its cables$"]),
    (
        "volume",
        {"trouble": "superblock"},
        ["the superblock of the disk cannot be written: it must name the SSDs that are left.*check"],
    ),
    ("volume", {"trouble": "full"}, ["the cache is full of dirty data.*take writes again, then larder volume flush NAME$"]),
    (
        "volume",
        {"trouble": "writeback/superblock/full"},
        ["dirty data cannot be written", "the superblock of the disk", "the cache is full of dirty data"],
    ),
    (
        "volume",
        {"errors_checksum": 6},
        [
            "^errors_checksum: 6 times data of it on the SSD did not match.*larder cache scrub, on its cache; "
            "behind larder volume stop NAME, larder volume start NAME it is counted anew$"
        ],
    ),
    (
        "volume",
        {"errors_read": 1, "errors_flush": 3},
        [
            "requests to the disk have failed .read 1, write 0, flush 3. since it was started, perhaps to one that was "
            "replaced since; check it .smartctl.; behind larder volume stop NAME, larder volume start NAME they are counted anew$"
        ],
    ),
]


def advised(larder, running, noun):
    """Of each row: the status, the texts that are to be there, what is said."""
    rows = [(f"it{i}", status, texts) for i, (kind, status, texts) in enumerate(ADVICE) if kind == noun]
    shown = larder(noun, "status", env=running(*(line(noun, name, **status) for name, status, _ in rows))).stdout
    about = dict(re.findall(r"^\w+ (it\d+)\b(.*?)(?=^\w|\Z)", shown, re.M | re.S))
    for name, status, texts in rows:
        _, _, wrong = about[name].partition("\n  wrong ")
        yield status, [t.replace("NAME", name) for t in texts], [row.strip() for row in wrong.splitlines()]


@pytest.mark.parametrize("noun", ["cache", "volume"])
def test_advice(larder, running, noun):
    """What is wrong, in words, with the command or the deed that mends it; and nothing else is said."""
    for status, texts, found in advised(larder, running, noun):
        assert len(found) == len(texts), (status, found)
        for text, row in zip(texts, found, strict=True):
            assert re.search(text, row), (status, row)


def test_each_advice_is_tried(larder, running):
    """A row above is about each text of lib/advice.c."""
    source = (TOP / "lib/advice.c").read_text()
    calls = re.findall(r'problem\(found, "(\w+)",\s*((?:"[^"]*"|PRIu64|\s)+)', source)
    assert len(calls) == source.count("problem(found,") > 20
    said = [row for noun in ("cache", "volume") for _, _, found in advised(larder, running, noun) for row in found]
    for field, literals in calls:
        text = "".join(re.findall(r'"([^"]*)"', literals)).replace("%%", "\0")
        parts = [part.replace("\0", "%") for part in re.split("%s|%", text)]
        form = ".*".join(map(re.escape, [f"{field}: {parts[0]}", *parts[1:]]))
        assert any(re.fullmatch(form, row) for row in said), form


# ---------------------------------------------------------------------- monitor

FAST = line("cache", "larder-cache-fast")


def fast(**values):
    return line("cache", "larder-cache-fast", **values)


def data(**values):
    return line("volume", "data", **values)


@pytest.fixture
def fed(larder):
    return Fed(larder.directory)


def monitored(larder, fed, looks, *words, code=0):
    """What `larder monitor` prints when its looks find these."""
    with larder.started(
        "monitor", "--interval", "0.1", "--count", len(looks) - 1, *words, env=fed.environment, code=code
    ) as process:
        for look in looks:
            fed.give(*look)
    return process.out


def reports(text):
    """The JSON documents, one behind another."""
    found, decoder = [], json.JSONDecoder()
    text = text.lstrip()
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document["monitor"])
        text = text[end:].lstrip()
    return found


JSON = ("--reportformat", "json", "-o", "all", "--units", "b", "--nosuffix")


def test_rates(larder, fed):
    reads = {"read_hits": 700, "read_zeroes": 50, "read_misses": 250, "read_mixed": 31, "read_bypass": 200}
    writes = {"write_cached": 1, "write_through": 20, "write_around": 300, "write_bypass": 4000, "write_zeroes": 50000}
    sizes = {"read_hit_sectors": 8000, "read_miss_sectors": 640, "write_cached_sectors": 88, "write_backing_sectors": 7}
    others = {"flushes": 17, "fill_sectors": 512, "writeback_sectors": 4096}
    start = {key: 1000 + i for i, key in enumerate(reads | writes | sizes | others)}
    end = {key: start[key] + more for key, more in (reads | writes | sizes | others).items()}
    cache = line("cache", "larder-cache-fast", waits_space=9, read_latency_us=77, write_latency_us=88)
    volume = line("volume", "data", cached_sectors=2000, dirty_sectors=30, mode="writethrough", trouble="flush", **end)
    looks = [(FAST, line("volume", "data", **start)), (cache, volume)]
    ((row,),) = reports(monitored(larder, fed, looks, *JSON))
    seconds = float(row["seconds"])
    assert seconds > 0

    def near(value):
        return pytest.approx(value, rel=1e-2, abs=1)

    assert float(row["reads"]) * seconds == near(1000)
    assert float(row["writes"]) * seconds == near(54321)
    assert float(row["flushes"]) * seconds == near(17)
    assert float(row["waits"]) * seconds == near(9)
    assert float(row["read_bytes"]) * seconds == near(8640 * 512)
    assert float(row["write_bytes"]) * seconds == near(95 * 512)
    assert float(row["fill_bytes"]) * seconds == near(512 * 512)
    assert float(row["writeback_bytes"]) * seconds == near(4096 * 512)
    exact = {"hit_percent": "75.0", "cached_bytes": str(2000 * 512), "dirty_bytes": str(30 * 512), "read_latency_us": "77"}
    exact |= {"write_latency_us": "88", "name": "data", "cache_name": "fast", "mode": "writethrough", "trouble": "flush"}
    assert {key: row[key] for key in exact} == exact


def test_intervals(larder, fed):
    """No reads: no ratio.  A counter that has begun anew.  A volume that comes, one that goes."""

    def look(hits, misses, *more):
        return FAST, line("volume", "data", read_hits=hits, read_misses=misses), *more

    new, gone = line("volume", "new"), line("volume", "gone")
    rows = reports(monitored(larder, fed, [look(100, 100), look(100, 100, new, gone), look(130, 110, new), look(1, 9, new)], *JSON))
    assert [[row["name"] for row in report] for report in rows] == [["data"], ["data", "new"], ["data", "new"]]
    assert [report[0]["hit_percent"] for report in rows] == ["", "75.0", "10.0"]
    assert [report[0]["reads"] == "0.0" for report in rows] == [True, False, False]


def test_made_anew_under_its_name(larder, fed):
    """Another volume of the same name, and one without a cache, have done nothing yet."""
    other = line("volume", "data", uuid=str(CACHE_UUID), read_hits=10)
    bare = line("volume", "data", cache="-", state="passthrough", mode="passthrough", uuid=str(CACHE_UUID), read_hits=10)
    rows = reports(monitored(larder, fed, [(FAST, line("volume", "data")), (FAST, other), (FAST, bare)], *JSON))
    assert rows[0] == [] and [row["read_latency_us"] for row in rows[1]] == [""]


def test_percents_sort_by_value(larder, running):
    """A decimal number, and none."""

    def names(noun, by, *lines):
        words = [noun, "status", "--reportformat", "json", "-o", "name", "--sort", by]
        rows = json.loads(larder(*words, env=running(*lines)).stdout)[f"{noun}s"]
        return [row["name"] for row in rows]

    reads = {"nine": (9, 91), "half": (50, 50), "all": (100, 0), "none": (0, 0)}
    volumes = [line("volume", name, uuid=uuid.uuid4(), read_hits=n[0], read_misses=n[1]) for name, n in reads.items()]
    assert names("volume", "-hit_percent", *volumes) == ["all", "half", "nine", "none"]
    dirty = {"a": 90, "b": 1000, "c": 200}
    caches = [line("cache", name, uuid=uuid.uuid4(), segment_sectors=1, dirty_sectors=number) for name, number in dirty.items()]
    assert names("cache", "dirty_percent", *caches) == ["a", "c", "b"]


def test_volumes_by_any_name(larder):
    """Of dm, of the superblock, a UUID, the disk; `top` takes the same."""
    hdd = larder.volume("films", 64 << 20)
    own = uuid.UUID(bytes=harness.field(hdd, VOLUME, "uuid"))
    for name in ("data", own, "films", hdd):
        (larder.directory / "fed").unlink(missing_ok=True)
        fed = Fed(larder.directory)
        words = ["monitor", "--interval", "0.1", "--count", "1", "-o", "name", "--noheadings", name]
        with larder.started(*words, env=fed.environment) as process:
            for _ in range(2):
                fed.give(line("volume", "data", uuid=own), line("volume", "other", uuid=uuid.uuid4()))
        assert process.out.split() == ["data"]


def test_monitor_is_a_report(larder, fed):
    def look(n):
        return FAST, line("volume", "a", read_hits=n), line("volume", "b", read_hits=3 * n), line("volume", "c", read_hits=2 * n)

    lines = monitored(larder, fed, [look(n) for n in range(1, 4)], "-o", "name,hit_percent", "--sort", "-reads").splitlines()
    assert [row.split() for row in lines] == [["Name", "Hit%"], *[[name, "100.0"] for name in "bca"] * 2]
    assert len({len(row) for row in lines[1:]}) == 1, "columns of several reports stand below each other"
    text = monitored(larder, fed, [look(1), look(2)], "--noheadings", "-o", "name", "c", "a")
    assert text.split() == ["a", "c"]


def test_headings_come_back(larder, fed):
    many = [line("volume", f"v{i:02}") for i in range(15)]
    out = monitored(larder, fed, [many] * 3 + [many[:14]] * 3, "-o", "name").split()
    shown = [15 + 15, 14 + 14, 14]  # below each heading: another number of volumes, and then more than 20 lines
    assert [i for i, word in enumerate(out) if word == "Name"] == [0, shown[0] + 1, shown[0] + shown[1] + 2]
    assert len(out) == sum(shown) + len(shown)


def test_usage_of_monitor(larder, running):
    env = running(FAST, line("volume", "data"))
    for option, value in [("--interval", v) for v in ("0", "0.05", "-1", "x", "1x", "nan", "inf", "1e9", "")] + [
        ("--count", v) for v in ("0", "-1", "x", "1.5", "", "99999999999999999999")
    ]:
        one_line(larder("monitor", option, value, env=env, code=USAGE), option, f"'{value}'" if value else "empty")
    one_line(larder("monitor", "-o", "wombat", env=env, code=USAGE), "wombat")
    one_line(larder("monitor", "fast", env=env, code=NOT_FOUND), "fast", "larder volume list")
    assert "writeback_bytes" in larder("monitor", "-o", "help", env=env).stdout
    with open("/dev/full", "w") as full:
        words = [larder.program, "monitor", "--interval", "0.1"]
        run = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, env=larder.environment(env), timeout=120)
    assert run.returncode == FAILED
    one_line(run, "output")


# ---------------------------------------------------------------------- top


class Terminal:
    """The command in a terminal of its own; what a person would see on it."""

    def __init__(self, larder, fed, *words, columns=132, lines=12, term="xterm"):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            for how in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.signal(how, signal.SIG_DFL)
            os.execve(larder.program, ["larder", *words], larder.environment(fed.environment | {"TERM": term}))
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self):
        """Some of what it writes; False at its end."""
        try:
            data = os.read(self.terminal, 65536)
        except OSError:  # EIO: nobody has the other side open
            data = b""
        self.stream.feed(data)
        return bool(data)

    def text(self):
        return [row.rstrip() for row in self.screen.display]

    def until(self, wanted):
        """Reads until the screen is as wanted; the test's own time limit is that of the suite."""
        while not wanted(self.text()):
            assert self.read(), "\n".join(self.text())

    def rows(self):
        """Words of the rows of volumes."""
        text = self.text()
        (start,) = [i for i, row in enumerate(text) if row.startswith("Name ")]
        return [row.split() for row in text[start + 1 : -1] if row]

    def key(self, key):
        os.write(self.terminal, key.encode())

    def end(self):
        while self.read():
            pass
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)


def names(terminal):
    return [row[0] for row in terminal.rows()]


def test_top(larder, fed):
    def look(n):
        a = line("volume", "a", read_hits=n, read_misses=3 * n, dirty_sectors=2048)
        b = line("volume", "b", write_cached=n, cached_sectors=4096, trouble="flush", state="cache-failed")
        return fast(read_latency_us=123, live_sectors=2048), a, b, line("volume", "c", read_hits=5 * n, cached_sectors=8192)

    terminal = Terminal(larder, fed, "top", "--interval", "86400")
    fed.give(*look(1000))
    terminal.until(lambda text: text[-1].startswith("q quit"))
    assert "cache fast: running, 1.00MiB cached" in terminal.text()[1] and "read 123 us" in terminal.text()[1]
    rows = terminal.rows()
    assert [row[0] for row in rows] == ["a", "b", "c"] and rows[0][1:3] == ["-", "-"], "no rates before the second look"
    assert rows[1][-2:] == ["cache-failed:", "flush"] and rows[0][-1] == "running"
    for key, order in (("c", "cba"), ("i", "abc"), ("n", "cba"), ("i", "abc"), ("d", "abc"), ("c", "cba")):
        terminal.key(key)
        terminal.until(lambda text, order=order: [row[0] for row in text[3:6]] == list(order))
    terminal.key("q")
    assert terminal.end() == 0


def test_top_goes_on(larder, fed):
    """Rates, sorted by them; another look by itself; a volume that has gone."""
    looks = [
        [line("volume", "a", read_hits=n, read_misses=3 * n), line("volume", "b", write_cached=n, read_hits=9 * n)]
        for n in (1000, 2000, 3000)
    ]
    # it draws nothing that it comes to behind the interval, as on a machine that is busy for a tenth of a second
    terminal = Terminal(larder, fed, "top", "--interval", "1", "--units", "b")
    fed.give(*looks[0])
    terminal.until(lambda text: text[-1].startswith("q quit"))
    terminal.key("r")
    fed.give(*looks[1])
    terminal.until(lambda text: [row[:2] for row in terminal.rows()] == [["b", "100.0"], ["a", "25.0"]])
    fed.give(looks[2][0], then="the same")
    terminal.until(lambda text: "volumes: 1" in text[0] and names(terminal) == ["a"])
    terminal.key("q")
    assert terminal.end() == 0


def test_top_on_small_screens(larder, fed):
    """More volumes than rows: arrows; and a screen that is too small for anything is no reason to crash."""
    many = [line("volume", f"v{i:02}", read_hits=1) for i in range(20)]
    terminal = Terminal(larder, fed, "top", "--interval", "86400", lines=8)
    fed.give(*many)
    terminal.until(lambda text: text[-1].startswith("q quit"))
    assert names(terminal) == [f"v{i:02}" for i in range(5)]
    terminal.key("\x1bOB")
    terminal.until(lambda text: text[2].startswith("v01"))
    terminal.key("\x1bOA")
    terminal.until(lambda text: text[2].startswith("v00"))
    terminal.key("q")
    assert terminal.end() == 0
    for columns, lines in ((1, 1), (5, 2), (20, 3)):
        fed = Fed(Path(tempfile.mkdtemp(dir=larder.directory)))
        terminal = Terminal(larder, fed, "top", "--interval", "86400", columns=columns, lines=lines)
        fed.give(FAST, *many)
        terminal.read()
        terminal.key("q")
        assert terminal.end() == 0


def left(terminal):
    """Exit status, how the terminal is then, and all that was written."""
    written = b""
    with contextlib.suppress(OSError):  # EIO: its end
        while data := os.read(terminal.terminal, 65536):
            written += data
    status = os.waitpid(terminal.pid, 0)[1]
    modes = termios.tcgetattr(terminal.terminal)[3]
    os.close(terminal.terminal)
    return os.waitstatus_to_exitcode(status), modes & termios.ICANON and modes & termios.ECHO, written


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_top_leaves_the_terminal_as_it_was(larder, fed, how):
    terminal = Terminal(larder, fed, "top", "--interval", "86400")
    fed.give(data())
    terminal.until(lambda text: text[-1].startswith("q quit"))
    assert not termios.tcgetattr(terminal.terminal)[3] & termios.ECHO
    os.kill(terminal.pid, how)
    code, good, _ = left(terminal)
    assert good and (code == -how or how not in (signal.SIGHUP, signal.SIGQUIT)), "curses ends the process for others"


def test_top_without_memory(larder, plain_program, fed):
    """Which ends it from anywhere."""
    terminal = Terminal(harness.Larder(plain_program, larder.directory), fed, "top", "--interval", "0.1")
    fed.give(data())
    terminal.until(lambda text: text[-1].startswith("q quit"))
    resource.prlimit(terminal.pid, resource.RLIMIT_AS, (4096, 4096))
    with contextlib.suppress(BrokenPipeError):
        fed.give(*(line("volume", f"v{i}") for i in range(3000)), then="the same")
    code, good, written = left(terminal)
    assert code == FAILED and good and b"out of memory" in written, written[-300:]


def test_top_needs_a_terminal(larder, fed, running):
    one_line(larder("top", env=running(data()), code=USAGE), "terminal", "larder monitor")
    terminal = Terminal(larder, fed, "top", term="no-such-terminal")
    fed.give(data())
    assert terminal.end() == USAGE
    assert any("TERM=no-such-terminal" in row for row in terminal.text())
    fed = Fed(Path(tempfile.mkdtemp(dir=larder.directory)))
    terminal = Terminal(larder, fed, "top", "nowhere")
    fed.give(data())
    assert terminal.end() == NOT_FOUND


# ---------------------------------------------------------------------- events


def happened(larder, fed, *looks, program=None):
    """The events that `larder events --follow` tells when its looks find these: (event, noun, name, text)."""
    words = ["events", "--follow", "--interval", "0.1"] + (["--exec", program] if program else [])
    with larder.started(*words, env=fed.environment, code=NOT_FOUND) as process:
        fed.give_all(*looks)
    told = [
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} (\S+) (cache|volume|disk) (.*?): (.*)", row)
        for row in process.out.splitlines()
    ]
    assert all(told), process.out
    return [event.groups() for event in told]


CHANGES = {
    "cache fails": (
        fast(),
        fast(state="failed"),
        [("state", "cache", "fast", r"failed, was running; .*larder cache start larder-cache-fast.*")],
    ),
    "reads fail": (
        fast(errors_read=3),
        fast(errors_read=10),
        [("errors", "cache", "fast", "7 reads, 0 writes and 0 flushes of its SSDs have failed; .*larder cache scrub .*")],
    ),
    "writes fail, and with that the SSD": (
        fast(devices=2, ssds="active/active"),
        fast(devices=2, ssds="active/failed", errors_write=2),
        [
            ("ssd", "cache", "fast", "SSD 1 is failed, was active.*"),
            ("errors", "cache", "fast", "0 reads, 2 writes and 0 flushes of its SSDs have failed"),
        ],
    ),
    "the disk fails": (
        data(dirty_sectors=8),
        data(dirty_sectors=0, errors_read=1),
        [("errors", "volume", "data", "1 reads, 0 writes and 0 flushes of its disk have failed; requests to the disk.*")],
    ),
    "a flush fails that had nothing to secure": (
        data(dirty_sectors=8),
        data(dirty_sectors=0, errors_flush=1),
        [("errors", "volume", "data", "0 reads, 0 writes and 1 flushes of its disk have failed; requests to the disk .*flush 1.*")],
    ),
    "one that had": (data(), data(trouble="flush", errors_flush=1), [("trouble", "volume", "data", "flush; the last flush.*")]),
    "and again": (data(trouble="flush", errors_flush=1), data(trouble="flush", errors_flush=9), []),
    "damage behind a scrub": (
        fast(scrub="done", errors_checksum=3),
        fast(scrub="done", errors_checksum=5),
        [("damage", "cache", "fast", "2 times more, behind the last scrub; larder cache scrub larder-cache-fast .*")],
    ),
    "damage that a scrub has seen to": (
        fast(scrub="running", errors_checksum=3),
        fast(scrub="done", errors_checksum=5),
        [("scrub", "cache", "fast", "done, was running.*"), ("damage", "cache", "fast", "2 times more")],
    ),
    "half of it is dirty": (
        fast(segment_sectors=16, dirty_sectors=7999),
        fast(segment_sectors=16, dirty_sectors=8000),
        [("wrong", "cache", "fast", "dirty_sectors: half of the cache or more.*larder volume flush VOLUME.*")],
    ),
    "too few for a role": (
        fast(),
        fast(roles_honoured=0),
        [("wrong", "cache", "fast", "roles_honoured: .*larder cache add larder-cache-fast SSD --role ROLE")],
    ),
    "slow": (
        fast(read_avoided_percent=7),
        fast(read_avoided_percent=60),
        [("wrong", "cache", "fast", "congestion: an SSD answers slowly: 60 % of the reads.*congestion_read=0.*")],
    ),
    "slow still": (fast(write_avoided_percent=60), fast(write_avoided_percent=80), []),
    "a scrub begins": (
        fast(scrub="done", errors_checksum=3),
        fast(scrub="running", errors_checksum=3),
        [("scrub", "cache", "fast", "running, was done: 0 errors.*")],
    ),
    "and runs again": (fast(state="failed"), fast(), [("state", "cache", "fast", "running, was failed")]),
    "SSD fails": (
        fast(devices=2, ssds="active/active"),
        fast(devices=2, ssds="active/failed", devices_failed=1),
        [("ssd", "cache", "fast", r"SSD 1 is failed, was active; 1 of 2 SSDs failed.*larder cache replace .*")],
    ),
    "SSD joins": (
        fast(devices=1, ssds="active"),
        fast(devices=1, ssds="active/joining"),
        [("ssd", "cache", "fast", "SSD 1 is joining, was not there")],
    ),
    "two SSDs change": (
        fast(ssds="draining/joining/active"),
        fast(ssds="removed/active/active"),
        [("ssd", "cache", "fast", "SSD 0 is removed, was draining"), ("ssd", "cache", "fast", "SSD 1 is active, was joining")],
    ),
    "flushes of an SSD": (
        fast(),
        fast(trouble="flush"),
        [("trouble", "cache", "fast", r"flush; the last flush of an SSD failed.*")],
    ),
    "scrub ends": (
        fast(scrub="running"),
        fast(scrub="done", scrub_errors=5, scrub_repaired=3, scrub_dropped=1, scrub_unrepairable=1),
        [("scrub", "cache", "fast", r"done, was running: 5 errors, 3 repaired, 1 dropped, 1 unrepairable; 1 damaged slots.*")],
    ),
    "trouble begins": (
        data(),
        data(trouble="writeback"),
        [("trouble", "volume", "data", r"writeback; dirty data cannot be written.*larder volume flush data.*")],
    ),
    "more trouble": (
        data(trouble="writeback"),
        data(trouble="writeback/superblock"),
        [
            (
                "trouble",
                "volume",
                "data",
                "superblock; the superblock of the disk.* check the disk",
            )
        ],
    ),
    "trouble is over": (data(trouble="writeback"), data(), [("recovered", "volume", "data", "writeback succeeds again")]),
    "another trouble": (
        data(trouble="flush"),
        data(trouble="writeback"),
        [("trouble", "volume", "data", "writeback; .*"), ("recovered", "volume", "data", "flush succeeds again")],
    ),
    "damage": (
        data(errors_checksum=2),
        data(errors_checksum=5),
        [("damage", "volume", "data", r"3 times more; 5 times data of it.*larder cache scrub.*")],
    ),
    "flush is done": (
        data(flushing=1, dirty_sectors=8),
        data(flushing=0),
        [("flushed", "volume", "data", "nothing is dirty any more")],
    ),
    "flush is given up": (
        data(flushing=1, dirty_sectors=9),
        data(flushing=0, dirty_sectors=8),
        [("flushed", "volume", "data", "given up, 8 sectors are dirty")],
    ),
    "cache is attached": (
        data(cache="-", state="passthrough", mode="passthrough"),
        data(),
        [("state", "volume", "data", "running, was passthrough"), ("mode", "volume", "data", "writeback, was passthrough")],
    ),
    "started": ("", data(), [("started", "volume", "data", "as /dev/mapper/data")]),
    "started in trouble": (
        "",
        fast(state="failed"),
        [("started", "cache", "fast", "as .*larder-cache-fast"), ("wrong", "cache", "fast", "state: an SSD refuses writes.*")],
    ),
    "stopped": (data(), "", [("stopped", "volume", "data", ".+")]),
    "another one of that name": (
        data(trouble="flush"),
        data(uuid=str(CACHE_UUID)),
        [("stopped", "volume", "data", ".+"), ("started", "volume", "data", ".+")],
    ),
    "counters alone": (
        fast(appends=1) + data(read_hits=1),
        fast(appends=9, dirty_sectors=5, read_avoided_percent=7) + data(read_hits=7),
        [],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change(larder, fed, running, name):
    before, after, expected = CHANGES[name]
    at_first = len(larder("events", "--disks", "0", env=running(before)).stdout.splitlines())
    told = happened(larder, fed, [before], [after])
    new = told[at_first:]
    assert len(new) == len(expected), told
    for event, (*words, text) in zip(new, expected, strict=True):
        assert list(event[:3]) == words and re.fullmatch(text, event[3]), event


def test_what_is_wrong_is_told_once(larder, fed):
    """At the beginning all of it, then only what is new; without --follow nothing more."""
    bad = [fast(trouble="flush"), data(trouble="writeback/flush")]
    told = happened(larder, fed, bad, bad, [bad[0], data(trouble="writeback")])
    assert [event[:3] for event in told] == [("wrong", "cache", "fast")] + [("wrong", "volume", "data")] * 2 + [
        ("recovered", "volume", "data")
    ]
    assert all(event[3].startswith("trouble: ") for event in told[:3])


def test_on_its_way(larder, fed):
    """A start, or a reload, shows itself as suspended for a moment: no alarm; one that stays so is one."""
    suspended = [fast(state="suspended")]
    assert [e[:3] for e in happened(larder, fed, [""], suspended, [fast()])] == [("started", "cache", "fast")]


def test_reload_on_its_way(larder, fed):
    suspended = [fast(state="suspended")]
    assert happened(larder, fed, [fast()], suspended, suspended, [fast()]) == []


def test_suspended_to_stay(larder, fed):
    told = happened(larder, fed, [fast()], *[[fast(state="suspended")]] * 22, [fast()])
    assert [e[:3] for e in told] == [("state", "cache", "fast")] * 2 and "dmsetup resume" in told[0][3]


def test_one_look(larder, running):
    assert larder("events", env=running(fast(), data())).stdout == ""
    text = larder("events", env=running(fast(state="suspended"), data())).stdout
    assert re.fullmatch(r"\S+ wrong cache fast: state: .*dmsetup resume larder-cache-fast\n", text)


@pytest.fixture
def program_told(larder):
    """A program that notes how it is called; and what it has noted."""
    script, notes = larder.directory / "told", larder.directory / "notes"
    script.write_text(
        "#!/usr/bin/python3\n"
        "import json, os, sys\n"
        "words = [sys.argv[1:], os.environ['LARDER_KIND'], os.environ['LARDER_DEVICE'], sys.stdin.read()]\n"
        f"with open({str(notes)!r}, 'a') as notes:\n"
        "    notes.write(json.dumps(words) + '\\n')\n"
        "sys.exit(sys.argv[1] == 'recovered')\n"
    )
    script.chmod(0o755)
    return script, lambda: [json.loads(row) for row in notes.read_text().splitlines()]


def test_program_is_run_for_each(larder, fed, program_told):
    script, notes = program_told
    told = happened(
        larder,
        fed,
        [fast(), data(trouble="flush")],
        [fast(state="failed", ssds="failed"), data(trouble="writeback")],
        [fast(state="failed", ssds="failed")],
        program=script,
    )
    assert len(told) == 6 and {event[0] for event in told} == {"wrong", "state", "ssd", "trouble", "recovered", "stopped"}
    device = {"fast": "/dev/mapper/larder-cache-fast", "data": "/dev/mapper/data"}
    assert notes() == [[[event, name, text], noun, device[name], ""] for event, noun, name, text in told]


def test_program_that_fails(larder, running):
    env = running(data(trouble="flush/writeback"))
    run = larder("events", "--exec", "false", env=env)
    assert len(run.stderr.splitlines()) == 2 and "false: it failed for the event wrong of volume data" in run.stderr
    assert len(run.stdout.splitlines()) == 2
    run = larder("events", "--exec", larder.directory / "none", env=env)
    assert run.stderr.count("none: it cannot be run; --exec names it") == 2


@pytest.fixture
def disks(larder):
    """A cache on an SSD and a volume on a disk, as sysfs has them, and a smartctl that says of both that they are well."""
    root = larder.directory / "root"
    for name, disk in (("larder-cache-fast", "sdy"), ("data", "sdz")):
        for directory in (f"sys/devices/{disk}", f"sys/dev/image/{name}/slaves"):
            (root / directory).mkdir(parents=True)
        (root / f"sys/dev/image/{name}/slaves/{disk}").symlink_to(root / f"sys/devices/{disk}")
    # a volume lies on its cache, too
    (root / "sys/dev/image/data/slaves/dm-0").symlink_to(root / "sys/dev/image/larder-cache-fast")
    smartctl = Smartctl(larder.directory / "bin")
    for disk in ("sdy", "sdz"):
        smartctl.says(disk, ata())
    larder.env = {"LARDER_ROOT": str(root), "PATH": f"{smartctl.directory}:{os.environ['PATH']}"}
    return smartctl


def test_disks_are_asked(larder, running, disks):
    env = running(fast(), data()) | larder.env
    assert larder("events", env=env).stdout == ""
    # each once, and an idle one is not woken up
    assert sorted(words.split("/dev/")[1] for words in disks.asked()) == ["sdy -n standby", "sdz -n standby"]
    disks.says("sdy", ata(statistic=100))
    disks.says("sdz", ata(pending=3, celsius=75))
    text = larder("events", env=env).stdout
    assert [row.split(" ", 1)[1].split(" has")[0].split(" cannot")[0] for row in text.splitlines()] == [
        "disk disk sdy: worn: sdy", "disk disk sdz: hot: sdz", "disk disk sdz: pending: sdz",
    ]  # fmt: skip
    assert "larder cache replace" in text.splitlines()[0]
    assert larder("events", "--disks", "0", env=env).stdout == "" and len(disks.asked()) == 4


@contextlib.contextmanager
def follows_disks(larder, env, interval):
    """Asks them each tenth of a second."""
    words = [larder.program, "events", "--follow", "--interval", interval, "--disks", "0.1"]
    with subprocess.Popen(words, env=os.environ | env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_disks_that_change(larder, running, disks):
    """What is told is not told again though its numbers change; one that is asleep keeps what was known of it."""
    env = running(fast(), data()) | larder.env
    with follows_disks(larder, env, "0.1") as process:
        told = []

        def turn(number=2):
            """So many times the disks have been asked anew, and have answered: the next question comes behind the answers."""
            until = len(disks.asked()) + 2 * number + 2
            while len(disks.asked()) < until:
                assert process.poll() is None
                time.sleep(0.01)

        disks.says("sdy", ata(celsius=75))
        told.append(process.stdout.readline())
        disks.says("sdy", ata(celsius=76))
        turn()
        (disks.directory / "sdy.json").rename(disks.directory / "away")
        turn()
        disks.says("sdy", ata(passed=False))
        told += [process.stdout.readline(), process.stdout.readline()]
        running(fast())
        told.append(process.stdout.readline())
        turn()  # nobody asks the disk of what has gone any more
        disks.says("sdz", ata(passed=False))
        turn()
        disks.says("sdy", ata())
        told.append(process.stdout.readline())
    assert [re.sub(r"^\S+ |[;,].*|;.*| has.*", "", row.strip()) for row in told] == [
        "disk disk sdy: hot: sdy", "disk disk sdy: failing: sdy says itself that it fails", "recovered disk sdy: hot is over",
        "stopped volume data: it is not there any more", "recovered disk sdy: failing is over",
    ]  # fmt: skip


def test_another_disk_in_its_place(larder, running, disks):
    """By the name of one that went, and with the same thing wrong: told anew; not of one that came back, nor where nobody knows."""
    env = running(fast(), data()) | larder.env
    directory = larder.directory / "root/sys/devices/sdy"

    def becomes(sequence, wwid=""):
        for file, text in (("diskseq", f"{sequence}\n"), ("wwid", wwid)):
            (larder.directory / "new").write_text(text)
            (larder.directory / "new").rename(directory / file)

    def change():
        return re.sub(r"^\S+ |[;,] .*", "", process.stdout.readline().strip())

    disks.says("sdy", ata(passed=False))
    alarm, over = "disk disk sdy: failing: sdy says itself that it fails", "recovered disk sdy: failing is over"
    anew = [f"{over}: it is another disk now", alarm]
    with follows_disks(larder, env, "0.1") as process:
        assert change() == alarm
        becomes(9)
        asked = len(disks.asked()) + 6  # unknown before
        while len(disks.asked()) < asked:
            time.sleep(0.01)
        disks.says("sdy", ata())
        assert change() == over
        disks.says("sdy", ata(passed=False))
        assert change() == alarm
        becomes(10)
        assert [change(), change()] == anew
        becomes(10, "naa.1 with spaces")
        becomes(11, "naa.2")
        assert [change(), change()] == anew
        becomes(12, "naa.2")  # it was pulled, and is back
        asked = len(disks.asked()) + 6
        while len(disks.asked()) < asked:
            time.sleep(0.01)
        disks.says("sdy", ata())
        assert change() == over


def test_disk_that_does_not_answer(larder, running, disks):
    """It is told of, and does not keep the others from being asked, once or for ever."""
    env = running(fast(), data()) | larder.env | {"LARDER_DISK_SECONDS": "1"}
    disks.hangs("sdy")
    disks.says("sdz", ata(passed=False))
    text = larder("events", env=env).stdout
    told = [row.split(" ", 1)[1].split(": ")[:2] for row in text.splitlines()]
    assert told == [["disk disk sdy", "answer"], ["disk disk sdz", "failing"]]
    assert "sdy does not answer" in text
    with follows_disks(larder, env, "0.1") as process:
        told = [process.stdout.readline(), process.stdout.readline()]
        disks.says("sdz", ata())
        told.append(process.stdout.readline())
        disks.hangs("sdy", so=False)
        told.append(process.stdout.readline())
    assert [row.split(" ", 1)[1].split(";")[0].split(" says")[0].split(": it")[0].strip() for row in told] == [
        "disk disk sdy: answer: sdy does not answer", "disk disk sdz: failing: sdz",
        "recovered disk sdz: failing is over", "recovered disk sdy: answer is over",
    ]  # fmt: skip


def test_disk_below_which_smartctl_hangs(larder, running, disks):
    """In the kernel, where no signal ends it: there is only ever one, whoever waited has ended; and no reader waits for it."""
    env = running(fast(), data()) | larder.env | {"LARDER_DISK_SECONDS": "1"}
    disks.stays("sdy")
    text = larder("events", env=env).stdout
    assert [row.split(" ", 1)[1].split(": ")[:2] for row in text.splitlines()] == [["disk disk sdy", "answer"]]

    def asked(disk):
        return sum(f"/dev/{disk} " in words for words in disks.asked())

    with follows_disks(larder, env, "0.1") as process:
        assert "sdy does not answer" in process.stdout.readline()
        before, until = asked("sdy"), asked("sdz") + 10
        while asked("sdz") < until:
            assert process.poll() is None
            time.sleep(0.01)
        assert asked("sdy") == before == 2, "it is asked again beside the one that hangs"
        disks.stays("sdy", so=False)
        assert "recovered disk sdy: answer is over" in process.stdout.readline()


def test_disks_are_asked_between_two_looks(larder, running, disks):
    """--disks is held where --interval is longer."""
    env = running(fast(), data()) | larder.env
    with follows_disks(larder, env, "86400") as process:
        end = time.monotonic() + 60
        while len(disks.asked()) < 2 * 4:
            assert process.poll() is None and time.monotonic() < end, disks.asked()
            time.sleep(0.01)


@pytest.fixture
def sendmail(larder):
    """One that keeps what it gets."""
    directory, kept = larder.directory / "mail", larder.directory / "mails"
    directory.mkdir()
    program = directory / "sendmail"
    program.write_text(f'#!/bin/sh\n[ "$*" = "-t -i" ] || exit 1\n{{ cat; echo; echo ----; }} >>{kept}\n')
    program.chmod(0o755)

    def mails():
        texts = kept.read_text().split("----\n")[:-1] if kept.exists() else []
        kept.unlink(missing_ok=True)
        return [email.message_from_string(text) for text in texts]

    return {"PATH": f"{directory}:{os.environ['PATH']}", "INVOCATION_ID": ""}, mails


def with_alerts(larder, text):
    path = larder.directory / "larder.conf"
    path.write_text(text)
    return {"LARDER_CONF": str(path)}


def test_alerts(larder, fed, sendmail, program_told):
    """The program is told of all, and a mail is written of what is wrong; the file is read when something happens."""
    script, notes = program_told
    environment, mails = sendmail
    environment = environment | with_alerts(larder, "auto no nobody\nmail root@example.org # and nobody else\n")
    words = ["events", "--follow", "--alert", "--interval", "0.1", "--disks", "0"]
    failed = fast(ssds="failed", devices_failed=1)
    looks = [fast(), data(flushing=1)], [failed, data(flushing=0)], [data(flushing=0, trouble="flush")]
    with larder.started(*words, env=fed.environment | environment, code=NOT_FOUND) as process:
        fed.give(*looks[0])
        with_alerts(larder, f"mail admin+x@example.org\nprogram {script}\n")
        fed.give_all(*looks[1:])
    assert process.err.count("larder: ") == 1
    told = [row.split(" ", 1)[1] for row in process.out.splitlines()]
    assert [row.split()[0] for row in told] == ["ssd", "flushed", "stopped", "trouble"]
    assert [f"{event} {kind} {name}: {text}" for (event, name, text), kind, _, _ in notes()] == told
    first, second = mails()
    assert first["Subject"].startswith("larder: ssd cache fast on ") and first["Auto-Submitted"] == "auto-generated"
    assert "SSD 0 is failed, was active" in first.get_payload() and "larder cache replace" in first.get_payload()
    assert second["Subject"].startswith("larder: trouble volume data on ") and second["To"] == "admin+x@example.org"


def test_alert_of_a_spare(larder, fed, sendmail):
    """A mail for the SSD that fails, and one for what joins in its place; none where it has joined."""
    environment, mails = sendmail
    environment = environment | with_alerts(larder, "mail root\n")
    words = ["events", "--follow", "--alert", "--interval", "0.1", "--disks", "0"]
    with larder.started(*words, env=fed.environment | environment, code=NOT_FOUND) as process:
        states = ("active", "failed", "joining", "active")
        fed.give_all(*([fast(devices=2, ssds=f"active/{state}", devices_failed=int(state == "failed"))] for state in states))
    assert len(process.out.splitlines()) == 3
    payloads = [mail.get_payload() for mail in mails()]
    assert len(payloads) == 2 and "SSD 1 is failed, was active" in payloads[0] and "SSD 1 is joining, was failed" in payloads[1]


def test_what_larderd_leaves(larder, fed, sendmail, run_directory):
    """In its file: an event and a mail for each, also for what was there before; an event when it is over; not again at once."""
    environment, mails = sendmail
    environment = environment | with_alerts(larder, "mail root\n")
    words = ["events", "--follow", "--alert", "--interval", "600", "--disks", "0"]
    member, other = uuid.uuid4(), uuid.uuid4()
    run_directory.mkdir()
    file, status = run_directory / "left", larder.directory / "none"
    status.write_text("")
    nothing = {"LARDER_STATUS": str(status)}

    def leave(*rows):
        new = run_directory / "left.new"
        new.write_text("".join(f"{row}\n" for row in rows))
        new.rename(file)

    stale = f"refused {member} /dev/sdb: is stale: larder volume start data --discard"
    again = stale.replace("/dev/sdb", "/dev/sdc")
    leave(stale, "", "refused", "refused x y", f" {member} x", f"refused {member}", f"{'x' * 16} {member} a word too long")
    file.write_text(file.read_text() + f"refused {other} cut off")
    with larder.started(*words, env=nothing | environment, code=NOT_FOUND) as process:
        told = [process.stdout.readline()]
        for rows, number in (([stale, f"failed {other} it\x1b[2J has\x07 failed"], 1), ([], 2), ([again], 1)):
            leave(*rows)
            told += [process.stdout.readline() for _ in range(number)]
        status.unlink()
        leave()
    assert [row.split(" ", 1)[1].rstrip() for row in told] == [
        f"left assembly {member}: {stale.replace(f' {member}', ':')}",
        f"left assembly {other}: failed: it?[2J has? failed",
        f"recovered assembly {member}: no longer {stale.replace(f' {member}', ':')}",
        f"recovered assembly {other}: no longer failed: it?[2J has? failed",
        f"left assembly {member}: {again.replace(f' {member}', ':')}",
    ]
    subjects = [mail["Subject"] for mail in mails()]
    assert [s.partition(" on ")[0] for s in subjects] == [f"larder: left assembly {member}", f"larder: left assembly {other}"]
    status.write_text("")
    assert larder("events", "--disks", "0", env=nothing).stdout == ""


def test_what_larderd_sees_hang(larder, running, fed, sendmail, run_directory):
    """In its file, too: an event and a mail when a device begins to hang, an event when it answers; a metric meanwhile."""
    environment, mails = sendmail
    environment = environment | with_alerts(larder, "mail root\n")
    words = ["events", "--follow", "--alert", "--interval", "600", "--disks", "0"]
    status = larder.directory / "none"
    status.write_text("")
    nothing = {"LARDER_STATUS": str(status), "LARDER_ROOT": str(larder.directory / "root")}
    (larder.directory / "root/sys/class/block/sdb").mkdir(parents=True)  # the other one is pulled
    run_directory.mkdir()
    file = run_directory / "stalled"
    on_disk, on_ssd = (
        f"{disk}\t0\t{noun}\t{uuid.uuid4()}\t{name}\t/dev/{disk} has answered nothing for 30 s\n"
        for disk, noun, name in (("sdb", "volume", "data"), ("nvme0n1", "cache", "fast"))
    )

    def write(*rows):
        new = run_directory / "stalled.new"
        new.write_text("".join(rows))
        new.rename(file)

    write(on_disk)
    with larder.started(*words, env=nothing | environment, code=NOT_FOUND) as process:
        told = [process.stdout.readline()]
        write(on_disk, on_ssd)
        told.append(process.stdout.readline())
        before, text, after = time.monotonic(), larder("metrics", env=nothing).stdout, time.monotonic()
        write()
        told += [process.stdout.readline() for _ in range(2)]
        status.unlink()
        write(on_ssd)
    assert [row.split(" ", 1)[1].rstrip() for row in told] == [
        "stalled disk sdb: volume data: /dev/sdb has answered nothing for 30 s",
        "stalled disk nvme0n1: cache fast: /dev/nvme0n1 has answered nothing for 30 s",
        "recovered disk sdb: volume data: sdb does not hang any more",
        "recovered disk nvme0n1: cache fast: nvme0n1 is not seen to hang any more: it is not there",
    ]
    subjects = [mail["Subject"].partition(" on ")[0] for mail in mails()]
    assert subjects == ["larder: stalled disk sdb", "larder: stalled disk nvme0n1"]
    samples = dict(re.findall(r"^(larder_stalled_seconds{.*}) (\d+)$", text, re.M))
    labels = ('device="sdb",volume="data"', 'device="nvme0n1",cache="fast"')
    assert set(samples) == {f"larder_stalled_seconds{{{of}}}" for of in labels}
    assert all(before - 1 <= int(seconds) <= after + 1 for seconds in samples.values()), "since second 0"
    assert text.count("# TYPE larder_stalled_seconds gauge\n# UNIT larder_stalled_seconds seconds\n") == 1
    file.unlink()
    status.write_text("")
    assert "larder_stalled" not in larder("metrics", env=nothing).stdout


def test_alert_by_hand(larder, sendmail, program_told, disks):
    """--test shows that it works; nothing is looked at."""
    script, notes = program_told
    environment, mails = sendmail
    conf = with_alerts(larder, f"program {script}\nmail root\n")
    out = larder("events", "--alert", "--test", env=environment | conf).stdout
    assert re.fullmatch(r"\S+ test cache test: nothing is wrong.*\n", out) and not disks.asked()
    (mail,) = mails()
    assert mail["To"] == "root" and "nothing is wrong" in mail.get_payload()
    assert notes()[0][0][0] == "test"
    assert not larder("events", "--alert", "--test", env=environment | with_alerts(larder, "")).stderr
    assert mails() == [] and len(notes()) == 1
    larder("events", "--test", "--exec", script, env=environment | conf)
    assert mails() == [] and len(notes()) == 2


def test_alerts_that_fail(larder, running, sendmail):
    environment, mails = sendmail
    env = running(data(trouble="flush")) | environment
    mistakes = "mail two words\nmail a@b,c@d\nmail -oQ/tmp\nprogram none\n"
    run = larder("events", "--alert", env=env | with_alerts(larder, mistakes))
    assert run.stderr.count("the line is ignored") == 4 and mails() == []
    conf = with_alerts(larder, f"mail root\nprogram {larder.directory}/none\n")
    (Path(environment["PATH"].split(":")[0]) / "sendmail").write_text("#!/bin/sh\nexit 75\n")
    run = larder("events", "--alert", env=env | conf)
    assert "none: it cannot be run; program in larder.conf names it" in run.stderr
    assert "sendmail: it failed for the event wrong of volume data" in run.stderr and run.stdout.count("\n") == 1


def test_mail_that_is_not_taken_is_sent_later(larder, fed, sendmail):
    """No network yet, say, and a sendmail without a queue: nothing would tell of it again, as it does not change."""
    environment, mails = sendmail
    real = Path(environment["PATH"].split(":")[0]) / "sendmail"
    real.rename(real.with_name("works"))
    tried = larder.directory / "tried"
    real.write_text(f'#!/bin/sh\necho x >>{tried}\ntest $(wc -l <{tried}) -gt 3 || exit 75\nexec {real.with_name("works")} "$@"\n')
    real.chmod(0o755)
    environment = environment | with_alerts(larder, "mail root\n") | {"LARDER_ALERT_SECONDS": "1"}
    words = ["events", "--follow", "--alert", "--interval", "0.1", "--disks", "0"]
    with larder.started(*words, env=fed.environment | environment, code=NOT_FOUND) as process:
        looks, got = 0, []
        while not got and (looks := looks + 1) < 600:
            fed.give(fast(), data(trouble="flush"))
            got = mails()
        fed.give(fast(), data(trouble="flush"), then="nothing")
    assert len(tried.read_text().split()) == 4, "once when it happened, and until it was taken"
    (mail,) = got
    assert mail["Subject"].startswith("larder: wrong volume data on ") and process.err.count("sendmail: it failed") == 3


def goes_on(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_alerts_that_hang(larder, running, sendmail):
    """Neither keeps the next one from being told, and nothing of them is left."""
    environment, _ = sendmail
    env = running(fast(state="failed"), data(trouble="flush")) | environment
    seen = larder.directory / "seen"
    hangs = f"#!/bin/sh\necho $$ >>{seen}\nsleep 1000 &\necho $! >>{seen}\nwait\n"
    program = larder.directory / "hangs"
    for path in (program, Path(environment["PATH"].split(":")[0]) / "sendmail"):
        path.write_text(hangs)
        path.chmod(0o755)
    env |= with_alerts(larder, f"mail root\nprogram {program}\n")
    ran, seconds = [], 1
    while len(ran) < 8:  # on a busy machine they may have to get more time to begin at all
        seen.write_text("")
        run = larder("events", "--alert", env=env | {"LARDER_ALERT_SECONDS": str(seconds)})
        killed = f"hangs: it had not ended after {seconds} seconds, and was killed, for the event wrong of"
        assert run.stderr.count(killed) == 2
        assert run.stderr.count("sendmail: it had not ended") == 2 and run.stdout.count("\n") == 2
        ran = seen.read_text().split()
        assert len(ran) <= 8 and seconds < 16
        giving_up = time.monotonic() + 60
        while any(map(goes_on, ran)):  # killed, and not yet ended
            assert time.monotonic() < giving_up
            time.sleep(0.05)
        seconds *= 2


# As systemd does with the words of a command; its own options end with "--".
SYSTEMD_RUN = """#!/usr/bin/python3
import os, re, sys
words = sys.argv[sys.argv.index("--") + 1 :]
environment = dict(word.split("=", 1) for word in sys.argv if word.startswith("LARDER_"))
given = [re.sub(r"[$][$]|[$][{](\\w+)[}]", lambda m: os.environ.get(m[1], "") if m[1] else "$", word) for word in words]
os.execve(words[0], given, os.environ | environment)
"""
IN_A_UNIT = "mount -t tmpfs none /run && mkdir -p /run/systemd/system /run/dbus && touch /run/dbus/system_bus_socket && exec \"$@\""


@pytest.mark.skipif(subprocess.run(["unshare", "-rm", "true"], check=False).returncode, reason="no mount namespace here")
def test_words_that_systemd_would_expand(larder, running, program_told, sendmail):
    """They get to the program as they are, also where it runs in a unit of its own."""
    script, notes = program_told
    directory = Path(sendmail[0]["PATH"].split(":")[0])
    (directory / "systemd-run").write_text(SYSTEMD_RUN)
    (directory / "systemd-run").chmod(0o755)
    names = ["$$", "a${HOME}b", "$HOME", "c$"]
    env = running(*(line("volume", name, trouble="flush") for name in names)) | sendmail[0] | {"INVOCATION_ID": "1"}
    env |= with_alerts(larder, f"program {script}\n")
    words = ["unshare", "-rm", "sh", "-c", IN_A_UNIT, "sh", larder.program, "events", "--alert", "--disks", "0"]
    run = subprocess.run(words, env=larder.environment(env), capture_output=True, text=True, timeout=120)
    harness.sane(run)
    assert run.returncode == 0 and not run.stderr, run.stderr
    assert [note[0][1] for note in notes()] == names and all(note[1] == "volume" for note in notes())


def test_usage_of_events(larder, running):
    env = running()
    one_line(larder("events", "data", env=env, code=USAGE), "too many words")
    one_line(larder("events", "--exec", "", env=env, code=USAGE), "--exec")
    one_line(larder("events", "--follow", "--interval", "0", env=env, code=USAGE), "--interval")
    one_line(larder("events", "--disks", "often", env=env, code=USAGE), "--disks: 'often'")
    one_line(larder("events", "--test", env=env, code=USAGE), "--test", "--alert")
    one_line(larder("events", "--test", "--alert", "--follow", env=env, code=USAGE), "--test")
