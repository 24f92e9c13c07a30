// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/md_leg.c: random arrays that lose disks, get them back, and run in parts, with what each disk has been told by md; the judge knows what was written
 * where.
 *
 *	test_md_leg [seed]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/md_leg.c"

typedef unsigned long long u64;
static long pure_live;
#include "seeded.h"

#define WORLDS 20000
#define PLACES 5

static bool chance(unsigned percent)
{
	return rnd(100) < percent;
}

/* ------------------------------------------------------------- superblocks */

static union {
	struct mdp_superblock_1 sb;
	uint8_t bytes[MD_SUPER_BYTES];
	uint16_t roles[MD_SUPER_BYTES / 2];
} disk;

static void fill(unsigned number, unsigned places)
{
	memset(&disk, 0, sizeof(disk));
	disk.sb.magic = htole32(MD_SB_MAGIC);
	disk.sb.major_version = htole32(1);
	disk.sb.level = htole32(5);
	disk.sb.raid_disks = htole32(places);
	disk.sb.dev_number = htole32(number);
	disk.sb.events = htole64(7);
	disk.sb.resync_offset = htole64(UINT64_MAX);
	disk.sb.max_dev = htole32(places + 2);
	for (unsigned i = 0; i < places + 2; i++)
		disk.roles[128 + i] = htole16(i < places ? i : MD_DISK_ROLE_SPARE);
	memset(disk.sb.set_uuid, 1, 16);
	memset(disk.sb.device_uuid, 2, 16);
}

static void superblocks(void)
{
	struct md_leg leg;

	fill(1, 3);
	CHECK(md_leg_decode(&disk, &leg) && leg.place == 1 && leg.places == 3 && leg.level == 5 && leg.events == 7 && leg.holds == 7, "a leg");
	CHECK(!leg.dirty && !leg.logged && !leg.partial && !leg.reshaped && leg.array[0] == 1 && leg.own[15] == 2, "its state");
	disk.roles[128] = htole16(MD_DISK_ROLE_FAULTY);
	CHECK(md_leg_decode(&disk, &leg) && leg.holds == 6, "one that failed");
	disk.sb.dev_number = htole32(3);
	CHECK(md_leg_decode(&disk, &leg) && leg.place == MD_ROLE_SPARE, "a spare");
	disk.sb.dev_number = htole32(0);
	CHECK(md_leg_decode(&disk, &leg) && leg.place == MD_ROLE_NONE, "failed itself");
	disk.roles[130] = htole16(MD_DISK_ROLE_JOURNAL);
	disk.sb.dev_number = htole32(2);
	CHECK(md_leg_decode(&disk, &leg) && leg.place == MD_ROLE_NONE && leg.holds == 2, "a journal");
	disk.sb.resync_offset = 0;
	disk.sb.feature_map = htole32(MD_FEATURE_PPL | MD_FEATURE_RECOVERY_OFFSET | MD_FEATURE_RESHAPE_ACTIVE);
	CHECK(md_leg_decode(&disk, &leg) && leg.dirty && leg.logged && leg.partial && leg.reshaped, "features");
	for (unsigned i = 0; i < 20000; i++) {
		for (unsigned k = 0; k < 1 + rnd(200); k++)
			disk.bytes[rnd(sizeof(disk))] = (uint8_t)rnd(256);
		if (chance(90)) {
			disk.sb.magic = htole32(MD_SB_MAGIC);
			disk.sb.major_version = htole32(1);
		}
		if (md_leg_decode(&disk, &leg))
			CHECK(leg.place >= MD_ROLE_NONE && leg.place < MD_PLACES_MAX, "place %d", leg.place);
	}
	disk.sb.magic = 0;
	CHECK(!md_leg_decode(&disk, &leg), "no superblock");
}

/* ------------------------------------------------------------- arrays that come apart */

/* What is on each disk: each state of the array has a number of its own. */
static struct md_leg leg[PLACES];
static u64 writes[PLACES];
static unsigned places, taken, left;

/* These alone run, as a mirror: md notes who is lost, then they are written to. */
static void run(unsigned members)
{
	u64 events = 0;

	for (unsigned i = 0; i < places; i++)
		if (members >> i & 1 && leg[i].events > events)
			events = leg[i].events;
	for (unsigned i = 0; i < places; i++)
		if (members >> i & 1) {
			leg[i].events = events + 1;
			leg[i].holds = members;
			leg[i].dirty = chance(50);
		}
	if (chance(70)) {
		u64 now = rnd64();

		for (unsigned i = 0; i < places; i++)
			if (members >> i & 1)
				writes[i] = now;
	}
}

/* The states that each disk has been in: what the judge knows. */
struct history {
	u64 state[64];
	unsigned number;
};
static struct history history[PLACES];

static void note(unsigned members)
{
	for (unsigned i = 0; i < places; i++)
		if (members >> i & 1 && history[i].number < 64 && (!history[i].number || history[i].state[history[i].number - 1] != writes[i]))
			history[i].state[history[i].number++] = writes[i];
}

/* What is on the disk was, at some time, on the other one too. */
static bool came_from(unsigned disk_place, unsigned other)
{
	for (unsigned i = 0; i < history[other].number; i++)
		if (history[other].state[i] == writes[disk_place])
			return true;
	return false;
}

static void disks_return(void)
{
	for (unsigned w = 0; w < WORLDS; w++) {
		unsigned members;

		places = 2 + (unsigned)rnd(PLACES - 1);
		members = (1u << places) - 1;
		memset(history, 0, sizeof(history));
		for (unsigned i = 0; i < places; i++) {
			leg[i] = (struct md_leg){ .events = 10, .holds = members, .place = (int)i, .places = places, .level = 1 };
			leg[i].own[0] = (uint8_t)i;
			writes[i] = 1;
		}
		note(members);
		for (unsigned step = 0; step < 12; step++) {
			unsigned kind = (unsigned)rnd(10);

			if (kind < 5) {
				members &= ~(1u << rnd(places)); /* one is lost */
				if (!members)
					members = 1u << rnd(places);
			} else if (kind == 5) {
				members = 1u << rnd(places); /* another part is started alone, by word */
			} else {
				struct md_now now = { .places = places, .level = 1, .whole = members, .held = members };
				unsigned who = (unsigned)rnd(places), of = (unsigned)__builtin_ctz(members);

				for (unsigned i = 0; i < places; i++)
					if (members >> i & 1 && leg[i].events > now.events)
						now.events = leg[i].events;
				if (md_return(&leg[who], &now) == MD_RETURN_TAKE) {
					CHECK(!(members >> who & 1), "it is in the array");
					CHECK(came_from(who, of), "what is on disk %u was never on the array: it is LOST", who);
					members |= 1u << who;
					writes[who] = writes[of];
					history[who] = history[of];
					taken++;
				} else {
					left += !(members >> who & 1);
				}
			}
			run(members);
			note(members);
		}
	}
	CHECK(taken > WORLDS / 4 && left > WORLDS / 20, "%u taken, %u left", taken, left);
}

static void verdicts(void)
{
	struct md_leg one = { .events = 10, .holds = 7, .place = 2, .places = 3, .level = 5 };
	struct md_now now = { .events = 12, .whole = 3, .held = 3, .places = 3, .level = 5 };

	CHECK(md_return(&one, &now) == MD_RETURN_TAKE, "an older one is left");
	one.events = 12;
	CHECK(md_return(&one, &now) == MD_RETURN_TAKE, "one as new is left");
	one.events = 13;
	CHECK(md_return(&one, &now) == MD_RETURN_NEWER, "a newer one is taken");
	one.events = 10;
	one.holds = 5;
	CHECK(md_return(&one, &now) == MD_RETURN_APART, "one that ran without a disk of it is taken");
	one.holds = 7;
	now.held = 7;
	CHECK(md_return(&one, &now) == MD_RETURN_UNNEEDED, "its place is rebuilt");
	now.held = 3;
	one.place = MD_ROLE_NONE;
	CHECK(md_return(&one, &now) == MD_RETURN_NO_DISK, "a failed one is taken");
	one.place = MD_ROLE_SPARE;
	CHECK(md_return(&one, &now) == MD_RETURN_TAKE, "a spare is left");
	one.places = 4;
	CHECK(md_return(&one, &now) == MD_RETURN_RESHAPED, "another shape");
	now.events = 0;
	one.places = 3;
	CHECK(md_return(&one, &now) == MD_RETURN_NEWER, "nothing is known of the array");
	for (int i = 0; i <= MD_RETURN_RESHAPED; i++)
		CHECK(!md_return_reason((enum md_return)i) == (i == MD_RETURN_TAKE || i == MD_RETURN_UNNEEDED), "the reason of %d", i);
}

/* ------------------------------------------------------------- the write hole */

static void write_hole(void)
{
	static const int levels[] = { 0, 1, 4, 5, 6, 10 };
	struct md_rest rest;

	md_rest(NULL, 0, &rest);
	CHECK(!rest.write_hole && !rest.places, "of nothing");
	for (unsigned w = 0; w < WORLDS; w++) {
		int level = levels[rnd(6)];
		unsigned all = 4, number = 0, missing = 0, parity = level == 6 ? 2 : level == 4 || level == 5;
		bool dirty = chance(50), logged = chance(30);
		struct md_leg legs[8];
		uint64_t fresh = 0;

		for (unsigned i = 0; i < all; i++) {
			bool away = chance(20), stale = number && chance(15), partial = chance(5);

			missing += away || stale || partial;
			if (away)
				continue;
			legs[number] = (struct md_leg){ .events = stale ? 8 : 10, .holds = 15, .place = (int)i, .places = all, .level = level, .partial = partial,
							.dirty = dirty || stale, .logged = logged };
			if (!stale && !partial)
				fresh |= 1u << number;
			number++;
		}
		if (chance(20)) /* a spare */
			legs[number++] = (struct md_leg){ .events = 10, .holds = 15, .place = MD_ROLE_SPARE, .places = all, .level = level, .dirty = dirty, .logged = logged };
		if (!number)
			continue;
		md_rest(legs, number, &rest);
		CHECK(rest.missing == missing && rest.fresh == fresh, "%u missing, not %u", rest.missing, missing);
		CHECK(rest.write_hole == (dirty && !logged && missing && missing <= parity), "level %d, %u missing", level, missing);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("superblocks", superblocks);
	run_test("verdicts", verdicts);
	run_test("disks_return", disks_return);
	run_test("write_hole", write_hole);
	return 0;
}
