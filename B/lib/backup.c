// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The file that `larder super backup` and the archive write.  Reading it is pure, and fuzzed (tests/fuzz/fuzz_backup.c): bounds and checksum of
 * the file first, then each area is judged as if it had been read from the device.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uuid/uuid.h>

#include "backup.h"
#include "crc32c.h"
#include "message.h"

#ifndef LARDER_RELEASE
#define LARDER_RELEASE "development"
#endif

#define OPENING	     "larder metadata backup\nversion: "
#define CRC_LINE     OPENING "1\ncrc: "
#define CRC_AT	     (sizeof(CRC_LINE) - 1)
#define CRC_DIGITS   8

enum area { AREA_SUPERBLOCK, AREA_COPY, AREA_TABLE_A, AREA_TABLE_B, NR_AREAS };

static const char *const area_name[NR_AREAS] = { "superblock", "copy", "table_a", "table_b" };
static const uint32_t area_bytes[NR_AREAS] = { LARDER_SB_SIZE, LARDER_SB_SIZE, LARDER_TABLE_SIZE, LARDER_TABLE_SIZE };

/* With the digits of the checksum as zeroes, so that one pass over an unchanged file suffices. */
static uint32_t file_crc(const uint8_t *file, size_t bytes)
{
	static const uint8_t zeroes[CRC_DIGITS] = "00000000";
	uint32_t crc = crc32c(~0u, file, CRC_AT);

	crc = crc32c(crc, zeroes, CRC_DIGITS);
	return crc32c(crc, file + CRC_AT + CRC_DIGITS, bytes - CRC_AT - CRC_DIGITS);
}

/* Without what a start, or the use of a disk, changes: an older table says the same of what the SSD has. */
static uint32_t table_content(uint32_t crc, const struct larder_table *table)
{
	struct larder_table *said = must_allocate(malloc(LARDER_TABLE_SIZE));

	memcpy(said, table, LARDER_TABLE_SIZE);
	if (!said->head.shape_generation)
		said->head.shape_generation = said->head.generation;
	said->head.generation = 0;
	said->head.crc = 0;
	for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++)
		said->volumes[i].seen = 0;
	crc = crc32c(crc, said, LARDER_TABLE_SIZE);
	free(said);
	return crc;
}

uint32_t backup_content(uint64_t device_bytes, const union superblock *sb, const struct larder_table *table)
{
	uint64_t bytes = htole64(device_bytes); /* a restore asks for as many */
	uint32_t crc = crc32c(~0u, &bytes, sizeof(bytes));

	if (le32toh(sb->head.kind) != LARDER_KIND_CACHE)
		return crc32c(crc, sb, LARDER_SB_SIZE);
	crc = crc32c(crc, sb->head.uuid, 16);
	crc = crc32c(crc, sb->cache.label, LARDER_LABEL_SIZE);
	crc = crc32c(crc, sb->cache.stack, LARDER_STACK_SIZE);
	return table ? table_content(crc, table) : crc;
}

/* ------------------------------------------------------------------ writing */

static void put(char *head, size_t *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put(char *head, size_t *at, const char *format, ...)
{
	va_list args;
	char *line;

	va_start(args, format);
	line = must_vprint(format, args);
	va_end(args);
	/* of a value nothing may look like another line, or like the end of the head */
	for (char *c = line; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	*at += (size_t)snprintf(head + *at, BACKUP_HEAD - *at, "%.*s\n", BACKUP_TEXT + 16, line);
	free(line);
}

static void put_head(char *head, const struct device *device, const union superblock *sb, const char *why, const uint64_t offset[NR_AREAS])
{
	char label[LARDER_LABEL_SIZE + 1], uuid[UUID_TEXT], when[64] = "?";
	time_t now = time(NULL);
	struct tm tm;
	size_t at = 0;

	if (gmtime_r(&now, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &tm);
	at = (size_t)snprintf(head, BACKUP_HEAD, "%s00000000\n", CRC_LINE);
	put(head, &at, "kind: %s", kind_text(le32toh(sb->head.kind)));
	put(head, &at, "uuid: %s", uuid_text(sb->head.uuid, uuid));
	put(head, &at, "cache_uuid: %s", uuid_text(sb->cache.cache_uuid, uuid));
	put(head, &at, "label: %s", label_text(sb->cache.label, label));
	put(head, &at, "device: %.200s", device->path);
	put(head, &at, "size: %" PRIu64, device->bytes);
	put(head, &at, "made: %" PRIu64 " %s", (uint64_t)now, when);
	put(head, &at, "by: larder " LARDER_RELEASE);
	put(head, &at, "why: %.200s", why);
	for (int i = 0; i < NR_AREAS; i++)
		if (offset[i])
			put(head, &at, "area: %s %" PRIu64 " %u", area_name[i], offset[i], area_bytes[i]);
	memset(head + at, '\n', BACKUP_HEAD - at);
}

/* What another has written there is no business of a backup, and of no use. */
static bool is_ours(enum area area, const uint8_t *bytes, uint64_t offset, const struct device *device, const union superblock *sb)
{
	struct problems problems = { 0 };
	bool ours;

	if (area == AREA_TABLE_A || area == AREA_TABLE_B)
		table_verify((const struct larder_table *)bytes, &sb->cache, &problems);
	else
		superblock_verify((const union superblock *)bytes, offset, device->bytes, &problems);
	ours = !problems.number;
	problems_free(&problems);
	return ours;
}

uint8_t *backup_encode(const struct device *device, const struct superblocks *found, const char *why, size_t *bytes)
{
	const union superblock *sb = found->chosen->sb;
	bool cache = le32toh(sb->head.kind) == LARDER_KIND_CACHE;
	const uint64_t offset[NR_AREAS] = {
		LARDER_SB_OFFSET,
		le64toh(sb->head.copy_offset),
		cache ? LARDER_TABLE_OFFSET_A : 0,
		cache ? LARDER_TABLE_OFFSET_B : 0,
	};
	uint8_t *file = device_buffer(BACKUP_MAX), *to = file + BACKUP_HEAD;
	char digits[CRC_DIGITS + 1];

	put_head((char *)file, device, sb, why, offset);
	for (int i = 0; i < NR_AREAS; i++) {
		if (!offset[i])
			continue;
		if (device_read(device, offset[i], to, area_bytes[i]) || !is_ours(i, to, offset[i], device, sb))
			memset(to, 0, area_bytes[i]);
		to += area_bytes[i];
	}
	*bytes = (size_t)(to - file);
	snprintf(digits, sizeof(digits), "%08x", file_crc(file, *bytes));
	memcpy(file + CRC_AT, digits, CRC_DIGITS);
	return file;
}

/* ------------------------------------------------------------------ reading */

/* Lines of the head, one after the other; NULL where the next one is not "key: value". */
struct lines {
	const char *at, *end;
};

static bool next_line(struct lines *lines, const char *key, char value[static BACKUP_TEXT])
{
	const char *newline = memchr(lines->at, '\n', (size_t)(lines->end - lines->at));
	size_t length = newline ? (size_t)(newline - lines->at) : 0, skip = strlen(key) + 2;

	if (length < skip || length - skip >= BACKUP_TEXT || memcmp(lines->at, key, skip - 2) || memcmp(lines->at + skip - 2, ": ", 2))
		return false;
	length -= skip;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)lines->at[skip + i] < ' ' || lines->at[skip + i] == 0x7f)
			return false;
	memcpy(value, lines->at + skip, length);
	value[length] = 0;
	lines->at = newline + 1;
	return true;
}

/* Decimal digits, then `after` or the end. */
static bool number(const char **text, char after, uint64_t *value)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*value = strtoull(*text, &end, 10);
	if (errno || (*end && *end != after))
		return false;
	*text = *end ? end + 1 : end;
	return true;
}

static bool is_uuid(const char *text, const uint8_t uuid[16])
{
	uint8_t given[16];

	if (!strcmp(text, "-"))
		return uuid_is_zero(uuid);
	return !uuid_parse(text, given) && !memcmp(given, uuid, 16);
}

struct head {
	char kind[BACKUP_TEXT], uuid[BACKUP_TEXT], cache_uuid[BACKUP_TEXT];
	const uint8_t *area[NR_AREAS]; /* NULL: is not in the file */
	uint64_t offset[NR_AREAS];
};

static bool read_areas(struct lines *lines, const uint8_t *file, size_t bytes, struct head *head)
{
	size_t at = BACKUP_HEAD;
	char value[BACKUP_TEXT];
	int area = 0;

	while (next_line(lines, "area", value)) {
		const char *rest = strchr(value, ' ');
		size_t length = rest ? (size_t)(rest - value) : 0;
		uint64_t size;

		while (area < NR_AREAS && (strlen(area_name[area]) != length || memcmp(area_name[area], value, length)))
			area++;
		if (area == NR_AREAS || !rest++ || !number(&rest, ' ', &head->offset[area]) || !number(&rest, 0, &size) || *rest ||
		    size != area_bytes[area] || !head->offset[area] || bytes - at < size)
			return false;
		head->area[area++] = file + at;
		at += size;
	}
	return at == bytes && head->area[AREA_SUPERBLOCK] && head->offset[AREA_SUPERBLOCK] == LARDER_SB_OFFSET;
}

/* The head, all of it; NULL, or the name of what is wrong. */
static const char *read_head(const uint8_t *file, size_t bytes, struct head *head, struct backup *backup)
{
	struct lines lines = { (const char *)file + CRC_AT + CRC_DIGITS + 1, (const char *)file + BACKUP_HEAD };
	char text[BACKUP_TEXT];
	const char *rest = text;

	if (file[CRC_AT + CRC_DIGITS] != '\n' || !next_line(&lines, "kind", head->kind))
		return "kind";
	if (!next_line(&lines, "uuid", head->uuid))
		return "uuid";
	if (!next_line(&lines, "cache_uuid", head->cache_uuid))
		return "cache_uuid";
	if (!next_line(&lines, "label", text))
		return "label";
	if (!next_line(&lines, "device", backup->device))
		return "device";
	if (!next_line(&lines, "size", text) || !number(&rest, 0, &backup->device_bytes))
		return "size";
	rest = text;
	if (!next_line(&lines, "made", text) || !number(&rest, ' ', &backup->made))
		return "made";
	if (!next_line(&lines, "by", backup->by))
		return "by";
	if (!next_line(&lines, "why", backup->why))
		return "why";
	if (!read_areas(&lines, file, bytes, head))
		return "area";
	while (lines.at < lines.end)
		if (*lines.at++ != '\n')
			return "head";
	return NULL;
}

/* As superblocks_read() chooses. */
static char *choose(const struct head *head, struct backup *backup)
{
	char *line = NULL;

	for (int i = AREA_SUPERBLOCK; i <= AREA_COPY; i++) {
		const union superblock *sb = (const union superblock *)head->area[i];
		struct problems problems = { 0 };

		if (!sb)
			continue;
		superblock_verify(sb, head->offset[i], backup->device_bytes, &problems);
		if (!problems.number && (!backup->sb || (!memcmp(backup->sb->head.uuid, sb->head.uuid, 16) &&
							 le64toh(sb->head.generation) > le64toh(backup->sb->head.generation))))
			backup->sb = sb;
		if (problems.number && !line)
			line = problems_line(&problems);
		problems_free(&problems);
	}
	if (backup->sb) {
		free(line);
		return NULL;
	}
	return line;
}

static void choose_table(const struct head *head, struct backup *backup)
{
	static const uint64_t place[2] = { LARDER_TABLE_OFFSET_A, LARDER_TABLE_OFFSET_B };

	for (int i = 0; i < 2; i++) {
		const struct larder_table *table = (const struct larder_table *)head->area[AREA_TABLE_A + i];
		struct problems problems = { 0 };

		if (!table || head->offset[AREA_TABLE_A + i] != place[i])
			continue;
		table_verify(table, &backup->sb->cache, &problems);
		if (!problems.number && (!backup->table || le64toh(table->head.generation) > le64toh(backup->table->head.generation)))
			backup->table = table;
		problems_free(&problems);
	}
}

char *backup_decode(const uint8_t *file, size_t bytes, struct backup *backup)
{
	char digits[CRC_DIGITS + 1];
	struct head head = { 0 };
	const char *wrong;
	char *line;
	uint32_t crc;

	*backup = (struct backup){ 0 };
	if (bytes < sizeof(OPENING) || memcmp(file, OPENING, sizeof(OPENING) - 1))
		return must_print("first line: is no backup of larder's metadata");
	if (bytes < CRC_AT || memcmp(file, CRC_LINE, CRC_AT))
		return must_print("version: is not %u: use a newer larder", BACKUP_VERSION);
	if (bytes < BACKUP_HEAD + LARDER_SB_SIZE || bytes > BACKUP_MAX)
		return must_print("size: has %zu bytes, not %u to %u: it is truncated, or something else", bytes, BACKUP_HEAD + LARDER_SB_SIZE,
				  BACKUP_MAX);
	crc = file_crc(file, bytes);
	snprintf(digits, sizeof(digits), "%08x", crc);
	if (memcmp(file + CRC_AT, digits, CRC_DIGITS))
		return must_print("crc: is %.*s, the contents have %s: it is damaged", CRC_DIGITS, (const char *)file + CRC_AT, digits);
	wrong = read_head(file, bytes, &head, backup);
	if (wrong)
		return must_print("%s: cannot be understood", wrong);
	line = choose(&head, backup);
	if (!backup->sb)
		return line;
	if (strcmp(head.kind, kind_text(le32toh(backup->sb->head.kind))))
		return must_print("kind: is %s, the superblock says %s", head.kind, kind_text(le32toh(backup->sb->head.kind)));
	if (!is_uuid(head.uuid, backup->sb->head.uuid))
		return must_print("uuid: is not that of the superblock");
	if (le32toh(backup->sb->head.kind) == LARDER_KIND_CACHE)
		choose_table(&head, backup);
	else if (le32toh(backup->sb->head.kind) != LARDER_KIND_VOLUME)
		return must_print("kind: %s: has nothing that could be restored", head.kind);
	if (!is_uuid(head.cache_uuid, backup->sb->cache.cache_uuid))
		return must_print("cache_uuid: is not that of the superblock");
	return NULL;
}
