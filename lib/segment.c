// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Segments of a set of SSDs: where they are, which two have the same contents (docs/on-disk-format.md, section 4.2), and reading them.
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
	copy[0] = segment;
	copy[1] = image->mirror[segment] - 1;
	return image->mirror[segment] ? 2 : 1;
}

bool segment_pair_ok(const struct cache_image *image, uint64_t segment, uint64_t second)
{
	return !second || (segment_exists(image, second - 1) && segment_exists(image, segment) &&
			   segment_place(image, (uint32_t)segment) != segment_place(image, (uint32_t)(second - 1)));
}

static void unpair(struct cache_image *image, uint32_t segment)
{
	if (image->mirror[segment])
		image->mirror_of[image->mirror[segment] - 1] = 0;
	if (image->mirror_of[segment])
		image->mirror[image->mirror_of[segment] - 1] = 0;
	image->mirror[segment] = image->mirror_of[segment] = 0;
}

void segment_pair(struct cache_image *image, uint32_t segment, uint32_t second)
{
	image->window.segment = LARDER_NO_SEGMENT;
	unpair(image, segment);
	if (!second)
		return;
	unpair(image, second - 1);
	image->mirror[segment] = second;
	image->mirror_of[second - 1] = segment + 1;
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
