/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The scrub of an md array: md compares what its disks hold, by sysfs (Linux, Documentation/admin-guide/md.rst). */
#ifndef LARDER_MD_SCRUB_H
#define LARDER_MD_SCRUB_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* What an array does just now, of itself or by a scrub. */
struct md_scrub {
	char action[16]; /* idle, check, repair; resync, recover, reshape, frozen */
	uint64_t done, all; /* sectors of each disk; all 0: it does nothing, or waits for another array on the same disks */
	uint64_t differ; /* sectors, as counted since the last one began: about, md counts the whole of what it compared */
	bool open; /* md_scrub_begin() began one, which has not come to its end, whether it runs or not */
	uint64_t from; /* sector where the one that runs began, or the last one was interrupted; 0: it was not, or at once */
};

/* False: it runs no more, or is of a level that has nothing to compare. */
bool md_scrub_look(dev_t device, struct md_scrub *scrub);
static inline bool md_scrub_runs(const struct md_scrub *scrub)
{
	return !strcmp(scrub->action, "check") || !strcmp(scrub->action, "repair");
}

/*
 * Begins one at that sector of each disk; (repair) one that makes them the same: where two copies differ, from the first disk; parity from the
 * data.  Returns 0 or a positive errno.
 */
int md_scrub_begin(dev_t device, bool repair, uint64_t from);
/* Ends it; *at: the sector where it may go on. */
int md_scrub_stop(dev_t device, uint64_t *at);

#endif
