// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fstab is replaced as a whole, by rename: whoever reads it, or a power cut, finds the old one or the new one; behind fstab_set() and fstab_move()
 * the new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory.h"
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
	unsigned flags;
};

/* Is the mark one of its options?  Anywhere else it is somebody's remark. */
static bool is_marked(const char *line, const char *mark)
{
	const char *at = line + strspn(line, " \t");
	size_t length;

	if (*at == '#')
		return false;
	for (int fields = 3; fields; fields--) {
		at += strcspn(at, " \t\n");
		at += strspn(at, " \t");
	}
	for (;; at += length + 1) {
		length = strcspn(at, ", \t\n");
		if (length == strlen(mark) && !memcmp(at, mark, length))
			return true;
		if (at[length] != ',')
			return false;
	}
}

/* All lines of from but the marked one, of which the source may change.  Returns 0 or -errno: then some are missing. */
static int copy_others(FILE *from, FILE *to, const struct change *change)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t length;

	errno = 0;
	while ((length = getline(&line, &room, from)) > 0) {
		bool marked = is_marked(line, change->mark);
		size_t skip = marked ? strspn(line, " \t") : 0;

		if (marked && (change->type || !change->source))
			continue;
		if (marked)
			fputs(change->source, to);
		skip += marked ? strcspn(line + skip, " \t\n") : 0;
		fwrite(line + skip, 1, (size_t)length - skip, to);
		if (line[length - 1] != '\n')
			fputc('\n', to);
	}
	length = feof(from) ? 0 : errno ? -errno : -EIO;
	free(line);
	return (int)length;
}

static int replace(FILE *from, const char *path, const char *next, const struct change *change)
{
	FILE *to = fopen(next, "we");
	struct stat status;
	int error = 0;
	bool good;

	if (!to)
		return -errno;
	if (from) {
		error = copy_others(from, to, change);
		if (!error && (fstat(fileno(from), &status) || fchown(fileno(to), status.st_uid, status.st_gid) ||
			       fchmod(fileno(to), status.st_mode & 07777)))
			error = -errno;
	}
	if (error) {
		fclose(to);
		return error;
	}
	if (change->type) {
		fprintf(to, "%s ", change->source);
		put_field(to, change->directory);
		/*
		 * For ever: somebody may have to type first, larderd waits for what is missing (larder.conf), md for a disk, and behind a
		 * timeout nobody would mount what comes then.
		 */
		fprintf(to, " %s %s%sx-systemd.device-timeout=0,%s 0 %d\n", change->type, change->flags & FSTAB_ESSENTIAL ? "" : "nofail,",
			change->flags & FSTAB_REMOTE ? "_netdev," : "", change->mark, strcmp(change->type, "ext4") ? 0 : 2);
	}
	good = !fflush(to) && !ferror(to) && !fsync(fileno(to));
	good = !fclose(to) && good;
	good = good && !rename(next, path);
	return good ? sync_directory_of(path) : errno ? -errno : -EIO;
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
	char *real = realpath(fstab_path(), NULL); /* where it is a link that stays one */
	const char *path = real ? real : fstab_path();
	char text[UUID_TEXT], *mark = must_print("x-larder.stack=%s", uuid_text(uuid, text)), *next = must_print("%s.larder-new", path);
	FILE *from = fopen(path, "re");
	int error, result;

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
	result = error ? complain(LARDER_FAILED, "%s: cannot change it: %s", path, strerror(-error)) : LARDER_DONE;
	free(real);
	return result;
}

int fstab_set(const uint8_t uuid[16], const char *source, const char *directory, const char *type, unsigned flags)
{
	return apply(uuid, (struct change){ .source = source, .directory = directory, .type = source ? type : NULL, .flags = flags });
}

int fstab_move(const uint8_t uuid[16], const char *source)
{
	return apply(uuid, (struct change){ .source = source });
}
