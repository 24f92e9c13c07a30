/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who is told of what happens: the program and the mail address of larder.conf(5). */
#ifndef LARDER_ALERT_H
#define LARDER_ALERT_H

#include <stdbool.h>
#include <time.h>

#include "changes.h"

/* Seconds that either may take; LARDER_ALERT_SECONDS: another number. */
unsigned alert_patience(void);

/* unit: outside of our own sandbox, as a unit of systemd. */

/* Runs it, and waits for its end; how: what names it ("--exec"), for complaints. */
void alert_program(const char *program, const struct change *change, const char *how, bool unit);
/* A mail to this address, by sendmail, of what happened then.  False: it was not taken, and why has been said. */
bool alert_mail(const char *address, const struct change *change, time_t at, bool unit);

#endif
