// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for backups of metadata (lib/backup.c).  Input: the bytes of a file; its checksum is repaired, so that what stands
 * behind it is reached.  Of the superblocks in it too, unless the first byte of the label says otherwise.  Aborts where what was accepted is not
 * valid, or lies outside of the file.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backup.h"
#include "crc32c.h"
#include "input.h"

#define CRC_AT (sizeof("larder metadata backup\nversion: 1\ncrc: ") - 1)

static void seal(uint8_t *file, size_t bytes)
{
	char digits[9];

	for (size_t at = BACKUP_HEAD; at + LARDER_SB_SIZE <= bytes && at <= BACKUP_HEAD + LARDER_SB_SIZE; at += LARDER_SB_SIZE)
		if (file[at + 144] != 0xff && superblock_has_magic((union superblock *)(file + at)))
			superblock_set_crc((union superblock *)(file + at));
	if (bytes < CRC_AT + 8)
		return;
	memcpy(file + CRC_AT, "00000000", 8);
	snprintf(digits, sizeof(digits), "%08x", crc32c(~0u, file, bytes));
	memcpy(file + CRC_AT, digits, 8);
}

/* Of exactly that length, so that the sanitizer sees a byte that is read behind it. */
static uint8_t *copy_of(const uint8_t *data, size_t size)
{
	void *file = NULL;

	must(!posix_memalign(&file, 64, size ? size : 1), "memory");
	memcpy(file, data, size);
	return file;
}

static void inside(const uint8_t *file, size_t bytes, const void *at, size_t length)
{
	must((const uint8_t *)at >= file + BACKUP_HEAD && (const uint8_t *)at + length <= file + bytes, "a pointer is outside of the file");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct problems problems = { 0 };
	struct backup backup;
	uint8_t *file;
	char *wrong;

	if (size > 2 * BACKUP_MAX)
		return 0;
	file = copy_of(data, size);
	seal(file, size);
	wrong = backup_decode(file, size, &backup);
	if (!wrong) {
		inside(file, size, backup.sb, LARDER_SB_SIZE);
		superblock_verify(backup.sb, (const uint8_t *)backup.sb == file + BACKUP_HEAD ? LARDER_SB_OFFSET : le64toh(backup.sb->head.copy_offset),
				  backup.device_bytes, &problems);
		must(!problems.number, "a superblock that is not valid was accepted");
		if (backup.table) {
			inside(file, size, backup.table, LARDER_TABLE_SIZE);
			table_verify(backup.table, &backup.sb->cache, &problems);
			must(!problems.number, "a table that does not fit was accepted");
		}
		must(memchr(backup.device, 0, BACKUP_TEXT) && memchr(backup.by, 0, BACKUP_TEXT) && memchr(backup.why, 0, BACKUP_TEXT), "text");
		backup_content(backup.device_bytes, backup.sb, backup.table);
	}
	free(wrong);
	free(file);
	return 0;
}

#ifdef STANDALONE
/* fuzz_backup SEED NUMBER FILE...: each file, and so many changed ones of each. */
int main(int argc, char **argv)
{
	unsigned long number = argc > 2 ? strtoul(argv[2], NULL, 0) : 0, accepted = 0;

	srandom(argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 1);
	for (int i = 3; i < argc; i++) {
		static uint8_t was[BACKUP_MAX], is[BACKUP_MAX];
		FILE *f = fopen(argv[i], "rb");
		struct backup backup;
		uint8_t *whole;
		size_t size;
		char *wrong;

		must(f, argv[i]);
		size = fread(was, 1, sizeof(was), f);
		fclose(f);
		LLVMFuzzerTestOneInput(was, size);
		for (unsigned long n = 0; n < number; n++) {
			size_t cut = random() % 8 ? size : (size_t)random() % (size + 1);

			memcpy(is, was, size);
			for (long changes = random() % 4 + (cut == size); changes; changes--) {
				/* half of them in the head, the rest where the superblocks are */
				size_t at = (size_t)random() % (random() % 2 ? 700 : 3 * BACKUP_HEAD);

				if (at < size)
					is[at] = random() % 2 ? (uint8_t)random() : (uint8_t)(is[at] ^ 1u << random() % 8);
			}
			LLVMFuzzerTestOneInput(is, cut);
			whole = copy_of(is, cut);
			seal(whole, cut);
			wrong = backup_decode(whole, cut, &backup);
			accepted += !wrong;
			free(wrong);
			free(whole);
		}
	}
	printf("%lu accepted\n", accepted);
	return 0;
}
#endif
