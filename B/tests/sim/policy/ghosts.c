// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Policies that remember what left them.
 *
 * 2Q: Johnson, Shasha, "2Q: a low overhead high performance buffer management replacement algorithm" (VLDB 1994), the full version,
 * A1in a quarter of the cache, A1out half of it.  ARC: Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache" (FAST
 * 2003).  S3-FIFO: Yang, Zhang, Qiu, Yue, Vinayak, "FIFO queues are all you need for cache eviction" (SOSP 2023): a tenth small, a
 * ghost as large as main, moved to main at the second hit.
 */
#include <stdlib.h>
#include "policies.h"

#define GHOSTS_LISTS	4

/* A block is on one list at most; where says on which, 0: on none. */
struct lists {
	struct links links;
	struct list list[GHOSTS_LISTS + 1];
	uint8_t *where;
};

static void lists_take(struct lists *l, const struct trace *t)
{
	unsigned int i;

	links_take(&l->links, t->blocks);
	l->where = take(t->blocks, sizeof(*l->where));
	for (i = 0; i <= GHOSTS_LISTS; i++)
		l->list[i] = list_empty(&l->links);
}

static void lists_free(struct lists *l)
{
	links_free(&l->links);
	free(l->where);
}

/* To the young end of a list, from wherever it is. */
static void lists_move(struct lists *l, uint32_t b, uint8_t to)
{
	if (l->where[b])
		list_del(&l->list[l->where[b]], b);
	l->where[b] = to;
	if (to)
		list_push(&l->list[to], b);
}

/* The oldest one of a list that is not empty. */
static uint32_t lists_age(struct lists *l, uint8_t from, uint8_t to)
{
	uint32_t b = l->list[from].tail;

	lists_move(l, b, to);
	return b;
}

static uint32_t at_least_one(uint32_t n)
{
	return n ? n : 1;
}

enum { TWOQ_IN = 1, TWOQ_OUT, TWOQ_MAIN };

uint64_t twoq(const struct trace *t, uint32_t capacity)
{
	uint32_t in = at_least_one(capacity / 4), out = at_least_one(capacity / 2), i, b;
	uint64_t hits = 0;
	struct lists l;
	uint8_t to;

	lists_take(&l, t);
	for (i = 0; i < t->accesses; i++) {
		b = t->access[i];
		if (l.where[b] == TWOQ_MAIN || l.where[b] == TWOQ_IN) {
			hits++;
			if (l.where[b] == TWOQ_MAIN)
				lists_move(&l, b, TWOQ_MAIN);
			continue;
		}
		to = l.where[b] == TWOQ_OUT ? TWOQ_MAIN : TWOQ_IN;
		lists_move(&l, b, 0);
		if (l.list[TWOQ_IN].n + l.list[TWOQ_MAIN].n >= capacity) {
			if (l.list[TWOQ_IN].n > in || !l.list[TWOQ_MAIN].n) {
				lists_age(&l, TWOQ_IN, TWOQ_OUT);
				if (l.list[TWOQ_OUT].n > out)
					lists_age(&l, TWOQ_OUT, 0);
			} else {
				lists_age(&l, TWOQ_MAIN, 0);
			}
		}
		lists_move(&l, b, to);
	}
	lists_free(&l);
	return hits;
}

enum { ARC_T1 = 1, ARC_T2, ARC_B1, ARC_B2 };

/* p: the goal of T1, in blocks; in_b2: the block asked for is on B2 */
static void arc_replace(struct lists *l, double p, bool in_b2)
{
	uint32_t t1 = l->list[ARC_T1].n;

	if (t1 && (t1 > p || (in_b2 && t1 == (uint32_t)p) || !l->list[ARC_T2].n))
		lists_age(l, ARC_T1, ARC_B1);
	else
		lists_age(l, ARC_T2, ARC_B2);
}

/* Of a block that is on no list: makes room for it. */
static void arc_room(struct lists *l, double p, uint32_t capacity)
{
	uint32_t t1 = l->list[ARC_T1].n, b1 = l->list[ARC_B1].n, all = t1 + b1 + l->list[ARC_T2].n + l->list[ARC_B2].n;

	if (t1 + b1 == capacity) {
		if (t1 == capacity) {
			lists_age(l, ARC_T1, 0);
			return;
		}
		lists_age(l, ARC_B1, 0);
	} else if (all < capacity) {
		return;
	} else if (all == 2 * (uint64_t)capacity) {
		lists_age(l, ARC_B2, 0);
	}
	arc_replace(l, p, false);
}

uint64_t arc(const struct trace *t, uint32_t capacity)
{
	double p = 0, b1, b2;
	uint64_t hits = 0;
	struct lists l;
	uint32_t i, b;

	lists_take(&l, t);
	for (i = 0; i < t->accesses; i++) {
		b = t->access[i];
		b1 = l.list[ARC_B1].n;
		b2 = l.list[ARC_B2].n;
		switch (l.where[b]) {
		case ARC_T1:
		case ARC_T2:
			hits++;
			break;
		case ARC_B1:
			p += b1 >= b2 ? 1 : b2 / b1;
			p = p > capacity ? capacity : p;
			arc_replace(&l, p, false);
			break;
		case ARC_B2:
			p -= b2 >= b1 ? 1 : b1 / b2;
			p = p < 0 ? 0 : p;
			arc_replace(&l, p, true);
			break;
		default:
			arc_room(&l, p, capacity);
			lists_move(&l, b, ARC_T1);
			continue;
		}
		lists_move(&l, b, ARC_T2);
	}
	lists_free(&l);
	return hits;
}

enum { S3FIFO_SMALL = 1, S3FIFO_MAIN, S3FIFO_GHOST };
#define S3FIFO_USED_MAX	3

static void s3fifo_evict_main(struct lists *l, uint8_t *used)
{
	uint32_t b;

	while (l->list[S3FIFO_MAIN].n) {
		b = l->list[S3FIFO_MAIN].tail;
		if (!used[b]) {
			lists_move(l, b, 0);
			return;
		}
		used[b]--;
		lists_move(l, b, S3FIFO_MAIN);
	}
}

static void s3fifo_evict_small(struct lists *l, uint8_t *used, uint32_t main)
{
	uint32_t b = l->list[S3FIFO_SMALL].tail;

	if (used[b] > 1 && main) {
		used[b] = 0;
		lists_move(l, b, S3FIFO_MAIN);
		if (l->list[S3FIFO_MAIN].n > main)
			s3fifo_evict_main(l, used);
		return;
	}
	lists_move(l, b, S3FIFO_GHOST);
	if (l->list[S3FIFO_GHOST].n > main)
		lists_age(l, S3FIFO_GHOST, 0);
}

uint64_t s3fifo(const struct trace *t, uint32_t capacity)
{
	uint32_t small = at_least_one(capacity / 10), main = capacity - small, i, b;
	uint8_t *used = take(t->blocks, sizeof(*used)), to;
	uint64_t hits = 0;
	struct lists l;

	lists_take(&l, t);
	for (i = 0; i < t->accesses; i++) {
		b = t->access[i];
		if (l.where[b] == S3FIFO_SMALL || l.where[b] == S3FIFO_MAIN) {
			hits++;
			used[b] += used[b] < S3FIFO_USED_MAX;
			continue;
		}
		to = l.where[b] == S3FIFO_GHOST && main ? S3FIFO_MAIN : S3FIFO_SMALL;
		lists_move(&l, b, 0);
		while (l.list[S3FIFO_SMALL].n + l.list[S3FIFO_MAIN].n >= capacity) {
			if (l.list[S3FIFO_SMALL].n >= small)
				s3fifo_evict_small(&l, used, main);
			else
				s3fifo_evict_main(&l, used);
		}
		used[b] = 0;
		lists_move(&l, b, to);
	}
	lists_free(&l);
	free(used);
	return hits;
}
