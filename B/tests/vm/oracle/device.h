/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The block device under test: direct I/O, asynchronous where the kernel has it (Linux AIO by raw system calls). */
#ifndef ORACLE_DEVICE_H
#define ORACLE_DEVICE_H

#include <linux/aio_abi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

struct device {
	int fd;
	uint64_t bytes;
	uint32_t block;		/* logical block size, bytes */
	aio_context_t aio;
};

struct completion {
	uint64_t tag;
	int error;		/* 0 or negative errno; a short transfer is -EIO */
};

/* All: 0 or negative errno.  qd: requests in flight at most; 0: no asynchronous I/O.  A regular file will do, for trials. */
int device_open(struct device *d, const char *path, unsigned int qd);
void device_close(struct device *d);

/* Asynchronous; iocb lives until the completion, whose tag is the iocb's aio_data. */
int device_submit_rw(struct device *d, struct iocb *cb, bool write, bool fua, void *buf, size_t bytes, uint64_t offset);
int device_submit_flush(struct device *d, struct iocb *cb);
/* Waits for at least min completions, returns how many (up to max). */
int device_reap(struct device *d, struct completion *c, int min, int max);

/* Synchronous.  -EOPNOTSUPP: the device does not discard. */
int device_discard(struct device *d, uint64_t offset, uint64_t bytes);
int device_zero(struct device *d, uint64_t offset, uint64_t bytes);
int device_read(struct device *d, void *buf, size_t bytes, uint64_t offset);

#endif
