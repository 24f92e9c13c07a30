// SPDX-License-Identifier: GPL-2.0-only
/*
 * Zeroes to a backing, as blkdev_issue_zeroout() writes them with BLKDEV_ZERO_NOUNMAP, but with bios of our own: those of
 * fs_bio_set may all be held by who waits above us for what is written here (rule 12).  One at a time: one in reserve is enough.
 */
#include "larder.h"

#define ZERO_PAGES	256u	/* in one write: BIO_MAX_VECS */

static struct bio_set zeroes_bios;

int zeroes_init(void)
{
	return bioset_init(&zeroes_bios, BIO_POOL_SIZE, 0, BIOSET_NEED_BVECS);
}

void zeroes_exit(void)
{
	bioset_exit(&zeroes_bios);
}

/* Of so many sectors, at most.  by_command: the device zeroes them itself, which the block layer splits. */
static struct bio *zeroes_bio(struct block_device *bdev, sector_t sectors, bool by_command)
{
	unsigned int block = bdev_logical_block_size(bdev) >> SECTOR_SHIFT, n, i;
	struct bio *bio;

	if (by_command) {
		bio = bio_alloc_bioset(bdev, 0, REQ_OP_WRITE_ZEROES | REQ_NOUNMAP, GFP_NOIO, &zeroes_bios);
		bio->bi_iter.bi_size = min_t(sector_t, sectors, round_down(UINT_MAX >> SECTOR_SHIFT, block)) << SECTOR_SHIFT;
		return bio;
	}
	n = min_t(sector_t, sectors, ZERO_PAGES * PAGE_SECTORS);
	bio = bio_alloc_bioset(bdev, DIV_ROUND_UP(n, PAGE_SECTORS), REQ_OP_WRITE, GFP_NOIO, &zeroes_bios);
	for (i = 0; i < n; i += PAGE_SECTORS)
		__bio_add_page(bio, ZERO_PAGE(0), min_t(u32, n - i, PAGE_SECTORS) << SECTOR_SHIFT, 0);
	return bio;
}

int zeroes_write(struct volume *v, sector_t sector, sector_t sectors)
{
	struct block_device *bdev = v->bdev;
	bool by_command = bdev_write_zeroes_sectors(bdev) && !READ_ONCE(v->zeroes_as_data);
	struct bio *bio;
	sector_t n;
	int err;

	while (sectors) {
		bio = zeroes_bio(bdev, sectors, by_command);
		bio->bi_iter.bi_sector = sector;
		n = bio_sectors(bio);
		err = submit_bio_wait(bio);
		bio_put(bio);
		if (err && by_command) {
			WRITE_ONCE(v->zeroes_as_data, true);
			by_command = false;
			/* it may have said that it can, and refuse it as a target (sd); anything else is one as of any write */
			if (!blk_path_error(errno_to_blk_status(err)))
				continue;
		}
		if (err)
			return err;
		sector += n;
		sectors -= n;
		cond_resched();
	}
	return 0;
}
