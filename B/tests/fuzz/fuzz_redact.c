// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for lib/redact.c: lines of `dmsetup table`, and any others, that go into what is handed to others.  Input: a line.  Aborts where a
 * long run of hexadecimal digits, the key of a crypt target, or an argument of a target that is not known comes through.
 */
#include <ctype.h>

#include "input.h"
#include "redact.h"

#define SECRET "zSECRETz" /* is in no input: a line is not tried with it then */

static char *redacted(void (*redact)(const char *line, FILE *to), const char *line)
{
	char *text = NULL;
	size_t size = 0, run = 0;
	FILE *to = open_memstream(&text, &size);

	must(to, "memory");
	redact(line, to);
	must(!fclose(to) && size && strlen(text) == size && text[size - 1] == '\n', "a line");
	for (const char *c = text; *c; c++) {
		run = isxdigit((unsigned char)*c) ? run + 1 : 0;
		must(run < REDACT_DIGITS, "so many digits");
	}
	return text;
}

/* The line, with more words in the middle, of which it may not tell the secret one. */
static void try_secret(const char *target, const char *before, const char *line)
{
	char *longer = NULL, *text;

	must(asprintf(&longer, "name: 0 2048 %s %s" SECRET " %s", target, before, line) > 0, "memory");
	text = redacted(redact_table, longer);
	must(!strstr(text, SECRET), "a secret");
	free(text);
	free(longer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *line = input_text(data, size), *text, *target, *end;

	line[strcspn(line, "\n")] = 0;
	free(redacted(redact_text, line));
	free(redacted(redact_table, line));
	if (strstr(line, SECRET))
		goto out;
	try_secret("crypt", "aes-xts-plain64 ", line);
	try_secret("crypt", "capi:authenc(hmac(sha256),xts(aes))-random :64:logon:", line);
	/* the first word as a target that nobody knows */
	text = strdup(line);
	target = text + strspn(text, " ");
	end = target + strcspn(target, " ");
	*end = 0;
	if (*target && strlen(target) > 16) /* longer than any that is known */
		try_secret(target, "", "");
	free(text);
out:
	free(line);
	return 0;
}
