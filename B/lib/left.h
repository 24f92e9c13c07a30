/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What larderd has not started, and why: a file in /run/larder, written anew by each of its passes, for `larder events`. */
#ifndef LARDER_LEFT_H
#define LARDER_LEFT_H

#include <stdbool.h>
#include <stdint.h>

#include "superblock.h"

struct left {
	char word[16]; /* "refused", "failed", ... */
	char uuid[UUID_TEXT]; /* of the cache, volume or member; "-": of none of these, but of larder.conf */
	char *text; /* a line, without its end */
};

/* Zero to begin with; left_free() at the end. */
struct left_list {
	struct left *left;
	size_t number;
};

void left_add(struct left_list *list, const char *word, const uint8_t uuid[16], const char *text);
void left_free(struct left_list *list);
bool left_has(const struct left_list *list, const struct left *left); /* with all of its words */

/* As a whole, if it is another one than what is there.  0, or errno. */
int left_write(const struct left_list *list);
/* Without a file, or one that cannot be read: nothing.  Lines that are none are passed over. */
void left_read(struct left_list *list);
/* A descriptor that can be read from when the file may have become another one; -1: there is none.  The caller closes it. */
int left_watch(void);

#endif
