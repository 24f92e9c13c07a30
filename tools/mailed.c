// SPDX-License-Identifier: GPL-2.0-or-later
/* When somebody was mailed of what. */
#include <stdlib.h>
#include <string.h>

#include "../daemon/text_hash.h"
#include "mailed.h"
#include "message.h"

static bool counts(const struct change *change)
{
	return !strcmp(change->kind, "assembly");
}

/* Its UUID, and the word in front of its text. */
static uint64_t key_of(const struct change *change)
{
	char *word = must_print("%.*s", (int)strcspn(change->text, ":"), change->text);
	uint64_t key = text_hash(text_hash(TEXT_HASH_BASIS, change->name), word);

	free(word);
	return key;
}

static void forget_old(struct mailed *mailed, double now)
{
	for (size_t i = 0; i < mailed->number;)
		if (now - mailed->last[i].at >= MAILED_AGAIN_S)
			mailed->last[i] = mailed->last[--mailed->number];
		else
			i++;
}

/* Of that; negative: it is not held back. */
static double last_of(const struct mailed *mailed, uint64_t key)
{
	for (size_t i = 0; i < mailed->number; i++)
		if (mailed->last[i].key == key)
			return mailed->last[i].at;
	return -1;
}

static void note(struct mailed *mailed, uint64_t key, double now)
{
	if (last_of(mailed, key) >= 0 || mailed->number == MAILED_MAX)
		return;
	mailed->last[mailed->number].key = key;
	mailed->last[mailed->number++].at = now;
}

bool mailed_may(struct mailed *mailed, const struct change *change, time_t at, double now)
{
	struct mailed_held *held;
	uint64_t key;
	double last;

	if (!counts(change))
		return true;
	key = key_of(change);
	forget_old(mailed, now);
	last = last_of(mailed, key);
	if (last < 0 || last == now || mailed->nr_held == MAILED_MAX) {
		note(mailed, key, now);
		return true;
	}
	held = &mailed->held[mailed->nr_held++];
	*held = (struct mailed_held){ .change = *change, .key = key, .at = at };
	held->change.name = must_print("%s", change->name);
	held->change.device = must_print("%s", change->device);
	held->change.text = must_print("%s", change->text);
	return false;
}

static void take(struct mailed *mailed, size_t place, struct mailed_held *to)
{
	*to = mailed->held[place];
	mailed->nr_held--;
	memmove(&mailed->held[place], &mailed->held[place + 1], (mailed->nr_held - place) * sizeof(*to));
}

void mailed_over(struct mailed *mailed, const struct change *change)
{
	struct mailed_held over;

	if (!counts(change) || strncmp(change->text, MAILED_OVER, strlen(MAILED_OVER)) != 0)
		return;
	for (size_t i = 0; i < mailed->nr_held;) {
		const struct change *held = &mailed->held[i].change;

		if (strcmp(held->name, change->name) != 0 || strcmp(held->text, change->text + strlen(MAILED_OVER)) != 0) {
			i++;
			continue;
		}
		take(mailed, i, &over);
		mailed_drop(&over);
	}
}

double mailed_left(const struct mailed *mailed, double now)
{
	double left = -1;

	for (size_t i = 0; i < mailed->nr_held; i++) {
		double last = last_of(mailed, mailed->held[i].key), own = last < 0 ? 0 : last + MAILED_AGAIN_S - now;

		if (left < 0 || own < left)
			left = own > 0 ? own : 0;
	}
	return left;
}

bool mailed_due(struct mailed *mailed, struct mailed_held *due, double now)
{
	forget_old(mailed, now);
	for (size_t i = 0; i < mailed->nr_held; i++) {
		double last = last_of(mailed, mailed->held[i].key);

		if (last >= 0 && last != now)
			continue;
		take(mailed, i, due);
		note(mailed, due->key, now);
		return true;
	}
	return false;
}

void mailed_drop(struct mailed_held *held)
{
	free(held->change.name);
	free(held->change.device);
	free(held->change.text);
}

void mailed_free(struct mailed *mailed)
{
	for (size_t i = 0; i < mailed->nr_held; i++)
		mailed_drop(&mailed->held[i]);
	*mailed = (struct mailed){ 0 };
}
