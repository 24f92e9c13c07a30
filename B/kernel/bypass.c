// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes and discards that go to the backing: bypass, writethrough, writearound, discards; and volumes without a cache.
 *
 * In this order, before anything reaches the backing:
 *   1. the race buckets are taken: nothing cached is in flight there, no writeback owns the range (writeback-owns-range); fills are
 *      void from here on
 *   2. what took dirty data away in the bucket (CLEAN, INVALIDATE) is applied (rule 5; a FUA write ends in a full flush, which
 *      makes it durable)
 *   3. the index shows nothing dirty (bypass-not-over-dirty); discards may take dirty data away, that is what they are for
 *   4. the intent mark is durable, or the region is unknown to index and log (rule 6 and its exception)
 *   5. INVALIDATE is appended (the clearing of the mark comes after it in the write stream), then the range leaves the index; a
 *	checkpoint that begins between the two waits for the second (invalidate-shown: it is replayed from behind the INVALIDATE)
 * A bypass whose buckets are in use is deferred, and tried again.  Under load they may always be: one that has waited for long gets
 * a turn: in its buckets no write and no writeback begins for a while, as if it were in flight, so that those which are end.
 * Only for step 1: the steps behind it may wait for space, and so for writeback; for them it keeps nobody out.
 * If power is cut after 4: the mark makes recovery drop what is CLEAN in the region.  After a write reached the backing and before
 * INVALIDATE is durable: the same.  The mark is cleared only behind the INVALIDATE and a flush of the backing.
 */
#include "larder.h"
#include "trace.h"

static bool range_dirty(struct volume *v, u64 sector, u32 len)
{
	struct larder_map m;

	return larder_index_next(v->index, sector, sector + len, ~(1u << LARDER_ST_CLEAN), &m);
}

static bool range_cached(struct volume *v, u64 sector, u32 len)
{
	struct larder_map m;

	return larder_index_next(v->index, sector, sector + len, ~0u, &m);
}

/* Step 5.  The RCU section: snapshot_wait() waits for whoever has logged it and not yet changed the index.  Nothing sleeps. */
static int invalidate(struct volume *v, struct larder_io *io, bool dirty)
{
	struct larder_entry_in e = { .sector = io->sector, .length = io->len, .volume = v->number, .kind = LARDER_INVALIDATE };
	struct cache *c = v->cache;
	u64 lsn = 0;
	int err;

	rcu_read_lock();
	err = dirty ? log_entry_dirty(v, &e, &lsn) : log_entry(c, &e, &lsn);
	if (!err && dirty)
		race_barrier(c, v, io->sector, io->len, lsn);
	if (!err && range_cached(v, io->sector, io->len) && volume_map_store(v, io->sector, io->len, 0, LARDER_ST_NONE, NULL)) {
		/* a split needs memory; the INVALIDATE in the log costs at most what is clean */
		WRITE_ONCE(c->log.apply_stalled, true);
		log_kick(c);
		err = -EAGAIN;
	}
	rcu_read_unlock();
	return err;
}

#define TURN_AFTER	(HZ / 20)
#define TURN		(HZ / 10)
#define TURNS_MOST	3u		/* that make those behind them longer: 0.8 s, and the pauses 3.2 s */
#define DISCARD_PIECES	256u

/*
 * Its buckets are in use.  One turn for a volume at a time.  It ends by itself; behind one that was of no use the next is twice as
 * long, as an SSD may be slow, and the pause before it four times, as what is in flight there may be another volume's, and wait for
 * a backing that hangs.
 */
static void bypass_turn(struct volume *v, struct larder_io *io)
{
	u64 now = get_jiffies_64();

	if (!io->raced_since) {
		io->raced_since = now;		/* whoever is tried again is the worker's */
	} else if (time_after_eq64(now, v->turn_until) && time_after_eq64(now, io->raced_since + (TURN_AFTER << 2 * io->turns))) {
		v->turn_until = now + (TURN << io->turns);
		race_turn(v->cache, v, io->sector, io->len, v->turn_until);
		io->raced_since = v->turn_until;
		io->turns = min(io->turns + 1u, TURNS_MOST);
	}
}

/* It has its buckets. */
static void bypass_turn_end(struct volume *v, const struct larder_io *io)
{
	if (likely(!io->turns) || time_after_eq64(get_jiffies_64(), v->turn_until))
		return;
	race_turn(v->cache, v, io->sector, io->len, 0);
	v->turn_until = 0;
}

/* Steps 1 to 5.  0: the range is ours (bypass_end() gives it back); -EAGAIN, -EBUSY: nothing is held. */
static int bypass_begin(struct volume *v, struct larder_io *io, bool through, bool discard)
{
	struct cache *c = v->cache;
	bool dirty;
	int err;

	/* what is not logged does not wait for the set by itself (rule 14, generation-before-bypass) */
	if (unlikely(READ_ONCE(c->log.held)))
		return -EAGAIN;
	err = -EAGAIN;
	if (race_begin(c, v, io->sector, io->len, RACE_BYPASS)) {
		if (READ_ONCE(c->look) & LOOK_BUFFERED)
			log_hurry(c);
		bypass_turn(v, io);
		goto race;
	}
	bypass_turn_end(v, io);
	if (race_barrier_lsn(c, v, io->sector, io->len) > READ_ONCE(c->log.applied_lsn)) {
		log_hurry(c);
		goto race;
	}
	dirty = range_dirty(v, io->sector, io->len);
	err = -EBUSY;
	if (dirty && !discard)
		goto race;
	err = marks_get(v, io->sector, io->len, through);
	if (err < 0)
		goto race;
	io->exempt = err;
	if (WARN_ON_ONCE(io->exempt && range_cached(v, io->sector, io->len))) {
		marks_known(v, io->sector, io->len);
		err = -EAGAIN;
		goto race;
	}
	if (io->exempt) {
		marks_exempt(v, io->sector, io->len);
		return 0;
	}
	err = invalidate(v, io, dirty);
	if (!err)
		return 0;
	marks_put(v, io->sector, io->len);
race:
	race_end(c, v, io->sector, io->len, RACE_BYPASS);
	return err;
}

/* Interrupt context: it has ended on the backing. */
void bypass_end(struct volume *v, struct larder_io *io, bool ok)
{
	struct cache *c = v->cache;

	/* of what has failed nobody relies on anything; where a copy might, a mark or 'nofill' is in its way */
	if (ok)
		flusher_acked(&v->flusher);
	if (io->exempt)
		marks_exempt(v, io->sector, io->len);
	else
		marks_put(v, io->sector, io->len);
	race_end(c, v, io->sector, io->len, RACE_BYPASS);
	defer_kick(c);
}

/* Behind steps 1 to 5. */
static void bypass_counted(struct volume *v, const struct larder_io *io, bool through)
{
	WRITE_ONCE(v->last_io, jiffies);
	volume_count(v, write_backing_sectors, io->len);
	if (io->fua)
		volume_count(v, fuas, 1);
	if (through)
		volume_count(v, write_through, 1);
	else if (v->set.mode == LARDER_WRITEAROUND)
		volume_count(v, write_around, 1);
	else
		volume_count(v, write_bypass, 1);
}

int bypass_zeroes(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	int err;

	if (!may_wait)
		return -EAGAIN;
	err = bypass_begin(v, io, false, false);
	if (err)
		return err;
	bypass_counted(v, io, false);
	trace_larder_bypass(v, io->sector, io->len, io->exempt);
	err = zeroes_write(v, v->data_start + io->sector, io->len);
	if (err) {
		volume_error(v, errors_write);
		flusher_write_failed(&v->flusher, errno_to_blk_status(err));
	}
	bypass_end(v, io, !err);
	if (!err && io->fua)
		user_flush_after(v, io);
	else
		io_complete(bio, err);
	return DM_MAPIO_SUBMITTED;
}

int bypass_write(struct volume *v, struct bio *bio, struct larder_io *io, bool through, bool may_wait)
{
	int err = bypass_begin(v, io, through, false);

	if (err)
		return err;
	bypass_counted(v, io, through);
	if (through && !fill_through(v, bio, io))
		return DM_MAPIO_SUBMITTED;
	trace_larder_bypass(v, io->sector, io->len, io->exempt);
	io->kind = IO_BYPASS;
	io->backing = true;
	/* durable by the flush that follows it (user_flush_after()) */
	bio->bi_opf &= ~REQ_FUA;
	bio_set_dev(bio, v->bdev);
	bio->bi_iter.bi_sector = v->data_start + io->sector;
	return io_issue(bio, may_wait);
}

/*
 * What of a discard is deferred: up to 64 MiB, the region of a mark, in whole granules of the backing.  1 GiB wants 512 buckets and
 * 17 marks at one instant.  Where many wait already it stays as large as it is: each costs memory.
 */
static void discard_cut(struct volume *v, struct bio *bio, struct larder_io *io)
{
	u32 granule = max(bdev_discard_granularity(v->bdev) >> SECTOR_SHIFT, 1u);
	u32 unit = roundup(1u << LARDER_INTENT_SHIFT, granule), off, most;

	/* they are counted from the beginning of the disk, of which the backing may be a partition */
	div_u64_rem(get_start_sect(v->bdev) + v->data_start + io->sector, unit, &off);
	most = unit - off;
	if (io->len <= most || READ_ONCE(v->nr_deferred) >= DISCARD_PIECES)
		return;
	dm_accept_partial_bio(bio, most);
	io->len = most;
}

int bypass_discard(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	int err;

	if (unlikely(READ_ONCE(v->cache->state) == CACHE_FAILED))
		return leave_map(v, bio, io, may_wait);
	if (unlikely(volume_in_doubt(v))) {
		err = may_wait ? write_settle(v, io) : -EAGAIN;
		if (err && err != -EAGAIN) {
			io_complete(bio, err);
			return DM_MAPIO_SUBMITTED;
		}
		if (err) {
			if (!may_wait)
				discard_cut(v, bio, io);
			return err;
		}
	}
	io->fua = false;
	err = bypass_begin(v, io, false, true);
	if (err == -EAGAIN && !may_wait)
		discard_cut(v, bio, io);
	if (err)
		return err;
	volume_count(v, discards, 1);
	trace_larder_discard(v, io->sector, io->len);
	io->kind = IO_DISCARD;
	if (!bdev_max_discard_sectors(v->bdev)) {
		/* io_end() follows */
		io_complete(bio, 0);
		return DM_MAPIO_SUBMITTED;
	}
	bio_set_dev(bio, v->bdev);
	bio->bi_iter.bi_sector = v->data_start + io->sector;
	return io_issue(bio, may_wait);
}

/* ------------------------------------------------------------------ volumes without a cache */

int pass_issue(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	if (fua_fails(v, bio))
		return DM_MAPIO_SUBMITTED;
	io->kind = IO_PASS;
	/* a volume that has, or had when this was sent, a cache takes discards, whatever its backing does */
	if (bio_op(bio) == REQ_OP_DISCARD && !bdev_max_discard_sectors(v->bdev)) {
		io_complete(bio, 0);		/* io_end() follows */
		return DM_MAPIO_SUBMITTED;
	}
	bio_set_dev(bio, v->bdev);
	bio->bi_iter.bi_sector = v->data_start + io->sector;
	return io_issue(bio, may_wait);
}

/* Rule 11: before the first write without the cache its superblock must say so; that is the worker's. */
int passthrough_map(struct volume *v, struct bio *bio, struct larder_io *io, bool may_wait)
{
	int err;

	if (op_is_write(bio_op(bio)) && unlikely(!READ_ONCE(v->raised))) {
		if (!may_wait)
			return -EAGAIN;
		err = volume_raise_incarnation(v);
		if (err) {
			io_complete(bio, err);
			return DM_MAPIO_SUBMITTED;
		}
	}
	return pass_issue(v, bio, io, may_wait);
}
