// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for traces (lib/trace_text.c) and what is made of them (lib/hit_curve.c): the input is the file that `larder advise --from` reads.  Aborts
 * where a request has numbers that none can have, where one written anew is read as another, or where the curve is none.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/trace_text.h"
#include "input.h"

#define SAMPLES	   32
#define BLOCKS_MAX (1u << 20) /* of an input, for speed */

static void check_request(const struct trace_request *r)
{
	static const char *const flags[] = { [HIT_READ] = "R", [HIT_WRITE] = "FWFS", [HIT_DISCARD] = "D" };
	struct trace_request again = { 0 };
	uint64_t lost = 0;
	char line[256];

	must(r->access <= HIT_DISCARD && r->sectors && r->sector <= HIT_SECTOR_MAX - r->sectors, "numbers");
	must(r->access == HIT_DISCARD || r->sectors <= UINT32_MAX >> 9, "a read or a write of 4 GiB");
	must(r->major < 4096 && r->minor < 1 << 20, "device");
	snprintf(line, sizeof(line), " x-1 [000] ..... 1.500000: block_bio_queue: %u,%u %s %llu + %u [x]", r->major, r->minor, flags[r->access],
		 (unsigned long long)r->sector, r->sectors);
	must(trace_line_parse(line, &again, &lost) == TRACE_REQUEST && again.time == 1.5, "as ftrace has it");
	must(again.major == r->major && again.minor == r->minor && again.access == r->access && again.sector == r->sector && again.sectors == r->sectors, "it changes");
	snprintf(line, sizeof(line), "%3u,%-3u 1 2 1.500000000 4 Q %s %llu + %u [x]", r->major, r->minor, flags[r->access], (unsigned long long)r->sector, r->sectors);
	must(trace_line_parse(line, &again, &lost) == TRACE_REQUEST && again.time == 1.5, "as blkparse has it");
	must(again.sector == r->sector && again.sectors == r->sectors, "it changes in blkparse's format");
}

static void check_curve(const struct hit_curve *curve)
{
	double error, before;

	for (int kind = 0; kind < HIT_KINDS; kind++)
		for (int m = 0; m < HIT_MEASURES; m++) {
			before = -1;
			for (unsigned i = HIT_BLOCK_SHIFT; i < 64; i += 5) {
				double ratio = hit_curve_ratio(curve, kind, m, 1ull << i, &error);

				must((ratio == -1 && before == -1) || (ratio >= 0 && ratio <= 1 && ratio >= before - 1e-9), "a curve that falls");
				must(error >= 0 && error < 1e6, "the error");
				before = ratio;
			}
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hit_curve *curve = hit_curve_new(&(struct hit_options){ .samples = SAMPLES, .cutoff = 4 << 20 });
	char *text = malloc(size + 1), *rest = text, *line;
	uint64_t blocks = 0;

	memcpy(text, data, size);
	text[size] = 0;
	while ((line = strsep(&rest, "\n"))) {
		struct trace_request request = { 0 };
		uint64_t lost = 0;

		switch (trace_line_parse(line, &request, &lost)) {
		case TRACE_REQUEST:
			check_request(&request);
			blocks += request.access == HIT_DISCARD ? 0 : request.sectors / 8 + 2;
			if (blocks < BLOCKS_MAX)
				hit_curve_add(curve, request.major << 20 | request.minor, request.access, request.sector, request.sectors);
			break;
		case TRACE_LOST:
			must(lost, "no event lost");
			break;
		case TRACE_OTHER:
		case TRACE_BAD:
			break;
		}
	}
	check_curve(curve);
	hit_curve_free(curve);
	free(text);
	return 0;
}
