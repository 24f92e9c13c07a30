/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is mounted, as /proc/self/mountinfo has it. */
#ifndef LARDER_MOUNTS_H
#define LARDER_MOUNTS_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

struct mount {
	unsigned id, parent, high, low; /* high, low: of the filesystem; a btrfs has a number of its own there */
	char root[PATH_MAX], point[PATH_MAX]; /* what of the filesystem is seen, and where */
	char type[32], source[PATH_MAX];
};

/* NULL: it cannot be read. */
FILE *mounts_open(void);
/* The next one, if there is one. */
bool mounts_next(FILE *file, struct mount *mount);
/*
 * Is something mounted on that very directory, whatever else shows the same filesystem?  A path without links.  1: yes; 0: no;
 * -errno: it is not known.
 */
int mounts_has(const char *directory);
/* A field of mountinfo, or of fstab: blanks and the like are octal there.  In place. */
void mounts_decode(char *text);

#endif
