// SPDX-License-Identifier: GPL-2.0-only
/*
 * larder: encode, decode and validate the disk format (larder_format.h, docs/on-disk-format.md).
 *
 * Invariants:
 *  - A larder_check_*() reads no byte outside the structure that it is given, whatever stands in it: every count and offset is
 *    compared with the structure's size before it is used.
 *  - What it lets pass can be handed to the accessors, and used as an index of segments, slots, volumes and devices, without a
 *    further check.
 *  - What the writing half makes, the checking half lets pass.
 *
 * Pure: no state, no locks, no allocation.
 */
#include "format.h"

/* The layout, once more as numbers: docs/on-disk-format.md has these offsets. */
static_assert(sizeof(struct larder_sb_head) == 128);
static_assert(offsetof(struct larder_sb_head, crc) == 16);
static_assert(offsetof(struct larder_sb_head, generation) == 32);
static_assert(offsetof(struct larder_sb_head, incompat) == 56);
static_assert(offsetof(struct larder_sb_head, uuid) == 64);
static_assert(offsetof(struct larder_sb_head, device_sectors) == 80);
static_assert(offsetof(struct larder_sb_head, copy_offset) == 88);
static_assert(sizeof(struct larder_checkpoint_ptr) == 64);
static_assert(offsetof(struct larder_checkpoint_ptr, first_segment) == 24);
static_assert(offsetof(struct larder_checkpoint_ptr, hash) == 32);
static_assert(sizeof(struct larder_epoch) == 32);
static_assert(offsetof(struct larder_epoch, secret) == 8);
static_assert(sizeof(struct larder_cache_sb) == LARDER_SB_SIZE);
static_assert(offsetof(struct larder_cache_sb, cache_uuid) == 128);
static_assert(offsetof(struct larder_cache_sb, label) == 144);
static_assert(offsetof(struct larder_cache_sb, device_number) == 208);
static_assert(offsetof(struct larder_cache_sb, set_generation) == 216);
static_assert(offsetof(struct larder_cache_sb, segment_size) == 224);
static_assert(offsetof(struct larder_cache_sb, segments_offset) == 240);
static_assert(offsetof(struct larder_cache_sb, epoch) == 256);
static_assert(offsetof(struct larder_cache_sb, checkpoint) == 288);
static_assert(offsetof(struct larder_cache_sb, epochs) == 416);
static_assert(offsetof(struct larder_cache_sb, stack) == 928);
static_assert(sizeof(struct larder_table_head) == 64);
static_assert(offsetof(struct larder_table_head, cache_uuid) == 24);
static_assert(sizeof(struct larder_table_device) == 64);
static_assert(offsetof(struct larder_table_device, segments_offset) == 32);
static_assert(sizeof(struct larder_table_volume) == 112);
static_assert(offsetof(struct larder_table_volume, sectors) == 24);
static_assert(offsetof(struct larder_table_volume, label) == 40);
static_assert(sizeof(struct larder_table) == LARDER_TABLE_SIZE);
static_assert(offsetof(struct larder_table, devices) == 64);
static_assert(offsetof(struct larder_table, volumes) == 1088);
static_assert(sizeof(struct larder_volume_sb) == LARDER_SB_SIZE);
static_assert(offsetof(struct larder_volume_sb, mode) == 208);
static_assert(offsetof(struct larder_volume_sb, data_offset) == 216);
static_assert(offsetof(struct larder_volume_sb, incarnation) == 240);
static_assert(offsetof(struct larder_volume_sb, stack) == 512);
static_assert(sizeof(struct larder_entry) == 24);
static_assert(offsetof(struct larder_entry, kind) == 22);
static_assert(sizeof(struct larder_commit) == LARDER_SLOT_SIZE);
static_assert(offsetof(struct larder_commit, sequence) == 16);
static_assert(offsetof(struct larder_commit, prev_crc) == 40);
static_assert(offsetof(struct larder_commit, slot) == 52);
static_assert(offsetof(struct larder_commit, stream) == 60);
static_assert(offsetof(struct larder_commit, body) == LARDER_COMMIT_HEAD);
static_assert(sizeof(struct larder_summary) == LARDER_SUMMARY_SLOTS * LARDER_SLOT_SIZE);
static_assert(offsetof(struct larder_summary, segment) == 32);
static_assert(offsetof(struct larder_summary, body) == 64);
static_assert(sizeof(struct larder_chunk) == LARDER_CHUNK_SIZE);
static_assert(offsetof(struct larder_chunk, number) == 24);
static_assert(offsetof(struct larder_chunk, payload) == 64);
static_assert(sizeof(struct larder_item) == 16);
static_assert(sizeof(struct larder_stream_pos) == 32);
static_assert(sizeof(struct larder_segment_info) == 16);
/* A full record has room for at least one entry for each of its slots; a region with its item fits in a chunk. */
static_assert(LARDER_RECORD_SLOTS * (sizeof(struct larder_entry) + 4) <= LARDER_COMMIT_BODY);
static_assert(sizeof(struct larder_item) + LARDER_REGION_SECTORS * 8 <= LARDER_CHUNK_PAYLOAD);

static const u8 larder_magic[16] = LARDER_MAGIC;

/* The one way to say no: what is wrong, and the errno of it. */
static int refuse(const char **why, int error, const char *field)
{
	*why = field;
	return error;
}

/* ------------------------------------------------------------- checksums and hashes */

u32 larder_crc(const void *p, size_t bytes)
{
	return crc32c(~0u, p, bytes);
}

u32 larder_crc_without(const void *p, size_t bytes, size_t crc_at)
{
	static const u8 zero[4];
	const u8 *b = p;
	u32 crc = crc32c(~0u, b, crc_at);

	crc = crc32c(crc, zero, sizeof(zero));
	return crc32c(crc, b + crc_at + sizeof(zero), bytes - crc_at - sizeof(zero));
}

/* FNV-1a, 64 bits, over n bytes. */
static u64 fnv_bytes(u64 h, const u8 *p, size_t n)
{
	while (n--)
		h = (h ^ *p++) * 0x100000001b3ull;
	return h;
}

/* The same over the eight bytes of a little-endian number. */
static u64 fnv_u64(u64 h, u64 v)
{
	int i;

	for (i = 0; i < 64; i += 8)
		h = (h ^ (v >> i & 0xff)) * 0x100000001b3ull;
	return h;
}

/* The finaliser of splitmix64: every bit of h bears upon every bit of the result. */
static u64 mix64(u64 h)
{
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ h >> 27) * 0x94d049bb133111ebull;
	return h ^ h >> 31;
}

u64 larder_log_hash(const u8 cache_uuid[LARDER_UUID_SIZE], u64 secret)
{
	return mix64(fnv_u64(fnv_bytes(0xcbf29ce484222325ull, cache_uuid, LARDER_UUID_SIZE), secret));
}

u64 larder_checkpoint_hash(const u8 cache_uuid[LARDER_UUID_SIZE], u64 secret, u64 sequence)
{
	return mix64(fnv_u64(fnv_u64(fnv_bytes(0xcbf29ce484222325ull, cache_uuid, LARDER_UUID_SIZE), secret), sequence));
}

/* ------------------------------------------------------------- superblocks */

#define SB_CRC_AT	offsetof(struct larder_sb_head, crc)
#define MAX_DEVICE_SECTORS (1ull << 54)		/* bytes still fit in 64 bits */

int larder_check_head(const struct larder_sb_head *head, u64 device_sectors, const char **why)
{
	u64 sectors = le64_to_cpu(head->device_sectors), copy = le64_to_cpu(head->copy_offset);
	u32 kind = le32_to_cpu(head->kind);

	if (memcmp(head->magic, larder_magic, sizeof(larder_magic)))
		return refuse(why, -ENODATA, "magic");
	if (le32_to_cpu(head->version) != LARDER_VERSION)
		return refuse(why, -EOPNOTSUPP, "version");
	if (le64_to_cpu(head->incompat) & ~LARDER_INCOMPAT_OF(kind))
		return refuse(why, -EOPNOTSUPP, "incompat");
	if (kind < LARDER_KIND_CACHE || kind > LARDER_KIND_OTHER)
		return refuse(why, -EINVAL, "kind");
	if (sectors < (LARDER_SB_OFFSET + LARDER_SB_SIZE) >> LARDER_SECTOR_SHIFT || sectors >= MAX_DEVICE_SECTORS)
		return refuse(why, -EINVAL, "device_sectors");
	if (copy && (copy % LARDER_SB_SIZE || copy < LARDER_SB_OFFSET + LARDER_SB_SIZE ||
		     copy > (sectors << LARDER_SECTOR_SHIFT) - LARDER_SB_SIZE))
		return refuse(why, -EINVAL, "copy_offset");
	if (le32_to_cpu(head->crc) != larder_crc_without(head, LARDER_SB_SIZE, SB_CRC_AT))
		return refuse(why, -EBADMSG, "checksum");
	if (device_sectors && sectors > device_sectors)
		return refuse(why, -EINVAL, "device_sectors (the device has become smaller)");
	return 0;
}

/* Segment size, place and number on this SSD; all below the copy of the superblock, all addressable in 36 bits. */
static int check_cache_geometry(const struct larder_cache_sb *sb, const char **why)
{
	u64 bytes = le64_to_cpu(sb->head.device_sectors) << LARDER_SECTOR_SHIFT, copy = le64_to_cpu(sb->head.copy_offset);
	u64 offset = le64_to_cpu(sb->segments_offset), nr = le32_to_cpu(sb->nr_segments);
	u32 size = le32_to_cpu(sb->segment_size), nr_devices = le32_to_cpu(sb->nr_devices);

	if (size < LARDER_MIN_SEGMENT_SIZE || size > LARDER_MAX_SEGMENT_SIZE || size & (size - 1))
		return refuse(why, -EINVAL, "segment_size");
	if (!nr_devices || nr_devices > LARDER_MAX_DEVICES)
		return refuse(why, -EINVAL, "nr_devices");
	if (le32_to_cpu(sb->device_number) >= LARDER_MAX_DEVICES)
		return refuse(why, -EINVAL, "device_number");
	if (le32_to_cpu(sb->role) > LARDER_ROLE_READ)
		return refuse(why, -EINVAL, "role");
	if (offset < LARDER_SEGMENTS_OFFSET || offset % LARDER_SLOT_SIZE || offset >= bytes)
		return refuse(why, -EINVAL, "segments_offset");
	if (!nr || (nr_devices == 1 && nr < LARDER_MIN_SEGMENTS) || nr * size > bytes - offset)
		return refuse(why, -EINVAL, "nr_segments");
	if (copy && copy < offset + nr * size)
		return refuse(why, -EINVAL, "copy_offset");
	if ((le32_to_cpu(sb->first_segment) + nr) * (size >> LARDER_SECTOR_SHIFT) > 1ull << LARDER_CACHE_SECTOR_BITS)
		return refuse(why, -EINVAL, "first_segment");
	return 0;
}

u32 larder_cache_room(const struct larder_cache_sb *sb, u64 device_sectors)
{
	u64 end = larder_cache_copy_offset(device_sectors), offset = le64_to_cpu(sb->segments_offset);
	u32 shift = __builtin_ctz(le32_to_cpu(sb->segment_size)), first = le32_to_cpu(sb->first_segment);
	u64 numbers = 1ull << (LARDER_CACHE_SECTOR_BITS + LARDER_SECTOR_SHIFT - shift);

	if (device_sectors < LARDER_SLOT_SECTORS || end < offset || first > numbers)
		return 0;
	return min_t(u64, (end - offset) >> shift, numbers - first);
}

/* May this superblock name that segment?  With several SSDs only the table knows: larder_check_table(). */
static bool cache_segment_ok(const struct larder_cache_sb *sb, u32 segment)
{
	u32 first = le32_to_cpu(sb->first_segment);

	if (le32_to_cpu(sb->nr_devices) > 1)
		return segment != LARDER_NO_SEGMENT;
	return segment >= first && segment - first < le32_to_cpu(sb->nr_segments);
}

/* Newest first, numbers falling, empty ones behind. */
static int check_epochs(const struct larder_cache_sb *sb, const char **why)
{
	u32 i, epoch, newer = 0;
	u64 first, newer_first = 0;

	if (sb->epochs[0].epoch != sb->epoch)
		return refuse(why, -EINVAL, "epoch");
	for (i = 0; i < LARDER_NR_EPOCHS; i++) {
		epoch = le32_to_cpu(sb->epochs[i].epoch);
		first = le64_to_cpu(sb->epochs[i].first_sequence);
		if (i && epoch && epoch >= newer)
			return refuse(why, -EINVAL, "epochs");
		if (epoch && (!first || (i && first > newer_first)))
			return refuse(why, -EINVAL, "epochs.first_sequence");
		newer = epoch;
		newer_first = first;
	}
	if (sb->epoch && !cache_segment_ok(sb, le32_to_cpu(sb->epochs[0].segment)))
		return refuse(why, -EINVAL, "epochs.segment");
	return 0;
}

static const struct larder_epoch *find_epoch(const struct larder_cache_sb *sb, u32 epoch)
{
	u32 i;

	for (i = 0; epoch && i < LARDER_NR_EPOCHS; i++)
		if (le32_to_cpu(sb->epochs[i].epoch) == epoch)
			return &sb->epochs[i];
	return NULL;
}

static int check_checkpoints(const struct larder_cache_sb *sb, const char **why)
{
	u64 size = le32_to_cpu(sb->segment_size), most = 1ull << (LARDER_CACHE_SECTOR_BITS + LARDER_SECTOR_SHIFT);
	const struct larder_checkpoint_ptr *p;
	const struct larder_epoch *epoch;
	u64 bytes;
	u32 i;

	if (le32_to_cpu(sb->nr_devices) == 1)
		most = le32_to_cpu(sb->nr_segments) * size;
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++) {
		p = &sb->checkpoint[i];
		if (larder_checkpoint_empty(p))
			continue;
		if (i && (larder_checkpoint_empty(&sb->checkpoint[0]) ||
			  le64_to_cpu(p->sequence) >= le64_to_cpu(sb->checkpoint[0].sequence)))
			return refuse(why, -EINVAL, "checkpoint.sequence");
		bytes = le64_to_cpu(p->bytes);
		if (!bytes || bytes % LARDER_CHUNK_SIZE || bytes > most)
			return refuse(why, -EINVAL, "checkpoint.bytes");
		if (!cache_segment_ok(sb, le32_to_cpu(p->first_segment)))
			return refuse(why, -EINVAL, "checkpoint.first_segment");
		if (p->first_mirror && !cache_segment_ok(sb, le32_to_cpu(p->first_mirror) - 1))
			return refuse(why, -EINVAL, "checkpoint.first_mirror");
		if (p->first_third && (!p->first_mirror || p->first_third == p->first_mirror ||
				       !cache_segment_ok(sb, le32_to_cpu(p->first_third) - 1)))
			return refuse(why, -EINVAL, "checkpoint.first_third");
		epoch = find_epoch(sb, le32_to_cpu(p->epoch));
		if (!epoch)
			return refuse(why, -EINVAL, "checkpoint.epoch");
		if (!cache_segment_ok(sb, le32_to_cpu(epoch->segment)))
			return refuse(why, -EINVAL, "epochs.segment");
	}
	return 0;
}

int larder_check_cache_sb(const struct larder_cache_sb *sb, u64 device_sectors, const char **why)
{
	int error = larder_check_head(&sb->head, device_sectors, why);

	if (error)
		return error;
	if (le32_to_cpu(sb->head.kind) != LARDER_KIND_CACHE)
		return refuse(why, -EINVAL, "kind");
	if (le64_to_cpu(sb->all_generation) > le64_to_cpu(sb->head.generation))
		return refuse(why, -EINVAL, "all_generation (newer than the superblock)");
	error = check_cache_geometry(sb, why);
	if (!error)
		error = check_epochs(sb, why);
	if (!error)
		error = check_checkpoints(sb, why);
	return error;
}

int larder_check_volume_sb(const struct larder_volume_sb *sb, u64 device_sectors, const char **why)
{
	u64 bytes = le64_to_cpu(sb->head.device_sectors) << LARDER_SECTOR_SHIFT, copy = le64_to_cpu(sb->head.copy_offset);
	u64 data = le64_to_cpu(sb->data_offset), tail = le64_to_cpu(sb->tail_reserve), sectors = le64_to_cpu(sb->sectors);
	int error = larder_check_head(&sb->head, device_sectors, why);

	if (error)
		return error;
	if (le32_to_cpu(sb->head.kind) != LARDER_KIND_VOLUME)
		return refuse(why, -EINVAL, "kind");
	if (le32_to_cpu(sb->mode) > LARDER_WRITEAROUND)
		return refuse(why, -EINVAL, "mode");
	if (data < LARDER_MIN_DATA_OFFSET || data % LARDER_SLOT_SIZE || data >= bytes)
		return refuse(why, -EINVAL, "data_offset");
	if (copy && copy + LARDER_SB_SIZE > data)
		return refuse(why, -EINVAL, "copy_offset");
	if (tail > bytes - data || tail & ((1u << LARDER_SECTOR_SHIFT) - 1))
		return refuse(why, -EINVAL, "tail_reserve");
	if (!sectors || sectors > (bytes - data - tail) >> LARDER_SECTOR_SHIFT)
		return refuse(why, -EINVAL, "sectors");
	return 0;
}

int larder_check_sb(const struct larder_sb_head *head, u64 device_sectors, const char **why)
{
	switch (le32_to_cpu(head->kind)) {
	case LARDER_KIND_CACHE:
		return larder_check_cache_sb((const struct larder_cache_sb *)head, device_sectors, why);
	case LARDER_KIND_VOLUME:
		return larder_check_volume_sb((const struct larder_volume_sb *)head, device_sectors, why);
	default:
		return larder_check_head(head, device_sectors, why);
	}
}

bool larder_sb_read_only(const struct larder_sb_head *head)
{
	return le64_to_cpu(head->ro_compat) & ~LARDER_RO_COMPAT_ALL;
}

static int check_sb_of_kind(const struct larder_sb_head *head, u32 kind, u64 device_sectors, const char **why)
{
	int error = larder_check_sb(head, device_sectors, why);

	if (!error && kind && le32_to_cpu(head->kind) != kind)
		return refuse(why, -EINVAL, "kind");
	return error;
}

int larder_choose_sb(const struct larder_sb_head *a, const struct larder_sb_head *b, u64 b_offset, u32 kind, u64 device_sectors,
		     const char **why)
{
	int error = check_sb_of_kind(a, kind, device_sectors, why);
	const char *b_why;

	if (!b || check_sb_of_kind(b, kind, device_sectors, &b_why) || le64_to_cpu(b->copy_offset) != b_offset)
		return error;
	if (error) {
		/* whole, but of another version or kind, or unfit for this device: not to be undone by an older copy */
		if (error != -ENODATA && le32_to_cpu(a->crc) == larder_crc_without(a, LARDER_SB_SIZE, SB_CRC_AT))
			return error;
		return 1;
	}
	return !memcmp(a->uuid, b->uuid, sizeof(a->uuid)) && le64_to_cpu(b->generation) > le64_to_cpu(a->generation);
}

void larder_seal_sb(struct larder_sb_head *head)
{
	memcpy(head->magic, larder_magic, sizeof(larder_magic));
	head->version = cpu_to_le32(LARDER_VERSION);
	head->generation = cpu_to_le64(le64_to_cpu(head->generation) + 1);
	head->crc = cpu_to_le32(larder_crc_without(head, LARDER_SB_SIZE, SB_CRC_AT));
}

/* ------------------------------------------------------------- table */

#define TABLE_CRC_AT	offsetof(struct larder_table_head, crc)

/* Is this segment on one of the table's SSDs? */
static bool table_segment_ok(const struct larder_table *t, u32 segment)
{
	const struct larder_table_device *d;
	u32 i;

	for (i = 0; i < LARDER_MAX_DEVICES; i++) {
		d = &t->devices[i];
		if (d->state && segment >= le32_to_cpu(d->first_segment) &&
		    segment - le32_to_cpu(d->first_segment) < le32_to_cpu(d->nr_segments))
			return true;
	}
	return false;
}

/* Ranges of segments that no other SSD has. */
static int check_table_devices(const struct larder_table *t, const char **why)
{
	const struct larder_table_device *d, *o;
	u64 first, end;
	u32 i, k, used = 0;

	for (i = 0; i < LARDER_MAX_DEVICES; i++) {
		d = &t->devices[i];
		if (le32_to_cpu(d->state) > LARDER_DEVICE_REMOVED)
			return refuse(why, -EINVAL, "devices.state");
		if (!d->state)
			continue;
		used++;
		first = le32_to_cpu(d->first_segment);
		end = first + le32_to_cpu(d->nr_segments);
		if (first == end || end > LARDER_NO_SEGMENT)
			return refuse(why, -EINVAL, "devices.nr_segments");
		if (le32_to_cpu(d->role) > LARDER_ROLE_READ)
			return refuse(why, -EINVAL, "devices.role");
		if (le64_to_cpu(d->segments_offset) % LARDER_SLOT_SIZE)
			return refuse(why, -EINVAL, "devices.segments_offset");
		for (k = 0; k < i; k++) {
			o = &t->devices[k];
			if (o->state && first < (u64)le32_to_cpu(o->first_segment) + le32_to_cpu(o->nr_segments) &&
			    le32_to_cpu(o->first_segment) < end)
				return refuse(why, -EINVAL, "devices.first_segment");
		}
	}
	if (!used || used != le32_to_cpu(t->head.nr_devices))
		return refuse(why, -EINVAL, "nr_devices");
	return 0;
}

static int check_table_volumes(const struct larder_table *t, const char **why)
{
	const struct larder_table_volume *v;
	u32 i, k;

	for (i = 0; i < le32_to_cpu(t->head.nr_volumes); i++) {
		v = &t->volumes[i];
		if (le32_to_cpu(v->state) > LARDER_VOLUME_FORGETTING)
			return refuse(why, -EINVAL, "volumes.state");
		if (v->state && (!v->sectors || le64_to_cpu(v->sectors) > LARDER_MAX_VOLUME_SECTORS))
			return refuse(why, -EINVAL, "volumes.sectors");
		for (k = 0; le32_to_cpu(v->state) == LARDER_VOLUME_ATTACHED && k < i; k++)
			if (v->state == t->volumes[k].state && !memcmp(v->uuid, t->volumes[k].uuid, sizeof(v->uuid)))
				return refuse(why, -EINVAL, "volumes.uuid");
	}
	return 0;
}

/*
 * Does the table go with this superblock: same cache, not older, this SSD in its place, the named segments known?  It may know
 * fewer of this SSD's segments: those that it has grown by are in the superblock first (rule 15).
 */
static int check_table_fits(const struct larder_table *t, const struct larder_cache_sb *sb, const char **why)
{
	const struct larder_table_device *d = &t->devices[le32_to_cpu(sb->device_number)], *o;
	u64 sectors = le32_to_cpu(sb->segment_size) >> LARDER_SECTOR_SHIFT;
	u32 i;

	if (memcmp(t->head.cache_uuid, sb->cache_uuid, sizeof(sb->cache_uuid)))
		return refuse(why, -ESTALE, "cache_uuid");
	if (le64_to_cpu(t->head.generation) < le64_to_cpu(sb->table_generation))
		return refuse(why, -ESTALE, "generation (older than the superblock says)");
	if (!d->state || memcmp(d->uuid, sb->head.uuid, sizeof(d->uuid)))
		return refuse(why, -EINVAL, "devices.uuid");
	if (d->first_segment != sb->first_segment || le32_to_cpu(d->nr_segments) > le32_to_cpu(sb->nr_segments))
		return refuse(why, -EINVAL, "devices.nr_segments");
	if (d->segments_offset != sb->segments_offset)
		return refuse(why, -EINVAL, "devices.segments_offset");
	for (i = 0; i < LARDER_MAX_DEVICES; i++) {
		o = &t->devices[i];
		if (o->state && ((u64)le32_to_cpu(o->first_segment) + le32_to_cpu(o->nr_segments)) * sectors >
				1ull << LARDER_CACHE_SECTOR_BITS)
			return refuse(why, -EINVAL, "devices.nr_segments (beyond 36 bits of sectors)");
	}
	if (sb->epoch && !table_segment_ok(t, le32_to_cpu(sb->epochs[0].segment)))
		return refuse(why, -EINVAL, "epochs.segment (superblock)");
	for (i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		if (!larder_checkpoint_empty(&sb->checkpoint[i]) &&
		    !table_segment_ok(t, le32_to_cpu(sb->checkpoint[i].first_segment)))
			return refuse(why, -EINVAL, "checkpoint.first_segment (superblock)");
	return 0;
}

int larder_check_table(const struct larder_table *t, const struct larder_cache_sb *sb, const char **why)
{
	int error;

	if (le32_to_cpu(t->head.magic) != LARDER_TABLE_MAGIC)
		return refuse(why, -ENODATA, "magic");
	if (le32_to_cpu(t->head.nr_volumes) > LARDER_MAX_VOLUMES)
		return refuse(why, -EINVAL, "nr_volumes");
	if (le32_to_cpu(t->head.crc) != larder_crc_without(t, LARDER_TABLE_SIZE, TABLE_CRC_AT))
		return refuse(why, -EBADMSG, "checksum");
	if (larder_table_shape(t) > le64_to_cpu(t->head.generation))
		return refuse(why, -EINVAL, "shape_generation (newer than the table)");
	error = check_table_devices(t, why);
	if (!error)
		error = check_table_volumes(t, why);
	if (!error && sb)
		error = check_table_fits(t, sb, why);
	return error;
}

int larder_choose_table(const struct larder_table *a, const struct larder_table *b, const struct larder_cache_sb *sb,
			const char **why)
{
	const char *b_why;
	int error = larder_check_table(a, sb, why);

	if (larder_check_table(b, sb, &b_why))
		return error;
	return error || le64_to_cpu(b->head.generation) > le64_to_cpu(a->head.generation);
}

u64 larder_table_shape(const struct larder_table *t)
{
	return le64_to_cpu(t->head.shape_generation ?: t->head.generation);
}

void larder_seal_table(struct larder_table *t)
{
	t->head.magic = cpu_to_le32(LARDER_TABLE_MAGIC);
	t->head.generation = cpu_to_le64(le64_to_cpu(t->head.generation) + 1);
	t->head.crc = cpu_to_le32(larder_crc_without(t, LARDER_TABLE_SIZE, TABLE_CRC_AT));
}

/* ------------------------------------------------------------- entries */

static void entry_decode(const struct larder_entry *d, struct larder_entry_in *e)
{
	e->sector = le64_to_cpu(d->sector);
	e->cache = le64_to_cpu(d->cache);
	e->length = le32_to_cpu(d->length);
	e->volume = le16_to_cpu(d->volume);
	e->kind = d->kind;
}

/* The size of a volume in sectors, ~0: unknown, 0: there is none of that number. */
static u64 volume_size(const struct larder_geometry *geo, u32 volume)
{
	return volume < geo->nr_volumes ? geo->volume_sectors[volume] : 0;
}

bool larder_further_ok(u64 segment, u64 further, u32 nr_segments)
{
	u32 second = larder_second(further), third = larder_third(further);

	if (second > nr_segments || third > nr_segments || second == segment + 1)
		return false;
	return !third || (second && third != second && third != segment + 1);
}

/* The bounds of one entry.  [low, high): cache sectors where its data may lie. */
static int check_entry(const struct larder_entry_in *e, const struct larder_geometry *geo, u8 stream, u64 low, u64 high,
		       const char **why)
{
	u64 size;

	if (stream != LARDER_STREAM_WRITE && e->kind != LARDER_FILL)
		return refuse(why, -EINVAL, "entry kind (of this stream)");
	if (e->kind == LARDER_CHECKPOINT)
		return 0;
	if (e->kind == LARDER_SEGMENT_OPEN) {
		if (e->sector >= geo->nr_segments)
			return refuse(why, -EINVAL, "entry sector (of a segment)");
		if (!larder_further_ok(e->sector, e->cache, geo->nr_segments))
			return refuse(why, -EINVAL, "entry cache (of further copies)");
		return e->length <= LARDER_OPEN_CHUNKS ? 0 : refuse(why, -EINVAL, "entry length (of a stream)");
	}
	size = volume_size(geo, e->volume);
	if (!size)
		return refuse(why, -EINVAL, "entry volume");
	switch (e->kind) {
	case LARDER_FORGET:
		return 0;
	case LARDER_INTENT:
		if (e->sector > (size - 1) >> LARDER_INTENT_SHIFT)
			return refuse(why, -EINVAL, "entry sector (of a region)");
		return e->length <= 1 ? 0 : refuse(why, -EINVAL, "entry length (of a mark)");
	case LARDER_WRITE:
	case LARDER_FILL:
		if (e->cache < low || e->cache >= high || e->length > high - e->cache)
			return refuse(why, -EINVAL, "entry cache");
		break;
	case LARDER_ZERO:
	case LARDER_CLEAN:	/* it may name the serial number of a ZERO */
		if (e->cache >> LARDER_CACHE_SECTOR_BITS)
			return refuse(why, -EINVAL, "entry cache");
		if (e->length > LARDER_MAX_ZERO_SECTORS)
			return refuse(why, -EINVAL, "entry length");
		break;
	case LARDER_INVALIDATE:
		break;
	default:
		return refuse(why, -EINVAL, "entry kind");
	}
	if (!e->length || e->length > size)
		return refuse(why, -EINVAL, "entry length");
	return e->sector <= size - e->length ? 0 : refuse(why, -EINVAL, "entry sector");
}

/* ------------------------------------------------------------- commit blocks */

#define COMMIT_CRC_AT	offsetof(struct larder_commit, crc)
#define ENTRY_BYTES	((u32)sizeof(struct larder_entry))

static struct larder_entry *commit_entries(const struct larder_commit *c)
{
	return (struct larder_entry *)c->body;
}

/* Behind the entries. */
static __le32 *commit_sums(const struct larder_commit *c)
{
	return (__le32 *)(c->body + larder_commit_entries(c) * ENTRY_BYTES);
}

void larder_commit_init(struct larder_commit *c)
{
	memset(c, 0, sizeof(*c));
}

void larder_commit_drop(struct larder_commit *c, u32 i)
{
	commit_entries(c)[i].kind = 0;
}

void larder_commit_set(struct larder_commit *c, u32 i, const struct larder_entry_in *e)
{
	larder_entry_encode(&commit_entries(c)[i], e);
}

/* Closes the gaps that larder_commit_drop() left. */
static void commit_compact(struct larder_commit *c)
{
	struct larder_entry *e = commit_entries(c);
	u32 i, n = larder_commit_entries(c), kept = 0;

	for (i = 0; i < n; i++) {
		if (!e[i].kind)
			continue;
		if (kept != i)
			e[kept] = e[i];
		kept++;
	}
	memset(&e[kept], 0, (n - kept) * ENTRY_BYTES);
	c->nr_entries = cpu_to_le16(kept);
}

u32 larder_commit_finish(struct larder_commit *c, const struct larder_commit_place *p, const u32 *sums)
{
	u32 i, n = p->end - p->first, crc;
	__le32 *to;

	commit_compact(c);
	to = commit_sums(c);
	for (i = 0; i < n; i++)
		to[i] = cpu_to_le32(sums[i]);
	c->magic = cpu_to_le32(LARDER_COMMIT_MAGIC);
	c->hash = cpu_to_le64(p->hash);
	c->sequence = cpu_to_le64(p->sequence);
	c->prev_sequence = cpu_to_le64(p->prev_sequence);
	c->durable_sequence = cpu_to_le64(p->durable_sequence);
	c->prev_crc = cpu_to_le32(p->prev_crc);
	c->epoch = cpu_to_le32(p->epoch);
	c->segment = cpu_to_le32(p->segment);
	c->slot = cpu_to_le16(p->slot);
	c->first = cpu_to_le16(p->first);
	c->end = cpu_to_le16(p->end);
	c->stream = p->stream;
	c->flags = LARDER_COMMIT_SUMS_VALID;
	crc = larder_crc_without(c, sizeof(*c), COMMIT_CRC_AT);
	c->crc = cpu_to_le32(crc);
	return crc;
}

bool larder_commit_maybe(const struct larder_commit *c, const struct larder_commit_expect *e)
{
	return le32_to_cpu(c->magic) == LARDER_COMMIT_MAGIC && le64_to_cpu(c->hash) == e->hash &&
	       le32_to_cpu(c->epoch) == e->epoch && c->stream == e->stream &&
	       le32_to_cpu(c->segment) == e->segment && le16_to_cpu(c->slot) == e->slot;
}

/*
 * Is it the one that is looked for?  Everything that an older life of the slot, another stream or a forger would have otherwise.
 */
static int check_commit_identity(const struct larder_commit *c, const struct larder_commit_expect *e, const char **why)
{
	if (le32_to_cpu(c->magic) != LARDER_COMMIT_MAGIC)
		return refuse(why, -ENODATA, "magic");
	if (le64_to_cpu(c->hash) != e->hash)
		return refuse(why, -ESTALE, "hash");
	if (le32_to_cpu(c->epoch) != e->epoch)
		return refuse(why, -ESTALE, "epoch");
	if (c->stream != e->stream || c->stream >= LARDER_NR_STREAMS)
		return refuse(why, -ESTALE, "stream");
	if (le32_to_cpu(c->segment) != e->segment)
		return refuse(why, -ESTALE, "segment");
	if (le16_to_cpu(c->slot) != e->slot)
		return refuse(why, -ESTALE, "slot");
	if (!e->any_prev && le64_to_cpu(c->prev_sequence) != e->prev_sequence)
		return refuse(why, -ESTALE, "prev_sequence");
	if (!e->any_prev && le32_to_cpu(c->prev_crc) != e->prev_crc)
		return refuse(why, -ESTALE, "prev_crc");
	return 0;
}

int larder_check_commit(const struct larder_commit *c, const struct larder_commit_expect *e, const char **why)
{
	u32 slot = le16_to_cpu(c->slot), first = le16_to_cpu(c->first), end = le16_to_cpu(c->end);
	u32 i, n = larder_commit_entries(c);
	int error = check_commit_identity(c, e, why);
	struct larder_entry_in entry;
	u64 sequence = le64_to_cpu(c->sequence), base;

	if (error)
		return error;
	if (e->segment >= e->geo->nr_segments)
		return refuse(why, -EINVAL, "segment");
	if (slot + LARDER_SUMMARY_SLOTS >= e->geo->segment_slots)
		return refuse(why, -EINVAL, "slot");
	if (first < e->from || first > end || end > slot || end - first > LARDER_RECORD_SLOTS)
		return refuse(why, -EINVAL, "first, end");
	if (n * ENTRY_BYTES + (end - first) * 4 > LARDER_COMMIT_BODY)
		return refuse(why, -EINVAL, "nr_entries");
	if (!(c->flags & LARDER_COMMIT_SUMS_VALID))
		return refuse(why, -EINVAL, "flags");
	if (!sequence || sequence <= le64_to_cpu(c->prev_sequence))
		return refuse(why, -EINVAL, "sequence");
	/* that of the other streams may have been closed before, and built after, the write stream's record was durable */
	if (c->stream == LARDER_STREAM_WRITE && le64_to_cpu(c->durable_sequence) >= sequence)
		return refuse(why, -EINVAL, "durable_sequence");
	if (le32_to_cpu(c->crc) != larder_crc_without(c, sizeof(*c), COMMIT_CRC_AT))
		return refuse(why, -EBADMSG, "checksum");
	base = (u64)e->segment * e->geo->segment_slots * LARDER_SLOT_SECTORS;
	for (i = 0; i < n; i++) {
		larder_commit_entry(c, i, &entry);
		error = check_entry(&entry, e->geo, c->stream, base + first * LARDER_SLOT_SECTORS,
				    base + end * LARDER_SLOT_SECTORS, why);
		if (error)
			return error;
	}
	return 0;
}

void larder_commit_entry(const struct larder_commit *c, u32 i, struct larder_entry_in *e)
{
	entry_decode(&commit_entries(c)[i], e);
}

u32 larder_commit_sum(const struct larder_commit *c, u32 i)
{
	return le32_to_cpu(commit_sums(c)[i]);
}

/* ------------------------------------------------------------- summaries */

#define SUMMARY_CRC_AT	offsetof(struct larder_summary, crc)
#define SUMMARY_BODY	((u32)sizeof_field(struct larder_summary, body))

static struct larder_entry *summary_entries(const struct larder_summary *s)
{
	return (struct larder_entry *)s->body;
}

static __le32 *summary_sums(const struct larder_summary *s)
{
	return (__le32 *)(s->body + le32_to_cpu(s->nr_entries) * ENTRY_BYTES);
}

void larder_summary_init(struct larder_summary *s)
{
	memset(s, 0, sizeof(*s));
}

int larder_summary_add(struct larder_summary *s, const struct larder_entry_in *e)
{
	u32 n = le32_to_cpu(s->nr_entries);

	if ((n + 1) * ENTRY_BYTES > SUMMARY_BODY)
		return -ENOSPC;
	larder_entry_encode(&summary_entries(s)[n], e);
	s->nr_entries = cpu_to_le32(n + 1);
	return 0;
}

int larder_summary_add_commit(struct larder_summary *s, const struct larder_commit *c, bool data_only)
{
	const struct larder_entry *from = commit_entries(c);
	u32 i, had = le32_to_cpu(s->nr_entries), n = had;

	for (i = 0; i < larder_commit_entries(c); i++) {
		if (data_only && from[i].kind != LARDER_WRITE && from[i].kind != LARDER_FILL)
			continue;
		if ((n + 1) * ENTRY_BYTES > SUMMARY_BODY) {
			memset(&summary_entries(s)[had], 0, (n - had) * ENTRY_BYTES);
			return -ENOSPC;
		}
		summary_entries(s)[n++] = from[i];
	}
	s->nr_entries = cpu_to_le32(n);
	return 0;
}

int larder_summary_finish(struct larder_summary *s, const struct larder_summary_place *p, const u32 *sums, u32 nr_sums)
{
	__le32 *to = summary_sums(s);
	u32 i;

	if (nr_sums > SUMMARY_BODY / 4 || le32_to_cpu(s->nr_entries) * ENTRY_BYTES + nr_sums * 4 > SUMMARY_BODY)
		return -ENOSPC;
	for (i = 0; i < nr_sums; i++)
		to[i] = cpu_to_le32(sums[i]);
	s->magic = cpu_to_le32(LARDER_SUMMARY_MAGIC);
	s->hash = cpu_to_le64(p->hash);
	s->first_sequence = cpu_to_le64(p->first_sequence);
	s->last_sequence = cpu_to_le64(p->last_sequence);
	s->segment = cpu_to_le32(p->segment);
	s->epoch = cpu_to_le32(p->epoch);
	s->nr_sums = cpu_to_le32(nr_sums);
	s->stream = p->stream;
	s->flags = p->flags;
	s->crc = cpu_to_le32(larder_crc_without(s, sizeof(*s), SUMMARY_CRC_AT));
	return 0;
}

int larder_summary_build(struct larder_summary *s, const struct larder_summary_place *p, const struct larder_entry_in *entries,
			 u32 nr_entries, const u32 *sums, u32 nr_sums)
{
	u32 i;

	larder_summary_init(s);
	for (i = 0; i < nr_entries; i++)
		if (larder_summary_add(s, &entries[i]))
			return -ENOSPC;
	return larder_summary_finish(s, p, sums, nr_sums);
}

int larder_check_summary(const struct larder_summary *s, const struct larder_summary_expect *e, const char **why)
{
	u32 i, nr = le32_to_cpu(s->nr_entries), nr_sums = le32_to_cpu(s->nr_sums);
	struct larder_entry_in entry;
	int error;
	u64 low;

	if (le32_to_cpu(s->magic) != LARDER_SUMMARY_MAGIC)
		return refuse(why, -ENODATA, "magic");
	if (le64_to_cpu(s->hash) != e->hash)
		return refuse(why, -ESTALE, "hash");
	if (le32_to_cpu(s->epoch) != e->epoch)
		return refuse(why, -ESTALE, "epoch");
	if (le32_to_cpu(s->segment) != e->segment)
		return refuse(why, -ESTALE, "segment");
	if (s->stream != e->stream || s->stream >= LARDER_NR_STREAMS)
		return refuse(why, -ESTALE, "stream");
	if (e->segment >= e->geo->nr_segments)
		return refuse(why, -EINVAL, "segment");
	if (nr_sums + LARDER_SUMMARY_SLOTS > e->geo->segment_slots || nr_sums > SUMMARY_BODY / 4)
		return refuse(why, -EINVAL, "nr_sums");
	if (nr > (SUMMARY_BODY - nr_sums * 4) / ENTRY_BYTES)
		return refuse(why, -EINVAL, "nr_entries");
	if (!s->first_sequence || le64_to_cpu(s->first_sequence) > le64_to_cpu(s->last_sequence))
		return refuse(why, -EINVAL, "first_sequence");
	if (le32_to_cpu(s->crc) != larder_crc_without(s, sizeof(*s), SUMMARY_CRC_AT))
		return refuse(why, -EBADMSG, "checksum");
	low = (u64)e->segment * e->geo->segment_slots * LARDER_SLOT_SECTORS;
	for (i = 0; i < nr; i++) {
		larder_summary_entry(s, i, &entry);
		error = check_entry(&entry, e->geo, s->stream, low, low + nr_sums * LARDER_SLOT_SECTORS, why);
		if (error)
			return error;
	}
	return 0;
}

void larder_summary_entry(const struct larder_summary *s, u32 i, struct larder_entry_in *e)
{
	entry_decode(&summary_entries(s)[i], e);
}

u32 larder_summary_sum(const struct larder_summary *s, u32 i)
{
	return le32_to_cpu(summary_sums(s)[i]);
}

/* ------------------------------------------------------------- checkpoints */

#define CHUNK_CRC_AT	offsetof(struct larder_chunk, crc)
#define ITEM_BYTES	((u32)sizeof(struct larder_item))

void larder_chunk_init(struct larder_chunk *c, u64 sequence, u32 number)
{
	memset(c, 0, sizeof(*c));
	c->sequence = cpu_to_le64(sequence);
	c->number = cpu_to_le32(number);
}

u32 larder_chunk_room(const struct larder_chunk *c, u32 unit_bytes)
{
	u32 left = LARDER_CHUNK_PAYLOAD - le32_to_cpu(c->used);

	return left < ITEM_BYTES ? 0 : (left - ITEM_BYTES) / unit_bytes;
}

/* Space for an item and count units behind it; NULL: it does not fit. */
static void *chunk_item(struct larder_chunk *c, u8 kind, u16 volume, u64 number, u32 count, u32 unit_bytes)
{
	u32 used = le32_to_cpu(c->used);
	struct larder_item *item = (struct larder_item *)(c->payload + used);

	if (LARDER_CHUNK_PAYLOAD - used < ITEM_BYTES || count > (LARDER_CHUNK_PAYLOAD - used - ITEM_BYTES) / unit_bytes)
		return NULL;
	item->kind = kind;
	item->volume = cpu_to_le16(volume);
	item->count = cpu_to_le32(count);
	item->number = cpu_to_le64(number);
	c->used = cpu_to_le32(used + ITEM_BYTES + count * unit_bytes);
	return item + 1;
}

int larder_chunk_add_u64(struct larder_chunk *c, u8 kind, u16 volume, u64 number, const u64 *values, u32 count)
{
	__le64 *to = chunk_item(c, kind, volume, number, count, sizeof(*to));
	u32 i;

	if (!to)
		return -ENOSPC;
	for (i = 0; i < count; i++)
		to[i] = cpu_to_le64(values[i]);
	return 0;
}

int larder_chunk_add_pos(struct larder_chunk *c, u8 stream, const struct larder_pos_in *pos)
{
	struct larder_stream_pos *to = chunk_item(c, LARDER_ITEM_STREAM, stream, 0, pos ? 1 : 0, sizeof(*to));

	if (!to)
		return -ENOSPC;
	if (pos) {
		to->segment = cpu_to_le32(pos->segment);
		to->slot = cpu_to_le32(pos->slot);
		to->prev_sequence = cpu_to_le64(pos->prev_sequence);
		to->prev_crc = cpu_to_le32(pos->prev_crc);
	}
	return 0;
}

int larder_chunk_add_segments(struct larder_chunk *c, u64 first, const struct larder_segment_in *info, u32 count)
{
	struct larder_segment_info *to = chunk_item(c, LARDER_ITEM_SEGMENTS, 0, first, count, sizeof(*to));
	u32 i;

	if (!to)
		return -ENOSPC;
	for (i = 0; i < count; i++) {
		to[i].state = info[i].state;
		to[i].stream = info[i].stream;
		to[i].flags = info[i].flags;
		to[i].mirror = cpu_to_le32(info[i].mirror);
		to[i].sequence = cpu_to_le64(info[i].sequence);
	}
	return 0;
}

int larder_chunk_add_end(struct larder_chunk *c)
{
	return chunk_item(c, LARDER_ITEM_END, 0, 0, 0, 1) ? 0 : -ENOSPC;
}

void larder_chunk_finish(struct larder_chunk *c, u64 hash, u32 next_segment, u64 next_further)
{
	c->magic = cpu_to_le32(LARDER_CHUNK_MAGIC);
	c->hash = cpu_to_le64(hash);
	c->next_segment = cpu_to_le32(next_segment);
	c->next_mirror = cpu_to_le32(larder_second(next_further));
	c->next_third = cpu_to_le32(larder_third(next_further));
	c->crc = cpu_to_le32(larder_crc_without(c, sizeof(*c), CHUNK_CRC_AT));
}

int larder_check_chunk(const struct larder_chunk *c, const struct larder_chunk_expect *e, const char **why)
{
	u32 next = le32_to_cpu(c->next_segment);

	if (le32_to_cpu(c->magic) != LARDER_CHUNK_MAGIC)
		return refuse(why, -ENODATA, "magic");
	if (le64_to_cpu(c->hash) != e->hash)
		return refuse(why, -ESTALE, "hash");
	if (le64_to_cpu(c->sequence) != e->sequence)
		return refuse(why, -ESTALE, "sequence");
	if (le32_to_cpu(c->number) != e->number)
		return refuse(why, -ESTALE, "number");
	if (le32_to_cpu(c->used) > LARDER_CHUNK_PAYLOAD)
		return refuse(why, -EINVAL, "used");
	if (next != LARDER_NO_SEGMENT && next >= e->geo->nr_segments)
		return refuse(why, -EINVAL, "next_segment");
	if (le32_to_cpu(c->next_mirror) > e->geo->nr_segments)
		return refuse(why, -EINVAL, "next_mirror");
	if (c->next_third &&
	    (le32_to_cpu(c->next_third) > e->geo->nr_segments || !c->next_mirror || c->next_third == c->next_mirror))
		return refuse(why, -EINVAL, "next_third");
	if (le32_to_cpu(c->crc) != larder_crc_without(c, sizeof(*c), CHUNK_CRC_AT))
		return refuse(why, -EBADMSG, "checksum");
	return 0;
}

/* Bytes of each of the things that an item of this kind announces; 0: no such kind. */
static u32 item_unit(u8 kind)
{
	switch (kind) {
	case LARDER_ITEM_REGION:
	case LARDER_ITEM_MARKS:
	case LARDER_ITEM_OPEN:
		return sizeof(__le64);
	case LARDER_ITEM_STREAM:
		return sizeof(struct larder_stream_pos);
	case LARDER_ITEM_SEGMENTS:
		return sizeof(struct larder_segment_info);
	case LARDER_ITEM_END:
		return 1;
	default:
		return 0;
	}
}

/* Are all values of a MARKS item at most so big? */
static bool item_values_ok(const struct larder_item_in *item, u64 most)
{
	u32 i;

	for (i = 0; i < item->count; i++)
		if (larder_item_u64(item, i) > most)
			return false;
	return true;
}

static bool item_opened_ok(const struct larder_item_in *item, u32 nr_segments)
{
	u64 value;
	u32 i;

	if (item->number && (item->count != 1 || item->number > nr_segments))
		return false;
	for (i = 0; i < item->count; i++) {
		value = larder_item_u64(item, i);
		if ((u32)value >= nr_segments ||
		    !larder_further_ok((u32)value, larder_further(value >> 32, item->number), nr_segments))
			return false;
	}
	return true;
}

static int check_item_pos(const struct larder_item_in *item, const struct larder_geometry *geo, const char **why)
{
	struct larder_pos_in pos;

	if (item->volume >= LARDER_NR_STREAMS)
		return refuse(why, -EINVAL, "item stream");
	if (item->count > 1)
		return refuse(why, -EINVAL, "item count");
	if (!item->count)
		return 0;
	larder_item_pos(item, &pos);
	if (pos.segment == LARDER_NO_SEGMENT)
		return 0;
	if (pos.segment >= geo->nr_segments)
		return refuse(why, -EINVAL, "position segment");
	/* at the border: the segment is full, the stream goes on in the next one */
	if ((u64)pos.slot + LARDER_SUMMARY_SLOTS > geo->segment_slots)
		return refuse(why, -EINVAL, "position slot");
	return 0;
}

static int check_item_segments(const struct larder_item_in *item, const struct larder_geometry *geo, const char **why)
{
	struct larder_segment_in info;
	u32 i;

	if (item->number > geo->nr_segments || item->count > geo->nr_segments - item->number)
		return refuse(why, -EINVAL, "item number (of a segment)");
	for (i = 0; i < item->count; i++) {
		larder_item_segment(item, i, &info);
		if (info.state > LARDER_SEGMENT_OPENED)
			return refuse(why, -EINVAL, "segment state");
		if (info.stream >= LARDER_NR_STREAMS)
			return refuse(why, -EINVAL, "segment stream");
		if (info.mirror > geo->nr_segments || info.mirror == item->number + i + 1)
			return refuse(why, -EINVAL, "segment mirror");
	}
	return 0;
}

static int check_item(const struct larder_item_in *item, const struct larder_geometry *geo, const char **why)
{
	u64 size = volume_size(geo, item->volume);

	switch (item->kind) {
	case LARDER_ITEM_REGION:
		if (!size)
			return refuse(why, -EINVAL, "item volume");
		if (!item->count || item->count > LARDER_REGION_SECTORS)
			return refuse(why, -EINVAL, "item count");
		return item->number <= (size - 1) >> LARDER_REGION_SHIFT ? 0 : refuse(why, -EINVAL, "item number (of a region)");
	case LARDER_ITEM_MARKS:
		if (!size)
			return refuse(why, -EINVAL, "item volume");
		return item_values_ok(item, (size - 1) >> LARDER_INTENT_SHIFT) ? 0 : refuse(why, -EINVAL, "mark");
	case LARDER_ITEM_OPEN:
		if (item->volume >= LARDER_NR_STREAMS)
			return refuse(why, -EINVAL, "item stream");
		return item_opened_ok(item, geo->nr_segments) ? 0 : refuse(why, -EINVAL, "opened segment");
	case LARDER_ITEM_STREAM:
		return check_item_pos(item, geo, why);
	case LARDER_ITEM_SEGMENTS:
		return check_item_segments(item, geo, why);
	default:	/* END */
		return item->count ? refuse(why, -EINVAL, "item count") : 0;
	}
}

int larder_chunk_next(const struct larder_chunk *c, const struct larder_geometry *geo, u32 *at, struct larder_item_in *item,
		      const char **why)
{
	u32 left = le32_to_cpu(c->used) - *at, unit;
	const struct larder_item *from = (const struct larder_item *)(c->payload + *at);
	int error;

	if (!left)
		return 0;
	if (left < ITEM_BYTES)
		return refuse(why, -EINVAL, "used");
	unit = item_unit(from->kind);
	if (!unit)
		return refuse(why, -EINVAL, "item kind");
	if (le32_to_cpu(from->count) > (left - ITEM_BYTES) / unit)
		return refuse(why, -EINVAL, "item count");
	item->kind = from->kind;
	item->volume = le16_to_cpu(from->volume);
	item->count = le32_to_cpu(from->count);
	item->number = le64_to_cpu(from->number);
	item->data = from + 1;
	error = check_item(item, geo, why);
	if (error)
		return error;
	*at += ITEM_BYTES + item->count * unit;
	if (item->kind == LARDER_ITEM_END && *at != le32_to_cpu(c->used))
		return refuse(why, -EINVAL, "item behind the last one");
	return 1;
}

u64 larder_item_u64(const struct larder_item_in *item, u32 i)
{
	return le64_to_cpu(((const __le64 *)item->data)[i]);
}

void larder_item_copy_u64(const struct larder_item_in *item, u64 *values)
{
	u32 i;

	for (i = 0; i < item->count; i++)
		values[i] = larder_item_u64(item, i);
}

void larder_item_pos(const struct larder_item_in *item, struct larder_pos_in *pos)
{
	const struct larder_stream_pos *from = item->data;

	pos->segment = le32_to_cpu(from->segment);
	pos->slot = le32_to_cpu(from->slot);
	pos->prev_sequence = le64_to_cpu(from->prev_sequence);
	pos->prev_crc = le32_to_cpu(from->prev_crc);
}

void larder_item_segment(const struct larder_item_in *item, u32 i, struct larder_segment_in *info)
{
	const struct larder_segment_info *from = (const struct larder_segment_info *)item->data + i;

	info->sequence = le64_to_cpu(from->sequence);
	info->state = from->state;
	info->stream = from->stream;
	info->flags = from->flags;
	info->mirror = le32_to_cpu(from->mirror);
}
