/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A block trace in memory, and lists of its blocks.
 *
 * Blocks of 4 KiB are numbered in the order in which they are first touched: [0, blocks).  An access is one block of one request.
 */
#ifndef TRACE_H
#define TRACE_H

#include <stdbool.h>
#include <stdint.h>

#define NONE			UINT32_MAX
#define BLOCK_SECTORS		8u	/* sectors of 512 bytes in a block */

struct request {
	uint64_t sector;	/* of its volume, as recorded */
	uint32_t sectors;	/* never 0 */
	uint32_t first, n;	/* its accesses: [first, first + n) */
	uint8_t volume;
	bool write;
};

struct trace {
	struct request *request;
	uint32_t *access;	/* the block */
	uint64_t *number;	/* of a block: volume << 40 | its number there */
	uint32_t requests, accesses, blocks;
};

/*
 * Reads a trace: text, a request a line: "op volume start sectors time"; op is R, W or U (not recorded: a read); start and sectors in
 * sectors of 512 bytes; '#' begins a comment.  A name that ends in .zst is decompressed; "-" is the standard input.  Ends the program
 * with exit code 1 and a message when it is not one.
 */
void trace_load(struct trace *t, const char *name);
void trace_free(struct trace *t);

/* Zeroed memory for n things of so many bytes; ends the program where there is none. */
void *take(uint64_t n, uint64_t bytes);

/* ------------------------------------------------------------- lists: links by block; the head is the youngest */
struct links {
	uint32_t *prev, *next;
};

struct list {
	struct links *links;	/* a block is on one of the lists with the same links at a time */
	uint32_t head, tail, n;
};

void links_take(struct links *l, uint32_t blocks);
void links_free(struct links *l);

static inline struct list list_empty(struct links *links)
{
	return (struct list){ .links = links, .head = NONE, .tail = NONE };
}

static inline void list_push(struct list *l, uint32_t b)
{
	l->links->prev[b] = NONE;
	l->links->next[b] = l->head;
	if (l->head != NONE)
		l->links->prev[l->head] = b;
	else
		l->tail = b;
	l->head = b;
	l->n++;
}

static inline void list_del(struct list *l, uint32_t b)
{
	uint32_t prev = l->links->prev[b], next = l->links->next[b];

	if (prev != NONE)
		l->links->next[prev] = next;
	else
		l->head = next;
	if (next != NONE)
		l->links->prev[next] = prev;
	else
		l->tail = prev;
	l->n--;
}

/* The oldest one; NONE: there is none. */
static inline uint32_t list_pop(struct list *l)
{
	uint32_t b = l->tail;

	if (b != NONE)
		list_del(l, b);
	return b;
}

#endif
