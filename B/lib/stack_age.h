/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Disks of a stack that are older than its SSDs: what left an array, or was put back from a backup, below the cache of today. */
#ifndef LARDER_STACK_AGE_H
#define LARDER_STACK_AGE_H

#include "md.h"
#include "scan.h"
#include "stack.h"

/* The generation that SSDs, of whichever cache, say the volume of this stack has had, durably; 0: none says so. */
uint64_t stack_seen(const struct members *members, const uint8_t uuid[16]);
/*
 * NULL: the volume with this description of its stack in it is as new as the SSDs that list the stack say; else why not, and what can be done, to be
 * freed by the caller.
 */
char *stack_too_old(const struct members *members, const struct stack *stack);
/*
 * Does a table of its cache, on the SSDs that are here, name a generation that the superblock of this volume has not reached?  Then it is put back from
 * an image, and the kernel refuses it below that cache; else 0.  Reads them.
 */
uint64_t volume_seen_later(const struct members *members, const struct member *volume);
/* The same in words, and what can be done, to be freed by the caller; NULL: no table does.  stack: that of the volume, or NULL. */
char *volume_too_old(const struct members *members, const struct member *volume, const struct stack *stack);
/*
 * The other way round, in words: do the tables of its cache, on the SSDs that are here, all name less than the superblock of this volume knows that they
 * have?  Then they are put back from an image, or copies that somebody made.  NULL: they do not, or none is here.
 */
char *cache_too_old(const struct members *members, const struct member *volume, const struct stack *stack);
/* LARDER_DONE, or LARDER_UNSAFE, and complains: this volume is older, by its description or its superblock, than what its SSDs have seen. */
int volume_check_age(const struct members *members, const struct member *volume);
/* The same, and of SSDs that are older than it. */
int volume_check_ages(const struct members *members, const struct member *volume);
/*
 * Of the disks of its array, of which no volume runs, those that are older than what the SSDs have seen, by the description or by the
 * superblock on each, where md_behind() knows of one that is not; bit by bit, never all.  Of the stack the UUID is enough.
 * Reads them.
 */
uint64_t stack_disks_behind(const struct members *members, const struct stack *stack, const struct md_array *array);

#endif
