// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Paths on this machine that go with a stack: the mount point, the key file, the backup of the LUKS header.
 *
 * A backup is written over what is there by its name, which could be the only one of another header: it is looked at first.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fstab.h"
#include "luks.h"
#include "message.h"
#include "mounts.h"
#include "stack_paths.h"
#include "superblock.h"

/* ------------------------------------------------------------------ where a path leads */

/* As it is without links, to be freed; what is not there yet lies in its directory. */
static char *without_links(const char *path)
{
	char *real = realpath(path, NULL), *above, *whole;
	const char *name = strrchr(path, '/');

	if (real || !name || name == path)
		return real ? real : must_print("%s", path);
	above = must_print("%.*s", (int)(name - path), path);
	real = without_links(above);
	whole = must_print("%s%s", real, name);
	free(real);
	free(above);
	return whole;
}

/* Is it that directory, or below it?  As text, but that one slash is as good as several. */
static bool is_below(const char *path, const char *directory)
{
	for (;;) {
		size_t length;

		path += strspn(path, "/");
		directory += strspn(directory, "/");
		length = strcspn(directory, "/");
		if (!length)
			return true;
		if (length != strcspn(path, "/") || memcmp(path, directory, length))
			return false;
		path += length;
		directory += length;
	}
}

/* Once the stack is mounted, is that seen which lies there now? */
static bool is_behind_mount(const struct stack *stack, const char *path)
{
	char *mount, *real;
	bool behind;

	if (!*stack->mount)
		return false;
	mount = without_links(stack->mount);
	real = without_links(path);
	behind = is_below(real, mount);
	free(real);
	free(mount);
	return behind;
}

/* ------------------------------------------------------------------ the mount point, and the key file */

/* Is nothing mounted there?  real: the same directory, without links. */
static int check_free(const struct stack *stack, const char *real)
{
	int mounted = mounts_has(real);

	if (mounted < 0)
		return complain(LARDER_FAILED,
				"--mount: %s: /proc/self/mountinfo: %s; whether something is mounted there is not known: mount /proc",
				stack->mount, strerror(-mounted));
	if (mounted || !strcmp(real, "/"))
		return complain(LARDER_BUSY, "--mount: %s: something is mounted there already; unmount it, or give another directory",
				stack->mount);
	return LARDER_DONE;
}

int stack_check_mount(const struct stack *stack)
{
	char *other, *real;
	struct stat here;
	int result;

	if (!*stack->mount)
		return LARDER_DONE;
	real = realpath(stack->mount, NULL);
	if (!real || stat(real, &here)) {
		free(real);
		return complain(LARDER_NOT_FOUND, "--mount: %s: no such directory; make it first", stack->mount);
	}
	other = fstab_other(stack->uuid, stack->mount);
	if (!S_ISDIR(here.st_mode))
		result = complain(LARDER_USAGE, "--mount: %s: is not a directory", stack->mount);
	else
		result = check_free(stack, real);
	if (!result && other)
		result = complain(LARDER_BUSY,
				  "--mount: %s: has a line in fstab already, which a boot would mount there (%s); take that out, or give another directory",
				  stack->mount, other);
	free(other);
	free(real);
	return result;
}

int stack_check_keyfile(const struct stack *stack, const char *option)
{
	if (!*stack->keyfile || !is_behind_mount(stack, stack->keyfile))
		return LARDER_DONE;
	return complain(LARDER_USAGE, "%s: %s: the key file would lie behind the mount that it opens; put it elsewhere", option,
			stack->keyfile);
}

/* ------------------------------------------------------------------ the backup of the LUKS header */

char *stack_backup_path(const struct stack *stack, const char *word)
{
	char text[UUID_TEXT];

	if (!stack->encrypted || (word && !strcmp(word, "none")))
		return NULL;
	return word ? must_print("%s", word) : must_print(BACKUP_DIRECTORY "/%s.luks-header", uuid_text(stack->uuid, text));
}

int stack_check_backup_file(const struct stack *stack, const char *path)
{
	struct stat status;
	uint8_t part[16];

	stack_part(stack, "crypt", part);
	if (lstat(path, &status) || (!stat(path, &status) && S_ISREG(status.st_mode) && luks_backup_is_of(path, part)))
		return LARDER_DONE;
	return complain(LARDER_USAGE,
			"--header-backup: %s: is there already, and no backup of the LUKS header of %s; give another name", path,
			stack->name);
}

int stack_check_backup_place(const struct stack *stack, const char *path)
{
	if (!is_behind_mount(stack, path))
		return LARDER_DONE;
	return complain(LARDER_USAGE,
			"--header-backup: %s: lies behind the mount %s, where nobody could read it when it is needed to open the stack; give another file, or none",
			path, stack->mount);
}

int stack_check_backup_seen(const struct stack *stack)
{
	char *path = stack_backup_path(stack, NULL);
	int result = LARDER_DONE;

	if (path && !access(path, F_OK) && is_behind_mount(stack, path))
		result = complain(LARDER_USAGE,
				  "--mount: %s: the backup of the LUKS header, %s, would lie behind it, where no change of a key could replace it; give another directory, or move that file "
				  "elsewhere, and name it to larder passwd %s --header-backup from then on",
				  stack->mount, path, stack->name);
	free(path);
	return result;
}

/* Its directory is there, and can be written to. */
static int check_parent(const char *path)
{
	char *parent = must_print("%.*s", (int)(strrchr(path, '/') - path + 1), path);
	int result = LARDER_DONE;

	if (access(parent, W_OK))
		result = complain(LARDER_FAILED, "--header-backup: %s: %s; give another file, or none", parent, strerror(errno));
	free(parent);
	return result;
}

int stack_check_backup(const struct stack *stack, const char *word, bool dry_run)
{
	char *path = stack_backup_path(stack, word);
	int result;

	if (word && !stack->encrypted)
		return complain(LARDER_USAGE, "--header-backup: is for --encrypt");
	if (!path)
		return LARDER_DONE;
	if (*path != '/')
		result = complain(LARDER_USAGE, "--header-backup: '%s' is not none, nor an absolute path", path);
	else
		result = stack_check_backup_place(stack, path);
	result = result ? result : stack_check_backup_file(stack, path);
	/* a dry run makes no directory, and need not be root's */
	if (!result && !dry_run) {
		if (!word)
			mkdir(BACKUP_DIRECTORY, 0700);
		result = check_parent(path);
	}
	free(path);
	return result;
}
