/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Signals that would end a command which has something to put back, or to take away, first. */
#ifndef LARDER_SIGNALS_H
#define LARDER_SIGNALS_H

#include <signal.h>

#define SIGNALS_MOST 8

struct signals {
	struct sigaction before[SIGNALS_MOST];
	const int *list;
};

/*
 * From now on handler has those of list, which ends with 0 and stays the caller's, but for what is ignored: that stays so (nohup).  flags: of
 * sigaction(); without SA_RESTART a call that waits ends with EINTR.  was: what signals_restore() puts back; NULL: nobody will.
 */
void signals_catch(const int *list, void (*handler)(int), int flags, struct signals *was);
void signals_restore(const struct signals *was);

/* What a terminal, a service manager or a user ends a command by: SIGHUP, SIGINT, SIGTERM. */
extern const int signals_that_end[];

#endif
