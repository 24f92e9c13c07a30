// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Segments of a set of SSDs: where they are, which have the same contents (docs/on-disk-format.md, section 4.2), and reading them.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache_image.h"

/* By the newest table; also of an SSD that is not here. */
static const struct larder_table_device *segment_place(const struct cache_image *image, uint64_t segment)
{
	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++) {
		const struct larder_table_device *place = &image->table->devices[i];

		if (place->state && segment >= le32toh(place->first_segment) &&
		    segment - le32toh(place->first_segment) < le32toh(place->nr_segments))
			return place;
	}
	return NULL;
}

bool segment_exists(const struct cache_image *image, uint64_t segment)
{
	return segment_place(image, segment);
}

const struct device *segment_device(const struct cache_image *image, uint32_t segment, uint64_t *offset)
{
	const struct larder_table_device *place = segment_place(image, segment);
	const struct ssd *ssd = place ? image->set->member[place - image->table->devices] : NULL;

	*offset = place ? le64toh(place->segments_offset) +
				  (uint64_t)(segment - le32toh(place->first_segment)) * le32toh(image->sb->segment_size) :
			  0;
	return ssd ? &ssd->device : NULL;
}

int segment_read_at(const struct cache_image *image, uint32_t segment, uint64_t offset, void *buffer, size_t bytes)
{
	uint64_t at;
	const struct device *device = segment_device(image, segment, &at);

	return device ? device_read(device, at + offset, buffer, bytes) : -ENODEV;
}

unsigned segment_copies(const struct cache_image *image, uint32_t segment, uint32_t copy[SEGMENT_COPIES])
{
	unsigned n = 0;

	for (uint32_t next = segment + 1; next && n < SEGMENT_COPIES; next = image->mirror[next - 1])
		copy[n++] = next - 1;
	return n;
}

bool segment_pair_ok(const struct cache_image *image, uint64_t segment, uint64_t further)
{
	uint32_t second = (uint32_t)further, third = (uint32_t)(further >> 32);

	if (!further)
		return true;
	if (!second || !segment_exists(image, segment) || !segment_exists(image, second - 1) || (third && !segment_exists(image, third - 1)))
		return false;
	return segment_place(image, segment) != segment_place(image, second - 1) &&
	       (!third || (segment_place(image, third - 1) != segment_place(image, segment) &&
			   segment_place(image, third - 1) != segment_place(image, second - 1)));
}

static void detach(uint32_t *to, uint32_t *from, uint32_t segment)
{
	if (to[segment])
		from[to[segment] - 1] = 0;
	to[segment] = 0;
}

/* A further copy leaves its chain, the others stay what they are; of a first one none is left. */
static void unpair(struct cache_image *image, uint32_t segment)
{
	uint32_t before = image->mirror_of[segment], next = image->mirror[segment];

	detach(image->mirror_of, image->mirror, segment);
	detach(image->mirror, image->mirror_of, segment);
	if (before && next) {
		image->mirror[before - 1] = next;
		image->mirror_of[next - 1] = before;
		return;
	}
	for (uint32_t behind; !before && next; next = behind) {
		behind = image->mirror[next - 1];
		detach(image->mirror, image->mirror_of, next - 1);
	}
}

void segment_pair(struct cache_image *image, uint32_t segment, uint64_t further)
{
	uint32_t last = segment;

	image->window.segment = LARDER_NO_SEGMENT;
	unpair(image, segment);
	for (; (uint32_t)further; further >>= 32) {
		uint32_t next = (uint32_t)further - 1;

		unpair(image, next);
		image->mirror[last] = next + 1;
		image->mirror_of[next] = last + 1;
		last = next;
	}
}

void segment_next(struct cache_image *image, uint32_t segment, uint32_t next, bool first)
{
	image->window.segment = LARDER_NO_SEGMENT;
	if (first)
		detach(image->mirror_of, image->mirror, segment);
	detach(image->mirror, image->mirror_of, segment);
	detach(image->mirror_of, image->mirror, next);
	image->mirror[segment] = next + 1;
	image->mirror_of[next] = segment + 1;
}

static void read_copy(const struct cache_image *image, uint32_t segment, uint8_t *data, bool *bad)
{
	size_t bytes = le32toh(image->sb->segment_size);

	memset(bad, 0, image->segment_slots * sizeof(*bad));
	if (!segment_read_at(image, segment, 0, data, bytes))
		return;
	for (uint32_t i = 0; i < image->segment_slots; i++) {
		uint8_t *slot = data + (size_t)i * LARDER_SLOT_SIZE;

		bad[i] = segment_read_at(image, segment, (uint64_t)i * LARDER_SLOT_SIZE, slot, LARDER_SLOT_SIZE);
		if (bad[i])
			memset(slot, 0, LARDER_SLOT_SIZE);
	}
}

void segment_read(struct cache_image *image, uint32_t segment)
{
	struct segment_window *w = &image->window;
	uint32_t copy[SEGMENT_COPIES];

	if (w->segment == segment)
		return;
	w->segment = segment;
	w->copies = segment_copies(image, segment, copy);
	for (unsigned i = 0; i < w->copies; i++)
		read_copy(image, copy[i], w->data[i], w->bad[i]);
}

bool window_unreadable(const struct cache_image *image, uint32_t slot)
{
	const struct segment_window *w = &image->window;

	for (unsigned i = 0; i < w->copies; i++)
		if (!w->bad[i][slot])
			return false;
	return true;
}

bool segment_is_here(const struct cache_image *image, uint32_t segment)
{
	uint32_t copy[SEGMENT_COPIES];
	uint64_t offset;

	for (unsigned i = 0, n = segment_copies(image, segment, copy); i < n; i++)
		if (segment_device(image, copy[i], &offset))
			return true;
	return false;
}

const struct larder_commit *window_block(const struct cache_image *image, unsigned copy, uint32_t slot)
{
	return (const struct larder_commit *)(image->window.data[copy] + (size_t)slot * LARDER_SLOT_SIZE);
}
