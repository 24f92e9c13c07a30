#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A mail server in small: takes a letter, writes it to a file, fsyncs, and only then accepts it: it must not be lost.

letters.py write DIRECTORY LIST        until the disk fails; LIST (in RAM) gets name, size and checksum of each accepted one
letters.py check DIRECTORY LIST        exit status 1 if a letter of the list is not there, or not as it was
"""

import hashlib
import os
import random
import sys
from pathlib import Path

SIZES = (512, 65536)  # bytes, from and to


def store(directory: int, name: str, content: bytes) -> None:
    """Durable when it returns: the file, and its name in the directory."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
    try:
        written = 0
        while written < len(content):
            written += os.write(fd, content[written:])
        os.fsync(fd)
    finally:
        os.close(fd)
    os.fsync(directory)


def write(directory: Path, accepted: Path) -> int:
    rng = random.Random(os.environ.get("LARDER_SEED", "1"))
    directory.mkdir(exist_ok=True)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    number = 0
    with open(accepted, "w") as out:
        while True:
            name = f"letter-{number:05}"
            content = rng.randbytes(rng.randint(*SIZES))
            try:
                store(fd, name, content)
            except OSError as e:
                print(f"letters: {number} accepted; then, at {name}: {e.strerror}", flush=True)
                return 0
            out.write(f"{name} {len(content)} {hashlib.md5(content).hexdigest()}\n")
            out.flush()
            number += 1


def judge(path: Path, size: int, checksum: str) -> str:
    """What is wrong with it; empty: nothing."""
    try:
        content = path.read_bytes()
    except OSError as e:
        return e.strerror
    if len(content) != size:
        return f"{len(content)} bytes instead of {size}"
    return "" if hashlib.md5(content).hexdigest() == checksum else "its content has changed"


def check(directory: Path, accepted: Path) -> int:
    letters = [x.split() for x in accepted.read_text().splitlines()]
    lost = 0
    for name, size, checksum in letters:
        wrong = judge(directory / name, int(size), checksum)
        if wrong:
            lost += 1
            if lost <= 10:
                print(f"letters: LOST {name}: {wrong}")
    there = {x.name for x in directory.iterdir()} if directory.exists() else set()
    more = there - {x[0] for x in letters}
    text = f"letters: {len(letters)} were accepted; {len(letters) - lost} are there and whole, {lost} are lost"
    if more:
        text += f" ({', '.join(sorted(more))}: was being written, and is there in part or in whole)"
    print(text, flush=True)
    return 1 if lost or not letters else 0


def main() -> int:
    if len(sys.argv) != 4 or sys.argv[1] not in ("write", "check"):
        print(__doc__, file=sys.stderr)
        return 2
    return {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))


if __name__ == "__main__":
    sys.exit(main())
