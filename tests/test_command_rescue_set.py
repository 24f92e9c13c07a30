# SPDX-License-Identifier: GPL-2.0-or-later
"""larder rescue on caches of several SSDs, in images that tests/images/writer made: which SSDs count, what it reads with one
missing, stale or damaged, and what it refuses.
"""

import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
from harness import (
    CACHE,
    DONE,
    FAILED,
    MIB,
    NOT_FOUND,
    TABLE,
    TABLE_SIZE,
    TABLES,
    TOP,
    UNSAFE,
    USAGE,
    VOLUME,
    fast_crc32c,
    field,
    one_line,
    patch,
    patch_both,
    patch_tables,
    preload,
    read,
)
from rescue_images import CRASHED, IMAGE, SECTOR, SEGMENT, SLOT, Images, dirty_of, read_nbd, served, unreadable, written

pytest_plugins = ["larder_fixtures"]
CUT = 88  # exit code of tests/command/power_cut.c
CHUNK = 65536
COMMIT = 0x544d434c
BEHIND = "--fill-tail 2 --unsynced 2 --checkpoints 2"
LONGER = f"{IMAGE} --state crashed --tail 6 {BEHIND}"
REOPENED = f"{IMAGE} --cache-size 64M --fill 30 --state crashed --tail 30 {BEHIND}"  # with SEGMENT_OPEN behind the checkpoint
ACTIVE, GONE = 1, 3  # states of an SSD in the table


@pytest.fixture
def pair(larder, tools):
    return Images(larder, tools, CRASHED, 2)


@pytest.fixture(params=[2, 3])
def images(larder, tools, request):
    return Images(larder, tools, CRASHED, request.param)


def without(images, *missing):
    """What the scan finds when SSDs are missing."""
    images.larder.devices = [s for i, s in enumerate(images.ssds) if i not in missing] + [images.hdd]


def dirty_sectors(images, *words):
    """Sectors of the volume that rescue finds dirty, those that are damaged, and what it says on stderr."""
    options = ["-o", "dirty,damaged", "--units", "s", "--nosuffix", "--reportformat", "json"]
    run = images.larder("rescue", "list", *words, *options)
    (row,) = json.loads(run.stdout)["volumes"]
    return int(row["dirty"]), int(row["damaged"]), run.stderr


def expected_dirty(images):
    return sum(e[1] for e in dirty_of(images))


# ---------------------------------------------------------------------- all of them


def test_check_and_list(images):
    before, sectors = images.digests(), expected_dirty(images)
    out = images.larder("rescue", "check", "image").stdout
    assert f"volume image: {sectors} sectors dirty" in out and " 0 damaged" in out and "checkpoint 41, epoch 3" in out
    assert "of their copies" not in out
    assert dirty_sectors(images, "image") == (sectors, 0, "")
    run = images.larder("rescue", "list", "image", "--extents", "-o", "all", "--reportformat", "json")
    rows = [r for r in json.loads(run.stdout)["extents"] if r["kind"] == "data"]
    assert {r["ssd"] for r in rows} == set(map(str, images.ssds)) and {r["copies"] for r in rows} == {"2"}
    for r in rows:
        assert (Path(r["ssd"]), int(r["device_offset"])) == images.places(int(r["cache_sector"]))[0]
        assert struct.unpack("<Q", read(r["ssd"], int(r["device_offset"]), 8))[0] == int(r["sector"])
    assert images.digests() == before


def test_any_order(larder, tools):
    """Each order in which they can be given, and found."""
    images = Images(larder, tools, CRASHED, 3)
    sectors = expected_dirty(images)
    a, b, c = images.ssds
    for order in ((a, b, c), (b, a, c), (c, a, b), (c, b, a)):
        assert dirty_sectors(images, *order) == (sectors, 0, "")
        larder.devices = [*order, images.hdd]
        assert dirty_sectors(images, "image") == (sectors, 0, "")
        cache = [w for s in order for w in ("--cache", s)]
        assert f"{sectors} dirty sectors" in larder("rescue", "writeback", images.hdd, *cache, "--dry-run").stdout


def test_writeback(images):
    expected, before = images.view(), images.digests()
    assert expected != images.data()
    out = images.larder("rescue", "writeback", "image", "--yes").stdout
    assert f"{expected_dirty(images)} sectors written" in out
    written(images, expected)
    assert images.digests()[:-1] == before[:-1]
    assert "nothing to write back" in images.larder("rescue", "writeback", "image", "--yes").stdout


def test_serve(images):
    expected, before = images.view(), images.digests()
    copy = images.larder.directory / "copy"
    with served(images) as address:
        subprocess.run(["nbdcopy", address, copy], check=True, timeout=60)
    assert copy.read_bytes() == expected and images.digests() == before
    out = images.larder("rescue", "serve", "image", "--port", "10809", "--dry-run").stdout
    assert " ".join(f"ssd={s}" for s in images.ssds) + f" backing={images.hdd}" in out


@pytest.mark.parametrize("missing", [(), (1,)])
@pytest.mark.parametrize("keep", ["none", "1"])
def test_writeback_cut_off(pair, tools, keep, missing):
    """At every write and flush: the SSDs left and the backing, or the backing alone, hold all."""
    expected, saved = pair.view(), pair.hdd.with_suffix(".saved")
    shutil.copyfile(pair.hdd, saved)
    without(pair, *missing)
    log = pair.larder.directory / "calls"

    def run(at):
        shutil.copyfile(saved, pair.hdd)
        environment = dict(
            os.environ | preload(tools / "power_cut.so"),
            LARDER_DEVICES=":".join(map(str, pair.larder.devices)),
            POWER_CUT_AT=str(at),
            POWER_CUT_KEEP=keep,
            POWER_CUT_LOG=str(log),
        )
        words = [pair.larder.program, "rescue", "writeback", pair.hdd, "--degraded", "--yes"]
        return subprocess.run(words, capture_output=True, text=True, env=environment).returncode

    assert run(0) == DONE
    written(pair, expected)
    calls, alone = int(log.read_text()), 0
    assert calls > 15
    for at in range(1, calls + 1):
        assert run(at) == CUT
        uuid = pair.larder("super", "show", pair.hdd, "-o", "cache_uuid", "--noheadings").stdout.strip()
        alone += uuid == "-"
        assert (pair.data() if uuid == "-" else pair.view()) == expected, f"cut at {at}"
        pair.larder("rescue", "writeback", pair.hdd, "--degraded", "--yes")
        written(pair, expected)
    assert alone


# ---------------------------------------------------------------------- one is missing


def test_one_missing(images):
    """Refused, until it is said; then all that is dirty is found on the others."""
    expected, sectors, before = images.view(), expected_dirty(images), images.digests()
    hdd = images.hdd.read_bytes()
    for i in range(len(images.ssds)):
        without(images, i)
        for words in (["check", "image"], ["list", "image"], ["writeback", "image", "--yes"], ["serve", "image", "--socket", "s"]):
            one_line(images.larder("rescue", *words, code=UNSAFE), f"SSD {i} of the set", "is missing", "--degraded")
        assert images.digests() == before
        run = images.larder("rescue", "check", "image", "--degraded")
        one_line(run, f"SSD {i} of the set", "is missing")
        assert f"{sectors} sectors dirty" in run.stdout and " 0 damaged" in run.stdout
        assert dirty_sectors(images, "image", "--degraded")[:2] == (sectors, 0)
        images.larder("rescue", "writeback", "image", "--degraded", "--yes")
        written(images, expected)
        images.hdd.write_bytes(hdd)
    assert images.digests() == before


@pytest.mark.parametrize("here", range(3))
@pytest.mark.parametrize("behind", [False, True], ids=["checkpoint", "opened-behind-it"])
def test_two_missing_of_three_copies(larder, tools, here, behind):
    """Whichever one is left has all that is dirty, the log that says so, and each chunk."""
    images = Images(larder, tools, f"{REOPENED if behind else CRASHED} --mirror dirty:3", 3)
    expected, sectors = images.view(), expected_dirty(images)
    assert f"{sectors} sectors dirty" in images.larder("rescue", "check", "image").stdout
    without(images, *({0, 1, 2} - {here}))
    run = images.larder("rescue", "check", "image", "--degraded")
    assert f"{sectors} sectors dirty" in run.stdout and " 0 damaged" in run.stdout
    assert dirty_sectors(images, "image", "--degraded")[:2] == (sectors, 0)
    images.larder("rescue", "writeback", "image", "--degraded", "--yes")
    written(images, expected)


def test_segments_opened_behind_the_checkpoint(images):
    """Pairs that only the log knows of."""
    images.make(REOPENED)
    assert "SEGMENT_OPEN" in images.run("reader", "log", images.names()).decode()
    expected, sectors, hdd = images.view(), expected_dirty(images), images.hdd.read_bytes()
    for i in range(len(images.ssds)):
        without(images, i)
        run = images.larder("rescue", "check", "image", "--degraded")
        assert f"{sectors} sectors dirty" in run.stdout and " 0 damaged" in run.stdout
        images.larder("rescue", "writeback", "image", "--degraded", "--yes")
        written(images, expected)
        images.hdd.write_bytes(hdd)


@pytest.mark.parametrize("missing", [0, 1])
def test_serve_with_one_missing(pair, missing):
    expected, copy = pair.view(), pair.larder.directory / "copy"
    out = pair.larder("rescue", "serve", "image", "--port", "1", "--dry-run").stdout
    assert "degraded" not in out
    without(pair, missing)
    with served(pair, "--degraded") as address:
        subprocess.run(["nbdcopy", address, copy], check=True, timeout=60)
    assert copy.read_bytes() == expected


def test_two_of_three_missing(larder, tools):
    """What is on those two only cannot be known."""
    images = Images(larder, tools, CRASHED, 3)
    before = images.digests()
    for here in range(3):
        without(images, *(i for i in range(3) if i != here))
        for words in (["check", "image"], ["list", "image"], ["writeback", "image", "--yes"]):
            run = larder("rescue", *words, "--degraded", code=UNSAFE)
            assert "cannot be loaded without the SSDs that are missing" in run.stderr
    assert images.digests() == before


def test_not_mirrored(larder, tools):
    """The log goes from one SSD to the other."""
    images = Images(larder, tools, f"{CRASHED} --mirror none", 2)
    expected, before = images.view(), images.digests()
    for i in range(2):
        without(images, i)
        for words in (["check", "image"], ["writeback", "image", "--yes"], ["serve", "image", "--socket", "s"]):
            run = larder("rescue", *words, "--degraded", code=UNSAFE)
            assert "is only on an SSD that is not here" in run.stderr or "is on an SSD that is not here" in run.stderr
            assert "give them too" in run.stderr.splitlines()[-1]
    assert images.digests() == before
    without(images)
    larder("rescue", "writeback", "image", "--yes")
    written(images, expected)


def chunk_places(images):
    """Of chunk 0 of both checkpoints: [SSD, bytes], both copies of each."""
    first = [field(images.ssd, CACHE, f"checkpoint{i}.first_segment") for i in range(2)]
    return [images.places(segment * SEGMENT // SECTOR) for segment in first]


def patch_chunk(path, at, change):
    chunk = bytearray(read(path, at, CHUNK))
    change(chunk)
    chunk[4:8] = bytes(4)
    struct.pack_into("<I", chunk, 4, fast_crc32c(chunk))
    with open(path, "r+b") as ssd:
        ssd.seek(at)
        ssd.write(chunk)


def items(chunk):
    """[offset, kind, count, number] of the items in it."""
    at, end = 64, 64 + struct.unpack_from("<I", chunk, 28)[0]
    sizes = {1: 8, 2: 8, 3: 8, 4: 32, 5: 16, 6: 0}
    while at < end:
        kind, _, _, count, number = struct.unpack_from("<BBHIQ", chunk, at)
        yield at + 16, kind, count, number
        at += 16 + count * sizes[kind]


def give_up_second_copy(segment):
    def change(chunk):
        for at, kind, count, number in items(chunk):
            if kind == 5 and number <= segment < number + count:
                assert struct.unpack_from("<I", chunk, at + (segment - number) * 16 + 4)[0]
                struct.pack_into("<I", chunk, at + (segment - number) * 16 + 4, 0)

    return change


def test_dirty_data_that_is_missing(pair):
    """Dirty data of which only a missing SSD had a copy is lost, and nothing else; as damaged data is."""
    expected, sectors = pair.view(), expected_dirty(pair)
    lost = min(e for e in dirty_of(pair) if e[2] == "dirty" and e[1] == 128)
    segment = lost[3] // (SEGMENT // SECTOR)
    for places in chunk_places(pair):
        for path, at in places:
            patch_chunk(path, at, give_up_second_copy(segment))
    assert pair.view() == expected
    missing = pair.ssds.index(pair.places(lost[3])[0][0])
    gone = [e for e in dirty_of(pair) if e[2] == "dirty" and e[3] // (SEGMENT // SECTOR) == segment]
    count = sum(e[1] for e in gone)
    assert 0 < count < sectors
    remains = bytearray(expected)
    for sector, length, _, _ in gone:
        remains[sector * SECTOR : (sector + length) * SECTOR] = pair.data()[sector * SECTOR : (sector + length) * SECTOR]
    without(pair, missing)
    run = pair.larder("rescue", "check", "image", "--degraded", code=FAILED)
    assert f"{sectors} sectors dirty" in run.stdout and f"{count} damaged" in run.stdout and "are absent" in run.stderr
    run = pair.larder("rescue", "list", "image", "--degraded", "--extents", "-o", "sectors,data_state,ssd,copies", "--noheadings")
    rows = [line.split() for line in run.stdout.splitlines() if "absent" in line]
    assert sum(int(r[0]) for r in rows) == count and {r[-1] for r in rows} == {"0"}
    before = pair.digests()
    run = pair.larder("rescue", "writeback", "image", "--degraded", "--yes", code=UNSAFE)
    assert f"--skip-damaged {pair.uuid()}" in run.stderr.splitlines()[-1]
    assert pair.digests() == before
    with served(pair, "--degraded") as address:
        place = address.split("=")[1]
        assert read_nbd(place, lost[0] * SECTOR, SECTOR) is None
        kept = next(e for e in dirty_of(pair) if e[2] == "dirty" and e not in gone)
        assert read_nbd(place, kept[0] * SECTOR, SECTOR) == expected[kept[0] * SECTOR : (kept[0] + 1) * SECTOR]
    run = pair.larder("rescue", "writeback", "image", "--degraded", "--yes", "--skip-damaged", pair.uuid(), code=FAILED)
    assert f"{count} damaged sectors were not written" in run.stderr
    written(pair, bytes(remains))


# ---------------------------------------------------------------------- copies that no start could compare


def say_unsure(images, segment, flags):
    """In both checkpoints: not all copies of it have all of its records."""

    def change(chunk):
        for at, kind, count, number in items(chunk):
            if kind == 5 and number <= segment < number + count:
                chunk[at + (segment - number) * 16 + 2] = flags

    for places in chunk_places(images):
        for path, at in places:
            patch_chunk(path, at, change)


def put_older_life(path, at):
    """A copy of a segment as it was in an earlier life: other data, with sums that match, and lower numbers."""
    with open(path, "r+b") as ssd:
        ssd.seek(at)
        segment = bytearray(ssd.read(SEGMENT))
        for end in range(0, SEGMENT - 4 * SLOT, SLOT):
            block = segment[end : end + SLOT]
            first, last, entries = struct.unpack_from("<HHH", block, 54)
            if struct.unpack_from("<I", block, 0)[0] != COMMIT or struct.unpack_from("<H", block, 52)[0] * SLOT != end:
                continue
            for slot in range(first, last):
                segment[slot * SLOT + 16] ^= 0xFF
                sum_of = fast_crc32c(segment[slot * SLOT : (slot + 1) * SLOT])
                struct.pack_into("<I", block, 96 + entries * 24 + (slot - first) * 4, sum_of)
            struct.pack_into("<Q", block, 16, struct.unpack_from("<Q", block, 16)[0] - 500)
            block[4:8] = bytes(4)
            struct.pack_into("<I", block, 4, fast_crc32c(block))
            segment[end : end + SLOT] = block
        segment[-4 * SLOT :] = bytes(4 * SLOT)
        ssd.seek(at)
        ssd.write(segment)


@pytest.mark.parametrize("flags,older", [(1, 0), (2, 1)], ids=["first", "further"])
def test_copies_that_no_start_could_compare(pair, flags, older):
    """The one that lacks records holds an older life of the segment, and is all that is here: nothing says that it is good."""
    expected, cache = pair.view(), a_dirty_place(pair)[3]
    segment = cache // (SEGMENT // SECTOR)
    places = pair.places(segment * SEGMENT // SECTOR)
    count = sum(e[1] for e in dirty_of(pair) if e[2] == "dirty" and e[3] // (SEGMENT // SECTOR) == segment)
    say_unsure(pair, segment, flags)
    other = pair.ssds.index(places[1 - older][0])
    without(pair, other)
    assert " 0 damaged" in pair.larder("rescue", "check", "image", "--degraded").stdout  # it has all, and its chain shows it
    put_older_life(*places[older])
    run = pair.larder("rescue", "check", "image", "--degraded", code=FAILED)
    assert f" {count} damaged" in run.stdout and "no_checksum" in run.stderr
    run = pair.larder("rescue", "writeback", "image", "--degraded", "--yes", code=UNSAFE)
    assert f"--skip-damaged {pair.uuid()}" in run.stderr.splitlines()[-1]
    without(pair)
    pair.larder("rescue", "writeback", "image", "--yes")
    written(pair, expected)


# ---------------------------------------------------------------------- one is damaged


def a_dirty_place(images):
    return min((e for e in dirty_of(images) if e[2] == "dirty" and e[1] == 128), key=lambda e: e[3])


@pytest.mark.parametrize("copy", [0, 1])
def test_one_copy_of_data_is_damaged(images, copy):
    expected = images.view()
    sector, _, _, cache = a_dirty_place(images)
    images.spoil(cache + 16, copies=(copy,))
    out = images.larder("rescue", "check", "image").stdout
    assert " 0 damaged" in out and "8 sectors are good, but not in each of their copies" in out
    # the SSD with the good one is missing
    without(images, images.ssds.index(images.places(cache)[1 - copy][0]))
    run = images.larder("rescue", "check", "image", "--degraded", code=FAILED)
    assert f"sectors {sector + 16} to {sector + 23} are damaged" in run.stderr and "8 damaged" in run.stdout
    without(images)
    images.larder("rescue", "writeback", "image", "--yes")
    written(images, expected)


@pytest.mark.parametrize("damaged", [[0], [1], [2], [0, 1], [0, 2], [1, 2]])
def test_copies_of_three_are_damaged(larder, tools, damaged):
    """Whichever of them, it is told."""
    images = Images(larder, tools, f"{CRASHED} --mirror dirty:3", 3)
    expected = images.view()
    images.spoil(a_dirty_place(images)[3] + 16, copies=damaged)
    out = images.larder("rescue", "check", "image").stdout
    assert " 0 damaged" in out and "8 sectors are good, but not in each of their copies" in out
    images.larder("rescue", "writeback", "image", "--yes")
    written(images, expected)


def test_both_copies_of_data_are_damaged(pair):
    """As with one SSD."""
    sector, _, _, cache = a_dirty_place(pair)
    pair.spoil(cache + 16, copies=(0, 1))
    pair.spoil(cache + 24, copies=(1,))
    pair.spoil(cache + 32, copies=(0,))
    run = pair.larder("rescue", "check", "image", code=FAILED)
    one_line(run, "image", f"sectors {sector + 16} to {sector + 23} are damaged")
    assert "8 damaged" in run.stdout and "16 sectors are good, but not in each" in run.stdout
    run = pair.larder("rescue", "writeback", "image", "--yes", code=UNSAFE)
    assert f"--skip-damaged {pair.uuid()}" in run.stderr


def log_blocks(images, stream=0):
    """[segment, slot] of its records behind the checkpoint, in order."""
    return [(r["segment"], r["slot"]) for r in images.records(stream)]


def spoil_block(images, segment, slot, copies):
    images.spoil((segment * SEGMENT + slot * SLOT) // SECTOR, copies=copies)


@pytest.mark.parametrize("copy", [0, 1])
def test_one_copy_of_the_log_is_damaged(images, copy):
    """A commit block is read from either copy, and each may be the one that has the next."""
    images.make(LONGER)
    expected, sectors, blocks = images.view(), expected_dirty(images), log_blocks(images)
    assert len(blocks) >= 6
    for i, block in enumerate(blocks[:-2]):
        spoil_block(images, *block, copies=((copy + i) % 2,))
    assert log_blocks(images) == blocks
    assert dirty_sectors(images, "image") == (sectors, 0, "")
    images.larder("rescue", "check", "image")
    images.larder("rescue", "writeback", "image", "--yes")
    written(images, expected)


def test_both_copies_of_the_log_are_damaged(pair):
    """As with one SSD: the log breaks off in its durable part."""
    pair.make(LONGER)
    spoil_block(pair, *log_blocks(pair)[2], copies=(0, 1))
    one_line(pair.larder("rescue", "check", "image", code=FAILED), "log: it breaks off", "newer data is lost")
    one_line(pair.larder("rescue", "writeback", "image", "--yes", code=UNSAFE), "log", f"LOST by --skip-damaged {pair.uuid()}")


def test_the_end_of_the_log(pair):
    """The last record, not known durable: torn on one SSD it counts by the other, torn on both it ends the log."""
    sectors, (segment, slot) = expected_dirty(pair), log_blocks(pair)[-1]
    pair.spoil((segment * SEGMENT + (slot - 1) * SLOT) // SECTOR, copies=(0,))
    pair.spoil((segment * SEGMENT + (slot - 2) * SLOT) // SECTOR, copies=(1,))
    assert dirty_sectors(pair, "image") == (sectors, 0, "")
    pair.spoil((segment * SEGMENT + (slot - 1) * SLOT) // SECTOR, copies=(1,))
    out = pair.larder("rescue", "check", "image").stdout
    assert "the log ends at record" in out and "as a power cut leaves it" in out
    assert dirty_sectors(pair, "image")[0] < sectors


def test_pairs_opened_behind_the_end(images):
    """A torn record, the last one, opens a segment anew: the second copy that it names was never written, the old one counts."""
    at = log_blocks(images)
    segment, slot = at[-1]
    each, start = field(images.ssd, CACHE, "nr_segments"), field(images.ssd, CACHE, "segments_offset")
    logged = {s for s, _ in at}
    taken = next(s for s in (e[3] // (SEGMENT // SECTOR) for e in dirty_of(images) if e[2] == "dirty") if s not in logged)
    missing = taken // each
    other = (missing + 1) % len(images.ssds)
    blank = next(k for k in reversed(range(each // 2)) if not any(read(images.ssds[other], start + k * SEGMENT, SEGMENT)))
    entry = ("kind=6", f"sector={taken}", f"cache={other * each + blank + 1}", "length=0")
    for path, offset in images.places((segment * SEGMENT + slot * SLOT) // SECTOR):
        images.damage(path, f"byte:{offset}:larder_commit", *(f"entry[0].{change}" for change in entry))
    images.spoil((segment * SEGMENT + (slot - 1) * SLOT) // SECTOR, copies=(0, 1))
    (sectors, damaged, _), hdd = dirty_sectors(images, "image"), images.hdd.read_bytes()
    assert not damaged and "the log ends at record" in images.larder("rescue", "check", "image").stdout
    images.larder("rescue", "writeback", "image", "--yes")
    expected = images.data()
    images.hdd.write_bytes(hdd)
    without(images, missing)
    run = images.larder("rescue", "check", "image", "--degraded")
    assert f"{sectors} sectors dirty" in run.stdout and " 0 damaged" in run.stdout
    images.larder("rescue", "writeback", "image", "--degraded", "--yes")
    written(images, expected)


@pytest.mark.parametrize("copy", [0, 1])
def test_one_copy_of_a_chunk_is_damaged(images, copy):
    sectors = expected_dirty(images)
    path, at = chunk_places(images)[0][copy]
    with open(path, "r+b") as ssd:
        ssd.seek(at + 900)
        ssd.write(b"spoilt")
    assert dirty_sectors(images, "image")[:2] == (sectors, 0)
    if copy == 0:
        one_line(images.larder("rescue", "check", "image", code=FAILED), "chunk 0: crc of a chunk; another copy of it is good")
    without(images, images.ssds.index(chunk_places(images)[0][1 - copy][0]))
    assert dirty_sectors(images, "image", "--degraded")[:2] == (sectors, 0)  # by the checkpoint before it
    run = images.larder("rescue", "check", "image", "--degraded", code=FAILED)
    assert "checkpoint: [0]" in run.stderr and "checkpoint 40," in run.stdout


def test_one_superblock_is_damaged(pair):
    """The SSD is as good as missing; its table: the same."""
    sectors = expected_dirty(pair)
    for at in TABLES:
        patch(pair.ssds[1], TABLE, at=at, size=TABLE_SIZE, magic=0)
    run = pair.larder("rescue", "check", "image", code=UNSAFE)
    assert f"{pair.ssds[1]}: SSD 1: table: neither copy is valid" in run.stderr and "--degraded" in run.stderr
    assert dirty_sectors(pair, "image", "--degraded")[:2] == (sectors, 0)
    patch_both(pair.ssds[1], CACHE, segment_size=7)
    one_line(pair.larder("rescue", "check", "image", code=UNSAFE), "SSD 1 of the set", "missing")
    one_line(pair.larder("rescue", "check", *pair.ssds, code=FAILED), pair.ssds[1], "superblock", "segment_size")
    assert dirty_sectors(pair, "image", "--degraded")[:2] == (sectors, 0)


def test_table_of_the_newer_set_is_lost(pair):
    """The others may be a set that was left: as the kernel, nobody goes on with them unasked."""
    patch_both(pair.ssds[1], CACHE, set_generation=NEW)
    for at in TABLES:
        patch(pair.ssds[1], TABLE, at=at, size=TABLE_SIZE, magic=0)
    before = pair.digests()
    for words in (["check", "image"], ["list", *pair.ssds], ["writeback", "image", "--yes"]):
        for degraded in ([], ["--degraded"]):
            one_line(pair.larder("rescue", *words, *degraded, code=UNSAFE), pair.ssds[1], "set_generation", "newer", "leave it out")
    assert pair.digests() == before
    pair.larder("rescue", "check", pair.ssds[0], "--degraded")


@pytest.mark.parametrize("which", [0, 1])
def test_the_newest_superblock_counts(pair, which):
    """With what it names; but what any of the members knows to be durable is."""
    sectors = expected_dirty(pair)
    patch_both(pair.ssds[which], CACHE, generation=3, checkpoint0__bytes=7 * CHUNK)
    assert dirty_sectors(pair, "image") == (sectors, 0, "")
    out = pair.larder("rescue", "check", "image").stdout
    assert "checkpoint 41," in out
    patch_both(pair.ssds[which], CACHE, generation=99)
    run = pair.larder("rescue", "check", "image", code=FAILED)
    assert "checkpoint: [0]" in run.stderr and "checkpoint 40," in run.stdout
    patch_both(pair.ssds[which], CACHE, generation=3, durable_sequence=1 << 40)
    assert "log: it breaks off" in pair.larder("rescue", "check", "image", code=FAILED).stderr


@pytest.mark.parametrize("which", [0, 1])
def test_one_put_back_from_an_image(pair, which):
    """It lacks a superblock that all have had: refused, by check, list and writeback.  Without it all is there."""
    sectors = expected_dirty(pair)
    had = field(pair.ssds[which], CACHE, "generation")
    patch_both(pair.ssds[1 - which], CACHE, all_generation=had)
    assert dirty_sectors(pair, "image") == (sectors, 0, "")
    patch_both(pair.ssds[which], CACHE, generation=had - 1)
    before = pair.digests()
    given = [w for s in pair.ssds for w in ("--cache", s)]
    for words in (("check", "image"), ("list", "image"), ("writeback", pair.hdd, *given)):
        told = f"generation: is {had - 1}, and all SSDs of the set had {had}"
        one_line(pair.larder("rescue", *words, code=UNSAFE), str(pair.ssds[which]), told)
    assert pair.digests() == before
    found, damaged, told = dirty_sectors(pair, pair.ssds[1 - which], "--degraded")
    assert (found, damaged) == (sectors, 0) and "is missing" in told


# ---------------------------------------------------------------------- what cannot be read


def tail_places(images, copies):
    """Of the last record: a slot of its data, its commit block, and one behind it, where the next would be."""
    last = images.records()[-1]
    assert last["durable"] < last["sequence"]
    return [images.slot(last["segment"], slot, copies) for slot in (last["first"] + 1, last["slot"], SEGMENT // SLOT - 5)]


@pytest.mark.parametrize("copy", [0, 1])
def test_one_copy_of_the_tail_cannot_be_read(images, copy):
    """All of it is read from the other one, and no copy of a chunk, or of what is dirty, is needed twice."""
    expected, sectors = images.view(), expected_dirty(images)
    chunk = [(*chunk_places(images)[0][copy], CHUNK)]
    data = [(*images.places(a_dirty_place(images)[3])[copy], 16 * SLOT)]
    env = unreadable([*(p for places in tail_places(images, (copy,)) for p in places), *chunk, *data])
    run = images.larder("rescue", "check", "image", code=DONE if copy else FAILED, env=env)
    assert "chunk 0: a chunk cannot be read; another copy of it is good" in run.stderr if not copy else not run.stderr
    assert f"{sectors} sectors dirty" in run.stdout and " 0 damaged" in run.stdout
    images.larder("rescue", "writeback", "image", "--yes", env=env)
    written(images, expected)


@pytest.mark.parametrize("missing", [(), (0,), (1,)])
def test_no_copy_of_the_tail_can_be_read(pair, missing):
    """Nor of those that are here."""
    before = pair.digests()
    data, *blocks = tail_places(pair, tuple({0, 1} - set(missing)))
    without(pair, *(pair.ssds.index(pair.places(pair.records()[-1]["segment"] * SEGMENT // SECTOR)[i][0]) for i in missing))
    degraded = ["--degraded"] if missing else []
    for places in blocks:
        env = unreadable(places)
        for words, code in ((["check", "image"], FAILED), (["list", "image"], DONE), (["writeback", "image", "--yes"], UNSAFE)):
            said = pair.larder("rescue", *words, *degraded, code=code, env=env).stderr.splitlines()[-1]
            assert "cannot be read, where the record behind" in said and ("LOST" in said) == (code == UNSAFE)
        with served(pair, *degraded, env=env):
            pass
        assert "cannot be read, where the record behind" in pair.said
    env = unreadable(data)
    run = pair.larder("rescue", "check", "image", *degraded, code=FAILED, env=env)
    assert " 8 damaged" in run.stdout and "cannot be read" in run.stderr
    run = pair.larder("rescue", "writeback", "image", "--yes", *degraded, code=UNSAFE, env=env)
    assert "8 of " in run.stderr.splitlines()[-1] and "--skip-damaged" in run.stderr.splitlines()[-1]
    assert pair.digests() == before


def test_torn_in_one_copy_and_not_to_be_read_in_the_other(pair):
    """What was durable is whole in both: this was not."""
    last = pair.records()[-1]
    pair.spoil((last["segment"] * SEGMENT + (last["first"] + 1) * SLOT) // SECTOR, copies=(1,))
    run = pair.larder("rescue", "check", "image", env=unreadable(pair.slot(last["segment"], last["first"] + 1)))
    assert f"the log ends at record {last['sequence']}" in run.stdout
    pair.spoil((last["segment"] * SEGMENT + last["slot"] * SLOT) // SECTOR, copies=(1,))
    assert not pair.larder("rescue", "check", "image", env=unreadable(pair.slot(last["segment"], last["slot"]))).stderr


# ---------------------------------------------------------------------- stale ones, and sides


OLD, NEW = 1, 1 << 32 | 0x5EED


def leave(images, number):
    """SSD number has left the set, as the others and the backing know, and went on with what it held for a while."""
    state = {f"device{number}__state": GONE}
    for i, ssd in enumerate(images.ssds):
        if i != number:
            patch_tables(ssd, set_generation=NEW, ancestors0=OLD, generation=3, **state)
            patch_both(ssd, CACHE, set_generation=NEW, table_generation=3)
    patch_both(images.hdd, VOLUME, set_generation=NEW)
    patch_both(images.ssds[number], CACHE, generation=99, durable_sequence=1 << 40)


def blank_segments(path):
    with open(path, "r+b") as ssd:
        start = field(path, CACHE, "segments_offset")
        ssd.seek(start)
        ssd.write(bytes(field(path, CACHE, "nr_segments") * SEGMENT))


def test_one_is_stale(images):
    """It is named, and nothing of it counts: neither its superblock, which claims to be newer, nor what is on it."""
    expected, sectors = images.view(), expected_dirty(images)
    for i in range(len(images.ssds)):
        images.make(CRASHED)
        leave(images, i)
        blank_segments(images.ssds[i])
        before = images.digests()
        run = images.larder("rescue", "check", "image")
        one_line(run, images.ssds[i], f"SSD {i} is stale", "it left the set")
        assert f"{sectors} sectors dirty" in run.stdout and " 0 damaged" in run.stdout
        without(images, i)
        assert dirty_sectors(images, "image") == (sectors, 0, "")  # nothing is missing
        without(images)
        assert images.digests() == before
        run = images.larder("rescue", "writeback", "image", "--yes")
        one_line(run, f"SSD {i} is stale")
        written(images, expected)


def test_the_stale_one_alone(pair):
    """It takes itself for the set; the backing knows better."""
    leave(pair, 1)
    before = pair.digests()
    without(pair, 0)
    one_line(pair.larder("rescue", "writeback", "image", "--yes", code=UNSAFE), "SSD 0 of the set", "missing")
    for words in (["writeback", "image", "--yes"], ["serve", "image", "--socket", "s"]):
        run = pair.larder("rescue", *words, "--degraded", code=UNSAFE)
        assert "set_generation: the volume ran with other SSDs" in run.stderr.splitlines()[-1]
    run = pair.larder("rescue", "list", "image", "--degraded", "-o", "state", "--noheadings")
    assert run.stdout.strip() == "other_set"
    assert pair.digests() == before


def test_one_whose_table_is_older(pair):
    """The change of the set was cut off before its table was written: a member, if the new set has it."""
    sectors = expected_dirty(pair)
    patch_tables(pair.ssds[0], set_generation=NEW, ancestors0=OLD, generation=3)
    assert dirty_sectors(pair, "image") == (sectors, 0, "")
    # of a set that is none of those before
    patch_tables(pair.ssds[0], ancestors0=OLD + 1)
    run = pair.larder("rescue", "check", "image", code=UNSAFE)
    assert "SSD 1 is stale" in run.stderr and "SSD 1 of the set" in run.stderr.splitlines()[-1]


def test_one_that_was_replaced(pair):
    """Another SSD has its place."""
    patch_tables(pair.ssds[0], set_generation=NEW, ancestors0=OLD, generation=3, device1__uuid=bytes(range(16)))
    run = pair.larder("rescue", "check", "image", code=UNSAFE)
    assert f"{pair.ssds[1]}: SSD 1 is stale" in run.stderr
    assert "SSD 1 of the set (00010203-0405" in run.stderr.splitlines()[-1]


def test_sides_that_went_apart(pair):
    for i, ssd in enumerate(pair.ssds):
        patch_tables(ssd, set_generation=NEW + i, ancestors0=OLD, generation=3 + i, **{f"device{1 - i}__state": GONE})
    before = pair.digests()
    for words in (["check", "image"], ["list", *pair.ssds], ["writeback", "image", "--yes"]):
        for degraded in ([], ["--degraded"]):
            one_line(pair.larder("rescue", *words, *degraded, code=UNSAFE), "set_generation", "without one another", "one side")
    patch_both(pair.hdd, VOLUME, set_generation=NEW + 1)
    one_line(pair.larder("rescue", "writeback", "image", "--cache", pair.ssds[0], "--yes", code=UNSAFE), "other SSDs")
    assert pair.digests()[:-1] == before[:-1]
    pair.larder("rescue", "writeback", "image", "--cache", pair.ssds[1], "--yes")


def test_sides_that_went_apart_in_any_order(larder, tools):
    """Two of one number, whatever third one is newer."""
    images = Images(larder, tools, CRASHED, 3)
    a, b, c = images.ssds
    for ssd, generation, table in ((a, NEW, 3), (b, NEW + (1 << 32), 4), (c, NEW + 1, 5)):
        patch_tables(ssd, set_generation=generation, ancestors0=NEW if ssd == b else OLD, generation=table)
    before = images.digests()
    for order in itertools.permutations(images.ssds):
        for degraded in ([], ["--degraded"]):
            run = larder("rescue", "check", *order, *degraded, code=UNSAFE)
            one_line(run, "set_generation", "without one another", "one side")
    assert images.digests() == before


@pytest.mark.parametrize("told", [False, True])
def test_one_that_joins(pair, told):
    """It has a superblock, and no table yet; told: the others name it in theirs."""
    sectors, expected = expected_dirty(pair), pair.view()
    if not told:
        patch_tables(pair.ssds[0], device1__state=GONE)
    patch_both(pair.ssds[1], CACHE, flags=4, generation=99)
    for at in TABLES:
        with open(pair.ssds[1], "r+b") as ssd:
            ssd.seek(at)
            ssd.write(bytes(TABLE_SIZE))
    dirty, damaged, said = dirty_sectors(pair, "image")
    assert (dirty, damaged) == (sectors, 0) and "SSD 1 was to join the set, and is no member yet" in said
    assert "sectors dirty, " in pair.larder("rescue", "check", "image").stdout
    copy = pair.larder.directory / "copy"
    with served(pair) as address:
        subprocess.run(["nbdcopy", address, copy], check=True, timeout=60)
    assert copy.read_bytes() == expected
    pair.larder("rescue", "writeback", "image", "--yes")
    written(pair, expected)


# ---------------------------------------------------------------------- what is given


def test_what_is_given(larder, tools):
    images = Images(larder, tools, CRASHED, 3)
    a, b, c = images.ssds
    other, copy = larder.cache("other", 32 * MIB), larder.directory / "copy"
    shutil.copyfile(b, copy)
    before = images.digests()
    link = larder.directory / "link"
    link.symlink_to(b)
    for words, code, parts in (
        ((a,), UNSAFE, (a, "SSD 1 of the set", "missing")),
        ((c, a), UNSAFE, (a, c, "SSD 1 of the set", "missing")),
        ((a, b, b), USAGE, (b, "given twice")),
        ((a, b, link), USAGE, ("given twice",)),
        ((a, b, copy), UNSAFE, ("uuid", copy, b)),
        ((a, b, other), UNSAFE, ("cache_uuid", other, a)),
        ((a, b, images.hdd), NOT_FOUND, (images.hdd, "is a volume")),
        ((a, "image"), USAGE, ("image", "is no device")),
    ):
        for verb in ("check", "list"):
            one_line(larder("rescue", verb, *words, code=code), *parts)
        given = [w for word in words for w in ("--cache", word)]
        one_line(larder("rescue", "writeback", images.hdd, *given, "--yes", code=code), *parts)
    # a copy among those found
    larder.devices = [*images.ssds, copy, images.hdd]
    one_line(larder("rescue", "check", "image", code=UNSAFE), "uuid", copy, b)
    assert images.digests() == before


# ---------------------------------------------------------------------- hostile numbers


HOSTILE = [
    *[("super", f"checkpoint[0].first_mirror={n}") for n in (1, 7, 4294967295)],
    *[("super", f"checkpoint[0].first_segment={n}") for n in (4294967294, 120, 500)],
    *[("super", f) for f in ("epochs[0].segment=4294967294", "device_number=15", "device_number=1")],
    *[("table-a", f"devices[1].first_segment={n}") for n in (0, 4294967295)],
    *[("table-a", f"devices[1].nr_segments={n}") for n in (0, 4294967295)],
    *[("table-a", f"devices[1].segments_offset={n}") for n in (7, 18446744073709547520)],
    *[("table-a", f"devices[1].state={n}") for n in (0, 4, 9)],
    *[("table-a", f"head.{f}") for f in ("nr_devices=16", "nr_devices=3", "set_generation=18446744073709551615")],
    *[("table-a", f) for f in ("ancestors[0]=18446744073709551615", "devices[0].role=3")],
]


def test_hostile_numbers(pair):
    """With their checksums right, on one SSD of two: no crash, no sanitizer's word, and nothing written."""
    saved = pair.ssd.with_suffix(".saved")
    shutil.copyfile(pair.ssd, saved)
    codes = set()
    for place, change in HOSTILE:
        shutil.copyfile(saved, pair.ssd)
        pair.damage(pair.ssd, place, change)
        pair.damage(pair.ssd, *(("super-copy", change) if place == "super" else ("table-b", "head.magic=0")))
        before = pair.digests()
        for words in (["check", "image"], ["list", "image", "--extents"], ["check", pair.ssd]):
            codes.add(pair.larder("rescue", *words, code=None).returncode)
            codes.add(pair.larder("rescue", *words, "--degraded", code=None).returncode)
        assert pair.digests() == before
    assert {DONE, FAILED, UNSAFE} <= codes


def test_hostile_items(pair):
    """Numbers of second copies in the checkpoint and the log: refused as damage of both copies would be, or harmless."""
    saved = [p.read_bytes() for p in pair.ssds]
    (first, second), _ = chunk_places(pair)
    segments = 2 * field(pair.ssd, CACHE, "nr_segments")
    chunk = read(*first, CHUNK)
    places = []
    for at, kind, count, _ in items(chunk):
        if kind == 3 and count:
            places += [(at + 4, "<I"), (at, "<I")]
        if kind == 5:
            places += [(at + 4, "<I"), (at + 16 * (count - 1) + 4, "<I")]
    places += [(36, "<I"), (32, "<I")]
    assert len(places) >= 8
    codes = set()
    for at, form in places:
        for value in (1, 2, segments, segments + 1, 0xFFFFFFFF):
            for path, data in zip(pair.ssds, saved, strict=True):
                path.write_bytes(data)
            for copy in (first, second):
                patch_chunk(*copy, lambda c, at=at, form=form, value=value: struct.pack_into(form, c, at, value))
            codes.add(pair.larder("rescue", "check", "image", code=None).returncode)
            pair.larder("rescue", "list", "image", "--extents", code=None)
    assert {DONE, FAILED} <= codes


def test_hostile_log(pair):
    pair.make(REOPENED)
    saved = [p.read_bytes() for p in pair.ssds]
    lines = pair.run("reader", "log", pair.names()).decode().splitlines()
    opens = [i for i, line in enumerate(lines) if "SEGMENT_OPEN" in line]
    assert opens
    record = next(line for line in reversed(lines[: opens[0]]) if line.startswith("record"))
    at = {k: int(v) for k, v in (w.split("=") for w in record.split()[1:])}
    places = pair.places((at["segment"] * SEGMENT + at["slot"] * SLOT) // SECTOR)
    codes = set()
    changes = [f"cache={n}" for n in (0, 1, 1 << 40)] + [f"sector={n}" for n in (0, 1 << 40)] + ["length=1", "length=9"]
    for change in changes:
        for path, data in zip(pair.ssds, saved, strict=True):
            path.write_bytes(data)
        for path, offset in places:
            pair.damage(path, f"byte:{offset}:larder_commit", f"entry[0].{change}")
        codes.add(pair.larder("rescue", "check", "image", code=None).returncode)
        pair.larder("rescue", "list", "image", "--extents", code=None)
    assert FAILED in codes


@pytest.mark.parametrize("copy", [0, 1])
def test_hostile_block_in_one_copy(pair, copy):
    """With its checksum right: the other copy counts, and its entries."""
    sectors, expected = expected_dirty(pair), pair.view()
    segment, slot = log_blocks(pair)[0]
    path, at = pair.places((segment * SEGMENT + slot * SLOT) // SECTOR)[copy]
    for change in ("entry[0].cache=68719476735", "entry[0].volume=65535", "nr_entries=65535", "end=65535"):
        pair.damage(path, f"byte:{at}:larder_commit", change)
        assert dirty_sectors(pair, "image") == (sectors, 0, "")
    pair.larder("rescue", "writeback", "image", "--yes")
    written(pair, expected)


def test_random_edits(tmp_path):
    """Of superblocks, tables, chunks and blocks of both SSDs, most with right checksums: tests/fuzz/fuzz_rescue.c without clang."""
    make = ["make", "-s", "-C", TOP / "tests" / "fuzz", f"WORK={tmp_path}", "standalone"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    environment = dict(os.environ, LARDER_FUZZ_IMAGES=str(tmp_path), ASAN_OPTIONS="detect_leaks=1")
    run = subprocess.run([tmp_path / "standalone", "1", "150"], capture_output=True, text=True, errors="replace", env=environment)
    assert run.returncode == 0 and "Sanitizer" not in run.stderr, run.stderr[-4000:]
