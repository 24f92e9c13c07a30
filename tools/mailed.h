/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Of what larderd has not started when somebody was mailed last, by word and UUID: a disk that comes and goes comes by another name each time, and is one
 * mail for a while all the same.
 */
#ifndef LARDER_MAILED_H
#define LARDER_MAILED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "changes.h"

#define MAILED_AGAIN_S 600 /* as the kernel's TOLD_AGAIN */
#define MAILED_MAX     256 /* of more each is mailed at once */
#define MAILED_OVER    "no longer " /* in front of what was left, and is not any more */

/* All of it is zero to begin with; mailed_free() at the end. */
struct mailed {
	struct {
		uint64_t key;
		double at; /* seconds, on the clock of the caller */
	} last[MAILED_MAX];
	size_t number;
	struct mailed_held {
		struct change change; /* a copy of its words */
		uint64_t key;
		time_t at; /* when it happened */
	} held[MAILED_MAX];
	size_t nr_held;
};

/*
 * May it be mailed now?  Then it counts as mailed.  False: the same was, MAILED_AGAIN_S ago or less; it is held, and mailed later if it lasts.  Those with the same
 * now do not hold one another.  now: seconds, on a clock that is not set.
 */
bool mailed_may(struct mailed *mailed, const struct change *change, time_t at, double now);
/* Something is over: if that is held, nobody is told any more. */
void mailed_over(struct mailed *mailed, const struct change *change);
/* Seconds until one that is held is due; negative: there is none. */
double mailed_left(const struct mailed *mailed, double now);
/* Takes one that is due, which counts as mailed.  False: there is none.  The caller frees it by mailed_drop(). */
bool mailed_due(struct mailed *mailed, struct mailed_held *due, double now);
void mailed_drop(struct mailed_held *held);
void mailed_free(struct mailed *mailed);

#endif
