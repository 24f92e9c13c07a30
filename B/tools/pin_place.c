// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * From a file to sectors of a volume, and between a path and a name in a filesystem.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "descent.h"
#include "file_extents.h"
#include "message.h"
#include "pin_place.h"

void place_free(struct place *place)
{
	ranges_free(&place->all);
	ranges_free(&place->written);
}

int place_find(const char *what, int fd, struct place *place)
{
	struct file_extents extents;
	int result;

	*place = (struct place){ 0 };
	if (fd < 0)
		return complain(errno == ENOENT || errno == ENOTDIR ? LARDER_NOT_FOUND : LARDER_FAILED, "%s: %s", what, strerror(errno));
	result = file_extents_read(what, fd, &extents);
	if (result)
		return result;
	place->shared = extents.shared;
	place->unplaced = extents.unplaced;
	result = descend(what, extents.device, &extents.all, level_look_here, &place->volume, &place->all);
	result = result ? result : descend(what, extents.device, &extents.written, level_look_here, &place->volume, &place->written);
	file_extents_free(&extents);
	ranges_join(&place->all);
	ranges_join(&place->written);
	if (result)
		place_free(place);
	return result;
}

char *place_path(const struct pin_root *root, const char *name)
{
	return must_print("%s/%s", strcmp(root->point, "/") ? root->point : "", name);
}

/* As open(). */
static int open_name(const struct pin_root *root, const char *name)
{
	int directory = pin_root_open(root), fd = directory < 0 ? -1 : file_open(directory, name), error = errno;

	if (directory >= 0)
		close(directory);
	errno = error;
	return fd;
}

int place_of_name(const struct pin_root *root, const char *name, struct place *place)
{
	char *path = place_path(root, name);
	int fd = open_name(root, name), result = place_find(path, fd, place);

	if (fd >= 0)
		close(fd);
	free(path);
	return result;
}

dev_t place_volume(const struct pin_root *root)
{
	struct range first = { 0, 8 };
	struct ranges one = { &first, 1 }, found = { 0 };
	int fd = pin_root_open(root);
	dev_t device, volume = 0;

	if (fd < 0 || file_device(NULL, fd, &device) || descend(NULL, device, &one, level_look_here, &volume, &found))
		volume = 0;
	if (fd >= 0)
		close(fd);
	ranges_free(&found);
	return volume;
}

void place_plain_path(const char *word, char path[static PATH_MAX])
{
	char *whole, *slash;

	if (realpath(word, path))
		return;
	whole = word[0] == '/' ? must_print("%s", word) : must_print("%s/%s", getcwd(path, PATH_MAX) ? path : "", word);
	slash = strrchr(whole, '/');
	*slash = 0;
	if (!realpath(*whole ? whole : "/", path))
		snprintf(path, PATH_MAX, "%s", whole);
	snprintf(path + strlen(path), PATH_MAX - strlen(path), "%s%s", path[1] ? "/" : "", slash + 1);
	free(whole);
}

bool place_is_name(const struct pin_root *root, const char *name, int fd)
{
	int again = root ? open_name(root, name) : -1;
	struct stat a, b;
	bool same = again >= 0 && !fstat(fd, &a) && !fstat(again, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;

	if (again >= 0)
		close(again);
	return same;
}
