/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A block device, or an image of one in a regular file. */
#ifndef LARDER_DEVICE_H
#define LARDER_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "layout.h"

enum device_access {
	DEVICE_READ, /* whoever else uses it */
	DEVICE_EXAMINE, /* read, and refuse one that is in use, an image that a loop device shows as well: what would DEVICE_CLAIM say? */
	DEVICE_CLAIM, /* read and write; nobody else uses it, and udev waits (flock of the whole disk) */
	DEVICE_BESIDE, /* the same of what those who use it do not touch: a superblock in front of what was started from it */
};

/*
 * fd goes through the page cache and is what holds the claim; direct goes past it (a dm target writes superblocks without the
 * page cache knowing).  For a regular file they are the same.  lock: whole disk, or -1.
 */
struct device {
	char *path;
	int fd, direct, lock;
	bool block;
	dev_t number;
	uint64_t start, bytes; /* start: where it begins on what is open, bytes; 0 but for a part of it */
	unsigned logical_block; /* bytes */
	bool read_only, zoned;
};

/* Complains.  On success the caller closes it. */
int device_open(struct device *device, const char *path, enum device_access access);
/* As DEVICE_READ, but says nothing: for scans.  Returns 0 or -errno. */
int device_try(struct device *device, const char *path);
/* The same, of a part: so many sectors from start on.  -ENXIO: it has not all of them, or begin at no multiple of 4096 bytes. */
int device_try_part(struct device *device, const char *path, uint64_t start, uint64_t sectors);
void device_close(struct device *device);

/*
 * bytes and offset are multiples of 4096 and may lie beyond the end (then -ENXIO); buffer comes from device_buffer().  Return 0 or
 * -errno; say nothing.  Writes are not durable before device_sync().
 */
int device_read(const struct device *device, uint64_t offset, void *buffer, size_t bytes);
int device_write(const struct device *device, uint64_t offset, const void *buffer, size_t bytes);
int device_zero(const struct device *device, uint64_t offset, uint64_t bytes);
/* The device may forget what is there, and mostly does.  Returns 0 or -errno; says nothing. */
int device_discard(const struct device *device, uint64_t offset, uint64_t bytes);
int device_sync(const struct device *device);
void *device_buffer(size_t bytes); /* zeroed, aligned for direct I/O; free() */

/* Who uses it: "mounted on /x", "swap", "held by /dev/md0", also through a partition of it.  Empty text, false: nobody seen. */
bool device_usage(dev_t number, char *text, size_t size);

/* Node of a block device, from sysfs: "/dev/sda".  False if the kernel has none. */
bool device_node(dev_t number, char *text, size_t size);
/* Does reading it end?  No floppy, nothing empty, nor suspended. */
bool device_worth_reading(dev_t number);
/* Nor those of which this says yes, from now on: of which the process knows that they hang. */
void device_leave_out(bool (*which)(dev_t number));
/* The disk that a partition is of; any other device itself. */
dev_t device_whole_disk(dev_t number);
/* Does the device `below` have `above` among its holders, directly or through others? */
bool device_is_below(dev_t below, dev_t above);
/* The same, looked at from above: also where it is a loop device, whose file lies on a filesystem of `below`. */
bool device_lies_on(dev_t above, dev_t below);
/* The kernel lets nobody write to it. */
bool device_is_read_only(dev_t number);
/* Text of a file of sysfs beneath a block device, e.g. "queue/zoned"; false if it can't be read. */
bool device_attribute(dev_t number, const char *name, char *text, size_t size);
/* What the kernel says of its chunks and stripes; zeroes of a regular file. */
void device_topology(const struct device *device, struct device_topology *topology);
/* Writes it.  Returns 0 or a positive errno; says nothing. */
int device_set_attribute(dev_t number, const char *name, const char *text);

#endif
