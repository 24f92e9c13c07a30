// SPDX-License-Identifier: GPL-2.0-only
/*
 * Segments: their states and queues, what is live in them, and their opening.
 *
 *   FREE -> OPENING -> OPENED -> ACTIVE -> SEALED -> RECLAIMING -> WAITING -> FREE
 *     \-> CHECKPOINT -> FREE                \-> SEALED again (relinked)
 *
 * OPENING: SEGMENT_OPEN is appended to the write stream; OPENED: it is durable (rule 9), so that the segment may be written.
 * CHECKPOINT: chunks.  A named checkpoint may still map to a segment that became free after it.  For streams SEGMENT_OPEN drops
 * that; chunks are written without one where nothing is mapped.  So that there are such segments, what is longest free is at the
 * head of its list, and for chunks; streams take from the tail.
 * WAITING: nothing is mapped to it, but a reader may still be there, or a named checkpoint's replay may need its records.
 *
 * The number of sectors mapped to a segment (live, dirty) follows the indexes: every change of an index reports what it took away,
 * every store what it added.  A segment is pinned by readers, by writebacks, and by records whose entries are not in the index yet.
 */
#include "larder.h"
#include "trace.h"

int segments_create(struct cache *c)
{
	u32 i;

	c->segments = vcalloc(c->nr_segments, sizeof(*c->segments));	/* may be more than 2 GiB */
	if (!c->segments)
		return -ENOMEM;
	spin_lock_init(&c->segments_lock);
	for (i = 0; i < c->nr_devices; i++)
		INIT_LIST_HEAD(&c->dev[i].free);
	INIT_LIST_HEAD(&c->waiting);
	for (i = 0; i < LARDER_NR_STREAMS; i++)
		INIT_LIST_HEAD(&c->sealed[i]);
	for (i = 0; i < c->nr_segments; i++) {
		c->segments[i].state = SEGMENT_FREE;
		c->segments[i].mirror = LARDER_NO_SEGMENT;
		list_add(&c->segments[i].list, &segment_device(c, i)->free);
		segment_device(c, i)->nr_free++;
	}
	c->nr_state[SEGMENT_FREE] = c->nr_segments;
	c->reserve_checkpoint = c->reserve_roles = 2;
	c->discard_after = jiffies;
	c->fixed_bytes += (u64)c->nr_segments * sizeof(*c->segments);
	return 0;
}

static void segments_requeue(struct cache *c, const struct segment *was, struct list_head *queue)
{
	struct segment *seg;
	LIST_HEAD(moved);

	list_for_each_entry(seg, queue, list)
		list_add_tail(&c->segments[seg - was].list, &moved);
	INIT_LIST_HEAD(queue);
	list_splice(&moved, queue);
}

void segments_destroy(struct cache *c)
{
	vfree(c->segments);
	c->segments = NULL;
}

static struct list_head *segment_queue(struct cache *c, const struct segment *seg)
{
	switch (seg->state) {
	case SEGMENT_FREE:
		return &segment_device(c, seg - c->segments)->free;
	case SEGMENT_SEALED:
		return &c->sealed[seg->stream];
	case SEGMENT_WAITING:
		return &c->waiting;
	default:
		return NULL;
	}
}

static bool may_be_mapped(const struct cache *c, const struct segment *seg)
{
	return seg->emptied && seg->emptied >= c->keep_sequence;
}

/* segments_lock held */
static void segment_requeue(struct cache *c, struct segment *seg, u8 state)
{
	struct list_head *queue;

	trace_larder_segment(c, seg - c->segments, seg->state, state);
	if (seg->state == SEGMENT_SEALED)
		c->nr_sealed[seg->stream]--;
	if (seg->state == SEGMENT_FREE)
		segment_device(c, seg - c->segments)->nr_free--;
	if (seg->state == SEGMENT_LOST)
		segment_device(c, seg - c->segments)->nr_lost--;
	c->nr_state[seg->state]--;
	if (segment_queue(c, seg))
		list_del_init(&seg->list);
	seg->state = state;
	c->nr_state[state]++;
	if (state == SEGMENT_SEALED)
		c->nr_sealed[seg->stream]++;
	if (state == SEGMENT_FREE)
		segment_device(c, seg - c->segments)->nr_free++;
	if (state == SEGMENT_LOST)
		segment_device(c, seg - c->segments)->nr_lost++;
	if (state == SEGMENT_WAITING)
		seg->known_to = 0;
	queue = segment_queue(c, seg);
	if (!queue)
		INIT_LIST_HEAD(&seg->list);
	else if (state == SEGMENT_FREE && !may_be_mapped(c, seg))
		list_add(&seg->list, queue);
	else
		list_add_tail(&seg->list, queue);
}

/* segments_lock held.  It leaves the ring of its copies; the others stay copies of one another. */
static void segment_unlink(struct cache *c, u32 segment)
{
	struct segment *seg = &c->segments[segment], *before = seg;
	u32 copy[SEGMENT_COPIES];

	if (seg->mirror == LARDER_NO_SEGMENT)
		return;
	c->nr_thirds -= segment_ring(c, segment, copy) > 2;
	while (before->mirror != segment)
		before = &c->segments[before->mirror];
	WRITE_ONCE(before->mirror, &c->segments[seg->mirror] == before ? LARDER_NO_SEGMENT : seg->mirror);
	WRITE_ONCE(seg->mirror, LARDER_NO_SEGMENT);
}

/* segments_lock held.  All copies of a segment become free together. */
static void segment_move(struct cache *c, struct segment *seg, u8 state)
{
	/* what a start empties is unmapped by the log it has replayed: a record of ours would come before our epoch is named */
	bool empties = c->started && state == SEGMENT_FREE && seg->state != SEGMENT_CHECKPOINT && seg->state != SEGMENT_OPENING;
	u64 emptied = READ_ONCE(c->log.next_sequence);
	struct segment *other;

	if (empties)
		seg->emptied = emptied;
	while (state == SEGMENT_FREE && seg->mirror != LARDER_NO_SEGMENT) {
		other = &c->segments[seg->mirror];
		segment_unlink(c, seg->mirror);
		if (empties)
			other->emptied = emptied;
		segment_requeue(c, other, SEGMENT_FREE);
	}
	segment_requeue(c, seg, state);
}

void segment_become_lost(struct cache *c, u32 segment)
{
	segment_move(c, &c->segments[segment], SEGMENT_LOST);
}

void segment_free_lost(struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy), i;
	bool first = c->segments[segment].state != SEGMENT_MIRROR;

	segment_unlink(c, segment);
	for (i = 1; first && i < n; i++) {
		segment_unlink(c, copy[i]);
		segment_move(c, &c->segments[copy[i]], SEGMENT_FREE);
	}
	segment_move(c, &c->segments[segment], SEGMENT_FREE);
}

u32 segment_pass_over(struct cache *c, u32 segment)
{
	unsigned long flags;
	u32 other;

	spin_lock_irqsave(&c->segments_lock, flags);
	other = c->segments[segment].mirror;
	segment_unlink(c, segment);
	segment_become_lost(c, segment);
	spin_unlock_irqrestore(&c->segments_lock, flags);
	return other;
}

void segment_set_state(struct cache *c, u32 segment, u8 state)
{
	unsigned long flags;

	spin_lock_irqsave(&c->segments_lock, flags);
	segment_move(c, &c->segments[segment], state);
	spin_unlock_irqrestore(&c->segments_lock, flags);
}

/* Whoever walks the ring meanwhile finds it with further in it, or without. */
void segment_link(struct cache *c, u32 first, u32 further)
{
	struct segment *last = &c->segments[first];
	u32 copy[SEGMENT_COPIES];

	while (last->mirror != LARDER_NO_SEGMENT && last->mirror != first)
		last = &c->segments[last->mirror];
	WRITE_ONCE(c->segments[further].mirror, first);
	smp_store_release(&last->mirror, further);	/* segment_ring() */
	c->nr_thirds += segment_ring(c, first, copy) > 2;
	segment_move(c, &c->segments[further], SEGMENT_MIRROR);
}

u32 segment_first(const struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy), i;

	for (i = 0; i < n; i++)
		if (c->segments[copy[i]].state != SEGMENT_MIRROR)
			return copy[i];
	return segment;
}

struct cache_device *set_sector_device(struct cache *c, u64 cache_sector, sector_t *where)
{
	u32 segment = cache_segment(c, cache_sector), further;

	if (unlikely(prefers_mirror(&c->segments[segment]) || READ_ONCE(segment_device(c, segment)->failed))) {
		further = segment_further(c, segment);
		/* of two that are bad the first gives errors where it is, and what it has is not older than that of the others */
		if (further != LARDER_NO_SEGMENT &&
		    (READ_ONCE(segment_device(c, segment)->failed) || !prefers_mirror(&c->segments[further])))
			cache_sector = copy_sector(c, cache_sector, further);
	}
	return copy_sector_device(c, cache_sector, where);
}

/* Of further copies that may lack something: is it known which one does, and is this another? */
static bool further_is_sure(struct cache *c, u32 segment, u32 further)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy), i;
	bool known = false;

	for (i = 1; i < n; i++)
		known |= prefers_mirror(&c->segments[copy[i]]);
	return known && !prefers_mirror(&c->segments[further]);
}

/* Several reads of the first copy may be in flight, and fail: each of them is to be read from another one. */
bool segment_try_mirror(struct cache *c, u32 segment, const struct cache_device *d, bool mend)
{
	u8 *prefer = &c->segments[segment].prefer_mirror;
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy), further, i;
	bool of_further = false, another = !READ_ONCE(segment_device(c, segment)->failed);

	for (i = 1; i < n; i++) {
		if (segment_device(c, copy[i]) == d)
			of_further = true;
		else
			another |= !READ_ONCE(segment_device(c, copy[i])->failed);
	}
	if (of_further)
		return another;
	further = segment_further(c, segment);
	/* the others may lack what is behind the last flush: an error, rather than older data */
	if (further == LARDER_NO_SEGMENT || (copies_unsure(READ_ONCE(*prefer)) && !further_is_sure(c, segment, further)))
		return false;
	if (READ_ONCE(*prefer) < PREFER_MIRROR) {
		WRITE_ONCE(*prefer, mend ? PREFER_AND_MEND : PREFER_MIRROR);
		if (mend)
			scrub_mend_later(c);
	}
	return true;
}

/* Round the ring, those that are known to be bad last. */
struct cache_device *segment_next_copy(struct cache *c, u64 cache, const struct cache_device *d, u32 *tried, sector_t *where)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, cache_segment(c, cache), copy), at = 0, i;
	struct cache_device *other;
	int bad;

	*tried |= 1u << (d - c->dev);
	if (!segment_try_mirror(c, cache_segment(c, cache), d, true))
		return NULL;
	while (at + 1 < n && segment_device(c, copy[at]) != d)
		at++;
	for (bad = 0; bad < 2; bad++) {
		for (i = 1; i < n; i++) {
			u32 next = copy[(at + i) % n];

			other = copy_sector_device(c, copy_sector(c, cache, next), where);
			if (!(*tried & 1u << (other - c->dev)) && !READ_ONCE(other->failed) &&
			    prefers_mirror(&c->segments[next]) == bad)
				return other;
		}
	}
	return NULL;
}

static struct cache_device *joining_device(struct cache *c)
{
	u32 i;

	for (i = 0; i < c->nr_devices; i++)
		if (READ_ONCE(c->dev[i].joining))
			return &c->dev[i];
	return NULL;
}

/* ------------------------------------------------------------------ how many, and of which SSD (roles) */

/* How many rings of so many copies, each on another SSD, can be made of these numbers of segments of nr SSDs? */
static u32 rings_of(const u32 *number, u32 nr, u32 copies)
{
	u32 i, rings = U32_MAX, all;

	for (;;) {
		for (i = all = 0; i < nr; i++)
			all += min(number[i], rings);
		if (all / copies >= rings)
			return rings;
		rings = all / copies;
	}
}

/* Of segments of SSDs, 0: none: how many can be taken for something that has as many copies as there are SSDs for, and no more. */
static u32 units_of(const u32 *number, u32 copies)
{
	u32 i, all = 0, most = 0, nr = 0;

	for (i = 0; i < LARDER_MAX_DEVICES; i++) {
		all += number[i];
		most = max(most, number[i]);
		nr += number[i] > 0;
	}
	if (nr < 2 || copies < 2)
		return all;
	return min(nr, copies) == 2 ? min(all / 2, all - most) : rings_of(number, LARDER_MAX_DEVICES, 3);
}

u32 segments_units_with(const struct cache *c, u32 place, u32 segments)
{
	u32 i, number[LARDER_MAX_DEVICES] = { };

	for (i = 0; i < c->nr_devices; i++)
		if (!READ_ONCE(c->dev[i].failed))
			number[i] = c->dev[i].nr_segments;
	if (place < LARDER_MAX_DEVICES)
		number[place] = segments;
	return units_of(number, mirror_copies(c));
}

u32 segments_units(const struct cache *c, const struct cache_device *without)
{
	return segments_units_with(c, without ? without - c->dev : LARDER_MAX_DEVICES, 0);
}

u64 segments_room(const struct cache *c, enum segment_use use)
{
	u64 segments = 0;
	u32 i;

	if (use == USE_LOG || (READ_ONCE(c->set.mirror) == MIRROR_ALL && cache_pairs(c)))
		return (u64)segments_units(c, NULL) * c->data_slots;
	for (i = 0; i < c->nr_devices; i++)
		if (device_usable(&c->dev[i]))
			segments += c->dev[i].nr_segments;
	return segments * c->data_slots;
}

static u32 opened_goal(struct cache *c, u8 stream)
{
	/* 16 of them at once where there is room: one flush for all */
	u32 part = segments_units(c, NULL) / 64;

	switch (stream) {
	case LARDER_STREAM_WRITE:
		return clamp(part, 6u, 8u);
	case LARDER_STREAM_FILL:
		return clamp(part / 2, 2u, 5u);
	default:
		return clamp(part / 2, 2u, 3u);
	}
}

u32 segments_opened_goal(struct cache *c)
{
	return opened_goal(c, LARDER_STREAM_WRITE) + opened_goal(c, LARDER_STREAM_FILL) + opened_goal(c, LARDER_STREAM_KEEP);
}

static u32 device_bit(const struct cache *c, const struct cache_device *d)
{
	return 1u << (d - c->dev);
}

/* May segments of it be taken?  What has one copy is never on an SSD whose own table does not name it a member (set_admit()). */
static bool device_takes(const struct cache *c, const struct cache_device *d)
{
	return device_usable(d) && (!READ_ONCE(d->untold) || READ_ONCE(c->set.mirror));
}

static u32 usable_mask(const struct cache *c)
{
	u32 i, mask = 0;

	for (i = 0; i < c->nr_devices; i++)
		mask |= device_takes(c, &c->dev[i]) ? 1u << i : 0;
	return mask;
}

static bool device_serves(const struct cache_device *d, enum segment_use use)
{
	u8 role = READ_ONCE(d->role);

	return role == LARDER_ROLE_BOTH || role == (use == USE_LOG ? LARDER_ROLE_WRITE : LARDER_ROLE_READ);
}

/* Bits of the usable SSDs whose role it is; 0: they have too few segments for it. */
static u32 role_mask(struct cache *c, enum segment_use use)
{
	u32 i, mask = 0, nr = 0, least = LARDER_MIN_SEGMENTS;

	if (use == USE_LOG)
		least = max(least, segments_opened_goal(c) + 3 * READ_ONCE(c->reserve_roles));
	for (i = 0; i < c->nr_devices; i++) {
		if (!device_takes(c, &c->dev[i]) || !device_serves(&c->dev[i], use))
			continue;
		mask |= 1u << i;
		nr += c->dev[i].nr_segments;
	}
	return nr >= least ? mask : 0;
}

/* Of these its segments are taken: where the roles cannot be honoured, of all. */
static u32 use_mask(struct cache *c, enum segment_use use)
{
	return (c->nr_devices > 1 ? role_mask(c, use) : 0) ?: usable_mask(c);
}

bool segments_roles_honoured(struct cache *c)
{
	return c->nr_devices == 1 || (role_mask(c, USE_LOG) && role_mask(c, USE_CLEAN));
}

/* Do the uses take their segments of the same SSDs? */
static bool uses_share(struct cache *c)
{
	return use_mask(c, USE_LOG) == use_mask(c, USE_CLEAN);
}

/* Are segments of this use counted in pairs?  Where single ones are taken of the same SSDs too, so that pairs remain possible. */
static bool use_pairs(struct cache *c, enum segment_use use)
{
	return cache_mirrored(c) && (use == USE_LOG || READ_ONCE(c->set.mirror) == MIRROR_ALL || uses_share(c));
}

/* Free segments of these SSDs.  *most: the bit of the one that has the most. */
static u32 free_of(struct cache *c, u32 mask, u32 *most)
{
	u32 i, all = 0, best = 0;

	*most = 0;
	for (i = 0; i < c->nr_devices; i++) {
		u32 n = mask & 1u << i ? READ_ONCE(c->dev[i].nr_free) : 0;

		all += n;
		if (n > best) {
			best = n;
			*most = 1u << i;
		}
	}
	return all;
}

/* Two copies on the SSDs of mask or, if that is a single one, the second one on any other. */
static u32 free_pairs(struct cache *c, u32 mask, u32 *help)
{
	u32 most, ignored, all = free_of(c, mask, &most), most_free, rest;

	*help = mask;
	if (hweight32(mask) == 1) {
		rest = free_of(c, usable_mask(c) & ~mask, &ignored);
		if (rest < all)
			*help = usable_mask(c) & ~mask;
		return min(all, rest);
	}
	most_free = free_of(c, most, &ignored);
	if (most_free > all - most_free)
		*help = mask & ~most;
	return min(all / 2, all - most_free);
}

/*
 * Rings of three on the SSDs of mask or, if these are fewer, of which one copy is there and the others on any.  *help: those of
 * which no more are free than rings can be made.
 */
static u32 free_triples(struct cache *c, u32 mask, u32 *help)
{
	u32 i, number[LARDER_MAX_DEVICES], of = hweight32(mask) < 3 ? usable_mask(c) : mask, rings, ignored;

	for (i = 0; i < c->nr_devices; i++)
		number[i] = of & 1u << i ? READ_ONCE(c->dev[i].nr_free) : 0;
	rings = rings_of(number, c->nr_devices, 3);
	*help = 0;
	for (i = 0; i < c->nr_devices; i++)
		if (of & 1u << i && number[i] <= rings)
			*help |= 1u << i;
	if (of != mask && free_of(c, mask, &ignored) <= rings) {
		*help = mask;
		rings = free_of(c, mask, &ignored);
	}
	*help = *help ?: of;
	return rings;
}

/*
 * Segments that can be taken for this use, or, where they are counted in pairs, pairs.  A snapshot unless segments_lock is held.
 * *help: of which SSDs one more would make them more.
 */
static u32 free_units(struct cache *c, enum segment_use use, u32 *help)
{
	u32 mask = use_mask(c, use), most, all;
	const struct cache_device *joins;

	if (use_pairs(c, use))
		return cache_copies(c) > 2 ? free_triples(c, mask, help) : free_pairs(c, mask, help);
	all = free_of(c, mask, &most);
	*help = mask;
	/* a last SSD and the one that joins it, unless that has failed just now */
	joins = !cache_mirrored(c) && cache_pairs(c) ? joining_device(c) : NULL;
	if (joins && all > READ_ONCE(joins->nr_free)) {
		all = READ_ONCE(joins->nr_free);
		*help = device_bit(c, joins);
	}
	return all;
}

/* Segments that only a checkpoint may take; clean copies elsewhere than the log and its second copies need not keep them. */
static u32 use_reserve(struct cache *c, enum segment_use use)
{
	u32 log = use_mask(c, USE_LOG);

	if (use == USE_CLEAN && !(log & use_mask(c, USE_CLEAN)) && !(use_pairs(c, USE_LOG) && hweight32(log) < cache_copies(c)))
		return 0;
	return READ_ONCE(c->reserve_checkpoint);
}

/* A snapshot, as segments_free_count() is. */
u32 segments_free_all(struct cache *c, enum segment_use use)
{
	u32 help;

	return free_units(c, use, &help);
}

u32 segments_free_count(struct cache *c, enum segment_use use)
{
	u32 help, n = free_units(c, use, &help), reserve = use_reserve(c, use);

	return n > reserve ? n - reserve : 0;
}

/* enough for all streams to be opened anew, and some */
u32 segments_free_goal(struct cache *c, enum segment_use use)
{
	u32 i, mask = use_mask(c, use), nr = 0, opened = segments_opened_goal(c);

	if (!uses_share(c))
		opened = use == USE_LOG ? opened_goal(c, LARDER_STREAM_WRITE) :
					  opened_goal(c, LARDER_STREAM_FILL) + opened_goal(c, LARDER_STREAM_KEEP);
	for (i = 0; i < c->nr_devices; i++)
		nr += mask & 1u << i ? c->dev[i].nr_segments : 0;
	if (use_pairs(c, use))
		nr = min(nr, segments_units(c, NULL));
	return max(clamp(nr / 64, 4u, 64u), opened + 4);
}

u32 segments_short(struct cache *c)
{
	u32 n = 0, use;

	for (use = 0; use < NR_SEGMENT_USES; use++) {
		u32 free = segments_free_count(c, use), goal = segments_free_goal(c, use);

		n = max(n, goal > free ? goal - free : 0);
	}
	return n;
}

u32 segments_wanted(struct cache *c)
{
	u32 use, help, any = 0, wanted = 0;

	if (c->nr_devices == 1)
		return 1;
	for (use = 0; use < NR_SEGMENT_USES; use++) {
		free_units(c, use, &help);
		any |= help;
		if (segments_free_count(c, use) < segments_free_goal(c, use))
			wanted |= help;
	}
	return wanted ?: any;
}

#define COMING_MOST	1024u

u32 segments_coming(struct cache *c)
{
	u32 i, n = 0, least = U32_MAX, left = COMING_MOST, wanted, count[LARDER_MAX_DEVICES] = { }, copy[SEGMENT_COPIES];
	const struct segment *seg;

	spin_lock_irq(&c->segments_lock);
	wanted = segments_wanted(c);
	list_for_each_entry(seg, &c->waiting, list) {
		if (!left--)
			break;
		/* all of them become free */
		for (i = segment_ring(c, seg - c->segments, copy); i--; )
			count[segment_device(c, copy[i]) - c->dev]++;
	}
	for (i = 0; i < c->nr_devices; i++) {
		if (!(wanted & device_bit(c, &c->dev[i])))
			continue;
		n += count[i];
		least = min(least, count[i]);
	}
	spin_unlock_irq(&c->segments_lock);
	return cache_pairs(c) && least != U32_MAX ? least : n;
}

bool segment_helps(struct cache *c, u32 segment, u32 wanted)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy);

	while (n--)
		if (device_bit(c, segment_device(c, copy[n])) & wanted)
			return true;
	return false;
}

bool segment_misplaced(struct cache *c, u32 segment)
{
	return !(use_mask(c, USE_CLEAN) & device_bit(c, segment_device(c, segment)));
}

/*
 * segments_lock held.  The one of these SSDs with the most free segments: so pairs remain possible for as long as may be.  Where
 * they are not taken in pairs: the largest part of it free, so that what is written is spread by size.
 */
static struct cache_device *emptiest_device(struct cache *c, u32 mask, bool by_size)
{
	struct cache_device *best = NULL, *d;
	u32 i;

	for (i = 0; i < c->nr_devices; i++) {
		d = &c->dev[i];
		if (!(mask & 1u << i) || !d->nr_free)
			continue;
		if (!best || (by_size ? (u64)d->nr_free * best->nr_segments > (u64)best->nr_free * d->nr_segments :
					d->nr_free > best->nr_free))
			best = d;
	}
	return best;
}

static u32 segment_take(struct cache *c, struct cache_device *d, u8 state, bool for_checkpoint)
{
	struct segment *seg;

	if (list_empty(&d->free))
		return LARDER_NO_SEGMENT;
	seg = for_checkpoint ? list_first_entry(&d->free, struct segment, list) : list_last_entry(&d->free, struct segment, list);
	segment_move(c, seg, state);
	seg->has_summary = false;
	seg->relinked = seg->settled = false;
	seg->prefer_mirror = PREFER_NONE;
	seg->foreign = false;
	seg->sequence = 0;
	seg->damaged = 0;
	seg->stays = 0;
	seg->stuck = 0;
	seg->stale = 0;
	slots_bad_forget(c, seg - c->segments);
	return seg - c->segments;
}

u32 segment_take_of(struct cache *c, struct cache_device *d, u8 state)
{
	return segment_take(c, d, state, false);
}

bool segment_may_be_mapped(struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n;
	unsigned long flags;
	bool may = false;

	spin_lock_irqsave(&c->segments_lock, flags);
	n = segment_ring(c, segment, copy);
	while (n--)
		may |= may_be_mapped(c, &c->segments[copy[n]]);
	spin_unlock_irqrestore(&c->segments_lock, flags);
	return may;
}

/* segments_lock held: where a further copy of a segment goes that is on the SSDs of these bits */
static struct cache_device *further_device(struct cache *c, u32 mask, u32 has)
{
	struct cache_device *d = emptiest_device(c, mask & ~has, false) ?: emptiest_device(c, usable_mask(c) & ~has, false), *joins;

	if (d)
		return d;
	joins = joining_device(c);
	return joins && joins->nr_free && !(device_bit(c, joins) & has) ? joins : NULL;
}

/* Copies that a segment of this stream is to have, if there is room for them. */
static u32 stream_copies(const struct cache *c, u8 stream)
{
	return stream_pairs(c, stream) && cache_pairs(c) ? mirror_copies(c) : 1;
}

u32 segment_take_free(struct cache *c, u8 state, u8 stream)
{
	enum segment_use use = stream_use(stream);
	u32 segment = LARDER_NO_SEGMENT, mask, help, has, copies;
	bool chunks = state == SEGMENT_CHECKPOINT;
	struct cache_device *d;
	unsigned long flags;

	spin_lock_irqsave(&c->segments_lock, flags);
	if (free_units(c, use, &help) > (chunks ? 0 : use_reserve(c, use))) {
		mask = use_mask(c, use);
		d = emptiest_device(c, mask, !use_pairs(c, use));
		segment = d ? segment_take(c, d, state, chunks) : LARDER_NO_SEGMENT;
		has = d ? device_bit(c, d) : 0;
		for (copies = d ? stream_copies(c, stream) : 0; copies > 1; copies--) {
			d = further_device(c, mask, has);
			if (!d)
				break;
			segment_link(c, segment, segment_take(c, d, SEGMENT_MIRROR, chunks));
			has |= device_bit(c, d);
		}
	}
	spin_unlock_irqrestore(&c->segments_lock, flags);
	if (segment != LARDER_NO_SEGMENT)
		sums_drop(c, segment);
	return segment;
}

/* segments_lock held.  It is no copy any more, and waits until the checkpoints that are named know it. */
static void segment_give_up(struct cache *c, u32 further)
{
	segment_unlink(c, further);
	c->segments[further].sequence = 0;
	segment_move(c, &c->segments[further], SEGMENT_WAITING);
	c->segments[further].known_to = READ_ONCE(c->checkpoint_sequence);
}

/*
 * The further copies of a sealed segment go when nothing in it is to have any (what is clean gives its own to an SSD that is
 * drained) and no replay needs its records (free-after-replay).  They are reused only when the named checkpoints know nothing of
 * them as copies, and so know that what was in them is clean (free-after-clean-durable): each waits until both are younger than the
 * one that is under way, or was the last.  That takes no record: the log may have no room for any before something is free.
 */
void segments_unmirror(struct cache *c)
{
	u32 n = min(c->nr_segments, UNMIRROR_BATCH);
	struct segment *seg;
	unsigned long flags;

	if (c->nr_devices == 1)
		return;
	spin_lock_irqsave(&c->segments_lock, flags);
	while (n--) {
		seg = &c->segments[c->unmirror_pos];
		c->unmirror_pos = (c->unmirror_pos + 1) % c->nr_segments;
		if (seg->state != SEGMENT_SEALED || seg->mirror == LARDER_NO_SEGMENT || atomic_read(&seg->dirty) ||
		    (segment_wants_copy(c, seg) && !segment_draining(c, seg - c->segments)) ||
		    seg->sequence >= c->keep_sequence || seg - c->segments == READ_ONCE(c->captured_segment) ||
		    prefers_mirror(seg) || atomic_read(&seg->pins) ||
		    READ_ONCE(segment_device(c, seg - c->segments)->failed))
			continue;
		while (seg->mirror != LARDER_NO_SEGMENT)
			segment_give_up(c, seg->mirror);
	}
	spin_unlock_irqrestore(&c->segments_lock, flags);
}

u32 segment_members(struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy), members = 0;

	while (n--)
		members += !READ_ONCE(segment_device(c, copy[n])->failed);
	return members;
}

bool segment_below(struct cache *c, u32 segment, const void *ignored)
{
	return segment_members(c, segment) < cache_copies(c);
}

bool segment_short(struct cache *c, u32 segment)
{
	u32 members = segment_members(c, segment);

	return members && members < cache_copies(c);
}

/* Of the status, which may be asked for while a set grows: segments_grow(). */
u64 segments_below(struct cache *c, struct segments_short *n)
{
	u32 i, copies, possible = max(cache_copies(c), 2u), asked = READ_ONCE(c->set.mirror) == MIRROR_DIRTY_3 ? 3 : 2;
	u64 below = 0;

	*n = (struct segments_short){ };
	rcu_read_lock();
	for (i = 0; c->nr_devices > 1 && i < READ_ONCE(c->nr_segments); i++) {
		const struct segment *seg = &READ_ONCE(c->segments)[i];

		if (!segment_wants_copy(c, seg))
			continue;
		copies = segment_members(c, i);
		if (copies < asked)
			below += atomic_read(READ_ONCE(c->set.mirror) == MIRROR_ALL ? &seg->live : &seg->dirty);
		if (copies == 1)
			n->single += atomic_read(&seg->dirty);
		if (copies && copies < possible)
			n->some += atomic_read(&seg->dirty);
	}
	rcu_read_unlock();
	return below;
}

void segments_release(struct cache *c)
{
	struct segment *seg;
	bool any = false;
	u32 n;

	spin_lock_irq(&c->segments_lock);
	/* in turns: each goes, or to the end of the list */
	for (n = c->nr_state[SEGMENT_WAITING]; n && !list_empty(&c->waiting); n--) {
		seg = list_first_entry(&c->waiting, struct segment, list);
		if (atomic_read(&seg->pins) || atomic_read(&seg->live) || seg->sequence >= c->keep_sequence ||
		    (seg->known_to && seg->known_to >= c->keep_checkpoint)) {
			list_move_tail(&seg->list, &c->waiting);
		} else {
			segment_move(c, seg, SEGMENT_FREE);
			any = true;
		}
		segments_turn(c, n);
	}
	spin_unlock_irq(&c->segments_lock);
	if (any) {
		segments_open_kick(c);
		wake_up(&c->log.wait);
	}
}

bool segments_wait_for(struct cache *c, u64 sequence)
{
	struct segment *seg;
	unsigned long flags;
	bool wait = false;

	spin_lock_irqsave(&c->segments_lock, flags);
	list_for_each_entry(seg, &c->waiting, list)
		wait |= seg->sequence >= sequence;
	spin_unlock_irqrestore(&c->segments_lock, flags);
	return wait;
}

/* ------------------------------------------------------------------ what is live */

/* Of the segment, which must not look empty while something enters or leaves it. */
static __always_inline void account_segment(struct cache *c, u64 cache, u8 state, int by)
{
	struct segment *seg = &c->segments[cache_segment(c, cache)];

	if (larder_state_zero(state))
		return;
	atomic_add(by, &seg->live);
	if (larder_state_dirty(state))
		atomic_add(by, &seg->dirty);
}

/* Of cache and volume: sectors that are cached, and that are dirty. */
static __always_inline void account_sums(struct volume *v, s64 cached, s64 dirty)
{
	struct cache *c = v->cache;

	if (cached) {
		atomic64_add(cached, &c->live_sectors);
		atomic64_add(cached, &v->cached_sectors);
	}
	if (dirty) {
		atomic64_add(dirty, &c->dirty_sectors);
		atomic64_add(dirty, &v->dirty_sectors);
	}
}

static void account(struct volume *v, u64 cache, u32 len, u8 state, int sign)
{
	int by = sign * (int)len;

	account_segment(v->cache, cache, state, by);
	account_sums(v, larder_state_zero(state) ? 0 : by, larder_state_dirty(state) ? by : 0);
}

/* Under a region lock: was->state == now only while a checkpoint is loaded. */
void index_changed(void *ctx, const struct larder_map *was, u8 now, void *by)
{
	struct volume *v = ctx;

	if (was->state == now) {
		account(v, was->cache, was->len, now, 1);
		return;
	}
	/* first: what is dirty before and after must not look clean in between, to nobody */
	if (now != LARDER_ST_NONE)
		account(v, was->cache, was->len, now, 1);
	if (by) {
		log_replaces(by, was);		/* store_part() sees to the sums */
		account_segment(v->cache, was->cache, was->state, -(int)was->len);
	} else {
		account(v, was->cache, was->len, was->state, -1);
	}
	if (now == LARDER_ST_NONE && !larder_state_zero(was->state)) {
		/* account()'s; readers find the mapping gone, or wait.  Pairs with the one in pin_set() */
		smp_mb__after_atomic();
		if (unlikely(READ_ONCE(v->cache->pins[0])))
			pins_clear(v, was->cache, was->len);
	}
}

void index_account_new(struct volume *v, u64 cache, u32 len, u8 state)
{
	account(v, cache, len, state, 1);
}

/* The part of [sector, end) that lies in sector's region. */
static u32 region_part(u64 sector, u64 end)
{
	u64 border = (sector | (LARDER_REGION_SECTORS - 1)) + 1;

	return min(border, end) - sector;
}

/*
 * In one region.  A user's write mostly takes the place of what is dirty, too: the sums get the difference, behind the store.
 * Until then the write counts as one in flight (v->items).
 */
static __always_inline int store_part(struct volume *v, u64 sector, u32 n, u64 cache, u8 state, struct item *by)
{
	int err;

	if (!by)
		return larder_index_store(v->index, sector, n, state == LARDER_ST_NONE ? 0 : cache, state, NULL);
	by->gone = 0;
	by->gone_dirty = 0;
	err = larder_index_store(v->index, sector, n, cache, state, by);
	if (!err)
		account_sums(v, (s64)n - by->gone, (s64)n - by->gone_dirty);
	return err;
}

int volume_map_store(struct volume *v, u64 sector, u32 len, u64 cache, u8 state, struct item *by)
{
	u64 end = sector + len;
	int err = 0;
	u32 n;

	for (; sector < end; sector += n) {
		n = region_part(sector, end);
		/* before: a reclaimer must not see it empty */
		if (by)
			account_segment(v->cache, cache, state, n);
		else if (state != LARDER_ST_NONE)
			account(v, cache, n, state, 1);
		err = store_part(v, sector, n, cache, state, by);
		if (err) {
			if (by)
				account_segment(v->cache, cache, state, -(int)n);
			else if (state != LARDER_ST_NONE)
				account(v, cache, n, state, -1);
			break;
		}
		if (!larder_state_zero(state))
			cache += n;
	}
	return err;
}

bool volume_maps(struct volume *v, const struct larder_map *m, u32 states)
{
	u64 sector = m->sector, end = m->sector + m->len;
	struct larder_map now;

	for (; sector < end; sector += now.len) {
		larder_index_lookup(v->index, sector, end - sector, &now);
		if (!(states & 1u << now.state) || now.cache != m->cache + (larder_state_zero(now.state) ? 0 : sector - m->sector))
			return false;
	}
	return true;
}

u64 volume_drop_clean(struct volume *v, u64 sector, u64 end)
{
	struct larder_map m;
	u64 found = 0;

	while (larder_index_next(v->index, sector, end, 1u << LARDER_ST_CLEAN, &m)) {
		volume_map_change(v, m.sector, m.len, m.cache, 1u << LARDER_ST_CLEAN, m.cache, LARDER_ST_NONE);
		sector = m.sector + m.len;
		if (!(++found % 1024))
			cond_resched();
	}
	return found;
}

int volume_map_change(struct volume *v, u64 sector, u32 len, u64 cache, u32 from, u64 to_cache, u8 to_state)
{
	bool zero = from & (1u << LARDER_ST_ZERO | 1u << LARDER_ST_ZERO_CLEANING);
	u64 end = sector + len;
	int done = 0, err;
	u32 n;

	for (; sector < end; sector += n) {
		n = region_part(sector, end);
		err = larder_index_change(v->index, sector, n, cache, from, to_cache, to_state);
		if (err < 0)
			return done ? done : err;
		/* moved elsewhere: change() reported the old place as gone */
		if (err && to_state != LARDER_ST_NONE && to_cache != cache)
			account(v, to_cache, err, to_state, 1);
		done += err;
		if (!zero) {
			cache += n;
			to_cache += n;
		}
	}
	return done;
}

/* ------------------------------------------------------------------ opening (rule 9) */

static void opened_push(struct opened_list *o, u32 segment)
{
	o->segment[(o->head + o->count) % o->size] = segment;
	o->count++;
}

void segments_open_kick(struct cache *c)
{
	if (!READ_ONCE(c->stopping))
		queue_work(c->open_wq, &c->open_work);
}

void segments_forget_opened(struct cache *c)
{
	u32 list[LARDER_MAX_OPENED], nr, usable, i, k;

	for (i = LARDER_STREAM_FILL; i < LARDER_NR_STREAMS; i++) {
		struct stream *s = &c->log.stream[i];
		struct opened_list *o = &s->opened;

		if (s->segment != LARDER_NO_SEGMENT && segment_lost(c, s->segment))
			s->segment = LARDER_NO_SEGMENT;
		summary_forget(c, s);
		if (WARN_ON_ONCE(o->count > ARRAY_SIZE(list)))
			continue;
		for (k = nr = 0; k < o->count; k++)
			list[nr++] = o->segment[(o->head + k) % o->size];
		usable = o->usable;
		o->head = o->count = o->usable = 0;
		for (k = 0; k < nr; k++) {
			if (segment_lost(c, list[k]))
				continue;
			opened_push(o, list[k]);
			o->usable += k < usable;
		}
	}
}

int segments_grow(struct cache *c, struct cache_device *d, u32 nr)
{
	struct segment *was = c->segments, *seg = vcalloc(nr, sizeof(*seg));
	u32 i;

	if (!seg)
		return -ENOMEM;
	/* each queue in its order: the links are of the old array */
	memcpy(seg, was, c->nr_segments * sizeof(*seg));
	WRITE_ONCE(c->segments, seg);
	for (i = 0; i < c->nr_segments; i++)
		INIT_LIST_HEAD(&seg[i].list);
	for (i = 0; i < c->nr_devices; i++)
		segments_requeue(c, was, &c->dev[i].free);
	for (i = 0; i < LARDER_NR_STREAMS; i++)
		segments_requeue(c, was, &c->sealed[i]);
	segments_requeue(c, was, &c->waiting);
	synchronize_rcu();	/* segments_below() */
	vfree(was);
	for (i = c->nr_segments; i < nr; i++) {
		seg[i].state = SEGMENT_FREE;
		seg[i].mirror = LARDER_NO_SEGMENT;
		list_add(&seg[i].list, &d->free);
	}
	c->nr_state[SEGMENT_FREE] += nr - c->nr_segments;
	d->nr_free += nr - c->nr_segments;
	c->fixed_bytes += (u64)(nr - c->nr_segments) * sizeof(*seg);
	return 0;
}

u32 opened_left(struct cache *c, const struct opened_list *o, u32 first)
{
	u32 nr = 0, i;

	lockdep_assert_held(&c->log.lock);
	if (likely(!READ_ONCE(c->nr_failed)))
		return first;
	for (i = 0; i < first; i++)
		nr += !segment_lost(c, o->segment[(o->head + i) % o->size]);
	return nr;
}

/* At start: the checkpoint that is about to be named says that these are open. */
int segments_open_initial(struct cache *c)
{
	unsigned int i;
	u32 segment;

	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		struct opened_list *o = &c->log.stream[i].opened;

		while (o->count < opened_goal(c, i)) {
			segment = segment_take_free(c, SEGMENT_OPENED, i);
			if (segment == LARDER_NO_SEGMENT)
				break;
			c->segments[segment].stream = i;
			spin_lock_irq(&c->log.lock);
			opened_push(o, segment);
			o->usable = o->count;
			spin_unlock_irq(&c->log.lock);
		}
	}
	/* the write stream needs one for data and one for metadata */
	return c->log.stream[LARDER_STREAM_WRITE].opened.count < 2 ? -ENOSPC : 0;
}

struct discard {
	struct cache *cache;
	struct cache_device *device;
	struct completion done;
	blk_status_t status;
	bool suspected;
	unsigned long sent, ended;	/* jiffies */
};

/* Interrupt context. */
static void discard_end(struct bio *bio)
{
	struct discard *d = bio->bi_private;

	d->status = bio->bi_status;
	d->ended = jiffies;
	d->suspected = d->status && doubt_may_be_reset(d->cache, d->device, d->status);
	if (d->suspected)
		doubt_suspect(d->cache, d->device);
	complete(&d->done);
}

static blk_status_t discard_send(struct discard *d, u32 segment)
{
	struct cache *c = d->cache;
	sector_t where;
	struct bio *bio;

	/* not of the bios of blkdev_issue_discard(), which may all be waiting for this segment (rule 12) */
	copy_sector_device(c, slot_sector(c, segment, 0), &where);
	bio = bio_alloc_bioset(d->device->bdev, 0, REQ_OP_DISCARD, GFP_NOIO, &c->bios);
	bio->bi_iter.bi_sector = where;
	bio->bi_iter.bi_size = c->segment_sectors << SECTOR_SHIFT;
	bio->bi_private = d;
	bio->bi_end_io = discard_end;
	init_completion(&d->done);
	d->sent = jiffies;
	submit_bio(bio);
	wait_for_completion_io(&d->done);
	bio_put(bio);
	return d->status;
}

#define DISCARD_PATIENCE	(2 * HZ)	/* a time-out, whatever it is called */

/* One that did not come back: whoever gave it up has reset the SSD, or its path is gone. */
static bool discard_hung(const struct discard *d)
{
	return d->status && (d->status == BLK_STS_TIMEOUT || d->status == BLK_STS_TRANSPORT ||
			     time_after(d->ended, d->sent + DISCARD_PATIENCE));
}

/*
 * It has failed, maybe in a reset that nothing else met: as of any write (super.c:device_write()), if it is taken now, or if it
 * hung.  One that refuses again, and is flushed, does not take discards.
 */
static void discard_failed(struct discard *d, u32 segment)
{
	struct discard again = { .cache = d->cache, .device = d->device };
	bool taken = false, reset = d->suspected && discard_hung(d);

	if (d->suspected && !reset && !READ_ONCE(d->device->failed)) {
		taken = !discard_send(&again, segment);
		reset = taken || discard_hung(&again);
	}
	if (!taken && !xchg(&d->device->refuses_discards, true))
		DMWARN("%pg: a discard failed: none is sent to it any more until the next start", d->device->bdev);
	if (d->suspected && !reset && !READ_ONCE(d->device->failed))
		flusher_sync(&d->device->flusher, true);
	if (reset)
		set_metadata_failed(d->cache, d->device);	/* one that can be spared leaves */
	if (again.suspected)
		doubt_suspect_end(d->cache, d->device, false);
	if (d->suspected)
		doubt_suspect_end(d->cache, d->device, reset && !READ_ONCE(d->device->failed));
}

static void segment_discard(struct cache *c, u32 segment)
{
	struct discard d = { .cache = c, .device = segment_device(c, segment) };

	if (READ_ONCE(d.device->failed) || READ_ONCE(d.device->refuses_discards) || !bdev_max_discard_sectors(d.device->bdev))
		return;
	cache_count(c, reclaim_discards, 1);
	if (discard_send(&d, segment))
		discard_failed(&d, segment);
}

/*
 * One SEGMENT_OPEN for this stream: the entry and the list change under one lock hold, as a checkpoint must see either both or
 * none.
 */
static int open_one(struct cache *c, struct stream *s)
{
	struct larder_entry_in e = { .kind = LARDER_SEGMENT_OPEN, .length = s->number };
	u32 segment = segment_take_free(c, SEGMENT_OPENING, s->number);
	int err;

	if (segment == LARDER_NO_SEGMENT)
		return -ENOSPC;
	c->segments[segment].stream = s->number;
	e.sector = segment;
	e.cache = segment_names(c, segment);
	spin_lock_irq(&c->log.lock);
	err = log_entry_locked(c, &e, NULL);
	if (!err)
		opened_push(&s->opened, segment);
	spin_unlock_irq(&c->log.lock);
	if (err) {
		log_kick(c);		/* log_room() may have closed a record */
		segment_set_state(c, segment, SEGMENT_FREE);
	}
	return err;
}

#define DISCARD_RATE	(64u << 20)	/* bytes in a second, on each SSD */

/* Does a write wait for a segment, or will the next one? */
static bool write_stream_short(struct cache *c)
{
	const struct opened_list *o = &c->log.stream[LARDER_STREAM_WRITE].opened;
	bool is_short;

	spin_lock_irq(&c->log.lock);
	is_short = opened_left(c, o, o->usable) < 2;
	spin_unlock_irq(&c->log.lock);
	return is_short;
}

/* open_lock held.  Its turn by DISCARD_RATE is waited for, but not while a write waits for the segment: then it is left out. */
static void segment_discard_copies(struct cache *c, u32 segment)
{
	u64 bytes = (u64)c->segment_sectors << SECTOR_SHIFT;
	u32 copy[SEGMENT_COPIES], n;

	while (time_before(jiffies, c->discard_after) && !write_stream_short(c) && !READ_ONCE(c->stopping))
		schedule_timeout_uninterruptible(1);
	if (time_before(jiffies, c->discard_after)) {
		cache_count(c, discards_skipped, 1);
		return;
	}
	c->discard_after = jiffies + div_u64(bytes * HZ, DISCARD_RATE) + 1;
	for (n = segment_ring(c, segment, copy); n--; )
		segment_discard(c, copy[n]);
}

/* The next one that is opened, and not usable yet: only segments_opened(), under open_lock, makes it so. */
static u32 opened_next(struct cache *c, const struct opened_list *o)
{
	u32 segment = LARDER_NO_SEGMENT;

	spin_lock_irq(&c->log.lock);
	if (o->usable < o->count)
		segment = o->segment[(o->head + o->usable) % o->size];
	spin_unlock_irq(&c->log.lock);
	return segment;
}

/* Their SEGMENT_OPEN is durable: they may be discarded (that counts as reuse), then written. */
static void segments_opened(struct cache *c)
{
	struct opened_list *o;
	u32 segment, i;

	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		o = &c->log.stream[i].opened;
		while ((segment = opened_next(c, o)) != LARDER_NO_SEGMENT) {
			if (c->set.discard)
				segment_discard_copies(c, segment);
			larder_heat_set(&c->heat, (u64)segment * c->segment_slots, c->segment_slots, 0);
			spin_lock_irq(&c->log.lock);
			segment_set_state(c, segment, SEGMENT_OPENED);
			o->usable++;
			spin_unlock_irq(&c->log.lock);
			wake_up(&c->log.wait);
		}
	}
}

static u32 opened_number(struct cache *c, const struct opened_list *o)
{
	u32 nr;

	spin_lock_irq(&c->log.lock);
	nr = opened_left(c, o, o->count);
	spin_unlock_irq(&c->log.lock);
	return nr;
}

static bool segments_opening(struct cache *c)
{
	bool any = false;
	u32 i;

	spin_lock_irq(&c->log.lock);
	for (i = 0; i < LARDER_NR_STREAMS; i++)
		any |= c->log.stream[i].opened.usable < c->log.stream[i].opened.count;
	spin_unlock_irq(&c->log.lock);
	return any;
}

/* Emptied segments wait for the replay start to move: one or two checkpoints free them. */
void segments_want_checkpoint(struct cache *c)
{
	struct segment *seg;
	bool any = false;

	spin_lock_irq(&c->segments_lock);
	list_for_each_entry(seg, &c->waiting, list) {
		any = !atomic_read(&seg->pins) && !atomic_read(&seg->live);
		if (any)
			break;
	}
	spin_unlock_irq(&c->segments_lock);
	if (any) {
		WRITE_ONCE(c->want_checkpoint, true);
		checkpoint_kick(c);
	}
}

/* open_lock held */
static void roles_look(struct cache *c)
{
	bool ignored = !segments_roles_honoured(c);

	if (ignored == c->roles_ignored)
		return;
	c->roles_ignored = ignored;
	if (ignored)
		DMWARN("cache %pUb: too few SSDs, or too small ones, are left for a role: others do its work (status: roles)",
		       c->uuid);
	else
		DMINFO("cache %pUb: the roles of its SSDs are honoured", c->uuid);
}

/*
 * Opens segments for all streams: entries, one commit, one flush.  A power cut before the flush completes leaves segments that
 * nobody has written to; after it, replay drops whatever was mapped to them (rule 9).  When segments are few the write stream comes
 * first.
 */
void segments_open_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, open_work);
	unsigned int i, opened = 0;
	bool wanted = false;
	int err = 0;

	if (WARN_ON_ONCE(!c->started))
		return;
	mutex_lock(&c->open_lock);
	roles_look(c);
	for (i = 0; i < LARDER_NR_STREAMS && !err; i++) {
		struct stream *s = &c->log.stream[i];
		u32 goal = opened_goal(c, i), free = segments_free_count(c, stream_use(i)), nr = opened_number(c, &s->opened);

		if (nr > goal / 2)
			continue;
		wanted = true;
		/* few left: what fills and copies would take is kept for writes */
		if (i != LARDER_STREAM_WRITE && free <= opened_goal(c, LARDER_STREAM_WRITE) && s->opened.count)
			continue;
		if (i == LARDER_STREAM_FILL && free <= opened_goal(c, LARDER_STREAM_WRITE) + 2)
			continue;
		for (; nr < goal && s->opened.count < s->opened.size && !err; nr++) {
			err = open_one(c, s);
			opened += !err;
		}
	}
	/* also those of an attempt whose flush failed */
	if (opened || segments_opening(c)) {
		cache_count(c, segment_opens, opened);
		if (!log_sync(c))
			segments_opened(c);
	}
	if (err == -ENOSPC)
		segments_want_checkpoint(c);
	mutex_unlock(&c->open_lock);
	trace_larder_open(c, opened, c->nr_state[SEGMENT_FREE]);
	if (opened) {
		log_kick(c);
		defer_kick(c);
	}
	if (wanted)
		reclaim_kick(c);
}
