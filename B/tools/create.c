// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What `cache create` and `volume create` share.
 *
 * Order on disk: the main superblock's place is cleared first and written last, so that a device whose formatting was cut short
 * carries nothing that would be taken for a member.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <uuid/uuid.h>

#include "create.h"
#include "disks.h"
#include "dm.h"
#include "message.h"
#include "scan.h"

int create_check_name(const char *name, const char *word, uint32_t kind)
{
	if (!name_valid(name))
		return complain(LARDER_USAGE, "%s: %s: must be 1 to 64 of A-Z a-z 0-9 # + . : = @ _ - and not begin with - or a dot", name, word);
	if (kind == LARDER_KIND_VOLUME && !strncmp(name, CACHE_PREFIX, strlen(CACHE_PREFIX)))
		return complain(LARDER_USAGE, "%s: %s: names that begin with " CACHE_PREFIX " are those of caches", name, word);
	return LARDER_DONE;
}

int create_check_names(const char *name, const char *label, uint32_t kind)
{
	int result = create_check_name(name, "NAME", kind);
	char other[LARDER_LABEL_SIZE + 1];
	struct members members;

	if (result)
		return result;
	if (!label_valid(label))
		return complain(LARDER_USAGE, "%s: --label: must be 1 to 64 bytes of UTF-8 without control characters", label);
	members_scan(&members);
	for (size_t i = 0; !result && i < members.number; i++) {
		const struct member *m = members.member[i];

		if (le32toh(m->sb.head.kind) == kind && !strcmp(label_text(m->sb.cache.label, other), label))
			result = complain(LARDER_BUSY, "%s: label: the %s on %s has it already; choose another", label,
					  kind_text(kind), m->path);
	}
	members_free(&members);
	return result;
}

bool create_is_same(const char *a, const char *b)
{
	struct stat x, y;

	if (stat(a, &x) || stat(b, &y))
		return false;
	return S_ISBLK(x.st_mode) && S_ISBLK(y.st_mode) ? x.st_rdev == y.st_rdev : x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool create_is_partition(const char *part, const char *whole)
{
	char text[64], other[64];
	struct stat x, y;

	return !stat(part, &x) && !stat(whole, &y) && S_ISBLK(x.st_mode) && S_ISBLK(y.st_mode) &&
	       device_attribute(x.st_rdev, "partition", text, sizeof(text)) && device_attribute(x.st_rdev, "../dev", text, sizeof(text)) &&
	       device_attribute(y.st_rdev, "dev", other, sizeof(other)) && !strcmp(text, other);
}

/* What is below dm and md, too. */
static struct disks disks_of(dev_t number)
{
	char *directory = disk_directory("", "", true, number);
	struct disks disks = { 0 };

	disks_below(&disks, directory, false);
	free(directory);
	return disks;
}

/* They share one, and either has no other: of two arrays over the same disks neither is lost with one of these. */
static bool share_a_disk(dev_t x, dev_t y)
{
	struct disks a = disks_of(x), b = disks_of(y);
	bool shared = false;

	for (size_t i = 0; i < a.number && (a.number == 1 || b.number == 1); i++)
		for (size_t k = 0; k < b.number; k++)
			shared |= !strcmp(a.disk[i].directory, b.disk[k].directory);
	disks_free(&a);
	disks_free(&b);
	return shared;
}

static bool is_one_disk(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && S_ISBLK(x.st_mode) && S_ISBLK(y.st_mode) && x.st_rdev != y.st_rdev &&
	       (device_whole_disk(x.st_rdev) == device_whole_disk(y.st_rdev) || share_a_disk(x.st_rdev, y.st_rdev));
}

int create_check_joins(const char *path, const char *const *others, int number, const char *what)
{
	for (int i = 0; i < number; i++)
		if (is_one_disk(path, others[i]))
			return complain(LARDER_USAGE, "%s and %s: are parts of one disk, and would be lost together; give another %s", others[i],
					path, what);
	return LARDER_DONE;
}

int create_check_apart(const char *const *paths, int number, const char *what)
{
	int result = LARDER_DONE;

	for (int i = 0; !result && i < number; i++)
		result = create_check_joins(paths[i], paths, i, what);
	return result;
}

/* md would take it, and have larger blocks from then on: a filesystem, or LUKS, of smaller ones is not opened any more. */
int create_check_block(const char *path, unsigned block, unsigned array)
{
	if (block <= array)
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: logical block size: is %u bytes, and that of the array %u, for which all upon it was made; give a disk of no more",
			path, block, array);
}

void create_head(struct larder_sb_head *head, uint32_t kind, const struct device *device, uint64_t copy_offset)
{
	head->version = htole32(LARDER_VERSION);
	head->kind = htole32(kind);
	head->generation = htole64(1);
	uuid_generate_random(head->uuid);
	head->device_sectors = htole64(device->bytes >> LARDER_SECTOR_SHIFT);
	head->copy_offset = htole64(copy_offset);
	head->created = htole64((uint64_t)time(NULL));
}

int create_zero(const struct device *device, uint64_t from, uint64_t to)
{
	int error = from < to ? device_zero(device, from, to - from) : 0;

	if (error)
		return complain(LARDER_FAILED, "%s: cannot write zeroes at byte %llu: %s", device->path, (unsigned long long)from,
				strerror(-error));
	return LARDER_DONE;
}

int create_superblock(const struct device *device, union superblock *sb, bool dry_run)
{
	uint64_t copy = le64toh(sb->head.copy_offset);
	int error;

	if (dry_run) {
		printf("write superblock to %s at byte %u", device->path, LARDER_SB_OFFSET);
		if (copy)
			printf(" and %llu", (unsigned long long)copy);
		putchar('\n');
		return LARDER_DONE;
	}
	error = superblock_write(device, sb, NULL);
	if (error)
		return complain(LARDER_FAILED, "%s: cannot write the superblock: %s", device->path, strerror(-error));
	return LARDER_DONE;
}
