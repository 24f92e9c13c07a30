// SPDX-License-Identifier: GPL-2.0-or-later
/* daemon/dm_digest.c: what device-mapper may say that makes larderd look at its disks; and what of others wakes none. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../lib/message.c"
#include "../../daemon/dm_digest.c"

#include "check.h"

static struct there {
	const char *name, *uuid, *target;
	bool half;
} here[8];

#define NAMED(n, u) ((struct there){ .name = (n), .uuid = (u) })

int snapshot_take(struct mapped_list *list)
{
	for (size_t i = 0; i < 8 && here[i].name; i++) {
		struct mapped *one;

		if (!here[i].target)
			continue;
		list->mapped = realloc(list->mapped, (list->number + 1) * sizeof(*list->mapped));
		one = &list->mapped[list->number++];
		*one = (struct mapped){ .cache = !strcmp(here[i].target, TARGET_CACHE) };
		strcpy(one->name, here[i].name);
		strcpy(one->uuid, here[i].uuid);
		strcpy(one->target, here[i].target);
	}
	return 0;
}

void mapped_list_free(struct mapped_list *list)
{
	free(list->mapped);
}

int mapped_scan_names(struct mapped_names *names)
{
	names->name = malloc(sizeof(here));
	for (size_t i = 0; i < 8 && here[i].name; i++)
		names->name[names->number++] = (char *)here[i].name;
	return 0;
}

void mapped_names_free(struct mapped_names *names)
{
	free(names->name);
}

bool mapped_look(const char *name, char uuid[static DM_UUID_MAX], dev_t *number)
{
	for (size_t i = 0; i < 8 && here[i].name; i++)
		if (!strcmp(here[i].name, name)) {
			strcpy(uuid, here[i].uuid);
			*number = 7;
			return true;
		}
	return false;
}

bool mapped_is_shown(const char *uuid)
{
	for (size_t i = 0; i < 8 && here[i].name; i++)
		if (!strcmp(here[i].uuid, uuid))
			return !here[i].half;
	return false;
}

bool cow_nearly_full(const struct cow_status *status)
{
	return false;
}

static struct dm_digest with(struct there more)
{
	struct dm_digest digest;

	memset(here, 0, sizeof(here));
	here[0] = (struct there){ "data", "LARDER-1", TARGET_VOLUME, false };
	here[1] = (struct there){ CACHE_PREFIX "fast", "LARDER-2-cache", TARGET_CACHE, false };
	here[2] = more;
	dm_digest_take(&digest);
	return digest;
}

static bool is_seen(struct there more)
{
	struct dm_digest without = with((struct there){ 0 }), now = with(more);

	check(without.known && now.known && dm_digest_same(&without, &without, true), "the same is the same");
	check(!dm_digest_same(&without, &now, true), "of all devices another name is told");
	return !dm_digest_same(&without, &now, false);
}

int main(void)
{
	const struct there crypt = NAMED("data-crypt", "CRYPT-LUKS2-a-data-crypt"),
			   half = { .name = "data-crypt", .uuid = "CRYPT-LUKS2-a-data-crypt", .half = true };
	struct dm_digest one, other;

	check(is_seen(crypt), "a stack is unlocked, or locked");
	one = with(half);
	other = with(crypt);
	check(!dm_digest_same(&one, &other, false), "it gets its table");
	other = with(NAMED("data-crypt", "CRYPT-LUKS2-b-data-crypt"));
	one = with(crypt);
	check(!dm_digest_same(&one, &other, false), "another one is there by the same name");
	check(is_seen(NAMED("data-origin", "LARDER-1-origin")), "what is ours");
	check(!is_seen(NAMED("home-crypt", "CRYPT-LUKS2-a-home-crypt")), "LUKS of others");
	check(!is_seen(NAMED("data-crypt", "CRYPT-PLAIN-data-crypt")), "no LUKS by that name");
	check(!is_seen(NAMED("data-crypt", "")), "without a UUID");
	check(!is_seen(NAMED("data2-crypt", "CRYPT-LUKS2-a-data2-crypt")), "a name that only begins like a volume's");
	check(!is_seen(NAMED("dat-crypt", "CRYPT-LUKS2-a-dat-crypt")), "or is the beginning of one");
	check(!is_seen(NAMED("-crypt", "CRYPT-LUKS2-a--crypt")), "or is none");
	check(!is_seen(NAMED(CACHE_PREFIX "fast-crypt", "CRYPT-LUKS2-a-x")), "of a cache");
	check(!is_seen(NAMED("root", "LVM-abc")), "a volume of LVM");
	return failed;
}
