// SPDX-License-Identifier: GPL-2.0-only
/*
 * Scrub: reads what the cache holds, every copy of it, and compares it with its checksums; what does not match is mended where
 * something has it (docs/design.md, "Scrub").
 *
 * A segment at a time (scrub_segment.c): sealed ones, and of those being written what is complete.  Of a slot that is damaged in
 * some copies
 *   - a copy that matches is written over those that do not, with FUA, and read again (repaired);
 *   - if there is none: clean data leaves the index (dropped), dirty data is marked, so that reads of it fail (unrepairable), and
 *     what nothing is mapped to is of no interest;
 *   - a commit block of which no copy is left: dropped as well.
 * What was dropped is durable by two checkpoints at the end: none that is named maps to that data, or needs that block for replay.
 * Then superblocks, tables and the chunks of the checkpoints themselves.
 *
 * A read that finds the first copy of a segment damaged, and another one whole, has that segment looked at in the same way, a
 * second later (scrub_mend()): by the same work, while no scrub runs.  What it cannot mend is left to a scrub.
 *
 * What a power cut leaves: a slot that was being written over may be torn, in a copy that was damaged before; the copy that
 * matches is never written to.  Before the checkpoints what was dropped may be back, and as damaged as before.
 *
 * No request waits for it: no lock is held while it reads or writes but those of superblocks, and of checkpoints, for what these
 * are.  It keeps to scrub_rate, and to a fifth of the time while there is user I/O.  While an SSD joins it waits: what the other is
 * sent is not to be changed.  A suspend ends the work, the resume begins it again with the segment that it was at.
 *
 * Lock: scrub.lock, for begin and stop; the state leaves SCRUB_RUNNING by the work, or with the work cancelled.
 */
#include <linux/sched/mm.h>

#include "larder.h"
#include "trace.h"

#define BUSY_TRIES	200u	/* of a segment that reclaim has in its hands */
#define BUSY_DELAY	(HZ / 20 ?: 1)
#define MEND_DELAY	HZ	/* between segments that reads have found damaged */
#define MEND_BREAK_MAX	(600 * HZ)	/* where too much cannot be read; a second, and twice that behind each more */

bool scrub_ended(struct cache *c)
{
	return shape_ended(c) || READ_ONCE(c->scrub.state) != SCRUB_RUNNING;
}

/* ------------------------------------------------------------------ all of them */

void scrub_counts_add(struct scrub_counts *sum, const struct scrub_counts *n)
{
	WRITE_ONCE(sum->slots, sum->slots + n->slots);
	WRITE_ONCE(sum->errors, sum->errors + n->errors);
	WRITE_ONCE(sum->repaired, sum->repaired + n->repaired);
	WRITE_ONCE(sum->dropped, sum->dropped + n->dropped);
	WRITE_ONCE(sum->unrepairable, sum->unrepairable + n->unrepairable);
}

/* Named checkpoints that do not map to what was dropped, nor need a block that is lost. */
static int scrub_forget(struct cache *c)
{
	int err;

	if (!c->scrub.forget)
		return 0;
	err = checkpoint_take(c) ?: checkpoint_take(c);
	if (!err)
		c->scrub.forget = false;
	return err;
}

static int scrub_metadata(struct cache *c)
{
	struct scrub_counts n = { };
	int err = super_scrub(c, &n);

	if (!err)
		err = checkpoint_scrub(c, &n);
	scrub_counts_add(&c->scrub.n, &n);
	trace_larder_scrub(c, LARDER_NO_SEGMENT, &n);
	return err;
}

/* Until scrub_rate allows the next segment. */
static unsigned long scrub_delay(struct cache *c, u64 slots)
{
	u64 rate = READ_ONCE(c->set.scrub_rate), now = ktime_get_ns();
	struct scrub *s = &c->scrub;

	if (!rate)
		return 0;
	s->due_ns = max(s->due_ns, now) + div64_u64(slots * (LARDER_SLOT_SIZE / 1024) * NSEC_PER_SEC, rate);
	return s->due_ns > now ? nsecs_to_jiffies(s->due_ns - now) : 0;
}

/* Of whoever ends what it does: the work is to look for what a read has found meanwhile. */
static void scrub_mend_rest(struct cache *c)
{
	if (READ_ONCE(c->scrub.mend))
		scrub_mend_later(c);
}

static void scrub_end(struct cache *c, int err)
{
	enum scrub_state was = SCRUB_RUNNING;
	struct scrub_counts n = c->scrub.n;

	if (!try_cmpxchg(&c->scrub.state, &was, err ? SCRUB_FAILED : SCRUB_DONE))
		return;
	if (err)
		DMERR("cache %pUb: the scrub failed at segment %u of %u: error %d; the lines before say why", c->uuid,
		      c->scrub.pos, c->nr_segments, err);
	else
		DMINFO("cache %pUb: scrubbed: %llu slots read, %llu errors, %llu repaired, %llu dropped, %llu unrepairable",
		       c->uuid, n.slots, n.errors, n.repaired, n.dropped, n.unrepairable);
	scrub_pass_free(c->scrub.pass);
	c->scrub.pass = NULL;
	scrub_mend_rest(c);
	cache_tell(c);
}

/* Also where the work is to look for what a read has found, a little later. */
static void scrub_again(struct cache *c, unsigned long delay)
{
	if (!scrub_ended(c))
		mod_delayed_work(c->bg_wq, &c->scrub.work, delay);
}

/* One segment; or, behind the last one, the rest. */
static int scrub_step(struct cache *c, unsigned long *delay)
{
	struct scrub *s = &c->scrub;
	struct scrub_counts n;
	int err;

	if (READ_ONCE(c->nr_joining)) {
		*delay = HZ;
		return -EAGAIN;
	}
	if (s->pos == c->nr_segments)
		return scrub_forget(c) ?: scrub_metadata(c);
	err = scrub_segment(c, s->pass, s->pos, &n);
	scrub_counts_add(&c->scrub.n, &n);
	if (err == -EAGAIN && s->tries++ < BUSY_TRIES) {
		*delay = BUSY_DELAY;
		return err;
	}
	if (err && err != -EAGAIN)
		return err;
	s->tries = 0;
	WRITE_ONCE(s->pos, s->pos + 1);
	*delay = scrub_delay(c, n.slots);
	return -EAGAIN;
}

/* ------------------------------------------------------------------ what a read has found */

void scrub_mend_later(struct cache *c)
{
	smp_mb();	/* behind the segment's state: scrub_mend() sees that, or this */
	WRITE_ONCE(c->scrub.mend, true);
	if (READ_ONCE(c->set.mend) && !READ_ONCE(c->shape_pause))
		queue_delayed_work(c->bg_wq, &c->scrub.work, max_t(unsigned long, MEND_DELAY, READ_ONCE(c->scrub.mend_break)));
}

static bool may_be_mended(u8 state)
{
	return state == SEGMENT_SEALED || state == SEGMENT_ACTIVE || state == SEGMENT_RECLAIMING;
}

/* Behind the one that it gave last. */
static u32 mend_next(struct cache *c)
{
	struct segment *seg;
	u32 n, i;

	for (n = 0; n < c->nr_segments; n++) {
		i = (c->scrub.mended_last + 1 + n) % c->nr_segments;
		seg = &c->segments[i];
		if (unlikely(segment_to_mend(seg)) && may_be_mended(READ_ONCE(seg->state)) &&
		    (!READ_ONCE(segment_device(c, i)->failed) || segment_members(c, i) > 1))
			return i;
		if (!(n % 65536))
			cond_resched();
	}
	return LARDER_NO_SEGMENT;
}

static unsigned long mend_break_behind(const struct cache *c, int err)
{
	if (!err || err == -ENOMEM)
		return 0;
	return clamp_t(unsigned long, 2 * c->scrub.mend_break, MEND_DELAY, MEND_BREAK_MAX);
}

static void mend_segment(struct cache *c, u32 segment)
{
	struct scrub_pass *p = scrub_pass_create(c, SCRUB_MEND);
	struct cache_device *d = segment_device(c, segment);	/* or, where that has failed, another one that has it */
	struct scrub_counts n = { };
	int err;

	if (!p)
		return;
	if (READ_ONCE(d->failed))
		d = segment_device(c, segment_further(c, segment));
	err = scrub_segment(c, p, segment, &n);
	scrub_pass_free(p);
	WRITE_ONCE(c->scrub.mended, c->scrub.mended + n.repaired);
	if (err == -EAGAIN || err == -ECANCELED || (!err && !n.slots))
		return;
	WRITE_ONCE(c->scrub.mend_break, mend_break_behind(c, err));
	if (err || (prefers_mirror(&c->segments[segment]) && !READ_ONCE(segment_device(c, segment)->failed)))
		DMWARN_LIMIT("%pg: segment %u was found damaged, and could not be mended as a whole (error %d): message 'scrub'",
			     d->bdev, segment, err);
	else if (n.repaired)
		DMINFO("%pg: segment %u was found damaged: %llu slots were mended", d->bdev, segment, n.repaired);
	cache_tell(c);
	scrub_forget(c);
}

/* One segment.  True: there may be more. */
static bool scrub_mend(struct cache *c)
{
	struct scrub *s = &c->scrub;
	u32 segment;

	if (!READ_ONCE(s->mend) || !READ_ONCE(c->set.mend) || shape_ended(c) || READ_ONCE(c->state) != CACHE_RUNNING)
		return false;
	if (READ_ONCE(c->nr_joining))
		return true;
	smp_store_mb(s->mend, false);	/* whoever finds something behind this sets it again */
	segment = mend_next(c);
	if (segment == LARDER_NO_SEGMENT)
		return false;
	s->mended_last = segment;
	mend_segment(c, segment);
	return true;
}

void scrub_work(struct work_struct *work)
{
	struct cache *c = container_of(to_delayed_work(work), struct cache, scrub.work);
	unsigned int noio = memalloc_noio_save();
	unsigned long delay = 0;
	int err = -EAGAIN;

	if (READ_ONCE(c->scrub.state) != SCRUB_RUNNING) {
		if (scrub_mend(c))
			scrub_mend_later(c);
		memalloc_noio_restore(noio);
		return;
	}
	while (err == -EAGAIN && !delay && !scrub_ended(c))
		err = scrub_step(c, &delay);
	if (READ_ONCE(c->state) == CACHE_FAILED)
		scrub_end(c, -EIO);
	else if (err == -EAGAIN)
		scrub_again(c, delay);
	else if (err != -ECANCELED)
		scrub_end(c, err);
	memalloc_noio_restore(noio);
}

/* ------------------------------------------------------------------ messages, suspend and resume */

static int scrub_prepare(struct cache *c)
{
	struct scrub *s = &c->scrub;

	if (s->state == SCRUB_RUNNING) {
		DMERR("cache %pUb: it is being scrubbed already (segment %u of %u)", c->uuid, s->pos, c->nr_segments);
		return -EBUSY;
	}
	s->pass = scrub_pass_create(c, SCRUB_ASKED);
	return s->pass ? 0 : -ENOMEM;
}

int scrub_begin(struct cache *c)
{
	struct scrub *s = &c->scrub;
	int err;

	mutex_lock(&s->lock);
	/* the work that ended the one before may still be at it, or mend something, which can wait */
	WRITE_ONCE(s->begins, true);
	if (s->state != SCRUB_RUNNING)
		flush_delayed_work(&s->work);
	WRITE_ONCE(s->begins, false);
	err = scrub_prepare(c);
	if (!err) {
		memset(&s->n, 0, sizeof(s->n));
		s->pos = s->tries = 0;
		s->due_ns = 0;
		WRITE_ONCE(s->state, SCRUB_RUNNING);
		scrub_again(c, 0);
	}
	mutex_unlock(&s->lock);
	return err;
}

int scrub_stop(struct cache *c)
{
	enum scrub_state was = SCRUB_RUNNING;
	struct scrub *s = &c->scrub;
	bool stopped;

	mutex_lock(&s->lock);
	stopped = try_cmpxchg(&s->state, &was, SCRUB_STOPPED);
	if (stopped) {
		cancel_delayed_work_sync(&s->work);
		scrub_pass_free(s->pass);
		s->pass = NULL;
	}
	scrub_mend_rest(c);
	mutex_unlock(&s->lock);
	if (!stopped) {
		DMERR("cache %pUb: it is not being scrubbed", c->uuid);
		return -EINVAL;
	}
	DMINFO("cache %pUb: the scrub was stopped at segment %u of %u", c->uuid, s->pos, c->nr_segments);
	cache_tell(c);
	return 0;
}

void scrub_resume(struct cache *c)
{
	if (READ_ONCE(c->scrub.state) == SCRUB_RUNNING)
		scrub_again(c, 0);
	else
		scrub_mend_rest(c);
}

void scrub_destroy(struct cache *c)
{
	scrub_pass_free(c->scrub.pass);
}
