# SPDX-License-Identifier: GPL-2.0-or-later
"""The command larder on images in regular files: what it writes, what it prints, what it says of wrong words.

Needs no root, no device and no kernel module.
"""

import fcntl
import json
import os
import pty
import random
import re
import struct
import subprocess
import uuid
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import signatures
from harness import (
    BUSY,
    CACHE,
    DONE,
    FAILED,
    GIB,
    KIB,
    MAGIC,
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
    blank,
    crc32c,
    digest,
    fast_crc32c,
    field,
    one_line,
    patch_both,
    read,
)

pytest_plugins = ["larder_fixtures"]

# ---------------------------------------------------------------------- what create writes


def test_crc_of_the_tests():
    """Known value (RFC 3720, with the format's missing inversion): the oracle itself."""
    assert crc32c(b"123456789") ^ 0xFFFFFFFF == 0xE3069283
    assert fast_crc32c(b"123456789") == crc32c(b"123456789")


@pytest.mark.parametrize(
    "size, segment, offset, number",
    [
        (64 * MIB, 256 * KIB, MIB, 251),
        (40 * MIB, 128 * KIB, MIB, 311),
        (512 * MIB, MIB, MIB, 510),
        (GIB, 2 * MIB, 2 * MIB, 510),
        (100 * MIB + 12345, 256 * KIB, MIB, 396),
        (10 * GIB, 2 * MIB, 2 * MIB, 5118),
    ],
)
def test_cache_layout(larder, size, segment, offset, number):
    path = larder.cache("fast", size)
    copy = size // 4096 * 4096 - 4096
    expect = {
        "magic": MAGIC,
        "version": 1,
        "kind": 1,
        "generation": 1,
        "compat": 0,
        "ro_compat": 0,
        "incompat": 0,
        "device_sectors": size // 512,
        "copy_offset": copy,
        "device_number": 0,
        "role": 0,
        "nr_devices": 1,
        "segment_size": segment,
        "first_segment": 0,
        "nr_segments": number,
        "segments_offset": offset,
        "epoch": 0,
        "checkpoint0.first_segment": 0xFFFFFFFF,
        "checkpoint1.first_segment": 0xFFFFFFFF,
        "table_generation": 1,
        "label": b"fast".ljust(64, b"\0"),
    }
    assert {name: field(path, CACHE, name) for name in expect} == expect
    block = read(path, SB, SB_SIZE)
    assert struct.unpack_from("<I", block, 16)[0] == crc32c(block[:16] + bytes(4) + block[20:])
    assert read(path, copy, SB_SIZE) == block
    table = read(path, TABLES[0], TABLE_SIZE)
    assert read(path, TABLES[1], TABLE_SIZE) == table
    assert struct.unpack_from("<I", table, 4)[0] == fast_crc32c(table[:4] + bytes(4) + table[8:])
    at = TABLES[0]
    assert field(path, TABLE, "cache_uuid", at) == field(path, CACHE, "cache_uuid") != bytes(16)
    assert field(path, TABLE, "device0.uuid", at) == field(path, CACHE, "uuid") != bytes(16)
    assert (
        field(path, TABLE, "nr_devices", at),
        field(path, TABLE, "nr_volumes", at),
        field(path, TABLE, "device0.state", at),
    ) == (1, 0, 1)
    assert offset + segment * number <= copy
    larder("super", "check", path)


def test_segment_size_given(larder):
    path = larder.cache("fast", 64 * MIB, "--segment-size", "1M")
    assert (field(path, CACHE, "segment_size"), field(path, CACHE, "nr_segments")) == (MIB, 62)


WRONG_CACHES = [
    (64 * MIB, ["--segment-size", "3M"], FAILED, "--segment-size"),
    (64 * MIB, ["--segment-size", "64K"], FAILED, "--segment-size"),
    (64 * MIB, ["--segment-size", "32M"], USAGE, "--segment-size"),
    (64 * MIB, ["--segment-size", "a lot"], USAGE, "--segment-size"),
    (64 * MIB, ["--segment-size", "4M"], FAILED, "size"),
    (4 * MIB, [], FAILED, "size"),
    (0, [], FAILED, "size"),
    (33 << 40, [], FAILED, "32 TiB"),
]


@pytest.mark.parametrize("size, options, code, said", WRONG_CACHES)
def test_cache_sizes_refused(larder, size, options, code, said):
    path = larder.image("ssd", 1)
    try:
        os.truncate(path, size)
    except OSError:
        pytest.skip("the file system of the tests has no files of that size")
    one_line(larder("cache", "create", "fast", "--cache", path, *options, code=code), said)
    assert blank(path)


@pytest.mark.parametrize(
    "offset, tail, copy",
    [
        (None, None, MIB - 4096),
        ("8K", "0", 0),
        ("12K", "64K", 8192),
        ("16K", "4K", 12288),
        ("2M", "2M", MIB - 4096),
        ("4096s", "1M", MIB - 4096),
    ],
)
def test_volume_layout(larder, offset, tail, copy):
    size = 64 * MIB
    path = larder.image("hdd", size)
    data = random.Random(1).randbytes(size)
    path.write_bytes(b"\0" * 4096 + data[4096:])
    options = (["--data-offset", offset] if offset else []) + (["--tail-reserve", tail] if tail else [])
    larder("volume", "create", "data", "--backing", path, "--mode", "writethrough", *options)
    begin, left = field(path, VOLUME, "data_offset"), field(path, VOLUME, "tail_reserve")
    assert begin == {None: MIB, "8K": 8192, "12K": 12288, "16K": 16384, "2M": 2 * MIB, "4096s": 2 * MIB}[offset]
    assert left == {None: MIB, "0": 0, "64K": 65536, "4K": 4096, "2M": 2 * MIB, "1M": MIB}[tail]
    assert (field(path, VOLUME, "copy_offset"), field(path, VOLUME, "sectors")) == (copy, (size - begin - left) // 512)
    assert (field(path, VOLUME, "mode"), field(path, VOLUME, "kind"), field(path, VOLUME, "flags")) == (1, 2, 0)
    after = path.read_bytes()
    assert after[begin : size - left] == data[begin : size - left], "the volume's own sectors were touched"
    assert after[size - left :] == bytes(left) and after[:4096] == bytes(4096)
    if copy:
        assert after[copy : copy + 4096] == after[4096:8192]
        assert after[8192:copy] == bytes(copy - 8192) and after[copy + 4096 : begin] == bytes(begin - copy - 4096)
    larder("super", "check", path)


WRONG_VOLUMES = [
    (["--data-offset", "4K"], FAILED, "--data-offset"),
    (["--data-offset", "9K"], FAILED, "--data-offset"),
    (["--data-offset", "64M"], FAILED, "too small"),
    (["--tail-reserve", "63M"], FAILED, "too small"),
    (["--tail-reserve", "1000"], FAILED, "--tail-reserve"),
    (["--size", "0"], USAGE, "--size"),
    (["--size", "1000"], USAGE, "--size"),
    (["--size", "63M"], FAILED, "--size"),
    (["--mode", "fast"], USAGE, "--mode"),
    (["--data-offset", "-1"], USAGE, "--data-offset"),
    (["--tail-reserve", "99999999999999999999"], USAGE, "--tail-reserve"),
    (["--cache", "nowhere"], NOT_FOUND, "nowhere"),
    (["--label", "a\nb"], USAGE, "--label"),
    (["--label", "x" * 65], USAGE, "--label"),
    (["--label", ""], USAGE, "--label"),
]


@pytest.mark.parametrize("options, code, said", WRONG_VOLUMES)
def test_volume_refused(larder, options, code, said):
    path = larder.image("hdd", 64 * MIB)
    one_line(larder("volume", "create", "data", "--backing", path, *options, code=code), said)
    assert blank(path)


def test_volume_names_its_cache(larder):
    ssd, hdd = larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast")
    assert field(hdd, VOLUME, "cache_uuid") == field(ssd, CACHE, "cache_uuid")
    assert field(larder.volume("alone"), VOLUME, "cache_uuid") == bytes(16)


def test_uuids_differ(larder):
    seen = set()
    for i in range(4):
        path = larder.cache(f"c{i}")
        seen |= {field(path, CACHE, "uuid"), field(path, CACHE, "cache_uuid")}
    assert len(seen) == 8


WRONG_NAMES = ["", "a/b", "-a", ".", "..", "a b", "x" * 65, "control", "ü"]


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_names_refused(larder, name):
    path = larder.image("ssd", 64 * MIB)
    one_line(larder("cache", "create", "--cache", path, "--", name, code=USAGE), "NAME")
    one_line(larder("volume", "create", "--backing", path, "--", name, code=USAGE), "NAME")
    one_line(larder("volume", "create", "--backing", path, "larder-cache-x", code=USAGE), "NAME")
    assert blank(path)


def test_label_taken(larder):
    first, second = larder.cache("fast"), larder.image("other", 64 * MIB)
    one_line(larder("cache", "create", "fast", "--cache", second, code=BUSY), "label", first)
    larder("volume", "create", "fast", "--backing", second)


def test_several_ssds(larder):
    a, b, c = (larder.image(name, 64 * MIB) for name in "abc")
    larder("cache", "create", "fast", "--cache", a, "--cache", b, "--yes")
    (first,), (second,) = (report(larder("super", "show", x, "--reportformat", "json")) for x in (a, b))
    assert (first["cache_uuid"], first["nr_devices"], second["nr_devices"]) == (second["cache_uuid"], "2", "2")
    assert (first["device_number"], second["device_number"]) == ("0", "1") and first["uuid"] != second["uuid"]
    assert second["first_segment"] == first["nr_segments"]
    for x in (a, b):
        assert larder("super", "check", x).returncode == 0
    # any of the two stands for it, in whatever order they are found; a file is no block device, but a dry run tells
    for name in ("fast", first["cache_uuid"], second["uuid"], str(b)):
        assert f"larder-cache 2 {a} {b} 0" in larder("cache", "start", name, "--dry-run").stdout
    one_line(larder("cache", "create", "more", *["--cache", c] * 17, code=USAGE), "--cache", "17 times")
    assert blank(c)


def test_several_ssds_above_the_limit(larder):
    """32 TiB for all of them together: one more segment would be refused by the kernel."""
    a, b = larder.image("a", 0), larder.image("b", 0)
    try:
        os.truncate(a, 17 << 40)
        os.truncate(b, 16 << 40)
    except OSError:
        pytest.skip("the file system of the tests has no files of that size")
    words = ["cache", "create", "fast", "--cache", a, "--cache", b, "--segment-size", "16M", "--yes"]
    for more in ([], ["--dry-run"]):
        one_line(larder(*words, *more, code=FAILED), b, "32 TiB", "all its SSDs together")
    assert blank(a) and blank(b)
    os.truncate(b, 15 << 40)
    larder(*words)
    larder("super", "check", b)


def test_roles(larder):
    a, b, c = (larder.image(name, 64 * MIB) for name in "abc")
    larder("cache", "create", "fast", "--cache", a, "--cache", b, "--role", "write", "--role", "read", "--yes")
    for x, role in ((a, "write"), (b, "read")):
        assert larder("super", "show", x, "-o", "role", "--noheadings").stdout.strip() == role
        assert larder("super", "check", x).returncode == 0
    one_line(larder("cache", "create", "more", "--cache", c, *["--role", "read"] * 2, code=USAGE), "--role", "2 times")
    one_line(larder("cache", "create", "more", "--cache", c, "--role", "log", code=USAGE), "--role", "log", "both, write, read")
    assert blank(c)


def test_missing_ssd(larder):
    a, b = larder.image("a", 64 * MIB), larder.image("b", 64 * MIB)
    larder("cache", "create", "fast", "--cache", a, "--cache", b, "--yes")
    b.unlink()
    one_line(larder("cache", "start", "fast", "--dry-run", code=UNSAFE), str(a), "--degraded")
    assert f"larder-cache 2 {a} - 0" in larder("cache", "start", "fast", "--dry-run", "--degraded").stdout


# ---------------------------------------------------------------------- dry run, usage, exit codes


def test_dry_run_writes_nothing(larder):
    ssd, hdd = larder.image("ssd", 64 * MIB), larder.image("hdd", 64 * MIB)
    signatures.swap(hdd)
    before = digest(ssd), digest(hdd)
    run = larder("cache", "create", "fast", "--cache", ssd, "--dry-run")
    assert f"write superblock to {ssd} at byte 4096 and {64 * MIB - 4096}" in run.stdout
    assert f"write table to {ssd} at byte 131072 and 262144" in run.stdout
    run = larder("volume", "create", "data", "--backing", hdd, "--wipe", "--dry-run")
    assert f"wipe {hdd}: swap" in run.stdout and f"write superblock to {hdd}" in run.stdout
    one_line(larder("volume", "create", "data", "--backing", hdd, "--dry-run", code=UNSAFE), "swap")
    assert (digest(ssd), digest(hdd)) == before


def test_dry_run_of_start(larder):
    ssd, hdd = larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast")
    cache, volume = uuid.UUID(bytes=field(ssd, CACHE, "cache_uuid")), uuid.UUID(bytes=field(hdd, VOLUME, "uuid"))
    sectors = field(ssd, CACHE, "nr_segments") * field(ssd, CACHE, "segment_size") // 512
    create = f"dmsetup create larder-cache-fast --uuid LARDER-{cache}-cache --table '0 {sectors} larder-cache 1 {ssd} 0'"
    for name in ("fast", str(cache), str(ssd)):
        assert larder("cache", "start", name, "--dry-run").stdout.strip() == create
    options = larder(
        "cache", "start", "fast", "--name", "f", "--option", "commit=always", "--option", "gather=2", "--dry-run"
    ).stdout
    assert f"dmsetup create larder-cache-f --uuid LARDER-{cache}-cache" in options
    assert f"larder-cache 1 {ssd} 4 commit always gather 2'" in options
    for name in ("data", str(volume), str(hdd)):
        lines = larder("volume", "start", name, "--option", "fill=off", "--dry-run").stdout.splitlines()
        assert lines == [
            create,
            f"dmsetup create data --uuid LARDER-{volume} --table "
            f"'0 {62 * 2048} larder {hdd} /dev/mapper/larder-cache-fast 2 fill off'",
        ]


def test_volume_without_its_cache(larder):
    larder.cache("fast")
    hdd = larder.volume("data", 64 * MIB, "--cache", "fast")
    cache = uuid.UUID(bytes=field(hdd, VOLUME, "cache_uuid"))
    larder.devices = [hdd]
    one_line(larder("volume", "start", "data", "--dry-run", code=UNSAFE), cache, "--without-cache")
    assert f"larder {hdd} - 0'" in larder("volume", "start", "data", "--without-cache", "--dry-run").stdout
    patch_both(hdd, VOLUME, flags=1)
    for options in ([], ["--without-cache"]):
        run = larder("volume", "start", "data", "--dry-run", *options, code=UNSAFE)
        one_line(run, cache, "bring that cache back")
        assert run.stdout == ""
    one_line(larder("volume", "start", "data", "--dry-run", "--without-module", code=UNSAFE), cache, "larder rescue writeback")


def test_volume_of_another_cache(larder):
    larder.cache("fast")
    larder.cache("other")
    hdd, alone = larder.volume("data", 64 * MIB, "--cache", "fast"), larder.volume("alone")
    one_line(larder("volume", "start", "data", "--cache", "other", "--dry-run", code=UNSAFE), hdd, "detach")
    assert (
        f"larder {alone} /dev/mapper/larder-cache-other 0'"
        in larder("volume", "start", "alone", "--cache", "other", "--dry-run").stdout
    )
    assert f"larder {alone} - 0'" in larder("volume", "start", "alone", "--dry-run").stdout


def test_regular_files_are_not_started(larder):
    ssd, hdd = larder.cache("fast"), larder.volume("data")
    one_line(larder("cache", "start", "fast", code=USAGE), ssd, "losetup")
    one_line(larder("volume", "start", "data", code=USAGE), hdd, "losetup")


# What docs/testing.md, "Refused by the command", lists: test_listed
WRONG_WORDS = [
    ([], USAGE, "verb"),
    (["bake"], USAGE, "bake"),
    (["cache"], USAGE, "cache"),
    (["cache", "bake"], USAGE, "bake"),
    (["create", "x"], USAGE, "--backing"),
    (["create", "../x", "--backing", "a", "--cache", "b"], USAGE, "NAME"),
    (["create", "x", "--backing", "a", "--backing", "b", "--cache", "/c"], USAGE, "--raid"),
    (["create", "x", "--backing", "a", "--backing", "b", "--separate", "--raid", "1", "--cache", "/c"], USAGE, "--separate"),
    (["create", "x", "--backing", "a", "--backing", "b", "--separate", "--mkfs", "ext4", "--cache", "/c"], USAGE, "--separate"),
    (["create", "x", "--backing", "a", "--cache", "/b", "--size", "0"], USAGE, "--size"),
    (["create", "x", "--backing", "a", "--cache", "/b", "--size", "10000001"], USAGE, "--size"),
    (["create", "x", "--backing", "a", "--cache", "/b", "--size", "much"], USAGE, "--size"),
    (["create", "--resume", "x", "--size", "1G"], USAGE, "--resume"),
    (["resize", "x", "--size", "0"], USAGE, "--size"),
    (["set"], USAGE, "missing"),
    (["set", "x"], USAGE, "--mount"),
    (["set", "x", "--mount", "srv"], USAGE, "--mount"),
    (["set", "x", "--mount", "none", "--essential", "yes"], USAGE, "--essential"),
    (["set", "x", "--essential", "maybe"], USAGE, "--essential"),
    (["set", "x", "--class", "a b"], USAGE, "--class"),
    (["set", "x", "--class", "any\r"], USAGE, "--class"),
    (["set", "x", "--mode", "fast"], USAGE, "--mode"),
    (["set", "x", "--backing-label", "backing"], USAGE, "--backing-label"),
    (["set", "x", "--snapshot-space", "a/b"], USAGE, "--snapshot-space"),
    (["set", "nowhere", "--mount", "none"], NOT_FOUND, "nowhere"),
    (["create", "x", "--backing", "a", "--spare", "b", "--cache", "/c"], USAGE, "--spare"),
    (["create", "x", "--backing", "a", "--integrity", "--cache", "/c"], USAGE, "--integrity"),
    (["create", "x", "--backing", "a", "--backing", "b", "--raid", "0", "--integrity", "--cache", "/c"], USAGE, "--integrity"),
    (["create", "x", "--backing", "a", "--cache", "b", "--cache-spare", "/c"], USAGE, "--cache-spare"),
    (["create", "x", "--backing", "a", "--cache", "/b", "--encrypt", "rot13"], USAGE, "--encrypt"),
    (["create", "x", "--backing", "a", "--cache", "/b", "--class", "any\r"], USAGE, "--class"),
    (["create", "x", "--backing", "/dev/nowhere", "--cache", "/dev/nosuch"], NOT_FOUND, "/dev/nowhere"),
    (["create", "--resume", "x", "--backing", "a"], USAGE, "--resume"),
    (["create", "--resume", "x", "--encrypt", "luks2"], USAGE, "--resume"),
    (["create", "--resume", "x", "--mkfs", "ext4"], USAGE, "--resume"),
    (["create", "--resume", "nowhere"], NOT_FOUND, "nowhere"),
    (["snapshot"], USAGE, "snapshot"),
    (["snapshot", "create"], USAGE, "missing"),
    (["snapshot", "create", "nowhere@y"], NOT_FOUND, "nowhere"),
    (["snapshot", "create", "x@y", "--size", "soon"], USAGE, "--size"),
    (["snapshot", "create", "x@y", "--size", "1G", "--store", "z"], USAGE, "--size"),
    (["snapshot", "create", "x", "--store", "y"], USAGE, "NAME@SNAPSHOT"),
    (["snapshot", "create", "x@a/b", "--store", "y"], USAGE, "NAME@SNAPSHOT"),
    (["snapshot", "create", "nowhere@x", "--store", "y"], NOT_FOUND, "nowhere"),
    (["snapshot", "remove", "x"], USAGE, "NAME@SNAPSHOT"),
    (["snapshot", "remove", "nowhere@x"], NOT_FOUND, "nowhere"),
    (["snapshot", "list", "nowhere"], NOT_FOUND, "nowhere"),
    (["start", "nowhere", "--drop-snapshot", "x"], NOT_FOUND, "nowhere"),
    (["list", "x"], USAGE, "too many"),
    (["show", "nowhere"], NOT_FOUND, "nowhere"),
    (["status"], USAGE, "a word is missing"),
    (["status", "nowhere"], NOT_FOUND, "nowhere"),
    (["start", "nowhere"], NOT_FOUND, "nowhere"),
    (["stop", "nowhere"], NOT_FOUND, "nowhere"),
    (["remove", "nowhere"], NOT_FOUND, "nowhere"),
    (["passwd"], USAGE, "missing"),
    (["passwd", "nowhere"], NOT_FOUND, "nowhere"),
    (["resize"], USAGE, "missing"),
    (["replace", "x", "y"], USAGE, "missing"),
    (["replace", "x", "y", "z", "--role", "sideways"], USAGE, "--role"),
    (["replace", "nowhere", "x", "y"], NOT_FOUND, "nowhere"),
    (["replace", "nowhere", "cache", "x"], NOT_FOUND, "nowhere"),
    (["replace", "x", "cache", "y", "--no-wait"], USAGE, "--no-wait"),
    (["add", "x"], USAGE, "--backing"),
    (["add", "x", "--cache", "y", "--backing", "z"], USAGE, "--backing"),
    (["add", "x", "--cache", "y", "--spare", "--role", "read"], USAGE, "--spare"),
    (["add", "x", "--cache", "y", "--reshape"], USAGE, "--backing"),
    (["add", "x", "--backing", "y", "--reshape", "--spare"], USAGE, "--spare"),
    (["add", "nowhere", "--backing", "x"], NOT_FOUND, "nowhere"),
    (["drop", "x"], USAGE, "missing"),
    (["drop", "nowhere", "x"], NOT_FOUND, "nowhere"),
    (["scrub"], USAGE, "--all"),
    (["scrub", "data", "--all"], USAGE, "--all"),
    (["scrub", "data", "--stop", "--wait"], USAGE, "excludes"),
    (["scrub", "data", "--forget"], USAGE, "--stop"),
    (["scrub", "nowhere"], NOT_FOUND, "nowhere"),
    (["resize", "nowhere"], NOT_FOUND, "nowhere"),
    (["pin"], USAGE, "a file is missing"),
    (["pin", "--list", "--refresh"], USAGE, "--list"),
    (["pin", "--list", "--no-load"], USAGE, "--list"),
    (["pin", "--list", "nowhere"], NOT_FOUND, "nowhere"),
    (["pin", "--refresh", "nowhere"], NOT_FOUND, "nowhere"),
    (["pin", "/nowhere"], NOT_FOUND, "/nowhere"),
    (["pin", "/tmp"], USAGE, "/tmp"),
    (["unpin"], USAGE, "missing"),
    (["unpin", "/nowhere"], NOT_FOUND, "/nowhere"),
    (["lock", "nowhere"], NOT_FOUND, "nowhere"),
    (["unlock", "nowhere"], NOT_FOUND, "nowhere"),
    (["cache", "create"], USAGE, "usage"),
    (["cache", "create", "x"], USAGE, "--cache"),
    (["volume", "create", "x"], USAGE, "--backing"),
    (["cache", "create", "x", "--cache"], USAGE, "value is missing"),
    (["cache", "create", "x", "y", "--cache", "z"], USAGE, "too many"),
    (["cache", "list", "--bake"], USAGE, "--bake"),
    (["cache", "list", "-o", "bread"], USAGE, "bread"),
    (["cache", "list", "--sort", "bread"], USAGE, "bread"),
    (["cache", "list", "--units", "x"], USAGE, "--units"),
    (["cache", "list", "--reportformat", "xml"], USAGE, "xml"),
    (["cache", "start", "nowhere"], NOT_FOUND, "nowhere"),
    (["cache", "start", "/dev/nowhere"], NOT_FOUND, "/dev/nowhere"),
    (["volume", "stop", "nowhere"], NOT_FOUND, "nowhere"),
    (["volume", "start", "nowhere"], NOT_FOUND, "nowhere"),
    (["volume", "start", "b4f84e56-0000-4000-8000-d6ee3ac71f26"], NOT_FOUND, "UUID"),
    (["volume", "detach", "nowhere"], NOT_FOUND, "nowhere"),
    (["volume", "detach", "x", "--flush", "--discard-dirty", "y"], USAGE, "exclude"),
    (["cache", "replace", "x", "0", "y", "--new-place"], USAGE, "--new-place"),
    (["cache", "replace", "x", "0", "y", "--spare", "--wipe"], USAGE, "--spare"),
    (["cache", "add", "x", "y", "--spare", "--role", "read"], USAGE, "--spare"),
    (["cache", "resize"], USAGE, "missing"),
    (["cache", "resize", "nowhere"], NOT_FOUND, "nowhere"),
    (["volume", "attach", "x"], USAGE, "--cache"),
    (["volume", "resize"], USAGE, "missing"),
    (["volume", "resize", "x", "--size", "a lot"], USAGE, "--size"),
    (["volume", "resize", "x", "--size", "0"], USAGE, "--size"),
    (["volume", "resize", "nowhere"], NOT_FOUND, "nowhere"),
    (["volume", "flush", "x", "--wait", "--stop"], USAGE, "exclude"),
    (["volume", "start", "x", "--cache", "y", "--without-cache"], USAGE, "exclude"),
    (["volume", "start", "x", "--without-cache", "--without-module"], USAGE, "excludes"),
    (["volume", "get", "x", "bread"], USAGE, "bread"),
    (["volume", "set", "x", "bread", "butter"], USAGE, "bread"),
    (["volume", "set", "x", "mode="], USAGE, "mode"),
    (["volume", "set", "x"], USAGE, "missing"),
    (["cache", "set", "x", "commit=always", "--persist"], NOT_FOUND, "x"),
    (["volume", "set", "x", "fill=on", "--persist"], NOT_FOUND, "x"),
    (["volume", "set", "x", "class=special", "--persist"], USAGE, "larder set x --class special"),
    (["super", "show", "/dev/nowhere"], NOT_FOUND, "/dev/nowhere"),
    (["super", "check", "/dev/null"], USAGE, "/dev/null"),
    (["super", "show", "/tmp"], USAGE, "/tmp"),
    (["probe", "--udev"], USAGE, "device"),
    (["assemble"], USAGE, "--all"),
    (["assemble", "--all", "x"], USAGE, "--all"),
    (["assemble", "nowhere"], NOT_FOUND, "nowhere"),
    (["volume", "status", "nowhere"], NOT_FOUND, "nowhere"),
]


@pytest.mark.parametrize("words, code, said", WRONG_WORDS)
def test_usage(larder, words, code, said):
    run = larder(*words, code=code)
    one_line(run, said)
    assert run.stdout == ""


def test_help(larder):
    text = larder("help").stdout
    verbs = re.findall(r"^  larder (.+?)  ", text, re.M)
    assert len(verbs) == 66
    for verb in verbs:
        if verb.strip() != "help":
            assert larder(*verb.split(), "--help").stdout.startswith(f"usage: larder {' '.join(verb.split())}")
    assert larder("cache", "help").stdout.count("larder cache") == sum(verb.startswith("cache ") for verb in verbs) > 0
    assert larder("--version").stdout.startswith("larder ")


WRONG_OPTIONS = ("commit", "=x", "commit=", "a=b c", "a=b\tc")


def test_option_values(larder):
    larder.cache("fast")
    for bad in WRONG_OPTIONS:
        one_line(larder("cache", "start", "fast", "--option", bad, "--dry-run", code=USAGE), "--option")


def test_classes_in_a_table(larder):
    """Lists of I/O classes are words that need no quotes, and have `=` once."""
    larder.volume("data")
    rules = "metadata+read:pin-30/size-32+ioprio-be:cache/lba-0-2048:write-only/any:bypass"
    for text in ("special", rules):
        run = larder("volume", "start", "data", "--option", f"class={text}", "--option", "share_max=50", "--dry-run")
        assert run.stdout.strip().endswith(f" 4 class {text} share_max 50'")


def test_full_output(larder):
    with open("/dev/full", "w") as full:
        run = subprocess.run([larder.program, "help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == FAILED
    one_line(run, "output")


def closed(larder, closing, *words):
    """Without some of standard input, output and error."""
    argv = ["sh", "-c", f'exec "$@" {closing}', "sh", larder.program, *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, env=larder.environment(), timeout=120)


@pytest.mark.parametrize("closing", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_what_is_said_goes_to_no_disk(larder, closing):
    """The disk is open for writing when its signature is refused."""
    disk = larder.image("disk", 64 * MIB)
    signatures.ext4(disk)
    before = digest(disk)
    assert closed(larder, closing, "volume", "create", "data", "--backing", disk).returncode == UNSAFE
    assert digest(disk) == before


def test_closed_output(larder):
    run = closed(larder, ">&-", "help")
    assert run.returncode == FAILED
    one_line(run, "output")


# ---------------------------------------------------------------------- show, list, reports


def test_show(larder):
    ssd, hdd = larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast")
    attach_by_hand(ssd, hdd)
    text = larder("super", "show", ssd).stdout
    assert text.splitlines()[0].split() == ["cache", "sectors", str(251 * 512)]
    assert re.search(rf"^volume 0 +{uuid.UUID(bytes=field(hdd, VOLUME, 'uuid'))}, attached, {62 * 2048} sectors", text, re.M)
    text = larder("super", "show", hdd).stdout
    assert text.splitlines()[0].split() == ["volume", "sectors", str(62 * 2048)]
    assert re.search(rf"^cache uuid +{uuid.UUID(bytes=field(ssd, CACHE, 'cache_uuid'))}$", text, re.M)


def report(run):
    return next(iter(json.loads(run.stdout).values()))


def test_json(larder):
    ssd, hdd = larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast")
    (row,) = report(larder("cache", "list", "--reportformat", "json", "-o", "all", "--units", "b", "--nosuffix"))
    assert (row["name"], row["state"], row["size"], row["ssd"]) == ("fast", "stopped", str(251 * 256 * KIB), str(ssd))
    assert set(interface_keys("Status of a cache")) <= set(row)
    assert set(row) == {line.split()[0] for line in larder("cache", "list", "-o", "help").stdout.splitlines()}
    (row,) = report(larder("volume", "list", "--reportformat", "json", "-o", "+label,may_be_dirty"))
    assert (row["name"], row["mode"], row["cache_name"], row["backing"], row["may_be_dirty"]) == (
        "data",
        "writeback",
        "fast",
        str(hdd),
        "0",
    )
    (row,) = report(larder("super", "show", hdd, "--reportformat", "json"))
    assert (row["volume_sectors"], row["kind"], row["label"]) == (str(62 * 2048), "volume", "data")
    assert report(larder("cache", "status", "--reportformat", "json")) == []


def interface_keys(heading):
    """The status keys that docs/interface.md announces under that heading."""
    text = (TOP / "docs" / "interface.md").read_text()
    section = text.split(f"\n### {heading}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    keys = []
    for row in re.findall(r"^\|(.*?)\|", section, re.M):
        keys += re.findall(r"`(\w+)`", row)
    return keys


@pytest.mark.parametrize("noun", ["cache", "volume"])
def test_every_documented_status_key_is_a_field(larder, noun):
    fields = {line.split()[0] for line in larder(noun, "list", "-o", "help").stdout.splitlines()}
    keys = interface_keys(f"Status of a {noun}")
    options = [key for key in interface_keys(f"Options of a {noun}") if key not in ("auto", "always", "stale", "discard", "refuse")]
    assert len(keys) > 20 and len(options) > 5
    assert set(keys) | set(options) <= fields, (set(keys) | set(options)) - fields


def test_list_formats(larder):
    larder.cache("b")
    larder.cache("a")
    assert larder("cache", "list", "-o", "name", "--noheadings", "--sort", "name").stdout.split() == ["a", "b"]
    assert larder("cache", "list", "-o", "name", "--noheadings", "--sort", "-name").stdout.split() == ["b", "a"]
    assert larder("cache", "list", "-o", "name").stdout.split() == ["Name", "b", "a"]
    for unit, shown in {
        "b": "65798144B",
        "s": "128512S",
        "k": "64256.00KiB",
        "m": "62.75MiB",
        "M": "65.80MB",
        "h": "62.75MiB",
        "H": "65.80MB",
    }.items():
        assert larder("cache", "list", "-o", "size", "--noheadings", "--units", unit).stdout.split() == [shown] * 2
    assert larder("cache", "list", "-o", "size", "--noheadings", "--units", "m", "--nosuffix").stdout.split() == ["62.75"] * 2


def columns(larder, fields):
    return larder("cache", "list", "-o", fields).stdout.splitlines()[0].split()


def test_fields_asked_for(larder):
    larder.cache("fast")
    default = columns(larder, "+name")
    assert columns(larder, "+label") == [*default, "Label"]
    assert columns(larder, "+label,+devices,spares") == [*columns(larder, "+label,devices"), "Spares"]
    (row,) = report(larder("cache", "list", "-o", "label,all", "--reportformat", "json"))
    assert set(row) == {line.split()[0] for line in larder("cache", "list", "-o", "help").stdout.splitlines()}
    assert columns(larder, "label,name,label") == ["Label", "Name"]
    wrongs = {"-name": "'-name'", "+-name": "'-name'", "name,-label": "'-label'", "name,": "''", "++name": "'+name'"}
    for wrong, word in wrongs.items():
        one_line(larder("cache", "list", "-o", wrong, code=USAGE), "-o", word)
    one_line(larder("cache", "list", "--sort", "name,-nothing", code=USAGE), "--sort", "'nothing'")


def test_sizes_sort_by_value(larder):
    for name, size in (("a", 900 * MIB), ("b", 64 * MIB), ("c", 2 * GIB)):
        larder.cache(name, size)
    assert larder("cache", "list", "-o", "name", "--noheadings", "--sort", "size").stdout.split() == ["b", "a", "c"]


@pytest.mark.parametrize(
    "label", [b'quo"te', b"back\\slash", b"\x1b[31mred", b"new\nline", b"\xff\xfe", "grün".encode(), b"x" * 64, b'{"a":["b"]}']
)
def test_hostile_label(larder, label):
    """Nothing that a label holds breaks a line, a terminal or the JSON."""
    path = larder.volume("data")
    patch_both(path, VOLUME, label=label)
    good = label not in (b"\x1b[31mred", b"new\nline", b"\xff\xfe")
    run = larder("super", "check", path, code=DONE if good else FAILED)
    for words in (["volume", "list"], ["probe"], ["probe", path], ["probe", "--udev", path], ["super", "show", path]):
        run = larder(*words, code=None)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", run.stdout + run.stderr)
    if good:
        (row,) = report(larder("volume", "list", "-o", "label", "--reportformat", "json"))
        assert row["label"] == label.decode()
        assert re.search(r"^LARDER_LABEL_ENC=\S+$", larder("probe", "--udev", path).stdout, re.M)


def test_hostile_label_of_others(larder):
    path = larder.image("swap", 64 * MIB)
    signatures.swap(path)
    signatures.write(path, 1024 + 28, b"\x1b[31mred\xff".ljust(16, b"\0"))
    run = subprocess.run([larder.program, "probe", path], capture_output=True, env=larder.environment())
    assert b"label ?[31mred?" in run.stdout and run.returncode == NOT_FOUND


def test_hostile_path(larder):
    """As a mount point may be, too: nothing of it breaks a table, a terminal or the JSON."""
    name = os.fsdecode(b'a \x1b[31m\t"\\ \xff\xc3\xa9\xc3')
    larder.image(f"{name}.hdd", 64 * MIB)
    larder("volume", "create", "data", "--backing", larder.devices[0])
    words = [larder.program, "volume", "list", "-o", "backing"]
    run = subprocess.run([*words, "--reportformat", "json"], capture_output=True, env=larder.environment())
    (row,) = next(iter(json.loads(run.stdout).values()))
    assert row["backing"].endswith('/a \x1b[31m\t"\\ \ufffdé\ufffd.hdd')
    run = subprocess.run([*words, "--noheadings"], capture_output=True, env=larder.environment())
    assert run.stdout.decode().strip().endswith('/a ?[31m?"\\ ?é?.hdd')


def test_probe_udev(larder):
    ssd, hdd = larder.cache("fast"), larder.volume("data", 64 * MIB, "--cache", "fast")
    for path, kind in ((ssd, "cache"), (hdd, "volume")):
        pairs = dict(line.split("=", 1) for line in larder("probe", "--udev", path).stdout.splitlines())
        assert pairs["LARDER_KIND"] == kind
        assert pairs["LARDER_UUID"] == str(uuid.UUID(bytes=field(path, CACHE, "uuid")))
        assert pairs["LARDER_CACHE_UUID"] == str(uuid.UUID(bytes=field(ssd, CACHE, "cache_uuid")))
    assert larder("probe", "--udev", larder.image("none", MIB), code=NOT_FOUND).stdout == ""


# ---------------------------------------------------------------------- names


def test_ambiguous_names(larder):
    a, b = larder.volume("a"), larder.volume("b")
    patch_both(b, VOLUME, label=b"a")
    one_line(larder("volume", "start", "a", "--dry-run", code=UNSAFE), a, b, "label")
    twin = larder.image("twin", 64 * MIB)
    twin.write_bytes(a.read_bytes())
    one_line(larder("volume", "start", uuid.UUID(bytes=field(a, VOLUME, "uuid")), "--dry-run", code=UNSAFE), a, twin, "uuid")
    assert f"larder {twin} - 0'" in larder("volume", "start", twin, "--dry-run").stdout


def test_copies_of_ssds(larder):
    """Beside a copy a cache starts with the SSD that its path names, or not at all; also as one of a set, and by its volume."""
    ssds = [larder.image(f"ssd{i}", 64 * MIB) for i in range(2)]
    larder("cache", "create", "fast", *[w for s in ssds for w in ("--cache", s)], "--yes")
    hdd = larder.volume("data", 64 * MIB, "--cache", "fast")
    copies = []
    for s in ssds:
        copies.append(larder.image(f"copy-of-{s.name}", 64 * MIB))
        copies[-1].write_bytes(s.read_bytes())
        for start in (["cache", "start", "fast"], ["volume", "start", hdd], ["cache", "start", ssds[2 - len(copies)]]):
            one_line(larder(*start, "--dry-run", code=UNSAFE), s, copies[-1], "uuid")
        for one in (s, copies[-1]):
            both = " ".join(str(one if x == s else x) for x in ssds)
            assert f"larder-cache 2 {both} 0" in larder("cache", "start", one, "--dry-run").stdout
            assert f"larder-cache 2 {both} 0" in larder("volume", "start", hdd, "--cache", one, "--dry-run").stdout
        copies[-1].unlink()


def test_kind_is_checked(larder):
    ssd, hdd = larder.cache("fast"), larder.volume("data")
    one_line(larder("volume", "start", ssd, "--dry-run", code=NOT_FOUND), ssd, "kind")
    one_line(larder("cache", "start", hdd, "--dry-run", code=NOT_FOUND), hdd, "kind")
    one_line(larder("cache", "start", "data", "--dry-run", code=NOT_FOUND), "data")


def test_label_that_is_no_name(larder):
    larder.volume("data", 64 * MIB, "--label", "my disk")
    one_line(larder("volume", "start", "my disk", "--dry-run", code=USAGE), "--name")
    assert "dmsetup create disk1 " in larder("volume", "start", "my disk", "--name", "disk1", "--dry-run").stdout


# ---------------------------------------------------------------------- mode in the superblock


def test_persist(larder):
    path = larder.volume("data")
    before = digest(path)
    larder("volume", "set", "data", "mode=writearound", "--persist", "--dry-run")
    assert digest(path) == before
    larder("volume", "set", "data", "mode", "writearound", "--persist")
    for at in (SB, field(path, VOLUME, "copy_offset")):
        assert (field(path, VOLUME, "mode", at), field(path, VOLUME, "generation", at)) == (2, 2)
    larder("super", "check", path)
    one_line(larder("volume", "set", "data", "mode=fast", "--persist", code=USAGE), "mode")
    patch_both(path, VOLUME, ro_compat=1)
    one_line(larder("volume", "set", "data", "mode=writeback", "--persist", code=FAILED), "ro_compat")


# ---------------------------------------------------------------------- the document


def quoted(words):
    """As one types them; what is long, or not to be seen, by its name."""
    shown = {
        "": "''",
        "x" * 65: "x...x",
        "a\nb": "$'a\\nb'",
        "a=b\tc": "$'a=b\\tc'",
        "a=b c": "'a=b c'",
        "a b": "'a b'",
        "any\r": "$'any\\r'",
        "a lot": "'a lot'",
    }
    return " ".join(shown.get(str(w), str(w)) for w in words)


def size_text(size):
    unit, name = next((u, n) for u, n in ((1 << 40, "TiB"), (1 << 20, "MiB"), (1, "B")) if size >= u or u == 1)
    return f"{size // unit} {name}"


def refused_words():
    """Input, exit code, what the line names: the rows of the document."""
    rows = [(f"larder {quoted(words)}".strip(), code, said) for words, code, said in WRONG_WORDS]
    for size, options, code, said in WRONG_CACHES:
        rows.append(
            (f"larder cache create fast --cache SSD-OF-{size_text(size).replace(' ', '-')} {quoted(options)}".strip(), code, said)
        )
    rows += [(f"larder volume create data --backing DISK {quoted(options)}", code, said) for options, code, said in WRONG_VOLUMES]
    rows += [(f"larder cache create --cache SSD -- {quoted([name])}", USAGE, "NAME") for name in WRONG_NAMES]
    rows += [(f"larder cache start fast --option {quoted([bad])}", USAGE, "--option") for bad in WRONG_OPTIONS]
    return [f"| `{words}` | {code} | {said} |" for words, code, said in rows]


def test_listed():
    """docs/testing.md lists what is tried here, and nothing else."""
    section = (TOP / "docs" / "testing.md").read_text().split("\n### Refused by the command\n")[1].split("\n### ")[0]
    listed = [line for line in section.splitlines() if line.startswith("| `larder")]
    wanted = refused_words()
    assert sorted(listed) == sorted(wanted), f"not listed: {set(wanted) - set(listed)}; not tried: {set(listed) - set(wanted)}"


def test_waits_for_its_turn(larder, program):
    """Who sits at a terminal is told so."""
    Path("/run/larder").mkdir(exist_ok=True)
    controller, terminal = pty.openpty()
    with open("/run/larder/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = subprocess.Popen([program, "volume", "start", "nobody"], stderr=terminal, env=larder.environment())
        os.close(terminal)
        said = b""
        while not said.endswith(b"\n"):
            said += os.read(controller, 4096)
        assert b"waits for its turn" in said and b"fuser -v /run/larder/lock" in said
    assert command.wait() == NOT_FOUND
    os.close(controller)
