// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Signatures of filesystems, RAID, encryption, volume managers, partition tables: all that libblkid knows, at the head and at
 * the tail.
 *
 * Damaged ones count (a checksum that fails today may be repaired tomorrow by a tool that then owns the device), and a GPT
 * counts by its backup alone.  Some things have several signatures (ZFS, GPT): each round of libblkid finds the next one.
 */
#include <blkid/blkid.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "message.h"
#include "signature.h"
#include "superblock.h"

#define LUKS2_LAST (4u << 20) /* bytes: as far as libblkid looks from the beginning */
#define MAX_ROUNDS 4096 /* a signature that comes back for ever is an error, not a hang */

static blkid_probe new_probe(const struct device *device)
{
	blkid_probe probe = blkid_new_probe();

	if (!probe)
		return NULL;
	if (blkid_probe_set_device(probe, device->fd, 0, 0)) {
		blkid_free_probe(probe);
		return NULL;
	}
	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE | BLKID_SUBLKS_LABEL | BLKID_SUBLKS_UUID |
							 BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_BADCSUM);
	blkid_probe_enable_partitions(probe, 1);
	blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
	return probe;
}

static const char *value(blkid_probe probe, const char *name)
{
	const char *data;

	return blkid_probe_lookup_value(probe, name, &data, NULL) ? NULL : data;
}

static const char *meaning(const char *type, const char *usage)
{
	static const struct {
		const char *type, *meaning;
	} known[] = {
		{ "LVM2_member", "LVM physical volume" },
		{ "LVM1_member", "LVM physical volume" },
		{ "crypto_LUKS", "LUKS encryption" },
		{ "linux_raid_member", "md RAID member" },
		{ "bcache", "bcache device" },
		{ "zfs_member", "ZFS pool member" },
		{ "ddf_raid_member", "DDF RAID member" },
		{ "isw_raid_member", "IMSM RAID member" },
		{ "swap", "swap area" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].type, type))
			return known[i].meaning;
	if (usage && !strcmp(usage, "filesystem"))
		return "filesystem";
	if (usage && !strcmp(usage, "raid"))
		return "RAID or volume manager member";
	if (usage && !strcmp(usage, "crypto"))
		return "encryption";
	return "signature";
}

static void add(blkid_probe probe, struct problems *found)
{
	const char *type = value(probe, "TYPE"), *table = value(probe, "PTTYPE");
	const char *offset = value(probe, type ? "SBMAGIC_OFFSET" : "PTMAGIC_OFFSET");
	const char *label = value(probe, "LABEL"), *uuid = value(probe, "UUID");

	if (!type && !table)
		return;
	problem(found, type ? type : table, "%s at byte %s%s%s%s%s",
		type ? meaning(type, value(probe, "USAGE")) : "partition table", offset ? offset : "?", label ? ", label " : "",
		label ? label : "", uuid ? ", UUID " : "", uuid ? uuid : "");
	text_clean(found->text[found->number - 1]); /* the label is whatever somebody has written there */
}

/*
 * libblkid takes the second header of LUKS2 for LUKS up to 4 MiB behind the beginning, and VMFS at 1 MiB and 2: the log of an SSD lies there, which has
 * what was written to any volume.  Does this one lie in front of that, or at the tail?
 */
static bool lies_outside_data(const struct device *device, blkid_probe probe, const char *what)
{
	static const unsigned char magic[2][6] = { "LUKS\xba\xbe", "SKUL\xba\xbe" };
	const char *text = value(probe, "SBMAGIC_OFFSET");
	unsigned long long offset = text ? strtoull(text, NULL, 10) : 0;
	unsigned char head[6];

	if (offset)
		return offset < LARDER_SEGMENTS_OFFSET || offset > LUKS2_LAST;
	if (strcmp(what, "crypto_LUKS"))
		return true;
	for (unsigned at = 0; at < LARDER_SEGMENTS_OFFSET; at = at ? at * 2 : 16384)
		if (pread(device->fd, head, sizeof(head), at) != sizeof(head) || !memcmp(head, magic[at != 0], sizeof(head)))
			return true;
	return false;
}

static bool counts(const struct device *device, blkid_probe probe, bool ours)
{
	const char *what = value(probe, "TYPE");

	return !ours || lies_outside_data(device, probe, what ? what : "");
}

/* One pass over everything on the device.  ours: see signatures_find().  Returns LARDER_DONE, or complains. */
static int pass(const struct device *device, bool wipe, bool ours, struct problems *found)
{
	blkid_probe probe;
	int result = 0, rounds = 0;

	if (device->block)
		ioctl(device->fd, BLKFLSBUF);
	probe = new_probe(device);
	if (!probe)
		return complain(LARDER_FAILED, "%s: libblkid cannot probe it: %s", device->path, strerror(errno));
	errno = 0;
	while (rounds++ < MAX_ROUNDS && !(result = blkid_do_probe(probe))) {
		if (found && counts(device, probe, ours))
			add(probe, found);
		if (wipe && blkid_do_wipe(probe, 0)) {
			result = -1;
			break;
		}
	}
	blkid_free_probe(probe);
	if (result < 0)
		return complain(LARDER_FAILED, "%s: libblkid cannot %s it: %s", device->path, wipe ? "wipe" : "probe",
				errno ? strerror(errno) : "no reason given");
	return LARDER_DONE;
}

int signatures_find(const struct device *device, bool ours, struct problems *found)
{
	return pass(device, false, ours, found);
}

bool signature_besides(const struct device *device, const char *mine, char *type, size_t size)
{
	blkid_probe probe = new_probe(device);
	int rounds = 0;
	bool found = false;

	while (probe && !found && rounds++ < MAX_ROUNDS && !blkid_do_probe(probe)) {
		const char *what = value(probe, "TYPE");

		what = what ? what : value(probe, "PTTYPE");
		found = what && strcmp(what, mine) && lies_outside_data(device, probe, what);
		if (found)
			snprintf(type, size, "%s", what);
	}
	if (probe)
		blkid_free_probe(probe);
	return found;
}

bool signature_of_others(const struct device *device, char *type, size_t size)
{
	return signature_besides(device, "larder_member", type, size);
}

int signature_is(const struct device *device, const char *type, bool *is)
{
	blkid_probe probe = new_probe(device);
	const char *found;
	int result;

	*is = false;
	errno = 0;
	result = probe ? blkid_do_safeprobe(probe) : -1;
	found = result ? NULL : value(probe, "TYPE");
	*is = found && !strcmp(found, type);
	if (result == -1)
		complain(LARDER_FAILED, "%s: libblkid cannot probe it: %s", device->path, errno ? strerror(errno) : "no reason given");
	if (probe)
		blkid_free_probe(probe);
	return result == -1 ? LARDER_FAILED : LARDER_DONE;
}

int signatures_wipe(const struct device *device)
{
	struct problems left = { 0 };
	int result = pass(device, true, false, NULL);

	if (!result && fsync(device->fd))
		result = complain(LARDER_FAILED, "%s: cannot flush it after wiping: %s", device->path, strerror(errno));
	if (!result && device->block && ioctl(device->fd, BLKRRPART) && errno != EINVAL && errno != ENOTTY)
		result = complain(LARDER_BUSY, "%s: its partitions are in use: %s; release them first", device->path,
				  strerror(errno));
	result = result ? result : signatures_find(device, false, &left);
	if (!result && left.number) {
		char *line = problems_line(&left);

		complain(LARDER_UNSAFE, "%s: still there after wiping: %s; try wipefs -a", device->path, line);
		free(line);
		result = LARDER_UNSAFE;
	}
	problems_free(&left);
	return result;
}
