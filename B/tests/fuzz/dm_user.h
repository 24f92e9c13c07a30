/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Userland twin of linux/device-mapper.h, as far as target.c and cache_target.c need it to read words; behind kernel_user.h.  How dm reads numbers is as the kernel's
 * drivers/md/dm-table.c has it.
 */
#ifndef FUZZ_DM_USER_H
#define FUZZ_DM_USER_H

#include "kernel_user.h"

struct dm_arg {
	unsigned int min, max;
	const char *error;
};
struct dm_arg_set {
	unsigned int argc;
	char **argv;
};

static inline const char *dm_shift_arg(struct dm_arg_set *as)
{
	if (!as->argc)
		return NULL;
	as->argc--;
	return *as->argv++;
}

static inline int dm_read(const struct dm_arg *arg, struct dm_arg_set *as, unsigned int *value, const char **error, bool grouped)
{
	const char *text = dm_shift_arg(as);
	char rest;

	if (text && sscanf(text, "%u%c", value, &rest) == 1 && *value >= arg->min && *value <= arg->max && (!grouped || as->argc >= *value))
		return 0;
	*error = arg->error;
	return -EINVAL;
}
#define dm_read_arg(arg, as, value, error)	 dm_read(arg, as, value, error, false)
#define dm_read_arg_group(arg, as, value, error) dm_read(arg, as, value, error, true)

/* Of the target that is under test: what a path names is there, or is not. */
int dm_get_device(struct dm_target *ti, const char *path, blk_mode_t mode, struct dm_dev **dev);
void dm_put_device(struct dm_target *ti, struct dm_dev *dev);
#define dm_table_get_mode(table) ((void)(table), 0u)
#define dm_table_event(table)	 ((void)(table))
#define dm_disk(md)		 ((void)(md), (struct gendisk *)NULL)
#define dm_noflush_suspending(ti) ((void)(ti), false)
#define bdev_read_only(bdev)	 ((bdev)->read_only)
#define bdev_logical_block_size(bdev) ((void)(bdev), 512u)
#define blkdev_issue_flush(bdev)	     ((void)(bdev), 0)

#define DM_TARGET_SINGLETON	   1
#define DM_TARGET_ALWAYS_WRITEABLE 2
#define DM_TARGET_IMMUTABLE	   4
#define DM_TARGET_NOWAIT	   8
#define THIS_MODULE		   NULL
#define STATUSTYPE_INFO		   0
enum { DM_MAPIO_SUBMITTED, DM_MAPIO_KILL };
typedef int (*iterate_devices_callout_fn)(struct dm_target *ti, struct dm_dev *dev, sector_t start, sector_t len, void *data);
struct target_type {
	const char *name;
	unsigned int version[3];
	u64 features;
	void *module;
	int (*ctr)(struct dm_target *ti, unsigned int argc, char **argv);
	void (*dtr)(struct dm_target *ti);
	int (*map)(struct dm_target *ti, struct bio *bio);
	int (*end_io)(struct dm_target *ti, struct bio *bio, blk_status_t *error);
	void (*presuspend)(struct dm_target *ti);
	void (*presuspend_undo)(struct dm_target *ti);
	void (*postsuspend)(struct dm_target *ti);
	int (*preresume)(struct dm_target *ti);
	void (*resume)(struct dm_target *ti);
	int (*message)(struct dm_target *ti, unsigned int argc, char **argv, char *result, unsigned int maxlen);
	void (*status)(struct dm_target *ti, status_type_t type, unsigned int flags, char *result, unsigned int maxlen);
	int (*iterate_devices)(struct dm_target *ti, iterate_devices_callout_fn fn, void *data);
	void (*io_hints)(struct dm_target *ti, struct queue_limits *limits);
};

/* ------------------------------------------------------------------ what else these two files call, and no reading of words comes to */

#define MAX_SCHEDULE_TIMEOUT LONG_MAX
#define INIT_LIST_HEAD(l) ((void)((l)->next = (l)->prev = (l)))
#define list_empty(l) ((l)->next == (l))
#define try_cmpxchg(p, old, new) ((void)(old), cmpxchg(p, *(old), new))
#define queue_work(wq, work) ((void)(wq), (void)(work))
#define queue_delayed_work(wq, work, delay) ((void)(wq), (void)(work), (void)(delay))
#define cancel_work_sync(work) ((void)(work))
#define cancel_delayed_work_sync(work) ((void)(work))
#define flush_work(work) ((void)(work))
#define hrtimer_cancel(timer) ((void)(timer))
#define down_write(lock) ((void)(lock))
#define up_write(lock) ((void)(lock))
#define zero_fill_bio(bio) ((void)(bio))
#define bio_endio(bio) ((void)(bio))
#define bdev_max_discard_sectors(bdev) ((void)(bdev), 0u)

/* As include/linux/uuid.h has it: digits and dashes in their places. */
typedef struct {
	u8 b[16];
} uuid_t;

static inline int uuid_parse(const char *text, uuid_t *uuid)
{
	static const u8 at[] = { 0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34 };

	for (unsigned int i = 0; i < 36; i++)
		if (i == 8 || i == 13 || i == 18 || i == 23 ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
			return -EINVAL;
	for (unsigned int i = 0; i < 16; i++)
		hex2bin(&uuid->b[i], text + at[i], 1);
	return 0;
}

#endif
