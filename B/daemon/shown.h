/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The facts and the plan of a pass as objects of the bus. */
#ifndef LARDER_SHOWN_H
#define LARDER_SHOWN_H

#include "facts.h"
#include "objects.h"

/* last: those of the look before: of a stack whose disks are away they have what nothing else tells. */
void objects_make(struct objects *objects, const struct look *look, const struct plan *plan, const struct objects *last);

#endif
