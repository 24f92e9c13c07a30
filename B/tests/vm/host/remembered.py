# SPDX-License-Identifier: GPL-2.0-or-later
"""Outcomes of runs that take hours, by name, and by a key that says what each depends on: with another key none counts.

They are kept in the cache directory; by --write (make's WRITE=1) also in tests/proofs.jsonl, a line each, which outlives the
machine: whoever goes on with the same sources on another one does not begin anew.
"""

import fcntl
import json
from pathlib import Path

from .tree import TOP

TREE = TOP / "tests/proofs.jsonl"


class Remembered:
    def __init__(self, run: str, cache: Path, write: bool = False, tree: Path = TREE):
        """run: the target of make.  cache: the directory of its outcomes."""
        self.run, self.cache, self.write, self.tree = run, cache, write, tree

    def _file(self, name: str, key: str) -> Path:
        return self.cache / f"{name.replace('/', '.').replace(' ', '-')}-{key}.json"

    def _in_tree(self) -> dict[tuple, dict]:
        lines = map(json.loads, self.tree.read_text().splitlines() if self.tree.exists() else [])
        return {(k["run"], k["name"]): k for k in lines}

    def get(self, name: str, key: str) -> object:
        """None: it is not known."""
        if not (file := self._file(name, key)).exists():
            found = self._in_tree().get((self.run, name), {})
            return found["said"] if found.get("key") == key else None
        said = json.loads(file.read_text())
        if self.write:
            self._put_in_tree(name, key, said)
        return said

    def put(self, name: str, key: str, said: object) -> None:
        self.cache.mkdir(parents=True, exist_ok=True)
        self._file(name, key).write_text(json.dumps(said))
        if self.write:
            self._put_in_tree(name, key, said)

    def _put_in_tree(self, name: str, key: str, said: object) -> None:
        """In the place of what was said of other sources."""
        with open(self.cache / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = self._in_tree() | {(self.run, name): {"run": self.run, "name": name, "key": key, "said": said}}
            new = self.tree.with_suffix(".new")
            new.write_text("".join(json.dumps(lines[which]) + "\n" for which in sorted(lines)))
            new.rename(self.tree)
