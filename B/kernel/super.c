// SPDX-License-Identifier: GPL-2.0-only
/*
 * Superblocks and tables on their devices, and the synchronous I/O that they, the checkpoints and recovery use.
 *
 * A superblock has two copies.  A write raises the generation, then writes copy A, then copy B, each with PREFLUSH and FUA, and
 * counts as done only when both are: what the old superblock named is kept until then.  (Where A is newer than B, as a write of a
 * volume's was cut off, B goes first: the same with the names changed.)  After a power cut
 *   before A is durable	A and B are old, or A is torn and B is old: the old superblock counts
 *   between A and B		A is new, B is old: the higher generation counts
 *   while B is written		A is new, B is torn
 * so that at any moment at least one copy is whole, and one that is older than the other names nothing that was given up (rule 8:
 * what a superblock names is durable, by the PREFLUSH, before the superblock is; a start makes all copies the same before it gives
 * anything up).  A write that failed leaves both possible: the caller gives up neither what the old one names nor what the new one
 * does, until a later write of the same superblock has succeeded.
 *
 * The table of devices and volumes has two places.  The older one is written first, then the other, with the same contents: a power
 * cut leaves at least one whole, and a place that goes bad later takes nothing with it.  Which one is older is the same on all
 * members: a start makes it so (cache_table_settle()).
 *
 * may_be_dirty (rule 11) is set when both copies say so, and counts as not set as soon as the first copy that clears it may be on
 * its way.
 *
 * Locks: cache->super_lock or volume->super_lock, held by the callers where larder.h says so; buffers are stable under them while
 * they are written.
 */
#include <linux/vmalloc.h>

#include "larder.h"

/* ------------------------------------------------------------------ bulk I/O */

static void bulk_put(struct bulk_io *b)
{
	if (atomic_dec_and_test(&b->left))
		complete(&b->done);
}

/* Interrupt context.  An SSD that can be spared leaves first: nothing is suspected for it. */
static void bulk_device_failed(struct bulk_io *b, blk_status_t status)
{
	if (!b->stays)
		set_metadata_failed(b->cache, b->device);
	if (doubt_may_be_reset(b->cache, b->device, status) && !xchg(&b->suspected, 1))
		doubt_suspect(b->cache, b->device);
}

/* Interrupt context. */
static void bulk_end_io(struct bio *bio)
{
	struct bulk_io *b = bio->bi_private;

	if (bio->bi_status) {
		WRITE_ONCE(b->error, blk_status_to_errno(bio->bi_status));
		if (b->device)
			bulk_device_failed(b, bio->bi_status);
	}
	bio_put(bio);
	bulk_put(b);
}

static struct page *buffer_page(void *p)
{
	return is_vmalloc_addr(p) ? vmalloc_to_page(p) : virt_to_page(p);
}

/* Of our own: those of fs_bio_set may all be waiting above us for what we read or write (rule 12) */
static struct bio_set bulk_bios;

int super_init(void)
{
	return bioset_init(&bulk_bios, BIO_POOL_SIZE, 0, BIOSET_NEED_BVECS);
}

void super_exit(void)
{
	bioset_exit(&bulk_bios);
}

static void bulk_submit(struct bulk_io *b, struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buf, size_t bytes)
{
	struct blk_plug plug;
	struct bio *bio;
	unsigned int n;

	/* one bio then: the order between several would be nobody's */
	WARN_ON_ONCE((opf & REQ_PREFLUSH) && bytes > (size_t)BIO_MAX_VECS * PAGE_SIZE);
	atomic_set(&b->left, 1);
	init_completion(&b->done);
	b->error = 0;
	b->buf = buf;
	b->bytes = bytes;
	b->read = op_is_write(opf) ? false : true;
	if (!b->read && is_vmalloc_addr(buf))
		flush_kernel_vmap_range(buf, bytes);
	blk_start_plug(&plug);
	while (bytes) {
		/* each is submitted before the next one is taken */
		bio = bio_alloc_bioset(bdev, bio_max_segs(DIV_ROUND_UP(bytes + offset_in_page(buf), PAGE_SIZE)), opf, GFP_NOIO,
				       &bulk_bios);
		bio->bi_iter.bi_sector = sector;
		bio->bi_private = b;
		bio->bi_end_io = bulk_end_io;
		for (; bytes; bytes -= n, buf += n) {
			n = min_t(size_t, bytes, PAGE_SIZE - offset_in_page(buf));
			if (bio_add_page(bio, buffer_page(buf), n, offset_in_page(buf)) != n)
				break;
		}
		sector += bio_sectors(bio);
		atomic_inc(&b->left);
		submit_bio(bio);
	}
	blk_finish_plug(&plug);
	bulk_put(b);
}

void bulk_start(struct bulk_io *b, struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buf, size_t bytes)
{
	b->device = NULL;
	bulk_submit(b, bdev, opf, sector, buf, bytes);
}

int bulk_wait(struct bulk_io *b)
{
	wait_for_completion_io(&b->done);
	if (b->read && is_vmalloc_addr(b->buf))
		invalidate_kernel_vmap_range(b->buf, b->bytes);
	return READ_ONCE(b->error);
}

int super_io(struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buf, size_t bytes)
{
	struct bulk_io b;

	bulk_start(&b, bdev, opf, sector, buf, bytes);
	return bulk_wait(&b);
}

static int device_write(struct cache *c, struct cache_device *d, bool stays, blk_opf_t opf, sector_t sector, void *buf,
			size_t bytes)
{
	struct bulk_io b = { .cache = c, .device = d, .stays = stays };
	bool reset;
	int err;

	bulk_submit(&b, d->bdev, opf, sector, buf, bytes);
	err = bulk_wait(&b);
	if (!(opf & REQ_PREFLUSH))
		flusher_wrote(&d->flusher);
	else if (err)
		flusher_doubt(&d->flusher);
	if (!err)
		return 0;
	cache_error(c, errors_write);
	if (!b.suspected)
		return err;
	/*
	 * One that takes it now has lost what it had when it did not.  A place that refuses again is bad, whatever its error says,
	 * if a flush succeeds; else that begins a doubt.  The error stands: what the write was to follow may be gone.
	 */
	reset = !READ_ONCE(d->failed) && !super_io(d->bdev, opf, sector, buf, bytes);
	if (!reset && !READ_ONCE(d->failed))
		flusher_sync(&d->flusher, true);
	doubt_suspect_end(c, d, reset);
	return err;
}

int cache_device_write(struct cache *c, struct cache_device *d, blk_opf_t opf, sector_t sector, void *buf, size_t bytes)
{
	return device_write(c, d, false, opf, sector, buf, bytes);
}

#define SUPER_READ	(REQ_OP_READ | REQ_SYNC | REQ_META)
#define SUPER_WRITE	(REQ_OP_WRITE | REQ_SYNC | REQ_META | REQ_PREFLUSH | REQ_FUA)

/* ------------------------------------------------------------------ superblocks: reading */

/* Bytes: where the second copy may be if the first one cannot say; 0: nowhere. */
static u64 copy_place(const struct larder_sb_head *a, u32 kind, u64 device_sectors, unsigned int attempt)
{
	u64 place, limit = device_sectors << LARDER_SECTOR_SHIFT;

	if (attempt == 0)
		place = le64_to_cpu(a->copy_offset);
	else if (kind == LARDER_KIND_CACHE)
		place = larder_cache_copy_offset(device_sectors);
	else
		place = LARDER_DEF_VOLUME_COPY_OFFSET;
	if (place % LARDER_SB_SIZE || place < LARDER_SB_OFFSET + LARDER_SB_SIZE || limit < LARDER_SB_SIZE ||
	    place > limit - LARDER_SB_SIZE)
		return 0;
	return place;
}

/*
 * a: what was read at LARDER_SB_OFFSET (zeroes if that failed), or what replaces it.  The place that a names is tried first, even
 * if its checksum is wrong: a copy counts only if it says itself that it is there.  Returns 0: a counts; 1: b does; negative:
 * neither, *why says what is wrong with a.
 */
static int super_second_copy(struct block_device *bdev, u32 kind, const void *a, void *b, const char **why)
{
	u64 sectors = bdev_nr_sectors(bdev), place, tried = 0;
	const char *a_why = NULL, *b_why = NULL;
	int chosen = larder_choose_sb(a, NULL, 0, kind, sectors, &a_why);
	bool a_valid = !chosen;
	unsigned int i;

	for (i = 0; i < (a_valid ? 1 : 2); i++) {
		place = copy_place(a, kind, sectors, i);
		if (!place || place == tried)
			continue;
		tried = place;
		if (super_io(bdev, SUPER_READ, place >> SECTOR_SHIFT, b, LARDER_SB_SIZE)) {
			DMWARN("%pg: cannot read the copy of the superblock at byte %llu", bdev, place);
			continue;
		}
		chosen = larder_choose_sb(a, b, place, kind, sectors, &b_why);
		if (chosen > 0) {
			DMWARN("%pg: the superblock is %s%s; its copy at byte %llu is used, the next start repairs it", bdev,
			       a_valid ? "older than its copy" : "damaged: ", a_valid ? "" : a_why, place);
			break;
		}
		if (!chosen && larder_check_sb(b, sectors, &b_why))
			DMWARN("%pg: the copy of the superblock at byte %llu is damaged: %s; the next start repairs it", bdev,
			       place, b_why);
	}
	*why = a_why;
	return chosen;
}

/* Reads LARDER_SB_SIZE bytes into sb.  Returns as super_read_cache(). */
static int super_read(struct block_device *bdev, u32 kind, void *sb, const char **why)
{
	void *a, *b;
	int err, chosen;

	*why = NULL;
	if (bdev_nr_sectors(bdev) < (LARDER_SB_OFFSET + LARDER_SB_SIZE) >> SECTOR_SHIFT) {
		*why = "the device is too small";
		return -ENODATA;
	}
	a = (void *)__get_free_page(GFP_NOIO | __GFP_ZERO);
	b = (void *)__get_free_page(GFP_NOIO | __GFP_ZERO);
	if (!a || !b) {
		*why = "no memory";
		err = -ENOMEM;
		goto out;
	}
	BUILD_BUG_ON(PAGE_SIZE < LARDER_SB_SIZE);
	err = super_io(bdev, SUPER_READ, LARDER_SB_OFFSET >> SECTOR_SHIFT, a, LARDER_SB_SIZE);
	if (err) {
		DMERR("%pg: cannot read the superblock at byte %u: error %d", bdev, LARDER_SB_OFFSET, err);
		memset(a, 0, LARDER_SB_SIZE);
	}
	chosen = super_second_copy(bdev, kind, a, b, why);
	if (chosen >= 0) {
		memcpy(sb, chosen ? b : a, LARDER_SB_SIZE);
		err = 0;
	} else if (err) {
		*why = "read error";
	} else {
		err = chosen;
	}
out:
	free_page((unsigned long)b);
	free_page((unsigned long)a);
	return err;
}

int super_read_cache(struct block_device *bdev, struct larder_cache_sb *sb, const char **why)
{
	return super_read(bdev, LARDER_KIND_CACHE, sb, why);
}

int super_read_volume(struct block_device *bdev, struct larder_volume_sb *sb, const char **why)
{
	return super_read(bdev, LARDER_KIND_VOLUME, sb, why);
}

/* What two copies may differ in: a volume that could not grow goes on, with one of them written (grow.c). */
static void super_without_sizes(struct larder_volume_sb *sb)
{
	sb->head.crc = 0;
	sb->head.generation = 0;
	sb->head.device_sectors = 0;
	sb->sectors = 0;
}

bool super_volume_whole(struct block_device *bdev, const struct larder_volume_sb *sb, u64 sectors, bool *first_counts)
{
	u64 place[2] = { LARDER_SB_OFFSET, le64_to_cpu(sb->head.copy_offset) };
	struct larder_volume_sb *wanted = kmemdup(sb, LARDER_SB_SIZE, GFP_NOIO), *found = kmalloc(LARDER_SB_SIZE, GFP_NOIO);
	bool whole = wanted && found, is_read;
	const char *why;
	unsigned int i;

	*first_counts = false;
	if (whole)
		super_without_sizes(wanted);
	for (i = 0; i < 2 && whole; i++) {
		if (!place[i])
			continue;
		is_read = !super_io(bdev, SUPER_READ, place[i] >> SECTOR_SHIFT, found, LARDER_SB_SIZE);
		if (!i)
			*first_counts = is_read && !memcmp(found, sb, LARDER_SB_SIZE);
		whole = is_read && !larder_check_sb(&found->head, bdev_nr_sectors(bdev), &why) &&
			le64_to_cpu(found->sectors) >= sectors;
		if (whole) {
			super_without_sizes(found);
			whole = !memcmp(found, wanted, LARDER_SB_SIZE);
		}
	}
	kfree(found);
	kfree(wanted);
	return whole;
}

void super_refused(struct block_device *bdev, const char *why, const char *what, const char *noun)
{
	if (strstr(why, "smaller"))
		DMERR("%pg: %s: make it as large as it was", bdev, why);
	else if (!strcmp(why, "read error"))
		DMERR("%pg: %s: check the device and its cables%s", bdev, why,
		      strcmp(noun, "cache") ? "" : "; in the place of an SSD that has failed give '-'");
	else
		DMERR("%pg: %s: not %s; 'larder super check' says more, 'larder %s create' makes one", bdev, why, what, noun);
}

/* ------------------------------------------------------------------ superblocks: writing */

/*
 * A sealed superblock to its two places, A first; B, if A is newer than B by now (*b_first), so that the newer one is there until
 * this one is.  Logs the error.  d: of the cache c; NULL: a volume's.
 */
static int super_write_copies(struct cache *c, struct cache_device *d, struct block_device *bdev, struct larder_sb_head *head,
			      bool *b_first)
{
	u64 copy = le64_to_cpu(head->copy_offset);
	u64 place[2] = { *b_first ? copy : LARDER_SB_OFFSET, *b_first ? LARDER_SB_OFFSET : copy };
	bool was = *b_first;
	unsigned int i;
	int err;

	for (i = 0; i < 2; i++) {
		if (!place[i])
			continue;
		err = d ? cache_device_write(c, d, SUPER_WRITE, place[i] >> SECTOR_SHIFT, head, LARDER_SB_SIZE) :
			  super_io(bdev, SUPER_WRITE, place[i] >> SECTOR_SHIFT, head, LARDER_SB_SIZE);
		if (err) {
			DMERR(
				"%pg: cannot write the superblock at byte %llu (generation %llu): error %d; check the device and its cables",
				bdev, place[i], le64_to_cpu(head->generation), err);
			return err;
		}
		*b_first = !i && !was;	/* an error behind this: the next one begins with the other place */
	}
	return 0;
}

static void cache_super_fill(const struct cache *c, struct larder_cache_sb *sb, u32 flags)
{
	const struct named_checkpoint *n;
	struct larder_checkpoint_ptr *p;
	unsigned int i;

	sb->head.generation = cpu_to_le64(c->sb_generation);
	sb->head.flags = cpu_to_le32(flags);
	sb->head.incompat &= ~cpu_to_le64(LARDER_INCOMPAT_THIRD);
	if (c->third)
		sb->head.incompat |= cpu_to_le64(LARDER_INCOMPAT_THIRD);
	sb->nr_devices = cpu_to_le32(c->table_places);
	sb->role = c->table->devices[le32_to_cpu(sb->device_number)].role;
	sb->set_generation = cpu_to_le64(c->set_generation);
	sb->table_generation = cpu_to_le64(c->table_generation);
	sb->epoch = cpu_to_le32(c->epoch);
	sb->all_generation = cpu_to_le64(c->all_generation);
	if (c->started)
		sb->durable_sequence = cpu_to_le64(READ_ONCE(c->log.durable_sequence));
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++) {
		n = &c->named[i];
		p = &sb->checkpoint[i];
		memset(p, 0, sizeof(*p));
		p->first_segment = cpu_to_le32(LARDER_NO_SEGMENT);
		if (!n->sequence)
			continue;
		p->sequence = cpu_to_le64(n->sequence);
		p->bytes = cpu_to_le64(n->bytes);
		p->replay_sequence = cpu_to_le64(n->replay_sequence);
		p->first_segment = cpu_to_le32(n->first_segment);
		p->first_mirror = cpu_to_le32(larder_second(n->first_further));
		p->first_third = cpu_to_le32(larder_third(n->first_further));
		p->epoch = cpu_to_le32(n->epoch);
		p->hash = cpu_to_le64(n->hash);
	}
	larder_seal_sb(&sb->head);
}

/*
 * The generation is raised even if the write fails: nobody knows then which one is on the SSD, and the next one must be newer than
 * either.  Every SSD is tried: one that fails does not keep the others from the newest generation.
 */
int cache_super_write(struct cache *c, u32 flags)
{
	struct cache_device *d;
	int error = 0, err;
	bool joins, b_first;
	u32 written = 0;
	unsigned int i;

	lockdep_assert_held(&c->super_lock);
	for (i = 0; i < c->nr_devices; i++) {
		d = &c->dev[i];
		if (device_written(d) && larder_sb_read_only(&d->sb->head)) {
			DMERR("%pg: the superblock has features that only a newer larder may write (ro_compat %#llx)", d->bdev,
			      le64_to_cpu(d->sb->head.ro_compat));
			return -EROFS;
		}
	}
	for (i = 0; i < c->nr_devices; i++) {
		d = &c->dev[i];
		if (!device_written(d))
			continue;
		joins = READ_ONCE(d->failed);
		cache_super_fill(c, d->sb, joins ? flags | LARDER_CACHE_JOINS : flags);
		b_first = false;	/* a start has made them the same */
		err = super_write_copies(c, d, d->bdev, &d->sb->head, &b_first);
		if (err && !joins)
			error = error ?: err;
		if (err)
			continue;
		written |= 1u << i;
		d->written = le64_to_cpu(d->sb->head.generation);
	}
	c->sb_generation++;
	/* one that fails just now, or is missing, has not got it, and may be all that is left, by the set as it was (rule 14) */
	if (!(c->members & ~written))
		c->all_generation = c->sb_generation;
	cache_count(c, superblock_writes, 1);
	return error;
}

int cache_super_touch(struct cache *c, struct cache_device *d)
{
	void *buf = kmalloc(LARDER_SB_SIZE, GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	u64 place[2] = { LARDER_SB_OFFSET };
	unsigned int i;
	int err = -EIO;

	if (!buf)
		return -ENOMEM;
	mutex_lock(&c->super_lock);
	place[1] = le64_to_cpu(d->sb->head.copy_offset);
	for (i = 0; i < ARRAY_SIZE(place) && err; i++) {
		if (!place[i])
			continue;
		err = super_io(d->bdev, SUPER_READ, place[i] >> SECTOR_SHIFT, buf, LARDER_SB_SIZE);
		if (!err)
			err = super_io(d->bdev, REQ_OP_WRITE | REQ_SYNC | REQ_META, place[i] >> SECTOR_SHIFT, buf, LARDER_SB_SIZE);
	}
	mutex_unlock(&c->super_lock);
	kfree(buf);
	return err;
}

void cache_allow_third(struct cache *c)
{
	int err;

	mutex_lock(&c->super_lock);
	if (READ_ONCE(c->set.mirror) == MIRROR_DIRTY_3 && !c->third_durable) {
		c->third = true;
		c->third_until = c->checkpoint_sequence + 1;
		err = cache_super_write(c, 0);
		if (err)
			DMERR_LIMIT("cache %pUb: superblocks cannot say that there are three copies (error %d): two, until they do",
				    c->uuid, err);
		WRITE_ONCE(c->third_durable, !err);
	}
	mutex_unlock(&c->super_lock);
}

/*
 * One that counts by itself as soon as the first copy does not: the next cache_super_write() must follow, with the same place, or
 * what is there must be made invalid.
 */
int cache_super_write_ahead(struct cache *c, struct cache_device *d)
{
	u64 place = le64_to_cpu(d->sb->head.copy_offset);
	int err;

	lockdep_assert_held(&c->super_lock);
	cache_super_fill(c, d->sb, 0);
	/* a growth that cannot be leaves all as it was */
	err = device_write(c, d, true, SUPER_WRITE, place >> SECTOR_SHIFT, d->sb, LARDER_SB_SIZE);
	c->sb_generation++;
	if (err)
		DMERR("%pg: cannot write the copy of the superblock at byte %llu, its new end: error %d", d->bdev, place, err);
	return err;
}

void cache_super_drop_ahead(struct cache *c, struct cache_device *d)
{
	u64 place = larder_cache_copy_offset(bdev_nr_sectors(d->bdev));
	struct larder_sb_head *head = kzalloc(LARDER_SB_SIZE, GFP_NOIO);
	const char *why;
	int err = head ? 0 : -ENOMEM;

	if (!err && place != le64_to_cpu(d->sb->head.copy_offset))
		err = super_io(d->bdev, SUPER_READ, place >> SECTOR_SHIFT, head, LARDER_SB_SIZE);
	if (!err && !larder_check_sb(head, 0, &why) && !memcmp(head->uuid, d->uuid, LARDER_UUID_SIZE)) {
		memset(head, 0, LARDER_SB_SIZE);
		err = super_io(d->bdev, SUPER_WRITE, place >> SECTOR_SHIFT, head, LARDER_SB_SIZE);
	}
	if (err)
		DMWARN("%pg: cannot erase a superblock that may be left at byte %llu: error %d; 'larder cache resize' mends that",
		       d->bdev, place, err);
	kfree(head);
}

int volume_super_write(struct volume *v)
{
	int err;

	lockdep_assert_held(&v->super_lock);
	if (!v->sb || !v->bdev)
		return -ENODEV;
	if (larder_sb_read_only(&v->sb->head)) {
		DMERR("%pg: the superblock has features that only a newer larder may write (ro_compat %#llx)", v->bdev,
		      le64_to_cpu(v->sb->head.ro_compat));
		return -EROFS;
	}
	volume_note(v);
	larder_seal_sb(&v->sb->head);
	err = super_write_copies(NULL, NULL, v->bdev, &v->sb->head, &v->b_first);
	if (err) {
		flusher_doubt(&v->flusher);
		volume_error(v, errors_write);
	}
	return err;
}

/*
 * Set: v->may_be_dirty becomes true when both copies say so.  An error leaves it false, and the flag is written again next time.
 * Clear: the caller has found rule 11's conditions to hold and set v->may_be_dirty to false in one hold of log->lock.  -EAGAIN:
 * somebody has set it again since, nothing was written.  An error leaves it false: the next dirty write sets it anew, whatever is
 * on the device.
 */
int volume_set_may_be_dirty(struct volume *v, bool dirty)
{
	bool on_disk;
	u32 flags;
	int err = 0;

	mutex_lock(&v->super_lock);
	if (!v->sb) {
		err = -ENODEV;
		goto out;
	}
	if (!dirty && READ_ONCE(v->may_be_dirty)) {
		err = -EAGAIN;
		goto out;
	}
	/* nothing will become dirty; the volume may have left it (leave.c) */
	if (dirty && READ_ONCE(v->cache->state) == CACHE_FAILED) {
		err = -EIO;
		goto out;
	}
	flags = le32_to_cpu(v->sb->head.flags);
	on_disk = flags & LARDER_VOLUME_MAY_BE_DIRTY;
	if (on_disk != dirty) {
		v->sb->head.flags = cpu_to_le32(dirty ? flags | LARDER_VOLUME_MAY_BE_DIRTY : flags & ~LARDER_VOLUME_MAY_BE_DIRTY);
		err = volume_super_write(v);
		if (err)	/* unknown on the device: as not set */
			v->sb->head.flags = cpu_to_le32(flags & ~LARDER_VOLUME_MAY_BE_DIRTY);
	}
	if (!err && dirty)
		WRITE_ONCE(v->may_be_dirty, true);
out:
	mutex_unlock(&v->super_lock);
	return err;
}

/* ------------------------------------------------------------------ the description of the stack */

/* The field, for kfree(); hex: what userland wants there, the rest becomes zero; "-": nothing.  -EINVAL: neither. */
static u8 *stack_parse(const char *hex)
{
	size_t digits = strcmp(hex, "-") ? strlen(hex) : 0;
	u8 *stack;

	if (digits % 2 || digits / 2 > LARDER_STACK_SIZE)
		return ERR_PTR(-EINVAL);
	stack = kzalloc(LARDER_STACK_SIZE, GFP_KERNEL);
	if (!stack)
		return ERR_PTR(-ENOMEM);
	if (!hex2bin(stack, hex, digits / 2))
		return stack;
	kfree(stack);
	return ERR_PTR(-EINVAL);
}

/*
 * Into the superblock of every SSD, which userland must not write while the cache has it.  An error of the SSDs leaves the old one
 * or the new one on each of them; the next superblock has the new one.
 */
int cache_set_stack(struct cache *c, const char *hex)
{
	u8 *stack = stack_parse(hex);
	unsigned int i;
	int err;

	if (IS_ERR(stack))
		return PTR_ERR(stack);
	mutex_lock(&c->super_lock);
	for (i = 0; i < c->nr_devices; i++)
		if (c->dev[i].sb)
			memcpy(c->dev[i].sb->stack, stack, LARDER_STACK_SIZE);
	err = cache_super_write(c, 0);
	mutex_unlock(&c->super_lock);
	kfree(stack);
	return err;
}

/* The same for a volume that is bound; -EBUSY: it is not. */
int volume_set_stack(struct volume *v, const char *hex)
{
	u8 *stack = stack_parse(hex);
	int err = -EBUSY;

	if (IS_ERR(stack))
		return PTR_ERR(stack);
	mutex_lock(&v->super_lock);
	if (v->bdev) {
		memcpy(v->sb->stack, stack, LARDER_STACK_SIZE);
		err = volume_super_write(v);
	}
	mutex_unlock(&v->super_lock);
	kfree(stack);
	return err;
}

/* ------------------------------------------------------------------ the table of devices and volumes */

static sector_t table_place(bool b)
{
	return (b ? LARDER_TABLE_OFFSET_B : LARDER_TABLE_OFFSET_A) >> SECTOR_SHIFT;
}

/* One place of one SSD; what cannot be read is zeroed, and so not valid. */
static int table_read_place(struct block_device *bdev, bool b, struct larder_table *t)
{
	int err = super_io(bdev, SUPER_READ, table_place(b), t, LARDER_TABLE_SIZE);

	if (err) {
		DMERR("%pg: cannot read the table of volumes at byte %u: error %d", bdev,
		      b ? LARDER_TABLE_OFFSET_B : LARDER_TABLE_OFFSET_A, err);
		memset(t, 0, LARDER_TABLE_SIZE);
	}
	return err;
}

/* t[0], t[1]: buffers.  Returns 0: t[0] (place A) counts, 1: t[1] (place B) does, or an error. */
static int table_read_device(struct block_device *bdev, const struct larder_cache_sb *sb, struct larder_table *t[2])
{
	int err_a = table_read_place(bdev, false, t[0]), err_b = table_read_place(bdev, true, t[1]), chosen;
	const char *why = NULL, *b_why = NULL;

	chosen = larder_choose_table(t[0], t[1], sb, &why);
	if (chosen < 0) {
		larder_check_table(t[1], sb, &b_why);
		DMERR("%pg: no valid table of volumes: at byte %u: %s; at byte %u: %s", bdev, LARDER_TABLE_OFFSET_A,
		      err_a ? "read error" : why ?: "valid", LARDER_TABLE_OFFSET_B, err_b ? "read error" : b_why ?: "valid");
		return err_a ?: err_b ?: chosen;
	}
	if (chosen == 1 && why)
		DMWARN("%pg: the table of volumes at byte %u is damaged (%s); the one at byte %u is used", bdev,
		       LARDER_TABLE_OFFSET_A, why, LARDER_TABLE_OFFSET_B);
	return chosen;
}

/* Or what was to be one: a power cut may have come in the middle of it. */
static bool has_begun_table(struct block_device *bdev)
{
	struct larder_table_head *head = kzalloc(LARDER_SB_SIZE, GFP_NOIO);
	bool any = false, b;
	u32 i;

	for (i = 0; i < 2 && head; i++) {
		b = i;
		any |= !super_io(bdev, SUPER_READ, table_place(b), head, LARDER_SB_SIZE) &&
		       le32_to_cpu(head->magic) == LARDER_TABLE_MAGIC;
	}
	kfree(head);
	return any;
}

bool super_has_table(struct block_device *bdev, const struct larder_cache_sb *sb)
{
	struct larder_table *t = has_begun_table(bdev) ? kvzalloc(sizeof(*t), GFP_NOIO) : NULL;
	bool has = false, in_b;

	if (t)
		has = !super_read_table(bdev, sb, t, &in_b);
	kvfree(t);
	return has;
}

/* Of one SSD, whose superblock is sb, into a buffer of LARDER_TABLE_SIZE. */
int super_read_table(struct block_device *bdev, const struct larder_cache_sb *sb, struct larder_table *to, bool *in_b)
{
	struct larder_table *t[2];
	int chosen = -ENOMEM;

	t[0] = kvzalloc(sizeof(*t[0]), GFP_NOIO);
	t[1] = kvzalloc(sizeof(*t[1]), GFP_NOIO);
	if (t[0] && t[1])
		chosen = table_read_device(bdev, sb, t);
	if (chosen >= 0) {
		memcpy(to, t[chosen], sizeof(*to));
		*in_b = chosen;
	}
	kvfree(t[1]);
	kvfree(t[0]);
	return min(chosen, 0);
}

bool table_newer(const struct larder_table *a, const struct larder_table *b)
{
	u64 set_a = le64_to_cpu(a->head.set_generation), set_b = le64_to_cpu(b->head.set_generation);

	if (set_a >> 32 != set_b >> 32)
		return set_a >> 32 > set_b >> 32;
	return le64_to_cpu(a->head.generation) > le64_to_cpu(b->head.generation);
}

/*
 * Is SSD i, whose own table is of this set, a member of the newest one?  Also if its own is older, but one of those before: then
 * the raise was interrupted, and nothing has counted without it since (own-table-ignored in tests/model).
 */
static bool table_member(const struct cache *c, u32 i, u64 generation)
{
	const struct larder_table_device *e = &c->table->devices[i];
	bool known = generation == c->set_generation;
	u32 k;

	for (k = 0; k < LARDER_NR_ANCESTORS && !known; k++)
		known = generation && le64_to_cpu(c->table->ancestors[k]) == generation;
	return known && le32_to_cpu(e->state) == LARDER_DEVICE_ACTIVE && !memcmp(e->uuid, c->dev[i].sb->head.uuid, sizeof(e->uuid));
}

/*
 * Sets of the same number with different tags went apart, whatever newer one there is: what is newest does not say which side has
 * what the user misses.  generation[]: 0: no table.
 */
static int tables_apart(struct cache *c, const u64 *generation)
{
	u32 i, k;

	for (i = 0; i < c->nr_devices; i++) {
		for (k = 0; k < i; k++) {
			if (!generation[i] || !generation[k] || generation[k] >> 32 != generation[i] >> 32 ||
			    generation[k] == generation[i])
				continue;
			DMERR("%pg: the SSDs of cache %pUb were used without one another (sets %llx, %llx of %pg): give one side",
			      c->dev[i].bdev, c->uuid, generation[i], generation[k], c->dev[k].bdev);
			return -ESTALE;
		}
	}
	return 0;
}

/*
 * Does an SSD whose table cannot be read know a newer set than the newest of those that can?  Its table was written before its
 * superblock said so: without it the others would go on as a set that has been left.
 */
static int tables_unread(const struct cache *c, const struct larder_table *newest, const u64 *generation)
{
	u32 i;

	for (i = 0; i < c->nr_devices; i++) {
		if (c->dev[i].failed || generation[i] ||
		    le64_to_cpu(c->dev[i].sb->set_generation) >> 32 <= le64_to_cpu(newest->head.set_generation) >> 32)
			continue;
		DMERR("%pg: SSD %u of cache %pUb: its table cannot be read, and it is of a newer set than the others: %s",
		      c->dev[i].bdev, i, c->uuid, "try again, or give '-' in the place of those that left");
		return -EIO;
	}
	return 0;
}

static u32 table_members(const struct larder_table *t)
{
	u32 members = 0, i;

	for (i = 0; i < LARDER_MAX_DEVICES; i++)
		if (le32_to_cpu(t->devices[i].state) == LARDER_DEVICE_ACTIVE)
			members |= 1u << i;
	return members;
}

/*
 * The newest table of all SSDs counts.  One that the newest does not name as a member, or whose own table is of a set that is none
 * of its ancestors, is stale: nothing else of it is read (newest-generation-only).
 */
int cache_table_read(struct cache *c)
{
	struct larder_table *t = kvzalloc(sizeof(*t), GFP_NOIO), *best = kvzalloc(sizeof(*best), GFP_NOIO);
	u64 generation[LARDER_MAX_DEVICES] = { };
	bool any = false, in_b;
	int err = -ENOMEM;
	u32 i;

	for (i = 0; i < c->nr_devices && t && best; i++) {
		if (c->dev[i].failed)
			continue;
		err = super_read_table(c->dev[i].bdev, c->dev[i].sb, t, &in_b);
		if (err == -ENOMEM)
			goto out;
		if (err)
			continue;
		generation[i] = le64_to_cpu(t->head.set_generation);
		if (!any || table_newer(t, best)) {
			swap(t, best);
			c->table_in_b = in_b;
		}
		any = true;
	}
	if (any)
		err = tables_apart(c, generation) ?: tables_unread(c, best, generation);
	if (!err) {
		swap(c->table, best);
		c->table_generation = larder_table_shape(c->table);
		c->set_generation = le64_to_cpu(c->table->head.set_generation);
		c->table_places = le32_to_cpu(c->table->head.nr_devices);
		c->members = table_members(c->table);
	}
	if (!err && le32_to_cpu(c->table->head.nr_devices) != c->nr_devices) {
		DMERR("cache %pUb: %u SSDs are given, its set has %u places: give '-' for those that are empty", c->uuid,
		      c->nr_devices, le32_to_cpu(c->table->head.nr_devices));
		err = -EINVAL;
	}
	for (i = 0; i < c->nr_devices && !err; i++) {
		c->dev[i].removed = le32_to_cpu(c->table->devices[i].state) == LARDER_DEVICE_REMOVED;
		c->dev[i].role = le32_to_cpu(c->table->devices[i].role);
		if (c->dev[i].failed || table_member(c, i, generation[i]))
			continue;
		DMWARN("%pg: SSD %u of cache %pUb is stale: it left the set (its own %llx, now %llx); it is not used",
		       c->dev[i].bdev, i, c->uuid, generation[i], c->set_generation);
		c->dev[i].failed = true;
		c->nr_failed++;
	}
	/* a module that knows no shapes carries the one that it found along, and bars more than that */
	for (i = 0; i < c->nr_devices && !err; i++)
		if (!c->dev[i].failed)
			c->table_generation = max(c->table_generation, le64_to_cpu(c->dev[i].sb->table_generation));
out:
	kvfree(best);
	kvfree(t);
	return err;
}

static int table_write_device(struct cache *c, struct cache_device *d, bool b)
{
	int err = cache_device_write(c, d, SUPER_WRITE, table_place(b), c->table, LARDER_TABLE_SIZE);

	if (!err)
		return 0;
	DMERR("%pg: cannot write the table of volumes at byte %u (generation %llu): error %d; check the device and its cables",
	      d->bdev, b ? LARDER_TABLE_OFFSET_B : LARDER_TABLE_OFFSET_A, le64_to_cpu(c->table->head.generation), err);
	return err;
}

int cache_roles_write(struct cache *c, const u8 *role, u32 nr)
{
	bool any = false;
	u32 i;

	lockdep_assert_held(&c->super_lock);
	for (i = 0; i < c->nr_devices; i++) {
		struct larder_table_device *e = &c->table->devices[i];

		if (i < nr) {
			any |= e->role != cpu_to_le32(role[i]);
			e->role = cpu_to_le32(role[i]);
		}
		WRITE_ONCE(c->dev[i].role, le32_to_cpu(e->role));
	}
	return any ? cache_table_write(c) ?: cache_super_write(c, 0) : 0;
}

/*
 * What is in the places is c->table in both, or a power cut or an error came between.  t: buffers.  The place that does not count
 * first, and the one that does only when that one is durable: so the SSD has a table that fits its superblock at any moment.
 */
static int table_settle_device(struct cache *c, struct cache_device *d, struct larder_table *t[2])
{
	bool has[2], first;
	const char *why = NULL;
	int chosen, i;

	for (i = 0; i < 2; i++) {
		table_read_place(d->bdev, i, t[i]);
		has[i] = !memcmp(t[i], c->table, LARDER_TABLE_SIZE);
	}
	if (has[0] && has[1])
		return 0;
	chosen = larder_check_table(c->table, d->sb, &why);
	if (!chosen)
		chosen = larder_choose_table(t[0], t[1], d->sb, &why);
	if (chosen < 0) {
		DMERR("%pg: the newest table of volumes of its set does not fit its superblock, or its own does not: %s", d->bdev,
		      why);
		return chosen;
	}
	DMINFO("%pg: its table of volumes is brought up to date (generation %llu)", d->bdev,
	       le64_to_cpu(c->table->head.generation));
	first = !chosen;
	if (!has[first])
		has[first] = !table_write_device(c, d, first);
	if (!has[first] && !has[!first]) {
		DMERR("%pg: not started: it cannot take the newest table of its set: check it, or give '-' in its place", d->bdev);
		return -EIO;
	}
	if (!has[!first])
		has[!first] = !table_write_device(c, d, !first);
	if (!has[0] || !has[1])
		c->table_in_b = has[1];
	return 0;
}

/*
 * The members' tables may be of different ages, if their last change was cut off, or failed on one of them.  The superblock that a
 * start writes bars all that are older than the newest; and a volume that is bound bars all SSDs whose set is older than its own.
 * So before either every member has the newest, unchanged: a power cut meanwhile leaves it where it was, and on each other one this
 * or what was there, of which both count until a superblock says more.
 *
 * One place is enough: the other does not count then, is the first to be written the next time, and an error of it is logged.  A
 * member that cannot take it in either fails the start, before anything is different for the others: without it ('-') they go on.
 */
int cache_table_settle(struct cache *c)
{
	struct larder_table *t[2] = { kvzalloc(sizeof(*t[0]), GFP_NOIO), kvzalloc(sizeof(*t[1]), GFP_NOIO) };
	int err = t[0] && t[1] ? 0 : -ENOMEM;
	u32 i;

	lockdep_assert_held(&c->super_lock);
	for (i = 0; i < c->nr_devices && !err; i++) {
		if (!c->dev[i].failed)
			err = table_settle_device(c, &c->dev[i], t);
	}
	kvfree(t[1]);
	kvfree(t[0]);
	return err;
}

/* One place of every member.  *lacks: bits of those that have failed, or are missing, and have not got it: that is no error. */
static int table_write_place(struct cache *c, bool b, u32 *lacks)
{
	int error = 0, err;
	unsigned int i;

	for (i = 0; i < c->nr_devices; i++) {
		if (READ_ONCE(c->dev[i].failed)) {
			*lacks |= 1u << i;
			continue;
		}
		err = table_write_device(c, &c->dev[i], b);
		error = error ?: err;
	}
	return error;
}

int cache_table_tell(struct cache *c, struct cache_device *d)
{
	const char *why;

	lockdep_assert_held(&c->super_lock);
	/* a change that could not be written was taken back in memory, and is not sealed: for all, as others may have got it */
	if (larder_check_table(c->table, NULL, &why))
		cache_table_write(c);	/* an error of another SSD is that one's */
	return table_write_device(c, d, false) ?: table_write_device(c, d, true);
}

int cache_table_blank(struct cache *c, struct cache_device *d)
{
	void *zeroes = kvzalloc(LARDER_TABLE_SIZE, GFP_NOIO);
	int err = -ENOMEM;

	if (zeroes)
		err = super_io(d->bdev, SUPER_WRITE, table_place(false), zeroes, LARDER_TABLE_SIZE);
	if (!err)
		err = super_io(d->bdev, SUPER_WRITE, table_place(true), zeroes, LARDER_TABLE_SIZE);
	kvfree(zeroes);
	return err;
}

static int table_write(struct cache *c)
{
	bool older_in_b = !c->table_in_b;
	u32 members = table_members(c->table), stay = members & c->members, lacks = 0;
	int err;

	lockdep_assert_held(&c->super_lock);
	c->table->head.set_generation = cpu_to_le64(c->set_generation);
	larder_seal_table(c->table);	/* raises the generation, also above one whose write failed */
	c->members |= members;
	err = table_write_place(c, older_in_b, &lacks);
	if (err)
		return err;
	c->table_in_b = older_in_b;
	err = table_write_place(c, !older_in_b, &lacks);
	if (err)
		return err;
	/* one that is a member still, and has only older ones, may be the one that is left (set_take_back()): none bars it */
	if (lacks & stay)
		return 0;
	c->table_generation = larder_table_shape(c->table);
	c->table_places = le32_to_cpu(c->table->head.nr_devices);
	c->members = members;
	return 0;
}

/*
 * c->table, changed by the caller.  The older place first; when it is durable the other one becomes the same.  On error the newest
 * generation may or may not be on the SSD: the caller changes c->table back and writes again, or tells its user that the change is
 * in doubt.  The next superblock says table_generation, and bars older tables by that: so it becomes the new one only when both
 * places hold it.  So does its number of SSDs: one that is more than the table's would bar every start.
 */
int cache_table_write(struct cache *c)
{
	lockdep_assert_held(&c->super_lock);
	/* the one that is sealed: if it cannot be written, what is in doubt is in the next one, too */
	c->table->head.shape_generation = cpu_to_le64(le64_to_cpu(c->table->head.generation) + 1);
	return table_write(c);
}

/*
 * The same, but nothing has changed except what was seen of volumes: older tables still count, so that one from a backup does when
 * both places are lost.  What they have not seen yet, they say of nobody.
 */
int cache_table_write_seen(struct cache *c)
{
	lockdep_assert_held(&c->super_lock);
	c->table->head.shape_generation = cpu_to_le64(larder_table_shape(c->table));
	return table_write(c);
}

/*
 * Before a checkpoint speaks of the segments of a place that is new: an SSD was to join in it, and the table could not be written
 * then.  Sleeps.
 */
int cache_table_places(struct cache *c)
{
	int err = 0;

	mutex_lock(&c->super_lock);
	if (c->table_places != c->nr_devices)
		err = cache_table_write(c);
	mutex_unlock(&c->super_lock);
	return err;
}

/* ------------------------------------------------------------------ scrub */

/* What is in two places of an SSD, and must be valid in both. */
struct twin {
	struct cache *cache;
	struct cache_device *d;
	u64 place[2];			/* bytes */
	size_t bytes;
	bool (*valid)(const struct twin *t, const void *buf);
	const char *what;
};

static bool twin_super_valid(const struct twin *t, const void *buf)
{
	const struct larder_cache_sb *sb = buf;
	const char *why;

	return !larder_check_cache_sb(sb, bdev_nr_sectors(t->d->bdev), &why) &&
	       !memcmp(sb->head.uuid, t->d->uuid, LARDER_UUID_SIZE);
}

static bool twin_table_valid(const struct twin *t, const void *buf)
{
	const char *why;

	return !larder_check_table(buf, t->d->sb, &why);
}

/* A place that is not valid becomes what the other one is; that one is not written to. */
static void twin_repair(const struct twin *t, u32 bad, void *good, struct scrub_counts *n)
{
	int err = cache_device_write(t->cache, t->d, SUPER_WRITE, t->place[bad] >> SECTOR_SHIFT, good, t->bytes);

	n->errors++;
	if (err) {
		n->unrepairable++;
		return;
	}
	n->repaired++;
	DMWARN("%pg: the %s at byte %llu was damaged, and is repaired", t->d->bdev, t->what, t->place[bad]);
}

/* super_lock held: nobody writes to either place.  memory: what both are, should neither be valid. */
static void twin_scrub(const struct twin *t, void *memory, void *buf[2], struct scrub_counts *n)
{
	bool valid[2];
	u32 i;

	for (i = 0; i < 2; i++) {
		valid[i] = !super_io(t->d->bdev, SUPER_READ, t->place[i] >> SECTOR_SHIFT, buf[i], t->bytes) &&
			   t->valid(t, buf[i]);
		n->slots += t->bytes / LARDER_SLOT_SIZE;
	}
	if (!valid[0] && !valid[1] && !t->valid(t, memory)) {
		n->errors += 2;
		n->unrepairable += 2;
		return;
	}
	for (i = 0; i < 2; i++)
		if (!valid[i])
			twin_repair(t, i, valid[!i] ? buf[!i] : memory, n);
}

int super_scrub(struct cache *c, struct scrub_counts *n)
{
	void *buf[2] = { kvmalloc(LARDER_TABLE_SIZE, GFP_NOIO), kvmalloc(LARDER_TABLE_SIZE, GFP_NOIO) };
	struct cache_device *d;
	int err = 0;
	u32 i;

	mutex_lock(&c->super_lock);
	for (i = 0; i < c->nr_devices && buf[0] && buf[1]; i++) {
		d = &c->dev[i];
		if (READ_ONCE(d->failed))
			continue;
		if (d->sb->head.copy_offset)
			twin_scrub(&(struct twin){ c, d, { LARDER_SB_OFFSET, le64_to_cpu(d->sb->head.copy_offset) }, LARDER_SB_SIZE,
						   twin_super_valid, "superblock" }, d->sb, buf, n);
		twin_scrub(&(struct twin){ c, d, { LARDER_TABLE_OFFSET_A, LARDER_TABLE_OFFSET_B }, LARDER_TABLE_SIZE,
					   twin_table_valid, "table of volumes" }, c->table, buf, n);
	}
	mutex_unlock(&c->super_lock);
	if (!buf[0] || !buf[1])
		err = -ENOMEM;
	kvfree(buf[1]);
	kvfree(buf[0]);
	return err;
}
