/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Finding members: every block device with a larder superblock. */
#ifndef LARDER_SCAN_H
#define LARDER_SCAN_H

#include "superblock.h"

struct member {
	char *path; /* /dev/sdb */
	dev_t number;
	bool block;
	bool copy_only; /* what lies at LARDER_SB_OFFSET can be read, and is no superblock of larder */
	uint64_t bytes;
	union superblock sb; /* valid */
};

/* What is larder's, but has no superblock that is valid, or that can be read. */
struct damaged {
	char *path;
	dev_t number; /* 0: no block device */
	int error; /* -errno: the superblock cannot be read; 0: it can */
	uint8_t uuid[16]; /* as far as what is left of it, or udev, tells; known: it does */
	bool known;
	char *why; /* in words */
};

struct members {
	struct member **member;
	size_t number;
};

/*
 * Reads every block device that can be read without waiting (no suspended dm devices, no floppies, no empty drives; none that
 * hangs, nor what lies on it: hanging.h), or, where the environment variable LARDER_DEVICES is set, the paths in it, separated by
 * colons.  Of several devices with one superblock the uppermost counts (a disk, and a multipath or linear device over it).  Says
 * nothing of devices that cannot be read.
 */
void members_scan(struct members *members);
/* The same, of those devices that wanted() says yes to.  LARDER_DEVICES is not asked about. */
struct udev_device;
void members_scan_where(struct members *members, bool (*wanted)(struct udev_device *device));
void members_free(struct members *members);
/*
 * Of what was looked for, and not found by the last scan: what may be why, to be put behind that: "; ...", or "".  The caller frees it.  *code,
 * LARDER_NOT_FOUND, becomes LARDER_FAILED where it cannot be known.
 */
char *members_unseen(int *code);
/* Those of the last scan, until the next; NULL, too, if there are none. */
const struct damaged *members_damaged(size_t *number);
/* Names them: they are in no list. */
void members_remark_damaged(void);
/* Complains if the last scan may not read some devices: what is listed may not be all. */
int members_check_seen(void);

/*
 * The one member of that kind with this name: a path, a UUID (of the member; of a cache: of the set too) or a label.  members: of
 * a scan. Complains when there is none, or more than one.  For a path the device is read alone, and added to members.
 */
int member_find(struct members *members, const char *name, uint32_t kind, const struct member **found);
/* Is this member called so: a label or a UUID, as in member_find()? */
bool member_is(const struct member *member, const char *name, uint32_t kind);
/* SSD number of the set with this UUID; NULL: not found.  Says nothing. */
const struct member *member_of_set(const struct members *members, const uint8_t uuid[16], uint32_t number);
/* An SSD of the cache with this UUID, the volume with this UUID; NULL: not found.  Says nothing. */
const struct member *member_cache(const struct members *members, const uint8_t uuid[16]);
const struct member *member_volume(const struct members *members, const uint8_t uuid[16]);

#endif
