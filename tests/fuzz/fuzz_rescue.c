// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what `larder rescue` reads: the members of a set of SSDs, the checkpoint, the log and the sums of dirty
 * data (lib/).  The directory LARDER_FUZZ_IMAGES has images of two SSDs, ssd and ssd1, by tests/images/writer.
 *
 * Input: edits of them, each of two bytes that choose a structure, two of an offset in it, and a byte: its low three bits are the
 * length less one, 0x80 leaves the checksum wrong, 0x40 makes the same edit in the second copy; then so many bytes.  Aborts where
 * what is handed out breaks a promise of the headers.
 *
 * With -DSTANDALONE it is a program of its own, without clang: `fuzz_rescue SEED NUMBER` tries so many random inputs.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checksum.h"
#include "crc32c.h"
#include "slot_sums.h"

#define SSDS	      2u
#define MOST_SEGMENTS (1u << 16) /* of a set that is loaded: what a table may claim more only costs time */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct structure {
	unsigned ssd;
	size_t at, bytes, crc;
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

static void must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_rescue: broken: %s\n", what);
	abort();
}

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
	structures = realloc(structures, (nr_structures + 1) * sizeof(*structures));
	must(structures, "memory");
	structures[nr_structures++] = (struct structure){ ssd, at, bytes, crc, NULL };
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

static void apply(const uint8_t *data, size_t size, bool undo)
{
	while (size > 5) {
		const struct structure *s = &structures[(data[0] | data[1] << 8) % nr_structures];
		size_t at = (data[2] | data[3] << 8), n = (data[4] & 7) + 1u;

		/* heads are what counts: three of four edits are near the front */
		at = at & 3 ? (at >> 2) % (s->bytes < 256 ? s->bytes : 256) : (at >> 2) * 8 % s->bytes;
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

/* ------------------------------------------------------------- reading */

struct seen {
	const struct cache_image *image;
	uint64_t end, behind;
	uint32_t sink;
};

static int see(const struct dirty_piece *piece, void *data)
{
	struct seen *seen = data;
	uint32_t unit = seen->image->usage.segment_sectors;

	must(piece->length && piece->sector >= seen->behind && piece->length <= seen->end - piece->sector, "pieces in order, inside the volume");
	seen->behind = piece->sector + piece->length;
	must(piece->zero || segment_exists(seen->image, piece->cache / unit), "a piece is in a segment that exists");
	if (!piece->zero && piece->state == SLOT_GOOD)
		seen->sink ^= crc32c(~0u, piece->data, (size_t)piece->length << LARDER_SECTOR_SHIFT);
	return 0;
}

static bool small(const struct ssd_set *set)
{
	for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++) {
		const struct larder_table_device *d = &set->table->devices[i];

		if (d->state && (uint64_t)le32toh(d->first_segment) + le32toh(d->nr_segments) > MOST_SEGMENTS)
			return false;
	}
	return true;
}

static void load(const struct ssd_set *set, bool compare)
{
	struct cache_image *loaded = malloc(sizeof(*loaded));

	must(loaded, "memory");
	cache_image_init(loaded, set);
	loaded->compare = compare;
	if (cache_image_load(loaded))
		for (unsigned i = 0; i < LARDER_MAX_VOLUMES; i++) {
			struct seen seen = { loaded, loaded->volume[i].sectors, 0, 0 };

			if (seen.end)
				dirty_each(loaded, &loaded->volume[i], 0, seen.end, see, &seen);
		}
	cache_image_free(loaded);
	free(loaded);
}

/* mask: which SSDs are given */
static void examine(unsigned mask, bool compare)
{
	const char *paths[SSDS];
	struct ssd_set set;
	size_t n = 0;

	for (unsigned i = 0; i < SSDS; i++)
		if (mask >> i & 1)
			paths[n++] = path[i];
	if (ssd_set_open(&set, paths, n, DEVICE_READ))
		return;
	if (!ssd_set_choose(&set) && small(&set)) {
		for (unsigned i = 0; i < LARDER_MAX_DEVICES; i++)
			must(!set.member[i] || le32toh(set.member[i]->sb->device_number) == i, "a member is in its place");
		must(table_knows(set.table, le64toh(set.table->head.set_generation)), "the set knows its own generation");
		load(&set, compare);
	}
	ssd_set_close(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	if (!size)
		return 0;
	apply(data + 1, size - 1, false);
	examine(data[0] % 4 ? data[0] % 4 : 3, data[0] & 0x80);
	apply(data + 1, size - 1, true);
	return 0;
}

#ifdef STANDALONE
static uint64_t state;

static uint8_t random_byte(void)
{
	return (uint8_t)(hash_mix(state += 0x9e3779b97f4a7c15ull) >> 24);
}

int main(int argc, char **argv)
{
	static const uint8_t favourites[] = { 0, 1, 2, 0x7f, 0x80, 0xff };
	uint8_t input[96];

	if (argc != 3)
		return 2;
	state = strtoull(argv[1], NULL, 0);
	for (unsigned long i = strtoul(argv[2], NULL, 0); i; i--) {
		size_t n = 1 + random_byte() % 3 * 13u + 12u;

		for (size_t k = 0; k < n; k++)
			input[k] = random_byte() % 3 ? random_byte() : favourites[random_byte() % sizeof(favourites)];
		LLVMFuzzerTestOneInput(input, n);
		must(i % 64 || (!memcmp(image[0], saved[0], image_bytes) && !memcmp(image[1], saved[1], image_bytes)), "edits are undone");
	}
	return 0;
}
#endif
