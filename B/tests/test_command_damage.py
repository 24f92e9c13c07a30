# SPDX-License-Identifier: GPL-2.0-or-later
"""The command larder on damaged superblocks and tables: each field, both copies, and random damage.

Nothing crashes it, and it agrees with the kernel.
"""

import json
import os
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent / "command"))
import signatures
from harness import (
    CACHE,
    DONE,
    FAILED,
    HEAD,
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
    VOLUME,
    fast_crc32c,
    field,
    one_line,
    patch,
    patch_both,
    patch_tables,
    read,
)

pytest_plugins = ["larder_fixtures"]

# ---------------------------------------------------------------------- damage


def checked(larder, path, *parts):
    run = larder("super", "check", path, code=FAILED)
    for part in parts:
        assert any(re.search(part, line) for line in run.stderr.splitlines()), f"{part}: {run.stderr}"
    for line in run.stderr.splitlines():
        assert line.startswith(f"larder: {path}: "), line
    return run


ODD = 1 << 40
CACHE_DAMAGE = [
    ("version", {"version": 2}),
    ("incompat", {"incompat": 1 << 63}),
    ("kind", {"kind": 0}),
    ("kind", {"kind": 5}),
    ("uuid", {"uuid": bytes(16)}),
    ("generation", {"generation": 0}),
    ("device_sectors", {"device_sectors": 1 << 30}),
    ("device_sectors", {"device_sectors": 1 << 63}),
    ("device_sectors", {"device_sectors": 3}),
    ("copy_offset", {"copy_offset": 4096}),
    ("copy_offset", {"copy_offset": 8193}),
    ("copy_offset", {"copy_offset": ODD}),
    ("copy_offset", {"copy_offset": (1 << 64) - 4096}),
    ("cache_uuid", {"cache_uuid": bytes(16)}),
    ("label", {"label": b"\x01"}),
    ("nr_devices", {"nr_devices": 0}),
    ("nr_devices", {"nr_devices": 17}),
    ("device_number", {"device_number": 16}),
    ("role", {"role": 3}),
    ("segment_size", {"segment_size": 0}),
    ("segment_size", {"segment_size": 3 << 20}),
    ("segment_size", {"segment_size": 32 << 20}),
    ("nr_segments", {"nr_segments": 0}),
    ("nr_segments", {"nr_segments": 31}),
    ("nr_segments", {"nr_segments": 252}),
    ("nr_segments", {"nr_segments": 0xFFFFFFFF}),
    ("first_segment", {"first_segment": 0xFFFFFFFF}),
    ("segments_offset", {"segments_offset": 0}),
    ("segments_offset", {"segments_offset": MIB + 512}),
    ("segments_offset", {"segments_offset": ODD}),
    ("epoch", {"epoch": 1}),
    ("epochs", {"epoch": 1, "epochs0__epoch": 1, "epochs0__segment": 251}),
    ("epochs", {"epoch": 1, "epochs0__epoch": 1, "epochs0__segment": 0, "epochs0__first_sequence": 0}),
    ("epochs", {"epoch": 1, "epochs0__epoch": 1, "epochs0__first_sequence": 9, "epochs1__epoch": 1, "epochs1__first_sequence": 1}),
    ("epochs", {"epoch": 2, "epochs0__epoch": 2, "epochs0__first_sequence": 9, "epochs1__epoch": 1, "epochs1__first_sequence": 10}),
    ("checkpoint", {"checkpoint0__first_segment": 0, "checkpoint0__sequence": 1, "checkpoint0__bytes": 65536}),
    (
        "checkpoint",
        {
            "checkpoint0__first_segment": 251,
            "checkpoint0__sequence": 1,
            "checkpoint0__bytes": 65536,
            "checkpoint0__epoch": 1,
            "epoch": 1,
            "epochs0__epoch": 1,
            "epochs0__first_sequence": 1,
        },
    ),
    (
        "checkpoint",
        {
            "checkpoint0__first_segment": 1,
            "checkpoint0__sequence": 1,
            "checkpoint0__bytes": 1,
            "checkpoint0__epoch": 1,
            "epoch": 1,
            "epochs0__epoch": 1,
            "epochs0__first_sequence": 1,
        },
    ),
    (
        "checkpoint",
        {
            "checkpoint1__first_segment": 1,
            "checkpoint1__sequence": 1,
            "checkpoint1__bytes": 65536,
            "checkpoint1__epoch": 1,
            "epoch": 1,
            "epochs0__epoch": 1,
            "epochs0__first_sequence": 1,
        },
    ),
]
VOLUME_DAMAGE = [
    ("version", {"version": 0}),
    ("incompat", {"incompat": 2}),
    ("kind", {"kind": 99}),
    ("uuid", {"uuid": bytes(16)}),
    ("generation", {"generation": 0}),
    ("device_sectors", {"device_sectors": ODD}),
    ("copy_offset", {"copy_offset": 2 * MIB}),
    ("label", {"label": b"\xff"}),
    ("mode", {"mode": 3}),
    ("data_offset", {"data_offset": 4096}),
    ("data_offset", {"data_offset": MIB + 1}),
    ("data_offset", {"data_offset": ODD}),
    ("data_offset", {"data_offset": 0}),
    ("tail_reserve", {"tail_reserve": ODD}),
    ("tail_reserve", {"tail_reserve": 100}),
    ("sectors", {"sectors": 0}),
    ("sectors", {"sectors": 62 * 2048 + 1}),
    ("sectors", {"sectors": (1 << 64) - 1}),
    ("flags", {"flags": 1}),
]


@pytest.mark.parametrize("name, values", CACHE_DAMAGE)
def test_damaged_cache_field(larder, name, values):
    path = larder.cache("fast")
    patch(path, CACHE, **values)
    checked(larder, path, rf"superblock at byte 4096: {name}: ")


@pytest.mark.parametrize("name, values", VOLUME_DAMAGE)
def test_damaged_volume_field(larder, name, values):
    path = larder.volume("data")
    patch(path, VOLUME, **values)
    checked(larder, path, rf"superblock at byte 4096: {name}: ")
    patch_both(path, VOLUME, **values)
    for words in (["super", "show", path], ["volume", "start", path, "--dry-run"]):
        run = larder(*words, code=None)
        assert run.returncode == FAILED or name == "copy_offset", run.stdout
    if name != "copy_offset":
        one_line(run, path, name)


TABLE_DAMAGE = [
    ("magic", {"magic": 0}),
    ("cache_uuid", {"cache_uuid": bytes(16)}),
    ("generation", {"generation": 0}),
    ("nr_devices", {"nr_devices": 0}),
    ("nr_devices", {"nr_devices": 17}),
    ("nr_devices", {"nr_devices": 2}),
    ("nr_volumes", {"nr_volumes": 1025}),
    ("nr_volumes", {"nr_volumes": 0xFFFFFFFF}),
    ("devices", {"device0__state": 5}),
    ("devices", {"device0__role": 3}),
    ("devices", {"device0__uuid": bytes(16)}),
    ("devices", {"device0__nr_segments": 4000}),
    ("volumes", {"nr_volumes": 1, "volume0__state": 3}),
    ("volumes", {"nr_volumes": 1, "volume0__state": 1, "volume0__uuid": b"u" * 16}),
    (
        "volumes",
        {
            "nr_volumes": 2,
            "volume0__state": 1,
            "volume0__uuid": b"u" * 16,
            "volume0__sectors": 8,
            "volume1__state": 1,
            "volume1__uuid": b"u" * 16,
            "volume1__sectors": 8,
        },
    ),
]


@pytest.mark.parametrize("name, values", TABLE_DAMAGE)
def test_damaged_table_field(larder, name, values):
    path = larder.cache("fast")
    patch(path, TABLE, at=TABLES[0], size=TABLE_SIZE, **values)
    run = checked(larder, path, rf"table at byte 131072: .*{name}")
    assert "copy B counts" in run.stdout
    patch_tables(path, **values)
    run = checked(larder, path, rf"table at byte 131072: .*{name}", rf"table at byte 262144: .*{name}")
    assert "counts, 0 volumes" not in run.stdout


def test_table_generation_decides(larder):
    path = larder.cache("fast")
    patch(path, TABLE, at=TABLES[1], size=TABLE_SIZE, generation=7)
    assert "generation 7: copy B counts" in larder("super", "check", path).stdout
    signatures.write(path, TABLES[1] + 5000, b"?")
    run = checked(larder, path, "table at byte 262144: table crc")
    assert "generation 1: copy A counts" in run.stdout


@pytest.mark.parametrize("make, fields", [("cache", CACHE), ("volume", VOLUME)])
def test_copies_and_generation(larder, make, fields):
    path = getattr(larder, make)("one")
    copy = field(path, fields, "copy_offset")
    # the newer copy counts
    patch(path, fields, at=copy, generation=2, label=b"newer")
    assert "the copy counts; both are good" in larder("super", "check", path).stdout
    assert re.search(r"^label +newer$", larder("super", "show", path).stdout, re.M)
    # unless it is damaged
    signatures.write(path, copy + 200, b"?")
    run = checked(larder, path, f"superblock copy at byte {copy}: crc")
    assert "the main one counts" in run.stdout
    assert re.search(r"^label +one$", larder("super", "show", path).stdout, re.M)
    # both
    signatures.write(path, SB + 200, b"?")
    run = checked(larder, path, "superblock at byte 4096: crc", f"superblock copy at byte {copy}: crc")
    one_line(larder("super", "show", path, code=FAILED), path, "crc")
    assert "counts" not in run.stdout


@pytest.mark.parametrize("damage", ["zeroes", "noise", "field"])
@pytest.mark.parametrize("make", ["cache", "volume", "volume 12K", "volume 4M"])
def test_main_superblock_lost(larder, make, damage):
    options = ["--data-offset", make.split()[1]] if " " in make else []
    path = getattr(larder, make.split()[0])("one", 64 * MIB, *options)
    if damage == "field":
        signatures.write(path, SB + 40, b"\xff" * 8)
    else:
        signatures.write(path, SB, bytes(4096) if damage == "zeroes" else random.Random(2).randbytes(4096))
    run = checked(larder, path, "superblock at byte 4096: ")
    assert "the copy counts" in run.stdout
    assert re.search(r"^label +one$", larder("super", "show", path).stdout, re.M)
    one_line(larder("cache", "create", "x", "--cache", path, code=UNSAFE), "larder", "--wipe")


def test_newer_version_is_not_undone_by_an_older_copy(larder):
    path = larder.volume("data")
    patch(path, VOLUME, version=2, generation=9)
    run = checked(larder, path, "superblock at byte 4096: version")
    assert "counts" not in run.stdout
    one_line(larder("volume", "start", path, "--dry-run", code=FAILED), path, "version", "newer larder")


def test_copy_of_something_else(larder):
    path = larder.volume("data")
    patch(path, VOLUME, at=field(path, VOLUME, "copy_offset"), uuid=b"u" * 16, generation=99)
    run = checked(larder, path, "superblock copy at byte .*: uuid")
    assert "the main one counts" in run.stdout


def test_truncated_device(larder):
    path = larder.volume("data", 64 * MIB)
    os.truncate(path, 32 * MIB)
    checked(larder, path, "device_sectors")
    one_line(larder("volume", "start", path, "--dry-run", code=FAILED), path, "device_sectors")


@pytest.mark.parametrize("size", [0, 1, 511, 4096, 8191, 8192, 12288, 65536, MIB])
def test_tiny_devices(larder, size):
    path = larder.image("tiny", size)
    for words in (
        ["super", "show", path],
        ["super", "check", path],
        ["super", "wipe", path, "--yes"],
        ["probe", path],
        ["probe"],
        ["cache", "list"],
    ):
        larder(*words, code=None)
    signatures.write(path, 4096, MAGIC)
    for words in (
        ["super", "show", path],
        ["super", "check", path],
        ["probe", path],
        ["probe"],
        ["cache", "list"],
        ["super", "wipe", path, "--yes"],
    ):
        larder(*words, code=None)


# ---------------------------------------------------------------------- random damage

FUZZ = settings(
    max_examples=int(os.environ.get("LARDER_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
mutation = st.tuples(st.one_of(st.integers(0, 1000), st.integers(0, 4095)), st.binary(min_size=1, max_size=9))
number = st.tuples(
    st.sampled_from(sorted(set(CACHE) | set(VOLUME))),
    st.one_of(
        st.integers(0, 40),
        st.sampled_from([1 << s for s in range(64)] + [(1 << s) - 1 for s in range(1, 65)] + [(1 << 64) - 4096, (1 << 32) - 4096]),
    ),
)


def damage(block, fields, numbers, mutations, seal):
    for name, value in numbers:
        if name in fields and fields[name][1] in ("<I", "<Q"):
            form = fields[name][1]
            struct.pack_into(form, block, fields[name][0], value & (1 << 8 * struct.calcsize(form)) - 1)
    for at, data in mutations:
        block[at : at + len(data)] = data[: len(block) - at]
    if seal:
        block[0:16] = MAGIC
        block[16:20] = bytes(4)
        struct.pack_into("<I", block, 16, fast_crc32c(block))


@FUZZ
@given(
    kind=st.booleans(),
    numbers=st.lists(number, max_size=4),
    mutations=st.lists(mutation, max_size=4),
    seal=st.booleans(),
    both=st.booleans(),
    words=st.sampled_from(
        [
            ["super", "check"],
            ["super", "show"],
            ["probe"],
            ["cache", "start", "--dry-run"],
            ["volume", "start", "--dry-run"],
            ["super", "wipe", "--dry-run"],
            ["super", "show", "--reportformat", "json"],
            None,
        ]
    ),
)
def test_random_damage_never_crashes(samples, kind, numbers, mutations, seal, both, words):
    larder, ssd, hdd = samples
    path, fields = (ssd, CACHE) if kind else (hdd, VOLUME)
    good = read(path, SB, SB_SIZE)
    copy = field(path, fields, "copy_offset")
    block = bytearray(good)
    damage(block, fields, numbers, mutations, seal)
    try:
        signatures.write(path, SB, bytes(block))
        if both:
            signatures.write(path, copy, bytes(block))
        run = larder(*words, path, code=None) if words else larder("volume", "list", "-o", "all", code=None)
        if words and "json" in words and run.returncode == DONE:
            json.loads(run.stdout)
    finally:
        signatures.write(path, SB, good)
        signatures.write(path, copy, good)


@FUZZ
@given(
    mutations=st.lists(
        st.tuples(st.one_of(st.integers(0, 1400), st.integers(0, TABLE_SIZE - 1)), st.binary(min_size=1, max_size=9)), max_size=5
    ),
    volumes=st.one_of(st.none(), st.integers(0, 1100), st.just(0xFFFFFFFF)),
    seal=st.booleans(),
    words=st.sampled_from([["super", "check"], ["super", "show"], ["super", "wipe", "--dry-run"]]),
)
def test_random_damage_of_tables_never_crashes(samples, mutations, volumes, seal, words):
    larder, ssd, _ = samples
    good = read(ssd, TABLES[0], TABLE_SIZE)
    block = bytearray(good)
    if volumes is not None:
        struct.pack_into("<I", block, 44, volumes)
    for at, data in mutations:
        block[at : at + len(data)] = data[: len(block) - at]
    if seal:
        block[4:8] = bytes(4)
        struct.pack_into("<I", block, 4, fast_crc32c(block))
    try:
        for at in TABLES:
            signatures.write(ssd, at, bytes(block))
        larder(*words, ssd, code=None)
    finally:
        for at in TABLES:
            signatures.write(ssd, at, good)


@pytest.fixture(scope="session")
def kernel_verdict(tmp_path_factory):
    """kernel/format.c as a filter: superblocks in, verdicts out."""
    out = tmp_path_factory.mktemp("verdict") / "kernel_verdict"
    subprocess.run(
        [
            "gcc",
            "-std=gnu11",
            "-O1",
            "-fno-strict-aliasing",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
            "-w",
            "-o",
            str(out),
            str(TOP / "tests" / "unit" / "kernel_verdict.c"),
            "-lpthread",
        ],
        check=True,
    )

    def ask(block, size):
        run = subprocess.run([str(out)], input=struct.pack("<Q", size // 512) + bytes(block), capture_output=True)
        assert run.returncode == 0, run.stderr.decode()
        return run.stdout.decode().strip()

    return ask


# Of these the command says more than the kernel, which does not look at them or does not ask as much; neither writes such.
STRICTER = r"^(uuid|generation|label|cache_uuid|flags|tail_reserve|copy_offset): "


def compare(samples, kernel_verdict, path, fields, block):
    """Of a superblock alone on its device: what the kernel refuses the command names; what that calls good the kernel takes."""
    larder = samples[0]
    good, size, copy = read(path, SB, SB_SIZE), path.stat().st_size, field(path, fields, "copy_offset")
    try:
        signatures.write(path, SB, bytes(block))
        signatures.write(path, copy, bytes(4096))
        run = larder("super", "check", path, code=None)
    finally:
        signatures.write(path, SB, good)
        signatures.write(path, copy, good)
    found = re.findall(r": superblock at byte 4096: (.*)", run.stderr)
    verdict = kernel_verdict(block, size)
    if verdict == "0":
        assert all(re.match(STRICTER, line) for line in found), f"the kernel takes it, the command says {found}"
    else:
        assert found or run.returncode == NOT_FOUND, f"the kernel refuses {verdict}, the command nothing"


@FUZZ
@given(
    kind=st.booleans(),
    numbers=st.lists(number, min_size=1, max_size=3),
    mutations=st.lists(mutation, max_size=1),
    seal=st.sampled_from([True, True, True, False]),
)
def test_command_and_kernel_agree(samples, kernel_verdict, kind, numbers, mutations, seal):
    path, fields = (samples[1], CACHE) if kind else (samples[2], VOLUME)
    block = bytearray(read(path, SB, SB_SIZE))
    damage(block, fields, numbers, mutations, seal)
    compare(samples, kernel_verdict, path, fields, block)


NUMBERS = [("cache", name) for name in CACHE if CACHE[name][1] != "16s" and name not in ("crc", "label")]
NUMBERS += [("volume", name) for name in VOLUME if name not in HEAD and VOLUME[name][1] in ("<I", "<Q")]


@pytest.mark.parametrize("kind, name", NUMBERS)
def test_command_and_kernel_agree_on(samples, kernel_verdict, kind, name):
    """Each field by itself, at and around its bounds."""
    path, fields = (samples[1], CACHE) if kind == "cache" else (samples[2], VOLUME)
    old = field(path, fields, name)
    for value in {0, 1, old - 1, old + 1, old * 2, 8192, MIB // 2, (1 << 32) - 1, 1 << 63}:
        block = bytearray(read(path, SB, SB_SIZE))
        damage(block, fields, [(name, value)], [], True)
        compare(samples, kernel_verdict, path, fields, block)
