// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the kernel says of snapshots, dm-integrity and md arrays: lib/cow.c, lib/integrity.c, lib/md.c; figures that cannot be, too.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <dirent.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/cow.c"
#include "../../lib/integrity.c"

/* The directory of an array. */
static struct dirent *next_entry(void);
static DIR *begin(void);
#define opendir(path)  ((void)(path), begin())
#define readdir(dir)   ((void)(dir), next_entry())
#define closedir(dir)  ((void)(dir))
#include "../../lib/md.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

static const char *said; /* status of a target; NULL: its device has another one */
static bool volume_shown, snapshot_there; /* devices of dm with tables */

bool mapped_status(const char *name, const char *target, char *text, size_t size)
{
	snprintf(text, size, "%s", said ? said : "");
	return *name && *target && said;
}

bool mapped_is_shown(const char *dm_uuid)
{
	return strstr(dm_uuid, BELOW_SNAPSHOT) ? snapshot_there : volume_shown;
}

bool mapped_name_of(const char *dm_uuid, char name[static DM_NAME_MAX])
{
	snprintf(name, DM_NAME_MAX, "%s", dm_uuid);
	return mapped_is_shown(dm_uuid);
}

/* What is made of dm devices; a start of a snapshot is refused. */
static bool has_target;

bool target_version(const char *target, uint32_t version[static 3])
{
	memset(version, 0, 3 * sizeof(*version));
	return has_target || strcmp(target, COW_SNAPSHOT);
}

bool mapped_look(const char *name, char uuid[static DM_UUID_MAX], dev_t *number)
{
	*uuid = '\0';
	*number = 0;
	return !*name;
}

int mapped_create(const char *name, const char *uuid, const char *target, uint64_t sectors, const char *params)
{
	(void)uuid;
	(void)sectors;
	(void)params;
	return strcmp(target, COW_SNAPSHOT) ? LARDER_DONE : complain(LARDER_FAILED, "%s: cannot create it", name);
}

int mapped_remove_left(const char *dm_uuid)
{
	(void)dm_uuid;
	return LARDER_DONE;
}

static struct {
	const char *name, *text;
} files[8]; /* in sysfs */
static const char *entries[3]; /* of the array's directory */
static size_t nr_entries, entry_at;

static DIR *begin(void)
{
	entry_at = 0;
	return (DIR *)entries;
}

static struct dirent *next_entry(void)
{
	static struct dirent entry;

	if (entry_at == nr_entries)
		return NULL;
	snprintf(entry.d_name, sizeof(entry.d_name), "%s", entries[entry_at++]);
	return &entry;
}

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
	static const uint8_t uuid[16] = { 1 };
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
		snapshot_there = true;
		cow_status(uuid, uuid, &status);
		CHECK(status.state == cases[i].state && cow_percent(&status) == cases[i].percent, "%s: %u", said, cow_percent(&status));
	}
}

/* What was removed beside a volume that is shown is lost, and so is what has another table by now. */
static void removed(void)
{
	static const uint8_t uuid[16] = { 1 };
	static const struct {
		bool shown, there;
		const char *said;
		enum cow_state state;
		bool lost;
	} cases[] = {
		{ true, true, "64/128 16", COW_VALID, false },
		{ true, true, "Invalid", COW_INVALID, true },
		{ true, true, NULL, COW_GONE, true },
		{ true, false, NULL, COW_GONE, true },
		{ false, true, "64/128 16", COW_VALID, false },
		{ false, true, NULL, COW_ABSENT, false },
		{ false, false, NULL, COW_ABSENT, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		static const struct stack_snapshot ready = { .state = SNAPSHOT_READY };
		struct cow_status status;

		volume_shown = cases[i].shown;
		snapshot_there = cases[i].there;
		said = cases[i].said;
		cow_status(uuid, uuid, &status);
		CHECK(status.state == cases[i].state && cow_is_lost(uuid, uuid) == cases[i].lost, "%zu: %d", i, status.state);
		CHECK(!strcmp(cow_state_text(&ready, &status), "invalid") == cases[i].lost, "%zu: %s", i, cow_state_text(&ready, &status));
		CHECK(cow_is_there(&status) == (cases[i].there && cases[i].said), "%zu", i);
	}
}

/* A missing module is no reason to give a snapshot up. */
static void refused(void)
{
	static const struct cow cow = { .name = "root", .snapshot = { { .name = "daily", .store = "/dev/sdz", .bytes = COW_STORE_MIN } }, .number = 1 };

	for (unsigned there = 0; there < 2; there++) {
		FILE *usual = stderr;
		size_t length;
		char *text;

		has_target = there;
		stderr = open_memstream(&text, &length);
		CHECK(cow_start(&cow, "larder", 8, "x") == LARDER_FAILED, "started");
		fclose(stderr);
		stderr = usual;
		CHECK(!!strstr(text, "--drop-snapshot daily") == there, "%s", text);
		CHECK(!!strstr(text, "/dev/sdz, cannot be read") == there, "%s", text);
		CHECK(!!strstr(text, "dm-snapshot is missing") == !there, "%s", text);
		free(text);
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

static void array(const char *const texts[][2], size_t number)
{
	memset(files, 0, sizeof(files));
	for (size_t i = 0; i < number; i++) {
		files[i].name = texts[i][0];
		files[i].text = texts[i][1];
	}
}

static void three_disks(void)
{
	entries[0] = "dev-sdb";
	entries[1] = "dev-sdc";
	entries[2] = "dev-sdd";
	nr_entries = 3;
}

static void places(void)
{
	static const char *const texts[][2] = {
		{ "md/raid_disks", "4294967295" }, /* more than there can be: an end all the same */
		{ "md/component_size", "1048576" },
		{ "md/dev-sdb/state", "in_sync" },
		{ "md/dev-sdb/slot", "0" },
		{ "md/dev-sdb/block/size", "4194304" },
		{ "md/dev-sdb/offset", "2048" },
	};
	struct md_disks found;
	uint64_t now, room;

	array(texts, sizeof(texts) / sizeof(texts[0]));
	entries[0] = "dev-sdb";
	nr_entries = 1;
	CHECK(md_leg_room(1, &now, &room) && now == 1ull << 30 && room == (4194304ull - 2048) * 512, "%llu", (u64)room);
	CHECK(md_disks(1, &found) && md_leg_offset(1, &found) == 2048, "%llu", (u64)md_leg_offset(1, &found));
	CHECK(md_lacks(1) == ~UINT64_C(1), "%llx", (u64)md_lacks(1));
	files[4].text = "4096"; /* less than it takes */
	CHECK(md_leg_room(1, &now, &room) && room == now, "%llu", (u64)room);
	files[3].text = "none"; /* a spare: md takes no more of the others than it has, too */
	files[4].text = "3145728";
	CHECK(md_leg_room(1, &now, &room) && room == (3145728ull - 2048) * 512, "%llu", (u64)room);
	CHECK(md_disks(1, &found) && md_leg_offset(1, &found) == UINT64_MAX, "of a spare");
}

/* Whatever links to its disks there are. */
static void lacks(void)
{
	static const char *const texts[][2] = {
		{ "md/raid_disks", "2" },
		{ "md/array_state", "clean" },
		{ "md/dev-sdb/state", "in_sync" },
		{ "md/dev-sdb/slot", "0" },
		{ "md/dev-sdc/state", "" },
		{ "md/dev-sdc/slot", "1" },
		{ "md/dev-sdd/state", "" },
		{ "md/dev-sdd/slot", "1" },
	};
	static const struct {
		const char *old, *with;
		unsigned lacks, rebuilt;
		const char *state;
	} cases[] = {
		{ "in_sync", "spare", 0, 0, "active" },
		{ "in_sync,want_replacement", "spare,replacement", 0, 0, "active" },
		{ "faulty", "in_sync", 0, 0, "active" }, /* it has taken its place */
		{ "in_sync,write_error,want_replacement", "in_sync,replacement", 0, 0, "active" },
		{ "faulty", "spare", 2, 2, "degraded" },
		{ "spare", "faulty", 2, 2, "degraded" },
		{ "faulty", "faulty", 2, 0, "degraded" },
	};
	struct md_lost lost;
	unsigned missing;

	array(texts, sizeof(texts) / sizeof(texts[0]));
	three_disks();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		files[4].text = cases[i].old;
		files[6].text = cases[i].with;
		md_look_lost(1, &lost);
		CHECK(lost.lacks == cases[i].lacks && md_lacks(1) == lost.lacks, "%zu: %llx", i, (u64)lost.lacks);
		CHECK(lost.rebuilt == cases[i].rebuilt, "%zu: %llx", i, (u64)lost.rebuilt);
		CHECK(!strcmp(md_state(1, &missing), cases[i].state) && missing == !!cases[i].lacks, "%zu: %s", i, md_state(1, &missing));
	}
}

/* A disk is copied where another one takes its place, not where md alone wants that. */
static void copied(void)
{
	static const char *const texts[][2] = {
		{ "md/raid_disks", "2" },
		{ "md/dev-sdb/state", "in_sync" },
		{ "md/dev-sdb/slot", "0" },
		{ "md/dev-sdc/state", "" },
		{ "md/dev-sdc/slot", "1" },
		{ "md/dev-sdd/state", "" },
		{ "md/dev-sdd/slot", "" },
	};
	static const struct {
		const char *old, *with, *slot;
		enum md_role role;
		bool unwanted;
	} cases[] = {
		{ "in_sync", "spare", "none", MD_MEMBER, false },
		{ "in_sync,want_replacement", "spare,replacement", "1", MD_COPIED, true },
		{ "in_sync,write_error,want_replacement", "in_sync,replacement", "1", MD_COPIED, true },
		{ "in_sync,write_error,want_replacement", "spare", "none", MD_MEMBER, true },
		{ "in_sync,write_error,want_replacement", "spare", "0", MD_MEMBER, true },
		{ "in_sync,want_replacement", "faulty", "1", MD_MEMBER, true },
	};
	struct md_disks found;

	array(texts, sizeof(texts) / sizeof(texts[0]));
	three_disks();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		files[3].text = cases[i].old;
		files[5].text = cases[i].with;
		files[6].text = cases[i].slot;
		CHECK(md_disks(1, &found) && found.number == 3 && found.disk[0].role == MD_MEMBER, "%zu", i);
		CHECK(found.disk[1].role == cases[i].role && found.disk[1].unwanted == cases[i].unwanted, "%zu: %d", i, found.disk[1].role);
		CHECK(!found.missing, "%zu: %u", i, found.missing);
	}
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
	run_test("removed", removed);
	run_test("refused", refused);
	run_test("integrity", integrity);
	run_test("places", places);
	run_test("lacks", lacks);
	run_test("copied", copied);
	run_test("disks", disks);
	return 0;
}
