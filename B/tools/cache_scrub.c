// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache scrub: the kernel reads what a started cache holds, and mends what is damaged; this sends the message, and waits if
 * asked.
 *
 * Waiting is looking at the status twice a second.  Whoever ends the wait by a signal leaves the scrub running.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "running.h"
#include "scrub.h"
#include "verbs.h"

#define POLL_MICROSECONDS 500000

static uint64_t number(const struct mapped *cache, const char *key)
{
	return status_number(cache->status, key);
}

double scrub_percent(const struct mapped *cache)
{
	uint64_t done = number(cache, "scrub_segments"), all = number(cache, "segments");

	return all ? 100.0 * (double)done / (double)all : 100.0;
}

static void progress(const struct mapped *cache, bool last)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%s: %.0f %% scrubbed, %" PRIu64 " errors   %s", cache->name, scrub_percent(cache),
			number(cache, "scrub_errors"), last ? "\n" : "");
}

static int wait_scrubbed(struct mapped *cache)
{
	int result = mapped_refresh(cache);

	while (!result && status_is(cache->status, "scrub", "running")) {
		progress(cache, false);
		usleep(POLL_MICROSECONDS);
		result = mapped_refresh(cache);
	}
	if (!result)
		progress(cache, true);
	return result;
}

int scrub_judge_cache(const struct mapped *cache)
{
	char *state = status_value(cache->status, "scrub");
	int result = LARDER_DONE;

	printf("cache %s: %" PRIu64 " slots read, %" PRIu64 " errors: %" PRIu64 " repaired, %" PRIu64 " dropped, %" PRIu64
	       " unrepairable\n",
	       cache->name, number(cache, "scrub_slots"), number(cache, "scrub_errors"), number(cache, "scrub_repaired"),
	       number(cache, "scrub_dropped"), number(cache, "scrub_unrepairable"));
	if (!status_is(cache->status, "scrub", "done"))
		result = complain(LARDER_FAILED, "%s: the scrub did not come to its end: it is %s; see dmesg", cache->name,
				  state ? state : "unknown");
	else if (number(cache, "scrub_unrepairable"))
		result = complain(LARDER_FAILED,
				  "%s: %" PRIu64 " slots or copies cannot be repaired; dmesg names the sectors of dirty data: write them "
				  "anew, or discard them",
				  cache->name, number(cache, "scrub_unrepairable"));
	free(state);
	return result;
}

static int scrub(struct mapped *cache, bool wait, bool dry_run)
{
	bool running = status_is(cache->status, "scrub", "running");
	int result = running && wait ? LARDER_DONE : mapped_message(cache->name, "scrub");

	if (result || !wait || dry_run)
		return result;
	result = wait_scrubbed(cache);
	return result ? result : scrub_judge_cache(cache);
}

int cache_scrub(int argc, char **argv)
{
	bool wait = false, stop = false, dry_run = false;
	const struct argument arguments[] = { { "wait", 'w', ARGUMENT_FLAG, &wait, NULL, "until it is done; say what was found" },
					      { "stop", 0, ARGUMENT_FLAG, &stop, NULL, "give a scrub up" },
					      { "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only print the dmsetup command" },
					      ARGUMENTS_END };
	struct mapped_list list;
	struct mapped *cache;
	int first, result;

	if (!arguments_words(argc, argv, "larder cache scrub CACHE [--wait | --stop] [--dry-run]", arguments, 1, 1, &first, &result))
		return result;
	if (wait && stop)
		return complain(LARDER_USAGE, "--wait and --stop exclude each other");
	mapped_init(dry_run);
	result = mapped_scan(&list);
	result = result ? result : running_find(&list, argv[first], true, &cache);
	if (!result)
		result = stop ? mapped_message(cache->name, "scrub_stop") : scrub(cache, wait, dry_run);
	mapped_list_free(&list);
	return result;
}
