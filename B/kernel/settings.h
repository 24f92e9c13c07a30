/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The options of caches and volumes: settings.c reads them by name for constructors and messages, and prints them for tables and
 * status.  Pure: includes pure.h only, tested in userland.
 */
#ifndef LARDER_SETTINGS_H
#define LARDER_SETTINGS_H

#include "pure.h"
#include "larder_format.h"
#include "class.h"

/* What has two copies, where there are two SSDs: nothing; the write stream and checkpoints; clean copies too */
enum mirror_level { MIRROR_NONE, MIRROR_DIRTY, MIRROR_ALL, MIRROR_DIRTY_3 };

/* When a write is acknowledged: its data is on the SSD; its record is; its data is in memory (buffered.c) */
enum commit_mode { COMMIT_AUTO, COMMIT_ALWAYS, COMMIT_BUFFERED };

/* What a miss that may fill has to be: anything; not the first of its place within the ghost's memory */
enum admit_mode { ADMIT_ALWAYS, ADMIT_SECOND_MISS };

/* What a user's read gets from an SSD is compared with its checksum (verify.c) */
enum verify_mode { VERIFY_NONE, VERIFY_READS };

#define LARDER_CUTOFF_AUTO	U32_MAX	/* of sequential_cutoff: streams go where they are faster (speed.h) */

struct cache_settings {
	u8 commit;			/* enum commit_mode */
	bool discard;
	u8 mirror;			/* enum mirror_level */
	u8 role[LARDER_MAX_DEVICES];	/* enum larder_device_role */
	u8 nr_roles;			/* given, of these; the others are as on disk */
	u32 commit_interval;		/* ms */
	u32 gather;
	u32 memory_limit;		/* MiB, 0: 10 % of RAM */
	u32 small_percent;
	u32 max_marks;
	u32 checkpoint_percent;
	u32 congestion_read, congestion_write;	/* us, 0: off */
	u32 scrub_rate;			/* KiB/s, 0: no bound */
	u32 resync_rate;		/* KiB/s, 0: no bound */
	bool mend;			/* copies that a read has found damaged */
};

struct volume_settings {
	u8 mode;			/* enum larder_mode */
	bool fill, writeback;
	u8 admit;			/* enum admit_mode */
	u8 verify;			/* enum verify_mode */
	u32 sequential_cutoff;		/* KiB, or LARDER_CUTOFF_AUTO */
	u32 writeback_percent;
	u32 writeback_rate_min, writeback_rate_max;	/* KiB/s */
	u32 writeback_depth;
	u32 readahead;			/* KiB, 0: off */
	u32 share_min, share_max;	/* percent of the cache */
	bool stripes;			/* writes of whole ones go to the backing */
	bool quiet;			/* the backing is left alone until more than the target is dirty */
	u32 failure_wait;		/* s: for how long writes wait for what is dirty in a cache that has failed, or is full */
	struct larder_classes class;
};

int cache_setting_parse(struct cache_settings *s, const char *key, const char *value, const char **why);
/* The key's number, or -EINVAL */
int volume_setting_parse(struct volume_settings *s, const char *key, const char *value, const char **why);
/* sep[0] goes before a key, sep[1] between key and value.  *count: words printed; counted even if size is 0. */
unsigned int cache_settings_print(const struct cache_settings *s, bool only_changed, const char *sep, char *buf, unsigned int size,
				  unsigned int *count);
unsigned int volume_settings_print(const struct volume_settings *s, u32 given_mask, const char *sep, char *buf, unsigned int size,
				   unsigned int *count);
#define VOLUME_SETTING_MODE 0	/* printed only if its bit is in given_mask: the default is the superblock's */
void cache_settings_default(struct cache_settings *s);
void volume_settings_default(struct volume_settings *s);

#endif
