/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The disks and SSDs of a stack that runs, and the steps by which one joins or leaves: what replace, add and drop share. */
#ifndef LARDER_STACK_DEVICES_H
#define LARDER_STACK_DEVICES_H

#include "claim.h"
#include "set.h"
#include "stack_layers.h"

/* As it is at one moment. */
struct devices {
	struct stacks stacks;
	struct stack stack;
	struct layers layers;
	struct md_disks disks; /* of its array; none without one */
	struct set set; /* of its cache; set.mapped NULL: that does not run */
};

/* One of them. */
struct part {
	bool ssd, spare; /* spare: of the cache; one of the array has that role */
	bool marked; /* a leg with dm-integrity, on which no superblock of the array can be seen */
	int place; /* in the array, or the set; -1: none: a spare, or one that has left */
	char name[300]; /* to show, and to find it again by: its node, the kernel's name of a disk that is gone, "disk1", "ssd0" */
	char node[300]; /* "": it is not here */
	uint64_t sequence; /* disk_sequence() of that; 0: it is not here */
	uint8_t uuid[16]; /* of an SSD, as the set has that place; else zero */
	const struct md_disk *disk; /* the array has it; NULL: it lacks it, or it is an SSD */
};

/* Complains of a stack that is not started, or half made.  On success devices_free(). */
int devices_look(const char *name, struct devices *d);
void devices_free(struct devices *d);

/* Says nothing. */
bool part_find(const struct devices *d, const char *word, struct part *part);
/* Complains.  word: a path, a UUID, "disk1" or "ssd0", as larder show prints them. */
int part_get(const struct devices *d, const char *word, struct part *part);
/*
 * Is what is found now, in the place of what was found before, still the same device?  While somebody was asked, or something took long, others may have
 * changed the stack.  word: as it was given.  Complains (LARDER_BUSY).
 */
int part_check_same(const struct devices *d, const struct part *now, const struct part *then, const char *word);
/* Is this word a path to the part's device? */
bool part_is(const struct part *part, const char *path);

const char *ssd_state(const struct devices *d, int place, char text[static 16]); /* "active", ...; "": not known */
unsigned ssds_active(const struct devices *d);
/* Is anything in its cache dirty, or may become so?  Complains. */
int ssds_may_be_dirty(const struct devices *d, bool *may);

/* What is asked for, of all three. */
struct devices_request {
	const char *name;
	struct claim_request claim;
	const char *role, *label; /* of an SSD */
	const char *discard_redundancy; /* UUID of the stack that may lose it; NULL: none */
	bool spare, no_wait; /* spare: of what is added */
	bool reshape; /* the array is spread over what is added */
};

/* May the stack lose its redundancy?  word: the device, as it was given; lost: what would be then.  Complains unless request->discard_redundancy names the stack. */
int redundancy_check(const struct devices *d, const struct devices_request *request, const char *word, const char *lost);

/* mdadm is there, and the array runs and has redundancy.  Complains. */
int array_check(const struct devices *d);
/* A command that was killed with its mdadm may have left the array frozen.  Complains. */
int array_thaw(const struct md_array *array);
/* Is it, which is to join the array, a part of no disk of which the array has another, but for the one that leaves (NULL: none)?  Complains. */
int disk_check_apart(const struct devices *d, const char *path, const struct md_disk *leaves);
/*
 * A disk that is to join the array: fits, is free, carries nothing, or that may go; then that goes, unless dry_run.  Complains.
 */
int disk_take(const struct devices *d, const struct devices_request *request, bool dry_run);
/* A verb of mdadm upon a disk of the stack, or one that joins it: md_add(), md_fail(), md_remove().  Complains. */
int disk_change(const struct devices *d, int (*verb)(const char *node, const char *disk, bool dry_run), const char *disk, bool dry_run);
int disk_exchange(const struct devices *d, const char *old, const char *with, bool dry_run); /* md_replace() */
/*
 * Waits until the array has rebuilt what is on the disk at path, with request->reshape until all is moved, or (no_wait) says what is still to be done.
 * *settled: it has.
 */
int disk_wait(const struct devices_request *request, const char *path, const char *verb, bool *settled);
/*
 * Takes a disk out of the array, which has lost it, or does not need it: one that is not in a place any more.  part: as it was found before; another device
 * that has its name by now is left alone.  Complains.
 */
int disk_remove(const char *name, const struct part *part);
/* One that has left carries nothing of the array afterwards; remarks when that cannot be, and of another device that has its name by now. */
int disk_erase(const char *name, const struct part *part);

/* The cache verbs, with the words of this one. */
int ssd_add(const struct devices *d, const struct devices_request *request);
int ssd_replace(const struct devices *d, const struct devices_request *request, int place);
int ssd_remove(const struct devices *d, const struct devices_request *request, int place);
/* Until the one that joins in this place, at request's path, is a member.  Complains, also where it does not come to be one. */
int ssd_wait(struct devices *d, const struct devices_request *request, int place);
/* One that has left carries nothing of the cache afterwards. */
int ssd_erase(const char *name, const char *node);

/* larder replace NAME cache: the stack, which is stopped, gets another cache: SSDs that become one, or the name of one.  Complains. */
int stack_change_cache(const struct devices_request *request, char **words, int number);

/* The description, with a raised generation, goes to all that are members now (stack_store_note()); places: of the array, 0: as it is noted.  Complains. */
int devices_store(const char *name, unsigned places);
/* The same, if the array lacks a disk that it had when that was noted last.  Complains. */
int devices_note(const char *name);
/* remark_of_root(), of its volume, which has request's disk from now on. */
void devices_remark(const struct devices *d, const struct devices_request *request);
/* legs_take_back() of a stack that runs.  Complains. */
int devices_take_back(const char *name, const char *disk);

#endif
