# SPDX-License-Identifier: GPL-2.0-or-later
"""Block traces (tests/sim/traces) as fio replays them: its log of version 2, on the disk of the bench."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import cases
from jobs import DEVICE, iolog

TRACES = Path(__file__).resolve().parents[1] / "sim" / "traces"
BLOCK = 8  # sectors: every peer takes whole ones
REGION = 2048  # sectors: what lies in one stays together, and regions in their order; those that nobody touches are left out


def _read(name: str, number: int) -> list[tuple[str, int, int, int]]:
    """op, volume, and the blocks: first and one behind the last."""
    text = subprocess.run(["zstd", "-dcq", TRACES / f"{name}.trace.zst"], check=True, capture_output=True, text=True).stdout
    found = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        op, volume, start, sectors, _ = line.split()
        first, end = int(start) // BLOCK, -(-(int(start) + int(sectors)) // BLOCK)
        found.append((op, int(volume), first, end))
        if len(found) == number:
            break
    return found


def requests(name: str, number: int, hdd_mb: int) -> bytes:
    """The first so many.  ValueError: what they touch has no room on the disk."""
    trace = _read(name, number)
    blocks = REGION // BLOCK
    regions = sorted({(volume, r) for _, volume, first, end in trace for r in range(first // blocks, (end - 1) // blocks + 1)})
    place = {region: i for i, region in enumerate(regions)}
    if len(regions) * REGION > hdd_mb * 2048 - 2 * REGION:  # the last one is not all there on a volume with a superblock
        raise ValueError(f"trace {name}: {len(regions)} MiB are touched, more than the disk of {hdd_mb} MiB has room for")
    lines = ["fio version 2 iolog", f"{DEVICE} add", f"{DEVICE} open"]
    for op, volume, first, end in trace:  # what one request touches lies in neighbours here, too
        sector = place[volume, first // blocks] * REGION + first % blocks * BLOCK
        lines.append(f"{DEVICE} {'write' if op == 'W' else 'read'} {sector * 512} {(end - first) * BLOCK * 512}")
    return ("\n".join([*lines, f"{DEVICE} close"]) + "\n").encode()


def logs(directory: Path, peer: str, set_: cases.Set, only: str) -> Iterator[tuple[Path, bytes]]:
    """What the chosen steps of the set replay: where it is to lie, and the requests."""
    for step in (s for g in set_.groups for s in cases.chosen(g, only, peer) if isinstance(s, cases.Trace)):
        yield iolog(directory, step.trace), requests(step.trace, step.number, set_.hdd_mb)
