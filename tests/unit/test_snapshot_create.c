// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_snapshot_create.c, with a description, devices and a volume group of our own: whatever fails, and wherever it is killed, a store that was made
 * is noted, or was never made; and no two stores have one UUID.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <uuid/uuid.h>

#include "../../tools/stack_snapshot_create.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"
#include "memory.h"

#define STORES 64
#define KILLED 99 /* exit status of a command that was killed */

/* What lasts, and what is said; each command is a process of its own. */
static struct world {
	struct stack noted;
	uint8_t made[STORES][16]; /* logical volumes that there are, by the UUIDs of their stores */
	unsigned stores; /* that there were */
	const char *content; /* of the volume, as libblkid calls it; NULL: nothing that is refused */
	bool shown;
	bool of_root; /* / is on it */
	unsigned half_made, sought, image; /* said: of what is half made; that a store is nowhere; that an initramfs is to be made anew */
	unsigned remote; /* looked whether the store comes by the network */
	unsigned step, fails_at, killed_at; /* fails_at, killed_at 0: never */
	bool fails_on; /* and all that comes behind that fails, too */
} *world;

/* In front of each change, and behind it.  False: it fails here. */
static bool step(void)
{
	if (++world->step == world->killed_at)
		_exit(KILLED);
	return !world->fails_at || world->step < world->fails_at || (world->step > world->fails_at && !world->fails_on);
}

/* ------------------------------------------------------------------ what it calls */

int complain(enum larder_exit code, const char *format, ...)
{
	return code;
}

void remark(const char *format, ...)
{
	world->half_made += !!strstr(format, "is half made; larder snapshot remove");
	world->image += !!strstr(format, "update-initramfs");
}

/* larder-root */
bool program_answer(const char *const *words, double seconds, char *answer, size_t room, size_t *length)
{
	uint8_t volume[16];

	stack_part(&world->noted, "volume", volume);
	uuid_unparse_lower(volume, answer);
	*length = world->of_root ? strlen(answer) : 0;
	return true;
}

bool arguments_words(int argc, char **argv, const char *usage, const struct argument *arguments, int min, int max, int *first, int *result)
{
	*first = 1;
	return true;
}

void mapped_init(bool dry_run)
{
}

bool mapped_suspended(const char *name)
{
	return false;
}

void turn_take(void)
{
}

int stacks_scan(struct stacks *stacks)
{
	*stacks = (struct stacks){ 0 };
	return step() ? LARDER_DONE : LARDER_FAILED;
}

void stacks_free(struct stacks *stacks)
{
}

int stack_find(const struct stacks *stacks, const char *word, const struct found **found)
{
	static struct found one;

	one = (struct found){ .stack = world->noted, .whole = true };
	*found = &one;
	return strcmp(word, one.stack.name) ? LARDER_NOT_FOUND : LARDER_DONE;
}

int stack_check_ready(const struct stacks *stacks, const struct stack *stack)
{
	return LARDER_DONE;
}

int stack_check_snapshot_names(const struct stacks *stacks, const struct stack *stack, const char *snapshot)
{
	return LARDER_DONE;
}

void layers_find(const struct stacks *stacks, const struct stack *stack, struct layers *layers)
{
	static struct mapped volume = { .name = "data", .target = "data", .sectors = 1 << 20 };

	*layers = (struct layers){ .volume = &volume, .top = "/dev/mapper/data" };
}

void layers_free(struct layers *layers)
{
}

int device_open(struct device *device, const char *path, enum device_access access)
{
	return LARDER_DONE;
}

void device_close(struct device *device)
{
}

int signature_is(const struct device *device, const char *type, bool *is)
{
	*is = world->content && !strcmp(type, world->content);
	return LARDER_DONE;
}

char *crypt_name(const struct stack *stack)
{
	return must_print("%s-crypt", stack->name);
}

void cow_status(const uint8_t volume[16], const uint8_t snapshot[16], struct cow_status *status)
{
	*status = (struct cow_status){ .state = COW_VALID };
}

const char *size_print(char text[static SIZE_TEXT], uint64_t bytes, const struct size_format *format)
{
	return "64M";
}

/* A description that could be read no more is not written. */
int stack_store(struct stack *stack)
{
	uint8_t field[LARDER_STACK_SIZE];
	struct stack read;
	const char *why;
	bool there;

	if (!step())
		return LARDER_FAILED;
	stack->generation = stack_raise(stack->generation, 1);
	why = stack_encode(stack, field);
	why = why ? why : stack_decode(field, &read, &there);
	CHECK(!why && there, "%s", why);
	world->noted = *stack;
	return step() ? LARDER_DONE : LARDER_FAILED;
}

int space_size(const char *group, uint64_t stack, uint64_t *bytes)
{
	*bytes = 64 << 20;
	return step() ? LARDER_DONE : LARDER_FAILED;
}

int space_take(const char *group, const uint8_t uuid[16], uint64_t bytes, bool dry_run, char **path)
{
	if (!step())
		return LARDER_FAILED;
	*path = strdup("/dev/space/store");
	for (unsigned i = 0; i < world->stores; i++)
		CHECK(memcmp(world->made[i], uuid, 16), "there is such a store");
	memcpy(world->made[world->stores++], uuid, 16);
	return step() ? LARDER_DONE : LARDER_FAILED;
}

int snapshot_store_claim(struct device *device, const struct claim_request *request, const struct mapped *volume, const char *word)
{
	*device = (struct device){ .bytes = 64 << 20 };
	return step() ? LARDER_DONE : LARDER_FAILED;
}

int snapshot_store_mark(const struct device *device, const uint8_t uuid[16])
{
	return step() ? LARDER_DONE : LARDER_FAILED;
}

int snapshot_store_give_up(const uint8_t uuid[16], bool keys, const char *snapshot)
{
	bool was = false;

	if (!step())
		return LARDER_FAILED;
	for (unsigned i = 0; i < world->stores; i++)
		if (!memcmp(world->made[i], uuid, 16)) {
			memset(world->made[i], 0, 16);
			was = true;
		}
	world->sought += !was && snapshot;
	return step() ? LARDER_DONE : LARDER_FAILED;
}

int mount_note_remote(const struct stack *stack)
{
	CHECK(world->shown && stack_snapshot_find((struct stack *)stack, "one")->state == SNAPSHOT_CREATING, "its devices are looked at, and it is not ready without");
	world->remote++;
	return step() ? LARDER_DONE : LARDER_FAILED;
}

int snapshot_devices_check_names(const struct cow *cow, const struct mapped *volume, const char *word, bool anew)
{
	return LARDER_DONE;
}

int snapshot_devices_check_unused(const struct cow *cow)
{
	return LARDER_DONE;
}

int snapshot_devices_check_running(const struct mapped *volume)
{
	return LARDER_DONE;
}

int snapshot_devices_make(const struct cow *cow, const struct mapped *volume)
{
	return step() ? LARDER_DONE : LARDER_FAILED;
}

int snapshot_devices_show(const struct cow *cow, const struct mapped *volume, const char *top, uint64_t *blocked)
{
	if (!step())
		return LARDER_FAILED;
	world->shown = true;
	return step() ? LARDER_DONE : LARDER_FAILED;
}

int snapshot_devices_stop(const struct cow *cow, const struct mapped *volume)
{
	if (!step())
		return LARDER_FAILED;
	world->shown = false;
	return step() ? LARDER_DONE : LARDER_FAILED;
}

/* ------------------------------------------------------------------ commands */

static void make_world(uint64_t generation)
{
	*world = (struct world){ .noted = { .name = "data", .uuid = { 7 }, .generation = generation, .step = STEP_MOUNT, .legs = 1, .cache = { 8 },
					    .mode = "writeback", .fs = "ext4", .space = "space" } };
}

/* Its exit status; KILLED. */
static int run(int (*verb)(int argc, char **argv), char *called)
{
	char *argv[] = { "larder", called, NULL };
	int status;
	pid_t child;

	fflush(stdout);
	world->step = world->half_made = world->sought = world->image = 0;
	child = fork();
	if (!child) {
		int result = freopen("/dev/null", "w", stdout) ? verb(2, argv) : KILLED;

		fflush(stdout);
		_exit(result);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "status %x", status);
	world->fails_at = world->killed_at = world->fails_on = 0;
	return WEXITSTATUS(status);
}

/* Stores that there are; each is that of a snapshot which is noted. */
static unsigned stores(void)
{
	static const uint8_t none[16];
	unsigned number = 0;

	for (unsigned i = 0; i < world->stores; i++) {
		bool noted = false;

		for (uint32_t k = 0; k < world->noted.snapshots; k++) {
			uint8_t uuid[16];

			stack_snapshot_uuid(&world->noted, &world->noted.snapshot[k], uuid);
			noted |= !memcmp(uuid, world->made[i], 16);
		}
		if (!memcmp(world->made[i], none, 16))
			continue;
		CHECK(noted, "store %u of %u is no snapshot's", i, world->stores);
		number++;
	}
	return number;
}

/* Whatever was noted meanwhile, the same command, or `remove`, ends what was cut short. */
static void check_end(unsigned at)
{
	bool remove = at % 2 && world->noted.snapshots;

	stores();
	world->noted.generation += 5;
	if (remove)
		CHECK(!run(snapshot_remove, "data@one") && !world->noted.snapshots && !stores(), "%u: %u stores", at, stores());
	if (!world->noted.snapshots || world->noted.snapshot[0].state == SNAPSHOT_CREATING)
		CHECK(!run(snapshot_create, "data@one"), "%u", at);
	CHECK(stores() == 1 && world->noted.snapshot[0].state == SNAPSHOT_READY && world->shown, "%u: %u stores", at, stores());
	CHECK(!run(snapshot_remove, "data@one") && !world->noted.snapshots && !stores() && !world->shown, "%u: %u stores", at, stores());
	operations++;
}

static void killed(void)
{
	int result;
	unsigned at;

	for (at = 1;; at++) {
		make_world(5);
		world->killed_at = at;
		result = run(snapshot_create, "data@one");
		if (result != KILLED)
			break;
		check_end(at);
	}
	CHECK(!result && at > 12 && stores() == 1 && world->remote, "%d, %u steps", result, at);
}

/* It goes back, or says how it is ended; it seeks no store that never was. */
static void fails(void)
{
	int result;
	unsigned at;

	for (at = 1;; at++) {
		make_world(5);
		world->fails_at = at;
		result = run(snapshot_create, "data@one");
		if (!result)
			break;
		CHECK(result == LARDER_FAILED && !world->sought && !!world->half_made == !!world->noted.snapshots, "%u: %d, %u snapshots, said %u, sought %u", at,
		      result, world->noted.snapshots, world->half_made, world->sought);
		CHECK(stores() <= world->noted.snapshots, "%u", at);
		check_end(at);
	}
	CHECK(at > 12 && stores() == 1, "%u steps", at);
}

/* Nor does it look, or write, behind that: the way out is said all the same, or nothing was noted. */
static void cannot_go_back(void)
{
	unsigned at = 0, steps;

	do {
		make_world(5);
		world->fails_at = ++at;
		world->fails_on = true;
		if (!run(snapshot_create, "data@one"))
			break;
		steps = world->step;
		CHECK(world->half_made || !world->noted.snapshots, "%u of %u: is silent", at, steps);
		check_end(at);
	} while (at < 40);
	CHECK(at > 12 && at < 40, "%u steps", at);
}

/* Whoever could write the description can have no more of them than there are generations; no two have one serial. */
static void serials(void)
{
	static const struct {
		uint64_t generation, serial; /* serial 0: there is none yet */
		int result;
	} cases[] = {
		{ 5, 0, LARDER_DONE },
		{ 5, 99, LARDER_DONE },
		{ INT64_MAX - 1, 0, LARDER_DONE },
		{ INT64_MAX, 0, LARDER_UNSAFE },
		{ INT64_MAX, 5, LARDER_UNSAFE },
		{ 5, INT64_MAX - 1, LARDER_DONE },
		{ 5, INT64_MAX, LARDER_UNSAFE },
		{ INT64_MAX - 1, INT64_MAX, LARDER_UNSAFE },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct stack_snapshot two = { "two", cases[i].serial, SNAPSHOT_READY };

		make_world(cases[i].generation);
		world->noted.snapshots = !!cases[i].serial;
		world->noted.snapshot[0] = two;
		CHECK(run(snapshot_create, "data@one") == cases[i].result, "%zu", i);
		CHECK(world->noted.snapshots == !!cases[i].serial + !cases[i].result && stores() == !cases[i].result, "%zu: %u", i, world->noted.snapshots);
		if (cases[i].result)
			CHECK(world->noted.generation == cases[i].generation, "%zu: was written", i);
		/* nor does one that was cut short get another's */
		make_world(cases[i].generation);
		world->noted.snapshots = 2;
		world->noted.snapshot[0] = (struct stack_snapshot){ "one", 1, SNAPSHOT_CREATING };
		world->noted.snapshot[1] = two;
		world->noted.snapshot[1].serial += !cases[i].serial ? 2 : 0;
		CHECK(run(snapshot_create, "data@one") == cases[i].result, "%zu", i);
		operations++;
	}
}

/* What must not see a copy of itself is refused before anything is noted, or made. */
static void contents(void)
{
	static const char *const refused[] = { "btrfs", "LVM2_member" };

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		make_world(5);
		world->content = refused[i];
		CHECK(run(snapshot_create, "data@one") == LARDER_USAGE && world->noted.generation == 5 && !world->noted.snapshots && !world->stores, "%s",
		      refused[i]);
		operations++;
	}
	world->content = "ext4";
	CHECK(!run(snapshot_create, "data@one") && stores() == 1, "ext4");
	make_world(5);
	strcpy(world->noted.fs, "btrfs");
	CHECK(run(snapshot_create, "data@one") == LARDER_USAGE && !world->stores, "btrfs, by the description");
}

/* Of what an initramfs starts it is said that this needs the store. */
static void root(void)
{
	for (unsigned i = 0; i < 2; i++) {
		make_world(5);
		world->of_root = i;
		CHECK(!run(snapshot_create, "data@one") && stores() == 1 && world->image == i, "%u: said %u times", i, world->image);
		operations++;
	}
}

int main(void)
{
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(world != MAP_FAILED, "memory");
	run_test("killed", killed);
	run_test("fails", fails);
	run_test("cannot_go_back", cannot_go_back);
	run_test("serials", serials);
	run_test("contents", contents);
	run_test("root", root);
	return 0;
}
