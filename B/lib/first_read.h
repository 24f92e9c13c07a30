/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The first read of devices that may not answer: by a child, which is given up then. */
#ifndef LARDER_FIRST_READ_H
#define LARDER_FIRST_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Reads LARDER_SB_SIZE bytes at LARDER_SB_OFFSET of each of these block devices, past the page cache, all of them at once; what they are, and errors, are nothing to
 * it.  Returns when each has answered, or hangs() says yes of it: while they do not, look() is called twice a second, and hangs() of each of them behind that.
 * Of one that has done neither for FIRST_READ_SECONDS, as open() waits without a request where the host of a disk is busy with the errors of another one, silent()
 * is told.  Where no child or thread can be had it returns earlier.
 */
#define FIRST_READ_SECONDS 10
void first_read(const dev_t *number, size_t count, void (*look)(void), bool (*hangs)(dev_t number), void (*silent)(dev_t number));

#endif
