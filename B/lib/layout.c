// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where things lie on a member.
 *
 * SSD:     superblock 4 KiB | tables 128 KiB .. 384 KiB | segments from 1 MiB on, at a multiple of their size if that costs less
 * than 1 %
 *          of the device | copy of the superblock: the last whole 4 KiB of the device, counted from its beginning.
 * backing: superblock 4 KiB | copy in the last 4 KiB before data_offset, or before 1 MiB if the data begin behind that, where all look
 * for it who find no superblock; if it fits behind the superblock | data | tail reserve.
 */
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>

#include "layout.h"

#define WANTED_SEGMENTS 256u /* of a small SSD; one that has 512 of the default size takes that */
#define DATA_OFFSET_MAX (64u << 20) /* of one that is chosen; nor is it more than a 64th of the device */
#define DATA_OFFSET_SHARE 64u

static uint32_t choose_segment_size(uint64_t bytes)
{
	uint32_t size = LARDER_DEF_SEGMENT_SIZE;

	if (bytes / size >= 2 * WANTED_SEGMENTS)
		return size;
	do
		size /= 2;
	while (size > LARDER_MIN_SEGMENT_SIZE && bytes / size < WANTED_SEGMENTS);
	return size;
}

/* All segments of a cache together, of that size in bytes. */
static const char *check_sum(uint64_t segments, uint32_t size)
{
	if (segments <= 1ull << (LARDER_CACHE_SECTOR_BITS + LARDER_SECTOR_SHIFT) >> __builtin_ctz(size))
		return NULL;
	return "size: a cache has at most 32 TiB, all its SSDs together; give a partition of it";
}

const char *cache_layout(struct cache_layout *layout, uint64_t bytes, unsigned logical_block)
{
	uint32_t size = layout->segment_size ? layout->segment_size : choose_segment_size(bytes);
	uint64_t aligned, number;
	const char *why;

	if (logical_block > LARDER_SLOT_SIZE)
		return "logical block size: is above 4096 bytes";
	if (size < LARDER_MIN_SEGMENT_SIZE || size > LARDER_MAX_SEGMENT_SIZE || (size & (size - 1)))
		return "--segment-size: must be a power of two from 128K to 16M";
	if (bytes < LARDER_SEGMENTS_OFFSET + LARDER_SB_SIZE)
		return "size: too small for a cache, which has at least 32 segments (5 MiB with segments of 128K)";
	layout->segment_size = size;
	layout->copy_offset = (bytes & ~(uint64_t)(LARDER_SB_SIZE - 1)) - LARDER_SB_SIZE;
	layout->segments_offset = LARDER_SEGMENTS_OFFSET;
	aligned = (LARDER_SEGMENTS_OFFSET + (uint64_t)size - 1) & ~((uint64_t)size - 1);
	if ((aligned - LARDER_SEGMENTS_OFFSET) * 100 < bytes)
		layout->segments_offset = aligned;
	number = (layout->copy_offset - layout->segments_offset) / size;
	if (number < LARDER_MIN_SEGMENTS)
		return "size: too small for 32 segments; a larger device, or a smaller --segment-size (at least 128K)";
	why = check_sum(number, size);
	if (why)
		return why;
	layout->nr_segments = (uint32_t)number;
	layout->first_segment = 0;
	return NULL;
}

const char *cache_layout_behind(struct cache_layout *layout, uint32_t segments)
{
	layout->first_segment = segments;
	return check_sum((uint64_t)segments + layout->nr_segments, layout->segment_size);
}

uint32_t cache_room(const struct larder_cache_sb *sb, uint64_t bytes)
{
	uint64_t size = le32toh(sb->segment_size), end = (bytes & ~(uint64_t)(LARDER_SB_SIZE - 1)) - LARDER_SB_SIZE, number, most;

	if (bytes < LARDER_SB_SIZE || end < le64toh(sb->segments_offset))
		return 0;
	number = (end - le64toh(sb->segments_offset)) / size;
	most = (1ull << (LARDER_CACHE_SECTOR_BITS + LARDER_SECTOR_SHIFT)) / size - le32toh(sb->first_segment);
	return (uint32_t)(number < most ? number : most);
}

const char *volume_layout(struct volume_layout *layout, uint64_t bytes, unsigned logical_block)
{
	uint64_t offset = layout->data_offset, tail = layout->tail_reserve, copy;

	if (offset < LARDER_MIN_DATA_OFFSET || offset % LARDER_SLOT_SIZE || offset % logical_block)
		return "--data-offset: must be a multiple of 4096, and of the device's logical block size, and at least 8K";
	if (tail % LARDER_SLOT_SIZE || tail % logical_block)
		return "--tail-reserve: must be a multiple of 4096 and of the device's logical block size";
	if (offset >= bytes || tail >= bytes - offset || bytes - offset - tail < LARDER_SLOT_SIZE)
		return "size: too small: nothing is left between --data-offset and --tail-reserve";
	copy = (offset < LARDER_DEF_DATA_OFFSET ? offset : LARDER_DEF_DATA_OFFSET) - LARDER_SB_SIZE;
	layout->copy_offset = copy >= LARDER_SB_OFFSET + LARDER_SB_SIZE ? copy : 0;
	layout->sectors = (bytes - offset - tail) / logical_block * (logical_block >> LARDER_SECTOR_SHIFT);
	return NULL;
}

/* More is not given to an offset that is chosen, unless it is the default. */
static uint64_t offset_most(uint64_t bytes)
{
	return bytes / DATA_OFFSET_SHARE < DATA_OFFSET_MAX ? bytes / DATA_OFFSET_SHARE : DATA_OFFSET_MAX;
}

static bool unit_will_do(uint64_t unit)
{
	return unit && unit % LARDER_SLOT_SIZE == 0 && unit <= DATA_OFFSET_MAX;
}

/* The first place from the default on where a unit begins; 0: none that will do. */
static uint64_t begin_of_unit(const struct device_topology *topology, uint64_t unit, uint64_t bytes)
{
	uint64_t most = offset_most(bytes), into, offset;

	if (!unit_will_do(unit))
		return 0;
	into = (topology->start + LARDER_DEF_DATA_OFFSET + unit - topology->alignment % unit) % unit;
	offset = LARDER_DEF_DATA_OFFSET + (into ? unit - into : 0);
	return offset % LARDER_SLOT_SIZE || (offset > most && offset != LARDER_DEF_DATA_OFFSET) ? 0 : offset;
}

uint64_t volume_data_offset(const struct device_topology *topology, uint64_t bytes)
{
	uint64_t offset = 0;

	/* some bridges name their largest request, which is no multiple of anything */
	if (!topology->io_min || topology->io_opt % topology->io_min == 0)
		offset = begin_of_unit(topology, topology->io_opt, bytes);
	if (!offset && topology->io_min > LARDER_SLOT_SIZE)
		offset = begin_of_unit(topology, topology->io_min, bytes);
	return offset ? offset : LARDER_DEF_DATA_OFFSET;
}

/* What both divide; 0 is none, and so is what is too large for a unit. */
static uint64_t common_multiple(uint64_t a, uint64_t b)
{
	uint64_t x = a, y = b, rest;

	if (!a || !b || a > DATA_OFFSET_MAX || b > DATA_OFFSET_MAX)
		return a > b ? a : b;
	for (; y; y = rest) {
		rest = x % y;
		x = y;
	}
	return a / x * b;
}

/* Where the first one begins in the array is not known. */
static uint64_t larger_offset(uint64_t offset, uint64_t unit, uint64_t bytes)
{
	uint64_t most = offset_most(bytes), behind = LARDER_DEF_DATA_OFFSET + unit;

	if (!unit_will_do(unit) || unit <= LARDER_SLOT_SIZE)
		return offset;
	behind = behind < most ? behind : most;
	return behind > offset ? behind : offset;
}

uint64_t array_data_offset_most(const struct device_topology *disks, unsigned number, uint64_t stripe, uint64_t bytes)
{
	uint64_t offset = larger_offset(LARDER_DEF_DATA_OFFSET, stripe, bytes), all = 0;

	for (unsigned i = 0; i < number; i++) {
		offset = larger_offset(offset, disks[i].io_min, bytes);
		offset = larger_offset(offset, disks[i].io_opt, bytes);
		all = common_multiple(all, disks[i].io_opt);
	}
	offset = larger_offset(offset, all, bytes);
	return larger_offset(offset, common_multiple(all, stripe), bytes);
}
