// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names of caches and volumes for `larder rescue`.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "rescue_names.h"
#include "stack_age.h"

/* All that were found of a cache. */
static int open_found(const struct members *members, const uint8_t cache_uuid[16], bool degraded, struct rescue_cache *cache)
{
	const char **paths = must_allocate(calloc(members->number + 1, sizeof(*paths)));
	size_t number = 0;
	int result;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, cache_uuid, 16))
			paths[number++] = m->path;
	}
	result = rescue_cache_open(cache, paths, number, degraded);
	free(paths);
	return result;
}

static int open_named(struct members *members, const struct cache_names *names, struct rescue_cache *cache)
{
	const struct member *member;
	int result;

	if (names->number == 1 && !strchr(names->name[0], '/')) {
		result = member_find(members, names->name[0], LARDER_KIND_CACHE, &member);
		return result ? result : open_found(members, member->sb.cache.cache_uuid, names->degraded, cache);
	}
	for (int i = 0; i < names->number; i++)
		if (!strchr(names->name[i], '/'))
			return complain(LARDER_USAGE, "%s: is no device; several SSDs are given by their devices", names->name[i]);
	return rescue_cache_open(cache, names->name, (size_t)names->number, names->degraded);
}

int rescue_named_cache(const struct cache_names *names, struct members *members, struct rescue_cache *cache)
{
	int result;

	members_scan(members);
	result = open_named(members, names, cache);
	if (result)
		members_free(members);
	return result;
}

/* *has: false for a volume that belongs to none. */
static int open_cache_of(struct members *members, const struct member *volume, const struct cache_names *names,
			 struct rescue_cache *cache, bool *has)
{
	const uint8_t *cache_uuid = volume->sb.volume.cache_uuid;
	char uuid[UUID_TEXT];

	*has = names->number || !uuid_is_zero(cache_uuid);
	if (names->number)
		return open_named(members, names, cache);
	if (!*has)
		return LARDER_DONE;
	if (!member_cache(members, cache_uuid))
		return complain(LARDER_NOT_FOUND, "%s: cache_uuid: its cache %s is on none of the devices here; --cache names its SSD",
				volume->path, uuid_text(cache_uuid, uuid));
	return open_found(members, cache_uuid, names->degraded, cache);
}

/* The SSDs that are read, which the scan may not have seen, and those that it has. */
static char *too_old(const struct members *members, const struct rescue_cache *cache, const struct stack *stack)
{
	struct member *of_cache = must_allocate(calloc(cache->set.number + 1, sizeof(*of_cache)));
	struct members all = { must_allocate(calloc(members->number + cache->set.number + 1, sizeof(*all.member))), 0 };
	char *why;

	for (size_t i = 0; i < members->number; i++)
		all.member[all.number++] = members->member[i];
	for (size_t i = 0; i < cache->set.number; i++)
		if (cache->set.ssd[i].sb) {
			of_cache[i].sb.cache = *cache->set.ssd[i].sb;
			all.member[all.number++] = &of_cache[i];
		}
	why = stack_too_old(&all, stack);
	free(all.member);
	free(of_cache);
	return why;
}

/* Today's cache over a disk that had left its stack, or came from a backup, would be neither the one nor the other. */
static int judge_age(const struct members *members, const struct rescue_cache *cache, const struct rescue_volume *volume)
{
	struct stack stack;
	int result = LARDER_DONE;
	bool there;
	char *why = NULL;

	if (!stack_decode(volume->sb->stack, &stack, &there) && there)
		why = too_old(members, cache, &stack);
	if (why)
		result = complain(LARDER_UNSAFE, "%s: %s", volume->device.path, why);
	free(why);
	return result;
}

int rescue_with_volume(const char *name, const struct cache_names *names, enum device_access access,
		       int (*run)(struct rescue_cache *cache, const struct rescue_volume *volume, void *data), void *data)
{
	const struct member *member;
	struct rescue_cache cache = { 0 };
	struct rescue_volume volume;
	struct members members;
	bool has_cache = false;
	int result;

	members_scan(&members);
	result = member_find(&members, name, LARDER_KIND_VOLUME, &member);
	result = result ? result : open_cache_of(&members, member, names, &cache, &has_cache);
	if (!result) {
		result = rescue_volume_open(&volume, has_cache ? &cache : NULL, member->path, access);
		if (!result) {
			result = judge_age(&members, &cache, &volume);
			result = result ? result : run(&cache, &volume, data);
			rescue_volume_close(&volume);
		}
		if (has_cache)
			rescue_cache_close(&cache);
	}
	members_free(&members);
	return result;
}
