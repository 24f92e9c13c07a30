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
	CHECK(md_leg_decode(&disk, &leg) && leg.place == 1 && leg.places == 3 && leg.level == 5 && leg.events == 7 && leg.holds == 7 && leg.number == 1 && leg.numbers == 7, "a leg");
	CHECK(!leg.dirty && !leg.logged && !leg.partial && !leg.reshaped && leg.array[0] == 1 && leg.own[15] == 2, "its state");
	disk.roles[128] = htole16(MD_DISK_ROLE_FAULTY);
	CHECK(md_leg_decode(&disk, &leg) && leg.holds == 6 && leg.numbers == 6, "one that failed");
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

/* A mirror of three has become one of two meanwhile: the disk that was in the third place moved up. */
static void mirror_moved(void)
{
	struct md_leg one = { .events = 10, .holds = 5, .numbers = 5, .number = 2, .place = 2, .places = 3, .level = 1 };
	struct md_now now = { .events = 12, .whole = 1, .held = 1, .numbers = 1, .places = 2, .level = 1 };

	CHECK(md_return(&one, &now) == MD_RETURN_TAKE, "a disk of a mirror that had more places");
	now.numbers = 8;
	CHECK(md_return(&one, &now) == MD_RETURN_APART, "one that ran without the disk in the other place is taken");
	now.numbers = UINT64_MAX;
	CHECK(md_return(&one, &now) == MD_RETURN_APART, "one of which that is not known is taken");
	now.numbers = 1;
	one.events = 13;
	CHECK(md_return(&one, &now) == MD_RETURN_NEWER, "a newer one is taken");
	one.events = 10;
	one.reshaped = true;
	CHECK(md_return(&one, &now) == MD_RETURN_RESHAPED, "one that is being reshaped is taken");
	one.reshaped = false;
	one.level = now.level = 10;
	now.held = 3;
	CHECK(md_return(&one, &now) == MD_RETURN_UNNEEDED, "of no mirror: a place that is not there");
	one.place = 0;
	now.held = 2;
	CHECK(md_return(&one, &now) == MD_RETURN_RESHAPED, "of no mirror: another number of places");
	one.level = now.level = 1;
	now.held = 3;
	CHECK(md_return(&one, &now) == MD_RETURN_UNNEEDED, "no place is free");
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
	mirror_moved();
	now.events = 0;
	one.places = 3;
	CHECK(md_return(&one, &now) == MD_RETURN_NEWER, "nothing is known of the array");
	for (int i = 0; i <= MD_RETURN_RESHAPED; i++)
		CHECK(!md_return_reason((enum md_return)i) == (i == MD_RETURN_TAKE || i == MD_RETURN_UNNEEDED), "the reason of %d", i);
}

/* As its superblock says: clean or written to, with a journal, a log of the parity or neither; and its cache. */
static void by_the_bitmap(void)
{
	static const uint32_t features[] = { 0, MD_FEATURE_BITMAP_OFFSET, MD_FEATURE_PPL, MD_FEATURE_JOURNAL };

	for (unsigned i = 0; i < 4; i++)
		for (unsigned dirty = 0; dirty < 3; dirty++)
			for (unsigned volatile_cache = 0; volatile_cache < 2; volatile_cache++) {
				bool lost = volatile_cache && (dirty || features[i] == MD_FEATURE_JOURNAL);
				struct md_leg one;

				fill(1, 3);
				disk.sb.feature_map = htole32(features[i]);
				disk.sb.resync_offset = htole64(!dirty ? UINT64_MAX : dirty == 1 ? 0 : 4096);
				CHECK(md_leg_decode(&disk, &one), "a leg");
				CHECK(md_return_by_bitmap(&one, volatile_cache) == !lost, "features %x, dirty %u, volatile %u", features[i], dirty, volatile_cache);
			}
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

/* ------------------------------------------------------------- a change of the number of places that was cut off */

/* Some were told of it, at one event more; all have the same data, but one that is away, or was lost before. */
static void torn_shapes(void)
{
	static const int levels[] = { 1, 5, 6, 10 };
	unsigned other = 0, torn = 0, whole = 0;

	for (unsigned w = 0; w < WORLDS; w++) {
		int level = levels[rnd(4)];
		unsigned disks = (level == 1 ? 2 : 4) + (unsigned)rnd(3), before = level == 1 && chance(50) ? disks : disks - 1, after = before == disks ? disks - 1 : disks;
		unsigned dispense = level == 1 ? 63 : level == 6 ? 2 : 1, away = chance(30) ? (unsigned)rnd(disks) : 64, lost = chance(20) ? (unsigned)rnd(disks) : 64;
		unsigned number = 0, told = 0, new_whole = 0, old_whole = 0;
		struct md_leg legs[8];
		struct md_rest rest;
		uint64_t alike;

		if (after < before)
			lost = disks - 1; /* taken out before that */
		for (unsigned i = 0; i < disks; i++) {
			bool news = chance(50);
			uint32_t its = news ? after : before;
			uint64_t all = (1u << its) - 1, mask = lost < 64 ? ~(UINT64_C(1) << lost) : UINT64_MAX;

			if (i == away)
				continue;
			/* the last one has a place only while there are as many */
			legs[number] = (struct md_leg){ .events = i == lost ? 3 : news ? 11 : 10, .holds = all & mask, .numbers = all & mask, .number = i,
							.place = i < its ? (int)i : MD_ROLE_SPARE, .places = its, .level = level };
			told += i != lost && news;
			if (i != lost && i < its)
				*(news ? &new_whole : &old_whole) += 1;
			number++;
		}
		if (!number || (lost < 64 && number == 1 && legs[0].events == 3))
			continue;
		md_rest(legs, number, &rest);
		alike = rest.alike;
		CHECK(alike && !(rest.fresh & ~alike) && !(rest.torn & alike), "shapes");
		for (unsigned i = 0; i < number; i++) {
			unsigned first = (unsigned)__builtin_ctzll(alike);

			CHECK((alike >> i & 1) == (legs[i].places == legs[first].places), "mdadm takes those of one shape alone: disk %u", i);
			CHECK(!(rest.torn >> i & 1) || legs[i].events >= 10, "disk %u was lost long before", i);
			CHECK(!(rest.fresh >> i & 1) || (legs[i].events >= 10 && legs[i].place >= 0), "disk %u is not whole", i);
		}
		if (!told || (level == 1 ? new_whole > 0 : after - new_whole <= dispense)) {
			CHECK(rest.places == (told ? after : before), "the newest, of which there are enough: %u places", rest.places);
		} else if (level == 1 ? old_whole > 0 : before - old_whole <= dispense) {
			CHECK(rest.places == before && rest.missing == before - old_whole, "those before, of which alone there are enough");
			other++;
		}
		CHECK(rest.mirror_torn <= (level == 1 && rest.torn), "a mirror of two shapes");
		CHECK(rest.awaited <= ((unsigned)__builtin_popcountll(alike) < number && rest.missing), "a disk that is awaited");
		if (level == 1 && rest.torn && rest.fresh) {
			CHECK(rest.mirror_torn || away < 64, "all that it had are here");
			CHECK(!rest.mirror_torn || away >= rest.places || away == lost, "a disk that it had is away");
		}
		torn += rest.mirror_torn;
		whole += !rest.missing;
	}
	CHECK(other > WORLDS / 50 && torn > WORLDS / 20 && whole > WORLDS / 20, "%u, %u, %u", other, torn, whole);
}

/* Disks 0 and 1 of a mirror; each ran without the other, and md has counted more events of the first, which its owner has given up. */
static void a_half_that_was_given_up(void)
{
	struct md_leg leg[2] = { { .level = 1, .places = 2, .size = 100, .events = 90, .place = 0, .holds = 1 },
				 { .level = 1, .places = 2, .size = 100, .events = 50, .place = 1, .number = 1, .holds = 2 } };

	CHECK(md_behind(leg, (uint64_t[]){ 9, 13 }, 2, 12) == 1, "the first is behind");
	CHECK(!md_behind(leg, (uint64_t[]){ 9, 11 }, 2, 12), "nobody is as new as it should be");
	CHECK(!md_behind(leg, (uint64_t[]){ 12, 13 }, 2, 12), "neither is behind");
	CHECK(!md_behind(leg, (uint64_t[]){ 9, 0 }, 2, 12) && !md_behind(leg, (uint64_t[]){ 0, 13 }, 2, 12), "one cannot be read");
	CHECK(!md_behind(leg, (uint64_t[]){ 9, 13 }, 1, 12), "it is the only one");
	leg[0].partial = true;
	CHECK(!md_behind(leg, (uint64_t[]){ 9, 13 }, 2, 12), "it is being rebuilt, and has not got that yet");
	leg[0].partial = false;
	leg[1].holds = 3;
	CHECK(!md_behind(leg, (uint64_t[]){ 9, 13 }, 2, 12), "they are of one array: md copies the one to the other");
	leg[1].holds = 2;
	leg[1].size = 200;
	CHECK(!md_behind(leg, (uint64_t[]){ 9, 13 }, 2, 12), "of another shape");
	leg[0].level = leg[1].level = 10;
	leg[1].size = 100;
	CHECK(!md_behind(leg, (uint64_t[]){ 9, 13 }, 2, 12), "no disk of it has all of it");
	operations++;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	run_test("superblocks", superblocks);
	run_test("verdicts", verdicts);
	run_test("by_the_bitmap", by_the_bitmap);
	run_test("disks_return", disks_return);
	run_test("write_hole", write_hole);
	run_test("torn_shapes", torn_shapes);
	run_test("a_half_that_was_given_up", a_half_that_was_given_up);
	return 0;
}
