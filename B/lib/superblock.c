// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Superblocks and tables: reading, choosing, writing.
 *
 * Invariants: at most one of the two copies is being overwritten at any time, with a flush between them, so that a power cut
 * leaves one valid; where an earlier write was cut off between them, the one that counts goes last: should it be lost in the
 * middle of a write, the other one must not bring back what it says (a cache that the volume had left); an erase goes the other way
 * round (main first), so that what is half erased is not taken for something whole; a table is written and flushed before a
 * superblock that tells of it.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "message.h"
#include "superblock.h"

#define SEARCH_BYTES (16u << 20) /* a lost copy is looked for in so much of the device's head */
#define SEARCH_CHUNK (1u << 20)
#define SPARE_LOG_END ((4u << 20) + LARDER_SB_SIZE) /* bytes: up to here libblkid looks for headers of LUKS2 */

static void read_copy(const struct device *device, uint64_t offset, struct superblock_copy *copy)
{
	problems_free(&copy->problems);
	if (!copy->sb)
		copy->sb = device_buffer(LARDER_SB_SIZE);
	copy->offset = offset;
	copy->error = device_read(device, offset, copy->sb, LARDER_SB_SIZE);
	copy->magic = !copy->error && superblock_has_magic(copy->sb);
	if (copy->error)
		problem(&copy->problems, "read", "%s", strerror(-copy->error));
	else
		superblock_verify(copy->sb, offset, device->bytes, &copy->problems);
}

static bool is_copy_here(const struct device *device, uint64_t offset, struct superblock_copy *copy)
{
	read_copy(device, offset, copy);
	return copy->magic && le64toh(copy->sb->head.copy_offset) == offset;
}

static bool search_head(const struct device *device, struct superblock_copy *copy)
{
	uint8_t *chunk = device_buffer(SEARCH_CHUNK);
	bool found = false;

	for (uint64_t at = 0; !found && at < SEARCH_BYTES && at + SEARCH_CHUNK <= device->bytes; at += SEARCH_CHUNK) {
		if (device_read(device, at, chunk, SEARCH_CHUNK))
			continue;
		for (uint64_t i = 0; !found && i < SEARCH_CHUNK; i += LARDER_SB_SIZE)
			found = at + i > LARDER_SB_OFFSET && superblock_has_magic((const union superblock *)(chunk + i)) &&
				is_copy_here(device, at + i, copy);
	}
	free(chunk);
	return found;
}

/* The main one is of no help: the places where `create` puts copies, in this version and by default. */
static bool find_copy(const struct device *device, const struct superblock_copy *main, struct superblock_copy *copy, bool search)
{
	uint64_t tail = device->bytes & ~(uint64_t)(LARDER_SB_SIZE - 1),
		 named = main->magic ? le64toh(main->sb->head.copy_offset) : 0;

	/* whatever else is wrong with it: a copy counts only if it says itself that it is there */
	if (named % LARDER_SB_SIZE == 0 && named >= LARDER_SB_OFFSET + LARDER_SB_SIZE && is_copy_here(device, named, copy))
		return true;
	if (device->bytes >= LARDER_DEF_DATA_OFFSET && is_copy_here(device, LARDER_DEF_DATA_OFFSET - LARDER_SB_SIZE, copy))
		return true;
	if (tail >= LARDER_SB_OFFSET + 2 * LARDER_SB_SIZE && is_copy_here(device, tail - LARDER_SB_SIZE, copy))
		return true;
	return search && search_head(device, copy);
}

void superblocks_read(const struct device *device, struct superblocks *found, bool search)
{
	bool main_valid, main_final, copy_valid;
	uint64_t offset;

	*found = (struct superblocks){ 0 };
	read_copy(device, LARDER_SB_OFFSET, &found->main);
	main_valid = !found->main.problems.number;
	offset = main_valid ? le64toh(found->main.sb->head.copy_offset) : 0;
	if (main_valid && offset)
		read_copy(device, offset, &found->copy);
	else if (main_valid || !find_copy(device, &found->main, &found->copy, search))
		found->copy.offset = 0;
	copy_valid = found->copy.offset && !found->copy.problems.number;
	/* a copy of something else than the main one is none of it: what was formatted before, say */
	if (main_valid && copy_valid && memcmp(found->main.sb->head.uuid, found->copy.sb->head.uuid, 16)) {
		problem(&found->copy.problems, "uuid", "is not that of the main superblock");
		copy_valid = false;
	}
	/* whole, but of another version, or unfit for this device: not to be undone by an older copy */
	main_final = !main_valid && found->main.magic && superblock_is_whole(found->main.sb);
	if (main_valid && copy_valid)
		found->chosen = le64toh(found->copy.sb->head.generation) > le64toh(found->main.sb->head.generation) ? &found->copy :
														      &found->main;
	else
		found->chosen = main_valid ? &found->main : copy_valid && !main_final ? &found->copy : NULL;
}

void superblocks_free(struct superblocks *found)
{
	problems_free(&found->main.problems);
	problems_free(&found->copy.problems);
	free(found->main.sb);
	free(found->copy.sb);
	*found = (struct superblocks){ 0 };
}

bool superblocks_any(const struct superblocks *found)
{
	return found->main.magic || (found->copy.offset && found->copy.magic);
}

/* A disk with sectors of 512 bytes may have written some of them, and not the others. */
bool superblocks_overwritten(const struct superblocks *found)
{
	static const char zero[1 << LARDER_SECTOR_SHIFT];
	const char *main = (const char *)found->main.sb, *copy = found->copy.offset ? (const char *)found->copy.sb : NULL;

	if (found->main.error || found->main.magic)
		return false;
	for (size_t at = 0; at < LARDER_SB_SIZE; at += sizeof(zero))
		if (memcmp(main + at, zero, sizeof(zero)) && (!copy || memcmp(main + at, copy + at, sizeof(zero))))
			return true;
	return false;
}

bool superblocks_stand(const struct superblocks *found)
{
	return found->chosen && !superblocks_overwritten(found);
}

void superblock_contents(const union superblock *sb, struct contents *contents)
{
	uint64_t end = le64toh(sb->head.device_sectors) << LARDER_SECTOR_SHIFT;

	switch (le32toh(sb->head.kind)) {
	case LARDER_KIND_VOLUME:
		*contents = (struct contents){ .begin = le64toh(sb->volume.data_offset), .end = end };
		contents->data_end = contents->begin + (le64toh(sb->volume.sectors) << LARDER_SECTOR_SHIFT);
		return;
	case LARDER_KIND_CACHE:
		*contents = (struct contents){ .begin = le64toh(sb->cache.segments_offset), .data_end = end, .end = end };
		return;
	case LARDER_KIND_OTHER:
		*contents = (struct contents){ .begin = SUPERBLOCK_OTHER_OFFSET, .data_end = end, .end = end };
		return;
	case LARDER_KIND_SPARE:
		*contents = (struct contents){ .begin = LARDER_SEGMENTS_OFFSET, .data_end = SPARE_LOG_END, .end = SPARE_LOG_END };
		return;
	default:
		*contents = (struct contents){ 0 };
	}
}

const union superblock *superblocks_best(const struct superblocks *found)
{
	if (found->chosen)
		return found->chosen->sb;
	if (found->main.magic)
		return found->main.sb;
	return found->copy.offset && found->copy.magic ? found->copy.sb : NULL;
}

int superblocks_choose(const struct device *device, const struct superblocks *found, const union superblock **sb)
{
	const struct superblock_copy *bad = found->main.magic || !found->copy.offset ? &found->main : &found->copy;
	char *line;

	if (found->chosen) {
		*sb = found->chosen->sb;
		return LARDER_DONE;
	}
	if (!found->main.error && !superblocks_any(found))
		return complain(LARDER_NOT_FOUND, "%s: magic: no larder superblock; larder probe %s says what is on it",
				device->path, device->path);
	line = problems_line(&bad->problems);
	complain(LARDER_FAILED, "%s: superblock at byte %llu: %s; larder super check %s says more", device->path,
		 (unsigned long long)bad->offset, line, device->path);
	free(line);
	return LARDER_FAILED;
}

bool superblocks_equal(const struct superblocks *found)
{
	const struct superblock_copy *main = &found->main, *copy = &found->copy;

	if (main->problems.number || (copy->offset && copy->problems.number))
		return false;
	return !copy->offset || !memcmp(main->sb, copy->sb, sizeof(*main->sb));
}

static int write_durably(const struct device *device, uint64_t offset, const union superblock *sb)
{
	int error = device_write(device, offset, sb, sizeof(*sb));

	return error ? error : device_sync(device);
}

int superblock_write(const struct device *device, union superblock *sb, const struct superblocks *found)
{
	uint64_t copy = le64toh(sb->head.copy_offset);
	bool copy_counts = copy && found && found->chosen == &found->copy;
	union superblock *buffer;
	int error = 0;

	superblock_set_crc(sb);
	buffer = device_buffer(LARDER_SB_SIZE);
	memcpy(buffer, sb, LARDER_SB_SIZE);
	if (copy)
		error = write_durably(device, copy_counts ? LARDER_SB_OFFSET : copy, buffer);
	if (!error)
		error = write_durably(device, copy_counts ? copy : LARDER_SB_OFFSET, buffer);
	free(buffer);
	return error;
}

int superblock_change(const struct device *device, int (*change)(union superblock *sb, bool *write, void *data), void *data)
{
	const union superblock *chosen;
	struct superblocks found;
	union superblock *sb;
	bool write = true;
	int error, result;

	superblocks_read(device, &found, false);
	result = superblocks_choose(device, &found, &chosen);
	if (!result && superblock_read_only(chosen))
		result = complain(LARDER_FAILED, "%s: ro_compat: has features that only a newer larder may write; use a newer larder", device->path);
	if (!result) {
		sb = device_buffer(LARDER_SB_SIZE);
		memcpy(sb, chosen, LARDER_SB_SIZE);
		sb->head.generation = htole64(le64toh(sb->head.generation) + 1);
		result = change(sb, &write, data);
		error = !result && write ? superblock_write(device, sb, &found) : 0;
		if (error)
			result = complain(LARDER_FAILED, "%s: cannot write the superblock: %s", device->path, strerror(-error));
		free(sb);
	}
	superblocks_free(&found);
	return result;
}

int superblock_part_ways(union superblock *sb)
{
	uint64_t by;

	if (getrandom(&by, sizeof(by), 0) != sizeof(by))
		return complain(LARDER_FAILED, "no random numbers: %s", strerror(errno));
	sb->volume.incarnation = htole64(le64toh(sb->volume.incarnation) + 1 + (by >> (64 - LARDER_INCARNATION_BITS)));
	return LARDER_DONE;
}

int superblock_leave_cache(union superblock *sb)
{
	memset(sb->volume.cache_uuid, 0, sizeof(sb->volume.cache_uuid));
	sb->head.flags &= ~htole32(LARDER_VOLUME_OF_CACHE);
	return superblock_part_ways(sb);
}

int superblocks_erase(const struct device *device, const struct superblocks *found)
{
	const union superblock *sb = superblocks_best(found);
	bool whole = !superblocks_overwritten(found);
	int error = whole ? device_zero(device, LARDER_SB_OFFSET, LARDER_SB_SIZE) : 0;

	error = error ? error : device_sync(device);
	if (!error && found->copy.offset && found->copy.magic)
		error = device_zero(device, found->copy.offset, LARDER_SB_SIZE);
	if (!error && whole && sb && le32toh(sb->head.kind) == LARDER_KIND_CACHE &&
	    device->bytes >= LARDER_TABLE_OFFSET_B + LARDER_TABLE_SIZE)
		error = device_zero(device, LARDER_TABLE_OFFSET_A, 2 * LARDER_TABLE_SIZE);
	return error ? error : device_sync(device);
}

const struct larder_table_volume *table_volume(const struct larder_table *table, const uint8_t uuid[16], unsigned *number)
{
	for (unsigned i = 0; i < le32toh(table->head.nr_volumes); i++) {
		const struct larder_table_volume *v = &table->volumes[i];

		if (le32toh(v->state) != LARDER_VOLUME_ATTACHED || memcmp(v->uuid, uuid, 16))
			continue;
		if (number)
			*number = i;
		return v;
	}
	return NULL;
}

bool volume_is_older(const struct larder_table_volume *v, const struct larder_volume_sb *sb)
{
	return v->incarnation == sb->incarnation && le64toh(sb->head.generation) < le64toh(v->seen);
}

bool cache_is_older(const struct larder_table_volume *v, const struct larder_volume_sb *sb)
{
	return v->incarnation == sb->incarnation && sb->noted_incarnation == sb->incarnation && v->seen && le64toh(v->seen) < le64toh(sb->noted);
}

void tables_read(const struct device *device, const struct larder_cache_sb *sb, struct cache_tables *tables)
{
	static const uint64_t offset[2] = { LARDER_TABLE_OFFSET_A, LARDER_TABLE_OFFSET_B };

	*tables = (struct cache_tables){ 0 };
	for (int i = 0; i < 2; i++) {
		int error;

		tables->table[i] = device_buffer(LARDER_TABLE_SIZE);
		error = device_read(device, offset[i], tables->table[i], LARDER_TABLE_SIZE);
		if (error)
			problem(&tables->problems[i], "table read", "%s", strerror(-error));
		else
			table_verify(tables->table[i], sb, &tables->problems[i]);
		if (!tables->problems[i].number &&
		    (!tables->chosen || le64toh(tables->table[i]->head.generation) > le64toh(tables->chosen->head.generation)))
			tables->chosen = tables->table[i];
	}
}

void tables_free(struct cache_tables *tables)
{
	for (int i = 0; i < 2; i++) {
		problems_free(&tables->problems[i]);
		free(tables->table[i]);
	}
	*tables = (struct cache_tables){ 0 };
}

int tables_write(const struct device *device, struct larder_table *table)
{
	struct larder_table *buffer = device_buffer(LARDER_TABLE_SIZE);
	int error;

	table_set_crc(table);
	memcpy(buffer, table, LARDER_TABLE_SIZE);
	error = device_write(device, LARDER_TABLE_OFFSET_A, buffer, LARDER_TABLE_SIZE);
	error = error ? error : device_sync(device);
	error = error ? error : device_write(device, LARDER_TABLE_OFFSET_B, buffer, LARDER_TABLE_SIZE);
	error = error ? error : device_sync(device);
	free(buffer);
	return error;
}
