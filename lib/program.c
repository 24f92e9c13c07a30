// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Running other programs.  They get no secret: neither in their words nor in their environment (token.c gives them one in an open file).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "message.h"
#include "program.h"

#define DIES_US 1000000 /* what is killed, and may be */
#define SEARCH "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"

const char *const program_unit[] = { "systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--service-type=exec", NULL };

bool program_is_unit(void)
{
	return getenv("INVOCATION_ID") && !access("/run/systemd/system", F_OK) && !access("/run/dbus/system_bus_socket", F_OK);
}

char *program_unit_word(const char *word)
{
	char *text = must_allocate(malloc(2 * strlen(word) + 1)), *to = text;

	for (; *word; word++) {
		*to++ = *word;
		if (*word == '$')
			*to++ = '$';
	}
	*to = 0;
	return text;
}

static char *search_path(void)
{
	const char *path = getenv("PATH");

	return must_print("%s%s%s", path ? path : "", path ? ":" : "", SEARCH);
}

bool program_there(const char *name)
{
	char *path = search_path(), *rest = path, *directory;
	bool found = false;

	while (!found && (directory = strsep(&rest, ":"))) {
		char *file = must_print("%s/%s", *directory ? directory : ".", name);

		found = !access(file, X_OK);
		free(file);
	}
	free(path);
	return found;
}

/* in -1: none */
static _Noreturn void become(const char *const *words, int in, int out, int err, pid_t parent)
{
	char *path = search_path();

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	dup2(in < 0 ? open("/dev/null", O_RDONLY) : in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	setenv("LC_ALL", "C", 1);
	setenv("PATH", path, 1);
	/* without udevd mdadm would wait for links that nobody makes */
	if (access("/run/udev/control", F_OK))
		setenv("MDADM_NO_UDEV", "1", 1);
	execvp(words[0], (char *const *)words);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", words[0], strerror(errno));
	_exit(127);
}

/* The last line that has something in it. */
static char *last_line(FILE *file)
{
	char *line = NULL, *last = must_print("%s", "");
	size_t room = 0;

	while (getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = 0;
		if (!line[strspn(line, " \t")])
			continue;
		free(last);
		last = must_print("%s", line);
	}
	free(line);
	return last;
}

int program_end(pid_t child, bool stop)
{
	int status = 0;

	if (stop)
		kill(child, SIGTERM);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

/* err -1: its complaints are among what it prints. */
static pid_t begin(const char *const *words, int in, int *out, int err)
{
	pid_t parent = getpid(), child;
	int ends[2];

	fflush(stdout);
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (!child)
		become(words, in, ends[1], err < 0 ? ends[1] : err, parent);
	close(ends[1]);
	if (child < 0)
		close(ends[0]);
	else
		*out = ends[0];
	return child;
}

int program_run(const char *const *words, char **said)
{
	int out;
	pid_t child = begin(words, -1, &out, -1);
	FILE *file;

	if (child < 0) {
		*said = must_print("%s", strerror(errno));
		return 127;
	}
	file = must_allocate(fdopen(out, "r"));
	*said = last_line(file);
	fclose(file);
	return program_end(child, false);
}

pid_t program_begin(const char *const *words, int *out)
{
	return begin(words, -1, out, STDERR_FILENO);
}

pid_t program_begin_with(const char *const *words, int in, int *out)
{
	return begin(words, in, out, STDERR_FILENO);
}

pid_t program_begin_all(const char *const *words, int *out)
{
	return begin(words, -1, out, -1);
}

/* Until its end, or the time is over: false. */
static bool hear(int out, double due, char *answer, size_t room, size_t *length)
{
	struct pollfd more = { .fd = out, .events = POLLIN };
	char rest[4096];

	for (;;) {
		double left = due - clock_seconds();
		bool full = *length == room;
		ssize_t part;

		if (due && left <= 0)
			return false;
		if (poll(&more, 1, due ? (int)(left * 1000) + 1 : -1) < 1)
			continue;
		part = full ? read(out, rest, sizeof(rest)) : read(out, answer + *length, room - *length);
		if (part < 0 && errno == EINTR)
			continue;
		if (part <= 0)
			return true;
		*length += full ? 0 : (size_t)part;
	}
}

bool program_answer(const char *const *words, double seconds, char *answer, size_t room, size_t *length)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), out;
	pid_t child = null < 0 ? -1 : begin(words, -1, &out, null);
	bool ended = true;

	*length = 0;
	if (child >= 0) {
		ended = hear(out, seconds ? clock_seconds() + seconds : 0, answer, room, length);
		close(out);
		if (ended)
			program_end(child, false);
		else
			kill(child, SIGKILL);
		for (unsigned us = 0; !ended && us < DIES_US && !waitpid(child, NULL, WNOHANG); us += DIES_US / 100)
			usleep(DIES_US / 100);
	}
	if (null >= 0)
		close(null);
	return ended;
}
