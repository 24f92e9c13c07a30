/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where the data of a file are on the device of its filesystem: ext2, ext3, ext4, XFS, btrfs on one device. */
#ifndef LARDER_FILE_EXTENTS_H
#define LARDER_FILE_EXTENTS_H

#include <linux/fiemap.h>
#include <sys/types.h>

#include "pins.h"

struct file_extents {
	dev_t device; /* of the filesystem */
	struct ranges all; /* all that the filesystem has given to the file, in sectors of the device, as joined */
	struct ranges written; /* what of it has been written: the rest reads as zeroes without the device */
	size_t shared; /* extents that another file, or a snapshot, has, too */
	size_t unplaced; /* extents that are being written, and left out: they have no place on the disk yet */
};

/* A chunk of btrfs: its addresses in the filesystem, and where they are on the device. */
struct btrfs_place {
	uint64_t logical, length, physical; /* bytes */
	const char *profile; /* NULL: single; else of which kind it is, of which there is not one place */
};

/*
 * Adds one extent, as FS_IOC_FIEMAP gives it, or counts it as unplaced.  places (number of them): of btrfs; NULL: its address is that on the device.  NULL: done; else what is wrong
 * with it.
 */
const char *file_extent_take(struct file_extents *extents, const struct fiemap_extent *extent, const struct btrfs_place *places, size_t number);
/* Opens a file to be asked where it is: by a path, whose last part is no symbolic link; or, root >= 0, by a name that stays below that directory.  -1: errno. */
int file_open(int root, const char *name);
/* The device of its filesystem.  Complains (what: for that; NULL: it does not) where files of that filesystem cannot be followed. */
int file_device(const char *what, int fd, dev_t *device);
/*
 * Writes out what of the file is not on disk, and asks for all, some times if that is being written.  Complains of a file of which it cannot be told, or that
 * has no data.  Free it on success.
 */
int file_extents_read(const char *what, int fd, struct file_extents *extents);
void file_extents_free(struct file_extents *extents);

#endif
