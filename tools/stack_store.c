// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The description of a stack: writing it, and the list of stacks on the SSDs; whose they are.
 *
 * It is in the superblock of the volume and in those of all SSDs of its cache; the one with the highest generation counts.  Superblocks of what runs are
 * the kernel's: it is told by a message.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "claim.h"
#include "message.h"
#include "running.h"
#include "set.h"
#include "stack_age.h"
#include "stack_room.h"
#include "stack_store.h"
#include "status.h"

/* ------------------------------------------------------------------ a superblock */

static char *hex(const uint8_t field[static LARDER_STACK_SIZE])
{
	size_t used = LARDER_STACK_SIZE;
	char *text, *at;

	while (used && !field[used - 1])
		used--;
	if (!used)
		return must_print("stack -");
	at = text = must_allocate(malloc(strlen("stack ") + 2 * used + 1));
	at += sprintf(at, "stack ");
	for (size_t i = 0; i < used; i++)
		at += sprintf(at, "%02x", field[i]);
	return text;
}

static int send(const struct mapped *mapped, const uint8_t field[static LARDER_STACK_SIZE])
{
	char *message = hex(field);
	int result = mapped_message(mapped->target, message);

	free(message);
	return result;
}

struct stack_change {
	const struct member *member;
	const uint8_t *field;
	const char *label; /* NULL: as it is */
};

static int change_stack(union superblock *sb, bool *write, void *data)
{
	const struct stack_change *change = data;

	(void)write;
	if (memcmp(sb->head.uuid, change->member->sb.head.uuid, 16))
		return complain(LARDER_UNSAFE, "%s: uuid: is another device than a moment ago; nothing was written to it", change->member->path);
	memcpy(le32toh(sb->head.kind) == LARDER_KIND_CACHE ? sb->cache.stack : sb->volume.stack, change->field, LARDER_STACK_SIZE);
	if (change->label) {
		memset(sb->cache.label, 0, LARDER_LABEL_SIZE); /* it lies at the same place in both */
		memcpy(sb->cache.label, change->label, strlen(change->label));
	}
	return LARDER_DONE;
}

/* The superblock of a member that does not run: field, and label, unless NULL, in one write.  Not *written: it is somebody else's by now. */
static int write_member(const struct member *m, const uint8_t field[static LARDER_STACK_SIZE], const char *label, bool *written)
{
	struct stack_change change = { m, field, label };

	return claim_change(m->path, le32toh(m->sb.head.kind), m->sb.head.uuid, change_stack, &change, written);
}

/* ------------------------------------------------------------------ the volume */

/* What the SSDs were told, and the volume was not, would be half a change; and what is older would be the newest by it. */
static int check_volume(const struct stacks *stacks, const struct stack *stack)
{
	const struct member *m;
	uint8_t part[16];
	int result;

	stack_part(stack, "volume", part);
	m = member_volume(&stacks->members, part);
	if (!m || running_by_uuid(&stacks->list, part, false) || stack->state == STACK_REMOVING)
		return LARDER_DONE;
	result = claim_check(m->path, LARDER_KIND_VOLUME, part);
	return result ? result : volume_check_age(&stacks->members, m);
}

/* *written: it is there, and has it. */
static int store_volume(const struct stacks *stacks, const struct stack *stack, const char *label, bool *written)
{
	uint8_t part[16], field[LARDER_STACK_SIZE];
	const struct mapped *running;
	const struct member *m;
	const char *why;
	int result;

	*written = false;
	stack_part(stack, "volume", part);
	m = member_volume(&stacks->members, part);
	running = running_by_uuid(&stacks->list, part, false);
	if (!m && !running)
		return LARDER_DONE;
	why = stack_encode(stack, field);
	if (why)
		return complain(LARDER_FAILED, "%s: %s", stack->name, why);
	result = running ? send(running, field) : write_member(m, field, label, written);
	*written = !result && (running || *written);
	/* what is removed does without it */
	return result || *written || stack->state == STACK_REMOVING ? result : LARDER_UNSAFE;
}

/* ------------------------------------------------------------------ the list on the SSDs */

/* Of two SSDs of one cache.  Each counts its own writes: first by the set that it knows, or one that left it long ago would come before. */
static bool is_newer(const struct member *a, const struct member *b)
{
	uint64_t x = le64toh(a->sb.cache.set_generation) >> 32, y = le64toh(b->sb.cache.set_generation) >> 32;

	return x != y ? x > y : le64toh(a->sb.head.generation) > le64toh(b->sb.head.generation);
}

const struct member *stack_newest_ssd(const struct members *members, const uint8_t cache[16])
{
	const struct member *newest = NULL;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, cache, 16) &&
		    (!newest || is_newer(m, newest)) && !claim_is_others(m->path))
			newest = m;
	}
	return newest;
}

static int newest_list(const struct members *members, const uint8_t cache[16], struct stack_list *list)
{
	const struct member *newest = stack_newest_ssd(members, cache);
	const char *why;
	bool there;

	list->number = 0;
	if (!newest)
		return LARDER_DONE;
	why = stack_list_decode(newest->sb.cache.stack, list, &there);
	return why ? complain(LARDER_FAILED, "%s: %s", newest->path, why) : LARDER_DONE;
}

int stack_list_read(const uint8_t cache[16], struct stack_list *list)
{
	struct members members;
	int result;

	members_scan(&members);
	result = newest_list(&members, cache, list);
	members_free(&members);
	return result;
}

/* What the list says that its volume has had. */
static uint64_t seen_in(const struct stack_list *list, const struct stack *stack)
{
	for (size_t i = 0; i < list->number; i++)
		if (list->brief[i] && !memcmp(list->stack[i].uuid, stack->uuid, 16))
			return list->stack[i].generation;
	return 0;
}

enum listing {
	LIST_DROP,
	LIST_PUT, /* of one that is ready with the generation that its volume was seen with before */
	LIST_SEEN, /* its volume has this generation, durably; never a lower one than it had */
};

/*
 * To all SSDs of a cache.  label: of it from now on, if it does not run; NULL: as it is.  What is put back from an image stays what it is: a superblock
 * that is written would make it as new as the others.
 */
static int store_field(const struct stacks *stacks, const uint8_t cache[16], const uint8_t field[static LARDER_STACK_SIZE], const char *label)
{
	const struct mapped *running = running_by_uuid(&stacks->list, cache, true);
	struct larder_table *table;
	int result = LARDER_DONE;
	bool written, known;

	if (running)
		return send(running, field);
	table = must_allocate(malloc(sizeof(*table)));
	known = set_newest_table(&stacks->members, cache, table);
	for (size_t i = 0; !result && i < stacks->members.number; i++) {
		const struct member *m = stacks->members.member[i];

		if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, cache, 16) &&
		    !(known && set_remark_older(&stacks->members, table, m, "; what its superblock says of stacks stays")))
			result = write_member(m, field, label, &written);
	}
	free(table);
	return result;
}

/* The field with a label, or options; longer ones may leave no room for what `remove` writes there. */
static int encode_list(const struct stacks *stacks, const uint8_t cache[16], const struct stack_list *list, const char *what, const char *text, bool longer,
		       uint8_t field[static LARDER_STACK_SIZE])
{
	const char *why = stack_list_encode(list, field), *whose = why || !longer ? NULL : stack_list_lacks_room(stacks, cache, list);
	char uuid[UUID_TEXT];

	if (why)
		return complain(LARDER_FAILED, "%s: %s: %s, with '%s'; shorter, or fewer stacks", uuid_text(cache, uuid), what, why, text);
	if (whose)
		return complain(LARDER_FAILED, "%s: %s: with '%s' the list of stacks on its SSDs, of 2 KiB, has no room to remove %s some day; shorter, or fewer stacks",
				uuid_text(cache, uuid), what, text, whose);
	return LARDER_DONE;
}

/* Where that is in a list. */
typedef char *list_text(struct stack_list *list, uint32_t place);

static int store_text(const uint8_t cache[16], list_text *where, uint32_t place, const char *what, const char *text, bool dry_run)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	if (result) {
		free(list);
		return result;
	}
	result = newest_list(&stacks.members, cache, list);
	if (!result && strcmp(where(list, place), text)) {
		bool longer = strlen(text) > strlen(where(list, place));

		strcpy(where(list, place), text);
		result = encode_list(&stacks, cache, list, what, text, longer, field);
		if (!result && !dry_run)
			result = store_field(&stacks, cache, field, NULL);
	}
	stacks_free(&stacks);
	free(list);
	return result;
}

static char *label_in(struct stack_list *list, uint32_t place)
{
	return list->label[place];
}

static char *options_in(struct stack_list *list, uint32_t place)
{
	(void)place;
	return list->options;
}

int stack_list_store_label(const uint8_t cache[16], uint32_t place, const char *label, bool dry_run)
{
	return store_text(cache, label_in, place, "label", label, dry_run);
}

int stack_list_store_options(const uint8_t cache[16], const char *options, bool dry_run)
{
	return store_text(cache, options_in, 0, "options", options, dry_run);
}

/* label: as in store_field() */
static int store_ssds(const struct stacks *stacks, const struct stack *stack, enum listing how, const char *label)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	struct stack listed = stack_listed(stack);
	const char *why = NULL;
	int result = newest_list(&stacks->members, stack->cache, list);
	uint64_t seen = seen_in(list, stack);

	if (stack->state == STACK_READY && (how == LIST_PUT || seen > listed.generation))
		listed.generation = seen;
	if (!result && how != LIST_DROP && !stack_list_put(list, &listed))
		why = "its cache has the most stacks that it can have";
	if (how == LIST_DROP)
		stack_list_drop(list, stack->uuid);
	if (!result)
		why = why ? why : stack_list_encode(list, field);
	free(list);
	if (!result && why)
		return complain(LARDER_FAILED, "%s: %s", stack->name, why);
	return result ? result : store_field(stacks, stack->cache, field, label);
}

/* ------------------------------------------------------------------ both */

static int store(struct stack *stack, const char *volume_label, const char *cache_label)
{
	struct stacks stacks;
	bool written;
	int result = stacks_scan(&stacks);

	stack->generation = stack_raise(stack->generation, 1);
	result = result ? result : check_volume(&stacks, stack);
	/* what comes second may be lost, and the first has the higher generation */
	result = result ? result : store_ssds(&stacks, stack, LIST_PUT, cache_label);
	result = result ? result : store_volume(&stacks, stack, volume_label, &written);
	stacks_free(&stacks);
	/* last, or a power cut would leave a volume that is older than its SSDs say */
	return result || !written || stack->state != STACK_READY ? result : stack_store_ssds(stack, true);
}

int stack_store(struct stack *stack)
{
	return store(stack, NULL, NULL);
}

int stack_store_note(struct stack *stack)
{
	const struct mapped *cache;
	struct stacks stacks;
	static bool said;
	bool alone, written;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	cache = running_by_uuid(&stacks.list, stack->cache, true);
	alone = stack->state == STACK_READY && cache && !status_is(cache->status, "state", "running");
	if (alone) {
		stack->generation = stack_raise(stack->generation, 1);
		result = store_volume(&stacks, stack, NULL, &written);
		if (!result && !said)
			remark("%s: its disks alone have this: its SSDs are not told, as its cache takes no message", stack->name);
		said |= !result;
	}
	stacks_free(&stacks);
	return alone ? result : stack_store(stack);
}

int stack_store_name(struct stack *stack)
{
	return store(stack, stack->name, stack->own_cache == OWN_CACHE ? stack->name : NULL);
}

/* Only the SSDs. */
static int store_list(const struct stack *stack, enum listing how)
{
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	result = result ? result : store_ssds(&stacks, stack, how, NULL);
	stacks_free(&stacks);
	return result;
}

int stack_store_ssds(const struct stack *stack, bool seen)
{
	return store_list(stack, seen ? LIST_SEEN : LIST_PUT);
}

static int take_older(union superblock *sb, bool *write, void *data)
{
	const struct stack *stack = data;
	uint8_t part[16], cache[16];
	const char *why = stack_encode(stack, sb->volume.stack);
	int result;

	stack_part(stack, "volume", part);
	if (why || memcmp(sb->head.uuid, part, 16))
		return complain(LARDER_FAILED, "%s: %s", stack->name, why ? why : "uuid: its volume is another device now");
	*write = true;
	memcpy(cache, sb->volume.cache_uuid, 16);
	/* the half that had all that was written since may be used in the same way some day, with the same cache */
	result = superblock_leave_cache(sb);
	memcpy(sb->volume.cache_uuid, cache, 16);
	sb->volume.set_generation = 0;
	return result;
}

int stack_take_older(struct stack *stack, bool *stored)
{
	const struct member *volume;
	struct superblocks found;
	struct members members;
	struct device device;
	uint8_t part[16];
	uint64_t seen;
	bool ours;
	char *lags;
	int result = LARDER_DONE;

	*stored = false;
	stack_part(stack, "volume", part);
	members_scan(&members);
	volume = member_volume(&members, part);
	seen = stack_seen(&members, stack->uuid);
	lags = volume ? cache_too_old(&members, volume, stack) : NULL;
	if (!volume)
		result = complain(LARDER_NOT_FOUND, "%s: its disks are not here", stack->name);
	else if (seen > stack->generation || lags || volume_seen_later(&members, volume)) {
		stack->generation = stack_raise(seen > stack->generation ? seen : stack->generation, 1);
		result = claim_member(&device, &found, volume->path, LARDER_KIND_VOLUME, part, &ours);
		if (!result && ours) {
			superblocks_free(&found);
			result = superblock_change(&device, take_older, stack);
			*stored = !result;
			device_close(&device);
		} else if (!result) {
			result = LARDER_UNSAFE;
		}
	}
	free(lags);
	members_free(&members);
	return result;
}

int stack_forget(const struct stack *stack)
{
	return store_list(stack, LIST_DROP);
}

/* ------------------------------------------------------------------ another machine's */

static int look_elsewhere(const struct members *members, const struct stack *stack, bool *elsewhere)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	int result = newest_list(members, stack->cache, list);

	*elsewhere = stack_is_foreign(stack) || (!result && list->number && stack_host_is_foreign(list->host));
	free(list);
	return result;
}

int stack_elsewhere(const struct stack *stack, bool *elsewhere)
{
	struct members members;
	int result;

	members_scan(&members);
	result = look_elsewhere(&members, stack, elsewhere);
	members_free(&members);
	return result;
}

static int check_machine(const struct stacks *stacks, const struct stack *stack)
{
	struct md_array array = { 0 };
	uint8_t part[16];
	bool elsewhere;
	int result = look_elsewhere(&stacks->members, stack, &elsewhere);

	if (!result && elsewhere)
		result = complain(LARDER_UNSAFE, "%s: is another machine's; if that does not use it any more: larder start --import %s takes it over",
				  stack->name, stack->name);
	if (result)
		return result;
	stack_part(stack, "md", part);
	if (*stack->raid)
		md_find(part, &array);
	result = stack_check_copies(stacks, stack, &array);
	md_free(&array);
	return result;
}

int stack_check_machine(const struct stack *stack)
{
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	result = check_machine(&stacks, stack);
	stacks_free(&stacks);
	return result;
}

int stack_check_ready(const struct stacks *stacks, const struct stack *stack)
{
	if (stack->state != STACK_READY)
		return complain(LARDER_UNSAFE, "%s: is half made, or being removed; see larder show %s", stack->name, stack->name);
	return check_machine(stacks, stack);
}

int stack_named_cache(const struct stacks *stacks, const char *name, const struct member **member)
{
	struct stack_list *list;
	int result = member_find((struct members *)&stacks->members, name, LARDER_KIND_CACHE, member);

	if (result)
		return result;
	list = must_allocate(calloc(1, sizeof(*list)));
	result = stack_list_read((*member)->sb.cache.cache_uuid, list);
	if (!result && list->number && stack_host_is_foreign(list->host))
		result = complain(LARDER_UNSAFE, "%s: the cache is another machine's; if that does not use it any more: larder start --import %s first",
				  name, list->stack[0].name);
	free(list);
	return result;
}

int stack_check_cache(const struct member *volume, const uint8_t cache[16])
{
	struct stack stack;
	char text[UUID_TEXT];
	bool there;

	/* one that cannot be read is judged by whoever starts it */
	if (stack_decode(volume->sb.volume.stack, &stack, &there) || !there || !memcmp(stack.cache, cache, 16))
		return LARDER_DONE;
	return complain(LARDER_UNSAFE,
			"%s: stack: is the volume of %s, whose cache is %s: with another one larder start %s would refuse it; larder stop %s, larder replace %s cache ... "
			"gives the stack another one",
			volume->path, stack.name, uuid_text(stack.cache, text), stack.name, stack.name, stack.name);
}
