// SPDX-License-Identifier: GPL-2.0-only
/*
 * The set of SSDs: one that fails leaves it (rule 14; tests/model/mirror.md).
 *
 * An SSD that fails a write or a flush is not written to, or read from, any more.  What is acknowledged from then on is on fewer
 * SSDs than its segment asks for, and an old state of the failed one must never be taken for the newest.  So
 *   1. log->held: nothing is applied, acknowledged or counted as durable from the moment of the failure on
 *   2. a set generation without that SSD becomes durable: in the table and superblock of every SSD left, and in the superblock of
 *      every backing that is bound; one that is bound later gets it then (bind.c), before its first write
 *   3. the log goes on
 * A power cut before 2 is complete: the failed SSD, should it be well again, is still a member, and all that was acknowledged is
 * on it.  After 2: a start with the others leaves it out, and a start with it alone is refused by the backings, whose generation is
 * newer than its own.
 *
 * What only the failed SSD had is lost: clean extents leave the index (lost_work; until then reads of them go to the backing),
 * dirty ones, where the set was not mirrored when they were written, cannot be read.
 */
#include <linux/delay.h>
#include <linux/random.h>
#include <linux/sched/mm.h>

#include "larder.h"

#define TRY_AGAIN_MS	20u

/*
 * Would the others have everything?  What is new is on none that is being drained; while `mirror` is raised what is old may be on d
 * only (resync.c).  What it alone has because others left before it takes longer to find: set_judge().
 */
static bool set_can_lose(const struct cache *c, const struct cache_device *d)
{
	/* nothing is on it that is nowhere else */
	if (READ_ONCE(d->untold))
		return c->nr_devices - READ_ONCE(c->nr_failed) > 1;
	return READ_ONCE(c->set.mirror) && !READ_ONCE(c->resync.raising) &&
	       c->nr_devices - READ_ONCE(c->nr_failed) - READ_ONCE(c->nr_draining) > (READ_ONCE(d->draining) ? 0 : 1);
}

/* even_last: with none left that has everything the cache fails; else the SSD stays, and whoever was told the error has to cope. */
static void device_failed(struct cache *c, struct cache_device *d, const char *why, bool even_last)
{
	struct log *log = &c->log;
	unsigned long flags;
	bool new = false, last = false, joined = false;

	spin_lock_irqsave(&log->lock, flags);
	if (d->joining) {
		/* no member: nothing counts by it */
		WRITE_ONCE(d->joining, false);
		WRITE_ONCE(c->nr_joining, c->nr_joining - 1);
		WRITE_ONCE(c->failures, c->failures + 1);
		joined = true;
	} else if (!d->failed) {
		/* what has failed acknowledges nothing more, and so needs no set without d */
		last = READ_ONCE(c->state) == CACHE_FAILED || !set_can_lose(c, d);
		if (!last) {
			if (d->draining)
				WRITE_ONCE(c->nr_draining, c->nr_draining - 1);
			WRITE_ONCE(d->draining, false);
			WRITE_ONCE(d->doubtful, true);
			smp_wmb();	/* pairs with segment_unreadable() */
			WRITE_ONCE(d->failed, true);
			WRITE_ONCE(c->nr_failed, c->nr_failed + 1);
			WRITE_ONCE(c->failures, c->failures + 1);
			WRITE_ONCE(log->held, true);
			new = true;
		}
	}
	spin_unlock_irqrestore(&log->lock, flags);
	if (last && even_last)
		cache_fail(c, why);
	if (joined) {
		DMERR("cache %pUb: SSD %u (%pg): %s: it does not join the set; check it, then add it again", c->uuid,
		      (u32)(d - c->dev), d->bdev, why);
		queue_work(c->meta_wq, &c->lost_work);
		cache_tell(c);
	}
	if (!new)
		return;
	DMERR("cache %pUb: SSD %u (%pg): %s: it is not used any more", c->uuid, (u32)(d - c->dev), d->bdev, why);
	queue_work(c->set_wq, &c->set_work);
}

void set_device_failed(struct cache *c, struct cache_device *d, const char *why)
{
	device_failed(c, d, why, true);
}

bool set_spares(struct cache *c, struct cache_device *d, const char *why)
{
	/* while second copies are made it may have what no other has: that is not judged by what others, or the backing, have */
	if (READ_ONCE(c->resync.state) == RESYNC_IDLE || READ_ONCE(d->failed))
		device_failed(c, d, why, false);
	return !device_written(d);
}

bool set_copy_failed(struct cache *c, struct cache_device *d, blk_status_t status)
{
	set_spares(c, d, "an append of clean copies to it failed");
	doubt_write_failed(c, d, status);
	return READ_ONCE(d->failed);
}

void set_metadata_failed(struct cache *c, struct cache_device *d)
{
	if (c->started)
		device_failed(c, d, "a write of metadata to it failed", false);
}

void set_summary_failed(struct cache *c, struct cache_device *d, blk_status_t status)
{
	/* not for a bad place: nothing depends on it */
	if (blk_path_error(status))
		set_metadata_failed(c, d);
	doubt_write_failed(c, d, status);
}

void set_flush_failed(struct cache *c, struct cache_device *d)
{
	if (c->started)	/* else the start fails: it has no checkpoint yet that a superblock could name */
		device_failed(c, d, "a flush of it failed", false);
}

void set_wait(struct cache *c)
{
	wait_event(c->log.wait, !READ_ONCE(c->log.held) || READ_ONCE(c->state) == CACHE_FAILED);
}

int segment_unreadable(struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], n;

	if (likely(!segment_lost(c, segment)))
		return 0;
	smp_rmb();	/* pairs with device_failed() */
	for (n = segment_ring(c, segment, copy); n--; )
		/* pairs with set_take_back() */
		if (smp_load_acquire(&segment_device(c, copy[n])->doubtful))
			return -EAGAIN;
	/* one that has been taken back is not failed any more */
	return segment_lost(c, segment) ? -EIO : 0;
}

static bool device_out(const struct cache_device *d)
{
	return READ_ONCE(d->failed) && !READ_ONCE(d->doubtful);
}

/*
 * super_lock held.  The next generation, in memory: without the SSDs that have failed, but for those that set_judge() has not
 * looked at: set_work() raises another one for them.  The tag: two sets that went apart may come to the same number, and must not
 * be taken for one another.
 */
void set_raise(struct cache *c)
{
	u32 i;

	memmove(&c->table->ancestors[1], &c->table->ancestors[0], (LARDER_NR_ANCESTORS - 1) * sizeof(c->table->ancestors[0]));
	c->table->ancestors[0] = cpu_to_le64(c->set_generation);
	c->set_generation = ((c->set_generation >> 32) + 1) << 32 | get_random_u32();
	for (i = 0; i < c->nr_devices; i++)
		c->table->devices[i].state = cpu_to_le32(c->dev[i].removed	  ? LARDER_DEVICE_REMOVED :
							 device_out(&c->dev[i]) ? LARDER_DEVICE_FAILED :
										  LARDER_DEVICE_ACTIVE);
}

bool set_knows(struct cache *c, u64 generation)
{
	bool known;
	u32 i;

	mutex_lock(&c->super_lock);
	known = !generation || generation == c->set_generation;
	for (i = 0; i < LARDER_NR_ANCESTORS && !known; i++)
		known = le64_to_cpu(c->table->ancestors[i]) == generation;
	mutex_unlock(&c->super_lock);
	return known;
}

/* super_lock, set_lock held.  Every member has table and superblock: one that had joined, and could not take them then, is told. */
static void set_told(struct cache *c)
{
	u32 i;

	spin_lock_irq(&c->log.lock);
	for (i = 0; i < c->nr_devices; i++)
		if (!c->dev[i].failed)
			WRITE_ONCE(c->dev[i].untold, false);
	spin_unlock_irq(&c->log.lock);
}

/* Step 2 on the SSDs that stay.  joins: the one that is new in the set, which is told last, or NULL. */
static int set_write(struct cache *c, const struct cache_device *joins)
{
	int err;

	mutex_lock(&c->super_lock);
	set_raise(c);
	if (joins)
		c->table->devices[joins - c->dev].state = cpu_to_le32(LARDER_DEVICE_ACTIVE);
	err = cache_table_write(c);
	if (!err)
		err = cache_super_write(c, 0);
	if (!err) {
		WRITE_ONCE(c->set_durable, c->set_generation);
		set_told(c);
	}
	mutex_unlock(&c->super_lock);
	return err;
}

/*
 * The set's generation, durable on the backing: one that every SSD left has.  Who asks while the next one is being written gets
 * this one, and as it is bound set_write_volumes() finds it: whichever of them comes second to v->super_lock has the newer one.
 */
static int volume_write_generation(struct volume *v)
{
	int err;

	lockdep_assert_held(&v->super_lock);
	v->sb->set_generation = cpu_to_le64(READ_ONCE(v->cache->set_durable));
	err = volume_super_write(v);
	WRITE_ONCE(v->behind, err);
	return err;
}

void volume_tell_generation(struct volume *v)
{
	if (volume_write_generation(v)) {
		DMERR("%pg: volume %pUb: its superblock must name the SSDs left before anything is written: writes fail", v->bdev,
		      v->uuid);
		volume_tell(v);
	}
}

/*
 * Step 2 on the backings.  One that cannot be written is behind: the others go on, and it does when it has got the generation.
 * Until then an SSD that has left, alone, would be taken for the set by it; so no write, discard or flush of it succeeds.
 */
static void set_write_volumes(struct cache *c)
{
	struct volume *v;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = cache_volume_get(c, i);
		if (!v)
			continue;
		mutex_lock(&v->super_lock);
		if (v->sb && v->bdev)
			volume_tell_generation(v);
		mutex_unlock(&v->super_lock);
		volume_put(v);
	}
}

int volume_catch_up(struct volume *v)
{
	int err = 0;

	mutex_lock(&v->super_lock);
	if (READ_ONCE(v->behind))
		err = v->bdev ? volume_write_generation(v) : -ENODEV;
	mutex_unlock(&v->super_lock);
	return err;
}

/* Is dirty data on none that is left, or in a record of which the item is not in the index yet?  log->held, and nobody applies. */
static bool set_dirty_is_lost(struct cache *c)
{
	const struct record *r;
	bool lost = false;
	u32 i;

	spin_lock_irq(&c->log.lock);
	list_for_each_entry(r, &c->log.records, list)
		lost |= r->items_left && segment_lost(c, r->segment);
	spin_unlock_irq(&c->log.lock);
	for (i = 0; i < c->nr_segments && !lost; i++) {
		lost = atomic_read(&c->segments[i].dirty) && segment_lost(c, i);
		cond_resched();
	}
	return lost;
}

/* The bits of those that failed since the last generation.  What one processor was applying as they failed is in the index. */
static u32 set_doubtful(struct cache *c)
{
	struct log *log = &c->log;
	u32 mask = 0, i;

	spin_lock_irq(&log->lock);
	while (log->applying) {
		spin_unlock_irq(&log->lock);
		schedule_timeout_uninterruptible(1);
		spin_lock_irq(&log->lock);
	}
	for (i = 0; i < c->nr_devices; i++)
		mask |= c->dev[i].doubtful ? 1u << i : 0;
	spin_unlock_irq(&log->lock);
	return mask;
}

/* Those of the mask are members again, for reads.  Clean copies made meanwhile are not on them: others that have it come first. */
static void set_take_back(struct cache *c, u32 mask)
{
	u32 i;

	for (i = 0; i < c->nr_segments && mask; i++) {
		if (segment_device(c, i)->doubtful && segment_further(c, i) != LARDER_NO_SEGMENT &&
		    !prefers_mirror(&c->segments[i]))
			WRITE_ONCE(c->segments[i].prefer_mirror, PREFER_MIRROR);
		cond_resched();
	}
	spin_lock_irq(&c->log.lock);
	for (i = 0; i < c->nr_devices; i++) {
		if (!(mask & 1u << i))
			continue;
		WRITE_ONCE(c->dev[i].failed, false);
		WRITE_ONCE(c->nr_failed, c->nr_failed - 1);
		smp_store_release(&c->dev[i].doubtful, false);	/* segment_unreadable() */
	}
	spin_unlock_irq(&c->log.lock);
}

static void set_let_go(struct cache *c, u32 mask)
{
	u32 i;

	spin_lock_irq(&c->log.lock);
	for (i = 0; i < c->nr_devices; i++)
		if (mask & 1u << i)
			WRITE_ONCE(c->dev[i].doubtful, false);
	spin_unlock_irq(&c->log.lock);
	for (i = 0; i < c->nr_devices; i++)
		if (mask & 1u << i)
			DMERR("cache %pUb: SSD %u (%pg) has failed: the cache goes on without it; replace it", c->uuid, i,
			      c->dev[i].bdev);
}

/*
 * May the next generation be without the SSDs that have failed?  Not if dirty data is on none but these: others left before them,
 * and what is left has not got its second copy yet.  It would be lost for good, be their failure as short as it may.  Then the
 * cache fails: every table on disk names them still, and a start with them finds everything, as with an only SSD.  Nothing was
 * acknowledged since they failed, and nothing will be: what is dirty can be read from them until then.
 *
 * One that fails meanwhile is looked at in the next round; until then it counts as one that is there (set_raise()).
 */
static int set_judge(struct cache *c)
{
	u32 mask = set_doubtful(c);

	if (READ_ONCE(c->state) != CACHE_FAILED && set_dirty_is_lost(c))
		cache_fail(c, "an SSD failed that alone had dirty data: with it, all of that is there");
	if (READ_ONCE(c->state) == CACHE_FAILED) {
		set_take_back(c, mask);
		return -EIO;
	}
	set_let_go(c, mask);
	return 0;
}

void set_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, set_work);
	struct log *log = &c->log;
	unsigned int noio = memalloc_noio_save();
	bool again;
	u32 failures;
	int err;

	mutex_lock(&c->set_lock);
	do {
		failures = READ_ONCE(c->failures);
		err = set_judge(c) ?: set_write(c, NULL);
		if (!err)
			set_write_volumes(c);
		spin_lock_irq(&log->lock);
		/* another one has failed meanwhile, perhaps by these very writes */
		again = c->failures != failures && READ_ONCE(c->state) != CACHE_FAILED;
		if (!again && !err)
			WRITE_ONCE(log->held, false);
		spin_unlock_irq(&log->lock);
	} while (again);
	mutex_unlock(&c->set_lock);
	if (err)
		cache_fail(c, "the set without the SSD that failed could not be written");
	spin_lock_irq(&log->lock);
	log_apply(c);
	spin_unlock_irq(&log->lock);
	memalloc_noio_restore(noio);
	wake_up(&log->wait);
	log_kick(c);
	user_flushes_kick(c);
	defer_kick(c);
	segments_open_kick(c);	/* what was opened may be lost; nothing can be appended where nothing is left of it */
	queue_work(c->meta_wq, &c->lost_work);
	resync_begin(c);
	cache_tick_wake(c);
	cache_tell(c);
}

/*
 * d has everything, and counts: it is read from, and what is on it and on another one may be acknowledged.  segments_lock: whoever
 * takes a segment of it sees that it is not told.
 */
static bool set_count(struct cache *c, struct cache_device *d)
{
	unsigned long flags;
	bool joined;

	spin_lock_irqsave(&c->log.lock, flags);
	spin_lock(&c->segments_lock);
	joined = d->joining;
	if (joined) {
		WRITE_ONCE(d->untold, true);
		WRITE_ONCE(d->failed, false);
		WRITE_ONCE(d->removed, false);
		smp_wmb();	/* pairs with device_written_as() */
		WRITE_ONCE(d->joining, false);
		WRITE_ONCE(c->nr_joining, c->nr_joining - 1);
		WRITE_ONCE(c->nr_failed, c->nr_failed - 1);
		WRITE_ONCE(c->failures, c->failures + 1);
	}
	spin_unlock(&c->segments_lock);
	spin_unlock_irqrestore(&c->log.lock, flags);
	return joined;
}

/*
 * Its own table, last (join-own-table-last), and a superblock that says that it has joined.  Only then may anything be on it alone.
 * An error of d: it has left (set_metadata_failed()).  One of another SSD's superblock is that one's.
 */
static int set_tell(struct cache *c, struct cache_device *d)
{
	int err;

	mutex_lock(&c->super_lock);
	err = cache_table_tell(c, d);
	if (!err)
		cache_super_write(c, 0);
	mutex_unlock(&c->super_lock);
	if (err)
		return err;
	spin_lock_irq(&c->log.lock);
	if (d->failed)
		err = -EIO;
	else
		WRITE_ONCE(d->untold, false);
	spin_unlock_irq(&c->log.lock);
	return err;
}

/* It has not come to be a member: no table says so any more, if it can be written.  Whoever starts or adds goes by that. */
static void set_unname(struct cache *c, struct cache_device *d)
{
	mutex_lock(&c->super_lock);
	c->table->devices[d - c->dev].state = cpu_to_le32(d->removed ? LARDER_DEVICE_REMOVED : LARDER_DEVICE_FAILED);
	/* held: the next generation says it */
	if (!READ_ONCE(c->log.held))
		cache_table_write(c);
	mutex_unlock(&c->super_lock);
}

/*
 * A power cut finds the table of d blank, and so d no member, until it is written, whatever the others say of it; they have
 * everything until then: with mirror=none no segment of it is taken before.  From set_count() on an error of d is that of a
 * member, which can be spared until it is told: log->held, a generation without it.  One that comes before is an error of a
 * stranger, but it may be named already: nothing follows from that while its table is blank, and the next table does not name it.
 */
int set_admit(struct cache *c, struct cache_device *d)
{
	bool counts = false;
	int err;

	mutex_lock(&c->set_lock);
	err = set_write(c, d);
	if (!err) {
		set_write_volumes(c);
		counts = set_count(c, d);
		err = counts ? set_tell(c, d) : -EIO;
	}
	if (err && !counts)
		set_unname(c, d);
	mutex_unlock(&c->set_lock);
	return err;
}

/*
 * d has nothing, and is no member in memory.  Both locks: whoever takes a segment sees it drained, or failed, or has taken one
 * before.  -EAGAIN: it has something, or might have had since c->failures was as given.
 */
static int set_uncount(struct cache *c, struct cache_device *d, u32 failures)
{
	int err = 0;

	spin_lock_irq(&c->log.lock);
	spin_lock(&c->segments_lock);
	if (!d->draining)
		err = -ECANCELED;
	else if (device_segments_used(d) || c->failures != failures)
		err = -EAGAIN;
	if (!err) {
		WRITE_ONCE(d->draining, false);
		WRITE_ONCE(d->removed, true);
		WRITE_ONCE(d->failed, true);
		WRITE_ONCE(c->nr_draining, c->nr_draining - 1);
		WRITE_ONCE(c->nr_failed, c->nr_failed + 1);
		WRITE_ONCE(c->failures, c->failures + 1);
	}
	spin_unlock(&c->segments_lock);
	spin_unlock_irq(&c->log.lock);
	return err;
}

/* Step 1: d counts no longer, but some SSD or backing may still take it for a member. */
static void set_hold(struct cache *c)
{
	spin_lock_irq(&c->log.lock);
	WRITE_ONCE(c->log.held, true);
	spin_unlock_irq(&c->log.lock);
	queue_work(c->set_wq, &c->set_work);
}

/*
 * Nothing is held, unless the generation without d cannot be written: no segment asks for a copy on d any more, and no checkpoint
 * that is named.  What emptied it is durable: log_sync() has been called since c->failures was as given.
 */
int set_dismiss(struct cache *c, struct cache_device *d, u32 failures)
{
	int err;

	mutex_lock(&c->set_lock);
	err = set_uncount(c, d, failures);
	if (!err) {
		err = set_write(c, NULL);
		if (err)
			set_hold(c);
	}
	if (!err)
		set_write_volumes(c);
	mutex_unlock(&c->set_lock);
	return err;
}

/* ------------------------------------------------------------------ what is lost with it */

static void lost_drop(struct cache *c, struct volume *v)
{
	struct larder_map m;
	u64 from = 0;

	while (larder_index_next(v->index, from, v->sectors, 1u << LARDER_ST_CLEAN, &m)) {
		from = m.sector + m.len;
		if (segment_lost(c, cache_segment(c, m.cache)))
			volume_map_change(v, m.sector, m.len, m.cache, 1u << LARDER_ST_CLEAN, m.cache, LARDER_ST_NONE);
		cond_resched();
	}
}

/* segments_lock held */
static bool may_become_lost(struct cache *c, u32 segment)
{
	const struct segment *seg = &c->segments[segment];

	return (seg->state == SEGMENT_SEALED || seg->state == SEGMENT_WAITING) && segment_gone(c, segment);
}

/* Clean extents of SSDs that have failed leave the index; their segments are gone. */
void set_drop_lost(struct cache *c)
{
	unsigned long flags;
	struct volume *v;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = cache_volume_get(c, i);
		if (!v)
			continue;
		lost_drop(c, v);
		volume_put(v);
	}
	synchronize_rcu();
	for (i = 0; i < c->nr_segments; i++) {
		if (!segment_lost(c, i) || atomic_read(&c->segments[i].live))
			continue;
		spin_lock_irqsave(&c->segments_lock, flags);
		if (may_become_lost(c, i))
			segment_become_lost(c, i);
		spin_unlock_irqrestore(&c->segments_lock, flags);
	}
}

int set_check_lost(struct cache *c, const struct cache_device *d)
{
	u32 i;

	for (i = d->first_segment; i < d->first_segment + d->nr_segments; i++) {
		if (!atomic_read(&c->segments[i].dirty) || !segment_lost(c, i))
			continue;
		DMERR("cache %pUb: dirty data was on SSD %u only, which left the set (segment %u): write it anew, or discard it",
		      c->uuid, (u32)(d - c->dev), i);
		return -EBUSY;
	}
	return 0;
}

/* set_lock held.  May the place of one that has failed be empty from now on?  -EAGAIN: one fails just now. */
static int check_dismiss(struct cache *c, const struct cache_device *d)
{
	int err = 0;

	spin_lock_irq(&c->log.lock);
	if (c->state == CACHE_FAILED)
		err = -EIO;
	else if (c->log.held)
		err = -EAGAIN;
	else if (!d->failed || d->joining)
		err = -EBUSY;
	spin_unlock_irq(&c->log.lock);
	return err;
}

int set_dismiss_failed(struct cache *c, struct cache_device *d)
{
	int err;

	do {
		set_wait(c);
		mutex_lock(&c->set_lock);
		err = check_dismiss(c, d);
		if (err == -EAGAIN)
			mutex_unlock(&c->set_lock);
	} while (err == -EAGAIN);
	if (err == -EBUSY)
		DMERR("cache %pUb: SSD %u has not failed: only a place without an SSD can be given up; drain it first", c->uuid,
		      (u32)(d - c->dev));
	else if (!err)
		err = set_check_lost(c, d);
	if (!err) {
		mutex_lock(&c->super_lock);
		WRITE_ONCE(d->removed, true);
		c->table->devices[d - c->dev].state = cpu_to_le32(LARDER_DEVICE_REMOVED);
		err = cache_table_write(c);
		mutex_unlock(&c->super_lock);
	}
	mutex_unlock(&c->set_lock);
	return err;
}

u32 set_nr_lost(const struct cache *c)
{
	u32 lost = 0, i;

	for (i = 0; i < c->nr_devices; i++)
		lost += READ_ONCE(c->dev[i].failed) && !c->dev[i].removed;
	return lost;
}

bool stream_lost(struct cache *c, u32 segment, const void *ignored)
{
	return segment_lost(c, segment);
}

bool set_leaves_lost(struct cache *c)
{
	return log_uses(c, stream_lost, NULL);
}

/* Might a start need it: records behind the place where the newest checkpoint's replay begins; chunks of any? */
static bool is_replayed(const struct segment *seg, u64 replay_sequence)
{
	u8 state = READ_ONCE(seg->state);

	if (state == SEGMENT_CHECKPOINT)
		return true;
	/* what was passed over says when that was; a stream is left for keep by what is put back young, and its records are not */
	return seg->sequence >= replay_sequence &&
	       ((state >= SEGMENT_ACTIVE && state <= SEGMENT_WAITING) || state == SEGMENT_LOST);
}

/* Would a start look for chunks or records that no SSD which is left has? */
bool set_start_needs_lost(struct cache *c)
{
	u32 segment, i;
	u64 sequence;
	bool needs;

	if (!READ_ONCE(c->nr_failed))
		return false;
	mutex_lock(&c->super_lock);
	segment = c->named[0].replay_segment;
	sequence = c->named[0].replay_sequence;
	mutex_unlock(&c->super_lock);
	needs = segment != LARDER_NO_SEGMENT && segment_lost(c, segment);
	for (i = 0; i < c->nr_segments && !needs; i++) {
		needs = segment_lost(c, i) && is_replayed(&c->segments[i], sequence);
		cond_resched();
	}
	return needs;
}

static bool is_left_behind(struct cache *c, u32 segment, const void *current_segment)
{
	return segment != *(const u32 *)current_segment && !segment_lost(c, segment);
}

/* The log is in the last segment that is left: it says where it goes on as long as it is there. */
static bool set_in_last(struct cache *c)
{
	u32 segment = READ_ONCE(c->log.stream[LARDER_STREAM_WRITE].segment);

	return segment != LARDER_NO_SEGMENT && !segment_lost(c, segment) && !log_uses(c, is_left_behind, &segment);
}

/*
 * Both SSDs of segments that a start would look at have left: of those that the write stream is in or has opened, which it goes on
 * behind, of those that it has left or passed over since the newest checkpoint, of the chunks of that.  A checkpoint says that none
 * of them is needed.  A power cut before it is named: the start is refused, though the SSDs left have all that counts.
 */
static void set_leave_lost(struct cache *c)
{
	unsigned int noio = memalloc_noio_save();

	set_wait(c);
	while (!shape_ended(c) && set_leaves_lost(c) && !log_at_its_end(c)) {
		if (set_in_last(c) || log_roll(c)) {
			segments_open_kick(c);
			msleep(TRY_AGAIN_MS);
		}
	}
	/* it may have been queued while the cache comes to rest: nothing is appended then */
	if (shape_ended(c))
		goto out;
	if (log_at_its_end(c)) {
		cache_fail(c, "all segments that the log had opened were on SSDs which left");
		goto out;
	}
	if (!checkpoint_take(c)) {
		DMINFO("cache %pUb: the log goes on without the segments that were on SSDs which left, and on no other", c->uuid);
	} else {
		WRITE_ONCE(c->want_checkpoint, true);
		checkpoint_kick(c);
	}
out:
	memalloc_noio_restore(noio);
}

void set_lost_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, lost_work);

	set_drop_lost(c);
	if (set_leaves_lost(c) || set_start_needs_lost(c))
		set_leave_lost(c);
	reclaim_kick(c);
}
