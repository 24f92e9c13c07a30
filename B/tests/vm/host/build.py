# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds what a VM needs, all of it outside the work tree: modules by kernel/build, the oracle, the command larder, the daemon."""

import contextlib
import dataclasses
import fcntl
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
ORACLE = TOP / "tests" / "vm" / "oracle"
EXPLORER = TOP / "tests" / "crash"

# flock() is per open file, threads of this process need one more
_threads = threading.Lock()


class BuildError(Exception):
    """What was built, and the end of the compiler's output."""


@dataclasses.dataclass
class Products:
    modules: list[Path]  # in the order of loading
    programs: list[Path]  # directories for PATH


def cache_directory() -> Path:
    return Path(os.environ.get("LARDER_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "larder")


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with _threads, open(directory / ".lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def run(what: str, *command: str) -> str:
    r = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if r.returncode:
        end = "\n".join((r.stdout + r.stderr).splitlines()[-40:])
        raise BuildError(f"{what} does not build ({' '.join(command)}):\n{end}")
    return r.stdout


def modules(kernel: str, larder: bool) -> list[Path]:
    build = str(TOP / "kernel" / "build")
    found = run(f"tests/sim for {kernel}", build, "--sim", kernel).split()
    if larder:
        found += run(f"larder.ko for {kernel}", build, kernel).split()
    return [Path(p) for p in found]


def programs(command: bool, sanitize: bool = False) -> list[Path]:
    suffix, variables = ("-sanitize", ["SANITIZE=1"]) if sanitize else ("", [])
    directory = cache_directory() / "build" / "programs"
    with locked(directory):
        run("the oracle", "make", "-s", "-C", str(ORACLE), f"O={directory}")
        run("the explorer", "make", "-s", "-C", str(EXPLORER), f"O={directory}")
        larder, larderd = directory / f"larder-build{suffix}", directory / f"larderd-build{suffix}"
        if command:
            run("the command larder", "make", "-s", "-C", str(TOP / "tools"), f"BUILD={larder}", *variables)
            run("the daemon larderd", "make", "-s", "-C", str(TOP / "daemon"), f"BUILD={larderd}", *variables)
    return [directory, larder, larderd]


def everything(kernel: str, larder: bool = True, command: bool = True, sanitize: bool = False) -> Products:
    return Products(modules(kernel, larder), programs(command, sanitize))
