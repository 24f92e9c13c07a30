// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * LIRS: Jiang, Zhang, "LIRS: an efficient low inter-reference recency set replacement policy to improve buffer cache performance"
 * (SIGMETRICS 2002).  One block in a hundred, two at least, is for HIR blocks; of blocks that left at most twice the cache are
 * remembered (the paper has no bound, but real ones have).  Where no block would be left for LIR ones it is LRU.
 *
 * Invariants: a LIR block is on the stack; the oldest of the stack is LIR (prune); a HIR block in the cache is on the queue; one that
 * left is on the stack, and on the list of those that left.
 */
#include <stdlib.h>
#include "policies.h"

enum lirs_state { LIRS_OUT, LIRS_LIR, LIRS_HIR, LIRS_LEFT };

struct lirs {
	struct links stack_links, queue_links;
	struct list stack;		/* by recency */
	struct list queue, left;	/* by the time they became HIR, or left; both with queue_links */
	uint8_t *state;
	bool *on_stack;
	uint32_t lir;			/* blocks that are */
};

static void lirs_stack(struct lirs *l, uint32_t b)
{
	if (l->on_stack[b])
		list_del(&l->stack, b);
	l->on_stack[b] = true;
	list_push(&l->stack, b);
}

static void lirs_unstack(struct lirs *l, uint32_t b)
{
	list_del(&l->stack, b);
	l->on_stack[b] = false;
}

static void lirs_forget(struct lirs *l, uint32_t b)
{
	list_del(&l->left, b);
	l->state[b] = LIRS_OUT;
}

static void lirs_prune(struct lirs *l)
{
	uint32_t b;

	while ((b = l->stack.tail) != NONE && l->state[b] != LIRS_LIR) {
		lirs_unstack(l, b);
		if (l->state[b] == LIRS_LEFT)
			lirs_forget(l, b);
	}
}

/* b has come back while others have not been asked for: it becomes LIR, the oldest LIR block becomes HIR. */
static void lirs_promote(struct lirs *l, uint32_t b, uint32_t lir)
{
	uint32_t old;

	l->state[b] = LIRS_LIR;
	l->lir++;
	lirs_stack(l, b);
	lirs_prune(l);
	if (l->lir <= lir)
		return;
	old = l->stack.tail;
	lirs_unstack(l, old);
	l->state[old] = LIRS_HIR;
	l->lir--;
	list_push(&l->queue, old);
	lirs_prune(l);
}

static void lirs_hit(struct lirs *l, uint32_t b, uint32_t lir)
{
	if (l->state[b] == LIRS_LIR) {
		lirs_stack(l, b);
		lirs_prune(l);
		return;
	}
	list_del(&l->queue, b);
	if (l->on_stack[b]) {
		lirs_promote(l, b, lir);
		return;
	}
	lirs_stack(l, b);
	list_push(&l->queue, b);
}

static void lirs_evict(struct lirs *l)
{
	uint32_t b = list_pop(&l->queue);

	if (l->on_stack[b]) {
		l->state[b] = LIRS_LEFT;
		list_push(&l->left, b);
	} else {
		l->state[b] = LIRS_OUT;
	}
}

static void lirs_miss(struct lirs *l, uint32_t b, uint32_t capacity, uint32_t lir)
{
	bool back;

	if (l->lir + l->queue.n == capacity)
		lirs_evict(l);
	back = l->state[b] == LIRS_LEFT;
	if (back)
		lirs_forget(l, b);
	if (back || l->lir < lir) {
		lirs_promote(l, b, lir);
		return;
	}
	l->state[b] = LIRS_HIR;
	lirs_stack(l, b);
	list_push(&l->queue, b);
	if (l->left.n > 2 * (uint64_t)capacity) {
		b = l->left.tail;
		lirs_unstack(l, b);
		lirs_forget(l, b);
		lirs_prune(l);
	}
}

uint64_t lirs(const struct trace *t, uint32_t capacity)
{
	uint32_t hir = capacity / 100 > 2 ? capacity / 100 : 2, i, b;
	struct lirs l = { .lir = 0 };
	uint64_t hits = 0;

	if (capacity <= hir)
		return lru(t, capacity);
	links_take(&l.stack_links, t->blocks);
	links_take(&l.queue_links, t->blocks);
	l.stack = list_empty(&l.stack_links);
	l.queue = list_empty(&l.queue_links);
	l.left = list_empty(&l.queue_links);
	l.state = take(t->blocks, sizeof(*l.state));
	l.on_stack = take(t->blocks, sizeof(*l.on_stack));
	for (i = 0; i < t->accesses; i++) {
		b = t->access[i];
		if (l.state[b] == LIRS_LIR || l.state[b] == LIRS_HIR) {
			hits++;
			lirs_hit(&l, b, capacity - hir);
		} else {
			lirs_miss(&l, b, capacity, capacity - hir);
		}
	}
	links_free(&l.stack_links);
	links_free(&l.queue_links);
	free(l.state);
	free(l.on_stack);
	return hits;
}
