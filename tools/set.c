// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The set of SSDs of a cache that runs.  Where each SSD's segments are, and what became of it, is in the table on the SSDs; which
 * devices they are, in the dm table.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "claim.h"
#include "root_image.h"
#include "set.h"

#define POLL_US 100000u

/* ------------------------------------------------------------------ the table on the SSDs */

/* The table of one SSD, if it is newer than what is there. */
static bool take_table(const char *path, const uint8_t uuid[16], bool any, struct larder_table *table, struct larder_cache_sb *sb)
{
	struct superblocks found;
	struct cache_tables tables;
	struct device device;
	bool taken = false;

	if (device_try(&device, path))
		return false;
	superblocks_read(&device, &found, false);
	if (found.chosen && le32toh(found.chosen->sb->head.kind) == LARDER_KIND_CACHE &&
	    !memcmp(found.chosen->sb->cache.cache_uuid, uuid, 16)) {
		tables_read(&device, &found.chosen->sb->cache, &tables);
		if (tables.chosen && (!any || table_is_newer(tables.chosen, table))) {
			*table = *tables.chosen;
			if (sb)
				*sb = found.chosen->sb->cache;
			taken = true;
		}
		tables_free(&tables);
	}
	superblocks_free(&found);
	device_close(&device);
	return taken;
}

bool set_newest_table(const struct members *members, const uint8_t uuid[16], struct larder_table *table)
{
	bool any = false;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, uuid, 16))
			any |= take_table(m->path, uuid, any, table, NULL);
	}
	return any;
}

/* ------------------------------------------------------------------ one that is older than it was */

static bool is_active(const struct member *m, const struct larder_table *table)
{
	uint32_t place = le32toh(m->sb.cache.device_number);

	return le32toh(m->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, table->head.cache_uuid, 16) &&
	       place < LARDER_MAX_DEVICES && le32toh(table->devices[place].state) == LARDER_DEVICE_ACTIVE &&
	       !memcmp(m->sb.head.uuid, table->devices[place].uuid, 16);
}

/* The generation that the superblocks of all members of this set have had, as far as those here know. */
static uint64_t all_had(const struct members *members, const struct larder_table *table)
{
	uint64_t all = 0;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (is_active(m, table) && le64toh(m->sb.cache.all_generation) > all)
			all = le64toh(m->sb.cache.all_generation);
	}
	return all;
}

char *set_why_older(const struct members *members, const struct larder_table *table, const struct member *ssd)
{
	uint64_t all = all_had(members, table);

	if (!is_active(ssd, table) || le64toh(ssd->sb.head.generation) >= all)
		return NULL;
	return must_print("%s: generation: is %" PRIu64 ", and all SSDs of the set had %" PRIu64 ": it is older than it was, as one put back from an image is",
			  ssd->path, le64toh(ssd->sb.head.generation), all);
}

bool set_remark_older(const struct members *members, const struct larder_table *table, const struct member *ssd, const char *more)
{
	char *why = set_why_older(members, table, ssd);
	bool older = why;

	if (older)
		remark("%s%s", why, more);
	free(why);
	return older;
}

/* ------------------------------------------------------------------ the dm table */

/* "2 /dev/sdb 8:32 0" */
static bool split(struct set *set)
{
	char *at = set->params;
	unsigned long number = strtoul(at, &at, 10);

	if (!number || number > LARDER_MAX_DEVICES)
		return false;
	set->number = (uint32_t)number;
	for (uint32_t i = 0; i < set->number; i++) {
		size_t length;

		at += strspn(at, " ");
		length = strcspn(at, " ");
		if (!length)
			return false;
		set->ssd[i] = must_print("%.*s", (int)length, at);
		at += length;
	}
	set->options = at + strspn(at, " ");
	return true;
}

/* The node of what the dm table calls "8:32". */
static char *node(const char *word)
{
	unsigned int major, minor;
	char text[256];

	if (sscanf(word, "%u:%u", &major, &minor) == 2 && device_node(makedev(major, minor), text, sizeof(text)))
		return must_print("%s", text);
	return must_print("%s", word);
}

int set_read_words(struct set *set, struct mapped *mapped)
{
	int result;

	*set = (struct set){ .mapped = mapped };
	result = mapped_table(mapped, &set->params);
	if (result)
		return result;
	if (!split(set)) {
		set_free(set);
		return complain(LARDER_FAILED, "%s: its table cannot be understood", mapped->name);
	}
	for (uint32_t i = 0; i < set->number; i++) {
		char *path = node(set->ssd[i]);

		free(set->ssd[i]);
		set->ssd[i] = path;
	}
	return LARDER_DONE;
}

int set_read_table(struct set *set)
{
	uint8_t uuid[16];
	bool any = false;

	if (!running_uuid(set->mapped, uuid))
		return complain(LARDER_FAILED, "%s: its status cannot be understood", set->mapped->name);
	for (uint32_t i = 0; i < set->number; i++)
		if (strcmp(set->ssd[i], "-"))
			any |= take_table(set->ssd[i], uuid, any, &set->table, &set->sb);
	return any ? LARDER_DONE : complain(LARDER_FAILED, "%s: none of its SSDs has a table that can be read", set->mapped->name);
}

int set_read(struct set *set, struct mapped *mapped)
{
	int result = set_read_words(set, mapped);

	if (result)
		return result;
	result = set_read_table(set);
	if (result)
		set_free(set);
	return result;
}

void set_free(struct set *set)
{
	for (uint32_t i = 0; i < LARDER_MAX_DEVICES; i++) {
		free(set->ssd[i]);
		set->ssd[i] = NULL;
	}
	free(set->params);
	set->params = NULL;
}

static bool same_device(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && S_ISBLK(x.st_mode) && S_ISBLK(y.st_mode) && x.st_rdev == y.st_rdev;
}

int set_find_device(const struct set *set, const char *path)
{
	for (uint32_t i = 0; i < set->number; i++)
		if (strcmp(set->ssd[i], "-") && same_device(set->ssd[i], path))
			return (int)i;
	return -1;
}

int set_find_uuid(const struct set *set, const char *text)
{
	uint8_t uuid[16];

	for (uint32_t i = 0; !uuid_parse(text, uuid) && i < set->number; i++)
		if (!memcmp(uuid, set->table.devices[i].uuid, 16))
			return (int)i;
	return -1;
}

int set_place(const struct set *set, const char *word)
{
	char *end;
	unsigned long number = strtoul(word, &end, 10);

	if (*word && !*end && number < set->number)
		return (int)number;
	if (set_find_device(set, word) >= 0)
		return set_find_device(set, word);
	if (set_find_uuid(set, word) >= 0)
		return set_find_uuid(set, word);
	complain(LARDER_NOT_FOUND, "%s: %s has no such SSD: give its number, device or UUID; larder cache status shows them", word,
		 set->mapped->name);
	return -1;
}

bool set_is_stale(const struct set *set, const union superblock *sb)
{
	uint32_t place = le32toh(sb->cache.device_number);

	if (le32toh(sb->head.kind) != LARDER_KIND_CACHE || memcmp(sb->cache.cache_uuid, set->sb.cache_uuid, 16))
		return false;
	return place >= set->number || le32toh(set->table.devices[place].state) != LARDER_DEVICE_ACTIVE ||
	       memcmp(set->table.devices[place].uuid, sb->head.uuid, 16);
}

bool set_knows(const struct set *set, const char *path, const union superblock *sb)
{
	struct cache_tables tables;
	struct device device;
	bool known;

	if (device_try(&device, path))
		return false;
	tables_read(&device, &sb->cache, &tables);
	known = !tables.chosen || table_knows(&set->table, table_set_generation(tables.chosen));
	tables_free(&tables);
	device_close(&device);
	return known;
}

bool set_is_spare(const struct set *set, const union superblock *sb)
{
	return le32toh(sb->head.kind) == LARDER_KIND_SPARE && !memcmp(sb->cache.cache_uuid, set->sb.cache_uuid, 16);
}

bool set_erase(const char *path, uint32_t kind, const uint8_t cache[16])
{
	struct superblocks found;
	struct device device;
	bool ours;
	int error;

	if (!strcmp(path, "-"))
		return true;
	if (claim_member(&device, &found, path, kind, cache, &ours)) {
		remark("%s: is left as it is; larder super wipe %s removes what is on it", path, path);
		return false;
	}
	if (!ours)
		return false;
	error = superblocks_erase(&device, &found);
	if (error)
		remark("%s: its superblock cannot be removed: %s", path, strerror(-error));
	superblocks_free(&found);
	device_close(&device);
	return !error;
}

int set_reload(struct set *set, uint64_t more)
{
	char *params = must_print("%u", set->number), *longer;
	int result;

	for (uint32_t i = 0; i <= set->number; i++) {
		longer = must_print("%s %s", params, i < set->number ? set->ssd[i] : set->options);
		free(params);
		params = longer;
	}
	result = mapped_reload(set->mapped->name, TARGET_CACHE, set->mapped->sectors + more, params);
	free(params);
	return result;
}

/* ------------------------------------------------------------------ what the kernel says */

char *set_state(const struct set *set, uint32_t place)
{
	char *all = status_value(set->mapped->status, "ssds"), *at = all, *state = NULL;

	for (uint32_t i = 0; at && i < place; i++) {
		at = strchr(at, '/');
		at = at ? at + 1 : NULL;
	}
	if (at)
		state = must_print("%.*s", (int)strcspn(at, "/"), at);
	free(all);
	return state;
}

void set_forget_failed(struct set *set)
{
	for (uint32_t i = 0; i < set->number; i++) {
		char *state = set_state(set, i);

		if (state && (!strcmp(state, "failed") || !strcmp(state, "removed"))) {
			free(set->ssd[i]);
			set->ssd[i] = must_print("-");
		}
		free(state);
	}
}

int set_wait(struct set *set, uint32_t place, const char *state)
{
	for (;;) {
		int result = mapped_refresh(set->mapped);
		char *now = result ? NULL : set_state(set, place);
		bool there = now && !strcmp(now, state);

		free(now);
		if (result || !there)
			return result;
		usleep(POLL_US);
	}
}

int set_say_joined(const struct set *set, uint32_t place, const char *path)
{
	char *state = set_state(set, place);
	int result = LARDER_DONE;

	if (state && !strcmp(state, "active"))
		printf("cache %s: %s has joined the set as SSD %u\n", set->mapped->name, path, place);
	else if (state && !strcmp(state, "joining"))
		printf("cache %s: %s joins the set as SSD %u\n", set->mapped->name, path, place);
	else
		result = complain(LARDER_FAILED,
				  "%s: has not joined the set of %s: it is %s; the kernel's log says why; the same command, once more, has it join anew", path,
				  set->mapped->name, state ? state : "unknown");
	free(state);
	if (!result)
		remark_of_root(set->sb.cache_uuid, set->mapped->name, path);
	return result;
}
