// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Of two legs of a mirror that were used without one another md, alone with the older one, knows nothing; nor does a cache: the volume's UUID, and
 * its incarnation there, are those that it had.  What is cached would lie over a disk that lacks what was written beside it.
 *
 * Any SSD that lists the stack is asked, not those of the cache that the volume names: a disk that left before the stack got another cache names the one
 * that it had, or none.
 *
 * Each change of a stack's devices raises the generation of its description, on the disks that are in it then.  The SSDs note which one the volume
 * has only when it has it, durably (store() in tools/stack_store.c): so what they say was true of the right disks once, and these have it, or a
 * later one, whatever a power cut has cut off.  That stays true of an SSD that somebody else has by now, of which a copy of the superblock is left:
 * it is believed, as it can only hold back what is older; it is not written to, and its list is nobody's (newest_list() in tools/stack_store.c).
 *
 * Between two changes of the description the superblock of the volume says the same by its own generation, and the table of the
 * cache by `seen` (rule 16, kernel/age.c).  Of the halves A and B of a mirror, which of them has got to `seen`:
 *
 *   both are in the array		both: the superblock is durable on each before the table names it.  A power cut may leave
 *					one of them above it
 *   A is pulled			both, until the next generation is named.  md notes on B that A is gone before it
 *					completes a write that A lacks
 *   B runs alone, and is bound,	B, from then on.  A keeps what it had.  A power cut before the table names it leaves both
 *     unbound, or an hour passes	there, and B the one with more events: md takes B
 *   A is put back, B pulled		A alone is refused; md has raised its events all the same, and noted on it that B is
 *					gone.  Where nothing was named meanwhile A runs, and has got to `seen` from its next
 *					generation on: B has not
 *   both are here, and differ		the one that the cache ran with last.  It must win: the other one is refused by `start`,
 *					and by the kernel; by events md may take that one.  If both have got there (a power cut
 *					before the table named what one has) neither is refused, and md decides
 *   A is put back beside B, is		A has, block by block, what B has, and is noted as partial until it has all: it is
 *     rebuilt				not judged
 *   a copy is torn, or older		the other copy counts, as it does of the whole array
 *   A was made the newest, or		another incarnation: nothing is compared.  --discard-newer raises the generation of the
 *     ran without a cache		description, too, which decides first
 *
 * An SSD that is older than its volume is told by `noted` in the superblock of that: a generation that every table of the cache had.
 *
 * So a disk is left out if `seen` is above what it has, and another one, which md noted as being without it, has got there.
 * Such a disk alone would be refused; of those of one incarnation the one with the highest generation is left out by no table:
 * never are all.  The disks are read before the tables: if somebody else has started the array meanwhile, none has got to what
 * these say, and none is left out.
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

/* Is it an SSD of the cache that this volume names? */
static bool is_its_ssd(const struct member *ssd, const struct larder_volume_sb *sb)
{
	return le32toh(ssd->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(ssd->sb.cache.cache_uuid, sb->cache_uuid, 16);
}

/* What the table of this SSD has of the volume.  False: nothing, or it cannot be read. */
static bool entry_on(const struct member *ssd, const uint8_t uuid[16], struct larder_table_volume *entry)
{
	const struct larder_table_volume *v;
	struct cache_tables tables;
	struct device device;
	bool known;

	if (device_try(&device, ssd->path))
		return false;
	tables_read(&device, &ssd->sb.cache, &tables);
	v = tables.chosen ? table_volume(tables.chosen, uuid, NULL) : NULL;
	known = v;
	if (known)
		*entry = *v;
	tables_free(&tables);
	device_close(&device);
	return known;
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
	const struct larder_volume_sb *sb = &volume->sb.volume;
	struct larder_table_volume entry;
	uint64_t seen = 0;

	for (size_t i = 0; i < members->number; i++)
		if (is_its_ssd(members->member[i], sb) && entry_on(members->member[i], sb->head.uuid, &entry) &&
		    volume_is_older(&entry, sb) && le64toh(entry.seen) > seen)
			seen = le64toh(entry.seen);
	return seen && still_older(volume, seen) ? seen : 0;
}

char *volume_too_old(const struct members *members, const struct member *volume, const struct stack *stack)
{
	uint64_t seen = volume_seen_later(members, volume);
	char text[UUID_TEXT], label[LARDER_LABEL_SIZE + 1], *lost, *why;

	if (!seen)
		return NULL;
	label_text(volume->sb.volume.label, label);
	if (stack)
		lost = must_print("start %s --discard-newer %s", stack->name, uuid_text(stack->uuid, text));
	else
		lost = must_print("volume start %s --option stale=discard", label);
	why = must_print("its superblock is of generation %" PRIu64 ", and its cache has seen %" PRIu64
			 ": a disk put back from an image? attach the one that it had; what was written since is LOST with larder %s; if it is that one, and loses what it has acknowledged: larder volume start %s --option stale=accept%s",
			 le64toh(volume->sb.head.generation), seen, lost, stack ? stack->name : label, stack ? " first" : "");
	free(lost);
	return why;
}

char *cache_too_old(const struct members *members, const struct member *volume, const struct stack *stack)
{
	const struct larder_volume_sb *sb = &volume->sb.volume;
	char text[UUID_TEXT], label[LARDER_LABEL_SIZE + 1], *lost, *why;
	const char *name = stack ? stack->name : label_text(sb->label, label);
	const struct member *ssd = NULL;
	struct larder_table_volume entry;
	uint64_t seen = 0;

	for (size_t i = 0; i < members->number; i++) {
		if (!is_its_ssd(members->member[i], sb) || !entry_on(members->member[i], sb->head.uuid, &entry))
			continue;
		if (!cache_is_older(&entry, sb))
			return NULL;
		if (le64toh(entry.seen) > seen) {
			seen = le64toh(entry.seen);
			ssd = members->member[i];
		}
	}
	if (!ssd)
		return NULL;
	lost = stack ? must_print("start %s --discard-newer %s", name, uuid_text(stack->uuid, text)) :
		       must_print("volume start %s --option stale=discard", name);
	why = must_print("its cache on %s has seen generation %" PRIu64 " of it, and had seen %" PRIu64
			 ": an SSD put back from an image, or a copy of one? attach the one that it had; what is dirty on that is LOST with larder %s; if it is that one, and loses what it has acknowledged: larder volume start %s --option stale=accept%s",
			 ssd->path, seen, le64toh(sb->noted), lost, name, stack ? " first" : "");
	free(lost);
	return why;
}

/* The description in it; NULL: it has none that can be read. */
static const struct stack *own_stack(const struct member *volume, struct stack *own)
{
	bool there;

	return !stack_decode(volume->sb.volume.stack, own, &there) && there ? own : NULL;
}

static int refuse(const struct member *volume, char *why)
{
	int result = why ? complain(LARDER_UNSAFE, "%s: %s", volume->path, why) : LARDER_DONE;

	free(why);
	return result;
}

int volume_check_age(const struct members *members, const struct member *volume)
{
	struct stack own;
	const struct stack *stack = own_stack(volume, &own);
	char *why = stack ? stack_too_old(members, stack) : NULL;

	return refuse(volume, why ? why : volume_too_old(members, volume, stack));
}

int volume_check_ages(const struct members *members, const struct member *volume)
{
	struct stack own;
	int result = volume_check_age(members, volume);

	return result ? result : refuse(volume, cache_too_old(members, volume, own_stack(volume, &own)));
}

/* ------------------------------------------------------------------ halves of a mirror */

/* What the disks of a mirror have of the volume, each for itself; NULL: nothing that can be believed. */
struct halves {
	const struct md_array *array;
	struct superblocks found[MD_LEGS_MAX];
	const struct larder_volume_sb *sb[MD_LEGS_MAX];
};

/* As the array would show it, were it of this disk alone: the better one of two copies. */
static void halves_read(struct halves *h, const struct stack *stack, const struct md_array *array)
{
	uint8_t part[16];

	*h = (struct halves){ .array = array };
	stack_part(stack, "volume", part);
	for (size_t i = 0; i < array->number; i++) {
		const struct md_leg *leg = &array->super[i];
		const struct superblock_copy *copy;
		struct device device;

		if (leg->level != 1 || device_try_part(&device, array->leg[i], leg->start, leg->size))
			continue;
		superblocks_read(&device, &h->found[i], false);
		device_close(&device);
		copy = h->found[i].chosen;
		if (copy && le32toh(copy->sb->head.kind) == LARDER_KIND_VOLUME && !memcmp(copy->sb->head.uuid, part, 16))
			h->sb[i] = &copy->sb->volume;
	}
}

static void halves_free(struct halves *h)
{
	for (size_t i = 0; i < h->array->number; i++)
		superblocks_free(&h->found[i]);
}

static uint64_t behind_by_description(const struct halves *h, const struct members *members, const uint8_t uuid[16])
{
	uint64_t described[MD_LEGS_MAX] = { 0 };
	struct stack stack;
	bool there;

	for (size_t i = 0; i < h->array->number; i++)
		if (h->sb[i] && !stack_decode(h->sb[i]->stack, &stack, &there) && there && !memcmp(stack.uuid, uuid, 16))
			described[i] = stack.generation;
	return md_behind(h->array->super, described, h->array->number, stack_seen(members, uuid));
}

/* By the table of one SSD, of those that are not out already: what is of its cache, and of the incarnation that it has seen. */
static uint64_t behind_by_table(const struct halves *h, const struct member *ssd, uint64_t out)
{
	struct larder_table_volume entry = { 0 };
	uint64_t generation[MD_LEGS_MAX] = { 0 };
	bool known = false;

	for (size_t i = 0; i < h->array->number; i++) {
		const struct larder_volume_sb *sb = h->sb[i];

		if (!sb || out >> i & 1 || !is_its_ssd(ssd, sb))
			continue;
		if (!known && !entry_on(ssd, sb->head.uuid, &entry))
			return 0;
		known = true;
		if (entry.incarnation == sb->incarnation)
			generation[i] = le64toh(sb->head.generation);
	}
	return md_behind(h->array->super, generation, h->array->number, le64toh(entry.seen));
}

uint64_t stack_disks_behind(const struct members *members, const struct stack *stack, const struct md_array *array)
{
	struct halves h;
	uint64_t out, older = 0;

	halves_read(&h, stack, array);
	out = behind_by_description(&h, members, stack->uuid);
	for (size_t i = 0; i < members->number; i++)
		older |= behind_by_table(&h, members->member[i], out);
	halves_free(&h);
	return out | older;
}
