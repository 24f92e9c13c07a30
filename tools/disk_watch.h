/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The disks below what runs, asked now and then how they are.
 *
 * They are asked in a child process: one that is ill may take minutes to answer, or hang, and that is when other events count.
 */
#ifndef LARDER_DISK_WATCH_H
#define LARDER_DISK_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "changes.h"
#include "dm.h"

struct disk_watch {
	pid_t child; /* that asks now; 0: none */
	int answers; /* what it has found; -1: nothing is asked */
	char *text; /* of that, so far */
	size_t length;
	char **known; /* "disk key": what is wrong, and was told */
	size_t nr_known;
};

void disk_watch_init(struct disk_watch *watch);
/* Asks all disks of these caches and volumes, unless a child still does. */
void disk_watch_ask(struct disk_watch *watch, const struct mapped_list *list);
/* There is something to read in watch->answers: what the child has found, when it has ended.  True: it has. */
bool disk_watch_hear(struct disk_watch *watch, struct changes *changes);
void disk_watch_free(struct disk_watch *watch);

#endif
