/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What share of requests a cache would serve, for all of its sizes at once, from the requests that a device gets: an estimate in memory that does not
 * grow with the traffic.  No I/O, no clock; the same requests and options give the same curve.
 */
#ifndef LARDER_HIT_CURVE_H
#define LARDER_HIT_CURVE_H

#include <stddef.h>
#include <stdint.h>

#define HIT_BLOCK_SHIFT	12 /* blocks of 4 KiB, as larder caches them */
#define HIT_SECTOR_MAX	(UINT64_C(1) << 51) /* 1 EiB: requests end here at the latest */
#define HIT_SAMPLES	65536u /* some 5 MiB of memory */
#define HIT_ALL		UINT64_MAX /* a cache that never has to give up anything */

enum hit_access {
	HIT_READ,
	HIT_WRITE,
	HIT_DISCARD,
};

#define HIT_KINDS 2 /* that are counted: HIT_READ, HIT_WRITE */

enum hit_measure {
	HIT_REQUESTS, /* each counts as one, by the share of its blocks that hit: what `larder volume status` counts */
	HIT_BLOCKS, /* each counts by its length */
	HIT_MEASURES,
};

struct hit_options {
	size_t samples; /* blocks that are followed at once, at least 16 */
	uint64_t cutoff; /* bytes: what a stream has beyond them goes past the cache; 0: all is cached */
	uint64_t seed; /* of the choice of blocks */
};

struct hit_totals {
	uint64_t requests[HIT_KINDS], blocks[HIT_KINDS]; /* all that there were */
	uint64_t past[HIT_KINDS]; /* requests of long streams */
	uint64_t discards;
	uint64_t samples; /* references that were followed */
	double rate; /* share of all blocks that are followed now */
	uint64_t working_set; /* blocks that were asked for, estimated; long streams left out */
};

struct hit_curve;

struct hit_curve *hit_curve_new(const struct hit_options *options);
void hit_curve_free(struct hit_curve *curve);

/* device: any number that tells devices apart which would share the cache.  sectors > 0; sector + sectors <= HIT_SECTOR_MAX. */
void hit_curve_add(struct hit_curve *curve, uint32_t device, enum hit_access access, uint64_t sector, uint32_t sectors);

void hit_curve_totals(const struct hit_curve *curve, struct hit_totals *totals);
/*
 * Share of reads, or of writes, that find their block in a cache of so many bytes: 0 to 1; -1: there were none.  *error (may be NULL): the
 * standard error that the choice of blocks leaves; 0 where all blocks are followed.
 */
double hit_curve_ratio(const struct hit_curve *curve, enum hit_access kind, enum hit_measure measure, uint64_t bytes, double *error);

#endif
