# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes that have a secret: what the lists of processes show of it, and their cores."""

import contextlib
import fcntl
import struct
import subprocess
import termios
import time
from pathlib import Path

SECONDS = 120  # until a test gives up on a machine that is busy


def everybody():
    """Words and environment of all processes; of others their words alone."""
    for directory in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                yield (directory / name).read_bytes()


def in_memory(pid, secret):
    """Who may look at it is root."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for span, access in (m.split()[:2] for m in maps):
            begin, end = (int(x, 16) for x in span.split("-"))
            if access.startswith("rw") and end - begin < 1 << 28:
                with contextlib.suppress(OSError, ValueError):
                    memory.seek(begin)
                    if secret in memory.read(end - begin):
                        return True
    return False


def begin(words, directory, **more):
    """A process that writes its core here, if it writes one; its stdin is a pipe."""
    directory.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(["prlimit", "--core=unlimited", *map(str, words)], cwd=directory, **pipes, **more)


def left(pipe):
    """Bytes in it."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def give(process, secret):
    """Until it has it: read, in its memory, and waiting for what follows.

    Read first: what begins may be us, or prlimit, still."""
    process.stdin.write(secret)
    process.stdin.flush()
    giving_up = time.monotonic() + SECONDS
    while process.poll() is None and (left(process.stdin) or not in_memory(process.pid, secret)):
        assert time.monotonic() < giving_up, "it has not read it"
        time.sleep(0.02)
    assert process.poll() is None, process.stderr.read()
