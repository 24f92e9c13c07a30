/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What must come to its end once it has begun, though the command be killed: a device would stay suspended. */
#ifndef LARDER_GUARD_H
#define LARDER_GUARD_H

/*
 * Runs work(argument) in a process of its own, which whoever kills this one does not reach: another session, no signal but SIGKILL, memory
 * locked as far as we may.  work() neither reads nor writes files: they may lie on what is suspended.
 *
 * Returns what work() does, which is 0 to 254; 255: it could not be begun, or was killed itself.  What it changes in memory is lost.
 */
#define GUARD_BROKEN 255
int guard_run(int (*work)(void *argument), void *argument);

#endif
