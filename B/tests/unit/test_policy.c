// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Properties of kernel/policy.c, seeded random operations against naive models, and the controller in simulation.
 *
 *	test_policy [seed]
 *
 * The same seed gives the same operations.  White box where a structure has invariants (streams), black box elsewhere.  Prints
 * "ok N name" for each test and a summary; the first failure prints where, with which seed, and exits 1.
 */
#include "../../kernel/policy.c"

#include <math.h>
#include <sys/mman.h>

#include "seeded.h"

/* ------------------------------------------------------------- streams */
static unsigned long now = 1000;

static u64 account(struct larder_seq *seq, u64 sector, u32 sectors, bool write)
{
	operations++;
	return larder_seq_account(seq, sector, sectors, write, 1, now);
}

/* Every invariant that policy.c states about the table. */
static void check_streams(const struct larder_seq *seq)
{
	unsigned int i, k, m, n = 0, hashed = 0, live = 0;
	u8 seen[LARDER_NR_STREAMS_SEEN] = { 0 };

	for (i = seq->age[LARDER_NR_STREAMS_SEEN].next; i != LARDER_NR_STREAMS_SEEN; i = seq->age[i].next) {
		CHECK(seq->age[seq->age[i].next].prev == i);
		CHECK(++n <= LARDER_NR_STREAMS_SEEN);
	}
	CHECK(n == LARDER_NR_STREAMS_SEEN, "%u streams on the age ring", n);
	for (m = LARDER_NR_STREAMS_SEEN; m < 256; m++) {
		for (i = seq->hash[m].next; i != m; i = seq->hash[i].next) {
			const struct larder_stream *s = &seq->stream[i];

			CHECK(i < LARDER_NR_STREAMS_SEEN && !seen[i]++);
			CHECK(seq->hash[seq->hash[i].next].prev == i);
			CHECK(larder_seq_bucket(s->next / LARDER_SEQ_WINDOW, s->write) == m, "stream %u in a wrong bucket", i);
			hashed++;
		}
	}
	for (i = 0; i < LARDER_NR_STREAMS_SEEN; i++) {
		const struct larder_stream *s = &seq->stream[i];
		u32 pending = 0;

		if (!s->live)
			continue;
		live++;
		CHECK(s->next > s->start && s->settled <= s->next - s->start && s->settled);
		CHECK(s->holes <= LARDER_SEQ_WINDOW && s->holes + s->settled <= s->next - s->start);
		CHECK(s->pieces <= LARDER_SEQ_PIECES);
		for (k = 0; k < s->pieces; k++) {
			u32 a = s->piece[k].first - (u32)s->next, b = s->piece[k].end - (u32)s->next;

			CHECK(a && a <= LARDER_SEQ_WINDOW && b > a);
			CHECK(a > b - a, "a piece larger than its hole was left");
			pending += b - a;
			for (m = 0; m < k; m++) {
				u32 c = s->piece[m].first - (u32)s->next, d = s->piece[m].end - (u32)s->next;

				CHECK(b < c || d < a, "pieces touch");
			}
		}
		CHECK(pending == s->pending);
	}
	CHECK(hashed == live);
}

static void test_seq_in_order(void)
{
	static const u32 sizes[] = { 1, 7, 8, 64, 256, 2048, 8192 };
	unsigned int k, i;

	for (k = 0; k < 2 * ARRAY_SIZE(sizes); k++) {
		struct larder_seq *seq = larder_seq_create();
		u32 size = sizes[k / 2];
		u64 base = rnd(1ull << 44), run;

		for (i = 1; i <= 3000; i++) {
			run = account(seq, base + (u64)(i - 1) * size, size, k & 1);
			CHECK(run == (u64)i * size * 512, "size %u, request %u: %llu", size, i, run);
			now += rnd(10) == 0;
		}
		check_streams(seq);
		CHECK(account(seq, base + 12345678, 0, false) == 0);
		larder_seq_destroy(seq);
	}
}

/*
 * A window of 'depth' requests of a sequential reader is always on its way; any of them arrives next, but none is overtaken by
 * more than a window.
 */
static void shuffled(u32 depth, u32 size, u64 *least, u64 *worst_after)
{
	struct larder_seq *seq = larder_seq_create();
	u64 window[256], base = rnd(1ull << 40), run, sent = 0, next = base;
	u32 i, k, n = 0, total = 3000;

	*least = U64_MAX;
	*worst_after = 0;
	for (i = 0; i < total; i++) {
		u32 pick;

		while (n < depth && next < base + (u64)total * size) {
			window[n++] = next;
			next += size;
		}
		pick = rnd(n);
		for (k = 0; k < n; k++)
			if (next - window[k] >= LARDER_SEQ_WINDOW)
				pick = k;
		run = account(seq, window[pick], size, false);
		window[pick] = window[--n];
		sent += size * 512ull;
		CHECK(run <= sent, "a run of %llu of %llu bytes sent", run, sent);
		if (i % 64 == 0)
			check_streams(seq);
		if (i >= total / 2) {
			*least = min(*least, run);
			*worst_after = max(*worst_after, sent - run);
		}
	}
	larder_seq_destroy(seq);
}

/* All but a few requests count, and each is known as part of a long run, however disordered. */
static void test_seq_shuffled(void)
{
	static const u32 depths[] = { 2, 4, 8, 12, 16, 24 }, sizes[] = { 8, 32, 64 };
	unsigned int d, s, rep;
	u64 least, lost;

	for (d = 0; d < ARRAY_SIZE(depths); d++)
		for (s = 0; s < ARRAY_SIZE(sizes); s++)
			for (rep = 0; rep < 8; rep++) {
				if (depths[d] * sizes[s] > LARDER_SEQ_WINDOW / 2)
					continue;
				shuffled(depths[d], sizes[s], &least, &lost);
				CHECK(least >= 1000ull * sizes[s] * 512, "depth %u, size %u: a request seen in a run of %llu",
				      depths[d], sizes[s], least);
				CHECK(lost <= 4ull * depths[d] * sizes[s] * 512 + 300ull * sizes[s] * 512,
				      "depth %u, size %u: lost %llu", depths[d], sizes[s], lost);
			}
}

/* Streams far apart, one at a time: exactly the list of the latest 128, each with its end and length. */
static void test_seq_against_list(void)
{
	struct { u64 end, length; bool write; } list[LARDER_NR_STREAMS_SEEN], entry;
	struct larder_seq *seq = larder_seq_create();
	u64 fresh = 0, sector, run;
	u32 n = 0, i, k, sectors;

	for (i = 0; i < 120000; i++) {
		sectors = 1 + rnd(rnd(4) ? 64 : 4096);
		k = n;
		if (n && rnd(16)) {
			k = rnd(n);
			entry = list[k];
		} else {
			entry.end = fresh += 1ull << 30;
			entry.length = 0;
			entry.write = rnd(2);
			if (n == LARDER_NR_STREAMS_SEEN)
				k = n - 1;
			else
				n++;
		}
		sector = entry.end;
		entry.end += sectors;
		entry.length += sectors;
		memmove(&list[1], &list[0], k * sizeof(entry));
		list[0] = entry;
		operations++;
		/* each request of another task: the average of tasks is tested elsewhere */
		run = larder_seq_account(seq, sector, sectors, entry.write, i, now);
		CHECK(run == entry.length * 512, "request %u: %llu, expected %llu", i, run, entry.length * 512);
		if (i % 512 == 0)
			check_streams(seq);
	}
	larder_seq_destroy(seq);
}

/* How many of 'count' random requests of up to 'most' sectors, within a range, were taken for part of a run of 4 MiB. */
static u32 scattered(u64 range, u32 most, u32 count, bool write)
{
	struct larder_seq *seq = larder_seq_create();
	u64 base = rnd(1ull << 40) & ~7ull;
	u32 i, sectors, taken = 0;

	for (i = 0; i < count; i++) {
		sectors = 8 * (1 + rnd(most / 8));
		taken += account(seq, base + rnd((range - sectors) / 8 + 1) * 8, sectors, write) >= 4 << 20;
		now += i % 64 == 0;	/* 16,000 requests a second */
		if (i % 2048 == 0)
			check_streams(seq);
	}
	larder_seq_destroy(seq);
	return taken;
}

/* The smallest range is as long as the run that it must not become. */
static void test_seq_random_is_none(void)
{
	static const u64 ranges[] = { 1 << 13, 1 << 14, 1 << 16, 1 << 17, 1 << 21, 1ull << 31 };	/* 4 MiB to 1 TiB */
	unsigned int i;
	u32 taken;

	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		taken = scattered(ranges[i], 8, 60000, i & 1);
		CHECK(!taken, "4 KiB in %llu sectors: %u of 60000", ranges[i], taken);
		taken = scattered(ranges[i], 32, 60000, i & 1);
		CHECK(taken < 60, "up to 16 KiB in %llu sectors: %u of 60000", ranges[i], taken);
		taken = scattered(ranges[i], 128, 60000, i & 1);
		CHECK(taken < 300, "up to 64 KiB in %llu sectors: %u of 60000", ranges[i], taken);
		taken = scattered(ranges[i], 256, 60000, i & 1);
		CHECK(taken < 1800, "up to 128 KiB in %llu sectors: %u of 60000", ranges[i], taken);
	}
}

/* A scan is recognised among a hundred others and noise, and late and early pieces do not spoil the table. */
static void test_seq_in_noise(void)
{
	struct larder_seq *seq = larder_seq_create();
	u64 at[100], sent[100] = { 0 };
	u32 i, k;

	for (k = 0; k < ARRAY_SIZE(at); k++)
		at[k] = ((u64)k << 32) + rnd(1 << 20);
	for (i = 0; i < 60000; i++) {
		u64 run;

		if (rnd(64) == 0) {	/* another place */
			account(seq, rnd(1ull << 44), 8, rnd(2));
			continue;
		}
		k = rnd(ARRAY_SIZE(at));
		run = larder_seq_account(seq, at[k], 128, k & 1, i, now);
		operations++;
		at[k] += 128;
		sent[k] += 128 * 512;
		CHECK(run <= sent[k]);
		if (run != sent[k])	/* it waited too long and was forgotten: so it begins anew */
			sent[k] = 128 * 512;
		CHECK(run == sent[k]);
		if (i % 1024 == 0)
			check_streams(seq);
	}
	for (i = 0, k = 0; k < ARRAY_SIZE(at); k++)
		i += sent[k] > 4 << 20;
	CHECK(i > 90, "%u streams of %zu recognised", i, ARRAY_SIZE(at));
	larder_seq_destroy(seq);
}

static void test_seq_shapes(void)
{
	struct larder_seq *seq = larder_seq_create();
	u64 run = 0;
	u32 i;

	for (i = 0; i < 500; i++) {	/* often enough to meet in one bucket */
		account(seq, (u64)i << 33, 8, i & 1);
		CHECK(account(seq, ((u64)i << 33) + 8, 8, !(i & 1)) == 8 * 512, "read and write streams are mixed up");
	}
	for (i = 0; i < 1000; i++)
		run = account(seq, 1000000 + i * 256, 256, false);
	CHECK(run == 1000 * 256 * 512);
	CHECK(account(seq, 1000000 + 999 * 256, 256, false) < 4 << 20, "a second reader right behind is not the first");
	now += LARDER_SEQ_AGE + 1;
	CHECK(account(seq, 1000000 + 1000 * 256, 8, false) == 8 * 512, "a stream of long ago goes on");
	/* an overlap counts what is new */
	CHECK(account(seq, 50000000, 64, false) == 64 * 512);
	CHECK(account(seq, 50000032, 64, false) == 96 * 512);
	/* strided: 4 KiB of every 8: what was read, no more */
	for (i = 0; i < 2000; i++)
		run = account(seq, 90000000 + i * 16, 8, false);
	CHECK(run == 2000 * 8 * 512, "%llu", run);
	now += 4 * HZ;
	account(seq, 90000000 + 2000 * 16, 8, false);
	now += 4 * HZ;
	CHECK(account(seq, 90000000 + 2001 * 16, 8, false) == 2002 * 8 * 512, "strides do not keep a stream young");
	/* 4 KiB of every 256: none */
	for (i = 0; i < 2000; i++)
		run = account(seq, 190000000 + i * 512, 8, false);
	CHECK(run < 256 << 10, "%llu", run);
	/* backwards: at most a window */
	for (i = 0; i < 2000; i++) {
		run = account(seq, 290000000 - i * 8, 8, false);
		CHECK(run <= 1 << 20);
	}
	/* a reader that leaves out 200 sectors is known again */
	for (i = 0; i < 400; i++)
		run = account(seq, 390000000 + i * 64 + (i > 100 ? 200 : 0), 64, false);
	CHECK(run == 400 * 64 * 512, "%llu", run);
	check_streams(seq);
	larder_seq_destroy(seq);
}

/* Requests that are cut, their rests too, each accounted when it comes: one run, and no average of pieces. */
static void test_seq_cut(void)
{
	static const u32 sizes[] = { 64, 256, 2048, 16384 };
	u32 k, i, left, piece;
	u64 run, end = 0, at;

	for (k = 0; k < 2 * ARRAY_SIZE(sizes); k++) {
		struct larder_seq *seq = larder_seq_create();
		u64 base = rnd(1ull << 44);
		bool write = k & 1;

		for (i = 0; i < 500; i++) {
			end = base + (i + 1) * sizes[k / 2];
			for (left = sizes[k / 2]; left; left -= piece) {
				run = account(seq, end - left, left, write);
				CHECK(run == (end - base) * 512, "size %u, request %u, %u left: %llu", sizes[k / 2], i, left, run);
				piece = min(left, 1 + (u32)rnd(248));
				if (piece < left)
					larder_seq_cut(seq, end - left + piece, end, write, 1);
				now += rnd(50) == 0;
			}
			check_streams(seq);
		}
		/* what is written again is no stream */
		if (write)
			CHECK(account(seq, end - 8, 8, write) == 8 * 512, "its end, once more");
		larder_seq_destroy(seq);
	}
	/* look-ups of 64 KiB, cut in two: the task's average is of what it reads, once */
	for (k = 0; k < 2; k++) {
		struct larder_seq *seq = larder_seq_create();

		for (i = run = 0; i < 200; i++) {
			at = (u64)i << 32;
			run = account(seq, at, 128, false);
			if (k) {
				larder_seq_cut(seq, at + 64, at + 128, false, 1);
				run = account(seq, at + 64, 64, false);
			}
		}
		CHECK(run == 128 * 512, "%llu", run);
		larder_seq_destroy(seq);
	}
}

/* Writes in order, of so many sectors each, with a flush behind so many of them.  The longest run, in bytes. */
static u64 synced_run(u32 sectors, u32 writes, u64 total)
{
	struct larder_seq *seq = larder_seq_create();
	u64 sector = 1 << 20, most = 0;
	u32 n = 0;

	for (u64 end = sector + total; sector < end; sector += sectors) {
		most = max(most, account(seq, sector, sectors, true));
		check_streams(seq);
		if (++n % writes == 0)
			larder_seq_flushed(seq, 0);
	}
	larder_seq_destroy(seq);
	return most;
}

/* Writes in order of so many sectors each, all with FUA, which are cut into such pieces: only the last of them is waited for. */
static u64 fua_run(u32 sectors, u32 piece, u64 total)
{
	struct larder_seq *seq = larder_seq_create();
	u64 sector = 1 << 20, most = 0;

	for (u64 end = sector + total; sector < end; sector += sectors)
		for (u32 left = sectors; left; left -= min(left, piece)) {
			most = max(most, account(seq, sector + sectors - left, left, true));
			if (left > piece)
				larder_seq_cut(seq, sector + sectors - left + piece, sector + sectors, true, 1);
			else
				larder_seq_flushed(seq, left);
			check_streams(seq);
		}
	larder_seq_destroy(seq);
	return most;
}

/* What is waited for piece by piece is none, however long it is; what is ahead of the flushes, its own or those of others, is one. */
static void test_seq_log(void)
{
	const u64 total = 128 << 11; /* sectors */
	u64 run;

	run = synced_run(16, 1, total);
	CHECK(run == 8 << 10, "a log of 8 KiB each: %llu", run);
	run = synced_run(64, 6, total);
	CHECK(run == 6 * 32 << 10, "one of 192 KiB each: %llu", run);
	run = synced_run(512, 1, total);
	CHECK(run == total << 9, "256 KiB each: %llu", run);
	run = synced_run(2048, 1, total);
	CHECK(run == total << 9, "1 MiB each: %llu", run);
	run = synced_run(16, 1000, total);
	CHECK(run == total << 9, "a flush now and then: %llu", run);
	run = synced_run(256, 3, total);
	CHECK(run == total << 9, "384 KiB each: %llu", run);

	run = fua_run(400, 128, 400 << 9);
	CHECK(run == 200 << 10, "FUA, 200 KiB each, cut: %llu", run);
	run = fua_run(1000, 128, 1000 << 8);
	CHECK(run == 1000ull << 17, "FUA, 500 KiB each, cut: %llu", run);
	run = fua_run(2048, 1016, total);
	CHECK(run == total << 9, "FUA, 1 MiB each, cut into records: %llu", run);
	run = fua_run(2048, 2048, total);
	CHECK(run == total << 9, "FUA, 1 MiB each: %llu", run);
}

/* Reads of a task that reads large files in a row; its writes; a task of small ones; long ago. */
static void test_seq_task_average(void)
{
	struct larder_seq *seq = larder_seq_create();
	u64 run = 0, file;
	u32 i;

	for (file = 0; file < 40; file++)
		for (i = 0; i < 128; i++) {
			run = larder_seq_account(seq, (file << 32) + i * 256, 256, false, 77, now);
			CHECK(run >= (i + 1) * 256 * 512);
			operations++;
			if (!i && file > 4)
				CHECK(run >= 4 << 20, "file %llu: %llu at its start", file, run);
		}
	CHECK(larder_seq_account(seq, 99ull << 32, 8, true, 77, now) == 8 * 512, "a write has an average");
	CHECK(larder_seq_account(seq, 98ull << 32, 8, false, 78, now) == 8 * 512, "another task has it too");
	for (i = 0; i < 40; i++)
		run = larder_seq_account(seq, (100ull + i) << 32, 8, false, 77, now);
	CHECK(run < 1 << 20, "the average does not fall: %llu", run);
	for (file = 0; file < 40; file++)
		for (i = 0; i < 128; i++)
			larder_seq_account(seq, ((200 + file) << 32) + i * 256, 256, false, 77, now);
	now += LARDER_SEQ_AGE + 1;
	CHECK(larder_seq_account(seq, 97ull << 32, 8, false, 77, now) == 8 * 512, "the average does not age");
	/* a scan does not lend its length to look-ups between */
	for (i = 0; i < 2000; i++) {
		larder_seq_account(seq, (500ull << 32) + i * 256, 256, false, 79, now);
		run = larder_seq_account(seq, rnd(1ull << 44), 8, false, 79, now);
		operations += 2;
	}
	CHECK(run < 1 << 20, "%llu", run);
	larder_seq_destroy(seq);
}

/* Anything at all: the invariants hold, and no run exceeds what was sent. */
static void test_seq_anything(void)
{
	struct larder_seq *seq = larder_seq_create();
	u64 at = rnd(1ull << 40), sent = 0, sector, run;
	u32 i, sectors, task;
	bool write;

	for (i = 0; i < 60000; i++) {
		sectors = rnd(8) ? 1 + rnd(256) : 1 + rnd(1 << 20);
		if (rnd(1000) == 0)
			at = rnd(4) ? rnd(1ull << 50) : rnd(3000);
		sector = rnd(3) ? at : at > 3000 ? at + rnd(6000) - 3000 : rnd(6000);
		if (sector == at)
			at += sectors;
		sent += sectors;
		write = rnd(8) == 0;
		task = rnd(100);
		run = larder_seq_account(seq, sector, sectors, write, task, now);
		operations++;
		CHECK(run <= sent * 512);
		if (sectors > 1 && !rnd(4))
			larder_seq_cut(seq, sector + 1 + rnd(sectors - 1), sector + sectors, write, task);
		if (!rnd(10))
			larder_seq_flushed(seq, rnd(2) ? sectors : 0);
		now += rnd(5000) ? 0 : rnd(2000);
		if (i % 16 == 0)
			check_streams(seq);
	}
	larder_seq_destroy(seq);
}

/* ------------------------------------------------------------- heat */
static void test_heat_against_array(void)
{
	enum { SLOTS = 1000 };
	struct larder_heat h;
	u8 model[SLOTS] = { 0 };
	u64 slot, k;
	u32 n, i;

	CHECK(larder_heat_init(&h, SLOTS) == 0);
	for (i = 0; i < 100000; i++, operations++) {
		unsigned int heat = rnd(5);
		bool set = rnd(3) == 0;

		slot = rnd(SLOTS);
		n = rnd(4) ? rnd(3) : rnd(300);		/* over the end as well */
		if (set)
			larder_heat_set(&h, slot, n, heat);
		else
			larder_heat_hit(&h, slot, n);
		for (k = slot; k < SLOTS && k < slot + n; k++)
			model[k] = set ? min(heat, LARDER_HEAT_MAX) : min(model[k] + 1u, LARDER_HEAT_MAX);
		for (k = i % 64 ? max(slot, 64ull) - 64 : 0; k < SLOTS && (i % 64 == 0 || k < slot + n + 64); k++)
			CHECK(larder_heat_get(&h, k) == model[k], "slot %llu", k);
	}
	CHECK(larder_heat_get(&h, SLOTS) == 0 && larder_heat_get(&h, U64_MAX) == 0);
	larder_heat_hit(&h, SLOTS, 1);
	larder_heat_set(&h, U64_MAX - 1, U32_MAX, 3);
	larder_heat_free(&h);
	larder_heat_free(&h);
	CHECK(larder_heat_init(&h, 0) == -EINVAL && larder_heat_init(&h, U64_MAX) == -EINVAL);
	for (i = 0; i < 2; i++) {
		pure_fail_after = i;
		CHECK(larder_heat_init(&h, SLOTS) == -ENOMEM);
		CHECK(!h.warm && !h.hot);
	}
	pure_fail_after = -1;
}

/* A hit on what is hottest, a set to what is there: no store; shown by memory that takes none. */
/* A cache of 32 TiB has 2^33 slots. */
static void test_bits_of_a_large_cache(void)
{
	const u64 slot = BIT_ULL(32) + 5;
	const size_t bytes = slot / 8 + 4096;
	unsigned long *bits = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(bits != MAP_FAILED);
	larder_slot_set(slot, bits);
	CHECK(test_bit(slot, bits) && !test_bit(5, bits));
	larder_slot_set(5, bits);
	larder_slot_clear(slot, bits);
	CHECK(!test_bit(slot, bits) && test_bit(5, bits));
	CHECK(!larder_slot_test_and_set(slot, bits) && test_bit(slot, bits));
	CHECK(larder_slot_test_and_clear(slot, bits) && !test_bit(slot, bits) && test_bit(5, bits));
	munmap(bits, bytes);
}

static void test_heat_is_raised(void)
{
	struct larder_heat h;
	unsigned int from, to;

	CHECK(larder_heat_init(&h, 300) == 0);
	for (from = 0; from <= LARDER_HEAT_MAX; from++)
		for (to = 0; to <= LARDER_HEAT_MAX + 1; to++, operations++) {
			larder_heat_set(&h, 63, 3, from);
			larder_heat_raise(&h, 64, to);
			CHECK(larder_heat_get(&h, 64) == max(from, min(to, LARDER_HEAT_MAX)), "%u to %u", from, to);
			CHECK(larder_heat_get(&h, 63) == from && larder_heat_get(&h, 65) == from, "its neighbours");
		}
	larder_heat_raise(&h, 300, 3);
	larder_heat_raise(&h, U64_MAX, 3);
	larder_heat_free(&h);
}

static void test_heat_writes_only_changes(void)
{
	const size_t bytes = 4096;
	struct larder_heat h = { .slots = bytes * 8 };
	u64 i;

	h.warm = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	h.hot = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(h.warm != MAP_FAILED && h.hot != MAP_FAILED);
	for (i = 0; i < h.slots; i += 4)
		larder_heat_set(&h, i, 4, i / 4 % 4);
	CHECK(!mprotect(h.warm, bytes, PROT_READ) && !mprotect(h.hot, bytes, PROT_READ));
	for (i = 0; i < h.slots; i += 4, operations++) {
		larder_heat_set(&h, i, 4, i / 4 % 4);
		if (i / 4 % 4 == 3)
			larder_heat_hit(&h, i, 4);
		CHECK(larder_heat_get(&h, i) == i / 4 % 4);
	}
	munmap(h.warm, bytes);
	munmap(h.hot, bytes);
}

/* Neighbours in one word, each slot changed by one thread only: none loses a step. */
static struct larder_heat shared_heat;

static void *heat_thread(void *arg)
{
	u64 mine = (u64)(unsigned long)arg, slot;
	u32 round, i;

	for (round = 0; round < 200; round++) {
		for (slot = mine; slot < 256; slot += 4)
			larder_heat_set(&shared_heat, slot, 1, 0);
		for (i = 0; i < 3; i++)
			for (slot = mine; slot < 256; slot += 4) {
				if (larder_heat_get(&shared_heat, slot) != i)
					return (void *)1;
				larder_heat_hit(&shared_heat, slot, 1);
			}
	}
	return NULL;
}

static void test_heat_threads(void)
{
	pthread_t thread[4];
	unsigned long i;
	void *lost;

	CHECK(larder_heat_init(&shared_heat, 256) == 0);
	for (i = 0; i < 4; i++)
		CHECK(!pthread_create(&thread[i], NULL, heat_thread, (void *)i));
	for (i = 0; i < 4; i++) {
		CHECK(!pthread_join(thread[i], &lost));
		CHECK(!lost, "a step of a neighbour was lost");
	}
	operations += 200 * 4 * 256;
	for (i = 0; i < 256; i++)
		CHECK(larder_heat_get(&shared_heat, i) == 3);
	larder_heat_free(&shared_heat);
}

static void test_heat_age(void)
{
	u64 capacity, age;

	for (capacity = 0; capacity < 300; capacity++)
		for (age = 0; age < 30; age++, operations++)
			CHECK(larder_heat_counts(age, capacity) == (age * 20 >= capacity));
	CHECK(larder_heat_counts(1ull << 40, 1ull << 33) && !larder_heat_counts(1ull << 20, 1ull << 33));
	CHECK(larder_heat_counts(U64_MAX, 1000));
}

/* ------------------------------------------------------------- ghost */

/* admit=second-miss */
static void test_ghost_second_miss(void)
{
	struct larder_ghost *g = larder_ghost_create(4096);
	u64 block;

	CHECK(!larder_ghost_missed(g, 1, 100, 8), "the first one");
	CHECK(larder_ghost_missed(g, 1, 107, 1) && larder_ghost_missed(g, 1, 93, 8), "one block of it will do");
	CHECK(larder_ghost_missed(g, 1, 100, 8), "to ask does not take it away");
	CHECK(!larder_ghost_missed(g, 2, 100, 8), "another volume's");
	CHECK(larder_ghost_take(g, 1, 100) && !larder_ghost_take(g, 1, 99), "what was let through is not remembered as missed");
	larder_ghost_add(g, 1, 5000);
	CHECK(larder_ghost_missed(g, 1, 5000, 1), "evicted");
	for (block = 0; block < 100000; block++, operations++)
		larder_ghost_missed(g, 3, block * 64, 1);
	CHECK(!larder_ghost_missed(g, 2, 100, 1), "forgotten");
	larder_ghost_destroy(g);
}

/* Against lists, one per set, of fingerprints: newest first, 32 at most. */
static void test_ghost_against_lists(void)
{
	enum { BLOCKS = 1000, SETS = (BLOCKS + 31) / 32 };
	static struct { u16 print[LARDER_GHOST_WAYS]; u32 n; } list[SETS], *l;
	struct larder_ghost *g = larder_ghost_create(BLOCKS);
	u32 i, k, set, volume;
	u64 block;
	u16 print;

	memset(list, 0, sizeof(list));
	CHECK(larder_ghost_bytes(g) < BLOCKS * 2 + 64 + sizeof(*g) && g->sets == SETS);
	for (i = 0; i < 200000; i++, operations++) {
		volume = rnd(3);
		block = rnd(800);
		set = larder_ghost_hash(g, volume, block, &print);
		CHECK(set < SETS && print);
		l = &list[set];
		for (k = 0; k < l->n && l->print[k] != print; k++)
			;
		if (rnd(2)) {
			larder_ghost_add(g, volume, block);
			if (k == l->n && l->n < LARDER_GHOST_WAYS)
				l->n++;
			k = min(k, LARDER_GHOST_WAYS - 1u);
			memmove(&l->print[1], l->print, k * sizeof(print));
			l->print[0] = print;
		} else {
			CHECK(larder_ghost_take(g, volume, block) == (k < l->n));
			if (k < l->n) {
				l->n--;
				memmove(&l->print[k], &l->print[k + 1], (l->n - k) * sizeof(print));
			}
		}
	}
	larder_ghost_destroy(g);
}

/* The rate of false positives: 1 in 2,048 in full sets; half of it half full. */
static void test_ghost_false_positives(void)
{
	enum { BLOCKS = 64 * 1024, TRIES = 4000000 };
	struct larder_ghost *g = larder_ghost_create(BLOCKS);
	u64 i, found[2] = { 0 };
	double expect, sigma;
	u16 print;
	int round;

	for (round = 0; round < 2; round++) {
		for (i = 0; i < (round ? BLOCKS * 3 : BLOCKS / 2); i++)
			larder_ghost_add(g, i % 5, i);
		for (i = 0; i < TRIES; i++) {		/* looked up, not taken: the sets stay full */
			/* anything; the same blocks of other volumes; neighbours far away */
			u64 block = i % 3 == 0 ? rnd64() | 1ull << 60 : i % 3 == 1 ? i : (1ull << 33) + i * 8;
			const struct larder_ghost_set *set = &g->set[larder_ghost_hash(g, 5 + i % 2, block, &print)];
			unsigned int k = larder_ghost_find(set, print);

			found[round] += k < LARDER_GHOST_WAYS && set->print[k];
		}
		expect = TRIES * (round ? 32.0 : 16.0) / 65535;
		sigma = sqrt(expect);
		CHECK(fabs(found[round] - expect) < 6 * sigma, "%llu, expected %.0f", found[round], expect);
		operations += TRIES;
	}
	CHECK(found[1] * 2000 < TRIES * 1.03, "more than 1 in 2,000");
	printf("# false positives: 1 in %.0f full, 1 in %.0f half full\n", (double)TRIES / found[1], (double)TRIES / found[0]);
	larder_ghost_destroy(g);
}

/* Sequential blocks too must spread: those that fit stay, the oldest go first. */
static void test_ghost_memory(void)
{
	enum { BLOCKS = 1 << 16 };
	static const u64 stride[] = { 1, 8, 512, 1 << 18, 0x100000001ull };
	struct larder_ghost *g;
	u64 i, kept, s;

	for (s = 0; s < ARRAY_SIZE(stride); s++) {
		g = larder_ghost_create(BLOCKS);
		for (i = 0; i < BLOCKS * 3; i++)
			larder_ghost_add(g, 3, i * stride[s]);
		for (kept = 0, i = BLOCKS * 5 / 2; i < BLOCKS * 3; i++)
			kept += larder_ghost_take(g, 3, i * stride[s]);
		CHECK(kept > BLOCKS / 2 * 0.99, "stride %llu: %llu of the newest half", stride[s], kept);
		for (kept = 0, i = 0; i < BLOCKS; i++)
			kept += larder_ghost_take(g, 3, i * stride[s]);
		CHECK(kept < BLOCKS * 0.01, "stride %llu: %llu of the oldest third", stride[s], kept);
		for (kept = 0, i = BLOCKS * 5 / 2; i < BLOCKS * 3; i++)
			kept += larder_ghost_take(g, 3, i * stride[s]);
		CHECK(kept < BLOCKS * 0.01, "taken twice");
		operations += BLOCKS * 5;
		larder_ghost_destroy(g);
	}
	g = larder_ghost_create(0);
	larder_ghost_add(g, 1, 1);
	CHECK(!larder_ghost_take(g, 2, 1) && larder_ghost_take(g, 1, 1));
	larder_ghost_destroy(g);
	CHECK(!larder_ghost_create(U64_MAX) && larder_ghost_bytes(NULL) == 0);
	larder_ghost_destroy(NULL);
	for (i = 0; i < 2; i++) {
		pure_fail_after = i;
		CHECK(!larder_ghost_create(BLOCKS));
	}
	pure_fail_after = -1;
}

static struct larder_ghost *shared_ghost;

static void *ghost_thread(void *arg)
{
	u32 mine = (u32)(unsigned long)arg;
	u64 i, lost = 0;

	for (i = 0; i < 20000; i++) {
		larder_ghost_add(shared_ghost, mine, i);
		lost += !larder_ghost_take(shared_ghost, mine, i);
	}
	return (void *)(unsigned long)lost;
}

/* Four threads in few sets; a block just added is found by its thread, but where another took it for its own. */
static void test_ghost_threads(void)
{
	pthread_t thread[4];
	unsigned long i;
	void *lost;

	shared_ghost = larder_ghost_create(256);
	for (i = 0; i < 4; i++)
		CHECK(!pthread_create(&thread[i], NULL, ghost_thread, (void *)i));
	for (i = 0; i < 4; i++) {
		CHECK(!pthread_join(thread[i], &lost));
		CHECK((unsigned long)lost < 20, "%lu lost", (unsigned long)lost);
	}
	for (i = 0; i < shared_ghost->sets * LARDER_GHOST_WAYS; i++)
		CHECK(!shared_ghost->set[i / LARDER_GHOST_WAYS].print[i % LARDER_GHOST_WAYS], "a fingerprint nobody added");
	operations += 160000;
	larder_ghost_destroy(shared_ghost);
}

/* ------------------------------------------------------------- eviction */
static void test_evict(void)
{
	struct larder_queue_facts f;
	u32 live, dirty, hot, size, i;
	unsigned int heat, after;

	for (i = 0; i < 100000; i++, operations++) {
		enum larder_small_or_main want;
		double percent;

		f.total_segments = 1 + rnd(rnd(2) ? 100 : 1 << 24);
		f.small_segments = rnd(4) ? rnd(f.total_segments) : rnd(f.total_segments / 10 + 1);
		f.main_segments = rnd(3) ? rnd(f.total_segments - f.small_segments + 1) : 0;
		f.small_percent = rnd(20);
		percent = f.small_percent < 5 ? 5 : f.small_percent > 10 ? 10 : f.small_percent;
		want = f.small_segments > f.total_segments * percent / 100 + 1e-9 ? LARDER_QUEUE_SMALL : LARDER_QUEUE_MAIN;
		if (f.main_segments < f.total_segments * percent / 100 - 1e-9)
			want = LARDER_QUEUE_SMALL;
		if (!f.main_segments)
			want = LARDER_QUEUE_SMALL;
		else if (!f.small_segments)
			want = LARDER_QUEUE_MAIN;
		CHECK(larder_evict_queue(&f) == want);
	}
	for (i = 0; i < 100000; i++, operations++) {
		enum larder_fate fate, want = LARDER_FATE_DROP_REST;

		size = rnd(2) ? 512 : 1 + rnd(1 << 15);
		live = rnd(size + 1);
		dirty = rnd(2) ? 0 : rnd(live + 1);
		hot = rnd(live - dirty + 1);
		if (dirty)
			want = LARDER_FATE_WAIT_WRITEBACK;
		else if (hot >= size * 0.75)
			want = LARDER_FATE_RELINK;
		fate = larder_segment_fate(live, dirty, hot, size, rnd(2));
		CHECK(fate == want, "live %u dirty %u hot %u size %u", live, dirty, hot, size);
		CHECK(larder_dead_first(live, size) == (live <= size * 0.25));
	}
	for (heat = 0; heat <= LARDER_HEAT_MAX; heat++) {
		CHECK(larder_keep_worthy(heat, false, &after) == (heat >= 2) && after == (heat >= 2));
		CHECK(larder_keep_worthy(heat, true, &after) == (heat >= 1) && after == (heat ? heat - 1 : 0));
	}
}

/* What is kept is worth it, or lay in a dead segment; a ghost comes from the small queue only; nothing gets hotter by being moved. */
static void test_extent_fate(void)
{
	unsigned int heat, after, worth, i;

	for (i = 0; i < 4 * (LARDER_HEAT_MAX + 1); i++, operations++) {
		bool main = i & 1, dead = i & 2;
		enum larder_extent_fate fate;

		heat = i / 4;
		fate = larder_extent_fate(heat, main, dead, &after);
		CHECK(after <= heat);
		if (dead) {
			CHECK(after == heat && fate == (main ? LARDER_EXTENT_KEEP : LARDER_EXTENT_AGAIN));
			continue;
		}
		CHECK((fate == LARDER_EXTENT_KEEP) == larder_keep_worthy(heat, main, &worth) && after == worth);
		CHECK((fate == LARDER_EXTENT_GHOST) == (!main && heat < 2));
		CHECK(fate != LARDER_EXTENT_AGAIN);
	}
}

/* A segment whose slots are all as hot as can be comes round by itself three times at most. */
static void test_relink_ends(void)
{
	unsigned int heat, after, rounds, slot, n;
	struct larder_heat h;

	CHECK(!larder_heat_init(&h, 512));
	for (n = 0; n < 64; n++) {
		larder_heat_set(&h, 0, 512, LARDER_HEAT_MAX);
		larder_heat_set(&h, n, 1, 0);
		for (rounds = 0; larder_keep_worthy(larder_heat_get(&h, 511), true, &after); rounds++) {
			heat = larder_heat_get(&h, 511);
			larder_heat_cool(&h, 1, 511, true);
			CHECK(larder_heat_get(&h, 511) == heat - 1 && !larder_heat_get(&h, 0) == !n);
			operations++;
		}
		CHECK(rounds == 3 && !larder_heat_get(&h, n));
	}
	larder_heat_set(&h, 0, 512, LARDER_HEAT_MAX);
	larder_heat_cool(&h, 64, 100, false);
	for (slot = 0; slot < 512; slot++)
		CHECK(larder_heat_get(&h, slot) == (slot >= 64 && slot < 164 ? 1 : LARDER_HEAT_MAX));
	larder_heat_free(&h);
}

static void test_heat_overwritten(void)
{
	unsigned int heat, after;

	for (heat = 0; heat <= LARDER_HEAT_MAX; heat++, operations++) {
		CHECK(larder_heat_overwritten(heat, false, false) == heat);
		CHECK(larder_heat_overwritten(heat, true, false) == min(heat + 1, LARDER_HEAT_MAX));
		/* what was in keep stays cached when its turn comes, in whatever queue it is then */
		CHECK(larder_keep_worthy(larder_heat_overwritten(heat, false, true), false, &after));
		CHECK(larder_heat_overwritten(heat, true, true) >= larder_heat_overwritten(heat, false, true));
		CHECK(larder_heat_overwritten(heat, true, true) <= LARDER_HEAT_MAX);
	}
}

/* ------------------------------------------------------------- rate */
#define S 1000000000ull

/* A volume: dirty data comes in at 'inflow', the backing takes at most 'device' sectors/s, in requests of 'request' sectors. */
struct plant {
	struct larder_rate r;
	struct larder_rate_facts f;
	double dirty, device, inflow, free;	/* free: what the device may still take */
	u32 request;
	u64 went;
};

static void plant_step(struct plant *p, u64 dt)
{
	u64 may, n;

	p->f.now_ns += dt;
	p->dirty += p->inflow * dt / S;
	p->free = fmin(p->free + p->device * dt / S, p->device);
	p->f.dirty = p->dirty;
	may = larder_rate_update(&p->r, &p->f);
	operations++;
	/* whole requests: one may go over what is left of the budget */
	while (may && p->free >= p->request && p->dirty >= 1) {
		n = min((u64)p->request, (u64)p->dirty);
		larder_rate_spent(&p->r, n);
		p->dirty -= n;
		p->free -= n;
		p->went += n;
		may = may == LARDER_RATE_FULL ? may : may > n ? may - n : 0;
	}
}

/* Inflow below the device's limit: comes to the target and stays, whatever the interval. */
static void test_rate_converges(void)
{
	static const double flows[] = { 200, 2000, 20000, 150000 };
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(flows); i++)
		for (k = 0; k < 6; k++) {
			struct plant p = { .device = 300000, .inflow = flows[i], .request = k & 1 ? 2048 : 8 };
			double target = flows[i] * (k < 2 ? 100 : 30), least = 1e18, most = 0;
			u64 end, step;

			p.dirty = k % 3 == 0 ? 0 : k % 3 == 1 ? target * 3 : target;
			p.f.target = target;
			p.f.min_rate = 8;
			larder_rate_init(&p.r, 0);
			step = k & 2 ? S / 5 : S;
			for (end = 400 * S; p.f.now_ns < end;)
				plant_step(&p, S / 50 + rnd(step));
			for (end = 800 * S; p.f.now_ns < end;) {
				plant_step(&p, S / 50 + rnd(step));
				least = fmin(least, p.dirty);
				most = fmax(most, p.dirty);
			}
			/* 2 %, and what one request and one interval are */
			CHECK(most < target * 1.02 + p.request + p.inflow, "%g: %g to %g, not %g", flows[i], least, most, target);
			CHECK(least > target * 0.98 - p.request - p.inflow, "%g: %g to %g, not %g", flows[i], least, most, target);
		}
}

/*
 * Ten minutes of more than the device takes, then less: the integral has not run away, dirty data comes down to the target and
 * hardly below.
 */
static void test_rate_no_windup(void)
{
	struct plant p = { .device = 100000, .inflow = 250000, .request = 2048 };
	double target = 10e6, least = 1e18;
	u64 end;

	p.f.target = target;
	p.f.min_rate = 8;
	p.dirty = target;
	larder_rate_init(&p.r, 0);
	for (end = 600 * S; p.f.now_ns < end;)
		plant_step(&p, S / 10);
	CHECK(p.went > 0.98 * 100000 * 570, "the device was not kept busy: %llu", p.went);
	CHECK(p.r.integral >> LARDER_RATE_SCALE_SHIFT < 2 * 250000, "wound up: %lld", p.r.integral >> LARDER_RATE_SCALE_SHIFT);
	p.inflow = 20000;
	for (end = 3000 * S; p.f.now_ns < end;) {
		plant_step(&p, S / 10);
		least = fmin(least, p.dirty);
	}
	CHECK(fabs(p.dirty - target) < 0.02 * target, "%g", p.dirty);
	CHECK(least > 0.75 * target, "fell to %g", least);
	/* the other way: an hour below the target does not keep it from acting when it is exceeded */
	p.inflow = 0;
	p.dirty = target / 2;
	for (end = 6600 * S; p.f.now_ns < end;)
		plant_step(&p, S / 10);
	p.dirty = target * 1.5;
	p.inflow = 20000;
	p.went = 0;
	for (end = 6660 * S; p.f.now_ns < end;)
		plant_step(&p, S / 10);
	CHECK(p.dirty < target * 1.3, "%g after a minute", p.dirty);
}

/* The fixed-point controller is the one of the comment: a double computes it too. */
static void test_rate_against_double(void)
{
	struct larder_rate_facts f = { .target = 5000000, .min_rate = 100, .max_rate = 200000 };
	double integral = 0, rate = 0, error, want;
	struct larder_rate r;
	u32 i, followed = 0;
	u64 dt;

	larder_rate_init(&r, 0);
	for (i = 0; i < 60000; i++, operations++) {
		dt = LARDER_RATE_STEP_NS + rnd(i % 2 ? S : S / 20);
		f.now_ns += dt;
		f.dirty = 5000000 + 800000 * sin(i / 300.0) + rnd(100000);
		larder_rate_update(&r, &f);
		larder_rate_spent(&r, r.budget);	/* all of it: the device can */
		dt = min_t(u64, dt, S);
		error = (double)f.dirty - f.target;
		want = error / 8 + integral;
		if (error > 0 ? want < f.max_rate : want > f.min_rate)
			integral += error * dt / S / 256;
		integral = fmin(fmax(integral, 0), f.max_rate);
		/* near a bound rounding decides whether the integral moves: follow the code there */
		if (fabs(want - f.min_rate) < 50 || fabs(want - f.max_rate) < 50) {
			integral = (double)r.integral / (1 << LARDER_RATE_SCALE_SHIFT);
			followed++;
		}
		rate = fmin(fmax(error / 8 + integral, f.min_rate), f.max_rate);
		CHECK(fabs(rate - r.rate) <= 40 + 0.001 * rate, "step %u: %llu, expected %.0f", i, r.rate, rate);
	}
	CHECK(followed < 600, "compared too seldom: %u", followed);
}

/* Whatever the facts, short of space_short: over no span more than the cap allows. */
static void test_rate_cap(void)
{
	enum { STEPS = 60000 };
	static double line[STEPS];
	unsigned int k, i;

	for (k = 0; k < 3; k++) {
		u64 cap = k == 0 ? 100 : k == 1 ? 20000 : 1000000, spent = 0, may, n, t = 0, over = 0;
		struct larder_rate_facts f = { .max_rate = cap, .target = 100000 };
		double low = 1e18, burst = 0;
		struct larder_rate r;

		larder_rate_init(&r, 0);
		for (i = 0; i < STEPS; i++, operations++) {
			t += rnd(3) ? rnd(S / 200) : rnd(S / 2);
			f.now_ns = t;
			f.dirty = rnd(10000000);
			f.min_rate = rnd(2) ? 8 : rnd(cap * 3);
			f.backing_idle = rnd(4) == 0;
			f.urgent = rnd(4) == 0;
			may = larder_rate_update(&r, &f);
			CHECK(may != LARDER_RATE_FULL && r.rate <= cap);
			while (may) {		/* greedy, and over the budget by up to a request */
				n = 1 + rnd(2048);
				over = max(over, n > may ? n - may : 0);
				larder_rate_spent(&r, n);
				spent += n;
				may = may > n ? may - n : 0;
			}
			/* 'line': what went less what the cap allows since the start; its rise over any span is the burst */
			line[i] = spent - (double)cap * t / S;
			low = fmin(low, line[i]);
			burst = fmax(burst, line[i] - low);
		}
		CHECK(burst <= max(cap, 2048ull) * 2.0 + over, "cap %llu: %.0f sectors above it", cap, burst);
		CHECK(k == 0 || spent > 0.2 * cap * (t / S), "cap %llu: only %llu went", cap, spent);
	}
}

static void test_rate_full_speed_and_floor(void)
{
	struct larder_rate_facts f = { .dirty = 10, .target = 1000000 };
	u64 may, went = 0, i;
	struct larder_rate r;

	larder_rate_init(&r, 0);
	/* far below the target, no minimum asked for: still a little, for ever; asked often, or seldom */
	for (i = 0; i < 100000; i++, operations++) {
		f.now_ns += i < 50000 ? S / 1000 : S / 50;
		may = larder_rate_update(&r, &f);
		CHECK(may != LARDER_RATE_FULL);
		went += may;
		larder_rate_spent(&r, may);
	}
	CHECK(went >= LARDER_RATE_MIN * 1050 - 16 && went <= LARDER_RATE_MIN * 1050 + LARDER_RATE_REQUEST, "%llu", went);
	f.backing_idle = true;
	CHECK(larder_rate_update(&r, &f) == LARDER_RATE_FULL, "idle");
	larder_rate_spent(&r, 1ull << 40);
	f.backing_idle = false;
	f.now_ns += S;
	CHECK(larder_rate_update(&r, &f) >= LARDER_RATE_MIN, "what went at full speed is not a debt");
	f.urgent = true;
	CHECK(larder_rate_update(&r, &f) == LARDER_RATE_FULL, "urgent");
	f.max_rate = 5000;
	for (i = 0; i < 10; i++) {
		f.now_ns += S;
		may = larder_rate_update(&r, &f);
		CHECK(may <= 5000, "a cap holds when urgent");
		larder_rate_spent(&r, may);
	}
	CHECK(may == 5000, "urgent goes as fast as the cap allows: %llu", may);
	f.space_short = true;
	CHECK(larder_rate_update(&r, &f) == LARDER_RATE_FULL, "short of space");
}

/* Any facts, time backwards too: the answer is bounded and nothing overflows (UBSan). */
static void test_rate_anything(void)
{
	struct larder_rate_facts f = { 0 };
	struct larder_rate r;
	u64 may, least, most;
	u32 i;

	larder_rate_init(&r, 0);
	for (i = 0; i < 100000; i++, operations++) {
		f.dirty = rnd64() >> rnd(64);
		f.target = rnd64() >> rnd(64);
		f.min_rate = rnd64() >> rnd(64);
		f.max_rate = rnd(2) ? 0 : rnd64() >> rnd(64);
		f.backing_idle = rnd(8) == 0;
		f.urgent = rnd(8) == 0;
		f.space_short = rnd(8) == 0;
		f.now_ns = rnd(100) ? f.now_ns + (rnd64() >> (30 + rnd(34))) : rnd64();
		may = larder_rate_update(&r, &f);
		if (f.space_short || ((f.backing_idle || f.urgent) && !f.max_rate)) {
			CHECK(may == LARDER_RATE_FULL);
		} else {
			most = f.max_rate ? min(f.max_rate, LARDER_RATE_MAX) : LARDER_RATE_MAX;
			least = min(max(f.min_rate, 8ull), most);
			CHECK(r.rate <= most && r.rate >= least);
			CHECK(may <= max(r.rate, 2048ull) && (!r.budget || !r.debt));
		}
		larder_rate_spent(&r, rnd(3) ? rnd(may < 1000000 ? may + 1 : 1000000) : rnd(1 << 20));
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("a sequential stream in order", test_seq_in_order);
	run_test("a sequential stream in disorder", test_seq_shuffled);
	run_test("streams against a list of 128", test_seq_against_list);
	run_test("random requests are no stream", test_seq_random_is_none);
	run_test("a hundred streams and noise", test_seq_in_noise);
	run_test("shapes of streams", test_seq_shapes);
	run_test("requests that are cut", test_seq_cut);
	run_test("a log that is waited for", test_seq_log);
	run_test("average runs of tasks", test_seq_task_average);
	run_test("streams, anything", test_seq_anything);
	run_test("heat against an array", test_heat_against_array);
	run_test("heat writes changes only", test_heat_writes_only_changes);
	run_test("heat of one slot is raised", test_heat_is_raised);
	run_test("bits of slots beyond 2^32", test_bits_of_a_large_cache);
	run_test("heat, four threads", test_heat_threads);
	run_test("heat counts after 5 %", test_heat_age);
	run_test("heat of what is written over", test_heat_overwritten);
	run_test("ghost against lists", test_ghost_against_lists);
	run_test("ghost: a second miss", test_ghost_second_miss);
	run_test("ghost, false positives", test_ghost_false_positives);
	run_test("ghost, what it remembers", test_ghost_memory);
	run_test("ghost, four threads", test_ghost_threads);
	run_test("eviction", test_evict);
	run_test("what becomes of an extent", test_extent_fate);
	run_test("relinks end", test_relink_ends);
	run_test("writeback comes to its target", test_rate_converges);
	run_test("writeback does not wind up", test_rate_no_windup);
	run_test("writeback against a controller in floating point", test_rate_against_double);
	run_test("writeback below its cap", test_rate_cap);
	run_test("writeback at full speed, and never none", test_rate_full_speed_and_floor);
	run_test("writeback, anything", test_rate_anything);
	printf("policy: %u tests passed, %llu operations, seed %llu\n", tests, operations, seed);
	return 0;
}
