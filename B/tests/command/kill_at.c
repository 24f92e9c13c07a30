// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into the command under test: it is killed as soon as the N-th call of device-mapper that changes something (a device made, a
 * table loaded, a suspend or resume, a message) has returned, also where another process of its own makes that call.
 *
 *	KILL_AT=N	from 1
 *	KILL_GUARD=1	of the calls that other processes of its own make; that process is killed, and the command goes on (lib/guard.h)
 */
#include <dlfcn.h>
#include <linux/dm-ioctl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static int (*real_ioctl)(int fd, unsigned long request, ...);
static unsigned long *calls; /* of all our processes */
static pid_t command;

static void __attribute__((constructor)) begin(void)
{
	real_ioctl = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	calls = mmap(NULL, sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	command = getpid();
	if (calls == MAP_FAILED)
		abort();
}

int ioctl(int fd, unsigned long request, ...)
{
	bool guard = getenv("KILL_GUARD"), counts = !guard || getpid() != command;
	const char *at = getenv("KILL_AT");
	va_list args;
	void *argument;
	int result;

	va_start(args, request);
	argument = va_arg(args, void *);
	va_end(args);
	result = real_ioctl(fd, request, argument);
	counts = counts && (request == DM_DEV_CREATE || request == DM_TABLE_LOAD || request == DM_DEV_SUSPEND || request == DM_TARGET_MSG);
	if (counts && at && ++*calls == strtoul(at, NULL, 10))
		kill(guard ? getpid() : command, SIGKILL);
	return result;
}
