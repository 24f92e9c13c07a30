// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The devices as facts.
 *
 * All of it is taken anew each time: there is no state to lose or to be wrong about.  Devices are opened for reading only, so that no look
 * makes an event that asks for another one.
 */
#include <endian.h>
#include <libudev.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "../lib/cow.h"
#include "../lib/disks.h"
#include "../lib/integrity.h"
#include "../lib/layout.h"
#include "../lib/md.h"
#include "../lib/message.h"
#include "../lib/signature.h"
#include "../lib/snapshot.h"
#include "../lib/stack.h"
#include "../lib/stack_age.h"
#include "../lib/status.h"
#include "../lib/turn.h"
#include "facts.h"
#include "text_hash.h"

uint64_t facts_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ------------------------------------------------------------------ which devices */

static bool is(struct udev_device *device, const char *property, const char *value)
{
	const char *found = udev_device_get_property_value(device, property);

	return found && !strcmp(found, value);
}

static bool udev_runs(void)
{
	return !access("/run/udev/control", F_OK);
}

static char *unready; /* node of the first device of this look that udevd is not through with; NULL: there is none */

/* It may be a member, as what is on it nobody has looked at; not so without a size: an empty drive, or loop device. */
static void note_unready(struct udev_device *device)
{
	const char *size = udev_device_get_sysattr_value(device, "size"), *node = udev_device_get_devnode(device);

	if (!unready && node && size && strcmp(size, "0"))
		unready = must_allocate(strdup(node));
}

static bool may_be_read(struct udev_device *device)
{
	if (is(device, "DM_MULTIPATH_DEVICE_PATH", "1"))
		return false;
	if (!udev_runs() || udev_device_get_is_initialized(device))
		return true;
	note_unready(device);
	return false;
}

static bool is_marked(struct udev_device *device)
{
	return may_be_read(device) && (!udev_runs() || is(device, "ID_FS_TYPE", "larder_member"));
}

/* When its superblock was first seen; udev's database knows, or else how long it knows the device itself. */
static uint64_t appeared(struct udev *udev, dev_t number, uint64_t now)
{
	struct udev_device *device = number ? udev_device_new_from_devnum(udev, 'b', number) : NULL;
	const char *text = device ? udev_device_get_property_value(device, "LARDER_APPEARED") : NULL;
	uint64_t since = text ? strtoull(text, NULL, 10) : 0;

	if (device && !since && udev_device_get_is_initialized(device))
		since = facts_clock() - udev_device_get_usec_since_initialized(device);
	if (device)
		udev_device_unref(device);
	return since && since < now ? since : now;
}

/* ------------------------------------------------------------------ a member */

/* Why something whose description cannot be read is left: the superblock has a checksum, so it is no damage but a newer larder's. */
static const char NEWER[] = "its description is a newer larder's (%s): it may be half made, or another machine's; start it with that larder, or larder %s start --import %s";
static const char UNKNOWN[] = "the %s %s names the machine that it is of, and this one has no /etc/machine-id (an initramfs made before it had one?); larder %s start %s";

/* What it says of its stacks. */
static void take_list(struct fact_member *fact, const struct larder_cache_sb *sb)
{
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	bool there;
	const char *why = stack_list_decode(sb->stack, list, &there);

	if (why)
		fact->held = must_print(NEWER, why, "cache", fact->label);
	else if (list->number && stack_host_is_foreign(list->host))
		fact->held = must_print("the cache %s is another machine's, for the stack %s; if that does not use it any more: larder start --import %s",
					fact->label, list->stack[0].name, list->stack[0].name);
	else if (list->number && stack_host_is_unknown(list->host))
		fact->held = must_print(UNKNOWN, "cache", fact->label, "cache", fact->label);
	if (!why && *list->options)
		fact->options = must_print("%s", list->options);
	free(list);
}

static void take_cache(struct fact_member *fact, const struct device *device, const struct larder_cache_sb *sb)
{
	struct cache_tables tables;
	struct larder_table *copy;

	take_list(fact, sb);
	fact->place = le32toh(sb->device_number);
	fact->nr_segments = le32toh(sb->nr_segments);
	fact->first_segment = le32toh(sb->first_segment);
	fact->segment_size = le32toh(sb->segment_size);
	fact->segments_offset = le64toh(sb->segments_offset);
	fact->generation = le64toh(sb->head.generation);
	fact->all_generation = le64toh(sb->all_generation);
	fact->joins = le32toh(sb->head.flags) & LARDER_CACHE_JOINS;
	tables_read(device, sb, &tables);
	if (tables.chosen) {
		copy = must_allocate(malloc(sizeof(*copy)));
		memcpy(copy, tables.chosen, sizeof(*copy));
		fact->table = copy;
	}
	tables_free(&tables);
}

/* Adds to what is to be said of its snapshots. */
static void warn_of(struct fact_member *fact, const struct stack *stack, const struct stack_snapshot *one, const uint8_t volume[16])
{
	char *before = (char *)fact->warning;
	struct cow_status status = { 0 };
	const char *what = NULL;
	uint8_t uuid[16];

	stack_snapshot_uuid(stack, one, uuid);
	if (one->state == SNAPSHOT_READY)
		cow_status(volume, uuid, &status);
	if (one->state == SNAPSHOT_LOST)
		what = "is lost";
	else if (status.state == COW_OVERFLOW || cow_nearly_full(&status))
		what = "is lost when its store is full, and that is nearly so";
	if (what) {
		fact->warning = must_print("%s%sits snapshot %s %s; larder snapshot remove %s@%s", before ? before : "", before ? "; " : "", one->name, what,
					   stack->name, one->name);
		free(before);
	}
}

/* What the description of its stack says. */
static void take_stack(struct fact_member *fact, const struct members *members, const struct larder_volume_sb *sb)
{
	struct stack stack;
	uint8_t part[16];
	bool there;
	const char *why = stack_decode(sb->stack, &stack, &there);

	fact->newer = why;
	if (why)
		fact->held = must_print(NEWER, why, "volume", fact->label);
	if (why || !there)
		return;
	stack_part(&stack, "volume", part);
	if (memcmp(part, sb->head.uuid, 16))
		return;
	snprintf(fact->stack, sizeof(fact->stack), "%s", stack.name);
	memcpy(fact->stack_uuid, stack.uuid, 16);
	for (uint32_t i = 0; i < stack.snapshots; i++) {
		struct fact_snapshot *to = &fact->snapshot[fact->snapshots];

		warn_of(fact, &stack, &stack.snapshot[i], part);
		if (stack.snapshot[i].state != SNAPSHOT_READY)
			continue;
		memcpy(to->name, stack.snapshot[i].name, sizeof(to->name));
		stack_snapshot_uuid(&stack, &stack.snapshot[i], to->uuid);
		fact->lost += cow_is_lost(part, to->uuid);
		fact->snapshots++;
	}
	fact->integrity = *stack.integrity;
	if (*stack.class)
		fact->class = must_print("%s", stack.class);
	if (*stack.options)
		fact->options = must_print("%s", stack.options);
	fact->held = stack_too_old(members, &stack);
	fact->older = fact->held;
	if (fact->held)
		return;
	if (stack.state == STACK_CREATING)
		fact->held = must_print("the stack %s is half made; larder create --resume %s, or larder remove %s", stack.name, stack.name, stack.name);
	else if (stack.state == STACK_REMOVING)
		fact->held = must_print("the stack %s is being removed; larder remove %s goes on", stack.name, stack.name);
	else if (stack_is_foreign(&stack))
		fact->held = must_print("the stack %s was made on another machine; if that does not use it any more: larder start --import %s", stack.name,
					stack.name);
	else if (stack_host_is_unknown(stack.host))
		fact->held = must_print(UNKNOWN, "stack", stack.name, "volume", fact->label);
}

/* number: of the device; 0: it is none. */
static void take_volume(struct fact_member *fact, const struct members *members, dev_t number, const struct larder_volume_sb *sb)
{
	take_stack(fact, members, sb);
	if (number && *fact->stack)
		md_look_lost(number, &fact->lost_disks);
	fact->lost_disks.noted = lacks_noted(fact->uuid);
	fact->lost_disks.returned = returned_since(fact->uuid);
	fact->few_errors = number && fact->integrity && md_read_errors(number) < MD_READ_ERRORS;
	if (number && fact->read_only && !fact->held)
		fact->held = md_why_read_only(number, fact->path, *fact->stack ? fact->stack : "STACK");
	fact->may_be_dirty = le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY;
	fact->left_cache = le32toh(sb->head.flags) & LARDER_VOLUME_LEFT;
	fact->sectors = le64toh(sb->sectors);
	fact->incarnation = le64toh(sb->incarnation);
	fact->set_generation = le64toh(sb->set_generation);
}

/* What an SSD says of the stack of a leg, that of a volume is not to be seen before it has started. */
static void take_stack_of_leg(struct fact_member *fact, const struct members *members)
{
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	bool there;

	for (size_t i = 0; i < members->number && !*fact->stack; i++) {
		const struct larder_cache_sb *sb = &members->member[i]->sb.cache;

		if (le32toh(sb->head.kind) != LARDER_KIND_CACHE || stack_list_decode(sb->stack, list, &there))
			continue;
		for (size_t k = 0; k < list->number; k++) {
			const struct stack *stack = &list->stack[k];

			if (memcmp(stack->uuid, fact->stack_uuid, 16))
				continue;
			snprintf(fact->stack, sizeof(fact->stack), "%s", stack->name);
			if (!list->brief[k] && stack->state != STACK_READY)
				fact->held = must_print("the stack %s is half made, or being removed; see larder show %s", stack->name, stack->name);
		}
	}
	free(list);
}

/* That it is held by what is below its own dm-integrity is no use by others. */
static void take_leg(struct fact_member *fact, const struct members *members, const struct member *member, const struct leg_fields *fields)
{
	struct stack stack = { 0 };
	char text[UUID_TEXT];

	fact->leg = true;
	memcpy(fact->stack_uuid, fields->stack, 16);
	memcpy(stack.uuid, fields->stack, 16);
	stack_part(&stack, "volume", fact->volume);
	fact->runs = leg_runs(member->sb.head.uuid, member->number);
	if (leg_is_held(member->sb.head.uuid, member->number)) {
		free((void *)fact->used);
		fact->used = NULL;
	}
	take_stack_of_leg(fact, members);
	if (fact->held)
		return;
	if (stack_host_is_foreign(fields->host))
		fact->held = must_print("is a disk of the stack %s as another machine has it; if that does not use it any more: larder start --import %s",
					*fact->stack ? fact->stack : uuid_text(fact->stack_uuid, text), *fact->stack ? fact->stack : text);
	else if (stack_host_is_unknown(fields->host))
		fact->held = must_print("names the machine that it is of, and this one has no /etc/machine-id (an initramfs made before it had one?); larder start %s",
					*fact->stack ? fact->stack : uuid_text(fact->stack_uuid, text));
}

static void take_spare(struct fact_member *fact, const struct device *device, const struct larder_cache_sb *sb)
{
	struct cache_layout layout = { .segment_size = le32toh(sb->segment_size) };

	if (layout.segment_size && !cache_layout(&layout, device->bytes, device->logical_block))
		fact->nr_segments = layout.nr_segments;
}

/* False: it cannot be read any more, and is no fact. */
static bool take_member(struct fact_member *fact, const struct members *members, const struct member *member)
{
	struct signature_others others;
	char usage[PATH_MAX];
	struct leg_fields leg;
	struct device device;

	*fact = (struct fact_member){ .path = member->path, .kind = le32toh(member->sb.head.kind) };
	if (fact->kind != LARDER_KIND_CACHE && fact->kind != LARDER_KIND_VOLUME && fact->kind != LARDER_KIND_SPARE && fact->kind != LARDER_KIND_OTHER)
		return false;
	if (device_try(&device, member->path))
		return false;
	memcpy(fact->uuid, member->sb.head.uuid, 16);
	if (fact->kind != LARDER_KIND_OTHER) { /* they lie at the same place in all three */
		memcpy(fact->cache_uuid, member->sb.cache.cache_uuid, 16);
		label_text(member->sb.cache.label, fact->label);
	}
	fact->copy_only = member->copy_only;
	fact->read_only = device.read_only;
	if (signature_of_others(&device, &member->sb, &others)) {
		fact->foreign = must_allocate(strdup(others.type));
		fact->wipefs = must_allocate(strdup(others.wipefs));
		fact->below = others.behind;
	}
	if (member->block && device_usage(member->number, usage, sizeof(usage)))
		fact->used = must_allocate(strdup(usage));
	if (fact->kind == LARDER_KIND_CACHE)
		take_cache(fact, &device, &member->sb.cache);
	else if (fact->kind == LARDER_KIND_SPARE)
		take_spare(fact, &device, &member->sb.cache);
	else if (fact->kind == LARDER_KIND_OTHER)
		fact->sectors = device.bytes >> LARDER_SECTOR_SHIFT;
	else
		take_volume(fact, members, member->block ? member->number : 0, &member->sb.volume);
	if (leg_is(&member->sb, &leg))
		take_leg(fact, members, member, &leg);
	device_close(&device);
	return true;
}

/* Two that have one superblock: are they one disk? */
static void take_disk(struct fact_member *fact, const struct members *members, const struct member *member)
{
	char *directory, *disk;

	for (size_t i = 0; member->block && !fact->disk && i < members->number; i++) {
		if (members->member[i] == member || memcmp(members->member[i]->sb.head.uuid, member->sb.head.uuid, 16))
			continue;
		directory = disk_directory("", member->path, true, member->number);
		disk = disk_identity(directory);
		if (disk)
			text_clean(disk);
		fact->disk = disk;
		free(directory);
	}
}

static void take_members(struct look *look)
{
	struct facts *facts = &look->facts;
	struct udev *udev = must_allocate(udev_new());

	facts->member = must_allocate(calloc(look->members.number + 1, sizeof(*facts->member)));
	for (size_t i = 0; i < look->members.number; i++) {
		struct fact_member *fact = &facts->member[facts->nr_members];

		if (!take_member(fact, &look->members, look->members.member[i]))
			continue;
		fact->appeared = appeared(udev, look->members.member[i]->block ? look->members.member[i]->number : 0, facts->now);
		take_disk(fact, &look->members, look->members.member[i]);
		facts->nr_members++;
	}
	udev_unref(udev);
}

/* ------------------------------------------------------------------ arrays */

bool present_lasts(const struct present *present)
{
	return disk_sequence(present->number) == present->sequence;
}

struct disks_known {
	struct udev *udev; /* NULL: it does not run */
	const struct md_disks *disks; /* that md has; NULL: none */
};

static bool is_disk_of_array(dev_t number, const void *data)
{
	const struct disks_known *known = data;
	struct udev_device *device;
	bool wanted = !known->udev;

	for (size_t i = 0; known->disks && i < known->disks->number; i++)
		wanted |= known->disks->disk[i].number == number;
	if (wanted)
		return true;
	device = udev_device_new_from_devnum(known->udev, 'b', number);
	wanted = device && may_be_read(device) && is(device, "ID_FS_TYPE", "linux_raid_member");
	if (device)
		udev_device_unref(device);
	return wanted;
}

static void find_array(const uint8_t stack_uuid[16], struct udev *udev, bool marked, const struct md_disks *disks, struct md_array *array)
{
	struct disks_known known = { udev_runs() ? udev : NULL, disks };
	struct stack stack = { 0 };
	uint8_t part[16];

	memcpy(stack.uuid, stack_uuid, 16);
	stack_part(&stack, "md", part);
	md_find_where(part, marked ? is_disk_of_array : NULL, &known, array);
}

static bool own_uuid(struct udev_device *device, uint8_t own[16])
{
	const char *text = udev_device_get_property_value(device, "ID_FS_UUID_SUB");

	return is(device, "ID_FS_TYPE", "linux_raid_member") && text && !uuid_parse(text, own);
}

static uint64_t identity_of(dev_t number)
{
	char *directory = disk_directory("", "", true, number), *disk = disk_identity(directory);
	uint64_t identity = disk ? text_hash(TEXT_HASH_BASIS, disk) : 0;

	free(directory);
	free(disk);
	return identity;
}

static void add_present(struct present **list, size_t *count, struct udev_device *device, dev_t number)
{
	struct present *p;

	*list = must_allocate(realloc(*list, (*count + 1) * sizeof(**list)));
	p = &(*list)[(*count)++];
	*p = (struct present){ .number = number, .sequence = disk_sequence(number), .identity = identity_of(number) };
	if (device && !own_uuid(device, p->own))
		memset(p->own, 0, sizeof(p->own));
}

/* Another disk than those of the array, which has no part in any, with the UUID of one. */
static bool is_copy(struct udev_device *device, const struct present *present, size_t count)
{
	dev_t number = udev_device_get_devnum(device);
	uint64_t identity = identity_of(number);
	uint8_t own[16];
	bool same = false;

	if (!may_be_read(device) || !own_uuid(device, own))
		return false;
	for (size_t i = 0; i < count; i++) {
		bool it = present[i].number == number || (identity && identity == present[i].identity); /* by another path */

		if (it || device_is_below(number, present[i].number))
			return false;
		same |= !memcmp(present[i].own, own, 16);
	}
	return same;
}

/* By udev's database: no disk is read.  present: those of the array. */
static void take_copies(struct look *look, struct udev *udev, const struct present *present, size_t count)
{
	struct udev_enumerate *all = must_allocate(udev_enumerate_new(udev));
	struct udev_list_entry *entry;

	udev_enumerate_add_match_subsystem(all, "block");
	udev_enumerate_add_match_property(all, "ID_FS_TYPE", "linux_raid_member");
	udev_enumerate_scan_devices(all);
	udev_list_entry_foreach(entry, udev_enumerate_get_list_entry(all))
	{
		struct udev_device *one = udev_device_new_from_syspath(udev, udev_list_entry_get_name(entry));

		if (one && is_copy(one, present, count))
			add_present(&look->copy, &look->nr_copies, one, udev_device_get_devnum(one));
		if (one)
			udev_device_unref(one);
	}
	udev_enumerate_unref(all);
}

static void add_return(struct facts *facts, const struct md_array *array, size_t leg, const struct md_now *now, const uint8_t volume[16])
{
	struct signature_others others;
	struct contents contents;
	struct fact_return *r;
	struct device device;
	char text[PATH_MAX], disk[64];
	uint8_t own[16];

	if (device_try(&device, array->leg[leg]))
		return;
	if (!leg_of_device(array->leg_number[leg], own, disk) || !*disk)
		snprintf(disk, sizeof(disk), "%s", array->leg[leg]);
	facts->returning = must_allocate(realloc(facts->returning, (facts->nr_returning + 1) * sizeof(*r)));
	r = &facts->returning[facts->nr_returning++];
	*r = (struct fact_return){ .path = must_allocate(strdup(disk)), .number = array->leg_number[leg], .leg = array->super[leg], .now = *now };
	r->identity = identity_of(r->number);
	r->all = md_returns_whole(array, leg);
	memcpy(r->volume, volume, 16);
	md_contents(&array->super[leg], &contents);
	if (signature_besides(&device, &contents, "linux_raid_member", &others)) {
		r->foreign = must_allocate(strdup(others.type));
		r->wipefs = must_allocate(strdup(others.wipefs));
	}
	if (device_usage(array->leg_number[leg], text, sizeof(text)))
		r->used = must_allocate(strdup(text));
	device_close(&device);
}

/* By sysfs alone where it lacks nothing, so that no disk wakes up. */
static void take_array(struct look *look, struct udev *udev, const struct fact_member *volume, dev_t number, bool marked)
{
	size_t first = look->nr_present;
	struct md_array array;
	struct md_disks disks;
	struct md_now now;

	if (!md_disks(number, &disks))
		return;
	for (size_t i = 0; i < disks.number; i++) {
		const struct md_disk *disk = &disks.disk[i];
		struct udev_device *device;

		if (disk->role == MD_FAILED || !*disk->node)
			continue;
		device = udev_device_new_from_devnum(udev, 'b', disk->number);
		add_present(&look->present, &look->nr_present, device, disk->number);
		if (device)
			udev_device_unref(device);
	}
	if (udev_runs())
		take_copies(look, udev, &look->present[first], look->nr_present - first);
	if (!volume->lost_disks.lacks)
		return;
	find_array(volume->stack_uuid, udev, marked, &disks, &array);
	md_now(&array, &disks, &now);
	for (size_t i = 0; array.device == number && i < array.number; i++)
		if (!md_has(&disks, &array, i))
			add_return(&look->facts, &array, i, &now, volume->uuid);
	md_free(&array);
}

static bool is_told_of(const struct facts *facts, const uint8_t volume[16])
{
	for (size_t i = 0; i < facts->nr_members; i++)
		if (facts->member[i].kind == LARDER_KIND_VOLUME && !memcmp(facts->member[i].uuid, volume, 16))
			return true;
	for (size_t i = 0; i < facts->nr_rests; i++)
		if (!memcmp(facts->rest[i].volume, volume, 16))
			return true;
	return false;
}

/* Of a stack that an SSD lists, and whose volume is not to be seen. */
static void take_rest(struct facts *facts, struct udev *udev, const struct stack *stack, bool marked)
{
	struct fact_rest rest = { 0 };
	struct md_array array;

	stack_part(stack, "volume", rest.volume);
	if (is_told_of(facts, rest.volume))
		return;
	find_array(stack->uuid, udev, marked, NULL, &array);
	md_rest(array.super, array.number, &rest.rest);
	if (array.number && !*array.node) {
		snprintf(rest.stack, sizeof(rest.stack), "%s", stack->name);
		memcpy(rest.stack_uuid, stack->uuid, 16);
		for (size_t i = 0; i < array.number; i++) {
			uint64_t since = appeared(udev, array.leg_number[i], facts->now);

			rest.appeared = since > rest.appeared ? since : rest.appeared;
		}
		facts->rest = must_allocate(realloc(facts->rest, (facts->nr_rests + 1) * sizeof(rest)));
		facts->rest[facts->nr_rests++] = rest;
	}
	md_free(&array);
}

static void take_rests(struct look *look, struct udev *udev, bool marked)
{
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	bool there;

	for (size_t i = 0; i < look->members.number; i++) {
		const struct larder_cache_sb *sb = &look->members.member[i]->sb.cache;

		if (le32toh(sb->head.kind) != LARDER_KIND_CACHE || stack_list_decode(sb->stack, list, &there) || stack_host_is_foreign(list->host))
			continue;
		for (size_t k = 0; k < list->number; k++)
			if (list->brief[k] || list->stack[k].state == STACK_READY)
				take_rest(&look->facts, udev, &list->stack[k], marked);
	}
	free(list);
}

static void take_arrays(struct look *look, bool marked)
{
	struct udev *udev = must_allocate(udev_new());

	for (size_t i = 0, k = 0; i < look->facts.nr_members; i++) {
		const struct fact_member *fact = &look->facts.member[i];

		while (look->members.member[k]->path != fact->path)
			k++;
		if (fact->kind == LARDER_KIND_VOLUME && *fact->stack && look->members.member[k]->block)
			take_array(look, udev, fact, look->members.member[k]->number, marked);
	}
	take_rests(look, udev, marked);
	udev_unref(udev);
}

/* ------------------------------------------------------------------ what runs */

/* Of a cache that does not take writes no SSD is exchanged. */
static void take_places(struct fact_running *fact, const char *status)
{
	char *ssds = status_value(status, "ssds"), *rest = ssds, *word;

	for (unsigned place = 0; place < LARDER_MAX_DEVICES && (word = strsep(&rest, "/")); place++) {
		fact->failed |= (uint32_t)!strcmp(word, "failed") << place;
		fact->busy |= !strcmp(word, "joining") || !strcmp(word, "draining");
	}
	if (!status_is(status, "state", "running"))
		fact->failed = 0;
	free(ssds);
}

static void take_running(struct look *look)
{
	struct facts *facts = &look->facts;

	facts->running = must_allocate(calloc(look->mapped.number + 1, sizeof(*facts->running)));
	for (size_t i = 0; i < look->mapped.number; i++) {
		const struct mapped *mapped = &look->mapped.mapped[i];
		struct fact_running *fact = &facts->running[facts->nr_running];
		char *uuid = status_value(mapped->status, "uuid");

		*fact = (struct fact_running){ .name = mapped->name, .cache = mapped->cache, .left_over = strstr(mapped->uuid, BELOW_ORIGIN) };
		if (mapped->cache)
			take_places(fact, mapped->status);
		facts->nr_running += uuid && !uuid_parse(uuid, fact->uuid);
		free(uuid);
	}
}

/* Of what does not run: the kernel would refuse them, and not say what can be done. */
static void hold_older(struct look *look)
{
	struct facts *facts = &look->facts;

	for (size_t i = 0, k = 0; i < facts->nr_members; i++) {
		struct fact_member *fact = &facts->member[i];
		const struct member *member;
		struct stack stack;
		bool there;

		while (look->members.member[k]->path != fact->path)
			k++;
		member = look->members.member[k];
		if (fact->kind != LARDER_KIND_VOLUME || fact->held || facts_running(facts, fact->uuid, false))
			continue;
		there = *fact->stack && !stack_decode(member->sb.volume.stack, &stack, &there) && there;
		fact->held = volume_too_old(&look->members, member, there ? &stack : NULL);
		fact->older = fact->held;
		if (!fact->held)
			fact->held = cache_too_old(&look->members, member, there ? &stack : NULL);
	}
}

int facts_look(struct look *look, bool marked)
{
	int result;

	*look = (struct look){ 0 };
	result = snapshot_take(&look->mapped);
	result = result ? result : mapped_scan_names(&look->names);
	if (result) {
		facts_free(look);
		return result;
	}
	/* before: what comes while a disk takes long to read is not among them, and has been waited for only until here */
	look->facts.now = facts_clock();
	members_scan_where(&look->members, marked ? is_marked : may_be_read);
	take_members(look);
	take_arrays(look, marked);
	take_running(look);
	hold_older(look);
	look->unready = unready;
	unready = NULL;
	look->udev_busy = look->unready && !access("/run/udev/queue", F_OK);
	look->facts.taken = (const char **)look->names.name;
	look->facts.nr_taken = look->names.number;
	look->facts.half = (const char **)look->names.half;
	look->facts.nr_half = look->names.nr_half;
	look->facts.nr_stopped = stopped_list(&look->facts.stopped);
	return LARDER_DONE;
}

void facts_free(struct look *look)
{
	for (size_t i = 0; i < look->facts.nr_members; i++) {
		free((void *)look->facts.member[i].table);
		free((void *)look->facts.member[i].foreign);
		free((void *)look->facts.member[i].wipefs);
		free((void *)look->facts.member[i].disk);
		free((void *)look->facts.member[i].used);
		free((void *)look->facts.member[i].held);
		free((void *)look->facts.member[i].class);
		free((void *)look->facts.member[i].options);
		free((void *)look->facts.member[i].warning);
	}
	for (size_t i = 0; i < look->facts.nr_returning; i++) {
		free((void *)look->facts.returning[i].path);
		free((void *)look->facts.returning[i].foreign);
		free((void *)look->facts.returning[i].wipefs);
		free((void *)look->facts.returning[i].used);
	}
	free(look->facts.returning);
	free(look->facts.rest);
	free(look->present);
	free(look->copy);
	free(look->unready);
	free(look->facts.member);
	free(look->facts.running);
	free(look->facts.stopped);
	members_free(&look->members);
	mapped_list_free(&look->mapped);
	mapped_names_free(&look->names);
	*look = (struct look){ 0 };
}

void facts_pretend(struct facts *facts, const struct step *step)
{
	if (step->kind == PLAN_CLEAR) {
		facts->nr_half = 0;
		return;
	}
	if (step->kind == PLAN_LEG) {
		facts->member[step->member[0]].runs = true;
		return;
	}
	if (step->kind == PLAN_NOTE) {
		md_lost_noted(&facts->member[step->member[0]].lost_disks);
		facts->member[step->member[0]].lost = 0;
		facts->member[step->member[0]].few_errors = false;
		return;
	}
	if (step->kind == PLAN_RETURN) {
		facts->returning[step->returning].now.held = UINT64_MAX;
		return;
	}
	if (step->kind == PLAN_SPARE) {
		for (size_t i = 0; i < facts->nr_running; i++)
			facts->running[i].busy |= !strcmp(facts->running[i].name, step->name);
		return;
	}
	facts->running = must_allocate(realloc(facts->running, (facts->nr_running + 1) * sizeof(*facts->running)));
	facts->running[facts->nr_running] = (struct fact_running){ .name = step->name, .cache = step->kind == PLAN_CACHE };
	memcpy(facts->running[facts->nr_running++].uuid, step->uuid, 16);
}
