// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The states of a position, by number ("kind"):
 *
 *   0, 1              none, all of the open changes have arrived
 *   KIND_DISKS + m    all of those of the disks in mask m
 *   KIND_ALONE + n    only the n-th
 *   KIND_BUT + n      all but the n-th
 *   KIND_SUBSET + b   those in bit mask b, where few are open
 *   KIND_SAMPLE + n   by chance: kept with 10, 50 or 90 %, whole, or torn into 4 KiB, or into sectors
 *
 * A change lost in part is one that was torn.  The n-th counts over the disks in their order.
 */
#include "explore.h"

#define KIND_DISKS	2u
#define KIND_ALONE	1000u
#define KIND_BUT	200000u
#define KIND_SUBSET	400000u
#define KIND_SAMPLE	500000u
#define VERY_FEW	3u		/* open changes: all subsets, at each position */
#define FEW		5u		/* at some */
#define SAMPLES		90000u
#define TRIES		4u		/* for one more that is none of those before */

uint64_t state_choose(const struct recording *r, struct rng *rng)
{
	unsigned int n = recording_open(r);

	if (!n)
		return 0;
	if (n <= FEW)
		return rng_below(rng, 4) ? KIND_SUBSET + rng_below(rng, 1u << n) : KIND_SAMPLE + rng_below(rng, SAMPLES);
	switch (rng_below(rng, 6)) {
	case 0:
		return rng_below(rng, 2);
	case 1:
		return KIND_DISKS + rng_below(rng, 1u << r->nr_disks);
	case 2:
		return KIND_ALONE + rng_below(rng, n);
	case 3:
		return KIND_BUT + rng_below(rng, n);
	default:
		return KIND_SAMPLE + rng_below(rng, SAMPLES);
	}
}

static bool add(const struct recording *r, uint64_t seed, uint64_t kind, struct kinds *k)
{
	uint64_t number = state_number(r, seed, kind);
	unsigned int i;

	for (i = 0; i < k->nr; i++)
		if (k->number[i] == number)
			return false;
	if (k->nr == MAX_KINDS)
		return false;
	k->kind[k->nr] = kind;
	k->number[k->nr++] = number;
	return true;
}

static void add_extremes(const struct recording *r, uint64_t seed, unsigned int n, struct kinds *k)
{
	unsigned int i;

	add(r, seed, 0, k);
	add(r, seed, 1, k);
	for (i = 0; i < n; i++) {
		add(r, seed, KIND_ALONE + i, k);
		add(r, seed, KIND_BUT + i, k);
	}
}

/* What is done with each so-many-th state is to meet any of them. */
static void shuffle(struct kinds *k, struct rng *rng)
{
	unsigned int i, j;

	for (i = k->nr; i > 1; i--) {
		uint64_t kind = k->kind[i - 1], number = k->number[i - 1];

		j = rng_below(rng, i);
		k->kind[i - 1] = k->kind[j];
		k->number[i - 1] = k->number[j];
		k->kind[j] = kind;
		k->number[j] = number;
	}
}

void state_kinds(const struct recording *r, uint64_t seed, unsigned int each, uint64_t complete, struct rng *rng, struct kinds *k)
{
	unsigned int n = recording_open(r), i;

	k->nr = 0;
	k->exhausted = n && (n <= VERY_FEW || (n <= FEW && 1u << n <= complete));
	k->extremes = n > FEW && n < MAX_KINDS / 2 - 1 && 2 * n + 2 <= complete;
	if (k->exhausted) {
		for (i = 0; i < 1u << n; i++)
			add(r, seed, KIND_SUBSET + i, k);
	} else if (k->extremes) {
		add_extremes(r, seed, n, k);
	}
	if (k->nr) {
		for (i = 0; i < TRIES && !add(r, seed, KIND_SAMPLE + rng_below(rng, SAMPLES), k); i++)
			;
	} else {
		for (i = 0; i < TRIES * each && k->nr < each; i++)
			add(r, seed, state_choose(r, rng), k);
	}
	shuffle(k, rng);
}

static bool sampled(uint64_t seed, uint64_t kind, unsigned int n, uint64_t sector)
{
	static const unsigned int percent[] = { 10, 50, 90 };
	unsigned int j = kind - KIND_SAMPLE, torn = j / 3 % 3;
	uint64_t piece = torn == 0 ? 0 : torn == 1 ? sector / 8 + 1 : sector + 1;
	struct rng rng = { .state = seed ^ kind * 0x9e3779b97f4a7c15ull ^ (uint64_t)n << 40 ^ piece * 0xd1342543de82ef95ull };

	rng_next(&rng);
	return rng_below(&rng, 100) < percent[j % 3];
}

bool state_has(const struct recording *r, uint64_t seed, uint64_t kind, unsigned int d, unsigned int c, uint32_t i)
{
	const struct change *change = &r->disk[d].open[c];
	unsigned int n = c, k;

	for (k = 0; k < d; k++)
		n += r->disk[k].nr_open;
	if (change->mask && !change->mask[i])
		return false;
	if (kind < KIND_DISKS)
		return kind;
	if (kind < KIND_ALONE)
		return (kind - KIND_DISKS) >> d & 1;
	if (kind < KIND_BUT)
		return n == kind - KIND_ALONE;
	if (kind < KIND_SUBSET)
		return n != kind - KIND_BUT;
	if (kind < KIND_SAMPLE)
		return (kind - KIND_SUBSET) >> n & 1;
	return sampled(seed, kind, n, change->e->sector + i);
}

uint64_t state_number(const struct recording *r, uint64_t seed, uint64_t kind)
{
	uint64_t number = 0xcbf29ce484222325ull;
	unsigned int d, c;
	uint32_t i;

	for (d = 0; d < r->nr_disks; d++)
		for (c = 0; c < r->disk[d].nr_open; c++)
			for (i = 0; i < r->disk[d].open[c].e->sectors; i++)
				number = (number ^ (state_has(r, seed, kind, d, c, i) + 1)) * 0x100000001b3ull;
	return number;
}

void state_describe(const struct recording *r, FILE *f, uint64_t seed, uint64_t kind)
{
	unsigned int d, c, lines = 0, has;
	const struct change *change;
	uint32_t i;

	for (d = 0; d < r->nr_disks; d++) {
		for (c = 0; c < r->disk[d].nr_open && lines < 60; c++, lines++) {
			change = &r->disk[d].open[c];
			for (i = has = 0; i < change->e->sectors; i++)
				has += state_has(r, seed, kind, d, c, i);
			fprintf(f, "  open: %s id=%llu sector=%llu count=%u%s: %u sectors have arrived\n", r->disk[d].name,
				(unsigned long long)change->e->id, (unsigned long long)change->e->sector, change->e->sectors,
				change->ended ? "" : " in flight", has);
		}
	}
}
