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
#include "../../tools/stack_unlock.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

static bool mark, open_now;
static unsigned asked; /* how often the server */
static struct mapped volume = { .name = "data" };
static struct found one = { .stack = { .name = "data", .encrypted = true }, .whole = true };

int stacks_scan(struct stacks *stacks)
{
	*stacks = (struct stacks){ .found = &one, .number = 1 };
	return LARDER_DONE;
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

/* A server that answers once it is too late. */
int start_crypt_by_token(const struct stack *stack, unsigned flags, enum luks_by_token *outcome)
{
	*outcome = LUKS_TOKEN_LATER;
	CHECK(flags & CRYPT_BY_AGENT, "not as an agent");
	while (flags & CRYPT_AGAIN)
		pause();
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

	while (!question->over(question->data))
		mark = watch->trying;
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
	CHECK(!stack_unlock_by_agent("data") && asked == 1, "asked %u times", asked);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a child still asks the server");
}

int main(void)
{
	run_test("locked_by_hand", locked_by_hand);
	return 0;
}
