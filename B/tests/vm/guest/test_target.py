# SPDX-License-Identifier: GPL-2.0-or-later
"""What the targets promise to the dm core, the block layer and an administrator, one promise a test: flags of requests, tables that
can be loaded back, IMA, tracepoints, options that bound something, the smallest layout, a warm cache after a power cut."""

import concurrent.futures
import contextlib
import errno
import json
import mmap
import os
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lib import command, dm, simdisk
from lib.bio_trace import ROOT as TRACING
from lib.bio_trace import BioTrace
from lib.block import SECTOR, BlockDevice
from lib.controls import Switches
from lib.larder import DATA_SECTOR, Cache, Stack, Volume, larder, segment_layout, wait_for

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = 4096
MIB = 2048  # sectors
NOWAIT = 8  # RWF_NOWAIT


@pytest.fixture
def stack(make_disk: Callable) -> Stack:
    """No fault, no cut: null disks."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    return Stack(ssd, hdd, format_volume=("--cache", "c"), sequential_cutoff=0)


# ---------------------------------------------------------------- flags of requests


class Direct:
    """A volume held open, for requests with flags of preadv2 and pwritev2."""

    def __init__(self, volume: Volume):
        self.fd = os.open(volume.path, os.O_RDWR | os.O_DIRECT)
        self.buffer = mmap.mmap(-1, BLOCK)

    def read(self, sector: int, flags: int = 0) -> bytes | None:
        """None: it would have had to wait."""
        try:
            assert os.preadv(self.fd, [self.buffer], sector * SECTOR, flags) == BLOCK
        except BlockingIOError:
            return None
        return self.buffer[:]

    def write(self, sector: int, data: bytes, flags: int = 0) -> bool:
        self.buffer[:] = data
        try:
            assert os.pwritev(self.fd, [self.buffer], sector * SECTOR, flags) == BLOCK
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self.fd)
        self.buffer.close()


@pytest.fixture
def direct(stack: Stack):
    d = Direct(stack.volume)
    yield d
    d.close()


def no_errors(stack: Stack) -> None:
    for status in (stack.volume.status(), stack.cache.status()):
        assert not any(v for k, v in status.items() if k.startswith("errors_")), status


def test_nowait(stack, direct):
    """What would have to wait is refused, and is no error of a device; what needs not wait is done."""
    a, b, c = (os.urandom(BLOCK) for _ in range(3))
    assert not direct.write(0, a, NOWAIT), "may_be_dirty has to be written first"
    wait_for(lambda: stack.volume.status()["may_be_dirty"], 30, "may_be_dirty")
    wait_for(lambda: direct.write(0, a, NOWAIT), 30, "a write that need not wait")
    assert direct.read(0, NOWAIT) == a
    assert direct.read(8 * MIB, NOWAIT) in (bytes(BLOCK), None)
    deferred = stack.volume.status()["deferred"]
    stack.volume.drain()
    stack.volume.set(mode="writearound")
    assert not direct.write(0, b, NOWAIT), "a mark has to be set first"
    assert direct.read(0) == a
    assert stack.volume.status()["deferred"] == deferred
    assert direct.write(0, b)
    assert direct.write(0, c, NOWAIT), "the mark is there"
    assert direct.read(0) == c
    no_errors(stack)


def test_a_device_that_would_wait_has_not_failed(stack, direct):
    a, b = (os.urandom(BLOCK) for _ in range(2))
    assert direct.write(0, a)
    stack.volume.drain()
    stack.ssd.fail(op="read", status="again", count=1)
    assert direct.read(0, NOWAIT) is None
    assert direct.read(0) == a
    assert stack.volume.status()["cached_sectors"] == 8, "the extent is not to blame"
    stack.volume.set(mode="writearound")
    assert direct.write(0, b)
    stack.hdd.fail(op="write", status="again", count=1)
    assert not direct.write(0, a, NOWAIT)
    stack.volume.flush()
    assert direct.write(0, a)
    assert direct.read(0) == a
    no_errors(stack)


def test_nowait_without_a_cache(make_disk):
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    Volume.format("v", hdd)
    v = Volume.start(hdd, None)
    d = Direct(v)
    data = os.urandom(BLOCK)
    raised = v.status()["incarnation"]
    assert d.read(0, NOWAIT) == bytes(BLOCK)
    if d.write(0, data, NOWAIT):  # nothing to be raised where there never was a cache
        assert v.status()["incarnation"] == raised
    assert d.write(0, data)
    assert d.write(8, data, NOWAIT)
    assert d.read(0) == d.read(8) == data
    d.close()
    v.remove()


@pytest.fixture
def polled_disk(clean_devices):
    """A disk with a queue that is polled, which the simulated ones have not."""
    command.run("modprobe", "configfs")
    queues = ("queue_mode=2", "submit_queues=1", "poll_queues=1")
    command.run("modprobe", "null_blk", "nr_devices=1", "gb=1", "memory_backed=1", *queues)
    yield BlockDevice("/dev/nullb0")
    for name in ("v", "c"):
        if name in dm.names():
            dm.DmDevice(name).remove()
    command.run("modprobe", "-r", "null_blk")


def test_polled_reads(make_disk, polled_disk):
    """The volume's queue is polled, as that of its backing is; the SSD has none of the kind.  Hits are read all the same."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    stack = Stack(ssd, polled_disk, format_volume=("--cache", "c"), writeback="off", sequential_cutoff=0)
    if stack.volume.queue("io_poll") != "1":
        pytest.skip("the volume's queue is not polled on this kernel")
    for i in range(8):
        stack.volume.write(8 * i, b"\x5a" * BLOCK)
    before = stack.volume.status()
    how = "--ioengine=io_uring --hipri=1 --direct=1 --thread --iodepth=4"
    what = "--rw=read --bs=4k --size=32k --verify=pattern --verify_pattern=0x5a"
    command.run("fio", "--name=hits", f"--filename={stack.volume.path}", *how.split(), *what.split())
    after = stack.volume.status()
    assert after["read_hits"] >= before["read_hits"] + 8
    assert stack.cache.status()["errors_read"] == 0 and after["trouble"] == "-"
    stack.stop()


def test_readahead_and_metadata(stack, trace, tmp_path):
    """Readahead may be refused by a device: what fills the cache is a read of our own, and a hit an ordinary one.  Metadata stays
    metadata."""
    fd = os.open(stack.volume.path, os.O_RDONLY)

    def ahead(sector: int) -> list[simdisk.Command]:
        trace.clear()
        os.posix_fadvise(fd, sector * SECTOR, 16 * BLOCK, os.POSIX_FADV_WILLNEED)
        os.pread(fd, 16 * BLOCK, sector * SECTOR)
        return trace.commands(stack.hdd, "read")

    stack.volume.set(fill="off")
    assert any("rahead" in c.flags for c in ahead(2 * MIB)), "or the test shows nothing"
    stack.volume.set(fill="on")
    assert ahead(4 * MIB) and not any("rahead" in c.flags for c in trace.commands(stack.hdd))
    stack.volume.write(6 * MIB, bytes(16 * BLOCK))
    assert not ahead(6 * MIB)
    hits = trace.commands(stack.ssd, "read")
    os.close(fd)
    assert hits and not any("rahead" in c.flags for c in hits), "an SSD that refuses one looks like bad media"

    stack.volume.set(mode="writearound")
    command.run("mkfs.ext4", "-q", stack.volume)
    stack.volume.message("drop_clean")
    trace.clear()
    command.run("mount", stack.volume, tmp_path)
    os.listdir(tmp_path)
    command.run("umount", tmp_path)
    fills = stack.volume.status()["fills"]
    assert fills and any("meta" in c.flags for c in trace.commands(stack.hdd, "read"))
    assert not any(c.flags & {"nowait", "rahead"} for c in trace.commands(stack.ssd, "write"))


# ---------------------------------------------------------------- tables, IMA, tracepoints

# Of every option a value that is not its default
CACHE_OPTIONS = {
    "commit": "always",
    "commit_interval": 77,
    "gather": 9,
    "memory_limit": 333,
    "small_percent": 7,
    "discard": "on",
    "max_marks": 99,
    "checkpoint_percent": 11,
    "mirror": "none",
    "roles": "write",
    "congestion_read": 1234,
    "congestion_write": 0,
    "scrub_rate": 4321,
    "resync_rate": 5432,
    "mend": "off",
}
VOLUME_OPTIONS = {
    "mode": "writearound",
    "sequential_cutoff": 12,
    "fill": "off",
    "admit": "second-miss",
    "writeback": "off",
    "writeback_percent": 55,
    "writeback_rate_min": 66,
    "writeback_rate_max": 7777,
    "writeback_depth": 8,
    "readahead": 64,
    "share_min": 20,
    "share_max": 80,
    "stripes": "off",
    "quiet": "on",
    "failure_wait": 77,
    "verify": "reads",
    "class": "special",
}


def options_documented(heading: str) -> set[str]:
    section = (DOCS / "interface.md").read_text().split(f"\n### {heading}\n", 1)[1].split("\n### ", 1)[0]
    return set(re.findall(r"^\| `(\w+)`", section, re.M))


def test_table_loaded_back(stack):
    """Every option: by message, by the table that is printed then, and by that table after a stop."""
    assert set(CACHE_OPTIONS) == options_documented("Options of a cache") - {"stale"}
    assert set(VOLUME_OPTIONS) == options_documented("Options of a volume") - {"stale"}
    stack.volume.set(writeback="off")  # first of all: an idle backing is written to before all of them are set
    stack.volume.write(0, os.urandom(BLOCK))
    for device, options in ((stack.cache, CACHE_OPTIONS), (stack.volume, VOLUME_OPTIONS)):
        device.set(**options)
        line = device.table()
        for key, value in options.items():
            assert f" {key} {value}" in line
        device.reload(line)
        assert device.table() == line
        assert {k: str(device.status()[k]) for k in options} == {k: str(v) for k, v in options.items()}
    tables = {"c": stack.cache.table(), "v": stack.volume.table()}
    stack.stop()
    for name, kind in (("c", Cache), ("v", Volume)):
        device = kind.create(name, tables[name])
        assert device.table() == tables[name]
        assert {k: str(v) for k, v in device.status().items() if k in CACHE_OPTIONS | VOLUME_OPTIONS} == {
            k: str(v) for k, v in (CACHE_OPTIONS if name == "c" else VOLUME_OPTIONS).items()
        }
    assert Volume("v").dirty() == 8


def keys_documented(heading: str) -> list[str]:
    section = (DOCS / "interface.md").read_text().split(f"\n### {heading}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    return [key for row in re.findall(r"^\|(.*?)\|", section, re.M) for key in re.findall(r"`(\w+)`", row)]


def test_status_is_documented(stack):
    """Key by key, in the order of docs/interface.md; the options behind them."""
    for device, kind, options in ((stack.cache, "cache", CACHE_OPTIONS), (stack.volume, "volume", VOLUME_OPTIONS)):
        keys = [word.split("=")[0] for word in device.status_line().split()[3:]]
        documented = keys_documented(f"Status of a {kind}")
        assert keys[: len(documented)] == documented
        assert set(keys[len(documented) :]) == set(options) - {"mode"}


def test_events(stack, kernel_log):
    """Those that docs/interface.md names."""
    v, c = stack.volume, stack.cache

    def raised(device: dm.DmDevice, before: int, what: str) -> None:
        wait_for(lambda: device.events() > before, 30, f"an event: {what}")

    before = v.events()
    v.set(writeback="off")
    v.write(0, os.urandom(BLOCK))
    assert v.events() == before
    v.message("flush")
    raised(v, before, "a flush is done")
    before = v.events()
    v.message("flush")
    raised(v, before, "nothing to flush")
    stack.hdd.fail(op="write", from_=2048, status="ioerr")
    kernel_log.expect("I/O error")
    v.write(0, os.urandom(BLOCK))
    before = v.events()
    v.message("flush")
    raised(v, before, "writeback fails")
    before = v.events()
    v.message("flush_stop")
    raised(v, before, "a flush is given up")
    stack.hdd.heal()
    before = v.events(), c.events()
    c.suspend()
    raised(c, before[1], "the cache is suspended")
    raised(v, before[0], "its cache is suspended")
    before = v.events(), c.events()
    c.resume()
    raised(c, before[1], "the cache is resumed")
    raised(v, before[0], "its cache is resumed")
    stack.ssd.fail(op="write", from_=segment_layout(stack.ssd)[0], status="ioerr")
    before = v.events(), c.events()
    v.write(0, os.urandom(BLOCK))
    v.flush()
    raised(c, before[1], "the cache has failed")
    raised(v, before[0], "its cache has failed")
    wait_for(lambda: (c.status()["state"], v.status()["state"]) == ("failed", "passing"), 30, "the volume to leave it")
    stack.ssd.heal()


def test_events_of_the_set(make_disk, kernel_log):
    """An SSD leaves."""
    kernel_log.expect("I/O error|critical .* error")
    ssds = [make_disk(f"ssd{i}", model="null", mb=48, wce=1, fua=1) for i in range(2)]
    stack = Stack(ssds, make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"))
    before = stack.volume.events(), stack.cache.events()
    ssds[1].fail(op="write,flush", status="ioerr")
    stack.volume.write(0, os.urandom(BLOCK))
    wait_for(lambda: stack.volume.events() > before[0] and stack.cache.events() > before[1], 30, "events: an SSD has left")
    assert stack.cache.status()["devices_failed"] == 1


def test_ima(stack):
    """The kernel measures a table when it is loaded; once in a boot it can be told to."""
    root = Path("/sys/kernel/security/ima")
    if not root.exists():
        command.run("mount", "-t", "securityfs", "securityfs", "/sys/kernel/security")
    (root / "policy").write_text("measure func=CRITICAL_DATA label=device-mapper template=ima-buf\n")
    stack.restart()
    measured = {}
    for line in (root / "ascii_runtime_measurements").read_text().splitlines():
        words = line.split()
        if words[4] == "dm_table_load":
            text = bytes.fromhex(words[5]).decode()
            measured[re.search(r"name=([^,]*)", text)[1]] = text
    cache, volume = stack.cache.status(), stack.volume.status()
    ssd, hdd = (stack.cache.table().split()[4], stack.volume.table().split()[3])
    want = {
        "c": ("target_name=larder-cache", f"uuid={cache['uuid']}", "nr_devices=1", f"device_0={ssd}", "commit=auto", "gather=4"),
        "v": ("target_name=larder", f"uuid={volume['uuid']}", f"backing={hdd}", "mode=writeback", "sequential_cutoff=0", "fill=on"),
    }
    for name, words in want.items():
        _, device, table, rest = measured[name].split(";")
        assert not rest and "num_targets=1" in device.split(","), measured[name]
        assert set(words) <= set(table.split(",")), measured[name]
        options = CACHE_OPTIONS if name == "c" else VOLUME_OPTIONS
        assert set(options) <= {w.split("=")[0] for w in table.split(",")}


class Events:
    """What the tracepoints larder:* say while it is open."""

    ROOT = TRACING / "events/larder"

    def __enter__(self) -> "Events":
        (TRACING / "trace").write_text("")
        (TRACING / "buffer_size_kb").write_text("4096")
        (self.ROOT / "enable").write_text("1")
        return self

    def __exit__(self, *_: object) -> None:
        (self.ROOT / "enable").write_text("0")
        self.text = (TRACING / "trace").read_text()
        (TRACING / "trace").write_text("")
        (TRACING / "buffer_size_kb").write_text("64")

    def of(self, name: str, **fields: object) -> list[dict[str, str]]:
        """Events larder_NAME in their order, those with these values."""
        found = [dict(w.split("=", 1) for w in x.split()) for x in re.findall(rf": larder_{name}: (.*)", self.text)]
        return [e for e in found if all(e[k] == str(value) for k, value in fields.items())]


def test_tracepoints_are_documented():
    section = (DOCS / "interface.md").read_text().split("\n## Tracepoints\n")[1].split("\n## ")[0]
    listed = {m[1]: set(m[2].split()) for m in re.finditer(r"^\| `larder_(\w+)` \| ([\w ]+) \|", section, flags=re.M)}
    events = {}
    for path in Events.ROOT.glob("larder_*/format"):
        text = re.search(r'^print fmt: "(.*?)"', path.read_text(), flags=re.M)[1]
        events[path.parent.name.removeprefix("larder_")] = set(re.findall(r"(\w+)=", text))
    assert listed == events


def test_tracepoints_count(make_disk):
    """Each is hit, and as often as what it stands for was done."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1, write_zeroes=1)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), sequential_cutoff=0)
    v = stack.volume
    v.set(writeback="off")
    before = v.status()
    with Events() as e:
        for i in range(40):
            v.write(i * MIB, os.urandom(BLOCK))
        v.flush()
        for i in range(30):
            v.read(i * MIB, 8)
        for i in range(20):
            v.read(i * MIB + 800, 8)
        wait_for(lambda: v.status()["fill_sectors"] == 160, 30, "the fills to enter the index")
        v.set(fill="off")
        for i in range(10):
            v.read(i * MIB + 1600, 8)
        v.set(fill="on", mode="writethrough")
        for i in range(6):
            v.write(50 * MIB + i * 8, os.urandom(BLOCK))
        v.set(mode="writearound")
        for i in range(5):
            v.write(i * MIB + 1600, os.urandom(BLOCK))
        for i in range(4):
            v.discard(i * MIB + 800, 8)
        v.set(mode="writeback")
        for i in range(3):
            v.zero(60 * MIB + i * 8, 8)
        v.drain()
        stack.cache.message("checkpoint")
        now = v.status()
        after = {k: now[k] - before[k] for k in now if isinstance(now[k], int) and isinstance(before[k], int)}
        stack.restart()
    count = {n: len(e.of(n)) for n in ("write", "hit", "fill", "through", "miss", "bypass", "discard", "zeroes", "defer")}
    assert count | {"defer": 0} == {
        "write": 40, "hit": 30, "fill": 20, "through": 6, "miss": 10, "bypass": 5, "discard": 4, "zeroes": 3, "defer": 0
    }
    assert count["defer"] == after["deferred"] > 0
    done = {op: len(e.of("done", op=op)) for op in "WRDZ"}
    assert done == {"W": 51, "R": 60, "D": 4, "Z": 3}
    assert not [x for x in e.of("done") if x["error"] != "0"]
    assert len(e.of("done", op="F")) >= 1
    copies = e.of("copy", stream=1, error=0)
    assert len(copies) == 26 and sum(int(x["len"]) for x in copies) == after["fill_sectors"]
    for x in e.of("hit"):  # each at the place where it was written
        assert e.of("write", sector=x["sector"], place=x["place"])
    # a record is appended, at the latest with its commit block, then applied
    lsns = [int(x["lsn"]) for x in e.of("applied")]
    assert lsns == sorted(lsns) and len(set(lsns)) == len(lsns)
    assert {int(x["lsn"]) for x in e.of("append", stream=0, commit=1)} >= set(lsns)
    assert len(e.of("flush")) == len(e.of("flush_done", error=0)) > 0
    assert [x["region"] for x in e.of("mark", set=1)] and len(e.of("mark", set=1)) >= after["marks_set"]
    assert {x["region"] for x in e.of("mark", set=0)} == {x["region"] for x in e.of("mark", set=1)}, "a stop clears them"
    begun, ended = e.of("writeback_begin"), e.of("writeback", error=0)
    assert begun and [x["pieces"] for x in begun] == [x["pieces"] for x in ended]
    assert len(e.of("checkpoint", error=0)) >= 1 and int(e.of("checkpoint")[0]["sequence"]) > 0
    # the life of each segment is one chain
    state: dict[str, str] = {}
    for x in e.of("segment"):
        assert x["was"] == state.get(x["segment"], x["was"]) or x["was"] == "free", x
        state[x["segment"]] = x["state"]
    assert e.of("open")
    assert {x["cache"] for x in e.of("write")} == {x["cache"] for x in e.of("segment")}
    with Events() as full:
        for i in range(32):
            stack.volume.write((64 + i) * MIB, os.urandom(128 * BLOCK))
        stack.volume.drain()
        stack.cache.message("reclaim", 2)
        stack.cache.message("scrub")
        wait_for(lambda: stack.cache.status()["scrub"] == "done", 60, "the scrub")
    assert sum(int(x["slots"]) for x in full.of("scrub")) == stack.cache.status()["scrub_slots"] > 0
    # one of which something is kept is counted when that has arrived
    assert len(full.of("segment", state="reclaiming")) >= max(1, stack.cache.status()["reclaimed"]) and full.of("reclaim")
    hit = set(re.findall(r": (larder_\w+): ", e.text + full.text))
    assert hit == {p.name for p in Events.ROOT.iterdir() if p.is_dir()}


# ---------------------------------------------------------------- options that bound something


def read_stream(volume: Volume, sector: int, sectors: int, step: int = 128) -> None:
    fd = os.open(volume.path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, step * SECTOR)
    for at in range(sector, sector + sectors, step):
        assert os.preadv(fd, [buffer], at * SECTOR) == len(buffer)
    os.close(fd)


def write_stream(volume: Volume, sector: int, sectors: int, step: int = 128) -> None:
    fd = os.open(volume.path, os.O_WRONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, step * SECTOR)
    for at in range(sector, sector + sectors, step):
        assert os.pwritev(fd, [buffer], at * SECTOR) == len(buffer)
    os.close(fd)


def test_sequential_bypass(stack):
    v = stack.volume
    v.set(sequential_cutoff=256, writeback="off")
    read_stream(v, 8 * MIB, 4 * MIB)
    s = v.status()
    assert s["read_bypass"] >= 50 and s["fills"] <= 8, s
    write_stream(v, 16 * MIB, 4 * MIB)
    s = v.status()
    assert s["write_bypass"] >= 50, s
    assert s["dirty_sectors"] <= 2 * 512 + 128, "what came before the cutoff, no more"
    v.set(sequential_cutoff=0)
    read_stream(v, 24 * MIB, 4 * MIB)
    write_stream(v, 32 * MIB, 4 * MIB)
    t = v.status()
    assert (t["read_bypass"], t["write_bypass"]) == (s["read_bypass"], s["write_bypass"])
    assert t["dirty_sectors"] == s["dirty_sectors"] + 4 * MIB and t["fills"] > s["fills"] + 8


def test_writes_are_gathered(make_disk, make_oracle):
    """Alone each write is an append; beyond `gather` of them in flight several leave together."""
    ssd = make_disk("ssd0", model="nvme", mb=64)
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"), sequential_cutoff=0)
    oracle = make_oracle(stack.volume, size="32m")
    seen = {}
    for qd in (1, 64):
        if qd > 1:
            ssd.set(wlat_ns=2_000_000)  # so that on a slow machine, too, appends are in flight when the next write comes
        before = stack.cache.status()
        oracle.run(ops=1500, qd=qd, mix="write=100", sizes="4k:100", align=BLOCK)
        after = stack.cache.status()
        seen[qd] = {k: after[k] - before[k] for k in ("appends", "gathered_appends", "append_slots")}
    print(seen)
    assert seen[1]["gathered_appends"] == 0 and seen[1]["appends"] == 1500
    assert seen[64]["gathered_appends"] > 0 and seen[64]["appends"] < 1500
    oracle.verify()
    stack.verify_alone(oracle)


def test_writeback_is_sorted_and_merged(stack, trace, seed):
    """Written in random order; two areas of 1 MiB whole, and places between and behind them.  A flush of the backing follows."""
    v = stack.volume
    rng = random.Random(seed)
    areas = [3 * MIB, 40 * MIB]
    where = [a + 8 * i for a in areas for i in range(256)] + [(5 + i) * MIB + 8 * rng.randrange(200) for i in range(30)]
    shuffled = rng.sample(where, len(where))
    v.set(writeback="off")
    for sector in shuffled:
        v.write(sector, os.urandom(BLOCK))
    trace.clear()
    begin = 2048  # of the data
    with BioTrace(stack.hdd) as bios:
        v.drain()
        order = [b.sector for b in bios.writes() if b.sector >= begin]
    assert order == sorted(order)
    writes = [c for c in trace.commands(stack.hdd, "write") if c.sector >= begin]
    assert sum(c.sectors for c in writes) == 8 * len(where)
    for a in areas:
        inside = [c for c in writes if a <= c.sector - begin < a + MIB]
        assert len(inside) <= 3, f"1 MiB in {len(inside)} writes"
    last = max(c.end for c in writes)
    assert any(c.seq > last for c in trace.commands(stack.hdd, "flush"))


def test_idle_backing_gets_everything(stack):
    """Below writeback_percent nothing is due; idle, it goes all the same."""
    stack.volume.set(writeback_percent=100)
    for i in range(20):
        stack.volume.write(i * MIB, os.urandom(BLOCK))
    wait_for(lambda: not stack.volume.dirty(), 120, "the idle backing to be written")
    assert not stack.volume.status()["flushing"]
    stack.volume.set(writeback="off")
    stack.volume.write(0, os.urandom(BLOCK))
    time.sleep(6)
    assert stack.volume.dirty() == 8


def test_writeback_is_capped(stack):
    """At every moment no more than the cap allows since the beginning, a bucket of 1 MiB and a piece of 1 MiB."""
    cap = 1024  # KiB/s
    stack.volume.set(writeback="off", writeback_rate_max=cap, writeback_rate_min=cap)
    write_stream(stack.volume, 0, 8 * MIB)
    stack.hdd.reset_stats()
    begin = time.monotonic()
    stack.volume.set(writeback="on")
    stack.volume.message("flush")
    dirty = True
    while dirty:
        dirty = stack.volume.dirty()
        written = stack.hdd.stats()["wbytes"]
        passed = time.monotonic() - begin
        assert written <= passed * (cap << 10) + (3 << 20), f"{written >> 10} KiB in {passed:.2f} s"
        assert passed < 200
        time.sleep(0.1)
    assert written >= 8 << 20, "all of it, of which the bucket lets pass 2 MiB at once"
    s = stack.volume.status()
    assert s["writeback_rate"] <= 2 * cap


# ---------------------------------------------------------------- layout, attachment, power


def test_smallest_layout(make_disk, make_oracle):
    """Data from 8 KiB on, no second superblock, nothing kept free at the tail: as a disk that is taken over in place."""
    ssd = make_disk("ssd0", model="null", mb=48, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=32, wce=1)
    sectors = hdd.sectors - 16
    foreign = os.urandom(BLOCK)
    Cache.format("c", ssd)
    Volume.format("v", hdd, "--cache", "c", "--data-offset", "8K", "--tail-reserve", "0")
    hdd.write(0, foreign)
    cache = Cache.start(ssd)
    v = Volume.create("v", Volume.line(hdd, cache, sectors))
    assert v.sectors == sectors
    oracles = [make_oracle(v, size="8m"), make_oracle(v, size="8m", offset=(sectors - 8 * MIB) * SECTOR)]
    for o in oracles:
        o.run(ops=1500)
    v.remove()
    cache.remove()
    cache = Cache.start(ssd)
    v = Volume.create("v", Volume.line(hdd, cache, sectors))
    for o in oracles:
        o.verify()
    v.set(mode="writethrough")
    v.drain()
    v.reload(Volume.line(hdd, None, sectors))
    v.remove()
    assert larder("super", "check", hdd).returncode == 0
    assert hdd.read(0, 8) == foreign, "what lies in front of the superblock"
    raw = dm.DmDevice.create("raw", f"0 {sectors} linear {hdd} 16")
    for o in oracles:
        o.verify(device=raw)


def test_attached_and_detached_while_mounted(stack, tmp_path):
    """With somebody writing files all the time; the file system never notices."""
    switches = Switches(stack.volume, stack.cache)
    command.run("mkfs.ext4", "-q", stack.volume)
    command.run("mount", stack.volume, tmp_path)
    stop, written, failures = threading.Event(), {}, []

    def work() -> None:
        try:
            while not stop.is_set():
                path = tmp_path / f"{len(written) % 40}"
                data = os.urandom(3000 + 700 * (len(written) % 20))
                path.write_bytes(data)
                if len(written) % 5 == 0:
                    fd = os.open(path, os.O_RDONLY)
                    os.fsync(fd)
                    os.close(fd)
                written[len(written)] = (path, data)
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for i in range(60):
            files = len(written)
            wait_for(lambda files=files: len(written) >= files + 5 or failures, 60, "files to be written")
            switches.attach(i)
            if switches.attached >= 2 and switches.detached >= 2:
                break
    finally:
        stop.set()
        thread.join()
    print(f"{len(written)} files, attached {switches.attached} times, detached {switches.detached}, refused {switches.refused}")
    assert not failures, failures
    assert switches.attached >= 2 and switches.detached >= 2
    last = dict(written.values())
    command.run("umount", tmp_path)
    command.run("e2fsck", "-fn", stack.volume)
    command.run("mount", stack.volume, tmp_path)
    assert all(path.read_bytes() == data for path, data in last.items())
    command.run("umount", tmp_path)


def test_warm_after_a_power_cut(stack, seed):
    """Dirty data, clean data and what reads have filled: all of it is there, and read without the backing."""
    v = stack.volume
    contents = {}
    for i in range(100):
        contents[i * 800] = os.urandom(BLOCK)
        v.write(i * 800, contents[i * 800])
        if i == 49:
            v.drain()
    for i in range(50):
        v.read(64 * MIB + i * 800, 8)
    wait_for(lambda: v.status()["fill_sectors"] == 400, 30, "the fills to enter the index")
    v.set(writeback="off")
    stack.cache.message("commit")
    v.write(100 * 800, os.urandom(BLOCK))
    v.flush()
    before = v.status()
    simdisk.power_cut(mode="lose", seed=seed)
    stack.stop()
    simdisk.power_up()
    stack.start()
    after = stack.volume.status()
    print({k: (before[k], after[k]) for k in ("cached_sectors", "dirty_sectors", "extents")})
    assert after["cached_sectors"] == before["cached_sectors"]
    stack.hdd.reset_stats()
    for sector, data in contents.items():
        assert stack.volume.read(sector, 8) == data
    for i in range(50):
        assert stack.volume.read(64 * MIB + i * 800, 8) == bytes(BLOCK)
    assert stack.hdd.stats()["reads"] == 0
    assert stack.volume.status()["read_hits"] == 150


def written_through(stack: Stack) -> dict[int, bytes]:
    """Clean data in regions that have been bypassed: they are marked."""
    v = stack.volume
    contents = {i * 800: os.urandom(BLOCK) for i in range(60)}
    for sector in contents:
        v.write(sector, bytes(BLOCK))
    v.drain()
    v.set(mode="writethrough")
    for sector, data in contents.items():
        v.write(sector, data)
    wait_for(lambda: v.status()["fill_sectors"] == len(contents) * 8, 30, "the copies to enter the index")
    assert v.status()["marks"]
    return contents


def test_warm_after_a_clean_stop(stack):
    """No mark outlives it, so that nothing is dropped for one."""
    contents = written_through(stack)
    cached = stack.volume.status()["cached_sectors"]
    stack.restart()
    v = stack.volume
    assert (v.status()["marks"], v.status()["cached_sectors"]) == (0, cached)
    stack.hdd.reset_stats()
    assert not [s for s, data in contents.items() if v.read(s, 8) != data]
    assert stack.hdd.stats()["reads"] == 0
    # the volume alone is stopped, and the power fails behind that
    v.set(mode="writethrough")
    v.write(0, os.urandom(BLOCK))
    wait_for(lambda: v.status()["fills"] and v.status()["cached_sectors"] == cached, 30, "the copy to enter the index")
    v.remove()
    stack.volume = None
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    stack.start()
    assert (stack.volume.status()["marks"], stack.volume.status()["cached_sectors"]) == (0, cached)


def test_stopped_in_order_only_while_it_is_stopped(stack):
    """A suspend writes the flag: it may be the last thing that happens.  What goes on after it takes it away."""

    def said() -> str:
        fields = json.loads(larder("super", "show", stack.ssd, "-o", "flags", "--reportformat", "json").stdout)
        (rows,) = fields.values()
        return rows[0]["flags"]

    stack.volume.write(0, os.urandom(BLOCK))
    assert said() == "none"
    stack.cache.suspend()
    assert said() == "clean_stop"
    stack.cache.resume()
    assert said() == "none"
    stack.cache.reload(stack.cache.table())
    assert said() == "none"
    stack.stop()
    assert said() == "clean_stop"
    stack.start()
    assert said() == "none"


def test_message_beside_a_removal(make_disk):
    """dm waits for the messages of a device before it suspends it, but not before it removes it: what `reclaim` copies must not
    come behind the clean stop."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    small = {"format_cache": ("--segment-size", "128k"), "format_volume": ("--cache", "c")}
    stack = Stack(ssd, hdd, sequential_cutoff=0, **small)
    places = range(0, 8 * MIB, 128)
    for sector in places:
        stack.volume.write(sector, os.urandom(64 * 1024))
    stack.volume.drain()
    stack.restart()  # from here on a hit counts: it is old
    replayed = stack.cache.status()["replayed_records"]
    hot = [s + 24 * i for s in places for i in range(5)]  # a third: where more is hot, all of the segment stays as it is
    for sector in 2 * hot:  # what is hit twice is kept
        stack.volume.read(sector, 8)
    stack.volume.remove()
    stack.volume = None
    cache = stack.cache
    status = cache.status()
    ssd.fail(op="write", status="ok", delay_ms=300)
    thread = threading.Thread(target=cache.message, args=("reclaim", status["segments_write"] + status["segments_keep"]))
    thread.start()
    wait_for(lambda: cache.status()["reclaim_kept_slots"], 60, "the first copies")
    assert thread.is_alive()
    cache.remove()
    thread.join(60)
    assert not thread.is_alive()
    ssd.heal()
    stack.start()
    assert stack.cache.status()["replayed_records"] == replayed
    assert stack.volume.status()["cached_sectors"] > 0
    stack.stop()


@pytest.mark.parametrize("how", ["detach", "discard_dirty"])
def test_leaving_beside_a_removal(make_disk, kernel_log, how):
    """A volume that is not bound leaves its cache as that is removed: nothing holds the device open, and what is forgotten is
    written to it.  It is forgotten to the end first."""
    ssd = make_disk("ssd0", model="null", mb=64, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    stack = Stack(ssd, hdd, writeback="off", format_volume=("--cache", "c"))
    data = os.urandom(BLOCK)
    stack.volume.write(0, data)
    if how == "detach":
        stack.volume.drain()
        stack.volume.set(mode="writethrough")
    status, sectors = stack.volume.status(), stack.volume.sectors
    assert bool(status["dirty_sectors"]) == (how == "discard_dirty")
    stack.stop()
    command.run("dmsetup", "create", "v", "--notable")
    # not while the cache runs with what is dirty
    command.run("dmsetup", "load", "v", "--table", Volume.line(hdd, None, sectors))
    stack.cache = Cache.start(ssd, **stack.cache_options)
    if how == "discard_dirty":
        command.run("dmsetup", "resume", "v", check=False)
        leave = ("dmsetup", "message", "v", 0, "discard_dirty", status["cache"])
    else:
        leave = ("dmsetup", "resume", "v")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ssd.fail(op="write", status="ok", delay_ms=500)
        left = pool.submit(command.run, *leave)
        wait_for(lambda: ssd.faults()[0]["hits"], 60, "the cache to be told")
        stack.cache.remove()
        assert left.result(60) is not None
    ssd.heal()
    assert not kernel_log.matching("is not forgotten|forgetting it failed")
    stack.cache = Cache.start(ssd, **stack.cache_options)
    status = stack.cache.status()
    assert (status["volumes"], status["dirty_sectors"]) == (0, 0)
    if how == "discard_dirty":
        command.run("dmsetup", "resume", "v")
    volume = Volume("v")
    assert volume.status()["state"] == "passthrough"
    assert volume.read(0, 8) == (data if how == "detach" else bytes(BLOCK))
    volume.remove()
    stack.stop()


@pytest.mark.limit(1200)
def test_roles_hold_up_no_others(make_disk):
    """While an SSD takes its time over the roles that are written to it, status is answered, and volumes start and stop."""
    ssds = [make_disk(f"ssd{i}", model="null", mb=64, wce=1, fua=1) for i in range(2)]
    stack = Stack(ssds, make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"))
    other = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("w", other)
    # again where it was another write that took its time, or the machine is busy; no task may hang for a minute
    for roles, seconds in (("write/read", 20), ("read/write", 20), ("write/read", 20), ("read/write", 50), ("write/read", 50)):
        ssds[0].fail(op="write", status="ok", delay_ms=1000 * seconds, count=1)
        thread = threading.Thread(target=stack.cache.set, kwargs={"roles": roles})
        thread.start()
        wait_for(lambda: ssds[0].faults()[0]["hits"], 60, "the roles to be written")
        stack.volume.status_line()
        stack.cache.status_line()
        w = Volume.start(other, None, name="w")
        w.remove()
        meanwhile = ssds[0].state()["inflight"] and thread.is_alive()
        thread.join(2 * seconds + 60)
        assert stack.cache.status()["roles"] == roles
        ssds[0].heal()
        if meanwhile:
            break
    assert meanwhile, "they came to their end only behind the write"
    stack.stop()


def test_no_hibernation_beside_a_cache(stack, kernel_log):
    """Refused before anything is frozen."""
    state = Path("/sys/power/state")
    if "disk" not in state.read_text():
        pytest.skip("this kernel cannot hibernate here")
    with pytest.raises(OSError) as e:
        state.write_text("disk")
    assert e.value.errno == errno.EBUSY
    assert kernel_log.matching("no hibernation while a cache is started")


def test_marks_stay_where_the_backing_is_not_flushed(stack, kernel_log):
    """The backing loses its power at the flush that a stop begins with: copies of what it has lost must not stay clean."""
    kernel_log.expect("I/O error|Buffer I/O|critical")
    contents = written_through(stack)
    simdisk.power_cut(stack.hdd, mode="lose", after=1)
    stack.stop()
    simdisk.wait_power_off(stack.hdd)
    simdisk.power_up(stack.hdd)
    assert any(stack.hdd.read(DATA_SECTOR + s, 8) != data for s, data in contents.items()), "nothing was lost: it shows nothing"
    stack.start()
    v = stack.volume
    found = {s: v.read(s, 8) for s in contents}
    v.message("drop_clean")
    assert found == {s: v.read(s, 8) for s in contents}, "what was read has changed"


def test_clean_data_of_a_suspended_volume(stack):
    contents = written_through(stack)
    stack.volume.suspend()
    with pytest.raises(command.CommandError) as e:
        stack.volume.message("drop_clean")
    assert e.value.status == errno.EBUSY
    stack.volume.resume()
    assert stack.volume.status()["cached_sectors"]
    stack.volume.message("drop_clean")
    assert stack.volume.status()["cached_sectors"] == 0
    assert all(stack.volume.read(s, 8) == data for s, data in contents.items())


def test_dirty_data_of_what_another_device_has(stack, make_disk, kernel_log):
    """A clone of the disk, whose volume cannot be resumed beside that of the original, is told to give up what is dirty."""
    data = os.urandom(BLOCK)
    stack.volume.set(writeback="off")
    stack.volume.write(0, data)
    stack.volume.flush()
    clone = make_disk("clone0", model="null", mb=stack.hdd.sectors >> 11)
    clone.write(0, stack.hdd.read(0, DATA_SECTOR))
    status, before = stack.volume.status(), clone.read(8, 8)
    command.run("dmsetup", "create", "second", "--notable")
    sectors = stack.volume.sectors
    stack.stop()
    command.run("dmsetup", "load", "second", "--table", Volume.line(clone, None, sectors))
    stack.options["writeback"] = "off"  # set by a message it ends with a stop, and the backing is idle soon
    stack.start()
    command.run("dmsetup", "resume", "second", check=False)
    with pytest.raises(command.CommandError):
        command.run("dmsetup", "message", "second", 0, "discard_dirty", status["cache"])
    assert kernel_log.matching("is in use by dm device")
    command.run("dmsetup", "remove", "second")
    assert clone.read(8, 8) == before and stack.volume.status()["dirty_sectors"] == status["dirty_sectors"] > 0
    stack.restart()
    assert stack.volume.read(0, 8) == data


def test_forget(stack):
    """Dirty data is dropped only by a word that says so."""
    data = os.urandom(BLOCK)
    stack.volume.set(writeback="off")
    stack.volume.write(0, data)
    uuid = stack.volume.status()["uuid"]
    stack.volume.remove()
    with pytest.raises(command.CommandError) as e:
        stack.cache.message("forget", uuid)
    assert e.value.status == errno.EBUSY
    stack.volume = Volume.start(stack.hdd, stack.cache, writeback="off")
    assert stack.volume.read(0, 8) == data
    stack.volume.remove()
    stack.cache.message("forget", uuid, "discard_dirty")
    assert stack.cache.status()["volumes"] == stack.cache.status()["dirty_sectors"] == 0
    with pytest.raises(command.CommandError):
        Volume.start(stack.hdd, stack.cache)


@pytest.mark.parametrize("place", [256, 512])
def test_forget_whose_table_is_in_doubt(stack, make_disk, kernel_log, place):
    """One place of the table may say that it is forgotten, the other one could not be written: what is written to it then is
    no part of what a start drops."""
    kernel_log.expect("I/O error|critical")
    other = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("w", other)
    w = Volume.start(other, stack.cache, "w")
    old, new = os.urandom(BLOCK), os.urandom(BLOCK)
    w.write(0, old)
    w.drain()
    uuid = w.status()["uuid"]
    w.remove()
    stack.ssd.fail(op="write", from_=place, to=place + 256, status="ioerr", count=1)
    with pytest.raises(command.CommandError):
        stack.cache.message("forget", uuid)
    assert stack.ssd.faults()[0]["hits"] == 1
    stack.ssd.heal()
    w = Volume.start(other, stack.cache, "w", writeback="off")
    w.write(8, new)
    w.flush()
    simdisk.power_cut(mode="lose")
    w.remove()
    stack.stop()
    simdisk.power_up()
    stack.start()
    w = Volume.start(other, stack.cache, "w")
    assert (w.read(0, 8), w.read(8, 8)) == (old, new)
    w.remove()


def test_forget_goes_on_behind_an_error(stack, make_disk, kernel_log):
    """The SSD fails one flush, each in turn: what was begun is ended by the next attach, or by the same message, while it runs."""
    kernel_log.expect("I/O error|critical")
    other = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("w", other)
    stack.options["writeback"] = "off"  # behind the restart, too
    stack.volume.set(writeback="off")
    stack.volume.write(0, os.urandom(BLOCK))  # with nothing dirty a flush that fails would end the cache
    stack.volume.flush()
    failed = 0
    for skip in range(24):
        data = os.urandom(BLOCK)
        w = Volume.start(other, stack.cache, "w")
        w.write(0, data)
        w.drain()
        uuid = w.status()["uuid"]
        w.remove()
        kernel_log.mark()
        events = stack.cache.events()
        stack.ssd.fail(op="flush", status="ioerr", skip=skip, count=1)
        with contextlib.suppress(command.CommandError):
            stack.cache.message("forget", uuid)
        stack.ssd.heal()
        begun = any("forgetting it failed" in x for x in kernel_log.lines())
        failed += begun
        if begun:
            wait_for(lambda events=events: stack.cache.events() > events, 30, "an event")
        if begun and skip % 2:
            stack.cache.message("forget", uuid)
            assert stack.cache.status()["volumes"] == 1
        w = Volume.start(other, stack.cache, "w")
        assert w.read(0, 8) == data
        w.remove()
    assert failed > 3, "no error came behind the first step"
    stack.restart()
    assert (stack.cache.status()["volumes"], stack.volume.dirty()) == (2, 8)
