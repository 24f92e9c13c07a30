// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/snapshot_devices.c and tools/snapshot_store.c, with device-mapper of our own: what goes with a snapshot, really and in a dry run; what somebody has
 * suspended; on what a store may not lie.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <sys/sysmacros.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/cow.c"
#include "../../tools/snapshot_devices.c"
#define check check_store
#include "../../tools/snapshot_store.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

/* ------------------------------------------------------------------ device-mapper */

#define DEVICES 8

static struct {
	char name[DM_NAME_MAX], uuid[DM_UUID_MAX];
	bool suspended;
} devices[DEVICES];
static char done[1024];
static bool dry;

static int find(const char *name)
{
	for (int i = 0; i < DEVICES; i++)
		if (!strcmp(devices[i].name, name))
			return i;
	return -1;
}

static void tell(const char *what, const char *name)
{
	size_t length = strlen(done);

	snprintf(done + length, sizeof(done) - length, "%s %s; ", what, name);
}

bool mapped_look(const char *name, char uuid[static DM_UUID_MAX], dev_t *number)
{
	int i = find(name);

	if (i < 0)
		return false;
	strcpy(uuid, devices[i].uuid);
	*number = makedev(252, i);
	return true;
}

bool mapped_suspended(const char *name)
{
	return find(name) >= 0 && devices[find(name)].suspended;
}

int mapped_remove(const char *name)
{
	tell("remove", name);
	if (!dry)
		*devices[find(name)].name = 0;
	return LARDER_DONE;
}

int mapped_scan_below(const char *dm_uuid, struct mapped_names *names)
{
	*names = (struct mapped_names){ .half = calloc(DEVICES, sizeof(char *)) };
	for (int i = 0; i < DEVICES; i++)
		if (*devices[i].name && !strncmp(devices[i].uuid, dm_uuid, strlen(dm_uuid)) && strlen(devices[i].uuid) > strlen(dm_uuid))
			names->half[names->nr_half++] = devices[i].name;
	return LARDER_DONE;
}

void mapped_names_free(struct mapped_names *names)
{
	free(names->half);
}

int mapped_table(const struct mapped *mapped, char **params)
{
	*params = must_print("table of %s", mapped->target);
	return LARDER_DONE;
}

int mapped_exchange(const struct mapped_step *steps, size_t number, const struct mapped_step *back, size_t nr_back, uint64_t *blocked)
{
	static const char *const actions[] = { "freeze", "suspend", "load", "resume", "fail" };

	for (size_t i = 0; i < number; i++)
		tell(actions[steps[i].action], steps[i].name);
	return LARDER_DONE;
}

static void make_device(int i, char *name, char *uuid)
{
	snprintf(devices[i].name, sizeof(devices[i].name), "%s", name);
	snprintf(devices[i].uuid, sizeof(devices[i].uuid), "%s", uuid);
	devices[i].suspended = false;
	free(name);
	free(uuid);
}

/* A volume with so many snapshots, at places 2 and 3, 4 and 5; cow has the first one. */
static void make_world(struct cow *cow, struct mapped *volume, unsigned number)
{
	memset(devices, 0, sizeof(devices));
	*done = 0;
	*cow = (struct cow){ .name = "data", .volume = { 7 }, .snapshot = { { .name = "one", .uuid = { 1 } } }, .number = 1 };
	*volume = (struct mapped){ .name = "data", .target = "data", .number = makedev(252, 0), .target_number = makedev(252, 0), .sectors = 8 };
	make_device(0, strdup("data"), cow_volume_uuid(cow->volume));
	if (!number)
		return;
	strcpy(volume->target, "data-origin");
	volume->target_number = makedev(252, 1);
	make_device(1, cow_origin_name("data"), cow_origin_uuid(cow->volume));
	for (unsigned i = 1; i <= number; i++) {
		const uint8_t uuid[16] = { i };
		const char *name = i == 1 ? "one" : "two";

		make_device(2 * i, cow_snapshot_name("data", name), cow_snapshot_uuid(cow->volume, uuid));
		make_device(2 * i + 1, cow_store_name("data", name), cow_store_uuid(cow->volume, uuid));
	}
}

/* ------------------------------------------------------------------ tests */

#define ONE "remove data@one; remove data@one-store; "
#define BACK "suspend data; suspend data-origin; load data; resume data; remove data-origin; "

/* With the last one the layer goes, which a dry run shows, too, where nothing has gone. */
static void removed(void)
{
	struct mapped volume;
	struct cow cow;

	for (unsigned i = 0; i < 4; i++) {
		dry = i % 2;
		make_world(&cow, &volume, 1 + i / 2);
		CHECK(!snapshot_devices_stop(&cow, &volume) && !strcmp(done, i < 2 ? ONE BACK : ONE), "dry %d, %u: %s", dry, 1 + i / 2, done);
	}
	dry = false;
	make_world(&cow, &volume, 1);
	CHECK(!snapshot_devices_stop(&cow, NULL) && !strcmp(done, ONE), "%s", done);
}

/* The volume, or what is below it: neither is resumed for whoever has suspended it. */
static void suspended(void)
{
	struct mapped volume;
	struct cow cow;

	for (unsigned snapshots = 0; snapshots < 2; snapshots++) {
		make_world(&cow, &volume, snapshots);
		CHECK(!snapshot_devices_check_running(&volume), "nobody has");
		volume.suspended = true;
		CHECK(snapshot_devices_check_running(&volume) == LARDER_BUSY, "the volume");
		volume.suspended = false;
		devices[1].suspended = true;
		CHECK(snapshot_devices_check_running(&volume) == (snapshots ? LARDER_BUSY : LARDER_DONE), "what is below, with %u", snapshots);
		CHECK(!*done, "%s", done);
	}
}

/* A store on a loop device, 7:0, over `on`. */
static dev_t on;

bool device_lies_on(dev_t above, dev_t below)
{
	/* data and data@one lie on data-origin */
	return above == makedev(7, 0) && (on == below || (below == makedev(252, 1) && (on == makedev(252, 0) || on == makedev(252, 2))));
}

static bool cached, entangled; /* the volume has a cache; the loop device lies on another one of that */

bool running_cache(const struct mapped *volume, uint8_t uuid[16])
{
	CHECK(volume != NULL, "of the volume");
	memset(uuid, 0x5d, 16);
	return cached;
}

int running_check_entangled(const struct mapped_list *list, const char *path, dev_t number, const uint8_t cache[16])
{
	CHECK(!list && path && cache[0] == 0x5d, "of what runs now, with that cache");
	return entangled && number == makedev(7, 0) ? LARDER_UNSAFE : LARDER_DONE;
}

static void lies_on_another_of_its_cache(void)
{
	const struct device device = { .path = "/dev/loop0", .block = true, .number = makedev(7, 0), .bytes = 64 << 20 };
	struct mapped volume;
	struct cow cow;

	make_world(&cow, &volume, 1);
	on = makedev(252, 3);
	for (unsigned i = 0; i < 4; i++) {
		cached = i & 1;
		entangled = i & 2;
		CHECK(check_store(&device, &volume, "data") == (i == 3 ? LARDER_UNSAFE : LARDER_DONE), "%u", i);
	}
	cached = entangled = false;
}

static void lies_on_itself(void)
{
	const struct device device = { .path = "/dev/loop0", .block = true, .number = makedev(7, 0), .bytes = 64 << 20 };
	struct mapped volume;
	struct cow cow;

	for (unsigned snapshots = 0; snapshots < 2; snapshots++)
		for (unsigned minor = 0; minor < 4; minor++) {
			bool itself = snapshots ? minor < 3 : !minor;

			make_world(&cow, &volume, snapshots);
			on = makedev(252, minor);
			CHECK(check_store(&device, &volume, "data") == (itself ? LARDER_UNSAFE : LARDER_DONE), "%u, over 252:%u", snapshots, minor);
		}
}

int main(void)
{
	run_test("removed", removed);
	run_test("suspended", suspended);
	run_test("lies_on_itself", lies_on_itself);
	run_test("lies_on_another_of_its_cache", lies_on_another_of_its_cache);
	return 0;
}
