// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checkpoints (rule 8): a fuzzy snapshot of all indexes and marks, written in chunks into segments of its own, then named by the
 * superblock.
 *
 * Steps, and what a power cut finds:
 *  1. Capture, in one hold of log->lock: S, the next sequence number; where each stream's next record will stand and what precedes
 *     it; the opened segments. Records that are open get their number when they are closed: S or later.
 *  2. Wait until every record before S is applied (write stream) or complete (fill, keep).  From now on the indexes show all of
 *     them.
 *  3. Copy marks, segments and indexes, region by region, while everything goes on; write the chunks into free segments
 *     (SEGMENT_CHECKPOINT). Until here nothing names them: a power cut leaves the old checkpoints, their chunks and their logs,
 *     which keep_sequence protects.  The old checkpoints, and what is copied of this one already, may map to a segment that became
 *     free since: a chunk goes there only behind a durable SEGMENT_OPEN, which drops that (model: chunks-logged).  A segment that
 *     was free when the older one of the two named began needs none.
 *  4. log_sync() and a flush of every SSD: the chunks are durable, and so is, commit block included, every record that an index
 *     showed in step 3.
 *  5. Superblock: the new one becomes [0], what was [0] becomes [1].  A power cut here finds the old superblock or the new one
 *     (super.c), each with all it needs.
 *  6. Only then are the chunks of what was [1] given up, and keep_sequence becomes the replay start of the new [1], so that
 *     segments in which only older records lie may be reused.
 * Replay of the records from S on over this snapshot ends in the right state though the snapshot shows some of them: all stores in
 * a replay are unconditional and in order, a CLEAN names its mapping exactly, and what a reused segment once held is dropped
 * (recover.c).  A SEGMENT_OPEN may stand both in the list of step 1 and in a record that is replayed: replay ignores it the second
 * time.
 *
 * The marks are copied in step 3, and those being set count: a mark whose record is before S is on the list from then on, one whose
 * clearing was applied is not, and everything later is replayed.
 *
 * When the superblock cannot be written, nobody knows which one is on the SSD: 'doubtful' keeps the new chunks, named[] the old
 * ones, until a superblock that names the old ones again is durable.
 *
 * Locks: checkpoint_lock (one at a time) > super_lock; copies_lock > log->lock in step 1; segments_lock in batches.  Runs under
 * memalloc_noio (rule 12).
 */
#include <linux/delay.h>
#include <linux/sched/mm.h>

#include "larder.h"
#include "trace.h"

#define INFO_BATCH	256u

struct snapshot {
	u64 sequence;			/* S */
	u64 position;			/* log->position at the capture */
	u64 lsn;			/* of the last closed record of the write stream */
	struct larder_pos_in pos[LARDER_NR_STREAMS];
	bool pinned[LARDER_NR_STREAMS];	/* prev_crc is known when step 2 is over */
	u64 *opened[LARDER_NR_STREAMS];	/* as an OPEN item has them */
	u32 *third[LARDER_NR_STREAMS];	/* third copy of each + 1, 0: none */
	u32 nr_opened[LARDER_NR_STREAMS];
};

struct writer {
	struct cache *c;
	struct named_checkpoint *n;
	struct larder_chunk *chunk;
	u64 *values;			/* LARDER_REGION_SECTORS of them */
	struct larder_segment_in *infos;	/* INFO_BATCH */
	u32 number;			/* of the chunk */
	u32 segment, in_segment;	/* where it goes: the in_segment'th chunk there, and in its further copies */
	u32 size_segments;		/* of n->segments */
	u64 records;			/* extents written */
	u32 failed;			/* segment, or copy, that took no chunk, or LARDER_NO_SEGMENT */
	enum checkpoint_pace pace;
};

/* ------------------------------------------------------------------ step 1 and 2 */

static int snapshot_alloc(struct cache *c, struct snapshot *s)
{
	unsigned int i;

	memset(s, 0, sizeof(*s));
	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		s->opened[i] = kcalloc(c->log.stream[i].opened.size, sizeof(u64), GFP_KERNEL);
		s->third[i] = kcalloc(c->log.stream[i].opened.size, sizeof(u32), GFP_KERNEL);
		if (!s->opened[i] || !s->third[i])
			return -ENOMEM;
	}
	return 0;
}

static void snapshot_free(struct snapshot *s)
{
	unsigned int i;

	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		kfree(s->third[i]);
		kfree(s->opened[i]);
	}
}

/* log->lock held.  r: the stream's open record, or NULL. */
static void snapshot_stream(struct cache *c, struct snapshot *snap, struct stream *s, const struct record *r)
{
	struct larder_pos_in *pos = &snap->pos[s->number];
	const struct opened_list *o = &s->opened;
	u32 i;

	pos->segment = r ? r->segment : s->segment;
	pos->slot = r ? r->first : s->head;
	pos->prev_sequence = s->last_sequence;
	pos->prev_crc = 0;
	s->pinned_sequence = 0;
	if (s->last_sequence && s->built_sequence == s->last_sequence) {
		pos->prev_crc = s->built_crc;
	} else if (s->last_sequence) {
		s->pinned_sequence = s->last_sequence;
		snap->pinned[s->number] = true;
	}
	for (i = 0; i < o->count; i++) {
		u32 segment = o->segment[(o->head + i) % o->size];
		u64 further = segment_names(c, segment);

		snap->opened[s->number][i] = segment | (u64)larder_second(further) << 32;
		snap->third[s->number][i] = larder_third(further);
	}
	snap->nr_opened[s->number] = o->count;
}

static void snapshot_capture(struct cache *c, struct snapshot *snap)
{
	struct log *log = &c->log;
	unsigned int i;

	log_close_open(c, CLOSE_ASKED);
	copies_close(c, LARDER_STREAM_FILL);
	copies_close(c, LARDER_STREAM_KEEP);
	mutex_lock(&c->copies_lock);		/* open_copies[] */
	spin_lock_irq(&log->lock);
	snap->sequence = log->next_sequence;
	snap->position = log->position;
	snap->lsn = (log->open ? log->open->lsn : log->next_lsn) - 1;
	for (i = 0; i < LARDER_NR_STREAMS; i++)
		snapshot_stream(c, snap, &log->stream[i], i == LARDER_STREAM_WRITE ? log->open : c->open_copies[i]);
	WRITE_ONCE(c->captured_segment, snap->pos[LARDER_STREAM_WRITE].segment);
	spin_unlock_irq(&log->lock);
	mutex_unlock(&c->copies_lock);
}

/* Is every record of fill and keep before this sequence number complete? */
static bool copies_complete(struct cache *c, u64 sequence)
{
	struct log *log = &c->log;
	const struct record *r;
	bool complete = true;

	spin_lock_irq(&log->lock);
	list_for_each_entry(r, &log->copies, list)
		if (r->sequence < sequence) {
			complete = false;
			break;
		}
	spin_unlock_irq(&log->lock);
	return complete;
}

static int snapshot_wait(struct cache *c, struct snapshot *snap)
{
	struct log *log = &c->log;
	unsigned int i;
	int err;

	err = log_wait_applied(c, snap->lsn);
	if (err)
		return err;
	wait_event(log->wait, copies_complete(c, snap->sequence) || READ_ONCE(c->state) == CACHE_FAILED);
	if (READ_ONCE(c->state) == CACHE_FAILED)
		return -EIO;
	spin_lock_irq(&log->lock);
	for (i = 0; i < LARDER_NR_STREAMS; i++) {
		if (snap->pinned[i])
			snap->pos[i].prev_crc = log->stream[i].pinned_crc;
		log->stream[i].pinned_sequence = 0;
	}
	spin_unlock_irq(&log->lock);
	/* whose INVALIDATE is before S has the range out of the index (invalidate-shown; bypass.c) */
	synchronize_rcu();
	return 0;
}

/* ------------------------------------------------------------------ step 3: chunks */

static int writer_note_segment(struct writer *w, u32 segment)
{
	struct named_checkpoint *n = w->n;
	u32 size, *to;

	if (n->nr_segments == w->size_segments) {
		size = w->size_segments ? w->size_segments * 2 : 16;
		to = kvmalloc_array(size, sizeof(u32), GFP_KERNEL);
		if (!to)
			return -ENOMEM;
		if (n->segments)
			memcpy(to, n->segments, n->nr_segments * sizeof(u32));
		kvfree(n->segments);
		n->segments = to;
		w->size_segments = size;
	}
	n->segments[n->nr_segments++] = segment;
	return 0;
}

/* Replay drops what a checkpoint that is, or will be, named maps to the segment, before a chunk is written over it (rule 9). */
static int writer_open_segment(struct writer *w, u32 segment)
{
	struct larder_entry_in e = {
		.kind = LARDER_SEGMENT_OPEN, .length = LARDER_OPEN_CHUNKS, .sector = segment,
		.cache = segment_names(w->c, segment),
	};
	int err;

	/* a replay would not come to it */
	if (READ_ONCE(w->c->doubt.on) && !READ_ONCE(w->c->doubt.behind))
		return -ENOSPC;
	err = log_entry(w->c, &e, NULL);
	if (err)
		return err == -EAGAIN ? -ENOSPC : err;
	cache_count(w->c, chunk_opens, 1);
	err = log_sync(w->c);
	/* or the log has a hole again, in front of it */
	return err ?: doubt_is_vain(w->c) ? -EIO : 0;
}

/* -ENOSPC: no free segment, not even of the reserve, or no room in the log. */
static int writer_take_segment(struct writer *w, u32 *segment)
{
	int err;

	*segment = segment_take_free(w->c, SEGMENT_CHECKPOINT, LARDER_STREAM_WRITE);
	if (*segment == LARDER_NO_SEGMENT) {
		WRITE_ONCE(w->c->checkpoint_tried, w->n->nr_segments + 1);
		reclaim_kick(w->c);
		return -ENOSPC;
	}
	err = writer_note_segment(w, *segment);
	if (err) {
		segment_set_state(w->c, *segment, SEGMENT_FREE);
		return err;
	}
	return segment_may_be_mapped(w->c, *segment) ? writer_open_segment(w, *segment) : 0;
}

static int writer_begin(struct writer *w, struct cache *c, struct named_checkpoint *n, const struct snapshot *snap)
{
	int err;

	w->c = c;
	w->n = n;
	w->chunk = kvmalloc(sizeof(*w->chunk), GFP_KERNEL);
	w->values = kvmalloc_array(LARDER_REGION_SECTORS, sizeof(u64), GFP_KERNEL);
	w->infos = kmalloc_array(INFO_BATCH, sizeof(*w->infos), GFP_KERNEL);
	if (!w->chunk || !w->values || !w->infos)
		return -ENOMEM;
	memset(n, 0, sizeof(*n));
	/* before segments_lock is taken for the first time: what loses its second copy behind that sees it (known_to) */
	n->sequence = ++c->checkpoint_sequence;
	n->replay_sequence = snap->sequence;
	n->replay_segment = snap->pos[LARDER_STREAM_WRITE].segment;
	n->epoch = c->epoch;
	n->hash = larder_checkpoint_hash(c->uuid, c->secret, n->sequence);
	err = writer_take_segment(w, &w->segment);
	n->first_segment = w->segment;
	n->first_further = err ? 0 : segment_names(c, w->segment);
	larder_chunk_init(w->chunk, n->sequence, 0);
	return err;
}

static void writer_end(struct writer *w)
{
	kfree(w->infos);
	kvfree(w->values);
	kvfree(w->chunk);
}

/* To all copies of the segment.  Those that were taken together stay so: a chunk that one of them lacks is no checkpoint. */
static int writer_write(struct writer *w)
{
	struct cache *c = w->c;
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, w->segment, copy), i;
	struct cache_device *d;
	sector_t where;
	int err;

	for (i = 0; i < n; i++) {
		d = chunk_place(c, copy[i], w->in_segment, &where);
		if (!device_written(d))
			return -EIO;
		err = cache_device_write(c, d, REQ_OP_WRITE | REQ_META, where, w->chunk, LARDER_CHUNK_SIZE);
		if (!err)
			continue;
		DMERR("%pg: cannot write a checkpoint at sector %llu: error %d; the one before it stays valid", d->bdev,
		      (unsigned long long)where, err);
		w->failed = copy[i];
		return err;
	}
	return 0;
}

/* At most 5 % of the SSD's time, unless somebody waits for it. */
static void writer_pause(struct writer *w, u64 took_ns)
{
	unsigned int us;

	if (w->pace != CHECKPOINT_GENTLY || READ_ONCE(w->c->want_checkpoint))
		return;
	us = min_t(u64, div_u64(took_ns, NSEC_PER_USEC) * 19, 50 * USEC_PER_MSEC);
	if (us > 10)
		usleep_range(us, us + us / 4);
}

static int writer_put_chunk(struct writer *w, bool last)
{
	u32 next = LARDER_NO_SEGMENT, per_segment = w->c->segment_sectors / CHUNK_SECTORS;
	u64 began;
	int err;

	if (w->pace == CHECKPOINT_GENTLY && (READ_ONCE(w->c->stopping) || READ_ONCE(w->c->suspending)))
		return -ECANCELED;
	if (!last && w->in_segment + 1 == per_segment) {
		err = writer_take_segment(w, &next);
		if (err)
			return err;
	}
	larder_chunk_finish(w->chunk, w->n->hash, next, next == LARDER_NO_SEGMENT ? 0 : segment_names(w->c, next));
	began = ktime_get_ns();
	err = writer_write(w);
	if (err)
		return err;
	w->n->bytes += LARDER_CHUNK_SIZE;
	w->in_segment++;
	if (next != LARDER_NO_SEGMENT) {
		w->segment = next;
		w->in_segment = 0;
	}
	larder_chunk_init(w->chunk, w->n->sequence, ++w->number);
	writer_pause(w, ktime_get_ns() - began);
	cond_resched();
	return 0;
}

/* One item that may not be divided. */
static int put_values(struct writer *w, u8 kind, u16 volume, u64 number, const u64 *values, u32 count)
{
	int err = larder_chunk_add_u64(w->chunk, kind, volume, number, values, count);

	if (err != -ENOSPC)
		return err;
	err = writer_put_chunk(w, false);
	return err ?: larder_chunk_add_u64(w->chunk, kind, volume, number, values, count);
}

/* As many items as it takes. */
static int put_list(struct writer *w, u8 kind, u16 volume, const u64 *values, u32 count)
{
	int err = 0;
	u32 n;

	while (count && !err) {
		n = min(larder_chunk_room(w->chunk, sizeof(*values)), count);
		if (n) {
			err = larder_chunk_add_u64(w->chunk, kind, volume, 0, values, n);
			values += n;
			count -= n;
		} else {
			err = writer_put_chunk(w, false);
		}
	}
	return err;
}

/* One that has a third copy is in an item of its own, which names that. */
static int put_opened(struct writer *w, u8 stream, const struct snapshot *snap)
{
	const u64 *opened = snap->opened[stream];
	const u32 *third = snap->third[stream];
	u32 i, n, nr = snap->nr_opened[stream];
	int err = 0;

	for (i = 0; i < nr && !err; i += n) {
		for (n = 0; i + n < nr && !third[i + n]; )
			n++;
		if (n) {
			err = put_list(w, LARDER_ITEM_OPEN, stream, opened + i, n);
		} else {
			n = 1;
			err = put_values(w, LARDER_ITEM_OPEN, stream, third[i], opened + i, n);
		}
	}
	return err;
}

static int put_streams(struct writer *w, const struct snapshot *snap)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < LARDER_NR_STREAMS && !err; i++) {
		err = larder_chunk_add_pos(w->chunk, i, &snap->pos[i]);	/* the first chunk is empty: all of this fits */
		if (!err)
			err = put_opened(w, i, snap);
	}
	return err;
}

/* Of a second copy of what may be replayed, or is mapped: the third one, which only it names; + 1, 0: none.  segments_lock held. */
static u32 third_number(const struct cache *c, u32 segment)
{
	u32 copy[SEGMENT_COPIES], first, n;

	if (c->segments[segment].state != SEGMENT_MIRROR)
		return 0;
	first = segment_first(c, segment);
	n = segment_ring(c, first, copy);
	return n > 2 && copy[1] == segment && c->segments[first].state != SEGMENT_CHECKPOINT ? copy[2] + 1 : 0;
}

/* A further copy that was given up waits behind a start too, until nothing named knows it any more: as if used from replay on. */
static void segment_info(const struct cache *c, u32 segment, u64 replay, struct larder_segment_in *info)
{
	const struct segment *seg = &c->segments[segment];
	u8 prefer = READ_ONCE(seg->prefer_mirror);

	info->stream = seg->stream;
	info->flags = prefer >= PREFER_MIRROR ? LARDER_SEGMENT_FIRST_UNSURE :
		      copies_unsure(prefer) ? LARDER_SEGMENT_COPIES_UNSURE : 0;
	info->mirror = larder_second(segment_names(c, segment));
	info->sequence = seg->state == SEGMENT_WAITING && seg->known_to ? max(seg->sequence, replay) : seg->sequence;
	switch (seg->state) {
	case SEGMENT_FREE:
	case SEGMENT_LOST:
	case SEGMENT_MIRROR:
	case SEGMENT_CHECKPOINT:
		info->state = LARDER_SEGMENT_FREE;
		info->mirror = third_number(c, segment);
		info->stream = 0;
		info->flags = seg->state == SEGMENT_MIRROR && prefer >= PREFER_MIRROR ? LARDER_SEGMENT_COPY_UNSURE : 0;
		info->sequence = 0;
		break;
	case SEGMENT_OPENING:
	case SEGMENT_OPENED:
		info->state = LARDER_SEGMENT_OPENED;
		break;
	default:
		info->state = LARDER_SEGMENT_USED;
		break;
	}
}

static int put_segments(struct writer *w)
{
	struct cache *c = w->c;
	u32 first, n, i;
	int err = 0;

	for (first = 0; first < c->nr_segments && !err; first += n) {
		n = min3(larder_chunk_room(w->chunk, sizeof(struct larder_segment_info)), c->nr_segments - first, INFO_BATCH);
		if (!n) {
			err = writer_put_chunk(w, false);
			continue;
		}
		spin_lock_irq(&c->segments_lock);
		for (i = 0; i < n; i++)
			segment_info(c, first + i, w->n->replay_sequence, &w->infos[i]);
		spin_unlock_irq(&c->segments_lock);
		err = larder_chunk_add_segments(w->chunk, first, w->infos, n);
	}
	return err;
}

/* All set marks in one copy: between two their order may change. */
static int put_marks(struct writer *w, struct volume *v)
{
	u32 size = READ_ONCE(v->nr_marks) + 64, n;
	u64 *regions;
	int err;

	for (;; size *= 2) {
		regions = kvmalloc_array(size, sizeof(u64), GFP_KERNEL);
		if (!regions)
			return -ENOMEM;
		n = marks_copy(v, regions, size, 0);
		if (n < size)
			break;
		kvfree(regions);
	}
	err = put_list(w, LARDER_ITEM_MARKS, v->number, regions, n);
	kvfree(regions);
	return err;
}

/* On disk CLEANING is DIRTY: nobody recorded that it was written back. */
static void extents_to_disk(u64 *extents, u32 n)
{
	u8 state, to;
	u32 i;

	for (i = 0; i < n; i++) {
		state = larder_extent_state(extents[i]);
		if (state == LARDER_ST_CLEANING)
			to = LARDER_ST_DIRTY;
		else if (state == LARDER_ST_ZERO_CLEANING)
			to = LARDER_ST_ZERO;
		else
			continue;
		extents[i] = larder_extent_pack(larder_extent_first(extents[i]), larder_extent_len(extents[i]), to,
						larder_extent_cache(extents[i]));
	}
}

static int put_index(struct writer *w, struct volume *v)
{
	u64 region;
	u32 n, done = 0;
	int err = 0;

	for (region = 0; !err; region++) {
		n = larder_index_copy_region(v->index, &region, w->values);
		if (!n)
			break;
		extents_to_disk(w->values, n);
		err = put_values(w, LARDER_ITEM_REGION, v->number, region, w->values, n);
		if (!(++done % 64))
			cond_resched();
	}
	return err;
}

/* Counted, or NULL. */
static struct volume *volume_of_number(struct cache *c, u32 number)
{
	struct volume *v;

	mutex_lock(&c->super_lock);
	v = c->volumes[number];
	if (v)
		volume_get(v);
	mutex_unlock(&c->super_lock);
	return v;
}

static int put_volumes(struct writer *w, int (*put)(struct writer *w, struct volume *v))
{
	struct volume *v;
	u32 i;
	int err = 0;

	for (i = 0; i < LARDER_MAX_VOLUMES && !err; i++) {
		if (!READ_ONCE(w->c->volumes[i]))
			continue;
		v = volume_of_number(w->c, i);
		if (!v)
			continue;
		err = put(w, v);
		volume_put(v);
	}
	return err;
}

static int put_end(struct writer *w)
{
	int err = larder_chunk_add_end(w->chunk);

	if (err == -ENOSPC) {
		err = writer_put_chunk(w, false);
		if (!err)
			err = larder_chunk_add_end(w->chunk);
	}
	return err ?: writer_put_chunk(w, true);
}

bool checkpoint_met_bad_place(const struct cache *c)
{
	return c->chunk_failed != LARDER_NO_SEGMENT;
}

#define BAD_PLACES(d)	min((d)->nr_segments / 32, 64u)	/* that are passed over, at most: then the SSD takes nothing */

/*
 * The place of an SSD that stays where a chunk could not be written.  Free segments are taken in an order that makes the next
 * checkpoint come to it again: where it fails a second time it is not used any more until the next start.  One that a checkpoint
 * may still map to data goes to the end of that order, where writes would come to it first: at once.
 */
static void checkpoint_pass_over(struct writer *w)
{
	struct cache *c = w->c;
	struct named_checkpoint *n = w->n;
	u32 bad = w->failed, other, i;
	bool again = bad == c->chunk_failed;
	struct cache_device *d;

	c->chunk_failed = bad;
	if (bad == LARDER_NO_SEGMENT || (!again && !segment_may_be_mapped(c, bad)))
		return;
	d = segment_device(c, bad);
	if (!device_written(d) || READ_ONCE(d->nr_lost) >= BAD_PLACES(d))
		return;
	DMWARN("cache %pUb: segment %u takes no checkpoint: it is not used until the next start", c->uuid, bad);
	other = segment_pass_over(c, bad);
	for (i = 0; i < n->nr_segments; i++)
		if (n->segments[i] == bad)
			break;
	if (i < n->nr_segments)	/* what is first of its copies stands for all of them */
		n->segments[i] = other != LARDER_NO_SEGMENT ? other : n->segments[--n->nr_segments];
}

/* Steps 1 to 3.  *n is valid afterwards, and its segments taken; on error it is empty.  *position: log->position at the capture. */
int checkpoint_write(struct cache *c, struct named_checkpoint *n, enum checkpoint_pace pace, u64 *position)
{
	struct writer w = { .pace = pace, .failed = LARDER_NO_SEGMENT };
	struct snapshot snap;
	int err;

	memset(n, 0, sizeof(*n));
	err = snapshot_alloc(c, &snap);
	if (err)
		goto out;
	snapshot_capture(c, &snap);
	err = snapshot_wait(c, &snap);
	if (err)
		goto out;
	*position = snap.position;
	err = writer_begin(&w, c, n, &snap);
	if (!err)
		err = put_streams(&w, &snap);
	if (!err)
		err = put_volumes(&w, put_marks);
	if (!err)
		err = put_segments(&w);
	if (!err)
		err = put_volumes(&w, put_index);
	if (!err)
		err = put_end(&w);
	writer_end(&w);
	if (w.c)
		checkpoint_pass_over(&w);
	if (err)
		checkpoint_free(c, n);
out:
	WRITE_ONCE(c->captured_segment, LARDER_NO_SEGMENT);
	snapshot_free(&snap);
	return err;
}

/* Its segments are free again: nothing on disk names it. */
void checkpoint_free(struct cache *c, struct named_checkpoint *n)
{
	u32 i;

	for (i = 0; i < n->nr_segments; i++)
		segment_set_state(c, n->segments[i], SEGMENT_FREE);
	kvfree(n->segments);
	memset(n, 0, sizeof(*n));
}

/* With the cache: memory only. */
void checkpoint_destroy(struct cache *c)
{
	unsigned int i;

	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		kvfree(c->named[i].segments);
	kvfree(c->doubtful.segments);
	memset(c->named, 0, sizeof(c->named));
	memset(&c->doubtful, 0, sizeof(c->doubtful));
}

/* ------------------------------------------------------------------ steps 4 to 6 */

/* Records from here on may be replayed; segments with nothing but older ones may be reused. */
void checkpoint_set_keep(struct cache *c)
{
	const struct named_checkpoint *older = &c->named[c->named[1].sequence ? 1 : 0];
	unsigned long flags;

	spin_lock_irqsave(&c->segments_lock, flags);
	c->keep_sequence = older->replay_sequence;
	c->keep_checkpoint = older->sequence;
	spin_unlock_irqrestore(&c->segments_lock, flags);
}

bool checkpoint_begins_on(struct cache *c, const struct cache_device *d)
{
	const struct named_checkpoint *n;
	bool any = false;

	mutex_lock(&c->super_lock);
	for (n = c->named; n < c->named + LARDER_NR_CHECKPOINTS; n++)
		any |= n->sequence && n->replay_segment != LARDER_NO_SEGMENT && segment_device(c, n->replay_segment) == d;
	mutex_unlock(&c->super_lock);
	return any;
}

/* Takes over n.  On error the superblock on the SSD names either state. */
static int checkpoint_name(struct cache *c, struct named_checkpoint *n)
{
	struct named_checkpoint oldest;
	int err;

	mutex_lock(&c->super_lock);
	oldest = c->named[1];
	c->named[1] = c->named[0];
	c->named[0] = *n;
	err = cache_super_write(c, 0);
	if (err) {
		c->named[0] = c->named[1];
		c->named[1] = oldest;
		c->doubtful = *n;
	}
	mutex_unlock(&c->super_lock);
	memset(n, 0, sizeof(*n));
	if (!err)
		checkpoint_free(c, &oldest);
	return err;
}

#define SETTLE_TRIES	10u
#define SETTLE_TIME	(10 * HZ)

/* The superblock of a checkpoint that could not be named: the old ones are named again, durably, before anything else happens. */
static int checkpoint_settle(struct cache *c)
{
	int err = 0;

	if (!c->doubtful.sequence)
		return 0;
	mutex_lock(&c->super_lock);
	err = cache_super_write(c, 0);
	mutex_unlock(&c->super_lock);
	if (!err)
		checkpoint_free(c, &c->doubtful);
	if (err && !c->settle_failed)
		c->settle_since = jiffies;
	c->settle_failed = err ? c->settle_failed + 1 : 0;
	/* no checkpoint could ever be named again, nothing of the log be given up, and in the end no write go on */
	if (c->settle_failed >= SETTLE_TRIES && time_after(jiffies, c->settle_since + SETTLE_TIME))
		cache_fail(c, "its superblock cannot be written");
	return err;
}

/*
 * What waits with the newest sequence number waits for a checkpoint that begins behind it (log_next_segment()): there is a record
 * between the two, should nobody else write one.  No room for it: others are about to write some.
 */
static void checkpoint_pass_waiting(struct cache *c)
{
	if (segments_wait_for(c, READ_ONCE(c->log.next_sequence)))
		log_note(c);
}

/* checkpoint_lock held: a checkpoint begins.  May it know a third copy, or a record behind it name one? */
static void third_look(struct cache *c)
{
	if (READ_ONCE(c->third) && (READ_ONCE(c->set.mirror) == MIRROR_DIRTY_3 || READ_ONCE(c->nr_thirds)))
		c->third_until = c->checkpoint_sequence + 1;
}

/*
 * checkpoint_lock held: one was named.  Neither of the two that are knows any third copy, nor the log behind them: the next
 * superblock says so.  segments_lock: whoever takes a third copy is counted before, or finds that it must not.
 */
static void third_end(struct cache *c)
{
	mutex_lock(&c->super_lock);
	spin_lock_irq(&c->segments_lock);
	if (c->third && READ_ONCE(c->set.mirror) != MIRROR_DIRTY_3 && !c->nr_thirds && c->keep_checkpoint > c->third_until) {
		WRITE_ONCE(c->third_durable, false);
		WRITE_ONCE(c->third, false);
	}
	spin_unlock_irq(&c->segments_lock);
	mutex_unlock(&c->super_lock);
}

/* checkpoint_lock held */
static int checkpoint_run(struct cache *c, enum checkpoint_pace pace)
{
	struct named_checkpoint n;
	u64 position;
	int err;

	lockdep_assert_held(&c->checkpoint_lock);
	if (!c->started || READ_ONCE(c->state) == CACHE_FAILED)
		return -EIO;
	WRITE_ONCE(c->want_checkpoint, false);
	err = checkpoint_settle(c) ?: cache_table_places(c);
	if (err)
		return err;
	if (!checkpoint_has_room(c)) {
		reclaim_kick(c);
		return -ENOSPC;
	}
	checkpoint_pass_waiting(c);
	third_look(c);
	err = checkpoint_write(c, &n, pace, &position);
	if (err)
		return err;
	err = log_sync(c);
	if (!err)
		err = cache_flush_ssds(c);	/* also one that is in flight and covers the chunks */
	if (!err && doubt_is_vain(c))
		err = -EIO;
	if (err) {
		checkpoint_free(c, &n);
		return err;
	}
	err = checkpoint_name(c, &n);
	if (err)
		return err;
	WRITE_ONCE(c->log_bytes_at_checkpoint, position);
	WRITE_ONCE(c->checkpoint_tried, 0);
	cache_count(c, checkpoints, 1);
	cache_count(c, checkpoint_bytes, c->named[0].bytes);
	checkpoint_set_reserve(c, 0);
	checkpoint_set_keep(c);
	third_end(c);
	segments_release(c);
	reclaim_kick(c);
	return 0;
}

static int checkpoint_locked(struct cache *c, enum checkpoint_pace pace)
{
	unsigned int noio = memalloc_noio_save();
	u32 failures;
	int err;

	/* an SSD that leaves the set meanwhile takes a copy of the chunks with it: those that stay get another one */
	do {
		set_wait(c);
		failures = READ_ONCE(c->failures);
		err = checkpoint_run(c, pace);
	} while (err && READ_ONCE(c->failures) != failures && READ_ONCE(c->state) != CACHE_FAILED);
	memalloc_noio_restore(noio);
	trace_larder_checkpoint(c, err);
	if (err && err != -ECANCELED)
		DMERR_LIMIT("%pg: no checkpoint could be taken: %s (error %d); the one before it stays, a start will replay more",
		      cache_bdev(c),
		      err == -ENOSPC ? "no free segment: write dirty data back (message flush), or wait for reclaim" :
		      err == -ENOMEM ? "no memory" : "an error of the SSD", err);
	return err;
}

int checkpoint_take(struct cache *c)
{
	int err;

	mutex_lock(&c->checkpoint_lock);
	err = checkpoint_locked(c, CHECKPOINT_AT_ONCE);
	mutex_unlock(&c->checkpoint_lock);
	return err;
}

bool checkpoint_due(struct cache *c)
{
	u64 replay = (READ_ONCE(c->log.position) - READ_ONCE(c->log_bytes_at_checkpoint));

	if (!c->started || READ_ONCE(c->state) == CACHE_FAILED || doubt_blocks(c))
		return false;
	return READ_ONCE(c->want_checkpoint) || replay > checkpoint_limit(c, segments_units(c, NULL));
}

void checkpoint_kick(struct cache *c)
{
	if (!READ_ONCE(c->stopping))
		queue_work(c->bg_wq, &c->checkpoint_work);
}

/* Somebody who waits for space (want_checkpoint) gets it at once. */
void checkpoint_work(struct work_struct *work)
{
	struct cache *c = container_of(work, struct cache, checkpoint_work);

	mutex_lock(&c->checkpoint_lock);
	if (!READ_ONCE(c->stopping) && checkpoint_due(c))
		checkpoint_locked(c, READ_ONCE(c->want_checkpoint) ? CHECKPOINT_AT_ONCE : CHECKPOINT_GENTLY);
	mutex_unlock(&c->checkpoint_lock);
}

/* ------------------------------------------------------------------ scrub */

/* A chunk of a named checkpoint, in each of its copies. */
struct chunk_scrub {
	struct cache *cache;
	const struct named_checkpoint *n;
	u32 number, segment;
	struct larder_chunk *buf[SEGMENT_COPIES];
	struct scrub_counts *counts;
	bool lost;			/* no copy is valid */
};

static int chunk_io(const struct chunk_scrub *s, u32 segment, blk_opf_t opf, struct larder_chunk *buf)
{
	u32 per_segment = s->cache->segment_sectors / CHUNK_SECTORS;
	sector_t where;
	struct cache_device *d;

	d = chunk_place(s->cache, segment, s->number % per_segment, &where);
	return op_is_write(opf) ? cache_device_write(s->cache, d, opf | REQ_META, where, buf, LARDER_CHUNK_SIZE) :
				  super_io(d->bdev, opf | REQ_META, where, buf, LARDER_CHUNK_SIZE);
}

static bool chunk_valid(const struct chunk_scrub *s, u32 segment, struct larder_chunk *buf)
{
	struct larder_geometry geo = {
		.segment_slots = s->cache->segment_slots, .nr_segments = s->cache->nr_segments,
		.volume_sectors = s->cache->any_sectors, .nr_volumes = LARDER_MAX_VOLUMES,
	};
	struct larder_chunk_expect e = { .geo = &geo, .hash = s->n->hash, .sequence = s->n->sequence, .number = s->number };
	const char *why;

	s->counts->slots += LARDER_CHUNK_SIZE / LARDER_SLOT_SIZE;
	return !chunk_io(s, segment, REQ_OP_READ, buf) && !larder_check_chunk(buf, &e, &why);
}

static void chunk_scrub(struct chunk_scrub *s)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(s->cache, s->segment, copy), i;
	bool there[SEGMENT_COPIES], valid[SEGMENT_COPIES], any = false;
	struct larder_chunk *good = NULL;

	for (i = 0; i < n; i++) {
		there[i] = !READ_ONCE(segment_device(s->cache, copy[i])->failed);
		valid[i] = there[i] && chunk_valid(s, copy[i], s->buf[i]);
		s->counts->errors += there[i] && !valid[i];
		any |= there[i];
		if (valid[i])
			good = s->buf[i];
	}
	if (!good) {
		s->lost |= any;
		return;
	}
	for (i = 0; i < n; i++) {
		if (!there[i] || valid[i])
			continue;
		if (chunk_io(s, copy[i], REQ_OP_WRITE | REQ_FUA, good) || !chunk_valid(s, copy[i], s->buf[i]))
			s->counts->unrepairable++;
		else
			s->counts->repaired++;
	}
}

/* checkpoint_lock held: nobody takes it away.  False: it has no such segment. */
static bool named_scrub(struct chunk_scrub *s, u32 k)
{
	u32 total = div_u64(s->n->bytes, LARDER_CHUNK_SIZE), per_segment = s->cache->segment_sectors / CHUNK_SECTORS;

	if (k >= s->n->nr_segments)
		return false;
	s->segment = s->n->segments[k];
	for (s->number = k * per_segment; s->number < min(total, (k + 1) * per_segment); s->number++) {
		chunk_scrub(s);
		cond_resched();
	}
	return true;
}

/* The lock is let go between segments; a checkpoint that was named meanwhile was written just now. */
static int checkpoints_scrub(struct chunk_scrub *s)
{
	struct cache *c = s->cache;
	u64 sequence;
	bool more;
	u32 i, k;

	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++) {
		s->n = &c->named[i];
		sequence = READ_ONCE(s->n->sequence);
		for (k = 0, more = sequence; more; k++) {
			if (scrub_ended(c))
				return -ECANCELED;
			mutex_lock(&c->checkpoint_lock);
			more = s->n->sequence == sequence && named_scrub(s, k);
			mutex_unlock(&c->checkpoint_lock);
		}
	}
	return 0;
}

/* Two new ones take the place of those of which something is lost: the index has it all. */
static int checkpoint_renew(struct cache *c, struct scrub_counts *n)
{
	int err = checkpoint_take(c) ?: checkpoint_take(c);

	if (err)
		n->unrepairable++;
	else
		n->repaired++;
	return err;
}

int checkpoint_scrub(struct cache *c, struct scrub_counts *n)
{
	struct chunk_scrub s = { .cache = c, .counts = n };
	bool memory = true;
	int err = -ENOMEM;
	u32 i;

	for (i = 0; i < SEGMENT_COPIES; i++) {
		s.buf[i] = kvmalloc(LARDER_CHUNK_SIZE, GFP_NOIO);
		memory &= !!s.buf[i];
	}
	if (memory)
		err = checkpoints_scrub(&s);
	if (!err && s.lost)
		err = checkpoint_renew(c, n);
	for (i = 0; i < SEGMENT_COPIES; i++)
		kvfree(s.buf[i]);
	return err;
}

/* ------------------------------------------------------------------ stopping */

#define STOP_BYTES	(64ull << 20)

/*
 * Volumes are quiet.  What was accepted is durable afterwards, whatever fails later on; a checkpoint and the flag are for the speed
 * of the next start and for readers' eyes.  The log goes on where it was if the cache is resumed.
 */
void cache_stop(struct cache *c)
{
	int err, i;

	if (!c->started || READ_ONCE(c->state) == CACHE_FAILED)
		return;
	copies_wait(c, MAX_SCHEDULE_TIMEOUT);
	err = doubt_try(c) ?: log_sync(c);
	/* it has begun just now */
	if (err && READ_ONCE(c->doubt.on))
		err = doubt_try(c) ?: log_sync(c);
	if (err) {
		DMERR("%pg: the log could not be made durable: error %d", cache_bdev(c), err);
		return;
	}
	mutex_lock(&c->checkpoint_lock);
	if (READ_ONCE(c->log.position) != c->log_bytes_at_checkpoint && checkpoint_estimate(c) < STOP_BYTES)
		checkpoint_locked(c, CHECKPOINT_AT_ONCE);
	/* or the place of one that is lost is given to another one, and nobody knows any more what a start looks for there */
	for (i = 0; i < LARDER_NR_CHECKPOINTS && set_start_needs_lost(c); i++)
		checkpoint_locked(c, CHECKPOINT_AT_ONCE);
	if (!c->doubtful.sequence) {
		mutex_lock(&c->super_lock);
		cache_super_write(c, LARDER_CACHE_CLEAN_STOP);
		mutex_unlock(&c->super_lock);
	}
	mutex_unlock(&c->checkpoint_lock);
}
