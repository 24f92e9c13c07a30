// SPDX-License-Identifier: GPL-2.0-or-later
#include "pauses.h"

#define SOON_S	   5
#define OFTEN_S	   60 /* for events, once there have been many */
#define LONG_S	   300
#define WOKEN_MAX  30 /* as at a boot, or behind a shelf that is switched on */

void pauses_next(struct pauses *pauses, bool by_event, unsigned most)
{
	unsigned longer = pauses->pause ? 2 * pauses->pause : SOON_S;

	if (by_event && pauses->woken < WOKEN_MAX) {
		pauses->woken++;
		longer = SOON_S;
	} else if (!by_event && pauses->pause >= LONG_S) {
		pauses->woken = 0;
	}
	pauses->pause = longer < most ? longer : most;
}

unsigned pauses_gap(const struct pauses *pauses)
{
	if (pauses->woken < WOKEN_MAX)
		return SOON_S;
	return pauses->pause < OFTEN_S ? pauses->pause : OFTEN_S;
}
