// SPDX-License-Identifier: GPL-2.0-or-later
/* proc_pid_mountinfo(5) */
#include <stdlib.h>
#include <string.h>

#include "mounts.h"

FILE *mounts_open(void)
{
	return fopen("/proc/self/mountinfo", "re");
}

/* Spaces and the like are octal there. */
static void decode(char *text)
{
	const char *from = text;

	for (;; text++) {
		unsigned code;

		if (*from == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
			*text = (char)code;
			from += 4;
		} else if (!(*text = *from++)) {
			break;
		}
	}
}

bool mounts_next(FILE *file, struct mount *mount)
{
	char *line = NULL, *at;
	size_t room = 0;
	bool good = false;

	while (!good && getline(&line, &room, file) > 0) {
		at = strstr(line, " - ");
		good = at &&
		       sscanf(line, "%u %u %u:%u %4095s %4095s", &mount->id, &mount->parent, &mount->high, &mount->low, mount->root, mount->point) == 6 &&
		       sscanf(at, " - %31s %4095s", mount->type, mount->source) == 2;
	}
	free(line);
	if (good) {
		decode(mount->root);
		decode(mount->point);
	}
	return good;
}
