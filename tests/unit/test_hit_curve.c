// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/hit_curve.c against caches that are simulated one by one: exact where every block is followed; near it where few are.
 *
 *	test_hit_curve [seed]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/hit_curve.c"

typedef unsigned long long u64;
static long pure_live;
#include "seeded.h"

#define SECTORS 8u /* of a block */

static struct hit_curve *curve_of(size_t samples, u64 cutoff)
{
	return hit_curve_new(&(struct hit_options){ .samples = samples, .cutoff = cutoff, .seed = seed });
}

static double ratio(const struct hit_curve *c, enum hit_access kind, enum hit_measure measure, u64 blocks)
{
	return hit_curve_ratio(c, kind, measure, blocks << HIT_BLOCK_SHIFT, NULL);
}

/* All that must hold between requests. */
static void invariants(const struct hit_curve *c)
{
	size_t live = 0, listed = 0;

	for (size_t i = 0; i < c->next; i++) {
		const struct use *u = &c->slot[i];

		live += u->live;
		CHECK(tree_sum(c, i) == live, "slot %zu", i);
		if (!u->live)
			continue;
		CHECK(u->hash < c->threshold, "slot %zu", i);
		CHECK(c->table[table_find(c, u->hash, u->block, u->device)] == i + 1, "slot %zu", i);
	}
	for (size_t i = 0; i <= c->mask; i++)
		listed += !!c->table[i];
	CHECK(live == c->live && listed == live, "%zu live, %zu in the table", c->live, listed);
	CHECK(live <= c->options.samples && c->next <= c->slots, "%zu live", live);
}

/* ------------------------------------------------------------------ exact */

#define BLOCKS 3000u

/* A stack of blocks, the last one used first, as the definition of LRU has it. */
struct stack {
	u64 block[2 * BLOCKS];
	size_t number;
	u64 hits[HIT_KINDS][2 * BLOCKS + 1], requests[HIT_KINDS]; /* references by place; the last: nowhere */
	double shares[HIT_KINDS][2 * BLOCKS + 1];
};

static void stack_use(struct stack *s, u64 block, enum hit_access access, bool past, double share)
{
	bool lost = access == HIT_DISCARD || (access == HIT_WRITE && past);
	size_t at = 0;

	while (at < s->number && s->block[at] != block)
		at++;
	if (access != HIT_DISCARD) {
		size_t place = at < s->number && !lost ? at : 2 * BLOCKS;

		s->hits[access][place]++;
		s->shares[access][place] += share;
	}
	if (access == HIT_READ && past)
		return;
	if (at < s->number) {
		memmove(s->block + at, s->block + at + 1, (s->number - at - 1) * sizeof(*s->block));
		s->number--;
	}
	if (!lost) {
		memmove(s->block + 1, s->block, s->number * sizeof(*s->block));
		s->block[0] = block;
		s->number++;
	}
}

static void stack_add(struct stack *s, unsigned device, enum hit_access access, u64 sector, unsigned sectors, bool past)
{
	u64 first = sector / SECTORS, end = (sector + sectors + SECTORS - 1) / SECTORS;

	if (access != HIT_DISCARD)
		s->requests[access]++;
	for (u64 b = first; b < end; b++)
		stack_use(s, (u64)device << 32 | b, access, past, 1.0 / (end - first));
}

static double stack_ratio(const struct stack *s, enum hit_access kind, enum hit_measure measure, size_t blocks)
{
	double hits = 0, all = 0;

	for (size_t i = 0; i <= 2 * BLOCKS; i++) {
		double here = measure == HIT_BLOCKS ? s->hits[kind][i] : s->shares[kind][i];

		all += here;
		hits += i < blocks && i < 2 * BLOCKS ? here : 0;
	}
	return hits / all;
}

static void stack_compare(const struct stack *s, const struct hit_curve *c)
{
	struct hit_totals totals;
	double error;

	invariants(c);
	hit_curve_totals(c, &totals);
	CHECK(totals.rate == 1 && totals.working_set == s->number, "%f, %zu", totals.rate, (size_t)totals.working_set);
	for (int kind = 0; kind < HIT_KINDS; kind++) {
		CHECK(totals.requests[kind] == s->requests[kind], "kind %d", kind);
		for (int m = 0; m < HIT_MEASURES; m++)
			for (size_t b = 1; bucket_begin(b) <= 4 * BLOCKS; b++) {
				u64 blocks = bucket_begin(b);
				double is = hit_curve_ratio(c, kind, m, blocks << HIT_BLOCK_SHIFT, &error), must = stack_ratio(s, kind, m, blocks);

				CHECK(fabs(is - must) < 1e-9 && error == 0, "kind %d, measure %d, %llu blocks: %f, not %f", kind, m, blocks, is, must);
			}
	}
}

/* Any requests on two devices: hot, cold, long, unaligned, discards also of more than is followed. */
static void exact(void)
{
	for (int round = 0; round < 6; round++) {
		struct stack *s = calloc(1, sizeof(*s));
		struct hit_curve *c = curve_of(2 * BLOCKS, 0);

		for (unsigned i = 0; i < 15000; i++) {
			enum hit_access access = rnd(100) ? rnd(2) : HIT_DISCARD;
			unsigned device = rnd(2), sectors = 1 + rnd(rnd(8) ? 16 : 200);
			u64 sector = rnd(rnd(3) ? BLOCKS / 20 : BLOCKS) * SECTORS + (rnd(4) ? 0 : rnd(SECTORS));

			if (access == HIT_DISCARD && !rnd(20))
				sectors = 5 * BLOCKS * SECTORS;
			else if (sector + sectors > BLOCKS * SECTORS)
				sectors = BLOCKS * SECTORS - sector;
			hit_curve_add(c, device, access, sector, sectors);
			stack_add(s, device, access, sector, sectors > BLOCKS * SECTORS ? BLOCKS * SECTORS : sectors, false);
			operations++;
		}
		stack_compare(s, c);
		hit_curve_free(c);
		free(s);
	}
}

/* Streams between random requests: up to the cutoff they are cached, what is behind it goes past the cache. */
static void streams(void)
{
	static const struct {
		enum hit_access access;
		u64 begin;
	} stream[] = { { HIT_READ, 0 }, { HIT_READ, 1600 }, { HIT_WRITE, 400 }, { HIT_READ, 500 } };
	const u64 cutoff = 64 << 12;
	struct stack *s = calloc(1, sizeof(*s));
	struct hit_curve *c = curve_of(2 * BLOCKS, cutoff);
	struct hit_totals totals;
	u64 past = 0;

	for (unsigned i = 0; i < 8000; i++) {
		unsigned which = rnd(4), done = i / 4 % 250;
		/* on a device of their own, never one behind the other */
		u64 sector = rnd(BLOCKS / 2) * 2 * SECTORS;

		hit_curve_add(c, 1, which % 2, sector, SECTORS);
		stack_add(s, 1, which % 2, sector, SECTORS, false);
		/* four requests of four blocks each, of one stream after another, which begin anew after 250 */
		sector = (stream[i % 4].begin + 4 * done) * SECTORS;
		if (done < 250 && (stream[i % 4].begin + 4 * done + 4) <= BLOCKS) {
			bool is_past = (u64)(done + 1) * 4 << 12 > cutoff;

			hit_curve_add(c, 0, stream[i % 4].access, sector, 4 * SECTORS);
			stack_add(s, 0, stream[i % 4].access, sector, 4 * SECTORS, is_past);
			past += is_past;
		}
		operations += 2;
	}
	stack_compare(s, c);
	hit_curve_totals(c, &totals);
	CHECK(totals.past[HIT_READ] + totals.past[HIT_WRITE] == past && past > 1000, "%llu", past);
	hit_curve_free(c);
	/* without a cutoff nothing is left out */
	c = curve_of(16, 0);
	for (unsigned i = 0; i < 10000; i++)
		hit_curve_add(c, 0, HIT_READ, (u64)i * SECTORS, SECTORS);
	hit_curve_totals(c, &totals);
	CHECK(!totals.past[HIT_READ] && totals.requests[HIT_READ] == 10000, "past the cache");
	hit_curve_free(c);
	free(s);
}

/* ------------------------------------------------------------------ sampled */

#define FOOTPRINT 120000u
#define REFERENCES 600000u

/* One cache of so many blocks that drops what was used longest ago. */
struct lru {
	size_t room, number;
	unsigned next[FOOTPRINT + 1], before[FOOTPRINT + 1]; /* the ring's head: FOOTPRINT */
	bool here[FOOTPRINT];
	u64 hits;
};

static void lru_unlink(struct lru *l, unsigned b)
{
	l->next[l->before[b]] = l->next[b];
	l->before[l->next[b]] = l->before[b];
}

static void lru_use(struct lru *l, unsigned b)
{
	unsigned last;

	if (l->here[b]) {
		l->hits++;
		lru_unlink(l, b);
	} else if (l->number == l->room) {
		last = l->before[FOOTPRINT];
		lru_unlink(l, last);
		l->here[last] = false;
	} else {
		l->number++;
	}
	l->here[b] = true;
	l->next[b] = l->next[FOOTPRINT];
	l->before[b] = FOOTPRINT;
	l->before[l->next[b]] = b;
	l->next[FOOTPRINT] = b;
}

enum workload { UNIFORM, ZIPF, LOOP, SCANS, PHASES, WORKLOADS };
static const char *const workload_name[] = { "uniform", "zipf", "loop", "scans", "phases" };
static double zipf_sum[FOOTPRINT];

static void zipf_make(void)
{
	double sum = 0;

	for (unsigned i = 0; i < FOOTPRINT; i++)
		zipf_sum[i] = sum += 1 / pow(i + 1, 0.9);
}

static unsigned zipf(void)
{
	double x = (double)(rnd64() >> 11) / (1ull << 53) * zipf_sum[FOOTPRINT - 1];
	unsigned low = 0, high = FOOTPRINT - 1;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (zipf_sum[middle] < x)
			low = middle + 1;
		else
			high = middle;
	}
	/* neighbours in rank are not neighbours on the disk */
	return (unsigned)(low * 48271ull % FOOTPRINT);
}

static unsigned block_of(enum workload w, unsigned i)
{
	switch (w) {
	case UNIFORM:
		return rnd(FOOTPRINT);
	case LOOP:
		return i % 50000;
	case SCANS:
		return i % 4 ? zipf() : i / 4 % FOOTPRINT;
	case PHASES:
		return (rnd(FOOTPRINT / 6) + i / (REFERENCES / 5) * (FOOTPRINT / 5)) % FOOTPRINT;
	default:
		return zipf();
	}
}

static unsigned *workload_make(enum workload w)
{
	unsigned *trace = malloc(REFERENCES * sizeof(*trace));

	for (unsigned i = 0; i < REFERENCES; i++)
		trace[i] = block_of(w, i);
	return trace;
}

static double lru_ratio(const unsigned *trace, size_t room)
{
	struct lru *l = calloc(1, sizeof(*l));
	double is;

	l->room = room;
	l->next[FOOTPRINT] = l->before[FOOTPRINT] = FOOTPRINT;
	for (unsigned i = 0; i < REFERENCES; i++)
		lru_use(l, trace[i]);
	is = (double)l->hits / REFERENCES;
	free(l);
	return is;
}

static unsigned different(const unsigned *trace)
{
	static bool seen[FOOTPRINT];
	unsigned number = 0;

	memset(seen, 0, sizeof(seen));
	for (unsigned i = 0; i < REFERENCES; i++) {
		number += !seen[trace[i]];
		seen[trace[i]] = true;
	}
	return number;
}

#define SIZES 14 /* 2^4 to 2^17 blocks; none is within a quarter of the loop's length, where its curve jumps from 0 to 1 */

static struct hit_curve *follow_all(const unsigned *trace, size_t samples, u64 choice)
{
	struct hit_curve *c = hit_curve_new(&(struct hit_options){ .samples = samples, .seed = choice });

	for (unsigned i = 0; i < REFERENCES; i++)
		hit_curve_add(c, 8 << 20, HIT_READ, (u64)trace[i] * SECTORS, SECTORS);
	operations += REFERENCES;
	invariants(c);
	return c;
}

/* Sizes that are looked at: a cache smaller than this has so few followed blocks that one hot block more or less among them is seen. */
#define LEAST_FOLLOWED 128

/*
 * Mean error over the sizes, and the largest.  A share among n that were drawn is off by 1 / sqrt(n) or less as a rule, and so is a size measured by them: 3.5 / sqrt(samples) is
 * what the mean comes near with the worst of many choices of blocks.
 */
static void sampled(void)
{
	static const size_t samples[] = { 8192, 1024 };

	for (int w = 0; w < WORKLOADS; w++) {
		unsigned *trace = workload_make(w);
		unsigned footprint = different(trace);
		double must[SIZES];

		for (int i = 0; i < SIZES; i++)
			must[i] = lru_ratio(trace, 16u << i);
		for (unsigned k = 0; k < 2; k++) {
			struct hit_curve *c = follow_all(trace, samples[k], seed);
			double sum = 0, most = 0;
			struct hit_totals totals;
			unsigned sizes = 0;

			hit_curve_totals(c, &totals);
			CHECK(totals.rate < 0.2, "%s: all are followed: %f", workload_name[w], totals.rate);
			CHECK(fabs(totals.working_set / (double)footprint - 1) < 5 / sqrt(samples[k]), "%s: %llu of %u", workload_name[w], (u64)totals.working_set,
			      footprint);
			for (int i = 0; i < SIZES; i++) {
				double error = fabs(ratio(c, HIT_READ, HIT_REQUESTS, 16u << i) - must[i]);

				if ((16u << i) * totals.rate < LEAST_FOLLOWED)
					continue;
				sizes++;
				sum += error;
				most = fmax(most, error);
			}
			printf("  %-8s %4zu followed, %u sizes: mean error %.4f, largest %.4f\n", workload_name[w], samples[k], sizes, sum / sizes, most);
			CHECK(sizes >= 3, "%u sizes", sizes);
			CHECK(sum / sizes < 3.5 / sqrt(samples[k]) && most < 7 / sqrt(samples[k]), "%s, %zu followed: mean %f, largest %f", workload_name[w], samples[k], sum / sizes, most);
			hit_curve_free(c);
		}
		free(trace);
	}
}

/*
 * What is said of the error, over many choices of blocks: the true ratio is nearly always within three of it, and it is not a multiple of what it must be.  Where the
 * curve is flat, and where it jumps.
 */
static void error_said(void)
{
	static const u64 size[] = { 16384, 32768, 49000, 51000, 65536 };
	static const enum workload workload[] = { ZIPF, LOOP };

	for (int w = 0; w < 2; w++) {
		unsigned *trace = workload_make(workload[w]), within = 0, all = 0;
		double said = 0, squares = 0;
		double must[5];

		for (int i = 0; i < 5; i++)
			must[i] = lru_ratio(trace, size[i]);
		for (u64 choice = 1; choice <= 20; choice++) {
			struct hit_curve *c = follow_all(trace, 1024, seed * 1000 + choice);

			for (int i = 0; i < 5; i++) {
				double error, is = hit_curve_ratio(c, HIT_READ, HIT_REQUESTS, size[i] << HIT_BLOCK_SHIFT, &error);

				within += fabs(is - must[i]) <= 3 * error + 1e-6;
				all++;
				said += error * error;
				squares += (is - must[i]) * (is - must[i]);
			}
			hit_curve_free(c);
		}
		printf("  %-8s %u of %u within three standard errors; said %.4f, is %.4f\n", workload_name[workload[w]], within, all, sqrt(said / all), sqrt(squares / all));
		CHECK(within >= all * 9 / 10, "%s: %u of %u", workload_name[workload[w]], within, all);
		CHECK(said < 9 * squares, "%s: said %f, is %f", workload_name[workload[w]], sqrt(said / all), sqrt(squares / all));
		free(trace);
	}
}

/* Any numbers that are allowed, for ever: the memory is what it was, and every answer a ratio. */
static void bounded(void)
{
	struct hit_curve *c = curve_of(256, 4 << 20);
	struct hit_totals totals;

	for (unsigned i = 0; i < 200000; i++) {
		unsigned bits = 3 + rnd(48);
		u64 sector = rnd(1ull << bits);
		unsigned sectors = 1 + rnd(rnd(100) ? 64 : 20000);

		hit_curve_add(c, (unsigned)rnd(3) << 20, rnd(20) ? rnd(2) : HIT_DISCARD, sector, sectors);
		if (i % 20000 == 0)
			invariants(c);
		operations++;
	}
	hit_curve_add(c, 0, HIT_READ, HIT_SECTOR_MAX - 1, 1);
	hit_curve_add(c, 0, HIT_DISCARD, 0, UINT32_MAX);
	invariants(c);
	hit_curve_totals(c, &totals);
	CHECK(totals.rate > 0 && totals.rate < 1, "%f", totals.rate);
	for (unsigned i = 0; i < 64; i++)
		for (int kind = 0; kind < HIT_KINDS; kind++) {
			double error, is = hit_curve_ratio(c, kind, HIT_BLOCKS, 1ull << i, &error);

			CHECK(is >= 0 && is <= 1 && error >= 0 && error < 1, "2^%u: %f, %f", i, is, error);
		}
	CHECK(ratio(c, HIT_READ, HIT_BLOCKS, 1u << 20) <= hit_curve_ratio(c, HIT_READ, HIT_BLOCKS, HIT_ALL, NULL), "it falls");
	hit_curve_free(c);
	c = curve_of(16, 0);
	CHECK(hit_curve_ratio(c, HIT_READ, HIT_BLOCKS, HIT_ALL, NULL) == -1, "a ratio of nothing");
	hit_curve_free(c);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	zipf_make();
	run_test("exact", exact);
	run_test("streams", streams);
	run_test("sampled", sampled);
	run_test("error_said", error_said);
	run_test("bounded", bounded);
	return 0;
}
