# SPDX-License-Identifier: GPL-2.0-or-later
"""Allocations of larder's module fail (tests/sim/simdisk_memory.c)."""

import contextlib
import functools
from collections.abc import Iterator

from . import simdisk
from .command import key_values



@functools.cache
def text() -> tuple[int, int]:
    """First and last function of the module."""
    with open("/proc/kallsyms") as f:
        at = [int(x.split()[0], 16) for x in f if x.endswith("[larder]\n") and x.split()[1] in "tT"]
    return min(at), max(at)


def counts() -> dict:
    """seen, failed: calls for memory since the last failing() began."""
    return key_values((simdisk.ROOT / "memory").read_text())


@contextlib.contextmanager
def failing(**rule: object) -> Iterator[None]:
    """skip=N, count=N (0: without end), odds=N: one of so many, at random, seed=N."""
    first, last = text()
    simdisk.control(f"memory from={first:#x} to={last + 1:#x} {simdisk.words(**rule)}")
    try:
        yield
    finally:
        simdisk.control("memory off")
