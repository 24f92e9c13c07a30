# SPDX-License-Identifier: GPL-2.0-or-later
"""The commit blocks on an SSD, found by docs/on-disk-format.md, section 5."""

import dataclasses
import struct

from .block import BlockDevice
from .larder import segment_layout

SLOT = 4096
WRITE, FILL, KEEP = range(3)


@dataclasses.dataclass(frozen=True)
class CommitBlock:
    ssd: BlockDevice
    sector: int  # of the SSD
    sequence: int
    durable: int  # durable_sequence
    stream: int
    segment: int  # that it names: of a second copy, the first one's
    slot: int
    own: bool  # it is no second copy

    def flip(self, byte: int = 200) -> None:
        """A bit of it; the second time it is whole again."""
        block = bytearray(self.ssd.read(self.sector, SLOT // 512))
        block[byte] ^= 1
        self.ssd.write(self.sector, bytes(block))
        self.ssd.flush()


def newest_epoch(ssd: BlockDevice) -> int:
    return struct.unpack_from("<I", ssd.read(8, 8), 256)[0]


def replay_start(ssd: BlockDevice) -> int:
    """Sequence number from which a start replays."""
    return struct.unpack_from("<Q", ssd.read(8, 8), 288 + 16)[0]


def commit_blocks(ssd: BlockDevice, stream: int = WRITE) -> list[CommitBlock]:
    """Those that a start may replay, in their order, second copies too."""
    first, size, number = segment_layout(ssd)
    epoch, start = newest_epoch(ssd), replay_start(ssd)
    number_of_first = struct.unpack_from("<I", ssd.read(8, 8), 228)[0]
    found = []
    for i in range(number):
        data = ssd.read(first + i * size, size)
        for at in range(0, len(data), SLOT):
            if data[at : at + 4] != b"LCMT":
                continue
            sequence, _, durable = struct.unpack_from("<QQQ", data, at + 16)
            of_epoch, segment = struct.unpack_from("<II", data, at + 44)
            if of_epoch == epoch and data[at + 60] == stream and sequence >= start:
                place, own = first + i * size + at // 512, segment == number_of_first + i
                found.append(CommitBlock(ssd, place, sequence, durable, stream, segment, at // SLOT, own))
    return sorted(found, key=lambda b: b.sequence)
