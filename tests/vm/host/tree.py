# SPDX-License-Identifier: GPL-2.0-or-later
"""What a result depends on: a long run that was cut off goes on where it was, and begins anew when something has changed."""

import ast
import functools
import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
GUEST = TOP / "tests/vm/guest"


@functools.cache
def fingerprint(*folders: str) -> str:
    """Of the files of these folders that git knows, as they are when this process asks first."""
    names = subprocess.run(["git", "-C", TOP, "ls-files", "-z", *folders], check=True, capture_output=True).stdout
    h = hashlib.sha256()
    for name in filter(None, names.decode().split("\0")):
        if (TOP / name).is_file():
            h.update(name.encode() + (TOP / name).read_bytes())
    return h.hexdigest()[:16]


def imported(path: Path) -> Iterator[Path]:
    """Of guest/lib, by this file of guest/."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{a.name}" for a in node.names] + [node.module or ""]
            yield from filter(Path.is_file, (GUEST / "lib" / f"{n.removeprefix('lib').strip('.')}.py" for n in names))


@functools.cache
def test_sources(suite: str) -> list[str]:
    """All that a suite of the guest runs but what it starts: its tests, the fixtures, and what they import."""
    found, new = set(), {GUEST / f"test_{suite}.py", GUEST / "conftest.py"}
    while new:
        found |= new
        new = {lib for path in new for lib in imported(path)} - found
    return sorted(str(path.relative_to(TOP)) for path in found)


def tests_of(suite: str) -> list[str]:
    """Of the guest."""
    return re.findall(r"^def (test_\w+)\(", (GUEST / f"test_{suite}.py").read_text(), re.MULTILINE)


def expression(suite: str, test: str) -> str:
    """For pytest's -k, which takes whatever a name contains: this test in all its variants, and no other one of the suite."""
    return " and not ".join([test, *(other for other in tests_of(suite) if test in other and other != test)])


@functools.cache
def places_of_tests(text: str) -> list[tuple[str, int, int]]:
    """Name, first line with its decorators, end; from 0 on."""
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [(f.name, min([f.lineno, *(d.lineno for d in f.decorator_list)]) - 1, f.end_lineno) for f in found]


def without_other_tests(text: str, test: str) -> str:
    """A file of tests, as far as one of them depends on it: no test calls another one.  Blank lines are those of others, too."""
    lines = text.splitlines(keepends=True)
    for name, first, end in places_of_tests(text):
        if name != test:
            lines[first:end] = [""] * (end - first)
    return "".join(line for line in lines if line.strip())


def test_fingerprint(suite: str, test: str, *folders: str) -> str:
    """Of a test, all that it runs, and these folders: a change of another test of its suite is none."""
    own = GUEST / f"test_{suite}.py"
    others = fingerprint(*folders, *(path for path in test_sources(suite) if TOP / path != own))
    return hashlib.sha256((others + without_other_tests(own.read_text(), test)).encode()).hexdigest()[:16]
