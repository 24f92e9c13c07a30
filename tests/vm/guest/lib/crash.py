# SPDX-License-Identifier: GPL-2.0-or-later
"""Crash states (tests/crash): records what a stack does to simulated disks, then has power cuts in that recording judged."""

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

from . import simdisk
from .command import key_values
from .larder import DATA_SECTOR, Cache, Stack, Volume
from .oracle import Load, Oracle
from .parts import Part
from .wrong_states import commands

RECORDING = simdisk.ROOT / "recording"
RESULTS = Path(os.environ.get("LARDER_RESULTS", "/tmp"))
KEEP = bool(os.environ.get("LARDER_CRASH_KEEP"))
ROOM = 384 << 20  # bytes of a recording


@dataclasses.dataclass
class Region:
    """What one oracle knows of one volume."""

    volume: str
    oracle: Oracle
    size: int
    offset: int
    backing: str
    pids: list[int] = dataclasses.field(default_factory=list)

    def words(self) -> str:
        pids = ",".join(f"pid={p}" for p in self.pids)
        place = f"offset={self.offset},backing={self.backing},sector={DATA_SECTOR}" if self.backing else f"offset={self.offset}"
        return f"name={self.volume},size={self.size},seed={self.oracle.seed},{place},{pids}"

    def start(self, **options: object) -> Load:
        load = self.oracle.start(journal=RECORDING, journal_at_once=True, **options)
        self.pids.append(load.process.pid)
        return load

    def run(self, **options: object) -> dict:
        return self.start(**options).wait()


def mark(text: str) -> None:
    with open(RECORDING, "wb", buffering=0) as f:
        f.write(text.encode())


def hurry() -> None:
    """Thousands of starts and stops: no waiting for grace periods."""
    Path("/sys/kernel/rcu_expedited").write_text("1")
    for name, jiffies in {"first": 0, "next": 1}.items():
        Path(f"/sys/module/rcutree/parameters/jiffies_till_{name}_fqs").write_text(str(jiffies))


def make_anew(disks: dict[str, dict]) -> None:
    """Empty, fast, with nothing to lose."""
    for disk in simdisk.all_disks():
        if disk.name in disks:
            disk.remove()
    for name, parameters in disks.items():
        simdisk.Simdisk.create(name, model="null", crash=False, **parameters)


class Recording:
    """with Recording(...) as r: load on r.stack and r.regions; behind it nothing runs, and r.explore() does the rest."""

    def __init__(self, name: str, directory: Path, *, seed: int):
        self.name, self.seed = name, seed
        self.file = directory / "recording"
        self.disks: dict[str, dict] = {}
        self.regions: list[Region] = []
        self.others: list[str] = []  # volumes that no oracle knows, as the explorer's words have them
        self.explored = 0
        self.tables: list[tuple[str, str]] = []
        self.evict: list[str] = []
        self.drain: list[str] = []
        self.check: str | None = None
        self.start: str | None = None  # command: what is none of dm
        self.stop: str | None = None
        self.alone: str | None = None  # command: brings the content to the backings without the stack

    def __enter__(self) -> "Recording":
        simdisk.control(f"record size={ROOM}")
        return self

    def make_disk(self, name: str, mb: int, *, jitter_us: int = 150, **parameters: object) -> simdisk.Simdisk:
        self.disks[name] = parameters = {"mb": mb, "wce": 1, "write_zeroes": 1} | parameters
        return simdisk.Simdisk.create(name, model="nvme", crash=False, jitter_ns=jitter_us * 1000, **parameters)

    def add_region(self, volume: str, backing: simdisk.Simdisk | None, oracle: Oracle, size: int, *, offset: int = 0) -> Region:
        """backing: where it is when nothing is dirty."""
        region = Region(volume, oracle, size, offset, backing.name if backing else "")
        self.regions.append(region)
        return region

    def add_other(self, volume: Volume, backing: simdisk.Simdisk) -> None:
        """No oracle knows it: what is found without the stack is compared with what the stack reads."""
        self.others.append(f"name={volume.name},size={volume.sectors * 512},backing={backing.name},sector={DATA_SECTOR}")

    def begin(self) -> None:
        mark("begin")

    def __exit__(self, kind: object, *_: object) -> None:
        """The disks are closed."""
        if kind:
            simdisk.control("record size=0")
            return
        mark("end")
        with open(RECORDING, "rb") as f, open(self.file, "wb") as to:
            shutil.copyfileobj(f, to, 1 << 20)
        simdisk.control("record size=0")

    def argv(self, **options: object) -> list[str]:
        words = ["explore", "--recording", self.file, "--name", self.name, "--drained", "flushing"]
        words += [w for d in self.disks for w in ("--disk", d)]
        words += [w for volume in [*(r.words() for r in self.regions), *self.others] for w in ("--volume", volume)]
        words += [w for name, line in self.tables for w in ("--table", f"{name}={line}")]
        words += [w for m in self.evict for w in ("--evict", m)] + [w for m in self.drain for w in ("--drain", m)]
        for option in ("check", "start", "stop", "alone"):
            words += [f"--{option}", value] if (value := getattr(self, option)) else []
        for key, value in ({"seed": self.seed} | options).items():
            words += [f"--{key.replace('_', '-')}", value]
        return [str(w) for w in words]

    def explore(self, *, accept: bool = False, **options: object) -> dict:
        """The explorer's last line.  If a state is wrong: AssertionError with what it says, or, accept, that is printed; the
        recording is kept."""
        keep = RESULTS / f"crash-{self.name}"
        keep.mkdir(exist_ok=True)
        argv = self.argv(keep=keep / "second", note=keep / f"noted-{self.explored}", **options)
        self.explored += 1
        hurry()
        make_anew(self.disks)
        run = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
        last = run.stdout.splitlines()[-1] if run.stdout else ""
        if run.returncode or KEEP:
            shutil.copyfile(self.file, keep / "recording")
            (keep / "disks").write_text(json.dumps(self.disks) + "\n")
            (keep / "kernel").write_text(os.uname().release + "\n")
            with open(keep / "argv", "a") as f:
                f.write(json.dumps(argv) + "\n")
        if run.returncode:
            (keep / "output").write_text(run.stdout + run.stderr)
            alone = commands(run.stdout, "tests/crash/run", "--kernel", os.uname().release, "--again", keep)
            said = (
                f"explore: status {run.returncode}; recording and command in {keep}; each wrong state alone:\n"
                + "".join(f"  {line}\n" for line in alone)
                + f"{run.stdout[:6000]}\n{last}\n{run.stderr[-1500:]}"
            )
            if not accept or run.returncode != 1:
                raise AssertionError(said)
            print(said, flush=True)
        print(last, flush=True)
        return key_values(last)


def replay(directory: Path, only: str, second: str, exploration: int) -> subprocess.CompletedProcess:
    """A state once more: directory is what explore() kept, exploration the line of argv there, from 1; 0: the last one."""
    make_anew(json.loads((directory / "disks").read_text()))
    argv = json.loads((directory / "argv").read_text().splitlines()[exploration - 1])
    argv[argv.index("--recording") + 1] = str(directory / "recording")
    hurry()
    argv[argv.index("--keep") + 1] = str(directory / "second" if second else RESULTS / "second")
    argv[argv.index("--note") + 1] = "/dev/null"
    argv += ["--only", only] + (["--second", second] if second else [])
    return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)


class Recorded(Stack):
    """A Stack that is being recorded, of small segments."""

    def __init__(
        self,
        r: Recording,
        ssds: int | list[int] = 6,
        backings: int = 16,
        *,
        members: int | None = None,
        part: int = 0,
        **options: object,
    ):
        """ssds: MiB of the SSD, or of each; members: so many of them are in the set.  part: only so many MiB of the backing."""
        sizes = [ssds] if isinstance(ssds, int) else ssds
        self.made = [r.make_disk(f"ssd{i}", mb, fua=1, discard="zero") for i, mb in enumerate(sizes)]
        made = self.made[:members]
        self.disk = hdd = r.make_disk("hdd0", backings)
        if part:
            hdd = Part.make("b", hdd, part)
        options = {"cache_checkpoint_percent": 1} | options
        self.others: list[Volume] = []
        super().__init__(
            made if len(made) > 1 else made[0],
            hdd,
            format_cache=("--segment-size", "128K"),
            format_volume=("--cache", "c"),
            **options,
        )
        self.sectors = self.volume.sectors
        r.tables = self.lines()
        r.evict = ["c reclaim 24"]
        r.drain = ["v flush"]
        r.alone = self.rescue()

    def add(self, r: Recording, name: str, backing: simdisk.Simdisk) -> Volume:
        """One more volume of the same cache."""
        Volume.format(name, backing, "--cache", "c")
        volume = Volume.start(backing, self.cache, name=name)
        r.tables.append((name, Volume.line(backing, "/dev/mapper/c", volume.sectors)))
        r.drain.append(f"{name} flush")
        self.others.append(volume)
        r.alone += f" && {self.rescue(backing=backing)}"
        return volume

    def rescue(self, *missing: int, backing: simdisk.Simdisk | None = None) -> str:
        ssds = [s for i, s in enumerate(self.made) if i not in missing]
        given = " ".join(f"--cache {s}" for s in ssds) + (" --degraded" if missing else "")
        return f"larder rescue writeback {backing or self.disk} {given} --keep-cache --yes >/dev/null"

    def stop(self) -> None:
        while self.others:
            self.others.pop().remove()
        super().stop()

    def lines(self, *missing: int) -> list[tuple[str, str]]:
        """As start() has them; missing: without these SSDs."""
        ssds = self.ssd if isinstance(self.ssd, list) else [self.ssd]
        there = [None if i in missing else s for i, s in enumerate(ssds)]
        cache = Cache.line(there, **self.cache_options)
        return [("c", cache), ("v", Volume.line(self.hdd, "/dev/mapper/c", self.sectors, **self.options))]
