/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The disks of a stack, with and without dm-integrity below its array: how they are started, and how they join it. */
#ifndef LARDER_STACK_LEGS_H
#define LARDER_STACK_LEGS_H

#include "md.h"
#include "scan.h"
#include "stack.h"

/* A leg with dm-integrity of that stack is among them. */
bool stack_has_legs(const struct members *members, const uint8_t uuid[16]);
/*
 * dm-integrity of each leg that is here, as their superblocks have them: name and UUID of the stack are all that need be known of it.  flags: of stack_steps.h;
 * START_DEGRADED: one that cannot be started is only remarked; START_IMPORT: also those of another machine, which they stay until legs_take_over().
 */
int start_legs(const char *name, const uint8_t uuid[16], unsigned flags);
/*
 * Those of another machine are this one's from now on, whether they run or not: behind all that an import is refused for.  flags: START_DEGRADED: the
 * complaint of one is no error.  Complains.
 */
int legs_take_over(const struct stack *stack, unsigned flags);
/* Where nothing came of them: those that no array holds are stopped. */
void release_legs(const struct stack *stack);
/*
 * md_disks() of the array of that stack; where they have dm-integrity below, nodes and numbers are those of the disks themselves, as far as these are
 * there.
 */
bool stack_disks(const struct stack *stack, dev_t array, struct md_disks *disks);
/* What mdadm calls a disk of that stack; the caller frees it. */
char *stack_disk_for_md(const struct stack *stack, const char *disk);
/*
 * Disks of the array, which runs and lacks them, that are here again: those that have nothing which it has not (md_leg.h) join it, and get what they lack.
 * Of the others it complains, and tries each.  disk: this one alone; NULL: all.
 */
int legs_take_back(const struct stack *stack, const char *disk);
/*
 * A disk is about to join that array, in whichever of the places that lack one: it gets what was noted there, and may fail before anybody sees it.  Returns
 * what was so before, for joins_no_more() where it was not taken.
 */
uint64_t joins_soon(const struct stack *stack, dev_t array);
void joins_no_more(const struct stack *stack, uint64_t before);
/* Of its array, which runs, each read error is a sector that is repaired: it takes more of them than of disks alone. */
void legs_expect_errors(const struct stack *stack);

#endif
