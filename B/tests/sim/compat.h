/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every kernel-version shim of simdisk; no other file tests LINUX_VERSION_CODE.  Supported: 6.1 and later.
 */
#ifndef SIMDISK_COMPAT_H
#define SIMDISK_COMPAT_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/hrtimer.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "simdisk needs Linux 6.1 or later"
#endif

/* 6.14 made merging the default and removed its flag */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
#define SIM_MQ_F_MERGE	0
#else
#define SIM_MQ_F_MERGE	BLK_MQ_F_SHOULD_MERGE
#endif

/* 6.5: open() takes the gendisk, release() no mode */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#define SIM_OPEN_ARGS		struct gendisk *disk, blk_mode_t mode
#define SIM_OPEN_DISK		disk
#else
#define SIM_OPEN_ARGS		struct block_device *bdev, fmode_t mode
#define SIM_OPEN_DISK		(bdev->bd_disk)
#endif

/* 6.15: hrtimer_init() is gone */
static inline void sim_hrtimer_setup(struct hrtimer *t, enum hrtimer_restart (*fn)(struct hrtimer *))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(t, fn, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
#else
	hrtimer_init(t, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	t->function = fn;
#endif
}

/*
 * What simdisk asks of its queue.  Sizes in bytes, max_sectors in sectors of 512; virt_boundary 0: none; discard_bytes,
 * zeroes_bytes 0: not supported.
 */
struct sim_limits {
	u32 lbs, pbs, io_min, io_opt;
	u32 virt_boundary;
	u32 max_sectors;
	u64 discard_bytes, zeroes_bytes;
	u32 discard_gran;
	bool wce, fua, rotational;
};

/* Sleeps.  6.11: limits and features are given when the disk is made; 6.9: a limits argument that may be NULL. */
static inline struct gendisk *sim_alloc_disk(struct blk_mq_tag_set *set, const struct sim_limits *l, void *data)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
	struct queue_limits lim = {
		.logical_block_size = l->lbs, .physical_block_size = l->pbs, .io_min = l->io_min, .io_opt = l->io_opt,
		.max_hw_sectors = l->max_sectors, .max_segments = 256,
		.virt_boundary_mask = l->virt_boundary ? l->virt_boundary - 1 : 0,
		.max_hw_discard_sectors = l->discard_bytes >> 9, .max_discard_segments = 1,
		.discard_granularity = l->discard_bytes ? l->discard_gran : 0,
		.max_write_zeroes_sectors = l->zeroes_bytes >> 9,
		.features = (l->wce ? BLK_FEAT_WRITE_CACHE : 0) | (l->wce && l->fua ? BLK_FEAT_FUA : 0) |
			(l->rotational ? BLK_FEAT_ROTATIONAL : 0),
	};

	return blk_mq_alloc_disk(set, &lim, data);
#else
	struct request_queue *q;
	struct gendisk *disk;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	disk = blk_mq_alloc_disk(set, NULL, data);
#else
	disk = blk_mq_alloc_disk(set, data);
#endif
	if (IS_ERR(disk))
		return disk;
	q = disk->queue;
	blk_queue_logical_block_size(q, l->lbs);
	blk_queue_physical_block_size(q, l->pbs);
	if (l->io_min)
		blk_queue_io_min(q, l->io_min);
	if (l->io_opt)
		blk_queue_io_opt(q, l->io_opt);
	blk_queue_max_hw_sectors(q, l->max_sectors);
	blk_queue_max_segments(q, 256);
	if (l->virt_boundary)
		blk_queue_virt_boundary(q, l->virt_boundary - 1);
	if (l->discard_bytes) {
		blk_queue_max_discard_sectors(q, l->discard_bytes >> 9);
		q->limits.discard_granularity = l->discard_gran;
	}
	blk_queue_max_write_zeroes_sectors(q, l->zeroes_bytes >> 9);
	blk_queue_write_cache(q, l->wce, l->fua);
	if (!l->rotational)
		blk_queue_flag_set(QUEUE_FLAG_NONROT, q);
	blk_queue_flag_clear(QUEUE_FLAG_ADD_RANDOM, q);
	return disk;
#endif
}

#endif
