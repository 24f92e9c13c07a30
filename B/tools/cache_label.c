// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache label: gives an SSD another label, whether its cache runs or not.  Nothing is moved by that, and no role changes.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "create.h"
#include "set.h"
#include "stack_store.h"
#include "stacks.h"
#include "turn.h"
#include "verbs.h"

/* By number, path or UUID. */
static bool is_meant(const struct member *m, const char *word)
{
	uint8_t uuid[16];
	char number[16];

	snprintf(number, sizeof(number), "%u", le32toh(m->sb.cache.device_number));
	return !strcmp(word, number) || (!uuid_parse(word, uuid) && !memcmp(uuid, m->sb.head.uuid, 16)) ||
	       (strchr(word, '/') && create_is_same(word, m->path));
}

/* Its place is its own; table: NULL where none can be read.  One that has left may still say that it has the place of its successor. */
static bool is_in_set(const struct member *m, const uint8_t cache[16], const struct larder_table *table)
{
	uint32_t place = le32toh(m->sb.cache.device_number);

	return le32toh(m->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, cache, 16) && place < LARDER_MAX_DEVICES &&
	       (!table || !memcmp(table->devices[place].uuid, m->sb.head.uuid, 16));
}

static int find(const struct stacks *stacks, const char *cache, const char *word, const struct member **ssd)
{
	struct larder_table *table = must_allocate(malloc(sizeof(*table)));
	const struct member *member;
	bool known;
	int result = stack_named_cache(stacks, cache, &member);

	*ssd = NULL;
	known = !result && set_newest_table(&stacks->members, member->sb.cache.cache_uuid, table);
	for (size_t i = 0; !result && i < stacks->members.number && !*ssd; i++) {
		const struct member *m = stacks->members.member[i];

		if (is_in_set(m, member->sb.cache.cache_uuid, known ? table : NULL) && is_meant(m, word))
			*ssd = m;
	}
	free(table);
	if (!result && !*ssd)
		result = complain(LARDER_NOT_FOUND, "%s: is no SSD of %s that is here; give its number, path or UUID, see larder cache list", word, cache);
	return result;
}

int cache_label(int argc, char **argv)
{
	static const char usage[] = "larder cache label CACHE SSD LABEL|none [--dry-run]";
	bool dry_run = false;
	const struct argument arguments[] = { { "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only say what would be done" }, ARGUMENTS_END };
	const struct member *ssd;
	struct stacks stacks;
	const char *label;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 3, 3, &first, &result))
		return result;
	label = strcmp(argv[first + 2], "none") ? argv[first + 2] : "";
	if (*label && !device_label_valid(label))
		return complain(LARDER_USAGE, "LABEL: '%s' is not none, nor " DEVICE_LABEL_WORDS, label);
	mapped_init(false);
	if (!dry_run)
		turn_take();
	result = stacks_scan(&stacks);
	if (result)
		return result;
	result = find(&stacks, argv[first], argv[first + 1], &ssd);
	if (!result)
		result = stack_list_store_label(ssd->sb.cache.cache_uuid, le32toh(ssd->sb.cache.device_number), label, dry_run);
	if (!result)
		printf("cache %s: SSD %u, %s: label %s%s\n", argv[first], le32toh(ssd->sb.cache.device_number), ssd->path, *label ? label : "none",
		       dry_run ? " (dry run: nothing was written)" : "");
	stacks_free(&stacks);
	return result;
}
