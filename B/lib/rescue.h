/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A cache and a volume of it without the kernel's targets: read together, and the dirty data written back.
 *
 * The SSDs are never written.  docs/design.md, section 9, says why what is done to the backing is right at every point where it may
 * be cut off.
 */
#ifndef LARDER_RESCUE_H
#define LARDER_RESCUE_H

#include "slot_sums.h"

struct rescue_cache {
	struct ssd_set set;
	struct cache_image image;
};

/* How a backing and the cache stand to each other. */
enum standing {
	STANDING_ATTACHED, /* what the cache holds counts */
	STANDING_OLDER, /* the backing lacks what the cache has seen of it: put back from an image, say */
	STANDING_CACHE_OLDER, /* the other way round */
	STANDING_STALE, /* the volume ran without it: what it holds does not count any more */
	STANDING_DETACHED, /* the volume belongs to no cache */
	STANDING_FOREIGN, /* to another cache */
	STANDING_UNKNOWN, /* to this one, which knows nothing of it */
	STANDING_RESIZED, /* the cache holds what lies behind its end */
	STANDING_OTHER_SET, /* it ran with a set of SSDs that these know nothing of: theirs is older, or of another side */
};

struct rescue_volume {
	struct device device;
	struct superblocks super;
	const struct larder_volume_sb *sb;
	enum standing standing;
	unsigned number; /* in the cache's table, if it is attached, stale or resized */
	const struct cached_volume *cached; /* NULL: the cache holds nothing that counts */
	bool lost; /* what the log has lost may be of it: of one that is not dirty by its own superblock the disk has all */
};

/*
 * Opens these SSDs, which nobody else may use, and loads what those hold that are members of the set.  degraded: also if members are
 * missing.  Complains; on success the caller closes it.
 */
int rescue_cache_open(struct rescue_cache *cache, const char *const *paths, size_t number, bool degraded);
void rescue_cache_close(struct rescue_cache *cache);
/* Opens a backing and finds its standing to the cache (NULL: detached); does not judge it.  Complains; on success the caller closes it. */
int rescue_volume_open(struct rescue_volume *volume, struct rescue_cache *cache, const char *path, enum device_access access);
void rescue_volume_close(struct rescue_volume *volume);
enum standing rescue_standing(const struct rescue_cache *cache, const struct larder_volume_sb *sb, unsigned *number);
const char *standing_text(enum standing standing);
/* LARDER_DONE if the cache counts for the volume, or holds nothing that could; else says why not. */
int rescue_judge(const struct rescue_cache *cache, const struct rescue_volume *volume);

/* Remarks upon what was in the log, or may have been, and is not seen any more; volume: or why that is nothing to it; NULL: of all of them. */
void rescue_tell_lost(const struct rescue_cache *cache, const struct rescue_volume *volume);
/* Makes durable what was read of both, so that it can't be lost after it was shown.  Remarks on errors. */
void rescue_settle(const struct rescue_cache *cache, const struct rescue_volume *volume);
/*
 * The volume's bytes as a start would show them.  0 or -errno (-EIO for damaged dirty data, and where the disk cannot be read and nothing dirty
 * covers that); says nothing.
 */
int rescue_read(struct rescue_cache *cache, const struct rescue_volume *volume, uint64_t offset, size_t bytes, uint8_t *to);

struct rescue_count {
	uint64_t dirty, zero, damaged; /* sectors; damaged ones are dirty as well */
	uint64_t differ; /* good, but not in each of its copies that are here */
};

/* Runs of sectors of a volume that are damaged, in rising order, none at the end of the one before. */
struct rescue_damage {
	struct rescue_run {
		uint64_t sector, end;
	} *run;
	size_t number, room;
};

void rescue_damage_free(struct rescue_damage *damage);

/* Reads and counts what is dirty.  tell: each damaged run is remarked upon.  damage: gets them, and is the caller's to free; NULL: nobody asks. */
struct rescue_count rescue_verify(struct rescue_cache *cache, const struct cached_volume *v, const char *name, bool tell, struct rescue_damage *damage);
/*
 * To be called before rescue_write(): a start of the cache, should this be cut off, reads nothing that is clean there from it (CLEAN_VOID).  What
 * rescue found as the newest dirty data may be lost to that start, with an SSD, or in a power cut, and what is clean is older than the backing then.
 * Complains.
 */
int rescue_begin(const struct rescue_volume *volume);
/*
 * Writes all that is dirty and not damaged to the backing, and flushes it.  accepted: what was told as damaged; of an SSD that dies it may be
 * something else by now, which ends it.  *skipped: sectors of it that were not written.  Complains.
 */
int rescue_write(struct rescue_cache *cache, const struct rescue_volume *volume, const struct rescue_damage *accepted, uint64_t *written,
		 uint64_t *skipped);
/* The backing stands alone: belongs to no cache, is not dirty, and its former cache is stale.  Complains. */
int rescue_release(const struct rescue_volume *volume);

#endif
