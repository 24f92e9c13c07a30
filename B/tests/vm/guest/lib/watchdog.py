# SPDX-License-Identifier: GPL-2.0-or-later
"""A test that takes too long: blocked tasks go to the log, it is interrupted; if that does not help, the VM is killed."""

import os
import signal
import threading
from pathlib import Path

GRACE = 20  # seconds from the interruption to the end


class TestTimeoutError(Exception):
    __test__ = False


def dump_tasks(why: str) -> None:
    """sysrq-w: the stacks of blocked tasks; sysrq-l: what CPUs do."""
    Path("/dev/kmsg").write_text(f"test watchdog: {why}\n")
    for key in "wl":
        Path("/proc/sysrq-trigger").write_text(key)


class Watchdog:
    def __init__(self, name: str, seconds: float, results: Path):
        self.name = name
        self.seconds = seconds
        self.results = results
        self.fired = False
        self._soft = threading.Timer(seconds, self._interrupt)
        self._hard = threading.Timer(seconds + GRACE, self._give_up)

    def __enter__(self) -> "Watchdog":
        (self.results / "limit").write_text(str(self.seconds + GRACE))
        signal.signal(signal.SIGUSR1, self._raise)
        for t in (self._soft, self._hard):
            t.daemon = True
            t.start()
        return self

    def __exit__(self, *_: object) -> None:
        (self.results / "limit").unlink()
        self._soft.cancel()
        self._hard.cancel()

    def _raise(self, *_: object) -> None:
        raise TestTimeoutError(f"{self.name}: out of time")

    def _interrupt(self) -> None:
        self.fired = True
        dump_tasks(f"{self.name} is out of time")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def _give_up(self) -> None:
        with open(self.results / "dmesg", "wb") as f:
            f.write(os.popen("dmesg").read().encode(errors="replace"))
        (self.results / "hung").write_text(self.name)
