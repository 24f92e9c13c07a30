/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What of a volume is mapped to the cache: extents in regions of 2 MiB, as docs/on-disk-format.md, section 6, has them.  Memory
 * follows what is mapped, not the size of the volume.
 */
#ifndef LARDER_EXTENT_MAP_H
#define LARDER_EXTENT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../kernel/larder_format.h"

struct region {
	uint64_t number;
	uint32_t n, size;
	uint64_t *extent; /* sorted, disjoint, CPU order */
};

/* What the maps of a cache's volumes have in common. */
struct extent_usage {
	uint32_t segment_sectors;
	uint32_t *live; /* by segment: sectors mapped to it */
	uint64_t extents;
};

struct extent_map {
	struct region **slot; /* a hash table, open addressing */
	size_t size, used;
	struct extent_usage *usage;
};

static inline uint32_t extent_first(uint64_t e)
{
	return e & 0xfff;
}

static inline uint32_t extent_length(uint64_t e)
{
	return (e >> 12 & 0xfff) + 1;
}

static inline unsigned extent_state(uint64_t e)
{
	return e >> 24 & 0xf;
}

static inline uint64_t extent_cache(uint64_t e)
{
	return e >> 28;
}

static inline bool extent_is_dirty(uint64_t e)
{
	return extent_state(e) == LARDER_ST_DIRTY || extent_state(e) == LARDER_ST_ZERO;
}

/* NULL: nothing is mapped in that region. */
struct region *extent_map_find(const struct extent_map *map, uint64_t number);
/* Takes the extents of a region that has none yet: those for which keep() says yes. */
void extent_map_load(struct extent_map *map, uint64_t number, const uint64_t *extents, uint32_t n,
		     bool (*keep)(uint64_t e, void *data), void *data);
/* Maps, or with state LARDER_ST_NONE unmaps, a range. */
void extent_map_set(struct extent_map *map, uint64_t sector, uint64_t length, unsigned state, uint64_t cache);
/* Maps what is not dirty in the range, clean. */
void extent_map_fill(struct extent_map *map, uint64_t sector, uint64_t length, uint64_t cache);
/* What of the range is mapped to just that place, and dirty, becomes clean; what is a zero of that serial goes. */
void extent_map_clean(struct extent_map *map, uint64_t sector, uint64_t length, uint64_t cache);
/* Drops the extents for which keep() says no.  Returns how many. */
uint64_t extent_map_filter(struct extent_map *map, bool (*keep)(const struct region *r, uint64_t e, void *data), void *data);
void extent_map_clear(struct extent_map *map);
/* All regions by number; the caller frees the array, not what it points to. */
struct region **extent_map_regions(const struct extent_map *map, size_t *n);

#endif
