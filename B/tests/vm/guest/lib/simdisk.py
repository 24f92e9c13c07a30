# SPDX-License-Identifier: GPL-2.0-or-later
"""Simulated disks (tests/sim): they lose their write cache in a power cut, fail on demand, and tell what they were asked to do.

Every argument that simdisk.ko knows can be given by its name; see the head of tests/sim/simdisk_main.c.
"""

import dataclasses
import errno
import time
from pathlib import Path

from .block import BlockDevice
from .command import key_values

ROOT = Path("/sys/kernel/debug/simdisk")


def control(line: str) -> None:
    """One command; OSError with the module's errno if it refuses."""
    try:
        with open(ROOT / "ctl", "w") as f:
            f.write(line)
    except OSError as e:
        raise OSError(e.errno, f"simdisk: {line}: {errno.errorcode.get(e.errno, e.errno)}") from None


def words(**parameters: object) -> str:
    """from_ and the like lose their underscore; True and False become 1 and 0; lists are joined with commas; None is left out."""
    out = []
    for key, value in parameters.items():
        if value is None:
            continue
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        out.append(f"{key.rstrip('_')}={value}")
    return " ".join(out)


class Simdisk(BlockDevice):
    def __init__(self, name: str):
        super().__init__(f"/dev/{name}")
        self.name = name
        self.directory = ROOT / name

    @classmethod
    def create(cls, name: str, *, model: str = "null", mb: int = 256, crash: bool = True, **parameters: object) -> "Simdisk":
        """model null (as fast as it goes), nvme, sata, hdd.  crash: power cuts lose the cache.  null has none unless wce=1."""
        if "sectors" not in parameters:
            parameters["mb"] = mb
        control("add " + words(name=name, model=model, crash=crash, **parameters))
        end = time.monotonic() + 10
        while not Path(f"/dev/{name}").exists() and time.monotonic() < end:
            time.sleep(0.01)
        return cls(name)

    def remove(self, force: bool = False, seconds: float = 10) -> None:
        """Refused with EBUSY while it is open (tried for some seconds: somebody may just be closing it).  force: pulled out."""
        end = time.monotonic() + seconds
        while True:
            try:
                return control(f"del {words(name=self.name, force=force)}")
            except OSError as e:
                if e.errno != errno.EBUSY or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _values(self, name: str) -> dict:
        return key_values((self.directory / name).read_text())

    def stats(self) -> dict:
        """reads writes rbytes wbytes flushes fua discards dbytes write_zeroes zbytes errors nonseq media_bytes ..."""
        return self._values("stats")

    def reset_stats(self) -> None:
        (self.directory / "stats").write_text("0")

    def parameters(self) -> dict:
        return self._values("params")

    def state(self) -> dict:
        """power (on, failing, off) cuts armed volatile_pages volatile_pieces inflight openers"""
        return self._values("state")

    def set(self, **parameters: object) -> None:
        control(f"set name={self.name} {words(**parameters)}")

    def fail(self, **rule: object) -> None:
        """op="write,flush" from_=SECTOR to=SECTOR skip=N count=N status="ioerr" delay_ms=N store=True; see simdisk_fault.c."""
        control(f"fail name={self.name} {words(**rule)}")

    def heal(self) -> None:
        control(f"heal name={self.name}")

    def faults(self) -> list[dict]:
        return [key_values(x) for x in (self.directory / "faults").read_text().splitlines()]

    def corrupt(self, sector: int, count: int, seed: int = 1) -> None:
        """Overwrites stored content; nothing tells the reader."""
        control(f"corrupt name={self.name} {words(from_=sector, to=sector + count, seed=seed)}")


def _names(disks: tuple[Simdisk, ...]) -> str:
    return ",".join(d.name for d in disks) or "all"


def power_cut(
    *disks: Simdisk, mode: str = "random", seed: int = 1, keep: int | None = None, after: int | None = None, ops: str | None = None
) -> None:
    """At one instant for all disks named (none: for all there are).  mode: random, lose, keep, torn, prefix.  keep: percent.

    after=N: not now, but at the N-th command from now on (of the kinds in ops) that one of them gets: see wait_power_off()."""
    control(f"powercut {_names(disks)} {words(mode=mode, seed=seed, keep=keep, after=after, ops=ops)}")


def power_up(*disks: Simdisk) -> None:
    """They show what has survived."""
    control(f"powerup {_names(disks)}")


def wait_power_off(disk: Simdisk, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while disk.state()["power"] != "off":
        if time.monotonic() > end:
            raise TimeoutError(f"{disk}: power is still {disk.state()}")
        time.sleep(0.02)


def all_disks() -> list[Simdisk]:
    return [Simdisk(d.name) for d in sorted(ROOT.iterdir()) if d.is_dir()]


@dataclasses.dataclass
class Command:
    """seq: order of submission over all disks.  end: its completion in the same order, None if in flight.  error: 0 or -errno."""

    seq: int
    time_ns: int
    disk: str
    id: int
    op: str  # read write flush discard zeroes
    sector: int
    sectors: int
    flags: frozenset[str]  # fua sync meta prio rahead nowait background idle
    end: int | None = None
    end_ns: int | None = None
    error: int | None = None


class Trace:
    """A ring of commands to all disks.  with Trace() as t: ...; t.commands()"""

    def __init__(self, size: int = 65536):
        self.size = size

    def __enter__(self) -> "Trace":
        control(f"trace size={self.size}")
        return self

    def __exit__(self, *_: object) -> None:
        control("trace size=0")

    def clear(self) -> None:
        (ROOT / "trace").write_text("0")

    def lines(self) -> list[str]:
        return (ROOT / "trace").read_text().splitlines()

    def commands(self, disk: Simdisk | None = None, op: str | None = None) -> list[Command]:
        """In order of submission.  Fails if the ring was too small."""
        head, *lines = self.lines()
        lost = key_values(head)["lost"]
        if lost:
            raise OverflowError(f"{lost} records lost: Trace(size=...) is too small")
        found: dict[int, Command] = {}
        for line in lines:
            seq, time_ns, event, name, *rest = line.split()
            if event == "S":
                flags = frozenset() if rest[4] == "-" else frozenset(rest[4].split(","))
                number = int(rest[0])
                found[number] = Command(int(seq), int(time_ns), name, number, rest[1], int(rest[2]), int(rest[3]), flags)
            elif event == "C" and int(rest[0]) in found:
                c = found[int(rest[0])]
                c.end, c.end_ns, c.error = int(seq), int(time_ns), int(rest[1])
        commands = sorted(found.values(), key=lambda c: c.seq)
        return [c for c in commands if (disk is None or c.disk == disk.name) and (op is None or c.op == op)]
