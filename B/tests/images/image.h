/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the writer and the reader of images share: how they end, and the contents of images.  Checksums and hashes are those of the command's library
 * (lib/checksum.c), written from docs/on-disk-format.md; nothing of kernel/format.c is used.
 */
#ifndef LARDER_IMAGE_H
#define LARDER_IMAGE_H

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../kernel/larder_format.h"
#include "../../lib/checksum.h"
#include "../../lib/crc32c.h"

#define SECTOR 512u

static inline void __attribute__((__noreturn__, __format__(__printf__, 1, 2))) die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static inline void *allocate(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p)
		die("no memory for %zu bytes", bytes);
	return p;
}

static inline void image_write(int fd, const char *name, const void *p, size_t bytes, uint64_t at)
{
	const char *b = p;

	while (bytes) {
		ssize_t n = pwrite(fd, b, bytes, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die("%s: cannot write %zu bytes at %" PRIu64 ": %s", name, bytes, at, n ? strerror(errno) : "end of device");
		b += n;
		at += (uint64_t)n;
		bytes -= (size_t)n;
	}
}

/*
 * Contents of images made with --pattern: each sector of 512 bytes says of which volume sector it is and which version: 0 is the backing's, others are
 * the sequence number of the record (1: of one before the checkpoint).
 */
static inline void image_pattern(void *p, uint64_t sector, uint32_t sectors, uint64_t version)
{
	uint64_t *w = p;

	for (uint32_t i = 0; i < sectors; i++, w += SECTOR / 8) {
		w[0] = htole64(sector + i);
		w[1] = htole64(version);
		for (unsigned k = 2; k < SECTOR / 8; k++)
			w[k] = htole64(hash_mix(sector + i + (version << 40) + k));
	}
}

#endif
