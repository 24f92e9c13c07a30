// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what `larder rescue` reads: the members of a set of SSDs, the checkpoint, the log and the sums of dirty
 * data (lib/).  Input: a byte of switches (bits 0 and 1: the SSDs that are given; 7: data is compared), then edits of their images (ssd_images.h).  Aborts where what is
 * handed out breaks a promise of the headers.
 *
 * With -DSTANDALONE it is a program of its own, without clang: `fuzz_rescue SEED NUMBER` tries so many random inputs.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checksum.h"
#include "crc32c.h"
#include "input.h"
#include "slot_sums.h"
#include "ssd_images.h"

#define MOST_SEGMENTS (1u << 16) /* of a set that is loaded: what a table may claim more only costs time */

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
