# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts of a cache from an image that tests/images/writer makes in the VM's memory and that is copied to simulated disks."""

import errno
import os
import time
from pathlib import Path

import cases
from lib import command, simdisk
from peers import Larder, Rig

PIECE = 1 << 20
FILES = {"ssd": Path("/tmp/ssd.img"), "hdd": Path("/tmp/hdd.img")}


def copy_data(source: Path, target: str) -> None:
    """What of the file is no hole."""
    with open(source, "rb", buffering=0) as f, open(target, "r+b", buffering=0) as to:
        position = 0
        while True:
            try:
                position = os.lseek(f.fileno(), position, os.SEEK_DATA)
            except OSError as e:
                if e.errno == errno.ENXIO:
                    break
                raise
            end = os.lseek(f.fileno(), position, os.SEEK_HOLE)
            os.lseek(to.fileno(), position, os.SEEK_SET)
            os.lseek(f.fileno(), position, os.SEEK_SET)
            while position < end:
                position += to.write(f.read(min(PIECE, end - position)))
        os.fsync(to.fileno())


class Starter:
    def __init__(self, scale: int, ssd: dict, hdd: dict):
        self.scale, self.parameters = scale, {"ssd": ssd, "hdd": hdd}

    def start(self, step: cases.Start) -> dict:
        files = [w for flag, kind in (("--cache", "ssd"), ("--backing", "hdd")) for w in (flag, FILES[kind])]
        command.run("writer", *files, "--cache-size", f"{step.gib}G", "--state", step.state, seconds=7200)
        disks = {}
        for kind, path in FILES.items():
            sectors = path.stat().st_size // 512
            disks[kind] = simdisk.Simdisk.create(
                f"{kind}1", sectors=sectors, crash=False, scale=self.scale, **self.parameters[kind]
            )
            copy_data(path, str(disks[kind]))
            path.unlink()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return self._measure(disks)

    def _measure(self, disks: dict[str, simdisk.Simdisk]) -> dict:
        larder = Larder(Rig(str(disks["ssd"]), str(disks["hdd"]), 0, 0, self.scale))
        for d in disks.values():
            d.reset_stats()
        began = time.monotonic_ns()
        device = larder.start()
        fd = os.open(device, os.O_RDONLY)
        os.pread(fd, 4096, 0)
        os.close(fd)
        ns = time.monotonic_ns() - began
        counters = {kind: d.stats() for kind, d in disks.items()}
        status = larder.cache.status()
        larder.stop()
        for d in disks.values():
            d.remove()
        return {
            "ns": ns,
            "now": counters,
            "settled": counters,
            "start_ms": status["start_ms"],
            "index_bytes": status["index_bytes"],
        }
