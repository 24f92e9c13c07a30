// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Handlers of signals, for a while.
 */
#include <stddef.h>

#include "signals.h"

const int signals_that_end[] = { SIGHUP, SIGINT, SIGTERM, 0 };

void signals_catch(const int *list, void (*handler)(int), int flags, struct signals *was)
{
	const struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
	struct sigaction before;

	if (was)
		was->list = list;
	for (size_t i = 0; list[i]; i++) {
		sigaction(list[i], NULL, &before);
		if (was)
			was->before[i] = before;
		if (before.sa_handler != SIG_IGN)
			sigaction(list[i], &action, NULL);
	}
}

void signals_restore(const struct signals *was)
{
	for (size_t i = 0; was->list[i]; i++)
		sigaction(was->list[i], &was->before[i], NULL);
}
