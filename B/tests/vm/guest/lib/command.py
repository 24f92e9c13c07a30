# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs, run with a time limit and a readable complaint."""

import subprocess

SECONDS = 120


class CommandError(Exception):
    def __init__(self, argv: list[str], status: int, out: str, err: str):
        self.status, self.out, self.err = status, out, err
        super().__init__(f"{' '.join(argv)}: status {status}\n{out}{err}")


def run(*argv: object, stdin: str | None = None, check: bool = True, seconds: float = SECONDS) -> subprocess.CompletedProcess:
    """stdout and stderr as text; CommandError if it fails."""
    words = [str(a) for a in argv]
    feed = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    r = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=seconds, **feed)
    if check and r.returncode:
        raise CommandError(words, r.returncode, r.stdout, r.stderr)
    return r


def output(*argv: object, **kw: object) -> str:
    return run(*argv, **kw).stdout


def key_values(text: str) -> dict[str, int | float | str]:
    """The key=value words of a line; numbers as numbers.  Other words are left out."""
    d: dict[str, int | float | str] = {}
    for word in text.split():
        key, eq, value = word.partition("=")
        if not eq:
            continue
        d[key] = value
        for kind in (int, float):
            try:
                d[key] = kind(value)
                break
            except ValueError:
                continue
    return d
