/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lib/message.c's part of memory, for tests that have a complain() of their own.  Behind seeded.h, and the library's headers. */
#ifndef LARDER_TEST_MEMORY_H
#define LARDER_TEST_MEMORY_H

#include <stdarg.h>
#include <stdio.h>

char *must_print(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	CHECK(vasprintf(&text, format, args) >= 0, "memory");
	va_end(args);
	return text;
}

void *must_allocate(void *pointer)
{
	CHECK(pointer, "memory");
	return pointer;
}

#endif
