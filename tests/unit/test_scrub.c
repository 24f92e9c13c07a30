// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tools/stack_scrub.c: of a machine with more stacks than anybody has, each array and each cache is scrubbed, a cache that several have once.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../tools/stack_scrub.c"

static long pure_live;
typedef unsigned long long u64;
#include "seeded.h"
#include "memory.h"

#define STACKS 200

bool md_scrub_look(dev_t device, struct md_scrub *scrub)
{
	*scrub = (struct md_scrub){ 0 };
	return true;
}

const char *md_state(dev_t device, unsigned *missing)
{
	*missing = 0;
	return "clean";
}

void stack_part(const struct stack *stack, const char *part, uint8_t uuid[16])
{
	memcpy(uuid, stack->uuid, 16);
}

void layers_find(const struct stacks *stacks, const struct stack *stack, struct layers *layers)
{
	*layers = (struct layers){ .node = "/dev/dm-0", .cache = &stacks->list.mapped[stack->uuid[0] / 2] };
	layers->array.device = stack->uuid[0] + 1;
	snprintf(layers->array.node, sizeof(layers->array.node), "/dev/md%u", stack->uuid[0]);
}

void layers_free(struct layers *layers)
{
}

static void each_once(void)
{
	static struct mapped mapped[STACKS];
	static struct found found[STACKS];
	const struct stacks stacks = { .list = { mapped, STACKS }, .found = found, .number = STACKS };
	struct work work = { 0 };

	for (size_t i = 0; i < STACKS; i++) {
		mapped[i].cache = true;
		found[i] = (struct found){ .stack.uuid = { (uint8_t)i }, .whole = true };
	}
	CHECK(!find_work(&stacks, &(struct scrub_request){ 0 }, &work) && work.arrays == STACKS && work.caches == STACKS, "%zu arrays, %zu caches", work.arrays,
	      work.caches);
	for (size_t i = 0; i < STACKS; i++, operations++)
		CHECK(work.array[i].device == i + 1 && work.array[i].uuid[0] == i, "array %zu is another one", i);
	free(work.cache);
	free(work.array);
}

int main(void)
{
	run_test("each_once", each_once);
	return 0;
}
