// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The share of hits as a function of the size of the cache.
 *
 * A cache that drops what was used longest ago (LRU) has a block exactly if fewer other blocks were used since than it has room for (Mattson et al.,
 * "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970).  So one histogram of these numbers of others, the reuse
 * distances, is the curve of all sizes.  They are counted by a tree over the order of last uses (Bennett and Kruskal, "LRU stack processing", IBM
 * Journal of R&D 19(4), 1975); here a Fenwick tree over places in an array, which is packed when its end is reached.
 *
 * To do that for each block would take memory and time without bound.  SHARDS (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction with
 * SHARDS", FAST 2015) follows only blocks whose hash lies below a threshold, a share R of all: between two uses of such a block lie R times as
 * many followed blocks as others, so a distance counted is divided by R, and each reference stands for 1/R references.  From that paper are
 * also:
 *
 * - Fixed size: when too many blocks are followed the threshold falls, and those above it are dropped.  There it falls to the largest hash that is
 *   followed, here by an eighth each time, so that it takes one pass in so many insertions and no heap.  Whether a block is followed depends on
 *   its hash and the threshold only, either way.  What was counted before keeps the weight 1/R of its time.
 * - The correction SHARDS-adj: where hot blocks are among those followed, or are not, the sum of weights is not the number of references.  The difference is
 *   taken for hits at the smallest distance, since it is of hot blocks.
 *
 * The error has two parts.  The followed blocks fall into eight groups by other bits of their hash; each makes an estimate, and how these differ says
 * how far their mean may be off.  And a cache of C blocks has C R followed ones give or take sqrt(C R (1 - R)), so the curve may be that of a
 * cache larger or smaller by this share: what it rises by from the one to the other.  With few followed blocks in the cache (C R) both are large.
 *
 * What larder does, and this with it: blocks of 4 KiB; reads that miss and all writes are cached; what a stream has beyond sequential_cutoff is not:
 * such a read is served from what is cached, and changes nothing; such a write takes what is cached there away; so does a discard.  (A block taken away leaves no
 * hole in larger caches here, which is a little too good for them.)
 *
 * Invariants: slot[0 .. next) are last uses, in order; tree counts the live ones; table has each live one exactly once; every live hash is below
 * threshold; live <= samples <= slots / 2.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "hit_curve.h"
#include "message.h"

#define GROUPS	8u
#define STREAMS 256u
#define FINE	4u /* an octave has 16 buckets */
#define BUCKETS ((56u - FINE) << FINE)

struct use {
	uint64_t hash, block;
	uint32_t device;
	bool live;
};

struct stream {
	uint64_t next, bytes, used; /* where it goes on; length; when it did last */
	uint32_t device;
	enum hit_access access;
};

struct hit_curve {
	struct hit_options options;
	uint64_t threshold; /* hashes below it are followed */
	struct use *slot;
	size_t slots, next, live;
	uint32_t *tree; /* Fenwick, from 1 on */
	uint32_t *table; /* number of a slot + 1; 0: empty; by hash, then linear */
	size_t mask; /* of the table */
	struct stream stream[STREAMS];
	uint64_t requests; /* reads and writes: the clock of streams */
	struct hit_totals totals;
	double weight[HIT_KINDS][HIT_MEASURES][GROUPS]; /* of all that was followed */
	double hits[HIT_KINDS][HIT_MEASURES][GROUPS][BUCKETS]; /* of this, by distance */
};

/* One block of a request. */
struct reference {
	uint64_t hash, block;
	uint32_t device;
	enum hit_access access;
	bool past; /* the cache */
	double share; /* of its request */
};

struct hit_curve *hit_curve_new(const struct hit_options *options)
{
	struct hit_curve *c = must_allocate(calloc(1, sizeof(*c)));
	size_t size = 64;

	c->options = *options;
	c->threshold = UINT64_MAX;
	c->slots = 2 * options->samples;
	c->slot = must_allocate(calloc(c->slots, sizeof(*c->slot)));
	c->tree = must_allocate(calloc(c->slots + 1, sizeof(*c->tree)));
	while (size < 4 * options->samples)
		size *= 2;
	c->mask = size - 1;
	c->table = must_allocate(calloc(size, sizeof(*c->table)));
	return c;
}

void hit_curve_free(struct hit_curve *c)
{
	if (!c)
		return;
	free(c->slot);
	free(c->tree);
	free(c->table);
	free(c);
}

/* ------------------------------------------------------------------ what is followed */

/* The finalizer of MurmurHash3 (Appleby), which lets each bit of the input change each of the result with even odds. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
	return x ^ x >> 33;
}

static double rate(const struct hit_curve *c)
{
	return c->threshold == UINT64_MAX ? 1 : ldexp((double)c->threshold, -64);
}

static void tree_add(struct hit_curve *c, size_t slot, int number)
{
	for (size_t i = slot + 1; i <= c->slots; i += i & -i)
		c->tree[i] += (uint32_t)number;
}

/* Live ones in [0, slot]. */
static size_t tree_sum(const struct hit_curve *c, size_t slot)
{
	size_t sum = 0;

	for (size_t i = slot + 1; i; i -= i & -i)
		sum += c->tree[i];
	return sum;
}

/* Place in the table: that of this block, or the free one where it belongs. */
static size_t table_find(const struct hit_curve *c, uint64_t hash, uint64_t block, uint32_t device)
{
	size_t at = hash & c->mask;

	for (; c->table[at]; at = (at + 1) & c->mask) {
		const struct use *u = &c->slot[c->table[at] - 1];

		if (u->hash == hash && u->block == block && u->device == device)
			break;
	}
	return at;
}

/* Those behind it move up where they may, so that no search ends at the hole. */
static void table_remove(struct hit_curve *c, size_t hole)
{
	for (size_t at = (hole + 1) & c->mask; c->table[at]; at = (at + 1) & c->mask) {
		size_t home = c->slot[c->table[at] - 1].hash & c->mask;

		if (((at - home) & c->mask) >= ((at - hole) & c->mask)) {
			c->table[hole] = c->table[at];
			hole = at;
		}
	}
	c->table[hole] = 0;
}

static void use_append(struct hit_curve *c, size_t at, const struct use *use)
{
	c->slot[c->next] = *use;
	c->table[at] = (uint32_t)++c->next;
	tree_add(c, c->next - 1, 1);
	c->live++;
}

static void use_end(struct hit_curve *c, size_t slot)
{
	c->slot[slot].live = false;
	tree_add(c, slot, -1);
	c->live--;
}

/* Puts the live ones whose hash is below the threshold to the front. */
static void pack(struct hit_curve *c)
{
	size_t end = c->next;

	memset(c->table, 0, (c->mask + 1) * sizeof(*c->table));
	memset(c->tree, 0, (c->slots + 1) * sizeof(*c->tree));
	c->next = c->live = 0;
	for (size_t i = 0; i < end; i++) {
		struct use u = c->slot[i];

		if (u.live && u.hash < c->threshold)
			use_append(c, table_find(c, u.hash, u.block, u.device), &u);
	}
}

/* Makes this block the last one used, if it is still among those followed when there is room for it. */
static void follow(struct hit_curve *c, const struct reference *r)
{
	while (c->live >= c->options.samples) {
		c->threshold -= c->threshold / 8;
		pack(c);
	}
	if (r->hash >= c->threshold)
		return;
	if (c->next == c->slots)
		pack(c);
	use_append(c, table_find(c, r->hash, r->block, r->device), &(struct use){ r->hash, r->block, r->device, true });
}

/* ------------------------------------------------------------------ the histogram */

/* As many others as there are lower bounds at or below `others`: exact up to 16, then 16 to an octave. */
static size_t bucket_of(uint64_t others)
{
	unsigned octave;
	size_t b;

	if (others < 1u << FINE)
		return others;
	octave = 63u - (unsigned)__builtin_clzll(others);
	b = ((size_t)(octave - FINE + 1) << FINE) + ((others >> (octave - FINE)) & ((1u << FINE) - 1));
	return b < BUCKETS ? b : BUCKETS - 1;
}

static uint64_t bucket_begin(size_t b)
{
	size_t octave = b >> FINE;

	return octave ? (UINT64_C(1) << FINE | (b & ((1u << FINE) - 1))) << (octave - 1) : b;
}

/* others: blocks used since, among those followed; UINT64_MAX: no cache has it. */
static void count(struct hit_curve *c, const struct reference *r, uint64_t others)
{
	const double each[HIT_MEASURES] = { [HIT_REQUESTS] = r->share, [HIT_BLOCKS] = 1 };
	double now = rate(c);
	size_t group = r->hash % GROUPS, bucket = others == UINT64_MAX ? BUCKETS : bucket_of((uint64_t)((double)others / now));

	c->totals.samples++;
	for (int m = 0; m < HIT_MEASURES; m++) {
		c->weight[r->access][m][group] += each[m] / now;
		if (bucket < BUCKETS)
			c->hits[r->access][m][group][bucket] += each[m] / now;
	}
}

/* ------------------------------------------------------------------ requests */

static void refer(struct hit_curve *c, const struct reference *r)
{
	size_t at = table_find(c, r->hash, r->block, r->device), slot = c->table[at] - (size_t)1;
	bool known = c->table[at], lost = r->access == HIT_DISCARD || (r->access == HIT_WRITE && r->past);

	if (r->access != HIT_DISCARD)
		count(c, r, known && !lost ? c->live - tree_sum(c, slot) : UINT64_MAX);
	if (r->access == HIT_READ && r->past)
		return;
	if (known) {
		table_remove(c, at);
		use_end(c, slot);
	}
	if (!lost)
		follow(c, r);
}

/* Does this request belong to a stream that is longer than what is cached of it?  One that goes on exactly where it was. */
static bool past_cache(struct hit_curve *c, uint32_t device, enum hit_access access, uint64_t sector, uint32_t sectors)
{
	struct stream *found = c->stream;

	if (!c->options.cutoff)
		return false;
	c->requests++;
	for (struct stream *s = c->stream; s < c->stream + STREAMS; s++) {
		if (s->used && s->next == sector && s->device == device && s->access == access) {
			found = s;
			break;
		}
		if (s->used < found->used)
			found = s;
	}
	if (!found->used || found->next != sector || found->device != device || found->access != access)
		*found = (struct stream){ .device = device, .access = access };
	found->bytes += (uint64_t)sectors << 9;
	found->next = sector + sectors;
	found->used = c->requests;
	return found->bytes > c->options.cutoff;
}

/* A discard may be longer than all that is followed. */
static void discard_followed(struct hit_curve *c, uint32_t device, uint64_t first, uint64_t end)
{
	for (size_t i = 0; i < c->next; i++)
		if (c->slot[i].live && c->slot[i].device == device && c->slot[i].block >= first && c->slot[i].block < end)
			use_end(c, i);
	pack(c);
}

void hit_curve_add(struct hit_curve *c, uint32_t device, enum hit_access access, uint64_t sector, uint32_t sectors)
{
	const unsigned shift = HIT_BLOCK_SHIFT - 9;
	uint64_t first = sector >> shift, end = ((sector + sectors - 1) >> shift) + 1, salt = mix(c->options.seed ^ (uint64_t)device << 32);
	struct reference r = { .device = device, .access = access, .share = 1 / (double)(end - first) };

	if (access == HIT_DISCARD) {
		c->totals.discards++;
		if (end - first > c->slots) {
			discard_followed(c, device, first, end);
			return;
		}
	} else {
		r.past = past_cache(c, device, access, sector, sectors);
		c->totals.requests[access]++;
		c->totals.blocks[access] += end - first;
		c->totals.past[access] += r.past;
	}
	for (r.block = first; r.block < end; r.block++) {
		r.hash = mix(r.block ^ salt);
		if (r.hash < c->threshold)
			refer(c, &r);
	}
}

/* ------------------------------------------------------------------ the curve */

void hit_curve_totals(const struct hit_curve *c, struct hit_totals *totals)
{
	*totals = c->totals;
	totals->rate = rate(c);
	totals->working_set = (uint64_t)((double)c->live / totals->rate);
}

/* Weight of what has fewer others than the cache has room for; within a bucket in proportion. */
static double below(const double *hits, uint64_t blocks)
{
	size_t last = bucket_of(blocks);
	uint64_t begin = bucket_begin(last), width = bucket_begin(last + 1) - begin;
	double sum = 0;

	for (size_t b = 0; b < last; b++)
		sum += hits[b];
	return blocks - begin >= width ? sum + hits[last] : sum + hits[last] * (double)(blocks - begin) / (double)width;
}

/* Mean over the groups, and *error of it as far as the groups tell. */
static double mean_ratio(const struct hit_curve *c, enum hit_access kind, enum hit_measure measure, uint64_t blocks, double *error)
{
	double all = (double)(measure == HIT_REQUESTS ? c->totals.requests[kind] : c->totals.blocks[kind]), each = all / GROUPS, sum = 0, squares = 0;

	for (unsigned g = 0; g < GROUPS; g++) {
		double hits = below(c->hits[kind][measure][g], blocks), ratio = (hits + each - c->weight[kind][measure][g]) / each;

		sum += ratio;
		squares += ratio * ratio;
	}
	*error = sqrt(fmax(0, squares / GROUPS - sum / GROUPS * sum / GROUPS) / (GROUPS - 1) * (1 - rate(c)));
	return sum / GROUPS;
}

double hit_curve_ratio(const struct hit_curve *c, enum hit_access kind, enum hit_measure measure, uint64_t bytes, double *error)
{
	uint64_t blocks = bytes >> HIT_BLOCK_SHIFT;
	double of_groups, ignored, ratio;

	if (error)
		*error = 0;
	if (!c->totals.requests[kind])
		return -1;
	ratio = mean_ratio(c, kind, measure, blocks, &of_groups);
	if (error && blocks) {
		double part = fmin(1, sqrt((1 - rate(c)) / ((double)blocks * rate(c))));
		uint64_t less = (uint64_t)((double)blocks * (1 - part)), more = (uint64_t)((double)blocks * (1 + part));
		double rise = mean_ratio(c, kind, measure, more, &ignored) - mean_ratio(c, kind, measure, less, &ignored);

		*error = hypot(of_groups, rise / 2);
	}
	return fmin(1, fmax(0, ratio));
}
