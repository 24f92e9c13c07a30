/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sizes in and out: "10G", "1.5 MiB". */
#ifndef LARDER_SIZE_H
#define LARDER_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIZE_TEXT 32 /* room for any size_print() */

/* How sizes are shown.  unit: h (the best fit), b, s (512-byte sectors), k, m, g, t, p, e; capital: powers of 1000. */
struct size_format {
	char unit;
	bool suffix;
};

/*
 * A number, with a fraction if it has a unit, and an optional unit b, s, k, m, g, t, p, e (either case; "KiB" and "K" are the
 * same, "kB" is 1000).  False when the text is not such a size or exceeds 64 bits.
 */
bool size_parse(const char *text, uint64_t *bytes);

bool size_format_parse(const char *text, struct size_format *format);
const char *size_print(char text[static SIZE_TEXT], uint64_t bytes, const struct size_format *format);

#endif
