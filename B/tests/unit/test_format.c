// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kernel/format.c: known values, round trips, each refusal by its name, damage of single bytes, and random damage with the checksum repaired.
 *
 *	test_format [seed [mutations]]
 *
 * The same seed gives the same run.  What a reader of checked bytes relies on is asserted in tests/fuzz/format_targets.h, which libFuzzer uses too.
 * Prints "ok N name" for each test and a summary; the first failure prints where, with which seed, and exits 1.
 */
#include "../fuzz/format_targets.h"

static u64 seed = 1, state, mutations = 300000, operations;
static unsigned int tests;
static const char *test_name;

#define CHECK(c, ...) do { \
	if (!(c)) { \
		printf("not ok %u %s\n  %s:%d: %s\n  seed %llu;", tests + 1, test_name, __FILE__, __LINE__, #c, (unsigned long long)seed); \
		printf(" " __VA_ARGS__); \
		printf("\n"); \
		exit(1); \
	} \
} while (0)

static u32 rnd(u32 n)
{
	return target_below(&state, n);
}

/* A buffer of just that size: ASan sees the byte behind it. */
static void *buffer(size_t size)
{
	void *p = aligned_alloc(64, size);

	CHECK(p);
	return p;
}

/* ------------------------------------------------------------- known values */

static void test_known_values(void)
{
	static const u8 nine[] = "123456789";

	CHECK(larder_crc(nine, 9) == ~0xe3069283u);		/* the check value of CRC-32C is of the inverted result */
	CHECK(larder_crc_without("1234\0\0\0\0" "9", 9, 4) == larder_crc("1234\0\0\0\0" "9", 9));
	CHECK(larder_crc_without("1234xyzw9", 9, 4) == larder_crc("1234\0\0\0\0" "9", 9));
	/* computed by another implementation of docs/on-disk-format.md, in Python */
	CHECK(larder_log_hash(test_uuid, SECRET) == 0xca7cd6c3138616f6ull);
	CHECK(larder_checkpoint_hash(test_uuid, SECRET, 7) == 0x0afd04370d87f893ull);
	CHECK(larder_cache_copy_offset(DEVICE_SECTORS) == (DEVICE_SECTORS << 9) - 4096);
	CHECK(larder_cache_copy_offset(DEVICE_SECTORS + 7) == (DEVICE_SECTORS << 9) - 4096);
}

/* Every bit of UUID and secret bears upon the hash. */
static void test_hash_bits(void)
{
	u64 h = larder_log_hash(test_uuid, SECRET), other;
	u8 uuid[16];
	u32 i, far;

	for (i = 0; i < 192; i++) {
		memcpy(uuid, test_uuid, 16);
		if (i < 128)
			uuid[i / 8] ^= 1 << i % 8;
		other = larder_log_hash(uuid, i < 128 ? SECRET : SECRET ^ 1ull << (i - 128));
		far = (u32)hweight64(h ^ other);
		CHECK(far >= 12 && far <= 52, "bit %u: distance %u", i, far);
		operations++;
	}
}

/* ------------------------------------------------------------- round trips */

static bool same_entry(const struct larder_entry_in *a, const struct larder_entry_in *b)
{
	return a->sector == b->sector && a->cache == b->cache && a->length == b->length && a->volume == b->volume && a->kind == b->kind;
}

static void test_samples_are_good(void)
{
	const struct target *t;
	const char *why = NULL;
	u32 i, k;
	void *p;

	for (i = 0; i < ARRAY_SIZE(targets); i++) {
		t = &targets[i];
		p = buffer(t->size);
		for (k = 0; k < 300; k++, operations++) {
			t->sample(p, seed * 1000 + k);
			CHECK(!t->read(p, &why), "%s, sample %u: %s", t->name, k, why);
		}
		free(p);
	}
}

/* A commit block against an array: added, replaced, dropped entries, in order, and the sums behind them. */
static void test_commit_against_array(void)
{
	struct larder_commit *c = buffer(sizeof(*c));
	struct larder_commit_place place;
	struct larder_entry_in model[200], got;
	u32 sums[LARDER_RECORD_SLOTS], round, i, n, kept, slots, crc;
	u64 base = 321ull * SEGMENT_SECTORS;
	const char *why = NULL;
	bool room;
	int at;

	for (round = 0; round < 3000; round++) {
		slots = rnd(LARDER_RECORD_SLOTS + 1);
		memset(c, 0x5a, sizeof(*c));
		larder_commit_init(c);
		for (n = 0; n < 200; n++) {
			sample_entry(&model[n], 0, base + 80, base + 80 + slots * 8, &state);
			room = (n + 1) * 24 + slots * 4 <= 4000;
			CHECK(larder_commit_room(c, 1, slots) == room, "%u entries, %u slots", n, slots);
			if (!room || !rnd(150))
				break;
			at = larder_commit_add(c, &model[n]);
			CHECK(at == (int)n);
			if (!rnd(10)) {
				sample_entry(&model[n], 0, base + 80, base + 80 + slots * 8, &state);
				larder_commit_set(c, n, &model[n]);
			}
			operations++;
		}
		for (i = 0; i < n; i++)
			if (!rnd(4)) {
				larder_commit_drop(c, i);
				model[i].kind = 0;
			}
		for (i = 0; i < slots; i++)
			sums[i] = (u32)target_random(&state);
		place = (struct larder_commit_place) { larder_log_hash(test_uuid, SECRET), 5000, 4711, 4999, 0xdeadbeef, EPOCH, 321,
						       (u16)(10 + slots), 10, (u16)(10 + slots), 0 };
		crc = larder_commit_finish(c, &place, sums);
		CHECK(!read_commit(c, &why), "%s", why);
		CHECK(crc == le32_to_cpu(c->crc) && le64_to_cpu(c->sequence) == 5000 && le64_to_cpu(c->durable_sequence) == 4999);
		for (i = kept = 0; i < n; i++) {
			if (!model[i].kind)
				continue;
			larder_commit_entry(c, kept++, &got);
			CHECK(same_entry(&got, &model[i]), "entry %u of round %u", i, round);
		}
		CHECK(larder_commit_entries(c) == kept && larder_commit_slots(c) == slots);
		for (i = 0; i < slots; i++)
			CHECK(larder_commit_sum(c, i) == sums[i]);
		/* nothing is left of what was dropped */
		CHECK(!memchr_inv(c->body + kept * 24 + slots * 4, 0, 4000 - kept * 24 - slots * 4));
	}
	free(c);
}

static void test_commit_full(void)
{
	struct larder_commit *c = buffer(sizeof(*c));
	struct larder_entry_in e = { .kind = LARDER_FORGET };
	u32 n;

	larder_commit_init(c);
	for (n = 0; larder_commit_add(c, &e) >= 0; n++)
		;
	CHECK(n == 4000 / 24 && larder_commit_add(c, &e) == -ENOSPC);
	larder_commit_init(c);
	CHECK(larder_commit_room(c, 145, 127) && !larder_commit_room(c, 146, 127) && !larder_commit_room(c, 0, 128));
	CHECK(!larder_commit_room(c, ~0u, 0) && !larder_commit_room(c, 0, ~0u) && !larder_commit_room(c, 0x0aaaaaab, 0));
	free(c);
}

static void test_summary_round_trip(void)
{
	struct larder_summary *s = buffer(sizeof(*s)), *all = buffer(sizeof(*all));
	struct larder_commit *c = buffer(sizeof(*c));
	struct larder_summary_place place = { larder_log_hash(test_uuid, SECRET), 10, 500, 321, EPOCH, 0, LARDER_SUMMARY_DATA_ONLY };
	struct larder_entry_in model[800], e;
	u32 sums[SEGMENT_SLOTS], round, i, n, k;
	const char *why = NULL;
	int error;

	for (i = 0; i < SEGMENT_SLOTS; i++)
		sums[i] = (u32)target_random(&state);
	for (round = 0; round < 300; round++) {
		larder_summary_init(s);
		for (n = k = 0; k < 8; k++) {	/* from commit blocks: what has data, until one does not fit whole */
			sample_commit(c, target_random(&state) / 5 * 5);
			error = larder_summary_add_commit(s, c, true);
			for (i = 0; !error && i < larder_commit_entries(c); i++) {
				larder_commit_entry(c, i, &e);
				if (e.kind == LARDER_WRITE || e.kind == LARDER_FILL)
					model[n++] = e;
			}
			CHECK(le32_to_cpu(s->nr_entries) == n && n <= 680);
			if (error)
				break;
			operations++;
		}
		error = larder_summary_finish(s, &place, sums, SEGMENT_SLOTS - 4);
		CHECK(error == ((SEGMENT_SLOTS - 4) * 4 + n * 24 > 16320 ? -ENOSPC : 0));
		if (error)
			continue;
		CHECK(!read_summary(s, &why), "%s", why);
		for (i = 0; i < n; i++) {
			larder_summary_entry(s, i, &e);
			CHECK(same_entry(&e, &model[i]));
		}
		for (i = 0; i < SEGMENT_SLOTS - 4; i++)
			CHECK(larder_summary_sum(s, i) == sums[i]);
		CHECK(!larder_summary_build(all, &place, model, n, sums, SEGMENT_SLOTS - 4) && !memcmp(all, s, sizeof(*s)));
	}
	memset(model, 0, sizeof(model));
	CHECK(larder_summary_build(s, &place, model, 681, sums, 0) == -ENOSPC);
	CHECK(larder_summary_build(s, &place, model, 680, sums, 0) == 0);
	CHECK(larder_summary_build(s, &place, model, 680, sums, 1) == -ENOSPC);
	free(s);
	free(all);
	free(c);
}

/* Items against a list, until the chunk is full. */
static void test_chunk_against_list(void)
{
	static u64 values[4096], got[LARDER_CHUNK_SIZE / 8];
	static struct larder_segment_in info[1000];
	struct larder_chunk *c = buffer(sizeof(*c));
	struct { u8 kind; u32 n; u64 start; } list[4200];
	struct larder_item_in item;
	struct larder_segment_in back;
	const char *why = NULL;
	u32 round, n, i, k, at, room;
	int error;

	for (i = 0; i < 4096; i++)
		values[i] = i % NR_SEGMENTS;
	for (i = 0; i < 1000; i++)
		info[i] = (struct larder_segment_in) { i * 77ull, (u8)(i % 3), (u8)(i / 3 % 3), (u8)i, 0 };
	for (round = 0; round < 400; round++) {
		memset(c, 0x5a, sizeof(*c));
		larder_chunk_init(c, 20, 3);
		for (n = 0; n < 4200; n++, operations++) {
			list[n].kind = (u8)(1 + rnd(3) + 2 * (rnd(2)));
			list[n].n = 1 + rnd(list[n].kind == LARDER_ITEM_STREAM ? 1 : round % 2 ? 20 : 1000);
			list[n].start = rnd(8);
			room = larder_chunk_room(c, item_unit(list[n].kind));
			if (list[n].kind == LARDER_ITEM_STREAM) {
				struct larder_pos_in pos = { list[n].start + 1, (u32)n % NR_SEGMENTS, 9, 8 };

				error = larder_chunk_add_pos(c, 1, &pos);
			} else if (list[n].kind == LARDER_ITEM_SEGMENTS) {
				list[n].n = min(list[n].n, 990u);
				error = larder_chunk_add_segments(c, list[n].start, info + list[n].start, list[n].n);
			} else {
				if (list[n].kind == LARDER_ITEM_OPEN)
					list[n].start = 0;
				error = larder_chunk_add_u64(c, list[n].kind, list[n].kind == LARDER_ITEM_OPEN ? 2 : 5, list[n].start,
							     values + list[n].start, list[n].n);
			}
			CHECK(!error == (list[n].n <= room), "%u of %u", list[n].n, room);
			if (error)
				break;
		}
		larder_chunk_finish(c, CHUNK_HASH, 5, 0);
		CHECK(!read_chunk(c, &why), "%s", why);
		for (i = at = 0; larder_chunk_next(c, &test_geo, &at, &item, &why) > 0; i++) {
			CHECK(i < n && item.kind == list[i].kind && item.count == list[i].n);
			if (item.kind == LARDER_ITEM_STREAM) {
				struct larder_pos_in pos;

				larder_item_pos(&item, &pos);
				CHECK(item.volume == 1 && pos.prev_sequence == list[i].start + 1 && pos.segment == i % NR_SEGMENTS);
				CHECK(pos.slot == 9 && pos.prev_crc == 8);
			} else if (item.kind == LARDER_ITEM_SEGMENTS) {
				CHECK(item.number == list[i].start);
				for (k = 0; k < item.count; k++) {
					larder_item_segment(&item, k, &back);
					CHECK(!memcmp(&back, &info[item.number + k], sizeof(back)));
				}
			} else {
				CHECK(item.number == list[i].start && item.volume == (item.kind == LARDER_ITEM_OPEN ? 2 : 5));
				larder_item_copy_u64(&item, got);
				CHECK(!memcmp(got, values + item.number, item.count * 8));
			}
		}
		CHECK(i == n && at == le32_to_cpu(c->used));
	}
	larder_chunk_init(c, 20, 3);
	CHECK(larder_chunk_room(c, 8) == 8182 && larder_chunk_room(c, 16) == 4091);
	CHECK(!larder_chunk_add_u64(c, LARDER_ITEM_REGION, 0, 0, values, 4096) && !larder_chunk_add_pos(c, 0, NULL));
	free(c);
}

/* ------------------------------------------------------------- refusals */

struct refusal {
	size_t at;
	u8 width;			/* bytes */
	u64 value;
	int error;
	const char *why;
};

#define BAD(type, field, v, e, w) { offsetof(type, field), sizeof_field(type, field), v, e, w }
#define H(field, v, e, w) BAD(struct larder_sb_head, field, v, e, w)
#define C(field, v, e, w) BAD(struct larder_cache_sb, field, v, e, w)
#define V(field, v, e, w) BAD(struct larder_volume_sb, field, v, e, w)
#define T(field, v, e, w) BAD(struct larder_table, field, v, e, w)
#define K(field, v, e, w) BAD(struct larder_commit, field, v, e, w)
#define S(field, v, e, w) BAD(struct larder_summary, field, v, e, w)
#define P(field, v, e, w) BAD(struct larder_chunk, field, v, e, w)

static const struct refusal bad_cache[] = {
	H(version, 2, -EOPNOTSUPP, "version"), H(version, 0, -EOPNOTSUPP, "version"), H(incompat, 2, -EOPNOTSUPP, "incompat"),
	H(incompat, 1ull << 63, -EOPNOTSUPP, "incompat"), H(kind, 0, -EINVAL, "kind"), H(kind, 5, -EINVAL, "kind"),
	H(kind, LARDER_KIND_VOLUME, -EINVAL, "kind"), H(device_sectors, 15, -EINVAL, "device_sectors"),
	H(device_sectors, 1ull << 54, -EINVAL, "device_sectors"),
	H(device_sectors, DEVICE_SECTORS + 1, -EINVAL, "device_sectors (the device has become smaller)"),
	H(copy_offset, 4096, -EINVAL, "copy_offset"), H(copy_offset, 1 << 20, -EINVAL, "copy_offset"),
	H(copy_offset, DEVICE_SECTORS << 9, -EINVAL, "copy_offset"), H(copy_offset, ~4095ull, -EINVAL, "copy_offset"),
	H(copy_offset, (DEVICE_SECTORS << 9) - 4095, -EINVAL, "copy_offset"),
	C(segment_size, 0, -EINVAL, "segment_size"), C(segment_size, 64 << 10, -EINVAL, "segment_size"),
	C(segment_size, 32 << 20, -EINVAL, "segment_size"), C(segment_size, 3 << 20, -EINVAL, "segment_size"),
	C(nr_devices, 0, -EINVAL, "nr_devices"), C(nr_devices, 17, -EINVAL, "nr_devices"), C(device_number, 16, -EINVAL, "device_number"),
	C(role, 3, -EINVAL, "role"), C(all_generation, ~0ull, -EINVAL, "all_generation (newer than the superblock)"),
	C(segments_offset, 0, -EINVAL, "segments_offset"), C(segments_offset, (1 << 20) + 512, -EINVAL, "segments_offset"),
	C(segments_offset, DEVICE_SECTORS << 9, -EINVAL, "segments_offset"), C(segments_offset, ~4095ull, -EINVAL, "segments_offset"),
	C(nr_segments, 0, -EINVAL, "nr_segments"), C(nr_segments, 31, -EINVAL, "nr_segments"), C(nr_segments, 2048, -EINVAL, "nr_segments"),
	C(nr_segments, ~0u, -EINVAL, "nr_segments"), C(first_segment, ~0u, -EINVAL, "first_segment"),
	C(first_segment, (1u << 24) - NR_SEGMENTS + 1, -EINVAL, "first_segment"), C(first_segment, 6, -EINVAL, "epochs.segment"),
	C(epoch, EPOCH + 1, -EINVAL, "epoch"), C(epochs[1].epoch, EPOCH, -EINVAL, "epochs"), C(epochs[15].epoch, 1, -EINVAL, "epochs"),
	C(epochs[0].first_sequence, 0, -EINVAL, "epochs.first_sequence"), C(epochs[1].first_sequence, 100001, -EINVAL, "epochs.first_sequence"),
	C(epochs[0].segment, NR_SEGMENTS, -EINVAL, "epochs.segment"), C(epochs[0].segment, LARDER_NO_SEGMENT, -EINVAL, "epochs.segment"),
	C(checkpoint[0].sequence, 19, -EINVAL, "checkpoint.sequence"), C(checkpoint[0].sequence, 0, -EINVAL, "checkpoint.sequence"),
	C(checkpoint[0].bytes, 0, -EINVAL, "checkpoint.bytes"), C(checkpoint[0].bytes, 65537, -EINVAL, "checkpoint.bytes"),
	C(checkpoint[1].bytes, 4ull << 30, -EINVAL, "checkpoint.bytes"),
	C(checkpoint[0].first_segment, NR_SEGMENTS, -EINVAL, "checkpoint.first_segment"),
	C(checkpoint[0].epoch, 0, -EINVAL, "checkpoint.epoch"), C(checkpoint[1].epoch, EPOCH + 1, -EINVAL, "checkpoint.epoch"),
};

static const struct refusal bad_volume[] = {
	H(kind, LARDER_KIND_CACHE, -EINVAL, "kind"), V(mode, 3, -EINVAL, "mode"),
	V(data_offset, 4096, -EINVAL, "data_offset"), V(data_offset, (1 << 20) + 512, -EINVAL, "data_offset"),
	V(data_offset, DEVICE_SECTORS << 9, -EINVAL, "data_offset"), V(data_offset, ~4095ull, -EINVAL, "data_offset"),
	V(data_offset, 8192, -EINVAL, "copy_offset"), V(tail_reserve, 511, -EINVAL, "tail_reserve"),
	V(tail_reserve, DEVICE_SECTORS << 9, -EINVAL, "tail_reserve"), V(tail_reserve, ~511ull, -EINVAL, "tail_reserve"),
	V(sectors, 0, -EINVAL, "sectors"), V(sectors, DEVICE_SECTORS - 4095, -EINVAL, "sectors"), V(sectors, ~0ull, -EINVAL, "sectors"),
};

static const struct refusal bad_table[] = {
	T(head.magic, 1, -ENODATA, "magic"), T(head.nr_devices, 0, -EINVAL, "nr_devices"), T(head.nr_devices, 17, -EINVAL, "nr_devices"),
	T(head.nr_devices, 2, -EINVAL, "nr_devices"), T(head.nr_volumes, 1025, -EINVAL, "nr_volumes"),
	T(head.shape_generation, ~0ull, -EINVAL, "shape_generation (newer than the table)"),
	T(head.generation, 2, -ESTALE, "generation (older than the superblock says)"), T(devices[0].state, 5, -EINVAL, "devices.state"),
	T(devices[0].role, 3, -EINVAL, "devices.role"), T(devices[0].nr_segments, 0, -EINVAL, "devices.nr_segments"),
	T(devices[0].first_segment, ~0u, -EINVAL, "devices.nr_segments"), T(devices[0].first_segment, 1, -EINVAL, "devices.nr_segments"),
	T(devices[0].nr_segments, NR_SEGMENTS + 1, -EINVAL, "devices.nr_segments"),
	T(devices[0].segments_offset, 1, -EINVAL, "devices.segments_offset"), T(devices[0].segments_offset, 2 << 20, -EINVAL, "devices.segments_offset"),
	T(devices[1].state, 1, -EINVAL, "devices.nr_segments"), T(volumes[2].state, 3, -EINVAL, "volumes.state"),
	T(volumes[1].sectors, 0, -EINVAL, "volumes.sectors"), T(volumes[1].sectors, (1ull << 43) + 1, -EINVAL, "volumes.sectors"),
	T(volumes[4].uuid[0], 1, -EINVAL, "volumes.uuid"), T(head.cache_uuid[3], 1, -ESTALE, "cache_uuid"), T(devices[0].uuid[1], 2, -EINVAL, "devices.uuid"),
};

/* of sample_commit(3): see test_refusals(), which puts an entry of each kind into it */
#define ENTRY(i, field, v, e, w) { LARDER_COMMIT_HEAD + (i) * 24 + offsetof(struct larder_entry, field), sizeof_field(struct larder_entry, field), v, e, w }
#define BASE (321ull * SEGMENT_SECTORS)
static const struct refusal bad_commit[] = {
	K(magic, 1, -ENODATA, "magic"), K(hash, 1, -ESTALE, "hash"), K(epoch, 8, -ESTALE, "epoch"), K(segment, 322, -ESTALE, "segment"),
	K(prev_sequence, 4710, -ESTALE, "prev_sequence"), K(prev_crc, 1, -ESTALE, "prev_crc"), K(stream, 1, -EINVAL, "entry kind (of this stream)"),
	K(stream, 3, -ESTALE, "stream"),
	K(slot, SEGMENT_SLOTS - 4, -EINVAL, "slot"), K(slot, 0xffff, -EINVAL, "slot"), K(slot, 29, -EINVAL, "first, end"),
	K(first, 31, -EINVAL, "first, end"), K(end, 31, -EINVAL, "first, end"), K(nr_entries, 166, -EINVAL, "nr_entries"),
	K(nr_entries, 0xffff, -EINVAL, "nr_entries"), K(nr_entries, 10, -EINVAL, "entry volume"), K(flags, 0, -EINVAL, "flags"),
	K(sequence, 4711, -EINVAL, "sequence"), K(sequence, 0, -EINVAL, "sequence"), K(durable_sequence, 4800, -EINVAL, "durable_sequence"),
	ENTRY(0, kind, 0, -EINVAL, "entry kind"), ENTRY(0, kind, 10, -EINVAL, "entry kind"), ENTRY(0, volume, 1, -EINVAL, "entry volume"),
	ENTRY(0, volume, 6, -EINVAL, "entry volume"), ENTRY(0, length, 0, -EINVAL, "entry length"), ENTRY(0, length, 81, -EINVAL, "entry cache"),
	ENTRY(0, length, ~0u, -EINVAL, "entry cache"), ENTRY(0, cache, BASE + 159, -EINVAL, "entry cache"),
	ENTRY(0, cache, BASE + 240, -EINVAL, "entry cache"), ENTRY(0, cache, ~0ull, -EINVAL, "entry cache"),
	ENTRY(0, sector, 1ull << 31, -EINVAL, "entry sector"), ENTRY(0, sector, ~0ull, -EINVAL, "entry sector"),
	ENTRY(0, volume, 4, -EINVAL, "entry length"), ENTRY(1, cache, BASE + 159, -EINVAL, "entry cache"),
	ENTRY(2, cache, 1ull << 36, -EINVAL, "entry cache"), ENTRY(2, sector, (1ull << 31) - 99, -EINVAL, "entry sector"),
	ENTRY(3, cache, 1ull << 36, -EINVAL, "entry cache"), ENTRY(3, length, 0, -EINVAL, "entry length"),
	ENTRY(2, length, (1 << 17) + 1, -EINVAL, "entry length"), ENTRY(3, length, (1 << 17) + 1, -EINVAL, "entry length"),
	ENTRY(4, length, 0, -EINVAL, "entry length"), ENTRY(4, sector, (1ull << 31) - 7, -EINVAL, "entry sector"),
	ENTRY(5, sector, NR_SEGMENTS, -EINVAL, "entry sector (of a segment)"),
	ENTRY(5, length, LARDER_OPEN_CHUNKS + 1, -EINVAL, "entry length (of a stream)"),
	ENTRY(5, cache, NR_SEGMENTS + 1, -EINVAL, "entry cache (of further copies)"),
	ENTRY(5, cache, NR_SEGMENTS, -EINVAL, "entry cache (of further copies)"),
	ENTRY(5, cache, 5ull << 32, -EINVAL, "entry cache (of further copies)"),
	ENTRY(5, cache, 5ull << 32 | 5, -EINVAL, "entry cache (of further copies)"),
	ENTRY(5, cache, (u64)NR_SEGMENTS << 32 | 5, -EINVAL, "entry cache (of further copies)"),
	ENTRY(5, cache, (NR_SEGMENTS + 1ull) << 32 | 5, -EINVAL, "entry cache (of further copies)"),
	ENTRY(5, cache, ~0ull, -EINVAL, "entry cache (of further copies)"),
	ENTRY(6, sector, 1 << 14, -EINVAL, "entry sector (of a region)"), ENTRY(6, length, 2, -EINVAL, "entry length (of a mark)"),
	ENTRY(6, volume, 1, -EINVAL, "entry volume"), ENTRY(7, volume, 6, -EINVAL, "entry volume"),
};

static void commit_of_each_kind(void *p, u64 unused)
{
	static const struct larder_entry_in each[] = {
		{ 0, BASE + 160, 80, 0, LARDER_WRITE }, { 8, BASE + 160, 80, 0, LARDER_FILL }, { 0, 77, 100, 0, LARDER_ZERO },
		{ 0, 99, 8, 0, LARDER_CLEAN }, { 0, 0, 8, 0, LARDER_INVALIDATE }, { NR_SEGMENTS - 1, 0, 2, 0, LARDER_SEGMENT_OPEN },
		{ (1 << 14) - 1, 0, 1, 0, LARDER_INTENT }, { 0, 0, 0, 0, LARDER_FORGET }, { 20, 0, 0, 9, LARDER_CHECKPOINT },
	};
	struct larder_commit_place place = { larder_log_hash(test_uuid, SECRET), 4800, 4711, 4799, 0xdeadbeef, EPOCH, 321, 30, 20, 30, 0 };
	u32 sums[10] = { [5] = 0x00010001 }, i;		/* taken for a tenth entry: a WRITE to volume 1 */

	(void)unused;
	larder_commit_init(p);
	for (i = 0; i < ARRAY_SIZE(each); i++)
		larder_commit_add(p, &each[i]);
	larder_commit_finish(p, &place, sums);
}

static const struct refusal bad_summary[] = {
	S(magic, 1, -ENODATA, "magic"), S(hash, 1, -ESTALE, "hash"), S(epoch, 8, -ESTALE, "epoch"), S(segment, 1, -ESTALE, "segment"),
	S(stream, 1, -ESTALE, "stream"), S(nr_sums, SEGMENT_SLOTS - 3, -EINVAL, "nr_sums"), S(nr_sums, ~0u, -EINVAL, "nr_sums"),
	S(nr_entries, 681, -EINVAL, "nr_entries"), S(nr_entries, ~0u, -EINVAL, "nr_entries"), S(nr_entries, 0x0aaaaaab, -EINVAL, "nr_entries"),
	S(first_sequence, 501, -EINVAL, "first_sequence"), S(first_sequence, 0, -EINVAL, "first_sequence"),
	S(body[22], 0, -EINVAL, "entry kind"), S(nr_sums, 0, -EINVAL, "entry cache"),
};

static void summary_of_one(void *p, u64 unused)
{
	struct larder_summary_place place = { larder_log_hash(test_uuid, SECRET), 10, 500, 321, EPOCH, 0, 0 };
	struct larder_entry_in e = { 5, BASE + 3, 9, 0, LARDER_WRITE };
	u32 sums[2] = { 1, 2 };

	(void)unused;
	CHECK(!larder_summary_build(p, &place, &e, 1, sums, 2));
}

/* one item of each kind, the END last: where they begin in the payload */
#define REGION_AT 0
#define MARKS_AT (REGION_AT + 16 + 16)
#define OPEN_AT (MARKS_AT + 16 + 8)
#define STREAM_AT (OPEN_AT + 16 + 8)
#define SEGMENTS_AT (STREAM_AT + 16 + 32)
#define END_AT (SEGMENTS_AT + 16 + 16)
#define ITEM(i, field, v, e, w) { 64 + (i) + offsetof(struct larder_item, field), sizeof_field(struct larder_item, field), v, e, w }
#define DATA(i, off, width, v, e, w) { 64 + (i) + 16 + (off), width, v, e, w }
#define NEXT(v, e, w) { offsetof(struct larder_chunk, next_mirror), 8, v, e, w }	/* both further copies */
static const struct refusal bad_chunk[] = {
	P(magic, 1, -ENODATA, "magic"), P(hash, 1, -ESTALE, "hash"), P(sequence, 19, -ESTALE, "sequence"), P(number, 4, -ESTALE, "number"),
	P(used, 65473, -EINVAL, "used"), P(used, END_AT + 15, -EINVAL, "used"), P(used, 20, -EINVAL, "item count"), P(used, ~0u, -EINVAL, "used"),
	P(used, END_AT + 32, -EINVAL, "item behind the last one"),
	P(next_segment, NR_SEGMENTS, -EINVAL, "next_segment"), P(next_mirror, NR_SEGMENTS + 1, -EINVAL, "next_mirror"),
	P(next_third, 9, -EINVAL, "next_third"), NEXT(9ull << 32 | 9, -EINVAL, "next_third"),
	NEXT((NR_SEGMENTS + 1ull) << 32 | 9, -EINVAL, "next_third"),
	ITEM(REGION_AT, kind, 0, -EINVAL, "item kind"), ITEM(REGION_AT, kind, 7, -EINVAL, "item kind"),
	ITEM(REGION_AT, count, 0, -EINVAL, "item count"), ITEM(REGION_AT, count, 4097, -EINVAL, "item count"),
	ITEM(REGION_AT, count, ~0u, -EINVAL, "item count"), ITEM(REGION_AT, volume, 1, -EINVAL, "item volume"),
	ITEM(REGION_AT, number, 1ull << 19, -EINVAL, "item number (of a region)"), ITEM(REGION_AT, number, ~0ull, -EINVAL, "item number (of a region)"),
	ITEM(MARKS_AT, volume, 9, -EINVAL, "item volume"), DATA(MARKS_AT, 0, 8, 1 << 14, -EINVAL, "mark"), DATA(MARKS_AT, 0, 8, ~0ull, -EINVAL, "mark"),
	ITEM(OPEN_AT, volume, 3, -EINVAL, "item stream"), DATA(OPEN_AT, 0, 8, NR_SEGMENTS, -EINVAL, "opened segment"),
	ITEM(OPEN_AT, number, NR_SEGMENTS + 1, -EINVAL, "opened segment"), ITEM(OPEN_AT, number, ~0ull, -EINVAL, "opened segment"),
	ITEM(OPEN_AT, number, 5, -EINVAL, "opened segment"),
	DATA(OPEN_AT, 4, 4, NR_SEGMENTS + 1, -EINVAL, "opened segment"), DATA(OPEN_AT, 4, 4, 2, -EINVAL, "opened segment"),
	DATA(SEGMENTS_AT, 4, 4, NR_SEGMENTS + 1, -EINVAL, "segment mirror"), DATA(SEGMENTS_AT, 4, 4, NR_SEGMENTS, -EINVAL, "segment mirror"),
	ITEM(STREAM_AT, volume, 3, -EINVAL, "item stream"), ITEM(STREAM_AT, count, 2, -EINVAL, "item count"),
	DATA(STREAM_AT, 0, 4, NR_SEGMENTS, -EINVAL, "position segment"), DATA(STREAM_AT, 4, 4, 509, -EINVAL, "position slot"),
	DATA(STREAM_AT, 4, 4, ~0u, -EINVAL, "position slot"), ITEM(SEGMENTS_AT, number, NR_SEGMENTS, -EINVAL, "item number (of a segment)"),
	ITEM(SEGMENTS_AT, number, ~0ull, -EINVAL, "item number (of a segment)"), DATA(SEGMENTS_AT, 0, 1, 3, -EINVAL, "segment state"),
	DATA(SEGMENTS_AT, 1, 1, 3, -EINVAL, "segment stream"), ITEM(END_AT, count, 1, -EINVAL, "item count"),
};

static void chunk_of_each_kind(void *p, u64 unused)
{
	struct larder_pos_in pos = { 5, 17, 3, 99 };
	struct larder_segment_in info = { 3, LARDER_SEGMENT_USED, 2, 0, 0 };
	u64 values[2] = { 1, 2 };

	(void)unused;
	larder_chunk_init(p, 20, 3);
	larder_chunk_add_u64(p, LARDER_ITEM_REGION, 0, (1 << 19) - 1, values, 2);
	larder_chunk_add_u64(p, LARDER_ITEM_MARKS, 0, 0, values, 1);
	larder_chunk_add_u64(p, LARDER_ITEM_OPEN, 2, 0, values, 1);
	larder_chunk_add_pos(p, 2, &pos);
	larder_chunk_add_segments(p, NR_SEGMENTS - 1, &info, 1);
	larder_chunk_add_end(p);
	CHECK(le32_to_cpu(((struct larder_chunk *)p)->used) == END_AT + 16);
	larder_chunk_finish(p, CHUNK_HASH, LARDER_NO_SEGMENT, 0);
}

static void sample_cache_three_epochs(void *p, u64 unused)
{
	(void)unused;
	sample_cache_sb(p, 0);
}

static void sample_table_of_19(void *p, u64 unused)
{
	(void)unused;
	sample_table(p, 19);
}

static void refuse_each(const struct target *t, void (*sample)(void *p, u64 seed), const struct refusal *bad, u32 n)
{
	u8 *p = buffer(t->size);
	const char *why = NULL;
	int error;
	u32 i, k;

	for (i = 0; i < n; i++, operations++) {
		sample(p, 0);
		CHECK(!t->read(p, &why), "%s: %s", t->name, why);
		for (k = 0; k < bad[i].width; k++)
			p[bad[i].at + k] = (u8)(bad[i].value >> 8 * k);
		target_repair(t, p);
		why = NULL;
		error = t->read(p, &why);
		CHECK(error == bad[i].error && why && !strcmp(why, bad[i].why), "%s, case %u (%s = 0x%llx): got %d %s", t->name, i, bad[i].why,
		      (unsigned long long)bad[i].value, error, why ? why : "-");
	}
	free(p);
}

static void test_refusals(void)
{
	refuse_each(&targets[0], sample_cache_three_epochs, bad_cache, ARRAY_SIZE(bad_cache));
	refuse_each(&targets[1], sample_volume_sb, bad_volume, ARRAY_SIZE(bad_volume));
	refuse_each(&targets[3], sample_table_of_19, bad_table, ARRAY_SIZE(bad_table));
	refuse_each(&targets[4], commit_of_each_kind, bad_commit, ARRAY_SIZE(bad_commit));
	refuse_each(&targets[5], summary_of_one, bad_summary, ARRAY_SIZE(bad_summary));
	refuse_each(&targets[6], chunk_of_each_kind, bad_chunk, ARRAY_SIZE(bad_chunk));
}

/* The place of another SSD, which need not be there: its sectors are numbered with 36 bits, too. */
static void test_place_of_another(void)
{
	const char *beyond = "devices.nr_segments (beyond 36 bits of sectors)", *why = NULL;
	struct larder_cache_sb *sb = buffer(LARDER_SB_SIZE);
	struct larder_table *t = buffer(LARDER_TABLE_SIZE);
	u32 most;

	sample_cache_sb(sb, 5);
	sample_table(t, 5);
	most = (1ull << LARDER_CACHE_SECTOR_BITS) / (le32_to_cpu(sb->segment_size) / 512);
	t->head.nr_devices = cpu_to_le32(2);
	t->devices[1].state = cpu_to_le32(LARDER_DEVICE_FAILED);
	t->devices[1].first_segment = cpu_to_le32(most - 7);
	t->devices[1].nr_segments = cpu_to_le32(7);
	larder_seal_table(t);
	CHECK(!larder_check_table(t, sb, &why), "%s", why);
	t->devices[1].nr_segments = cpu_to_le32(8);
	larder_seal_table(t);
	CHECK(larder_check_table(t, sb, &why) == -EINVAL && !strcmp(why, beyond), "%s", why);
	free(t);
	free(sb);
	operations += 2;
}

/* Of an SSD that has grown a table may know fewer segments than its superblock; there is room for as many as end before the copy. */
static void test_grown_cache(void)
{
	struct larder_cache_sb *sb = buffer(LARDER_SB_SIZE);
	struct larder_table *t = buffer(LARDER_TABLE_SIZE);
	const char *why = NULL;
	u32 size, room = 0;

	sample_cache_sb(sb, 5);
	sample_table(t, 5);
	CHECK(!larder_check_table(t, sb, &why));
	sb->nr_segments = cpu_to_le32(NR_SEGMENTS + 1);
	CHECK(!larder_check_table(t, sb, &why));
	sb->nr_segments = cpu_to_le32(NR_SEGMENTS - 1);
	CHECK(larder_check_table(t, sb, &why) == -EINVAL && !strcmp(why, "devices.nr_segments"), "%s", why);
	size = le32_to_cpu(sb->segment_size) / 512;
	room = larder_cache_room(sb, DEVICE_SECTORS);
	CHECK(room >= NR_SEGMENTS && larder_cache_room(sb, DEVICE_SECTORS + 10 * size) == room + 10);
	CHECK(larder_cache_room(sb, le64_to_cpu(sb->segments_offset) / 512 + size + 7) == 0);
	CHECK(larder_cache_room(sb, le64_to_cpu(sb->segments_offset) / 512 + size + 8) == 1);
	CHECK(larder_cache_room(sb, 0) == 0 && larder_cache_room(sb, 8) == 0);
	sb->first_segment = cpu_to_le32((1u << 24) - 40);
	CHECK(larder_cache_room(sb, 1ull << 53) == 40);
	free(t);
	free(sb);
}

/* An SSD that grows: where its superblock and the copies of it are, and its table. */
#define GROWN_SECTORS (DEVICE_SECTORS + 4 * SEGMENT_SECTORS)
enum grow_place { GROW_HEAD, GROW_OLD_END, GROW_NEW_END, GROW_NR_PLACES };
struct grow_disk { struct larder_cache_sb at[GROW_NR_PLACES]; struct larder_table table[2]; };

/* As super.c:super_second_copy() reads it.  NULL: refused. */
static const struct larder_cache_sb *grow_read(const struct grow_disk *d)
{
	static const struct larder_cache_sb nothing;
	u64 ends[] = { larder_cache_copy_offset(DEVICE_SECTORS), larder_cache_copy_offset(GROWN_SECTORS) };
	const struct larder_cache_sb *a = &d->at[GROW_HEAD], *b;
	const char *why = NULL;
	bool valid = !larder_check_sb(&a->head, GROWN_SECTORS, &why);
	u64 place;
	u32 i;

	for (i = 0; i < (valid ? 1 : 2); i++) {
		place = i ? ends[1] : le64_to_cpu(a->head.copy_offset);
		b = place == ends[0] ? &d->at[GROW_OLD_END] : place == ends[1] ? &d->at[GROW_NEW_END] : &nothing;
		if (larder_choose_sb(&a->head, &b->head, place, LARDER_KIND_CACHE, GROWN_SECTORS, &why) == 1)
			return b;
	}
	return valid ? a : NULL;
}

/* Bits of torn: which 512 bytes of to, of any size, were written; those behind the eighth as the eighth. */
static void grow_write(void *to, const void *from, size_t bytes, u32 torn)
{
	size_t at;

	for (at = 0; at < bytes; at += 512)
		if (torn >> min_t(size_t, at / 512, 7) & 1)
			memcpy((u8 *)to + at, (const u8 *)from + at, 512);
}

/* How many states a start would refuse if the writes came in this order (places; 3, 4: tables): each state is all before, and one torn. */
static u32 grow_cut(const u8 *order, u32 number)
{
	struct grow_disk *d = buffer(sizeof(*d)), *was = buffer(sizeof(*was)), *now = buffer(sizeof(*now));
	const struct larder_cache_sb *sb;
	u32 step, torn, refused = 0;
	const char *why = NULL;
	int chosen;

	memset(was, 0, sizeof(*was));
	sample_cache_sb(&was->at[GROW_HEAD], 0);
	was->at[GROW_OLD_END] = was->at[GROW_HEAD];
	sample_table(&was->table[0], 5);
	larder_seal_table(&was->table[0]);
	was->table[1] = was->table[0];
	*now = *was;
	now->at[GROW_HEAD].head.device_sectors = cpu_to_le64(GROWN_SECTORS);
	now->at[GROW_HEAD].head.copy_offset = cpu_to_le64(larder_cache_copy_offset(GROWN_SECTORS));
	now->at[GROW_HEAD].nr_segments = cpu_to_le32(larder_cache_room(&was->at[GROW_HEAD], GROWN_SECTORS));
	now->at[GROW_HEAD].stack[0] ^= 1;	/* not in the first 512 bytes */
	larder_seal_sb(&now->at[GROW_HEAD].head);
	now->at[GROW_NEW_END] = now->at[GROW_HEAD];
	now->table[0].devices[0].nr_segments = now->at[GROW_HEAD].nr_segments;
	larder_seal_table(&now->table[0]);
	now->table[1] = now->table[0];
	for (step = 0; step < number; step++) {
		for (torn = 0; torn < 256; torn++) {
			*d = *was;
			if (order[step] < GROW_NR_PLACES)
				grow_write(&d->at[order[step]], &now->at[order[step]], LARDER_SB_SIZE, torn);
			else
				grow_write(&d->table[order[step] - GROW_NR_PLACES], &now->table[order[step] - GROW_NR_PLACES], LARDER_TABLE_SIZE,
					   torn);
			sb = grow_read(d);
			chosen = sb ? larder_choose_table(&d->table[0], &d->table[1], sb, &why) : -1;
			refused += chosen < 0 ||
				   le32_to_cpu(d->table[chosen].devices[0].nr_segments) > le32_to_cpu(sb->nr_segments);
		}
		if (order[step] < GROW_NR_PLACES)
			was->at[order[step]] = now->at[order[step]];
		else
			was->table[order[step] - GROW_NR_PLACES] = now->table[order[step] - GROW_NR_PLACES];
	}
	sb = grow_read(was);
	CHECK(sb == &was->at[GROW_HEAD] && sb->nr_segments == now->at[GROW_HEAD].nr_segments);
	free(now);
	free(was);
	free(d);
	return refused;
}

/* Rule 15: no torn write of a growth leaves an SSD that is refused; two other orders do. */
static void test_growth_is_cut(void)
{
	CHECK(!grow_cut((const u8[]){ GROW_NEW_END, GROW_HEAD, GROW_NEW_END, 3, 4 }, 5));
	CHECK(grow_cut((const u8[]){ GROW_HEAD, GROW_NEW_END, 3, 4 }, 4), "the first copy torn, and what it names was never written");
	CHECK(grow_cut((const u8[]){ 3, 4, GROW_NEW_END, GROW_HEAD, GROW_NEW_END }, 5), "the table has what the superblock has not");
}

/* A block of another place, stream, epoch, or without its predecessor, is not the one expected; nor is any when only maybe is asked. */
static void test_commit_expectations(void)
{
	const struct larder_geometry small = { SEGMENT_SLOTS, 321, ARRAY_SIZE(test_volumes), test_volumes };	/* has no segment 321 */
	struct larder_commit *c = buffer(sizeof(*c));
	struct larder_summary *s = buffer(sizeof(*s));
	struct larder_commit_expect e, right;
	struct larder_summary_expect es = { &small, larder_log_hash(test_uuid, SECRET), 321, EPOCH, LARDER_STREAM_WRITE };
	const char *why = NULL;

	commit_of_each_kind(c, 0);
	right = sample_expect(c);
	CHECK(!larder_check_commit(c, &right, &why) && larder_commit_maybe(c, &right));
#define EXPECT_STALE(field, v, w, maybe) do { \
		e = right; \
		e.field = (v); \
		CHECK(larder_check_commit(c, &e, &why) == -ESTALE && !strcmp(why, w), "%s", why); \
		CHECK(larder_commit_maybe(c, &e) == (maybe)); \
	} while (0)
	EXPECT_STALE(hash, 1, "hash", false);
	EXPECT_STALE(epoch, EPOCH + 1, "epoch", false);
	EXPECT_STALE(segment, 320, "segment", false);
	EXPECT_STALE(slot, 31, "slot", false);
	EXPECT_STALE(stream, 2, "stream", false);
	EXPECT_STALE(prev_sequence, 0, "prev_sequence", true);
	EXPECT_STALE(prev_crc, 0, "prev_crc", true);
	e = right;
	e.prev_sequence = 1;
	e.prev_crc = 1;
	e.any_prev = true;
	CHECK(!larder_check_commit(c, &e, &why));
	e = right;
	e.from = le16_to_cpu(c->first);
	CHECK(!larder_check_commit(c, &e, &why));
	e.from++;
	CHECK(larder_check_commit(c, &e, &why) == -EINVAL && !strcmp(why, "first, end"));
	e = right;
	e.geo = &small;
	CHECK(larder_check_commit(c, &e, &why) == -EINVAL && !strcmp(why, "segment"));
	summary_of_one(s, 0);
	CHECK(larder_check_summary(s, &es, &why) == -EINVAL && !strcmp(why, "segment"));
	es.geo = &test_geo;
	CHECK(!larder_check_summary(s, &es, &why));
	free(c);
	free(s);
}

/* ------------------------------------------------------------- which copy counts */

static void resum(void *sb)
{
	target_repair(&targets[0], sb);
}

static void test_choose_superblock(void)
{
	struct larder_cache_sb *a = buffer(sizeof(*a)), *b = buffer(sizeof(*b));
	u64 copy = larder_cache_copy_offset(DEVICE_SECTORS);
	const char *why = NULL;

#define CHOOSE() larder_choose_sb(&a->head, &b->head, copy, LARDER_KIND_CACHE, DEVICE_SECTORS, &why)
	sample_cache_sb(a, 0);
	*b = *a;
	CHECK(CHOOSE() == 0);
	CHECK(larder_choose_sb(&a->head, NULL, 0, 0, DEVICE_SECTORS, &why) == 0);
	larder_seal_sb(&b->head);
	CHECK(le64_to_cpu(b->head.generation) == le64_to_cpu(a->head.generation) + 1);
	CHECK(CHOOSE() == 1);
	CHECK(larder_choose_sb(&a->head, &b->head, copy - 4096, LARDER_KIND_CACHE, DEVICE_SECTORS, &why) == 0);	/* not where it says it is */
	b->head.uuid[5] ^= 1;				/* what was made here earlier */
	resum(b);
	CHECK(CHOOSE() == 0);
	b->head.uuid[5] ^= 1;
	b->label[0]++;					/* torn */
	CHECK(CHOOSE() == 0);
	larder_seal_sb(&b->head);
	a->label[0]++;
	CHECK(CHOOSE() == 1);
	memset(a, 0, sizeof(*a));			/* wiped */
	CHECK(CHOOSE() == 1);
	b->label[0]++;
	CHECK(CHOOSE() == -ENODATA && !strcmp(why, "magic"));
	b->label[0]--;
	CHECK(CHOOSE() == 1);
	sample_volume_sb(a, 0);				/* a whole superblock of something else: the copy must not undo it */
	CHECK(CHOOSE() == -EINVAL && !strcmp(why, "kind"));
	sample_cache_sb(a, 0);
	a->head.version = cpu_to_le32(2);
	resum(a);
	CHECK(CHOOSE() == -EOPNOTSUPP && !strcmp(why, "version"));
	sample_cache_sb(a, 0);
	a->head.version = cpu_to_le32(2);		/* that is damage */
	CHECK(CHOOSE() == 1);
	sample_cache_sb(a, 0);
	a->head.compat = a->head.ro_compat = cpu_to_le64(1);
	resum(a);
	CHECK(!larder_check_sb(&a->head, DEVICE_SECTORS, &why) && larder_sb_read_only(&a->head) && !larder_sb_read_only(&b->head));
	CHECK(larder_check_sb(&b->head, DEVICE_SECTORS - 1, &why) == -EINVAL && !larder_check_sb(&b->head, 0, &why));
	free(a);
	free(b);
}

static void test_choose_table(void)
{
	struct larder_table *a = buffer(sizeof(*a)), *b = buffer(sizeof(*b));
	struct larder_cache_sb sb;
	const char *why = NULL;

	sample_cache_sb(&sb, 0);
	sample_table(a, 5);
	*b = *a;
	CHECK(larder_choose_table(a, b, &sb, &why) == 0);
	larder_seal_table(b);
	CHECK(larder_choose_table(a, b, &sb, &why) == 1 && larder_choose_table(b, a, &sb, &why) == 0);
	b->volumes[0].label[0]++;
	CHECK(larder_choose_table(a, b, &sb, &why) == 0);
	sb.table_generation = cpu_to_le64(4);		/* the newer one is damaged, and the older one is known to be old */
	CHECK(larder_choose_table(a, b, &sb, &why) == -ESTALE);
	CHECK(larder_choose_table(a, b, NULL, &why) == 0);
	a->head.magic = 0;
	CHECK(larder_choose_table(a, b, &sb, &why) == -ENODATA);
	free(a);
	free(b);
}

/* Segments of several SSDs: no overlap; epochs and checkpoints may name those of the others. */
static void test_table_of_two(void)
{
	struct larder_table *t = buffer(sizeof(*t));
	struct larder_cache_sb sb;
	const char *why = NULL;

	sample_cache_sb(&sb, 0);
	sb.nr_devices = cpu_to_le32(2);
	sb.checkpoint[0].first_segment = cpu_to_le32(NR_SEGMENTS + 5);
	resum(&sb);
	CHECK(!larder_check_cache_sb(&sb, DEVICE_SECTORS, &why), "%s", why);
	sample_table(t, 5);
	t->head.nr_devices = cpu_to_le32(2);
	t->devices[3] = t->devices[0];
	t->devices[3].uuid[0]++;
	t->devices[3].first_segment = cpu_to_le32(NR_SEGMENTS);
	larder_seal_table(t);
	CHECK(!larder_check_table(t, &sb, &why), "%s", why);
	t->devices[3].first_segment = cpu_to_le32(NR_SEGMENTS + 6);
	larder_seal_table(t);
	CHECK(larder_check_table(t, &sb, &why) == -EINVAL && !strcmp(why, "checkpoint.first_segment (superblock)"));
	t->devices[3].first_segment = cpu_to_le32(NR_SEGMENTS - 1);
	larder_seal_table(t);
	CHECK(larder_check_table(t, &sb, &why) == -EINVAL && !strcmp(why, "devices.first_segment"));
	t->devices[3].first_segment = cpu_to_le32(NR_SEGMENTS);
	t->devices[3].segments_offset = cpu_to_le64((1 << 20) + 512);
	larder_seal_table(t);
	CHECK(larder_check_table(t, &sb, &why) == -EINVAL && !strcmp(why, "devices.segments_offset"));
	t->devices[3].segments_offset = cpu_to_le64(1 << 20);
	larder_seal_table(t);
	CHECK(!larder_check_table(t, &sb, &why));
	sb.epochs[0].segment = cpu_to_le32(2 * NR_SEGMENTS);
	resum(&sb);
	CHECK(!larder_check_cache_sb(&sb, DEVICE_SECTORS, &why));
	CHECK(larder_check_table(t, &sb, &why) == -EINVAL && !strcmp(why, "epochs.segment (superblock)"));
	free(t);
}

/* The segment of the newest epoch exists even if no checkpoint names that epoch; that of an older one if a checkpoint does. */
static void test_epoch_segments(void)
{
	struct larder_cache_sb sb;
	const char *why = NULL;

	sample_cache_sb(&sb, 0);
	memset(sb.checkpoint, 0, sizeof(sb.checkpoint));
	sb.epochs[1].segment = cpu_to_le32(NR_SEGMENTS);
	resum(&sb);
	CHECK(!larder_check_cache_sb(&sb, DEVICE_SECTORS, &why), "%s", why);
	sb.epochs[0].segment = cpu_to_le32(NR_SEGMENTS);
	resum(&sb);
	CHECK(larder_check_cache_sb(&sb, DEVICE_SECTORS, &why) == -EINVAL && !strcmp(why, "epochs.segment"));
	sample_cache_sb(&sb, 0);
	sb.checkpoint[1].epoch = cpu_to_le32(EPOCH - 1);
	resum(&sb);
	CHECK(!larder_check_cache_sb(&sb, DEVICE_SECTORS, &why), "%s", why);
	sb.epochs[1].segment = cpu_to_le32(NR_SEGMENTS);
	resum(&sb);
	CHECK(larder_check_cache_sb(&sb, DEVICE_SECTORS, &why) == -EINVAL && !strcmp(why, "epochs.segment"));
	memset(sb.epochs, 0, sizeof(sb.epochs));	/* just formatted */
	memset(sb.checkpoint, 0, sizeof(sb.checkpoint));
	sb.epoch = 0;
	resum(&sb);
	CHECK(!larder_check_cache_sb(&sb, DEVICE_SECTORS, &why), "%s", why);
}

/* ------------------------------------------------------------- damage */

/* A changed byte anywhere is found: all bytes of what is small, a sieve through what is large. */
static void test_damaged_bytes(void)
{
	const struct target *t;
	const char *why;
	size_t at, step;
	u32 i;
	u8 *p, was;

	for (i = 0; i < ARRAY_SIZE(targets); i++) {
		t = &targets[i];
		p = buffer(t->size);
		t->sample(p, seed);
		step = t->size / 4096;
		for (at = 0; at < t->size; at += at < t->head || step == 1 ? 1 : 1 + rnd((u32)(2 * step - 1))) {
			was = p[at];
			p[at] ^= (u8)(1 + rnd(255));
			why = NULL;
			CHECK(t->read(p, &why) < 0 && why, "%s: byte %zu", t->name, at);
			p[at] = was;
			operations++;
		}
		CHECK(!t->read(p, &why));
		free(p);
	}
}

/* One change: a bit, a byte, a number at the border of something, a stretch copied from elsewhere. */
static void mutate(u8 *p, size_t size, size_t head)
{
	static const u64 border[] = { 0, 1, 2, 3, 4, 9, 10, 126, 127, 128, 0x7f, 0x80, 0xff, 507, 508, 509, 511, 512, 999, 1000, 1001, 4095, 4096, 4097, 0xffff,
				      65472, 65536, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 36, (1ull << 36) - 1, 1ull << 54, 1ull << 63, ~0ull };
	size_t at = rnd((u32)(rnd(4) ? head : size)), from, n, width = 1ul << rnd(4);
	u64 v, old;

	switch (rnd(4)) {
	case 0:
		p[at] ^= (u8)(1 << rnd(8));
		return;
	case 1:
		p[at] = (u8)rnd(256);
		return;
	case 2:
		at &= ~(width - 1);
		memcpy(&old, p + (at & ~7ul), 8);
		v = rnd(3) ? border[rnd(ARRAY_SIZE(border))] : (old >> 8 * (at & 7)) + rnd(5) - 2;
		v = cpu_to_le64(v);
		memcpy(p + at, &v, width);
		return;
	default:
		n = 1 + rnd(64);
		from = rnd((u32)(size - n));
		at = min(at, size - n);
		memmove(p + at, p + from, n);
	}
}

/* Puts magic, and for the log hash, epoch, place and predecessor, back in place. */
static void restore_identity(const struct target *t, u8 *p, const u8 *good)
{
	static const struct { size_t at, n; } parts[ARRAY_SIZE(targets)][2] = {
		{ { 0, 28 }, { 40, 24 } }, { { 0, 28 }, { 40, 24 } }, { { 0, 20 }, { 40, 24 } }, { { 0, 8 }, { 24, 20 } },
		{ { 0, 16 }, { 24, 8 } }, { { 0, 16 }, { 32, 8 } }, { { 0, 28 }, { 0, 4 } },
	};
	const size_t k = (size_t)(t - targets);

	memcpy(p + parts[k][0].at, good + parts[k][0].at, parts[k][0].n);
	memcpy(p + parts[k][1].at, good + parts[k][1].at, parts[k][1].n);
	if (k == 4)
		memcpy(p + 40, good + 40, 12);		/* prev_crc, epoch, segment */
}

/* The large ones cost more to sum: fewer of them.  The checksum repaired, nothing but the checks stands between a forger and the reader. */
static void test_forged(void)
{
	static const u32 share[] = { 20, 20, 5, 1, 35, 14, 5 };
	u64 i, n, passed, all = 0;
	const struct target *t;
	const char *why;
	u32 k, more;
	u8 *p, *good;

	for (k = 0; k < ARRAY_SIZE(targets); k++) {
		t = &targets[k];
		p = buffer(t->size);
		good = buffer(t->size);
		t->sample(good, 1);
		n = max(mutations * share[k] / 100, 100ull);
		passed = 0;
		for (i = 0; i < n; i++, operations++, all++) {
			if (i % 4 == 0)		/* else: damage on top of damage */
				t->sample(p, target_random(&state) >> 8);
			for (more = rnd(3) + 1; more--;)
				mutate(p, t->size, t->head);
			if (rnd(3))		/* the magic and the numbers that identify it are seldom worth damaging */
				restore_identity(t, p, good);
			target_repair(t, p);
			why = NULL;
			if (t->read(p, &why) >= 0)
				passed++;
			else
				CHECK(why, "%s", t->name);
		}
		CHECK(passed > n / 50 && passed < n, "%s: %llu of %llu pass", t->name, (unsigned long long)passed, (unsigned long long)n);
		free(p);
		free(good);
	}
	CHECK(all >= mutations);
}

static void run_test(const char *name, void (*fn)(void))
{
	test_name = name;
	state = seed;
	fn();
	printf("ok %u %s\n", ++tests, name);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		mutations = strtoull(argv[2], NULL, 0);
	run_test("known values", test_known_values);
	run_test("hashes depend on every bit", test_hash_bits);
	run_test("what the writers make, the readers take", test_samples_are_good);
	run_test("commit blocks against an array", test_commit_against_array);
	run_test("a commit block is full", test_commit_full);
	run_test("summaries", test_summary_round_trip);
	run_test("checkpoint chunks against a list", test_chunk_against_list);
	run_test("each refusal by its name", test_refusals);
	run_test("the place of another SSD", test_place_of_another);
	run_test("an SSD that has grown", test_grown_cache);
	run_test("the growth of an SSD is cut off", test_growth_is_cut);
	run_test("the commit block that is expected, and no other", test_commit_expectations);
	run_test("which superblock counts", test_choose_superblock);
	run_test("which table counts", test_choose_table);
	run_test("a table of two SSDs", test_table_of_two);
	run_test("segments of epochs", test_epoch_segments);
	run_test("a changed byte is found", test_damaged_bytes);
	run_test("forgeries with good checksums", test_forged);
	printf("format: %u tests passed, %llu operations, seed %llu\n", tests, (unsigned long long)operations, (unsigned long long)seed);
	return 0;
}
