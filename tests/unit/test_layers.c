// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the kernel says of snapshots, dm-integrity and md arrays: lib/cow.c, lib/integrity.c, lib/md.c; figures that cannot be, too.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/cow.c"
#include "../../lib/integrity.c"
#include "../../lib/md.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

static const char *said; /* status of a target */

bool mapped_status(const char *name, const char *target, char *text, size_t size)
{
	snprintf(text, size, "%s", said);
	return *name && *target;
}

static struct {
	const char *name, *text;
} files[4]; /* in sysfs */

bool device_attribute(dev_t number, const char *name, char *text, size_t size)
{
	for (size_t i = 0; number && i < sizeof(files) / sizeof(files[0]); i++)
		if (files[i].name && !strcmp(files[i].name, name)) {
			snprintf(text, size, "%s", files[i].text);
			return true;
		}
	return false;
}

static void snapshots(void)
{
	static const struct {
		const char *said;
		enum cow_state state;
		unsigned percent;
	} cases[] = {
		{ "64/128 16", COW_VALID, 50 },
		{ "128/128 16", COW_VALID, 100 },
		{ "0/0 0", COW_VALID, 0 },
		{ "9999999999/1 16", COW_VALID, 100 },
		{ "1/18446744073709551615 16", COW_INVALID, 0 },
		{ "Invalid", COW_INVALID, 0 },
		{ "Overflow", COW_OVERFLOW, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cow_status status;

		said = cases[i].said;
		cow_status("volume", "snapshot", &status);
		CHECK(status.state == cases[i].state && cow_percent(&status) == cases[i].percent, "%s: %u", said, cow_percent(&status));
	}
}

static void integrity(void)
{
	static const struct {
		const char *said;
		uint64_t computed;
	} cases[] = { { "0 1000 -", 1000 }, { "0 1000 10", 10 }, { "0 1000 2000", 1000 } };
	static const uint8_t leg[16] = { 1 };
	struct leg_status status;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		said = cases[i].said;
		CHECK(leg_status(leg, &status) && status.sectors == 1000 && status.computed == cases[i].computed, "%s: %llu", said, (u64)status.computed);
	}
	said = "1000";
	CHECK(!leg_status(leg, &status), "of half a status");
}

static void places(void)
{
	uint64_t now, room;

	files[0].name = "md/raid_disks";
	files[1].name = "md/component_size";
	files[2].name = "md/rd0/block/size";
	files[3].name = "md/rd0/offset";
	files[0].text = "4294967295"; /* more than there can be: an end all the same */
	files[1].text = "1048576";
	files[2].text = "4194304";
	files[3].text = "2048";
	CHECK(md_leg_room(1, &now, &room) && now == 1ull << 30 && room == (4194304ull - 2048) * 512, "%llu", (u64)room);
	files[2].text = "4096"; /* less than it takes */
	CHECK(md_leg_room(1, &now, &room) && room == now, "%llu", (u64)room);
}

static void disks(void)
{
	static const char *const slots[] = { "none", "3", "-7", "" };
	struct md_disks found = { 0 };

	memset(files, 0, sizeof(files));
	files[0].name = "md/dev-sdb/state";
	files[0].text = "spare";
	files[1].name = "md/dev-sdb/slot";
	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
		files[1].text = slots[i];
		look_at(1, "dev-sdb", &found);
		CHECK(found.number == i + 1 && found.disk[i].place == (i == 1 ? 3 : -1), "%s: %d", slots[i], found.disk[i].place);
		CHECK(found.disk[i].role == (i == 1 ? MD_REBUILT : MD_SPARE), "%s", slots[i]);
	}
}

int main(void)
{
	run_test("snapshots", snapshots);
	run_test("integrity", integrity);
	run_test("places", places);
	run_test("disks", disks);
	return 0;
}
