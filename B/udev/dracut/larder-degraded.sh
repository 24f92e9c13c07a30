#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# dracut sources this when two thirds of the time that it waits (rd.retry=) have gone by: root's volume starts, too, if nothing is lost by what
# is missing.  Of others nobody knows yet what is: their drivers, or what is below them, may not be in the initramfs.
larder_names='' larder_conf=/etc/larder/larder.conf
# shellcheck disable=SC2154
case ${root-} in
block:/dev/mapper/* | block:/dev/larder/*) larder_names=${root##*/} ;;
esac
# where root is above the volume (LVM), or given by UUID=: what the module has found out, or the word
[ ! -s /etc/larder/root ] || larder_names=$(cat /etc/larder/root)
# the latter whatever the file says
larder_word=$(getarg larder.degraded=) && larder_names=$larder_word && larder_conf=/etc/larder/none
for larder_name in $larder_names; do
	modprobe -q larder
	LARDER_CONF=$larder_conf larder assemble --degraded --conf "$larder_name" || :
done
# an array that is not here is waited for as long as root would be, and root may do without by now
if [ -n "$larder_names" ] && [ -s /etc/larder/arrays ]; then
	while read -r larder_name; do
		[ -e "/dev/disk/by-id/md-uuid-$larder_name" ] || cancel_wait_for_dev "/dev/disk/by-id/md-uuid-$larder_name"
	done < /etc/larder/arrays
	rm -f /etc/larder/arrays
fi
unset larder_names larder_name larder_word larder_conf
