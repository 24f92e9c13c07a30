// SPDX-License-Identifier: GPL-2.0-or-later
/* Directories of files that are replaced. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "directory.h"
#include "message.h"

int sync_directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *parent = slash ? must_print("%.*s", slash == path ? 1 : (int)(slash - path), path) : must_print(".");
	int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = fd < 0 || fsync(fd) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	free(parent);
	return error;
}
