// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A cache as a start would find it: docs/on-disk-format.md, section 5.3 (which records are valid) and 7 (start and replay).
 *
 * Two passes over the log.  The first follows the chains: where the streams end, what is durable, which segments are opened anew.
 * Mappings into those are dropped from what the checkpoint said, in one go: no record of a segment's older life is replayed.  The
 * second applies the records by sequence.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cache_image.h"
#include "checksum.h"
#include "crc32c.h"
#include "message.h"

#define LOOK_AHEAD (LARDER_RECORD_SLOTS + 1)

_Static_assert(sizeof(struct larder_commit) == LARDER_SLOT_SIZE && sizeof(struct larder_entry) == 24, "records");

/* ------------------------------------------------------------- epochs and volumes */

static const struct larder_epoch *epoch_known(const struct larder_cache_sb *sb, uint32_t epoch)
{
	for (unsigned i = 0; epoch && i < LARDER_NR_EPOCHS; i++)
		if (le32toh(sb->epochs[i].epoch) == epoch)
			return &sb->epochs[i];
	return NULL;
}

bool epoch_known_hash(const struct larder_cache_sb *sb, uint32_t epoch, uint64_t *hash)
{
	const struct larder_epoch *e = epoch_known(sb, epoch);

	if (e)
		*hash = epoch_hash(sb->cache_uuid, le64toh(e->secret));
	return e;
}

/* Place of the first mark that is not below this region. */
static size_t mark_place(const struct cached_volume *v, uint64_t region)
{
	size_t low = 0, high = v->nr_marks;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (v->mark[middle] < region)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool volume_marked(const struct cached_volume *v, uint64_t region)
{
	size_t at = mark_place(v, region);

	return at < v->nr_marks && v->mark[at] == region;
}

void volume_mark(struct cached_volume *v, uint64_t region, bool set)
{
	size_t at = mark_place(v, region), behind = v->nr_marks - at;

	if (volume_marked(v, region) == set)
		return;
	if (!set) {
		memmove(v->mark + at, v->mark + at + 1, (behind - 1) * sizeof(*v->mark));
		v->nr_marks--;
		return;
	}
	v->mark = must_allocate(realloc(v->mark, (v->nr_marks + 1) * sizeof(*v->mark)));
	memmove(v->mark + at + 1, v->mark + at, behind * sizeof(*v->mark));
	v->mark[at] = region;
	v->nr_marks++;
}

static void volume_forget(struct cached_volume *v)
{
	extent_map_clear(&v->map);
	free(v->mark);
	v->mark = NULL;
	v->nr_marks = 0;
}

static uint32_t end_of_segments(const struct larder_table *table)
{
	uint32_t end = 0;

	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++) {
		const struct larder_table_device *place = &table->devices[i];
		uint32_t behind = le32toh(place->first_segment) + le32toh(place->nr_segments);

		if (place->state && behind > end)
			end = behind;
	}
	return end;
}

void cache_image_init(struct cache_image *image, const struct ssd_set *set)
{
	const struct larder_cache_sb *sb = set->sb;
	const struct larder_table *table = set->table;

	*image = (struct cache_image){ .set = set, .sb = sb, .table = table, .window = { .segment = LARDER_NO_SEGMENT } };
	image->segment_slots = le32toh(sb->segment_size) / LARDER_SLOT_SIZE;
	image->segments_end = end_of_segments(table);
	image->usage.segment_sectors = image->segment_slots * LARDER_SLOT_SECTORS;
	image->usage.live = must_allocate(calloc(image->segments_end, sizeof(*image->usage.live)));
	image->last_record = must_allocate(calloc(image->segments_end, sizeof(*image->last_record)));
	image->unsure = must_allocate(calloc(image->segments_end, sizeof(*image->unsure)));
	image->mirror = must_allocate(calloc(image->segments_end, sizeof(*image->mirror)));
	image->mirror_of = must_allocate(calloc(image->segments_end, sizeof(*image->mirror_of)));
	image->sums = must_allocate(calloc(image->segments_end, sizeof(*image->sums)));
	for (unsigned i = 0; i < SEGMENT_COPIES; i++) {
		image->window.data[i] = device_buffer(le32toh(sb->segment_size));
		image->window.bad[i] = must_allocate(calloc(image->segment_slots, sizeof(*image->window.bad[i])));
	}
	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++) {
		const struct larder_table_volume *v = &table->volumes[i];

		image->volume[i].map.usage = &image->usage;
		if (i < le32toh(table->head.nr_volumes) && le32toh(v->state) == LARDER_VOLUME_ATTACHED)
			image->volume[i].sectors = le64toh(v->sectors);
	}
	for (unsigned i = 0; i < LARDER_NR_STREAMS; i++)
		image->stream[i].at = LARDER_NO_SEGMENT;
}

static void forget_all(struct cache_image *image)
{
	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++)
		volume_forget(&image->volume[i]);
	for (unsigned i = 0; i < LARDER_NR_STREAMS; i++) {
		free(image->stream[i].segment);
		free(image->stream[i].listed);
		image->stream[i] = (struct log_stream){ .at = LARDER_NO_SEGMENT };
	}
	memset(image->last_record, 0, image->segments_end * sizeof(*image->last_record));
	memset(image->unsure, 0, image->segments_end * sizeof(*image->unsure));
	memset(image->mirror, 0, image->segments_end * sizeof(*image->mirror));
	memset(image->mirror_of, 0, image->segments_end * sizeof(*image->mirror_of));
}

void cache_image_free(struct cache_image *image)
{
	if (!image->set)
		return;
	forget_all(image);
	for (uint32_t i = 0; i < image->segments_end; i++)
		free(image->sums[i]);
	free(image->sums);
	free(image->usage.live);
	free(image->last_record);
	free(image->unsure);
	free(image->mirror);
	free(image->mirror_of);
	free(image->record);
	for (unsigned i = 0; i < SEGMENT_COPIES; i++) {
		free(image->window.data[i]);
		free(image->window.bad[i]);
	}
	problems_free(&image->problems);
	problems_free(&image->torn);
	problems_free(&image->lost);
	image->set = NULL;
}

/* ------------------------------------------------------------- checkpoint */

void stream_open(struct cache_image *image, unsigned stream, uint32_t segment, uint64_t further)
{
	struct log_stream *s = &image->stream[stream];

	segment_pair(image, segment, further);
	if (!s->listed)
		s->listed = must_allocate(calloc(image->segments_end, sizeof(*s->listed)));
	if (s->listed[segment])
		return;
	s->listed[segment] = true;
	s->segment = must_allocate(realloc(s->segment, (s->count + 1) * sizeof(*s->segment)));
	s->segment[s->count++] = segment;
}

static bool checkpoint_named(const struct larder_checkpoint_ptr *p)
{
	return p->sequence && le32toh(p->first_segment) != LARDER_NO_SEGMENT;
}

bool cache_image_checkpoint(struct cache_image *image)
{
	for (unsigned i = 0; i < LARDER_NR_CHECKPOINTS && !image->loaded; i++) {
		const struct larder_checkpoint_ptr *p = &image->sb->checkpoint[i];
		const char *wrong;

		if (!checkpoint_named(p))
			continue;
		if (i && image->sb->checkpoint[0].epoch != p->epoch)
			break;
		wrong = checkpoint_load(image, p);
		if (!wrong) {
			image->absent = false; /* what the newer one lacks is not needed */
			image->loaded = p;
			break;
		}
		problem(&image->problems, "checkpoint", "[%u], sequence %" PRIu64 ": %s", i, le64toh(p->sequence), wrong);
		image->must_reach = image->stream[LARDER_STREAM_WRITE].prev_sequence;
		image->skipped = 0;
		forget_all(image);
	}
	if (image->loaded) {
		image->epoch = le32toh(image->loaded->epoch);
		image->replay_from = le64toh(image->loaded->replay_sequence);
		if (!epoch_known_hash(image->sb, image->epoch, &image->hash))
			return false;
		image->first_sequence = le64toh(epoch_known(image->sb, image->epoch)->first_sequence);
		return true;
	}
	if (image->sb->epoch)
		problem(&image->problems, "checkpoint", "no checkpoint that is whole");
	return !image->sb->epoch;
}

/* ------------------------------------------------------------- which records are valid */

const struct larder_entry *commit_entry(const struct larder_commit *c, uint32_t i)
{
	return (const struct larder_entry *)c->body + i;
}

uint32_t commit_sum(const struct larder_commit *c, uint32_t i)
{
	uint32_t sum;

	memcpy(&sum, c->body + le16toh(c->nr_entries) * sizeof(struct larder_entry) + i * sizeof(sum), sizeof(sum));
	return le32toh(sum);
}

/* [low, high): where its data may be */
static bool entry_ok(const struct cache_image *image, const struct larder_entry *e, unsigned stream, uint64_t low, uint64_t high)
{
	uint64_t sector = le64toh(e->sector), cache = le64toh(e->cache);
	uint32_t length = le32toh(e->length), volume = le16toh(e->volume);

	if (stream && e->kind != LARDER_FILL)
		return false;
	if (e->kind == LARDER_CHECKPOINT)
		return true;
	if (e->kind == LARDER_SEGMENT_OPEN)
		return segment_exists(image, sector) && segment_pair_ok(image, sector, cache) && length <= LARDER_OPEN_CHUNKS;
	if (volume >= LARDER_MAX_VOLUMES || !e->kind || e->kind > LARDER_CHECKPOINT)
		return false;
	if (e->kind == LARDER_FORGET)
		return true;
	if (e->kind == LARDER_INTENT)
		return sector >> 47 == 0 && length <= 1;
	if (!length || sector > ~0ull - length)
		return false;
	if (e->kind == LARDER_WRITE || e->kind == LARDER_FILL)
		return cache >= low && cache < high && length <= high - cache;
	return e->kind == LARDER_INVALIDATE || (cache >> LARDER_CACHE_SECTOR_BITS == 0 && length <= LARDER_MAX_ZERO_SECTORS);
}

static bool entries_ok(const struct cache_image *image, const struct larder_commit *c)
{
	uint64_t base = (uint64_t)le32toh(c->segment) * image->usage.segment_sectors;
	uint64_t low = base + (uint64_t)le16toh(c->first) * LARDER_SLOT_SECTORS,
		 high = base + (uint64_t)le16toh(c->end) * LARDER_SLOT_SECTORS;

	for (uint32_t i = 0; i < le16toh(c->nr_entries); i++)
		if (!entry_ok(image, commit_entry(c, i), c->stream, low, high))
			return false;
	return true;
}

/* Section 5.3 (1), for a block at that place. */
static bool is_of_log(const struct cache_image *image, const struct larder_commit *c, unsigned stream, uint32_t segment, uint32_t slot)
{
	return le32toh(c->magic) == LARDER_COMMIT_MAGIC && le64toh(c->hash) == image->hash && le32toh(c->epoch) == image->epoch &&
	       c->stream == stream && le32toh(c->segment) == segment && le16toh(c->slot) == slot;
}

static bool commit_crc_ok(const struct larder_commit *c)
{
	return le32toh(c->crc) == block_crc(c, sizeof(*c), offsetof(struct larder_commit, crc));
}

/* (3) to (5), but for what the chain says.  from: behind the previous commit block. */
static bool is_whole(const struct cache_image *image, const struct larder_commit *c, uint32_t from)
{
	uint32_t first = le16toh(c->first), end = le16toh(c->end), slot = le16toh(c->slot), n = le16toh(c->nr_entries);

	if (first < from || first > end || end > slot || end - first > LARDER_RECORD_SLOTS ||
	    slot >= image->segment_slots - LARDER_SUMMARY_SLOTS)
		return false;
	if (n * sizeof(struct larder_entry) + (end - first) * 4 > LARDER_COMMIT_BODY || !(c->flags & LARDER_COMMIT_SUMS_VALID))
		return false;
	return commit_crc_ok(c) && entries_ok(image, c);
}

/* Section 5.3 (1) to (5).  from: as for is_whole(). */
static bool commit_ok(const struct cache_image *image, const struct larder_commit *c, unsigned stream, uint32_t segment,
		      uint32_t slot, uint32_t from)
{
	const struct log_stream *s = &image->stream[stream];

	if (!is_of_log(image, c, stream, segment, slot))
		return false;
	if (le64toh(c->prev_sequence) != s->prev_sequence || le32toh(c->prev_crc) != s->prev_crc ||
	    le64toh(c->sequence) <= s->prev_sequence)
		return false;
	if (stream == LARDER_STREAM_WRITE && le64toh(c->durable_sequence) >= le64toh(c->sequence))
		return false;
	return is_whole(image, c, from);
}

static bool slot_matches(const struct cache_image *image, uint32_t slot, uint32_t sum)
{
	const struct segment_window *w = &image->window;

	for (unsigned i = 0; i < w->copies; i++)
		if (!w->bad[i][slot] && crc32c(~0u, w->data[i] + (size_t)slot * LARDER_SLOT_SIZE, LARDER_SLOT_SIZE) == sum)
			return true;
	return false;
}

/*
 * Do the sums of a record's data match (6)?  What was durable is whole in every copy, so that one copy which can be read and does not
 * match tells that the record was not; a slot that no copy gives tells nothing.
 */
enum sums {
	SUMS_GOOD,
	SUMS_TORN,
	SUMS_UNREADABLE, /* all that can be read match */
};

/* *slot: one that cannot be read, if there is one. */
static enum sums check_sums(struct cache_image *image, const struct larder_commit *c, uint32_t *slot)
{
	uint32_t first = le16toh(c->first), n = le16toh(c->end) - first;
	enum sums sums = SUMS_GOOD;

	segment_read(image, le32toh(c->segment));
	for (uint32_t i = 0; i < n; i++) {
		if (slot_matches(image, first + i, commit_sum(c, i)))
			continue;
		if (!window_unreadable(image, first + i))
			return SUMS_TORN;
		sums = SUMS_UNREADABLE;
		*slot = first + i;
	}
	return sums;
}

/* Behind the last slot where a block may be that is looked for from this one on. */
static uint32_t look_end(const struct cache_image *image, uint32_t from)
{
	uint32_t end = image->segment_slots - LARDER_SUMMARY_SLOTS;

	return from < end && end - from > LOOK_AHEAD ? from + LOOK_AHEAD : end;
}

/* The first valid block in slots [from, from + 128) of a segment, in the window.  NULL: none. */
static const struct larder_commit *look(struct cache_image *image, unsigned stream, uint32_t segment, uint32_t from)
{
	uint32_t end = look_end(image, from);

	/* clean copies that are not here are not cached; of the stream that says what is dirty all must be here */
	if (stream == LARDER_STREAM_WRITE && !segment_is_here(image, segment)) {
		image->absent = true;
		problem(&image->problems, "log", "segment %u of it is only on an SSD that is not here", segment);
		return NULL;
	}
	segment_read(image, segment);
	for (uint32_t slot = from; slot < end; slot++)
		for (unsigned copy = 0; copy < image->window.copies; copy++)
			if (commit_ok(image, window_block(image, copy, slot), stream, segment, slot, from))
				return window_block(image, copy, slot);
	return NULL;
}

static void open_segment(struct cache_image *image, const struct larder_entry *e)
{
	uint32_t segment = (uint32_t)le64toh(e->sector);

	if (le32toh(e->length) < LARDER_NR_STREAMS)
		stream_open(image, le32toh(e->length), segment, le64toh(e->cache));
	else
		segment_pair(image, segment, le64toh(e->cache));
}

/* The next record of a stream by its chain, in the window; moves the stream on.  NULL: its end. */
static const struct larder_commit *next_record(struct cache_image *image, unsigned stream)
{
	struct log_stream *s = &image->stream[stream];
	const struct larder_commit *c = NULL;

	if (s->at != LARDER_NO_SEGMENT)
		c = look(image, stream, s->at, s->slot);
	if (!c && !image->absent && s->next < s->count) {
		c = look(image, stream, s->segment[s->next], 0);
		if (c)
			s->next++;
	}
	if (!c)
		return NULL;
	s->at = le32toh(c->segment);
	s->slot = le16toh(c->slot) + 1u;
	s->prev_sequence = le64toh(c->sequence);
	s->prev_crc = le32toh(c->crc);
	image->last_record[s->at] = s->prev_sequence;
	for (uint32_t i = 0; stream == LARDER_STREAM_WRITE && i < le16toh(c->nr_entries); i++) {
		const struct larder_entry *e = commit_entry(c, i);

		if (e->kind == LARDER_SEGMENT_OPEN)
			open_segment(image, e);
	}
	return c;
}

/* ------------------------------------------------------------- which records count */

static void remember(struct cache_image *image, const struct larder_commit *c)
{
	if (image->nr_records == image->size_records) {
		image->size_records = 2 * image->size_records + 1024;
		image->record = must_allocate(realloc(image->record, image->size_records * sizeof(*image->record)));
	}
	image->record[image->nr_records++] =
		(struct log_record){ le64toh(c->sequence), le32toh(c->segment), le16toh(c->slot), c->stream, le32toh(c->crc) };
}

bool record_read(const struct cache_image *image, const struct log_record *record, struct larder_commit *commit)
{
	struct larder_commit *buffer = device_buffer(sizeof(*buffer));
	uint32_t copy[SEGMENT_COPIES];
	bool good = false;

	for (unsigned i = 0, n = segment_copies(image, record->segment, copy); !good && i < n; i++)
		/* it was valid, in one copy; what is read now must be the same, and nothing else is to be believed because of that */
		good = !segment_read_at(image, copy[i], (uint64_t)record->slot * LARDER_SLOT_SIZE, buffer, sizeof(*buffer)) &&
		       is_of_log(image, buffer, record->stream, record->segment, record->slot) &&
		       le64toh(buffer->sequence) == record->sequence && le32toh(buffer->crc) == record->crc && is_whole(image, buffer, 0);
	memcpy(commit, buffer, sizeof(*commit));
	free(buffer);
	return good;
}

static void know_durable(struct cache_image *image, uint64_t sequence)
{
	if (sequence > image->durable)
		image->durable = sequence;
}

/*
 * Blocks of the log in slots [from, end) of a segment, behind where the chain ends, may say that records were durable which the
 * chain does not reach.  False: there are no such blocks.
 */
static bool blocks_durable(struct cache_image *image, uint32_t segment, uint32_t from)
{
	bool found = false;

	segment_read(image, segment);
	for (uint32_t i = from * image->window.copies; i < (image->segment_slots - LARDER_SUMMARY_SLOTS) * image->window.copies; i++) {
		uint32_t slot = i / image->window.copies;
		const struct larder_commit *c = window_block(image, i % image->window.copies, slot);

		if (!is_of_log(image, c, LARDER_STREAM_WRITE, segment, slot) || !commit_crc_ok(c))
			continue;
		know_durable(image, le64toh(c->durable_sequence));
		found = true;
	}
	return found;
}

/* Up to the second segment in a row that has none: the damaged one may have had no other. */
static void find_durable_behind(struct cache_image *image)
{
	const struct log_stream *s = &image->stream[LARDER_STREAM_WRITE];
	unsigned empty = 0;

	if (s->at != LARDER_NO_SEGMENT)
		blocks_durable(image, s->at, s->slot);
	for (uint32_t i = s->next; i < s->count && empty < 2; i++)
		empty = blocks_durable(image, s->segment[i], 0) ? 0 : empty + 1;
}

/* A place that cannot be read, where the write stream's next record may be; it was looked for there, and not found. */
static void find_unreadable(struct cache_image *image, uint32_t segment, uint32_t from)
{
	segment_read(image, segment);
	for (uint32_t slot = from; slot < look_end(image, from); slot++) {
		if (!window_unreadable(image, slot))
			continue;
		problem(&image->lost, "log",
			"segment %u, slot %u cannot be read, where the record behind %" PRIu64 " may be: newer data is lost, if there was any",
			segment, slot, image->ends_at);
		return;
	}
}

/*
 * Nobody knows whether the log ends, or goes on in what cannot be read: no power cut makes a sector unreadable.  Where it ends for
 * another reason, what is behind does not count anyway.
 */
static void find_unreadable_behind(struct cache_image *image)
{
	const struct log_stream *s = &image->stream[LARDER_STREAM_WRITE];

	if (s->at != LARDER_NO_SEGMENT)
		find_unreadable(image, s->at, s->slot);
	if (s->next < s->count)
		find_unreadable(image, s->segment[s->next], 0);
}

/* What SEGMENT_OPENs have changed so far; the write stream's segments are read to the end of its chain, whatever counts of it. */
struct opened {
	uint32_t *mirror, *mirror_of, count[LARDER_NR_STREAMS];
};

static struct opened opened_save(const struct cache_image *image)
{
	size_t bytes = image->segments_end * sizeof(*image->mirror);
	struct opened opened = { must_allocate(malloc(bytes)), must_allocate(malloc(bytes)), { 0 } };

	memcpy(opened.mirror, image->mirror, bytes);
	memcpy(opened.mirror_of, image->mirror_of, bytes);
	for (unsigned i = 0; i < LARDER_NR_STREAMS; i++)
		opened.count[i] = image->stream[i].count;
	return opened;
}

static void opened_free(struct opened *opened)
{
	free(opened->mirror);
	free(opened->mirror_of);
}

/* Once it is known which records count: as it was, and by what these say.  False: one of them cannot be read any more. */
static bool open_again(struct cache_image *image, const struct opened *opened)
{
	size_t bytes = image->segments_end * sizeof(*image->mirror);
	struct larder_commit c;

	memcpy(image->mirror, opened->mirror, bytes);
	memcpy(image->mirror_of, opened->mirror_of, bytes);
	image->window.segment = LARDER_NO_SEGMENT;
	for (unsigned i = LARDER_STREAM_FILL; i < LARDER_NR_STREAMS; i++) {
		struct log_stream *s = &image->stream[i];

		while (s->count > opened->count[i])
			s->listed[s->segment[--s->count]] = false;
	}
	for (uint64_t i = 0; i < image->nr_records; i++) {
		if (!record_read(image, &image->record[i], &c)) {
			problem(&image->problems, "log", "record %" PRIu64 " cannot be read a second time", image->record[i].sequence);
			return false;
		}
		for (uint32_t k = 0; k < le16toh(c.nr_entries); k++) {
			const struct larder_entry *e = commit_entry(&c, k);

			if (e->kind != LARDER_SEGMENT_OPEN)
				continue;
			if (le32toh(e->length) == LARDER_STREAM_WRITE)
				segment_pair(image, (uint32_t)le64toh(e->sector), le64toh(e->cache));
			else
				open_segment(image, e);
		}
	}
	return true;
}

/* A record that is not known durable.  False: the log ends before it. */
static bool counts(struct cache_image *image, const struct larder_commit *c)
{
	uint64_t sequence = le64toh(c->sequence);
	uint32_t slot;

	switch (check_sums(image, c, &slot)) {
	case SUMS_GOOD:
		return true;
	case SUMS_UNREADABLE:
		/* it may have been durable: it counts as one that was, the data that cannot be read is damaged */
		problem(&image->problems, "log", "segment %u, slot %u, data of record %" PRIu64 ", cannot be read", le32toh(c->segment), slot,
			sequence);
		return true;
	case SUMS_TORN:
		break;
	}
	problem(&image->torn, "log",
		"the log ends at record %" PRIu64 ": its data does not match (behind the last durable one, %" PRIu64 ")", sequence,
		image->durable);
	return false;
}

static bool find_end(struct cache_image *image)
{
	const struct larder_commit *next;
	struct larder_commit c;

	image->durable = image->epoch == le32toh(image->sb->epoch) ? image->set->durable : 0;
	while ((next = next_record(image, LARDER_STREAM_WRITE))) {
		know_durable(image, le64toh(next->durable_sequence));
		remember(image, next);
	}
	if (image->absent)
		return false;
	find_durable_behind(image);
	image->ends_at = image->stream[LARDER_STREAM_WRITE].prev_sequence;
	for (uint64_t i = 0; i < image->nr_records; i++) {
		const struct log_record *r = &image->record[i];

		if (r->sequence <= image->durable)
			continue;
		if (!record_read(image, r, &c)) {
			problem(&image->problems, "log", "record %" PRIu64 " cannot be read a second time", r->sequence);
			return false;
		}
		if (counts(image, &c))
			continue;
		image->nr_records = i;
		image->ends_at = le64toh(c.prev_sequence);
	}
	if (!image->torn.number)
		find_unreadable_behind(image);
	return true;
}

/* A SEGMENT_OPEN behind the end is none: what it calls further copies was never written, and the old ones still are. */
static bool find_written(struct cache_image *image)
{
	struct opened opened = opened_save(image);
	bool good = find_end(image) && (!image->torn.number || open_again(image, &opened));

	opened_free(&opened);
	return good;
}

/*
 * A chain that breaks in its durable part ends there: a damaged commit block looks like the end of the log.  But superblock, blocks
 * behind it, or blocks of the other streams may say that records were durable which the chain does not reach.  (What they say before
 * its first record is of an earlier epoch.)
 */
static void find_lost(struct cache_image *image)
{
	if (image->durable <= image->ends_at || image->durable < image->first_sequence)
		return;
	problem(&image->lost, "log",
		"it breaks off behind record %" PRIu64 ", but records up to %" PRIu64 " were durable: newer data is lost", image->ends_at,
		image->durable);
}

/* The highest sequence number that anything has which counts. */
static uint64_t highest_sequence(const struct cache_image *image)
{
	uint64_t highest = image->replay_from, first = le64toh(image->sb->epochs[0].first_sequence);

	highest = first > highest ? first : highest;
	highest = image->ends_at > highest ? image->ends_at : highest;
	for (unsigned i = LARDER_STREAM_FILL; i < LARDER_NR_STREAMS; i++)
		if (image->stream[i].prev_sequence > highest)
			highest = image->stream[i].prev_sequence;
	for (uint32_t i = 0; i < image->segments_end; i++)
		if (image->last_record[i] > highest)
			highest = image->last_record[i];
	return highest;
}

static void find_spent(struct cache_image *image)
{
	const struct larder_cache_sb *sb = image->sb;
	uint64_t checkpoint = checkpoint_named(&sb->checkpoint[0]) ? le64toh(sb->checkpoint[0].sequence) : 0;
	const struct {
		const char *what, *field;
		uint64_t value, end;
	} counter[] = {
		{ "superblock", "generation", le64toh(sb->head.generation), LARDER_COUNTER_END },
		{ "superblock", "epoch", le32toh(sb->epoch), UINT32_MAX },
		{ "superblock", "checkpoint.sequence", checkpoint, LARDER_COUNTER_END },
		{ "table", "generation", le64toh(image->table->head.generation), LARDER_COUNTER_END },
		{ "table", "set_generation", le64toh(image->table->head.set_generation), LARDER_COUNTER_END },
		{ "log", "sequence number", image->loaded ? highest_sequence(image) : 0, LARDER_COUNTER_END },
	};

	for (size_t i = 0; i < sizeof(counter) / sizeof(counter[0]); i++) {
		if (counter[i].value < counter[i].end)
			continue;
		image->spent = true;
		problem(&image->problems, counter[i].what, "%s is %" PRIu64 ", which no cache comes to: the kernel does not start it",
			counter[i].field, counter[i].value);
	}
}

static int by_sequence(const void *a, const void *b)
{
	const struct log_record *x = a, *y = b;

	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

bool cache_image_records(struct cache_image *image)
{
	const struct larder_commit *next;
	struct larder_commit c;
	uint32_t slot;

	if (!image->loaded) {
		find_spent(image);
		return true;
	}
	if (!find_written(image))
		return false;
	if (image->ends_at < image->must_reach) {
		problem(&image->problems, "log", "ends at record %" PRIu64 ", the damaged checkpoint stood on %" PRIu64, image->ends_at,
			image->must_reach);
		return false;
	}
	for (unsigned s = LARDER_STREAM_FILL; s < LARDER_NR_STREAMS; s++)
		while ((next = next_record(image, s))) {
			c = *next;
			know_durable(image, le64toh(c.durable_sequence));
			if (check_sums(image, &c, &slot) == SUMS_GOOD)
				remember(image, &c);
			else
				image->ignored++;
		}
	find_lost(image);
	find_spent(image);
	if (image->nr_records)
		qsort(image->record, image->nr_records, sizeof(*image->record), by_sequence);
	return true;
}

/* ------------------------------------------------------------- replay */

struct reopened {
	const struct extent_usage *usage;
	const bool *segment;
};

static bool is_elsewhere(const struct region *r, uint64_t e, void *data)
{
	const struct reopened *reopened = data;

	(void)r;
	return extent_state(e) == LARDER_ST_ZERO || !reopened->segment[extent_cache(e) / reopened->usage->segment_sectors];
}

static void drop_segments(struct cache_image *image, const bool *segment)
{
	struct reopened reopened = { &image->usage, segment };

	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++)
		extent_map_filter(&image->volume[i].map, is_elsewhere, &reopened);
}

static void drop_segment(struct cache_image *image, uint32_t segment)
{
	bool *one;

	if (!image->usage.live[segment])
		return;
	one = must_allocate(calloc(image->segments_end, sizeof(*one)));
	one[segment] = true;
	drop_segments(image, one);
	free(one);
}

/* Entries of volumes that are not there, or outside of them, are skipped. */
static bool is_applied(const struct cached_volume *v, const struct larder_entry *e)
{
	uint64_t sector = le64toh(e->sector);
	uint32_t length = le32toh(e->length);

	if (!v->sectors)
		return false;
	if (e->kind == LARDER_INTENT)
		return sector <= (v->sectors - 1) >> LARDER_INTENT_SHIFT;
	return e->kind == LARDER_FORGET || (length <= v->sectors && sector <= v->sectors - length);
}

static void apply(struct cache_image *image, const struct larder_entry *e)
{
	struct cached_volume *v = &image->volume[le16toh(e->volume) % LARDER_MAX_VOLUMES];
	uint64_t sector = le64toh(e->sector), cache = le64toh(e->cache);
	uint32_t length = le32toh(e->length);

	if (e->kind == LARDER_SEGMENT_OPEN) {
		drop_segment(image, (uint32_t)sector);
		for (; (uint32_t)cache; cache >>= 32)
			drop_segment(image, (uint32_t)cache - 1);
		return;
	}
	if (e->kind == LARDER_CHECKPOINT)
		return;
	if (!is_applied(v, e)) {
		image->skipped++;
		return;
	}
	switch (e->kind) {
	case LARDER_WRITE:
		extent_map_set(&v->map, sector, length, LARDER_ST_DIRTY, cache);
		break;
	case LARDER_FILL:
		extent_map_fill(&v->map, sector, length, cache);
		break;
	case LARDER_ZERO:
		extent_map_set(&v->map, sector, length, LARDER_ST_ZERO, cache);
		break;
	case LARDER_CLEAN:
		extent_map_clean(&v->map, sector, length, cache);
		break;
	case LARDER_INVALIDATE:
		extent_map_set(&v->map, sector, length, LARDER_ST_NONE, 0);
		break;
	case LARDER_INTENT:
		volume_mark(v, sector, length);
		break;
	case LARDER_FORGET:
		volume_forget(v);
		break;
	default:
		break;
	}
}

static bool is_not_stale(const struct region *r, uint64_t e, void *data)
{
	const struct cached_volume *v = data;

	return extent_state(e) != LARDER_ST_CLEAN ||
	       !volume_marked(v, r->number * LARDER_REGION_SECTORS >> LARDER_INTENT_SHIFT);
}

static bool is_not_clean(const struct region *r, uint64_t e, void *data)
{
	(void)r;
	(void)data;
	return extent_state(e) != LARDER_ST_CLEAN;
}

static void drop_clean(struct cache_image *image)
{
	bool all = le32toh(image->sb->head.flags) & LARDER_CACHE_DROP_CLEAN;

	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++) {
		struct cached_volume *v = &image->volume[i];

		if (all || v->nr_marks)
			image->dropped += extent_map_filter(&v->map, all ? is_not_clean : is_not_stale, v);
	}
}

/* Calls visit for each entry of each record that is replayed, in order.  False: a record cannot be read any more. */
static bool each_entry(struct cache_image *image, void (*visit)(struct cache_image *image, const struct larder_entry *e, void *data),
		       void *data)
{
	struct larder_commit c;

	for (uint64_t i = 0; i < image->nr_records; i++) {
		if (image->record[i].sequence < image->replay_from)
			continue;
		if (!record_read(image, &image->record[i], &c)) {
			problem(&image->problems, "log", "record %" PRIu64 " cannot be read a second time", image->record[i].sequence);
			if (image->record[i].stream != LARDER_STREAM_WRITE)
				continue; /* copies of what the backing has: nothing needs them */
			return false;
		}
		for (uint32_t k = 0; k < le16toh(c.nr_entries); k++)
			visit(image, commit_entry(&c, k), data);
	}
	return true;
}

static void note_reopened(struct cache_image *image, const struct larder_entry *e, void *data)
{
	bool *reopened = data;

	(void)image;
	if (e->kind != LARDER_SEGMENT_OPEN)
		return;
	reopened[le64toh(e->sector)] = true;
	for (uint64_t further = le64toh(e->cache); (uint32_t)further; further >>= 32)
		reopened[(uint32_t)further - 1] = true;
}

static void apply_visited(struct cache_image *image, const struct larder_entry *e, void *data)
{
	(void)data;
	apply(image, e);
}

/* What a checkpoint says of the copies of a segment that was opened since is of its earlier life: all of its records are in the log. */
static void forget_unsure(struct cache_image *image, const bool *reopened)
{
	for (uint32_t i = 0; i < image->segments_end; i++)
		if (reopened[i])
			image->unsure[i] = 0;
}

bool cache_image_replay(struct cache_image *image)
{
	bool *reopened = must_allocate(calloc(image->segments_end, sizeof(*reopened)));
	bool good = each_entry(image, note_reopened, reopened);

	if (good) {
		drop_segments(image, reopened);
		forget_unsure(image, reopened);
		good = each_entry(image, apply_visited, NULL);
	}
	if (good)
		drop_clean(image);
	free(reopened);
	return good;
}

bool cache_image_load(struct cache_image *image)
{
	return cache_image_checkpoint(image) && cache_image_records(image) && cache_image_replay(image);
}
