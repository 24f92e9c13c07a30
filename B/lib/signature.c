// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Signatures of filesystems, RAID, encryption, volume managers, partition tables: all that libblkid knows, at the head and at
 * the tail.
 *
 * Damaged ones count (a checksum that fails today may be repaired tomorrow by a tool that then owns the device), and a GPT
 * counts by its backup alone.  Some things have several signatures (ZFS, GPT): each round of libblkid finds the next one.
 */
#include <blkid/blkid.h>
#include <endian.h>
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

/* Does the magic of LUKS lie in front of where data begin?  Not every libblkid says which of the places it was. */
static bool luks_in_head(const struct device *device, uint64_t end)
{
	static const unsigned char magic[2][6] = { "LUKS\xba\xbe", "SKUL\xba\xbe" };
	unsigned char head[6];

	for (unsigned at = 0; at < end && at <= LUKS2_LAST; at = at ? at * 2 : 16384)
		if (pread(device->fd, head, sizeof(head), at) != sizeof(head) || !memcmp(head, magic[at != 0], sizeof(head)))
			return true;
	return false;
}

/*
 * Positions that libblkid looks at lie among the data of members as well: where data begin early the positions of all (ZFS, UFS); the second header of
 * LUKS2 up to 4 MiB behind the beginning, and VMFS at 1 MiB and 2, in the log of an SSD, which has what was written to any volume; and all those at the
 * end.  Behind what the member takes of the device (the leg of a mirror of others, or what DRBD lies upon, which larder sees through) it is an owner's.
 */
static enum signature_place place_of(const struct device *device, const struct contents *ours, const char *type, uint64_t offset)
{
	if (!ours || ours->begin >= ours->end || offset >= ours->end)
		return SIGNATURE_OUTSIDE;
	if (!offset && !strcmp(type, "crypto_LUKS"))
		return luks_in_head(device, ours->begin) ? SIGNATURE_OUTSIDE : SIGNATURE_DATA;
	if (offset < ours->begin)
		return SIGNATURE_OUTSIDE;
	if (offset >= ours->data_end)
		return SIGNATURE_RESERVE;
	return offset <= LUKS2_LAST ? SIGNATURE_DATA : SIGNATURE_TAIL;
}

static void add(blkid_probe probe, const struct signature *one, struct signatures *found)
{
	const char *type = value(probe, "TYPE"), *label = value(probe, "LABEL"), *uuid = value(probe, "UUID");
	struct signature *added;

	found->signature = must_allocate(realloc(found->signature, (found->number + 1) * sizeof(*added)));
	added = &found->signature[found->number++];
	*added = *one;
	added->text = must_print("%s: %s at byte %" PRIu64 "%s%s%s%s", one->type, type ? meaning(type, value(probe, "USAGE")) : "partition table", one->offset,
				 label ? ", label " : "", label ? label : "", uuid ? ", UUID " : "", uuid ? uuid : "");
	text_clean(added->text); /* the label is whatever somebody has written there */
}

/* Of those that are hidden, as ZFS has them by the hundred, one of a kind is told of. */
static bool is_told(const struct signatures *found, const struct signature *one)
{
	for (size_t i = 0; one->place != SIGNATURE_OUTSIDE && i < found->number; i++)
		if (found->signature[i].place == one->place && !strcmp(found->signature[i].type, one->type))
			return true;
	return false;
}

static const char *force_of(const struct signature *one)
{
	return one->nested ? "--force " : "";
}

/* What libblkid has found now.  False: nothing that is named. */
static bool read_signature(blkid_probe probe, const struct device *device, const struct contents *ours, struct signature *one)
{
	const char *type = value(probe, "TYPE"), *table = value(probe, "PTTYPE"), *offset = value(probe, type ? "SBMAGIC_OFFSET" : "PTMAGIC_OFFSET");

	if (!type && !table)
		return false;
	*one = (struct signature){ .offset = offset ? strtoull(offset, NULL, 10) : 0, .nested = !type && !blkid_probe_is_wholedisk(probe) };
	snprintf(one->type, sizeof(one->type), "%s", type ? type : table);
	snprintf(one->wipefs, sizeof(one->wipefs), "%s--offset %" PRIu64, force_of(one), one->offset);
	one->place = place_of(device, ours, one->type, one->offset);
	return true;
}

/*
 * One pass over everything on the device.  What lies among the data of a member is hidden from libblkid, which looks for one of each kind only: md's at
 * the end would else hide md's at the beginning.  Returns 0, or -1.
 */
static int probe_all(blkid_probe probe, const struct device *device, const struct contents *ours, bool wipe, struct signatures *found)
{
	struct signature one, last = { 0 };
	int result = 0, rounds = 0;

	errno = 0;
	while (rounds++ < MAX_ROUNDS && !(result = blkid_do_probe(probe))) {
		bool named = read_signature(probe, device, ours, &one), again = named && last.offset == one.offset && !strcmp(last.type, one.type);

		if (named && found && !again && (!ours || strcmp(one.type, "larder_member")) && !is_told(found, &one))
			add(probe, &one, found);
		if (wipe ? blkid_do_wipe(probe, 0) : named && one.place != SIGNATURE_OUTSIDE && !again && blkid_do_wipe(probe, 1))
			return -1;
		last = named ? one : last;
	}
	return result < 0 ? -1 : 0;
}

static int pass(const struct device *device, const struct contents *ours, bool wipe, struct signatures *found)
{
	blkid_probe probe;
	int result;

	if (device->block)
		ioctl(device->fd, BLKFLSBUF);
	probe = new_probe(device);
	if (!probe)
		return complain(LARDER_FAILED, "%s: libblkid cannot probe it: %s", device->path, strerror(errno));
	result = probe_all(probe, device, ours, wipe, found);
	blkid_free_probe(probe);
	if (result)
		return complain(LARDER_FAILED, "%s: libblkid cannot %s it: %s", device->path, wipe ? "wipe" : "probe",
				errno ? strerror(errno) : "no reason given");
	return LARDER_DONE;
}

int signatures_find(const struct device *device, const struct contents *ours, struct signatures *found)
{
	return pass(device, ours, false, found);
}

void signatures_free(struct signatures *found)
{
	for (size_t i = 0; i < found->number; i++)
		free(found->signature[i].text);
	free(found->signature);
	*found = (struct signatures){ 0 };
}

char *signatures_line(const struct signatures *found, unsigned places)
{
	char *line = must_print("%s", "");

	for (size_t i = 0; i < found->number; i++) {
		char *longer;

		if (!(places & 1u << found->signature[i].place))
			continue;
		longer = must_print("%s%s%s", line, *line ? "; " : "", found->signature[i].text);
		free(line);
		line = longer;
	}
	return line;
}

bool signature_is_behind(const union superblock *sb, const struct signature *signature)
{
	return signature->offset >= le64toh(sb->head.device_sectors) << LARDER_SECTOR_SHIFT;
}

/* sb: with it those behind its device come last, and are called so; or NULL. */
static bool besides(const struct device *device, const struct contents *ours, const union superblock *sb, const char *mine, struct signature_others *others)
{
	struct signatures found = { 0 };
	blkid_probe probe = new_probe(device);
	const struct signature *first = NULL;
	bool among_data = false;

	others->behind = false;
	if (probe)
		probe_all(probe, device, ours, false, &found);
	for (size_t i = 0; i < found.number; i++) {
		const struct signature *s = &found.signature[i];
		bool behind = sb && signature_is_behind(sb, s);

		if (s->place != SIGNATURE_OUTSIDE || !strcmp(s->type, mine) || (first && (behind || !others->behind)))
			continue;
		first = s;
		others->behind = behind;
	}
	for (size_t i = 0; first && i < found.number; i++)
		among_data |= found.signature[i].place != SIGNATURE_OUTSIDE && !strcmp(found.signature[i].type, first->type);
	if (first) {
		snprintf(others->type, sizeof(others->type), "%s", first->type);
		if (among_data)
			snprintf(others->wipefs, sizeof(others->wipefs), "%s", first->wipefs);
		else
			snprintf(others->wipefs, sizeof(others->wipefs), "%s--types %s --all", force_of(first), first->type);
	}
	signatures_free(&found);
	if (probe)
		blkid_free_probe(probe);
	return first;
}

bool signature_besides(const struct device *device, const struct contents *ours, const char *mine, struct signature_others *others)
{
	return besides(device, ours, NULL, mine, others);
}

bool signature_of_others(const struct device *device, const union superblock *sb, struct signature_others *others)
{
	struct contents ours;

	if (sb)
		superblock_contents(sb, &ours);
	return besides(device, sb ? &ours : NULL, sb, "larder_member", others);
}

bool signature_is_data(const struct device *device, const union superblock *sb, const char *type)
{
	struct signatures found = { 0 };
	blkid_probe probe = new_probe(device);
	bool data = false, others = false;
	struct contents ours;

	superblock_contents(sb, &ours);
	if (probe) {
		probe_all(probe, device, &ours, false, &found);
		blkid_free_probe(probe);
	}
	for (size_t i = 0; i < found.number; i++) {
		others |= found.signature[i].place == SIGNATURE_OUTSIDE;
		data |= !strcmp(found.signature[i].type, type);
	}
	signatures_free(&found);
	return data && !others;
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
	struct signatures left = { 0 };
	int result = pass(device, NULL, true, NULL);

	if (!result && fsync(device->fd))
		result = complain(LARDER_FAILED, "%s: cannot flush it after wiping: %s", device->path, strerror(errno));
	if (!result && device->block && ioctl(device->fd, BLKRRPART) && errno != EINVAL && errno != ENOTTY)
		result = complain(LARDER_BUSY, "%s: its partitions are in use: %s; release them first", device->path,
				  strerror(errno));
	result = result ? result : signatures_find(device, NULL, &left);
	if (!result && left.number) {
		char *line = signatures_line(&left, SIGNATURES_ALL);

		complain(LARDER_UNSAFE, "%s: still there after wiping: %s; try wipefs -a", device->path, line);
		free(line);
		result = LARDER_UNSAFE;
	}
	signatures_free(&left);
	return result;
}
