// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * daemon/attempts.c: a start that failed is held back, for longer each time, and passes that it caused itself do not try it again.
 */
#include <stdio.h>
#include <string.h>

#include "../../daemon/attempts.c"

#include "check.h"

static struct attempts list;

static bool held(uint8_t id)
{
	uint8_t uuid[16] = { id };
	struct attempt *a = find(&list, uuid);

	return a && a->held;
}

static void fail(uint8_t id, uint64_t now)
{
	attempts_failed(&list, (uint8_t[16]){ id }, true, "larder-cache-x", 1, now);
}

/* A pass each second, as events would ask for it, for a day: how often is a start that always fails tried? */
static unsigned tries_of_a_day(void)
{
	unsigned tries = 0;

	for (uint64_t now = 1000000; now < UINT64_C(86400000000); now += 1000000) {
		attempts_hold(&list, now);
		if (held(1))
			continue;
		tries++;
		fail(1, now);
	}
	return tries;
}

/*
 * Passes of a day that nothing but the next attempt asks for, of one that fails at first, and is left out by somebody then (stopped, in
 * larder.conf, in use): looked at by a pass before and behind its time, which takes a moment itself.
 */
static unsigned passes_of_a_day(unsigned tries, uint64_t takes)
{
	uint64_t now = 1000000;
	unsigned passes = 0;

	list.number = 0;
	while (now && now < UINT64_C(86400000000) && passes < 1000) {
		passes++;
		attempts_hold(&list, now);
		now += takes;
		if (!held(1) && tries) {
			tries--;
			fail(1, now);
		}
		now = attempts_again(&list, now);
	}
	return passes;
}

/* Of a day, each put off for longer than the one before; 0: one was not, or for more than it may be. */
static unsigned passes_that_are_killed(uint64_t first)
{
	uint64_t wait = 0, last;
	unsigned passes = 0;

	for (uint64_t now = 0; now < UINT64_C(86400000000); now += wait) {
		last = wait;
		wait = attempts_wait(last, first);
		passes++;
		if (wait <= last ? last != ATTEMPT_LAST_US : passes == 1 ? wait != first : wait > 2 * last)
			return 0;
	}
	return passes;
}

int main(void)
{
	unsigned tries = tries_of_a_day();

	check(tries >= 24 && tries <= 40, "seldom, but on and on");
	attempts_forget(&list, (uint8_t[16]){ 1 });
	attempts_hold(&list, 1000000);
	check(!list.number && !held(1), "one that runs is forgotten");
	fail(1, 0);
	fail(2, 10);
	attempts_hold(&list, ATTEMPT_FIRST_US);
	check(!held(1) && held(2), "each has its own time");
	fail(1, ATTEMPT_FIRST_US);
	attempts_hold(&list, 3 * ATTEMPT_FIRST_US - 1);
	check(held(1) && !held(2), "the second wait is twice the first");
	list.number = 0;
	for (unsigned i = 0; i < ATTEMPTS_MAX + 5; i++)
		attempts_failed(&list, (uint8_t[16]){ (uint8_t)i, (uint8_t)(i >> 8) }, false, "x", 1, 0);
	check(list.number == ATTEMPTS_MAX, "no more than there is room for");
	list.number = 0;
	check(!attempts_again(&list, 1000000), "without any there is no next pass");
	check(passes_of_a_day(1, 0) == 2 && passes_of_a_day(4, 1000) == 5,
	      "one that is not tried when its time comes asks for no pass");
	list.number = 0;
	fail(1, 0);
	fail(2, 10);
	attempts_hold(&list, ATTEMPT_FIRST_US - 1);
	check(attempts_again(&list, ATTEMPT_FIRST_US + 5) == ATTEMPT_FIRST_US,
	      "whose time comes in a pass that held it is tried in the next one");
	attempts_hold(&list, ATTEMPT_FIRST_US + 5);
	check(attempts_again(&list, ATTEMPT_FIRST_US + 5) == ATTEMPT_FIRST_US + 10, "and the others in theirs");
	check(passes_that_are_killed(1000000) >= 34 && passes_that_are_killed(1000000) <= 40,
	      "passes that are killed are ever rarer, but go on");
	list.number = 0;
	fail(1, 0);
	attempts_told(&list, (uint8_t[16]){ 1 }, (uint8_t[16]){ 9 }, "what was told");
	attempts_told(&list, (uint8_t[16]){ 2 }, (uint8_t[16]){ 9 }, "of none");
	attempts_hold(&list, 1);
	check(list.number == 1 && held(1) && list.attempt[0].about[0] == 9 && !strcmp(list.attempt[0].text, "what was told"),
	      "what was told is known for as long as it is held");
	return failed;
}
