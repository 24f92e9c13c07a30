/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Methods of org.larder1: may the caller, by polkit; then the command, whose end is the answer. */
#ifndef LARDER_BUS_CALL_H
#define LARDER_BUS_CALL_H

#include <stdbool.h>
#include <systemd/sd-bus.h>

#include "objects.h"

/* Whoever shows the objects is told. */
struct bus_hooks {
	void (*ended)(void *data); /* something was done */
	void (*asked)(void *data, bool by_root); /* for a look */
	void (*jobs_changed)(void *data); /* bus_call_jobs() has others */
	void *data;
};

/* Starts it, and answers later.  object: NULL of the manager.  hooks: to be there for ever.  Returns what a method's handler returns. */
int bus_call(sd_bus_message *call, const struct object *object, const struct bus_hooks *hooks, sd_bus_error *error);
/* Adds the commands that run, and take long, as jobs, with the progress of what the devices do for them. */
void bus_call_jobs(struct objects *objects);

#endif
