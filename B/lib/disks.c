// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * From a device down to its disks, by the links of sysfs.
 */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "disks.h"
#include "message.h"

#define DEPTH_MAX 8 /* of md over dm over partitions */

bool sysfs_text(const char *directory, const char *name, char *text, size_t size)
{
	char *path = must_print("%s/%s", directory, name);
	FILE *file = fopen(path, "re");
	bool good = file && fgets(text, (int)size, file);

	if (good)
		text[strcspn(text, "\n")] = 0;
	if (file)
		fclose(file);
	free(path);
	return good;
}

bool sysfs_number(const char *directory, const char *name, uint64_t *value)
{
	char text[32], *end;

	/* strtoull() would take -1, which stands for what is not known */
	if (!sysfs_text(directory, name, text, sizeof(text)) || *text < '0' || *text > '9')
		return false;
	*value = strtoull(text, &end, 10);
	return end != text && !*end;
}

char *disk_directory(const char *root, const char *path, bool block, dev_t number)
{
	const char *name = strrchr(path, '/');

	if (block)
		return must_print("%s/sys/dev/block/%u:%u", root, major(number), minor(number));
	return must_print("%s/sys/dev/image/%s", root, name ? name + 1 : path);
}

uint64_t disk_sequence(dev_t number)
{
	char *directory = disk_directory("", "", true, number), disk[PATH_MAX];
	uint64_t sequence = 0;

	if (sysfs_disk(directory, disk))
		sysfs_number(disk, "diskseq", &sequence);
	free(directory);
	return sequence;
}

char *disk_identity(const char *directory)
{
	char disk[PATH_MAX], wwid[256];
	uint64_t start;

	if (!sysfs_disk(directory, disk) || (!sysfs_text(disk, "wwid", wwid, sizeof(wwid)) && !sysfs_text(disk, "device/wwid", wwid, sizeof(wwid))) || !*wwid)
		return NULL;
	return sysfs_number(directory, "start", &start) ? must_print("%s from sector %" PRIu64 " on", wwid, start) : must_print("%s", wwid);
}

static void add(struct disks *disks, const char *directory, bool cache, bool redundant)
{
	const char *name = strrchr(directory, '/') + 1;

	for (size_t i = 0; i < disks->number; i++)
		if (!strcmp(disks->disk[i].directory, directory))
			return;
	disks->disk = must_allocate(realloc(disks->disk, (disks->number + 1) * sizeof(*disks->disk)));
	disks->disk[disks->number++] = (struct disk){
		.name = must_allocate(strdup(name)),
		.directory = must_allocate(strdup(directory)),
		.cache = cache,
		.redundant = redundant,
	};
}

static int is_name(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

bool sysfs_disk(const char *directory, char resolved[static PATH_MAX])
{
	char text[16];

	if (!realpath(directory, resolved))
		return false;
	if (sysfs_text(resolved, "partition", text, sizeof(text)))
		*strrchr(resolved, '/') = 0;
	return true;
}

void sysfs_entries_read(struct sysfs_entries *entries, const char *directory)
{
	struct dirent **entry;
	int n = scandir(directory, &entry, is_name, alphasort);

	*entries = (struct sysfs_entries){ 0 };
	if (n < 0)
		return;
	entries->path = must_allocate(calloc((size_t)n + 1, sizeof(*entries->path)));
	for (int i = 0; i < n; i++) {
		entries->path[entries->number++] = must_print("%s/%s", directory, entry[i]->d_name);
		free(entry[i]);
	}
	free(entry);
}

void sysfs_entries_free(struct sysfs_entries *entries)
{
	for (size_t i = 0; i < entries->number; i++)
		free(entries->path[i]);
	free(entries->path);
	*entries = (struct sysfs_entries){ 0 };
}

/* Has it each sector more than once? */
static bool is_redundant(const char *array)
{
	static const char *const levels[] = { "raid1", "raid4", "raid5", "raid6", "raid10" };
	char level[16];

	if (!sysfs_text(array, "md/level", level, sizeof(level)))
		return false;
	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++)
		if (!strcmp(level, levels[i]))
			return true;
	return false;
}

static void look_below(struct disks *disks, const char *directory, bool cache, bool redundant, unsigned depth)
{
	struct sysfs_entries lower;
	char whole[PATH_MAX], *path;

	if (!sysfs_disk(directory, whole))
		return;
	redundant |= is_redundant(whole);
	path = must_print("%s/slaves", whole); /* partitions of arrays have none of their own */
	sysfs_entries_read(&lower, path);
	for (size_t i = 0; i < lower.number && depth < DEPTH_MAX; i++)
		look_below(disks, lower.path[i], cache, redundant, depth + 1);
	if (!lower.number)
		add(disks, whole, cache, redundant);
	sysfs_entries_free(&lower);
	free(path);
}

bool disk_has_volatile_cache(const char *directory)
{
	char text[32];

	if (!sysfs_text(directory, "queue/write_cache", text, sizeof(text)) && !sysfs_text(directory, "../queue/write_cache", text, sizeof(text)))
		return true;
	return strcmp(text, "write through") != 0;
}

static bool flush_early(const char *directory, unsigned depth)
{
	char whole[PATH_MAX], text[32], *path;
	bool logged, early = false;
	struct sysfs_entries lower;

	if (!sysfs_disk(directory, whole))
		return false;
	logged = sysfs_text(whole, "md/consistency_policy", text, sizeof(text)) && !strcmp(text, "ppl");
	path = must_print("%s/slaves", whole);
	sysfs_entries_read(&lower, path);
	for (size_t i = 0; i < lower.number; i++)
		early |= (logged && disk_has_volatile_cache(lower.path[i])) || (depth < DEPTH_MAX && flush_early(lower.path[i], depth + 1));
	sysfs_entries_free(&lower);
	free(path);
	return early;
}

bool disks_flush_early(const char *directory)
{
	return flush_early(directory, 0);
}

void disks_below(struct disks *disks, const char *directory, bool cache)
{
	look_below(disks, directory, cache, false, 0);
}

void disks_free(struct disks *disks)
{
	for (size_t i = 0; i < disks->number; i++) {
		free(disks->disk[i].name);
		free(disks->disk[i].directory);
	}
	free(disks->disk);
	*disks = (struct disks){ 0 };
}

bool disk_name_is_plain(const char *name)
{
	return *name && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(name);
}

/* Not a namespace: nvme0, of nvme0, nvme0n1, nvme0c0n1. */
static bool is_controller(const char *name)
{
	return !strncmp(name, "nvme", 4) && name[4] && strspn(name + 4, "0123456789") == strlen(name + 4);
}

void disk_controllers(struct sysfs_entries *controllers, const char *directory)
{
	char *device = must_print("%s/device", directory);
	size_t kept = 0;

	*controllers = (struct sysfs_entries){ 0 };
	if (!strncmp(strrchr(directory, '/') + 1, "nvme", 4))
		sysfs_entries_read(controllers, device);
	for (size_t i = 0; i < controllers->number; i++)
		if (is_controller(strrchr(controllers->path[i], '/') + 1))
			controllers->path[kept++] = controllers->path[i];
		else
			free(controllers->path[i]);
	controllers->number = kept;
	if (kept) {
		free(device);
		return;
	}
	free(controllers->path);
	controllers->path = must_allocate(calloc(1, sizeof(*controllers->path)));
	controllers->path[controllers->number++] = device;
}

static bool transport_is_remote(const char *directory)
{
	char text[16];

	return sysfs_text(directory, "transport", text, sizeof(text)) && strcmp(text, "pcie") && strcmp(text, "loop");
}

static bool nvme_is_remote(const struct disk *disk)
{
	struct sysfs_entries controllers;
	bool remote = false;

	disk_controllers(&controllers, disk->directory);
	for (size_t i = 0; i < controllers.number; i++)
		remote |= transport_is_remote(controllers.path[i]);
	sysfs_entries_free(&controllers);
	return remote;
}

bool disk_is_remote(const struct disk *disk)
{
	static const char *const drivers[] = { "nbd", "rbd", "etherd" };

	for (size_t i = 0; i < sizeof(drivers) / sizeof(*drivers); i++)
		if (!strncmp(disk->name, drivers[i], strlen(drivers[i])))
			return true;
	/* iSCSI, over TCP or by an adapter: below a session of its host */
	if (strstr(disk->directory, "/session"))
		return true;
	return !strncmp(disk->name, "nvme", 4) && nvme_is_remote(disk);
}

bool device_is_remote(const char *path)
{
	struct disks disks = { 0 };
	bool remote = false;
	struct stat status;
	char *directory;

	if (stat(path, &status) || !S_ISBLK(status.st_mode))
		return false;
	directory = disk_directory("", path, true, status.st_rdev);
	disks_below(&disks, directory, false);
	for (size_t i = 0; i < disks.number; i++)
		remote |= disk_is_remote(&disks.disk[i]);
	disks_free(&disks);
	free(directory);
	return remote;
}

bool disk_rotates(const struct disk *disk)
{
	uint64_t turns;

	return sysfs_number(disk->directory, "queue/rotational", &turns) && turns;
}

/* current or max, of a function of PCIe: "8.0 GT/s PCIe", lanes. */
static bool link_of(const char *directory, const char *which, double *speed, double *lanes)
{
	char *speed_name = must_print("%s_link_speed", which), *width_name = must_print("%s_link_width", which), text[64];
	uint64_t width = 0;
	bool good = sysfs_text(directory, speed_name, text, sizeof(text)) && sysfs_number(directory, width_name, &width);

	free(speed_name);
	free(width_name);
	*speed = good ? strtod(text, NULL) : 0;
	*lanes = (double)width;
	return *speed > 0 && *lanes > 0;
}

/* Of a controller of NVMe: its function of PCIe; above it that of the slot. */
static bool pcie_of(const char *controller, double *now, double *most)
{
	char *path = must_print("%s/device", controller), *slot = must_print("%s/..", path);
	double speed, lanes, most_speed, most_lanes, slot_speed, slot_lanes;
	bool good = link_of(path, "current", &speed, &lanes) && link_of(path, "max", &most_speed, &most_lanes) &&
		    link_of(slot, "max", &slot_speed, &slot_lanes);

	free(path);
	free(slot);
	if (!good)
		return false;
	*now = speed * lanes;
	*most = (most_speed < slot_speed ? most_speed : slot_speed) * (most_lanes < slot_lanes ? most_lanes : slot_lanes);
	return true;
}

bool disk_pcie(const struct disk *disk, double *now, double *most)
{
	struct sysfs_entries controllers;
	double one, one_most;
	bool good = false;

	disk_controllers(&controllers, disk->directory);
	for (size_t i = 0; i < controllers.number; i++)
		if (pcie_of(controllers.path[i], &one, &one_most) && (!good || one * *most < *now * one_most)) {
			*now = one;
			*most = one_most;
			good = true;
		}
	sysfs_entries_free(&controllers);
	return good;
}
