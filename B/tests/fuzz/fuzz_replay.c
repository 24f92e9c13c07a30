// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for a start of the kernel's: superblocks, tables, checkpoint and log of two SSDs after a power cut (kernel/super.c, recover.c, load.c, replay.c).
 * Input: a byte of switches (bits 0 and 1: the SSDs that are given; 2: of one of them sectors cannot be read, which the next four bytes say), then edits of their images
 * (ssd_images.h).  Aborts where what is mapped lies outside of volume or segments, is not what was counted, or where a refusal has changed something.
 */
#include "input.h"
#include "kernel_start.h"
#include "ssd_images.h"

#define BAD_BYTES 4u

static void set_bad(struct start_ssd *ssd, const uint8_t *data)
{
	ssd[data[0] & 1].bad = ((uint64_t)data[1] << 8 | data[2]) * 8 % (image_bytes >> 9);
	ssd[data[0] & 1].nr_bad = 8ull * (1 + data[3] % 80);
}

static int start(unsigned given, const uint8_t *bad, unsigned long long *dirty)
{
	struct start_ssd ssd[SSDS] = { 0 };

	for (unsigned i = 0; i < SSDS; i++)
		if (given >> i & 1)
			ssd[i] = (struct start_ssd){ .bytes = image[i], .size = image_bytes };
	if (bad)
		set_bad(ssd, bad);
	return start_of_images(ssd, SSDS, dirty);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned long long whole;
	unsigned long long dirty;
	unsigned given;
	bool bad;

	begin();
	if (!whole)
		must(!start(3, NULL, &whole) && whole, "the images as they are");
	if (size < 1 + BAD_BYTES)
		return 0;
	given = data[0] & 3 ? data[0] & 3 : 3;
	bad = data[0] & 4;
	apply(data + 1 + BAD_BYTES, size - 1 - BAD_BYTES, false);
	start(given, bad ? data + 1 : NULL, &dirty);
	apply(data + 1 + BAD_BYTES, size - 1 - BAD_BYTES, true);
	if (!data[0])
		for (unsigned i = 0; i < SSDS; i++)
			must(!memcmp(image[i], saved[i], image_bytes), "nothing is left of it");
	return 0;
}
