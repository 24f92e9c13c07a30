# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a VM's kernel log fails its tests, without a VM."""

import re
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tests/vm"))

from host import verdict  # noqa: E402
from lib import kernel_log  # noqa: E402  (host.verdict has put the guest's lib into the path)

WARN = "WARNING: CPU: 0 PID: 1 at drivers/md/dm.c:1 dm_done+0x1/0x2 [dm_mod]"
REPORTS = [
    "BUG: KASAN: slab-use-after-free in log_append+0x1/0x2 [larder]",
    "UBSAN: shift-out-of-bounds in kernel/index.c:1:2",
    "BUG: memory leak: | comm larder [larder]",
    "WARNING: possible circular locking dependency detected",
    "WARNING: possible recursive locking detected",
    "WARNING: possible irq lock inversion dependency detected",
    "WARNING: inconsistent lock state",
    "WARNING: suspicious RCU usage",
    "WARNING: bad unlock balance detected!",
    "BUG: sleeping function called from invalid context at mm/slab.h:1",
    "refcount_t: underflow; use-after-free.",
    "WARNING: CPU: 0 PID: 1 at kernel/log.c:1 log_append+0x1/0x2 [larder]",
    "kernel log: overrun, lines lost",
]


@pytest.mark.parametrize("line", REPORTS)
def test_never_excused(line):
    """Whatever a test announces, but for who plants bugs (KernelLog.expect_anything())."""
    assert kernel_log.judge([line], [re.compile("")]) == ([line], [])
    assert kernel_log.judge([line], [re.compile("")], re.compile("(?!)")) == ([], [line])


def test_excused():
    assert kernel_log.judge([WARN, "md: all is well"], []) == ([WARN], [])
    assert kernel_log.judge([WARN], [re.compile("at nowhere"), re.compile("dm_done")]) == ([], [WARN])


def judged(tmp_path: Path, console: str, dmesg: str | None = None, excused: str = "") -> list[tuple[str, str]]:
    """Lines of the log that count, with their tests."""
    (tmp_path / "console").write_text(console)
    (tmp_path / "excused").write_text(excused)
    if dmesg is not None:
        (tmp_path / "dmesg").write_text(dmesg)
    return list(verdict.bad_lines(tmp_path))


BOOT = "[    0.000000] Linux version 6.12\n"


def test_ring_counts(tmp_path):
    assert judged(tmp_path, "garbage of a serial line: WARNING:\n", f"{BOOT}[    1.0] all is well\n") == []
    assert judged(tmp_path, "", f"{BOOT}[    1.0] test: test_io.py::test_x\n[    2.0] {WARN}\n") == [
        ("test_io.py::test_x", f"[    2.0] {WARN}")
    ]
    assert judged(tmp_path, "", f"{BOOT}[    2.0] {WARN}\n", excused=f"{WARN}\n") == []


def test_console_counts_where_the_ring_was_overrun(tmp_path):
    """A report at the beginning of a long log."""
    ring = "[    9.0] all is well\n"
    assert judged(tmp_path, f"{BOOT}[    1.0] {WARN}\n{ring}", ring) == [("", f"[    1.0] {WARN}")]
    (found,) = judged(tmp_path, f"{BOOT}** 7 printk messages dropped **\n", ring)
    assert "overrun" in found[1]


def test_console_counts_where_the_vm_has_died(tmp_path):
    assert judged(tmp_path, f"{BOOT}[    1.0] {WARN}\n") == [("", f"[    1.0] {WARN}")]
