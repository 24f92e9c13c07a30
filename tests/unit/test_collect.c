// SPDX-License-Identifier: GPL-2.0-or-later
/* tools/collect.c: a part of which something could not be written is said, with a reason, though its last write and its end went well. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>

#include "../../tools/collect.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"
#include "memory.h"

static char said[256];
static bool fails;

int complain(enum larder_exit code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	return code;
}

static ssize_t put(void *data, const char *text, size_t size)
{
	errno = ENOSPC;
	return fails ? -1 : (ssize_t)size;
}

static void close_parts(void)
{
	struct bundle bundle = { .inside = "larder" };

	for (int i = 0; i < 2; i++) {
		FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = put });

		fails = i;
		fputs("some", file);
		fflush(file);
		fails = false;
		errno = 0;
		CHECK(close_part(&bundle, file) == (i ? LARDER_FAILED : LARDER_DONE), "%d", i);
	}
	CHECK(!strcmp(said, "larder: cannot be written: Input/output error"), "%s", said);
}

int main(void)
{
	run_test("close_parts", close_parts);
	return 0;
}
