// SPDX-License-Identifier: GPL-2.0-only
/*
 * A volume leaves a cache that has failed, if the backing has all of it.
 *
 * Nobody is to see an error because of an SSD that has nothing which only it has.  So from the moment when the cache fails what
 * would change something waits (leave_map(), user_flush_work()), as does what had begun in the log and ends with an error there;
 * reads of what is clean come from the backing as it is.  leave_work():
 *  1. Nothing of the volume is on its way into the log any more, and nothing is dirty.  Else: errors for all that has waited, and
 *     what is dirty stays where it is.
 *  2. The superblock of the backing, durable: the incarnation raised, may_be_dirty cleared, and that it left of its own accord:
 *     when the SSD is well again a start attaches the volume anew, and nobody need say that what is stale may go.
 *  3. What has waited goes to the backing, and so does all that comes, past the index; flushes flush the backing alone.
 * A power cut leaves
 *   before 2 is durable: what the failure has left, with nothing written since.  Regions that a bypass has changed before have
 *	their marks (rule 6); a CLEAN or INVALIDATE that is not durable takes nothing away, as nothing newer is on the backing.
 *   from 2 on: a cache that is stale for this volume (rule 11), whatever its log says.
 * A flush that fails on the SSD counts likewise: it is answered when 2 is durable, by a flush of the backing.  Without 2 that would
 * not do: a replay could come before the CLEAN, or the INVALIDATE, of what a later write to the backing has replaced.
 */
#include <linux/delay.h>
#include <linux/sched/mm.h>

#include "larder.h"

#define TRIES		3u
#define TRY_AGAIN_MS	1000u

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
	if (bio_op(bio) == REQ_OP_DISCARD && !bdev_max_discard_sectors(v->bdev)) {
		io->kind = IO_PASS;		/* io_end() follows */
		io_complete(bio, 0);
		return DM_MAPIO_SUBMITTED;
	}
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

/* Step 2.  Never back: what was not written without an error may be there all the same. */
static int leave_tell(struct volume *v)
{
	struct cache *c = v->cache;
	int err;

	mutex_lock(&v->super_lock);
	if (!v->bdev) {
		mutex_unlock(&v->super_lock);
		return -ENODEV;
	}
	v->sb->incarnation = cpu_to_le64(v->incarnation + 1);
	v->sb->head.flags = cpu_to_le32((le32_to_cpu(v->sb->head.flags) & ~LARDER_VOLUME_MAY_BE_DIRTY) | LARDER_VOLUME_LEFT);
	err = volume_super_write(v);
	if (!err) {
		v->incarnation++;
		spin_lock_irq(&c->log.lock);
		WRITE_ONCE(v->may_be_dirty, false);
		spin_unlock_irq(&c->log.lock);
	}
	mutex_unlock(&v->super_lock);
	return err;
}

static int leave_run(struct volume *v)
{
	u64 dirty = atomic64_read(&v->dirty_sectors);
	unsigned int tries;
	int err = 0;

	if (dirty) {
		DMERR("volume %pUb on %pg: %llu sectors are in the cache alone, which has failed: writes fail", v->uuid, v->bdev,
		      dirty);
		return -EUCLEAN;
	}
	for (tries = 0; tries < TRIES; tries++) {
		err = leave_tell(v);
		if (!err)
			break;
		msleep(TRY_AGAIN_MS);
	}
	if (err)
		DMERR("volume %pUb: its cache has failed, and its superblock cannot be written: error %d; writes fail", v->uuid,
		      err);
	else
		DMWARN("volume %pUb on %pg: its cache has failed, nothing of it was there alone: it goes on without", v->uuid,
		       v->bdev);
	return err;
}

void leave_work(struct work_struct *work)
{
	struct volume *v = container_of(work, struct volume, leave_work);
	unsigned int noio = memalloc_noio_save();
	struct cache *c = v->cache;
	int err;

	wait_event(c->log.wait, items_ended(v));
	if (READ_ONCE(v->active) && READ_ONCE(v->leave) == LEAVE_UNDECIDED) {
		err = leave_run(v);
		/* pairs with leave_map() */
		smp_store_release(&v->leave, err ? LEAVE_REFUSED : LEAVE_DONE);
		queue_work(c->io_wq, &v->flush_work);
		defer_kick(c);
		queue_work(larder_wq, &c->event_work);
	}
	memalloc_noio_restore(noio);
	volume_put(v);
}

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
