// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder rescue list: what is dirty in a cache, by volume, or run by run.
 */
#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "arguments.h"
#include "rescue_names.h"
#include "verbs.h"

static const struct field volume_fields[] = {
	{ "name", VALUE_TEXT, "Name", "label of the volume in the cache's table" },
	{ "uuid", VALUE_TEXT, "UUID", "UUID of the volume" },
	{ "size", VALUE_BYTES, "Size", "size of the volume" },
	{ "state", VALUE_TEXT, "State", "attached; older: the backing lacks what the cache has seen of it; cache_older: the other way round; stale: the volume ran without this cache; other_set: with other SSDs of it; missing: no backing found; detached, foreign, resized" },
	{ "dirty", VALUE_SECTORS, "Dirty", "newer than the backing, zeroes included" },
	{ "zeroes", VALUE_SECTORS, "Zeroes", "of this: zeroes, which have no place in the cache" },
	{ "damaged", VALUE_SECTORS, "Damaged", "of this: unreadable, or not what its checksum says" },
	{ "backing", VALUE_TEXT, "Backing", "device of the backing" },
	{ "may_be_dirty", VALUE_NUMBER, "MayBeDirty", "what the backing's superblock says" },
};

static const struct field extent_fields[] = {
	{ "name", VALUE_TEXT, "Name", "label of the volume" },
	{ "uuid", VALUE_TEXT, "UUID", "UUID of the volume" },
	{ "sector", VALUE_NUMBER, "Sector", "first sector of the volume" },
	{ "sectors", VALUE_NUMBER, "Sectors", "how many, of 512 bytes" },
	{ "kind", VALUE_TEXT, "Kind", "data, zeroes" },
	{ "data_state", VALUE_TEXT, "State", "good, damaged, unreadable, no_checksum, absent: only on an SSD that is missing" },
	{ "cache_sector", VALUE_NUMBER, "CacheSector", "linear address in the cache; of zeroes: their serial number" },
	{ "segment", VALUE_NUMBER, "Segment", "segment of the cache" },
	{ "ssd", VALUE_TEXT, "SSD", "on which SSD: of two copies the first that is here" },
	{ "device_offset", VALUE_NUMBER, "DeviceOffset", "where on the SSD, bytes" },
	{ "copies", VALUE_NUMBER, "Copies", "on how many SSDs that are here" },
};

struct listing {
	struct report *report;
	struct row row;
	struct rescue_cache *cache;
	const struct members *members;
	const struct larder_table_volume *volume;
	struct dirty_piece run; /* not yet added */
};

static void set_names(struct listing *l)
{
	char text[LARDER_LABEL_SIZE + 1];

	report_set(l->report, &l->row, "name", "%s", label_text(l->volume->label, text));
	report_set(l->report, &l->row, "uuid", "%s", uuid_text(l->volume->uuid, text));
}

/* Where it is, from the first copy that is here on. */
static void set_place(struct listing *l, uint32_t segment, uint32_t sector)
{
	const struct cache_image *image = &l->cache->image;
	uint32_t copy[SEGMENT_COPIES];
	unsigned here = 0;

	for (unsigned i = 0, n = segment_copies(image, segment, copy); i < n; i++) {
		uint64_t offset;
		const struct device *device = segment_device(image, copy[i], &offset);

		if (!device || here++)
			continue;
		report_set(l->report, &l->row, "ssd", "%s", device->path);
		report_set(l->report, &l->row, "device_offset", "%" PRIu64, offset + sector * (uint64_t)(1u << LARDER_SECTOR_SHIFT));
	}
	report_set(l->report, &l->row, "segment", "%u", segment);
	report_set(l->report, &l->row, "copies", "%u", here);
}

static void add_run(struct listing *l)
{
	const struct dirty_piece *run = &l->run;
	uint32_t unit = l->cache->image.usage.segment_sectors;

	if (!run->length)
		return;
	set_names(l);
	report_set(l->report, &l->row, "sector", "%" PRIu64, run->sector);
	report_set(l->report, &l->row, "sectors", "%u", run->length);
	report_set(l->report, &l->row, "kind", "%s", run->zero ? "zeroes" : "data");
	report_set(l->report, &l->row, "data_state", "%s", slot_state_text(run->state));
	report_set(l->report, &l->row, "cache_sector", "%" PRIu64, run->cache);
	if (!run->zero)
		set_place(l, (uint32_t)(run->cache / unit), (uint32_t)(run->cache % unit));
	report_add(l->report, &l->row);
}

/* Neighbours become one run, up to 2^31 sectors. */
static int take_piece(const struct dirty_piece *piece, void *data)
{
	struct listing *l = data;
	struct dirty_piece *run = &l->run;

	if (run->length && run->length < 1u << 31 && run->zero == piece->zero && run->state == piece->state &&
	    run->sector + run->length == piece->sector && run->cache + (run->zero ? 0 : run->length) == piece->cache) {
		run->length += piece->length;
		return 0;
	}
	add_run(l);
	*run = *piece;
	return 0;
}

static void list_extents(struct listing *l, const struct cached_volume *v)
{
	l->run.length = 0;
	dirty_each(&l->cache->image, v, 0, v->sectors, take_piece, l);
	add_run(l);
}

static void list_volume(struct listing *l, const struct cached_volume *v)
{
	const struct member *backing = member_volume(l->members, l->volume->uuid);
	struct rescue_count count = rescue_verify(l->cache, v, NULL, false, NULL);
	enum standing standing;
	unsigned number;

	set_names(l);
	report_set(l->report, &l->row, "size", "%" PRIu64, v->sectors << LARDER_SECTOR_SHIFT);
	report_set(l->report, &l->row, "dirty", "%" PRIu64, count.dirty);
	report_set(l->report, &l->row, "zeroes", "%" PRIu64, count.zero);
	report_set(l->report, &l->row, "damaged", "%" PRIu64, count.damaged);
	if (backing) {
		standing = rescue_standing(l->cache, &backing->sb.volume, &number);
		report_set(l->report, &l->row, "state", "%s", standing_text(standing));
		report_set(l->report, &l->row, "backing", "%s", backing->path);
		report_set(l->report, &l->row, "may_be_dirty", "%d",
			   !!(le32toh(backing->sb.head.flags) & LARDER_VOLUME_MAY_BE_DIRTY));
	} else {
		report_set(l->report, &l->row, "state", "missing");
	}
	report_add(l->report, &l->row);
}

static int list(struct rescue_cache *cache, const struct members *members, bool extents, const struct report_options *options)
{
	const struct field *sections[] = { extents ? extent_fields : volume_fields };
	const size_t counts[] = { extents ? sizeof(extent_fields) / sizeof(extent_fields[0]) :
					    sizeof(volume_fields) / sizeof(volume_fields[0]) };
	struct listing l = { .cache = cache, .members = members };
	const struct larder_table *table = cache->set.table;
	int result;

	l.report = report_new(extents ? "extents" : "volumes", sections, counts, 1,
			      extents ? "name,sector,sectors,kind,data_state,cache_sector" :
					"name,state,size,dirty,zeroes,damaged,backing,uuid",
			      options, &result);
	if (!l.report)
		return result;
	for (unsigned i = 0; i < le32toh(table->head.nr_volumes); i++) {
		l.volume = &table->volumes[i];
		if (!cache->image.volume[i].sectors)
			continue;
		if (extents)
			list_extents(&l, &cache->image.volume[i]);
		else
			list_volume(&l, &cache->image.volume[i]);
	}
	return report_print(l.report);
}

int rescue_list(int argc, char **argv)
{
	static const char usage[] = "larder rescue list CACHE|SSD... [--extents] [--degraded] [-o FIELD,...] [--sort FIELD,...] [--units UNIT] [--noheadings] "
				    "[--reportformat json]";
	struct report_options options = { .units = { 'h', true } };
	struct cache_names names = { 0 };
	bool extents = false;
	const struct argument arguments[] = { { "extents", 'e', ARGUMENT_FLAG, &extents, NULL, "run by run, not by volume" },
					      DEGRADED_ARGUMENT(names.degraded),
					      REPORT_ARGUMENTS(options),
					      ARGUMENTS_END };
	struct rescue_cache cache;
	struct members members;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, -1, &first, &result))
		return result;
	names.name = (const char *const *)argv + first;
	names.number = argc - first;
	result = rescue_named_cache(&names, &members, &cache);
	if (result)
		return result;
	rescue_tell_lost(&cache, NULL);
	result = list(&cache, &members, extents, &options);
	rescue_cache_close(&cache);
	members_free(&members);
	return result;
}
