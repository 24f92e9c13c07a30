# SPDX-License-Identifier: GPL-2.0-or-later
"""larder rescue on images that tests/images/writer made: what it finds, writes, serves and refuses; damaged images; and writeback
cut off at each of its writes and flushes, by a power cut that loses what was not flushed.

Each sector of the images says of which volume sector it is, and which version: what a volume must hold is known without the
code under test.
"""

import errno
import fcntl
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import signatures
from harness import (
    BUSY,
    CACHE,
    DONE,
    FAILED,
    MIB,
    NOT_FOUND,
    SB,
    UNSAFE,
    USAGE,
    VOLUME,
    field,
    one_line,
    patch_both,
    patch_tables,
    preload,
    preloaded,
    read,
    sane,
)
from rescue_images import (
    CRASHED,
    IMAGE,
    SECTOR,
    SEGMENT,
    SLOT,
    Images,
    digest,
    dirty_of,
    read_nbd,
    served,
    unreadable,
    version,
    written,
)
from test_command_stack import OF_VOLUME, ON_VOLUME, pack

pytest_plugins = ["larder_fixtures"]
MAY_BE_DIRTY, CLEAN_VOID = 1, 4  # flags of a volume
CUT = 88  # exit code of tests/command/power_cut.c
LONGER = f"{IMAGE} --state crashed --tail 6 --fill-tail 2 --unsynced 2 --checkpoints 2"


@pytest.fixture
def crashed(larder, tools):
    return Images(larder, tools, CRASHED)


# ---------------------------------------------------------------------- what it finds


def test_check(crashed):
    before = crashed.digests()
    found = dirty_of(crashed)
    out = crashed.larder("rescue", "check", "image").stdout
    sectors, zeroes = sum(e[1] for e in found), sum(e[1] for e in found if e[2] == "zero")
    assert sectors > 1000 and zeroes > 10
    assert f"volume image: {sectors} sectors dirty, {zeroes} of them zeroes, 0 damaged" in out
    assert "checkpoint 41, epoch 3" in out
    assert crashed.digests() == before


def test_check_of_a_torn_end(crashed):
    """A power cut leaves it so: told, no finding."""
    record = crashed.run("reader", "log", crashed.ssd).decode()
    last = [line for line in record.splitlines() if line.startswith("record") and " stream=0 " in line][-1]
    at = {k: int(v) for k, v in (w.split("=") for w in last.split()[1:])}
    crashed.spoil((at["segment"] * SEGMENT + at["first"] * 4096) // SECTOR)
    out = crashed.larder("rescue", "check", crashed.ssd).stdout
    assert f"the log ends at record {at['sequence']}" in out and "as a power cut leaves it" in out


def test_list(crashed):
    found = dirty_of(crashed)
    sectors = sum(e[1] for e in found)
    run = crashed.larder("rescue", "list", crashed.ssd, "--units", "s", "--nosuffix", "--reportformat", "json")
    (row,) = json.loads(run.stdout)["volumes"]
    assert int(row["dirty"]) == sectors and row["damaged"] == "0" and row["state"] == "attached"
    assert row["name"] == "image" and row["uuid"] == crashed.uuid() and row["backing"] == str(crashed.hdd)
    run = crashed.larder("rescue", "list", crashed.ssd, "--extents", "-o", "all", "--reportformat", "json")
    rows = json.loads(run.stdout)["extents"]
    covered = {int(r["sector"]) + i: r["kind"] for r in rows for i in range(int(r["sectors"]))}
    assert covered == {e[0] + i: "zeroes" if e[2] == "zero" else "data" for e in found for i in range(e[1])}
    assert len(covered) == sum(int(r["sectors"]) for r in rows) == sectors
    for r in rows:
        assert r["data_state"] == "good"
        if r["kind"] == "data":
            assert version(read(crashed.ssd, int(r["device_offset"]), SECTOR), 0)[0] == int(r["sector"])
    assert "cache_sector" in crashed.larder("rescue", "list", crashed.ssd, "--extents", "-o", "help").stdout
    one_line(crashed.larder("rescue", "list", crashed.ssd, "-o", "nothing", code=USAGE), "nothing")


def test_empty_cache(larder):
    ssd, hdd = larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast")
    before = digest(hdd)
    assert "never started" in larder("rescue", "check", "fast").stdout
    assert larder("rescue", "list", "fast", "--noheadings").stdout == ""
    out = larder("rescue", "writeback", "data", "--dry-run").stdout
    assert "0 dirty sectors" in out and str(ssd) in out and digest(hdd) == before


# ---------------------------------------------------------------------- writing back


def test_writeback(crashed):
    expected = crashed.view()
    assert expected != crashed.data()
    for sector, length, state, _ in dirty_of(crashed):
        for i in range(length):
            assert version(expected, sector + i)[0] == (0 if state == "zero" else sector + i)
    ssd = digest(crashed.ssd)
    incarnation, generation = field(crashed.hdd, VOLUME, "incarnation"), field(crashed.hdd, VOLUME, "generation")
    out = crashed.larder("rescue", "writeback", "image", "--yes").stdout
    assert f"{sum(e[1] for e in dirty_of(crashed))} sectors written" in out
    written(crashed, expected)
    assert incarnation < field(crashed.hdd, VOLUME, "incarnation") <= incarnation + 2**40
    assert field(crashed.hdd, VOLUME, "generation") == generation + 2
    assert not field(crashed.hdd, VOLUME, "flags") & (MAY_BE_DIRTY | CLEAN_VOID)
    assert digest(crashed.ssd) == ssd
    after = crashed.digests()
    assert "nothing to write back" in crashed.larder("rescue", "writeback", "image", "--yes").stdout
    assert "'" in crashed.larder("volume", "start", "image", "--dry-run").stdout
    assert crashed.digests() == after


def test_copies_of_a_volume_part_ways(crashed):
    """Two copies of it are written back to: no cache may take one for the other."""
    saved, incarnations = crashed.hdd.read_bytes(), set()
    for _ in range(2):
        crashed.hdd.write_bytes(saved)
        crashed.larder("rescue", "writeback", "image", "--yes")
        incarnations.add(field(crashed.hdd, VOLUME, "incarnation"))
    assert len(incarnations) == 2


def test_writeback_keeping_the_cache(crashed):
    """What is clean in the cache may be older than the disk, should what rescue found be lost to the next start."""
    expected, names = crashed.view(), ("cache_uuid", "incarnation", "set_generation")
    before = [field(crashed.hdd, VOLUME, n) for n in names]
    flags = field(crashed.hdd, VOLUME, "flags")
    crashed.larder("rescue", "writeback", "image", "--keep-cache", "--yes")
    written(crashed, expected, released=False)
    assert crashed.view() == expected and [field(crashed.hdd, VOLUME, n) for n in names] == before
    assert flags & MAY_BE_DIRTY and field(crashed.hdd, VOLUME, "flags") == flags | CLEAN_VOID
    head = read(crashed.hdd, 0, MIB)
    crashed.larder("rescue", "writeback", "image", "--keep-cache", "--yes")
    assert read(crashed.hdd, 0, MIB) == head
    crashed.larder("rescue", "writeback", "image", "--yes")
    written(crashed, expected)


def test_nothing_is_written_unasked(crashed):
    before = crashed.digests()
    run = crashed.larder("rescue", "writeback", "image", code=FAILED)
    one_line(run, "left as it is", "--yes")
    assert "dirty sectors" in run.stdout
    assert "dirty sectors" in crashed.larder("rescue", "writeback", "image", "--dry-run").stdout
    assert crashed.digests() == before


def test_cache_named_by_path(crashed):
    expected = crashed.view()
    crashed.larder.devices = [crashed.hdd]
    before = crashed.digests()
    one_line(crashed.larder("rescue", "writeback", "image", "--yes", code=NOT_FOUND), "--cache")
    assert crashed.digests() == before
    crashed.larder("rescue", "writeback", crashed.hdd, "--cache", crashed.ssd, "--yes")
    written(crashed, expected)


def test_4k_sectors(larder, tools):
    """Dirty data that is smaller than a sector of the disk: its neighbours stay what they are."""
    pair = Images(larder, tools, CRASHED)
    expected = pair.view()
    odd = [e for e in dirty_of(pair) if e[0] % 8 or e[1] % 8]
    assert odd
    run = subprocess.run(["losetup", "--find", "--show", "--sector-size", "4096", pair.hdd], capture_output=True, text=True)
    if run.returncode:
        pytest.skip(f"no loop devices here: {run.stderr.strip()}")
    device = run.stdout.strip()
    try:
        larder.devices = [pair.ssd, device]
        larder("rescue", "writeback", device, "--cache", pair.ssd, "--yes")
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    written(pair, expected)


# ---------------------------------------------------------------------- cut off


class Cut:
    """Runs writeback on copies of two images, with a power cut at one of its writes or flushes."""

    def __init__(self, pair, tools):
        self.pair, self.tools = pair, tools
        self.saved = pair.hdd.with_suffix(".saved")
        shutil.copyfile(pair.hdd, self.saved)
        self.log = pair.larder.directory / "calls"

    def __call__(self, at, keep, *words):
        environment = dict(
            os.environ | preload(self.tools / "power_cut.so"),
            LARDER_DEVICES=f"{self.pair.ssd}:{self.pair.hdd}",
            POWER_CUT_AT=str(at),
            POWER_CUT_KEEP=keep,
            POWER_CUT_LOG=str(self.log),
        )
        shutil.copyfile(self.saved, self.pair.hdd)
        words = [self.pair.larder.program, *(words or ("rescue", "writeback", self.pair.hdd, "--yes"))]
        return subprocess.run(words, capture_output=True, text=True, env=environment)

    def calls(self):
        return int(self.log.read_text())


def counting(pair):
    """Offset of the superblock that counts: valid copies have a right checksum, the tests of damage see to that."""
    copy = MIB - 4096  # what the main one says of it may be spoilt
    found = pair.larder("super", "show", pair.hdd, "-o", "generation", "--noheadings").stdout
    return SB if field(pair.hdd, VOLUME, "generation") == int(found) else copy


@pytest.mark.parametrize("keep", ["none", "all", "1", "2"])
def test_writeback_cut_off(larder, tools, keep):
    """At every write and flush; then the cache and the backing, or the backing alone, hold all, and rescue goes on."""
    pair = Images(larder, tools, CRASHED)
    expected, ssd = pair.view(), digest(pair.ssd)
    cut = Cut(pair, tools)
    run = cut(0, keep)
    sane(run)
    assert run.returncode == DONE, run.stderr
    written(pair, expected)
    calls, released = cut.calls(), 0
    assert calls > 15
    for at in range(1, calls + 1):
        run = cut(at, keep)
        assert run.returncode == CUT, f"cut at {at}: {run.returncode}\n{run.stderr}"
        if pair.is_released(counting(pair)):
            released += 1
            assert pair.data() == expected, f"cut at {at}, keep {keep}: the disk stands alone, and is not whole"
        else:
            assert pair.view() == expected, f"cut at {at}, keep {keep}: cache and disk together are not whole"
        run = larder("rescue", "writeback", pair.hdd, "--yes")
        written(pair, expected)
    assert digest(pair.ssd) == ssd
    assert released == {"none": 2, "all": 4}.get(keep, released)


def left_in_one_copy(pair, cut, older):
    """As a power cut between the two copies leaves it: the volume has left its cache, and one copy does not say so."""
    copy = field(pair.hdd, VOLUME, "copy_offset")
    before = read(pair.hdd, copy, 4096)
    assert cut(0, "all").returncode == DONE
    if older == "main":
        assert cut(cut.calls(), "none").returncode == CUT
    else:
        with open(pair.hdd, "r+b") as hdd:
            hdd.seek(copy)
            hdd.write(before)
    assert [pair.is_released(), pair.is_released(copy)] == [older != "main", older == "main"]
    assert pair.is_released(counting(pair))
    shutil.copyfile(pair.hdd, cut.saved)


def is_levelled(pair):
    copy = field(pair.hdd, VOLUME, "copy_offset")
    assert pair.is_released() and read(pair.hdd, SB, 4096) == read(pair.hdd, copy, 4096)


@pytest.mark.parametrize("older", ["main", "copy"])
@pytest.mark.parametrize("verb", [["rescue", "writeback", "image"], ["volume", "set", "image", "mode=writethrough", "--persist"]])
def test_older_copy_never_counts_again(larder, tools, verb, older):
    """Who writes next begins with the older copy: cut off in the other one, that would bring the left cache back, stale by now."""
    pair = Images(larder, tools, CRASHED)
    cut = Cut(pair, tools)
    left_in_one_copy(pair, cut, older)
    run = cut(0, "all", *verb)
    assert run.returncode == DONE, run.stderr
    is_levelled(pair)
    calls = cut.calls()
    assert calls == 4
    for at in range(1, calls + 1):
        for keep in ("none", "all", "spoilt"):
            assert cut(at, keep, *verb).returncode == CUT
            shown = larder("super", "show", pair.hdd, "-o", "cache_uuid", "--noheadings").stdout.strip()
            assert shown == "-", f"cut at {at}, keep {keep}"


@pytest.mark.parametrize("older", ["main", "copy"])
def test_both_copies_void_what_is_clean_before_data_is_written(larder, tools, older):
    """Of a run that was cut off between the two the next one makes them equal, though the one that counts says all."""
    pair = Images(larder, tools, CRASHED)
    cut, words = Cut(pair, tools), ["rescue", "writeback", pair.hdd, "--keep-cache", "--yes"]
    copy, data, expected = field(pair.hdd, VOLUME, "copy_offset"), pair.data(), pair.view()

    def void():
        return [bool(field(pair.hdd, VOLUME, "flags", at) & CLEAN_VOID) for at in (SB, copy)]

    def between():
        for at in itertools.count(1):
            assert cut(at, "none", *words).returncode == CUT
            if any(void()):
                return

    before = read(pair.hdd, SB, 4096)
    between()
    assert void() == [False, True] and read(pair.hdd, SB, 4096) == before
    if older == "copy":
        newer = bytearray(read(pair.hdd, copy, 4096))
        with open(pair.hdd, "r+b") as hdd:
            for at, block in ((SB, newer), (copy, before)):
                hdd.seek(at)
                hdd.write(block)
    assert void() == [older == "copy", older == "main"] and pair.data() == data
    assert field(pair.hdd, VOLUME, "flags", counting(pair)) & CLEAN_VOID
    shutil.copyfile(pair.hdd, cut.saved)
    assert cut(0, "all", *words).returncode == DONE
    calls, seen = cut.calls(), 0
    written(pair, expected, released=False)
    assert read(pair.hdd, SB, 4096) == read(pair.hdd, copy, 4096) and all(void())
    for at in range(1, calls + 1):
        assert cut(at, "all", *words).returncode == CUT
        if pair.data() != data:
            seen += 1
            assert all(void()), f"cut at {at}"
        assert cut(at, "spoilt", *words).returncode == CUT
        place = counting(pair)
        assert field(pair.hdd, VOLUME, "flags", place) & CLEAN_VOID, f"cut at {at}, spoilt"
    assert seen > 1


def random_bytes(hdd):
    with open(hdd, "r+b") as disk:
        disk.seek(SB)
        disk.write(random.Random(1).randbytes(4096))


def partitions(hdd):
    """Where the superblock was there are entries of partitions that are not used: zeroes."""
    subprocess.run(["sfdisk", "--quiet", hdd], input="label: gpt\nsize=8MiB\n", text=True, check=True)
    assert not any(read(hdd, SB, 4096))


@pytest.mark.parametrize("new_owner", [random_bytes, partitions])
def test_disk_of_a_new_owner_is_not_written_unasked(crashed, new_owner):
    """It had left its cache, and the copy of its superblock still stands: that is no run that was cut off between the two."""
    crashed.larder("rescue", "writeback", "image", "--yes")
    copy = field(crashed.hdd, VOLUME, "copy_offset")
    assert crashed.is_released(copy)
    new_owner(crashed.hdd)
    before = crashed.digests()
    assert crashed.is_released(copy)
    run = crashed.larder("rescue", "writeback", crashed.hdd, code=FAILED)
    one_line(run, crashed.hdd, "left as it is", "--yes")
    assert "somebody else's by now" in run.stdout and crashed.digests() == before
    assert "somebody else's by now" in crashed.larder("rescue", "writeback", crashed.hdd, "--dry-run", "--yes").stdout
    assert crashed.digests() == before
    crashed.larder("rescue", "writeback", crashed.hdd, "--yes")
    is_levelled(crashed)


@pytest.mark.parametrize("kind", signatures.TAIL_ALONE)
def test_replica_is_not_written_alone(crashed, kind):
    """The leg of a mirror with its superblock at the end, or the disk below DRBD, by whatever name: the other one lacks it."""
    type_, write = signatures.TAIL_ALONE[kind]
    expected = crashed.view()
    os.truncate(crashed.hdd, 80 * MIB)  # libblkid looks for ZFS on no smaller one than 64
    write(crashed.hdd)
    before = crashed.digests()
    for name in (crashed.hdd, "image", crashed.uuid()):
        for words in (["--yes"], ["--dry-run"], ["--yes", "--keep-cache"], ["--yes", "--cache", crashed.ssd]):
            run = crashed.larder("rescue", "writeback", name, *words, code=UNSAFE)
            one_line(run, crashed.hdd, type_, "behind", "drbdadm", "mdadm")
            assert crashed.digests() == before
    run = crashed.larder("rescue", "writeback", crashed.hdd, "--yes", code=UNSAFE)
    remedy = re.search(rf"(wipefs .*{crashed.hdd}) first", run.stderr)[1]
    subprocess.run(remedy.split(), check=True, capture_output=True)
    crashed.larder("rescue", "writeback", crashed.hdd, "--yes")
    written(crashed, expected)
    write(crashed.hdd)
    before = crashed.digests()
    one_line(crashed.larder("rescue", "writeback", crashed.hdd, "--yes", code=UNSAFE), type_, "behind")
    assert crashed.digests() == before


@pytest.mark.parametrize("older", ["main", "copy"])
def test_start_without_the_module_levels_the_copies(larder, tools, older):
    """Before the volume is written alone, no copy says any more that it has a cache; device-mapper need not be here."""
    pair = Images(larder, tools, CRASHED)
    left_in_one_copy(pair, Cut(pair, tools), older)
    run = subprocess.run(["losetup", "--find", "--show", pair.hdd], capture_output=True, text=True)
    if run.returncode:
        pytest.skip(f"no loop devices here: {run.stderr.strip()}")
    device = run.stdout.strip()
    name = f"larder-test-{os.getpid()}"
    try:
        larder.devices = [device]
        larder("volume", "start", device, "--without-module", "--name", name, code=None)
        if Path("/dev/mapper", name).exists():
            larder("volume", "stop", name)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    is_levelled(pair)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_each_write_that_fails(larder, tools, error):
    """Half of a write, or a flush: it is said, all is in the cache still, or on the disk; and once it works rescue goes on."""
    pair = Images(larder, tools, CRASHED)
    expected, saved, log = pair.view(), pair.hdd.with_suffix(".saved"), larder.directory / "log"
    shutil.copyfile(pair.hdd, saved)
    env = preloaded("io_error", larder.directory)
    larder("rescue", "writeback", "image", "--yes", env=env | {"IO_ERROR_LOG": str(log)})
    calls = [line.split() for line in log.read_text().splitlines() if not line.startswith("read")]
    assert len(calls) > 15 and calls[-1][0] == "flush"
    for at, (what, path, *_) in enumerate(calls, 1):
        shutil.copyfile(saved, pair.hdd)
        ours = path == str(pair.hdd)
        settling = not any(c[0] == "write" for c in calls[:at])  # of what was read: remarked upon
        code = DONE if settling else FAILED
        run = larder("rescue", "writeback", "image", "--yes", env=env | {"IO_ERROR_AT": f"{at}:{error}"}, code=code)
        assert os.strerror(error) in run.stderr and (settling or ours), (at, what)
        if settling:
            written(pair, expected)
            continue
        if pair.is_released(counting(pair)):
            assert pair.data() == expected
        else:
            assert pair.view() == expected
        larder("rescue", "writeback", "image", "--yes")
        written(pair, expected)


# ---------------------------------------------------------------------- damage


def one_damaged(pair):
    """Spoils a slot of dirty data in a sealed segment; the sectors of the volume that are in it."""
    sector, _, _, cache = min((e for e in dirty_of(pair) if e[2] == "dirty" and e[1] == 128), key=lambda e: e[3])
    pair.spoil(cache + 16)
    return range(sector + 16, sector + 24)


def with_backing(expected, pair, sectors):
    """The view, but these sectors as the backing has them."""
    data, backing = bytearray(expected), pair.data()
    data[sectors.start * SECTOR : sectors.stop * SECTOR] = backing[sectors.start * SECTOR : sectors.stop * SECTOR]
    return bytes(data)


def test_damaged_data(crashed):
    expected = crashed.view()
    sectors = one_damaged(crashed)
    remains = with_backing(expected, crashed, sectors)
    before = crashed.digests()
    run = crashed.larder("rescue", "check", "image", code=FAILED)
    one_line(run, "image", f"sectors {sectors.start} to {sectors.stop - 1} are damaged")
    assert "8 damaged" in run.stdout
    run = crashed.larder("rescue", "list", crashed.ssd, "--extents", "-o", "sector,sectors,data_state", "--noheadings")
    assert [str(sectors.start), "8", "damaged"] in [line.split() for line in run.stdout.splitlines()]
    for words in ([], ["--dry-run"], ["--keep-cache"]):
        run = crashed.larder("rescue", "writeback", "image", "--yes", *words, code=UNSAFE)
        assert f"sectors {sectors.start} to {sectors.stop - 1} are damaged" in run.stderr
        assert f"LOST, and as the disk has them, by --skip-damaged {crashed.uuid()}" in run.stderr
    for word in ("image", "00000000-0000-0000-0000-000000000001", "yes"):
        crashed.larder("rescue", "writeback", "image", "--yes", "--skip-damaged", word, code=USAGE)
    assert crashed.digests() == before
    run = crashed.larder("rescue", "writeback", "image", "--yes", "--skip-damaged", crashed.uuid(), code=FAILED)
    assert "8 damaged sectors were not written" in run.stderr
    written(crashed, remains)


def with_snapshots(pair, *snapshots):
    """Its volume is that of a stack with these."""
    stack = uuid.uuid4()
    text = {"name": "image", "uuid": str(stack), "generation": 3, "state": "ready", "step": 6, "legs": 1, "mode": "writeback"}
    text |= {"volume": str(uuid.uuid5(stack, "volume")), "cache": str(uuid.UUID(bytes=field(pair.ssd, CACHE, "cache_uuid")))}
    patch_both(pair.hdd, ON_VOLUME, stack=pack(text | {"own_cache": 1, "snapshots": snapshots}, OF_VOLUME))


def snapshots_of(pair, at=SB):
    said = json.loads(read(pair.hdd, at + ON_VOLUME["stack"][0] + 16, 2032).rstrip(b"\0"))
    return said["generation"], said["snapshots"]


@pytest.mark.parametrize("what", ["nothing", "data", "log"])
def test_snapshots_share_what_is_lost(crashed, what):
    """They are lost with it, which is said before; not where the cache keeps an error in the place of it."""
    if what == "log":
        crashed.make(LONGER)
        record = crashed.records()[2]
        crashed.damage(crashed.ssd, f"commit:{record['segment']}:{record['slot']}", "body[4]=^1", "--keep-crc")
    elif what == "data":
        one_damaged(crashed)
    with_snapshots(crashed, "15 lost x", "17 ready daily", "19 ready weekly")
    before = snapshots_of(crashed)
    words = ["rescue", "writeback", "image", "--yes", "--skip-damaged", crashed.uuid()]
    said = crashed.larder(*words, "--dry-run").stdout
    told = [line.split()[4] for line in said.splitlines() if "shares what is LOST, and is lost with it" in line]
    assert told == ([] if what == "nothing" else ["daily", "weekly"]) and snapshots_of(crashed) == before
    if what == "data":
        assert "snapshot" not in crashed.larder(*words, "--keep-cache", code=FAILED).stdout and snapshots_of(crashed) == before
    crashed.larder(*words, code=DONE if what == "nothing" else FAILED)
    assert crashed.is_released()
    after = before if what == "nothing" else (4, ["15 lost x", "17 lost daily", "19 lost weekly"])
    assert snapshots_of(crashed) == snapshots_of(crashed, field(crashed.hdd, VOLUME, "copy_offset")) == after


@pytest.mark.parametrize("keep", ["none", "all"])
def test_snapshots_are_noted_before_the_disk_stands_alone(crashed, tools, keep):
    """At each write and flush of both superblocks."""
    one_damaged(crashed)
    with_snapshots(crashed, "17 ready daily")
    cut, seen = Cut(crashed, tools), set()
    words = ["rescue", "writeback", crashed.hdd, "--yes", "--skip-damaged", crashed.uuid()]
    assert cut(0, keep, *words).returncode == FAILED
    calls = cut.calls()
    for at in range(calls - 9, calls + 1):
        assert cut(at, keep, *words).returncode == CUT
        place = counting(crashed)
        seen.add((crashed.is_released(place), snapshots_of(crashed, place)[1][0].split()[1]))
    assert seen == {(False, "ready"), (False, "lost"), (True, "lost")}


def test_checksums_of_commit_blocks(crashed):
    """Where a segment has no summary its commit blocks tell the sums; without those nothing is believed."""
    expected = crashed.view()
    slots = SEGMENT // 4096
    segments = {e[3] // (SEGMENT // SECTOR) for e in dirty_of(crashed) if e[2] == "dirty" and e[1] == 128}
    last = read(crashed.ssd, crashed.place(0), 32 * MIB - crashed.place(0))
    for segment in segments:
        at = segment * SEGMENT + SEGMENT - 16384
        if last[at : at + 4] == b"LSUM":
            crashed.damage(crashed.ssd, f"summary:{segment}", "magic=0")
    crashed.larder("rescue", "check", "image")
    segment = min(segments)
    commits = [s for s in range(slots) if last[segment * SEGMENT + s * 4096 :][:4] == b"LCMT"]
    assert commits
    crashed.damage(crashed.ssd, f"commit:{segment}:{commits[0]}", "magic=0")
    run = crashed.larder("rescue", "check", "image", code=FAILED)
    assert f"are no_checksum: segment {segment}," in run.stderr
    crashed.larder("rescue", "writeback", "image", "--yes", code=UNSAFE)
    assert crashed.view() == expected


def test_log_broken_in_its_durable_part(crashed):
    """A start would take the damaged block for the end of the log; a later one says that it is not."""
    crashed.make(LONGER)
    lines = crashed.run("reader", "log", crashed.ssd).decode().splitlines()
    record = [x for x in lines if x.startswith("record") and " stream=0 " in x][2]
    at = dict(w.split("=") for w in record.split()[1:])
    crashed.damage(crashed.ssd, f"commit:{at['segment']}:{at['slot']}", "body[4]=^1", "--keep-crc")
    before = crashed.digests()
    one_line(crashed.larder("rescue", "check", "image", code=FAILED), "log: it breaks off", "newer data is lost")
    run = crashed.larder("rescue", "writeback", "image", "--yes", code=UNSAFE)
    one_line(run, "log", f"LOST by --skip-damaged {crashed.uuid()}")
    # which may be whole again, of another copy: what is older must not be below it
    words = ["--yes", "--keep-cache", "--skip-damaged", crashed.uuid()]
    run = crashed.larder("rescue", "writeback", "image", *words, code=UNSAFE)
    one_line(run, "--keep-cache", "log: it breaks off", "leave --keep-cache out")
    assert crashed.digests() == before
    run = crashed.larder("rescue", "writeback", "image", "--yes", "--skip-damaged", crashed.uuid(), code=FAILED)
    one_line(run, "newer records are lost")


def test_damaged_data_and_a_log_that_breaks_off(crashed):
    """One option gives up both: the refusal names both, and so does what is said before anything is written."""
    crashed.make(LONGER)
    record = crashed.records()[2]
    one_damaged(crashed)
    crashed.damage(crashed.ssd, f"commit:{record['segment']}:{record['slot']}", "body[4]=^1", "--keep-crc")
    before = crashed.digests()
    run = crashed.larder("rescue", "writeback", "image", "--yes", code=UNSAFE)
    refusal = run.stderr.splitlines()[-1]
    for part in ("8 of ", "log: it breaks off", "newer than what is found is LOST", f"--skip-damaged {crashed.uuid()}"):
        assert part in refusal, refusal
    run = crashed.larder("rescue", "writeback", "image", "--dry-run", "--skip-damaged", crashed.uuid())
    assert "log: it breaks off" in run.stdout and "8 damaged" in run.stdout and "LOST" in run.stdout
    assert crashed.digests() == before
    run = crashed.larder("rescue", "writeback", "image", "--yes", "--skip-damaged", crashed.uuid(), code=FAILED)
    assert "log: it breaks off" in run.stdout and "newer records are lost" in run.stderr


def not_dirty(pair, how):
    """Its log has lost something, and its volume is not dirty by its superblock; the environment of commands."""
    pair.make(LONGER)
    assert pair.view() != pair.data()
    record = pair.records()[2 if how == "broken" else -1]
    if how == "broken":
        pair.damage(pair.ssd, f"commit:{record['segment']}:{record['slot']}", "body[4]=^1", "--keep-crc")
    with_snapshots(pair, "17 ready daily")
    patch_both(pair.hdd, VOLUME, flags=0)
    env = None if how == "broken" else unreadable(pair.slot(record["segment"], record["slot"]))
    said = pair.larder("rescue", "list", "image", "-o", "dirty", "--units", "s", "--nosuffix", "--noheadings", env=env).stdout
    assert int(said) > 1000
    return env


@pytest.mark.parametrize("how", ["broken", "unreadable"])
def test_disk_that_is_whole_beside_a_log_that_is_not(crashed, how):
    """Rule 11: the disk has all, perhaps newer than what is found dirty, which the records that are lost may have called clean."""
    env = not_dirty(crashed, how)
    data, head, before = crashed.data(), read(crashed.hdd, 0, MIB), snapshots_of(crashed)
    words = ["rescue", "writeback", "image", "--yes"]
    one_line(crashed.larder("rescue", "check", "image", code=FAILED, env=env), "log: ")
    for options in (["--dry-run"], ["--keep-cache"], ["--keep-cache", "--skip-damaged", crashed.uuid()]):
        run = crashed.larder(*words, *options, env=env)
        one_line(run, crashed.hdd, "may_be_dirty is clear", "the disk has all of it", crashed.ssd)
        assert " 0 dirty sectors" in run.stdout and "LOST" not in run.stdout and "has to come to its end" not in run.stdout
        assert crashed.data() == data and read(crashed.hdd, 0, MIB) == head
    crashed.larder(*words, "--skip-damaged", "00000000-0000-0000-0000-000000000001", code=USAGE, env=env)
    run = crashed.larder(*words, env=env)
    assert " 0 sectors written" in run.stdout and "LOST" not in run.stdout
    written(crashed, data)
    assert snapshots_of(crashed) == snapshots_of(crashed, field(crashed.hdd, VOLUME, "copy_offset")) == before


def test_disk_that_is_whole_is_served(crashed):
    env = not_dirty(crashed, "broken")
    data, copy = crashed.data(), crashed.larder.directory / "copy"
    with served(crashed, env=env) as address:
        subprocess.run(["nbdcopy", address, copy], check=True, timeout=60)
    assert copy.read_bytes() == data
    assert "may_be_dirty is clear" in crashed.said and "lost: " not in crashed.said


def test_flag_that_was_lost(crashed):
    """Of a log that is whole what is dirty counts, whatever the disk says, as in the kernel: it may have lost a superblock."""
    patch_both(crashed.hdd, VOLUME, flags=0)
    expected = crashed.view()
    assert expected != crashed.data()
    crashed.larder("rescue", "writeback", "image", "--yes")
    written(crashed, expected)


def test_volume_that_is_not_known_beside_a_log_that_is_broken(crashed):
    not_dirty(crashed, "broken")
    patch_tables(crashed.ssd, volume0__state=0)
    data = crashed.data()
    crashed.larder("rescue", "writeback", "image", "--yes")
    written(crashed, data)


# ---------------------------------------------------------------------- what cannot be read


def said_everywhere(pair, env, *parts):
    """A log that may go on in what cannot be read: each verb says so, none writes."""
    before = pair.digests()
    one_line(pair.larder("rescue", "check", "image", code=FAILED, env=env), pair.ssd, *parts)
    one_line(pair.larder("rescue", "list", "image", env=env), pair.ssd, *parts)
    one_line(pair.larder("rescue", "serve", "image", "--port", "1", "--dry-run", env=env), pair.ssd, *parts)
    for words in ([], ["--dry-run"], ["--keep-cache"]):
        run = pair.larder("rescue", "writeback", "image", "--yes", *words, code=UNSAFE, env=env)
        one_line(run, *parts, f"LOST by --skip-damaged {pair.uuid()}")
    assert pair.digests() == before


@pytest.mark.parametrize("which", [0, 1, -1])
def test_commit_block_that_cannot_be_read(crashed, which):
    """Nothing tells that it was durable: the log ends there for who takes it for one that was never written."""
    crashed.make(LONGER)
    record = crashed.records()[which]
    assert record["durable"] < record["sequence"]
    env = unreadable(crashed.slot(record["segment"], record["slot"]))
    if which < 0:
        said_everywhere(crashed, env, f"segment {record['segment']}, slot {record['slot']} cannot be read")
        with served(crashed, env=env):
            pass
        assert "cannot be read" in crashed.said
    run = crashed.larder("rescue", "writeback", "image", "--yes", "--skip-damaged", crashed.uuid(), code=FAILED, env=env)
    one_line(run, "newer records are lost")
    after = crashed.data()
    crashed.make(LONGER)
    crashed.spoil((record["segment"] * SEGMENT + record["slot"] * SLOT) // SECTOR)
    crashed.larder("rescue", "writeback", "image", "--yes", "--skip-damaged", crashed.uuid(), code=None)
    assert after == crashed.data()


def test_behind_the_end_that_cannot_be_read(crashed):
    """There the next record would be; further on, or in front of the end, none would."""
    last = crashed.records()[-1]
    slots = SEGMENT // SLOT
    env = unreadable(crashed.slot(last["segment"], slots - 5))
    said_everywhere(crashed, env, f"slot {slots - 5} cannot be read", f"behind {last['sequence']} may be")
    expected = crashed.view()
    for slot in (slots - 4, slots - 1):
        crashed.larder("rescue", "check", "image", env=unreadable(crashed.slot(last["segment"], slot)))
    crashed.larder("rescue", "writeback", "image", "--yes", env=env, code=UNSAFE)
    crashed.larder("rescue", "writeback", "image", "--yes", env=unreadable(crashed.slot(last["segment"], slots - 4)))
    written(crashed, expected)


@pytest.mark.parametrize("which", [0, -1])
def test_data_behind_the_last_durable_record_that_cannot_be_read(crashed, which):
    """The record counts, as nobody knows whether it was durable; what cannot be read of it is damaged."""
    expected, record = crashed.view(), crashed.records()[which]
    assert record["durable"] < record["sequence"]
    places = crashed.slot(record["segment"], record["first"] + 2)
    env, before = unreadable(places), crashed.digests()
    run = crashed.larder("rescue", "check", "image", code=FAILED, env=env)
    assert f"slot {record['first'] + 2}, data of record {record['sequence']}, cannot be read" in run.stderr
    assert " 8 damaged" in run.stdout and "power cut" not in run.stdout
    words = ["--extents", "-o", "sector,sectors,data_state", "--noheadings"]
    lines = crashed.larder("rescue", "list", "image", *words, env=env).stdout.splitlines()
    ((sector, sectors),) = [tuple(map(int, line.split()[:2])) for line in lines if "unreadable" in line]
    assert sectors == 8
    for words in ([], ["--dry-run"], ["--keep-cache"]):
        run = crashed.larder("rescue", "writeback", "image", "--yes", *words, code=UNSAFE, env=env)
        assert f"--skip-damaged {crashed.uuid()}" in run.stderr.splitlines()[-1]
    assert crashed.digests() == before
    with served(crashed, env=env) as address:
        for first, good in ((sector - 8, True), (sector, False), (sector + 8, True)):
            data = read_nbd(address.split("=")[1], first * SECTOR, 8 * SECTOR)
            assert data == (expected[first * SECTOR : (first + 8) * SECTOR] if good else None)
    remains = with_backing(expected, crashed, range(sector, sector + sectors))
    run = crashed.larder("rescue", "writeback", "image", "--yes", "--skip-damaged", crashed.uuid(), code=FAILED, env=env)
    assert "8 damaged sectors were not written" in run.stderr
    written(crashed, remains)


def test_torn_end_before_what_cannot_be_read(crashed):
    """A record that is there, and torn, was not durable: what follows is nobody's loss."""
    first, last = crashed.records()
    crashed.spoil((first["segment"] * SEGMENT + first["first"] * SLOT) // SECTOR)
    hdd = crashed.hdd.read_bytes()
    crashed.larder("rescue", "writeback", "image", "--yes")
    expected = crashed.data()
    crashed.hdd.write_bytes(hdd)
    for slot in (last["slot"], last["first"]):
        env = unreadable(crashed.slot(last["segment"], slot))
        run = crashed.larder("rescue", "check", "image", env=env)
        assert f"the log ends at record {first['sequence']}" in run.stdout
    crashed.larder("rescue", "writeback", "image", "--yes", env=env)
    written(crashed, expected)


def places_read(pair, *words):
    """[path, offset of a slot] that a command reads of the SSDs, in order, each once."""
    log = pair.larder.directory / "log"
    pair.larder("rescue", *words, env=preloaded("io_error", log.parent) | {"IO_ERROR_LOG": str(log)})
    found = {}
    for path, at, n in (line.split()[1:] for line in log.read_text().splitlines() if line.startswith("read")):
        if Path(path) in pair.ssds:
            found.update({(Path(path), slot): None for slot in range(int(at) // SLOT * SLOT, int(at) + int(n), SLOT)})
    return list(found)


@pytest.mark.parametrize("stream", [0, 1])
def test_record_that_cannot_be_read_a_second_time(crashed, stream):
    """Of the write stream it is needed; copies of what the backing has are not."""
    expected, record, log = crashed.view(), crashed.records(stream)[0], crashed.larder.directory / "log"
    (place,) = crashed.slot(record["segment"], record["slot"])
    env = unreadable([place]) | {"IO_ERROR_LOG": str(log)}
    crashed.larder("rescue", "check", "image", env=env | {"IO_ERROR": ""})
    reads = [line.split() for line in log.read_text().splitlines() if line.startswith("read")]
    again = [i for i, (_, path, at, n) in enumerate(reads, 1) if (path, int(at), int(n)) == (str(crashed.ssd), place[1], SLOT)]
    assert len(again) >= 2
    for at in again[:2]:
        run = crashed.larder("rescue", "check", "image", code=FAILED, env=env | {"IO_ERROR_FROM": str(at)})
        assert f"record {record['sequence']} cannot be read a second time" in run.stderr
        assert ("cannot be loaded" in run.stderr) == (stream == 0)
    before = crashed.digests()
    words = ["rescue", "writeback", "image", "--yes"]
    if stream:
        crashed.larder(*words, env=env | {"IO_ERROR_FROM": str(again[1])})
        written(crashed, expected)
    else:
        crashed.larder(*words, code=FAILED, env=env | {"IO_ERROR_FROM": str(again[1])})
        assert crashed.digests() == before


def test_more_that_cannot_be_read_later(crashed):
    """What is accepted as lost is what was said: not what the SSD loses while that is written."""
    one_damaged(crashed)
    sector, _, _, cache = max((e for e in dirty_of(crashed) if e[2] == "dirty" and e[1] == 128), key=lambda e: e[0])
    words = ["writeback", "image", "--yes", "--skip-damaged", crashed.uuid()]
    log, hdd = crashed.larder.directory / "log", crashed.hdd.read_bytes()
    env = unreadable([(crashed.ssd, crashed.place(cache), SLOT)])
    crashed.larder("rescue", *words, code=FAILED, env=env | {"IO_ERROR": "", "IO_ERROR_LOG": str(log)})
    crashed.hdd.write_bytes(hdd)
    reads = [line.split() for line in log.read_text().splitlines() if line.startswith("read")]
    last = max(i for i, (_, path, at, _) in enumerate(reads, 1) if path == str(crashed.ssd) and int(at) == crashed.place(cache))
    run = crashed.larder("rescue", *words, code=FAILED, env=env | {"IO_ERROR_FROM": str(last)})
    assert f"sectors {sector} to {sector + 7} of the volume are unreadable now, and were not before" in run.stderr
    assert not crashed.is_released() and not crashed.is_released(field(crashed.hdd, VOLUME, "copy_offset"))
    run = crashed.larder("rescue", *words, code=FAILED, env=env)
    assert "16 damaged sectors were not written" in run.stderr
    assert crashed.is_released()


def test_something_else_that_cannot_be_read_later(crashed):
    """As many sectors as were accepted, but not those."""
    one, other = sorted(e for e in dirty_of(crashed) if e[2] == "dirty" and e[1] == 128)[:2]
    words = ["writeback", "image", "--yes", "--skip-damaged", crashed.uuid()]
    log, hdd = crashed.larder.directory / "log", crashed.hdd.read_bytes()
    first, then = (unreadable([(crashed.ssd, crashed.place(e[3]), SLOT)]) for e in (one, other))
    crashed.larder("rescue", *words, code=FAILED, env=first | {"IO_ERROR_LOG": str(log)})
    crashed.hdd.write_bytes(hdd)
    calls = [line.split()[0] for line in log.read_text().splitlines()]
    begins = calls[: calls.index("write")].count("read") + 1  # behind what was told
    changes = then | {"IO_ERROR_FROM": str(begins), "IO_ERROR_BEFORE": first["IO_ERROR"]}
    run = crashed.larder("rescue", *words, code=FAILED, env=changes)
    assert f"sectors {one[0]} to {one[0] + 7} are unreadable" in run.stderr
    assert f"sectors {other[0]} to {other[0] + 7} of the volume are unreadable now, and were not before" in run.stderr
    assert not crashed.is_released() and not crashed.is_released(field(crashed.hdd, VOLUME, "copy_offset"))


@pytest.mark.parametrize("ssds", [1, 2])
def test_each_place_that_cannot_be_read(larder, tools, ssds):
    """Whatever it is: all is written, or nothing, and it is said.  With a copy on another SSD all is."""
    pair = Images(larder, tools, CRASHED, ssds)
    expected, saved = pair.view(), pair.hdd.with_suffix(".saved")
    shutil.copyfile(pair.hdd, saved)
    places = places_read(pair, "writeback", "image", "--yes")
    assert len(places) > 400
    before = [digest(ssd) for ssd in pair.ssds]
    shutil.copyfile(saved, pair.hdd)
    good, bad = 0, 0
    for path, at in places[:: len(places) // 60]:
        run = larder("rescue", "writeback", "image", "--yes", env=unreadable([(path, at, SLOT)]), code=None)
        if run.returncode == DONE:
            good += 1
            written(pair, expected)
            shutil.copyfile(saved, pair.hdd)
        else:
            bad += 1
            assert run.stderr and digest(pair.hdd) == digest(saved), (path, at)
    assert [digest(ssd) for ssd in pair.ssds] == before
    assert good and (bad if ssds == 1 else not bad)


# ---------------------------------------------------------------------- damage of metadata


@pytest.mark.parametrize(
    ("place", "change", "says"),
    [
        ("super", "label[0]=^1", "superblock: crc"),
        ("super-copy", "label[0]=^1", "superblock copy: crc"),
        ("table-a", "volumes[0].sectors=^1", "copy A: table crc"),
        ("table-b", "volumes[0].sectors=^1", "copy B: table crc"),
        ("chunk:0:0", "payload[900]=^1", "checkpoint: [0]"),
    ],
)
def test_the_other_copy(crashed, place, change, says):
    """Damage that leaves another copy is a finding, and no obstacle."""
    expected = crashed.view()
    crashed.damage(crashed.ssd, place, change, "--keep-crc")
    one_line(crashed.larder("rescue", "check", crashed.ssd, code=FAILED), says)
    crashed.larder("rescue", "writeback", "image", "--yes")
    written(crashed, expected)


@pytest.mark.parametrize(
    ("damages", "says"),
    [
        ([("chunk:0:0", "magic=0"), ("chunk:1:0", "magic=0")], "no checkpoint that is whole"),
        ([("super", "label[0]=^1"), ("super-copy", "label[0]=^1")], "superblock"),
        ([("table-a", "head.magic=0"), ("table-b", "head.magic=0")], "table"),
        ([("super", "nr_devices=2"), ("super-copy", "nr_devices=2")], "nr_devices"),
    ],
)
def test_what_cannot_be_loaded(crashed, damages, says):
    for place, change in damages:
        crashed.damage(crashed.ssd, place, change, *(["--keep-crc"] if "label" in change else []))
    before = crashed.digests()
    for words in (["check", crashed.ssd], ["list", crashed.ssd], ["writeback", crashed.hdd, "--cache", crashed.ssd, "--yes"]):
        assert says in crashed.larder("rescue", *words, code=FAILED).stderr
    assert crashed.digests() == before


HOSTILE = [
    *[("chunk:0:0", f"{f}={v}") for f, v in (("used", 65472), ("used", 65535), ("number", 7), ("next_segment", 4294967294))],
    *[("chunk:0:0", f"payload[{i}]={v}") for i in (0, 2, 5, 8, 15, 17, 31) for v in (0, 255)],
    *[("super", f"checkpoint[0].{f}") for f in ("bytes=18446744073709486080", "replay_sequence=0", "first_segment=1")],
    *[("super", f) for f in ("segment_size=16777216", "first_segment=4294967000", "nr_segments=4294967295", "epoch=9")],
    *[("table-a", f"volumes[0].{f}") for f in ("sectors=18014398509481983", "sectors=1", "state=2", "incarnation=7")],
    *[("table-a", f) for f in ("head.nr_volumes=1024", "head.nr_volumes=4294967295", "head.nr_devices=0")],
]


def test_hostile_numbers(crashed):
    """With their checksums right: what is checked behind them.  No crash, no sanitizer's word, and nothing written."""
    table_b = ["table-b", "head.magic=0"]
    saved = crashed.ssd.with_suffix(".saved")
    shutil.copyfile(crashed.ssd, saved)
    codes = set()
    for place, change in HOSTILE:
        shutil.copyfile(saved, crashed.ssd)
        crashed.damage(crashed.ssd, place, change)
        if place == "super":
            crashed.damage(crashed.ssd, "super-copy", change)
        elif place == "table-a":
            crashed.damage(crashed.ssd, *table_b)
        before = digest(crashed.ssd)
        codes.add(crashed.larder("rescue", "check", crashed.ssd, code=None).returncode)
        crashed.larder("rescue", "list", crashed.ssd, "--extents", code=None)
        assert digest(crashed.ssd) == before
    assert {DONE, FAILED} <= codes


def test_hostile_log(crashed):
    lines = crashed.run("reader", "log", crashed.ssd).decode().splitlines()
    records = [dict(w.split("=") for w in x.split()[1:]) for x in lines if x.startswith("record")]
    saved = crashed.ssd.with_suffix(".saved")
    shutil.copyfile(crashed.ssd, saved)
    changes = ["first=65535", "end=65535", "nr_entries=65535", "slot=65535", "segment=4294967295", "stream=2"]
    changes += [f"entry[0].{f}" for f in ("sector=18446744073709551615", "length=4294967295", "volume=65535", "cache=68719476735")]
    changes += [f"entry[0].kind={kind}" for kind in (0, 3, 4, 5, 6, 7, 8, 9, 10)]
    for change in changes:
        shutil.copyfile(saved, crashed.ssd)
        crashed.damage(crashed.ssd, f"commit:{records[-1]['segment']}:{records[-1]['slot']}", change)
        crashed.larder("rescue", "check", crashed.ssd, code=None)
        crashed.larder("rescue", "list", crashed.ssd, "--extents", code=None)


# ---------------------------------------------------------------------- what does not belong together


def refused(pair, *parts, code=UNSAFE):
    before = pair.digests()
    for words in (["writeback", pair.hdd, "--yes"], ["serve", pair.hdd, "--socket", pair.larder.directory / "socket"]):
        one_line(pair.larder("rescue", *words, "--cache", pair.ssd, code=code), *parts)
    assert pair.digests() == before


def test_stale_cache(crashed):
    patch_both(crashed.hdd, VOLUME, incarnation=9)
    refused(crashed, "incarnation", "stale", "may_be_dirty", "give the SSDs that it had", "discard_dirty", "--discard-dirty")
    # as one that has left its cache by itself
    patch_both(crashed.hdd, VOLUME, flags=0)
    refused(crashed, "incarnation", "stale", "the disk has all of it", f"larder volume start --without-module {crashed.hdd}")
    out = crashed.larder("rescue", "list", crashed.ssd, "-o", "state", "--noheadings").stdout
    assert out.strip() == "stale"


def test_another_cache(crashed):
    patch_both(crashed.hdd, VOLUME, cache_uuid=bytes(range(16)))
    refused(crashed, "cache_uuid", f"belongs to cache {uuid.UUID(bytes=bytes(range(16)))}", "give that one by --cache")


def test_another_size(crashed):
    """Larger in the table: it was cut off while it grew.  What lies behind the end that the backing says is not the volume's."""
    sectors = field(crashed.hdd, VOLUME, "sectors")
    patch_both(crashed.hdd, VOLUME, sectors=8)
    refused(crashed, "sectors", "behind the end", "give the disk that it had")
    patch_both(crashed.hdd, VOLUME, sectors=sectors)
    data = crashed.view()
    patch_tables(crashed.ssd, volume0__sectors=sectors + 8)
    crashed.larder("rescue", "writeback", "image", "--yes")
    written(crashed, data)


def test_behind_the_end_and_nothing_further_on(crashed):
    """The last region has had something, and has nothing any more: what is in the one before it is behind the end all the same."""
    found = crashed.extents()
    region = max(e[0] for e in found) // 4096
    behind = [e for e in found if e[0] // 4096 < region][-1]
    record = crashed.records()[0]
    change = [f"entry[0].{f}" for f in ("kind=5", f"sector={region * 4096}", "length=4096", "cache=0")]
    crashed.damage(crashed.ssd, f"commit:{record['segment']}:{record['slot']}", *change)
    assert crashed.extents()[-1] == behind
    patch_both(crashed.hdd, VOLUME, sectors=behind[0])
    refused(crashed, "sectors", "behind the end")


def test_cache_that_knows_nothing_of_it(crashed):
    patch_tables(crashed.ssd, volume0__state=0)
    refused(crashed, "may_be_dirty", "knows nothing", "give the SSDs that it had", "discard_dirty")
    patch_both(crashed.hdd, VOLUME, flags=0)
    data = crashed.data()
    crashed.larder("rescue", "writeback", "image", "--yes")
    written(crashed, data)


def test_newer_features(crashed):
    patch_both(crashed.hdd, VOLUME, ro_compat=1)
    before = crashed.digests()
    one_line(crashed.larder("rescue", "writeback", "image", "--yes", code=FAILED), "ro_compat")
    assert crashed.digests() == before


def test_devices_in_use(crashed):
    before = crashed.digests()
    for path, words in (
        (crashed.ssd, ["check", crashed.ssd]),
        (crashed.ssd, ["list", crashed.ssd]),
        (crashed.ssd, ["writeback", "image", "--yes"]),
        (crashed.hdd, ["writeback", "image", "--yes"]),
        (crashed.hdd, ["writeback", "image", "--dry-run"]),
        (crashed.hdd, ["serve", "image", "--socket", crashed.larder.directory / "socket"]),
    ):
        with open(path, "rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            one_line(crashed.larder("rescue", *words, code=BUSY), path, "in use")
    assert crashed.digests() == before


@pytest.mark.parametrize("which", ["ssd", "hdd"])
def test_images_that_a_loop_device_shows(crashed, loop, which):
    """The stack may run on the devices: what is written to the file, and what they have in memory, lies over one another."""
    before, path = crashed.digests(), getattr(crashed, which)
    device = loop(path)
    for words in (["--yes"], ["--dry-run"]):
        run = crashed.larder("rescue", "writeback", crashed.hdd, "--cache", crashed.ssd, *words, code=BUSY)
        one_line(run, path, "in use", f"held by {device};")
    assert crashed.digests() == before


def test_names(crashed):
    one_line(crashed.larder("rescue", "check", "nothing", code=NOT_FOUND), "nothing")
    one_line(crashed.larder("rescue", "check", crashed.hdd, code=NOT_FOUND), "volume")
    one_line(crashed.larder("rescue", "writeback", crashed.ssd, "--yes", code=NOT_FOUND), "cache")
    one_line(crashed.larder("rescue", code=USAGE), "verb")
    for word in ("check", "list", "writeback", "serve"):
        assert f"larder rescue {word}" in crashed.larder("rescue", word, "--help").stdout
        crashed.larder("rescue", word, code=USAGE)


# ---------------------------------------------------------------------- serving


def test_serve(crashed):
    expected, before = crashed.view(), crashed.digests()
    copy = crashed.larder.directory / "copy"
    with served(crashed) as address:
        info = json.loads(subprocess.run(["nbdinfo", "--json", address], capture_output=True, check=True).stdout)["exports"][0]
        assert info["export-size"] == len(expected) and info["is_read_only"]
        subprocess.run(["nbdcopy", address, copy], check=True, timeout=60)
        one_line(crashed.larder("rescue", "writeback", crashed.hdd, "--cache", crashed.ssd, "--yes", code=BUSY), "in use")
    assert copy.read_bytes() == expected
    assert crashed.digests() == before


def test_serve_damaged_data(crashed):
    """Damaged sectors are an error, all others can be read."""
    expected = crashed.view()
    sectors = one_damaged(crashed)
    with served(crashed) as address:
        for first, count, good in ((sectors.start - 16, 16, True), (sectors.start, 1, False), (sectors.stop, 8, True)):
            data = read_nbd(address.split("=")[1], first * SECTOR, count * SECTOR)
            assert data == (expected[first * SECTOR : (first + count) * SECTOR] if good else None)


def test_serve_what_the_disk_cannot_read(crashed):
    """Dirty data hides it, as in the kernel; what is beside it is read, down to a sector."""
    expected, data = crashed.view(), field(crashed.hdd, VOLUME, "data_offset")
    dirty = dirty_of(crashed)
    sector, length = max((e for e in dirty if e[2] == "dirty"), key=lambda e: e[1])[:2]
    hidden = {s for e in dirty for s in range(e[0], e[0] + e[1])}
    end = len(expected) // SECTOR
    bare = next(s for s in range(4, end, 8) if not hidden & set(range(s - 4, s + 12)))
    places = [(crashed.hdd, data + sector * SECTOR, length * SECTOR), (crashed.hdd, data + bare * SECTOR, SECTOR)]
    with served(crashed, env=unreadable(places)) as address:
        for first, number, good in (
            (sector, length, True), (sector + 3, 1, True), (max(sector - 300, 0), 600, not sector - 300 < bare + 1 <= sector + 300),
            (bare, 1, False), (bare - 4, 16, False), (bare - 4, 4, True), (bare + 1, 11, True),
        ):  # fmt: skip
            got = read_nbd(address.split("=")[1], first * SECTOR, number * SECTOR)
            assert got == (expected[first * SECTOR : (first + number) * SECTOR] if good else None), (first, number)


def test_serve_needs_a_place(crashed):
    one_line(crashed.larder("rescue", "serve", "image", code=USAGE), "--socket", "--port")
    one_line(crashed.larder("rescue", "serve", "image", "--socket", "a", "--port", "1", code=USAGE), "either")
    one_line(crashed.larder("rescue", "serve", "image", "--socket", "a", "--address", "::1", code=USAGE), "--port")
    out = crashed.larder("rescue", "serve", "image", "--port", "10809", "--dry-run").stdout
    assert "--readonly --port 10809 --ipaddr 127.0.0.1 " in out and f"ssd={crashed.ssd} backing={crashed.hdd}" in out
