# SPDX-License-Identifier: GPL-2.0-or-later
"""Crash states: for each workload a recording, and power cuts at its positions, in states that each may leave (tests/crash).

LARDER_CRASH_STATES=N: so many of each workload; LARDER_CRASH_SHARD=I/N: the I-th part of them.
LARDER_CRASH_DEEP=N: each N-th is also evicted, written back, started again, and cut off again, twice.
LARDER_CRASH_ALONE=N: of each N-th `larder rescue` gives what the kernel reads, here; of each it does so by tests/crash/rescue.
LARDER_CRASH_KEEP=1: recordings are kept even if nothing is wrong, for tests/crash/rescue.
LARDER_CRASH_TOTAL=N: so many at least of all workloads together.
LARDER_CRASH_AGAIN=DIRECTORY:STATE:SECOND:EXPLORATION: that state alone.
"""

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from lib import command
from lib.crash import RESULTS, Recorded, Recording, Region, mark, replay
from lib.larder import Cache, Volume, larder
from lib.mounted import Database, Files, Mounted

STATES = int(os.environ.get("LARDER_CRASH_STATES", "160"))
DEEP = int(os.environ.get("LARDER_CRASH_DEEP", "4"))
ALONE = int(os.environ.get("LARDER_CRASH_ALONE", "16"))
SHARD = os.environ.get("LARDER_CRASH_SHARD", "0/1")
TOTAL = int(os.environ.get("LARDER_CRASH_TOTAL", "0"))
AGAIN = os.environ.get("LARDER_CRASH_AGAIN")
OPS = int(os.environ.get("LARDER_CRASH_OPS", "1200"))
MB = 1 << 20

SMALL = {"mix": "read=20,write=55,fua=8,flush=12,zeroes=3,discard=2", "sizes": "8k:75,32k:22,128k:3", "qd": 8}
reports: list[dict] = []  # of explore()

IN_TIME = "for i in $(seq 100); do dmsetup message {} && exit; sleep 0.1; done; exit 1"
FLUSH_IN_TIME = IN_TIME.format("v 0 flush")  # a volume that is just being reloaded refuses it (EBUSY)
CHECKPOINT_IN_TIME = IN_TIME.format("c 0 checkpoint")  # the log may have no room for one before reclaim has made some (ENOSPC)
MODES = "n=$(($1 % 3)); set -- writeback writethrough writearound; shift $n; dmsetup message v 0 set mode $1"


def explore(r: Recording, **options: object) -> None:
    """A quarter of the states asked for at least must have been made: a recording in which nothing is at risk shows nothing."""
    options = {"states": STATES, "deep": DEEP, "cuts": 1, "alone_each": ALONE, "shard": SHARD} | options
    report = r.explore(**options)
    reports.append(report)
    assert report["states"] * int(SHARD.split("/")[1]) >= options["states"] / 4


@pytest.fixture
def recording(request, tmp_path, seed, clean_devices):
    return Recording(request.node.name.removeprefix("test_"), tmp_path, seed=seed)


def fill(ops: int, mix: str) -> Callable:
    return lambda stack, v: v.run(ops=ops, mix=mix, sizes="64k:100")


def record(recording, make_oracle, region: int, *, ssds=6, backing=16, load=SMALL, ops=OPS, before=None, **options) -> Recorded:
    """One volume under one load.  before: called with the stack and the region, ahead of the judged part."""
    with recording as r:
        stack = Recorded(r, ssds, backing, **options)
        v = r.add_region("v", stack.hdd, make_oracle(stack.volume, size=region), region)
        if before:
            before(stack, v)
        r.begin()
        v.run(ops=ops, **load)
        if stack.volume:
            stack.stop()
    return stack


@pytest.mark.limit(36000)
def test_writes(recording, make_oracle):
    """Overlapping and neighbouring writes, flushes and FUA; nothing needs space."""
    record(recording, make_oracle, 3 * MB, ssds=12)
    explore(recording)


@pytest.mark.limit(36000)
def test_wrap(recording, make_oracle):
    """A cache at 100 %: reclaim, checkpoints and the end of the log, all the time; segments are used again at once."""
    load = SMALL | {"control": "dmsetup message c 0 checkpoint; dmsetup message c 0 reclaim 2", "every": 60}
    record(recording, make_oracle, 10 * MB, load=load, before=fill(500, "write=9,read=1"))
    explore(recording)


@pytest.mark.limit(36000)
def test_clean_wrap(recording, make_oracle):
    """The same with most of the cache clean: reclaim gives back what a checkpoint still maps."""
    load = SMALL | {
        "mix": "read=60,write=25,fua=4,flush=8",
        "control": f"dmsetup message v 0 flush; dmsetup message c 0 reclaim 3; {CHECKPOINT_IN_TIME}",
        "every": 40,
    }
    record(recording, make_oracle, 10 * MB, load=load, before=fill(400, "write=1,read=9"))
    explore(recording)


@pytest.mark.limit(36000)
def test_writeback(recording, make_oracle):
    """Writeback at full speed under overwrites."""
    load = SMALL | {"control": "dmsetup message v 0 flush", "every": 15}
    record(recording, make_oracle, 2 * MB, ssds=12, load=load, writeback_percent=0)
    explore(recording)


@pytest.mark.limit(36000)
def test_buffered(recording, make_oracle):
    """Writes acknowledged from memory: a flush, and FUA, are all that counts."""
    load = SMALL | {"control": "dmsetup message v 0 flush", "every": 100}
    record(recording, make_oracle, 3 * MB, ssds=12, load=load, cache_commit="buffered")
    explore(recording)


@pytest.mark.limit(36000)
@pytest.mark.parametrize("mode", ["writethrough", "writearound"])
def test_through(recording, make_oracle, mode):
    """Misses that fill, racing writes that bypass."""
    load = SMALL | {"mix": "read=45,write=35,fua=5,flush=10,zeroes=2,discard=3"}
    record(recording, make_oracle, 6 * MB, ssds=8, load=load, mode=mode)
    explore(recording)


@pytest.mark.limit(36000)
def test_modes(recording, make_oracle):
    """Switches between the three modes under load, with discards."""
    load = SMALL | {"mix": "read=30,write=45,fua=5,flush=10,zeroes=3,discard=7", "control": MODES, "every": 50}
    record(recording, make_oracle, 5 * MB, ssds=8, load=load)
    explore(recording)


@pytest.mark.limit(36000)
def test_mirror(recording, make_oracle):
    """Two SSDs; after the cut both are there, or one of them is lost."""
    stack = record(recording, make_oracle, 5 * MB, ssds=[8, 8])
    explore(recording)
    for missing in (0, 1):
        without(recording, stack, missing)


@pytest.mark.limit(36000)
def test_mirror_of_three(recording, make_oracle):
    """Three copies; after the cut all SSDs are there, or any one of them alone.  What is clean gives copies up, all the time."""
    load = SMALL | {"control": "dmsetup message v 0 flush", "every": 60}
    stack = record(recording, make_oracle, 5 * MB, ssds=[8, 8, 8], load=load, cache_mirror="dirty:3")
    explore(recording)
    for missing in ((0, 1), (0, 2), (1, 2)):
        without(recording, stack, *missing)


def without(r: Recording, stack: Recorded, *missing: int, **options: object) -> None:
    r.tables, r.alone = stack.lines(*missing), stack.rescue(*missing)
    explore(r, **options)


@pytest.mark.limit(36000)
def test_bypass(recording, make_oracle):
    """What is large bypasses the cache, under marks, over and beside what is small, which is cached."""
    load = SMALL | {"sizes": "4k:60,16k:25,64k:15", "control": "dmsetup message v 0 flush", "every": 100}
    record(recording, make_oracle, 4 * MB, ssds=12, load=load, **{"class": "size-8:cache/any:bypass"})
    explore(recording)


@pytest.mark.limit(36000)
def test_superblocks(recording, make_oracle):
    """Superblocks and tables written all the time: descriptions, modes, checkpoints."""
    stacks = "for d in c v; do dmsetup message $d 0 stack $(printf %08x $1); done"
    load = SMALL | {"control": f"{stacks}; {MODES}", "every": 8}
    record(recording, make_oracle, 3 * MB, ssds=8, load=load)
    explore(recording)


@pytest.mark.limit(36000)
def test_growth(recording, make_oracle):
    """Twice the backing grows, and the volume by reload, in use; what is new is written at once, across the old end.  Started with
    all the room there is: the growth goes on; and with as little as the superblock allows."""
    sizes = (12, 16, 20)
    with recording as r:
        stack = Recorded(r, 8, sizes[-1], part=sizes[0])
        first = r.add_region("v", stack.disk, make_oracle(stack.volume, size=2 * MB), 2 * MB)
        lines = stack.lines()[-1:]
        r.begin()
        for mib in sizes[1:]:
            load = first.start(ops=OPS // 3, control=FLUSH_IN_TIME, every=80, **SMALL)
            offset = stack.volume.sectors * 512 - MB
            stack.hdd.resize(mib)
            larder("volume", "resize", "v")
            stack.sectors = stack.volume.sectors
            lines += stack.lines()[-1:]
            new = make_oracle(stack.volume, size=2 * MB, offset=offset)
            r.add_region("v", stack.disk, new, 2 * MB, offset=offset).run(ops=OPS // 6, **SMALL)
            load.wait()
        (cache, _) = stack.lines()
        stack.stop()
        stack.hdd.remove()
    below = [("b", f"0 {stack.disk.sectors} linear {stack.disk} 0"), cache]
    r.tables = [*below, lines[-1]]
    explore(r)
    r.tables = below + lines
    explore(r)


@pytest.mark.limit(36000)
def test_members(recording, make_oracle):
    """An SSD joins, the first one leaves, and joins again, under load; what a cut leaves starts with the SSDs that are members.
    Between joining and leaving each of the two may be lost."""

    def during(*words: object) -> None:
        load = v.start(ops=OPS // 4, **SMALL)
        larder(*words)
        load.wait()

    with recording as r:
        stack = Recorded(r, [8, 8], members=1)
        v = r.add_region("v", stack.disk, make_oracle(stack.volume, size=3 * MB), 3 * MB)
        a, b = stack.made
        r.begin()
        during("cache", "add", "c", b, "--yes")
        mark("joined")
        v.run(ops=OPS // 6, **SMALL)
        mark("leaving")
        during("cache", "remove", "c", a)
        during("cache", "add", "c", a, "--yes")
        v.run(ops=OPS // 12, **SMALL)
        stack.stop()
    stack.ssd = [a, b]
    cache, volume = stack.lines()
    there = ([a], [a, None], [None, b])
    r.tables = [cache, *(("c", Cache.line(ssds, **stack.cache_options)) for ssds in there), volume]
    sets = (f"--cache {a} --cache {b}", f"--cache {a}", f"--cache {a} --degraded", f"--cache {b} --degraded")
    r.alone = " || ".join(f"larder rescue writeback {stack.disk} {s} --keep-cache --yes >/dev/null" for s in sets)
    explore(r)
    for missing in (0, 1):
        without(r, stack, missing, begin="joined", end="leaving", states=STATES // 4)


@pytest.mark.limit(36000)
def test_removal(recording, make_oracle):
    """Beside a load another volume of the cache comes, is written to, and goes: detached, or forgotten with what is dirty."""
    with recording as r:
        stack = Recorded(r, 8)
        v = r.add_region("v", stack.hdd, make_oracle(stack.volume, size=3 * MB), 3 * MB)
        backing = r.make_disk("hdd1", 12)
        r.begin()
        load = v.start(ops=OPS, control="dmsetup message c 0 checkpoint; dmsetup message v 0 flush", every=100, **SMALL)
        for i in range(6):
            uuid = larder("super", "show", backing, "-o", "uuid", "--noheadings").stdout.strip() if i else None
            again = ("--wipe", "--discard-dirty", uuid) if i % 2 else ("--wipe",) if i else ()
            Volume.format(f"w{i}", backing, "--cache", "c", *again)
            w = Volume.start(backing, stack.cache, name="w")
            make_oracle(w, size=2 * MB, unknown=True).run(ops=60, **SMALL)
            if i % 2:
                w.set(mode="writethrough")
                w.drain()
                w.reload(Volume.line(backing, None, w.sectors))
                w.remove()
            else:
                w.remove()
                uuid = larder("super", "show", backing, "-o", "uuid", "--noheadings").stdout.strip()
                stack.cache.message("forget", uuid, "discard_dirty")
        load.wait()
        stack.stop()
    explore(recording)


@pytest.mark.limit(36000)
def test_attach(recording, make_oracle):
    """Detached, used without the cache, attached again under load; the cuts hit each step."""

    def turns(stack: Recorded, v: Region) -> None:
        recording.begin()
        for _ in range(4):
            v.run(ops=OPS // 12, **SMALL)
            stack.detach()
            load = v.start(ops=OPS // 6, **SMALL)
            stack.attach()
            load.wait()
            stack.volume.set(mode="writeback")

    with recording as r:
        stack = Recorded(r, 8)
        turns(stack, r.add_region("v", stack.hdd, make_oracle(stack.volume, size=3 * MB), 3 * MB))
        r.tables[-1] = ("v", Volume.line(stack.hdd, "/dev/mapper/c", stack.volume.sectors, stale="discard"))
        r.alone = f"{stack.rescue()} || [ $? = 5 ]"  # the cache does not count for a volume that ran without it
        stack.stop()
    explore(recording)


@pytest.mark.limit(36000)
def test_volumes(recording, make_oracle):
    """Two volumes of one cache, each with its own disk and load."""
    with recording as r:
        stack = Recorded(r, 8)
        backing = r.make_disk("hdd1", 16)
        other = stack.add(r, "w", backing)
        regions = [
            r.add_region("v", stack.hdd, make_oracle(stack.volume, size=3 * MB), 3 * MB),
            r.add_region("w", backing, make_oracle(other, size=3 * MB), 3 * MB),
        ]
        r.begin()
        control = f"dmsetup message v 0 flush; {CHECKPOINT_IN_TIME}"
        loads = [regions[0].start(ops=OPS // 2, control=control, every=80, **SMALL), regions[1].start(ops=OPS // 2, **SMALL)]
        for load in loads:
            load.wait()
        stack.stop()
    explore(recording)


EXT4 = (("mkfs.ext4", "-q"), "e2fsck -fn")
XFS = (("mkfs.xfs", "-q", "-f"), "xfs_repair -n")


def mounted(recording, make_oracle, size: int, make: Callable[[Volume], Mounted]) -> None:
    """One volume under the load that make() gives, beside another one under load."""
    with recording as r:
        stack = Recorded(r, 12, 8)
        v = r.add_region("v", stack.hdd, make_oracle(stack.volume, size=MB), MB)
        disk = r.make_disk("hdd1", size)
        work = make(f := stack.add(r, "f", disk))
        r.add_other(f, disk)
        r.begin()
        work.start()
        for _ in range(8):
            v.run(ops=OPS // 6, control="dmsetup message f 0 flush", every=40, **SMALL)
            if work.count > work.ENOUGH:
                break
        work.stop()
        r.check = work.check
        stack.stop()
    assert work.count > 5
    explore(recording, states=max(12, STATES // 8), deep=min(DEEP, 4))


@pytest.mark.limit(36000)
@pytest.mark.parametrize(("kind", "size"), [(EXT4, 32), (XFS, 320)], ids=["ext4", "xfs"])
def test_files(recording, make_oracle, seed, kind, size):
    """Storms of fsync, beside a load on another volume: four threads create files, append, truncate and rename over them; each
    change that was fsynced is there, none is in part, fsck finds nothing."""
    mounted(recording, make_oracle, size, lambda f: Files(f, *kind, seed))


@pytest.mark.limit(36000)
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_database(recording, make_oracle, journal):
    """SQLite, a write-ahead log or a rollback journal: each transaction that was committed is there, and none in part."""
    mounted(recording, make_oracle, 32, lambda f: Database(f, *EXT4, journal))


@pytest.mark.limit(3600)
def test_reuse(recording, make_oracle):
    """Segments of clean data are emptied, and free at once: no replay needs their records.  The newest checkpoint still maps them.
    The next one may be written there, without a SEGMENT_OPEN: each position of that, after more and more of what was free before is
    used up."""
    size, turns = 10 * MB, 6
    with recording as r:
        stack = Recorded(r, 12, cache_checkpoint_percent=50, writeback="off")
        v = r.add_region("v", stack.hdd, make_oracle(stack.volume, size=size), size)
        v.run(ops=450, mix="write=1", sizes="64k:100", qd=4)
        for i in range(turns):
            stack.volume.drain()
            v.run(ops=200, mix="read=1", sizes="64k:100", qd=4)
            for _ in range(2):
                stack.cache.message("checkpoint")
            stack.cache.message("reclaim", 24)
            v.run(ops=8 + 8 * i, mix="write=1", sizes="64k:100", qd=4)
            stack.cache.message("commit")
            mark(f"begin {i}")
            stack.cache.message("checkpoint")
            mark(f"end {i}")
        stack.stop()
    for i in range(turns):  # a dozen positions each, where few writes are open
        explore(r, begin=f"begin {i}", end=f"end {i}", states=min(60, STATES))


@pytest.mark.limit(3600)
def test_opened(recording, make_oracle):
    """Segments of clean data that both checkpoints map are emptied, opened and written to.  Nothing is flushed meanwhile, but for
    the SEGMENT_OPEN."""
    size = 10 * MB
    with recording as r:
        stack = Recorded(r, 12, cache_checkpoint_percent=50, writeback="off")
        v = r.add_region("v", stack.hdd, make_oracle(stack.volume, size=size), size)
        v.run(ops=300, mix="write=1", sizes="64k:100", qd=4)
        stack.volume.drain()
        for _ in range(2):
            stack.cache.message("checkpoint")
        free = stack.cache.status()["segments_free"]
        stack.cache.message("reclaim", 24)
        freed = stack.cache.status()["segments_free"]
        assert freed > free
        mark("begin 0")
        v.run(ops=50, mix="write=1", sizes="64k:100", qd=4)
        mark("end 0")
        stack.stop()
    explore(r, begin="begin 0", end="end 0", states=min(100, STATES))


def test_found(recording, make_oracle):
    """The judges can fail: nothing was written back without the stack, or only one of two volumes; the check says no; no table is
    taken.  One of two is."""

    def beside(stack: Recorded, _v: Region) -> None:
        disk = recording.make_disk("hdd1", 8)
        f = stack.add(recording, "f", disk)
        f.set(writeback="off")  # or, left alone for three seconds, it has nothing dirty in any state
        recording.add_other(f, disk)
        command.run("dd", "if=/dev/urandom", f"of={f}", "bs=64k", "count=4", "oflag=direct", "conv=fsync")

    stack = record(recording, make_oracle, MB, ssds=12, ops=200, before=beside)
    tables, rescue = recording.tables, recording.alone
    options = {"deep": 0, "failures": 1}
    for changes, words in (
        ({"alone": "true"}, "WRONG .*without the stack"),
        ({"alone": "false"}, "WRONG without the stack: false"),
        ({"alone": stack.rescue()}, "WRONG .*: volume f: is not what was found without the stack"),
        ({"check": "false"}, "WRONG check: false"),
        ({"tables": [tables[0], *tables[2:], ("v", Volume.line(stack.disk, "-", stack.sectors))]}, "v does not start"),
    ):
        recording.tables, recording.alone, recording.check = tables, rescue, None
        for name, value in changes.items():
            setattr(recording, name, value)
        with pytest.raises(AssertionError, match=words):
            recording.explore(states=60, **options)  # v has nothing dirty at the first positions: it may start without the cache
    recording.tables, recording.alone = [("c", "0 8 larder-cache 1 /dev/nowhere 0"), *tables], rescue
    recording.explore(states=4, **options)


def test_found_behind_a_second_cut(recording, make_oracle, tmp_path):
    """A check, or what reads without the stack, that says no there alone: the command that is printed finds that again."""
    record(recording, make_oracle, MB, ops=200)
    once = tmp_path / "once"
    rescue, recording.alone = recording.alone, f"[ ! -e {once} ] && touch {once} && {recording.alone}"
    with pytest.raises(AssertionError, match="WRONG second start, without the stack"):
        recording.explore(states=1, deep=1, failures=1)
    recording.alone = rescue
    once.unlink()
    recording.check = f"[ ! -e {once} ] && touch {once}"
    with pytest.raises(AssertionError, match=r"WRONG check \(second power cut") as raised:
        recording.explore(states=2, deep=1, failures=1)
    program, *words = shlex.split(re.search(r"^ +(tests/crash/run .*)$", str(raised.value), re.MULTILINE)[1])
    assert words[:3] == ["--kernel", os.uname().release, "--again"], program
    directory, state, second = words[3:]
    for right, check in ((False, recording.check), (True, "true")):
        once.unlink(missing_ok=True)
        argv = Path(directory) / "argv"
        argv.write_text(argv.read_text().replace(json.dumps(recording.check), json.dumps(check)))
        run = replay(Path(directory), state, second, 0)
        assert run.returncode == (0 if right else 1), run.stdout + run.stderr
        assert (f"(second power cut: {second})" in run.stdout) != right, run.stdout


@pytest.mark.skipif(not TOTAL, reason="by make check, of all workloads")
def test_total():
    """The last one: how many states there were, for the suite's verdict."""
    counts = {"states": "states", "again": "second power cuts", "alone": "read by rescue", "exhausted": "positions exhausted"}
    sums = {key: sum(r[key] for r in reports) for key in counts}
    (RESULTS / "summary-crash").write_text(f"crash: {', '.join(f'{sums[key]} {what}' for key, what in counts.items())}\n")
    assert sums["states"] >= TOTAL


@pytest.mark.skipif(not AGAIN, reason="by tests/crash/run --again")
@pytest.mark.limit(3600)
def test_again():
    directory, state, second, exploration = AGAIN.split(":")
    for mounted_there in (Files, Database):
        mounted_there.judge()
    run = replay(Path(directory), state, second, int(exploration))
    print(run.stdout, run.stderr)
    assert not run.returncode, run.stdout
