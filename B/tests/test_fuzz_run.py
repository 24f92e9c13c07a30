# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make fuzz` takes for a pass, without fuzzing."""

import functools
import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parent / "fuzz/run"


@pytest.fixture
def module(monkeypatch, tmp_path):
    """tests/fuzz/run, with a directory of its own."""
    loader = importlib.machinery.SourceFileLoader("fuzz_run", str(RUN))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    monkeypatch.setattr(module, "WORK", tmp_path)
    return module


@pytest.fixture
def runner(module, monkeypatch, tmp_path):
    """Its targets end at once with these executions and findings."""

    def run(**tried: tuple[int, int]) -> int:
        for name in tried:
            (tmp_path / f"corpus-{name}").mkdir()
        monkeypatch.setattr(module, "build", lambda name, kind: None)
        monkeypatch.setattr(module, "fuzz", lambda name, a, seconds: tried[name])
        monkeypatch.setattr(sys, "argv", ["run", "--random", *tried])
        return module.main()

    return run


def test_all_have_run(runner):
    assert runner(format=(10, 0), conf=(1, 0)) == 0


def test_one_has_tried_nothing(runner, capsys):
    """However much the others did."""
    assert runner(format=(10**6, 0), conf=(0, 0), trace=(7, 0)) == 2
    assert "fuzz: conf: tried no input" in capsys.readouterr().err


def test_finding(runner):
    assert runner(format=(10, 0), conf=(0, 1)) == 1


def test_what_is_noted_is_not_tried_again(module, monkeypatch, tmp_path, capsys):
    """While what it is made of is the same, and for as long as it was tried; a finding, and what tried nothing, is not noted."""
    asked = []

    def run(minutes: float, **tried: tuple[int, int]) -> list[str]:
        """Those that were tried."""
        asked.clear()
        monkeypatch.setattr(module, "fuzz", lambda name, a, seconds: asked.append(name) or tried[name])
        monkeypatch.setattr(sys, "argv", ["run", "--write", "--minutes", str(minutes), *tried])
        module.main()
        return list(asked)

    (tmp_path / "corpus-conf").mkdir()
    monkeypatch.setattr(module, "build", lambda name, kind: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: name)
    monkeypatch.setattr(module, "Remembered", functools.partial(module.Remembered, tree=tmp_path / "proofs.jsonl"))
    assert run(1, conf=(10, 1)) == run(1, conf=(0, 0)) == run(1, conf=(10, 0)) == ["conf"]
    assert run(1, conf=(10, 0)) == [] and "10 executions, 60 s" in capsys.readouterr().out
    assert run(2, conf=(10, 0)) == ["conf"]
    monkeypatch.setattr(module, "made_of", lambda name: "other")
    assert run(1, conf=(10, 0)) == ["conf"]


def test_made_of(module):
    """Of each its own source, and none of what it has nothing to do with."""
    known = {name: module.made_of(name) for name in module.TARGETS}
    assert len(set(known.values())) == len(known)


def test_each_target(module, tmp_path):
    """It is built, which nobody else does between two runs of `make fuzz`, and finds nothing in its seeds and its corpus."""
    for name in module.TARGETS:
        module.build(name, "random")
        words = [tmp_path / f"random_{name}", tmp_path / f"corpus-{name}"]
        run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        tried = re.findall(r"^executions=(\d+)$", run.stdout, re.M)
        assert run.returncode == 0 and int(tried[0]) >= len(module.TARGETS[name].seeds), f"{name}: {run.stdout}{run.stderr}"
