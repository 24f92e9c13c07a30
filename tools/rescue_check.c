// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder rescue check: is what a cache holds whole?
 *
 * Superblocks, tables, checkpoint, log, and each dirty sector against its checksum.  What a power cut leaves (a torn end of the
 * log) is told, but no finding.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>

#include "arguments.h"
#include "rescue_names.h"
#include "verbs.h"

/* One line per problem.  Returns how many. */
static size_t tell(const struct rescue_cache *cache, const char *what, const struct problems *problems)
{
	for (size_t i = 0; i < problems->number; i++)
		remark("%s: %s%s", cache->device.path, what, problems->text[i]);
	return problems->number;
}

static size_t check_metadata(const struct rescue_cache *cache)
{
	const struct cache_image *image = &cache->image;
	size_t bad = tell(cache, "superblock: ", &cache->super.main.problems);

	if (cache->super.copy.offset)
		bad += tell(cache, "superblock copy: ", &cache->super.copy.problems);
	bad += tell(cache, "copy A: ", &cache->tables.problems[0]);
	bad += tell(cache, "copy B: ", &cache->tables.problems[1]);
	bad += tell(cache, "", &image->problems);
	for (size_t i = 0; i < image->torn.number; i++)
		printf("%s: %s: as a power cut leaves it\n", cache->device.path, image->torn.text[i]);
	if (image->loaded)
		printf("%s: checkpoint %" PRIu64 ", epoch %u, %" PRIu64 " records behind it, durable up to %" PRIu64 "\n", cache->device.path,
		       le64toh(image->loaded->sequence), image->epoch, image->nr_records, image->durable);
	else
		printf("%s: never started: empty\n", cache->device.path);
	return bad;
}

static uint64_t check_volumes(struct rescue_cache *cache)
{
	const struct larder_table *table = cache->tables.chosen;
	uint64_t bad = 0;

	for (unsigned i = 0; i < le32toh(table->head.nr_volumes); i++) {
		char label[LARDER_LABEL_SIZE + 1];
		struct rescue_count count;

		if (!cache->image.volume[i].sectors)
			continue;
		label_text(table->volumes[i].label, label);
		count = rescue_verify(cache, &cache->image.volume[i], label, true);
		printf("volume %s: %" PRIu64 " sectors dirty, %" PRIu64 " of them zeroes, %" PRIu64 " damaged\n", label, count.dirty, count.zero,
		       count.damaged);
		bad += count.damaged;
	}
	return bad;
}

int rescue_check(int argc, char **argv)
{
	const struct argument arguments[] = { ARGUMENTS_END };
	struct rescue_cache cache;
	struct members members;
	int first, result;
	uint64_t bad;

	if (!arguments_words(argc, argv, "larder rescue check CACHE", arguments, 1, 1, &first, &result))
		return result;
	result = rescue_named_cache(argv[first], &members, &cache);
	if (result)
		return result;
	bad = check_metadata(&cache);
	bad += check_volumes(&cache);
	rescue_cache_close(&cache);
	members_free(&members);
	return bad ? LARDER_FAILED : LARDER_DONE;
}
