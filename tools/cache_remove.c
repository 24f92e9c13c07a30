// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache remove: an SSD is drained and leaves the set of a cache that runs, in use or not.
 *
 * The kernel drains it (message `drain`), and names it no more in the tables of the others; then the table of the cache is reloaded
 * without it, and its superblocks go, so that nobody takes it for a part of the cache.  One that has failed only leaves the table, and its place is
 * empty from then on: nothing is missed (message `dismiss`); one that joins leaves it too, and was never in the set.  While one is drained, which may
 * last hours, the turn is others': what is loaded then is read then.
 * A spare was never in it, and only loses its superblocks.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "claim.h"
#include "set.h"
#include "turn.h"
#include "verbs.h"

struct remove_request {
	const char *cache, *ssd;
	bool no_wait, stop, dry_run;
};

static int send(const struct set *set, const char *what, uint32_t place)
{
	char *message = must_print("%s %u", what, place);
	int result = mapped_message(set->mapped->name, message);

	free(message);
	return result;
}

/* It was to join where one has failed, and has not come to be a member: it is not the one that is missed there. */
static bool was_to_join(const struct set *set, const char *path)
{
	struct superblocks found;
	struct device device;
	bool was;

	if (!strcmp(path, "-") || device_try(&device, path))
		return false;
	superblocks_read(&device, &found, false);
	was = found.chosen && le32toh(found.chosen->sb->head.flags) & LARDER_CACHE_JOINS && set_is_stale(set, found.chosen->sb);
	superblocks_free(&found);
	device_close(&device);
	return was;
}

static int let_go(struct set *set, uint32_t place, bool dry_run)
{
	char *path = set->ssd[place], *state = set_state(set, place);
	bool missed = state && !strcmp(state, "failed") && !was_to_join(set, path);
	int result;

	set->ssd[place] = must_print("-");
	set_forget_failed(set);
	result = set_reload(set, 0);
	if (!result && missed)
		result = send(set, "dismiss", place);
	free(state);
	if (!result && !dry_run) {
		set_erase(path, LARDER_KIND_CACHE, set->sb.cache_uuid);
		printf("cache %s: %s has left the set\n", set->mapped->name, strcmp(path, "-") ? path : "what was missing");
	}
	free(path);
	return result;
}

/* Its superblock is that of a spare of this cache. */
static bool is_spare(const struct set *set, const char *path)
{
	struct superblocks found;
	struct device device;
	bool is;

	if (!strchr(path, '/') || device_try(&device, path))
		return false;
	superblocks_read(&device, &found, false);
	is = found.chosen && set_is_spare(set, found.chosen->sb);
	superblocks_free(&found);
	device_close(&device);
	return is;
}

static int remove_spare(const struct set *set, const struct remove_request *request)
{
	int result = claim_check(request->ssd, LARDER_KIND_SPARE, set->sb.cache_uuid);

	if (result)
		return result;
	if (request->dry_run) {
		printf("wipe %s: larder spare superblock\n", request->ssd);
		return LARDER_DONE;
	}
	if (!set_erase(request->ssd, LARDER_KIND_SPARE, set->sb.cache_uuid) || is_spare(set, request->ssd))
		return complain(LARDER_FAILED, "%s: is still a spare of %s", request->ssd, set->mapped->name);
	printf("cache %s: %s is no spare any more\n", set->mapped->name, request->ssd);
	return LARDER_DONE;
}

/* Drains it if that is what it takes, and lets others have their turn meanwhile, as that may last hours. */
static int drain_place(struct set *set, uint32_t place, const struct remove_request *request)
{
	char *state = set_state(set, place);
	bool there = state && (!strcmp(state, "active") || !strcmp(state, "draining")), begun = state && !strcmp(state, "draining");
	int result = there && !begun ? send(set, "drain", place) : LARDER_DONE;

	free(state);
	if (result || !there || request->dry_run)
		return result;
	if (request->no_wait) {
		printf("cache %s: SSD %u is being drained; larder cache remove, once more, takes it out\n", set->mapped->name, place);
		return LARDER_DONE;
	}
	result = mapped_refresh(set->mapped);
	fflush(stdout);
	turn_give();
	result = result ? result : set_wait(set, place, "draining");
	turn_take();
	if (result)
		return result;
	state = set_state(set, place);
	if (!state || !strcmp(state, "active"))
		result = complain(LARDER_FAILED, "%s: SSD %u is not drained; somebody has stopped that", set->mapped->name, place);
	free(state);
	return result;
}

/* The cache as it is now; mapped_list_free() and set_free() after LARDER_DONE. */
static int look(const char *word, struct mapped_list *list, struct set *set)
{
	struct mapped *cache;
	int result = mapped_scan(list);

	result = result ? result : running_find(list, word, true, &cache);
	result = result ? result : set_read(set, cache);
	if (result)
		mapped_list_free(list);
	return result;
}

/* The place is drained, or had failed: others may have changed the cache since it was looked at. */
static int take_out(const uint8_t cache[16], uint32_t place, const char *ssd, const struct remove_request *request)
{
	struct mapped_list list;
	char text[UUID_TEXT], *state;
	struct set set;
	int result = look(uuid_text(cache, text), &list, &set);

	if (result)
		return result;
	state = set_state(&set, place);
	if (place >= set.number || (strcmp(set.ssd[place], ssd) && strcmp(set.ssd[place], "-")))
		result = complain(LARDER_BUSY, "%s: SSD %u is another one than %s by now; see larder cache status %s", set.mapped->name, place, ssd,
				  set.mapped->name);
	else if (strcmp(set.ssd[place], ssd) && state && strcmp(state, "failed"))
		printf("cache %s: %s has left the set\n", set.mapped->name, ssd);
	else if (state && (!strcmp(state, "removed") || !strcmp(state, "failed") || !strcmp(state, "joining")))
		result = let_go(&set, place, false);
	else if (!request->no_wait)
		result = complain(LARDER_BUSY, "%s: SSD %u is %s", set.mapped->name, place, state ? state : "unknown");
	free(state);
	set_free(&set);
	mapped_list_free(&list);
	return result;
}

/* The kernel gives up whichever draining there is. */
static int stop_draining(const struct set *set, uint32_t place)
{
	char *state = set_state(set, place);
	int result;

	if (state && !strcmp(state, "draining"))
		result = mapped_message(set->mapped->name, "drain_stop");
	else
		result = complain(LARDER_BUSY, "%s: SSD %u is %s, and not being drained: there is nothing to give up; see larder cache status %s", set->mapped->name,
				  place, state ? state : "unknown", set->mapped->name);
	free(state);
	return result;
}

static int remove_ssd(struct set *set, const struct remove_request *request)
{
	int place = set_place(set, request->ssd), result;

	if (place < 0)
		return LARDER_NOT_FOUND;
	if (request->stop)
		return stop_draining(set, (uint32_t)place);
	result = drain_place(set, (uint32_t)place, request);
	if (!result && request->dry_run)
		return let_go(set, (uint32_t)place, true);
	return result ? result : take_out(set->sb.cache_uuid, (uint32_t)place, set->ssd[place], request);
}

int cache_remove(int argc, char **argv)
{
	static const char usage[] = "larder cache remove CACHE SSD [--stop | --no-wait] [--dry-run]";
	struct remove_request request = { 0 };
	const struct argument arguments[] = {
		{ "stop", 0, ARGUMENT_FLAG, &request.stop, NULL, "give draining up: it stays a member" },
		{ "no-wait", 0, ARGUMENT_FLAG, &request.no_wait, NULL, "do not wait until it is drained" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the dmsetup commands" },
		ARGUMENTS_END
	};
	struct mapped_list list;
	struct set set;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 2, 2, &first, &result))
		return result;
	request.cache = argv[first];
	request.ssd = argv[first + 1];
	if (request.stop && request.no_wait)
		return complain(LARDER_USAGE, "--stop and --no-wait exclude each other");
	mapped_init(request.dry_run);
	if (!request.dry_run)
		turn_take(); /* larderd may be about to replace what has failed, or to take the spare */
	result = look(request.cache, &list, &set);
	if (result)
		return result;
	result = is_spare(&set, request.ssd) ? remove_spare(&set, &request) : remove_ssd(&set, &request);
	set_free(&set);
	mapped_list_free(&list);
	return result;
}
