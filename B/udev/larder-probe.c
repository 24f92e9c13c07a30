// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder-probe DEVICE: the properties of a member, for the udev rules; 1 and nothing where there is none.
 *
 * It reads the superblock, its copy where need be, and nothing else; it opens for reading only, takes no lock, says nothing of errors, and
 * is linked with nothing that would make its start slow.  LARDER_APPEARED is when it was first run on this content: the rules keep it.
 *
 * Of a member that udev takes for something else, by ID_FS_TYPE or, of a whole disk, ID_PART_TABLE_TYPE, it looks where that is written: among its data
 * (the superblock of an array in a volume, at the end of its disk) it says nothing; elsewhere the device is left to that owner.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "descriptors.h"
#include "device.h"
#include "signature.h"
#include "udev_properties.h"

static bool is_others(const struct device *device, const struct superblocks *found, const char *type)
{
	return type && *type && strcmp(type, "larder_member") && !(superblocks_stand(found) && signature_is_data(device, found->chosen->sb, type));
}

static bool left_to_others(const struct device *device, const struct superblocks *found)
{
	const char *what = getenv("DEVTYPE"); /* a partition has ID_PART_TABLE_TYPE of its disk */

	return is_others(device, found, getenv("ID_FS_TYPE")) || (what && !strcmp(what, "disk") && is_others(device, found, getenv("ID_PART_TABLE_TYPE")));
}

int main(int argc, char **argv)
{
	struct superblocks found;
	struct device device;
	struct timespec now;
	int result = 1;

	descriptors_fill();
	if (argc != 2) {
		fputs("usage: larder-probe DEVICE\n", stderr);
		return 2;
	}
	if (device_try(&device, argv[1]))
		return 1;
	superblocks_read(&device, &found, false);
	if (found.chosen && !left_to_others(&device, &found)) {
		udev_properties_print(found.chosen->sb);
		clock_gettime(CLOCK_MONOTONIC, &now);
		printf("LARDER_APPEARED=%" PRIu64 "\n", (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
		result = 0;
	}
	superblocks_free(&found);
	device_close(&device);
	return result;
}
