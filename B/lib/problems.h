/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A list of findings: what is wrong with a superblock, or what was found on a device. */
#ifndef LARDER_PROBLEMS_H
#define LARDER_PROBLEMS_H

#include <stddef.h>

/* Zero to begin with; problems_free() at the end. */
struct problems {
	char **text;
	size_t number;
};

/* "field: text" */
void problem(struct problems *problems, const char *field, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* All of them in one line, "a; b; c"; the caller frees it. */
char *problems_line(const struct problems *problems);
void problems_free(struct problems *problems);

#endif
