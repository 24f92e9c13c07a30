// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder metrics: all that the kernel tells, for a monitoring system.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arguments.h"
#include "metrics.h"
#include "snapshot.h"
#include "verbs.h"

static void write_metrics(FILE *out, const struct mapped_list *list, enum metrics_format format)
{
	struct stalled_list stalled;

	stalled_read(&stalled);
	metrics_write(out, list, &stalled, format);
	stalled_free(&stalled);
}

static bool write_all(FILE *out, const struct mapped_list *list, enum metrics_format format)
{
	bool good;

	write_metrics(out, list, format);
	good = !ferror(out);
	return !fclose(out) && good;
}

/* mkstemp() keeps it from others; whoever reads the file afterwards is another user, as a rule. */
static bool open_to_readers(int fd)
{
	mode_t mask = umask(0);

	umask(mask);
	return !fchmod(fd, 0666 & ~mask);
}

/*
 * Where the file lies by that path, which the caller frees, or where it will; behind a link the file that it leads to.  Anything else is not
 * ours to replace (/dev/null, a FIFO): NULL, and has complained.
 */
static char *place_of(const char *path)
{
	struct stat status;
	char *real;

	if (lstat(path, &status))
		return must_allocate(strdup(path));
	real = S_ISLNK(status.st_mode) ? realpath(path, NULL) : must_allocate(strdup(path));
	if (real && !lstat(real, &status) && S_ISREG(status.st_mode))
		return real;
	free(real);
	complain(LARDER_USAGE, "%s: is no regular file, and is not replaced; --output names one, without it metrics go to standard output", path);
	return NULL;
}

/*
 * A reader sees the file as it was, or the new one whole.  It is not made durable: after a power cut the next run writes it anew.  Complains.
 */
static int replace_file(const char *path, const struct mapped_list *list, enum metrics_format format)
{
	char *new = must_print("%s.XXXXXX", path);
	int fd = mkostemp(new, O_CLOEXEC), result = LARDER_DONE;
	FILE *out = fd < 0 || !open_to_readers(fd) ? NULL : fdopen(fd, "w");

	if (!out || !write_all(out, list, format) || rename(new, path)) {
		result = complain(LARDER_FAILED, "%s: cannot write it: %s; --output names it", path, strerror(errno));
		if (fd >= 0 && !out)
			close(fd);
		if (fd >= 0)
			unlink(new);
	}
	free(new);
	return result;
}

static bool parse_format(const char *text, enum metrics_format *format)
{
	*format = text && !strcmp(text, "prometheus") ? METRICS_PROMETHEUS : METRICS_OPENMETRICS;
	if (!text || *format == METRICS_PROMETHEUS || !strcmp(text, "openmetrics"))
		return true;
	complain(LARDER_USAGE, "--format: '%s' is neither openmetrics nor prometheus", text);
	return false;
}

int metrics(int argc, char **argv)
{
	const char *output = NULL, *name = NULL;
	bool all = false;
	const struct argument arguments[] = {
		{ "output", 0, ARGUMENT_TEXT, &output, "FILE", "replace this file, as a whole" },
		{ "format", 0, ARGUMENT_TEXT, &name, "FORMAT", "openmetrics, or prometheus for node_exporter's textfile collector" },
		{ "list", 'l', ARGUMENT_FLAG, &all, NULL, "the metrics that there are: name, type, unit, meaning" },
		ARGUMENTS_END
	};
	enum metrics_format format;
	struct mapped_list list;
	char *place = NULL;
	int first, result;

	if (!arguments_words(argc, argv, "larder metrics [--output FILE] [--format openmetrics|prometheus] | --list", arguments, 0, 0, &first,
			     &result))
		return result;
	if (!parse_format(name, &format))
		return LARDER_USAGE;
	if (all) {
		metrics_describe(stdout);
		return LARDER_DONE;
	}
	if (output && !(place = place_of(output)))
		return LARDER_USAGE;
	mapped_init(false);
	result = snapshot_take(&list);
	if (!result && output)
		result = replace_file(place, &list, format);
	else if (!result)
		write_metrics(stdout, &list, format);
	mapped_list_free(&list);
	free(place);
	return result;
}
