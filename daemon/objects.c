// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Facts and plan as objects.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <systemd/sd-bus.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "../lib/advice.h"
#include "../lib/crypt_layer.h"
#include "../lib/message.h"
#include "../lib/stack.h"
#include "../lib/status.h"
#include "objects.h"

static const struct property stack_properties[] = {
	{ "Name", "s" },      { "UUID", "s" },	 { "State", "s" }, { "Encrypted", "b" },
	{ "MountPoint", "s" }, { "Volume", "o" }, { "Cache", "o" }, { "Problems", "as" },
};
static const struct property cache_properties[] = {
	{ "Name", "s" },     { "UUID", "s" },  { "State", "s" }, { "Running", "b" },	   { "Size", "t" },
	{ "Devices", "ao" }, { "Volumes", "ao" }, { "Scrub", "s" }, { "Options", "a{ss}" }, { "Problems", "as" },
};
static const struct property volume_properties[] = {
	{ "Name", "s" }, { "UUID", "s" },  { "State", "s" },  { "Running", "b" }, { "Size", "t" },	      { "Node", "s" },
	{ "Mode", "s" }, { "Cache", "o" }, { "Device", "o" }, { "Stack", "o" },	  { "Options", "a{ss}" }, { "Problems", "as" },
};
static const struct property device_properties[] = {
	{ "Path", "s" }, { "UUID", "s" }, { "Kind", "s" }, { "Label", "s" }, { "Cache", "o" }, { "Volume", "o" }, { "Problems", "as" },
};

const struct object_class object_classes[NR_OBJECT_KINDS] = {
	[OBJECT_STACK] = { BUS_NAME ".Stack", BUS_ROOT "/stack", stack_properties, sizeof(stack_properties) / sizeof(stack_properties[0]) },
	[OBJECT_CACHE] = { BUS_NAME ".Cache", BUS_ROOT "/cache", cache_properties, sizeof(cache_properties) / sizeof(cache_properties[0]) },
	[OBJECT_VOLUME] = { BUS_NAME ".Volume", BUS_ROOT "/volume", volume_properties, sizeof(volume_properties) / sizeof(volume_properties[0]) },
	[OBJECT_DEVICE] = { BUS_NAME ".Device", BUS_ROOT "/device", device_properties, sizeof(device_properties) / sizeof(device_properties[0]) },
};

/* ------------------------------------------------------------------ lists of objects */

static int place_of(const struct object_class *class, const char *property)
{
	for (size_t i = 0; i < class->number; i++)
		if (!strcmp(class->property[i].name, property))
			return (int)i;
	return -1;
}

const char *object_value(const struct object *object, const char *property)
{
	int place = place_of(&object_classes[object->kind], property);

	return place < 0 ? NULL : object->value[place];
}

const struct object *objects_find(const struct objects *objects, const char *path)
{
	for (size_t i = 0; i < objects->number; i++)
		if (!strcmp(objects->object[i].path, path))
			return &objects->object[i];
	return NULL;
}

void objects_free(struct objects *objects)
{
	for (size_t i = 0; i < objects->number; i++) {
		struct object *o = &objects->object[i];

		for (size_t k = 0; k < object_classes[o->kind].number; k++)
			free(o->value[k]);
		free(o->path);
	}
	free(objects->object);
	*objects = (struct objects){ 0 };
}

/* What a property is until somebody knows better: what its type allows. */
static char *no_value(const char *type)
{
	return must_print("%s", !strcmp(type, "o") ? "/" : !strcmp(type, "b") || !strcmp(type, "t") ? "0" : "");
}

/* The one with that path, made if need be; it stays where it is until the next one is made.  Takes the path. */
static struct object *object_at(struct objects *objects, enum object_kind kind, char *path)
{
	struct object *o = (struct object *)objects_find(objects, path);

	if (o) {
		free(path);
		return o;
	}
	objects->object = must_allocate(realloc(objects->object, (objects->number + 1) * sizeof(*o)));
	o = &objects->object[objects->number++];
	*o = (struct object){ .kind = kind, .path = path };
	for (size_t i = 0; i < object_classes[kind].number; i++)
		o->value[i] = no_value(object_classes[kind].property[i].type);
	return o;
}

__attribute__((format(printf, 3, 4))) static void set(struct object *o, const char *property, const char *format, ...)
{
	int place = place_of(&object_classes[o->kind], property);
	va_list args;

	va_start(args, format);
	free(o->value[place]);
	o->value[place] = must_vprint(format, args);
	va_end(args);
	text_clean(o->value[place]);
}

/* One more line of a list. */
static void append(struct object *o, const char *property, const char *text)
{
	int place = place_of(&object_classes[o->kind], property);
	char *clean = must_print("%s", text), *longer;

	text_clean(clean);
	longer = must_print("%s%s%s", o->value[place], *o->value[place] ? "\n" : "", clean);
	free(o->value[place]);
	free(clean);
	o->value[place] = longer;
}

static char *path_by_uuid(enum object_kind kind, const uint8_t uuid[16])
{
	char text[UUID_TEXT];

	uuid_text(uuid, text);
	for (char *c = text; *c; c++)
		if (*c == '-')
			*c = '_';
	return must_print("%s/%s", object_classes[kind].prefix, text);
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
	struct object *o = object_at(objects, kind, path_by_uuid(kind, uuid));
	char text[UUID_TEXT];

	if (objects->number > before) {
		set(o, "UUID", "%s", uuid_text(uuid, text));
		set(o, "State", "stopped");
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
		append(options->object, "Options", line);
		free(line);
		return;
	}
}

static void set_from_status(struct object *o, const char *property, const char *status, const char *key)
{
	char *value = status_value(status, key);

	if (value)
		set(o, property, "%s", value);
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
		append(o, "Problems", found.text[i]);
	problems_free(&found);
}

static void take_running(struct objects *objects, const struct mapped *mapped)
{
	struct options options = { .fields = mapped->cache ? cache_status_fields : volume_status_fields,
				   .count = mapped->cache ? cache_status_count : volume_status_count };
	char *text = status_value(mapped->status, "uuid"), *cache = mapped->cache ? NULL : status_value(mapped->status, "cache"), *path;
	uint8_t uuid[16];
	struct object *o;

	if (text && !uuid_parse(text, uuid)) {
		o = unit_object(objects, uuid, mapped->cache);
		options.object = o;
		set(o, "Name", "%s", mapped->cache && !strncmp(mapped->name, CACHE_PREFIX, strlen(CACHE_PREFIX)) ? mapped->name + strlen(CACHE_PREFIX) : mapped->name);
		set(o, "Running", "1");
		set(o, "Size", "%" PRIu64, mapped->sectors << LARDER_SECTOR_SHIFT);
		set_from_status(o, "State", mapped->status, "state");
		status_each(mapped->status, take_option, &options);
		if (mapped->cache) {
			set_from_status(o, "Scrub", mapped->status, "scrub");
		} else {
			set_from_status(o, "Mode", mapped->status, "mode");
			set(o, "Node", "/dev/mapper/%s", mapped->name);
		}
		take_problems(o, mapped);
		if (cache && !uuid_parse(cache, uuid)) {
			path = path_by_uuid(OBJECT_CACHE, uuid);
			set(o, "Cache", "%s", path);
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

	set(o, "Path", "%s", m->path);
	set(o, "UUID", "%s", uuid_text(m->uuid, text));
	set(o, "Kind", "%s", kind_text(m->kind));
	set(o, "Label", "%s", m->label);
	if (cache_path)
		set(o, "Cache", "%s", cache_path);
	if (m->kind == LARDER_KIND_VOLUME) {
		free(cache_path);
		cache_path = path_by_uuid(OBJECT_VOLUME, m->uuid);
		set(o, "Volume", "%s", cache_path);
	}
	free(cache_path);
}

/* What a superblock says, where what runs has not said it.  A spare is a device, and no part of a cache; so is the store of a snapshot. */
static void take_member(struct objects *objects, const struct fact_member *m)
{
	bool cache = m->kind == LARDER_KIND_CACHE;
	char *device = path_of_device(m), *cache_path = uuid_is_zero(m->cache_uuid) ? NULL : path_by_uuid(OBJECT_CACHE, m->cache_uuid);
	struct object *o;

	if (m->kind == LARDER_KIND_SPARE || m->kind == LARDER_KIND_OTHER) {
		take_device(objects, m, device, cache_path);
		return;
	}
	o = unit_object(objects, cache ? m->cache_uuid : m->uuid, cache);
	if (!*object_value(o, "Name"))
		set(o, "Name", "%s", m->label);
	if (cache)
		append(o, "Devices", device);
	else if (!strcmp(object_value(o, "Device"), "/"))
		set(o, "Device", "%s", device);
	if (!cache && cache_path && strcmp(object_value(o, "Running"), "1"))
		set(o, "Cache", "%s", cache_path);
	if (!cache && strcmp(object_value(o, "Running"), "1"))
		set(o, "Size", "%" PRIu64, m->sectors << LARDER_SECTOR_SHIFT);
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
			append(cache, "Volumes", volume->path);
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

static void take_stack(struct objects *objects, const struct stack *s, bool whole, const uint8_t *cache)
{
	char *path = path_by_uuid(OBJECT_STACK, s->uuid), *cache_path = path_by_uuid(OBJECT_CACHE, cache), *volume_path, text[UUID_TEXT];
	struct object *o, *volume;
	uint8_t part[16];

	stack_part(s, "volume", part);
	volume_path = path_by_uuid(OBJECT_VOLUME, part);
	o = object_at(objects, OBJECT_STACK, must_print("%s", path));
	volume = (struct object *)objects_find(objects, volume_path);
	/* the volume's description is the whole one, and the SSDs have the newer one of a stack that is being made or removed */
	if (!*object_value(o, "UUID") || whole) {
		set(o, "Name", "%s", s->name);
		set(o, "UUID", "%s", uuid_text(s->uuid, text));
		set(o, "Encrypted", "%d", s->encrypted);
		set(o, "MountPoint", "%s", s->mount);
		set(o, "Cache", "%s", cache_path);
		set(o, "State", "%s", state_of(s, whole, volume));
	}
	if (volume) {
		set(o, "Volume", "%s", volume_path);
		set(volume, "Stack", "%s", path);
	}
	free(path);
	free(cache_path);
	free(volume_path);
}

static void take_stacks(struct objects *objects, const struct members *members)
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
				take_stack(objects, &stack, true, stack.cache);
		} else if (le32toh(sb->head.kind) == LARDER_KIND_CACHE && !stack_list_decode(sb->cache.stack, list, &there)) {
			for (size_t k = 0; k < list->number; k++)
				take_stack(objects, &list->stack[k], false, sb->cache.cache_uuid);
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

		if ((o->kind == OBJECT_STACK && !refusal->write_hole) || strcmp(object_value(o, "UUID"), text))
			continue;
		/* a disk has the UUID of its volume: said of the volume alone */
		if (o->kind == OBJECT_DEVICE && !strcmp(object_value(o, "Kind"), kind_text(LARDER_KIND_VOLUME)))
			continue;
		append(o, "Problems", refusal->text);
		if (o->kind != OBJECT_DEVICE && o->kind != OBJECT_STACK && strcmp(object_value(o, "Running"), "1"))
			set(o, "State", refusal->waiting ? "waiting" : "refused");
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
			char *copy = must_print("%s", all ? all : ""), *rest = copy, *line;

			while (*copy && (line = strsep(&rest, "\n")))
				append(o, "Problems", line);
			free(copy);
		}
	}
}

void objects_make(struct objects *objects, const struct look *look, const struct plan *plan)
{
	*objects = (struct objects){ 0 };
	for (size_t i = 0; i < look->mapped.number; i++)
		take_running(objects, &look->mapped.mapped[i]);
	for (size_t i = 0; i < look->facts.nr_members; i++)
		take_member(objects, &look->facts.member[i]);
	link_volumes(objects);
	take_stacks(objects, &look->members);
	for (size_t i = 0; i < plan->nr_refusals; i++)
		take_refusal(objects, &plan->refusal[i]);
	collect_problems(objects);
}

/* ------------------------------------------------------------------ to a file and back: for each object kind, path and values, with a zero behind each */

#define END "end"

int objects_write(const struct objects *objects, int file)
{
	int copy = dup(file);
	FILE *stream = copy < 0 ? NULL : fdopen(copy, "w");
	bool good = stream && !ftruncate(file, 0) && !fseek(stream, 0, SEEK_SET);

	for (size_t i = 0; good && i < objects->number; i++) {
		const struct object *o = &objects->object[i];

		fprintf(stream, "%d%c%s%c", o->kind, 0, o->path, 0);
		for (size_t k = 0; k < object_classes[o->kind].number; k++)
			fprintf(stream, "%s%c", o->value[k], 0);
	}
	if (good)
		fprintf(stream, END "%c", 0);
	good = good && !ferror(stream);
	if (stream)
		good = !fclose(stream) && good;
	else if (copy >= 0)
		close(copy);
	return good ? 0 : -EIO;
}

static const char *next_text(const char **at, const char *end)
{
	const char *text = *at, *stop = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;

	if (stop)
		*at = stop + 1;
	return stop ? text : NULL;
}

static bool parse(struct objects *objects, const char *at, const char *end)
{
	const char *text, *path;

	while ((text = next_text(&at, end)) && strcmp(text, END)) {
		int kind = atoi(text);
		size_t before = objects->number;
		struct object *o;

		path = next_text(&at, end);
		if (!path || kind < 0 || kind >= NR_OBJECT_KINDS)
			return false;
		o = object_at(objects, (enum object_kind)kind, must_print("%s", path));
		if (objects->number == before)
			return false;
		for (size_t k = 0; k < object_classes[kind].number; k++) {
			text = next_text(&at, end);
			if (!text)
				return false;
			free(o->value[k]);
			o->value[k] = must_print("%s", text);
		}
	}
	return text;
}

bool objects_read(struct objects *objects, int file)
{
	struct stat status;
	char *map;
	bool good;

	*objects = (struct objects){ 0 };
	if (fstat(file, &status) || status.st_size <= 0)
		return false;
	map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
	if (map == MAP_FAILED)
		return false;
	good = parse(objects, map, map + status.st_size);
	munmap(map, (size_t)status.st_size);
	if (!good)
		objects_free(objects);
	return good;
}
