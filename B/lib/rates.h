/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a volume did between two looks at its status. */
#ifndef LARDER_RATES_H
#define LARDER_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "dm.h"

/* All that runs, at one moment. */
struct sample {
	struct mapped_list list;
	double at; /* seconds of CLOCK_MONOTONIC */
};

/* Complains; free it all the same. */
int sample_take(struct sample *sample);
void sample_free(struct sample *sample);

/* Per second, but for what is. */
struct volume_rates {
	double seconds; /* between the two */
	double hit_ratio; /* of the reads in between, 0 to 1; negative: there were none */
	double reads, writes, flushes; /* pieces of requests, as the status counts them */
	double read_bytes, write_bytes, fill_bytes, writeback_bytes;
	uint64_t cached_bytes, dirty_bytes; /* now */
	bool has_cache;
	uint64_t read_latency_us, write_latency_us; /* of the SSD, moving averages; 0: none timed, or no cache */
	double waits; /* requests that found no space in the cache */
};

/*
 * Of a volume of `now`.  False: `before` has no such volume, by its UUID and its name.  A counter that is smaller than before has begun
 * anew at 0.  A volume without a cache counts nothing.
 */
bool rates_of_volume(const struct sample *before, const struct sample *now, const struct mapped *volume, struct volume_rates *rates);

#endif
