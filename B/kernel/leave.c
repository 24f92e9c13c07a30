// SPDX-License-Identifier: GPL-2.0-only
/*
 * A volume leaves a cache that has failed, when the backing has all of it.
 *
 * An SSD that takes nothing any more can mostly be read still: that is how many end.  So nobody is to see an error because of one
 * that gives what only it has.  From the moment when the cache fails what would change something waits (leave_map(),
 * user_flush_work()), as does what had begun in the log and ends with an error there; reads of what is clean come from the backing
 * as it is, of what is dirty from the SSD.  leave_work():
 *  1. Nothing of the volume is on its way into the log any more.  If nothing is dirty: 4.
 *  2. The superblock of the backing, durable: CLEAN_VOID.  From then on a start counts what its replay finds dirty, and nothing
 *     that it finds clean (bind.c).
 *  3. What is dirty is written back (writeback.c), whether or not its record is durable: the log can make nothing durable any more,
 *     and no CLEAN follows.  The index shows it clean behind a flush of the backing.
 *  4. The superblock of the backing, durable: the incarnation raised, may_be_dirty cleared, and that it left of its own accord:
 *     when the SSD is well again a start attaches the volume anew, and nobody need say that what is stale may go.
 *  5. What has waited goes to the backing, and so does all that comes, past the index; flushes flush the backing alone.
 * A power cut leaves
 *   before 2 is durable: what the failure has left, with nothing written since.  Regions that a bypass has changed before have
 *	their marks (rule 6); a CLEAN or INVALIDATE that is not durable takes nothing away, as nothing newer is on the backing.
 *   in 3: what replay shows dirty hides whatever of 3 has reached the backing, torn or whole, and is no older than what was
 *	flushed.  Of what it does not show dirty the backing has what it had, or a write that was never flushed, whole: one or the
 *	other, and what replay shows clean there would be a third (without 2: read as that, and after eviction as the write).
 *   from 4 on: a cache that is stale for this volume (rule 11), whatever its log says.
 * A flush that fails on the SSD counts likewise: it is answered when 4 is durable, by a flush of the backing.  Without 4 that would
 * not do: a replay could come before the CLEAN, or the INVALIDATE, of what a later write to the backing has replaced.
 *
 * What waits does so for failure_wait seconds, and as long as anything comes of it: where a batch brings nothing (the SSD cannot be
 * read, what it gives is damaged, the backing fails as well) there are errors at once.  The work goes on all the same, and ends
 * them when it has come to 4.
 */
#include <linux/delay.h>
#include <linux/sched/mm.h>

#include "larder.h"

#define TRIES		3u
#define TRY_AGAIN_MS	1000u
#define LATER		(10 * HZ)
#define VAIN		2u		/* batches in a row: one may have met a single error of the backing */

bool leave_may(const struct volume *v)
{
	return v->cache && READ_ONCE(v->cache->state) == CACHE_FAILED && READ_ONCE(v->leave) != LEAVE_REFUSED;
}

int leave_map(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	/* pairs with leave_work(): the superblock is durable */
	switch (smp_load_acquire(&v->leave)) {
	case LEAVE_DONE:
		break;
	case LEAVE_REFUSED:
		io_complete(bio, -EIO);
		return DM_MAPIO_SUBMITTED;
	default:
		if (may_wait)
			leave_kick(v);		/* should nobody have seen both that it is bound and that the cache has failed */
		return -EAGAIN;
	}
	io->backing = true;
	WRITE_ONCE(v->last_io, jiffies);
	if (bio_op(bio) == REQ_OP_WRITE)
		volume_count(v, write_backing_sectors, io->len);
	return pass_issue(v, bio, io, may_wait);
}

void leave_kick(struct volume *v)
{
	if (!READ_ONCE(v->active) || READ_ONCE(v->leave) == LEAVE_DONE)
		return;
	volume_get(v);
	if (!queue_work(larder_wq, &v->leave_work))
		volume_put(v);
}

void leave_begin(struct volume *v)
{
	if (READ_ONCE(v->leave) == LEAVE_REFUSED)
		WRITE_ONCE(v->leave, LEAVE_UNDECIDED);
	WRITE_ONCE(v->leave_since, jiffies);
	v->leave_vain = 0;
	leave_kick(v);
}

/* Nothing that was begun can end as an extent any more: log_may_write() takes no new one. */
static bool items_ended(struct volume *v)
{
	struct log *log = &v->cache->log;
	bool ended;

	spin_lock_irq(&log->lock);
	ended = !v->items;
	spin_unlock_irq(&log->lock);
	return ended;
}

/* Never back: what was not written without an error may be there all the same. */
static int leave_write(struct volume *v, u64 incarnation, u32 set, u32 clear)
{
	int err;

	lockdep_assert_held(&v->super_lock);
	if (!v->bdev)
		return -ENODEV;
	v->sb->incarnation = cpu_to_le64(incarnation);
	v->sb->head.flags = cpu_to_le32((le32_to_cpu(v->sb->head.flags) & ~clear) | set);
	err = volume_super_write(v);
	if (!err)
		v->incarnation = incarnation;
	return err;
}

/* Step 2. */
static int leave_void(struct volume *v)
{
	int err;

	mutex_lock(&v->super_lock);
	err = leave_write(v, v->incarnation, LARDER_VOLUME_CLEAN_VOID, 0);
	mutex_unlock(&v->super_lock);
	return err;
}

/* Step 4. */
static int leave_tell(struct volume *v)
{
	struct cache *c = v->cache;
	int err;

	mutex_lock(&v->super_lock);
	err = leave_write(v, incarnation_next(v->incarnation), LARDER_VOLUME_LEFT,
			  LARDER_VOLUME_MAY_BE_DIRTY | LARDER_VOLUME_CLEAN_VOID);
	if (!err) {
		spin_lock_irq(&c->log.lock);
		WRITE_ONCE(v->may_be_dirty, false);
		spin_unlock_irq(&c->log.lock);
	}
	mutex_unlock(&v->super_lock);
	return err;
}

static int leave_try(struct volume *v, int (*step)(struct volume *v))
{
	unsigned int tries;
	int err = 0;

	for (tries = 0; tries < TRIES && READ_ONCE(v->active); tries++) {
		err = step(v);
		if (!err)
			return 0;
		msleep(TRY_AGAIN_MS);
	}
	if (!READ_ONCE(v->active))
		return -ESHUTDOWN;
	DMERR_LIMIT("volume %pUb: its cache has failed, and its superblock cannot be written: error %d; writes fail", v->uuid, err);
	return err;
}

/* -EINPROGRESS: step 3 */
static int leave_run(struct volume *v)
{
	u64 dirty = atomic64_read(&v->dirty_sectors);
	bool was_dirty = READ_ONCE(v->leave_drains);
	int err;

	if (!dirty) {
		/* a CLEAN that was in flight may have been the last: a batch that took the same has still to write it */
		mutex_lock(&v->writeback_lock);
		mutex_unlock(&v->writeback_lock);
		err = leave_try(v, leave_tell);
		if (!err)
			DMWARN("volume %pUb on %pg: its cache has failed, %s: it goes on without", v->uuid, v->bdev,
			       was_dirty ? "what only that had is written back" : "nothing of it was there alone");
		return err;
	}
	if (!was_dirty) {
		err = leave_try(v, leave_void);
		if (err)
			return err;
		DMWARN("volume %pUb on %pg: %llu sectors are in the failed cache alone: they are written back, writes wait (%u s)",
		       v->uuid, v->bdev, dirty, READ_ONCE(v->set.failure_wait));
		WRITE_ONCE(v->leave_since, jiffies);
		WRITE_ONCE(v->writeback_retry, jiffies);
		/* pairs with leave_drains() */
		smp_store_release(&v->leave_drains, true);
	}
	writeback_kick(v);
	return -EINPROGRESS;
}

static void leave_answer(struct volume *v)
{
	struct cache *c = v->cache;

	queue_work(c->io_wq, &v->flush_work);
	defer_kick(c);
	cache_tell(c);
}

/* Errors from here on, unless it has left, or leaves after all. */
static void leave_refuse(struct volume *v, const char *why)
{
	if (cmpxchg(&v->leave, LEAVE_UNDECIDED, LEAVE_REFUSED) != LEAVE_UNDECIDED)
		return;
	if (why)
		DMERR("volume %pUb on %pg: %llu sectors are in the cache alone, which has failed, and %s: writes fail", v->uuid,
		      v->bdev, (u64)atomic64_read(&v->dirty_sectors), why);
	leave_answer(v);
}

void leave_work(struct work_struct *work)
{
	struct volume *v = container_of(work, struct volume, leave_work);
	unsigned int noio = memalloc_noio_save();
	struct cache *c = v->cache;
	int err;

	wait_event(c->log.wait, items_ended(v));
	log_close_open(c, CLOSE_ASKED);		/* the sums of what it has are known to writeback then */
	if (READ_ONCE(v->active) && READ_ONCE(v->leave) != LEAVE_DONE) {
		err = leave_run(v);
		if (!err) {
			/* pairs with leave_map() */
			smp_store_release(&v->leave, LEAVE_DONE);
			leave_answer(v);
		} else if (err != -EINPROGRESS) {
			leave_refuse(v, NULL);
			queue_delayed_work(c->bg_wq, &v->writeback_work, LATER);
		}
	}
	memalloc_noio_restore(noio);
	volume_put(v);
}

/* ------------------------------------------------------------------ step 3, by writeback */

bool leave_drains(const struct volume *v)
{
	/* pairs with leave_run(): the superblock is durable */
	return unlikely(READ_ONCE(v->cache->state) == CACHE_FAILED) && smp_load_acquire(&v->leave_drains);
}

bool leave_waits(struct volume *v)
{
	if (likely(READ_ONCE(v->cache->state) != CACHE_FAILED))
		return false;
	if (READ_ONCE(v->leave) == LEAVE_DONE)
		return true;
	if (leave_drains(v) && atomic64_read(&v->dirty_sectors))
		return false;
	leave_kick(v);
	return true;
}

void leave_late(struct volume *v)
{
	if (time_after(jiffies, READ_ONCE(v->leave_since) + READ_ONCE(v->set.failure_wait) * HZ))
		leave_refuse(v, "are not all written back in time (failure_wait)");
}

void leave_drained(struct volume *v, int err, u64 before)
{
	u64 dirty = atomic64_read(&v->dirty_sectors);

	lockdep_assert_held(&v->writeback_lock);
	if (!dirty)
		return;		/* leave_waits() is next */
	if (dirty < before) {
		v->leave_vain = 0;
		v->writeback_backoff = 0;
		WRITE_ONCE(v->writeback_retry, jiffies);
	} else if (err == -ENODATA || (err && err != -ENOMEM && err != -ESHUTDOWN && err != -EAGAIN && ++v->leave_vain >= VAIN)) {
		leave_refuse(v, "cannot be written back now");
	}
	leave_late(v);
}

/* ------------------------------------------------------------------ a flush that fails */

void leave_clean(struct cache *c, const char *why)
{
	unsigned long flags;
	bool clean;

	if (!c->started || READ_ONCE(c->state) != CACHE_RUNNING)
		return;
	spin_lock_irqsave(&c->log.lock, flags);
	/* applying: one has left the list, and may not be in the sums yet */
	clean = !c->log.applying && list_empty(&c->log.items) && !atomic64_read(&c->dirty_sectors);
	spin_unlock_irqrestore(&c->log.lock, flags);
	if (clean)
		cache_fail(c, why);
}
