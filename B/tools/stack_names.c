// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names of the devices of a stack: its volume, the LUKS layer (with its tags), what its snapshots are made of, its cache.
 *
 * fstab, crypttab and people know devices by them.  They are reserved while the stack is stopped, or its disks are away: whoever had one by then would be
 * mounted in its place at the next boot.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "cow.h"
#include "create.h"
#include "crypt_layer.h"
#include "stack_names.h"

#define NAMES_MAX (4 + 1 + 2 * SNAPSHOTS_MAX)

struct names {
	char *name[NAMES_MAX];
	unsigned number;
};

static void add(struct names *names, char *name)
{
	names->name[names->number++] = name;
}

static void names_free(struct names *names)
{
	while (names->number)
		free(names->name[--names->number]);
}

/* brief: whether it is encrypted is not known, and it may be. */
static void names_of(const struct stack *stack, bool brief, struct names *names)
{
	names->number = 0;
	add(names, must_print("%s", stack->name));
	if (stack->encrypted || brief)
		add(names, crypt_name(stack));
	if (*stack->aead || brief)
		add(names, crypt_tags_name(stack));
	if (stack->snapshots)
		add(names, cow_origin_name(stack->name));
	for (uint32_t i = 0; i < stack->snapshots; i++) {
		add(names, cow_snapshot_name(stack->name, stack->snapshot[i].name));
		add(names, cow_store_name(stack->name, stack->snapshot[i].name));
	}
}

static const char *find(const struct names *names, const char *name)
{
	for (unsigned i = 0; i < names->number; i++)
		if (!strcmp(names->name[i], name))
			return names->name[i];
	return NULL;
}

static int check_devices(const struct names *names, const struct stack *stack, const struct found *other)
{
	struct names its;
	int result = LARDER_DONE;

	names_of(&other->stack, !other->whole, &its);
	for (unsigned i = 0; !result && i < its.number; i++)
		if (find(names, its.name[i]))
			result = complain(LARDER_BUSY, "%s: a device of it would be called %s, as one of the stack %s is when that is started; choose another name",
					  stack->name, its.name[i], other->stack.name);
	names_free(&its);
	return result;
}

static int check_stack(const struct names *names, const struct stack *stack, const struct found *other)
{
	if (!memcmp(other->stack.uuid, stack->uuid, 16))
		return LARDER_DONE;
	if (!strcmp(other->stack.name, stack->name))
		return complain(LARDER_BUSY, "%s: a stack has this name already; see larder show %s", stack->name, stack->name);
	return check_devices(names, stack, other);
}

static bool is_cache(const struct member *m)
{
	return le32toh(m->sb.head.kind) == LARDER_KIND_CACHE;
}

/* The stack's own, or what has no label. */
static bool is_passed_over(const struct stack *stack, const struct member *m)
{
	uint8_t part[16];

	stack_part(stack, "volume", part);
	return is_cache(m) ? !memcmp(m->sb.cache.cache_uuid, stack->cache, 16) :
			     le32toh(m->sb.head.kind) != LARDER_KIND_VOLUME || !memcmp(m->sb.head.uuid, part, 16);
}

static int check_shown(const struct names *names, const struct stack *stack, const struct member *m)
{
	char label[LARDER_LABEL_SIZE + 1], *shown;
	int result = LARDER_DONE;

	shown = must_print("%s%s", is_cache(m) ? CACHE_PREFIX : "", label_text(m->sb.cache.label, label)); /* at the same place in both */
	if (find(names, shown))
		result = complain(LARDER_BUSY, "%s: a device of it would be called %s, as the %s on %s is when that is started; choose another name", stack->name,
				  shown, kind_text(le32toh(m->sb.head.kind)), m->path);
	free(shown);
	return result;
}

static int check_member(const struct names *names, const struct stack *stack, const char *cache, const struct member *m)
{
	char label[LARDER_LABEL_SIZE + 1];

	if (is_passed_over(stack, m))
		return LARDER_DONE;
	label_text(m->sb.cache.label, label);
	if (is_cache(m) ? cache && !strcmp(label, cache) : !strcmp(label, stack->name))
		return complain(LARDER_BUSY, "%s: label: the %s on %s has it already; choose another", label, kind_text(le32toh(m->sb.head.kind)), m->path);
	return check_shown(names, stack, m);
}

int stack_check_names(const struct stacks *stacks, const struct stack *stack, const char *cache, const char *word)
{
	int result = create_check_name(stack->name, word, LARDER_KIND_VOLUME);
	struct names names;

	if (result)
		return result;
	names_of(stack, false, &names);
	if (cache)
		add(&names, must_print("%s%s", CACHE_PREFIX, cache));
	for (size_t i = 0; !result && i < stacks->members.number; i++)
		result = check_member(&names, stack, cache, stacks->members.member[i]);
	for (size_t i = 0; !result && i < stacks->number; i++)
		result = check_stack(&names, stack, &stacks->found[i]);
	for (unsigned i = 0; !result && i < names.number; i++)
		if (mapped_name_taken(names.name[i]))
			result = complain(LARDER_BUSY, "%s: another device is called %s; choose another name", stack->name, names.name[i]);
	names_free(&names);
	return result;
}

int stack_check_snapshot_names(const struct stacks *stacks, const struct stack *stack, const char *snapshot)
{
	struct names names = { .number = 0 };
	int result = LARDER_DONE;

	add(&names, cow_origin_name(stack->name));
	add(&names, cow_snapshot_name(stack->name, snapshot));
	add(&names, cow_store_name(stack->name, snapshot));
	for (size_t i = 0; !result && i < stacks->members.number; i++)
		if (!is_passed_over(stack, stacks->members.member[i]))
			result = check_shown(&names, stack, stacks->members.member[i]);
	for (size_t i = 0; !result && i < stacks->number; i++)
		if (memcmp(stacks->found[i].stack.uuid, stack->uuid, 16))
			result = check_devices(&names, stack, &stacks->found[i]);
	names_free(&names);
	return result;
}

int stack_check_label(const char *label, uint32_t kind)
{
	char *device = must_print("%s%s", kind == LARDER_KIND_CACHE ? CACHE_PREFIX : "", label);
	struct names names;
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	for (size_t i = 0; !result && i < stacks.number; i++) {
		const struct found *other = &stacks.found[i];

		names_of(&other->stack, !other->whole, &names);
		if (find(&names, device))
			result = complain(LARDER_BUSY, "%s: label: the %s would be called %s, as a device of the stack %s is when that is started; choose another", label,
					  kind_text(kind), device, other->stack.name);
		names_free(&names);
	}
	stacks_free(&stacks);
	free(device);
	return result;
}
