// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/turn.c: the numbers in /run/larder are read as they were written, each by itself; what is none counts as 0.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../lib/turn.h"
#undef RUN_DIRECTORY
#define RUN_DIRECTORY "run"
#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/turn.c"

#include "check.h"

int main(void)
{
	static char directory[] = "/tmp/larder-turn-XXXXXX";
	const uint8_t a[16] = { 1 }, b[16] = { 2 };
	static const char *const strange[] = { "x", "5x", "99999999999999999999" };
	char path[NUMBER_PATH];
	bool none = true;

	if (!mkdtemp(directory) || chdir(directory))
		return 1;
	check(!lacks_noted(a) && !returned_since(a), "nothing is there yet");
	check(lacks_set(a, 5) && returned_set(a, 4) && returned_set(b, UINT64_MAX), "they are written");
	check(lacks_noted(a) == 5 && returned_since(a) == 4 && !lacks_noted(b) && returned_since(b) == UINT64_MAX, "each by itself");
	check(returned_set(a, 6) && returned_since(a) == 6 && lacks_noted(a) == 5, "over the former one");
	check(returned_set(a, 0) && returned_set(a, 0) && !returned_since(a) && lacks_noted(a) == 5, "0: there is none");
	number_path("returned", a, "", path);
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++)
		none &= !symlink(strange[i], path) && !returned_since(a) && !unlink(path);
	check(none, "what is no number");
	check(!mkdir(path, 0755) && !returned_set(a, 1) && !rmdir(path), "one that cannot be written");
	lacks_set(a, 0);
	returned_set(b, 0);
	number_path("returned", a, ".new", path);
	unlink(path);
	check(!rmdir(RUN_DIRECTORY) && !chdir("/") && !rmdir(directory), "nothing is left");
	return failed;
}
