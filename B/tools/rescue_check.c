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
static size_t tell(const char *name, const char *what, const struct problems *problems)
{
	for (size_t i = 0; i < problems->number; i++)
		remark("%s: %s%s", name, what, problems->text[i]);
	return problems->number;
}

static size_t check_member(const struct ssd *ssd)
{
	const char *path = ssd->device.path;
	size_t bad = tell(path, "superblock: ", &ssd->super.main.problems);

	if (ssd->super.copy.offset)
		bad += tell(path, "superblock copy: ", &ssd->super.copy.problems);
	bad += tell(path, "copy A: ", &ssd->tables.problems[0]);
	return bad + tell(path, "copy B: ", &ssd->tables.problems[1]);
}

static size_t check_metadata(const struct rescue_cache *cache)
{
	const struct cache_image *image = &cache->image;
	const char *name = cache->set.name;
	size_t bad = 0;

	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++)
		bad += cache->set.member[i] ? check_member(cache->set.member[i]) : 0;
	bad += tell(name, "", &image->problems);
	bad += tell(name, "", &image->lost);
	for (size_t i = 0; i < image->torn.number; i++)
		printf("%s: %s: as a power cut leaves it\n", name, image->torn.text[i]);
	if (image->loaded)
		printf("%s: checkpoint %" PRIu64 ", epoch %u, %" PRIu64 " records behind it, durable up to %" PRIu64 "\n", name,
		       le64toh(image->loaded->sequence), image->epoch, image->nr_records, image->durable);
	else
		printf("%s: never started: empty\n", name);
	return bad;
}

static uint64_t check_volumes(struct rescue_cache *cache)
{
	const struct larder_table *table = cache->set.table;
	uint64_t bad = 0;

	cache->image.compare = true;
	for (unsigned i = 0; i < le32toh(table->head.nr_volumes); i++) {
		char label[LARDER_LABEL_SIZE + 1];
		struct rescue_count count;

		if (!cache->image.volume[i].sectors)
			continue;
		label_text(table->volumes[i].label, label);
		count = rescue_verify(cache, &cache->image.volume[i], label, true, NULL);
		printf("volume %s: %" PRIu64 " sectors dirty, %" PRIu64 " of them zeroes, %" PRIu64 " damaged\n", label, count.dirty, count.zero,
		       count.damaged);
		if (count.differ)
			printf("volume %s: %" PRIu64 " sectors are good, but not in each of their copies\n", label, count.differ);
		bad += count.damaged;
	}
	return bad;
}

int rescue_check(int argc, char **argv)
{
	struct cache_names names = { 0 };
	const struct argument arguments[] = { DEGRADED_ARGUMENT(names.degraded), ARGUMENTS_END };
	struct rescue_cache cache;
	struct members members;
	int first, result;
	uint64_t bad;

	if (!arguments_words(argc, argv, "larder rescue check CACHE|SSD... [--degraded]", arguments, 1, -1, &first, &result))
		return result;
	names.name = (const char *const *)argv + first;
	names.number = argc - first;
	result = rescue_named_cache(&names, &members, &cache);
	if (result)
		return result;
	bad = check_metadata(&cache);
	bad += check_volumes(&cache);
	rescue_cache_close(&cache);
	members_free(&members);
	return bad ? LARDER_FAILED : LARDER_DONE;
}
