# SPDX-License-Identifier: GPL-2.0-or-later
"""A system, by systemd, whose cache stands on disks that fail is shut down: it switches itself off, without a hand.

The volume is mounted, written to and read beside that, and dirty data is being written back.  What is left of it at the next start
is what a power cut leaves: other suites judge that.
"""

import re

import pytest
from host import plain, system
from lib import kernel_log

# of systemd, for each thing that it waits for in vain: 90 s, if nothing is said
PATIENCE = {"etc/systemd/system.conf.d/patience.conf": "[Manager]\nDefaultTimeoutStopSec=15s\n"}

WORK = r"""#!/bin/bash
words=" $(cat /proc/cmdline) "
word() { sed "s/.* $1=\([a-z0-9,]*\) .*/\1/" <<< "$words"; }
say() { echo "SYSTEM: $*"; }
which=$(word which)
control() { echo "$@" > /sys/kernel/debug/simdisk/ctl || say "cannot $*"; }

modprobe simdisk
modprobe larder
control add name=ssd0 model=null mb=48 wce=1 fua=1
control add name=hdd0 model=null mb=96 wce=1
udevadm settle
larder cache create fast --cache /dev/ssd0 --yes || say "cannot create"
larder cache start fast
larder volume create data --backing /dev/hdd0 --cache fast --mode writeback --yes || say "cannot create"
larder volume start data || say "cannot start"
mkfs.ext4 -q /dev/mapper/data
mount /dev/mapper/data /srv || say "cannot mount"
head -c 20M /dev/urandom > /srv/file
sync -f /srv
echo 3 > /proc/sys/vm/drop_caches
dmsetup status data | grep -q ' dirty_sectors=0 ' && say "nothing is dirty"
for disk in ${which//,/ }; do
	control fail name=$disk op=read,write,flush,discard,zeroes status=ioerr
done
dmsetup message data 0 flush &
setsid bash -c 'while :; do head -c 1M /dev/urandom > /srv/new; sync -f /srv; done' < /dev/null > /dev/null 2>&1 &
setsid bash -c 'while :; do dd if=/dev/mapper/data of=/dev/null bs=1M iflag=direct; done' < /dev/null > /dev/null 2>&1 &
sleep 5
say "$(dmsetup status --noflush data | grep -o ' in_flight[^ ]*\| flushing=[^ ]*' | xargs)"
say "off it goes"
systemctl --no-block poweroff # the unit itself would first wait for what it has started
"""


@pytest.fixture
def root(directory):
    disk = system.image(directory, WORK, simulated=True, files=PATIENCE)
    yield disk
    disk.unlink()


def test_off_with_all_of_it_failing(initramfs, root):
    words = "which=ssd0,hdd0 systemd.mask=serial-getty@ttyS0.service"
    console = plain.boot("failing", initramfs, [root], words, memory=1024)
    bad = kernel_log.bad_lines(console.splitlines())
    assert not bad, "kernel log:\n" + "\n".join(bad)
    said = re.findall(r"SYSTEM: (.*?)\r?$", console, re.MULTILINE)
    assert said[-1:] == ["off it goes"] and len(said) == 2, console[-6000:]
    assert "reboot: Power down" in console, console[-6000:]
