// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tests/crash/state.c: which states of a position the crash explorer tries.  What there is to try is known here: of N open writes
 * each subset, as a mask.
 */
#include <stdlib.h>
#include <string.h>

#include "../crash/recording.c"
#include "../crash/state.c"

#define SECTORS	8u	/* of a write, unless said */
#define MOST	40u	/* writes open at once */

#include "check.h"

/* ------------------------------------------------------------------ a recording */

static struct entry entries[2 * MOST];
static const struct entry *pointers[2 * MOST];
static struct disk disks[2] = { { .name = "a" }, { .name = "b" } };
static struct recording r = { .entry = pointers, .disk = disks, .nr_disks = 2 };

static void append(enum entry_type type, uint64_t id, const char *disk, uint64_t sector, uint32_t sectors, bool fua)
{
	struct entry *e = &entries[r.nr];

	*e = (struct entry){ .size = sizeof(*e), .type = type, .op = DISK_WRITE, .fua = fua, .id = id };
	e->sector = sector;
	e->sectors = sectors;
	strcpy(e->disk, disk);
	pointers[r.nr++] = e;
}

/* The position is behind all of it. */
static void play(void)
{
	recording_advance(&r, r.nr);
}

static void begin(void)
{
	recording_rewind(&r);
	r.nr = 0;
}

/* n writes that are open, on both disks in turn, the last one in flight. */
static void make_open(unsigned int n, uint32_t sectors)
{
	unsigned int i;

	begin();
	for (i = 0; i < n; i++) {
		append(ENTRY_SUBMIT, i, disks[i % 2].name, i * 100, sectors, false);
		if (i + 1 < n)
			append(ENTRY_COMPLETE, i, disks[i % 2].name, 0, 0, false);
	}
	play();
}

/* ------------------------------------------------------------------ what was chosen */

/* The open changes that have arrived, the n-th as bit n; torn: one has in part. */
static uint64_t arrived(uint64_t kind, bool *torn)
{
	unsigned int d, c, n = 0;
	uint64_t mask = 0;
	uint32_t i, has;

	*torn = false;
	for (d = 0; d < r.nr_disks; d++) {
		for (c = 0; c < disks[d].nr_open; c++, n++) {
			for (i = has = 0; i < disks[d].open[c].e->sectors; i++)
				has += state_has(&r, 1, kind, d, c, i);
			*torn |= has && has < disks[d].open[c].e->sectors;
			mask |= (uint64_t)(has > 0) << n;
		}
	}
	return mask;
}

static struct kinds kinds;
static uint64_t whole[MAX_KINDS];	/* masks of those chosen in which none is torn */
static unsigned int nr_whole, nr_torn;

static void choose(unsigned int each, uint64_t complete, uint64_t seed)
{
	struct rng rng = { .state = seed };
	unsigned int i;
	uint64_t mask;
	bool torn;

	state_kinds(&r, 1, each, complete, &rng, &kinds);
	nr_whole = nr_torn = 0;
	for (i = 0; i < kinds.nr; i++) {
		mask = arrived(kinds.kind[i], &torn);
		if (torn)
			nr_torn++;
		else
			whole[nr_whole++] = mask;
	}
}

static unsigned int times(uint64_t mask)
{
	unsigned int i, n = 0;

	for (i = 0; i < nr_whole; i++)
		n += whole[i] == mask;
	return n;
}

/* Each subset once, and at most one more state, which is torn. */
static bool all_subsets(unsigned int n)
{
	uint64_t mask;

	for (mask = 0; mask < 1u << n; mask++)
		if (times(mask) != 1)
			return false;
	return nr_whole == 1u << n && nr_torn <= 1;
}

/* ------------------------------------------------------------------ tests */

static void nothing_open(void)
{
	make_open(0, SECTORS);
	choose(3, 1000, 1);
	check(kinds.nr == 1 && kinds.kind[0] == 0 && !kinds.exhausted && !kinds.extremes, "nothing open: one state");
}

/* Whatever is asked for. */
static void very_few(void)
{
	unsigned int n, seed, torn = 0;
	bool good = true;

	for (n = 1; n <= 3; n++) {
		make_open(n, SECTORS);
		for (seed = 1; seed <= 20; seed++) {
			choose(1, 0, seed);
			good &= kinds.exhausted && all_subsets(n);
			torn += nr_torn;
		}
	}
	check(good, "up to three open: all subsets, always");
	check(torn, "up to three open: a torn one too");
	make_open(3, 1);
	choose(3, 0, 1);
	check(kinds.exhausted && all_subsets(3) && kinds.nr == 8, "what cannot be torn: no state twice");
}

static void few(void)
{
	unsigned int n;

	for (n = 4; n <= 5; n++) {
		make_open(n, SECTORS);
		choose(3, 1u << n, 7);
		check(kinds.exhausted && all_subsets(n), "four, five open, complete: all subsets");
		choose(3, (1u << n) - 1, 7);
		check(!kinds.exhausted && kinds.nr == 3, "four, five open, more than there may be: by chance");
	}
	make_open(6, SECTORS);
	choose(3, 14, 7);
	check(!kinds.exhausted && kinds.extremes, "six open: not all subsets");
}

/* Those of n open writes, each once. */
static bool all_extremes(unsigned int n)
{
	uint64_t all = (1ull << n) - 1;
	unsigned int i;

	for (i = 0; i < n; i++)
		if (!times(1ull << i) || !times(all ^ 1ull << i))
			return false;
	return times(0) && times(all) && kinds.nr >= 2 * n + 2 && kinds.nr <= 2 * n + 3;
}

static void many(void)
{
	unsigned int n;
	bool good = true;

	for (n = 6; n <= MOST; n++) {
		make_open(n, SECTORS);
		choose(3, 2 * n + 2, n);
		good &= kinds.extremes && !kinds.exhausted && all_extremes(n);
	}
	check(good, "many open, complete: none, all, each alone, all but each");
	choose(3, 2 * MOST + 1, 1);
	check(!kinds.extremes && kinds.nr == 3, "many open, more than there may be: by chance");
}

/* A later write that is durable takes its sectors from those before, whatever is chosen. */
static void superseded(void)
{
	unsigned int i, k;
	bool lost = false;

	begin();
	append(ENTRY_SUBMIT, 1, "a", 0, SECTORS, false);
	append(ENTRY_SUBMIT, 2, "b", 0, SECTORS, false);
	append(ENTRY_SUBMIT, 3, "a", 2, 2, true);
	append(ENTRY_COMPLETE, 3, "a", 0, 0, false);
	play();
	choose(3, 0, 1);
	for (k = 0; k < kinds.nr; k++)
		for (i = 2; i < 4; i++)
			lost |= state_has(&r, 1, kinds.kind[k], 0, 0, i);
	check(recording_open(&r) == 2 && kinds.exhausted && kinds.nr >= 4 && !lost, "superseded sectors never arrive");
}

static void by_chance(void)
{
	unsigned int i, k, seed;
	bool good = true;

	make_open(20, SECTORS);
	for (seed = 1; seed <= 50; seed++) {
		choose(10, 0, seed);
		good &= kinds.nr == 10;
		for (i = 0; i < kinds.nr; i++)
			for (k = 0; k < i; k++)
				good &= kinds.number[i] != kinds.number[k];
	}
	check(good, "by chance: as many as asked for, no state twice");
}

int main(void)
{
	nothing_open();
	very_few();
	few();
	many();
	superseded();
	by_chance();
	begin();
	free(disks[0].due);
	return failed;
}
