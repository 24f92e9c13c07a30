// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fstab is replaced as a whole, by rename: whoever reads it, or a power cut, finds the old one or the new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fstab.h"
#include "message.h"
#include "superblock.h"

static const char *fstab_path(void)
{
	const char *path = getenv("LIBMOUNT_FSTAB"); /* as mount(8) has it */

	return path ? path : "/etc/fstab";
}

/* fstab(5): spaces and backslashes of a field in octal */
static void put_field(FILE *file, const char *text)
{
	for (; *text; text++)
		if (*text == ' ' || *text == '\\' || *text == '\t')
			fprintf(file, "\\%03o", (unsigned char)*text);
		else
			fputc(*text, file);
}

/* All lines of from but the marked one.  *had: it was there. */
static void copy_others(FILE *from, FILE *to, const char *mark, bool *had)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t length;

	*had = false;
	while ((length = getline(&line, &room, from)) > 0) {
		if (strstr(line, mark) && line[strspn(line, " \t")] != '#') {
			*had = true;
			continue;
		}
		fputs(line, to);
		if (line[length - 1] != '\n')
			fputc('\n', to);
	}
	free(line);
}

static int replace(FILE *from, const char *path, const char *next, const char *mark, const char *source, const char *directory,
		   const char *type)
{
	FILE *to = fopen(next, "we");
	struct stat status;
	bool good, had;

	if (!to)
		return -errno;
	if (from) {
		copy_others(from, to, mark, &had);
		if (!fstat(fileno(from), &status))
			fchmod(fileno(to), status.st_mode & 07777);
	}
	if (source) {
		fprintf(to, "%s ", source);
		put_field(to, directory);
		fprintf(to, " %s nofail,x-systemd.device-timeout=90,%s 0 %d\n", type, mark, strcmp(type, "ext4") ? 0 : 2);
	}
	good = !fflush(to) && !fsync(fileno(to));
	good = !fclose(to) && good;
	good = good && !rename(next, path);
	return good ? 0 : errno ? -errno : -EIO;
}

int fstab_set(const uint8_t uuid[16], const char *source, const char *directory, const char *type)
{
	const char *path = fstab_path();
	char text[UUID_TEXT], *mark = must_print("x-larder.stack=%s", uuid_text(uuid, text)), *next = must_print("%s.larder-new", path);
	FILE *from = fopen(path, "re");
	int error;

	if (!from && (errno != ENOENT || !source)) {
		error = errno == ENOENT ? 0 : -errno;
	} else {
		error = replace(from, path, next, mark, source, directory, type);
		if (error)
			unlink(next);
	}
	if (from)
		fclose(from);
	free(mark);
	free(next);
	return error ? complain(LARDER_FAILED, "%s: cannot change it: %s", path, strerror(-error)) : LARDER_DONE;
}
