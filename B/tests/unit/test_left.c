// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/left.c: what is written is read as it was, also what is of no UUID, and the same is not written again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/run_file.c"
#include "../../lib/left.c"

#include "check.h"

static bool is_read(const struct left_list *wanted)
{
	struct left_list there;
	bool same;

	left_read(&there);
	same = there.number == wanted->number && holds_all(&there, wanted);
	left_free(&there);
	return same;
}

static ino_t file_of(const char *path)
{
	struct stat status;

	return stat(path, &status) ? 0 : status.st_ino;
}

/* Lines that nobody has written so. */
static void strange(const char *path)
{
	static const char text[] = "conf - \nconf -\nconf -x larder.conf\nconf 00000000-0000-0000-0000-000000000000 larder.conf\n- - larder.conf\nco nf - x\nconf -";
	struct left_list wanted = { 0 };
	FILE *file = fopen(path, "we");

	left_add(&wanted, "-", (const uint8_t[16]){ 0 }, "larder.conf"); /* a word of letters and that */
	check(file && fputs(text, file) >= 0 && !fclose(file) && is_read(&wanted), "lines that are none are passed over");
	left_free(&wanted);
}

int main(void)
{
	static char directory[] = "/tmp/larder-left-XXXXXX";
	struct left_list left = { 0 };
	char *path;
	ino_t first;

	if (!mkdtemp(directory))
		return 1;
	setenv("LARDER_RUN", directory, 1);
	path = must_print("%s/left", directory);
	left_add(&left, "refused", (const uint8_t[16]){ 1, 2, 3 }, "cache fast: it is full");
	left_add(&left, "conf", (const uint8_t[16]){ 0 }, "/etc/larder/larder.conf:3: no such word");
	check(!left_write(&left), "it is written");
	first = file_of(path);
	check(is_read(&left), "all of it is read, and what is of no UUID");
	check(!left_write(&left) && first && file_of(path) == first, "the same is not written again");
	left_free(&left);
	check(!left_write(&left) && file_of(path) != first && is_read(&left), "what is over is gone");
	strange(path);
	unlink(path);
	rmdir(directory);
	free(path);
	return failed;
}
