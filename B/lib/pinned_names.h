/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of pinned files: an extended attribute of the root directory of the filesystem that they are in, so that they are where the files are, encrypted as
 * they are, and nowhere else.
 */
#ifndef LARDER_PINNED_NAMES_H
#define LARDER_PINNED_NAMES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PINNED_NAMES_MAX 2048 /* bytes of a list, with its end: what an ext4 with blocks of 4096 bytes takes, and more than is needed */

/* A filesystem that is mounted as a whole: ext4, XFS, a subvolume of btrfs.  Known by where it is mounted first, if it is so several times. */
struct pin_root {
	char point[PATH_MAX];
	dev_t number; /* st_dev of what is in it */
	char names[PINNED_NAMES_MAX]; /* paths below it, each with a newline behind it */
	bool again; /* the same filesystem is in the list before it */
	bool changed; /* names, since they were read */
	bool unreadable; /* there may be a list, and it says nothing: it cannot be read, or is not larder's */
	dev_t volume; /* of larder, that it lies on; 0: none */
};

struct pin_roots {
	struct pin_root *root;
	size_t number;
};

/* All that is mounted. */
void pin_roots_find(struct pin_roots *roots);
void pin_roots_free(struct pin_roots *roots);
/*
 * Whose filesystem is mounted above this absolute path without symbolic links: the deepest one, and (*name) the path in it.  NULL: none that is seen as a
 * whole there.
 */
struct pin_root *pin_root_of(const struct pin_roots *roots, const char *path, char name[static PATH_MAX]);
/* Opens the root directory.  -1: errno. */
int pin_root_open(const struct pin_root *root);
/* Are its names known?  Without them nobody may drop what they pin, nor write others.  Complains. */
int pin_root_check(const struct pin_root *root);
/* Writes its names.  Complains. */
int pin_root_store(const struct pin_root *root);

/* Can it stand in a list: relative, without control characters and ".."? */
bool pinned_name_valid(const char *name);
bool pinned_names_have(const char *names, const char *name);
/* False: there is no room. */
bool pinned_names_add(char names[static PINNED_NAMES_MAX], const char *name);
void pinned_names_drop(char names[static PINNED_NAMES_MAX], const char *name);
/* The next one: *at begins with 0.  False: there is none. */
bool pinned_names_next(const char *names, size_t *at, char name[static PINNED_NAMES_MAX]);

#endif
