/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Devices that hang (stalls.h), for commands that look: these are found before anything is read, and are not read. */
#ifndef LARDER_HANGING_H
#define LARDER_HANGING_H

#include "dm.h"
#include "problems.h"
#include "stalls.h"

/*
 * Looks for them, once in a process: at all block devices, and at what is in the list (NULL: nothing).  It takes STALL_SECONDS where one has requests and
 * answers none, and else no time.  From then on device_worth_reading() says no of those that hang, and of what lies on them.
 */
void hanging_look(const struct mapped_list *list);
/* Has one begun to hang since then, or since the last call?  hanging_look() then has it, and does not look again. */
bool hanging_more(void);
/* In words, as problems of the field "stall": those at it and below it, which are not among them yet. */
void hanging_below(const struct mapped *mapped, struct problems *problems);
void hanging_below_device(dev_t number, struct problems *problems);
/* Those that were left out by device_worth_reading(), each once, on stderr. */
void hanging_remark(void);

#endif
