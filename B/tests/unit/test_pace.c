// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kernel/pace.c with a model of reclaim, which makes room in batches, as fast as a disk takes them: nobody waits for a whole one, the
 * disk never waits for writers, and what is not known, or has changed, is found out.
 *
 *	test_pace [seed]
 */
#include "../../kernel/pace.c"

#include "seeded.h"

#define STEP_NS	NSEC_PER_MSEC

/* Writers who always have something to write, one slot each. */
struct world {
	struct larder_pace p;
	u32 segment, goal;	/* slots, segments */
	u32 batch;		/* segments that reclaim writes back at once */
	u32 disk;		/* slots per second */
	u64 room;		/* slots */
	u64 left_ns;		/* of the batch under way; 0: none */
	u64 now_ns, wrote;
	u64 waited_ns, longest_ns;	/* since the last write; at most */
};

static void step(struct world *w)
{
	u64 segments = w->room / w->segment, before = w->wrote;

	w->now_ns += STEP_NS;
	if (w->left_ns) {
		w->left_ns -= min_t(u64, w->left_ns, STEP_NS);
		if (!w->left_ns) {
			w->room += (u64)w->batch * w->segment;
			larder_pace_freed(&w->p, w->batch * w->segment, w->now_ns);
		}
	} else if (segments < w->goal) {
		larder_pace_begin(&w->p, w->now_ns);
		w->left_ns = (u64)w->batch * w->segment * NSEC_PER_SEC / w->disk;
	}
	if (larder_pace_due(&w->p, w->now_ns)) {
		if (segments >= w->goal)
			larder_pace_end(&w->p, w->now_ns);
		larder_pace_fill(&w->p, segments, w->goal, w->now_ns);
	}
	while (w->room && (w->p.on ? larder_pace_admits(&w->p) : w->wrote < before + 300)) {
		larder_pace_take(&w->p, 1);
		w->room--;
		w->wrote++;
	}
	w->waited_ns = w->wrote == before ? w->waited_ns + STEP_NS : 0;
	w->longest_ns = max(w->longest_ns, w->waited_ns);
}

static void run(struct world *w, u32 seconds)
{
	u64 end = w->now_ns + seconds * NSEC_PER_SEC;

	w->wrote = w->waited_ns = w->longest_ns = 0;
	while (w->now_ns < end)
		step(w);
}

static struct world world(u32 segment, u32 goal, u32 disk)
{
	struct world w = { .segment = segment, .goal = goal, .disk = disk, .batch = max(disk / segment, 1u), .now_ns = NSEC_PER_SEC };

	w.room = 3ull * goal * segment;
	return w;
}

/* Caches of all sizes, disks of all speeds: as much is written as the disk takes, and no wait is near as long as a batch. */
static void test_steady(void)
{
	static const u32 disks[] = { 100, 420, 700, 5000, 60000 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(disks); i++) {
		struct world w = world(126, 17, disks[i]);
		u64 batch_ns;

		w.batch = min(w.batch, 8u);
		batch_ns = (u64)w.batch * w.segment * NSEC_PER_SEC / w.disk;
		run(&w, 120);
		run(&w, 120);
		CHECK(w.wrote > w.disk * 120ull * 8 / 10, "disk %u: %llu written", w.disk, w.wrote);
		CHECK(w.longest_ns < max_t(u64, batch_ns / 8, 4 * STEP_NS), "disk %u: %llu ns, a batch %llu", w.disk, w.longest_ns, batch_ns);
	}
}

/* A cache of which nothing is known: it finds out from the first batches, far too fast a guess or far too slow a one. */
static void test_guess_is_wrong(void)
{
	static const u32 rates[] = { LARDER_PACE_LEAST, LARDER_PACE_FIRST, 1000000 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rates); i++) {
		struct world w = world(508, 64, 700);

		w.p.rate = rates[i];
		run(&w, 600);
		CHECK(w.p.rate > 350 && w.p.rate < 1400, "from %u: %u", rates[i], w.p.rate);
	}
}

/* The disk becomes ten times slower, or faster. */
static void test_disk_changes(void)
{
	struct world w = world(508, 64, 5000);

	run(&w, 120);
	w.disk = 500;
	w.batch = 1;
	run(&w, 600);
	run(&w, 120);
	CHECK(w.wrote > 500 * 120 * 8 / 10 && w.longest_ns < NSEC_PER_SEC / 10, "%llu written, %llu ns", w.wrote, w.longest_ns);
	w.disk = 5000;
	w.batch = 8;
	run(&w, 120);
	CHECK(w.wrote > 5000ull * 120 * 8 / 10, "%llu written", w.wrote);
}

/* A disk that takes nothing for a minute: what there is lasts, and behind it all is as before. */
static void test_disk_hangs(void)
{
	struct world w = world(508, 64, 700);
	u64 before;

	run(&w, 120);
	before = w.room;
	w.left_ns = 60 * NSEC_PER_SEC;
	run(&w, 60);
	CHECK(w.room && w.wrote && w.room < before, "%llu left of %llu", w.room, before);
	run(&w, 120);
	run(&w, 120);
	CHECK(w.wrote > 700 * 120 * 9 / 10, "%llu written", w.wrote);
}

/* Nobody is held up where reclaim has not written back for a while, and has what it wants. */
static void test_ends(void)
{
	struct larder_pace p = { };

	larder_pace_begin(&p, 1);
	CHECK(p.on && p.rate == LARDER_PACE_FIRST);
	larder_pace_end(&p, NSEC_PER_SEC);
	CHECK(p.on);
	larder_pace_begin(&p, NSEC_PER_SEC);
	larder_pace_end(&p, PACE_LINGER_NS + 1);
	CHECK(p.on);
	larder_pace_end(&p, PACE_LINGER_NS + NSEC_PER_SEC);
	CHECK(!p.on);
}

/* A request may be larger than what there is, and the next one waits for that. */
static void test_overdrawn(void)
{
	struct larder_pace p = { .rate = 1000 };
	u64 now = NSEC_PER_SEC;
	u32 ms;

	larder_pace_begin(&p, now);
	larder_pace_fill(&p, 10, 10, now + NSEC_PER_MSEC);
	CHECK(larder_pace_admits(&p));
	larder_pace_take(&p, 100);
	for (ms = 2; !larder_pace_admits(&p); ms++)
		larder_pace_fill(&p, 10, 10, now + ms * NSEC_PER_MSEC);
	CHECK(ms > 70 && ms < 80, "%u ms", ms); /* three quarters of the goal are a pace of one */
}

/* However little room and however slow the disk: something is admitted, if late; with none, nothing. */
static void test_never_nothing(void)
{
	struct larder_pace p = { .rate = LARDER_PACE_LEAST };
	u64 now = NSEC_PER_SEC, waited;

	larder_pace_begin(&p, now);
	for (waited = 0; !larder_pace_admits(&p) && waited < 60000; waited++)
		larder_pace_fill(&p, 1, 64, now += NSEC_PER_MSEC);
	CHECK(waited < 60000);
	larder_pace_take(&p, 1);
	for (waited = 0; !larder_pace_admits(&p) && waited < 60000; waited++)
		larder_pace_fill(&p, 0, 64, now += NSEC_PER_MSEC);
	CHECK(waited == 60000);
}

/* Reclaim writes back again and again, and nothing becomes free: its pace falls; and of what takes several batches all time counts. */
static void test_batches_that_free_nothing(void)
{
	struct larder_pace p = { .rate = 100000 };
	u64 now = NSEC_PER_SEC;
	u32 i;

	for (i = 0; i < 200; i++, now += NSEC_PER_SEC) {
		larder_pace_begin(&p, now);
		larder_pace_fill(&p, 10, 10, now);
	}
	CHECK(p.rate == LARDER_PACE_LEAST, "%u", p.rate);
	p = (struct larder_pace){ .rate = 1000 };
	for (i = 0; i < 100; i++) {
		now += NSEC_PER_SEC;
		if (i % 4 == 3)
			larder_pace_freed(&p, 4000, now);
		larder_pace_begin(&p, now);
		larder_pace_fill(&p, 10, 10, now);
	}
	CHECK(p.rate > 900 && p.rate < 1400, "%u", p.rate);
}

/* Disks whose flush takes no time, and such where it takes most of a second: of about a second, and not much slower than they could be. */
static void test_batch(void)
{
	static const u64 flush_ns[] = { 0, NSEC_PER_MSEC * 20, NSEC_PER_MSEC * 700, NSEC_PER_SEC * 2 };
	static const u64 piece_ns[] = { 20000, 200000, 2000000, 50000000 };
	u32 f, p, i;

	for (f = 0; f < ARRAY_SIZE(flush_ns); f++)
		for (p = 0; p < ARRAY_SIZE(piece_ns); p++) {
			struct larder_batch b = { };
			u64 ns = 0, pieces = 0, n;

			for (i = 0; i < 1000; i++) {
				n = larder_batch_next(&b);
				CHECK(n >= LARDER_BATCH_LEAST && n <= LARDER_BATCH_MOST);
				pieces += n;
				ns += flush_ns[f] + n * piece_ns[p];
				larder_batch_took(&b, n, flush_ns[f] + n * piece_ns[p], false);
			}
			if (flush_ns[f] < NSEC_PER_SEC / 2)
				CHECK(ns / 1000 < 13 * NSEC_PER_SEC / 10 || piece_ns[p] * LARDER_BATCH_LEAST > NSEC_PER_SEC, "%u/%u: %llu ns", f, p, ns / 1000);
			CHECK(pieces * NSEC_PER_SEC / ns > 300 || piece_ns[p] >= 2000000, "%u/%u: %llu a second", f, p, pieces * NSEC_PER_SEC / ns);
		}
}

/* Somebody reads from a disk that nobody used, and it takes a tenth of what it took: no batch is larger for it, but one or two. */
static void test_batch_beside_a_reader(void)
{
	static const u64 flush_ns[] = { 0, NSEC_PER_MSEC * 20, NSEC_PER_MSEC * 200 };
	struct larder_batch b;
	u32 f, i, n, late;

	for (f = 0; f < ARRAY_SIZE(flush_ns); f++) {
		b = (struct larder_batch){ };
		late = 0;
		for (i = 0; i < 200; i++) {
			u64 ns;

			n = larder_batch_next(&b);
			ns = flush_ns[f] + n * (i < 100 ? 333333ull : 3333333ull);
			late += i >= 100 && ns > 2 * NSEC_PER_SEC;
			larder_batch_took(&b, n, ns, false);
		}
		CHECK(late <= 2, "%u: %u of 100 take more than two seconds", f, late);
	}
}

/* Batches that are to be short beside readers: an eighth of a second, also where the disk is slower for these; the long ones stay as they were. */
static void test_short_batches(void)
{
	static const u64 flush_ns[] = { 0, NSEC_PER_MSEC * 20, NSEC_PER_MSEC * 200 };
	u32 f, i, n, next;

	for (f = 0; f < ARRAY_SIZE(flush_ns); f++) {
		struct larder_batch b = { };

		for (i = 0; i < 100; i++)
			larder_batch_took(&b, larder_batch_next(&b), flush_ns[f] + larder_batch_next(&b) * 333333ull, false);
		next = larder_batch_next(&b);
		for (i = 0; i < 100; i++) {
			u64 ns;

			n = larder_batch_beside(&b);
			ns = flush_ns[f] + n * 3333333ull;
			CHECK(n <= max(next / 8, LARDER_BATCH_LEAST / 4) && (i < 3 || ns <= flush_ns[f] + NSEC_PER_SEC / 8), "%u: %u pieces, %llu ns", f, n, ns);
			larder_batch_took(&b, n, ns, true);
		}
		CHECK(larder_batch_next(&b) == next);
	}
}

/* Whatever comes: no overflow (UBSan), no rate out of bounds. */
static void test_anything(void)
{
	struct larder_pace p = { };
	u64 now = 0;
	u32 i;

	for (i = 0; i < 200000; i++) {
		now += rnd(U32_MAX) >> rnd(32);
		switch (rnd(5)) {
		case 0:
			larder_pace_begin(&p, now);
			break;
		case 1:
			larder_pace_freed(&p, rnd(U32_MAX) >> rnd(32), now);
			break;
		case 2:
			larder_pace_end(&p, now);
			break;
		case 3:
			larder_pace_fill(&p, rnd(U32_MAX) >> rnd(32), rnd(1 << 20), now);
			break;
		default:
			if (larder_pace_admits(&p))
				larder_pace_take(&p, rnd(1024));
		}
		CHECK(!p.rate || (p.rate >= LARDER_PACE_LEAST && p.rate <= LARDER_PACE_MOST), "%u", p.rate);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("writes come at the disk's pace, evenly", test_steady);
	run_test("a wrong guess is found out", test_guess_is_wrong);
	run_test("a disk that changes its pace", test_disk_changes);
	run_test("a disk that hangs for a minute", test_disk_hangs);
	run_test("it ends", test_ends);
	run_test("a request larger than what there is", test_overdrawn);
	run_test("something comes as long as there is room", test_never_nothing);
	run_test("batches that free nothing", test_batches_that_free_nothing);
	run_test("batches of a second", test_batch);
	run_test("batches beside a reader", test_batch_beside_a_reader);
	run_test("short batches beside readers", test_short_batches);
	run_test("pace, anything", test_anything);
	printf("pace: %u tests passed, seed %llu\n", tests, seed);
	return 0;
}
