// SPDX-License-Identifier: GPL-2.0-or-later
/* tools/mailed.c: of what comes and goes one mail in ten minutes, and of what lasts one behind these; with a clock of our own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../tools/mailed.c"
#include "check.h"

static struct mailed mailed;

static struct change change_of(const char *uuid, const char *text)
{
	return (struct change){ .event = "left", .kind = "assembly", .alarm = true, .name = (char *)uuid, .device = "-", .text = (char *)text };
}

static bool may(const char *uuid, const char *text, double now)
{
	struct change c = change_of(uuid, text);

	return mailed_may(&mailed, &c, (time_t)now, now);
}

static void over(const char *uuid, const char *text)
{
	char *words = must_print("no longer %s", text);
	struct change c = change_of(uuid, words);

	mailed_over(&mailed, &c);
	free(words);
}

/* Those that are due: so many. */
static unsigned due(double now)
{
	struct mailed_held held;
	unsigned number = 0;

	while (mailed_due(&mailed, &held, now)) {
		number++;
		mailed_drop(&held);
	}
	return number;
}

/* An SSD that is there for ten seconds of each twenty, by another name each time: mails of a day. */
static unsigned mails_of_a_day(void)
{
	unsigned mails = 0;

	for (double now = 1000; now < 1000 + 86400; now += 20) {
		char *text = must_print("refused: /dev/sd%c: is stale", 'a' + (int)(now / 20) % 26);

		mails += may("ssd", text, now);
		if (mailed_left(&mailed, now) >= 0 && mailed_left(&mailed, now) < 10)
			mails += due(now + mailed_left(&mailed, now));
		over("ssd", text);
		free(text);
	}
	return mails;
}

int main(void)
{
	unsigned mails = mails_of_a_day();
	struct change disk = { .event = "wrong", .kind = "cache", .alarm = true, .name = "x", .device = "x", .text = "x" };

	check(mails >= 100 && mails <= 144, "of a disk that comes and goes one mail in ten minutes");
	mailed_free(&mailed);
	check(may("ssd", "refused: /dev/sda", 1000) && mailed_left(&mailed, 1000) < 0, "the first one at once");
	check(may("ssd", "refused: /dev/sdz", 1000), "and what is told with it");
	check(may("hdd", "refused: /dev/sda", 1010) && may("ssd", "failed: /dev/sda", 1010), "another UUID, and another word");
	over("ssd", "refused: /dev/sda");
	check(!may("ssd", "refused: /dev/sdb", 1020) && mailed_left(&mailed, 1020) == 580, "the same by another name is held");
	check(!due(1599) && due(1600) == 1 && mailed_left(&mailed, 1600) < 0, "and told ten minutes behind the first, as it lasts");
	check(!may("ssd", "refused: /dev/sdc", 1620), "the ten minutes begin anew");
	over("ssd", "refused: /dev/sdc");
	check(mailed_left(&mailed, 1620) < 0 && !due(3000), "of what is over nobody is told");
	check(may("ssd", "refused: /dev/sdd", 3000), "behind ten minutes of quiet it is told at once");
	for (int i = 0; i < 3; i++)
		check(mailed_may(&mailed, &disk, 0, 3000), "of what runs each is told");
	for (int i = 0; i < MAILED_MAX + 9; i++) {
		char *uuid = must_print("%d", i);

		check(may(uuid, "refused: x", 4000), "so many");
		free(uuid);
	}
	check(!may("0", "refused: y", 4001) && may("260", "refused: y", 4001), "of those that are too many each is told");
	mailed_free(&mailed);
	return failed;
}
