/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Jobs: what goes on for a while with a stack, a cache or a volume, as objects of the bus.
 *
 * Those that are found here are the kernel's work, as dm's status, md's files in /sys, and the notes of stopped scrubs show it: whoever began it, and
 * however often larderd was started since.  Their paths follow from what they are, so that one found again is the same object.  (Commands that a
 * method runs are bus_call.c's.)
 */
#ifndef LARDER_JOBS_H
#define LARDER_JOBS_H

#include "../lib/dm.h"
#include "../lib/md_scrub.h"
#include "../lib/turn.h"
#include "objects.h"

/* An array below a stack: what it does, and whether a scrub was stopped. */
struct job_array {
	struct md_scrub now;
	struct scrub_note note;
};

/* Adds the jobs of what runs to the objects that are known of it. */
void jobs_find(struct objects *objects, const struct mapped_list *mapped);
/* The part of it for one array; no I/O.  stack, volume: paths. */
void jobs_of_array(struct objects *objects, const char *stack, const char *volume, const struct job_array *array);
/* The same objects with the jobs of this moment: for a look that touches no disk.  Complains. */
int jobs_look(struct objects *objects);
/* Is there one that goes on by itself? */
bool jobs_run(const struct objects *objects);
/* Of one that has gone: how it ended, as far as the objects of now tell it. */
const char *job_result(const struct object *job, const struct objects *now);
/*
 * Adds one that runs.  kind: a word for people, and of its path; of: the path of what it is about; source: "devices", or "command"; serial: tells those
 * apart of which there may be several, else 0.  The job can be changed until the next one is added.
 */
struct object *job_add(struct objects *objects, const char *kind, const char *of, const char *source, unsigned serial);

#endif
