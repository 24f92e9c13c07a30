/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * org.larder1 on the system bus (docs/dbus.md).  Without a bus nothing is lost: it is waited for, and joined when it comes, or comes back.
 *
 * Methods are verbs: each runs the command larder, and answers when that has ended.  Nobody waits for them here.
 */
#ifndef LARDER_BUS_H
#define LARDER_BUS_H

#include <stdbool.h>
#include <systemd/sd-event.h>

#include "objects.h"

struct bus;

/*
 * refresh: a look at the devices is due; at_once: as something was done, or root asks, else as somebody asks who may do so as often as
 * he likes.
 */
int bus_new(struct bus **bus, sd_event *event, void (*refresh)(void *data, bool at_once), void *data);
/* Shows these from now on, and tells what has come, changed and gone.  Takes the objects. */
void bus_show(struct bus *bus, struct objects *objects);
/* Those that were shown last, without the commands that methods run. */
const struct objects *bus_seen(const struct bus *bus);
/* That of the connection, for a child to close, which is to be asked for in front of the fork; negative: there is none. */
int bus_descriptor(const struct bus *bus);

#endif
