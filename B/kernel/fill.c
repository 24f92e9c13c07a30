// SPDX-License-Identifier: GPL-2.0-only
/*
 * Misses that fill the cache, and writes that go through it.
 *
 * A miss is read into pages of our own; a worker copies them to the caller and completes it, another one hands the pages to the
 * fill stream: after its completion the caller's pages are not ours.  A written-through write is copied first and written to the
 * backing from the copy (a caller may change its pages under I/O: cache and backing must not differ); when the backing has it the
 * caller is answered, then the copy follows to the fill stream.
 */
#include "larder.h"
#include "trace.h"

#define FILL_PAGES_MAX	16384	/* pages held by fills of one cache: 64 MiB; of one volume half of them at most */

struct fill {
	struct list_head list;
	struct copy copy;		/* its pages array stands behind the fill's bio vectors */
	struct volume *volume;
	struct bio *user;		/* of a miss, until it is answered */
	u8 pin;
	u32 ahead;		/* sectors behind what the user asked for */
	int error;
	struct bio bio;
	struct page *pages[LARDER_RECORD_SLOTS];
	struct bio_vec vecs[LARDER_RECORD_SLOTS];
};

/*
 * One volume may hold as many pages as are left (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998): half of them if it is
 * alone, and one whose disk hangs leaves some to the others.
 */
static bool fill_take(struct volume *v, u32 pages)
{
	struct cache *c = v->cache;
	int all = atomic_add_return(pages, &c->fills_in_flight), of_volume = atomic_add_return(pages, &v->fill_pages);

	return all + of_volume <= FILL_PAGES_MAX;
}

static void fill_give_back(struct volume *v, u32 pages)
{
	atomic_sub(pages, &v->fill_pages);
	atomic_sub(pages, &v->cache->fills_in_flight);
}

static void fill_free(struct fill *f)
{
	struct cache *c = f->volume->cache;
	u32 i;

	if (f->copy.link[0].copy)
		copy_end_race(c, &f->copy);
	for (i = 0; i < f->copy.nr_slots; i++)
		__free_page(f->pages[i]);
	fill_give_back(f->volume, f->copy.nr_slots);
	if (atomic_dec_and_test(&f->volume->fills))
		wake_up(&c->log.wait);
	bio_uninit(&f->bio);
	kfree(f);
}

/* The copy has entered the index, or been given up.  Interrupt context. */
static void fill_done(struct copy *copy, int error)
{
	struct fill *f = container_of(copy, struct fill, copy);

	if (error)
		volume_count(f->volume, fills_dropped, 1);
	else
		volume_count(f->volume, fill_sectors, copy->len);
	if (!error && f->pin)
		pin_set(f->volume, copy->sector, copy->cache, copy->len, f->pin);
	fill_free(f);
}

static struct fill *fill_alloc(struct volume *v, struct bio *bio, struct larder_io *io, u32 len)
{
	struct cache *c = v->cache;
	u32 i, n = DIV_ROUND_UP(len, LARDER_SLOT_SECTORS), last;
	gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN;
	struct fill *f;

	/* in doubt there are none: one that fails would begin another */
	if (!fill_take(v, n) || unlikely(READ_ONCE(c->doubt.on)))
		goto none;
	f = kzalloc(sizeof(*f), gfp);
	if (!f)
		goto none;
	for (i = 0; i < n; i++) {
		f->pages[i] = alloc_page(gfp);
		if (!f->pages[i])
			goto pages;
	}
	bio_init(&f->bio, v->bdev, f->vecs, n, 0);
	bio_charge_as(&f->bio, bio);
	for (i = 0; i < n; i++)
		__bio_add_page(&f->bio, f->pages[i],
			       min_t(u32, len - i * LARDER_SLOT_SECTORS, LARDER_SLOT_SECTORS) << SECTOR_SHIFT, 0);
	last = (len & (LARDER_SLOT_SECTORS - 1)) << SECTOR_SHIFT;
	if (last)
		memset(page_address(f->pages[n - 1]) + last, 0, LARDER_SLOT_SIZE - last);
	f->bio.bi_iter.bi_sector = v->data_start + io->sector;
	atomic_inc(&v->fills);
	f->volume = v;
	f->copy.volume = v;
	f->copy.sector = io->sector;
	f->copy.len = len;
	f->pin = io->pin;
	f->copy.from = COPY_FROM_BACKING;
	f->copy.nr_slots = n;
	f->copy.pages = f->pages;
	f->copy.done = fill_done;
	return f;
pages:
	while (i--)
		__free_page(f->pages[i]);
	kfree(f);
none:
	fill_give_back(v, n);
	return NULL;
}

/* To the workers, from interrupt context: where somebody waits for it he is answered first. */
static void fill_hand_over(struct fill *f)
{
	struct cache *c = f->volume->cache;
	unsigned long flags;
	bool asked = f->user;

	spin_lock_irqsave(&c->copy_lock, flags);
	list_add_tail(&f->list, asked ? &c->fills_read : &c->fills_done);
	spin_unlock_irqrestore(&c->copy_lock, flags);
	queue_work(c->io_wq, asked ? &c->answer_work : &c->copy_work);
}

static void fill_miss_end(struct bio *bio)
{
	struct fill *f = container_of(bio, struct fill, bio);

	backing_read_ended(f->volume);
	f->error = blk_status_to_errno(bio->bi_status);
	fill_hand_over(f);
}

/*
 * How many sectors behind a miss are read with it: nothing of them is cached, they may be filled, and nobody waits for the backing.
 * They end on a whole slot.
 */
static u32 fill_ahead(struct volume *v, const struct larder_io *io)
{
	u32 most = v->cache->record_slots * LARDER_SLOT_SECTORS, ahead = READ_ONCE(v->set.readahead) * 2;
	u64 from = io->sector + io->len, end;
	struct larder_map m;

	if (!ahead || io->len >= most || atomic_read(&v->backing_reads) || mutex_is_locked(&v->writeback_lock))
		return 0;
	end = min3(from + ahead, io->sector + most, v->sectors);
	if (end > from && larder_index_next(v->index, from, end, ~0u, &m))
		end = m.sector;
	end &= ~(u64)(LARDER_SLOT_SECTORS - 1);
	return end > from && marks_may_fill(v, from, end - from) ? end - from : 0;
}

static int fill_miss_try(struct volume *v, struct bio *bio, struct larder_io *io, u32 ahead)
{
	struct larder_map m;
	struct fill *f = fill_alloc(v, bio, io, io->len + ahead);
	u32 len = io->len + ahead;

	if (!f)
		return -EAGAIN;
	/* known before the buckets are read: a bypass that comes later sees it, one that came before is seen here */
	marks_known(v, io->sector, len);
	/* pairs with the barrier in marks_get(): either a bypass sees the known bit, or we see it in the race bucket */
	smp_mb();
	/*
	 * the range is looked up again behind the link: from there on every write voids the copy, one that ended before is in the
	 * index
	 */
	if (!copy_begin_race(v->cache, &f->copy, 0) || !marks_may_fill(v, io->sector, len) ||
	    larder_index_next(v->index, io->sector, io->sector + len, ~0u, &m)) {
		fill_free(f);
		return -EAGAIN;
	}
	f->ahead = ahead;
	if (ahead) {
		volume_count(v, readaheads, 1);
		volume_count(v, readahead_sectors, ahead);
	}
	io->kind = IO_FILL;
	io->backing = true;
	f->user = bio;
	f->bio.bi_opf = REQ_OP_READ | (bio->bi_opf & (REQ_SYNC | REQ_META | REQ_PRIO));
	f->bio.bi_end_io = fill_miss_end;
	backing_read_begins(v);
	WRITE_ONCE(v->last_io, jiffies);
	volume_count(v, read_miss_sectors, io->len);
	trace_larder_fill(v, io->sector, io->len);
	submit_bio(&f->bio);
	return 0;
}

int fill_miss(struct volume *v, struct bio *bio, struct larder_io *io)
{
	u32 ahead = fill_ahead(v, io);

	if (!fill_miss_try(v, bio, io, ahead) || (ahead && !fill_miss_try(v, bio, io, 0)))
		return 0;
	volume_count(v, fills_denied, 1);
	return -EAGAIN;
}

static void fill_through_end(struct bio *bio)
{
	struct fill *f = container_of(bio, struct fill, bio);
	struct larder_io *io = larder_io(f->user);
	struct volume *v = f->volume;
	struct bio *user = f->user;
	int error = blk_status_to_errno(bio->bi_status);

	/* first: who finds no mark, and nothing on its way, finds the error */
	if (error) {
		volume_error(v, errors_write);
		flusher_write_failed(&v->flusher, errno_to_blk_status(error));
	}
	bypass_end(v, io, !error);
	io->kind = IO_NONE;
	f->user = NULL;
	f->error = error;
	fill_hand_over(f);		/* f may be gone now */
	if (!error && io->fua)
		user_flush_after(v, io);
	else
		io_complete(user, error);
}

/* The range is bypass_begin()'s. */
int fill_through(struct volume *v, struct bio *bio, struct larder_io *io)
{
	struct bio_vec bv;
	struct bvec_iter iter;
	u32 off = 0, n;
	struct fill *f;

	if (!v->set.fill || v->cache->state != CACHE_RUNNING)
		return -EAGAIN;
	/* from here on a bypass needs a mark, and looks into the index */
	marks_known(v, io->sector, io->len);
	/* pairs with the barrier in marks_get(): either another bypass sees the known bit, or we see it in the race bucket */
	smp_mb();
	f = fill_alloc(v, bio, io, io->len);
	if (!f || !copy_begin_race(v->cache, &f->copy, 1)) {
		if (f)
			fill_free(f);
		volume_count(v, fills_denied, 1);
		return -EAGAIN;
	}
	bio_for_each_segment(bv, bio, iter) {
		void *from = bvec_kmap_local(&bv);
		u32 done;

		for (done = 0; done < bv.bv_len; done += n, off += n) {
			n = min_t(u32, bv.bv_len - done, LARDER_SLOT_SIZE - (off & (LARDER_SLOT_SIZE - 1)));
			memcpy(page_address(f->pages[off / LARDER_SLOT_SIZE]) + (off & (LARDER_SLOT_SIZE - 1)), from + done, n);
		}
		kunmap_local(from);
	}
	io->kind = IO_THROUGH;
	f->user = bio;
	f->bio.bi_opf = REQ_OP_WRITE | (bio->bi_opf & (REQ_SYNC | REQ_META | REQ_PRIO | REQ_IDLE));
	f->bio.bi_end_io = fill_through_end;
	trace_larder_through(v, io->sector, io->len);
	submit_bio(&f->bio);
	return 0;
}

/* A miss has been read: the caller gets it. */
static void fill_answer(struct fill *f)
{
	struct bio *bio = f->user;
	struct bvec_iter iter;
	struct bio_vec bv;
	u32 off = 0, n;

	if (f->error && f->ahead) {
		/* perhaps in what nobody asked for */
		larder_io(bio)->kind = IO_NONE;
		larder_io(bio)->bypass = true;
		defer_bio(f->volume, bio);
		return;
	}
	if (!f->error) {
		bio_for_each_segment(bv, bio, iter) {
			void *to = bvec_kmap_local(&bv);
			u32 done;

			for (done = 0; done < bv.bv_len; done += n, off += n) {
				n = min_t(u32, bv.bv_len - done, LARDER_SLOT_SIZE - (off & (LARDER_SLOT_SIZE - 1)));
				memcpy(to + done,
				       page_address(f->pages[off / LARDER_SLOT_SIZE]) + (off & (LARDER_SLOT_SIZE - 1)), n);
			}
			flush_dcache_page(bv.bv_page);
			kunmap_local(to);
		}
	} else {
		volume_error(f->volume, errors_read);
	}
	larder_io(bio)->kind = IO_NONE;
	io_complete(bio, f->error);
}

/* A returning ghost goes straight to the keep stream, and what is pinned. */
static u8 fill_stream(struct cache *c, struct fill *f)
{
	u64 block = f->copy.sector / LARDER_SLOT_SECTORS, last = (f->copy.sector + f->copy.len - 1) / LARDER_SLOT_SECTORS;
	bool ghost = f->pin;

	for (; block <= last; block++)
		ghost |= larder_ghost_take(c->ghost, f->volume->number, block);
	return ghost && READ_ONCE(c->log.stream[LARDER_STREAM_KEEP].opened.usable) ? LARDER_STREAM_KEEP : LARDER_STREAM_FILL;
}

/* Of its own: it waits for nothing, while an SSD may take its time over what fill_work() sends. */
void fill_answer_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, answer_work);
	LIST_HEAD(todo);
	struct fill *f;

	spin_lock_irq(&c->copy_lock);
	list_splice_init(&c->fills_read, &todo);
	spin_unlock_irq(&c->copy_lock);
	list_for_each_entry(f, &todo, list) {
		fill_answer(f);
		f->user = NULL;
	}
	spin_lock_irq(&c->copy_lock);
	list_splice_tail(&todo, &c->fills_done);
	spin_unlock_irq(&c->copy_lock);
	queue_work(c->io_wq, &c->copy_work);
}

void fill_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, copy_work);
	LIST_HEAD(todo);
	struct fill *f, *next;

	spin_lock_irq(&c->copy_lock);
	list_splice_init(&c->fills_done, &todo);
	spin_unlock_irq(&c->copy_lock);
	list_for_each_entry_safe(f, next, &todo, list) {
		struct volume *v = f->volume;

		list_del(&f->list);
		/* a copy holds what the backing holds: but not before the mark could be cleared under it */
		if (f->error || READ_ONCE(c->doubt.on) || copies_add(c, fill_stream(c, f), &f->copy)) {
			volume_count(v, fills_dropped, 1);
			fill_free(f);
		} else {
			volume_count(v, fills, 1);	/* f may be gone */
		}
	}
}

void fills_flush(struct cache *c)
{
	flush_work(&c->answer_work);
	flush_work(&c->copy_work);
}

/* Sleeps: until no fill of the volume is in flight; no new one can begin. */
void fills_wait(struct volume *v)
{
	struct cache *c = v->cache;

	while (atomic_read(&v->fills)) {
		fills_flush(c);
		copies_close(c, LARDER_STREAM_FILL);
		copies_close(c, LARDER_STREAM_KEEP);
		wait_event_timeout(c->log.wait, !atomic_read(&v->fills), HZ / 10);
	}
	flush_work(&c->copy_work);	/* one that has handed over the last one, and counts it still */
}
