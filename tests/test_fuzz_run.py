# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make fuzz` takes for a pass, without fuzzing."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parent / "fuzz/run"


@pytest.fixture
def runner(monkeypatch, tmp_path):
    """tests/fuzz/run, whose targets end at once with these executions and findings."""
    loader = importlib.machinery.SourceFileLoader("fuzz_run", str(RUN))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)

    def run(**tried: tuple[int, int]) -> int:
        for name in tried:
            (tmp_path / f"corpus-{name}").mkdir()
        monkeypatch.setattr(module, "WORK", tmp_path)
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
