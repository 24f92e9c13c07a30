// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder rename: another name for a stack that is stopped.
 *
 * Devices that run are called by it, and a mount that systemd holds to a device would go with the old name: so not of one that runs.  Each
 * superblock changes name and label in one write, those of the SSDs first, then the volume's, which counts; the line in fstab comes last, and no
 * boot waits for it meanwhile.
 * What is cut short in between is found by its UUID, and renamed again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "create.h"
#include "fstab.h"
#include "snapshot.h"
#include "stack_layers.h"
#include "stack_names.h"
#include "stack_room.h"
#include "stack_steps.h"
#include "stack_store.h"
#include "turn.h"
#include "verbs.h"

/* Does anything but the stack itself have that name, or one that follows from it? */
static int check_name(const struct stacks *stacks, const struct stack *stack, const char *name)
{
	struct stack renamed = *stack;
	int result;

	if (strlen(name) >= sizeof(renamed.name)) /* cut off it could be good */
		return create_check_name(name, "NEW", LARDER_KIND_VOLUME);
	strcpy(renamed.name, name);
	result = stack_check_names(stacks, &renamed, stack->own_cache == OWN_CACHE ? name : NULL, "NEW");
	/* a shorter one may be what gives it room */
	if (!result && strlen(name) > strlen(stack->name))
		result = stack_check_room(stacks, &renamed, "NEW", "a shorter name, or fewer stacks");
	return result;
}

static int check(const struct stacks *stacks, const struct stack *stack, const char *name)
{
	struct layers layers;
	int result = stack_check_ready(stacks, stack);

	if (result)
		return result;
	layers_find(stacks, stack, &layers);
	if (*layers.node)
		result = complain(LARDER_BUSY, "%s: is started; larder stop %s", stack->name, stack->name);
	else if (stack->own_cache == OWN_CACHE && layers.cache)
		result = complain(LARDER_BUSY, "%s: its cache runs, for others; stop them, and larder cache stop %s", stack->name,
				  snapshot_name(&stacks->list, layers.cache));
	layers_free(&layers);
	return result ? result : check_name(stacks, stack, name);
}

static int rename_stack(struct stack *stack, const char *name)
{
	/* until the line has the new name, too, it names a device that does not come */
	int result = *stack->mount ? fstab_hold(stack->uuid) : LARDER_DONE;
	char *old, *node;

	if (result)
		return result;
	old = must_print("%s", stack->name);
	snprintf(stack->name, sizeof(stack->name), "%s", name);
	result = stack_store_name(stack);
	if (!result && *stack->mount) {
		node = stack_top_node(stack);
		result = fstab_move(stack->uuid, node);
		free(node);
	}
	result = result ? result : fstab_release(stack->uuid);
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
