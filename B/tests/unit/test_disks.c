// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/disks.c: which disks there are below dm, md and partitions, which of them come by the network, and which are the same, in a sysfs of the test's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../lib/message.c"
#include "../../lib/disks.c"

#include "check.h"

static char top[] = "/tmp/larder-disks-XXXXXX";

/* A directory below the top, with those above it; the caller frees it. */
static char *make(const char *name)
{
	char *path = must_print("%s/%s", top, name);

	for (char *p = path + strlen(top) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(path, 0700);
		*p = '/';
	}
	mkdir(path, 0700);
	return path;
}

static void put(const char *directory, const char *name, const char *text)
{
	char *whole = make(directory), *path = must_print("%s/%s", whole, name);
	FILE *file = fopen(path, "w");

	if (!file || fputs(text, file) < 0 || fclose(file))
		check(false, path);
	free(path);
	free(whole);
}

static void lies_on(const char *upper, const char *lower)
{
	char *slaves = must_print("%s/slaves", upper), *directory = make(slaves);
	char *from = must_print("%s/%s", directory, strrchr(lower, '/') + 1), *to = must_print("%s/%s", top, lower);

	if (symlink(to, from))
		check(false, from);
	free(to);
	free(from);
	free(directory);
	free(slaves);
}

/* Of what is below it: how many, and how many by the network. */
static bool has(const char *name, size_t disks, size_t remote)
{
	char *directory = must_print("%s/%s", top, name);
	struct disks found = { 0 };
	size_t n = 0;
	bool good;

	disks_below(&found, directory, false);
	for (size_t i = 0; i < found.number; i++)
		n += disk_is_remote(&found.disk[i]);
	if (found.number != disks || n != remote)
		printf("# %s: %zu disks, %zu by the network\n", name, found.number, n);
	free(directory);
	good = n == remote && found.number == disks;
	disks_free(&found);
	return good;
}

static bool is_called(const char *name, const char *identity)
{
	char *directory = must_print("%s/%s", top, name), *found = disk_identity(directory);
	bool good = found && identity ? !strcmp(found, identity) : !found && !identity;

	if (!good)
		printf("# %s: %s\n", name, found ? found : "none");
	free(found);
	free(directory);
	return good;
}

static void same_disk(void)
{
	static const char *const paths[] = { "host5/sdp", "host6/sdq" };

	for (int i = 0; i < 2; i++) {
		char *device = must_print("devices/%s/device", paths[i]), *part = must_print("devices/%s/part1", paths[i]);

		put(device, "wwid", "naa.5000c500a1b2c3d4\n");
		put(part, "partition", "1\n");
		put(part, "start", "2048\n");
		check(is_called(part, "naa.5000c500a1b2c3d4 from sector 2048 on"), "a partition, by each path");
		free(device);
		free(part);
	}
	check(is_called("devices/host5/sdp", "naa.5000c500a1b2c3d4") && is_called("devices/host6/sdq", "naa.5000c500a1b2c3d4"), "a disk, by each path");
	put("devices/pci0/nvme/nvme0/nvme0n1", "wwid", "eui.0025385b71b0c1d2\n");
	check(is_called("devices/pci0/nvme/nvme0/nvme0n1", "eui.0025385b71b0c1d2"), "NVMe");
	check(is_called("devices/virtual/block/loop0", NULL) && is_called("devices/virtual/block/none", NULL), "one that does not say");
	put("devices/virtual/block/loop0", "wwid", "\n");
	check(is_called("devices/virtual/block/loop0", NULL), "nothing is no name");
}

static int erase(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	return remove(path);
}

int main(void)
{
	if (!mkdtemp(top))
		return 1;
	free(make("devices/pci0/ata1/host0/target0/block/sda/device"));
	put("devices/pci0/ata1/host0/target0/block/sda/sda1", "partition", "1\n");
	free(make("devices/platform/host2/session1/target2/block/sdb/device"));
	put("devices/pci0/nvme/nvme0/nvme0n1/device", "transport", "pcie\n");
	put("devices/virtual/nvme-fabrics/ctl/nvme1/nvme1n1/device", "transport", "tcp\n");
	put("devices/virtual/nvme-subsystem/nvme-subsys2/nvme2n1/device/nvme2", "transport", "rdma\n");
	put("devices/virtual/nvme-subsystem/nvme-subsys3/nvme3n1/device/nvme3", "transport", "pcie\n");
	put("devices/virtual/nvme-subsystem/nvme-subsys3/nvme3n1/device/nvme3n1", "transport", "tcp\n");
	free(make("devices/virtual/block/nbd0"));
	free(make("devices/virtual/block/rbd1"));
	free(make("devices/virtual/block/loop0"));
	check(has("devices/pci0/ata1/host0/target0/block/sda", 1, 0), "a disk of this machine");
	check(has("devices/platform/host2/session1/target2/block/sdb", 1, 1), "iSCSI");
	check(has("devices/pci0/nvme/nvme0/nvme0n1", 1, 0), "NVMe on PCIe");
	check(has("devices/virtual/nvme-fabrics/ctl/nvme1/nvme1n1", 1, 1), "NVMe over TCP");
	check(has("devices/virtual/nvme-subsystem/nvme-subsys2/nvme2n1", 1, 1), "NVMe over RDMA, a namespace of several paths");
	check(has("devices/virtual/nvme-subsystem/nvme-subsys3/nvme3n1", 1, 0), "NVMe on PCIe, likewise: a namespace is no controller");
	check(has("devices/virtual/block/nbd0", 1, 1) && has("devices/virtual/block/rbd1", 1, 1) && has("devices/virtual/block/loop0", 1, 0),
	      "by the names of drivers");
	lies_on("devices/virtual/block/md0", "devices/platform/host2/session1/target2/block/sdb");
	lies_on("devices/virtual/block/md0", "devices/pci0/ata1/host0/target0/block/sda/sda1");
	lies_on("devices/virtual/block/dm-0", "devices/virtual/block/md0");
	lies_on("devices/virtual/block/dm-1", "devices/virtual/block/dm-0");
	check(has("devices/virtual/block/dm-1", 2, 1), "below LUKS, a volume, an array and a partition");
	lies_on("devices/virtual/block/md126", "devices/platform/host2/session1/target2/block/sdb");
	lies_on("devices/virtual/block/md126", "devices/pci0/ata1/host0/target0/block/sda");
	put("devices/virtual/block/md126/md126p3", "partition", "3\n");
	lies_on("devices/virtual/block/dm-2", "devices/virtual/block/md126/md126p3");
	check(has("devices/virtual/block/md126/md126p3", 2, 1) && has("devices/virtual/block/dm-2", 2, 1), "below a partition of an array");
	same_disk();
	check(!device_is_remote("/dev/null") && !device_is_remote("/tmp/larder-there-is-none"), "what is no block device is not");
	nftw(top, erase, 8, FTW_DEPTH | FTW_PHYS);
	return failed;
}
