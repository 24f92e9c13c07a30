// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what becomes jobs on D-Bus (daemon/jobs.c, lib/md_scrub.c).  Input: a byte (bit 0: an array, else a cache and its volume), then texts, each ended
 * by a NUL: the two statuses; or the sector where a scrub was stopped, and what each file of md's in sysfs has, in turn.  Aborts where a job says of itself what none can be,
 * or would run words other than those for it, and where a scrub goes on at a place that was not reached.
 */
#include <unistd.h>
#include <uuid/uuid.h>

#define usleep(microseconds) ((void)(microseconds))
#include "../../lib/md_scrub.c"
#undef usleep
#include "../../daemon/jobs.h"
#include "message.h"
#include "status.h"
#include "sysfs_texts.h"

#define UUID_CACHE  "aaaaaaaa-0000-4000-8000-0000000000aa"
#define UUID_VOLUME "bbbbbbbb-0000-4000-8000-0000000000bb"
#define UUID_STACK  "cccccccc-0000-4000-8000-0000000000cc"

int device_set_attribute(dev_t number, const char *name, const char *text)
{
	must(number && !strncmp(name, "md/sync_", 8) && *text, "what a scrub sets");
	return 0;
}

/* ------------------------------------------------------------------ what a job is */

static uint64_t number_of(const struct object *job, const char *property)
{
	const char *text = object_value(job, property);

	must(*text && strspn(text, "0123456789") == strlen(text), "a number");
	return strtoull(text, NULL, 10);
}

static bool among(const char *word, const char *const *words)
{
	for (; *words; words++)
		if (!strcmp(word, *words))
			return true;
	return false;
}

/* A command: words for it, the UUID of what it is about, and a place among the SSDs. */
static void check_words(const struct object *job, const char *property)
{
	static const char *const known[] = { "cache", "volume", "scrub", "flush", "remove", "--stop", "--forget", NULL };
	char *all = strdup(object_value(job, property)), *rest = all, *word;
	unsigned uuids = 0;

	must(all, "memory");
	while (*all && (word = strsep(&rest, "\n"))) {
		if (!strcasecmp(word, UUID_CACHE) || !strcasecmp(word, UUID_VOLUME) || !strcasecmp(word, UUID_STACK))
			uuids++;
		else if (uuids)
			must(!rest && *word && strspn(word, "0123456789") == strlen(word), "a place, which is the last word");
		else
			must(among(word, known), "a word of the command");
	}
	must(uuids == !!*all, "one UUID");
	free(all);
}

static void check(const struct objects *objects)
{
	static const char *const kinds[] = { "scrub", "join", "drain", "copy", "flush", "leave", "repair", "resync", "rebuild", "reshape", NULL };
	static const char *const states[] = { "running", "waiting", "paused", NULL };

	for (size_t i = 0; i < objects->number; i++) {
		const struct object *job = &objects->object[i];
		uint64_t done, left, total;

		if (job->kind != OBJECT_JOB)
			continue;
		must(among(object_value(job, "Kind"), kinds) && among(object_value(job, "State"), states), "its kind, its state");
		must(objects_find(objects, object_value(job, "Object")), "what it is about");
		done = number_of(job, "Done");
		left = number_of(job, "Left");
		total = number_of(job, "Total");
		must(!total || (done <= total && left == total - done), "what is done and what is left are all");
		must(!*object_value(job, "cancel") == !strcmp(object_value(job, "CanCancel"), "0"), "it says whether it can be ended");
		must(!*object_value(job, "pause") == !strcmp(object_value(job, "CanPause"), "0"), "it says whether it can be stopped");
		must(!*object_value(job, "resume") == !!strcmp(object_value(job, "State"), "paused"), "what is paused goes on");
		check_words(job, "cancel");
		check_words(job, "pause");
		check_words(job, "resume");
		must(job_result(job, objects), "how it ended");
	}
}

/* ------------------------------------------------------------------ where they come from */

static struct object *known(struct objects *objects, enum object_kind kind, const char *text)
{
	struct object *o;
	uint8_t uuid[16];

	must(!uuid_parse(text, uuid), "a UUID");
	o = object_at(objects, kind, object_path(kind, uuid));
	object_set(o, "UUID", "%s", text);
	return o;
}

static void try_status(struct objects *objects, const uint8_t *data, size_t size)
{
	struct mapped mapped[] = { { .cache = true, .status = input_next(&data, &size) }, { .status = input_next(&data, &size) } };
	const struct mapped_list list = { mapped, sizeof(mapped) / sizeof(mapped[0]) };

	jobs_find(objects, &list);
	for (size_t i = 0; i < list.number; i++)
		free(mapped[i].status);
}

static void try_array(struct objects *objects, const char *stack, const char *volume, const uint8_t *data, size_t size)
{
	char *stopped = input_next(&data, &size);
	const dev_t device = 9 << 8;
	struct job_array array = { 0 };
	uint64_t at, done;

	texts = data;
	texts_size = size;
	if (md_scrub_look(device, &array.now)) {
		must(strnlen(array.now.action, sizeof(array.now.action)) < sizeof(array.now.action), "a word");
		must(array.now.done <= array.now.all, "no more is done than there is");
		array.note.at = strtoull(stopped, NULL, 10);
		array.note.stopped = *stopped;
		jobs_of_array(objects, stack, volume, &array);
	}
	done = array.now.done;
	free(stopped);
	texts = data;
	texts_size = size;
	md_scrub_stop(device, &at);
	must(at <= done, "it goes on where it was, or before");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct objects objects = { 0 };
	char *stack, *volume;

	if (!size)
		return 0;
	stack = must_print("%s", known(&objects, OBJECT_STACK, UUID_STACK)->path);
	known(&objects, OBJECT_CACHE, UUID_CACHE);
	volume = must_print("%s", known(&objects, OBJECT_VOLUME, UUID_VOLUME)->path);
	if (data[0] & 1)
		try_array(&objects, stack, volume, data + 1, size - 1);
	else
		try_status(&objects, data + 1, size - 1);
	check(&objects);
	jobs_run(&objects);
	free(stack);
	free(volume);
	objects_free(&objects);
	return 0;
}
