// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Devices that hang.
 *
 * What the kernel counts, in /sys/block/DISK/stat (Documentation/block/stat.rst, and the source of 6.12):
 *
 *  requests (blk-mq: SCSI, NVMe, loop, NBD, request based dm)
 *		counted as answered at their end; in flight from their submission on (6.12), or only what the driver has (6.1), which `inflight` says in
 *		both.  A flush is in flight on 6.12 alone.  What a driver gives back as its connection is away is in flight nowhere on 6.1.
 *  bios (md, most of dm)
 *		in flight from when the target has taken them.  Counted at their end, but before 6.3 at their beginning: less those in
 *		flight it is the same.  A flush counts as a write of dm; md counts none (md_flush_request()).
 *  dm, suspended	bios wait in md->deferred (dm_submit_bio()), and are counted nowhere.
 *
 * Partitions add what is answered to their disk, and keep what is in flight.  Where I/O statistics are off (queue/iostats) nothing moves and nothing is in
 * flight: such a device is not seen to hang.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "disks.h"
#include "message.h"
#include "stalls.h"

#define LOOK_NS	  100000000 /* between two looks of stalls_watch() */
#define STACKED_MAX 16 /* of stacked devices */

/* ------------------------------------------------------------------ one device */

enum { READS = 0, WRITES = 4, IN_FLIGHT = 8, DISCARDS = 11, FLUSHES = 15, FIELDS_LEAST = 11, FIELDS = 17 };

bool stall_counts(struct stall_counts *counts, const char *stat, const char *inflight, uint64_t partitions, bool bio_based, bool old)
{
	uint64_t field[FIELDS] = { 0 }, reads = 0, writes = 0, flying;
	char *end;
	int n;

	for (n = 0; n < FIELDS; n++, stat = end) {
		field[n] = strtoull(stat, &end, 10);
		if (end == stat)
			break;
	}
	if (n < FIELDS_LEAST)
		return false;
	if (sscanf(inflight, "%" SCNu64 " %" SCNu64, &reads, &writes) != 2)
		reads = writes = 0;
	flying = field[IN_FLIGHT];
	if (bio_based) {
		flying += partitions;
	} else {
		flying = flying > partitions ? flying : partitions;
		flying = flying > reads + writes ? flying : reads + writes;
	}
	counts->in_flight = flying;
	counts->answered = field[READS] + field[WRITES] + field[DISCARDS] + field[FLUSHES] - (bio_based && old ? flying : 0);
	return true;
}

void stall_judge(struct stall_device *device, const struct stall_counts *now, double clock)
{
	bool same = device->seen && now && device->counts.sequence == now->sequence;

	if (!now) {
		device->seen = device->waits = false;
		return;
	}
	if (same && device->counts.answered != now->answered)
		device->moved = clock;
	same = same && device->counts.answered == now->answered;
	if (!now->in_flight && !now->held) {
		device->waits = false;
	} else if (!device->waits || !same) {
		device->waits = true;
		device->since = clock;
	}
	if (!device->seen || device->counts.sequence != now->sequence)
		device->moved = -1;
	device->counts = *now;
	device->seen = true;
}

static uint64_t in_flight_of_partitions(const struct stall_device *device)
{
	struct sysfs_entries entries;
	uint64_t sum = 0;

	sysfs_entries_read(&entries, device->directory);
	for (size_t i = 0; i < entries.number; i++) {
		const char *partition = entries.path[i];
		struct stall_counts counts;
		uint64_t number;
		char text[256];

		if (!strncmp(strrchr(partition, '/') + 1, device->name, strlen(device->name)) && sysfs_number(partition, "partition", &number) &&
		    sysfs_text(partition, "stat", text, sizeof(text)) && stall_counts(&counts, text, "", 0, true, false))
			sum += counts.in_flight;
	}
	sysfs_entries_free(&entries);
	return sum;
}

static bool is_suspended(const struct stall_device *device)
{
	uint64_t suspended;

	return sysfs_number(device->directory, "dm/suspended", &suspended) && suspended;
}

/* Of SCSI (scsi_sysfs.c) and of a controller of NVMe (nvme_sysfs_show_state()): those in which requests wait until the connection is back, or given up. */
static bool state_is_away(const char *controller, char *state, size_t size)
{
	static const char *const away[] = { "blocked", "quiesce", "transport-offline", "resetting", "connecting" };

	if (!sysfs_text(controller, "state", state, size))
		return false;
	for (size_t i = 0; i < sizeof(away) / sizeof(*away); i++)
		if (!strcmp(state, away[i]))
			return true;
	return false;
}

/* By all of its paths: one that is left answers. */
static bool is_away(const struct stall_device *device, char *state, size_t size)
{
	struct sysfs_entries controllers;
	bool away = true;

	disk_controllers(&controllers, device->directory);
	for (size_t i = 0; i < controllers.number; i++)
		away = away && state_is_away(controllers.path[i], state, size);
	sysfs_entries_free(&controllers);
	return away;
}

static bool look_at(const struct stalls *stalls, const struct stall_device *device, struct stall_counts *counts)
{
	char stat[256], inflight[64], state[32], *mq = must_print("%s/mq", device->directory);
	bool bio_based = access(mq, F_OK) != 0;

	free(mq);
	*counts = (struct stall_counts){ 0 };
	if (!sysfs_text(device->directory, "stat", stat, sizeof(stat)))
		return false;
	if (!sysfs_text(device->directory, "inflight", inflight, sizeof(inflight)))
		*inflight = 0;
	if (!stall_counts(counts, stat, inflight, in_flight_of_partitions(device), bio_based, stalls->old))
		return false;
	if (!sysfs_number(device->directory, "diskseq", &counts->sequence))
		counts->sequence = 0;
	counts->held = is_suspended(device) || is_away(device, state, sizeof(state));
	return true;
}

/* ------------------------------------------------------------------ a set */

static bool counts_at_the_beginning(void)
{
	struct utsname system;
	unsigned major, minor;

	return !uname(&system) && sscanf(system.release, "%u.%u", &major, &minor) == 2 && (major < 6 || (major == 6 && minor < 3));
}

void stalls_init(struct stalls *stalls, const char *root)
{
	*stalls = (struct stalls){ .root = must_allocate(strdup(root)), .old = counts_at_the_beginning() };
}

static void forget(struct stall_device *device)
{
	free(device->directory);
	free(device->below);
	free(device);
}

void stalls_free(struct stalls *stalls)
{
	for (size_t i = 0; i < stalls->number; i++)
		forget(stalls->device[i]);
	free(stalls->device);
	free(stalls->root);
	*stalls = (struct stalls){ 0 };
}

void stalls_begin(struct stalls *stalls)
{
	for (size_t i = 0; i < stalls->number; i++)
		stalls->device[i]->listed = false;
}

static struct stall_device *find(const struct stalls *stalls, const char *directory)
{
	for (size_t i = 0; i < stalls->number; i++)
		if (!strcmp(stalls->device[i]->directory, directory))
			return stalls->device[i];
	return NULL;
}

struct stall_device *stalls_find(const struct stalls *stalls, const char *directory)
{
	char resolved[PATH_MAX];

	return sysfs_disk(directory, resolved) ? find(stalls, resolved) : NULL;
}

static struct stall_device *add_below(struct stalls *stalls, const char *directory, unsigned depth)
{
	char resolved[PATH_MAX], *path;
	struct stall_device *device;
	struct sysfs_entries lower;

	if (depth > STACKED_MAX || !sysfs_disk(directory, resolved))
		return NULL;
	device = find(stalls, resolved);
	if (device && device->listed)
		return device;
	if (!device) {
		device = must_allocate(calloc(1, sizeof(*device)));
		device->directory = must_allocate(strdup(resolved));
		device->name = strrchr(device->directory, '/') + 1;
		device->moved = -1;
		stalls->device = must_allocate(realloc(stalls->device, (stalls->number + 1) * sizeof(struct stall_device *)));
		stalls->device[stalls->number++] = device;
	}
	device->listed = true;
	device->nr_below = 0;
	path = must_print("%s/slaves", resolved);
	sysfs_entries_read(&lower, path);
	device->below = must_allocate(realloc(device->below, (lower.number + 1) * sizeof(struct stall_device *)));
	for (size_t i = 0; i < lower.number; i++) {
		struct stall_device *below = add_below(stalls, lower.path[i], depth + 1);

		if (below)
			device->below[device->nr_below++] = below;
	}
	sysfs_entries_free(&lower);
	free(path);
	return device;
}

struct stall_device *stalls_add(struct stalls *stalls, const char *directory)
{
	return add_below(stalls, directory, 0);
}

void stalls_add_all(struct stalls *stalls)
{
	char *path = must_print("%s/sys/block", stalls->root);
	struct sysfs_entries entries;

	sysfs_entries_read(&entries, path);
	for (size_t i = 0; i < entries.number; i++)
		stalls_add(stalls, entries.path[i]);
	sysfs_entries_free(&entries);
	free(path);
}

static void drop_unlisted(struct stalls *stalls)
{
	size_t kept = 0;

	for (size_t i = 0; i < stalls->number; i++) {
		if (stalls->device[i]->listed)
			stalls->device[kept++] = stalls->device[i];
		else
			forget(stalls->device[i]);
	}
	stalls->number = kept;
}

void stalls_look(struct stalls *stalls, double now)
{
	drop_unlisted(stalls);
	stalls->now = now;
	for (size_t i = 0; i < stalls->number; i++) {
		struct stall_counts counts;

		stall_judge(stalls->device[i], look_at(stalls, stalls->device[i], &counts) ? &counts : NULL, now);
	}
}

static bool any_since(const struct stalls *stalls, double first)
{
	for (size_t i = 0; i < stalls->number; i++)
		if (stalls->device[i]->waits && stalls->device[i]->since <= first)
			return true;
	return false;
}

void stalls_watch(struct stalls *stalls, double seconds)
{
	double first = clock_seconds();

	stalls_look(stalls, first);
	while (any_since(stalls, first) && stalls->now < first + seconds) {
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
		stalls_look(stalls, clock_seconds());
	}
}

/* ------------------------------------------------------------------ which of them hang */

static bool below_waits(const struct stall_device *device)
{
	for (size_t i = 0; i < device->nr_below; i++)
		if (device->below[i]->waits || below_waits(device->below[i]))
			return true;
	return false;
}

static bool below_moved(const struct stall_device *device, double since)
{
	for (size_t i = 0; i < device->nr_below; i++)
		if (device->below[i]->moved > since || below_moved(device->below[i], since))
			return true;
	return false;
}

static bool hangs(const struct stalls *stalls, const struct stall_device *device, double seconds)
{
	return device->waits && stalls->now - device->since >= seconds && !below_waits(device) &&
	       (device->counts.held || !below_moved(device, device->since));
}

struct visits {
	const struct stalls *stalls;
	double seconds;
	void (*visit)(const struct stalls *stalls, const struct stall_device *device, void *data);
	void *data;
	const struct stall_device **seen; /* one that is below two is visited once */
	size_t number;
};

static void visit_all(struct visits *v, const struct stall_device *device)
{
	for (size_t i = 0; i < v->number; i++)
		if (v->seen[i] == device)
			return;
	v->seen[v->number++] = device;
	if (hangs(v->stalls, device, v->seconds))
		v->visit(v->stalls, device, v->data);
	for (size_t i = 0; i < device->nr_below; i++)
		visit_all(v, device->below[i]);
}

void stalls_each(const struct stalls *stalls, const struct stall_device *device, double seconds,
		 void (*visit)(const struct stalls *stalls, const struct stall_device *device, void *data), void *data)
{
	struct visits v = { .stalls = stalls, .seconds = seconds, .visit = visit, .data = data };

	if (!device)
		return;
	v.seen = must_allocate(calloc(stalls->number + 1, sizeof(*v.seen)));
	visit_all(&v, device);
	free(v.seen);
}

static void note(const struct stalls *stalls, const struct stall_device *device, void *data)
{
	(void)stalls;
	(void)device;
	*(bool *)data = true;
}

bool stalls_any(const struct stalls *stalls, const struct stall_device *device, double seconds)
{
	bool any = false;

	stalls_each(stalls, device, seconds, note, &any);
	return any;
}

/* ------------------------------------------------------------------ in words */

char *stall_node(const struct stall_device *device)
{
	char name[256], *node;

	if (sysfs_text(device->directory, "dm/name", name, sizeof(name)))
		return must_print("/dev/mapper/%s", name);
	node = must_print("/dev/%s", device->name);
	for (char *c = node; (c = strchr(c, '!')); )
		*c = '/';
	return node;
}

static char *remedy(const struct stall_device *device)
{
	const struct disk disk = { .name = (char *)device->name, .directory = device->directory };
	const char *where = disk_is_remote(&disk) ? "it goes on when its server and the network are back" : "look at its cable, its controller, and the disk itself";
	char *delete = must_print("%s/device/delete", device->directory), *text;

	if (access(delete, F_OK))
		text = must_print("the kernel's log (dmesg) may say why; %s", where);
	else
		text = must_print("the kernel's log (dmesg) may say why; %s; should it not come back: echo 1 > /sys/block/%s/device/delete has its requests fail",
				  where, device->name);
	free(delete);
	return text;
}

/* What it does, and what mends it. */
static char *why(const struct stall_device *device, const char *node)
{
	uint64_t requests = device->counts.in_flight;
	const char *plural = requests == 1 ? "" : "s";
	char state[32], *cure, *text;

	if (is_suspended(device))
		return must_print(": it is suspended, and goes on behind dmsetup resume %s", strrchr(node, '/') + 1);
	if (is_away(device, state, sizeof(state)))
		return must_print(": its connection is away (%s), and requests wait for that; the kernel's log (dmesg) may say why", state);
	if (device->nr_below)
		return must_print(", with %" PRIu64 " request%s in flight, and nothing moves below it: a path that waits for its disks, or a flush of one; the "
				  "kernel's log (dmesg) may say which",
				  requests, plural);
	cure = remedy(device);
	text = must_print(", with %" PRIu64 " request%s in flight: %s", requests, plural, cure);
	free(cure);
	return text;
}

char *stall_text(const struct stall_device *device, double seconds)
{
	char *node = stall_node(device), *more = why(device, node), *text = must_print("%s has answered nothing for %.0f s%s", node, seconds, more);

	free(more);
	free(node);
	return text;
}
