// SPDX-License-Identifier: GPL-2.0-only
/*
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
	if (!err)
		err = marks_resize(v, sectors);
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
	return tail ? blkdev_issue_zeroout(v->bdev, end - tail, tail, GFP_NOIO, BLKDEV_ZERO_NOUNMAP) : 0;
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
