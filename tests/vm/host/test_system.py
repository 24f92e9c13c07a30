# SPDX-License-Identifier: GPL-2.0-or-later
"""A whole system, by systemd: stacks that `larder create` made are mounted after a reboot, without a hand.

Each boot of these machines runs WORK with the word `phase=` of its command line; what it sees it says in lines with SYSTEM.
What a filesystem must hold is what was written and synced at the boot before.
"""

import re
from pathlib import Path

import pytest
from host import plain, system
from lib import kernel_log

# of systemd-shutdown, when nothing is left
TAKEN_APART = "All filesystems, swaps, loop devices, MD devices and DM devices detached."
PASSPHRASE = "telltale of a passphrase"

WORK = (
    r"""#!/bin/bash
phase=$(sed 's/.*phase=\([a-z]*\).*/\1/' /proc/cmdline)
say() { echo "SYSTEM: $phase: $*"; }
disks=/dev/disk/by-id/virtio
secret='"""
    + PASSPHRASE
    + r"""'

# fill DIR: a file with what is in it, durable
fill() {
	head -c 300000 /dev/urandom > "$1/content" || say "cannot write to $1"
	(cd "$1" && sha256sum content > sum && sync -f .) || say "cannot write to $1"
}
check() { (cd "$1" && mountpoint -q . && sha256sum --quiet -c sum) && say "$1 holds what was written" || say "$1 is WRONG"; }
# arrives DIR...: until each is mounted
arrives() { for d; do for ((i = 0; i < 600; i++)); do mountpoint -q "$d" && break; sleep 0.5; done; done; }
# questions of password agents that are open now, by file
questions() { grep -l '^Id=larder:' /run/systemd/ask-password/ask.* 2> /dev/null; }
answer() { printf %s "$2" | /lib/systemd/systemd-reply-password 1 "$(sed -n 's/^Socket=//p' "$1")"; }

# words and environment of all processes, which must not have the passphrase in them
watch() {
	while [ ! -e /run/enough ]; do
		grep -l -a -F -f <(printf %s "$secret") /proc/[0-9]*/cmdline /proc/[0-9]*/environ >> /run/seen 2> /dev/null
		sleep 0.1
	done
}

udevadm settle
case $phase in
create)
	mkdir -p /srv/data /srv/one-by-one /srv/other
	head -c 64 /dev/urandom > /etc/larder.key
	chmod 600 /etc/larder.key
	larder create data --backing $disks-hdd0 --backing $disks-hdd1 --backing $disks-hdd2 --raid 5 \
		--cache $disks-ssd0 --cache $disks-ssd1 --encrypt luks2:keyfile=/etc/larder.key --iter-time 10 --mkfs ext4 \
		--mount /srv/data --yes || say "cannot create data"
	for name in one-by-one other; do
		printf %s "$secret" | larder create $name --backing $disks-$name --cache data --encrypt luks2 --iter-time 10 --mkfs ext4 \
			--mount /srv/$name --yes || say "cannot create $name"
	done
	for d in data one-by-one other; do fill /srv/$d; done
	for array in /dev/md[0-9]*; do mdadm --wait "$array"; done # its last disk is made from the others
	systemctl is-active srv-data.mount 'srv-one\x2dby\x2done.mount' srv-other.mount | xargs echo "SYSTEM: $phase: mount units"
	;;
whole|degraded)
	arrives /srv/data
	check /srv/data
	for ((i = 0; i < 600; i++)); do [ "$(questions | wc -l)" = 2 ] && break; sleep 0.5; done
	say "$(questions | wc -l) questions: $(questions | xargs sed -n 's/^Message=//p' | sort | xargs)"
	say "they end at $(questions | xargs sed -n 's/^NotAfter=//p' | sort -u)"
	mountpoint -q /srv/other && say "other is open without a passphrase"
	watch &
	answer "$(questions | head -n 1)" "$secret"
	arrives /srv/one-by-one /srv/other
	check /srv/one-by-one
	check /srv/other
	say "$(questions | wc -l) questions left"
	touch /run/enough
	wait
	sort -u /run/seen | xargs -r echo "SYSTEM: SEEN in"
	journalctl -q | grep -q -F -f <(printf %s "$secret") && say "SEEN in the journal"
	systemctl list-jobs --no-legend | grep -e larder -e srv -e crypt | xargs -r echo "SYSTEM: jobs"
	larder status data; say "status $?"
	fill /srv/data
	;;
esac
systemctl list-units --failed --no-legend | grep -e larder -e srv -e crypt | xargs -r echo "SYSTEM: failed units"
sync
"""
)


@pytest.fixture
def root(directory):
    disk = system.image(directory, WORK)
    yield disk
    disk.unlink()


@pytest.fixture
def boot(initramfs, root):
    def run(phase: str, disks: list[Path], append: str = "") -> tuple[list[str], str]:
        """What it said, and its console."""
        words = f"phase={phase} systemd.mask=serial-getty@ttyS0.service {append}"
        words += " systemd.mask=systemd-ask-password-console.path"  # its agent hangs up the console that WORK speaks on
        console = plain.boot(phase, initramfs, [root, *disks], words, memory=1024)
        bad = kernel_log.bad_lines(console.splitlines())
        assert not bad, f"kernel log of the boot {phase}:\n" + "\n".join(bad)
        assert TAKEN_APART in console, "systemd-shutdown left something mounted, or mapped"
        return re.findall(rf"SYSTEM: (?:{phase}: )?(.*?)\r?$", console, re.MULTILINE), console

    return run


def test_reboot(boot, make_disk_file):
    """Made; whole; without a disk and an SSD.  The key file opens one stack; one answer the two that share a passphrase."""
    hdds = [make_disk_file(f"hdd{i}", 96) for i in range(3)]
    singles = [make_disk_file(name, 96) for name in ("one-by-one", "other")]
    ssds = [make_disk_file(f"ssd{i}", 48) for i in range(2)]
    said, console = boot("create", [*hdds, *singles, *ssds])
    assert said == ["mount units active active active"], console[-6000:]
    for phase, disks in (("whole", [*ssds, *hdds, *singles]), ("degraded", [*hdds[1:], *singles, ssds[1]])):
        said, console = boot(phase, disks)
        assert said == [
            "/srv/data holds what was written",
            "2 questions: Passphrase of the stack one-by-one Passphrase of the stack other",
            "they end at 0",
            "/srv/one-by-one holds what was written",
            "/srv/other holds what was written",
            "0 questions left",
            "status 0" if phase == "whole" else "status 10",
        ], console[-6000:]
