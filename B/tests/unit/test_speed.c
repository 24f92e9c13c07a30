// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kernel/speed.c with models of an SSD and a backing: where streams go, what it costs to find out, and that they come back.
 *
 *	test_speed [seed]
 */
#include "../../kernel/speed.c"

#include "seeded.h"

#define REQUEST		2048u		/* sectors */
#define MIB		1024u		/* KiB */

/* One writer with one request in flight. */
struct writer {
	struct larder_speed s;
	u32 kib[LARDER_NR_SIDES];	/* per second, of the side */
	u32 burst;			/* KiB that the backing takes at once still (its write cache) */
	bool full;			/* the SSD has no room */
	u64 now_ns, went[LARDER_NR_SIDES];	/* KiB */
	unsigned int changes;		/* of sides */
};

static void write_one(struct writer *w)
{
	u8 before = w->s.side;
	enum larder_side side = larder_speed_write(&w->s, REQUEST, !w->full, w->now_ns / NSEC_PER_MSEC);
	u64 ns = (u64)REQUEST / 2 * NSEC_PER_SEC / w->kib[side];

	if (side == LARDER_SIDE_BACKING && w->burst >= REQUEST / 2) {
		w->burst -= REQUEST / 2;
		ns /= 8;
	}
	ns += ns * rnd(20) / 1000;
	w->now_ns += ns;
	w->went[side] += REQUEST / 2;
	w->changes += w->s.side != before;
	larder_speed_sample(&w->s, side, REQUEST, ns);
}

static void write_kib(struct writer *w, u64 kib)
{
	memset(w->went, 0, sizeof(w->went));
	for (; kib; kib -= REQUEST / 2)
		write_one(w);
}

/* "Streams of writes reach 0.98 of the SSD": the time of what went to either side, and of all of it on the SSD. */
static void test_fast_ssd(void)
{
	static const u32 ssd[] = { 500000, 1000000, 1900000, 7000000 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ssd); i++) {
		struct writer w = { .kib = { ssd[i], 175000 } };
		u64 ideal, n = 64 * 1024 * MIB;

		write_kib(&w, n);
		ideal = n * NSEC_PER_SEC / ssd[i];
		CHECK(ideal * 100 > w.now_ns * 98, "SSD of %u: %llu of %llu ns", ssd[i], ideal, w.now_ns);
		CHECK(w.went[1] && w.went[1] * 200 < n, "it is asked: %llu KiB", w.went[1]);
		CHECK(!w.changes);
	}
}

/* A stream of less than what lies between two probes costs nothing. */
static void test_short_stream(void)
{
	struct writer w = { .kib = { 1900000, 175000 } };

	write_kib(&w, LARDER_PROBE_EVERY);
	CHECK(!w.went[1], "%llu KiB", w.went[1]);
}

static void test_fast_backing(void)
{
	struct writer w = { .kib = { 400000, 1200000 } };

	write_kib(&w, 2 * LARDER_PROBE_EVERY);
	CHECK(w.s.side == LARDER_SIDE_BACKING && w.changes == 1);
	write_kib(&w, 256 * 1024 * MIB);
	CHECK(w.went[0] && w.went[0] * 100 < w.went[1], "the SSD is asked, seldom: %llu", w.went[0]);
	w.kib[1] = 100000;
	write_kib(&w, 1024 * MIB);
	write_kib(&w, 1024 * MIB);
	CHECK(w.s.side == LARDER_SIDE_SSD && !w.went[1], "it has become slow, and is left alone");
}

/* A disk takes the first of a stream into its own cache: that is no speed, and does not last. */
static void test_burst(void)
{
	struct writer w = { .kib = { 400000, 175000 }, .burst = 64 * MIB };

	write_kib(&w, 2 * LARDER_PROBE_EVERY);
	CHECK(w.changes == 2 && w.s.side == LARDER_SIDE_SSD, "%u changes", w.changes);
	write_kib(&w, 64 * 1024 * MIB);
	CHECK(w.changes == 2 && w.went[1] * 200 < w.went[0]);
}

static void test_alike(void)
{
	struct writer w = { .kib = { 500000, 500000 } };

	write_kib(&w, 256 * 1024 * MIB);
	CHECK(!w.changes && w.went[1] * 100 < w.went[0]);
}

static void test_no_room(void)
{
	struct writer w = { .kib = { 1900000, 175000 }, .full = true };

	write_kib(&w, 4 * LARDER_PROBE_EVERY);
	CHECK(!w.went[0], "nothing goes to the SSD, and no probe either");
	w.full = false;
	write_kib(&w, LARDER_PROBE_EVERY);
	CHECK(!w.went[1], "it comes back at once");
}

static void test_reads(void)
{
	struct larder_speed s = { 0 };

	CHECK(larder_speed_read_bypasses(&s), "nothing is known");
	larder_speed_sample(&s, LARDER_SIDE_BACKING, 256, 1000000);
	CHECK(larder_speed_read_bypasses(&s), "the SSD is not known");
	larder_speed_sample(&s, LARDER_SIDE_SSD, 256, 980000);
	CHECK(larder_speed_read_bypasses(&s), "as fast");
	s.ns[LARDER_SIDE_SSD] = 0;
	larder_speed_sample(&s, LARDER_SIDE_SSD, 256, 200000);
	CHECK(!larder_speed_read_bypasses(&s));
	s.ns[LARDER_SIDE_BACKING] = 0;
	CHECK(larder_speed_read_bypasses(&s), "the backing is not known");
}

static void test_samples(void)
{
	struct larder_speed s = { 0 };
	unsigned int i;

	CHECK(!larder_speed_kib(&s, LARDER_SIDE_SSD));
	larder_speed_sample(&s, LARDER_SIDE_SSD, 0, 1000);
	CHECK(!s.ns[0]);
	larder_speed_sample(&s, LARDER_SIDE_SSD, 2048, NSEC_PER_SEC);
	CHECK(larder_speed_kib(&s, LARDER_SIDE_SSD) == 1024 && !s.ns[1]);
	for (i = 0; i < 200; i++)
		larder_speed_sample(&s, LARDER_SIDE_SSD, 2048, NSEC_PER_SEC / 100);
	CHECK(larder_speed_kib(&s, LARDER_SIDE_SSD) > 95 * 1024, "%u", larder_speed_kib(&s, LARDER_SIDE_SSD));
	for (i = 0; i < 1000; i++) {
		larder_speed_sample(&s, rnd(2), 1 + rnd(20000), rnd(2) ? U64_MAX : rnd(1000));
		CHECK(s.ns[0]);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("streams of writes reach 0.98 of a fast SSD", test_fast_ssd);
	run_test("a short stream asks for nothing", test_short_stream);
	run_test("a backing that is faster gets them", test_fast_backing);
	run_test("a disk's own cache is no speed", test_burst);
	run_test("sides that are alike keep them", test_alike);
	run_test("no room", test_no_room);
	run_test("streams of reads", test_reads);
	run_test("samples", test_samples);
	printf("speed: %u tests passed, seed %llu\n", tests, seed);
	return 0;
}
