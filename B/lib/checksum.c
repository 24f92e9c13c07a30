// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checksums and hashes of docs/on-disk-format.md, section 1.
 */
#include <endian.h>

#include "checksum.h"
#include "crc32c.h"

#define FNV_BASIS 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull

uint32_t block_crc(const void *block, size_t bytes, size_t crc_field)
{
	const uint8_t *p = block;
	uint32_t crc = crc32c(~0u, p, crc_field);

	crc = crc32c(crc, "\0\0\0", 4);
	return crc32c(crc, p + crc_field + 4, bytes - crc_field - 4);
}

static uint64_t fnv(uint64_t h, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * FNV_PRIME;
	return h;
}

uint64_t hash_mix(uint64_t h)
{
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ h >> 27) * 0x94d049bb133111ebull;
	return h ^ h >> 31;
}

uint64_t epoch_hash(const uint8_t cache_uuid[16], uint64_t secret)
{
	uint64_t le = htole64(secret);

	return hash_mix(fnv(fnv(FNV_BASIS, cache_uuid, 16), &le, sizeof(le)));
}

uint64_t checkpoint_hash(const uint8_t cache_uuid[16], uint64_t secret, uint64_t sequence)
{
	uint64_t le[2] = { htole64(secret), htole64(sequence) };

	return hash_mix(fnv(fnv(FNV_BASIS, cache_uuid, 16), le, sizeof(le)));
}
