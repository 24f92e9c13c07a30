// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Options and words of a verb.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"

#define OPTIONS_MAX 32
#define FIRST_CODE  256 /* getopt's code of arguments[i] is FIRST_CODE + i */

static void print_help(const char *usage, const struct argument *arguments)
{
	printf("usage: %s\n", usage);
	for (const struct argument *a = arguments; a->name; a++) {
		char *left = must_print("--%s%s%s", a->name, a->value ? " " : "", a->value ? a->value : "");

		if (a->letter)
			printf("  -%c, %-26s %s\n", a->letter, left, a->help);
		else
			printf("      %-26s %s\n", left, a->help);
		free(left);
	}
}

/* Takes the value of one option.  False: it has complained. */
static bool take(const struct argument *a, const char *value)
{
	struct argument_list *list;

	if (a->value && !*value) {
		complain(LARDER_USAGE, "--%s: its value is empty; it is %s", a->name, a->value);
		return false;
	}
	switch (a->kind) {
	case ARGUMENT_FLAG:
		*(bool *)a->place = true;
		return true;
	case ARGUMENT_TEXT:
		*(const char **)a->place = value;
		return true;
	case ARGUMENT_SIZE:
		if (size_parse(value, a->place))
			return true;
		complain(LARDER_USAGE, "--%s: '%s' is not a size; write it as 4096, 128K, 10G", a->name, value);
		return false;
	case ARGUMENT_UNITS:
		if (size_format_parse(value, a->place))
			return true;
		complain(LARDER_USAGE, "--%s: '%s' is not one of h, b, s, k, m, g, t, p, e or their capitals", a->name, value);
		return false;
	case ARGUMENT_LIST:
		list = a->place;
		if (list->number < ARGUMENT_LIST_MAX) {
			list->value[list->number++] = value;
			return true;
		}
		complain(LARDER_USAGE, "--%s: given more than %d times", a->name, ARGUMENT_LIST_MAX);
		return false;
	}
	return false;
}

static void make_options(const struct argument *arguments, struct option *options, char *letters)
{
	int n = 0;

	*letters++ = ':';
	for (; arguments[n].name && n < OPTIONS_MAX - 2; n++) {
		options[n] = (struct option){ arguments[n].name, arguments[n].value ? required_argument : no_argument, NULL,
					      FIRST_CODE + n };
		if (arguments[n].letter) {
			*letters++ = arguments[n].letter;
			if (arguments[n].value)
				*letters++ = ':';
		}
	}
	options[n] = (struct option){ "help", no_argument, NULL, 'h' };
	options[n + 1] = (struct option){ NULL, 0, NULL, 0 };
	*letters++ = 'h';
	*letters = 0;
}

static const struct argument *find(const struct argument *arguments, int code)
{
	if (code >= FIRST_CODE)
		return &arguments[code - FIRST_CODE];
	while (arguments->letter != code)
		arguments++;
	return arguments;
}

/* Of letters the word is not behind getopt before the last one is. */
static const char *refused_word(int argc, char **argv)
{
	const char *next = optind < argc ? argv[optind] : "";
	bool letter = optopt && optopt < FIRST_CODE;

	return letter && next[0] == '-' && next[1] != '-' && strchr(next, optopt) ? next : argv[optind - 1];
}

static void complain_of_option(int argc, char **argv, const char *usage)
{
	const char *word = refused_word(argc, argv);
	/* --help has a letter's code */
	bool known = optopt >= FIRST_CODE || (optopt == 'h' && !strncmp(word, "--", 2));

	complain(LARDER_USAGE, "%s: %s; usage: %s", word, known ? "takes no value" : "no such option", usage);
}

/* Set by arguments_complete(). */
static struct {
	const char *before, *current;
	bool *taken; /* NULL: nothing is to be completed */
} completion;

void arguments_complete(const char *before, const char *current, bool *taken)
{
	completion.before = before ? before : "";
	completion.current = current;
	completion.taken = taken;
	*taken = false;
}

static bool names(const struct argument *a, const char *word)
{
	if (word[0] == '-' && word[1] && word[1] == a->letter && !word[2])
		return true;
	return !strncmp(word, "--", 2) && !strcmp(word + 2, a->name);
}

static void print_options(const struct argument *arguments)
{
	size_t length = strlen(completion.current);

	for (const struct argument *a = arguments; a->name; a++)
		if (a->value && names(a, completion.before)) {
			*completion.taken = true;
			puts(":files");
			return;
		}
	if (*completion.current != '-')
		return;
	*completion.taken = true;
	for (const struct argument *a = arguments; a->name; a++)
		if (length < 3 || !strncmp(completion.current + 2, a->name, length - 2))
			printf("--%s\t%s\n", a->name, a->help);
	if (!strncmp(completion.current, "--help", length))
		puts("--help\tsay what the options are");
}

bool arguments_parse(int argc, char **argv, const char *usage, const struct argument *arguments, int *first, int *result)
{
	struct option options[OPTIONS_MAX];
	char letters[2 * OPTIONS_MAX + 2];
	int code;

	*result = LARDER_DONE;
	if (completion.taken) {
		print_options(arguments);
		return false;
	}
	make_options(arguments, options, letters);
	opterr = 0;
	optind = 0; /* for glibc: it forgets where it was in the middle of a word */
	*result = LARDER_USAGE;
	while ((code = getopt_long(argc, argv, letters, options, NULL)) != -1) {
		switch (code) {
		case 'h':
			print_help(usage, arguments);
			*result = LARDER_DONE;
			return false;
		case '?':
			complain_of_option(argc, argv, usage);
			return false;
		case ':':
			complain(LARDER_USAGE, "%s: its value is missing; usage: %s", argv[optind - 1], usage);
			return false;
		default:
			if (!take(find(arguments, code), optarg))
				return false;
		}
	}
	*result = LARDER_DONE;
	*first = optind;
	return true;
}

bool arguments_words(int argc, char **argv, const char *usage, const struct argument *arguments, int min, int max, int *first,
		     int *result)
{
	if (!arguments_parse(argc, argv, usage, arguments, first, result))
		return false;
	for (int i = *first; i < argc; i++)
		if (!*argv[i]) {
			*result = complain(LARDER_USAGE, "a word is empty; usage: %s", usage);
			return false;
		}
	if (argc - *first >= min && (max < 0 || argc - *first <= max))
		return true;
	*result = complain(LARDER_USAGE, "%s; usage: %s", argc - *first < min ? "a word is missing" : "too many words", usage);
	return false;
}
