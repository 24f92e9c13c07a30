// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kernel/congestion.c with models of SSDs: what share it leaves to the backing, and how it comes back.
 *
 *	test_congestion [seed]
 */
#include "../../kernel/congestion.c"

#include "seeded.h"

#define THRESHOLD	2000u	/* us */
#define BACKING_US	8000u

struct reader {		/* one request at a time */
	struct larder_congestion g;
	u64 now_us, ssd, backing;
};

/* One request to an SSD that takes so long, or to the backing. */
static void one(struct reader *r, u32 ssd_us)
{
	if (r->g.share && larder_congestion_avoids(&r->g, THRESHOLD, r->now_us / 1000)) {
		r->now_us += BACKING_US;
		r->backing++;
		return;
	}
	r->now_us += ssd_us;
	r->ssd++;
	larder_congestion_sample(&r->g, ssd_us, THRESHOLD, r->now_us / 1000);
}

static void run_us(struct reader *r, u64 us, u32 ssd_us)
{
	u64 end = r->now_us + us;

	r->ssd = r->backing = 0;
	while (r->now_us < end)
		one(r, ssd_us);
}

static void test_fast(void)
{
	struct reader r = { 0 };
	unsigned int i;

	for (i = 0; i < 100000; i++)
		one(&r, 50 + rnd(300));
	CHECK(!r.backing && !r.g.share && r.g.latency_us > 50 && r.g.latency_us < 350);
}

/* A request of 30 ms now and then (its garbage collection) is no congestion. */
static void test_outlier(void)
{
	struct reader r = { 0 };
	unsigned int i;

	for (i = 0; i < 100000; i++)
		one(&r, i % 1000 == 999 ? 30000 : 100);
	CHECK(r.backing < 100, "%llu requests to the backing", r.backing);
	CHECK(!r.g.share);
}

/* "An SSD slower than the disk costs a volume at most 10 % against the raw disk", the first seconds included. */
static void test_slower_than_the_disk(void)
{
	static const u32 slow[] = { 20000, 50000, 200000 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(slow); i++) {
		struct reader r = { 0 };
		u64 raw = 120 * 1000000ull / BACKING_US, done;

		run_us(&r, 120 * 1000000ull, slow[i]);
		done = r.ssd + r.backing;
		CHECK(done * 100 >= raw * 90, "%u us: %llu done, %llu on the raw disk", slow[i], done, raw);
		CHECK(r.ssd >= 20, "it is still asked: %llu", r.ssd);
	}
}

static void test_grows_and_falls(void)
{
	struct reader r = { 0 };
	u32 before;

	run_us(&r, 1000000, 100);
	CHECK(!r.g.share);
	before = 0;
	for (unsigned int i = 0; i < 200 && r.g.share < LARDER_CONGESTION_FULL; i++) {
		larder_congestion_sample(&r.g, 5000, THRESHOLD, r.now_us / 1000);
		CHECK(r.g.share >= before && r.g.share <= LARDER_CONGESTION_FULL);
		before = r.g.share;
	}
	CHECK(before == LARDER_CONGESTION_FULL);
	run_us(&r, 60000000, 100);
	CHECK(!r.g.share && r.ssd > 10000, "it has everything back: share %u", r.g.share);
	run_us(&r, 1000000, 100);
	CHECK(!r.backing);
}

/* An SSD whose latency comes of its queue: the average comes to the threshold, neither idle nor drowned. */
static void test_equilibrium(void)
{
	struct reader r = { 0 };
	u64 sum = 0;
	unsigned int i;

	for (i = 0; i < 40000; i++) {
		u32 load = LARDER_CONGESTION_FULL - r.g.share;

		r.now_us += 1000;
		larder_congestion_sample(&r.g, 100 + 10000ull * load / LARDER_CONGESTION_FULL, THRESHOLD, r.now_us / 1000);
		if (i >= 20000)
			sum += r.g.latency_us;
	}
	CHECK(sum / 20000 > THRESHOLD / 2 && sum / 20000 < THRESHOLD * 2, "%llu us", sum / 20000);
}

/* Nobody asks: after a while nothing is left of it. */
static void test_fades(void)
{
	struct larder_congestion g = { .share = LARDER_CONGESTION_FULL, .sample_ms = 1000, .passed_ms = 1000, .latency_us = 50000 };
	unsigned int i, avoided = 0;

	for (i = 0; i < 1000; i++)
		avoided += larder_congestion_avoids(&g, THRESHOLD, 1000 + 500);
	CHECK(avoided == 1000);
	g.passed_ms = 21500;
	for (i = 0, avoided = 0; i < 1600; i++)
		avoided += larder_congestion_avoids(&g, THRESHOLD, 1000 + 20500);
	CHECK(avoided == 100, "a 16th after 20 s: %u", avoided);
	g.passed_ms = 201000;
	for (i = 0, avoided = 0; i < 1000; i++)
		avoided += larder_congestion_avoids(&g, THRESHOLD, 201000);
	CHECK(!avoided);
}

static void test_share_is_exact(void)
{
	u32 share;

	for (share = 1; share <= LARDER_CONGESTION_FULL; share += 31) {
		struct larder_congestion g = { .share = share };
		unsigned int i, avoided = 0;

		for (i = 0; i < LARDER_CONGESTION_FULL; i++)
			avoided += larder_congestion_avoids(&g, THRESHOLD, 0);
		CHECK(avoided == (share < CONGESTION_NEARLY_ALL ? share : LARDER_CONGESTION_FULL), "%u of %u", avoided, share);
	}
}

static void test_off(void)
{
	struct larder_congestion g = { .share = LARDER_CONGESTION_FULL };
	unsigned int i;

	for (i = 0; i < 100; i++)
		CHECK(!larder_congestion_avoids(&g, 0, i));
	larder_congestion_sample(&g, 1000000, 0, 1);
	CHECK(!g.share && g.latency_us);
}

static void test_anything(void)
{
	struct larder_congestion g = { 0 };
	unsigned int i;

	for (i = 0; i < 1000000; i++) {
		u64 now = rnd(100) ? i : rnd(U64_MAX);

		if (rnd(2))
			larder_congestion_sample(&g, rnd(U64_MAX) >> rnd(64), rnd(U32_MAX) >> rnd(32), now);
		else
			larder_congestion_avoids(&g, rnd(U32_MAX) >> rnd(32), now);
		CHECK(g.share <= LARDER_CONGESTION_FULL && g.debt < LARDER_CONGESTION_FULL && g.latency_us <= CONGESTION_US_MAX);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("a fast SSD is left alone", test_fast);
	run_test("an outlier is no congestion", test_outlier);
	run_test("an SSD slower than the disk costs little", test_slower_than_the_disk);
	run_test("the share grows, and falls by itself", test_grows_and_falls);
	run_test("a queue comes to the threshold", test_equilibrium);
	run_test("without samples it fades", test_fades);
	run_test("the share is kept exactly", test_share_is_exact);
	run_test("off", test_off);
	run_test("congestion, anything", test_anything);
	printf("congestion: %u tests passed, seed %llu\n", tests, seed);
	return 0;
}
