# SPDX-License-Identifier: GPL-2.0-or-later
"""Stacks whose disks are damaged again and again (damage_runs.py): what they held, kept in memory, and what is owed of it."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

from . import simdisk
from .block import SECTOR
from .larder import Stack
from .oracle import Oracle
from .sets import make_ssds

REGION = 3 << 20  # bytes of the volume that are judged
SSD_MB, HDD_MB = 8, 12
SIZES = "4k:50,16k:45,64k:5"
STEP = 64 << 10  # bytes: pieces of a disk that hold nothing are not kept


@dataclasses.dataclass(frozen=True)
class Kind:
    ssds: int = 1
    mirror: str = "none"
    cut: bool = True  # by power; else it was stopped in order


KINDS = {
    "one": Kind(),
    "two": Kind(2, "dirty"),
    "stopped": Kind(cut=False),
    "three": Kind(3, "dirty:3"),
    "all": Kind(2, "all"),
}


class Base:
    """Made once: afterwards its disks exist as content.  SSDs come first, the backing is the last one."""

    def __init__(self, make_disk, name: str, seed: int):
        self.name, self.kind, self.seed = name, KINDS[name], seed
        self.directory = Path(tempfile.mkdtemp(prefix=f"damage-{name}-"))
        disks = make_ssds(make_disk, (SSD_MB,) * self.kind.ssds, discard="zero", write_zeroes=1)
        hdd = make_disk("hdd0", mb=HDD_MB, wce=1, discard="zero", write_zeroes=1)
        options = {"cache_mirror": self.kind.mirror} if self.kind.ssds > 1 else {}
        self.options = {"verify": "reads", "sequential_cutoff": 0, "cache_checkpoint_percent": 50} | options
        stack = Stack(
            disks if len(disks) > 1 else disks[0],
            hdd,
            format_cache=("--segment-size", "128k"),
            format_volume=("--cache", "c"),
            writeback="off",
            **self.options,
        )
        self.content = self._load(stack)
        self._end(stack)
        self.images = [d.read(0, d.sectors) for d in (*disks, hdd)]
        for d in (*disks, hdd):
            d.remove()

    @property
    def state(self) -> Path:
        """Of an oracle: secured is what the newest checkpoint has, though all of it was flushed."""
        return self.directory / "oracle"

    def _load(self, stack: Stack) -> bytes:
        """Segments in their second and third life, clean and dirty data, marks, two checkpoints and a log behind each."""
        volume, cache = stack.volume, stack.cache
        oracle = Oracle(volume, seed=self.seed, size=REGION, state=self.state)
        load = {"qd": 4, "sizes": SIZES}
        for _ in range(3):
            oracle.run(ops=70, **load)
            volume.drain()
            cache.message("reclaim", 8)
        volume.set(mode="writearound")
        oracle.run(ops=20, **load)
        volume.set(mode="writeback")
        oracle.run(ops=40, **load)
        cache.message("checkpoint")
        oracle.run(ops=40, **load)
        oracle.run(ops=1, mix="flush=1")
        cache.message("checkpoint")
        for _ in range(3):  # flushed without the oracle's knowledge: perhaps nothing on the SSD says so
            oracle.run(ops=24, mix="read=3,write=6,discard=1,zeroes=1", **load)
            volume.flush()
        return volume.read(0, REGION // SECTOR)

    def _end(self, stack: Stack) -> None:
        if not self.kind.cut:
            return stack.stop()
        for i in range(8):  # not flushed, and not judged
            stack.volume.write((REGION + i * 8192) // SECTOR, bytes([i + 1]) * 8192)
        simdisk.power_cut(mode="random", seed=self.seed)
        stack.stop()
        return simdisk.power_up()

    def judge(self) -> Oracle:
        """Knows what this one does; what it finds is not kept."""
        copy = self.directory / "judge"
        shutil.copyfile(self.state, copy)
        return Oracle(None, state=copy)


class Rig:
    """The disks of a base, as they were, or damaged."""

    def __init__(self, base: Base):
        self.base = base
        self.disks = []
        for i, image in enumerate(base.images):
            name = f"{base.name}{i}"
            disk = simdisk.Simdisk.create(
                name, sectors=len(image) // SECTOR, crash=False, wce=1, fua=1, discard="zero", write_zeroes=1
            )
            for at in range(0, len(image), STEP):
                piece = image[at : at + STEP]
                if piece.count(0) != len(piece):
                    disk.write(at // SECTOR, piece)
            simdisk.control(f"save name={name}")
            self.disks.append(disk)

    def restore(self) -> None:
        for d in self.disks:
            simdisk.control(f"restore name={d.name}")

    def changes(self) -> list[tuple[int, ...]]:
        """Commands so far that may have changed a disk, by disk."""
        stats = [d.stats() for d in self.disks]
        return [(s["writes"], s["discards"], s["write_zeroes"]) for s in stats]

    def remove(self) -> None:
        for d in self.disks:
            d.remove()
