/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests with seeded random operations: the same seed gives the same ones.  To be included behind the code under test, which brings
 * u64, pure_live and the C library.
 */
#ifndef LARDER_TEST_SEEDED_H
#define LARDER_TEST_SEEDED_H

static u64 seed = 1, state, operations;		/* operations: counted by tests that make many */
static const u64 *chosen;			/* these first, of somebody who makes a failure smaller; */
static size_t nr_chosen;
#define DULL 99					/* and this behind them if 'state' is 0: nothing happens by a chance */
static unsigned int tests;
static const char *test_name;

#define CHECK(c, ...) do { \
	if (!(c)) { \
		printf("not ok %u %s\n  %s:%d: %s\n  seed %llu;", tests + 1, test_name, __FILE__, __LINE__, #c, seed); \
		printf(" " __VA_ARGS__); \
		printf("\n"); \
		exit(1); \
	} \
} while (0)

static u64 rnd64(void)
{
	u64 z;

	if (nr_chosen)
		return nr_chosen--, *chosen++;
	if (chosen && !state)
		return DULL;
	z = (state += 0x9e3779b97f4a7c15ull);
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static u64 rnd(u64 n)
{
	return rnd64() % n;
}

static void run_test(const char *name, void (*test)(void))
{
	u64 before = operations;

	test_name = name;
	state = seed * 1000003 + tests;
	test();
	CHECK(pure_live == 0, "%ld allocations left", pure_live);
	printf("ok %u %s", ++tests, name);
	if (operations > before)
		printf(" (%llu operations)", operations - before);
	printf("\n");
	fflush(stdout);
}

#endif
