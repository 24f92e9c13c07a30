/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What larder keeps of a member outside of its log, in a file: superblock, its copy, and of an SSD both tables.
 *
 * The file: BACKUP_HEAD bytes of text, filled up with newlines, then the areas as they lay on the device, in this order.  Of the lines, all of
 * them needed and in this order, each is "key: value":
 *
 *	larder metadata backup		the first line
 *	version: 1
 *	crc: 89abcdef			crc32c of all of the file (initial value ~0, not inverted), with these eight digits as zeroes
 *	kind: cache | volume
 *	uuid:				of the member
 *	cache_uuid:			of the cache; - : none
 *	label:
 *	device:				path, when it was made
 *	size:				of the device, bytes
 *	made:				seconds since 1970, and the same as text
 *	by:				release of larder
 *	why:				"super backup", or the verb of which this was the state before, or after
 *	area: NAME OFFSET BYTES		superblock; copy, if there is one; of a cache table_a, table_b
 */
#ifndef LARDER_BACKUP_H
#define LARDER_BACKUP_H

#include "superblock.h"

#define BACKUP_HEAD    4096u
#define BACKUP_VERSION 1u
#define BACKUP_MAX     (BACKUP_HEAD + 2 * LARDER_SB_SIZE + 2 * LARDER_TABLE_SIZE) /* bytes of a file */
#define BACKUP_TEXT    256

/* All pointers are into the file. */
struct backup {
	const union superblock *sb;	/* the one that counted; valid */
	const struct larder_table *table; /* of a cache: likewise, and fits sb; NULL: neither was valid */
	uint64_t device_bytes, made;
	char device[BACKUP_TEXT], by[BACKUP_TEXT], why[BACKUP_TEXT];
};

/*
 * The file as bytes, from device_buffer().  found: of the device, with a chosen one.  *bytes: its length.  Says nothing; what cannot be read, and
 * what is not valid, which may be somebody else's, is zeroes.
 */
uint8_t *backup_encode(const struct device *device, const struct superblocks *found, const char *why, size_t *bytes);
/* file: from device_buffer(), and it stays while the backup is used.  NULL, or what is wrong, naming the field, to be freed by the caller. */
char *backup_decode(const uint8_t *file, size_t bytes, struct backup *backup);
/*
 * Two backups with the same number have the same to restore, on a device of as many bytes: the table of a cache but for what it has seen of volumes,
 * and what of a superblock names it and its stacks; the superblock of a volume.  What a start or a checkpoint changes does not count.
 */
uint32_t backup_content(uint64_t device_bytes, const union superblock *sb, const struct larder_table *table);

#endif
