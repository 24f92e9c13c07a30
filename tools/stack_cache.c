// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder replace NAME cache: another cache for a stack, as its own is gone, or is to be left.
 *
 * The stack is stopped, and its former cache holds nothing that its disks lack, or that is given up by a word.  What a power cut leaves:
 *
 *  the SSDs are formatted, with a list that has the stack; or the list of a cache that is there gets it
 *		the volume belongs to its former cache; the same command, with --wipe for what is formatted, begins anew
 *  one write of the volume's superblock: the description, the new cache, and an incarnation that the former one does not know
 *		the volume belongs to the new cache, which knows nothing of it yet, and attaches it when it starts; the former one is stale
 *  the former cache, as far as it is here, drops the stack from its list
 *		an entry that stays there says nothing: the description of the volume has the higher generation, and another cache
 *
 * The label of the new one is not that of the former, which may come back: two of one label would keep each other from starting.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "create.h"
#include "integrity.h"
#include "running.h"
#include "stack_devices.h"
#include "stack_plan.h"
#include "stack_room.h"
#include "stack_steps.h"
#include "stack_store.h"
#include "turn.h"

#define ROOM_REMEDY "another cache, or fewer stacks"

struct changing {
	const struct devices_request *request;
	struct argument_list words; /* SSDs, or the name of a cache */
	struct stack stack; /* as it will be */
	uint8_t former[16];
	char label[LARDER_LABEL_SIZE + 1]; /* of the new one */
	char *volume; /* path */
	dev_t number; /* of it; 0: no block device */
	uint32_t ssds, copies; /* of the new one: those that take data; on how many of them dirty data is */
};

/* ------------------------------------------------------------------ what can be refused */

static bool gives_up(const struct changing *c, const uint8_t cache[16])
{
	uint8_t given[16];

	return c->request->claim.discard_dirty && !uuid_parse(c->request->claim.discard_dirty, given) && !memcmp(given, cache, 16);
}

/* What is shared with it would change under a snapshot, and be shown as what it was. */
static int check_snapshots(const struct stack *stack)
{
	for (uint32_t i = 0; i < stack->snapshots; i++)
		if (stack->snapshot[i].state == SNAPSHOT_READY)
			return complain(LARDER_UNSAFE, "%s: --discard-dirty: its snapshot %s shares what would be LOST; larder snapshot remove %s@%s first",
					stack->name, stack->snapshot[i].name, stack->name, stack->snapshot[i].name);
	return LARDER_DONE;
}

static int check_dirty(const struct changing *c, const struct members *members, const struct member *volume)
{
	const struct larder_volume_sb *sb = &volume->sb.volume;
	char text[UUID_TEXT];

	if (!(le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY))
		return LARDER_DONE;
	uuid_text(sb->cache_uuid, text);
	if (member_cache(members, sb->cache_uuid))
		return complain(LARDER_UNSAFE, "%s: flags: may_be_dirty: its cache %s is here, and may hold newer data; larder start %s, larder volume detach %s --flush",
				volume->path, text, c->stack.name, c->stack.name);
	if (!gives_up(c, sb->cache_uuid))
		return complain(LARDER_UNSAFE,
				"%s: flags: may_be_dirty: its cache %s may hold newer data; bring that cache back, or what only it has is LOST with --discard-dirty %s",
				volume->path, text, text);
	return check_snapshots(&c->stack);
}

static int check_stack(struct changing *c, const struct stacks *stacks)
{
	const struct stack *stack = &c->stack;
	const struct member *volume;
	struct layers layers;
	uint8_t part[16];
	int result = stack_check_ready(stacks, stack);

	if (result)
		return result;
	stack_part(stack, "volume", part);
	volume = member_volume(&stacks->members, part);
	layers_find(stacks, stack, &layers);
	if (*layers.node)
		result = complain(LARDER_BUSY, "%s: is started: it gets another cache while it is stopped; larder stop %s", stack->name, stack->name);
	else if (!volume)
		result = complain(LARDER_NOT_FOUND, "%s: its disks are not here", stack->name);
	layers_free(&layers);
	result = result ? result : claim_check(volume->path, LARDER_KIND_VOLUME, part);
	result = result ? result : check_dirty(c, &stacks->members, volume);
	if (!result) {
		c->volume = must_print("%s", volume->path);
		c->number = volume->block ? volume->number : 0;
	}
	return result;
}

/* A word that is a disk of the stack, or has one as a partition: --wipe would let it go. */
static int check_disk(const struct changing *c, const char *word, const char *disk)
{
	if (!create_is_same(word, disk) && !create_is_partition(word, disk) && !create_is_partition(disk, word))
		return LARDER_DONE;
	return complain(LARDER_USAGE, "%s: is a disk of %s itself (%s); give an SSD", word, c->stack.name, disk);
}

/* Of an array that lacks some, a disk of it may be held by nobody. */
static int check_words(const struct changing *c)
{
	struct md_array array = { 0 };
	uint8_t part[16], leg[16];
	int result = LARDER_DONE;

	stack_part(&c->stack, "md", part);
	if (*c->stack.raid)
		md_find(part, &array);
	for (int i = 0; !result && i < c->words.number; i++) {
		result = check_disk(c, c->words.value[i], c->volume);
		if (!result && leg_of_disk(c->words.value[i], c->stack.uuid, leg))
			result = complain(LARDER_USAGE, "%s: is a disk of %s itself; give an SSD", c->words.value[i], c->stack.name);
		for (size_t j = 0; !result && j < array.number; j++)
			result = check_disk(c, c->words.value[i], array.leg[j]);
	}
	md_free(&array);
	return result;
}

/* One that is there: has it room, and no volume below, or above, this one? */
static int check_cache(const struct changing *c, const struct stacks *stacks)
{
	int result = c->number ? running_check_entangled(&stacks->list, c->volume, c->number, c->stack.cache) : LARDER_DONE;

	return result ? result : stack_check_room(stacks, &c->stack, c->words.value[0], ROOM_REMEDY);
}

/* The name of a cache that is there, or SSDs that become one. */
static int choose(struct changing *c, const struct stacks *stacks)
{
	const struct member *member;
	struct tier_set set;
	char text[UUID_TEXT];
	int result;

	c->stack.own_cache = c->words.number > 1 || strchr(c->words.value[0], '/') ? OWN_CACHE : OWN_NONE;
	if (c->stack.own_cache) {
		result = check_words(c);
		if (result)
			return result;
		uuid_generate_random(c->stack.cache);
		c->ssds = (uint32_t)c->words.number;
		c->copies = c->ssds < 2 ? 1 : 2; /* mirror=dirty */
		snprintf(c->label, sizeof(c->label), "%.*s-%.4s", LARDER_LABEL_SIZE - 5, c->stack.name, uuid_text(c->stack.cache, text));
		return create_check_names(c->label, c->label, LARDER_KIND_CACHE);
	}
	if (c->request->label)
		return complain(LARDER_USAGE, "--cache-label: is for SSDs that become a cache; larder cache label %s SSD LABEL is for one that is there",
				c->words.value[0]);
	result = stack_named_cache(stacks, c->words.value[0], &member);
	if (result)
		return result;
	memcpy(c->stack.cache, member->sb.cache.cache_uuid, 16);
	label_text(member->sb.cache.label, c->label);
	if (!memcmp(c->stack.cache, c->former, 16))
		return complain(LARDER_USAGE, "%s: is the cache of %s already", c->words.value[0], c->stack.name);
	result = check_cache(c, stacks);
	return result ? result : stack_look_at_cache(stacks, c->stack.cache, &set, &c->ssds, &c->copies);
}

static void show(const struct changing *c)
{
	char text[UUID_TEXT];

	printf("stack %s: leaves the cache %s\n", c->stack.name, uuid_text(c->former, text));
	for (int i = 0; c->stack.own_cache && i < c->words.number; i++) {
		printf("  %s: is formatted\n", c->words.value[i]);
		claim_note(c->words.value[i]);
	}
	printf("  its cache then: %s, mode %s\n", c->label, c->stack.mode);
	stack_show_risk(c->stack.mode, c->ssds, c->copies);
	fflush(stdout);
}

/* ------------------------------------------------------------------ the steps */

static int format(const struct changing *c)
{
	struct cache_request request = { .name = c->label, .label = c->label, .paths = c->words, .claim = c->request->claim, .uuid = c->stack.cache };
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	struct stack listed = c->stack;

	for (int i = 0; c->request->label && i < c->words.number; i++)
		strcpy(list->label[i], c->request->label);
	request.claim.yes = true; /* it has been asked for */
	listed.generation = 0; /* until the volume has it */
	stack_list_put(list, &listed);
	stack_list_encode(list, field); /* one name, and labels */
	free(list);
	request.stack = field;
	return cache_format(&request);
}

static int change_volume(union superblock *sb, bool *write, void *data)
{
	const struct changing *c = data;
	uint8_t part[16], field[LARDER_STACK_SIZE];
	const char *why = stack_encode(&c->stack, field);
	int result;

	stack_part(&c->stack, "volume", part);
	if (why || memcmp(sb->head.uuid, part, 16))
		return complain(LARDER_FAILED, "%s: %s", c->volume, why ? why : "uuid: is another device now");
	if ((le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY) && !gives_up(c, sb->volume.cache_uuid))
		return complain(LARDER_UNSAFE, "%s: flags: may_be_dirty: was started meanwhile", c->volume);
	*write = true;
	result = superblock_leave_cache(sb);
	memcpy(sb->volume.stack, field, sizeof(field));
	memcpy(sb->volume.cache_uuid, c->stack.cache, 16);
	sb->volume.set_generation = 0; /* of a set that it has not run with */
	return result;
}

static int store_volume(struct changing *c)
{
	uint8_t part[16];
	bool ours;
	int result;

	stack_part(&c->stack, "volume", part);
	result = claim_change(c->volume, LARDER_KIND_VOLUME, part, change_volume, c, &ours);
	return result || ours ? result : LARDER_UNSAFE;
}

static void leave_former(const struct changing *c)
{
	struct stack former = c->stack;
	struct members members;
	const struct member *ssd;
	char text[UUID_TEXT];

	memcpy(former.cache, c->former, 16);
	members_scan(&members);
	ssd = member_cache(&members, c->former);
	if (ssd && !stack_forget(&former) && !ssd->copy_only)
		remark("%s: its former cache %s is still on %s; if no other volume uses it: larder super wipe %s", c->stack.name,
		       uuid_text(c->former, text), ssd->path, ssd->path);
	members_free(&members);
}

static int carry_out(struct changing *c)
{
	int result;

	c->stack.generation = stack_raise(c->stack.generation, 1);
	result = c->stack.own_cache ? format(c) : stack_store_ssds(&c->stack, false);
	result = result ? result : store_volume(c);
	result = result ? result : stack_store_ssds(&c->stack, true);
	if (result)
		return result;
	leave_former(c);
	printf("%s: its cache is %s; larder start %s\n", c->stack.name, c->label, c->stack.name);
	return LARDER_DONE;
}

/* As far as it can be known: the devices are judged, nothing is written. */
static int print_steps(struct changing *c)
{
	int result = c->stack.own_cache ? format(c) : LARDER_DONE;

	if (!result)
		printf("write superblock to %s: cache %s\n", c->volume, c->label);
	return result;
}

/* One that is there, behind a question: is it the same one, with as many copies as were shown? */
static int check_cache_again(const struct changing *c, const struct stacks *stacks)
{
	const struct member *member;
	struct tier_set set;
	uint32_t ssds, copies;
	int result = stack_named_cache(stacks, c->words.value[0], &member);

	if (!result && memcmp(c->stack.cache, member->sb.cache.cache_uuid, 16))
		result = complain(LARDER_BUSY, "%s: is another cache since the question was asked; begin anew", c->words.value[0]);
	result = result ? result : check_cache(c, stacks);
	result = result ? result : stack_look_at_cache(stacks, c->stack.cache, &set, &ssds, &copies);
	if (!result && copies < c->copies)
		result = complain(LARDER_BUSY, "%s: has fewer copies of dirty data since the question was asked; begin anew", c->words.value[0]);
	return result;
}

/* Others may have started it, or changed it, or the cache that it is to get, while somebody was asked. */
static int judge_again(struct changing *c)
{
	struct stacks stacks;
	int result = stack_check_same(&c->stack);

	result = result ? result : stacks_scan(&stacks);
	if (result)
		return result;
	free(c->volume);
	c->volume = NULL;
	result = check_stack(c, &stacks);
	if (!result && !c->stack.own_cache)
		result = check_cache_again(c, &stacks);
	stacks_free(&stacks);
	return result;
}

static int change(struct changing *c)
{
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	memcpy(c->former, c->stack.cache, 16);
	result = check_stack(c, &stacks);
	result = result ? result : choose(c, &stacks);
	stacks_free(&stacks);
	if (result)
		return result;
	show(c);
	if (c->request->claim.dry_run)
		return print_steps(c);
	result = turn_confirm(c->stack.name, c->request->claim.yes, "Give it this cache?");
	result = result ? result : judge_again(c);
	return result ? result : carry_out(c);
}

int stack_change_cache(const struct devices_request *request, char **words, int number)
{
	struct changing c = { .request = request };
	bool assembled;
	int result;

	if (request->role || request->no_wait || request->discard_redundancy)
		return complain(LARDER_USAGE, "--role, --no-wait, --discard-redundancy: are for an SSD of a cache that runs");
	if (number > (int)LARDER_MAX_DEVICES)
		return complain(LARDER_USAGE, "%d SSDs are given; a cache has at most %u", number, LARDER_MAX_DEVICES);
	while (c.words.number < number) {
		c.words.value[c.words.number] = words[c.words.number];
		c.words.number++;
	}
	result = stack_load_with_array(request->name, &c.stack, request->claim.dry_run ? START_DRY_RUN : 0, &assembled);
	result = result ? result : change(&c);
	if (assembled && stop_array(&c.stack) && !result)
		result = LARDER_FAILED;
	free(c.volume);
	return result;
}
