// SPDX-License-Identifier: GPL-2.0-or-later
/* A state put on simulated disks.  What is durable is saved there; each state is a few writes over it, taken back by "restore". */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "explore.h"

#define ROOM	(1u << 20)

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

static int open_disk(const struct disk *d)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/%s", d->name);
	return open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
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
			fd = open_disk(&r->disk[d]);
			err = fd < 0 ? -errno : write_due(&r->disk[d], fd);
			if (fd >= 0)
				close(fd);
		}
		if (!err && save)
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

	for (d = 0; d < r->nr_disks && !err; d++)
		err = control("restore name=%s", r->disk[d].name);
	return err;
}

int disks_write_open(const struct recording *r, uint64_t seed, uint64_t kind)
{
	unsigned int d, c;
	uint32_t i, end, n;
	int fd, err = 0;

	for (d = 0; d < r->nr_disks && !err; d++) {
		if (!r->disk[d].nr_open)
			continue;
		fd = open_disk(&r->disk[d]);
		if (fd < 0)
			return -errno;
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
