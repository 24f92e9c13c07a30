// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

static _Noreturn void carry_out(int (*work)(void *argument), void *argument)
{
	sigset_t all;

	setsid();
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	/* without it a page of the program may have to be read, from what is suspended; where that is forbidden, most are there */
	mlockall(MCL_CURRENT | MCL_FUTURE);
	_exit(work(argument));
}

int guard_run(int (*work)(void *argument), void *argument)
{
	pid_t child = fork(), ended;
	int status;

	if (child < 0)
		return GUARD_BROKEN;
	if (!child)
		carry_out(work, argument);
	do
		ended = waitpid(child, &status, 0);
	while (ended < 0 && errno == EINTR);
	return ended == child && WIFEXITED(status) ? WEXITSTATUS(status) : GUARD_BROKEN;
}
