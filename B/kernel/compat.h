/* SPDX-License-Identifier: GPL-2.0-only */
/* Every shim for a kernel version; no version test anywhere else in kernel/.  Supported: 6.1.83 and later, see below. */
#ifndef LARDER_COMPAT_H
#define LARDER_COMPAT_H

#include <linux/version.h>
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/workqueue.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "larder needs Linux 6.1.83 or later"
#endif

/*
 * Before "dm: call the resume method on internal suspend" (65e8fbde6452; CVE-2024-26880) an internal suspend called postsuspend,
 * and the internal resume not preresume: behind the first reload of its cache a volume would go on unbound.
 */
#define LARDER_FROM_TO(from, to) (LINUX_VERSION_CODE >= (from) && LINUX_VERSION_CODE < (to))
#if LARDER_FROM_TO(KERNEL_VERSION(6, 1, 0), KERNEL_VERSION(6, 1, 83)) || \
	LARDER_FROM_TO(KERNEL_VERSION(6, 2, 0), KERNEL_VERSION(6, 6, 23)) || \
	LARDER_FROM_TO(KERNEL_VERSION(6, 7, 0), KERNEL_VERSION(6, 7, 11)) || \
	LARDER_FROM_TO(KERNEL_VERSION(6, 8, 0), KERNEL_VERSION(6, 8, 2))
#error "its device mapper resumes a volume unbound: larder needs Linux 6.1.83, 6.6.23, 6.7.11, 6.8.2, or 6.9 and later"
#endif

/* hex2bin(): once of <linux/kernel.h>, which no longer brings this header */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#include <linux/hex.h>
#endif

/* 6.9: hrtimer and block limits are set up in one call each; 6.11 moved queue flags into the limits */
static inline void larder_limit_discard(struct queue_limits *limits, unsigned int sectors, unsigned int granularity)
{
	limits->max_hw_discard_sectors = sectors;
	limits->max_discard_sectors = sectors;
	limits->discard_granularity = granularity;
}

static inline void larder_limit_write_zeroes(struct queue_limits *limits, unsigned int sectors)
{
	limits->max_write_zeroes_sectors = sectors;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
	limits->max_hw_wzeroes_unmap_sectors = 0;
#endif
}

/* 6.15: hrtimer_init() is gone */
static inline void larder_hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*fn)(struct hrtimer *))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, fn, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	timer->function = fn;
#endif
}

/* 6.18: nobody has looked at the vectors of direct I/O before.  bio: its first vector has all that is left. */
static inline bool larder_vector_unchecked(struct block_device *bdev, const struct bio *bio)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	return (bio->bi_io_vec->bv_offset + bio->bi_iter.bi_bvec_done) & bdev_dma_alignment(bdev);
#else
	return false;
#endif
}

/* 6.9: the mode of a table's devices; older kernels only know it through the table */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
typedef fmode_t larder_blk_mode_t;
#else
typedef blk_mode_t larder_blk_mode_t;
#endif

/* 6.17: a workqueue without WQ_UNBOUND says that it is one of each CPU; 7.3 warns where it does not */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define LARDER_WQ_PERCPU	WQ_PERCPU
#else
#define LARDER_WQ_PERCPU	0
#endif

/* Exported since 3.19, declared only in drivers/md/dm.h, which is no part of the kernel's headers */
void dm_internal_suspend_noflush(struct mapped_device *md);
void dm_internal_resume(struct mapped_device *md);

#endif
