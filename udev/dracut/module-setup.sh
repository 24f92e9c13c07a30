#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# dracut(8): puts larder into the initramfs, so that the root filesystem may be on a volume.  dracut sources this file; its functions and
# variables (hostonly, moddir, inst_*) are dracut.modules(7)'s; that it has not (for_each_host_dev_and_slaves) is multipath's module's, too.

# As PREFIX of make install has it.
larder_program() {
	echo "${LARDER_PROGRAM:-/usr/sbin/larder}"
}

# What / and /usr are on.
root_is_on() {
	"${LARDER_ROOT:-/usr/lib/udev/larder-root}" "$@"
}

# Ends dracut, which writes beside it, and goes on whatever a function of ours returns, where the image of before may boot: what it has is not known, or the
# module is in it.  Any other is made anew.
keep_image() {
	local listed
	# shellcheck disable=SC2154
	[ -e "${outfile-}" ] || return 0
	if listed=$(lsinitrd "$outfile" 2> /dev/null); then
		[[ $listed == */larder.ko* ]] || return 0
	fi
	dfatal "larder: $outfile stays as it is"
	exit 1
}

# MAJOR:MINOR
is_volume() {
	[[ $(cat "${LARDER_SYS:-/sys}/dev/block/$1/dm/uuid" 2> /dev/null) == LARDER-* ]]
}

# 0: it belongs in; 255: only if another module, or the user, asks for it.  Not by host_fs_types: blkid, which dracut asks, knows no larder_member.
check() {
	if ! require_binaries "$(larder_program)" /usr/lib/udev/larder-probe; then
		dwarn "larder: $(larder_program), or larder-probe, is not there: this initramfs finds no volume; make install install-daemon, with one PREFIX for both"
		[ -z "$(root_is_on)" ] || keep_image
		return 1
	fi
	# shellcheck disable=SC2154
	if [ -n "$hostonly" ] || [ -n "$mount_needs" ]; then
		# root; what else the initramfs is to find, as swap for a resume
		[ -n "$(root_is_on)" ] || for_each_host_dev_and_slaves is_volume || return 255
	fi
	return 0
}

# The LUKS layers of volumes that root is on, a line each: mapping, UUID of the header, volume.
encrypted() {
	root_is_on --luks || :
}

depends() {
	echo dm rootfs-block
	[ -z "$(encrypted)" ] || echo crypt
	[ -z "$(root_is_on --arrays)" ] || echo mdraid
	[ -z "$(root_is_on --lvs)" ] || echo lvm
}

installkernel() {
	# also where dracut takes only what this machine has loaded
	# dm_snapshot always: a snapshot may be younger than the image.  The last two for arrays with dm-integrity below; what a kernel has built in is
	# passed over.
	hostonly='' instmods dm_mod larder dm_snapshot dm_integrity crc32c_generic
	# algorithms of an encrypted root, whichever these are: what the kernel has in use
	# shellcheck disable=SC2046
	[ -z "$(encrypted)" ] || hostonly='' instmods dm_crypt $(sed -n 's/^module *: //p' "${LARDER_CRYPTO:-/proc/crypto}" | sort -u)
}

# The module crypt asks for the passphrase, and opens it, by the name that the stack has for it: where systemd runs, by crypttab, else by the words.
# Its own install(), which has come before this one, takes of /etc/crypttab what root is on; the LUKS layer of a stack has no line there.
install_encrypted() {
	local mapping header volume options
	while read -r mapping header volume; do
		# what the administrator says of it counts
		! sed 's/^[[:space:]]*//; s/[[:space:]].*//' "${LARDER_CRYPTTAB:-/etc/crypttab}" 2> /dev/null | grep -Fqx -e "$mapping" || continue
		[ "$mapping" = "$volume-crypt" ] ||
			dwarn "larder: root is unlocked as $mapping: of a stack larder takes $volume-crypt for unlocked, and no other"
		options=luks,x-initrd.attach
		! dmsetup table "$mapping" | grep -qw allow_discards || options=$options,discard
		# shellcheck disable=SC2154
		mkdir -p "$initdir/etc/cmdline.d"
		echo "$mapping /dev/disk/by-uuid/$header none $options" >> "$initdir/etc/crypttab"
		echo "rd.luks.uuid=$header rd.luks.name=$header=$mapping" >> "$initdir/etc/cmdline.d/90larder.conf"
	done < <(encrypted)
}

# Of md the module mdraid starts what the words name; an image for any machine has none, nor has one for this machine always.
install_arrays() {
	local array uuid
	for array in $(root_is_on --arrays || :); do
		uuid=$(mdadm --detail --export "/dev/$array" | sed -n 's/^MD_UUID=//p')
		[ -n "$uuid" ] || continue
		# shellcheck disable=SC2154
		mkdir -p "$initdir/etc/cmdline.d"
		echo "rd.md.uuid=$uuid" >> "$initdir/etc/cmdline.d/90larder.conf"
		echo "$uuid" >> "$initdir/etc/larder/arrays"
	done
}

# The other volumes of root's cache: where one is not seen that does not start without an SSD.  Arrays and logical volumes are among those of root.
install_others() {
	local volume device
	while read -r volume device; do
		# shellcheck disable=SC2154
		! sed 's/[[:space:]].*//' "$initdir/etc/crypttab" 2> /dev/null | grep -Fqx -e "$device" || continue
		dwarn "larder: root's cache has the volume $volume, too, which is not seen in the initramfs (on $device): when an SSD is missing root does not start; give $volume another cache"
	done < <(root_is_on --far || :)
}

install() {
	local id=${LARDER_MACHINE_ID:-/etc/machine-id}
	# shellcheck disable=SC2154
	inst "$(larder_program)" /sbin/larder
	inst_multiple /usr/lib/udev/larder-probe
	inst_rules 11-dm-larder.rules 56-dm-larder.rules 62-z-larder.rules 63-md-z-larder.rules
	inst_multiple -o /etc/larder/larder.conf
	# whose the stacks are: without it those that name a machine do not start there.  systemd's module makes an empty one for any machine.
	# shellcheck disable=SC2154
	if [ -s "$id" ] && [ ! -s "$initdir/etc/machine-id" ]; then
		mkdir -p "$initdir/etc"
		cp --remove-destination "$id" "$initdir/etc/machine-id"
	fi
	# which volume root is on: root=UUID=... does not say it
	# shellcheck disable=SC2154
	mkdir -p "$initdir/etc/larder"
	if ! root_is_on > "$initdir/etc/larder/root"; then
		rm -f "$initdir/etc/larder/root"
		dwarn "larder: it cannot be found out which volume root is on: if it is on one, put larder.degraded=NAME on the kernel's command line, or it does not start there when an SSD is missing"
	fi
	# shellcheck disable=SC2154
	if [ -s "$initdir/etc/larder/root" ] && ! modinfo -k "$kernel" larder > /dev/null 2>&1; then
		dwarn "larder: root, or /usr, is on a volume, and the kernel $kernel has no module larder: by this initramfs it does not boot; dkms autoinstall -k $kernel, then dracut --force --kver $kernel"
		# that of before may boot: a build of the module has failed since, or its headers are gone
		keep_image
	fi
	install_arrays
	install_others
	# below the volume, the others of its cache, and stores of snapshots, to which nothing leads from root: the module lvm starts no others where the words name some
	root_is_on --lvs > "$initdir/etc/larder/lvs" || :
	[ -s "$initdir/etc/larder/lvs" ] || rm -f "$initdir/etc/larder/lvs"
	install_encrypted
	# shellcheck disable=SC2154
	inst_hook initqueue/settled 70 "$moddir/larder-assemble.sh"
	# shellcheck disable=SC2154
	inst_hook initqueue/timeout 70 "$moddir/larder-degraded.sh"
	dracut_need_initqueue
}
