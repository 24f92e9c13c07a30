/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Checksums and hashes of docs/on-disk-format.md, section 1. */
#ifndef LARDER_CHECKSUM_H
#define LARDER_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* crc32c of a block with the four bytes of its own crc field taken as zero. */
uint32_t block_crc(const void *block, size_t bytes, size_t crc_field);
/* The log hash of an epoch: what its commit blocks and summaries carry. */
uint64_t epoch_hash(const uint8_t cache_uuid[16], uint64_t secret);
/* What the chunks of a checkpoint carry.  secret: of the newest epoch. */
uint64_t checkpoint_hash(const uint8_t cache_uuid[16], uint64_t secret, uint64_t sequence);
/* Spreads the bits of a number, reversibly. */
uint64_t hash_mix(uint64_t h);

#endif
