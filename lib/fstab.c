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
#include "program.h"
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

/* What the marked line becomes: another one, or none, or (type NULL) the same from another source. */
struct change {
	const char *mark, *source, *directory, *type;
	bool waits;
};

/* All lines of from but the marked one, of which the source may change. */
static void copy_others(FILE *from, FILE *to, const struct change *change)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t length;

	while ((length = getline(&line, &room, from)) > 0) {
		bool marked = strstr(line, change->mark) && line[strspn(line, " \t")] != '#';

		if (marked && (change->type || !change->source))
			continue;
		if (marked)
			fputs(change->source, to);
		fputs(marked ? line + strspn(line, " \t") + strcspn(line + strspn(line, " \t"), " \t\n") : line, to);
		if (line[length - 1] != '\n')
			fputc('\n', to);
	}
	free(line);
}

static int replace(FILE *from, const char *path, const char *next, const struct change *change)
{
	FILE *to = fopen(next, "we");
	struct stat status;
	bool good;

	if (!to)
		return -errno;
	if (from) {
		copy_others(from, to, change);
		if (!fstat(fileno(from), &status))
			fchmod(fileno(to), status.st_mode & 07777);
	}
	if (change->type) {
		fprintf(to, "%s ", change->source);
		put_field(to, change->directory);
		fprintf(to, " %s nofail,x-systemd.device-timeout=%d,%s 0 %d\n", change->type, change->waits ? 0 : 90, change->mark,
			strcmp(change->type, "ext4") ? 0 : 2);
	}
	good = !fflush(to) && !fsync(fileno(to));
	good = !fclose(to) && good;
	good = good && !rename(next, path);
	return good ? 0 : errno ? -errno : -EIO;
}

bool fstab_is_systemds(void)
{
	return !getenv("LIBMOUNT_FSTAB") && !access("/run/systemd/system", F_OK);
}

/* Or its mount units would be those of the old lines.  Where that fails the next boot, or daemon-reload, sees the new ones. */
static void tell_systemd(void)
{
	const char *const words[] = { "systemctl", "daemon-reload", NULL };
	char *said;

	if (!fstab_is_systemds())
		return;
	if (program_run(words, &said))
		remark("systemctl daemon-reload: %s", said);
	free(said);
}

static int apply(const uint8_t uuid[16], struct change change)
{
	const char *path = fstab_path();
	char text[UUID_TEXT], *mark = must_print("x-larder.stack=%s", uuid_text(uuid, text)), *next = must_print("%s.larder-new", path);
	FILE *from = fopen(path, "re");
	int error;

	change.mark = mark;
	if (!from && (errno != ENOENT || !change.type)) {
		error = errno == ENOENT ? 0 : -errno;
	} else {
		error = replace(from, path, next, &change);
		if (error)
			unlink(next);
		else
			tell_systemd();
	}
	if (from)
		fclose(from);
	free(mark);
	free(next);
	return error ? complain(LARDER_FAILED, "%s: cannot change it: %s", path, strerror(-error)) : LARDER_DONE;
}

int fstab_set(const uint8_t uuid[16], const char *source, const char *directory, const char *type, bool waits)
{
	return apply(uuid, (struct change){ .source = source, .directory = directory, .type = source ? type : NULL, .waits = waits });
}

int fstab_move(const uint8_t uuid[16], const char *source)
{
	return apply(uuid, (struct change){ .source = source });
}
