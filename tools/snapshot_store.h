/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The store of a snapshot, a device that keeps what the volume has changed since (lib/cow.h): taken, marked, given up. */
#ifndef LARDER_SNAPSHOT_STORE_H
#define LARDER_SNAPSHOT_STORE_H

#include "claim.h"
#include "dm.h"

/*
 * Opened for us alone, found fit for a snapshot of that volume, which runs, and wiped, as far as the request allows that
 * (claim.h).  It has no mark yet, and the caller closes it.  word: what a complaint calls the stack.  Complains, and has closed it
 * then.
 */
int snapshot_store_claim(struct device *device, const struct claim_request *request, const struct mapped *volume, const char *word);
/* Would that succeed?  Prints what would be wiped, and changes nothing.  Complains. */
int snapshot_store_judge(const struct claim_request *request, const struct mapped *volume, const char *word);
/* It gets zeroes where its contents begin, then its mark, with this UUID, durably.  Complains. */
int snapshot_store_mark(const struct device *device, const uint8_t uuid[16]);
/*
 * What it has kept of the LUKS header of an encrypted stack is overwritten, of which a key of then opens what is in the volume now.  A device that is no store stays
 * as it is.  Says what cannot be.
 */
void snapshot_store_zero_keys(const struct device *device);
/*
 * The one with this UUID, which nobody uses any more, carries nothing of ours then, and goes if it was made for this.  keys: nor what it has kept of the
 * LUKS header at the head of the volume; that it cannot be overwritten is remarked.  None is
 * here: that is remarked, and no error.  snapshot: NAME@SNAPSHOT, for that; NULL: it may never have had a mark, and nothing is
 * remarked.  Complains.
 */
int snapshot_store_give_up(const uint8_t uuid[16], bool keys, const char *snapshot);

#endif
