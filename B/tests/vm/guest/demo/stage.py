# SPDX-License-Identifier: GPL-2.0-or-later
"""What the onlooker sees: a heading, a word on what happens, the command, its output.  Only commands that are really run are shown.

A command runs on a terminal of its own, so that it shows its progress; lines that overwrite themselves are passed on with a
carriage return at their end, one a second at most.
"""

import dataclasses
import os
import pty
import re
import subprocess
import termios
import textwrap
import time

WIDTH = 110
PROGRESS_SECONDS = 1.0
SHELL = ("bash", "-o", "pipefail")


class CommandFailedError(Exception):
    """A command that must not fail did."""


@dataclasses.dataclass
class Outcome:
    status: int
    seconds: float
    silent: float  # seconds of these until it printed something
    text: str  # what it printed, without lines that were overwritten


def heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def say(text: str) -> None:
    print(textwrap.fill(" ".join(text.split()), WIDTH, initial_indent="   ", subsequent_indent="   "), flush=True)


def result(text: str) -> None:
    print(f"   => {text}", flush=True)


def show(text: str) -> None:
    """Output of a program."""
    for line in text.splitlines():
        print(f"     {line}", flush=True)


class _Lines:
    """Text from a terminal, printed line by line."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self._rest = ""
        self._shown = 0.0  # when there was progress last
        self._width = 0  # of the progress that the next line overwrites

    def feed(self, text: str) -> None:
        self._rest = (self._rest + text).replace("\r\n", "\n")
        while found := re.search(r"\n|\r(?!\Z)", self._rest):  # a last \r may be half of a \r\n
            line, end = self._rest[: found.start()], found.group()
            self._rest = self._rest[found.end() :]
            self._print(line, end)

    def close(self) -> None:
        if self._rest.strip():
            self._print(self._rest.strip("\r"), "\n")

    def _print(self, line: str, end: str) -> None:
        if end == "\n":
            self.kept.append(line)
            print(f"     {line.rstrip():{self._width}}".rstrip(" " if not self._width else ""), flush=True)
            self._width = 0
        elif line.strip() and time.monotonic() >= self._shown + PROGRESS_SECONDS:
            self._shown = time.monotonic()
            self._width = len(line)
            print(f"     {line}", end="\r", flush=True)


def command(line: str, *, check: bool = True, quiet: bool = False, shell: tuple[object, ...] = SHELL) -> Outcome:
    """Shows and runs a line of shell.  quiet: the line is not shown, only what it prints.  check: it must not fail."""
    if not quiet:
        print(f"   $ {line}", flush=True)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, WIDTH))
    began = time.monotonic()
    p = subprocess.Popen([*shell, "-c", line], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    lines = _Lines()
    silent = None
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the last one has closed the terminal
            break
        if not data:
            break
        silent = silent or time.monotonic() - began
        lines.feed(data.decode(errors="replace"))
    status = p.wait()
    seconds = time.monotonic() - began
    lines.close()
    os.close(ours)
    if status and check:
        raise CommandFailedError(f"{line}: exit status {status}")
    return Outcome(status, seconds, silent or seconds, "\n".join(lines.kept))
