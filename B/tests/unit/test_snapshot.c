// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/snapshot.c: lines of `dmsetup status`, and what a cache is called.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/snapshot.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

static void lines(void)
{
	static const struct {
		const char *line, *name, *shown; /* NULL: it is none of ours */
	} cases[] = {
		{ "data: 0 8 larder version=1\n", "data", "data" },
		{ "larder-cache-fast: 0 8 larder-cache version=1\n", "larder-cache-fast", "fast" },
		{ "larder-cache-: 0 8 larder-cache version=1\n", "larder-cache-", "larder-cache-" }, /* it has a name */
		{ "a: b: 0 8 larder version=1", "a: b", "a: b" },
		{ ": 0 8 larder version=1", NULL, NULL },
		{ "data: 0 8 larders version=1", NULL, NULL },
		{ "data: 1 8 larder version=1", NULL, NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mapped one;
		struct mapped_list list = { &one, 1 };
		char *line = strdup(cases[i].line);
		bool ours = parse_line(line, &one);

		free(line);
		CHECK(ours == !!cases[i].name, "%s", cases[i].line);
		if (!ours)
			continue;
		CHECK(!strcmp(one.name, cases[i].name) && !strcmp(one.status, "version=1"), "%s: %s", one.name, one.status);
		CHECK(!strcmp(snapshot_name(&list, &one), cases[i].shown), "%s", snapshot_name(&list, &one));
		free(one.status);
	}
}

int main(void)
{
	run_test("lines", lines);
	return 0;
}
