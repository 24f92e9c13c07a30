// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/arguments.c: what is said of options that are none, one verb after the other.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/size.c"
#include "../../tools/arguments.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

#define WORDS 8

/* What is said of these words; "" if they are good. */
static char *said_of(const char *const words[WORDS], int *result)
{
	char *argv[WORDS + 2] = { "verb" }, *text = NULL;
	bool flag = false, quiet = false;
	const char *value = NULL;
	const struct argument arguments[] = { { "flag", 'f', ARGUMENT_FLAG, &flag, NULL, "" },
					      { "quiet", 'q', ARGUMENT_FLAG, &quiet, NULL, "" },
					      { "text", 't', ARGUMENT_TEXT, &value, "TEXT", "" },
					      ARGUMENTS_END };
	FILE *terminal = stderr;
	int argc = 1, first;
	size_t size;

	for (; words[argc - 1]; argc++)
		argv[argc] = (char *)words[argc - 1];
	stderr = open_memstream(&text, &size);
	arguments_words(argc, argv, "usage", arguments, 0, -1, &first, result);
	fclose(stderr);
	stderr = terminal;
	return text;
}

static void refusals(void)
{
	static const struct {
		const char *words[WORDS], *begin;
	} cases[] = {
		{ { "--none" }, "larder: --none: no such option;" },
		{ { "word", "-x" }, "larder: -x: no such option;" },
		{ { "word", "-fxq", "--flag" }, "larder: -fxq: no such option;" }, /* in the middle of it */
		{ { "-\xc3\xa4q" }, "larder: -\xc3\xa4q: no such option;" },
		{ { "-fq", "word" }, "" }, /* nothing is left of the word before */
		{ { "--flag=yes" }, "larder: --flag=yes: takes no value;" },
		{ { "--help=yes" }, "larder: --help=yes: takes no value;" },
		{ { "-f", "--text" }, "larder: --text: its value is missing;" },
		{ { "-f", "-t", "" }, "larder: --text: its value is empty;" },
		{ { "word", "" }, "larder: a word is empty;" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int result;
		char *text = said_of(cases[i].words, &result);

		CHECK(*cases[i].begin ? !strncmp(text, cases[i].begin, strlen(cases[i].begin)) : !*text, "case %zu: %s", i, text);
		CHECK(result == (*cases[i].begin ? LARDER_USAGE : LARDER_DONE), "case %zu: %d", i, result);
		free(text);
	}
}

int main(void)
{
	run_test("refusals", refusals);
	return 0;
}
