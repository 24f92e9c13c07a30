/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Snapshots of a stack that count no more: given up as it is started, or lost while it ran. */
#ifndef LARDER_STACK_SNAPSHOT_H
#define LARDER_STACK_SNAPSHOT_H

#include "arguments.h"
#include "cow.h"
#include "stack.h"

/*
 * Of a stack that does not run: its snapshots of these names are lost, in the copy of its description, which the caller stores.  older: it begins with
 * what is older than those that are left, and is refused while one of these is ready.  Complains.
 */
int snapshots_give_up(struct stack *stack, const struct argument_list *names, bool older);

/*
 * What has become unreadable while it ran counts no more, durably: its store may not know of that.  Of what runs without larder's module nothing is noted: who stops
 * it does.  Complains.
 */
int snapshots_note_lost(const char *name);
/* The same, by the UUID of the volume; of one that is no stack's there is nothing to note. */
int snapshots_note_lost_of(const uint8_t volume[16]);
/*
 * Stops a volume that runs without larder's module, by its name for dm, and then does the same: before, nobody can write to the superblock.  Nobody uses it, nor a
 * snapshot of it.  Complains.
 */
int snapshots_stop_linear(const char *name, const uint8_t volume[16]);
/* The same, by a copy of its description that nobody has changed since, which has it then, too. */
int snapshots_note_lost_in(struct stack *stack);

#endif
