// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tracefs, without a library: one event with a filter, read as text from trace_pipe, which has the lines of all processors in the order of their time,
 * and says where some were lost.  The text costs the kernel about a microsecond a request, when it is read: little beside the requests of disks slow enough to want a cache.
 *
 * An instance is a directory, instances/larder-PID, locked (flock) for as long as its process lives, whatever ends that: one that can be locked is of none, and
 * the next run removes it.  Until then it traces into its own ring, which does not grow.  A new one may be taken for such a one before it is locked; then it
 * is made again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "tracefs.h"

#define EVENT	"events/block/block_bio_queue"
#define PREFIX	"larder-"
#define BUFFERS 65536 /* KiB of all processors together; a request takes some 60 bytes */
#define LEAST	256 /* of one processor */
#define MOST	4096

static const char *const places[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };

/* 0 or -errno */
static int put(int directory, const char *file, const char *text)
{
	int fd = openat(directory, file, O_WRONLY | O_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return error;
}

/* Also one that does not answer to all of this: it is gone in the end, or is said to be there. */
static void instance_remove(const char *path, int directory)
{
	put(directory, EVENT "/enable", "0");
	/* EBUSY for as long as a reader of its files is about to close them */
	for (int i = 0; rmdir(path) && errno == EBUSY && i < 20; i++)
		usleep(50000);
}

static void remove_leftovers(const char *instances)
{
	DIR *dir = opendir(instances);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char *path;
		int fd;

		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)))
			continue;
		path = must_print("%s/%s", instances, entry->d_name);
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
			instance_remove(path, fd);
		if (fd >= 0)
			close(fd);
		free(path);
	}
	if (dir)
		closedir(dir);
}

/* False: somebody has taken it for a leftover. */
static bool instance_lock(struct tracefs *trace)
{
	struct stat open_now, there;

	trace->directory = open(trace->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (trace->directory < 0)
		return false;
	if (!flock(trace->directory, LOCK_EX | LOCK_NB) && !fstat(trace->directory, &open_now) && !stat(trace->path, &there) && open_now.st_ino == there.st_ino)
		return true;
	close(trace->directory);
	trace->directory = -1;
	return false;
}

static int instance_make(struct tracefs *trace, const char *root)
{
	char *instances = must_print("%s/instances", root);

	remove_leftovers(instances);
	trace->path = must_print("%s/" PREFIX "%d", instances, (int)getpid());
	free(instances);
	for (int i = 0; i < 10; i++) {
		if (mkdir(trace->path, 0700) && errno != EEXIST)
			return -errno;
		if (instance_lock(trace))
			return 0;
	}
	return -EBUSY;
}

static int instance_begin(struct tracefs *trace, const char *filter, const char **file)
{
	long each = BUFFERS / sysconf(_SC_NPROCESSORS_CONF);
	char *kib = must_print("%ld", each < LEAST ? LEAST : each > MOST ? MOST : each);
	const char *const steps[][2] = { { "buffer_size_kb", kib }, { EVENT "/filter", filter }, { EVENT "/enable", "1" } };
	int error = 0;

	for (size_t i = 0; !error && i < sizeof(steps) / sizeof(steps[0]); i++) {
		*file = steps[i][0];
		error = put(trace->directory, steps[i][0], steps[i][1]);
	}
	free(kib);
	if (error)
		return error;
	*file = "trace_pipe";
	trace->pipe = openat(trace->directory, *file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	return trace->pipe < 0 ? -errno : 0;
}

static const char *find_root(void)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char *instances = must_print("%s/instances", places[i]);
		bool there = !access(instances, F_OK);

		free(instances);
		if (there)
			return places[i];
	}
	return NULL;
}

int tracefs_begin(struct tracefs *trace, const char *filter)
{
	const char *root = find_root(), *file = NULL;
	int error;

	*trace = (struct tracefs){ .directory = -1, .pipe = -1 };
	if (!root && geteuid())
		return complain(LARDER_FAILED, "%s: only root may trace; run it as root, or --from a trace", places[0]);
	if (!root)
		return complain(LARDER_FAILED, "%s: tracefs is not there; mount it: mount -t tracefs tracefs %s", places[0], places[0]);
	error = instance_make(trace, root);
	if (error) {
		complain(LARDER_FAILED, "%s: cannot be made: %s", trace->path, strerror(-error));
		free(trace->path);
		return LARDER_FAILED;
	}
	error = instance_begin(trace, filter, &file);
	if (!error)
		return LARDER_DONE;
	complain(LARDER_FAILED, "%s/%s: %s", trace->path, file, strerror(-error));
	tracefs_end(trace);
	return LARDER_FAILED;
}

ssize_t tracefs_read(const struct tracefs *trace, char *buffer, size_t size)
{
	ssize_t length = read(trace->pipe, buffer, size);

	if (length >= 0)
		return length;
	return errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

void tracefs_stop(const struct tracefs *trace)
{
	put(trace->directory, EVENT "/enable", "0");
}

void tracefs_end(struct tracefs *trace)
{
	if (trace->pipe >= 0)
		close(trace->pipe);
	instance_remove(trace->path, trace->directory);
	close(trace->directory);
	free(trace->path);
}
