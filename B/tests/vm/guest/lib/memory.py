# SPDX-License-Identifier: GPL-2.0-or-later
"""Allocations of larder's module: they fail (tests/sim/simdisk_memory.c), or are counted (simdisk_held.c, /proc/vmallocinfo)."""

import collections
import contextlib
import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from . import simdisk
from .command import key_values

# functions that allocate for their callers
VIA = re.compile(
    r"(__)?(kv[mzc]alloc|kvmalloc)\w*|(__)?alloc_pages?(_(bulk|mpol|noprof|current)\w*)?|alloc_page_interleave|policy_node\w*|"
    r"_*get_free_pages\w*|get_zeroed_page\w*|mempool_(init|create)\w*|bioset_init|bitmap_[zk]?alloc\w*|k(mem|str)dup\w*"
)


@functools.cache
def text() -> tuple[int, int]:
    """First and last function of the module."""
    with open("/proc/kallsyms") as f:
        at = [int(x.split()[0], 16) for x in f if x.endswith("[larder]\n") and x.split()[1] in "tT"]
    return min(at), max(at)


def counts() -> dict:
    """seen, failed: calls for memory since the last failing() began."""
    return key_values((simdisk.ROOT / "memory").read_text())


def function(*names: str) -> tuple[int, int]:
    """Of the module: where it is, or the first of these that it was inlined into."""
    with open("/proc/kallsyms") as f:
        symbols = [x.split() for x in f if x.endswith("[larder]\n")]
    at = sorted((int(x[0], 16), x[2].split(".")[0]) for x in symbols if x[1] in "tT")
    for name in names:
        for (first, found), (last, _) in itertools.pairwise(at):
            if found == name:
                return first, last - 1
    raise LookupError(f"no function {names}")


@contextlib.contextmanager
def failing(*functions: str, **rule: object) -> Iterator[None]:
    """skip=N, count=N (0: without end), odds=N: one of so many, at random, seed=N, percpu=1: that of each processor alone.

    functions: function(), of that one alone."""
    first, last = function(*functions) if functions else text()
    simdisk.control(f"memory from={first:#x} to={last + 1:#x} {simdisk.words(**rule)}")
    try:
        yield
    finally:
        simdisk.control("memory off")


@contextlib.contextmanager
def counting(first: int | None = None, last: int | None = None) -> Iterator[None]:
    """held() counts from now on.  first, last: of what code; None: the module's, where it is now."""
    symbols = [x.split() for x in Path("/proc/kallsyms").read_text().splitlines()]
    kernel = sorted((int(x[0], 16), x[2]) for x in symbols if len(x) == 3 and x[1] in "tT")
    via = [f"via={at:#x}-{end:#x}" for (at, name), (end, _) in itertools.pairwise(kernel) if VIA.fullmatch(name) and at < end]
    if first is None or last is None:
        first, last = text()
    simdisk.control(f"held from={first:#x} to={(last | 4095) + 1:#x} {' '.join(via)}")
    try:
        yield
    finally:
        simdisk.control("held off")


def held() -> dict[str, int]:
    """What the module has allocated since counting() began and not freed: places in it, and how many each."""
    head, *lines = (simdisk.ROOT / "held").read_text().splitlines()
    assert not key_values(head)["lost"], head
    found = collections.Counter({place: int(n) for n, place in (x.split(" ", 1) for x in lines)})
    for line in Path("/proc/vmallocinfo").read_text().splitlines():
        if "[larder]" in line:
            found["vmalloc " + line.split()[2]] += 1
    return dict(found)
