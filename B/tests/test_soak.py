# SPDX-License-Identifier: GPL-2.0-or-later
"""The last line and the exit status of `make soak`, without a VM: of runs that pass, find something, or never begin."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent / "soak" / "run"
FIGURES = "worlds=1 rounds=5 cuts=2 faults=3 operations=1000 bytes=4096 files=7 steps=grow:1"
WORLD = "     1.0 world seed=7 ssds=2x48M\n    9.0  round 0 of seed=7: grow\n"


@pytest.fixture
def soak(monkeypatch, tmp_path, capsys):
    """soak(status of the VM's run, what it leaves in soak.log) -> exit status and last line."""
    loader = importlib.machinery.SourceFileLoader("soak_run", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "CACHE", tmp_path)
    asked = []

    def run(status: int, log: str | None, *words: str) -> tuple[int, str]:
        def vm(argv, **_options):
            asked[:] = map(str, argv)
            results = Path(asked[asked.index("--results") + 1]) / "soak-6.12"
            results.mkdir(parents=True)
            if log is not None:
                (results / "soak.log").write_text(log)
            return subprocess.CompletedProcess(argv, status, "said by the VM", "")

        monkeypatch.setattr(module.subprocess, "run", vm)
        monkeypatch.setattr(sys, "argv", ["run", "--seed", "6", *words])
        code = module.main()
        return code, capsys.readouterr().out.splitlines()[-1]

    run.asked = asked
    return run


def test_no_finding(soak):
    code, line = soak(0, f"{WORLD}    60.0 figures {FIGURES}\n", "--worlds", "2", "--rounds", "3")
    assert code == 0
    assert line == f"soak: 0 findings {FIGURES} seed=6 kernel=6.12"
    assert {"LARDER_SOAK_SEED=6", "LARDER_SOAK_WORLDS=2", "LARDER_SOAK_ROUNDS=3"} <= set(soak.asked)


def test_finding(soak):
    """A test that failed: the world it was in, not the first one."""
    code, line = soak(1, f"{WORLD}    60.0 figures {FIGURES}\n")
    assert code == 1
    assert line.startswith(f"soak: 1 finding {FIGURES} seed=7 kernel=6.12; in ")
    assert line.endswith("again: make soak SEED=7 WORLDS=1 ROUNDS=5 KERNEL=6.12")


@pytest.mark.parametrize("status", [0, 1])
def test_machine_ended(soak, status):
    """A panic, a hang: no figures were left; and no figures are no pass."""
    code, line = soak(status, WORLD)
    assert code == 1
    assert line.startswith("soak: 1 finding the VM ended seed=7")


@pytest.mark.parametrize("log", [None, "", f"    9.0 figures {FIGURES}\n"])
def test_never_began(soak, log):
    assert soak(1, log) == (2, "soak: it could not run")


@pytest.mark.parametrize("words", [("--minutes", "0"), ("--worlds", "-1"), ("--rounds", "0")])
def test_refused(soak, words):
    with pytest.raises(SystemExit) as e:
        soak(0, "", *words)
    assert e.value.code == 2
