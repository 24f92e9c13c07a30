/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The steps by which a stack is started, and stopped. */
#ifndef LARDER_STACK_STEPS_H
#define LARDER_STACK_STEPS_H

#include "luks.h"
#include "stacks.h"

#define START_DEGRADED 1u
#define START_IMPORT 2u /* also if it is another machine's */
#define START_WITHOUT_MODULE 4u /* the volume by a linear target, if nothing is dirty; start_cache() is not called then */
#define START_OLDER 16u /* stack_load_with_array(): also disks that are older than the SSDs */
#define START_STALE 32u /* the volume, and what its cache has of it goes, if that is stale */
#define START_CRASHED 64u /* START_IMPORT also of one that was not stopped there */
#define START_WRITE_HOLE 128u /* with START_DEGRADED: its array also with parity that may be wrong */
#define START_DRY_RUN 256u /* stack_load_with_array(): its array is not started, which is said, where the description is behind that */
#define START_WITHOUT_CACHE 8u /* the volume alone, if nothing is dirty; likewise */
/*
 * A copy of the whole description, by name or UUID.  It may be on the SSDs only, in brief, until the array shows the volume: which is started
 * for it then (assembled), and stopped again where nothing comes of it.  Complains.
 */
int stack_load_with_array(const char *word, struct stack *stack, unsigned flags, bool *assembled);
/* Each does nothing where the layer runs already.  Complain. */
int start_cache(const struct stack *stack, unsigned flags);
bool stack_cache_here(const struct stack *stack); /* it runs, or one of its SSDs is here */
int start_array(const struct stack *stack, unsigned flags);
/* What is found of its array is put together and started: its brief description is enough.  Complains. */
int assemble_array(const struct stacks *stacks, const struct stack *stack, struct md_array *array, unsigned flags);
int start_volume(const struct stack *stack, unsigned flags);
#define CRYPT_BY_AGENT 16u /* not by somebody's word: what he has locked meanwhile stays so */
int start_crypt(const struct stack *stack, const struct secret *secret, unsigned flags, bool *wrong); /* wrong: as in luks_unlock() */
int start_crypt_by_token(const struct stack *stack, unsigned flags, unsigned *outcome); /* as luks_unlock_by_token(); flags: what is in LUKS_LATER, too, those alone */
/*
 * By systemd's unit where it has one; (not wait) which then does it later: a unit that systemd starts cannot wait for another one behind it, and
 * says only what is missing where there is none.  Else by its line in fstab, or as the description has it.  Complains also where that was done, and
 * something else is mounted there.
 */
int start_mount(const struct stack *stack, bool wait);
/* What has joined it, a disk or the store of a snapshot, may come by the network: its line in fstab has the mount go before that does.  Complains. */
int mount_note_remote(const struct stack *stack);
/* Before anything is taken apart: no snapshot of it is in use, which would keep its volume. */
int stop_check(const struct stack *stack);
int stop_mount(const struct stack *stack); /* and what else the filesystem is mounted on */
int stop_crypt(const struct stack *stack);
int stop_volume(const struct stack *stack);
int stop_cache(const struct stack *stack); /* if nobody else uses it */
/* Do other stacks, or volumes, use its cache, running or not?  Complains. */
int cache_is_shared(const struct stack *stack, bool *shared);
int stop_array(const struct stack *stack); /* and what is below it */
/* Is the LUKS layer there to be unlocked? */
bool stack_locked(const struct stack *stack);
/* What somebody locked, or unlocks himself at this moment: larder-unlock@.service leaves it so. */
void crypt_mark(const struct stack *stack, bool locked);
bool crypt_is_marked(const struct stack *stack);
/* What was marked, and is not any more, the unit has left alone for good: it is to look again, if it has.  Nobody waits for that. */
void crypt_ask_again(const struct stack *stack);

/* larder unlock --agent.  volume: its name for dm. */
int stack_unlock_by_agent(const char *volume);

#endif
