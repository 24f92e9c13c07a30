/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which devices a verb of `larder rescue` means. */
#ifndef LARDER_RESCUE_NAMES_H
#define LARDER_RESCUE_NAMES_H

#include "rescue.h"
#include "scan.h"

/* Opens the cache that is named by label, UUID or path; scans for members.  Complains; on success the caller closes and frees. */
int rescue_named_cache(const char *name, struct members *members, struct rescue_cache *cache);
/*
 * Opens the backing that is named, and the cache that it belongs to, or the one that is given.  *has_cache: false for a volume of
 * none, with cache_name NULL; then only the volume is open.  Complains; on success the caller closes.
 */
int rescue_named_volume(const char *name, const char *cache_name, enum device_access access, struct rescue_cache *cache,
			struct rescue_volume *volume, bool *has_cache);

#endif
