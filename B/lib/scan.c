// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Finding members by looking at every block device: 4 KiB at byte 4096 of each, more only where that is one of ours, or damaged.
 *
 * libudev enumerates from sysfs, so this works without udevd and with nodes that only the kernel made.
 */
#include <endian.h>
#include <errno.h>
#include <libudev.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "hanging.h"
#include "message.h"
#include "scan.h"

/* What the last scan could not make use of: devices that may not be read; those of larder that have no superblock which is valid. */
static struct {
	size_t denied;
	struct damaged *damaged;
	size_t nr_damaged;
} last;

/* What udev has noted of a device, by larder-probe or libblkid. */
struct noted {
	bool ours;
	const char *uuid; /* NULL: that is not known */
};

static const struct member *add(struct members *members, const struct device *device, const struct superblocks *found)
{
	struct member *m = must_allocate(malloc(sizeof(*m)));

	*m = (struct member){
		.path = must_allocate(strdup(device->path)),
		.number = device->number,
		.block = device->block,
		.copy_only = !found->main.error && !found->main.magic,
		.bytes = device->bytes,
		.sb = *found->chosen->sb,
	};
	members->member = must_allocate(realloc(members->member, (members->number + 1) * sizeof(*members->member)));
	members->member[members->number++] = m;
	return m;
}

static void forget(struct member *member)
{
	free(member->path);
	free(member);
}

static void add_damaged(const struct device *device, const struct superblocks *found, const struct noted *noted)
{
	const union superblock *best = superblocks_best(found);
	struct damaged one = { .path = must_allocate(strdup(device->path)), .number = device->number, .error = found->main.error };

	if (best && !superblock_is_whole(best)) /* else it is of another version, or device */
		one.known = !uuid_is_zero(best->head.uuid);
	if (one.known)
		memcpy(one.uuid, best->head.uuid, 16);
	else if (!best && noted->uuid)
		one.known = !uuid_parse(noted->uuid, one.uuid);
	one.why = problems_line(found->main.magic || found->main.error || !found->copy.offset ? &found->main.problems : &found->copy.problems);
	last.damaged = must_allocate(realloc(last.damaged, (last.nr_damaged + 1) * sizeof(one)));
	last.damaged[last.nr_damaged++] = one;
}

static void read_one(struct members *members, const char *path, const struct noted *noted)
{
	struct superblocks found;
	struct device device;
	int error = device_try(&device, path);

	if (error)
		last.denied += error == -EACCES || error == -EPERM;
	if (error)
		return;
	superblocks_read(&device, &found, false);
	if (found.chosen)
		add(members, &device, &found);
	else if (superblocks_any(&found) || (found.main.error && noted->ours && device.bytes >= LARDER_SB_OFFSET + LARDER_SB_SIZE))
		add_damaged(&device, &found, noted);
	superblocks_free(&found);
	device_close(&device);
}

/* Devices of a scan, and their numbers. */
struct candidates {
	struct udev_device **device;
	dev_t *number;
	size_t count;
};

static void find_candidates(struct candidates *found, struct udev *udev, bool (*wanted)(struct udev_device *device))
{
	struct udev_enumerate *all = must_allocate(udev_enumerate_new(udev));
	struct udev_list_entry *entry;

	udev_enumerate_add_match_subsystem(all, "block");
	udev_enumerate_scan_devices(all);
	udev_list_entry_foreach(entry, udev_enumerate_get_list_entry(all))
	{
		struct udev_device *one = udev_device_new_from_syspath(udev, udev_list_entry_get_name(entry));

		if (one && (!udev_device_get_devnode(one) || (wanted && !wanted(one))))
			one = udev_device_unref(one);
		if (!one)
			continue;
		found->device = must_allocate(realloc(found->device, (found->count + 1) * sizeof(struct udev_device *)));
		found->number = must_allocate(realloc(found->number, (found->count + 1) * sizeof(*found->number)));
		found->device[found->count] = one;
		found->number[found->count++] = udev_device_get_devnum(one);
	}
	udev_enumerate_unref(all);
}

static void read_all(struct members *members, bool (*wanted)(struct udev_device *device))
{
	struct udev *udev = must_allocate(udev_new());
	struct candidates found = { 0 };

	find_candidates(&found, udev, wanted);
	hanging_ask(found.number, found.count);
	for (size_t i = 0; i < found.count; i++) {
		struct udev_device *one = found.device[i];
		const char *type = udev_device_get_property_value(one, "ID_FS_TYPE");
		const struct noted noted = { .ours = type && !strcmp(type, "larder_member"), .uuid = udev_device_get_property_value(one, "LARDER_UUID") };

		if (device_worth_reading(found.number[i]))
			read_one(members, udev_device_get_devnode(one), &noted);
		udev_device_unref(one);
	}
	free(found.device);
	free(found.number);
	udev_unref(udev);
}

/* The same superblock on a disk and on what is stacked upon it: only the upper one is to be used. */
static bool is_lower(const struct members *members, const struct member *m)
{
	for (size_t i = 0; m->block && i < members->number; i++) {
		const struct member *other = members->member[i];

		if (other != m && other->block && !memcmp(other->sb.head.uuid, m->sb.head.uuid, 16) &&
		    device_is_below(m->number, other->number))
			return true;
	}
	return false;
}

static void drop_lower(struct members *members)
{
	struct member **lower = must_allocate(calloc(members->number + 1, sizeof(*lower)));
	size_t kept = 0;

	for (size_t i = 0; i < members->number; i++)
		if (is_lower(members, members->member[i]))
			lower[i] = members->member[i];
	for (size_t i = 0; i < members->number; i++)
		if (lower[i])
			forget(lower[i]);
		else
			members->member[kept++] = members->member[i];
	members->number = kept;
	free(lower);
}

static void forget_damaged(struct damaged *damaged)
{
	free(damaged->path);
	free(damaged->why);
}

/* Likewise of what no superblock tells of any more. */
static void drop_damaged(void)
{
	size_t kept = 0;

	for (size_t i = 0; i < last.nr_damaged; i++) {
		struct damaged one = last.damaged[i];
		bool lower = false;

		for (size_t n = 0; one.number && n < last.nr_damaged; n++)
			lower |= n != i && last.damaged[n].number && device_is_below(one.number, last.damaged[n].number);
		if (lower)
			forget_damaged(&last.damaged[i]);
		else
			last.damaged[kept++] = one;
	}
	last.nr_damaged = kept;
}

void members_scan(struct members *members)
{
	members_scan_where(members, NULL);
}

void members_scan_where(struct members *members, bool (*wanted)(struct udev_device *device))
{
	const char *given = getenv("LARDER_DEVICES");

	*members = (struct members){ 0 };
	last.denied = 0;
	for (size_t i = 0; i < last.nr_damaged; i++)
		forget_damaged(&last.damaged[i]);
	last.nr_damaged = 0;
	if (!given) {
		read_all(members, wanted);
	} else {
		char *copy = must_allocate(strdup(given)), *rest = copy, *path;

		while ((path = strsep(&rest, ":")))
			if (*path)
				read_one(members, path, &(const struct noted){ .ours = true });
		free(copy);
	}
	drop_lower(members);
	drop_damaged();
}

const struct damaged *members_damaged(size_t *number)
{
	*number = last.nr_damaged;
	return last.damaged;
}

void members_remark_damaged(void)
{
	for (size_t i = 0; i < last.nr_damaged; i++)
		remark("%s: has a larder superblock that is not valid, and is not shown; larder doctor names what mends it", last.damaged[i].path);
}

void members_free(struct members *members)
{
	for (size_t i = 0; i < members->number; i++)
		forget(members->member[i]);
	free(members->member);
	*members = (struct members){ 0 };
}

char *members_unseen(int *code)
{
	if (last.denied) {
		*code = LARDER_FAILED;
		return must_print("; but %zu device%s could not be read: run larder as root", last.denied, last.denied == 1 ? "" : "s");
	}
	if (last.nr_damaged)
		return must_print("; but the superblock on %s is not valid: larder super check %s says why", last.damaged->path, last.damaged->path);
	return must_print("%s", "");
}

int members_check_seen(void)
{
	if (!last.denied)
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%zu device%s could not be read, and what is on them is not shown: run larder as root", last.denied,
			last.denied == 1 ? "" : "s");
}

static bool matches(const struct member *m, const char *name, const uint8_t *uuid, uint32_t kind)
{
	char label[LARDER_LABEL_SIZE + 1];

	if (le32toh(m->sb.head.kind) != kind)
		return false;
	if (uuid)
		return !memcmp(m->sb.head.uuid, uuid, 16) ||
		       (kind == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, uuid, 16));
	/* labels of caches and volumes lie at the same place */
	return !strcmp(label_text(m->sb.cache.label, label), name);
}

bool member_is(const struct member *member, const char *name, uint32_t kind)
{
	uint8_t uuid[16];

	return matches(member, name, uuid_parse(name, uuid) ? NULL : uuid, kind);
}

/* A path: whatever the scan made of it, this device is meant. */
static int find_path(struct members *members, const char *path, uint32_t kind, const struct member **found)
{
	const union superblock *sb;
	struct superblocks blocks;
	struct device device;
	int result = device_open(&device, path, DEVICE_READ);

	if (result)
		return result;
	superblocks_read(&device, &blocks, false);
	result = superblocks_choose(&device, &blocks, &sb);
	if (!result && le32toh(sb->head.kind) != kind)
		result = complain(LARDER_NOT_FOUND, "%s: kind: is a %s, not a %s", path, kind_text(le32toh(sb->head.kind)),
				  kind_text(kind));
	if (!result)
		*found = add(members, &device, &blocks);
	superblocks_free(&blocks);
	device_close(&device);
	return result;
}

int member_find(struct members *members, const char *name, uint32_t kind, const struct member **found)
{
	uint8_t binary[16], *uuid = uuid_parse(name, binary) ? NULL : binary;
	const struct member *first = NULL;

	if (strchr(name, '/'))
		return find_path(members, name, kind, found);
	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (!matches(m, name, uuid, kind))
			continue;
		/* any SSD of a set stands for it */
		if (first && kind == LARDER_KIND_CACHE && !memcmp(first->sb.cache.cache_uuid, m->sb.cache.cache_uuid, 16) &&
		    memcmp(first->sb.head.uuid, m->sb.head.uuid, 16))
			continue;
		if (first && memcmp(first->sb.head.uuid, m->sb.head.uuid, 16))
			return complain(LARDER_UNSAFE, "%s: label: both %s and %s have it; give the UUID or the device", name,
					first->path, m->path);
		if (first)
			return complain(LARDER_UNSAFE,
					"%s: uuid: both %s and %s have it (a copy of the other?); detach one, or give the device",
					name, first->path, m->path);
		first = m;
	}
	if (!first) {
		int code = LARDER_NOT_FOUND;
		char *why = members_unseen(&code);

		complain(code, "%s: no device has a %s superblock with that %s; see larder probe%s", name, kind_text(kind), uuid ? "UUID" : "label", why);
		free(why);
		return code;
	}
	*found = first;
	return LARDER_DONE;
}

const struct member *member_cache(const struct members *members, const uint8_t uuid[16])
{
	for (size_t i = 0; i < members->number; i++) {
		const union superblock *sb = &members->member[i]->sb;

		if (le32toh(sb->head.kind) == LARDER_KIND_CACHE && !memcmp(sb->cache.cache_uuid, uuid, 16))
			return members->member[i];
	}
	return NULL;
}

const struct member *member_of_set(const struct members *members, const uint8_t uuid[16], uint32_t number)
{
	for (size_t i = 0; i < members->number; i++) {
		const union superblock *sb = &members->member[i]->sb;

		if (le32toh(sb->head.kind) == LARDER_KIND_CACHE && !memcmp(sb->cache.cache_uuid, uuid, 16) &&
		    le32toh(sb->cache.device_number) == number)
			return members->member[i];
	}
	return NULL;
}

const struct member *member_volume(const struct members *members, const uint8_t uuid[16])
{
	for (size_t i = 0; i < members->number; i++) {
		const union superblock *sb = &members->member[i]->sb;

		if (le32toh(sb->head.kind) == LARDER_KIND_VOLUME && !memcmp(sb->head.uuid, uuid, 16))
			return members->member[i];
	}
	return NULL;
}
