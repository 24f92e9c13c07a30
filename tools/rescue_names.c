// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names of caches and volumes for `larder rescue`.
 */
#include <string.h>

#include "message.h"
#include "rescue_names.h"

int rescue_named_cache(const char *name, struct members *members, struct rescue_cache *cache)
{
	const struct member *member;
	int result;

	members_scan(members);
	result = member_find(members, name, LARDER_KIND_CACHE, &member);
	result = result ? result : rescue_cache_open(cache, member->path);
	if (result)
		members_free(members);
	return result;
}

/* *path: of the cache's SSD, owned by members; NULL: the volume belongs to none. */
static int find_cache(struct members *members, const struct member *volume, const char *name, const char **path)
{
	const struct member *cache;
	char uuid[UUID_TEXT];
	int result;

	*path = NULL;
	if (name) {
		result = member_find(members, name, LARDER_KIND_CACHE, &cache);
		if (!result)
			*path = cache->path;
		return result;
	}
	if (uuid_is_zero(volume->sb.volume.cache_uuid))
		return LARDER_DONE;
	cache = member_cache(members, volume->sb.volume.cache_uuid);
	if (!cache)
		return complain(LARDER_NOT_FOUND, "%s: cache_uuid: its cache %s is on none of the devices here; --cache names its SSD",
				volume->path, uuid_text(volume->sb.volume.cache_uuid, uuid));
	*path = cache->path;
	return LARDER_DONE;
}

int rescue_named_volume(const char *name, const char *cache_name, enum device_access access, struct rescue_cache *cache,
			struct rescue_volume *volume, bool *has_cache)
{
	const struct member *member;
	struct members members;
	const char *path = NULL;
	int result;

	*cache = (struct rescue_cache){ 0 };
	members_scan(&members);
	result = member_find(&members, name, LARDER_KIND_VOLUME, &member);
	result = result ? result : find_cache(&members, member, cache_name, &path);
	*has_cache = path;
	if (!result && path)
		result = rescue_cache_open(cache, path);
	if (!result) {
		result = rescue_volume_open(volume, *has_cache ? cache : NULL, member->path, access);
		if (result && *has_cache)
			rescue_cache_close(cache);
	}
	members_free(&members);
	return result;
}
