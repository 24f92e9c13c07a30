/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Methods of org.larder1: may the caller, by polkit; then the command, whose end is the answer. */
#ifndef LARDER_BUS_CALL_H
#define LARDER_BUS_CALL_H

#include <systemd/sd-bus.h>

#include "objects.h"

/*
 * Starts it, and answers later.  ended: called behind each command that was run.  Returns what a method's handler returns.
 */
int bus_call(sd_bus_message *call, const struct object *object, void (*ended)(void *data), void *data, sd_bus_error *error);
/* A method without a command: then() is called if the caller may. */
int bus_call_refresh(sd_bus_message *call, void (*then)(void *data), void *data, sd_bus_error *error);

#endif
