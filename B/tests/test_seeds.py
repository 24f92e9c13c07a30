# SPDX-License-Identifier: GPL-2.0-or-later
"""`make faults` and `make damage` without a VM: the last lines and the exit status of runs that are right, wrong, end their VM, or
never begin; and what is not run again (tests/vm/host/seeds.py)."""

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
RIGHT = {
    "faults": "fault seed={} kind=decay ssds=1",
    "damage": "damage seed={} base=one kind=flip edit=flip,data,1,(0,4096) start=started unreadable=1 unchecked=0 older=0",
}
FIGURES = {"faults": "{} decay", "damage": "{} started, 0 without the damaged SSD, 0 refused; {} with sectors that cannot be read"}


class Machines:
    """In their place: which runs are wrong, which ends its VM."""

    def __init__(self, name: str):
        self.name = name
        self.wrong: set[int] = set()
        self.deadly: set[int] = set()
        self.boots: list[tuple[int, int]] = []
        self.broken = False

    def run(self, argv, **_options) -> subprocess.CompletedProcess:
        words = list(map(str, argv))
        first, count = map(int, words[words.index("--env") + 1].partition("=")[2].split(":"))
        self.boots.append((first, count))
        results = Path(words[words.index("--results") + 1]) / "suite-6.12"
        results.mkdir(parents=True)
        if self.broken:
            return subprocess.CompletedProcess(argv, 3, "no VM", "")
        with open(results / "tests.jsonl", "w") as f:
            for seed in range(first, first + count):
                if seed in self.deadly:
                    break
                outcome = "failed" if seed in self.wrong else "passed"
                text = "it was wrong" if seed in self.wrong else f"--- stdout ---\n{RIGHT[self.name].format(seed)}\n"
                f.write(json.dumps({"name": f"test_x.py::test_run[{seed}]", "outcome": outcome, "text": text}) + "\n")
        return subprocess.CompletedProcess(argv, 1, "the VM ended", "")


@pytest.fixture(params=["faults", "damage"])
def campaign(request, monkeypatch, tmp_path, capsys):
    """campaign(words...) -> exit status, lines."""
    loader = importlib.machinery.SourceFileLoader(f"{request.param}_run", str(TESTS / request.param / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    monkeypatch.setattr(sys, "path", [*sys.path])
    loader.exec_module(module)
    machines = Machines(request.param)
    seeds = sys.modules["host.seeds"]
    monkeypatch.setenv("LARDER_CACHE", str(tmp_path))
    monkeypatch.setattr(seeds, "fingerprint", lambda *_: "sources")
    monkeypatch.setattr(seeds, "subprocess", machines)

    def run(*words: str) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["run", "--kernel", "6.12", *words])
        code = module.main(getattr(module, request.param.upper()), module.__doc__, 5)
        return code, capsys.readouterr().out.splitlines()

    run.machines, run.name = machines, request.param
    return run


def test_all_right(campaign):
    code, lines = campaign("--seed", "3", "--runs", "4")
    assert code == 0 and campaign.machines.boots == [(3, 4)]
    assert lines[-2].startswith(f"{campaign.name}: 6.12: 4 of 4 runs right, 0 wrong, 4 of them now")
    assert FIGURES[campaign.name].format(4, 4) in lines[-2]
    assert lines[-1].startswith(f"{campaign.name}: all right, seeds 3 to 6, ")


def test_one_is_wrong(campaign):
    campaign.machines.wrong = {2}
    code, lines = campaign()
    assert code == 1
    assert f"  seed=2 6.12: WRONG; again: make {campaign.name} SEED=2 RUNS=1 KERNEL=6.12" in lines and "it was wrong" in lines
    assert lines[-2].startswith(f"{campaign.name}: 6.12: 4 of 5 runs right, 1 wrong, 5 of them now")
    assert lines[-1].startswith(f"{campaign.name}: WRONG, seeds 0 to 4, ")


def test_one_ends_its_machine(campaign):
    campaign.machines.deadly = {2}
    code, lines = campaign()
    assert code == 1 and campaign.machines.boots == [(0, 5), (3, 2)]
    assert "the VM ended" in lines and lines[-2].startswith(f"{campaign.name}: 6.12: 4 of 5 runs right, 1 wrong")


def test_it_goes_on(campaign):
    """Those that were right are not run again; those that were wrong are."""
    campaign.machines.wrong = {1}
    campaign("--runs", "3")
    campaign.machines.wrong = set()
    code, lines = campaign("--runs", "5")
    assert code == 0 and campaign.machines.boots == [(0, 3), (1, 1), (3, 2)]
    assert "5 of 5 runs right, 0 wrong, 3 of them now" in lines[-2]
    campaign("--runs", "5", "--again")
    assert campaign.machines.boots[3:] == [(0, 5)]


def test_shards_are_the_whole(campaign):
    for i in (1, 2, 3):
        campaign("--runs", "10", "--shard", f"{i}/3")
    assert campaign.machines.boots == [(0, 3), (3, 3), (6, 4)]


def test_no_machine(campaign):
    campaign.machines.broken = True
    code, lines = campaign()
    assert code == 1 and "no VM" in "\n".join(lines)
    assert lines[-1].startswith(f"{campaign.name}: WRONG, ")
