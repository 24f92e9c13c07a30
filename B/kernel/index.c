// SPDX-License-Identifier: GPL-2.0-only
/*
 * The index: volume sectors -> cache sectors and a state.  index.h is its contract.
 *
 *   root -> block (256 GiB) -> GiB: a page of 512 pointers -> region of 2 MiB: header and a sorted array of 8-byte extents
 *
 * Invariants
 *   - Extents of a region are sorted, disjoint and not empty; a region without extents has no array, a GiB without regions no page.
 *   - Blocks exist for the whole volume and live as long as the index; a root is replaced when the volume grows.
 *   - An array never changes its size.  It is changed in place under its seqcount, or replaced, under its seqcount too, by
 *     another one whose pointer is published: what change() is told of no reader finds any more.
 *
 * Locks: shard (hashed by GiB; everything below its GiBs, and its counters) -> stock (the reserve).  Both irq-safe.  The mutex
 * serialises growth of the volume; it is taken before them.
 *
 * Readers take no lock.  A page or an array that was unpublished waits for a grace period, but its first words are given to the
 * rcu_head at once, so a reader trusts what it read only if the pointer it followed is still there afterwards (read_again(), and
 * the second look at gib->page in region_find()).  Publishing the new pointer comes first, smp_wmb() in retire_*(), then the
 * rcu_head.
 *
 * The exact overwrite of an extent is a single 8-byte store outside the seqcount: bounds and count stay, and a reader loads
 * the extent it answers with once.
 */
#include "index.h"

#define REGIONS_PER_GIB		512u
#define GIB_SHIFT		21		/* log2 sectors */
#define GIBS_PER_BLOCK		256u
#define NR_SHARDS		64u
#define DIRTY_STATES		(~(1u << LARDER_ST_CLEAN))

/*
 * Extents per array, by class: little waste in slabs of 32 KiB with a header of 8 bytes.  4,096, which a region needs when each of
 * its sectors is mapped on its own, does not fit 32 KiB: it is vmalloced, so never atomically.
 */
static const u16 larder_caps[] = {
	2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 681, 1023, 1364, 2047, 4095, 4096
};
#define NR_CLASSES		ARRAY_SIZE(larder_caps)
#define CLASS_LARGE		(NR_CLASSES - 1)
#define CLASS_SMALL		5u		/* 12 extents: what the reserve gives to small regions */

static struct kmem_cache *larder_caches[CLASS_LARGE];

/* 8 bytes and the extents.  head: count (13 bits), dirty extents among them (13), class (6). */
struct larder_region {
	seqcount_spinlock_t seq;
	u32 head;
	u64 extents[];
};

struct larder_page {
	struct larder_region __rcu *region[REGIONS_PER_GIB];
};

struct larder_gib {
	struct larder_page __rcu *page;
	u16 regions;			/* that have an array */
	u16 dirty;			/* of these, with dirty extents */
};

struct larder_block {
	struct larder_gib gib[GIBS_PER_BLOCK];
};

struct larder_root {
	u64 gibs;
	struct larder_block *block[];
};

struct larder_shard {
	spinlock_t lock;		/* everything below the GiBs that hash here, and: */
	s64 extents;
	s64 bytes;			/* of pages and arrays */
} ____cacheline_aligned_in_smp;

enum larder_stock_kind { STOCK_PAGE, STOCK_SMALL, STOCK_LARGE, NR_STOCKS };
static const u8 larder_stock_goal[NR_STOCKS] = { 4, 32, 4 };
#define MAX_LOANS		4u

/* Memory kept for writers that cannot sleep, linked through the first word of each piece. */
struct larder_stock {
	spinlock_t lock;		/* all below */
	void **top[NR_STOCKS];
	u32 count[NR_STOCKS];
	u32 nr_loans;
	u64 loans[MAX_LOANS];		/* regions that got a large array for want of a fitting one */
};

struct larder_index {
	struct larder_root __rcu *root;
	u64 sectors;
	larder_index_change_fn change;
	larder_index_low_fn low;
	void *ctx;
	struct mutex mutex;		/* resize; base_bytes */
	u64 base_bytes;			/* of this, the root and the blocks */
	struct larder_stock stock;
	struct larder_shard shard[NR_SHARDS];
};

/* ------------------------------------------------------------------ extents */

static inline u32 head_count(u32 h) { return h & 0x1fff; }
static inline u32 head_dirty(u32 h) { return (h >> 13) & 0x1fff; }
static inline u32 head_class(u32 h) { return h >> 26; }
static inline u32 head_pack(u32 count, u32 dirty, u32 class) { return count | dirty << 13 | class << 26; }

static inline u32 extent_end(u64 e) { return larder_extent_first(e) + larder_extent_len(e); }
static inline bool extent_dirty(u64 e) { return larder_state_dirty(larder_extent_state(e)); }

/* Sectors [a, b) of e, which lie in it */
static inline u64 extent_cut(u64 e, u32 a, u32 b)
{
	u64 cache = larder_extent_cache(e);

	if (!larder_state_zero(larder_extent_state(e)))
		cache += a - larder_extent_first(e);
	return larder_extent_pack(a, b - a, larder_extent_state(e), cache);
}

#define EXTENT_LEN		0xfff000ull	/* its bits */

/*
 * Does y go on where x ends, on the volume and in the cache?  0, whose state is none that an extent has, joins nothing.  One
 * subtraction for all fields but the length: in each but the last the difference is less than one of the next field.
 */
static inline bool extent_joins(u64 x, u64 y)
{
	u64 from = x & ~EXTENT_LEN, to = y & ~EXTENT_LEN, next = larder_extent_len(x);

	if (!larder_state_zero(larder_extent_state(x)))
		next += next << 28;
	return to - from == next && to > from;
}

static inline u64 extent_join(u64 x, u64 y)
{
	return larder_extent_pack(larder_extent_first(x), larder_extent_len(x) + larder_extent_len(y), larder_extent_state(x),
				  larder_extent_cache(x));
}

/*
 * The first of n extents that ends behind sector 'at' of the region; n: none.  Looks first where it lies if all are of one length,
 * without holes; then as many blocks from there as that was wrong by; then by halves.  Readers call it too: any value may change
 * under it.
 */
static __always_inline u32 extents_search(const u64 *ext, u32 n, u32 at)
{
	u32 lo = 0, half = at * n >> LARDER_REGION_SHIFT, off;
	bool guess = true;

	while (n) {
		u64 e = READ_ONCE(ext[lo + half]);

		if (larder_extent_first(e) <= at && extent_end(e) > at)
			return lo + half;
		if (extent_end(e) <= at) {
			off = (at - extent_end(e)) / LARDER_SLOT_SECTORS;
			lo += half + 1;
			n -= half + 1;
			half = guess && off < n ? off : n / 2;
		} else {
			off = (larder_extent_first(e) - at - 1) / LARDER_SLOT_SECTORS;
			n = half;
			half = guess && off < n ? n - 1 - off : n / 2;
		}
		guess = false;
	}
	return lo;
}

/* The same for readers: the extent, read once; 0: none. */
static __always_inline u64 extents_find(const u64 *ext, u32 n, u32 at)
{
	u32 i = extents_search(ext, n, at);

	return i < n ? READ_ONCE(ext[i]) : 0;
}

static inline struct larder_map map_of(u64 region, u64 e)
{
	return (struct larder_map){
		.sector = (region << LARDER_REGION_SHIFT) + larder_extent_first(e), .cache = larder_extent_cache(e),
		.len = larder_extent_len(e), .state = larder_extent_state(e),
	};
}

/* ------------------------------------------------------------------ memory */

static inline size_t class_bytes(u32 class)
{
	return offsetof(struct larder_region, extents) + larder_caps[class] * sizeof(u64);
}

/* The smallest class for n extents, 1..4096. */
static u32 class_for(u32 n)
{
	u32 class = 0;

	while (larder_caps[class] < n)
		class++;
	return class;
}

/* gfp: without __GFP_DIRECT_RECLAIM for atomic context.  NULL: no memory. */
static void *region_alloc(u32 class, gfp_t gfp)
{
	if (class < CLASS_LARGE)
		return kmem_cache_alloc(larder_caches[class], gfp);
	return gfp & __GFP_DIRECT_RECLAIM ? __vmalloc(class_bytes(class), gfp) : NULL;
}

static void region_free(void *r, u32 class)
{
	if (class < CLASS_LARGE)
		kmem_cache_free(larder_caches[class], r);
	else
		vfree(r);
}

static void region_free_rcu(struct rcu_head *rcu)
{
	struct larder_region *r = (void *)rcu - offsetof(struct larder_region, extents);

	region_free(r, head_class(r->head));
}

/* The pointer to r is gone.  A reader may still be in it: its header stays as it is until the grace period is over. */
static void retire_region(struct larder_shard *shard, struct larder_region *r)
{
	BUILD_BUG_ON(sizeof(struct rcu_head) > 2 * sizeof(u64));
	shard->bytes -= class_bytes(head_class(r->head));
	smp_wmb();	/* pairs with read_seqcount_retry() in read_again() */
	call_rcu((struct rcu_head *)r->extents, region_free_rcu);
}

static void page_free_rcu(struct rcu_head *rcu)
{
	kfree(rcu);
}

static void retire_page(struct larder_shard *shard, struct larder_page *page)
{
	shard->bytes -= sizeof(*page);
	smp_wmb();	/* pairs with smp_rmb() in region_find() */
	call_rcu((struct rcu_head *)page, page_free_rcu);
}

static size_t stock_bytes(u32 kind)
{
	return kind == STOCK_PAGE ? sizeof(struct larder_page) : class_bytes(kind == STOCK_SMALL ? CLASS_SMALL : CLASS_LARGE);
}

/* Any context.  NULL: none left. */
static void *stock_pop(struct larder_stock *s, u32 kind)
{
	unsigned long flags;
	void **p;

	spin_lock_irqsave(&s->lock, flags);
	p = s->top[kind];
	if (p) {
		s->top[kind] = *p;
		WRITE_ONCE(s->count[kind], s->count[kind] - 1);
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return p;
}

/* The same, for a writer: it is told when the reserve is to be filled up again, while there is some of it. */
static void *stock_take(struct larder_index *idx, u32 kind)
{
	void *p = stock_pop(&idx->stock, kind);

	if (idx->low && larder_index_low(idx))
		idx->low(idx->ctx);
	return p;
}

static void stock_put(struct larder_stock *s, u32 kind, void *piece)
{
	unsigned long flags;
	void **p = piece;

	spin_lock_irqsave(&s->lock, flags);
	*p = s->top[kind];
	s->top[kind] = p;
	WRITE_ONCE(s->count[kind], s->count[kind] + 1);
	spin_unlock_irqrestore(&s->lock, flags);
}

static void *stock_alloc(u32 kind, gfp_t gfp)
{
	if (kind == STOCK_PAGE)
		return kmalloc(sizeof(struct larder_page), gfp);
	return region_alloc(kind == STOCK_SMALL ? CLASS_SMALL : CLASS_LARGE, gfp);
}

static void stock_free(u32 kind, void *piece)
{
	if (kind == STOCK_PAGE)
		kfree(piece);
	else
		region_free(piece, kind == STOCK_SMALL ? CLASS_SMALL : CLASS_LARGE);
}

/*
 * Remembers that a region holds more than it needs; a full list forgets it, then the next writer that finds the array half empty
 * shrinks it.
 */
static void stock_lend(struct larder_stock *s, u64 region)
{
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	if (s->nr_loans < MAX_LOANS)
		s->loans[s->nr_loans++] = region;
	spin_unlock_irqrestore(&s->lock, flags);
}

/* ------------------------------------------------------------------ readers */

/*
 * Under rcu_read_lock(), or a shard's lock, under which preemption is off, or, on PREEMPT_RT, which is a reader's section by
 * itself.  NULL: the volume ends before it.
 */
static __always_inline struct larder_gib *gib_find(struct larder_index *idx, u64 gib)
{
	struct larder_root *root = rcu_dereference_check(idx->root, rcu_read_lock_any_held());

	if (unlikely(gib >= root->gibs))
		return NULL;
	return &root->block[gib / GIBS_PER_BLOCK]->gib[gib % GIBS_PER_BLOCK];
}

/* Under rcu_read_lock().  NULL: nothing is mapped in this region. */
static __always_inline struct larder_region *region_find(struct larder_gib *gib, u64 region, struct larder_region __rcu ***slot)
{
	struct larder_page *page;
	struct larder_region *r;

	for (;;) {
		page = rcu_dereference(gib->page);
		if (!page)
			return NULL;
		*slot = &page->region[region % REGIONS_PER_GIB];
		r = rcu_dereference(**slot);
		smp_rmb();	/* pairs with smp_wmb() in retire_page() */
		if (likely(rcu_access_pointer(gib->page) == page))
			return r;
	}
}

/* After a read of r: was it still the region's array?  (Its extents may be an rcu_head by now.) */
static __always_inline bool read_again(struct larder_region *r, unsigned int seq, struct larder_region __rcu **slot)
{
	return unlikely(read_seqcount_retry(&r->seq, seq) || rcu_access_pointer(*slot) != r);
}

/* Under RCU.  The extent that ends first behind the sector, in its region: it may begin behind it; 0: none. */
static __always_inline u64 extent_behind(struct larder_index *idx, u64 sector)
{
	u64 region = sector >> LARDER_REGION_SHIFT, e = 0;
	struct larder_region __rcu **slot;
	struct larder_region *r;
	struct larder_gib *gib;
	unsigned int seq;

	gib = gib_find(idx, region / REGIONS_PER_GIB);
	while (gib) {
		r = region_find(gib, region, &slot);
		if (!r)
			return 0;
		seq = read_seqcount_begin(&r->seq);
		e = extents_find(r->extents, head_count(READ_ONCE(r->head)), sector & (LARDER_REGION_SECTORS - 1));
		if (!read_again(r, seq, slot))
			break;
	}
	return e;
}

u8 larder_index_find_rcu(struct larder_index *idx, u64 sector, u32 len, u64 *cache)
{
	u64 e = extent_behind(idx, sector);
	u32 a = sector & (LARDER_REGION_SECTORS - 1);

	/* of none the length is 1, the state NONE */
	if (larder_extent_first(e) > a || extent_end(e) < a + len || larder_state_zero(larder_extent_state(e)))
		return LARDER_ST_NONE;
	*cache = larder_extent_cache(e) + a - larder_extent_first(e);
	return larder_extent_state(e);
}

void larder_index_lookup_rcu(struct larder_index *idx, u64 sector, u32 len, struct larder_map *out)
{
	u32 a = sector & (LARDER_REGION_SECTORS - 1), end = a + min(len, LARDER_REGION_SECTORS - a);
	u64 e = extent_behind(idx, sector);

	out->sector = sector;
	if (e && larder_extent_first(e) <= a) {
		out->len = min(end, extent_end(e)) - a;
		out->state = larder_extent_state(e);
		out->cache = larder_extent_cache(e);
		if (!larder_state_zero(out->state))
			out->cache += a - larder_extent_first(e);
	} else {
		out->len = (e ? min(end, larder_extent_first(e)) : end) - a;
		out->state = LARDER_ST_NONE;
		out->cache = 0;
	}
}

void larder_index_lookup(struct larder_index *idx, u64 sector, u32 len, struct larder_map *out)
{
	rcu_read_lock();
	larder_index_lookup_rcu(idx, sector, len, out);
	rcu_read_unlock();
}

/* Under rcu_read_lock().  The first extent of the region that has a state of mask and a sector in [a, b); 0: none. */
static u64 region_next(struct larder_gib *gib, u64 region, u32 a, u32 b, u32 mask)
{
	struct larder_region __rcu **slot;
	struct larder_region *r;
	unsigned int seq;
	u32 head, i, n;
	u64 e;

	do {
		r = region_find(gib, region, &slot);
		if (!r)
			return 0;
		seq = read_seqcount_begin(&r->seq);
		head = READ_ONCE(r->head);
		n = head_count(head);
		if (!(mask & DIRTY_STATES))
			i = n == head_dirty(head) ? n : 0;
		else
			i = mask & ~DIRTY_STATES || head_dirty(head) ? 0 : n;
		if (i < n)
			i = extents_search(r->extents, n, a);
		for (e = 0; i < n; i++) {
			e = READ_ONCE(r->extents[i]);
			if (larder_extent_first(e) >= b) {
				e = 0;
				break;
			}
			if ((mask >> larder_extent_state(e)) & 1)
				break;
			e = 0;
		}
	} while (read_again(r, seq, slot));
	return e;
}

/* Under rcu_read_lock().  As larder_index_next(), within one GiB. */
static u64 gib_next(struct larder_gib *gib, u64 sector, u64 end, u32 mask, u64 *region)
{
	u64 last = (end - 1) >> LARDER_REGION_SHIFT, base, e;

	if (!rcu_access_pointer(gib->page) || (!(mask & ~DIRTY_STATES) && !READ_ONCE(gib->dirty)))
		return 0;
	for (*region = sector >> LARDER_REGION_SHIFT; *region <= last; ++*region) {
		base = *region << LARDER_REGION_SHIFT;
		e = region_next(gib, *region, sector > base ? sector - base : 0,
				min_t(u64, end - base, LARDER_REGION_SECTORS), mask);
		if (e)
			return e;
	}
	return 0;
}

bool larder_index_next(struct larder_index *idx, u64 sector, u64 end, u32 mask, struct larder_map *out)
{
	struct larder_gib *gib;
	u64 region = 0, e = 0, base, to;
	u32 a, b;

	end = min(end, READ_ONCE(idx->sectors));
	while (sector < end) {
		to = min(end, ((sector >> GIB_SHIFT) + 1) << GIB_SHIFT);
		rcu_read_lock();
		gib = gib_find(idx, sector >> GIB_SHIFT);
		if (gib)
			e = gib_next(gib, sector, to, mask, &region);
		rcu_read_unlock();
		if (e)
			break;
		sector = to;
	}
	if (!e)
		return false;
	base = region << LARDER_REGION_SHIFT;
	a = max_t(u64, larder_extent_first(e), sector > base ? sector - base : 0);
	b = min_t(u64, extent_end(e), end - base);
	*out = map_of(region, extent_cut(e, a, b));
	return true;
}

/* ------------------------------------------------------------------ writers: one region, under its shard's lock */

struct larder_edit {
	struct larder_index *idx;
	struct larder_shard *shard;
	struct larder_gib *gib;
	struct larder_page *page;	/* NULL: none; not yet published when gib->page is NULL */
	struct larder_region *old;	/* the region's array, NULL: none */
	struct larder_region *r;	/* the one to write to: old, in place, or a new one */
	struct larder_page *spare_page;		/* brought along by a caller that could sleep */
	struct larder_region *spare_region;	/* its head names its class */
	u64 region;
	void *by;			/* for change() */
	unsigned long flags;
	u32 count, dirty, class;	/* of old; class: of r once that is known */
};

static inline u32 edit_slot(const struct larder_edit *e)
{
	return e->region % REGIONS_PER_GIB;
}

/* Is [sector, sector + len) in one region of the volume?  What is true once stays so: volumes only grow. */
static inline bool range_valid(struct larder_index *idx, u64 sector, u32 len)
{
	u64 sectors = smp_load_acquire(&idx->sectors);	/* pairs with larder_index_resize(): its root is seen, too */

	return len && sector < sectors && len <= sectors - sector && len <= LARDER_REGION_SECTORS - sector % LARDER_REGION_SECTORS;
}

static inline struct larder_shard *shard_of(struct larder_index *idx, u64 region)
{
	return &idx->shard[region / REGIONS_PER_GIB % NR_SHARDS];
}

/* Of a region that range_valid() knows; its shard is locked.  Spares are the caller's to set before and to free afterwards. */
static void edit_set(struct larder_edit *e, struct larder_index *idx, u64 region)
{
	u32 head;

	e->idx = idx;
	e->region = region;
	e->by = NULL;
	e->shard = shard_of(idx, region);
	e->gib = gib_find(idx, region / REGIONS_PER_GIB);
	e->page = rcu_dereference_protected(e->gib->page, lockdep_is_held(&e->shard->lock));
	e->old = e->page ? rcu_dereference_protected(e->page->region[edit_slot(e)], lockdep_is_held(&e->shard->lock)) : NULL;
	head = e->old ? e->old->head : 0;
	e->count = head_count(head);
	e->dirty = head_dirty(head);
	e->class = head_class(head);
	e->r = e->old;
}

static void edit_begin(struct larder_edit *e, struct larder_index *idx, u64 region)
	__acquires(&e->shard->lock)
{
	unsigned long flags;

	spin_lock_irqsave(&shard_of(idx, region)->lock, flags);
	edit_set(e, idx, region);
	e->flags = flags;
}

static void edit_end(struct larder_edit *e)
	__releases(&e->shard->lock)
{
	spin_unlock_irqrestore(&e->shard->lock, e->flags);
}

static inline u64 *edit_extents(struct larder_edit *e)
{
	return e->old ? e->old->extents : NULL;
}

/* An array for n extents and its class: the caller's, the allocator's, or one of the reserve.  NULL: not even that. */
static struct larder_region *edit_alloc(struct larder_edit *e, u32 n, u32 *class)
{
	struct larder_region *r = e->spare_region;
	u32 want = class_for(n);

	if (r && larder_caps[head_class(r->head)] >= n) {
		e->spare_region = NULL;
		*class = head_class(r->head);
		return r;
	}
	*class = want;
	r = region_alloc(want, GFP_NOWAIT | __GFP_NOWARN);
	if (!r && want <= CLASS_SMALL) {
		*class = CLASS_SMALL;
		r = stock_take(e->idx, STOCK_SMALL);
	}
	if (!r) {
		*class = CLASS_LARGE;
		r = stock_take(e->idx, STOCK_LARGE);
		if (r && want < CLASS_LARGE)
			stock_lend(&e->idx->stock, e->region);
	}
	return r;
}

static struct larder_page *edit_alloc_page(struct larder_edit *e)
{
	struct larder_page *page = e->spare_page;

	if (page) {
		e->spare_page = NULL;
		return page;
	}
	page = kzalloc(sizeof(*page), GFP_NOWAIT | __GFP_NOWARN);
	if (page)
		return page;
	page = stock_take(e->idx, STOCK_PAGE);
	if (page)
		memset(page, 0, sizeof(*page));
	return page;
}

/*
 * Decides where the region's new extents are built: in place if 'room' of them fit (the most that are there at any time), else in a
 * new array for n.  n == 0: nothing is needed.  After success edit_commit() must follow.  -ENOMEM: nothing has changed.
 */
static int edit_room(struct larder_edit *e, u32 room, u32 n)
{
	if (!n) {
		e->r = NULL;
		return 0;
	}
	if (e->old && room <= larder_caps[e->class])
		return 0;

	if (!e->page) {
		e->page = edit_alloc_page(e);
		if (!e->page)
			return -ENOMEM;
	}
	e->r = edit_alloc(e, n, &e->class);
	if (!e->r) {
		if (!rcu_access_pointer(e->gib->page))
			kfree(e->page);
		return -ENOMEM;
	}
	seqcount_spinlock_init(&e->r->seq, &e->shard->lock);
	e->shard->bytes += class_bytes(e->class);
	return 0;
}

/*
 * Around the change of the region, in place or by another array: readers of the one that is there wait from here on, so that none
 * gives an answer that has been reported as gone.
 */
static inline void edit_open(struct larder_edit *e)
{
	if (e->old)
		write_seqcount_begin(&e->old->seq);
}

static inline void edit_close(struct larder_edit *e, u32 count, u32 dirty)
{
	if (!e->r)
		return;
	WRITE_ONCE(e->r->head, head_pack(count, dirty, e->class));
	if (e->r == e->old)
		write_seqcount_end(&e->r->seq);
}

/* After edit_open().  Makes the region's pointer r (NULL: none), retires what it was; the page comes and goes with its regions. */
static void edit_publish(struct larder_edit *e, struct larder_region *r)
{
	struct larder_gib *gib = e->gib;

	rcu_assign_pointer(e->page->region[edit_slot(e)], r);
	if (r && !e->old)
		gib->regions++;
	if (!rcu_access_pointer(gib->page)) {
		e->shard->bytes += sizeof(*e->page);
		rcu_assign_pointer(gib->page, e->page);
	}
	if (e->old) {
		bool last = !r && --gib->regions == 0;

		if (last)
			RCU_INIT_POINTER(gib->page, NULL);
		write_seqcount_end(&e->old->seq);	/* its readers find that it is not the region's any more */
		if (last) {
			retire_page(e->shard, e->page);
			e->page = NULL;
		}
		retire_region(e->shard, e->old);
	}
	e->old = r;
}

/* Two classes too large is too large.  It stays as it is when there is no memory. */
static void edit_shrink(struct larder_edit *e)
{
	u32 class = class_for(e->count), n = e->count;
	struct larder_region *r = e->spare_region;

	if (r && larder_caps[head_class(r->head)] >= n) {
		e->spare_region = NULL;
		class = head_class(r->head);
	} else {
		r = region_alloc(class, GFP_NOWAIT | __GFP_NOWARN);
	}
	if (!r)
		return;
	seqcount_spinlock_init(&r->seq, &e->shard->lock);
	r->head = head_pack(n, e->dirty, class);
	memcpy(r->extents, e->old->extents, n * sizeof(u64));
	e->shard->bytes += class_bytes(class);
	e->class = class;
	edit_open(e);
	edit_publish(e, r);
}

/* A region had 'was' dirty extents, and has 'now'. */
static inline void gib_count_dirty(struct larder_gib *gib, u32 was, u32 now)
{
	if (!was != !now)
		WRITE_ONCE(gib->dirty, gib->dirty + (now ? 1 : -1));
}

/* The array is written: count extents, dirty of them dirty.  Makes it the region's, and keeps the sums. */
static void edit_commit(struct larder_edit *e, u32 count, u32 dirty)
{
	bool in_place = e->r && e->r == e->old;

	e->shard->extents += (s64)count - e->count;
	gib_count_dirty(e->gib, e->dirty, dirty);
	edit_close(e, count, dirty);
	if (!in_place)
		edit_publish(e, e->r);
	e->count = count;
	e->dirty = dirty;
	if (in_place && e->class >= 2 && count <= larder_caps[e->class - 2])
		edit_shrink(e);
}

/* What was there, an extent or a part of one, becomes 'now'. */
static inline void report(struct larder_index *idx, u64 region, u64 was, u8 now, void *by)
{
	struct larder_map m = map_of(region, was);

	if (idx->change)
		idx->change(idx->ctx, &m, now, by);
}

static inline void edit_report(struct larder_edit *e, u64 was, u8 now)
{
	report(e->idx, e->region, was, now, e->by);
}

/* ------------------------------------------------------------------ store */

/* Extents [from, to) of a region become the k in out. */
struct larder_splice {
	u32 from, to, k;
	u64 out[3];
};

/*
 * What [a, b) being replaced by 'put' (0: by nothing) does to the n extents: those in [lo, hi) are touched, ends that stick out
 * stay, and what goes on merges.
 */
static void splice_plan(const u64 *ext, u32 n, u32 a, u32 b, u32 lo, u32 hi, u64 put, struct larder_splice *s)
{
	u64 left = 0, right = 0;

	s->from = lo;
	s->to = hi;
	s->k = 0;
	if (lo < hi && larder_extent_first(ext[lo]) < a)
		left = extent_cut(ext[lo], larder_extent_first(ext[lo]), a);
	else if (put && lo && extent_joins(ext[lo - 1], put))
		left = ext[--s->from];
	if (lo < hi && extent_end(ext[hi - 1]) > b)
		right = extent_cut(ext[hi - 1], b, extent_end(ext[hi - 1]));
	else if (put && hi < n && extent_joins(put, ext[hi]))
		right = ext[s->to++];

	if (put && extent_joins(left, put)) {
		put = extent_join(left, put);
		left = 0;
	}
	if (put && right && extent_joins(put, right)) {
		put = extent_join(put, right);
		right = 0;
	}
	if (left)
		s->out[s->k++] = left;
	if (put)
		s->out[s->k++] = put;
	if (right)
		s->out[s->k++] = right;
}

static void splice_apply(struct larder_edit *e, const struct larder_splice *s)
{
	const u64 *src = edit_extents(e);
	u64 *dst = e->r->extents;
	u32 i, n = e->count;

	if (dst != src && s->from)
		memcpy(dst, src, s->from * sizeof(u64));
	if (n > s->to && (dst != src || s->from + s->k != s->to))
		memmove(dst + s->from + s->k, src + s->to, (n - s->to) * sizeof(u64));
	for (i = 0; i < s->k; i++)
		WRITE_ONCE(dst[s->from + i], s->out[i]);
}

static int edit_store(struct larder_edit *e, u32 a, u32 b, u64 put)
{
	const u64 *ext = edit_extents(e);
	u32 lo = extents_search(ext, e->count, a), hi = lo, i, n, dirty = e->dirty;
	struct larder_splice s;
	int ret;

	while (hi < e->count && larder_extent_first(ext[hi]) < b)
		hi++;
	if (lo == hi && !put)
		return 0;
	splice_plan(ext, e->count, a, b, lo, hi, put, &s);
	n = e->count - (s.to - s.from) + s.k;
	ret = edit_room(e, n, n);
	if (ret)
		return ret;

	edit_open(e);
	/* not before: who looks up after a report finds the range gone, or waits for that */
	for (i = lo; i < hi; i++)
		edit_report(e, extent_cut(ext[i], max(a, larder_extent_first(ext[i])), min(b, extent_end(ext[i]))), LARDER_ST_NONE);
	for (i = s.from; i < s.to; i++)
		dirty -= extent_dirty(ext[i]);
	for (i = 0; i < s.k; i++)
		dirty += extent_dirty(s.out[i]);
	if (n)
		splice_apply(e, &s);
	edit_commit(e, n, dirty);
	return 0;
}

/*
 * Shard locked.  What most writes are: one extent of the region has the bounds of 'put', and that merges with neither neighbour:
 * one store, which a reader sees or does not see.  False: it is not so.
 */
static __always_inline bool store_exact(struct larder_index *idx, struct larder_gib *gib, u64 region, u32 a, u64 put, void *by)
{
	struct larder_shard *shard = shard_of(idx, region);
	struct larder_region *r;
	struct larder_page *page;
	u32 head, n, i, dirty;
	u64 *ext, was;

	page = rcu_dereference_protected(gib->page, lockdep_is_held(&shard->lock));
	r = page ? rcu_dereference_protected(page->region[region % REGIONS_PER_GIB], lockdep_is_held(&shard->lock)) : NULL;
	if (BITS_PER_LONG < 64 || !r || !put)
		return false;
	head = r->head;
	n = head_count(head);
	ext = r->extents;
	i = extents_search(ext, n, a);
	if (i == n)
		return false;
	was = ext[i];
	if (((was ^ put) & 0xffffff) || (i && extent_joins(ext[i - 1], put)) || (i + 1 < n && extent_joins(put, ext[i + 1])))
		return false;
	WRITE_ONCE(ext[i], put);
	report(idx, region, was, LARDER_ST_NONE, by);
	dirty = head_dirty(head) - extent_dirty(was) + extent_dirty(put);
	if (dirty != head_dirty(head)) {
		gib_count_dirty(gib, head_dirty(head), dirty);
		write_seqcount_begin(&r->seq);
		WRITE_ONCE(r->head, head_pack(n, dirty, head_class(head)));
		write_seqcount_end(&r->seq);
	}
	return true;
}

/* Shard locked: any other one. */
static noinline int store_edit(struct larder_index *idx, u64 region, u32 a, u32 b, u64 put, void *by)
{
	struct larder_edit e;

	e.spare_page = NULL;
	e.spare_region = NULL;
	edit_set(&e, idx, region);
	e.by = by;
	return edit_store(&e, a, b, put);
}

int larder_index_store(struct larder_index *idx, u64 sector, u32 len, u64 cache, u8 state, void *by)
{
	u64 region = sector >> LARDER_REGION_SHIFT, put;
	u32 a = sector & (LARDER_REGION_SECTORS - 1);
	struct larder_shard *shard;
	unsigned long flags;
	int ret = 0;

	if (WARN_ON_ONCE(!range_valid(idx, sector, len) || state > LARDER_ST_ZERO_CLEANING || cache >> LARDER_CACHE_SECTOR_BITS))
		return -EINVAL;
	put = state == LARDER_ST_NONE ? 0 : larder_extent_pack(a, len, state, cache);
	shard = shard_of(idx, region);
	spin_lock_irqsave(&shard->lock, flags);
	if (!store_exact(idx, gib_find(idx, region / REGIONS_PER_GIB), region, a, put, by))
		ret = store_edit(idx, region, a, a + len, put, by);
	spin_unlock_irqrestore(&shard->lock, flags);
	return ret;
}

/* ------------------------------------------------------------------ change */

struct larder_wish {
	u32 a, b;			/* sectors of the region */
	u32 from;			/* mask of states */
	u64 cache, to_cache;		/* of sector a; ZERO*: the serial */
	u8 to_state;
};

/* What becomes of a piece within [a, b): itself, another one, or 0, nothing. */
static u64 wish_apply(const struct larder_wish *w, u64 piece)
{
	u32 first = larder_extent_first(piece);
	u8 state = larder_extent_state(piece);
	u64 cache = w->cache, to = w->to_cache;

	if (!larder_state_zero(state))
		cache += first - w->a;
	if (!((w->from >> state) & 1) || larder_extent_cache(piece) != cache)
		return piece;
	if (w->to_state == LARDER_ST_NONE)
		return 0;
	if (!larder_state_zero(w->to_state))
		to += first - w->a;
	return larder_extent_pack(first, larder_extent_len(piece), w->to_state, to);
}

/* Extents as they come out, merging: into ext, or just counted (NULL). */
struct larder_output {
	u64 *ext;
	u64 last;			/* 0: none */
	u32 n;
	s32 dirty;			/* more of them than went in */
};

static void output_put(struct larder_output *o, u64 x)
{
	if (extent_joins(o->last, x)) {
		o->last = extent_join(o->last, x);
	} else {
		o->n++;
		o->last = x;
		o->dirty += extent_dirty(x);
	}
	if (o->ext)
		WRITE_ONCE(o->ext[o->n - 1], o->last);
}

static u8 wish_now(u64 was, u64 now)
{
	bool same = now && larder_extent_cache(was) == larder_extent_cache(now) &&
		    larder_state_zero(larder_extent_state(was)) == larder_state_zero(larder_extent_state(now));

	return same ? larder_extent_state(now) : LARDER_ST_NONE;
}

/*
 * Sends extents [lo, hi) of src through the wish into o.  Sectors changed are returned, *peak is how many extents more than read
 * had been written at the worst moment.  report: also calls change().
 */
static u32 wish_run(struct larder_edit *e, const struct larder_wish *w, const u64 *src, u32 lo, u32 hi, struct larder_output *o,
		    u32 *peak, bool report)
{
	u32 i, a, b, changed = 0;
	u64 x, piece, now;

	for (i = lo; i < hi; i++) {
		x = src[i];
		a = max(w->a, larder_extent_first(x));
		b = min(w->b, extent_end(x));
		piece = a < b ? extent_cut(x, a, b) : 0;
		now = piece ? wish_apply(w, piece) : 0;
		o->dirty -= extent_dirty(x);
		if (now == piece) {
			output_put(o, x);
		} else {
			changed += b - a;
			if (report)
				edit_report(e, piece, wish_now(piece, now));
			if (larder_extent_first(x) < a)
				output_put(o, extent_cut(x, larder_extent_first(x), a));
			if (now)
				output_put(o, now);
			if (extent_end(x) > b)
				output_put(o, extent_cut(x, b, extent_end(x)));
		}
		if (o->n > i + 1)
			*peak = max(*peak, o->n - (i + 1));
	}
	return changed;
}

/* Runs it twice: to count, then to write, in place behind a gap of 'peak' extents, so that writing never overtakes reading. */
static int edit_change(struct larder_edit *e, const struct larder_wish *w)
{
	u64 *src = edit_extents(e), *dst;
	u32 lo = extents_search(src, e->count, w->a), hi = lo, peak = 0, n, changed;
	struct larder_output count = { .last = lo ? src[lo - 1] : 0, .n = lo }, o = count;
	int ret;

	while (hi < e->count && larder_extent_first(src[hi]) < w->b)
		hi++;
	if (hi < e->count)
		hi++;		/* the last one changed may merge with it */
	changed = wish_run(e, w, src, lo, hi, &count, &peak, false);
	if (!changed)
		return 0;
	n = count.n + e->count - hi;
	ret = edit_room(e, e->count + peak, n);
	if (ret)
		return ret;

	edit_open(e);
	dst = n ? e->r->extents : NULL;
	if (dst == src) {
		if (peak)
			memmove(src + lo + peak, src + lo, (e->count - lo) * sizeof(u64));
		src += peak;
	} else if (dst) {
		memcpy(dst, src, lo * sizeof(u64));
	}
	o.ext = dst;
	wish_run(e, w, src, lo, hi, &o, &peak, true);
	if (dst && dst + o.n != src + hi)
		memmove(dst + o.n, src + hi, (e->count - hi) * sizeof(u64));
	edit_commit(e, n, e->dirty + o.dirty);
	return changed;
}

int larder_index_change(struct larder_index *idx, u64 sector, u32 len, u64 cache, u32 from, u64 to_cache, u8 to_state)
{
	u32 a = sector & (LARDER_REGION_SECTORS - 1);
	struct larder_wish w = {
		.a = a, .b = a + len, .cache = cache, .from = from, .to_cache = to_cache, .to_state = to_state,
	};
	struct larder_edit e;
	int ret = 0;

	if (WARN_ON_ONCE(!range_valid(idx, sector, len) || to_state > LARDER_ST_ZERO_CLEANING ||
			 to_cache >> LARDER_CACHE_SECTOR_BITS))
		return -EINVAL;
	e.spare_page = NULL;
	e.spare_region = NULL;
	edit_begin(&e, idx, sector >> LARDER_REGION_SHIFT);
	if (e.old)
		ret = edit_change(&e, &w);
	edit_end(&e);
	return ret;
}

/* ------------------------------------------------------------------ whole regions */

/* In core only states have no place on disk: they are what they will be after a replay. */
static u64 extent_on_disk(u64 e)
{
	u8 state = larder_extent_state(e);

	if (state == LARDER_ST_CLEANING)
		state = LARDER_ST_DIRTY;
	else if (state == LARDER_ST_ZERO_CLEANING)
		state = LARDER_ST_ZERO;
	return larder_extent_pack(larder_extent_first(e), larder_extent_len(e), state, larder_extent_cache(e));
}

u32 larder_index_copy_region(struct larder_index *idx, u64 *region, u64 *extents)
{
	u64 sectors = smp_load_acquire(&idx->sectors);	/* pairs with larder_index_resize() */
	u64 end = DIV_ROUND_UP_ULL(sectors, LARDER_REGION_SECTORS), at;
	struct larder_region __rcu **slot;
	struct larder_gib *gib;
	struct larder_edit e;
	u32 i, n = 0;
	bool used;

	for (at = *region; at < end && !n; at++) {
		rcu_read_lock();
		gib = gib_find(idx, at / REGIONS_PER_GIB);
		if (!rcu_access_pointer(gib->page))
			at |= REGIONS_PER_GIB - 1;
		used = region_find(gib, at, &slot);
		rcu_read_unlock();
		if (!used)
			continue;
		edit_begin(&e, idx, at);
		n = e.count;
		for (i = 0; i < n; i++)
			extents[i] = extent_on_disk(e.old->extents[i]);
		edit_end(&e);
		*region = at;
	}
	return n;
}

int larder_index_check_region(u64 volume_sectors, u64 region, const u64 *extents, u32 n, u64 nr_cache_sectors)
{
	u64 left, cache;
	u32 i, end = 0;

	if (n > LARDER_REGION_SECTORS || region > U64_MAX >> LARDER_REGION_SHIFT ||
	    region << LARDER_REGION_SHIFT >= volume_sectors)
		return -EINVAL;
	left = min_t(u64, volume_sectors - (region << LARDER_REGION_SHIFT), LARDER_REGION_SECTORS);
	for (i = 0; i < n; i++) {
		u64 e = extents[i];

		if (larder_extent_first(e) < end)
			return -EINVAL;
		end = extent_end(e);
		if (end > left)
			return -EINVAL;
		switch (larder_extent_state(e)) {
		case LARDER_ST_ZERO:
			break;
		case LARDER_ST_CLEAN:
		case LARDER_ST_DIRTY:
			cache = larder_extent_cache(e);
			if (cache >= nr_cache_sectors || larder_extent_len(e) > nr_cache_sectors - cache)
				return -EINVAL;
			break;
		default:
			return -EINVAL;
		}
	}
	return 0;
}

/* Sleeps.  An array and a page for a caller that will need them; class as in head.  Frees what is left with spares_free(). */
static int spares_get(struct larder_edit *e, u32 class, bool page)
{
	unsigned int noio = memalloc_noio_save();

	e->spare_region = region_alloc(class, GFP_KERNEL);
	e->spare_page = page ? kzalloc(sizeof(struct larder_page), GFP_KERNEL) : NULL;
	memalloc_noio_restore(noio);
	if (e->spare_region)
		e->spare_region->head = head_pack(0, 0, class);
	return e->spare_region && (e->spare_page || !page) ? 0 : -ENOMEM;
}

static void spares_free(struct larder_edit *e, u32 class)
{
	if (e->spare_region)
		region_free(e->spare_region, class);
	kfree(e->spare_page);
}

int larder_index_load_region(struct larder_index *idx, u64 region, const u64 *extents, u32 n)
{
	struct larder_edit e;
	u32 class, i, dirty = 0;
	bool page;
	int ret;

	if (!n)
		return 0;
	if (WARN_ON_ONCE(n > LARDER_REGION_SECTORS || region > U64_MAX >> LARDER_REGION_SHIFT ||
			 !range_valid(idx, region << LARDER_REGION_SHIFT, 1)))
		return -EINVAL;
	class = class_for(n);
	rcu_read_lock();
	page = !rcu_access_pointer(gib_find(idx, region / REGIONS_PER_GIB)->page);
	rcu_read_unlock();
	ret = spares_get(&e, class, page);
	if (ret)
		goto out;
	edit_begin(&e, idx, region);
	ret = e.old ? -EEXIST : edit_room(&e, n, n);
	if (!ret) {
		memcpy(e.r->extents, extents, n * sizeof(u64));
		for (i = 0; i < n; i++) {
			dirty += extent_dirty(extents[i]);
			edit_report(&e, extents[i], larder_extent_state(extents[i]));
		}
		edit_commit(&e, n, dirty);
	}
	edit_end(&e);
out:
	spares_free(&e, class);
	return ret;
}

/* ------------------------------------------------------------------ the reserve */

/* Sleeps.  Gives the region an array of its size, if it still has the large one. */
static int loan_repay(struct larder_index *idx, u64 region)
{
	struct larder_edit e;
	u32 class = CLASS_LARGE;
	bool large;
	int ret;

	e.spare_page = NULL;
	e.spare_region = NULL;
	for (;;) {
		edit_begin(&e, idx, region);
		large = e.old && e.class == CLASS_LARGE && class_for(e.count) < CLASS_LARGE;
		if (large && e.spare_region && larder_caps[class] >= e.count)
			edit_shrink(&e);
		large = large && e.class == CLASS_LARGE;
		edit_end(&e);
		spares_free(&e, class);
		if (!large)
			return 0;
		class = class_for(e.count);
		ret = spares_get(&e, class, false);
		if (ret)
			return ret;
	}
}

static int loans_repay(struct larder_index *idx)
{
	struct larder_stock *s = &idx->stock;
	unsigned long flags;
	u64 region;
	int ret;

	for (;;) {
		spin_lock_irqsave(&s->lock, flags);
		if (!s->nr_loans) {
			spin_unlock_irqrestore(&s->lock, flags);
			return 0;
		}
		region = s->loans[--s->nr_loans];
		spin_unlock_irqrestore(&s->lock, flags);
		ret = loan_repay(idx, region);
		if (ret) {
			stock_lend(s, region);
			return ret;
		}
	}
}

bool larder_index_low(struct larder_index *idx)
{
	const struct larder_stock *s = &idx->stock;
	u32 k;

	for (k = 0; k < NR_STOCKS; k++)
		if (READ_ONCE(s->count[k]) < larder_stock_goal[k] / 2)
			return true;
	return false;
}

/* Two at once may leave a piece or two more than the goal. */
static int stock_fill(struct larder_stock *s, gfp_t gfp)
{
	void *p;
	u32 k;

	for (k = 0; k < NR_STOCKS; k++) {
		while (READ_ONCE(s->count[k]) < larder_stock_goal[k]) {
			p = stock_alloc(k, gfp);
			if (!p)
				return -ENOMEM;
			stock_put(s, k, p);
		}
	}
	return 0;
}

int larder_index_refill(struct larder_index *idx)
{
	unsigned int noio = memalloc_noio_save();
	int ret = stock_fill(&idx->stock, GFP_KERNEL);

	memalloc_noio_restore(noio);
	return ret ?: loans_repay(idx);
}

int larder_index_refill_stalled(struct larder_index *idx)
{
	unsigned int noreclaim = memalloc_noreclaim_save();
	int ret = stock_fill(&idx->stock, GFP_KERNEL | __GFP_NOWARN);

	memalloc_noreclaim_restore(noreclaim);
	return ret;
}

/* ------------------------------------------------------------------ life */

static inline u64 root_blocks(u64 gibs)
{
	return DIV_ROUND_UP_ULL(gibs, GIBS_PER_BLOCK);
}

/* Frees a root and its blocks from number 'from' on. */
static void root_free(struct larder_root *root, u64 from)
{
	u64 i;

	for (i = from; i < root_blocks(root->gibs); i++)
		kfree(root->block[i]);
	kvfree(root);
}

/*
 * Sleeps.  A root for a volume of so many sectors that takes over the blocks of old (may be NULL).  NULL: no memory, or too large a
 * volume.
 */
static struct larder_root *root_create(u64 sectors, const struct larder_root *old, u64 *bytes)
{
	u64 gibs = DIV_ROUND_UP_ULL(sectors, 1ull << GIB_SHIFT), n = root_blocks(gibs), have = old ? root_blocks(old->gibs) : 0, i;
	struct larder_root *root;

	if (sectors > LARDER_INDEX_MAX_SECTORS)
		return NULL;
	root = kvzalloc(struct_size(root, block, n), GFP_KERNEL);
	if (!root)
		return NULL;
	root->gibs = gibs;
	for (i = 0; i < n; i++) {
		root->block[i] = i < have ? old->block[i] : kzalloc(sizeof(struct larder_block), GFP_KERNEL);
		if (!root->block[i]) {
			root_free(root, have);
			return NULL;
		}
		cond_resched();
	}
	*bytes = struct_size(root, block, n) + n * sizeof(struct larder_block);
	return root;
}

struct larder_index *larder_index_create(u64 sectors, larder_index_change_fn change, larder_index_low_fn low, void *ctx)
{
	struct larder_index *idx = kvzalloc(sizeof(*idx), GFP_KERNEL);
	struct larder_root *root;
	u64 bytes;
	u32 i;

	if (!idx)
		return NULL;
	root = root_create(sectors, NULL, &bytes);
	if (!root) {
		kvfree(idx);
		return NULL;
	}
	RCU_INIT_POINTER(idx->root, root);
	idx->base_bytes = bytes + sizeof(*idx);
	idx->sectors = sectors;
	idx->change = change;
	idx->low = low;
	idx->ctx = ctx;
	mutex_init(&idx->mutex);
	spin_lock_init(&idx->stock.lock);
	for (i = 0; i < NR_SHARDS; i++)
		spin_lock_init(&idx->shard[i].lock);
	if (larder_index_refill(idx)) {
		larder_index_destroy(idx);
		return NULL;
	}
	return idx;
}

int larder_index_resize(struct larder_index *idx, u64 sectors)
{
	struct larder_root *root, *old;
	u64 bytes;
	int ret = 0;

	mutex_lock(&idx->mutex);
	if (sectors < idx->sectors || sectors > LARDER_INDEX_MAX_SECTORS) {
		ret = -EINVAL;
		goto out;
	}
	old = rcu_dereference_protected(idx->root, lockdep_is_held(&idx->mutex));
	root = root_create(sectors, old, &bytes);
	if (!root) {
		ret = -ENOMEM;
		goto out;
	}
	rcu_assign_pointer(idx->root, root);
	smp_store_release(&idx->sectors, sectors);	/* pairs with range_valid() and larder_index_copy_region() */
	WRITE_ONCE(idx->base_bytes, bytes + sizeof(*idx));
	synchronize_rcu();
	kvfree(old);
out:
	mutex_unlock(&idx->mutex);
	return ret;
}

static void gib_destroy(struct larder_gib *gib)
{
	struct larder_page *page = rcu_dereference_protected(gib->page, 1);
	u32 i;

	if (!page)
		return;
	for (i = 0; i < REGIONS_PER_GIB; i++) {
		struct larder_region *r = rcu_dereference_protected(page->region[i], 1);

		if (r)
			region_free(r, head_class(r->head));
	}
	kfree(page);
}

void larder_index_destroy(struct larder_index *idx)
{
	struct larder_root *root = rcu_dereference_protected(idx->root, 1);
	void *p;
	u64 i;
	u32 k;

	for (i = 0; i < root->gibs; i++) {
		gib_destroy(&root->block[i / GIBS_PER_BLOCK]->gib[i % GIBS_PER_BLOCK]);
		cond_resched();
	}
	root_free(root, 0);
	for (k = 0; k < NR_STOCKS; k++)
		while ((p = stock_pop(&idx->stock, k)))
			stock_free(k, p);
	mutex_destroy(&idx->mutex);
	kvfree(idx);
}

u64 larder_index_base_bytes(u64 sectors)
{
	u64 n = root_blocks(DIV_ROUND_UP_ULL(sectors, 1ull << GIB_SHIFT));

	return sizeof(struct larder_index) + sizeof(struct larder_root) +
	       n * (sizeof(struct larder_block *) + sizeof(struct larder_block));
}

u64 larder_index_bytes(struct larder_index *idx)
{
	u64 bytes = READ_ONCE(idx->base_bytes);
	u32 i;

	for (i = 0; i < NR_SHARDS; i++)
		bytes += READ_ONCE(idx->shard[i].bytes);
	for (i = 0; i < NR_STOCKS; i++)
		bytes += READ_ONCE(idx->stock.count[i]) * stock_bytes(i);
	return bytes;
}

u64 larder_index_extents(struct larder_index *idx)
{
	u64 n = 0;
	u32 i;

	for (i = 0; i < NR_SHARDS; i++)
		n += READ_ONCE(idx->shard[i].extents);
	return n;
}

int larder_index_init(void)
{
	char name[32];
	u32 i;

	BUILD_BUG_ON(NR_CLASSES > 64);
	for (i = 0; i < CLASS_LARGE; i++) {
		snprintf(name, sizeof(name), "larder_extents_%u", larder_caps[i]);
		larder_caches[i] = kmem_cache_create(name, class_bytes(i), sizeof(u64), 0, NULL);
		if (!larder_caches[i]) {
			larder_index_exit();
			return -ENOMEM;
		}
	}
	return 0;
}

void larder_index_exit(void)
{
	u32 i;

	rcu_barrier();		/* arrays and pages that wait for a grace period; our callbacks are module text */
	for (i = 0; i < CLASS_LARGE; i++) {
		kmem_cache_destroy(larder_caches[i]);
		larder_caches[i] = NULL;
	}
}
