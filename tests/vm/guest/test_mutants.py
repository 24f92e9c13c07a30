# SPDX-License-Identifier: GPL-2.0-or-later
"""Mutants, by tests/mutants/run: of each the larder.ko that was built with it is loaded, and the test of another suite run that is
to notice.  What becomes of that is judged by who asked for it; here a test fails only if it could not be run.

LARDER_MUTANTS=DIRECTORY: list.json and NAME.ko
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lib import command

GUEST = Path(__file__).resolve().parent
RESULTS = Path(os.environ.get("LARDER_RESULTS", "/tmp"))
DIRECTORY = Path(os.environ.get("LARDER_MUTANTS", "/nonexistent"))
LIST = json.loads((DIRECTORY / "list.json").read_text()) if DIRECTORY.exists() else []


@pytest.mark.limit(880)
@pytest.mark.parametrize("mutant", LIST, ids=lambda m: m["name"])
def test_mutant(mutant, kernel_log, tmp_path):
    kernel_log.expect_anything()
    if Path("/sys/module/larder").exists():
        command.run("rmmod", "larder")
    command.run("insmod", DIRECTORY / f"{mutant['name']}.ko")
    where = f"{GUEST}/test_{mutant['suite']}.py::{mutant['test']}"
    options = ["-p", "no:cacheprovider", "-q", "--tb=short", "--rootdir", GUEST, "--confcutdir", GUEST]
    options += ["--basetemp", tmp_path / "inner"]  # pytest clears those of others, ours too, in the directory that it takes else
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, where],
        env=os.environ | {"LARDER_RESULTS": str(tmp_path)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    out = RESULTS / "mutants"
    out.mkdir(exist_ok=True)
    (out / f"{mutant['name']}.log").write_text(run.stdout + run.stderr)
    outcomes = [json.loads(line)["outcome"] for line in (tmp_path / "tests.jsonl").read_text().splitlines()]
    assert run.returncode in (0, 1) and outcomes, run.stdout[-2000:]
    (out / f"{mutant['name']}.json").write_text(json.dumps(outcomes))
