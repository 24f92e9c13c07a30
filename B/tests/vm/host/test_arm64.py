# SPDX-License-Identifier: GPL-2.0-or-later
"""The same two disks in machines of two architectures in turn, each killed under load: what one has left the other starts, and
the oracle judges every sector.  The other one is the kernel LARDER_ARM64, as tests/kernels/run calls it."""

from host import arm64, machine
from host.kills import Kills

SECONDS = 900


def test_disks_move(boots, make_disk_file, share, seed):
    disks = [make_disk_file("ssd", 48), make_disk_file("hdd", 128)]
    kills = Kills(share, seed)
    for kind in (machine.Machine, arm64.Machine, arm64.Machine, machine.Machine, arm64.Machine):
        kills.kill(boots.start(["sh", "-ec", f"{kills.start()}\n{kills.load()}"], kind, disks=disks), SECONDS)
    # written back by one, from dirty data of both, and found whole by the other
    print(boots.run(["sh", "-ec", f"{kills.start()}\n{kills.end()}"], SECONDS, kind=arm64.Machine, disks=disks).output())
    end = f"""larder super check /dev/vda
larder super check /dev/vdb
echo "0 65536 linear /dev/vdb 2048" | dmsetup create v
oracle verify {kills.oracle}
dmsetup remove v
{kills.damage()}"""
    print(boots.run(["sh", "-ec", end], disks=disks).output())
