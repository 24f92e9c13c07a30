# SPDX-License-Identifier: GPL-2.0-or-later
"""A command that asks on a terminal, and what others do until it gets its answer.  For tests without a VM, too: nothing of lib."""

import os
import pty
import subprocess
from collections.abc import Callable, Sequence


def answered(
    words: Sequence[object],
    question: str,
    meanwhile: Callable[[], object],
    environment: dict[str, str] | None = None,
    word: bytes = b"y",
) -> subprocess.CompletedProcess:
    """With yes, or another word, behind `meanwhile`.  stderr: what it says behind the question."""
    shell, answer = pty.openpty()
    argv = [str(word) for word in words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, stdin=answer, **pipes, text=True, env=environment) as run:
        try:
            asked = ""
            while question not in asked:
                assert run.poll() is None, asked
                asked += run.stderr.read(1)
            meanwhile()
            os.write(shell, word + b"\n")
            out, said = run.communicate(timeout=600)
        finally:
            run.kill()
            os.close(shell)
            os.close(answer)
    return subprocess.CompletedProcess(argv, run.returncode, out, said)
