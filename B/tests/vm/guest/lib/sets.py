# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache on several SSDs, and what becomes of them."""

from . import simdisk
from .larder import Stack, wait_for

MODES = ("random", "torn", "lose", "keep", "prefix")
TABLES = {"from_": 256, "to": 768}  # sectors of both places of the table on an SSD (docs/on-disk-format.md)


def make_ssds(make_disk, sizes: tuple[int, ...] = (48, 48), **parameters: object) -> list[simdisk.Simdisk]:
    parameters = {"model": "null", "wce": 1, "fua": 1} | parameters
    return [make_disk(f"ssd{i}", mb=mb, **parameters) for i, mb in enumerate(sizes)]


def make_stack(make_disk, sizes: tuple[int, ...] = (48, 48), **options: object) -> Stack:
    return Stack(
        make_ssds(make_disk, sizes), make_disk("hdd0", model="null", mb=128, wce=1), format_volume=("--cache", "c"), **options
    )


def small_stack(make_disk, ssds: int = 1, segment: str = "128k", **options: object) -> Stack:
    """Small segments; nothing is written back, reclaimed, or ends in the log, but what the test does.  And, each time that a third
    segment is begun, what opens others, in its own time: none is where all that is written goes into two."""
    disks = make_ssds(make_disk, (32,) * ssds)
    hdd = make_disk("hdd0", model="null", mb=64, wce=1)
    options = {"writeback": "off", "sequential_cutoff": 0, "cache_checkpoint_percent": 50} | options
    return Stack(
        disks if ssds > 1 else disks[0], hdd, format_cache=("--segment-size", segment), format_volume=("--cache", "c"), **options
    )


def kill(ssd: simdisk.Simdisk, ops: str = "read,write,flush,discard,zeroes") -> None:
    ssd.fail(op=ops, status="ioerr")


def resynced(stack: Stack, failed: int = 1, seconds: float = 120) -> dict:
    """So many SSDs have left, and all that is dirty has two copies on the others.  Status."""
    wait_for(lambda: stack.cache.status()["devices_failed"] == failed, 60, "the SSD to leave")
    status = {}

    def over() -> bool:
        """By one status: trouble alone tells nothing before it has begun, which is a moment behind that an SSD has left, or joined;
        and it may begin again."""
        status.update(stack.cache.status())
        return (status["trouble"], status["resync"], status["single_sectors"]) == ("-", "idle", 0)

    wait_for(over, seconds, "the second copies")
    return status


def start_without(stack: Stack, *numbers: int) -> None:
    """All but these SSDs are there."""
    all_of_them = stack.ssd
    stack.ssd = [None if i in numbers else s for i, s in enumerate(all_of_them)]
    try:
        stack.start()
    finally:
        stack.ssd = all_of_them
