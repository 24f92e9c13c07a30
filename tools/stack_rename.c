// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder rename: another name for a stack that is stopped.
 *
 * Devices that run are called by it, and a mount that systemd holds to a device would go with the old name: so not of one that runs.  Each
 * superblock changes name and label in one write, those of the SSDs first, then the volume's, which counts; the line in fstab comes last.
 * What is cut short in between is found by its UUID, and renamed again.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fstab.h"
#include "stacks.h"
#include "turn.h"
#include "verbs.h"

/* Does anything but the stack itself have that name, or one that follows from it? */
static int check_name(const struct stacks *stacks, const struct stack *stack, const char *name)
{
	uint8_t part[16];

	if (!name_valid(name))
		return complain(LARDER_USAGE, "%s: NEW: must be 1 to 64 of A-Z a-z 0-9 # + . : = @ _ - and not begin with - or a dot", name);
	for (size_t i = 0; i < stacks->number; i++)
		if (!strcmp(stacks->found[i].stack.name, name) && memcmp(stacks->found[i].stack.uuid, stack->uuid, 16))
			return complain(LARDER_BUSY, "%s: another stack has this name already; see larder show %s", name, name);
	stack_part(stack, "volume", part);
	for (size_t i = 0; i < stacks->members.number; i++) {
		const struct member *m = stacks->members.member[i];
		bool cache = le32toh(m->sb.head.kind) == LARDER_KIND_CACHE, volume = le32toh(m->sb.head.kind) == LARDER_KIND_VOLUME;
		char label[LARDER_LABEL_SIZE + 1];

		if ((volume && memcmp(m->sb.head.uuid, part, 16) && !strcmp(label_text(m->sb.volume.label, label), name)) ||
		    (cache && stack->own_cache == OWN_CACHE && memcmp(m->sb.cache.cache_uuid, stack->cache, 16) &&
		     !strcmp(label_text(m->sb.cache.label, label), name)))
			return complain(LARDER_BUSY, "%s: a %s on %s has this label already", name, cache ? "cache" : "volume", m->path);
	}
	return LARDER_DONE;
}

static int check_devices(const struct stack *stack, const char *name)
{
	char *names[4] = { must_print("%s", name), must_print("%s-crypt", name), must_print("%s%s", CACHE_PREFIX, name),
			   must_print("%s-crypt_dif", name) };
	int result = LARDER_DONE;

	for (int i = 0; i < 4; i++) {
		if (!result && (i != 1 || stack->encrypted) && (i != 2 || stack->own_cache == OWN_CACHE) && (i != 3 || *stack->aead) && mapped_name_taken(names[i]))
			result = complain(LARDER_BUSY, "%s: a device is called %s; choose another name", name, names[i]);
		free(names[i]);
	}
	return result;
}

static int check(const struct stacks *stacks, const struct stack *stack, const char *name)
{
	struct layers layers;
	int result = LARDER_DONE;

	layers_find(stacks, stack, &layers);
	if (stack->state != STACK_READY)
		result = complain(LARDER_UNSAFE, "%s: is half made, or being removed", stack->name);
	else if (stack_is_foreign(stack))
		result = complain(LARDER_UNSAFE, "%s: was made on another machine; larder start --import %s takes it over", stack->name, stack->name);
	else if (*layers.node)
		result = complain(LARDER_BUSY, "%s: is started; larder stop %s", stack->name, stack->name);
	else if (stack->own_cache == OWN_CACHE && layers.cache)
		result = complain(LARDER_BUSY, "%s: its cache runs, for others; stop them, and larder cache stop %s", stack->name,
				  layers.cache->name + strlen(CACHE_PREFIX));
	layers_free(&layers);
	result = result ? result : check_name(stacks, stack, name);
	return result ? result : check_devices(stack, name);
}

static int rename_stack(struct stack *stack, const char *name)
{
	char *old = must_print("%s", stack->name), *node;
	int result;

	snprintf(stack->name, sizeof(stack->name), "%s", name);
	result = stack_store_name(stack);
	if (!result && *stack->mount) {
		node = stack_top_node(stack);
		result = fstab_move(stack->uuid, node);
		free(node);
	}
	if (result)
		remark("%s: is half renamed; larder rename %s %s goes on", old, uuid_text(stack->uuid, (char[UUID_TEXT]){ 0 }), name);
	else
		printf("%s: is called %s now\n", old, name);
	free(old);
	return result;
}

int stack_rename(int argc, char **argv)
{
	static const char usage[] = "larder rename STACK NEW";
	const struct argument arguments[] = { ARGUMENTS_END };
	bool assembled;
	struct stacks stacks;
	struct stack stack;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 2, 2, &first, &result))
		return result;
	mapped_init(false);
	turn_take();
	result = stack_load_with_array(argv[first], &stack, 0, &assembled);
	if (result)
		return result;
	result = stacks_scan(&stacks);
	if (!result) {
		result = check(&stacks, &stack, argv[first + 1]);
		stacks_free(&stacks);
	}
	result = result ? result : rename_stack(&stack, argv[first + 1]);
	if (assembled && stop_array(&stack) && !result)
		result = LARDER_FAILED;
	return result;
}
