/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Taking a device over, to format it, or to change what is ours on it. */
#ifndef LARDER_CLAIM_H
#define LARDER_CLAIM_H

#include "device.h"
#include "superblock.h"

struct claim_request {
	const char *path;
	bool wipe; /* what is on it may go */
	const char *discard_dirty; /* UUID of a cache or volume of which dirty data may go with it, or NULL */
	bool stale; /* its superblock has been judged: it says nothing that counts, and needs no --wipe; what else is there does */
	bool judged; /* by claim_judge(), since claim_open(): only wipe it */
	bool yes; /* ask nothing */
	bool dry_run; /* check all, change nothing, print what would be done */
};

/*
 * Notes which device has this path now, for a question that comes before the first claim_open().  Says nothing.
 */
void claim_note(const char *path);

/*
 * Two steps, so that the caller can refuse for reasons of its own in between, before anything is changed.  claim_open: opens the
 * device for us alone, and checks that it is fit (not read-only, not zoned) and the one that had this path when this process first saw it.  claim_clear: checks that it carries nothing, or
 * that what it carries may go, and wipes that.  Both complain; the caller closes the device after a successful claim_open.
 */
int claim_open(struct device *device, const struct claim_request *request);
int claim_clear(const struct device *device, const struct claim_request *request);
/*
 * The part of claim_clear() that checks, and asks.  Whoever may yet refuse, for another device or for a reason of its own, calls it for all of them first,
 * and then claim_clear() with `judged`.
 */
int claim_judge(const struct device *device, const struct claim_request *request);
/* The part of it that judges larder superblocks found on the device: LARDER_DONE if they may be overwritten. */
int claim_superblock(const struct device *device, const struct superblocks *found, const char *discard_dirty);

/*
 * Whoever finds a device by its superblock and writes to it asks this first: is it still larder's?  A signature of others says no, and so does
 * something else where the main superblock was, with the copy alone left.  (Zeroes there are what a power cut leaves of an erase, or of a
 * format, of larder.)  False: one line says whose it is, and the remedy.
 */
bool claim_is_ours(const struct device *device, const struct superblocks *found);
/*
 * The same of a disk of an md array, before its superblock is erased; one line if not.  What cannot be read mdadm will complain of.  written: the
 * array may have data.
 */
bool claim_leg_is_ours(const char *path, bool written);
/* The same question, for who only reads what larder wrote there.  Says nothing; what cannot be read is nobody's. */
bool claim_is_others(const char *path);
/*
 * The leg of a mirror, or the disk below DRBD: what looks like its superblock is that of the device above, and what is written to it only one replica has,
 * which nobody notices.  LARDER_UNSAFE: it is one, and a line says so; no path that was given is a word that goes over it.
 */
int claim_check_replica(const struct device *device, const struct superblocks *found);
/*
 * The same question as claim_is_ours(), before a verb makes it a part of something that writes to it.  by_path: the name that was given is its path, which is
 * somebody's word that it is larder's, and not that it is no replica.  verb: with that path it takes the device all the same ("volume start"); one line says
 * so if not.
 */
bool claim_may_start(const char *path, bool by_path, const char *verb);
/*
 * Opens it for us alone, if it is ours and still the member of that kind with this UUID (its own, or that of its cache).  LARDER_DONE and not *ours:
 * left alone, by the line of claim_is_ours(), whoever uses it.  Else it complains.  With *ours the caller frees found, and closes the device.
 */
int claim_member(struct device *device, struct superblocks *found, const char *path, uint32_t kind, const uint8_t uuid[16], bool *ours);
/* superblock_change() of such a member, which is closed then. */
int claim_change(const char *path, uint32_t kind, const uint8_t uuid[16], int (*change)(union superblock *sb, bool *write, void *data), void *data, bool *ours);
/* The same as claim_member() of the store of a snapshot, which has data behind a mark like that of a disk which has none yet. */
int claim_store(struct device *device, struct superblocks *found, const char *path, const uint8_t uuid[16], bool *ours);

/* Would claim_member(), or claim_store(), take it?  LARDER_UNSAFE: no, as it is somebody else's.  Whoever uses it is not asked. */
int claim_check(const char *path, uint32_t kind, const uint8_t uuid[16]);
int claim_check_store(const char *path, const uint8_t uuid[16]);

/* Asks, if there is a terminal to ask at and the request does not say yes already.  Complains when the answer is no. */
int claim_confirm(const struct device *device, const char *what, const struct claim_request *request);

#endif
