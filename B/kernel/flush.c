// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flushes of devices, and the flushes of users (ordering rules 2 and 3).
 *
 * A flusher stands for one device with a volatile cache.  Invariants, by the names of tests/model:
 *   flag-cleared-at-issue           'needed' is cleared when a flush is issued, not when it completes
 *   flush-counts-from-issue         a flush of an SSD makes durable what was applied when it was issued
 *   flush-waits-for-flush-in-flight a flush that finds nothing to do waits for the last one in flight (it covers what the earlier
 *                                   ones cover)
 *   failed-flush-sets-flag, failed-flush-sticks, stuck-until-reissued
 *                                   a failure sets 'needed' and 'failed'; only the success of a flush issued after the last failure
 *                                   clears 'failed'
 *   error-after-all-ended           a user flush is answered when all it waits for has ended
 *   failed-flush-owed               a backing may drop what a flush that fails was to secure, and the next one succeeds.  Without
 *                                   us that flush would be a user's, who gets the error.  So one of ours that fails while something
 *                                   of a user's is volatile, and that no user waits for, fails a later flush, or FUA write, of his
 *   idle-flush-fails                one of a backing that had nothing to secure, issued all the same before a mark is cleared, and
 *                                   behind which nothing became volatile until it failed, has lost nothing: it is an error, and
 *                                   holds up nobody.  Else the first mark that is cleared on a disk that has died would be the end
 *                                   of writes that the SSD alone can take
 *
 * A user flush: commit what was accepted (flush-commits), wait until it is applied (flush-waits), then flush the SSDs and, if a
 * bypassed, written-through or discarded range completed there, the backing.  With nothing to wait for, all of it happens in the
 * caller's context.
 *
 * Where all that changed the volume's dirty data is durable already, it commits nothing and flushes no SSD (flush-spares-ssd): what
 * went past the cache needs its backing alone.  A power cut may then leave on the SSD:
 *   without the INVALIDATE of a bypass: what is older there is CLEAN, for what made it so is durable; and the mark that was durable
 *	before the bypass (rule 6) makes recovery drop it, or the region was unknown to the log
 *   without a record of fill or keep: a miss; the backing has it
 *   without what other volumes have written: their flushes wait for that
 */
#include "larder.h"
#include "trace.h"

struct flush_op {
	struct list_head list;		/* flusher->in_flight */
	struct flusher *flusher;
	struct list_head waiters;	/* struct flush_wait */
	u64 number;
	u64 last;			/* it answers for those up to this one: flush_op_hand_over() */
	u64 cover_lsn, cover_sequence;	/* SSD: applied when it was issued */
	u64 cover_copies;		/* SSD: log->copies_sequence then */
	bool acked;			/* backing: it covers something of a user's that no earlier flush was to secure */
	bool idle;			/* backing: nothing was volatile as it was issued, by what we know */
	struct bio bio;			/* last; no vectors */
};

/* A user flush that waits for several SSDs. */
struct flush_set {
	struct larder_io *io;
	bool failed;			/* of an SSD that has not left the set for it */
	struct flush_wait wait[LARDER_MAX_DEVICES];
};

static mempool_t flush_op_pool, flush_set_pool;

int flush_init(void)
{
	int err = mempool_init_kmalloc_pool(&flush_op_pool, 32, sizeof(struct flush_op));

	if (err)
		return err;
	err = mempool_init_kmalloc_pool(&flush_set_pool, 8, sizeof(struct flush_set));
	if (err)
		mempool_exit(&flush_op_pool);
	return err;
}

void flush_exit(void)
{
	mempool_exit(&flush_set_pool);
	mempool_exit(&flush_op_pool);
}

void flusher_init(struct flusher *f, struct cache *c, struct volume *v)
{
	spin_lock_init(&f->lock);
	INIT_LIST_HEAD(&f->in_flight);
	f->cache = c;
	f->volume = v;
	f->bdev = NULL;
	f->needed = true;		/* nobody knows what was done to the device before us */
	f->failed = false;
	f->own = false;
	f->acked = false;
	f->owed = false;
	f->issued = 0;
	f->fail_barrier = 0;
	f->covered_lsn = 0;
	f->covered_sequence = 0;
	f->covered_copies = 0;
	atomic_set(&f->errors, 0);
}

void flushers_started(struct cache *c)
{
	u32 i;

	c->log.copies_sequence = c->log.next_sequence;
	for (i = 0; i < c->nr_devices; i++)
		c->dev[i].flusher.covered_copies = c->log.next_sequence;
}

/*
 * A flush of an SSD has succeeded.  Durable is what all of them have made so: where nothing waits for a flush, all that had been
 * applied before that was looked at, for its parts were complete by then, and nothing that completes there is missed by 'needed'.
 */
static void cache_durable(struct cache *c)
{
	struct log *log = &c->log;
	u64 lsn, sequence;
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&log->lock, flags);
	lsn = log->applied_lsn;
	sequence = log->applied_sequence;
	spin_unlock_irqrestore(&log->lock, flags);
	for (i = 0; i < c->nr_devices; i++) {
		struct flusher *f = &c->dev[i].flusher;

		if (!device_written(&c->dev[i]))
			continue;
		spin_lock_irqsave(&f->lock, flags);
		if ((f->needed || f->failed || !list_empty(&f->in_flight)) && f->covered_lsn < lsn) {
			lsn = f->covered_lsn;
			sequence = f->covered_sequence;
		}
		spin_unlock_irqrestore(&f->lock, flags);
	}
	spin_lock_irqsave(&log->lock, flags);
	/* held: what an SSD had that was looked at before it failed is not what the set has (rule 14) */
	if (!log->durable_frozen && !log->held && !c->doubt.on && lsn > log->durable_lsn) {
		log->durable_lsn = lsn;
		log->durable_sequence = sequence;
	}
	spin_unlock_irqrestore(&log->lock, flags);
	wake_up(&log->wait);
}

/* Its flushes have begun to fail, or succeed again. */
static void flusher_report(struct flusher *f, int error)
{
	struct cache *c = f->cache ?: f->volume->cache;

	if (error)
		DMERR_LIMIT("%pg: a flush failed: error %d: until one succeeds flushes and writes fail; check the device", f->bdev,
			    error);
	else
		DMINFO("%pg: flushes succeed again", f->bdev);
	if (c)
		cache_tell(c);
	else
		volume_tell(f->volume);
}

/* f->lock held.  A flush has failed, or a write that may have been met by a reset, and no user is told. */
static void flusher_owe(struct flusher *f)
{
	struct flush_op *op;
	bool acked = f->acked;

	list_for_each_entry(op, &f->in_flight, list)
		acked |= op->acked;
	if (f->volume && acked)
		f->owed = true;
}

/* f->lock held.  A flush of a backing has failed: is there nothing it may have lost?  What was issued since covers something. */
static bool flush_op_lost_nothing(const struct flusher *f, const struct flush_op *op)
{
	return op->idle && f->issued == op->number && !f->needed && !f->own && !f->acked;
}

/* f->lock held; op, which has failed, is in the list still: what it was to secure is for the next one. */
static void flush_op_owe(struct flusher *f, struct flush_op *op)
{
	struct flush_wait *w;
	bool told = false;

	list_for_each_entry(w, &op->waiters, list)
		told |= w->tells;
	if (!told)
		flusher_owe(f);
	if (op->acked && list_is_last(&op->list, &f->in_flight))
		f->acked = true;
	else if (op->acked)
		list_next_entry(op, list)->acked = true;
}

/* The flush that was in the write must be repeated (rule 2). */
void flusher_doubt(struct flusher *f)
{
	unsigned long flags;

	spin_lock_irqsave(&f->lock, flags);
	f->needed = true;
	f->failed = true;
	f->fail_barrier = f->issued;
	atomic_inc(&f->errors);
	flusher_owe(f);
	spin_unlock_irqrestore(&f->lock, flags);
}

void flusher_owe_user(struct flusher *f)
{
	unsigned long flags;

	spin_lock_irqsave(&f->lock, flags);
	f->owed = true;
	spin_unlock_irqrestore(&f->lock, flags);
}

static bool flusher_clear_owed(struct flusher *f)
{
	unsigned long flags;
	bool owed;

	if (likely(!READ_ONCE(f->owed)))
		return false;
	spin_lock_irqsave(&f->lock, flags);
	owed = f->owed;
	f->owed = false;
	spin_unlock_irqrestore(&f->lock, flags);
	return owed;
}

void flusher_hand_over(struct flusher *from, struct flusher *to)
{
	if (flusher_clear_owed(from))
		flusher_owe_user(to);
}

bool flusher_take_owed(struct flusher *f)
{
	bool owed = flusher_clear_owed(f);

	if (unlikely(owed))
		DMERR_LIMIT("%pg: a flush has failed that no user was told of, and may have cost data: this one fails", f->bdev);
	return owed;
}

/* It leaves the set, or all that it was to secure is in doubt. */
static void cache_flush_failed(struct cache *c, struct cache_device *d)
{
	set_flush_failed(c, d);
	if (c->started && !READ_ONCE(d->failed))
		doubt_begin(c, &d->flusher);
}

/*
 * f->lock held.  A flush has succeeded while an earlier one is in flight (a disk of several queues): if that fails it may have
 * taken what this one was to secure.  So that one answers for both.
 */
static void flush_op_hand_over(struct flush_op *op)
{
	struct flush_op *before = list_prev_entry(op, list);

	list_splice_tail_init(&op->waiters, &before->waiters);
	before->acked |= op->acked;
	before->idle = false;
	before->last = max(before->last, op->last);
	before->cover_lsn = max(before->cover_lsn, op->cover_lsn);
	before->cover_sequence = max(before->cover_sequence, op->cover_sequence);
	before->cover_copies = max(before->cover_copies, op->cover_copies);
}

static void flush_op_end(struct bio *bio)
{
	struct flush_op *op = container_of(bio, struct flush_op, bio);
	struct flusher *f = op->flusher;
	int error = blk_status_to_errno(bio->bi_status);
	dev_t dev = f->bdev->bd_dev;	/* once its waiters are another one's, f may go */
	struct flush_wait *w, *next;
	bool was_failed, failed, later, lost = true;
	unsigned long flags;

	/* while it is in flight: one beside it that ends well is handed over, or finds the doubt */
	if (error && f->cache)
		cache_flush_failed(f->cache, container_of(f, struct cache_device, flusher));
	spin_lock_irqsave(&f->lock, flags);
	later = !error && !list_is_first(&op->list, &f->in_flight);
	if (later)
		flush_op_hand_over(op);
	else if (error && f->volume)
		flush_op_owe(f, op);
	list_del(&op->list);
	was_failed = f->failed;
	if (later) {
		/* nothing counts yet */
	} else if (error) {
		lost = !flush_op_lost_nothing(f, op);
		if (lost) {
			f->needed = true;
			f->failed = true;
			f->fail_barrier = f->issued;
		}
		atomic_inc(&f->errors);
		if (f->cache)
			cache_count(f->cache, errors_flush, 1);
		else if (lost)
			volume_count(f->volume, errors_flush, 1);
		else
			volume_error(f->volume, errors_flush);
	} else if (op->last > f->fail_barrier) {
		/* one that was issued before another failed may have found nothing left to secure */
		f->failed = false;
		if (op->cover_lsn > f->covered_lsn) {
			f->covered_lsn = op->cover_lsn;
			f->covered_sequence = op->cover_sequence;
		}
		f->covered_copies = max(f->covered_copies, op->cover_copies);
	}
	failed = f->failed;
	/* under the lock: one that ends next, and well, is not to clear what this one is for */
	if (f->volume && !later)
		marks_flush_done(f->volume, op->last, !error);
	spin_unlock_irqrestore(&f->lock, flags);
	if (later)
		goto out;	/* its waiters are another one's: f may be gone */
	if (error && f->cache && cache_in_doubt(f->cache))
		leave_clean(f->cache, "a flush of it failed, and nothing is dirty");
	if (was_failed != failed)
		flusher_report(f, error);
	/* durable before anybody is told */
	if (!error && f->cache)
		cache_durable(f->cache);
out:
	trace_larder_flush_done(dev, op->number, error);
	list_for_each_entry_safe(w, next, &op->waiters, list)
		w->done(w, error);
	bio_uninit(bio);
	mempool_free(op, &flush_op_pool);
}

/* f->lock held */
static void flush_op_issue(struct flusher *f, struct flush_op *op, struct flush_wait *w)
{
	bool needed = xchg(&f->needed, false) | xchg(&f->own, false);

	/* who sets these holds no lock: what this one takes over it does cover */
	op->acked = xchg(&f->acked, false);
	op->idle = f->volume && !needed && !op->acked && !f->failed && list_empty(&f->in_flight);
	op->flusher = f;
	op->number = op->last = ++f->issued;
	INIT_LIST_HEAD(&op->waiters);
	list_add_tail(&w->list, &op->waiters);
	list_add_tail(&op->list, &f->in_flight);
	op->cover_lsn = 0;
	op->cover_sequence = 0;
	op->cover_copies = 0;
	if (f->cache) {
		/* of one record, or of an earlier one than the lsn: never of one that this flush may not cover */
		op->cover_sequence = smp_load_acquire(&f->cache->log.applied_sequence);
		op->cover_lsn = READ_ONCE(f->cache->log.applied_lsn);
		op->cover_copies = smp_load_acquire(&f->cache->log.copies_sequence);	/* pairs with copies_done() */
		cache_count(f->cache, ssd_flushes, 1);
	} else {
		volume_count(f->volume, backing_flushes, 1);
	}
}

/* f->lock held.  With nothing to do: the one to wait for, which covers what those before it cover; NULL: none that has anything. */
static struct flush_op *flusher_last(const struct flusher *f)
{
	struct flush_op *last;

	if (list_empty(&f->in_flight))
		return NULL;
	last = list_last_entry(&f->in_flight, struct flush_op, list);
	return last->idle && last->number == f->issued ? NULL : last;
}

int flusher_flush(struct flusher *f, struct flush_wait *w, bool force, bool may_wait)
{
	struct flush_op *op = NULL, *last;
	unsigned long flags;

	for (;;) {
		spin_lock_irqsave(&f->lock, flags);
		if (!f->needed && !f->failed && !force) {
			last = flusher_last(f);
			if (last)
				list_add_tail(&w->list, &last->waiters);
			spin_unlock_irqrestore(&f->lock, flags);
			if (op)
				mempool_free(op, &flush_op_pool);
			return !!last;
		}
		if (op)
			break;
		spin_unlock_irqrestore(&f->lock, flags);
		op = mempool_alloc(&flush_op_pool, may_wait ? GFP_NOIO : GFP_NOWAIT | __GFP_NOWARN);
		if (!op)
			return -EAGAIN;
	}
	flush_op_issue(f, op, w);
	spin_unlock_irqrestore(&f->lock, flags);
	if (f->volume)
		marks_flush_issued(f->volume, op->number);
	trace_larder_flush(f->bdev->bd_dev, op->number);
	bio_init_for_all(&op->bio, f->bdev, NULL, 0, REQ_OP_WRITE | REQ_PREFLUSH | REQ_SYNC);
	op->bio.bi_end_io = flush_op_end;
	submit_bio(&op->bio);
	return 1;
}

struct flush_sync {
	struct flush_wait wait;
	struct completion done;
	int error;
};

static void flush_sync_done(struct flush_wait *w, int error)
{
	struct flush_sync *s = container_of(w, struct flush_sync, wait);

	s->error = error;
	complete(&s->done);
}

int flusher_sync(struct flusher *f, bool force)
{
	struct flush_sync s = { .wait.done = flush_sync_done };

	if (!f->bdev)
		return -ENODEV;
	init_completion(&s.done);
	if (flusher_flush(f, &s.wait, force, true))
		wait_for_completion_io(&s.done);
	return s.error;
}

void flusher_wait(struct flusher *f)
{
	struct flush_op *op;
	u64 last;

	spin_lock_irq(&f->lock);
	last = f->issued;
	while ((op = list_first_entry_or_null(&f->in_flight, struct flush_op, list)) && op->number <= last) {
		struct flush_sync s = { .wait.done = flush_sync_done };

		init_completion(&s.done);
		list_add_tail(&s.wait.list, &op->waiters);
		spin_unlock_irq(&f->lock);
		wait_for_completion_io(&s.done);
		spin_lock_irq(&f->lock);
	}
	spin_unlock_irq(&f->lock);
}

int backing_secure(struct volume *v, unsigned int errors)
{
	int err = flusher_sync(&v->flusher, true);

	if (err)
		return err;
	/* others may have begun before, and are told later; a superblock's flush is in its write */
	flusher_wait(&v->flusher);
	mutex_lock(&v->super_lock);
	mutex_unlock(&v->super_lock);
	return atomic_read(&v->flusher.errors) != errors ? -EIO : 0;
}

void flusher_write_failed(struct flusher *f, blk_status_t status)
{
	if (blk_path_error(status))
		atomic_inc(&f->errors);
}

void flusher_own_write_failed(struct flusher *f, blk_status_t status)
{
	unsigned long flags;

	if (!blk_path_error(status))
		return;
	spin_lock_irqsave(&f->lock, flags);
	atomic_inc(&f->errors);
	flusher_owe(f);
	spin_unlock_irqrestore(&f->lock, flags);
}

int cache_flush_ssds(struct cache *c)
{
	int error, err;
	u32 i, failures;

	do {
		/* before it is known that no set is being written without one: it may fail in between */
		failures = READ_ONCE(c->failures);
		set_wait(c);
		error = 0;
		for (i = 0; i < c->nr_devices; i++) {
			if (!device_written(&c->dev[i]))
				continue;
			err = flusher_sync(&c->dev[i].flusher, false);
			error = error ?: err;
		}
		/* of an SSD that has left the set since: the others count, once the set without it is durable */
	} while (READ_ONCE(c->failures) != failures && READ_ONCE(c->state) != CACHE_FAILED);
	/* one whose flush failed meanwhile may be a member again (set_take_back()), and has lost what was volatile */
	if (!error && READ_ONCE(c->state) == CACHE_FAILED)
		error = -EIO;
	if (!error && doubt_blocks(c))
		error = -EIO;
	if (!error)
		cache_durable(c);	/* also what was applied only after the flush that covers it had been issued */
	return error;
}

bool cache_in_doubt(struct cache *c)
{
	u32 i;

	if (unlikely(READ_ONCE(c->doubt.on)))
		return true;
	for (i = 0; i < c->nr_devices; i++)
		if (unlikely(READ_ONCE(c->dev[i].flusher.failed) && !READ_ONCE(c->dev[i].failed)))
			return true;
	return false;
}

bool volume_in_doubt(struct volume *v)
{
	if (unlikely(READ_ONCE(v->flusher.failed) || READ_ONCE(v->behind)))
		return true;
	return v->cache && cache_in_doubt(v->cache);
}

/* ------------------------------------------------------------------ flushes of users */

/*
 * A flush that has ended: of what it was for something may be gone, as another one has failed.  So may what a cache had that has
 * failed since this was sent to its SSDs: user_flush_may() knows what becomes of that.
 */
static bool user_flush_in_doubt(struct larder_io *io)
{
	struct cache *c = io->volume->cache;

	if (!c)
		return false;
	if (unlikely(READ_ONCE(c->state) == CACHE_FAILED))
		return io->stage > 1;	/* else SSDs were not asked: user_flush_devices() */
	return unlikely(READ_ONCE(c->doubt.on));
}

/* Owed: by a flush of larder's own, or by the doubt that it has waited for. */
static bool user_flush_owed(struct larder_io *io)
{
	struct volume *v = io->volume;
	bool owed = doubt_cost(v, io->doubt) || unlikely(READ_ONCE(v->doubt_lost) != io->doubt_lost);

	/* dm drops its error: the write behind it has to say so */
	if (owed && io->of_data)
		flusher_owe_user(&v->flusher);
	else if (owed || (!io->only_ssd && !io->of_data))
		owed |= flusher_take_owed(&v->flusher);
	return owed;
}

static void user_flush_put(struct larder_io *io)
{
	struct bio *bio = larder_io_bio(io);
	int error;

	if (!atomic_dec_and_test(&io->pending))
		return;
	if (io->set) {
		struct cache *c = io->volume->cache;
		bool failed = io->error || READ_ONCE(io->set->failed);

		mempool_free(io->set, &flush_set_pool);
		io->set = NULL;
		/*
		 * An SSD has left the set: once the set without it is durable, the others are asked again.  Not if one of them, or
		 * the backing, has failed this flush: it may have lost what the flush was for, and say so but once.
		 */
		if (unlikely(READ_ONCE(c->failures) != io->failures) && !failed && READ_ONCE(c->state) != CACHE_FAILED) {
			io->stage = 0;
			flush_enqueue(c, io);
			return;
		}
	}
	if (unlikely(io->ssd_error) && !io->error && leave_may(io->volume)) {
		/* the backing alone will do, if the volume can leave */
		io->stage = 0;
		flush_enqueue(io->volume->cache, io);
		return;
	}
	error = io->error ?: io->ssd_error;
	if (!error && unlikely(user_flush_in_doubt(io))) {
		io->stage = 0;
		flush_enqueue(io->volume->cache, io);
		return;
	}
	if (user_flush_owed(io))
		error = error ?: -EIO;
	io_complete(bio, error);
}

static void user_flush_done(struct flush_wait *w, int error)
{
	struct larder_io *io = container_of(w, struct larder_io, wait[w->index]);

	if (error && w->index)
		io->error = error;
	else if (error)
		io->ssd_error = error;
	user_flush_put(io);
}

static void user_flush_set_done(struct flush_wait *w, int error)
{
	struct flush_set *set = container_of(w, struct flush_set, wait[w->index]);
	struct larder_io *io = set->io;

	if (error) {
		io->ssd_error = error;
		/* flush_op_end() has made it leave by now, if it can be spared */
		if (!READ_ONCE(io->volume->cache->dev[w->index].failed))
			WRITE_ONCE(set->failed, true);
	}
	user_flush_put(io);
}

static int user_flush_prepare(struct cache *c, struct larder_io *io, bool may_wait)
{
	u32 i;

	io->set = NULL;
	if (c && c->nr_devices > 1) {
		io->set = mempool_alloc(&flush_set_pool, may_wait ? GFP_NOIO : GFP_NOWAIT | __GFP_NOWARN);
		if (!io->set)
			return -EAGAIN;
		io->set->io = io;
		io->set->failed = false;
		for (i = 0; i < c->nr_devices; i++) {
			io->set->wait[i].done = user_flush_set_done;
			io->set->wait[i].index = i;
		}
	}
	atomic_set(&io->pending, 1);
	io->error = 0;
	io->ssd_error = 0;
	for (i = 0; i < ARRAY_SIZE(io->wait); i++) {
		io->wait[i].done = user_flush_done;
		io->wait[i].index = i;
		io->wait[i].tells = !io->of_data;
	}
	io->stage = 1;
	return 0;
}

static int user_flush_one(struct larder_io *io, struct flusher *f, struct flush_wait *w, bool may_wait)
{
	int err;

	atomic_inc(&io->pending);
	err = flusher_flush(f, w, false, may_wait);
	if (err <= 0)
		atomic_dec(&io->pending);
	return min(err, 0);
}

/* Rule 14: what is flushed counts without the SSD that has left.  1: it was answered, with an error. */
static int user_flush_catch_up(struct volume *v, struct larder_io *io, bool may_wait)
{
	int err;

	if (likely(!READ_ONCE(v->behind)))
		return 0;
	if (!may_wait)
		return -EAGAIN;
	err = volume_catch_up(v);
	if (!err)
		return 0;
	io_complete(larder_io_bio(io), err);
	return 1;
}

/*
 * All that was accepted before is applied: flush the devices.  -EAGAIN: no memory (!may_wait); what was begun goes on, and another
 * call with may_wait does the rest (io->stage: SSDs that are done with, and one).  wait[0] is for an only SSD, wait[1] for the
 * backing.
 */
static int user_flush_devices(struct volume *v, struct larder_io *io, bool may_wait)
{
	struct cache *c = smp_load_acquire(&v->leave) == LEAVE_DONE ? NULL : v->cache;	/* pairs with leave_work() */
	int err;

	if (!io->stage) {
		err = c || !v->cache ? user_flush_catch_up(v, io, may_wait) : 0;
		if (err)
			return min(err, 0);
		err = user_flush_prepare(io->spares_ssd ? NULL : c, io, may_wait);
		if (err)
			return err;
	}
	for (; c && !io->spares_ssd && io->stage <= c->nr_devices; io->stage++) {
		u32 i = io->stage - 1;

		if (!device_written(&c->dev[i]))
			continue;
		err = user_flush_one(io, &c->dev[i].flusher, io->set ? &io->set->wait[i] : &io->wait[0], may_wait);
		if (err)
			return err;
	}
	if (!io->only_ssd) {
		err = user_flush_one(io, &v->flusher, &io->wait[1], may_wait);
		if (err)
			return err;
	}
	user_flush_put(io);
	return 0;
}

/* log->lock held: behind it the work may have answered it, and its volume be gone. */
static void flush_ready(struct cache *c, struct larder_io *io)
{
	struct volume *v = io->volume;

	if (!io->doubt)
		io->doubt = doubt_next(c);
	list_add_tail(&io->list, &v->flush_ready);
	queue_work(c->io_wq, &v->flush_work);
}

/* For the worker: from any context */
void flush_enqueue(struct cache *c, struct larder_io *io)
{
	unsigned long flags;

	spin_lock_irqsave(&c->log.lock, flags);
	flush_ready(c, io);
	spin_unlock_irqrestore(&c->log.lock, flags);
}

/* Learns whether a flush follows single writes: then their commit block leaves with the data (design, section 2). */
static void flush_learn(struct log *log)
{
	unsigned int n = log->writes_since_flush;

	if (n && n <= 2)
		log->flush_follows = min(log->flush_follows + 2, 8u);
	else if (n > 8)
		log->flush_follows = log->flush_follows > 2 ? log->flush_follows - 2 : 0;
	log->writes_since_flush = 0;
}

/*
 * log->lock held: is all durable that has changed which data of the volume is dirty?  Not asked while the set is being told of an
 * SSD that has left, nor in doubt: what is acknowledged then has to wait in any case.
 */
static bool user_flush_spares_ssd(const struct volume *v)
{
	const struct cache *c = v->cache;

	return v->last_dirty_lsn <= c->log.durable_lsn && !c->log.held && !c->doubt.on;
}

/* Process context.  Takes the bio: an empty flush, or what is left of a FUA write that was bypassed. */
static void user_flush_begin(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	struct cache *c = v->cache;
	struct log *log = &c->log;
	bool ready;

	spin_lock_irq(&log->lock);
	/* under the lock: an append that failed says so before its record counts as applied (append_done()) */
	if (unlikely(READ_ONCE(c->state) == CACHE_FAILED)) {
		flush_ready(c, io);
		spin_unlock_irq(&log->lock);
		return;
	}
	io->spares_ssd = user_flush_spares_ssd(v);
	io->failures = c->failures;
	ready = io->spares_ssd;
	if (!ready) {
		flush_learn(log);
		io->target = log_close_locked(c, CLOSE_FLUSH);
		ready = log->applied_lsn >= io->target && !log->held && !c->doubt.on;
		if (!ready && log->applied_lsn >= io->target)
			flush_ready(c, io);	/* held, in doubt: user_flushes_kick() */
		else if (!ready)
			list_add_tail(&io->list, &log->flush_waiters);
	}
	spin_unlock_irq(&log->lock);
	if (ready) {
		if (user_flush_devices(v, io, may_wait))
			flush_enqueue(c, io);
		return;
	}
	log_send(c);
}

static void user_flush_init(struct larder_io *io, bool only_ssd, bool of_data, bool again)
{
	io->kind = IO_FLUSH;
	io->only_ssd = only_ssd;
	io->of_data = of_data;
	io->spares_ssd = false;
	io->stage = 0;
	io->again = again;
	io->doubt = 0;
	io->doubt_lost = READ_ONCE(io->volume->doubt_lost);
}

void user_flush(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	io->volume = v;
	/* dm clones the write, with its flags and its pages, and takes its length away */
	user_flush_init(io, false, bio->bi_opf & REQ_FUA || bio->bi_io_vec, true);
	volume_count(v, flushes, 1);
	if (v->cache)
		user_flush_begin(v, bio, io, false);
	else if (user_flush_devices(v, io, may_wait))
		defer_bio(v, bio);
}

/* Interrupt context: a bypassed FUA write has reached the backing; the flush that makes it durable begins in the worker. */
void user_flush_after(struct volume *v, struct larder_io *io)
{
	user_flush_init(io, false, false, false);
	flush_enqueue(v->cache, io);
}

/* Interrupt context, log->lock held: a cached FUA write is applied; an SSD flush issued from now on makes it durable. */
void user_flush_fua(struct cache *c, struct larder_io *io)
{
	user_flush_init(io, true, false, true);
	flush_ready(c, io);
}

void user_flush_ready(struct cache *c)
{
	struct log *log = &c->log;
	struct larder_io *io, *next;

	list_for_each_entry_safe(io, next, &log->flush_waiters, list) {
		if (log->applied_lsn < io->target)
			break;
		list_del(&io->list);
		flush_ready(c, io);
	}
}

void user_flushes_kick(struct cache *c)
{
	struct volume *v;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = cache_volume_get(c, i);
		if (!v)
			continue;
		if (!list_empty(&v->flush_ready))
			queue_work(c->io_wq, &v->flush_work);
		volume_put(v);
	}
}

void user_flushes_wait(struct cache *c)
{
	struct volume *v;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = cache_volume_get(c, i);
		if (!v)
			continue;
		flush_work(&v->flush_work);
		volume_put(v);
	}
}

static void user_flush_refuse(struct larder_io *io, int error)
{
	if (!io->stage) {
		io_complete(larder_io_bio(io), error);
		return;
	}
	/* one of its flushes is in flight still */
	io->error = error;
	user_flush_put(io);
}

/* log->lock held.  Not yet: user_flushes_kick(), or leave_work(), queues the work again.  -EAGAIN, or an error that it gets. */
static int user_flush_may(struct cache *c, struct larder_io *io, bool failed)
{
	if (!io->stage)
		io->failures = c->failures;
	switch (failed ? READ_ONCE(io->volume->leave) : LEAVE_DONE) {
	case LEAVE_UNDECIDED:
		return -EAGAIN;
	case LEAVE_REFUSED:
		return -EIO;
	}
	if (failed)
		return 0;
	return c->log.held ? -EAGAIN : doubt_ask(c, &io->doubt);
}

/* Of one volume, whose backing may hang. */
void user_flush_work(struct work_struct *work)
{
	struct volume *v = container_of(work, struct volume, flush_work);
	struct cache *c = v->cache;
	struct log *log = &c->log;
	struct larder_io *io;
	bool failed;
	int err;

	for (;;) {
		spin_lock_irq(&log->lock);
		failed = READ_ONCE(c->state) == CACHE_FAILED;
		io = list_first_entry_or_null(&v->flush_ready, struct larder_io, list);
		err = io ? user_flush_may(c, io, failed) : -EAGAIN;
		if (err != -EAGAIN)
			list_del_init(&io->list);
		spin_unlock_irq(&log->lock);
		if (err == -EAGAIN)
			break;
		if (err) {
			user_flush_refuse(io, err);
		} else if (!failed && !io->again) {
			io->again = true;
			user_flush_begin(v, larder_io_bio(io), io, true);
		} else {
			user_flush_devices(v, io, true);
		}
	}
}
