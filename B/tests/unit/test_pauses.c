// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/pauses.c: between looks for what is missing the pauses grow; what comes brings a look at once, unless it never ends.
 */
#include <stdio.h>
#include <string.h>

#include "../../tools/pauses.c"
#include "check.h"

static struct pauses pauses;

/* Of an hour, for which nothing comes. */
static unsigned looks_in_an_hour(unsigned most)
{
	unsigned looks = 0;

	for (unsigned at = 0; at < 3600; at += pauses.pause) {
		pauses_next(&pauses, false, most);
		looks++;
	}
	return looks;
}

int main(void)
{
	unsigned looks = 0, at = 0;

	pauses_next(&pauses, false, 3600);
	check(pauses.pause == 5 && pauses_gap(&pauses) == 5, "soon, at first");
	pauses_next(&pauses, false, 3600);
	check(pauses.pause == 10, "later");
	looks_in_an_hour(3600);
	check(looks_in_an_hour(3600) == 1 && pauses.pause == 3600, "and then once an hour");
	check(pauses_gap(&pauses) == 5, "where a device comes, at once");
	pauses_next(&pauses, true, 3600);
	check(pauses.pause == 5, "and soon again, as others may follow");
	memset(&pauses, 0, sizeof(pauses));
	check(looks_in_an_hour(60) > 50 && pauses.pause == 60, "no longer than is allowed");

	/* an event each second, for an hour */
	memset(&pauses, 0, sizeof(pauses));
	for (; at < 3600; looks++) {
		pauses_next(&pauses, looks, 3600);
		at += pauses_gap(&pauses);
	}
	check(looks > 60 && looks < 100, "what never ends is looked at once a minute");
	check(at >= 3600 && pauses_gap(&pauses) == 60, "and no sooner");
	looks_in_an_hour(3600);
	looks_in_an_hour(3600);
	check(pauses_gap(&pauses) == 5, "until it has ended for a while");
	return failed;
}
