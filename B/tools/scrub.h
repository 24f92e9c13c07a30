/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The scrub of a cache, for whoever began it. */
#ifndef LARDER_SCRUB_H
#define LARDER_SCRUB_H

#include "dm.h"

/* How far it is. */
double scrub_percent(const struct mapped *cache);
/* What it found, when it has ended: prints that; complains of what could not be repaired, or that it did not come to its end. */
int scrub_judge_cache(const struct mapped *cache);

#endif
