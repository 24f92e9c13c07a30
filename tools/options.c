// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache|volume get, larder cache|volume set: options of a running target; and, with --persist, those of each later start.
 *
 * The mode is in the volume's superblock.  While a volume runs, that is the kernel's, which keeps it in memory and writes it as a whole: what
 * another wrote meanwhile would be lost, or would undo a flag that the kernel has just set.  So it is set of a stopped volume, and an exclusive
 * open makes sure of that.
 *
 * All others are in the list on the SSDs of a cache, and in the description of a volume's stack.  What runs gets them first, since its kernel
 * alone knows which values there are: what is stored has been taken once.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "claim.h"
#include "running.h"
#include "stack_age.h"
#include "stack_room.h"
#include "stack_store.h"
#include "stacks.h"
#include "status.h"
#include "turn.h"
#include "verbs.h"

static bool is_option(bool cache, const char *key)
{
	const struct field *fields = cache ? cache_status_fields : volume_status_fields;
	size_t count = cache ? cache_status_count : volume_status_count;

	if (!cache && !strcmp(key, "mode"))
		return true;
	for (size_t i = 0; i < count; i++)
		if (fields[i].kind == VALUE_OPTION && !strcmp(fields[i].name, key))
			return true;
	return false;
}

static int check_option(bool cache, const char *key)
{
	const struct field *fields = cache ? cache_status_fields : volume_status_fields;
	size_t count = cache ? cache_status_count : volume_status_count;
	char *known, *longer;

	if (is_option(cache, key))
		return LARDER_DONE;
	known = must_print("%s", cache ? "" : "mode");
	for (size_t i = 0; i < count; i++) {
		if (fields[i].kind != VALUE_OPTION)
			continue;
		longer = must_print("%s%s%s", known, *known ? ", " : "", fields[i].name);
		free(known);
		known = longer;
	}
	complain(LARDER_USAGE, "%s: no option of a %s; there are %s", key, cache ? "cache" : "volume", known);
	free(known);
	return LARDER_USAGE;
}

/* ------------------------------------------------------------------ get */

struct wanted {
	bool cache;
	char **keys;
	int number;
};

/* Options stand last in a status: where a key (mode) is there twice, the later one is the option. */
struct pair {
	const char *key;
	char *value;
};

static void keep_last(const char *key, const char *value, void *data)
{
	struct pair *pair = data;

	if (strcmp(key, pair->key))
		return;
	free(pair->value);
	pair->value = must_allocate(strdup(value));
}

static void print_option(const char *status, const char *key)
{
	struct pair pair = { .key = key };

	status_each(status, keep_last, &pair);
	if (pair.value)
		printf("%s=%s\n", key, pair.value);
	free(pair.value);
}

static void print_options(const struct mapped *mapped, const struct wanted *wanted)
{
	const struct field *fields = wanted->cache ? cache_status_fields : volume_status_fields;
	size_t count = wanted->cache ? cache_status_count : volume_status_count;

	for (int i = 0; i < wanted->number; i++)
		print_option(mapped->status, wanted->keys[i]);
	if (wanted->number)
		return;
	if (!wanted->cache)
		print_option(mapped->status, "mode");
	for (size_t i = 0; i < count; i++)
		if (fields[i].kind == VALUE_OPTION)
			print_option(mapped->status, fields[i].name);
}

/* ------------------------------------------------------------------ set */

/* "key=value" words, or the one pair "key value".  keep: "key=", too. */
static int parse_pairs(bool cache, int number, char **words, bool keep, struct pair *pairs, int *count)
{
	int result = LARDER_DONE;

	*count = 0;
	if (number == 2 && !strchr(words[0], '=') && !strchr(words[1], '=')) {
		pairs[(*count)++] = (struct pair){ words[0], words[1] };
	} else {
		for (int i = 0; i < number; i++) {
			char *value = strchr(words[i], '=');

			if (!value)
				return complain(LARDER_USAGE, "%s: is not KEY=VALUE", words[i]);
			*value++ = 0;
			pairs[(*count)++] = (struct pair){ words[i], value };
		}
	}
	for (int i = 0; !result && i < *count; i++) {
		result = check_option(cache, pairs[i].key);
		if (!result && ((!*pairs[i].value && !keep) || strpbrk(pairs[i].value, " \t\n\\\"'")))
			result = complain(LARDER_USAGE, "%s: '%s' is not a value", pairs[i].key, pairs[i].value);
	}
	return result;
}

static int send_pairs(bool cache, const char *name, const struct pair *pairs, int count)
{
	struct mapped *mapped;
	struct mapped_list list;
	int result = mapped_scan(&list);

	result = result ? result : running_find(&list, name, cache, &mapped);
	for (int i = 0; !result && i < count; i++) {
		char *message = *pairs[i].value ? must_print("set %s %s", pairs[i].key, pairs[i].value) : NULL;

		result = message ? mapped_message(mapped->target, message) : LARDER_DONE;
		free(message);
	}
	mapped_list_free(&list);
	return result;
}

struct mode_change {
	const char *path;
	uint32_t mode;
	bool dry_run;
};

/* Of a stack's volume the description has it, too. */
static const char *describe_mode(struct larder_volume_sb *sb, uint32_t mode)
{
	struct stack stack;
	bool there;
	const char *why = stack_decode(sb->stack, &stack, &there);

	if (why || !there)
		return why;
	snprintf(stack.mode, sizeof(stack.mode), "%s", mode_text(mode));
	stack.generation = stack_raise(stack.generation, 1);
	return stack_encode(&stack, sb->stack);
}

static int change_mode(union superblock *sb, bool *write, void *data)
{
	const struct mode_change *change = data;
	const char *why;

	if (le32toh(sb->head.kind) != LARDER_KIND_VOLUME)
		return complain(LARDER_NOT_FOUND, "%s: kind: is a %s, not a volume", change->path, kind_text(le32toh(sb->head.kind)));
	if (change->dry_run)
		printf("write superblock to %s: mode %s\n", change->path, mode_text(change->mode));
	*write = !change->dry_run;
	sb->volume.mode = htole32(change->mode);
	why = describe_mode(&sb->volume, change->mode);
	return why ? complain(LARDER_FAILED, "%s: %s; nothing was written", change->path, why) : LARDER_DONE;
}

static int write_mode(const struct member *m, uint32_t mode, bool dry_run)
{
	struct claim_request request = { .path = m->path, .dry_run = dry_run };
	struct mode_change change = { m->path, mode, dry_run };
	struct device device;
	int result = claim_check(m->path, LARDER_KIND_VOLUME, m->sb.head.uuid);

	result = result ? result : claim_open(&device, &request);

	if (result)
		return result;
	result = superblock_change(&device, change_mode, &change);
	device_close(&device);
	return result;
}

/* Not what another machine may be using, nor of whose owner nothing is known. */
static int check_owner(const struct member *m)
{
	struct stack stack;
	bool there;
	const char *why = stack_decode(m->sb.volume.stack, &stack, &there);

	if (why)
		return complain(LARDER_UNSAFE, "%s: %s; nothing was written", m->path, why);
	return there ? stack_check_machine(&stack) : LARDER_DONE;
}

static int persist_mode(const char *name, const struct pair *pair, bool dry_run)
{
	const struct member *member;
	struct mapped_list list;
	struct members members;
	uint32_t mode;
	int result;

	if (!mode_parse(pair->value, &mode))
		return complain(LARDER_USAGE, "mode: '%s' is not one of writeback, writethrough, writearound", pair->value);
	members_scan(&members);
	result = mapped_scan(&list);
	result = result ? result : member_find(&members, name, LARDER_KIND_VOLUME, &member);
	if (!result && running_by_uuid(&list, member->sb.head.uuid, false))
		result = complain(
			LARDER_BUSY,
			"%s: --persist: the volume runs, its superblock is the kernel's; stop it first, or set without --persist",
			name);
	result = result ? result : check_owner(member);
	/* or it would be as new as its SSDs say by that */
	result = result ? result : volume_check_age(&members, member);
	result = result ? result : write_mode(member, mode, dry_run);
	mapped_list_free(&list);
	members_free(&members);
	return result;
}

/* ------------------------------------------------------------------ stored */

/* What is stored of a cache, or of the volume of a stack. */
struct store {
	bool cache;
	uint8_t uuid[16]; /* of the cache */
	struct stack stack; /* of the volume */
	char options[STORED_OPTIONS_MAX];
};

static int find_cache(const struct stacks *stacks, const char *name, struct store *store)
{
	const struct mapped *mapped = running_named(&stacks->list, name, true);
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	const struct member *member;
	char text[UUID_TEXT];
	int result;

	if (mapped && running_uuid(mapped, store->uuid))
		name = uuid_text(store->uuid, text);
	result = stack_named_cache(stacks, name, &member);
	result = result ? result : stack_list_read(member->sb.cache.cache_uuid, list);
	if (!result) {
		memcpy(store->uuid, member->sb.cache.cache_uuid, 16);
		strcpy(store->options, list->options);
	}
	free(list);
	return result;
}

/* The stack of a volume that runs, or else of that name. */
static int find_volume(const struct stacks *stacks, const char *name, struct store *store)
{
	const struct mapped *mapped = running_named(&stacks->list, name, false);
	const struct found *found = NULL;
	uint8_t uuid[16], part[16];
	int result = mapped ? LARDER_DONE : stack_find(stacks, name, &found);

	for (size_t i = 0; mapped && running_uuid(mapped, uuid) && i < stacks->number && !found; i++) {
		stack_part(&stacks->found[i].stack, "volume", part);
		found = memcmp(part, uuid, 16) ? NULL : &stacks->found[i];
	}
	if (!result && !found)
		result = complain(LARDER_NOT_FOUND,
				  "%s: is of no stack, in whose description options are stored; give them to larder volume start by --option", name);
	if (!result && (!found->whole || found->stack.state != STACK_READY))
		result = complain(LARDER_UNSAFE, "%s: the description of its stack is not here, or it is half made or removed; larder list shows it", name);
	if (result)
		return result;
	store->stack = found->stack;
	strcpy(store->options, found->stack.options);
	return LARDER_DONE;
}

static int find_store(const char *name, struct store *store)
{
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	result = store->cache ? find_cache(&stacks, name, store) : find_volume(&stacks, name, store);
	stacks_free(&stacks);
	return result;
}

static bool is_wanted(const struct wanted *wanted, const struct stored_option *option)
{
	for (int i = 0; i < wanted->number; i++)
		if (stored_option_is(option, wanted->keys[i]))
			return true;
	return !wanted->number;
}

static int print_stored(bool cache, const char *name, const struct wanted *wanted)
{
	struct store store = { .cache = cache };
	const char *at = store.options;
	struct stored_option option;
	int result = find_store(name, &store);

	while (!result && stored_options_next(&at, &option))
		if (is_wanted(wanted, &option))
			printf("%.*s=%.*s\n", option.key_length, option.key, option.value_length, option.value);
	return result;
}

/* roles are in the tables of the SSDs. */
static int put_pairs(const char *name, const struct pair *pairs, int count, struct store *store)
{
	for (int i = 0; i < count; i++)
		if (strcmp(pairs[i].key, "roles") && !stored_options_put(store->options, pairs[i].key, pairs[i].value))
			return complain(LARDER_FAILED, "%s: %s: there is no room for more than %d characters of stored options; KEY= takes one away", name,
					pairs[i].key, STORED_OPTIONS_MAX - 1);
	return LARDER_DONE;
}

static int store_volume(const char *name, struct store *store, bool dry_run)
{
	struct stack was = store->stack;
	const char *why;
	int result = stack_check_machine(&store->stack);

	if (result)
		return result;
	strcpy(store->stack.options, store->options);
	why = stack_lacks_room(&store->stack, &was);
	if (why)
		return complain(LARDER_FAILED, "%s: options: %s; fewer options, or a shorter class", name, why);
	return dry_run ? LARDER_DONE : stack_store(&store->stack);
}

/* ------------------------------------------------------------------ set, and get */

static int persist(bool cache, const char *name, const struct pair *pairs, int count, bool dry_run)
{
	struct store store = { .cache = cache };
	bool any = false;
	int result;

	for (int i = 0; i < count; i++) {
		if (!cache && !strcmp(pairs[i].key, "mode") && count == 1)
			return persist_mode(name, &pairs[i], dry_run);
		if (!cache && !strcmp(pairs[i].key, "mode"))
			return complain(LARDER_USAGE, "mode: --persist: is in the superblock, and set of a volume that is stopped; in a command of its own");
		if (!cache && !strcmp(pairs[i].key, "class"))
			return complain(LARDER_USAGE, "class: --persist: larder set %s --class %s stores it", name, pairs[i].value);
		any |= *pairs[i].value;
	}
	if (!dry_run)
		turn_take();
	/* before anything is set of what has no place for it */
	result = find_store(name, &store);
	result = result ? result : put_pairs(name, pairs, count, &store);
	if (!result && any)
		result = send_pairs(cache, name, pairs, count);
	if (!result)
		result = cache ? stack_list_store_options(store.uuid, store.options, dry_run) : store_volume(name, &store, dry_run);
	return result;
}

static int get(bool cache, int argc, char **argv, const char *usage)
{
	bool stored = false;
	const struct argument arguments[] = { { "stored", 0, ARGUMENT_FLAG, &stored, NULL, "those that each start gives it, of one that is stopped, too" },
					      ARGUMENTS_END };
	struct mapped *mapped;
	struct mapped_list list;
	struct wanted wanted;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, -1, &first, &result))
		return result;
	wanted = (struct wanted){ cache, argv + first + 1, argc - first - 1 };
	for (int i = 0; !result && i < wanted.number; i++)
		result = check_option(cache, wanted.keys[i]);
	if (result)
		return result;
	mapped_init(false);
	if (stored)
		return print_stored(cache, argv[first], &wanted);
	result = mapped_scan(&list);
	result = result ? result : running_find(&list, argv[first], cache, &mapped);
	if (!result)
		print_options(mapped, &wanted);
	mapped_list_free(&list);
	return result;
}

static int set(bool cache, int argc, char **argv, const char *usage)
{
	bool dry_run = false, keep = false;
	const struct argument arguments[] = { { "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only print the dmsetup commands" },
					      { "persist", 0, ARGUMENT_FLAG, &keep, NULL,
						"for each later start, too; KEY= takes one away from there" },
					      ARGUMENTS_END };
	struct pair *pairs;
	int first, count, result;

	if (!arguments_words(argc, argv, usage, arguments, 2, -1, &first, &result))
		return result;
	mapped_init(dry_run);
	pairs = must_allocate(calloc((size_t)argc, sizeof(*pairs)));
	result = parse_pairs(cache, argc - first - 1, argv + first + 1, keep, pairs, &count);
	if (!result && keep)
		result = persist(cache, argv[first], pairs, count, dry_run);
	else if (!result)
		result = send_pairs(cache, argv[first], pairs, count);
	free(pairs);
	return result;
}

int cache_get(int argc, char **argv)
{
	return get(true, argc, argv, "larder cache get NAME|UUID|DEVICE [KEY...] [--stored]");
}

int volume_get(int argc, char **argv)
{
	return get(false, argc, argv, "larder volume get NAME|UUID|DEVICE [KEY...] [--stored]");
}

int cache_set(int argc, char **argv)
{
	return set(true, argc, argv, "larder cache set NAME|UUID|DEVICE KEY=VALUE... [--persist] [--dry-run]");
}

int volume_set(int argc, char **argv)
{
	return set(false, argc, argv, "larder volume set NAME|UUID|DEVICE KEY=VALUE... [--persist] [--dry-run]");
}
