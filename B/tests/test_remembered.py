# SPDX-License-Identifier: GPL-2.0-or-later
"""What long runs remember (tests/vm/host/remembered.py)."""

import json
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tests/vm"))

from host.remembered import Remembered  # noqa: E402


def test_of_these_sources_alone(tmp_path):
    run = Remembered("mutants", tmp_path / "cache", tree=tmp_path / "tree")
    assert run.get("set:1/5", "a") is None
    run.put("set:1/5", "a", ["caught", "why"])
    assert run.get("set:1/5", "a") == ["caught", "why"]
    assert run.get("set:1/5", "b") is None and run.get("set:2/5", "a") is None
    assert not (tmp_path / "tree").exists()


def test_in_the_tree(tmp_path):
    """Another machine goes on with it; what is said of newer sources takes its place, and other runs, and names, keep theirs."""
    tree = tmp_path / "tree"
    run = Remembered("mutants", tmp_path / "cache", write=True, tree=tree)
    run.put("one", "a", 1)
    run.put("two", "a", 2)
    Remembered("crash", tmp_path / "other", write=True, tree=tree).put("one", "a", 3)
    elsewhere = Remembered("mutants", tmp_path / "elsewhere", tree=tree)
    assert [elsewhere.get(name, "a") for name in ("one", "two")] == [1, 2]
    run.put("one", "b", 4)
    assert elsewhere.get("one", "a") is None and elsewhere.get("one", "b") == 4
    assert [json.loads(line)["said"] for line in tree.read_text().splitlines()] == [3, 4, 2]


def test_noted_later(tmp_path):
    """What the cache directory knows already comes into the tree when it is asked for there."""
    Remembered("crash", tmp_path / "cache", tree=tmp_path / "tree").put("one", "a", 1)
    assert Remembered("crash", tmp_path / "cache", write=True, tree=tmp_path / "tree").get("one", "a") == 1
    assert len((tmp_path / "tree").read_text().splitlines()) == 1
