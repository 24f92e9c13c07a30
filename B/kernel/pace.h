/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pace: how fast users' writes take what is left of the log while reclaim has to write dirty data back to make room.  Pure:
 * includes pure.h only, tested in userland.
 *
 * Room comes in batches, each of which takes the disk a second or so.  Were it taken as fast as the SSD can, everybody would wait
 * until the next one, and again.  So while it is on, writes are admitted as fast as room has come lately, faster where more than
 * three quarters of what reclaim wants is in hand, slower with less: that is where it settles.  It is less than all, so that
 * reclaim never rests: how fast it could make room would not be known.  Whoever writes waits for about his share of the disk.  An
 * estimate that is wrong by some factor only moves what is in hand by it.
 *
 * A bucket of tokens, which may be overdrawn by one request.  No locks: those of the caller.
 */
#ifndef LARDER_PACE_H
#define LARDER_PACE_H

#include "pure.h"

#define LARDER_PACE_FIRST	512u	/* slots per second, where nothing is known: a disk at random writes of 4 KiB */
#define LARDER_PACE_LEAST	32u
#define LARDER_PACE_MOST	(1u << 22)

struct larder_pace {
	u32 rate;		/* slots per second that have become free lately; 0: not known */
	bool on;
	s64 tokens;		/* slots, in billionths */
	u64 filled_ns;		/* when tokens were added last */
	u64 wrote_ns;		/* when reclaim has begun to write back last */
	u64 begun_ns;		/* the same, but that something has become free since: what the next estimate is of */
	u64 freed, freed_ns;	/* slots that have, and when the last ones did, or the rate was halved */
};

/* Reclaim writes back to make room, now. */
void larder_pace_begin(struct larder_pace *p, u64 now_ns);
/* It has made room of so many slots. */
void larder_pace_freed(struct larder_pace *p, u32 slots, u64 now_ns);
/* There is as much room as reclaim wants: enough, if it has not written back for a while. */
void larder_pace_end(struct larder_pace *p, u64 now_ns);
/* Is it so long since tokens were added that it is time to look what room there is? */
bool larder_pace_due(const struct larder_pace *p, u64 now_ns);
/* Adds what has come due; room, goal: of any unit, what is in hand and what reclaim wants in hand. */
void larder_pace_fill(struct larder_pace *p, u32 room, u32 goal, u64 now_ns);
/* While it is on: may a write take what it wants now? */
bool larder_pace_admits(const struct larder_pace *p);
/* It has taken so many slots. */
void larder_pace_take(struct larder_pace *p, u32 slots);

/*
 * How many pieces are written back together where somebody may wait for the end of it: as many as take about a second, unless that
 * is much slower than larger ones are (a flush that takes long whatever it is of).
 */
#define LARDER_BATCH_LEAST	64u
#define LARDER_BATCH_MOST	4096u

struct larder_batch {
	u32 next;		/* pieces; 0: none was written yet */
	u32 best;		/* pieces per second, of the best batch lately */
	u32 best_size;		/* of so many pieces */
	u32 beside;		/* pieces, of larder_batch_beside(); 0: none was written so yet */
};

u32 larder_batch_next(const struct larder_batch *b);
/* The same, where others read from the disk and nobody waits for room: as many as take about an eighth of a second. */
u32 larder_batch_beside(const struct larder_batch *b);
/* So many were written in so long, the flush included; beside: few, beside others, which tells nothing of how fast many are. */
void larder_batch_took(struct larder_batch *b, u32 n, u64 ns, bool beside);

#endif
