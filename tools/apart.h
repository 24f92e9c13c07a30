/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A look at devices that comes to an end also where one of them hangs: by a child. */
#ifndef LARDER_APART_H
#define LARDER_APART_H

/*
 * Runs it in a child, its exit code that of the verb; what it prints, and complains of, is printed when it has ended.  Where a device begins to hang meanwhile
 * it is begun anew, and reads nothing of that.  Complains.
 */
int look_apart(const char *verb, int (*look)(void *data), void *data);

#endif
