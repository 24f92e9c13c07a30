/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The disks that a device lies on, by sysfs alone: none is opened, so none that is idle wakes up. */
#ifndef LARDER_DISKS_H
#define LARDER_DISKS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct disk {
	char *name; /* sda, as sysfs has it: any bytes but '/' */
	char *directory; /* in sysfs */
	bool cache; /* as it was asked for */
	bool redundant; /* an array of md above it has elsewhere what is on it */
};

struct disks {
	struct disk *disk;
	size_t number;
};

/*
 * The directory in sysfs of the system below root ("": this one).  A device that is no block device, as images in tests, has none: dev/image/NAME
 * stands for it, where NAME is the end of path.  The caller frees it.
 */
char *disk_directory(const char *root, const char *path, bool block, dev_t number);
/* Adds what is below the device with that directory: of a partition its disk, of md and dm what they are made of; once each. */
void disks_below(struct disks *disks, const char *directory, bool cache);
void disks_free(struct disks *disks);

/* The kernel gives each disk that comes a number of its own, also behind one that had its name; of a partition its disk's.  0: it does not say. */
uint64_t disk_sequence(dev_t number);

/*
 * Which disk the device with that directory is, by what the disk says of itself (SCSI, NVMe), and where on it a partition begins: two paths to one disk have
 * the same.  NULL: it does not say.  The caller frees it.
 */
char *disk_identity(const char *directory);

/* A file below a directory of sysfs: its first line; a number.  False: there is none. */
bool sysfs_text(const char *directory, const char *name, char *text, size_t size);
bool sysfs_number(const char *directory, const char *name, uint64_t *value);
/* The directory itself, without links; of a partition that of its disk.  False: there is none. */
bool sysfs_disk(const char *directory, char resolved[static PATH_MAX]);

/* Paths of what a directory of sysfs has, sorted by name; none, where there is no such directory. */
struct sysfs_entries {
	char **path;
	size_t number;
};
void sysfs_entries_read(struct sysfs_entries *entries, const char *directory);
void sysfs_entries_free(struct sysfs_entries *entries);

/*
 * May what was written to the device with that directory be lost in a power cut although a flush behind it has been answered?  A RAID 5 with a
 * partial parity log (PPL) answers each at once (raid5-ppl.c:ppl_handle_flush_request(), so of 6.1 and 6.12), so all of its disks are to
 * have no volatile cache.  Such an array, or one somewhere below.
 */
bool disks_flush_early(const char *directory);
/* A cache that a power cut empties; true, too, if the kernel does not say.  Of a partition: its disk. */
bool disk_has_volatile_cache(const char *directory);

/* Out of sysfs: no word that a program would take for an option, or /dev for a way out of it. */
bool disk_name_is_plain(const char *name);
/*
 * Does it come by the network (iSCSI, NVMe over fabrics, NBD, RBD, ATA over Ethernet), so that what is mounted from it has to go before
 * that does?  device_is_remote(): of the disks below a device node, one at least; false, too, if nobody knows.
 */
bool disk_is_remote(const struct disk *disk);
bool device_is_remote(const char *path);
bool disk_rotates(const struct disk *disk); /* false, too, if the kernel does not say */
/*
 * Directories of what drives the disk with that directory.  A namespace of NVMe may have several, and even with one controller it may lie in its subsystem,
 * not below that (multipath of the kernel's own).
 */
void disk_controllers(struct sysfs_entries *controllers, const char *directory);
/*
 * Speed times lanes, in GT/s: as PCIe has agreed on, and what the disk and its slot are both able to; of several controllers by the one that lacks most.
 * False: it is not on PCIe, or that is not known.
 */
bool disk_pcie(const struct disk *disk, double *now, double *most);

#endif
