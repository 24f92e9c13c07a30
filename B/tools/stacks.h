/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stacks: those that the superblocks of this machine's devices tell of. */
#ifndef LARDER_STACKS_H
#define LARDER_STACKS_H

#include "dm.h"
#include "md.h"
#include "scan.h"
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
struct found *stack_by_uuid(const struct stacks *stacks, const uint8_t uuid[16]); /* NULL: there is none */
/*
 * Of two devices with one superblock nobody knows which is the stack's, and which a copy (dd, a snapshot): refused, both named, for whoever would
 * start it, or write to it.  array: its legs, as found.
 */
int stack_check_copies(const struct stacks *stacks, const struct stack *stack, const struct md_array *array);
int stack_refuse_copy(const char *name, const char *a, const char *b); /* the complaint of it */
/* By name or UUID.  Complains when there is none, or more than one. */
int stack_find(const struct stacks *stacks, const char *word, const struct found **found);

/* Behind a question, say, asked without the lock: is the description what it was?  Complains. */
int stack_check_same(const struct stack *stack);

#endif
