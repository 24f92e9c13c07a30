// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reclaim: the oldest segment of a queue is emptied; what is worth keeping of it is appended to the keep stream, the rest leaves
 * the index (docs/design.md, "Reclaim").  Of one that goes before its turn, because little of it is live, all that is clean is
 * appended anew, to the fill stream or to keep.
 *
 * Of a segment: its summary names what was written to it; what the index still maps there is live.  Dirty extents are written back
 * first (the oldest segments together, sorted).  What is kept is compared with its checksums before; what does not match is
 * dropped.  When nothing is mapped to it any more: a grace period, then the readers' pins, then it is WAITING until no named
 * checkpoint's replay needs its records (rule 9), then FREE.
 *
 * Nothing here is logged: until its SEGMENT_OPEN is durable the segment's content is whole, so that a replay which still maps to it
 * is right.
 */
#include <linux/sort.h>
#include "larder.h"
#include "trace.h"

#define RECLAIM_BATCH	4u	/* segments emptied together: one grace period */
#define DIRTY_BATCH	8u	/* dirty segments written back together */
#define STAYS_BREAK	(HZ / 10)	/* before a segment is tried again whose data found no room */
#define KEPT_BREAK	(60 * HZ)	/* before one is looked at again that is full of what is kept in any case */
#define BUSY_WAITS	16u	/* of a jiffy, for writes beside what is hot, and for room in the log; of a segment */
#define DAMAGED_BREAK	(60 * HZ)	/* before dirty data that is damaged is tried again */
#define STUCK_BREAK	(5 * HZ)	/* before what a disk refuses is tried again */
#define MOVE_PART	4u		/* of the slots of a segment that are moved, at most: one in so many */

struct reclaim {
	struct cache *cache;
	struct segment_contents in;		/* of the segment at hand */
	u32 segments[RECLAIM_BATCH];
	u32 nr_segments;
	bool only_space;			/* is wanted: not memory, nor that something is dropped */
	bool asked;				/* by a message: nobody waits for it who a suspend waits for */
	bool must;				/* writes wait, and what is kept is all there is: it is as the rest */
	bool stays;				/* something of it: the keep stream had no room, or writes go on beside it */
	u32 waits;				/* left, of BUSY_WAITS, for the segment at hand */
	u32 stay_waits;				/* the same, for what may stay where it is: of 'patience' */
	u32 patience;				/* up to BUSY_WAITS: half as much behind each segment of which something stays */
	bool crowded;				/* what may stay has met that there is no room, in this segment */
	u32 tries;				/* segments to look at, left */
	bool drains;				/* an SSD, which somebody waits for: no reader of a disk is given way to */
	unsigned long began;			/* jiffies */
	u32 kept;				/* segments put back that do not cool */
	u32 passed_over;			/* segments that are stuck, of the last reclaim_write_back() */
	bool later;				/* it could move no more now: no room in the log, memory, or an SSD in doubt */
	struct mover *mover;			/* NULL: not needed yet */
	struct volume *moved;			/* whose pieces it has in flight, counted */
};

/* ------------------------------------------------------------------ what is in a segment */

/* Its entries and sums. */
static int segment_entries(struct reclaim *rc, u32 segment)
{
	return segment_read_contents(rc->cache, segment, &rc->in);
}

typedef void (*live_fn)(struct reclaim *rc, struct volume *v, const struct larder_map *m, void *arg);

/* Calls fn for each piece of the entry that the index still maps to its place. */
static void entry_live(struct reclaim *rc, const struct larder_entry_in *e, live_fn fn, void *arg)
{
	struct volume *v = cache_volume_get(rc->cache, e->volume);
	u64 sector = e->sector, end = e->sector + e->length;
	struct larder_map m;

	if (!v)
		return;
	while (sector < end && sector < v->sectors) {
		larder_index_lookup(v->index, sector, end - sector, &m);
		if (m.state != LARDER_ST_NONE && !larder_state_zero(m.state) && m.cache == e->cache + (sector - e->sector))
			fn(rc, v, &m, arg);
		sector += m.len;
	}
	volume_put(v);
}

static void segment_live(struct reclaim *rc, live_fn fn, void *arg)
{
	u32 i;

	for (i = 0; i < rc->in.nr_entries; i++)
		entry_live(rc, &rc->in.entries[i], fn, arg);
}

/* The rare case that entries did not name all: by the indexes. */
static void segment_live_scan(struct reclaim *rc, u32 segment, live_fn fn, void *arg)
{
	struct cache *c = rc->cache;
	struct larder_map m;
	struct volume *v;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		u64 from = 0;

		v = cache_volume_get(c, i);
		if (!v)
			continue;
		while (larder_index_next(v->index, from, v->sectors, ~0u, &m)) {
			from = m.sector + m.len;
			if (!larder_state_zero(m.state) && cache_segment(c, m.cache) == segment)
				fn(rc, v, &m, arg);
			cond_resched();
		}
		volume_put(v);
	}
}

/* ------------------------------------------------------------------ keep or drop */

static u32 map_slots(const struct larder_map *m, u64 *first)
{
	*first = m->cache / LARDER_SLOT_SECTORS;
	return (m->cache + m->len - 1) / LARDER_SLOT_SECTORS - *first + 1;
}

struct tally {
	u32 live, hot;
	u32 kept;			/* of the hot ones, that stay so however often they are looked at */
	bool main;
	bool must;
	bool dead;			/* it goes before its turn, for want of space: all of it is kept */
};

/* An extent is as hot as the hottest slot of it. */
static enum larder_extent_fate map_fate(struct volume *v, const struct larder_map *m, const struct tally *t, unsigned int *heat)
{
	enum larder_extent_fate fate;
	u64 first;
	u32 n = map_slots(m, &first);
	unsigned int most = 0;

	while (n--)
		most = max(most, larder_heat_get(&v->cache->heat, first + n));
	fate = larder_extent_fate(most, t->main, t->dead, heat);
	return !t->must && admit_keeps(v, m) ? LARDER_EXTENT_KEEP : fate;
}

static void tally_one(struct reclaim *rc, struct volume *v, const struct larder_map *m, void *arg)
{
	struct tally *t = arg;
	unsigned int heat;
	u64 first;
	u32 n = map_slots(m, &first);

	t->live += n;
	if (m->state != LARDER_ST_CLEAN || map_fate(v, m, t, &heat) != LARDER_EXTENT_KEEP)
		return;
	t->hot += n;
	t->kept += !t->must && admit_keeps(v, m) ? n : 0;
}

static void drop_one(struct reclaim *rc, struct volume *v, const struct larder_map *m, void *arg)
{
	struct cache *c = rc->cache;
	u64 block = m->sector / LARDER_SLOT_SECTORS, last = (m->sector + m->len - 1) / LARDER_SLOT_SECTORS;
	struct larder_ghost *ghost = arg;	/* that remembers it; NULL: none */

	if (m->state != LARDER_ST_CLEAN)
		return;
	if (volume_map_change(v, m->sector, m->len, m->cache, 1u << LARDER_ST_CLEAN, m->cache, LARDER_ST_NONE) <= 0)
		return;
	cache_count(c, reclaim_dropped_slots, last - block + 1);
	for (; ghost && block <= last; block++)
		larder_ghost_add(ghost, v->number, block);
}

struct keep {
	struct copy copy;
	unsigned int heat;
	u8 pin;
	struct page *pages[];
};

static void keep_done(struct copy *copy, int error)
{
	struct keep *k = container_of(copy, struct keep, copy);
	struct cache *c = copy->volume->cache;
	u32 i;

	if (!error && k->heat)
		larder_heat_set(&c->heat, copy->cache / LARDER_SLOT_SECTORS, copy->nr_slots, k->heat);
	if (!error && k->pin)
		pin_set(copy->volume, copy->sector, copy->cache, copy->len, k->pin);
	if (!error)
		cache_count(c, reclaim_kept_slots, copy->nr_slots);
	copy_end_race(c, copy);
	for (i = 0; i < copy->nr_slots; i++)
		__free_page(copy->pages[i]);
	kfree(k);
}

/* The backing has it. */
static void keep_damaged(struct cache *c, struct volume *v, const struct larder_map *m, u64 cache)
{
	sector_t where;
	struct cache_device *d = cache_sector_device(c, cache, &where);

	volume_count(v, errors_checksum, 1);
	DMWARN_LIMIT("%pg: damaged clean data at sector %llu (segment %u): sectors %llu to %llu of volume %pUb are dropped",
		     d->bdev, (u64)where, cache_segment(c, cache), m->sector, m->sector + m->len - 1, v->uuid);
}

/* Nor are there checksums to tell whether it is what the backing has. */
static void keep_unknown(struct cache *c, struct volume *v, const struct larder_map *m)
{
	DMWARN_LIMIT("cache %pUb: segment %u: checksums are lost: sectors %llu to %llu of volume %pUb, clean data, are dropped",
		     c->uuid, cache_segment(c, m->cache), m->sector, m->sector + m->len - 1, v->uuid);
}

/*
 * Where the stream has used up its segments, the next one is being opened: what is kept is worth the wait for that one flush.  And
 * that for writes in flight, which have all records and pages of the log but those in reserve.
 */
static int keep_add(struct reclaim *rc, u8 stream, struct copy *copy, u32 *waits)
{
	struct cache *c = rc->cache;
	int err = copies_add(c, stream, copy);

	if (err != -EAGAIN || stream == LARDER_STREAM_FILL)
		return err;
	flush_work(&c->open_work);
	while ((err = copies_add(c, stream, copy)) == -EAGAIN && copies_starve(c) && *waits) {
		--*waits;
		schedule_timeout_uninterruptible(1);
	}
	return err;
}

/*
 * Appends the piece to the stream, keep or fill.  -EAGAIN: it has no room now; -EBUSY: something is being written beside it;
 * another error: this one cannot be kept.
 */
static int keep_one(struct reclaim *rc, struct volume *v, const struct larder_map *m, u8 stream, unsigned int heat, u32 *waits)
{
	u32 n = DIV_ROUND_UP(m->len, LARDER_SLOT_SECTORS), i = 0;
	struct keep *k = kzalloc(struct_size(k, pages, n), GFP_NOIO | __GFP_NOWARN);
	struct cached_data x = { .len = m->len, .cache = m->cache, .sums = rc->in.sums, .clean = true };
	struct cache *c = rc->cache;
	int err = -ENOMEM;

	if (!k)
		return err;
	x.pages = k->pages;
	for (; i < n; i++) {
		k->pages[i] = alloc_page(GFP_NOIO | __GFP_NOWARN);
		if (!k->pages[i])
			goto free;
	}
	memset(page_address(k->pages[n - 1]), 0, LARDER_SLOT_SIZE);
	k->heat = heat;
	k->pin = pin_of(c, m->cache, m->len);
	k->copy.volume = v;
	k->copy.sector = m->sector;
	k->copy.len = m->len;
	k->copy.from = m->cache;
	k->copy.nr_slots = n;
	k->copy.pages = k->pages;
	k->copy.done = keep_done;
	/* looked up again behind the link, as in fill_miss() */
	err = copy_begin_race(c, &k->copy, 0) ? 0 : -EBUSY;
	if (!volume_maps(v, m, 1u << LARDER_ST_CLEAN))
		err = -ESTALE;
	if (err)
		goto free;
	err = data_read(c, &x);
	if (err == -EBADMSG)
		keep_damaged(c, v, m, x.damaged);
	else if (err == -ENODATA)
		keep_unknown(c, v, m);
	else if (err)
		cache_error(c, errors_read);
	else
		err = keep_add(rc, stream, &k->copy, waits);
	if (!err)
		return 0;
	i = n;
free:
	if (k->copy.link[0].copy)
		copy_end_race(c, &k->copy);
	while (i--)
		__free_page(k->pages[i]);
	kfree(k);
	return err;
}

/* Pinned and guaranteed data stays where it is as long as a segment can be opened for it, or others can be emptied. */
static bool may_stay(struct reclaim *rc, struct volume *v, const struct larder_map *m)
{
	struct cache *c = rc->cache;

	return !rc->must && admit_keeps(v, m) && segments_free_count(c, USE_CLEAN) + READ_ONCE(c->nr_state[SEGMENT_WAITING]);
}

/* The buckets are of 2 MiB, and shared: somebody writes there nearly always, but hardly to what is to be kept. */
static int keep_beside_writes(struct reclaim *rc, struct volume *v, const struct larder_map *m, u8 stream, unsigned int heat,
			      u32 *waits)
{
	int err;

	while ((err = keep_one(rc, v, m, stream, heat, waits)) == -EBUSY && *waits) {
		--*waits;
		if (READ_ONCE(rc->cache->look) & LOOK_BUFFERED)
			log_hurry(rc->cache);
		schedule_timeout_uninterruptible(1);
	}
	return err;
}

static void keep_or_drop(struct reclaim *rc, struct volume *v, const struct larder_map *m, void *arg)
{
	struct cache *c = rc->cache;
	struct larder_map part = *m;
	unsigned int heat = 0;
	u32 left = m->len, most = (c->record_slots - 1) * LARDER_SLOT_SECTORS;
	enum larder_extent_fate fate;
	bool stays;
	u8 stream;
	int err;

	if (m->state != LARDER_ST_CLEAN)
		return;
	fate = map_fate(v, m, arg, &heat);
	if (fate == LARDER_EXTENT_DROP || fate == LARDER_EXTENT_GHOST) {
		drop_one(rc, v, m, fate == LARDER_EXTENT_GHOST ? c->ghost : NULL);
		return;
	}
	stream = fate == LARDER_EXTENT_AGAIN ? LARDER_STREAM_FILL : LARDER_STREAM_KEEP;
	for (; left; part.sector += part.len, part.cache += part.len, left -= part.len) {
		part.len = min(left, most);
		stays = may_stay(rc, v, &part);
		err = stays && rc->crowded ? -EAGAIN :
		      keep_beside_writes(rc, v, &part, stream, heat, stays ? &rc->stay_waits : &rc->waits);
		if ((err == -EAGAIN || err == -EBUSY) && may_stay(rc, v, &part)) {
			rc->stays = true;
			rc->crowded |= err == -EAGAIN;
		} else if (err) {
			drop_one(rc, v, &part, err == -EBUSY ? c->ghost : NULL);
		}
	}
}

/* ------------------------------------------------------------------ pace of writes */

/* As long as it writes back to make room for the log users' writes take that at the pace at which it comes: pace.h */
static void space_paced(struct cache *c)
{
	if (segments_free_count(c, USE_LOG) >= segments_free_goal(c, USE_LOG))
		return;
	spin_lock_irq(&c->pace_lock);
	larder_pace_begin(&c->pace, ktime_get_ns());
	spin_unlock_irq(&c->pace_lock);
}

static void space_freed(struct cache *c, u32 segments)
{
	spin_lock_irq(&c->pace_lock);
	larder_pace_freed(&c->pace, segments * c->data_slots, ktime_get_ns());
	spin_unlock_irq(&c->pace_lock);
}

/* pace_lock held */
static void space_look(struct cache *c, u64 now_ns)
{
	u32 free = segments_free_count(c, USE_LOG), goal = segments_free_goal(c, USE_LOG);

	if (free >= goal)
		larder_pace_end(&c->pace, now_ns);
	/* with none there are those that the log has opened */
	larder_pace_fill(&c->pace, max(free, 1u), goal, now_ns);
}

/*
 * The log itself says no where it has no segment, and tells since when.  Of a volume whose disk refuses what is written back
 * nothing is to be waited for.
 */
static bool space_is_shared(struct volume *v)
{
	int error = READ_ONCE(v->writeback_error);

	return READ_ONCE(v->cache->log.stream[LARDER_STREAM_WRITE].opened.usable) >= 2 && (!error || error == -EBADMSG);
}

bool space_is_wanted(struct cache *c)
{
	if (segments_free_count(c, USE_LOG) >= segments_free_goal(c, USE_LOG))
		return false;
	return !READ_ONCE(c->pace.on) || time_before(jiffies, READ_ONCE(c->wrote) + HZ) || !list_empty(&c->deferring);
}

bool space_admits(struct volume *v, bool deferred)
{
	struct cache *c = v->cache;
	unsigned long flags;
	bool admits;
	u64 now;

	if (!space_is_shared(v))
		return true;
	/* others wait already: in their order, as far as there is one */
	if (!deferred && !list_empty(&c->deferring))
		return false;
	spin_lock_irqsave(&c->pace_lock, flags);
	WRITE_ONCE(c->wrote, jiffies);
	now = ktime_get_ns();
	if (larder_pace_due(&c->pace, now))
		space_look(c, now);
	admits = !c->pace.on || larder_pace_admits(&c->pace);
	spin_unlock_irqrestore(&c->pace_lock, flags);
	if (!admits)
		cache_count(c, waits_pace, 1);
	return admits;
}

void space_taken(struct cache *c, u32 sectors)
{
	unsigned long flags;

	spin_lock_irqsave(&c->pace_lock, flags);
	larder_pace_take(&c->pace, DIV_ROUND_UP(sectors, LARDER_SLOT_SECTORS));
	spin_unlock_irqrestore(&c->pace_lock, flags);
}

/* ------------------------------------------------------------------ dirty segments */

struct dirty_pick {
	struct volume *v;
	struct piece *pieces;
	u32 n, max;
	bool fails;			/* there is some of a volume whose disk refuses it now */
};

static void pick_dirty(struct reclaim *rc, struct volume *v, const struct larder_map *m, void *arg)
{
	struct dirty_pick *d = arg;

	u32 done, n;

	if (!larder_state_dirty(m->state) || !v->active || (d->v && d->v != v))
		return;
	if (writeback_fails(v)) {
		d->fails = true;
		return;
	}
	d->v = v;
	for (done = 0; done < m->len && d->n < d->max; done += n) {
		n = writeback_piece_len(v, m->sector + done, m->cache + done, m->len - done);
		d->pieces[d->n++] = (struct piece){
			.sector = m->sector + done, .cache = m->cache + done, .len = n, .state = m->state
		};
	}
}

static int piece_cmp(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->sector < y->sector ? -1 : x->sector > y->sector;
}

/* Others read from the disk: until somebody writes. */
static void reclaim_gives_way(struct cache *c, unsigned long wait)
{
	unsigned long until = jiffies + wait;

	while (time_before(jiffies, until) && !space_is_wanted(c) && !READ_ONCE(c->stopping) && !READ_ONCE(c->shape_pause))
		schedule_timeout_uninterruptible(1);
}

/* ------------------------------------------------------------------ what cannot be written back */

/*
 * Its volume is stopped, or its disk refuses it.  Until some could be written back again, whoever looks for space passes over the
 * segment: else nothing behind it is found.  But where there is little of it, it goes to the log again, with what others write, and
 * the rest of the segment can be used: so one disk of many does not use up the cache with a few percent of it.
 */
static bool segment_stuck(struct cache *c, const struct segment *seg)
{
	return unlikely(seg->stuck) && seg->stuck == atomic64_read(&c->writable);
}

void reclaim_unstick(struct cache *c)
{
	WRITE_ONCE(c->refused, 0);
	atomic64_inc(&c->writable);
}

/* Process context.  A disk that has refused some is tried again. */
static void look_at_stuck(struct cache *c)
{
	unsigned long refused = READ_ONCE(c->refused);

	if (unlikely(refused) && time_after(jiffies, refused + STUCK_BREAK))
		reclaim_unstick(c);
}

static bool move_ended(struct cache *c)
{
	return shape_ended(c) || READ_ONCE(c->stopping) || READ_ONCE(c->suspending);
}

static void count_dirty(struct reclaim *rc, struct volume *v, const struct larder_map *m, void *arg)
{
	u64 first;

	if (larder_state_dirty(m->state))
		*(u32 *)arg += map_slots(m, &first);
}

static void moved_wait(struct reclaim *rc)
{
	if (!rc->moved)
		return;
	log_wait_applied(rc->cache, log_close_open(rc->cache, CLOSE_ASKED));
	move_wait(rc->mover);
	volume_put(rc->moved);
	rc->moved = NULL;
}

static void move_dirty(struct reclaim *rc, struct volume *v, const struct larder_map *m, void *arg)
{
	struct larder_map part = *m;
	int *err = arg;
	u32 done;

	if (*err || !larder_state_dirty(m->state))
		return;
	if (rc->moved != v) {
		moved_wait(rc);
		rc->moved = v;
		volume_get(v);
	}
	for (done = 0; done < m->len && !*err; done += part.len) {
		part.sector = m->sector + done;
		part.cache = m->cache + done;
		part.len = min(m->len - done, move_sectors(rc->cache));
		*err = move_piece(rc->mover, v, &part);
		if (*err == -ESTALE)
			*err = 0;	/* written over, or discarded */
	}
}

/* 0: nothing dirty is in it any more; -EAGAIN, -ENOMEM: not now; -EFBIG: too much is, or not named; another error: unreadable. */
static int reclaim_move(struct reclaim *rc, u32 segment)
{
	struct cache *c = rc->cache;
	struct segment *seg = &c->segments[segment];
	u32 slots = 0;
	int err = 0;

	if (rc->drains || atomic_read(&seg->dirty) > c->data_slots * LARDER_SLOT_SECTORS / MOVE_PART)
		return -EFBIG;
	/* what is in doubt may be gone, and is not to get sums that are right */
	if (READ_ONCE(c->doubt.on))
		return -EAGAIN;
	err = segment_entries(rc, segment);
	if (err)
		return err;
	segment_live(rc, count_dirty, &slots);
	if (!slots || slots > c->data_slots / MOVE_PART)
		return atomic_read(&seg->dirty) ? -EFBIG : 0;
	if (!rc->mover) {
		rc->mover = mover_create(c, move_ended, GFP_NOIO | __GFP_NORETRY);
		if (!rc->mover)
			return -ENOMEM;
		rc->mover->makes_space = rc->mover->turns = true;
	}
	space_paced(c);
	segment_live(rc, move_dirty, &err);
	moved_wait(rc);
	return err ?: atomic_read(&seg->dirty) ? -EFBIG : 0;
}

/* ------------------------------------------------------------------ writing back */

/* Writes the dirty extents of the oldest dirty segments back, those of one volume at a time, of as many as take about a second. */
static int reclaim_write_back(struct reclaim *rc, const u32 *segments, u32 n)
{
	struct dirty_pick d = { .max = DIRTY_BATCH * rc->cache->segment_slots };
	u64 writable = atomic64_read(&rc->cache->writable);
	u32 before[DIRTY_BATCH], i, known = 0;
	bool beside = false;
	unsigned long began;
	int err = 0;

	d.pieces = kvcalloc(d.max, sizeof(*d.pieces), GFP_NOIO);
	if (!d.pieces)
		return -ENOMEM;
	for (i = 0; i < n && (!d.v || d.n < writeback_batch(d.v, beside)); i++) {
		before[i] = atomic_read(&rc->cache->segments[segments[i]].dirty);
		if (segment_entries(rc, segments[i]))
			continue;
		known |= 1u << i;
		sums_put(rc->cache, segments[i], rc->in.sums);
		segment_live(rc, pick_dirty, &d);
		beside = d.v && !rc->drains && writeback_is_beside(d.v);
	}
	n = i;
	if (d.n) {
		space_paced(rc->cache);
		volume_get(d.v);
		sort(d.pieces, d.n, sizeof(*d.pieces), piece_cmp, NULL);
		mutex_lock(&d.v->writeback_lock);
		d.v->writeback_urgent = space_is_wanted(rc->cache);
		d.v->writeback_beside = beside;
		began = jiffies;
		/* what the batch before has written is found clean, and not written again; who has failed says so below */
		log_wait_applied(rc->cache, d.v->clean_lsn);
		err = writeback_pieces(d.v, d.pieces, d.n);
		d.v->writeback_urgent = false;
		/* damaged data has its own break (segment_damaged()), and is no less damaged when other data is written */
		if (err ? err != -EBADMSG : d.v->writeback_error != -EBADMSG)
			writeback_ended(d.v, err, 0);
		if (!err)
			err = log_wait_applied(rc->cache, d.v->clean_lsn);
		mutex_unlock(&d.v->writeback_lock);
		if (beside)
			reclaim_gives_way(rc->cache, writeback_gives_way(d.v, began));
		volume_put(d.v);
		known = 0;
	}
	rc->passed_over = 0;
	rc->later = false;
	err = d.n ? err : -EAGAIN;
	for (i = 0; i < n && !rc->later; i++) {
		int moved;

		if (!(known & 1u << i))
			continue;
		moved = reclaim_move(rc, segments[i]);
		rc->later = moved == -EAGAIN || moved == -ENOMEM;
		if (!moved) {
			err = 0;
		} else if (!rc->later) {
			WRITE_ONCE(rc->cache->segments[segments[i]].stuck, writable);
			rc->passed_over++;
		}
	}
	if (rc->passed_over && d.fails && !READ_ONCE(rc->cache->refused))
		WRITE_ONCE(rc->cache->refused, jiffies ?: 1);
	/* the next time others have their turn, where these are stuck; what is clean now is to be found at once */
	spin_lock_irq(&rc->cache->segments_lock);
	for (i = 0; i < n; i++) {
		struct segment *seg = &rc->cache->segments[segments[i]];

		if (seg->state == SEGMENT_SEALED && atomic_read(&seg->dirty) >= before[i])
			list_move_tail(&seg->list, &rc->cache->sealed[seg->stream]);
	}
	spin_unlock_irq(&rc->cache->segments_lock);
	kvfree(d.pieces);
	return err;
}

/* ------------------------------------------------------------------ choice */

/* segments_lock held: the oldest sealed one of a queue. */
static struct segment *queue_oldest(struct cache *c, enum larder_small_or_main queue)
{
	struct segment *w, *f;

	if (queue == LARDER_QUEUE_MAIN)
		return list_first_entry_or_null(&c->sealed[LARDER_STREAM_KEEP], struct segment, list);
	w = list_first_entry_or_null(&c->sealed[LARDER_STREAM_WRITE], struct segment, list);
	f = list_first_entry_or_null(&c->sealed[LARDER_STREAM_FILL], struct segment, list);
	if (!w || !f)
		return w ?: f;
	return w->sequence <= f->sequence ? w : f;
}

/* May it be emptied now?  Where segments are taken in pairs, one without a copy on a full SSD would not help: segments_wanted(). */
static bool segment_idle(const struct reclaim *rc, const struct segment *seg, u32 wanted)
{
	/* one that was put back in this run is behind all others, however long they take: else only the first few are got to */
	if (!rc->must && seg->stays && (time_before(jiffies, seg->stays + STAYS_BREAK) || time_after_eq(seg->stays, rc->began)))
		return false;
	return !atomic_read(&seg->pins) && segment_helps(rc->cache, seg - rc->cache->segments, wanted);
}

/* What of it could be written back was; the rest is tried again later. */
static bool segment_damaged(const struct segment *seg)
{
	unsigned long damaged = READ_ONCE(seg->damaged);

	return damaged && time_before(jiffies, damaged + DAMAGED_BREAK);
}

/* A segment with little left goes before its turn: the first such one among the oldest of each stream. */
static struct segment *find_dead(const struct reclaim *rc, u32 wanted)
{
	struct cache *c = rc->cache;
	struct segment *seg;
	u32 i, n;

	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		n = 256;
		list_for_each_entry(seg, &c->sealed[i], list) {
			u32 live = atomic_read(&seg->live);

			if (!live && segment_idle(rc, seg, wanted))
				return seg;
			if (larder_dead_first(live / LARDER_SLOT_SECTORS, c->data_slots) && !atomic_read(&seg->dirty) &&
			    segment_idle(rc, seg, wanted))
				return seg;
			if (!--n)
				break;
		}
	}
	return NULL;
}

/*
 * The oldest one is dirty, in use, or of no help: a clean one a little younger will do; the oldest dirty ones are for writeback.
 * segments_lock held, but not all the time: where few SSDs are short, all segments of the others are passed over.  Nobody else
 * empties any; one at hand that has left its queue meanwhile, or has another place in it, ends the walk, or lets it go on there.
 */
static struct segment *reclaim_choose_other(const struct reclaim *rc, u32 wanted, u32 *dirty, u32 *nr_dirty)
{
	static const u8 order[] = { LARDER_STREAM_FILL, LARDER_STREAM_WRITE, LARDER_STREAM_KEEP };
	struct segment *seg, *pick = NULL;
	struct cache *c = rc->cache;
	u32 i, n, left;

	for (i = 0; i < ARRAY_SIZE(order); i++) {
		n = 4096;
		left = c->nr_sealed[order[i]];
		list_for_each_entry(seg, &c->sealed[order[i]], list) {
			segments_turn(c, left);
			if (!left-- || seg->state != SEGMENT_SEALED || seg->stream != order[i])
				break;
			if (!segment_idle(rc, seg, wanted) || (atomic_read(&seg->dirty) && segment_stuck(c, seg)))
				continue;
			if (!atomic_read(&seg->dirty))
				pick = pick ?: seg;
			else if (*nr_dirty < DIRTY_BATCH && !segment_damaged(seg))
				dirty[(*nr_dirty)++] = seg - c->segments;
			if (!--n || (pick && *nr_dirty == DIRTY_BATCH))
				break;
		}
	}
	return pick && pick->state == SEGMENT_SEALED ? pick : NULL;
}

/*
 * Marks the next victim RECLAIMING.  LARDER_NO_SEGMENT: none that is clean, then dirty[] has the oldest dirty ones; or there is
 * space enough by now, where only that is wanted: what waited has become free.
 */
static u32 reclaim_choose(struct reclaim *rc, struct tally *t, u32 *dirty, u32 *nr_dirty)
{
	struct cache *c = rc->cache;
	struct larder_queue_facts facts;
	enum larder_small_or_main queue;
	struct segment *pick;
	u32 n, wanted;

	*nr_dirty = 0;
	spin_lock_irq(&c->segments_lock);
	if (rc->only_space && !segments_short(c)) {
		spin_unlock_irq(&c->segments_lock);
		return LARDER_NO_SEGMENT;
	}
	facts.small_segments = c->nr_sealed[LARDER_STREAM_WRITE] + c->nr_sealed[LARDER_STREAM_FILL];
	facts.main_segments = c->nr_sealed[LARDER_STREAM_KEEP];
	facts.main_segments -= min_t(u64, facts.main_segments, admit_segments_kept(c));
	facts.total_segments = c->nr_segments;
	facts.small_percent = c->set.small_percent;
	wanted = segments_wanted(c);
	pick = find_dead(rc, wanted);
	/* where space is too short for fills it is too short for what is moved */
	t->dead = pick && rc->only_space && READ_ONCE(c->log.stream[LARDER_STREAM_FILL].opened.usable);
	if (!pick) {
		queue = larder_evict_queue(&facts);
		pick = queue_oldest(c, queue);
		if (!pick)
			pick = queue_oldest(c, queue == LARDER_QUEUE_MAIN ? LARDER_QUEUE_SMALL : LARDER_QUEUE_MAIN);
		if (pick && (atomic_read(&pick->dirty) || !segment_idle(rc, pick, wanted)))
			pick = reclaim_choose_other(rc, wanted, dirty, nr_dirty);
	}
	n = LARDER_NO_SEGMENT;
	if (pick) {
		n = pick - c->segments;
		t->main = pick->stream == LARDER_STREAM_KEEP;
	}
	spin_unlock_irq(&c->segments_lock);
	if (pick)
		segment_set_state(c, n, SEGMENT_RECLAIMING);
	return n;
}

/* ------------------------------------------------------------------ emptying */

/* Nothing is mapped to it: readers may still be there. */
static void reclaim_settle(struct reclaim *rc)
{
	struct cache *c = rc->cache;
	u32 emptied = 0, i;
	struct tally t = {};

	if (!rc->nr_segments)
		return;
	copies_wait(c, HZ);
	for (i = 0; i < rc->nr_segments; i++) {
		u32 segment = rc->segments[i];

		/* copies that lost a race, or were not done in time: dropped after all */
		if (atomic_read(&c->segments[segment].live) && !segment_entries(rc, segment))
			segment_live(rc, drop_one, NULL);
		if (atomic_read(&c->segments[segment].live))
			segment_live_scan(rc, segment, drop_one, NULL);
	}
	synchronize_rcu();
	for (i = 0; i < rc->nr_segments; i++) {
		struct segment *seg = &c->segments[rc->segments[i]];

		t.live = atomic_read(&seg->live);
		segment_set_state(c, rc->segments[i], t.live ? SEGMENT_SEALED : SEGMENT_WAITING);
		cache_count(c, reclaimed, t.live ? 0 : 1);
		emptied += !t.live;
	}
	rc->nr_segments = 0;
	space_freed(c, emptied);
	segments_release(c);
}

/* False: it could not be emptied. */
static bool reclaim_one(struct reclaim *rc, u32 segment, struct tally t)
{
	struct cache *c = rc->cache;
	struct segment *seg = &c->segments[segment];

	t.must = rc->must;
	if (atomic_read(&seg->live)) {
		if (segment_entries(rc, segment))
			rc->in.nr_entries = 0;	/* no memory: the scan in reclaim_settle() drops what is mapped to it */
		segment_live(rc, tally_one, &t);
		if (t.dead && !larder_dead_first(t.live, c->data_slots)) {
			/* find_dead() goes by sectors, but each small piece takes a slot */
			t.dead = false;
			t.live = t.hot = t.kept = 0;
			segment_live(rc, tally_one, &t);
		}
		if (!seg->relinked && !segment_misplaced(c, segment) &&
		    larder_segment_fate(t.live, 0, t.hot, c->data_slots, t.main) == LARDER_FATE_RELINK) {
			/* young again, in the main queue, uncopied, and cooler */
			larder_heat_cool(&c->heat, (u64)segment * c->segment_slots, c->segment_slots, t.main);
			seg->born = c->log.position;
			seg->stream = LARDER_STREAM_KEEP;
			segment_set_state(c, segment, SEGMENT_SEALED);
			cache_count(c, reclaim_relinked, 1);
			if (larder_segment_fate(t.live, 0, t.kept, c->data_slots, t.main) != LARDER_FATE_RELINK)
				return true;
			/* it does not cool: others first */
			seg->stays = (jiffies + KEPT_BREAK) ?: 1;
			rc->kept++;
			return false;
		}
		rc->stays = rc->crowded = false;
		rc->waits = BUSY_WAITS;
		rc->stay_waits = rc->patience;
		segment_live(rc, keep_or_drop, &t);
		if (rc->stays) {
			seg->stays = jiffies ?: 1;
			rc->patience /= 2;
			/* the others are what helps; but who stops the cache waits for this */
			if (!READ_ONCE(c->shape_pause))
				rc->tries++;
			segment_set_state(c, segment, SEGMENT_SEALED);
			segments_open_kick(c);
			return false;
		}
		rc->patience = min(2 * rc->patience + 1, BUSY_WAITS);
	}
	trace_larder_reclaim(c, segment, t.live, t.hot);
	rc->segments[rc->nr_segments++] = segment;
	if (rc->nr_segments == RECLAIM_BATCH)
		reclaim_settle(rc);
	return true;
}

static int reclaim_create(struct reclaim *rc, struct cache *c)
{
	rc->cache = c;
	rc->nr_segments = 0;
	rc->only_space = rc->must = rc->stays = rc->drains = false;
	rc->kept = 0;
	rc->patience = BUSY_WAITS;
	rc->tries = 0;
	rc->mover = NULL;
	rc->moved = NULL;
	rc->began = jiffies;
	rc->in.entries = kvcalloc(c->segment_slots, sizeof(*rc->in.entries), GFP_NOIO);
	rc->in.sums = kvcalloc(c->data_slots, sizeof(*rc->in.sums), GFP_NOIO);
	rc->in.nr_entries = 0;
	return rc->in.entries && rc->in.sums ? 0 : -ENOMEM;
}

static void reclaim_free(struct reclaim *rc)
{
	mover_free(rc->mover);
	kvfree(rc->in.entries);
	kvfree(rc->in.sums);
}

static u32 segments_sealed(const struct cache *c)
{
	u32 n = 0, i;

	for (i = 0; i < LARDER_NR_STREAMS; i++)
		n += READ_ONCE(c->nr_sealed[i]);
	return n;
}

/* A suspend waits for messages.  What volumes wait for as they are suspended goes on, up to the stop. */
static bool reclaim_ends(const struct reclaim *rc)
{
	return READ_ONCE(rc->cache->stopping) || (rc->asked && READ_ONCE(rc->cache->suspending));
}

/* Empties up to n segments; returns how many, 1 also if it is not through with those that stay; a negative error: none could be. */
static int reclaim_segments(struct cache *c, u32 n, bool only_space, bool asked)
{
	u32 dirty[DIRTY_BATCH], nr_dirty, segment, done = 0;
	struct reclaim rc;
	struct tally t = {};
	int err = reclaim_create(&rc, c), stuck = 0;
	u32 looked = 0;

	rc.only_space = only_space;
	rc.asked = asked;
	rc.tries = 2 * n + 8;
	mutex_lock(&c->reclaim_lock);
	look_at_stuck(c);
	rc.began = jiffies;
	while (!err && done < n && rc.tries-- && !reclaim_ends(&rc)) {
		segment = reclaim_choose(&rc, &t, dirty, &nr_dirty);
		if (segment != LARDER_NO_SEGMENT) {
			done += reclaim_one(&rc, segment, t);
			/* who waits for them need not wait for a sweep over those that stay */
			if (rc.stays && rc.nr_segments && !segments_free_count(c, USE_LOG))
				reclaim_settle(&rc);
			continue;
		}
		if (nr_dirty) {
			reclaim_settle(&rc);
			stuck = reclaim_write_back(&rc, dirty, nr_dirty);
			/* nothing of them can be written: others, but each only once; what is passed over then costs no try */
			looked = stuck == -EAGAIN ? looked + nr_dirty : 0;
			rc.tries += stuck == -EAGAIN && rc.passed_over && !READ_ONCE(c->shape_pause);
			if (stuck == -EAGAIN && rc.later)
				break;
			if (looked < segments_sealed(c))
				continue;
		}
		if (rc.must || done || segments_free_count(c, USE_LOG) || READ_ONCE(c->nr_state[SEGMENT_WAITING]))
			break;
		rc.must = true;
	}
	if (rc.in.entries && rc.in.sums)
		reclaim_settle(&rc);
	mutex_unlock(&c->reclaim_lock);
	reclaim_free(&rc);
	if (!done && !err && rc.kept)
		return 1;
	return done ? (int)done : err ?: stuck;
}

enum evacuate { EVACUATE_NOTHING, EVACUATE_WRITE_BACK, EVACUATE_EMPTY };

/*
 * segments_lock held.  What has this segment to do with the SSD that is drained (NULL: is it one without a second copy?), and can
 * that be done now?  While it is pinned something of it may not be in the index yet.  Or it is being read, all the time: so what is
 * found pinned once more, when drain_run() has waited for all records that it may have, is emptied, and its readers are waited for
 * behind that.  That goes for one with its second copy there as well, which segments_unmirror() takes only where nobody reads.
 */
static enum evacuate judge_evacuate(struct cache *c, const struct cache_device *d, u32 n)
{
	struct segment *seg = &c->segments[n];
	u32 copy[SEGMENT_COPIES];
	bool here = segment_device(c, n) == d;
	bool concerned = d ? segment_on(c, n, d) : segment_ring(c, n, copy) < max(mirror_copies(c), 2u);
	bool pinned = atomic_read(&seg->pins);

	if (seg->state != SEGMENT_SEALED || !concerned)
		return EVACUATE_NOTHING;
	if (pinned && (!d || !seg->settled)) {
		seg->settled = !!d;
		return EVACUATE_NOTHING;
	}
	if (atomic_read(&seg->dirty))
		return segment_damaged(seg) ? EVACUATE_NOTHING : EVACUATE_WRITE_BACK;
	here |= pinned;
	/* its first copy is lost, or damaged: that on this SSD is the one to be read */
	here |= d && (READ_ONCE(segment_device(c, n)->failed) || prefers_mirror(seg));
	return here ? EVACUATE_EMPTY : EVACUATE_NOTHING;
}

static bool evacuate_ended(struct cache *c, const struct cache_device *d)
{
	return READ_ONCE(c->shape_pause) || (d && !READ_ONCE(d->draining));
}

/*
 * Writes may wait for what reclaim_work() makes free, which waits for reclaim_lock: a mutex goes to who has waited for it, if it
 * was not to be had once (kernel/locking/mutex.c, "handoff").
 */
static void evacuate_give_way(struct reclaim *rc)
{
	struct cache *c = rc->cache;

	reclaim_settle(rc);
	mutex_unlock(&c->reclaim_lock);
	reclaim_kick(c);
	cond_resched();
	mutex_lock(&c->reclaim_lock);
}

static void evacuate_segments(struct cache *c, const struct cache_device *d)
{
	u32 dirty[DIRTY_BATCH], nr_dirty = 0, i, handled;
	enum evacuate what;
	struct reclaim rc;
	int err = reclaim_create(&rc, c);

	rc.drains = true;
	mutex_lock(&c->reclaim_lock);
	for (i = handled = 0; i < c->nr_segments && !err && !evacuate_ended(c, d); i++) {
		spin_lock_irq(&c->segments_lock);
		what = judge_evacuate(c, d, i);
		/* not to be put back young */
		if (what == EVACUATE_EMPTY)
			c->segments[i].relinked = true;
		spin_unlock_irq(&c->segments_lock);
		if (what == EVACUATE_EMPTY) {
			segment_set_state(c, i, SEGMENT_RECLAIMING);
			reclaim_one(&rc, i, (struct tally){ .main = c->segments[i].stream == LARDER_STREAM_KEEP });
			if (!(++handled % RECLAIM_BATCH))
				evacuate_give_way(&rc);
		} else if (what == EVACUATE_WRITE_BACK && nr_dirty < DIRTY_BATCH) {
			dirty[nr_dirty++] = i;
		}
		cond_resched();
	}
	if (!err)
		reclaim_settle(&rc);
	/* the lock was let go meanwhile: they may be others' by now */
	spin_lock_irq(&c->segments_lock);
	for (i = handled = 0; i < nr_dirty; i++)
		if (judge_evacuate(c, d, dirty[i]) == EVACUATE_WRITE_BACK)
			dirty[handled++] = dirty[i];
	spin_unlock_irq(&c->segments_lock);
	if (!err && handled && !evacuate_ended(c, d))
		reclaim_write_back(&rc, dirty, handled);
	mutex_unlock(&c->reclaim_lock);
	reclaim_free(&rc);
}

void reclaim_drain(struct cache *c, const struct cache_device *d)
{
	evacuate_segments(c, d);
}

void reclaim_single(struct cache *c)
{
	evacuate_segments(c, NULL);
}

void reclaim_kick(struct cache *c)
{
	if (!READ_ONCE(c->stopping) && (segments_short(c) || READ_ONCE(c->memory_pressure) > 1))
		queue_work(c->reclaim_wq, &c->reclaim_work);
}

void reclaim_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, reclaim_work);
	u32 need = segments_short(c), waiting;
	bool room;
	int got = 0;

	if (c->state == CACHE_FAILED || READ_ONCE(c->stopping) || WARN_ON_ONCE(!c->started))
		return;
	segments_release(c);
	/* those that wait for a checkpoint come only if there can be one, or is one under way */
	room = mutex_is_locked(&c->checkpoint_lock) || checkpoint_has_room(c);
	waiting = room ? segments_coming(c) : 0;
	need -= min(need, waiting);
	if (READ_ONCE(c->memory_pressure) > 1)
		need = max(need, RECLAIM_BATCH);
	if (need)
		got = reclaim_segments(c, need, READ_ONCE(c->memory_pressure) < 2, false);
	segments_release(c);
	/* emptied, but a replay may need their records: a checkpoint moves its start */
	if (segments_short(c) && room)
		segments_want_checkpoint(c);
	if (got > 0) {
		reclaim_kick(c);
		defer_kick(c);
	}
}

int reclaim_now(struct cache *c, u32 n)
{
	int got = reclaim_segments(c, n, false, true);

	segments_release(c);
	return got < 0 ? got : 0;
}

/* ------------------------------------------------------------------ once a second */

static bool clean_due(const struct volume *v)
{
	unsigned long since = READ_ONCE(v->clean_since);

	/* quiet: or the first write behind that would need the disk */
	return since && v->may_be_dirty && !v->set.quiet && time_after(jiffies, since + 60 * HZ);
}

/* meta_wq: what of a tick waits for the volume's backing.  It may find that the volume is not bound any more. */
void volume_tick_work(struct work_struct *work)
{
	struct volume *v = container_of(work, struct volume, tick_work);

	if (!READ_ONCE(v->active))
		return;
	if (unlikely(READ_ONCE(v->behind)))
		volume_catch_up(v);
	if (clean_due(v))
		volume_try_clean(v);
	if (volume_see_due(v))
		volume_see(v);
}

static void tick_volume(struct volume *v)
{
	struct cache *c = v->cache;

	if (!READ_ONCE(v->active))
		return;
	if (marks_due(v))
		queue_work(c->meta_wq, &v->mark_work);
	if (atomic64_read(&v->dirty_sectors) || v->flushing) {
		WRITE_ONCE(v->clean_since, 0);
		writeback_kick(v);
	} else if (!v->clean_since) {
		WRITE_ONCE(v->clean_since, jiffies ?: 1);
	}
	if (unlikely(READ_ONCE(v->writeback_error)))
		writeback_kick(v);	/* perhaps of what is gone: writeback_forget_error() */
	if (unlikely(READ_ONCE(v->behind)) || clean_due(v) || volume_see_due(v))
		queue_work(c->meta_wq, &v->tick_work);
}

/*
 * Rule 11: the flag may go when nothing is dirty, no write is in flight, and every CLEAN and INVALIDATE of dirty data is durable.
 * Sleeps.  0: it is clear.
 */
int volume_try_clean(struct volume *v)
{
	struct cache *c = v->cache;
	bool clear;
	int err;

	if (!v->may_be_dirty)
		return 0;
	err = log_sync(c);
	if (err)
		return err;
	if (READ_ONCE(c->log.durable_lsn) < READ_ONCE(v->last_dirty_lsn))
		return -EBUSY;
	err = flusher_sync(&v->flusher, false);
	if (err)
		return err;
	/* from here on writes see that the flag must be set again, and wait for it */
	spin_lock_irq(&c->log.lock);
	clear = !v->items && !atomic64_read(&v->dirty_sectors) && v->last_dirty_lsn <= c->log.durable_lsn;
	if (clear)
		v->may_be_dirty = false;
	spin_unlock_irq(&c->log.lock);
	if (!clear)
		return -EBUSY;
	return volume_set_may_be_dirty(v, false);
}

/*
 * Rest.  With nothing to do for a minute the tick ends; it goes on when a record is closed (whatever changes the cache goes through
 * the log), a request has to wait, a message comes, a volume is resumed, or an SSD is lost.
 */
#define REST_TICKS	60u

static bool volume_rests(const struct volume *v)
{
	if (!READ_ONCE(v->active))
		return true;
	if (READ_ONCE(v->behind) || READ_ONCE(v->flushing) || READ_ONCE(v->nr_marks))
		return false;
	if (atomic64_read(&v->dirty_sectors))
		return writeback_waits(v);
	if (READ_ONCE(v->writeback_error))
		return false;
	return !READ_ONCE(v->may_be_dirty) || READ_ONCE(v->set.quiet);
}

static bool volumes_rest(struct cache *c)
{
	struct volume *v;
	bool rest = true;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES && rest; i++) {
		v = cache_volume_get(c, i);
		if (!v)
			continue;
		rest = volume_rests(v);
		volume_put(v);
	}
	return rest;
}

static bool cache_rests(struct cache *c)
{
	return READ_ONCE(c->memory_pressure) < 2 && !READ_ONCE(c->nr_joining) && !READ_ONCE(c->nr_draining) &&
	       READ_ONCE(c->resync.state) == RESYNC_IDLE && !third_is_due(c) && list_empty(&c->deferring) && !checkpoint_due(c) &&
	       !segments_short(c) && log_idle(c) && volumes_rest(c);
}

/* Has there been nothing to do for long enough, and for one look at every segment?  Then the tick is not to come again. */
static bool tick_ends(struct cache *c)
{
	u64 sequence = READ_ONCE(c->log.next_sequence);
	bool ends;

	if (sequence != c->rest_sequence || !cache_rests(c))
		c->rest_ticks = 0;
	c->rest_sequence = sequence;
	if (c->rest_ticks++ < REST_TICKS + c->nr_segments / UNMIRROR_BATCH)
		return false;
	spin_lock_irq(&c->log.lock);
	ends = c->log.next_sequence == sequence;
	WRITE_ONCE(c->resting, ends);
	spin_unlock_irq(&c->log.lock);
	smp_mb();	/* pairs with that in cache_tick_wake(): either it sees that we rest, or we see what it comes for */
	return ends && cache_rests(c);
}

void cache_tick_wake(struct cache *c)
{
	smp_mb();	/* pairs with that in tick_ends() */
	if (likely(!READ_ONCE(c->resting)) || READ_ONCE(c->stopping))
		return;
	WRITE_ONCE(c->resting, false);
	queue_delayed_work(c->meta_wq, &c->tick, HZ);
}

static u32 pressure(u64 bytes, u64 limit)
{
	return bytes > limit ? 2 : bytes > limit - limit / 16 ? 1 : 0;
}

void cache_tick(struct work_struct *work)
{
	struct cache *c = container_of(to_delayed_work(work), struct cache, tick);
	u64 bytes, limit, chunks;
	struct volume *v;
	u32 i;

	if (READ_ONCE(c->stopping) || c->state != CACHE_RUNNING)
		return;
	bytes = cache_memory_bytes(c);
	limit = cache_memory_limit(c);
	chunks = checkpoint_estimate(c);
	WRITE_ONCE(c->memory_pressure, max(pressure(bytes, limit), pressure(chunks, checkpoint_most(c))));
	checkpoint_set_reserve(c, chunks);
	if (bytes > limit)
		sums_shrink(c);
	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = cache_volume_get(c, i);
		if (!v)
			continue;
		tick_volume(v);
		volume_put(v);
	}
	if (checkpoint_due(c))
		checkpoint_kick(c);
	segments_release(c);
	segments_unmirror(c);
	segments_open_kick(c);
	reclaim_kick(c);
	defer_kick(c);
	resync_third(c);
	resync_kick(c);
	if (tick_ends(c))
		return;
	WRITE_ONCE(c->resting, false);
	queue_delayed_work(c->meta_wq, &c->tick, HZ);
}
