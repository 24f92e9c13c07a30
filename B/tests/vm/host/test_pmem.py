# SPDX-License-Identifier: GPL-2.0-or-later
"""Persistent memory, which the kernel takes out of the machine's own: a cache and a volume on it work through the block layer, and
the volume offers no DAX, as bytes stored past the cache would be no writes to it."""

SCRIPT = """
set -eux
modprobe nd_e820 && modprobe nd_pmem
[ -b /dev/pmem0 ] && [ -b /dev/pmem1 ]
[ "$(cat /sys/block/pmem1/queue/dax)" = 1 ]
mkdir -p /tmp/m && mkfs.ext4 -q -b 4096 /dev/pmem1
mount -o dax=always /dev/pmem1 /tmp/m && umount /tmp/m          # this kernel can
wipefs -qa /dev/pmem1
larder cache create fast --cache /dev/pmem0 --yes
larder cache start fast
larder volume create data --backing /dev/pmem1 --cache fast --mode writeback --yes
larder volume start data
mkfs.ext4 -q -b 4096 /dev/mapper/data
[ "$(cat /sys/block/$(dmsetup info -c --noheadings -o blkdevname data)/queue/dax)" = 0 ]
if mount -o dax=always /dev/mapper/data /tmp/m; then echo 'mounted with DAX'; exit 1; fi
dmesg | grep -i 'dax unsupported by block device'
mount /dev/mapper/data /tmp/m
head -c 8M /dev/urandom >/tmp/m/file && sum=$(md5sum </tmp/m/file)
umount /tmp/m
larder volume stop data && larder cache stop fast
larder cache start fast && larder volume start data
mount -o ro /dev/mapper/data /tmp/m
[ "$(md5sum </tmp/m/file)" = "$sum" ]
umount /tmp/m
e2fsck -fn /dev/mapper/data
larder volume stop data && larder cache stop fast
"""


def test_no_dax(boots):
    boots.run(["/bin/bash", "-c", SCRIPT], append="memmap=64M!1G memmap=128M!1152M")
