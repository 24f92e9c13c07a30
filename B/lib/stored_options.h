/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Options of a target that each start gives it: of a volume in the description of its stack, of a cache in the list on its SSDs.
 *
 * A text "KEY=VALUE KEY=VALUE", "" for none.  What a key or a value may be knows the kernel alone. */
#ifndef LARDER_STORED_OPTIONS_H
#define LARDER_STORED_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#define STORED_OPTIONS_MAX 256 /* with the final zero */

/* One of them; not terminated, but by what stands behind it. */
struct stored_option {
	const char *key, *value;
	int key_length, value_length;
};

/* The first of what is left of a valid text, which is left behind it.  False: nothing is. */
bool stored_options_next(const char **text, struct stored_option *option);
bool stored_option_is(const struct stored_option *option, const char *key);
/* Keys of a-z 0-9 _, each once; values that are one word of a dm table. */
bool stored_options_valid(const char *text);
/* In the place of the one with that key, which goes, or behind the others; value "": without it.  False: there is no room, and nothing has changed. */
bool stored_options_put(char text[static STORED_OPTIONS_MAX], const char *key, const char *value);
/* Puts " KEY VALUE" of each behind the words of a dm table, which it frees, and counts two for it.  The caller frees what comes back. */
char *stored_options_append(char *words, unsigned int *number, const char *text);
/* As a dm table has them: "4 KEY VALUE KEY VALUE"; class: one more, or NULL.  The caller frees it. */
char *stored_options_words(const char *text, const char *class);
/* A start with them has failed, maybe for them: it is tried without, since a boot is not to end for them.  Says so. */
void stored_options_refused(const char *name, const char *text, bool cache);

#endif
