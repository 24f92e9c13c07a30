/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the devices of a stack are called, and whether those names are free. */
#ifndef LARDER_STACK_NAMES_H
#define LARDER_STACK_NAMES_H

#include "stacks.h"

/*
 * May this stack, and the cache that is called so with it (NULL: none is), have the names that follow from theirs?  Not where a device, or another stack
 * or member that is here, running or not, has one of them, or will when it starts.  What is of its UUID, and its cache, are itself.  word: what a
 * complaint calls its name.
 */
int stack_check_names(const struct stacks *stacks, const struct stack *stack, const char *cache, const char *word);
/*
 * May this stack, which runs, have the devices of one more snapshot?  Not where another stack or member, as above, will have one of their names when it
 * starts; devices that are there are not asked for.  Complains.
 */
int stack_check_snapshot_names(const struct stacks *stacks, const struct stack *stack, const char *snapshot);
/* May a volume, or cache, of no stack be called so?  Not as a device of a stack that is here, as above.  Complains. */
int stack_check_label(const char *label, uint32_t kind);

#endif
