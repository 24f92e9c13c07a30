// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Is this superblock, or table, to be believed?  Each doubt is named by its field.
 *
 * Order: magic, checksum, version, features; only if those hold, the fields.  (Fields of a block whose checksum is wrong say
 * nothing; but a version or a feature that we do not know explains why the rest looks odd.)  No field is used in arithmetic
 * before its bounds are known.
 */
#include <endian.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "checksum.h"
#include "superblock.h"

_Static_assert(sizeof(struct larder_sb_head) == 128, "head");
_Static_assert(sizeof(struct larder_cache_sb) == LARDER_SB_SIZE, "cache superblock");
_Static_assert(sizeof(struct larder_volume_sb) == LARDER_SB_SIZE, "volume superblock");
_Static_assert(sizeof(struct larder_table) == LARDER_TABLE_SIZE, "table");
_Static_assert(sizeof(struct larder_table_volume) == 112 && sizeof(struct larder_table_device) == 64, "entries");

#define MAX_BYTES ((1ull << 63) - 1) /* of a device: what an off_t can tell */

static const uint8_t larder_magic[16] = LARDER_MAGIC;

bool superblock_has_magic(const union superblock *sb)
{
	return !memcmp(sb->head.magic, larder_magic, sizeof(larder_magic));
}

bool superblock_is_whole(const union superblock *sb)
{
	return superblock_has_magic(sb) &&
	       le32toh(sb->head.crc) == block_crc(sb, LARDER_SB_SIZE, offsetof(struct larder_sb_head, crc));
}

bool superblock_read_only(const union superblock *sb)
{
	return le64toh(sb->head.ro_compat) & ~LARDER_RO_COMPAT_ALL;
}

void superblock_set_crc(union superblock *sb)
{
	memcpy(sb->head.magic, larder_magic, sizeof(larder_magic));
	sb->head.crc = htole32(block_crc(sb, LARDER_SB_SIZE, offsetof(struct larder_sb_head, crc)));
}

/* Bytes of the device when it was made, which the other fields are judged by; 0 if the field cannot be right. */
static uint64_t made_bytes(const struct larder_sb_head *head)
{
	uint64_t sectors = le64toh(head->device_sectors);

	return sectors > MAX_BYTES >> LARDER_SECTOR_SHIFT ? 0 : sectors << LARDER_SECTOR_SHIFT;
}

/* False: no other field is worth a look. */
static bool verify_identity(const struct larder_sb_head *head, struct problems *p)
{
	uint32_t crc = block_crc(head, LARDER_SB_SIZE, offsetof(struct larder_sb_head, crc));
	unsigned long long unknown = le64toh(head->incompat) & ~LARDER_INCOMPAT_OF(le32toh(head->kind));
	size_t before = p->number;

	if (memcmp(head->magic, larder_magic, sizeof(larder_magic))) {
		problem(p, "magic", "not a larder superblock");
		return false;
	}
	if (le32toh(head->crc) != crc)
		problem(p, "crc", "is 0x%08x, the contents have 0x%08x: damaged", le32toh(head->crc), crc);
	if (le32toh(head->version) != LARDER_VERSION)
		problem(p, "version", "is %u, this larder knows %u: use a newer larder", le32toh(head->version), LARDER_VERSION);
	if (unknown)
		problem(p, "incompat", "unknown features 0x%llx: use a newer larder", unknown);
	return p->number == before;
}

static void verify_head(const struct larder_sb_head *head, uint64_t offset, uint64_t device_bytes, struct problems *p)
{
	uint64_t copy = le64toh(head->copy_offset), sectors = le64toh(head->device_sectors), end = made_bytes(head);

	if (uuid_is_zero(head->uuid))
		problem(p, "uuid", "is zero");
	if (!head->generation)
		problem(p, "generation", "is 0");
	if (sectors > device_bytes >> LARDER_SECTOR_SHIFT)
		problem(p, "device_sectors", "is %" PRIu64 ", the device has only %" PRIu64 ": it is truncated, or not the one",
			sectors, device_bytes >> LARDER_SECTOR_SHIFT);
	if (sectors < (LARDER_SB_OFFSET + LARDER_SB_SIZE) >> LARDER_SECTOR_SHIFT || sectors > MAX_BYTES >> LARDER_SECTOR_SHIFT)
		problem(p, "device_sectors", "is %" PRIu64 ", which no device has", sectors);
	if (copy &&
	    (copy % LARDER_SB_SIZE || copy < LARDER_SB_OFFSET + LARDER_SB_SIZE || copy > end || end - copy < LARDER_SB_SIZE))
		problem(p, "copy_offset", "is %" PRIu64 ", not a multiple of 4096 within [8192, %" PRIu64 "]", copy,
			end < LARDER_SB_SIZE ? 0 : end - LARDER_SB_SIZE);
	if (offset != LARDER_SB_OFFSET && copy != offset)
		problem(p, "copy_offset", "is %" PRIu64 ", but this copy lies at %" PRIu64, copy, offset);
}

static void verify_label(const uint8_t *label, struct problems *p)
{
	char text[LARDER_LABEL_SIZE + 1] = "";

	memcpy(text, label, LARDER_LABEL_SIZE);
	if (text[0] && !label_valid(text))
		problem(p, "label", "is not UTF-8 without control characters");
}

static bool segment_in(const struct larder_cache_sb *sb, uint32_t segment)
{
	uint32_t first = le32toh(sb->first_segment);

	/* those of the set's other SSDs are beyond what this superblock can tell */
	if (le32toh(sb->nr_devices) > 1)
		return segment != LARDER_NO_SEGMENT;
	return segment >= first && segment - first < le32toh(sb->nr_segments);
}

static void verify_geometry(const struct larder_cache_sb *sb, struct problems *p)
{
	uint32_t size = le32toh(sb->segment_size), number = le32toh(sb->nr_segments), first = le32toh(sb->first_segment);
	uint64_t offset = le64toh(sb->segments_offset), copy = le64toh(sb->head.copy_offset);
	uint64_t bytes = made_bytes(&sb->head), end = copy && copy < bytes ? copy : bytes;

	if (size < LARDER_MIN_SEGMENT_SIZE || size > LARDER_MAX_SEGMENT_SIZE || (size & (size - 1))) {
		problem(p, "segment_size", "is %u, not a power of two within [%u, %u]", size, LARDER_MIN_SEGMENT_SIZE,
			LARDER_MAX_SEGMENT_SIZE);
		return;
	}
	if (offset % LARDER_SLOT_SIZE || offset < LARDER_SEGMENTS_OFFSET || offset > end)
		problem(p, "segments_offset", "is %" PRIu64 ", not a multiple of 4096 within [%u, %" PRIu64 "]", offset,
			LARDER_SEGMENTS_OFFSET, end);
	else if (number > (end - offset) / size)
		problem(p, "nr_segments", "is %u, the device has room for %" PRIu64, number, (end - offset) / size);
	if (le64toh(sb->all_generation) > le64toh(sb->head.generation))
		problem(p, "all_generation", "is %" PRIu64 ", newer than the superblock (%" PRIu64 ")", le64toh(sb->all_generation),
			le64toh(sb->head.generation));
	if (le32toh(sb->role) > LARDER_ROLE_READ)
		problem(p, "role", "is %u, not within [0, %u]", le32toh(sb->role), LARDER_ROLE_READ);
	if (!number || (le32toh(sb->nr_devices) == 1 && number < LARDER_MIN_SEGMENTS))
		problem(p, "nr_segments", "is %u, a cache has at least %u", number, LARDER_MIN_SEGMENTS);
	if (((uint64_t)first + number) * (size >> LARDER_SECTOR_SHIFT) > 1ull << LARDER_CACHE_SECTOR_BITS)
		problem(p, "first_segment", "%u and %u segments behind it exceed %d bits of sectors", first, number,
			LARDER_CACHE_SECTOR_BITS);
}

static bool checkpoint_named(const struct larder_checkpoint_ptr *c)
{
	return le32toh(c->first_segment) != LARDER_NO_SEGMENT && c->sequence;
}

static bool epoch_known(const struct larder_cache_sb *sb, uint32_t epoch)
{
	for (unsigned i = 0; epoch && i < LARDER_NR_EPOCHS; i++)
		if (le32toh(sb->epochs[i].epoch) == epoch)
			return true;
	return false;
}

static void verify_checkpoints(const struct larder_cache_sb *sb, struct problems *p)
{
	for (unsigned i = 0; i < LARDER_NR_CHECKPOINTS; i++) {
		const struct larder_checkpoint_ptr *c = &sb->checkpoint[i], *newest = &sb->checkpoint[0];

		if (!checkpoint_named(c))
			continue;
		if (!segment_in(sb, le32toh(c->first_segment)))
			problem(p, "checkpoint", "[%u] first_segment is %u, not one of this cache's", i, le32toh(c->first_segment));
		if (!c->bytes || le64toh(c->bytes) % LARDER_CHUNK_SIZE ||
		    le64toh(c->bytes) > 1ull << (LARDER_CACHE_SECTOR_BITS + LARDER_SECTOR_SHIFT))
			problem(p, "checkpoint", "[%u] bytes is %" PRIu64 ", not a multiple of %u that a cache has room for", i,
				le64toh(c->bytes), LARDER_CHUNK_SIZE);
		if (!epoch_known(sb, le32toh(c->epoch)))
			problem(p, "checkpoint", "[%u] epoch is %u, not one of epochs[]", i, le32toh(c->epoch));
		if (i && (!checkpoint_named(newest) || le64toh(c->sequence) >= le64toh(newest->sequence)))
			problem(p, "checkpoint", "[%u] sequence is %" PRIu64 ", not older than that of [0]", i,
				le64toh(c->sequence));
	}
}

static void verify_epochs(const struct larder_cache_sb *sb, struct problems *p)
{
	uint64_t newer_first = 0;
	uint32_t newer = 0;

	if (le32toh(sb->epochs[0].epoch) != le32toh(sb->epoch))
		problem(p, "epoch", "is %u, but the newest in epochs[] is %u", le32toh(sb->epoch), le32toh(sb->epochs[0].epoch));
	if (sb->epoch && !segment_in(sb, le32toh(sb->epochs[0].segment)))
		problem(p, "epochs", "[0] segment is %u, not one of this cache's", le32toh(sb->epochs[0].segment));
	for (unsigned i = 0; i < LARDER_NR_EPOCHS; i++) {
		uint32_t epoch = le32toh(sb->epochs[i].epoch);
		uint64_t first = le64toh(sb->epochs[i].first_sequence);

		if (epoch && i && epoch >= newer)
			problem(p, "epochs", "[%u] is %u, not older than the one before it (%u)", i, epoch, newer);
		if (epoch && (!first || (i && first > newer_first)))
			problem(p, "epochs", "[%u] first_sequence is %" PRIu64 ", 0 or later than the one before it", i, first);
		newer = epoch;
		newer_first = first;
	}
}

static void verify_cache(const struct larder_cache_sb *sb, struct problems *p)
{
	uint32_t devices = le32toh(sb->nr_devices);

	if (uuid_is_zero(sb->cache_uuid))
		problem(p, "cache_uuid", "is zero");
	verify_label(sb->label, p);
	if (!devices || devices > LARDER_MAX_DEVICES)
		problem(p, "nr_devices", "is %u, not within [1, %u]", devices, LARDER_MAX_DEVICES);
	if (le32toh(sb->device_number) >= LARDER_MAX_DEVICES)
		problem(p, "device_number", "is %u, not below %u", le32toh(sb->device_number), LARDER_MAX_DEVICES);
	verify_geometry(sb, p);
	verify_epochs(sb, p);
	verify_checkpoints(sb, p);
}

static void verify_volume(const struct larder_volume_sb *sb, struct problems *p)
{
	uint64_t offset = le64toh(sb->data_offset), tail = le64toh(sb->tail_reserve), sectors = le64toh(sb->sectors);
	uint64_t copy = le64toh(sb->head.copy_offset), bytes = made_bytes(&sb->head), room;

	verify_label(sb->label, p);
	if (le32toh(sb->mode) > LARDER_WRITEAROUND)
		problem(p, "mode", "is %u, not one of 0 (writeback), 1 (writethrough), 2 (writearound)", le32toh(sb->mode));
	if (offset < LARDER_MIN_DATA_OFFSET || offset % LARDER_SLOT_SIZE || offset >= bytes) {
		problem(p, "data_offset", "is %" PRIu64 ", not a multiple of 4096 within [%u, %" PRIu64 ")", offset,
			LARDER_MIN_DATA_OFFSET, bytes);
		return;
	}
	if (copy && copy > offset - LARDER_SB_SIZE)
		problem(p, "copy_offset", "is %" PRIu64 ": inside the volume's data, which begins at %" PRIu64, copy, offset);
	room = bytes - offset;
	if (tail >= room || tail % (1u << LARDER_SECTOR_SHIFT)) {
		problem(p, "tail_reserve", "is %" PRIu64 ", not whole sectors of the %" PRIu64 " bytes behind data_offset", tail,
			room);
		return;
	}
	if (!sectors || sectors > (room - tail) >> LARDER_SECTOR_SHIFT)
		problem(p, "sectors", "is %" PRIu64 ", the device has room for %" PRIu64, sectors,
			(room - tail) >> LARDER_SECTOR_SHIFT);
	if (le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY && uuid_is_zero(sb->cache_uuid))
		problem(p, "flags", "may_be_dirty is set, but cache_uuid names no cache");
}

void superblock_verify(const union superblock *sb, uint64_t offset, uint64_t device_bytes, struct problems *p)
{
	if (!verify_identity(&sb->head, p))
		return;
	verify_head(&sb->head, offset, device_bytes, p);
	switch (le32toh(sb->head.kind)) {
	case LARDER_KIND_CACHE:
		verify_cache(&sb->cache, p);
		break;
	case LARDER_KIND_VOLUME:
		verify_volume(&sb->volume, p);
		break;
	case LARDER_KIND_SPARE:
	case LARDER_KIND_OTHER:
		break;
	default:
		problem(p, "kind", "is %u, this larder knows 1 to 4: use a newer larder", le32toh(sb->head.kind));
	}
}

static void verify_volumes(const struct larder_table *table, struct problems *p)
{
	uint32_t number = le32toh(table->head.nr_volumes);

	for (uint32_t i = 0; i < number; i++) {
		const struct larder_table_volume *v = &table->volumes[i];
		uint32_t state = le32toh(v->state);

		if (state > LARDER_VOLUME_FORGETTING)
			problem(p, "volumes", "[%u] state is %u", i, state);
		if (state == LARDER_VOLUME_NONE)
			continue;
		if (!v->sectors || le64toh(v->sectors) > LARDER_MAX_VOLUME_SECTORS)
			problem(p, "volumes", "[%u] sectors is %" PRIu64 ", not within [1, %llu]", i, le64toh(v->sectors), LARDER_MAX_VOLUME_SECTORS);
		for (uint32_t j = 0; j < i; j++)
			if (le32toh(table->volumes[j].state) == LARDER_VOLUME_ATTACHED && state == LARDER_VOLUME_ATTACHED &&
			    !memcmp(v->uuid, table->volumes[j].uuid, 16))
				problem(p, "volumes", "[%u] has the uuid of [%u]", i, j);
	}
}

static uint64_t end_of(const struct larder_table_device *d)
{
	return (uint64_t)le32toh(d->first_segment) + le32toh(d->nr_segments);
}

/* One SSD of the set: its segments are in bounds, and no other one's. */
static void verify_place(const struct larder_table *table, uint32_t i, uint32_t segment_size, struct problems *p)
{
	const struct larder_table_device *d = &table->devices[i];

	if (le32toh(d->state) > LARDER_DEVICE_REMOVED || le32toh(d->role) > LARDER_ROLE_READ)
		problem(p, "table devices", "[%u] state %u, role %u", i, le32toh(d->state), le32toh(d->role));
	if (!d->nr_segments || end_of(d) * (segment_size >> LARDER_SECTOR_SHIFT) > 1ull << LARDER_CACHE_SECTOR_BITS)
		problem(p, "table devices", "[%u] has %u segments from %u on", i, le32toh(d->nr_segments), le32toh(d->first_segment));
	if (le64toh(d->segments_offset) % LARDER_SLOT_SIZE)
		problem(p, "table devices", "[%u] segments_offset is %" PRIu64 ", not a multiple of 4096", i, le64toh(d->segments_offset));
	for (uint32_t k = 0; k < i; k++)
		if (table->devices[k].state && le32toh(d->first_segment) < end_of(&table->devices[k]) &&
		    le32toh(table->devices[k].first_segment) < end_of(d))
			problem(p, "table devices", "[%u] has segments of [%u]", i, k);
}

static bool table_has_segment(const struct larder_table *table, uint32_t segment)
{
	for (uint32_t i = 0; i < LARDER_MAX_DEVICES; i++) {
		const struct larder_table_device *d = &table->devices[i];

		if (d->state && segment >= le32toh(d->first_segment) && segment < end_of(d))
			return true;
	}
	return false;
}

/* Every segment that the superblock names is one of the set's. */
static void verify_named(const struct larder_table *table, const struct larder_cache_sb *sb, struct problems *p)
{
	if (sb->epoch && !table_has_segment(table, le32toh(sb->epochs[0].segment)))
		problem(p, "table devices", "none has segment %u, of epochs[0]", le32toh(sb->epochs[0].segment));
	for (unsigned i = 0; i < LARDER_NR_CHECKPOINTS; i++)
		if (checkpoint_named(&sb->checkpoint[i]) && !table_has_segment(table, le32toh(sb->checkpoint[i].first_segment)))
			problem(p, "table devices", "none has segment %u, of checkpoint[%u]", le32toh(sb->checkpoint[i].first_segment), i);
}

/* Does its entry of this SSD say what the superblock says (or fewer segments: it has grown since)?  Are there as many SSDs as the head says? */
static void verify_devices(const struct larder_table *table, const struct larder_cache_sb *sb, struct problems *p)
{
	const struct larder_table_device *own = &table->devices[le32toh(sb->device_number) % LARDER_MAX_DEVICES];
	uint32_t used = 0;

	for (uint32_t i = 0; i < LARDER_MAX_DEVICES; i++) {
		if (!table->devices[i].state)
			continue;
		verify_place(table, i, le32toh(sb->segment_size), p);
		used++;
	}
	if (used != le32toh(table->head.nr_devices))
		problem(p, "table nr_devices", "is %u, but %u are listed", le32toh(table->head.nr_devices), used);
	if (!own->state || memcmp(own->uuid, sb->head.uuid, 16))
		problem(p, "table devices", "[%u] is another SSD", le32toh(sb->device_number));
	else if (own->first_segment != sb->first_segment || le32toh(own->nr_segments) > le32toh(sb->nr_segments) ||
		 own->segments_offset != sb->segments_offset)
		problem(p, "table devices", "[%u] has other segments than the superblock", le32toh(sb->device_number));
	verify_named(table, sb, p);
}

void table_verify(const struct larder_table *table, const struct larder_cache_sb *sb, struct problems *p)
{
	const struct larder_table_head *head = &table->head;
	uint32_t crc = block_crc(table, LARDER_TABLE_SIZE, offsetof(struct larder_table_head, crc));
	uint32_t devices = le32toh(head->nr_devices);

	if (le32toh(head->magic) != LARDER_TABLE_MAGIC) {
		problem(p, "table magic", "is 0x%08x, should be 0x%08x", le32toh(head->magic), LARDER_TABLE_MAGIC);
		return;
	}
	if (le32toh(head->crc) != crc) {
		problem(p, "table crc", "is 0x%08x, the contents have 0x%08x: damaged", le32toh(head->crc), crc);
		return;
	}
	if (memcmp(head->cache_uuid, sb->cache_uuid, 16))
		problem(p, "table cache_uuid", "is of another cache");
	if (le64toh(head->generation) < le64toh(sb->table_generation))
		problem(p, "table generation", "is %" PRIu64 ", older than the superblock's %" PRIu64, le64toh(head->generation),
			le64toh(sb->table_generation));
	if (le64toh(head->shape_generation) > le64toh(head->generation))
		problem(p, "table shape_generation", "is %" PRIu64 ", newer than the table (%" PRIu64 ")", le64toh(head->shape_generation),
			le64toh(head->generation));
	if (!devices || devices > LARDER_MAX_DEVICES)
		problem(p, "table nr_devices", "is %u, not within [1, %u]", devices, LARDER_MAX_DEVICES);
	if (le32toh(head->nr_volumes) > LARDER_MAX_VOLUMES)
		problem(p, "table nr_volumes", "is %u, not within [0, %u]", le32toh(head->nr_volumes), LARDER_MAX_VOLUMES);
	else
		verify_volumes(table, p);
	verify_devices(table, sb, p);
}

void table_set_crc(struct larder_table *table)
{
	table->head.magic = htole32(LARDER_TABLE_MAGIC);
	table->head.crc = htole32(block_crc(table, LARDER_TABLE_SIZE, offsetof(struct larder_table_head, crc)));
}
