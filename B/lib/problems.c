// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A list of findings.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "message.h"
#include "problems.h"

void problem(struct problems *problems, const char *field, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = must_vprint(format, args);
	va_end(args);
	problems->text = must_allocate(realloc(problems->text, (problems->number + 1) * sizeof(*problems->text)));
	problems->text[problems->number++] = must_print("%s: %s", field, text);
	free(text);
}

char *problems_line(const struct problems *problems)
{
	char *line = must_print("%s", "");

	for (size_t i = 0; i < problems->number; i++) {
		char *longer = must_print("%s%s%s", line, i ? "; " : "", problems->text[i]);

		free(line);
		line = longer;
	}
	return line;
}

void problems_free(struct problems *problems)
{
	for (size_t i = 0; i < problems->number; i++)
		free(problems->text[i]);
	free(problems->text);
	*problems = (struct problems){ 0 };
}
