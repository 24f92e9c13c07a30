// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which starts were refused, and when they are tried again.  No I/O, no clock.
 */
#include <stdio.h>
#include <string.h>

#include "attempts.h"

static struct attempt *find(struct attempts *attempts, const uint8_t uuid[16])
{
	for (uint32_t i = 0; i < attempts->number; i++)
		if (!memcmp(attempts->attempt[i].uuid, uuid, 16))
			return &attempts->attempt[i];
	return NULL;
}

const struct attempt *attempts_find(const struct attempts *attempts, const uint8_t uuid[16])
{
	return find((struct attempts *)attempts, uuid);
}

uint64_t attempts_wait(uint64_t last, uint64_t first)
{
	if (!last)
		return first;
	return last < ATTEMPT_LAST_US / 2 ? 2 * last : ATTEMPT_LAST_US;
}

void attempts_hold(struct attempts *attempts, uint64_t now)
{
	for (uint32_t i = 0; i < attempts->number; i++)
		attempts->attempt[i].held = now < attempts->attempt[i].again;
}

uint64_t attempts_again(const struct attempts *attempts, uint64_t now)
{
	uint64_t again = 0;

	for (uint32_t i = 0; i < attempts->number; i++) {
		const struct attempt *a = &attempts->attempt[i];

		/* its time had come, and this pass did not try it: somebody left it out, who will say so when that changes */
		if (!a->held && a->again <= now)
			continue;
		if (!again || a->again < again)
			again = a->again;
	}
	return again;
}

void attempts_failed(struct attempts *attempts, const uint8_t uuid[16], bool cache, const char *name, int result, uint64_t now)
{
	struct attempt *a = find(attempts, uuid);

	if (!a && attempts->number == ATTEMPTS_MAX)
		return;
	if (!a) {
		a = &attempts->attempt[attempts->number++];
		*a = (struct attempt){ .cache = cache };
		memcpy(a->uuid, uuid, 16);
	}
	snprintf(a->name, sizeof(a->name), "%s", name);
	a->result = result;
	a->wait = attempts_wait(a->wait, ATTEMPT_FIRST_US);
	a->again = now + a->wait;
	a->held = false;
}

void attempts_told(struct attempts *attempts, const uint8_t uuid[16], const uint8_t about[16], const char *text)
{
	struct attempt *a = find(attempts, uuid);

	if (!a)
		return;
	memcpy(a->about, about, 16);
	snprintf(a->text, sizeof(a->text), "%s", text);
}

void attempts_forget(struct attempts *attempts, const uint8_t uuid[16])
{
	struct attempt *a = find(attempts, uuid);

	if (a)
		*a = attempts->attempt[--attempts->number];
}
