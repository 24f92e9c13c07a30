/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where things lie on a member: pure arithmetic, no I/O. */
#ifndef LARDER_LAYOUT_H
#define LARDER_LAYOUT_H

#include <stdint.h>

#include "../kernel/larder_format.h"

struct cache_layout {
	uint32_t segment_size; /* bytes; 0 on the way in: choose */
	uint32_t nr_segments;
	uint64_t segments_offset; /* bytes */
	uint64_t copy_offset; /* bytes */
	uint32_t first_segment; /* of its cache: 0, or as cache_layout_behind() was told */
};

#define DATA_OFFSET_CHOSEN UINT64_MAX /* in the place of data_offset: as volume_data_offset() says */

struct volume_layout {
	uint64_t data_offset; /* bytes, given */
	uint64_t tail_reserve; /* bytes, given */
	uint64_t copy_offset; /* bytes; 0: no room for one */
	uint64_t sectors;
};

/* Of a device of so many bytes.  NULL: done; else why not, naming the field. */
const char *cache_layout(struct cache_layout *layout, uint64_t bytes, unsigned logical_block);
/* Behind so many segments of the other SSDs of its cache.  NULL, or why not: see above. */
const char *cache_layout_behind(struct cache_layout *layout, uint32_t segments);
/* Segments that the SSD of a valid superblock has room for, were it so large. */
uint32_t cache_room(const struct larder_cache_sb *sb, uint64_t bytes);
const char *volume_layout(struct volume_layout *layout, uint64_t bytes, unsigned logical_block);

/* What a device wants its requests to be like, bytes; 0: it does not say. */
struct device_topology {
	uint64_t io_min, io_opt; /* chunk and stripe, of an array */
	uint64_t start; /* of a partition, in its disk */
	uint64_t alignment; /* of the disk: where its first stripe begins */
};
/* Where the data of a volume on it begin, so that they begin with a stripe, or a chunk; LARDER_DEF_DATA_OFFSET if that does not matter. */
uint64_t volume_data_offset(const struct device_topology *topology, uint64_t bytes);
/*
 * The same of an array that is not there yet, at most: its stripes have so many bytes (0: it has none), it has no more than
 * `bytes`, and it hands on what its disks want, each by itself or what all of them divide, as the kernel has it.
 */
uint64_t array_data_offset_most(const struct device_topology *disks, unsigned number, uint64_t stripe, uint64_t bytes);

#endif
