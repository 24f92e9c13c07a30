// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tests of kernel/index.c, included here as it is.
 *
 * The model is an array of {cache, state} per sector for a few areas of a volume of 3 TiB and a bit: 64 MiB at its start, the borders of a GiB and of a
 * block of 256 GiB, and its ragged end.  Whatever the index reports, by return values and by change(), is compared with it.
 *
 *   test_index [OPERATIONS [SEED]]     everything: by default 1,200,000 random operations and seed 1
 *   test_index threads [OPERATIONS]    readers and writers in threads only (this is what the TSan build runs)
 *   test_index bench [EXTENTS]         cost per operation and memory per extent; build without sanitizers for it
 */
#include "../../kernel/pure.h"

/*
 * Between any two loads of a reader something else may happen: a test arms the n-th such point of its thread, and what it wants to happen does.
 */
static __thread unsigned int point_armed;
static void point_reached(void);
static inline void point(void)
{
	if (unlikely(point_armed) && !--point_armed)
		point_reached();
}
#undef READ_ONCE
#define READ_ONCE(x) ({ __auto_type once_v = __atomic_load_n(&(x), __ATOMIC_RELAXED); point(); once_v; })
#undef rcu_dereference
#define rcu_dereference(p) ({ \
	pure_check(pure_rcu_depth, "rcu_dereference outside"); \
	__auto_type deref_p = __atomic_load_n(&(p), __ATOMIC_ACQUIRE); \
	point(); \
	deref_p; })

#include "../../kernel/index.c"

#include <linux/perf_event.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REGION LARDER_REGION_SECTORS
#define GIB (1ull << 21)

static unsigned int test_number, test_failures;
static unsigned long operations;
static u64 rng_state = 1;
static bool test_ok;

static u64 rng(void)
{
	u64 z = (rng_state += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static u32 below(u32 n) { return (u32)(rng() >> 33) % n; }

static void fail(int line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(int line, const char *fmt, ...)
{
	static unsigned int lines;
	va_list ap;

	test_ok = false;
	if (lines++ > 20)
		return;
	printf("# line %d, operation %lu: ", line, operations);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

#define expect(c) do { if (!(c)) fail(__LINE__, "%s", #c); } while (0)
#define expect_eq(a, b) do { \
	long long eq_a = (long long)(a), eq_b = (long long)(b); \
	if (eq_a != eq_b) \
		fail(__LINE__, "%s is %lld, %s is %lld", #a, eq_a, #b, eq_b); \
} while (0)

static void run(const char *name, void (*fn)(void))
{
	test_ok = true;
	fn();
	test_number++;
	test_failures += !test_ok;
	printf("%sok %u %s\n", test_ok ? "" : "not ", test_number, name);
	fflush(stdout);
}

/* ------------------------------------------------------------------ model */

struct cell {
	u64 cache;
	u8 state;
};

#define VOLUME (3ull * 1024 * GIB + 5 * GIB + 17 * REGION + 1234)

static const struct { u64 region; u32 regions; } areas[] = {
	{ 0, 32 },					/* 64 MiB */
	{ 511, 3 },					/* the border of the first GiB */
	{ 256 * 512 - 2, 4 },				/* of the first block */
	{ 777 * 512 + 100, 1 },				/* alone in its GiB */
	{ VOLUME / REGION - 1, 2 },			/* the end: a whole region and a part */
};
#define NR_AREAS ARRAY_SIZE(areas)
#define NR_REGIONS (32 + 3 + 4 + 1 + 2)

static struct cell cells[NR_REGIONS][REGION];
static u64 region_number[NR_REGIONS];

static void model_clear(void)
{
	u32 i, k, n = 0;

	memset(cells, 0, sizeof(cells));
	for (i = 0; i < NR_AREAS; i++)
		for (k = 0; k < areas[i].regions; k++)
			region_number[n++] = areas[i].region + k;
}

static u32 region_limit(u32 r)
{
	return (u32)min_t(u64, REGION, VOLUME - region_number[r] * REGION);
}

static int region_slot(u64 region)
{
	u32 r;

	for (r = 0; r < NR_REGIONS; r++)
		if (region_number[r] == region)
			return (int)r;
	return -1;
}

static bool is_zero(u8 state) { return state == LARDER_ST_ZERO || state == LARDER_ST_ZERO_CLEANING; }

static bool cell_continues(const struct cell *x, const struct cell *y)
{
	return x->state == y->state && y->cache == x->cache + (x->state && !is_zero(x->state));
}

/* The region's extents as they must be: maximal.  Packed by hand, not by the code under test. */
static u32 model_extents(u32 r, u64 *out)
{
	u32 i = 0, from, n = 0;

	while (i < REGION) {
		from = i++;
		while (i < REGION && cell_continues(&cells[r][i - 1], &cells[r][i]))
			i++;
		if (!cells[r][from].state)
			continue;
		if (out)
			out[n] = from | (u64)(i - from - 1) << 12 | (u64)cells[r][from].state << 24 | cells[r][from].cache << 28;
		n++;
	}
	return n;
}

/* ------------------------------------------------------------------ change() */

static struct {
	s64 sectors[6];			/* by state, as the callbacks and the callers' own sums have it */
	u32 slot, from, to;		/* of the operation under way */
	u32 reported;			/* sectors */
	u64 next;			/* pieces come in order */
	bool store, loading, armed;
	u64 to_cache;
	u8 to_state;
} seen;

static char by_mark;		/* what do_store() gives the index for change() */

static u32 lows;		/* how often the index asked for its reserve to be filled up */

static void low(void *ctx)
{
	expect(ctx == &seen);
	lows++;
}

static void changed(void *ctx, const struct larder_map *was, u8 now, void *by)
{
	u64 base = region_number[seen.slot] * REGION;
	u32 i, a = (u32)(was->sector - base);
	bool same;

	expect(ctx == &seen);
	expect(by == (seen.store ? &by_mark : NULL));
	expect(seen.armed);
	expect(was->state != LARDER_ST_NONE);
	expect(was->len > 0);
	expect(was->sector >= base + seen.from && was->sector + was->len <= base + seen.to);
	if (!test_ok)
		return;
	expect(was->sector >= seen.next);
	seen.next = was->sector + was->len;
	seen.reported += was->len;
	if (seen.loading) {
		expect_eq(now, was->state);
		seen.sectors[now] += was->len;
		return;
	}
	for (i = 0; i < was->len; i++) {
		struct cell *c = &cells[seen.slot][a + i];

		expect_eq(c->state, was->state);
		expect_eq(c->cache, was->cache + (is_zero(was->state) ? 0 : i));
	}
	same = !seen.store && seen.to_state && is_zero(seen.to_state) == is_zero(was->state) &&
	       was->cache == seen.to_cache + (is_zero(was->state) ? 0 : a - seen.from);
	expect_eq(now, same ? seen.to_state : LARDER_ST_NONE);
	expect(now != was->state);
	seen.sectors[was->state] -= was->len;
	if (now)
		seen.sectors[now] += was->len;
}

static void arm(u32 slot, u32 from, u32 to, bool store, u64 to_cache, u8 to_state)
{
	seen.slot = slot;
	seen.from = from;
	seen.to = to;
	seen.store = store;
	seen.to_cache = to_cache;
	seen.to_state = to_state;
	seen.reported = 0;
	seen.next = 0;
	seen.armed = true;
}

/* ------------------------------------------------------------------ checks against the model */

static struct larder_index *idx;
static long base_allocated;		/* before the index was made */

static void start(u64 sectors)
{
	expect_eq(larder_index_init(), 0);
	base_allocated = pure_allocated;
	memset(&seen, 0, sizeof(seen));
	model_clear();
	idx = larder_index_create(sectors, changed, low, &seen);
	expect(idx);
}

static void stop(void)
{
	larder_index_destroy(idx);
	rcu_barrier();
	expect_eq(pure_allocated, base_allocated);
	larder_index_exit();
	expect_eq(pure_live, 0);
	idx = NULL;
}

static void check_region_equal(u32 r, int line)
{
	static u64 want[REGION], got[REGION];
	u64 at = region_number[r];
	u32 i, n = model_extents(r, want), m;

	for (i = 0; i < n; i++) {
		u32 state = want[i] >> 24 & 15;

		if (state == LARDER_ST_CLEANING || state == LARDER_ST_ZERO_CLEANING)
			want[i] -= 1ull << 24;
	}
	m = larder_index_copy_region(idx, &at, got);
	if (!n) {
		if (m && at == region_number[r])
			fail(line, "region %llu: %u extents, none expected", at, m);
		if (m)
			expect(at > region_number[r]);
		return;
	}
	if (m != n || at != region_number[r] || memcmp(want, got, n * sizeof(u64)))
		fail(line, "region %llu: %u extents (of region %llu), %u expected, or others", region_number[r], m, at, n);
}

static void check_sums(void)
{
	s64 sums[6] = { 0 };
	u64 extents = 0;
	u32 r, i;

	for (r = 0; r < NR_REGIONS; r++) {
		extents += model_extents(r, NULL);
		for (i = 0; i < REGION; i++)
			sums[cells[r][i].state]++;
	}
	for (i = 1; i < 6; i++)
		expect_eq(seen.sectors[i], sums[i]);
	expect_eq(larder_index_extents(idx), extents);
	rcu_barrier();
	expect_eq(larder_index_bytes(idx), pure_allocated - base_allocated);
	expect_eq(larder_index_base_bytes(idx->sectors), idx->base_bytes);
}

/* The counters that readers use to skip must be right, too. */
static void check_inside(void)
{
	u64 g, i, k;

	for (g = 0; g < DIV_ROUND_UP_ULL(VOLUME, GIB); g++) {
		struct larder_gib *gib = &idx->root->block[g / GIBS_PER_BLOCK]->gib[g % GIBS_PER_BLOCK];
		u32 regions = 0, dirty = 0, d;

		for (i = 0; gib->page && i < REGIONS_PER_GIB; i++) {
			struct larder_region *r = gib->page->region[i];

			if (!r)
				continue;
			regions++;
			expect(head_count(r->head) > 0 && head_count(r->head) <= larder_caps[head_class(r->head)]);
			for (k = d = 0; k < head_count(r->head); k++)
				d += larder_extent_state(r->extents[k]) >= LARDER_ST_DIRTY;
			expect_eq(head_dirty(r->head), d);
			dirty += d > 0;
		}
		expect_eq(gib->regions, regions);
		expect_eq(gib->dirty, dirty);
		expect(!gib->page == !regions);
	}
}

static void check_all(void)
{
	u32 r;

	for (r = 0; r < NR_REGIONS; r++)
		check_region_equal(r, __LINE__);
	check_sums();
	check_inside();
}

/* One look-up: the piece is as in the model, and does not end before it must. */
static void check_lookup(u32 r, u32 at, u32 len)
{
	u64 base = region_number[r] * REGION;
	u32 limit = min_t(u32, REGION, len > REGION ? REGION : at + len), i;
	const struct cell *c = &cells[r][at];
	struct larder_map m;

	larder_index_lookup(idx, base + at, len, &m);
	expect_eq(m.sector, base + at);
	expect_eq(m.state, c->state);
	expect_eq(m.cache, c->cache);
	for (i = at + 1; i < limit && cell_continues(&cells[r][i - 1], &cells[r][i]); i++)
		;
	expect_eq(m.len, i - at);
}

/* larder_index_next() over whole areas, or a part of a region. */
static void check_next(void)
{
	u32 mask = 1 + below(63), area = below(NR_AREAS), i, slot, from, len, limit;
	u64 sector, end;
	struct larder_map m;
	bool got;

	mask &= ~1u;
	for (slot = 0, i = 0; i < area; i++)
		slot += areas[i].regions;
	if (below(4)) {
		slot += below(areas[area].regions);
		limit = region_limit(slot);
		from = below(limit);
		len = 1 + below(limit - from);
	} else {
		from = below(region_limit(slot));
		len = (areas[area].regions - 1) * REGION + region_limit(slot + areas[area].regions - 1) - from;
		if (areas[area].regions == 1)
			len = region_limit(slot) - from;
	}
	sector = region_number[slot] * REGION + from;
	end = sector + len;
	got = larder_index_next(idx, sector, end, mask, &m);
	for (i = from; i < from + len && !((mask >> cells[slot + i / REGION][i % REGION].state) & 1); i++)
		;
	if (i == from + len) {
		expect(!got);
		return;
	}
	expect(got);
	if (!got)
		return;
	expect_eq(m.sector, region_number[slot] * REGION + i);
	expect_eq(m.state, cells[slot + i / REGION][i % REGION].state);
	expect_eq(m.cache, cells[slot + i / REGION][i % REGION].cache);
	for (limit = i++; i < from + len && i % REGION &&
	     cell_continues(&cells[slot + (i - 1) / REGION][(i - 1) % REGION], &cells[slot + i / REGION][i % REGION]); i++)
		;
	expect_eq(m.len, i - limit);
}

/* ------------------------------------------------------------------ operations on both */

static u32 model_mapped(u32 r, u32 a, u32 b)
{
	u32 n = 0;

	for (; a < b; a++)
		n += cells[r][a].state != 0;
	return n;
}

static void model_store(u32 r, u32 a, u32 b, u64 cache, u8 state)
{
	u32 i;

	for (i = a; i < b; i++) {
		cells[r][i].state = state;
		cells[r][i].cache = state ? cache + (is_zero(state) ? 0 : i - a) : 0;
	}
}

/* Returns what the index said. */
static int do_store(u32 r, u32 a, u32 len, u64 cache, u8 state)
{
	u32 mapped = model_mapped(r, a, a + len), before, after;
	int ret;

	operations++;
	arm(r, a, a + len, true, cache, state);
	ret = larder_index_store(idx, region_number[r] * REGION + a, len, cache, state, &by_mark);
	seen.armed = false;
	if (ret) {
		static struct cell keep[REGION];

		expect_eq(ret, -ENOMEM);
		expect_eq(seen.reported, 0);
		check_region_equal(r, __LINE__);
		/* it may fail only where the region then holds more extents than before */
		memcpy(keep, cells[r], sizeof(keep));
		before = model_extents(r, NULL);
		model_store(r, a, a + len, cache, state);
		after = model_extents(r, NULL);
		memcpy(cells[r], keep, sizeof(keep));
		expect(after > before);
		return ret;
	}
	expect_eq(seen.reported, mapped);
	model_store(r, a, a + len, cache, state);
	if (state)
		seen.sectors[state] += len;
	return 0;
}

static int do_change(u32 r, u32 a, u32 len, u64 cache, u32 from, u64 to_cache, u8 to_state)
{
	static struct cell want[REGION];
	u32 i, n = 0, moved = 0;
	int ret;

	operations++;
	memcpy(want, cells[r], sizeof(want));
	for (i = a; i < a + len; i++) {
		struct cell *c = &want[i], was = *c;

		if (!c->state || !((from >> c->state) & 1) || c->cache != cache + (is_zero(c->state) ? 0 : i - a))
			continue;
		c->state = to_state;
		c->cache = to_state ? to_cache + (is_zero(to_state) ? 0 : i - a) : 0;
		if (c->state == was.state && c->cache == was.cache)
			continue;
		n++;
		moved += to_state && (c->cache != was.cache || is_zero(c->state) != is_zero(was.state));
	}
	arm(r, a, a + len, false, to_cache, to_state);
	ret = larder_index_change(idx, region_number[r] * REGION + a, len, cache, from, to_cache, to_state);
	seen.armed = false;
	if (ret < 0) {
		expect_eq(ret, -ENOMEM);
		expect_eq(seen.reported, 0);
		check_region_equal(r, __LINE__);
		return ret;
	}
	expect_eq(ret, n);
	expect_eq(seen.reported, n);
	memcpy(cells[r], want, sizeof(want));
	if (to_state)
		seen.sectors[to_state] += moved;
	return ret;
}

static void pick_range(u32 r, u32 *a, u32 *len)
{
	u32 limit = region_limit(r);

	switch (below(8)) {
	case 0:			/* anything */
		*a = below(limit);
		*len = 1 + below(limit - *a);
		break;
	case 1:			/* few sectors */
	case 2:
		*a = below(limit);
		*len = min(1 + below(12), limit - *a);
		break;
	case 3:			/* an extent that is there, or a hole, exactly */
	case 4:
		*a = below(limit);
		while (*a && cell_continues(&cells[r][*a - 1], &cells[r][*a]))
			--*a;
		for (*len = 1; *a + *len < limit && cell_continues(&cells[r][*a + *len - 1], &cells[r][*a + *len]); ++*len)
			;
		break;
	default:		/* 4 KiB blocks */
		*a = below(limit) & ~7u;
		*len = min(8 * (1 + below(4)), limit - *a);
	}
}

static u64 pick_cache(u32 r, u32 a, u8 state)
{
	u64 c;

	if (is_zero(state))
		return below(3);
	switch (below(4)) {
	case 0:			/* goes on where the neighbour ends */
		if (a && cells[r][a - 1].state && !is_zero(cells[r][a - 1].state))
			return cells[r][a - 1].cache + 1;
		fallthrough;
	case 1:			/* one place for everything: merges as it fills up */
		return (u64)r * REGION + a;
	case 2:
		c = 0xfffffffffull - REGION - below(100);
		return c;
	default:
		return rng() >> 29;
	}
}

/* Small classes stay small if removal is as likely as growth; each region has a taste of its own. */
static void random_write(bool failing)
{
	u32 r = below(NR_REGIONS), a, len;
	bool sparse = r % 4 == 1;
	u64 cache, to;
	u8 state;
	int ret, tries;

	pick_range(r, &a, &len);
	state = (u8)(1 + below(5));
	if (below(100) < (sparse ? 55 : 12))
		state = LARDER_ST_NONE;
	if (below(3)) {
		cache = pick_cache(r, a, state);
		for (tries = 0; (ret = do_store(r, a, len, cache, state)) == -ENOMEM && tries < 3; tries++) {
			expect(failing);
			expect_eq(larder_index_refill(idx), 0);
		}
	} else {
		u32 from = 1 + below(63);

		cache = cells[r][a].state && below(8) ? cells[r][a].cache : pick_cache(r, a, state);
		to = below(3) ? cache : pick_cache(r, a, state);
		for (tries = 0; (ret = do_change(r, a, len, cache, from, to, state)) == -ENOMEM && tries < 3; tries++) {
			expect(failing);
			expect_eq(larder_index_refill(idx), 0);
		}
	}
	expect(ret >= 0);
}

static void random_read(void)
{
	u32 r = below(NR_REGIONS), a = below(region_limit(r));

	operations++;
	switch (below(4)) {
	case 0:
		check_next();
		break;
	case 1:
		check_lookup(r, a, below(8) ? 1 + below(REGION) : U32_MAX - below(2));
		break;
	default:
		check_lookup(r, a, 1 + below(64));
	}
}

static unsigned long goal = 1200000;

static void test_random(void)
{
	unsigned long end = operations + goal, n = 0;

	start(VOLUME);
	while (operations < end && test_ok) {
		if (below(5) < 3)
			random_write(false);
		else
			random_read();
		if (++n % 64 == 0)
			check_region_equal(below(NR_REGIONS), __LINE__);
		if (n % 20000 == 0)
			check_all();
	}
	check_all();
	stop();
}

/* Allocations fail now and then: nothing has changed, and after a refill it goes on.  Refills that fail are harmless. */
static void test_random_failing(void)
{
	unsigned long end = operations + goal / 6, n = 0, failed = pure_failed;

	start(VOLUME);
	while (operations < end && test_ok) {
		pure_fail_rate = 1 + below(3);
		pure_fail_mask = PURE_FAIL_ATOMIC;
		if (below(50) == 0) {
			pure_fail_mask = PURE_FAIL_SLEEPING;
			larder_index_refill(idx);
			pure_fail_mask = PURE_FAIL_ATOMIC;
		}
		random_write(true);
		pure_fail_rate = 0;
		if (below(3) == 0)
			random_read();
		if (++n % 20000 == 0)
			check_all();
	}
	expect(pure_failed - failed > 1000 || !test_ok);
	check_all();
	stop();
}

/* ------------------------------------------------------------------ one thing at a time */

static void test_empty(void)
{
	static u64 copy[REGION];
	struct larder_map m;
	u64 at = 0;

	start(VOLUME);
	larder_index_lookup(idx, 5, 3, &m);
	expect(m.sector == 5 && m.len == 3 && m.state == LARDER_ST_NONE && m.cache == 0);
	larder_index_lookup(idx, REGION - 2, 100, &m);
	expect_eq(m.len, 2);
	larder_index_lookup(idx, VOLUME + 4096 * GIB, 1, &m);	/* behind the end is a hole, not an access */
	expect_eq(m.state, LARDER_ST_NONE);
	expect(!larder_index_next(idx, 0, U64_MAX, ~0u, &m));
	expect_eq(larder_index_copy_region(idx, &at, copy), 0);
	expect_eq(larder_index_extents(idx), 0);
	expect_eq(do_store(0, 0, 1, 0, LARDER_ST_NONE), 0);
	expect_eq(do_change(0, 0, 1, 0, ~0u, 0, LARDER_ST_CLEAN), 0);
	check_all();
	stop();
}

static void test_split_merge(void)
{
	start(VOLUME);
	do_store(0, 0, 2048, 10000, LARDER_ST_CLEAN);
	expect_eq(larder_index_extents(idx), 1);
	do_store(0, 1000, 8, 500000, LARDER_ST_DIRTY);			/* into the middle */
	expect_eq(larder_index_extents(idx), 3);
	do_store(0, 1000, 8, 11000, LARDER_ST_CLEAN);			/* back: one again */
	expect_eq(larder_index_extents(idx), 1);
	do_store(0, 1000, 8, 11000, LARDER_ST_DIRTY);
	expect_eq(larder_index_extents(idx), 3);
	expect_eq(do_change(0, 1000, 8, 11000, 1u << LARDER_ST_DIRTY, 11000, LARDER_ST_CLEAN), 8);
	expect_eq(larder_index_extents(idx), 1);
	expect_eq(do_change(0, 100, 8, 10100, 1u << LARDER_ST_CLEAN, 10100, LARDER_ST_NONE), 8);
	expect_eq(larder_index_extents(idx), 2);
	do_store(0, 2048, 2048, 12048, LARDER_ST_CLEAN);		/* up to the region's end */
	expect_eq(larder_index_extents(idx), 2);
	do_store(1, 0, 8, 14096, LARDER_ST_CLEAN);			/* the next region does not merge with it */
	expect_eq(larder_index_extents(idx), 3);
	do_store(0, 0, REGION, 7, LARDER_ST_ZERO);
	expect_eq(larder_index_extents(idx), 2);
	do_store(0, 8, 8, 8, LARDER_ST_ZERO);				/* another serial */
	expect_eq(larder_index_extents(idx), 4);
	do_store(0, 8, 8, 7, LARDER_ST_ZERO);
	expect_eq(larder_index_extents(idx), 2);
	expect_eq(do_change(0, 16, 100, 7, 1u << LARDER_ST_ZERO, 7, LARDER_ST_ZERO_CLEANING), 100);
	expect_eq(larder_index_extents(idx), 4);
	expect_eq(do_change(0, 0, REGION, 7, 1u << LARDER_ST_ZERO | 1u << LARDER_ST_ZERO_CLEANING, 7, LARDER_ST_NONE), REGION);
	expect_eq(larder_index_extents(idx), 1);
	do_store(1, 0, 8, 0, LARDER_ST_NONE);
	expect_eq(larder_index_extents(idx), 0);
	check_all();
	stop();
}

/* Every sector on its own: 4,096 extents, and then no memory at all for what needs none. */
static void test_full_region(void)
{
	u32 i;

	start(VOLUME);
	for (i = 0; i < REGION; i++) {
		u32 a = i * 1031 % REGION;

		if (do_store(0, a, 1, 2ull * a, LARDER_ST_DIRTY)) {
			expect_eq(larder_index_refill(idx), 0);
			expect_eq(do_store(0, a, 1, 2ull * a, LARDER_ST_DIRTY), 0);
		}
	}
	expect_eq(larder_index_extents(idx), REGION);
	check_region_equal(0, __LINE__);
	pure_fail_rate = 1;
	for (i = 0; i < REGION; i += 3)
		expect_eq(do_store(0, i, 1, 3ull * i + 100000, LARDER_ST_CLEAN), 0);
	expect_eq(do_change(0, 1, 1, 2, 1u << LARDER_ST_DIRTY, 2, LARDER_ST_CLEANING), 1);
	for (i = 0; i < REGION; i += 2)
		expect_eq(do_store(0, i, 1, 0, LARDER_ST_NONE), 0);
	check_region_equal(0, __LINE__);
	expect_eq(do_store(0, 0, REGION, 0, LARDER_ST_ZERO), 0);
	expect_eq(larder_index_extents(idx), 1);
	expect_eq(do_store(0, 0, REGION, 0, LARDER_ST_NONE), 0);
	pure_fail_rate = 0;
	check_all();
	stop();
}

/* No allocation works: the reserve serves so many, then -ENOMEM; a refill gives them arrays of their size and fills it again. */
static void test_reserve(void)
{
	u32 i, served = 0;
	void *piece;
	u64 bytes;
	s64 large;

	start(VOLUME);
	expect_eq(do_store(0, 0, 8, 0, LARDER_ST_DIRTY), 0);		/* the page of the first GiB */
	for (i = 0; i < 12; i++)
		expect_eq(do_store(20, 16 * i, 8, 1000 * i, LARDER_ST_DIRTY), 0);
	bytes = larder_index_bytes(idx);
	pure_fail_rate = 1;
	pure_fail_mask = PURE_FAIL_ATOMIC;
	for (i = 12; i < 16; i++)		/* grows beyond what the small reserve holds: one large array */
		expect_eq(do_store(20, 16 * i, 8, 1000 * i, LARDER_ST_DIRTY), 0);
	large = (s64)idx->stock.count[STOCK_LARGE];
	expect_eq(large, larder_stock_goal[STOCK_LARGE] - 1);
	for (i = 0; i < 64 && !do_store(0, 64 + 16 * i, 8, 100000 + 1000 * i, LARDER_ST_DIRTY); i++)
		served++;
	expect_eq(served, 64);			/* all from one array */
	for (i = 1, served = 0; i < 20; i++)
		served += !do_store(i, 0, 8, 0, LARDER_ST_CLEAN);
	expect_eq(served, 19);
	expect_eq(larder_index_refill(idx), 0);
	expect_eq(idx->stock.nr_loans, 0);
	for (i = 0; i < NR_STOCKS; i++)
		expect_eq(idx->stock.count[i], larder_stock_goal[i]);
	expect(larder_index_bytes(idx) < bytes + 19 * class_bytes(CLASS_SMALL) + class_bytes(class_for(65)) + class_bytes(class_for(16)));
	/* pages: as many as there are, and not one more */
	for (i = 0; i < larder_stock_goal[STOCK_PAGE]; i++)
		expect_eq(larder_index_store(idx, (100 + i) * GIB, 8, 0, LARDER_ST_CLEAN, NULL), 0);
	expect_eq(larder_index_store(idx, 200 * GIB, 8, 0, LARDER_ST_CLEAN, NULL), -ENOMEM);
	expect_eq(idx->root->block[0]->gib[200].page == NULL, 1);
	pure_fail_rate = 0;
	for (i = 0; (piece = stock_pop(&idx->stock, STOCK_SMALL)); i++)
		stock_free(STOCK_SMALL, piece);
	while ((piece = stock_pop(&idx->stock, STOCK_LARGE)))
		stock_free(STOCK_LARGE, piece);
	pure_fail_after = 1;		/* a page, but no array */
	bytes = larder_index_bytes(idx);
	served = pure_live;
	expect_eq(larder_index_store(idx, 200 * GIB, 8, 0, LARDER_ST_CLEAN, NULL), -ENOMEM);
	expect_eq(larder_index_bytes(idx), bytes);
	expect_eq(pure_live, served);
	pure_fail_rate = 1;
	pure_fail_mask = PURE_FAIL_SLEEPING | PURE_FAIL_ATOMIC;
	expect_eq(larder_index_refill(idx), -ENOMEM);
	pure_fail_rate = 0;
	pure_fail_mask = PURE_FAIL_SLEEPING | PURE_FAIL_ATOMIC;
	expect_eq(larder_index_refill(idx), 0);
	expect_eq(larder_index_store(idx, 200 * GIB, 8, 0, LARDER_ST_CLEAN, NULL), 0);
	rcu_barrier();
	expect_eq(larder_index_bytes(idx), pure_allocated - base_allocated);
	check_inside();
	stop();
}

/*
 * It is asked for when half of a kind is gone, while there is as much left; and those on whom reclaim may wait fill it up where allocations that may reclaim
 * do not come back.
 */
static void test_reserve_low(void)
{
	u32 i, half = larder_stock_goal[STOCK_PAGE] / 2;

	start(VOLUME);
	pure_fail_rate = 1;
	pure_fail_mask = PURE_FAIL_ATOMIC | PURE_FAIL_SLEEPING;
	for (i = 0, lows = 0; i <= half; i++) {
		expect_eq(lows, 0);
		expect(!larder_index_low(idx));
		expect_eq(larder_index_store(idx, (100 + i) * GIB, 8, 0, LARDER_ST_CLEAN, NULL), 0);
	}
	expect(lows > 0);
	expect_eq(idx->stock.count[STOCK_PAGE], larder_stock_goal[STOCK_PAGE] - half - 1);
	expect(idx->stock.count[STOCK_PAGE] > 0);
	expect_eq(larder_index_refill(idx), -ENOMEM);
	expect_eq(larder_index_refill_stalled(idx), 0);
	expect(!larder_index_low(idx));
	for (i = 0; i < NR_STOCKS; i++)
		expect_eq(idx->stock.count[i], larder_stock_goal[i]);
	pure_fail_mask |= PURE_FAIL_NORECLAIM;
	stock_free(STOCK_PAGE, stock_pop(&idx->stock, STOCK_PAGE));
	expect_eq(larder_index_refill_stalled(idx), -ENOMEM);
	pure_fail_rate = 0;
	pure_fail_mask = PURE_FAIL_SLEEPING | PURE_FAIL_ATOMIC;
	expect_eq(larder_index_refill(idx), 0);
	rcu_barrier();
	expect_eq(larder_index_bytes(idx), pure_allocated - base_allocated);
	check_inside();
	stop();
}

/* Arrays shrink, pages go. */
static void test_shrink(void)
{
	u64 empty;
	u32 i;

	start(VOLUME);
	empty = larder_index_bytes(idx);
	for (i = 0; i < 512; i++)
		expect_eq(do_store(5, 8 * i, 8, 100ull * i, LARDER_ST_CLEAN), 0);
	expect_eq(larder_index_bytes(idx) - empty, sizeof(struct larder_page) + class_bytes(class_for(512)));
	for (i = 0; i < 509; i++)
		expect_eq(do_store(5, 8 * i, 8, 0, LARDER_ST_NONE), 0);
	expect(larder_index_bytes(idx) - empty <= sizeof(struct larder_page) + class_bytes(2));
	for (; i < 512; i++)
		expect_eq(do_store(5, 8 * i, 8, 0, LARDER_ST_NONE), 0);
	expect_eq(larder_index_bytes(idx), empty);
	check_all();
	stop();
}

/*
 * docs/design.md: at most 24 bytes for each cached 4 KiB where a region of 2 MiB holds two extents or more, and a page per GiB that is
 * touched.  Two of the 24 are what the cache has beside the index: heat 1/4, ghost 1 (half a cache's worth of 16 bits), segments 1/8.
 */
static void test_memory(void)
{
	static const u32 counts[] = { 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 255, 256 };
	const u32 regions = 200, gaps = 2;
	u64 empty, bytes, most = 0;
	u32 i, k, r;

	for (k = 0; k < ARRAY_SIZE(counts); k++) {
		start(VOLUME);
		empty = larder_index_bytes(idx);
		for (i = 0; i < counts[k]; i++)
			for (r = 0; r < regions; r++)
				expect_eq(larder_index_store(idx, r * REGION + 8ull * gaps * i, 8, 8ull * gaps * (r * 4096ull + i),
							     LARDER_ST_DIRTY, NULL), 0);
		expect_eq(larder_index_extents(idx), regions * counts[k]);
		bytes = larder_index_bytes(idx) - empty - sizeof(struct larder_page);
		if (bytes * 10 / (regions * counts[k]) > most)
			most = bytes * 10 / (regions * counts[k]);
		expect(bytes <= 22ull * regions * counts[k]);
		stop();
	}
	printf("# at most %llu.%llu bytes per extent\n", most / 10, most % 10);
}

static void test_create_fails(void)
{
	long i;

	expect_eq(larder_index_init(), 0);
	base_allocated = pure_allocated;
	for (i = 0; i < 100; i++) {
		pure_fail_after = i;
		idx = larder_index_create(VOLUME, NULL, NULL, NULL);
		if (idx)
			break;
		expect_eq(pure_allocated, base_allocated);
	}
	expect(i > 10 && i < 100);		/* every allocation has failed once */
	pure_fail_after = -1;
	expect_eq(larder_index_store(idx, 0, 8, 0, LARDER_ST_DIRTY, NULL), 0);	/* no change() is fine */
	expect_eq(larder_index_store(idx, 0, 8, 8, LARDER_ST_DIRTY, NULL), 0);
	expect(!larder_index_create((1ull << 43) + 1, NULL, NULL, NULL));
	stop();
	for (i = 0; i < 60; i++) {
		pure_fail_after = i;
		if (!larder_index_init())
			break;
		expect_eq(pure_live, 0);
	}
	pure_fail_after = -1;
	larder_index_exit();
	expect_eq(pure_live, 0);
}

static void test_resize(void)
{
	struct larder_map m;
	u64 far = 900 * GIB + 8;
	long i;

	start(10 * GIB);
	expect_eq(larder_index_store(idx, 9 * GIB, 8, 0, LARDER_ST_DIRTY, NULL), 0);
	pure_warn_expected = true;
	expect_eq(larder_index_store(idx, far, 8, 0, LARDER_ST_DIRTY, NULL), -EINVAL);
	pure_warn_expected = false;
	for (i = 0; i < 100; i++) {
		pure_fail_after = i;
		if (!larder_index_resize(idx, 1000 * GIB))
			break;
		expect_eq(larder_index_bytes(idx), pure_allocated - base_allocated);
	}
	expect(i > 2 && i < 100);
	pure_fail_after = -1;
	expect_eq(larder_index_store(idx, far, 8, 0, LARDER_ST_DIRTY, NULL), 0);
	expect_eq(larder_index_resize(idx, 999 * GIB), -EINVAL);
	larder_index_lookup(idx, 9 * GIB, 16, &m);
	expect(m.len == 8 && m.state == LARDER_ST_DIRTY);
	expect(larder_index_next(idx, 9 * GIB + 8, U64_MAX, ~0u, &m));
	expect_eq(m.sector, far);
	expect_eq(larder_index_bytes(idx), pure_allocated - base_allocated);
	stop();
}

/* 512 TiB with an extent at either end: a walk visits no more than there is (it ends within the test's patience, even under ASan). */
static void test_huge_volume(void)
{
	static u64 copy[REGION];
	u64 sectors = 512 * 1024 * GIB, at = 1;
	struct larder_map m;

	start(sectors);
	expect_eq(larder_index_store(idx, 0, 8, 0, LARDER_ST_CLEAN, NULL), 0);
	expect_eq(larder_index_store(idx, sectors - 8, 8, 8, LARDER_ST_DIRTY, NULL), 0);
	expect(larder_index_next(idx, 1, sectors, 1u << LARDER_ST_DIRTY, &m));
	expect(m.sector == sectors - 8 && m.len == 8 && m.cache == 8);
	expect(larder_index_next(idx, 1, sectors, ~0u, &m));
	expect(m.sector == 1 && m.len == 7 && m.cache == 1);
	expect_eq(larder_index_copy_region(idx, &at, copy), 1);
	expect_eq(at, sectors / REGION - 1);
	at++;
	expect_eq(larder_index_copy_region(idx, &at, copy), 0);
	stop();
}

static void test_bad_arguments(void)
{
	static u64 x[REGION + 1];
	static const struct { u64 sector; u32 len; u64 cache; u8 state; } bad[] = {
		{ 0, 0, 0, 1 }, { 0, REGION + 1, 0, 1 }, { 1, REGION, 0, 1 }, { 0, 8, 1ull << 36, 1 }, { 0, 8, 0, 6 },
		{ VOLUME, 1, 0, 1 }, { VOLUME - 1, 2, 0, 1 }, { U64_MAX, 1, 0, 1 }, { U64_MAX - 7, 8, 0, 1 }, { 8, U32_MAX, 0, 1 },
	};
	u32 i;

	start(VOLUME);
	pure_warn_expected = true;
	pure_warnings = 0;
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		expect_eq(larder_index_store(idx, bad[i].sector, bad[i].len, bad[i].cache, bad[i].state, NULL), -EINVAL);
		expect_eq(larder_index_change(idx, bad[i].sector, bad[i].len, 0, ~0u, bad[i].cache, bad[i].state), -EINVAL);
	}
	expect_eq(larder_index_load_region(idx, VOLUME / REGION + 1, x, 1), -EINVAL);
	expect_eq(larder_index_load_region(idx, U64_MAX, x, 1), -EINVAL);
	expect_eq(larder_index_load_region(idx, 0, x, REGION + 1), -EINVAL);
	expect_eq(pure_warnings, 2 * ARRAY_SIZE(bad) + 3);
	pure_warn_expected = false;
	check_all();
	stop();
}

/* ------------------------------------------------------------------ bulk load */

/* What check_region() has to say, by arithmetic of its own. */
static bool region_good(u64 volume, u64 region, const u64 *x, u32 n, u64 cache_sectors)
{
	unsigned __int128 base = (unsigned __int128)region * 4096;
	u64 end = 0;
	u32 i;

	if (n > 4096 || base >= volume)
		return false;
	for (i = 0; i < n; i++) {
		u64 first = x[i] % 4096, len = x[i] / 4096 % 4096 + 1, state = x[i] / (1 << 24) % 16, cache = x[i] / (1 << 28);

		if (first < end || first + len > 4096 || base + first + len > volume)
			return false;
		end = first + len;
		if (state != 1 && state != 2 && state != 4)
			return false;
		if (state != 4 && cache + len > cache_sectors)
			return false;
	}
	return true;
}

/* Extents that are valid, and then, often, are not quite. */
static u32 hostile_region(u64 *x, u64 cache_sectors, bool spoil)
{
	static const u8 states[] = { 1, 2, 4 };
	u32 n = 0, at = 0, len, max = below(8) ? 1 + below(40) : REGION, step = max_t(u32, 1, REGION / max);

	while (at < REGION && n < max) {
		len = min(1 + below(step), REGION - at);
		x[n++] = larder_extent_pack(at, len, states[below(3)], rng() % (cache_sectors - REGION));
		at += len + below(3) * below(step);
	}
	if (!spoil)
		return n;
	switch (below(5)) {
	case 0:
		x[below(n)] ^= 1ull << below(64);
		break;
	case 1:
		swap(x[below(n)], x[0]);
		break;
	case 2:
		x[below(n)] = rng();
		break;
	case 3:
		x[below(n)] |= 0xfffull << (12 * below(2));
		break;
	default:
		x[below(n)] += (u64)(1 + below(3)) << 24;
	}
	return n;
}

static void test_check_region(void)
{
	static u64 x[REGION + 1];
	static const u64 volumes[] = { 0, 1, 4095, 4096, 4097, 5 * 4096 + 77, VOLUME, U64_MAX };
	static const u64 regions[] = { 0, 1, 5, 6, VOLUME / REGION, U64_MAX, U64_MAX / REGION, U64_MAX / REGION + 1 };
	u32 i, n, good = 0, total = 60000;

	for (i = 0; i < total; i++) {
		u64 cs = below(4) ? 1ull << 30 : REGION + 1 + below(100), v = volumes[below(8)], r = regions[below(8)];

		if (below(2)) {
			v = VOLUME;
			r = below(5);
		}
		n = hostile_region(x, cs, below(3));
		if (below(200) == 0)
			n = REGION + 1;
		operations++;
		good += region_good(v, r, x, n, cs);
		if ((larder_index_check_region(v, r, x, n, cs) == 0) != region_good(v, r, x, n, cs)) {
			fail(__LINE__, "volume %llu region %llu n %u: good is %d", v, r, n, region_good(v, r, x, n, cs));
			break;
		}
	}
	expect(good > total / 20 && good < total - total / 20);
	expect_eq(larder_index_check_region(4096, 0, NULL, 0, 0), 0);
}

static void model_load(u32 r, const u64 *x, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		u32 first = x[i] & 0xfff;

		model_store(r, first, first + (x[i] >> 12 & 0xfff) + 1, x[i] >> 28, x[i] >> 24 & 15);
	}
}

static void test_load(void)
{
	static u64 x[REGION], y[REGION];
	u32 i, r, n, round;
	u64 at;

	for (round = 0; round < 30 && test_ok; round++) {
		start(VOLUME);
		for (r = 0; r < NR_REGIONS - 1; r++) {
			n = hostile_region(x, 1ull << 32, false);
			expect_eq(larder_index_check_region(VOLUME, region_number[r], x, n, 1ull << 32), 0);
			arm(r, 0, REGION, false, 0, 0);
			seen.loading = true;
			if (below(4) == 0) {	/* fails, and leaves nothing behind */
				pure_fail_mask = PURE_FAIL_SLEEPING;
				pure_fail_after = 0;
				expect_eq(larder_index_load_region(idx, region_number[r], x, n), -ENOMEM);
				pure_fail_mask |= PURE_FAIL_ATOMIC;
				pure_fail_after = -1;
				expect_eq(seen.reported, 0);
			}
			pure_fail_mask = PURE_FAIL_ATOMIC;	/* loading needs none of these */
			pure_fail_rate = 1;
			expect_eq(larder_index_load_region(idx, region_number[r], x, n), 0);
			pure_fail_rate = 0;
			pure_fail_mask = PURE_FAIL_SLEEPING | PURE_FAIL_ATOMIC;
			model_load(r, x, n);
			expect_eq(seen.reported, model_mapped(r, 0, REGION));
			arm(r, 0, 0, false, 0, 0);
			expect_eq(larder_index_load_region(idx, region_number[r], x, n), -EEXIST);
			seen.loading = false;
			seen.armed = false;
			at = region_number[r];
			expect_eq(larder_index_copy_region(idx, &at, y), n);
			expect(at == region_number[r] && !memcmp(x, y, n * sizeof(u64)));
			operations += 3;
		}
		check_inside();
		for (i = 0; i < 500; i++)		/* extents that could merge and are not merged are no trouble */
			random_write(false);
		rcu_barrier();
		expect_eq(larder_index_bytes(idx), pure_allocated - base_allocated);
		check_inside();
		stop();
	}
}

/* ------------------------------------------------------------------ a writer at every point of a reader */

static void nothing(u64 base) { }

static void one(u64 base) { larder_index_store(idx, base, 8, 1000, LARDER_ST_CLEAN, NULL); }

static void many(u64 base)
{
	u32 i;

	for (i = 0; i < 8; i++)
		larder_index_store(idx, base + 16 * i, 8, 1000 * (i + 1), 1 + i % 2, NULL);
}

static void remove_all(u64 base) { larder_index_store(idx, base, REGION, 0, LARDER_ST_NONE, NULL); }

static void remove_and_return(u64 base)
{
	remove_all(base);
	larder_index_store(idx, base, 8, 7777, LARDER_ST_DIRTY, NULL);
}

static void grow(u64 base)
{
	u32 i;

	for (i = 0; i < 300; i++)
		larder_index_store(idx, base + 8 * i, 8, 500000 + 100 * i, LARDER_ST_DIRTY, NULL);
}

static void shift(u64 base)	/* in place: what was at its place in the array is at another one */
{
	larder_index_store(idx, base + 2, 2, 0, LARDER_ST_NONE, NULL);
	larder_index_store(idx, base + 16, 100, 0, LARDER_ST_NONE, NULL);
}

static void overwrite(u64 base) { larder_index_store(idx, base, 8, 123456, LARDER_ST_DIRTY, NULL); }
static void change_state(u64 base) { larder_index_change(idx, base, REGION, 1000, ~0u, 1000, LARDER_ST_CLEANING); }

static void (*point_action)(u64 base);
static u64 point_base;
static void point_reached(void)
{
	point_action(point_base);
}

/* What a reader may say: all of it. */
struct answer {
	struct larder_map m;
	u64 at;
	u32 n;
	u64 copy[3];
};

static void ask(u32 how, u64 base, struct answer *a)
{
	static u64 copy[REGION];

	memset(a, 0, sizeof(*a));
	a->at = base / REGION;
	if (how < 5) {
		static const u32 at[] = { 0, 2, 20, 48, 3000 };

		larder_index_lookup(idx, base + at[how], 40, &a->m);
	} else if (how < 8) {
		a->n = larder_index_next(idx, base + 1, base + REGION, how == 5 ? ~0u : 1u << (how - 5), &a->m);
	} else {
		a->n = larder_index_copy_region(idx, &a->at, copy);
		memcpy(a->copy, copy, sizeof(a->copy));
		if (!a->n)
			memset(a->copy, 0, sizeof(a->copy));
	}
}

/*
 * For each question, each state before, each thing that happens and each point of the reader where it may happen: the answer is that of before or that of
 * after.  The region is the first or second of a lone GiB, whose pointers are what a page's rcu_head falls on, or another one.
 */
static void test_points(void)
{
	static void (*const before[])(u64) = { nothing, one, many };
	static void (*const event[])(u64) = { remove_all, remove_and_return, one, many, grow, shift, overwrite, change_state };
	static const u64 region[] = { 5 * 512, 5 * 512 + 1, 5 * 512 + 2 };
	u32 r, b, e, how, n, left, points = 0;
	struct answer first, last, got;
	u64 base;

	expect_eq(larder_index_init(), 0);
	for (r = 0; r < 3; r++) {
		for (b = 0; b < 3; b++) {
			for (e = 0; e < ARRAY_SIZE(event); e++) {
				for (how = 0; how < 9; how++) {
					for (n = 1, left = 0; !left && test_ok; n++) {
						idx = larder_index_create(6 * GIB, NULL, NULL, NULL);
						base = region[r] * REGION;
						before[b](base);
						ask(how, base, &first);
						point_action = event[e];
						point_base = base;
						point_armed = n;
						ask(how, base, &got);
						left = point_armed;
						point_armed = 0;
						ask(how, base, &last);
						if (memcmp(&got, &first, sizeof(got)) && (left || memcmp(&got, &last, sizeof(got))))
							fail(__LINE__, "region %u before %u event %u question %u point %u", r, b, e, how, n);
						points += !left;
						rcu_barrier();
						larder_index_destroy(idx);
					}
				}
			}
		}
	}
	operations += points;
	expect(points > 3000);
	larder_index_exit();
	expect_eq(pure_live, 0);
}

/* ------------------------------------------------------------------ threads */

/*
 * Writers own a quarter of the sectors of each region each.  The cache address tells the sector (low 21 bits) and the version (upper 15, rising per writer), so a
 * reader can tell whether it ever was stored there, and whether it goes back in time.  The first 8 sectors of a quarter are never removed.
 */
#define T_WRITERS 2
#define T_READERS 2
#define T_REGIONS 6
#define T_VERSIONS 30000u
static const u64 t_region[T_REGIONS] = { 0, 1, 2, 511, 512, 3 * 512 + 5 };	/* the last comes and goes with its GiB */
static u32 t_done, t_version[T_WRITERS];
static unsigned long t_goal = 60000;

static u64 t_cache(u64 sector, u32 version) { return (u64)version << 21 | (sector & (GIB - 1)); }

static u32 t_next(u64 *state, u32 n)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)(*state >> 33) % n;
}

static void t_bad(const char *what)
{
	fail(0, "threads: %s", what);
}

static void *t_writer(void *arg)
{
	u32 w = (u32)(uintptr_t)arg, version = 1, a, len, k, quarter;
	u64 seed = w + 1, base, sector;
	unsigned long i;
	int ret;

	for (i = 0; i < t_goal; i++) {
		k = t_next(&seed, T_REGIONS);
		base = t_region[k] * REGION;
		quarter = REGION / 4 * (w + 2 * t_next(&seed, 2));
		a = t_next(&seed, REGION / 4);
		len = min(1 + t_next(&seed, t_next(&seed, 4) ? 16 : 600), REGION / 4 - a);
		sector = base + quarter + a;
		if (i * T_VERSIONS / t_goal > version)
			WRITE_ONCE(t_version[w], ++version);
		else
			WRITE_ONCE(t_version[w], version);
		switch (t_next(&seed, 4)) {
		case 0:			/* remove, but for the first sectors; the far region wholly */
			if (k == T_REGIONS - 1) {
				ret = larder_index_store(idx, base + quarter, REGION / 4, 0, LARDER_ST_NONE, NULL);
				break;
			}
			if (a < 8)
				continue;
			ret = larder_index_store(idx, sector, len, 0, LARDER_ST_NONE, NULL);
			break;
		case 1: {		/* what is there moves to the newest version, or changes state */
			struct larder_map m;

			larder_index_lookup(idx, sector, len, &m);
			if (!m.state)
				continue;
			ret = larder_index_change(idx, m.sector, m.len, m.cache, ~0u, t_next(&seed, 2) ? t_cache(m.sector, version) : m.cache,
						  t_next(&seed, 2) ? LARDER_ST_CLEAN : LARDER_ST_DIRTY);
			break;
		}
		default:
			ret = larder_index_store(idx, sector, len, t_cache(sector, version), 1 + t_next(&seed, 2), NULL);
		}
		if (ret < 0)
			larder_index_refill(idx);
	}
	__atomic_fetch_add(&t_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void t_check(const struct larder_map *m, u32 *last)
{
	u64 low = m->cache & (GIB - 1);
	u32 version = (u32)(m->cache >> 21), w = (m->sector / (REGION / 4)) % 2;

	if (m->state != LARDER_ST_CLEAN && m->state != LARDER_ST_DIRTY)
		t_bad("a state that was never stored");
	if (low != (m->sector & (GIB - 1)))
		t_bad("a cache sector that belongs to another sector");
	if (version > READ_ONCE(t_version[w]))
		t_bad("a version that was not yet stored");
	if (version < *last)
		t_bad("an older version than before");
	*last = version;
}

static void *t_reader(void *arg)
{
	static u32 last[T_READERS][T_REGIONS][REGION];
	u32 self = (u32)(uintptr_t)arg, k, a, n;
	u64 seed = 100 + self, sector, mask;
	struct larder_map m;

	while (__atomic_load_n(&t_done, __ATOMIC_SEQ_CST) < T_WRITERS) {
		for (n = 0; n < 64; n++) {
			k = t_next(&seed, T_REGIONS);
			a = t_next(&seed, 3) ? t_next(&seed, REGION) : REGION / 4 * t_next(&seed, 4) + t_next(&seed, 8);
			sector = t_region[k] * REGION + a;
			if (t_next(&seed, 4)) {
				larder_index_lookup(idx, sector, 1 + t_next(&seed, 32), &m);
				if (m.sector != sector)
					t_bad("a look-up answered for another sector");
				if (m.state)
					t_check(&m, &last[self][k][a]);
				else if (a % (REGION / 4) < 8 && k != T_REGIONS - 1)
					t_bad("a hole where there never was one");
				continue;
			}
			mask = 1u << (1 + t_next(&seed, 2));
			if (!larder_index_next(idx, sector, (t_region[k] + 1) * REGION, (u32)mask, &m))
				continue;
			if (m.sector < sector || m.sector + m.len > (t_region[k] + 1) * REGION || !(mask >> m.state & 1))
				t_bad("next found what it was not asked for");
			else
				t_check(&m, &last[self][k][m.sector % REGION]);
		}
	}
	return NULL;
}

static void test_threads(void)
{
	static u64 copy[REGION];
	pthread_t t[T_WRITERS + T_READERS];
	u64 at;
	u32 i, k;

	expect_eq(larder_index_init(), 0);
	base_allocated = pure_allocated;
	t_done = 0;
	idx = larder_index_create(10 * GIB, NULL, NULL, NULL);
	expect(idx);
	for (k = 0; k < T_REGIONS - 1; k++)
		for (i = 0; i < 4; i++)
			expect_eq(larder_index_store(idx, t_region[k] * REGION + i * (REGION / 4), 8, t_cache(t_region[k] * REGION + i * (REGION / 4), 0),
						     LARDER_ST_CLEAN, NULL), 0);
	for (i = 0; i < T_WRITERS + T_READERS; i++)
		pthread_create(&t[i], NULL, i < T_WRITERS ? t_writer : t_reader, (void *)(uintptr_t)(i < T_WRITERS ? i : i - T_WRITERS));
	while (__atomic_load_n(&t_done, __ATOMIC_SEQ_CST) < T_WRITERS) {
		rcu_barrier();
		at = 0;
		larder_index_copy_region(idx, &at, copy);
		sched_yield();
	}
	for (i = 0; i < T_WRITERS + T_READERS; i++)
		pthread_join(t[i], NULL);
	operations += T_WRITERS * t_goal;
	rcu_barrier();
	expect_eq(larder_index_bytes(idx), pure_allocated - base_allocated);
	stop();
}

/*
 * Whoever looks up behind a report finds the range gone, or waits: pins (admit.c) rely on it.  Behind the first report of each change another thread looks up
 * what was reported, and has its time to: it does not matter whether it has answered by then, only what it answers.
 */
#define REPORT_WAIT_NS 100000000l
static struct {
	struct larder_map was, found;
	u32 step;			/* 1: reported, 2: somebody looks, 3: answered */
} observed;

static void *report_reader(void *arg)
{
	while (__atomic_load_n(&observed.step, __ATOMIC_ACQUIRE) < 1)
		sched_yield();
	__atomic_store_n(&observed.step, 2, __ATOMIC_RELEASE);
	larder_index_lookup(idx, observed.was.sector, observed.was.len, &observed.found);
	__atomic_store_n(&observed.step, 3, __ATOMIC_RELEASE);
	return NULL;
}

static void reported(void *ctx, const struct larder_map *was, u8 now, void *by)
{
	struct timespec ms = { .tv_nsec = 1000000 };
	long waited;

	if (observed.step)
		return;
	observed.was = *was;
	__atomic_store_n(&observed.step, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&observed.step, __ATOMIC_ACQUIRE) < 2)
		sched_yield();
	for (waited = 0; waited < REPORT_WAIT_NS && __atomic_load_n(&observed.step, __ATOMIC_ACQUIRE) < 3; waited += ms.tv_nsec)
		nanosleep(&ms, NULL);
}

static void report_in_place(u64 base) { larder_index_store(idx, base, 8, 123456, LARDER_ST_DIRTY, NULL); }
static void report_grows(u64 base) { larder_index_store(idx, base + 2, 2, 123456, LARDER_ST_DIRTY, NULL); }
static void report_last(u64 base) { larder_index_store(idx, base, REGION, 0, LARDER_ST_NONE, NULL); }
static void report_moves(u64 base) { larder_index_change(idx, base + 2, 2, 1002, ~0u, 5000, LARDER_ST_CLEAN); }
static void report_goes(u64 base) { larder_index_change(idx, base, 8, 1000, ~0u, 1000, LARDER_ST_NONE); }

static void test_reports(void)
{
	static void (*const change[])(u64) = { report_in_place, report_grows, report_last, report_moves, report_goes };
	u64 base = 5 * 512 * REGION;
	pthread_t reader;
	u32 i;

	expect_eq(larder_index_init(), 0);
	for (i = 0; i < ARRAY_SIZE(change) && test_ok; i++) {
		idx = larder_index_create(6 * GIB, reported, NULL, NULL);
		larder_index_store(idx, base, 8, 1000, LARDER_ST_CLEAN, NULL);
		memset(&observed, 0, sizeof(observed));
		pthread_create(&reader, NULL, report_reader, NULL);
		change[i](base);
		if (!observed.step)
			fail(__LINE__, "change %u reported nothing", i);
		__atomic_store_n(&observed.step, max(observed.step, 1u), __ATOMIC_RELEASE);
		pthread_join(reader, NULL);
		if (observed.found.state == observed.was.state && observed.found.cache == observed.was.cache)
			fail(__LINE__, "change %u: a reader found what had been reported as gone", i);
		rcu_barrier();
		larder_index_destroy(idx);
	}
	operations += i;
	larder_index_exit();
	expect_eq(pure_live, 0);
}

/* ------------------------------------------------------------------ benchmark */

static int bench_fd = -1;
static u64 bench_start;

static u64 bench_now(void)
{
	struct timespec ts;
	u64 n;

	if (bench_fd >= 0 && read(bench_fd, &n, sizeof(n)) == sizeof(n))
		return n;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000ull + (u64)ts.tv_nsec;
}

static void bench_report(const char *what, u64 n)
{
	printf("%-44s %8.0f %s\n", what, (double)(bench_now() - bench_start) / (double)n, bench_fd >= 0 ? "instructions" : "ns");
}

static u32 bench_pages(u64 sectors)
{
	u64 g;
	u32 n = 0;

	for (g = 0; g < sectors / GIB; g++)
		n += idx->root->block[g / GIBS_PER_BLOCK]->gib[g % GIBS_PER_BLOCK].page != NULL;
	return n;
}

static void bench_volume(u64 sectors, u64 n)
{
	u64 seed = rng_state, i, bytes;
	struct larder_map m;
	char what[80];

	idx = larder_index_create(sectors, NULL, NULL, NULL);
	bytes = larder_index_bytes(idx);
	bench_start = bench_now();
	for (i = 0; i < n; i++)
		larder_index_store(idx, rng() % (sectors / 8) * 8, 8, i * 8, LARDER_ST_DIRTY, NULL);
	snprintf(what, sizeof(what), "%llu GiB volume: insert 4 KiB", sectors / GIB);
	bench_report(what, n);
	printf("%-44s %8.1f bytes per extent (of which pages %.1f); index itself %llu\n", "",
	       (double)(larder_index_bytes(idx) - bytes) / (double)larder_index_extents(idx),
	       (double)(4096ull * bench_pages(sectors)) / (double)larder_index_extents(idx), bytes);
	rng_state = seed;
	bench_start = bench_now();
	for (i = 0; i < n; i++)
		larder_index_store(idx, rng() % (sectors / 8) * 8, 8, (n + i) * 8, LARDER_ST_DIRTY, NULL);
	bench_report("overwrite exactly", n);
	rng_state = seed;
	bench_start = bench_now();
	for (i = 0; i < n; i++)
		larder_index_lookup(idx, rng() % (sectors / 8) * 8, 8, &m);
	bench_report("look-up, hit", n);
	bench_start = bench_now();
	for (i = 0; i < n; i++)
		larder_index_lookup(idx, rng() % (sectors / 8) * 8, 8, &m);
	bench_report("look-up, nearly always a miss", n);
	rng_state = seed;
	bench_start = bench_now();
	for (i = 0; i < n; i++)
		larder_index_change(idx, rng() % (sectors / 8) * 8, 8, (n + i) * 8, 1u << LARDER_ST_DIRTY, (n + i) * 8, LARDER_ST_CLEAN);
	bench_report("change state", n);
	bench_start = bench_now();
	larder_index_next(idx, 0, sectors, 1u << LARDER_ST_CLEANING, &m);
	bench_report("walk in search of what is not there, per region", sectors / REGION);
	larder_index_destroy(idx);
}

static int bench(u64 n)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE, .size = sizeof(attr), .config = PERF_COUNT_HW_INSTRUCTIONS, .exclude_kernel = 1, .exclude_hv = 1,
	};
	u64 i;

	bench_fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	larder_index_init();
	bench_start = bench_now();
	for (i = 0; i < n; i++)
		__asm__ __volatile__("" : : "r"(rng() % 268435456 * 8));
	bench_report("(random numbers, included below)", n);
	bench_volume(1024 * GIB, n);
	bench_volume(16 * GIB, n);
	larder_index_exit();
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "bench"))
		return bench(argc > 2 ? strtoull(argv[2], NULL, 0) : 1000000);
	if (argc > 1 && !strcmp(argv[1], "threads")) {
		if (argc > 2)
			t_goal = strtoul(argv[2], NULL, 0);
		run("threads", test_threads);
	} else {
		if (argc > 1)
			goal = strtoul(argv[1], NULL, 0);
		if (argc > 2)
			rng_state = strtoull(argv[2], NULL, 0);
		run("empty index", test_empty);
		run("split and merge", test_split_merge);
		run("4,096 extents in a region", test_full_region);
		run("reserve", test_reserve);
		run("reserve is filled up ahead", test_reserve_low);
		run("arrays shrink, pages go", test_shrink);
		run("memory per extent", test_memory);
		run("creation without memory", test_create_fails);
		run("resize", test_resize);
		run("512 TiB", test_huge_volume);
		run("bad arguments", test_bad_arguments);
		run("check of hostile regions", test_check_region);
		run("bulk load", test_load);
		run("random operations against the model", test_random);
		run("the same with failing allocations", test_random_failing);
		run("a writer at every point of a reader", test_points);
		run("threads", test_threads);
		run("what was reported as gone is not found", test_reports);
	}
	printf("%s: %u tests, %u failed, %lu operations\n", argv[0], test_number, test_failures, operations);
	return test_failures != 0;
}
