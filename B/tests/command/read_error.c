// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into the command under test: of the file READ_ERROR the second line, and all behind it, cannot be read.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ssize_t get(const char *real, char **line, size_t *room, int end, FILE *file)
{
	ssize_t (*get_line)(char **line, size_t *room, int end, FILE *file) = (ssize_t (*)(char **, size_t *, int, FILE *))dlsym(RTLD_NEXT, real);
	const char *failing = getenv("READ_ERROR");
	char link[64], path[PATH_MAX] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fileno(file));
	if (failing && readlink(link, path, sizeof(path) - 1) > 0 && !strcmp(path, failing) && ftell(file) > 0) {
		errno = EIO;
		return -1;
	}
	return get_line(line, room, end, file);
}

ssize_t getdelim(char **line, size_t *room, int end, FILE *file)
{
	return get("getdelim", line, room, end, file);
}

ssize_t __getdelim(char **line, size_t *room, int end, FILE *file)
{
	return get("getdelim", line, room, end, file);
}

ssize_t getline(char **line, size_t *room, FILE *file)
{
	return get("getdelim", line, room, '\n', file);
}
