/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stacks: those that the superblocks of this machine's devices tell of, the layers that run, and the steps between them. */
#ifndef LARDER_STACKS_H
#define LARDER_STACKS_H

#include <limits.h>

#include "crypt_layer.h"
#include "luks.h"
#include "md.h"
#include "running.h"
#include "stack.h"

struct found {
	struct stack stack;
	bool whole; /* else only name, uuid and cache are known: its volume is not here */
	const struct member *volume; /* NULL: not here, or not yet made */
	const struct member *cache; /* an SSD of its cache; NULL: none is here */
};

struct stacks {
	struct members members;
	struct mapped_list list;
	struct found *found;
	size_t number;
};

/* Complains of what stands in a superblock and cannot be understood, and leaves that out. */
int stacks_scan(struct stacks *stacks);
/* The same for what changes nothing: LARDER_STATUS may say what runs (snapshot.h), and devices that hang are not read (hanging.h). */
int stacks_look(struct stacks *stacks);
void stacks_free(struct stacks *stacks);
/*
 * Of two devices with one superblock nobody knows which is the stack's, and which a copy (dd, a snapshot): refused, both named, for whoever would
 * start it, or write to it.  array: its legs, as found.
 */
int stack_check_copies(const struct stacks *stacks, const struct stack *stack, const struct md_array *array);
int stack_refuse_copy(const char *name, const char *a, const char *b); /* the complaint of it */
/* By name or UUID.  Complains when there is none, or more than one. */
int stack_find(const struct stacks *stacks, const char *word, const struct found **found);

/* Behind a question, asked without the lock: is the description what it was?  Complains. */
int stack_check_same(const struct stack *stack);

/* Node of what the filesystem lies on, whether it runs or not; the caller frees it. */
char *stack_top_node(const struct stack *stack);
/* NULL: its volume does not run. */
struct mapped *stack_volume(const struct stacks *stacks, const struct stack *stack);

/*
 * Raises the generation, and writes the description to the volume, if that is formatted, and to every SSD of the cache: by message
 * where they run.  Complains.
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
 * Its volume, which does not run, is older than the SSDs, or they than it: it is made the newest, without what they have of it.  What they have is stale then
 * (START_STALE gives it up).  Complains.
 */
int stack_take_older(struct stack *stack);
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
/* Has the list on the SSDs of that cache, as it is to be, room to remove each stack of it?  Whose there is none for; NULL: it has. */
const char *stack_list_lacks_room(const struct stacks *stacks, const uint8_t cache[16], const struct stack_list *list);
/*
 * The same of the list as it is, where this one, which is ready, has another name there, or is new; and of its own description.  word: as in
 * stack_check_names(); remedy: what else to do.  Complains.
 */
int stack_check_room(const struct stacks *stacks, const struct stack *stack, const char *word, const char *remedy);
/* Of the SSDs of that cache, as written last; empty where nothing is.  Complains. */
int stack_list_read(const uint8_t cache[16], struct stack_list *list);
/* Is it another machine's, as its own description or that of its cache has it?  Complains of what cannot be read. */
int stack_elsewhere(const struct stack *stack, bool *elsewhere);
/* The same for whoever would write to it: complains of that, too, and of copies of its devices. */
int stack_check_machine(const struct stack *stack);
/* A cache that is there and this machine's, by label or UUID: one of its SSDs.  Complains. */
int stack_named_cache(const struct stacks *stacks, const char *name, const struct member **member);

/* The layers of a stack as they run now.  layers_free() after it. */
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

/* larder unlock --agent.  volume: its name for dm. */
int stack_unlock_by_agent(const char *volume);

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
/* A leg with dm-integrity of that stack is among them. */
bool stack_has_legs(const struct members *members, const uint8_t uuid[16]);
bool stack_cache_here(const struct stack *stack); /* it runs, or one of its SSDs is here */
/*
 * dm-integrity of each leg that is here, as their superblocks have them: name and UUID of the stack are all that need be known of it.  START_DEGRADED:
 * one that cannot be started is only remarked.
 */
int start_legs(const char *name, const uint8_t uuid[16], unsigned flags);
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
int start_array(const struct stack *stack, unsigned flags);
/* What is found of its array is put together and started: its brief description is enough.  Complains. */
int assemble_array(const struct stacks *stacks, const struct stack *stack, struct md_array *array, unsigned flags);
int start_volume(const struct stack *stack, unsigned flags);
#define CRYPT_BY_AGENT 1u /* not by somebody's word: what he has locked meanwhile stays so */
#define CRYPT_AGAIN    2u /* by tokens of clevis alone */
int start_crypt(const struct stack *stack, const struct secret *secret, unsigned flags, bool *wrong); /* wrong: as in luks_unlock() */
int start_crypt_by_token(const struct stack *stack, unsigned flags, enum luks_by_token *outcome); /* as luks_unlock_by_token() */
/*
 * By systemd's unit where it has one; (not wait) which then does it later: a unit that systemd starts cannot wait for another one behind it.  Else by its
 * line in fstab, or as the description has it.  Complains also where that was done, and something else is mounted there.
 */
int start_mount(const struct stack *stack, bool wait);
int stop_mount(const struct stack *stack); /* and what else the filesystem is mounted on */
int stop_crypt(const struct stack *stack);
int stop_volume(const struct stack *stack);
int stop_cache(const struct stack *stack); /* if nobody else uses it */
/* Do other stacks, or volumes, use its cache, running or not?  Complains. */
int cache_is_shared(const struct stack *stack, bool *shared);
int stop_array(const struct stack *stack); /* and what is below it */
/* Is the LUKS layer there to be unlocked? */
bool stack_locked(const struct stack *stack);
/* Is it open?  One question to dm. */
/* What somebody locked, or unlocks himself at this moment: larder-unlock@.service leaves it so. */
void crypt_mark(const struct stack *stack, bool locked);
bool crypt_is_marked(const struct stack *stack);

#endif
