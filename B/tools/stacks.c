// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Stacks: finding them by what the superblocks of this machine's devices tell, and refusing those of whose devices there are copies.
 *
 * Of several descriptions of one stack that with the highest generation counts; who keeps them: stack_store.c.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uuid/uuid.h>

#include "device.h"
#include "hanging.h"
#include "integrity.h"
#include "message.h"
#include "snapshot.h"
#include "stacks.h"

/* ------------------------------------------------------------------ find */

struct found *stack_by_uuid(const struct stacks *stacks, const uint8_t uuid[16])
{
	for (size_t i = 0; i < stacks->number; i++)
		if (!memcmp(stacks->found[i].stack.uuid, uuid, 16))
			return &stacks->found[i];
	return NULL;
}

static struct found *entry(struct stacks *stacks, const uint8_t uuid[16])
{
	struct found *f = stack_by_uuid(stacks, uuid);

	if (f)
		return f;
	stacks->found = must_allocate(realloc(stacks->found, (stacks->number + 1) * sizeof(*stacks->found)));
	f = &stacks->found[stacks->number++];
	*f = (struct found){ 0 };
	memcpy(f->stack.uuid, uuid, 16);
	return f;
}

static void take_whole(struct found *f, const struct stack *stack)
{
	if (f->whole && f->stack.generation >= stack->generation)
		return;
	f->stack = *stack;
	f->whole = true;
}

static void take_volume(struct stacks *stacks, const struct member *m)
{
	uint8_t part[16];
	struct stack stack;
	struct found *f;
	bool there;
	const char *why = stack_decode(m->sb.volume.stack, &stack, &there);

	if (why)
		remark("%s: %s; see larder super show %s", m->path, why, m->path);
	if (why || !there)
		return;
	stack_part(&stack, "volume", part);
	if (memcmp(part, m->sb.head.uuid, 16)) {
		remark("%s: stack: is that of another volume; left alone", m->path);
		return;
	}
	f = entry(stacks, stack.uuid);
	take_whole(f, &stack);
	f->volume = m;
}

static void take_ssd(struct stacks *stacks, const struct member *m)
{
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	bool there;
	const char *why = stack_list_decode(m->sb.cache.stack, list, &there);

	if (why)
		remark("%s: %s; see larder super show %s", m->path, why, m->path);
	for (size_t i = 0; i < list->number; i++) {
		struct found *f = entry(stacks, list->stack[i].uuid);

		if (!list->brief[i]) {
			take_whole(f, &list->stack[i]);
		} else if (!f->whole) {
			f->stack = list->stack[i];
			memcpy(f->stack.cache, m->sb.cache.cache_uuid, 16);
		}
		f->cache = m;
	}
	free(list);
}

static void scan(struct stacks *stacks)
{
	members_scan(&stacks->members);
	for (size_t i = 0; i < stacks->members.number; i++) {
		const struct member *m = stacks->members.member[i];

		if (le32toh(m->sb.head.kind) == LARDER_KIND_VOLUME)
			take_volume(stacks, m);
		else if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE)
			take_ssd(stacks, m);
	}
	for (size_t i = 0; i < stacks->number; i++) {
		struct found *f = &stacks->found[i];

		if (!f->cache)
			f->cache = member_cache(&stacks->members, f->stack.cache);
	}
}

int stacks_scan(struct stacks *stacks)
{
	int result;

	*stacks = (struct stacks){ 0 };
	result = mapped_scan(&stacks->list);
	if (!result)
		scan(stacks);
	return result;
}

int stacks_look(struct stacks *stacks)
{
	int result;

	*stacks = (struct stacks){ 0 };
	result = snapshot_take(&stacks->list);
	if (result)
		return result;
	hanging_look(&stacks->list);
	scan(stacks);
	return LARDER_DONE;
}

void stacks_free(struct stacks *stacks)
{
	free(stacks->found);
	members_free(&stacks->members);
	mapped_list_free(&stacks->list);
	*stacks = (struct stacks){ 0 };
}

int stack_find(const struct stacks *stacks, const char *word, const struct found **found)
{
	uint8_t uuid[16];
	bool by_uuid = !uuid_parse(word, uuid);
	int code = LARDER_NOT_FOUND;
	char *why;

	*found = NULL;
	for (size_t i = 0; i < stacks->number; i++) {
		const struct found *f = &stacks->found[i];

		if (by_uuid ? memcmp(f->stack.uuid, uuid, 16) != 0 : strcmp(f->stack.name, word) != 0)
			continue;
		if (*found)
			return complain(LARDER_UNSAFE, "%s: two stacks have this name; give the UUID, see larder list -o name,uuid", word);
		*found = f;
	}
	if (*found)
		return LARDER_DONE;
	why = members_unseen(&code);
	complain(code, "%s: there is no such stack; see larder list%s", word, why);
	free(why);
	return code;
}

int stack_check_same(const struct stack *stack)
{
	const struct found *found;
	struct stacks stacks;
	char uuid[UUID_TEXT];
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	result = stack_find(&stacks, uuid_text(stack->uuid, uuid), &found);
	if (!result && (!found->whole || found->stack.generation != stack->generation))
		result = complain(LARDER_BUSY, "%s: was changed meanwhile; begin anew: larder show %s", stack->name,
				  stack->name);
	stacks_free(&stacks);
	return result;
}

/* ------------------------------------------------------------------ copies */

static bool is_part(const struct stack *stack, const struct member *m)
{
	char name[32];
	uint8_t part[16];

	if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE)
		return !memcmp(m->sb.cache.cache_uuid, stack->cache, 16);
	if (leg_is_of(&m->sb, stack->uuid))
		return true;
	stack_part(stack, "volume", part);
	if (!memcmp(m->sb.head.uuid, part, 16))
		return true;
	for (uint32_t i = 0; i < stack->legs + stack->spares; i++) {
		snprintf(name, sizeof(name), "disk %u", i);
		stack_part(stack, name, part);
		if (!memcmp(m->sb.head.uuid, part, 16))
			return true;
	}
	return false;
}

int stack_refuse_copy(const char *name, const char *a, const char *b)
{
	bool first = strcmp(a, b) < 0;

	return complain(LARDER_UNSAFE, "%s: %s and %s have one UUID: one is a copy of the other (dd, a snapshot?): detach the copy, or remove its signature",
			name, first ? a : b, first ? b : a);
}

/* One disk, by itself and through what lies over it (multipath), is no copy. */
static bool is_one_disk(const char *a, const char *b)
{
	struct stat x, y;

	if (stat(a, &x) || stat(b, &y) || !S_ISBLK(x.st_mode) || !S_ISBLK(y.st_mode))
		return false;
	return x.st_rdev == y.st_rdev || device_is_below(x.st_rdev, y.st_rdev) || device_is_below(y.st_rdev, x.st_rdev);
}

static int check_legs(const struct stack *stack, const struct md_array *array)
{
	uint8_t a[16], b[16];

	for (size_t i = 0; i < array->number; i++)
		for (size_t j = 0; j < i; j++)
			if (md_leg_uuid(array->leg[i], a) && md_leg_uuid(array->leg[j], b) && !memcmp(a, b, 16) &&
			    !is_one_disk(array->leg[i], array->leg[j]))
				return stack_refuse_copy(stack->name, array->leg[i], array->leg[j]);
	return LARDER_DONE;
}

int stack_check_copies(const struct stacks *stacks, const struct stack *stack, const struct md_array *array)
{
	const struct members *members = &stacks->members;

	for (size_t i = 0; i < members->number; i++)
		for (size_t j = 0; j < i && is_part(stack, members->member[i]); j++)
			if (!memcmp(members->member[i]->sb.head.uuid, members->member[j]->sb.head.uuid, 16))
				return stack_refuse_copy(stack->name, members->member[i]->path, members->member[j]->path);
	return check_legs(stack, array);
}
