// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_passwd.c, with an array of our own: who is asked for a key, or whether he trusts a server, may end the command there, and then nothing
 * runs that did not before.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../lib/message.c"
#include "../../tools/stack_passwd.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"

static bool assembled; /* the array, to read the description */
static unsigned asked, loaded;

int lend_load(const char *name, bool dry_run, struct stack *stack, struct lent *was)
{
	*stack = (struct stack){ .name = "data", .encrypted = true };
	CHECK(!dry_run || !assembled, "a dry run starts nothing");
	assembled = was->assembled = !dry_run;
	loaded++;
	return LARDER_DONE;
}

int lend_start(const struct stack *stack, struct lent *was)
{
	CHECK(assembled, "the volume of an array that does not run");
	return LARDER_FAILED;
}

int lend_return(struct stack *stack, struct lent *was)
{
	assembled &= !was->assembled;
	return LARDER_DONE;
}

char *stack_backup_path(const struct stack *stack, const char *path)
{
	return must_print("%s", "/nowhere/header");
}

static int question(void)
{
	CHECK(!assembled, "asked while the array runs for us");
	asked++;
	return LARDER_DONE;
}

int secret_read(const char *keyfile, const char *stack, bool twice, struct secret *secret)
{
	return question();
}

int secret_read_old(const char *given, const char *keyfile, const char *stack, struct secret *secret)
{
	return question();
}

int secret_read_new(const char *keyfile, const char *stack, struct secret *secret)
{
	return question();
}

int turn_confirm(const char *name, bool yes, const char *text)
{
	return question();
}

void secret_free(struct secret *secret)
{
}

bool turn_pause(void)
{
	return true;
}

void turn_resume(bool held)
{
}

void turn_give(void)
{
}

void turn_take(void)
{
}

int token_check(struct token *token, bool trust)
{
	return LARDER_DONE;
}

char *token_describe(const struct token *token)
{
	return must_print("%s", "its key");
}

static void asks_without_the_array(void)
{
	static const struct {
		struct passwd_request request;
		unsigned asked, loaded;
	} cases[] = {
		{ { .action = CHANGE }, 2, 2 },
		{ { .action = ADD }, 2, 2 },
		{ { .action = ADD, .new_token = "tang", .token.kind = TOKEN_TANG }, 2, 2 },
		{ { .action = REMOVE }, 1, 2 },
		{ { .action = LIST }, 0, 2 },
		{ { .action = CHANGE, .dry_run = true }, 0, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct passwd_request request = cases[i].request;

		request.name = "data";
		request.slot = LUKS_ANY_SLOT;
		asked = loaded = 0;
		passwd(&request);
		CHECK(asked == cases[i].asked && loaded == cases[i].loaded, "%zu: asked %u times, %u looks", i, asked, loaded);
		CHECK(!assembled, "%zu: it runs still", i);
		operations++;
	}
}

int main(void)
{
	run_test("asks_without_the_array", asks_without_the_array);
	return 0;
}
