// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * crc32c, a table of 256 words made at the first call.  The command checksums a few hundred KiB: nothing faster is needed.
 */
#include "crc32c.h"

#define POLYNOMIAL 0x82f63b78u /* x^32 + x^28 + x^27 + ... + 1, bits reversed */

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
	static uint32_t table[256];
	const uint8_t *p = data;

	if (!table[1])
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t value = i;

			for (int bit = 0; bit < 8; bit++)
				value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
			table[i] = value;
		}
	while (bytes--)
		crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
	return crc;
}
