// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/volume_attach.c: a cache that runs is found by each name that other verbs take.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../tools/volume_attach.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"
#include "memory.h"

int member_find(struct members *members, const char *name, uint32_t kind, const struct member **member)
{
	return LARDER_NOT_FOUND;
}

static void each_name(void)
{
	static const char *const words[] = { "fast", "larder-cache-fast", "c", "larder-cache-", "11111111-2222-4333-8444-555555555555" };
	static const unsigned runs[] = { 0, 0, 1, 2, 2 };
	struct mapped mapped[] = {
		{ .name = "larder-cache-fast", .cache = true, .status = "" },
		{ .name = "c", .cache = true, .status = "" },
		{ .name = "larder-cache-", .cache = true, .status = "uuid=11111111-2222-4333-8444-555555555555" },
		{ .name = "data", .status = "" },
	};
	const struct mapped_list list = { mapped, sizeof(mapped) / sizeof(mapped[0]) };
	const struct mapped *running;
	const struct member *member;
	struct members members = { 0 };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++, operations++)
		CHECK(!find_cache(&list, &members, words[i], &running, &member) && running == &mapped[runs[i]], "%s", words[i]);
	CHECK(find_cache(&list, &members, "data", &running, &member) == LARDER_NOT_FOUND && !running, "a volume");
}

int main(void)
{
	run_test("each_name", each_name);
	return 0;
}
