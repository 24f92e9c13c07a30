// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disks that a member lies on, by sysfs; and what smartctl, where it is installed, says of their patience.
 *
 * A disk that tries for longer to read a bad sector than the kernel waits for it is reset, and may drop out of an array, for one sector.
 */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctor.h"
#include "message.h"

#define PATIENCE 180 /* seconds that a disk without a limit of its own may try; larger than any known */
#define ALIGNMENT 4096 /* bytes: what is written is a multiple of it */

struct disk {
	struct findings *findings;
	const struct member *member;
	char directory[PATH_MAX]; /* in sysfs */
};

/* An image in a regular file, as tests have it, has no entry of its own: dev/image/NAME stands for one, below --root. */
static void find_directory(struct disk *d)
{
	const char *name = strrchr(d->member->path, '/');

	if (d->member->block)
		snprintf(d->directory, sizeof(d->directory), "%s/sys/dev/block/%u:%u", d->findings->root, major(d->member->number),
			 minor(d->member->number));
	else
		snprintf(d->directory, sizeof(d->directory), "%s/sys/dev/image/%s", d->findings->root, name ? name + 1 : d->member->path);
}

static bool attribute(const struct disk *d, const char *name, char *text, size_t size)
{
	char *path = must_print("%s/%s", d->directory, name);
	FILE *file = fopen(path, "re");
	bool good = file && fgets(text, (int)size, file);

	if (good)
		text[strcspn(text, "\n")] = 0;
	if (file)
		fclose(file);
	free(path);
	return good;
}

static bool number(const struct disk *d, const char *name, uint64_t *value)
{
	char text[32], *end;

	if (!attribute(d, name, text, sizeof(text)))
		return false;
	*value = strtoull(text, &end, 10);
	return end != text && !*end;
}

/* Of a partition these are its disk's. */
static bool queue_number(const struct disk *d, const char *name, uint64_t *value)
{
	char path[64];

	snprintf(path, sizeof(path), "queue/%s", name);
	if (number(d, path, value))
		return true;
	snprintf(path, sizeof(path), "../queue/%s", name);
	return number(d, path, value);
}

static void examine_alignment(const struct disk *d)
{
	uint64_t offset, start, block;

	if (number(d, "alignment_offset", &offset) && offset) {
		finding(d->findings, FINDING_ADVICE, "alignment", d->member->path,
			"the kernel says that it begins %" PRIu64 " bytes off a physical block: every write touches two; partition the disk anew, from 1 MiB on",
			offset);
		return;
	}
	if (!queue_number(d, "physical_block_size", &block) || block < ALIGNMENT)
		block = ALIGNMENT;
	if (number(d, "start", &start) && start << 9 & (block - 1))
		finding(d->findings, FINDING_ADVICE, "alignment", d->member->path,
			"the partition begins at sector %" PRIu64 ", not at a multiple of %" PRIu64 " bytes: every write touches two blocks; partition the "
			"disk anew, from 1 MiB on",
			start, block);
}

static void examine_class(const struct disk *d)
{
	uint64_t rotational;

	if (le32toh(d->member->sb.head.kind) == LARDER_KIND_CACHE && queue_number(d, "rotational", &rotational) && rotational)
		finding(d->findings, FINDING_ADVICE, "rotational", d->member->path,
			"the kernel takes this cache device for a rotating disk: it is no faster than what it is to speed up; if it is an SSD behind a "
			"controller that hides that: echo 0 > /sys/dev/block/%u:%u/queue/rotational, else larder cache replace",
			major(d->member->number), minor(d->member->number));
}

/* ------------------------------------------------------------------ the disks below */

static void examine_zones(const struct disk *d, const char *name)
{
	char zoned[32];

	if (attribute(d, "queue/zoned", zoned, sizeof(zoned)) && strcmp(zoned, "none"))
		finding(d->findings, FINDING_ADVICE, "smr", d->member->path,
			"%s is a shingled disk (%s): writeback, which is not sequential, is slow on it for minutes at a time; a disk that is not (CMR), or "
			"larder volume set VOLUME writeback_rate_max=KIB",
			name, zoned);
}

/* Tenths of a second until the disk gives up reading a sector; 0: it has no limit; negative: it cannot be asked. */
static int error_recovery(const char *name)
{
	char *command = must_print("smartctl -l scterc /dev/%s 2>/dev/null", name), line[256];
	FILE *output = popen(command, "re");
	int limit = -1;

	while (output && fgets(line, sizeof(line), output)) {
		char *word = line + strspn(line, " ");

		if (strncmp(word, "Read:", strlen("Read:")))
			continue;
		word += strlen("Read:");
		word += strspn(word, " ");
		limit = strncmp(word, "Disabled", strlen("Disabled")) ? atoi(word) : 0;
	}
	if (output && pclose(output) < 0)
		limit = -1;
	free(command);
	return limit;
}

static void examine_patience(const struct disk *d, const char *name)
{
	uint64_t timeout, rotational;
	int limit;

	if (!number(d, "device/timeout", &timeout) || !number(d, "queue/rotational", &rotational) || !rotational ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(name))
		return;
	limit = error_recovery(name);
	if (limit > 0 && (uint64_t)limit >= timeout * 10)
		finding(d->findings, FINDING_ADVICE, "timeout", d->member->path,
			"/dev/%s tries for %d.%d s to read a bad sector, and is reset by the kernel after %" PRIu64 " s; smartctl -l scterc,70,70 /dev/%s", name,
			limit / 10, limit % 10, timeout, name);
	if (!limit && timeout < PATIENCE)
		finding(d->findings, FINDING_ADVICE, "timeout", d->member->path,
			"/dev/%s has no limit for its tries to read a bad sector, and is reset by the kernel after %" PRIu64 " s; smartctl -l scterc,70,70 "
			"/dev/%s, at each boot, or echo %d > /sys/block/%s/device/timeout",
			name, timeout, name, PATIENCE, name);
}

static int is_name(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

#define DEPTH_MAX 8 /* of md over dm over partitions */

/* The disks that it is made of: of a partition its disk, of md and dm what they have below. */
static void examine_below(const struct disk *d, unsigned depth)
{
	char *path = must_print("%s/slaves", d->directory), resolved[PATH_MAX], text[16];
	struct disk lower = *d;
	struct dirent **entry;
	int n = scandir(path, &entry, is_name, alphasort);

	free(path);
	for (int i = 0; i < n; i++) {
		if (depth < DEPTH_MAX &&
		    (size_t)snprintf(lower.directory, sizeof(lower.directory), "%s/slaves/%s", d->directory, entry[i]->d_name) < sizeof(lower.directory))
			examine_below(&lower, depth + 1);
		free(entry[i]);
	}
	if (n >= 0)
		free(entry);
	if (n > 0 || !realpath(d->directory, resolved))
		return;
	snprintf(lower.directory, sizeof(lower.directory), "%s", resolved);
	if (attribute(&lower, "partition", text, sizeof(text)))
		*strrchr(lower.directory, '/') = 0;
	examine_zones(&lower, strrchr(lower.directory, '/') + 1);
	examine_patience(&lower, strrchr(lower.directory, '/') + 1);
}

void examine_disks(struct findings *findings, const struct member *member)
{
	struct disk disk = { .findings = findings, .member = member };

	find_directory(&disk);
	examine_alignment(&disk);
	examine_class(&disk);
	examine_below(&disk, 0);
}
