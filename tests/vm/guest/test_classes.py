# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes to the SSD: classes, shares, whole stripes, readahead.  The counters of the devices below are the judge, and the oracle
of content, also while lists are changed under its load."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lib import command, simdisk
from lib.controls import Switches
from lib.larder import DATA_SECTOR, Stack, Volume, larder, wait_for

KIB = 2  # sectors
MIB = 2048


def make_stack(make_disk, ssd: dict | None = None, hdd: dict | None = None, **options: object) -> Stack:
    """No congestion: on a machine without KVM a disk of no model may take its time.  No writeback but by drain(), and may_be_dirty
    is set: nothing but requests reaches the backing."""
    fast = make_disk("ssd0", **({"model": "null", "mb": 64, "wce": 1, "fua": 1} | (ssd or {})))
    slow = make_disk("hdd0", **({"model": "null", "mb": 256, "wce": 1} | (hdd or {})))
    off = {"cache_congestion_read": 0, "cache_congestion_write": 0, "writeback": "off", "format_volume": ("--cache", "c")}
    options = off | options
    text = options.pop("class", "default")
    stack = Stack(fast, slow, **options)
    stack.volume.zero(61 * MIB + 8, 8)
    stack.options["class"] = text
    stack.volume.set(**{"class": text})
    return stack


def moved(disk: simdisk.Simdisk, what: str) -> int:
    """Sectors read or written ("r", "w") since the counters were reset."""
    return disk.stats()[f"{what}bytes"] // 512


def settle(stack: Stack) -> None:
    """What was read is a hit from here on; nothing is on its way."""
    time.sleep(0.15)
    stack.cache.message("commit")
    wait_for(lambda: stack.volume.status()["fills"] == fills_ended(stack), 30, "fills to end")
    for d in (stack.ssd, stack.hdd):
        d.reset_stats()


def fills_ended(stack: Stack) -> int:
    """None is in flight: suspending waits for them."""
    stack.volume.suspend()
    stack.volume.resume()
    return stack.volume.status()["fills"]


def to_backing(stack: Stack, sector: int, sectors: int) -> bool:
    """Where does a write of this shape go?  To one device only, and it is found again."""
    data = os.urandom(sectors * 512)
    before = moved(stack.hdd, "w")
    stack.volume.write(sector, data)
    went = moved(stack.hdd, "w") - before
    assert went in (0, sectors), "part of it went to the backing"
    assert stack.volume.read(sector, sectors) == data
    return went > 0


def fills(stack: Stack, sector: int, sectors: int) -> bool:
    """Is what was read from the backing a hit afterwards?"""
    stack.hdd.reset_stats()
    first = stack.volume.read(sector, sectors)
    assert moved(stack.hdd, "r") >= sectors, "it was cached before"
    settle(stack)
    assert stack.volume.read(sector, sectors) == first
    read = moved(stack.hdd, "r")
    assert read in (0, sectors), "part of it was filled"
    return read == 0


def counts(stack: Stack, key: str) -> list[int]:
    return [int(n) for n in str(stack.volume.status()[key]).split("/")]


# ---------------------------------------------------------------- the list: set, seen, loaded back


def test_lists_are_set_seen_and_loaded_back(make_disk):
    stack = make_stack(make_disk, **{"class": "special"})
    v = stack.volume
    assert v.status()["class"] == "special" and " class special" in v.table()
    lists = (
        "metadata:pin-30/size-32:cache/any:bypass",
        "write+lba-0-2048:read-only/ioprio-idle:bypass",
        "log",
        "everything",
        "default",
    )
    for text in lists:
        v.message("set", "class", text)
        assert v.status()["class"] == text
        assert f" class {text}" in v.table()
        v.reload(v.table())
        assert v.status()["class"] == text
    options = {"readahead": 64, "share_min": 20, "share_max": 80, "stripes": "off"}
    for key, value in options.items():
        v.message("set", key, value)
    v.reload(v.table())
    assert {k: v.status()[k] for k in options} == options
    for key, value in {"congestion_read": 1234, "congestion_write": 0}.items():
        stack.cache.message("set", key, value)
        assert stack.cache.status()[key] == value
    stack.cache.reload(stack.cache.table())
    assert stack.cache.status()["congestion_read"] == 1234 and stack.cache.status()["congestion_write"] == 0
    stack.stop()


def test_by_the_command(make_disk):
    stack = make_stack(make_disk)
    larder("volume", "set", "v", "class=special", "share_max=70")
    assert stack.volume.status()["class"] == "special"
    larder("volume", "set", "v", "class", "any:pin-10/read:cache")
    assert larder("volume", "get", "v", "class", "share_max").stdout.split() == ["class=any:pin-10/read:cache", "share_max=70"]
    shown = larder("volume", "list", "--noheadings", "-o", "class,class_reads,pinned_sectors").stdout.split()
    assert shown[0] == "any:pin-10/read:cache" and len(shown[1].split("/")) == 3
    refused = larder("volume", "set", "v", "class=small:cache", check=False)
    assert refused.returncode and "has a match that does not exist" in refused.stderr
    larder("cache", "set", "c", "congestion_read=3000")
    assert larder("cache", "get", "c", "congestion_read").stdout.strip() == "congestion_read=3000"
    stack.stop()


# ---------------------------------------------------------------- matches and actions


def test_special_by_size(make_disk):
    stack = make_stack(make_disk, **{"class": "special"})
    for i, kib in enumerate((4, 32)):
        assert not to_backing(stack, i * MIB, kib * KIB)
        assert fills(stack, (32 + i) * MIB, kib * KIB)
    for i, kib in enumerate((33, 64, 1024)):
        assert to_backing(stack, (8 + i) * MIB, kib * KIB)
        assert not fills(stack, (40 + 2 * i) * MIB, kib * KIB)
    n = counts(stack, "class_writes")
    assert len(n) == 4 and n[1] == 2 and n[2] >= 3 and n[0] == n[3] == 0
    assert counts(stack, "class_write_sectors")[1:3] == [36 * KIB, 1121 * KIB]
    assert counts(stack, "class_read_sectors")[2] >= 2 * 1121 * KIB
    stack.stop()


def test_the_rest_of_a_request_stays_in_its_class(make_disk):
    """A large read that is cut where something is cached leaves small pieces: they are no small requests."""
    stack = make_stack(make_disk, **{"class": "special"})
    v = stack.volume
    holes = (0, 8, 100 * KIB, 500 * KIB, 504 * KIB + 8, 1016 * KIB, 1020 * KIB)
    data = bytearray(os.urandom(1024 * 1024))
    before = v.status()["cached_sectors"]
    v.write(0, bytes(data))
    for at in holes:
        data[at * 512 : at * 512 + 4096] = os.urandom(4096)
        v.write(at, bytes(data[at * 512 : at * 512 + 4096]))
    settle(stack)
    cached = v.status()["cached_sectors"]
    assert cached - before == 8 * len(holes)
    for _ in range(3):
        assert v.read(0, MIB) == data
        settle(stack)
    s = v.status()
    assert s["cached_sectors"] == cached and s["fills"] == 0, "a piece was taken for a small request"
    assert counts(stack, "class_read_sectors") == [0, 0, 3 * MIB, 0]
    # the same of a write that goes past the cache: where nothing is dirty
    v.drain()
    v.write(0, os.urandom(1024 * 1024))
    assert v.status()["dirty_sectors"] == 0
    stack.stop()


def test_the_rest_of_what_no_rule_matched(make_disk):
    """A read of 128 KiB is in no class.  It is cut where something is cached, and its end is as small as what the only rule is
    about: it is cached with all the rest."""
    stack = make_stack(make_disk)
    v, hole, tail, end = stack.volume, 104 * KIB, 108 * KIB, 128 * KIB
    data = bytearray(os.urandom(end * 512))
    stack.hdd.write(DATA_SECTOR, bytes(data))
    for at in (0, hole):
        data[at * 512 : at * 512 + 4096] = os.urandom(4096)
        v.write(at, bytes(data[at * 512 : at * 512 + 4096]))
    settle(stack)
    v.set(**{"class": "size-32:bypass"})
    assert v.read(0, end) == data
    assert counts(stack, "class_read_sectors") == [0, end]
    assert counts(stack, "class_reads") == [0, 4], "what is cached, a hole, what is cached, the end"
    settle(stack)
    assert v.read(tail, end - tail) == data[tail * 512 :]
    assert moved(stack.hdd, "r") == 0, "the end was not cached"
    assert counts(stack, "class_reads") == [1, 4], "by itself it is what the rule is about"
    stack.stop()


@contextlib.contextmanager
def written_back_by_the_flusher() -> Iterator[None]:
    """Dirty pages go out by themselves, at once: nobody waits for them, so they carry no REQ_SYNC."""
    names = {"dirty_background_bytes": 1, "dirty_expire_centisecs": 1, "dirty_writeback_centisecs": 1}
    where = {n: Path("/proc/sys/vm", n) for n in names}
    ratio = Path("/proc/sys/vm/dirty_background_ratio")
    before = {n: p.read_text() for n, p in where.items()}, ratio.read_text()
    for n, value in names.items():
        where[n].write_text(str(value))
    try:
        yield
    finally:
        for n in ("dirty_expire_centisecs", "dirty_writeback_centisecs"):
            where[n].write_text(before[0][n])
        ratio.write_text(before[1])


def test_log_takes_sync_writes_only(make_disk):
    stack = make_stack(make_disk, **{"class": "log"})
    for i, kib in enumerate((4, 256)):
        assert not to_backing(stack, i * MIB, kib * KIB)  # O_DIRECT: somebody waits
        assert not fills(stack, (32 + i) * MIB, kib * KIB)
    size = 1 << 20
    stack.hdd.reset_stats()
    with written_back_by_the_flusher(), open(stack.volume.path, "r+b", buffering=0) as f:
        f.seek(16 << 20)
        for _ in range(size >> 12):
            f.write(os.urandom(4096))
        wait_for(lambda: moved(stack.hdd, "w") * 512 >= size, 60, "the flusher")
    n = counts(stack, "class_write_sectors")
    assert n[0] == 260 * KIB and n[1] >= size // 512
    stack.stop()


def test_actions(make_disk):
    stack = make_stack(make_disk, sequential_cutoff=256)
    v = stack.volume

    def use(text: str) -> None:
        v.set(**{"class": text})

    use("any:write-only")
    assert not to_backing(stack, 0, 8) and not fills(stack, 32 * MIB, 8)
    use("any:read-only")
    assert to_backing(stack, 1 * MIB, 8) and fills(stack, 33 * MIB, 8)
    use("any:bypass")
    assert to_backing(stack, 2 * MIB, 8) and not fills(stack, 34 * MIB, 8)
    use("everything")
    assert not to_backing(stack, 4 * MIB, 2 * MIB), "longer than sequential_cutoff, and cached"
    use("default")
    assert to_backing(stack, 8 * MIB, 2 * MIB)
    use("sequential+write:cache/sequential:bypass")
    assert not to_backing(stack, 12 * MIB, 2 * MIB)
    use("lba-131072-132096:bypass")
    assert [to_backing(stack, s, 8) for s in (131064, 131072, 132088, 132096)] == [False, True, True, False]
    use("read:bypass")
    assert not to_backing(stack, 70 * MIB, 8) and not fills(stack, 71 * MIB, 8)
    stack.stop()


def test_streams_where_they_are_faster(make_disk):
    """sequential_cutoff=auto: what is not known, and room, decide here; what is measured: tests/unit/test_speed.c."""
    stack = make_stack(make_disk, sequential_cutoff="auto")
    v = stack.volume
    assert " sequential_cutoff auto" in v.table() and v.status()["sequential_cutoff"] == "auto"
    v.reload(v.table())
    assert not any(v.status()[f"stream_{way}_{side}"] for way in ("read", "write") for side in ("ssd", "backing"))
    v.read(100 * MIB, 8 * MIB)
    settle(stack)
    assert v.status()["fill_sectors"] <= 5 * MIB, "a stream of reads, and nothing is known of the SSD"
    assert v.status()["stream_read_backing"] and not v.status()["stream_read_ssd"]
    assert not to_backing(stack, 0, 8 * MIB), "there is room, and nothing is known of the backing"
    assert v.status()["stream_write_ssd"] and not v.status()["stream_write_backing"]
    v.drain()
    v.set(sequential_cutoff=0)
    v.write(16 * MIB, os.urandom(32 << 20))
    v.set(sequential_cutoff="auto")
    data = os.urandom(8 << 20)
    stack.hdd.reset_stats()
    v.write(120 * MIB, data)
    assert 3 * MIB <= moved(stack.hdd, "w") < 9 * MIB, "half of the cache is dirty: no room, but perhaps for the beginning"
    assert v.read(120 * MIB, 8 * MIB) == data and v.status()["stream_write_backing"]
    v.drain()
    v.set(mode="writethrough")
    stack.hdd.reset_stats()
    before = v.status()["write_bypass"]
    v.write(140 * MIB, data)
    assert v.status()["write_bypass"] > before, "it goes to the backing in any case: past the cache"
    assert 8 * MIB <= moved(stack.hdd, "w") < 9 * MIB, "and its superblock, as nothing is dirty any more"
    stack.stop()


def test_second_miss(make_disk):
    stack = make_stack(make_disk, sequential_cutoff=0, admit="second-miss")
    v = stack.volume
    assert not fills(stack, 8 * MIB, 8), "its first miss"
    settle(stack)
    assert v.read(8 * MIB, 8) and not moved(stack.hdd, "r"), "the second one has filled"
    assert (v.status()["fills_first"], v.status()["fills"]) == (1, 1)
    assert not to_backing(stack, 24 * MIB, 8), "writes are cached at once"
    v.set(**{"class": "any:pin-50"})
    assert fills(stack, 16 * MIB, 8), "pinned"
    v.set(**{"class": "default", "admit": "always"})
    assert fills(stack, 32 * MIB, 8)
    assert v.status()["fills_first"] == 1
    stack.stop()


def test_ioprio(make_disk):
    stack = make_stack(make_disk, **{"class": "ioprio-idle:bypass/ioprio-rt:cache/any:cache"})

    def writes(*ionice: object) -> int:
        stack.hdd.reset_stats()
        dd = ("dd", "if=/dev/urandom", f"of={stack.volume}", "bs=4k", "count=4", "oflag=direct", "conv=notrunc", "seek=1000")
        command.run("ionice", *ionice, *dd)
        return stack.hdd.stats()["writes"]

    assert writes("-c", "3") == 4
    assert writes("-c", "1") == 0
    assert counts(stack, "class_writes") == [4, 4, 0, 0]
    stack.stop()


def test_readahead_alone(make_disk, trace):
    """Reads of the page cache that nobody waits for yet, told from direct ones of the same size."""
    stack = make_stack(make_disk, **{"class": "readahead:bypass/any:cache"})
    v = stack.volume

    def ahead(sector: int) -> bool:
        """Is it cached behind being read ahead?"""
        settle(stack)
        fd = os.open(v.path, os.O_RDONLY)
        os.posix_fadvise(fd, sector * 512, 64 << 10, os.POSIX_FADV_WILLNEED)
        os.pread(fd, 64 << 10, sector * 512)
        os.close(fd)
        settle(stack)
        v.read(sector, 128)
        return not moved(stack.hdd, "r")

    assert not ahead(10 * MIB)
    reads = counts(stack, "class_reads")
    assert reads[0] > 0 and any("rahead" in c.flags for c in trace.commands(stack.hdd, "read"))
    assert counts(stack, "class_read_sectors")[0] >= 64
    assert fills(stack, 12 * MIB, 128)
    assert counts(stack, "class_reads")[0] == reads[0], "a direct one is none"
    v.set(**{"class": "readahead:cache/any:bypass"})
    assert ahead(20 * MIB) and not fills(stack, 22 * MIB, 128)
    stack.stop()


@pytest.mark.parametrize("action", ["cache", "bypass"])
def test_metadata_alone(make_disk, tmp_path, trace, action):
    """What a filesystem marks as metadata goes one way, and what files hold the other one: by the flags of what the disk gets."""
    stack = make_stack(make_disk, hdd={"mb": 128}, **{"class": "any:bypass"})
    v = stack.volume
    command.run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", v)
    v.flush()
    assert not v.status()["cached_sectors"]
    v.set(**{"class": f"metadata:{action}/any:{'bypass' if action == 'cache' else 'cache'}"})
    trace.clear()
    command.run("mount", v, tmp_path)
    for i in range(40):
        (tmp_path / f"d{i % 4}").mkdir(exist_ok=True)
        (tmp_path / f"d{i % 4}" / f"{i}").write_bytes(os.urandom(20000))
    os.sync()
    command.run("umount", tmp_path)
    done = [c for c in trace.commands(stack.hdd) if c.sector >= DATA_SECTOR and c.op in ("read", "write")]
    marked = [bool(c.flags & {"meta", "prio"}) for c in done if c.op == "write"]
    print(f"{sum(marked)} writes of metadata, {len(marked) - sum(marked)} others on the disk; {v.status()['class_write_sectors']}")
    metadata, others, _ = counts(stack, "class_write_sectors")
    assert metadata >= 64 and others >= 40 * 40
    assert marked and not any(marked) if action == "cache" else all(marked) and marked
    assert v.status()["dirty_sectors"]
    command.run("mount", "-o", "ro", v, tmp_path)
    assert len(list(tmp_path.glob("d*/*"))) == 40
    command.run("umount", tmp_path)
    stack.stop()


def test_dirty_data_is_never_passed_by(make_disk):
    """Rule 5: what the class would send to the backing goes to the cache where it is dirty, and is read from there."""
    stack = make_stack(make_disk)
    v = stack.volume
    first = os.urandom(64 * 1024)
    v.write(0, first)
    v.set(**{"class": "any:bypass"})
    stack.hdd.reset_stats()
    second = os.urandom(8 * 1024)
    v.write(32, second)
    assert moved(stack.hdd, "w") == 0
    assert v.read(0, 128) == first[: 16 * 1024] + second + first[24 * 1024 :]
    assert moved(stack.hdd, "r") == 0
    v.set(writeback="on")
    v.drain()
    third = os.urandom(8 * 1024)
    stack.hdd.reset_stats()
    v.write(32, third)
    assert moved(stack.hdd, "w") == 16
    assert v.read(0, 128) == first[: 16 * 1024] + third + first[24 * 1024 :]
    stack.restart()
    assert stack.volume.read(0, 128) == first[: 16 * 1024] + third + first[24 * 1024 :]
    stack.stop()


# ---------------------------------------------------------------- metadata


def read_metadata(stack: Stack, fs: str, where: Path) -> int:
    """Sectors that come from the backing for all metadata, after a cold start; the filesystem stays mounted."""
    stack.restart()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    stack.hdd.reset_stats()
    with simdisk.Trace() as trace:
        command.run("mount", "-t", fs, "-o", "ro", stack.volume, where)
        names = [os.path.join(d, f) for d, _, files in os.walk(where) for f in files]
        assert sum(os.stat(n).st_size for n in names) == 600 * 5000 + (64 << 20)
        for c in trace.commands(stack.hdd, "read"):
            print(f"{fs}: metadata from the backing:", c.sector, c.sectors, *sorted(c.flags))
    return moved(stack.hdd, "r")


MKFS = {"ext4": ("-E", "lazy_itable_init=0,lazy_journal_init=0"), "xfs": ()}


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_special_on_a_filesystem(make_disk, tmp_path, fs):
    """After a copy of small files and a big one, and a cold start: all metadata comes from the SSD, and the big file does not."""
    stack = make_stack(make_disk, {"mb": 128}, {"mb": 512}, **{"class": "special"})
    command.run(f"mkfs.{fs}", "-q", *MKFS[fs], stack.volume)
    where = tmp_path / "mnt"
    where.mkdir()
    command.run("mount", "-t", fs, stack.volume, where)
    for i in range(600):
        d = where / str(i % 12)
        d.mkdir(exist_ok=True)
        (d / f"{i:04}").write_bytes(os.urandom(5000))
    with open(where / "big", "wb") as f:
        for _ in range(64):
            f.write(os.urandom(1 << 20))
    command.run("umount", where)
    stack.volume.drain()
    # what mkfs wrote in large requests may not have been filled by the first mount: a write was near by
    assert read_metadata(stack, fs, where) <= 64
    command.run("umount", where)
    assert read_metadata(stack, fs, where) == 0
    names = sorted(os.path.join(d, f) for d, _, files in os.walk(where) for f in files)
    small = [n for n in names if not n.endswith("big")]
    assert sum(len(Path(n).read_bytes()) for n in small) == 600 * 5000
    print(f"{fs}: {moved(stack.hdd, 'r')} sectors with the small files")
    assert moved(stack.hdd, "r") <= 600 * 16 // 20, "the small files are to come from the SSD"
    stack.hdd.reset_stats()
    assert len((where / "big").read_bytes()) == 64 << 20
    assert moved(stack.hdd, "r") >= 63 * MIB, "the big file is not to be on the SSD"
    command.run("umount", where)
    stack.stop()


# ---------------------------------------------------------------- pins and shares


def churn(stack: Stack, first: int, mib: int) -> None:
    """Reads so much once, in pieces that fill."""
    for at in range(first * MIB, (first + mib) * MIB, 256 * KIB):
        stack.volume.read(at, 256 * KIB)


def test_pinned_data_stays(make_disk):
    stack = make_stack(make_disk, {"mb": 48}, sequential_cutoff=0, **{"class": "lba-0-8192:pin-30/any:cache"})
    v = stack.volume
    data = os.urandom(2 << 20)
    for at in range(0, 2 * MIB, 64 * KIB):
        v.write(at, data[at * 512 : (at + 64 * KIB) * 512])
    for at in range(2 * MIB, 4 * MIB, 64 * KIB):
        v.read(at, 64 * KIB)
    for at in range(4 * MIB, 6 * MIB, 64 * KIB):  # the same, but not pinned
        v.write(at, data[(at - 4 * MIB) * 512 : (at - 4 * MIB + 64 * KIB) * 512])
    v.drain()
    settle(stack)
    assert v.status()["pinned_sectors"] == 4 * MIB == stack.cache.status()["pinned_sectors"]
    churn(stack, 16, 150)
    s = stack.cache.status()
    assert s["reclaimed"] > s["segments"], "all of it was to be turned over"
    settle(stack)
    assert v.read(0, 2 * MIB) == data
    v.read(2 * MIB, 2 * MIB)
    gone = moved(stack.hdd, "r")
    assert (gone, v.status()["pinned_sectors"]) == (0, 4 * MIB)
    stack.hdd.reset_stats()
    assert v.read(4 * MIB, 2 * MIB) == data
    assert moved(stack.hdd, "r") > MIB, "what is not pinned has gone"
    v.set(**{"class": "default"})
    assert v.status()["pinned_sectors"] == 0 == stack.cache.status()["pinned_sectors"]
    stack.stop()


def test_pinned_data_stays_beside_a_write(make_disk):
    """In the same 2 MiB one is in flight all the time that reclaim takes."""
    ssd, hdd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1), make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0, "class": f"lba-0-{MIB}:pin-30/any:cache"}
    stack = Stack(ssd, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)
    v = stack.volume
    data = os.urandom(MIB * 512)
    for at in range(0, MIB, 8):  # a third of each segment: it is emptied, and what is pinned moved
        v.write(at, data[at * 512 : (at + 8) * 512])
        v.write(32 * MIB + 2 * at, os.urandom(8192))
    v.drain()
    v.read(0, MIB)
    v.write(40 * MIB, os.urandom(MIB * 512))  # the segments before are sealed
    v.drain()
    v.set(mode="writearound")
    assert v.status()["pinned_sectors"] == MIB and v.status()["cached_sectors"] == 4 * MIB
    there = 2048 + MIB + 512  # on the backing
    hdd.fail(op="write", from_=there, to=there + 8, status="ok", delay_ms=90000, count=1)
    with contextlib.ExitStack() as held:
        writer = threading.Thread(target=v.write, args=(MIB + 512, os.urandom(4096)))
        writer.start()
        held.callback(writer.join)
        wait_for(lambda: hdd.faults()[0]["hits"], 30, "the write")
        for _ in range(3):
            with contextlib.suppress(OSError):  # EAGAIN: what stays is all there is
                stack.cache.message("reclaim", 100)
        assert v.status()["cached_sectors"] <= MIB + MIB // 8, "the others were dropped, but for what is in the last segment"
        assert writer.is_alive() and v.status()["pinned_sectors"] == MIB
    time.sleep(0.2)  # reclaim's break behind what it could not move
    kept = stack.cache.status()["reclaim_kept_slots"]
    stack.cache.message("reclaim", 100)
    assert stack.cache.status()["reclaim_kept_slots"] >= kept + MIB // 8, "moved, now"
    hdd.reset_stats()
    assert v.status()["pinned_sectors"] == MIB and v.read(0, MIB) == data and not moved(hdd, "r")
    stack.stop()


def test_pinned_data_lets_others_go(make_disk):
    """Segments full of it do not cool, so they would be looked at, and put back, for ever."""
    ssd, hdd = make_disk("ssd0", model="null", mb=32, wce=1, fua=1), make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0, "class": f"lba-0-{16 * MIB}:pin-75/any:cache"}
    stack = Stack(ssd, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)
    v, size = stack.volume, 16 * MIB
    for sector in range(0, size, MIB):
        v.write(sector, os.urandom(MIB * 512))
    v.drain()
    for sector in range(0, size, MIB):
        v.read(sector, MIB)
    stack.cache.message("reclaim", stack.cache.status()["segments"])  # put back young, in the queue of what stays
    assert v.status()["pinned_sectors"] == size
    v.write(32 * MIB, os.urandom(MIB * 512))
    v.write(40 * MIB, os.urandom(MIB * 512))
    v.drain()
    others = v.status()["cached_sectors"] - size
    with contextlib.suppress(OSError):
        stack.cache.message("reclaim", 20)
    status = v.status()
    assert status["pinned_sectors"] == size and status["cached_sectors"] - size <= others - MIB
    stack.stop()


def test_pins_where_all_is_mirrored(make_disk):
    """What is pinned takes two places: its share is one of half the space, and leaves others theirs."""
    ssds = [make_disk(f"ssd{i}", model="null", mb=32, wce=1, fua=1) for i in range(2)]
    hdd = make_disk("hdd0", model="null", mb=128, wce=1)
    options = {"cache_mirror": "all", "sequential_cutoff": 0, "class": f"lba-0-{64 * MIB}:pin-75/any:cache"}
    stack = Stack(ssds, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)
    v = stack.volume
    for sector in range(0, 64 * MIB, MIB):
        v.write(sector, os.urandom(MIB * 512))
    v.drain()
    room = stack.cache.status()["segments"] * stack.cache.status()["segment_sectors"] // 2
    assert room // 2 < v.status()["pinned_sectors"] <= room * 3 // 4
    before = v.status()["write_cached_sectors"]
    for sector in range(96 * MIB, 112 * MIB, MIB):
        v.write(sector, os.urandom(MIB * 512))
    assert v.status()["write_cached_sectors"] >= before + 12 * MIB, "there is space for others"
    assert v.status()["pinned_sectors"] > room // 2
    stack.stop()


@pytest.mark.limit(1800)
def test_guaranteed_in_small_pieces(make_disk, make_oracle):
    """Each takes a slot of 4 KiB, so that a share of the sectors is all there is: writes go on all the same."""
    ssd, hdd = make_disk("ssd0", model="null", mb=24, wce=1, fua=1), make_disk("hdd0", model="null", mb=128, wce=1)
    options = {"share_min": 75, "sequential_cutoff": 0}
    stack = Stack(ssd, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)
    oracle = make_oracle(stack.volume, size="96m")
    oracle.run(ops=8000, mix="write=1", sizes="1k:100", qd=16)
    assert stack.cache.status()["reclaimed"] > 20
    oracle.verify()
    stack.stop()


@pytest.mark.limit(300)
def test_guaranteed_beside_what_cannot_be_written_back(make_disk, make_oracle):
    """All that could be emptied is guaranteed, but for some segments, full of what belongs to a volume that is stopped: who looks
    for space does not look at these for ever."""
    ssd, hdd, other = (make_disk(n, model="null", mb=mb, wce=1, fua=1) for n, mb in (("ssd0", 24), ("hdd0", 128), ("hdd1", 64)))
    options = {"share_min": 75, "sequential_cutoff": 0}
    stack = Stack(ssd, hdd, format_cache=("--segment-size", "128k"), format_volume=("--cache", "c"), **options)
    Volume.format("w", other, "--cache", "c")
    stuck = Volume.start(other, stack.cache, name="w", writeback="off", sequential_cutoff=0)
    stuck.write(0, bytes(200 << 10))  # few segments: by their number nothing would be found out soon
    stuck.remove()
    oracle = make_oracle(stack.volume, size="96m")
    oracle.run(ops=8000, mix="write=1", sizes="1k:100", qd=16)
    assert stack.cache.status()["reclaimed"] > 20 and stack.cache.status()["dirty_sectors"] >= 400
    oracle.verify()
    stack.stop()


def test_pins_keep_to_their_share(make_disk):
    stack = make_stack(make_disk, sequential_cutoff=0, **{"class": "any:pin-10"})
    v = stack.volume
    size = stack.cache.status()["segments"] * stack.cache.status()["segment_sectors"]
    churn(stack, 0, 24)
    settle(stack)
    pinned = v.status()["pinned_sectors"]
    assert size // 20 < pinned <= size // 10
    assert v.status()["cached_sectors"] >= 2 * pinned, "the rest is cached all the same"
    v.write(0, os.urandom(24 << 20))
    v.discard(0, 24 * MIB)
    v.drain()
    assert v.status()["pinned_sectors"] == 0 == stack.cache.status()["pinned_sectors"]
    stack.restart()
    assert stack.volume.status()["pinned_sectors"] == 0
    stack.stop()


def test_share_max(make_disk, make_oracle):
    stack = make_stack(make_disk, sequential_cutoff=0, share_max=20, writeback="on")
    v = stack.volume
    size = stack.cache.status()["segments"] * stack.cache.status()["segment_sectors"]
    churn(stack, 0, 40)
    settle(stack)
    s = v.status()
    assert size // 10 < s["cached_sectors"] <= size // 4 and s["fills_over_share"] > 0
    assert to_backing(stack, 100 * MIB, 128 * KIB)
    assert v.status()["write_over_share"] == 1
    oracle = make_oracle(v, size="32m")
    oracle.run(ops=1500, sizes="16k:60,128k:40")
    oracle.verify()
    assert v.status()["cached_sectors"] <= size * 3 // 10, "what is written over dirty data goes to the cache"
    v.set(share_max=100)
    assert not to_backing(stack, 110 * MIB, 128 * KIB)
    stack.verify_alone(oracle)


@pytest.mark.parametrize("share", [0, 25])
def test_share_min(make_disk, share):
    """A volume with a guaranteed share keeps it while another reads more than the cache holds; one without does not."""
    stack = make_stack(make_disk, sequential_cutoff=0, share_min=share)
    other_disk = make_disk("hdd1", model="null", mb=256, wce=1)
    Volume.format("w", other_disk, "--cache", "c")
    other = Volume.start(other_disk, stack.cache, "w", sequential_cutoff=0)
    churn(stack, 0, 6)
    settle(stack)
    mine = stack.volume.status()["cached_sectors"]
    assert mine >= 6 * MIB * 9 // 10
    for at in range(0, 150 * MIB, 256 * KIB):
        other.read(at, 256 * KIB)
    assert stack.cache.status()["reclaimed"] > stack.cache.status()["segments"]
    left = stack.volume.status()["cached_sectors"]
    assert left >= mine * 9 // 10 if share else left < mine // 2
    other.remove()
    stack.stop()


# ---------------------------------------------------------------- whole stripes


STRIPE = 512  # sectors


def test_whole_stripes_go_to_the_array(make_disk):
    array = {"io_min": 64 << 10, "io_opt": STRIPE * 512}
    # a record holds more than a stripe: a write that is deferred is cut to what one holds
    stack = make_stack(make_disk, {"mb": 128}, array, sequential_cutoff=0, format_cache=("--segment-size", "2m"))
    v = stack.volume
    assert to_backing(stack, 0, STRIPE) and to_backing(stack, 4 * STRIPE, 2 * STRIPE)
    assert not to_backing(stack, 10 * STRIPE, STRIPE - 8) and not to_backing(stack, 12 * STRIPE + 8, STRIPE)
    assert v.status()["write_stripes"] == 2
    # the stripe within a larger write: what is before and behind it stays in the cache
    stack.hdd.reset_stats()
    with simdisk.Trace() as trace:
        data = os.urandom((STRIPE + 24) * 512)
        v.write(21 * STRIPE - 16, data)
        writes = trace.commands(stack.hdd, "write")
    assert [c.sectors for c in writes] == [STRIPE] and (writes[0].sector) % STRIPE == 0
    assert v.read(21 * STRIPE - 16, STRIPE + 24) == data
    # dirty in the middle: to the cache
    v.write(30 * STRIPE + 64, os.urandom(4096))
    assert not to_backing(stack, 30 * STRIPE, STRIPE)
    v.set(stripes="off")
    assert not to_backing(stack, 40 * STRIPE, STRIPE)
    stack.stop()


@pytest.mark.parametrize("limits", [{"io_min": 4096, "io_opt": 1 << 20}, {"io_min": 1 << 20, "io_opt": 1 << 20}, {}])
def test_what_is_no_array(make_disk, limits):
    """A disk that names its largest request as the best one has no stripes."""
    stack = make_stack(make_disk, hdd=limits, sequential_cutoff=0)
    assert not to_backing(stack, 0, MIB)
    assert stack.volume.status()["write_stripes"] == 0
    stack.stop()


# ---------------------------------------------------------------- readahead


def test_readahead_on_a_miss(make_disk, trace):
    stack = make_stack(make_disk)
    v, hdd = stack.volume, stack.hdd
    v.read(0, 8)
    assert v.status()["readaheads"] == 0, "off by default"
    v.set(readahead=64)
    v.write(200 * MIB // 2, b"end of what may be read ahead".ljust(512))
    settle(stack)
    trace.clear()
    v.read(MIB, 8)
    assert [c.sectors for c in trace.commands(hdd, "read")] == [8 + 64 * KIB]
    settle(stack)
    trace.clear()
    v.read(MIB + 8, 64 * KIB)
    assert trace.commands(hdd, "read") == []
    # up to what is cached, and to the end of the volume
    v.read(100 * MIB - 16, 8)
    assert [c.sectors for c in trace.commands(hdd, "read")] == [16]
    trace.clear()
    v.read(v.sectors - 24, 8)
    assert [c.sectors for c in trace.commands(hdd, "read")] == [24]
    assert v.status()["readahead_sectors"] == 64 * KIB + 8 + 16
    # an error in what nobody asked for is nobody's error
    hdd.fail(op="read", from_=2048 + 50 * MIB + 32, to=2048 + 50 * MIB + 40, status="medium")
    assert v.read(50 * MIB, 8) == bytes(4096)
    with pytest.raises(OSError):
        v.read(50 * MIB + 32, 8)
    hdd.heal()
    stack.stop()


@pytest.mark.parametrize("busy", ["reads", "writeback"])
def test_nothing_is_read_ahead_of_a_busy_backing(make_disk, trace, busy):
    """A miss beside one that the disk takes long for, or beside writeback, reads what was asked for; behind it more again."""
    stack = make_stack(make_disk, readahead=64)
    v, hdd = stack.volume, stack.hdd
    v.write(0, os.urandom(4096))
    settle(stack)
    v.read(8 * MIB, 8)
    assert v.status()["readaheads"] == 1
    settle(stack)
    if busy == "reads":
        hdd.fail(op="read", from_=DATA_SECTOR + 20 * MIB, to=DATA_SECTOR + 20 * MIB + 8, status="ok", delay_ms=10000, count=1)
        other = threading.Thread(target=lambda: v.read(20 * MIB, 8))
    else:
        hdd.fail(op="write", from_=DATA_SECTOR, to=DATA_SECTOR + 8, status="ok", delay_ms=10000, count=1)
        other = threading.Thread(target=v.drain)
    other.start()
    wait_for(lambda: hdd.state()["inflight"] > 0, 60, "what the disk takes long for")
    before = v.status()["readaheads"]
    trace.clear()
    for i in range(30, 34):
        v.read(i * MIB, 8)
    assert other.is_alive() and hdd.state()["inflight"] > 0, "it has ended too early for this test"
    assert [c.sectors for c in trace.commands(hdd, "read")] == [8] * 4
    assert v.status()["readaheads"] == before
    other.join()
    settle(stack)
    trace.clear()
    v.read(40 * MIB, 8)
    assert [c.sectors for c in trace.commands(hdd, "read")] == [8 + 64 * KIB]
    stack.stop()


# ---------------------------------------------------------------- under load


LISTS = (
    "special",
    "any:pin-20/any:cache",
    "log",
    "write:read-only/read:cache",
    "everything",
    "size-8:pin-40/lba-0-20000:pin-5/any:write-only",
    "any:bypass",
    "size-4:cache/size-16:bypass/sync:pin-10",
    "default",
)
REST = (
    *(("readahead", 128), ("share_max", 10), ("sequential_cutoff", 64), ("share_max", 100), ("sequential_cutoff", "auto")),
    *(("admit", "second-miss"), ("readahead", 0), ("share_min", 10), ("admit", "always")),
)


class ClassSwitches(Switches):
    def classes(self, number: int) -> None:
        self.volume.message("set", "class", LISTS[number % len(LISTS)])

    def rest(self, number: int) -> None:
        self.volume.message("set", *REST[number % len(REST)])


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
@pytest.mark.parametrize("stripes", [False, True])
def test_lists_change_under_load(make_disk, make_oracle, mode, stripes):
    array = {"io_min": 8192, "io_opt": 24 << 10} if stripes else {}
    at = ("--cache", "c", "--data-offset", "1M")
    stack = make_stack(make_disk, {"mb": 32}, {"mb": 128, **array}, format_volume=at, mode=mode, writeback="on")
    switches = ClassSwitches(stack.volume, stack.cache)
    oracle = make_oracle(stack.volume, size="48m")
    n = switches.run(oracle, "classes", "rest", "evict", ops=2500, every=40, sizes="16k:60,128k:35,1m:5")
    assert n >= 27
    oracle.verify()
    s = stack.volume.status()
    assert s["write_bypass"] > 0 and s["write_over_share"] > 0
    assert not stripes or s["write_stripes"] > 0
    stack.volume.set(**{"class": "default"})
    assert stack.cache.status()["pinned_sectors"] == 0
    stack.restart()
    oracle.verify()
    stack.verify_alone(oracle)
