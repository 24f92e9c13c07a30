// SPDX-License-Identifier: GPL-2.0-only
/*
 * verify=reads: what a user's read got from an SSD is compared with its checksums before it is answered (sums.c).
 *
 * io_end() hands a hit over to a worker, its segment still pinned: verify_hit().  Slots that were read as a whole are summed where
 * they are, in the pages of the user; of those that were read in part the whole slot is read, and the part taken from there.  One
 * that does not match is read from each copy of its segment.  Where none matches
 *   clean data	goes, and the read is answered by the backing
 *   dirty data	nobody else has: the read fails, as do later ones (slot_bad_set())
 * A sum that is not known: clean data goes likewise; dirty data is believed, as by writeback, and counted (unchecked_slots).
 *
 * The pages of a bio may change under it, if whoever reads shares them: that looks like damage, and is mended like it.
 */
#include <linux/delay.h>
#include <linux/sched/mm.h>

#include "larder.h"

#define SUMS_AT_ONCE	32u

/* A range of sectors of the cache, in one segment, and where it goes to: the sectors of the bio from iter on. */
struct verified {
	struct bio *bio;
	struct bvec_iter iter;
	u64 cache;
	u32 len;
	bool clean;
	bool read;		/* the bio has what is on the SSD; else it is to be read */
};

static u32 bio_sum(struct verified *x, u32 bytes)
{
	u32 crc = ~0u, n;
	struct bio_vec bv;
	void *p;

	for (; bytes; bytes -= n) {
		bv = bio_iter_iovec(x->bio, x->iter);
		n = min(bv.bv_len, bytes);
		p = bvec_kmap_local(&bv);
		crc = crc32c(crc, p, n);
		kunmap_local(p);
		bio_advance_iter_single(x->bio, &x->iter, n);
	}
	return crc;
}

static void bio_put_data(struct verified *x, const void *from, u32 bytes)
{
	struct bio_vec bv;

	for (; bytes; bytes -= bv.bv_len, from += bv.bv_len) {
		bv = bio_iter_iovec(x->bio, x->iter);
		bv.bv_len = min(bv.bv_len, bytes);
		memcpy_to_bvec(&bv, from);
		bio_advance_iter_single(x->bio, &x->iter, bv.bv_len);
	}
}

/* The sectors [at, at + n) of the slot, from whichever copy has it. */
static int verify_from_copies(struct cache *c, struct verified *x, u64 slot, u32 at, u32 n, u32 known)
{
	void *buf = kmalloc(LARDER_SLOT_SIZE, GFP_NOIO);
	int err = buf ? slot_from_copies(c, slot, known, buf) : -ENOMEM;

	if (!err)
		bio_put_data(x, buf + (at << SECTOR_SHIFT), n << SECTOR_SHIFT);
	else if (err == -EBADMSG && !x->clean)
		slot_bad_set(c, slot);		/* without memory for it the next read finds out */
	kfree(buf);
	return err;
}

static int verify_slot(struct cache *c, struct verified *x, u64 slot, u32 at, u32 n, u32 known)
{
	struct bvec_iter start = x->iter;
	int err;

	if (!known && x->clean)
		return -ENODATA;
	if (x->read && n == LARDER_SLOT_SECTORS) {
		err = slot_judge(c, slot, known, bio_sum(x, LARDER_SLOT_SIZE), x->clean);
		if (err != -EBADMSG)
			return err;
		x->iter = start;
		err = verify_from_copies(c, x, slot, at, n, known);
	} else {
		err = verify_from_copies(c, x, slot, at, n, known);
		if (err == -EBADMSG)
			cache_count(c, errors_checksum, 1);
	}
	if (err == -EBADMSG)
		DMWARN_LIMIT("cache %pUb: segment %u: slot %llu, which was read, does not match its checksum: %s", c->uuid,
			     cache_segment(c, slot), (slot & (c->segment_sectors - 1)) / LARDER_SLOT_SECTORS,
			     x->clean ? "the backing has it" : "no SSD has its data");
	return err;
}

/* Sleeps.  0: the bio has what was written; -EBADMSG, -ENODATA, -EIO: no SSD has it, or nothing tells; -ENOMEM: in part, too */
static int verify_range(struct cache *c, struct verified *x)
{
	u32 sums[SUMS_AT_ONCE], have = 0, i = 0, at, n;
	u64 cache = x->cache, slot;
	int err = 0;

	for (; cache < x->cache + x->len && !err; cache += n, i++) {
		at = cache & (LARDER_SLOT_SECTORS - 1);
		slot = cache - at;
		n = min_t(u64, LARDER_SLOT_SECTORS - at, x->cache + x->len - cache);
		if (i == have) {
			have = min_t(u64, DIV_ROUND_UP(x->cache + x->len - slot, LARDER_SLOT_SECTORS), SUMS_AT_ONCE);
			i = 0;
			err = slot_sums(c, slot, have, sums);
		}
		if (!err)
			err = verify_slot(c, x, slot, at, n, sums[i]);
	}
	return err;
}

/* The same, and it waits for memory. */
static int verify(struct volume *v, const struct verified *x)
{
	unsigned int noio = memalloc_noio_save();
	struct cache *c = v->cache;
	struct verified again;
	int err;

	for (;;) {
		again = *x;
		err = verify_range(c, &again);
		if (err != -ENOMEM)
			break;
		cache_count(c, waits_memory, 1);
		msleep(NO_MEMORY_MS);
	}
	memalloc_noio_restore(noio);
	if (err == -EBADMSG)
		volume_count(v, errors_checksum, 1);
	if (err && !x->clean)
		cache_error(c, errors_read);
	return err;
}

int verify_read(struct volume *v, struct bio *bio, const struct larder_map *m)
{
	struct verified x = {
		.bio = bio, .iter = bio->bi_iter, .cache = m->cache, .len = m->len,
		.clean = m->state == LARDER_ST_CLEAN,
	};

	return verify(v, &x) ? -EIO : 0;
}

static void verify_work(struct work_struct *work)
{
	struct larder_io *io = container_of(work, struct larder_io, verify_work);
	struct volume *v = io->volume;
	struct bio *bio = larder_io_bio(io);
	struct verified x = {
		.bio = bio, .iter = io->iter, .cache = io->cache, .len = io->len,
		.clean = io->state == LARDER_ST_CLEAN, .read = true,
	};
	int err = verify(v, &x);

	segment_unpin(v->cache, io->segment - v->cache->segments);
	if (!err) {
		io_complete(bio, 0);
		return;
	}
	if (x.clean) {
		io_read_again(v, bio, io);
		return;
	}
	read_lost(v, io->sector, io->len);
	io_complete(bio, -EIO);
}

void verify_hit(struct volume *v, struct larder_io *io)
{
	INIT_WORK(&io->verify_work, verify_work);
	queue_work(v->cache->io_wq, &io->verify_work);
}
