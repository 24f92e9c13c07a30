// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is dirty and has fewer copies than there could be gets them (tests/model/mirror.md, "One SSD fails while running", step 5):
 * when an SSD has left the set and more are there than copies; when more can hold it again, one having joined in a place of its
 * own, or being drained no more; when `mirror` is raised.  What follows says "one copy" and "two", which is all there is below
 * mirror=dirty:3; with that, two and three are the same, but that who has one of two copies can be spared meanwhile.
 *
 * In all but the first of these no SSD is lost, and each may have what no other has: until the end ('raising') the set does not go
 * on without one that fails, as with mirror=none: the cache fails, and finds everything when it is started with it again.  Where
 * one is lost, too, but only if the next one that fails has what no other has: set_work() looks for that.
 *
 * A piece is copied by appending it to the write stream again (move.c): so its two copies are those of a new pair of segments,
 * whichever half of the old pair is lost.
 *
 * Steps, and what a power cut leaves:
 *  1. The write stream goes on in segments that have two copies: those it had opened on the SSD that left are passed over.
 *  2. Each dirty extent whose segment has one copy is appended again, at resync_rate, and a fifth of the time while there is user
 *     I/O.  Cut off, replay finds the record, or the old place: that segment is not reused before the record is durable (rule 9).
 *  3. Again from 1, until nothing is left and no SSD has failed meanwhile.
 *  4. Two checkpoints: all of it is durable then, and no replay that they begin needs a record in a segment with one copy.  Only
 *     now the data counts as having two (resync-durable).  Before that the loss of another SSD may be the loss of dirty data.
 * A suspend ends the work, and so does an SSD that joins; the resume, or cache_tick(), lets it go on.  A start with an SSD missing
 * has a new epoch, which needs nothing of the old log: it begins only if anything has one copy.
 *
 * What no copy gives is left out, said, and tried again.  Clean data is not copied: the backing has it.
 */
#include <linux/delay.h>
#include <linux/sched/mm.h>

#include "larder.h"

#define DEPTH		16	/* pieces in the log at once */
#define TRY_AGAIN_MS	20u
#define NO_ROOM_MS	250u
#define UNREADABLE_BREAK (60 * HZ)
#define TURN_AFTER	3u		/* passes that left something out for what was in flight beside it */

struct resync_run {
	struct cache *c;
	struct mover *mover;
	u32 failures;			/* c->failures when this pass began */
	bool later;			/* some could not be copied now */
	u32 busy_passes;		/* in a row */
	u64 unreadable;			/* sectors of this pass */
};

/* ------------------------------------------------------------------ begin, go on */

static bool segment_alone(struct cache *c, u32 segment, const void *ignored)
{
	return segment_members(c, segment) < 2;
}

/*
 * Nothing else lets it leave RESYNC_IDLE.  One that ends meanwhile has seen the set as it is now, or is begun again: before this
 * c->failures has changed.
 */
void resync_begin(struct cache *c)
{
	struct resync *s = &c->resync;
	struct segments_short few;
	bool begins, alone;

	segments_below(c, &few);
	alone = few.single || log_uses(c, segment_alone, NULL);
	/* who ends it looks at the set under this lock, too */
	spin_lock_irq(&c->log.lock);
	begins = cache_mirrored(c) && READ_ONCE(c->state) != CACHE_FAILED;
	if (begins && s->state == RESYNC_IDLE) {
		atomic64_set(&s->copied, 0);
		s->said = false;
		WRITE_ONCE(s->alone, false);
	}
	if (begins && alone)
		WRITE_ONCE(s->alone, true);
	if (begins)
		WRITE_ONCE(s->state, RESYNC_RUNNING);
	spin_unlock_irq(&c->log.lock);
	if (begins)
		resync_kick(c);
}

/* Is a copy away with an SSD that left, and was not drained?  Then what is left of it is all there is, and another loss is one. */
static bool one_is_lost(const struct cache *c)
{
	return set_nr_lost(c);
}

/* The fewest copies that a chunk of the checkpoints has, if any; sleeps.  Those of `none` have one: without it nothing starts. */
static u32 chunk_copies(struct cache *c)
{
	u32 fewest = SEGMENT_COPIES, i;

	for (i = 0; c->nr_devices > 1 && i < c->nr_segments; i++) {
		if (READ_ONCE(c->segments[i].state) == SEGMENT_CHECKPOINT)
			fewest = min(fewest, segment_members(c, i) ?: SEGMENT_COPIES);
		cond_resched();
	}
	return fewest;
}

/* Also of what the write stream has opened, and goes on to write to.  Of checkpoints there are others at the end of a pass. */
void resync_look(struct cache *c)
{
	u32 failures = READ_ONCE(c->failures), chunks = chunk_copies(c);
	struct segments_short few;

	segments_below(c, &few);
	if (cache_mirrored(c) && (few.some || chunks < cache_copies(c) || log_uses(c, segment_below, NULL))) {
		if (!one_is_lost(c) && (few.single || chunks < 2 || log_uses(c, segment_alone, NULL)))
			WRITE_ONCE(c->resync.raising, true);
		/* a pass that runs may be past it: `mirror` may ask for a third copy since */
		spin_lock_irq(&c->log.lock);
		WRITE_ONCE(c->failures, c->failures + 1);
		spin_unlock_irq(&c->log.lock);
		resync_begin(c);
		return;
	}
	spin_lock_irq(&c->log.lock);
	/* who has said otherwise since looks as well: resync_raise(), drain_stop() */
	if (READ_ONCE(c->resync.state) == RESYNC_IDLE && c->failures == failures)
		WRITE_ONCE(c->resync.raising, false);
	spin_unlock_irq(&c->log.lock);
}

/* A pass that runs has not seen what was written without a second copy since. */
void resync_raise(struct cache *c)
{
	spin_lock_irq(&c->log.lock);
	WRITE_ONCE(c->resync.raising, true);
	WRITE_ONCE(c->failures, c->failures + 1);
	spin_unlock_irq(&c->log.lock);
}

/*
 * An SSD refused a superblock as three copies were asked for.  If it has left, the others have that one, or get it now; if it
 * stays, no segment has a third copy before that is there, too.
 */
void resync_third(struct cache *c)
{
	if (likely(!third_is_due(c)) || READ_ONCE(c->shape_pause) || READ_ONCE(c->log.held))
		return;
	cache_allow_third(c);
	if (!third_is_due(c))
		resync_look(c);
}

void resync_kick(struct cache *c)
{
	if (unlikely(READ_ONCE(c->resync.state) != RESYNC_IDLE) && !READ_ONCE(c->shape_pause))
		queue_work(c->bg_wq, &c->resync.work);
}

static bool resync_ended(struct cache *c)
{
	return shape_ended(c) || READ_ONCE(c->nr_joining) || !cache_mirrored(c);
}

/* ------------------------------------------------------------------ a piece */

/* Until resync_rate allows the next one; it may be changed meanwhile. */
static void resync_pace(struct cache *c, u64 began_ns, u32 sectors)
{
	u32 rate;

	give_way(c, ktime_get_ns() - began_ns);
	while ((rate = READ_ONCE(c->set.resync_rate)) && !resync_ended(c) &&
	       ktime_get_ns() - began_ns < div_u64((u64)sectors / 2 * NSEC_PER_SEC, rate))
		fsleep(USEC_PER_MSEC);
}

/* Is there room for more than what users need next?  Reclaim makes some. */
static bool resync_room(struct cache *c)
{
	return 2 * segments_free_count(c, USE_LOG) >= segments_free_goal(c, USE_LOG);
}

/* ------------------------------------------------------------------ all of them */

static int resync_may_go_on(struct resync_run *rr)
{
	struct cache *c = rr->c;

	if (resync_ended(c) || READ_ONCE(c->failures) != rr->failures)
		return -ECANCELED;
	if (resync_room(c)) {
		WRITE_ONCE(c->resync.state, RESYNC_RUNNING);
		return 0;
	}
	WRITE_ONCE(c->resync.state, RESYNC_WAITING);
	reclaim_kick(c);
	return -ENOSPC;
}

/* An extent, in pieces; where one cannot be read, slot by slot.  An error: not now. */
static int resync_extent(struct resync_run *rr, struct volume *v, const struct larder_map *m)
{
	u32 most = move_sectors(rr->c), done, fine = 0;
	struct larder_map part = *m;
	struct cache *c = rr->c;
	u64 began;
	int err;

	for (done = 0; done < m->len; done += part.len) {
		err = resync_may_go_on(rr);
		if (err)
			return err;
		part.sector = m->sector + done;
		part.cache = m->cache + done;
		part.len = min(m->len - done, most);
		if (done < fine)
			part.len = min_t(u32, part.len, LARDER_SLOT_SECTORS - (part.cache & (LARDER_SLOT_SECTORS - 1)));
		wait_event(c->log.wait, atomic_read(&rr->mover->in_flight) < DEPTH);
		began = ktime_get_ns();
		err = move_piece(rr->mover, v, &part);
		if ((err == -EIO || err == -EBADMSG) && done >= fine && part.len > LARDER_SLOT_SECTORS) {
			fine = done + part.len;
			part.len = 0;
			continue;
		}
		if (err == -EIO || err == -EBADMSG)
			rr->unreadable += part.len;
		else if (err)
			rr->later = true;
		resync_pace(c, began, part.len);
	}
	return 0;
}

static int resync_volume(struct resync_run *rr, struct volume *v)
{
	u32 mask = 1u << LARDER_ST_DIRTY | 1u << LARDER_ST_CLEANING;
	struct larder_map m;
	u64 from = 0;
	int err = 0;

	while (!err && larder_index_next(v->index, from, v->sectors, mask, &m)) {
		from = m.sector + m.len;
		if (segment_short(rr->c, cache_segment(rr->c, m.cache)))
			err = resync_extent(rr, v, &m);
		cond_resched();
	}
	move_wait(rr->mover);	/* they name the volume */
	return err;
}

static void resync_volumes(struct resync_run *rr)
{
	struct volume *v;
	int err = 0;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES && !err; i++) {
		v = cache_volume_get(rr->c, i);
		if (!v)
			continue;
		err = resync_volume(rr, v);
		volume_put(v);
	}
	rr->later |= err;
}

/* Step 1. */
static int resync_roll(struct cache *c)
{
	int err;

	while (log_uses(c, segment_below, NULL) && !resync_ended(c)) {
		err = log_roll(c);
		if (err == -EAGAIN) {
			WRITE_ONCE(c->resync.state, RESYNC_WAITING);
			segments_open_kick(c);
			msleep(TRY_AGAIN_MS);
		} else if (err) {
			return err;
		}
	}
	return log_sync(c);
}

/* Steps 1 to 4, once.  -EAGAIN: not all of it could be done. */
static int resync_pass(struct resync_run *rr)
{
	struct cache *c = rr->c;
	int err, i;

	rr->failures = READ_ONCE(c->failures);
	rr->later = rr->mover->busy = false;
	rr->mover->turns = rr->busy_passes >= TURN_AFTER;
	rr->unreadable = 0;
	set_wait(c);
	err = resync_roll(c);
	if (!err)
		resync_volumes(rr);
	rr->busy_passes = rr->mover->busy ? rr->busy_passes + 1 : 0;
	if (err || rr->later)
		return -EAGAIN;
	for (i = 0; i < LARDER_NR_CHECKPOINTS && !err; i++)
		err = checkpoint_take(c);
	return err || READ_ONCE(c->failures) != rr->failures ? -EAGAIN : 0;
}

static void resync_say_begin(struct cache *c)
{
	struct segments_short few;

	if (c->resync.said)
		return;
	c->resync.said = true;
	segments_below(c, &few);
	if (cache_copies(c) > 2)
		DMINFO("cache %pUb: %llu sectors of dirty data have fewer than three copies: they get them on the SSDs there are",
		       c->uuid, few.some);
	else
		DMINFO("cache %pUb: %llu sectors of dirty data have one copy: they get a second one on the SSDs that are left",
		       c->uuid, few.some);
	cache_tell(c);
}

static void resync_say_end(struct cache *c, u64 unreadable)
{
	u64 copied = atomic64_read(&c->resync.copied);

	if (!unreadable)
		DMINFO("cache %pUb: all dirty data has %s copies again (%llu sectors were copied)", c->uuid,
		       cache_copies(c) > 2 ? "three" : "two", copied);
	else
		DMERR("cache %pUb: %llu sectors of dirty data can be read from no copy: write them anew or discard them", c->uuid,
		      unreadable);
	cache_tell(c);
}

static void resync_run(struct resync_run *rr)
{
	struct resync *s = &rr->c->resync;
	struct cache *c = rr->c;
	bool failed = READ_ONCE(s->state) == RESYNC_FAILED, again;

	resync_say_begin(c);
	while (resync_pass(rr)) {
		if (resync_ended(c))
			return;
		msleep(READ_ONCE(s->state) == RESYNC_WAITING ? NO_ROOM_MS : TRY_AGAIN_MS);
	}
	s->again = jiffies + UNREADABLE_BREAK;
	spin_lock_irq(&c->log.lock);
	/* set_work() may have begun another one just now */
	again = c->failures != rr->failures;
	if (!again) {
		WRITE_ONCE(s->raising, false);
		WRITE_ONCE(s->state, rr->unreadable ? RESYNC_FAILED : RESYNC_IDLE);
	}
	spin_unlock_irq(&c->log.lock);
	if (again)
		resync_begin(c);
	else if (!failed || !rr->unreadable)
		resync_say_end(c, rr->unreadable);
}

/* What could not be read is tried again later, unless all of it was written anew. */
static bool resync_due(struct cache *c)
{
	struct segments_short few;

	if (c->resync.state != RESYNC_FAILED || !time_before(jiffies, c->resync.again))
		return true;
	segments_below(c, &few);
	return !few.some;
}

void resync_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, resync.work);
	unsigned int noio = memalloc_noio_save();
	struct resync *s = &c->resync;
	struct resync_run rr = { .c = c };

	if (s->state == RESYNC_IDLE || !resync_due(c))
		goto out;
	if (!resync_ended(c)) {
		rr.mover = mover_create(c, resync_ended, GFP_KERNEL);
		if (rr.mover)
			resync_run(&rr);
		mover_free(rr.mover);
	}
	spin_lock_irq(&c->log.lock);
	if (!cache_mirrored(c))
		WRITE_ONCE(s->state, RESYNC_IDLE);	/* there is nowhere to copy to: devices_failed says that */
	else if (READ_ONCE(c->nr_joining))
		WRITE_ONCE(s->state, RESYNC_WAITING);
	spin_unlock_irq(&c->log.lock);
out:
	memalloc_noio_restore(noio);
}
