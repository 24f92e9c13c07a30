// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_legs.c: whose the legs of an array are while it is started.  Disks are what the tests say of them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.h"

static char said[8192]; /* the last complaint */
static unsigned remarks;
#define complain(code, ...) ((void)snprintf(said, sizeof(said), __VA_ARGS__), code)
#define remark(...) ((void)snprintf(said, sizeof(said), __VA_ARGS__), remarks++)
#include "../../tools/stack_legs.c"
#include "check.h"

#define LEGS 3u
#define HERE 1u
#define AWAY 2u

static const uint8_t stack_uuid[16] = { 7 };
static struct member legs[LEGS + 1]; /* the last is another stack's */
static struct member *list[LEGS + 1];
static bool runs[LEGS + 1];
static unsigned refuses; /* the number of the leg that does not start, or is not written to; LEGS + 1: none */

void members_scan(struct members *members)
{
	*members = (struct members){ .member = list, .number = LEGS + 1 };
}

void members_free(struct members *members)
{
	*members = (struct members){ 0 };
}

bool leg_is(const union superblock *sb, struct leg_fields *fields)
{
	memcpy(fields, sb->bytes + sizeof(sb->head), sizeof(*fields));
	return true;
}

bool leg_is_of(const union superblock *sb, const uint8_t stack[16])
{
	struct leg_fields fields;

	return leg_is(sb, &fields) && !memcmp(fields.stack, stack, 16);
}

static unsigned which(const uint8_t leg[16])
{
	return leg[0] - 1u;
}

static uint8_t *host_of(unsigned leg)
{
	return legs[leg].sb.bytes + sizeof(legs[leg].sb.head) + 16;
}

bool leg_runs(const uint8_t leg[16], dev_t disk)
{
	return disk && runs[which(leg)];
}

bool leg_is_formatted(const char *disk, bool *readable)
{
	*readable = disk;
	return true;
}

int leg_start(const char *disk, const uint8_t leg[16], const uint8_t stack[16])
{
	if (!disk || memcmp(stack, stack_uuid, 16) || which(leg) == refuses)
		return LARDER_FAILED;
	runs[which(leg)] = true;
	return LARDER_DONE;
}

int leg_set_host(const char *disk, const uint8_t leg[16], const uint8_t host[16])
{
	if (!disk || which(leg) == refuses)
		return LARDER_FAILED;
	memcpy(host_of(which(leg)), host, 16);
	return LARDER_DONE;
}

void stack_host(uint8_t host[16])
{
	memset(host, 0, 16);
	host[0] = HERE;
}

bool stack_host_is_foreign(const uint8_t host[16])
{
	return host[0] && host[0] != HERE;
}

int stack_refuse_copy(const char *name, const char *a, const char *b)
{
	return name && a && b ? LARDER_UNSAFE : LARDER_FAILED;
}

/* The first leg is this machine's already; the others, and that of another stack, are not. */
static void set_up(void)
{
	static char path[LEGS + 1][8];

	for (unsigned i = 0; i <= LEGS; i++) {
		struct leg_fields fields = { .host = { i ? AWAY : HERE } };

		snprintf(path[i], sizeof(path[i]), "leg%u", i);
		legs[i] = (struct member){ .path = path[i], .number = i + 1, .block = true };
		legs[i].sb.head.uuid[0] = (uint8_t)(i + 1);
		memcpy(fields.stack, stack_uuid, 16);
		fields.stack[1] = i == LEGS;
		memcpy(legs[i].sb.bytes + sizeof(legs[i].sb.head), &fields, sizeof(fields));
		list[i] = &legs[i];
		runs[i] = false;
	}
	refuses = LEGS + 1;
	remarks = 0;
}

static unsigned count_running(void)
{
	unsigned number = 0;

	for (unsigned i = 0; i <= LEGS; i++)
		number += runs[i];
	return number;
}

static unsigned count_here(void)
{
	unsigned number = 0;

	for (unsigned i = 0; i <= LEGS; i++)
		number += *host_of(i) == HERE;
	return number;
}

static void test_start(void)
{
	set_up();
	check(start_legs("data", stack_uuid, 0) == LARDER_UNSAFE && strstr(said, "leg1") && strstr(said, "--import data"), "not by itself");
	check(count_running() == 1 && count_here() == 1, "its own alone");
	check(!start_legs("data", stack_uuid, START_IMPORT) && count_running() == LEGS && !runs[LEGS], "an import starts them");
	check(count_here() == 1, "and takes none over: that may be refused yet");
}

static void test_take_over(void)
{
	struct stack stack = { 0 };

	memcpy(stack.uuid, stack_uuid, 16);
	set_up();
	check(!legs_take_over(&stack, 0) && count_here() == LEGS, "whether they run or not");
	check(*host_of(LEGS) == AWAY, "that of another stack stays");
	set_up();
	refuses = 1;
	check(legs_take_over(&stack, 0) == LARDER_FAILED && count_here() == LEGS - 1, "of one that cannot be written to it is said, and the others are");
	set_up();
	refuses = 2;
	check(!start_legs("data", stack_uuid, START_IMPORT | START_DEGRADED) && remarks == 1 && count_running() == LEGS - 1, "without one");
	check(!legs_take_over(&stack, START_IMPORT | START_DEGRADED) && count_here() == LEGS - 1, "that one is no error then");
}

int main(void)
{
	test_start();
	test_take_over();
	return failed;
}
