/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The disks below what runs, asked now and then how they are.
 *
 * They are asked in a child process, one after the other: one that is ill may take minutes to answer, or hang, and that is when other events count.
 * One that takes too long is told of, its child is given up, and another one asks those behind it.
 */
#ifndef LARDER_DISK_WATCH_H
#define LARDER_DISK_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "changes.h"
#include "dm.h"

/* Killed, which it, or a smartctl below it, may not hear: until both have ended the disk is not asked again. */
struct disk_lost {
	pid_t child; /* 0: it has ended */
	int answers; /* of it: a pipe that ends when nobody has the other side open any more */
	char *disk;
};

/* What was told. */
struct disk_known {
	char *what; /* "disk key" */
	char *which; /* of those that had the name: "sequence wwid", 0 and nothing where that is not known */
};

struct disk_watch {
	pid_t child; /* that asks now; 0: none */
	int answers; /* what it has found; -1: nothing is asked */
	char *text; /* of that, what no line has ended yet */
	size_t length;
	char *asked; /* the disk that is asked now; NULL: none */
	char *which; /* of it: as disk_known.which */
	bool answered; /* it has */
	double since; /* it is asked; CLOCK_MONOTONIC */
	char **found; /* "disk key": what is wrong with it */
	size_t nr_found;
	struct disk_known *known; /* of all: what is wrong, and was told */
	size_t nr_known;
	char *behind; /* the disk that was given up: those behind it are to be asked; NULL: none was */
	struct disk_lost *lost;
	size_t nr_lost;
};

void disk_watch_init(struct disk_watch *watch);
/* Asks all disks of these caches and volumes, or those behind the one that was given up, unless a child still does. */
void disk_watch_ask(struct disk_watch *watch, const struct mapped_list *list);
/* There is something to read in watch->answers: what the child has found. */
void disk_watch_hear(struct disk_watch *watch, struct changes *changes);
/* Seconds until the disk that is asked now is to have answered; negative: none is asked. */
double disk_watch_left(const struct disk_watch *watch);
/* If it has not by then: tells so, and gives its child up.  Those behind it (watch->behind) are to be asked. */
void disk_watch_give_up(struct disk_watch *watch, struct changes *changes);
void disk_watch_free(struct disk_watch *watch);

#endif
