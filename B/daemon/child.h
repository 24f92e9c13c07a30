/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The daemon's children: what may hang, one of them does. */
#ifndef LARDER_CHILD_H
#define LARDER_CHILD_H

#include <sys/types.h>
#include <systemd/sd-event.h>

/* What others wait at the other end of: it would be open for as long as a child that hangs, also when we have ended. */
struct connections {
	int (*bus)(const void *data); /* the descriptor, asked for in front of a fork; negative: there is none */
	void (*leave)(const void *data); /* in a child: the others */
	const void *data;
};

/* Of each child from now on. */
void child_leaves(const struct connections *left);
/* fork(), without those in the child. */
pid_t child_fork(void);
/*
 * ended: its end, at which it leaves the source (sd_event_source_unref()).  One whose end would not be seen is not left to run.  0, or
 * -errno.
 */
int child_watch(sd_event *event, pid_t child, sd_event_child_handler_t ended, void *data);

#endif
