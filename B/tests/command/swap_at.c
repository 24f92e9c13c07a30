// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into the command under test: another device gets the path of one that it works on.  Before the SWAP_AT-th time that SWAP_PATH is
 * opened, from 1, that file gets the bytes of SWAP_BY, which is as long.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int (*real_open)(const char *path, int flags, ...);
static unsigned long opened;

static void __attribute__((constructor)) begin(void)
{
	real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
}

static void swap(const char *path)
{
	int from = real_open(getenv("SWAP_BY"), O_RDONLY), to = real_open(path, O_RDWR);
	static char bytes[1 << 20], there[sizeof(bytes)];
	ssize_t n;
	off_t at;

	/* what differs: the rest stays sparse */
	for (at = 0; (n = pread(from, bytes, sizeof(bytes), at)) > 0; at += n)
		if (pread(to, there, (size_t)n, at) != n || (memcmp(bytes, there, (size_t)n) && pwrite(to, bytes, (size_t)n, at) != n))
			abort();
	close(from);
	close(to);
}

static int open_it(const char *path, int flags, mode_t mode)
{
	const char *swapped = getenv("SWAP_PATH"), *at = getenv("SWAP_AT");

	if (swapped && at && !strcmp(path, swapped) && ++opened == strtoul(at, NULL, 10))
		swap(path);
	return real_open(path, flags, mode);
}

/* whatever the header makes of these names */
int any_open64(const char *path, int flags, ...) __asm__("open64");
int any_open(const char *path, int flags, ...) __asm__("open") __attribute__((alias("open64")));

int any_open64(const char *path, int flags, ...)
{
	mode_t mode;
	va_list more;

	va_start(more, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
	va_end(more);
	return open_it(path, flags, mode);
}
