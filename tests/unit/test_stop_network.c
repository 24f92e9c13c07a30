// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder stop --network, of tools/stack_run.c, with /run of our own: what it stops is so until the network is there again, and what somebody stopped before
 * stays so.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../lib/turn.h"
#undef RUN_DIRECTORY
#define RUN_DIRECTORY "run"
#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/turn.c"
#include "../../tools/stack_run.c"

#include "check.h"

enum { NET, SHARED, BUSY, LOCAL, STACKS };
static struct found found[STACKS];
static const char *const names[] = { "net", "shared", "busy", "local" };

static int number_of(const struct stack *stack)
{
	return stack->uuid[0];
}

void stack_part(const struct stack *stack, const char *what, uint8_t uuid[16])
{
	memcpy(uuid, stack->uuid, 16);
	uuid[15] = (uint8_t)*what;
}

int stacks_scan(struct stacks *stacks)
{
	*stacks = (struct stacks){ .found = found, .number = STACKS };
	return LARDER_DONE;
}

void stacks_free(struct stacks *stacks)
{
}

int stack_find(const struct stacks *stacks, const char *word, const struct found **one)
{
	uint8_t uuid[16];

	if (uuid_parse(word, uuid))
		return LARDER_NOT_FOUND;
	*one = &found[uuid[0]];
	return LARDER_DONE;
}

struct mapped *stack_volume(const struct stacks *stacks, const struct stack *stack)
{
	static struct mapped volume;

	return &volume;
}

bool stack_is_remote(const struct stack *stack)
{
	return number_of(stack) != LOCAL;
}

int stop_check(const struct stack *stack)
{
	return number_of(stack) == BUSY ? LARDER_BUSY : LARDER_DONE;
}

int stop_mount(const struct stack *stack)
{
	return LARDER_DONE;
}

int stop_crypt(const struct stack *stack)
{
	return LARDER_DONE;
}

int snapshots_note_lost(const char *word)
{
	return LARDER_DONE;
}

int stop_volume(const struct stack *stack)
{
	uint8_t part[16];

	stack_part(stack, "volume", part);
	stopped_set(part);
	return LARDER_DONE;
}

int stop_cache(const struct stack *stack)
{
	if (number_of(stack) != SHARED)
		stopped_set(stack->cache);
	return LARDER_DONE;
}

int stop_array(const struct stack *stack)
{
	return LARDER_DONE;
}

static bool is_for_shutdown(const uint8_t uuid[16])
{
	char path[MARK_PATH];

	path_of(SHUTDOWN, uuid, path);
	return !access(path, F_OK);
}

int main(void)
{
	static char directory[] = "/tmp/larder-stop-XXXXXX";
	uint8_t part[STACKS][16];

	if (!mkdtemp(directory) || chdir(directory) || !freopen("said", "w", stderr))
		return 1;
	for (int i = 0; i < STACKS; i++) {
		found[i] = (struct found){ .stack = { .uuid = { (uint8_t)i, 1 }, .cache = { (uint8_t)i, 2 } }, .whole = true };
		strcpy(found[i].stack.name, names[i]);
		stack_part(&found[i].stack, "volume", part[i]);
	}
	began_noted(5, true);
	check(stop_remote() == LARDER_BUSY, "one of them is in use");
	check(stopped_is(part[NET]) && is_for_shutdown(part[NET]) && stopped_is(found[NET].stack.cache) && is_for_shutdown(found[NET].stack.cache),
	      "its volume, and its cache, until the network is there again");
	check(is_for_shutdown(part[SHARED]) && !is_for_shutdown(found[SHARED].stack.cache), "a cache that others use goes on");
	check(!stopped_is(part[BUSY]) && !is_for_shutdown(part[BUSY]) && !is_for_shutdown(found[BUSY].stack.cache), "of what is in use nothing is left");
	check(!stopped_is(part[LOCAL]) && !is_for_shutdown(part[LOCAL]), "what needs no network goes on");
	check(began_noted(9, false) == 9, "the next larderd waits for disks anew");
	stopped_clear(part[NET]);
	check(!stopped_is(part[NET]) && !is_for_shutdown(part[NET]), "started by hand");
	stop_volume(&found[NET].stack);
	stop_remote();
	check(stopped_is(part[NET]) && !is_for_shutdown(part[NET]), "stopped by hand, and left so");
	for (int i = 0; i < STACKS; i++) {
		stopped_clear(part[i]);
		stopped_clear(found[i].stack.cache);
	}
	turn_give();
	unlink(RUN_DIRECTORY "/lock");
	check(!rmdir(SHUTDOWN) && !rmdir(STOPPED) && !rmdir(RUN_DIRECTORY) && !unlink("said") && !chdir("/") && !rmdir(directory), "nothing is left");
	return failed;
}
