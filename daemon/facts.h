/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The devices as facts for plan_make(): what is there, what their superblocks say, what runs. */
#ifndef LARDER_FACTS_H
#define LARDER_FACTS_H

#include "../lib/dm.h"
#include "../lib/scan.h"
#include "plan.h"

/* A disk that is whole in an array, as long as it is not away: the kernel gives each disk that comes a number of its own. */
struct present {
	dev_t number;
	uint64_t sequence;
	uint8_t own[16]; /* its UUID as a disk of an array, as udev has it; zero: it does not */
	uint64_t identity; /* of the disk, by what that says, and where on it; 0: it does not */
};

struct look {
	struct facts facts;
	struct present *present;
	size_t nr_present;
	struct present *copy; /* devices with the UUID of a disk that an array has, which does not have these */
	size_t nr_copies;
	char *unready; /* node of a device that udevd is not through with, which was not read; NULL: there is none */
	bool udev_busy; /* of that: udevd has events that it is not through with */
	/* what they point to */
	struct members members;
	struct mapped_list mapped;
	struct mapped_names names;
};

/*
 * Looks at all devices that can be read without waiting, and that are no path of a multipath device; where udevd runs, at those it
 * has dealt with.  marked: where udevd runs, only at those that its database calls a larder_member, so that no other disk is read.
 * facts.wait, .failed and .only are the caller's to set.  Complains; on success the caller frees it.
 */
int facts_look(struct look *look, bool marked);
void facts_free(struct look *look);
/* Is it still that one? */
bool present_lasts(const struct present *present);
/* Microseconds on the clock of facts.now and .appeared. */
uint64_t facts_clock(void);
/* As if the step were done: for a dry run.  name points into the step, which outlives the facts. */
void facts_pretend(struct facts *facts, const struct step *step);

#endif
