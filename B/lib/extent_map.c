// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The map of a volume: a hash table of regions, each with a sorted array of extents.
 */
#include <stdlib.h>
#include <string.h>

#include "checksum.h"
#include "extent_map.h"
#include "message.h"

static uint64_t make(uint32_t first, uint32_t length, unsigned state, uint64_t cache)
{
	return first | (uint64_t)(length - 1) << 12 | (uint64_t)state << 24 | cache << 28;
}

/* The part [first, end) of e. */
static uint64_t part(uint64_t e, uint32_t first, uint32_t end)
{
	uint64_t cache = extent_cache(e) + (extent_state(e) == LARDER_ST_ZERO ? 0 : first - extent_first(e));

	return make(first, end - first, extent_state(e), cache);
}

static void account(struct extent_map *map, uint64_t e, int sign)
{
	if (extent_state(e) != LARDER_ST_ZERO)
		map->usage->live[extent_cache(e) / map->usage->segment_sectors] += (uint32_t)sign * extent_length(e);
	map->usage->extents += (uint64_t)sign;
}

static struct region **place(const struct extent_map *map, uint64_t number)
{
	size_t at = hash_mix(number) & (map->size - 1);

	while (map->slot[at] && map->slot[at]->number != number)
		at = (at + 1) & (map->size - 1);
	return &map->slot[at];
}

struct region *extent_map_find(const struct extent_map *map, uint64_t number)
{
	return map->size ? *place(map, number) : NULL;
}

static void grow(struct extent_map *map)
{
	struct extent_map larger = { .size = map->size ? 2 * map->size : 64 };

	larger.slot = must_allocate(calloc(larger.size, sizeof(*larger.slot)));
	for (size_t i = 0; i < map->size; i++)
		if (map->slot[i])
			*place(&larger, map->slot[i]->number) = map->slot[i];
	free(map->slot);
	map->slot = larger.slot;
	map->size = larger.size;
}

static struct region *find_or_add(struct extent_map *map, uint64_t number)
{
	struct region *r = extent_map_find(map, number);

	if (r)
		return r;
	if (4 * (map->used + 1) > 3 * map->size)
		grow(map);
	r = must_allocate(calloc(1, sizeof(*r)));
	r->number = number;
	*place(map, number) = r;
	map->used++;
	return r;
}

static void reserve(struct region *r, uint32_t n)
{
	if (n <= r->size)
		return;
	r->size = n + n / 4 + 4;
	r->extent = must_allocate(realloc(r->extent, r->size * sizeof(*r->extent)));
}

void extent_map_load(struct extent_map *map, uint64_t number, const uint64_t *extents, uint32_t n,
		     bool (*keep)(uint64_t e, void *data), void *data)
{
	struct region *r = find_or_add(map, number);

	reserve(r, n);
	for (uint32_t i = 0; i < n; i++) {
		if (!keep(extents[i], data))
			continue;
		r->extent[r->n++] = extents[i];
		account(map, extents[i], 1);
	}
}

/* Replaces what is in [first, end) of a region by 'by' (0: nothing). */
static void region_set(struct extent_map *map, struct region *r, uint32_t first, uint32_t end, uint64_t by)
{
	uint64_t next[LARDER_REGION_SECTORS + 2];
	bool done = !by;
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		uint64_t e = r->extent[i];
		uint32_t a = extent_first(e), b = a + extent_length(e);

		if (!done && a >= end) {
			next[n++] = by;
			done = true;
		}
		if (b <= first || a >= end) {
			next[n++] = e;
			continue;
		}
		account(map, e, -1);
		if (a < first) {
			next[n++] = part(e, a, first);
			account(map, next[n - 1], 1);
		}
		if (!done) {
			next[n++] = by;
			done = true;
		}
		if (b > end) {
			next[n++] = part(e, end, b);
			account(map, next[n - 1], 1);
		}
	}
	if (!done)
		next[n++] = by;
	if (by)
		account(map, by, 1);
	reserve(r, n);
	if (n)
		memcpy(r->extent, next, n * sizeof(*next));
	r->n = n;
}

void extent_map_set(struct extent_map *map, uint64_t sector, uint64_t length, unsigned state, uint64_t cache)
{
	while (length) {
		uint64_t number = sector / LARDER_REGION_SECTORS;
		uint32_t first = sector % LARDER_REGION_SECTORS, n = LARDER_REGION_SECTORS - first;
		struct region *r = state ? find_or_add(map, number) : extent_map_find(map, number);

		n = n < length ? n : (uint32_t)length;
		if (r)
			region_set(map, r, first, first + n, state ? make(first, n, state, cache) : 0);
		sector += n;
		length -= n;
		if (state != LARDER_ST_ZERO)
			cache += n;
	}
}

/* [first, end) of a region; cache: of its first sector. */
static void region_fill(struct extent_map *map, struct region *r, uint32_t first, uint32_t end, uint64_t cache)
{
	uint64_t before[LARDER_REGION_SECTORS];
	uint32_t n = r->n, at = first;

	if (n)
		memcpy(before, r->extent, n * sizeof(*before));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t a = extent_first(before[i]), b = a + extent_length(before[i]);

		if (!extent_is_dirty(before[i]) || b <= first || a >= end)
			continue;
		if (a > at)
			region_set(map, r, at, a, make(at, a - at, LARDER_ST_CLEAN, cache + (at - first)));
		at = b;
	}
	if (at < end)
		region_set(map, r, at, end, make(at, end - at, LARDER_ST_CLEAN, cache + (at - first)));
}

void extent_map_fill(struct extent_map *map, uint64_t sector, uint64_t length, uint64_t cache)
{
	for (uint64_t at = sector, end = sector + length; at < end;) {
		uint32_t first = at % LARDER_REGION_SECTORS, n = LARDER_REGION_SECTORS - first;

		n = n < end - at ? n : (uint32_t)(end - at);
		region_fill(map, find_or_add(map, at / LARDER_REGION_SECTORS), first, first + n, cache + (at - sector));
		at += n;
	}
}

/* [first, end) of a region; cache: of its first sector, or the serial. */
static void region_clean(struct extent_map *map, struct region *r, uint32_t first, uint32_t end, uint64_t cache, uint64_t serial)
{
	uint64_t before[LARDER_REGION_SECTORS];
	uint32_t n = r->n;

	if (n)
		memcpy(before, r->extent, n * sizeof(*before));
	for (uint32_t i = 0; i < n; i++) {
		uint64_t e = before[i];
		uint32_t a = extent_first(e), b = a + extent_length(e);

		a = a > first ? a : first;
		b = b < end ? b : end;
		if (a >= b)
			continue;
		if (extent_state(e) == LARDER_ST_ZERO && extent_cache(e) == serial)
			region_set(map, r, a, b, 0);
		else if (extent_state(e) == LARDER_ST_DIRTY && extent_cache(e) + (a - extent_first(e)) == cache + (a - first))
			region_set(map, r, a, b, make(a, b - a, LARDER_ST_CLEAN, cache + (a - first)));
	}
}

void extent_map_clean(struct extent_map *map, uint64_t sector, uint64_t length, uint64_t cache)
{
	for (uint64_t at = sector, end = sector + length; at < end;) {
		uint32_t first = at % LARDER_REGION_SECTORS, n = LARDER_REGION_SECTORS - first;
		struct region *r = extent_map_find(map, at / LARDER_REGION_SECTORS);

		n = n < end - at ? n : (uint32_t)(end - at);
		if (r)
			region_clean(map, r, first, first + n, cache + (at - sector), cache);
		at += n;
	}
}

uint64_t extent_map_filter(struct extent_map *map, bool (*keep)(const struct region *r, uint64_t e, void *data), void *data)
{
	uint64_t dropped = 0;

	for (size_t i = 0; i < map->size; i++) {
		struct region *r = map->slot[i];
		uint32_t n = 0;

		for (uint32_t k = 0; r && k < r->n; k++) {
			if (keep(r, r->extent[k], data)) {
				r->extent[n++] = r->extent[k];
				continue;
			}
			account(map, r->extent[k], -1);
			dropped++;
		}
		if (r)
			r->n = n;
	}
	return dropped;
}

void extent_map_clear(struct extent_map *map)
{
	for (size_t i = 0; i < map->size; i++) {
		struct region *r = map->slot[i];

		for (uint32_t k = 0; r && k < r->n; k++)
			account(map, r->extent[k], -1);
		if (r)
			free(r->extent);
		free(r);
	}
	free(map->slot);
	*map = (struct extent_map){ .usage = map->usage };
}

static int by_number(const void *a, const void *b)
{
	const struct region *const *x = a, *const *y = b;

	return (*x)->number < (*y)->number ? -1 : (*x)->number > (*y)->number;
}

struct region **extent_map_regions(const struct extent_map *map, size_t *n)
{
	struct region **all = must_allocate(calloc(map->used + 1, sizeof(*all)));

	*n = 0;
	for (size_t i = 0; i < map->size; i++)
		if (map->slot[i])
			all[(*n)++] = map->slot[i];
	qsort(all, *n, sizeof(*all), by_number);
	return all;
}
