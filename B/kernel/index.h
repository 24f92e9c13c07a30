/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The index: volume sectors -> cache sectors and a state, one index per volume.
 *
 * Two levels: a directory by GiB -> a page of 512 pointers -> for each 2 MiB region of the volume a sorted array of 8-byte
 * extents (larder_format.h) in size classes.  Readers: RCU and a seqcount, no lock, no write to shared memory.  Writers: one
 * region at a time under its lock (a hashed, irq-safe spin lock).  Overwriting an extent exactly is one 8-byte store.
 * Pure: no block layer in here; includes pure.h and larder_format.h only.
 */
#ifndef LARDER_INDEX_H
#define LARDER_INDEX_H

#include "pure.h"
#include "larder_format.h"

struct larder_index;

/* What a look-up found, or a writer removed: sectors [sector, sector + len). */
struct larder_map {
	u64 sector;		/* volume sector */
	u64 cache;		/* linear cache sector of the first one; ZERO*: the serial number; NONE: 0 */
	u32 len;		/* sectors */
	u8 state;		/* enum larder_extent_state; NONE: a hole */
};

static inline bool larder_state_dirty(u8 st) { return st >= LARDER_ST_DIRTY; }
static inline bool larder_state_zero(u8 st) { return st == LARDER_ST_ZERO || st == LARDER_ST_ZERO_CLEANING; }

/*
 * Called by writers for each piece that changes, under the region's lock, interrupts off: 'was' is what was there (never NONE),
 * 'now' the new state of just these sectors (NONE: gone; a piece replaced by another mapping, or by any larder_index_store():
 * NONE).  A change that leaves all as it was is not reported, so was->state == now means a bulk load.  by: what
 * larder_index_store() was given, else NULL.  May not sleep, may not call the index.
 */
typedef void (*larder_index_change_fn)(void *ctx, const struct larder_map *was, u8 now, void *by);

/* Called by writers, as change(), who find half of the reserve gone: it should be filled up in process context.  May be NULL. */
typedef void (*larder_index_low_fn)(void *ctx);

#define LARDER_INDEX_MAX_SECTORS	LARDER_MAX_VOLUME_SECTORS

/* Sleeps.  sectors: of the volume.  ctx is given to change() and low().  NULL: no memory, or more than that. */
struct larder_index *larder_index_create(u64 sectors, larder_index_change_fn change, larder_index_low_fn low, void *ctx);
/* Sleeps; no reader or writer may be left.  change() is not called. */
void larder_index_destroy(struct larder_index *idx);
/* Sleeps.  The volume has grown. */
int larder_index_resize(struct larder_index *idx, u64 sectors);

/*
 * Any context, lock-free.  The first piece of [sector, sector + len): an extent's part, or a hole, clipped to the range.  A hole
 * ends at the region's end at the latest.  len > 0.
 */
void larder_index_lookup(struct larder_index *idx, u64 sector, u32 len, struct larder_map *out);
/* The same, under rcu_read_lock() already. */
void larder_index_lookup_rcu(struct larder_index *idx, u64 sector, u32 len, struct larder_map *out);
/*
 * Any context, under rcu_read_lock(), lock-free.  If one extent that is in the cache has all of [sector, sector + len): its state,
 * and in *cache the cache sector.  Else NONE.
 */
u8 larder_index_find_rcu(struct larder_index *idx, u64 sector, u32 len, u64 *cache);

/*
 * Any context, interrupts too.  Maps [sector, sector + len), which lies in ONE 2 MiB region, to cache.. with state; what was there
 * is reported by change() and replaced; neighbours that continue one another merge (ZERO states: with equal serial).
 * state NONE: removes.  by: for change().
 * -ENOMEM: nothing has changed: the array could not grow, neither GFP_NOWAIT nor from the reserve (then: larder_index_refill() in
 * process context, and again).
 * -EINVAL and a warning: not in one region of the volume, or no such state or cache sector.
 * Replacing an extent exactly, or by fewer extents, never fails; removal fails only if it splits.
 */
int larder_index_store(struct larder_index *idx, u64 sector, u32 len, u64 cache, u8 state, void *by);

/*
 * Any context.  Within ONE region: each piece of [sector, sector + len) that is mapped exactly to (cache + its offset; ZERO*: to
 * the same serial) and is in one of the states of 'from' (a mask of 1 << state) gets mapping to_cache.. and to_state (NONE: is
 * removed).  to_cache == cache: only the state changes.  Returns the number of sectors changed, or -ENOMEM as above (nothing has
 * changed).
 */
int larder_index_change(struct larder_index *idx, u64 sector, u32 len, u64 cache, u32 from, u64 to_cache, u8 to_state);

/*
 * Any context.  The first extent at or behind sector whose state is in mask; false: none up to end.  Clipped to [sector, end).
 * Skips empty regions cheaply (a volume of 512 TiB with little in it is walked in well under a second).
 */
bool larder_index_next(struct larder_index *idx, u64 sector, u64 end, u32 mask, struct larder_map *out);

/*
 * Any context.  Copies the extents of the first region numbered >= *region that holds any, at most 4096 of them, in the on-disk
 * encoding (CPU order); sets *region to its number.  Returns how many; 0: no such region.
 */
u32 larder_index_copy_region(struct larder_index *idx, u64 *region, u64 *extents);

/*
 * Sleeps.  Bulk load: sets the extents of an EMPTY region as given (sorted, valid: larder_index_check_region() said so).  change()
 * is called with was->state being the extent's own state and now == state, for accounting.  -ENOMEM, -EEXIST.
 */
int larder_index_load_region(struct larder_index *idx, u64 region, const u64 *extents, u32 n);
/*
 * Pure: are n extents (CPU order) sorted, disjoint, in known on-disk states (CLEAN, DIRTY, ZERO), inside the volume and, with cache
 * sectors + length inside nr_cache_sectors (not ZERO)?  0 or -EINVAL.
 */
int larder_index_check_region(u64 volume_sectors, u64 region, const u64 *extents, u32 n, u64 nr_cache_sectors);

/* Is half of the reserve of a kind gone?  Any context. */
bool larder_index_low(struct larder_index *idx);
/* Sleeps, perhaps until memory has been reclaimed.  Fills the reserve up again (the largest class: 4,096 extents, 32 KiB). */
int larder_index_refill(struct larder_index *idx);
/*
 * The same for those on whom reclaim of memory may wait: sleeps, but does not reclaim, and may use what the kernel keeps for them
 * (up to 170 KiB).
 */
int larder_index_refill_stalled(struct larder_index *idx);

/* Any context: bytes allocated (the reserve too; without what waits for an RCU grace period); extents held. */
u64 larder_index_bytes(struct larder_index *idx);
/* Of one of so many sectors before anything is stored. */
u64 larder_index_base_bytes(u64 sectors);
u64 larder_index_extents(struct larder_index *idx);

/* Module-wide caches for the size classes (kmem_cache).  Sleep. */
int larder_index_init(void);
void larder_index_exit(void);

/* Encoding of an extent (larder_format.h), CPU order */
static inline u64 larder_extent_pack(u32 first, u32 len, u8 state, u64 cache)
{
	return (u64)first | (u64)(len - 1) << 12 | (u64)state << 24 | cache << 28;
}
static inline u32 larder_extent_first(u64 e) { return e & 0xfff; }
static inline u32 larder_extent_len(u64 e) { return ((e >> 12) & 0xfff) + 1; }
static inline u8 larder_extent_state(u64 e) { return (e >> 24) & 0xf; }
static inline u64 larder_extent_cache(u64 e) { return e >> 28; }

#endif
