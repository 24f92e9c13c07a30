// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writeback: dirty data goes to the backing, in the order of the volume's sectors, neighbours merged.
 *
 * A batch (rule 4), and what a power cut leaves at each step:
 *   1. pieces are picked from the index.  Window by window each takes its race buckets (writeback-owns-range), pins its segment
 *      (pin-writebacks) and becomes CLEANING if it is still mapped to the same place; one that is not, is left alone.
 *   2. log_sync(): the records of all that was taken are durable (writeback-durable-only).  Nothing has changed on the backing.
 *   3. the data is read from the SSD, compared with its checksums (sums.c), and written to the backing, but for pieces that do not
 *      match, or cannot be read, in any copy: these stay DIRTY.  The backing may hold old or new; replay shows the piece DIRTY:
 *      what it reads is the log's.
 *   4. a flush of the backing, issued after the writes completed, and since the first of these no write and no flush of it has
 *      failed, whoever's it was (clean-without-error).  As before.
 *   5. CLEAN names the place in the cache; the piece becomes CLEAN in the index when that record is applied, so a bypass finds it
 *      DIRTY until then (rule 5).  A cut before CLEAN is durable: replay shows it DIRTY, and it is written back again.
 */
#include <linux/sort.h>
#include "larder.h"
#include "trace.h"

#define BATCH_PIECES	LARDER_BATCH_MOST
#define WINDOW_PAGES	2048u	/* 8 MiB in memory at once */
#define GROUP_SECTORS	(WRITEBACK_GROUP_PAGES * LARDER_SLOT_SECTORS)
#define WINDOW_SECTORS	(WINDOW_PAGES * LARDER_SLOT_SECTORS)
#define DIRTY_MASK	(1u << LARDER_ST_DIRTY | 1u << LARDER_ST_ZERO)
#define CLEANING_MASK	(1u << LARDER_ST_CLEANING | 1u << LARDER_ST_ZERO_CLEANING)
#define IDLE_BEFORE	(3 * HZ)
#define UNREADABLE_IN_A_ROW	64u
#define DAMAGED_FOR	(600 * HZ)	/* behind the last damage seen pieces are small */

/* Some neighbouring pieces, one write. */
struct group {
	struct piece *first;
	u32 nr_pieces, sectors, nr_pages;
	u32 writes, written;		/* to the backing; sectors in them */
	struct page **pages;
	struct flusher *flusher;	/* of the backing */
	bool sent;			/* to it */
	bool unread;			/* some of it was not read: one copy does not give it, or none is left */
	bool by_slot;			/* its SSD takes no other reads into these pages */
	atomic_t *pending;
	struct completion *done;
	int error;
	u64 sector;
};

static void window_put(atomic_t *pending, struct completion *done)
{
	if (atomic_dec_and_test(pending))
		complete(done);
}

static void group_io_end(struct bio *bio)
{
	struct group *g = bio->bi_private;

	if (bio->bi_status) {
		WRITE_ONCE(g->error, blk_status_to_errno(bio->bi_status));
		flusher_own_write_failed(g->flusher, bio->bi_status);
	}
	bio_put(bio);	/* first: behind the last window_put() the cache, of whose bios it is, may go */
	window_put(g->pending, g->done);
}

static void group_read_end(struct bio *bio)
{
	struct group *g = bio->bi_private;

	if (bio->bi_status)
		WRITE_ONCE(g->unread, true);
	bio_put(bio);
	window_put(g->pending, g->done);
}

/* ------------------------------------------------------------------ damage */

static bool volume_damaged(const struct volume *v)
{
	unsigned long damaged = READ_ONCE(v->damaged);

	return damaged && time_before(jiffies, damaged + DAMAGED_FOR);
}

/* The error to be told of: any other goes before that of damage. */
static int graver(int error, int other)
{
	return error && error != -EBADMSG ? error : other ?: error;
}

/* ------------------------------------------------------------------ whole stripes */

/*
 * An array that is written a whole stripe need not read for its parity.  A stripe has a cut at its end, and one that no group can
 * hold has others, so that each part of it is as large as a group may be.  No piece lies across a cut.  A group that has all from
 * one cut to another has nothing else: group_end().  The parts of a stripe go in one window, and one batch, if they fit.
 */
static u32 stripe_into(const struct volume *v, u64 sector)
{
	u32 into;

	div_u64_rem(sector + v->stripe_phase, v->stripe, &into);
	return into;
}

static u32 cut_into(const struct volume *v, u64 sector)
{
	return stripe_into(v, sector) % GROUP_SECTORS;
}

/* Sectors up to the next cut. */
static u32 cut_left(const struct volume *v, u64 sector)
{
	u32 into = stripe_into(v, sector);

	return min(v->stripe - into, GROUP_SECTORS - into % GROUP_SECTORS);
}

/* Does what begins at this sector belong to the same batch as what is before it? */
static bool stripe_goes_on(const struct volume *v, u64 sector)
{
	return v->stripe && v->stripe <= WINDOW_SECTORS && stripe_into(v, sector);
}

/* Does a stripe begin here that the rest of this window has no place for, and all of the next one has? */
static bool stripe_waits(const struct volume *v, u64 sector, u32 nr, u32 pages, u32 depth)
{
	u32 groups, most = v->stripe / LARDER_SLOT_SECTORS;

	if (v->stripe <= GROUP_SECTORS || !nr || stripe_into(v, sector))
		return false;
	groups = DIV_ROUND_UP(v->stripe, GROUP_SECTORS);
	return groups <= depth && most <= WINDOW_PAGES && (nr + groups > depth || pages + most > WINDOW_PAGES);
}

/*
 * A piece is written as a whole or not at all: where there is damage they end with a slot, so that nothing else stays with it.
 * Zeroes are one piece, however many.
 */
u32 writeback_piece_len(const struct volume *v, u64 sector, u64 cache, u32 len)
{
	u32 most = volume_damaged(v) ? LARDER_SLOT_SECTORS - (cache & (LARDER_SLOT_SECTORS - 1)) : PIECE_SECTORS;

	return min3(len, most, v->stripe ? cut_left(v, sector) : most);
}

/* ------------------------------------------------------------------ taking and giving back */

static u8 cleaning_of(u8 state) { return larder_state_zero(state) ? LARDER_ST_ZERO_CLEANING : LARDER_ST_CLEANING; }
static u8 dirty_of(u8 state) { return larder_state_zero(state) ? LARDER_ST_ZERO : LARDER_ST_DIRTY; }

/* Step 2.  Whole or not at all. */
static void piece_take(struct volume *v, struct piece *p)
{
	struct larder_map m = { .sector = p->sector, .cache = p->cache, .len = p->len };
	struct cache *c = v->cache;

	if (race_begin(c, v, p->sector, p->len, RACE_WRITEBACK)) {
		race_end(c, v, p->sector, p->len, RACE_WRITEBACK);
		return;
	}
	if (!larder_state_zero(p->state))
		segment_pin(c, cache_segment(c, p->cache));
	/* what a batch has left CLEANING that was given up half way is taken as it is */
	volume_map_change(v, p->sector, p->len, p->cache, 1u << dirty_of(p->state), p->cache, cleaning_of(p->state));
	if (volume_maps(v, &m, 1u << cleaning_of(p->state))) {
		p->held = true;
		return;
	}
	/* superseded in part, or no memory: as it was */
	volume_count(v, writeback_superseded, 1);
	volume_map_change(v, p->sector, p->len, p->cache, 1u << cleaning_of(p->state), p->cache, dirty_of(p->state));
	if (!larder_state_zero(p->state))
		segment_unpin(c, cache_segment(c, p->cache));
	race_end(c, v, p->sector, p->len, RACE_WRITEBACK);
}

/* It stays dirty. */
static void piece_give_up(struct volume *v, struct piece *p)
{
	struct cache *c = v->cache;

	volume_map_change(v, p->sector, p->len, p->cache, 1u << cleaning_of(p->state), p->cache, dirty_of(p->state));
	if (!larder_state_zero(p->state))
		segment_unpin(c, cache_segment(c, p->cache));
	p->held = false;
}

/* ------------------------------------------------------------------ a window: read, write */

/* wait: holds page_pool_lock, and nothing of the pool. */
static bool group_alloc(struct cache *c, struct group *g, bool wait)
{
	u32 i;

	g->pages = kcalloc(g->nr_pages, sizeof(*g->pages), GFP_NOIO);
	if (!g->pages)
		return false;
	for (i = 0; i < g->nr_pages; i++) {
		g->pages[i] = mempool_alloc(&c->page_pool, wait ? GFP_NOIO : GFP_NOWAIT | __GFP_NOWARN);
		if (!g->pages[i])
			return false;
	}
	return true;
}

static void group_free(struct cache *c, struct group *g)
{
	u32 i;

	for (i = 0; g->pages && i < g->nr_pages && g->pages[i]; i++)
		mempool_free(g->pages[i], &c->page_pool);
	kfree(g->pages);
	g->pages = NULL;
}

static struct cached_data piece_data(const struct group *g, const struct piece *p)
{
	return (struct cached_data){ .pages = g->pages, .offset = p->sector - g->sector, .len = p->len, .cache = p->cache };
}

/* It is not written: it stays dirty until somebody writes or discards it, or the SSD returns what was written after all. */
static void piece_damaged(struct volume *v, struct piece *p, u64 cache, bool unreadable)
{
	struct cache *c = v->cache;
	struct segment *seg = &c->segments[cache_segment(c, cache)];
	u64 sector = p->sector + (max(cache, p->cache) - p->cache);
	sector_t where;
	struct cache_device *d = cache_sector_device(c, cache, &where);

	p->damaged = true;
	if (unreadable)
		cache_error(c, errors_read);
	else
		volume_count(v, errors_checksum, 1);
	DMERR_LIMIT("%s: volume %pUb: %s dirty data at sector %llu (segment %u, %pg sector %llu): write it anew or discard it",
		    dm_device_name(dm_table_get_md(v->ti->table)), v->uuid, unreadable ? "unreadable" : "damaged", sector,
		    cache_segment(c, cache), d->bdev, (u64)where);
	if (!volume_damaged(v))
		dm_table_event(v->ti->table);
	WRITE_ONCE(v->damaged, jiffies ?: 1);
	WRITE_ONCE(seg->damaged, v->damaged);
}

/* err: of comparing the piece with its checksums, or of reading it slot by slot. */
static void piece_judge(struct volume *v, struct group *g, struct piece *p, const struct cached_data *x, int err)
{
	if (err == -EBADMSG || err == -EIO)
		piece_damaged(v, p, x->damaged, err == -EIO);
	else if (err)
		WRITE_ONCE(g->error, err);
}

static void group_read(struct volume *v, struct group *g)
{
	u32 i;

	for (i = 0; i < g->nr_pieces; i++) {
		struct piece *p = &g->first[i];
		struct cached_data x = piece_data(g, p);
		int err = segment_unreadable(v->cache, cache_segment(v->cache, p->cache));
		struct bio *bio;

		if (err == -EAGAIN)
			WRITE_ONCE(g->error, err);
		else if (err)
			g->unread = true;
		if (err)
			continue;
		if (unlikely(!data_reads_whole(v->cache, &x))) {
			g->by_slot = true;
			continue;
		}
		bio = data_read_bio(v->cache, &x);
		if (IS_ERR(bio))
			g->unread = true;
		if (IS_ERR_OR_NULL(bio))
			continue;
		bio->bi_private = g;
		bio->bi_end_io = group_read_end;
		atomic_inc(g->pending);
		submit_bio(bio);
	}
}

static void group_read_edges(struct volume *v, struct group *g)
{
	u32 i;

	for (i = 0; i < g->nr_pieces; i++) {
		struct cached_data x = piece_data(g, &g->first[i]);
		int err = data_read_edges(v->cache, &x);

		if (err == -EIO)
			WRITE_ONCE(g->unread, true);
		else
			piece_judge(v, g, &g->first[i], &x, err);
	}
}

/* All of it has been read. */
static void group_check(struct volume *v, struct group *g)
{
	u32 i;

	for (i = 0; i < g->nr_pieces && !g->error; i++) {
		struct cached_data x = piece_data(g, &g->first[i]);

		if (!g->first[i].damaged)
			piece_judge(v, g, &g->first[i], &x, data_check(v->cache, &x));
	}
}

/*
 * One of its reads has failed, or was not possible: all of it is read slot by slot, from whichever copy gives it.  What no copy
 * gives is left out.  Many in a row are no bad places, but an SSD that reads nothing: those behind wait for the next batch.
 */
static void group_read_slots(struct volume *v, struct group *g)
{
	u32 i;

	if (READ_ONCE(g->unread))
		cache_error(v->cache, errors_read);
	for (i = 0; i < g->nr_pieces && !g->error; i++) {
		struct cached_data x = piece_data(g, &g->first[i]);
		int err;

		if (g->first[i].damaged)
			continue;
		err = data_read_slots(v->cache, &x);
		/* of an SSD that fails just now, and may be taken back: later */
		if (err == -EIO && segment_unreadable(v->cache, cache_segment(v->cache, x.cache)) == -EAGAIN) {
			g->error = -EAGAIN;
			break;
		}
		piece_judge(v, g, &g->first[i], &x, err);
		v->unreadable_row = err == -EIO ? v->unreadable_row + 1 : 0;
		if (v->unreadable_row >= UNREADABLE_IN_A_ROW)
			g->error = -EIO;
	}
}

/* In each group what was read is what was written, or is left out. */
static void window_check(struct volume *v, struct group *groups, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		struct group *g = &groups[i];

		if (!g->nr_pages || g->error)
			continue;
		if (!READ_ONCE(g->unread) && !g->by_slot)
			group_check(v, g);
		else if (v->unreadable_row < UNREADABLE_IN_A_ROW)
			group_read_slots(v, g);
		else
			g->error = -EIO;
	}
}

/* One write, but for pieces that are damaged. */
static void group_write(struct volume *v, struct group *g)
{
	u32 i, k, n, offset;
	struct bio *bio;

	for (i = 0; i < g->nr_pieces; i = max(k, i + 1)) {
		for (k = i, n = 0; k < g->nr_pieces && !g->first[k].damaged; k++)
			n += g->first[k].len;
		if (!n)
			continue;
		offset = g->first[i].sector - g->sector;
		bio = bio_alloc_bioset(v->bdev, DIV_ROUND_UP((offset & (LARDER_SLOT_SECTORS - 1)) + n, LARDER_SLOT_SECTORS),
				       REQ_OP_WRITE | REQ_BACKGROUND, GFP_NOIO, &v->cache->bios);
		bio->bi_iter.bi_sector = v->data_start + g->first[i].sector;
		bio->bi_private = g;
		bio->bi_end_io = group_io_end;
		data_bio_add(bio, g->pages, offset, n);
		atomic_inc(g->pending);
		submit_bio(bio);
		g->writes++;
		g->written += n;
	}
}

/* Neighbours from *at on that are held; *at moves behind them.  false: none left. */
static bool piece_held(struct volume *v, struct piece *p)
{
	if (!p->tried) {
		p->tried = true;
		piece_take(v, p);
	}
	return p->held && !p->written;
}

/*
 * first, last: sectors up to the first and the last cut in it, 0: none; first is 0 if it begins at one.  What it is to have:
 * whole stripes alone, or what is before them; where it is full, all up to a cut, for what is behind that goes with the rest of its
 * stripe; or all.
 */
static u32 group_end(const struct group *g, u32 first, u32 last, bool full)
{
	if (last > first)
		return first ?: last;
	return full && last ? last : g->sectors;
}

static void group_shorten(struct group *g, u32 sectors)
{
	while (g->sectors > sectors)
		g->sectors -= g->first[--g->nr_pieces].len;
	g->nr_pages = DIV_ROUND_UP(g->sectors, LARDER_SLOT_SECTORS);
}

static bool group_form(struct volume *v, struct piece *pieces, u32 n, u32 *at, struct group *g, u32 most_pages)
{
	u32 i = *at, pages, first = 0, last = 0;
	bool begins, full = false;

	while (i < n && !piece_held(v, &pieces[i]))
		i++;
	*at = i;
	if (i == n)
		return false;
	memset(g, 0, sizeof(*g));
	g->first = &pieces[i];
	g->sector = pieces[i].sector;
	begins = v->stripe && !cut_into(v, g->sector);
	while (i < n && pieces[i].sector == g->sector + g->sectors && piece_held(v, &pieces[i])) {
		if (g->nr_pieces && larder_state_zero(pieces[i].state) != larder_state_zero(g->first->state))
			break;
		pages = DIV_ROUND_UP(g->sectors + pieces[i].len, LARDER_SLOT_SECTORS);
		full = g->nr_pieces && !larder_state_zero(pieces[i].state) && pages > most_pages;
		if (full)
			break;
		g->nr_pieces++;
		g->sectors += pieces[i].len;
		g->nr_pages = larder_state_zero(g->first->state) ? 0 : pages;
		i++;
		if (!g->nr_pages)
			break;
		if (v->stripe && !cut_into(v, g->sector + g->sectors)) {
			last = g->sectors;
			first = first || begins ? first : last;
		}
	}
	if (last)
		group_shorten(g, group_end(g, first, last, full));
	*at = g->first - pieces + g->nr_pieces;
	return true;
}

/* Its error, or -EBADMSG: not all of it was written. */
static int group_finish(struct volume *v, struct group *g)
{
	int error = g->error;
	u32 i;

	if (g->error && g->sent)
		volume_error(v, errors_write);
	for (i = 0; i < g->nr_pieces; i++) {
		struct piece *p = &g->first[i];

		/* what is on the backing now is there whether or not CLEAN follows: others may have the range */
		race_end(v->cache, v, p->sector, p->len, RACE_WRITEBACK);
		p->written = !g->error && !p->damaged;
		if (!p->written)
			piece_give_up(v, p);
		if (p->damaged && !error)
			error = -EBADMSG;
	}
	if (!g->error) {
		volume_count(v, writeback_writes, g->writes);
		volume_count(v, writeback_sectors, g->written);
	}
	group_free(v->cache, g);
	return error;
}

/* Up to 'depth' groups from *at on: all reads, then all writes. */
static int writeback_window(struct volume *v, struct piece *pieces, u32 n, u32 *at, struct group *groups, u32 depth)
{
	struct completion done;
	atomic_t pending;
	struct blk_plug plug;
	u32 nr = 0, pages = 0, before = *at, i;
	bool alone = false;
	int error = 0;

	while (nr < depth && pages < WINDOW_PAGES && *at < n && !stripe_waits(v, pieces[*at].sector, nr, pages, depth) &&
	       group_form(v, pieces, n, at, &groups[nr], WRITEBACK_GROUP_PAGES)) {
		struct group *g = &groups[nr];

		g->pending = &pending;
		g->done = &done;
		g->flusher = &v->flusher;
		if (g->nr_pages && !group_alloc(v->cache, g, false)) {
			group_free(v->cache, g);
			if (nr) {
				*at = before;	/* later */
				break;
			}
			/*
			 * Memory is short: this one alone, from the pool, of which nobody else takes meanwhile.  Whoever comes
			 * then waits for its pages, or for memory: not for the backing that these are written to.
			 */
			alone = true;
			mutex_lock(&v->cache->page_pool_lock);
			if (!group_alloc(v->cache, g, true))
				g->error = -ENOMEM;
			mutex_unlock(&v->cache->page_pool_lock);
		}
		pages += g->nr_pages;
		before = *at;
		nr++;
		if (alone)
			break;
	}
	/* what was taken is pinned and mapped as it is: now make its records durable (writeback-durable-only) */
	error = nr && !leave_drains(v) && log_sync(v->cache) ? -EAGAIN : 0;	/* the fault of an SSD, not of the backing */
	for (i = 0; i < nr; i++)
		groups[i].error = groups[i].error ?: error;
	atomic_set(&pending, 1);
	init_completion(&done);
	blk_start_plug(&plug);
	for (i = 0; i < nr; i++)
		if (groups[i].nr_pages && !groups[i].error)
			group_read(v, &groups[i]);
	blk_finish_plug(&plug);
	for (i = 0; i < nr; i++)
		if (groups[i].nr_pages && !groups[i].error)
			group_read_edges(v, &groups[i]);
	window_put(&pending, &done);
	wait_for_completion_io(&done);
	cond_resched();		/* with a disk that completes at once it may never have waited */
	window_check(v, groups, nr);

	atomic_set(&pending, 1);
	reinit_completion(&done);
	blk_start_plug(&plug);
	for (i = 0; i < nr; i++) {
		struct group *g = &groups[i];

		if (g->error)
			continue;
		g->sent = true;
		if (g->nr_pages) {
			group_write(v, g);
			continue;
		}
		g->error = zeroes_write(v, v->data_start + g->sector, g->sectors);
		if (g->error)
			flusher_own_write_failed(g->flusher, errno_to_blk_status(g->error));
		g->writes = 1;
		g->written = g->sectors;
	}
	blk_finish_plug(&plug);
	window_put(&pending, &done);
	wait_for_completion_io(&done);
	for (i = 0; i < nr; i++)
		error = graver(error, group_finish(v, &groups[i]));
	return error;
}

/* ------------------------------------------------------------------ a batch */

/*
 * Appends a CLEAN.  Not for ever: while the log has no room, what this batch pins cannot be reclaimed, so it gives the rest up (it
 * stays dirty, and is written back again).
 */
static int clean_entry(struct volume *v, const struct larder_entry_in *e, u64 *lsn, unsigned long give_up)
{
	int err;

	while ((err = log_entry_dirty(v, e, lsn)) == -EAGAIN) {
		if (READ_ONCE(v->cache->state) == CACHE_FAILED)
			return -EIO;
		if (time_after(jiffies, give_up))
			break;
		schedule_timeout_uninterruptible(1);
	}
	return err;
}

static unsigned int backing_errors(const struct volume *v)
{
	return atomic_read(&v->flusher.errors);
}

/*
 * Step 4.  A backing that was reset for a moment has lost what was volatile, and so may one whose flush has failed; whoever had a
 * command there then is told, and the next flush succeeds.  errors: as of before the first of the writes.
 */
static int writeback_secure(struct volume *v, unsigned int errors)
{
	if (!READ_ONCE(v->active))
		return -ESHUTDOWN;
	if (backing_errors(v) != errors)
		return -EIO;
	flusher_wrote_own(&v->flusher);
	return backing_secure(v, errors);
}

/* Steps 4 and 5; errors: writeback_secure(). */
static int writeback_commit(struct volume *v, struct piece *pieces, u32 n, unsigned int errors)
{
	struct larder_entry_in e = { .volume = v->number, .kind = LARDER_CLEAN };
	struct cache *c = v->cache;
	unsigned long give_up;
	u64 lsn = v->clean_lsn;
	bool drains;
	u32 i;
	int err;

	/* a backing that took nothing is not asked to flush: the failure of that would stop the writes that the cache can take */
	for (i = 0; i < n && !pieces[i].held; i++)
		;
	if (i == n)
		return 0;
	err = writeback_secure(v, errors);
	/* then the log takes nothing any more, and no replay counts what is CLEAN (void-before-drain; leave.c) */
	drains = leave_drains(v);
	give_up = jiffies + HZ;
	for (i = 0; i < n; i++) {
		struct piece *p = &pieces[i];

		if (!p->held)
			continue;
		if (!err) {
			e.sector = p->sector;
			e.length = p->len;
			e.cache = p->cache;
			if (drains)
				writeback_cleaned(v, &e);
			else
				err = clean_entry(v, &e, &lsn, give_up);
		}
		if (err) {
			piece_give_up(v, p);
			continue;
		}
		if (!larder_state_zero(p->state))
			segment_unpin(c, cache_segment(c, p->cache));
		p->held = false;
	}
	if (lsn != v->clean_lsn)
		log_close_open(c, CLOSE_ASKED);
	v->clean_lsn = lsn;
	return err;
}

int writeback_pieces(struct volume *v, struct piece *pieces, u32 n)
{
	u32 depth = clamp(READ_ONCE(v->set.writeback_depth), 1u, 128u), at = 0, i;
	unsigned int errors = backing_errors(v);
	bool singly = v->writeback_singly;
	u64 began = ktime_get_ns();
	struct group *groups;
	u32 failures = 0, written = 0, from;
	int error = 0, err;

	/* first: who has picked while the volume was bound, and comes late, must not tell an error of one without a table */
	if (!READ_ONCE(v->active))
		return -ESHUTDOWN;
	if (READ_ONCE(v->cache->state) == CACHE_FAILED && !leave_drains(v))
		return -EIO;
	groups = kvcalloc(depth, sizeof(*groups), GFP_NOIO);
	if (!groups)
		return -ENOMEM;
	v->unreadable_row = 0;
	v->writeback_singly = false;
	trace_larder_writeback_begin(v, n, 0);
	for (i = 0; i < n; i++)
		pieces[i].tried = pieces[i].held = pieces[i].written = pieces[i].damaged = false;
	while (at < n) {
		if (!READ_ONCE(v->active))
			break;
		from = at;
		/* gives way to reads of the backing, unless space is short */
		err = writeback_window(v, pieces, n, &at, groups, singly ? 1 :
				       atomic_read(&v->backing_reads) && !v->writeback_urgent ? min(depth, 4u) : depth);
		error = graver(error, err);
		/* singly: as many may fail as there are in a window, and the others are not lost for it */
		if (err && err != -ENOMEM && err != -EBADMSG && ++failures >= (singly ? depth : 1))
			break;
		if (unlikely(leave_drains(v)))
			leave_late(v);
		if (!singly)
			continue;
		err = writeback_commit(v, pieces + from, at - from, errors);
		error = graver(error, err);
		if (err)
			break;
		errors = backing_errors(v);
	}
	for (i = at; i < n; i++)
		if (pieces[i].held && !pieces[i].written) {
			race_end(v->cache, v, pieces[i].sector, pieces[i].len, RACE_WRITEBACK);
			piece_give_up(v, &pieces[i]);
		}
	defer_kick(v->cache);
	kvfree(groups);
	err = writeback_commit(v, pieces, n, errors);
	error = graver(error, err);
	v->writeback_singly = !singly && err == -EIO;
	/* the flush is what it waits for longest, where the disk has a cache: only all of it says how fast that is */
	for (i = 0; i < n; i++)
		written += pieces[i].written;
	if (!error)
		larder_batch_took(&v->batch, written, ktime_get_ns() - began, v->writeback_beside);
	trace_larder_writeback(v, n, error);
	return error;
}

void writeback_cleaned(struct volume *v, const struct larder_entry_in *e)
{
	if (volume_map_change(v, e->sector, e->length, e->cache, 1u << LARDER_ST_ZERO_CLEANING, e->cache, LARDER_ST_NONE) > 0)
		return;
	volume_map_change(v, e->sector, e->length, e->cache, 1u << LARDER_ST_CLEANING, e->cache, LARDER_ST_CLEAN);
}

/* ------------------------------------------------------------------ the background */

/* As many of them as end with a stripe, if any do: the batch is full, what it has of the next comes with the rest of that. */
static u32 pick_whole(const struct volume *v, const struct piece *pieces, u32 n)
{
	u32 i = n;

	while (i && stripe_goes_on(v, pieces[i - 1].sector + pieces[i - 1].len))
		i--;
	return i ?: n;
}

/*
 * The next dirty pieces in volume order, at most 'sectors' of them and 'most' pieces (at least one piece), and what follows in
 * their last stripe.
 */
static u32 writeback_pick(struct volume *v, struct piece *pieces, u64 sectors, u32 most)
{
	struct larder_map m;
	u32 n = 0, mask = DIRTY_MASK;
	u64 from = v->writeback_pos, got = 0;
	bool wrapped = false;

	/* CLEANING with no CLEAN on its way: a batch was given up half way, or the log */
	if (READ_ONCE(v->cache->log.applied_lsn) >= v->clean_lsn || leave_drains(v))
		mask |= CLEANING_MASK;
	while (n < BATCH_PIECES && ((n < most && got < sectors) || stripe_goes_on(v, from))) {
		if (!larder_index_next(v->index, from, v->sectors, mask, &m)) {
			if (wrapped || n)
				break;
			wrapped = true;
			from = 0;
			continue;
		}
		if ((n >= most || got >= sectors) && m.sector != from)
			break;
		pieces[n].sector = m.sector;
		pieces[n].cache = m.cache;
		pieces[n].len = larder_state_zero(m.state) ? m.len : writeback_piece_len(v, m.sector, m.cache, m.len);
		pieces[n].state = m.state;
		got += pieces[n].len;
		from = m.sector + pieces[n].len;
		n++;
	}
	if (n == BATCH_PIECES) {
		n = pick_whole(v, pieces, n);
		from = pieces[n - 1].sector + pieces[n - 1].len;
	}
	v->writeback_pos = from;
	return n;
}

/* What was not tried comes next: not what is in its way again.  What was written in vain comes once more. */
static void writeback_go_on(struct volume *v, const struct piece *pieces, u32 n)
{
	u32 i;

	if (v->writeback_singly) {
		v->writeback_pos = pieces[0].sector;
		return;
	}
	for (i = 0; i < n && pieces[i].tried; i++)
		;
	if (i && i < n)
		v->writeback_pos = pieces[i].sector;
}

static u64 writeback_target(const struct volume *v)
{
	return div_u64(segments_room(v->cache, USE_LOG) * LARDER_SLOT_SECTORS * READ_ONCE(v->set.writeback_percent), 100);
}

/* All that is dirty is wanted on the backing, at full speed: somebody waits for the last of it. */
static bool writeback_drains(const struct volume *v)
{
	return READ_ONCE(v->flushing) || leave_drains(v);
}

/*
 * Quiet: a disk that may have been spun down takes nothing until more than the target is dirty, and then all there is.  What others
 * have dirty wakes it only when half of the rest of the cache is.
 */
bool writeback_waits(const struct volume *v)
{
	u64 target = writeback_target(v), most = (target + segments_room(v->cache, USE_LOG) * LARDER_SLOT_SECTORS) / 2;

	if (writeback_drains(v))
		return false;
	if (!READ_ONCE(v->set.writeback))
		return true;
	return READ_ONCE(v->set.quiet) && !READ_ONCE(v->emptying) && !READ_ONCE(v->writeback_urgent) &&
	       atomic64_read(&v->dirty_sectors) <= target && atomic64_read(&v->cache->dirty_sectors) <= most;
}

/* Somebody waits for what is written back, or the disk is to be left alone behind it. */
static bool writeback_hurries(const struct volume *v)
{
	return writeback_drains(v) || v->emptying || space_is_wanted(v->cache);
}

/*
 * A flush of a disk with a cache holds readers up, whatever their rank, as do the writes that it has taken: so three quarters of
 * the time are theirs, unless somebody waits for what is written back.
 */
unsigned long writeback_gives_way(const struct volume *v, unsigned long began)
{
	if (writeback_hurries(v) || time_before(READ_ONCE(v->last_io), began))
		return 0;
	return 3 * (jiffies - began);
}

/*
 * Who reads from the backing, reclaim, and with it who writes, may have to wait for the end of this batch, with its flush: also
 * where they come when it has begun, as nobody was there.
 */
u32 writeback_batch(const struct volume *v, bool beside)
{
	if (writeback_drains(v))
		return BATCH_PIECES;
	return beside ? larder_batch_beside(&v->batch) : larder_batch_next(&v->batch);
}

bool writeback_is_beside(const struct volume *v)
{
	return time_before(jiffies, READ_ONCE(v->last_io) + HZ) && !writeback_hurries(v);
}

/* Whoever waits for the backing, however long, is a user still. */
static bool backing_is_idle(const struct volume *v)
{
	return time_after(jiffies, READ_ONCE(v->last_user_io) + IDLE_BEFORE) && !atomic_read(&v->backing_reads);
}

static u64 writeback_allowance(struct volume *v)
{
	struct cache *c = v->cache;
	struct larder_rate_facts f = {
		.dirty = atomic64_read(&c->dirty_sectors),
		.target = writeback_target(v),
		.min_rate = (u64)v->set.writeback_rate_min * 2,
		.max_rate = (u64)v->set.writeback_rate_max * 2,
		.backing_idle = v->emptying || backing_is_idle(v),
		.urgent = writeback_drains(v),
		.space_short = v->writeback_urgent,
		.now_ns = ktime_get_ns(),
	};

	if (f.dirty <= f.target && !f.backing_idle && !f.urgent && !f.space_short)
		return 0;
	return larder_rate_update(&v->rate, &f);
}

static void writeback_flushed(struct volume *v)
{
	if (v->flushing) {
		v->flushing = false;
		dm_table_event(v->ti->table);
	}
}

bool writeback_fails(const struct volume *v)
{
	return READ_ONCE(v->writeback_error) && time_before(jiffies, READ_ONCE(v->writeback_tried) + HZ);
}

bool writeback_ended(struct volume *v, int err, u64 sent)
{
	lockdep_assert_held(&v->writeback_lock);
	if (!err || err == -ESHUTDOWN || err == -EAGAIN || err == -ENOMEM) {
		if (v->writeback_error && !err) {
			DMINFO("%pg: volume %pUb: dirty data is written back again", v->bdev, v->uuid);
			reclaim_unstick(v->cache);
		}
		WRITE_ONCE(v->writeback_error, 0);
		v->writeback_backoff = 0;
		return true;
	}
	if (!v->writeback_error && err != -EBADMSG) {
		DMERR("%pg: volume %pUb: dirty data cannot be written back: error %d%s; it stays in the cache, and is tried again",
		      v->bdev, v->uuid, err, err == -ENOSPC ? ": no space is left below" : "");
		dm_table_event(v->ti->table);
	}
	if (err == -EBADMSG && sent)
		v->writeback_backoff = HZ;	/* the others go on */
	else
		v->writeback_backoff = clamp(v->writeback_backoff * 2, (unsigned long)HZ, 60UL * HZ);
	WRITE_ONCE(v->writeback_tried, jiffies);
	WRITE_ONCE(v->writeback_retry, jiffies + v->writeback_backoff);
	WRITE_ONCE(v->writeback_error, err);
	return false;
}

/* What could not be written back was discarded, or written over by zeroes that were: nothing is wrong any more. */
static void writeback_forget_error(struct volume *v)
{
	if (likely(!READ_ONCE(v->writeback_error)))
		return;
	mutex_lock(&v->writeback_lock);
	if (!atomic64_read(&v->dirty_sectors))
		writeback_ended(v, -EAGAIN, 0);
	mutex_unlock(&v->writeback_lock);
}

void writeback_work(struct work_struct *work)
{
	struct volume *v = container_of(to_delayed_work(work), struct volume, writeback_work);
	struct piece *pieces;
	unsigned long delay = HZ / 10, began;
	u64 allowance, before, sent = 0;
	u32 n, i;
	int err = 0;

	if (!READ_ONCE(v->active))
		return;
	if (!atomic64_read(&v->dirty_sectors)) {
		WRITE_ONCE(v->emptying, false);
		writeback_forget_error(v);
		writeback_flushed(v);
	}
	if (unlikely(leave_waits(v)) || !atomic64_read(&v->dirty_sectors) || writeback_waits(v))
		return;
	WRITE_ONCE(v->emptying, v->set.quiet);
	if (v->writeback_error && time_before(jiffies, READ_ONCE(v->writeback_retry)))
		goto again;
	if (READ_ONCE(v->cache->doubt.on) && !leave_drains(v)) {
		delay = HZ;	/* nothing becomes durable, and so nothing may be written back */
		goto again;
	}
	allowance = writeback_allowance(v);
	if (!allowance) {
		/* cache_tick() looks again */
		if (atomic64_read(&v->cache->dirty_sectors) <= 0)
			return;
		goto again;
	}
	pieces = kvcalloc(BATCH_PIECES, sizeof(*pieces), GFP_NOIO);
	if (!pieces)
		goto again;
	mutex_lock(&v->writeback_lock);
	began = jiffies;
	before = atomic64_read(&v->dirty_sectors);
	v->writeback_beside = writeback_is_beside(v);
	n = writeback_pick(v, pieces, min_t(u64, allowance, 64 << 11), writeback_batch(v, v->writeback_beside));
	if (n)
		err = writeback_pieces(v, pieces, n);
	for (i = 0; i < n; i++)
		sent += pieces[i].written ? pieces[i].len : 0;
	writeback_go_on(v, pieces, n);
	if (writeback_ended(v, n ? err : -EAGAIN, sent) && allowance == LARDER_RATE_FULL && sent)
		delay = 0;
	delay = max(delay, writeback_gives_way(v, began));
	if (unlikely(leave_drains(v)))
		leave_drained(v, n ? err : -ENODATA, before);
	mutex_unlock(&v->writeback_lock);
	kvfree(pieces);
	larder_rate_spent(&v->rate, sent);
	/* what is left was acknowledged from memory, and is nowhere else (buffered.c) */
	if (unlikely(!n && leave_drains(v) && atomic64_read(&v->dirty_sectors)))
		return;
again:
	if (READ_ONCE(v->active))
		queue_delayed_work(v->cache->bg_wq, &v->writeback_work, delay);
}

void writeback_kick(struct volume *v)
{
	if (v->cache && READ_ONCE(v->active))
		mod_delayed_work(v->cache->bg_wq, &v->writeback_work, 0);
}

/* v->active is false: the batch in flight ends after its window. */
void writeback_stop(struct volume *v)
{
	cancel_delayed_work_sync(&v->writeback_work);
	mutex_lock(&v->writeback_lock);
	mutex_unlock(&v->writeback_lock);
}
