/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Files of lines in /run/larder, replaced as a whole; the environment variable LARDER_RUN names another directory, for these (turn.h has others). */
#ifndef LARDER_RUN_FILE_H
#define LARDER_RUN_FILE_H

#include <stdio.h>

/* The path of one, "": of the directory; the caller frees it. */
char *run_path(const char *name);
/* What print() writes takes the place of what is there.  0, or errno. */
int run_file_replace(const char *name, void (*print)(FILE *file, const void *data), const void *data);
/* Each line, without its end; one that has none was cut off, and is left out.  Without a file, or one that cannot be read: none. */
void run_file_lines(const char *name, void (*take)(char *line, void *data), void *data);

#endif
