# SPDX-License-Identifier: GPL-2.0-or-later
"""Suites: a name to what is run, and the run of one on one kernel."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from . import build, machine, verdict

HERE = Path(__file__).resolve().parent
GUEST = HERE.parent / "guest"


def names() -> list[str]:
    found = {p.stem.removeprefix("test_") for d in (GUEST, HERE) for p in d.glob("test_*.py")}
    found |= {p.name for p in GUEST.iterdir() if p.is_dir() and p.name[0] != "_" and any(p.glob("test_*.py"))}
    return sorted(found)


def guest_path(suite: str) -> Path | None:
    for p in (GUEST / f"test_{suite}.py", GUEST / suite):
        if p.exists():
            return p
    return None


def pytest_command(path: Path, expression: str) -> list[str]:
    top = str(GUEST if path.is_relative_to(GUEST) else HERE)  # whose conftest.py counts
    c = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short", "-rN"]
    c += ["--rootdir", top, "--confcutdir", top, str(path)]
    return [*c, "-k", expression] if expression else c


def environment(kernel: str, a: argparse.Namespace) -> dict[str, str]:
    fixed = {"LARDER_SEED": str(a.seed), "LARDER_KERNEL": kernel, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return fixed | dict(e.split("=", 1) for e in a.env)


def run_in_guest(kernel: str, suite: str, products: build.Products, where: Path, a: argparse.Namespace) -> verdict.Verdict:
    command = [*pytest_command(guest_path(suite), a.expression), f"--junitxml={where / 'junit.xml'}"]
    env = environment(kernel, a)
    start = time.monotonic()
    m = machine.Machine(
        kernel,
        where,
        products,
        command,
        memory=a.memory,
        environment=env,
        udev=a.udev,
        icount=a.icount,
    )
    try:
        how = m.start().wait(a.timeout)
    finally:
        m.kill()
    return verdict.judge(kernel, suite, where, how, m.exit_status(), time.monotonic() - start)


def run_on_host(kernel: str, suite: str, products: build.Products, where: Path, a: argparse.Namespace) -> verdict.Verdict:
    """The tests boot their own machines, below 'where', by the fixtures in host/conftest.py."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "tests.jsonl").unlink(missing_ok=True)
    (where / "exit").unlink(missing_ok=True)
    command = [*pytest_command(HERE / f"test_{suite}.py", a.expression), f"--junitxml={where / 'junit.xml'}"]
    env = (
        os.environ
        | environment(kernel, a)
        | {
            "LARDER_RESULTS": str(where),
            "LARDER_MODULES": ":".join(map(str, products.modules)),
            "LARDER_PROGRAMS": ":".join(map(str, products.programs)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    )
    start = time.monotonic()
    with open(where / "output", "wb") as out:
        try:
            status = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, timeout=a.timeout
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
    (where / "console").write_text("")
    how = "timeout" if status is None else "done"
    return verdict.judge(kernel, suite, where, how, status, time.monotonic() - start)


def run(kernel: str, suite: str, products: build.Products, where: Path, a: argparse.Namespace) -> verdict.Verdict:
    return (run_in_guest if guest_path(suite) else run_on_host)(kernel, suite, products, where, a)
