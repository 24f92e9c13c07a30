// SPDX-License-Identifier: GPL-2.0-only
/*
 * Dirty data goes to another place of the cache: where it has fewer copies than there could be (resync.c), or where it cannot be
 * written back, and a segment has little else (reclaim.c).
 *
 * A piece is appended to the write stream again, as if it were written by a user once more with what it has: nothing of replay, of
 * the order of writes and of the reuse of segments is different for it (tests/model/mirror.md, "What is appended again").  Cut off,
 * replay finds the new record, or the old place: that segment is not reused before the record is durable (rule 9).  What it must
 * not do is to bring back what somebody has written over:
 *   - resync-owns-range: from before the index is looked at until the piece is applied no bypass of its range begins
 *     (RACE_RESYNC); no write or discard of its neighbourhood is in flight when that begins (copy_begin_race()).
 *   - resync-yields: one that is issued after that is found by log_write(), under log->lock, and the piece is given up; one that is
 *     issued behind log_write() has a later place in the log, which decides in the index and in a replay.
 *   - What is read is compared with its checksum before it gets a new one.
 * Under load something always is in flight.  So a piece may get a turn: for 100 ms at most no write begins in its buckets, and what
 * is in flight there ends.
 * A CLEAN that is on its way for the old place is ignored, as where a user overwrites: it stays dirty, and is written back again.
 */
#include "larder.h"

#define NO_ROOM_FOR	(HZ / 10)	/* so long a piece waits for room in the log */
#define TURN		(HZ / 10)

struct mover *mover_create(struct cache *c, bool (*ended)(struct cache *c), gfp_t gfp)
{
	struct mover *mv = kvzalloc(sizeof(*mv), gfp | __GFP_NOWARN);
	u32 i;

	if (!mv)
		return NULL;
	mv->c = c;
	mv->ended = ended;
	for (i = 0; i < MOVE_SLOTS; i++) {
		mv->pages[i] = alloc_page(gfp | __GFP_NOWARN);
		if (!mv->pages[i]) {
			mover_free(mv);
			return NULL;
		}
	}
	return mv;
}

void mover_free(struct mover *mv)
{
	u32 i;

	if (!mv)
		return;
	move_wait(mv);
	for (i = 0; i < MOVE_SLOTS && mv->pages[i]; i++)
		__free_page(mv->pages[i]);
	kvfree(mv);
}

void move_wait(struct mover *mv)
{
	wait_event(mv->c->log.wait, !atomic_read(&mv->in_flight));
}

void move_applied(struct larder_io *io)
{
	struct mover *mv = io->mover;
	struct cache *c = mv->c;

	if (!io->item.error && mv->makes_space)
		cache_count(c, reclaim_moved_slots, DIV_ROUND_UP(io->len, LARDER_SLOT_SECTORS));
	else if (!io->item.error)
		atomic64_add(io->len, &c->resync.copied);
	kfree(io);
	atomic_dec(&mv->in_flight);	/* log_apply() wakes */
}

/* The range is ours.  -ESTALE: it is not there any more; -EAGAIN: no room; -EIO, -EBADMSG: it cannot be read. */
static int move_send(struct mover *mv, struct volume *v, const struct larder_map *m, struct larder_io *io)
{
	struct cached_data x = { .pages = mv->pages, .len = m->len, .cache = m->cache };
	unsigned long give_up = jiffies + NO_ROOM_FOR;
	struct cache *c = mv->c;
	int err;

	if (!volume_maps(v, m, 1u << LARDER_ST_DIRTY | 1u << LARDER_ST_CLEANING))
		return -ESTALE;
	err = data_read(c, &x);
	if (err && err != -ENOMEM && err != -EBADMSG) {
		cache_error(c, errors_read);
		err = data_read_slots(c, &x);	/* of two copies the other one may give it */
	}
	if (err)
		return err;
	io->volume = v;
	io->sector = m->sector;
	io->len = m->len;
	io->pin = pin_of(c, m->cache, m->len);
	io->mover = mv;
	bio_init(&mv->bio, NULL, mv->vec, MOVE_SLOTS, REQ_OP_WRITE);
	data_bio_add(&mv->bio, mv->pages, 0, m->len);
	marks_known(v, m->sector, m->len);
	atomic_inc(&mv->in_flight);
	while ((err = log_write(v, &mv->bio, io)) == -EAGAIN && time_before(jiffies, give_up) && !mv->ended(c))
		schedule_timeout_uninterruptible(1);
	if (err)
		atomic_dec(&mv->in_flight);
	bio_uninit(&mv->bio);
	return err;
}

/* Its neighbourhood is in use.  True: not any more.  A turn that a bypass has there ends with this one: it gets another one. */
static bool move_turn(struct mover *mv, struct volume *v, const struct larder_map *m)
{
	u64 until = get_jiffies_64() + TURN;
	struct cache *c = mv->c;
	bool busy;

	race_turn(c, v, m->sector, m->len, until);
	do {
		if (READ_ONCE(c->look) & LOOK_BUFFERED)
			log_hurry(c);
		schedule_timeout_uninterruptible(1);
		copy_end_race(c, &mv->copy);
		busy = !copy_begin_race(c, &mv->copy, 0);
	} while (busy && time_before64(get_jiffies_64(), until) && !mv->ended(c));
	race_turn(c, v, m->sector, m->len, 0);
	defer_kick(c);
	return !busy;
}

int move_piece(struct mover *mv, struct volume *v, const struct larder_map *m)
{
	struct larder_io *io = kzalloc(sizeof(*io), GFP_NOIO | __GFP_NOWARN);
	u32 segment = cache_segment(mv->c, m->cache);
	struct cache *c = mv->c;
	int err = -EAGAIN;
	bool waits, busy;

	if (!io)
		return -ENOMEM;
	mv->copy.volume = v;
	mv->copy.sector = m->sector;
	mv->copy.len = m->len;
	mutex_lock(&c->move_lock);
	segment_pin(c, segment);
	waits = race_begin(c, v, m->sector, m->len, RACE_RESYNC);
	busy = !copy_begin_race(c, &mv->copy, 0);
	if (busy && mv->turns)
		waits = busy = !move_turn(mv, v, m);
	if (READ_ONCE(v->forgotten))
		err = -ESTALE;
	else if (!waits && !busy)
		err = move_send(mv, v, m, io);
	else
		mv->busy = true;
	copy_end_race(c, &mv->copy);
	if (err) {
		race_end(c, v, m->sector, m->len, RACE_RESYNC);	/* else when it is applied */
		kfree(io);
	}
	segment_unpin(c, segment);
	mutex_unlock(&c->move_lock);
	return err;
}

void moves_leave(struct cache *c)
{
	mutex_lock(&c->move_lock);
	mutex_unlock(&c->move_lock);
}
