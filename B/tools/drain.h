/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Writing a volume's dirty data back, and waiting for it. */
#ifndef LARDER_DRAIN_H
#define LARDER_DRAIN_H

#include "dm.h"

/* From now on SIGINT, SIGTERM and SIGHUP do not end the process, but a drain().  For who has something to put back. */
void drain_catch_signals(void);

/*
 * Sends `flush` and waits until the kernel is done, with progress on a terminal.  Interrupted: tells the kernel to stop, and
 * returns LARDER_FAILED.  LARDER_DONE: dirty_sectors was 0.  Complains.
 */
int drain(struct mapped *volume);

#endif
