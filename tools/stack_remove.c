// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder remove: a stack goes, from above, and the devices carry nothing of it afterwards.
 *
 * What can be refused (it is in use) comes before anything is given up; then the state `removing` is durable on the SSDs, so that
 * whatever is cut short from here on is gone on with by the same command.  The description on the SSDs goes last: while it is there,
 * the other parts are found by the UUIDs that follow from its own.  Every part may be there or not.
 *
 * A stack whose disks are gone for good has an entry on the SSDs of its cache alone, which says no more than its name and UUID: that goes, with what
 * the cache holds of it, and the cache stays, as nobody knows whether it was made with it.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "claim.h"
#include "fstab.h"
#include "hanging.h"
#include "integrity.h"
#include "running.h"
#include "set.h"
#include "stack_age.h"
#include "stack_legs.h"
#include "stack_paths.h"
#include "stack_steps.h"
#include "stack_store.h"
#include "stacks.h"
#include "status.h"
#include "turn.h"
#include "verbs.h"

/* old: it is what a disk that had left it knows (stack_age.h). */
static bool has_data(const struct stack *stack, bool old)
{
	return old || stack->state == STACK_READY || (stack->state == STACK_CREATING && stack->step >= STEP_FILESYSTEM);
}

static int check_word(const struct stack *stack, bool old, const char *discard)
{
	char text[UUID_TEXT];
	uint8_t given[16];

	if (discard && (uuid_parse(discard, given) || memcmp(given, stack->uuid, 16)))
		return complain(LARDER_UNSAFE, "%s: --discard-data: the stack is %s, not %s; nothing was removed", stack->name,
				uuid_text(stack->uuid, text), discard);
	if (!discard && has_data(stack, old))
		return complain(LARDER_UNSAFE, "%s: all that is in it will be LOST with --discard-data %s", stack->name,
				uuid_text(stack->uuid, text));
	return LARDER_DONE;
}

/* An SSD of that cache which nobody else has by now; NULL: none is here. */
static const struct member *find_ssd(const struct members *members, const uint8_t cache[16])
{
	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, cache, 16) && !claim_is_others(m->path))
			return m;
	}
	return NULL;
}

/* Nobody knows then whose newest data it has. */
static int refuse_unreadable(const struct stack *stack, const struct member *ssd)
{
	char uuid[UUID_TEXT];

	uuid_text(stack->cache, uuid);
	return complain(LARDER_UNSAFE,
			"%s: table: the volumes of the cache %s cannot be read, so it may hold dirty data of others; if it does not, or that may be LOST: "
			"larder super wipe --discard-dirty %s with each of its SSDs, then larder remove %s",
			ssd->path, uuid, uuid, stack->name);
}

int cache_is_shared(const struct stack *stack, bool *shared)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	struct larder_table *table = must_allocate(calloc(1, sizeof(*table)));
	const struct member *ssd;
	struct members members;
	uint8_t part[16];
	int result = stack_list_read(stack->cache, list);

	*shared = !stack->own_cache;
	for (size_t i = 0; i < list->number; i++)
		*shared |= memcmp(list->stack[i].uuid, stack->uuid, 16) != 0;
	stack_part(stack, "volume", part);
	members_scan(&members);
	ssd = find_ssd(&members, stack->cache);
	if (set_newest_table(&members, stack->cache, table))
		for (uint32_t i = 0; i < le32toh(table->head.nr_volumes) && i < LARDER_MAX_VOLUMES; i++)
			*shared |= le32toh(table->volumes[i].state) == LARDER_VOLUME_ATTACHED &&
				   memcmp(table->volumes[i].uuid, part, 16) != 0;
	else if (ssd && !*shared && !result)
		result = refuse_unreadable(stack, ssd);
	members_free(&members);
	free(table);
	free(list);
	return result;
}

/* The LUKS header went through the cache, too. */
static void discard_segments(const struct device *device, const struct larder_cache_sb *sb)
{
	int error = device_discard(device, le64toh(sb->segments_offset), (uint64_t)le32toh(sb->nr_segments) * le32toh(sb->segment_size));

	if (error)
		remark("%s: its segments cannot be discarded: %s; what was cached, the LUKS header among it, stays there until it is overwritten",
		       device->path, strerror(-error));
}

/* The head of a volume is where the LUKS header is. */
static int zero_head(const struct device *device, const struct larder_volume_sb *sb)
{
	uint64_t from = le64toh(sb->data_offset), room = (device->bytes - from) & ~4095ull;

	return device_zero(device, from, LUKS_HEADER < room ? LUKS_HEADER : room);
}

/*
 * Overwrites the superblocks of a member, and (keys) what may hold the LUKS header.  That is done with, or was never there, where a power cut left
 * a copy and nothing in the main one's place.  What is somebody else's by now stays as it is, and is counted (left).
 */
static int erase(const struct member *m, bool keys, unsigned *left)
{
	uint32_t kind = le32toh(m->sb.head.kind);
	struct superblocks found;
	struct device device;
	struct leg_fields fields;
	bool ours;
	int error = 0, result = claim_member(&device, &found, m->path, kind, m->sb.head.uuid, &ours);

	*left += !result && !ours;
	if (result || !ours)
		return result;
	keys &= found.main.error || found.main.magic;
	if (keys && kind == LARDER_KIND_VOLUME)
		error = zero_head(&device, &found.chosen->sb->volume);
	else if (keys && kind == LARDER_KIND_CACHE)
		discard_segments(&device, &found.chosen->sb->cache);
	if (leg_is(&m->sb, &fields)) /* what was written last is in the journal, too */
		error = device_zero(&device, LEG_OFFSET, leg_head(device.bytes));
	/* durable before the superblock goes, without which the next try takes it for done */
	error = error ? error : device_sync(&device);
	error = error ? error : superblocks_erase(&device, &found);
	superblocks_free(&found);
	device_close(&device);
	return error ? complain(LARDER_FAILED, "%s: cannot overwrite its superblock: %s", m->path, strerror(-error)) : LARDER_DONE;
}

/* What went on after a reboot finds the disks of an array that nobody has assembled: superblock and LUKS header are in that. */
static void show_volume(const struct stack *stack)
{
	struct md_array array = { 0 };
	bool waits;
	uint8_t part[16];

	stack_part(stack, "md", part);
	if (*stack->integrity && stack->step >= STEP_ARRAY)
		start_legs(stack->name, stack->uuid, START_DEGRADED);
	if (*stack->raid)
		md_find(part, &array);
	waits = array.number && !*array.node;
	md_free(&array);
	if (waits && start_array(stack, START_DEGRADED))
		remark("%s: its array cannot be started: what is in it, %sstays on its disks%s", stack->name,
		       stack->encrypted ? "the LUKS header among it, " : "", stack->encrypted ? ", for whoever has a key" : "");
}

static int erase_volume(const struct stack *stack, unsigned *left)
{
	const struct member *m;
	struct members members;
	uint8_t part[16];
	int result;

	stack_part(stack, "volume", part);
	members_scan(&members);
	m = member_volume(&members, part);
	result = m ? erase(m, stack->encrypted, left) : LARDER_DONE;
	members_free(&members);
	return result;
}

/* That which create made of itself: with it, and the passphrase, what is left on the disks could be read. */
static int forget_backup(const struct stack *stack)
{
	char *path = stack_backup_path(stack, NULL);
	int result = path ? luks_forget_backup(path) : LARDER_DONE;

	free(path);
	return result;
}

static bool is_marked(const struct member *m, const struct stack *stack)
{
	bool marked = leg_is_of(&m->sb, stack->uuid);
	uint8_t uuid[16];

	for (uint32_t i = 0; !marked && i < stack->legs + stack->spares; i++) {
		char part[32];

		snprintf(part, sizeof(part), "disk %u", i);
		stack_part(stack, part, uuid);
		marked = !memcmp(m->sb.head.uuid, uuid, 16);
	}
	return marked;
}

/* The marks of disks that never became a part of a stack, and those of legs, which stay. */
static int erase_marks(const struct members *members, const struct stack *stack, unsigned *left)
{
	int result = LARDER_DONE;

	for (size_t i = 0; !result && i < members->number; i++)
		if (is_marked(members->member[i], stack))
			result = erase(members->member[i], false, left);
	return result;
}

/* The array, and the marks: also of the stacks that were to be made behind this one. */
static int erase_disks(const struct stack *stack, unsigned *left)
{
	struct stack marked = *stack;
	struct members members;
	struct md_array array;
	uint8_t uuid[16];
	int result = stop_array(stack);

	stack_part(stack, "md", uuid);
	md_find(uuid, &array);
	for (size_t i = 0; !result && i < array.number; i++) {
		bool ours = claim_leg_is_ours(array.leg[i], true);

		*left += !ours;
		result = ours ? md_erase(array.leg[i]) : LARDER_DONE;
	}
	md_free(&array);
	members_scan(&members);
	do
		result = result ? result : erase_marks(&members, &marked, left);
	while (stack_next(&marked, &marked));
	members_free(&members);
	return result;
}

/* A cache that stays drops what it holds of the volume. */
static int leave_cache(const struct stack *stack)
{
	struct larder_table *table = must_allocate(calloc(1, sizeof(*table)));
	bool known = false;
	struct stacks stacks;
	uint8_t part[16];
	char text[UUID_TEXT];
	int result;

	stack_part(stack, "volume", part);
	if (!stack_cache_here(stack)) {
		remark("%s: its cache is not here, and is told nothing; should it come back, started: dmsetup message /dev/mapper/" CACHE_PREFIX
		       "NAME 0 forget %s discard_dirty",
		       stack->name, uuid_text(part, text));
		return LARDER_DONE;
	}
	result = start_cache(stack, START_IMPORT);
	result = result ? result : stacks_scan(&stacks);
	if (!result) {
		const struct mapped *cache = running_by_uuid(&stacks.list, stack->cache, true);
		char *message = must_print("forget %s discard_dirty", uuid_text(part, text));

		if (set_newest_table(&stacks.members, stack->cache, table))
			for (uint32_t i = 0; i < le32toh(table->head.nr_volumes) && i < LARDER_MAX_VOLUMES; i++)
				known |= le32toh(table->volumes[i].state) == LARDER_VOLUME_ATTACHED &&
					 !memcmp(table->volumes[i].uuid, part, 16);
		if (cache && known)
			result = mapped_message(cache->name, message);
		free(message);
		stacks_free(&stacks);
	}
	free(table);
	return result ? result : stack_forget(stack);
}

static int erase_cache(const struct stack *stack, unsigned *left)
{
	struct members members;
	int result = stop_cache(stack);

	members_scan(&members);
	/* the description, which is on the SSDs, last */
	for (int spare = 1; spare >= 0; spare--)
		for (size_t i = 0; !result && i < members.number; i++) {
			const struct member *m = members.member[i];

			if (le32toh(m->sb.head.kind) != (spare ? LARDER_KIND_SPARE : LARDER_KIND_CACHE) ||
			    memcmp(m->sb.cache.cache_uuid, stack->cache, 16))
				continue;
			result = erase(m, stack->encrypted, left);
		}
	members_free(&members);
	return result;
}

/* One that has failed takes no message, neither of the description nor of what it is to forget: superblocks of one that does not run are ours. */
static int quiet_cache(const struct stack *stack, bool shared)
{
	const struct mapped *cache;
	struct stacks stacks;
	int result = shared ? stacks_scan(&stacks) : stop_cache(stack);

	if (result || !shared)
		return result;
	cache = running_by_uuid(&stacks.list, stack->cache, true);
	if (cache && !status_is(cache->status, "state", "running"))
		result = complain(LARDER_BUSY, "%s: its cache %s, which others use, has failed, and cannot be told to forget it; larder cache status %s says what mends it; or stop all that uses it, and it, then larder remove %s",
				  stack->name, cache->name, cache->name, stack->name);
	stacks_free(&stacks);
	return result;
}

static int remove_stack(struct stack *stack)
{
	unsigned left = 0;
	bool shared;
	int result = stop_check(stack);

	result = result ? result : stop_mount(stack);
	/* others had their turn: a snapshot, say */
	result = result ? result : stack_check_same(stack);
	result = result ? result : stop_crypt(stack);
	result = result ? result : stop_volume(stack);
	result = result ? result : cache_is_shared(stack, &shared);
	result = result ? result : quiet_cache(stack, shared);
	/* first: a boot would wait for what nobody starts any more */
	result = result ? result : fstab_set(stack->uuid, NULL, NULL, NULL, 0);
	if (result && stack->state != STACK_REMOVING)
		return result;
	if (!result && stack->state != STACK_REMOVING) {
		stack->state = STACK_REMOVING;
		result = stack_store(stack);
	}
	if (!result)
		show_volume(stack);
	result = result ? result : erase_volume(stack, &left);
	result = result ? result : forget_backup(stack);
	result = result ? result : erase_disks(stack, &left);
	if (!result)
		result = shared ? leave_cache(stack) : erase_cache(stack, &left);
	if (result)
		remark("%s: is not removed yet; larder remove %s goes on", stack->name, stack->name);
	else
		printf("%s: removed%s%s\n", stack->name, shared ? "; its cache stays, as others use it" : "",
		       left ? "; what is somebody else's now was left as it is" : "");
	return result;
}

/* ------------------------------------------------------------------ of which there is an entry alone */

/* What cannot be read may be one of its disks. */
static int check_damaged(const struct stack *stack)
{
	uint8_t part[16];
	size_t number;
	const struct damaged *damaged = members_damaged(&number);

	stack_part(stack, "volume", part);
	for (size_t i = 0; i < number; i++)
		if (!damaged[i].known || !memcmp(damaged[i].uuid, part, 16))
			return complain(LARDER_UNSAFE,
					"%s: its superblock is not valid, and it may be a disk of %s; larder super check %s says why; if it is not, larder super wipe %s first",
					damaged[i].path, stack->name, damaged[i].path, damaged[i].path);
	if (!hanging_any())
		return LARDER_DONE;
	hanging_remark();
	return complain(LARDER_BUSY, "%s: what hangs may be one of its disks: try again when it answers, or is gone; nothing was removed", stack->name);
}

/* Are its disks gone, as far as can be seen?  discard: NULL: that is what is to be said. */
static int check_gone(const struct stacks *stacks, const struct stack *stack, const char *discard)
{
	int result = check_damaged(stack);
	struct md_array array;
	uint8_t part[16];
	char text[UUID_TEXT];

	stack_part(stack, "volume", part);
	if (running_by_uuid(&stacks->list, part, false))
		return complain(LARDER_BUSY, "%s: is started, though its disks cannot be read; larder stop %s first", stack->name, stack->name);
	stack_part(stack, "md", part);
	md_find(part, &array);
	if (array.number || *array.node || *array.inactive || stack_has_legs(&stacks->members, stack->uuid))
		result = complain(LARDER_NOT_FOUND, "%s: its volume is not here, and disks of its array are: larder start %s starts that", stack->name, stack->name);
	else if (!discard)
		result = complain(LARDER_NOT_FOUND,
				  "%s: its disks are not here; if they are gone for good: it is listed no more, and what its cache alone has of it is LOST, with --discard-data %s",
				  stack->name, uuid_text(stack->uuid, text));
	md_free(&array);
	return result;
}

static int remove_entry(const struct stack *stack)
{
	struct stack any = *stack;
	int result = quiet_cache(stack, true);

	any.encrypted = true; /* whether it was is not known */
	result = result ? result : fstab_set(stack->uuid, NULL, NULL, NULL, 0);
	result = result ? result : forget_backup(&any);
	result = result ? result : leave_cache(stack);
	if (result)
		remark("%s: is not removed yet; larder remove %s goes on", stack->name, stack->name);
	else
		printf("%s: removed; its cache stays\n", stack->name);
	return result;
}

int stack_remove(int argc, char **argv)
{
	static const char usage[] = "larder remove NAME [--discard-data UUID]";
	const char *discard = NULL;
	const struct argument arguments[] = {
		{ "discard-data", 0, ARGUMENT_TEXT, &discard, "UUID", "all that is in the stack with this UUID is LOST" }, ARGUMENTS_END
	};
	const struct found *found;
	struct stacks stacks;
	struct stack stack;
	bool old = false, gone = false;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	mapped_init(false);
	turn_take();
	result = stacks_scan(&stacks);
	result = result ? result : stack_find(&stacks, argv[first], &found);
	if (!result) {
		stack = found->stack;
		gone = !found->whole;
		if (gone)
			result = check_gone(&stacks, &stack, discard);
		old = stack_seen(&stacks.members, stack.uuid) > stack.generation;
	}
	stacks_free(&stacks);
	result = result ? result : stack_check_machine(&stack);
	result = result ? result : check_word(&stack, old, discard);
	if (!result && gone)
		return remove_entry(&stack);
	if (!result && stack.snapshots)
		result = complain(LARDER_BUSY, "%s: has snapshots; larder snapshot remove them first, see larder snapshot list %s", stack.name, stack.name);
	return result ? result : remove_stack(&stack);
}
