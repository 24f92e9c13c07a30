/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Devices that hang (stalls.h): these are found before anything is read that may wait for them, and are not read. */
#ifndef LARDER_HANGING_H
#define LARDER_HANGING_H

#include "dm.h"
#include "problems.h"
#include "stalls.h"

/*
 * Looks for them, once in a process: at all block devices, and at what is in the list (NULL: nothing).  It takes STALL_SECONDS where one has requests and
 * answers none, and else no time.  From then on device_worth_reading() says no of those that hang, and of what lies on them, and asks each device first.
 */
void hanging_look(const struct mapped_list *list);
/*
 * Asks devices, all at once and each once in a process, for a read: what hangs may have had no requests yet.  Returns when each has answered, or has been seen to hang.
 * What is not asked before device_worth_reading() is asked there.  Looks, where that was not done.  With LARDER_DEVICES set none is asked.
 */
void hanging_ask(const dev_t *number, size_t count);
/*
 * Looks anew at what was left out, without waiting, before all is read anew: what answers again is asked anew, and read.  What did not even let itself be opened
 * stays left out for half a minute.
 */
void hanging_again(void);
/*
 * What did not even let itself be opened, and is not asked: so many, up to room of them in number.  hanging_keep_silent(): those were so
 * in another process, and are not asked for so many seconds, as each time leaves a child behind that does not end before they answer.
 */
size_t hanging_silent(dev_t *number, size_t room);
void hanging_keep_silent(const dev_t *number, size_t count, double seconds);
/* Of those left out: are there some, and none of them hangs? */
bool hanging_only_silent(void);
/* Waits for so many seconds at most until none hangs that is known to. */
void hanging_wait(double seconds);
/* In words, as problems of the field "stall": those at it and below it, which are not among them yet. */
void hanging_below(const struct mapped *mapped, struct problems *problems);
void hanging_below_device(dev_t number, struct problems *problems);
/* Those that were left out by device_worth_reading(), each once, on stderr. */
void hanging_remark(void);
/* Was any left out since hanging_again()? */
bool hanging_any(void);
/* The node of each of those.  False: there is none. */
bool hanging_each(void (*visit)(const char *node, void *data), void *data);

#endif
