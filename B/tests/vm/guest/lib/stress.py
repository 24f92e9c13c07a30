# SPDX-License-Identifier: GPL-2.0-or-later
"""Random operations on a volume over a cache that is too small for them, while modes, cache, tables and attachment change; at
intervals the volume is stopped with dirty data and started again, and every sector is judged."""

from .controls import Switches
from .larder import Stack

ROUND = 10000  # operations between two judgements of everything
EVERY = 500  # operations between two switches, on average
TURNS = ["modes", "evict", "attach", "settings", "checkpoint", "writeback", "modes", "suspend", "reload", "suspend_cache"]
TURNS += ["attach", "reload_cache"]


def stress(make_disk, make_oracle, ops: int) -> None:
    ssd = make_disk("ssd0", model="null", mb=48, wce=1, fua=1, discard="random")
    # zeroes or what was there before: another content the oracle could not know
    hdd = make_disk("hdd0", model="null", mb=128, wce=1, discard="zero")
    stack = Stack(ssd, hdd, format_volume=("--cache", "c"))
    oracle = make_oracle(stack.volume, size="96m")
    done = switched = 0
    while done < ops:
        s = Switches(stack.volume, stack.cache)
        n = min(ROUND, ops - done)
        switched = s.run(oracle, *TURNS, first=switched, ops=n, every=EVERY, qd=(16, 1, 64)[done // ROUND % 3])
        done += n
        if stack.volume.status()["state"] == "passthrough":
            stack.attach()
        oracle.verify()
        stack.restart()
        oracle.verify()
        c = stack.cache.status()
        print(
            f"{done} operations, {switched} switches, {s.attached} x attached, {s.detached} x detached, {c['start_ms']} ms to start"
        )
    assert switched >= ops // EVERY // 2
    stack.verify_alone(oracle)
