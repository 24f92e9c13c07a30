# SPDX-License-Identifier: GPL-2.0-or-later
"""A whole system with a stack whose disk comes by the network (NBD, on loopback, by Debian's unit): boots, and shutdowns.

Of another one the store of a snapshot does so.

The server ends behind its client, as a network does, and is not there at all with a word on the command line.
"""

import re

import pytest
from host import system

PACKAGES = ",nbd-client,nbd-server,lvm2"
FILES = {
    "etc/systemd/system/server.service": """[Unit]
DefaultDependencies=no
After=systemd-remount-fs.service
Conflicts=shutdown.target
ConditionKernelCommandLine=!larder_test_away
[Service]
# not -d, which serves one disk alone
Type=forking
PIDFile=/run/server.pid
ExecStart=/bin/nbd-server -C /etc/server -p /run/server.pid
ExecStartPost=/bin/sh -c 'while ! grep -q ":2A39 .* 0A " /proc/net/tcp; do sleep 0.2; done'
""",
    "etc/systemd/system/nbd@.service.d/server.conf": """[Unit]
Requires=server.service
After=server.service
ConditionKernelCommandLine=!larder_test_away
[Service]
# "already in use", while udev's probe of the empty device has it open
Restart=on-failure
RestartSec=1
""",
    "etc/server": """[generic]
listenaddr = 127.0.0.1
port = 10809
[disk]
exportname = /disk.img
[store]
exportname = /store.img
""",
    "etc/modules-load.d/nbd.conf": "nbd\n",
    "etc/nbdtab": "nbd0 127.0.0.1 disk\nnbd1 127.0.0.1 store\n",
    "etc/systemd/journald.conf.d/keep.conf": "[Journal]\nStorage=persistent\n",
}

WORK = (
    system.SHELL
    + r"""
udevadm settle
in_fstab() { grep -c '/srv/.*_netdev,x-systemd.after=larder-network.service' /etc/fstab; }
case $phase in
create)
	truncate -s 96M /disk.img
	truncate -s 32M /store.img
	for nbd in nbd@nbd0.service nbd@nbd1.service; do
		systemctl add-wants --quiet multi-user.target $nbd
		systemctl start $nbd || say "no disk"
	done
	journalctl -q -b -o cat -u nbd@nbd0.service -u nbd@nbd1.service -u server.service > /dev/ttyS0
	say "a disk of $(lsblk -nbo SIZE /dev/nbd0)"
	mkdir -p /srv/net /srv/here
	larder create net --backing /dev/nbd0 --cache $disks-ssd --mode writeback --mkfs ext4 --mount /srv/net --yes ||
		say "cannot create net"
	larder create here --backing $disks-hdd --cache $disks-fast --mode writeback --mkfs ext4 --mount /srv/here --yes ||
		say "cannot create here"
	fill /srv/net
	fill /srv/here
	say "netdev $(in_fstab)"
	larder snapshot create net@one --store $disks-keep || say "no snapshot of net"
	larder snapshot create here@one --store /dev/nbd1 || say "no snapshot of here"
	say "netdev $(in_fstab)"
	for stack in net here; do
		sha256sum < /dev/mapper/$stack@one > /root/$stack.sum
		fill /srv/$stack
	done
	;;
there)
	arrives /srv/net /srv/here
	for stack in net here; do
		check /srv/$stack
		larder status $stack; say "status $?"
		sha256sum < /dev/mapper/$stack@one | cmp -s - /root/$stack.sum && say "$stack@one is what it was" ||
			say "$stack@one is WRONG: $(larder snapshot list | xargs)"
		fill /srv/$stack
	done
	say "before: $(journalctl -q -b -1 -o cat -u larder-network.service -t larder | sort | xargs)"
	;;
away)
	say "$(systemctl is-active local-fs.target remote-fs.target | xargs)"
	mountpoint -q /srv/net && say "it is mounted"
	mountpoint -q /srv/here && say "here is mounted without its store"
	larder status net; say "status $?"
	;;
esac
"""
    + system.SHELL_END
)

# what the kernel says of a disk that went too early
BAD = re.compile("I/O error, dev nbd|Invalidating snapshot")


@pytest.fixture
def root(directory):
    disk = system.image(directory, WORK, PACKAGES, files=FILES, modules=["nbd", "dm_snapshot", "loop"])
    yield disk
    disk.unlink()


def test_disk_by_the_network(boot, make_disk_file):
    """Mounted by itself, stopped before its disk goes, with dirty data, which are there again; a boot does not wait for it.

    So is a stack whose snapshot alone needs the network; snapshots of both are what they were.
    """
    disks = [make_disk_file(*d) for d in (("ssd", 48), ("keep", 32), ("hdd", 96), ("fast", 48))]
    said, console = boot("create", disks)
    assert not BAD.search(console), console[-6000:]
    assert said == [f"a disk of {96 << 20}", "netdev 1", "netdev 2"], console[-6000:]
    there = [x for s in ("net", "here") for x in (f"/srv/{s} holds what was written", "status 0", f"{s}@one is what it was")]
    for phase, before in (("there", " here: stopped net: stopped"), ("away", None), ("there", " ")):
        words = "larder_test_away" if phase == "away" else ""
        said, console = boot(phase, disks, words)
        assert not BAD.search(console), console[-6000:]
        assert said == ([*there, f"before:{before}"] if phase == "there" else ["active active", "status 11"]), console[-6000:]
