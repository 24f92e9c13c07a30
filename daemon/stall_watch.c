// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Devices that hang, told of.
 *
 * The caches and volumes that run are found by the UUIDs that dm's devices have in sysfs.  A device below a cache is told of as that cache's, and not of
 * each of its volumes again.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "../lib/clock.h"
#include "../lib/disks.h"
#include "../lib/dm.h"
#include "../lib/message.h"
#include "../lib/snapshot.h"
#include "../lib/stalled.h"
#include "../lib/stalls.h"
#include "journal.h"
#include "stall_watch.h"

#define LOOK_S	 10 /* between two looks, at most: three of them tell of 30 s */
#define UUID_LETTERS 36
#define FIELD	 "stall: "

#define MESSAGE_STALLED	 "5b0f4c7d8e1a4d62b93c07f6a1d2e8c4"
#define MESSAGE_ANSWERS	 "e7a95d10c3b84f6f8d24b6a09f5c1e37"

struct stall_watch {
	sd_event_source *timer;
	unsigned seconds;
	bool keep;
	void (*changed)(void *data);
	void *data;
	struct stalls stalls;
	struct stalled_list told;
	struct stalled_list left; /* of those the ones that a larderd before us has told of, and that are not judged yet */
};

/* A cache or volume that runs. */
struct top {
	struct stall_device *device;
	bool cache;
	char uuid[UUID_TEXT], name[DM_NAME_MAX];
};

struct tops {
	struct top *top;
	size_t number;
};

/* ------------------------------------------------------------------ a look */

/* "LARDER-UUID", "LARDER-UUID-cache"; what lies below or beside them is reached from there. */
static bool take_uuid(const char *text, struct top *top)
{
	uuid_t uuid;

	if (strncmp(text, "LARDER-", strlen("LARDER-")) || strlen(text) < strlen("LARDER-") + UUID_LETTERS)
		return false;
	text += strlen("LARDER-");
	snprintf(top->uuid, sizeof(top->uuid), "%.*s", UUID_LETTERS, text);
	top->cache = !strcmp(text + UUID_LETTERS, "-cache");
	return !uuid_parse(top->uuid, uuid) && (top->cache || !text[UUID_LETTERS]);
}

static void take_dm(struct stall_watch *watch, struct tops *tops, const char *directory)
{
	char text[DM_UUID_MAX + 1];
	struct top top = { 0 };

	if (!sysfs_text(directory, "dm/uuid", text, sizeof(text)) || !take_uuid(text, &top) || !sysfs_text(directory, "dm/name", top.name, sizeof(top.name)))
		return;
	top.device = stalls_add(&watch->stalls, directory);
	if (!top.device)
		return;
	tops->top = must_allocate(realloc(tops->top, (tops->number + 1) * sizeof(top)));
	tops->top[tops->number++] = top;
}

/* From those of dm to those that we show. */
static void name_tops(const struct tops *tops)
{
	struct mapped_list list = { must_allocate(calloc(tops->number + 1, sizeof(*list.mapped))), tops->number };

	for (size_t i = 0; i < tops->number; i++) {
		strcpy(list.mapped[i].name, tops->top[i].name);
		list.mapped[i].cache = tops->top[i].cache;
	}
	for (size_t i = 0; i < tops->number; i++)
		strcpy(tops->top[i].name, snapshot_name(&list, &list.mapped[i]));
	free(list.mapped);
}

static void find_tops(struct stall_watch *watch, struct tops *tops)
{
	char *path = must_print("%s/sys/block", watch->stalls.root);
	DIR *directory = opendir(path);
	const struct dirent *entry;

	stalls_begin(&watch->stalls);
	while (directory && (entry = readdir(directory))) {
		char *dm;

		if (strncmp(entry->d_name, "dm-", 3))
			continue;
		dm = must_print("%s/%s", path, entry->d_name);
		take_dm(watch, tops, dm);
		free(dm);
	}
	if (directory)
		closedir(directory);
	free(path);
	name_tops(tops);
}

struct finding {
	const struct top *top;
	struct stalled_list *found;
	double seconds; /* for which it is told, once it is */
};

static bool is_of_a_cache(const struct stalled_list *list, const char *disk)
{
	for (size_t i = 0; i < list->number; i++)
		if (list->stalled[i].cache && !strcmp(list->stalled[i].disk, disk))
			return true;
	return false;
}

static void add(const struct stalls *stalls, const struct stall_device *device, void *data)
{
	const struct finding *finding = data;
	const struct top *top = finding->top;
	struct stalled stalled = { .since = device->since, .cache = top->cache };

	(void)stalls;
	if (strlen(device->name) >= sizeof(stalled.disk) || (!top->cache && is_of_a_cache(finding->found, device->name)))
		return;
	strcpy(stalled.disk, device->name);
	memcpy(stalled.uuid, top->uuid, sizeof(stalled.uuid));
	stalled.name = must_print("%s", top->name);
	stalled.text = stall_text(device, finding->seconds);
	stalled_add(finding->found, &stalled);
}

static void add_copy(struct stalled_list *list, const struct stalled *stalled)
{
	struct stalled copy = *stalled;

	copy.name = must_print("%s", stalled->name);
	copy.text = must_print("%s", stalled->text);
	stalled_add(list, &copy);
}

/* We have not looked for long enough to see it hang, and it has not answered since we do. */
static bool may_hang_still(const struct stall_watch *watch, const struct tops *tops, const struct stalled *stalled)
{
	const struct stalls *stalls = &watch->stalls;
	bool runs = false;

	for (size_t i = 0; i < tops->number; i++)
		runs |= tops->top[i].cache == stalled->cache && !strcmp(tops->top[i].uuid, stalled->uuid);
	for (size_t i = 0; runs && i < stalls->number; i++) {
		const struct stall_device *device = stalls->device[i];

		if (!strcmp(device->name, stalled->disk))
			return device->seen && device->waits && device->moved < 0 && stalls->now - device->since < watch->seconds;
	}
	return false;
}

static void judge_those_left(struct stall_watch *watch, const struct tops *tops, struct stalled_list *found)
{
	struct stalled_list left = { 0 };

	for (size_t i = 0; i < watch->left.number; i++) {
		const struct stalled *stalled = &watch->left.stalled[i];

		if (stalled_find(found, stalled) || !may_hang_still(watch, tops, stalled))
			continue;
		add_copy(found, stalled);
		add_copy(&left, stalled);
	}
	stalled_free(&watch->left);
	watch->left = left;
}

static void look(struct stall_watch *watch, struct stalled_list *found)
{
	struct tops tops = { 0 };

	find_tops(watch, &tops);
	stalls_look(&watch->stalls, clock_seconds());
	for (int cache = 1; cache >= 0; cache--)
		for (size_t i = 0; i < tops.number; i++)
			if (tops.top[i].cache == cache)
				stalls_each(&watch->stalls, tops.top[i].device, watch->seconds, add,
					    &(struct finding){ .top = &tops.top[i], .found = found, .seconds = watch->seconds });
	judge_those_left(watch, &tops, found);
	free(tops.top);
}

/* ------------------------------------------------------------------ what is told */

static void tell(const struct stalled *s, const char *id, int priority, const char *text)
{
	char *fields = must_print("MESSAGE_ID=%s\nLARDER_UUID=%s\nLARDER_DISK=%s\n", id, s->uuid, s->disk);

	journal_say(priority, fields, "%s %s: %s", s->cache ? "cache" : "volume", s->name, text);
	free(fields);
}

static bool is_there(const struct stalls *stalls, const char *disk)
{
	for (size_t i = 0; i < stalls->number; i++)
		if (!strcmp(stalls->device[i]->name, disk))
			return stalls->device[i]->seen;
	return false;
}

static bool tell_changes(const struct stalls *stalls, const struct stalled_list *before, const struct stalled_list *now)
{
	bool any = false;

	for (size_t i = 0; i < before->number; i++) {
		const char *disk = before->stalled[i].disk;
		char *text;

		if (stalled_find(now, &before->stalled[i]))
			continue;
		text = must_print("%s %s", disk, is_there(stalls, disk) ? "answers again" : "answered nothing, and is not there any more");
		tell(&before->stalled[i], MESSAGE_ANSWERS, 5, text);
		free(text);
		any = true;
	}
	for (size_t i = 0; i < now->number; i++) {
		if (stalled_find(before, &now->stalled[i]))
			continue;
		tell(&now->stalled[i], MESSAGE_STALLED, 3, now->stalled[i].text);
		any = true;
	}
	return any;
}

/* With the words, and for as long, as it was told: the number of requests changes. */
static void keep_words(const struct stalled_list *before, const struct stalled_list *now)
{
	for (size_t i = 0; i < now->number; i++) {
		const struct stalled *told = stalled_find(before, &now->stalled[i]);

		if (!told)
			continue;
		free(now->stalled[i].text);
		now->stalled[i].text = must_print("%s", told->text);
		now->stalled[i].since = told->since;
	}
}

static void take(struct stall_watch *watch, struct stalled_list *found)
{
	bool any = tell_changes(&watch->stalls, &watch->told, found);

	keep_words(&watch->told, found);
	stalled_free(&watch->told);
	watch->told = *found;
	if (!any)
		return;
	if (watch->keep && stalled_write(&watch->told))
		journal_remark("/run/larder/stalled: cannot be written: who follows `larder events` is not told which devices hang");
	watch->changed(watch->data);
}

static int look_now(sd_event_source *source, uint64_t when, void *data)
{
	struct stall_watch *watch = data;
	struct stalled_list found = { 0 };
	unsigned pause = watch->seconds / 3 < LOOK_S ? watch->seconds / 3 : LOOK_S;

	(void)when; /* which may be long ago: what stood still catches up with nothing */
	look(watch, &found);
	take(watch, &found);
	sd_event_source_set_time_relative(source, (pause ? pause : 1) * UINT64_C(1000000));
	return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* What the one before us has told of is so until it is judged: whoever follows `larder events` would take it for mended. */
static void take_those_left(struct stall_watch *watch)
{
	stalled_read(&watch->told);
	for (size_t i = 0; i < watch->told.number; i++)
		add_copy(&watch->left, &watch->told.stalled[i]);
	stalled_write(&watch->told);
}

int stall_watch_new(struct stall_watch **watch, sd_event *event, bool keep, void (*changed)(void *data), void *data)
{
	struct stall_watch *new = must_allocate(calloc(1, sizeof(*new)));
	const char *root = getenv("LARDER_ROOT");
	int error;

	*new = (struct stall_watch){ .keep = keep, .changed = changed, .data = data };
	stalls_init(&new->stalls, root ? root : "");
	*watch = new;
	if (keep)
		take_those_left(new);
	error = sd_event_add_time_relative(event, &new->timer, CLOCK_MONOTONIC, 0, 0, look_now, new);
	return error < 0 ? error : sd_event_source_set_enabled(new->timer, SD_EVENT_OFF);
}

/* Nobody looks any more: that is no word for what is told. */
static void forget(struct stall_watch *watch)
{
	bool any = watch->told.number;

	stalled_free(&watch->told);
	stalled_free(&watch->left);
	if (any && watch->keep)
		stalled_write(&watch->told);
	if (any)
		watch->changed(watch->data);
}

void stall_watch_set(struct stall_watch *watch, unsigned seconds)
{
	watch->seconds = seconds;
	if (!seconds)
		forget(watch);
	sd_event_source_set_time_relative(watch->timer, 0);
	sd_event_source_set_enabled(watch->timer, seconds ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

void stall_watch_free(struct stall_watch *watch)
{
	sd_event_source_unref(watch->timer);
	stalled_free(&watch->told);
	stalled_free(&watch->left);
	stalls_free(&watch->stalls);
	free(watch);
}

/* ------------------------------------------------------------------ what is shown */

/* A list without its lines that are ours. */
static void clear(struct object *object)
{
	char *copy = must_print("%s", object_value(object, "Problems")), *rest = copy, *line;

	object_set(object, "Problems", "%s", "");
	while (*copy && (line = strsep(&rest, "\n")))
		if (strncmp(line, FIELD, strlen(FIELD)))
			object_append(object, "Problems", line);
	free(copy);
}

static void show(struct objects *objects, const struct stalled *s)
{
	uuid_t uuid;
	char *path, *line;

	if (uuid_parse(s->uuid, uuid))
		return;
	path = object_path(s->cache ? OBJECT_CACHE : OBJECT_VOLUME, uuid);
	line = must_print(FIELD "%s", s->text);
	for (size_t i = 0; i < objects->number; i++) {
		struct object *o = &objects->object[i];

		if (!strcmp(o->path, path) || (o->kind == OBJECT_STACK && object_is_part(o, path)))
			object_append(o, "Problems", line);
	}
	free(line);
	free(path);
}

void stall_watch_show(const struct stall_watch *watch, struct objects *objects)
{
	for (size_t i = 0; i < objects->number; i++)
		if (object_value(&objects->object[i], "Problems"))
			clear(&objects->object[i]);
	for (size_t i = 0; i < watch->told.number; i++)
		show(objects, &watch->told.stalled[i]);
}
