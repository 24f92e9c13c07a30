/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Terminals, as terminfo knows them. */
#ifndef LARDER_TERMINAL_H
#define LARDER_TERMINAL_H

#include <stdbool.h>

/* Does terminfo know the terminal that TERM names? */
bool terminal_known(void);

#endif
