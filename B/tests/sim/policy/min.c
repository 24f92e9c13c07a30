// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * MIN: Belady, "A study of replacement algorithms for a virtual-storage computer" (1966): what is asked for furthest ahead leaves.  It
 * knows the future, and may refuse a newcomer: no policy has more hits.  A heap by next use, the furthest on top.
 */
#include <stdlib.h>
#include "policies.h"

struct heap {
	uint32_t *block, *place, n;	/* place: of a block; NONE: not in the cache */
	uint32_t *next;			/* of a block: the access that asks for it again; NONE: none */
};

static void heap_set(struct heap *h, uint32_t i, uint32_t b)
{
	h->block[i] = b;
	h->place[b] = i;
}

static void heap_up(struct heap *h, uint32_t i)
{
	uint32_t b = h->block[i];

	for (; i && h->next[h->block[(i - 1) / 2]] < h->next[b]; i = (i - 1) / 2)
		heap_set(h, i, h->block[(i - 1) / 2]);
	heap_set(h, i, b);
}

static void heap_down(struct heap *h, uint32_t i)
{
	uint32_t b = h->block[i], child;

	for (; (child = 2 * i + 1) < h->n; i = child) {
		if (child + 1 < h->n && h->next[h->block[child + 1]] > h->next[h->block[child]])
			child++;
		if (h->next[h->block[child]] <= h->next[b])
			break;
		heap_set(h, i, h->block[child]);
	}
	heap_set(h, i, b);
}

/* Of each access the next one to the same block. */
static uint32_t *next_uses(const struct trace *t)
{
	uint32_t *next = take(t->accesses, sizeof(*next)), *last = take(t->blocks, sizeof(*last)), i;

	for (i = 0; i < t->blocks; i++)
		last[i] = NONE;
	for (i = t->accesses; i--;) {
		next[i] = last[t->access[i]];
		last[t->access[i]] = i;
	}
	free(last);
	return next;
}

uint64_t min_offline(const struct trace *t, uint32_t capacity)
{
	struct heap h = { .n = 0 };
	uint32_t *next = next_uses(t), i, b;
	uint64_t hits = 0;

	h.block = take(capacity, sizeof(*h.block));
	h.place = take(t->blocks, sizeof(*h.place));
	h.next = take(t->blocks, sizeof(*h.next));
	for (i = 0; i < t->blocks; i++)
		h.place[i] = NONE;
	for (i = 0; i < t->accesses; i++) {
		b = t->access[i];
		h.next[b] = next[i];
		if (h.place[b] != NONE) {
			hits++;
			heap_up(&h, h.place[b]);	/* its next use only moves away */
		} else if (h.n < capacity) {
			heap_set(&h, h.n, b);
			heap_up(&h, h.n++);
		} else if (h.next[h.block[0]] > next[i]) {
			h.place[h.block[0]] = NONE;
			heap_set(&h, 0, b);
			heap_down(&h, 0);
		}
	}
	free(h.block);
	free(h.place);
	free(h.next);
	free(next);
	return hits;
}
