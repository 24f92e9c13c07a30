/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Standard input, output and error are there, whatever we were started with. */
#ifndef LARDER_DESCRIPTORS_H
#define LARDER_DESCRIPTORS_H

/*
 * Before anything is opened: each of the three that is closed is taken, so that no disk gets its number, and a message is not written to that.  To read
 * from it, or to write to it, still is an error.
 */
void descriptors_fill(void);

#endif
