// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/volume_attach.c: a cache that runs is found by each name that other verbs take; of root's volume it is said that its initramfs needs the cache.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../tools/volume_attach.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"
#include "memory.h"

#define UUID "11111111-2222-4333-8444-555555555555"

static const char *of_root = ""; /* what larder-root prints */
static unsigned images; /* so often it was said that the initramfs is to be made anew */

bool program_answer(const char *const *words, double seconds, char *answer, size_t room, size_t *length)
{
	*length = strlen(of_root);
	memcpy(answer, of_root, *length);
	return true;
}

void remark(const char *format, ...)
{
	images += !!strstr(format, "update-initramfs");
}

void members_scan(struct members *members)
{
}

void members_free(struct members *members)
{
}

const struct member *member_volume(const struct members *members, const uint8_t uuid[16])
{
	return NULL;
}

int mapped_table(const struct mapped *mapped, char **params)
{
	*params = must_print("/dev/sda - 0");
	return LARDER_DONE;
}

int mapped_reload(const char *name, const char *target, uint64_t sectors, const char *params)
{
	CHECK(!strcmp(params, "/dev/sda /dev/mapper/larder-cache-fast 0"), "%s", params);
	return LARDER_DONE;
}

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

static void root(void)
{
	struct mapped mapped[] = { { .name = "larder-cache-fast", .cache = true, .status = "uuid=22222222-2222-4333-8444-555555555555" },
				   { .name = "data", .target = "data", .status = "uuid=" UUID " cache=-" } };
	const struct mapped_list list = { mapped, 2 };

	for (unsigned i = 0; i < 4; i++, operations++) {
		of_root = i & 1 ? "x\n" UUID "\n" : "33333333-2222-4333-8444-555555555555\n";
		images = 0;
		CHECK(!attach(&list, &mapped[1], "fast", i & 2) && images == (i == 1), "%u: %u", i, images);
	}
}

int main(void)
{
	run_test("each_name", each_name);
	run_test("root", root);
	return 0;
}
