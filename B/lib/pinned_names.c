// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The list of names in trusted.larder.pinned (pinned_names.h).
 *
 * Only who may administrate the machine sees or sets an attribute trusted.*; but a filesystem that came from elsewhere may have any.  So a name in it that
 * could lead out of it makes the list none, and whoever opens a file by it stays below the root.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "message.h"
#include "mounts.h"
#include "pinned_names.h"

#define ATTRIBUTE  "trusted.larder.pinned"
#define BTRFS_ROOT 256 /* inode of the root of each subvolume */

/* ------------------------------------------------------------------ the list */

bool pinned_name_valid(const char *name)
{
	const char *part = name;

	if (!*name || *name == '/')
		return false;
	for (const char *c = name;; c++) {
		if (*c == '/' || !*c) {
			if (c == part || (c - part == 1 && *part == '.') || (c - part == 2 && !strncmp(part, "..", 2)))
				return false;
			part = c + 1;
		}
		if (!*c)
			return true;
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	}
}

bool pinned_names_next(const char *names, size_t *at, char name[static PINNED_NAMES_MAX])
{
	size_t length = strcspn(names + *at, "\n");

	if (!length)
		return false;
	memcpy(name, names + *at, length);
	name[length] = 0;
	*at += length + !!names[*at + length];
	return true;
}

bool pinned_names_have(const char *names, const char *name)
{
	char one[PINNED_NAMES_MAX];
	size_t at = 0;

	while (pinned_names_next(names, &at, one))
		if (!strcmp(one, name))
			return true;
	return false;
}

bool pinned_names_add(char names[static PINNED_NAMES_MAX], const char *name)
{
	size_t length = strlen(names), more = strlen(name);

	if (length + more + 2 > PINNED_NAMES_MAX)
		return false;
	memcpy(names + length, name, more);
	memcpy(names + length + more, "\n", 2);
	return true;
}

void pinned_names_drop(char names[static PINNED_NAMES_MAX], const char *name)
{
	char old[PINNED_NAMES_MAX], one[PINNED_NAMES_MAX];
	size_t at = 0;

	memcpy(old, names, sizeof(old));
	names[0] = 0;
	while (pinned_names_next(old, &at, one))
		if (strcmp(one, name))
			pinned_names_add(names, one);
}

/* As it is in the attribute: each with a newline, all of them good. */
static bool list_valid(const char *names, size_t length)
{
	char name[PINNED_NAMES_MAX];
	size_t at = 0;

	if (strlen(names) != length || (length && names[length - 1] != '\n'))
		return false;
	while (pinned_names_next(names, &at, name))
		if (!pinned_name_valid(name))
			return false;
	return at == length;
}

/* ------------------------------------------------------------------ mounted filesystems */

int pin_root_open(const struct pin_root *root)
{
	return open(root->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void read_names(int fd, struct pin_root *root)
{
	ssize_t length = fgetxattr(fd, ATTRIBUTE, root->names, sizeof(root->names) - 1);
	int error = length < 0 ? errno : 0;

	root->names[length > 0 ? length : 0] = 0;
	if (error && error != ENODATA)
		remark("%s: its list of pinned files (attribute " ATTRIBUTE ") cannot be read: %s", root->point, strerror(error));
	else if (length > 0 && !list_valid(root->names, (size_t)length))
		remark("%s: its list of pinned files (attribute " ATTRIBUTE ") is not larder's; left alone", root->point);
	else
		return;
	root->unreadable = true;
	root->names[0] = 0;
}

/* Is it the root of a filesystem, and not covered by another one? */
static bool is_root(const struct mount *mount, int fd, struct pin_root *root)
{
	bool btrfs = !strcmp(mount->type, "btrfs");
	struct stat status;

	if (fstat(fd, &status))
		return false;
	root->number = status.st_dev;
	return btrfs ? status.st_ino == BTRFS_ROOT : !strcmp(mount->root, "/") && status.st_dev == makedev(mount->high, mount->low);
}

static void take_mount(struct pin_roots *roots, const struct mount *mount)
{
	struct pin_root *root = must_allocate(calloc(1, sizeof(*root)));
	int fd;

	memcpy(root->point, mount->point, sizeof(root->point));
	fd = pin_root_open(root);
	if (fd >= 0 && is_root(mount, fd, root)) {
		for (size_t i = 0; i < roots->number; i++)
			root->again |= roots->root[i].number == root->number;
		if (!root->again)
			read_names(fd, root);
		roots->root = must_allocate(realloc(roots->root, (roots->number + 1) * sizeof(*root)));
		roots->root[roots->number++] = *root;
	}
	if (fd >= 0)
		close(fd);
	free(root);
}

void pin_roots_find(struct pin_roots *roots)
{
	static const char *const types[] = { "ext2", "ext3", "ext4", "xfs", "btrfs" };
	struct mount *mount = must_allocate(malloc(sizeof(*mount)));
	FILE *file = mounts_open();

	*roots = (struct pin_roots){ 0 };
	while (file && mounts_next(file, mount)) {
		bool known = false;

		for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
			known |= !strcmp(mount->type, types[i]);
		if (known)
			take_mount(roots, mount);
	}
	if (file)
		fclose(file);
	free(mount);
}

void pin_roots_free(struct pin_roots *roots)
{
	free(roots->root);
	*roots = (struct pin_roots){ 0 };
}

struct pin_root *pin_root_of(const struct pin_roots *roots, const char *path, char name[static PATH_MAX])
{
	struct pin_root *found = NULL;
	size_t deepest = 0;

	for (size_t i = 0; i < roots->number; i++) {
		const char *point = roots->root[i].point;
		size_t length = strcmp(point, "/") ? strlen(point) : 0;

		if (strncmp(path, point, length) || path[length] != '/' || (found && length < deepest))
			continue;
		found = &roots->root[i];
		deepest = length;
	}
	if (!found)
		return NULL;
	strcpy(name, path + deepest + 1);
	for (size_t i = 0; i < roots->number; i++)
		if (roots->root[i].number == found->number)
			return &roots->root[i]; /* the first one, which has the names */
	return NULL;
}

int pin_root_check(const struct pin_root *root)
{
	if (!root->unreadable)
		return LARDER_DONE;
	return complain(LARDER_FAILED,
			"%s: which files are pinned cannot be known (attribute " ATTRIBUTE " of its root directory), so nothing was changed; mend that, or give the list up: setfattr -x " ATTRIBUTE " %s",
			root->point, root->point);
}

int pin_root_store(const struct pin_root *root)
{
	int fd = pin_root_open(root), error;
	bool none = !*root->names;

	error = fd < 0 || (none ? fremovexattr(fd, ATTRIBUTE) : fsetxattr(fd, ATTRIBUTE, root->names, strlen(root->names), 0)) ? errno : 0;
	if (error == ENODATA && none)
		error = 0;
	if (!error && fsync(fd))
		error = errno;
	if (fd >= 0)
		close(fd);
	if (!error)
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: the names of its pinned files cannot be written to its root directory (attribute " ATTRIBUTE "): %s", root->point,
			strerror(error));
}
