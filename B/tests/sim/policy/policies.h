/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Replacement policies that larder's is compared with.  Each takes a trace and a capacity in blocks (at least 1) and returns the
 * hits: accesses whose block was in the cache.  All keep every block that is asked for, but MIN, which may refuse one.
 */
#ifndef POLICIES_H
#define POLICIES_H

#include "trace.h"

typedef uint64_t (*policy_fn)(const struct trace *t, uint32_t capacity);

uint64_t lru(const struct trace *t, uint32_t capacity);		/* recency.c */
uint64_t fifo(const struct trace *t, uint32_t capacity);
uint64_t clock1(const struct trace *t, uint32_t capacity);
uint64_t clock2(const struct trace *t, uint32_t capacity);
uint64_t sieve(const struct trace *t, uint32_t capacity);
uint64_t twoq(const struct trace *t, uint32_t capacity);	/* ghosts.c */
uint64_t arc(const struct trace *t, uint32_t capacity);
uint64_t s3fifo(const struct trace *t, uint32_t capacity);
uint64_t lirs(const struct trace *t, uint32_t capacity);	/* lirs.c */
uint64_t min_offline(const struct trace *t, uint32_t capacity);	/* min.c */

#endif
