// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * daemon/jobs.c: what md does, or was stopped at, as a job of the bus; those of caches and volumes are in tests/test_command_bus.py.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../daemon/objects.c"
#include "../../daemon/jobs.c"

#define STACK  BUS_ROOT "/stack/a"
#define VOLUME BUS_ROOT "/volume/b"
#define UUID   "5dfe2d24-6a0c-4cd1-9d87-2f4a3c9e6b10"

static const char *scrub; /* of a cache that runs; NULL: there is none */
static struct mapped cache = { .cache = true };

/* what is not asked here */
int snapshot_take(struct mapped_list *list) { *list = (struct mapped_list){ &cache, scrub != NULL }; return 0; }
void mapped_list_free(struct mapped_list *list) { (void)list; }
char *status_value(const char *status, const char *key)
{
	(void)status;
	return !scrub ? NULL : !strcmp(key, "uuid") ? must_print(UUID) : !strcmp(key, "scrub") ? must_print("%s", scrub) : NULL;
}
uint64_t status_number(const char *status, const char *key) { (void)status; (void)key; return 0; }
bool status_is(const char *status, const char *key, const char *value) { (void)status; return scrub && !strcmp(key, "scrub") && !strcmp(scrub, value); }
bool md_scrub_look(dev_t device, struct md_scrub *scrub) { (void)device; (void)scrub; return false; }
void scrub_note_get(const uint8_t uuid[16], struct scrub_note *note) { (void)uuid; *note = (struct scrub_note){ 0 }; }
void stack_part(const struct stack *stack, const char *part, uint8_t uuid[16]) { (void)stack; (void)part; memset(uuid, 0, 16); }

#include "check.h"

static bool is(const struct object *job, const char *property, const char *value)
{
	bool same = job && !strcmp(object_value(job, property), value);

	if (!same)
		printf("# %s is '%s', not '%s'\n", property, job ? object_value(job, property) : "(no job)", value);
	return same;
}

#define NOWHERE UINT64_MAX

struct expected {
	const char *name, *action;
	uint64_t done, all, stopped; /* NOWHERE: not */
	const char *path, *state, *bytes_done, *bytes_left, *cancel, *pause, *resume; /* path NULL: there is no job */
};

#define JOBS   BUS_ROOT "/job/"
#define STOP   "scrub\n--stop\n" UUID
#define FORGET "scrub\n--stop\n--forget\n" UUID

static const struct expected cases[] = {
	{ "idle", "idle", 0, 0, NOWHERE, NULL, "", "", "", "", "", "" },
	{ "frozen", "frozen", 0, 0, NOWHERE, NULL, "", "", "", "", "", "" },
	{ "check", "check", 8, 24, NOWHERE, JOBS "scrub_b", "running", "4096", "8192", FORGET, STOP, "" },
	{ "check that waits", "check", 0, 0, NOWHERE, JOBS "scrub_b", "waiting", "0", "0", FORGET, STOP, "" },
	{ "repair cannot be paused", "repair", 8, 24, NOWHERE, JOBS "repair_b", "running", "4096", "8192", FORGET, "", "" },
	{ "scrub that was stopped", "idle", 0, 0, 8, JOBS "scrub_b", "paused", "4096", "0", FORGET, "", "scrub\n" UUID },
	{ "at its beginning", "idle", 0, 0, 0, JOBS "scrub_b", "paused", "0", "0", FORGET, "", "scrub\n" UUID },
	{ "rebuild while a scrub is stopped", "recover", 8, 24, 8, JOBS "rebuild_b", "running", "4096", "8192", "", "", "" },
	{ "resync", "resync", 8, 24, NOWHERE, JOBS "resync_b", "running", "4096", "8192", "", "", "" },
	{ "reshape", "reshape", 8, 24, NOWHERE, JOBS "reshape_b", "running", "4096", "8192", "", "", "" },
};

static bool holds(const struct expected *e)
{
	struct objects objects = { 0 };
	struct job_array array = { .now = { .done = e->done, .all = e->all }, .note = { .stopped = e->stopped != NOWHERE, .at = e->stopped } };
	const struct object *job;
	bool good;

	snprintf(array.now.action, sizeof(array.now.action), "%s", e->action);
	object_set(object_at(&objects, OBJECT_STACK, must_print(STACK)), "UUID", UUID);
	jobs_of_array(&objects, STACK, VOLUME, &array);
	if (!e->path) {
		good = objects.number == 1;
	} else {
		job = objects_find(&objects, e->path);
		good = objects.number == 2 && is(job, "State", e->state) && is(job, "Done", e->bytes_done) && is(job, "Left", e->bytes_left) &&
		       is(job, "cancel", e->cancel) && is(job, "pause", e->pause) && is(job, "resume", e->resume) && is(job, "Stack", STACK) &&
		       is(job, "Object", VOLUME) && is(job, "CanCancel", *e->cancel ? "1" : "0") && is(job, "CanPause", *e->pause ? "1" : "0");
		good = good && jobs_run(&objects) == !!strcmp(e->state, "paused");
	}
	objects_free(&objects);
	return good;
}

/* Jobs alone are looked at, again and again: how it ended is known when it is gone, whatever the last look at all else has found. */
static void scrub_of_a_cache(void)
{
	static const char *const ends[][2] = { { "done", "done" }, { "stopped", "stopped" }, { "failed", "failed" }, { "off", "ended" } };
	uint8_t uuid[16];

	uuid_parse(UUID, uuid);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct object job = { .kind = OBJECT_JOB };
		struct objects objects = { 0 };
		const struct object *o;

		object_at(&objects, OBJECT_CACHE, object_path(OBJECT_CACHE, uuid));
		scrub = "running";
		check(!jobs_look(&objects) && objects.number == 2, "a scrub");
		o = &objects.object[1];
		object_set(&job, "Kind", "%s", object_value(o, "Kind"));
		object_set(&job, "Object", "%s", object_value(o, "Object"));
		object_set(&job, "State", "%s", object_value(o, "State"));
		check(!strcmp(job_result(&job, &objects), "ended"), "not told yet");
		scrub = ends[i][0];
		check(!jobs_look(&objects) && objects.number == 1 && !strcmp(job_result(&job, &objects), ends[i][1]), ends[i][0]);
		object_clear(&job);
		objects_free(&objects);
	}
	scrub = NULL;
}

int main(void)
{
	scrub_of_a_cache();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check(holds(&cases[i]), cases[i].name);
	return failed;
}
