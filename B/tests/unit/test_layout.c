// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/layout.c: where the data of a volume begin on a device that has stripes; how much the SSDs of a cache have together.
 */
#include <stdbool.h>
#include <stdio.h>

#include "../../lib/layout.c"

#define KIB 1024ull
#define MIB (1024 * KIB)
#define TIB (1024 * 1024 * MIB)

#include "check.h"

static const struct {
	const char *name;
	struct device_topology topology;
	uint64_t bytes, offset;
} cases[] = {
	{ "a disk that says nothing", { 0, 0, 0, 0 }, 100 * MIB, MIB },
	{ "512n", { 512, 0, 0, 0 }, 100 * MIB, MIB },
	{ "4Kn", { 4096, 0, 0, 0 }, 100 * MIB, MIB },
	{ "stripes that divide 1 MiB", { 64 * KIB, 256 * KIB, 0, 0 }, 100 * MIB, MIB },
	{ "an RBD image", { 64 * KIB, 64 * KIB, 0, 0 }, 2 * TIB, MIB },
	{ "an RBD image, alloc_size of its objects", { 4 * MIB, 4 * MIB, 0, 0 }, 256 * MIB, 4 * MIB },
	{ "such an image that is small", { 4 * MIB, 4 * MIB, 0, 0 }, 255 * MIB, MIB },
	{ "three chunks of 64 KiB", { 64 * KIB, 192 * KIB, 0, 0 }, 1000 * MIB, 1152 * KIB },
	{ "three chunks of 512 KiB", { 512 * KIB, 1536 * KIB, 0, 0 }, 1000 * MIB, 1536 * KIB },
	{ "ten chunks of 512 KiB", { 512 * KIB, 5120 * KIB, 0, 0 }, 1000 * MIB, 5120 * KIB },
	{ "no chunk, 6 MiB", { 4096, 6 * MIB, 0, 0 }, 1000 * MIB, 6 * MIB },
	{ "thin, chunks of 192 KiB", { 192 * KIB, 192 * KIB, 0, 0 }, 1000 * MIB, 1152 * KIB },
	{ "chunks alone", { 768 * KIB, 0, 0, 0 }, 1000 * MIB, 1536 * KIB },
	{ "the largest request of a bridge", { 512, 33553920, 0, 0 }, 100000 * MIB, MIB },
	{ "the largest request of a bridge, 4Kn", { 4096, 33550336, 0, 0 }, 100000 * MIB, 33550336 },
	{ "no multiple of the chunk", { 64 * KIB, 100 * KIB, 0, 0 }, 1000 * MIB, MIB },
	{ "no multiple of 4096", { 512, 512 * 1001, 0, 0 }, 1000 * MIB, MIB },
	{ "a stripe of 64 MiB", { MIB, 64 * MIB, 0, 0 }, 1000000 * MIB, 64 * MIB },
	{ "a stripe of 65 MiB: its chunk", { MIB, 65 * MIB, 0, 0 }, 1000000 * MIB, MIB },
	{ "a stripe that costs too much: its chunk", { 512 * KIB, 5120 * KIB, 0, 0 }, 319 * MIB, MIB },
	{ "a 64th", { 512 * KIB, 5120 * KIB, 0, 0 }, 320 * MIB, 5120 * KIB },
	{ "a small disk", { 64 * KIB, 192 * KIB, 0, 0 }, 5 * MIB, MIB },
	{ "a partition at 1 MiB", { 64 * KIB, 192 * KIB, MIB, 0 }, 1000 * MIB, 1088 * KIB },
	{ "a partition at a stripe", { 64 * KIB, 192 * KIB, 192 * MIB, 0 }, 1000 * MIB, 1152 * KIB },
	{ "a partition that no offset mends", { 64 * KIB, 192 * KIB, 63 * 512, 0 }, 1000 * MIB, MIB },
	{ "a disk whose stripes begin behind 128 KiB", { 64 * KIB, 192 * KIB, 0, 128 * KIB }, 1000 * MIB, 1088 * KIB },
};

/* All SSDs of a cache together have 2^36 sectors at most. */
static void check_sum_of_a_set(void)
{
	struct cache_layout layout = { .segment_size = 16 * MIB };
	uint32_t most = 1u << (36 + 9 - 24);

	check(!cache_layout(&layout, 20 * TIB, 512) && !layout.first_segment, "an SSD of 20 TiB");
	check(!cache_layout_behind(&layout, most - layout.nr_segments) && layout.first_segment == most - layout.nr_segments, "behind others up to 32 TiB");
	check(cache_layout_behind(&layout, most - layout.nr_segments + 1), "behind one segment more");
	check(cache_layout_behind(&layout, UINT32_MAX), "behind as many as a number has");
	check(cache_layout(&layout, 33 * TIB, 512), "an SSD of 33 TiB");
}

/* What kernels make of its disks: the least that all divide; md's own stripe; the largest. */
static uint64_t stacked(unsigned how, const struct device_topology *disks, unsigned number, uint64_t stripe)
{
	uint64_t unit = how == 1 ? 0 : stripe;

	for (unsigned i = 0; i < number && how; i++)
		unit = how == 3 && unit ? (unit > disks[i].io_opt ? unit : disks[i].io_opt) : common_multiple(unit, disks[i].io_opt);
	return unit;
}

static const uint64_t units[] = { 0,	    512,     4096,    64 * KIB, 256 * KIB, 16773120, 33553920,
				  3 * MIB, 4 * MIB, 5 * MIB, 12 * MIB, 64 * MIB,  65 * MIB };
#define UNITS (sizeof(units) / sizeof(units[0]))

/* Two disks of each pair of units, at each level that has stripes or none: what is made of them begins no later than was said. */
static void check_arrays(void)
{
	static const uint64_t sizes[] = { 16 * MIB, 300 * MIB, 2000 * MIB, 5 * TIB };
	unsigned late = 0, early = 0;

	for (unsigned a = 0; a < UNITS * UNITS; a++)
		for (unsigned b = 0; b < 4 * 3 * 4; b++) {
			uint64_t least = b % 3 ? 512 : 64 * KIB, stripe = b / 3 % 4 * 512 * KIB, bytes = sizes[b / 12], most;
			struct device_topology disks[2] = { { 4096, units[a % UNITS], 0, 0 }, { least, units[a / UNITS], 0, 0 } };

			most = array_data_offset_most(disks, 2, stripe, bytes);
			for (unsigned how = 0; how < 4; how++) {
				struct device_topology array = { .io_min = stripe ? 512 * KIB : least > 4096 ? least : 4096,
								 .io_opt = stacked(how, disks, 2, stripe),
								 .alignment = b % 2 * 128 * KIB };

				late += volume_data_offset(&array, bytes) > most;
			}
			early += most < MIB || (most > MIB && most > bytes / 64);
		}
	check(!late, "data of an array begin no later than was said");
	check(!early, "nor is that before 1 MiB, or behind a 64th");
}

int main(void)
{
	const struct device_topology plain[] = { { 512, 0, 0, 0 }, { 4096, 4096, 0, 0 } };
	const struct device_topology sas[] = { { 4096, 16773120, 0, 0 }, { 4096, 16773120, 0, 0 } };
	struct volume_layout layout;
	uint64_t most;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint64_t offset = volume_data_offset(&cases[i].topology, cases[i].bytes);

		check(offset == cases[i].offset, cases[i].name);
		if (offset != cases[i].offset)
			printf("# %llu\n", (unsigned long long)offset);
		layout = (struct volume_layout){ .data_offset = offset, .tail_reserve = LARDER_DEF_TAIL_RESERVE };
		check(!volume_layout(&layout, cases[i].bytes, 4096) && layout.copy_offset == MIB - LARDER_SB_SIZE,
		      "its copy is where all look for it");
	}
	check_sum_of_a_set();
	check_arrays();
	check(array_data_offset_most(plain, 2, 0, 5 * TIB) == MIB, "a mirror of disks that say nothing");
	check(array_data_offset_most(plain, 2, 1024 * KIB, 5 * TIB) == 2 * MIB, "stripes");
	most = array_data_offset_most(sas, 2, 0, 5 * TIB);
	check(most >= 16773120 && most <= 17 * MIB, "a mirror of SAS disks");
	return failed;
}
