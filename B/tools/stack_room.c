// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Room in the descriptions for what is written to them later; and whether they are read as they were meant.
 *
 * The list on the SSDs has names and UUIDs of the stacks, and all of one that is being removed.  What grows in it, a label or a name, must leave as much as
 * the largest of these takes: else a stack could be removed no more.
 */
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "stack_room.h"
#include "stack_store.h"
#include "stacks.h"

#define LONGEST_GENERATION 1000000u /* that room is kept for, if a description has not more by now */

/* Of one whose disks are away, and which is listed in brief: the most that its description may have while it is removed. */
static void fill_widest(struct stack *stack, const uint8_t cache[16])
{
	memcpy(stack->cache, cache, 16);
	stack->state = STACK_REMOVING;
	stack->step = STEP_MOUNT;
	stack->legs = MD_LEGS_MAX;
	stack->own_cache = OWN_TOGETHER;
	stack->encrypted = true;
	strcpy(stack->raid, "10");
	strcpy(stack->integrity, "crc32c");
	strcpy(stack->mode, "writethrough");
	strcpy(stack->aead, "chacha20-poly1305");
}

const char *stack_list_lacks_room(const struct stacks *stacks, const uint8_t cache[16], const struct stack_list *list)
{
	struct stack_list *then = must_allocate(malloc(sizeof(*then)));
	uint8_t field[LARDER_STACK_SIZE];
	const char *whose = NULL;

	for (size_t i = 0; i < list->number && !whose; i++) {
		struct stack stack = list->stack[i];

		for (size_t k = 0; k < stacks->number && list->brief[i]; k++)
			if (stacks->found[k].whole && !memcmp(stacks->found[k].stack.uuid, stack.uuid, 16)) {
				stack = stacks->found[k].stack;
				strcpy(stack.name, list->stack[i].name); /* as it is to be */
			}
		if (!stack.legs)
			fill_widest(&stack, cache);
		stack.state = STACK_REMOVING;
		stack.generation = stack.generation > LONGEST_GENERATION ? stack.generation : LONGEST_GENERATION;
		stack = stack_listed(&stack);
		*then = *list;
		stack_list_put(then, &stack);
		if (stack_list_encode(then, field))
			whose = list->stack[i].name;
	}
	free(then);
	return whose;
}

/* As long as the description of this one becomes.  Why it cannot be; NULL: it can. */
static const char *encode_longest(const struct stack *stack)
{
	struct stack longest = *stack;
	uint8_t field[LARDER_STACK_SIZE];

	longest.generation = longest.generation > LONGEST_GENERATION ? longest.generation : LONGEST_GENERATION;
	longest.state = STACK_REMOVING;
	if (*longest.raid && longest.legs < MD_LEGS_MAX)
		longest.legs = MD_LEGS_MAX;
	for (uint32_t i = 0; i < longest.snapshots; i++)
		longest.snapshot[i].state = SNAPSHOT_REMOVING;
	return stack_encode(&longest, field);
}

const char *stack_lacks_room(const struct stack *stack, const struct stack *was)
{
	const char *why = encode_longest(stack);
	uint8_t field[LARDER_STACK_SIZE];

	return why && encode_longest(was) ? stack_encode(stack, field) : why;
}

int stack_check_room(const struct stacks *stacks, const struct stack *stack, const char *word, const char *remedy)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	const char *whose = NULL, *why = encode_longest(stack);
	int result = stack_list_read(stack->cache, list);

	if (!why && !result && !stack_list_put(list, stack)) {
		why = "its cache has the most stacks that it can have";
	} else if (!why && !result) {
		for (size_t i = 0; i < list->number; i++)
			list->brief[i] |= !memcmp(list->stack[i].uuid, stack->uuid, 16);
		why = stack_list_encode(list, field);
		whose = why ? NULL : stack_list_lacks_room(stacks, stack->cache, list);
	}
	if (!result && why)
		result = complain(LARDER_FAILED, "%s: %s: %s; %s", stack->name, word, why, remedy);
	if (!result && whose)
		result = complain(LARDER_FAILED, "%s: %s: with it the list of stacks on the SSDs of its cache, of 2 KiB, has no room to remove %s some day; %s",
				  stack->name, word, whose, remedy);
	free(list);
	return result;
}

int stack_check_readable(const struct stack *stack)
{
	uint8_t field[LARDER_STACK_SIZE], again[LARDER_STACK_SIZE];
	const char *why = stack_encode(stack, field);
	struct stack read;
	bool there;

	why = why ? why : stack_decode(field, &read, &there);
	if (!why && (stack_encode(&read, again) || memcmp(field, again, sizeof(field))))
		why = "stack: says something else then";
	if (!why)
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: its description could not be read again: %s; give plainer words", stack->name, why);
}
