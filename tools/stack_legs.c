// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disks of a stack with dm-integrity below its array: started before the array, for which they are its disks.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "claim.h"
#include "integrity.h"
#include "message.h"
#include "stack_legs.h"
#include "stack_steps.h"
#include "stacks.h"
#include "turn.h"

bool stack_has_legs(const struct members *members, const uint8_t uuid[16])
{
	for (size_t i = 0; i < members->number; i++)
		if (leg_is_of(&members->member[i]->sb, uuid))
			return true;
	return false;
}

static int start_leg(const char *name, const struct member *m, unsigned flags)
{
	struct leg_fields fields;
	bool readable;

	leg_is(&m->sb, &fields);
	if (leg_runs(m->sb.head.uuid, m->number))
		return LARDER_DONE;
	/* the array does not have it, unless it was overwritten: then that lacks one */
	if (!leg_is_formatted(m->path, &readable)) {
		remark("%s: is marked as a disk of the stack %s, and has no superblock of dm-integrity that can be read, as where replace or add was cut off: goes on without it",
		       m->path, name);
		return LARDER_DONE;
	}
	if (stack_host_is_foreign(fields.host) && !(flags & START_IMPORT))
		return complain(LARDER_UNSAFE, "%s: is a disk of the stack %s as another machine has it; if that does not use it any more: larder start --import %s",
				m->path, name, name);
	return leg_start(m->path, m->sb.head.uuid, fields.stack);
}

/* One of them, of which there is no copy. */
static int start_member(const char *name, const struct members *members, size_t i, unsigned flags)
{
	const struct member *m = members->member[i];
	int result = LARDER_DONE;

	for (size_t j = 0; !result && j < members->number; j++)
		if (j != i && !memcmp(m->sb.head.uuid, members->member[j]->sb.head.uuid, 16))
			result = stack_refuse_copy(name, m->path, members->member[j]->path);
	return result ? result : start_leg(name, m, flags);
}

int start_legs(const char *name, const uint8_t uuid[16], unsigned flags)
{
	struct members members;
	int result = LARDER_DONE;

	members_scan(&members);
	for (size_t i = 0; !result && i < members.number; i++) {
		const struct member *m = members.member[i];

		if (!leg_is_of(&m->sb, uuid))
			continue;
		result = start_member(name, &members, i, flags);
		if (result && flags & START_DEGRADED) {
			remark("%s: goes on without %s", name, m->path);
			result = LARDER_DONE;
		}
	}
	members_free(&members);
	return result;
}

int legs_take_over(const struct stack *stack, unsigned flags)
{
	struct members members;
	uint8_t host[16];
	int result = LARDER_DONE;

	stack_host(host);
	members_scan(&members);
	for (size_t i = 0; i < members.number; i++) {
		const struct member *m = members.member[i];
		struct leg_fields fields;
		int error;

		if (!leg_is(&m->sb, &fields) || memcmp(fields.stack, stack->uuid, 16) || !stack_host_is_foreign(fields.host))
			continue;
		error = leg_set_host(m->path, m->sb.head.uuid, host);
		result = result || flags & START_DEGRADED ? result : error;
	}
	members_free(&members);
	return result;
}

void release_legs(const struct stack *stack)
{
	struct md_array array;
	uint8_t part[16];

	stack_part(stack, "md", part);
	md_find(part, &array);
	if (!*array.node && !*array.inactive)
		legs_stop(stack->uuid);
	md_free(&array);
}

/* Of these each error is a sector that is repaired. */
void legs_expect_errors(const struct stack *stack)
{
	struct md_array array;
	uint8_t part[16];

	stack_part(stack, "md", part);
	md_find(part, &array);
	if (*array.node)
		md_take_read_errors(array.device, MD_READ_ERRORS);
	md_free(&array);
}

/* ------------------------------------------------------------------ those that return */

#define TRIES 50
#define TRY_US 100000u

/* Its device is gone, or shows nothing: what md keeps of it may be in the way of the same disk, which is another device now. */
static bool is_gone(const struct md_array *array, const struct md_disk *disk)
{
	bool readable;

	if (!*disk->node)
		return true;
	return disk->role == MD_FAILED && !md_is_leg(disk->node, array->super[0].array, &readable) && !readable;
}

/* md takes one that has failed out of its place a moment later. */
static void forget_disk(const struct md_array *array, const char *name)
{
	for (int i = 0; i < TRIES; i++) {
		struct md_disks disks;
		bool placed = false;

		if (!md_disks(array->device, &disks))
			return;
		for (size_t k = 0; k < disks.number; k++)
			placed |= !strcmp(disks.disk[k].name, name) && disks.disk[k].place >= 0;
		if (!placed)
			break;
		usleep(TRY_US);
	}
	md_remove(array->node, name, false);
}

static void forget_gone(const struct md_array *array, const struct md_disks *disks)
{
	for (size_t i = 0; i < disks->number; i++) {
		const struct md_disk *disk = &disks->disk[i];

		if (is_gone(array, disk) && (disk->role == MD_FAILED || !md_fail(array->node, disk->name, false)))
			forget_disk(array, disk->name);
	}
}

static void drop_gone(const struct md_array *array, struct md_disks *disks)
{
	size_t kept = 0;

	for (size_t i = 0; i < disks->number; i++)
		if (!is_gone(array, &disks->disk[i]))
			disks->disk[kept++] = disks->disk[i];
	disks->number = kept;
}

static bool has_copy(const struct md_array *array, size_t leg)
{
	for (size_t i = 0; i < array->number; i++)
		if (i != leg && !memcmp(array->super[i].own, array->super[leg].own, 16))
			return true;
	return false;
}

/* One line of whom it leaves. */
static int refuse_return(const struct stack *stack, const struct md_array *array, size_t leg, enum md_return verdict)
{
	const char *why = md_return_reason(verdict);
	char usage[PATH_MAX], disk[64];
	uint8_t own[16];

	if (!*stack->integrity || !leg_of_device(array->leg_number[leg], own, disk) || !*disk)
		snprintf(disk, sizeof(disk), "%s", array->leg[leg]);
	if (has_copy(array, leg))
		why = "has its superblock twice: one is a copy (dd, a snapshot?)";
	else if (!why && device_usage(array->leg_number[leg], usage, sizeof(usage)))
		return complain(LARDER_BUSY, "%s: is a disk of the array of %s, and not taken back: in use: %s; release it first", disk, stack->name, usage);
	else if (!why && !claim_leg_is_ours(array->leg[leg], true))
		return LARDER_UNSAFE;
	if (!why)
		return LARDER_DONE;
	return complain(LARDER_UNSAFE, "%s: is not taken back into the array of %s: it %s; larder replace %s diskN %s --wipe makes it a disk of that, and what is on it is LOST", disk,
			stack->name, why, stack->name, disk);
}

/* The newest that may, and is not among those that were tried; -1: none. */
static int choose_return(const struct stack *stack, const struct md_array *array, const struct md_disks *disks, uint64_t *tried, int *result)
{
	struct md_now now;
	int best = -1;

	md_now(array, disks, &now);
	for (size_t i = 0; i < array->number; i++) {
		enum md_return verdict = md_return(&array->super[i], &now);
		int refused;

		if (*tried >> i & 1 || verdict == MD_RETURN_UNNEEDED || md_has(disks, array, i))
			continue;
		refused = refuse_return(stack, array, i, verdict);
		*result = *result ? *result : refused;
		if (refused)
			*tried |= UINT64_C(1) << i;
		else if (best < 0 || md_return_before(&array->super[i], &array->super[best]))
			best = (int)i;
	}
	return best;
}

/* Of this disk alone, which may have returned while nobody started its leg; of a copy it is not known which of the two is meant.  Complains. */
static int start_returned(const struct stack *stack, const char *disk)
{
	struct members members;
	struct stat status;
	int result = LARDER_DONE;

	if (!*stack->integrity || stat(disk, &status) || !S_ISBLK(status.st_mode))
		return LARDER_DONE;
	members_scan(&members);
	for (size_t i = 0; !result && i < members.number; i++)
		if (members.member[i]->number == status.st_rdev && leg_is_of(&members.member[i]->sb, stack->uuid))
			result = start_member(stack->name, &members, i, 0);
	members_free(&members);
	return result;
}

/* All but this one are taken for tried.  Complains. */
static int only_leg(const struct stack *stack, const struct md_array *array, const char *disk, uint64_t *tried)
{
	char *node = stack_disk_for_md(stack, disk);
	struct stat status;
	int result = LARDER_DONE;

	*tried = UINT64_MAX;
	if (stat(node, &status) || !S_ISBLK(status.st_mode))
		result = complain(LARDER_NOT_FOUND, "--take-back: %s: no such disk", disk);
	for (size_t i = 0; !result && i < array->number; i++)
		if (array->leg_number[i] == status.st_rdev)
			*tried &= ~(UINT64_C(1) << i);
	if (!result && !~*tried)
		result = complain(LARDER_UNSAFE, "--take-back: %s: was no disk of the array of %s; larder replace %s diskN %s makes it one", disk, stack->name, stack->name, disk);
	free(node);
	return result;
}

uint64_t joins_soon(const struct stack *stack, dev_t array)
{
	uint64_t before;
	uint8_t part[16];

	stack_part(stack, "volume", part);
	before = returned_since(part);
	returned_set(part, before | md_lacks(array));
	return before;
}

void joins_no_more(const struct stack *stack, uint64_t before)
{
	uint8_t part[16];

	stack_part(stack, "volume", part);
	returned_set(part, before);
}

/* The array is whole with it, and answers flushes too early: a disk that was unplugged has its cache on again. */
static void tell_of_write_cache(const struct stack *stack, const struct md_array *array, int leg)
{
	const char *const disk = array->leg[leg];

	if (md_is_logged(array->device) && md_has_volatile_cache(&disk, 1))
		remark("%s: has a volatile write cache, and the array of %s a log of its parity (PPL), with which md answers a flush before its disks have written: what fsync "
		       "took for safe may be gone behind a power cut; hdparm -W 0 %s; larder doctor says what else helps", disk, stack->name, disk);
}

static int take_back(const struct stack *stack, const struct md_array *array, int leg, bool *all)
{
	uint64_t before = joins_soon(stack, array->device);
	int result = md_take_back(array->node, array->leg[leg], all);

	if (result)
		joins_no_more(stack, before);
	else
		tell_of_write_cache(stack, array, leg);
	return result;
}

int legs_take_back(const struct stack *stack, const char *disk)
{
	int result = LARDER_DONE, next, error;
	struct md_disks disks, here;
	struct md_array array;
	uint64_t tried = 0;
	uint8_t part[16];
	bool whole, all, any = false;

	if (!*stack->raid || !strcmp(stack->raid, "0"))
		return LARDER_DONE;
	if (disk)
		result = start_returned(stack, disk);
	if (result)
		return result;
	stack_part(stack, "md", part);
	md_find(part, &array);
	if (disk)
		result = only_leg(stack, &array, disk, &tried);
	/* their superblocks as they were found: what becomes of one that returns says nothing of the others */
	while (*array.node && md_disks(array.device, &disks)) {
		here = disks;
		drop_gone(&array, &here);
		next = choose_return(stack, &array, &here, &tried, &result);
		if (next < 0)
			break;
		tried |= UINT64_C(1) << next;
		any = true;
		all = whole = md_returns_whole(&array, (size_t)next);
		forget_gone(&array, &disks);
		error = take_back(stack, &array, next, &all);
		result = result ? result : error;
		if (!error)
			printf("%s: %s is taken back into its array, and %s%s\n", stack->name, array.leg[next], all ? "all is copied to it" : "gets what it lacks",
			       whole ? MD_RETURN_WHY_ALL : "");
	}
	if (disk && !result && !any)
		remark("%s: is in the array of %s already, or that does not lack it", disk, stack->name);
	md_free(&array);
	return result;
}

bool stack_disks(const struct stack *stack, dev_t array, struct md_disks *disks)
{
	bool there = md_disks(array, disks);
	struct device device;
	uint8_t leg[16];
	char node[64];

	for (size_t i = 0; there && *stack->integrity && i < disks->number; i++) {
		struct md_disk *disk = &disks->disk[i];

		if (!*disk->node || !leg_of_device(disk->number, leg, node) || device_try(&device, node))
			continue;
		memcpy(disk->node, node, sizeof(disk->node));
		disk->number = device.number;
		device_close(&device);
	}
	return there;
}

char *stack_disk_for_md(const struct stack *stack, const char *disk)
{
	uint8_t leg[16];

	return *stack->integrity && leg_of_disk(disk, stack->uuid, leg) ? leg_node(leg) : must_print("%s", disk);
}
