/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef LARDER_DIRECTORY_H
#define LARDER_DIRECTORY_H

/* What was made or renamed in the directory of this file is durable then.  Returns 0 or -errno. */
int sync_directory_of(const char *path);

#endif
