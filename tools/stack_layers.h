/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The layers of a stack, as they run now. */
#ifndef LARDER_STACK_LAYERS_H
#define LARDER_STACK_LAYERS_H

#include <limits.h>

#include "stacks.h"

/* All of them.  layers_free() after it. */
struct layers {
	struct md_array array;
	const struct mapped *volume, *cache; /* of stacks->list */
	char node[PATH_MAX]; /* of the volume; "": it does not run */
	dev_t node_number;
	bool left_over; /* of the volume only what a start or stop that was cut short has left below it (cow.h) */
	bool linear; /* by a linear target, without larder's module: volume is NULL */
	bool open; /* the LUKS layer */
	char top[PATH_MAX]; /* device of the filesystem; "": not there */
	dev_t top_number;
	char mounted[PATH_MAX]; /* "": not mounted */
	bool covered; /* something else is mounted there, over it */
};
void layers_find(const struct stacks *stacks, const struct stack *stack, struct layers *layers);
void layers_free(struct layers *layers);

/* Node of what the filesystem lies on, whether it runs or not; the caller frees it. */
char *stack_top_node(const struct stack *stack);
/* NULL: its volume does not run. */
struct mapped *stack_volume(const struct stacks *stacks, const struct stack *stack);
/* Does it need the network, for a disk below it, or below the store of a snapshot?  False, too, if it does not run, or nobody knows.  Opens nothing. */
bool stack_is_remote(const struct stack *stack);

#endif
