// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The layers of a stack below LUKS, started for a moment.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "stack_layers.h"
#include "stack_lend.h"
#include "stack_snapshot.h"
#include "stack_steps.h"
#include "stack_store.h"

int lend_load(const char *name, bool dry_run, struct stack *stack, struct lent *was)
{
	struct stacks stacks;
	struct layers layers;
	bool assembled;
	int result = stack_load_with_array(name, stack, dry_run ? START_DRY_RUN : 0, &assembled);

	was->assembled |= assembled;
	result = result ? result : stacks_scan(&stacks);
	if (result)
		return result;
	result = stack_check_ready(&stacks, stack);
	if (result) {
		stacks_free(&stacks);
		return result;
	}
	layers_find(&stacks, stack, &layers);
	was->array = *layers.array.node && !was->assembled;
	was->cache = layers.cache;
	was->volume = *layers.node;
	was->assembled &= !was->volume; /* who started it has the array too */
	was->mark = crypt_is_marked(stack);
	layers_free(&layers);
	stacks_free(&stacks);
	return LARDER_DONE;
}

char *lend_node(const struct stack *stack)
{
	struct stacks stacks;
	struct layers layers;
	char *node = NULL;

	if (stacks_scan(&stacks))
		return NULL;
	layers_find(&stacks, stack, &layers);
	if (*layers.node)
		node = must_print("%s", layers.node);
	else
		complain(LARDER_NOT_FOUND, "%s: is not started; larder start %s", stack->name, stack->name);
	layers_free(&layers);
	stacks_free(&stacks);
	return node;
}

static int start_below(const struct stack *stack)
{
	int result = start_array(stack, 0);

	result = result ? result : start_cache(stack, 0);
	return result ? result : start_volume(stack, 0);
}

/* What the layers say of their start goes to stderr: stdout may be a report. */
int lend_start(const struct stack *stack, struct lent *was)
{
	int out, result;

	if (was->volume)
		return LARDER_DONE;
	was->lent = true;
	crypt_mark(stack, true); /* before larder-unlock@.service sees the volume */
	fflush(stdout);
	out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	result = start_below(stack);
	fflush(stdout);
	if (out >= 0) {
		dup2(out, STDOUT_FILENO);
		close(out);
	}
	return result;
}

int lend_stop_volume(struct stack *stack, struct lent *was)
{
	int result;

	if (!was->lent)
		return LARDER_DONE;
	result = snapshots_note_lost_in(stack);
	result = result ? result : stop_volume(stack);
	if (!result && !was->cache)
		result = stop_cache(stack);
	if (!result && !was->mark)
		crypt_mark(stack, false);
	was->lent = result;
	was->assembled |= !result && !was->array;
	return result;
}

int lend_return(struct stack *stack, struct lent *was)
{
	int result = lend_stop_volume(stack, was);

	return result || was->array || !was->assembled ? result : stop_array(stack);
}
