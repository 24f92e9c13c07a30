// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder-probe DEVICE: the properties of a member, for the udev rules; 1 and nothing where there is none.
 *
 * It reads the superblock, its copy where need be, and nothing else; it opens for reading only, takes no lock, says nothing of errors, and
 * is linked with nothing that would make its start slow.  LARDER_APPEARED is when it was first run on this content: the rules keep it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "descriptors.h"
#include "device.h"
#include "udev_properties.h"

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
	if (found.chosen) {
		udev_properties_print(found.chosen->sb);
		clock_gettime(CLOCK_MONOTONIC, &now);
		printf("LARDER_APPEARED=%" PRIu64 "\n", (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
		result = 0;
	}
	superblocks_free(&found);
	device_close(&device);
	return result;
}
