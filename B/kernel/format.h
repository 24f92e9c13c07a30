/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Encode, decode and validate what larder_format.h describes.  Pure: no I/O, no allocation, no locks, no sleep: any context.
 *
 * Every larder_check_*() takes bytes from a disk and trusts none of them: magic, version, features and the bounds of the fixed
 * fields, then the checksum, then what the counts announce (which are checked before they are used).  It returns 0 or a negative
 * errno and sets *why (never NULL afterwards, if it fails) to a static string that names the wrong field.  After 0 the accessors
 * of that structure need no further check.
 *
 *   -ENODATA	no magic number: nothing of ours here
 *   -EOPNOTSUPP	a version or an incompatible feature that this code does not know
 *   -ESTALE	ours, whole in its fixed fields, but not the one expected: another epoch, hash, place, predecessor
 *   -EINVAL	a field out of its bounds
 *   -EBADMSG	checksum
 *
 * Numbers in arguments and in the *_in structures are in CPU order.
 */
#ifndef LARDER_FORMAT_CODE_H
#define LARDER_FORMAT_CODE_H

#include "pure.h"
#include "larder_format.h"

/* crc32c, initial value ~0, result not inverted. */
u32 larder_crc(const void *p, size_t bytes);
/* The same, the four bytes at crc_at taken as zero; crc_at + 4 <= bytes. */
u32 larder_crc_without(const void *p, size_t bytes, size_t crc_at);

/* What commit blocks and summaries of an epoch carry.  secret: larder_epoch.secret in CPU order. */
u64 larder_log_hash(const u8 cache_uuid[LARDER_UUID_SIZE], u64 secret);
/* What the chunks of one checkpoint carry.  secret: of the newest epoch; sequence: of the checkpoint. */
u64 larder_checkpoint_hash(const u8 cache_uuid[LARDER_UUID_SIZE], u64 secret, u64 sequence);

/* ------------------------------------------------------------- superblocks (LARDER_SB_SIZE bytes each) */

/*
 * device_sectors: size of the device now, 0: unknown.  Any kind; the checksum covers all LARDER_SB_SIZE bytes behind head.
 * Unknown ro_compat features pass: ask larder_sb_read_only().
 */
int larder_check_head(const struct larder_sb_head *head, u64 device_sectors, const char **why);
int larder_check_cache_sb(const struct larder_cache_sb *sb, u64 device_sectors, const char **why);
int larder_check_volume_sb(const struct larder_volume_sb *sb, u64 device_sectors, const char **why);
/* By the kind that the head names; SPARE and OTHER: the head only. */
int larder_check_sb(const struct larder_sb_head *head, u64 device_sectors, const char **why);
bool larder_sb_read_only(const struct larder_sb_head *head);

/*
 * Which of the two copies counts: returns 0: a, 1: b, or the error of a.  a: what stands at LARDER_SB_OFFSET; b: what stands at
 * b_offset (bytes), NULL: not read.  b counts if it is valid, says itself that its copy is at b_offset, and a is invalid, or is
 * of the same UUID with a lower generation. kind: the kind wanted, 0: any.
 */
int larder_choose_sb(const struct larder_sb_head *a, const struct larder_sb_head *b, u64 b_offset, u32 kind, u64 device_sectors,
		     const char **why);
/* Bytes: where the copy of an SSD's superblock is, the last whole 4 KiB; a backing's with the default data_offset. */
static inline u64 larder_cache_copy_offset(u64 device_sectors)
{
	return (device_sectors / LARDER_SLOT_SECTORS - 1) * LARDER_SB_SIZE;
}
/* Segments that the SSD of a checked superblock has room for, were it so large; 0: none. */
u32 larder_cache_room(const struct larder_cache_sb *sb, u64 device_sectors);
#define LARDER_DEF_VOLUME_COPY_OFFSET ((u64)LARDER_DEF_DATA_OFFSET - LARDER_SB_SIZE)

/* Before a superblock is written: magic, version, generation + 1, checksum.  Both copies are then written as they are. */
void larder_seal_sb(struct larder_sb_head *head);

static inline bool larder_checkpoint_empty(const struct larder_checkpoint_ptr *p)
{
	return !p->sequence || le32_to_cpu(p->first_segment) == LARDER_NO_SEGMENT;
}

/* ------------------------------------------------------------- table of devices and volumes */

/* sb: a checked superblock of the cache that the table must fit, NULL: none. */
int larder_check_table(const struct larder_table *t, const struct larder_cache_sb *sb, const char **why);
/* Returns 0: a, 1: b, or the error of a.  *why: of a. */
int larder_choose_table(const struct larder_table *a, const struct larder_table *b, const struct larder_cache_sb *sb,
			const char **why);
/* Before a table is written: magic, generation + 1, checksum. */
void larder_seal_table(struct larder_table *t);
u64 larder_table_shape(const struct larder_table *t);	/* the lowest generation of a table that says the same, but for seen */

/* ------------------------------------------------------------- what log and checkpoint are checked against */

struct larder_geometry {
	u32 segment_slots;		/* 4 KiB slots of a segment, summary included */
	u32 nr_segments;		/* of the whole set */
	u32 nr_volumes;			/* of volume_sectors[] */
	const u64 *volume_sectors;	/* by number; 0: no such volume (refused), ~0: not known any more: any sector passes */
};

/* ------------------------------------------------------------- commit blocks */

struct larder_entry_in {
	u64 sector, cache;
	u32 length;
	u16 volume;
	u8 kind;			/* enum larder_entry_kind */
};

static inline void larder_entry_encode(struct larder_entry *d, const struct larder_entry_in *e)
{
	d->sector = cpu_to_le64(e->sector);
	d->cache = cpu_to_le64(e->cache);
	d->length = cpu_to_le32(e->length);
	d->volume = cpu_to_le16(e->volume);
	d->kind = e->kind;
	d->zero = 0;
}

static inline u32 larder_commit_entries(const struct larder_commit *c) { return le16_to_cpu(c->nr_entries); }

struct larder_commit_place {
	u64 hash;			/* larder_log_hash() of the epoch */
	u64 sequence, prev_sequence, durable_sequence;
	u32 prev_crc;			/* CPU order: what larder_commit_finish() of the record before returned */
	u32 epoch, segment;
	u16 slot, first, end;		/* first <= end <= slot; sums[end - first] */
	u8 stream;
};

/*
 * Room for nr_more further entries in a record that will have nr_slots data slots in all (not: more), at most
 * LARDER_RECORD_SLOTS?
 */
static inline bool larder_commit_room(const struct larder_commit *c, u32 nr_more, u32 nr_slots)
{
	const u32 bytes = sizeof(struct larder_entry);

	return nr_slots <= LARDER_RECORD_SLOTS && nr_more <= LARDER_COMMIT_BODY / bytes &&
	       (larder_commit_entries(c) + nr_more) * bytes + nr_slots * 4 <= LARDER_COMMIT_BODY;
}
/* Zeroes the block. */
void larder_commit_init(struct larder_commit *c);
/*
 * Appends.  Returns the index of the entry, for larder_commit_drop(), or -ENOSPC: not even the body has room (sums not counted).
 */
static inline int larder_commit_add(struct larder_commit *c, const struct larder_entry_in *e)
{
	u32 n = larder_commit_entries(c);

	if (!larder_commit_room(c, 1, 0))
		return -ENOSPC;
	larder_entry_encode((struct larder_entry *)c->body + n, e);
	c->nr_entries = cpu_to_le16(n + 1);
	return n;
}
/* Takes entry i out: indexes of the others stay as they are until larder_commit_finish() closes the gaps. */
void larder_commit_drop(struct larder_commit *c, u32 i);
/* Replaces entry i (a fill shortened by a racing write, say). */
void larder_commit_set(struct larder_commit *c, u32 i, const struct larder_entry_in *e);
/*
 * Stores place, sums (CPU order, one for each data slot) and the checksum, which it returns: the next record's prev_crc.  Entries
 * and sums must fit: larder_commit_room(c, 0, end - first) was asked.
 */
u32 larder_commit_finish(struct larder_commit *c, const struct larder_commit_place *p, const u32 *sums);

struct larder_commit_expect {
	const struct larder_geometry *geo;
	u64 hash;
	u64 prev_sequence;		/* of the predecessor in stream and epoch; 0: none */
	u32 prev_crc;
	u32 epoch, segment, slot;
	u32 from;			/* slot behind the commit block before it: its data does not begin in front of that */
	u8 stream;
	bool any_prev;			/* prev_sequence and prev_crc are not checked (a segment read for itself: reclaim, scrub) */
};
/*
 * Is this block a commit block, and the one expected?  The data slots' sums are the caller's: larder_commit_sum().  -ENODATA and
 * -ESTALE are what an unused slot, or one of an older life of the segment, gives.  Streams FILL and KEEP may hold FILL entries
 * only.
 */
int larder_check_commit(const struct larder_commit *c, const struct larder_commit_expect *e, const char **why);
/* Cheap, for the look ahead over 128 slots: magic, hash, epoch, stream, place.  No checksum. */
bool larder_commit_maybe(const struct larder_commit *c, const struct larder_commit_expect *e);
/* i < nr_entries; of a block that is checked, or being built (kind 0 then: taken out). */
void larder_commit_entry(const struct larder_commit *c, u32 i, struct larder_entry_in *e);
/* i < end - first; of a block that is checked or finished.  CPU order. */
u32 larder_commit_sum(const struct larder_commit *c, u32 i);
/* Data slots of the record. */
static inline u32 larder_commit_slots(const struct larder_commit *c) { return le16_to_cpu(c->end) - le16_to_cpu(c->first); }

/* ------------------------------------------------------------- summaries */

struct larder_summary_place {
	u64 hash, first_sequence, last_sequence;
	u32 segment, epoch;
	u8 stream, flags;		/* LARDER_SUMMARY_* */
};

void larder_summary_init(struct larder_summary *s);
/*
 * Append: one entry; those of a finished commit block that have data (data_only), or all.  -ENOSPC: nothing was added; such a
 * segment gets no summary.
 */
int larder_summary_add(struct larder_summary *s, const struct larder_entry_in *e);
int larder_summary_add_commit(struct larder_summary *s, const struct larder_commit *c, bool data_only);
/* sums[nr_sums]: of slots [0, nr_sums), 0 where no entry is.  -ENOSPC: entries and sums do not fit together. */
int larder_summary_finish(struct larder_summary *s, const struct larder_summary_place *p, const u32 *sums, u32 nr_sums);
/* All of it at once. */
int larder_summary_build(struct larder_summary *s, const struct larder_summary_place *p, const struct larder_entry_in *entries,
			 u32 nr_entries, const u32 *sums, u32 nr_sums);

struct larder_summary_expect {
	const struct larder_geometry *geo;
	u64 hash;
	u32 segment, epoch;
	u8 stream;
};
int larder_check_summary(const struct larder_summary *s, const struct larder_summary_expect *e, const char **why);
void larder_summary_entry(const struct larder_summary *s, u32 i, struct larder_entry_in *e);	/* i < nr_entries */
u32 larder_summary_sum(const struct larder_summary *s, u32 i);					/* i < nr_sums */

/* ------------------------------------------------------------- checkpoints: chunks of items */

struct larder_pos_in {			/* struct larder_stream_pos */
	u64 prev_sequence;
	u32 segment, slot, prev_crc;
};

struct larder_segment_in {		/* struct larder_segment_info */
	u64 sequence;
	u8 state, stream, flags;
	u32 mirror;			/* number + 1, 0: none: the next copy */
};

/* Zeroes the chunk. */
void larder_chunk_init(struct larder_chunk *c, u64 sequence, u32 number);
/* How many units of so many bytes an item appended now could announce; 0: none, or not even the item fits. */
u32 larder_chunk_room(const struct larder_chunk *c, u32 unit_bytes);
/*
 * Append an item; -ENOSPC: it does not fit, nothing is changed: finish this chunk and begin the next (an empty one takes 4096
 * extents, 4091 segments). kind of _u64: REGION, MARKS, OPEN.
 */
int larder_chunk_add_u64(struct larder_chunk *c, u8 kind, u16 volume, u64 number, const u64 *values, u32 count);
int larder_chunk_add_pos(struct larder_chunk *c, u8 stream, const struct larder_pos_in *pos);	/* NULL: count 0 */
int larder_chunk_add_segments(struct larder_chunk *c, u64 first, const struct larder_segment_in *info, u32 count);
int larder_chunk_add_end(struct larder_chunk *c);
/*
 * The further copies of a segment in one number, as a SEGMENT_OPEN has them: lower half: the second one + 1, upper half: the third
 * one + 1; 0: none.
 */
static inline u32 larder_second(u64 further) { return (u32)further; }
static inline u32 larder_third(u64 further) { return further >> 32; }
static inline u64 larder_further(u32 second, u32 third) { return second | (u64)third << 32; }
/* Do these exist, and is each another one than the segment and the other? */
bool larder_further_ok(u64 segment, u64 further, u32 nr_segments);

void larder_chunk_finish(struct larder_chunk *c, u64 hash, u32 next_segment, u64 next_further);

struct larder_chunk_expect {
	const struct larder_geometry *geo;
	u64 hash, sequence;
	u32 number;
};
/* Head and checksum; the items are checked by larder_chunk_next(). */
int larder_check_chunk(const struct larder_chunk *c, const struct larder_chunk_expect *e, const char **why);

struct larder_item_in {
	u64 number;
	u32 count;
	u16 volume;			/* OPEN, STREAM: the stream */
	u8 kind;			/* enum larder_item_kind */
	const void *data;		/* little-endian: use the accessors */
};
/*
 * The next item of a checked chunk.  *at: bytes into the payload, 0 at first.  Returns 1: *item is valid; 0: no more; negative:
 * invalid, *why. What is checked: everything, the extents of a REGION excepted: larder_index_check_region().
 */
int larder_chunk_next(const struct larder_chunk *c, const struct larder_geometry *geo, u32 *at, struct larder_item_in *item,
		      const char **why);
/* i < count */
u64 larder_item_u64(const struct larder_item_in *item, u32 i);
void larder_item_pos(const struct larder_item_in *item, struct larder_pos_in *pos);
void larder_item_segment(const struct larder_item_in *item, u32 i, struct larder_segment_in *info);
/* All count values of a REGION, MARKS or OPEN item in CPU order. */
void larder_item_copy_u64(const struct larder_item_in *item, u64 *values);

#endif
