# SPDX-License-Identifier: GPL-2.0-or-later
"""A backing whose pages of 4 KiB hold their numbers: what a miss reads, and so what fills the cache, is known."""

from .block import BlockDevice
from .larder import DATA_SECTOR


def pattern(page: int) -> bytes:
    return page.to_bytes(4, "little") * 1024


def write_pattern(backing: BlockDevice, pages: int) -> None:
    """Past any volume, while none has anything of it cached.  A multiple of 16 pages."""
    for first in range(0, pages, 16):
        backing.write(DATA_SECTOR + 8 * first, b"".join(map(pattern, range(first, first + 16))))


def not_pattern(volume: BlockDevice, pages: int) -> list[int]:
    """Those of the first pages that read as something else."""
    return [i for i in range(pages) if volume.read(8 * i, 8) != pattern(i)]
