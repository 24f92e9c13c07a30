// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Options of a target that each start gives it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "stored_options.h"

static const char KEY[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

bool stored_options_next(const char **text, struct stored_option *option)
{
	const char *at = *text;

	if (!*at)
		return false;
	option->key = at;
	option->key_length = (int)strcspn(at, "=");
	option->value = at + option->key_length + 1;
	option->value_length = (int)strcspn(option->value, " ");
	at = option->value + option->value_length;
	*text = *at ? at + 1 : at;
	return true;
}

bool stored_option_is(const struct stored_option *option, const char *key)
{
	return !strncmp(option->key, key, (size_t)option->key_length) && !key[option->key_length];
}

/* A word of a dm table, in which a backslash takes what follows. */
static bool value_valid(const char *value, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (value[i] <= ' ' || value[i] > '~' || strchr("\\\"'", value[i]))
			return false;
	return length;
}

static bool is_there(const char *text, const char *end, const struct stored_option *option)
{
	struct stored_option other;

	while (text < end && stored_options_next(&text, &other))
		if (other.key_length == option->key_length && !strncmp(other.key, option->key, (size_t)option->key_length))
			return true;
	return false;
}

bool stored_options_valid(const char *text)
{
	const char *at = text, *begin;
	struct stored_option option;

	if (strlen(text) >= STORED_OPTIONS_MAX)
		return false;
	while (*at) {
		size_t length = strspn(at, KEY);

		if (!length || at[length] != '=')
			return false;
		begin = at;
		stored_options_next(&at, &option);
		if (!value_valid(option.value, (size_t)option.value_length) || is_there(text, begin, &option) || (!*at && at[-1] == ' '))
			return false;
	}
	return true;
}

bool stored_options_put(char text[static STORED_OPTIONS_MAX], const char *key, const char *value)
{
	char *made = must_print("%s", ""), *longer;
	struct stored_option option;
	const char *at = text;
	bool fits;

	while (stored_options_next(&at, &option)) {
		if (stored_option_is(&option, key))
			continue;
		longer = must_print("%s%s%.*s=%.*s", made, *made ? " " : "", option.key_length, option.key, option.value_length, option.value);
		free(made);
		made = longer;
	}
	if (*value) {
		longer = must_print("%s%s%s=%s", made, *made ? " " : "", key, value);
		free(made);
		made = longer;
	}
	fits = strlen(made) < STORED_OPTIONS_MAX;
	if (fits)
		strcpy(text, made);
	free(made);
	return fits;
}

char *stored_options_append(char *words, unsigned int *number, const char *text)
{
	struct stored_option option;
	char *longer;

	while (stored_options_next(&text, &option)) {
		longer = must_print("%s %.*s %.*s", words, option.key_length, option.key, option.value_length, option.value);
		free(words);
		words = longer;
		*number += 2;
	}
	return words;
}

char *stored_options_words(const char *text, const char *class)
{
	unsigned int number = class ? 2 : 0;
	char *words = stored_options_append(must_print("%s%s", class ? " class " : "", class ? class : ""), &number, text),
	     *all = must_print("%u%s", number, words);

	free(words);
	return all;
}

void stored_options_refused(const char *name, const char *text, bool cache)
{
	remark("%s: does not start with its stored options (%s): it is tried without them; larder %s set %s KEY= --persist takes one away", name, text,
	       cache ? "cache" : "volume", name);
}
