# SPDX-License-Identifier: GPL-2.0-or-later
"""What no cache can do better: a read of a block that nothing has touched before comes from the disk, one at a time; and a byte
that is written is programmed into the flash once."""

import subprocess
import tempfile
from pathlib import Path

import cases
import jobs
from results import Row
from targets import Rows, number

BLOCK = 4096
HEAD = ["model", "case", "peer", "IOPS", "reads from the disk", "first touch", "ms for each command", "disk busy", "IOPS at most"]


def touches(c: cases.Case) -> list[tuple[bool, int]]:
    """(is it a read, block), in the order of the case: fio's own choice, which depends on its seed, not on the device."""
    with tempfile.TemporaryDirectory() as d:
        log = Path(d) / "iolog"
        words = [w for w in jobs.choice(c, c.area.arguments(cases.HDD_MB), c.number) if not w.startswith("--fsync")]
        subprocess.run([*words, "--ioengine=null", f"--write_iolog={log}"], check=True, capture_output=True)
        found = []
        for line in log.read_text().splitlines():
            words = line.split()[-3:]
            if words[0] in ("read", "write"):
                first, size = int(words[1]), int(words[2])
                found += [(words[0] == "read", b) for b in range(first // BLOCK, (first + size) // BLOCK)]
    return found


def first_touches(set_: cases.Set, case: str, peer: str) -> int:
    """Reads in a case of what neither it nor any case before it in the set has read or written: at least so many miss."""
    seen: set[int] = set()
    for group in set_.groups:
        for step in cases.chosen(group, "", peer):
            if not isinstance(step, cases.Case):
                continue
            fresh = 0
            for is_read, block in touches(step):
                fresh += is_read and block not in seen
                seen.add(block)
            if step.name == case:
                return fresh
    raise ValueError(f"no case {case} in this set")


def line(row: Row, first: int) -> list[str]:
    """first: first_touches()."""
    disk = row.raw["now"]["hdd"]
    each_ns = disk["media_ns"] / disk["media_ops"]
    most = row.ios / (first * each_ns) * 1e9 * row.scale
    busy = 100 * disk["busy_ns"] / row.run_ns
    figures = map(number, (row.iops(), disk["reads"], first, each_ns / row.scale / 1e6))
    return [row.model, row.case, row.peer, *figures, f"{min(busy, 100):.0f} %", number(most)]


def lines(rows: Rows, case: str = "mixed") -> list[list[str]]:
    """One for each peer that it was measured on, where the disk is the model of one."""
    found, first = [], None
    for row in rows.values():
        if row.case != case or row.peer in cases.RAW or not row.measured or not row.raw["now"]["hdd"]["media_ns"]:
            continue
        first = first if first is not None else first_touches(cases.SETS[row.raw["set"]], case, row.peer)
        found.append(line(row, first))
    return found


FLASH_HEAD = ["model", "case", "peer", "IOPS", "programmed per byte", "flushes", "flash busy", "IOPS at most"]
FLASH_MODEL = "sata"  # on the others something else is in the way: the CPU, the bus


def flash_line(row: Row) -> list[str]:
    """IOPS at most: were the flash busy all the time, with nothing but the user's bytes, once each."""
    ssd = row.raw["now"]["ssd"]
    user = row.raw["fio"]["write"]["io_bytes"]
    most = row.ios / (ssd["media_ns"] * user / ssd["media_bytes"]) * 1e9 * row.scale
    busy = 100 * ssd["media_ns"] / row.run_ns
    programmed = f"{ssd['media_bytes'] / user:.3f}"
    figures = number(row.iops()), programmed, str(ssd["flushes"]), f"{min(busy, 100):.0f} %", number(most)
    return [row.model, row.case, row.peer, *figures]


def flash_lines(rows: Rows) -> list[list[str]]:
    """Random writes to what is cached, by depth."""
    names = [f"rw-qd{depth}" for depth in cases.DEPTHS]
    found = [r for r in rows.values() if r.model == FLASH_MODEL and r.case in names and r.measured]
    shown = sorted(found, key=lambda r: names.index(r.case))
    return [flash_line(r) for r in shown if r.raw["now"].get("ssd", {}).get("media_ns")]
