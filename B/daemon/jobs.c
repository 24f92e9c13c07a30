// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Jobs of the kernel:
 *
 *	scrub, join, drain, copy	of a cache
 *	flush, leave			of a volume
 *	scrub, repair, resync, rebuild, reshape	of the array below a volume; a scrub that was stopped is one that is paused
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uuid/uuid.h>

#include "../lib/message.h"
#include "../lib/snapshot.h"
#include "../lib/stack.h"
#include "../lib/status.h"
#include "../lib/turn.h"
#include "jobs.h"

/* ------------------------------------------------------------------ one job */

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

struct object *job_add(struct objects *objects, const char *kind, const char *of, const char *source, unsigned serial)
{
	char *path = must_print("%s/%s_%s", object_classes[OBJECT_JOB].prefix, kind, last_part(of));
	char *numbered = must_print("%s_%u", path, serial);
	struct object *job;

	job = object_at(objects, OBJECT_JOB, serial ? numbered : path);
	free(serial ? path : numbered);
	object_set(job, "Kind", "%s", kind);
	object_set(job, "Object", "%s", of);
	object_set(job, "Source", "%s", source);
	object_set(job, "State", "running");
	return job;
}

/* total: 0 where nobody knows; else left is the rest of it. */
static void progress(struct object *job, uint64_t done, uint64_t left, uint64_t total, const char *unit)
{
	if (total) {
		done = done < total ? done : total;
		left = total - done;
	}
	object_set(job, "Done", "%" PRIu64, done);
	object_set(job, "Left", "%" PRIu64, left);
	object_set(job, "Total", "%" PRIu64, total);
	object_set(job, "Unit", "%s", unit);
}

/* Words of the command larder, and behind them the UUID. */
static void by(struct object *job, const char *method, const char *const *words, const char *uuid, const char *last)
{
	for (; *words; words++)
		object_append(job, method, *words);
	object_append(job, method, uuid);
	if (last)
		object_append(job, method, last);
	if (!strcmp(method, "cancel"))
		object_set(job, "CanCancel", "1");
	if (!strcmp(method, "pause"))
		object_set(job, "CanPause", "1");
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* ------------------------------------------------------------------ caches and volumes */

static uint64_t bytes(const char *status, const char *key)
{
	return status_number(status, key) << LARDER_SECTOR_SHIFT;
}

/* The first place of a cache that is in this state, as text that the caller frees; NULL: none. */
static char *place_in_state(const char *status, const char *state)
{
	char *all = status_value(status, "ssds"), *rest = all, *one;
	unsigned place = 0;

	for (; rest && (one = strsep(&rest, "/")); place++)
		if (!strcmp(one, state)) {
			free(all);
			return must_print("%u", place);
		}
	free(all);
	return NULL;
}

/* Jobs are looked at more often than all else: how a scrub ended is to be known when its job is gone. */
static void take_scrub(struct object *cache, const char *status)
{
	char *scrub = status_value(status, "scrub");

	if (scrub)
		object_set(cache, "Scrub", "%s", scrub);
	free(scrub);
}

static void take_cache(struct objects *objects, const char *of, const char *uuid, const char *status)
{
	char *draining = place_in_state(status, "draining"), *joining = place_in_state(status, "joining");
	struct object *job;

	if (status_is(status, "scrub", "running")) {
		job = job_add(objects, "scrub", of, "devices", 0);
		progress(job, status_number(status, "scrub_segments"), 0, status_number(status, "segments"), "segments");
		by(job, "cancel", WORDS("cache", "scrub", "--stop"), uuid, NULL);
	}
	if (joining) {
		job = job_add(objects, "join", of, "devices", 0);
		progress(job, bytes(status, "join_sectors"), 0, 0, "bytes");
	}
	if (draining) {
		job = job_add(objects, "drain", of, "devices", 0);
		progress(job, 0, status_number(status, "drain_segments"), 0, "segments");
		by(job, "cancel", WORDS("cache", "remove", "--stop"), uuid, draining);
	}
	if (status_is(status, "resync", "running") || status_is(status, "resync", "waiting")) {
		job = job_add(objects, "copy", of, "devices", 0);
		progress(job, bytes(status, "resync_sectors"), bytes(status, "single_sectors"), 0, "bytes");
		if (status_is(status, "resync", "waiting"))
			object_set(job, "State", "waiting");
	}
	free(draining);
	free(joining);
}

static void take_volume(struct objects *objects, const char *of, const char *stack, const char *uuid, const char *status)
{
	struct object *job;

	if (status_is(status, "state", "leaving")) {
		job = job_add(objects, "leave", of, "devices", 0);
	} else if (status_is(status, "flushing", "1")) {
		job = job_add(objects, "flush", of, "devices", 0);
		by(job, "cancel", WORDS("volume", "flush", "--stop"), uuid, NULL);
	} else {
		return;
	}
	object_set(job, "Stack", "%s", stack);
	progress(job, 0, bytes(status, "dirty_sectors"), 0, "bytes");
}

/* ------------------------------------------------------------------ arrays */

/* md's word for what it does, and ours. */
static const char *kind_of(const char *action)
{
	static const char *const words[][2] = {
		{ "check", "scrub" }, { "repair", "repair" }, { "resync", "resync" }, { "recover", "rebuild" }, { "reshape", "reshape" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(action, words[i][0]))
			return words[i][1];
	return NULL;
}

void jobs_of_array(struct objects *objects, const char *stack, const char *volume, const struct job_array *array)
{
	const struct md_scrub *now = &array->now;
	const char *kind = kind_of(now->action);
	const struct object *o = objects_find(objects, stack);
	const char *uuid = o ? object_value(o, "UUID") : "";
	bool paused = !kind && array->note.stopped;
	struct object *job;

	if (!kind && !paused)
		return;
	job = job_add(objects, paused ? "scrub" : kind, volume, "devices", 0);
	object_set(job, "Stack", "%s", stack);
	if (paused) {
		object_set(job, "State", "paused");
		progress(job, array->note.at << LARDER_SECTOR_SHIFT, 0, 0, "bytes");
		by(job, "resume", WORDS("scrub"), uuid, NULL);
	} else {
		/* md says nothing of how far while it waits for another array on the same disks */
		if (!now->all)
			object_set(job, "State", "waiting");
		progress(job, now->done << LARDER_SECTOR_SHIFT, 0, now->all << LARDER_SECTOR_SHIFT, "bytes");
	}
	if (paused || md_scrub_runs(now))
		by(job, "cancel", WORDS("scrub", "--stop", "--forget"), uuid, NULL);
	/* what goes on with a repair would be a check */
	if (!strcmp(now->action, "check"))
		by(job, "pause", WORDS("scrub", "--stop"), uuid, NULL);
}

/* Of a stack whose volume lies on an array. */
static void take_array(struct objects *objects, const struct object *stack, const struct object *volume)
{
	const struct object *device = objects_find(objects, object_value(volume, "Device"));
	struct job_array array = { 0 };
	struct stack known = { 0 };
	struct stat status;
	uint8_t uuid[16];

	if (device && !uuid_parse(object_value(stack, "UUID"), known.uuid) && !stat(object_value(device, "Path"), &status) && S_ISBLK(status.st_mode) &&
	    md_scrub_look(status.st_rdev, &array.now)) {
		stack_part(&known, "md", uuid);
		scrub_note_get(uuid, &array.note);
		jobs_of_array(objects, stack->path, volume->path, &array);
	}
}

/* ------------------------------------------------------------------ all of them */

static void take_mapped(struct objects *objects, const struct mapped *mapped)
{
	char *text = status_value(mapped->status, "uuid"), *path;
	struct object *o;
	uint8_t uuid[16];

	if (text && !uuid_parse(text, uuid)) {
		path = object_path(mapped->cache ? OBJECT_CACHE : OBJECT_VOLUME, uuid);
		o = (struct object *)objects_find(objects, path);
		if (o && mapped->cache) {
			take_scrub(o, mapped->status);
			take_cache(objects, path, text, mapped->status);
		} else if (o) {
			take_volume(objects, path, object_value(o, "Stack"), text, mapped->status);
		}
		free(path);
	}
	free(text);
}

void jobs_find(struct objects *objects, const struct mapped_list *mapped)
{
	size_t number = objects->number;

	for (size_t i = 0; i < mapped->number; i++)
		take_mapped(objects, &mapped->mapped[i]);
	for (size_t i = 0; i < number; i++) {
		const struct object *volume;

		if (objects->object[i].kind != OBJECT_STACK)
			continue;
		volume = objects_find(objects, object_value(&objects->object[i], "Volume"));
		if (volume && !strcmp(object_value(volume, "Running"), "1"))
			take_array(objects, &objects->object[i], volume);
	}
}

int jobs_look(struct objects *objects)
{
	struct mapped_list mapped;
	int result = snapshot_take(&mapped);

	if (result)
		return result;
	objects_forget(objects, OBJECT_JOB);
	jobs_find(objects, &mapped);
	mapped_list_free(&mapped);
	return LARDER_DONE;
}

bool jobs_run(const struct objects *objects)
{
	for (size_t i = 0; i < objects->number; i++)
		if (objects->object[i].kind == OBJECT_JOB && strcmp(object_value(&objects->object[i], "State"), "paused"))
			return true;
	return false;
}

const char *job_result(const struct object *job, const struct objects *now)
{
	const struct object *of = objects_find(now, object_value(job, "Object"));
	const char *state = object_value(job, "State");

	if (!strcmp(state, "done") || !strcmp(state, "failed") || !strcmp(state, "cancelled"))
		return state;
	/* a cache says it of its scrub; of the rest it is the state of what it was about */
	if (of && of->kind == OBJECT_CACHE && !strcmp(object_value(job, "Kind"), "scrub"))
		state = object_value(of, "Scrub");
	return !strcmp(state, "done") || !strcmp(state, "failed") || !strcmp(state, "stopped") ? state : "ended";
}
