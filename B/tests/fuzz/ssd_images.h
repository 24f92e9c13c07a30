/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Images of two SSDs, ssd and ssd1 of the directory LARDER_FUZZ_IMAGES, by tests/images/writer, and edits of them.
 *
 * An edit is two bytes that choose a structure, two of an offset in it, and a byte: its low three bits are the length less one, 0x80 leaves the checksum wrong, 0x40
 * makes the same edit in the second copy; then so many bytes.
 */
#ifndef FUZZ_SSD_IMAGES_H
#define FUZZ_SSD_IMAGES_H

#include <endian.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checksum.h"
#include "input.h"
#include "superblock.h"

#define SSDS 2u

struct structure {
	unsigned ssd;
	size_t at, bytes, crc;
	size_t used; /* of bytes: behind them are zeroes */
	struct structure *twin; /* the second copy */
};

static const struct kind {
	uint32_t magic;
	size_t bytes, crc;
} kinds[] = {
	{ LARDER_TABLE_MAGIC, LARDER_TABLE_SIZE, offsetof(struct larder_table_head, crc) },
	{ LARDER_COMMIT_MAGIC, sizeof(struct larder_commit), offsetof(struct larder_commit, crc) },
	{ LARDER_SUMMARY_MAGIC, sizeof(struct larder_summary), offsetof(struct larder_summary, crc) },
	{ LARDER_CHUNK_MAGIC, sizeof(struct larder_chunk), offsetof(struct larder_chunk, crc) },
};

static uint8_t *image[SSDS], *saved[SSDS];
static size_t image_bytes;
static char path[SSDS][64];
static struct structure *structures;
static size_t nr_structures;

/* ------------------------------------------------------------- images in memory */

static void read_image(unsigned i)
{
	const char *directory = getenv("LARDER_FUZZ_IMAGES");
	int file, memory = memfd_create("ssd", 0);
	char name[4096];

	snprintf(name, sizeof(name), "%s/ssd%s", directory ? directory : ".", i ? "1" : "");
	file = open(name, O_RDONLY | O_CLOEXEC);
	must(file >= 0 && memory >= 0, "LARDER_FUZZ_IMAGES has no image ssd, or ssd1");
	image_bytes = (size_t)lseek(file, 0, SEEK_END);
	must(!ftruncate(memory, (off_t)image_bytes), "ftruncate");
	image[i] = mmap(NULL, image_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	saved[i] = malloc(image_bytes);
	must(image[i] != MAP_FAILED && saved[i] && pread(file, saved[i], image_bytes, 0) == (ssize_t)image_bytes, "an image cannot be read");
	memcpy(image[i], saved[i], image_bytes);
	snprintf(path[i], sizeof(path[i]), "/proc/self/fd/%d", memory);
	close(file);
}

static void add(unsigned ssd, size_t at, size_t bytes, size_t crc)
{
	size_t used = bytes;

	while (used > 1 && !saved[ssd][at + used - 1])
		used--;
	structures = realloc(structures, (nr_structures + 1) * sizeof(*structures));
	must(structures, "memory");
	structures[nr_structures++] = (struct structure){ .ssd = ssd, .at = at, .bytes = bytes, .crc = crc, .used = used };
}

/* Whatever has a magic and a checksum that is right. */
static void find_structures(unsigned ssd)
{
	for (size_t at = LARDER_SB_OFFSET; at < image_bytes; at += LARDER_SLOT_SIZE) {
		const uint8_t *p = saved[ssd] + at;
		uint32_t magic;

		memcpy(&magic, p, sizeof(magic));
		if (superblock_is_whole((const union superblock *)p))
			add(ssd, at, LARDER_SB_SIZE, offsetof(struct larder_sb_head, crc));
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
			if (le32toh(magic) == kinds[k].magic && at + kinds[k].bytes <= image_bytes &&
			    le32toh(*(const uint32_t *)(p + kinds[k].crc)) == block_crc(p, kinds[k].bytes, kinds[k].crc))
				add(ssd, at, kinds[k].bytes, kinds[k].crc);
	}
}

static void find_twins(void)
{
	for (size_t i = 0; i < nr_structures; i++)
		for (size_t k = 0; k < i; k++) {
			struct structure *a = &structures[i], *b = &structures[k];

			if (a->bytes != b->bytes || memcmp(saved[a->ssd] + a->at, saved[b->ssd] + b->at, a->bytes))
				continue;
			a->twin = b;
			b->twin = a;
		}
}

static void begin(void)
{
	if (nr_structures)
		return;
	for (unsigned i = 0; i < SSDS; i++)
		read_image(i);
	for (unsigned i = 0; i < SSDS; i++)
		find_structures(i);
	find_twins();
	must(nr_structures > 20, "there is too little in the images");
}

/* ------------------------------------------------------------- edits */

static void edit(const struct structure *s, size_t at, const uint8_t *bytes, size_t n, bool repair)
{
	uint8_t *p = image[s->ssd] + s->at;
	uint32_t crc;

	memcpy(p + at, bytes, n < s->bytes - at ? n : s->bytes - at);
	if (!repair)
		return;
	crc = htole32(block_crc(p, s->bytes, s->crc));
	memcpy(p + s->crc, &crc, sizeof(crc));
}

/* Near the front, in what is used, anywhere: heads are what counts. */
static size_t place(const struct structure *s, unsigned where, size_t at)
{
	if (!where)
		return at * 8 % s->bytes;
	return where == 1 || s->used < 256 ? at % (s->used < 256 ? s->used : 256) : at % s->used;
}

static void apply(const uint8_t *data, size_t size, bool undo)
{
	while (size > 5) {
		const struct structure *s = &structures[(data[0] | data[1] << 8) % nr_structures];
		size_t at = (data[2] | data[3] << 8), n = (data[4] & 7) + 1u;

		at = place(s, at & 3, at >> 2);
		n = n < size - 5 ? n : size - 5;
		for (unsigned i = 0; i < (data[4] & 0x40 && s->twin ? 2 : 1); i++) {
			const struct structure *one = i ? s->twin : s;

			if (undo)
				memcpy(image[one->ssd] + one->at, saved[one->ssd] + one->at, one->bytes);
			else
				edit(one, at, data + 5, n, !(data[4] & 0x80));
		}
		data += 5 + n;
		size -= 5 + n;
	}
}

#endif
