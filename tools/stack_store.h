/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The description of a stack, as it is kept: in the superblock of the volume, and in the list of stacks that the SSDs of its cache have. */
#ifndef LARDER_STACK_STORE_H
#define LARDER_STACK_STORE_H

#include "stacks.h"

/*
 * Raises the generation, and writes the description to the volume, if that is formatted, and to every SSD of the cache: by message
 * where they run.  Not to one that is older than its SSDs have seen, which would pass for the newest then.  Complains.
 */
int stack_store(struct stack *stack);
/*
 * The same of one that is ready, and of what its cache does not have in its list, which is name, UUID and generation: a cache that is suspended, or has
 * failed, takes no message, and the volume alone has it then, which is remarked.  The list says that it has had an older one, which is true (stack_age.h).
 */
int stack_store_note(struct stack *stack);
/* The same as stack_store(), and its name becomes the label of the volume, which must not run, and of a cache of its own that does not. */
int stack_store_name(struct stack *stack);
/* Only the list on the SSDs; seen: the volume has this generation, durably. */
int stack_store_ssds(const struct stack *stack, bool seen);
/*
 * Its volume, which does not run, is older than the SSDs, or they than it: it is made the newest, without what they have of it, with this description.  What
 * they have is stale then (START_STALE gives it up).  Not *stored: neither is so, and nothing was written.  Complains.
 */
int stack_take_older(struct stack *stack, bool *stored);
/* The SSD of that cache whose superblock is the newest, of those that nobody else has by now; NULL: none is here. */
const struct member *stack_newest_ssd(const struct members *members, const uint8_t cache[16]);
/* Takes it out of the list on the SSDs. */
int stack_forget(const struct stack *stack);
/*
 * The label of a place of that cache ("": none), whether it runs or not, to the descriptions on all its SSDs.  Not one with which a stack could be removed
 * no more.  Complains.
 */
int stack_list_store_label(const uint8_t cache[16], uint32_t place, const char *label, bool dry_run);
/* The same of the options that each start gives the cache: stored_options.h. */
int stack_list_store_options(const uint8_t cache[16], const char *options, bool dry_run);
/* Of the SSDs of that cache, as written last; empty where nothing is.  Complains. */
int stack_list_read(const uint8_t cache[16], struct stack_list *list);
/* Is it another machine's, as its own description or that of its cache has it?  Complains of what cannot be read. */
int stack_elsewhere(const struct stack *stack, bool *elsewhere);
/* The same for whoever would write to it: complains of that, too, and of copies of its devices. */
int stack_check_machine(const struct stack *stack);
/* The same for whoever changes one that is ready: complains of one that is half made, or being removed, too. */
int stack_check_ready(const struct stacks *stacks, const struct stack *stack);
/* A cache that is there and this machine's, by label or UUID: one of its SSDs.  Complains. */
int stack_named_cache(const struct stacks *stacks, const char *name, const struct member **member);
/* May this volume get that cache, past the verbs of stacks?  Not that of a stack with another one, which could not be started then.  Complains. */
int stack_check_cache(const struct member *volume, const uint8_t cache[16]);

#endif
