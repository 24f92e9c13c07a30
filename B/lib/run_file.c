// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Files of lines in /run/larder.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "run_file.h"
#include "turn.h"

char *run_path(const char *name)
{
	const char *directory = getenv("LARDER_RUN");

	return must_print("%s%s%s", directory ? directory : RUN_DIRECTORY, *name ? "/" : "", name);
}

static int write_file(const char *path, void (*print)(FILE *file, const void *data), const void *data)
{
	FILE *file = fopen(path, "we");
	int error;

	if (!file)
		return errno;
	print(file, data);
	error = ferror(file) ? EIO : 0;
	return fclose(file) ? errno : error;
}

int run_file_replace(const char *name, void (*print)(FILE *file, const void *data), const void *data)
{
	char *path = run_path(name), *new = must_print("%s.new", path), *directory = run_path("");
	int error;

	mkdir(directory, 0755);
	error = write_file(new, print, data);
	if (!error && rename(new, path))
		error = errno;
	if (error)
		unlink(new);
	free(directory);
	free(new);
	free(path);
	return error;
}

void run_file_lines(const char *name, void (*take)(char *line, void *data), void *data)
{
	char *path = run_path(name), *line = NULL;
	FILE *file = fopen(path, "re");
	size_t room = 0;
	ssize_t length;

	free(path);
	while (file && (length = getline(&line, &room, file)) > 0) {
		if (line[length - 1] != '\n')
			break;
		line[length - 1] = 0;
		take(line, data);
	}
	free(line);
	if (file)
		fclose(file);
}
