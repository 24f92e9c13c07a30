# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own fault injection (Documentation/fault-injection), where it is built in: make debug-kernel.

Its filter by the module's addresses (CONFIG_FAULT_INJECTION_STACKTRACE_FILTER) is built in there, and not used: what is injected
into are the kernel's threads, in which larder's works run, not processes.  In interrupts nothing fails; simdisk_memory.c has those.

Nor in the threads that blk-mq sends requests by again (kblockd), and with them larder-io, which has the same ones: the simulated
disk takes memory for what is written first, a page each, so a large write would never come through while one of five fails.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from .simdisk import Simdisk

ROOT = Path("/sys/kernel/debug")
ENOUGH = 1 << 30
# whatever fails says nothing; the first file that there is not ends it: the kernel is another one than this was written for
QUIET = {"verbose": 0, "interval": 1, "space": 0}
OF_KBLOCKD = re.compile(r"kworker/\d+:\d+H")  # of high priority, of one processor
ALSO_SLEEPING = {"failslab": {"ignore-gfp-wait": "N"}, "fail_page_alloc": {"ignore-gfp-wait": "N", "min-order": 0}}


def possible() -> bool:
    return (ROOT / "failslab").is_dir()


def _mark_threads(mark: bool) -> None:
    """Workers, and the rescuers of the module's queues; those that come later are left alone."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # it has ended
            name = comm.read_text()
            if name.startswith(("kworker/", "larder")) and not OF_KBLOCKD.match(name):
                (comm.parent / "make-it-fail").write_text(str(int(mark)))


@contextlib.contextmanager
def injecting(name: str, percent: int, **attributes: object) -> Iterator[Callable[[], int]]:
    """Yields a function that tells how often something has failed."""
    where = ROOT / name
    values = QUIET | ALSO_SLEEPING.get(name, {}) | attributes | {"times": ENOUGH}
    for key, value in values.items():
        (where / key).write_text(str(value))
    (where / "probability").write_text(str(percent))
    try:
        yield lambda: ENOUGH - int((where / "times").read_text())
    finally:
        (where / "probability").write_text("0")


@contextlib.contextmanager
def failing_allocations(name: str, percent: int) -> Iterator[Callable[[], int]]:
    """failslab or fail_page_alloc."""
    _mark_threads(True)
    try:
        with injecting(name, percent, **{"task-filter": "Y"}) as failed:
            yield failed
    finally:
        _mark_threads(False)


@contextlib.contextmanager
def failing_requests(disk: Simdisk, percent: int) -> Iterator[Callable[[], int]]:
    """Those to this disk, before it gets them: whoever sends one is told at once, in the midst of sending."""
    mark = Path("/sys/block", disk.name, "make-it-fail")
    mark.write_text("1")
    try:
        with injecting("fail_make_request", percent, **{"task-filter": "N"}) as failed:
            yield failed
    finally:
        mark.write_text("0")
