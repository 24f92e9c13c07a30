// SPDX-License-Identifier: GPL-2.0-only
/*
 * Intent marks (ordering rule 6): regions of 64 MiB in which the backing may be changed behind what the log knows of it.
 *
 *   (none) -> WANTED -> SETTING -> SET -> CLEARING -> CLEARED -> (none)
 *
 * SET: an INTENT record says so, durably.  CLEARING: nothing is in flight in the region, and the backing is flushed.  CLEARED: that
 * is done, and the clearing record is appended: there is no way back to SET, whatever fails; it is gone when that record is applied
 * (checkpoint-mark-until-cleared: until then a checkpoint contains it).
 * A request that needs a mark that is not SET is deferred; marks_work() sets them in batches, one commit and one flush for all.
 *
 * The exception: a region of which neither index, checkpoint, log nor a fill in flight knows anything (one bit, 'known') needs no
 * mark; what is written to it so is not filled before the next flush of the backing that is issued after it completed (nofill,
 * nofill_flushing).
 */
#include "larder.h"
#include "trace.h"

#define MARK_IDLE	(30 * HZ)
#define MARK_GROUP	64u	/* aligned, that are set together where the SSD is slow: 4 GiB */

static u64 region_of(u64 sector) { return sector >> LARDER_INTENT_SHIFT; }

u64 marks_base_bytes(u64 sectors)
{
	return 3 * sizeof(long) * BITS_TO_LONGS(region_of(sectors - 1) + 1);
}

int marks_create(struct volume *v)
{
	u64 n = region_of(v->sectors - 1) + 1;

	spin_lock_init(&v->marks_lock);
	xa_init(&v->marks);
	INIT_LIST_HEAD(&v->marks_lru);
	/* the size of a volume in the table may be anything: no memory for what the index refuses */
	if (v->sectors > LARDER_INDEX_MAX_SECTORS)
		return -EFBIG;
	v->nr_mark_regions = n;
	v->known = kvcalloc(BITS_TO_LONGS(n), sizeof(long), GFP_KERNEL);
	v->nofill = kvcalloc(BITS_TO_LONGS(n), sizeof(long), GFP_KERNEL);
	v->nofill_flushing = kvcalloc(BITS_TO_LONGS(n), sizeof(long), GFP_KERNEL);
	return v->known && v->nofill && v->nofill_flushing ? 0 : -ENOMEM;
}

static unsigned long *bits_copy(const unsigned long *bits, u64 n, u64 more)
{
	unsigned long *copy = kvcalloc(BITS_TO_LONGS(more), sizeof(long), GFP_KERNEL);

	if (copy)
		bitmap_copy(copy, bits, n);
	return copy;
}

int marks_resize(struct volume *v, u64 sectors)
{
	u64 was = v->nr_mark_regions, n = region_of(sectors - 1) + 1;
	unsigned long *bits[3], **to[3] = { &v->known, &v->nofill, &v->nofill_flushing };
	int i, err = 0;

	if (n <= was)
		return 0;
	for (i = 0; i < 3; i++) {
		bits[i] = bits_copy(*to[i], was, n);
		if (!bits[i])
			err = -ENOMEM;
	}
	if (!err) {
		for (i = 0; i < 3; i++)
			swap(*to[i], bits[i]);
		v->nr_mark_regions = n;
	}
	for (i = 0; i < 3; i++)
		kvfree(bits[i]);
	return err;
}

void marks_destroy(struct volume *v)
{
	struct mark *m, *next;

	if (v->marks_lru.next)
		list_for_each_entry_safe(m, next, &v->marks_lru, list)
			kfree(m);
	xa_destroy(&v->marks);
	kvfree(v->known);
	kvfree(v->nofill);
	kvfree(v->nofill_flushing);
}

void marks_known(struct volume *v, u64 sector, u32 len)
{
	u64 region, last = region_of(sector + len - 1);

	for (region = region_of(sector); region <= last; region++)
		if (!test_bit(region, v->known))
			set_bit(region, v->known);
}

/* marks_lock held */
static struct mark *mark_want(struct volume *v, u64 region)
{
	struct mark *m = kzalloc(sizeof(*m), GFP_ATOMIC | __GFP_NOWARN);

	if (!m)
		return NULL;
	m->region = region;
	m->state = MARK_WANTED;
	m->errors = atomic_read(&v->flusher.errors);
	m->used = jiffies;
	if (xa_err(xa_store(&v->marks, region, m, GFP_ATOMIC | __GFP_NOWARN))) {
		kfree(m);
		return NULL;
	}
	list_add_tail(&m->list, &v->marks_lru);
	v->nr_marks++;
	return m;
}

/*
 * marks_lock held.  Of an SSD that is slow a commit with its flush costs more than a mark that was set in vain, and those who want
 * one mark want others soon: all of a group are set at once.
 */
static void marks_want_group(struct volume *v, u64 region)
{
	u64 at = round_down(region, MARK_GROUP), end = min_t(u64, at + MARK_GROUP, v->nr_mark_regions);

	for (; at < end && v->nr_marks < v->cache->set.max_marks / 2; at++)
		if (test_bit(at, v->known) && !xa_load(&v->marks, at) && !mark_want(v, at))
			break;
}

int marks_get(struct volume *v, u64 sector, u32 len, bool through)
{
	u64 region, first = region_of(sector), last = region_of(sector + len - 1);
	bool exempt = !through, ready = true;
	unsigned long flags;
	struct mark *m;

	/* pairs with the barriers in fill_miss() and fill_through(): either the fill sees our race bucket, or we see its bit */
	smp_mb();
	for (region = first; region <= last && exempt; region++)
		exempt = !test_bit(region, v->known);
	if (exempt)
		return 1;
	spin_lock_irqsave(&v->marks_lock, flags);
	for (region = first; region <= last; region++) {
		m = xa_load(&v->marks, region);
		if (!m && v->nr_marks < v->cache->set.max_marks) {
			m = mark_want(v, region);
			if (m && unlikely(ssd_congested(v->cache, SSD_WRITE)))
				marks_want_group(v, region);
		}
		if (!m || m->state != MARK_SET)
			ready = false;
	}
	/* a stream's next region, ahead of it */
	region = last + 1;
	if (ready && region < v->nr_mark_regions &&
	    ((sector + len) & ((1u << LARDER_INTENT_SHIFT) - 1)) >= (3u << (LARDER_INTENT_SHIFT - 2)) &&
	    test_bit(region, v->known) && !xa_load(&v->marks, region) && v->nr_marks < v->cache->set.max_marks / 2) {
		mark_want(v, region);
		queue_work(v->cache->meta_wq, &v->mark_work);
	}
	for (region = first; ready && region <= last; region++) {
		m = xa_load(&v->marks, region);
		m->in_flight++;
		m->used = jiffies;
		list_move_tail(&m->list, &v->marks_lru);
	}
	spin_unlock_irqrestore(&v->marks_lock, flags);
	if (ready)
		return 0;
	queue_work(v->cache->meta_wq, &v->mark_work);
	return -EAGAIN;
}

void marks_put(struct volume *v, u64 sector, u32 len)
{
	u64 region, last = region_of(sector + len - 1);
	unsigned long flags;
	struct mark *m;

	spin_lock_irqsave(&v->marks_lock, flags);
	for (region = region_of(sector); region <= last; region++) {
		m = xa_load(&v->marks, region);
		if (!WARN_ON_ONCE(!m || !m->in_flight))
			m->in_flight--;
	}
	spin_unlock_irqrestore(&v->marks_lock, flags);
}

/* ------------------------------------------------------------------ the exception */

/* marks_lock held.  One flag for those who look without it: bits move from one map to the other, and back. */
static void nofill_changed(struct volume *v)
{
	WRITE_ONCE(v->nofill_some, v->nofill_any || v->nofill_flushing_any);
}

void marks_exempt(struct volume *v, u64 sector, u32 len)
{
	u64 region, last = region_of(sector + len - 1);
	unsigned long flags;

	spin_lock_irqsave(&v->marks_lock, flags);
	for (region = region_of(sector); region <= last; region++)
		__set_bit(region, v->nofill);
	v->nofill_any = true;
	nofill_changed(v);
	spin_unlock_irqrestore(&v->marks_lock, flags);
}

bool marks_may_fill(struct volume *v, u64 sector, u32 len)
{
	u64 region, last = region_of(sector + len - 1);
	unsigned long flags;
	bool may = true;

	if (likely(!READ_ONCE(v->nofill_some)))
		return true;
	spin_lock_irqsave(&v->marks_lock, flags);
	for (region = region_of(sector); region <= last && may; region++)
		may = !test_bit(region, v->nofill) && !test_bit(region, v->nofill_flushing);
	spin_unlock_irqrestore(&v->marks_lock, flags);
	return may;
}

/* A flush of the backing is about to be issued: it covers what completed before. Only one at a time is watched. */
void marks_flush_issued(struct volume *v, u64 number)
{
	unsigned long flags;

	if (!READ_ONCE(v->nofill_some))
		return;
	spin_lock_irqsave(&v->marks_lock, flags);
	if (v->nofill_any && !v->nofill_flushing_any) {
		swap(v->nofill, v->nofill_flushing);
		v->nofill_flushing_any = true;
		v->nofill_any = false;
		v->nofill_flush_number = number;
	}
	spin_unlock_irqrestore(&v->marks_lock, flags);
}

void marks_flush_done(struct volume *v, u64 number, bool ok)
{
	unsigned long flags;

	if (!READ_ONCE(v->nofill_some))
		return;
	spin_lock_irqsave(&v->marks_lock, flags);
	if (v->nofill_flushing_any && v->nofill_flush_number <= number) {
		if (ok) {
			bitmap_zero(v->nofill_flushing, v->nr_mark_regions);
		} else {
			bitmap_or(v->nofill, v->nofill, v->nofill_flushing, v->nr_mark_regions);
			bitmap_zero(v->nofill_flushing, v->nr_mark_regions);
			v->nofill_any = true;
		}
		v->nofill_flushing_any = false;
		nofill_changed(v);
	}
	spin_unlock_irqrestore(&v->marks_lock, flags);
}

/* ------------------------------------------------------------------ setting and clearing */

static int mark_log(struct volume *v, u64 region, bool set)
{
	struct larder_entry_in e = { .sector = region, .length = set, .volume = v->number, .kind = LARDER_INTENT };

	unsigned long give_up = jiffies + HZ;
	int err;

	/* not for ever: a volume that is being unbound waits for this work, and space may wait for the volume */
	while ((err = log_entry(v->cache, &e, NULL)) == -EAGAIN && time_before(jiffies, give_up))
		schedule_timeout_uninterruptible(1);
	if (!err)
		trace_larder_mark(v, region, set);
	return err;
}

/* Marks in 'from' become 'to'; then those in 'to' are logged.  Returns how many. */
static u32 marks_move(struct volume *v, u8 from, u8 to, bool (*pick)(struct volume *v, struct mark *m))
{
	struct mark *m;
	u32 n = 0;

	spin_lock_irq(&v->marks_lock);
	list_for_each_entry(m, &v->marks_lru, list) {
		if (m->state != from || (pick && !pick(v, m)))
			continue;
		m->state = to;
		n++;
	}
	spin_unlock_irq(&v->marks_lock);
	return n;
}

/* It was not logged. */
static void mark_not_cleared(struct volume *v, u64 region)
{
	struct mark *m;

	spin_lock_irq(&v->marks_lock);
	m = xa_load(&v->marks, region);
	if (m && m->state == MARK_CLEARED)
		m->state = MARK_CLEARING;
	spin_unlock_irq(&v->marks_lock);
}

static int marks_log_all(struct volume *v, u8 state, bool set)
{
	u64 region = 0;
	struct mark *m;
	unsigned long index;
	int err = 0;

	do {
		bool found = false;

		spin_lock_irq(&v->marks_lock);
		index = region;
		for (m = xa_find(&v->marks, &index, ULONG_MAX, XA_PRESENT); m;
		     m = xa_find_after(&v->marks, &index, ULONG_MAX, XA_PRESENT)) {
			if (m->state == state) {
				region = m->region;
				found = true;
				break;
			}
		}
		if (found && !set)
			m->state = MARK_CLEARED;	/* before it may be applied */
		spin_unlock_irq(&v->marks_lock);
		if (!found)
			break;
		err = mark_log(v, region, set);
		if (err && !set)
			mark_not_cleared(v, region);
		region++;
	} while (!err);
	return err;
}

/* WANTED ones: entries, one commit, one flush. */
static void marks_set(struct volume *v)
{
	u32 n = marks_move(v, MARK_WANTED, MARK_SETTING, NULL);
	int err;

	if (!n)
		return;
	err = marks_log_all(v, MARK_SETTING, true);
	if (!err)
		err = log_sync(v->cache);
	marks_move(v, MARK_SETTING, err ? MARK_WANTED : MARK_SET, NULL);
	if (!err)
		volume_count(v, marks_set, n);
}

static bool mark_clearable(struct volume *v, struct mark *m)
{
	if (m->in_flight)
		return false;
	if (READ_ONCE(v->marks_stopping))
		return true;
	if (v->marks_to_clear) {
		v->marks_to_clear--;	/* crowded: the least recently used ones */
		return true;
	}
	return time_after(jiffies, m->used + MARK_IDLE);
}

/* How much from this sector on is not dirty, up to end. */
static u32 sectors_not_dirty(struct volume *v, u64 sector, u64 end)
{
	struct larder_map m;
	u64 at;

	for (at = sector; at < end; at += m.len) {
		larder_index_lookup(v->index, at, end - at, &m);
		if (larder_state_dirty(m.state))
			break;
	}
	return at - sector;
}

/* The RCU section: as in bypass.c:invalidate(). */
static int mark_invalidate(struct volume *v, u64 sector, u32 len)
{
	struct larder_entry_in e = { .sector = sector, .length = len, .volume = v->number, .kind = LARDER_INVALIDATE };
	int err;

	rcu_read_lock();
	err = log_entry(v->cache, &e, NULL) ?: volume_map_store(v, sector, len, 0, LARDER_ST_NONE, NULL);
	rcu_read_unlock();
	return err;
}

/*
 * A flush, or a write, of the backing has failed since the mark was set: what was volatile there may be gone, and a clean copy of
 * it be newer than what it is a copy of.  What is clean leaves the cache, as at a start (rule 6, intent-clear-drops), and so does
 * what is not in the index: a copy that left it, to make room, may be in a checkpoint, or in a record that is replayed, and without
 * the mark nothing would keep it out.  The buckets are taken as for a bypass: copies on their way are void, and no write is in
 * flight whose record the INVALIDATE might come behind.
 */
static int mark_drop_clean(struct volume *v, u64 sector, u64 end)
{
	struct cache *c = v->cache;
	u64 len = end - sector, next = sector;
	struct larder_map m;
	int err = 0;
	u32 n;

	if (race_begin(c, v, sector, len, RACE_BYPASS))
		err = -EAGAIN;
	for (; !err && next < end; next += n) {
		n = sectors_not_dirty(v, next, end);
		if (n) {
			err = mark_invalidate(v, next, n);
		} else {
			larder_index_lookup(v->index, next, end - next, &m);
			n = larder_state_dirty(m.state) ? m.len : 0;	/* 0: not any more */
		}
	}
	race_end(c, v, sector, len, RACE_BYPASS);
	return err;
}

/* A mark that is CLEARING, from this region on, and was set, or seen to, before the last of so many errors of the backing. */
static bool mark_doubtful(struct volume *v, u64 *region, unsigned int errors)
{
	unsigned long index = *region;
	bool found = false;
	struct mark *m;

	spin_lock_irq(&v->marks_lock);
	for (m = xa_find(&v->marks, &index, ULONG_MAX, XA_PRESENT); m && !found;
	     m = xa_find_after(&v->marks, &index, ULONG_MAX, XA_PRESENT)) {
		found = m->state == MARK_CLEARING && m->errors != errors;
		if (found)
			*region = m->region;
	}
	spin_unlock_irq(&v->marks_lock);
	return found;
}

/* What cannot be dropped now keeps its mark. */
static void marks_drop_doubtful(struct volume *v)
{
	unsigned int errors = atomic_read(&v->flusher.errors);
	u64 region, sector, end, next;
	struct mark *m;
	int err;

	for (region = 0; mark_doubtful(v, &region, errors); region++) {
		sector = region << LARDER_INTENT_SHIFT;
		end = min(sector + (1u << LARDER_INTENT_SHIFT), v->sectors);
		for (err = 0; !err && sector < end; sector = next) {
			next = min(end, (sector | (LARDER_REGION_SECTORS - 1)) + 1);
			err = mark_drop_clean(v, sector, next);
			cond_resched();
		}
		spin_lock_irq(&v->marks_lock);
		m = xa_load(&v->marks, region);
		if (m && err && m->state == MARK_CLEARING)
			m->state = MARK_SET;
		else if (m && !err)
			m->errors = errors;	/* not again, should its clearing find no room in the log */
		spin_unlock_irq(&v->marks_lock);
	}
}

/*
 * Clearing: nothing of the region is in flight and nothing can begin (CLEARING is not SET); the INVALIDATEs of all that went there
 * are in the write stream; the backing is flushed; then the clearing is appended behind them (rule 6 (a)).
 */
static void marks_clear(struct volume *v)
{
	u32 most = v->cache->set.max_marks;

	WRITE_ONCE(v->marks_looked, jiffies);
	v->marks_to_clear = v->nr_marks > most * 3 / 4 ? v->nr_marks - most / 2 : 0;
	if (!marks_move(v, MARK_SET, MARK_CLEARING, mark_clearable) && !v->clearing_again)
		return;
	v->clearing_again = false;
	if (backing_secure(v, atomic_read(&v->flusher.errors))) {
		/* not those of an earlier run that the log has cleared */
		marks_move(v, MARK_CLEARING, MARK_SET, NULL);
		return;
	}
	marks_drop_doubtful(v);
	/* what could not be logged stays CLEARING, and is tried again by the next run */
	if (marks_log_all(v, MARK_CLEARING, false))
		v->clearing_again = true;
	log_close_open(v->cache, CLOSE_ASKED);
}

/* From this region on; false: there is none. */
static bool mark_next(struct volume *v, u64 *region)
{
	unsigned long index = *region;
	struct mark *m;

	spin_lock_irq(&v->marks_lock);
	m = xa_find(&v->marks, &index, ULONG_MAX, XA_PRESENT);
	if (m) {
		*region = m->region;
		m->used = jiffies - MARK_IDLE - 1;
	}
	spin_unlock_irq(&v->marks_lock);
	return m;
}

void marks_bound_again(struct volume *v)
{
	u64 region, sector, end;

	if (!READ_ONCE(v->nr_marks))
		return;
	atomic_inc(&v->flusher.errors);
	v->marks_looked = jiffies - MARK_IDLE - 1;
	for (region = 0; mark_next(v, &region); region++) {
		sector = region << LARDER_INTENT_SHIFT;
		end = min(sector + (1u << LARDER_INTENT_SHIFT), v->sectors);
		while (volume_drop_clean(v, sector, end))
			;
	}
}

/* Interrupt context: the record is applied. */
void marks_cleared(struct volume *v, u64 region)
{
	unsigned long flags;
	struct mark *m;

	spin_lock_irqsave(&v->marks_lock, flags);
	m = xa_load(&v->marks, region);
	if (m && m->state == MARK_CLEARED) {
		xa_erase(&v->marks, region);
		list_del(&m->list);
		v->nr_marks--;
		volume_count(v, marks_cleared, 1);
		kfree(m);
	}
	spin_unlock_irqrestore(&v->marks_lock, flags);
}

bool marks_due(const struct volume *v)
{
	return READ_ONCE(v->nr_marks) && (time_after(jiffies, READ_ONCE(v->last_io) + MARK_IDLE) ||
					  time_after(jiffies, READ_ONCE(v->marks_looked) + MARK_IDLE));
}

/*
 * meta_wq: marks, and may_be_dirty before the first dirty write (rule 11).  It may find that the volume is not bound any more: then
 * nobody waits for anything of it.
 */
void marks_work(struct work_struct *work)
{
	struct volume *v = container_of(work, struct volume, mark_work);

	if (!READ_ONCE(v->active))
		return;
	if (READ_ONCE(v->want_dirty)) {
		WRITE_ONCE(v->want_dirty, false);
		if (!v->may_be_dirty)
			WRITE_ONCE(v->dirty_error, volume_set_may_be_dirty(v, true));
	}
	marks_clear(v);
	if (!READ_ONCE(v->marks_stopping))
		marks_set(v);
	defer_kick(v->cache);
}

/*
 * The volume is about to be unbound, in order, and has no request in flight: no mark stays, so that the next start drops nothing.
 * One that cannot be cleared does stay.
 */
void marks_stop(struct volume *v)
{
	if (!READ_ONCE(v->nr_marks))
		return;
	WRITE_ONCE(v->marks_stopping, true);
	queue_work(v->cache->meta_wq, &v->mark_work);
	flush_work(&v->mark_work);
	WRITE_ONCE(v->marks_stopping, false);
	log_sync(v->cache);
}

void marks_load(struct volume *v, u64 region)
{
	struct mark *m;

	if (region >= v->nr_mark_regions)
		return;
	spin_lock_irq(&v->marks_lock);
	m = xa_load(&v->marks, region);
	if (!m)
		m = mark_want(v, region);
	if (m) {
		m->state = MARK_SET;
		m->used = jiffies;
	}
	spin_unlock_irq(&v->marks_lock);
}

u32 marks_copy(struct volume *v, u64 *regions, u32 max, u32 skip)
{
	struct mark *m;
	u32 n = 0;

	spin_lock_irq(&v->marks_lock);
	list_for_each_entry(m, &v->marks_lru, list) {
		if (m->state == MARK_WANTED)
			continue;
		if (skip) {
			skip--;
			continue;
		}
		if (n == max)
			break;
		regions[n++] = m->region;
	}
	spin_unlock_irq(&v->marks_lock);
	return n;
}
