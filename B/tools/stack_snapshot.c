// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Snapshots of a stack that count no more: given up as it is started, or lost while it ran.
 *
 * Either is noted in the description, as `lost`, before the stack goes on without them: a store that works again would be believed.
 */
#include <string.h>

#include "cow.h"
#include "message.h"
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

static int note_lost(struct stack *stack)
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
	return lost ? stack_store_note(stack) : LARDER_DONE;
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

int snapshots_note_lost(const char *name)
{
	const struct found *found = NULL;
	struct stacks stacks;
	struct stack stack;
	int result = stacks_scan(&stacks);

	result = result ? result : stack_find(&stacks, name, &found);
	if (!result)
		stack = found->stack;
	stacks_free(&stacks);
	return result ? result : note_lost(&stack);
}

int snapshots_note_lost_of(const uint8_t volume[16])
{
	struct stacks stacks;
	struct stack stack = { 0 };
	int result = stacks_scan(&stacks);

	for (size_t i = 0; !result && i < stacks.number; i++) {
		uint8_t part[16];

		stack_part(&stacks.found[i].stack, "volume", part);
		if (!memcmp(part, volume, 16))
			stack = stacks.found[i].stack;
	}
	stacks_free(&stacks);
	return result ? result : note_lost(&stack);
}
