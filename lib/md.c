// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * md arrays by mdadm: metadata 1.2, an internal bitmap where the level has redundancy, or a partial parity log for RAID 5.
 *
 * An array is known by its UUID, which is read from its disks here (4 KiB behind their beginning, as 1.2 has it), not by its name or
 * number.  Nothing is written but by mdadm.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/major.h>
#include <linux/raid/md_u.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "device.h"
#include "disks.h"
#include "md.h"
#include "message.h"
#include "program.h"

#define MD_OFFSET 4096u
#define MD_ROLES_MAX ((4096 - 256) / 2) /* of a superblock: no array has more places */
#define MD_HEAD	  (16u << 20) /* of a disk: what 1.2 takes at most before the data of a small array begin */
#define MD_HEADROOM (128u << 20) /* of a large one: a 1024th of it, and no more than this, to be reshaped into */
#define MD_ROUNDED  (4u << 20) /* superblock, bitmap, and what is less than a chunk */

#define GIVE_UP_TRIES 100
#define GIVE_UP_US 20000u

/* ------------------------------------------------------------------ look */

/* False: there is none.  durable: what was read does not lie in the disk's own cache alone. */
static bool read_super(const char *path, bool durable, dev_t *number, bool *readable, struct md_leg *leg)
{
	struct device device;
	void *super;
	bool found;

	*readable = false;
	if (device_try(&device, path))
		return false;
	super = device_buffer(MD_SUPER_BYTES);
	*readable = !device_read(&device, MD_OFFSET, super, MD_SUPER_BYTES);
	found = device.block && *readable && md_leg_decode(super, leg) && (!durable || !device_sync(&device));
	free(super);
	*number = device.number;
	device_close(&device);
	return found;
}

static bool is_leg(const char *path, const uint8_t uuid[16], bool durable, dev_t *number, bool *readable, struct md_leg *leg)
{
	return read_super(path, durable, number, readable, leg) && !memcmp(leg->array, uuid, 16);
}

bool md_is_leg(const char *path, const uint8_t uuid[16], bool *readable)
{
	struct md_leg leg;
	dev_t number;

	return is_leg(path, uuid, false, &number, readable, &leg);
}

void md_contents(const struct md_leg *leg, struct contents *contents)
{
	const uint64_t most = UINT64_MAX >> (LARDER_SECTOR_SHIFT + 1);

	*contents = (struct contents){ 0 };
	if (leg->start > most || leg->room > most)
		return;
	contents->begin = leg->start << LARDER_SECTOR_SHIFT;
	contents->data_end = contents->end = (leg->start + leg->room) << LARDER_SECTOR_SHIFT;
}

void md_contents_of(const struct device *device, struct contents *contents)
{
	struct md_leg leg = { 0 };
	void *super = device_buffer(MD_SUPER_BYTES);

	if (device_read(device, MD_OFFSET, super, MD_SUPER_BYTES) || !md_leg_decode(super, &leg))
		leg = (struct md_leg){ 0 };
	free(super);
	md_contents(&leg, contents);
}

bool md_leg_uuid(const char *path, uint8_t uuid[16])
{
	struct md_leg leg;
	bool readable;
	dev_t number;
	bool found = read_super(path, false, &number, &readable, &leg);

	if (found)
		memcpy(uuid, leg.own, 16);
	return found;
}

bool md_leg_settled(const char *path, const uint8_t uuid[16])
{
	struct md_leg leg;
	bool readable;
	dev_t number;

	return is_leg(path, uuid, true, &number, &readable, &leg) && !leg.partial && leg.place >= 0;
}

/* Not where disks of it were put together alone, as mdadm --incremental does for udev until all are there, or somebody runs it. */
static bool array_runs(dev_t device)
{
	char text[64];

	return device_attribute(device, "md/array_state", text, sizeof(text)) && strcmp(text, "clear") && strcmp(text, "inactive");
}

/* The md device above a disk. */
static void find_node(dev_t leg, struct md_array *array)
{
	char path[64], text[64];
	dev_t device;
	struct dirent *entry;
	unsigned high, low;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/holders", major(leg), minor(leg));
	dir = opendir(path);
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		char *name = must_print("holders/%s/dev", entry->d_name);

		if (!strncmp(entry->d_name, "md", 2) && device_attribute(leg, name, text, sizeof(text)) &&
		    sscanf(text, "%u:%u", &high, &low) == 2) {
			device = makedev(high, low);
			if (array_runs(device)) {
				array->device = device;
				device_node(device, array->node, sizeof(array->node));
			} else {
				device_node(device, array->inactive, sizeof(array->inactive));
			}
		}
		free(name);
	}
	closedir(dir);
}

/* By ioctl, as a daemon may have no right to write to sysfs.  md takes one that has failed out of its place a moment later, and lets go of it then. */
void md_give_up(dev_t leg)
{
	struct md_array array = { 0 };
	int file;

	find_node(leg, &array);
	file = *array.node || *array.inactive ? open(*array.node ? array.node : array.inactive, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	if (!ioctl(file, SET_DISK_FAULTY, (unsigned long)leg))
		for (int i = 0; i < GIVE_UP_TRIES && ioctl(file, HOT_REMOVE_DISK, (unsigned long)leg); i++)
			usleep(GIVE_UP_US);
	close(file);
}

void md_take_read_errors(dev_t device, unsigned number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	device_set_attribute(device, "md/max_read_errors", text);
}

/* Neither what would not answer, nor larder's own devices, which may not either: no stack has an array upon them. */
static bool may_be_leg(const char *node)
{
	char text[160];
	struct stat status;

	if (stat(node, &status) || !S_ISBLK(status.st_mode) || !device_worth_reading(status.st_rdev))
		return false;
	return !device_attribute(status.st_rdev, "dm/uuid", text, sizeof(text)) || strncmp(text, "LARDER-", 7) != 0;
}

void md_leave_out(struct md_array *array, uint64_t legs)
{
	size_t kept = 0;

	for (size_t i = 0; i < array->number; i++) {
		if (legs >> i & 1) {
			free(array->leg[i]);
			continue;
		}
		array->leg[kept] = array->leg[i];
		array->leg_number[kept] = array->leg_number[i];
		array->super[kept++] = array->super[i];
	}
	array->number = kept;
}

/* The paths of a multipath disk all show what that shows, which alone is the leg: two of them are no copies of one another. */
static void drop_lower(struct md_array *array)
{
	uint64_t lower = 0;

	for (size_t i = 0; i < array->number; i++)
		for (size_t k = 0; k < array->number; k++)
			if (k != i && device_is_below(array->leg_number[i], array->leg_number[k]))
				lower |= UINT64_C(1) << i;
	md_leave_out(array, lower);
}

static void look_for_leg(const char *name, const uint8_t uuid[16], bool (*wanted)(dev_t number, const void *data), const void *data, struct md_array *array)
{
	struct md_leg *super = &array->super[array->number];
	struct stat status;
	char node[300], *at;
	dev_t number;
	bool readable;

	snprintf(node, sizeof(node), "/dev/%s", name);
	while ((at = strchr(node, '!')))
		*at = '/';
	if (wanted && (stat(node, &status) || !S_ISBLK(status.st_mode) || !wanted(status.st_rdev, data)))
		return;
	if (!may_be_leg(node) || !is_leg(node, uuid, false, &number, &readable, super))
		return;
	array->leg_number[array->number] = number;
	array->leg[array->number++] = must_print("%s", node);
	if (!*array->node)
		find_node(number, array);
}

void md_find_where(const uint8_t uuid[16], bool (*wanted)(dev_t number, const void *data), const void *data, struct md_array *array)
{
	DIR *dir = opendir("/sys/class/block");
	struct dirent *entry;

	*array = (struct md_array){ 0 };
	while (dir && (entry = readdir(dir)) && array->number < MD_LEGS_MAX)
		if (entry->d_name[0] != '.')
			look_for_leg(entry->d_name, uuid, wanted, data, array);
	if (dir)
		closedir(dir);
	drop_lower(array);
}

void md_find(const uint8_t uuid[16], struct md_array *array)
{
	md_find_where(uuid, NULL, NULL, array);
}

void md_free(struct md_array *array)
{
	for (size_t i = 0; i < array->number; i++)
		free(array->leg[i]);
	*array = (struct md_array){ 0 };
}

static unsigned attribute(dev_t device, const char *name)
{
	char text[64];

	return device_attribute(device, name, text, sizeof(text)) ? (unsigned)strtoul(text, NULL, 10) : 0;
}

static unsigned places_of(dev_t device)
{
	unsigned places = attribute(device, "md/raid_disks");

	return places < MD_ROLES_MAX ? places : MD_ROLES_MAX;
}

unsigned md_read_errors(dev_t device)
{
	return attribute(device, "md/max_read_errors");
}

/*
 * One "dev-sdb" that md has.  Not "rd0", the disk of a place: one that has replaced another has none, until the array is started again (6.12: only
 * what joins as no replacement gets one, by sysfs_link_rdev()).
 */
static void look_at(dev_t array, const char *entry, struct md_disks *disks)
{
	struct md_disk *disk = &disks->disk[disks->number];
	char name[64], state[128], text[64];
	unsigned high, low;

	*disk = (struct md_disk){ .place = -1 };
	if (snprintf(disk->name, sizeof(disk->name), "%s", entry + strlen("dev-")) >= (int)sizeof(disk->name))
		return;
	snprintf(name, sizeof(name), "md/dev-%s/state", disk->name);
	if (!device_attribute(array, name, state, sizeof(state)))
		return;
	snprintf(name, sizeof(name), "md/dev-%s/slot", disk->name);
	if (!device_attribute(array, name, text, sizeof(text)) || sscanf(text, "%d", &disk->place) != 1 || disk->place < 0)
		disk->place = -1; /* "none" */
	snprintf(name, sizeof(name), "md/dev-%s/block/dev", disk->name);
	if (device_attribute(array, name, text, sizeof(text)) && sscanf(text, "%u:%u", &high, &low) == 2) {
		disk->number = makedev(high, low);
		if (!device_node(disk->number, disk->node, sizeof(disk->node)))
			disk->node[0] = 0;
	}
	disk->whole = strstr(state, "in_sync") && !strstr(state, "faulty");
	disk->unwanted = strstr(state, "want_replacement");
	if (strstr(state, "faulty"))
		disk->role = MD_FAILED;
	else if (strstr(state, "in_sync") && !strstr(state, ",replacement"))
		disk->role = disk->unwanted ? MD_COPIED : MD_MEMBER;
	else
		disk->role = disk->place < 0 ? MD_SPARE : MD_REBUILT;
	disks->number++;
}

bool md_held(const struct md_disks *disks, int place)
{
	for (size_t i = 0; i < disks->number; i++)
		if (disks->disk[i].place == place && disks->disk[i].role != MD_FAILED)
			return true;
	return false;
}

/* md wants one replaced from its first write error on, or once it was asked to, whether there is a disk for it or not. */
static void settle_copied(struct md_disks *disks)
{
	for (size_t i = 0; i < disks->number; i++) {
		bool copied = false;

		for (size_t k = 0; k < disks->number; k++)
			copied |= disks->disk[k].role == MD_REBUILT && disks->disk[k].place == disks->disk[i].place;
		if (disks->disk[i].role == MD_COPIED && !copied)
			disks->disk[i].role = MD_MEMBER;
	}
}

bool md_disks(dev_t device, struct md_disks *disks)
{
	char path[64], text[64] = "";
	unsigned long long done, all;
	struct dirent *entry;
	DIR *dir;

	*disks = (struct md_disks){ .places = places_of(device) };
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/md", major(device), minor(device));
	dir = opendir(path);
	if (!dir)
		return false;
	while ((entry = readdir(dir)) && disks->number < MD_LEGS_MAX)
		if (!strncmp(entry->d_name, "dev-", 4))
			look_at(device, entry->d_name, disks);
	closedir(dir);
	settle_copied(disks);
	for (unsigned i = 0; i < disks->places; i++)
		disks->missing += !md_held(disks, (int)i);
	disks->frozen = device_attribute(device, "md/sync_action", text, sizeof(text)) && !strcmp(text, "frozen");
	disks->idle = disks->frozen || !strcmp(text, "idle");
	if (device_attribute(device, "md/sync_completed", text, sizeof(text)) && sscanf(text, "%llu / %llu", &done, &all) == 2 && all)
		disks->percent = done < all ? (unsigned)((double)done * 100 / (double)all) : 100;
	return true;
}

void md_look_lost(dev_t device, struct md_lost *lost)
{
	struct md_disks disks;
	uint64_t whole = 0, rebuilt = 0;

	lost->lacks = lost->rebuilt = 0;
	if (!md_disks(device, &disks))
		return;
	for (size_t i = 0; i < disks.number; i++) {
		const struct md_disk *disk = &disks.disk[i];

		if (disk->place < 0 || disk->place >= MD_LEGS_MAX)
			continue;
		if (disk->whole)
			whole |= UINT64_C(1) << disk->place;
		else if (disk->role == MD_REBUILT)
			rebuilt |= UINT64_C(1) << disk->place;
	}
	lost->lacks = ~whole & (disks.places < MD_LEGS_MAX ? (UINT64_C(1) << disks.places) - 1 : UINT64_MAX);
	lost->rebuilt = rebuilt & lost->lacks;
}

uint64_t md_lacks(dev_t device)
{
	struct md_lost lost;

	md_look_lost(device, &lost);
	return lost.lacks;
}

const char *md_state(dev_t device, unsigned *missing)
{
	char text[64];

	*missing = (unsigned)__builtin_popcountll(md_lacks(device));
	if (!device_attribute(device, "md/array_state", text, sizeof(text)) || !strcmp(text, "clear") || !strcmp(text, "inactive") ||
	    !strcmp(text, "broken"))
		return "failed";
	if (*missing || attribute(device, "md/degraded"))
		return "degraded";
	if (!device_attribute(device, "md/sync_action", text, sizeof(text)) || !strcmp(text, "idle"))
		return "active";
	return !strcmp(text, "check") || !strcmp(text, "repair") ? "scrubbing" : "resyncing";
}

bool md_has(const struct md_disks *disks, const struct md_array *array, size_t leg)
{
	for (size_t i = 0; i < disks->number; i++)
		if (disks->disk[i].number && disks->disk[i].number == array->leg_number[leg])
			return true;
	return false;
}

/* What is not known is a disk that none of the others knows. */
static void take_super(const struct md_array *array, dev_t disk, struct md_now *now)
{
	uint64_t number = UINT64_MAX;

	for (size_t k = 0; k < array->number; k++) {
		const struct md_leg *super = &array->super[k];

		if (array->leg_number[k] != disk)
			continue;
		if (super->number < MD_PLACES_MAX)
			number = UINT64_C(1) << super->number;
		if (super->events >= now->events) {
			now->events = super->events;
			now->level = super->level;
		}
	}
	now->numbers |= number;
}

void md_now(const struct md_array *array, const struct md_disks *disks, struct md_now *now)
{
	*now = (struct md_now){ .places = disks->places };
	for (size_t i = 0; i < disks->number; i++) {
		const struct md_disk *disk = &disks->disk[i];
		bool whole = disk->role == MD_MEMBER || disk->role == MD_COPIED;

		if (disk->place < 0 || disk->place >= MD_LEGS_MAX || disk->role == MD_FAILED)
			continue;
		now->held |= UINT64_C(1) << disk->place;
		now->whole |= (uint64_t)whole << disk->place;
		if (whole)
			take_super(array, disk->number, now);
	}
}

/* Sectors, as md says it of a disk that it has. */
static bool disk_sectors(dev_t array, const struct md_disk *disk, const char *what, uint64_t *sectors)
{
	char name[64], text[64];

	snprintf(name, sizeof(name), "md/dev-%s/%s", disk->name, what);
	if (!device_attribute(array, name, text, sizeof(text)))
		return false;
	*sectors = strtoull(text, NULL, 10);
	return true;
}

uint64_t md_leg_offset(dev_t device, const struct md_disks *disks)
{
	uint64_t least = UINT64_MAX, offset;

	for (size_t i = 0; i < disks->number; i++)
		if (disks->disk[i].place >= 0 && disk_sectors(device, &disks->disk[i], "offset", &offset) && offset < least)
			least = offset;
	return least;
}

bool md_leg_room(dev_t device, uint64_t *now, uint64_t *room)
{
	struct md_disks disks;
	char text[64];

	if (!md_disks(device, &disks) || !device_attribute(device, "md/component_size", text, sizeof(text)))
		return false;
	*now = strtoull(text, NULL, 10) << 10;
	*room = UINT64_MAX;
	for (size_t i = 0; i < disks.number; i++) {
		uint64_t all, offset;

		if (!disk_sectors(device, &disks.disk[i], "block/size", &all))
			continue; /* it is gone */
		if (!disk_sectors(device, &disks.disk[i], "offset", &offset))
			return false;
		if (all > offset && (all - offset) * 512 < *room)
			*room = (all - offset) * 512;
	}
	/* md leaves what is less than a chunk, or 64 KiB of a bitmap's, at the end */
	if (*room != UINT64_MAX && (*room < *now || *room - *now < (1u << 20)))
		*room = *now;
	return *room != UINT64_MAX;
}

/* ------------------------------------------------------------------ plan */

const char *md_consistency(const char *level, bool volatile_cache)
{
	return !strcmp(level, "0") ? "" : !strcmp(level, "5") && !volatile_cache ? "ppl" : "bitmap";
}

static bool has_volatile_cache(dev_t device)
{
	char *directory = disk_directory("", "", true, device);
	bool has = disk_has_volatile_cache(directory);

	free(directory);
	return has;
}

bool md_has_volatile_cache(const char *const *legs, unsigned number)
{
	struct stat st;

	for (unsigned i = 0; i < number; i++)
		if (stat(legs[i], &st) || !S_ISBLK(st.st_mode) || has_volatile_cache(st.st_rdev))
			return true;
	return false;
}

static bool policy_is(dev_t device, const char *policy)
{
	char text[64];

	return device_attribute(device, "md/consistency_policy", text, sizeof(text)) && !strcmp(text, policy);
}

bool md_is_logged(dev_t device)
{
	return policy_is(device, "ppl");
}

bool md_returns_whole(const struct md_array *array, size_t leg)
{
	const struct md_leg *super = &array->super[leg];
	const char *const disk = array->leg[leg];

	return super->place >= 0 && policy_is(array->device, "bitmap") && !md_return_by_bitmap(super, md_has_volatile_cache(&disk, 1));
}

bool md_lacks_guard(const char *level, dev_t device)
{
	return !strcmp(level, "5") && policy_is(device, "resync");
}

bool md_reshapes(dev_t device)
{
	char text[64];

	return device_attribute(device, "md/reshape_position", text, sizeof(text)) && strcmp(text, "none");
}

bool md_has_write_hole(const char *level, bool volatile_cache)
{
	return !strcmp(level, "6") || (!strcmp(level, "5") && strcmp(md_consistency(level, volatile_cache), "ppl"));
}

unsigned md_legs_min(const char *level)
{
	return !strcmp(level, "6") ? 4 : !strcmp(level, "5") ? 3 : 2;
}

static uint64_t head_of(uint64_t bytes)
{
	uint64_t headroom = bytes / 1024 < MD_HEADROOM ? bytes / 1024 : MD_HEADROOM;

	return headroom + MD_ROUNDED > MD_HEAD ? headroom + MD_ROUNDED : MD_HEAD;
}

uint64_t md_capacity(const char *level, const uint64_t *bytes, unsigned number, uint64_t *unused)
{
	uint64_t least = UINT64_MAX, all = 0, heads = 0, data;

	for (unsigned i = 0; i < number; i++) {
		least = bytes[i] < least ? bytes[i] : least;
		all += bytes[i];
		heads += head_of(bytes[i]);
	}
	*unused = 0;
	if (!strcmp(level, "0"))
		return all > heads ? all - heads : 0;
	*unused = all - number * least;
	least = least > head_of(least) ? least - head_of(least) : 0;
	data = !strcmp(level, "1") ? 1 : !strcmp(level, "5") ? number - 1 : !strcmp(level, "6") ? number - 2 : 0;
	return data ? data * least : number * least / 2;
}

/* ------------------------------------------------------------------ mdadm */

static int mdadm(const char *const *words, const char *what, const char *action)
{
	char *said;
	int code = program_run(words, &said);

	if (code)
		complain(LARDER_FAILED, "%s: mdadm cannot %s it: %s", what, action, *said ? said : "no reason given");
	free(said);
	return code ? LARDER_FAILED : LARDER_DONE;
}

static int change(const char *const *words, const char *what, const char *action, bool dry_run)
{
	if (!dry_run)
		return mdadm(words, what, action);
	for (int i = 0; words[i]; i++)
		printf("%s%s", i ? " " : "", words[i]);
	putchar('\n');
	return LARDER_DONE;
}

/* "/dev/md/larder-0123abcd", "01234567:...": both from the UUID, so that no two arrays meet. */
static void spell(const uint8_t uuid[16], char path[64], char text[40])
{
	const uint8_t *u = uuid;

	snprintf(path, 64, "/dev/md/larder-%02x%02x%02x%02x", u[0], u[1], u[2], u[3]);
	snprintf(text, 40, "%02x%02x%02x%02x:%02x%02x%02x%02x:%02x%02x%02x%02x:%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4], u[5], u[6],
		 u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

int md_create(const uint8_t uuid[16], const char *level, const char *const *legs, unsigned number, unsigned spares)
{
	const char *words[MD_LEGS_MAX + 20], *keeps = md_consistency(level, md_has_volatile_cache(legs, number));
	char path[64], text[40], *identity, *raid, *devices, *further, *policy;
	unsigned n = 0;
	int result;

	spell(uuid, path, text);
	identity = must_print("--uuid=%s", text);
	raid = must_print("--level=%s", level);
	devices = must_print("--raid-devices=%u", number - spares);
	further = must_print("--spare-devices=%u", spares);
	policy = must_print("--consistency-policy=%s", keeps);
	words[n++] = "mdadm";
	words[n++] = "--create";
	words[n++] = path;
	words[n++] = "--run";
	words[n++] = "--quiet";
	words[n++] = "--metadata=1.2";
	words[n++] = identity;
	words[n++] = raid;
	words[n++] = devices;
	if (spares)
		words[n++] = further;
	if (!strcmp(keeps, "ppl"))
		words[n++] = policy;
	if (!strcmp(keeps, "bitmap"))
		words[n++] = "--bitmap=internal";
	for (unsigned i = 0; i < number; i++)
		words[n++] = legs[i];
	words[n] = NULL;
	result = mdadm(words, path, "make");
	free(identity);
	free(raid);
	free(devices);
	free(further);
	free(policy);
	return result;
}

static int check_started(const uint8_t uuid[16], int result)
{
	struct md_array array;
	const char *node;
	unsigned missing;

	md_find(uuid, &array);
	node = *array.node && strcmp(md_state(array.device, &missing), "failed") ? "" : *array.node ? array.node : array.inactive;
	if (*node) {
		if (!result)
			result = complain(LARDER_UNSAFE, "%s: disks are missing that it had when it ran last; start with --degraded",
					  node);
		md_stop(node);
	}
	md_free(&array);
	return result;
}

/* What udev has put together holds the disks.  It is taken apart only where more comes of it: mdadm adds the next one to it. */
static int release_legs(const struct md_array *array, unsigned places, bool degraded)
{
	if (!*array->inactive)
		return LARDER_DONE;
	if (!degraded && array->number < places)
		return complain(LARDER_UNSAFE, "%s: only %zu of its %u disks are here; attach the others, or start with --degraded",
				array->inactive, array->number, places);
	return md_stop(array->inactive);
}

int md_leave_out_read_only(struct md_array *array, bool degraded)
{
	uint64_t read_only = 0;
	int result = LARDER_DONE;

	for (size_t i = 0; i < array->number; i++) {
		const char *leg = array->leg[i];

		if (!device_is_read_only(array->leg_number[i]))
			continue;
		read_only |= UINT64_C(1) << i;
		if (degraded)
			remark("%s: is read-only: its array starts WITHOUT it", leg);
		else
			result = complain(LARDER_UNSAFE, "%s: is read-only, and so would its array be: blockdev --setrw %s, or start with --degraded, without it", leg, leg);
	}
	md_leave_out(array, read_only);
	return result;
}

char *md_why_read_only(dev_t device, const char *path, const char *stack)
{
	struct md_disks disks;
	bool array = md_disks(device, &disks);

	for (size_t i = 0; array && i < disks.number; i++)
		if (*disks.disk[i].node && device_is_read_only(disks.disk[i].number))
			return must_print("is read-only, as its disk %s is; if that can be mended: blockdev --setrw %s, and mdadm --readwrite %s; if not: "
					  "larder start %s --degraded, without it", disks.disk[i].node, disks.disk[i].node, path, stack);
	return must_print("is read-only; if it need not be: %s %s", array ? "mdadm --readwrite" : "blockdev --setrw", path);
}

/* mdadm would say how many it needs, and not why one of those that are here is none of them. */
static int refuse_shapes(const struct md_array *array, const struct md_rest *rest)
{
	size_t other = 0;

	while (rest->alike >> other & 1)
		other++;
	return complain(LARDER_UNSAFE,
			"%s: its superblock is of another shape of the array than those of others, which lack a disk without it; start with --degraded, and it is taken back then if it can be",
			array->leg[other]);
}

int md_assemble(const uint8_t uuid[16], const struct md_array *array, bool degraded, bool write_hole)
{
	const char *words[MD_LEGS_MAX + 9];
	char path[64], text[40], *identity;
	struct md_rest rest;
	unsigned n = 0;
	int result;

	md_rest(array->super, array->number, &rest);
	if (!degraded && !rest.mirror_torn && rest.awaited)
		return refuse_shapes(array, &rest);
	result = release_legs(array, rest.places, degraded);
	if (result)
		return result;
	spell(uuid, path, text);
	identity = must_print("--uuid=%s", text);
	words[n++] = "mdadm";
	words[n++] = "--assemble";
	words[n++] = path;
	words[n++] = "--quiet";
	if (degraded || rest.mirror_torn)
		words[n++] = "--run";
	if (write_hole)
		words[n++] = "--force";
	words[n++] = identity;
	/* by --force mdadm makes a disk that left the array long ago one of its newest, where there are too few */
	for (size_t i = 0; i < array->number; i++)
		if ((write_hole ? rest.fresh : rest.alike) >> i & 1)
			words[n++] = array->leg[i];
	words[n] = NULL;
	result = mdadm(words, path, "start");
	free(identity);
	/* without --run an array that lacks a disk which it had when it ran last is put together, and not started */
	return degraded ? result : check_started(uuid, result);
}

int md_stop(const char *node)
{
	const char *words[] = { "mdadm", "--stop", "--quiet", node, NULL };

	return mdadm(words, node, "stop");
}

int md_erase(const char *leg)
{
	const char *words[] = { "mdadm", "--zero-superblock", "--quiet", leg, NULL };

	return mdadm(words, leg, "erase the superblock of");
}

int md_grow(const char *node, bool dry_run)
{
	const char *words[] = { "mdadm", "--grow", node, "--size=max", NULL };

	return change(words, node, "grow", dry_run);
}

int md_add(const char *node, const char *disk, bool dry_run)
{
	const char *words[] = { "mdadm", node, "--add", disk, NULL };

	return change(words, disk, "add", dry_run);
}

int md_take_back(const char *node, const char *disk, bool *all)
{
	const char *again[] = { "mdadm", node, "--re-add", disk, NULL };
	const char *anew[] = { "mdadm", node, *all ? "--add-spare" : "--add", disk, NULL }; /* --add begins by --re-add */
	char *said;

	if (!*all) {
		*all = program_run(again, &said);
		free(said);
	}
	return *all ? mdadm(anew, disk, "take back") : LARDER_DONE;
}

int md_replace(const char *node, const char *old, const char *with, bool dry_run)
{
	const char *words[] = { "mdadm", node, "--replace", old, "--with", with, NULL };

	return change(words, old, "replace", dry_run);
}

int md_fail(const char *node, const char *disk, bool dry_run)
{
	const char *words[] = { "mdadm", node, "--fail", disk, NULL };

	return change(words, disk, "take", dry_run);
}

int md_remove(const char *node, const char *disk, bool dry_run)
{
	const char *words[] = { "mdadm", node, "--remove", disk, NULL };

	return change(words, disk, "remove", dry_run);
}

int md_set_places(const char *node, unsigned places, bool dry_run)
{
	char *devices = must_print("--raid-devices=%u", places);
	const char *words[] = { "mdadm", "--grow", node, devices, NULL };
	int result = change(words, node, "change the number of disks of", dry_run);

	free(devices);
	return result;
}

int md_stop_log(const char *node, bool dry_run)
{
	const char *words[] = { "mdadm", "--grow", node, "--consistency-policy=resync", NULL };

	return change(words, node, "stop the log of", dry_run);
}

int md_set_guard(const char *node, dev_t device, bool dry_run)
{
	bool volatile_cache = false;
	struct md_disks disks;

	if (!md_disks(device, &disks))
		return complain(LARDER_FAILED, "%s: the disks of it cannot be told", node);
	for (size_t i = 0; i < disks.number; i++)
		volatile_cache |= disks.disk[i].role != MD_FAILED && has_volatile_cache(disks.disk[i].number);
	const char *words[] = { "mdadm", "--grow", node, volatile_cache ? "--bitmap=internal" : "--consistency-policy=ppl", NULL };

	return change(words, node, volatile_cache ? "begin a bitmap of" : "begin a log of", dry_run);
}

int md_thaw(const char *node)
{
	const char *words[] = { "mdadm", "--misc", "--action=idle", node, NULL };

	return mdadm(words, node, "let rebuild what is in");
}
