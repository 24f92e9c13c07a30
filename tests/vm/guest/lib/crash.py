# SPDX-License-Identifier: GPL-2.0-or-later
"""Crash states (tests/crash): records what a stack does to simulated disks, then has power cuts in that recording judged."""

import dataclasses
import hashlib
import os
import random
import shlex
import shutil
import subprocess
import threading
from pathlib import Path

from . import command, simdisk
from .command import key_values
from .larder import DATA_SECTOR, Cache, Stack, Volume
from .oracle import Load, Oracle

RECORDING = simdisk.ROOT / "recording"
RESULTS = Path(os.environ.get("LARDER_RESULTS", "/tmp"))
ROOM = 384 << 20  # bytes of a recording


@dataclasses.dataclass
class Region:
    """What one oracle knows of one volume."""

    volume: str
    oracle: Oracle
    size: int
    backing: str
    pids: list[int] = dataclasses.field(default_factory=list)

    def words(self) -> str:
        pids = ",".join(f"pid={p}" for p in self.pids)
        return f"name={self.volume},size={self.size},seed={self.oracle.seed},backing={self.backing},sector={DATA_SECTOR},{pids}"

    def start(self, **options: object) -> Load:
        load = self.oracle.start(journal=RECORDING, journal_at_once=True, **options)
        self.pids.append(load.process.pid)
        return load

    def run(self, **options: object) -> dict:
        return self.start(**options).wait()


class Files:
    """Files of a file system, each written, fsynced and then marked with its checksum, by a thread, until stop()."""

    SUMS = "[ ! -s /tmp/explore.sums ] || md5sum --quiet -c /tmp/explore.sums"
    CHECK = f"mount {{0}} /mnt && {{ {SUMS}; r=$?; umount /mnt; [ $r = 0 ]; }} && {{1}} {{0}} >/dev/null 2>&1"

    def __init__(self, device: object, make: tuple, check: str, seed: int):
        self.device, self.random = device, random.Random(seed)
        self.check = self.CHECK.replace("{0}", str(device)).replace("{1}", check)
        command.run(*make, device)
        command.run("mount", device, "/mnt")
        self.count, self.going = 0, True
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while self.going:
            self.count += 1
            path, data = f"/mnt/{self.count}", self.random.randbytes(self.random.choice((100, 3000, 5000, 70000)))
            with open(path, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            mark(f"sum {hashlib.md5(data, usedforsecurity=False).hexdigest()}  {path}")

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.going = False
        self.thread.join()
        command.run("umount", "/mnt")


def mark(text: str) -> None:
    with open(RECORDING, "wb", buffering=0) as f:
        f.write(text.encode())


def hurry() -> None:
    """Thousands of starts and stops: no waiting for grace periods."""
    Path("/sys/kernel/rcu_expedited").write_text("1")
    for name, jiffies in {"first": 0, "next": 1}.items():
        Path(f"/sys/module/rcutree/parameters/jiffies_till_{name}_fqs").write_text(str(jiffies))


class Recording:
    """with Recording(...) as r: load on r.stack and r.regions; behind it nothing runs, and r.explore() does the rest."""

    def __init__(self, name: str, directory: Path, *, seed: int):
        self.name, self.seed = name, seed
        self.file = directory / "recording"
        self.disks: dict[str, dict] = {}
        self.regions: list[Region] = []
        self.tables: list[tuple[str, str]] = []
        self.evict: list[str] = []
        self.drain: list[str] = []
        self.check: str | None = None

    def __enter__(self) -> "Recording":
        simdisk.control(f"record size={ROOM}")
        return self

    def make_disk(self, name: str, mb: int, *, jitter_us: int = 150, **parameters: object) -> simdisk.Simdisk:
        self.disks[name] = parameters = {"mb": mb, "wce": 1, "write_zeroes": 1} | parameters
        return simdisk.Simdisk.create(name, model="nvme", crash=False, jitter_ns=jitter_us * 1000, **parameters)

    def add_region(self, volume: str, backing: simdisk.Simdisk, oracle: Oracle, size: int) -> Region:
        region = Region(volume, oracle, size, backing.name)
        self.regions.append(region)
        return region

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
        words += [w for r in self.regions for w in ("--volume", r.words())]
        words += [w for name, line in self.tables for w in ("--table", f"{name}={line}")]
        words += [w for m in self.evict for w in ("--evict", m)] + [w for m in self.drain for w in ("--drain", m)]
        words += ["--check", self.check] if self.check else []
        for key, value in ({"seed": self.seed} | options).items():
            words += [f"--{key}", value]
        return [str(w) for w in words]

    def explore(self, *, log: Path | None = None, **options: object) -> dict:
        """The explorer's last line.  AssertionError with what it says if a state is wrong; the recording is kept then."""
        keep = RESULTS / f"crash-{self.name}"
        keep.mkdir(exist_ok=True)
        argv = self.argv(keep=keep / "second", **options)
        hurry()
        for name, parameters in self.disks.items():
            simdisk.Simdisk(name).remove()
            simdisk.Simdisk.create(name, model="null", crash=False, **parameters)
        run = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
        last = run.stdout.splitlines()[-1] if run.stdout else ""
        if run.returncode:
            shutil.copyfile(self.file, keep / "recording")
            disks = [f"{name} {simdisk.words(**p)}" for name, p in self.disks.items()]
            (keep / "disks").write_text("\n".join(disks) + "\n")
            (keep / "argv").write_text(shlex.join(argv) + "\n")
            (keep / "output").write_text(run.stdout + run.stderr)
            raise AssertionError(
                f"explore: status {run.returncode}; recording and command in {keep}; one state alone:\n"
                f"  tests/crash/run --again {keep} POSITION.KIND[.deep] [SECOND]\n{run.stdout[:6000]}\n{last}\n{run.stderr[-1500:]}"
            )
        print(last, flush=True)
        return key_values(last)


def replay(directory: Path, only: str, second: str) -> subprocess.CompletedProcess:
    """A state that was wrong, once more: directory is what explore() kept."""
    for line in (directory / "disks").read_text().splitlines():
        name, *parameters = line.split()
        simdisk.control(f"add name={name} model=null crash=0 {' '.join(parameters)}")
    argv = shlex.split((directory / "argv").read_text())
    argv[argv.index("--recording") + 1] = str(directory / "recording")
    hurry()
    argv[argv.index("--keep") + 1] = str(directory / "second" if second else RESULTS / "second")
    argv += ["--only", only] + (["--second", second] if second else [])
    return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)


class Recorded(Stack):
    """A Stack that is being recorded, of small segments."""

    def __init__(self, r: Recording, ssds: int | list[int] = 6, backings: int = 16, **options: object):
        """ssds: MiB of the SSD, or of each."""
        sizes = [ssds] if isinstance(ssds, int) else ssds
        made = [r.make_disk(f"ssd{i}", mb, fua=1, discard="zero") for i, mb in enumerate(sizes)]
        hdd = r.make_disk("hdd0", backings)
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

    def add(self, r: Recording, name: str, backing: simdisk.Simdisk) -> Volume:
        """One more volume of the same cache."""
        Volume.format(name, backing, "--cache", "c")
        volume = Volume.start(backing, self.cache, name=name)
        r.tables.append((name, Volume.line(backing, "/dev/mapper/c", volume.sectors)))
        r.drain.append(f"{name} flush")
        self.others.append(volume)
        return volume

    def stop(self) -> None:
        while self.others:
            self.others.pop().remove()
        super().stop()

    def lines(self, missing: int | None = None) -> list[tuple[str, str]]:
        """As start() has them; missing: without that SSD."""
        ssds = self.ssd if isinstance(self.ssd, list) else [self.ssd]
        there = [None if i == missing else s for i, s in enumerate(ssds)]
        cache = Cache.line(there, **self.cache_options)
        return [("c", cache), ("v", Volume.line(self.hdd, "/dev/mapper/c", self.sectors, **self.options))]
