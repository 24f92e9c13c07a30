/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef LARDER_CRC32C_H
#define LARDER_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Castagnoli, reflected; the caller gives the initial value and inverts the result, or (as the disk format has it) does not. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

#endif
