# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's monitor, in the form that is for people, by its socket."""

import socket
import time
from pathlib import Path


def ask(monitor: Path, *commands: str) -> str:
    """QEMU's answers.  OSError: nobody listens."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5)
        s.connect(str(monitor))
        answer = b""
        for command in ("", *commands):  # first the greeting
            s.sendall(command.encode() + b"\n" if command else b"")
            end = time.monotonic() + 5
            while not answer.endswith(b"(qemu) ") and time.monotonic() < end:
                answer += s.recv(1 << 16)
            answer += b"\n"
        return answer.decode(errors="replace")
