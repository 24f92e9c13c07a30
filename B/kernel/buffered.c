// SPDX-License-Identifier: GPL-2.0-only
/*
 * commit=buffered: a write is acknowledged when its data is in the pages of its record, as a disk's own write cache does it.
 *
 * Nothing else changes: it has its slots, its entry and its place in the log already; it is sent, applied and made durable as any
 * other, by nobody's word but that of the record it is in.  So all that waits for records (flush, FUA, writeback, checkpoints,
 * marks) knows nothing of it, and what is to be known is
 *   for reads      until it is applied the index does not show it: reads look into its race bucket first, and are answered from the
 *                  record's pages, which stay while somebody copies from them.  It enters the index before it leaves the bucket
 *   for bypasses   the bucket's count of writes in flight holds until it is applied, as for every write
 *   its bounds     pages of the log (16 MiB), BUFFERED_MS and BUCKET_MOST: while what is oldest in the log is older, or the write's
 *                  bucket has more, writes are acknowledged as without this option
 *   its failure    an append of a record that has such a write is sent again, at its place, before its SSD counts as failed.
 *                  When the last copy has failed the cache is 'failed': flushes and writes fail from then on, and what was
 *                  acknowledged and is on no SSD stays where it is: read from memory, counted as dirty, lost when the cache stops
 *
 * They are kept apart from the bios, which are gone: in a ring, in the order of the log, in which they are applied.
 */
#include "larder.h"
#include "trace.h"

#define BUFFERED_MS	100u	/* at risk, at most: LOG_PAGES has the other bound */
#define BUCKET_MOST	128u	/* writes in flight where one is still taken: reads look through them, with interrupts off */

struct buffered {
	struct item item;
	struct list_head list;		/* race_bucket->buffered, newest first; bucket lock */
	unsigned long since;		/* jiffies */
	u8 pin;				/* as larder_io->pin */
};

u32 buffered_interval(const struct cache *c, const struct record *r)
{
	u32 ms = READ_ONCE(c->set.commit_interval);

	return READ_ONCE(c->set.commit) == COMMIT_BUFFERED || r->buffered ? min(ms, BUFFERED_MS) : ms;
}

int buffered_create(struct cache *c)
{
	struct log *log = &c->log;
	u32 size = roundup_pow_of_two(log->nr_pages);
	struct buffered *ring;

	if (READ_ONCE(log->ring))
		return 0;
	ring = kvcalloc(size, sizeof(*ring), GFP_KERNEL);
	if (!ring)
		return -ENOMEM;
	mutex_lock(&cache_registry_lock);
	if (!log->ring) {
		c->fixed_bytes += (u64)size * sizeof(*ring);
		/* reads look for it before there can be anything */
		WRITE_ONCE(c->look, c->look | LOOK_BUFFERED);
		spin_lock_irq(&log->lock);
		log->ring_size = size;
		WRITE_ONCE(log->ring, ring);
		spin_unlock_irq(&log->lock);
		ring = NULL;
	}
	mutex_unlock(&cache_registry_lock);
	kvfree(ring);
	return 0;
}

/* Nothing is in flight.  What is lost holds records: they go the way of all others. */
void buffered_destroy(struct cache *c)
{
	struct log *log = &c->log;
	struct record *r, *next;

	list_for_each_entry_safe(r, next, &log->read_from, list) {
		list_del(&r->list);
		log_record_put(c, r);
	}
	kvfree(log->ring);
}

/* ------------------------------------------------------------------ from the write to the index */

struct item *buffered_take(struct volume *v, const struct larder_io *io)
{
	struct cache *c = v->cache;
	struct log *log = &c->log;
	struct buffered *w;

	lockdep_assert_held(&log->lock);
	if (io->fua || io->mover || !log->ring || log->held || log->ring_head - log->ring_tail == log->ring_size)
		return NULL;
	/* one bucket has all of it */
	if (io->sector >> LARDER_REGION_SHIFT != (io->sector + io->len - 1) >> LARDER_REGION_SHIFT)
		return NULL;
	/* one or two more, where others come at the same time, do no harm */
	if (READ_ONCE(race_bucket(c, v, io->sector >> LARDER_REGION_SHIFT)->writes) > BUCKET_MOST)
		return NULL;
	if (log->ring_head != log->ring_tail) {
		w = &log->ring[log->ring_tail & (log->ring_size - 1)];
		if (time_after(jiffies, w->since + msecs_to_jiffies(BUFFERED_MS)))
			return NULL;
	}
	w = &log->ring[log->ring_head++ & (log->ring_size - 1)];
	w->since = jiffies;
	w->pin = io->pin;
	w->item.answer = ANSWERED;
	return &w->item;
}

static bool newer(const struct item *a, const struct item *b)
{
	return a->record->lsn != b->record->lsn ? a->record->lsn > b->record->lsn : a->slot > b->slot;
}

/* Its data is in place: from here on reads find it.  Few are newer: those that were copied faster. */
void buffered_show(struct cache *c, struct item *it)
{
	struct race_bucket *b = race_bucket(c, it->volume, it->sector >> LARDER_REGION_SHIFT);
	struct buffered *w = container_of(it, struct buffered, item), *other;
	struct list_head *before = &b->buffered;

	spin_lock_irq(&b->lock);
	list_for_each_entry(other, &b->buffered, list) {
		if (newer(it, &other->item))
			break;
		before = &other->list;
	}
	list_add(&w->list, before);
	spin_unlock_irq(&b->lock);
	volume_count(it->volume, write_buffered, 1);
}

/* The one applier, interrupts off: the index has it, or it is lost and stays here. */
void buffered_applied(struct cache *c, struct item *it)
{
	struct race_bucket *b = race_bucket(c, it->volume, it->sector >> LARDER_REGION_SHIFT);
	struct buffered *w = container_of(it, struct buffered, item);

	if (unlikely(it->error)) {
		DMERR_LIMIT("volume %pUb: sectors %llu to %llu are on no SSD, but were acknowledged: read them before it stops",
			    it->volume->uuid, it->sector, it->sector + it->len - 1);
		atomic_inc(&it->record->readers);
		atomic64_add(it->len, &it->volume->dirty_sectors);
		atomic64_add(it->len, &c->dirty_sectors);
		atomic64_add(it->len, &c->lost_sectors);
	} else if (unlikely(w->pin)) {
		pin_set(it->volume, it->sector, it->cache, it->len, w->pin);
	}
	spin_lock(&b->lock);
	if (!it->error)
		list_del(&w->list);
	b->writes--;
	spin_unlock(&b->lock);
}

/* log->lock held: it is nobody's any more; what is lost is, and nothing is taken behind it. */
void buffered_put(struct log *log, const struct item *it)
{
	if (!it->error)
		log->ring_tail++;
}

/* ------------------------------------------------------------------ reads */

/*
 * Bucket lock held.  The newest one that has the sector, or NULL; *len: shortened to the part of [sector, sector + *len) that
 * it, or none, has.
 */
static const struct item *buffered_find(const struct race_bucket *b, const struct volume *v, u64 sector, u32 *len)
{
	const struct item *it, *found = NULL;
	u64 end = sector + *len;
	struct buffered *w;

	list_for_each_entry(w, &b->buffered, list) {
		it = &w->item;
		if (it->volume != v || it->sector >= end || it->sector + it->len <= sector)
			continue;
		if (it->sector <= sector) {
			found = it;
			end = min(end, it->sector + it->len);
			break;
		}
		end = it->sector;	/* newer than whatever has the sector */
	}
	*len = end - sector;
	return found;
}

/* The first sectors of the bio from the pages of a record that is held. */
static void buffered_copy(struct record *r, u32 off, struct bio *bio, u32 sectors)
{
	u32 end = off + (sectors << SECTOR_SHIFT), n, done, in;
	struct bvec_iter iter;
	struct bio_vec bv;

	bio_for_each_segment(bv, bio, iter) {
		void *to = bvec_kmap_local(&bv);

		for (done = 0; done < bv.bv_len && off < end; done += n, off += n) {
			in = off % LARDER_SLOT_SIZE;
			n = min3(bv.bv_len - done, (u32)LARDER_SLOT_SIZE - in, end - off);
			memcpy(to + done, bvec_virt(&r->vec[off / LARDER_SLOT_SIZE]) + in, n);
		}
		kunmap_local(to);
		flush_dcache_page(bv.bv_page);
	}
}

static void record_release(struct cache *c, struct record *r)
{
	struct log *log = &c->log;
	unsigned long flags;
	bool put;

	spin_lock_irqsave(&log->lock, flags);
	put = atomic_dec_and_test(&r->readers) && r->applied;
	if (put) {
		r->applied = false;
		list_del_init(&r->list);
		log_record_put(c, r);
	}
	spin_unlock_irqrestore(&log->lock, flags);
	if (put)
		defer_kick(c);
}

/*
 * The first piece of the range, over region borders: of one write, whose record is held, and from where in its pages on; or of
 * none.  *len: of the range, then of the piece.
 */
static struct record *buffered_hold(struct volume *v, u64 sector, u32 *len, u32 *off, u64 *cache)
{
	u64 end = sector + *len, pos = sector;
	const struct item *it = NULL;
	struct record *r = NULL;
	unsigned long flags;
	u32 n, part;

	for (; pos < end; pos += n) {
		u64 region = pos >> LARDER_REGION_SHIFT;
		struct race_bucket *b = race_bucket(v->cache, v, region);

		part = n = min_t(u64, end, (region + 1) << LARDER_REGION_SHIFT) - pos;
		spin_lock_irqsave(&b->lock, flags);
		it = buffered_find(b, v, pos, &n);
		if (it && pos == sector) {
			r = it->record;
			atomic_inc(&r->readers);	/* not applied yet: it would not be in the bucket */
			*off = (it->slot - r->first) * LARDER_SLOT_SIZE + ((pos - it->sector) << SECTOR_SHIFT);
			*cache = it->cache + (pos - it->sector);
			pos += n;
		}
		spin_unlock_irqrestore(&b->lock, flags);
		if (it || n < part) {
			pos += it ? 0 : n;
			break;
		}
	}
	*len = pos - sector;
	return r;
}

int buffered_read(struct volume *v, struct bio *bio, const struct larder_io *io, bool may_cut, u32 *len)
{
	struct cache *c = v->cache;
	struct record *r;
	u64 cache;
	u32 off;

	*len = io->len;
	r = buffered_hold(v, io->sector, len, &off, &cache);
	if (*len < io->len && !may_cut) {
		if (r)
			record_release(c, r);
		if (READ_ONCE(c->state) == CACHE_FAILED)
			return -EIO;	/* what is lost will not be applied */
		WRITE_ONCE(c->want_commit, true);
		log_kick(c);
		return -EAGAIN;
	}
	if (!r)
		return 0;
	buffered_copy(r, off, bio, *len);
	record_release(c, r);
	volume_count(v, read_buffered, 1);
	trace_larder_hit(v, io->sector, *len, cache);
	return 1;
}
