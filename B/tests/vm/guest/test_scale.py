# SPDX-License-Identifier: GPL-2.0-or-later
"""As large as it may be: 1,024 volumes of one cache, a volume of 512 TiB, a cache of 32 TiB, on simulated disks, which are sparse.

Addresses: what lies at the ends, and at each power of two between, reads back and is on the disk where it belongs.  Memory: what
`memory_bytes` says against what the kernel has less.  The seconds of a start are printed, not judged.  The VM has 9 GiB.
"""

import os
import random
from pathlib import Path

import pytest
from lib import simdisk
from lib.command import CommandError
from lib.larder import DATA_SECTOR, RESERVED_SECTORS, Cache, Stack, Target, Volume, backing_alone

MIB = 2048  # sectors
TIB = MIB << 20
VOLUMES = int(os.environ.get("LARDER_SCALE_VOLUMES", "1024"))
EACH = 64 * MIB  # of a backing
PLACES = 3  # written in each volume
OFF = {"congestion_read": 0, "congestion_write": 0}
LOAD = {"ops": 1500, "qd": 16}


def available() -> int:
    """Bytes."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    line = next(x for x in Path("/proc/meminfo").read_text().splitlines() if x.startswith("MemAvailable:"))
    return int(line.split()[1]) << 10


def stamp(volume: int, sector: int, turn: int) -> bytes:
    return f"volume {volume}, sector {sector}, turn {turn}.".encode().ljust(64, b".") * 64


def told(what: str, status: dict, used: int) -> None:
    stated = status["memory_bytes"]
    print(f"{what}: start {status['start_ms']} ms, memory_bytes {stated >> 20} MiB, available memory fell by {used >> 20} MiB")


# ---------------------------------------------------------------- volumes


class Many:
    """A cache and its volumes, each on a slice of one disk."""

    def __init__(self, make_disk, kernel_log):
        self.ssd = make_disk("ssd0", model="null", mb=512, wce=1, fua=1)
        self.disk = make_disk("hdd0", model="null", sectors=VOLUMES * EACH, wce=1)
        self.log = kernel_log
        Cache.format("c", self.ssd)
        self.slices = [Target.create(f"b{i}", f"0 {EACH} linear {self.disk} {i * EACH}") for i in range(VOLUMES)]
        for i in range(VOLUMES):
            Volume.format(f"v{i}", self.slices[i])  # its first start attaches it: by name each would look at all devices
        self.written: dict[tuple[int, int], bytes] = {}
        self.start()

    def start(self) -> None:
        before = available()
        self.cache = Cache.start(self.ssd, **OFF)
        told(f"a cache of {len(self.written) and VOLUMES} volumes", self.cache.status(), before - available())
        self.used = before - available()
        self.volumes = [Volume.start(self.slices[i], self.cache, name=f"v{i}") for i in range(VOLUMES)]

    def stop(self) -> None:
        for v in self.volumes:
            v.remove()
        self.cache.remove()

    def write(self, rng: random.Random, turn: int) -> None:
        """At random places of each; durable when it returns."""
        for i, v in enumerate(self.volumes):
            for _ in range(PLACES):
                sector = rng.randrange(v.sectors // 8) * 8
                self.written[i, sector] = stamp(i, sector, turn)
                v.write(sector, self.written[i, sector])
            v.flush()

    def check(self) -> None:
        wrong = [where for where, data in self.written.items() if self.volumes[where[0]].read(where[1], 8) != data]
        assert not wrong, wrong[:20]
        neighbours = [(i, s ^ 8) for i, s in self.written if (i, s ^ 8) not in self.written and (s ^ 8) < self.volumes[i].sectors]
        wrong = [(i, s) for i, s in neighbours[::7] if self.volumes[i].read(s, 8).strip(b"\0")]
        assert not wrong, wrong[:20]


@pytest.mark.limit(3000)
def test_volumes(make_disk, kernel_log, seed):
    """As many as a cache may have: after a clean stop and after a power cut each reads what was written to it, and nothing else."""
    rng = random.Random(seed)
    many = Many(make_disk, kernel_log)
    assert many.cache.status()["volumes"] == VOLUMES
    many.write(rng, 1)
    many.stop()
    many.start()
    many.check()
    # a cache that has just started knows its volumes, in use or not: that they are in use is dm's memory
    stated = many.cache.status()["memory_bytes"]
    assert abs(many.used - stated) < stated / 10 + (4 << 20), (many.used, stated)
    many.write(rng, 2)
    kernel_log.expect("I/O error|flush that|superblock|could not be|failed")
    simdisk.power_cut(mode="lose")
    many.stop()
    simdisk.power_up()
    many.start()
    many.check()
    if VOLUMES == 1024:
        one_more(many, make_disk)
    many.stop()
    for b in many.slices:
        b.remove()


def one_more(many: Many, make_disk) -> None:
    """Refused, in words."""
    backing = make_disk("hdd1", model="null", mb=64, wce=1)
    Volume.format("more", backing)
    with pytest.raises(CommandError):
        Volume.start(backing, many.cache, name="more")
    assert many.log.matching("table of volumes is full: .forget. one")


@pytest.mark.limit(1500)
@pytest.mark.parametrize("mode", ["writeback", "writearound"])
def test_large_volume(make_disk, make_oracle, kernel_log, mode):
    """512 TiB: the oracle at its end, across sector 2^32 and at its middle; a power cut; then the disk without larder."""
    ssd = make_disk("ssd0", model="null", mb=256, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", sectors=512 * TIB + RESERVED_SECTORS, wce=1)
    stack = Stack(ssd, hdd, format_volume=("--cache", "c", "--mode", mode), sequential_cutoff=64)
    v = stack.volume
    assert v.sectors == 512 * TIB
    # mixed: what bypasses needs marks, whose bits are by 64 MiB of the volume
    ends = (0, 2 * TIB - 8 * MIB, 4 * TIB - 8 * MIB, 256 * TIB - 8 * MIB, 512 * TIB - 16 * MIB)
    oracles = [make_oracle(v, size="16m", offset=at * 512) for at in ends]
    for o in oracles:
        o.run(**LOAD)
        o.verify()
    marks = [3 << i for i in range(16, 39)] + [512 * TIB - 16 * MIB - 8]
    for sector in marks:
        v.write(sector, stamp(0, sector, 1))
    v.flush()
    assert v.status()["marks_set"] > 0
    stack.restart()
    for o in oracles:
        o.verify(after="clean")
        o.run(**LOAD)
    stack.volume.flush()
    kernel_log.expect("I/O error|flush that|superblock|could not be|failed")
    simdisk.power_cut(mode="lose")
    stack.stop()
    simdisk.power_up()
    before = available()
    stack.start()
    told("a volume of 512 TiB", stack.cache.status(), before - available())
    for o in oracles:
        o.verify(after="crash")
    for sector in marks:
        assert stack.volume.read(sector, 8) == stamp(0, sector, 1), sector
    with pytest.raises(OSError):
        stack.volume.read(512 * TIB, 8)
    stack.detach()
    stack.stop()
    raw = backing_alone(hdd)
    for o in oracles:
        o.verify(device=raw)
    for sector in marks:
        assert hdd.read(DATA_SECTOR + sector, 8) == stamp(0, sector, 1), sector
    raw.remove()


# ---------------------------------------------------------------- caches


def written(trace: simdisk.Trace, disk: simdisk.Simdisk) -> int:
    """The last sector of the disk that was, since the trace was cleared, but for its superblock's copy."""
    return max(c.sector for c in trace.commands(disk, "write") if c.sectors > 8)


def started(ssds: list, hdd: simdisk.Simdisk, **options: object) -> tuple[Cache, Volume, int]:
    """Memory: without what the disks have of the checkpoint that a start writes."""
    before, stored = available(), sum(s.stats()["wbytes"] for s in ssds)
    cache = Cache.start(ssds, memory_limit=7 << 10, **OFF, **options)
    used = before - available() - sum(s.stats()["wbytes"] for s in ssds) + stored
    told("a cache of 32 TiB", cache.status(), used)
    return cache, Volume.start(hdd, cache, sequential_cutoff=0), used


def judge_memory(cache: Cache, used: int) -> None:
    stated = cache.status()["memory_bytes"]
    assert abs(used - stated) < stated / 20, (used, stated)


@pytest.mark.limit(2400)
def test_large_cache(make_disk, make_oracle, kernel_log, trace):
    """32 TiB on one SSD: checkpoints, which are taken from its end; a power cut."""
    ssd = make_disk("ssd0", model="null", sectors=32 * TIB, wce=1, fua=1)
    hdd = make_disk("hdd0", model="null", mb=1024, wce=1)
    Cache.format("c", ssd)
    Volume.format("v", hdd, "--cache", "c")
    cache, v, used = started([ssd], hdd)
    judge_memory(cache, used)
    status = cache.status()
    assert status["segments"] * status["segment_sectors"] > 32 * TIB - 32 * MIB
    oracle = make_oracle(v, size="64m")
    oracle.run(**LOAD)
    trace.clear()
    cache.message("checkpoint")
    assert written(trace, ssd) > 32 * TIB - (2 << 10) * MIB, "chunks lie at the end"
    oracle.verify()
    v.flush()
    kernel_log.expect("I/O error|flush that|superblock|could not be|failed")
    simdisk.power_cut(mode="lose")
    v.remove()
    cache.remove()
    simdisk.power_up()
    cache, v, _ = started([ssd], hdd)
    oracle.verify(after="crash")
    v.drain()
    oracle.verify()
    v.remove()
    cache.remove()
