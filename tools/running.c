// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Caches and volumes that run.
 *
 * Which one a dm device is, its status says (uuid=...), not its name: names are free, and plain dmsetup may have made it.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uuid/uuid.h>

#include "claim.h"
#include "cow.h"
#include "running.h"
#include "set.h"
#include "stack_store.h"
#include "turn.h"

static bool told(const struct mapped *mapped, const char *key, uint8_t uuid[16])
{
	char *text = status_value(mapped->status, key);
	bool good = text && !uuid_parse(text, uuid);

	free(text);
	return good;
}

bool running_uuid(const struct mapped *mapped, uint8_t uuid[16])
{
	return told(mapped, "uuid", uuid);
}

bool running_cache(const struct mapped *volume, uint8_t cache[16])
{
	return told(volume, "cache", cache);
}

struct mapped *running_by_uuid(const struct mapped_list *list, const uint8_t uuid[16], bool cache)
{
	uint8_t other[16];

	for (size_t i = 0; i < list->number; i++)
		if (list->mapped[i].cache == cache && running_uuid(&list->mapped[i], other) && !memcmp(other, uuid, 16))
			return &list->mapped[i];
	return NULL;
}

const struct mapped *running_entangled(const struct mapped_list *list, dev_t number, const uint8_t cache[16])
{
	for (size_t i = 0; i < list->number; i++) {
		const struct mapped *m = &list->mapped[i];
		uint8_t own[16];

		if (!m->cache && running_cache(m, own) && !memcmp(own, cache, 16) && (device_lies_on(number, m->target_number) || device_lies_on(m->target_number, number)))
			return m;
	}
	return NULL;
}

int running_check_entangled(const struct mapped_list *list, const char *path, dev_t number, const uint8_t cache[16])
{
	const struct mapped *other;
	struct mapped_list now;
	int result;

	if (!list) {
		result = mapped_scan(&now);
		result = result ? result : running_check_entangled(&now, path, number, cache);
		mapped_list_free(&now);
		return result;
	}
	other = running_entangled(list, number, cache);
	if (!other)
		return LARDER_DONE;
	return complain(LARDER_UNSAFE,
			"%s: lies %s the volume %s, which has the same cache: each would wait for the other, for ever, when that is full; give it another cache, or none, "
			"or another device",
			path, device_lies_on(number, other->target_number) ? "on" : "below", other->name);
}

static bool is_named(const struct mapped *mapped, const char *name)
{
	char *prefixed = must_print("%s%s", mapped->cache ? CACHE_PREFIX : "", name);
	bool is = !strcmp(mapped->name, prefixed) || !strcmp(mapped->name, name);
	uint8_t uuid[16], own[16];
	struct stat status;

	free(prefixed);
	if (strchr(name, '/'))
		return !stat(name, &status) && S_ISBLK(status.st_mode) && mapped->number == status.st_rdev;
	if (!uuid_parse(name, uuid))
		return running_uuid(mapped, own) && !memcmp(uuid, own, 16);
	return is;
}

struct mapped *running_named(const struct mapped_list *list, const char *name, bool cache)
{
	for (size_t i = 0; i < list->number; i++)
		if (list->mapped[i].cache == cache && is_named(&list->mapped[i], name))
			return &list->mapped[i];
	return NULL;
}

int running_find(const struct mapped_list *list, const char *name, bool cache, struct mapped **found)
{
	uint32_t kind = cache ? LARDER_KIND_CACHE : LARDER_KIND_VOLUME;
	const struct member *member;
	struct members members;
	int result;

	*found = running_named(list, name, cache);
	if (*found)
		return LARDER_DONE;
	members_scan(&members);
	result = member_find(&members, name, kind, &member);
	if (!result) {
		*found = running_by_uuid(list, cache ? member->sb.cache.cache_uuid : member->sb.head.uuid, cache);
		if (!*found)
			result = complain(LARDER_NOT_FOUND, "%s: this %s is not started; larder %s start %s", name, kind_text(kind),
					  kind_text(kind), name);
	}
	members_free(&members);
	return result;
}

int stop_running(const struct mapped *mapped, bool dry_run)
{
	uint8_t uuid[16];
	bool known = running_uuid(mapped, uuid), below = known && !mapped->cache;
	int result = below ? cow_check_unused(uuid) : LARDER_DONE;

	if (result)
		return result;
	/* before: once it is gone the daemon looks */
	if (known && !dry_run)
		stopped_set(uuid);
	/* what a start has left is below a volume that is not shown */
	if (!below || !strstr(mapped->uuid, BELOW_ORIGIN))
		result = mapped_remove(mapped->name);
	if (!result && below)
		result = cow_clear(uuid);
	if (result && known && !dry_run)
		stopped_clear(uuid);
	return result;
}

bool running_left_over(const uint8_t uuid[16])
{
	char *shown = cow_volume_uuid(uuid);
	struct mapped_names names;
	bool left;

	left = !mapped_is_shown(shown) && !mapped_scan_below(shown, &names) && names.nr_half;
	if (left)
		mapped_names_free(&names);
	free(shown);
	return left;
}

int running_clear_cache(const uint8_t uuid[16])
{
	char text[UUID_TEXT], *of = must_print("LARDER-%s-cache", uuid_text(uuid, text));
	int result = mapped_remove_left(of);

	free(of);
	return result;
}

char *mapper_path(const char *name)
{
	return must_print("/dev/mapper/%s", name);
}

char *table_options(const struct argument_list *options, const char *stored)
{
	unsigned int number = 2 * (unsigned int)options->number;
	char rest[STORED_OPTIONS_MAX], *words, *longer;

	snprintf(rest, sizeof(rest), "%s", stored);
	for (int i = 0; i < options->number; i++) {
		char *key = must_print("%.*s", (int)strcspn(options->value[i], "="), options->value[i]);

		stored_options_put(rest, key, "");
		free(key);
	}
	words = stored_options_append(must_print("%s", ""), &number, rest);
	for (int i = 0; i < options->number; i++) {
		const char *value = strchr(options->value[i], '=');

		if (!value || value == options->value[i] || !value[1] || strpbrk(options->value[i], " \t\n\\")) {
			complain(LARDER_USAGE, "--option: '%s' is not KEY=VALUE", options->value[i]);
			free(words);
			return NULL;
		}
		longer = must_print("%s %.*s %s", words, (int)(value - options->value[i]), options->value[i], value + 1);
		free(words);
		words = longer;
	}
	longer = must_print("%u%s", number, words);
	free(words);
	return longer;
}

char *dm_name(const char *asked, const uint8_t label[LARDER_LABEL_SIZE], const char *path, bool cache, int *result)
{
	char text[LARDER_LABEL_SIZE + 1], *name;

	label_text(label, text);
	if (!name_valid(asked ? asked : text)) {
		*result = complain(LARDER_USAGE,
				   "%s: %s: '%s' cannot be a device's name (A-Z a-z 0-9 # + . : = @ _ -); give another by --name",
				   path, asked ? "--name" : "label", asked ? asked : text);
		return NULL;
	}
	name = must_print("%s%s", cache ? CACHE_PREFIX : "", asked ? asked : text);
	if (!mapped_name_taken(name))
		return name;
	*result = complain(LARDER_BUSY, "%s: another device is called %s; give another name by --name", path, name);
	free(name);
	return NULL;
}

int volume_refuse_dirty(const char *path, const struct larder_volume_sb *sb, bool module)
{
	char text[UUID_TEXT];

	return complain(LARDER_UNSAFE, "%s: flags: may_be_dirty: the cache %s may hold newer data; %s", path, uuid_text(sb->cache_uuid, text),
			module ? "bring that cache back" : "larder rescue writeback brings it to the disk without the module");
}

/* Who is in this place of the set, as its newest table has it; one that was to join it goes on joining. */
static const struct member *in_place(const struct members *members, const struct larder_table *table, uint32_t place)
{
	const struct member *joins = NULL;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (le32toh(m->sb.head.kind) != LARDER_KIND_CACHE || memcmp(m->sb.cache.cache_uuid, table->head.cache_uuid, 16) ||
		    le32toh(m->sb.cache.device_number) != place)
			continue;
		if (!memcmp(m->sb.head.uuid, table->devices[place].uuid, 16))
			return m;
		if (le32toh(m->sb.head.flags) & LARDER_CACHE_JOINS)
			joins = m;
	}
	return joins;
}

/* Of those that show its superblock: the one that was named by its path, or else there is but one.  named: NULL, none was. */
static int check_only(const struct members *members, const struct member *named, const struct member **ssd)
{
	const struct member *m = *ssd;
	char uuid[UUID_TEXT];

	if (named && !memcmp(named->sb.head.uuid, m->sb.head.uuid, 16)) {
		*ssd = named;
		return LARDER_DONE;
	}
	for (size_t i = 0; i < members->number; i++) {
		const struct member *other = members->member[i];

		if (memcmp(other->sb.head.uuid, m->sb.head.uuid, 16) || !strcmp(other->path, m->path) || (m->block && other->number == m->number))
			continue;
		return complain(LARDER_UNSAFE, "%s: uuid: both %s and %s have it (a copy of the other?); detach one, or give the device",
				uuid_text(m->sb.head.uuid, uuid), m->path, other->path);
	}
	return LARDER_DONE;
}

/* What the table of a set says of its SSDs. */
struct set_words {
	char *words; /* "2 /dev/sdb -" */
	uint64_t segments;
	unsigned here;
	bool missing; /* without counting places that are empty */
};

/* It cannot be in a table: where somebody else has it by now, unless it was named by its path; nor one replica of it; nor if nobody can write to it. */
static bool is_unusable(const struct member *m, const struct member *named, unsigned flags)
{
	bool by_path = flags & BRING_UP_BY_PATH && !memcmp(m->sb.head.uuid, named->sb.head.uuid, 16);

	if (m->block && device_is_read_only(m->number)) {
		remark("%s: is read-only: it counts as missing; if it need not be: blockdev --setrw %s", m->path, m->path);
		return true;
	}
	return !claim_may_start(m->path, by_path, "cache start");
}

static bool accepts_older(const struct argument_list *options)
{
	for (int i = 0; i < options->number; i++)
		if (!strcmp(options->value[i], "stale=accept"))
			return true;
	return false;
}

/* The SSDs of the set that member is of.  To be freed: words. */
static int find_set(const struct members *members, const struct member *member, const struct argument_list *options, unsigned flags,
		    struct set_words *set)
{
	/* the kernel would refuse the whole set for it */
	static const char older[] = ", and counts as missing; attach the one that it had; if it is that, and loses what it has acknowledged: --option stale=accept";
	struct larder_table *table = must_allocate(calloc(1, sizeof(*table)));
	bool known = set_newest_table(members, member->sb.cache.cache_uuid, table);
	uint32_t number = le32toh(member->sb.cache.nr_devices);
	bool any_age = !known || accepts_older(options);
	int result = LARDER_DONE;
	char *longer;

	/* one that was to join behind the others, and has no place there yet, the kernel knows nothing of */
	if (known)
		number = le32toh(table->head.nr_devices);
	*set = (struct set_words){ .words = must_print("%u", number) };
	for (uint32_t i = 0; i < number && !result; i++) {
		const struct member *m = known ? in_place(members, table, i) :
				 i == le32toh(member->sb.cache.device_number) ?
						 member :
						 member_of_set(members, member->sb.cache.cache_uuid, i);

		if (m)
			result = check_only(members, flags & BRING_UP_BY_PATH ? member : NULL, &m);
		if (m && (is_unusable(m, member, flags) || (!any_age && set_remark_older(members, table, m, older))))
			m = NULL;
		set->here += m ? 1 : 0;
		if (m)
			set->segments += le32toh(m->sb.cache.nr_segments);
		else if (!known || le32toh(table->devices[i].state) != LARDER_DEVICE_REMOVED)
			set->missing = true;
		if (!result && m && !m->block && !(flags & BRING_UP_DRY))
			result = complain(LARDER_USAGE, "%s: is a regular file; make a block device of it with losetup", m->path);
		longer = must_print("%s %s", set->words, m ? m->path : "-");
		free(set->words);
		set->words = longer;
	}
	free(table);
	return result;
}

/* Members that are missing leave the set when it starts: not without being told to. */
static int check_complete(const struct set_words *set, const struct member *member, bool degraded)
{
	char uuid[UUID_TEXT];

	if (!set->here)
		return complain(LARDER_UNSAFE, "%s: the cache %s has no SSD left that may be used", member->path,
				uuid_text(member->sb.cache.cache_uuid, uuid));
	if (degraded || !set->missing)
		return LARDER_DONE;
	return complain(LARDER_UNSAFE,
			"%s: the cache %s has SSDs that were not found (%s); attach them, or start with --degraded, and they leave the set",
			member->path, uuid_text(member->sb.cache.cache_uuid, uuid), set->words);
}

/* Not by the way what another machine may be using. */
static int check_host(const struct member *member)
{
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	int result = LARDER_DONE;
	bool there;
	const char *why = stack_list_decode(member->sb.cache.stack, list, &there);

	if (why)
		result = complain(LARDER_UNSAFE,
				  "%s: stack: is a newer larder's (%s), which knows whether this machine may start it; if it may: larder cache start --import",
				  member->path, why);
	else if (list->number && stack_host_is_foreign(list->host))
		result = complain(LARDER_UNSAFE,
				  "%s: stack: the cache is another machine's; if that does not use it any more: larder start --import %s, which takes it, or --import here",
				  member->path, list->stack[0].name);
	free(list);
	return result;
}

/* Of a list that a newer larder has written nobody knows: without (it came here by --import). */
static void read_stored(const struct members *members, const uint8_t cache[16], char stored[static STORED_OPTIONS_MAX])
{
	const struct member *newest = stack_newest_ssd(members, cache);
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	bool there;

	*stored = 0;
	if (newest && !stack_list_decode(newest->sb.cache.stack, list, &there))
		strcpy(stored, list->options);
	free(list);
}

static int create_cache(const struct set_words *set, const struct larder_cache_sb *sb, const char *mapped, const struct argument_list *options,
			const char *stored)
{
	uint64_t sectors = set->segments * (le32toh(sb->segment_size) >> LARDER_SECTOR_SHIFT);
	char uuid[UUID_TEXT], *words = table_options(options, stored), *dm_uuid, *params;
	int result;

	if (!words)
		return LARDER_USAGE;
	dm_uuid = must_print("LARDER-%s-cache", uuid_text(sb->cache_uuid, uuid));
	params = must_print("%s %s", set->words, words);
	result = mapped_create(mapped, dm_uuid, TARGET_CACHE, sectors, params);
	free(params);
	free(dm_uuid);
	free(words);
	return result;
}

int cache_bring_up(const struct members *members, const struct member *member, const char *name,
		   const struct argument_list *options, unsigned flags, char **path)
{
	const struct larder_cache_sb *sb = &member->sb.cache;
	char stored[STORED_OPTIONS_MAX], *mapped;
	struct set_words set;
	int result = flags & BRING_UP_IMPORT ? LARDER_DONE : check_host(member);

	if (result)
		return result;
	result = find_set(members, member, options, flags, &set);
	result = result ? result : check_complete(&set, member, flags & BRING_UP_DEGRADED);
	if (result) {
		free(set.words);
		return result;
	}
	result = flags & BRING_UP_DRY ? LARDER_DONE : running_clear_cache(sb->cache_uuid);
	if (result) {
		free(set.words);
		return result;
	}
	mapped = dm_name(name, sb->label, member->path, true, &result);
	if (!mapped) {
		free(set.words);
		return result;
	}
	read_stored(members, sb->cache_uuid, stored);
	result = create_cache(&set, sb, mapped, options, stored);
	if (result == LARDER_FAILED && *stored) {
		stored_options_refused(mapped, stored, true);
		result = create_cache(&set, sb, mapped, options, "");
	}
	if (!result)
		*path = mapper_path(mapped);
	if (!result && !(flags & BRING_UP_DRY))
		stopped_clear(sb->cache_uuid);
	free(set.words);
	free(mapped);
	return result;
}
