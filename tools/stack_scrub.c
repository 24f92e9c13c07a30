// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder scrub: all that a stack keeps twice is read and compared: by the cache what is on its SSDs, by md what is on the disks of the array.
 *
 * Both at once, as they are on different devices, and both by the kernel: whoever is waiting for it may end, and it goes on.  Between two
 * disks of an array that differ nothing says which is right, so they are made the same only when that is asked for.  What --stop ends goes on
 * where it was with the next one (an array, but with --forget), or begins anew (a cache, which is read in minutes).
 *
 * SIGTERM to who waits stops what this command has begun, and nothing that was running before it: larder-scrub.service is ended so.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "md_scrub.h"
#include "scrub.h"
#include "stack_layers.h"
#include "stacks.h"
#include "status.h"
#include "turn.h"
#include "verbs.h"

#define POLL_MICROSECONDS 500000

struct cache {
	struct mapped *mapped;
	bool ours; /* begun by this command */
};

struct array {
	char node[64];
	dev_t device;
	uint8_t uuid[16];
	unsigned missing; /* disks */
	uint64_t from; /* sector of its disks where this part began; */
	uint64_t before; /* those that differ, which were found in front of that */
	bool begun, repair;
	bool ours; /* begun by this command */
};

/* What is scrubbed: each cache once, though several stacks have it. */
struct work {
	struct cache *cache;
	struct array *array;
	size_t caches, arrays;
};

struct scrub_request {
	const char *name; /* NULL: all that runs */
	bool repair, stop, forget, wait, dry_run;
};

/* ------------------------------------------------------------------ what there is to do */

static void add_cache(struct work *work, const struct mapped *cache)
{
	for (size_t i = 0; i < work->caches; i++)
		if (work->cache[i].mapped == cache)
			return;
	work->cache = must_allocate(realloc(work->cache, (work->caches + 1) * sizeof(*work->cache)));
	work->cache[work->caches++] = (struct cache){ .mapped = (struct mapped *)cache };
}

static void add_array(struct work *work, const struct stack *stack, const struct md_array *found)
{
	struct array array = { .device = found->device };
	struct md_scrub scrub;

	if (!*found->node || !md_scrub_look(found->device, &scrub))
		return;
	snprintf(array.node, sizeof(array.node), "%s", found->node);
	stack_part(stack, "md", array.uuid);
	md_state(found->device, &array.missing);
	work->array = must_allocate(realloc(work->array, (work->arrays + 1) * sizeof(array)));
	work->array[work->arrays++] = array;
}

static bool add_stack(struct work *work, const struct stacks *stacks, const struct stack *stack)
{
	struct layers layers;
	bool runs;

	layers_find(stacks, stack, &layers);
	runs = *layers.node;
	if (runs && layers.cache)
		add_cache(work, layers.cache);
	if (runs)
		add_array(work, stack, &layers.array);
	layers_free(&layers);
	return runs;
}

static int find_work(const struct stacks *stacks, const struct scrub_request *request, struct work *work)
{
	const struct found *found;
	int result;

	if (!request->name) {
		for (size_t i = 0; i < stacks->number; i++)
			if (stacks->found[i].whole)
				add_stack(work, stacks, &stacks->found[i].stack);
		for (size_t i = 0; i < stacks->list.number; i++)
			if (stacks->list.mapped[i].cache)
				add_cache(work, &stacks->list.mapped[i]);
		return LARDER_DONE;
	}
	result = stack_find(stacks, request->name, &found);
	if (!result && (!found->whole || !add_stack(work, stacks, &found->stack)))
		result = complain(LARDER_NOT_FOUND, "%s: is not started; larder start %s", request->name, request->name);
	if (!result && !work->caches && !work->arrays)
		result = complain(LARDER_NOT_FOUND, "%s: has neither a cache nor an array with redundancy: nothing to compare",
				  request->name);
	return result;
}

/* ------------------------------------------------------------------ begin, stop */

static int begin_array(struct array *array, const struct scrub_request *request)
{
	struct scrub_note note;
	struct md_scrub scrub;
	bool goes_on;
	int error;

	if (request->dry_run) {
		printf("echo %s > /sys/class/block/%s/md/sync_action\n", request->repair ? "repair" : "check", strrchr(array->node, '/') + 1);
		return LARDER_DONE;
	}
	if (!md_scrub_look(array->device, &scrub))
		return complain(LARDER_NOT_FOUND, "%s: runs no more", array->node);
	scrub_note_get(array->uuid, &note);
	if (md_scrub_runs(&scrub) && request->repair == !strcmp(scrub.action, "repair")) {
		array->from = scrub.from;
		array->before = scrub.open ? note.differ : 0;
		array->begun = true;
		array->repair = request->repair;
		return LARDER_DONE;
	}
	if (strcmp(scrub.action, "idle"))
		return complain(LARDER_BUSY, "%s: cannot be scrubbed now: it does a %s; again when that has ended", array->node, scrub.action);
	/* what a check has found in front of that is still to be repaired */
	goes_on = note.stopped && (note.repair || !request->repair);
	array->before = goes_on && note.repair == request->repair ? note.differ : 0;
	array->from = goes_on ? note.at : 0;
	error = md_scrub_begin(array->device, request->repair, array->from);
	if (error)
		return complain(LARDER_FAILED, "%s: the scrub cannot be begun: %s", array->node, strerror(error));
	scrub_note_set(array->uuid, &(struct scrub_note){ .differ = array->before });
	array->begun = array->ours = true;
	array->repair = request->repair;
	if (goes_on)
		printf("array %s: goes on at sector %" PRIu64 " of its disks\n", array->node, note.at);
	return LARDER_DONE;
}

static int begin_cache(struct cache *cache)
{
	int result = LARDER_DONE;

	if (!status_is(cache->mapped->status, "scrub", "running")) {
		result = mapped_message(cache->mapped->name, "scrub");
		cache->ours = !result;
	}
	return result;
}

/* What md has counted in this part: compared again, where that came to no checkpoint.  (What lies behind the last one counts twice.) */
static uint64_t found(uint64_t differ, uint64_t from, uint64_t at)
{
	return at > from ? differ : 0;
}

/* forget: the next one begins anew. */
static int end_array(const struct array *array, bool forget, bool dry_run)
{
	struct scrub_note note;
	struct md_scrub scrub;
	uint64_t from;
	int error;

	if (forget && !dry_run)
		scrub_note_set(array->uuid, &(struct scrub_note){ 0 });
	if (!md_scrub_look(array->device, &scrub) || !md_scrub_runs(&scrub))
		return LARDER_DONE;
	if (dry_run) {
		printf("echo idle > /sys/class/block/%s/md/sync_action\n", strrchr(array->node, '/') + 1);
		return LARDER_DONE;
	}
	scrub_note_get(array->uuid, &note);
	from = scrub.from;
	note.stopped = true;
	note.repair = !strcmp(scrub.action, "repair");
	note.differ = scrub.open ? note.differ : 0;
	error = md_scrub_stop(array->device, &note.at);
	if (error)
		return complain(LARDER_FAILED, "%s: the scrub cannot be stopped: %s", array->node, strerror(error));
	if (forget)
		return LARDER_DONE;
	if (md_scrub_look(array->device, &scrub))
		note.differ += found(scrub.differ, from, note.at);
	scrub_note_set(array->uuid, &note);
	printf("array %s: stopped at sector %" PRIu64 " of its disks, in front of which %" PRIu64 " %s; the next scrub goes on there\n",
	       array->node, note.at, note.differ, note.repair ? "differed, and were made the same" : "differ");
	return LARDER_DONE;
}

/* It may have come to its end since all was looked at. */
static int end_cache(struct mapped *cache)
{
	int result = mapped_refresh(cache);

	return !result && status_is(cache->status, "scrub", "running") ? mapped_message(cache->name, "scrub_stop") : result;
}

static volatile sig_atomic_t told_to_end;

static void note_end(int signal_number)
{
	(void)signal_number;
	told_to_end = 1;
}

/* Told to end: what was begun here stops, and the signal does what it does. */
static _Noreturn void give_up(const struct work *work)
{
	for (size_t i = 0; i < work->caches; i++)
		if (work->cache[i].ours)
			end_cache(work->cache[i].mapped);
	for (size_t i = 0; i < work->arrays; i++)
		if (work->array[i].ours)
			end_array(&work->array[i], false, false);
	fflush(stdout);
	signal(SIGTERM, SIG_DFL);
	raise(SIGTERM);
	_exit(128 + SIGTERM);
}

/* ------------------------------------------------------------------ wait, judge */

/* *busy: there is one that has not ended. */
static int look_at_caches(const struct work *work, bool terminal, bool *busy)
{
	int result = LARDER_DONE;

	for (size_t i = 0; i < work->caches && !result; i++) {
		struct mapped *cache = work->cache[i].mapped;

		result = mapped_refresh(cache);
		if (result || !status_is(cache->status, "scrub", "running"))
			continue;
		*busy = true;
		if (terminal)
			fprintf(stderr, "%s %.0f %%  ", cache->name, scrub_percent(cache));
	}
	return result;
}

static void look_at_arrays(const struct work *work, bool terminal, bool *busy)
{
	struct md_scrub scrub;

	for (size_t i = 0; i < work->arrays; i++) {
		if (!work->array[i].begun || !md_scrub_look(work->array[i].device, &scrub) || !md_scrub_runs(&scrub))
			continue;
		*busy = true;
		if (terminal)
			fprintf(stderr, "%s %.1f %%  ", work->array[i].node, scrub.all ? 100.0 * (double)scrub.done / (double)scrub.all : 0.0);
	}
}

static int wait_for_all(const struct work *work)
{
	bool terminal = isatty(STDERR_FILENO), busy;
	int result;

	for (;;) {
		busy = false;
		if (terminal)
			fputs("\r\033[K", stderr);
		result = look_at_caches(work, terminal, &busy);
		look_at_arrays(work, terminal, &busy);
		if (result || !busy || told_to_end)
			break;
		usleep(POLL_MICROSECONDS);
	}
	if (terminal)
		fputc('\n', stderr);
	return result;
}

/* By a disk that failed, or by somebody's hand in /sys: it is as if it had been stopped. */
static int judge_interrupted(const struct array *array, const struct md_scrub *scrub)
{
	const uint64_t differ = array->before + found(scrub->differ, array->from, scrub->from);
	const struct scrub_note note = { .stopped = true, .repair = array->repair, .at = scrub->from, .differ = differ };

	scrub_note_set(array->uuid, &note);
	return complain(LARDER_FAILED,
			"%s: the scrub was interrupted at sector %" PRIu64 " of its disks, in front of which %" PRIu64 " %s; what is behind was not compared; the kernel's log "
			"says why; larder scrub goes on with it",
			array->node, note.at, differ, array->repair ? "differed" : "differ");
}

static int judge_array(const struct array *array)
{
	struct scrub_note note;
	struct md_scrub scrub;
	unsigned missing;
	uint64_t differ;

	if (!array->begun)
		return LARDER_DONE; /* it has been complained of */
	if (!md_scrub_look(array->device, &scrub))
		return complain(LARDER_FAILED, "%s: the array was stopped, or has failed, before its scrub ended", array->node);
	scrub_note_get(array->uuid, &note);
	if (note.stopped)
		return complain(LARDER_FAILED, "%s: the scrub was stopped; larder scrub goes on with it", array->node);
	if (scrub.open || scrub.from)
		return judge_interrupted(array, &scrub);
	differ = array->before + scrub.differ;
	printf("array %s: %" PRIu64 " sectors %s", array->node, differ,
	       array->repair ? "differed between its disks, and were made the same" : "differ between its disks");
	md_state(array->device, &missing); /* one may have gone since */
	missing = missing < array->missing ? array->missing : missing;
	if (missing)
		printf("; %u of them missing, and not compared", missing);
	putchar('\n');
	if (!differ || array->repair)
		return LARDER_DONE;
	return complain(LARDER_FAILED,
			"%s: disks differ, and nothing says which is right; larder scrub --repair makes them the same (RAID 1 and 10: as the first one "
			"is; 5 and 6: parity as the data are); compare the files with a backup",
			array->node);
}

/* Exit codes. */
static int first_of(int a, int b)
{
	return a ? a : b;
}

static int scrub(struct work *work, const struct scrub_request *request)
{
	struct sigaction end = { .sa_handler = note_end };
	int result = LARDER_DONE;

	mapped_init(request->dry_run);
	if (request->wait && !request->dry_run)
		sigaction(SIGTERM, &end, NULL);
	for (size_t i = 0; i < work->caches; i++)
		result = first_of(result, request->stop ? end_cache(work->cache[i].mapped) : begin_cache(&work->cache[i]));
	for (size_t i = 0; i < work->arrays; i++)
		result = first_of(result, request->stop ? end_array(&work->array[i], request->forget, request->dry_run) : begin_array(&work->array[i], request));
	if (!request->wait || request->dry_run)
		return result;
	result = first_of(result, wait_for_all(work));
	if (told_to_end)
		give_up(work);
	for (size_t i = 0; i < work->caches; i++)
		result = first_of(result, scrub_judge_cache(work->cache[i].mapped));
	for (size_t i = 0; i < work->arrays; i++)
		result = first_of(result, judge_array(&work->array[i]));
	return result;
}

int stack_scrub(int argc, char **argv)
{
	static const char usage[] = "larder scrub NAME|--all [--repair] [--wait | --stop [--forget]] [--dry-run]";
	struct scrub_request request = { 0 };
	bool all = false;
	const struct argument arguments[] = {
		{ "all", 'a', ARGUMENT_FLAG, &all, NULL, "every stack and every cache that runs" },
		{ "repair", 0, ARGUMENT_FLAG, &request.repair, NULL, "where the disks of an array differ make them the same" },
		{ "wait", 'w', ARGUMENT_FLAG, &request.wait, NULL, "until it is done; say what was found" },
		{ "stop", 0, ARGUMENT_FLAG, &request.stop, NULL, "the next one goes on where the arrays are" },
		{ "forget", 0, ARGUMENT_FLAG, &request.forget, NULL, "with --stop: it begins anew" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the commands" },
		ARGUMENTS_END
	};
	struct work work = { 0 };
	struct stacks stacks;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 0, 1, &first, &result))
		return result;
	if (all == (first < argc))
		return complain(LARDER_USAGE, "the name of a stack, or --all; usage: %s", usage);
	if (request.stop && (request.wait || request.repair))
		return complain(LARDER_USAGE, "--stop excludes --wait and --repair");
	if (request.forget && !request.stop)
		return complain(LARDER_USAGE, "--forget goes with --stop");
	request.name = all ? NULL : argv[first];
	mapped_init(false);
	result = stacks_scan(&stacks);
	result = result ? result : find_work(&stacks, &request, &work);
	result = result ? result : scrub(&work, &request);
	free(work.cache);
	free(work.array);
	stacks_free(&stacks);
	return result;
}
