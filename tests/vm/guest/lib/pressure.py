# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that is short, in a cgroup or in the whole machine, and what the kernel does then: swaps, and waits for it."""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from . import cgroup, command, simdisk, swap_hog
from .command import key_values

MIB = 1 << 20
SPARED = "-1000"  # by the OOM killer


def vmstat() -> dict[str, int]:
    return {key: int(n) for key, n in (x.split() for x in Path("/proc/vmstat").read_text().splitlines())}


def since(before: dict[str, int]) -> dict[str, int]:
    """swapped_in, swapped_out: pages.  stalled: allocations that had to free memory first.  killed: processes, for want of it."""
    now = vmstat()
    grown = {key: n - before.get(key, 0) for key, n in now.items()}
    stalled = sum(n for key, n in grown.items() if key.startswith("allocstall"))
    return {"swapped_in": grown["pswpin"], "swapped_out": grown["pswpout"], "stalled": stalled, "killed": grown["oom_kill"]}


def available_mib() -> int:
    return next(int(x.split()[1]) for x in Path("/proc/meminfo").read_text().splitlines() if x.startswith("MemAvailable")) >> 10


class Group:
    """A cgroup (v2) of hogs.  mib: what they may keep of all that they have."""

    def __init__(self, mib: int):
        self.path = cgroup.ROOT / "hogs"
        self.path.mkdir(exist_ok=True)
        self.limit(mib)

    def limit(self, mib: int | None) -> None:
        (self.path / "memory.max").write_text("max" if mib is None else str(mib * MIB))

    def killed(self) -> int:
        """By the OOM killer."""
        return key_values((self.path / "memory.events").read_text().replace(" ", "="))["oom_kill"]

    def remove(self) -> None:
        self.path.rmdir()


class Hog:
    """with Hog(...) as h: h.tell("turn"); ...; h.answer()"""

    def __init__(self, seed: int, mib: int, kind: str = "private", group: Group | None = None):
        self.pages = mib * 256
        pipe = subprocess.PIPE
        argv = [sys.executable, swap_hog.__file__, str(seed), str(mib), kind]
        self.process = subprocess.Popen([*argv, *([str(group.path)] if group else [])], stdin=pipe, stdout=pipe, text=True)
        self._line()

    def __enter__(self) -> "Hog":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def _line(self) -> str:
        line = self.process.stdout.readline()
        assert line, f"a hog has died: {self.process.wait()}"
        return line

    def tell(self, order: str) -> None:
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def answered(self, seconds: float) -> bool:
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def answer(self) -> None:
        report = key_values(self._line())
        assert not report["wrong"], f"{report['wrong']} wrong pages of {report['pages']}"
        assert report["pages"] == self.pages


def obey(hogs: list[Hog], order: str, beside: Callable[[], object] | None = None, times: int = 4) -> None:
    """All of them at once.  beside() is called so many times, and then now and then until the last one has done it."""
    before = vmstat()
    for h in hogs:
        h.tell(order)
    for _ in range(times if beside else 0):
        beside()
    for h in hogs:
        while beside and not h.answered(2):
            beside()
        h.answer()
    Path("/dev/kmsg").write_text(f"hogs have done {order}: {since(before)}\n")  # where it hangs one knows how far they were


@contextlib.contextmanager
def swap_on(device: object, *options: str) -> Iterator[None]:
    """Only there.  The test's own process stays in memory: who has to free it must not wait for it."""
    adjust = Path("/proc/self/oom_score_adj")
    was = adjust.read_text()
    command.run("mkswap", device)
    command.run("swapon", *options, device)
    try:
        swap_hog.stay()
        adjust.write_text(SPARED)
        yield
    finally:
        adjust.write_text(was)
        command.run("swapoff", device, check=False, seconds=3600)
        swap_hog.LIBC.munlockall()
        still = Path("/proc/swaps").read_text()
        assert str(device) not in still and os.path.realpath(str(device)) not in still, still


@contextlib.contextmanager
def setting(name: str, value: int) -> Iterator[None]:
    """Of /proc/sys/vm."""
    file = Path("/proc/sys/vm", name)
    was = file.read_text()
    file.write_text(str(value))
    try:
        yield
    finally:
        file.write_text(was)


@contextlib.contextmanager
def nothing_but_reserves() -> Iterator[None]:
    """Whoever takes from a mempool, in the whole kernel, gets an element of its reserve, or waits for one (memory.counts()).

    Who makes one must not fail; that mempool_resize(), which nobody calls here, lies between them in some kernels is all right."""
    symbols = [x.split() for x in Path("/proc/kallsyms").read_text().splitlines()]
    pools = {name: int(at, 16) for at, _, name in (s for s in symbols if len(s) == 3) if "mempool" in name and "_pfx" not in name}
    takes = [at for name, at in pools.items() if name.removesuffix("_noprof") in ("mempool_alloc", "mempool_alloc_slab")]
    last = min(int(s[0], 16) for s in symbols if len(s) == 3 and s[1] in "tT" and int(s[0], 16) > max(takes))
    fills = [name for name, at in pools.items() if min(takes) <= at < last and "init" in name]
    assert not fills, f"between those that take lie {fills}"
    simdisk.control(f"memory from={min(takes):#x} to={last:#x}")
    try:
        yield
    finally:
        simdisk.control("memory off")
