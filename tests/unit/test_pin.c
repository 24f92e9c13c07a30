// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/pin.c, with a cache and a volume that are a line of status each: what the cache has room for, and which files may be pinned.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../lib/message.c"
#include "../../lib/pins.c"
#include "../../lib/size.c"
#include "../../lib/status.c"
#include "../../tools/pin.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

#define PINNED "lba-0-4000:pin-75/lba-100000-104000:pin-75/sequential:bypass" /* 8000 sectors */

static unsigned int set, stored; /* times that the kernel, and the description, were told */

int mapped_message(const char *name, const char *message)
{
	CHECK(!strcmp(name, "data") && !strncmp(message, "set class ", strlen("set class ")), "%s", message);
	set++;
	return LARDER_DONE;
}

int stack_store(struct stack *stack)
{
	stored++;
	return LARDER_DONE;
}

const char *stack_lacks_room(const struct stack *stack, const struct stack *was)
{
	return NULL;
}

/* ------------------------------------------------------------------ room */

/* A cache of so many sectors, of which another volume is guaranteed a half; pieces of 1000 sectors, in two heaps. */
static int set_pins(uint64_t cache_sectors, unsigned int pieces, const char *live)
{
	struct mapped mapped[3] = { { .name = "larder-cache-fast", .cache = true }, { .name = "data", .target = "data" }, { .name = "other" } };
	struct mapped_list list = { mapped, 3 };
	struct job job = { .stack = { .name = "data" }, .volume = &mapped[1], .cache = &mapped[0], .list = &list };
	struct pin_roots roots = { 0 };
	int result;

	mapped[0].status = must_print("uuid=c segments=%llu segment_sectors=1000 pinned_sectors=8000 mirror=off mirrored=0", (u64)cache_sectors / 1000);
	mapped[1].status = must_print("cache=c pinned_sectors=8000 share_min=0 class=%s", live);
	mapped[2].status = must_print("cache=c share_min=50");
	strcpy(job.stack.class, live);
	for (unsigned int i = 0; i < pieces; i++)
		ranges_add(&job.pins, 100000 * (i % 2) + 1000 * (i / 2), 100000 * (i % 2) + 1000 * (i / 2) + 1000);
	ranges_join(&job.pins);
	job.pieces = job.pins.number;
	job.length = ranges_length(&job.pins);
	set = stored = 0;
	result = job_set(&job, &roots, false);
	CHECK(result || (set == stored), "%u, %u", set, stored);
	for (size_t i = 0; i < list.number; i++)
		free(mapped[i].status);
	job_free(&job);
	return result;
}

static void less_than_now(void)
{
	CHECK(freopen("/dev/null", "w", stderr)); /* complaints */
	/* room for a quarter */
	CHECK(!set_pins(100000, 8, PINNED) && !set, "what is set already");
	CHECK(!set_pins(100000, 9, PINNED) && set == 1);
	CHECK(!set_pins(100000, 25, "default") && set == 1);
	CHECK(set_pins(100000, 26, "default") == LARDER_FAILED && !set);
	/* it has shrunk, or somebody else is guaranteed more since: no more than now, but less */
	CHECK(set_pins(8000, 9, PINNED) == LARDER_FAILED && !set && !stored, "more than now");
	CHECK(!set_pins(8000, 8, PINNED));
	CHECK(!set_pins(8000, 6, PINNED) && set == 1 && stored == 1, "less than now");
	CHECK(!set_pins(8000, 0, PINNED) && set == 1 && stored == 1, "nothing");
	CHECK(set_pins(8000, 6, "default") == LARDER_FAILED && !set, "as nothing is set");
}

/* ------------------------------------------------------------------ files */

static struct pin_root root = { .point = "/srv" };

void place_plain_path(const char *word, char path[static PATH_MAX])
{
	strcpy(path, word);
}

int file_open(int directory, const char *name)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int place_find(const char *what, int fd, struct place *place)
{
	*place = (struct place){ .volume = 9 };
	return LARDER_DONE;
}

void place_free(struct place *place)
{
}

bool place_is_name(const struct pin_root *of, const char *name, int fd)
{
	return of;
}

struct pin_root *pin_root_of(const struct pin_roots *roots, const char *path, char name[static PATH_MAX])
{
	strcpy(name, path + strlen("/srv/"));
	return &root;
}

bool pinned_name_valid(const char *name)
{
	return true;
}

bool pinned_names_have(const char *names, const char *name)
{
	return false;
}

bool pinned_names_add(char names[static PINNED_NAMES_MAX], const char *name)
{
	strcpy(names, name);
	return true;
}

int pin_root_check(const struct pin_root *of)
{
	return LARDER_DONE;
}

struct mapped *stack_volume(const struct stacks *stacks, const struct stack *stack)
{
	return stacks->list.mapped;
}

struct mapped *running_by_uuid(const struct mapped_list *list, const uint8_t uuid[16], bool cache)
{
	return list->mapped;
}

int stack_check_ready(const struct stacks *stacks, const struct stack *stack)
{
	return LARDER_DONE;
}

/* A filesystem over several devices: its names are looked for where it begins, which is on no volume, or on another one. */
static void begins_elsewhere(void)
{
	struct mapped volume = { .name = "data", .target_number = 9, .status = "cache=c" };
	struct found found = { .stack = { .name = "data", .state = STACK_READY }, .whole = true };
	static const dev_t begins[] = { 0, 8, 9 };

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		struct work work = { .stacks = { .list = { &volume, 1 }, .found = &found, .number = 1 } };
		bool good = begins[i] == 9;

		root = (struct pin_root){ .point = "/srv", .volume = begins[i] };
		CHECK(add_file(&work, "/srv/file") == (good ? LARDER_DONE : LARDER_FAILED), "%u", (unsigned int)begins[i]);
		CHECK(root.changed == good && !strcmp(root.names, good ? "file" : ""), "%s", root.names);
		free(work.job);
	}
}

int main(void)
{
	run_test("less than now", less_than_now);
	run_test("begins elsewhere", begins_elsewhere);
	return 0;
}
