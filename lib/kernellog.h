/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The kernel's reason for an error: device-mapper tells it to the kernel's log only. */
#ifndef LARDER_KERNELLOG_H
#define LARDER_KERNELLOG_H

/* Remembers where the log ends.  Returns a descriptor, or -1 where the log can't be read. */
int kernellog_mark(void);
/* Moves a mark, or -1, to where the log ends now, for all processes that share it.  Opens and reads nothing. */
void kernellog_move(int mark);
/* Of a mark, or -1: nothing is to be explained. */
void kernellog_close(int mark);
/*
 * The most telling, then latest, line about device-mapper or larder from the mark to the end, which is another mark or -1: none.  NULL if there
 * is none; the caller frees it.  Closes both.  Lines are of anybody's doing: good enough to explain an error, not to decide by.
 */
char *kernellog_reason(int mark, int end);

#endif
