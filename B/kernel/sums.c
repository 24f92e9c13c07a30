// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checksums of slots: what writeback and reclaim copy is compared with them before it goes anywhere.
 *
 * The sums of a segment come from
 *   - its stream, while the segment is being written (stream->sums: the records whose commit blocks are built);
 *   - memory: the sums of the write stream's segments are kept when these are sealed, those of others once they were needed;
 *   - the SSD: the segment's summary, or its commit blocks (summary.c).
 * So writing back what was written lately reads nothing but the data.  Who reads what is not complete in the log yet (verify.c)
 * asks its records before (log_sums()).  What is kept in memory is bounded, the least recently used goes first; SUMS_MIN of them
 * are allocated at the start, so that sums_put() always succeeds.  A segment's sums are dropped when it is taken for another life.
 *
 * A slot is summed as a whole.  Where only a part of it is wanted (the rest was written anew, or the volume's request was smaller)
 * the whole slot is read, and the part taken from there.  One that does not match is read once more, from each copy of its segment.
 *
 * The sum of dirty data that is not known counts as right, with a warning: neither summary nor commit block of the slot could be
 * read, which says nothing against the data, and to hold it back for that would be worse than to copy it.  Clean data is dropped:
 * the backing has it.  0 stands for a sum that is not known: a slot whose sum is 0 is the one in 2^32 of which damage is taken for
 * that.
 *
 * Lock: sums.lock, process context only, nothing but segments_lock is taken under it: what is kept, segments[].sums, the streams'
 * sums and summary_segment.
 */
#include <linux/mm.h>
#include <linux/vmalloc.h>
#include "larder.h"

#define SUMS_MIN	16u
#define SUMS_AT_ONCE	32u

struct segment_sums {
	struct list_head list;		/* c->sums.kept */
	u32 segment;			/* LARDER_NO_SEGMENT: of none */
	u32 sum[];			/* data_slots of them */
};

/* ------------------------------------------------------------------ what is kept */

static size_t sums_size(const struct cache *c)
{
	return sizeof(struct segment_sums) + c->data_slots * sizeof(u32);
}

u64 sums_bytes(const struct cache *c)
{
	return (u64)READ_ONCE(c->sums.nr) * sums_size(c);
}

int sums_create(struct cache *c)
{
	u64 most = ((u64)totalram_pages() << PAGE_SHIFT) / 1000 / sums_size(c);
	struct segment_sums *e;

	spin_lock_init(&c->sums.lock);
	INIT_LIST_HEAD(&c->sums.kept);
	c->sums.most = clamp_t(u64, most, SUMS_MIN, max(c->nr_segments, SUMS_MIN));
	for (; c->sums.nr < SUMS_MIN; c->sums.nr++) {
		e = kmalloc(sums_size(c), GFP_KERNEL);
		if (!e)
			return -ENOMEM;
		e->segment = LARDER_NO_SEGMENT;
		list_add(&e->list, &c->sums.kept);
	}
	return 0;
}

/* Frees all but 'leave' of them, the least recently used first. */
static void sums_free(struct cache *c, u32 leave)
{
	struct segment_sums *e, *next;
	LIST_HEAD(gone);

	spin_lock(&c->sums.lock);
	while (c->sums.nr > leave) {
		e = list_first_entry(&c->sums.kept, struct segment_sums, list);
		if (e->segment != LARDER_NO_SEGMENT)
			c->segments[e->segment].sums = NULL;
		list_move(&e->list, &gone);
		c->sums.nr--;
	}
	spin_unlock(&c->sums.lock);
	list_for_each_entry_safe(e, next, &gone, list)
		kfree(e);
}

void sums_destroy(struct cache *c)
{
	if (c->sums.kept.next)		/* sums_create() was called */
		sums_free(c, 0);
}

void sums_shrink(struct cache *c)
{
	sums_free(c, SUMS_MIN);
}

/* Lock held: a new one, or the least recently used. */
static struct segment_sums *sums_take(struct cache *c, struct segment_sums **more)
{
	struct segment_sums *e = *more;

	if (e) {
		*more = NULL;
		c->sums.nr++;
		list_add(&e->list, &c->sums.kept);
		return e;
	}
	e = list_first_entry(&c->sums.kept, struct segment_sums, list);
	if (e->segment != LARDER_NO_SEGMENT)
		c->segments[e->segment].sums = NULL;
	return e;
}

void sums_put(struct cache *c, u32 segment, const u32 *sums)
{
	struct segment_sums *more = NULL, *e;

	if (READ_ONCE(c->sums.nr) < c->sums.most && !READ_ONCE(c->memory_pressure))
		more = kmalloc(sums_size(c), GFP_NOWAIT | __GFP_NOWARN);
	spin_lock(&c->sums.lock);
	e = c->segments[segment].sums;
	if (!e) {
		e = sums_take(c, &more);
		e->segment = segment;
		memcpy(e->sum, sums, c->data_slots * sizeof(u32));
		c->segments[segment].sums = e;
	}
	list_move_tail(&e->list, &c->sums.kept);
	spin_unlock(&c->sums.lock);
	kfree(more);
}

/* Also of the stream that wrote it and has left it, but not begun another one: it names what it has written last. */
void sums_drop(struct cache *c, u32 segment)
{
	struct segment_sums *e;
	u32 i;

	spin_lock(&c->sums.lock);
	e = c->segments[segment].sums;
	if (e) {
		c->segments[segment].sums = NULL;
		e->segment = LARDER_NO_SEGMENT;
		list_move(&e->list, &c->sums.kept);
	}
	for (i = 0; i < LARDER_NR_STREAMS; i++)
		if (c->log.stream[i].summary_segment == segment)
			WRITE_ONCE(c->log.stream[i].summary_segment, LARDER_NO_SEGMENT);
	spin_unlock(&c->sums.lock);
}

static bool sums_kept(struct cache *c, u32 segment, u32 slot, u32 n, u32 *sums)
{
	const u32 *from = NULL;
	struct segment_sums *e;
	u32 i;

	spin_lock(&c->sums.lock);
	e = c->segments[segment].sums;
	if (e) {
		from = e->sum;
		list_move_tail(&e->list, &c->sums.kept);
	}
	for (i = 0; i < LARDER_NR_STREAMS && !from; i++)
		if (c->log.stream[i].summary_segment == segment)
			from = c->log.stream[i].sums;
	if (from)
		memcpy(sums, from + slot, n * sizeof(u32));
	spin_unlock(&c->sums.lock);
	return from;
}

bool sums_look(struct cache *c, u32 segment, u32 *sums)
{
	return sums_kept(c, segment, 0, c->data_slots, sums);
}

/* The sums of n slots.  Sleeps. */
static int sums_get(struct cache *c, u32 segment, u32 slot, u32 n, u32 *sums)
{
	struct segment_contents sc = { };
	bool keep;
	int err;

	if (sums_kept(c, segment, slot, n, sums))
		return 0;
	/* else what is read now lacks those of the records that are on their way */
	keep = !log_writes_to(c, segment);
	sc.sums = kvmalloc_array(c->data_slots, sizeof(u32), GFP_NOIO);
	if (!sc.sums)
		return -ENOMEM;
	err = segment_read_contents(c, segment, &sc);
	if (!err) {
		cache_count(c, sums_reads, 1);
		if (keep)
			sums_put(c, segment, sc.sums);
		memcpy(sums, sc.sums + slot, n * sizeof(u32));
	}
	kvfree(sc.sums);
	return err;
}

int slot_sums(struct cache *c, u64 cache, u32 n, u32 *sums)
{
	u32 slot = (cache & (c->segment_sectors - 1)) / LARDER_SLOT_SECTORS, logged[SUMS_AT_ONCE], i;
	int err;

	if (WARN_ON_ONCE(n > SUMS_AT_ONCE))
		return -EINVAL;
	/* in this order: a record that has gone meanwhile has told its stream */
	if (log_sums(c, cache_segment(c, cache), slot, n, logged) == n) {
		memcpy(sums, logged, n * sizeof(u32));
		return 0;
	}
	err = sums_get(c, cache_segment(c, cache), slot, n, sums);
	for (i = 0; i < n && !err; i++)
		if (logged[i])
			sums[i] = logged[i];
	return err;
}

/* ------------------------------------------------------------------ slots known to be damaged */

static u64 slot_number(u64 cache) { return cache / LARDER_SLOT_SECTORS; }

int slot_bad_set(struct cache *c, u64 cache)
{
	size_t bytes = BITS_TO_LONGS((u64)c->nr_segments * c->segment_slots) * sizeof(long);
	unsigned long *bits = READ_ONCE(c->bad_slots);

	if (!bits) {
		bits = __vmalloc(bytes, GFP_NOIO | __GFP_ZERO);
		if (!bits)
			return -ENOMEM;
		if (cmpxchg(&c->bad_slots, NULL, bits))
			vfree(bits);
	}
	larder_slot_set(slot_number(cache), c->bad_slots);
	return 0;
}

void slot_bad_clear(struct cache *c, u64 cache)
{
	unsigned long *bits = READ_ONCE(c->bad_slots);

	if (unlikely(bits) && test_bit(slot_number(cache), bits))
		larder_slot_clear(slot_number(cache), bits);
}

void slots_bad_forget(struct cache *c, u32 segment)
{
	unsigned long *bits = READ_ONCE(c->bad_slots);
	u64 first = (u64)segment * c->segment_slots, slot;

	for (slot = first; unlikely(bits) && slot < first + c->data_slots; slot++)
		if (test_bit(slot, bits))
			larder_slot_clear(slot, bits);
}

u32 slots_good(struct cache *c, u64 cache, u32 len)
{
	u64 last = slot_number(cache + len - 1), bad = find_next_bit(c->bad_slots, last + 1, slot_number(cache));

	if (bad > last)
		return len;
	return bad * LARDER_SLOT_SECTORS > cache ? bad * LARDER_SLOT_SECTORS - cache : 0;
}

/* ------------------------------------------------------------------ data and its sums */

/* Sectors in front of the first whole slot, and in whole slots. */
static u32 data_head(const struct cached_data *x)
{
	return min_t(u32, -x->cache & (LARDER_SLOT_SECTORS - 1), x->len);
}

static u32 data_body(const struct cached_data *x)
{
	return (x->len - data_head(x)) & ~(LARDER_SLOT_SECTORS - 1);
}

static void *data_address(const struct cached_data *x, u32 at)
{
	at += x->offset;
	return page_address(x->pages[at / LARDER_SLOT_SECTORS]) + ((at & (LARDER_SLOT_SECTORS - 1)) << SECTOR_SHIFT);
}

void data_bio_add(struct bio *bio, struct page **pages, u32 offset, u32 sectors)
{
	u32 n, at;

	for (; sectors; sectors -= n, offset += n) {
		at = offset & (LARDER_SLOT_SECTORS - 1);
		n = min(sectors, LARDER_SLOT_SECTORS - at);
		__bio_add_page(bio, pages[offset / LARDER_SLOT_SECTORS], n << SECTOR_SHIFT, at << SECTOR_SHIFT);
	}
}

bool data_reads_whole(struct cache *c, const struct cached_data *x)
{
	u32 head = data_head(x);
	struct cache_device *d;
	sector_t where;

	if (!data_body(x))
		return true;
	d = cache_sector_device(c, x->cache + head, &where);
	return !d->bdev || !(((x->offset + head) << SECTOR_SHIFT) & bdev_dma_alignment(d->bdev));
}

struct bio *data_read_bio(struct cache *c, const struct cached_data *x)
{
	u32 head = data_head(x), body = data_body(x);
	struct cache_device *d;
	struct bio *bio;
	sector_t where;

	if (!body)
		return NULL;
	d = cache_sector_device(c, x->cache + head, &where);
	if (unlikely(READ_ONCE(d->failed)))
		return ERR_PTR(-EIO);
	bio = bio_alloc_bioset(d->bdev, body / LARDER_SLOT_SECTORS + 1, REQ_OP_READ, GFP_NOIO, &c->bios);
	bio->bi_iter.bi_sector = where;
	data_bio_add(bio, x->pages, x->offset + head, body);
	return bio;
}

/* Of the whole slot of the data that begins 'at' sectors behind its start: it may lie across two pages. */
static u32 data_slot_sum(const struct cached_data *x, u32 at)
{
	u32 n = LARDER_SLOT_SECTORS - ((x->offset + at) & (LARDER_SLOT_SECTORS - 1));
	u32 crc = crc32c(~0u, data_address(x, at), n << SECTOR_SHIFT);

	if (n < LARDER_SLOT_SECTORS)
		crc = crc32c(crc, data_address(x, at + n), (LARDER_SLOT_SECTORS - n) << SECTOR_SHIFT);
	return crc;
}

int slot_judge(struct cache *c, u64 cache, u32 known, u32 found, bool clean)
{
	if (known && known != found) {
		cache_count(c, errors_checksum, 1);
		return -EBADMSG;
	}
	if (known == found) {
		cache_count(c, checked_slots, 1);
		slot_bad_clear(c, cache);
		return 0;
	}
	if (clean)
		return -ENODATA;
	/* there is no sum, but something does speak against it */
	if (READ_ONCE(c->segments[cache_segment(c, cache)].foreign)) {
		cache_count(c, errors_checksum, 1);
		return -EBADMSG;
	}
	cache_count(c, unchecked_slots, 1);
	DMWARN_LIMIT("cache %pUb: segment %u: no checksum of slot %llu can be read: it is used unchecked", c->uuid,
		     cache_segment(c, cache), (cache & (c->segment_sectors - 1)) / LARDER_SLOT_SECTORS);
	return 0;
}

/* Nothing tells a copy that is bad, or older, but what is known of its segment. */
static int slot_unchecked(struct cache *c, u64 cache, void *slot)
{
	struct cache_device *d;
	sector_t where;
	u32 tried = 0;

	d = cache_sector_device(c, cache, &where);
	do {
		if (!device_read(d, REQ_OP_READ, where, slot, LARDER_SLOT_SIZE))
			return slot_judge(c, cache, 0, larder_crc(slot, LARDER_SLOT_SIZE), false);
		d = segment_next_copy(c, cache, d, &tried, &where);
	} while (d);
	return -EIO;
}

/* From one copy after the other, until one matches.  Where that is a further one, those are read from now on. */
int slot_from_copies(struct cache *c, u64 cache, u32 known, void *slot)
{
	u32 segment = cache_segment(c, cache), copy[SEGMENT_COPIES], n = segment_ring(c, segment, copy), i;
	struct cache_device *d;
	sector_t where;
	int err = -EIO;

	if (!known)
		return slot_unchecked(c, cache, slot);
	for (i = 0; i < n; i++) {
		d = copy_sector_device(c, copy_sector(c, cache, copy[i]), &where);
		if (device_read(d, REQ_OP_READ, where, slot, LARDER_SLOT_SIZE))
			continue;
		err = -EBADMSG;
		if (larder_crc(slot, LARDER_SLOT_SIZE) != known)
			continue;
		if (i)
			segment_try_mirror(c, segment, segment_device(c, segment), true);
		return slot_judge(c, cache, known, known, false);
	}
	return err;
}

/* It did not match. */
static int slot_reread(struct cache *c, u64 cache, u32 known, void *slot)
{
	if (slot_from_copies(c, cache, known, slot)) {
		/* without memory for it reads are believed, as before it was known */
		slot_bad_set(c, cache);
		return -EBADMSG;
	}
	DMWARN_LIMIT("cache %pUb: segment %u: slot %llu, read once more, matches its checksum, what was read before did not",
		     c->uuid, cache_segment(c, cache), (cache & (c->segment_sectors - 1)) / LARDER_SLOT_SECTORS);
	return 0;
}

static int data_sums(struct cache *c, const struct cached_data *x, u64 cache, u32 n, u32 *sums)
{
	u32 slot = (cache & (c->segment_sectors - 1)) / LARDER_SLOT_SECTORS;

	if (!x->sums)
		return sums_get(c, cache_segment(c, cache), slot, n, sums);
	memcpy(sums, x->sums + slot, n * sizeof(u32));
	return 0;
}

/* The sectors [at, at + n) of the data are in this slot. */
static void data_store(const struct cached_data *x, u32 at, u32 n, u64 cache, const void *slot)
{
	u32 i;

	for (i = 0; i < n; i++)
		memcpy(data_address(x, at + i), slot + ((x->cache + at + i - cache) << SECTOR_SHIFT), SECTOR_SIZE);
}

static int data_reread(struct cache *c, struct cached_data *x, u32 at, u32 n, u64 cache, u32 known)
{
	void *slot = kmalloc(LARDER_SLOT_SIZE, GFP_NOIO);
	int err = slot ? slot_reread(c, cache, known, slot) : -ENOMEM;

	if (!err)
		data_store(x, at, n, cache, slot);
	else
		x->damaged = cache;
	kfree(slot);
	return err;
}

int data_check(struct cache *c, struct cached_data *x)
{
	u32 at = data_head(x), left = data_body(x) / LARDER_SLOT_SECTORS, sums[SUMS_AT_ONCE], n, i;
	int err = 0;

	for (; left && !err; left -= n) {
		n = min(left, SUMS_AT_ONCE);
		err = data_sums(c, x, x->cache + at, n, sums);
		for (i = 0; i < n && !err; i++, at += LARDER_SLOT_SECTORS) {
			err = slot_judge(c, x->cache + at, sums[i], data_slot_sum(x, at), x->clean);
			if (err == -EBADMSG)
				err = data_reread(c, x, at, LARDER_SLOT_SECTORS, x->cache + at, sums[i]);
		}
	}
	return err;
}

/* The sectors [at, at + n) of the data are a part of one slot. */
static int data_read_part(struct cache *c, struct cached_data *x, u32 at, u32 n, void *slot)
{
	u64 cache = (x->cache + at) & ~(u64)(LARDER_SLOT_SECTORS - 1);
	sector_t where;
	struct cache_device *d = cache_sector_device(c, cache, &where);
	u32 known;
	int err;

	if (device_read(d, REQ_OP_READ, where, slot, LARDER_SLOT_SIZE))
		return -EIO;
	err = data_sums(c, x, cache, 1, &known);
	if (err)
		return err;
	err = slot_judge(c, cache, known, larder_crc(slot, LARDER_SLOT_SIZE), x->clean);
	if (err == -EBADMSG)
		return data_reread(c, x, at, n, cache, known);
	if (!err)
		data_store(x, at, n, cache, slot);
	return err;
}

int data_read_edges(struct cache *c, struct cached_data *x)
{
	u32 head = data_head(x), tail = x->len - head - data_body(x);
	int err = 0;
	void *slot;

	if (!head && !tail)
		return 0;
	slot = kmalloc(LARDER_SLOT_SIZE, GFP_NOIO);
	if (!slot)
		return -ENOMEM;
	if (head)
		err = data_read_part(c, x, 0, head, slot);
	if (tail && !err)
		err = data_read_part(c, x, x->len - tail, tail, slot);
	kfree(slot);
	return err;
}

int data_read(struct cache *c, struct cached_data *x)
{
	struct bio *bio;
	int err = 0;

	if (unlikely(!data_reads_whole(c, x)))
		return data_read_slots(c, x);
	bio = data_read_bio(c, x);
	if (IS_ERR(bio))
		return data_read_slots(c, x);
	if (bio) {
		err = submit_bio_wait(bio) ? -EIO : 0;
		bio_put(bio);
	}
	return err ?: data_read_edges(c, x) ?: data_check(c, x);
}

int data_read_slots(struct cache *c, struct cached_data *x)
{
	void *slot = kmalloc(LARDER_SLOT_SIZE, GFP_NOIO);
	int err = slot ? 0 : -ENOMEM;
	u32 at, n, known;
	u64 cache;

	for (at = 0; at < x->len && !err; at += n) {
		cache = (x->cache + at) & ~(u64)(LARDER_SLOT_SECTORS - 1);
		n = min_t(u64, x->len - at, cache + LARDER_SLOT_SECTORS - (x->cache + at));
		err = data_sums(c, x, cache, 1, &known);
		if (!err)
			err = x->clean && !known ? -ENODATA : slot_from_copies(c, cache, known, slot);
		if (!err)
			data_store(x, at, n, cache, slot);
		else
			x->damaged = cache;
		if (err == -EBADMSG) {
			cache_count(c, errors_checksum, 1);
			slot_bad_set(c, cache);
		}
	}
	kfree(slot);
	return err;
}
