// SPDX-License-Identifier: GPL-2.0-or-later
/* Mails that could not be sent. */
#include <stdlib.h>
#include <string.h>

#include "alert.h"
#include "message.h"
#include "unsent.h"

#define PAUSE_LAST_S 3600

static void drop_first(struct unsent *unsent)
{
	struct change *c = &unsent->mail[0].change;

	free(c->name);
	free(c->device);
	free(c->text);
	unsent->number--;
	memmove(&unsent->mail[0], &unsent->mail[1], unsent->number * sizeof(unsent->mail[0]));
}

void unsent_add(struct unsent *unsent, const struct change *change, time_t at, double now)
{
	struct change *c;

	if (!unsent->number) {
		unsent->pause = alert_patience();
		unsent->due = now + unsent->pause;
	}
	if (unsent->number == UNSENT_MAX) {
		remark("sendmail: %d mails wait to be sent: the oldest, of %s %s, is given up", UNSENT_MAX, unsent->mail[0].change.kind, unsent->mail[0].change.name);
		drop_first(unsent);
	}
	unsent->mail[unsent->number].at = at;
	c = &unsent->mail[unsent->number++].change;
	*c = *change;
	c->name = must_print("%s", change->name);
	c->device = must_print("%s", change->device);
	c->text = must_print("%s", change->text);
}

double unsent_left(const struct unsent *unsent, double now)
{
	if (!unsent->number)
		return -1;
	return unsent->due > now ? unsent->due - now : 0;
}

void unsent_try(struct unsent *unsent, const char *address, bool unit, double now)
{
	if (!unsent->number || now < unsent->due)
		return;
	while (unsent->number && (!address || alert_mail(address, &unsent->mail[0].change, unsent->mail[0].at, unit)))
		drop_first(unsent);
	unsent->pause = unsent->pause * 2 < PAUSE_LAST_S ? unsent->pause * 2 : PAUSE_LAST_S;
	unsent->due = now + unsent->pause;
}

void unsent_free(struct unsent *unsent)
{
	while (unsent->number)
		drop_first(unsent);
}
