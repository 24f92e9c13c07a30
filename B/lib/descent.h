/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From sectors of a device down to those of the larder volume that it lies on: what is in between may move them, but not take them apart. */
#ifndef LARDER_DESCENT_H
#define LARDER_DESCENT_H

#include <sys/types.h>

#include "dm.h"
#include "pins.h"

enum level_kind {
	LEVEL_MAPPED, /* by pieces, to other devices */
	LEVEL_VOLUME, /* arrived */
	LEVEL_DISK, /* nothing of ours is below */
};

/* Sectors first to first + sectors - 1 of a device are those from `sector` on of another one, in their order. */
struct piece {
	uint64_t first, sectors;
	dev_t number;
	uint64_t sector;
	char *refused; /* instead: why nobody can tell where they are; or NULL */
};

struct level {
	enum level_kind kind;
	char name[DM_NAME_MAX];
	struct piece *piece;
	size_t pieces;
};

void level_free(struct level *level);
/* One target of a dm table as a piece of the level, or as what the level is. */
void level_take_target(struct level *level, uint64_t first, uint64_t sectors, const char *type, const char *params);

/* Says what a device is, and complains. */
typedef int (*level_look)(dev_t number, struct level *level);
/* The one for this machine: dm tables, sysfs. */
int level_look_here(dev_t number, struct level *level);

/*
 * The ranges of the device `number`, which belong to `what` (for complaints; NULL: none), as those of the volume *volume: added to *found, not joined.  Complains where
 * a layer is none of linear, crypt and larder, and where they are on no volume, or on several.  *volume: 0 before the first call.
 */
int descend(const char *what, dev_t number, const struct ranges *ranges, level_look look, dev_t *volume, struct ranges *found);

#endif
