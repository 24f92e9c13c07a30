/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Other programs: mdadm, mkfs, mount. */
#ifndef LARDER_PROGRAM_H
#define LARDER_PROGRAM_H

#include <stdbool.h>

/* Is it in PATH, or where the system keeps programs of root? */
bool program_there(const char *name);
/*
 * Runs it, words ending with NULL, without stdin and locale; it dies when we do.  Returns its exit code, or 127.  *said, to be freed by
 * the caller: the last line that it printed, "" if none.
 */
int program_run(const char *const *words, char **said);

#endif
