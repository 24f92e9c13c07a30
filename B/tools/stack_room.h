/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Is there room in the descriptions for what is written to them later, and can that be read again? */
#ifndef LARDER_STACK_ROOM_H
#define LARDER_STACK_ROOM_H

#include "stacks.h"

/* Has the list on the SSDs of that cache, as it is to be, room to remove each stack of it?  Whose there is none for; NULL: it has. */
const char *stack_list_lacks_room(const struct stacks *stacks, const uint8_t cache[16], const struct stack_list *list);
/*
 * The same of the list as it is, where this one, which is ready, has another name there, or is new; and of its own description.  word: as in
 * stack_check_names(); remedy: what else to do.  Complains.
 */
int stack_check_room(const struct stacks *stacks, const struct stack *stack, const char *word, const char *remedy);
/*
 * Does what a change made of the description (was: before that) leave no room for what is written to it later, by larderd too, as generations are raised, disks
 * join, and it is removed with its snapshots?  Why; NULL: it has that, or
 * had not before, and fits as it is.
 */
const char *stack_lacks_room(const struct stack *stack, const struct stack *was);
/*
 * A stack whose description nobody can read is neither gone on with nor removed: is this one, which was made of words, read as it
 * is meant?  Complains.
 */
int stack_check_readable(const struct stack *stack);

#endif
