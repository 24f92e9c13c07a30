# SPDX-License-Identifier: GPL-2.0-or-later
"""Images of caches for the tests of larder rescue, by tests/images/writer, and what they must hold, by tests/images/reader."""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from harness import CACHE, SB, TOP, VOLUME, field, preload, preloaded, read

SECTOR = 512
SEGMENT = 256 << 10
IMAGE = "--cache-size 32M --segment-size 256K --volume-size 32M --pattern --extent 64K --fill 60 --dirty 15"
CRASHED = f"{IMAGE} --state crashed --tail 2 --fill-tail 2 --unsynced 2 --checkpoints 2"
SLOT = 4096


def digest(path):
    with open(path, "rb") as image:
        return hashlib.file_digest(image, "sha256").hexdigest()


class Images:
    """A cache of one SSD or several and its one volume, in files."""

    def __init__(self, larder, tools, options, ssds=1):
        self.larder, self.tools = larder, tools
        self.ssds = [larder.directory / f"ssd{i or ''}" for i in range(ssds)]
        self.ssd, self.hdd = self.ssds[0], larder.directory / "hdd"
        self.copies = 1 if ssds == 1 else 3 if "dirty:3" in options else 2
        larder.devices = [*self.ssds, self.hdd]
        self.make(options)

    def make(self, options):
        self.run("writer", *(w for ssd in self.ssds for w in ("--cache", ssd)), "--backing", self.hdd, *options.split())

    def run(self, tool, *words):
        return subprocess.run([self.tools / tool, *map(str, words)], capture_output=True, check=True).stdout

    def damage(self, path, *words):
        subprocess.run([TOP / "tests" / "images" / "damage", path, *words], check=True, stdout=subprocess.DEVNULL)

    def names(self):
        """Of all SSDs, as the reader wants them."""
        return ",".join(map(str, self.ssds))

    def extents(self):
        """[first sector, sectors, state, linear cache sector], in order."""
        lines = self.run("reader", "extents", self.names()).decode().splitlines()
        return [(int(s), int(n), state, int(cache)) for _, s, n, state, cache in map(str.split, lines)]

    def view(self):
        """What a start would show."""
        return self.run("reader", "view", self.names(), self.hdd)

    def data(self):
        """The volume's part of the backing."""
        return read(self.hdd, field(self.hdd, VOLUME, "data_offset"), field(self.hdd, VOLUME, "sectors") * SECTOR)

    def uuid(self):
        raw = field(self.hdd, VOLUME, "uuid").hex()
        return "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))

    def places(self, cache):
        """Where a linear cache sector is: [SSD, bytes], and where its further copies would be, as the writer arranges them."""
        each, start = field(self.ssd, CACHE, "nr_segments"), field(self.ssd, CACHE, "segments_offset")
        segment, sector = divmod(cache, SEGMENT // SECTOR)
        ssd, number = divmod(segment, each)
        places = [((ssd + k) % len(self.ssds), each // self.copies * k + number) for k in range(self.copies)]
        return [(self.ssds[i], start + k * SEGMENT + sector * SECTOR) for i, k in places]

    def place(self, cache):
        return self.places(cache)[0][1]

    def spoil(self, cache, text=b"spoilt", copies=(0,)):
        for i in copies:
            path, at = self.places(cache)[i]
            with open(path, "r+b") as ssd:
                ssd.seek(at + 100)
                ssd.write(text)

    def records(self, stream=0):
        """Of the log behind the checkpoint, in order: what the reader tells of them."""
        lines = self.run("reader", "log", self.names()).decode().splitlines()
        found = [{k: int(v) for k, v in (w.split("=") for w in line.split()[1:])} for line in lines if line.startswith("record")]
        return [r for r in found if r["stream"] == stream]

    def slot(self, segment, slot, copies=(0,)):
        """The places of a slot of the cache, as unreadable() wants them."""
        places = self.places((segment * SEGMENT + slot * SLOT) // SECTOR)
        return [(*places[i], SLOT) for i in copies]

    def digests(self):
        return [digest(path) for path in (*self.ssds, self.hdd)]

    def is_released(self, at=SB):
        return not any(field(self.hdd, VOLUME, "cache_uuid", at)) and not field(self.hdd, VOLUME, "flags", at)


def version(data, sector):
    """(sector, version) that a sector of an image says it is."""
    return struct.unpack_from("<QQ", data, sector * SECTOR)


def dirty_of(pair):
    return [e for e in pair.extents() if e[2] in ("dirty", "zero")]


def written(pair, expected, released=True):
    assert pair.data() == expected
    assert pair.is_released() == released
    assert pair.is_released(field(pair.hdd, VOLUME, "copy_offset")) == released
    pair.larder("super", "check", pair.hdd)


def unreadable(places, more=()):
    """The environment of a command to which these [path, offset, bytes] cannot be read."""
    library = places[0][0].parent
    return preloaded("io_error", library) | {"IO_ERROR": ",".join(f"{p}:{at}:{n}" for p, at, n in places)} | dict(more)


@contextlib.contextmanager
def served(pair, *options, env=None):
    """`larder rescue serve` at a socket, as an address for clients."""
    if not shutil.which("nbdkit") or not shutil.which("nbdcopy"):
        pytest.skip("no nbdkit, or no nbdcopy (libnbd-bin)")
    with tempfile.TemporaryDirectory(dir=pair.larder.directory) as directory:
        place = Path(directory) / "socket"
        environment = dict(
            os.environ | preload(),  # nbdkit itself is built without ASan
            LARDER_DEVICES=":".join(map(str, pair.larder.devices)),
            ASAN_OPTIONS="detect_leaks=0:exitcode=99",
        )
        environment.update(env or {})
        words = [pair.larder.program, "rescue", "serve", "image", "--socket", str(place), *options]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as server:
            while not place.exists():
                assert server.poll() is None, server.stderr.read()
                time.sleep(0.05)
            try:
                yield f"nbd+unix:///?socket={place}"
            finally:
                server.send_signal(signal.SIGTERM)
                said = server.communicate(timeout=60)[1]
        assert server.returncode == 0 and "Sanitizer" not in said and "runtime error" not in said, said
        pair.said = said


def read_nbd(path, offset, count):
    """Reads by a client of our own: NBD_OPT_EXPORT_NAME, NBD_CMD_READ, NBD_CMD_DISC.  None: the server answers with an error."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(path)
        with s.makefile("rwb") as f:
            assert f.read(18)[:16] == b"NBDMAGICIHAVEOPT"
            f.write(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
            f.flush()
            f.read(10)
            f.write(struct.pack(">IHHQQI", 0x25609513, 0, 0, 1, offset, count))
            f.flush()
            magic, error, _ = struct.unpack(">IIQ", f.read(16))
            assert magic == 0x67446698
            data = None if error else f.read(count)
            f.write(struct.pack(">IHHQQI", 0x25609513, 0, 2, 2, 0, 0))  # NBD_CMD_DISC
            return data
