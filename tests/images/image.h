/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the writer and the reader of images share: checksums and hashes of docs/on-disk-format.md, section 1, and whole reads and writes.
 * Written from that document; nothing of kernel/format.c is used.
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

/* The crc of a structure whose crc field is at byte 'field'. */
static inline uint32_t image_crc(const void *p, size_t bytes, size_t field)
{
	const uint8_t *b = p;
	uint32_t crc = crc32c(~0u, b, field);

	crc = crc32c(crc, "\0\0\0", 4);
	return crc32c(crc, b + field + 4, bytes - field - 4);
}

static inline uint64_t image_fnv(uint64_t h, const void *p, size_t n)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ b[i]) * 0x100000001b3ull;
	return h;
}

static inline uint64_t image_mix(uint64_t h)
{
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ h >> 27) * 0x94d049bb133111ebull;
	return h ^ h >> 31;
}

static inline uint64_t image_log_hash(const uint8_t uuid[16], uint64_t secret)
{
	uint64_t le = htole64(secret);

	return image_mix(image_fnv(image_fnv(0xcbf29ce484222325ull, uuid, 16), &le, 8));
}

static inline uint64_t image_checkpoint_hash(const uint8_t uuid[16], uint64_t secret, uint64_t sequence)
{
	uint64_t le[2] = { htole64(secret), htole64(sequence) };

	return image_mix(image_fnv(image_fnv(0xcbf29ce484222325ull, uuid, 16), le, 16));
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

/* false: a read error, or beyond the end */
static inline bool image_read(int fd, void *p, size_t bytes, uint64_t at)
{
	char *b = p;

	while (bytes) {
		ssize_t n = pread(fd, b, bytes, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		b += n;
		at += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return true;
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
			w[k] = htole64(image_mix(sector + i + (version << 40) + k));
	}
}

#endif
