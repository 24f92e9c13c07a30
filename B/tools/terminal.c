// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A file of its own, as <term.h> makes macros of words like columns and lines.
 */
#include <curses.h>
#include <term.h>
#include <unistd.h>

#include "terminal.h"

bool terminal_known(void)
{
	int error;

	if (setupterm(NULL, STDOUT_FILENO, &error) == ERR)
		return false;
	del_curterm(cur_term);
	return true;
}
