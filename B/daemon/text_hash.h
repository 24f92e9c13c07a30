/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef LARDER_TEXT_HASH_H
#define LARDER_TEXT_HASH_H

#include <stdint.h>

#define TEXT_HASH_BASIS 0xcbf29ce484222325ull

/* FNV-1a, 64 bits (Fowler, Noll and Vo): goes on from what came before, TEXT_HASH_BASIS at first. */
static inline uint64_t text_hash(uint64_t value, const char *text)
{
	while (*text)
		value = (value ^ (unsigned char)*text++) * 0x100000001b3ull;
	return value;
}

#endif
