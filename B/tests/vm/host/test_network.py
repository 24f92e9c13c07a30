# SPDX-License-Identifier: GPL-2.0-or-later
"""A whole system with a stack whose disk comes by the network (NBD, on loopback, by Debian's unit): boots, and shutdowns.

The server ends behind its client, as a network does, and is not there at all with a word on the command line.
"""

import pytest
from host import system

PACKAGES = ",nbd-client,nbd-server"
FILES = {
    "etc/systemd/system/server.service": """[Unit]
DefaultDependencies=no
After=systemd-remount-fs.service
Conflicts=shutdown.target
ConditionKernelCommandLine=!larder_test_away
[Service]
ExecStart=/bin/nbd-server -C /etc/server -d
ExecStartPost=/bin/sh -c 'while ! grep -q ":2A39 .* 0A " /proc/net/tcp; do sleep 0.2; done'
""",
    "etc/systemd/system/nbd@nbd0.service.d/server.conf": """[Unit]
Requires=server.service
After=server.service
ConditionKernelCommandLine=!larder_test_away
[Service]
# "already in use", while udev's probe of the empty device has it open
Restart=on-failure
RestartSec=1
""",
    "etc/server": "[generic]\nlistenaddr = 127.0.0.1\nport = 10809\n[disk]\nexportname = /disk.img\n",
    "etc/modules-load.d/nbd.conf": "nbd\n",
    "etc/nbdtab": "nbd0 127.0.0.1 disk\n",
}

WORK = (
    system.SHELL
    + r"""
udevadm settle
case $phase in
create)
	truncate -s 96M /disk.img
	systemctl add-wants --quiet multi-user.target nbd@nbd0.service
	systemctl start nbd@nbd0.service || say "no disk"
	journalctl -q -b -o cat -u nbd@nbd0.service -u server.service > /dev/ttyS0
	say "a disk of $(lsblk -nbo SIZE /dev/nbd0)"
	mkdir -p /srv/net
	larder create net --backing /dev/nbd0 --cache $disks-ssd --mode writeback --mkfs ext4 --mount /srv/net --yes ||
		say "cannot create net"
	fill /srv/net
	grep -c '/srv/net.*_netdev' /etc/fstab | xargs echo "SYSTEM: $phase: netdev"
	;;
there)
	arrives /srv/net
	check /srv/net
	larder status net; say "status $?"
	fill /srv/net
	;;
away)
	say "$(systemctl is-active local-fs.target remote-fs.target | xargs)"
	mountpoint -q /srv/net && say "it is mounted"
	larder status net; say "status $?"
	;;
esac
"""
    + system.SHELL_END
)


@pytest.fixture
def root(directory):
    disk = system.image(directory, WORK, PACKAGES, files=FILES, modules=["nbd"])
    yield disk
    disk.unlink()


def test_disk_by_the_network(boot, make_disk_file):
    """Mounted by itself, stopped before its disk goes, with dirty data, which are there again; a boot does not wait for it."""
    disks = [make_disk_file("ssd", 48)]
    said, console = boot("create", disks)
    assert "I/O error, dev nbd0" not in console, console[-6000:]
    assert said == [f"a disk of {96 << 20}", "netdev 1"], console[-6000:]
    for phase in ("there", "away", "there"):
        words = "larder_test_away" if phase == "away" else ""
        said, console = boot(phase, disks, words)
        assert "I/O error, dev nbd0" not in console, console[-6000:]
        there = ["/srv/net holds what was written", "status 0"]
        assert said == (there if phase == "there" else ["active active", "status 11"]), console[-6000:]
