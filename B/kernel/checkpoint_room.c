// SPDX-License-Identifier: GPL-2.0-only
/*
 * How large a checkpoint is, when one is due, and the free segments that are kept for it: so that a checkpoint, and a start, finds
 * space whatever the cache holds.
 */
#include "larder.h"

/* *least: no more than it takes, with no chunk partly filled, and without the heads of items, of which there may be fewer. */
static u64 estimate(struct cache *c, u64 *least)
{
	u64 heads = 0, extents;
	struct volume *v;
	u32 i;

	*least = (u64)c->nr_segments * sizeof(struct larder_segment_info);
	rcu_read_lock();	/* not super_lock: a table may be being written under that */
	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = rcu_dereference_raw(c->volumes[i]);
		if (!v)
			continue;
		extents = larder_index_extents(v->index);
		*least += extents * sizeof(u64);
		heads += min(extents, v->sectors / LARDER_REGION_SECTORS + 1);
	}
	rcu_read_unlock();
	return LARDER_CHUNK_SIZE + *least + heads * sizeof(struct larder_item);
}

u64 checkpoint_estimate(struct cache *c)
{
	u64 least;

	return estimate(c, &least);
}

/*
 * Slots of replay that make one due.  At most a quarter of the segments that there are for it, units: those with records of two
 * such ranges cannot be reused.
 */
u64 checkpoint_limit(struct cache *c, u32 units)
{
	u64 total = (u64)c->nr_segments * c->segment_slots;
	u64 limit = div_u64(total * READ_ONCE(c->set.checkpoint_percent), 100);

	limit = max(limit, 2 * READ_ONCE(c->named[0].bytes) / LARDER_SLOT_SIZE);
	return min(limit, (u64)units * c->segment_slots / 4);
}

/*
 * Two are named, one is being written, the log needs as much as two, and items do not fill their chunks: a sixth of what there is
 * for all of it, but for what is opened.
 */
u64 checkpoint_most(struct cache *c)
{
	u32 units = segments_units(c, NULL), opened = segments_opened_goal(c);

	return (u64)max(units - min(units, opened), units / 2) * c->segment_slots / 6 * LARDER_SLOT_SIZE;
}

static u32 chunk_segments(const struct cache *c, u64 bytes)
{
	u32 segment = c->segment_sectors << SECTOR_SHIFT;

	return div_u64(bytes + segment - 1, segment);
}

/*
 * Segments for the next one, of so many that there are for it and the log: half as much again as this one, what the index may grow
 * by until it is due (a write of one slot may add two extents), and two.
 */
static u32 checkpoint_needs(struct cache *c, u32 units)
{
	u64 growth = checkpoint_limit(c, units) * 2 * sizeof(u64), now = READ_ONCE(c->checkpoint_bytes);

	return chunk_segments(c, now + now / 2 + growth) + 2;
}

/*
 * They are kept free.  A checkpoint, and so a start, finds space whatever the cache holds.  Once a second by the indexes as they
 * are: zeroes need no slots, so that they may grow by far more than writes let them.
 */
void checkpoint_set_reserve(struct cache *c, u64 bytes)
{
	u32 units = segments_units(c, NULL), reserve, roles = READ_ONCE(c->reserve_roles);

	WRITE_ONCE(c->checkpoint_bytes, max(bytes, READ_ONCE(c->named[0].bytes)));
	reserve = min(checkpoint_needs(c, units), units / 4);
	WRITE_ONCE(c->reserve_checkpoint, reserve);
	/* with a margin on the way down, or roles could be honoured, and not, by turns */
	if (reserve > roles || reserve + max(roles / 8, 1u) < roles)
		WRITE_ONCE(c->reserve_roles, reserve);
}

bool checkpoint_has_room(struct cache *c)
{
	u64 least, most = 2 * estimate(c, &least);	/* an item is at most half a chunk */
	u32 wanted = max(chunk_segments(c, least), 1u);

	/* one has found out that it takes more, and the index is not much smaller by now */
	wanted = max(wanted, min(READ_ONCE(c->checkpoint_tried), chunk_segments(c, most)));
	return segments_free_all(c, USE_LOG) >= wanted;
}

bool checkpoint_fits(struct cache *c, u32 units)
{
	return units >= max(LARDER_MIN_SEGMENTS, segments_opened_goal(c) + 3 * checkpoint_needs(c, units));
}
