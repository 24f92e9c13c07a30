// SPDX-License-Identifier: GPL-2.0-only
/*
 * Start of a cache: superblock and table, the newest checkpoint that is whole, the log behind it (replay.c), a new epoch.
 *
 * Steps, and what a power cut finds:
 *  1. Superblocks, table, checkpoint and log are only read; indexes and marks are built in memory.
 *  2. CLEAN extents in marked regions are dropped, in memory (rule 10).  The marks stay, in memory and in the new checkpoint.
 *  3. What one SSD lacks of a record, and another one has, is written to it (replay_repair()): the first write of a start.  A power
 *     cut in it leaves what the next start reads in the same way.
 *     The SSDs are flushed: what was read and not durable yet becomes so before anybody sees it (rule 10; the backings: when their
 *     volumes are bound).
 *     Then every member's table becomes the newest one, where a change of it was cut off (cache_table_settle()): before step 5,
 *     whose superblock bars older ones.
 *     Then the superblock that was found, the newest, becomes the only one: a power cut, or an error, may have left older ones as
 *     second copies, or on other members, and any of them may count next time: the newest is torn by the cut, or is on an SSD that
 *     is lost.  They name what step 4 takes for free (start_superblock_settle()).
 *  4. A new epoch is made up: number, secret, a sequence number far above any seen.  Free segments are taken for it and for a
 *     checkpoint of what was built, and the chunks are written.  Free here means: the recovered state maps nothing there, no record
 *     of the logs of the named checkpoints lies there (by keep_sequence: the older one's log too), and no chunk of theirs.  A power
 *     cut until now finds the superblock that step 3 wrote with all it names untouched, and the start is repeated from 1.  It finds
 *     the same log, as step 3 made all of it durable that was read, and nothing that was written since can continue its chains; so
 *     it comes to the same state, which maps nothing of what step 4 wrote to.  What only the old checkpoint or a record maps, and
 *     the recovered state does not, is removed by the same later record, SEGMENT_OPEN or mark again.  That holds for what is dirty.
 *     Of what is clean such a record may be on an SSD that is not there any more, or there is none, as reclaim logs nothing, and
 *     the checkpoint that was loaded may be unreadable by then: that superblock says DROP_CLEAN, the one of step 5 does not.
 *  5. One superblock, two copies, names the new epoch and the new checkpoint, and nothing else.  From here on the tail of the old
 *     log is sealed for ever: its records carry another hash.
 *  6. Only then the old chunks, and the segments that held only records of the old log, are free.
 *
 * A start that lacks space (checkpoint_set_reserve() provides for it, so this is the last resort) gives up, each durably by a
 * superblock before anything is reused: first the older checkpoint with its part of the log, then all CLEAN extents
 * (LARDER_CACHE_DROP_CLEAN: a repeated start drops them as well).  Never dirty ones.
 *
 * Nothing read is trusted (rule 13).  A damaged checkpoint is refused and the older one taken, whose log reaches further back; if
 * the log is found to end before something that the damaged one stands on, the start fails rather than go back in time.  Errors of
 * the SSD fail the start, with nothing changed.
 *
 * Nobody else uses the cache meanwhile: no locks but those the callees ask for.  Runs under memalloc_noio.
 */
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/sort.h>

#include "replay.h"

#define SEQUENCE_GAP	1000000u
#define START_PASSES	8u	/* checkpoints that places which take no writes may cost a start */

/* ------------------------------------------------------------------ superblocks, volumes */

/* Reads the superblock again: it may have been written since the constructor looked. */
static int start_superblock(struct cache *c, struct cache_device *d)
{
	const char *why;
	int err = super_read_cache(d->bdev, d->sb, &why);

	if (!err && (memcmp(d->sb->cache_uuid, c->uuid, sizeof(c->uuid)) || memcmp(d->sb->head.uuid, d->uuid, sizeof(d->uuid)))) {
		err = -ESTALE;
		why = "another cache's";
	}
	if (!err && (le32_to_cpu(d->sb->segment_size) >> LARDER_SECTOR_SHIFT != c->segment_sectors ||
		     le32_to_cpu(d->sb->nr_segments) < d->nr_segments || le32_to_cpu(d->sb->first_segment) != d->first_segment ||
		     le64_to_cpu(d->sb->segments_offset) >> LARDER_SECTOR_SHIFT != d->start)) {
		err = -ESTALE;
		why = "its geometry has changed since the table was loaded";
	}
	if (!err && larder_sb_read_only(&d->sb->head)) {
		err = -EROFS;
		why = "features that only a newer larder may write (ro_compat)";
	}
	if (err)
		DMERR("%pg: no valid superblock of cache %pUb: %s (error %d); see `larder super check`", d->bdev, c->uuid, why,
		      err);
	return err;
}

/* What the superblock names. */
static int start_pointers(struct start *s, const struct larder_cache_sb *sb)
{
	struct cache *c = s->c;
	u32 i;

	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++) {
		const struct larder_checkpoint_ptr *p = &sb->checkpoint[i];
		struct named_checkpoint *n = &s->old[i];

		if (larder_checkpoint_empty(p))
			continue;
		n->sequence = le64_to_cpu(p->sequence);
		n->replay_sequence = le64_to_cpu(p->replay_sequence);
		n->replay_segment = LARDER_NO_SEGMENT;
		n->bytes = le64_to_cpu(p->bytes);
		n->hash = le64_to_cpu(p->hash);
		n->first_segment = le32_to_cpu(p->first_segment);
		n->first_further = larder_further(le32_to_cpu(p->first_mirror), le32_to_cpu(p->first_third));
		n->epoch = le32_to_cpu(p->epoch);
		c->checkpoint_sequence = max(c->checkpoint_sequence, n->sequence);
		if (n->first_segment >= c->nr_segments || !larder_further_ok(n->first_segment, n->first_further, c->nr_segments)) {
			DMERR("%pg: the superblock names a checkpoint in segment %u of %u: refused", cache_bdev(c),
			      n->first_segment, c->nr_segments);
			return -EINVAL;
		}
	}
	s->fresh = !c->epoch && !s->old[0].sequence;
	if (!s->fresh && !s->old[0].sequence) {
		DMERR("%pg: the superblock names epoch %u but no checkpoint: refused", cache_bdev(c), c->epoch);
		return -EINVAL;
	}
	return 0;
}

/* What only some have got, as the writing of them was cut off: the next one that is written has it. */
static void superblock_take_over(struct larder_cache_sb *sb, const struct larder_cache_sb *newest)
{
	memcpy(sb->epochs, newest->epochs, sizeof(sb->epochs));
	memcpy(sb->stack, newest->stack, sizeof(sb->stack));
}

/*
 * A superblock says which generation the superblocks of all members have had, durably.  One that has less has lost it since: it was
 * put back from an image of before, say, and what it has of segments is of then (rule 16).  A power cut among them, or one that
 * could not be written, is no reason to refuse: no superblock says that all have had what it lacks.
 */
static int start_check_ages(struct cache *c)
{
	u64 all = 0, least = U64_MAX, own;
	u32 i;

	for (i = 0; i < c->nr_devices; i++)
		if (!c->dev[i].failed)
			all = max(all, le64_to_cpu(c->dev[i].sb->all_generation));
	for (i = 0; i < c->nr_devices; i++) {
		if (c->dev[i].failed)
			continue;
		own = le64_to_cpu(c->dev[i].sb->head.generation);
		least = min(least, own);
		if (own >= all)
			continue;
		DMERR("%pg: SSD %u is older than the others of cache %pUb (generation %llu; all had %llu): put back from an image?",
		      c->dev[i].bdev, i, c->uuid, own, all);
		if (c->accept_older)
			continue;
		DMERR("%pg: give the SSD that it had, or '-' in its place; if it is that, and loses what it acknowledges: %s",
		      c->dev[i].bdev, "option 'stale accept'");
		return -ESTALE;
	}
	/* what a superblock said already: what was chosen may be in one copy of a member, and is on none that is missing */
	c->all_generation = min(all, least);
	return 0;
}

/* The newest of the set's members counts (epoch-of-newest). */
static int start_superblocks(struct start *s)
{
	struct cache *c = s->c;
	const struct larder_cache_sb *sb = NULL;
	u32 i;
	int err;

	for (i = 0; i < c->nr_devices; i++) {
		if (c->dev[i].failed)
			continue;
		err = start_superblock(c, &c->dev[i]);
		if (err)
			return err;
	}
	err = cache_table_read(c) ?: start_check_ages(c);
	if (err)
		return err;
	for (i = 0; i < c->nr_devices; i++) {
		struct cache_device *d = &c->dev[i];

		if (!d->failed && (!sb || le64_to_cpu(d->sb->head.generation) > le64_to_cpu(sb->head.generation)))
			sb = d->sb;
		if (!d->failed)
			s->durable = max(s->durable, le64_to_cpu(d->sb->durable_sequence));
		/* also where only some were told yet */
		if (!d->failed && d->sb->head.incompat & cpu_to_le64(LARDER_INCOMPAT_THIRD))
			c->third = true;
		s->degraded |= d->failed && le32_to_cpu(c->table->devices[i].state) == LARDER_DEVICE_ACTIVE;
	}
	if (!sb) {
		if (c->nr_devices > 1)	/* else the line before has said it */
			DMERR("cache %pUb: none of the SSDs is a member of its newest set", c->uuid);
		return -ESTALE;
	}
	for (i = 0; i < c->nr_devices; i++)
		if (c->dev[i].sb != sb)
			superblock_take_over(c->dev[i].sb, sb);
	c->sb_generation = le64_to_cpu(sb->head.generation);
	c->epoch = le32_to_cpu(sb->epoch);
	s->flags = le32_to_cpu(sb->head.flags);
	return start_pointers(s, sb);
}

/* What a table says costs memory before anything is cached, and no disk: that of all together is bounded. */
static int start_volumes_fit(const struct cache *c)
{
	u32 i, nr = 0, n = le32_to_cpu(c->table->head.nr_volumes);
	u64 bytes = 0, sectors = 0;

	for (i = 0; i < n; i++) {
		const struct larder_table_volume *e = &c->table->volumes[i];

		if (le32_to_cpu(e->state) != LARDER_VOLUME_ATTACHED)
			continue;
		nr++;
		sectors += le64_to_cpu(e->sectors);
		bytes += volume_base_bytes(le64_to_cpu(e->sectors));
	}
	if (bytes <= ((u64)totalram_pages() << PAGE_SHIFT) / 2)
		return 0;
	DMERR("%pg: table: volumes.sectors: %u volumes of %llu sectors in all need %llu MiB, over half of all memory: add memory",
	      cache_bdev(c), nr, sectors, bytes >> 20);
	return -ENOMEM;
}

static int start_volumes(struct cache *c)
{
	u32 i, n = le32_to_cpu(c->table->head.nr_volumes);
	int err = start_volumes_fit(c);

	if (err)
		return err;
	for (i = 0; i < n; i++) {
		const struct larder_table_volume *e = &c->table->volumes[i];
		struct volume *v;

		if (le32_to_cpu(e->state) != LARDER_VOLUME_ATTACHED)
			continue;
		v = volume_create(c, i, e->uuid, le64_to_cpu(e->sectors));
		if (IS_ERR(v)) {
			DMERR("%pg: no memory for volume %pUb of %llu sectors (error %ld)", cache_bdev(c), e->uuid,
			      le64_to_cpu(e->sectors), PTR_ERR(v));
			return PTR_ERR(v);
		}
		memcpy(v->label, e->label, LARDER_LABEL_SIZE);
		v->incarnation = le64_to_cpu(e->incarnation);
		v->seen = le64_to_cpu(e->seen);
		smp_store_release(&c->volumes[i], v);	/* pairs with the READ_ONCE() of those who look for it under RCU */
	}
	return 0;
}

/* Back to a cache of which nothing is loaded. */
static void start_unload(struct start *s)
{
	struct cache *c = s->c;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		s->unloaded[i] = c->volumes[i];
		WRITE_ONCE(c->volumes[i], NULL);
	}
	synchronize_rcu();
	flush_work(&c->event_work);	/* one that found some there holds references, which are not to be the last */
	for (i = 0; i < LARDER_MAX_VOLUMES; i++)
		if (s->unloaded[i])
			volume_put(s->unloaded[i]);
	spin_lock_irq(&c->log.lock);
	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		c->log.stream[i].opened.head = 0;
		c->log.stream[i].opened.count = 0;
		c->log.stream[i].opened.usable = 0;
	}
	spin_unlock_irq(&c->log.lock);
	for (i = 0; i < c->nr_segments; i++) {
		atomic_set(&c->segments[i].live, 0);
		atomic_set(&c->segments[i].dirty, 0);
		c->segments[i].sequence = 0;
		c->segments[i].prefer_mirror = PREFER_NONE;
		WRITE_ONCE(c->segments[i].mirror, LARDER_NO_SEGMENT);
		if (c->segments[i].state != SEGMENT_FREE)
			segment_set_state(c, i, SEGMENT_FREE);
		c->segments[i].stream = 0;
	}
	c->nr_thirds = 0;
	atomic64_set(&c->live_sectors, 0);
	atomic64_set(&c->dirty_sectors, 0);
}

/* ------------------------------------------------------------------ what a replay needs */

static void replay_reset(struct replay *r)
{
	u32 i;

	replay_cursors_free(r);
	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		r->nr_opened[i] = 0;
		r->has_pos[i] = false;
	}
	for (i = 0; r->marks && i < LARDER_MAX_VOLUMES; i++)
		xa_destroy(&r->marks[i]);
	if (r->reopened)
		memset(r->reopened, 0, (size_t)r->c->nr_segments * sizeof(*r->reopened));
	if (r->mirror)
		memset(r->mirror, 0, (size_t)r->c->nr_segments * sizeof(*r->mirror));
	if (r->mirror_of)
		memset(r->mirror_of, 0, (size_t)r->c->nr_segments * sizeof(*r->mirror_of));
	r->scanned = false;
	r->nr_doubts = 0;
	r->durable = r->highest = 0;
	r->records = r->slots = r->skipped = r->damaged = r->lacking = 0;
}

static int replay_create(struct replay *r, struct cache *c)
{
	u32 i;

	r->c = c;
	r->any_volume = kvmalloc_array(LARDER_MAX_VOLUMES, sizeof(u64), GFP_KERNEL);
	r->marks = kvmalloc_array(LARDER_MAX_VOLUMES, sizeof(*r->marks), GFP_KERNEL);
	/* may be more than 2 GiB, as what segments_create() takes; kvmalloc() gives no more */
	r->reopened = vcalloc(c->nr_segments, sizeof(*r->reopened));
	r->mirror = kvcalloc(c->nr_segments, sizeof(*r->mirror), GFP_KERNEL);
	r->mirror_of = kvcalloc(c->nr_segments, sizeof(*r->mirror_of), GFP_KERNEL);
	for (i = 0; r->marks && i < LARDER_MAX_VOLUMES; i++)
		xa_init(&r->marks[i]);
	if (!r->any_volume || !r->marks || !r->reopened || !r->mirror || !r->mirror_of)
		return -ENOMEM;
	memset(r->any_volume, 0xff, LARDER_MAX_VOLUMES * sizeof(u64));
	r->geo.segment_slots = c->segment_slots;
	r->geo.nr_segments = c->nr_segments;
	r->geo.nr_volumes = LARDER_MAX_VOLUMES;
	r->geo.volume_sectors = r->any_volume;
	return 0;
}

static void replay_destroy(struct replay *r)
{
	replay_reset(r);
	kvfree(r->doubts);
	kvfree(r->applied_mirror_of);
	kvfree(r->applied_mirror);
	kvfree(r->mirror_of);
	kvfree(r->mirror);
	vfree(r->reopened);
	kvfree(r->marks);
	kvfree(r->any_volume);
}

/* What a start raises, and what is newer is told by: behind the end of their range the newest would be the oldest. */
static int start_counters(struct start *s)
{
	struct cache *c = s->c;
	const struct {
		const char *field;
		u64 value, end;
	} counter[] = {
		{ "superblock: generation", c->sb_generation, LARDER_COUNTER_END },
		{ "superblock: epoch", c->epoch, U32_MAX },
		{ "superblock: checkpoint.sequence", c->checkpoint_sequence, LARDER_COUNTER_END },
		{ "table: generation", le64_to_cpu(c->table->head.generation), LARDER_COUNTER_END },
		{ "table: set_generation", c->set_generation, LARDER_COUNTER_END },
		{ "log: sequence number", s->r.highest, LARDER_COUNTER_END },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(counter); i++) {
		if (counter[i].value < counter[i].end)
			continue;
		DMERR("%pg: %s %llu: a number that no cache comes to: not started; `larder rescue` saves what is dirty",
		      cache_bdev(c), counter[i].field, counter[i].value);
		return -EINVAL;
	}
	return 0;
}

/* The newest checkpoint that is whole, then its log. */
static int start_replay(struct start *s)
{
	struct cache *c = s->c;
	int err = start_volumes(c);

	if (err || s->fresh)
		return err;
	err = checkpoint_load(s, 0);
	/* one of an older epoch stands on a log that has gone on since */
	if (err && !s->fatal && s->old[1].sequence && s->old[1].epoch == s->old[0].epoch) {
		DMWARN("%pg: the checkpoint before it, %llu, and a longer log are tried", cache_bdev(c), s->old[1].sequence);
		s->must_reach = s->r.has_pos[LARDER_STREAM_WRITE] ? s->r.pos[LARDER_STREAM_WRITE].prev_sequence : 0;
		if (s->r.scanned)
			s->must_reach = max(s->must_reach, s->r.last_write);
		start_unload(s);
		replay_reset(&s->r);
		s->used = 1;
		err = start_volumes(c) ?: checkpoint_load(s, 1);
	}
	if (err)
		return err;
	if (s->lost)
		DMWARN("%pg: %llu extents of the checkpoint were skipped: their volume is not in the table, or smaller",
		       cache_bdev(c), s->lost);
	err = replay_apply(&s->r);
	if (!err)
		err = replay_check_end(&s->r);
	if (err)
		DMERR("%pg: replay failed: error %d; the cache is not started, nothing was changed", cache_bdev(c), err);
	replay_cursors_free(&s->r);
	return err;
}

/* ------------------------------------------------------------------ what was recovered */

/* CLEAN extents in marked regions may be older than their backing. */
static int start_marks(struct start *s)
{
	unsigned long region;
	struct volume *v;
	void *entry;
	u64 sector;
	u32 i;
	int err;

	for (i = 0; i < LARDER_MAX_VOLUMES; i++) {
		v = s->c->volumes[i];
		if (!v)
			continue;
		xa_for_each(&s->r.marks[i], region, entry) {
			sector = (u64)region << LARDER_INTENT_SHIFT;
			err = replay_drop(v, sector, min(sector + (1u << LARDER_INTENT_SHIFT), v->sectors), 1u << LARDER_ST_CLEAN);
			if (err)
				return err;
			marks_load(v, region);
		}
	}
	return 0;
}

static int start_drop_clean(struct cache *c)
{
	struct volume *v;
	u32 i;
	int err = 0;

	for (i = 0; i < LARDER_MAX_VOLUMES && !err; i++) {
		v = c->volumes[i];
		if (v)
			err = replay_drop(v, 0, v->sectors, 1u << LARDER_ST_CLEAN);
	}
	return err;
}

struct aged {
	u64 sequence;
	u32 segment;
};

static int aged_compare(const void *a, const void *b)
{
	const struct aged *x = a, *y = b;

	cond_resched();		/* there may be 16 million: sort() does not */
	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/*
 * First of the one that is loaded.  What another one says is its own, and holds data, or chunks of the first, is not given up with
 * it: that superblock was never larder's.
 */
static int start_named_segments(struct start *s, unsigned int which)
{
	struct named_checkpoint *n = &s->old[which];
	u32 i, segment, nr = n->nr_segments;
	struct cache *c = s->c;

	n->nr_segments = 0;
	for (i = 0; i < nr; i++) {
		segment = n->segments[i];
		if (!atomic_read(&c->segments[segment].live) && c->segments[segment].state != SEGMENT_CHECKPOINT) {
			segment_set_state(c, segment, SEGMENT_CHECKPOINT);
			n->segments[n->nr_segments++] = segment;
			continue;
		}
		DMERR("%pg: superblock: checkpoint[%u]: its segment %u holds other data as well: %s", cache_bdev(c), which, segment,
		      which == s->used ? "refused" : "it keeps that");
		if (which == s->used)
			return -EINVAL;
	}
	return 0;
}

/* Copies are known by what replay found; one that does not fit the states of the segments is none. */
static void start_copies(struct start *s)
{
	u32 i, k, n, copy[SEGMENT_COPIES];
	struct cache *c = s->c;
	struct segment *further;

	spin_lock_irq(&c->segments_lock);
	for (i = 0; i < c->nr_segments; i++) {
		segments_turn(c, i);
		if (!s->r.mirror[i] || s->r.mirror_of[i] || c->segments[i].state == SEGMENT_FREE)
			continue;
		n = replay_copies(&s->r, i, copy);
		for (k = 1; k < n; k++) {
			further = &c->segments[copy[k]];
			if (further->state == SEGMENT_FREE && further->mirror == LARDER_NO_SEGMENT && !atomic_read(&further->live))
				segment_link(c, i, copy[k]);
		}
	}
	spin_unlock_irq(&c->segments_lock);
}

/* While the log is replayed, and what is lost is looked for, copies are what replay says: a chain from the first one. */
static void start_link_early(struct start *s)
{
	struct cache *c = s->c;
	u32 i;

	for (i = 0; i < c->nr_segments; i++)
		if (s->r.mirror[i])
			WRITE_ONCE(c->segments[i].mirror, s->r.mirror[i] - 1);
}

static void start_unlink(struct start *s)
{
	struct cache *c = s->c;
	u32 i;

	for (i = 0; i < c->nr_segments; i++)
		WRITE_ONCE(c->segments[i].mirror, LARDER_NO_SEGMENT);
}

/*
 * Every segment's state: chunks of the named checkpoints; with something live: sealed, in order of age; with records that a replay
 * from a named checkpoint may need: waiting; free.
 */
static int start_segments(struct start *s)
{
	struct cache *c = s->c;
	struct aged *aged = vmalloc_array(c->nr_segments, sizeof(*aged));	/* may be more than 2 GiB */
	u32 i, n = 0;
	int err = 0;

	if (!aged)
		return -ENOMEM;
	err = start_named_segments(s, s->used);
	for (i = 0; i < LARDER_NR_CHECKPOINTS && !err; i++)
		if (i != s->used)
			err = start_named_segments(s, i);
	for (i = 0; i < c->nr_segments && !err; i++) {
		struct segment *seg = &c->segments[i];

		cond_resched();
		seg->born = 0;
		seg->emptied = 0;	/* what a named checkpoint maps to it, its log removes again */
		seg->has_summary = true;
		/* what it waited for (segment_info()) was over when the log made it a copy, and it has no records of its own */
		if (s->r.mirror_of[i] && replay_reopened(&s->r, i))
			seg->sequence = 0;
		if (seg->state == SEGMENT_CHECKPOINT)
			seg->sequence = 0;
		else if (atomic_read(&seg->live))
			aged[n++] = (struct aged){ .sequence = seg->sequence, .segment = i };
		else if (seg->sequence && seg->sequence >= c->keep_sequence)
			segment_set_state(c, i, SEGMENT_WAITING);
		else
			seg->sequence = 0;
	}
	sort(aged, n, sizeof(*aged), aged_compare, NULL);
	for (i = 0; i < n && !err; i++) {
		segment_set_state(c, aged[i].segment, SEGMENT_SEALED);
		cond_resched();
	}
	vfree(aged);
	if (!err)
		start_copies(s);
	return err;
}

/* What only SSDs have that are not there: clean extents go; with a dirty one there is no start. */
static int start_lost(struct cache *c)
{
	u32 clean = 1u << LARDER_ST_CLEAN, mask = clean | 1u << LARDER_ST_DIRTY;
	struct larder_map m;
	struct volume *v;
	u64 from;
	u32 i;
	int err;

	for (i = 0; i < LARDER_MAX_VOLUMES && c->nr_failed; i++) {
		v = c->volumes[i];
		for (from = 0; v && larder_index_next(v->index, from, v->sectors, mask, &m); from = m.sector + m.len) {
			if (!segment_lost(c, cache_segment(c, m.cache)))
				continue;
			if (m.state != LARDER_ST_CLEAN) {
				DMERR("cache %pUb: only SSD %u, which is missing, has dirty data of volume %pUb: add it",
				      c->uuid, (u32)(segment_device(c, cache_segment(c, m.cache)) - c->dev), v->uuid);
				return -ENODATA;
			}
			err = replay_drop(v, m.sector, m.sector + m.len, clean);
			if (err)
				return err;
			cond_resched();
		}
	}
	return 0;
}

static void start_keep(struct start *s)
{
	struct cache *c = s->c;
	unsigned int i;

	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		c->named[i] = s->old[i];
	checkpoint_set_keep(c);
	checkpoint_set_reserve(c, checkpoint_estimate(c));
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		memset(&c->named[i], 0, sizeof(c->named[i]));
}

/* ------------------------------------------------------------------ the new epoch */

/*
 * A superblock of the state that was found, but for what is given up.  Behind it free segments are written to, of which that state
 * maps nothing; but what is clean may be mapped there by less than was found: the log of fills, where that is on an SSD which the
 * next start lacks, or the older checkpoint, as reclaim tells nobody what it drops.  A start that comes to its end says otherwise.
 */
static int start_rewrite(struct start *s, u32 flags)
{
	struct cache *c = s->c;
	unsigned int i;
	int err;

	mutex_lock(&c->super_lock);
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		c->named[i] = s->old[i];
	swap(c->epoch, s->r.epoch);
	err = cache_super_write(c, flags | LARDER_CACHE_DROP_CLEAN);
	swap(c->epoch, s->r.epoch);
	memset(c->named, 0, sizeof(c->named));
	mutex_unlock(&c->super_lock);
	return err;
}

/*
 * The superblock that was found, in both copies of every member, before anything is reused that an older one of them names (what it
 * loaded from is protected, no more).  A power cut meanwhile leaves each copy as it was, or torn beside a whole one, or with the
 * newest: nothing was given up yet, so whichever counts then has all it names.  Always: two writes cost less than to be wrong about
 * what is in the copies, and what could not be read is written, too.
 */
static int start_superblock_settle(struct start *s)
{
	return start_rewrite(s, s->flags & LARDER_CACHE_CLEAN_STOP);
}

/* Only the checkpoint that was loaded stays. */
static int start_give_up_older(struct start *s)
{
	struct named_checkpoint given_up;
	int err;

	if (s->used)
		swap(s->old[0], s->old[1]);
	s->used = 0;
	given_up = s->old[1];
	if (!given_up.sequence)
		return 0;
	memset(&s->old[1], 0, sizeof(s->old[1]));
	err = start_rewrite(s, 0);
	if (err) {
		kvfree(given_up.segments);
		return err;
	}
	checkpoint_free(s->c, &given_up);
	start_keep(s);
	segments_release(s->c);
	return 0;
}

static int start_give_up_clean(struct start *s)
{
	struct cache *c = s->c;
	u32 i;
	int err;

	if (s->flags & LARDER_CACHE_DROP_CLEAN)
		return -ENOSPC;
	DMWARN("%pg: no room for a checkpoint: everything clean is dropped from the cache", cache_bdev(c));
	s->flags |= LARDER_CACHE_DROP_CLEAN;
	err = start_rewrite(s, 0);
	if (!err)
		err = start_drop_clean(c);
	for (i = 0; i < c->nr_segments && !err; i++)
		if (c->segments[i].state == SEGMENT_SEALED && !atomic_read(&c->segments[i].live))
			segment_set_state(c, i, SEGMENT_WAITING);
	if (!err)
		segments_release(c);
	return err;
}

/* Opened segments for the new epoch, and its first checkpoint. */
static int start_checkpoint(struct start *s, struct named_checkpoint *n)
{
	struct cache *c = s->c;
	unsigned int attempt, passed = 0;
	u64 position;
	int err;

	for (attempt = 0;; attempt++) {
		do {
			err = segments_open_initial(c);
			if (!err)
				err = checkpoint_write(c, n, CHECKPOINT_AT_ONCE, &position);
			/* the free segments are in the same order each time: or one bad place would be the end of all starts */
		} while (err && err != -ENOSPC && ++passed < START_PASSES && checkpoint_met_bad_place(c));
		if (!err) {
			c->log_bytes_at_checkpoint = position;
			return cache_flush_ssds(c);
		}
		if (err != -ENOSPC || s->fresh || attempt == 3)
			return err;
		if (attempt == 0)
			err = start_give_up_older(s);
		else if (attempt == 1)
			WRITE_ONCE(c->reserve_checkpoint, 0);
		else
			err = start_give_up_clean(s);
		if (err && err != -ENOSPC)
			return err;
	}
}

static void start_new_epoch(struct start *s, struct larder_epoch *epoch)
{
	struct cache *c = s->c;
	u64 next = s->r.highest + 1 + SEQUENCE_GAP;

	c->secret = get_random_u64();
	c->epoch++;
	c->hash = larder_log_hash(c->uuid, c->secret);
	log_reset(c, next);
	memset(epoch, 0, sizeof(*epoch));
	epoch->epoch = cpu_to_le32(c->epoch);
	epoch->secret = cpu_to_le64(c->secret);
	epoch->first_sequence = cpu_to_le64(next);
}

/*
 * Members are missing: the set without them is durable before the first read (generation-at-start), and before anything is written
 * over: one of them may have a newer superblock, which maps what is free by ours.  Not before our superblocks are what was found:
 * up to there nothing is different, and a start that ends in an error, or by a power cut, has barred nobody.
 */
static int start_raise(struct cache *c)
{
	int err;

	mutex_lock(&c->super_lock);
	set_raise(c);
	err = cache_table_write(c);
	mutex_unlock(&c->super_lock);
	DMWARN("cache %pUb: starts without %u of its %u SSDs, which are members no more: set generation %llx", c->uuid,
	       c->nr_failed, c->nr_devices, c->set_generation);
	return err;
}

/* Rules 8 and 10: epoch and checkpoint, named at once; then what the old ones needed is free. */
static int start_serve(struct start *s)
{
	struct cache *c = s->c;
	struct named_checkpoint n = { };
	struct larder_epoch epoch;
	unsigned int i;
	int err;

	start_new_epoch(s, &epoch);
	/* the superblock that names what is opened now says so, too */
	if (c->set.mirror == MIRROR_DIRTY_3)
		c->third = c->third_durable = true;
	err = start_checkpoint(s, &n);
	if (err) {
		DMERR("%pg: the checkpoint of a new epoch could not be written: %s (error %d); the cache is not started",
		      cache_bdev(c),
		      err == -ENOSPC && s->fresh ?
			      "too few pairs of segments for it and the log: give a larger SSD for the smallest, or mirror=none" :
		      err == -ENOSPC ? "no free segment; drain it with the rescue tool" : "see above", err);
		goto out;
	}
	epoch.segment =
		cpu_to_le32(c->log.stream[LARDER_STREAM_WRITE].opened.segment[c->log.stream[LARDER_STREAM_WRITE].opened.head]);
	mutex_lock(&c->super_lock);
	for (i = 0; i < c->nr_devices; i++) {
		struct larder_cache_sb *sb = c->dev[i].sb;

		memmove(&sb->epochs[1], &sb->epochs[0], (LARDER_NR_EPOCHS - 1) * sizeof(sb->epochs[0]));
		sb->epochs[0] = epoch;
	}
	c->named[0] = n;
	c->third_until = n.sequence;
	err = cache_super_write(c, 0);
	/* that what was there before this start is older from now on: else it says so by that of start_superblock_settle() */
	if (!err && (s->fresh || s->degraded) && c->nr_devices - c->nr_failed > 1)
		cache_super_write(c, 0);
	mutex_unlock(&c->super_lock);
	if (err) {
		c->named[0] = (struct named_checkpoint){ };
		goto out;
	}
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		checkpoint_free(c, &s->old[i]);
	WRITE_ONCE(c->checkpoint_tried, 0);
	checkpoint_set_keep(c);
	checkpoint_set_reserve(c, 0);
	segments_release(c);
	return 0;
out:
	kvfree(n.segments);
	return err;
}

/* Volumes that were being forgotten: the only checkpoint has nothing of them, and no log. */
static void start_forget(struct cache *c)
{
	u32 i, n = le32_to_cpu(c->table->head.nr_volumes), forgotten = 0;

	for (i = 0; i < n; i++) {
		if (le32_to_cpu(c->table->volumes[i].state) != LARDER_VOLUME_FORGETTING)
			continue;
		memset(&c->table->volumes[i], 0, sizeof(c->table->volumes[i]));
		forgotten++;
	}
	if (!forgotten)
		return;
	mutex_lock(&c->super_lock);
	if (cache_table_write(c))
		DMWARN("%pg: %u forgotten volumes stay in the table until the next start", cache_bdev(c), forgotten);
	mutex_unlock(&c->super_lock);
}

/* An error leaves every member as it was found: none leaves the set before there is one to be served (set_flush_failed()). */
static int start_flush(struct cache *c)
{
	int err = cache_flush_ssds(c);

	if (err)
		DMERR("cache %pUb: not started: an SSD cannot be flushed (error %d): check it, or give '-' in its place", c->uuid,
		      err);
	return err;
}

/* A change of the tables that was cut off is on some members only: it is on all before it bars the others (mirror.md, Start 6). */
static int start_tables(struct cache *c)
{
	int err;

	mutex_lock(&c->super_lock);
	err = cache_table_settle(c);
	mutex_unlock(&c->super_lock);
	return err;
}

/* An SSD grew, and the power failed before the tables knew of it: they do before a segment of it is opened (rule 15). */
static int start_grown(struct cache *c)
{
	struct cache_device *d;
	bool any = false;
	int err = 0;
	u32 i;

	mutex_lock(&c->super_lock);
	for (i = 0; i < c->nr_devices; i++) {
		struct larder_table_device *e = &c->table->devices[i];

		d = &c->dev[i];
		if (d->failed)
			continue;
		if (bdev_nr_sectors(d->bdev) > le64_to_cpu(d->sb->head.device_sectors))
			cache_super_drop_ahead(c, d);
		if (le32_to_cpu(e->nr_segments) == d->nr_segments)
			continue;
		DMINFO("%pg: SSD %u of cache %pUb has %u segments now, %u before", d->bdev, i, c->uuid, d->nr_segments,
		       le32_to_cpu(e->nr_segments));
		e->nr_segments = cpu_to_le32(d->nr_segments);
		any = true;
	}
	if (any)
		err = cache_table_write(c);
	mutex_unlock(&c->super_lock);
	return err;
}

/* ------------------------------------------------------------------ all of it */

static int start_run(struct start *s)
{
	struct cache *c = s->c;
	unsigned int i;
	int err;

	err = start_superblocks(s);
	if (!err)
		err = replay_create(&s->r, c);
	if (!err)
		err = start_replay(s);
	if (!err)
		err = start_counters(s);
	if (err)
		return err;
	for (i = 0; i < LARDER_NR_CHECKPOINTS && !err; i++)
		if (i != s->used)
			err = checkpoint_protect(s, &s->old[i]);
	if (err)
		return err;
	start_keep(s);
	start_link_early(s);
	err = start_lost(c);
	start_unlink(s);
	if (!err)
		err = start_marks(s);
	if (!err && s->flags & LARDER_CACHE_DROP_CLEAN)
		err = start_drop_clean(c);
	if (!err)
		err = start_segments(s);
	/* once more, by the copies that it serves with: those that the replay knew are them all, or nothing is written */
	if (!err)
		err = start_lost(c);
	if (!err)
		err = replay_repair(&s->r);	/* from here on something is written */
	if (!err)
		err = start_flush(c);
	if (!err)
		err = start_tables(c);
	if (!err)
		err = start_grown(c);
	s->r.epoch = c->epoch;	/* what start_rewrite() writes; not needed for replay any more */
	if (!err && !s->fresh)
		err = start_superblock_settle(s);
	if (!err && s->degraded)
		err = start_raise(c);
	return err ?: start_serve(s);
}

int cache_start(struct cache *c)
{
	struct start *s = kvzalloc(sizeof(*s), GFP_NOIO);
	unsigned int noio = memalloc_noio_save(), i;
	ktime_t began = ktime_get();
	int err = -ENOMEM;

	if (!s)
		goto out;
	s->c = c;
	s->r.c = c;
	err = start_run(s);
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		kvfree(s->old[i].segments);
	c->replayed_records = s->r.records;
	c->replayed_bytes = s->r.slots * LARDER_SLOT_SIZE;
	c->start_ms = ktime_ms_delta(ktime_get(), began);
	if (err) {
		start_unload(s);
	} else {
		start_forget(c);
		c->set_durable = c->set_generation;
		flushers_started(c);
		c->started = true;
		DMINFO(
			"%pg: cache %pUb started in %llu ms: epoch %u, %llu records (%llu KiB) replayed, %lld sectors cached, %lld of them dirty",
			cache_bdev(c), c->uuid, c->start_ms, c->epoch, c->replayed_records, c->replayed_bytes >> 10,
			(long long)atomic64_read(&c->live_sectors), (long long)atomic64_read(&c->dirty_sectors));
		if (s->r.repaired)
			DMINFO("%pg: %llu records of the log were whole on one SSD only, and are on both now", cache_bdev(c),
			       (u64)s->r.repaired);
		if (s->r.damaged)
			DMWARN("%pg: %llu records of the log had damaged data", cache_bdev(c), s->r.damaged);
	}
	replay_destroy(&s->r);
	kvfree(s);
out:
	memalloc_noio_restore(noio);
	return err;
}
