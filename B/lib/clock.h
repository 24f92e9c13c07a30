/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How long something takes. */
#ifndef LARDER_CLOCK_H
#define LARDER_CLOCK_H

#include <time.h>

/* Seconds of CLOCK_MONOTONIC. */
static inline double clock_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#endif
