// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /run/larder: lock, stopped/UUID, and scrub-UUID.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "message.h"
#include "superblock.h"
#include "turn.h"

#define RUN	"/run/larder"
#define STOPPED RUN "/stopped"
#define SCRUB	RUN "/scrub-"

static int lock = -1;

void turn_take(void)
{
	mkdir(RUN, 0755);
	if (lock < 0)
		lock = open(RUN "/lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	while (lock >= 0 && flock(lock, LOCK_EX) && errno == EINTR)
		;
}

void turn_give(void)
{
	if (lock >= 0)
		close(lock);
	lock = -1;
}

static void path_of(const uint8_t uuid[16], char *path, size_t size)
{
	char text[UUID_TEXT];

	snprintf(path, size, STOPPED "/%s", uuid_text(uuid, text));
}

void stopped_set(const uint8_t uuid[16])
{
	char path[sizeof(STOPPED) + UUID_TEXT + 1];
	int fd;

	mkdir(RUN, 0755);
	mkdir(STOPPED, 0755);
	path_of(uuid, path, sizeof(path));
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
}

void stopped_clear(const uint8_t uuid[16])
{
	char path[sizeof(STOPPED) + UUID_TEXT + 1];

	path_of(uuid, path, sizeof(path));
	unlink(path);
}

bool stopped_is(const uint8_t uuid[16])
{
	char path[sizeof(STOPPED) + UUID_TEXT + 1];

	path_of(uuid, path, sizeof(path));
	return !access(path, F_OK);
}

size_t stopped_list(uint8_t (**uuids)[16])
{
	DIR *directory = opendir(STOPPED);
	struct dirent *entry;
	size_t number = 0;

	*uuids = NULL;
	while (directory && (entry = readdir(directory))) {
		uint8_t uuid[16];

		if (uuid_parse(entry->d_name, uuid))
			continue;
		*uuids = must_allocate(realloc(*uuids, (number + 1) * sizeof(**uuids)));
		memcpy((*uuids)[number++], uuid, 16);
	}
	if (directory)
		closedir(directory);
	return number;
}

/* ------------------------------------------------------------------ where a scrub was stopped */

static FILE *scrub_file(const uint8_t uuid[16], const char *mode, char path[static sizeof(SCRUB) + UUID_TEXT])
{
	char text[UUID_TEXT];

	snprintf(path, sizeof(SCRUB) + UUID_TEXT, SCRUB "%s", uuid_text(uuid, text));
	return fopen(path, mode);
}

void scrub_stopped_set(const uint8_t uuid[16], uint64_t sector)
{
	char path[sizeof(SCRUB) + UUID_TEXT];
	FILE *file;

	mkdir(RUN, 0755);
	file = scrub_file(uuid, "we", path);
	if (!file)
		return;
	fprintf(file, "%" PRIu64 "\n", sector);
	if (fclose(file) || !sector)
		unlink(path);
}

uint64_t scrub_stopped(const uint8_t uuid[16])
{
	char path[sizeof(SCRUB) + UUID_TEXT];
	FILE *file = scrub_file(uuid, "re", path);
	uint64_t sector = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%" SCNu64, &sector) != 1)
		sector = 0;
	fclose(file);
	return sector;
}
