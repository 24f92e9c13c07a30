#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What the second machine of `make demo` does at the end of each of its boots; the word phase= of its command line says at which.  It is a Debian
# with systemd: what comes up before this does so by itself.  What the onlooker sees goes to the second serial port.
stty -F /dev/ttyS1 -onlcr
exec > /dev/ttyS1 2>&1
phase=$(sed 's/.*phase=\([a-z]*\).*/\1/' /proc/cmdline)
disks=/dev/disk/by-id/virtio
key=/etc/larder.key

say() { printf '   %s\n' "$@"; }
# run SHELL-COMMAND: shown, then run
run() {
	printf '   $ %s\n' "$1"
	bash -o pipefail -c "$1" 2>&1 | sed 's/^/     /'
	return "${PIPESTATUS[0]}"
}
# what the filesystem holds, against what was written
check() {
	for ((i = 0; i < 600; i++)); do mountpoint -q /srv/data && break; sleep 0.5; done
	run 'findmnt -o TARGET,SOURCE,FSTYPE,SIZE,USED /srv/data'
	run 'lsblk --nodeps -o NAME,SIZE,SERIAL /dev/vd?'
	run 'larder list'
	run 'larder status data'
	if (cd /srv/data && sha256sum --quiet --check /root/sums); then
		say "=> $(wc -l < /root/sums) files, each as it was written"
	else
		say "=> WRONG: not what was written"
	fi
}

udevadm settle
case $phase in
create)
	run 'lsblk --nodeps -o NAME,SIZE,SERIAL /dev/vd?'
	(umask 077; head -c 64 /dev/urandom > $key)
	mkdir -p /srv/data
	run "larder create data --backing $disks-hdd0 --backing $disks-hdd1 --backing $disks-hdd2 --raid 5 \\
	--cache $disks-ssd0 --cache $disks-ssd1 --encrypt luks2:keyfile=$key --iter-time 10 \\
	--mkfs ext4 --mount /srv/data --yes" || say "=> WRONG: it could not be made"
	run 'larder list'
	run 'cp -r /usr/bin /etc /srv/data/ && sync'
	(cd /srv/data && find . -type f -print0 | sort -z | xargs -0 sha256sum > /root/sums)
	for array in /dev/md[0-9]*; do mdadm --wait "$array"; done # its last disk is made from the others
	say "=> $(wc -l < /root/sums) files written"
	;;
*) check;;
esac
sync
