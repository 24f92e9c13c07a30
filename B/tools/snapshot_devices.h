/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The devices of one snapshot (lib/cow.h), beside a volume that runs: made, shown, taken away.
 *
 * In all of these cow has that snapshot alone, and cow->name is that of the volume, as it runs, or would.  volume: as it was found
 * when all was looked at last.  Whoever calls them holds the lock (turn.h).
 */
#ifndef LARDER_SNAPSHOT_DEVICES_H
#define LARDER_SNAPSHOT_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "cow.h"
#include "dm.h"

/*
 * Are the names free that its devices get?  LARDER_BUSY: one of them is not.  anew: what a command that was cut short has left of
 * this snapshot goes before, and is passed over.  word: what a complaint calls the stack.  Complains.
 */
int snapshot_devices_check_names(const struct cow *cow, const struct mapped *volume, const char *word, bool anew);
/* LARDER_BUSY: somebody uses it.  One that is not there nobody does.  Complains. */
int snapshot_devices_check_unused(const struct cow *cow);
/* LARDER_BUSY: somebody has suspended the volume, or what is below it; a step that ends in its running on would resume it.  Complains. */
int snapshot_devices_check_running(const struct mapped *volume);

/*
 * All that can be made while the volume runs on: the store, of which path and bytes are known; the snapshot, suspended, with its
 * table, which writes the head of the store; with the first one what the volume's target is to move into.  On an error some of it
 * may be left, for snapshot_devices_stop().  Complains.
 */
int snapshot_devices_make(const struct cow *cow, const struct mapped *volume);
/*
 * The snapshot begins, in one stop of the volume and of what is above it; with the first one the volume's target moves into the
 * device below.  top: name for dm of the LUKS layer that is open; NULL: there is none.  *blocked: microseconds that it took.  On
 * an error the volume is what it was before, as far as mapped_exchange() can go back.  Complains.
 */
int snapshot_devices_show(const struct cow *cow, const struct mapped *volume, const char *top, uint64_t *blocked);
/*
 * The snapshot and its store go, and with the last one the layer that all of them need, in one stop of the volume.  Each may be
 * there or not; volume NULL: it does not run.  What has another UUID for dm is not touched.  On an error the same again goes on.
 * Complains.
 */
int snapshot_devices_stop(const struct cow *cow, const struct mapped *volume);

#endif
