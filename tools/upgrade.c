// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder upgrade: sets the features that this larder has and the superblocks of a stack, cache or volume do not; by command alone, and only on what is
 * stopped, as the superblock of what runs is the kernel's.
 *
 * Each superblock is written as by any change of it (superblock_change()): the copy, flushed, then the main one, with a higher generation.  What a power
 * cut leaves has the features of before or all of them, each member for itself, or all of them in its copy alone; the same command, once more, does the
 * rest.  So a feature may be made use
 * of when all members have it: whatever sets it first looks at all of them.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "claim.h"
#include "format_features.h"
#include "set.h"
#include "stack_store.h"
#include "stacks.h"
#include "turn.h"
#include "verbs.h"

struct upgrading {
	struct stacks stacks;
	const char *word; /* as it was given */
	bool dry_run;
	const struct stack *stack; /* NULL: it is a cache, or a volume, that was named */
	const struct member **member; /* SSDs first */
	size_t number;
};

/* ------------------------------------------------------------------ which members */

static void take(struct upgrading *u, const struct member *m)
{
	u->member = must_allocate(realloc(u->member, (u->number + 1) * sizeof(*u->member)));
	u->member[u->number++] = m;
}

/* The SSDs of a cache, and its spares. */
static void take_cache(struct upgrading *u, const uint8_t cache[16])
{
	for (size_t i = 0; i < u->stacks.members.number; i++) {
		const struct member *m = u->stacks.members.member[i];
		uint32_t kind = le32toh(m->sb.head.kind);

		if ((kind == LARDER_KIND_CACHE || kind == LARDER_KIND_SPARE) && !memcmp(m->sb.cache.cache_uuid, cache, 16))
			take(u, m);
	}
}

static bool is_stack(const struct upgrading *u)
{
	char uuid[UUID_TEXT];

	for (size_t i = 0; i < u->stacks.number; i++)
		if (!strcmp(u->stacks.found[i].stack.name, u->word) || !strcmp(uuid_text(u->stacks.found[i].stack.uuid, uuid), u->word))
			return true;
	return false;
}

static int take_stack(struct upgrading *u)
{
	const struct found *found;
	int result = stack_find(&u->stacks, u->word, &found);

	if (result)
		return result;
	if (found->stack.state != STACK_READY)
		return complain(LARDER_UNSAFE, "%s: is half made, or being removed; see larder show %s", u->word, u->word);
	if (!found->volume)
		return complain(LARDER_NOT_FOUND, "%s: its volume is not here; attach its disks, and where it lies on an array: mdadm --assemble --scan", u->word);
	u->stack = &found->stack;
	take_cache(u, found->stack.cache);
	take(u, found->volume);
	return LARDER_DONE;
}

/* By a word for a stack; else for a cache; else for a volume. */
static int take_all(struct upgrading *u)
{
	const struct members *members = &u->stacks.members;
	const struct member *m;
	bool cache = false;
	int result;

	if (is_stack(u))
		return take_stack(u);
	for (size_t i = 0; i < members->number; i++)
		cache |= member_is(members->member[i], u->word, LARDER_KIND_CACHE);
	result = member_find(&u->stacks.members, u->word, cache ? LARDER_KIND_CACHE : LARDER_KIND_VOLUME, &m);
	if (!result && cache)
		take_cache(u, m->sb.cache.cache_uuid);
	else if (!result)
		take(u, m);
	return result;
}

/* ------------------------------------------------------------------ what can be refused */

/* What was cut off has left the features in one of the two superblocks alone. */
static bool is_half(const struct member *m)
{
	const struct larder_sb_head *a, *b;
	struct superblocks found;
	struct device device;
	bool half = false;

	if (device_try(&device, m->path))
		return false;
	superblocks_read(&device, &found, false);
	if (found.main.magic && found.copy.offset && found.copy.magic && !found.main.problems.number && !found.copy.problems.number) {
		a = &found.main.sb->head;
		b = &found.copy.sb->head;
		half = !memcmp(a->uuid, b->uuid, 16) && (a->compat != b->compat || a->ro_compat != b->ro_compat || a->incompat != b->incompat);
	}
	superblocks_free(&found);
	device_close(&device);
	return half;
}

static bool is_wanted(const struct member *m)
{
	return feature_missing(&m->sb.head, NULL) || is_half(m);
}

/* Is it another machine's? */
static int check_host(const struct member *m)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	struct stack stack = { 0 };
	const char *why = NULL;
	bool there, foreign = false;
	int result = LARDER_DONE;

	if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE) {
		why = stack_list_decode(m->sb.cache.stack, list, &there);
		foreign = !why && list->number && stack_host_is_foreign(list->host);
	} else if (le32toh(m->sb.head.kind) == LARDER_KIND_VOLUME) {
		why = stack_decode(m->sb.volume.stack, &stack, &there);
		foreign = !why && stack_is_foreign(&stack);
	}
	if (why)
		result = complain(LARDER_UNSAFE, "%s: %s; nothing was written", m->path, why);
	else if (foreign)
		result = complain(LARDER_UNSAFE, "%s: stack: is another machine's; if that does not use it any more: larder start --import takes it over", m->path);
	free(list);
	return result;
}

static int check_stopped(const struct upgrading *u, const struct member *m)
{
	bool cache = le32toh(m->sb.head.kind) == LARDER_KIND_CACHE;
	const struct mapped *running = NULL;

	if (cache || le32toh(m->sb.head.kind) == LARDER_KIND_VOLUME)
		running = running_by_uuid(&u->stacks.list, cache ? m->sb.cache.cache_uuid : m->sb.head.uuid, cache);
	if (!running)
		return LARDER_DONE;
	return complain(LARDER_BUSY, "%s: runs, as %s: superblocks are written while it is stopped; larder stop, then larder upgrade %s", m->path, running->name,
			u->word);
}

/* All of a set, or a feature would be in use that one of them does not tell of. */
static int check_complete(const struct upgrading *u, const struct member *m)
{
	struct larder_table *table;
	int result = LARDER_DONE;
	char uuid[UUID_TEXT], *why;

	if (le32toh(m->sb.head.kind) != LARDER_KIND_CACHE)
		return LARDER_DONE;
	table = must_allocate(malloc(sizeof(*table)));
	if (!set_newest_table(&u->stacks.members, m->sb.cache.cache_uuid, table))
		result = complain(LARDER_FAILED, "%s: table: is not to be read; larder super check %s", m->path, m->path);
	why = result ? NULL : set_why_older(&u->stacks.members, table, m);
	if (why)
		result = complain(LARDER_UNSAFE, "%s; attach the one that it had, or start the cache without it", why);
	free(why);
	for (uint32_t i = 0; !result && i < LARDER_MAX_DEVICES; i++)
		if (le32toh(table->devices[i].state) == LARDER_DEVICE_ACTIVE && !member_of_set(&u->stacks.members, m->sb.cache.cache_uuid, i))
			result = complain(LARDER_NOT_FOUND, "%s: SSD %u of its cache, UUID %s, is not here; all are upgraded together: attach it", m->path, i,
					  uuid_text(table->devices[i].uuid, uuid));
	free(table);
	return result;
}

/* Who is to run it must know what is set: also the module that is loaded now, which may be older than this command. */
static int check_module(const struct member *m)
{
	const char *target = le32toh(m->sb.head.kind) == LARDER_KIND_VOLUME ? TARGET_VOLUME : TARGET_CACHE;
	uint32_t version[3];

	for (const struct feature *f = NULL; (f = feature_missing(&m->sb.head, f));) {
		if (!f->target[0] && !f->target[1])
			continue;
		if (!target_version(target, version))
			return complain(LARDER_NOT_FOUND, "%s: feature %s: the module is not loaded, so it is not known whether it knows that; modprobe larder, then again",
					m->path, f->name);
		if (version[0] != f->target[0] || version[1] < f->target[1])
			return complain(LARDER_UNSAFE,
					"%s: feature %s: needs version %u.%u of the target %s, and the module that is loaded has %u.%u.%u: it would refuse the device; "
					"load the new one (a reboot does) first",
					m->path, f->name, f->target[0], f->target[1], target, version[0], version[1], version[2]);
	}
	return LARDER_DONE;
}

static int check(const struct upgrading *u)
{
	int result = u->stack ? stack_check_machine(u->stack) : LARDER_DONE;

	for (size_t i = 0; !result && i < u->number; i++) {
		const struct member *m = u->member[i];
		uint32_t kind = le32toh(m->sb.head.kind);

		result = check_stopped(u, m);
		result = result ? result : check_host(m);
		result = result ? result : claim_check(m->path, kind, m->sb.head.uuid);
		result = result ? result : check_complete(u, m);
		result = result ? result : check_module(m);
	}
	return result;
}

/* ------------------------------------------------------------------ the steps */

static void show(const struct member *m)
{
	char *text = features_text(&m->sb.head), label[LARDER_LABEL_SIZE + 1];
	uint32_t kind = le32toh(m->sb.head.kind);

	printf("%s: ", m->path);
	if (kind == LARDER_KIND_CACHE)
		printf("SSD %u", le32toh(m->sb.cache.device_number));
	else
		printf("%s", kind_text(kind));
	printf(" of %s, format version %u, features %s", label_text(m->sb.cache.label, label), le32toh(m->sb.head.version), text);
	free(text);
	if (!feature_missing(&m->sb.head, NULL))
		printf(is_half(m) ? ": in one of its superblocks alone" : ": nothing to upgrade");
	for (const struct feature *f = NULL; (f = feature_missing(&m->sb.head, f));)
		printf("%s %s (%s)", f == feature_missing(&m->sb.head, NULL) ? "; to be set:" : ",", f->name, f->text);
	putchar('\n');
}

static int set_missing(union superblock *sb, bool *write, void *data)
{
	const struct member *m = data;

	(void)write;
	if (memcmp(sb->head.uuid, m->sb.head.uuid, 16))
		return complain(LARDER_UNSAFE, "%s: uuid: is another device than a moment ago; nothing was written to it", m->path);
	for (const struct feature *f; (f = feature_missing(&sb->head, NULL));)
		feature_set(&sb->head, f);
	return LARDER_DONE;
}

static int upgrade_member(const struct member *m, bool dry_run)
{
	bool ours;
	int result;

	if (!is_wanted(m))
		return LARDER_DONE;
	if (dry_run) {
		printf("write superblock to %s\n", m->path);
		return LARDER_DONE;
	}
	result = claim_change(m->path, le32toh(m->sb.head.kind), m->sb.head.uuid, set_missing, (void *)m, &ours);
	return result || ours ? result : LARDER_UNSAFE;
}

static int run(struct upgrading *u)
{
	bool wanted = false;
	int result = take_all(u);

	for (size_t i = 0; !result && i < u->number; i++) {
		show(u->member[i]);
		wanted |= is_wanted(u->member[i]);
	}
	if (wanted)
		result = check(u);
	for (size_t i = 0; wanted && !result && i < u->number; i++)
		result = upgrade_member(u->member[i], u->dry_run);
	if (!result)
		printf("%s: %s\n", u->word,
		       !wanted	  ? "nothing to upgrade: this larder writes format version 1, and a feature is set when it is first used" :
		       u->dry_run ? "dry run: nothing was written" :
				    "upgraded; larders before this one may refuse it");
	return result;
}

int upgrade(int argc, char **argv)
{
	static const char usage[] = "larder upgrade NAME [--dry-run]";
	struct upgrading u = { 0 };
	const struct argument arguments[] = { { "dry-run", 'n', ARGUMENT_FLAG, &u.dry_run, NULL, "only say what would be done" }, ARGUMENTS_END };
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	u.word = argv[first];
	mapped_init(false);
	if (!u.dry_run)
		turn_take();
	result = stacks_scan(&u.stacks);
	if (result)
		return result;
	result = run(&u);
	free(u.member);
	stacks_free(&u.stacks);
	return result;
}
