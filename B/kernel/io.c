// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests: classify -> look up -> cache | backing -> complete.
 *
 * io_begin() judges a bio, io_map() acts on it.  From map() it never waits: what cannot be done now is deferred to the worker,
 * which calls it again with may_wait.  Only map() may accept a bio in part (dm_accept_partial_bio()); so a write that is deferred
 * is first cut to what one record holds, and the worker's bios are always whole.
 *
 * What goes to the SSD is judged once per request (io_judge()): io->bypass keeps a miss from filling, and sends a write to the
 * backing where rules 5 and 6 let it.
 *
 * Reads look up under RCU and pin the segment before they leave it: reclaim takes the mappings away, waits for a grace period, then
 * for the pins (rule 9, pin-reads).
 */
#include "larder.h"
#include "trace.h"

void io_complete(struct bio *bio, int error)
{
	bio->bi_status = errno_to_blk_status(error);
	bio_endio(bio);
}

int io_issue(struct bio *bio, bool may_wait)
{
	if (!may_wait)
		return DM_MAPIO_REMAPPED;
	submit_bio_noacct(bio);
	return DM_MAPIO_SUBMITTED;
}

/* map() only: the rest comes back as a request of its own. */
static void io_cut(struct volume *v, struct bio *bio, struct larder_io *io, u32 sectors)
{
	if (unlikely(rcu_access_pointer(v->classes)))
		io_class_cut(v, bio, io, sectors);
	if (v->set.sequential_cutoff && sectors < io->len)
		larder_seq_cut(v->seq, io->sector + sectors, io->sector + io->len, op_is_write(bio_op(bio)), current->pid);
	dm_accept_partial_bio(bio, sectors);
	io->len = sectors;
}

/* ------------------------------------------------------------------ races: buckets by 2 MiB region */

static void race_add(struct race_bucket *b, enum race_kind kind, int by)
{
	switch (kind) {
	case RACE_WRITE:
		b->writes += by;
		break;
	case RACE_BYPASS:
		b->bypasses += by;
		break;
	case RACE_RESYNC:
		b->resyncs += by;
		fallthrough;
	case RACE_WRITEBACK:
		b->writebacks += by;
		break;
	}
}

/* Rule 7: copies of the range that are on their way are void.  Bucket lock held. */
static void race_void(struct race_bucket *b, const struct volume *v, u64 sector, u64 len)
{
	struct copy_link *l;

	list_for_each_entry(l, &b->copies, list)
		if (l->copy->volume == v && l->copy->sector < sector + len && sector < l->copy->sector + l->copy->len)
			WRITE_ONCE(l->copy->raced, true);
}

static bool race_waits(const struct race_bucket *b)
{
	return unlikely(b->turn_until) && time_before64(get_jiffies_64(), b->turn_until);
}

bool race_begin(struct cache *c, struct volume *v, u64 sector, u64 len, enum race_kind kind)
{
	u64 region = sector >> LARDER_REGION_SHIFT, last = (sector + len - 1) >> LARDER_REGION_SHIFT;
	unsigned long flags;
	bool conflict = false;

	for (; region <= last; region++) {
		struct race_bucket *b = race_bucket(c, v, region);

		spin_lock_irqsave(&b->lock, flags);
		race_add(b, kind, 1);
		if ((kind == RACE_WRITE || kind == RACE_BYPASS) && !list_empty(&b->copies))
			race_void(b, v, sector, len);
		switch (kind) {
		case RACE_WRITE:
		case RACE_WRITEBACK:
		case RACE_RESYNC:
			conflict |= b->bypasses || race_waits(b);
			break;
		case RACE_BYPASS:
			conflict |= b->writes || b->writebacks;
			break;
		}
		spin_unlock_irqrestore(&b->lock, flags);
	}
	return conflict;
}

void race_turn(struct cache *c, struct volume *v, u64 sector, u64 len, u64 until)
{
	u64 region = sector >> LARDER_REGION_SHIFT, last = (sector + len - 1) >> LARDER_REGION_SHIFT;
	unsigned long flags;

	for (; region <= last; region++) {
		struct race_bucket *b = race_bucket(c, v, region);

		spin_lock_irqsave(&b->lock, flags);
		b->turn_until = until;
		spin_unlock_irqrestore(&b->lock, flags);
	}
}

void race_end(struct cache *c, struct volume *v, u64 sector, u64 len, enum race_kind kind)
{
	u64 region = sector >> LARDER_REGION_SHIFT, last = (sector + len - 1) >> LARDER_REGION_SHIFT;
	unsigned long flags;

	for (; region <= last; region++) {
		struct race_bucket *b = race_bucket(c, v, region);

		spin_lock_irqsave(&b->lock, flags);
		race_add(b, kind, -1);
		spin_unlock_irqrestore(&b->lock, flags);
	}
}

void race_barrier(struct cache *c, struct volume *v, u64 sector, u64 len, u64 lsn)
{
	u64 region = sector >> LARDER_REGION_SHIFT, last = (sector + len - 1) >> LARDER_REGION_SHIFT;
	unsigned long flags;

	for (; region <= last; region++) {
		struct race_bucket *b = race_bucket(c, v, region);

		spin_lock_irqsave(&b->lock, flags);
		b->barrier_lsn = max(b->barrier_lsn, lsn);
		spin_unlock_irqrestore(&b->lock, flags);
	}
}

u64 race_barrier_lsn(struct cache *c, struct volume *v, u64 sector, u64 len)
{
	u64 region = sector >> LARDER_REGION_SHIFT, last = (sector + len - 1) >> LARDER_REGION_SHIFT, lsn = 0;
	unsigned long flags;

	for (; region <= last; region++) {
		struct race_bucket *b = race_bucket(c, v, region);

		spin_lock_irqsave(&b->lock, flags);
		lsn = max(lsn, b->barrier_lsn);
		spin_unlock_irqrestore(&b->lock, flags);
	}
	return lsn;
}

/* ------------------------------------------------------------------ deferral */

void defer_bio(struct volume *v, struct bio *bio)
{
	struct cache *c = v->cache;
	unsigned long flags;

	if (bio->bi_opf & REQ_NOWAIT) {
		bio_wouldblock_error(bio);
		return;
	}
	volume_count(v, deferred, 1);
	trace_larder_defer(v, bio, larder_io(bio), 0);
	/* all of it under the lock: behind it the bio, and with it what keeps the volume, may be gone */
	spin_lock_irqsave(&v->defer_lock, flags);
	if (!v->nr_deferred++ && c) {
		spin_lock(&c->defer_lock);
		list_add_tail(&v->deferring, &c->deferring);
		spin_unlock(&c->defer_lock);
	}
	bio_list_add(&v->deferred, bio);
	queue_work(c ? c->io_wq : larder_wq, &v->defer_work);
	if (c)
		cache_tick_wake(c);
	spin_unlock_irqrestore(&v->defer_lock, flags);
}

void defer_kick(struct cache *c)
{
	unsigned long flags;
	struct volume *v;

	if (list_empty(&c->deferring))
		return;
	spin_lock_irqsave(&c->defer_lock, flags);
	/* each is the first one in its turn: what there is to be had may be too little for all */
	if (!list_empty(&c->deferring))
		list_rotate_left(&c->deferring);
	list_for_each_entry(v, &c->deferring, deferring)
		queue_work(c->io_wq, &v->defer_work);
	spin_unlock_irqrestore(&c->defer_lock, flags);
}

/* Would wait for its pace, too, as one before it does: it is not tried. */
static bool defer_waits(struct bio *bio)
{
	return bio_op(bio) == REQ_OP_WRITE && !larder_io(bio)->bypass;
}

/* One pass over what is deferred of a volume: events kick it again, and a timer in case that one was missed. */
void defer_work(struct work_struct *work)
{
	struct volume *v = container_of(work, struct volume, defer_work);
	struct cache *c = v->cache;
	struct bio_list todo, again;
	unsigned int n = 0;
	bool paced = false;
	struct bio *bio;

	bio_list_init(&again);
	spin_lock_irq(&v->defer_lock);
	todo = v->deferred;
	bio_list_init(&v->deferred);
	spin_unlock_irq(&v->defer_lock);
	while ((bio = bio_list_pop(&todo))) {
		if (unlikely(paced) && defer_waits(bio)) {
			bio_list_add(&again, bio);
			continue;
		}
		larder_io(bio)->paced = false;
		if (io_map(v, bio, larder_io(bio), true) == -EAGAIN) {
			bio_list_add(&again, bio);
			paced |= larder_io(bio)->paced;
		} else {
			n++;
		}
	}
	if (!bio_list_empty(&again))
		queue_delayed_work(c->io_wq, &c->defer_again, msecs_to_jiffies(10));
	spin_lock_irq(&v->defer_lock);
	bio_list_merge_head(&v->deferred, &again);
	v->nr_deferred -= n;
	if (c && n && !v->nr_deferred) {
		spin_lock(&c->defer_lock);
		list_del_init(&v->deferring);
		spin_unlock(&c->defer_lock);
	}
	spin_unlock_irq(&v->defer_lock);
}

void defer_again(struct work_struct *work)
{
	defer_kick(container_of(to_delayed_work(work), struct cache, defer_again));
}

/* ------------------------------------------------------------------ reads */

/* To the backing, as it is. */
static int read_backing(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	io->kind = IO_MISS;
	io->backing = true;
	io->iter = bio->bi_iter;
	backing_read_begins(v);
	WRITE_ONCE(v->last_io, jiffies);
	volume_count(v, read_miss_sectors, io->len);
	bio_set_dev(bio, v->bdev);
	bio->bi_iter.bi_sector = v->data_start + io->sector;
	return io_issue(bio, may_wait);
}

/* Drops what is CLEAN in the range: reads of it failed. */
static void read_drop_clean(struct volume *v, u64 sector, u32 len)
{
	struct larder_map m;

	for (; len; sector += m.len, len -= m.len) {
		larder_index_lookup(v->index, sector, len, &m);
		if (m.state == LARDER_ST_CLEAN)
			larder_index_change(v->index, m.sector, m.len, m.cache, 1u << LARDER_ST_CLEAN, m.cache, LARDER_ST_NONE);
	}
}

static void read_heat(struct cache *c, const struct segment *seg, u64 cache, u32 len)
{
	u64 first = cache / LARDER_SLOT_SECTORS, last = (cache + len - 1) / LARDER_SLOT_SECTORS;

	if (segment_heat_counts(c, seg))
		larder_heat_hit(&c->heat, first, last - first + 1);
}

/*
 * Nobody has counted a clone's vectors, and where their number is not known to be one, the block layer goes through them to see
 * whether it has to split the bio (bio_may_exceed_limits(), bio_may_need_split()).
 */
static void hit_count_vector(struct bio *bio)
{
	if (!bio->bi_iter.bi_idx && bio->bi_iter.bi_bvec_done + bio->bi_iter.bi_size <= bio->bi_io_vec->bv_len)
		bio->bi_vcnt = 1;
}

/* A hit: io has the place and the state, its segment is pinned.  4Kn SSD, and extent or vectors do not fit: read_bounce(). */
static __always_inline int read_hit(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	struct cache *c = v->cache;
	struct cache_device *d;
	sector_t where;

	d = cache_sector_device(c, io->cache, &where);
	if (unlikely(READ_ONCE(d->failed))) {
		/* since it was looked whether there is one */
		segment_unpin(c, cache_segment(c, io->cache));
		return -EAGAIN;
	}
	io->device = d;
	io->kind = IO_HIT;
	io->iter = bio->bi_iter;
	/* its failure counts as bad media: it is not to fail for less; nor need the SSD have queues that are polled */
	bio->bi_opf &= ~(REQ_RAHEAD | REQ_FAILFAST_MASK | REQ_POLLED);
	io->probe = ssd_probe_begin(c, SSD_READ);
	read_heat(c, io->segment, io->cache, io->len);
	if (unlikely(io->pin))
		pin_set(v, io->sector, io->cache, io->len, io->pin);
	volume_count(v, read_hits, 1);
	volume_count(v, read_hit_sectors, io->len);
	trace_larder_hit(v, io->sector, io->len, io->cache);
	bio->bi_iter.bi_sector = where;
	bio_set_dev(bio, d->bdev);
	if (!larder_vector_unchecked(d->bdev, bio))
		hit_count_vector(bio);
	if (unlikely(bio->bi_opf & REQ_NOWAIT) && !bdev_nowait(d->bdev))
		bio->bi_opf &= ~REQ_NOWAIT;
	return io_issue(bio, may_wait);
}

/*
 * map(): what most reads are.  One extent has all of it, and nothing is to be known of the SSDs but which one it is on.  -EAGAIN:
 * read_map() finds out.
 */
static __always_inline int read_hit_whole(struct volume *v, struct bio *bio, struct larder_io *io)
{
	struct cache *c = v->cache;

	if (unlikely(READ_ONCE(c->nr_failed) || READ_ONCE(c->bad_slots) || READ_ONCE(c->look) || c->state == CACHE_FAILED ||
		     ssd_congested(c, SSD_READ)))
		return -EAGAIN;
	rcu_read_lock();
	io->state = larder_index_find_rcu(v->index, io->sector, io->len, &io->cache);
	if (io->state != LARDER_ST_NONE) {
		io->segment = &c->segments[cache_segment(c, io->cache)];
		atomic_inc(&io->segment->pins);
	}
	rcu_read_unlock();
	return likely(io->state != LARDER_ST_NONE) ? read_hit(v, bio, io, false) : -EAGAIN;
}

/* Sleeps.  Fills the bio with what lies at this sector of an SSD of 4 KiB blocks; buf: one of them. */
static int bounce_from(struct cache_device *d, sector_t where, struct bio *bio, void *buf)
{
	u64 loaded = ~0ull, mask = LARDER_SLOT_SECTORS - 1;
	u32 done = 0, n, at;
	struct bvec_iter iter;
	struct bio_vec bv;
	int err = 0;

	bio_for_each_segment(bv, bio, iter) {
		for (at = 0; !err && at < bv.bv_len; at += n, done += n) {
			u64 sector = where + (done >> SECTOR_SHIFT);

			if ((sector & ~mask) != loaded) {
				loaded = sector & ~mask;
				err = device_read(d, REQ_OP_READ, loaded, buf, LARDER_SLOT_SIZE);
			}
			n = min_t(u32, bv.bv_len - at, SECTOR_SIZE - (done & (SECTOR_SIZE - 1)));
			if (!err) {
				void *to = kmap_local_page(bv.bv_page);

				memcpy(to + bv.bv_offset + at,
				       buf + ((sector & mask) << SECTOR_SHIFT) + (done & (SECTOR_SIZE - 1)), n);
				kunmap_local(to);
			}
		}
	}
	return err;
}

/* Sleeps.  Reads an extent, which need not lie on whole blocks of a 4Kn SSD, into the bio, which is as long as it; any vectors. */
static int bounce_into(struct volume *v, struct bio *bio, const struct larder_map *m)
{
	struct cache *c = v->cache;
	struct cache_device *d;
	u32 tried = 0;
	sector_t where;
	void *buf;
	int err;

	if (reads_verified(v))
		return verify_read(v, bio, m);
	buf = kmalloc(LARDER_SLOT_SIZE, GFP_NOIO);
	if (!buf)
		return -ENOMEM;
	d = cache_sector_device(c, m->cache, &where);
	do {
		err = bounce_from(d, where, bio, buf);
		if (!err)
			break;
		cache_error(c, errors_read);
		d = segment_next_copy(c, m->cache, d, &tried, &where);
	} while (d);
	kfree(buf);
	return err;
}

/* Any context.  Nobody but the SSD has it: the reader gets an error, and who looks after the machine is told. */
void read_lost(struct volume *v, u64 sector, u32 len)
{
	DMERR_LIMIT("volume %pUb: dirty data in sectors %llu to %llu cannot be read from the SSD: it stays, reads of it fail",
		    v->uuid, sector, sector + len - 1);
	if (tell_again(&v->unreadable))
		cache_tell(v->cache);
}

/* Worker.  Its segment is pinned. */
static int read_bounce(struct volume *v, struct bio *bio, struct larder_io *io, const struct larder_map *m)
{
	int err = bounce_into(v, bio, m);

	if (err && err != -ENOMEM && m->state != LARDER_ST_CLEAN)
		read_lost(v, io->sector, m->len);
	segment_unpin(v->cache, cache_segment(v->cache, m->cache));
	if (err && m->state == LARDER_ST_CLEAN) {
		if (err != -ENOMEM)
			read_drop_clean(v, io->sector, m->len);
		return read_backing_mixed(v, bio, io);
	}
	io->kind = IO_NONE;
	volume_count(v, read_hits, 1);
	volume_count(v, read_hit_sectors, m->len);
	trace_larder_hit(v, io->sector, m->len, m->cache);
	io_complete(bio, err);
	return DM_MAPIO_SUBMITTED;
}

/* Of a mapping whose segment is pinned: up to the first slot of dirty data that is known to be damaged.  False: it begins so. */
static bool read_good_part(struct volume *v, struct larder_map *m)
{
	struct cache *c = v->cache;
	u32 good;

	if (larder_state_zero(m->state) || !larder_state_dirty(m->state))
		return true;
	good = slots_good(c, m->cache, m->len);
	m->len = good ?: min_t(u32, m->len, LARDER_SLOT_SECTORS - (m->cache & (LARDER_SLOT_SECTORS - 1)));
	if (!good)
		segment_unpin(c, cache_segment(c, m->cache));
	return good;
}

/* Damaged: an error for this piece, or, where it cannot be cut any more, for all of it. */
static int read_damaged(struct volume *v, struct bio *bio, struct larder_io *io, const struct larder_map *m, bool may_wait)
{
	if (m->len < io->len && !may_wait)
		io_cut(v, bio, io, m->len);
	cache_error(v->cache, errors_read);
	io_complete(bio, -EIO);
	return DM_MAPIO_SUBMITTED;
}

/*
 * The first piece of the range, its segment pinned if there is one; a hole is followed over region borders, so that large misses
 * stay large.  False: it is dirty data that does not match its checksum, and its segment is not pinned.
 */
static bool read_lookup(struct volume *v, u64 sector, u32 len, struct larder_io *io, struct larder_map *m)
{
	struct larder_map next;

	rcu_read_lock();
	larder_index_lookup_rcu(v->index, sector, len, m);
	if (m->state == LARDER_ST_NONE) {
		while (m->len < len) {
			larder_index_lookup_rcu(v->index, sector + m->len, len - m->len, &next);
			if (next.state != LARDER_ST_NONE)
				break;
			m->len += next.len;
		}
	} else if (!larder_state_zero(m->state)) {
		io->segment = &v->cache->segments[cache_segment(v->cache, m->cache)];
		atomic_inc(&io->segment->pins);
	}
	rcu_read_unlock();
	return likely(!READ_ONCE(v->cache->bad_slots)) || read_good_part(v, m);
}

static bool read_may_fill(struct volume *v, const struct larder_io *io)
{
	struct cache *c = v->cache;

	if (!v->set.fill || io->bypass || io->retries || c->state != CACHE_RUNNING)
		return false;
	if (unlikely(v->set.share_max < 100) && share_is_used_up(v)) {
		volume_count(v, fills_over_share, 1);
		return false;
	}
	/* a fill is written to the SSD */
	if (unlikely(ssd_congested(c, SSD_WRITE)) && ssd_avoids(c, SSD_WRITE)) {
		volume_count(v, fills_denied, 1);
		return false;
	}
	if (READ_ONCE(c->memory_pressure)) {
		cache_count(c, waits_memory, 1);
		return false;
	}
	if (!marks_may_fill(v, io->sector, io->len) || !READ_ONCE(c->log.stream[LARDER_STREAM_FILL].opened.usable)) {
		volume_count(v, fills_denied, 1);
		return false;
	}
	return true;
}

/* admit: not before its second miss. */
static bool read_admits(struct volume *v, const struct larder_io *io)
{
	u64 block = io->sector / LARDER_SLOT_SECTORS, last = (io->sector + io->len - 1) / LARDER_SLOT_SECTORS;

	if (likely(v->set.admit == ADMIT_ALWAYS) || io->pin)
		return true;
	if (larder_ghost_missed(v->cache->ghost, v->number, block, last - block + 1))
		return true;
	volume_count(v, fills_first, 1);
	return false;
}

static int read_miss(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	u32 most = v->cache->record_slots * LARDER_SLOT_SECTORS;

	volume_count(v, read_misses, 1);
	if (io->bypass)
		volume_count(v, read_bypass, 1);
	if (!may_wait && read_may_fill(v, io)) {
		if (io->len > most)
			io_cut(v, bio, io, most);
		if (read_admits(v, io) && !fill_miss(v, bio, io))
			return DM_MAPIO_SUBMITTED;
	}
	trace_larder_miss(v, io->sector, io->len);
	return read_backing(v, bio, io, may_wait);
}

/*
 * Are the first len sectors of the bio in vectors of whole blocks of this SSD, as it wants them?  The volume has the limits of its
 * backing, so they may be smaller: then the block layer would have to split the bio within a block where the SSD bears no gap
 * between vectors (NVMe), and dm-crypt takes them only one by one.
 */
static bool vectors_fit(const struct cache_device *d, const struct bio *bio, u32 len)
{
	struct bvec_iter iter, start = bio->bi_iter;
	struct bio_vec bv;

	start.bi_size = len << SECTOR_SHIFT;
	__bio_for_each_bvec(bv, bio, iter, start)
		if ((bv.bv_len & (d->lbs - 1)) || (bv.bv_offset & bdev_dma_alignment(d->bdev)))
			return false;
	return true;
}

/* Has this SSD larger blocks than that [cache, cache + len) could be read from it into the beginning of the bio? */
static bool hit_unaligned(struct cache *c, const struct bio *bio, u64 cache, u32 len)
{
	sector_t where;
	struct cache_device *d;

	if (likely(!(READ_ONCE(c->look) & LOOK_LARGE)))
		return false;
	d = cache_sector_device(c, cache, &where);
	return d->lbs > SECTOR_SIZE && (((where | len) & ((d->lbs >> SECTOR_SHIFT) - 1)) || !vectors_fit(d, bio, len));
}

/* No SSD has it, or the cache may know of writes no more that went past it: leave.c. */
static bool clean_lost(struct cache *c, const struct larder_map *m)
{
	return c->state == CACHE_FAILED || segment_lost(c, cache_segment(c, m->cache));
}

#define BACKING_AILS	(5 * HZ)

/* The backing has failed a request within that time, or left its reads waiting for it: what an SSD has, or takes, is spared it. */
static bool backing_ails(const struct volume *v)
{
	unsigned long failed = READ_ONCE(v->backing_failed);

	if (failed && time_in_range_open(jiffies, failed, failed + BACKING_AILS))
		return true;
	return atomic_read(&v->backing_reads) && time_after(jiffies, READ_ONCE(v->backing_silent) + BACKING_AILS);
}

static bool goes_elsewhere(struct volume *v, enum ssd_direction dir)
{
	return unlikely(ssd_congested(v->cache, dir)) && !backing_ails(v) && ssd_avoids(v->cache, dir);
}

/*
 * A hit of CLEAN data that is read from the backing, which has the same: no SSD has it, its blocks do not fit, or it is congested.
 * Where the backing fails it, the SSD is asked after all.
 */
static bool hit_elsewhere(struct volume *v, const struct bio *bio, struct larder_io *io, const struct larder_map *m)
{
	struct cache *c = v->cache;

	if (unlikely(clean_lost(c, m)))
		return true;
	if (io->retries)
		return false;
	if (unlikely(hit_unaligned(c, bio, m->cache, m->len))) {
		io->spared = !backing_ails(v);
	} else if (goes_elsewhere(v, SSD_READ)) {
		volume_count(v, read_congested, 1);
		io->spared = true;
	}
	return io->spared;
}

/* From memory, what is there; -ENOENT: the request, or what is left of it, is not. */
static int read_from_memory(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	u32 len;
	int r = buffered_read(v, bio, io, !may_wait, &len);

	if (r == -EAGAIN)
		return r;
	if (r >= 0 && len < io->len)
		io_cut(v, bio, io, len);
	if (!r)
		return -ENOENT;
	volume_count(v, read_hits, 1);
	volume_count(v, read_hit_sectors, io->len);
	io_complete(bio, min(r, 0));
	return DM_MAPIO_SUBMITTED;
}

/* segment_unreadable(), of what is dirty: the rest is elsewhere, too. */
static int hit_unreadable(struct cache *c, const struct larder_map *m)
{
	if (likely(!READ_ONCE(c->nr_failed)) || !larder_state_dirty(m->state) || larder_state_zero(m->state))
		return 0;
	return segment_unreadable(c, cache_segment(c, m->cache));
}

static noinline int read_map(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	struct cache *c = v->cache;
	struct larder_map m;
	int r;

	/* before the index: it is there when it is not here any more */
	if (unlikely(READ_ONCE(c->look) & LOOK_BUFFERED)) {
		r = read_from_memory(v, bio, io, may_wait);
		if (r != -ENOENT)
			return r;
	}

	if (unlikely(io->retries == RETRY_ELSEWHERE))
		read_drop_clean(v, io->sector, io->len);
	if (unlikely(io->retries == RETRY_ELSEWHERE || io->retries == RETRY_HERE) && may_wait)
		return read_backing_mixed(v, bio, io);
	if (unlikely(!read_lookup(v, io->sector, io->len, io, &m)))
		return read_damaged(v, bio, io, &m, may_wait);
	r = hit_unreadable(c, &m);
	if (unlikely(r)) {
		/* on no SSD that is left */
		segment_unpin(c, cache_segment(c, m.cache));
		if (r == -EAGAIN)
			return r;
		cache_error(c, errors_read);
		read_lost(v, io->sector, m.len);
		io_complete(bio, -EIO);
		return DM_MAPIO_SUBMITTED;
	}
	if (m.state == LARDER_ST_CLEAN && unlikely(hit_elsewhere(v, bio, io, &m))) {
		segment_unpin(c, cache_segment(c, m.cache));
		m.state = LARDER_ST_NONE;
		io->bypass = true;		/* no fill where it is cached */
	}
	if (unlikely(m.len < io->len)) {
		volume_count(v, read_mixed, 1);
		if (may_wait) {
			/* cannot be cut any more */
			if (m.state != LARDER_ST_NONE && !larder_state_zero(m.state))
				segment_unpin(c, cache_segment(c, m.cache));
			return read_backing_mixed(v, bio, io);
		}
		io_cut(v, bio, io, m.len);
	}
	if (m.state == LARDER_ST_NONE)
		/* one that has been sent before, and perhaps been split, is never sent again */
		return unlikely(io->retries) && may_wait ? read_backing_mixed(v, bio, io) : read_miss(v, bio, io, may_wait);
	if (larder_state_zero(m.state)) {
		volume_count(v, read_zeroes, 1);
		trace_larder_hit(v, io->sector, m.len, m.cache);
		zero_fill_bio(bio);
		bio_endio(bio);
		return DM_MAPIO_SUBMITTED;
	}
	if (unlikely(io->retries == RETRY_BOUNCED || hit_unaligned(c, bio, m.cache, m.len))) {
		if (may_wait)
			return read_bounce(v, bio, io, &m);
		segment_unpin(c, cache_segment(c, m.cache));
		return -EAGAIN;
	}
	io->cache = m.cache;
	io->state = m.state;
	return read_hit(v, bio, io, may_wait);
}

static struct bio *part_of(struct volume *v, struct bio *bio, u32 offset, u32 len)
{
	struct bio *part = bio_alloc_clone(v->bdev, bio, GFP_NOIO, &v->cache->bios);

	bio_trim(part, offset, len);
	/* its place is said anew, from the start of a partition */
	bio_clear_flag(part, BIO_REMAPPED);
	part->bi_opf &= ~(REQ_NOWAIT | REQ_POLLED | REQ_RAHEAD);
	return part;
}

static int read_part_backing(struct volume *v, struct bio *bio, u32 offset, u32 len)
{
	struct bio *part = part_of(v, bio, offset, len);
	int err;

	part->bi_iter.bi_sector = v->data_start + larder_io(bio)->sector + offset;
	backing_read_begins(v);
	err = submit_bio_wait(part);
	backing_read_ended(v);
	bio_put(part);
	if (err && err != -EINVAL)
		volume_error(v, errors_read);
	return err;
}

/* Its segment is pinned: no copy goes meanwhile. */
static int read_part_cached(struct volume *v, struct bio *bio, u32 offset, const struct larder_map *m)
{
	struct cache *c = v->cache;
	struct cache_device *d;
	u32 tried = 0;
	struct bio *part;
	sector_t where;
	int err;

	d = cache_sector_device(c, m->cache, &where);
	if (READ_ONCE(d->failed))
		return -EIO;
	do {
		part = part_of(v, bio, offset, m->len);
		bio_set_dev(part, d->bdev);
		part->bi_iter.bi_sector = where;
		err = submit_bio_wait(part);
		bio_put(part);
		if (!err)
			return 0;
		cache_error(c, errors_read);
		d = segment_next_copy(c, m->cache, d, &tried, &where);
	} while (d);
	return err;
}

/* The same where what is asked for, or its vectors, are less than blocks of an SSD, perhaps of the other copy; or verified. */
static int read_part_bounced(struct volume *v, struct bio *bio, u32 offset, const struct larder_map *m)
{
	struct bio *part = part_of(v, bio, offset, m->len);
	int err = bounce_into(v, part, m);

	bio_put(part);
	return err;
}

/* Waits until that is decided. */
static bool read_part_lost(struct cache *c, u32 segment)
{
	int err;

	wait_event(c->log.wait, (err = segment_unreadable(c, segment)) != -EAGAIN);
	return err;
}

static int read_part_ssd(struct volume *v, struct bio *bio, u32 offset, const struct larder_map *m)
{
	if (read_part_lost(v->cache, cache_segment(v->cache, m->cache)))
		return -EIO;		/* the place of an SSD that is not here has no block device */
	if ((READ_ONCE(v->cache->look) & LOOK_LARGE) || reads_verified(v) || larder_io(bio)->retries == RETRY_BOUNCED)
		return read_part_bounced(v, bio, offset, m);
	return read_part_cached(v, bio, offset, m);
}

/* The backing has the same, and is asked first, where it can be relied on; and each of them where the other fails. */
static int read_part_clean(struct volume *v, struct bio *bio, u32 offset, const struct larder_map *m)
{
	bool backing_first = larder_io(bio)->retries != RETRY_HERE && !backing_ails(v);
	int err = -EIO;

	if (backing_first)
		err = read_part_backing(v, bio, offset, m->len);
	if (err && !clean_lost(v->cache, m))
		err = read_part_ssd(v, bio, offset, m);
	if (err && !backing_first)
		err = read_part_backing(v, bio, offset, m->len);
	return err;
}

static int read_part(struct volume *v, struct bio *bio, u32 offset, const struct larder_map *m)
{
	struct bio *part;
	int err;

	if (m->state == LARDER_ST_NONE)
		return read_part_backing(v, bio, offset, m->len);
	if (larder_state_zero(m->state)) {
		part = part_of(v, bio, offset, m->len);
		zero_fill_bio(part);
		bio_put(part);
		return 0;
	}
	if (m->state == LARDER_ST_CLEAN) {
		err = read_part_clean(v, bio, offset, m);
	} else {
		err = read_part_ssd(v, bio, offset, m);
		if (err)
			read_lost(v, m->sector, m->len);
	}
	segment_unpin(v->cache, cache_segment(v->cache, m->cache));
	return err;
}

/* Worker: a bio that cannot be cut any more and may have to be read in pieces, synchronously: after a failed read of the cache. */
int read_backing_mixed(struct volume *v, struct bio *bio, struct larder_io *io)
{
	u32 done = 0;
	struct larder_map m;
	int err = 0;

	io->kind = IO_NONE;
	for (; done < io->len && !err; done += m.len)
		err = read_lookup(v, io->sector + done, io->len - done, io, &m) ? read_part(v, bio, done, &m) : -EIO;
	io_complete(bio, err);
	return DM_MAPIO_SUBMITTED;
}

/* ------------------------------------------------------------------ writes */

enum write_verdict { WRITE_CACHED, WRITE_THROUGH, WRITE_AROUND, WRITE_BYPASS };

static enum write_verdict write_judge(struct volume *v, struct larder_io *io)
{
	switch (v->set.mode) {
	case LARDER_WRITEAROUND:
		return WRITE_AROUND;
	case LARDER_WRITETHROUGH:
		return io->bypass || READ_ONCE(v->cache->memory_pressure) ? WRITE_BYPASS : WRITE_THROUGH;
	default:
		return io->bypass || READ_ONCE(v->cache->memory_pressure) > 1 ? WRITE_BYPASS : WRITE_CACHED;
	}
}

/*
 * Rule 11: the flag on the backing comes first.  If it cannot be set, the write fails: by an attempt that it has asked for, as an
 * error left over from one that others had asked for may be long mended.
 */
static int write_wants_dirty(struct volume *v, struct bio *bio, struct larder_io *io, int err, bool may_wait)
{
	int error = may_wait ? READ_ONCE(v->dirty_error) : 0;

	if (READ_ONCE(v->may_be_dirty) || READ_ONCE(v->cache->state) == CACHE_FAILED)
		return err;
	if (error) {
		WRITE_ONCE(v->dirty_error, 0);
		if (io->asked) {
			io_complete(bio, error);
			return DM_MAPIO_SUBMITTED;
		}
	}
	io->asked |= may_wait;
	WRITE_ONCE(v->want_dirty, true);
	queue_work(v->cache->meta_wq, &v->mark_work);
	return err;
}

static int write_cached(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	struct cache *c = v->cache;
	u32 most = c->record_slots * LARDER_SLOT_SECTORS, len;
	bool paced = READ_ONCE(c->pace.on);
	int err;

	if (io->len > most && !may_wait)
		io_cut(v, bio, io, most);
	len = io->len;
	io->paced = unlikely(paced) && !space_admits(v, may_wait);
	if (io->paced)
		return -EAGAIN;
	if (race_begin(c, v, io->sector, io->len, RACE_WRITE)) {
		race_end(c, v, io->sector, io->len, RACE_WRITE);
		return -EAGAIN;
	}
	io->kind = IO_WRITE;
	marks_known(v, io->sector, io->len);
	err = log_write(v, bio, io);
	if (err) {
		race_end(c, v, io->sector, io->len, RACE_WRITE);
		io->kind = IO_NONE;
		return write_wants_dirty(v, bio, io, err, may_wait);
	}
	if (unlikely(paced))
		space_taken(c, len);
	return DM_MAPIO_SUBMITTED;
}

/*
 * Before a write, when volume_in_doubt(); it fails if this does.  -EAGAIN: an attempt to end a doubt is made; or without its cache
 * it need not wait, see leave.c.
 */
int write_settle(struct volume *v, struct larder_io *io)
{
	struct cache *c = v->cache;
	int err = volume_catch_up(v);

	if (!err)
		err = flusher_sync(&v->flusher, false);
	if (err)
		return err;
	spin_lock_irq(&c->log.lock);
	err = doubt_ask(c, &io->doubt);
	spin_unlock_irq(&c->log.lock);
	if (!err)
		err = cache_flush_ssds(c);
	return err && leave_may(v) ? -EAGAIN : err;
}

bool fua_fails(struct volume *v, struct bio *bio)
{
	if (likely(!(bio->bi_opf & REQ_FUA)) || !flusher_take_owed(&v->flusher))
		return false;
	io_complete(bio, -EIO);
	return true;
}

/* What of a write is deferred: whole stripes, if it is some and one fits. */
static u32 write_cut(const struct volume *v, const struct larder_io *io, u32 most)
{
	return io->bypass && v->stripe && v->stripe < most ? rounddown(most, v->stripe) : most;
}

static int write_map(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	u32 most = v->cache->record_slots * LARDER_SLOT_SECTORS;
	enum write_verdict verdict;
	int r = -EBUSY;

	if (unlikely(v->cache->state == CACHE_FAILED))
		return leave_map(v, bio, io, may_wait);
	if (unlikely(volume_in_doubt(v))) {
		r = may_wait ? write_settle(v, io) : -EAGAIN;
		if (r && r != -EAGAIN) {
			io_complete(bio, r);
			return DM_MAPIO_SUBMITTED;
		}
		if (r)
			goto out;
		r = -EBUSY;
	}
	if (fua_fails(v, bio))
		return DM_MAPIO_SUBMITTED;
	verdict = write_judge(v, io);
	io->fua = bio->bi_opf & REQ_FUA;
	if (verdict == WRITE_THROUGH && io->len > most && !may_wait)
		io_cut(v, bio, io, most);
	if (verdict != WRITE_CACHED)
		r = bypass_write(v, bio, io, verdict == WRITE_THROUGH, may_wait);
	if (r == -EBUSY)
		r = write_cached(v, bio, io, may_wait);
out:
	if (r == -EAGAIN && !may_wait && io->len > most)
		io_cut(v, bio, io, write_cut(v, io, most));
	return r;
}

/* In writeback the cache remembers them, in the index alone: but not beyond what there is memory for, or room in a checkpoint. */
static bool zeroes_bypass(const struct volume *v)
{
	return v->set.mode != LARDER_WRITEBACK || READ_ONCE(v->cache->memory_pressure) > 1;
}

static int write_zeroes_map(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	struct cache *c = v->cache;
	u64 sector = io->sector;
	int err = -EBUSY;
	u32 len = io->len;

	if (unlikely(c->state == CACHE_FAILED))
		return leave_map(v, bio, io, may_wait);
	if (unlikely(volume_in_doubt(v))) {
		err = may_wait ? write_settle(v, io) : -EAGAIN;
		if (err && err != -EAGAIN) {
			io_complete(bio, err);
			return DM_MAPIO_SUBMITTED;
		}
		if (err)
			return err;
		err = -EBUSY;
	}
	/* no replay would take such a record; the limits of the queue forbid it */
	if (WARN_ON_ONCE(io->len > LARDER_MAX_ZERO_SECTORS)) {
		io_complete(bio, -EOPNOTSUPP);
		return DM_MAPIO_SUBMITTED;
	}
	if (fua_fails(v, bio))
		return DM_MAPIO_SUBMITTED;
	io->fua = bio->bi_opf & REQ_FUA;
	if (zeroes_bypass(v))
		err = bdev_write_zeroes_sectors(v->bdev) ? bypass_write(v, bio, io, false, may_wait) :
							   bypass_zeroes(v, bio, io, may_wait);
	if (err != -EBUSY)
		return err;
	if (race_begin(c, v, io->sector, io->len, RACE_WRITE)) {
		race_end(c, v, io->sector, io->len, RACE_WRITE);
		return -EAGAIN;
	}
	io->kind = IO_WRITE;
	marks_known(v, io->sector, io->len);
	err = log_write_zeroes(v, bio, io);
	if (!err) {
		volume_count(v, write_zeroes, 1);
		trace_larder_zeroes(v, sector, len);
		return DM_MAPIO_SUBMITTED;
	}
	race_end(c, v, io->sector, io->len, RACE_WRITE);
	io->kind = IO_NONE;
	return write_wants_dirty(v, bio, io, err, may_wait);
}

/* ------------------------------------------------------------------ entry and exit */

/*
 * Whole stripes go to an array at once, which need not read for their parity then; what is before them is cut off, as is what is
 * behind them.  Only map() can cut.
 */
static noinline void judge_stripes(struct volume *v, struct bio *bio, struct larder_io *io)
{
	u32 lead, whole = io_stripes(v, io, &lead);

	if (!whole || v->set.mode == LARDER_WRITEAROUND)
		return;
	if (lead) {
		io_cut(v, bio, io, lead);
		return;
	}
	if (io->len > whole)
		io_cut(v, bio, io, whole);
	io->bypass = true;
	volume_count(v, write_stripes, 1);
}

static void judge_write(struct volume *v, struct bio *bio, struct larder_io *io)
{
	if (io->bypass)
		return;
	if (unlikely(v->stripe) && v->set.stripes)
		judge_stripes(v, bio, io);
	if (unlikely(v->set.share_max < 100) && share_is_used_up(v)) {
		io->bypass = true;
		volume_count(v, write_over_share, 1);
	} else if (!io->bypass && goes_elsewhere(v, SSD_WRITE)) {
		io->bypass = true;
		volume_count(v, write_congested, 1);
	}
}

/* map(), once per request, or per piece of one that was cut. */
static void io_judge(struct volume *v, struct bio *bio, struct larder_io *io)
{
	bool write = op_is_write(bio_op(bio)), sequential = false;
	u32 len = io->len;
	u64 run;

	if (v->set.sequential_cutoff) {
		run = larder_seq_account(v->seq, io->sector, io->len, write, current->pid, jiffies);
		if (READ_ONCE(v->set.sequential_cutoff) == LARDER_CUTOFF_AUTO)
			sequential = stream_bypasses(v, io, run, write);
		else
			sequential = run > (u64)v->set.sequential_cutoff << 10;
	}
	if (unlikely(rcu_access_pointer(v->classes)))
		io_classify(v, bio, io, sequential);
	else
		io->bypass = sequential;
	if (write)
		judge_write(v, bio, io);
	/* what was cut is waited for with its last piece; what will be, as it is more than a record, is too long to be counted */
	if ((bio->bi_opf & REQ_FUA) && io->len == len && v->set.sequential_cutoff)
		larder_seq_flushed(v->seq, len);
}

bool volume_is_full(const struct volume *v)
{
	int error = READ_ONCE(v->writeback_error);

	/* damaged data is no fault of its disk, and seldom much */
	return v->cache && error && error != -EBADMSG && READ_ONCE(v->cache->state) == CACHE_RUNNING &&
	       log_full_for(v->cache, READ_ONCE(v->set.failure_wait) * HZ);
}

/* Worker.  Whoever looks after the machine is told. */
static void volume_refuses(struct volume *v)
{
	DMERR_LIMIT("volume %pUb on %pg: the cache is full, and dirty data cannot be written back: writes fail", v->uuid, v->bdev);
	if (tell_again(&v->refused))
		cache_tell(v->cache);
}

int io_map(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	int r;

	if ((bio->bi_opf & REQ_PREFLUSH) && !bio_sectors(bio)) {
		if (v->cache)
			larder_seq_flushed(v->seq, 0);
		user_flush(v, bio, io, may_wait);
		return DM_MAPIO_SUBMITTED;
	}
	if (!v->cache) {
		r = passthrough_map(v, bio, io, may_wait);
	} else {
		switch (bio_op(bio)) {
		case REQ_OP_READ:
			r = read_map(v, bio, io, may_wait);
			break;
		case REQ_OP_WRITE:
			r = write_map(v, bio, io, may_wait);
			break;
		case REQ_OP_DISCARD:
			r = bypass_discard(v, bio, io, may_wait);
			break;
		case REQ_OP_WRITE_ZEROES:
			r = write_zeroes_map(v, bio, io, may_wait);
			break;
		default:
			io_complete(bio, -EOPNOTSUPP);
			return DM_MAPIO_SUBMITTED;
		}
	}
	if (r == -EAGAIN && !may_wait) {
		bio_associate_blkg(bio);	/* dm's clone has none, and the worker's bio_set_dev() would take its own */
		defer_bio(v, bio);
		return DM_MAPIO_SUBMITTED;
	}
	if (r == -EAGAIN && op_is_write(bio_op(bio)) && unlikely(volume_is_full(v))) {
		volume_refuses(v);
		r = READ_ONCE(v->writeback_error) ?: -EIO;
	}
	/* the cache failed on the way: dm knows no errors of map(), and the worker none but -EAGAIN */
	if (unlikely(r < 0 && r != -EAGAIN)) {
		if (op_is_write(bio_op(bio)) && leave_may(v)) {
			if (may_wait)
				return -EAGAIN;
			defer_bio(v, bio);
			return DM_MAPIO_SUBMITTED;
		}
		io_complete(bio, r);
		return DM_MAPIO_SUBMITTED;
	}
	return r;
}

int io_begin(struct volume *v, struct bio *bio)
{
	struct larder_io *io = larder_io(bio);
	int r;

	BUILD_BUG_ON(offsetof(struct larder_io, volume) != offsetofend(struct larder_io, mover));
	/* of more than this the compiler makes a string instruction, which costs more than its stores */
	memset(io, 0, offsetof(struct larder_io, raced_since));
	io->raced_since = 0;
	io->began = 0;
	io->mover = NULL;
	io->volume = v;
	io->error = 0;
	io->sector = dm_target_offset(v->ti, bio->bi_iter.bi_sector);
	io->len = bio_sectors(bio);
	if (io->len) {				/* a flush has none */
		WRITE_ONCE(v->last_user_io, jiffies);
		if (v->cache && (bio_op(bio) == REQ_OP_READ || bio_op(bio) == REQ_OP_WRITE)) {
			io_judge(v, bio, io);
			r = bio_op(bio) == REQ_OP_READ ? read_hit_whole(v, bio, io) : -EAGAIN;
			if (likely(r != -EAGAIN))
				return r;
		}
	}
	return io_map(v, bio, io, false);
}

static void io_read_anew(struct volume *v, struct bio *bio, struct larder_io *io, u8 how)
{
	io->retries = how;
	io->kind = IO_NONE;
	bio->bi_iter = io->iter;
	bio->bi_status = BLK_STS_OK;
	defer_bio(v, bio);
}

void io_read_again(struct volume *v, struct bio *bio, struct larder_io *io)
{
	io_read_anew(v, bio, io, RETRY_ELSEWHERE);
}

/*
 * No fault of the device: it does not take a bio with such vectors.  From Linux 6.18 on they are looked at nowhere above the queue
 * of that, those of a user's direct I/O neither.
 */
static bool is_misaligned(blk_status_t status)
{
	return blk_status_to_errno(status) == -EINVAL;
}

static int end_hit(struct volume *v, struct bio *bio, struct larder_io *io, blk_status_t *error)
{
	struct cache *c = v->cache;
	bool failed = unlikely(*error) && *error != BLK_STS_AGAIN && !is_misaligned(*error), other;

	/* before the pin goes, and with it perhaps the other copies */
	other = failed && segment_try_mirror(c, io->segment - c->segments, io->device, true);
	if (unlikely(io->probe))
		ssd_probe_end(c, SSD_READ);
	if (unlikely(reads_verified(v)) && !*error) {
		verify_hit(v, io);
		return DM_ENDIO_INCOMPLETE;
	}
	atomic_dec(&io->segment->pins);
	if (likely(!failed)) {
		if (likely(!*error) || !is_misaligned(*error) || io->retries)
			return DM_ENDIO_DONE;
		io_read_anew(v, bio, io, RETRY_BOUNCED);
		return DM_ENDIO_INCOMPLETE;
	}
	cache_error(c, errors_read);
	if (io->retries == RETRY_ELSEWHERE || (!other && io->state != LARDER_ST_CLEAN)) {
		if (io->state != LARDER_ST_CLEAN)
			read_lost(v, io->sector, io->len);
		return DM_ENDIO_DONE;
	}
	/* of clean data the backing has the same; of dirty data another copy */
	io_read_again(v, bio, io);
	return DM_ENDIO_INCOMPLETE;
}

/*
 * Has the backing done what it was asked for, or failed it?  Not where it would have had to wait (REQ_NOWAIT), takes no such
 * vectors, or has no such command, of which a disk (sd) may have known nothing before.
 */
static bool backing_fails(struct volume *v, const struct bio *bio, blk_status_t *error)
{
	if (bio_op(bio) == REQ_OP_WRITE_ZEROES && *error == BLK_STS_TARGET && !bdev_write_zeroes_sectors(v->bdev))
		*error = BLK_STS_NOTSUPP;
	return *error && *error != BLK_STS_AGAIN && *error != BLK_STS_NOTSUPP && !is_misaligned(*error);
}

static int io_end_kind(struct volume *v, struct bio *bio, struct larder_io *io, blk_status_t *error)
{
	u8 kind = io->kind;

	io->kind = IO_NONE;
	switch (kind) {
	case IO_HIT:
		return end_hit(v, bio, io, error);
	case IO_MISS:
		backing_read_ended(v);
		if (likely(!*error) || *error == BLK_STS_AGAIN || is_misaligned(*error))
			break;
		volume_error(v, errors_read);
		if (io->spared && !io->retries) {
			io_read_anew(v, bio, io, RETRY_HERE);
			return DM_ENDIO_INCOMPLETE;
		}
		break;
	case IO_BYPASS:
	case IO_DISCARD:
		/* first: who finds no mark, and nothing on its way, finds the error */
		if (backing_fails(v, bio, error)) {
			volume_error(v, errors_write);
			flusher_write_failed(&v->flusher, *error);
		}
		bypass_end(v, io, !*error);
		if (!*error && io->fua) {
			user_flush_after(v, io);
			return DM_ENDIO_INCOMPLETE;
		}
		break;
	case IO_PASS:
		if (unlikely(*error) && backing_fails(v, bio, error)) {
			if (op_is_write(bio_op(bio)))
				volume_error(v, errors_write);
			else
				volume_error(v, errors_read);
		}
		if (op_is_write(bio_op(bio)))
			flusher_acked(&v->flusher);
		break;
	default:
		break;
	}
	return DM_ENDIO_DONE;
}

static noinline int io_end_any(struct volume *v, struct bio *bio, struct larder_io *io, blk_status_t *error)
{
	int r = io_end_kind(v, bio, io, error);

	/* else the bio, and what we have in it, is another one's by now, or gone */
	if (r == DM_ENDIO_DONE && unlikely(io->began) && !*error)
		stream_ended(v, io, op_is_write(bio_op(bio)));
	if (trace_larder_done_enabled() && r == DM_ENDIO_DONE)
		trace_larder_done(v, bio, io, blk_status_to_errno(*error));
	return r;
}

/* dm's end_io: interrupt context.  Most are hits of which nothing more is wanted. */
int io_end(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	struct larder_io *io = larder_io(bio);
	struct volume *v = io->volume;

	if (io->kind != IO_HIT || unlikely(*error || io->probe || io->began || reads_verified(v) || trace_larder_done_enabled()))
		return io_end_any(v, bio, io, error);
	io->kind = IO_NONE;
	atomic_dec(&io->segment->pins);
	return DM_ENDIO_DONE;
}
