// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into the command under test: whoever reads from the file HANG waits, and hears no signal but SIGKILL.
 */
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t pread64(int fd, void *to, size_t bytes, off64_t at)
{
	ssize_t (*real)(int fd, void *to, size_t bytes, off64_t at) = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
	const char *name = getenv("HANG");
	char link[64], path[PATH_MAX] = "";
	sigset_t all;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (name && readlink(link, path, sizeof(path) - 1) > 0 && !strcmp(path, name)) {
		sigfillset(&all);
		sigprocmask(SIG_BLOCK, &all, NULL);
		for (;;)
			sleep(1000);
	}
	return real(fd, to, bytes, at);
}
