/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The set of SSDs of a cache that runs: what its table on the SSDs says of it, and the words of the dm table. */
#ifndef LARDER_SET_H
#define LARDER_SET_H

#include "running.h"

struct set {
	struct mapped *mapped;
	char *params;				/* of the live dm table */
	uint32_t number;			/* of places */
	char *ssd[LARDER_MAX_DEVICES];		/* as in the dm table: a path, major:minor, or "-" */
	const char *options;			/* what follows in params */
	struct larder_cache_sb sb;		/* of a member */
	struct larder_table table;		/* the newest */
};

/* The words of the dm table; then what the SSDs say.  Complain. */
int set_read_words(struct set *set, struct mapped *mapped);
int set_read_table(struct set *set);
/* Both.  Complains.  On success the caller frees it. */
int set_read(struct set *set, struct mapped *mapped);
void set_free(struct set *set);
/* Is this the superblock of an SSD that left this very set?  Nothing on it counts any more. */
bool set_is_stale(const struct set *set, const union superblock *sb);
/*
 * Of one that is stale: has the set that runs all that it has, as it left one that this comes from?  One that was used without the others may have the only
 * copy of what was written then.  True also where neither of its tables can be read.
 */
bool set_knows(const struct set *set, const char *path, const union superblock *sb);
/* Is it that of a spare of this cache? */
bool set_is_spare(const struct set *set, const union superblock *sb);
/* Overwrites the superblocks of an SSD, or spare, that has left: they make it look like a part of the cache.  Remarks when it cannot: false. */
bool set_erase(const char *path, uint32_t kind, const uint8_t cache[16]);
/* The place with this device in the dm table; < 0: none.  Says nothing. */
int set_find_device(const struct set *set, const char *path);
/* The place of the SSD with this UUID, likewise. */
int set_find_uuid(const struct set *set, const char *text);
/* Which place does this word mean: a number, an SSD's path or UUID?  Complains; < 0: none. */
int set_place(const struct set *set, const char *word);
/* The dm table to be loaded is without the SSDs that have left the set: one that cannot be read any more would be refused. */
void set_forget_failed(struct set *set);
/* Loads a dm table with these words for the SSDs, and makes it live; sectors more than before. */
int set_reload(struct set *set, uint64_t more);
/* State of a place as the kernel sees it: "active", "failed", "joining", "draining", "removed"; the caller frees it, or NULL. */
char *set_state(const struct set *set, uint32_t place);
/* Until the state of the place is another one than this; asks the kernel again every tenth of a second. */
int set_wait(struct set *set, uint32_t place, const char *state);
/* Says that the SSD at path, which is in this place, has joined, or joins, and that root needs it (remark_of_root()).  Complains where it has not, as one that has failed. */
int set_say_joined(const struct set *set, uint32_t place, const char *path);

/* The newest table among the SSDs of the cache with this UUID; false: none is readable. */
bool set_newest_table(const struct members *members, const uint8_t uuid[16], struct larder_table *table);
/*
 * A member by that table, of a cache that does not run: does it lack what the superblocks of all have had (rule 16)?  In words that begin with its path,
 * to be freed by the caller; NULL: it does not, or is no member.  Nobody may raise the generation of its superblock then: that is what it is told by.
 */
char *set_why_older(const struct members *members, const struct larder_table *table, const struct member *ssd);
/* Is it?  Remarks so, with what follows from it. */
bool set_remark_older(const struct members *members, const struct larder_table *table, const struct member *ssd, const char *more);

#endif
