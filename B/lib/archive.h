/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Copies of the metadata of all members, kept from change to change: /var/lib/larder/archive/UUID-TIME-CONTENT.backup, readable by root alone,
 * of each member the last ARCHIVE_KEPT.  LARDER_ARCHIVE names another directory; with LARDER_DEVICES and without it nothing is kept.
 */
#ifndef LARDER_ARCHIVE_H
#define LARDER_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#define ARCHIVE_KEPT 16

/*
 * A copy of each cache's and volume's device that is seen, is whole, and of which the newest copy has something else to restore.  The newest is the
 * last by its name, whatever the clock has done.  Never fails a verb: what
 * cannot be written is remarked upon, once.  why: for the file, "before cache create".
 */
void archive_members(const char *why);

/* Path of the newest copy of the member with that UUID, which the caller frees; NULL: there is none. */
char *archive_newest(const uint8_t uuid[16]);

/* Writes a file that is not there yet, for its owner alone, durable when this returns; nothing is left of it after an error.  0 or -errno. */
int archive_write(const char *path, const uint8_t *bytes, size_t number);

#endif
