# SPDX-License-Identifier: GPL-2.0-or-later
"""A VM is killed under load on a volume, three times (LARDER_KILLS, 30 in `make stress`); each time the cache starts again and
the oracle judges every sector.

Modes are switched, checkpoints taken and dirty data is written back beside the load.  At the end the backing alone is judged, and a
damaged sector is found: the test can fail.
"""

import os

from host.kills import Kills

KILLS = int(os.environ.get("LARDER_KILLS", "3"))


def test_kills_under_load(boots, make_disk_file, share, seed):
    disks = [make_disk_file("ssd", 48), make_disk_file("hdd", 128)]
    kills = Kills(share, seed)
    for _ in range(KILLS):
        kills.kill(boots.start(["sh", "-ec", f"{kills.start()}\n{kills.load()}"], disks=disks), 400)
    end = f"""{kills.start()}
{kills.end()}
larder super check /dev/vda
larder super check /dev/vdb
{kills.damage()}"""
    print(boots.run(["sh", "-ec", end], disks=disks).output())
