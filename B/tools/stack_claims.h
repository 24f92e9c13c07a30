/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The devices that a new stack claims: disks, SSDs, spares of both.  Are they free, and large enough?  Nothing is written to them.
 */
#ifndef LARDER_STACK_CLAIMS_H
#define LARDER_STACK_CLAIMS_H

#include "layout.h"
#include "md.h"
#include "stack_words.h"

/* One of them, as it was found; all in bytes. */
struct claim {
	uint64_t bytes;
	uint64_t room; /* for the data of a volume that has it alone */
	unsigned block; /* its logical block */
	struct device_topology topology;
};

/* Its disks, in the order of the words. */
struct claims {
	struct claim disk[MD_LEGS_MAX];
	uint64_t least; /* bytes of the smallest */
	uint64_t unused; /* bytes of all together that their array cannot use, as they are of unequal size */
	unsigned block; /* bytes: the largest logical block of them, which is that of an array */
};

/*
 * The same device twice, also by another path, or one as a part of the other: refused.  SSDs are among them where the stack has a
 * cache of its own.  Complains.
 */
int claims_check_twice(const struct stack_request *request, const struct stack *stack);
/*
 * Each is free, fits, and has nothing on it, or what may go, which is printed (--wipe).  Disks of an array with redundancy, and
 * SSDs, are no parts of one disk; the volume has room for its layers, and is as large as --size; a spare could take any place.
 * Fills claims, which is zero before; no device stays open.  Complains.
 */
int claims_look(const struct stack_request *request, const struct stack *stack, struct claims *claims);

#endif
