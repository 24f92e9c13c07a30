// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * stack_disks_behind() of lib/stack_age.c, which reads disks of a mirror that does not run, and SSDs: here these are files.  Which
 * disks md takes is told by md_rest(); whether the kernel refuses them then, by `seen`.
 *
 *	test_stack_age [seed]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../lib/stack_age.c"

typedef unsigned long long u64;
static long pure_live;
#include "seeded.h"

#define WORLDS 100
#define DISKS 3
#define START 2048u /* sectors */
#define SECTORS 8192u
#define COPY (LARDER_DEF_DATA_OFFSET - LARDER_SB_SIZE)

static char directory[] = "/tmp/larder-test_stack_age-XXXXXX";
static struct stack stack = { .uuid = { 7 }, .cache = { 5 }, .name = "data", .legs = 2, .mode = "writeback", .raid = "1" };
static struct md_array array;
static struct member ssd[2];
static struct members members = { (struct member *[]){ &ssd[0], &ssd[1] }, 1 };

static bool chance(unsigned percent)
{
	return rnd(100) < percent;
}

/* ------------------------------------------------------------- files */

static char *file_name(const char *kind, unsigned number)
{
	char *path = must_print("%s/%s%u", directory, kind, number);

	CHECK(!fclose(fopen(path, "w")) && !truncate(path, (off_t)(START + SECTORS) << LARDER_SECTOR_SHIFT), "%s", path);
	return path;
}

static void files_make(void)
{
	CHECK(mkdtemp(directory), "%s", directory);
	array.number = 2;
	for (unsigned i = 0; i < DISKS; i++)
		array.leg[i] = file_name("leg", i);
	for (unsigned i = 0; i < 2; i++) {
		struct larder_cache_sb *sb = &ssd[i].sb.cache;

		ssd[i].path = file_name("ssd", i);
		sb->head.kind = htole32(LARDER_KIND_CACHE);
		sb->head.uuid[0] = (uint8_t)(1 + i);
		memset(sb->cache_uuid, 5, 16);
		sb->segment_size = htole32(1 << 20);
		sb->nr_segments = htole32(4);
		sb->segments_offset = htole64(LARDER_SEGMENTS_OFFSET);
		sb->device_number = htole32(i);
	}
}

static void files_remove(void)
{
	for (unsigned i = 0; i < DISKS; i++) {
		unlink(array.leg[i]);
		free(array.leg[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		unlink(ssd[i].path);
		free(ssd[i].path);
	}
	rmdir(directory);
}

static void file_bytes(const char *path, uint64_t offset, const void *from, size_t bytes)
{
	FILE *file = fopen(path, "r+");

	CHECK(file && !fseek(file, (long)offset, SEEK_SET) && fwrite(from, bytes, 1, file) == 1 && !fclose(file), "%s", path);
}

/* The table of one SSD has seen so much of the volume. */
static void ssd_sees(unsigned number, uint64_t seen, uint64_t incarnation)
{
	const struct larder_cache_sb *sb = &ssd[number].sb.cache;
	struct larder_table *table = must_allocate(calloc(1, sizeof(*table)));

	memcpy(table->head.cache_uuid, sb->cache_uuid, 16);
	table->head.generation = htole64(1);
	table->head.nr_devices = htole32(1);
	table->head.nr_volumes = htole32(1);
	memcpy(table->devices[number].uuid, sb->head.uuid, 16);
	table->devices[number].state = htole32(1);
	table->devices[number].nr_segments = sb->nr_segments;
	table->devices[number].segments_offset = sb->segments_offset;
	stack_part(&stack, "volume", table->volumes[0].uuid);
	table->volumes[0].state = htole32(LARDER_VOLUME_ATTACHED);
	table->volumes[0].sectors = htole64(64);
	table->volumes[0].incarnation = htole64(incarnation);
	table->volumes[0].seen = htole64(seen);
	table_set_crc(table);
	file_bytes(ssd[number].path, LARDER_TABLE_OFFSET_A, table, sizeof(*table));
	file_bytes(ssd[number].path, LARDER_TABLE_OFFSET_B, table, sizeof(*table));
	free(table);
}

/* And the list on it of the stack's description. */
static void ssd_lists(unsigned number, uint64_t generation)
{
	static struct stack_list list;

	list = (struct stack_list){ .number = 1, .brief = { true } };
	list.stack[0] = stack;
	list.stack[0].generation = generation;
	CHECK(!stack_list_encode(&list, ssd[number].sb.cache.stack), "the list");
}

enum which { MAIN = 1, COPIED = 2, BOTH = 3 };

static void leg_bytes(unsigned number, enum which which, const union superblock *sb)
{
	uint64_t start = (uint64_t)START << LARDER_SECTOR_SHIFT;

	if (which & MAIN)
		file_bytes(array.leg[number], start + LARDER_SB_OFFSET, sb, sizeof(*sb));
	if (which & COPIED)
		file_bytes(array.leg[number], start + COPY, sb, sizeof(*sb));
}

static void leg_is(unsigned number, enum which which, uint64_t generation, uint64_t incarnation, uint64_t described, uint8_t cache)
{
	struct stack own = stack;
	union superblock sb = { 0 };
	bool there;

	own.generation = described;
	sb.head.version = htole32(LARDER_VERSION);
	sb.head.kind = htole32(LARDER_KIND_VOLUME);
	sb.head.generation = htole64(generation);
	sb.head.device_sectors = htole64(SECTORS);
	sb.head.copy_offset = htole64(COPY);
	stack_part(&stack, "volume", sb.head.uuid);
	sb.volume.incarnation = htole64(incarnation);
	sb.volume.data_offset = htole64(LARDER_DEF_DATA_OFFSET);
	sb.volume.sectors = htole64(64);
	memset(sb.volume.cache_uuid, cache, 16);
	CHECK(!stack_encode(&own, sb.volume.stack) && !stack_decode(sb.volume.stack, &own, &there) && there, "the description");
	superblock_set_crc(&sb);
	leg_bytes(number, which, &sb);
}

static void leg_torn(unsigned number, enum which which)
{
	static const union superblock zeroes;

	leg_bytes(number, which, &zeroes);
}

static uint64_t behind(void)
{
	operations++;
	return stack_disks_behind(&members, &stack, &array);
}

static struct md_leg leg_of(unsigned number, unsigned places, uint64_t events, unsigned holds)
{
	return (struct md_leg){ .level = 1, .places = places, .size = SECTORS, .start = START, .events = events,
				.place = (int)number, .number = number, .holds = holds };
}

/* ------------------------------------------------------------- two halves */

/* The cache ran with disk 1 last; md has counted more events of disk 0, and each notes that the other is gone. */
static void two_halves(void)
{
	for (unsigned i = 0; i < 2; i++) {
		array.super[i] = leg_of(i, 2, i ? 50 : 90, 1u << i);
		leg_is(i, BOTH, i ? 8 : 5, 100, 3, 5);
		ssd_lists(i, 3);
	}
	array.number = 2;
	members.number = 1;
	ssd_sees(0, 8, 100);
}

static void by_what_was_seen(void)
{
	two_halves();
	CHECK(behind() == 1, "the cache ran with the other one last");
	ssd_lists(0, 0);
	CHECK(behind() == 1, "whether or not a list tells of the description");
	for (unsigned seen = 6; seen <= 9; seen++) {
		ssd_sees(0, seen, 100);
		CHECK(behind() == (seen <= 8), "seen %u", seen);
	}
	ssd_sees(0, 5, 100);
	CHECK(!behind(), "what nobody has noted makes none older");
	ssd_sees(0, 8, 101);
	CHECK(!behind(), "the cache knows another incarnation");
	two_halves();
	leg_is(0, BOTH, 5, 99, 3, 5);
	CHECK(!behind(), "the one is of another incarnation");
	leg_is(0, BOTH, 5, 100, 3, 5);
	leg_is(1, BOTH, 8, 101, 3, 5);
	CHECK(!behind(), "the other one is");
	leg_is(1, BOTH, 8, 100, 3, 6);
	CHECK(!behind(), "it is of another cache");
	leg_is(0, BOTH, 5, 100, 3, 6);
	CHECK(!behind(), "both are");
}

static void as_md_knows_them(void)
{
	two_halves();
	array.super[1].holds = 3;
	CHECK(!behind(), "they are of one array: md copies the one to the other");
	array.super[1].holds = 2;
	array.super[0].partial = true;
	CHECK(!behind(), "it is being rebuilt");
	two_halves();
	array.number = 1;
	CHECK(!behind(), "it is the only one");
	two_halves();
	array.super[0].level = array.super[1].level = 10;
	CHECK(!behind(), "no disk has all of it");
	two_halves();
	for (unsigned i = 0; i < 2; i++)
		array.super[i].size = SECTORS + 1;
	CHECK(!behind(), "the disks have not all of it");
	two_halves();
	array.super[1].start = START + 1;
	CHECK(!behind(), "it cannot be read from there");
	array.super[1].start = UINT64_MAX;
	CHECK(!behind(), "it begins behind the end");
}

static void copies(void)
{
	for (unsigned torn = 0; torn < 2; torn++)
		for (enum which which = MAIN; which <= COPIED; which++) {
			two_halves();
			leg_torn(torn, which);
			CHECK(behind() == 1, "the other copy counts");
			leg_torn(torn, BOTH);
			CHECK(!behind(), "nothing of it can be read");
			two_halves();
			leg_is(1, which, 7, 100, 3, 5);
			CHECK(behind() == 1, "the one with the higher generation counts");
			leg_is(0, which, 8, 100, 3, 5);
			CHECK(!behind(), "of the other one, too");
		}
	two_halves();
	ssd_lists(0, 4);
	ssd_sees(0, 0, 100);
	leg_is(1, COPIED, 9, 100, 4, 5);
	CHECK(behind() == 1, "and its description");
}

static void several_ssds(void)
{
	two_halves();
	members.number = 2;
	ssd_sees(1, 5, 100);
	CHECK(behind() == 1, "one has left the set before");
	ssd_sees(1, 8, 100);
	ssd_sees(0, 5, 100);
	CHECK(behind() == 1, "the first one");
	ssd_sees(1, 9, 100);
	CHECK(!behind(), "nobody has what the one has seen");
	two_halves();
	members.number = 2;
	ssd_sees(1, 20, 99);
	CHECK(behind() == 1, "one that knows another incarnation says nothing");
	members.number = 0;
	CHECK(!behind(), "none is here");
}

/* What the description says goes first: it does not leave out the one, and `seen` the other. */
static void descriptions_first(void)
{
	two_halves();
	ssd_lists(0, 4);
	leg_is(0, BOTH, 5, 100, 4, 5);
	CHECK(behind() == 2, "by the description alone: never all");
	leg_is(1, BOTH, 8, 100, 4, 5);
	CHECK(behind() == 1, "both have it");
}

/* ------------------------------------------------------------- mirrors that come apart */

/* What the superblock of the volume on each has, of one incarnation; and the table. */
static uint64_t has[DISKS], seen;
static unsigned refused, saved;

static void write_all(void)
{
	for (unsigned i = 0; i < DISKS; i++)
		leg_is(i, BOTH, has[i], 100, 3, 5);
	ssd_sees(0, seen, 100);
}

/* md notes on those that run who is gone. */
static void md_runs(unsigned who)
{
	uint64_t events = 0;

	for (unsigned i = 0; i < DISKS; i++)
		if (who >> i & 1 && array.super[i].events > events)
			events = array.super[i].events;
	events += 2 + rnd(3);
	for (unsigned i = 0; i < DISKS; i++)
		if (who >> i & 1) {
			array.super[i].events = events;
			array.super[i].holds = who;
		}
}

/* Of those given the ones that md starts. */
static unsigned md_takes(unsigned given)
{
	struct md_leg legs[DISKS];
	unsigned place[DISKS], who = 0;
	size_t number = 0;
	struct md_rest rest;

	for (unsigned i = 0; i < DISKS; i++)
		if (given >> i & 1) {
			place[number] = i;
			legs[number++] = array.super[i];
		}
	md_rest(legs, number, &rest);
	for (unsigned i = 0; i < number; i++)
		if (rest.fresh >> i & 1)
			who |= 1u << place[i];
	return who;
}

/* stack_disks_behind() of those that are here: a list without the others. */
static unsigned left_out(unsigned here)
{
	struct md_array part = { 0 };
	unsigned place[DISKS], who = 0;
	uint64_t bits;

	for (unsigned i = 0; i < DISKS; i++)
		if (here >> i & 1) {
			place[part.number] = i;
			part.leg[part.number] = array.leg[i];
			part.super[part.number++] = array.super[i];
		}
	bits = stack_disks_behind(&members, &stack, &part);
	for (unsigned i = 0; i < part.number; i++)
		if (bits >> i & 1)
			who |= 1u << place[i];
	return who;
}

/* One drops off; or one returns, and gets all that it lacks, if md may have it back. */
static unsigned change_disks(unsigned who)
{
	unsigned other = (unsigned)rnd(DISKS), of = (unsigned)__builtin_ctz(who), now_who = who;
	struct md_now now = { .events = array.super[of].events, .whole = who, .held = who, .places = DISKS, .level = 1 };

	if (chance(50))
		return who;
	if (who >> other & 1 ? who != 1u << other : md_return(&array.super[other], &now) == MD_RETURN_TAKE)
		now_who ^= 1u << other;
	if (now_who & ~who)
		has[other] = has[of];
	if (now_who != who)
		md_runs(now_who);
	return now_who;
}

/* The cache binds what runs: the volume's superblock, then the table; the power may go in between. */
static void use(unsigned who)
{
	for (unsigned times = 1 + (unsigned)rnd(3); times; times--) {
		uint64_t generation = has[__builtin_ctz(who)] + 1;

		for (unsigned i = 0; i < DISKS; i++)
			if (who >> i & 1)
				has[i] = generation;
		if (times == 1 && chance(20))
			return;
		if (generation > seen)
			seen = generation;
		who = change_disks(who);
	}
}

static void start(unsigned here)
{
	unsigned out, who;
	bool any = false, older;

	write_all();
	out = left_out(here);
	CHECK(!(out & ~here) && out != here, "%x of %x are left out", out, here);
	who = md_takes(here & ~out);
	for (unsigned i = 0; i < DISKS; i++) {
		CHECK(!(out >> i & 1) || has[i] < seen, "disk %u is left out, and was good", i);
		any |= here >> i & 1 && has[i] >= seen;
	}
	CHECK(who, "md starts nothing of %x", here & ~out);
	older = has[__builtin_ctz(who)] < seen;
	CHECK(!(older && any), "md takes %x of %x, which is refused, and another one would not be", who, here);
	saved += out && has[__builtin_ctz(md_takes(here))] < seen;
	refused += older;
	/* an array that is put together notes who is gone, whatever becomes of it */
	md_runs(who);
	if (!older)
		use(who);
	operations++;
}

static void mirrors_come_apart(void)
{
	two_halves();
	for (unsigned w = 0; w < WORLDS; w++) {
		array.number = DISKS;
		seen = 0;
		for (unsigned i = 0; i < DISKS; i++) {
			array.super[i] = leg_of(i, DISKS, 10, (1u << DISKS) - 1);
			has[i] = 5;
		}
		for (unsigned step = 0; step < 12; step++)
			start(1 + (unsigned)rnd((1u << DISKS) - 1));
		start((1u << DISKS) - 1);
	}
	CHECK(refused > WORLDS / 20 && saved > WORLDS / 20, "%u refused, %u saved", refused, saved);
	array.number = 2;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	files_make();
	atexit(files_remove);
	run_test("by_what_was_seen", by_what_was_seen);
	run_test("as_md_knows_them", as_md_knows_them);
	run_test("copies", copies);
	run_test("several_ssds", several_ssds);
	run_test("descriptions_first", descriptions_first);
	run_test("mirrors_come_apart", mirrors_come_apart);
	return 0;
}
