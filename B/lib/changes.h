/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What has changed between two looks at what runs, in words: a function of the two status lines alone. */
#ifndef LARDER_CHANGES_H
#define LARDER_CHANGES_H

#include <stdbool.h>

#include "dm.h"

struct change {
	const char *event; /* larder-monitor(8) lists them */
	const char *kind; /* cache, volume or disk */
	bool alarm; /* something is wrong: somebody should come */
	char *name; /* as we show it: of a cache without its prefix */
	char *device; /* its node */
	char *text; /* what it was and is; what is wrong, and the command that mends it */
};

struct changes {
	struct change *change;
	size_t number;
};

/* Adds to changes, which is zero to begin with; changes_free() at the end. */
void changes_between(struct changes *changes, const struct mapped_list *before, const struct mapped_list *now);
/*
 * Is something suspended that was not before, or was not there?  A start, or a reload, that is under way shows itself so, and is nothing wrong: whoever
 * compares looks again for a while.
 */
bool changes_pass(const struct mapped_list *before, const struct mapped_list *now);
/* The same, of what is wrong now, whenever it came. */
void changes_first(struct changes *changes, const struct mapped_list *now);
/* One more; takes text. */
void changes_add(struct changes *changes, const struct change *change);
void changes_free(struct changes *changes);

#endif
