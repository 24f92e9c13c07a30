/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The sums of a cache's data slots, from summaries and commit blocks, and what is dirty, read and held against them. */
#ifndef LARDER_SLOT_SUMS_H
#define LARDER_SLOT_SUMS_H

#include "cache_image.h"

enum slot_state {
	SLOT_GOOD,
	SLOT_DAMAGED, /* its sum does not match */
	SLOT_UNREADABLE, /* an I/O error */
	SLOT_UNKNOWN, /* neither a summary nor a commit block that is whole tells its sum */
	SLOT_ABSENT, /* only on an SSD that is not here */
};

/*
 * A run of dirty sectors of a volume that lies in one extent, all of one state: good if one of its copies is, else as the first copy that
 * is here.
 */
struct dirty_piece {
	uint64_t sector, cache; /* cache: linear address; of no meaning for zeroes */
	uint32_t length;
	bool zero; /* zeroes, that have no place in the cache: always good */
	bool differs; /* one copy is good, the other is here and is not; seen if image->compare is set */
	enum slot_state state;
	const uint8_t *data; /* if it is good: its contents */
};

typedef int (*dirty_visit)(const struct dirty_piece *piece, void *data);

/*
 * Visits what is dirty of a volume in [sector, end), in the order of its sectors, each piece read and verified.  Stops where visit
 * returns something other than 0, and returns that.
 */
int dirty_each(struct cache_image *image, const struct cached_volume *v, uint64_t sector, uint64_t end, dirty_visit visit, void *data);
/* Is it that of the segment's present life? */
bool summary_ok(const struct cache_image *image, const struct larder_summary *s, uint32_t segment);
const char *slot_state_text(enum slot_state state);

#endif
