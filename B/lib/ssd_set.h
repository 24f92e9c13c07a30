/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The SSDs of a cache that are given: which of them are members of its set, which are stale, which are missing.  Section 4.1 of
 * docs/on-disk-format.md.  Nothing is written; of an SSD that is no member nothing is read but its superblock and its table.
 */
#ifndef LARDER_SSD_SET_H
#define LARDER_SSD_SET_H

#include "superblock.h"

enum ssd_standing {
	SSD_MEMBER,
	SSD_STALE, /* it left the set, or another one has its place */
	SSD_JOINING, /* it was to join the set, and a power cut came before it had */
	SSD_NO_TABLE, /* neither copy of its table is valid: what it is cannot be told */
};

struct ssd {
	struct device device;
	struct superblocks super;
	struct cache_tables tables;
	const struct larder_cache_sb *sb; /* NULL: it has none that is valid, or is no SSD of a cache */
	enum ssd_standing standing;
};

struct ssd_set {
	struct ssd *ssd; /* as given */
	size_t number;
	char *name; /* for messages: "/dev/sda, /dev/sdb" */

	/* of ssd_set_choose() */
	const struct ssd *member[LARDER_MAX_DEVICES]; /* by its place in the set; NULL: none is here */
	const struct larder_table *table; /* the newest */
	const struct larder_cache_sb *sb; /* the newest of the members' */
	uint64_t durable; /* the highest durable_sequence of the members */
};

/* Opens and reads those.  Complains of one that cannot be opened, or is given twice; on success the caller closes. */
int ssd_set_open(struct ssd_set *set, const char *const *paths, size_t number, enum device_access access);
void ssd_set_close(struct ssd_set *set);
/* Who is a member?  Complains where that cannot be told; remarks upon those that are none. */
int ssd_set_choose(struct ssd_set *set);
/* Places whose SSD is a member by the newest table, and is not here: a bit each. */
uint32_t ssd_set_missing(const struct ssd_set *set);

#endif
