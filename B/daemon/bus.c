// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The objects of the last pass on the system bus.
 *
 * One getter serves all properties: it finds the object by its path, and the value by the name.  Signals come of comparing two looks, and the commands
 * that run.  The tables for sd-bus follow from the classes (objects.h) and the methods (methods.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

#include "../lib/message.h"
#include "bus.h"
#include "bus_call.h"
#include "jobs.h"
#include "journal.h"
#include "methods.h"

#define SOCKET	 "unix:path=/run/dbus/system_bus_socket"
#define RETRY_US UINT64_C(1000000)
#define NAME_US	 UINT64_C(10000000) /* a name that was denied is asked for again: the policy may come behind us */

/* Answers to RequestName, as the specification of D-Bus has them. */
enum {
	NAME_IS_OURS = 1,
	NAME_IS_QUEUED_FOR = 2,
	NAME_WAS_OURS = 4,
};

#ifndef LARDER_RELEASE
#define LARDER_RELEASE "development"
#endif

struct bus {
	sd_event *event;
	sd_event_source *retry, *name_retry;
	sd_bus *bus;
	bool unnamed; /* that the name is not to be had was said */
	struct objects seen, objects; /* of the last look; with the commands that run, as they are shown */
	struct bus_hooks hooks; /* of calls */
	void (*refresh)(void *data, bool at_once);
	void *data;
};

/* ------------------------------------------------------------------ properties */

static int append_list(sd_bus_message *reply, const char *type, const char *value)
{
	char *copy = must_print("%s", value), *rest = copy, *line, *mark;
	int result = sd_bus_message_open_container(reply, 'a', type + 1);

	while (result >= 0 && *copy && (line = strsep(&rest, "\n"))) {
		mark = strchr(line, '=');
		if (type[1] != '{') {
			result = sd_bus_message_append_basic(reply, type[1], line);
		} else if (mark) {
			*mark = 0;
			result = sd_bus_message_append(reply, "{ss}", line, mark + 1);
		}
	}
	free(copy);
	return result < 0 ? result : sd_bus_message_close_container(reply);
}

static int append_value(sd_bus_message *reply, const char *type, const char *value)
{
	switch (*type) {
	case 'b':
		return sd_bus_message_append(reply, "b", !strcmp(value, "1"));
	case 't':
		return sd_bus_message_append(reply, "t", (uint64_t)strtoull(value, NULL, 10));
	case 'a':
		return append_list(reply, type, value);
	default:
		return sd_bus_message_append_basic(reply, *type, value);
	}
}

static int get_property(sd_bus *bus, const char *path, const char *interface, const char *property, sd_bus_message *reply, void *object, sd_bus_error *error)
{
	const struct object_class *class = &object_classes[((struct object *)object)->kind];

	(void)bus;
	(void)path;
	(void)interface;
	for (size_t i = 0; i < class->number; i++)
		if (!strcmp(class->property[i].name, property) && *class->property[i].type)
			return append_value(reply, class->property[i].type, ((struct object *)object)->value[i]);
	return sd_bus_error_setf(error, SD_BUS_ERROR_UNKNOWN_PROPERTY, "no property %s", property);
}

static int get_version(sd_bus *bus, const char *path, const char *interface, const char *property, sd_bus_message *reply, void *data, sd_bus_error *error)
{
	(void)bus;
	(void)path;
	(void)interface;
	(void)property;
	(void)data;
	(void)error;
	return sd_bus_message_append(reply, "s", LARDER_RELEASE);
}

/* ------------------------------------------------------------------ tables */

static struct bus *only; /* for those who get the object alone */

static int call_method(sd_bus_message *call, void *object, sd_bus_error *error)
{
	return bus_call(call, object, &only->hooks, error);
}

static int call_manager(sd_bus_message *call, void *data, sd_bus_error *error)
{
	(void)data;
	return bus_call(call, NULL, &only->hooks, error);
}

static const sd_bus_vtable manager_head[] = {
	SD_BUS_VTABLE_START(0),
	SD_BUS_PROPERTY("Version", "s", get_version, 0, SD_BUS_VTABLE_PROPERTY_CONST),
	SD_BUS_SIGNAL_WITH_ARGS("JobAdded", SD_BUS_ARGS("o", job, "s", kind, "o", object), 0),
	SD_BUS_SIGNAL_WITH_ARGS("JobRemoved", SD_BUS_ARGS("o", job, "s", kind, "o", object, "s", result, "s", error), 0),
};

#define HEAD (sizeof(manager_head) / sizeof(manager_head[0]))

static sd_bus_vtable tables[NR_OBJECT_KINDS + 1][HEAD + OBJECT_PROPERTIES_MAX + OBJECT_METHODS_MAX + 1]; /* the manager's last */

static sd_bus_vtable *add_properties(sd_bus_vtable *at, const struct object_class *class)
{
	for (size_t i = 0; i < class->number; i++) {
		const struct property *p = &class->property[i];

		if (*p->type)
			*at++ = (sd_bus_vtable)SD_BUS_PROPERTY(p->name, p->type, get_property, 0,
							       p->fixed ? SD_BUS_VTABLE_PROPERTY_CONST : SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE);
	}
	return at;
}

static sd_bus_vtable *add_methods(sd_bus_vtable *at, int kind)
{
	for (const struct method *m = methods; m->member; m++) {
		if (m->kind != kind)
			continue;
		*at = (sd_bus_vtable)SD_BUS_METHOD(m->member, m->signature, NULL, kind == METHOD_OF_MANAGER ? call_manager : call_method, SD_BUS_VTABLE_UNPRIVILEGED);
		at->x.method.names = m->names ? m->names : "";
		at++;
	}
	return at;
}

static void make_tables(void)
{
	for (int kind = 0; kind <= NR_OBJECT_KINDS; kind++) {
		sd_bus_vtable *at = tables[kind];

		if (kind == METHOD_OF_MANAGER) {
			memcpy(at, manager_head, sizeof(manager_head));
			at += HEAD;
		} else {
			*at++ = (sd_bus_vtable)SD_BUS_VTABLE_START(0);
			at = add_properties(at, &object_classes[kind]);
		}
		at = add_methods(at, kind);
		*at = (sd_bus_vtable)SD_BUS_VTABLE_END;
	}
}

static int find(sd_bus *sd, const char *path, const char *interface, void *data, void **found, sd_bus_error *error)
{
	struct bus *bus = data;
	const struct object *o = objects_find(&bus->objects, path);

	(void)sd;
	(void)error;
	if (!o || strcmp(object_classes[o->kind].interface, interface))
		return 0;
	*found = (void *)o;
	return 1;
}

/* Below a class, or (GetManagedObjects) below the root. */
static int enumerate(sd_bus *sd, const char *prefix, void *data, char ***nodes, sd_bus_error *error)
{
	struct bus *bus = data;
	char **list = must_allocate(calloc(bus->objects.number + 1, sizeof(*list)));
	size_t number = 0;

	(void)sd;
	(void)error;
	for (size_t i = 0; i < bus->objects.number; i++)
		if (!strncmp(bus->objects.object[i].path, prefix, strlen(prefix)))
			list[number++] = must_print("%s", bus->objects.object[i].path);
	*nodes = list;
	return 0;
}

/* ------------------------------------------------------------------ the connection */

static int open_bus(struct bus *bus);

static int try_again(sd_event_source *source, uint64_t when, void *data)
{
	(void)source;
	(void)when;
	open_bus(data);
	return 0;
}

static void close_bus(struct bus *bus)
{
	if (bus->bus) {
		sd_bus_detach_event(bus->bus);
		sd_bus_close_unref(bus->bus);
	}
	bus->bus = NULL;
	bus->name_retry = sd_event_source_disable_unref(bus->name_retry);
}

static void call_later(struct bus *bus, sd_event_source **timer, uint64_t wait, sd_event_time_handler_t call)
{
	*timer = sd_event_source_unref(*timer);
	sd_event_add_time_relative(bus->event, timer, CLOCK_MONOTONIC, wait, 0, call, bus);
}

static void retry_later(struct bus *bus)
{
	call_later(bus, &bus->retry, RETRY_US, try_again);
}

static int disconnected(sd_bus_message *message, void *data, sd_bus_error *error)
{
	(void)message;
	(void)error;
	retry_later(data);
	return 0;
}

static int request_name(struct bus *bus);

static int request_again(sd_event_source *source, uint64_t when, void *data)
{
	struct bus *bus = data;

	(void)source;
	(void)when;
	if (request_name(bus) < 0)
		call_later(bus, &bus->name_retry, NAME_US, request_again);
	return 0;
}

static int named(sd_bus_message *answer, void *data, sd_bus_error *error)
{
	bool denied = sd_bus_message_is_method_error(answer, NULL);
	struct bus *bus = data;
	uint32_t code = 0;

	(void)error;
	if (!denied && sd_bus_message_read(answer, "u", &code) >= 0 && (code == NAME_IS_OURS || code == NAME_IS_QUEUED_FOR || code == NAME_WAS_OURS)) {
		bus->unnamed = false;
		return 0;
	}
	if (!bus->unnamed && denied)
		journal_remark("no " BUS_NAME " on the bus, which is asked for it again and again: %s", sd_bus_message_get_error(answer)->message);
	else if (!bus->unnamed)
		journal_remark("no " BUS_NAME " on the bus, which is asked for it again and again: its answer was %u", code);
	bus->unnamed = true;
	call_later(bus, &bus->name_retry, NAME_US, request_again);
	return 0;
}

/* Who has it keeps it until he ends: a larderd that was killed may have left a child with its connection.  Then it is ours, without another word. */
static int request_name(struct bus *bus)
{
	return sd_bus_request_name_async(bus->bus, NULL, BUS_NAME, SD_BUS_NAME_REPLACE_EXISTING | SD_BUS_NAME_QUEUE, named, bus);
}

static int export(struct bus *bus)
{
	int result = sd_bus_add_object_vtable(bus->bus, NULL, BUS_ROOT, BUS_NAME ".Manager", tables[METHOD_OF_MANAGER], bus);

	if (result >= 0)
		result = sd_bus_add_object_manager(bus->bus, NULL, BUS_ROOT);
	for (int kind = 0; result >= 0 && kind < NR_OBJECT_KINDS; kind++) {
		const struct object_class *class = &object_classes[kind];

		result = sd_bus_add_fallback_vtable(bus->bus, NULL, class->prefix, class->interface, tables[kind], find, bus);
		if (result >= 0)
			result = sd_bus_add_node_enumerator(bus->bus, NULL, class->prefix, enumerate, bus);
	}
	return result;
}

/* Of a bus that is not there yet the socket is waited for. */
static int open_bus(struct bus *bus)
{
	const char *address = getenv("DBUS_SYSTEM_BUS_ADDRESS");
	int result;

	close_bus(bus);
	result = sd_bus_new(&bus->bus);
	if (result >= 0)
		result = sd_bus_set_address(bus->bus, address && *address ? address : SOCKET);
	if (result >= 0)
		result = sd_bus_set_bus_client(bus->bus, true);
	if (result >= 0)
		result = sd_bus_set_watch_bind(bus->bus, true);
	if (result >= 0)
		result = export(bus);
	if (result >= 0)
		result = sd_bus_start(bus->bus);
	if (result >= 0)
		result = sd_bus_match_signal_async(bus->bus, NULL, "org.freedesktop.DBus.Local", NULL, "org.freedesktop.DBus.Local", "Disconnected", disconnected, NULL,
						   bus);
	if (result >= 0)
		result = request_name(bus);
	if (result >= 0)
		result = sd_bus_attach_event(bus->bus, bus->event, SD_EVENT_PRIORITY_NORMAL);
	if (result < 0) {
		close_bus(bus);
		retry_later(bus);
	}
	return result;
}

/* ------------------------------------------------------------------ signals */

static void tell_changes(struct bus *bus, const struct object *before, const struct object *now)
{
	const struct object_class *class = &object_classes[now->kind];
	char *names[OBJECT_PROPERTIES_MAX + 1] = { NULL };
	size_t number = 0;

	for (size_t i = 0; i < class->number; i++)
		if (*class->property[i].type && strcmp(before->value[i], now->value[i]) != 0)
			names[number++] = (char *)class->property[i].name;
	if (number)
		sd_bus_emit_properties_changed_strv(bus->bus, now->path, class->interface, names);
}

/* now: without it, as it has gone; NULL: it has come. */
static void tell_of_job(struct bus *bus, const struct object *job, const struct objects *now)
{
	const char *kind = object_value(job, "Kind"), *of = object_value(job, "Object");

	if (job->kind != OBJECT_JOB)
		return;
	if (now)
		sd_bus_emit_signal(bus->bus, BUS_ROOT, BUS_NAME ".Manager", "JobRemoved", "ososs", job->path, kind, of, job_result(job, now), object_value(job, "Error"));
	else
		sd_bus_emit_signal(bus->bus, BUS_ROOT, BUS_NAME ".Manager", "JobAdded", "oso", job->path, kind, of);
}

/* Shows what was seen, and the commands that run. */
static void show(struct bus *bus)
{
	struct objects before = bus->objects, now;
	bool ready = bus->bus && sd_bus_is_ready(bus->bus) > 0;

	objects_copy(&now, &bus->seen);
	bus_call_jobs(&now);
	/* while they are still there to be found */
	for (size_t i = 0; ready && i < before.number; i++)
		if (!objects_find(&now, before.object[i].path))
			sd_bus_emit_object_removed(bus->bus, before.object[i].path);
	bus->objects = now;
	for (size_t i = 0; ready && i < now.number; i++) {
		const struct object *is = &now.object[i], *was = objects_find(&before, is->path);

		if (was && was->kind == is->kind)
			tell_changes(bus, was, is);
		else if (!was)
			sd_bus_emit_object_added(bus->bus, is->path);
		if (!was)
			tell_of_job(bus, is, NULL);
	}
	for (size_t i = 0; ready && i < before.number; i++)
		if (!objects_find(&now, before.object[i].path))
			tell_of_job(bus, &before.object[i], &now);
	objects_free(&before);
}

void bus_show(struct bus *bus, struct objects *objects)
{
	objects_free(&bus->seen);
	bus->seen = *objects;
	*objects = (struct objects){ 0 };
	show(bus);
}

const struct objects *bus_seen(const struct bus *bus)
{
	return &bus->seen;
}

int bus_descriptor(const struct bus *bus)
{
	return bus->bus ? sd_bus_get_fd(bus->bus) : -1;
}

static void jobs_changed(void *data)
{
	show(data);
}

/* ------------------------------------------------------------------ the whole */

static void ended(void *data)
{
	struct bus *bus = data;

	bus->refresh(bus->data, true);
}

static void asked(void *data, bool by_root)
{
	struct bus *bus = data;

	bus->refresh(bus->data, by_root);
}

int bus_new(struct bus **made, sd_event *event, void (*refresh)(void *data, bool at_once), void *data)
{
	struct bus *bus = must_allocate(calloc(1, sizeof(*bus)));

	*bus = (struct bus){ .event = event, .refresh = refresh, .data = data };
	bus->hooks = (struct bus_hooks){ .ended = ended, .asked = asked, .jobs_changed = jobs_changed, .data = bus };
	*made = only = bus;
	make_tables();
	open_bus(bus);
	return 0;
}
