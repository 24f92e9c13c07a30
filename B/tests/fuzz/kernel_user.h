/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Userland twin of what kernel/larder.h includes besides what tests/unit/pure_user.h stands in for, so that kernel files which are not pure are compiled as they are:
 * types of the kernel's that its structures have, and what a start calls (recover.c, load.c, replay.c).  tests/fuzz/linux/ has the names of the headers.
 *
 * A block device is bytes in memory; whatever else the kernel does beside us (bios, works, timers, locks that nobody contends for) is a type, and no more.
 */
#ifndef FUZZ_KERNEL_USER_H
#define FUZZ_KERNEL_USER_H

#include "../unit/pure_user.h"
#include "compat.h"

#define __percpu

/* ------------------------------------------------------------------ types, and no more */

struct list_head {
	struct list_head *next, *prev;
};
struct work_struct {
	struct list_head entry;
};
struct delayed_work {
	struct work_struct work;
};
#define flush_work(work) ((void)(work))
struct kref {
	int refs;
};
struct rw_semaphore {
	int held;
};
struct completion {
	int done;
};
struct hrtimer;
enum hrtimer_restart { HRTIMER_NORESTART };
#define HRTIMER_MODE_REL_SOFT 0
struct hrtimer {
	enum hrtimer_restart (*function)(struct hrtimer *timer);
};
#define hrtimer_init(timer, clock, mode) ((void)(timer), (void)(mode))
typedef struct {
	struct list_head head;
} wait_queue_head_t;
typedef struct {
	void *pool;
} mempool_t;
typedef s64 ktime_t;

struct page;
struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len, bv_offset;
};
struct bvec_iter {
	sector_t bi_sector;
	unsigned int bi_size;
};
#define BIO_MAX_VECS 256u
struct bio {
	struct block_device *bi_bdev;
	struct bvec_iter bi_iter;
	unsigned int bi_opf;
	u8 bi_status;
	void *bi_private;
	void (*bi_end_io)(struct bio *bio);
	struct bio_vec vec[BIO_MAX_VECS];
	unsigned int vecs;
};
struct bio_list {
	struct bio *head, *tail;
};
struct bio_set {
	void *pool;
};
typedef unsigned int blk_opf_t, blk_mode_t, status_type_t;
typedef u8 blk_status_t;
enum { REQ_OP_READ, REQ_OP_WRITE, REQ_OP_DISCARD, REQ_OP_WRITE_ZEROES, REQ_META = 1 << 8, REQ_FUA = 1 << 9, REQ_PREFLUSH = 1 << 10, REQ_SYNC = 1 << 11 };
static const int blkcg_root_css = 0;
static inline bool bio_has_data(const struct bio *bio) { return bio->bi_iter.bi_size; }
static inline unsigned int bio_op(const struct bio *bio) { return bio->bi_opf & 0xff; }
static inline bool op_is_write(blk_opf_t opf) { return opf & 1; }
#define bio_init(bio, bdev, vecs, n, opf) ((bio)->bi_bdev = (bdev), (void)(vecs), (void)(n), (bio)->bi_opf = (opf))
#define bio_associate_blkg_from_css(bio, css) ((void)(bio), (void)(css))
#define dm_per_bio_data(bio, size) ((void)(size), (void *)(bio))
#define dm_bio_from_per_bio_data(data, size) ((void)(size), (struct bio *)(data))

struct queue_limits {
	unsigned int max_hw_discard_sectors, max_discard_sectors, discard_granularity, max_write_zeroes_sectors, logical_block_size;
};
struct gendisk;
struct mapped_device;
struct dm_table;
struct workqueue_struct;
struct task_struct;
struct dm_target {
	void *private;
	struct dm_table *table;
	sector_t begin, len;
	const char *error;
	unsigned int num_flush_bios, num_discard_bios, num_write_zeroes_bios, per_io_data_size;
	bool flush_supported, discards_supported, limit_swap_bios;
};
struct dm_dev {
	struct block_device *bdev;
};

/* Arguments are looked at, and nothing is said: whatever is found wrong would be said thousands of times in a second. */
static inline void kernel_say(const char *format, ...) { (void)format; }
#define DMERR(...)  kernel_say(__VA_ARGS__)
#define DMWARN(...) kernel_say(__VA_ARGS__)
#define DMERR_LIMIT(...) kernel_say(__VA_ARGS__)
#define DMINFO(...) kernel_say(__VA_ARGS__)
#define dm_table_get_md(table) ((void)(table), NULL)
#define dm_device_name(md) ((void)(md), "8:0")
#define ktime_get() ((ktime_t)0)
#define ktime_ms_delta(a, b) ((a) - (b))
#define get_random_u64() 1ull
#define sort(base, n, size, compare, swap) qsort(base, n, size, compare)
#define totalram_pages() (1ul << 20)
#define vcalloc(n, size) kvcalloc(n, size, GFP_KERNEL)
#define vmalloc_array(n, size) kvmalloc_array(n, size, GFP_KERNEL)
#define this_cpu_add(counter, by) ((counter) += (by))

/* ------------------------------------------------------------------ bits, digits, entries by number */

static inline bool __test_and_set_bit(unsigned long nr, unsigned long *p)
{
	bool was = test_bit(nr, p);

	__set_bit(nr, p);
	return was;
}
static inline unsigned long *bitmap_zalloc(unsigned int n, gfp_t gfp) { return kcalloc(BITS_TO_LONGS(n), sizeof(long), gfp); }
static inline void bitmap_free(const unsigned long *p) { kfree(p); }
static inline void bitmap_fill(unsigned long *p, unsigned int n) { bitmap_set(p, 0, n); }
static inline void bitmap_and(unsigned long *to, const unsigned long *a, const unsigned long *b, unsigned int n)
{
	for (unsigned int i = 0; i < BITS_TO_LONGS(n); i++)
		to[i] = a[i] & b[i];
}

/* 0, or -EINVAL: these are no digits. */
static inline int hex2bin(u8 *to, const char *from, size_t bytes)
{
	unsigned int byte;

	for (; bytes; bytes--, from += 2) {
		if (!isxdigit((unsigned char)from[0]) || !isxdigit((unsigned char)from[1]) || sscanf(from, "%2x", &byte) != 1)
			return -EINVAL;
		*to++ = (u8)byte;
	}
	return 0;
}

/* In no order, as there are few. */
struct xarray {
	unsigned long *index;
	void **entry;
	size_t number;
};

static inline void xa_init(struct xarray *xa) { *xa = (struct xarray){ 0 }; }
static inline void *xa_mk_value(unsigned long v) { return (void *)(v << 1 | 1); }
static inline int xa_err(void *entry) { return IS_ERR(entry) ? (int)PTR_ERR(entry) : 0; }

static inline void *xa_erase(struct xarray *xa, unsigned long index)
{
	for (size_t i = 0; i < xa->number; i++) {
		void *was = xa->entry[i];

		if (xa->index[i] != index)
			continue;
		xa->number--;
		xa->index[i] = xa->index[xa->number];
		xa->entry[i] = xa->entry[xa->number];
		return was;
	}
	return NULL;
}

static inline void *xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	void *was = xa_erase(xa, index);

	(void)gfp;
	xa->index = realloc(xa->index, (xa->number + 1) * sizeof(*xa->index));
	xa->entry = realloc(xa->entry, (xa->number + 1) * sizeof(*xa->entry));
	pure_check(xa->index && xa->entry, "memory");
	xa->index[xa->number] = index;
	xa->entry[xa->number++] = entry;
	return was;
}

#define xa_for_each(xa, at, e) \
	for (size_t xa_i = 0; xa_i < (xa)->number && ((at) = (xa)->index[xa_i], (e) = (xa)->entry[xa_i], true); xa_i++)

static inline void xa_destroy(struct xarray *xa)
{
	free(xa->index);
	free(xa->entry);
	xa_init(xa);
}

/* ------------------------------------------------------------------ block devices */

#define SECTOR_SHIFT 9
#define SECTOR_SIZE  512
#define BIO_POOL_SIZE 2
#define BIOSET_NEED_BVECS 1
#define bioset_init(set, size, pad, flags) ((void)(set), 0)
#define bioset_exit(set) ((void)(set))
#define bio_max_segs(n) min((unsigned int)(n), BIO_MAX_VECS)
#define blk_status_to_errno(status) ((status) ? -EIO : 0)
#define errno_to_blk_status(error) ((blk_status_t)!!(error))
#define is_vmalloc_addr(p) ((void)(p), false)
#define vmalloc_to_page(p) virt_to_page(p)
#define virt_to_page(p) ((struct page *)((uintptr_t)(p) & ~(PAGE_SIZE - 1)))
#define offset_in_page(p) ((uintptr_t)(p) & (PAGE_SIZE - 1))
#define flush_kernel_vmap_range(p, bytes) ((void)(p), (void)(bytes))
#define invalidate_kernel_vmap_range(p, bytes) ((void)(p), (void)(bytes))
#define init_completion(c) ((c)->done = 0)
#define complete(c) ((c)->done++)
#define wait_for_completion_io(c) pure_check((c)->done, "waits for ever")
struct blk_plug {
	int plugged;
};
#define blk_start_plug(plug) ((plug)->plugged = 1)
#define blk_finish_plug(plug) ((plug)->plugged = 0)
#define __get_free_page(gfp) ((unsigned long)pure_alloc(PAGE_SIZE, PAGE_SIZE, gfp))
#define free_page(p) kfree((void *)(p))

/* What was written over, newest last: bdev_undo(). */
struct bdev_write {
	u64 at;
	size_t bytes;
	u8 old[];
};

struct block_device {
	u8 *bytes;
	u64 sectors;
	bool read_only;
	struct gendisk *bd_disk;
	dev_t bd_dev;
	u64 bad, nr_bad; /* sectors that cannot be read */
	struct bdev_write **write;
	size_t writes;
};

static inline sector_t bdev_nr_sectors(const struct block_device *bdev) { return bdev->sectors; }

static inline struct bio *bio_alloc_bioset(struct block_device *bdev, unsigned int vecs, blk_opf_t opf, gfp_t gfp, struct bio_set *set)
{
	struct bio *bio = calloc(1, sizeof(*bio));

	(void)gfp;
	(void)set;
	pure_check(bio && vecs <= BIO_MAX_VECS, "a bio");
	bio->bi_bdev = bdev;
	bio->bi_opf = opf;
	return bio;
}

static inline void bio_put(struct bio *bio) { free(bio); }
static inline sector_t bio_sectors(const struct bio *bio) { return bio->bi_iter.bi_size >> SECTOR_SHIFT; }

static inline unsigned int bio_add_page(struct bio *bio, struct page *page, unsigned int length, unsigned int offset)
{
	if (bio->vecs == BIO_MAX_VECS)
		return 0;
	bio->vec[bio->vecs++] = (struct bio_vec){ page, length, offset };
	bio->bi_iter.bi_size += length;
	return length;
}

static inline void bdev_remember(struct block_device *bdev, u64 at, size_t bytes)
{
	struct bdev_write *w = malloc(sizeof(*w) + bytes);

	bdev->write = realloc(bdev->write, (bdev->writes + 1) * sizeof(*bdev->write));
	pure_check(w && bdev->write, "memory");
	*w = (struct bdev_write){ .at = at, .bytes = bytes };
	memcpy(w->old, bdev->bytes + at, bytes);
	bdev->write[bdev->writes++] = w;
}

static inline void bdev_undo(struct block_device *bdev)
{
	while (bdev->writes) {
		struct bdev_write *w = bdev->write[--bdev->writes];

		memcpy(bdev->bytes + w->at, w->old, w->bytes);
		free(w);
	}
	free(bdev->write);
	bdev->write = NULL;
}

static inline bool bio_is_possible(const struct bio *bio)
{
	const struct block_device *bdev = bio->bi_bdev;
	u64 first = bio->bi_iter.bi_sector, sectors = bio_sectors(bio);

	if (sectors > bdev->sectors || first > bdev->sectors - sectors)
		return false;
	return op_is_write(bio->bi_opf) || first + sectors <= bdev->bad || first >= bdev->bad + bdev->nr_bad;
}

static inline void submit_bio(struct bio *bio)
{
	struct block_device *bdev = bio->bi_bdev;
	u64 at = bio->bi_iter.bi_sector << SECTOR_SHIFT;

	if (!bio_is_possible(bio)) {
		bio->bi_status = 1;
	} else {
		for (unsigned int i = 0; i < bio->vecs; i++) {
			const struct bio_vec *v = &bio->vec[i];
			u8 *memory = (u8 *)v->bv_page + v->bv_offset;

			if (op_is_write(bio->bi_opf)) {
				bdev_remember(bdev, at, v->bv_len);
				memcpy(bdev->bytes + at, memory, v->bv_len);
			} else {
				memcpy(memory, bdev->bytes + at, v->bv_len);
			}
			at += v->bv_len;
		}
	}
	bio->bi_end_io(bio);
}

#endif
