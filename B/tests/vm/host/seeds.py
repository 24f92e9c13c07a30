# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs that are a function of a seed each, of a suite of the guest that has a test_run[SEED] for each: many in one VM.

Seeds that were right before, for the sources that a run depends on and the kernel, are not run again: a call that was cut off goes
on where it was.  A run that ends its VM is wrong; those behind it get another VM.
"""

import argparse
import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from .process import WITH_US
from .tree import TOP, fingerprint, test_sources

JUDGES = ("tests/sim", "tests/vm/oracle")


def cache_directory() -> Path:
    return Path(os.environ.get("LARDER_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "larder")


@dataclasses.dataclass(frozen=True)
class Campaign:
    name: str  # of the target of make
    suite: str
    variable: str  # of the environment: FIRST:COUNT
    begins: str  # the line that a run which was right prints
    figures: Callable[[list[str]], str]  # of such lines
    part: int = 200  # runs in one VM, at most
    depends: tuple[str, ...] = ("kernel",)

    @property
    def directory(self) -> Path:
        return cache_directory() / self.name


class Outcomes:
    """By seed, of one kernel, remembered: the line of a run that was right, or why it was wrong."""

    def __init__(self, campaign: Campaign, kernel: str):
        self.campaign, self.kernel = campaign, kernel
        key = fingerprint(*campaign.depends, *JUDGES, *test_sources(campaign.suite))
        self.file = campaign.directory / f"{key}-{kernel}.json"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.right: dict[int, str] = {}
        if self.file.exists():
            self.right = {int(k): v for k, v in json.loads(self.file.read_text()).items()}
        self.wrong: dict[int, str] = {}
        self.new = 0

    def put(self, seed: int, right: bool, text: str) -> None:
        self.new += 1
        if right:
            self.right[seed] = text
        else:
            self.wrong[seed] = text
            again = f"make {self.campaign.name} SEED={seed} RUNS=1 KERNEL={self.kernel}"
            print(f"  seed={seed} {self.kernel}: WRONG; again: {again}\n{text}", flush=True)

    def save(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.right))
        new.rename(self.file)

    def due(self, seeds: range) -> list[range]:
        """Those without an outcome, in runs of neighbours."""
        todo = [s for s in seeds if s not in self.right and s not in self.wrong]
        groups = itertools.groupby(enumerate(todo), lambda pair: pair[1] - pair[0])
        found = [[s for _, s in pairs] for _, pairs in groups]
        part = self.campaign.part
        return [range(g[0], g[-1] + 1)[i : i + part] for g in found for i in range(0, len(g), part)]


def run_part(seeds: range, outcomes: Outcomes) -> bool:
    """In one VM.  False: nothing came of it."""
    campaign, kernel = outcomes.campaign, outcomes.kernel
    results = campaign.directory / f"{kernel}-{seeds[0]}-{os.getpid()}"
    shutil.rmtree(results, ignore_errors=True)
    argv = [*WITH_US, TOP / "tests/ci/vm", "--suite", campaign.suite, "--kernel", kernel, "--jobs", "1", "--timeout", "86400"]
    argv += ["--results", results, "-k", "test_run"]
    argv += ["--env", f"{campaign.variable}={seeds[0]}:{len(seeds)}"]
    run = subprocess.run(argv, capture_output=True, text=True, errors="replace")
    before = outcomes.new
    wrong = len(outcomes.wrong)
    for file in results.glob("*/tests.jsonl"):
        for test in map(json.loads, file.read_text().splitlines()):
            seed = int(re.search(r"\[(\d+)\]", test["name"])[1])
            line = re.search(rf"^{campaign.begins} (.*)$", test["text"], re.MULTILINE)
            right = test["outcome"] == "passed"
            outcomes.put(seed, right, line[1] if right and line else test["text"])
    known = outcomes.right | outcomes.wrong
    last = next((s for s in seeds if s not in known), None)
    if last is not None and outcomes.new > before:  # the VM ended with this one
        outcomes.put(last, False, run.stdout[-3000:])
    outcomes.save()
    if len(outcomes.wrong) == wrong:
        shutil.rmtree(results, ignore_errors=True)
    else:
        print(f"  console, kernel log: {results}", flush=True)
    if outcomes.new == before:
        print(run.stdout[-3000:], run.stderr[-3000:], flush=True)
    return outcomes.new > before


def run_kernel(campaign: Campaign, kernel: str, seeds: range) -> tuple[Outcomes, bool]:
    outcomes = Outcomes(campaign, kernel)
    while due := outcomes.due(seeds):
        if not run_part(due[0], outcomes):
            return outcomes, False
    return outcomes, True


def main(campaign: Campaign, description: str, runs: int) -> int:
    """runs: the default.  0: all were right; 1: not so."""
    p = argparse.ArgumentParser(description=description.splitlines()[0])
    p.add_argument("--kernel", default="all")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--runs", type=int, default=runs)
    p.add_argument("--shard", default="1/1", metavar="I/N")
    p.add_argument("--again", action="store_true", help="also those that were right before")
    a = p.parse_args()
    shard, shards = map(int, a.shard.split("/"))
    if not 1 <= shard <= shards or a.runs < 1 or a.seed < 0:
        p.error("there is no such shard, or no run")
    seeds = range(a.seed, a.seed + a.runs)[a.runs * (shard - 1) // shards : a.runs * shard // shards]
    start, bad, name = time.monotonic(), False, campaign.name
    for kernel in ("6.12", "6.1") if a.kernel == "all" else (a.kernel,):
        if a.again:
            Outcomes(campaign, kernel).file.unlink(missing_ok=True)
        begin = time.monotonic()
        outcomes, complete = run_kernel(campaign, kernel, seeds)
        lines = [outcomes.right[s] for s in seeds if s in outcomes.right]
        minutes = (time.monotonic() - begin) / 60
        print(
            f"{name}: {kernel}: {len(lines)} of {len(seeds)} runs right, {len(outcomes.wrong)} wrong, {outcomes.new} of them now, "
            f"{outcomes.new / minutes:.1f} a minute; {campaign.figures(lines)}",
            flush=True,
        )
        bad = bad or not complete or len(lines) < len(seeds)
    print(f"{name}: {'WRONG' if bad else 'all right'}, seeds {seeds.start} to {seeds.stop - 1}, {time.monotonic() - start:.0f} s")
    return 1 if bad else 0
