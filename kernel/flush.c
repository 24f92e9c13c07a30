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
 *
 * A user flush: commit what was accepted (flush-commits), wait until it is applied (flush-waits), then flush the SSDs and, if a
 * bypassed, written-through or discarded range completed there, the backing.  With nothing to wait for, all of it happens in the
 * caller's context.
 */
#include "larder.h"
#include "trace.h"

struct flush_op {
	struct list_head list;		/* flusher->in_flight */
	struct flusher *flusher;
	struct list_head waiters;	/* struct flush_wait */
	u64 number;
	u64 cover_lsn, cover_sequence;	/* SSD: applied when it was issued */
	struct bio bio;			/* last; no vectors */
};

static mempool_t flush_op_pool;

int flush_init(void)
{
	return mempool_init_kmalloc_pool(&flush_op_pool, 32, sizeof(struct flush_op));
}

void flush_exit(void)
{
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
	f->issued = 0;
	f->fail_barrier = 0;
}

/* One SSD.  With several, durable will mean: on all of them, the least of what their flushes cover. */
static void flusher_durable(struct flusher *f, const struct flush_op *op)
{
	struct cache *c = f->cache;
	struct log *log = &c->log;
	unsigned long flags;

	spin_lock_irqsave(&log->lock, flags);
	if (!log->durable_frozen && !WARN_ON_ONCE(c->nr_devices > 1) && op->cover_lsn > log->durable_lsn) {
		log->durable_lsn = op->cover_lsn;
		log->durable_sequence = op->cover_sequence;
	}
	spin_unlock_irqrestore(&log->lock, flags);
	wake_up(&log->wait);
}

static void flush_op_end(struct bio *bio)
{
	struct flush_op *op = container_of(bio, struct flush_op, bio);
	struct flusher *f = op->flusher;
	int error = blk_status_to_errno(bio->bi_status);
	struct flush_wait *w, *next;
	unsigned long flags;

	/* durable before anybody is told */
	if (!error && f->cache)
		flusher_durable(f, op);
	if (f->volume)
		marks_flush_done(f->volume, op->number, !error);
	spin_lock_irqsave(&f->lock, flags);
	list_del(&op->list);
	if (error) {
		f->needed = true;
		f->failed = true;
		f->fail_barrier = f->issued;
		if (f->cache)
			cache_count(f->cache, errors_flush, 1);
		else
			volume_count(f->volume, errors_flush, 1);
	} else if (op->number > f->fail_barrier) {
		f->failed = false;
	}
	spin_unlock_irqrestore(&f->lock, flags);
	trace_larder_flush_done(f->bdev->bd_dev, op->number, error);
	list_for_each_entry_safe(w, next, &op->waiters, list)
		w->done(w, error);
	bio_uninit(bio);
	mempool_free(op, &flush_op_pool);
}

/* f->lock held */
static void flush_op_issue(struct flusher *f, struct flush_op *op, struct flush_wait *w)
{
	op->flusher = f;
	op->number = ++f->issued;
	INIT_LIST_HEAD(&op->waiters);
	list_add_tail(&w->list, &op->waiters);
	list_add_tail(&op->list, &f->in_flight);
	WRITE_ONCE(f->needed, false);
	op->cover_lsn = 0;
	op->cover_sequence = 0;
	if (f->cache) {
		op->cover_lsn = READ_ONCE(f->cache->log.applied_lsn);
		op->cover_sequence = READ_ONCE(f->cache->log.applied_sequence);
		cache_count(f->cache, ssd_flushes, 1);
	} else {
		volume_count(f->volume, backing_flushes, 1);
	}
}

int flusher_flush(struct flusher *f, struct flush_wait *w, bool force, bool may_wait)
{
	struct flush_op *op = NULL, *last;
	unsigned long flags;

	for (;;) {
		spin_lock_irqsave(&f->lock, flags);
		if (!f->needed && !f->failed && !force) {
			if (list_empty(&f->in_flight)) {
				spin_unlock_irqrestore(&f->lock, flags);
				if (op)
					mempool_free(op, &flush_op_pool);
				return 0;
			}
			last = list_last_entry(&f->in_flight, struct flush_op, list);
			list_add_tail(&w->list, &last->waiters);
			spin_unlock_irqrestore(&f->lock, flags);
			if (op)
				mempool_free(op, &flush_op_pool);
			return 1;
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
	bio_init(&op->bio, f->bdev, NULL, 0, REQ_OP_WRITE | REQ_PREFLUSH | REQ_SYNC);
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

int cache_flush_ssds(struct cache *c)
{
	int error = 0, err;
	u32 i;

	for (i = 0; i < c->nr_devices; i++) {
		err = flusher_sync(&c->dev[i].flusher, false);
		error = error ?: err;
	}
	return error;
}

bool volume_flush_failed(struct volume *v)
{
	u32 i;

	if (unlikely(READ_ONCE(v->flusher.failed)))
		return true;
	for (i = 0; v->cache && i < v->cache->nr_devices; i++)
		if (unlikely(READ_ONCE(v->cache->dev[i].flusher.failed)))
			return true;
	return false;
}

/* ------------------------------------------------------------------ flushes of users */

static void user_flush_put(struct larder_io *io)
{
	struct bio *bio = larder_io_bio(io);

	if (atomic_dec_and_test(&io->pending))
		io_complete(bio, io->error);
}

static void user_flush_done(struct flush_wait *w, int error)
{
	struct larder_io *io = container_of(w, struct larder_io, wait[w->index]);

	if (error)
		io->error = error;
	user_flush_put(io);
}

/*
 * All that was accepted before is applied: flush the devices.  -EAGAIN: no memory (!may_wait); what was begun goes on, and another
 * call with may_wait does the rest (io->stage).  wait[0] is for the SSD, wait[1] for the backing; further SSDs are flushed one
 * after the other by the worker.
 */
static int user_flush_devices(struct volume *v, struct larder_io *io, bool may_wait)
{
	struct cache *c = v->cache;
	int err;
	u32 i;

	if (io->stage == 0) {
		if (c && c->nr_devices > 1 && !may_wait)
			return -EAGAIN;
		atomic_set(&io->pending, 1);
		io->error = 0;
		io->wait[0].done = user_flush_done;
		io->wait[0].index = 0;
		io->wait[1].done = user_flush_done;
		io->wait[1].index = 1;
		for (i = 1; c && i < c->nr_devices; i++) {
			err = flusher_sync(&c->dev[i].flusher, false);
			io->error = io->error ?: err;
		}
		if (c) {
			atomic_inc(&io->pending);
			err = flusher_flush(&c->dev[0].flusher, &io->wait[0], false, may_wait);
			if (err <= 0)
				atomic_dec(&io->pending);
			if (err < 0)
				return err;
		}
		io->stage = 1;
	}
	if (!io->only_ssd) {
		atomic_inc(&io->pending);
		err = flusher_flush(&v->flusher, &io->wait[1], false, may_wait);
		if (err <= 0)
			atomic_dec(&io->pending);
		if (err < 0)
			return err;
	}
	user_flush_put(io);
	return 0;
}

/* For the worker: from any context */
void flush_enqueue(struct cache *c, struct larder_io *io)
{
	unsigned long flags;

	spin_lock_irqsave(&c->log.lock, flags);
	list_add_tail(&io->list, &c->log.flush_ready);
	spin_unlock_irqrestore(&c->log.lock, flags);
	queue_work(c->io_wq, &c->log.flush_work);
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

/* Process context.  Takes the bio: an empty flush, or what is left of a FUA write that was bypassed. */
static void user_flush_begin(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	struct cache *c = v->cache;
	struct log *log = &c->log;
	bool ready;

	if (unlikely(READ_ONCE(c->state) == CACHE_FAILED)) {
		io_complete(bio, -EIO);
		return;
	}
	spin_lock_irq(&log->lock);
	flush_learn(log);
	io->target = log_close_locked(c, CLOSE_FLUSH);
	ready = log->applied_lsn >= io->target;
	if (!ready)
		list_add_tail(&io->list, &log->flush_waiters);
	spin_unlock_irq(&log->lock);
	if (ready) {
		if (user_flush_devices(v, io, may_wait))
			flush_enqueue(c, io);
		return;
	}
	log_send(c, may_wait);
}

void user_flush(struct volume *v, struct bio *bio, struct larder_io *io)
{
	io->kind = IO_FLUSH;
	io->volume = v;
	io->only_ssd = false;
	io->stage = 0;
	io->again = true;
	volume_count(v, flushes, 1);
	if (v->cache)
		user_flush_begin(v, bio, io, false);
	else if (user_flush_devices(v, io, false))
		defer_bio(v, bio);
}

/* Interrupt context: a bypassed FUA write has reached the backing; the flush that makes it durable begins in the worker. */
void user_flush_after(struct volume *v, struct larder_io *io)
{
	io->kind = IO_FLUSH;
	io->only_ssd = false;
	io->stage = 0;
	io->again = false;
	flush_enqueue(v->cache, io);
}

/* Interrupt context, log->lock held: a cached FUA write is applied; an SSD flush issued from now on makes it durable. */
void user_flush_fua(struct cache *c, struct larder_io *io)
{
	io->kind = IO_FLUSH;
	io->only_ssd = true;
	io->stage = 0;
	io->again = true;
	list_add_tail(&io->list, &c->log.flush_ready);
	queue_work(c->io_wq, &c->log.flush_work);
}

void user_flush_ready(struct cache *c)
{
	struct log *log = &c->log;
	struct larder_io *io, *next;
	bool any = false;

	list_for_each_entry_safe(io, next, &log->flush_waiters, list) {
		if (log->applied_lsn < io->target)
			break;
		list_move_tail(&io->list, &log->flush_ready);
		any = true;
	}
	if (any)
		queue_work(c->io_wq, &log->flush_work);
}

void user_flush_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, log.flush_work);
	struct log *log = &c->log;
	struct larder_io *io;

	for (;;) {
		spin_lock_irq(&log->lock);
		io = list_first_entry_or_null(&log->flush_ready, struct larder_io, list);
		if (io)
			list_del_init(&io->list);
		spin_unlock_irq(&log->lock);
		if (!io)
			break;
		if (c->state == CACHE_FAILED) {
			if (io->stage) {
				/* one of its flushes is in flight still */
				io->error = -EIO;
				user_flush_put(io);
			} else {
				io_complete(larder_io_bio(io), -EIO);
			}
		} else if (!io->again) {
			io->again = true;
			user_flush_begin(io->volume, larder_io_bio(io), io, true);
		} else {
			user_flush_devices(io->volume, io, true);
		}
	}
}
