// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/stalled.c: what is written is read as it was; a file that nobody has written so.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/run_file.c"
#include "../../lib/stalled.c"

#include "check.h"

static void add(struct stalled_list *list, const char *disk, bool cache, const char *name, const char *text)
{
	struct stalled one = { .since = 1234567, .cache = cache, .name = must_print("%s", name), .text = must_print("%s", text) };

	snprintf(one.disk, sizeof(one.disk), "%s", disk);
	snprintf(one.uuid, sizeof(one.uuid), "00000000-0000-0000-0000-00000000000%d", cache);
	stalled_add(list, &one);
}

static bool is_read(const struct stalled_list *wanted)
{
	struct stalled_list there;
	bool same;

	stalled_read(&there);
	same = there.number == wanted->number;
	for (size_t i = 0; same && i < wanted->number; i++) {
		const struct stalled *found = stalled_find(&there, &wanted->stalled[i]);

		same = found && found->since == wanted->stalled[i].since && !strcmp(found->name, wanted->stalled[i].name) &&
		       !strcmp(found->text, wanted->stalled[i].text);
	}
	stalled_free(&there);
	return same;
}

int main(void)
{
	static char directory[] = "/tmp/larder-stalled-XXXXXX";
	static const char strange[] = "\nsda\nsda\t1\tcache\t-\tfast\nsda\tx\tcache\t-\tfast\ttext\nsda\t-1\tcache\t-\tfast\ttext\nsda\tnan\tcache\t-\tfast\ttext\n"
				      "sda\t1\tcache\t0000000000000000000000000000000000000000000000\tfast\ttext\nsda\t1\tcache\t-\tfast\tcut off";
	struct stalled_list list = { 0 }, none = { 0 };
	FILE *file;
	char *path;

	if (!mkdtemp(directory))
		return 1;
	setenv("LARDER_RUN", directory, 1);
	path = must_print("%s/stalled", directory);
	check(is_read(&none), "without a file: none");
	add(&list, "sda", false, "data", "/dev/sda has answered nothing: 1 > x");
	add(&list, "sda", true, "fast", "the same below a cache");
	add(&list, "dm-3", false, "a name", "a\ttab and\nlines");
	check(!strpbrk(list.stalled[2].text, "\t\n"), "no byte of a text ends its line");
	check(!stalled_write(&list) && is_read(&list), "what is written is read");
	check(!stalled_write(&none) && is_read(&none), "also that there is none");
	file = fopen(path, "we");
	check(file && fputs(strange, file) >= 0 && !fclose(file) && is_read(&none), "lines that are none are passed over");
	stalled_free(&list);
	unlink(path);
	rmdir(directory);
	free(path);
	return failed;
}
