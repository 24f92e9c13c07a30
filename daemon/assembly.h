/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Facts, plan and steps, round by round, until nothing is left to do: one pass of `larder assemble`, and of the daemon. */
#ifndef LARDER_ASSEMBLY_H
#define LARDER_ASSEMBLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../kernel/larder_format.h"
#include "attempts.h"
#include "facts.h"

enum assembly_event {
	ASSEMBLY_STARTED, /* a cache or volume, whole */
	ASSEMBLY_DEGRADED, /* a cache without all of its SSDs */
	ASSEMBLY_ALONE, /* a volume without its cache, which is missing */
	ASSEMBLY_SPARE, /* a spare takes the place of an SSD that has failed */
	ASSEMBLY_RETURNED, /* a disk that was away is taken back into its array */
	ASSEMBLY_WRITE_HOLE, /* an array would start with parity that may be wrong: refused */
	ASSEMBLY_CLEARED, /* what an interrupted start had left */
	ASSEMBLY_WAITING,
	ASSEMBLY_REFUSED,
	ASSEMBLY_CONF, /* a line of larder.conf was ignored */
	ASSEMBLY_FAILED, /* the kernel refused; why has been said */
};

/* For ever, as far as anybody waits. */
#define ASSEMBLY_WAIT_FOR_EVER ((uint64_t)1 << 62)
#define ASSEMBLY_WAIT_CONF UINT64_MAX /* as larder.conf has it */
#define ASSEMBLY_RAN_MAX 2048

#define ASSEMBLY_PRESENT_MAX 2048 /* disks of arrays; one that is too many is taken back also if it did not go */

#define ASSEMBLY_COPIES_MAX 256 /* of disks of arrays */
#define ASSEMBLY_DISKS_MAX 2048 /* of arrays; of those that are too many nobody knows later whether they are another disk */

#define ASSEMBLY_SILENT_MAX 256 /* devices; one that is too many is asked in each pass */

#define ASSEMBLY_FAILURES_MAX 64 /* caches; of those that are too many the time to wait is never over */

/* A cache that runs without SSDs that have failed. */
struct assembly_failure {
	uint8_t uuid[16];
	uint32_t places; /* bit by bit */
	uint64_t since[LARDER_MAX_DEVICES]; /* each of them was seen so for the first time */
};

/* What ran at the end of a pass, for the next one: who does not run any more was stopped by somebody. */
struct assembly_memory {
	uint32_t number;
	uint8_t ran[ASSEMBLY_RAN_MAX][16];
	struct attempts attempts; /* starts that failed */
	struct attempts others; /* steps for what runs: of a spare that could not join by the UUID of its cache, of a note by that of the volume, of a disk by its own */
	uint32_t nr_present;
	struct present present[ASSEMBLY_PRESENT_MAX];
	uint32_t nr_copies; /* that stayed beside the array: what is written to that since they do not have, and no bitmap knows */
	struct present copy[ASSEMBLY_COPIES_MAX];
	uint32_t nr_disks; /* the last one that an array had of each UUID of a disk, if that said which disk it is */
	struct assembly_disk {
		uint8_t own[16];
		uint64_t identity;
	} disk[ASSEMBLY_DISKS_MAX];
	uint32_t nr_failures;
	struct assembly_failure failure[ASSEMBLY_FAILURES_MAX];
	uint64_t unread_since; /* as in struct facts */
	uint32_t nr_silent; /* devices that did not even let themselves be opened */
	struct present silent[ASSEMBLY_SILENT_MAX];
	uint64_t silent_until, silent_wait; /* they are not asked before then; microseconds for which they are not */
	uint64_t unready_since; /* from when on udev is not through with a device that may be what is missing; 0: with all */
};

struct assembly {
	uint64_t wait; /* microseconds for what is missing */
	uint64_t began; /* see struct facts */
	const uint8_t *only; /* this cache or volume, and what it needs; also if it was stopped, whatever larder.conf says */
	bool obey; /* but not so: as if it started by itself */
	bool marked; /* see facts_look() */
	bool dry_run;
	bool observe; /* plan, and do nothing */
	struct assembly_memory *memory; /* or NULL */
	uint64_t unread_since; /* where that is NULL: of the pass before, and of this one; as in struct facts */
	uint64_t unready_since; /* the same, as in struct assembly_memory */
	/* what there was at the end, and what was left of it; or NULL */
	void (*seen)(const struct look *look, const struct plan *plan);
	void (*looks)(void); /* in front of each look at the devices, or NULL */
	/* uuid: of the cache, volume or member it is about */
	void (*tell)(enum assembly_event event, const uint8_t uuid[16], const char *text);

	/* what came of it */
	uint64_t again; /* on the clock of facts: look again then; 0: only when something changes */
	bool stores; /* of snapshots are in use: nothing tells of one that fills up */
	size_t started, waiting, refused;
	bool blind; /* what there is could not be seen, or not to the end: nothing else of this counts */
};

/* Takes the turn.  Returns LARDER_DONE, or the first error of a step. */
int assembly_pass(struct assembly *assembly);
/*
 * Something was done: starts that failed are tried again in the next pass; where somebody has asked, spares too.  (A spare that could not join has had its
 * superblock written, which is an event: of others that came since then the planner knows by itself.)
 */
void assembly_retry(struct assembly_memory *memory, bool asked);
/* larder.auto=no on the kernel's command line */
bool assembly_is_off(void);

#endif
