/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Devices that hang below what runs, as larderd has found: a file in /run/larder, for `larder events`, `larder metrics` and `larder status`. */
#ifndef LARDER_STALLED_H
#define LARDER_STALLED_H

#include <stdbool.h>
#include <stddef.h>

#include "superblock.h"

struct stalled {
	char disk[64]; /* sda, as sysfs has it */
	double since; /* it has answered nothing; seconds of CLOCK_MONOTONIC */
	bool cache; /* it is below a cache, else below a volume */
	char uuid[UUID_TEXT]; /* of that */
	char *name; /* as we show it */
	char *text; /* a line, without its end: what it does, and what mends it */
};

/* Zero to begin with; stalled_free() at the end. */
struct stalled_list {
	struct stalled *stalled;
	size_t number;
	double now; /* when it was read */
};

/* Takes name and text. */
void stalled_add(struct stalled_list *list, const struct stalled *stalled);
void stalled_free(struct stalled_list *list);
/* The same device below the same cache or volume; NULL: it is not among them. */
const struct stalled *stalled_find(const struct stalled_list *list, const struct stalled *stalled);

/* As a whole.  0, or errno. */
int stalled_write(const struct stalled_list *list);
/* Without a file, or one that cannot be read: nothing.  Lines that are none are passed over. */
void stalled_read(struct stalled_list *list);

#endif
