# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache that drops what was used longest ago, as simple as can be: what `larder advise` says is held against it."""

from collections import OrderedDict
from collections.abc import Iterable

BLOCK = 8  # sectors

Request = tuple[object, str, int, int]  # device, R or W, sector, sectors


def served(requests: Iterable[Request], blocks: int) -> tuple[float, float]:
    """In percent, by a cache of so many blocks: of reads (a request counts as one); of written blocks those that were there."""
    cache: OrderedDict[tuple[object, int], None] = OrderedDict()
    hits = {"R": 0.0, "W": 0.0}
    total = {"R": 0, "W": 0}
    for device, kind, sector, sectors in requests:
        range_of = range(sector // BLOCK, (sector + sectors + BLOCK - 1) // BLOCK)
        here = 0
        for b in range_of:
            here += (device, b) in cache
            cache[device, b] = None
            cache.move_to_end((device, b))
            if len(cache) > blocks:
                cache.popitem(last=False)
        hits[kind] += here / len(range_of) if kind == "R" else here
        total[kind] += 1 if kind == "R" else len(range_of)
    return tuple(100 * hits[k] / total[k] if total[k] else -1.0 for k in "RW")  # type: ignore[return-value]
