# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that are created, appended to, truncated and renamed over, each change fsynced; what they may be after a power cut.

What a change writes is a function of the file's name and of the change's number, so that a judge needs but the texts of changes:
"begin NAME NUMBER KIND SIZE" ahead of each, "done NAME NUMBER" behind its fsync.
"""

import dataclasses
import functools
import os
import random
from collections.abc import Iterable
from pathlib import Path

SIZES = (100, 3000, 5000, 70000)  # that a change writes
MOST = 200_000  # bytes of a file
NAMES = "abcdef"  # of each thread's own files


@dataclasses.dataclass(frozen=True)
class Change:
    name: str
    number: int
    kind: str  # create, append, truncate, replace
    size: int  # that is written; truncate: that is left

    @property
    def begin(self) -> str:
        return f"begin {self.name} {self.number} {self.kind} {self.size}"

    @property
    def done(self) -> str:
        return f"done {self.name} {self.number}"

    @property
    @functools.cache  # noqa: B019 - a judge asks for the same ones again and again
    def data(self) -> bytes:
        return random.Random(f"{self.name} {self.number}").randbytes(self.size)

    def after(self, content: bytes | None) -> bytes:
        """What the file is then."""
        if self.kind == "truncate":
            return (content or b"")[: self.size]
        return (content or b"") + self.data if self.kind == "append" else self.data

    def make(self, directory: Path) -> None:
        """Durable when it returns."""
        path = directory / self.name
        if self.kind == "replace":
            new = directory / f"{self.name}.new"
            write(new, "wb", self.data)
            new.rename(path)
            sync_directory(directory)
        elif self.kind == "truncate":
            with open(path, "r+b") as f:
                f.truncate(self.size)
                os.fsync(f.fileno())
        else:
            write(path, "ab", self.data)


def write(path: Path, mode: str, data: bytes) -> None:
    with open(path, mode) as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Storm:
    """The changes of one thread, to files of its own."""

    def __init__(self, seed: object, prefix: str):
        self.random, self.prefix = random.Random(f"{seed} {prefix}"), prefix
        self.sizes: dict[str, int] = {}
        self.number = 0

    def next(self) -> Change:
        name = self.prefix + self.random.choice(NAMES)
        size = self.sizes.get(name)
        kinds = ("create",) if size is None else ("truncate",) if size > MOST else ("append", "truncate")
        kind = self.random.choice((*kinds, "replace"))
        self.number += 1
        left = self.random.randrange(size + 1) if kind == "truncate" else self.random.choice(SIZES)
        change = Change(name, self.number, kind, left)
        self.sizes[name] = change.size + (size or 0 if kind == "append" else 0)
        return change


def in_flight(old: bytes | None, change: Change, found: bytes | None) -> bool:
    """May a power cut in the middle of the change leave this?  A rename is there or not.  Of other changes what both have is there,
    and of the rest any length, with zeroes where nothing was written yet, or the end of a block cleared before the new size."""
    new = change.after(old)
    if found in (old, new):
        return True
    if found is None or change.kind == "replace":
        return False
    shorter, longer = sorted((old or b"", new), key=len)
    n = len(shorter)
    rest = zip(found[n:], longer[n:], strict=False)
    return n <= len(found) <= len(longer) and found[:n] == shorter and all(a in (0, b) for a, b in rest)


def judge(directory: Path, texts: Iterable[str]) -> str:
    """What is wrong with the files, by the texts before a power cut; "": nothing."""
    durable: dict[str, bytes] = {}
    pending: dict[str, Change] = {}
    for text in texts:
        word, name, number, *rest = text.split()
        if word == "begin":
            pending[name] = Change(name, int(number), rest[0], int(rest[1]))
        else:
            durable[name] = pending.pop(name).after(durable.get(name))
    for name in sorted({*durable, *pending}):
        path, old, change = directory / name, durable.get(name), pending.get(name)
        found = path.read_bytes() if path.exists() else None
        if found == old or (change and in_flight(old, change, found)):
            continue
        was = "none" if old is None else f"{len(old)} bytes"
        left = "gone" if found is None else f"{len(found)} bytes"
        return f"{name} was {was}, is {left} that it never was; in flight: {change or 'nothing'}"
    return ""
