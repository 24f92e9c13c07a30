# SPDX-License-Identifier: GPL-2.0-or-later
"""The planted bugs of `make mutants`, without a VM: they apply, their tests exist, what counts as caught, and the map of
docs/testing.md is complete."""

import importlib.machinery
import importlib.util
import os
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


RUN = runner()
MUTANTS = {path.stem: RUN.Mutant(path) for path in sorted((TOP / "tests/mutants").glob("*.patch"))}


# Bullets of section 9 of the design, by how they begin: the row, or rows, of the table of failures that make it happen, likewise
SECTION_9 = {
    "SSD read error, CLEAN": ["SSD: read, clean data"],
    "SSD read error, DIRTY": [f"SSD: read, dirty data, {where}" for where in ("another copy", "no copy", "in writeback")],
    "SSD write error in an append": ["SSD: write, the only one, or `mirror=none`", "SSD: write, in a set with `mirror`"],
    "SSD write error in an append of clean copies": ["SSD: write of clean copies, the only one"],
    "SSD write error elsewhere": ["SSD: write elsewhere: summary, checkpoint, superblock"],
    "SSD flush error": ["SSD: flush, the only one", "SSD: flush, in a set with `mirror`"],
    "SSD gone": ["SSD: write, the only one, or `mirror=none`", "SSD: read, clean data"],
    "A cache has failed, or a flush of its only SSD": ["SSD: write, or flush, the only one", "SSD: write, the only one"],
    "backing write error": ["backing: writes fail", "backing: no space (thin pool)"],
    "backing loses what it had answered": ["backing: loses what it had answered", "backing: drops with a failed flush"],
    "backing hangs": ["backing: hangs"],
    "a device hangs: how it is told": ["backing: hangs"],
    "backing gone": ["backing: gone", "backing: unplugged under dirty data"],
    "backing flush error": ["backing: flushes fail"],
    "torn record, bad checksum": ["torn record, bad checksum at the end of the log"],
    "damaged commit block of the write stream": ["damage in the durable part of the log"],
    "a part of the log that cannot be read": ["SSD: read in a start, where the log", "SSD: read in a start, clean copies"],
    "one copy of a part of the log that cannot be read": ["SSD: read in a start, another copy has it"],
    "the two copies of a backing's superblock differ": ["the two copies of a backing's superblock differ"],
    "a superblock that was crafted": ["superblock that was crafted"],
    "damaged checkpoint": ["checkpoint: damaged"],
    "damaged data in the middle of the log": ["SSD: wrong data"],
    "a sum that is not known": ["checksum that is not known: dirty data", "checksum that is not known: clean data"],
    "an error while a volume is forgotten": ["SSD: an error while a volume is forgotten"],
    "old cache comes back": ["old SSD, old cache comes back"],
    "backing absent, its dirty data in the log": ["backing absent or failing, the cache half full of its data"],
    "Space: a cache full of dirty data": ["backing absent or failing, the cache half full of its data"],
    "Space: the pace of a full cache": [],  # a figure that no test judges, it says so
    "The kernel module is missing": ["no module for this kernel, what is dirty is in the cache"],
    "superblocks or tables overwritten": ["superblocks or tables overwritten"],
    "the kernel has no module": ["no module for this kernel, nothing is dirty"],
    "no memory": ["no memory"],
}


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


@pytest.mark.parametrize(
    ("outcomes", "verdict", "harmless"),
    [
        (["failed", "passed"], "caught", "FAILED"),
        (["passed", "passed"], "MISSED", "passed"),
        (["skipped", "passed"], "MISSED", "passed"),
        (["skipped", "failed"], "caught", "FAILED"),
        (["skipped"], "SKIPPED", "SKIPPED"),
        ([], "SKIPPED", "SKIPPED"),
    ],
)
def test_verdict(outcomes, verdict, harmless):
    """Only what failed has caught something, and what did not run says nothing."""
    bug, rare = (next(m for m in MUTANTS.values() if m.harmless is h) for h in (False, True))
    assert RUN.judge(bug, outcomes)[0] == verdict
    assert RUN.judge(rare, outcomes)[0] == harmless
    assert RUN.judge(RUN.Control("io", "test_x"), outcomes)[0] == harmless
    assert not {"MISSED", "FAILED", "SKIPPED"} & set(RUN.RIGHT)


def test_one_that_hung_has_failed(tmp_path):
    """What ended its VM left no outcome: the name of the test that did, of this run alone."""
    for run, hung in (("1", "test_io.py::test_a[before]"), ("2", "test_io.py::test_b[x]")):
        where = tmp_path / "results" / run / "io-6.12"
        where.mkdir(parents=True)
        (where / "hung").write_text(hung)
    (tmp_path / "results/2/io-6.12/tests.jsonl").write_text('{"name": "test_io.py::test_b[w]", "outcome": "passed"}\n')
    os.utime(tmp_path / "results/1/io-6.12/hung", (1, 1))
    assert RUN.results(tmp_path, 2) == {"test_io.py::test_b[w]": "passed", "test_io.py::test_b[x]": "failed"}


def test_only_its_own_test_counts():
    """Though the names of others begin likewise."""
    m = RUN.Control("leave", "test_power_cuts")
    assert m.is_of("test_leave.py::test_power_cuts") and m.is_of("test_leave.py::test_power_cuts[2]")
    assert not m.is_of("test_leave.py::test_power_cuts_while_it_is_written_back[0]")
    assert "not test_power_cuts_while_it_is_written_back" in m.expression()
    for m in MUTANTS.values():
        wanted, *others = m.expression().split(" and not ")
        tests = re.findall(r"^def (test_\w+)", (TOP / f"tests/vm/guest/test_{m.suite}.py").read_text(), re.MULTILINE)
        assert [t for t in tests if wanted in t and not any(o in t for o in others)] == [m.test]


def test_controls_are_of_the_tests_of_the_mutants():
    """Each once."""
    pairs = {(m.suite, m.test) for m in MUTANTS.values()}
    made = RUN.with_controls(list(MUTANTS.values()))
    controls = [c for c in made if isinstance(c, RUN.Control)]
    assert len(controls) == len({c.name for c in controls}) == len(pairs) and {(c.suite, c.test) for c in controls} == pairs
    assert all(c.harmless and c.patch(TOP) and c.defined() for c in controls) and made[len(controls) :] == list(MUTANTS.values())


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


def test_every_row_has_a_mutant_or_a_reason(the_map):
    """none: why there can be none, or need be none; none yet: what it would do."""
    for what, _, cell in the_map:
        if re.match(r"none( yet)?: \S", cell):
            assert not named_mutants(cell), f"{what}: names a mutant, and says that there is none"
        else:
            assert named_mutants(cell), f"{what}: a mutant, or 'none: reason'"


def test_every_bullet_of_section_9_is_a_failure():
    bold = re.findall(r"^- \*\*(.*?)\*\*", section("design.md", "9. When things fail"), re.MULTILINE | re.DOTALL)
    bullets = [" ".join(b.split()) for b in bold]
    failures = [row[0] for row in rows(section("testing.md", "Failures"))]
    assert len(bullets) >= 29
    assert not [title for title in SECTION_9 if not any(b.startswith(title) for b in bullets)], "not in section 9 any more"
    for bullet in bullets:
        found = max((title for title in SECTION_9 if bullet.startswith(title)), key=len, default=None)
        assert found, f"{bullet}: which row of testing.md, Failures?"
        assert not [row for row in SECTION_9[found] if not any(failure.startswith(row) for failure in failures)], bullet


def test_every_failure_is_in_the_map(the_map):
    failures = [row[0] for row in rows(section("testing.md", "Failures"))]
    assert len(failures) > 25
    assert not set(failures) - {row[0] for row in the_map}
