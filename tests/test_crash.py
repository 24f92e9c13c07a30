# SPDX-License-Identifier: GPL-2.0-or-later
"""`make crash` without a VM: which tests of the suite `crash` each workload is."""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
GUEST = TESTS / "vm/guest"


def load(path: Path):
    loader = importlib.machinery.SourceFileLoader(f"crash_{path.name}", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


RUN = load(TESTS / "crash/run")


def collected(expression: str) -> set[str]:
    """Functions of the suite that pytest would run."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-k", expression]
    words += [f"--rootdir={GUEST}", f"--confcutdir={GUEST}", str(GUEST / "test_crash.py")]
    run = subprocess.run(words, capture_output=True, text=True, cwd=GUEST, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    assert run.returncode == 0, run.stdout + run.stderr
    return {line.split("::")[1].split("[")[0] for line in run.stdout.splitlines() if "::" in line}


def begins_another(workload: str) -> bool:
    return any(other != workload and other.startswith(workload) for other in RUN.workloads())


def test_there_are_workloads():
    assert {"writes", "mirror", "mirror_of_three", "files"} <= set(RUN.workloads())
    assert begins_another("mirror")


@pytest.mark.parametrize("workload", [w for w in RUN.workloads() if begins_another(w)])
def test_each_workload_is_one_test(workload):
    """pytest looks for parts of names: one that begins with this one would be counted twice."""
    assert collected(RUN.expression(workload)) == {f"test_{workload}"}
    assert len(collected(f"test_{workload}")) > 1
