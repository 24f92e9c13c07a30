/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Superblocks and tables of members: read both copies, judge each, choose, write both.
 *
 * Nothing read is believed before superblock_verify() has found no problem in it.  A superblock is never written while the kernel
 * runs its device: the caller holds the device by DEVICE_CLAIM.
 */
#ifndef LARDER_SUPERBLOCK_H
#define LARDER_SUPERBLOCK_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>

#include "../kernel/larder_format.h"
#include "device.h"
#include "problems.h"

#define UUID_TEXT 37
#define SUPERBLOCK_OTHER_OFFSET (1u << 20) /* bytes: where what another layer owns begins, of a member of LARDER_KIND_OTHER */

union superblock {
	struct larder_sb_head head;
	struct larder_cache_sb cache;
	struct larder_volume_sb volume;
	uint8_t bytes[LARDER_SB_SIZE];
};

/* One place where a superblock was looked for. */
struct superblock_copy {
	uint64_t offset; /* bytes */
	int error; /* -errno: it could not be read */
	bool magic; /* it says that it is one; only then the rest counts */
	struct problems problems; /* none: valid */
	union superblock *sb; /* from device_buffer() */
};

/* What a device carries.  chosen: the valid copy with the higher generation, or NULL. */
struct superblocks {
	struct superblock_copy main, copy; /* copy.offset 0: none was found or named */
	const struct superblock_copy *chosen;
};

/*
 * Reads the main one, and the copy from where the main one says, or (main invalid) from where copies usually are.  search:
 * everywhere in the first 16 MiB too.  Says nothing; I/O errors are in the copies.  superblocks_free() after it, always.
 */
void superblocks_read(const struct device *device, struct superblocks *found, bool search);
void superblocks_free(struct superblocks *found);

/*
 * What a member takes of its device, bytes.  [begin, data_end): what its users have written, or what a cache holds of that; [data_end, end): what is
 * reserved behind it.  Of a spare, which has no data: what is left of the log that it may have had, as far as nothing was wiped of that.
 */
struct contents {
	uint64_t begin, data_end, end;
};
/* sb is valid. */
void superblock_contents(const union superblock *sb, struct contents *contents);
/* Is there anything that says it is ours, valid or not? */
bool superblocks_any(const struct superblocks *found);
/*
 * Is something else where the main one was?  Zeroes, beside sectors that the copy has too, are what a power cut leaves of an erase, or of a
 * format, of larder.
 */
bool superblocks_overwritten(const struct superblocks *found);
/* Does a valid one stand there, and nothing else in the place of the main one?  Then what lies behind it is larder's, too. */
bool superblocks_stand(const struct superblocks *found);
/* The chosen one, or a complaint that names each problem. */
int superblocks_choose(const struct device *device, const struct superblocks *found, const union superblock **sb);
/* Of the two, whatever its state, the one to show and to judge an overwrite by. */
const union superblock *superblocks_best(const struct superblocks *found);

/* Adds what is wrong with a superblock read at offset of a device of so many bytes. */
void superblock_verify(const union superblock *sb, uint64_t offset, uint64_t device_bytes, struct problems *problems);
bool superblock_has_magic(const union superblock *sb);
bool superblock_is_whole(const union superblock *sb); /* magic and checksum */
/* It has features that only a newer larder may write. */
bool superblock_read_only(const union superblock *sb);
void superblock_set_crc(union superblock *sb);

/* Are both copies, if there are to be two, whole and the same?  If not, a write was cut off, and the older one must not stay. */
bool superblocks_equal(const struct superblocks *found);
/*
 * Writes one copy, flush, the other, flush.  found: what is there, and read; the one that counts of it goes last.  NULL: nothing that counts.
 * generation is not touched, the checksum is set.  Returns 0 or -errno, says nothing.
 */
int superblock_write(const struct device *device, union superblock *sb, const struct superblocks *found);
/*
 * Of a device that is claimed: change() gets a copy of the superblock that counts, with the next generation; *write, which is true, says whether
 * that is written.  Complains, also of one that only a newer larder may write.
 */
int superblock_change(const struct device *device, int (*change)(union superblock *sb, bool *write, void *data), void *data);
/*
 * Raises the incarnation by a random number: of this copy of a volume, where another one may take the same steps from here (its other half, an image
 * of it), so that no cache takes one for the other.  Complains.
 */
int superblock_part_ways(union superblock *sb);
/*
 * To that of a volume that has no cache any more: not dirty, and whatever a cache holds of it, or of another copy of it that leaves its cache too, is
 * stale from then on: superblock_part_ways().  Whichever copy counts after a power cut is right.  The generation is the caller's.  Complains: nothing
 * of it may be written then.
 */
int superblock_leave_cache(union superblock *sb);
/* Overwrites with zeroes what superblocks_read() found, and the tables of a cache, no more if only a copy is left; flushed.  Returns 0 or -errno. */
int superblocks_erase(const struct device *device, const struct superblocks *found);

/* ---- table of devices and volumes of a cache */

struct cache_tables {
	struct larder_table *table[2]; /* A, B */
	struct problems problems[2];
	const struct larder_table *chosen; /* valid, higher generation; or NULL */
};
/* What the table has of a volume that is attached; NULL: nothing.  *number: which one it is; number NULL: not asked. */
const struct larder_table_volume *table_volume(const struct larder_table *table, const uint8_t uuid[16], unsigned *number);
/* Is the backing with this superblock the volume of that entry as it was, before a generation that the cache has seen (docs/on-disk-format.md 4)? */
bool volume_is_older(const struct larder_table_volume *v, const struct larder_volume_sb *sb);
/* The other way round: is the cache with that entry of a time before what the backing knows that it had seen? */
bool cache_is_older(const struct larder_table_volume *v, const struct larder_volume_sb *sb);
void tables_read(const struct device *device, const struct larder_cache_sb *sb, struct cache_tables *tables);
void tables_free(struct cache_tables *tables);
/* Adds what is wrong with a table of the cache that sb is of. */
void table_verify(const struct larder_table *table, const struct larder_cache_sb *sb, struct problems *problems);
void table_set_crc(struct larder_table *table);
/*
 * Of a set of SSDs: its generation in this table; which of two tables is newer; is this generation that of the table, or one before
 * it?  Who is a member and who is stale hangs on these (docs/on-disk-format.md).
 */
static inline uint64_t table_set_generation(const struct larder_table *table)
{
	return le64toh(table->head.set_generation);
}

static inline bool table_is_newer(const struct larder_table *a, const struct larder_table *b)
{
	if (table_set_generation(a) >> 32 != table_set_generation(b) >> 32)
		return table_set_generation(a) >> 32 > table_set_generation(b) >> 32;
	return le64toh(a->head.generation) > le64toh(b->head.generation);
}

static inline bool table_knows(const struct larder_table *table, uint64_t generation)
{
	if (generation == table_set_generation(table))
		return true;
	for (unsigned i = 0; generation && i < LARDER_NR_ANCESTORS; i++)
		if (le64toh(table->ancestors[i]) == generation)
			return true;
	return false;
}

/* Writes both copies and flushes; sets magic and checksum. */
int tables_write(const struct device *device, struct larder_table *table);

/* ---- fields as text */

const char *uuid_text(const uint8_t uuid[16], char text[static UUID_TEXT]); /* "-" when zero */
bool uuid_is_zero(const uint8_t uuid[16]);
/* What is stored as a label, control characters replaced. */
const char *label_text(const uint8_t label[LARDER_LABEL_SIZE], char text[static LARDER_LABEL_SIZE + 1]);
/* Of any text: what is no printable UTF-8 becomes '?'. */
void text_clean(char *text);
/* May it be stored?  1 to 64 bytes of UTF-8 without control characters. */
bool label_valid(const char *label);
/* May a device-mapper device be called so?  1 to 64 of [A-Za-z0-9#+.:=@_-], not beginning with - or a dot. */
bool name_valid(const char *name);
const char *mode_text(uint32_t mode);
bool mode_parse(const char *text, uint32_t *mode);
const char *role_text(uint32_t role);
bool role_parse(const char *text, uint32_t *role);
const char *kind_text(uint32_t kind);

#endif
