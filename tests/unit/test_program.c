// SPDX-License-Identifier: GPL-2.0-or-later
/* lib/program.c: what a program says last, and its exit code; where there is no room for a process nothing is left open. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <unistd.h>

static bool full;

static pid_t fork_or_not(void);
#define fork() fork_or_not()
#include "../../lib/program.c"
#undef fork
#include "../../lib/message.c"
#include "check.h"

static pid_t fork_or_not(void)
{
	errno = EAGAIN;
	return full ? -1 : fork();
}

static bool runs(const char *command, int code, const char *last)
{
	const char *words[] = { "sh", "-c", command, NULL };
	char *said;
	bool good = program_run(words, &said) == code && !strcmp(said, last);

	free(said);
	return good;
}

int main(void)
{
	int before = dup(0), after;

	close(before);
	check(runs("echo first; echo last >&2; echo; exit 3", 3, "last"), "both of what it prints");
	check(runs("exit 0", 0, ""), "nothing");
	full = true;
	check(runs("exit 0", 127, strerror(EAGAIN)), "no process");
	after = dup(0);
	check(before == after, "nothing is left open");
	return failed;
}
