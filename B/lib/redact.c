// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Secrets in tables of device mapper and elsewhere.  What is not known to be harmless is left out: dmsetup blanks keys itself, of the targets that
 * it knows; a newer kernel may have one that it does not.
 */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "redact.h"

static void put(const char *text, size_t length, FILE *to)
{
	while (length) {
		size_t digits = 0, part;

		while (digits < length && isxdigit((unsigned char)text[digits]))
			digits++;
		part = digits ? digits : 1;
		if (digits >= REDACT_DIGITS)
			fprintf(to, "(%zu hexadecimal digits left out)", digits);
		else
			fwrite(text, 1, part, to);
		text += part;
		length -= part;
	}
}

void redact_text(const char *line, FILE *to)
{
	put(line, strlen(line), to);
	putc('\n', to);
}

static bool has_no_key(const char *target, size_t length)
{
	static const char *const targets[] = {
		"larder", "larder-cache", "linear", "striped", "error",	    "zero",	       "raid",		  "mirror", "thin",   "thin-pool", "cache",
		"clone",  "delay",	  "era",    "flakey",  "multipath", "snapshot",	       "snapshot-origin", "vdo",    "verity", "writecache", "dust",
		"log-writes", "switch",	  "unstriped", "zoned", "ebs",	    "snapshot-merge",
	};

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++)
		if (strlen(targets[i]) == length && !memcmp(targets[i], target, length))
			return true;
	return false;
}

/* Behind so many words, and the blanks behind them; NULL: there are not so many. */
static const char *behind(const char *text, int words)
{
	while (words--) {
		text += strcspn(text, " ");
		if (!*text)
			return NULL;
		text += strspn(text, " ");
	}
	return *text ? text : NULL;
}

void redact_table(const char *line, FILE *to)
{
	/* "name: START LENGTH TARGET ARGUMENT..."; or what dmsetup says instead */
	const char *colon = strstr(line, ": "), *target = colon ? behind(colon + 2, 2) : NULL, *rest, *key;
	size_t length = target ? strcspn(target, " ") : 0;

	if (!target || has_no_key(target, length)) {
		redact_text(line, to);
		return;
	}
	put(line, (size_t)(target - line) + length, to);
	rest = behind(target, 1);
	key = length == strlen("crypt") && !memcmp(target, "crypt", length) && rest ? behind(rest, 1) : NULL;
	if (key) {
		putc(' ', to);
		put(rest, (size_t)(key - rest), to);
		fputs("(key left out)", to);
		redact_text(key + strcspn(key, " "), to);
	} else {
		fputs(rest ? " (arguments left out)\n" : "\n", to);
	}
}
