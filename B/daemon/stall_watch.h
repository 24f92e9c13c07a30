/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Devices below caches and volumes that hang (lib/stalls.h): looked at now and then, told of in the journal, kept in a file (lib/stalled.h), and shown on
 * the bus.  By sysfs alone, in the daemon itself: nothing of it waits for a device.
 */
#ifndef LARDER_STALL_WATCH_H
#define LARDER_STALL_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "objects.h"

struct stall_watch;

/*
 * changed: what stall_watch_show() adds is another thing now.  keep: in the file, and what the one before us has left there,
 * until it is judged.  0 or -errno.
 */
int stall_watch_new(struct stall_watch **watch, sd_event *event, bool keep, void (*changed)(void *data), void *data);
/* The file stays as it is: the next one takes over from there. */
void stall_watch_free(struct stall_watch *watch);
/* Told is what has answered nothing for so many seconds; 0: nothing is looked at. */
void stall_watch_set(struct stall_watch *watch, unsigned seconds);
/* As problems of the cache or volume, and its stacks; those that were added before go. */
void stall_watch_show(const struct stall_watch *watch, struct objects *objects);

#endif
