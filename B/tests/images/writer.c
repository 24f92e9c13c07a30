// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Makes images of the SSDs of a cache and the backing of its one volume, as they are after a clean stop or a crash, so that a start with a full cache can be tried and
 * timed without filling one first.  Written from docs/on-disk-format.md.  The files are sparse: data is zeroes (or, with --pattern, tells where it belongs).
 *
 * The SSD, by segment number, front to back:
 *
 *   | sealed: stream write, all dirty | sealed: fill, clean | sealed: keep, clean | opened, tail of the log | free ...... | checkpoint chunks, from the end down |
 *
 * A sealed segment is filled with records of as many extents as go into 127 slots.  Extent number k of the cache is the volume's extent
 * (k * multiplier) mod (number of extents of the volume): scattered, without a table, and invertible, which gives the checkpoint its order.
 *
 * The tail (--state crashed) is a chain of records of the write stream, behind the position that the checkpoint names, in segments that it lists as opened and
 * then in such that SEGMENT_OPEN entries open (taken from the last sealed clean ones, whose extents replay must drop); with all kinds of entries among the writes; and one of
 * the fill stream.  Sequence numbers of the two interleave.
 *
 * Of several SSDs, all of one size, the segments are numbered by pairs here: pair number p is a segment in the first half of SSD p mod n, and for what has
 * a second copy (stream write, checkpoints) one in the second half of the next SSD; with three copies by triples, and thirds.  What lies on the SSDs has
 * their global numbers: first_of(), copy_of().
 */
#include <fcntl.h>
#include <getopt.h>
#include <sys/stat.h>

#include "image.h"

#define OPENED		16u		/* segments opened at once */
#define SECRET		0x5ec2e7c0ffee1234ull
#define EPOCH		3u
#define FIRST_SEQUENCE	1000u
#define CHECKPOINT	41u		/* sequence of the newest one */

struct options {
	const char *cache[LARDER_MAX_DEVICES], *backing;
	uint32_t ssds, copies;	/* copies: of what is mirrored */
	uint64_t cache_size, volume_size, segment_size, extent;
	unsigned fill, dirty, tail, fill_tail, unsynced, checkpoints, opened;
	bool crashed, pattern, records, opened_again;
};

/* Where the next record of a stream goes. */
struct stream {
	uint32_t opened[65536], first, count;	/* segments opened, not begun: [first, count) */
	uint32_t segment, slot;
	uint64_t prev_sequence;
	uint32_t prev_crc;
};

static struct options opt = {
	.cache_size = 64ull << 30, .segment_size = LARDER_DEF_SEGMENT_SIZE, .extent = 16384, .fill = 100, .dirty = 10, .tail = 64, .fill_tail = 16,
	.unsynced = 64, .checkpoints = 1, .copies = 2,
};
static int cache_fd[LARDER_MAX_DEVICES], backing_fd;
static uint8_t cache_uuid[16], ssd_uuid[LARDER_MAX_DEVICES][16], volume_uuid[16];
static uint32_t ssd_segments;	/* of each SSD */
static uint64_t segments_offset, log_hash, volume_sectors;
static uint32_t nr_segments, segment_slots, extent_slots, per_record, record_slots, per_segment;	/* extents per record, per segment */
static uint32_t write_segments, fill_segments, sealed_segments, next_free, top_free;
static uint64_t nr_extents, volume_extents, multiplier, inverse;
static uint64_t sequence = FIRST_SEQUENCE, first_replayed, newest_durable, random_state = 1;
static struct stream streams[LARDER_NR_STREAMS], at_checkpoint[LARDER_NR_STREAMS];
static struct larder_segment_info *segments;	/* mirror: while it has further copies */
static uint32_t zero_sum;

/* ------------------------------------------------------------- arithmetic */

static uint64_t random64(void)
{
	return hash_mix(random_state += 0x9e3779b97f4a7c15ull);
}

static uint64_t multiply(uint64_t a, uint64_t b, uint64_t modulus)
{
	return (uint64_t)((unsigned __int128)a * b % modulus);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t r = a % b;

		a = b;
		b = r;
	}
	return a;
}

/* a * result = 1 mod modulus; they have no common factor */
static uint64_t invert(uint64_t a, uint64_t modulus)
{
	__int128 t = 0, new_t = 1, r = modulus, new_r = a, q, swap;

	while (new_r) {
		q = r / new_r;
		swap = t - q * new_t;
		t = new_t;
		new_t = swap;
		swap = r - q * new_r;
		r = new_r;
		new_r = swap;
	}
	return (uint64_t)(t < 0 ? t + modulus : t);
}

/* Global numbers */
static uint32_t first_of(uint32_t segment)
{
	return opt.ssds == 1 ? segment : segment % opt.ssds * ssd_segments + segment / opt.ssds;
}

/* The k'th copy, 0: itself */
static uint32_t copy_of(uint32_t segment, uint32_t k)
{
	return (segment + k) % opt.ssds * ssd_segments + ssd_segments / opt.copies * k + segment / opt.ssds;
}

/* As the format has it: the second copy + 1, 0: none */
static uint32_t mirror_of(uint32_t segment, bool pair)
{
	return pair && opt.copies > 1 ? copy_of(segment, 1) + 1 : 0;
}

/* Likewise, the third one */
static uint32_t third_of(uint32_t segment, bool pair)
{
	return pair && opt.copies > 2 ? copy_of(segment, 2) + 1 : 0;
}

/* Both, as a SEGMENT_OPEN has them */
static uint64_t further_of(uint32_t segment, bool pair)
{
	return mirror_of(segment, pair) | (uint64_t)third_of(segment, pair) << 32;
}

static uint64_t cache_address(uint32_t segment, uint32_t slot)
{
	return ((uint64_t)first_of(segment) * segment_slots + slot) * LARDER_SLOT_SECTORS;
}

static void put_global(uint32_t global, uint64_t offset, const void *p, size_t bytes)
{
	uint32_t ssd = global / ssd_segments;

	image_write(cache_fd[ssd], opt.cache[ssd], p, bytes, segments_offset + (uint64_t)(global % ssd_segments) * opt.segment_size + offset);
}

/* To all copies of the segment. */
static void put_at(uint32_t segment, uint64_t offset, const void *p, size_t bytes)
{
	put_global(first_of(segment), offset, p, bytes);
	for (uint32_t k = 1; segments[segment].mirror && k < opt.copies; k++)
		put_global(copy_of(segment, k), offset, p, bytes);
}

static uint32_t extent_slot(uint32_t number)	/* of the number'th extent of a sealed segment */
{
	return number / per_record * record_slots + number % per_record * extent_slots;
}

static uint64_t extent_sector(uint64_t k)	/* of the volume, for the cache's extent k */
{
	return multiply(k, multiplier, volume_extents) * extent_slots * LARDER_SLOT_SECTORS;
}

static bool segment_dirty(uint32_t segment)
{
	return segment < write_segments;
}

static unsigned segment_stream(uint32_t segment)
{
	if (segment < write_segments)
		return LARDER_STREAM_WRITE;
	return segment < write_segments + fill_segments ? LARDER_STREAM_FILL : LARDER_STREAM_KEEP;
}

/* ------------------------------------------------------------- records */

/* A record in the making: entries, and the sums of its slots. */
struct record {
	struct larder_entry entry[160];
	uint32_t sum[LARDER_RECORD_SLOTS];
	uint32_t entries, slots;
};

static void add_entry(struct record *r, unsigned kind, uint64_t sector, uint32_t length, uint64_t cache)
{
	struct larder_entry *e = &r->entry[r->entries++];

	memset(e, 0, sizeof(*e));
	e->sector = htole64(sector);
	e->length = htole32(length);
	e->cache = htole64(cache);
	e->kind = (uint8_t)kind;
}

/* Data for 'slots' slots at the device, and their sums; version as in image_pattern(). */
static void put_data(struct record *r, uint32_t segment, uint32_t slot, uint64_t sector, uint64_t version)
{
	static uint8_t data[LARDER_RECORD_SLOTS * LARDER_SLOT_SIZE];

	if (opt.pattern) {
		image_pattern(data, sector, extent_slots * LARDER_SLOT_SECTORS, version);
		put_at(segment, (uint64_t)slot * LARDER_SLOT_SIZE, data, extent_slots * LARDER_SLOT_SIZE);
	}
	for (uint32_t i = 0; i < extent_slots; i++)
		r->sum[r->slots++] = opt.pattern ? crc32c(~0u, data + i * LARDER_SLOT_SIZE, LARDER_SLOT_SIZE) : zero_sum;
}

/* Writes the commit block of r behind its data, which begins at s->slot; moves s on. */
static void put_commit(struct stream *s, unsigned number, const struct record *r)
{
	struct larder_commit c = {
		.magic = htole32(LARDER_COMMIT_MAGIC), .hash = htole64(log_hash), .sequence = htole64(sequence),
		.prev_sequence = htole64(s->prev_sequence), .durable_sequence = htole64(newest_durable), .prev_crc = htole32(s->prev_crc),
		.epoch = htole32(EPOCH), .segment = htole32(first_of(s->segment)), .slot = htole16((uint16_t)(s->slot + r->slots)),
		.first = htole16((uint16_t)s->slot), .end = htole16((uint16_t)(s->slot + r->slots)), .nr_entries = htole16((uint16_t)r->entries),
		.stream = (uint8_t)number, .flags = LARDER_COMMIT_SUMS_VALID,
	};
	uint32_t crc;

	if (r->entries * sizeof(r->entry[0]) + r->slots * 4 > LARDER_COMMIT_BODY)
		die("a record of %u entries and %u slots: a mistake in this program", r->entries, r->slots);
	memcpy(c.body, r->entry, r->entries * sizeof(r->entry[0]));
	for (uint32_t i = 0; i < r->slots; i++) {
		uint32_t le = htole32(r->sum[i]);

		memcpy(c.body + r->entries * sizeof(r->entry[0]) + i * 4, &le, 4);
	}
	crc = block_crc(&c, sizeof(c), offsetof(struct larder_commit, crc));
	c.crc = htole32(crc);
	s->slot += r->slots;
	put_at(s->segment, (uint64_t)s->slot * LARDER_SLOT_SIZE, &c, sizeof(c));
	s->slot++;
	s->prev_sequence = sequence;
	s->prev_crc = crc;
	segments[s->segment].state = LARDER_SEGMENT_USED;
	segments[s->segment].stream = (uint8_t)number;
	segments[s->segment].sequence = htole64(sequence);
	sequence++;
}

/* All records and the summary of a sealed segment. */
static void put_sealed_records(uint32_t segment)
{
	struct larder_summary *summary = allocate(sizeof(*summary));
	struct stream *s = &streams[segment_stream(segment)];
	uint32_t *sums = allocate(segment_slots * 4), entries = 0, sum_slots = segment_slots - LARDER_SUMMARY_SLOTS;
	uint64_t first_sequence = sequence;
	bool fits = (uint64_t)per_segment * 24 + (uint64_t)sum_slots * 4 <= sizeof(summary->body);

	s->segment = segment;
	s->slot = 0;
	for (uint32_t n = 0; n < per_segment; ) {
		struct record r = { .entries = 0 };
		uint32_t from = s->slot;

		for (; r.entries < per_record && n < per_segment; n++) {
			uint64_t sector = extent_sector((uint64_t)segment * per_segment + n);
			uint32_t slot = extent_slot(n);

			add_entry(&r, segment_dirty(segment) ? LARDER_WRITE : LARDER_FILL, sector, extent_slots * LARDER_SLOT_SECTORS,
				  cache_address(segment, slot));
			put_data(&r, segment, slot, sector, segment_dirty(segment));
		}
		if (fits)
			memcpy(summary->body + entries * 24, r.entry, r.entries * 24);
		entries += r.entries;
		memcpy(sums + from, r.sum, r.slots * 4);
		put_commit(s, segment_stream(segment), &r);
	}
	if (fits) {
		for (uint32_t i = 0; i < sum_slots; i++) {
			uint32_t le = htole32(sums[i]);

			memcpy(summary->body + entries * 24 + i * 4, &le, 4);
		}
		summary->magic = htole32(LARDER_SUMMARY_MAGIC);
		summary->hash = htole64(log_hash);
		summary->first_sequence = htole64(first_sequence);
		summary->last_sequence = htole64(sequence - 1);
		summary->segment = htole32(first_of(segment));
		summary->epoch = htole32(EPOCH);
		summary->nr_entries = htole32(entries);
		summary->nr_sums = htole32(sum_slots);
		summary->stream = (uint8_t)segment_stream(segment);
		summary->flags = LARDER_SUMMARY_DATA_ONLY;
		summary->crc = htole32(block_crc(summary, sizeof(*summary), offsetof(struct larder_summary, crc)));
		put_global(first_of(segment), (uint64_t)sum_slots * LARDER_SLOT_SIZE, summary, sizeof(*summary));
	}
	free(sums);
	free(summary);
}

static void put_sealed(void)
{
	for (uint32_t i = 0; i < sealed_segments; i++) {
		segments[i].state = LARDER_SEGMENT_USED;
		segments[i].stream = (uint8_t)segment_stream(i);
		segments[i].sequence = htole64(sequence);
		segments[i].mirror = htole32(mirror_of(i, segment_dirty(i)));
		if (opt.records)
			put_sealed_records(i);
		else
			sequence += (per_segment + per_record - 1) / per_record;
	}
}

/* ------------------------------------------------------------- the log at the checkpoint, and behind it */

static uint32_t take_free(void)
{
	if (next_free >= top_free)
		die("no free segment is left: a smaller --tail, --fill-tail or --fill");
	return next_free++;
}

static void open_segment(unsigned stream, uint32_t segment)
{
	struct stream *s = &streams[stream];

	s->opened[s->count++] = segment;
	segments[segment].state = LARDER_SEGMENT_OPENED;
	segments[segment].stream = (uint8_t)stream;
	segments[segment].sequence = 0;
	segments[segment].mirror = htole32(mirror_of(segment, stream == LARDER_STREAM_WRITE));
}

/* The write stream has one record in its segment, the others have not begun one. */
static void begin_streams(void)
{
	struct stream *s = &streams[LARDER_STREAM_WRITE];
	struct record r = { .entries = 0 };

	for (unsigned i = 0; i < LARDER_NR_STREAMS; i++) {
		streams[i].segment = LARDER_NO_SEGMENT;
		if (!opt.records)
			streams[i].prev_sequence = streams[i].prev_crc = 0;
		for (unsigned k = 0; k < OPENED; k++)
			open_segment(i, take_free());
	}
	s->segment = s->opened[s->first++];
	s->slot = 0;
	add_entry(&r, LARDER_CHECKPOINT, CHECKPOINT - 1, 0, 0);
	put_commit(s, LARDER_STREAM_WRITE, &r);
	first_replayed = sequence;
	newest_durable = sequence - 1;
	memcpy(at_checkpoint, streams, sizeof(streams));
}

/* Room for a record of so many slots; else the stream's next segment. */
static void stream_room(struct stream *s, uint32_t slots)
{
	if (s->segment != LARDER_NO_SEGMENT && s->slot + slots < segment_slots - LARDER_SUMMARY_SLOTS)
		return;
	if (s->first == s->count)
		die("a stream has no opened segment left");
	s->segment = s->opened[s->first++];
	s->slot = 0;
}

/* The clean extents of these segments are gone from the cache; that they are is what SEGMENT_OPEN says. */
static void add_opens(struct record *r, unsigned stream, uint32_t *victim)
{
	for (unsigned i = 0; i < OPENED; i++) {
		uint32_t segment = *victim > write_segments + fill_segments ? --*victim : take_free();

		add_entry(r, LARDER_SEGMENT_OPEN, first_of(segment), stream, further_of(segment, stream == LARDER_STREAM_WRITE));
		open_segment(stream, segment);
	}
	/* for a checkpoint that was never named */
	if (*victim > write_segments + fill_segments) {
		uint32_t segment = --*victim;

		add_entry(r, LARDER_SEGMENT_OPEN, first_of(segment), LARDER_OPEN_CHUNKS, further_of(segment, true));
	}
}

/* Now and then, of everything that is no write. */
static void add_others(struct record *r, uint64_t number)
{
	static uint64_t cleaned, serial;
	uint32_t length = extent_slots * LARDER_SLOT_SECTORS;
	uint64_t sector;

	if (number % 3 == 0)
		add_entry(r, LARDER_ZERO, (random64() % volume_extents & ~1ull) * length + 1, length - 2, ++serial);
	if (number % 4 == 0)
		add_entry(r, LARDER_INVALIDATE, random64() % volume_extents * length + 3, length - 5, 0);
	if (number % 32 == 5)
		add_entry(r, LARDER_INTENT, random64() % ((volume_sectors + (1 << LARDER_INTENT_SHIFT) - 1) >> LARDER_INTENT_SHIFT), number % 3 != 0, 0);
	if (number % 2 == 0 && cleaned < (uint64_t)write_segments * per_segment) {
		sector = extent_sector(cleaned);
		add_entry(r, LARDER_CLEAN, sector, length,
			  cache_address((uint32_t)(cleaned / per_segment), extent_slot((uint32_t)(cleaned % per_segment))));
		if (opt.pattern) {
			uint8_t *data = allocate(opt.extent);

			image_pattern(data, sector, length, 1);
			image_write(backing_fd, opt.backing, data, opt.extent, LARDER_DEF_DATA_OFFSET + sector * SECTOR);
			free(data);
		}
		cleaned++;
	}
}

/*
 * One record of extents.  Fills: of volume extents that nothing else touches: uncached at the checkpoint, odd numbers; writes then keep to even ones
 * (cached or not).
 */
static void put_tail_record(unsigned stream, uint64_t number, uint64_t durable)
{
	struct stream *s = &streams[stream];
	uint32_t length = extent_slots * LARDER_SLOT_SECTORS;
	struct record r = { .entries = 0 };
	uint64_t e;

	stream_room(s, record_slots - 1);
	newest_durable = durable;
	for (uint32_t i = 0; i < per_record; i++) {
		if (stream == LARDER_STREAM_WRITE) {
			e = random64() % volume_extents & ~1ull;
		} else {
			do
				e = random64() % volume_extents | 1;
			while (e >= volume_extents || multiply(e, inverse, volume_extents) < nr_extents);
		}
		add_entry(&r, stream == LARDER_STREAM_WRITE ? LARDER_WRITE : LARDER_FILL, e * length, length, cache_address(s->segment, s->slot + r.slots));
		put_data(&r, s->segment, s->slot + r.slots, e * length, stream == LARDER_STREAM_WRITE ? sequence : 0);
		if (stream == LARDER_STREAM_WRITE && i == per_record / 2)
			add_others(&r, number);
	}
	put_commit(s, stream, &r);
}

/* A record without data slots. */
static void put_opens(unsigned stream, uint32_t *victim, uint64_t durable)
{
	struct stream *s = &streams[LARDER_STREAM_WRITE];
	struct record r = { .entries = 0 };

	stream_room(s, 0);
	newest_durable = durable;
	add_opens(&r, stream, victim);
	put_commit(s, LARDER_STREAM_WRITE, &r);
}

/*
 * The fill stream's first segment is full: the write stream opens the next one, which the checkpoint lists, as it does where the checkpoint began between its
 * coming to the list and its record.
 */
static void put_opened_again(uint64_t durable)
{
	struct stream *s = &streams[LARDER_STREAM_WRITE], *fill = &streams[LARDER_STREAM_FILL];
	struct record r = { .entries = 0 };

	if (!opt.opened_again || fill->first != 1 || fill->slot + record_slots - 1 < segment_slots - LARDER_SUMMARY_SLOTS)
		return;
	stream_room(s, 0);
	newest_durable = durable;
	add_entry(&r, LARDER_SEGMENT_OPEN, first_of(fill->opened[1]), LARDER_STREAM_FILL, further_of(fill->opened[1], false));
	put_commit(s, LARDER_STREAM_WRITE, &r);
}

/* As many records in both streams as go into their segments. */
static void put_tail(void)
{
	uint32_t victim = sealed_segments, in_segment = (segment_slots - LARDER_SUMMARY_SLOTS) / record_slots;
	uint64_t writes = (uint64_t)opt.tail * in_segment, fills = (uint64_t)opt.fill_tail * in_segment, w = 0, f = 0;
	uint64_t *history = allocate((opt.unsynced + 1) * sizeof(*history)), durable = newest_durable;

	if (fills && nr_extents * 2 >= volume_extents)
		die("--fill-tail: the volume has too little that is not cached: a larger --volume-size, or 0");
	while (w < writes || f < fills) {
		for (unsigned i = 0; i < 2; i++)
			if (streams[i].count - streams[i].first <= 4)
				put_opens(i, &victim, durable);
		if (w < writes && (f >= fills || w * fills <= f * writes)) {
			if (w >= opt.unsynced)
				durable = history[w % (opt.unsynced + 1)];
			history[(w + opt.unsynced) % (opt.unsynced + 1)] = sequence;
			put_tail_record(LARDER_STREAM_WRITE, w++, durable);
		} else {
			put_opened_again(durable);
			put_tail_record(LARDER_STREAM_FILL, f++, durable);
		}
	}
	free(history);
}

/* ------------------------------------------------------------- checkpoint */

static struct larder_chunk chunk;
static struct larder_checkpoint_ptr *checkpoint;
static uint32_t chunk_number, chunk_segment;

static void put_chunk(bool last)
{
	uint32_t in_segment = (uint32_t)(opt.segment_size / LARDER_CHUNK_SIZE), place = chunk_number % in_segment;
	uint32_t next = LARDER_NO_SEGMENT;

	if (!last && place + 1 == in_segment) {
		if (next_free >= top_free)
			die("no free segment is left for the checkpoint");
		next = --top_free;
	}
	chunk.magic = htole32(LARDER_CHUNK_MAGIC);
	chunk.hash = checkpoint->hash;
	chunk.sequence = checkpoint->sequence;
	chunk.number = htole32(chunk_number++);
	chunk.used = htole32(chunk.used);
	chunk.next_segment = htole32(next == LARDER_NO_SEGMENT ? next : first_of(next));
	chunk.next_mirror = htole32(next == LARDER_NO_SEGMENT ? 0 : mirror_of(next, true));
	chunk.next_third = htole32(next == LARDER_NO_SEGMENT ? 0 : third_of(next, true));
	chunk.crc = htole32(block_crc(&chunk, sizeof(chunk), offsetof(struct larder_chunk, crc)));
	for (uint32_t k = 0; k < opt.copies; k++)
		put_global(copy_of(chunk_segment, k), (uint64_t)place * LARDER_CHUNK_SIZE, &chunk, sizeof(chunk));
	checkpoint->bytes = htole64((uint64_t)chunk_number * LARDER_CHUNK_SIZE);
	memset(&chunk, 0, sizeof(chunk));
	if (next != LARDER_NO_SEGMENT)
		chunk_segment = next;
}

/* chunk.used is in CPU order until the chunk is written. */
static void put_item(unsigned kind, unsigned volume, uint64_t number, const void *data, uint32_t count, uint32_t unit)
{
	struct larder_item item = { .kind = (uint8_t)kind, .volume = htole16((uint16_t)volume), .count = htole32(count), .number = htole64(number) };

	if (chunk.used + sizeof(item) + (size_t)count * unit > LARDER_CHUNK_PAYLOAD)
		put_chunk(false);
	memcpy(chunk.payload + chunk.used, &item, sizeof(item));
	if (count)
		memcpy(chunk.payload + chunk.used + sizeof(item), data, (size_t)count * unit);
	chunk.used += (uint32_t)sizeof(item) + count * unit;
}

static void put_stream_items(unsigned number)
{
	const struct stream *s = &at_checkpoint[number];
	struct larder_stream_pos pos = {
		.segment = htole32(s->segment == LARDER_NO_SEGMENT ? s->segment : first_of(s->segment)), .slot = htole32(s->slot), .prev_sequence = htole64(s->prev_sequence), .prev_crc = htole32(s->prev_crc),
	};
	uint64_t opened[LARDER_CHUNK_PAYLOAD / 64];
	uint32_t n = 0;

	for (uint32_t i = s->first; i < s->count; i++)
		opened[n++] = htole64(first_of(s->opened[i]) | (uint64_t)mirror_of(s->opened[i], number == LARDER_STREAM_WRITE) << 32);
	for (; n && n < opt.opened; n++)
		opened[n] = opened[n - 1];
	put_item(LARDER_ITEM_STREAM, number, 0, &pos, 1, sizeof(pos));
	if (opt.copies < 3 || number != LARDER_STREAM_WRITE)
		put_item(LARDER_ITEM_OPEN, number, 0, opened, n, 8);
	else
		for (uint32_t i = 0; i < n; i++)
			put_item(LARDER_ITEM_OPEN, number, third_of(s->opened[s->first + (i < s->count - s->first ? i : s->count - s->first - 1)], true),
				 opened + i, 1, 8);
}

static void put_region_items(void)
{
	uint32_t length = extent_slots * LARDER_SLOT_SECTORS, in_region = LARDER_REGION_SECTORS / length;
	uint64_t extents[LARDER_REGION_SECTORS / LARDER_SLOT_SECTORS];

	for (uint64_t region = 0; region << LARDER_REGION_SHIFT < volume_sectors; region++) {
		uint32_t n = 0;

		for (uint32_t i = 0; i < in_region; i++) {
			uint64_t e = region * in_region + i, k;
			uint32_t segment;

			if (e >= volume_extents)
				break;
			k = multiply(e, inverse, volume_extents);
			if (k >= nr_extents)
				continue;
			segment = (uint32_t)(k / per_segment);
			extents[n++] = htole64((uint64_t)i * length | (uint64_t)(length - 1) << 12 |
				(uint64_t)(segment_dirty(segment) ? LARDER_ST_DIRTY : LARDER_ST_CLEAN) << 24 |
				cache_address(segment, extent_slot((uint32_t)(k % per_segment))) << 28);
		}
		if (n)
			put_item(LARDER_ITEM_REGION, 0, region, extents, n, 8);
	}
}

/* By global number; further copies are called free, the second of three names the third. */
static void put_segment_items(const struct larder_segment_info *info)
{
	uint32_t all = opt.ssds * ssd_segments;
	struct larder_segment_info *global = allocate(all * sizeof(*global));

	for (uint32_t i = 0; i < nr_segments; i++)
		global[first_of(i)] = info[i];
	for (uint32_t i = 0; i < nr_segments && opt.copies > 2; i++)
		if (info[i].mirror)
			global[copy_of(i, 1)].mirror = htole32(third_of(i, true));
	for (uint32_t i = 0, n; i < all; i += n) {
		n = all - i < 2048 ? all - i : 2048;
		put_item(LARDER_ITEM_SEGMENTS, 0, i, global + i, n, sizeof(*global));
	}
	free(global);
}

/* info: the segments as they were at the snapshot */
static void put_checkpoint(struct larder_checkpoint_ptr *p, uint64_t number, const struct larder_segment_info *info)
{
	checkpoint = p;
	p->sequence = htole64(number);
	p->replay_sequence = htole64(first_replayed);
	chunk_segment = --top_free;
	p->first_segment = htole32(first_of(chunk_segment));
	p->first_mirror = htole32(mirror_of(chunk_segment, true));
	p->first_third = htole32(third_of(chunk_segment, true));
	p->epoch = htole32(EPOCH);
	p->hash = htole64(checkpoint_hash(cache_uuid, SECRET, number));
	chunk_number = 0;
	memset(&chunk, 0, sizeof(chunk));
	for (unsigned i = 0; i < LARDER_NR_STREAMS; i++)
		put_stream_items(i);
	put_segment_items(info);
	put_region_items();
	put_item(LARDER_ITEM_END, 0, 0, NULL, 0, 1);
	put_chunk(true);
}

/* ------------------------------------------------------------- superblocks and table */

static void fill_head(struct larder_sb_head *head, uint32_t kind, const uint8_t uuid[16], uint64_t bytes, uint64_t copy)
{
	static const uint8_t magic[16] = LARDER_MAGIC;

	memcpy(head->magic, magic, 16);
	head->version = htole32(LARDER_VERSION);
	head->kind = htole32(kind);
	head->generation = htole64(7);
	memcpy(head->uuid, uuid, 16);
	head->device_sectors = htole64(bytes / SECTOR);
	head->copy_offset = htole64(copy);
	head->created = htole64(1760000000);
}

static void put_superblock(int fd, const char *name, struct larder_sb_head *head)
{
	head->crc = htole32(block_crc(head, LARDER_SB_SIZE, offsetof(struct larder_sb_head, crc)));
	image_write(fd, name, head, LARDER_SB_SIZE, le64toh(head->copy_offset));
	image_write(fd, name, head, LARDER_SB_SIZE, LARDER_SB_OFFSET);
}

static void put_table(void)
{
	struct larder_table *t = allocate(sizeof(*t));

	t->head.magic = htole32(LARDER_TABLE_MAGIC);
	t->head.generation = htole64(2);
	t->head.set_generation = htole64(1);
	memcpy(t->head.cache_uuid, cache_uuid, 16);
	t->head.nr_devices = htole32(opt.ssds);
	t->head.nr_volumes = htole32(1);
	for (uint32_t i = 0; i < opt.ssds; i++) {
		memcpy(t->devices[i].uuid, ssd_uuid[i], 16);
		t->devices[i].state = htole32(LARDER_DEVICE_ACTIVE);
		t->devices[i].first_segment = htole32(i * ssd_segments);
		t->devices[i].nr_segments = htole32(ssd_segments);
		t->devices[i].segments_offset = htole64(segments_offset);
	}
	memcpy(t->volumes[0].uuid, volume_uuid, 16);
	t->volumes[0].state = htole32(LARDER_VOLUME_ATTACHED);
	t->volumes[0].sectors = htole64(volume_sectors);
	t->volumes[0].incarnation = htole64(1);
	memcpy(t->volumes[0].label, "image", 5);
	t->head.crc = htole32(block_crc(t, sizeof(*t), offsetof(struct larder_table_head, crc)));
	for (uint32_t i = 0; i < opt.ssds; i++) {
		image_write(cache_fd[i], opt.cache[i], t, sizeof(*t), LARDER_TABLE_OFFSET_A);
		image_write(cache_fd[i], opt.cache[i], t, sizeof(*t), LARDER_TABLE_OFFSET_B);
	}
	free(t);
}

static void put_cache_superblock(struct larder_cache_sb *sb)
{
	fill_head(&sb->head, LARDER_KIND_CACHE, ssd_uuid[0], opt.cache_size, opt.cache_size / LARDER_SB_SIZE * LARDER_SB_SIZE - LARDER_SB_SIZE);
	sb->head.flags = htole32(opt.crashed ? 0 : LARDER_CACHE_CLEAN_STOP);
	sb->head.incompat = htole64(opt.copies > 2 ? LARDER_INCOMPAT_THIRD : 0);
	memcpy(sb->cache_uuid, cache_uuid, 16);
	memcpy(sb->label, "image", 5);
	sb->nr_devices = htole32(opt.ssds);
	sb->set_generation = htole64(1);
	sb->segment_size = htole32((uint32_t)opt.segment_size);
	sb->nr_segments = htole32(ssd_segments);
	sb->segments_offset = htole64(segments_offset);
	sb->table_generation = htole64(2);
	sb->epoch = htole32(EPOCH);
	sb->durable_sequence = htole64(first_replayed - 1);
	for (uint32_t i = opt.checkpoints; i < LARDER_NR_CHECKPOINTS; i++)
		sb->checkpoint[i].first_segment = htole32(LARDER_NO_SEGMENT);
	for (uint32_t i = 0; i < EPOCH; i++) {
		sb->epochs[i].epoch = htole32(EPOCH - i);
		sb->epochs[i].secret = htole64(SECRET + i);
		sb->epochs[i].first_sequence = htole64(FIRST_SEQUENCE - i * 100);
	}
	for (uint32_t i = 0; i < opt.ssds; i++) {
		memcpy(sb->head.uuid, ssd_uuid[i], 16);
		sb->device_number = htole32(i);
		sb->first_segment = htole32(i * ssd_segments);
		sb->head.crc = 0;
		put_superblock(cache_fd[i], opt.cache[i], &sb->head);
	}
}

static void put_backing(void)
{
	struct larder_volume_sb *sb = allocate(sizeof(*sb));
	uint64_t bytes = LARDER_DEF_DATA_OFFSET + opt.volume_size + LARDER_DEF_TAIL_RESERVE;
	uint8_t *data = allocate(1 << 20);

	fill_head(&sb->head, LARDER_KIND_VOLUME, volume_uuid, bytes, LARDER_DEF_DATA_OFFSET - LARDER_SB_SIZE);
	sb->head.flags = htole32(write_segments || opt.crashed ? LARDER_VOLUME_MAY_BE_DIRTY : 0);
	memcpy(sb->cache_uuid, cache_uuid, 16);
	memcpy(sb->label, "image", 5);
	sb->data_offset = htole64(LARDER_DEF_DATA_OFFSET);
	sb->tail_reserve = htole64(LARDER_DEF_TAIL_RESERVE);
	sb->sectors = htole64(volume_sectors);
	sb->incarnation = htole64(1);
	sb->set_generation = htole64(1);
	put_superblock(backing_fd, opt.backing, &sb->head);
	for (uint64_t at = 0; opt.pattern && at < opt.volume_size; at += 1 << 20) {
		image_pattern(data, at / SECTOR, (1 << 20) / SECTOR, 0);
		image_write(backing_fd, opt.backing, data, 1 << 20, LARDER_DEF_DATA_OFFSET + at);
	}
	free(data);
	free(sb);
}

/* ------------------------------------------------------------- options, plan */

static uint64_t parse_size(const char *name, const char *text)
{
	char *end;
	uint64_t v = strtoull(text, &end, 10);
	static const char units[] = "KMGT";
	const char *unit = *end ? strchr(units, *end) : NULL;

	if (unit) {
		v <<= 10 * (unit - units + 1);
		end++;
	}
	if (*end || end == text)
		die("--%s: %s is not a size: digits, then K, M, G or T", name, text);
	return v;
}

static unsigned parse_number(const char *name, const char *text, unsigned most)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (*end == '%')
		end++;
	if (*end || end == text || v > most)
		die("--%s: %s is not a number up to %u", name, text, most);
	return (unsigned)v;
}

static const struct option long_options[] = {
	{ "cache", 1, NULL, 'c' }, { "backing", 1, NULL, 'b' }, { "cache-size", 1, NULL, 's' }, { "volume-size", 1, NULL, 'v' },
	{ "segment-size", 1, NULL, 'g' }, { "extent", 1, NULL, 'e' }, { "fill", 1, NULL, 'f' }, { "dirty", 1, NULL, 'd' }, { "state", 1, NULL, 'S' },
	{ "tail", 1, NULL, 't' }, { "fill-tail", 1, NULL, 'T' }, { "unsynced", 1, NULL, 'u' }, { "checkpoints", 1, NULL, 'C' }, { "opened", 1, NULL, 'o' }, { "seed", 1, NULL, 'r' },
	{ "opened-again", 0, NULL, 'O' }, { "mirror", 1, NULL, 'm' }, { "pattern", 0, NULL, 'p' }, { "records", 0, NULL, 'R' }, { "help", 0, NULL, 'h' }, { NULL, 0, NULL, 0 }
};

static void usage(FILE *to)
{
	fputs("usage: writer --cache FILE [--cache FILE]... --backing FILE [OPTION]...\n"
	      "  --cache-size SIZE    of each SSD, 64G\n"
	      "  --mirror WHAT        of several SSDs: dirty: dirty data, log and checkpoints are on two; dirty:3: on three; none; dirty\n"
	      "  --volume-size SIZE   of the volume, four times that\n"
	      "  --segment-size SIZE  2M\n"
	      "  --extent SIZE        of all cached extents, a power of two from 4K to 256K; 16K\n"
	      "  --fill PERCENT       of the segments, without those that a running cache keeps free; 100\n"
	      "  --dirty PERCENT      of the cached extents, 10\n"
	      "  --state STATE        clean: stopped in order; crashed: a log tail behind the checkpoint; clean\n"
	      "  --tail N             segments of it in the write stream, 64\n"
	      "  --fill-tail N        segments of it in the fill stream, 16\n"
	      "  --unsynced N         its last records, not known durable: their data must be summed, 64\n"
	      "  --checkpoints N      1 or 2 named ones, 1\n"
	      "  --opened N           segments in the OPEN items of each stream, at least; the last one again and again\n"
	      "  --opened-again       the log opens a segment of the fill stream that the checkpoint lists, as the one before it is full\n"
	      "  --records            commit blocks and summaries in the sealed segments too (1.5 % of the size)\n"
	      "  --pattern            data that tells where it belongs (not sparse; --records is implied)\n"
	      "  --seed N             1\n", to);
}

static void parse(int argc, char **argv)
{
	int c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (c) {
		case 'c':
			if (opt.ssds == LARDER_MAX_DEVICES)
				die("--cache: %u times at most", LARDER_MAX_DEVICES);
			opt.cache[opt.ssds++] = optarg;
			break;
		case 'm':
			opt.copies = !strcmp(optarg, "none") ? 1 : !strcmp(optarg, "dirty") ? 2 : 3;
			if (opt.copies == 3 && strcmp(optarg, "dirty:3"))
				die("--mirror: dirty, dirty:3 or none, not %s", optarg);
			break;
		case 'b': opt.backing = optarg; break;
		case 's': opt.cache_size = parse_size("cache-size", optarg); break;
		case 'v': opt.volume_size = parse_size("volume-size", optarg); break;
		case 'g': opt.segment_size = parse_size("segment-size", optarg); break;
		case 'e': opt.extent = parse_size("extent", optarg); break;
		case 'f': opt.fill = parse_number("fill", optarg, 100); break;
		case 'd': opt.dirty = parse_number("dirty", optarg, 100); break;
		case 't': opt.tail = parse_number("tail", optarg, 30000); break;
		case 'T': opt.fill_tail = parse_number("fill-tail", optarg, 30000); break;
		case 'u': opt.unsynced = parse_number("unsynced", optarg, 1000000); break;
		case 'C': opt.checkpoints = parse_number("checkpoints", optarg, 2); break;
		case 'o': opt.opened = parse_number("opened", optarg, 1000); break;
		case 'O': opt.opened_again = true; break;
		case 'r': random_state = strtoull(optarg, NULL, 0); break;
		case 'p': opt.pattern = opt.records = true; break;
		case 'R': opt.records = true; break;
		case 'S':
			opt.crashed = !strcmp(optarg, "crashed");
			if (!opt.crashed && strcmp(optarg, "clean"))
				die("--state: clean or crashed, not %s", optarg);
			break;
		case 'h': usage(stdout); exit(0);
		default: usage(stderr); exit(2);
		}
	}
	if (!opt.ssds || !opt.backing || optind < argc) {
		usage(stderr);
		exit(2);
	}
	if (opt.copies > opt.ssds)
		opt.copies = opt.ssds;
	if (!opt.volume_size)
		opt.volume_size = 4 * opt.cache_size;
	if (opt.extent < LARDER_SLOT_SIZE || opt.extent > 256 << 10 || opt.extent & (opt.extent - 1))
		die("--extent: a power of two from 4K to 256K");
	if (opt.segment_size < LARDER_MIN_SEGMENT_SIZE || opt.segment_size > LARDER_MAX_SEGMENT_SIZE || opt.segment_size & (opt.segment_size - 1))
		die("--segment-size: a power of two from 128K to 16M");
	if (!opt.checkpoints)
		die("--checkpoints: 1 or 2");
	if (opt.volume_size % (1 << 20) || !opt.volume_size)
		die("--volume-size: a multiple of 1M");
}

/* How many segments are sealed and full; the rest is what a running cache keeps free, the checkpoints, and the tail. */
static void plan(void)
{
	uint64_t number, checkpoint_bytes, reserve;
	uint32_t usable, rest, in_segment;

	segment_slots = (uint32_t)(opt.segment_size / LARDER_SLOT_SIZE);
	extent_slots = (uint32_t)(opt.extent / LARDER_SLOT_SIZE);
	usable = segment_slots - LARDER_SUMMARY_SLOTS;
	per_record = (LARDER_RECORD_SLOTS < usable - 1 ? LARDER_RECORD_SLOTS : usable - 1) / extent_slots;
	if (!per_record)
		die("--extent: larger than a segment's record");
	record_slots = per_record * extent_slots + 1;
	rest = usable % record_slots;
	per_segment = usable / record_slots * per_record + (rest ? (rest - 1) / extent_slots : 0);
	segments_offset = (LARDER_SEGMENTS_OFFSET + opt.segment_size - 1) / opt.segment_size * opt.segment_size;
	if (opt.cache_size < segments_offset + LARDER_SB_SIZE + 64 * opt.segment_size)
		die("--cache-size: at least 64 segments");
	number = (opt.cache_size / LARDER_SB_SIZE * LARDER_SB_SIZE - LARDER_SB_SIZE - segments_offset) / opt.segment_size;
	if (number * opt.segment_size > 32ull << 40)
		die("--cache-size: at most 32T");
	ssd_segments = (uint32_t)number;
	if (opt.ssds > 1) {
		uint32_t parts = opt.copies > 2 ? opt.copies : 2;

		ssd_segments -= ssd_segments % parts;
		number = (uint64_t)ssd_segments / parts * opt.ssds;
	}
	nr_segments = (uint32_t)number;
	volume_sectors = opt.volume_size / SECTOR;
	volume_extents = opt.volume_size / opt.extent;
	checkpoint_bytes = number * per_segment * 8 + opt.volume_size / (2 << 20) * 16 + number * 16 + (1 << 20);
	checkpoint_bytes += checkpoint_bytes / 100;
	in_segment = usable / record_slots;
	reserve = (checkpoint_bytes * (opt.checkpoints * 2 + 3) / 2 + number * segment_slots / 50 * 16) / opt.segment_size + 3 * OPENED + number / 64 + 8;
	if (opt.crashed)
		reserve += opt.tail + opt.fill_tail + 2 * OPENED + (opt.tail + opt.fill_tail) / in_segment / 32;
	if (reserve >= number)
		die("--cache-size: too small for its checkpoint and such a tail");
	sealed_segments = (uint32_t)((number - reserve) * opt.fill / 100);
	if ((uint64_t)sealed_segments * per_segment > volume_extents)
		sealed_segments = (uint32_t)(volume_extents / per_segment);
	write_segments = (uint32_t)((uint64_t)sealed_segments * opt.dirty / 100);
	fill_segments = (sealed_segments - write_segments) / 10;
	nr_extents = (uint64_t)sealed_segments * per_segment;
	next_free = sealed_segments;
	top_free = nr_segments;
	/* the golden section: any run of extents is spread evenly */
	for (multiplier = (uint64_t)((unsigned __int128)volume_extents * 618033989 / 1000000000) | 1; gcd(multiplier, volume_extents) != 1; multiplier += 2)
		;
	multiplier %= volume_extents;
	inverse = volume_extents > 1 ? invert(multiplier, volume_extents) : 0;
}

static int make_file(const char *name, uint64_t bytes)
{
	int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		die("%s: %s", name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		die("%s: is not a regular file; copy the image to a device afterwards", name);
	if (ftruncate(fd, 0) || ftruncate(fd, (off_t)bytes))
		die("%s: cannot be made %" PRIu64 " bytes large: %s", name, bytes, strerror(errno));
	return fd;
}

int main(int argc, char **argv)
{
	static const uint8_t zeroes[LARDER_SLOT_SIZE];
	struct larder_cache_sb *sb = allocate(sizeof(*sb));
	struct larder_segment_info *snapshot;

	parse(argc, argv);
	plan();
	for (uint32_t i = 0; i < opt.ssds; i++)
		cache_fd[i] = make_file(opt.cache[i], opt.cache_size);
	backing_fd = make_file(opt.backing, LARDER_DEF_DATA_OFFSET + opt.volume_size + LARDER_DEF_TAIL_RESERVE);
	for (unsigned i = 0; i < 16; i++) {
		cache_uuid[i] = (uint8_t)(0xca + random64());
		ssd_uuid[0][i] = (uint8_t)random64();
		volume_uuid[i] = (uint8_t)random64();
	}
	for (unsigned i = 16; i < 16 * opt.ssds; i++)
		ssd_uuid[i / 16][i % 16] = (uint8_t)random64();
	zero_sum = crc32c(~0u, zeroes, sizeof(zeroes));
	log_hash = epoch_hash(cache_uuid, SECRET);
	segments = allocate(nr_segments * sizeof(*segments));
	put_backing();
	put_sealed();
	begin_streams();
	snapshot = allocate(nr_segments * sizeof(*snapshot));
	memcpy(snapshot, segments, nr_segments * sizeof(*snapshot));
	if (opt.crashed)
		put_tail();
	for (unsigned i = 0; i < opt.checkpoints; i++)
		put_checkpoint(&sb->checkpoint[i], CHECKPOINT - i, snapshot);
	put_table();
	put_cache_superblock(sb);
	for (uint32_t i = 0; i < opt.ssds; i++)
		if (fsync(cache_fd[i]) || close(cache_fd[i]))
			die("%s: %s", opt.cache[i], strerror(errno));
	if (fsync(backing_fd) || close(backing_fd))
		die("%s: %s", opt.backing, strerror(errno));
	printf("segments=%u sealed=%u write=%u fill=%u extents=%" PRIu64 " checkpoint_bytes=%" PRIu64 " replay_sequence=%" PRIu64
	       " last_sequence=%" PRIu64 " free=%u\n", nr_segments, sealed_segments, write_segments, fill_segments, nr_extents,
	       le64toh(sb->checkpoint[0].bytes), first_replayed, sequence - 1, top_free - next_free);
	return 0;
}
