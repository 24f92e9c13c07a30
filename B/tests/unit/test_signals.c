// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lib/signals.c: what would end a command is caught for a while, but for what whoever started it has ignored (nohup).
 */
#include <stdbool.h>
#include <stdio.h>

#include "../../lib/signals.c"
#include "check.h"

static volatile sig_atomic_t caught;

static void take(int number)
{
	caught = number;
}

static void (*handler_of(int number))(int)
{
	struct sigaction now;

	sigaction(number, NULL, &now);
	return now.sa_handler;
}

int main(void)
{
	struct signals was;

	signal(SIGHUP, SIG_IGN);
	signals_catch(signals_that_end, take, 0, &was);
	raise(SIGHUP);
	check(!caught && handler_of(SIGHUP) == SIG_IGN, "what was ignored stays so");
	raise(SIGTERM);
	check(caught == SIGTERM, "another one is caught");
	raise(SIGINT);
	check(caught == SIGINT && handler_of(SIGINT) == take, "each of them, again and again");
	signals_restore(&was);
	check(handler_of(SIGINT) == SIG_DFL && handler_of(SIGTERM) == SIG_DFL && handler_of(SIGHUP) == SIG_IGN, "then they are as before");

	signals_catch(signals_that_end, take, (int)SA_RESETHAND, NULL);
	raise(SIGTERM);
	check(caught == SIGTERM && handler_of(SIGTERM) == SIG_DFL, "once, where the second one is to end it");
	return failed;
}
