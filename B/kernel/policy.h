/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policy: questions with answers, no I/O, no locks of its own unless said.  Pure: includes pure.h only, tested in userland.
 */
#ifndef LARDER_POLICY_H
#define LARDER_POLICY_H

#include "pure.h"

/* ------------------------------------------------------------- sequential streams (bypass) */
/*
 * A table of recent streams per volume, as bcache keeps one (Linux 3.10, check_should_bypass): hashed by the sector where a
 * stream would go on.  A request that continues a stream adds to its length; one that does not starts one (and remembers the
 * task's average as bcache does).  Own spin lock inside.
 */
#define LARDER_NR_STREAMS_SEEN	128
struct larder_seq;
struct larder_seq *larder_seq_create(void);			/* sleeps */
u64 larder_seq_bytes(void);					/* of one */
void larder_seq_destroy(struct larder_seq *seq);
/*
 * Process context or softirq.  task: any value that names the issuer (pid).  Returns the bytes of the run that this request
 * belongs to, itself included; for a read not less than the average of the task's runs.
 */
u64 larder_seq_account(struct larder_seq *seq, u64 sector, u32 sectors, bool write, u32 task, unsigned long now_jiffies);
/*
 * The same contexts.  A request of this task that ends at sector 'end', and has just been accounted, is cut: what begins at
 * 'rest', behind its own beginning, will come, and be accounted, as a request of its own.
 */
void larder_seq_cut(struct larder_seq *seq, u64 rest, u64 end, bool write, u32 task);
/*
 * Somebody waits for what was written before: a flush of the volume (sectors: 0), or a write with FUA of so many, accounted before.
 * Any context.
 */
void larder_seq_flushed(struct larder_seq *seq, u32 sectors);

/* ------------------------------------------------------------- heat, two bits per slot, in two bitmaps */
/*
 * set_bit() and the like, of a slot: a cache of more than 16 TiB has more than 2^32, and where these are asm-generic's (arm64, ...)
 * the number of a bit has 32 bits.  test_bit() and find_next_bit() take any.
 */
static inline void larder_slot_set(u64 slot, unsigned long *bits)
{
	set_bit(slot % BITS_PER_LONG, bits + slot / BITS_PER_LONG);
}

static inline void larder_slot_clear(u64 slot, unsigned long *bits)
{
	clear_bit(slot % BITS_PER_LONG, bits + slot / BITS_PER_LONG);
}

static inline bool larder_slot_test_and_set(u64 slot, unsigned long *bits)
{
	return test_and_set_bit(slot % BITS_PER_LONG, bits + slot / BITS_PER_LONG);
}

static inline bool larder_slot_test_and_clear(u64 slot, unsigned long *bits)
{
	return test_and_clear_bit(slot % BITS_PER_LONG, bits + slot / BITS_PER_LONG);
}

struct larder_heat {
	unsigned long *warm, *hot;	/* bit per slot; heat = warm + 2 * hot */
	u64 slots;
};
#define LARDER_HEAT_MAX		3u
int larder_heat_init(struct larder_heat *h, u64 slots);	/* sleeps; vmalloc */
void larder_heat_free(struct larder_heat *h);
/* Any context, lock-free. */
/* one more, up to 3, for n slots; writes memory only where it changes */
void larder_heat_hit(struct larder_heat *h, u64 slot, u32 n);
static inline unsigned int larder_heat_get(const struct larder_heat *h, u64 slot)
{
	size_t w = slot / BITS_PER_LONG;
	u32 bit = slot % BITS_PER_LONG;

	if (slot >= h->slots)
		return 0;
	return (READ_ONCE(h->warm[w]) >> bit & 1) + 2 * (READ_ONCE(h->hot[w]) >> bit & 1);
}
void larder_heat_set(struct larder_heat *h, u64 slot, u32 n, unsigned int heat);
/* of one slot; never lowers it */
void larder_heat_raise(struct larder_heat *h, u64 slot, unsigned int heat);
/* each of n slots has what larder_keep_worthy() leaves it */
void larder_heat_cool(struct larder_heat *h, u64 slot, u32 n, bool main);
/* Does a hit count as heat?  age: blocks logged since the slot was written; capacity: of the cache, in blocks.  (design: 5 %) */
static inline bool larder_heat_counts(u64 age, u64 capacity) { return age * 20 >= capacity; }
/* from here on a block of the small queue is kept when its segment goes; a returning ghost that is written begins with it */
#define LARDER_HEAT_KEPT	2u
/*
 * The heat that a write takes over from the block that it writes over.  counts: larder_heat_counts() of that; main: it lay in keep,
 * where it would have had to be asked for again to stay, and has been.
 */
static inline unsigned int larder_heat_overwritten(unsigned int heat, bool counts, bool main)
{
	heat = min(heat + counts, LARDER_HEAT_MAX);
	return main ? max(heat, LARDER_HEAT_KEPT) : heat;
}

/* ------------------------------------------------------------- ghost: evicted 4 KiB blocks */
/*
 * A set-associative table of 16-bit fingerprints, oldest of a set replaced (FIFO), for 'blocks' entries; exact to 4 KiB blocks
 * of a volume. False positives below 1 in 2,000.  About 2 bytes per entry.  Own spin locks (hashed, irq-safe) inside.
 */
struct larder_ghost;
struct larder_ghost *larder_ghost_create(u64 blocks);		/* sleeps; vmalloc; NULL: no memory */
void larder_ghost_destroy(struct larder_ghost *g);
void larder_ghost_add(struct larder_ghost *g, u32 volume, u64 block);
bool larder_ghost_take(struct larder_ghost *g, u32 volume, u64 block);	/* was it there?  it is not any more */
/*
 * admit=second-miss: has one of n blocks been evicted, or missed, lately?  It stays.  If none has, all are remembered as missed.
 */
bool larder_ghost_missed(struct larder_ghost *g, u32 volume, u64 block, u32 n);
u64 larder_ghost_bytes(const struct larder_ghost *g);

/* ------------------------------------------------------------- eviction: which segment next, and what of it stays */
enum larder_small_or_main { LARDER_QUEUE_SMALL, LARDER_QUEUE_MAIN };	/* fill and write together; keep */
struct larder_queue_facts {
	u64 small_segments, main_segments;	/* sealed, without the opened ones; main: nor what stays there, hot or not */
	u64 total_segments;
	unsigned int small_percent;		/* goal of the small queue, 5..10 */
};
enum larder_small_or_main larder_evict_queue(const struct larder_queue_facts *f);
/*
 * A segment's fate.  live, dirty, hot: slots of it (hot: clean ones worth keeping by larder_keep_worthy()); size: slots of a
 * segment.
 */
enum larder_fate { LARDER_FATE_DROP_REST, LARDER_FATE_RELINK, LARDER_FATE_WAIT_WRITEBACK };
enum larder_fate larder_segment_fate(u32 live, u32 dirty, u32 hot, u32 size, bool main);
bool larder_dead_first(u32 live, u32 size);		/* at most 25 % live: goes before its turn */
/*
 * A block of the small queue needs LARDER_HEAT_KEPT and comes to keep with 1; there any heat will do, and it has one less then (as
 * in S3-FIFO: Yang et al., SOSP 2023; but that what is promoted has a round to be asked for again).  Returns whether it stays;
 * *heat: what it has afterwards.
 */
bool larder_keep_worthy(unsigned int heat_now, bool main, unsigned int *heat);
/* What becomes of clean data of a segment that is emptied. */
enum larder_extent_fate {
	LARDER_EXTENT_KEEP,		/* appended to keep */
	LARDER_EXTENT_AGAIN,		/* appended to fill: its turn has not come */
	LARDER_EXTENT_DROP,
	LARDER_EXTENT_GHOST,		/* dropped, and remembered */
};
/* dead: the segment goes before its turn (larder_dead_first()); *heat as above, or as it was. */
enum larder_extent_fate larder_extent_fate(unsigned int heat_now, bool main, bool dead, unsigned int *heat);

/* ------------------------------------------------------------- rate of writeback: a PI controller */
struct larder_rate {
	s64 integral;			/* sectors/s, scaled */
	u64 rate;			/* sectors per second, the answer */
	/* sectors that may be written back now (token bucket, at most one second's worth, at least one request) */
	u64 budget;
	u64 debt;			/* sectors spent beyond the budget: the next refills pay them first */
	u64 last_ns;
	u32 rest;			/* of the last refill: sectors * 10^9 */
	bool full;			/* the last answer was LARDER_RATE_FULL */
};
struct larder_rate_facts {
	u64 dirty, target;		/* sectors */
	u64 min_rate, max_rate;		/* sectors per second; max 0: no cap */
	bool backing_idle;		/* no user I/O there for a while: full speed */
	/* space is short, or a flush of everything was asked for: full speed, but never above a cap unless space is short */
	bool urgent;
	bool space_short;
	u64 now_ns;
};
void larder_rate_init(struct larder_rate *r, u64 now_ns);
/* Called about once per interval and before each batch.  Returns the sectors that may go now, LARDER_RATE_FULL: no limit */
#define LARDER_RATE_FULL (~0ull)
u64 larder_rate_update(struct larder_rate *r, const struct larder_rate_facts *f);
void larder_rate_spent(struct larder_rate *r, u64 sectors);

#endif
