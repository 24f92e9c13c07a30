// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where the sums of a segment's slots come from: its summary, if that is whole and of the segment's present life; else the commit
 * blocks found in it.
 *
 * Where not all copies have all records (image->unsure) one may hold an older life of the segment, whole, with the blocks of that: there only blocks count
 * that a chain joins to the segment's last record, as the kernel knows no sum there without that one (read_blocks() in summary.c).
 *
 * Blocks are told from data that looks like one by the hash of their epoch.  Of epochs that the superblock's list has forgotten
 * (16 starts ago) there is no hash to compare: the other fields and the checksum must do.  A forged one can make its author's
 * data look damaged, no more.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "checksum.h"
#include "crc32c.h"
#include "message.h"
#include "slot_sums.h"

_Static_assert(sizeof(struct larder_summary) == LARDER_SUMMARY_SLOTS * LARDER_SLOT_SIZE, "summary");

struct slot_sums {
	bool whole; /* of all slots below the end of its last record: another look at the blocks finds no more */
	struct slot_sum {
		uint32_t sum;
		bool known;
	} slot[];
};

/* Is this the hash that blocks of the epoch carry, or an epoch too old to tell? */
static bool hash_ok(const struct cache_image *image, uint32_t epoch, uint64_t hash)
{
	uint32_t oldest = 0;
	uint64_t expected;

	if (epoch_known_hash(image->sb, epoch, &expected))
		return hash == expected;
	for (unsigned i = 0; i < LARDER_NR_EPOCHS; i++)
		if (image->sb->epochs[i].epoch)
			oldest = le32toh(image->sb->epochs[i].epoch);
	return image->sb->epochs[LARDER_NR_EPOCHS - 1].epoch && epoch && epoch < oldest;
}

bool summary_ok(const struct cache_image *image, const struct larder_summary *s, uint32_t segment)
{
	uint32_t n = le32toh(s->nr_entries), sums = le32toh(s->nr_sums);

	return le32toh(s->magic) == LARDER_SUMMARY_MAGIC && le32toh(s->segment) == segment &&
	       hash_ok(image, le32toh(s->epoch), le64toh(s->hash)) && le64toh(s->last_sequence) == image->last_record[segment] &&
	       sums <= image->segment_slots - LARDER_SUMMARY_SLOTS && n <= sizeof(s->body) / sizeof(struct larder_entry) &&
	       n * sizeof(struct larder_entry) + sums * sizeof(uint32_t) <= sizeof(s->body) &&
	       le32toh(s->crc) == block_crc(s, sizeof(*s), offsetof(struct larder_summary, crc));
}

static bool take_summary(const struct cache_image *image, uint32_t segment, struct slot_sums *sums)
{
	uint32_t at = image->segment_slots - LARDER_SUMMARY_SLOTS;
	struct larder_summary *s = device_buffer(sizeof(*s));
	bool good = !segment_read_at(image, segment, (uint64_t)at * LARDER_SLOT_SIZE, s, sizeof(*s)) &&
		    summary_ok(image, s, segment);

	for (uint32_t i = 0; good && i < le32toh(s->nr_sums); i++) {
		uint32_t sum;

		memcpy(&sum, s->body + le32toh(s->nr_entries) * sizeof(struct larder_entry) + i * sizeof(sum), sizeof(sum));
		sums->slot[i] = (struct slot_sum){ le32toh(sum), sum != 0 };
	}
	free(s);
	return good;
}

static bool block_ok(const struct cache_image *image, const struct larder_commit *c, uint32_t segment, uint32_t slot)
{
	uint32_t first = le16toh(c->first), end = le16toh(c->end);

	return le32toh(c->magic) == LARDER_COMMIT_MAGIC && le32toh(c->segment) == segment && le16toh(c->slot) == slot &&
	       hash_ok(image, le32toh(c->epoch), le64toh(c->hash)) && first <= end && end <= slot &&
	       end - first <= LARDER_RECORD_SLOTS && c->flags & LARDER_COMMIT_SUMS_VALID &&
	       le16toh(c->nr_entries) * sizeof(struct larder_entry) + (end - first) * sizeof(uint32_t) <= LARDER_COMMIT_BODY &&
	       le32toh(c->crc) == block_crc(c, sizeof(*c), offsetof(struct larder_commit, crc));
}

/* Of the blocks at a slot of the window, in either copy, the newest one of the segment's present life; NULL: none. */
static const struct larder_commit *newest_block(const struct cache_image *image, uint32_t segment, uint32_t slot)
{
	uint64_t last = image->last_record[segment];
	const struct larder_commit *newest = NULL;

	for (unsigned copy = 0; copy < image->window.copies; copy++) {
		const struct larder_commit *c = window_block(image, copy, slot);

		if (block_ok(image, c, segment, slot) && (!last || le64toh(c->sequence) <= last) &&
		    (!newest || le64toh(c->sequence) > le64toh(newest->sequence)))
			newest = c;
	}
	return newest;
}

static void take_block(const struct larder_commit *c, struct slot_sums *sums)
{
	for (uint32_t i = le16toh(c->first); i < le16toh(c->end); i++)
		sums->slot[i] = (struct slot_sum){ commit_sum(c, i - le16toh(c->first)), true };
}

/* The block at a slot of the window, in any copy, of the record of this number, and, if crc is given, of this checksum; NULL: none. */
static const struct larder_commit *block_of(const struct cache_image *image, uint32_t segment, uint32_t slot, uint64_t sequence, const uint32_t *crc)
{
	for (unsigned copy = 0; copy < image->window.copies; copy++) {
		const struct larder_commit *c = window_block(image, copy, slot);

		if (block_ok(image, c, segment, slot) && le64toh(c->sequence) == sequence && (!crc || le32toh(c->crc) == *crc))
			return c;
	}
	return NULL;
}

/* From the segment's last record down, each by what the one behind it says of it. */
static void take_chain(struct cache_image *image, uint32_t segment, struct slot_sums *sums)
{
	uint32_t slot = image->segment_slots - LARDER_SUMMARY_SLOTS, crc;
	uint64_t sequence = image->last_record[segment];
	const uint32_t *known = NULL;

	segment_read(image, segment);
	while (sequence && slot--) {
		const struct larder_commit *c = block_of(image, segment, slot, sequence, known);

		if (!c)
			continue;
		take_block(c, sums);
		sequence = le64toh(c->prev_sequence);
		crc = le32toh(c->prev_crc);
		known = &crc;
		slot = le16toh(c->first);
	}
	sums->whole = true;
}

/* Blocks of an older life of the segment stand behind those of the present one, and have lower numbers. */
static void take_blocks(struct cache_image *image, uint32_t segment, struct slot_sums *sums)
{
	uint64_t newest = 0;

	segment_read(image, segment);
	for (uint32_t slot = 0; slot < image->segment_slots - LARDER_SUMMARY_SLOTS; slot++) {
		const struct larder_commit *c = newest_block(image, segment, slot);

		if (!c || le64toh(c->sequence) <= newest)
			continue;
		newest = le64toh(c->sequence);
		take_block(c, sums);
	}
	sums->whole = true;
}

/* The sums of a segment; all of a slot's run must be known, or the blocks are asked too. */
static const struct slot_sum *slot_sums(struct cache_image *image, uint32_t segment, uint32_t first, uint32_t end)
{
	struct slot_sums *sums = image->sums[segment];

	if (!sums) {
		sums = must_allocate(calloc(1, sizeof(*sums) + image->segment_slots * sizeof(*sums->slot)));
		image->sums[segment] = sums;
		take_summary(image, segment, sums);
	}
	for (uint32_t i = first; !sums->whole && i < end; i++)
		if (!sums->slot[i].known)
			(image->unsure[segment] ? take_chain : take_blocks)(image, segment, sums);
	return sums->slot;
}

/* Slots [first, end) of a segment, as a whole, or where that fails each alone.  False: its SSD is not here. */
static bool read_slots(const struct cache_image *image, uint32_t segment, uint32_t first, uint32_t end, uint8_t *buffer, bool *bad)
{
	uint64_t offset = (uint64_t)first * LARDER_SLOT_SIZE;
	int error = segment_read_at(image, segment, offset, buffer, (size_t)(end - first) * LARDER_SLOT_SIZE);

	memset(bad, 0, (end - first) * sizeof(*bad));
	for (uint32_t i = 0; error && error != -ENODEV && i < end - first; i++)
		bad[i] = segment_read_at(image, segment, offset + (uint64_t)i * LARDER_SLOT_SIZE, buffer + (size_t)i * LARDER_SLOT_SIZE,
					 LARDER_SLOT_SIZE);
	return error != -ENODEV;
}

static enum slot_state judge(const struct slot_sum *sum, const uint8_t *data, bool bad)
{
	if (bad)
		return SLOT_UNREADABLE;
	if (!sum->known)
		return SLOT_UNKNOWN;
	return sum->sum == crc32c(~0u, data, LARDER_SLOT_SIZE) ? SLOT_GOOD : SLOT_DAMAGED;
}

#define SECTOR	     (1u << LARDER_SECTOR_SHIFT)
#define EXTENT_SLOTS (LARDER_REGION_SECTORS / LARDER_SLOT_SECTORS + 1) /* that an extent may touch */

/* Slots that an extent touches, as they were read. */
struct slots {
	uint32_t segment, first, end;
	uint8_t *buffer, *spare;
	enum slot_state state[EXTENT_SLOTS];
	bool differ[EXTENT_SLOTS]; /* good in one copy, and not in another one, which is here too */
};

/* What is not good yet is taken from this copy, if it is better there. */
static void take_copy(struct slots *s, const struct slot_sum *sums, const bool *bad, bool first)
{
	for (uint32_t i = 0; i < s->end - s->first; i++) {
		const uint8_t *data = s->spare + (size_t)i * LARDER_SLOT_SIZE;
		enum slot_state state = judge(&sums[s->first + i], data, bad[i]);

		s->differ[i] |= !first && (state == SLOT_GOOD) != (s->state[i] == SLOT_GOOD);
		if (!first && s->state[i] == SLOT_GOOD)
			continue;
		if (!first && state != SLOT_GOOD)
			continue;
		s->state[i] = state;
		memcpy(s->buffer + (size_t)i * LARDER_SLOT_SIZE, data, LARDER_SLOT_SIZE);
	}
}

static bool all_good(const struct slots *s)
{
	for (uint32_t i = 0; i < s->end - s->first; i++)
		if (s->state[i] != SLOT_GOOD)
			return false;
	return true;
}

/* From the first copy, and what is not good there from the next; from all, to compare them, where image->compare says so. */
static void find_slots(struct cache_image *image, struct slots *s)
{
	const struct slot_sum *sums = slot_sums(image, s->segment, s->first, s->end);
	uint32_t copy[SEGMENT_COPIES];
	bool bad[EXTENT_SLOTS], found = false;

	for (uint32_t i = 0; i < s->end - s->first; i++) {
		s->state[i] = SLOT_ABSENT;
		s->differ[i] = false;
	}
	for (unsigned i = 0, n = segment_copies(image, s->segment, copy); i < n; i++) {
		if (found && !image->compare && all_good(s))
			return;
		if (!read_slots(image, copy[i], s->first, s->end, s->spare, bad))
			continue;
		take_copy(s, sums, bad, !found);
		found = true;
	}
}

/* The pieces of a dirty extent that has a place in the cache. */
static int visit_extent(struct cache_image *image, struct dirty_piece piece, struct slots *s, dirty_visit visit, void *data)
{
	uint32_t unit = image->usage.segment_sectors, at = (uint32_t)(piece.cache % unit), left = piece.length;
	int result = 0;

	s->segment = (uint32_t)(piece.cache / unit);
	s->first = at / LARDER_SLOT_SECTORS;
	s->end = (at + left + LARDER_SLOT_SECTORS - 1) / LARDER_SLOT_SECTORS;
	find_slots(image, s);
	while (!result && left) {
		uint32_t slot = at / LARDER_SLOT_SECTORS - s->first;

		piece.state = s->state[slot];
		piece.differs = s->differ[slot];
		piece.data = s->buffer + (at - (size_t)s->first * LARDER_SLOT_SECTORS) * SECTOR;
		piece.length = 0;
		while (left && s->state[slot] == piece.state && s->differ[slot] == piece.differs) {
			uint32_t now = LARDER_SLOT_SECTORS - at % LARDER_SLOT_SECTORS;

			now = now < left ? now : left;
			piece.length += now;
			at += now;
			left -= now;
			slot = at / LARDER_SLOT_SECTORS - s->first;
		}
		result = visit(&piece, data);
		piece.sector += piece.length;
		piece.cache += piece.length;
	}
	return result;
}

struct walk {
	struct cache_image *image;
	uint64_t sector, end;
	struct slots *slots;
	dirty_visit visit;
	void *data;
};

static int visit_region(const struct walk *w, const struct region *r)
{
	uint64_t base = r->number * LARDER_REGION_SECTORS;
	int result = 0;

	for (uint32_t k = 0; !result && k < r->n; k++) {
		uint64_t e = r->extent[k], from = base + extent_first(e), to = from + extent_length(e);
		struct dirty_piece piece = { .zero = extent_state(e) == LARDER_ST_ZERO };

		if (!extent_is_dirty(e) || to <= w->sector || from >= w->end)
			continue;
		piece.sector = from > w->sector ? from : w->sector;
		piece.length = (uint32_t)((to < w->end ? to : w->end) - piece.sector);
		piece.cache = extent_cache(e) + (piece.zero ? 0 : piece.sector - from);
		result = piece.zero ? w->visit(&piece, w->data) : visit_extent(w->image, piece, w->slots, w->visit, w->data);
	}
	return result;
}

/* A short range looks its regions up, a long one goes through those that there are. */
static int visit_range(const struct walk *w, const struct extent_map *map)
{
	uint64_t first = w->sector / LARDER_REGION_SECTORS, last = (w->end - 1) / LARDER_REGION_SECTORS;
	struct region **regions;
	int result = 0;
	size_t n;

	if (last - first < map->used) {
		for (uint64_t number = first; !result && number <= last; number++) {
			const struct region *r = extent_map_find(map, number);

			result = r ? visit_region(w, r) : 0;
		}
		return result;
	}
	regions = extent_map_regions(map, &n);
	for (size_t i = 0; !result && i < n; i++)
		result = visit_region(w, regions[i]);
	free(regions);
	return result;
}

int dirty_each(struct cache_image *image, const struct cached_volume *v, uint64_t sector, uint64_t end, dirty_visit visit, void *data)
{
	struct walk w = { image, sector, end, NULL, visit, data };
	int result;

	if (sector >= end)
		return 0;
	w.slots = must_allocate(calloc(1, sizeof(*w.slots)));
	w.slots->buffer = device_buffer((size_t)EXTENT_SLOTS * LARDER_SLOT_SIZE);
	w.slots->spare = device_buffer((size_t)EXTENT_SLOTS * LARDER_SLOT_SIZE);
	result = visit_range(&w, &v->map);
	free(w.slots->buffer);
	free(w.slots->spare);
	free(w.slots);
	return result;
}

const char *slot_state_text(enum slot_state state)
{
	static const char *const text[] = { "good", "damaged", "unreadable", "no_checksum", "absent" };

	return text[state];
}
