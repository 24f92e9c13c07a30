// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder volume attach, larder volume detach: a reload of the volume's table with another second word, the volume in use or not.
 *
 * Detach: mode writethrough, so that nothing gets dirty any more; dirty data flushed, or given up by a word that names the
 * cache; the table reloaded with "-", with the options that it had; the kernel then forgets what the cache holds of it.  It
 * refuses that table while anything is dirty: what is checked here is for a good message.  Whatever goes wrong on the way, the
 * mode becomes again what it was.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "drain.h"
#include "guard.h"
#include "root_image.h"
#include "running.h"
#include "stack_store.h"
#include "turn.h"
#include "verbs.h"

/* "<backing> <cache> <rest>" with another cache; the caller frees it.  NULL: the table is not of that form. */
static char *with_cache(const char *params, const char *cache)
{
	const char *second = strchr(params, ' '), *rest = second ? strchr(second + 1, ' ') : NULL;

	return rest ? must_print("%.*s %s%s", (int)(second - params), params, cache, rest) : NULL;
}

static int reload(const struct mapped *volume, const char *params, const char *cache)
{
	char *next = with_cache(params, cache);
	int result;

	if (!next)
		return complain(LARDER_FAILED, "%s: its table cannot be understood: %s", volume->name, params);
	result = mapped_reload(volume->target, TARGET_VOLUME, volume->sectors, next);
	free(next);
	return result;
}

/* ------------------------------------------------------------------ attach */

/* The cache meant by name: *running; NULL: it is started, *member is one of its SSDs. */
static int find_cache(const struct mapped_list *list, struct members *members, const char *name, const struct mapped **running,
		      const struct member **member)
{
	int result;

	*running = running_named(list, name, true);
	if (*running)
		return LARDER_DONE;
	result = member_find(members, name, LARDER_KIND_CACHE, member);
	*running = result ? NULL : running_by_uuid(list, (*member)->sb.cache.cache_uuid, true);
	return result;
}

/* Of a stack's volume, no other cache than the stack's; of any, none that has a volume below or above it. */
static int check_cache(const struct mapped_list *list, const struct members *members, const struct mapped *volume, const struct mapped *running,
		       const struct member *ssd)
{
	const struct member *member;
	uint8_t own[16], cache[16];
	int result;

	member = running_uuid(volume, own) ? member_volume(members, own) : NULL;
	if (!running)
		memcpy(cache, ssd->sb.cache.cache_uuid, 16);
	else if (!running_uuid(running, cache))
		return complain(LARDER_FAILED, "%s: its status cannot be understood", running->name);
	result = running_check_entangled(list, volume->name, volume->target_number, cache);
	return result || !member ? result : stack_check_cache(member, cache);
}

/* Node of the cache meant by name, started if need be. */
static int bring_cache(const struct mapped_list *list, const struct mapped *volume, const char *name, bool dry_run, char **path)
{
	static const struct argument_list no_options;
	const struct member *member = NULL;
	const struct mapped *running;
	struct members members;
	int result;

	members_scan(&members);
	result = find_cache(list, &members, name, &running, &member);
	result = result ? result : check_cache(list, &members, volume, running, member);
	if (!result && running)
		*path = mapper_path(running->name);
	else if (!result)
		result = cache_bring_up(&members, member, NULL, &no_options, (dry_run ? BRING_UP_DRY : 0) | (strchr(name, '/') ? BRING_UP_BY_PATH : 0), path);
	if (!result && !running && !dry_run)
		printf("cache %s: started as %s\n", name, *path);
	members_free(&members);
	return result;
}

static int attach(const struct mapped_list *list, const struct mapped *volume, const char *cache, bool dry_run)
{
	char *path = NULL, *params = NULL, *now = status_value(volume->status, "cache");
	uint8_t uuid[16];
	int result = LARDER_DONE;

	if (now && strcmp(now, "-"))
		result = complain(LARDER_UNSAFE, "%s: is attached to the cache %s; detach it first", volume->name, now);
	free(now);
	result = result ? result : bring_cache(list, volume, cache, dry_run, &path);
	result = result ? result : mapped_table(volume, &params);
	result = result ? result : reload(volume, params, path);
	if (!result && !dry_run) {
		printf("volume %s: attached to %s\n", volume->name, path);
		if (running_uuid(volume, uuid))
			remark_of_root(uuid, volume->name, path);
	}
	free(params);
	free(path);
	return result;
}

int volume_attach(int argc, char **argv)
{
	const char *cache = NULL;
	bool dry_run = false;
	const struct argument arguments[] = { { "cache", 'c', ARGUMENT_TEXT, &cache, "CACHE", "the cache: name, UUID or SSD" },
					      { "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only print the dmsetup commands" },
					      ARGUMENTS_END };
	static const char usage[] = "larder volume attach NAME|UUID|DEVICE --cache CACHE [--dry-run]";
	struct mapped *volume;
	struct mapped_list list;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	if (!cache)
		return complain(LARDER_USAGE, "--cache: is missing; usage: %s", usage);
	mapped_init(dry_run);
	if (!dry_run)
		turn_take(); /* or larderd would take the cache, as it has no table yet, for what somebody left behind */
	result = mapped_scan(&list);
	result = result ? result : running_find(&list, argv[first], false, &volume);
	result = result ? result : attach(&list, volume, cache, dry_run);
	mapped_list_free(&list);
	return result;
}

/* ------------------------------------------------------------------ detach */

struct detach_request {
	const char *discard_dirty; /* UUID of the cache */
	bool flush, dry_run;
};

static int set_mode(const struct mapped *volume, const char *mode)
{
	char *message = must_print("set mode %s", mode);
	int result = mapped_message(volume->target, message);

	free(message);
	return result;
}

/* May --discard-dirty be?  The kernel asks for a suspended volume: what it reads changes under its users, so there must be none. */
static int may_discard(const struct mapped *volume, const char *cache, const char *given)
{
	uint8_t a[16], b[16];

	if (uuid_parse(given, a) || uuid_parse(cache, b) || memcmp(a, b, 16))
		return complain(LARDER_UNSAFE, "%s: --discard-dirty: the cache is %s, not %s; nothing was given up", volume->name,
				cache, given);
	if (strcmp(volume->name, volume->target))
		return complain(LARDER_UNSAFE, "%s: --discard-dirty: it has snapshots, which would lose what they share with it; remove them first",
				volume->name);
	if (volume->open_count)
		return complain(LARDER_BUSY,
				"%s: --discard-dirty: the volume is in use, and what it reads would change; unmount it first",
				volume->name);
	return LARDER_DONE;
}

struct discard {
	const struct mapped *volume;
	const char *params, *cache;
	bool dry_run;
};

/* Guarded: it is suspended from its first line to its last. */
static int discard_dirty(void *argument)
{
	const struct discard *discard = argument;
	const char *name = discard->volume->target;
	int result = mapped_suspend(name);
	char *message;

	if (result)
		return result;
	message = must_print("discard_dirty %s", discard->cache);
	result = mapped_message(name, message);
	free(message);
	result = result ? result : reload(discard->volume, discard->params, "-");
	if (result && !discard->dry_run && mapped_suspended(name))
		mapped_resume(name);
	return result;
}

static int detach_dirty(const struct mapped *volume, const char *params, const char *cache, const struct detach_request *request)
{
	struct discard discard = { volume, params, cache, request->dry_run };
	int result = may_discard(volume, cache, request->discard_dirty);

	if (result)
		return result;
	result = request->dry_run ? discard_dirty(&discard) : guard_run(discard_dirty, &discard);
	if (result == GUARD_BROKEN)
		return complain(LARDER_FAILED, "%s: cannot detach it: the process that was to do it was killed, or could not begin; try again",
				volume->name);
	return result;
}

/* Nothing dirty is left after it, and nothing gets dirty. */
static int clean(struct mapped *volume, const char *cache, const struct detach_request *request)
{
	uint64_t dirty;
	int result;

	if (request->flush && request->dry_run)
		return mapped_message(volume->target, "flush");
	if (request->flush) {
		turn_give(); /* it may last hours */
		result = drain(volume);
		turn_take();
		return result;
	}
	result = request->dry_run ? LARDER_DONE : mapped_refresh(volume);
	dirty = result ? 0 : status_number(volume->status, "dirty_sectors") << 9;
	if (!dirty)
		return result;
	return complain(
		LARDER_UNSAFE,
		"%s: %llu bytes are dirty in the cache; --flush writes them back first, --discard-dirty %s gives them up: LOST",
		volume->name, (unsigned long long)dirty, cache);
}

/* "<backing> <cache> <number of words> <rest>" without these two words behind `at`, a space, on; the caller frees it. */
static char *without_words(const char *params, const char *at, size_t length)
{
	const char *number = strchr(strchr(params, ' ') + 1, ' ') + 1, *rest = number + strcspn(number, " ");

	return must_print("%.*s%lu%.*s%s", (int)(number - params), params, strtoul(number, NULL, 10) - 2, (int)(at - rest), rest, at + length);
}

/* *params anew: others may have set options while it was drained.  The mode is ours, and becomes what it was: in a table without it the superblock's. */
static int read_again(struct mapped *volume, const char *cache, const char *mode, char **params)
{
	static const char ours[] = " mode writethrough";
	bool had = strstr(*params, " mode ");
	int result = mapped_refresh(volume);
	char *now, *at;

	if (!result && !status_is(volume->status, "cache", cache))
		result = complain(LARDER_BUSY, "%s: has another cache by now, or none; see larder volume status %s", volume->name,
				  volume->name);
	result = result ? result : mapped_table(volume, &now);
	if (result)
		return result;
	free(*params);
	*params = now;
	at = strstr(now, ours);
	if (at && (!at[strlen(ours)] || at[strlen(ours)] == ' ')) {
		*params = had ? must_print("%.*s mode %s%s", (int)(at - now), now, mode, at + strlen(ours)) : without_words(now, at, strlen(ours));
		free(now);
	}
	return LARDER_DONE;
}

static int detach(struct mapped *volume, const struct detach_request *request)
{
	/* its table says nothing of the mode where that is the superblock's */
	char *cache = status_value(volume->status, "cache"), *params = NULL, *mode = status_value(volume->status, "mode");
	int result;

	if (!cache || !strcmp(cache, "-"))
		result = complain(LARDER_NOT_FOUND, "%s: has no cache", volume->name);
	else if (!mode)
		result = complain(LARDER_FAILED, "%s: mode: is not in its status, so it could not be put back; see larder volume status %s", volume->name, volume->name);
	else
		result = mapped_table(volume, &params);
	if (result) {
		free(cache);
		free(mode);
		return result;
	}
	drain_catch_signals();
	result = set_mode(volume, "writethrough");
	if (!result) {
		if (request->discard_dirty)
			result = detach_dirty(volume, params, cache, request);
		else
			result = clean(volume, cache, request);
		if (!result && request->flush && !request->dry_run)
			result = read_again(volume, cache, mode, &params);
		if (!result && !request->discard_dirty)
			result = reload(volume, params, "-");
		if (result)
			set_mode(volume, mode);
	}
	if (!result && !request->dry_run)
		printf("volume %s: detached from the cache %s\n", volume->name, cache);
	free(mode);
	free(params);
	free(cache);
	return result;
}

int volume_detach(int argc, char **argv)
{
	static const char usage[] = "larder volume detach NAME|UUID|DEVICE [--flush | --discard-dirty CACHE-UUID] [--dry-run]";
	struct detach_request request = { 0 };
	const struct argument arguments[] = {
		{ "flush", 'f', ARGUMENT_FLAG, &request.flush, NULL, "write dirty data back first, and wait for it" },
		{ "discard-dirty", 0, ARGUMENT_TEXT, &request.discard_dirty, "CACHE-UUID",
		  "give up the dirty data in that cache: LOST" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the dmsetup commands" },
		ARGUMENTS_END
	};
	struct mapped *volume;
	struct mapped_list list;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	if (request.flush && request.discard_dirty)
		return complain(LARDER_USAGE, "--flush and --discard-dirty exclude each other");
	mapped_init(request.dry_run);
	if (!request.dry_run)
		turn_take();
	result = mapped_scan(&list);
	result = result ? result : running_find(&list, argv[first], false, &volume);
	result = result ? result : detach(volume, &request);
	mapped_list_free(&list);
	return result;
}
