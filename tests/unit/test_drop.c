// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder drop of a disk, of tools/stack_drop.c: while somebody is asked another disk of the array may get the name, as a bus that was reset hands them out
 * anew; it is not the one that fails.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/message.c"
#include "../../lib/fieldtext.c"
#include "nodes.h"
#include "../../tools/stack_devices.c"
#undef stat
#undef POLL_US
#undef PATIENCE
#include "../../tools/stack_drop.c"

#include "check.h"

static bool reset; /* the bus was: /dev/a and /dev/b have changed their names */

int stacks_scan(struct stacks *stacks)
{
	static struct found found = { .stack = { .name = "s", .raid = "1", .state = STACK_READY, .legs = 3 }, .whole = true };

	*stacks = (struct stacks){ .found = &found, .number = 1 };
	return LARDER_DONE;
}

void stacks_free(struct stacks *stacks)
{
}

int stack_find(const struct stacks *stacks, const char *word, const struct found **one)
{
	*one = &stacks->found[0];
	return LARDER_DONE;
}

int stack_check_ready(const struct stacks *stacks, const struct stack *stack)
{
	return LARDER_DONE;
}

void layers_find(const struct stacks *stacks, const struct stack *stack, struct layers *layers)
{
	static struct mapped volume;

	*layers = (struct layers){ .volume = &volume };
	strcpy(layers->array.node, "/dev/md");
}

void layers_free(struct layers *layers)
{
}

void set_free(struct set *set)
{
}

bool stack_disks(const struct stack *stack, dev_t array, struct md_disks *disks)
{
	static const char *const nodes[] = { "/dev/a", "/dev/b", "/dev/c" };

	*disks = (struct md_disks){ .number = 3, .places = 3, .idle = true };
	for (int i = 0; i < 3; i++) {
		const char *node = nodes[reset && i < 2 ? !i : i];

		disks->disk[i] = (struct md_disk){ .role = MD_MEMBER, .place = i, .whole = true, .number = node[strlen("/dev/")] };
		strcpy(disks->disk[i].node, node);
	}
	return true;
}

/* Of what is behind that name by now. */
uint64_t disk_sequence(dev_t number)
{
	return number + (reset && number != 'c' ? 100 : 0);
}

bool program_there(const char *name)
{
	return true;
}

const char *md_state(dev_t device, unsigned *missing)
{
	*missing = 0;
	return "clean";
}

int turn_confirm(const char *name, bool yes, const char *question)
{
	reset = !yes;
	return LARDER_DONE;
}

int stack_store_note(struct stack *stack)
{
	return LARDER_FAILED; /* ahead of all that changes the array: far enough */
}

static int drop_a(bool yes)
{
	struct dropping r = { .request = { .name = "s", .claim = { .yes = yes } }, .word = "/dev/a" };

	reset = false;
	return drop(&r);
}

int main(void)
{
	check(drop_a(true) == LARDER_FAILED, "a disk that is the one it was is on its way");
	check(drop_a(false) == LARDER_BUSY, "another one that has its name by now is not");
	return failed;
}
