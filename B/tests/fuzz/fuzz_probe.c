// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what is read of any device that shows up: superblocks, and what the probe tells udev of them (lib/superblock.c,
 * lib/udev_properties.c).  The directory LARDER_FUZZ_IMAGES has images ssd and hdd by tests/images/writer, whose superblocks are edited.
 *
 * Input: a byte of switches (bit 0: of the volume; 1: the copy is edited as well; 2: checksums are left wrong; 3 to 7: all set, copies are
 * searched for), then edits: two bytes of offset, one whose low three bits are the length less one, and so many bytes.
 * Aborts where what udev is told has a line that is not KEY=VALUE, or where a superblock is taken that breaks a promise.
 */
#include <ctype.h>
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"
#include "input.h"
#include "superblock.h"
#include "udev_properties.h"

static struct sample {
	const char *name;
	union superblock sb;
	uint64_t bytes;
	int memory;
	char path[64];
} samples[] = { { .name = "ssd" }, { .name = "hdd" } };

static void begin(void)
{
	const char *directory = getenv("LARDER_FUZZ_IMAGES");
	char name[4096];
	int file;

	if (*samples[0].path)
		return;
	for (size_t i = 0; i < 2; i++) {
		struct sample *s = &samples[i];

		snprintf(name, sizeof(name), "%s/%s", directory ? directory : ".", s->name);
		file = open(name, O_RDONLY | O_CLOEXEC);
		s->memory = memfd_create(s->name, MFD_CLOEXEC);
		must(file >= 0 && s->memory >= 0, "LARDER_FUZZ_IMAGES has no image ssd, or hdd");
		s->bytes = (uint64_t)lseek(file, 0, SEEK_END);
		must(pread(file, &s->sb, sizeof(s->sb), LARDER_SB_OFFSET) == sizeof(s->sb) && superblock_is_whole(&s->sb), "no superblock");
		must(!ftruncate(s->memory, (off_t)s->bytes), "memory");
		snprintf(s->path, sizeof(s->path), "/proc/self/fd/%d", s->memory);
		close(file);
	}
}

static void edit(uint8_t *p, const uint8_t *data, size_t size)
{
	while (size > 3) {
		size_t at = (size_t)(data[0] | data[1] << 8) % LARDER_SB_SIZE, n = (data[2] & 7) + 1u;

		/* three of four are in the head */
		at = data[2] >> 6 ? at % 512 : at;
		n = n < size - 3 ? n : size - 3;
		memcpy(p + at, data + 3, n < LARDER_SB_SIZE - at ? n : LARDER_SB_SIZE - at);
		data += 3 + n;
		size -= 3 + n;
	}
}

static void put(const struct sample *s, const union superblock *sb, uint64_t at)
{
	must(pwrite(s->memory, sb, sizeof(*sb), (off_t)at) == sizeof(*sb), "memory");
}

/* What udev imports: a line more, or one of another key, would be a property of somebody else's choice. */
static void tell_udev(const union superblock *sb)
{
	char *text = NULL, *rest, *line;
	size_t size = 0, lines = 0;
	FILE *real = stdout, *out = open_memstream(&text, &size);

	must(out, "memory");
	stdout = out;
	udev_properties_print(sb);
	stdout = real;
	must(!fclose(out) && strlen(text) == size && size && text[size - 1] == '\n', "lines, to the last one");
	rest = text;
	while ((line = strsep(&rest, "\n"))) {
		size_t key = strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");

		if (!*line)
			continue;
		lines++;
		must((!strncmp(line, "ID_FS_", 6) || !strncmp(line, "LARDER_", 7)) && line[key] == '=', "KEY=VALUE");
		for (const unsigned char *c = (const unsigned char *)line; *c; c++)
			must(*c > 0x20 && *c != 0x7f && !strchr("\"'`$", *c), "plain characters");
	}
	must(lines >= 7 && lines <= 16, "so many properties as there are");
	free(text);
}

static void examine(const struct sample *s, bool search)
{
	struct device device;
	struct superblocks found;
	struct cache_tables tables;
	const union superblock *sb;
	uint64_t copy;

	must(!device_open(&device, s->path, DEVICE_READ), "it is opened");
	superblocks_read(&device, &found, search);
	sb = superblocks_best(&found);
	must(!found.chosen || sb, "of a chosen one there is a best one");
	if (found.chosen) {
		sb = found.chosen->sb;
		copy = le64toh(sb->head.copy_offset);
		must(superblock_is_whole(sb) && le32toh(sb->head.kind) - 1 < 4, "a chosen one is whole");
		must(!copy || (copy >= 2 * LARDER_SB_OFFSET && copy + LARDER_SB_SIZE <= s->bytes), "its copy lies on the device");
		tell_udev(sb);
		if (le32toh(sb->head.kind) == LARDER_KIND_CACHE) {
			tables_read(&device, &sb->cache, &tables);
			tables_free(&tables);
		}
	}
	superblocks_free(&found);
	device_close(&device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const union superblock nothing;
	union superblock sb;
	struct sample *s;

	begin();
	if (!size)
		return 0;
	s = &samples[data[0] & 1];
	sb = s->sb;
	edit((uint8_t *)&sb, data + 1, size - 1);
	if (!(data[0] & 4))
		superblock_set_crc(&sb);
	put(s, &sb, LARDER_SB_OFFSET);
	put(s, data[0] & 2 ? &sb : &s->sb, le64toh(s->sb.head.copy_offset));
	examine(s, data[0] >> 3 == 31);
	put(s, &nothing, LARDER_SB_OFFSET);
	return 0;
}
