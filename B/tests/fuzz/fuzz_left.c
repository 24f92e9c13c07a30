// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for the file of what larderd has not started (lib/left.c): the input is the file.  Aborts where a line is taken that could not be shown as one, or that
 * is another one when it is written anew.
 */
#include <unistd.h>
#include <uuid/uuid.h>

#include "input.h"
#include "left.h"
#include "message.h"

static char directory[] = "/tmp/larder-fuzz-XXXXXX";
static char *path;

static void end(void)
{
	unlink(path);
	rmdir(directory);
}

static void begin(void)
{
	if (path)
		return;
	must(mkdtemp(directory), directory);
	path = must_print("%s/left", directory);
	setenv("LARDER_RUN", directory, 1);
	atexit(end);
}

static void check(const struct left *left)
{
	uint8_t uuid[16];

	must(*left->word && !left->word[strcspn(left->word, " \n")], "a word");
	must(!strcmp(left->uuid, "-") || !uuid_parse(left->uuid, uuid), "a UUID, or none");
	must(*left->text, "a text");
	for (const char *c = left->word; *c; c++)
		must((unsigned char)*c > ' ' && *c != 0x7f, "a word that can be shown");
	for (const char *c = left->text; *c; c++)
		must((unsigned char)*c >= ' ' && *c != 0x7f, "a text that can be shown");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct left_list list, again;
	FILE *file;

	begin();
	file = fopen(path, "we");
	must(file && fwrite(data, 1, size, file) == size && !fclose(file), path);
	left_read(&list);
	for (size_t i = 0; i < list.number; i++)
		check(&list.left[i]);
	unlink(path);
	must(!left_write(&list), "it is written");
	left_read(&again);
	must(again.number == list.number, "as many lines");
	for (size_t i = 0; i < again.number; i++)
		must(left_has(&list, &again.left[i]) && left_has(&again, &list.left[i]), "the same lines");
	left_free(&again);
	left_free(&list);
	return 0;
}
