// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_unlock.c, with agents and a server of our own: when somebody has locked the stack by hand, nobody is left who would open it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>

#include "../../lib/message.c"
static unsigned slept; /* seconds, in no time */
static unsigned sleep_short(unsigned seconds)
{
	slept += seconds;
	return 0;
}
#define sleep(seconds) sleep_short(seconds)
#include "../../tools/stack_unlock.c"
#undef sleep

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

static bool mark, open_now;
static unsigned asked; /* how often the server */
static struct mapped volume = { .name = "data" };
static struct found one = { .stack = { .name = "data", .encrypted = true }, .whole = true };

static unsigned scans, unseen, failing, hanging; /* how many there were; how many of the first see no stack, fail, have something that hangs */

int stacks_scan(struct stacks *stacks)
{
	scans++;
	*stacks = (struct stacks){ .found = &one, .number = scans > unseen };
	return scans > failing ? LARDER_DONE : LARDER_FAILED;
}

bool hanging_any(void)
{
	return scans <= hanging;
}

void hanging_again(void)
{
}

void stacks_free(struct stacks *stacks)
{
	(void)stacks;
}

struct mapped *stack_volume(const struct stacks *stacks, const struct stack *stack)
{
	return &volume;
}

bool stack_is_foreign(const struct stack *stack)
{
	return false;
}

bool crypt_is_marked(const struct stack *stack)
{
	return mark;
}

bool crypt_is_open(const struct stack *stack)
{
	return open_now;
}

static unsigned first, then; /* what the first try tells; (not 0) what the next one that a child makes */
static char prompted[128];

/* A server that answers once it is too late; or a TPM2 that is there then, and has no key that fits. */
int start_crypt_by_token(const struct stack *stack, unsigned flags, unsigned *outcome)
{
	CHECK(flags & CRYPT_BY_AGENT, "not as an agent");
	if (flags & LUKS_LATER) {
		CHECK((flags & LUKS_LATER) == first, "tries others than may open it: %u", flags);
		while (!then)
			pause();
		*outcome = then & LUKS_LATER;
		return LARDER_DONE;
	}
	*outcome = first;
	asked++;
	return LARDER_DONE;
}

int start_crypt(const struct stack *stack, const struct secret *secret, unsigned flags, bool *wrong)
{
	return LARDER_FAILED;
}

int start_mount(const struct stack *stack, bool wait)
{
	CHECK(false, "mounted");
	return LARDER_DONE;
}

bool agent_next(const struct secret *answer, struct secret *part)
{
	return false;
}

/* Nobody types; somebody locks it once a child asks the server. */
int agent_ask(const struct agent_question *question, struct secret *answer, bool *answered)
{
	struct watch *watch = question->data;

	snprintf(prompted, sizeof(prompted), "%s", question->prompt);
	/* a child that ends is awaited: then nothing is tried any more */
	for (unsigned seconds = 0; !question->over(question->data); seconds++) {
		mark = then ? seconds > 1000 || watch->later != first : watch->trying;
		if (then && watch->trying)
			usleep(1000);
	}
	*answered = false;
	return LARDER_DONE;
}

int program_end(pid_t child, bool stop)
{
	CHECK(stop && !kill(child, SIGTERM) && waitpid(child, NULL, 0) == child, "it cannot be ended");
	return LARDER_DONE;
}

static void locked_by_hand(void)
{
	first = LUKS_SERVER_LATER;
	then = asked = 0;
	mark = false;
	CHECK(!stack_unlock_by_agent("data") && asked == 1, "asked %u times", asked);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a child still asks the server");
}

/* A TPM2 that appears is tried, and no more once it has said no: each wrong try could lock it up. */
static void by_a_late_tpm2(void)
{
	static const struct {
		unsigned first, then;
		const char *prompt;
	} tries[] = {
		{ LUKS_TPM2_LATER, LUKS_OPENED, "its TPM2 is not here" },
		{ LUKS_LATER, LUKS_SERVER_LATER, "nor does its tang server answer" },
	};

	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		struct watch watch = { .stack = &one.stack, .later = tries[i].first };
		bool over = false;

		mark = false;
		first = tries[i].first;
		then = tries[i].then; /* LUKS_OPENED: of what may open it later, nothing */
		for (unsigned n = 0; !over && n < 10000 && watch.later == first; n++) {
			over = is_over(&watch);
			usleep(100);
		}
		CHECK(!over && watch.later == (tries[i].then & LUKS_LATER), "%zu: later %u", i, watch.later);
		asked = 0;
		CHECK(!stack_unlock_by_agent("data") && strstr(prompted, tries[i].prompt), "%zu: %s", i, prompted);
		operations++;
	}
}

/* The unit is active from then on, and udev starts it no more. */
static void stack_that_is_not_seen_yet(void)
{
	static const struct {
		unsigned unseen, failing, hanging, scans, asked;
		int result;
	} all[] = {
		{ 0, 0, 0, 1, 1, LARDER_DONE }, { 2, 0, 0, 3, 1, LARDER_DONE },	  { 0, 2, 0, 3, 1, LARDER_DONE }, { 60, 0, 60, 61, 1, LARDER_DONE },
		{ 99, 0, 0, LOOKS, 0, LARDER_DONE }, { 99, 99, 0, LOOKS, 0, LARDER_FAILED },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		int result;

		first = LUKS_SERVER_LATER;
		then = asked = scans = slept = 0;
		mark = false;
		unseen = all[i].unseen;
		failing = all[i].failing;
		hanging = all[i].hanging;
		result = stack_unlock_by_agent("data");
		CHECK(result == all[i].result && scans == all[i].scans && asked == all[i].asked && slept == LOOK_AGAIN_S * (scans - 1),
		      "%zu: %d, %u looks, asked %u times, %u s", i, result, scans, asked, slept);
		operations++;
	}
	unseen = failing = hanging = 0;
}

int main(void)
{
	run_test("stack_that_is_not_seen_yet", stack_that_is_not_seen_yet);
	run_test("by_a_late_tpm2", by_a_late_tpm2);
	run_test("locked_by_hand", locked_by_hand);
	return 0;
}
