// SPDX-License-Identifier: GPL-2.0-or-later
/* proc_pid_mountinfo(5) */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mounts.h"

FILE *mounts_open(void)
{
	return fopen("/proc/self/mountinfo", "re");
}

void mounts_decode(char *text)
{
	const char *from = text;

	do {
		unsigned code = 0, digits = 0;

		while (*from == '\\' && digits < 3 && from[digits + 1] >= '0' && from[digits + 1] <= '7')
			code = code * 8 + (unsigned)(from[++digits] - '0');
		if (digits == 3 && code && code <= 0xff) {
			*text = (char)code;
			from += 4;
		} else {
			*text = *from++;
		}
	} while (*text++);
}

/* The next word of the line.  False: there is none, or it has no room. */
static bool take_word(char **rest, char *to, size_t size)
{
	char *word = strsep(rest, " \n");

	if (!word)
		return false;
	mounts_decode(word);
	return snprintf(to, size, "%s", word) < (int)size;
}

static bool parse(char *line, struct mount *mount)
{
	char *rest, *word;
	int length = 0;

	if (sscanf(line, "%u %u %u:%u %n", &mount->id, &mount->parent, &mount->high, &mount->low, &length) != 4 || !length)
		return false;
	rest = line + length;
	if (!take_word(&rest, mount->root, sizeof(mount->root)) || !take_word(&rest, mount->point, sizeof(mount->point)))
		return false;
	do /* options, and fields of which there may be more one day */
		word = strsep(&rest, " \n");
	while (word && strcmp(word, "-") != 0);
	return word && take_word(&rest, mount->type, sizeof(mount->type)) && take_word(&rest, mount->source, sizeof(mount->source));
}

bool mounts_next(FILE *file, struct mount *mount)
{
	char *line = NULL;
	size_t room = 0;
	bool good = false;

	while (!good && getline(&line, &room, file) > 0)
		good = parse(line, mount);
	free(line);
	return good;
}

int mounts_has(const char *directory)
{
	struct mount *mount;
	FILE *file = mounts_open();
	int has = 0;

	if (!file)
		return -errno;
	mount = malloc(sizeof(*mount));
	while (mount && !has && mounts_next(file, mount))
		has = !strcmp(mount->point, directory);
	has = !mount ? -ENOMEM : !has && ferror(file) ? -EIO : has;
	free(mount);
	fclose(file);
	return has;
}
