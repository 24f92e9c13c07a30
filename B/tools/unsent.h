/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Mails that could not be sent: there is no network yet, say, and a sendmail without a queue.  They are tried again, less and less often, until they are. */
#ifndef LARDER_UNSENT_H
#define LARDER_UNSENT_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "changes.h"

#define UNSENT_MAX 64 /* the oldest goes, and is said to, where there are more */

struct unsent {
	struct {
		struct change change; /* a copy of its words */
		time_t at; /* when it happened */
	} mail[UNSENT_MAX];
	size_t number;
	double due, pause; /* seconds: on the clock of the caller; between two tries */
};

/* All of it is zero to begin with.  now: seconds, on a clock that is not set. */
void unsent_add(struct unsent *unsent, const struct change *change, time_t at, double now);
/* Seconds until they are to be tried; negative: there are none. */
double unsent_left(const struct unsent *unsent, double now);
/* If it is time: the oldest first, to this address (NULL: they are given up), until one fails again. */
void unsent_try(struct unsent *unsent, const char *address, bool unit, double now);
void unsent_free(struct unsent *unsent);

#endif
