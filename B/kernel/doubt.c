// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a flush of an SSD that failed was to secure, where that SSD has to stay: as the only one, or without a mirror (rule 2).
 *
 * It may be gone, data and commit blocks alike, and the next flush succeed.  The log would have a hole, at which every replay
 * ends, whatever is durable behind it; and the index would name slots that have other content.  So from the failure on the cache
 * is in doubt.  It is, too, where any other write to such an SSD fails: a superblock or a table has a flush in it, and an SSD that
 * was reset has dropped what was not flushed, and says so to whoever had a command in flight.  Not by an error of the place alone
 * (blk_path_error()), nor where the same write fails again: a bad sector where a superblock lies would stop everything.  Until that
 * is known (doubt_suspect()) nothing counts either, and no attempt is made.
 *   doubt-blocks	nothing counts as durable that was not: durable_sequence stays (cache_durable()), what the cache
 *			flushes for itself fails (cache_flush_ssds()), writes and flushes of users wait, reads are compared
 *			with their checksums (verify.c)
 * An attempt to end it, doubt_settle():
 *  1. The open records are closed, and applied: all that was submitted before the failure is complete.  One more is appended: an
 *     SSD that takes nothing any more fails the cache by it, as by any append, and its volumes leave it (leave.c).  Of several it
 *     may go to another one: so behind an attempt that has failed each is asked (doubt-finds-dead).
 *  2. A flush of every SSD, issued now, succeeds: what is not gone by now is durable.
 *  3. doubt-looks: each slot that was written since the last flush that counts is read, and compared (scrub_segment.c).  What is
 *     gone and clean leaves the index.  What is gone and dirty gives errors to those who read it, and (doubt-owed) to the flushes
 *     that waited, with FUA writes; if none did, to the next one.
 *  4. doubt-checkpoint: two checkpoints, which begin now.  A replay begins behind the hole, and of no named one before it.
 *  5. If no flush of an SSD, nor such a write, has failed since 1 the doubt is over, and those that waited go on.  Where one fails
 *     in 1 (an append that is sent again) that is begun anew: what was submitted before must be applied, for 3 to look at it.
 * An error, whoever waited gets, and it is tried again, by the next who comes or later.  Not at once where one of several SSDs
 * refuses what it is asked: a second later it is asked again, and found dead, which its volumes may leave without an error to
 * anybody; or the attempt is made once more (refused-is-asked-again).
 *
 * A power cut finds, before the first checkpoint of 4 is named, the log up to the hole, or less: what had counted as durable at the
 * failure, and no flush, mark, CLEAN or SEGMENT_OPEN has counted since (not of a segment for chunks either: checkpoint.c).  Behind
 * it the checkpoint, whose replay begins behind 1.  Which slots are gone is in memory only: they read as what is there then.
 *
 * An SSD that carries out several flushes side by side may fail a later one first, and say of the earlier one, which finds nothing
 * to do any more, that it has succeeded, before the error is known: nothing tells that.  The block layer sends a disk with one
 * hardware queue one at a time.
 *
 * Works wait for nothing here that waits for users: they ask (doubt_ask()), and are called again.  Who sends a message, binds or
 * detaches a volume, or stops the cache makes an attempt himself, first.
 */
#include <linux/delay.h>
#include <linux/sched/mm.h>

#include "larder.h"

#define BUSY_TRIES	200u	/* of a segment that reclaim has in its hands, or whose summary is on its way */
#define BUSY_MS		20u
#define GATHER_TRIES	8u	/* of step 1 */
#define ATTEMPT_TRIES	3u	/* of steps 1 to 4: an SSD refuses, is asked again, and found dead; without it */
#define LOOK_AT_ONCE	1024u
#define MOST_SECONDS	60u	/* between two attempts that nobody asks for */

void doubt_init(struct cache *c)
{
	mutex_init(&c->doubt.lock);
	INIT_DELAYED_WORK(&c->doubt.work, doubt_work);
}

/* 0 is none. */
static u32 attempt_after(u32 number)
{
	return number + 1 ?: 1;
}

/* log->lock held.  The reads of volumes are compared while it is on: see io.c */
static void doubt_on(struct cache *c, struct flusher *f)
{
	struct flush_doubt *d = &c->doubt;

	if (!d->on) {
		d->from = c->log.durable_sequence;
		d->copies_from = f->covered_copies;
		d->first = attempt_after(d->begun);
	}
	d->copies_from = min(d->copies_from, f->covered_copies);
	WRITE_ONCE(d->on, true);
}

/* log->lock held.  Those that have come, and wait for the next attempt, need none: no other doubt has that number. */
static void doubt_off(struct cache *c)
{
	struct flush_doubt *d = &c->doubt;

	d->begun = doubt_next(c);
	d->settled = d->ended = d->begun;
	WRITE_ONCE(d->on, false);
}

static void doubt_kick(struct cache *c)
{
	defer_kick(c);
	user_flushes_kick(c);
	segments_open_kick(c);
}

static void doubt_begin_for(struct cache *c, struct flusher *f, bool resent)
{
	struct flush_doubt *d = &c->doubt;
	unsigned long flags;
	bool new;

	spin_lock_irqsave(&c->log.lock, flags);
	doubt_on(c, f);
	if (resent)
		WRITE_ONCE(d->resent, d->resent + 1);
	new = !d->certain;
	d->certain = true;
	WRITE_ONCE(d->failures, d->failures + 1);
	spin_unlock_irqrestore(&c->log.lock, flags);
	if (!new)
		return;
	d->wait = 1;
	if (!READ_ONCE(c->stopping))
		queue_delayed_work(c->bg_wq, &d->work, HZ);
}

void doubt_begin(struct cache *c, struct flusher *f)
{
	doubt_begin_for(c, f, false);
}

void doubt_begin_resent(struct cache *c, struct flusher *f)
{
	doubt_begin_for(c, f, true);
}

bool doubt_may_be_reset(const struct cache *c, const struct cache_device *d, blk_status_t status)
{
	return c->started && !READ_ONCE(d->failed) && blk_path_error(status);
}

void doubt_write_failed(struct cache *c, struct cache_device *d, blk_status_t status)
{
	if (doubt_may_be_reset(c, d, status))
		doubt_begin(c, &d->flusher);
}

void doubt_suspect(struct cache *c, struct cache_device *d)
{
	unsigned long flags;

	spin_lock_irqsave(&c->log.lock, flags);
	doubt_on(c, &d->flusher);
	WRITE_ONCE(c->doubt.suspects, c->doubt.suspects + 1);
	spin_unlock_irqrestore(&c->log.lock, flags);
}

void doubt_suspect_end(struct cache *c, struct cache_device *d, bool reset)
{
	bool over;

	if (reset)
		doubt_begin(c, &d->flusher);
	spin_lock_irq(&c->log.lock);
	WRITE_ONCE(c->doubt.suspects, c->doubt.suspects - 1);
	over = !c->doubt.suspects && !c->doubt.certain;
	if (over)
		doubt_off(c);
	spin_unlock_irq(&c->log.lock);
	wake_up(&c->log.wait);
	if (over)
		doubt_kick(c);
}

bool doubt_blocks(const struct cache *c)
{
	return unlikely(READ_ONCE(c->doubt.on)) && READ_ONCE(c->doubt.by) != current;
}

/* Numbers of attempts: the first, or a later one? */
static bool after_attempt(u32 number, u32 asked)
{
	return (s32)(number - asked) >= 0;
}

u32 doubt_next(const struct cache *c)
{
	return unlikely(c->doubt.on) ? attempt_after(c->doubt.begun) : 0;
}

int doubt_ask(struct cache *c, u32 *asked)
{
	struct flush_doubt *d = &c->doubt;
	int err = 0;

	lockdep_assert_held(&c->log.lock);
	if (!d->on)
		return 0;
	if (*asked && after_attempt(d->ended, *asked)) {
		err = d->settled && after_attempt(d->settled, *asked) ? 0 : d->error ?: -EIO;
		*asked = 0;
	}
	/* -EAGAIN: that attempt found something in the hands of others, and another one is asked for */
	if (err && err != -EAGAIN)
		return err;
	/* also where that doubt is over, and there is another one */
	if (!*asked)
		*asked = doubt_next(c);
	if (!READ_ONCE(c->stopping))
		mod_delayed_work(c->bg_wq, &d->work, 0);
	return -EAGAIN;
}

bool doubt_cost(struct volume *v, u32 asked)
{
	u32 lost = READ_ONCE(v->doubt_lost);

	/* who has come while it was being found waits for the next one: doubt-fua */
	return asked && lost && after_attempt(asked, READ_ONCE(v->doubt_first)) && after_attempt(lost + 1, asked);
}

void doubt_lost(struct volume *v)
{
	WRITE_ONCE(v->doubt_first, v->cache->doubt.first);
	WRITE_ONCE(v->doubt_lost, v->cache->doubt.begun);
	flusher_owe_user(&v->flusher);
}

/* ------------------------------------------------------------------ an attempt */

/*
 * Does it have what was not durable when the doubt began?  What is applied, or complete, says so by its segment's sequence number.
 * Records of fill and keep may be complete behind a flush that covers later ones of the write stream: doubt-looks-at-copies.
 */
static bool doubt_concerns(const struct cache *c, const struct segment *seg)
{
	switch (READ_ONCE(seg->state)) {
	case SEGMENT_ACTIVE:
		return true;
	case SEGMENT_SEALED:
	case SEGMENT_RECLAIMING:
		return READ_ONCE(seg->sequence) >=
		       (READ_ONCE(seg->stream) == LARDER_STREAM_WRITE ? c->doubt.from + 1 : c->doubt.copies_from);
	default:
		return false;
	}
}

static int doubt_look_segment(struct cache *c, struct scrub_pass *p, u32 segment, struct scrub_counts *sum)
{
	struct scrub_counts n;
	unsigned int tries = 0;
	int err;

	while ((err = scrub_segment(c, p, segment, &n)) == -EAGAIN && tries++ < BUSY_TRIES)
		msleep(BUSY_MS);
	scrub_counts_add(sum, &n);
	return err;
}

static int doubt_look(struct cache *c, struct scrub_pass *p, struct scrub_counts *sum)
{
	int err = 0;
	u32 i;

	for (i = 0; i < c->nr_segments && !err; i++) {
		if (doubt_concerns(c, &c->segments[i]))
			err = doubt_look_segment(c, p, i, sum);
		if (i % LOOK_AT_ONCE == 0)
			cond_resched();
	}
	return err;
}

static void doubt_report(struct cache *c, const struct scrub_counts *n)
{
	if (n->unrepairable)
		DMERR("cache %pUb: a flush that failed has cost dirty data, in %llu slots: %s", c->uuid, n->unrepairable,
		      "reads of it fail until it is written anew; replace the SSD");
	DMINFO("cache %pUb: behind a flush that failed: %llu slots read, %llu errors, %llu dropped, %llu lost", c->uuid, n->slots,
	       n->errors, n->dropped, n->unrepairable);
}

/* Step 1.  Again where something failed meanwhile: a record that was opened behind may have begun before that. */
static int doubt_gather(struct cache *c)
{
	struct flush_doubt *d = &c->doubt;
	unsigned int tries = GATHER_TRIES;
	int err;

	do {
		spin_lock_irq(&c->log.lock);
		d->counted = d->failures;
		d->counted_resent = d->resent;
		spin_unlock_irq(&c->log.lock);
		log_note(c);		/* without room it is not the SSD that says no */
		err = log_wait_applied(c, log_close_open(c, CLOSE_ASKED));
		if (err)
			return err;
		copies_wait(c, MAX_SCHEDULE_TIMEOUT);
	} while (READ_ONCE(d->failures) != d->counted && --tries);
	return 0;
}

/* Whoever suspects has a write under way, and waits for nothing else; his own the caller has ended. */
static void doubt_wait_suspects(struct cache *c)
{
	wait_event(c->log.wait, !READ_ONCE(c->doubt.suspects) || READ_ONCE(c->state) != CACHE_RUNNING);
}

bool doubt_is_vain(struct cache *c)
{
	if (likely(READ_ONCE(c->doubt.by) != current))
		return false;
	doubt_wait_suspects(c);
	return READ_ONCE(c->doubt.failures) != c->doubt.counted;
}

static void doubt_forget_refusals(struct cache *c)
{
	u32 i;

	c->doubt.asked = 0;
	for (i = 0; i < c->nr_devices; i++)
		c->dev[i].refuses = false;
}

void doubt_resume(struct cache *c)
{
	/* refused before it was suspended, which may be long ago: nobody else is at an attempt */
	doubt_forget_refusals(c);
	if (READ_ONCE(c->doubt.on))
		queue_delayed_work(c->bg_wq, &c->doubt.work, HZ);
}

/*
 * doubt-finds-dead: of several SSDs that must all stay the append of step 1 may have gone to another one than one that is dead.
 * One that takes no write, twice, a second or more apart, is.  True: another attempt may do better, as one has refused for the
 * first time, which it may not a second later, or as the set goes on without one that is dead.
 */
static bool doubt_find_dead(struct cache *c)
{
	struct flush_doubt *doubt = &c->doubt;
	bool refused, again = false;
	struct cache_device *d;
	int err;
	u32 i;

	if (doubt->asked && time_before(jiffies, doubt->asked + HZ))
		return false;
	doubt->asked = jiffies ?: 1;
	for (i = 0; i < c->nr_devices && READ_ONCE(c->state) == CACHE_RUNNING; i++) {
		d = &c->dev[i];
		if (!device_written(d) || READ_ONCE(d->failed))
			continue;
		err = cache_super_touch(c, d);
		if (err == -ENOMEM)
			continue;
		refused = d->refuses;
		d->refuses = err;
		again |= !!err;
		if (!err || !refused)
			continue;
		DMERR("cache %pUb: SSD %u (%pg) takes no writes: error %d", c->uuid, i, d->bdev, err);
		set_device_failed(c, d, "it takes no writes");
	}
	return again && READ_ONCE(c->state) == CACHE_RUNNING;
}

/*
 * Nothing is lost: the attempt waits for memory, rather than those that wait for it get an error.  NULL: it is vain, or would hold
 * up a suspend with which all of them have gone.
 */
static struct scrub_pass *doubt_pass(struct cache *c)
{
	struct scrub_pass *p;

	for (;;) {
		p = scrub_pass_create(c, SCRUB_DOUBT);
		if (p || READ_ONCE(c->state) != CACHE_RUNNING || READ_ONCE(c->stopping) ||
		    (READ_ONCE(c->suspending) && !READ_ONCE(c->live_volumes)))
			return p;
		cache_count(c, waits_memory, 1);
		msleep(NO_MEMORY_MS);
	}
}

/* doubt.lock held, doubt.by is set: steps 1 to 4. */
static int doubt_settle(struct cache *c)
{
	struct scrub_counts n = { };
	struct scrub_pass *p;
	int err;

	/* until this one has named its first checkpoint there may be another hole behind that of an earlier one */
	WRITE_ONCE(c->doubt.behind, false);
	err = doubt_gather(c) ?: cache_flush_ssds(c);
	if (err)
		return err;
	p = doubt_pass(c);
	if (!p)
		return -ENOMEM;
	err = doubt_look(c, p, &n);
	scrub_pass_free(p);
	if (!err)
		err = checkpoint_take(c);
	/* the second one may open segments in the log again: it begins behind the hole */
	WRITE_ONCE(c->doubt.behind, !err);
	if (!err)
		err = checkpoint_take(c);
	if (!err)
		doubt_report(c, &n);
	return err;
}

/*
 * An append has failed in this attempt, and is sent again, which makes that vain: of an SSD that cannot do without an error now and
 * then the users are told nothing, if one more attempt does without.
 */
static bool doubt_was_resent(const struct cache *c)
{
	return READ_ONCE(c->doubt.resent) != c->doubt.counted_resent && READ_ONCE(c->state) == CACHE_RUNNING;
}

/* doubt.lock held, doubt.by is set: steps 1 to 4, and who is dead if they fail. */
static int doubt_attempt(struct cache *c)
{
	unsigned int tries = ATTEMPT_TRIES;
	long pause;
	int err;

	for (;;) {
		err = doubt_settle(c);
		doubt_wait_suspects(c);
		pause = doubt_was_resent(c) ? HZ / 10 : 0;
		if (err && doubt_find_dead(c))
			pause = HZ + 1;
		if (!pause || !--tries)
			break;
		wait_event_timeout(c->log.wait, READ_ONCE(c->state) != CACHE_RUNNING || READ_ONCE(c->stopping), pause);
		if (READ_ONCE(c->state) != CACHE_RUNNING || READ_ONCE(c->stopping))
			break;
	}
	if (!err)
		doubt_forget_refusals(c);
	return err;
}

/* With 'error' or without: those that wait for this attempt are called. */
static bool doubt_ended(struct cache *c, int error)
{
	struct flush_doubt *d = &c->doubt;
	bool on;

	spin_lock_irq(&c->log.lock);
	if (!error && d->failures != d->counted)
		error = -EIO;
	WRITE_ONCE(d->by, NULL);
	WRITE_ONCE(d->behind, false);
	d->ended = d->begun;
	d->error = error;
	if (!error) {
		d->settled = d->ended;
		d->certain = false;
		if (!d->suspects)
			doubt_off(c);
	}
	on = d->certain;
	spin_unlock_irq(&c->log.lock);
	return on;
}

int doubt_try(struct cache *c)
{
	struct flush_doubt *d = &c->doubt;
	unsigned int noio;
	bool on;
	int err;

	if (likely(!READ_ONCE(d->on)))
		return 0;
	doubt_wait_suspects(c);
	noio = memalloc_noio_save();
	mutex_lock(&d->lock);
	spin_lock_irq(&c->log.lock);
	on = d->certain && READ_ONCE(c->state) == CACHE_RUNNING;
	if (on) {
		d->begun = attempt_after(d->begun);
		WRITE_ONCE(d->by, current);
	}
	spin_unlock_irq(&c->log.lock);
	if (on) {
		err = doubt_attempt(c);
		on = doubt_ended(c, err);
		if (!on) {
			/* what is durable again, and whether anybody minds */
			cache_flush_ssds(c);
			cache_tell(c);
		}
		doubt_kick(c);
	}
	mutex_unlock(&d->lock);
	memalloc_noio_restore(noio);
	return on ? -EIO : 0;
}

void doubt_work(struct work_struct *work)
{
	struct cache *c = container_of(to_delayed_work(work), struct cache, doubt.work);
	struct flush_doubt *d = &c->doubt;

	if (!doubt_try(c) || READ_ONCE(c->state) == CACHE_FAILED)
		return;
	d->wait = min(d->wait * 2, MOST_SECONDS);
	if (!READ_ONCE(c->stopping))
		queue_delayed_work(c->bg_wq, &d->work, d->wait * HZ);
}
