// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads a cache SSD, an image or a device, as docs/on-disk-format.md says: checks, dumps, replays.  A second implementation of the format, for debugging and
 * to hold the kernel's against; it writes nothing and shares no code with the kernel but the header.
 *
 *	reader super|table|checkpoint|log|extents|check|scrub SSD
 *	reader view SSD BACKING [VOLUME]	the volume's contents as they are after a start, to stdout
 *
 * Limits: one SSD; regions of a volume are kept in one array (16 bytes per 2 MiB).
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "image.h"

#define LOOK_AHEAD	(LARDER_RECORD_SLOTS + 1)

struct region {
	uint32_t n, size;
	uint64_t *extent;		/* sorted, as on disk, CPU order */
};

struct volume {
	uint64_t sectors, regions;
	struct region *region;
	uint8_t *marks;			/* byte per 64 MiB */
};

struct record {
	uint64_t sequence;
	uint32_t segment, slot;
	unsigned stream;
};

struct stream {
	uint32_t *segment, count, next;	/* in order; [next] is the one to begin */
	uint32_t at, slot;		/* where the next record is looked for; at: LARDER_NO_SEGMENT */
	uint64_t prev_sequence;
	uint32_t prev_crc;
};

static const char *ssd;
static int fd;
static uint64_t device_bytes;
static struct larder_cache_sb sb;
static struct larder_table table;
static struct volume volumes[LARDER_MAX_VOLUMES];
static struct stream streams[LARDER_NR_STREAMS];
static struct record *records;
static uint64_t nr_records, size_records, durable, replay_from, log_hash, live_extents, dropped, ignored, skipped, must_reach;
static uint32_t segment_slots, nr_segments, epoch, *live;	/* live: sectors mapped, by segment */
static uint64_t *last_record;	/* by segment: sequence of its last record */
static const struct larder_checkpoint_ptr *loaded;
static bool verbose;
static unsigned problems;

static void __attribute__((__format__(__printf__, 1, 2))) problem(const char *format, ...)
{
	va_list args;

	problems++;
	fprintf(stderr, "%s: ", ssd);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static const char *hex(const uint8_t *p, unsigned n)
{
	static char text[4][40];
	static unsigned turn;
	char *to = text[turn++ % 4];

	for (unsigned i = 0; i < n; i++)
		sprintf(to + 2 * i, "%02x", p[i]);
	return to;
}

static uint64_t segment_offset(uint32_t segment)
{
	return le64toh(sb.segments_offset) + (uint64_t)(segment - le32toh(sb.first_segment)) * segment_slots * LARDER_SLOT_SIZE;
}

static bool segment_exists(uint64_t segment)
{
	return segment >= le32toh(sb.first_segment) && segment - le32toh(sb.first_segment) < le32toh(sb.nr_segments);
}

/* ------------------------------------------------------------- superblock and table */

/* NULL: valid; else what is wrong (section 3.1) */
static const char *head_wrong(const struct larder_sb_head *h)
{
	static const uint8_t magic[16] = LARDER_MAGIC;
	uint64_t sectors = le64toh(h->device_sectors), copy = le64toh(h->copy_offset);

	if (memcmp(h->magic, magic, 16))
		return "magic";
	if (le32toh(h->version) != 1)
		return "version";
	if (h->incompat)
		return "incompat";
	if (le32toh(h->kind) < 1 || le32toh(h->kind) > 4)
		return "kind";
	if (sectors < 16 || sectors >> 54)
		return "device_sectors";
	if (copy && (copy % 4096 || copy < 8192 || copy + 4096 > sectors * 512))
		return "copy_offset";
	if (le32toh(h->crc) != image_crc(h, LARDER_SB_SIZE, offsetof(struct larder_sb_head, crc)))
		return "crc";
	return sectors * 512 > device_bytes ? "device_sectors: larger than the device" : NULL;
}

static const char *epochs_wrong(const struct larder_cache_sb *s)
{
	if (s->epochs[0].epoch != s->epoch)
		return "epoch";
	for (unsigned i = 0; i < LARDER_NR_EPOCHS; i++) {
		const struct larder_epoch *e = &s->epochs[i];

		if (!e->epoch)
			continue;
		if (!e->first_sequence)
			return "epochs.first_sequence";
		if (i && (le32toh(e->epoch) >= le32toh(e[-1].epoch) || le64toh(e->first_sequence) > le64toh(e[-1].first_sequence)))
			return "epochs";
	}
	return NULL;
}

static const char *cache_wrong(const struct larder_cache_sb *s)
{
	const char *wrong = head_wrong(&s->head);
	uint64_t size = le32toh(s->segment_size), number = le32toh(s->nr_segments), offset = le64toh(s->segments_offset);
	uint64_t bytes = le64toh(s->head.device_sectors) * 512, copy = le64toh(s->head.copy_offset);

	if (wrong)
		return wrong;
	if (le32toh(s->head.kind) != LARDER_KIND_CACHE)
		return "kind: not an SSD of a cache";
	if (size < 128 << 10 || size > 16 << 20 || size & (size - 1))
		return "segment_size";
	if (le32toh(s->nr_devices) != 1 || le32toh(s->device_number) >= LARDER_MAX_DEVICES)
		return "nr_devices: this program reads caches of one SSD";
	if (offset < 1 << 20 || offset % 4096 || offset >= bytes)
		return "segments_offset";
	if (number < 32 || number > (bytes - offset) / size || (copy && copy < offset + number * size))
		return "nr_segments";
	if ((le32toh(s->first_segment) + number) * (size / 512) > 1ull << 36)
		return "first_segment";
	return epochs_wrong(s);
}

static void load_superblock(void)
{
	struct larder_cache_sb a, b;
	const char *a_wrong = "cannot be read", *b_wrong = "cannot be read";
	uint64_t copy;

	if (image_read(fd, &a, sizeof(a), LARDER_SB_OFFSET))
		a_wrong = cache_wrong(&a);
	copy = a_wrong ? device_bytes / 4096 * 4096 - 4096 : le64toh(a.head.copy_offset);
	if (copy && image_read(fd, &b, sizeof(b), copy))
		b_wrong = cache_wrong(&b);
	if (!b_wrong && le64toh(b.head.copy_offset) != copy)
		b_wrong = "copy_offset: it is elsewhere";
	if (a_wrong)
		problem("superblock at byte 4096: %s", a_wrong);
	if (b_wrong && copy)
		problem("superblock at byte %" PRIu64 ": %s", copy, b_wrong);
	if (a_wrong && b_wrong)
		exit(1);
	sb = a_wrong || (!b_wrong && !memcmp(a.head.uuid, b.head.uuid, 16) && le64toh(b.head.generation) > le64toh(a.head.generation)) ? b : a;
	segment_slots = le32toh(sb.segment_size) / LARDER_SLOT_SIZE;
	nr_segments = le32toh(sb.first_segment) + le32toh(sb.nr_segments);
	live = allocate(nr_segments * sizeof(*live));
	last_record = allocate(nr_segments * sizeof(*last_record));
}

static const char *table_wrong(const struct larder_table *t)
{
	if (le32toh(t->head.magic) != LARDER_TABLE_MAGIC)
		return "magic";
	if (le32toh(t->head.nr_volumes) > LARDER_MAX_VOLUMES)
		return "nr_volumes";
	if (le32toh(t->head.crc) != image_crc(t, sizeof(*t), offsetof(struct larder_table_head, crc)))
		return "crc";
	if (le32toh(t->head.nr_devices) != 1)
		return "nr_devices";
	if (memcmp(t->head.cache_uuid, sb.cache_uuid, 16))
		return "cache_uuid";
	if (le64toh(t->head.generation) < le64toh(sb.table_generation))
		return "generation: older than the superblock says";
	for (unsigned i = 0; i < le32toh(t->head.nr_volumes); i++)
		if (le32toh(t->volumes[i].state) > 2 || (t->volumes[i].state && (!t->volumes[i].sectors || le64toh(t->volumes[i].sectors) >> 54)))
			return "volumes";
	return NULL;
}

static void load_table(void)
{
	static const uint64_t place[2] = { LARDER_TABLE_OFFSET_A, LARDER_TABLE_OFFSET_B };
	static struct larder_table t[2];
	const char *wrong[2];

	for (unsigned i = 0; i < 2; i++) {
		wrong[i] = image_read(fd, &t[i], sizeof(t[i]), place[i]) ? table_wrong(&t[i]) : "cannot be read";
		if (wrong[i])
			problem("table at byte %" PRIu64 ": %s", place[i], wrong[i]);
	}
	if (wrong[0] && wrong[1])
		exit(1);
	table = wrong[0] || (!wrong[1] && le64toh(t[1].head.generation) > le64toh(t[0].head.generation)) ? t[1] : t[0];
	for (unsigned i = 0; i < le32toh(table.head.nr_volumes); i++) {
		struct volume *v = &volumes[i];

		if (le32toh(table.volumes[i].state) != LARDER_VOLUME_ATTACHED)
			continue;
		v->sectors = le64toh(table.volumes[i].sectors);
		v->regions = (v->sectors + LARDER_REGION_SECTORS - 1) / LARDER_REGION_SECTORS;
		v->region = allocate(v->regions * sizeof(*v->region));
		v->marks = allocate((v->sectors >> LARDER_INTENT_SHIFT) + 1);
	}
}

/* ------------------------------------------------------------- the map */

static uint32_t e_first(uint64_t e) { return e & 0xfff; }
static uint32_t e_length(uint64_t e) { return (e >> 12 & 0xfff) + 1; }
static unsigned e_state(uint64_t e) { return e >> 24 & 0xf; }
static uint64_t e_cache(uint64_t e) { return e >> 28; }

static uint64_t e_make(uint32_t first, uint32_t length, unsigned state, uint64_t cache)
{
	return first | (uint64_t)(length - 1) << 12 | (uint64_t)state << 24 | cache << 28;
}

/* The part [first, end) of e. */
static uint64_t e_part(uint64_t e, uint32_t first, uint32_t end)
{
	return e_make(first, end - first, e_state(e), e_cache(e) + (e_state(e) == LARDER_ST_ZERO ? 0 : first - e_first(e)));
}

/* An extent may lie over the border of two segments only if they are neighbours in linear address; no writer makes one. */
static void account(uint64_t e, int sign)
{
	if (e_state(e) != LARDER_ST_ZERO)
		live[e_cache(e) / (segment_slots * LARDER_SLOT_SECTORS)] += (uint32_t)sign * e_length(e);
	live_extents += (uint64_t)sign;
}

/* Replaces what is in [first, end) of a region by 'by' (0: nothing). */
static void region_set(struct region *r, uint32_t first, uint32_t end, uint64_t by)
{
	static uint64_t next[LARDER_REGION_SECTORS + 2];
	uint32_t n = 0;
	bool done = !by;

	for (uint32_t i = 0; i < r->n; i++) {
		uint64_t e = r->extent[i];
		uint32_t a = e_first(e), b = a + e_length(e);

		if (!done && a >= end) {
			next[n++] = by;
			done = true;
		}
		if (b <= first || a >= end) {
			next[n++] = e;
			continue;
		}
		account(e, -1);
		if (a < first) {
			next[n++] = e_part(e, a, first);
			account(next[n - 1], 1);
		}
		if (!done) {
			next[n++] = by;
			done = true;
		}
		if (b > end) {
			next[n++] = e_part(e, end, b);
			account(next[n - 1], 1);
		}
	}
	if (!done)
		next[n++] = by;
	if (by)
		account(by, 1);
	if (n > r->size) {
		r->size = n + n / 4 + 4;
		r->extent = realloc(r->extent, r->size * sizeof(uint64_t));
		if (!r->extent)
			die("no memory");
	}
	if (n)
		memcpy(r->extent, next, n * sizeof(uint64_t));
	r->n = n;
}

/* Maps, or with state NONE unmaps, a range of the volume. */
static void map_set(struct volume *v, uint64_t sector, uint64_t length, unsigned state, uint64_t cache)
{
	while (length) {
		uint32_t first = sector % LARDER_REGION_SECTORS, n = LARDER_REGION_SECTORS - first;

		n = n < length ? n : (uint32_t)length;
		region_set(&v->region[sector / LARDER_REGION_SECTORS], first, first + n, state ? e_make(first, n, state, cache) : 0);
		sector += n;
		length -= n;
		if (state != LARDER_ST_ZERO)
			cache += n;
	}
}

/* CLEAN: what of the range is mapped to just that place, or is a zero of that serial. */
static void map_clean(struct volume *v, uint64_t sector, uint64_t length, uint64_t cache)
{
	static uint64_t before[LARDER_REGION_SECTORS];

	for (uint64_t at = sector; at < sector + length; ) {
		uint64_t base = at / LARDER_REGION_SECTORS * LARDER_REGION_SECTORS, end = base + LARDER_REGION_SECTORS;
		struct region *r = &v->region[at / LARDER_REGION_SECTORS];
		uint32_t n = r->n;

		end = end < sector + length ? end : sector + length;
		if (n)
			memcpy(before, r->extent, n * sizeof(uint64_t));
		for (uint32_t i = 0; i < n; i++) {
			uint64_t a = base + e_first(before[i]), b = a + e_length(before[i]);

			a = a > at ? a : at;
			b = b < end ? b : end;
			if (a >= b)
				continue;
			if (e_state(before[i]) == LARDER_ST_ZERO && e_cache(before[i]) == cache)
				region_set(r, (uint32_t)(a - base), (uint32_t)(b - base), 0);
			else if (e_state(before[i]) == LARDER_ST_DIRTY && e_cache(before[i]) + (a - base - e_first(before[i])) == cache + (a - sector))
				region_set(r, (uint32_t)(a - base), (uint32_t)(b - base),
					   e_make((uint32_t)(a - base), (uint32_t)(b - a), LARDER_ST_CLEAN, cache + (a - sector)));
		}
		at = end;
	}
}

/* Drops the extents of a region for which 'keep' says no. */
static void region_filter(struct region *r, bool (*keep)(uint64_t e, uint64_t arg), uint64_t arg)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		if (keep(r->extent[i], arg))
			r->extent[n++] = r->extent[i];
		else
			account(r->extent[i], -1);
	}
	r->n = n;
}

static bool elsewhere(uint64_t e, uint64_t segment)
{
	return e_state(e) == LARDER_ST_ZERO || e_cache(e) / (segment_slots * LARDER_SLOT_SECTORS) != segment;
}

static bool not_clean(uint64_t e, uint64_t unused)
{
	(void)unused;
	return e_state(e) != LARDER_ST_CLEAN;
}

static void drop_segment(uint32_t segment)
{
	for (unsigned i = 0; live[segment] && i < LARDER_MAX_VOLUMES; i++)
		for (uint64_t k = 0; live[segment] && k < volumes[i].regions; k++)
			region_filter(&volumes[i].region[k], elsewhere, segment);
}

/* ------------------------------------------------------------- checkpoint */

static void open_segment(unsigned stream, uint32_t segment)
{
	struct stream *s = &streams[stream];

	for (uint32_t i = 0; i < s->count; i++)
		if (s->segment[i] == segment)
			return;
	if (s->at == segment)
		return;
	s->segment = realloc(s->segment, (s->count + 1) * sizeof(uint32_t));
	if (!s->segment)
		die("no memory");
	s->segment[s->count++] = segment;
}

static const char *take_region(const struct larder_item *item, const uint8_t *data, uint32_t count)
{
	struct volume *v = &volumes[le16toh(item->volume)];
	uint64_t number = le64toh(item->number), e, unit = (uint64_t)segment_slots * LARDER_SLOT_SECTORS;
	uint32_t end = 0;
	struct region *r;

	if (!count || count > LARDER_REGION_SECTORS || number >> 52)
		return "REGION: count or number";
	if (number >= v->regions) {
		skipped += count;
		return NULL;
	}
	r = &v->region[number];
	if (r->n)
		return "REGION: a second one";
	r->extent = allocate(count * sizeof(uint64_t));
	r->n = r->size = count;
	for (uint32_t i = 0; i < count; i++) {
		memcpy(&e, data + i * 8, 8);
		e = le64toh(e);
		r->extent[i] = e;
		if (e_first(e) < end || e_first(e) + e_length(e) > LARDER_REGION_SECTORS)
			return "REGION: extent";
		end = e_first(e) + e_length(e);
		if (e_state(e) == LARDER_ST_CLEAN || e_state(e) == LARDER_ST_DIRTY) {
			if (!segment_exists(e_cache(e) / unit) ||
			    e_cache(e) % unit + e_length(e) > unit - LARDER_SUMMARY_SLOTS * LARDER_SLOT_SECTORS)
				return "REGION: cache sector";
		} else if (e_state(e) != LARDER_ST_ZERO) {
			return "REGION: state";
		}
		account(e, 1);
	}
	if (number * LARDER_REGION_SECTORS + end > v->sectors) {
		for (uint32_t i = 0; i < count; i++)
			account(r->extent[i], -1);
		r->n = 0;
		skipped += count;
	}
	return NULL;
}

static const char *take_position(unsigned number, const uint8_t *data)
{
	struct stream *s = &streams[number];
	struct larder_stream_pos pos;

	memcpy(&pos, data, sizeof(pos));
	s->at = le32toh(pos.segment);
	s->slot = le32toh(pos.slot);
	s->prev_sequence = le64toh(pos.prev_sequence);
	s->prev_crc = le32toh(pos.prev_crc);
	return s->at == LARDER_NO_SEGMENT || (segment_exists(s->at) && s->slot <= segment_slots - LARDER_SUMMARY_SLOTS) ? NULL : "STREAM: place";
}

static const char *take_item(const struct larder_item *item, const uint8_t *data)
{
	uint32_t count = le32toh(item->count), volume = le16toh(item->volume);
	struct larder_segment_info info;
	uint64_t value;

	switch (item->kind) {
	case LARDER_ITEM_REGION:
	case LARDER_ITEM_MARKS:
		if (volume >= LARDER_MAX_VOLUMES)
			return "volume";
		if (item->kind == LARDER_ITEM_REGION)
			return take_region(item, data, count);
		break;
	case LARDER_ITEM_STREAM:
		if (volume >= LARDER_NR_STREAMS || count > 1)
			return "STREAM";
		return count ? take_position(volume, data) : NULL;
	case LARDER_ITEM_OPEN:
		if (volume >= LARDER_NR_STREAMS)
			return "OPEN: stream";
		break;
	case LARDER_ITEM_SEGMENTS:
		if (le64toh(item->number) > nr_segments || count > nr_segments - le64toh(item->number))
			return "SEGMENTS: number";
		for (uint32_t i = 0; i < count; i++) {
			memcpy(&info, data + i * sizeof(info), sizeof(info));
			if (info.state > LARDER_SEGMENT_OPENED || info.stream >= LARDER_NR_STREAMS)
				return "SEGMENTS: state or stream";
			last_record[le64toh(item->number) + i] = info.state == LARDER_SEGMENT_USED ? le64toh(info.sequence) : 0;
		}
		return NULL;
	default:
		return count ? "END: count" : NULL;
	}
	for (uint32_t i = 0; i < count; i++) {	/* MARKS, OPEN */
		memcpy(&value, data + i * 8, 8);
		value = le64toh(value);
		if (item->kind == LARDER_ITEM_OPEN) {
			if (!segment_exists(value))
				return "OPEN: segment";
			open_segment(volume, (uint32_t)value);
		} else {
			if (value >> 47)
				return "MARKS: region";
			if (volumes[volume].sectors && value <= (volumes[volume].sectors - 1) >> LARDER_INTENT_SHIFT)
				volumes[volume].marks[value] = 1;
		}
	}
	return NULL;
}

/* regions, ended: the first REGION, the END was seen */
static const char *take_chunk(const struct larder_chunk *c, bool *regions, bool *ended)
{
	static const uint32_t units[] = { 0, 8, 8, 8, sizeof(struct larder_stream_pos), sizeof(struct larder_segment_info), 1 };
	struct larder_item item;
	uint32_t at = 0, used = le32toh(c->used);
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
		wrong = take_item(&item, c->payload + at);
		if (wrong)
			return wrong;
		if (verbose && item.kind != LARDER_ITEM_REGION)
			printf("item kind=%u volume=%u count=%u number=%" PRIu64 "\n", item.kind, le16toh(item.volume), le32toh(item.count),
			       le64toh(item.number));
		at += le32toh(item.count) * units[item.kind];
		*ended = item.kind == LARDER_ITEM_END;
	}
	return NULL;
}

static void forget_all(void)
{
	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++) {
		struct volume *v = &volumes[i];

		for (uint64_t k = 0; k < v->regions; k++)
			free(v->region[k].extent);
		if (v->regions)
			memset(v->region, 0, v->regions * sizeof(*v->region));
		if (v->marks)
			memset(v->marks, 0, (v->sectors >> LARDER_INTENT_SHIFT) + 1);
	}
	for (unsigned i = 0; i < LARDER_NR_STREAMS; i++) {
		free(streams[i].segment);
		streams[i] = (struct stream) { .at = LARDER_NO_SEGMENT };
	}
	memset(live, 0, nr_segments * sizeof(*live));
	live_extents = 0;
}

static const char *load_chunks(const struct larder_checkpoint_ptr *p)
{
	static struct larder_chunk c;
	uint32_t segment = le32toh(p->first_segment), in_segment = segment_slots * LARDER_SLOT_SIZE / LARDER_CHUNK_SIZE;
	uint64_t number = le64toh(p->bytes) / LARDER_CHUNK_SIZE;
	bool regions = false, ended = false;
	const char *wrong;

	if (!number || le64toh(p->bytes) % LARDER_CHUNK_SIZE || number > (uint64_t)in_segment * nr_segments)
		return "bytes";
	for (uint32_t i = 0; i < number; i++) {
		if (!segment_exists(segment))
			return "segment of a chunk";
		if (!image_read(fd, &c, sizeof(c), segment_offset(segment) + (uint64_t)(i % in_segment) * LARDER_CHUNK_SIZE))
			return "a chunk cannot be read";
		if (le32toh(c.magic) != LARDER_CHUNK_MAGIC || c.hash != p->hash || c.sequence != p->sequence || le32toh(c.number) != i)
			return "magic, hash, sequence or number of a chunk";
		if (le32toh(c.used) > LARDER_CHUNK_PAYLOAD || le32toh(c.crc) != image_crc(&c, sizeof(c), offsetof(struct larder_chunk, crc)))
			return "crc of a chunk";
		wrong = take_chunk(&c, &regions, &ended);
		if (wrong)
			return wrong;
		if ((i + 1) % in_segment == 0)
			segment = le32toh(c.next_segment);
	}
	return ended ? NULL : "no END";
}

/* Loads the newest whole checkpoint. */
static void load_checkpoint(void)
{
	const char *wrong;

	forget_all();
	for (unsigned i = 0; i < LARDER_NR_CHECKPOINTS && !loaded; i++) {
		const struct larder_checkpoint_ptr *p = &sb.checkpoint[i];

		if (!p->sequence || le32toh(p->first_segment) == LARDER_NO_SEGMENT)
			continue;
		if (i && sb.checkpoint[0].epoch != p->epoch)
			break;
		wrong = load_chunks(p);
		if (!wrong) {
			loaded = p;
			break;
		}
		problem("checkpoint[%u], sequence %" PRIu64 ": %s", i, le64toh(p->sequence), wrong);
		must_reach = streams[LARDER_STREAM_WRITE].prev_sequence;
		forget_all();
	}
	if (!loaded) {
		if (sb.epoch)
			die("%s: no checkpoint that is whole", ssd);
		return;
	}
	epoch = le32toh(loaded->epoch);
	replay_from = le64toh(loaded->replay_sequence);
	for (unsigned i = 0; i < LARDER_NR_EPOCHS; i++)
		if (le32toh(sb.epochs[i].epoch) == epoch)
			log_hash = image_log_hash(sb.cache_uuid, le64toh(sb.epochs[i].secret));
}

/* ------------------------------------------------------------- the log */

static const struct larder_entry *entry_of(const struct larder_commit *c, uint32_t i)
{
	return (const struct larder_entry *)c->body + i;
}

/* [low, high): where its data may be */
static bool entry_ok(const struct larder_entry *e, unsigned stream, uint64_t low, uint64_t high)
{
	uint64_t sector = le64toh(e->sector), cache = le64toh(e->cache);
	uint32_t length = le32toh(e->length), volume = le16toh(e->volume);

	if (stream && e->kind != LARDER_FILL)
		return false;
	if (e->kind == LARDER_CHECKPOINT)
		return true;
	if (e->kind == LARDER_SEGMENT_OPEN)
		return segment_exists(sector) && length < LARDER_NR_STREAMS;
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
	return e->kind == LARDER_INVALIDATE || cache >> 36 == 0;
}

/* Section 5.3, (1) to (5). */
static bool commit_ok(const struct larder_commit *c, const struct stream *s, unsigned stream, uint32_t segment, uint32_t slot, uint32_t from)
{
	uint32_t first = le16toh(c->first), end = le16toh(c->end), n = le16toh(c->nr_entries);
	uint64_t base = (uint64_t)segment * segment_slots * LARDER_SLOT_SECTORS;

	if (le32toh(c->magic) != LARDER_COMMIT_MAGIC || le64toh(c->hash) != log_hash || le32toh(c->epoch) != epoch || c->stream != stream ||
	    le32toh(c->segment) != segment || le16toh(c->slot) != slot)
		return false;
	if (le64toh(c->prev_sequence) != s->prev_sequence || le32toh(c->prev_crc) != s->prev_crc || le64toh(c->sequence) <= s->prev_sequence)
		return false;
	if (slot + LARDER_SUMMARY_SLOTS >= segment_slots || first < from || first > end || end > slot || end - first > LARDER_RECORD_SLOTS)
		return false;
	if (n * 24 + (end - first) * 4 > LARDER_COMMIT_BODY || !(c->flags & 1) || (!stream && le64toh(c->durable_sequence) >= le64toh(c->sequence)))
		return false;
	if (le32toh(c->crc) != image_crc(c, sizeof(*c), offsetof(struct larder_commit, crc)))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!entry_ok(entry_of(c, i), stream, base + first * LARDER_SLOT_SECTORS, base + end * LARDER_SLOT_SECTORS))
			return false;
	return true;
}

/* (6) */
static bool sums_ok(const struct larder_commit *c)
{
	static uint8_t data[LARDER_RECORD_SLOTS * LARDER_SLOT_SIZE];
	uint32_t first = le16toh(c->first), n = le16toh(c->end) - first, sum;

	if (!image_read(fd, data, n * LARDER_SLOT_SIZE, segment_offset(le32toh(c->segment)) + (uint64_t)first * LARDER_SLOT_SIZE))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		memcpy(&sum, c->body + le16toh(c->nr_entries) * 24 + i * 4, 4);
		if (le32toh(sum) != crc32c(~0u, data + i * LARDER_SLOT_SIZE, LARDER_SLOT_SIZE))
			return false;
	}
	return true;
}

/* The first valid block in slots [from, from + 128) of a segment.  NULL: none. */
static const struct larder_commit *look(const struct stream *s, unsigned stream, uint32_t segment, uint32_t from)
{
	static struct larder_commit ahead[LOOK_AHEAD];
	uint32_t n = segment_slots - LARDER_SUMMARY_SLOTS;

	n = from < n ? n - from : 0;
	n = n < LOOK_AHEAD ? n : LOOK_AHEAD;
	if (!n || !image_read(fd, ahead, n * LARDER_SLOT_SIZE, segment_offset(segment) + (uint64_t)from * LARDER_SLOT_SIZE))
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		if (commit_ok(&ahead[i], s, stream, segment, from + i, from))
			return &ahead[i];
	return NULL;
}

/* The next record of a stream by its chain; moves the stream on.  NULL: its end. */
static const struct larder_commit *next_record(unsigned stream)
{
	struct stream *s = &streams[stream];
	const struct larder_commit *c = NULL;

	if (s->at != LARDER_NO_SEGMENT)
		c = look(s, stream, s->at, s->slot);
	if (!c && s->next < s->count) {
		c = look(s, stream, s->segment[s->next], 0);
		if (c)
			s->next++;
	}
	if (!c)
		return NULL;
	s->at = le32toh(c->segment);
	s->slot = le16toh(c->slot) + 1u;
	s->prev_sequence = le64toh(c->sequence);
	s->prev_crc = le32toh(c->crc);
	last_record[s->at] = s->prev_sequence;
	if (stream == LARDER_STREAM_WRITE)
		for (uint32_t i = 0; i < le16toh(c->nr_entries); i++)
			if (entry_of(c, i)->kind == LARDER_SEGMENT_OPEN)
				open_segment(le32toh(entry_of(c, i)->length), (uint32_t)le64toh(entry_of(c, i)->sector));
	return c;
}

static void remember(const struct larder_commit *c)
{
	if (nr_records == size_records) {
		size_records = size_records * 2 + 1024;
		records = realloc(records, size_records * sizeof(*records));
		if (!records)
			die("no memory");
	}
	records[nr_records++] = (struct record) { le64toh(c->sequence), le32toh(c->segment), le16toh(c->slot), c->stream };
}

static void read_commit(const struct record *r, struct larder_commit *c)
{
	if (!image_read(fd, c, sizeof(*c), segment_offset(r->segment) + (uint64_t)r->slot * LARDER_SLOT_SIZE))
		die("%s: segment %u slot %u cannot be read", ssd, r->segment, r->slot);
}

static int by_sequence(const void *a, const void *b)
{
	const struct record *x = a, *y = b;

	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* Section 7 (3): which records count. */
static void find_records(void)
{
	const struct larder_commit *next;
	struct larder_commit c;

	while ((next = next_record(LARDER_STREAM_WRITE))) {
		if (le64toh(next->durable_sequence) > durable)
			durable = le64toh(next->durable_sequence);
		remember(next);
	}
	for (uint64_t i = 0; i < nr_records; i++) {
		if (records[i].sequence <= durable)
			continue;
		read_commit(&records[i], &c);
		if (!sums_ok(&c)) {
			problem("the log ends at record %" PRIu64 ": its data does not match (behind the last durable one, %" PRIu64 ")",
				records[i].sequence, durable);
			nr_records = i;
		}
	}
	if (streams[LARDER_STREAM_WRITE].prev_sequence < must_reach)
		die("%s: the log ends at record %" PRIu64 ", the damaged checkpoint stood on %" PRIu64, ssd,
		    streams[LARDER_STREAM_WRITE].prev_sequence, must_reach);
	for (unsigned s = LARDER_STREAM_FILL; s < LARDER_NR_STREAMS; s++)
		while ((next = next_record(s))) {
			c = *next;
			if (sums_ok(&c))
				remember(&c);
			else
				ignored++;
		}
	qsort(records, nr_records, sizeof(*records), by_sequence);
}

/* Entries of volumes that are not there, or outside of them, are skipped. */
static void apply(const struct larder_entry *e)
{
	struct volume *v = &volumes[le16toh(e->volume) % LARDER_MAX_VOLUMES];
	uint64_t sector = le64toh(e->sector), cache = le64toh(e->cache);
	uint32_t length = le32toh(e->length);

	if (e->kind != LARDER_SEGMENT_OPEN && !v->sectors) {
		skipped += e->kind != LARDER_CHECKPOINT;
		return;
	}
	if (e->kind == LARDER_INTENT ? sector > (v->sectors - 1) >> LARDER_INTENT_SHIFT :
	    e->kind < LARDER_SEGMENT_OPEN && (length > v->sectors || sector > v->sectors - length)) {
		skipped++;
		return;
	}
	switch (e->kind) {
	case LARDER_WRITE: map_set(v, sector, length, LARDER_ST_DIRTY, cache); break;
	case LARDER_FILL: map_set(v, sector, length, LARDER_ST_CLEAN, cache); break;
	case LARDER_ZERO: map_set(v, sector, length, LARDER_ST_ZERO, cache); break;
	case LARDER_CLEAN: map_clean(v, sector, length, cache); break;
	case LARDER_INVALIDATE: map_set(v, sector, length, LARDER_ST_NONE, 0); break;
	case LARDER_SEGMENT_OPEN: drop_segment((uint32_t)sector); break;
	case LARDER_INTENT: v->marks[sector] = (uint8_t)length; break;
	case LARDER_FORGET:
		for (uint64_t k = 0; k < v->regions; k++)
			region_set(&v->region[k], 0, LARDER_REGION_SECTORS, 0);
		memset(v->marks, 0, (v->sectors >> LARDER_INTENT_SHIFT) + 1);
		break;
	default: break;
	}
}

static void print_record(const struct larder_commit *c)
{
	static const char *const kinds[] = { "?", "WRITE", "FILL", "ZERO", "CLEAN", "INVALIDATE", "SEGMENT_OPEN", "INTENT", "FORGET", "CHECKPOINT" };

	printf("record sequence=%" PRIu64 " stream=%u segment=%u slot=%u first=%u end=%u entries=%u prev=%" PRIu64 " durable=%" PRIu64 "\n",
	       le64toh(c->sequence), c->stream, le32toh(c->segment), le16toh(c->slot), le16toh(c->first), le16toh(c->end), le16toh(c->nr_entries),
	       le64toh(c->prev_sequence), le64toh(c->durable_sequence));
	for (uint32_t i = 0; i < le16toh(c->nr_entries); i++) {
		const struct larder_entry *e = entry_of(c, i);

		printf("  %s volume=%u sector=%" PRIu64 " length=%u cache=%" PRIu64 "\n", kinds[e->kind], le16toh(e->volume), le64toh(e->sector),
		       le32toh(e->length), le64toh(e->cache));
	}
}

static void replay(bool print)
{
	struct larder_commit c;

	find_records();
	for (uint64_t i = 0; i < nr_records; i++) {
		if (records[i].sequence < replay_from)
			continue;
		read_commit(&records[i], &c);
		if (print)
			print_record(&c);
		for (uint32_t k = 0; k < le16toh(c.nr_entries); k++)
			apply(entry_of(&c, k));
	}
	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++)
		for (uint64_t k = 0; k < volumes[i].regions; k++)
			if (volumes[i].marks[k * LARDER_REGION_SECTORS >> LARDER_INTENT_SHIFT] ||
			    le32toh(sb.head.flags) & LARDER_CACHE_DROP_CLEAN) {
				uint64_t before = live_extents;

				region_filter(&volumes[i].region[k], not_clean, 0);
				dropped += before - live_extents;
			}
}

/* ------------------------------------------------------------- verbs */

static void verb_super(void)
{
	printf("uuid=%s cache_uuid=%s label=%.64s generation=%" PRIu64 " flags=%u segment_size=%u segments=%u segments_offset=%" PRIu64
	       " table_generation=%" PRIu64 " epoch=%u\n", hex(sb.head.uuid, 16), hex(sb.cache_uuid, 16), (const char *)sb.label,
	       le64toh(sb.head.generation), le32toh(sb.head.flags), le32toh(sb.segment_size), le32toh(sb.nr_segments), le64toh(sb.segments_offset),
	       le64toh(sb.table_generation), le32toh(sb.epoch));
	for (unsigned i = 0; i < LARDER_NR_CHECKPOINTS; i++) {
		const struct larder_checkpoint_ptr *p = &sb.checkpoint[i];

		printf("checkpoint[%u] sequence=%" PRIu64 " bytes=%" PRIu64 " replay_sequence=%" PRIu64 " first_segment=%u epoch=%u\n", i,
		       le64toh(p->sequence), le64toh(p->bytes), le64toh(p->replay_sequence), le32toh(p->first_segment), le32toh(p->epoch));
	}
	for (unsigned i = 0; i < LARDER_NR_EPOCHS && sb.epochs[i].epoch; i++)
		printf("epochs[%u] epoch=%u first_sequence=%" PRIu64 " segment=%u\n", i, le32toh(sb.epochs[i].epoch),
		       le64toh(sb.epochs[i].first_sequence), le32toh(sb.epochs[i].segment));
}

static void verb_table(void)
{
	printf("generation=%" PRIu64 " set_generation=%" PRIu64 " devices=%u volumes=%u\n", le64toh(table.head.generation),
	       le64toh(table.head.set_generation), le32toh(table.head.nr_devices), le32toh(table.head.nr_volumes));
	for (unsigned i = 0; i < le32toh(table.head.nr_volumes); i++) {
		const struct larder_table_volume *v = &table.volumes[i];

		if (v->state)
			printf("volumes[%u] uuid=%s state=%u sectors=%" PRIu64 " incarnation=%" PRIu64 " label=%.64s\n", i, hex(v->uuid, 16),
			       le32toh(v->state), le64toh(v->sectors), le64toh(v->incarnation), (const char *)v->label);
	}
}

static void verb_extents(void)
{
	static const char *const states[] = { "none", "clean", "dirty", "cleaning", "zero" };

	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++)
		for (uint64_t k = 0; k < volumes[i].regions; k++)
			for (uint32_t n = 0; n < volumes[i].region[k].n; n++) {
				uint64_t e = volumes[i].region[k].extent[n];

				printf("%u %" PRIu64 " %u %s %" PRIu64 "\n", i, k * LARDER_REGION_SECTORS + e_first(e), e_length(e), states[e_state(e)],
				       e_cache(e));
			}
}

static void print_summary(void)
{
	uint64_t sectors[5] = { 0 }, last = 0, marks = 0;

	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++) {
		for (uint64_t k = 0; k < volumes[i].regions; k++)
			for (uint32_t n = 0; n < volumes[i].region[k].n; n++)
				sectors[e_state(volumes[i].region[k].extent[n])] += e_length(volumes[i].region[k].extent[n]);
		for (uint64_t k = 0; volumes[i].marks && k <= volumes[i].sectors >> LARDER_INTENT_SHIFT; k++)
			marks += volumes[i].marks[k];
	}
	for (uint64_t i = 0; i < nr_records; i++)
		last = records[i].sequence > last ? records[i].sequence : last;
	printf("checkpoint=%" PRIu64 " epoch=%u replayed=%" PRIu64 " last_sequence=%" PRIu64 " durable=%" PRIu64 " extents=%" PRIu64
	       " clean_sectors=%" PRIu64 " dirty_sectors=%" PRIu64 " zero_sectors=%" PRIu64 " marks=%" PRIu64 " dropped=%" PRIu64 " ignored=%" PRIu64 " skipped=%" PRIu64
	       " problems=%u\n", loaded ? le64toh(loaded->sequence) : 0, epoch, nr_records, last, durable, live_extents,
	       sectors[LARDER_ST_CLEAN], sectors[LARDER_ST_DIRTY], sectors[LARDER_ST_ZERO], marks, dropped, ignored, skipped, problems);
}

static bool summary_ok(const struct larder_summary *s, uint32_t segment)
{
	uint32_t n = le32toh(s->nr_entries), sums = le32toh(s->nr_sums);

	if (le32toh(s->magic) != LARDER_SUMMARY_MAGIC || le32toh(s->segment) != segment || le64toh(s->last_sequence) != last_record[segment] || sums > segment_slots - LARDER_SUMMARY_SLOTS ||
	    n > sizeof(s->body) / 24 || n * 24 + sums * 4 > sizeof(s->body))
		return false;
	for (unsigned i = 0; i < LARDER_NR_EPOCHS; i++)
		if (sb.epochs[i].epoch && sb.epochs[i].epoch == s->epoch &&
		    le64toh(s->hash) == image_log_hash(sb.cache_uuid, le64toh(sb.epochs[i].secret)))
			return le32toh(s->crc) == image_crc(s, sizeof(*s), offsetof(struct larder_summary, crc));
	return false;
}

/* The data of every segment that has a valid summary of its present life. */
static void verb_scrub(void)
{
	struct larder_summary *s = allocate(sizeof(*s));
	uint8_t *data = allocate(segment_slots * LARDER_SLOT_SIZE);
	uint64_t summaries = 0, slots = 0, bad = 0;

	for (uint32_t segment = le32toh(sb.first_segment); segment < nr_segments; segment++) {
		uint64_t at = segment_offset(segment);
		uint32_t sum;

		if (!image_read(fd, s, sizeof(*s), at + (uint64_t)(segment_slots - LARDER_SUMMARY_SLOTS) * LARDER_SLOT_SIZE) || !summary_ok(s, segment))
			continue;
		summaries++;
		if (!image_read(fd, data, segment_slots * LARDER_SLOT_SIZE, at)) {
			problem("segment %u cannot be read", segment);
			continue;
		}
		for (uint32_t i = 0; i < le32toh(s->nr_sums); i++) {
			memcpy(&sum, s->body + le32toh(s->nr_entries) * 24 + i * 4, 4);
			if (!sum)
				continue;
			slots++;
			if (le32toh(sum) == crc32c(~0u, data + i * LARDER_SLOT_SIZE, LARDER_SLOT_SIZE))
				continue;
			if (bad++ < 20)
				problem("segment %u slot %u: its data does not match its sum", segment, i);
		}
	}
	printf("summaries=%" PRIu64 " slots=%" PRIu64 " bad=%" PRIu64 "\n", summaries, slots, bad);
	free(data);
	free(s);
}

static void verb_view(const char *backing, unsigned number)
{
	static uint8_t data[LARDER_REGION_SECTORS * SECTOR];
	struct volume *v = &volumes[number];
	struct larder_volume_sb vsb;
	int b = open(backing, O_RDONLY | O_CLOEXEC);

	if (b < 0 || !image_read(b, &vsb, sizeof(vsb), LARDER_SB_OFFSET))
		die("%s: cannot be read", backing);
	if (!v->sectors || memcmp(vsb.head.uuid, table.volumes[number].uuid, 16))
		die("%s: is not the backing of volume %u", backing, number);
	if (vsb.incarnation != table.volumes[number].incarnation)
		die("%s: incarnation: the cache is stale", backing);
	for (uint64_t k = 0; k < v->regions; k++) {
		uint64_t sectors = v->sectors - k * LARDER_REGION_SECTORS;

		sectors = sectors < LARDER_REGION_SECTORS ? sectors : LARDER_REGION_SECTORS;
		if (!image_read(b, data, sectors * SECTOR, le64toh(vsb.data_offset) + k * sizeof(data)))
			die("%s: cannot be read", backing);
		for (uint32_t n = 0; n < v->region[k].n; n++) {
			uint64_t e = v->region[k].extent[n], unit = (uint64_t)segment_slots * LARDER_SLOT_SECTORS;

			if (e_state(e) == LARDER_ST_ZERO)
				memset(data + e_first(e) * SECTOR, 0, e_length(e) * SECTOR);
			else if (!image_read(fd, data + e_first(e) * SECTOR, e_length(e) * SECTOR,
					     segment_offset((uint32_t)(e_cache(e) / unit)) + e_cache(e) % unit * SECTOR))
				die("%s: cache sector %" PRIu64 " cannot be read", ssd, e_cache(e));
		}
		if (fwrite(data, SECTOR, sectors, stdout) != sectors)
			die("stdout: %s", strerror(errno));
	}
	close(b);
}

static int usage(void)
{
	fputs("usage: reader super|table|checkpoint|log|extents|check|scrub SSD\n       reader view SSD BACKING [VOLUME NUMBER]\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	bool view = !strcmp(verb, "view");

	if (argc < 3 + view || argc > 3 + 2 * view)
		return usage();
	ssd = argv[2];
	fd = open(ssd, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die("%s: %s", ssd, strerror(errno));
	device_bytes = (uint64_t)lseek(fd, 0, SEEK_END);
	load_superblock();
	if (!strcmp(verb, "super")) {
		verb_super();
		return problems != 0;
	}
	load_table();
	verbose = !strcmp(verb, "checkpoint");
	if (!strcmp(verb, "table")) {
		verb_table();
	} else if (!strcmp(verb, "scrub")) {
		load_checkpoint();
		if (loaded)
			find_records();
		verb_scrub();
	} else if (verbose || view || !strcmp(verb, "log") || !strcmp(verb, "extents") || !strcmp(verb, "check")) {
		load_checkpoint();
		if (loaded && !verbose)
			replay(!strcmp(verb, "log"));
		if (!strcmp(verb, "extents"))
			verb_extents();
		else if (view)
			verb_view(argv[3], argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) % LARDER_MAX_VOLUMES : 0);
		else
			print_summary();
	} else {
		return usage();
	}
	if (fflush(stdout))
		die("stdout: %s", strerror(errno));
	return problems != 0;
}
