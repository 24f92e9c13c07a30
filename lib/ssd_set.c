// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Members of a set of SSDs: docs/on-disk-format.md, section 4.1.
 *
 * The newest table of all counts.  An SSD is a member if that table calls it active, under its UUID and in its place, and its own
 * table is of the same set or of one before it.  Two tables of the same number with different tags are of sides that were used
 * without one another: nobody can tell which of them is right, so neither is taken.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "message.h"
#include "ssd_set.h"

/* ------------------------------------------------------------- opening */

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	if (stat(a, &x) || stat(b, &y))
		return false;
	if (S_ISBLK(x.st_mode) && S_ISBLK(y.st_mode))
		return x.st_rdev == y.st_rdev;
	return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int check_paths(const char *const *paths, size_t number)
{
	for (size_t i = 0; i < number; i++)
		for (size_t k = 0; k < i; k++)
			if (same_file(paths[i], paths[k]))
				return complain(LARDER_USAGE, "%s: is given twice; give each SSD of the set once", paths[i]);
	return LARDER_DONE;
}

static int open_ssd(struct ssd *ssd, const char *path, enum device_access access)
{
	int result = device_open(&ssd->device, path, access);

	if (result)
		return result;
	superblocks_read(&ssd->device, &ssd->super, false);
	if (!ssd->super.chosen || le32toh(ssd->super.chosen->sb->head.kind) != LARDER_KIND_CACHE)
		return LARDER_DONE;
	ssd->sb = &ssd->super.chosen->sb->cache;
	tables_read(&ssd->device, ssd->sb, &ssd->tables);
	return LARDER_DONE;
}

static void close_ssd(struct ssd *ssd)
{
	tables_free(&ssd->tables);
	superblocks_free(&ssd->super);
	device_close(&ssd->device);
}

static char *names(const char *const *paths, size_t number)
{
	char *all = must_print("%s", paths[0]);

	for (size_t i = 1; i < number; i++) {
		char *longer = must_print("%s, %s", all, paths[i]);

		free(all);
		all = longer;
	}
	return all;
}

int ssd_set_open(struct ssd_set *set, const char *const *paths, size_t number, enum device_access access)
{
	int result = check_paths(paths, number);

	*set = (struct ssd_set){ 0 };
	if (result)
		return result;
	set->ssd = must_allocate(calloc(number, sizeof(*set->ssd)));
	set->name = names(paths, number);
	while (!result && set->number < number) {
		result = open_ssd(&set->ssd[set->number], paths[set->number], access);
		if (!result)
			set->number++;
	}
	if (result)
		ssd_set_close(set);
	return result;
}

void ssd_set_close(struct ssd_set *set)
{
	for (size_t i = 0; i < set->number; i++)
		close_ssd(&set->ssd[i]);
	free(set->ssd);
	free(set->name);
	*set = (struct ssd_set){ 0 };
}

/* ------------------------------------------------------------- do they belong together? */

static int check_kind(const struct ssd *ssd)
{
	const union superblock *sb;
	int result = superblocks_choose(&ssd->device, &ssd->super, &sb);

	if (result || ssd->sb)
		return result;
	return complain(LARDER_NOT_FOUND, "%s: kind: is a %s, not a cache", ssd->device.path, kind_text(le32toh(sb->head.kind)));
}

static int check_pair(const struct ssd *a, const struct ssd *b)
{
	char uuid[UUID_TEXT], other[UUID_TEXT];

	if (memcmp(a->sb->cache_uuid, b->sb->cache_uuid, 16))
		return complain(LARDER_UNSAFE, "%s: cache_uuid: belongs to cache %s, and %s to %s; give the SSDs of one cache",
				b->device.path, uuid_text(b->sb->cache_uuid, uuid), a->device.path,
				uuid_text(a->sb->cache_uuid, other));
	if (!memcmp(a->sb->head.uuid, b->sb->head.uuid, 16))
		return complain(LARDER_UNSAFE, "%s: uuid: %s has it too (a copy of the other?); give one of them", b->device.path,
				a->device.path);
	if (a->sb->segment_size != b->sb->segment_size)
		return complain(LARDER_FAILED, "%s: segment_size: is %u, and %s has %u", b->device.path,
				le32toh(b->sb->segment_size), a->device.path, le32toh(a->sb->segment_size));
	return LARDER_DONE;
}

static int check_together(const struct ssd_set *set)
{
	int result = LARDER_DONE;

	for (size_t i = 0; !result && i < set->number; i++) {
		result = check_kind(&set->ssd[i]);
		for (size_t k = 0; !result && k < i; k++)
			result = check_pair(&set->ssd[k], &set->ssd[i]);
	}
	return result;
}

/* ------------------------------------------------------------- the newest set, and its members */

static int check_apart(const struct ssd *a, const struct ssd *b)
{
	uint64_t x, y;

	if (!a->tables.chosen || !b->tables.chosen)
		return LARDER_DONE;
	x = table_set_generation(a->tables.chosen);
	y = table_set_generation(b->tables.chosen);
	if (x == y || x >> 32 != y >> 32)
		return LARDER_DONE;
	return complain(LARDER_UNSAFE,
			"%s: set_generation: is %" PRIx64 ", and %" PRIx64 " on %s: they were used without one another; give one side",
			b->device.path, y, x, a->device.path);
}

static bool is_joining(const struct ssd *ssd)
{
	return !ssd->tables.chosen && le32toh(ssd->sb->head.flags) & LARDER_CACHE_JOINS;
}

/* One whose table is lost knows a newer set than those that have one: these may be one that was left. */
static int check_unread(const struct ssd_set *set)
{
	uint64_t newest = table_set_generation(set->table);

	for (size_t i = 0; i < set->number; i++) {
		const struct ssd *ssd = &set->ssd[i];

		if (!ssd->tables.chosen && !is_joining(ssd) && le64toh(ssd->sb->set_generation) >> 32 > newest >> 32)
			return complain(LARDER_UNSAFE,
					"%s: table: neither copy is valid, and its superblock's set_generation is %" PRIx64 ", newer than that of the others (%" PRIx64
					"): these may have been left behind; if they were not, leave it out",
					ssd->device.path, le64toh(ssd->sb->set_generation), newest);
	}
	return LARDER_DONE;
}

static int choose_table(struct ssd_set *set)
{
	const char *path = set->ssd[0].device.path;
	int result = LARDER_DONE;

	for (size_t i = 0; !result && i < set->number; i++) {
		const struct larder_table *table = set->ssd[i].tables.chosen;

		for (size_t k = 0; !result && k < i; k++)
			result = check_apart(&set->ssd[k], &set->ssd[i]);
		if (table && (!set->table || table_is_newer(table, set->table)))
			set->table = table;
	}
	if (!result && !set->table)
		result = complain(LARDER_FAILED, "%s: table: neither copy is valid; larder super check %s says more", path, path);
	return result ? result : check_unread(set);
}

static enum ssd_standing standing(const struct ssd_set *set, const struct ssd *ssd)
{
	const struct larder_table_device *place = &set->table->devices[le32toh(ssd->sb->device_number)];

	if (!ssd->tables.chosen)
		return is_joining(ssd) ? SSD_JOINING : SSD_NO_TABLE;
	if (le32toh(place->state) != LARDER_DEVICE_ACTIVE || memcmp(place->uuid, ssd->sb->head.uuid, 16) ||
	    place->first_segment != ssd->sb->first_segment || le32toh(place->nr_segments) > le32toh(ssd->sb->nr_segments) ||
	    place->segments_offset != ssd->sb->segments_offset)
		return SSD_STALE;
	return table_knows(set->table, table_set_generation(ssd->tables.chosen)) ? SSD_MEMBER : SSD_STALE;
}

static void tell(const struct ssd_set *set, const struct ssd *ssd)
{
	const char *path = ssd->device.path;
	unsigned number = le32toh(ssd->sb->device_number);

	switch (ssd->standing) {
	case SSD_MEMBER:
		break;
	case SSD_STALE:
		remark("%s: SSD %u is stale: it left the set (its own %" PRIx64 ", now %" PRIx64 "): what it holds is not read", path,
		       number, table_set_generation(ssd->tables.chosen), table_set_generation(set->table));
		break;
	case SSD_JOINING:
		remark("%s: SSD %u was to join the set, and is no member yet: what it holds is not read", path, number);
		break;
	case SSD_NO_TABLE:
		remark("%s: SSD %u: table: neither copy is valid: what it holds is not read; larder super check %s says more", path,
		       number, path);
	}
}

/* Rule 16 of docs/design.md: one that lacks what the superblocks of all members have had is put back from an image, as a rule. */
static int check_ages(const struct ssd_set *set)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++)
		if (set->member[i] && le64toh(set->member[i]->sb->all_generation) > all)
			all = le64toh(set->member[i]->sb->all_generation);
	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++)
		if (set->member[i] && le64toh(set->member[i]->sb->head.generation) < all)
			return complain(LARDER_UNSAFE,
					"%s: generation: is %" PRIu64 ", and all SSDs of the set had %" PRIu64
					": it is older than it was, as one put back from an image is; give the one that it had, or none in its place",
					set->member[i]->device.path, le64toh(set->member[i]->sb->head.generation), all);
	return LARDER_DONE;
}

int ssd_set_choose(struct ssd_set *set)
{
	int result = check_together(set);

	result = result ? result : choose_table(set);
	if (result)
		return result;
	for (size_t i = 0; i < set->number; i++) {
		struct ssd *ssd = &set->ssd[i];

		ssd->standing = standing(set, ssd);
		tell(set, ssd);
		if (ssd->standing != SSD_MEMBER)
			continue;
		if (le32toh(ssd->sb->nr_devices) > le32toh(set->table->head.nr_devices))
			return complain(LARDER_FAILED, "%s: nr_devices: is %u, and the table of the set has %u", ssd->device.path,
					le32toh(ssd->sb->nr_devices), le32toh(set->table->head.nr_devices));
		set->member[le32toh(ssd->sb->device_number)] = ssd;
		if (!set->sb || le64toh(ssd->sb->head.generation) > le64toh(set->sb->head.generation))
			set->sb = ssd->sb;
		if (le64toh(ssd->sb->durable_sequence) > set->durable)
			set->durable = le64toh(ssd->sb->durable_sequence);
	}
	if (set->sb)
		return check_ages(set);
	return complain(LARDER_UNSAFE, "%s: set_generation: none of the SSDs given is a member of the newest set", set->name);
}

/* Is it here, and was cut off as it joined, before it had a table of its own?  Nobody has written to it what the others do not have. */
static bool joins_as(const struct ssd_set *set, unsigned place)
{
	for (size_t i = 0; i < set->number; i++)
		if (set->ssd[i].standing == SSD_JOINING && !memcmp(set->ssd[i].sb->head.uuid, set->table->devices[place].uuid, 16))
			return true;
	return false;
}

uint32_t ssd_set_missing(const struct ssd_set *set)
{
	uint32_t missing = 0;

	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++)
		if (le32toh(set->table->devices[i].state) == LARDER_DEVICE_ACTIVE && !set->member[i] && !joins_as(set, i))
			missing |= 1u << i;
	return missing;
}
