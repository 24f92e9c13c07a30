// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Objects: their classes, the list of them, and that as a file.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/message.h"
#include "../lib/superblock.h"
#include "objects.h"

#define SHOWN(text, kind) { .name = text, .type = kind }
#define FIXED(text, kind) { .name = text, .type = kind, .fixed = true }

static const struct property stack_properties[] = {
	SHOWN("Name", "s"), FIXED("UUID", "s"), SHOWN("State", "s"), SHOWN("Encrypted", "b"), SHOWN("MountPoint", "s"),
	SHOWN("Snapshots", "as"), SHOWN("Volume", "o"), SHOWN("Cache", "o"), SHOWN("Problems", "as"),
};
static const struct property cache_properties[] = {
	SHOWN("Name", "s"), FIXED("UUID", "s"), SHOWN("State", "s"), SHOWN("Running", "b"), SHOWN("Size", "t"),
	SHOWN("Devices", "ao"), SHOWN("Volumes", "ao"), SHOWN("Scrub", "s"), SHOWN("Options", "a{ss}"), SHOWN("Problems", "as"),
};
static const struct property volume_properties[] = {
	SHOWN("Name", "s"), FIXED("UUID", "s"), SHOWN("State", "s"), SHOWN("Running", "b"), SHOWN("Size", "t"), SHOWN("Node", "s"),
	SHOWN("Mode", "s"), SHOWN("Cache", "o"), SHOWN("Device", "o"), SHOWN("Stack", "o"), SHOWN("Options", "a{ss}"), SHOWN("Problems", "as"),
};
static const struct property device_properties[] = {
	FIXED("Path", "s"), SHOWN("UUID", "s"), SHOWN("Kind", "s"), SHOWN("Label", "s"), SHOWN("Cache", "o"), SHOWN("Volume", "o"), SHOWN("Problems", "as"),
};
static const struct property job_properties[] = {
	FIXED("Kind", "s"), FIXED("Object", "o"), SHOWN("Stack", "o"), FIXED("Source", "s"), SHOWN("State", "s"),
	SHOWN("Done", "t"), SHOWN("Left", "t"), SHOWN("Total", "t"), SHOWN("Unit", "s"), SHOWN("CanCancel", "b"),
	SHOWN("CanPause", "b"), SHOWN("Error", "s"), SHOWN("cancel", ""), SHOWN("pause", ""), SHOWN("resume", ""),
};

#define CLASS(name, path, list) { BUS_NAME "." name, BUS_ROOT path, list, sizeof(list) / sizeof((list)[0]) }

const struct object_class object_classes[NR_OBJECT_KINDS] = {
	[OBJECT_STACK] = CLASS("Stack", "/stack", stack_properties),	[OBJECT_CACHE] = CLASS("Cache", "/cache", cache_properties),
	[OBJECT_VOLUME] = CLASS("Volume", "/volume", volume_properties), [OBJECT_DEVICE] = CLASS("Device", "/device", device_properties),
	[OBJECT_JOB] = CLASS("Job", "/job", job_properties),
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

bool object_is_part(const struct object *object, const char *path)
{
	const char *volume = object_value(object, "Volume"), *cache = object_value(object, "Cache");

	return !strcmp(object->path, path) || (volume && !strcmp(volume, path)) || (cache && !strcmp(cache, path));
}

const struct object *objects_find(const struct objects *objects, const char *path)
{
	for (size_t i = 0; i < objects->number; i++)
		if (!strcmp(objects->object[i].path, path))
			return &objects->object[i];
	return NULL;
}

static void object_clear(struct object *object)
{
	for (size_t k = 0; k < object_classes[object->kind].number; k++)
		free(object->value[k]);
	free(object->path);
}

void objects_free(struct objects *objects)
{
	for (size_t i = 0; i < objects->number; i++)
		object_clear(&objects->object[i]);
	free(objects->object);
	*objects = (struct objects){ 0 };
}

/* What a property is until somebody knows better: what its type allows. */
static char *no_value(const char *type)
{
	return must_print("%s", !strcmp(type, "o") ? "/" : !strcmp(type, "b") || !strcmp(type, "t") ? "0" : "");
}

struct object *object_at(struct objects *objects, enum object_kind kind, char *path)
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

void object_set(struct object *o, const char *property, const char *format, ...)
{
	int place = place_of(&object_classes[o->kind], property);
	va_list args;

	va_start(args, format);
	free(o->value[place]);
	o->value[place] = must_vprint(format, args);
	va_end(args);
	text_clean(o->value[place]);
}

void object_append(struct object *o, const char *property, const char *text)
{
	int place = place_of(&object_classes[o->kind], property);
	char *clean = must_print("%s", text), *longer;

	text_clean(clean);
	longer = must_print("%s%s%s", o->value[place], *o->value[place] ? "\n" : "", clean);
	free(o->value[place]);
	free(clean);
	o->value[place] = longer;
}

char *object_path(enum object_kind kind, const uint8_t uuid[16])
{
	char text[UUID_TEXT];

	uuid_text(uuid, text);
	for (char *c = text; *c; c++)
		if (*c == '-')
			*c = '_';
	return must_print("%s/%s", object_classes[kind].prefix, text);
}

void objects_copy(struct objects *copy, const struct objects *objects)
{
	*copy = (struct objects){ 0 };
	for (size_t i = 0; i < objects->number; i++) {
		const struct object *from = &objects->object[i];
		struct object *to = object_at(copy, from->kind, must_print("%s", from->path));

		for (size_t k = 0; k < object_classes[from->kind].number; k++) {
			free(to->value[k]);
			to->value[k] = must_print("%s", from->value[k]);
		}
	}
}

void objects_forget(struct objects *objects, enum object_kind kind)
{
	size_t kept = 0;

	for (size_t i = 0; i < objects->number; i++)
		if (objects->object[i].kind == kind)
			object_clear(&objects->object[i]);
		else
			objects->object[kept++] = objects->object[i];
	objects->number = kept;
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
