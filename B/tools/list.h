/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reports of caches and volumes: one set of fields for `list` and `status`. */
#ifndef LARDER_LIST_H
#define LARDER_LIST_H

#include "running.h"

/* Prints a report of caches, or volumes; stopped ones too where members is not NULL.  only: just this one, or NULL. */
int list_report(bool cache, const struct mapped_list *list, const struct members *members, const struct mapped *only,
		const char *default_fields, const struct report_options *options);
/* Share of reads that the cache served, "87.3", or "" if there were none; the caller frees it. */
char *hit_percent(const char *status);

#endif
