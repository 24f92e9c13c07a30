// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Stacks: finding them, keeping their description, starting and stopping each layer.
 *
 * The description is in the superblock of the volume and in those of all SSDs of its cache; the one with the highest generation
 * counts.  Superblocks of what runs are the kernel's: it is told by a message.  Every function looks anew at what is there: a layer
 * that was started a moment ago shows devices that were not there before.
 */
#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <uuid/uuid.h>

#include "claim.h"
#include "cow.h"
#include "fstab.h"
#include "hanging.h"
#include "integrity.h"
#include "mounts.h"
#include "program.h"
#include "running.h"
#include "snapshot.h"
#include "stack_age.h"
#include "stacks.h"
#include "turn.h"
#include "verbs.h"

#define SYSTEMCTL_NO_UNIT 5 /* its exit status, as LSB has it for "not installed" */

/* ------------------------------------------------------------------ find */

static struct found *entry(struct stacks *stacks, const uint8_t uuid[16])
{
	struct found *f;

	for (size_t i = 0; i < stacks->number; i++)
		if (!memcmp(stacks->found[i].stack.uuid, uuid, 16))
			return &stacks->found[i];
	stacks->found = must_allocate(realloc(stacks->found, (stacks->number + 1) * sizeof(*stacks->found)));
	f = &stacks->found[stacks->number++];
	*f = (struct found){ 0 };
	memcpy(f->stack.uuid, uuid, 16);
	return f;
}

static void take_whole(struct found *f, const struct stack *stack)
{
	if (f->whole && f->stack.generation >= stack->generation)
		return;
	f->stack = *stack;
	f->whole = true;
}

static void take_volume(struct stacks *stacks, const struct member *m)
{
	uint8_t part[16];
	struct stack stack;
	struct found *f;
	bool there;
	const char *why = stack_decode(m->sb.volume.stack, &stack, &there);

	if (why)
		remark("%s: %s; see larder super show %s", m->path, why, m->path);
	if (why || !there)
		return;
	stack_part(&stack, "volume", part);
	if (memcmp(part, m->sb.head.uuid, 16)) {
		remark("%s: stack: is that of another volume; left alone", m->path);
		return;
	}
	f = entry(stacks, stack.uuid);
	take_whole(f, &stack);
	f->volume = m;
}

static void take_ssd(struct stacks *stacks, const struct member *m)
{
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	bool there;
	const char *why = stack_list_decode(m->sb.cache.stack, list, &there);

	if (why)
		remark("%s: %s; see larder super show %s", m->path, why, m->path);
	for (size_t i = 0; i < list->number; i++) {
		struct found *f = entry(stacks, list->stack[i].uuid);

		if (!list->brief[i]) {
			take_whole(f, &list->stack[i]);
		} else if (!f->whole) {
			f->stack = list->stack[i];
			memcpy(f->stack.cache, m->sb.cache.cache_uuid, 16);
		}
		f->cache = m;
	}
	free(list);
}

static void scan(struct stacks *stacks)
{
	members_scan(&stacks->members);
	for (size_t i = 0; i < stacks->members.number; i++) {
		const struct member *m = stacks->members.member[i];

		if (le32toh(m->sb.head.kind) == LARDER_KIND_VOLUME)
			take_volume(stacks, m);
		else if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE)
			take_ssd(stacks, m);
	}
	for (size_t i = 0; i < stacks->number; i++) {
		struct found *f = &stacks->found[i];

		if (!f->cache)
			f->cache = member_cache(&stacks->members, f->stack.cache);
	}
}

int stacks_scan(struct stacks *stacks)
{
	int result;

	*stacks = (struct stacks){ 0 };
	result = mapped_scan(&stacks->list);
	if (!result)
		scan(stacks);
	return result;
}

int stacks_look(struct stacks *stacks)
{
	int result;

	*stacks = (struct stacks){ 0 };
	result = snapshot_take(&stacks->list);
	if (result)
		return result;
	hanging_look(&stacks->list);
	scan(stacks);
	return LARDER_DONE;
}

void stacks_free(struct stacks *stacks)
{
	free(stacks->found);
	members_free(&stacks->members);
	mapped_list_free(&stacks->list);
	*stacks = (struct stacks){ 0 };
}

int stack_find(const struct stacks *stacks, const char *word, const struct found **found)
{
	uint8_t uuid[16];
	bool by_uuid = !uuid_parse(word, uuid);
	int code = LARDER_NOT_FOUND;
	char *why;

	*found = NULL;
	for (size_t i = 0; i < stacks->number; i++) {
		const struct found *f = &stacks->found[i];

		if (by_uuid ? memcmp(f->stack.uuid, uuid, 16) != 0 : strcmp(f->stack.name, word) != 0)
			continue;
		if (*found)
			return complain(LARDER_UNSAFE, "%s: two stacks have this name; give the UUID, see larder list -o name,uuid", word);
		*found = f;
	}
	if (*found)
		return LARDER_DONE;
	why = members_unseen(&code);
	complain(code, "%s: there is no such stack; see larder list%s", word, why);
	free(why);
	return code;
}

int stack_check_same(const struct stack *stack)
{
	const struct found *found;
	struct stacks stacks;
	char uuid[UUID_TEXT];
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	result = stack_find(&stacks, uuid_text(stack->uuid, uuid), &found);
	if (!result && (!found->whole || found->stack.generation != stack->generation))
		result = complain(LARDER_BUSY, "%s: was changed while the question was open; begin anew: larder show %s", stack->name,
				  stack->name);
	stacks_free(&stacks);
	return result;
}

static bool is_part(const struct stack *stack, const struct member *m)
{
	char name[32];
	uint8_t part[16];

	if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE)
		return !memcmp(m->sb.cache.cache_uuid, stack->cache, 16);
	if (leg_is_of(&m->sb, stack->uuid))
		return true;
	stack_part(stack, "volume", part);
	if (!memcmp(m->sb.head.uuid, part, 16))
		return true;
	for (uint32_t i = 0; i < stack->legs + stack->spares; i++) {
		snprintf(name, sizeof(name), "disk %u", i);
		stack_part(stack, name, part);
		if (!memcmp(m->sb.head.uuid, part, 16))
			return true;
	}
	return false;
}

int stack_refuse_copy(const char *name, const char *a, const char *b)
{
	bool first = strcmp(a, b) < 0;

	return complain(LARDER_UNSAFE, "%s: %s and %s have one UUID: one is a copy of the other (dd, a snapshot?): detach the copy, or remove its signature",
			name, first ? a : b, first ? b : a);
}

/* One disk, by itself and through what lies over it (multipath), is no copy. */
static bool is_one_disk(const char *a, const char *b)
{
	struct stat x, y;

	if (stat(a, &x) || stat(b, &y) || !S_ISBLK(x.st_mode) || !S_ISBLK(y.st_mode))
		return false;
	return x.st_rdev == y.st_rdev || device_is_below(x.st_rdev, y.st_rdev) || device_is_below(y.st_rdev, x.st_rdev);
}

static int check_legs(const struct stack *stack, const struct md_array *array)
{
	uint8_t a[16], b[16];

	for (size_t i = 0; i < array->number; i++)
		for (size_t j = 0; j < i; j++)
			if (md_leg_uuid(array->leg[i], a) && md_leg_uuid(array->leg[j], b) && !memcmp(a, b, 16) &&
			    !is_one_disk(array->leg[i], array->leg[j]))
				return stack_refuse_copy(stack->name, array->leg[i], array->leg[j]);
	return LARDER_DONE;
}

int stack_check_copies(const struct stacks *stacks, const struct stack *stack, const struct md_array *array)
{
	const struct members *members = &stacks->members;

	for (size_t i = 0; i < members->number; i++)
		for (size_t j = 0; j < i && is_part(stack, members->member[i]); j++)
			if (!memcmp(members->member[i]->sb.head.uuid, members->member[j]->sb.head.uuid, 16))
				return stack_refuse_copy(stack->name, members->member[i]->path, members->member[j]->path);
	return check_legs(stack, array);
}

/* ------------------------------------------------------------------ the description */

static char *hex(const uint8_t field[static LARDER_STACK_SIZE])
{
	size_t used = LARDER_STACK_SIZE;
	char *text, *at;

	while (used && !field[used - 1])
		used--;
	if (!used)
		return must_print("stack -");
	at = text = must_allocate(malloc(strlen("stack ") + 2 * used + 1));
	at += sprintf(at, "stack ");
	for (size_t i = 0; i < used; i++)
		at += sprintf(at, "%02x", field[i]);
	return text;
}

static int send(const struct mapped *mapped, const uint8_t field[static LARDER_STACK_SIZE])
{
	char *message = hex(field);
	int result = mapped_message(mapped->target, message);

	free(message);
	return result;
}

struct stack_change {
	const struct member *member;
	const uint8_t *field;
	const char *label; /* NULL: as it is */
};

static int change_stack(union superblock *sb, bool *write, void *data)
{
	const struct stack_change *change = data;

	(void)write;
	if (memcmp(sb->head.uuid, change->member->sb.head.uuid, 16))
		return complain(LARDER_UNSAFE, "%s: uuid: is another device than a moment ago; nothing was written to it", change->member->path);
	memcpy(le32toh(sb->head.kind) == LARDER_KIND_CACHE ? sb->cache.stack : sb->volume.stack, change->field, LARDER_STACK_SIZE);
	if (change->label) {
		memset(sb->cache.label, 0, LARDER_LABEL_SIZE); /* it lies at the same place in both */
		memcpy(sb->cache.label, change->label, strlen(change->label));
	}
	return LARDER_DONE;
}

/* The superblock of a member that does not run: field, and label, unless NULL, in one write.  Not *written: it is somebody else's by now. */
static int write_member(const struct member *m, const uint8_t field[static LARDER_STACK_SIZE], const char *label, bool *written)
{
	struct stack_change change = { m, field, label };
	struct device device;
	struct superblocks found;
	int result = claim_member(&device, &found, m->path, le32toh(m->sb.head.kind), m->sb.head.uuid, written);

	if (result || !*written)
		return result;
	superblocks_free(&found);
	result = superblock_change(&device, change_stack, &change);
	device_close(&device);
	return result;
}

struct mapped *stack_volume(const struct stacks *stacks, const struct stack *stack)
{
	uint8_t part[16];

	stack_part(stack, "volume", part);
	return running_by_uuid(&stacks->list, part, false);
}

/* What the SSDs were told, and the volume was not, would be half a change. */
static int check_volume(const struct stacks *stacks, const struct stack *stack)
{
	const struct member *m;
	uint8_t part[16];

	stack_part(stack, "volume", part);
	m = member_volume(&stacks->members, part);
	if (!m || running_by_uuid(&stacks->list, part, false) || stack->state == STACK_REMOVING)
		return LARDER_DONE;
	return claim_check(m->path, LARDER_KIND_VOLUME, part);
}

/* *written: it is there, and has it. */
static int store_volume(const struct stacks *stacks, const struct stack *stack, const char *label, bool *written)
{
	uint8_t part[16], field[LARDER_STACK_SIZE];
	const struct mapped *running;
	const struct member *m;
	const char *why;
	int result;

	*written = false;
	stack_part(stack, "volume", part);
	m = member_volume(&stacks->members, part);
	running = running_by_uuid(&stacks->list, part, false);
	if (!m && !running)
		return LARDER_DONE;
	why = stack_encode(stack, field);
	if (why)
		return complain(LARDER_FAILED, "%s: %s", stack->name, why);
	result = running ? send(running, field) : write_member(m, field, label, written);
	*written = !result && (running || *written);
	/* what is removed does without it */
	return result || *written || stack->state == STACK_REMOVING ? result : LARDER_UNSAFE;
}

/* Of two SSDs of one cache.  Each counts its own writes: first by the set that it knows, or one that left it long ago would come before. */
static bool is_newer(const struct member *a, const struct member *b)
{
	uint64_t x = le64toh(a->sb.cache.set_generation) >> 32, y = le64toh(b->sb.cache.set_generation) >> 32;

	return x != y ? x > y : le64toh(a->sb.head.generation) > le64toh(b->sb.head.generation);
}

const struct member *stack_newest_ssd(const struct members *members, const uint8_t cache[16])
{
	const struct member *newest = NULL;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, cache, 16) &&
		    (!newest || is_newer(m, newest)) && !claim_is_others(m->path))
			newest = m;
	}
	return newest;
}

static int newest_list(const struct members *members, const uint8_t cache[16], struct stack_list *list)
{
	const struct member *newest = stack_newest_ssd(members, cache);
	const char *why;
	bool there;

	list->number = 0;
	if (!newest)
		return LARDER_DONE;
	why = stack_list_decode(newest->sb.cache.stack, list, &there);
	return why ? complain(LARDER_FAILED, "%s: %s", newest->path, why) : LARDER_DONE;
}

int stack_list_read(const uint8_t cache[16], struct stack_list *list)
{
	struct members members;
	int result;

	members_scan(&members);
	result = newest_list(&members, cache, list);
	members_free(&members);
	return result;
}

int stack_elsewhere(const struct stack *stack, bool *elsewhere)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	int result = stack_list_read(stack->cache, list);

	*elsewhere = stack_is_foreign(stack) || (!result && list->number && stack_host_is_foreign(list->host));
	free(list);
	return result;
}

int stack_check_machine(const struct stack *stack)
{
	struct md_array array = { 0 };
	struct stacks stacks;
	uint8_t part[16];
	bool elsewhere;
	int result = stack_elsewhere(stack, &elsewhere);

	if (!result && elsewhere)
		result = complain(LARDER_UNSAFE, "%s: is another machine's; if that does not use it any more: larder start --import %s takes it over",
				  stack->name, stack->name);
	result = result ? result : stacks_scan(&stacks);
	if (result)
		return result;
	stack_part(stack, "md", part);
	if (*stack->raid)
		md_find(part, &array);
	result = stack_check_copies(&stacks, stack, &array);
	md_free(&array);
	stacks_free(&stacks);
	return result;
}

int stack_named_cache(const struct stacks *stacks, const char *name, const struct member **member)
{
	struct stack_list *list;
	int result = member_find((struct members *)&stacks->members, name, LARDER_KIND_CACHE, member);

	if (result)
		return result;
	list = must_allocate(calloc(1, sizeof(*list)));
	result = stack_list_read((*member)->sb.cache.cache_uuid, list);
	if (!result && list->number && stack_host_is_foreign(list->host))
		result = complain(LARDER_UNSAFE, "%s: the cache is another machine's; if that does not use it any more: larder start --import %s first",
				  name, list->stack[0].name);
	free(list);
	return result;
}

/* What the list says that its volume has had. */
static uint64_t seen_in(const struct stack_list *list, const struct stack *stack)
{
	for (size_t i = 0; i < list->number; i++)
		if (list->brief[i] && !memcmp(list->stack[i].uuid, stack->uuid, 16))
			return list->stack[i].generation;
	return 0;
}

enum listing {
	LIST_DROP,
	LIST_PUT, /* of one that is ready with the generation that its volume was seen with before */
	LIST_SEEN, /* its volume has this generation, durably */
};

/* To all SSDs of a cache.  label: of it from now on, if it does not run; NULL: as it is. */
static int store_field(const struct stacks *stacks, const uint8_t cache[16], const uint8_t field[static LARDER_STACK_SIZE], const char *label)
{
	const struct mapped *running = running_by_uuid(&stacks->list, cache, true);
	int result = LARDER_DONE;
	bool written;

	if (running)
		return send(running, field);
	for (size_t i = 0; !result && i < stacks->members.number; i++) {
		const struct member *m = stacks->members.member[i];

		if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE && !memcmp(m->sb.cache.cache_uuid, cache, 16))
			result = write_member(m, field, label, &written);
	}
	return result;
}

/* The field with a label, or options; longer ones may leave no room for what `remove` writes there. */
static int encode_list(const struct stacks *stacks, const uint8_t cache[16], const struct stack_list *list, const char *what, const char *text, bool longer,
		       uint8_t field[static LARDER_STACK_SIZE])
{
	const char *why = stack_list_encode(list, field), *whose = why || !longer ? NULL : stack_list_lacks_room(stacks, cache, list);
	char uuid[UUID_TEXT];

	if (why)
		return complain(LARDER_FAILED, "%s: %s: %s, with '%s'; shorter, or fewer stacks", uuid_text(cache, uuid), what, why, text);
	if (whose)
		return complain(LARDER_FAILED, "%s: %s: with '%s' the list of stacks on its SSDs, of 2 KiB, has no room to remove %s some day; shorter, or fewer stacks",
				uuid_text(cache, uuid), what, text, whose);
	return LARDER_DONE;
}

/* Where that is in a list. */
typedef char *list_text(struct stack_list *list, uint32_t place);

static int store_text(const uint8_t cache[16], list_text *where, uint32_t place, const char *what, const char *text, bool dry_run)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	if (result) {
		free(list);
		return result;
	}
	result = newest_list(&stacks.members, cache, list);
	if (!result && strcmp(where(list, place), text)) {
		bool longer = strlen(text) > strlen(where(list, place));

		strcpy(where(list, place), text);
		result = encode_list(&stacks, cache, list, what, text, longer, field);
		if (!result && !dry_run)
			result = store_field(&stacks, cache, field, NULL);
	}
	stacks_free(&stacks);
	free(list);
	return result;
}

static char *label_in(struct stack_list *list, uint32_t place)
{
	return list->label[place];
}

static char *options_in(struct stack_list *list, uint32_t place)
{
	(void)place;
	return list->options;
}

int stack_list_store_label(const uint8_t cache[16], uint32_t place, const char *label, bool dry_run)
{
	return store_text(cache, label_in, place, "label", label, dry_run);
}

int stack_list_store_options(const uint8_t cache[16], const char *options, bool dry_run)
{
	return store_text(cache, options_in, 0, "options", options, dry_run);
}

/* label: as in store_field() */
static int store_ssds(const struct stacks *stacks, const struct stack *stack, enum listing how, const char *label)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	struct stack listed = stack_listed(stack);
	const char *why = NULL;
	int result = newest_list(&stacks->members, stack->cache, list);

	if (stack->state == STACK_READY && how == LIST_PUT)
		listed.generation = seen_in(list, stack);
	if (!result && how != LIST_DROP && !stack_list_put(list, &listed))
		why = "its cache has the most stacks that it can have";
	if (how == LIST_DROP)
		stack_list_drop(list, stack->uuid);
	if (!result)
		why = why ? why : stack_list_encode(list, field);
	free(list);
	if (!result && why)
		return complain(LARDER_FAILED, "%s: %s", stack->name, why);
	return result ? result : store_field(stacks, stack->cache, field, label);
}

static int store(struct stack *stack, const char *volume_label, const char *cache_label)
{
	struct stacks stacks;
	bool written;
	int result = stacks_scan(&stacks);

	stack->generation = stack_raise(stack->generation, 1);
	result = result ? result : check_volume(&stacks, stack);
	/* what comes second may be lost, and the first has the higher generation */
	result = result ? result : store_ssds(&stacks, stack, LIST_PUT, cache_label);
	result = result ? result : store_volume(&stacks, stack, volume_label, &written);
	stacks_free(&stacks);
	/* last, or a power cut would leave a volume that is older than its SSDs say */
	return result || !written || stack->state != STACK_READY ? result : stack_store_ssds(stack, true);
}

int stack_store(struct stack *stack)
{
	return store(stack, NULL, NULL);
}

int stack_store_note(struct stack *stack)
{
	const struct mapped *cache;
	struct stacks stacks;
	static bool said;
	bool alone, written;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	cache = running_by_uuid(&stacks.list, stack->cache, true);
	alone = stack->state == STACK_READY && cache && !status_is(cache->status, "state", "running");
	if (alone) {
		stack->generation = stack_raise(stack->generation, 1);
		result = store_volume(&stacks, stack, NULL, &written);
		if (!result && !said)
			remark("%s: its disks alone have this: its SSDs are not told, as its cache takes no message", stack->name);
		said |= !result;
	}
	stacks_free(&stacks);
	return alone ? result : stack_store(stack);
}

int stack_store_name(struct stack *stack)
{
	return store(stack, stack->name, stack->own_cache == OWN_CACHE ? stack->name : NULL);
}

/* Only the SSDs. */
static int store_list(const struct stack *stack, enum listing how)
{
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	result = result ? result : store_ssds(&stacks, stack, how, NULL);
	stacks_free(&stacks);
	return result;
}

int stack_store_ssds(const struct stack *stack, bool seen)
{
	return store_list(stack, seen ? LIST_SEEN : LIST_PUT);
}

static int take_older(union superblock *sb, bool *write, void *data)
{
	const struct stack *stack = data;
	uint8_t part[16], cache[16];
	const char *why = stack_encode(stack, sb->volume.stack);
	int result;

	stack_part(stack, "volume", part);
	if (why || memcmp(sb->head.uuid, part, 16))
		return complain(LARDER_FAILED, "%s: %s", stack->name, why ? why : "uuid: its volume is another device now");
	*write = true;
	memcpy(cache, sb->volume.cache_uuid, 16);
	/* the half that had all that was written since may be used in the same way some day, with the same cache */
	result = superblock_leave_cache(sb);
	memcpy(sb->volume.cache_uuid, cache, 16);
	sb->volume.set_generation = 0;
	return result;
}

int stack_take_older(struct stack *stack)
{
	const struct member *volume;
	struct superblocks found;
	struct members members;
	struct device device;
	uint8_t part[16];
	uint64_t seen;
	bool ours;
	char *lags;
	int result = LARDER_DONE;

	stack_part(stack, "volume", part);
	members_scan(&members);
	volume = member_volume(&members, part);
	seen = stack_seen(&members, stack->uuid);
	lags = volume ? cache_too_old(&members, volume, stack) : NULL;
	if (!volume)
		result = complain(LARDER_NOT_FOUND, "%s: its disks are not here", stack->name);
	else if (seen > stack->generation || lags || volume_seen_later(&members, volume)) {
		stack->generation = stack_raise(seen > stack->generation ? seen : stack->generation, 1);
		result = claim_member(&device, &found, volume->path, LARDER_KIND_VOLUME, part, &ours);
		if (!result && ours) {
			superblocks_free(&found);
			result = superblock_change(&device, take_older, stack);
			device_close(&device);
		} else if (!result) {
			result = LARDER_UNSAFE;
		}
	}
	free(lags);
	members_free(&members);
	return result;
}

int stack_forget(const struct stack *stack)
{
	return store_list(stack, LIST_DROP);
}

/* ------------------------------------------------------------------ layers */

/* One line of mountinfo. */
/* A btrfs has a number of its own there, but tells its device. */
static bool mount_is_of(const struct mount *mount, dev_t number)
{
	struct stat status;

	return makedev(mount->high, mount->low) == number ||
	       (mount->source[0] == '/' && !stat(mount->source, &status) && S_ISBLK(status.st_mode) && status.st_rdev == number);
}

/* Where a device is mounted: as root, if it is, wherever else.  *covered: something else is, too, at the same place, and would be unmounted first. */
static void find_mount(dev_t number, char where[static PATH_MAX], bool *covered)
{
	FILE *file = mounts_open();
	struct mount *mounts = must_allocate(calloc(2, sizeof(*mounts))), *ours = &mounts[0], *other = &mounts[1];

	where[0] = 0;
	*covered = false;
	while (file && strcmp(where, "/") && mounts_next(file, other))
		if (mount_is_of(other, number) && (!*where || !strcmp(other->point, "/"))) {
			*ours = *other;
			strcpy(where, ours->point);
		}
	if (file)
		rewind(file);
	while (file && *where && mounts_next(file, other))
		*covered |= other->parent == ours->id && !strcmp(other->point, ours->point) && !mount_is_of(other, number);
	if (file)
		fclose(file);
	free(mounts);
}

static void find_node(const struct stack *stack, const uint8_t uuid[16], struct layers *layers)
{
	char text[UUID_TEXT], found[DM_UUID_MAX], *dm_uuid = must_print("LARDER-%s", uuid_text(uuid, text));
	const char *name = layers->volume ? layers->volume->name : stack->name;

	if (layers->volume)
		layers->node_number = layers->volume->number;
	else
		layers->linear = mapped_look(name, found, &layers->node_number) && !strcmp(found, dm_uuid) && mapped_is_without_larder(name);
	if (layers->volume || layers->linear)
		snprintf(layers->node, sizeof(layers->node), "/dev/mapper/%s", name);
	free(dm_uuid);
}

void layers_find(const struct stacks *stacks, const struct stack *stack, struct layers *layers)
{
	uint8_t part[16];

	*layers = (struct layers){ 0 };
	if (*stack->raid) {
		stack_part(stack, "md", part);
		md_find(part, &layers->array);
	}
	stack_part(stack, "volume", part);
	layers->volume = running_by_uuid(&stacks->list, part, false);
	layers->left_over = layers->volume && strstr(layers->volume->uuid, BELOW_ORIGIN);
	if (layers->left_over)
		layers->volume = NULL;
	layers->cache = running_by_uuid(&stacks->list, stack->cache, true);
	find_node(stack, part, layers);
	if (stack->encrypted) {
		char dm_uuid[DM_UUID_MAX], *name = crypt_name(stack);

		layers->open = mapped_look(name, dm_uuid, &layers->top_number) && crypt_is_ours(stack, dm_uuid);
		if (layers->open)
			snprintf(layers->top, sizeof(layers->top), "/dev/mapper/%s", name);
		free(name);
	} else {
		layers->top_number = layers->node_number;
		memcpy(layers->top, layers->node, sizeof(layers->top));
	}
	if (*layers->top)
		find_mount(layers->top_number, layers->mounted, &layers->covered);
}

void layers_free(struct layers *layers)
{
	md_free(&layers->array);
}

/* What one step works on: all stacks, and the layers of this one. */
struct sight {
	struct stacks stacks;
	struct layers layers;
};

static int look(const struct stack *stack, struct sight *sight)
{
	int result = stacks_scan(&sight->stacks);

	if (!result)
		layers_find(&sight->stacks, stack, &sight->layers);
	return result;
}

static void look_away(struct sight *sight)
{
	layers_free(&sight->layers);
	stacks_free(&sight->stacks);
}

char *stack_top_node(const struct stack *stack)
{
	char *name = stack->encrypted ? crypt_name(stack) : must_print("%s", stack->name), *node = mapper_path(name);

	free(name);
	return node;
}

/* ------------------------------------------------------------------ start */

int start_cache(const struct stack *stack, unsigned flags)
{
	char uuid[UUID_TEXT];
	char *words[] = { "start", uuid, NULL, NULL, NULL };
	int number = 2;
	struct sight sight;
	bool runs;
	int result = look(stack, &sight);

	if (result)
		return result;
	runs = sight.layers.cache;
	look_away(&sight);
	if (runs)
		return LARDER_DONE;
	uuid_text(stack->cache, uuid);
	if (flags & START_DEGRADED)
		words[number++] = "--degraded";
	if (flags & START_IMPORT)
		words[number++] = "--import";
	return cache_start(number, words);
}

bool stack_cache_here(const struct stack *stack)
{
	struct sight sight;
	bool here;

	if (look(stack, &sight))
		return false;
	here = sight.layers.cache || member_cache(&sight.stacks.members, stack->cache);
	look_away(&sight);
	return here;
}

/* Without a log of what was being written, parity that was cut off says something wrong of what is missing. */
static int check_write_hole(const struct stack *stack, const struct md_rest *rest, unsigned flags)
{
	char uuid[UUID_TEXT];

	if (!rest->write_hole)
		return LARDER_DONE;
	uuid_text(stack->uuid, uuid);
	if (!(flags & START_WRITE_HOLE))
		return complain(LARDER_UNSAFE,
				"%s: its array was written to when it was cut off, and lacks %u of its %u disks: what is computed in their place may be wrong, and nothing says where (write hole); attach them; if they are gone: larder start %s --degraded --accept-write-hole %s, and then check the filesystem",
				stack->name, rest->missing, rest->places, stack->name, uuid);
	remark("%s: its array starts WITHOUT %u of its %u disks, and with parity that may be wrong: what was written last, and what lies beside it, may read as something else, and nothing says where; check the filesystem, and compare with a backup",
	       stack->name, rest->missing, rest->places);
	return LARDER_DONE;
}

/*
 * Disks of a mirror that has just started without them, as mdadm takes no disks together that name different numbers of them.  They were told nothing of
 * the change, and of what was written since, which the bitmap has.  One that is not taken back keeps nobody from starting without it.
 */
static void take_back_torn(const struct stack *stack, const uint8_t uuid[16], const struct md_array *array, const struct md_rest *rest)
{
	struct md_array now;
	bool all;

	if (!rest->torn)
		return;
	md_find(uuid, &now);
	for (size_t i = 0; *now.node && i < array->number; i++)
		if (rest->torn >> i & 1 && !md_take_back(now.node, array->leg[i], &all))
			printf("%s: the superblock of %s names another number of disks than that of others, as a power cut leaves it while that is changed: it is taken back into its array, and %s\n",
			       stack->name, array->leg[i], all ? "all is copied to it" : "gets what it lacks");
	md_free(&now);
}

/* Of a mirror each half of which was used without the other, the one that the SSDs have not seen last: md might start that one, and it would be refused. */
static void leave_out_behind(const struct stacks *stacks, const struct stack *stack, struct md_array *array)
{
	uint64_t behind = stack_disks_behind(&stacks->members, stack, array);

	for (size_t i = 0; i < array->number; i++)
		if (behind >> i & 1)
			remark("%s: its array starts WITHOUT %s, which is older than what its SSDs have seen, and was used without the others", stack->name, array->leg[i]);
	md_leave_out(array, behind);
}

int assemble_array(const struct stacks *stacks, const struct stack *stack, struct md_array *array, unsigned flags)
{
	uint8_t part[16];
	struct md_rest rest;
	int result = md_leave_out_read_only(array, flags & START_DEGRADED);

	if (!result && !(flags & START_OLDER))
		leave_out_behind(stacks, stack, array);
	md_rest(array->super, array->number, &rest);
	result = result ? result : check_write_hole(stack, &rest, flags);
	stack_part(stack, "md", part);
	result = result ? result : md_assemble(part, array, flags & START_DEGRADED, rest.write_hole);
	if (!result)
		take_back_torn(stack, part, array, &rest);
	return result;
}

/* As udev has put it together, of a disk that is read-only as well: without that one, if it is to start degraded.  Not as somebody has made it. */
static int start_read_only(const struct stacks *stacks, const struct stack *stack, struct md_array *array, unsigned flags)
{
	char *why = md_why_read_only(array->device, array->node, stack->name);
	int result = LARDER_DONE;
	bool by_a_disk = false;

	for (size_t i = 0; i < array->number; i++)
		by_a_disk |= device_is_read_only(array->leg_number[i]);
	if (!by_a_disk || !(flags & START_DEGRADED))
		result = complain(LARDER_UNSAFE, "%s: %s: %s", stack->name, array->node, why);
	free(why);
	result = result ? result : md_stop(array->node);
	return result ? result : assemble_array(stacks, stack, array, flags);
}

int start_array(const struct stack *stack, unsigned flags)
{
	struct sight sight;
	int result = *stack->integrity ? start_legs(stack->name, stack->uuid, flags) : LARDER_DONE;
	size_t number;

	if (!result && *stack->raid)
		result = look(stack, &sight);
	if (result || !*stack->raid)
		return result;
	number = sight.layers.array.number;
	if (*sight.layers.array.node)
		result = !*sight.layers.node && device_is_read_only(sight.layers.array.device) ?
				 start_read_only(&sight.stacks, stack, &sight.layers.array, flags) :
				 LARDER_DONE;
	else if (!number)
		result = complain(LARDER_NOT_FOUND, "%s: no disk of its array is here", stack->name);
	else if (number < stack->legs && !(flags & START_DEGRADED))
		result = complain(LARDER_UNSAFE,
				  "%s: only %zu of the %u disks of its array are here; attach the others, or start with --degraded",
				  stack->name, number, stack->legs);
	else
		result = assemble_array(&sight.stacks, stack, &sight.layers.array, flags);
	look_away(&sight);
	if (*stack->integrity && result)
		release_legs(stack);
	else if (*stack->integrity)
		legs_expect_errors(stack);
	/* one that is not taken back keeps nobody from starting without it */
	if (!result)
		legs_take_back(stack, NULL);
	return result;
}

int start_volume(const struct stack *stack, unsigned flags)
{
	char uuid[UUID_TEXT], *class = must_print("class=%s", stack->class);
	char *words[] = { "start", uuid, "--name", (char *)stack->name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL };
	int number = 4;
	struct sight sight;
	uint8_t part[16];
	int result = look(stack, &sight);

	if (flags & START_IMPORT)
		words[number++] = "--import";
	if (flags & START_WITHOUT_MODULE) {
		words[number++] = "--without-module";
	} else if (*stack->class) {
		words[number++] = "--option";
		words[number++] = class;
	}
	if (flags & START_WITHOUT_CACHE)
		words[number++] = "--without-cache";
	if (flags & START_STALE && !(flags & START_WITHOUT_MODULE)) { /* it leaves its cache anyway */
		words[number++] = "--option";
		words[number++] = "stale=discard";
	}
	if (!result) {
		bool runs = *sight.layers.node;

		look_away(&sight);
		stack_part(stack, "volume", part);
		uuid_text(part, uuid);
		if (!runs)
			result = volume_start(number, words);
	}
	free(class);
	return result;
}

void crypt_mark(const struct stack *stack, bool locked)
{
	uint8_t part[16];

	stack_part(stack, "crypt", part);
	if (locked)
		stopped_set(part);
	else
		stopped_clear(part);
}

bool crypt_is_marked(const struct stack *stack)
{
	uint8_t part[16];

	stack_part(stack, "crypt", part);
	return stopped_is(part);
}

bool stack_locked(const struct stack *stack)
{
	struct sight sight;
	bool locked;

	if (!stack->encrypted || look(stack, &sight))
		return false;
	locked = !sight.layers.open;
	look_away(&sight);
	return locked;
}

/* dm-integrity alone, as a kill between the two leaves it. */
static int stop_tags(const struct stack *stack)
{
	char dm_uuid[DM_UUID_MAX], *name = crypt_tags_name(stack);
	dev_t number;
	int result = LARDER_DONE;

	if (mapped_look(name, dm_uuid, &number) && crypt_is_ours(stack, dm_uuid))
		result = mapped_remove(name);
	free(name);
	return result;
}

/* How its LUKS layer is to be opened. */
struct opening {
	const struct secret *secret; /* NULL: by its tokens */
	bool *wrong, again;
	bool agent; /* opens nothing that somebody locks meanwhile */
	enum luks_by_token outcome;
};

/* From here on it is opened to the end, or not at all: whoever locks it ends an agent's process by SIGTERM. */
static bool is_wanted(void *data)
{
	sigset_t end;

	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);
	return !crypt_is_marked(data);
}

static int open_by(const struct stack *stack, const char *node, const char *name, struct opening *how)
{
	const struct luks_by by = { .again = how->again, .wanted = how->agent ? is_wanted : NULL, .data = (void *)stack };
	sigset_t before;
	int result;

	sigprocmask(SIG_BLOCK, NULL, &before);
	if (how->secret)
		result = luks_unlock(node, name, how->secret, how->wrong);
	else
		result = luks_unlock_by_token(node, name, &by, &how->outcome);
	how->outcome = how->secret && !result ? LUKS_OPENED : how->outcome;
	if (how->outcome == LUKS_OPENED && how->agent && crypt_is_marked(stack)) {
		/* who locked it has looked before it was open, and waits no more */
		how->outcome = LUKS_TOKEN_LATER;
		result = luks_lock(name);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return result;
}

static int start_crypt_by(const struct stack *stack, struct opening *how)
{
	struct sight sight;
	char *name;
	int result = stack->encrypted ? look(stack, &sight) : LARDER_DONE;

	if (result || !stack->encrypted)
		return result;
	name = crypt_name(stack);
	if (sight.layers.open) {
		how->outcome = LUKS_OPENED;
	} else if (!*sight.layers.node) {
		result = complain(LARDER_NOT_FOUND, "%s: is not started; larder start %s", stack->name, stack->name);
	} else {
		result = *stack->aead ? stop_tags(stack) : LARDER_DONE;
		result = result ? result : open_by(stack, sight.layers.node, name, how);
		if (how->outcome == LUKS_OPENED && !how->agent)
			crypt_mark(stack, false);
	}
	free(name);
	look_away(&sight);
	return result;
}

int start_crypt(const struct stack *stack, const struct secret *secret, unsigned flags, bool *wrong)
{
	return start_crypt_by(stack, &(struct opening){ .secret = secret, .agent = flags & CRYPT_BY_AGENT, .wrong = wrong });
}

int start_crypt_by_token(const struct stack *stack, unsigned flags, enum luks_by_token *outcome)
{
	struct opening how = { .again = flags & CRYPT_AGAIN, .agent = flags & CRYPT_BY_AGENT };
	int result = start_crypt_by(stack, &how);

	*outcome = how.outcome;
	return result;
}

/*
 * A mount of our own beside systemd's would race with it, or be undone by it until it has heard of the device.  False: it has no unit for
 * it, as when somebody took the line out of fstab.
 */
static bool mount_by_systemd(const struct stack *stack, bool wait, int *code, char **said)
{
	const char *words[] = { "systemctl", "start", wait ? "--quiet" : "--no-block", "--", stack->mount, NULL };

	if (!fstab_is_systemds())
		return false;
	*code = program_run(words, said);
	if (*code != SYSTEMCTL_NO_UNIT)
		return true;
	free(*said);
	return false;
}

/* By the line in fstab, where there is one, which somebody may have given other options. */
static int mount_by_program(const struct stack *stack, const char *node, char **said)
{
	const char *by_fstab[] = { "mount", stack->mount, NULL }, *plain[] = { "mount", "-t", stack->fs, node, stack->mount, NULL };

	return program_run(fstab_mounts(stack->uuid, stack->mount) ? by_fstab : plain, said);
}

/* Who mounts by fstab, or by a unit that is active, may have found something else there, and be content with it. */
static int check_mounted(const struct stack *stack, const char *node)
{
	struct sight sight;
	int result = look(stack, &sight);

	if (result)
		return result;
	if (!*sight.layers.mounted)
		result = complain(LARDER_FAILED,
				  "%s: is not mounted on %s: something else is, or fstab has another line for it; see findmnt %s; unmount that, or take its line out, then larder start %s",
				  node, stack->mount, stack->mount, stack->name);
	look_away(&sight);
	return result;
}

int start_mount(const struct stack *stack, bool wait)
{
	struct sight sight;
	int result = *stack->mount ? look(stack, &sight) : LARDER_DONE, code;
	bool later = false;
	char *said;

	if (result || !*stack->mount)
		return result;
	if (!*sight.layers.mounted) {
		if (mount_by_systemd(stack, wait, &code, &said))
			later = !wait;
		else
			code = mount_by_program(stack, sight.layers.top, &said);
		if (code)
			result = complain(LARDER_FAILED, "%s: cannot mount it on %s: %s", sight.layers.top, stack->mount, said);
		else if (!later)
			result = check_mounted(stack, sight.layers.top);
		free(said);
	}
	look_away(&sight);
	/* what was cut off behind the last step of a create has it held still */
	if (!result && stack->state == STACK_READY)
		fstab_release(stack->uuid);
	return result;
}

/* ------------------------------------------------------------------ stop */

int stop_mount(const struct stack *stack)
{
	struct sight sight;
	char *said;
	int result, code;

	for (;;) {
		bool mounted;

		result = look(stack, &sight);
		if (result)
			return result;
		mounted = *sight.layers.mounted;
		if (!strcmp(sight.layers.mounted, "/")) {
			/* the kernel's umount(2) of it would succeed, at times, and make it read-only */
			result = complain(LARDER_BUSY, "%s: is the root filesystem, which is not unmounted while the system runs", stack->name);
		} else if (sight.layers.covered) {
			result = complain(LARDER_BUSY, "%s: something else is mounted over %s; unmount that first", stack->name, sight.layers.mounted);
		} else if (mounted) {
			const char *words[] = { "umount", sight.layers.mounted, NULL };

			code = program_run(words, &said);
			if (code)
				result = complain(LARDER_BUSY, "%s: cannot unmount %s: %s", stack->name, sight.layers.mounted, said);
			free(said);
		}
		look_away(&sight);
		if (result || !mounted)
			return result;
	}
}

int stop_crypt(const struct stack *stack)
{
	struct sight sight;
	int result = stack->encrypted ? look(stack, &sight) : LARDER_DONE;
	char *name;

	if (result || !stack->encrypted)
		return result;
	name = crypt_name(stack);
	if (sight.layers.open)
		result = luks_lock(name);
	free(name);
	look_away(&sight);
	return result || !*stack->aead ? result : stop_tags(stack);
}

static int stop_without_larder(const struct stack *stack)
{
	uint8_t part[16];
	int result;

	stack_part(stack, "volume", part);
	result = cow_check_unused(part);
	result = result ? result : mapped_remove(stack->name);
	return result ? result : cow_clear(part);
}

int stop_volume(const struct stack *stack)
{
	struct sight sight;
	uint8_t part[16];
	char usage[PATH_MAX];
	int result = look(stack, &sight);

	if (result)
		return result;
	stack_part(stack, "volume", part);
	if (sight.layers.left_over)
		result = cow_clear(part);
	else if (*sight.layers.node && (sight.layers.linear || sight.layers.volume->open_count) &&
	    device_usage(sight.layers.node_number, usage, sizeof(usage)))
		result = complain(LARDER_BUSY, "%s: in use: %s; release it first", sight.layers.node, usage);
	else if (sight.layers.linear)
		result = stop_without_larder(stack);
	else if (sight.layers.volume)
		result = stop_running(sight.layers.volume, false);
	else if (running_left_over(part)) /* also without a volume: stores, say */
		result = cow_clear(part);
	look_away(&sight);
	return result;
}

int stop_cache(const struct stack *stack)
{
	struct sight sight;
	int result = look(stack, &sight);

	if (result)
		return result;
	result = running_clear_cache(stack->cache);
	if (!result && sight.layers.cache && !sight.layers.cache->open_count)
		result = stop_running(sight.layers.cache, false);
	look_away(&sight);
	return result;
}

int stop_array(const struct stack *stack)
{
	struct sight sight;
	int result = *stack->raid ? look(stack, &sight) : LARDER_DONE;

	if (result || !*stack->raid)
		return result;
	if (*sight.layers.array.node || *sight.layers.array.inactive)
		result = md_stop(*sight.layers.array.node ? sight.layers.array.node : sight.layers.array.inactive);
	look_away(&sight);
	return result || !*stack->integrity ? result : legs_stop(stack->uuid);
}
