# SPDX-License-Identifier: GPL-2.0-or-later
"""A VM is killed under load on a volume, three times (LARDER_KILLS, 30 in `make stress`); each time the cache starts again and
the oracle judges every sector.

Modes are switched, checkpoints taken and dirty data is written back beside the load.  At the end the backing alone is judged, and a
damaged sector is found: the test can fail.
"""

import os
import random
import time
from pathlib import Path

KILLS = int(os.environ.get("LARDER_KILLS", "3"))
CONTROL = """case $(($1 % 6)) in
0) dmsetup message v 0 set mode writethrough;;
1) dmsetup message c 0 checkpoint;;
2) dmsetup message v 0 set mode writeback;;
3) dmsetup message v 0 flush;;
4) dmsetup message v 0 set mode writearound;;
5) dmsetup message v 0 set mode writeback; dmsetup message c 0 reclaim 2;;
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


def wait_for_load(file: Path, size: int, machine, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not (file.exists() and file.stat().st_size >= size):
        assert machine.poll() is None, f"the load ended by itself:\n{machine.output()}\n{machine.console()[-3000:]}"
        assert time.monotonic() < end, f"{file} did not grow to {size} bytes"
        time.sleep(0.05)


def test_kills_under_load(boots, make_disk_file, share, seed):
    disks = [make_disk_file("ssd", 48), make_disk_file("hdd", 128)]
    state = share / "state"
    oracle = f"--dev /dev/mapper/v --state {state}"
    rng = random.Random(seed)
    prepare = FORMAT
    for kill in range(KILLS):
        journal = share / f"journal-{kill}"
        run = f"oracle run {oracle} --journal {journal} --ops 0 --size 32m --seed {seed + kill} --every 150 --control '{CONTROL}'"
        m = boots.start(["sh", "-ec", f"{prepare}\n{START}\n{check(oracle, share, kill)}\n{run}"], disks=disks)
        wait_for_load(journal, rng.randrange(60_000, 250_000), m, 400)
        m.kill()
        assert m.exit_status() is None
        prepare = ""
    end = f"""{START}
{check(oracle, share, KILLS)}
{DRAIN}
oracle verify {oracle}
dmsetup remove v
dmsetup remove c
larder super check /dev/vda
larder super check /dev/vdb
{damage(oracle)}"""
    print(boots.run(["sh", "-ec", end], disks=disks).output())


def check(oracle: str, share: Path, kill: int) -> str:
    """What is done behind the start, before the load of kill number KILL; nothing before the first one."""
    return f"oracle verify {oracle} --journal {share}/journal-{kill - 1} --after crash\noracle verify {oracle}" if kill else ""


def damage(oracle: str) -> str:
    """A sector of the backing that is not zero is overwritten; the oracle must say so."""
    return f"""echo "0 65536 linear /dev/vdb 2048" | dmsetup create v
byte=$(cmp -n 33554432 /dev/mapper/v /dev/zero | sed -E 's/.* byte ([0-9]+),.*/\\1/')
test -n "$byte"
dd if=/dev/zero of=/dev/mapper/v bs=512 count=1 seek=$(((byte - 1) / 512)) oflag=direct status=none
if oracle verify {oracle}; then echo "the oracle found no damage"; exit 9; fi"""
