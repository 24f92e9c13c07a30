# SPDX-License-Identifier: GPL-2.0-or-later
"""What a module leaves behind that is loaded and unloaded many times.  simdisk_held.c knows what its code has allocated; what the
kernel allocates on its behalf (queues, threads, memory of each CPU) is told from what others do by its number: it is left once in
each cycle."""

import collections
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from . import command, memory

TRACING = Path("/sys/kernel/tracing")
PERCPU = TRACING / "events/percpu"
ENTRIES = re.compile(r"entries-in-buffer/entries-written: (\d+)/(\d+)")
ALLOC = re.compile(r"percpu_alloc_percpu: call_site=(\S+) .*base_addr=(\S+) off=(\S+) ")
FREE = re.compile(r"percpu_free_percpu: base_addr=(\S+) off=(\S+) ")
OWN_THREAD = re.compile(r"larder|kworker/R-larder")  # other workers are called by what they have done last
PLACES = 128  # that simdisk/held shows
NAMELESS = re.compile(r"^0x[0-9a-f]+")  # an address in a module that is gone


class Reloads:
    """with Reloads() as r: the module is not loaded; r.load(), r.unload().  It is loaded again behind it."""

    def __init__(self, module: Path):
        self.module = module
        self.per_cpu: dict[tuple[str, str], str] = {}  # place: who allocated it

    def __enter__(self) -> "Reloads":
        self.unload()
        self.before = self._counts()
        (TRACING / "trace").write_text("")
        (TRACING / "buffer_size_kb").write_text("4096")
        (PERCPU / "enable").write_text("1")
        return self

    def __exit__(self, *_: object) -> None:
        (PERCPU / "enable").write_text("0")
        if not self.loaded():
            self.load()

    @staticmethod
    def loaded() -> bool:
        return Path("/sys/module/larder").exists()

    def load(self) -> None:
        command.run("insmod", self.module)
        memory.text.cache_clear()

    def unload(self) -> None:
        command.run("rmmod", "larder")
        memory.text.cache_clear()

    def read_trace(self) -> None:
        """So often that the ring is not full."""
        text = (TRACING / "trace").read_text()
        (TRACING / "trace").write_text("")
        kept, written = ENTRIES.search(text).groups()
        assert kept == written, "the ring was full"
        for line in text.splitlines():
            if found := ALLOC.search(line):
                self.per_cpu[found[2], found[3]] = found[1]
            elif found := FREE.search(line):
                self.per_cpu.pop((found[1], found[2]), None)

    def gone(self) -> dict[str, int]:
        """What the module, which is not loaded, has left for certain."""
        self.read_trace()
        sites = collections.Counter(self.per_cpu.values())
        return held() | {f"memory of each CPU of {s}": n for s, n in sites.items() if NAMELESS.match(s)}

    @staticmethod
    def _counts() -> collections.Counter:
        """Threads of the kernel, areas of vmalloc, slab caches."""
        count = collections.Counter()
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended
                name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
                count["threads"] += rest.split()[1] == "2"
                count["threads of the module"] += bool(OWN_THREAD.match(name))
        for line in Path("/proc/vmallocinfo").read_text().splitlines():
            count["vmalloc"] += 1
            count["vmalloc of the module"] += bool(NAMELESS.match(line.split()[2]))
        for line in Path("/proc/slabinfo").read_text().splitlines()[2:]:
            name = line.split()[0]
            count["slab caches"] += 1
            count["slab caches of the module"] += name.startswith("larder")
        return count

    def left(self, cycles: int) -> dict[str, int]:
        """With the module unloaded: what is its, and what is there once more for each cycle."""
        found = self.gone()
        more = self._counts() - self.before
        found |= {key: n for key, n in more.items() if n >= cycles or "of the module" in key}
        sites = collections.Counter(self.per_cpu.values())
        return found | {f"memory of each CPU of {s}": n for s, n in sites.items() if n >= cycles}


@contextlib.contextmanager
def counting_modules() -> Iterator[None]:
    """memory.counting() of all modules, also of those that are not loaded yet."""
    symbols = [x.split() for x in Path("/proc/kallsyms").read_text().splitlines()]
    first = next(int(x[0], 16) for x in symbols if x[2] == "_etext")
    with memory.counting(first, 0xFFFFFFFFFEFFFFFF):
        yield


def held() -> dict[str, int]:
    """What the module holds of it, or one that is gone."""
    places = memory.held()
    assert len(places) < PLACES, "there may be more places than are shown"
    return {place: n for place, n in places.items() if "[larder]" in place or NAMELESS.match(place)}
