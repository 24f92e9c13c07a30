// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pace of writes where space is short (pace.h).
 */
#include "pace.h"

#define PACE_FILL_NS	NSEC_PER_MSEC		/* tokens are added so often, at most */
#define PACE_BURST_NS	(20 * NSEC_PER_MSEC)	/* what is not taken in that time is lost */
#define PACE_GIVE_UP_NS	(8ull * NSEC_PER_SEC)	/* without anything free: it is half as fast as it was taken for */
#define PACE_LINGER_NS	(2ull * NSEC_PER_SEC)	/* it stays on, behind the last writeback, which may be needed again soon */
#define PACE_FREED_MOST	(1ull << 33)		/* slots: their billions fit in 64 bits */
#define PACE_TIMES	4u			/* the rate, at most */

/* Half of what it was, half of what it has been now. */
static void pace_estimate(struct larder_pace *p, u64 ns)
{
	u64 rate = div64_u64(p->freed * NSEC_PER_SEC, max_t(u64, ns, 1));

	p->rate = clamp_t(u64, p->rate / 2 + rate / 2, LARDER_PACE_LEAST, LARDER_PACE_MOST);
	p->freed = 0;
}

void larder_pace_begin(struct larder_pace *p, u64 now_ns)
{
	bool first = !p->on;

	p->wrote_ns = now_ns;
	if (first) {
		p->rate = p->rate ?: LARDER_PACE_FIRST;
		p->tokens = 0;
		p->filled_ns = now_ns;
		p->freed = 0;
	} else if (p->freed) {
		pace_estimate(p, p->freed_ns - p->begun_ns);
		first = true;
	}
	/* of batches that free nothing the time counts, too */
	if (first)
		p->begun_ns = p->freed_ns = now_ns;
	WRITE_ONCE(p->on, true);
}

void larder_pace_end(struct larder_pace *p, u64 now_ns)
{
	if (now_ns < p->wrote_ns + PACE_LINGER_NS)
		return;
	if (p->on && p->freed)
		pace_estimate(p, p->freed_ns - p->begun_ns);
	WRITE_ONCE(p->on, false);
}

void larder_pace_freed(struct larder_pace *p, u32 slots, u64 now_ns)
{
	if (!p->on || !slots)
		return;
	p->freed = min_t(u64, p->freed + slots, PACE_FREED_MOST);
	p->freed_ns = max(now_ns, p->begun_ns);
}

bool larder_pace_due(const struct larder_pace *p, u64 now_ns)
{
	return now_ns >= p->filled_ns + PACE_FILL_NS || now_ns < p->filled_ns;
}

void larder_pace_fill(struct larder_pace *p, u32 room, u32 goal, u64 now_ns)
{
	u64 ns = now_ns > p->filled_ns ? min_t(u64, now_ns - p->filled_ns, PACE_BURST_NS) : 0, most, times;

	if (now_ns >= p->freed_ns + PACE_GIVE_UP_NS && !p->freed) {
		pace_estimate(p, PACE_GIVE_UP_NS);
		p->freed_ns = now_ns;
	}
	/* 1,024 are one; never none while there is any room */
	times = div64_u64(min_t(u64, room, (u64)PACE_TIMES * goal) * 4096, max_t(u64, 3ull * goal, 1));
	times = room ? max_t(u64, times, 1) : 0;
	most = max_t(u64, PACE_BURST_NS * p->rate / 1024 * times, NSEC_PER_SEC);	/* one slot, however slow */
	p->filled_ns = now_ns;
	p->tokens = min_t(s64, p->tokens + (s64)(ns * p->rate * times / 1024), most);
}

bool larder_pace_admits(const struct larder_pace *p)
{
	return p->tokens > 0;
}

void larder_pace_take(struct larder_pace *p, u32 slots)
{
	p->tokens -= (s64)slots * NSEC_PER_SEC;
}

/* ------------------------------------------------------------------ batches of writeback */

u32 larder_batch_next(const struct larder_batch *b)
{
	return READ_ONCE(b->next) ?: LARDER_BATCH_MOST / 4;
}

u32 larder_batch_beside(const struct larder_batch *b)
{
	u32 most = max(larder_batch_next(b) / 8, LARDER_BATCH_LEAST / 4);

	return min(READ_ONCE(b->beside) ?: most, most);
}

void larder_batch_took(struct larder_batch *b, u32 n, u64 ns, bool beside)
{
	u32 rate, next;

	if (beside) {
		next = min_t(u64, div64_u64((u64)n * (NSEC_PER_SEC / 8), max_t(u64, ns, 1)), LARDER_BATCH_MOST);
		if (n)
			WRITE_ONCE(b->beside, max(next, LARDER_BATCH_LEAST / 4));
		return;
	}
	if (n < LARDER_BATCH_LEAST)
		return;
	rate = min_t(u64, div64_u64((u64)n * NSEC_PER_SEC, max_t(u64, ns, 1)), U32_MAX / 4);
	b->best -= b->best / 16;
	/* one as large that is slower: it is the disk, or others who use it */
	if (rate >= b->best || n >= b->best_size) {
		b->best = rate;
		b->best_size = n;
	}
	/* much slower than larger ones: back to these, and beyond */
	next = rate < b->best / 4 * 3 ? min(4 * n, 2 * b->best_size) : rate;
	WRITE_ONCE(b->next, clamp(next, LARDER_BATCH_LEAST, LARDER_BATCH_MOST));
}
