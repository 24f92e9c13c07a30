# SPDX-License-Identifier: GPL-2.0-or-later
"""What became of one suite on one kernel."""

import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "guest"))

from lib import kernel_log, outcome


@dataclasses.dataclass
class Verdict:
    kernel: str
    suite: str
    results: Path
    error: str = ""  # why there is no complete result
    tests: list[dict] = dataclasses.field(default_factory=list)  # suite, name, outcome, seconds, text
    log: list[str] = dataclasses.field(default_factory=list)  # bad lines of the kernel log
    seconds: float = 0  # of its tests; of a VM's first suite also those outside of tests

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
        said = self.results / f"summary-{self.suite}"  # left by a test, where a figure is what the suite is for
        lines += ["  " + x for x in said.read_text().splitlines()] if said.exists() else []
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


def whole_log(where: Path) -> list[str]:
    """The ring; where its beginning was overwritten, or nobody could read it any more, the console, which was sent all of it."""
    dmesg = where / "dmesg"
    ring = dmesg.read_text(errors="replace").splitlines() if dmesg.exists() else []
    if any("Linux version" in line for line in ring[:20]):
        return ring
    console = (where / "console").read_text(errors="replace").splitlines()
    if ring and any("printk messages dropped" in line for line in console):
        console.append("kernel log: overrun, and the console lacks lines too")
    return console


def bad_lines(where: Path) -> Iterable[tuple[str, str]]:
    """Test and line.  Lines that a test announced have been judged by it; anything outside tests counts."""
    excused = where / "excused"
    allowed = set(excused.read_text(errors="replace").splitlines()) if excused.exists() else set()
    for test, line in kernel_log.split_by_test(whole_log(where)):
        if kernel_log.bad_lines([line]) and kernel_log.message(line) not in allowed:
            yield test, line


def why_it_ended(where: Path, how: str, test: str) -> str:
    console = (where / "console").read_text(errors="replace")
    reasons = {
        "hung": "a test hung and the VM was killed",
        "frozen": "the VM froze in a test and was killed",
        "timeout": "the VM ran out of time and was killed",
    }
    state = reasons.get(how, "the VM ended early")
    text = f"{state}, during {test or '(no test)'}; the end of the console ({where / 'console'}):\n{tail(console, 100)}"
    examined = where / "autopsy"
    return f"{text}\nthe CPU:\n{examined.read_text()}" if examined.exists() else text


def judge(kernel: str, suites: list[str], where: Path, how: str, status: int | None, seconds: float) -> list[Verdict]:
    """Of the suites that one VM ran; those behind one that ended the VM are left out, the first one never."""
    tests = read_tests(where)
    of = {s: Verdict(kernel, s, where, tests=[t for t in tests if t["suite"] == s]) for s in suites}
    for v in of.values():
        v.seconds = sum(t["seconds"] for t in v.tests)
    first = of[suites[0]]
    first.seconds += seconds - sum(t["seconds"] for t in tests)
    for test, line in bad_lines(where):
        of.get(outcome.suite_of(test), first).log.append(line)
    if how != "done" or status is None:
        running = where / "running"
        test = running.read_text() if running.exists() else ""
        last = of.get(outcome.suite_of(test), first)
        last.error = why_it_ended(where, how, test)
        return list(of.values())[: suites.index(last.suite) + 1]
    end = tail((where / "output").read_text(errors="replace"), 60)
    for v in of.values():
        if status not in (0, 1):
            v.error = f"pytest ended with status {status}:\n{end}"
        elif status == 1 and not v.tests:
            v.error = end
    if status == 1 and all(t["outcome"] in ("passed", "skipped") for t in tests):
        first.error = end
    return list(of.values())
