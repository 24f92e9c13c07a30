// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder events: what is wrong, and what changes, in words and for a program.
 *
 * The descriptor of device-mapper's control node is opened before each look: what happens after that wakes the next poll(), so nothing
 * is slept through.  What comes and goes between two looks is not seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arguments.h"
#include "changes.h"
#include "monitor.h"
#include "snapshot.h"
#include "verbs.h"

#define EXEC_FAILED 127 /* as of a shell */

static const char *kind(const struct change *c)
{
	return c->cache ? "cache" : "volume";
}

static void print(const struct change *c)
{
	time_t clock = time(NULL);
	struct tm local;
	char text[40];

	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S%z", localtime_r(&clock, &local));
	printf("%s %s %s %s: %s\n", text, c->event, kind(c), c->name, c->text);
}

/* The child's part. */
static void become(const char *program, const struct change *c)
{
	char *device = must_print("/dev/mapper/%s", c->device);
	int null = open("/dev/null", O_RDONLY);

	if (null >= 0)
		dup2(null, STDIN_FILENO);
	setenv("LARDER_KIND", kind(c), 1);
	setenv("LARDER_DEVICE", device, 1);
	execlp(program, program, c->event, c->name, c->text, (char *)NULL);
	_exit(EXEC_FAILED);
}

/* Runs it, and waits for its end: one after another, in the order of the changes. */
static void tell(const char *program, const struct change *c)
{
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		become(program, c);
	if (child < 0 || waitpid(child, &status, 0) < 0)
		remark("%s: cannot run it: %s; --exec names it", program, strerror(errno));
	else if (WIFEXITED(status) && WEXITSTATUS(status) == EXEC_FAILED)
		remark("%s: it cannot be run; --exec names it", program);
	else if (!WIFEXITED(status) || WEXITSTATUS(status))
		remark("%s: it failed for the event %s of %s %s", program, c->event, kind(c), c->name);
}

static int report_changes(struct changes *changes, const char *program)
{
	for (size_t i = 0; i < changes->number; i++) {
		print(&changes->change[i]);
		if (program)
			tell(program, &changes->change[i]);
	}
	changes_free(changes);
	return fflush(stdout) ? complain(LARDER_FAILED, "cannot write the output") : LARDER_DONE;
}

/* Until something happens to a dm device, or for so long.  fd: -1 waits for the time alone. */
static void wait_for_event(int fd, double seconds)
{
	struct pollfd event = { fd, POLLIN, 0 };

	poll(&event, 1, (int)(seconds * 1000)); /* whatever it says: the status is looked at */
}

/* The watch that the next wait is for; it begins before the look. */
static int look(struct mapped_list *list, int *watch)
{
	if (*watch >= 0)
		close(*watch);
	*watch = -1;
	if (!getenv("LARDER_STATUS"))
		*watch = mapped_watch();
	return snapshot_take(list);
}

static int follow(const char *program, double interval, bool on)
{
	struct changes changes = { 0 };
	struct mapped_list before, now;
	int watch = -1, result = look(&before, &watch);

	if (!result) {
		changes_first(&changes, &before);
		result = report_changes(&changes, program);
	}
	while (!result && on) {
		wait_for_event(watch, interval);
		result = look(&now, &watch);
		if (!result) {
			changes_between(&changes, &before, &now);
			result = report_changes(&changes, program);
		}
		mapped_list_free(&before);
		before = now;
	}
	mapped_list_free(&before);
	if (watch >= 0)
		close(watch);
	return result;
}

int events(int argc, char **argv)
{
	const char *program = NULL, *interval_text = NULL;
	bool on = false;
	const struct argument arguments[] = {
		{ "follow", 'f', ARGUMENT_FLAG, &on, NULL, "go on with what changes, until interrupted" },
		{ "exec", 0, ARGUMENT_TEXT, &program, "PROGRAM", "run PROGRAM EVENT NAME TEXT for each" },
		{ "interval", 'i', ARGUMENT_TEXT, &interval_text, "SECONDS", "look that often where no event tells; default: 60" },
		ARGUMENTS_END
	};
	double interval = 60;
	int first, result;

	if (!arguments_words(argc, argv, "larder events [--follow] [--exec PROGRAM] [--interval SECONDS]", arguments, 0, 0, &first, &result))
		return result;
	if (!interval_parse(interval_text, &interval))
		return LARDER_USAGE;
	if (program && !*program)
		return complain(LARDER_USAGE, "--exec: the name of a program is missing");
	mapped_init(false);
	return follow(program, interval, on);
}
