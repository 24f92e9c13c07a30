/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What runs at one moment, for those who only look: the kernel is asked, or a file that has kept its answer. */
#ifndef LARDER_SNAPSHOT_H
#define LARDER_SNAPSHOT_H

#include "dm.h"

/*
 * All caches and volumes that run: by mapped_scan(), or, where the environment variable LARDER_STATUS names a file, from that: the
 * output of `dmsetup status`, of which lines of other targets are skipped.  Numbers and users of the devices are not known then.
 * Complains; the list is empty then.  Free it by mapped_list_free().
 */
int snapshot_take(struct mapped_list *list);
/* The name that we show: of a cache without CACHE_PREFIX, unless another cache of the list is called that. */
const char *snapshot_name(const struct mapped_list *list, const struct mapped *mapped);
/* The cache that this volume's status names, if it is in the list; else NULL. */
const struct mapped *snapshot_cache(const struct mapped_list *list, const struct mapped *volume);
/* The one that is called so, by the name for dm or by the one that we show; NULL: there is none. */
const struct mapped *snapshot_find(const struct mapped_list *list, const char *name, bool cache);

#endif
