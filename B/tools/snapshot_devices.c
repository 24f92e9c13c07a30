// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The devices of one snapshot, beside a volume that runs (snapshot_devices.h).
 *
 * The table of the volume is exchanged under whoever uses it: its target moves into a device below, and back with the last
 * snapshot.  That is one stop each, by mapped_exchange(), in a process that no kill reaches; what can fail, or takes time, is done
 * before.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "message.h"
#include "snapshot_devices.h"

/* ------------------------------------------------------------------ names */

/* Of a device, for dm. */
struct named {
	char *name, *uuid;
};

/* Those of the snapshot, of its store, and of what is below the volume, which all of its snapshots share. */
struct names {
	struct named snapshot, store, origin;
};

static struct names names_of(const struct cow *cow)
{
	const struct cow_snapshot *one = &cow->snapshot[0];

	return (struct names){
		.snapshot = { cow_snapshot_name(cow->name, one->name), cow_snapshot_uuid(cow->volume, one->uuid) },
		.store = { cow_store_name(cow->name, one->name), cow_store_uuid(cow->volume, one->uuid) },
		.origin = { cow_origin_name(cow->name), cow_origin_uuid(cow->volume) },
	};
}

static void names_free(struct names *names)
{
	struct named *const all[] = { &names->snapshot, &names->store, &names->origin };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		free(all[i]->name);
		free(all[i]->uuid);
	}
}

/* Is the device of that name this one? */
static bool is_there(const struct named *device)
{
	char found[DM_UUID_MAX];
	dev_t number;

	return mapped_look(device->name, found, &number) && !strcmp(found, device->uuid);
}

/* The volume's target is below it already, as it has a snapshot. */
static bool has_layer(const struct mapped *volume)
{
	return strcmp(volume->name, volume->target);
}

static int check_name(const struct named *device, const struct cow *cow, const char *word, bool anew)
{
	const char *snapshot = cow->snapshot[0].name;
	bool ours;

	if (!mapped_name_taken(device->name))
		return LARDER_DONE;
	ours = is_there(device);
	if (ours && anew)
		return LARDER_DONE;
	return ours ? complain(LARDER_BUSY, "%s@%s: %s is left of a snapshot that was cut off as it was made: larder snapshot list %s; create that again, or remove it",
			       word, snapshot, device->name, word) :
		      complain(LARDER_BUSY, "%s@%s: a device is called %s; choose another name", word, snapshot, device->name);
}

int snapshot_devices_check_names(const struct cow *cow, const struct mapped *volume, const char *word, bool anew)
{
	struct names names = names_of(cow);
	int result = check_name(&names.snapshot, cow, word, anew);

	result = result ? result : check_name(&names.store, cow, word, anew);
	if (!result && !has_layer(volume))
		result = check_name(&names.origin, cow, word, anew);
	names_free(&names);
	return result;
}

int snapshot_devices_check_unused(const struct cow *cow)
{
	char *name = cow_snapshot_name(cow->name, cow->snapshot[0].name), uuid[DM_UUID_MAX], usage[PATH_MAX];
	int result = LARDER_DONE;
	dev_t number;

	if (mapped_look(name, uuid, &number) && device_usage(number, usage, sizeof(usage)))
		result = complain(LARDER_BUSY, "%s: the snapshot is in use: %s; release it first", name, usage);
	free(name);
	return result;
}

int snapshot_devices_check_running(const struct mapped *volume)
{
	const char *still = volume->suspended ? volume->name : has_layer(volume) && mapped_suspended(volume->target) ? volume->target : NULL;

	return still ? complain(LARDER_BUSY, "%s: is suspended; dmsetup resume %s", still, still) : LARDER_DONE;
}

/* ------------------------------------------------------------------ steps of an exchange */

#define STEPS_MAX 8u

struct steps {
	struct mapped_step step[STEPS_MAX];
	size_t number;
};

static void put(struct steps *to, enum mapped_action action, const char *name)
{
	to->step[to->number++] = (struct mapped_step){ .action = action, .name = name };
}

static void put_failing(struct steps *to, const char *name, uint64_t sectors)
{
	to->step[to->number++] = (struct mapped_step){ .action = MAPPED_FAIL, .name = name, .sectors = sectors };
}

static void put_table(struct steps *to, const char *name, const char *target, uint64_t sectors, const char *params)
{
	to->step[to->number++] = (struct mapped_step){ MAPPED_LOAD, name, target, params, sectors };
}

static int exchange(const struct steps *forth, const struct steps *back, uint64_t *blocked)
{
	return mapped_exchange(forth->step, forth->number, back->step, back->number, blocked);
}

/* ------------------------------------------------------------------ made, shown */

int snapshot_devices_make(const struct cow *cow, const struct mapped *volume)
{
	struct names names = names_of(cow);
	char *params;
	int result = cow_start_store(cow, &cow->snapshot[0]);

	/* a device that never had a table cannot be opened, and volume's is loaded when nobody else has that any more */
	if (!result && !has_layer(volume))
		result = mapped_create_suspended(names.origin.name, names.origin.uuid, "error", volume->sectors, "");
	params = cow_snapshot_params(cow->name, cow->snapshot[0].name); /* by the numbers that the two have by now */
	if (!result)
		result = mapped_create_suspended(names.snapshot.name, names.snapshot.uuid, COW_SNAPSHOT, volume->sectors, params);
	free(params);
	names_free(&names);
	return result;
}

int snapshot_devices_show(const struct cow *cow, const struct mapped *volume, const char *top, uint64_t *blocked)
{
	struct names names = names_of(cow);
	const char *below = names.origin.name, *snapshot = names.snapshot.name;
	char *shown = cow_origin_params(volume->name), *params = NULL;
	struct steps forth = { .number = 0 }, back = { .number = 0 };
	bool first = !has_layer(volume);
	int result = mapped_table(volume, &params);

	/* the filesystem comes to rest */
	put(&forth, MAPPED_FREEZE, top ? top : volume->name);
	if (top)
		put(&forth, MAPPED_SUSPEND, volume->name);
	if (first) {
		put_table(&forth, below, TARGET_VOLUME, volume->sectors, params);
		put(&forth, MAPPED_RESUME, below);
		/* it reads what is below, and whoever reads it would wait for that for ever */
		put_failing(&back, snapshot, volume->sectors);
		put(&back, MAPPED_SUSPEND, below);
		put_table(&back, volume->name, TARGET_VOLUME, volume->sectors, params);
	}
	put(&forth, MAPPED_RESUME, snapshot);
	if (first)
		put_table(&forth, volume->name, COW_ORIGIN, volume->sectors, shown);
	put(&forth, MAPPED_RESUME, volume->name);
	put(&back, MAPPED_RESUME, volume->name);
	if (top) {
		put(&forth, MAPPED_RESUME, top);
		put(&back, MAPPED_RESUME, top);
	}
	result = result ? result : exchange(&forth, &back, blocked);
	free(params);
	free(shown);
	names_free(&names);
	return result;
}

/* ------------------------------------------------------------------ taken away */

/* By the UUID, so that nobody else's device of that name goes. */
static int remove_device(const struct named *device)
{
	return is_there(device) ? mapped_remove(device->name) : LARDER_DONE;
}

/* Besides this one, which goes, or has gone where this is no dry run. */
static bool another_runs(const struct cow *cow, const struct named *this)
{
	char *shown = cow_volume_uuid(cow->volume), uuid[DM_UUID_MAX];
	struct mapped_names names;
	bool some = mapped_scan_below(shown, &names);
	dev_t number;

	for (size_t i = 0; !some && i < names.nr_half; i++)
		some = mapped_look(names.half[i], uuid, &number) && strstr(uuid, BELOW_SNAPSHOT) && strcmp(uuid, this->uuid);
	mapped_names_free(&names);
	free(shown);
	return some;
}

/* The volume's target moves back into the device that shows it. */
static int remove_layer(const struct mapped *volume)
{
	char *shown = cow_origin_params(volume->name), *params = NULL;
	struct steps forth = { .number = 0 }, back = { .number = 0 };
	int result = mapped_table(volume, &params);
	uint64_t blocked;

	put(&forth, MAPPED_SUSPEND, volume->name);
	put(&forth, MAPPED_SUSPEND, volume->target);
	put_table(&forth, volume->name, TARGET_VOLUME, volume->sectors, params);
	put(&forth, MAPPED_RESUME, volume->name);
	put(&back, MAPPED_RESUME, volume->target);
	put_table(&back, volume->name, COW_ORIGIN, volume->sectors, shown);
	put(&back, MAPPED_RESUME, volume->name);
	result = result ? result : exchange(&forth, &back, &blocked);
	result = result ? result : mapped_remove(volume->target);
	free(params);
	free(shown);
	return result;
}

int snapshot_devices_stop(const struct cow *cow, const struct mapped *volume)
{
	struct names names = names_of(cow);
	int result = remove_device(&names.snapshot);

	result = result ? result : remove_device(&names.store);
	/* without a layer: what an exchange that was never begun has left below */
	if (!result && volume && !another_runs(cow, &names.snapshot))
		result = has_layer(volume) ? remove_layer(volume) : remove_device(&names.origin);
	names_free(&names);
	return result;
}
