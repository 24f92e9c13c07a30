// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache resize: a cache takes what its last SSD has become larger by: a reload of its table, the cache in use or not.  The
 * kernel does the rest, in an order that stands a power cut (kernel/grow.c).
 *
 * Only the last one, behind whose segments there are no numbers of others.  Another one is removed, and added in a place of its own.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"
#include "set.h"
#include "turn.h"
#include "verbs.h"

/* An SSD as its superblock has it, and as it is. */
struct sight {
	uint32_t number, first, segments, room;
	bool ours;
};

/* The superblock of one that has become smaller is not valid any more, and still tells how large it was.  Complains. */
static int look(const char *path, struct sight *sight)
{
	const union superblock *sb;
	struct superblocks found;
	struct device device;
	uint64_t was;
	int result;

	*sight = (struct sight){ 0 };
	result = device_open(&device, path, DEVICE_READ);
	if (result)
		return result;
	superblocks_read(&device, &found, false);
	sb = superblocks_best(&found);
	if (sb && superblock_is_whole(sb) && le32toh(sb->head.kind) == LARDER_KIND_CACHE) {
		was = le64toh(sb->head.device_sectors) << LARDER_SECTOR_SHIFT;
		if (was > device.bytes)
			result = complain(LARDER_UNSAFE,
					  "%s: has %" PRIu64 " bytes, and had %" PRIu64 ": a cache cannot be made smaller, what lies behind would be "
					  "lost; make it as large as it was, at once",
					  path, device.bytes, was);
		*sight = (struct sight){ .number = le32toh(sb->cache.device_number), .first = le32toh(sb->cache.first_segment),
					 .segments = le32toh(sb->cache.nr_segments), .room = cache_room(&sb->cache, device.bytes), .ours = true };
	}
	superblocks_free(&found);
	device_close(&device);
	return result;
}

/* All that are given.  *last: the one in the last place.  others: one that is not, and has room for more; or NULL.  Complains. */
static int look_at_all(const struct set *set, struct sight *last, const char **others)
{
	struct sight sight;
	int result = LARDER_DONE;

	*last = (struct sight){ 0 };
	*others = NULL;
	for (uint32_t i = 0; i < set->number && !result; i++) {
		if (!strcmp(set->ssd[i], "-"))
			continue;
		result = look(set->ssd[i], &sight);
		if (sight.ours && sight.number + 1 == set->number)
			*last = sight;
		else if (sight.ours && sight.room > sight.segments)
			*others = set->ssd[i];
	}
	return result;
}

static int grow(struct set *set, const struct sight *last, bool dry_run)
{
	uint64_t before = status_number(set->mapped->status, "segments"), now, size = le32toh(set->sb.segment_size);
	uint64_t wanted = (uint64_t)last->first + last->room;
	int result = set_reload(set, (wanted - before) * (size >> LARDER_SECTOR_SHIFT));

	if (result || dry_run)
		return result;
	result = mapped_refresh(set->mapped);
	now = status_number(set->mapped->status, "segments");
	if (!result && now < wanted)
		return complain(LARDER_FAILED, "%s: has %" PRIu64 " segments as before, and room for %" PRIu64 "; dmesg says why", set->mapped->name,
				now, wanted);
	if (!result)
		printf("cache %s: %" PRIu64 " bytes, %" PRIu64 " before\n", set->mapped->name, now * size, before * size);
	return result;
}

static int resize(struct mapped *cache, bool dry_run)
{
	struct sight last;
	struct set set;
	const char *others;
	char *state;
	int result = set_read_words(&set, cache);

	if (result)
		return result;
	set_forget_failed(&set);
	result = look_at_all(&set, &last, &others);
	result = result ? result : set_read_table(&set);
	if (result)
		goto out;
	if (others)
		remark("%s: has room for more, but is not the last SSD of the set: larder cache remove %s %s, then larder cache add %s %s "
		       "--new-place", others, cache->name, others, cache->name, others);
	state = set_state(&set, set.number - 1);
	if (last.ours && last.first + (uint64_t)last.room > status_number(cache->status, "segments")) {
		if (state && !strcmp(state, "active"))
			result = grow(&set, &last, dry_run);
		else
			result = complain(LARDER_FAILED, "%s: its last SSD is %s; wait until the set is whole", cache->name,
					  state ? state : "unknown");
	} else if (others) {
		result = complain(LARDER_FAILED, "%s: its last SSD has no room for more", cache->name);
	} else {
		printf("cache %s: has all that there is room for\n", cache->name);
	}
	free(state);
out:
	set_free(&set);
	return result;
}

int cache_resize(int argc, char **argv)
{
	bool dry_run = false;
	const struct argument arguments[] = { { "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only print the dmsetup commands" },
					      ARGUMENTS_END };
	struct mapped_list list;
	struct mapped *cache;
	int first, result;

	if (!arguments_words(argc, argv, "larder cache resize CACHE [--dry-run]", arguments, 1, 1, &first, &result))
		return result;
	mapped_init(dry_run);
	if (!dry_run)
		turn_take(); /* a table that is read is loaded: nobody changes the set in between */
	result = mapped_scan(&list);
	result = result ? result : running_find(&list, argv[first], true, &cache);
	result = result ? result : resize(cache, dry_run);
	mapped_list_free(&list);
	return result;
}
