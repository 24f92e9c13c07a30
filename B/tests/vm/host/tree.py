# SPDX-License-Identifier: GPL-2.0-or-later
"""What a result depends on: a long run that was cut off goes on where it was, and begins anew when something has changed."""

import ast
import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
GUEST = TOP / "tests/vm/guest"


def fingerprint(*folders: str) -> str:
    """Of the files of these folders that git knows, as they are now."""
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


def test_sources(suite: str) -> list[str]:
    """All that a suite of the guest runs but what it starts: its tests, the fixtures, and what they import."""
    found, new = set(), {GUEST / f"test_{suite}.py", GUEST / "conftest.py"}
    while new:
        found |= new
        new = {lib for path in new for lib in imported(path)} - found
    return sorted(str(path.relative_to(TOP)) for path in found)
