// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder set --mount of a mounted stack, of tools/stack_set.c: others have their turn while it is unmounted, and what they have stored of the stack
 * meanwhile is not undone by a description that was read before.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define check check_setting
#include "../../tools/stack_set.c"
#undef check

#include "check.h"

static uint64_t generation; /* of what is stored */
static bool meanwhile; /* it is stored by another one while it is unmounted */
static const char *mounted;
static bool in_fstab;

int stop_mount(const struct stack *stack)
{
	mounted = NULL;
	generation += meanwhile;
	return LARDER_DONE;
}

int start_mount(const struct stack *stack, bool verbose)
{
	mounted = stack->mount;
	return LARDER_DONE;
}

int stack_check_same(const struct stack *stack)
{
	return stack->generation == generation ? LARDER_DONE : LARDER_BUSY;
}

int stack_store(struct stack *stack)
{
	generation = ++stack->generation;
	return LARDER_DONE;
}

int lend_stop_volume(struct stack *stack, struct lent *lent)
{
	return LARDER_DONE;
}

bool fstab_has(const uint8_t uuid[16])
{
	return true;
}

int fstab_move_mount(const uint8_t uuid[16], const char *before, const char *directory)
{
	in_fstab = true;
	return LARDER_DONE;
}

static int move(bool others)
{
	static const struct set_request request = { .name = "s", .mount = "/new" };
	static struct setting s;
	int result;

	s = (struct setting){ .request = &request, .was = { .name = "s", .mount = "/old", .generation = 10, .state = STACK_READY }, .mounted = true, .here = true };
	s.stack = s.was;
	strcpy(s.stack.mount, "/new");
	generation = 10;
	meanwhile = others;
	mounted = "/old";
	in_fstab = false;
	result = change(&s);
	mounted = mounted ? mounted : "nowhere";
	return result;
}

int main(void)
{
	check(move(false) == LARDER_DONE && generation == 11 && !strcmp(mounted, "/new"), "it is mounted elsewhere, and its description says so");
	check(move(true) == LARDER_BUSY && generation == 11, "what others stored while it was unmounted stays");
	check(!strcmp(mounted, "/old") && !in_fstab, "and it is mounted where it was");
	return failed;
}
