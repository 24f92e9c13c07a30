// SPDX-License-Identifier: GPL-2.0-or-later
/* Direct I/O to a block device; see device.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "device.h"

int device_open(struct device *d, const char *path, unsigned int qd)
{
	struct stat st;
	int block = 512;

	memset(d, 0, sizeof(*d));
	d->fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (d->fd < 0 || fstat(d->fd, &st))
		return -errno;
	if (S_ISBLK(st.st_mode)) {
		if (ioctl(d->fd, BLKGETSIZE64, &d->bytes) || ioctl(d->fd, BLKSSZGET, &block))
			return -errno;
	} else {
		d->bytes = st.st_size;
		block = 4096;
	}
	d->block = block;
	/* an event ring with room to spare: io_submit() must not fail for want of it */
	if (qd && syscall(SYS_io_setup, qd * 2, &d->aio))
		return -errno;
	return 0;
}

void device_close(struct device *d)
{
	if (d->aio)
		syscall(SYS_io_destroy, d->aio);
	close(d->fd);
}

static int submit(struct device *d, struct iocb *cb)
{
	long n;

	do {
		n = syscall(SYS_io_submit, d->aio, 1, &cb);
	} while (n < 0 && errno == EINTR);
	if (n == 1)
		return 0;
	return n < 0 ? -errno : -EAGAIN;
}

int device_submit_rw(struct device *d, struct iocb *cb, bool write, bool fua, void *buf, size_t bytes, uint64_t offset)
{
	uint64_t tag = cb->aio_data;

	*cb = (struct iocb) {
		.aio_data = tag, .aio_lio_opcode = write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD, .aio_fildes = d->fd,
		.aio_buf = (uintptr_t)buf, .aio_nbytes = bytes, .aio_offset = offset, .aio_rw_flags = fua ? RWF_DSYNC : 0,
	};
	return submit(d, cb);
}

int device_submit_flush(struct device *d, struct iocb *cb)
{
	uint64_t tag = cb->aio_data;

	*cb = (struct iocb) { .aio_data = tag, .aio_lio_opcode = IOCB_CMD_FDSYNC, .aio_fildes = d->fd };
	return submit(d, cb);
}

int device_reap(struct device *d, struct completion *c, int min, int max)
{
	struct io_event ev[64];
	struct iocb *cb;
	long n, i;

	if (max > 64)
		max = 64;
	do {
		n = syscall(SYS_io_getevents, d->aio, min, max, ev, NULL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (i = 0; i < n; i++) {
		cb = (struct iocb *)(uintptr_t)ev[i].obj;
		c[i].tag = ev[i].data;
		c[i].error = (int64_t)ev[i].res < 0 ? (int)ev[i].res : (uint64_t)ev[i].res != cb->aio_nbytes ? -EIO : 0;
	}
	return n;
}

int device_discard(struct device *d, uint64_t offset, uint64_t bytes)
{
	uint64_t range[2] = { offset, bytes };

	return ioctl(d->fd, BLKDISCARD, range) ? -errno : 0;
}

int device_zero(struct device *d, uint64_t offset, uint64_t bytes)
{
	uint64_t range[2] = { offset, bytes };

	return ioctl(d->fd, BLKZEROOUT, range) ? -errno : 0;
}

int device_read(struct device *d, void *buf, size_t bytes, uint64_t offset)
{
	ssize_t n;

	do {
		n = pread(d->fd, buf, bytes, offset);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : (size_t)n == bytes ? 0 : -EIO;
}
