# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the steps of a set on one peer, and hands each step's report on: fio's figures, the devices' counters, times."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import cases
import databases
import files
from peers import Peer, Rig

REPORT = "/tmp/fio.json"
DEVICE = Path("/dev/larder-bench")  # one name for all: fio hashes it into its seeds
RAW_HDD = {"randread": 1000, "randwrite": 4000}  # I/Os, at most: no region there is hot, and the drive's cache must be outlasted


def choice(c: cases.Case, area: list[str], number: int) -> list[str]:
    """The words for fio that decide which blocks it reads and writes, in which order."""
    words = ["fio", "--name=j", f"--filename={DEVICE}", "--norandommap", "--thread", "--eta=never", "--randrepeat=0"]
    words += [f"--randseed={c.seed}", f"--rw={c.rw}", f"--bs={c.bs}", f"--iodepth={c.depth}", f"--number_ios={number}"]
    return [*words, *area, *c.options]


LOGS = Path("/etc/traces")  # of the VM: requests of each trace, as boot.py has put them there, for fio


def iolog(directory: Path, trace: str) -> Path:
    return directory / f"{trace}.iolog"


def memory_used() -> int:
    """Bytes that nobody could have back at once."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(sign * int(fields[name].split()[0]) for sign, name in ((1, "MemTotal"), (-1, "MemFree"))) << 10


class Devices:
    """Counters of both devices, and the wait until nothing moves."""

    def __init__(
        self, reset: Callable[[], None], counters: Callable[[], dict], settle: Callable[[], None], flush_disk: Callable[[], None]
    ):
        self.reset, self.counters, self.settle, self.flush_disk = reset, counters, settle, flush_disk


class Session:
    """start: of an image; not to be had on real devices.  logs: where those of traces are."""

    def __init__(
        self,
        rig: Rig,
        peer: Peer,
        devices: Devices,
        report: Callable[[dict], None],
        start: Callable[[cases.Start], dict] | None = None,
        logs: Path = LOGS,
    ):
        self.rig, self.peer, self.devices, self.report, self.logs = rig, peer, devices, report, logs
        self.run_step = {
            cases.Case: self._case,
            cases.Drain: self._drain,
            cases.Restart: self._restart,
            cases.Start: start,
            cases.Files: lambda f: self._mounted(f, files.run),
            cases.Database: lambda d: self._mounted(d, databases.run),
            cases.Trace: self._trace,
            cases.Memory: self._memory,
        }

    def run(self, set_: cases.Set, only: str) -> None:
        self.unused = memory_used()
        device = self.peer.create()
        DEVICE.unlink(missing_ok=True)
        DEVICE.symlink_to(device)
        for group in set_.groups:
            steps = cases.chosen(group, only, self.peer.name)
            if steps:
                self.peer.mode(group.mode)
            for step in steps:
                run = self.run_step[type(step)]
                if run:
                    self.report({"case": step.name, "setup": step.setup} | run(step))
        self.report({"status": self.peer.status()})

    def _command(self, c: cases.Case) -> list[str]:
        area, number = c.area, c.number
        if self.peer.name == "rawhdd" and area == cases.HOT:
            area, number = cases.ALL, min(number, RAW_HDD.get(c.rw, number))
        words = [*choice(c, area.arguments(self.rig.hdd_mb), number), "--direct=1", "--ioengine=libaio", "--output-format=json"]
        words += [f"--output={REPORT}", "--lat_percentiles=1", "--clat_percentiles=0", "--percentile_list=50:99:99.9"]
        if c.jobs > 1:
            words += [f"--numjobs={c.jobs}", "--group_reporting"]
        if c.log_seconds:
            words += ["--write_iops_log=/tmp/log", f"--log_avg_msec={c.log_seconds * 1000 * self.rig.scale}"]
        return words

    def _case(self, c: cases.Case) -> dict:
        self.devices.reset()
        began = time.monotonic_ns()
        r = subprocess.run(self._command(c), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        result = {"ns": time.monotonic_ns() - began, "jobs": c.jobs, "now": self.devices.counters()}
        if c.settle:
            self.devices.settle()
        result["settled"] = self.devices.counters()
        if r.returncode:
            return result | {"error": f"fio ends with {r.returncode}: {r.stderr[-500:]}"}
        text = Path(REPORT).read_text()
        job = json.loads(text[text.index("{") :])["jobs"][0]
        if job["error"]:
            return result | {"error": f"fio: error {job['error']}"}
        log = Path("/tmp/log_iops.1.log")
        if c.log_seconds and log.exists():
            result["log"] = [[int(w) for w in line.split(",")[:2]] for line in log.read_text().splitlines()]
        kept = ("io_bytes", "total_ios", "runtime", "lat_ns", "clat_ns")
        sides = {side: {k: job[side][k] for k in kept} for side in ("read", "write") if job[side]["total_ios"]}
        if job["sync"]["total_ios"]:
            sides["sync"] = {"lat_ns": job["sync"]["lat_ns"]}
        return result | {"fio": sides}

    def _trace(self, t: cases.Trace) -> dict:
        """All of its requests by one job, which has so many in flight."""
        options = (f"--read_iolog={iolog(self.logs, t.trace)}", "--replay_no_stall=1")
        return self._case(cases.Case(t.name, "rw", cases.Area(0, 0), 0, t.depth, options=options))

    def _memory(self, _: cases.Memory) -> dict:
        return {"bytes": memory_used() - self.unused, "now": {}, "settled": {}}

    def _drain(self, d: cases.Drain) -> dict:
        self.devices.reset()
        began = time.monotonic_ns()
        self.peer.drain()
        self.devices.flush_disk()
        result = {"ns": time.monotonic_ns() - began, "now": self.devices.counters()}
        self.devices.settle()
        return result | {"settled": self.devices.counters()}

    def _mounted(self, step: cases.Step, run: Callable[[cases.Step, str], dict]) -> dict:
        self.devices.reset()
        result = run(step, str(DEVICE)) | {"now": self.devices.counters()}
        self.devices.settle()
        return result | {"settled": self.devices.counters()}

    def _restart(self, r: cases.Restart) -> dict:
        self.devices.reset()
        DEVICE.unlink()
        began = time.monotonic_ns()
        self.peer.stop()
        stopped = time.monotonic_ns()
        device = self.peer.start()
        fd = os.open(device, os.O_RDONLY)
        os.pread(fd, 4096, 0)
        os.close(fd)
        started = time.monotonic_ns()
        DEVICE.symlink_to(device)
        return {
            "ns": started - stopped,
            "stop_ns": stopped - began,
            "now": self.devices.counters(),
            "settled": self.devices.counters(),
        }
