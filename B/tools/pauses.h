/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between two looks for what is missing: longer and longer, so that disks go to sleep meanwhile; and short behind an event, by which something may have come.
 * Where events do not cease they count no more than the pauses.
 */
#ifndef LARDER_PAUSES_H
#define LARDER_PAUSES_H

#include <stdbool.h>

/* All of it is zero to begin with. */
struct pauses {
	unsigned pause; /* seconds until the next look */
	unsigned woken; /* looks that an event has brought, since the last long pause */
};

/* Behind a look, which an event has brought (by_event): the next pause, up to `most` seconds. */
void pauses_next(struct pauses *pauses, bool by_event, unsigned most);
/* Seconds from the last look on before which no event brings another one. */
unsigned pauses_gap(const struct pauses *pauses);

#endif
