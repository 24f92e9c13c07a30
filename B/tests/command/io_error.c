// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A dying disk, preloaded into the command under test: places of its files that cannot be read, or a write or flush that fails.
 *
 *	IO_ERROR=PATH:FROM:BYTES,...   a read that touches one of these fails by EIO, each time
 *	IO_ERROR_FROM=N           they can be read until the N-th read, from 1
 *	IO_ERROR_BEFORE=PATH:...  of these no read fails but those before the N-th
 *	IO_ERROR_AT=N:ERRNO       the N-th call of pwrite() or fsync(), from 1, fails by this errno; a write has done half of it by then
 *	IO_ERROR_LOG=FILE         gets a line for each read and write: "read PATH FROM BYTES", "write ..."
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long reads, writes;

static const char *path_of(int fd, char path[static PATH_MAX])
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	path[n < 0 ? 0 : n] = 0;
	return path;
}

static void tell(const char *what, const char *path, off64_t at, size_t bytes)
{
	const char *name = getenv("IO_ERROR_LOG");
	FILE *log = name ? fopen(name, "a") : NULL;

	if (!log)
		return;
	fprintf(log, "%s %s %lld %zu\n", what, path, (long long)at, bytes);
	fclose(log);
}

static int unreadable(const char *path, off64_t at, size_t bytes)
{
	const char *place = getenv("IO_ERROR"), *from = getenv("IO_ERROR_FROM");
	size_t length = strlen(path);

	if (from && ++reads < strtoul(from, NULL, 10))
		place = getenv("IO_ERROR_BEFORE");
	for (; place; place = strchr(place, ',') ? strchr(place, ',') + 1 : NULL) {
		unsigned long long first, number;

		if (!strncmp(place, path, length) && sscanf(place + length, ":%llu:%llu", &first, &number) == 2 &&
		    (unsigned long long)at < first + number && first < (unsigned long long)at + bytes)
			return 1;
	}
	return 0;
}

ssize_t pread64(int fd, void *buffer, size_t bytes, off64_t at)
{
	ssize_t (*real)(int, void *, size_t, off64_t) = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
	char path[PATH_MAX];

	path_of(fd, path);
	tell("read", path, at, bytes);
	if (!unreadable(path, at, bytes))
		return real(fd, buffer, bytes, at);
	memset(buffer, 0xa5, bytes); /* nobody may look at it */
	errno = EIO;
	return -1;
}

static int fails(void)
{
	const char *at = getenv("IO_ERROR_AT");
	unsigned long number;
	int error;

	if (!at || sscanf(at, "%lu:%d", &number, &error) != 2 || ++writes != number)
		return 0;
	return error;
}

ssize_t pwrite64(int fd, const void *buffer, size_t bytes, off64_t at)
{
	ssize_t (*real)(int, const void *, size_t, off64_t) =
		(ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
	char path[PATH_MAX];
	int error = fails();

	tell("write", path_of(fd, path), at, bytes);
	if (!error)
		return real(fd, buffer, bytes, at);
	real(fd, buffer, bytes / 2, at);
	errno = error;
	return -1;
}

int fsync(int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
	char path[PATH_MAX];
	int error = fails();

	tell("flush", path_of(fd, path), 0, 0);
	if (!error)
		return real(fd);
	errno = error;
	return -1;
}
