// SPDX-License-Identifier: GPL-2.0-only
/*
 * Growth of a volume with its backing, and of a cache with its SSD (at the end of this file).
 *
 * A volume grows: its table is longer than what its superblock says, and the backing has room for that.
 *
 * Steps, each durable before the next one (rule 15 in docs/design.md):
 *   1. the entry in the cache's table says the new size; in core the index and the marks have room for it
 *   2. the tail reserve at the new end of the backing is zeroed: no old signature is found there (promise 7)
 *   3. the superblock of the backing says the new size, and that of the device
 *   4. the volume is active with it
 * A power cut
 *   in or behind 1	the cache knows more sectors than the superblock says: the table of the next start is as long as that
 *			says; nothing is behind that end, neither in the log nor on the backing
 *   in or behind 2	the same: the new tail reserve lies behind the old end, too
 *   in 3		old or new, each whole (super.c); an old copy beside the new one does not count
 * So no record names a sector behind the end that the cache's table says, and nothing acknowledged lies behind the one that
 * the superblock says.  A table that cannot be written leaves all as it was, for it comes first.  A cache that was not there when
 * its volume grew knows fewer sectors than the superblock says: step 1 is done when the volume is bound to it.
 *
 * Nothing shrinks: a table that is shorter than the superblock says is refused (bind.c).  Only if step 3 has failed may the dm
 * device go on with the size that it had.
 *
 * Locks: cache->super_lock for 1, volume->super_lock for 3, one after the other.
 *
 * A cache grows: a table of it is loaded, and the last SSD of the set has room for more segments than its superblock says.  The
 * numbers of its segments go on behind those of all others, so those of the others stay what they are; an SSD that is not the last
 * one leaves and joins anew, in a place behind it.  The cache stands still meanwhile.  Steps, each durable before the next one:
 *   1. at the new end of the SSD, where nothing of the cache is: a copy of its superblock that says the new size, and the new end
 *   2. the superblock itself, and that copy again (super.c), on the others theirs
 *   3. the table, on every SSD of the set: so many segments
 *   4. in core: they are free, and may be opened
 * A power cut
 *   in or behind 1	the old superblock, and the copy it names, count; the new one is not looked for while the first copy is
 *			whole, and the next start erases it, before it would be out of date
 *   in 2		the first copy is torn: what of it names the old end leads to the old copy; what does not is tried at the
 *			end that the device has now: the new copy.  Old and new name the same checkpoints, and no segment is
 *			used that one of them does not have
 *   in 3, behind 2	the superblock has more segments than the table.  They are free, and the start writes the table first
 *   behind 3		all are there, and free
 * So no record, chunk or superblock names a segment that some SSD's table does not have, and no table has one that its SSD's own
 * superblock does not: with or without the SSD, a start knows every number that it finds.  What is behind the old end was never
 * written by this cache under these numbers, and no record can be taken for one of its own.
 *
 * An error in 1 leaves all as it was.  One in 2 leaves the new superblock the one that every later write of it writes; in 3, 4: as
 * a power cut.  The cache goes on with what it had, and the next load of a table goes on with the growth.
 */
#include "larder.h"

#define TAIL_ZEROED	((16u << 20) >> SECTOR_SHIFT)	/* of the reserve, at most: signatures lie at its outer end */

u64 volume_room(const struct larder_volume_sb *sb, struct block_device *bdev)
{
	u64 used = (le64_to_cpu(sb->data_offset) + le64_to_cpu(sb->tail_reserve)) >> SECTOR_SHIFT, there = bdev_nr_sectors(bdev);

	return there > used ? round_down(there - used, bdev_logical_block_size(bdev) >> SECTOR_SHIFT) : 0;
}

static int grow_in_cache(struct volume *v, u64 sectors)
{
	struct cache *c = v->cache;
	struct larder_table_volume *e;
	__le64 was;
	int err = 0;

	mutex_lock(&c->super_lock);
	e = &c->table->volumes[v->number];
	was = e->sectors;
	if (le64_to_cpu(was) >= sectors)
		goto out;
	err = READ_ONCE(c->state) == CACHE_RUNNING ? 0 : -EIO;
	if (!err)
		err = larder_index_resize(v->index, sectors);
	if (!err) {
		/* what is dirty in a volume that stands still gets its second copy all the same */
		mutex_lock(&c->move_lock);
		err = marks_resize(v, sectors);
		mutex_unlock(&c->move_lock);
	}
	if (err)
		goto out;
	e->sectors = cpu_to_le64(sectors);
	err = cache_table_write(c);
	if (err)	/* it may be on the SSD: more than the superblock says is no harm */
		e->sectors = was;
out:
	mutex_unlock(&c->super_lock);
	return err;
}

/* v->super_lock held. */
static int grow_zero_tail(struct volume *v)
{
	u64 end = bdev_nr_sectors(v->bdev), tail = le64_to_cpu(v->sb->tail_reserve) >> SECTOR_SHIFT;

	tail = round_down(min_t(u64, tail, TAIL_ZEROED), bdev_logical_block_size(v->bdev) >> SECTOR_SHIFT);
	return tail ? zeroes_write(v, end - tail, tail) : 0;
}

static int grow_super(struct volume *v, u64 sectors)
{
	struct larder_volume_sb *sb = v->sb;
	__le64 was, device_was;
	int err = 0;

	mutex_lock(&v->super_lock);
	was = sb->sectors;
	device_was = sb->head.device_sectors;
	if (le64_to_cpu(was) >= sectors)
		goto out;
	err = grow_zero_tail(v);
	if (err)
		goto out;
	sb->sectors = cpu_to_le64(sectors);
	sb->head.device_sectors = cpu_to_le64(bdev_nr_sectors(v->bdev));
	err = volume_super_write(v);
	if (err) {
		sb->sectors = was;
		sb->head.device_sectors = device_was;
	} else {
		DMINFO("%pg: volume %pUb has %llu sectors now, %llu before", v->bdev, v->uuid, sectors, le64_to_cpu(was));
	}
out:
	mutex_unlock(&v->super_lock);
	return err;
}

int volume_grow(struct volume *v, u64 sectors)
{
	int err = v->cache ? grow_in_cache(v, sectors) : 0;

	if (err) {
		DMERR("%pg: cache %pUb could not note that volume %pUb has %llu sectors: error %d; the volume is not started so",
		      v->bdev, v->cache->uuid, v->uuid, sectors, err);
		return err;
	}
	err = grow_super(v, sectors);
	if (err) {
		DMERR("%pg: volume %pUb could not grow to %llu sectors: error %d; check the device, then load the table again",
		      v->bdev, v->uuid, sectors, err);
		return err;
	}
	WRITE_ONCE(v->sectors, sectors);
	return 0;
}

/* ------------------------------------------------------------------ the cache */

/* super_lock held.  Steps 1 and 2. */
static int grow_ssd_super(struct cache *c, struct cache_device *d, u32 nr)
{
	struct larder_cache_sb *sb = d->sb;
	__le64 sectors = sb->head.device_sectors, copy = sb->head.copy_offset;
	__le32 was = sb->nr_segments;
	int err;

	/* the rest of a growth that failed: in the superblock itself, it may be */
	if (le32_to_cpu(was) >= nr)
		return cache_super_write(c, 0);
	sb->head.device_sectors = cpu_to_le64(bdev_nr_sectors(d->bdev));
	sb->head.copy_offset = cpu_to_le64(larder_cache_copy_offset(bdev_nr_sectors(d->bdev)));
	sb->nr_segments = cpu_to_le32(nr);
	err = cache_super_write_ahead(c, d);
	if (!err)
		return cache_super_write(c, 0);
	sb->head.device_sectors = sectors;
	sb->head.copy_offset = copy;
	sb->nr_segments = was;
	cache_super_drop_ahead(c, d);
	return err;
}

/* super_lock held.  Step 3. */
static int grow_ssd_table(struct cache *c, struct cache_device *d, u32 nr)
{
	struct larder_table_device *e = &c->table->devices[d - c->dev];
	__le32 was = e->nr_segments;
	int err;

	if (le32_to_cpu(was) >= nr)
		return 0;
	e->nr_segments = cpu_to_le32(nr);
	err = cache_table_write(c);
	if (err)	/* it may be there: no more than the superblock says */
		e->nr_segments = was;
	return err;
}

void cache_grow_last(struct cache *c)
{
	struct cache_device *d = &c->dev[c->nr_devices - 1];
	u32 was = d->nr_segments, nr;
	int err;

	if (!device_usable(d) || READ_ONCE(c->state) == CACHE_FAILED)
		return;
	nr = larder_cache_room(d->sb, bdev_nr_sectors(d->bdev));
	if (nr <= was)
		return;
	mutex_lock(&c->super_lock);
	err = grow_ssd_super(c, d, nr);
	if (!err)
		err = grow_ssd_table(c, d, nr);
	mutex_unlock(&c->super_lock);
	if (!err && READ_ONCE(d->failed))
		err = -EIO;
	if (!err)
		err = cache_more_segments(c, d, d->first_segment + nr);
	if (err) {
		DMERR("%pg: cache %pUb could not grow by %u segments: error %d; it goes on as it was: load its table again",
		      d->bdev, c->uuid, nr - was, err);
		return;
	}
	d->nr_segments = nr;
	DMINFO("%pg: SSD %u of cache %pUb has %u segments now, %u before", d->bdev, (u32)(d - c->dev), c->uuid, nr, was);
}
