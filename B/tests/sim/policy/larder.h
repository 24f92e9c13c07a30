/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The log cache as the kernel keeps it, without I/O (larder.c). */
#ifndef SIM_LARDER_H
#define SIM_LARDER_H

#include "trace.h"

struct larder_options {
	uint32_t segment_slots;		/* of a segment, at most: a power of two */
	uint32_t segments;		/* at least so many, where that leaves LARDER_LEAST_SLOTS: smaller segments in a small cache */
	uint32_t small_percent;		/* the setting */
	uint32_t cutoff;		/* sequential_cutoff, KiB; 0: none */
	uint32_t second_miss;		/* admit=second-miss */
};

#define LARDER_LEAST_SLOTS	4u

struct larder_result {
	uint64_t hits;			/* accesses whose block was in the cache */
	uint64_t inserted;		/* blocks that misses and writes put into the cache */
	uint64_t written;		/* blocks written to the log: those, and what reclaim kept of old segments */
	uint32_t segments, segment_slots;
};

/* false: the capacity, in blocks, is too small for a log. */
bool larder_replay(const struct trace *t, uint32_t capacity, const struct larder_options *o, struct larder_result *r);

#endif
