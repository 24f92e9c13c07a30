# SPDX-License-Identifier: GPL-2.0-or-later
"""What became of one suite on one kernel."""

import dataclasses
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "guest"))

from lib import kernel_log


@dataclasses.dataclass
class Verdict:
    kernel: str
    suite: str
    results: Path
    error: str = ""  # why there is no complete result
    tests: list[dict] = dataclasses.field(default_factory=list)  # name, outcome, seconds, text
    log: list[str] = dataclasses.field(default_factory=list)  # bad lines of the kernel log
    seconds: float = 0

    @property
    def passed(self) -> bool:
        return not self.error and not self.log and bool(self.tests) and not any(t["outcome"] == "failed" for t in self.tests)

    def text(self, verbose: bool) -> str:
        lines = []
        for t in self.tests:
            if verbose or t["outcome"] not in ("passed", "skipped"):
                lines.append(f"  {t['outcome']:7} {t['seconds']:7.1f} s  {t['name']}")
                lines += ["      " + x for x in t["text"].splitlines()]
        if self.error:
            lines += ["  " + x for x in self.error.splitlines()]
        if self.log:
            lines += ["  kernel log:"] + ["      " + x for x in self.log[:60]]
        if not self.tests and not self.error:
            lines.append("  no test was run")
        good = sum(t["outcome"] == "passed" for t in self.tests)
        head = f"{'ok  ' if self.passed else 'FAIL'} {self.suite} on {self.kernel}: "
        head += f"{good} of {len(self.tests)} passed, {self.seconds:.0f} s"
        return "\n".join([head, *lines])


def read_tests(results: Path) -> list[dict]:
    """Written by the guest's conftest, a line of JSON per test, as they end."""
    f = results / "tests.jsonl"
    tests = []
    for line in f.read_text().splitlines() if f.exists() else []:
        try:
            tests.append(json.loads(line))
        except json.JSONDecodeError:  # the VM was killed while it wrote
            continue
    return tests


def tail(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[-lines:])


def judge(kernel: str, suite: str, results: Path, how: str, status: int | None, seconds: float) -> Verdict:
    v = Verdict(kernel, suite, results, tests=read_tests(results), seconds=seconds)
    console = (results / "console").read_text(errors="replace")
    dmesg = results / "dmesg"
    log = dmesg.read_text(errors="replace") if dmesg.exists() else console
    # bad lines that a test announced have been judged by it; anything outside tests counts
    excused = results / "excused"
    allowed = set(excused.read_text(errors="replace").splitlines()) if excused.exists() else set()
    v.log = [x for x in kernel_log.bad_lines(log.splitlines()) if kernel_log.message(x) not in allowed]
    if how != "done" or status is None:
        running = results / "running"
        name = running.read_text() if running.exists() else "(no test)"
        reasons = {
            "hung": "a test hung and the VM was killed",
            "frozen": "the VM froze in a test and was killed",
            "timeout": "the VM ran out of time and was killed",
        }
        state = reasons.get(how, "the VM ended early")
        v.error = f"{state}, during {name}; the end of the console ({results / 'console'}):\n{tail(console, 100)}"
        examined = results / "autopsy"
        if examined.exists():
            v.error += f"\nthe CPU:\n{examined.read_text()}"
    elif status not in (0, 1):
        v.error = f"pytest ended with status {status}:\n{tail((results / 'output').read_text(errors='replace'), 60)}"
    elif status == 1 and all(t["outcome"] in ("passed", "skipped") for t in v.tests):
        v.error = tail((results / "output").read_text(errors="replace"), 60)
    return v
