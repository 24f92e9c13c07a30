/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which devices a verb of `larder rescue` means. */
#ifndef LARDER_RESCUE_NAMES_H
#define LARDER_RESCUE_NAMES_H

#include "arguments.h"
#include "rescue.h"
#include "scan.h"

#define DEGRADED_ARGUMENT(place) \
	{ "degraded", 0, ARGUMENT_FLAG, &(place), NULL, "also if SSDs of the set are missing: what the others hold" }

/* The SSDs of a cache, by its label or UUID: all that were found; by their devices: just those. */
struct cache_names {
	const char *const *name;
	int number; /* 0: by the UUID that the volume's superblock names */
	bool degraded;
};

/* Opens the cache that is named; scans for members.  Complains; on success the caller closes and frees. */
int rescue_named_cache(const struct cache_names *names, struct members *members, struct rescue_cache *cache);
/*
 * Opens the backing that is named, and the cache that it belongs to, or the one that is given (none: the volume is detached, and cache
 * all zero), and calls run; closes them.  Complains; returns what run does.
 */
int rescue_with_volume(const char *name, const struct cache_names *names, enum device_access access,
		       int (*run)(struct rescue_cache *cache, const struct rescue_volume *volume, void *data), void *data);

#endif
