/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What lies on the SSDs of a cache, read as a start reads it (docs/on-disk-format.md, section 7), by software that is not the
 * kernel's: the newest whole checkpoint, the log behind it, and what both say is mapped.  Nothing is written.
 *
 * What has further copies on other SSDs counts if it is valid in any.  Not for several threads at once.
 */
#ifndef LARDER_CACHE_IMAGE_H
#define LARDER_CACHE_IMAGE_H

#include "extent_map.h"
#include "ssd_set.h"

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
	uint32_t crc; /* of its commit block */
};

struct log_stream {
	uint32_t *segment, count, next; /* in order; [next] is the one to begin */
	bool *listed; /* by segment: it is one of these; NULL: none is */
	uint32_t opened; /* so many were named by OPEN items */
	uint32_t at, slot; /* where the next record is looked for; at: LARDER_NO_SEGMENT */
	uint64_t prev_sequence;
	uint32_t prev_crc;
};

struct slot_sums;

#define SEGMENT_COPIES LARDER_COPIES

/* One segment in memory, with its further copies if it has any. */
struct segment_window {
	uint32_t segment;
	unsigned copies;
	uint8_t *data[SEGMENT_COPIES];
	bool *bad[SEGMENT_COPIES]; /* by slot: it cannot be read, and is zero here */
};

struct cache_image {
	const struct ssd_set *set; /* NULL: nothing is here */
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
	uint32_t *mirror, *mirror_of; /* by segment: its next copy, and that whose next copy it is, from the first one on: number + 1; 0: none */
	uint8_t *unsure; /* by segment: LARDER_SEGMENT_FIRST_UNSURE, COPIES_UNSURE of its present life: not all its copies have all of its records */
	uint64_t dropped, ignored, skipped;

	struct problems problems; /* damage */
	struct problems torn; /* what a power cut leaves */
	struct problems lost; /* newer data than what was found has been there, or may have: records that were durable cannot be reached */
	bool absent; /* something that was needed is only on an SSD that is not here */
	bool spent; /* a number that a start would raise is at the end of its range: it is refused */

	struct segment_window window;
	struct slot_sums **sums; /* by segment: lib/slot_sums.c */
	bool compare; /* set by who wants both copies of dirty data to be read */
	void (*on_item)(const struct larder_item *item); /* set by who wants to see the items of the checkpoint */
};

/* The set is chosen and outlives it. */
void cache_image_init(struct cache_image *image, const struct ssd_set *set);
void cache_image_free(struct cache_image *image);

/*
 * Three steps, in this order.  False: it cannot be loaded, and a start would be refused; why is the last of image->problems.
 */
bool cache_image_checkpoint(struct cache_image *image);
bool cache_image_records(struct cache_image *image);
bool cache_image_replay(struct cache_image *image);

/* All of them. */
bool cache_image_load(struct cache_image *image);

/* The commit block of a record found.  False: it cannot be read any more. */
bool record_read(const struct cache_image *image, const struct log_record *record, struct larder_commit *commit);
const struct larder_entry *commit_entry(const struct larder_commit *commit, uint32_t i);
uint32_t commit_sum(const struct larder_commit *commit, uint32_t i); /* of slot first + i */
/* The log hash of an epoch by the superblock's list.  False: the list has it no more. */
bool epoch_known_hash(const struct larder_cache_sb *sb, uint32_t epoch, uint64_t *hash);

bool volume_marked(const struct cached_volume *v, uint64_t region);
void volume_mark(struct cached_volume *v, uint64_t region, bool set);

/* ---- lib/segment.c */

bool segment_exists(const struct cache_image *image, uint64_t segment);
/* The SSD that a segment which exists is on; NULL: it is not here.  *offset: bytes. */
const struct device *segment_device(const struct cache_image *image, uint32_t segment, uint64_t *offset);
/* The segments that hold this one's contents, itself first.  Returns how many. */
unsigned segment_copies(const struct cache_image *image, uint32_t segment, uint32_t copy[SEGMENT_COPIES]);
/* Of that segment alone, no further copy is asked.  0 or -errno, -ENODEV: its SSD is not here. */
int segment_read_at(const struct cache_image *image, uint32_t segment, uint64_t offset, void *buffer, size_t bytes);
/* Is an SSD here that has this segment, or a further copy of it? */
bool segment_is_here(const struct cache_image *image, uint32_t segment);
/*
 * further: the segments that are from now on its further copies, as a SEGMENT_OPEN has them: the number + 1 of the second in the lower
 * half, of the third in the upper half; 0: it has none.  None of them is a copy of another one any more.
 */
void segment_pair(struct cache_image *image, uint32_t segment, uint64_t further);
/* Are these further copies that the segment may have?  0 is none, and may be. */
bool segment_pair_ok(const struct cache_image *image, uint64_t segment, uint64_t further);
/* By what a checkpoint says of a segment, which is the first of its copies or not: its next copy. */
void segment_next(struct cache_image *image, uint32_t segment, uint32_t next, bool first);
/* Makes the segment, with its further copies, the window. */
void segment_read(struct cache_image *image, uint32_t segment);
/* Can a slot of the window be read in none of its copies? */
bool window_unreadable(const struct cache_image *image, uint32_t slot);
/* What lies at a slot of the window, in this one of its copies. */
const struct larder_commit *window_block(const struct cache_image *image, unsigned copy, uint32_t slot);

/* lib/checkpoint.c: loads the one that the pointer names.  NULL, or what is wrong with it. */
const char *checkpoint_load(struct cache_image *image, const struct larder_checkpoint_ptr *pointer);
/* Adds a segment to those of a stream, unless it is one already.  further: as in segment_pair(). */
void stream_open(struct cache_image *image, unsigned stream, uint32_t segment, uint64_t further);

#endif
