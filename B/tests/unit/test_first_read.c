// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/first_read.c: devices that answer, that hang, and that cannot even be opened; in place of block devices files, of which some wait.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../lib/clock.h"
#include "../../lib/message.c"

#define FILE_OF "/dev/zero"
#define STUCK "/dev/null/stuck" /* whoever opens that waits */

/* Twenty times as fast as it is, as nobody tests patience. */
static double clock_now;
#define clock_seconds() clock_now

static int open_or_wait(const char *path, int flags)
{
	while (!strcmp(path, STUCK))
		pause();
	return open(path, flags & ~O_DIRECT);
}
#define open(path, flags) open_or_wait(path, flags)
#include "../../lib/first_read.c"
#undef open
#undef clock_seconds

#include "check.h"

#define STUCK_FROM 100 /* numbers of devices that cannot be opened */
#define HANGS_FROM 200 /* likewise, and the kernel says that they hang */

bool device_node(dev_t number, char *node, size_t size)
{
	snprintf(node, size, "%s", number >= STUCK_FROM ? STUCK : FILE_OF);
	return true;
}

static dev_t silent[8];
static size_t nr_silent;
static unsigned looks;

static void look(void)
{
	looks++;
	clock_now += 10; /* of half a second each */
}

static bool hangs(dev_t number)
{
	return number >= HANGS_FROM;
}

static void note(dev_t number)
{
	if (nr_silent < 8)
		silent[nr_silent++] = number;
}

static void ask(const dev_t *number, size_t count)
{
	nr_silent = looks = 0;
	first_read(number, count, look, hangs, note);
}

int main(void)
{
	const dev_t answer[] = { 1, 2, 3 }, one_hangs[] = { 1, HANGS_FROM, 3 }, some[] = { 1, STUCK_FROM, HANGS_FROM, STUCK_FROM + 1 };

	ask(answer, 3);
	check(!nr_silent, "all answer");
	ask(answer, 0);
	check(!nr_silent && !looks, "of none nothing is asked");
	ask(one_hangs, 3);
	check(!nr_silent && looks == 1, "who is seen to hang is not waited for");
	ask(some, 4);
	check(nr_silent == 2 && silent[0] == STUCK_FROM && silent[1] == STUCK_FROM + 1, "who neither answers nor hangs is silent");
	check(looks && looks * 10 <= FIRST_READ_SECONDS + 10, "and is waited for as long as that");
	return failed;
}
