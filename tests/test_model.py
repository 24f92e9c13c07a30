# SPDX-License-Identifier: GPL-2.0-or-later
"""The model of the ordering rules: its names are those of the kernel and the design, and its table of dropped rules can fail."""

import re
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tests/model"))

import explore  # noqa: E402
import mirror  # noqa: E402
import model  # noqa: E402

FORMAT = (TOP / "kernel/larder_format.h").read_text()
STATUS = (TOP / "kernel/status.c").read_text()
ENTRIES = {"WRITE", "FILL", "CLEAN", "INVALIDATE", "INTENT", "SEGMENT_OPEN"}
EXTENTS = {"ST_DIRTY", "ST_CLEANING", "ST_CLEAN"}
STATES = {"RUNNING", "PASSTHROUGH", "FAILED", "PASSING"}
# What the kernel has no constant for, or a structure
BLOCKS = {"COMMIT": "struct larder_commit", "FILL_COMMIT": "struct larder_commit"}
VALUES = {"ZERO", "GARBAGE", "ANY", "ERROR"}
MEDIA = {"IN_FLIGHT", "COMPLETED", "SHOWN", "TORN", "OMITTED", "SSD", "HDD", "BELIEVED", "SECURED", "BACKING"}
MEDIA |= {"NONE", "FLIGHT", "VOLATILE", "DURABLE", "LOST", "BAD"}
STEPS = {"FUA_SENT", "FUA_WAITS", "FLUSHED", "LOOKED", "BEGUN", "COPYING", "COPIED", "NAMED"}

# What the kernel does beyond what the model finds needed, and calls by a name (tests/model/README.md, "The set of SSDs"): bypassed
# writes wait for the removal of an SSD, though lost-stays-known is enough; the newest superblock counts, though any would do
MORE_THAN_NEEDED = {"generation-before-bypass", "epoch-of-newest"}
NAME = "[a-z]+(?:-[a-z]+)+"


def constants(module) -> set[str]:
    return {name for name, value in vars(module).items() if name.isupper() and type(value) is int}


def enumerators(enum: str) -> set[str]:
    body = re.search(rf"^enum {enum} \{{(.*?)^\}};", FORMAT, re.MULTILINE | re.DOTALL)[1]
    return set(re.findall(r"^\tLARDER_(\w+)", body, re.MULTILINE))


def section(number: int) -> str:
    text = (TOP / "docs/design.md").read_text()
    return re.search(rf"^## {number}\. .*?(?=^## )", text, re.MULTILINE | re.DOTALL)[0]


def mutants() -> set[str]:
    return {path.stem for path in (TOP / "tests/mutants").glob("*.patch")}


@pytest.mark.parametrize("module", [model, mirror])
def test_states_are_those_of_the_kernel(module):
    found = constants(module)
    assert len(found) > 15
    for name in found & (ENTRIES | EXTENTS):
        assert re.search(rf"^\tLARDER_{name}\s+= \d+,", FORMAT, re.MULTILINE), name
    for name in found & STATES:
        assert f'"{name.lower()}"' in STATUS, name
    for name in found & set(BLOCKS):
        assert f"{BLOCKS[name]} {{" in FORMAT, name
    assert not found - ENTRIES - EXTENTS - STATES - set(BLOCKS) - VALUES - MEDIA - STEPS, "of which the kernel has which?"


def test_what_the_kernel_has_is_in_the_model():
    """Entries of the log and states of extents: but for zeroes (written like data), and what attaching and reading leave there."""
    assert enumerators("larder_entry_kind") == ENTRIES | {"ZERO", "FORGET", "CHECKPOINT"}
    assert enumerators("larder_extent_state") == EXTENTS | {"ST_NONE", "ST_ZERO", "ST_ZERO_CLEANING"}
    assert not (ENTRIES | EXTENTS | STATES) - constants(model)


def test_states_of_a_volume_are_in_the_model():
    """But for how far one is whose cache has failed, which the model has as FAILED until it is PASSING."""
    body = re.search(r"^static const char \*volume_state_name\(.*?^\}", STATUS, re.MULTILINE | re.DOTALL)[0]
    named = set(re.findall(r'"([a-z-]+)"', body))
    assert named == {name.lower() for name in STATES - {"FAILED"}} | {"leaving", "cache-failed"}


@pytest.mark.parametrize("number", [8, 9])
def test_rules_of_the_design_exist(number):
    """A name that looks like one is a rule of the model, a variant of one, or at least a planted bug."""
    named = set(re.findall(rf"`({NAME})`", section(number)))
    assert len(named) > 5
    assert not named - set(explore.RULES) - set(explore.RELAXATIONS) - mutants()


def test_rules_of_the_kernel_exist():
    """As comments name them: (rule-name), (rule 3, rule-name), "- rule-name: what it says", a column of names."""
    text = "\n".join(path.read_text() for path in sorted((TOP / "kernel").glob("*.[ch]")))
    lists = re.findall(rf"\((?:rule \d+[,:] |model: )?({NAME}(?:, {NAME})*)[);:]", text)
    named = {name for group in lists for name in group.split(", ")}
    named |= set(re.findall(rf"^ \*\s+(?:- |\d\. +)?({NAME})(?::|\t| {{2,}})", text, re.MULTILINE))
    assert len(named & set(explore.RULES)) > 40
    families = {name.split("-")[0] for name in explore.RULES}  # others are words of English
    unknown = {n for n in named if n.split("-")[0] in families} - set(explore.RULES) - set(explore.RELAXATIONS) - mutants()
    assert unknown == MORE_THAN_NEEDED


def test_each_rule_has_a_counterexample():
    assert {rule for rule, *_ in explore.counterexamples()} == set(explore.RULES)


def table(monkeypatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["explore.py", "--table", *words])
    return explore.main()


def test_table(monkeypatch, capsys):
    """A line a rule."""
    assert table(monkeypatch, "flush-ssd", "flush-commits", "--brief") == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert re.match(r"rule  2  flush-ssd +4 steps, commit=auto, fua: block 0 reads a0 after the crash", first)
    assert "flush-commits" in second and "2 rules dropped in turn, each breaks a promise" in last


@pytest.mark.parametrize("brief", [["--brief"], []])
def test_rule_that_nothing_needs(monkeypatch, capsys, brief):
    """It fails the table: the rule, or the scenario that would show what it is for, is wrong."""
    for rules in (model.RULES, explore.RULES):
        monkeypatch.setitem(rules, "needless", (2, "a flush does what nobody asks for"))
    monkeypatch.setattr(explore, "ALL_RULES", explore.ALL_RULES | {"needless"})
    assert table(monkeypatch, "needless", "--scenario", "fua", "--states", "300", *brief) == 1
    out = capsys.readouterr().out
    assert "model: 1 rules dropped in turn, FAILED: needless" in out if brief else "no failure found" in out


def test_implied_rule(monkeypatch, capsys):
    """Alone it breaks nothing, and need not; without IMPLIED_BY it would have to."""
    words = ["reuse-after-clean-durable", "--scenario", "overwrite", "--commit", "auto", "--brief"]
    assert table(monkeypatch, *words) == 0
    assert "(with reuse-logged)" in capsys.readouterr().out
    monkeypatch.setattr(explore, "IMPLIED_BY", {})
    assert table(monkeypatch, *words, "--states", "300") == 1
