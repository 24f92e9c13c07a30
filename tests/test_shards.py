# SPDX-License-Identifier: GPL-2.0-or-later
"""The shards of `make check-system`, and the parts of suites in them, without a VM: nothing is left out, or run twice."""

import collections
import importlib
import itertools
import os
import re
import runpy
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PLACES = (TESTS / "vm/guest", TESTS / "vm/host")
MINUTES = 40  # that a shard may take
parts_of = runpy.run_path(str(TESTS / "vm/run"))["parts_of"]
SHARDS = 9  # of which docs/testing.md says that they do


def shard(i: object, n: object) -> tuple[int, list[str]]:
    """Minutes and suites.  A kernel that there is not: nothing is booted."""
    words = [TESTS / "ci/vm", "--system", "--shard", f"{i}/{n}", "--kernel", "none"]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 2
    said = re.match(r"shard (\S+), about (\d+) minutes: (.*)\n", run.stdout)
    assert said and said[1] == f"{i}/{n}", run.stdout + run.stderr
    return int(said[2]), said[3].split()


@pytest.fixture(scope="module")
def everything() -> list[str]:
    return shard(1, 1)[1]


@pytest.mark.parametrize("n", [2, SHARDS])
def test_each_is_in_one_shard(everything, n):
    shards = [shard(i, n) for i in range(1, n + 1)]
    assert sorted(suite for _, suites in shards for suite in suites) == sorted(everything)
    if n == SHARDS:
        assert max(minutes for minutes, _ in shards) < MINUTES


@pytest.mark.parametrize("words", ["0/2", "3/2", "08/9", "1", "1/2/3", "a/b", "", "99/99"])
def test_no_such_shard(words):
    run = subprocess.run([TESTS / "ci/vm", "--system", "--shard", words], capture_output=True, text=True)
    assert run.returncode == 2 and run.stderr.startswith(f"vm: --shard {words}: ") and not run.stdout


# They use the module as others do, or are about something else; those of the host boot and kill machines
NOT_IN_CHECK_DEBUG = {
    *("command", "stack", "stacks", "stack_daemon", "assemble", "members", "jobs", "legs", "devices", "integrity", "keys", "pins"),
    *("md_flush", "snapshots", "rescue", "backup", "recipes", "advise", "above_below", "special"),
    *("scale", "idle"),  # the memory of a small kernel; its clock
    *("crash", "crash_peers", "mutants", "soak", "rest", "stress"),  # targets of their own, and how they judge
}


def test_check_debug_leaves_out_nothing_of_the_module():
    of_the_guest = {path.stem.removeprefix("test_") for path in (TESTS / "vm/guest").glob("test_*.py")}
    listed = "+".join(runpy.run_path(str(TESTS / "debug/check"))["SUITES"]).split("+")
    assert len(set(listed)) == len(listed)
    assert set(listed) - {"checkers"} == of_the_guest - NOT_IN_CHECK_DEBUG


@pytest.fixture
def collected(tmp_path):
    def collect(suite: str, part: str = "1/1") -> list[str]:
        there = next(p for p in PLACES if (p / f"test_{suite}.py").exists())
        words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        words += [f"--rootdir={there}", f"--confcutdir={there}", str(there / f"test_{suite}.py")]
        env = os.environ | {"LARDER_PART": part, "LARDER_RESULTS": str(tmp_path)}
        run = subprocess.run(words, capture_output=True, text=True, cwd=there, env=env)
        assert run.returncode == 0, run.stdout + run.stderr
        return [line for line in run.stdout.splitlines() if "::" in line]

    return collect


class Item:
    def __init__(self, nodeid: str):
        self.nodeid = nodeid

    def get_closest_marker(self, name: str) -> None:
        return None


class Config:
    """What a plugin is given at a collection, as far as the dealer goes."""

    hook = types.SimpleNamespace(pytest_deselected=lambda items: None)


@pytest.fixture
def deal(monkeypatch):
    """tests, I/N: its share, by the plugin itself."""
    monkeypatch.syspath_prepend(str(TESTS / "vm/guest"))
    dealer = importlib.import_module("lib.dealt").Dealer()

    def share(tests: list[str], part: str) -> list[str]:
        monkeypatch.setenv("LARDER_PART", part)
        items = [Item(t) for t in tests]
        dealer.pytest_collection_modifyitems(Config(), items)
        return [i.nodeid for i in items]

    return share


def test_parts_are_the_whole(everything, collected, deal):
    parts = collections.defaultdict(list)
    for suite in everything:
        if ":" in suite:
            name, part = suite.split(":")
            parts[name].append(part)
    assert parts
    for name, of in parts.items():
        assert sorted(of) == [f"{i}/{len(of)}" for i in range(1, len(of) + 1)]
        whole = collected(name)
        dealt = [deal(whole, part) for part in of]
        assert all(dealt) and sorted(t for tests in dealt for t in tests) == sorted(whole)


def test_each_has_its_part(deal):
    """Suites of one VM, some of them in part."""
    assert parts_of("set+io:2/3") == (["set", "io"], "2/3")
    assert parts_of("set") == (["set"], "")
    names, part = parts_of("set+io:1/2+smoke:1/1+log:core+power")
    assert names == ["set", "io", "smoke", "log", "power"] and part == "set=1/2 io=1/2 smoke=1/1 log=core"
    tests = [f"test_{name}.py::test_{i}" for name in names for i in range(4)]
    kept = [t for t in tests if t[:8] in ("test_smo", "test_pow") or (t[-1] in "02" and "log" not in t)]
    assert deal(tests, part) == kept


def test_part_is_what_is_collected(collected, deal):
    """The plugin is there: in the guest, and on the host."""
    for suite in ("log", "hotplug"):
        assert collected(suite, "2/3") == deal(collected(suite), "2/3")


def test_core(listed, collected):
    """Of each suite that a check has the core of some tests are, and others are not."""
    names = [name for (name, _), parts in listed().items() if parts == {"core"}]
    assert names
    for name in names:
        core = collected(name, "core")
        assert core and set(core) < set(collected(name)), name


IN_NEITHER = {"harness", "kill", "checkers", "crash_peers", "stress", "mutants", "soak", "arm64"}
KERNELS = {"6.1", "6.12"}


@pytest.fixture
def listed(tmp_path):
    """What tests/ci/vm hands to tests/vm/run: {(suite, kernel): its parts}."""
    for name, text in (("ci/venv", "echo"), ("vm/run", 'printf "%s\\n" "$@"')):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    vm = shutil.copy(TESTS / "ci/vm", tmp_path / "tests/ci/vm")

    def of(*words: str) -> dict[tuple[str, str], set[str]]:
        said = subprocess.run([vm, *words], capture_output=True, text=True, check=True).stdout.splitlines()
        found = collections.defaultdict(set)
        for group in said[said.index("--suite") + 1].split(","):
            group, _, kernel = group.partition("@")
            names, part = parts_of(group)
            each = dict(word.split("=") for word in part.split()) if "=" in part else dict.fromkeys(names, part)
            for name in names:
                assert re.fullmatch(r"|core|\d+/\d+", each.get(name, "")), group
                for k in {kernel} if kernel else KERNELS:
                    found[name, k].add(each.get(name) or "1/1")
        return found

    return of


def test_vm_more_has_what_a_check_leaves_out(listed):
    """Every suite, on both kernels, whole in one of the two; of crash the whole is a target of its own."""
    check, more = listed(), listed("--more")
    there = {path.stem.removeprefix("test_") for place in PLACES for path in place.glob("test_*.py")}
    assert {name for name, _ in check | more} == there - IN_NEITHER
    for name, kernel in itertools.product(there - IN_NEITHER - {"crash"}, KERNELS):
        parts = [found[name, kernel] for found in (check, more) if (name, kernel) in found]
        assert any(p == {f"{i}/{len(p)}" for i in range(1, len(p) + 1)} for p in parts), f"{name} on {kernel}: {parts}"
