# SPDX-License-Identifier: GPL-2.0-or-later
"""Mutants, by tests/mutants/run: of each the larder.ko that was built with it is loaded, and the test of another suite run that is
to notice.  What becomes of that is judged by who asked for it; here a test fails only if it could not be run.

LARDER_MUTANTS=DIRECTORY: list.json and NAME.ko
"""

import json
import os
import sys
import traceback
from pathlib import Path

import pytest
from lib import command

GUEST = Path(__file__).resolve().parent
RESULTS = Path(os.environ.get("LARDER_RESULTS", "/tmp"))
DIRECTORY = Path(os.environ.get("LARDER_MUTANTS", "/nonexistent"))
LIST = json.loads((DIRECTORY / "list.json").read_text()) if DIRECTORY.exists() else []


def become(results: Path, output: Path) -> None:
    """What differs in a process of its own: where its results and its output go."""
    for standard, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), standard)
        setattr(sys, name, open(standard, "w", errors="replace", closefd=False))  # noqa: SIM115
    os.environ["LARDER_RESULTS"] = str(results)
    for name, module in list(sys.modules.items()):
        if name.startswith("lib.") and hasattr(module, "RESULTS"):
            module.RESULTS = results


def run_test(where: str, results: Path, output: Path) -> int:
    """pytest's exit status.  In a fork of this process: another one would take longer to start, from a root without a cache and
    with every instruction emulated, than most tests to run."""
    options = ["-p", "no:cacheprovider", "-q", "--tb=short", f"--rootdir={GUEST}", f"--confcutdir={GUEST}"]
    options += [f"--basetemp={results}/inner"]  # pytest clears those of others, ours too, in the directory that it takes else
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 3
    try:
        become(results, output)
        status = int(pytest.main([*options, where]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


@pytest.mark.limit(880)
@pytest.mark.parametrize("mutant", LIST, ids=lambda m: m["name"])
def test_mutant(mutant, kernel_log, tmp_path):
    kernel_log.expect_anything()
    if Path("/sys/module/larder").exists():
        command.run("rmmod", "larder")
    command.run("insmod", DIRECTORY / f"{mutant['name']}.ko")
    out = RESULTS / "mutants"
    out.mkdir(exist_ok=True)
    output = out / f"{mutant['name']}.log"
    status = run_test(f"{GUEST}/test_{mutant['suite']}.py::{mutant['test']}", tmp_path, output)
    outcomes = [json.loads(line)["outcome"] for line in (tmp_path / "tests.jsonl").read_text().splitlines()]
    assert status in (0, 1) and outcomes, output.read_text(errors="replace")[-2000:]
    (out / f"{mutant['name']}.json").write_text(json.dumps(outcomes))
