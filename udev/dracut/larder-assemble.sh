#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# dracut sources this again and again while the root device is not there and udev has nothing to do: what is complete starts.
modprobe -q larder
# what root's volume, its cache, the other volumes of that, and the stores of its snapshots are on
if [ -s /etc/larder/lvs ]; then
	while read -r larder_name; do
		[ -e "/dev/$larder_name" ] || lvm lvchange -aay --sysinit "$larder_name" > /dev/null 2>&1 < /dev/null || :
	done < /etc/larder/lvs
	unset larder_name
fi
larder assemble --all > /dev/null 2>&1 || :
# what root is on: larder.conf is about what starts by itself, and root= asks for this
if [ -e /etc/larder/larder.conf ] && [ -s /etc/larder/root ]; then
	while read -r larder_name; do
		LARDER_CONF=/etc/larder/none larder assemble --conf "$larder_name" > /dev/null 2>&1 < /dev/null || :
	done < /etc/larder/root
	unset larder_name
fi
