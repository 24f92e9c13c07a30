# SPDX-License-Identifier: GPL-2.0-or-later
"""How often the module runs by itself: its works and timers, by the kernel's tracepoints."""

import time
from pathlib import Path

from . import memory

ROOT = Path("/sys/kernel/tracing")
NAMES = ("workqueue/workqueue_execute_start", "timer/timer_expire_entry", "timer/hrtimer_expire_entry")
EVENTS = [ROOT / "events" / name for name in NAMES]


def during(seconds: float) -> list[str]:
    """A line for each."""
    first, last = memory.text()
    (ROOT / "trace").write_text("")
    for e in EVENTS:
        (e / "filter").write_text(f"function >= {first:#x} && function <= {last:#x}")
        (e / "enable").write_text("1")
    try:
        time.sleep(seconds)
    finally:
        for e in EVENTS:
            (e / "enable").write_text("0")
            (e / "filter").write_text("0")
    return [x.strip() for x in (ROOT / "trace").read_text().splitlines() if x.strip() and not x.startswith("#")]
