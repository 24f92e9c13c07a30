/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is wrong with a cache or volume that runs, and the command that mends it, by what its status says: a function of that line alone. */
#ifndef LARDER_ADVICE_H
#define LARDER_ADVICE_H

#include "problems.h"

/* One finding for each row of docs/testing.md (Failures) that the status shows.  name: of the dm device, for the commands. */
void advise_cache(const char *name, const char *status, struct problems *found);
void advise_volume(const char *name, const char *status, struct problems *found);

#endif
