// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Policies with one queue and no memory of what left it.
 *
 * LRU, FIFO: textbooks.  CLOCK: Corbato, "A paging experiment with the Multics system" (1968), with one bit; with two bits a block
 * goes round once for each hit, up to three.  SIEVE: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU" (NSDI 2024).
 */
#include <stdlib.h>
#include "policies.h"

uint64_t lru(const struct trace *t, uint32_t capacity)
{
	bool *in = take(t->blocks, sizeof(*in));
	uint64_t hits = 0;
	struct links links;
	struct list queue;
	uint32_t i, b;

	links_take(&links, t->blocks);
	queue = list_empty(&links);
	for (i = 0; i < t->accesses; i++) {
		b = t->access[i];
		if (in[b]) {
			hits++;
			list_del(&queue, b);
		} else if (queue.n == capacity) {
			in[list_pop(&queue)] = false;
		}
		in[b] = true;
		list_push(&queue, b);
	}
	links_free(&links);
	free(in);
	return hits;
}

/* most: hits of a block that count; 0 is FIFO */
static uint64_t clock_most(const struct trace *t, uint32_t capacity, uint8_t most)
{
	bool *in = take(t->blocks, sizeof(*in));
	uint8_t *used = take(t->blocks, sizeof(*used));
	uint64_t hits = 0;
	struct links links;
	struct list queue;
	uint32_t i, b, old;

	links_take(&links, t->blocks);
	queue = list_empty(&links);
	for (i = 0; i < t->accesses; i++) {
		b = t->access[i];
		if (in[b]) {
			hits++;
			used[b] += used[b] < most;
			continue;
		}
		while (queue.n == capacity) {
			old = list_pop(&queue);
			if (used[old]) {
				used[old]--;
				list_push(&queue, old);
			} else {
				in[old] = false;
			}
		}
		in[b] = true;
		used[b] = 0;
		list_push(&queue, b);
	}
	links_free(&links);
	free(used);
	free(in);
	return hits;
}

uint64_t fifo(const struct trace *t, uint32_t capacity)
{
	return clock_most(t, capacity, 0);
}

uint64_t clock1(const struct trace *t, uint32_t capacity)
{
	return clock_most(t, capacity, 1);
}

uint64_t clock2(const struct trace *t, uint32_t capacity)
{
	return clock_most(t, capacity, 3);
}

/* The hand goes from the old end to the young one and stays where it evicted; who is spared stays where he is. */
uint64_t sieve(const struct trace *t, uint32_t capacity)
{
	bool *in = take(t->blocks, sizeof(*in)), *used = take(t->blocks, sizeof(*used));
	uint32_t i, b, old, hand = NONE;
	uint64_t hits = 0;
	struct links links;
	struct list queue;

	links_take(&links, t->blocks);
	queue = list_empty(&links);
	for (i = 0; i < t->accesses; i++) {
		b = t->access[i];
		if (in[b]) {
			hits++;
			used[b] = true;
			continue;
		}
		if (queue.n == capacity) {
			old = hand == NONE ? queue.tail : hand;
			while (used[old]) {
				used[old] = false;
				old = links.prev[old] == NONE ? queue.tail : links.prev[old];
			}
			hand = links.prev[old];
			list_del(&queue, old);
			in[old] = false;
		}
		in[b] = true;
		used[b] = false;
		list_push(&queue, b);
	}
	links_free(&links);
	free(used);
	free(in);
	return hits;
}
