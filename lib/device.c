// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Block devices and images in regular files: open, claim, size, aligned I/O.
 *
 * A claim is three things: O_EXCL (against mounts, dm, md, other tools), the check in sysfs and /proc that gives the reason its
 * name, and an flock of the whole disk's node, which udev respects (systemd's BLOCK_DEVICE_LOCKING): while we write, no rule of
 * udev's reads half of it.  The lock is dropped before the writable descriptor is closed, so that the event which udev makes of
 * that close finds it free.  Of dm, md and drbd udev takes no such lock: an event that has looked before we wrote, and ends
 * behind our close, would be the last one, as udev hears of no close meanwhile.  So another one is asked for.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../kernel/larder_format.h"
#include "device.h"
#include "message.h"

#define BLOCK	   4096u
#define LOCK_TRIES 50 /* of 100 ms: udev holds its shared lock while it probes */
#define DEPTH	   16 /* of stacked devices, at most */

static void sysfs_path(dev_t number, const char *name, char *path, size_t size)
{
	snprintf(path, size, "/sys/dev/block/%u:%u/%s", major(number), minor(number), name);
}

bool device_is_read_only(dev_t number)
{
	char text[4];

	return device_attribute(number, "ro", text, sizeof(text)) && text[0] == '1';
}

static bool read_attribute(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return false;
	length = read(fd, text, size - 1);
	close(fd);
	if (length < 0)
		return false;
	if (length && text[length - 1] == '\n')
		length--;
	text[length] = 0;
	return true;
}

bool device_attribute(dev_t number, const char *name, char *text, size_t size)
{
	char path[PATH_MAX];

	sysfs_path(number, name, path, sizeof(path));
	return read_attribute(path, text, size);
}

static uint64_t attribute_number(dev_t number, const char *name)
{
	char text[32];

	/* alignment_offset may be -1: there is none */
	return device_attribute(number, name, text, sizeof(text)) && text[0] != '-' ? strtoull(text, NULL, 10) : 0;
}

void device_topology(const struct device *device, struct device_topology *topology)
{
	dev_t whole = device->block ? device_whole_disk(device->number) : 0;

	*topology = (struct device_topology){ 0 };
	if (!device->block)
		return;
	topology->io_min = attribute_number(whole, "queue/minimum_io_size");
	topology->io_opt = attribute_number(whole, "queue/optimal_io_size");
	topology->alignment = attribute_number(whole, "alignment_offset");
	if (whole != device->number)
		topology->start = attribute_number(device->number, "start") << 9;
}

int device_set_attribute(dev_t number, const char *name, const char *text)
{
	char path[PATH_MAX];
	int fd, error;

	sysfs_path(number, name, path, sizeof(path));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	error = write(fd, text, strlen(text)) < 0 ? errno : 0;
	close(fd);
	return error;
}

static bool parse_number(const char *text, dev_t *number)
{
	unsigned high, low;

	if (sscanf(text, "%u:%u", &high, &low) != 2)
		return false;
	*number = makedev(high, low);
	return true;
}

bool device_node(dev_t number, char *text, size_t size)
{
	char uevent[1024], *name, *end;

	if (!device_attribute(number, "uevent", uevent, sizeof(uevent)))
		return false;
	name = strstr(uevent, "DEVNAME=");
	if (!name)
		return false;
	name += strlen("DEVNAME=");
	end = strchr(name, '\n');
	if (end)
		*end = 0;
	snprintf(text, size, "/dev/%s", name);
	return true;
}

dev_t device_whole_disk(dev_t number)
{
	dev_t whole = number;
	char text[64];

	if (!device_attribute(number, "partition", text, sizeof(text)))
		return number;
	if (device_attribute(number, "../dev", text, sizeof(text)))
		parse_number(text, &whole);
	return whole;
}

/* Calls visit for the devices in a directory of sysfs (holders/, or the disk's own: its partitions) until it returns true. */
static bool each_device(dev_t number, const char *directory, const char *must_have, bool (*visit)(dev_t, void *), void *data)
{
	char path[PATH_MAX], name[PATH_MAX], text[64];
	struct dirent *entry;
	bool found = false;
	dev_t other;
	DIR *dir;

	sysfs_path(number, directory, path, sizeof(path));
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (must_have) {
			snprintf(name, sizeof(name), "%s/%s/%s", directory, entry->d_name, must_have);
			if (!device_attribute(number, name, text, sizeof(text)))
				continue;
		}
		snprintf(name, sizeof(name), "%s/%s/dev", directory, entry->d_name);
		if (device_attribute(number, name, text, sizeof(text)) && parse_number(text, &other))
			found = visit(other, data);
	}
	closedir(dir);
	return found;
}

struct search {
	dev_t number;
	bool (*next)(dev_t number, struct search *search); /* does any device that is one step from this one lead to it? */
	int depth;
};

static bool leads_to(dev_t number, void *data)
{
	struct search *search = data;
	bool found;

	if (number == search->number)
		return true;
	if (search->depth >= DEPTH)
		return false;
	search->depth++;
	found = search->next(number, search);
	search->depth--;
	return found;
}

static bool up(dev_t number, struct search *search)
{
	return each_device(number, "holders", NULL, leads_to, search);
}

static bool (*leaves_out)(dev_t number);

void device_leave_out(bool (*which)(dev_t number))
{
	leaves_out = which;
}

bool device_worth_reading(dev_t number)
{
	char text[64];

	if (major(number) == FLOPPY_MAJOR || (leaves_out && leaves_out(number)))
		return false;
	if (!device_attribute(number, "size", text, sizeof(text)) || !strcmp(text, "0"))
		return false;
	return !device_attribute(number, "dm/suspended", text, sizeof(text)) || !strcmp(text, "0");
}

bool device_is_below(dev_t below, dev_t above)
{
	struct search search = { .number = above, .next = up };

	return up(below, &search);
}

/* To what a loop device shows: a device, or that of its file. */
static bool down_loop(dev_t number, struct search *search)
{
	char path[PATH_MAX];
	struct stat status;

	return device_attribute(number, "loop/backing_file", path, sizeof(path)) && !stat(path, &status) &&
	       leads_to(S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev, search);
}

static bool down(dev_t number, struct search *search)
{
	dev_t whole = device_whole_disk(number);

	return (whole != number && leads_to(whole, search)) || each_device(number, "slaves", NULL, leads_to, search) || down_loop(number, search);
}

bool device_lies_on(dev_t above, dev_t below)
{
	struct search search = { .number = below, .next = down };

	return leads_to(above, &search);
}

struct usage {
	char *text;
	size_t size;
};

static bool name_holder(dev_t number, void *data)
{
	struct usage *usage = data;
	char node[PATH_MAX], name[256];

	if (!device_node(number, node, sizeof(node)))
		snprintf(node, sizeof(node), "%u:%u", major(number), minor(number));
	if (device_attribute(number, "dm/name", name, sizeof(name)))
		snprintf(usage->text, usage->size, "held by %s (%s)", node, name);
	else
		snprintf(usage->text, usage->size, "held by %s", node);
	return true;
}

static bool find_mount(dev_t number, struct usage *usage)
{
	unsigned high, low;
	char *line = NULL, *where;
	size_t room = 0;
	bool found = false;
	FILE *file = fopen("/proc/self/mountinfo", "re");

	if (!file)
		return false;
	while (!found && getline(&line, &room, file) > 0) {
		if (sscanf(line, "%*u %*u %u:%u %*s %ms", &high, &low, &where) != 3)
			continue;
		found = makedev(high, low) == number;
		if (found)
			snprintf(usage->text, usage->size, "mounted on %s", where);
		free(where);
	}
	free(line);
	fclose(file);
	return found;
}

static bool find_swap(dev_t number, struct usage *usage)
{
	struct stat status;
	char *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *file = fopen("/proc/swaps", "re");

	if (!file)
		return false;
	while (!found && getline(&line, &room, file) > 0) {
		line[strcspn(line, " \t\n")] = 0;
		found = line[0] == '/' && !stat(line, &status) && S_ISBLK(status.st_mode) && status.st_rdev == number;
	}
	if (found)
		snprintf(usage->text, usage->size, "used as swap");
	free(line);
	fclose(file);
	return found;
}

/* file: what it shows.  Only of what is in /dev: a file on a server that is away would be waited for. */
static bool is_device(const char *file, dev_t number)
{
	struct stat status;

	return !strncmp(file, "/dev/", strlen("/dev/")) && !stat(file, &status) && S_ISBLK(status.st_mode) && status.st_rdev == number;
}

/* Does the loop device show this file?  It may have got another name since, or have several. */
static bool shows_file(unsigned loop, const struct stat *wanted)
{
	struct loop_info64 info;
	char node[32];
	bool shows;
	int fd;

	snprintf(node, sizeof(node), "/dev/loop%u", loop);
	fd = open(node, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	shows = !ioctl(fd, LOOP_GET_STATUS64, &info) && info.lo_device == wanted->st_dev && info.lo_inode == wanted->st_ino;
	close(fd);
	return shows;
}

/* A loop device is no holder of what it shows, for the kernel. */
static bool find_loop(const struct stat *wanted, struct usage *usage)
{
	DIR *directory = opendir("/sys/block");
	char path[PATH_MAX];
	unsigned loop;
	int end;
	bool found = false;
	struct dirent *entry;

	while (directory && !found && (entry = readdir(directory))) {
		if (sscanf(entry->d_name, "loop%u%n", &loop, &end) != 1 || entry->d_name[end])
			continue;
		snprintf(path, sizeof(path), "/sys/block/loop%u/loop/backing_file", loop);
		found = read_attribute(path, path, sizeof(path)) &&
			(S_ISBLK(wanted->st_mode) ? is_device(path, wanted->st_rdev) : shows_file(loop, wanted));
	}
	if (found)
		snprintf(usage->text, usage->size, "held by /dev/loop%u", loop);
	if (directory)
		closedir(directory);
	return found;
}

static bool used_itself(dev_t number, void *data)
{
	struct stat itself = { .st_mode = S_IFBLK, .st_rdev = number };
	struct usage *usage = data;

	return find_mount(number, usage) || find_swap(number, usage) || each_device(number, "holders", NULL, name_holder, usage) ||
	       find_loop(&itself, usage);
}

bool device_usage(dev_t number, char *text, size_t size)
{
	struct usage usage = { text, size };

	text[0] = 0;
	return used_itself(number, &usage) || each_device(number, ".", "partition", used_itself, &usage);
}

/* The same of what has this path; of an image, whose lock a loop device does not take, whether one shows it.  Empty text: nobody seen. */
static void path_usage(const char *path, char *text, size_t size)
{
	struct usage usage = { text, size };
	struct stat status;

	text[0] = 0;
	if (stat(path, &status))
		return;
	if (S_ISBLK(status.st_mode))
		device_usage(status.st_rdev, text, size);
	else if (S_ISREG(status.st_mode))
		find_loop(&status, &usage);
}

/* LOCK_EX of the whole disk's node.  Returns the descriptor, or -errno. */
static int lock_whole_disk(dev_t number)
{
	char node[PATH_MAX];
	int fd, error = -EBUSY;

	if (!device_node(device_whole_disk(number), node, sizeof(node)))
		return -ENXIO;
	fd = open(node, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return fd;
		error = -errno;
		if (error != -EWOULDBLOCK && error != -EINTR)
			break;
		usleep(100000);
	}
	close(fd);
	return error;
}

static int block_facts(struct device *device)
{
	char text[64];
	int read_only = 0, logical = 512;

	if (ioctl(device->fd, BLKGETSIZE64, &device->bytes) || ioctl(device->fd, BLKROGET, &read_only) ||
	    ioctl(device->fd, BLKSSZGET, &logical))
		return -errno;
	device->read_only = read_only;
	device->logical_block = (unsigned)logical;
	device->zoned = device_attribute(device->number, "queue/zoned", text, sizeof(text)) && strcmp(text, "none");
	return 0;
}

/* Does nobody else use it meanwhile? */
static bool is_alone(enum device_access access)
{
	return access == DEVICE_CLAIM || access == DEVICE_EXAMINE;
}

/* The descriptors of a device; *step says what failed.  Returns 0 or -errno. */
static int open_descriptors(struct device *device, enum device_access access, const char **step)
{
	bool writes = access == DEVICE_CLAIM || access == DEVICE_BESIDE;
	int flags = (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK;
	struct stat status;
	dev_t number;

	*step = "open";
	if (stat(device->path, &status))
		return -errno;
	number = status.st_rdev;
	device->block = S_ISBLK(status.st_mode);
	if (!device->block && !S_ISREG(status.st_mode))
		return -ENOTBLK;
	if (device->block && writes) {
		device->lock = lock_whole_disk(status.st_rdev);
		*step = "lock the whole disk of";
		if (device->lock < 0)
			return device->lock;
		*step = "open";
	}
	device->fd = open(device->path, flags | (device->block && is_alone(access) ? O_EXCL : 0));
	if (device->fd < 0 || fstat(device->fd, &status))
		return -errno;
	if (S_ISBLK(status.st_mode) != device->block || status.st_rdev != number)
		return -ESTALE; /* another one has this path now */
	*step = "read the size of";
	if (!device->block) {
		device->bytes = (uint64_t)status.st_size;
		device->logical_block = 512;
		*step = "lock";
		return access != DEVICE_READ && flock(device->fd, LOCK_EX | LOCK_NB) ? -errno : 0;
	}
	device->number = status.st_rdev;
	device->direct = open(device->path, (flags & ~O_NONBLOCK) | O_DIRECT);
	if (device->direct < 0 || fstat(device->direct, &status))
		return -errno;
	if (!S_ISBLK(status.st_mode) || status.st_rdev != number)
		return -ESTALE;
	return block_facts(device);
}

static int descriptors(struct device *device, const char *path, enum device_access access, const char **step)
{
	int error;

	*device = (struct device){ .fd = -1, .direct = -1, .lock = -1, .path = must_allocate(strdup(path)) };
	error = open_descriptors(device, access, step);
	if (error)
		device_close(device);
	return error;
}

int device_try(struct device *device, const char *path)
{
	const char *step;

	return descriptors(device, path, DEVICE_READ, &step);
}

int device_try_part(struct device *device, const char *path, uint64_t start, uint64_t sectors)
{
	int error = device_try(device, path);
	uint64_t all = error ? 0 : device->bytes >> LARDER_SECTOR_SHIFT;

	if (error)
		return error;
	if (start % (BLOCK >> LARDER_SECTOR_SHIFT) || start > all || sectors > all - start) {
		device_close(device);
		return -ENXIO;
	}
	device->start = start << LARDER_SECTOR_SHIFT;
	device->bytes = sectors << LARDER_SECTOR_SHIFT;
	return 0;
}

int device_open(struct device *device, const char *path, enum device_access access)
{
	char usage[PATH_MAX] = "";
	const char *step;
	int error;

	if (is_alone(access))
		path_usage(path, usage, sizeof(usage));
	if (*usage)
		return complain(LARDER_BUSY, "%s: in use: %s; release it first", path, usage);
	error = descriptors(device, path, access, &step);
	switch (-error) {
	case 0:
		return LARDER_DONE;
	case ENOENT:
	case ENXIO:
	case ENODEV:
		return complain(LARDER_NOT_FOUND, "%s: no such device; see lsblk", path);
	case ENOTBLK:
		return complain(LARDER_USAGE, "%s: neither a block device nor an image in a regular file", path);
	case EBUSY:
	case EWOULDBLOCK:
		return complain(LARDER_BUSY,
				"%s: in use by another program or by the kernel (cannot %s it); release it first, see lsblk and "
				"fuser",
				path, step);
	case EACCES:
	case EPERM:
		return complain(LARDER_FAILED, "%s: cannot %s it: %s; run larder as root", path, step, strerror(-error));
	default:
		return complain(LARDER_FAILED, "%s: cannot %s it: %s", path, step, strerror(-error));
	}
}

/* Its events are not kept apart from who writes (systemd: worker_lock_whole_disk()). */
static bool is_unlocked_by_udev(dev_t number)
{
	static const char *const names[] = { "dm-", "md", "drbd" };
	char node[PATH_MAX];
	bool unlocked = false;

	if (!device_node(device_whole_disk(number), node, sizeof(node)))
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlocked |= !strncmp(node + strlen("/dev/"), names[i], strlen(names[i]));
	return unlocked;
}

void device_close(struct device *device)
{
	bool tell = device->lock >= 0 && is_unlocked_by_udev(device->number);

	if (device->lock >= 0)
		close(device->lock);
	if (device->direct >= 0)
		close(device->direct);
	if (device->fd >= 0)
		close(device->fd);
	if (tell)
		device_set_attribute(device->number, "uevent", "change");
	free(device->path);
	*device = (struct device){ .fd = -1, .direct = -1, .lock = -1 };
}

void *device_buffer(size_t bytes)
{
	void *buffer = NULL;

	if (posix_memalign(&buffer, BLOCK, bytes))
		buffer = NULL;
	return memset(must_allocate(buffer), 0, bytes);
}

static int within(const struct device *device, uint64_t offset, uint64_t bytes)
{
	return bytes > device->bytes || offset > device->bytes - bytes ? -ENXIO : 0;
}

static int io_descriptor(const struct device *device)
{
	return device->direct >= 0 ? device->direct : device->fd;
}

int device_read(const struct device *device, uint64_t offset, void *buffer, size_t bytes)
{
	int error = within(device, offset, bytes);
	char *place = buffer;

	while (!error && bytes) {
		ssize_t done = pread(io_descriptor(device), place, bytes, (off_t)(device->start + offset));

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -EIO;
		place += done;
		offset += (uint64_t)done;
		bytes -= (size_t)done;
	}
	return error;
}

int device_write(const struct device *device, uint64_t offset, const void *buffer, size_t bytes)
{
	int error = within(device, offset, bytes);
	const char *place = buffer;

	while (!error && bytes) {
		ssize_t done = pwrite(io_descriptor(device), place, bytes, (off_t)(device->start + offset));

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -EIO;
		place += done;
		offset += (uint64_t)done;
		bytes -= (size_t)done;
	}
	return error;
}

int device_zero(const struct device *device, uint64_t offset, uint64_t bytes)
{
	size_t chunk = 1u << 20;
	void *zeroes = device_buffer(chunk);
	int error = 0;

	while (!error && bytes) {
		size_t now = bytes < chunk ? (size_t)bytes : chunk;

		error = device_write(device, offset, zeroes, now);
		offset += now;
		bytes -= now;
	}
	free(zeroes);
	return error;
}

int device_discard(const struct device *device, uint64_t offset, uint64_t bytes)
{
	uint64_t range[2] = { device->start + offset, bytes };

	return ioctl(io_descriptor(device), BLKDISCARD, range) ? -errno : 0;
}

int device_sync(const struct device *device)
{
	return fsync(io_descriptor(device)) ? -errno : 0;
}
