# SPDX-License-Identifier: GPL-2.0-or-later
"""What was written, where on the SSD it is, and how to damage it there."""

import dataclasses
import random

from . import simdisk
from .block import SECTOR, BlockDevice
from .larder import DATA_SECTOR, Stack, segment_layout

SLOT = 8  # sectors


@dataclasses.dataclass
class Written:
    """What the volume is to hold, and with it the backing in the end."""

    stack: Stack
    seed: int
    content: dict[int, bytes] = dataclasses.field(default_factory=dict)  # by sector

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def write(self, sector: int, count: int = SLOT) -> bytes:
        data = self.random.randbytes(count * SECTOR)
        self.stack.volume.write(sector, data)
        for i in range(count):
            self.content[sector + i] = data[i * SECTOR : (i + 1) * SECTOR]
        return data

    def wrong(self, device: BlockDevice, shift: int = 0) -> dict[int, bytes]:
        """Sectors of the device that hold something else, and what."""
        found = {s: device.read(s // 8 * 8 + shift, 8)[s % 8 * SECTOR :][:SECTOR] for s in self.content}
        return {s: data for s, data in found.items() if data != self.content[s]}

    def not_on_backing(self) -> set[int]:
        """Sectors; all of them must hold what they did before anything was written: zeroes."""
        wrong = self.wrong(self.stack.hdd, DATA_SECTOR)
        assert all(data == bytes(SECTOR) for data in wrong.values()), f"the backing holds what nobody wrote: {sorted(wrong)}"
        return set(wrong)


def places(ssd: BlockDevice, data: bytes) -> list[int]:
    """Where on the SSD the first sector of this data is; the log may hold copies that nothing is mapped to any more."""
    first, size, number = segment_layout(ssd)
    found = []
    for at in range(first, first + size * number, 8192):
        raw = ssd.read(at, min(8192, first + size * number - at))
        k = raw.find(data[:SECTOR])
        while k >= 0:
            assert k % SECTOR == 0
            found.append(at + k // SECTOR)
            k = raw.find(data[:SECTOR], k + 1)
    assert found, "it is not on the SSD"
    return found


def lose_checksums(ssd: BlockDevice, sector: int, last: bool = False) -> int:
    """Commit blocks, or the last one, and summary of the segment that this sector is in; so many were damaged."""
    first, size, _ = segment_layout(ssd)
    start = first + (sector - first) // size * size
    kinds = {s: ssd.read(s, SLOT)[:4] for s in range(start, start + size, SLOT)}
    blocks = [s for s, kind in kinds.items() if kind == b"LCMT"]
    found = blocks[-1 if last else 0 :] + [s for s, kind in kinds.items() if kind == b"LSUM"]
    for s in found:
        flip(ssd, s)
    return len(found)


def crash(stack: Stack, mode: str = "lose") -> None:
    simdisk.power_cut(mode=mode)
    stack.stop()
    simdisk.power_up()
    stack.start()


def settle(stack: Stack, w: Written, where: str) -> None:
    """What was written is then in the segment being written, or sealed, and the cache was started since, or not."""
    if where.endswith("sealed"):
        fill_segment(stack, w)
    if where.startswith("restarted"):
        stack.restart()
    elif where.startswith("crashed"):
        crash(stack)


def flip(ssd: BlockDevice, sector: int, byte: int = 100, bit: int = 3) -> None:
    block = bytearray(ssd.read(sector // SLOT * SLOT, SLOT))
    block[sector % SLOT * SECTOR + byte] ^= 1 << bit
    ssd.write(sector // SLOT * SLOT, bytes(block))
    ssd.flush()


def damage_copies(stack: Stack, w: Written, which: int) -> list[dict[BlockDevice, int]]:
    """Nine blocks and an odd piece on two SSDs: the fourth and the odd one are damaged on this one, the sixth on the other.  Where
    each is."""
    ssds = stack.ssd
    data = [w.write(4096 + 3 * SLOT * i) for i in range(9)]
    odd = w.write(8191, 13)
    commit(stack)
    copies = [{s: places(s, d)[0] for s in ssds} for d in (*data, odd)]
    flip(ssds[which], copies[3][ssds[which]] + 2)
    flip(ssds[which], copies[9][ssds[which]] + 11)
    flip(ssds[1 - which], copies[5][ssds[1 - which]])
    return copies


def commit(stack: Stack) -> None:
    """All commit blocks are on the SSD."""
    stack.cache.message("commit")
    stack.volume.flush()


def fill_segment(stack: Stack, w: Written) -> None:
    """What was written before is in segments that are sealed, their summaries written."""
    before = stack.cache.status()["summaries"]
    at = 60000
    while stack.cache.status()["summaries"] < before + 2:
        w.write(at)
        at += 2 * SLOT
    commit(stack)
