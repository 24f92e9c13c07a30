// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * daemon/conf.c: whom larder.conf leaves of what no image of a disk can show: what is here of an array that does not run.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/address.c"
#include "../../daemon/conf.c"

#include "check.h"

static void show(const char *line, void *data)
{
	(void)data;
	printf("# %s\n", line);
}

/* Of the stack `data`, whose UUIDs begin with 01 and 02. */
static bool leaves(const char *text)
{
	struct fact_rest rest = { .stack = "data", .stack_uuid = { 1 }, .volume = { 2 } };
	struct facts facts = { .rest = &rest, .nr_rests = 1 };
	struct conf conf;

	conf_parse(&conf, text, strlen(text), "larder.conf", show, NULL);
	conf_apply(&conf, &facts);
	conf_free(&conf);
	return rest.left;
}

static unsigned stall(const char *text)
{
	struct conf conf;
	unsigned seconds;

	conf_parse(&conf, text, strlen(text), "larder.conf", show, NULL);
	seconds = conf.stall;
	conf_free(&conf);
	return seconds;
}

int main(void)
{
	check(!leaves(""), "of what nothing is said");
	check(leaves("auto no data\n") && !leaves("auto no other\n"), "by the name of the stack");
	check(leaves("auto no 01000000-0000-0000-0000-000000000000\n") && leaves("auto no 02000000-0000-0000-0000-000000000000\n"),
	      "by the UUID of the stack, or of its volume");
	check(leaves("auto no all\n") && !leaves("auto yes data\nauto no all\n"), "with all; the first line decides");
	check(!leaves("degraded no data\n"), "another keyword");
	check(stall("") == 30 && stall("stall 120\n") == 120 && stall("stall 0\n") == 0, "seconds until a device that hangs is told of");
	check(stall("stall\n") == 30 && stall("stall 5 6\n") == 30 && stall("stall -1\n") == 30 && stall("stall 86401\n") == 30,
	      "what is no number of seconds is ignored");
	return failed;
}
