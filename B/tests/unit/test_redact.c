// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/redact.c: what of a table, or any line, goes to others.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/redact.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

#define DIGITS "0123456789abcdef0123456789abcdef01234567"

static void lines(void)
{
	static const struct {
		void (*redact)(const char *line, FILE *to);
		const char *line, *wanted;
	} cases[] = {
		{ redact_text, "a " DIGITS "8 b", "a (41 hexadecimal digits left out) b\n" },
		{ redact_text, "a 123e4567-e89b-12d3-a456-426614174000 b", "a 123e4567-e89b-12d3-a456-426614174000 b\n" },
		{ redact_table, "v: 0 8 crypt aes-xts-plain64 :64:logon:x 0 8:16 0", "v: 0 8 crypt aes-xts-plain64 (key left out) 0 8:16 0\n" },
		{ redact_table, "v: 0 8 newer 8:16 secret", "v: 0 8 newer (arguments left out)\n" },
		{ redact_table, "v: 0 8 linear 8:16 " DIGITS, "v: 0 8 linear 8:16 (40 hexadecimal digits left out)\n" },
		/* also in what stands before the arguments */
		{ redact_table, DIGITS ": 0 8 newer 8:16", "(40 hexadecimal digits left out): 0 8 newer (arguments left out)\n" },
		{ redact_table, "v: 0 8 crypt " DIGITS " key 0 8:16 0", "v: 0 8 crypt (40 hexadecimal digits left out) (key left out) 0 8:16 0\n" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = NULL;
		size_t size;
		FILE *to = open_memstream(&text, &size);

		cases[i].redact(cases[i].line, to);
		fclose(to);
		CHECK(!strcmp(text, cases[i].wanted), "%s", text);
		free(text);
	}
}

int main(void)
{
	run_test("lines", lines);
	return 0;
}
