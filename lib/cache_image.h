/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What lies on the SSD of a cache, read as a start reads it (docs/on-disk-format.md, section 7), by software that is not the
 * kernel's: the newest whole checkpoint, the log behind it, and what both say is mapped.  Nothing is written.
 *
 * One SSD per cache, as in this release.  Not for several threads at once.
 */
#ifndef LARDER_CACHE_IMAGE_H
#define LARDER_CACHE_IMAGE_H

#include "extent_map.h"
#include "superblock.h"

struct cached_volume {
	uint64_t sectors; /* 0: the table has none of this number that is attached */
	struct extent_map map;
	uint64_t *mark; /* numbers of its marked 64 MiB regions, sorted */
	size_t nr_marks;
};

struct log_record {
	uint64_t sequence;
	uint32_t segment, slot;
	unsigned stream;
};

struct log_stream {
	uint32_t *segment, count, next; /* in order; [next] is the one to begin */
	uint32_t at, slot; /* where the next record is looked for; at: LARDER_NO_SEGMENT */
	uint64_t prev_sequence;
	uint32_t prev_crc;
};

struct slot_sums;

struct cache_image {
	const struct device *device;
	const struct larder_cache_sb *sb;
	const struct larder_table *table;
	uint32_t segment_slots, segments_end; /* segments_end: first number behind the last segment */
	struct cached_volume volume[LARDER_MAX_VOLUMES];
	struct extent_usage usage;

	const struct larder_checkpoint_ptr *loaded; /* NULL: the cache was never started */
	uint32_t epoch;
	uint64_t hash, replay_from, first_sequence;
	struct log_stream stream[LARDER_NR_STREAMS];
	struct log_record *record; /* those that count, in the order of replay */
	uint64_t nr_records, size_records;
	uint64_t durable; /* newest record of the write stream that is known to have been durable */
	uint64_t ends_at; /* newest one found that counts */
	uint64_t must_reach; /* what the log must come to, or part of it is missing */
	uint64_t *last_record; /* by segment: sequence of its last record, 0: not known */
	uint64_t dropped, ignored, skipped;

	struct problems problems; /* damage */
	struct problems torn; /* what a power cut leaves */
	bool lost; /* records that were durable cannot be reached: newer data than what was found has been there */

	/* one segment in memory */
	uint32_t window;
	uint8_t *window_data;
	bool *window_bad; /* by slot: it cannot be read */

	struct slot_sums **sums; /* by segment: lib/slot_sums.c */
	void (*on_item)(const struct larder_item *item); /* set by who wants to see the items of the checkpoint */
};

/* sb and table are valid and outlive it.  Complains if it is none that this release can read. */
int cache_image_init(struct cache_image *image, const struct device *device, const struct larder_cache_sb *sb,
		     const struct larder_table *table);
void cache_image_free(struct cache_image *image);

/*
 * Three steps, in this order.  False: it cannot be loaded, and a start would be refused; why is the last of image->problems.
 */
bool cache_image_checkpoint(struct cache_image *image);
bool cache_image_records(struct cache_image *image);
bool cache_image_replay(struct cache_image *image);

/* All of them. */
bool cache_image_load(struct cache_image *image);

bool segment_exists(const struct cache_image *image, uint64_t segment);
uint64_t segment_offset(const struct cache_image *image, uint32_t segment); /* bytes */
/* Makes the segment the window; slots that cannot be read are marked in window_bad, and zero. */
void segment_read(struct cache_image *image, uint32_t segment);
/* The commit block of a record found.  False: it cannot be read any more. */
bool record_read(const struct cache_image *image, const struct log_record *record, struct larder_commit *commit);
const struct larder_entry *commit_entry(const struct larder_commit *commit, uint32_t i);
uint32_t commit_sum(const struct larder_commit *commit, uint32_t i); /* of slot first + i */
/* The log hash of an epoch by the superblock's list.  False: the list has it no more. */
bool epoch_known_hash(const struct larder_cache_sb *sb, uint32_t epoch, uint64_t *hash);

bool volume_marked(const struct cached_volume *v, uint64_t region);
void volume_mark(struct cached_volume *v, uint64_t region, bool set);

/* lib/checkpoint.c: loads the one that the pointer names.  NULL, or what is wrong with it. */
const char *checkpoint_load(struct cache_image *image, const struct larder_checkpoint_ptr *pointer);
/* Adds a segment to those of a stream, unless it waits there already. */
void stream_open(struct cache_image *image, unsigned stream, uint32_t segment);

#endif
