# SPDX-License-Identifier: GPL-2.0-or-later
"""What the outcome of a test depends on, as long runs remember it (tests/vm/host/tree.py)."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "vm"))

from host import tree

TEXT = """import pytest

LIMIT = 3


def helper():
    return LIMIT


@pytest.mark.parametrize("n", [1, 2])
def test_one(n):
    assert helper() == n


def test_one_more():
    pass
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """A suite of that text in a guest of its own."""
    monkeypatch.setattr(tree, "GUEST", tmp_path)
    monkeypatch.setattr(tree, "TOP", tmp_path)
    monkeypatch.setattr(tree, "fingerprint", lambda *folders: " ".join(map(str, folders)))
    monkeypatch.setattr(tree, "test_sources", lambda name: ["conftest.py", f"test_{name}.py"])
    path = tmp_path / "test_x.py"
    path.write_text(TEXT)
    return path


def change(path, old, new):
    assert old in TEXT
    path.write_text(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("LIMIT = 3", "LIMIT = 4", {"test_one", "test_one_more"}),
        ("return LIMIT", "return 3", {"test_one", "test_one_more"}),
        ("[1, 2]", "[1]", {"test_one"}),
        ("== n", "!= n", {"test_one"}),
        ("    pass", "    assert True", {"test_one_more"}),
        ("def test_one_more", "def test_new():\n    pass\n\n\ndef test_one_more", set()),
    ],
)
def test_a_change_of_another_test_is_none(suite, old, new, changed):
    before = {test: tree.test_fingerprint("x", test, "kernel") for test in tree.tests_of("x")}
    change(suite, old, new)
    assert {test for test in before if tree.test_fingerprint("x", test, "kernel") != before[test]} == changed


def test_what_is_beside_the_suite_counts(suite):
    assert tree.test_fingerprint("x", "test_one", "kernel") != tree.test_fingerprint("x", "test_one", "kernel", "patch")


def test_a_name_within_another_one(suite):
    assert tree.expression("x", "test_one") == "test_one and not test_one_more"
    assert tree.expression("x", "test_one_more") == "test_one_more"


def test_no_test_calls_another_one():
    """What a test depends on leaves all others of its suite out."""
    for path in (tree.TOP / "tests/vm/guest").glob("test_*.py"):
        text = path.read_text()
        for test in tree.tests_of(path.stem.removeprefix("test_")):
            assert len(re.findall(rf"\b{test}\(", text)) == 1, f"{path.name}: {test} is called"
