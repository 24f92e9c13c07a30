# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel log: what a test caused in it, and which lines are never right."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

BAD = re.compile(
    r"WARNING:|BUG:|BUG at|kernel BUG|Oops|general protection fault|unable to handle|Call Trace:|Kernel panic|"
    r"INFO: task .* blocked for more than|INFO: rcu|rcu: INFO|soft lockup|hard LOCKUP|"
    r"possible circular locking|possible recursive locking|inconsistent lock state|suspicious RCU usage|held lock freed|"
    r"bad unlock balance|KASAN|UBSAN|KFENCE|refcount_t:|list_(add|del) corruption|scheduling while atomic|"
    r"sleeping function called|page allocation failure|workqueue: WQ_MEM_RECLAIM|kernel log: overrun"
)
# what no test may excuse, whatever it announces: reports of the kernel's checkers, anything in larder's code, what nobody has read
NEVER = re.compile(
    r"KASAN|UBSAN|KFENCE|memory leak|possible (circular|recursive|irq)|inconsistent lock state|suspicious RCU|held lock freed|"
    r"bad unlock balance|refcount_t:|list_(add|del) corruption|scheduling while atomic|sleeping function called|"
    r"(WARNING|BUG|Oops).*\[larder\]|kernel log: overrun"
)
# of the machine, before anything of ours runs
HARMLESS = re.compile(
    r"Spectre|Speculative|MDS CPU bug|unpatched return thunk|Retbleed|earlyprintk|module verification failed|tainting kernel"
)

LIMITED_US = 10_000_000  # twice the interval of printk_ratelimited()


def message(line: str) -> str:
    """A line of dmesg or of the console, without time stamp and log level."""
    return re.sub(r"^(<\d+>)?\[[ \d.]+\] ", "", line)


def begin_test(nodeid: str) -> None:
    """So that a line that no test has judged can be told to belong to a suite."""
    Path("/dev/kmsg").write_text(f"test: {nodeid}\n")


def split_by_test(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """The test that ran, or had run, "" before the first one; the line."""
    nodeid = ""
    for line in lines:
        if message(line).startswith("test: "):
            nodeid = message(line).removeprefix("test: ").strip()
        yield nodeid, line


def bad_lines(lines: Iterable[str]) -> list[str]:
    return [x for x in lines if BAD.search(x) and not HARMLESS.search(x)]


def judge(lines: Iterable[str], expected: Iterable[re.Pattern], never: re.Pattern = NEVER) -> tuple[list[str], list[str]]:
    """(bad, excused): of the bad lines those that nobody expected, or that nobody may expect, and the others."""
    bad, excused = [], []
    for line in bad_lines(lines):
        may = not never.search(line) and any(p.search(line) for p in expected)
        (excused if may else bad).append(line)
    return bad, excused


def just_said(pattern: str) -> list[str]:
    """By whomever, in the last seconds."""
    fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    found, newest = [], 0
    try:
        while True:
            head, _, text = os.read(fd, 8192).decode(errors="replace").partition(";")
            newest = int(head.split(",")[2])
            if re.search(pattern, text.split("\n")[0]):
                found.append((newest, text.split("\n")[0]))
    except BlockingIOError:
        return [text for at, text in found if at > newest - LIMITED_US]
    finally:
        os.close(fd)


class KernelLog:
    """Records since it was made, or since mark()."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._fd, 0, os.SEEK_END)
        self._lines: list[str] = []
        self._expected: list[re.Pattern] = []
        self._never = NEVER
        self.excused: list[str] = []

    def close(self) -> None:
        os.close(self._fd)

    def mark(self) -> None:
        self.lines()
        self._lines = []

    def lines(self) -> list[str]:
        """Messages, oldest first."""
        while True:
            try:
                record = os.read(self._fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return self._lines
            except BrokenPipeError:  # the oldest are lost: go on, but the test has failed
                self._lines.append("kernel log: overrun, lines lost")
                continue
            _, _, text = record.partition(";")
            self._lines += [re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), x) for x in text.split("\n")[:1]]

    def matching(self, pattern: str) -> list[str]:
        return [x for x in self.lines() if re.search(pattern, x)]

    def said(self, pattern: str) -> bool:
        """The same of a line that the kernel prints ten times in 5 s at most, from each place in the code: so many of earlier tests
        may have kept this one back."""
        return bool(self.matching(pattern)) or len(just_said(re.sub(r"\d+", r"\\d+", pattern))) >= 10

    def expect(self, pattern: str) -> None:
        """Bad lines that match are no failure of this test, but those of NEVER."""
        self._expected.append(re.compile(pattern))

    def expect_anything(self) -> None:
        """For bugs that are planted in the module: whatever they do to the kernel is judged by who planted them."""
        self._never = re.compile("(?!)")
        self.expect("")

    def bad(self) -> list[str]:
        bad, self.excused = judge(self.lines(), self._expected, self._never)
        return bad
