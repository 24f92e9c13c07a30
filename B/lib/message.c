// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Messages on stderr: one line each, safe for a terminal whatever a label or the kernel put into it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "message.h"

static void say(const char *format, va_list args)
{
	char *text, *c;

	if (vasprintf(&text, format, args) < 0) {
		fputs("larder: out of memory\n", stderr);
		return;
	}
	for (c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	fflush(stdout);
	fprintf(stderr, "larder: %s\n", text);
	free(text);
}

int complain(enum larder_exit code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	return code;
}

void remark(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
}

bool answer_is_yes(const char *question)
{
	char answer[16];

	fflush(stdout);
	fprintf(stderr, "%s [y/N] ", question);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

int confirm(const char *name, bool yes, const char *question)
{
	if (yes || !isatty(STDIN_FILENO) || answer_is_yes(question))
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: nothing was done", name);
}

void *must_allocate(void *pointer)
{
	if (!pointer)
		exit(complain(LARDER_FAILED, "out of memory"));
	return pointer;
}

char *must_vprint(const char *format, va_list args)
{
	char *text;

	return must_allocate(vasprintf(&text, format, args) < 0 ? NULL : text);
}

char *must_print(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = must_vprint(format, args);
	va_end(args);
	return text;
}
