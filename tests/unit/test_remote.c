// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_layers.c, stack_steps.c and stack_set.c: a stack needs the network for its disks, its cache, or what keeps a snapshot of it, and for nothing
 * else; its line in fstab says so.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "../../lib/cow.c"
#include "../../tools/stack_layers.c"
#include "../../tools/stack_steps.c"
#define look look_setting
#define check check_setting
#include "../../tools/stack_set.c"
#undef check

#include "check.h"

static const uint8_t part[16] = { 5 };
static const char *away; /* the device that has a disk of the network below it; NULL: none has */
static bool runs, has_snapshot;
static unsigned changes; /* of fstab */

void stack_part(const struct stack *stack, const char *what, uint8_t uuid[16])
{
	memcpy(uuid, part, 16);
	uuid[15] = (uint8_t)*what;
}

void stack_snapshot_uuid(const struct stack *stack, const struct stack_snapshot *snapshot, uint8_t uuid[16])
{
	memcpy(uuid, part, 16);
	uuid[15] = (uint8_t)snapshot->serial;
}

char *mapper_path(const char *name)
{
	return must_print("/dev/mapper/%s", name);
}

bool mapped_name_of(const char *dm_uuid, char name[static DM_NAME_MAX])
{
	snprintf(name, DM_NAME_MAX, "data");
	return runs;
}

int mapped_scan_below(const char *dm_uuid, struct mapped_names *names)
{
	static char *below[] = { "data@one", "data-origin", "data@one-store" };

	*names = (struct mapped_names){ .half = below, .nr_half = runs && has_snapshot ? 3 : 0 };
	return LARDER_DONE;
}

void mapped_names_free(struct mapped_names *names)
{
}

bool device_is_remote(const char *path)
{
	return away && !strcmp(path, away);
}

int fstab_set_remote(const uint8_t uuid[16])
{
	changes++;
	return LARDER_DONE;
}

static struct stack stack = { .name = "data", .uuid = { 9 } };
static struct found found;
static struct member volume, ssd, keeps, other; /* keeps: of the snapshot */
static struct member *members[] = { &volume, &ssd, &keeps, &other };

int stacks_scan(struct stacks *stacks)
{
	*stacks = (struct stacks){ .members = { .member = members, .number = 4 }, .found = &found, .number = 1 };
	return LARDER_DONE;
}

void stacks_free(struct stacks *stacks)
{
}

int stack_find(const struct stacks *stacks, const char *word, const struct found **one)
{
	*one = &found;
	return LARDER_DONE;
}

static bool said(bool here)
{
	const struct setting setting = { .stack = stack, .here = here };

	return is_remote(&setting);
}

int main(void)
{
	static const char *const below[] = { "/dev/mapper/data", "/dev/mapper/data@one-store" }, *const of[] = { "/dev/sdb", "/dev/sdc", "/dev/sdd", "/dev/sde" };

	runs = true;
	check(!stack_is_remote(&stack), "one whose disks are all here");
	check(!mount_note_remote(&stack) && !changes, "is unmounted with the others");
	for (unsigned i = 0; i < 2; i++) {
		away = below[i];
		has_snapshot = i;
		check(stack_is_remote(&stack) && said(true), away);
		check(!mount_note_remote(&stack) && !changes, "is mounted nowhere");
		stack.mount[0] = '/';
		check(!mount_note_remote(&stack) && changes == 1, "is unmounted before the network goes");
		*stack.mount = changes = 0;
	}
	has_snapshot = false;
	check(!stack_is_remote(&stack), "a snapshot that is not there");
	runs = false;
	check(!stack_is_remote(&stack), "one that does not run");
	volume.path = (char *)of[0];
	ssd.path = (char *)of[1];
	keeps.path = (char *)of[2];
	other.path = (char *)of[3];
	keeps.sb.head.kind = other.sb.head.kind = htole32(LARDER_KIND_OTHER);
	stack.snapshots = 1;
	stack.snapshot[0] = (struct stack_snapshot){ "one", 3, SNAPSHOT_READY };
	stack_snapshot_uuid(&stack, &stack.snapshot[0], keeps.sb.head.uuid);
	found = (struct found){ .stack = stack, .whole = true, .volume = &volume, .cache = &ssd };
	for (unsigned i = 0; i < 4; i++) {
		away = of[i];
		check(said(false) == (i < 3), i == 3 ? "what is another's store" : i == 2 ? "a store of one that is stopped" : "its disk, its SSD");
	}
	away = of[2];
	stack.snapshot[0].state = found.stack.snapshot[0].state = SNAPSHOT_LOST;
	check(!said(false), "that of a snapshot which is lost");
	return failed;
}
