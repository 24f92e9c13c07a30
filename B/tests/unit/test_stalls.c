// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/stalls.c: which devices hang, by what the kernel counts; of several the lowest, in a sysfs of the test's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../lib/message.c"
#include "../../lib/disks.c"
#include "../../lib/stalls.c"

#include "check.h"

/* ------------------------------------------------------------------ one device, by numbers alone */

static struct stall_counts counts(uint64_t answered, uint64_t in_flight)
{
	return (struct stall_counts){ .answered = answered, .in_flight = in_flight, .sequence = 7 };
}

/* For how long it has answered nothing at second `at`; negative: it does not wait. */
static double waits(struct stall_device *device, struct stall_counts now, double at)
{
	stall_judge(device, &now, at);
	return device->waits ? at - device->since : -1;
}

static void one_device(void)
{
	struct stall_device d = { .moved = -1 };
	struct stall_counts now;

	check(waits(&d, counts(100, 0), 1) < 0, "without a request it waits for nothing");
	check(waits(&d, counts(100, 3), 2) == 0, "it begins when there are requests, not at the last answer");
	check(waits(&d, counts(100, 9), 5) == 3, "more requests are no answer");
	check(waits(&d, counts(100, 1), 6) == 4, "nor is one that was taken back");
	check(d.moved < 0, "it was not seen to move");
	check(waits(&d, counts(101, 1), 7) == 0 && d.moved == 7, "one answer, and it begins anew");
	check(waits(&d, counts(101, 0), 8) < 0 && waits(&d, counts(101, 2), 9) == 0, "behind a time without requests, too");
	check(waits(&d, counts(101, 2), 19) == 10 && waits(&d, counts(3, 2), 20) == 0, "counters that begin anew, or are round, have answered");
	check(waits(&d, counts(UINT64_MAX, 2), 21) == 0 && waits(&d, counts(0, 2), 22) == 0 && d.moved == 22, "from the largest number to 0 is an answer");
	now = counts(0, 2);
	now.sequence = 8;
	check(waits(&d, now, 30) == 0 && d.moved < 0, "another device of that name has not waited, nor moved");
	now.sequence = 8;
	check(waits(&d, now, 31) == 1, "and waits from then on");
	stall_judge(&d, NULL, 32);
	check(!d.waits && waits(&d, now, 33) == 0, "one that was gone begins anew");
	now = counts(5, 0);
	now.held = true;
	check(waits(&d, now, 40) == 0 && waits(&d, now, 44) == 4, "one that is suspended waits without requests");
	now.held = false;
	check(waits(&d, now, 45) < 0, "until it is resumed");
}

/* ------------------------------------------------------------------ what the kernel prints */

/* Those answered, and in flight; "-": it is no such file. */
static bool says(const char *stat, const char *inflight, uint64_t partitions, bool bio_based, bool old, uint64_t answered, uint64_t in_flight)
{
	struct stall_counts c = { 0 };

	return stall_counts(&c, stat, inflight, partitions, bio_based, old) && c.answered == answered && c.in_flight == in_flight;
}

static void files(void)
{
	static const char stat[] = "   10 1 2 3   200 5 6 7   4 8 9   3000 1 1 1   40000 9\n";
	struct stall_counts c;

	check(says(stat, "", 0, false, false, 43210, 4), "reads, writes, discards, flushes, and what is in flight");
	check(says(stat, "1 6", 0, false, false, 43210, 7) && says(stat, "1 1", 0, false, false, 43210, 4), "the driver's requests, where those are more");
	check(says(stat, "0 0", 9, false, false, 43210, 9) && says(stat, "0 0", 2, false, false, 43210, 4), "those of partitions, where they are not the disk's");
	check(says(stat, "1 3", 2, true, false, 43210, 6), "of bio based devices partitions count beside it");
	check(says(stat, "1 3", 2, true, true, 43204, 6) && says(stat, "1 3", 2, false, true, 43210, 4),
	      "an old kernel counts bios when they begin: less those in flight");
	check(says("1 0 0 0 2 0 0 0 1 0 0", "", 0, false, false, 3, 1), "files of kernels without discards");
	check(!stall_counts(&c, "1 0 0 0 2 0 0 0 1 0", "", 0, false, false) && !stall_counts(&c, "", "", 0, false, false) &&
		      !stall_counts(&c, "x", "", 0, false, false),
	      "what is none is none");
}

/* On a kernel that counts them at their beginning: more bios come, and none ends. */
static void old_kernel(void)
{
	struct stall_device d = { .moved = -1 };
	struct stall_counts c = { 0 };

	stall_counts(&c, "10 0 0 0 5 0 0 0 3 0 0", "", 0, true, true);
	stall_judge(&d, &c, 0);
	stall_counts(&c, "10 0 0 0 9 0 0 0 7 0 0", "", 0, true, true);
	stall_judge(&d, &c, 5);
	check(d.waits && d.since == 0, "bios that begin are no answer");
	stall_counts(&c, "10 0 0 0 9 0 0 0 6 0 0", "", 0, true, true);
	stall_judge(&d, &c, 6);
	check(d.waits && d.since == 6, "one that ends is");
}

/* ------------------------------------------------------------------ a system */

static char top[] = "/tmp/larder-stalls-XXXXXX";

static void put(const char *directory, const char *name, const char *text)
{
	char *path = must_print("%s/%s/%s", top, directory, name);
	FILE *file;

	for (char *p = path + strlen(top) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(path, 0700);
		*p = '/';
	}
	file = fopen(path, "w");
	if (!file || fputs(text, file) < 0 || fclose(file))
		check(false, path);
	free(path);
}

static void lies_on(const char *upper, const char *lower)
{
	char *from = must_print("%s/%s/slaves/%s", top, upper, strrchr(lower, '/') + 1), *to = must_print("%s/%s", top, lower);
	char *slaves = must_print("%s/slaves", upper);

	put(slaves, ".made", "");
	if (symlink(to, from))
		check(false, from);
	free(slaves);
	free(to);
	free(from);
}

/* What it has answered, and has in flight. */
static void stat_of(const char *name, unsigned answered, unsigned in_flight)
{
	char *directory = must_print("sys/block/%s", name), *text = must_print("%u 0 0 0 0 0 0 0 %u 0 0 0 0 0 0 0 0\n", answered, in_flight);

	put(directory, "stat", text);
	free(text);
	free(directory);
}

static void list(const struct stalls *stalls, const struct stall_device *device, void *data)
{
	char *words = data;

	snprintf(words + strlen(words), 256 - strlen(words), "%s ", device->name);
}

static struct stall_device *named(const struct stalls *stalls, const char *name)
{
	char *directory = must_print("%s/sys/block/%s", top, name);
	struct stall_device *device = stalls_find(stalls, directory);

	free(directory);
	return device;
}

/* Those that have hung for ten seconds at, or below, this one. */
static bool hang(const struct stalls *stalls, const char *name, const char *expected)
{
	char words[256] = "";

	stalls_each(stalls, named(stalls, name), 10, list, words);
	if (strcmp(words, expected))
		printf("# %s: '%s', not '%s'\n", name, words, expected);
	return !strcmp(words, expected) && stalls_any(stalls, named(stalls, name), 10) == (*expected != 0);
}

static void look(struct stalls *stalls, double at)
{
	stalls_begin(stalls);
	stalls_add_all(stalls);
	stalls_look(stalls, at);
}

static bool text_has(const struct stalls *stalls, const char *name, const char *words)
{
	char *text = stall_text(named(stalls, name), 12.4);
	bool has = strstr(text, words);

	if (!has)
		printf("# %s\n", text);
	free(text);
	return has;
}

/* A volume dm-0 over an array md0 of a partition of sda, and sdb; and on its cache dm-1 on the SSD sdc. */
static void make_system(void)
{
	static const char *const disks[] = { "sda", "sdb", "sdc" };

	for (int i = 0; i < 3; i++) {
		char *mq = must_print("sys/block/%s/mq", disks[i]);

		put(mq, "x", "");
		free(mq);
		stat_of(disks[i], 100, 0);
	}
	put("sys/block/sda/sda1", "partition", "1\n");
	put("sys/block/sda/sda1", "stat", "100 0 0 0 0 0 0 0 0 0 0\n");
	put("sys/block/sda/device", "delete", "");
	lies_on("sys/block/md0", "sys/block/sda/sda1");
	lies_on("sys/block/md0", "sys/block/sdb");
	lies_on("sys/block/dm-0", "sys/block/md0");
	lies_on("sys/block/dm-1", "sys/block/sdc");
	lies_on("sys/block/dm-0", "sys/block/dm-1");
	put("sys/block/dm-0/dm", "name", "data\n");
	put("sys/block/dm-0/dm", "suspended", "0\n");
	stat_of("md0", 100, 0);
	stat_of("dm-0", 100, 0);
	stat_of("dm-1", 0, 0);
}

static void system_of(void)
{
	struct stalls s;

	make_system();
	stalls_init(&s, top);
	s.old = false;
	look(&s, 0);
	check(s.number == 6 && hang(&s, "dm-0", ""), "nothing is in flight");
	stat_of("sdb", 100, 2), stat_of("md0", 100, 1), stat_of("dm-0", 100, 1);
	look(&s, 1);
	look(&s, 10);
	check(hang(&s, "dm-0", ""), "nine seconds");
	stat_of("sda", 170, 1);
	look(&s, 11);
	check(hang(&s, "dm-0", "sdb ") && hang(&s, "dm-1", ""), "ten: the leg, and neither the array above it nor the other leg");
	check(text_has(&s, "sdb", "/dev/sdb has answered nothing for 12 s, with 2 requests in flight: the kernel's log"), "which is said of it");
	stat_of("sdb", 101, 1);
	look(&s, 12);
	check(hang(&s, "dm-0", ""), "it has answered: so nobody knows that the volume hangs");
	stat_of("sda", 170, 0), stat_of("sdb", 101, 0);
	look(&s, 30), look(&s, 31);
	check(hang(&s, "dm-0", ""), "what is above it may wait behind what it answered since then");
	stat_of("dm-0", 101, 1), stat_of("md0", 101, 0);
	look(&s, 32), look(&s, 42);
	check(hang(&s, "dm-0", "dm-0 "), "a request that is in flight nowhere below, where nothing moves");
	check(text_has(&s, "dm-0", "/dev/mapper/data has answered nothing for 12 s, with 1 request in flight, and nothing moves below"), "which is said of it");
	put("sys/block/sdc/device", "state", "blocked\n");
	look(&s, 43);
	check(hang(&s, "dm-0", ""), "something below waits, for not so long");
	look(&s, 53);
	check(hang(&s, "dm-0", "sdc ") && hang(&s, "dm-1", "sdc "), "the SSD, whose connection is away: once, though it is below both");
	check(text_has(&s, "sdc", "/dev/sdc has answered nothing for 12 s: its connection is away (blocked)"), "which is said of it");
	put("sys/block/sdc/device", "state", "running\n");
	stat_of("dm-0", 102, 0);
	put("sys/block/sda/sda1", "stat", "170 0 0 0 0 0 0 0 5 0 0\n");
	look(&s, 54), look(&s, 64);
	check(hang(&s, "dm-0", "sda "), "a partition, whose requests are not its disk's");
	check(text_has(&s, "sda", "with 5 requests") && text_has(&s, "sda", "echo 1 > /sys/block/sda/device/delete"), "which is said of the disk");
	put("sys/block/sda/sda1", "stat", "170 0 0 0 0 0 0 0 0 0 0\n");
	put("sys/block/dm-0/dm", "suspended", "1\n");
	look(&s, 65);
	stat_of("sdb", 110, 0);
	look(&s, 75);
	check(hang(&s, "dm-0", "dm-0 ") && text_has(&s, "dm-0", "it is suspended, and goes on behind dmsetup resume data"), "suspended, whatever moves below");
	put("sys/block/nvme7n1/device/nvme7", "state", "connecting\n");
	put("sys/block/nvme7n1/device/nvme8", "state", "live\n");
	stat_of("nvme7n1", 100, 0);
	look(&s, 100), look(&s, 112);
	check(hang(&s, "nvme7n1", ""), "NVMe by two paths, of which one is away");
	put("sys/block/nvme7n1/device/nvme8", "state", "resetting\n");
	look(&s, 113), look(&s, 125);
	check(hang(&s, "nvme7n1", "nvme7n1 ") && text_has(&s, "nvme7n1", "its connection is away"), "NVMe by two paths that are both away");
	stat_of("sdb", 110, 1);
	stalls_begin(&s);
	stalls_look(&s, 76);
	check(!s.number, "what is not listed any more is forgotten");
	look(&s, 80);
	check(hang(&s, "dm-0", ""), "and begins anew");
	stalls_free(&s);
}

static int erase(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	return remove(path);
}

int main(void)
{
	if (!mkdtemp(top))
		return 1;
	one_device();
	files();
	old_kernel();
	system_of();
	nftw(top, erase, 16, FTW_DEPTH | FTW_PHYS);
	return failed;
}
