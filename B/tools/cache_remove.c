// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache remove: an SSD is drained and leaves the set of a cache that runs, in use or not.
 *
 * The kernel drains it (message `drain`), and names it no more in the tables of the others; then the table of the cache is reloaded
 * without it, and its superblocks go, so that nobody takes it for a part of the cache.  One that has failed only leaves the table, and its place is
 * empty from then on: nothing is missed (message `dismiss`); one that joins leaves it too, and was never in the set.  Of one that cannot be read it may
 * not be known which of these it is: that is asked.  While one is drained, which may last hours, the turn is others': what is loaded then is read then.
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
	bool no_wait, stop, dry_run, yes;
	bool sure; /* it is a member, or its place may be given up in any case */
};

static int send(const struct set *set, const char *what, uint32_t place)
{
	char *message = must_print("%s %u", what, place);
	int result = mapped_message(set->mapped->name, message);

	free(message);
	return result;
}

/* Who is in a place whose SSD has failed? */
enum tenant {
	TENANT_MISSED, /* that one; or nobody */
	TENANT_NEW, /* one that was to join there, and has not come to be a member: it is not the one that is missed */
	TENANT_UNKNOWN, /* one of these */
};

/* By what udev noted of it while it could be read. */
static enum tenant tenant_noted(const struct set *set, uint32_t place, dev_t number)
{
	enum tenant tenant = TENANT_UNKNOWN;
	const struct damaged *damaged;
	struct members members;
	size_t count;

	members_scan(&members);
	damaged = members_damaged(&count);
	for (size_t i = 0; i < count; i++)
		if (damaged[i].number == number && damaged[i].known)
			tenant = memcmp(damaged[i].uuid, set->table.devices[place].uuid, 16) ? TENANT_NEW : TENANT_MISSED;
	members_free(&members);
	return tenant;
}

static enum tenant tenant_of(const struct set *set, uint32_t place)
{
	enum tenant tenant = TENANT_MISSED;
	struct superblocks found;
	struct device device;

	if (!strcmp(set->ssd[place], "-"))
		return TENANT_MISSED;
	if (device_try(&device, set->ssd[place]))
		return TENANT_UNKNOWN;
	superblocks_read(&device, &found, false);
	if (!found.chosen)
		tenant = tenant_noted(set, place, device.number);
	else if (le32toh(found.chosen->sb->head.flags) & LARDER_CACHE_JOINS && set_is_stale(set, found.chosen->sb))
		tenant = TENANT_NEW;
	superblocks_free(&found);
	device_close(&device);
	return tenant;
}

static bool has_failed(const struct set *set, uint32_t place)
{
	char *state = set_state(set, place);
	bool failed = state && !strcmp(state, "failed");

	free(state);
	return failed;
}

/* Of one that cannot be read it is not known whether its place, too, is to be given up. */
static int ask_for_place(const struct set *set, uint32_t place, struct remove_request *request)
{
	const char *path = set->ssd[place], *cache = set->mapped->name;
	int result;

	if (request->sure || !has_failed(set, place) || tenant_of(set, place) != TENANT_UNKNOWN)
		return LARDER_DONE;
	printf("RISK: %s cannot be read: it has failed as SSD %u of %s, or was to join in the place of that: with it that SSD is not missed any more\n", path, place,
	       cache);
	fflush(stdout);
	result = request->dry_run ? LARDER_DONE : turn_confirm(cache, request->yes, "Give up the place?");
	request->sure = !result;
	return result;
}

static int let_go(struct set *set, uint32_t place, const struct remove_request *request)
{
	bool failed = has_failed(set, place);
	enum tenant tenant = failed ? tenant_of(set, place) : TENANT_NEW;
	char *path = set->ssd[place];
	int result;

	if (tenant == TENANT_UNKNOWN && !request->sure)
		return complain(LARDER_BUSY, "%s: has failed a moment ago, and cannot be read; larder cache remove, once more, asks what is to become of its place",
				path);
	set->ssd[place] = must_print("-");
	set_forget_failed(set);
	result = set_reload(set, 0);
	if (!result && tenant != TENANT_NEW)
		result = send(set, "dismiss", place);
	if (!result && !request->dry_run) {
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
static int drain_place(struct set *set, uint32_t place, struct remove_request *request)
{
	char *state = set_state(set, place);
	bool there = state && (!strcmp(state, "active") || !strcmp(state, "draining")), begun = state && !strcmp(state, "draining");
	int result = there && !begun ? send(set, "drain", place) : LARDER_DONE;

	free(state);
	request->sure |= there;
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
		result = let_go(&set, place, request);
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

static int remove_ssd(struct set *set, struct remove_request *request)
{
	int place = set_place(set, request->ssd), result;

	if (place < 0)
		return LARDER_NOT_FOUND;
	if (request->stop)
		return stop_draining(set, (uint32_t)place);
	result = drain_place(set, (uint32_t)place, request);
	result = result ? result : ask_for_place(set, (uint32_t)place, request);
	if (!result && request->dry_run)
		return let_go(set, (uint32_t)place, request);
	return result ? result : take_out(set->sb.cache_uuid, (uint32_t)place, set->ssd[place], request);
}

int cache_remove(int argc, char **argv)
{
	static const char usage[] = "larder cache remove CACHE SSD [--stop | --no-wait] [--dry-run] [--yes]";
	struct remove_request request = { 0 };
	const struct argument arguments[] = {
		{ "stop", 0, ARGUMENT_FLAG, &request.stop, NULL, "give draining up: it stays a member" },
		{ "no-wait", 0, ARGUMENT_FLAG, &request.no_wait, NULL, "do not wait until it is drained" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the dmsetup commands" },
		{ "yes", 'y', ARGUMENT_FLAG, &request.yes, NULL, "don't ask" },
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
