#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# dracut sources this when two thirds of the time that it waits (rd.retry=) have gone by: root's volume starts, too, if nothing is lost by what
# is missing.  Of others nobody knows yet what is: their drivers, or what is below them, may not be in the initramfs.
larder_name=
# shellcheck disable=SC2154
case ${root-} in
block:/dev/mapper/* | block:/dev/larder/*) larder_name=${root##*/} ;;
esac
# where root is above the volume (LVM), or given by UUID=
larder_word=$(getarg larder.degraded=) && larder_name=$larder_word
if [ -n "$larder_name" ]; then
	modprobe -q larder
	larder assemble --degraded --conf "$larder_name" || :
fi
unset larder_name larder_word
