# SPDX-License-Identifier: GPL-2.0-or-later
"""A process of its own (lib/pressure.py starts it) that has more memory than it may keep, and knows what it wrote there.

    swap_hog.py SEED MIB private|shared|locked [CGROUP]

A line on stdin is an order, its answer a line on stdout: pages looked at, and how many of them were wrong.

    fill      every page is written
    turn      every page is read and compared, in random order; every second one gets another content
    check     every page is read and compared

Only these pages are swapped, not what it runs by.  'locked': none are; it takes memory from the others, and the OOM killer leaves
it alone.
"""

import array
import ctypes
import mmap
import random
import struct
import sys
from pathlib import Path

PAGE = 4096
SOURCE = 1 << 20
HEAD = struct.Struct("<QII")
FLAGS = {
    "private": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
    "shared": mmap.MAP_SHARED | mmap.MAP_ANONYMOUS,
    "locked": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
}
LOCK_ALL = 1 | 2 | 4  # MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT
LIBC = ctypes.CDLL(None, use_errno=True)


def stay() -> None:
    """Whatever this process has, and will have, stays in memory."""
    if LIBC.mlockall(LOCK_ALL):
        raise OSError(ctypes.get_errno(), "mlockall")


class Pages:
    def __init__(self, seed: int, mib: int, kind: str):
        self.seed, self.number = seed, mib * 256
        self.random = random.Random(seed)
        self.source = self.random.randbytes(SOURCE + PAGE)
        self.generation = array.array("I", bytes(4 * self.number))
        stay()
        self.memory = mmap.mmap(-1, mib << 20, flags=FLAGS[kind])
        if kind == "locked":
            self.memory[::PAGE] = bytes(self.number)
        else:
            LIBC.munlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self.memory))), ctypes.c_size_t(mib << 20))

    def content(self, page: int) -> bytes:
        """Of no other page, of no other time, of no other process."""
        generation = self.generation[page]
        at = (page * 40503 + generation * 7919) % SOURCE
        return HEAD.pack(self.seed, page, generation) + self.source[at : at + PAGE - HEAD.size]

    def write(self, page: int) -> None:
        self.generation[page] += 1
        self.memory[page * PAGE : (page + 1) * PAGE] = self.content(page)

    def wrong(self, page: int) -> bool:
        return self.memory[page * PAGE : (page + 1) * PAGE] != self.content(page)

    def fill(self) -> int:
        for page in range(self.number):
            self.write(page)
        return 0

    def turn(self) -> int:
        wrong = 0
        for page in self.random.sample(range(self.number), self.number):
            wrong += self.wrong(page)
            if self.random.randrange(2):
                self.write(page)
        return wrong

    def check(self) -> int:
        return sum(map(self.wrong, range(self.number)))


def main() -> None:
    if len(sys.argv) > 4:
        Path(sys.argv[4], "cgroup.procs").write_text("0")
    Path("/proc/self/oom_score_adj").write_text("-1000" if sys.argv[3] == "locked" else "1000")
    pages = Pages(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    print("ready", flush=True)
    for order in sys.stdin:
        wrong = {"fill": pages.fill, "turn": pages.turn, "check": pages.check}[order.strip()]()
        print(f"pages={pages.number} wrong={wrong}", flush=True)


if __name__ == "__main__":
    main()
