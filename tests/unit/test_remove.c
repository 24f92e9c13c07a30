// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder remove of a mounted stack, of tools/stack_remove.c: others have their turn while it is unmounted, and what they have made of the stack, a snapshot
 * say, is not taken away unseen.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/stack_remove.c"

#include "check.h"

static uint64_t generation;
static bool meanwhile;
static unsigned stopped;

int stop_check(const struct stack *stack)
{
	return LARDER_DONE;
}

int stop_mount(const struct stack *stack)
{
	generation += meanwhile;
	return LARDER_DONE;
}

int stack_check_same(const struct stack *stack)
{
	return stack->generation == generation ? LARDER_DONE : LARDER_BUSY;
}

/* The first step that takes something apart, and the last one here. */
int stop_crypt(const struct stack *stack)
{
	stopped++;
	return LARDER_FAILED;
}

static int take_away(bool others)
{
	struct stack stack = { .name = "s", .mount = "/s", .generation = 10, .state = STACK_READY };

	generation = 10;
	meanwhile = others;
	stopped = 0;
	return remove_stack(&stack);
}

int main(void)
{
	check(take_away(false) == LARDER_FAILED && stopped == 1, "unmounted, it is taken apart");
	check(take_away(true) == LARDER_BUSY && !stopped, "but not if others have changed it while it was unmounted");
	return failed;
}
