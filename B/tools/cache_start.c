// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache start, larder cache stop.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "running.h"
#include "turn.h"
#include "verbs.h"

struct start_request {
	const char *name;
	struct argument_list options;
	bool dry_run, degraded, import;
};

static int start_one(struct members *members, const struct mapped_list *list, const char *word, const struct start_request *request)
{
	const struct member *member;
	const struct mapped *running;
	char *path;
	int result = member_find(members, word, LARDER_KIND_CACHE, &member);

	if (result)
		return result;
	running = running_by_uuid(list, member->sb.cache.cache_uuid, true);
	if (running) {
		if (!request->dry_run)
			stopped_clear(member->sb.cache.cache_uuid);
		printf("cache %s runs already: /dev/mapper/%s\n", word, running->name);
		return LARDER_DONE;
	}
	result = cache_bring_up(members, member, request->name, &request->options,
				(request->dry_run ? BRING_UP_DRY : 0) | (request->degraded ? BRING_UP_DEGRADED : 0) |
					(request->import ? BRING_UP_IMPORT : 0) | (strchr(word, '/') ? BRING_UP_BY_PATH : 0),
				&path);
	if (result)
		return result;
	if (!request->dry_run)
		printf("cache %s: started as %s\n", word, path);
	free(path);
	return LARDER_DONE;
}

int cache_start(int argc, char **argv)
{
	static const char usage[] = "larder cache start LABEL|UUID|SSD... [--name NAME] [--option KEY=VALUE]... [--degraded] [--import] [--dry-run]";
	struct start_request request = { 0 };
	const struct argument arguments[] = {
		{ "name", 'N', ARGUMENT_TEXT, &request.name, "NAME", "/dev/mapper/larder-cache-NAME (default: the label)" },
		{ "option", 0, ARGUMENT_LIST, &request.options, "KEY=VALUE", "option of the target, see docs/interface.md" },
		{ "degraded", 0, ARGUMENT_FLAG, &request.degraded, NULL, "also if SSDs of the set are missing: they leave it" },
		{ "import", 0, ARGUMENT_FLAG, &request.import, NULL, "also if it is another machine's, this time" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the dmsetup command" },
		ARGUMENTS_END
	};
	struct mapped_list list;
	struct members members;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, -1, &first, &result))
		return result;
	if (request.name && argc - first > 1)
		return complain(LARDER_USAGE, "--name: is for one cache, %d are given", argc - first);
	mapped_init(request.dry_run);
	turn_take();
	members_scan(&members);
	result = mapped_scan(&list);
	for (int i = first; !result && i < argc; i++)
		result = start_one(&members, &list, argv[i], &request);
	mapped_list_free(&list);
	members_free(&members);
	return result;
}

/* Names of the volumes that use a cache, "a, b"; the caller frees it. */
static char *users(const struct mapped_list *list, const struct mapped *cache)
{
	char *uuid = status_value(cache->status, "uuid"), *names = must_print("%s", "");

	for (size_t i = 0; uuid && i < list->number; i++) {
		char *longer;

		if (list->mapped[i].cache || !status_is(list->mapped[i].status, "cache", uuid))
			continue;
		longer = must_print("%s%s%s", names, *names ? ", " : "", list->mapped[i].name);
		free(names);
		names = longer;
	}
	free(uuid);
	return names;
}

static int stop_one(const struct mapped_list *list, const char *word, bool dry_run)
{
	struct mapped *cache;
	char *names;
	int result = running_find(list, word, true, &cache);

	if (result)
		return result;
	names = users(list, cache);
	if (cache->open_count && *names)
		result = complain(LARDER_BUSY, "%s: in use by the volumes %s; stop or detach them first", cache->name, names);
	else
		result = stop_running(cache, dry_run);
	free(names);
	return result;
}

int cache_stop(int argc, char **argv)
{
	static const char usage[] = "larder cache stop NAME|UUID|DEVICE... [--dry-run]";
	bool dry_run = false;
	const struct argument arguments[] = { { "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only print the dmsetup command" },
					      ARGUMENTS_END };
	struct mapped_list list;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, -1, &first, &result))
		return result;
	mapped_init(dry_run);
	turn_take();
	result = mapped_scan(&list);
	for (int i = first; !result && i < argc; i++)
		result = stop_one(&list, argv[i], dry_run);
	mapped_list_free(&list);
	return result;
}
