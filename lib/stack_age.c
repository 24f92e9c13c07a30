// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Of two legs of a mirror that were used without one another md, alone with the older one, knows nothing; nor does a cache: the volume's UUID, and
 * its incarnation there, are those that it had.  What is cached would lie over a disk that lacks what was written beside it.
 *
 * Any SSD that lists the stack is asked, not those of the cache that the volume names: a disk that left before the stack got another cache names the one
 * that it had, or none.
 *
 * Each change of a stack's devices raises the generation of its description, on the disks that are in it then.  The SSDs note which one the volume
 * has only when it has it, durably (store() in tools/stacks.c): so what they say was true of the right disks once, and these have it, or a
 * later one, whatever a power cut has cut off.  That stays true of an SSD that somebody else has by now, of which a copy of the superblock is left:
 * it is believed, as it can only hold back what is older; it is not written to, and its list is nobody's (newest_list() in tools/stacks.c).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "message.h"
#include "stack_age.h"
#include "superblock.h"

uint64_t stack_seen(const struct members *members, const uint8_t uuid[16])
{
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	uint64_t seen = 0;
	bool there;

	for (size_t i = 0; i < members->number; i++) {
		const struct larder_cache_sb *sb = &members->member[i]->sb.cache;

		if (le32toh(sb->head.kind) != LARDER_KIND_CACHE || stack_list_decode(sb->stack, list, &there))
			continue;
		for (size_t j = 0; j < list->number; j++)
			if (list->brief[j] && !memcmp(list->stack[j].uuid, uuid, 16) && list->stack[j].generation > seen)
				seen = list->stack[j].generation;
	}
	free(list);
	return seen;
}

char *stack_too_old(const struct members *members, const struct stack *stack)
{
	uint64_t seen = stack_seen(members, stack->uuid);
	char text[UUID_TEXT];

	if (stack->generation >= seen)
		return NULL;
	return must_print("the description of the stack %s is of generation %" PRIu64
			  " here, and its SSDs have seen %" PRIu64
			  ": a disk that had left it, or came from a backup? attach those that have all; what was written since is LOST with larder start "
			  "%s --discard-newer %s",
			  stack->name, stack->generation, seen, stack->name, uuid_text(stack->uuid, text));
}

/* What the table of this SSD has seen of a volume, of this incarnation, that has not got there; 0: nothing. */
static uint64_t seen_by(const struct member *ssd, const struct larder_volume_sb *sb)
{
	const struct larder_table_volume *v;
	struct cache_tables tables;
	struct device device;
	uint64_t seen = 0;

	if (device_try(&device, ssd->path))
		return 0;
	tables_read(&device, &ssd->sb.cache, &tables);
	v = tables.chosen ? table_volume(tables.chosen, sb->head.uuid, NULL) : NULL;
	if (v && volume_is_older(v, sb))
		seen = le64toh(v->seen);
	tables_free(&tables);
	device_close(&device);
	return seen;
}

/* The superblock again: where the volume runs it goes on, and the tables with it. */
static bool still_older(const struct member *volume, uint64_t seen)
{
	struct superblocks found;
	struct device device;
	const union superblock *best;
	bool older = true;

	if (device_try(&device, volume->path))
		return true;
	superblocks_read(&device, &found, false);
	best = superblocks_best(&found);
	if (best && !memcmp(best->head.uuid, volume->sb.head.uuid, 16))
		older = le64toh(best->head.generation) < seen;
	superblocks_free(&found);
	device_close(&device);
	return older;
}

uint64_t volume_seen_later(const struct members *members, const struct member *volume)
{
	uint64_t seen = 0, one;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *ssd = members->member[i];

		if (le32toh(ssd->sb.head.kind) != LARDER_KIND_CACHE || memcmp(ssd->sb.cache.cache_uuid, volume->sb.volume.cache_uuid, 16))
			continue;
		one = seen_by(ssd, &volume->sb.volume);
		seen = one > seen ? one : seen;
	}
	return seen && still_older(volume, seen) ? seen : 0;
}

/* The generation of the description in the volume's superblock, as this disk of a mirror has it; 0: it has none of this stack that can be read. */
static uint64_t described_on(const char *path, const struct md_leg *leg, const uint8_t uuid[16])
{
	uint64_t offset = (leg->start << LARDER_SECTOR_SHIFT) + LARDER_SB_OFFSET, generation = 0;
	union superblock *sb = device_buffer(LARDER_SB_SIZE);
	struct device device;
	struct stack stack;
	bool there;

	if (!(offset % LARDER_SB_SIZE) && !device_try(&device, path)) {
		if (!device_read(&device, offset, sb, LARDER_SB_SIZE) && superblock_is_whole(sb) && le32toh(sb->head.kind) == LARDER_KIND_VOLUME &&
		    !stack_decode(sb->volume.stack, &stack, &there) && there && !memcmp(stack.uuid, uuid, 16))
			generation = stack.generation;
		device_close(&device);
	}
	free(sb);
	return generation;
}

uint64_t stack_disks_behind(const struct members *members, const uint8_t uuid[16], const struct md_array *array)
{
	uint64_t described[MD_LEGS_MAX] = { 0 }, seen = stack_seen(members, uuid);

	for (size_t i = 0; seen && i < array->number; i++)
		if (array->super[i].level == 1)
			described[i] = described_on(array->leg[i], &array->super[i], uuid);
	return seen ? md_behind(array->super, described, array->number, seen) : 0;
}
