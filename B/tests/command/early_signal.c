// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into the command under test: the signal EARLY_SIGNAL comes when the terminal does not show any more what is typed, and
 * nothing waits for it yet.
 */
#include <dlfcn.h>
#include <libcryptsetup.h>
#include <signal.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

void *crypt_safe_alloc(size_t size)
{
	void *(*allocate)(size_t size) = (void *(*)(size_t))dlsym(RTLD_NEXT, "crypt_safe_alloc");
	const char *early = getenv("EARLY_SIGNAL");
	struct termios settings;

	if (early && !tcgetattr(STDIN_FILENO, &settings) && !(settings.c_lflag & ECHO))
		raise(atoi(early));
	return allocate(size);
}
