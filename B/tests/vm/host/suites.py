# SPDX-License-Identifier: GPL-2.0-or-later
"""Suites: a name to what is run, and the run of one on one kernel."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from . import build, machine, plain, verdict

HERE = Path(__file__).resolve().parent
GUEST = HERE.parent / "guest"
# Of suites that share their VM with no other: instead of the options given
NEEDS = {"scale": {"memory": "9G"}, "idle": {"icount": True}, "keys": {"tpm": True}}


def names() -> list[str]:
    found = {p.stem.removeprefix("test_") for d in (GUEST, HERE) for p in d.glob("test_*.py")}
    found |= {p.name for p in GUEST.iterdir() if p.is_dir() and p.name[0] != "_" and any(p.glob("test_*.py"))}
    return sorted(found)


def guest_path(suite: str) -> Path | None:
    for p in (GUEST / f"test_{suite}.py", GUEST / suite):
        if p.exists():
            return p
    return None


def pytest_command(top: Path, paths: list[Path], expression: str) -> list[str]:
    """top: whose conftest.py counts."""
    c = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short", "-rN", "--continue-on-collection-errors"]
    c += ["-o", "tmp_path_retention_policy=none", "--rootdir", str(top), "--confcutdir", str(top), *map(str, paths)]
    return [*c, "-k", expression] if expression else c


def environment(kernel: str, a: argparse.Namespace, part: str) -> dict[str, str]:
    fixed = {"LARDER_SEED": str(a.seed), "LARDER_KERNEL": kernel, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return fixed | dict(e.split("=", 1) for e in a.env) | ({"LARDER_PART": part} if part else {})


def run_in_guest(
    kernel: str, suites: list[str], products: build.Products, where: Path, a: argparse.Namespace, part: str
) -> list[verdict.Verdict]:
    """All of them in one VM.  After one that ends it the later ones have no verdict."""
    paths = [guest_path(s) for s in suites]
    command = [*pytest_command(GUEST, paths, a.expression), f"--junitxml={where / 'junit.xml'}"]
    start = time.monotonic()
    needs = {"memory": a.memory, "icount": a.icount} | NEEDS.get(suites[0], {})
    env = environment(kernel, a, part)
    m = machine.Machine(kernel, where, products, command, environment=env, udev=a.udev, **needs)
    try:
        how = m.start().wait(a.timeout * len(suites))
    finally:
        m.kill()
    return verdict.judge(kernel, suites, where, how, m.exit_status(), time.monotonic() - start)


def run_on_host(
    kernel: str, suite: str, products: build.Products, where: Path, a: argparse.Namespace, part: str
) -> list[verdict.Verdict]:
    """The tests boot their own machines, below 'where', by the fixtures in host/conftest.py."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "tests.jsonl").unlink(missing_ok=True)
    (where / "exit").unlink(missing_ok=True)
    command = [*pytest_command(HERE, [HERE / f"test_{suite}.py"], a.expression), f"--junitxml={where / 'junit.xml'}"]
    env = (
        os.environ
        | environment(kernel, a, part)
        | plain.environment(kernel, products, where)
        | {"PYTHONDONTWRITEBYTECODE": "1"}
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
    return verdict.judge(kernel, [suite], where, how, status, time.monotonic() - start)


def run(
    kernel: str, suites: list[str], products: build.Products, results: Path, a: argparse.Namespace, part: str = ""
) -> list[verdict.Verdict]:
    """In one VM, and in another one if a suite has ended that; suites of the host boot their own.  part: LARDER_PART."""
    verdicts: list[verdict.Verdict] = []
    while suites:
        joined = f"{suites[0]}+{len(suites) - 1}" if len(suites) > 1 else suites[0]  # short: QEMU's socket lies in there
        dealt = f".{'parts' if '=' in part else part.partition('/')[0]}" if part else ""
        where = results / f"{joined}{dealt}-{kernel}"
        if guest_path(suites[0]):
            new = run_in_guest(kernel, suites, products, where, a, part)
        else:
            new = run_on_host(kernel, suites[0], products, where, a, part)
        verdicts += new
        suites = suites[len(new) :]
    return verdicts
