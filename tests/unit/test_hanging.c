// SPDX-License-Identifier: GPL-2.0-or-later
/* lib/hanging.c: a device that cannot be opened, from one process to the next; with a clock and a disk of our own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now = 1000;

static int our_clock(clockid_t clock, struct timespec *time)
{
	*time = (struct timespec){ (time_t)now, 0 };
	return 0;
}

#define clock_gettime our_clock
#include "../../lib/message.c"
#include "../../lib/hanging.c"

#include "check.h"

#define DISK ((dev_t)7)

static struct stall_device disk;
static bool answers, stalls, (*left_out)(dev_t number);
static unsigned asked;

void device_leave_out(bool (*which)(dev_t number))
{
	left_out = which;
}

bool device_worth_reading(dev_t number)
{
	return !left_out(number);
}

void first_read(const dev_t *number, size_t count, void (*look)(void), bool (*hang)(dev_t number), void (*silent)(dev_t number))
{
	asked += (unsigned)count;
	if (count && !answers)
		silent(*number);
}

char *disk_directory(const char *root, const char *path, bool block, dev_t number)
{
	return must_print("disk");
}

void stalls_init(struct stalls *set, const char *root)
{
}

struct stall_device *stalls_add(struct stalls *set, const char *directory)
{
	set->number = 1;
	return &disk;
}

struct stall_device *stalls_find(const struct stalls *set, const char *directory)
{
	return set->number ? &disk : NULL;
}

void stalls_add_all(struct stalls *set)
{
}

void stalls_look(struct stalls *set, double clock)
{
}

void stalls_watch(struct stalls *set, double seconds)
{
}

bool stalls_any(const struct stalls *set, const struct stall_device *device, double seconds)
{
	return stalls;
}

void stalls_each(const struct stalls *set, const struct stall_device *device, double seconds,
		 void (*visit)(const struct stalls *set, const struct stall_device *device, void *data), void *data)
{
}

void stalled_read(struct stalled_list *list)
{
}

/* As another process begins. */
static void begin_anew(void)
{
	free(all.silent.number);
	free(all.asked.number);
	free(all.out);
	memset(&all, 0, sizeof(all));
	asked = 0;
}

int main(void)
{
	dev_t number[4] = { 0 };

	hanging_look(NULL);
	check(!device_worth_reading(DISK) && asked == 1 && hanging_only_silent(), "what cannot be opened is left out");
	check(hanging_silent(number, 4) == 1 && *number == DISK && !hanging_silent(number, 0), "and named, as far as there is room");
	hanging_again();
	check(!device_worth_reading(DISK) && asked == 1, "not asked anew in the same half minute");
	now += 31;
	hanging_again();
	check(!device_worth_reading(DISK) && asked == 2, "but behind that");
	begin_anew();
	answers = true;
	hanging_keep_silent(number, 1, 100);
	check(!device_worth_reading(DISK) && !asked && hanging_only_silent(), "another process asks it no more often than it is told");
	stalls = true;
	check(!hanging_only_silent(), "what hangs is not silent alone");
	stalls = false;
	now += 99;
	hanging_again();
	check(!device_worth_reading(DISK) && !asked, "as long as that");
	now += 2;
	hanging_again();
	check(device_worth_reading(DISK) && asked == 1 && !hanging_any(), "then it is asked, and read");
	begin_anew();
	return failed;
}
