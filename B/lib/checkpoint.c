// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checkpoints: docs/on-disk-format.md, section 6.  Every count is checked against what is there before it is used.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cache_image.h"
#include "checksum.h"
#include "message.h"

_Static_assert(sizeof(struct larder_chunk) == LARDER_CHUNK_SIZE, "chunk");
_Static_assert(sizeof(struct larder_item) == 16 && sizeof(struct larder_stream_pos) == 32, "items");
_Static_assert(sizeof(struct larder_segment_info) == 16, "items");

static bool keep_all(uint64_t e, void *data)
{
	(void)e;
	(void)data;
	return true;
}

/* NULL, or what is wrong; *end: behind the last extent. */
static const char *check_extents(const struct cache_image *image, const uint64_t *extents, uint32_t count, uint32_t *end)
{
	uint32_t unit = image->usage.segment_sectors, room = unit - LARDER_SUMMARY_SLOTS * LARDER_SLOT_SECTORS;

	*end = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t e = extents[i], cache = extent_cache(e);

		if (extent_first(e) < *end || extent_first(e) + extent_length(e) > LARDER_REGION_SECTORS)
			return "REGION: extent";
		*end = extent_first(e) + extent_length(e);
		if (extent_state(e) == LARDER_ST_ZERO)
			continue;
		if (extent_state(e) != LARDER_ST_CLEAN && extent_state(e) != LARDER_ST_DIRTY)
			return "REGION: state";
		if (!segment_exists(image, cache / unit) || cache % unit + extent_length(e) > room)
			return "REGION: cache sector";
	}
	return NULL;
}

static const char *take_region(struct cache_image *image, const struct larder_item *item, const uint8_t *data, uint32_t count)
{
	struct cached_volume *v = &image->volume[le16toh(item->volume)];
	uint64_t number = le64toh(item->number), extents[LARDER_REGION_SECTORS];
	const char *wrong;
	uint32_t end;

	if (!count || count > LARDER_REGION_SECTORS || number >> 52)
		return "REGION: count or number";
	for (uint32_t i = 0; i < count; i++) {
		memcpy(&extents[i], data + i * sizeof(*extents), sizeof(*extents));
		extents[i] = le64toh(extents[i]);
	}
	wrong = check_extents(image, extents, count, &end);
	if (wrong)
		return wrong;
	if (number * LARDER_REGION_SECTORS + end > v->sectors) {
		image->skipped += count;
		return NULL;
	}
	if (extent_map_find(&v->map, number))
		return "REGION: a second one";
	extent_map_load(&v->map, number, extents, count, keep_all, NULL);
	return NULL;
}

static const char *take_position(struct cache_image *image, unsigned stream, const uint8_t *data)
{
	struct log_stream *s = &image->stream[stream];
	struct larder_stream_pos pos;

	memcpy(&pos, data, sizeof(pos));
	s->at = le32toh(pos.segment);
	s->slot = le32toh(pos.slot);
	s->prev_sequence = le64toh(pos.prev_sequence);
	s->prev_crc = le32toh(pos.prev_crc);
	if (s->at == LARDER_NO_SEGMENT)
		return NULL;
	return segment_exists(image, s->at) && s->slot <= image->segment_slots - LARDER_SUMMARY_SLOTS ? NULL : "STREAM: place";
}

static const char *take_segments(struct cache_image *image, const struct larder_item *item, const uint8_t *data, uint32_t count)
{
	uint64_t number = le64toh(item->number);
	struct larder_segment_info info;

	if (number > image->segments_end || count > image->segments_end - number)
		return "SEGMENTS: number";
	for (uint32_t i = 0; i < count; i++) {
		memcpy(&info, data + i * sizeof(info), sizeof(info));
		if (info.state > LARDER_SEGMENT_OPENED || info.stream >= LARDER_NR_STREAMS)
			return "SEGMENTS: state or stream";
		if (!segment_exists(image, number + i) || !segment_pair_ok(image, number + i, le32toh(info.mirror)))
			return "SEGMENTS: number or mirror";
		image->last_record[number + i] = info.state == LARDER_SEGMENT_USED ? le64toh(info.sequence) : 0;
		image->unsure[number + i] = info.state == LARDER_SEGMENT_USED ?
						    info.flags & (LARDER_SEGMENT_FIRST_UNSURE | LARDER_SEGMENT_COPIES_UNSURE) : 0;
		/* a free one is a second copy, and names the third; the one in use may be known already, or come later */
		if (info.state != LARDER_SEGMENT_OPENED && info.mirror)
			segment_next(image, (uint32_t)(number + i), le32toh(info.mirror) - 1, info.state == LARDER_SEGMENT_USED);
	}
	return NULL;
}

/* MARKS, OPEN: a list of numbers. */
static const char *take_numbers(struct cache_image *image, const struct larder_item *item, const uint8_t *data, uint32_t count)
{
	struct cached_volume *v = &image->volume[le16toh(item->volume) % LARDER_MAX_VOLUMES];
	uint64_t value, third = le64toh(item->number);

	if (item->kind == LARDER_ITEM_OPEN && third && (count != 1 || third >> 32))
		return "OPEN: number";
	for (uint32_t i = 0; i < count; i++) {
		memcpy(&value, data + i * sizeof(value), sizeof(value));
		value = le64toh(value);
		if (item->kind == LARDER_ITEM_OPEN) {
			if (image->stream[le16toh(item->volume)].opened++ == LARDER_MAX_OPENED)
				return "OPEN: too many segments of a stream";
			if (!segment_exists(image, (uint32_t)value) || !segment_pair_ok(image, (uint32_t)value, value >> 32 | third << 32))
				return "OPEN: segment";
			stream_open(image, le16toh(item->volume), (uint32_t)value, value >> 32 | third << 32);
		} else {
			if (value >> 47)
				return "MARKS: region";
			if (v->sectors && value <= (v->sectors - 1) >> LARDER_INTENT_SHIFT)
				volume_mark(v, value, true);
		}
	}
	return NULL;
}

static const char *take_item(struct cache_image *image, const struct larder_item *item, const uint8_t *data)
{
	uint32_t count = le32toh(item->count), volume = le16toh(item->volume);

	switch (item->kind) {
	case LARDER_ITEM_REGION:
		return volume >= LARDER_MAX_VOLUMES ? "REGION: volume" : take_region(image, item, data, count);
	case LARDER_ITEM_MARKS:
		return volume >= LARDER_MAX_VOLUMES ? "MARKS: volume" : take_numbers(image, item, data, count);
	case LARDER_ITEM_OPEN:
		return volume >= LARDER_NR_STREAMS ? "OPEN: stream" : take_numbers(image, item, data, count);
	case LARDER_ITEM_STREAM:
		if (volume >= LARDER_NR_STREAMS || count > 1)
			return "STREAM";
		return count ? take_position(image, volume, data) : NULL;
	case LARDER_ITEM_SEGMENTS:
		return take_segments(image, item, data, count);
	default:
		return count ? "END: count" : NULL;
	}
}

/* regions, ended: the first REGION, the END was seen */
static const char *take_chunk(struct cache_image *image, const struct larder_chunk *c, bool *regions, bool *ended)
{
	static const uint32_t units[] = { 0, 8, 8, 8, sizeof(struct larder_stream_pos), sizeof(struct larder_segment_info), 1 };
	uint32_t at = 0, used = le32toh(c->used);
	struct larder_item item;
	const char *wrong;

	while (at < used) {
		if (*ended)
			return "an item behind END";
		if (used - at < sizeof(item))
			return "used";
		memcpy(&item, c->payload + at, sizeof(item));
		at += (uint32_t)sizeof(item);
		if (!item.kind || item.kind > LARDER_ITEM_END)
			return "item kind";
		if (le32toh(item.count) > (used - at) / units[item.kind])
			return "item count";
		if (*regions && item.kind != LARDER_ITEM_REGION && item.kind != LARDER_ITEM_END)
			return "order of items";
		*regions |= item.kind == LARDER_ITEM_REGION;
		wrong = take_item(image, &item, c->payload + at);
		if (wrong)
			return wrong;
		if (image->on_item)
			image->on_item(&item);
		at += le32toh(item.count) * units[item.kind];
		*ended = item.kind == LARDER_ITEM_END;
	}
	return NULL;
}

static const char *check_chunk(const struct larder_chunk *c, const struct larder_checkpoint_ptr *p, uint32_t number)
{
	if (le32toh(c->magic) != LARDER_CHUNK_MAGIC || c->hash != p->hash || c->sequence != p->sequence ||
	    le32toh(c->number) != number)
		return "magic, hash, sequence or number of a chunk";
	if (le32toh(c->used) > LARDER_CHUNK_PAYLOAD ||
	    le32toh(c->crc) != block_crc(c, sizeof(*c), offsetof(struct larder_chunk, crc)))
		return "crc of a chunk";
	return NULL;
}

/* Where a chunk is. */
struct chunk_place {
	const struct larder_checkpoint_ptr *pointer;
	uint32_t segment;
	uint64_t further; /* as in segment_pair() */
	uint32_t number, at; /* at: bytes in the segment */
};

static const char *read_chunk(const struct cache_image *image, const struct chunk_place *place, uint32_t segment, struct larder_chunk *c)
{
	int error = segment_read_at(image, segment, place->at, c, sizeof(*c));

	if (error)
		return error == -ENODEV ? "a chunk is on an SSD that is not here" : "a chunk cannot be read";
	return check_chunk(c, place->pointer, place->number);
}

/* From whichever copy has it.  NULL, or what is wrong with the first that is here. */
static const char *find_chunk(struct cache_image *image, const struct chunk_place *place, struct larder_chunk *c)
{
	uint32_t copy[SEGMENT_COPIES] = { place->segment };
	const char *wrong = NULL;
	unsigned copies = 1;
	uint64_t offset;
	bool here = false;

	for (uint64_t further = place->further; (uint32_t)further; further >>= 32)
		copy[copies++] = (uint32_t)further - 1;
	for (unsigned i = 0; i < copies; i++) {
		const struct device *device = segment_device(image, copy[i], &offset);
		const char *why = read_chunk(image, place, copy[i], c);

		if (!why && wrong && here)
			problem(&image->problems, "checkpoint", "sequence %" PRIu64 ": chunk %u: %s; another copy of it is good",
				le64toh(place->pointer->sequence), place->number, wrong);
		if (!why)
			return NULL;
		if (!here)
			wrong = why;
		here |= device != NULL;
	}
	image->absent |= !here;
	return wrong;
}

const char *checkpoint_load(struct cache_image *image, const struct larder_checkpoint_ptr *p)
{
	struct chunk_place place = { p, le32toh(p->first_segment), le32toh(p->first_mirror) | (uint64_t)le32toh(p->first_third) << 32, 0, 0 };
	uint64_t number = le64toh(p->bytes) / LARDER_CHUNK_SIZE;
	bool regions = false, ended = false;
	const char *wrong = NULL;
	struct larder_chunk *c;

	if (!number || le64toh(p->bytes) % LARDER_CHUNK_SIZE ||
	    number > (uint64_t)image->segment_slots * LARDER_SLOT_SIZE / LARDER_CHUNK_SIZE * image->segments_end)
		return "bytes";
	c = device_buffer(sizeof(*c));
	for (; !wrong && place.number < number; place.number++) {
		if (!segment_exists(image, place.segment) || !segment_pair_ok(image, place.segment, place.further))
			wrong = "segment of a chunk";
		else
			wrong = find_chunk(image, &place, c);
		if (!wrong)
			wrong = take_chunk(image, c, &regions, &ended);
		place.at += (uint32_t)sizeof(*c);
		if (place.at < le32toh(image->sb->segment_size))
			continue;
		place.segment = le32toh(c->next_segment);
		place.further = le32toh(c->next_mirror) | (uint64_t)le32toh(c->next_third) << 32;
		place.at = 0;
	}
	free(c);
	return wrong || ended ? wrong : "no END";
}
