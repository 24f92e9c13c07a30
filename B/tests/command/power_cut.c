// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A power cut, preloaded into the command under test: at the N-th write or flush of its image files the process ends, and the files are as
 * disks with volatile caches may be then: of what was written since a file's last flush any sectors may be missing, the write that was cut
 * into included.
 *
 *	POWER_CUT_AT=N            at the N-th call of pwrite() or fsync(), from 1; 0 or none: never
 *	POWER_CUT_KEEP=none|all|SEED|spoilt   of what was not flushed: nothing, all, or sectors by that seed; or it is neither old nor new, as where
 *	                          a sector was cut into
 *	POWER_CUT_LOG=FILE        at an orderly end: how many calls there were
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR 512u
#define CUT    88 /* exit code */

struct unflushed {
	struct unflushed *older;
	ino_t file;
	int fd;
	off64_t at;
	size_t bytes, room; /* room: bytes that the file had there */
	uint8_t *was, *is;
};

static struct unflushed *newest;
static unsigned long calls;
static uint64_t state;

static ssize_t (*real_pwrite)(int fd, const void *buffer, size_t bytes, off64_t at);
static int (*real_fsync)(int fd);

static void __attribute__((constructor)) begin(void)
{
	real_pwrite = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
	real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
}

static void __attribute__((destructor)) end(void)
{
	const char *name = getenv("POWER_CUT_LOG");
	FILE *log = name ? fopen(name, "w") : NULL;

	if (!log)
		return;
	fprintf(log, "%lu\n", calls);
	fclose(log);
}

static ino_t file_of(int fd)
{
	struct stat status;

	return fstat(fd, &status) ? 0 : status.st_ino;
}

static int kept(const char *mode)
{
	if (!strcmp(mode, "none") || !strcmp(mode, "all"))
		return *mode == 'a';
	state += 0x9e3779b97f4a7c15ull;
	return ((state ^ state >> 31) * 0xbf58476d1ce4e5b9ull) >> 63;
}

/* Back to what was flushed, then forward again, oldest write first, sector by sector. */
static void replay(struct unflushed *u, const char *mode)
{
	if (!u)
		return;
	real_pwrite(u->fd, u->was, u->room, u->at);
	replay(u->older, mode);
	if (!strcmp(mode, "spoilt"))
		memset(u->is, 0xa5, u->bytes);
	for (size_t i = 0; i < u->bytes; i += SECTOR)
		if (*mode == 's' || kept(mode))
			real_pwrite(u->fd, u->is + i, u->bytes - i < SECTOR ? u->bytes - i : SECTOR, u->at + (off64_t)i);
}

static void count_call(void)
{
	const char *at = getenv("POWER_CUT_AT"), *mode = getenv("POWER_CUT_KEEP");

	if (++calls != (at ? strtoul(at, NULL, 10) : 0))
		return;
	mode = mode ? mode : "all";
	state = strtoul(mode, NULL, 10) + calls;
	replay(newest, mode);
	_exit(CUT);
}

ssize_t pwrite64(int fd, const void *buffer, size_t bytes, off64_t at)
{
	struct unflushed *u = calloc(1, sizeof(*u));
	ssize_t had;

	u->was = malloc(bytes);
	u->is = malloc(bytes);
	had = pread64(fd, u->was, bytes, at);
	*u = (struct unflushed){ newest, file_of(fd), fd, at, bytes, had < 0 ? 0 : (size_t)had, u->was, memcpy(u->is, buffer, bytes) };
	newest = u;
	count_call();
	return real_pwrite(fd, buffer, bytes, at);
}

int fsync(int fd)
{
	struct unflushed **u = &newest;
	ino_t file = file_of(fd);

	count_call();
	while (*u) {
		struct unflushed *done = *u;

		if (done->file != file) {
			u = &done->older;
			continue;
		}
		*u = done->older;
		free(done->was);
		free(done->is);
		free(done);
	}
	return real_fsync(fd);
}
