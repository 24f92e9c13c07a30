# SPDX-License-Identifier: GPL-2.0-or-later
"""The harness reports what is wrong: tests that fail, hang, warn or take the kernel down (guest/_faulty) do not pass."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from host import build, machine, suites, verdict

VM = Path(__file__).resolve().parents[1]


def sanitized_program() -> Path:
    """A directory with one for test_reads_what_was_freed."""
    directory = Path(os.environ["LARDER_RESULTS"]) / "programs"
    directory.mkdir(exist_ok=True)
    source = "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(1); free((void *)p); return *p; }\n"
    words = ["gcc", "-w", "-O0", "-fsanitize=address", "-x", "c", "-", "-o", str(directory / "reads_what_was_freed")]
    subprocess.run(words, input=source, text=True, check=True)
    return directory


@pytest.fixture
def run_suites(request: pytest.FixtureRequest):
    def run_all(names: list[str], expression: str, timeout: int = 200) -> list[verdict.Verdict]:
        a = argparse.Namespace(expression=expression, seed=1, env=[], memory="1G", udev=False, icount=False, timeout=timeout)
        modules = [Path(p) for p in os.environ["LARDER_MODULES"].split(":") if Path(p).name == "simdisk.ko"]
        programs = [Path(p) for p in os.environ["LARDER_PROGRAMS"].split(":")]
        products = build.Products(modules, [*programs, sanitized_program()])
        where = Path(os.environ["LARDER_RESULTS"]) / request.node.name
        return suites.run(os.environ["LARDER_KERNEL"], names, products, where, a)

    return run_all


@pytest.fixture
def run_faulty(run_suites):
    def run(expression: str, timeout: int = 200) -> verdict.Verdict:
        (v,) = run_suites(["_faulty"], expression, timeout)
        return v

    return run


def outcomes(v: verdict.Verdict) -> dict[str, str]:
    return {t["name"].rpartition("::")[2]: t["outcome"] for t in v.tests}


def test_failures_are_reported(run_faulty):
    v = run_faulty("not hung and not crash and not frozen")
    text = v.text(False)
    assert not v.passed and not v.error, text
    assert outcomes(v) == {
        "test_good": "passed",
        "test_wrong": "failed",
        "test_warning_in_the_log": "failed",
        "test_warning_that_was_expected": "passed",
        "test_error_in_a_thread": "failed",
        "test_reads_what_was_freed": "failed",
        "test_slow": "failed",
        "test_leaves_a_held_device": "failed",
        "test_after_that": "passed",
    }, text
    assert [x for x in v.log if "nowhere" in x] and not [x for x in v.log if "somewhere" in x], text
    assert "heap-use-after-free" in text, text
    assert "2 + 2" in text or "4 == 5" in text, text
    assert "no number" in text, text
    assert "out of time" in text and "held" in text and "said by a good test" not in text, text
    assert "said by a good test" in v.text(True)


def test_hung_test_is_killed(run_faulty):
    v = run_faulty("hung")
    text = v.text(False)
    assert not v.passed and "hung and the VM was killed" in v.error and "test_hung_in_the_kernel" in v.error, text
    assert "sysrq: Show Blocked State" in v.error and "blkdev" in v.error, text


def test_frozen_machine_is_examined(run_faulty, monkeypatch):
    monkeypatch.setattr(machine, "FROZEN", 10)
    v = run_faulty("frozen")
    text = v.text(False)
    assert not v.passed and "froze in a test" in v.error and "test_frozen" in v.error, text
    assert "interrupts " in v.error and "  do_idle+" in v.error, text
    assert not (v.results / "exit").exists(), "the VM was to be killed"


def test_crash_is_reported(run_faulty):
    v = run_faulty("crash or good")
    text = v.text(False)
    assert not v.passed and "ended early" in v.error and "test_crash" in v.error and "Kernel panic" in v.error, text
    assert outcomes(v) == {"test_good": "passed"}
    assert any("BUG:" in x or "Kernel panic" in x for x in v.log), text


def test_crash_is_of_one_suite(run_suites):
    """Two suites in one VM: the second one gets another."""
    first, second = run_suites(["_faulty", "_good"], "crash or good")
    assert not first.passed and "test_crash" in first.error and first.log, first.text(False)
    assert second.passed and outcomes(second) == {"test_good_too": "passed"}, second.text(False)
    assert first.results != second.results


def test_lines_are_of_one_suite(run_suites):
    """Two suites in one VM: what one of them leaves in the kernel log is no failure of the other."""
    first, second = run_suites(["_faulty", "_good"], "warning_in_the_log or good")
    assert first.log and not second.log and second.passed, first.text(False) + second.text(False)
    assert first.results == second.results


def test_out_of_time_is_reported(run_faulty):
    v = run_faulty("slow", timeout=8)
    assert not v.passed and "ran out of time" in v.error, v.text(False)


def test_nothing_run_is_no_pass(tmp_path):
    """Status 5 of pytest: nothing selected; and a status 0 without any test."""
    (tmp_path / "console").write_text("")
    (tmp_path / "output").write_text("no tests ran")
    for status in (0, 5):
        (v,) = verdict.judge("6.1", ["none"], tmp_path, "done", status, 1.0)
        assert not v.passed, v.text(False)


def test_a_signal_ends_the_machines():
    """Also what a machine has started: virtme-ng is a row of processes, QEMU the last."""
    run = [
        "import signal, sys, time",
        "from host import process",
        "process.end_at(signal.SIGTERM)",
        "machine = process.start(['sh', '-c', 'sleep 1000; true'])",
        "print(machine.pid, flush=True)",
        "time.sleep(1000)",
    ]
    with subprocess.Popen([sys.executable, "-c", "\n".join(run)], cwd=VM, stdout=subprocess.PIPE, text=True) as p:
        session = int(p.stdout.readline())
        assert os.getsid(session) == session and os.getsid(p.pid) != session
        p.terminate()
        p.communicate(timeout=100)  # to the end of the file: `sleep` has it open too
        assert p.returncode == 128 + signal.SIGTERM
