// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for mountinfo (lib/mounts.c): the input is the file.  Aborts where a path is cut off, or where a line written anew, as the kernel
 * writes it, is read as another one.
 */
#include "input.h"
#include "mounts.h"

static void put(FILE *to, const char *word)
{
	for (; *word; word++)
		fprintf(to, (unsigned char)*word <= ' ' || *word == '\\' ? "\\%03o" : "%c", (unsigned char)*word);
	fputc(' ', to);
}

static void read_again(const struct mount *m)
{
	struct mount *again = calloc(1, sizeof(*again));
	char *text = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&text, &size);

	must(again && file, "memory");
	fprintf(file, "%u %u %u:%u ", m->id, m->parent, m->high, m->low);
	put(file, m->root);
	put(file, m->point);
	fputs("rw shared:1 - ", file);
	put(file, m->type);
	put(file, m->source);
	fputs("rw\n", file);
	must(!fclose(file), "memory");
	file = fmemopen(text, size, "r");
	must(file && mounts_next(file, again), "a line that is read");
	must(again->id == m->id && again->parent == m->parent && again->high == m->high && again->low == m->low, "numbers");
	must(!strcmp(again->root, m->root) && !strcmp(again->point, m->point) && !strcmp(again->type, m->type) && !strcmp(again->source, m->source), "words");
	fclose(file);
	free(text);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mount *mount = malloc(sizeof(*mount));
	FILE *file = size ? fmemopen((void *)data, size, "r") : NULL;

	must(mount && (!size || file), "memory");
	while (file && mounts_next(file, mount)) {
		must(strnlen(mount->root, PATH_MAX) < PATH_MAX && strnlen(mount->point, PATH_MAX) < PATH_MAX, "a path has room");
		must(strnlen(mount->type, sizeof(mount->type)) < sizeof(mount->type) && strnlen(mount->source, PATH_MAX) < PATH_MAX, "a word has room");
		if (*mount->root) /* blanks behind the numbers are passed over */
			read_again(mount);
	}
	if (file)
		fclose(file);
	free(mount);
	return 0;
}
