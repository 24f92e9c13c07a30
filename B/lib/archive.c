// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The archive of metadata.  A file appears under its name only when it is whole and durable; one is removed only when enough newer ones of the
 * same member are there.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <libudev.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "archive.h"
#include "backup.h"
#include "directory.h"
#include "message.h"
#include "scan.h"

#define DIRECTORY "/var/lib/larder/archive"
#define UUID_END  (UUID_TEXT - 1) /* of a file's name: UUID-YYYYMMDDTHHMMSSZ-CONTENT.backup */
#define TIME_TEXT sizeof("20261122T102619Z")
#define TIME_FORMAT "%Y%m%dT%H%M%SZ"
#define SUFFIX	  ".backup"
#define PATIENCE  10000 /* ms */
#define NAME_TEXT (UUID_TEXT + TIME_TEXT + 8 + sizeof(SUFFIX))

static const char *directory(void)
{
	const char *given = getenv("LARDER_ARCHIVE");

	return given ? given : getenv("LARDER_DEVICES") ? NULL : DIRECTORY;
}

static int write_all(int fd, const uint8_t *bytes, size_t number)
{
	while (number) {
		ssize_t done = write(fd, bytes, number);

		if (done < 0 && errno != EINTR)
			return -errno;
		bytes += done > 0 ? done : 0;
		number -= (size_t)(done > 0 ? done : 0);
	}
	return fsync(fd) ? -errno : 0;
}

/* It has no name before it is whole: cut off, it leaves nothing.  Where there are no such files, as on NFS: write_named(). */
static int write_unnamed(const char *path, const uint8_t *bytes, size_t number)
{
	const char *slash = strrchr(path, '/');
	char *parent = slash ? must_print("%.*s", slash == path ? 1 : (int)(slash - path), path) : must_print("."), *self;
	int error, fd = open(parent, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	free(parent);
	if (fd < 0)
		return -errno;
	self = must_print("/proc/self/fd/%d", fd);
	error = write_all(fd, bytes, number);
	if (!error && linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
		error = -errno;
	close(fd);
	free(self);
	return error;
}

static int write_named(const char *path, const uint8_t *bytes, size_t number)
{
	char *part = must_print("%s.XXXXXX", path);
	int error, fd = mkostemp(part, O_CLOEXEC);

	if (fd < 0) {
		error = -errno;
		free(part);
		return error;
	}
	error = write_all(fd, bytes, number);
	close(fd);
	/* what is there already is kept; NFS knows no such rename, vfat no links */
	if (!error && renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE) && (errno != EINVAL || link(part, path)))
		error = -errno;
	unlink(part);
	free(part);
	return error;
}

int archive_write(const char *path, const uint8_t *bytes, size_t number)
{
	int error = write_unnamed(path, bytes, number);

	if (error && error != -EEXIST)
		error = write_named(path, bytes, number);
	return error ? error : sync_directory_of(path);
}

static int make_directory(const char *path)
{
	char *copy = must_print("%s", path);
	int error = 0;

	for (char *at = copy + 1; !error; at++) {
		char was = *at;

		if (was && was != '/')
			continue;
		*at = 0;
		if (mkdir(copy, was ? 0755 : 0700) && errno != EEXIST)
			error = -errno;
		*at = was;
		if (!was)
			break;
	}
	free(copy);
	return error;
}

/* ------------------------------------------------------------------ what is there of one member */

static const char *wanted_uuid; /* of is_of_member(): scandir() hands nothing on */

static int is_of_member(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return length == NAME_TEXT - 1 && !strncmp(entry->d_name, wanted_uuid, UUID_END) && entry->d_name[UUID_END] == '-' &&
	       !strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX);
}

/* Names sort by the order in which they were written: see time_behind().  Returns how many, or -1. */
static int list_of(const char *path, const char *uuid, struct dirent ***entries)
{
	wanted_uuid = uuid;
	return scandir(path, entries, is_of_member, alphasort);
}

static void free_list(struct dirent **entries, int number)
{
	for (int i = 0; i < number; i++)
		free(entries[i]);
	if (number >= 0)
		free(entries);
}

/* The name of the newest; the caller frees it.  NULL: there is none. */
static char *newest_of(const char *path, const char *uuid)
{
	struct dirent **entries;
	int number = list_of(path, uuid, &entries);
	char *name = number > 0 ? must_print("%s", entries[number - 1]->d_name) : NULL;

	free_list(entries, number);
	return name;
}

char *archive_newest(const uint8_t uuid[16])
{
	const char *path = directory();
	char text[UUID_TEXT], *name = path && *path ? newest_of(path, uuid_text(uuid, text)) : NULL, *whole = name ? must_print("%s/%s", path, name) : NULL;

	free(name);
	return whole;
}

/* The time for the name of the next: that of the clock, but behind the newest, which a clock that was ahead may have named. */
static void time_behind(const char *newest, char text[static TIME_TEXT])
{
	time_t when = time(NULL), last;
	struct tm tm = { 0 };

	if (newest && strptime(newest + UUID_END + 1, TIME_FORMAT, &tm)) {
		last = timegm(&tm);
		when = when > last ? when : last + 1;
	}
	strftime(text, TIME_TEXT, TIME_FORMAT, gmtime_r(&when, &tm));
}

static void drop_old(const char *path, const char *uuid)
{
	struct dirent **entries;
	int number = list_of(path, uuid, &entries);

	for (int i = 0; i < number - ARCHIVE_KEPT; i++) {
		char *old = must_print("%s/%s", path, entries[i]->d_name);

		unlink(old);
		free(old);
	}
	free_list(entries, number);
}

/* ------------------------------------------------------------------ keeping */

/*
 * 0 or -errno.  Nothing of an SSD without a table, which could not be restored, nor of what somebody else has written on: the newest one stays that of
 * what was there before.
 */
static int keep(const char *path, const struct device *device, const struct superblocks *found, const char *why)
{
	const union superblock *sb = found->chosen->sb;
	bool cache = le32toh(sb->head.kind) == LARDER_KIND_CACHE, whole;
	char uuid[UUID_TEXT], content[16], when[TIME_TEXT] = "", *newest, *name;
	struct cache_tables tables = { 0 };
	uint8_t *file;
	size_t bytes;
	int error;

	if (cache)
		tables_read(device, &sb->cache, &tables);
	whole = superblocks_stand(found) && (!cache || tables.chosen);
	snprintf(content, sizeof(content), "-%08x.", backup_content(device->bytes, sb, tables.chosen));
	tables_free(&tables);
	uuid_text(sb->head.uuid, uuid);
	newest = whole ? newest_of(path, uuid) : NULL;
	if (!whole || (newest && strstr(newest + UUID_END, content))) {
		free(newest);
		return 0;
	}
	time_behind(newest, when);
	free(newest);
	name = must_print("%s/%s-%s%.9s" SUFFIX, path, uuid, when, content);
	file = backup_encode(device, found, why, &bytes);
	error = archive_write(name, file, bytes);
	free(file);
	free(name);
	if (!error)
		drop_old(path, uuid);
	return error == -EEXIST ? 0 : error; /* the same, by another command at the same time */
}

/* Those of larder itself have no superblock: reading them would count as use. */
static bool is_below_larder(struct udev_device *device)
{
	const char *uuid = udev_device_get_sysattr_value(device, "dm/uuid");

	return !uuid || strncmp(uuid, "LARDER-", strlen("LARDER-"));
}

/* 0 or an errno */
static int keep_all(const char *path, const char *why)
{
	struct members members;
	int error = 0;

	members_scan_where(&members, is_below_larder);
	if (members.number)
		error = make_directory(path);
	for (size_t i = 0; !error && i < members.number; i++) {
		uint32_t kind = le32toh(members.member[i]->sb.head.kind);
		struct superblocks found;
		struct device device;

		if ((kind != LARDER_KIND_CACHE && kind != LARDER_KIND_VOLUME) || device_try(&device, members.member[i]->path))
			continue;
		superblocks_read(&device, &found, false);
		if (found.chosen)
			error = keep(path, &device, &found, why);
		superblocks_free(&found);
		device_close(&device);
	}
	members_free(&members);
	return -error;
}

/* Nothing of ours stays open in it that somebody may wait for: a pipe, a terminal, a lock. */
static _Noreturn void be_child(const char *path, const char *why, int end)
{
	int null = open("/dev/null", O_RDWR);

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	dup2(end, STDERR_FILENO + 1);
	close_range(STDERR_FILENO + 2, ~0u, 0);
	_exit(keep_all(path, why));
}

/*
 * In a child: a disk that does not answer, which the verb may be there to get rid of, holds up the child, and us for PATIENCE at most.  What it has
 * open then are members, for reading, and no device of larder.
 */
void archive_members(const char *why)
{
	const char *path = directory(), *reason = NULL;
	struct pollfd ended;
	int ends[2], status;
	pid_t child;

	if (!path || !*path || pipe2(ends, O_CLOEXEC))
		return;
	fflush(NULL);
	child = fork();
	if (!child)
		be_child(path, why, ends[1]);
	close(ends[1]);
	ended = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	if (child < 0)
		reason = strerror(errno);
	else if (poll(&ended, 1, PATIENCE) != 1)
		reason = "a device does not answer";
	else if (waitpid(child, &status, 0) == child && (!WIFEXITED(status) || WEXITSTATUS(status)))
		reason = WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "it broke off";
	close(ends[0]);
	if (reason)
		remark("archive: no copy of the metadata is kept in %s: %s; %s goes on without", path, reason, why);
}
