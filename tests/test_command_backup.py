# SPDX-License-Identifier: GPL-2.0-or-later
"""larder super backup and restore, and the archive: what is in a file, and that nothing old ever counts again.

The oracle of a restore is what lies on the device afterwards, by the offsets of docs/on-disk-format.md, and what `larder rescue`,
which judges as a start does, makes of cache and backing then.
"""

import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import signatures
from harness import (
    CACHE,
    DONE,
    FAILED,
    MIB,
    NOT_FOUND,
    SB,
    SB_SIZE,
    TABLE,
    TABLES,
    TABLE_SIZE,
    TOP,
    UNSAFE,
    USAGE,
    VOLUME,
    attach_by_hand,
    blkid,
    digest,
    fast_crc32c,
    field,
    one_line,
    patch,
    patch_both,
    patch_tables,
    preload,
    preloaded,
    read,
    sane,
)
from rescue_images import CRASHED, Images

pytest_plugins = ["larder_fixtures"]
CRC_AT = len("larder metadata backup\nversion: 1\ncrc: ")


@pytest.fixture
def pair(larder):
    """A cache and a volume that is attached to it, and a backup of each."""
    ssd = larder.cache("fast")
    hdd = larder.volume("data", 64 * MIB, "--cache", "fast")
    attach_by_hand(ssd, hdd)
    patch_tables(ssd, volume0__incarnation=field(hdd, VOLUME, "incarnation"))
    files = [larder.directory / "ssd.backup", larder.directory / "hdd.backup"]
    for device, file in zip([ssd, hdd], files, strict=True):
        larder("super", "backup", device, file)
    return larder, ssd, hdd, *files


def text(raw):
    return str(uuid.UUID(bytes=raw))


def copies(path):
    """Both places of the superblock; the same, if both were written."""
    return read(path, SB, SB_SIZE), read(path, field(path, CACHE, "copy_offset"), SB_SIZE)


def lose_superblocks(path):
    copy = field(path, CACHE, "copy_offset")
    for at in (SB, copy):
        signatures.write(path, at, bytes(SB_SIZE))


def lose_tables(path):
    for at in TABLES:
        signatures.write(path, at, bytes(TABLE_SIZE))


def outside(path, *areas):
    """What must not change: all but these areas."""
    data = bytearray(path.read_bytes())
    for at, size in areas:
        data[at : at + size] = bytes(size)
    return bytes(data)


def sealed(data):
    """With its checksum repaired."""
    data = bytearray(data)
    data[CRC_AT : CRC_AT + 8] = b"0" * 8
    data[CRC_AT : CRC_AT + 8] = b"%08x" % fast_crc32c(data)
    return bytes(data)


# ---------------------------------------------------------------------- the file


def test_file(pair):
    _, ssd, hdd, of_ssd, of_hdd = pair
    for device, file, kind, label in [(ssd, of_ssd, "cache", "fast"), (hdd, of_hdd, "volume", "data")]:
        data = file.read_bytes()
        head = data[:4096].decode().rstrip("\n").split("\n")
        values = dict(line.split(": ", 1) for line in head[1:] if not line.startswith("area"))
        assert head[0] == "larder metadata backup"
        assert values["kind"] == kind and values["label"] == label and values["device"] == str(device)
        assert values["uuid"] == text(field(device, VOLUME, "uuid")) and values["size"] == str(device.stat().st_size)
        assert values["cache_uuid"] == text(field(ssd, CACHE, "cache_uuid")) and values["why"] == "super backup"
        assert values["by"].startswith("larder ") and re.fullmatch(r"\d+ \d{4}-\d\d-\d\d .* UTC", values["made"])
        at = 4096
        areas = [line.split()[1:] for line in head if line.startswith("area")]
        assert [a[0] for a in areas] == ["superblock", "copy"] + ["table_a", "table_b"] * (kind == "cache")
        for _, offset, size in areas:
            assert data[at : at + int(size)] == read(device, int(offset), int(size))
            at += int(size)
        assert at == len(data) and stat.S_IMODE(file.stat().st_mode) == 0o600
        assert sealed(data) == data


def test_nothing_of_somebody_else(pair):
    """Where he has written there are zeroes in the file, which is the size that it always has."""
    larder, ssd, _, of_ssd, _ = pair
    path = larder.directory / "other.backup"
    signatures.write(ssd, SB, b"His secrets." * 1000)
    signatures.write(ssd, TABLES[0] + 100, b"His secrets." * 20000)
    run = larder("super", "backup", ssd, path)
    one_line(run, ssd, "table: neither copy is valid", path, "no table of volumes")
    data, was = path.read_bytes(), of_ssd.read_bytes()
    assert b"secrets" not in data and len(data) == len(was)
    assert not any(data[4096:][:SB_SIZE]) and not any(data[-2 * TABLE_SIZE :])
    assert data[4096 + SB_SIZE :][:SB_SIZE] == was[4096 + SB_SIZE :][:SB_SIZE]


def test_what_a_backup_lacks(pair):
    """What cannot be read is said, and that there is no table; a device that is whole is no reason for a word."""
    larder, ssd, hdd, of_ssd, _ = pair
    of_copy = field(hdd, VOLUME, "copy_offset")
    for n, (device, places, said) in enumerate(
        [
            (hdd, [], []),
            (ssd, [], []),
            (hdd, [(of_copy, SB_SIZE)], [f"superblock at byte {of_copy}: cannot be read", "Input/output error"]),
            (ssd, [(TABLES[1], TABLE_SIZE)], [f"table at byte {TABLES[1]}: cannot be read", "Input/output error"]),
            (ssd, [(at, TABLE_SIZE) for at in TABLES], ["neither copy is valid", "Input/output error", "no table of volumes"]),
        ]
    ):
        path = larder.directory / f"{n}.backup"
        env = preloaded("io_error", larder.directory) | {"IO_ERROR": ",".join(f"{device}:{at}:{size}" for at, size in places)}
        run = larder("super", "backup", device, path, env=env)
        if said:
            one_line(run, device, path, *said)
        else:
            assert not run.stderr
        assert path.stat().st_size == (of_ssd.stat().st_size if device == ssd else 4096 + 2 * SB_SIZE)


def test_by_name(larder):
    ssd = larder.cache("fast")
    hdd = larder.volume("data")
    for name, device in [("fast", ssd), ("data", hdd), (text(field(hdd, VOLUME, "uuid")), hdd)]:
        file = larder.directory / f"{name}.backup"
        larder("super", "backup", name, file)
        assert f"device: {device}" in file.read_bytes()[:4096].decode()
    larder.volume("fast")
    one_line(larder("super", "backup", "fast", larder.directory / "x", code=UNSAFE), "fast", "give the device")
    one_line(larder("super", "backup", "nobody", larder.directory / "x", code=NOT_FOUND), "nobody")
    assert not (larder.directory / "x").exists()


def test_file_is_not_replaced(pair):
    larder, ssd, _, of_ssd, _ = pair
    before = of_ssd.read_bytes()
    one_line(larder("super", "backup", ssd, of_ssd, code=FAILED), of_ssd, "exists", "another name")
    assert of_ssd.read_bytes() == before


def test_file_beside_it_stays(pair):
    larder, ssd, _, _, _ = pair
    path, own = larder.directory / "mine.backup", larder.directory / "mine.backup.part"
    own.write_text("of somebody")
    larder("super", "backup", ssd, path)
    assert own.read_text() == "of somebody"
    larder("super", "backup", ssd, path, code=FAILED)
    assert {p.name for p in larder.directory.glob("mine.*")} == {path.name, own.name}, "nothing else is left behind"


def test_backup_is_killed(pair):
    """In the middle of the file, by a limit of its size: nothing is left of it, under whatever name."""
    larder, ssd, _, _, _ = pair
    before = {p.name for p in larder.directory.iterdir()}

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    words = [larder.program, "super", "backup", ssd, larder.directory / "x"]
    run = subprocess.run(words, env=larder.environment(), capture_output=True, text=True, preexec_fn=limit)
    assert run.returncode == -signal.SIGXFSZ, run.stderr
    assert {p.name for p in larder.directory.iterdir()} == before


def test_name_on_a_damaged_device(pair):
    larder, _, hdd, _, _ = pair
    signatures.write(hdd, SB + 100, b"damaged")
    signatures.write(hdd, field(hdd, VOLUME, "copy_offset") + 100, b"damaged")
    run = larder("super", "backup", "data", larder.directory / "x", code=NOT_FOUND)
    one_line(run, "data", f"the superblock on {hdd} is not valid")


def test_backup_of_nothing(larder):
    path = larder.image("blank", 64 * MIB)
    one_line(larder("super", "backup", path, larder.directory / "x", code=NOT_FOUND), path, "no larder superblock")
    one_line(larder("super", "backup", path, larder.directory / "x", "y", code=USAGE), "usage")
    assert not (larder.directory / "x").exists()


# ---------------------------------------------------------------------- a volume


def test_volume_comes_back_without_its_cache(pair):
    larder, ssd, hdd, _, file = pair
    patch_both(hdd, VOLUME, flags=1)  # may_be_dirty, as the kernel sets it; of the time before
    file.unlink()
    larder("super", "backup", hdd, file)
    signatures.write(hdd, 2 * MIB, os.urandom(MIB))
    signatures.write(hdd, hdd.stat().st_size - 4096, os.urandom(4096))
    was, copy = field(hdd, VOLUME, "incarnation"), field(hdd, VOLUME, "copy_offset")
    places = (SB, SB_SIZE), (copy, SB_SIZE)
    rest, name = outside(hdd, *places), text(field(hdd, VOLUME, "uuid"))
    keep = {f: field(hdd, VOLUME, f) for f in ("label", "mode", "data_offset", "tail_reserve", "sectors", "created", "uuid")}
    old, tables = field(hdd, VOLUME, "generation"), digest(ssd)
    lose_superblocks(hdd)
    before = digest(hdd)
    run = larder("super", "restore", file, hdd, code=UNSAFE)
    made = re.search(rb"^made: \d+ (.* UTC)$", file.read_bytes(), re.MULTILINE)[1].decode()
    size = f"{keep['sectors'] * 512} bytes"
    one_line(run, hdd, "LOST", f"--discard-dirty {name}", f"with {size}, as on {made}")
    one_line(larder("super", "restore", file, hdd, "--discard-dirty", text(field(ssd, CACHE, "cache_uuid")), code=UNSAFE), "LOST")
    for words in (["--dry-run"], []):
        assert digest(hdd) == before
        run = larder("super", "restore", file, hdd, "--discard-dirty", name, *words)
        assert f"restored the volume, without a cache, with {size}, as on {made}" in run.stdout
        assert ("dry run" in run.stdout) == bool(words)
    main, second = copies(hdd)
    assert main == second and outside(hdd, *places) == rest and digest(ssd) == tables
    assert {f: field(hdd, VOLUME, f) for f in keep} == keep
    assert field(hdd, VOLUME, "cache_uuid") == bytes(16) and field(hdd, VOLUME, "flags") == 0
    assert field(hdd, VOLUME, "incarnation") > was and field(hdd, VOLUME, "generation") > old + 1000
    larder("super", "check", hdd)
    first = field(hdd, VOLUME, "incarnation")
    one_line(larder("super", "restore", file, hdd, "--discard-dirty", name, code=FAILED), hdd, "nothing to restore")
    # once more from the same file, after a cache was attached to the first: what that one holds is stale, too
    lose_superblocks(hdd)
    larder("super", "restore", file, hdd, "--discard-dirty", name)
    assert field(hdd, VOLUME, "incarnation") not in (was, first)


def test_old_cache_stays_stale(larder, tools):
    """With dirty data in the cache, of a volume that ran without it since the backup."""
    pair = Images(larder, tools, CRASHED)
    file = larder.directory / "hdd.backup"
    larder("super", "backup", pair.hdd, file)
    name, incarnation = pair.uuid(), field(pair.hdd, VOLUME, "incarnation")
    rows = larder("rescue", "list", pair.ssd, "-o", "state", "--noheadings").stdout
    assert "attached" in rows
    patch_both(pair.hdd, VOLUME, incarnation=incarnation + 1)
    lose_superblocks(pair.hdd)
    larder("super", "restore", file, pair.hdd, "--discard-dirty", name)
    assert field(pair.hdd, VOLUME, "incarnation") != incarnation
    assert "detached" in larder("rescue", "list", pair.ssd, "-o", "state", "--noheadings").stdout
    # and if somebody makes it name the cache again
    patch_both(pair.hdd, VOLUME, cache_uuid=field(pair.ssd, CACHE, "cache_uuid"))
    assert "stale" in larder("rescue", "list", pair.ssd, "-o", "state", "--noheadings").stdout
    one_line(larder("rescue", "writeback", pair.hdd, "--yes", code=UNSAFE), "incarnation")


@pytest.mark.parametrize("what", ["tables", "superblocks"])
@pytest.mark.parametrize("offset", [512 << 10, 1 << 20, 4 << 20])
def test_luks_in_the_log(pair, what, offset):
    """The second header of an encrypted volume, where libblkid looks for one in the log, is nobody's; in front of that it is."""
    larder, ssd, _, file, _ = pair
    signatures.luks2_second_header(ssd, offset)
    words = ["super", "restore", file, ssd, "--discard-dirty", text(field(ssd, CACHE, "cache_uuid"))]
    (lose_tables if what == "tables" else lose_superblocks)(ssd)
    larder.devices.clear()
    if offset < 1 << 20:
        one_line(larder(*words, code=UNSAFE), ssd, "crypto_LUKS", "wipefs")
    else:
        larder(*words)
        larder("super", "check", ssd)


@pytest.mark.parametrize("what", ["ssd", "hdd"])
def test_signature_at_the_tail(pair, what):
    """A log, or a volume, has what it has; it is no other owner's disk for that."""
    larder, ssd, hdd, of_ssd, of_hdd = pair
    of = {"ssd": (ssd, of_ssd, field(ssd, CACHE, "cache_uuid")), "hdd": (hdd, of_hdd, field(hdd, VOLUME, "uuid"))}
    device, file, owner = of[what]
    lose_superblocks(device)
    signatures.md_1_0(device)
    assert "linux_raid_member" in blkid(device)
    larder.devices.clear()
    larder("super", "restore", file, device, "--discard-dirty", text(owner))
    larder("super", "check", device)
    assert "linux_raid_member" in blkid(device)


def test_one_copy_is_enough(pair):
    larder, ssd, hdd, of_ssd, of_hdd = pair
    for device, file in [(ssd, of_ssd), (hdd, of_hdd)]:
        for at in (SB, field(device, CACHE, "copy_offset")):
            was = read(device, at, SB_SIZE)
            signatures.write(device, at, bytes(SB_SIZE))
            before = digest(device)
            one_line(larder("super", "restore", file, device, code=FAILED), device, "nothing to restore")
            assert digest(device) == before
            signatures.write(device, at, was)


# ---------------------------------------------------------------------- a cache


def test_tables_come_back(pair):
    larder, ssd, hdd, file, _ = pair
    name = text(field(ssd, CACHE, "cache_uuid"))
    whole = digest(ssd)
    lose_tables(ssd)
    before = digest(ssd)
    one_line(larder("super", "restore", file, ssd, code=UNSAFE), ssd, "attached since", f"--discard-dirty {name}")
    assert digest(ssd) == before
    larder("super", "restore", file, ssd, "--discard-dirty", name)
    assert digest(ssd) == whole
    assert text(field(hdd, VOLUME, "uuid")) + ", attached" in larder("super", "show", ssd).stdout


def test_tables_that_come_back_know_less(pair):
    """Of volumes that were used since: with what they had seen then they would be those of an image, which the kernel refuses."""
    larder, ssd, hdd, _, _ = pair
    name, file = text(field(ssd, CACHE, "cache_uuid")), larder.directory / "seen.backup"
    patch_tables(ssd, volume0__seen=field(hdd, VOLUME, "generation"))
    larder("super", "backup", ssd, file)
    lose_tables(ssd)
    larder("super", "restore", file, ssd, "--discard-dirty", name)
    assert {field(ssd, TABLE, "volume0.seen", at) for at in TABLES} == {0}
    assert {field(ssd, TABLE, "volume0.uuid", at) for at in TABLES} == {field(hdd, VOLUME, "uuid")}


def test_one_table_is_enough(pair):
    larder, ssd, _, file, _ = pair
    signatures.write(ssd, TABLES[0], bytes(TABLE_SIZE))
    one_line(larder("super", "restore", file, ssd, code=FAILED), ssd, "nothing to restore")


def test_older_table_never_counts(pair):
    """The superblock says that there was a newer one: who has its number in the log now is not known."""
    larder, ssd, _, file, _ = pair
    name = text(field(ssd, CACHE, "cache_uuid"))
    patch_both(ssd, CACHE, table_generation=field(ssd, CACHE, "table_generation") + 1)
    lose_tables(ssd)
    before = digest(ssd)
    one_line(larder("super", "restore", file, ssd, "--discard-dirty", name, code=UNSAFE), file, "table generation", "newer backup")
    assert digest(ssd) == before


def test_cache_comes_back_empty(larder, tools):
    """With a log in its segments that was good when the backup was made."""
    pair = Images(larder, tools, CRASHED)
    ssd, file = pair.ssd, larder.directory / "ssd.backup"
    larder("super", "backup", ssd, file)
    name, copy = text(field(ssd, CACHE, "cache_uuid")), field(ssd, CACHE, "copy_offset")
    assert field(ssd, CACHE, "epoch") and field(ssd, CACHE, "checkpoint0.sequence")
    areas = (SB, SB_SIZE), (copy, SB_SIZE), (TABLES[0], TABLE_SIZE), (TABLES[1], TABLE_SIZE)
    rest = outside(ssd, *areas)
    same = ["uuid", "cache_uuid", "label", "device_number", "nr_devices", "created"]
    same += ["segment_size", "first_segment", "nr_segments", "segments_offset"]
    keep = {f: field(ssd, CACHE, f) for f in same}
    newest = field(ssd, TABLE, "generation", TABLES[0])
    lose_superblocks(ssd)
    before = digest(ssd)
    one_line(larder("super", "restore", file, ssd, code=UNSAFE), ssd, "empty", "LOST", f"--discard-dirty {name}")
    assert digest(ssd) == before
    larder("super", "restore", file, ssd, "--discard-dirty", name)
    assert outside(ssd, *areas) == rest and {f: field(ssd, CACHE, f) for f in keep} == keep
    main, second = copies(ssd)
    assert main == second and main[288:928].count(0xFF) == 8  # no epoch, and of both checkpoints only "no segment"
    assert main[416:928] == bytes(512) and field(ssd, CACHE, "epoch") == field(ssd, CACHE, "durable_sequence") == 0
    for at in TABLES:
        assert field(ssd, TABLE, "generation", at) == field(ssd, CACHE, "table_generation") > newest
        assert field(ssd, TABLE, "nr_volumes", at) == 0 and field(ssd, TABLE, "volume0.state", at) == 0
    larder("super", "check", ssd)
    assert pair.extents() == []
    # the volume says that it may be dirty: rescue refuses it, as a start does
    assert field(pair.hdd, VOLUME, "flags") == 1
    one_line(larder("rescue", "writeback", pair.hdd, "--yes", code=UNSAFE), "may_be_dirty")


def test_set_that_has_grown_is_refused(larder):
    """The backup is of the only SSD; by now there is another one, which would be stale beside an empty cache."""
    ssd, file = larder.cache("fast"), larder.directory / "ssd.backup"
    larder("super", "backup", ssd, file)
    other = larder.image("other", 64 * MIB)
    other.write_bytes(ssd.read_bytes())
    patch_both(other, CACHE, uuid=bytes(range(16)), device_number=1, nr_devices=2, first_segment=field(ssd, CACHE, "nr_segments"))
    word = text(field(ssd, CACHE, "cache_uuid"))
    lose_superblocks(ssd)
    before = digest(ssd)
    one_line(larder("super", "restore", file, ssd, "--discard-dirty", word, code=UNSAFE), ssd, other, "same cache", "cache replace")
    assert digest(ssd) == before
    larder.devices.remove(other)
    larder("super", "restore", file, ssd, "--discard-dirty", word)


def test_set_of_ssds_is_refused(larder):
    ssds = [larder.image(f"ssd{i}", 64 * MIB) for i in range(2)]
    larder("cache", "create", "fast", *(w for s in ssds for w in ("--cache", s)))
    file = larder.directory / "ssd.backup"
    larder("super", "backup", ssds[1], file)
    lose_superblocks(ssds[1])
    before = digest(ssds[1])
    word = text(field(ssds[0], CACHE, "cache_uuid"))
    one_line(larder("super", "restore", file, ssds[1], "--discard-dirty", word, code=UNSAFE), "nr_devices", "cache replace")
    assert digest(ssds[1]) == before


# ---------------------------------------------------------------------- what is refused


def test_another_device(pair):
    larder, ssd, hdd, _, of_hdd = pair
    name = text(field(hdd, VOLUME, "uuid"))
    other = larder.volume("other")
    larger = larder.image("larger", 65 * MIB)
    foreign = larder.image("foreign", 64 * MIB)
    signatures.ext4(foreign)
    wiped = ("uuid", "super wipe")
    for device, said in [(other, wiped), (ssd, wiped), (larger, ("size", "another")), (foreign, ("ext4", "wipefs"))]:
        before = digest(device)
        one_line(larder("super", "restore", of_hdd, device, "--discard-dirty", name, code=UNSAFE), device, *said)
        assert digest(device) == before
    one_line(larder("super", "restore", of_hdd, larder.directory / "none", code=NOT_FOUND), "none")
    one_line(larder("super", "restore", larder.directory / "none", hdd, code=NOT_FOUND), "none")
    one_line(larder("super", "restore", larder.directory, hdd, code=FAILED), "no regular file")
    one_line(larder("super", "restore", of_hdd, code=USAGE), "usage")


def test_newer_format_is_not_overwritten(pair):
    larder, _, hdd, _, file = pair
    name = text(field(hdd, VOLUME, "uuid"))
    patch_both(hdd, VOLUME, version=2)
    before = digest(hdd)
    one_line(larder("super", "restore", file, hdd, "--discard-dirty", name, code=UNSAFE), hdd, "whole")
    assert digest(hdd) == before


# what is changed in a backup, and what is said of it; all but the first three with the checksum repaired
DAMAGE = {
    "flipped": (lambda d: d[:5000] + bytes([d[5000] ^ 1]) + d[5001:], "crc"),
    "crc": (lambda d: d[:CRC_AT] + b"zzzzzzzz" + d[CRC_AT + 8 :], "crc"),
    "empty": (lambda d: b"", "no backup"),
    "foreign": (lambda d: b"\x7fELF" + d[4:], "no backup"),
    "version": (lambda d: d.replace(b"version: 1", b"version: 2", 1), "version"),
    "short": (lambda d: d[:4096], "truncated"),
    "cut": (lambda d: sealed(d[:-4096]), "area"),
    "longer": (lambda d: sealed(d + bytes(4096)), "area"),
    "huge": (lambda d: d + bytes(1 << 20), "truncated, or"),
    "kind": (lambda d: sealed(d.replace(b"kind: volume", b"kind: cache\n", 1)), "uuid"),
    "kind-name": (lambda d: sealed(d.replace(b"kind: volume", b"kind: spare ", 1)), "kind"),
    "uuid": (lambda d: sealed(re.sub(rb"\nuuid: ....", b"\nuuid: 0000", d, count=1)), "uuid"),
    "size": (lambda d: sealed(re.sub(rb"size: \d", b"size: x", d, count=1)), "size"),
    "size-huge": (lambda d: sealed(re.sub(rb"size: \d{8}", b"size: " + b"9" * 20, d[:4000]).ljust(4096, b"\n") + d[4096:]), "size"),
    "area-offset": (lambda d: sealed(d.replace(b"area: superblock 4096", b"area: superblock 8192", 1)), "area"),
    "area-twice": (lambda d: sealed(d.replace(b"area: copy ", b"area: superblock ", 1)[:4096] + d[4096:]), "area"),
    "area-size": (lambda d: sealed(d.replace(b" 4096\narea: copy", b" 8192\narea: copy", 1)), "area"),
    "head": (lambda d: sealed(d[:4095] + b"x" + d[4096:]), "head"),
    "superblocks": (lambda d: sealed(d[:4096] + bytes(len(d) - 4096)), "magic"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_file(pair, name):
    larder, _, hdd, _, file = pair
    word = text(field(hdd, VOLUME, "uuid"))
    change, said = DAMAGE[name]
    data = change(file.read_bytes())
    assert data != file.read_bytes()
    file.write_bytes(data)
    lose_superblocks(hdd)
    before = digest(hdd)
    one_line(larder("super", "restore", file, hdd, "--discard-dirty", word, code=FAILED), file, said)
    assert digest(hdd) == before


# ---------------------------------------------------------------------- power cuts


CUT = 88


@pytest.mark.parametrize("what", ["volume", "cache", "tables"])
@pytest.mark.parametrize("keep", ["none", "all", "2", "3"])
def test_power_cuts(larder, tools, what, keep):
    """At each write and flush: nothing valid is there, as before, or all of the new; and the same command goes on."""
    pair = Images(larder, tools, CRASHED)
    device = pair.hdd if what == "volume" else pair.ssd
    name = pair.uuid() if what == "volume" else text(field(pair.ssd, CACHE, "cache_uuid"))
    file, saved, log = (larder.directory / n for n in ("backup", "saved", "log"))
    larder("super", "backup", device, file)
    copy = field(device, CACHE, "copy_offset")
    (lose_tables if what == "tables" else lose_superblocks)(device)
    shutil.copyfile(device, saved)
    words = [larder.program, "super", "restore", str(file), str(device), "--discard-dirty", name]

    def cut(at):
        shutil.copyfile(saved, device)
        env = larder.environment(preload(tools / "power_cut.so"))
        env |= {"POWER_CUT_AT": str(at), "POWER_CUT_KEEP": keep, "POWER_CUT_LOG": str(log)}
        run = subprocess.run(words, capture_output=True, text=True, env=env)
        sane(run) if not at else None
        return run

    assert cut(0).returncode == DONE
    calls, done, not_done = int(log.read_text()), 0, 0
    assert calls >= 4
    for at in range(1, calls + 1):
        run = cut(at)
        assert run.returncode == CUT, run.stderr
        check = larder("super", "check", device, code=None)
        if what == "tables":
            whole = check.returncode == DONE or "copy A counts" in check.stdout or "copy B counts" in check.stdout
        else:
            whole = "superblock, generation" in check.stdout
        done, not_done = done + whole, not_done + (not whole)
        if whole and what == "volume":
            at_copy = SB if read(device, SB, 16) == read(device, copy, 16) or not any(read(device, copy, 16)) else copy
            assert field(device, VOLUME, "cache_uuid", at_copy) == bytes(16)
        elif whole and what == "cache":
            assert field(device, CACHE, "epoch", SB if read(device, SB, 4) == b"lard" else copy) == 0
            assert "table, generation" in check.stdout
        again = larder(*words[1:], code=None)
        assert again.returncode in (DONE, FAILED), again.stderr
        assert again.returncode == DONE or (whole and "nothing to restore" in again.stderr)
    assert done >= 1 and (not_done >= 1 or keep != "none")


# ---------------------------------------------------------------------- the archive


@pytest.fixture
def archived(larder):
    path = larder.directory / "a" / "archive"
    larder.environment_of_test = larder.environment
    larder.environment = lambda env=None: larder.environment_of_test({"LARDER_ARCHIVE": str(path)} | (env or {}))
    return larder, path


def test_archive_keeps_what_was(archived):
    larder, path = archived
    ssd, hdd = larder.cache("fast"), larder.volume("data")
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    of = {device: text(field(device, CACHE, "uuid")) for device in (ssd, hdd)}
    for device in (ssd, hdd):
        (file,) = path.glob(f"{of[device]}-*.backup")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"why: after larder" in file.read_bytes()[:4096]
    # nothing new to restore: no new file, whatever ran; and none by what changes nothing
    names = sorted(path.iterdir())
    larder("super", "wipe", hdd, "--dry-run", "--yes")
    larder("super", "show", hdd)
    larder("volume", "set", "data", "mode=writeback", code=None)
    signatures.write(ssd, 2 * MIB, b"x")
    patch_both(ssd, CACHE, generation=9, epoch=0)
    larder("volume", "create", "data", "--backing", hdd, code=None)
    assert sorted(path.iterdir()) == names
    # a wipe can be undone, as far as that is right
    larder("super", "wipe", hdd, "--yes")
    (file,) = path.glob(f"{of[hdd]}-*.backup")
    larder("super", "restore", file, hdd, "--discard-dirty", of[hdd])
    assert text(field(hdd, VOLUME, "uuid")) == of[hdd]


def test_archive_keeps_the_last(archived):
    larder, path = archived
    hdd = larder.volume("data")
    name = text(field(hdd, VOLUME, "uuid"))
    (first,) = path.glob("*.backup")
    old = []
    for n in range(20):  # as if made on other days
        old.append(path / f"{name}-201{n // 10}010{n % 10}T000000Z-{n:08x}.backup")
        old[-1].write_bytes(b"")
    other = path / "notes.txt"
    other.write_text("mine")
    patch_both(hdd, VOLUME, generation=7)
    larder("super", "wipe", hdd, "--yes")
    left = sorted(path.glob("*.backup"))
    assert len(left) == 16 and first in left and old[-14:] == left[:14] and other.exists()


@pytest.mark.parametrize("what", ["zeroed", "overwritten"])
def test_archive_keeps_nothing_of_what_cannot_be_restored(archived, what):
    """The newest one is what is put back: that of an SSD without tables is of no use, nor that of a copy that somebody has left."""
    larder, path = archived
    ssd, hdd = larder.cache("fast"), larder.volume("data")
    before = sorted(path.iterdir())
    if what == "zeroed":
        signatures.write(ssd, 0, bytes(MIB))
    else:
        patch(hdd, VOLUME, at=field(hdd, VOLUME, "copy_offset"), generation=9)
        signatures.write(hdd, SB, b"\x5a" * SB_SIZE)
    larder("super", "wipe", hdd if what == "zeroed" else ssd, "--yes")
    assert sorted(path.iterdir()) == before
    if what == "zeroed":
        (newest,) = path.glob(f"{text(field(ssd, CACHE, 'uuid', ssd.stat().st_size - SB_SIZE))}-*.backup")
        run = larder("super", "restore", newest, ssd, code=UNSAFE)
        larder("super", "restore", newest, ssd, "--discard-dirty", run.stderr.split()[-1])
        run = larder("super", "check", ssd, code=FAILED)  # the main superblock is not there
        assert "table, generation 1: copy A counts" in run.stdout


def test_archive_under_a_clock_that_was_ahead(archived):
    """Each new one is kept, and is the last by its name."""
    larder, path = archived
    hdd = larder.volume("data")
    name = text(field(hdd, VOLUME, "uuid"))
    for n in range(16):
        (path / f"{name}-20991231T2359{n + 44:02d}Z-{n:08x}.backup").write_bytes(b"")
    for n, mode in enumerate(["writethrough", "writeback", "writearound"]):
        larder("volume", "set", "data", f"mode={mode}", "--persist")
        left = sorted(path.glob("*.backup"))
        assert len(left) == 16 and left[-1].name.startswith(f"{name}-21000101T00000{n + 1}Z-"), left
        assert left[-1].read_bytes()[4096:][:SB_SIZE] == read(hdd, SB, SB_SIZE)


@pytest.mark.parametrize("how", ["a file", "full"])
def test_archive_never_fails_a_verb(larder, how):
    if how == "full":
        path = Path("/dev/full/archive")
    else:
        path = larder.directory / "archive"
        path.write_text("")
    ssd = larder.image("fast.ssd", 64 * MIB)
    run = larder("cache", "create", "fast", "--cache", ssd, env={"LARDER_ARCHIVE": str(path)})
    one_line(run, "archive", path)
    larder("super", "check", ssd)


def test_no_archive_of_images(larder):
    """Unless asked for: tests, and who looks into images, leave /var alone."""
    before = sorted(Path("/var/lib/larder/archive").glob("*")) if os.path.isdir("/var/lib/larder/archive") else None
    larder.cache("fast")
    assert before == (sorted(Path("/var/lib/larder/archive").glob("*")) if os.path.isdir("/var/lib/larder/archive") else None)


# ---------------------------------------------------------------------- fuzzing


def test_random_edits_of_a_backup(pair, tmp_path):
    """tests/fuzz/fuzz_backup.c without clang: what is accepted is valid, and inside of the file."""
    _, _, _, *files = pair
    make = ["make", "-s", "-C", TOP / "tests" / "fuzz", f"WORK={tmp_path}", "standalone-backup"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1")
    program = [tmp_path / "standalone-backup", "1", "2000", *files]
    run = subprocess.run(program, capture_output=True, text=True, errors="replace", env=environment)
    assert run.returncode == 0 and "Sanitizer" not in run.stderr, run.stderr[-4000:]
    accepted = int(re.fullmatch(r"(\d+) accepted\n", run.stdout)[1])
    assert 100 < accepted < 3900, "the edits reach nothing, or nothing is refused"
