# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts for a cache on /dev/vda and its volume on /dev/vdb in machines that are killed under load.

Any shell, dmsetup and the oracle run them.
"""

import random
import time
from pathlib import Path

from . import machine

CONTROL = """case $(($1 % 6)) in
0) dmsetup message v 0 set mode writethrough;;
1) dmsetup message {cache} 0 checkpoint;;
2) dmsetup message v 0 set mode writeback;;
3) dmsetup message v 0 flush;;
4) dmsetup message v 0 set mode writearound;;
5) dmsetup message v 0 set mode writeback; dmsetup message {cache} 0 reclaim 2;;
esac"""
FORMAT = """larder cache create c --cache /dev/vda --segment-size 256K --yes
larder volume create v --backing /dev/vdb --cache c --yes"""
START = """dmsetup create c --table "0 $(blockdev --getsz /dev/vda) larder-cache 1 /dev/vda 0"
dmsetup create v --table "0 $(($(blockdev --getsz /dev/vdb) - 4096)) larder /dev/vdb /dev/mapper/c 0"
dmsetup status c"""
DRAIN = """dmsetup message v 0 set mode writethrough
dmsetup message v 0 flush
until dmsetup status v | grep -q ' dirty_sectors=0 .* flushing=0 '; do sleep 0.2; done
echo "0 $(($(blockdev --getsz /dev/vdb) - 4096)) larder /dev/vdb - 0" | dmsetup load v
dmsetup suspend v
dmsetup resume v"""


class Kills:
    """One volume under one oracle, over many boots.  share: a directory that all machines can write.

    begin: what starts them; cache: the name of the cache's device then."""

    def __init__(self, share: Path, seed: int, begin: str = START, cache: str = "c"):
        self.share, self.seed, self.begin, self.cache, self.number = share, seed, begin, cache, 0
        self.oracle = f"--dev /dev/mapper/v --state {share / 'state'}"
        self.rng = random.Random(seed)

    def _journal(self, number: int) -> Path:
        return self.share / f"journal-{number}"

    def start(self) -> str:
        """Starts the cache; all is verified twice, but for the first time, when there is nothing."""
        if not self.number:
            return f"{FORMAT}\n{self.begin}"
        verify = f"oracle verify {self.oracle}"
        return f"{self.begin}\n{verify} --journal {self._journal(self.number - 1)} --after crash\n{verify}"

    def load(self, align: int = 512) -> str:
        return (
            f"oracle run {self.oracle} --journal {self._journal(self.number)} --ops 0 --size 32m --seed {self.seed + self.number} "
            f"--align {align} --every 150 --control '{CONTROL.format(cache=self.cache)}'"
        )

    def kill(self, m: machine.Machine, seconds: float) -> None:
        """At a random time of the load, at most so many seconds after the boot."""
        wait_for_load(self._journal(self.number), self.rng.randrange(60_000, 250_000), m, seconds)
        m.kill()
        assert m.exit_status() is None
        self.number += 1

    def end(self) -> str:
        """Behind start(): all dirty data is written back, and the backing judged alone."""
        return f"{DRAIN}\noracle verify {self.oracle}\ndmsetup remove v\ndmsetup remove {self.cache}"

    def damage(self) -> str:
        """Behind end(): a sector of the backing that is not zero is overwritten; the oracle must say so."""
        return f"""echo "0 65536 linear /dev/vdb 2048" | dmsetup create v
byte=$(cmp -n 33554432 /dev/mapper/v /dev/zero | sed -E 's/.* byte ([0-9]+),.*/\\1/')
test -n "$byte"
dd if=/dev/zero of=/dev/mapper/v bs=512 count=1 seek=$(((byte - 1) / 512)) oflag=direct status=none
if oracle verify {self.oracle}; then echo "the oracle found no damage"; exit 9; fi"""


def wait_for_load(file: Path, size: int, m: machine.Machine, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not (file.exists() and file.stat().st_size >= size):
        assert m.poll() is None, f"the load ended by itself:\n{m.output()}\n{m.console()[-3000:]}"
        assert time.monotonic() < end, f"{file} did not grow to {size} bytes"
        time.sleep(0.05)

