/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Options and words of a verb, described by a table; --help is made of the same table. */
#ifndef LARDER_ARGUMENTS_H
#define LARDER_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "message.h"
#include "report.h"

enum argument_kind {
	ARGUMENT_FLAG,		/* bool */
	ARGUMENT_TEXT,		/* const char * */
	ARGUMENT_SIZE,		/* uint64_t, bytes */
	ARGUMENT_LIST,		/* struct argument_list: may be repeated */
	ARGUMENT_UNITS,		/* struct size_format */
};

#define ARGUMENT_LIST_MAX 64

struct argument_list {
	const char *value[ARGUMENT_LIST_MAX];
	int number;
};

struct argument {
	const char *name;	/* without "--"; NULL ends the table */
	char letter;		/* 0: none */
	enum argument_kind kind;
	void *place;
	const char *value;	/* what --help calls the value; NULL for a flag */
	const char *help;
};

#define ARGUMENTS_END { NULL, 0, ARGUMENT_FLAG, NULL, NULL, NULL }

/* The options of all reports. */
#define REPORT_ARGUMENTS(options) \
	{ "options", 'o', ARGUMENT_TEXT, &(options).fields, "FIELD,...", "show these fields; +FIELD adds; all; help lists them" }, \
	{ "sort", 'O', ARGUMENT_TEXT, &(options).sort, "FIELD,...", "sort by these fields; -FIELD: downwards" }, \
	{ "units", 0, ARGUMENT_UNITS, &(options).units, "UNIT", "h (fitting), b, s, k, m, g, t; capital: powers of 1000" }, \
	{ "nosuffix", 0, ARGUMENT_FLAG, &(options).nosuffix, NULL, "sizes without their unit" }, \
	{ "noheadings", 0, ARGUMENT_FLAG, &(options).noheadings, NULL, "no headings" }, \
	{ "reportformat", 0, ARGUMENT_TEXT, &(options).format, "FORMAT", "basic or json" }

/*
 * Parses the options of argv; the words that are none are in argv[*first] to argv[argc - 1] then.  usage: "larder cache create
 * NAME ...". Returns true when the verb may go on; else *result is what it returns (--help was asked for, or a complaint was
 * made).
 */
bool arguments_parse(int argc, char **argv, const char *usage, const struct argument *arguments, int *first, int *result);
/* The same, and there must be between min and max words (max < 0: any number). */
bool arguments_words(int argc, char **argv, const char *usage, const struct argument *arguments, int min, int max,
		     int *first, int *result);

/*
 * For completion: the next arguments_parse() parses nothing, and prints what may stand for the last word of a command line, "word<TAB>help",
 * as far as options tell.  Before it are `before` (NULL: none) and others.  Returns through *taken: the word is an option, or the value of one.
 */
void arguments_complete(const char *before, const char *current, bool *taken);

#endif
