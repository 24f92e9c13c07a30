// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A state put on simulated disks.  What is durable is saved there; each state is a few writes over it, taken back by "restore".
 *
 * Or in regular files, for whoever reads them without a kernel: what is durable is a file of its own, copied for each state.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "explore.h"

#define ROOM	(1u << 20)

static const char *images;	/* directory; NULL: simulated disks */

int control(const char *format, ...)
{
	char line[256];
	int fd = open(CONTROL, O_WRONLY | O_CLOEXEC), n, tries;
	va_list args;
	ssize_t done = -1;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	/* busy: whoever had the disk open may still be closing it */
	for (tries = 0; fd >= 0 && tries < 2000; tries++) {
		done = write(fd, line, n);
		if (done == n || errno != EBUSY)
			break;
		usleep(500);
	}
	n = done == n ? 0 : -errno;
	if (n)
		fprintf(stderr, "explore: simdisk: %s: %s\n", line, strerror(-n));
	if (fd >= 0)
		close(fd);
	return n;
}

int mark(const char *text)
{
	int fd = open(RECORDING, O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		err = -errno;
	if (fd >= 0)
		close(fd);
	return err;
}

bool disks_are_images(void)
{
	return images;
}

int disk_open(const struct disk *d)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", images ? images : "/dev", d->name);
	return open(path, images ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
}

static int open_durable(const struct disk *d)
{
	char path[256];

	if (!images)
		return disk_open(d);
	snprintf(path, sizeof(path), "%s/%s.durable", images, d->name);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

int disks_in(struct recording *r, const char *directory)
{
	struct disk *d;

	images = directory;
	for (d = r->disk; d < r->disk + r->nr_disks; d++) {
		d->durable = open_durable(d);
		if (d->durable < 0 || ftruncate(d->durable, 0) || ftruncate(d->durable, d->bytes))
			return -errno;
		d->mapped = mmap(NULL, d->bytes, PROT_READ, MAP_SHARED, d->durable, 0);
		if (d->mapped == MAP_FAILED)
			return -errno;
	}
	return 0;
}

static int copy_durable(const struct disk *d, int to)
{
	off_t at = 0, end;

	if (ftruncate(to, 0) || ftruncate(to, d->bytes))
		return -errno;
	for (; (at = lseek(d->durable, at, SEEK_DATA)) >= 0; at = end) {
		end = lseek(d->durable, at, SEEK_HOLE);
		if (pwrite(to, d->mapped + at, end - at, at) != end - at)
			return -EIO;
	}
	return errno == ENXIO ? 0 : -errno;
}

/* Sectors [i, end) of a change. */
static int write_run(int fd, const struct entry *e, uint32_t i, uint32_t end)
{
	static uint8_t *buf;
	uint32_t n;

	if (!buf && posix_memalign((void **)&buf, 4096, ROOM))
		exit(2);
	for (; i < end; i += n) {
		n = end - i < ROOM / SECTOR ? end - i : ROOM / SECTOR;
		if (entry_data(e))
			memcpy(buf, (const uint8_t *)entry_data(e) + (size_t)i * SECTOR, (size_t)n * SECTOR);
		else
			memset(buf, 0, (size_t)n * SECTOR);
		if (pwrite(fd, buf, (size_t)n * SECTOR, (e->sector + i) * SECTOR) != (ssize_t)n * SECTOR)
			return -EIO;
	}
	return 0;
}

static int write_due(struct disk *d, int fd)
{
	unsigned int k;
	uint32_t i, end;
	int err = 0;

	for (k = 0; k < d->nr_due; k++) {
		const struct change *c = &d->due[k];

		for (i = 0; i < c->e->sectors && !err; i = end) {
			for (end = i; end < c->e->sectors && (!c->mask || c->mask[end]); end++)
				;
			err = write_run(fd, c->e, i, end);
			end += end == i;
		}
		change_free(&d->due[k]);
	}
	d->nr_due = 0;
	return err;
}

int disks_write_due(struct recording *r, bool save)
{
	unsigned int d;
	int fd, err = 0;

	for (d = 0; d < r->nr_disks && !err; d++) {
		if (r->disk[d].nr_due) {
			fd = open_durable(&r->disk[d]);
			err = fd < 0 ? -errno : write_due(&r->disk[d], fd);
			if (fd >= 0)
				close(fd);
		}
		if (!err && save && !images)
			err = control("save name=%s", r->disk[d].name);
	}
	if (err)
		fprintf(stderr, "explore: cannot write the disks: %s\n", strerror(-err));
	return err;
}

int disks_restore(const struct recording *r)
{
	unsigned int d;
	int err = 0;

	for (d = 0; d < r->nr_disks && !err && !images; d++)
		err = control("restore name=%s", r->disk[d].name);
	return err;
}

int disks_write_open(const struct recording *r, uint64_t seed, uint64_t kind)
{
	unsigned int d, c;
	uint32_t i, end, n;
	int fd, err = 0;

	for (d = 0; d < r->nr_disks && !err; d++) {
		if (!r->disk[d].nr_open && !images)
			continue;
		fd = disk_open(&r->disk[d]);
		if (fd < 0)
			return -errno;
		if (images)
			err = copy_durable(&r->disk[d], fd);
		for (c = 0; c < r->disk[d].nr_open && !err; c++) {
			n = r->disk[d].open[c].e->sectors;
			for (i = 0; i < n && !err; i = end) {
				for (end = i; end < n && state_has(r, seed, kind, d, c, end); end++)
					;
				err = write_run(fd, r->disk[d].open[c].e, i, end);
				end += end == i;
			}
		}
		close(fd);
	}
	return err;
}
