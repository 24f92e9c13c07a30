/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What org.larder1 shows (docs/dbus.md): stacks, caches, volumes, devices, jobs as objects with properties.
 *
 * A pass is made by a child: it writes them to a file, and the daemon reads them back.  No secret is among them, as no fact has one.
 */
#ifndef LARDER_OBJECTS_H
#define LARDER_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUS_ROOT  "/org/larder1"
#define BUS_NAME  "org.larder1"
#define OBJECT_PROPERTIES_MAX 16
#define OBJECT_METHODS_MAX 32

enum object_kind {
	OBJECT_STACK,
	OBJECT_CACHE,
	OBJECT_VOLUME,
	OBJECT_DEVICE,
	OBJECT_JOB,
	NR_OBJECT_KINDS,
};

/*
 * A property: its name and type on the bus; the value is text, that of a list (as, ao) a line each, of a{ss} "key=value" lines.  Type "": it is ours
 * alone, and a list.
 */
struct property {
	const char *name, *type;
	bool fixed; /* for as long as the object is there */
};

struct object_class {
	const char *interface, *prefix;
	const struct property *property;
	size_t number;
};

extern const struct object_class object_classes[NR_OBJECT_KINDS];

struct object {
	enum object_kind kind;
	char *path;
	char *value[OBJECT_PROPERTIES_MAX]; /* in the order of its class; never NULL */
};

struct objects {
	struct object *object;
	size_t number;
};

void objects_free(struct objects *objects);
const struct object *objects_find(const struct objects *objects, const char *path);
/* Value of a property of the object's class; NULL: it has none of that name. */
const char *object_value(const struct object *object, const char *property);

/* Is that path the object's own, or that of its volume, or its cache? */
bool object_is_part(const struct object *object, const char *path);

/* The one with that path, made if need be; it stays where it is until the next one is made.  Takes the path. */
struct object *object_at(struct objects *objects, enum object_kind kind, char *path);
/* The caller frees it. */
char *object_path(enum object_kind kind, const uint8_t uuid[16]);
void object_set(struct object *object, const char *property, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* One more line of a list. */
void object_append(struct object *object, const char *property, const char *text);
void objects_copy(struct objects *copy, const struct objects *objects);
/* Those of one kind go. */
void objects_forget(struct objects *objects, enum object_kind kind);

/* To a file, from its beginning; 0 or -errno. */
int objects_write(const struct objects *objects, int file);
/* False: it is not what objects_write() wrote, whole. */
bool objects_read(struct objects *objects, int file);

#endif
