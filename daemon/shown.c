// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Facts and plan as objects.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <uuid/uuid.h>

#include "../lib/advice.h"
#include "../lib/crypt_layer.h"
#include "../lib/message.h"
#include "../lib/snapshot.h"
#include "../lib/stack.h"
#include "../lib/status.h"
#include "jobs.h"
#include "shown.h"

static void append_lines(struct object *o, const char *property, const char *lines)
{
	char *copy = must_print("%s", lines), *rest = copy, *line;

	while (*copy && (line = strsep(&rest, "\n")))
		object_append(o, property, line);
	free(copy);
}

static char *path_of_device(const struct fact_member *m)
{
	char *path;

	must_allocate(sd_bus_path_encode(object_classes[OBJECT_DEVICE].prefix, m->path + (strncmp(m->path, "/dev/", 5) ? 0 : 5), &path) < 0 ? NULL : path);
	return path;
}

/* ------------------------------------------------------------------ caches and volumes */

static struct object *unit_object(struct objects *objects, const uint8_t uuid[16], bool cache)
{
	enum object_kind kind = cache ? OBJECT_CACHE : OBJECT_VOLUME;
	size_t before = objects->number;
	struct object *o = object_at(objects, kind, object_path(kind, uuid));
	char text[UUID_TEXT];

	if (objects->number > before) {
		object_set(o, "UUID", "%s", uuid_text(uuid, text));
		object_set(o, "State", "stopped");
	}
	return o;
}

struct options {
	struct object *object;
	const struct field *fields;
	size_t count;
};

static void take_option(const char *key, const char *value, void *data)
{
	const struct options *options = data;
	char *line;

	for (size_t i = 0; i < options->count; i++) {
		if (options->fields[i].kind != VALUE_OPTION || strcmp(options->fields[i].name, key))
			continue;
		line = must_print("%s=%s", key, value);
		object_append(options->object, "Options", line);
		free(line);
		return;
	}
}

static void set_from_status(struct object *o, const char *property, const char *status, const char *key)
{
	char *value = status_value(status, key);

	if (value)
		object_set(o, property, "%s", value);
	free(value);
}

static void take_problems(struct object *o, const struct mapped *mapped)
{
	struct problems found = { 0 };

	if (mapped->cache)
		advise_cache(mapped->name, mapped->status, &found);
	else
		advise_volume(mapped->name, mapped->status, &found);
	for (size_t i = 0; i < found.number; i++)
		object_append(o, "Problems", found.text[i]);
	problems_free(&found);
}

static void take_running(struct objects *objects, const struct mapped_list *list, const struct mapped *mapped)
{
	struct options options = { .fields = mapped->cache ? cache_status_fields : volume_status_fields,
				   .count = mapped->cache ? cache_status_count : volume_status_count };
	char *text = status_value(mapped->status, "uuid"), *cache = mapped->cache ? NULL : status_value(mapped->status, "cache"), *path;
	uint8_t uuid[16];
	struct object *o;

	if (text && !uuid_parse(text, uuid)) {
		o = unit_object(objects, uuid, mapped->cache);
		options.object = o;
		object_set(o, "Name", "%s", snapshot_name(list, mapped));
		object_set(o, "Running", "1");
		object_set(o, "Size", "%" PRIu64, mapped->sectors << LARDER_SECTOR_SHIFT);
		set_from_status(o, "State", mapped->status, "state");
		status_each(mapped->status, take_option, &options);
		if (!mapped->cache) {
			set_from_status(o, "Mode", mapped->status, "mode");
			object_set(o, "Node", "/dev/mapper/%s", mapped->name);
		}
		take_problems(o, mapped);
		if (cache && !uuid_parse(cache, uuid)) {
			path = object_path(OBJECT_CACHE, uuid);
			object_set(o, "Cache", "%s", path);
			free(path);
		}
	}
	free(cache);
	free(text);
}

/* Takes cache_path. */
static void take_device(struct objects *objects, const struct fact_member *m, char *device, char *cache_path)
{
	struct object *o = object_at(objects, OBJECT_DEVICE, device);
	char text[UUID_TEXT];

	object_set(o, "Path", "%s", m->path);
	object_set(o, "UUID", "%s", uuid_text(m->uuid, text));
	object_set(o, "Kind", "%s", kind_text(m->kind));
	object_set(o, "Label", "%s", m->label);
	if (cache_path)
		object_set(o, "Cache", "%s", cache_path);
	if (m->kind == LARDER_KIND_VOLUME) {
		free(cache_path);
		cache_path = object_path(OBJECT_VOLUME, m->uuid);
		object_set(o, "Volume", "%s", cache_path);
	}
	free(cache_path);
}

/* What a superblock says, where what runs has not said it.  A spare is a device, and no part of a cache; so is the store of a snapshot. */
static void take_member(struct objects *objects, const struct fact_member *m)
{
	bool cache = m->kind == LARDER_KIND_CACHE;
	char *device = path_of_device(m), *cache_path = uuid_is_zero(m->cache_uuid) ? NULL : object_path(OBJECT_CACHE, m->cache_uuid);
	struct object *o;

	if (m->kind == LARDER_KIND_SPARE || m->kind == LARDER_KIND_OTHER) {
		take_device(objects, m, device, cache_path);
		return;
	}
	o = unit_object(objects, cache ? m->cache_uuid : m->uuid, cache);
	if (!*object_value(o, "Name"))
		object_set(o, "Name", "%s", m->label);
	if (cache)
		object_append(o, "Devices", device);
	else if (!strcmp(object_value(o, "Device"), "/"))
		object_set(o, "Device", "%s", device);
	if (!cache && cache_path && strcmp(object_value(o, "Running"), "1"))
		object_set(o, "Cache", "%s", cache_path);
	if (!cache && strcmp(object_value(o, "Running"), "1"))
		object_set(o, "Size", "%" PRIu64, m->sectors << LARDER_SECTOR_SHIFT);
	take_device(objects, m, device, cache_path);
}

/* The volumes of each cache, from what those say. */
static void link_volumes(struct objects *objects)
{
	for (size_t i = 0; i < objects->number; i++) {
		struct object *volume = &objects->object[i], *cache;

		if (volume->kind != OBJECT_VOLUME)
			continue;
		cache = (struct object *)objects_find(objects, object_value(volume, "Cache"));
		if (cache)
			object_append(cache, "Volumes", volume->path);
	}
}

/* ------------------------------------------------------------------ stacks */

static const char *state_of(const struct stack *s, bool whole, const struct object *volume)
{
	bool runs = volume && !strcmp(object_value(volume, "Running"), "1");

	if (s->state != STACK_READY)
		return stack_state_text(s->state);
	if (!whole)
		return "incomplete";
	if (!runs)
		return stack_is_foreign(s) ? "foreign" : "stopped";
	return s->encrypted && !crypt_is_open(s) ? "locked" : "running";
}

/* What an entry in brief does not tell, as the last look had it. */
static void take_known(struct object *o, const struct objects *last)
{
	static const char *const kept[] = { "Encrypted", "MountPoint", "Snapshots" };
	const struct object *known = objects_find(last, o->path);

	for (size_t i = 0; known && i < sizeof(kept) / sizeof(kept[0]); i++) {
		object_set(o, kept[i], "%s", "");
		append_lines(o, kept[i], object_value(known, kept[i]));
	}
}

static void take_description(struct object *o, const struct stack *s)
{
	object_set(o, "Encrypted", "%d", s->encrypted);
	object_set(o, "MountPoint", "%s", s->mount);
	object_set(o, "Snapshots", "%s", "");
	for (uint32_t i = 0; i < s->snapshots; i++)
		if (s->snapshot[i].state == SNAPSHOT_READY)
			object_append(o, "Snapshots", s->snapshot[i].name);
}

/* last: what is known of one that is described in brief; NULL: it is not. */
static void take_stack(struct objects *objects, const struct stack *s, bool whole, const uint8_t *cache, const struct objects *last)
{
	char *path = object_path(OBJECT_STACK, s->uuid), *cache_path = object_path(OBJECT_CACHE, cache), *volume_path, text[UUID_TEXT];
	struct object *o, *volume;
	uint8_t part[16];

	stack_part(s, "volume", part);
	volume_path = object_path(OBJECT_VOLUME, part);
	o = object_at(objects, OBJECT_STACK, must_print("%s", path));
	volume = (struct object *)objects_find(objects, volume_path);
	/* the volume's description is the whole one, and the SSDs have the newer one of a stack that is being made or removed */
	if (!*object_value(o, "UUID") || whole) {
		object_set(o, "Name", "%s", s->name);
		object_set(o, "UUID", "%s", uuid_text(s->uuid, text));
		if (last)
			take_known(o, last);
		else
			take_description(o, s);
		object_set(o, "Cache", "%s", cache_path);
		object_set(o, "State", "%s", state_of(s, whole, volume));
	}
	if (volume) {
		object_set(o, "Volume", "%s", volume_path);
		object_set(volume, "Stack", "%s", path);
	}
	free(path);
	free(cache_path);
	free(volume_path);
}

static void take_stacks(struct objects *objects, const struct members *members, const struct objects *last)
{
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	struct stack stack;
	uint8_t part[16];
	bool there;

	for (size_t i = 0; i < members->number; i++) {
		const union superblock *sb = &members->member[i]->sb;

		if (le32toh(sb->head.kind) == LARDER_KIND_VOLUME && !stack_decode(sb->volume.stack, &stack, &there) && there) {
			stack_part(&stack, "volume", part);
			if (!memcmp(part, sb->head.uuid, 16))
				take_stack(objects, &stack, true, stack.cache, NULL);
		} else if (le32toh(sb->head.kind) == LARDER_KIND_CACHE && !stack_list_decode(sb->cache.stack, list, &there)) {
			for (size_t k = 0; k < list->number; k++)
				take_stack(objects, &list->stack[k], false, sb->cache.cache_uuid, list->brief[k] ? last : NULL);
		}
	}
	free(list);
}

/* ------------------------------------------------------------------ all of it */

/* Why something does not start, or is not used: said of a cache, a volume, or a device. */
static void take_refusal(struct objects *objects, const struct refusal *refusal)
{
	char text[UUID_TEXT];

	uuid_text(refusal->uuid, text);
	for (size_t i = 0; i < objects->number; i++) {
		struct object *o = &objects->object[i];

		if ((o->kind == OBJECT_STACK && !refusal->write_hole) || o->kind == OBJECT_JOB || strcmp(object_value(o, "UUID"), text))
			continue;
		/* a disk has the UUID of its volume: said of the volume alone */
		if (o->kind == OBJECT_DEVICE && !strcmp(object_value(o, "Kind"), kind_text(LARDER_KIND_VOLUME)))
			continue;
		object_append(o, "Problems", refusal->text);
		if (o->kind != OBJECT_DEVICE && o->kind != OBJECT_STACK && strcmp(object_value(o, "Running"), "1"))
			object_set(o, "State", refusal->waiting ? "waiting" : "refused");
	}
}

/* What is wrong with its volume, or its cache, is wrong with a stack. */
static void collect_problems(struct objects *objects)
{
	static const char *const below[] = { "Volume", "Cache" };

	for (size_t i = 0; i < objects->number; i++) {
		struct object *o = &objects->object[i];

		for (size_t k = 0; o->kind == OBJECT_STACK && k < 2; k++) {
			const struct object *part = objects_find(objects, object_value(o, below[k]));
			const char *all = part ? object_value(part, "Problems") : NULL;

			append_lines(o, "Problems", all ? all : "");
		}
	}
}

/* What somebody knows of, and is not here, has no object. */
static void cut_references(struct objects *objects)
{
	for (size_t i = 0; i < objects->number; i++) {
		struct object *o = &objects->object[i];
		const struct object_class *class = &object_classes[o->kind];

		for (size_t k = 0; k < class->number; k++) {
			const char *name = class->property[k].name;

			if (!strcmp(class->property[k].type, "o") && !objects_find(objects, object_value(o, name)))
				object_set(o, name, "/");
		}
	}
}

void objects_make(struct objects *objects, const struct look *look, const struct plan *plan, const struct objects *last)
{
	*objects = (struct objects){ 0 };
	for (size_t i = 0; i < look->mapped.number; i++)
		take_running(objects, &look->mapped, &look->mapped.mapped[i]);
	for (size_t i = 0; i < look->facts.nr_members; i++)
		take_member(objects, &look->facts.member[i]);
	link_volumes(objects);
	take_stacks(objects, &look->members, last);
	for (size_t i = 0; i < plan->nr_refusals; i++)
		take_refusal(objects, &plan->refusal[i]);
	collect_problems(objects);
	cut_references(objects);
	jobs_find(objects, &look->mapped);
}
