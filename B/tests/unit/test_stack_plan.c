// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_plan.c, with a cache of our own: on how many SSDs dirty data lies, and the mode that follows; what somebody has
 * changed behind a pause; whether the description that is to be written could be read.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.h"

static char said[512]; /* the last complaint */
#define complain(code, ...) ((void)snprintf(said, sizeof(said), __VA_ARGS__), code)
#include "../../tools/stack_plan.c"
#include "check.h"

#define ACTIVE	 LARDER_DEVICE_ACTIVE
#define DRAINING LARDER_DEVICE_DRAINING
#define FAILED	 LARDER_DEVICE_FAILED
#define REMOVED	 LARDER_DEVICE_REMOVED

/* ------------------------------------------------------------------ the cache that is there */

static struct larder_table table;
static struct stack_list listed;
static struct member ssd;
static struct mapped running;
static bool runs;

int stacks_scan(struct stacks *stacks)
{
	*stacks = (struct stacks){ 0 };
	return LARDER_DONE;
}

void stacks_free(struct stacks *stacks)
{
	(void)stacks;
}

int stack_named_cache(const struct stacks *stacks, const char *name, const struct member **member)
{
	*member = &ssd;
	return stacks && !strcmp(name, "fast") ? LARDER_DONE : LARDER_NOT_FOUND;
}

int stack_list_read(const uint8_t cache[16], struct stack_list *list)
{
	*list = listed;
	return memcmp(cache, ssd.sb.cache.cache_uuid, 16) ? LARDER_FAILED : LARDER_DONE;
}

bool set_newest_table(const struct members *members, const uint8_t uuid[16], struct larder_table *newest)
{
	*newest = table;
	return members && !memcmp(uuid, ssd.sb.cache.cache_uuid, 16);
}

struct mapped *running_by_uuid(const struct mapped_list *list, const uint8_t uuid[16], bool cache)
{
	return list && cache && runs && !memcmp(uuid, ssd.sb.cache.cache_uuid, 16) ? &running : NULL;
}

int stack_check_names(const struct stacks *stacks, const struct stack *stack, const char *cache, const char *word)
{
	return stacks && *stack->name && !cache && word ? LARDER_DONE : LARDER_FAILED;
}

int stack_check_backup(const struct stack *stack, const char *word, bool dry_run)
{
	return stack->encrypted || word || dry_run ? LARDER_FAILED : LARDER_DONE;
}

int stack_check_mount(const struct stack *stack)
{
	return *stack->mount ? LARDER_FAILED : LARDER_DONE;
}

static void make_cache(const char *options, const char *status, unsigned number, const uint32_t *states)
{
	table = (struct larder_table){ 0 };
	for (unsigned i = 0; i < number; i++)
		table.devices[i].state = htole32(states[i]);
	listed = (struct stack_list){ 0 };
	strcpy(listed.options, options);
	runs = *status;
	running.status = (char *)status;
	memset(ssd.sb.cache.cache_uuid, 7, 16);
}

static const struct stack_request request = { .name = "data", .caches = { { "fast" }, 1 } };

static struct making plan(void)
{
	struct making m = { .request = &request, .stack = { .name = "data", .uuid = { 1 }, .legs = 1, .state = STACK_CREATING } };
	struct stacks none = { 0 };

	check(!choose_cache(&m, &none), "a cache that is there");
	choose_mode(&m);
	return m;
}

/* ------------------------------------------------------------------ tests */

static void copies(void)
{
	static const struct {
		const char *name, *options, *status;
		uint32_t states[4], ssds, copies;
	} cases[] = {
		{ "two", "", "", { ACTIVE, ACTIVE }, 2, 2 },
		{ "one of two was drained", "", "", { ACTIVE, REMOVED }, 1, 1 },
		{ "one of two has failed", "", "", { FAILED, ACTIVE }, 1, 1 },
		{ "one of two leaves", "", "", { DRAINING, ACTIVE }, 1, 1 },
		{ "a place between them was drained", "", "", { ACTIVE, REMOVED, ACTIVE }, 2, 2 },
		{ "stored: none", "commit=always mirror=none", "", { ACTIVE, ACTIVE }, 2, 1 },
		{ "stored: three", "mirror=dirty:3", "", { ACTIVE, ACTIVE, ACTIVE, ACTIVE }, 4, 3 },
		{ "stored: three, of two", "mirror=dirty:3", "", { ACTIVE, ACTIVE }, 2, 2 },
		{ "stored: all", "mirror=all", "", { ACTIVE, ACTIVE, ACTIVE }, 3, 2 },
		{ "no mirror by another name", "nomirror=none", "", { ACTIVE, ACTIVE }, 2, 2 },
		{ "as it runs", "mirror=none", "state=running mirror=dirty", { ACTIVE, ACTIVE }, 2, 2 },
		{ "as it runs: none", "", "state=running mirror=none", { ACTIVE, ACTIVE }, 2, 1 },
		{ "it runs, and does not say", "mirror=none", "state=running", { ACTIVE, ACTIVE }, 2, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct making m;

		make_cache(cases[i].options, cases[i].status, 4, cases[i].states);
		m = plan();
		check(m.ssds == cases[i].ssds && m.copies == cases[i].copies, cases[i].name);
		check(!strcmp(m.stack.mode, cases[i].copies > 1 ? "writeback" : "writethrough"), m.stack.mode);
	}
}

/* Each by itself, behind the question. */
static void changes(void)
{
	static const uint32_t states[] = { ACTIVE, ACTIVE, ACTIVE };
	struct making m;

	for (int change = 0; change < 9; change++) {
		make_cache("", "", 3, states);
		m = plan();
		if (change == 1)
			table.devices[1].state = htole32(REMOVED);
		if (change == 2)
			table.devices[2].state = htole32(FAILED);
		if (change == 3)
			table.devices[0].role = htole32(LARDER_ROLE_READ);
		if (change == 4)
			strcpy(listed.label[1], "nvme");
		if (change == 5)
			strcpy(listed.options, "mirror=none");
		if (change == 6)
			memset(ssd.sb.cache.cache_uuid, 8, 16); /* another one is called so now */
		if (change == 7)
			table.devices[3].state = htole32(ACTIVE);
		if (change == 8)
			strcpy(listed.options, "quiet=on"); /* nothing hangs on that */
		*said = 0;
		check(stack_plan_again(&m) == (change && change != 8 ? LARDER_BUSY : LARDER_DONE), "the plan again");
		check(!*said == (!change || change == 8), "said");
		check(!*said || strstr(said, "data: the cache fast was changed meanwhile"), said);
	}
}

/* What no word can say today: it would be refused before anything is written. */
static void unreadable(void)
{
	static const uint32_t states[] = { ACTIVE, ACTIVE };
	struct making m;

	make_cache("", "", 2, states);
	m = plan();
	check(!check_room(&m) && !check_readable(&m), "a description that is read again");
	strcpy(m.stack.class, "any\r");
	check(!check_room(&m) && check_readable(&m) == LARDER_FAILED, "a class that is not");
	*m.stack.class = 0;
	strcpy(m.stack.mount, "srv");
	check(check_readable(&m) == LARDER_FAILED, "a mount point that is none");
	*m.stack.mount = 0;
	strcpy(m.stack.mkfs, "-m\x7f");
	check(check_readable(&m) == LARDER_FAILED, "words that are not printable");
	*m.stack.mkfs = 0;
	m.stack.size = LARDER_SLOT_SIZE - 512;
	check(check_readable(&m) == LARDER_FAILED, "half a slot");
	m.stack.size = 0;
	/* of those behind it, too */
	strcpy(m.stack.name, "data-1");
	m.stack.next = 2;
	check(!check_readable(&m), "a chain");
	m.stack.next = STACK_LIST_MAX;
	check(check_readable(&m) == LARDER_FAILED, "a chain that is too long");
}

int main(void)
{
	copies();
	changes();
	unreadable();
	return failed;
}
