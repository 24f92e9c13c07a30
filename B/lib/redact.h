/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Taking secrets out of what is handed to others. */
#ifndef LARDER_REDACT_H
#define LARDER_REDACT_H

#include <stdio.h>

/* A line of any text, without its newline: runs of REDACT_DIGITS hexadecimal digits and more, which no UUID, address or name here has, are left out. */
#define REDACT_DIGITS 40
void redact_text(const char *line, FILE *to);
/*
 * A line of `dmsetup table` or `dmsetup status`.  Arguments are printed of targets that are known to have no key among them; of crypt all but the
 * key; of any other one none.
 */
void redact_table(const char *line, FILE *to);

#endif
