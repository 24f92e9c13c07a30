// SPDX-License-Identifier: GPL-2.0-only
/*
 * An SSD joins the set of a running cache: a new one in a place of its own, or one in the place of an SSD that has failed
 * (tests/model/mirror.md, "Join").  What is on it does not matter, and is never read; its superblock says LARDER_CACHE_JOINS.
 *
 * A table that has it is loaded, and the cache stands still meanwhile (join_begin()): so no I/O of its former life is left
 * (join-after-old-io), no append is in flight when it begins to be sent them (join-waits-for-appends), and the copying begins after
 * that (join-appends-first).
 *
 * Steps, and what a power cut finds on it (B) and on the members (A):
 *  1. A's table and then its superblock give B its place, empty, or as one that has failed; B's table is erased, durably.
 *	A has what it had, and everything; B is no member, and blank.  With a place more: no superblock counts one that is not in
 *	the table of every A.
 *  2. B's superblock becomes that of A, and says LARDER_CACHE_JOINS all the same.
 *	As before, up to and including step 5; a start with B in the table begins again at 1.
 *  3. From the resume on B is sent what it has a copy of: every append, flush, checkpoint and superblock counts when it is complete
 *     on B too (join-counts-before-flush: from the first one).  The segments that the write stream has opened get a second copy on
 *     B, new ones are taken in pairs.
 *  4. join_work(): what has dirty data and one copy is copied to B, and what had a copy on B's predecessor is copied again
 *     (join-copies).
 *  5. Two checkpoints are taken: both that the superblocks name, B's too, know these copies, and nothing of what B's predecessor
 *     had alone, which left the index before (join-drops-old-mappings, join-superblock).  Each flushes B (join-flushed).
 *  6. set_admit(): the generation with B, on A, then on the backings; B counts, in memory; then its own table
 *     (join-own-table-last).
 *	Before that last write B's table is blank, B no member, A has everything.  After it either has everything.  Where another
 *	member has failed meanwhile what it had a copy of has one until the resync has ended.
 * B fails: it is forgotten, and no generation changes.  The last A fails: as the failure of an only SSD; B is no cache yet.
 *
 * A suspend may come between any two of the steps: join_work() ends, and is begun again by the resume.
 *
 * Locks: segments_lock for states, links and 'stale'; what is copied is pinned, so that no copy of it is freed.
 */
#include <linux/delay.h>
#include <linux/sched/mm.h>

#include "larder.h"

#define COPY_SLOTS	64u	/* at once */
#define TRY_AGAIN_MS	20u
#define TRY_AGAIN_MOST_MS	800u	/* where no checkpoint can be taken */
#define ADMIT_TRIES	4u

/* ------------------------------------------------------------------ more segments, one place more */

/* Bitmaps per slot.  *bits is replaced. */
static int bits_grow(unsigned long **bits, u64 was, u64 now)
{
	unsigned long *more = vzalloc(BITS_TO_LONGS(now) * sizeof(long));

	if (!more)
		return -ENOMEM;
	memcpy(more, *bits, BITS_TO_LONGS(was) * sizeof(long));
	vfree(*bits);
	*bits = more;
	return 0;
}

int cache_more_segments(struct cache *c, struct cache_device *d, u32 nr)
{
	u64 was = (u64)c->nr_segments * c->segment_slots, now = (u64)nr * c->segment_slots;
	int err;
	u32 i;

	/* larger bitmaps do no harm if the rest fails */
	err = bits_grow(&c->heat.warm, was, now);
	if (!err)
		err = bits_grow(&c->heat.hot, was, now);
	for (i = 0; i < LARDER_CLASS_PINS && !err; i++)
		if (c->pins[i])
			err = bits_grow(&c->pins[i], was, now);
	if (!err && c->bad_slots)
		err = bits_grow(&c->bad_slots, was, now);
	if (!err)
		err = segments_grow(c, d, nr);
	if (err)
		return err;
	c->heat.slots = now;
	c->fixed_bytes += (now - was) / 4;
	for (i = 0; i < LARDER_CLASS_PINS; i++)
		if (c->pins[i])
			atomic64_add((BITS_TO_LONGS(now) - BITS_TO_LONGS(was)) * sizeof(long), &c->pins_bytes);
	WRITE_ONCE(c->nr_segments, nr);
	return 0;
}

/*
 * The place is an empty one, in memory and in the table that is written next: whatever happens now, both are valid, and the
 * superblocks say one more when a table on the SSDs does.
 */
int cache_grow(struct cache *c, const struct larder_table_device *place)
{
	struct cache_device *d = &c->dev[c->nr_devices];
	struct larder_table_device *e = &c->table->devices[c->nr_devices];
	int err;

	d->sb = kzalloc(LARDER_SB_SIZE, GFP_KERNEL);
	if (!d->sb)
		return -ENOMEM;
	INIT_LIST_HEAD(&d->free);
	flusher_init(&d->flusher, c, NULL);
	memcpy(d->uuid, place->uuid, LARDER_UUID_SIZE);
	d->first_segment = c->nr_segments;
	d->nr_segments = le32_to_cpu(place->nr_segments);
	d->start = le64_to_cpu(place->segments_offset) >> LARDER_SECTOR_SHIFT;
	d->failed = d->removed = true;		/* until it counts nothing is missing with it */
	err = cache_more_segments(c, d, c->nr_segments + d->nr_segments);
	if (err) {
		kfree(d->sb);
		d->sb = NULL;
		return err;
	}
	mutex_lock(&c->super_lock);
	*e = *place;
	e->state = cpu_to_le32(LARDER_DEVICE_REMOVED);
	spin_lock_irq(&c->log.lock);
	WRITE_ONCE(c->nr_failed, c->nr_failed + 1);
	c->nr_devices++;
	spin_unlock_irq(&c->log.lock);
	c->table->head.nr_devices = cpu_to_le32(c->nr_devices);
	mutex_unlock(&c->super_lock);
	return 0;
}

/* ------------------------------------------------------------------ the cache stands still */

static bool further_is_bad(const struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy);

	while (--n)
		if (prefers_mirror(&c->segments[copy[n]]))
			return true;
	return false;
}

/* segments_lock held.  What of B's segments counts: copies of what a member has, and chunks until others are named. */
static void place_segment(struct cache *c, struct cache_device *d, u32 n)
{
	struct segment *seg = &c->segments[n];
	u32 first = segment_first(c, n);
	bool unsure;

	seg->stale = 0;
	/* the others are still to be compared, with what it will have */
	unsure = copies_unsure(seg->prefer_mirror) || (n == first && further_is_bad(c, n));
	seg->prefer_mirror = unsure ? MEND_COPIES : PREFER_NONE;
	if (unsure)
		scrub_mend_later(c);
	if (seg->state == SEGMENT_FREE || seg->state == SEGMENT_CHECKPOINT)
		return;
	if (segment_further(c, n) == LARDER_NO_SEGMENT) {
		segment_free_lost(c, n);
		return;
	}
	switch (c->segments[first].state) {
	case SEGMENT_ACTIVE:
		seg->stale = c->log.stream[c->segments[first].stream].head;
		break;
	case SEGMENT_OPENING:
	case SEGMENT_OPENED:
	case SEGMENT_CHECKPOINT:
		break;
	default:
		seg->stale = c->segment_slots;
		break;
	}
}

/* Has it fewer copies than it is to have, and none on B?  Copies on SSDs that have failed are those of their successors. */
static bool lacks_copy(struct cache *c, const struct cache_device *d, u32 segment)
{
	u32 copy[SEGMENT_COPIES];

	return segment_ring(c, segment, copy) < max(mirror_copies(c), 2u) && !segment_on(c, segment, d);
}

/* segments_lock held: one more copy on B of a segment that is to be written to. */
static void pair_one(struct cache *c, struct cache_device *d, u32 segment, u32 slots)
{
	u32 further;

	if (segment == LARDER_NO_SEGMENT || !lacks_copy(c, d, segment))
		return;
	further = segment_take_of(c, d, SEGMENT_MIRROR);
	if (further == LARDER_NO_SEGMENT)
		return;
	segment_link(c, segment, further);
	c->segments[further].stale = slots;
}

/* log->lock and segments_lock held */
static void pair_stream(struct cache *c, struct cache_device *d, struct stream *s)
{
	struct opened_list *o = &s->opened;
	u32 i;

	pair_one(c, d, s->segment, s->head);
	for (i = 0; i < o->count; i++)
		pair_one(c, d, o->segment[(o->head + i) % o->size], 0);
}

static void place_segments(struct cache *c, struct cache_device *d)
{
	u32 i;

	segments_forget_opened(c);
	spin_lock_irq(&c->segments_lock);
	for (i = d->first_segment; i < d->first_segment + d->nr_segments; i++) {
		place_segment(c, d, i);
		segments_turn(c, i);	/* the cache stands still */
	}
	spin_unlock_irq(&c->segments_lock);
	spin_lock_irq(&c->log.lock);
	spin_lock(&c->segments_lock);
	for (i = 0; i < LARDER_NR_STREAMS; i++)
		if (c->set.mirror && stream_pairs(c, i))
			pair_stream(c, d, &c->log.stream[i]);
	spin_unlock(&c->segments_lock);
	spin_unlock_irq(&c->log.lock);
}

/* A's tables and superblocks say where B's segments are, before anything on disk refers to them. */
static int give_place(struct cache *c, struct cache_device *d)
{
	struct larder_table_device *e = &c->table->devices[d - c->dev];
	const struct larder_cache_sb *other = NULL;
	u32 i;
	int err;

	mutex_lock(&c->super_lock);
	for (i = 0; i < c->nr_devices && !other; i++)
		if (!c->dev[i].failed)
			other = c->dev[i].sb;
	if (other) {
		memcpy(d->sb->epochs, other->epochs, sizeof(d->sb->epochs));
		memcpy(d->sb->stack, other->stack, sizeof(d->sb->stack));
	}
	memcpy(e->uuid, d->uuid, sizeof(e->uuid));
	/* empty as it was, should it not come to be a member: only what has failed is missed */
	e->state = cpu_to_le32(d->removed ? LARDER_DEVICE_REMOVED : LARDER_DEVICE_FAILED);
	e->role = d->sb->role;
	WRITE_ONCE(d->role, le32_to_cpu(e->role));
	e->first_segment = cpu_to_le32(d->first_segment);
	e->nr_segments = cpu_to_le32(d->nr_segments);
	e->segments_offset = cpu_to_le64((u64)d->start << LARDER_SECTOR_SHIFT);
	err = cache_table_write(c);
	if (!err)
		err = cache_super_write(c, 0);
	mutex_unlock(&c->super_lock);
	return err;
}

int join_begin(struct cache *c, struct cache_device *d, const struct larder_cache_sb *sb)
{
	int err;

	mutex_lock(&c->super_lock);
	memcpy(d->sb, sb, LARDER_SB_SIZE);
	d->written = le64_to_cpu(sb->head.generation);
	mutex_unlock(&c->super_lock);
	memcpy(d->uuid, sb->head.uuid, sizeof(d->uuid));
	flusher_init(&d->flusher, c, NULL);
	d->flusher.bdev = d->bdev;
	d->refuses = d->refuses_discards = false;
	/* first: what is written from now on may speak of segments of a place that is new */
	err = give_place(c, d) ?: set_check_lost(c, d) ?: cache_table_blank(c, d);
	if (err) {
		DMERR("cache %pUb: SSD %u (%pg) cannot join the set: error %d", c->uuid, (u32)(d - c->dev), d->bdev, err);
		return err;
	}
	set_drop_lost(c);
	spin_lock_irq(&c->log.lock);
	WRITE_ONCE(d->joining, true);
	WRITE_ONCE(c->nr_joining, c->nr_joining + 1);
	spin_unlock_irq(&c->log.lock);
	place_segments(c, d);
	c->join_copied = 0;
	/* its superblock is that of the others, and says that it joins; an error is met again when it is sent more */
	mutex_lock(&c->super_lock);
	cache_super_write(c, 0);
	mutex_unlock(&c->super_lock);
	DMINFO("cache %pUb: SSD %u (%pg) joins the set", c->uuid, (u32)(d - c->dev), d->bdev);
	return 0;
}

void join_forget(struct cache *c, struct cache_device *d)
{
	spin_lock_irq(&c->log.lock);
	if (d->joining) {
		WRITE_ONCE(d->joining, false);
		WRITE_ONCE(c->nr_joining, c->nr_joining - 1);
		WRITE_ONCE(c->failures, c->failures + 1);
	}
	spin_unlock_irq(&c->log.lock);
	/* cache_run() has what only it had leave the index */
}

/* ------------------------------------------------------------------ copying */

static bool join_ended(struct cache *c, const struct cache_device *d)
{
	return shape_ended(c) || !READ_ONCE(d->joining);
}

/* From the first of the copies, from[], that gives it. */
static int read_slots(struct cache *c, struct cache_device *d, const u32 *from, u32 nr, u32 slot, u32 n, void *buf)
{
	struct cache_device *source;
	sector_t where;
	int err = 0;
	u32 i;

	for (i = 0; i < nr; i++) {
		source = copy_sector_device(c, slot_sector(c, from[i], slot), &where);
		if (READ_ONCE(source->failed))
			continue;
		err = super_io(source->bdev, REQ_OP_READ | REQ_META, where, buf, n * LARDER_SLOT_SIZE);
		if (!err)
			return 0;
		cache_error(c, errors_read);
		DMERR("%pg: cannot read segment %u: error %d; SSD %u cannot join before what is there was written anew",
		      source->bdev, from[i], err, (u32)(d - c->dev));
	}
	if (!err)
		DMERR("cache %pUb: the SSDs that had segment %u have failed: SSD %u cannot join now", c->uuid, from[0],
		      (u32)(d - c->dev));
	return err ?: -EIO;
}

/* Of three: is the second one of these not to be read where the third can be?  It may be found out meanwhile. */
static bool third_is_better(struct cache *c, const u32 copy[SEGMENT_COPIES])
{
	const struct segment *third = &c->segments[copy[2]];

	/* the first is what the others may lack something of */
	return !prefers_mirror(third) &&
	       (prefers_mirror(&c->segments[copy[1]]) ||
		(third->state != SEGMENT_MIRROR && copies_unsure(READ_ONCE(third->prefer_mirror))));
}

/* [0, slots) to this copy.  What cannot be read cannot be copied: it is up to who has the data to mend that. */
static int copy_slots(struct cache *c, struct cache_device *d, u32 to, u32 slots, void *buf)
{
	u32 copy[SEGMENT_COPIES], nr = segment_ring(c, to, copy), slot, n;
	sector_t where;
	int err = 0;

	for (slot = 0; slot < slots && !err; slot += n) {
		n = min(slots - slot, COPY_SLOTS);
		if (join_ended(c, d))
			return -ECANCELED;
		if (nr > 2 && third_is_better(c, copy))
			swap(copy[1], copy[2]);
		err = read_slots(c, d, copy + 1, nr - 1, slot, n, buf);
		if (err)
			return err;
		copy_sector_device(c, slot_sector(c, to, slot), &where);
		err = super_io(d->bdev, REQ_OP_WRITE | REQ_META, where, buf, n * LARDER_SLOT_SIZE);
		flusher_wrote(&d->flusher);
		if (err) {
			cache_error(c, errors_write);
			set_device_failed(c, d, "a copy to it failed");
			return -ECANCELED;
		}
		WRITE_ONCE(c->join_copied, c->join_copied + n);
		cond_resched();
	}
	return err;
}

enum copy_verdict { COPY_DONE, COPY_NEEDED, COPY_LATER };

/* Have the SSDs with the other copies failed, and is nothing there that they alone had? */
static bool lost_is_clean(struct cache *c, u32 n)
{
	return segment_lost(c, n) && !atomic_read(&c->segments[segment_first(c, n)].dirty);
}

/* segments_lock held.  Does this copy on B lack what the others have?  Pins all if it is to be made now. */
static enum copy_verdict judge_copy(struct cache *c, u32 n)
{
	struct segment *seg = &c->segments[n];
	u32 first = segment_first(c, n);

	if (!seg->stale)
		return COPY_DONE;
	switch (c->segments[first].state) {
	case SEGMENT_ACTIVE:
	case SEGMENT_SEALED:
		if (seg->mirror == LARDER_NO_SEGMENT)
			return COPY_DONE;
		/* the others have failed: what was clean there leaves the index (lost_work) */
		if (lost_is_clean(c, n)) {
			if (c->segments[first].state == SEGMENT_ACTIVE || atomic_read(&c->segments[first].live) ||
			    atomic_read(&c->segments[first].pins))
				return COPY_LATER;
			seg->stale = 0;
			return COPY_DONE;
		}
		segment_pin(c, first);
		return COPY_NEEDED;
	case SEGMENT_RECLAIMING:
		return COPY_LATER;
	default:
		/* nothing is mapped to it, and both checkpoints to come begin behind its records */
		seg->stale = 0;
		return COPY_DONE;
	}
}

/* What has a copy on B that is not made yet.  *later: some are in work just now. */
static int copy_stale(struct cache *c, struct cache_device *d, void *buf, bool *later)
{
	enum copy_verdict verdict;
	u32 i, first, slots;
	int err = 0;

	for (i = d->first_segment; i < d->first_segment + d->nr_segments && !err; i++) {
		spin_lock_irq(&c->segments_lock);
		verdict = judge_copy(c, i);
		slots = c->segments[i].stale;
		first = segment_first(c, i);
		spin_unlock_irq(&c->segments_lock);
		*later |= verdict == COPY_LATER;
		if (verdict != COPY_NEEDED)
			continue;
		err = copy_slots(c, d, i, slots, buf);
		spin_lock_irq(&c->segments_lock);
		if (!err) {
			c->segments[i].stale = 0;
		} else if (err != -ECANCELED && lost_is_clean(c, i)) {
			err = 0;	/* just now: judge_copy() sees to it */
			*later = true;
		}
		segment_unpin(c, first);
		spin_unlock_irq(&c->segments_lock);
		cond_resched();
	}
	return err;
}

/*
 * segments_lock held.  A sealed segment that is to have two copies and has one gets another one on B, to be made.  What is clean is
 * left as it is where B has no room.
 */
static enum copy_verdict pair_sealed(struct cache *c, struct cache_device *d, u32 n)
{
	struct segment *seg = &c->segments[n];
	u32 further;

	if (seg->state == SEGMENT_MIRROR || !lacks_copy(c, d, n) || !segment_wants_copy(c, seg) || segment_device(c, n)->failed)
		return COPY_DONE;
	/* what the log needs to go on is not for copies */
	if (seg->state != SEGMENT_SEALED || d->nr_free <= segments_opened_goal(c) + READ_ONCE(c->reserve_checkpoint))
		return atomic_read(&seg->dirty) ? COPY_LATER : COPY_DONE;
	further = segment_take_of(c, d, SEGMENT_MIRROR);
	segment_link(c, n, further);
	c->segments[further].stale = c->segment_slots;
	return COPY_NEEDED;
}

/* Does the write stream go on in a segment that would have to be copied?  Only if `mirror` was raised since it was opened. */
static bool to_be_left(struct cache *c, u32 segment, const void *device)
{
	return lacks_copy(c, device, segment) && segment_wants_copy(c, &c->segments[segment]);
}

/* Any new ones?  *later: look again. */
static bool pair_all(struct cache *c, struct cache_device *d, bool *later)
{
	enum copy_verdict verdict;
	bool any = false;
	u32 i;

	/* perhaps nobody writes */
	if (log_uses(c, to_be_left, d) && log_roll(c))
		segments_open_kick(c);
	for (i = 0; i < c->nr_segments && c->set.mirror; i++) {
		spin_lock_irq(&c->segments_lock);
		verdict = pair_sealed(c, d, i);
		spin_unlock_irq(&c->segments_lock);
		*later |= verdict != COPY_DONE;
		any |= verdict == COPY_NEEDED;
		cond_resched();
	}
	return any;
}

/* What is on its way to a segment was not sent to a second copy that it got since (join-waits-for-appends). */
static int wait_for_appends(struct cache *c)
{
	int err = log_wait_applied(c, log_close_open(c, CLOSE_ASKED));

	if (!err)
		copies_wait(c, MAX_SCHEDULE_TIMEOUT);
	return err;
}

/* Until B has everything.  It has not enough room for the dirty data of the others: then writeback has to make some. */
static int join_copy(struct cache *c, struct cache_device *d, void *buf)
{
	bool later;
	int err;

	for (;;) {
		later = false;
		err = pair_all(c, d, &later) ? wait_for_appends(c) : 0;
		if (!err)
			err = copy_stale(c, d, buf, &later);
		if (err || !later)
			return err;
		if (join_ended(c, d))
			return -ECANCELED;
		/* perhaps nobody reads, and so comes to what lost_is_clean() waits for */
		copies_leave(c, stream_lost, NULL);
		segments_open_kick(c);
		reclaim_single(c);
		reclaim_kick(c);
		msleep(TRY_AGAIN_MS);
	}
}

/* An error may be that of a member, which has left the set for it, or of a moment.  Each attempt is a generation. */
static int join_admit(struct cache *c, struct cache_device *d)
{
	u32 tries, wait = TRY_AGAIN_MS;
	int err = -ECANCELED;

	for (tries = 0; tries < ADMIT_TRIES && !join_ended(c, d); tries++) {
		err = set_admit(c, d);
		if (!err)
			break;
		set_wait(c);
		msleep(wait);
		wait = min(2 * wait, TRY_AGAIN_MOST_MS);
	}
	return err;
}

static int join_run(struct cache *c, struct cache_device *d)
{
	void *buf = kvmalloc(COPY_SLOTS * LARDER_SLOT_SIZE, GFP_KERNEL);
	u32 taken = 0, wait = TRY_AGAIN_MS;
	int err = buf ? 0 : -ENOMEM;

	while (!err && taken < LARDER_NR_CHECKPOINTS) {
		err = join_copy(c, d, buf);
		if (err)
			break;
		err = checkpoint_take(c);
		taken += !err;
		/* no space just now, or a member failed: there is another one */
		if (err && !join_ended(c, d)) {
			set_wait(c);
			msleep(wait);
			wait = min(2 * wait, TRY_AGAIN_MOST_MS);
			err = 0;
		}
	}
	kvfree(buf);
	return err ?: join_admit(c, d);
}

void join_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, join_work);
	struct cache_device *d = NULL;
	unsigned int noio = memalloc_noio_save();
	u32 i;
	int err;

	for (i = 0; i < c->nr_devices; i++)
		if (READ_ONCE(c->dev[i].joining))
			d = &c->dev[i];
	err = d ? join_run(c, d) : -ECANCELED;
	if (!err) {
		DMINFO("cache %pUb: SSD %u (%pg) has joined the set: generation %llx", c->uuid, (u32)(d - c->dev), d->bdev,
		       READ_ONCE(c->set_generation));
		segments_open_kick(c);
		resync_look(c);		/* pairs whose first copy was on another SSD, which has failed, were left as they are */
		defer_kick(c);
		cache_tell(c);
	} else if (err != -ECANCELED && !join_ended(c, d)) {
		set_device_failed(c, d, "it could not be given a copy of everything");
	}
	memalloc_noio_restore(noio);
}
