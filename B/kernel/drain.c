// SPDX-License-Identifier: GPL-2.0-only
/*
 * An SSD is drained, and leaves the set of a running cache.
 *
 *  1. No segment is taken of it any more; what is new is on the others.
 *  2. drain_work(): the write stream goes on, by records without data, until no segment that it has opened is on it; those of the
 *     other streams are passed over.  Segments on it are emptied as by reclaim: what is dirty is written back, what is worth
 *     keeping is appended elsewhere.  What has its second copy on it is written back too; then that copy is freed.  Checkpoints
 *     follow, until none that is named lies on it, needs a record there, or has its replay begin there: behind the last record of a
 *     segment that was emptied since there may be none, but only who has the segment can tell.
 *  3. When it has nothing but free segments: log_sync().  What took the place of what was on it (data written over, ZERO, discards,
 *     CLEANs) is applied, but may be in a record that is open, or volatile on any of those that stay.
 *  4. If it has nothing still: a generation without it (set_dismiss()), in the tables and superblocks of those that stay, then on
 *     the backings.  Its place stays in the set, empty.
 * A power cut leaves, where all is single (mirror=none) too:
 *   before 3 is complete: a member.  What a checkpoint, or a replay that breaks off early, maps to it is there: its free segments
 *	are neither opened nor discarded while it is drained.  Draining begins anew by a message.
 *   between 3 and the first table of 4: a member, of which nothing that is dirty is needed: every replay comes past the records
 *	that say so.
 *   from the first table of 4 on: an SSD that is stale, as by 3 it may be, for that table is the newest and does not name it; those
 *	which have an older table are members by their ancestor.  Alone it cannot serve: of the checkpoints that its superblock
 *	names no chunk is on it.
 *
 * Dirty data that cannot be written back (its backing is absent, or fails) keeps it in the set: drain_stop() gives up.
 */
#include <linux/delay.h>
#include <linux/sched/mm.h>

#include "larder.h"

#define TRY_AGAIN_MS	50u
#define TRY_AGAIN_MOST_MS	800u	/* where nothing comes of it */

/* Also one that has joined, but is not told: what is new could not go there yet. */
static bool one_joins(const struct cache *c)
{
	u32 i;

	for (i = 0; i < c->nr_devices; i++)
		if (!c->dev[i].failed && c->dev[i].untold)
			return true;
	return c->nr_joining;
}

/* Why not?  NULL: it may be drained.  log->lock held. */
static const char *refuse_drain(struct cache *c, const struct cache_device *d)
{
	if (d->removed || READ_ONCE(d->failed))
		return "it is no member of the set: a table with '-' for it lets it go";
	if (c->nr_draining || one_joins(c))
		return "another one is joining or being drained: wait for that";
	if (c->nr_devices - c->nr_failed == 1)
		return "it is the last one of the set: detach the volumes, and stop the cache";
	if (!checkpoint_fits(c, segments_units(c, d)))
		return "the others are too small for what the cache needs: add a larger one first";
	return NULL;
}

int drain_begin(struct cache *c, u32 number)
{
	struct cache_device *d = &c->dev[number];
	const char *why;

	spin_lock_irq(&c->log.lock);
	why = refuse_drain(c, d);
	if (!why) {
		WRITE_ONCE(d->draining, true);
		WRITE_ONCE(c->nr_draining, c->nr_draining + 1);
		WRITE_ONCE(c->drain_left, device_segments_used(d));
	}
	spin_unlock_irq(&c->log.lock);
	if (why) {
		DMERR("cache %pUb: SSD %u cannot be drained: %s", c->uuid, number, why);
		return -EBUSY;
	}
	DMINFO("cache %pUb: SSD %u (%pg) is being drained", c->uuid, number, d->bdev);
	queue_work(c->bg_wq, &c->drain_work);
	return 0;
}

static struct cache_device *draining_device(struct cache *c)
{
	u32 i;

	for (i = 0; i < c->nr_devices; i++)
		if (READ_ONCE(c->dev[i].draining))
			return &c->dev[i];
	return NULL;
}

/* It is a member like the others again. */
int drain_stop(struct cache *c)
{
	struct cache_device *d;

	spin_lock_irq(&c->log.lock);
	d = draining_device(c);
	if (d) {
		/* one of two: what was written meanwhile is on the other one only: not to be spared until the resync has ended */
		if (READ_ONCE(c->set.mirror) && !cache_mirrored(c))
			WRITE_ONCE(c->resync.raising, true);
		WRITE_ONCE(d->draining, false);
		WRITE_ONCE(c->nr_draining, c->nr_draining - 1);
		WRITE_ONCE(c->failures, c->failures + 1);
	}
	spin_unlock_irq(&c->log.lock);
	if (!d) {
		DMERR("cache %pUb: no SSD is being drained", c->uuid);
		return -EINVAL;
	}
	/* the work ends by itself; it may be waiting for a backing */
	segments_open_kick(c);
	resync_look(c);
	cache_tell(c);
	return 0;
}

/* ------------------------------------------------------------------ the work */

static bool drain_ended(struct cache *c, const struct cache_device *d)
{
	return shape_ended(c) || !READ_ONCE(d->draining);
}

/* segment_on(), for streams */
static bool on_device(struct cache *c, u32 segment, const void *device)
{
	return segment_on(c, segment, device);
}

static u32 segments_in_use(struct cache *c, const struct cache_device *d)
{
	u32 n;

	spin_lock_irq(&c->segments_lock);
	n = device_segments_used(d);
	spin_unlock_irq(&c->segments_lock);
	return n;
}

/* Does anything on it wait for one?  Chunks; records that a replay may need, or looks for; second copies of what is clean. */
static bool wants_checkpoint(struct cache *c, const struct cache_device *d)
{
	bool wants = checkpoint_begins_on(c, d);
	const struct segment *seg, *first;
	u32 i;

	for (i = d->first_segment; i < d->first_segment + d->nr_segments && !wants; i++) {
		spin_lock_irq(&c->segments_lock);
		seg = &c->segments[i];
		first = &c->segments[segment_first(c, i)];
		wants = first->state == SEGMENT_CHECKPOINT || first->state == SEGMENT_WAITING ||
			(first != seg && first->state == SEGMENT_SEALED && !atomic_read(&first->dirty));
		spin_unlock_irq(&c->segments_lock);
	}
	return wants;
}

/* Nothing is on it.  -EAGAIN: not yet, or no longer. */
static int drain_leave(struct cache *c, struct cache_device *d)
{
	u32 failures = READ_ONCE(c->failures);

	return log_sync(c) ? -EAGAIN : set_dismiss(c, d, failures);
}

/* Until nothing is on it. */
static int drain_run(struct cache *c, struct cache_device *d)
{
	u32 left, wait = TRY_AGAIN_MS;
	int err;

	while (!drain_ended(c, d)) {
		while (log_uses(c, on_device, d) && !drain_ended(c, d)) {
			err = log_roll(c);
			if (err == -EAGAIN) {
				segments_open_kick(c);
				msleep(TRY_AGAIN_MS);
			} else if (err) {
				return err;
			}
		}
		copies_leave(c, on_device, d);
		/* judge_evacuate(): all records of what was sealed in the pass before are in the index */
		log_wait_applied(c, log_close_open(c, CLOSE_ASKED));
		copies_wait(c, MAX_SCHEDULE_TIMEOUT);
		reclaim_drain(c, d);
		segments_unmirror(c);
		segments_release(c);
		left = segments_in_use(c, d);
		WRITE_ONCE(c->drain_left, left);
		err = left || checkpoint_begins_on(c, d) ? -EAGAIN : drain_leave(c, d);
		if (err != -EAGAIN)
			return err;
		if (!drain_ended(c, d) && wants_checkpoint(c, d))
			checkpoint_take(c);
		segments_unmirror(c);
		segments_release(c);
		if (segments_in_use(c, d) < left) {
			wait = TRY_AGAIN_MS;
			continue;
		}
		msleep(wait);
		wait = min(2 * wait, TRY_AGAIN_MOST_MS);
	}
	return -ECANCELED;
}

void drain_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, drain_work);
	struct cache_device *d = draining_device(c);
	unsigned int noio = memalloc_noio_save();
	int err = d ? drain_run(c, d) : -ECANCELED;

	if (!err) {
		DMINFO("cache %pUb: SSD %u (%pg) was drained, and has left the set: generation %llx", c->uuid, (u32)(d - c->dev),
		       d->bdev, READ_ONCE(c->set_generation));
		reclaim_kick(c);
		cache_tell(c);
	} else if (err != -ECANCELED) {
		DMERR("cache %pUb: SSD %u (%pg) is not drained, or the set without it not written: error %d; look at its status",
		      c->uuid, (u32)(d - c->dev), d->bdev, err);
	}
	memalloc_noio_restore(noio);
}
