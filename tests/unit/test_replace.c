// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder replace of an SSD, and larder add (tools/stack_replace.c, stack_add.c, stack_devices.c, set.c), on a cache of our own: what becomes of its SSDs
 * while NEW joins decides whether OLD may leave, which takes a copy of what is dirty with it; and the same command, once more, ends what was cut off.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nodes.h"
#include "../../tools/set.c"
#undef POLL_US
#include "../../tools/stack_devices.c"
#undef stat
#include "../../tools/stack_replace.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"
#include "memory.h"

#define UUID "11111111-2222-4333-8444-555555555555"

/* ------------------------------------------------------------------ the cache */

/* "a=active b=failed": /dev/a, /dev/b in places 0 and 1; "-": nobody. */
static struct {
	char name, state[16];
} ssd[LARDER_MAX_DEVICES];
static uint32_t places;
static bool writeback;
static const char *meanwhile, *then; /* what becomes of SSDs while another one joins, and once it has */
static const char *of_root_uuids = ""; /* what larder-root prints */
static unsigned stored, turns, images; /* images: so often it was said that the initramfs is to be made anew */
static char said[4096];

static uint32_t place_of(char name)
{
	uint32_t place = 0;

	while (place < places && ssd[place].name != name)
		place++;
	return place;
}

static void becomes(const char *words)
{
	char name, state[16];
	int length;

	for (; sscanf(words, " %c=%15s%n", &name, state, &length) == 2; words += length) {
		uint32_t place = name == '-' ? places : place_of(name);

		CHECK(place < LARDER_MAX_DEVICES, "too many");
		ssd[place].name = name;
		strcpy(ssd[place].state, state);
		places += place == places;
	}
}

static const char *seen(void)
{
	static char text[512];

	*text = '\0';
	for (uint32_t i = 0; i < places; i++)
		sprintf(text + strlen(text), "%s%c=%s", i ? " " : "", ssd[i].name, ssd[i].state);
	return text;
}

/* It joins, unless something becomes of it. */
static void ends_joining(void)
{
	for (uint32_t i = 0; i < places; i++)
		if (!strcmp(ssd[i].state, "joining"))
			strcpy(ssd[i].state, "active");
	becomes(meanwhile);
}

static char status[512];

static void make_status(void)
{
	unsigned failed = 0;

	strcpy(status, "ssds=");
	for (uint32_t i = 0; i < places; i++) {
		sprintf(status + strlen(status), "%s%s", i ? "/" : "", ssd[i].state);
		failed += !strcmp(ssd[i].state, "failed");
	}
	sprintf(status + strlen(status), " devices_failed=%u dirty_sectors=0", failed);
}

int mapped_refresh(struct mapped *mapped)
{
	ends_joining();
	make_status();
	return LARDER_DONE;
}

static bool has_word(int argc, char **argv, const char *word)
{
	for (int i = 0; i < argc; i++)
		if (!strcmp(argv[i], word))
			return true;
	return false;
}

static int join_at(uint32_t place, const char *path, bool waits)
{
	ssd[place].name = path[strlen("/dev/")];
	strcpy(ssd[place].state, "joining");
	places += place == places;
	if (waits)
		ends_joining();
	return waits && strcmp(ssd[place].state, "active") ? complain(LARDER_FAILED, "%s: %s", path, ssd[place].state) : LARDER_DONE;
}

int cache_add(int argc, char **argv)
{
	return join_at(place_of(argv[2][strlen("/dev/")]), argv[2], !has_word(argc, argv, "--no-wait"));
}

int cache_replace(int argc, char **argv)
{
	return join_at((uint32_t)atoi(argv[2]), argv[3], !has_word(argc, argv, "--no-wait"));
}

int cache_remove(int argc, char **argv)
{
	uint32_t place = (uint32_t)atoi(argv[2]);

	ssd[place].name = '-';
	strcpy(ssd[place].state, "removed");
	return LARDER_DONE;
}

/* ------------------------------------------------------------------ what is asked of it */

static struct mapped cache = { .name = "larder-cache-data", .status = status }, volume = { .name = "data" };
static struct found one = { .stack = { .name = "data", .mode = "writeback" }, .whole = true };

int stacks_scan(struct stacks *stacks)
{
	*stacks = (struct stacks){ .found = &one, .number = 1 };
	make_status();
	return LARDER_DONE;
}

void stacks_free(struct stacks *stacks)
{
}

int stack_find(const struct stacks *stacks, const char *word, const struct found **found)
{
	*found = &one;
	return LARDER_DONE;
}

int stack_check_ready(const struct stacks *stacks, const struct stack *stack)
{
	return LARDER_DONE;
}

void layers_find(const struct stacks *stacks, const struct stack *stack, struct layers *layers)
{
	*layers = (struct layers){ .volume = &volume, .cache = &cache };
	volume.status = writeback ? "mode=writeback" : "mode=writethrough";
}

void layers_free(struct layers *layers)
{
}

int mapped_table(const struct mapped *mapped, char **params)
{
	char text[512];

	sprintf(text, "%u", places);
	for (uint32_t i = 0; i < places; i++)
		sprintf(text + strlen(text), ssd[i].name == '-' ? " -" : " /dev/%c", ssd[i].name);
	*params = must_print("%s 0", text);
	return LARDER_DONE;
}

bool running_uuid(const struct mapped *mapped, uint8_t uuid[16])
{
	memset(uuid, 0, 16);
	return true;
}

int device_try(struct device *device, const char *path)
{
	return 0;
}

void device_close(struct device *device)
{
}

void superblocks_read(const struct device *device, struct superblocks *found, bool search)
{
	static union superblock sb = { .head.kind = LARDER_KIND_CACHE };

	*found = (struct superblocks){ .main.sb = &sb };
	found->chosen = &found->main;
}

void superblocks_free(struct superblocks *found)
{
}

void tables_read(const struct device *device, const struct larder_cache_sb *sb, struct cache_tables *tables)
{
	static struct larder_table table;

	tables->chosen = &table;
}

void tables_free(struct cache_tables *tables)
{
}

uint64_t disk_sequence(dev_t number)
{
	return number;
}

int cache_is_shared(const struct stack *stack, bool *shared)
{
	*shared = false;
	return LARDER_DONE;
}

int stack_list_read(const uint8_t uuid[16], struct stack_list *list)
{
	return LARDER_DONE;
}

int stack_store_note(struct stack *stack)
{
	stored++;
	return LARDER_DONE;
}

int mount_note_remote(const struct stack *stack)
{
	return LARDER_DONE;
}

int turn_confirm(const char *name, bool yes, const char *question)
{
	return LARDER_DONE;
}

/* At the beginning, and when NEW has joined. */
void turn_take(void)
{
	if (turns++)
		becomes(then);
}

void turn_give(void)
{
}

void claim_note(const char *path)
{
}

void mapped_init(bool dry_run)
{
}

int complain(enum larder_exit code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	return code;
}

bool program_answer(const char *const *words, double seconds, char *answer, size_t room, size_t *length)
{
	CHECK(strstr(words[0], "/larder-root") && !strcmp(words[1], "--uuids"), "%s", words[0]);
	*length = strlen(of_root_uuids);
	memcpy(answer, of_root_uuids, *length);
	return true;
}

void remark(const char *format, ...)
{
	images += !!strstr(format, "update-initramfs");
}

/* ------------------------------------------------------------------ what is tried */

struct try {
	const char *set, *meanwhile, *then, *words; /* words: behind the verb */
	int result;
	const char *last, *says[3]; /* what is in the line of the error, or, without one, printed */
	bool dirty;
};

static void tried(const struct try *try, int (*verb)(int argc, char **argv), const char *name)
{
	char words[256], *argv[16], *at = words, *printed;
	FILE *out = stdout;
	size_t length;
	int argc = 0, result;

	snprintf(words, sizeof(words), "%s %s --yes", name, try->words);
	while ((argv[argc] = strsep(&at, " ")))
		argc++;
	places = stored = turns = images = 0;
	*said = '\0';
	becomes(try->set);
	meanwhile = try->meanwhile ? try->meanwhile : "";
	then = try->then ? try->then : "";
	writeback = try->dirty;
	stdout = open_memstream(&printed, &length);
	result = verb(argc, argv);
	fclose(stdout);
	stdout = out;
	CHECK(result == try->result, "%s, %s: %d: %s", try->set, try->words, result, said);
	CHECK(!strcmp(seen(), try->last), "%s, %s: %s: %s", try->set, try->words, seen(), said);
	CHECK(!!*said == !!result, "%s", said);
	for (unsigned i = 0; i < 3 && try->says[i]; i++)
		CHECK(strstr(result ? said : printed, try->says[i]), "%s is not in: %s%s", try->says[i], printed, said);
	free(printed);
	operations++;
}

static void try_all(const struct try *tries, size_t number)
{
	for (size_t i = 0; i < number; i++)
		tried(&tries[i], stack_replace, "replace");
}

#define OLD_FOR_C "data ssd0 /dev/c"
#define LOST	  "LOST with --discard-redundancy " UUID
#define MAY_LOSE  OLD_FOR_C " --discard-redundancy " UUID

/* OLD stays until NEW is a member, and as many are left as there were. */
static void old_leaves(void)
{
	static const struct try tries[] = {
		{ .set = "a=active b=active", .words = OLD_FOR_C, .last = "-=removed b=active c=active", .dirty = true },
		{ .set = "a=active", .words = OLD_FOR_C, .last = "-=removed c=active", .dirty = true },
		{ .set = "a=failed b=active", .words = OLD_FOR_C, .last = "c=active b=active", .dirty = true },
		/* NEW dies as it joins, or has joined: with the command, or the second one */
		{ .set = "a=active b=active", .meanwhile = "c=failed", .words = OLD_FOR_C, .result = LARDER_FAILED,
		  .last = "a=active b=active c=failed", .dirty = true },
		{ .set = "a=active b=active c=joining", .meanwhile = "c=failed", .words = OLD_FOR_C, .result = LARDER_FAILED,
		  .last = "a=active b=active c=failed", .says = { "/dev/c", "has not joined", "once more" }, .dirty = true },
		{ .set = "a=active b=active c=joining", .words = OLD_FOR_C, .last = "-=removed b=active c=active", .dirty = true },
		{ .set = "a=active b=active c=failed", .words = OLD_FOR_C, .last = "-=removed b=active c=active", .dirty = true },
		{ .set = "a=active b=active", .then = "c=failed", .words = OLD_FOR_C, .result = LARDER_FAILED,
		  .last = "a=active b=active c=failed", .says = { "/dev/c: has failed", "nothing else was done", "once more" }, .dirty = true },
		/* another one does */
		{ .set = "a=active b=active", .meanwhile = "b=failed", .words = OLD_FOR_C, .result = LARDER_UNSAFE,
		  .last = "a=active b=failed c=active", .says = { "ssd0: another SSD has failed", "larder show data", LOST }, .dirty = true },
		{ .set = "a=active b=active c=joining", .meanwhile = "b=failed", .words = OLD_FOR_C, .result = LARDER_UNSAFE,
		  .last = "a=active b=failed c=active", .says = { "ssd0: another SSD has failed", LOST }, .dirty = true },
		{ .set = "a=active b=active", .meanwhile = "b=failed", .words = MAY_LOSE, .last = "-=removed b=failed c=active", .dirty = true },
		{ .set = "a=active b=active", .meanwhile = "b=failed", .words = OLD_FOR_C, .last = "-=removed b=failed c=active" },
		/* OLD does: nothing that it has is drained */
		{ .set = "a=active b=active", .meanwhile = "a=failed", .words = OLD_FOR_C, .last = "-=removed b=active c=active", .dirty = true },
	};

	try_all(tries, sizeof(tries) / sizeof(tries[0]));
}

/* NEW is in the set: by the same command, which was cut off; or as one that is to stay. */
static void once_more(void)
{
	static const struct try tries[] = {
		{ .set = "a=active b=active c=active", .words = OLD_FOR_C, .last = "-=removed b=active c=active", .dirty = true },
		{ .set = "a=active", .words = OLD_FOR_C " --no-wait", .last = "a=active c=joining",
		  .says = { "the same larder replace, once more, with --discard-redundancy " UUID ", ends it" }, .dirty = true },
		{ .set = "a=active", .words = OLD_FOR_C " --no-wait", .last = "a=active c=joining", .says = { "the same larder replace, once more, ends it" } },
		{ .set = "a=active b=active", .words = OLD_FOR_C " --no-wait", .last = "a=active b=active c=joining",
		  .says = { "the same larder replace, once more, ends it" }, .dirty = true },
		{ .set = "a=active c=joining", .words = OLD_FOR_C, .last = "-=removed c=active", .dirty = true },
		{ .set = "a=active c=active", .words = OLD_FOR_C, .last = "-=removed c=active" },
		{ .set = "a=active c=active", .words = OLD_FOR_C, .result = LARDER_UNSAFE, .last = "a=active c=active",
		  .says = { "/dev/c: is an SSD of the set already", "larder drop data ssd0", LOST }, .dirty = true },
		{ .set = "a=active c=active", .words = OLD_FOR_C " --discard-redundancy 99999999-2222-4333-8444-555555555555", .result = LARDER_UNSAFE,
		  .last = "a=active c=active", .says = { "--discard-redundancy: the stack is " UUID }, .dirty = true },
		{ .set = "a=active c=active", .words = MAY_LOSE, .last = "-=removed c=active", .dirty = true },
		{ .set = "a=draining c=active", .words = OLD_FOR_C, .last = "-=removed c=active", .dirty = true },
		{ .set = "a=removed c=active", .words = OLD_FOR_C, .last = "-=removed c=active", .dirty = true },
		{ .set = "-=removed c=active", .words = "data /dev/a /dev/c", .last = "-=removed c=active", .dirty = true },
		{ .set = "-=failed c=active", .words = "data /dev/a /dev/c", .result = LARDER_UNSAFE, .last = "-=failed c=active",
		  .says = { "larder drop data /dev/a" } },
		{ .set = "a=failed c=active", .words = OLD_FOR_C, .result = LARDER_UNSAFE, .last = "a=failed c=active",
		  .says = { "/dev/c: is an SSD of the set already", "larder drop data ssd0 does without it" } },
		{ .set = "a=failed b=active c=active", .words = OLD_FOR_C, .last = "-=removed b=active c=active", .dirty = true },
	};

	try_all(tries, sizeof(tries) / sizeof(tries[0]));
}

static void add_once_more(void)
{
	static const struct try joins = { .set = "a=active c=joining", .words = "data --cache /dev/c", .last = "a=active c=active" };
	static const struct try dies = { .set = "a=active c=joining", .meanwhile = "c=failed", .words = "data --cache /dev/c", .result = LARDER_FAILED,
					 .last = "a=active c=failed", .says = { "/dev/c", "has not joined", "once more" } };

	tried(&joins, stack_add, "add");
	CHECK(stored == 1, "not stored");
	tried(&dies, stack_add, "add");
	CHECK(!stored, "stored");
}

/* The image that starts it was made before NEW came. */
static void of_root(void)
{
	static const char *const uuids[] = { UUID "\n00000000-0000-0000-0000-000000000000\n", "00000000-0000-0000-0000-000000000000\n", UUID "\n", "" };
	static const struct try replaced = { .set = "a=active b=active c=joining", .words = OLD_FOR_C, .last = "-=removed b=active c=active" };
	static const struct try added = { .set = "a=active c=joining", .words = "data --cache /dev/c", .last = "a=active c=active" };

	for (unsigned i = 0; i < 4; i++) {
		of_root_uuids = uuids[i];
		tried(&replaced, stack_replace, "replace");
		CHECK(images == (i < 2), "replace, %u: %u", i, images);
		tried(&added, stack_add, "add");
		CHECK(images == (i < 2), "add, %u: %u", i, images);
	}
}

int main(void)
{
	uuid_parse(UUID, one.stack.uuid);
	run_test("old_leaves", old_leaves);
	run_test("once_more", once_more);
	run_test("add_once_more", add_once_more);
	run_test("of_root", of_root);
	return 0;
}
