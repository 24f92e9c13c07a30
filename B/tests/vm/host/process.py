# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual machines as processes: sessions of their own, which no signal to the run reaches, that end with it all the same."""

import os
import signal
import subprocess

WITH_US = ("setpriv", "--pdeathsig", "TERM")  # before the words of a run of ours that is to end when we are killed

_started: list[subprocess.Popen] = []


def start(command: list[str], **options: object) -> subprocess.Popen:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
    _started.append(process)
    return process


def kill(process: subprocess.Popen) -> None:
    """With all that it has started.  Fine for one that has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_at(*signals: int) -> None:
    """At one of these signals: first the machines, then this process, whatever its threads wait for."""

    def end(number: int, _frame: object) -> None:
        for process in _started:
            kill(process)
        os._exit(128 + number)

    for number in signals:
        signal.signal(number, end)
