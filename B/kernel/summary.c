// SPDX-License-Identifier: GPL-2.0-only
/*
 * Summaries: the last slots of a sealed segment name what its records hold, checksums included, so that who must know reads one
 * piece of it: reclaim, and those who verify checksums.
 *
 * The sender of a stream collects; the summary of a segment is written when the first record of the next one is built.  Nothing
 * depends on it: a segment without a valid summary is read whole.  So where memory is short it is left out, and a power cut that
 * tears it does no harm.
 *
 * A segment that is read whole may hold commit blocks of older lives, in any slot behind the last one of this life; and in front
 * of that, too, where an SSD has lost a write.  For the entries they do no harm: the index knows better.  The sums are those of
 * blocks up to, and of the same epoch as, the one that has the sequence number of the segment's last record; its hash must be that
 * of its epoch, as far as the superblock knows that.  They have higher numbers than any record that the segment had before it was
 * emptied in this run of the cache, and than all blocks in front of them; and none lies where a newer one has data.  (What an
 * earlier run had lost at the very beginning of a segment is not told by that.)
 */
#include <linux/vmalloc.h>
#include "larder.h"
#include "trace.h"

#define UNREADABLE_SLOTS 8u	/* so many: no more of the segment is tried */

struct summary_write {
	struct cache *cache;
	u32 segment;
	struct larder_summary *buf;
	struct bio_vec vec;
	struct bio bio;
};

static void summary_end(struct bio *bio)
{
	struct summary_write *w = container_of(bio, struct summary_write, bio);
	struct cache *c = w->cache;
	struct cache_device *d = segment_device(c, w->segment);

	flusher_wrote(&d->flusher);
	if (bio->bi_status) {
		cache_error(c, errors_write);
		set_summary_failed(c, d, bio->bi_status);
	} else {
		WRITE_ONCE(c->segments[w->segment].has_summary, true);
	}
	segment_unpin(c, w->segment);
	bio_uninit(bio);
	kfree(w->buf);
	kfree(w);
	atomic_dec(&c->summaries_in_flight);	/* last: log_drain() */
}

/*
 * Pins what the stream has left, if that is still sealed, and in the same life: sums_drop() comes before another one can be sealed.
 * LARDER_NO_SEGMENT: it is not.
 */
static u32 summary_pin(struct cache *c, const struct stream *s)
{
	u32 segment;

	spin_lock(&c->sums.lock);
	segment = s->summary_segment;
	spin_lock_irq(&c->segments_lock);
	if (segment != LARDER_NO_SEGMENT && c->segments[segment].state == SEGMENT_SEALED)
		segment_pin(c, segment);
	else
		segment = LARDER_NO_SEGMENT;
	spin_unlock_irq(&c->segments_lock);
	spin_unlock(&c->sums.lock);
	return segment;
}

/* The segment is pinned, until it is written. */
static bool summary_send(struct cache *c, const struct stream *s, u32 segment)
{
	struct larder_summary_place p = {
		.hash = c->hash, .first_sequence = s->first_sequence, .last_sequence = s->summary_sequence,
		.segment = segment, .epoch = c->epoch, .stream = s->number, .flags = LARDER_SUMMARY_DATA_ONLY,
	};
	gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN;
	struct cache_device *d;
	struct summary_write *w;
	sector_t where;

	d = copy_sector_device(c, slot_sector(c, segment, c->data_slots), &where);
	if (READ_ONCE(d->failed))
		return false;
	w = kzalloc(sizeof(*w), gfp);
	if (!w)
		return false;
	w->buf = kmalloc(sizeof(*w->buf), gfp);
	if (!w->buf || larder_summary_build(w->buf, &p, s->entries, s->nr_entries, s->sums, s->nr_sums)) {
		kfree(w->buf);
		kfree(w);
		return false;
	}
	w->cache = c;
	w->segment = segment;
	bio_init_for_all(&w->bio, d->bdev, &w->vec, 1, REQ_OP_WRITE);
	w->bio.bi_iter.bi_sector = where;
	w->bio.bi_end_io = summary_end;
	__bio_add_page(&w->bio, virt_to_page(w->buf), sizeof(*w->buf), offset_in_page(w->buf));
	atomic_inc(&c->summaries_in_flight);
	cache_count(c, summaries, 1);
	submit_bio(&w->bio);
	return true;
}

/* The stream's records are in another segment from now on. */
static void summary_seal(struct cache *c, struct stream *s)
{
	u32 segment = s->nr_entries ? summary_pin(c, s) : LARDER_NO_SEGMENT;

	if (segment == LARDER_NO_SEGMENT)
		return;
	/* of dirty data: it will be written back */
	if (s->number == LARDER_STREAM_WRITE)
		sums_put(c, segment, s->sums);
	if (!summary_send(c, s, segment))
		segment_unpin(c, segment);
}

void summary_forget(struct cache *c, struct stream *s)
{
	spin_lock(&c->sums.lock);
	if (s->summary_segment != LARDER_NO_SEGMENT && segment_lost(c, s->summary_segment))
		s->summary_segment = LARDER_NO_SEGMENT;
	spin_unlock(&c->sums.lock);
}

void log_summary_add(struct cache *c, struct stream *s, struct record *r)
{
	u32 i, n = larder_commit_entries(r->commit);

	if (READ_ONCE(s->summary_segment) != r->segment) {
		summary_seal(c, s);
		spin_lock(&c->sums.lock);
		s->summary_segment = r->segment;
		memset(s->sums, 0, c->segment_slots * sizeof(*s->sums));
		spin_unlock(&c->sums.lock);
		s->nr_entries = 0;
		s->nr_sums = 0;
		s->first_sequence = r->sequence;
	}
	for (i = 0; i < n && s->nr_entries < c->segment_slots; i++) {
		larder_commit_entry(r->commit, i, &s->entries[s->nr_entries]);
		if (s->entries[s->nr_entries].kind == LARDER_WRITE || s->entries[s->nr_entries].kind == LARDER_FILL)
			s->nr_entries++;
	}
	spin_lock(&c->sums.lock);
	memcpy(s->sums + r->first, r->sums, (r->end - r->first) * sizeof(*s->sums));
	spin_unlock(&c->sums.lock);
	s->nr_sums = r->end;
	s->summary_sequence = r->sequence;
}

/* ------------------------------------------------------------------ what a segment holds */

static void contents_begin(struct cache *c, struct segment_contents *sc)
{
	sc->nr_entries = 0;
	if (sc->sums)
		memset(sc->sums, 0, c->data_slots * sizeof(*sc->sums));
}

static void contents_geometry(struct cache *c, struct larder_geometry *geo)
{
	geo->segment_slots = c->segment_slots;
	geo->nr_segments = c->nr_segments;
	geo->volume_sectors = c->any_sectors;
	geo->nr_volumes = LARDER_MAX_VOLUMES;
}

static int summary_check(struct cache *c, u32 segment, const struct larder_summary *s)
{
	struct larder_geometry geo = { };
	struct larder_summary_expect e = {
		.geo = &geo, .hash = le64_to_cpu(s->hash), .segment = segment, .epoch = le32_to_cpu(s->epoch), .stream = s->stream,
	};
	const char *why;

	/* its epoch may be an old one: the sequence number of its last record tells whether it is of this life of the segment */
	if (le64_to_cpu(s->last_sequence) != c->segments[segment].sequence)
		return -ESTALE;
	contents_geometry(c, &geo);
	return larder_check_summary(s, &e, &why);
}

static void summary_contents(struct cache *c, const struct larder_summary *s, struct segment_contents *sc)
{
	u32 i;

	contents_begin(c, sc);
	if (sc->entries)
		sc->nr_entries = min(le32_to_cpu(s->nr_entries), c->segment_slots);
	for (i = 0; i < sc->nr_entries; i++)
		larder_summary_entry(s, i, &sc->entries[i]);
	for (i = 0; sc->sums && i < le32_to_cpu(s->nr_sums); i++)
		sc->sums[i] = larder_summary_sum(s, i);
}

static int read_summary(struct cache *c, u32 segment, struct segment_contents *sc)
{
	struct larder_summary *s = kvmalloc(sizeof(*s), GFP_NOIO);
	sector_t where;
	/* only the first copy has one */
	struct cache_device *d = copy_sector_device(c, slot_sector(c, segment, c->data_slots), &where);
	bool failed;
	int err;

	if (!s)
		return -ENOMEM;
	/* of one that has failed, or is missing, nothing is tried, and that is told already */
	failed = READ_ONCE(d->failed);
	err = failed ? -EIO : super_io(d->bdev, REQ_OP_READ, where, s, sizeof(*s));
	if (err) {
		if (!failed)
			cache_error(c, errors_read);
	} else {
		err = summary_check(c, segment, s);
		if (err)
			WRITE_ONCE(c->segments[segment].has_summary, false);
		else
			summary_contents(c, s, sc);
	}
	kvfree(s);
	return err;
}

static int segment_read_slots(struct cache *c, u32 segment, u32 slot, u32 n, void *buf)
{
	sector_t where;
	struct cache_device *d = cache_sector_device(c, slot_sector(c, segment, slot), &where);

	return device_read(d, REQ_OP_READ, where, buf + (size_t)slot * LARDER_SLOT_SIZE, (size_t)n * LARDER_SLOT_SIZE);
}

/* All data slots.  What cannot be read, from another copy either, is zeroes. */
static void segment_read(struct cache *c, u32 segment, void *buf)
{
	u32 slot, unreadable = segment_lost(c, segment) ? UNREADABLE_SLOTS : 0;

	if (!unreadable) {
		if (!segment_read_slots(c, segment, 0, c->data_slots, buf))
			return;
		cache_error(c, errors_read);
	}
	if (segment_try_mirror(c, segment, segment_device(c, segment), true) &&
	    !segment_read_slots(c, segment, 0, c->data_slots, buf))
		return;
	for (slot = 0; slot < c->data_slots; slot++) {
		if (unreadable < UNREADABLE_SLOTS && !segment_read_slots(c, segment, slot, 1, buf))
			continue;
		unreadable++;
		memset(buf + (size_t)slot * LARDER_SLOT_SIZE, 0, LARDER_SLOT_SIZE);
	}
}

/* One slot, of that copy alone. */
static int copy_read_slot(struct cache *c, u32 copy, u32 slot, void *to)
{
	sector_t where;
	struct cache_device *d = copy_sector_device(c, slot_sector(c, copy, slot), &where);

	return device_read(d, REQ_OP_READ, where, to, LARDER_SLOT_SIZE);
}

/* k, if it is a commit block for this slot of the segment, or NULL. */
static const struct larder_commit *block_valid(struct cache *c, u32 segment, const struct larder_commit *k, u32 slot)
{
	struct larder_geometry geo = { };
	struct larder_commit_expect e = {
		.geo = &geo, .hash = le64_to_cpu(k->hash), .epoch = le32_to_cpu(k->epoch), .segment = segment, .slot = slot,
		.stream = k->stream, .any_prev = true,
	};
	const char *why;

	contents_geometry(c, &geo);
	return larder_check_commit(k, &e, &why) ? NULL : k;
}

/* The commit block in this slot of a segment that was read, or NULL. */
const struct larder_commit *segment_block(struct cache *c, u32 segment, const void *buf, u32 slot)
{
	return block_valid(c, segment, buf + (size_t)slot * LARDER_SLOT_SIZE, slot);
}

/* The epoch of a block, or NULL: the list has lost it. */
static const struct larder_epoch *block_epoch(struct cache *c, const struct larder_commit *k)
{
	/* a start alone changes them */
	const struct larder_epoch *e = c->dev[0].sb->epochs;
	u32 i;

	for (i = 0; i < LARDER_NR_EPOCHS; i++)
		if (e[i].epoch && e[i].epoch == k->epoch)
			return &e[i];
	return NULL;
}

static bool epoch_has_hash(struct cache *c, const struct larder_epoch *e, const struct larder_commit *k)
{
	return larder_log_hash(c->uuid, le64_to_cpu(e->secret)) == le64_to_cpu(k->hash);
}

static bool epoch_hash_fits(struct cache *c, const struct larder_commit *k)
{
	const struct larder_epoch *e = block_epoch(c, k);

	if (e)
		return epoch_has_hash(c, e, k);
	/* nobody knows the hash of one that the list has lost */
	return k->epoch && le32_to_cpu(k->epoch) < le32_to_cpu(c->dev[0].sb->epochs[LARDER_NR_EPOCHS - 1].epoch);
}

/* The block with the segment's last sequence number is of this life of it. */
static bool block_is_last(struct cache *c, u32 segment, const struct larder_commit *k)
{
	return le64_to_cpu(k->sequence) == c->segments[segment].sequence && epoch_hash_fits(c, k);
}

static void block_entries(struct cache *c, const struct larder_commit *k, struct segment_contents *sc)
{
	u32 i, n = larder_commit_entries(k);

	for (i = 0; i < n && sc->nr_entries < c->segment_slots; i++) {
		struct larder_entry_in *in = &sc->entries[sc->nr_entries];

		larder_commit_entry(k, i, in);
		sc->nr_entries += in->kind == LARDER_WRITE || in->kind == LARDER_FILL;
	}
}

/* Not of an older life, as far as this run knows. */
static bool block_is_of_life(const struct cache *c, u32 segment, const struct larder_commit *k)
{
	return le64_to_cpu(k->sequence) >= READ_ONCE(c->segments[segment].emptied);
}

/* The newest block in this slot of any copy that may be of the life that ended with last; NULL: there is none. */
static const struct larder_commit *block_beside(struct cache *c, u32 segment, const void *const *buf, u32 copies, u32 slot,
						const struct larder_commit *last)
{
	const struct larder_commit *k, *best = NULL;
	u32 i;

	for (i = 0; i < copies; i++) {
		k = segment_block(c, segment, buf[i], slot);
		if (!k || k->hash != last->hash || k->epoch != last->epoch || !block_is_of_life(c, segment, k))
			continue;
		if (!best || le64_to_cpu(k->sequence) > le64_to_cpu(best->sequence))
			best = k;
	}
	return best;
}

/*
 * Of all blocks of this life: what a data slot holds cannot pass for one, the hash is nobody's to know.  Where a sum is known it
 * stays.  Without memory none is found.
 */
static void blocks_sums(struct cache *c, u32 segment, const void *const *buf, u32 copies, const struct larder_commit *last,
			u32 *sums)
{
	unsigned long *good = bitmap_zalloc(c->data_slots, GFP_NOIO);
	u32 slot, end = le16_to_cpu(last->slot), i;
	const struct larder_commit *k;
	u64 most = 0;

	for (slot = 0; good && slot <= end; slot++) {
		k = block_beside(c, segment, buf, copies, slot, last);
		if (!k || le64_to_cpu(k->sequence) <= most || le64_to_cpu(k->sequence) > le64_to_cpu(last->sequence))
			continue;
		most = le64_to_cpu(k->sequence);
		__set_bit(slot, good);
	}
	/* from the last one down: what a block covers holds no other one */
	for (slot = end + 1; good && slot--; ) {
		if (!test_bit(slot, good))
			continue;
		k = block_beside(c, segment, buf, copies, slot, last);
		slot = le16_to_cpu(k->first);
		for (i = 0; i < larder_commit_slots(k); i++)
			sums[slot + i] = sums[slot + i] ?: larder_commit_sum(k, i);
	}
	bitmap_free(good);
}

const struct larder_commit *segment_last_block(struct cache *c, u32 segment, const void *buf, u32 end, u32 *slot)
{
	const struct larder_commit *k;
	u32 i;

	for (i = 0; i < end; i++) {
		k = segment_block(c, segment, buf, i);
		if (!k || !block_is_last(c, segment, k))
			continue;
		*slot = i;
		return k;
	}
	return NULL;
}

/*
 * Where a segment that was read has no commit block, and another copy has one: that goes there.  From the last one down: what a
 * block covers is data, so that no further read is made of a segment whose blocks are whole.
 */
static int blocks_from_copies(struct cache *c, u32 segment, void *buf)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy), slot = 0, unreadable = 0, i;
	const struct larder_commit *last, *k;
	void *other;

	if (segment_members(c, segment) < 2)
		return 0;
	other = kmalloc(LARDER_SLOT_SIZE, GFP_NOIO);
	if (!other)
		return -ENOMEM;
	last = segment_last_block(c, segment, buf, c->data_slots, &slot);
	slot = last ? slot + 1 : c->data_slots;
	while (slot-- && unreadable < UNREADABLE_SLOTS) {
		k = segment_block(c, segment, buf, slot);
		if (k && !block_is_of_life(c, segment, k))
			k = NULL;
		for (i = 0; !k && i < n; i++) {
			if (copy_read_slot(c, copy[i], slot, other))
				unreadable++;
			else if (block_valid(c, segment, other, slot) && block_is_of_life(c, segment, other))
				k = memcpy(buf + (size_t)slot * LARDER_SLOT_SIZE, other, LARDER_SLOT_SIZE);
		}
		if (k && !last && block_is_last(c, segment, k))
			last = k;
		if (k && last && k->hash == last->hash && k->epoch == last->epoch)
			slot = le16_to_cpu(k->first);
	}
	kfree(other);
	return 0;
}

bool segment_holds_another(struct cache *c, u32 segment, const void *buf)
{
	u32 copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy), slot, other, i;
	const struct larder_commit *k;
	const struct larder_epoch *e;

	for (slot = 0; slot < c->data_slots; slot++) {
		k = buf + (size_t)slot * LARDER_SLOT_SIZE;
		other = le32_to_cpu(k->segment);
		if (!block_valid(c, other, k, slot))
			continue;
		e = block_epoch(c, k);
		if (!e || !epoch_has_hash(c, e, k))
			continue;
		for (i = 0; i < n && copy[i] != other; i++)
			;
		if (i == n)
			return true;
	}
	return false;
}

static int read_blocks(struct cache *c, u32 segment, struct segment_contents *sc)
{
	void *buf = __vmalloc((size_t)c->data_slots * LARDER_SLOT_SIZE, GFP_NOIO);
	const void *whole = buf;
	const struct larder_commit *k, *last = NULL;
	u32 slot;
	int err;

	if (!buf)
		return -ENOMEM;
	segment_read(c, segment, buf);
	err = blocks_from_copies(c, segment, buf);
	contents_begin(c, sc);
	for (slot = 0; !err && slot < c->data_slots; slot++) {
		k = segment_block(c, segment, buf, slot);
		if (!k)
			continue;
		if (sc->entries)
			block_entries(c, k, sc);
		if (block_is_last(c, segment, k))
			last = k;
	}
	if (sc->sums && last)
		blocks_sums(c, segment, &whole, 1, last, sc->sums);
	if (!err)
		WRITE_ONCE(c->segments[segment].foreign, !last && segment_holds_another(c, segment, buf));
	vfree(buf);
	return err;
}

void segment_block_sums(struct cache *c, u32 segment, const void *const *buf, u32 copies, u32 *sums)
{
	const struct larder_commit *last = NULL;
	u32 slot, i;

	for (i = 0; i < copies && !last; i++)
		last = segment_last_block(c, segment, buf[i], c->data_slots, &slot);
	if (last)
		blocks_sums(c, segment, buf, copies, last, sums);
}

int segment_read_summary(struct cache *c, u32 segment, struct segment_contents *sc)
{
	return READ_ONCE(c->segments[segment].has_summary) ? read_summary(c, segment, sc) : -ENODATA;
}

int segment_read_contents(struct cache *c, u32 segment, struct segment_contents *sc)
{
	if (!segment_read_summary(c, segment, sc))
		return 0;
	return read_blocks(c, segment, sc);
}
