// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/unsent.c: mails that are not taken are tried again, each once, the oldest first, less and less often; with a mail system and a clock of our own.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../tools/unsent.c"
#include "check.h"

static unsigned takes, tries; /* so many more are taken */
static char last[64];
static time_t last_at;

unsigned alert_patience(void)
{
	return 60;
}

bool alert_mail(const char *address, const struct change *change, time_t at, bool unit)
{
	check(address && !unit, "to whom");
	tries++;
	if (!takes)
		return false;
	takes--;
	snprintf(last, sizeof(last), "%s", change->name);
	last_at = at;
	return true;
}

static void add(struct unsent *unsent, unsigned number, double now)
{
	char name[16];
	struct change c = { .event = "wrong", .kind = "cache", .alarm = true, .name = name, .device = name, .text = name };

	snprintf(name, sizeof(name), "%u", number);
	unsent_add(unsent, &c, (time_t)number, now);
}

int main(void)
{
	static struct unsent unsent;
	double now = 1000;
	unsigned rounds = 0;

	check(unsent_left(&unsent, now) < 0, "nothing to do");
	add(&unsent, 1, now);
	add(&unsent, 2, now + 59);
	check(unsent_left(&unsent, now) == 60 && unsent_left(&unsent, now + 61) == 0, "a minute behind the first");
	unsent_try(&unsent, "root", false, now + 59.9);
	check(!tries, "not earlier");
	unsent_try(&unsent, "root", false, now + 60);
	check(tries == 1 && unsent.number == 2, "the second is not tried where the first is not taken");
	check(unsent_left(&unsent, now + 60) == 120, "then twice as long");
	while (rounds++ < 100 && unsent.pause < PAUSE_LAST_S)
		unsent_try(&unsent, "root", false, unsent.due);
	check(rounds < 10 && unsent.number == 2, "up to an hour");
	takes = 1;
	unsent_try(&unsent, "root", false, unsent.due);
	check(unsent.number == 1 && !strcmp(last, "1") && last_at == 1, "the oldest first, with its time");
	takes = 9;
	unsent_try(&unsent, "root", false, unsent.due);
	check(!unsent.number && !strcmp(last, "2") && unsent_left(&unsent, 1e9) < 0, "and all of them");
	for (unsigned i = 0; i < UNSENT_MAX + 3; i++)
		add(&unsent, 10 + i, now);
	check(unsent.number == UNSENT_MAX && unsent_left(&unsent, now) == 60, "no more than there is room for, and a minute again");
	takes = 1;
	unsent_try(&unsent, "root", false, now + 60);
	check(!strcmp(last, "13"), "the oldest were given up");
	unsent_try(&unsent, NULL, false, unsent.due);
	check(!unsent.number, "whoever takes the address away has no more");
	add(&unsent, 1, now);
	unsent_free(&unsent);
	check(!unsent.number, "freed");
	return failed;
}
