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

/* Read as it was written? */
static bool scrubs(const uint8_t uuid[16], const struct scrub_note *note)
{
	struct scrub_note read;

	scrub_note_set(uuid, note);
	scrub_note_get(uuid, &read);
	return read.stopped == note->stopped && read.repair == note->repair && read.at == note->at && read.differ == note->differ;
}

int main(void)
{
	static char directory[] = "/tmp/larder-turn-XXXXXX";
	const uint8_t a[16] = { 1 }, b[16] = { 2 };
	static const char *const strange[] = { "x", "5x", "99999999999999999999" };
	struct scrub_note note;
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
	check(scrubs(a, &(struct scrub_note){ 0 }) && scrubs(a, &(struct scrub_note){ .stopped = true }), "a scrub that was stopped at its beginning is none that was not");
	check(scrubs(a, &(struct scrub_note){ .stopped = true, .repair = true, .at = UINT64_MAX, .differ = UINT64_MAX }) && scrubs(a, &(struct scrub_note){ .differ = 8 }), "what a scrub has found");
	check(scrubs(b, &(struct scrub_note){ .stopped = true, .at = 8, .differ = 16 }) && scrubs(b, &(struct scrub_note){ 0 }), "gone on with, and forgotten");
	number_path("scrub", b, "", path);
	check(!symlink("4096", path), "as releases before wrote it");
	scrub_note_get(b, &note);
	check(note.stopped && !note.repair && note.at == 4096 && !note.differ && !unlink(path), "is read");
	lacks_set(a, 0);
	returned_set(b, 0);
	scrub_note_set(a, &(struct scrub_note){ 0 });
	number_path("scrub", b, ".new", path);
	unlink(path);
	number_path("returned", a, ".new", path);
	unlink(path);
	check(!rmdir(RUN_DIRECTORY) && !chdir("/") && !rmdir(directory), "nothing is left");
	return failed;
}
