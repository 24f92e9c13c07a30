// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Snapshots of a stack that count no more: given up as it is started, or lost while it ran.
 *
 * Either is noted in the description, as `lost`, before the stack goes on without them: a store that works again would be believed.
 */
#include <stdlib.h>
#include <string.h>

#include "cow.h"
#include "message.h"
#include "running.h"
#include "stack_snapshot.h"
#include "stack_store.h"

int snapshots_give_up(struct stack *stack, const struct argument_list *names, bool older)
{
	for (int i = 0; i < names->number; i++) {
		struct stack_snapshot *one = stack_snapshot_find(stack, names->value[i]);

		if (!one)
			return complain(LARDER_NOT_FOUND, "%s: --drop-snapshot: it has no snapshot %s", stack->name, names->value[i]);
		one->state = SNAPSHOT_LOST;
	}
	for (uint32_t i = 0; older && i < stack->snapshots; i++)
		if (stack->snapshot[i].state == SNAPSHOT_READY)
			return complain(LARDER_UNSAFE, "%s: --discard-newer: its snapshot %s shares what is newer: give that up too, by --drop-snapshot %s", stack->name,
					stack->snapshot[i].name, stack->snapshot[i].name);
	return LARDER_DONE;
}

/* The copy has them as lost.  How many. */
static unsigned find_lost(struct stack *stack)
{
	uint8_t volume[16], uuid[16];
	unsigned lost = 0;

	stack_part(stack, "volume", volume);
	for (uint32_t i = 0; i < stack->snapshots; i++) {
		stack_snapshot_uuid(stack, &stack->snapshot[i], uuid);
		if (stack->snapshot[i].state != SNAPSHOT_READY || !cow_is_lost(volume, uuid))
			continue;
		stack->snapshot[i].state = SNAPSHOT_LOST;
		remark("%s@%s: is lost: its store was full, or failed, or its device was removed; larder snapshot remove %s@%s", stack->name, stack->snapshot[i].name, stack->name,
		       stack->snapshot[i].name);
		lost++;
	}
	return lost;
}

static int note_lost(struct stack *stack)
{
	return find_lost(stack) ? stack_store_note(stack) : LARDER_DONE;
}

/* Where it cannot be written the copy stays as it was: whoever tries again has it to note. */
int snapshots_note_lost_in(struct stack *stack)
{
	struct stack noted = *stack;
	int result = note_lost(&noted);

	if (!result)
		*stack = noted;
	return result;
}

static bool is_linear(const struct stacks *stacks, const struct stack *stack)
{
	uint8_t volume[16];
	char *shown;
	bool linear;

	stack_part(stack, "volume", volume);
	shown = cow_volume_uuid(volume);
	linear = !running_by_uuid(&stacks->list, volume, false) && mapped_is_shown(shown);
	free(shown);
	return linear;
}

int snapshots_note_lost(const char *name)
{
	const struct found *found = NULL;
	struct stacks stacks;
	struct stack stack;
	bool linear = false;
	int result = stacks_scan(&stacks);

	result = result ? result : stack_find(&stacks, name, &found);
	if (!result) {
		stack = found->stack;
		linear = is_linear(&stacks, &stack);
	}
	stacks_free(&stacks);
	return result || linear ? result : note_lost(&stack);
}

/* The description of the stack that has this volume; none: one without snapshots. */
static int load_of(const uint8_t volume[16], struct stack *stack)
{
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	*stack = (struct stack){ 0 };
	for (size_t i = 0; !result && i < stacks.number; i++) {
		uint8_t part[16];

		stack_part(&stacks.found[i].stack, "volume", part);
		if (!memcmp(part, volume, 16))
			*stack = stacks.found[i].stack;
	}
	stacks_free(&stacks);
	return result;
}

int snapshots_note_lost_of(const uint8_t volume[16])
{
	struct stack stack;
	int result = load_of(volume, &stack);

	return result ? result : note_lost(&stack);
}

int snapshots_stop_linear(const char *name, const uint8_t volume[16])
{
	struct stack stack;
	unsigned lost = 0;
	int result = load_of(volume, &stack);

	if (!result)
		lost = find_lost(&stack);
	result = result ? result : mapped_remove(name);
	result = result ? result : cow_clear(volume);
	return result || !lost ? result : stack_store_note(&stack);
}
