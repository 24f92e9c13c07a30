/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stores of snapshots from free space that somebody has declared: that of a volume group of LVM, a logical volume each. */
#ifndef LARDER_SNAPSHOT_SPACE_H
#define LARDER_SNAPSHOT_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#define SPACE_OF_STACK 10u /* a store that nobody gives a size has that part of what the stack has, at least SPACE_LEAST, at most what is free */
#define SPACE_LEAST    (64ull << 20) /* bytes */

/* Is there such a volume group?  Complains. */
int space_check(const char *group);
/* How much of the group a store for a stack of so many bytes gets; *bytes: as asked for, 0: that.  Complains. */
int space_size(const char *group, uint64_t stack, uint64_t *bytes);
/*
 * A logical volume for the store with this UUID, so many bytes, with nothing at its head and end; *path, to be freed by the caller.  On an error it may be
 * there, and is to be given back.  Complains.  (dry_run: prints what would be run.)
 */
int space_take(const char *group, const uint8_t uuid[16], uint64_t bytes, bool dry_run, char **path);
/* That with the store of this UUID, of whichever group, is active from then on; false: there is none, or it cannot be: the latter is said. */
bool space_activate(const uint8_t uuid[16]);
/*
 * Of whichever group it is; *was: there was one.  None, or no LVM here: done.  elsewhere: the store is known to be none of LVM's, and an LVM that cannot be
 * asked is no error.  Complains.
 */
int space_give_back(const uint8_t uuid[16], bool elsewhere, bool *was);

#endif
