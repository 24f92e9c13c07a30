// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fstab is replaced as a whole, by rename: whoever reads it, or a power cut, finds the old one or the new one; behind each function that changes it
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
#include "mounts.h"
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

#define HELD "x-larder.essential"
#define NETDEV "_netdev"
/* unmounted before that unit stops what the network's disks are below */
#define BEHIND "x-systemd.after=larder-network.service"

enum waits {
	WAITS_AS_IT_DID,
	WAITS,
	WAITS_NOT,
	WAITS_LATER,
};

/* What marked lines become: another one, or none, or (keep) the same but for what is given. */
struct change {
	const char *mark, *source, *directory, *type;
	const char *before; /* only those that name this directory; NULL: all */
	unsigned flags;
	bool keep;
	enum waits waits; /* does a boot? */
};

/* The field that line begins with, behind the blanks in front of it, which are put; *line is behind it then. */
static char *take_field(char **line, FILE *to)
{
	size_t blanks = strspn(*line, " \t"), length = strcspn(*line + blanks, " \t\n");
	char *field = must_print("%.*s", (int)length, *line + blanks);

	fwrite(*line, 1, blanks, to);
	*line += blanks + length;
	return field;
}

/* With nofail or without; not every other option that is called like it.  remote: with _netdev. */
static void put_options(FILE *to, char *options, enum waits waits, bool remote)
{
	const char *word, *between = "";
	bool nofail = false;

	while ((word = strsep(&options, ","))) {
		nofail |= !strcmp(word, "nofail");
		remote &= strcmp(word, NETDEV) != 0;
		if ((waits == WAITS && !strcmp(word, "nofail")) || (waits != WAITS_AS_IT_DID && !strcmp(word, HELD)))
			continue;
		fprintf(to, "%s%s", between, word);
		between = ",";
	}
	if ((waits == WAITS_NOT || waits == WAITS_LATER) && !nofail)
		fprintf(to, "%snofail", between);
	if (waits == WAITS_LATER)
		fprintf(to, ",%s", HELD);
	if (remote)
		fputs("," NETDEV "," BEHIND, to);
}

static void put_changed(FILE *to, char *line, const struct change *change)
{
	char *source = take_field(&line, to), *directory, *type, *options;

	fputs(change->source ? change->source : source, to);
	directory = take_field(&line, to);
	if (change->directory)
		put_field(to, change->directory);
	else
		fputs(directory, to);
	type = take_field(&line, to);
	fputs(type, to);
	options = take_field(&line, to);
	put_options(to, options, change->waits, change->flags & FSTAB_REMOTE);
	fputs(line, to);
	free(source);
	free(directory);
	free(type);
	free(options);
}

/* Is this one of its options?  Anywhere else it is somebody's remark. */
static bool has_option(const char *line, const char *option)
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
		if (length == strlen(option) && !memcmp(at, option, length))
			return true;
		if (at[length] != ',')
			return false;
	}
}

/* Two paths of one place, as text: whatever is mounted there, or hangs, is not asked. */
static bool is_same_path(const char *a, const char *b)
{
	for (;;) {
		size_t length;

		a += strspn(a, "/");
		b += strspn(b, "/");
		length = strcspn(a, "/");
		if (length != strcspn(b, "/") || memcmp(a, b, length))
			return false;
		if (!length)
			return true;
		a += length;
		b += length;
	}
}

/* The first two fields of a line, decoded, to be freed; false: it is a remark, or has none. */
static bool take_place(const char *line, char **source, char **directory)
{
	const char *at = line + strspn(line, " \t"), *behind = at + strcspn(at, " \t\n"), *second = behind + strspn(behind, " \t");

	if (*at == '#' || behind == at)
		return false;
	*source = must_print("%.*s", (int)(behind - at), at);
	*directory = must_print("%.*s", (int)strcspn(second, " \t\n"), second);
	mounts_decode(*source);
	mounts_decode(*directory);
	return true;
}

/* Does it name that directory?  One that is empty none does. */
static bool names_directory(const char *line, const char *directory)
{
	char *source, *place;
	bool named;

	if (!take_place(line, &source, &place))
		return false;
	named = *place == '/' && *directory && is_same_path(place, directory);
	free(source);
	free(place);
	return named;
}

/* All lines of from but the marked ones, which may change.  Returns 0 or -errno: then some are missing. */
static int copy_others(FILE *from, FILE *to, const struct change *change)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t length;

	errno = 0;
	while ((length = getline(&line, &room, from)) > 0) {
		bool marked = has_option(line, change->mark) && (!change->before || names_directory(line, change->before));

		if (marked && !change->keep)
			continue;
		if (marked)
			put_changed(to, line, change);
		else
			fwrite(line, 1, (size_t)length, to);
		if (line[length - 1] != '\n')
			fputc('\n', to);
	}
	length = feof(from) ? 0 : errno ? -errno : -EIO;
	free(line);
	return (int)length;
}

/* For nobody else to read until it has the mode of what it replaces: that may be root's alone.  What a kill has left there goes.  NULL: errno. */
static FILE *begin(const char *path, bool replaces)
{
	int file = unlink(path) && errno != ENOENT ? -1 : open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, replaces ? 0600 : 0644);

	return file < 0 ? NULL : must_allocate(fdopen(file, "w"));
}

static int replace(FILE *from, const char *path, const char *next, const struct change *change)
{
	FILE *to = begin(next, from);
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
		fprintf(to, " %s %s%s%sx-systemd.device-timeout=0,%s 0 %d\n", change->type, change->flags & FSTAB_ESSENTIAL ? "" : "nofail,",
			change->flags & FSTAB_HELD ? HELD "," : "", change->flags & FSTAB_REMOTE ? NETDEV "," BEHIND "," : "", change->mark,
			strcmp(change->type, "ext4") ? 0 : 2);
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

/* The option that a stack's line is known by; the caller frees it. */
static char *mark_of(const uint8_t uuid[16])
{
	char text[UUID_TEXT];

	return must_print("x-larder.stack=%s", uuid_text(uuid, text));
}

enum found {
	FOUND_NONE,
	FOUND_WAITS,
	FOUND_HELD,
	FOUND_WAITS_NOT,
};

/* The line with the mark: enum found, or -errno; *remote: it has _netdev; the file is to be read from its beginning again. */
static int find_marked(FILE *file, const char *mark, bool *remote)
{
	enum found found = FOUND_NONE;
	char *line = NULL;
	size_t room = 0;
	int error;

	errno = 0;
	while (!found && getline(&line, &room, file) > 0)
		if (has_option(line, mark)) {
			found = has_option(line, HELD) ? FOUND_HELD : has_option(line, "nofail") ? FOUND_WAITS_NOT : FOUND_WAITS;
			*remote = has_option(line, NETDEV);
		}
	error = found || feof(file) ? 0 : errno ? -errno : -EIO;
	free(line);
	rewind(file);
	return error ? error : (int)found;
}

/* Of several with the mark those that name its directory; an only one that names another is one that was cut off, or changed by hand.  0, or -errno. */
static int choose(FILE *file, struct change *change)
{
	unsigned marked = 0, named = 0;
	char *line = NULL;
	size_t room = 0;
	int error;

	errno = 0;
	while (getline(&line, &room, file) > 0) {
		bool ours = has_option(line, change->mark);

		marked += ours;
		named += ours && names_directory(line, change->before);
	}
	error = feof(file) ? 0 : errno ? -errno : -EIO;
	free(line);
	rewind(file);
	if (!error && !named && marked == 1)
		change->before = NULL;
	return error || named || marked < 2 || !*change->before ? error : -ENOTUNIQ;
}

static int apply(const uint8_t uuid[16], struct change change)
{
	char *real = realpath(fstab_path(), NULL); /* where it is a link that stays one */
	const char *path = real ? real : fstab_path();
	char *mark = mark_of(uuid), *next = must_print("%s.larder-new", path);
	FILE *from = fopen(path, "re");
	int there = from ? 1 : errno == ENOENT ? 0 : -errno, error, result;
	bool remote;

	change.mark = mark;
	if (from && !change.type)
		there = find_marked(from, mark, &remote);
	if (there > 0 && change.before && !change.type) {
		error = choose(from, &change);
		there = error ? error : there;
	}
	/* where there is nothing to change it may be one that cannot be written */
	if (there < 0 || (!there && !change.type)) {
		error = there;
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
	if (error == -ENOTUNIQ)
		result = complain(LARDER_FAILED, "%s: has several lines of the stack, and none for %s; say there which is meant, by the directory", path,
				  change.before);
	else
		result = error ? complain(LARDER_FAILED, "%s: cannot change it: %s", path, strerror(-error)) : LARDER_DONE;
	free(real);
	return result;
}

int fstab_set(const uint8_t uuid[16], const char *source, const char *directory, const char *type, unsigned flags)
{
	return apply(uuid, (struct change){ .source = source, .directory = directory, .type = source ? type : NULL, .flags = flags });
}

int fstab_add(const uint8_t uuid[16], const char *source, const char *directory, const char *type, unsigned flags)
{
	return apply(uuid, (struct change){ .source = source, .directory = directory, .type = type, .flags = flags, .before = directory });
}

int fstab_take_out(const uint8_t uuid[16], const char *before)
{
	return apply(uuid, (struct change){ .before = before });
}

int fstab_move(const uint8_t uuid[16], const char *source)
{
	return apply(uuid, (struct change){ .source = source, .keep = true });
}

int fstab_move_mount(const uint8_t uuid[16], const char *before, const char *directory)
{
	return apply(uuid, (struct change){ .before = before, .directory = directory, .keep = true });
}

int fstab_set_essential(const uint8_t uuid[16], const char *directory, bool essential)
{
	return apply(uuid, (struct change){ .before = directory, .waits = essential ? WAITS : WAITS_NOT, .keep = true });
}

/* enum found, or -errno; if it is there: *remote: it has _netdev. */
static int look_up(const uint8_t uuid[16], bool *remote)
{
	FILE *file = fopen(fstab_path(), "re");
	char *mark = mark_of(uuid);
	int found = file ? find_marked(file, mark, remote) : errno == ENOENT ? FOUND_NONE : -errno;

	if (file)
		fclose(file);
	free(mark);
	return found;
}

static int find(const uint8_t uuid[16])
{
	bool remote;

	return look_up(uuid, &remote);
}

bool fstab_has(const uint8_t uuid[16])
{
	return find(uuid) > FOUND_NONE;
}

int fstab_set_remote(const uint8_t uuid[16])
{
	bool remote;
	int found = look_up(uuid, &remote);

	return found > FOUND_NONE && !remote ? apply(uuid, (struct change){ .flags = FSTAB_REMOTE, .keep = true }) : LARDER_DONE;
}

bool fstab_is_held(const uint8_t uuid[16])
{
	return find(uuid) == FOUND_HELD;
}

int fstab_hold(const uint8_t uuid[16])
{
	int found = find(uuid);

	if (found < 0)
		return complain(LARDER_FAILED, "%s: cannot read it: %s", fstab_path(), strerror(-found));
	return found == FOUND_WAITS ? apply(uuid, (struct change){ .waits = WAITS_LATER, .keep = true }) : LARDER_DONE;
}

int fstab_release(const uint8_t uuid[16])
{
	return fstab_is_held(uuid) ? apply(uuid, (struct change){ .waits = WAITS, .keep = true }) : LARDER_DONE;
}

/* The first line, of ours or of the others, for one of two spellings of a directory: what it is, to be freed. */
static char *find_place(const uint8_t uuid[16], bool ours, const char *directory, const char *real)
{
	char *mark = mark_of(uuid), *line = NULL, *found = NULL, *source, *place;
	FILE *file = fopen(fstab_path(), "re");
	unsigned number = 0;
	size_t room = 0;

	while (file && !found && getline(&line, &room, file) > 0) {
		number++;
		if (has_option(line, mark) != ours || !take_place(line, &source, &place))
			continue;
		if (*place == '/' && (is_same_path(place, directory) || is_same_path(place, real)))
			found = must_print("line %u of %s, %s", number, fstab_path(), source);
		free(source);
		free(place);
	}
	if (file)
		fclose(file);
	free(line);
	free(mark);
	return found;
}

char *fstab_other(const uint8_t uuid[16], const char *directory)
{
	char *real = realpath(directory, NULL), *found = find_place(uuid, false, directory, real ? real : directory);

	free(real);
	return found;
}

bool fstab_mounts(const uint8_t uuid[16], const char *directory)
{
	char *found = find_place(uuid, true, directory, directory);

	free(found);
	return found;
}
