# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of the command larder share: running it on images in regular files, and reading and changing what lies on them.

The command is built with ASan and UBSan, and every run of it fails its test if a sanitizer has anything to say; LARDER in the
environment names another one.  What lies on disk is read by offsets from docs/on-disk-format.md, not by the code under test.
"""

import contextlib
import hashlib
import os
import struct
import subprocess
from pathlib import Path

import signatures

TOP = Path(__file__).resolve().parent.parent.parent
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SB, SB_SIZE = 4096, 4096
TABLES, TABLE_SIZE = (128 * KIB, 256 * KIB), 128 * KIB
MAGIC = bytes([0x6C, 0x61, 0x72, 0x64, 0x65, 0x72, 0x1F, 0xF9, 0xC3, 0x0E, 0x8A, 0x57, 0xD1, 0x64, 0xB2, 0x9E])
DONE, FAILED, USAGE, NOT_FOUND, BUSY, UNSAFE = range(6)

# name: offset, struct format.  docs/on-disk-format.md
HEAD = {
    "magic": (0, "16s"),
    "crc": (16, "<I"),
    "version": (20, "<I"),
    "kind": (24, "<I"),
    "flags": (28, "<I"),
    "generation": (32, "<Q"),
    "compat": (40, "<Q"),
    "ro_compat": (48, "<Q"),
    "incompat": (56, "<Q"),
    "uuid": (64, "16s"),
    "device_sectors": (80, "<Q"),
    "copy_offset": (88, "<Q"),
    "created": (96, "<Q"),
}
CACHE = HEAD | {
    "cache_uuid": (128, "16s"),
    "label": (144, "64s"),
    "device_number": (208, "<I"),
    "nr_devices": (212, "<I"),
    "set_generation": (216, "<Q"),
    "segment_size": (224, "<I"),
    "first_segment": (228, "<I"),
    "nr_segments": (232, "<I"),
    "role": (236, "<I"),
    "segments_offset": (240, "<Q"),
    "table_generation": (248, "<Q"),
    "epoch": (256, "<I"),
    "durable_sequence": (264, "<Q"),
    "all_generation": (272, "<Q"),
    "checkpoint0.sequence": (288, "<Q"),
    "checkpoint0.bytes": (296, "<Q"),
    "checkpoint0.first_segment": (312, "<I"),
    "checkpoint0.epoch": (316, "<I"),
    "checkpoint1.sequence": (352, "<Q"),
    "checkpoint1.bytes": (360, "<Q"),
    "checkpoint1.first_segment": (376, "<I"),
    "checkpoint1.epoch": (380, "<I"),
    "epochs0.epoch": (416, "<I"),
    "epochs0.segment": (420, "<I"),
    "epochs0.first_sequence": (432, "<Q"),
    "epochs1.epoch": (448, "<I"),
    "epochs1.segment": (452, "<I"),
    "epochs1.first_sequence": (464, "<Q"),
}
VOLUME = HEAD | {
    "cache_uuid": (128, "16s"),
    "label": (144, "64s"),
    "mode": (208, "<I"),
    "data_offset": (216, "<Q"),
    "tail_reserve": (224, "<Q"),
    "sectors": (232, "<Q"),
    "incarnation": (240, "<Q"),
    "set_generation": (248, "<Q"),
    "noted": (256, "<Q"),
    "noted_incarnation": (264, "<Q"),
}
TABLE = {
    "magic": (0, "<I"),
    "crc": (4, "<I"),
    "generation": (8, "<Q"),
    "set_generation": (16, "<Q"),
    "cache_uuid": (24, "16s"),
    "nr_devices": (40, "<I"),
    "nr_volumes": (44, "<I"),
    "device0.uuid": (64, "16s"),
    "device0.state": (80, "<I"),
    "device0.role": (84, "<I"),
    "device0.nr_segments": (92, "<I"),
    "device1.uuid": (128, "16s"),
    "device1.state": (144, "<I"),
    "device1.first_segment": (152, "<I"),
    "device2.state": (208, "<I"),
    "volume0.uuid": (1088, "16s"),
    "volume0.state": (1104, "<I"),
    "volume0.sectors": (1112, "<Q"),
    "volume0.incarnation": (1120, "<Q"),
    "volume0.seen": (1192, "<Q"),
    "volume1.uuid": (1200, "16s"),
    "volume1.state": (1216, "<I"),
    "volume1.sectors": (1224, "<Q"),
    "ancestors0": (115776, "<Q"),
}


def crc32c(data):
    """As the format has it: initial value ~0, result not inverted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def _crc_of_byte(value):
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE_OF_CRC = [_crc_of_byte(value) for value in range(256)]


def fast_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE_OF_CRC[(crc ^ byte) & 0xFF]
    return crc


# ---------------------------------------------------------------------- running it


class Larder:
    """Runs the command with a scan that sees only the images of this test."""

    def __init__(self, program, directory):
        self.program, self.directory = program, directory
        self.devices = []

    def environment(self, env=None):
        environment = dict(
            # a terminal's own size counts: processes of pytest-xdist have that of a terminal which is not there
            {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")},
            LARDER_DEVICES=":".join(str(d) for d in self.devices),
            LARDER_CONF=str(self.directory / "no.conf"),
            LC_ALL="C.UTF-8",
            ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:exitcode=99",
            UBSAN_OPTIONS="print_stacktrace=1",
        )
        environment.update(env or {})
        return environment

    def __call__(self, *words, code=DONE, env=None, stdin=subprocess.DEVNULL):
        run = subprocess.run(
            [self.program, *map(str, words)],
            capture_output=True,
            text=True,
            errors="replace",
            env=self.environment(env),
            stdin=stdin,
            timeout=120,
        )
        sane(run)
        if code is not None:
            assert run.returncode == code, f"{words}: {run.returncode}, not {code}\n{run.stdout}{run.stderr}"
        return run

    @contextlib.contextmanager
    def started(self, *words, env=None, code=DONE):
        """Runs beside the test, until the block ends at the latest; its output is in `out` and `err` of what is given then."""
        with subprocess.Popen(
            [self.program, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(env),
        ) as process:
            try:
                yield process
                process.out, process.err = process.communicate(timeout=120)
            finally:
                process.kill()
        sane(subprocess.CompletedProcess(words, process.returncode, process.out, process.err))
        assert process.returncode == code, f"{words}: {process.returncode}, not {code}\n{process.out}{process.err}"

    def image(self, name, size, seen=True):
        path = self.directory / name
        with open(path, "wb") as image:
            image.truncate(size)
        if seen:
            self.devices.append(path)
        return path

    def cache(self, name="fast", size=64 * MIB, *options):
        path = self.image(f"{name}.ssd", size)
        self("cache", "create", name, "--cache", path, *options)
        return path

    def volume(self, name="data", size=64 * MIB, *options):
        path = self.image(f"{name}.hdd", size)
        self("volume", "create", name, "--backing", path, *options)
        return path


def preload(*libraries):
    """The environment that puts them in front of the C library, behind ASan's, which has to be the first; valgrind has none."""
    asan = []
    if "LARDER_VALGRIND" not in os.environ:
        asan = [subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()]
    return {"LD_PRELOAD": " ".join(map(str, [*asan, *libraries]))}


def preloaded(name, directory):
    """The same for tests/command/NAME.c."""
    source, library = TOP / "tests" / "command" / f"{name}.c", directory / f"{name}.so"
    command = ["gcc", "-shared", "-fPIC", "-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o", library, source]
    if not library.exists():
        subprocess.run(command, check=True)
    return preload(library)


def sane(run):
    assert run.returncode in (*range(6), 10, 11), f"ended with {run.returncode}\n{run.stderr}"
    assert "Sanitizer" not in run.stderr and "runtime error" not in run.stderr, run.stderr


def one_line(run, *parts):
    """An error is one line on stderr that holds these parts."""
    lines = run.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("larder: "), run.stderr
    for part in parts:
        assert str(part) in lines[0], f"{part!r} is not in: {lines[0]}"


def pieces(path):
    """The parts of a sparse file that hold something other than zeroes."""
    with open(path, "rb") as image:
        end = image.seek(0, os.SEEK_END)
        at = 0
        while at < end:
            try:
                at = os.lseek(image.fileno(), at, os.SEEK_DATA)
            except OSError:
                return
            image.seek(at)
            piece = image.read(64 * KIB)
            if piece.strip(b"\0"):
                yield at, piece
            at += len(piece)


def digest(path):
    total = hashlib.sha256(b"%d" % path.stat().st_size)
    for at, piece in pieces(path):
        total.update(b"%d" % at + piece)
    return total.hexdigest()


def blank(path):
    return not any(pieces(path))


def read(path, offset, size):
    with open(path, "rb") as image:
        image.seek(offset)
        return image.read(size)


def field(path, fields, name, at=SB):
    offset, form = fields[name]
    return struct.unpack(form, read(path, at + offset, struct.calcsize(form)))[0]


def patch(path, fields, at=SB, size=SB_SIZE, seal=True, **values):
    """Changes fields of the structure at `at`, and repairs its checksum."""
    block = bytearray(read(path, at, size))
    for name, value in values.items():
        offset, form = fields[name.replace("__", ".")]
        struct.pack_into(form, block, offset, value)
    if seal:
        place = fields["crc"][0]
        block[place : place + 4] = bytes(4)
        struct.pack_into("<I", block, place, fast_crc32c(block))
    signatures.write(path, at, bytes(block))


def patch_both(path, fields, **values):
    copy = field(path, fields, "copy_offset")
    patch(path, fields, **values)
    if copy:
        patch(path, fields, at=copy, **values)


def patch_tables(path, **values):
    for at in TABLES:
        patch(path, TABLE, at=at, size=TABLE_SIZE, **values)


def blkid(path):
    run = subprocess.run(
        ["blkid", "-p", "-o", "export", str(path)],
        capture_output=True,
        text=True,
        env=dict(os.environ, PATH=os.environ["PATH"] + ":/sbin:/usr/sbin"),
    )
    assert run.returncode in (0, 2), run.stderr
    return run.stdout


def attach_by_hand(ssd, hdd, number=0):
    """What the kernel does to the cache's table when a volume is attached."""
    values = {
        f"volume{number}__uuid": field(hdd, VOLUME, "uuid"),
        f"volume{number}__state": 1,
        f"volume{number}__sectors": field(hdd, VOLUME, "sectors"),
    }
    patch_tables(ssd, nr_volumes=number + 1, **values)
