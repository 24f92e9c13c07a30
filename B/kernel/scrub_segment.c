// SPDX-License-Identifier: GPL-2.0-only
/*
 * The scrub of a segment: all copies are read, compared, and mended.  See scrub.c.
 *
 * Where the sums come from: memory, the summary, or the commit blocks of any copy.  Up to the last block each slot that has no
 * sum must be a block.  The last one is that with the segment's last sequence number; in a segment that is being written, what
 * stands in front of the first record that is not complete is looked at.
 *
 * A copy that matches is the source, and is not written to.  The pin of the segment lasts until the last write is complete: so none
 * comes into another life of it, and none of its copies is freed.
 */
#include <linux/delay.h>
#include <linux/vmalloc.h>

#include "larder.h"
#include "trace.h"

#define READ_SLOTS		64u	/* at once */
#define UNREADABLE_SLOTS	64u	/* of a segment: it is not the data, it is the SSD */
#define USER_IO_LATELY		(HZ / 5)
#define DROP_ATTEMPTS		16u

struct scrub_copy {
	u32 segment;			/* LARDER_NO_SEGMENT: there is none that can be read */
	void *buf;			/* its data slots */
	unsigned long *bad;		/* bit per slot: could not be read, or does not match */
};

struct scrub_pass {
	struct cache *cache;
	enum scrub_reason reason;
	u32 segment;
	bool active;			/* being written, or just now sealed: [0, end) is complete */
	u32 taken;			/* slots [0, taken) are complete */
	u32 end;			/* of these: [0, end) are looked at */
	struct scrub_copy copy[SEGMENT_COPIES];
	u32 *sums;			/* by slot, 0: a commit block, not known, or the sum of data that ends with its own */
	unsigned long *data;		/* bit per slot: 0, and a block says that it is data */
	unsigned long *lost;		/* bit per slot: data that no copy has */
	unsigned long *clean, *dirty;	/* of these: the index maps to them */
	unsigned long *mapped;		/* bit per slot: some index maps to it; see slot_mapped() */
	bool mapped_known;
	bool unknown;			/* a block is lost, and with it what it knew */
	bool foreign;			/* all are, and there are those of another segment */
	struct scrub_counts n;
};

/* ------------------------------------------------------------------ memory */

void scrub_pass_free(struct scrub_pass *p)
{
	u32 i;

	if (!p)
		return;
	for (i = 0; i < ARRAY_SIZE(p->copy); i++) {
		vfree(p->copy[i].buf);
		kvfree(p->copy[i].bad);
	}
	kvfree(p->mapped);
	kvfree(p->dirty);
	kvfree(p->clean);
	kvfree(p->lost);
	kvfree(p->data);
	kvfree(p->sums);
	kfree(p);
}

static unsigned long *slot_bits(const struct cache *c)
{
	return kvcalloc(BITS_TO_LONGS(c->data_slots), sizeof(long), GFP_NOIO);
}

struct scrub_pass *scrub_pass_create(struct cache *c, enum scrub_reason reason)
{
	struct scrub_pass *p = kzalloc(sizeof(*p), GFP_NOIO);
	bool ok;
	u32 i;

	if (!p)
		return NULL;
	p->cache = c;
	p->reason = reason;
	p->sums = kvcalloc(c->data_slots, sizeof(u32), GFP_NOIO);
	p->data = slot_bits(c);
	p->lost = slot_bits(c);
	p->clean = slot_bits(c);
	p->dirty = slot_bits(c);
	p->mapped = slot_bits(c);
	ok = p->sums && p->data && p->lost && p->clean && p->dirty && p->mapped;
	for (i = 0; i < ARRAY_SIZE(p->copy); i++) {
		p->copy[i].buf = __vmalloc((size_t)c->data_slots * LARDER_SLOT_SIZE, GFP_NOIO);
		p->copy[i].bad = slot_bits(c);
		ok = ok && p->copy[i].buf && p->copy[i].bad;
	}
	if (ok)
		return p;
	scrub_pass_free(p);
	return NULL;
}

/* ------------------------------------------------------------------ taking a segment */

static u32 records_end(const struct list_head *records, u32 segment, u32 end)
{
	struct record *r;

	list_for_each_entry(r, records, list)
		if (r->segment == segment)
			end = min_t(u32, end, r->first);
	return end;
}

/* log->lock held: in front of this slot every record is complete, and shown. */
static u32 complete_end(struct cache *c, u32 segment)
{
	u32 end = c->data_slots, i;

	for (i = 0; i < LARDER_NR_STREAMS; i++)
		if (c->log.stream[i].segment == segment)
			end = min(end, c->log.stream[i].head);
	return records_end(&c->log.copies, segment, records_end(&c->log.records, segment, end));
}

enum scrub_take { TAKE_NOTHING, TAKE_LATER, TAKE_IT };

/* Pins it.  Second copies are looked at with the first ones, chunks of checkpoints by checkpoint_scrub(). */
static enum scrub_take pass_take(struct scrub_pass *p, u32 segment)
{
	struct cache *c = p->cache;
	struct segment *seg = &c->segments[segment];
	u32 copy[SEGMENT_COPIES], n = 0, i;
	enum scrub_take take = TAKE_NOTHING;

	spin_lock_irq(&c->log.lock);
	spin_lock(&c->segments_lock);
	if (seg->state == SEGMENT_SEALED || seg->state == SEGMENT_ACTIVE) {
		segment_pin(c, segment);
		take = TAKE_IT;
		n = segment_ring(c, segment, copy);
		p->end = p->taken = complete_end(c, segment);
		p->active = seg->state == SEGMENT_ACTIVE || p->end < c->data_slots;
	} else if (seg->state == SEGMENT_RECLAIMING) {
		take = TAKE_LATER;
	}
	spin_unlock(&c->segments_lock);
	spin_unlock_irq(&c->log.lock);
	p->segment = segment;
	p->unknown = p->foreign = false;
	p->mapped_known = false;
	memset(&p->n, 0, sizeof(p->n));
	bitmap_zero(p->data, c->data_slots);
	bitmap_zero(p->lost, c->data_slots);
	for (i = 0; i < ARRAY_SIZE(p->copy); i++) {
		p->copy[i].segment = i < n ? copy[i] : LARDER_NO_SEGMENT;
		bitmap_zero(p->copy[i].bad, c->data_slots);
	}
	return take;
}

static bool copy_there(struct cache *c, const struct scrub_copy *k)
{
	return k->segment != LARDER_NO_SEGMENT && !READ_ONCE(segment_device(c, k->segment)->failed);
}

/* ------------------------------------------------------------------ reading */

static bool user_io_lately(struct cache *c)
{
	struct volume *v;
	bool any = false;
	u32 i;

	rcu_read_lock();
	for (i = 0; i < LARDER_MAX_VOLUMES && !any; i++) {
		v = rcu_dereference_raw(c->volumes[i]);
		any = v && v->active && time_before(jiffies, READ_ONCE(v->last_user_io) + USER_IO_LATELY);
	}
	rcu_read_unlock();
	return any;
}

void give_way(struct cache *c, u64 took_ns)
{
	unsigned int us = min_t(u64, div_u64(took_ns, NSEC_PER_USEC) * 4, 50 * USEC_PER_MSEC);

	if (us > 10 && user_io_lately(c))
		usleep_range(us, us + us / 4);
}

static bool pass_ended(const struct scrub_pass *p)
{
	switch (p->reason) {
	case SCRUB_DOUBT:
		return READ_ONCE(p->cache->state) == CACHE_FAILED;
	case SCRUB_MEND:
		return shape_ended(p->cache) || READ_ONCE(p->cache->scrub.begins);
	default:
		return scrub_ended(p->cache);
	}
}

static void *copy_slot(const struct scrub_copy *k, u32 slot)
{
	return k->buf + (size_t)slot * LARDER_SLOT_SIZE;
}

static int slots_io(struct cache *c, const struct scrub_copy *k, blk_opf_t opf, u32 slot, u32 n, void *buf)
{
	sector_t where;
	struct cache_device *d = copy_sector_device(c, slot_sector(c, k->segment, slot), &where);
	size_t bytes = (size_t)n * LARDER_SLOT_SIZE;

	return op_is_write(opf) ? cache_device_write(c, d, opf, where, buf, bytes) : super_io(d->bdev, opf, where, buf, bytes);
}

/*
 * So much cannot be read that the SSD may be away.  In doubt, which nothing else ends, what is in a place that is bad is gone:
 * where its superblock can be read the SSD is there.
 */
static bool copy_is_gone(const struct scrub_pass *p, const struct scrub_copy *k, void *buf)
{
	return p->reason == SCRUB_DOUBT &&
	       !super_io(segment_device(p->cache, k->segment)->bdev, REQ_OP_READ | REQ_META, LARDER_SB_OFFSET >> SECTOR_SHIFT, buf,
			 LARDER_SB_SIZE);
}

/* Slot by slot: those that cannot be read are bad.  -EIO: too many are. */
static int copy_read_slots(const struct scrub_pass *p, struct scrub_copy *k, u32 slot, u32 n)
{
	struct cache *c = p->cache;
	u32 bad;

	BUILD_BUG_ON(LARDER_SB_SIZE > LARDER_SLOT_SIZE);
	for (; n; n--, slot++) {
		if (pass_ended(p))
			return -ECANCELED;
		if (!slots_io(c, k, REQ_OP_READ, slot, 1, copy_slot(k, slot)))
			continue;
		cache_error(c, errors_read);
		__set_bit(slot, k->bad);
		bad = bitmap_weight(k->bad, c->data_slots);
		if (bad >= min(UNREADABLE_SLOTS, c->data_slots / 2) && !copy_is_gone(p, k, copy_slot(k, slot)))
			return -EIO;
		memset(copy_slot(k, slot), 0, LARDER_SLOT_SIZE);
	}
	return 0;
}

static int copy_read(struct scrub_pass *p, struct scrub_copy *k)
{
	struct cache *c = p->cache;
	u32 slot, n;
	u64 began;
	int err;

	for (slot = 0; slot < p->end; slot += n) {
		n = min(p->end - slot, READ_SLOTS);
		if (pass_ended(p))
			return -ECANCELED;
		began = ktime_get_ns();
		err = slots_io(c, k, REQ_OP_READ, slot, n, copy_slot(k, slot));
		if (err)
			err = copy_read_slots(p, k, slot, n);
		if (err)
			return err;
		p->n.slots += n;
		if (p->reason != SCRUB_DOUBT)	/* users wait for it */
			give_way(c, ktime_get_ns() - began);
	}
	return 0;
}

/* Copies of SSDs that are no members, or have failed meanwhile, are left out.  -EIO: an SSD that is one cannot be read. */
static int pass_read(struct scrub_pass *p)
{
	struct cache *c = p->cache;
	u32 i, nr = 0;
	int err;

	for (i = 0; i < ARRAY_SIZE(p->copy); i++) {
		struct scrub_copy *k = &p->copy[i];

		err = copy_there(c, k) ? copy_read(p, k) : -ENODEV;
		if (err == -ECANCELED || (err && copy_there(c, k)))
			return err;
		if (err)
			k->segment = LARDER_NO_SEGMENT;
		nr += !err;
	}
	return nr ? 0 : -ENODEV;
}

/* ------------------------------------------------------------------ what should be there */

/* -EAGAIN: it was sealed just now, and its summary is on its way. */
static int pass_sums(struct scrub_pass *p)
{
	struct segment_contents sc = { .sums = p->sums };
	const void *buf[SEGMENT_COPIES];
	struct cache *c = p->cache;
	u32 i, copies = 0;

	if (sums_look(c, p->segment, p->sums)) {
		if (p->active)
			return 0;
		/* those of a block that could not be read then are missing: it may be whole again, or in another copy */
	} else {
		if (p->active)
			return -EAGAIN;
		if (!segment_read_summary(c, p->segment, &sc))
			return 0;
		memset(p->sums, 0, c->data_slots * sizeof(*p->sums));
	}
	for (i = 0; i < ARRAY_SIZE(p->copy); i++)
		if (p->copy[i].segment != LARDER_NO_SEGMENT)
			buf[copies++] = p->copy[i].buf;
	segment_block_sums(c, p->segment, buf, copies, p->sums);
	return 0;
}

/* The newest of the blocks with the segment's last sequence number: they tell the epoch.  *slot: where. */
static const struct larder_commit *pass_last_block(struct scrub_pass *p, u32 *slot)
{
	const struct larder_commit *k = NULL;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(p->copy) && !k; i++)
		if (p->copy[i].segment != LARDER_NO_SEGMENT)
			k = segment_last_block(p->cache, p->segment, p->copy[i].buf, p->end, slot);
	return k;
}

/* ------------------------------------------------------------------ comparing */

/* Of the same epoch as the last one; what is being written is of this one. */
static bool epoch_fits(const struct scrub_pass *p, const struct larder_commit *k, const struct larder_commit *last)
{
	const struct cache *c = p->cache;

	if (last)
		return k->hash == last->hash && k->epoch == last->epoch;
	return !p->active || (le64_to_cpu(k->hash) == c->hash && le32_to_cpu(k->epoch) == c->epoch);
}

static bool block_fits(const struct scrub_pass *p, const struct larder_commit *k, const struct larder_commit *last, u64 behind)
{
	u32 i, first = le16_to_cpu(k->first);

	if (le64_to_cpu(k->sequence) <= behind || !epoch_fits(p, k, last))
		return false;
	for (i = 0; i < larder_commit_slots(k); i++)
		if (p->sums[first + i] != larder_commit_sum(k, i))
			return false;
	return true;
}

static bool slot_is_data(const struct scrub_pass *p, u32 slot)
{
	return p->sums[slot] || test_bit(slot, p->data);
}

/* Of a slot that is mapped, and so is data: what knew its sum is lost. */
static bool sum_unknown(const struct scrub_pass *p, u32 slot)
{
	return p->unknown && slot < p->taken && !slot_is_data(p, slot);
}

/* Data that ends with its own CRC-32C has the sum 0.  It is told from a block by the one behind it. */
static void find_data(struct scrub_pass *p, const struct larder_commit *last)
{
	const struct larder_commit *k;
	u32 i, slot;

	for (i = 0; i < ARRAY_SIZE(p->copy); i++) {
		if (p->copy[i].segment == LARDER_NO_SEGMENT)
			continue;
		for (slot = 0; slot < p->end; slot++) {
			k = p->sums[slot] ? NULL : segment_block(p->cache, p->segment, p->copy[i].buf, slot);
			if (k && block_fits(p, k, last, 0))
				bitmap_set(p->data, le16_to_cpu(k->first), larder_commit_slots(k));
		}
	}
}

/* A slot that is no data: the same block in all copies, of this life of the segment: behind the one before.  Returns its number. */
static u64 judge_block(struct scrub_pass *p, u32 slot, const struct larder_commit *last, u64 behind)
{
	const struct larder_commit *k, *best = NULL;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(p->copy); i++) {
		if (p->copy[i].segment == LARDER_NO_SEGMENT)
			continue;
		k = segment_block(p->cache, p->segment, p->copy[i].buf, slot);
		if (k && block_fits(p, k, last, behind) && (!best || le64_to_cpu(k->sequence) > le64_to_cpu(best->sequence)))
			best = k;
	}
	for (i = 0; i < ARRAY_SIZE(p->copy); i++)
		if (p->copy[i].segment != LARDER_NO_SEGMENT &&
		    (!best || memcmp(copy_slot(&p->copy[i], slot), best, LARDER_SLOT_SIZE)))
			__set_bit(slot, p->copy[i].bad);
	return best ? le64_to_cpu(best->sequence) : behind;
}

/* Each mapping to the segment, of all volumes. */
static int pass_maps(struct scrub_pass *p, int (*fn)(struct scrub_pass *p, struct volume *v, const struct larder_map *m))
{
	struct cache *c = p->cache;
	struct larder_map m;
	struct volume *v;
	int err = 0;
	u64 from;
	u32 i;

	for (i = 0; i < LARDER_MAX_VOLUMES && !err; i++) {
		v = cache_volume_get(c, i);
		if (!v)
			continue;
		for (from = 0; !err && larder_index_next(v->index, from, v->sectors, ~0u, &m); from = m.sector + m.len) {
			if (!larder_state_zero(m.state) && cache_segment(c, m.cache) == p->segment)
				err = fn(p, v, &m);
			cond_resched();
		}
		volume_put(v);
	}
	return err;
}

static int note_mapped(struct scrub_pass *p, struct volume *v, const struct larder_map *m)
{
	u64 at = m->cache & (p->cache->segment_sectors - 1);
	u32 first = at / LARDER_SLOT_SECTORS;

	bitmap_set(p->mapped, first, DIV_ROUND_UP(at + m->len, LARDER_SLOT_SECTORS) - first);
	return 0;
}

/*
 * What nothing maps to may be damaged without a fault of the SSD: a start leaves out what a power cut has torn of the copies of
 * misses.  It is mended where it can be, and does not count.
 */
static bool slot_mapped(struct scrub_pass *p, u32 slot)
{
	if (!p->mapped_known) {
		bitmap_zero(p->mapped, p->cache->data_slots);
		pass_maps(p, note_mapped);
		p->mapped_known = true;
	}
	return test_bit(slot, p->mapped);
}

static void judge_data(struct scrub_pass *p, u32 slot)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(p->copy); i++) {
		struct scrub_copy *k = &p->copy[i];

		if (k->segment == LARDER_NO_SEGMENT || test_bit(slot, k->bad) ||
		    larder_crc(copy_slot(k, slot), LARDER_SLOT_SIZE) == p->sums[slot])
			continue;
		__set_bit(slot, k->bad);
		if (slot_mapped(p, slot))
			cache_count(p->cache, errors_checksum, 1);
	}
}

/* Behind the last data that is known. */
static u32 data_end(const struct scrub_pass *p)
{
	u32 end = p->end;

	while (end && !slot_is_data(p, end - 1))
		end--;
	return end;
}

/* No copy of the last block is left: it is missed behind the data, and behind blocks that have none. */
static void judge_tail(struct scrub_pass *p, u32 most, u64 behind)
{
	u64 was;

	do {
		was = behind;
		behind = judge_block(p, p->end, NULL, was);
	} while (++p->end < most && behind != was);
}

static bool copies_hold_another(const struct scrub_pass *p)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(p->copy); i++)
		if (p->copy[i].segment != LARDER_NO_SEGMENT && segment_holds_another(p->cache, p->segment, p->copy[i].buf))
			return true;
	return false;
}

/* A sealed segment ends with its last block. */
static void pass_judge(struct scrub_pass *p)
{
	const struct larder_commit *last;
	u32 slot, at = 0, most = p->end;
	u64 behind = 0;

	last = pass_last_block(p, &at);
	if (!p->active && !last)
		p->foreign = copies_hold_another(p);
	find_data(p, last);
	if (!p->active)
		p->end = last ? at + 1 : data_end(p);
	for (slot = 0; slot < p->end; slot++) {
		if (slot_is_data(p, slot))
			judge_data(p, slot);
		else
			behind = judge_block(p, slot, last, behind);
		cond_resched();
	}
	if (!p->active && !last && p->cache->segments[p->segment].sequence && p->end < most)
		judge_tail(p, most, behind);
}

/* ------------------------------------------------------------------ mending */

/* A copy that matches is the source; it is not written to. */
static const struct scrub_copy *good_copy(const struct scrub_pass *p, u32 slot)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(p->copy); i++)
		if (p->copy[i].segment != LARDER_NO_SEGMENT && !test_bit(slot, p->copy[i].bad))
			return &p->copy[i];
	return NULL;
}

static u32 bad_copies(const struct scrub_pass *p, u32 slot)
{
	u32 i, n = 0;

	for (i = 0; i < ARRAY_SIZE(p->copy); i++)
		n += p->copy[i].segment != LARDER_NO_SEGMENT && test_bit(slot, p->copy[i].bad);
	return n;
}

/* The slot is overwritten with the good one, and must read as that then. */
static bool slot_rewrite(struct scrub_pass *p, struct scrub_copy *k, u32 slot, const struct scrub_copy *good)
{
	struct cache *c = p->cache;
	struct cache_device *d = segment_device(c, k->segment);

	/* until the copy is whole again */
	if (k->segment == p->segment)
		segment_try_mirror(c, p->segment, d, false);
	if (READ_ONCE(d->failed))
		return false;
	return !slots_io(c, k, REQ_OP_WRITE | REQ_FUA, slot, 1, copy_slot(good, slot)) &&
	       !slots_io(c, k, REQ_OP_READ, slot, 1, copy_slot(k, slot)) &&
	       !memcmp(copy_slot(k, slot), copy_slot(good, slot), LARDER_SLOT_SIZE);
}

static void slot_repair(struct scrub_pass *p, u32 slot, const struct scrub_copy *good)
{
	bool counts = !slot_is_data(p, slot) || slot_mapped(p, slot);
	u32 i;

	for (i = 0; i < ARRAY_SIZE(p->copy); i++) {
		struct scrub_copy *k = &p->copy[i];

		if (k->segment == LARDER_NO_SEGMENT || !test_bit(slot, k->bad))
			continue;
		p->n.errors += counts;
		if (slot_rewrite(p, k, slot, good)) {
			__clear_bit(slot, k->bad);
			p->n.repaired += counts;
			continue;
		}
		p->n.unrepairable++;
		DMERR_LIMIT("%pg: slot %u of segment %u is damaged and cannot be repaired; it is whole on another SSD",
			    segment_device(p->cache, k->segment)->bdev, slot, k->segment);
	}
}

/* Data, and all else in it, of a block of which no copy is left. */
static void block_lost(struct scrub_pass *p, u32 first, u32 end)
{
	struct cache *c = p->cache;

	p->n.errors += bad_copies(p, end - 1);
	p->n.dropped++;
	p->unknown = true;
	DMWARN_LIMIT("cache %pUb: segment %u: a commit block in slots %u to %u is damaged: checkpoints make up for it",
		     c->uuid, p->segment, first, end - 1);
}

static void slot_sort_out(struct scrub_pass *p, u32 slot, u32 *unknown_from)
{
	const struct scrub_copy *good = good_copy(p, slot);

	/* the data of a lost block, if that alone knew its sums, looks as if it were blocks */
	if (!good && !slot_is_data(p, slot)) {
		*unknown_from = min(*unknown_from, slot);
		return;
	}
	if (*unknown_from < slot)
		block_lost(p, *unknown_from, slot);
	*unknown_from = LARDER_NO_SEGMENT;
	if (!good)
		__set_bit(slot, p->lost);
	else if (bad_copies(p, slot))
		slot_repair(p, slot, good);
	if (good && slot_is_data(p, slot))
		slot_bad_clear(p->cache, slot_sector(p->cache, p->segment, slot));
}

/* ------------------------------------------------------------------ what no copy has */

static void lost_dirty(struct scrub_pass *p, struct volume *v, const struct larder_map *m)
{
	struct cache *c = p->cache;
	sector_t where;
	struct cache_device *d = copy_sector_device(c, m->cache, &where);

	if (p->reason == SCRUB_DOUBT)
		doubt_lost(v);
	volume_count(v, errors_checksum, 1);
	DMERR_LIMIT("volume %pUb: damaged dirty data, sectors %llu to %llu (segment %u, %pg sector %llu): %s", v->uuid, m->sector,
		    m->sector + m->len - 1, p->segment, d->bdev, (u64)where, "reads fail; write it anew or discard it");
}

/* The middle of an extent leaves two, which need memory.  -ENOMEM: it is still mapped. */
static int lost_clean(struct scrub_pass *p, struct volume *v, const struct larder_map *m, bool damaged)
{
	sector_t where;
	struct cache_device *d = copy_sector_device(p->cache, m->cache, &where);
	unsigned int attempt = 0;
	int err;

	do {
		err = volume_map_change(v, m->sector, m->len, m->cache, 1u << LARDER_ST_CLEAN, m->cache, LARDER_ST_NONE);
		if (err == -ENOMEM)
			larder_index_refill(v->index);
	} while (err == -ENOMEM && attempt++ < DROP_ATTEMPTS);
	if (err < 0)
		return err;
	DMWARN_LIMIT("%pg: %s at sector %llu (segment %u): sectors %llu to %llu of volume %pUb are dropped", d->bdev,
		     damaged ? "damaged clean data" : "clean data whose checksum is lost", (u64)where, p->segment, m->sector,
		     m->sector + m->len - 1, v->uuid);
	return 0;
}

/*
 * What of a mapping lies in slots that are lost.  Where only the sum is, nothing speaks against the data; but of what is clean the
 * backing has a copy against which nothing does either.  In doubt the flush that has failed does, else blocks of another segment.
 */
static int lost_map(struct scrub_pass *p, struct volume *v, const struct larder_map *m)
{
	struct larder_map part = *m;
	u64 end = m->cache + m->len;
	bool damaged;
	u32 slot;
	int err;

	for (; part.cache < end; part.cache += part.len, part.sector += part.len) {
		slot = (part.cache & (p->cache->segment_sectors - 1)) / LARDER_SLOT_SECTORS;
		part.len = min_t(u64, end - part.cache, LARDER_SLOT_SECTORS - (part.cache & (LARDER_SLOT_SECTORS - 1)));
		damaged = test_bit(slot, p->lost) || ((p->reason == SCRUB_DOUBT || p->foreign) && sum_unknown(p, slot));
		if (!damaged && (larder_state_dirty(part.state) || !sum_unknown(p, slot)))
			continue;
		if (larder_state_dirty(part.state)) {
			err = slot_bad_set(p->cache, part.cache);
			if (err)
				return err;
			__set_bit(slot, p->dirty);
			lost_dirty(p, v, &part);
		} else {
			err = lost_clean(p, v, &part, damaged);
			if (err)
				return err;
			__set_bit(slot, p->clean);
		}
	}
	return 0;
}

/* By the indexes, whole: the entries that would name the sectors may be what is damaged. */
static int pass_lost(struct scrub_pass *p)
{
	struct cache *c = p->cache;
	u32 slot;
	int err;

	if (bitmap_empty(p->lost, c->data_slots) && !p->unknown)
		return 0;
	bitmap_zero(p->clean, c->data_slots);
	bitmap_zero(p->dirty, c->data_slots);
	err = pass_maps(p, lost_map);
	for (slot = 0; slot < c->data_slots; slot++) {
		bool dirty = test_bit(slot, p->dirty), clean = test_bit(slot, p->clean);

		if (!dirty && !clean)
			continue;
		p->n.errors += test_bit(slot, p->lost) ? bad_copies(p, slot) : 1;
		p->n.unrepairable += dirty;
		p->n.dropped += clean && !dirty;
		c->scrub.forget |= clean;
	}
	return err;
}

/* A copy that is whole need not be gone round any more.  Of further ones that which lacks what another has is read last. */
static void copies_judge(struct scrub_pass *p)
{
	struct segment *seg;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(p->copy) && !p->unknown; i++) {
		if (p->copy[i].segment == LARDER_NO_SEGMENT)
			continue;
		seg = &p->cache->segments[p->copy[i].segment];
		bitmap_copy(p->clean, p->copy[i].bad, p->cache->data_slots);
		if (i)
			bitmap_andnot(p->clean, p->clean, p->lost, p->cache->data_slots);
		if (find_first_bit(p->clean, p->end) >= p->end)
			WRITE_ONCE(seg->prefer_mirror, PREFER_NONE);
		else if (i)
			WRITE_ONCE(seg->prefer_mirror, PREFER_MIRROR);
	}
}

static int pass_mend(struct scrub_pass *p)
{
	u32 slot, unknown_from = LARDER_NO_SEGMENT;

	for (slot = 0; slot < p->end; slot++) {
		if (pass_ended(p))
			return -ECANCELED;
		slot_sort_out(p, slot, &unknown_from);
	}
	if (unknown_from < p->end)
		block_lost(p, unknown_from, p->end);
	p->cache->scrub.forget |= p->unknown;
	copies_judge(p);
	return pass_lost(p);
}

/* ------------------------------------------------------------------ a segment */

int scrub_segment(struct cache *c, struct scrub_pass *p, u32 segment, struct scrub_counts *n)
{
	enum scrub_take take = pass_take(p, segment);
	struct segment *seg = &c->segments[segment];
	u8 asked = PREFER_NONE;
	int err;

	*n = (struct scrub_counts){ };
	if (take != TAKE_IT)
		return take == TAKE_LATER ? -EAGAIN : 0;
	/* who finds something from here on does not ask for it again, until it is whole */
	if (segment_to_mend(seg)) {
		asked = READ_ONCE(seg->prefer_mirror);
		WRITE_ONCE(seg->prefer_mirror, asked == PREFER_AND_MEND ? PREFER_MIRROR : MENDING_COPIES);
	}
	err = p->end ? pass_read(p) ?: pass_sums(p) : 0;
	if (!p->end && p->reason == SCRUB_MEND)
		err = -EAGAIN;	/* nothing of it is complete */
	if (!err && p->end) {
		pass_judge(p);
		err = pass_mend(p);
	}
	/* what was looked at, and is not whole, is avoided until a scrub; else it is looked at again */
	if (asked && (err == -EAGAIN || err == -ECANCELED || err == -ENOMEM)) {
		WRITE_ONCE(seg->prefer_mirror, prefers_mirror(seg) ? PREFER_AND_MEND : asked);
		scrub_mend_later(c);
	} else if (asked == MEND_COPIES && err && !prefers_mirror(seg)) {
		WRITE_ONCE(seg->prefer_mirror, asked);	/* not looked at still: with the next one that is mended, or by a scrub */
	} else if (READ_ONCE(seg->prefer_mirror) == MENDING_COPIES) {
		WRITE_ONCE(seg->prefer_mirror, PREFER_NONE);
	}
	segment_unpin(c, segment);
	if (err == -EAGAIN)
		return err;
	/* also of one that could not be finished: what was repaired was */
	*n = p->n;
	trace_larder_scrub(c, segment, n);
	return err == -ENODEV ? 0 : err;	/* it went with its SSD */
}
