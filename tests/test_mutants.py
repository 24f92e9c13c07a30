# SPDX-License-Identifier: GPL-2.0-or-later
"""The planted bugs of `make mutants`, without a VM: they apply, their tests exist, and the map of docs/testing.md is complete."""

import importlib.machinery
import importlib.util
import re
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
DOCS = TOP / "docs"


def runner():
    loader = importlib.machinery.SourceFileLoader("mutants_run", str(TOP / "tests/mutants/run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


MUTANTS = {path.stem: runner().Mutant(path) for path in sorted((TOP / "tests/mutants").glob("*.patch"))}


def section(document: str, title: str) -> str:
    return (DOCS / document).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Of its table, without the head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def named_tests(cell: str) -> set[tuple[str, str]]:
    """`suite` `test_a`, `test_b`; `other` `test_c`"""
    found, suite = set(), ""
    for word in re.findall(r"`([a-z0-9_]+)`", cell):
        if word.startswith("test_"):
            found.add((suite, word))
        else:
            suite = word
    return found


def named_mutants(cell: str) -> list[str]:
    return re.findall(r"`([a-z0-9-]+)`", cell)


def exists(suite: str, test: str) -> bool:
    return any(
        re.search(rf"^def {test}\(", path.read_text(), re.MULTILINE)
        for path in (TOP / "tests/vm").glob(f"*/test_{suite}.py")
        if path.parent.name in ("guest", "host")
    )


@pytest.fixture(scope="module")
def the_map() -> list[list[str]]:
    return rows(section("testing.md", "The map"))


@pytest.mark.parametrize("name", MUTANTS)
def test_applies(name):
    m = MUTANTS[name]
    assert m.what and "/" not in m.suite
    assert m.defined(), f"{m.suite} has no {m.test}"
    assert m.patch(TOP, "--dry-run"), "the patch does not apply"
    changed = re.findall(r"^\+\+\+ b/(\S+)", m.path.read_text(), re.MULTILINE)
    assert changed and all(path.startswith("kernel/") for path in changed)


def test_there_are_enough():
    assert len(MUTANTS) >= 20


def test_every_mutant_is_in_the_map(the_map):
    """In a row that names its test."""
    named = {(name, test) for row in the_map for name in named_mutants(row[2]) for test in named_tests(row[1])}
    assert {name for name, _ in named} <= set(MUTANTS), "of the map, without a patch"
    missing = [f"{n}: {m.suite} {m.test}" for n, m in MUTANTS.items() if (n, (m.suite, m.test)) not in named]
    assert not missing


def test_every_test_of_the_map_exists(the_map):
    tests = {test for row in the_map for test in named_tests(row[1])}
    assert not [test for test in tests if not exists(*test)]
    assert not [row[0] for row in the_map if len(row) != 3 or not named_tests(row[1])]


@pytest.mark.parametrize(("title", "word"), [("2. Promises", "promise"), ("8. Ordering rules", "rule")])
def test_every_rule_and_promise_is_in_the_map(the_map, title, word):
    numbers = set(re.findall(r"^(\d+)\. ", section("design.md", title), re.MULTILINE))
    assert len(numbers) >= 9
    assert numbers == {m[1] for row in the_map if (m := re.match(rf"{word} (\d+):", row[0]))}


def test_every_failure_is_in_the_map(the_map):
    failures = [row[0] for row in rows(section("testing.md", "Failures"))]
    assert len(failures) > 25
    assert not set(failures) - {row[0] for row in the_map}
