// SPDX-License-Identifier: GPL-2.0-only
/*
 * Clean copies on their way into the cache: the streams `fill` (misses, written-through data) and `keep` (what reclaim carries
 * over).
 *
 * A record of these streams gathers copies in their own pages and leaves as one append, data and commit block together, when it is
 * full or has waited for COPY_DELAY.  On completion its copies enter the index.
 *
 * Rule 7: a copy is dropped if a write or discard of its range was issued, or in flight, at any time between its start and its
 * entry into the index.  A copy is linked into the race buckets of its range; every write and discard voids the copies it overlaps
 * there before anything else.  A copy looks whether it is void
 *   - when its commit block is built: under log->lock, which orders it before any record closed later: the INVALIDATE or WRITE of a
 *     write issued after the look has a higher sequence number (fill-commit-yields), and
 *   - when it enters the index: under the bucket's lock, so that a write issued afterwards finds the mapping and removes or
 *     replaces it.
 */
#include "larder.h"
#include "trace.h"

#define COPY_DELAY	(HZ / 10)

static u64 copy_region(const struct copy *copy, u32 i)
{
	return (i ? copy->sector + copy->len - 1 : copy->sector) >> LARDER_REGION_SHIFT;
}

/*
 * A copy is at most 127 slots long: it touches one or two regions of 2 MiB.  No fill beside dirty data that resync has copied, but
 * that is not in the index yet: its record may come behind that of the fill, which finds nothing there once the data has become
 * clean, and was dropped.
 */
bool copy_begin_race(struct cache *c, struct copy *copy, u32 own_bypasses)
{
	unsigned long flags;
	bool busy = false;
	u32 i;

	copy->raced = false;
	for (i = 0; i < 2; i++) {
		struct race_bucket *b = race_bucket(c, copy->volume, copy_region(copy, i));

		copy->link[i].copy = copy;
		spin_lock_irqsave(&b->lock, flags);
		list_add(&copy->link[i].list, &b->copies);
		busy |= b->writes || b->bypasses > own_bypasses || (copy->from == COPY_FROM_BACKING && b->resyncs);
		spin_unlock_irqrestore(&b->lock, flags);
	}
	return !busy;
}

void copy_end_race(struct cache *c, struct copy *copy)
{
	unsigned long flags;
	u32 i;

	for (i = 0; i < 2; i++) {
		struct race_bucket *b = race_bucket(c, copy->volume, copy_region(copy, i));

		spin_lock_irqsave(&b->lock, flags);
		list_del(&copy->link[i].list);
		spin_unlock_irqrestore(&b->lock, flags);
	}
}

/* Interrupt context: the data and its commit block are on the SSD. */
static bool copy_enter(struct cache *c, const struct copy *copy)
{
	u64 sector = copy->sector, end = copy->sector + copy->len, cache = copy->cache, from = copy->from;
	bool entered = false;
	unsigned long flags;
	u32 n;

	for (; sector < end; sector += n, cache += n, from += n) {
		struct race_bucket *b = race_bucket(c, copy->volume, sector >> LARDER_REGION_SHIFT);
		int err = -EAGAIN;

		n = min_t(u64, end, (sector | (LARDER_REGION_SECTORS - 1)) + 1) - sector;
		spin_lock_irqsave(&b->lock, flags);
		if (!copy->raced) {
			if (copy->from == COPY_FROM_BACKING)
				err = volume_map_store(copy->volume, sector, n, cache, LARDER_ST_CLEAN, NULL);
			else
				err = volume_map_change(copy->volume, sector, n, from, 1u << LARDER_ST_CLEAN, cache,
							LARDER_ST_CLEAN);
		}
		spin_unlock_irqrestore(&b->lock, flags);
		entered |= copy->from == COPY_FROM_BACKING ? !err : err > 0;
	}
	return entered;
}

/*
 * All copies have ended.  One will do: what replay finds of them is whole, or not cached.  None: they are dropped, and the stream
 * goes on in another segment.  What of them is on the SSD all the same is older than any write or INVALIDATE that comes, for their
 * regions are known (rule 6).  The chain has a hole: a replay ends there, and what this stream appends up to the next checkpoint
 * is not cached after a power cut.
 */
static void copies_done(struct record *r)
{
	struct cache *c = r->cache;
	struct log *log = &c->log;
	int error = atomic_read(&r->writes_failed) < r->writes ? 0 : -EIO;
	struct copy *copy, *next;
	struct record *first;
	unsigned long flags;

	if (error && READ_ONCE(c->state) != CACHE_FAILED)
		DMERR_LIMIT("%pg: clean copies could not be written to segment %u: they are dropped, others go to another one",
			    segment_device(c, r->segment)->bdev, r->segment);
	list_for_each_entry_safe(copy, next, &r->copies, list) {
		bool entered = !error && !copy->omitted && copy_enter(c, copy);

		list_del(&copy->list);
		trace_larder_copy(copy, r->stream, error ?: entered ? 0 : -ESTALE);
		copy->done(copy, error ?: entered ? 0 : -ESTALE);
	}
	spin_lock_irqsave(&log->lock, flags);
	if (error && log->stream[r->stream].segment == r->segment)
		log->stream[r->stream].leave = true;
	c->segments[r->segment].sequence = max(c->segments[r->segment].sequence, r->sequence);
	list_del(&r->list);
	first = list_first_entry_or_null(&log->copies, struct record, list);
	smp_store_release(&log->copies_sequence, first ? first->sequence : log->next_sequence);	/* pairs with flush_op_issue() */
	segment_unpin(c, r->segment);
	log_record_put(c, r);
	wake_up(&log->wait);	/* under the lock: whoever waits for the last record may free the cache */
	spin_unlock_irqrestore(&log->lock, flags);
}

static void copies_ended(struct record *r)
{
	if (atomic_dec_and_test(&r->writes_left))
		copies_done(r);
}

static void copies_end_on(struct bio *bio, u32 i)
{
	struct record *r = bio->bi_private;
	bool counts = !(r->joining & BIT(i));
	struct cache *c = r->cache;
	struct cache_device *d = segment_device(c, r->copy[i]);

	flusher_wrote(&d->flusher);
	if (bio->bi_status) {
		cache_error(c, errors_write);
		/* one that stays is read from: then none counts */
		atomic_add(set_copy_failed(c, d, bio->bi_status) ? counts : SEGMENT_COPIES, &r->writes_failed);
	}
	bio_put(bio);
	copies_ended(r);
}

static void copies_end_first(struct bio *bio) { copies_end_on(bio, 0); }
static void copies_end_second(struct bio *bio) { copies_end_on(bio, 1); }
static void copies_end_third(struct bio *bio) { copies_end_on(bio, 2); }

/* To one copy of its segment. */
static void copies_submit_to(struct cache *c, struct record *r, u32 segment, bio_end_io_t *end)
{
	struct cache_device *d;
	struct bio *bio;
	sector_t where;
	u32 i;

	d = copy_sector_device(c, slot_sector(c, segment, r->first), &where);
	bio = bio_alloc_bioset(d->bdev, r->end - r->first + 1, REQ_OP_WRITE, GFP_NOIO, &c->bios);
	bio->bi_iter.bi_sector = where;
	bio->bi_end_io = end;
	bio->bi_private = r;
	for (i = 0; i <= r->end - r->first; i++)
		__bio_add_page(bio, r->vec[i].bv_page, LARDER_SLOT_SIZE, 0);
	atomic_inc(&r->writes_left);
	submit_bio(bio);
}

/* To each copy of its segment: those on SSDs that have failed are left out, one on an SSD that joins does not count. */
static void copies_submit(struct cache *c, struct record *r)
{
	static bio_end_io_t *const end[SEGMENT_COPIES] = { copies_end_first, copies_end_second, copies_end_third };
	u32 n = segment_ring(c, r->segment, r->copy), i;
	bool failed[SEGMENT_COPIES], sent[SEGMENT_COPIES];

	r->joining = 0;
	r->writes = 0;
	for (i = 0; i < n; i++) {
		const struct cache_device *d = segment_device(c, r->copy[i]);

		sent[i] = device_written_as(d, &failed[i]);
		r->writes += !failed[i];
		r->joining |= failed[i] ? BIT(i) : 0;
	}
	atomic_set(&r->writes_failed, 0);
	atomic_set(&r->writes_left, 1);
	for (i = 0; i < n; i++)
		if (sent[i] && r->writes)
			copies_submit_to(c, r, r->copy[i], end[i]);
	copies_ended(r);
}

/* copies_lock held.  Closes the open record of the stream and sends it. */
static void copies_send(struct cache *c, u8 stream)
{
	struct stream *s = &c->log.stream[stream];
	struct record *r = c->open_copies[stream];
	struct larder_commit_place p;
	struct larder_entry_in e = { .kind = LARDER_FILL };
	struct copy *copy;
	u32 crc;

	c->open_copies[stream] = NULL;
	spin_lock_irq(&c->log.lock);
	list_for_each_entry(copy, &r->copies, list)
		copy->omitted = READ_ONCE(copy->raced);
	log_assign(c, s, r);
	c->log.position += r->end - r->first;
	list_add_tail(&r->list, &c->log.copies);
	p = (struct larder_commit_place){
		.hash = c->hash, .sequence = r->sequence, .prev_sequence = r->prev_sequence,
		.durable_sequence = c->log.durable_sequence, .prev_crc = s->built_crc, .epoch = c->epoch,
		.segment = r->segment, .slot = r->end, .first = r->first, .end = r->end, .stream = stream,
	};
	spin_unlock_irq(&c->log.lock);

	list_for_each_entry(copy, &r->copies, list) {
		if (copy->omitted)
			continue;
		e.sector = copy->sector;
		e.length = copy->len;
		e.cache = copy->cache;
		e.volume = copy->volume->number;
		larder_commit_add(r->commit, &e);
	}
	crc = larder_commit_finish(r->commit, &p, r->sums);
	spin_lock_irq(&c->log.lock);
	log_pinned_crc(s, r, crc);
	spin_unlock_irq(&c->log.lock);
	log_summary_add(c, s, r);

	if (stream == LARDER_STREAM_FILL)
		cache_count(c, fill_records, 1);
	else
		cache_count(c, keep_records, 1);
	trace_larder_append(c, r, r->first, r->end, true);
	copies_submit(c, r);
}

/* These streams never take what the write stream may need.  A snapshot unless log->lock is held. */
static bool pool_is_short(const struct log *log)
{
	return READ_ONCE(log->nr_records) <= 64 || READ_ONCE(log->nr_free_pages) <= 64;
}

bool copies_starve(const struct cache *c)
{
	return pool_is_short(&c->log);
}

/* copies_lock held */
static struct record *copies_open(struct cache *c, u8 stream, u32 nr_slots)
{
	struct log *log = &c->log;
	struct stream *s = &log->stream[stream];
	struct record *r = NULL;

	spin_lock_irq(&log->lock);
	if (pool_is_short(log))
		goto out;
	if (s->segment == LARDER_NO_SEGMENT || s->head + nr_slots + 1 > c->data_slots || segment_lost(c, s->segment) ||
	    segment_draining(c, s->segment) || s->leave)
		if (log_next_segment(c, s, false))
			goto out;
	s->leave = false;
	r = log_record_get(c, stream);
	r->segment = s->segment;
	r->first = r->end = s->head;
	segment_pin(c, r->segment);
	c->open_copies[stream] = r;
out:
	spin_unlock_irq(&log->lock);
	return r;
}

int copies_add(struct cache *c, u8 stream, struct copy *copy)
{
	struct record *r;
	int err = 0;
	u32 i, n;

	if (c->state == CACHE_FAILED || READ_ONCE(copy->raced))
		return -ESTALE;
	mutex_lock(&c->copies_lock);
	r = c->open_copies[stream];
	if (r && (r->end - r->first + copy->nr_slots > c->record_slots || r->end + copy->nr_slots + 1 > c->data_slots ||
		  r->end - r->first + 1 > c->record_slots - 1)) {
		copies_send(c, stream);
		r = NULL;
	}
	if (!r)
		r = copies_open(c, stream, copy->nr_slots);
	if (!r) {
		err = -EAGAIN;
		goto out;
	}
	n = r->end - r->first;
	copy->cache = slot_sector(c, r->segment, r->end);
	copy->omitted = false;
	for (i = 0; i < copy->nr_slots; i++) {
		r->vec[n + i].bv_page = copy->pages[i];
		r->sums[n + i] = larder_crc(page_address(copy->pages[i]), LARDER_SLOT_SIZE);
	}
	r->end += copy->nr_slots;
	list_add_tail(&copy->list, &r->copies);
	queue_delayed_work(c->meta_wq, &c->copy_timer, COPY_DELAY);
out:
	mutex_unlock(&c->copies_lock);
	return err;
}

void copies_close(struct cache *c, u8 stream)
{
	mutex_lock(&c->copies_lock);
	if (c->open_copies[stream])
		copies_send(c, stream);
	mutex_unlock(&c->copies_lock);
}

static void stream_leave(struct cache *c, u8 number, bool (*is)(struct cache *c, u32 segment, const void *arg), const void *arg)
{
	struct stream *s = &c->log.stream[number];
	bool uses;
	u32 i;

	spin_lock_irq(&c->log.lock);
	uses = stream_uses(c, s, is, arg);
	spin_unlock_irq(&c->log.lock);
	if (!uses)
		return;
	copies_close(c, number);
	mutex_lock(&c->copies_lock);
	spin_lock_irq(&c->log.lock);
	if (!c->open_copies[number])
		/* also those behind one that is elsewhere: nothing may ever be copied, and so come to them */
		for (i = 0; i < s->opened.size && s->opened.usable && stream_uses(c, s, is, arg); i++)
			log_next_segment(c, s, false);
	spin_unlock_irq(&c->log.lock);
	mutex_unlock(&c->copies_lock);
}

void copies_leave(struct cache *c, bool (*is)(struct cache *c, u32 segment, const void *arg), const void *arg)
{
	stream_leave(c, LARDER_STREAM_FILL, is, arg);
	stream_leave(c, LARDER_STREAM_KEEP, is, arg);
}

/* The cache has failed: what is gathered is given up. */
void copies_abort(struct cache *c)
{
	struct copy *copy, *next;
	struct record *r;
	u32 i;

	mutex_lock(&c->copies_lock);
	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		r = c->open_copies[i];
		if (!r)
			continue;
		c->open_copies[i] = NULL;
		list_for_each_entry_safe(copy, next, &r->copies, list) {
			list_del(&copy->list);
			copy->done(copy, -EIO);
		}
		spin_lock_irq(&c->log.lock);
		segment_unpin(c, r->segment);
		log_record_put(c, r);
		spin_unlock_irq(&c->log.lock);
	}
	mutex_unlock(&c->copies_lock);
}

void copies_timer(struct work_struct *work)
{
	struct cache *c = container_of(to_delayed_work(work), struct cache, copy_timer);

	/* keep too: returning ghosts are filled straight into it */
	copies_close(c, LARDER_STREAM_FILL);
	copies_close(c, LARDER_STREAM_KEEP);
}

static bool copies_done_before(struct cache *c, u64 sequence)
{
	struct record *r;
	bool done;

	spin_lock_irq(&c->log.lock);
	r = list_first_entry_or_null(&c->log.copies, struct record, list);	/* sorted by sequence */
	done = !r || r->sequence >= sequence;
	spin_unlock_irq(&c->log.lock);
	return done;
}

void copies_wait(struct cache *c, long timeout)
{
	u64 sequence;

	copies_close(c, LARDER_STREAM_FILL);
	copies_close(c, LARDER_STREAM_KEEP);
	spin_lock_irq(&c->log.lock);
	sequence = c->log.next_sequence;
	spin_unlock_irq(&c->log.lock);
	wait_event_timeout(c->log.wait, copies_done_before(c, sequence), timeout);
}
