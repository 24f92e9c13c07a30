/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where a file is on its volume, and what it is called: what larder pin asks for. */
#ifndef LARDER_PIN_PLACE_H
#define LARDER_PIN_PLACE_H

#include "pinned_names.h"
#include "pins.h"

struct place {
	dev_t volume;
	struct ranges all, written; /* sectors of the volume: all that the file has; what of it has been written */
	size_t shared; /* extents that a snapshot, or another file, has, too */
	size_t unplaced; /* extents that are being written, and are nowhere yet */
};

/* Of an open file; fd < 0: errno says why it is not.  Complains. */
int place_find(const char *what, int fd, struct place *place);
/* Of a pinned file, by its name.  Complains. */
int place_of_name(const struct pin_root *root, const char *name, struct place *place);
void place_free(struct place *place);
/* The volume that a filesystem begins on; 0: none. */
dev_t place_volume(const struct pin_root *root);

/* Where the name is seen; the caller frees it. */
char *place_path(const struct pin_root *root, const char *name);
/* A path as it is looked for: absolute, without symbolic links; of what is not there any more as far as it goes. */
void place_plain_path(const char *word, char path[static PATH_MAX]);
/* Is the open file the one of that name?  Not where something else is mounted in between, or only a part of the filesystem is.  root NULL: no. */
bool place_is_name(const struct pin_root *root, const char *name, int fd);

#endif
