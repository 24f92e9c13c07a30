/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What test_format.c and fuzz_format.c have in common: for each structure of the disk format a good sample, a way to repair its checksum, and a reader
 * that walks over all that the checks of kernel/format.c let pass and aborts where that breaks a promise of format.h.
 *
 * The promises are written down here a second time, from docs/on-disk-format.md, in the plainest form; this file must not call format.c to decide them.
 * One translation unit: it includes the .c under test.
 */
#ifndef LARDER_FORMAT_TARGETS_H
#define LARDER_FORMAT_TARGETS_H

#include "../../kernel/format.c"

#define SEGMENT_SLOTS	512u			/* 2 MiB */
#define SEGMENT_SECTORS	(SEGMENT_SLOTS * LARDER_SLOT_SECTORS)
#define NR_SEGMENTS	1000u
#define SECRET		0x1122334455667788ull
#define EPOCH		7u
#define DEVICE_SECTORS	(4ull << 21)		/* 4 GiB */

#define must(c) pure_check(c, "promise broken: " #c)

static const u8 test_uuid[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
static const u64 test_volumes[] = { 1ull << 31, 0, 4096 + 8, ~0ull, 1, 1ull << 40 };
static const struct larder_geometry test_geo = { SEGMENT_SLOTS, NR_SEGMENTS, ARRAY_SIZE(test_volumes), test_volumes };

struct target {
	const char *name;
	size_t size;
	size_t crc_at;
	size_t head;				/* bytes in front of which most fields are: mutated more often */
	void (*sample)(void *p, u64 seed);	/* a good one */
	int (*read)(const void *p, const char **why);
};

/* A number of its own for each seed and step. */
static u64 target_random(u64 *state)
{
	u64 z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static u32 target_below(u64 *state, u32 n)
{
	return (u32)(target_random(state) % n);
}

static volatile u64 target_sink;		/* what a reader read: the compiler must not leave it out */

static void target_touch(const void *p, size_t n)
{
	const u8 *b = p;
	u64 sum = 0;

	while (n--)
		sum += *b++;
	target_sink += sum;
}

static void target_repair(const struct target *t, void *p)
{
	*(__le32 *)((u8 *)p + t->crc_at) = cpu_to_le32(larder_crc_without(p, t->size, t->crc_at));
}

/* ------------------------------------------------------------- superblocks and table */

static void sample_head(struct larder_sb_head *head, u32 kind)
{
	head->kind = cpu_to_le32(kind);
	memcpy(head->uuid, test_uuid, 16);
	head->uuid[0] = (u8)kind;
	head->device_sectors = cpu_to_le64(DEVICE_SECTORS);
	head->created = cpu_to_le64(1700000000);
}

static void sample_cache_sb(void *p, u64 seed)
{
	struct larder_cache_sb *sb = p;
	u32 i;

	memset(sb, 0, sizeof(*sb));
	sample_head(&sb->head, LARDER_KIND_CACHE);
	sb->head.copy_offset = cpu_to_le64(larder_cache_copy_offset(DEVICE_SECTORS));
	memcpy(sb->cache_uuid, test_uuid, 16);
	memcpy(sb->label, "fast", 4);
	sb->nr_devices = cpu_to_le32(1);
	sb->set_generation = cpu_to_le64(1);
	sb->segment_size = cpu_to_le32(SEGMENT_SLOTS * LARDER_SLOT_SIZE);
	sb->nr_segments = cpu_to_le32(NR_SEGMENTS);
	sb->segments_offset = cpu_to_le64(LARDER_SEGMENTS_OFFSET);
	sb->table_generation = cpu_to_le64(3);
	sb->epoch = cpu_to_le32(EPOCH);
	for (i = 0; i < 3 + seed % 14; i++) {
		sb->epochs[i].epoch = cpu_to_le32(EPOCH - min(i, EPOCH));
		sb->epochs[i].segment = cpu_to_le32(5 + i);
		sb->epochs[i].secret = cpu_to_le64(SECRET + i);
		sb->epochs[i].first_sequence = cpu_to_le64(100000 - i * 1000);
	}
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++) {
		sb->checkpoint[i].sequence = cpu_to_le64(20 - i);
		sb->checkpoint[i].bytes = cpu_to_le64(10 * LARDER_CHUNK_SIZE);
		sb->checkpoint[i].replay_sequence = cpu_to_le64(100010 - i);
		sb->checkpoint[i].first_segment = cpu_to_le32(700 + i);
		sb->checkpoint[i].epoch = cpu_to_le32(EPOCH);
		sb->checkpoint[i].hash = cpu_to_le64(larder_checkpoint_hash(test_uuid, SECRET, 20 - i));
	}
	larder_seal_sb(&sb->head);
}

static int read_cache_sb(const void *p, const char **why)
{
	const struct larder_cache_sb *sb = p;
	int error = larder_check_cache_sb(sb, DEVICE_SECTORS, why);
	u64 end, bytes = DEVICE_SECTORS * 512;
	u32 i, size, k;

	if (error)
		return error;
	size = le32_to_cpu(sb->segment_size);
	must(size && size % (128 << 10) == 0 && size <= 16 << 20);
	must(le32_to_cpu(sb->nr_devices) - 1 < 16 && le32_to_cpu(sb->device_number) < 16);
	end = le64_to_cpu(sb->segments_offset) + (u64)le32_to_cpu(sb->nr_segments) * size;
	must(le64_to_cpu(sb->segments_offset) >= 1 << 20 && end <= bytes && le32_to_cpu(sb->nr_segments));
	must(!sb->head.copy_offset || (le64_to_cpu(sb->head.copy_offset) >= end && le64_to_cpu(sb->head.copy_offset) + 4096 <= bytes));
	must(((u64)le32_to_cpu(sb->first_segment) + le32_to_cpu(sb->nr_segments)) * (size / 512) <= 1ull << 36);
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++) {
		if (larder_checkpoint_empty(&sb->checkpoint[i]))
			continue;
		must(le64_to_cpu(sb->checkpoint[i].bytes) && le64_to_cpu(sb->checkpoint[i].bytes) % 65536 == 0);
		for (k = 0; k < LARDER_NR_EPOCHS; k++)
			if (sb->epochs[k].epoch && sb->epochs[k].epoch == sb->checkpoint[i].epoch)
				break;
		must(k < LARDER_NR_EPOCHS);
		if (le32_to_cpu(sb->nr_devices) == 1)
			must(le32_to_cpu(sb->checkpoint[i].first_segment) - le32_to_cpu(sb->first_segment) < le32_to_cpu(sb->nr_segments));
	}
	return 0;
}

static void sample_volume_sb(void *p, u64 seed)
{
	struct larder_volume_sb *sb = p;

	memset(sb, 0, sizeof(*sb));
	sample_head(&sb->head, LARDER_KIND_VOLUME);
	sb->head.flags = cpu_to_le32(seed & 1 ? LARDER_VOLUME_MAY_BE_DIRTY : 0);
	sb->head.copy_offset = cpu_to_le64(LARDER_DEF_VOLUME_COPY_OFFSET);
	memcpy(sb->cache_uuid, test_uuid, 16);
	sb->mode = cpu_to_le32((u32)(seed % 3));
	sb->data_offset = cpu_to_le64(LARDER_DEF_DATA_OFFSET);
	sb->tail_reserve = cpu_to_le64(LARDER_DEF_TAIL_RESERVE);
	sb->sectors = cpu_to_le64(DEVICE_SECTORS - (LARDER_DEF_DATA_OFFSET + LARDER_DEF_TAIL_RESERVE) / 512);
	sb->incarnation = cpu_to_le64(4);
	larder_seal_sb(&sb->head);
}

static int read_volume_sb(const void *p, const char **why)
{
	const struct larder_volume_sb *sb = p;
	int error = larder_check_volume_sb(sb, DEVICE_SECTORS, why);
	unsigned __int128 end;

	if (error)
		return error;
	end = (unsigned __int128)le64_to_cpu(sb->sectors) * 512 + le64_to_cpu(sb->data_offset) + le64_to_cpu(sb->tail_reserve);
	must(end <= DEVICE_SECTORS * 512 && sb->sectors && le64_to_cpu(sb->data_offset) % 4096 == 0);
	must(!sb->head.copy_offset || le64_to_cpu(sb->head.copy_offset) >= 8192);
	must(le64_to_cpu(sb->data_offset) >= 8192 && le64_to_cpu(sb->head.copy_offset) + 4096 <= le64_to_cpu(sb->data_offset));
	must(le32_to_cpu(sb->mode) <= 2);
	return 0;
}

static void sample_spare_sb(void *p, u64 seed)
{
	struct larder_sb_head *head = p;

	memset(p, 0, LARDER_SB_SIZE);
	sample_head(head, seed & 1 ? LARDER_KIND_OTHER : LARDER_KIND_SPARE);
	larder_seal_sb(head);
}

static int read_any_sb(const void *p, const char **why)
{
	const struct larder_sb_head *head = p;
	int error = larder_check_sb(head, DEVICE_SECTORS, why);

	if (!error)
		must(le32_to_cpu(head->kind) - 1 < 4 && le64_to_cpu(head->device_sectors) <= DEVICE_SECTORS &&
		     !(le64_to_cpu(head->incompat) & ~LARDER_INCOMPAT_OF(le32_to_cpu(head->kind))));
	return error;
}

static void sample_table(void *p, u64 seed)
{
	struct larder_table *t = p;
	u32 i;

	memset(t, 0, sizeof(*t));
	t->head.generation = cpu_to_le64(2);
	t->head.set_generation = cpu_to_le64(1);
	memcpy(t->head.cache_uuid, test_uuid, 16);
	t->head.nr_devices = cpu_to_le32(1);
	memcpy(t->devices[0].uuid, test_uuid, 16);
	t->devices[0].uuid[0] = LARDER_KIND_CACHE;
	t->devices[0].state = cpu_to_le32(LARDER_DEVICE_ACTIVE);
	t->devices[0].nr_segments = cpu_to_le32(NR_SEGMENTS);
	t->devices[0].segments_offset = cpu_to_le64(LARDER_SEGMENTS_OFFSET);
	t->head.nr_volumes = cpu_to_le32((u32)(seed % 20));
	for (i = 0; i < seed % 20; i++) {
		t->volumes[i].uuid[0] = (u8)i;
		t->volumes[i].state = cpu_to_le32(i % 3);
		t->volumes[i].sectors = cpu_to_le64(i % 3 ? 1000 + i : 0);
		t->volumes[i].incarnation = cpu_to_le64(i);
	}
	larder_seal_table(t);
}

static int read_table(const void *p, const char **why)
{
	const struct larder_table *t = p;
	struct larder_cache_sb sb;
	u32 i, used = 0;
	int error;

	sample_cache_sb(&sb, 0);
	error = larder_check_table(t, &sb, why);
	if (error)
		return error;
	must(le32_to_cpu(t->head.nr_volumes) <= 1024);
	for (i = 0; i < 16; i++)
		used += t->devices[i].state != 0;
	must(used == le32_to_cpu(t->head.nr_devices));
	must(t->devices[0].nr_segments == sb.nr_segments && !t->devices[0].first_segment);
	for (i = 0; i < le32_to_cpu(t->head.nr_volumes); i++)
		if (t->volumes[i].state)
			must(t->volumes[i].sectors && le64_to_cpu(t->volumes[i].sectors) <= 1ull << 43 && le32_to_cpu(t->volumes[i].state) <= 2);
	return 0;
}

/* ------------------------------------------------------------- log */

/* A good entry.  [low, high): cache sectors for its data, none if they are equal. */
static void sample_entry(struct larder_entry_in *e, u8 stream, u64 low, u64 high, u64 *state)
{
	static const u16 volumes[] = { 0, 2, 3, 4, 5 };
	u64 size;

	memset(e, 0, sizeof(*e));
	e->volume = volumes[target_below(state, ARRAY_SIZE(volumes))];
	size = min(test_volumes[e->volume], 1ull << 40);
	e->kind = stream == LARDER_STREAM_WRITE ? 1 + target_below(state, 9) : LARDER_FILL;
	if ((e->kind == LARDER_WRITE || e->kind == LARDER_FILL) && low == high)
		e->kind = stream == LARDER_STREAM_WRITE ? LARDER_INVALIDATE : 0;
	e->length = 1 + target_below(state, (u32)min(size, 1ull << 20));
	switch (e->kind) {
	case LARDER_WRITE:
	case LARDER_FILL:
		e->length = 1 + target_below(state, (u32)min(size, high - low));
		e->cache = low + target_below(state, (u32)(high - low - e->length) + 1);
		break;
	case LARDER_ZERO:
	case LARDER_CLEAN:
		e->length = min(e->length, 1u << 17);
		e->cache = target_random(state) >> 28;
		break;
	case LARDER_INVALIDATE:
		break;
	case LARDER_SEGMENT_OPEN:
		e->sector = 2 + target_below(state, NR_SEGMENTS - 2);
		e->length = target_below(state, LARDER_OPEN_CHUNKS + 1);
		e->cache = target_below(state, 2) ? larder_further(1, target_below(state, 2) ? 2 : 0) : 0;
		return;
	case LARDER_INTENT:
		e->sector = target_random(state) % (((size - 1) >> LARDER_INTENT_SHIFT) + 1);
		e->length = target_below(state, 2);
		return;
	default:
		return;
	}
	e->sector = target_random(state) % (size - e->length + 1);
}

/* Each exists, none is there twice, and there is no third without a second. */
static void promise_further(u64 segment, u64 further)
{
	u32 second = larder_second(further), third = larder_third(further);

	must(second <= NR_SEGMENTS && third <= NR_SEGMENTS && second != segment + 1);
	must(!third || (second && third != second && third != segment + 1));
}

/* Is this what a user of a checked entry may rely on? */
static void promise_entry(const struct larder_entry_in *e, u8 stream, u64 low, u64 high)
{
	bool data = e->kind == LARDER_WRITE || e->kind == LARDER_FILL;

	must(e->kind >= 1 && e->kind <= 9);
	must(stream == LARDER_STREAM_WRITE || e->kind == LARDER_FILL);
	if (e->kind == LARDER_CHECKPOINT)
		return;
	if (e->kind == LARDER_SEGMENT_OPEN) {
		must(e->sector < NR_SEGMENTS && e->length <= LARDER_OPEN_CHUNKS);
		promise_further(e->sector, e->cache);
		return;
	}
	must(e->volume < ARRAY_SIZE(test_volumes) && test_volumes[e->volume]);
	if (e->kind == LARDER_FORGET)
		return;
	if (e->kind == LARDER_INTENT) {
		must(e->length <= 1 && (unsigned __int128)e->sector << 17 < test_volumes[e->volume]);
		return;
	}
	must(e->length && (unsigned __int128)e->sector + e->length <= test_volumes[e->volume]);
	if (data)
		must(e->cache >= low && (unsigned __int128)e->cache + e->length <= high);
	must(e->kind == LARDER_INVALIDATE || e->cache < 1ull << 36);
	must((e->kind != LARDER_ZERO && e->kind != LARDER_CLEAN) || e->length <= 1u << 17);
}

static struct larder_commit_expect sample_expect(const struct larder_commit *c)
{
	return (struct larder_commit_expect) {
		.geo = &test_geo, .hash = larder_log_hash(test_uuid, SECRET), .prev_sequence = 4711, .prev_crc = 0xdeadbeef, .epoch = EPOCH,
		.segment = 321, .slot = le16_to_cpu(c->slot), .stream = c->stream % LARDER_NR_STREAMS,
	};
}

static void sample_commit(void *p, u64 seed)
{
	struct larder_commit *c = p;
	u64 state = seed, base = 321ull * SEGMENT_SECTORS;
	struct larder_commit_place place = {
		.hash = larder_log_hash(test_uuid, SECRET), .sequence = 4800, .prev_sequence = 4711, .durable_sequence = 4700, .prev_crc = 0xdeadbeef,
		.epoch = EPOCH, .segment = 321, .stream = (u8)(seed % 5 < 3 ? 0 : seed % 5 - 2),
	};
	u32 sums[LARDER_RECORD_SLOTS], i, n, slots = target_below(&state, LARDER_RECORD_SLOTS + 1);
	struct larder_entry_in e;

	larder_commit_init(c);
	place.first = (u16)target_below(&state, SEGMENT_SLOTS - LARDER_SUMMARY_SLOTS - slots);
	place.end = place.first + (u16)slots;
	place.slot = (u16)(place.end + target_below(&state, SEGMENT_SLOTS - LARDER_SUMMARY_SLOTS - place.end));
	n = target_below(&state, 150);
	for (i = 0; i < n && larder_commit_room(c, 1, slots); i++) {
		sample_entry(&e, place.stream, base + place.first * 8, base + place.end * 8, &state);
		must(!e.kind || larder_commit_add(c, &e) == (int)larder_commit_entries(c) - 1);
	}
	for (i = 0; i < slots; i++)
		sums[i] = (u32)target_random(&state);
	larder_commit_finish(c, &place, sums);
}

static int read_commit(const void *p, const char **why)
{
	const struct larder_commit *c = p;
	struct larder_commit_expect expect = sample_expect(c);
	u32 i, first = le16_to_cpu(c->first), end = le16_to_cpu(c->end);
	u64 base = 321ull * SEGMENT_SECTORS;
	struct larder_entry_in e;
	int error = larder_check_commit(c, &expect, why);

	if (error)
		return error;
	must(larder_commit_maybe(c, &expect));
	must(first <= end && end <= le16_to_cpu(c->slot) && end - first <= 127 && le16_to_cpu(c->slot) < SEGMENT_SLOTS - 4);
	must(le64_to_cpu(c->sequence) > 4711);
	for (i = 0; i < larder_commit_entries(c); i++) {
		larder_commit_entry(c, i, &e);
		promise_entry(&e, c->stream, base + first * 8, base + end * 8);
	}
	for (i = 0; i < larder_commit_slots(c); i++)
		target_sink += larder_commit_sum(c, i);
	return 0;
}

static void sample_summary(void *p, u64 seed)
{
	struct larder_summary *s = p;
	struct larder_summary_place place = {
		.hash = larder_log_hash(test_uuid, SECRET), .first_sequence = 10, .last_sequence = 500, .segment = 321, .epoch = EPOCH,
		.flags = LARDER_SUMMARY_DATA_ONLY,
	};
	u64 state = seed, base = 321ull * SEGMENT_SECTORS;
	u32 sums[SEGMENT_SLOTS], i, n = target_below(&state, 500), slots = 1 + target_below(&state, SEGMENT_SLOTS - LARDER_SUMMARY_SLOTS);
	struct larder_entry_in e;

	larder_summary_init(s);
	for (i = 0; i < n; i++) {
		sample_entry(&e, 0, base, base + slots * 8, &state);
		must(!larder_summary_add(s, &e));
	}
	for (i = 0; i < slots; i++)
		sums[i] = (u32)target_random(&state);
	must(!larder_summary_finish(s, &place, sums, slots));
}

static int read_summary(const void *p, const char **why)
{
	const struct larder_summary *s = p;
	struct larder_summary_expect expect = { &test_geo, larder_log_hash(test_uuid, SECRET), 321, EPOCH, LARDER_STREAM_WRITE };
	u64 base = 321ull * SEGMENT_SECTORS;
	struct larder_entry_in e;
	u32 i;
	int error = larder_check_summary(s, &expect, why);

	if (error)
		return error;
	must(le32_to_cpu(s->nr_sums) <= SEGMENT_SLOTS - 4);
	for (i = 0; i < le32_to_cpu(s->nr_entries); i++) {
		larder_summary_entry(s, i, &e);
		promise_entry(&e, 0, base, base + le32_to_cpu(s->nr_sums) * 8);
	}
	for (i = 0; i < le32_to_cpu(s->nr_sums); i++)
		target_sink += larder_summary_sum(s, i);
	return 0;
}

/* ------------------------------------------------------------- checkpoints */

#define CHUNK_HASH	0x0123456789abcdefull

static void sample_chunk(void *p, u64 seed)
{
	struct larder_chunk *c = p;
	struct larder_segment_in info[50];
	struct larder_pos_in pos = { 5, 17, 3, 99 };
	u64 state = seed, values[300];
	u32 i, n, items = 1 + target_below(&state, 40);

	larder_chunk_init(c, 20, 3);
	while (items--) {
		n = 1 + target_below(&state, 300);
		for (i = 0; i < n; i++)
			values[i] = target_below(&state, NR_SEGMENTS);
		switch (target_below(&state, 5)) {
		case 0:
			must(!larder_chunk_add_u64(c, LARDER_ITEM_REGION, 0, target_below(&state, 1 << 19), values, n));
			break;
		case 1:
			must(!larder_chunk_add_u64(c, LARDER_ITEM_MARKS, 5, 0, values, n));
			break;
		case 2:
			must(!larder_chunk_add_u64(c, LARDER_ITEM_OPEN, (u16)target_below(&state, 3), 0, values, n));
			values[0] = target_below(&state, NR_SEGMENTS - 2);
			values[0] |= (values[0] + 2) << 32;
			must(!larder_chunk_add_u64(c, LARDER_ITEM_OPEN, (u16)target_below(&state, 3), (u32)values[0] + 3, values, 1));
			break;
		case 3:
			must(!larder_chunk_add_pos(c, (u8)target_below(&state, 3), n & 1 ? &pos : NULL));
			break;
		default:
			for (i = 0; i < ARRAY_SIZE(info); i++)
				info[i] = (struct larder_segment_in) { values[i % n], (u8)(i % 3), (u8)(i % 3), 0, 0 };
			must(!larder_chunk_add_segments(c, target_below(&state, NR_SEGMENTS - 50), info, 50));
		}
	}
	if (seed & 1)
		must(!larder_chunk_add_end(c));
	larder_chunk_finish(c, CHUNK_HASH, seed & 1 ? LARDER_NO_SEGMENT : 999, 0);
}

static void promise_item(const struct larder_item_in *item)
{
	static u64 values[LARDER_CHUNK_SIZE / 8];
	struct larder_segment_in info;
	struct larder_pos_in pos;
	u32 i;

	switch (item->kind) {
	case LARDER_ITEM_REGION:
		must(item->count && item->count <= 4096 && item->volume < ARRAY_SIZE(test_volumes));
		must((unsigned __int128)item->number << 12 < test_volumes[item->volume]);
		larder_item_copy_u64(item, values);
		target_touch(values, item->count * 8);
		return;
	case LARDER_ITEM_MARKS:
		must(item->volume < ARRAY_SIZE(test_volumes));
		for (i = 0; i < item->count; i++)
			must((unsigned __int128)larder_item_u64(item, i) << 17 < test_volumes[item->volume]);
		return;
	case LARDER_ITEM_OPEN:
		must(item->volume < 3);
		for (i = 0; i < item->count; i++)
			must((u32)larder_item_u64(item, i) < NR_SEGMENTS && larder_item_u64(item, i) >> 32 <= NR_SEGMENTS);
		must(!item->number || (item->count == 1 && item->number <= NR_SEGMENTS));
		if (item->number)
			promise_further((u32)larder_item_u64(item, 0), larder_further(larder_item_u64(item, 0) >> 32, item->number));
		return;
	case LARDER_ITEM_STREAM:
		must(item->volume < 3 && item->count <= 1);
		if (!item->count)
			return;
		larder_item_pos(item, &pos);
		must(pos.segment == LARDER_NO_SEGMENT || (pos.segment < NR_SEGMENTS && pos.slot <= SEGMENT_SLOTS - 4));
		return;
	case LARDER_ITEM_SEGMENTS:
		must((unsigned __int128)item->number + item->count <= NR_SEGMENTS);
		for (i = 0; i < item->count; i++) {
			larder_item_segment(item, i, &info);
			must(info.state <= 2 && info.stream < 3);
		}
		return;
	default:
		must(item->kind == LARDER_ITEM_END && !item->count);
	}
}

static int read_chunk(const void *p, const char **why)
{
	const struct larder_chunk *c = p;
	struct larder_chunk_expect expect = { &test_geo, CHUNK_HASH, 20, 3 };
	struct larder_item_in item;
	u32 at = 0, before = 0;
	int got, error = larder_check_chunk(c, &expect, why);
	bool ended = false;

	if (error)
		return error;
	must(le32_to_cpu(c->next_segment) == LARDER_NO_SEGMENT || le32_to_cpu(c->next_segment) < NR_SEGMENTS);
	while ((got = larder_chunk_next(c, &test_geo, &at, &item, why)) > 0) {
		must(!ended && at > before && at <= LARDER_CHUNK_PAYLOAD);
		before = at;
		ended = item.kind == LARDER_ITEM_END;
		promise_item(&item);
	}
	return got;
}

#define SB_CRC offsetof(struct larder_sb_head, crc)
static const struct target targets[] = {
	{ "cache superblock", LARDER_SB_SIZE, SB_CRC, 928, sample_cache_sb, read_cache_sb },
	{ "volume superblock", LARDER_SB_SIZE, SB_CRC, 256, sample_volume_sb, read_volume_sb },
	{ "spare superblock", LARDER_SB_SIZE, SB_CRC, 128, sample_spare_sb, read_any_sb },
	{ "table", sizeof(struct larder_table), offsetof(struct larder_table_head, crc), 3400, sample_table, read_table },
	{ "commit block", sizeof(struct larder_commit), offsetof(struct larder_commit, crc), 200, sample_commit, read_commit },
	{ "summary", sizeof(struct larder_summary), offsetof(struct larder_summary, crc), 200, sample_summary, read_summary },
	{ "chunk", sizeof(struct larder_chunk), offsetof(struct larder_chunk, crc), 400, sample_chunk, read_chunk },
};

#endif
