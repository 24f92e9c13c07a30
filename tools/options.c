// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache|volume get, larder cache|volume set: options of a running target; and, with --persist, the mode in a volume's
 * superblock.
 *
 * While a volume runs, its superblock is the kernel's, which keeps it in memory and writes it as a whole: what another wrote
 * meanwhile would be lost, or would undo a flag that the kernel has just set.  So --persist is for a stopped volume, and an
 * exclusive open makes sure of that.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "claim.h"
#include "running.h"
#include "stack.h"
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

static int get(bool cache, int argc, char **argv, const char *usage)
{
	const struct argument arguments[] = { ARGUMENTS_END };
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
	result = mapped_scan(&list);
	result = result ? result : running_find(&list, argv[first], cache, &mapped);
	if (!result)
		print_options(mapped, &wanted);
	mapped_list_free(&list);
	return result;
}

/* ------------------------------------------------------------------ set */

/* "key=value" words, or the one pair "key value". */
static int parse_pairs(bool cache, int number, char **words, struct pair *pairs, int *count)
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
		if (!result && (!*pairs[i].value || strpbrk(pairs[i].value, " \t\n\\\"'")))
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
		char *message = must_print("set %s %s", pairs[i].key, pairs[i].value);

		result = mapped_message(mapped->target, message);
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
	if (there && stack_is_foreign(&stack))
		return complain(LARDER_UNSAFE, "%s: stack: is another machine's; if that does not use it any more: larder start --import %s takes it over",
				m->path, stack.name);
	return LARDER_DONE;
}

static int persist(const char *name, const struct pair *pairs, int count, bool dry_run)
{
	const struct member *member;
	struct mapped_list list;
	struct members members;
	uint32_t mode;
	int result;

	if (count != 1 || strcmp(pairs[0].key, "mode"))
		return complain(LARDER_USAGE,
				"--persist: only mode has a place in the superblock; give the others to volume start by --option");
	if (!mode_parse(pairs[0].value, &mode))
		return complain(LARDER_USAGE, "mode: '%s' is not one of writeback, writethrough, writearound", pairs[0].value);
	members_scan(&members);
	result = mapped_scan(&list);
	result = result ? result : member_find(&members, name, LARDER_KIND_VOLUME, &member);
	if (!result && running_by_uuid(&list, member->sb.head.uuid, false))
		result = complain(
			LARDER_BUSY,
			"%s: --persist: the volume runs, its superblock is the kernel's; stop it first, or set without --persist",
			name);
	result = result ? result : check_owner(member);
	result = result ? result : write_mode(member, mode, dry_run);
	mapped_list_free(&list);
	members_free(&members);
	return result;
}

static int set(bool cache, int argc, char **argv, const char *usage)
{
	bool dry_run = false, keep = false;
	const struct argument arguments[] = { { "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only print the dmsetup commands" },
					      { "persist", 0, ARGUMENT_FLAG, &keep, NULL,
						"store the mode of a stopped volume in its superblock" },
					      ARGUMENTS_END };
	struct pair *pairs;
	int first, count, result;

	if (!arguments_words(argc, argv, usage, arguments, 2, -1, &first, &result))
		return result;
	if (keep && cache)
		return complain(LARDER_USAGE, "--persist: is for volumes; give options of a cache to cache start by --option");
	mapped_init(dry_run);
	pairs = must_allocate(calloc((size_t)argc, sizeof(*pairs)));
	result = parse_pairs(cache, argc - first - 1, argv + first + 1, pairs, &count);
	if (!result && keep)
		result = persist(argv[first], pairs, count, dry_run);
	else if (!result)
		result = send_pairs(cache, argv[first], pairs, count);
	free(pairs);
	return result;
}

int cache_get(int argc, char **argv)
{
	return get(true, argc, argv, "larder cache get NAME|UUID|DEVICE [KEY...]");
}

int volume_get(int argc, char **argv)
{
	return get(false, argc, argv, "larder volume get NAME|UUID|DEVICE [KEY...]");
}

int cache_set(int argc, char **argv)
{
	return set(true, argc, argv, "larder cache set NAME|UUID|DEVICE KEY=VALUE... [--dry-run]");
}

int volume_set(int argc, char **argv)
{
	return set(false, argc, argv, "larder volume set NAME|UUID|DEVICE KEY=VALUE... [--persist] [--dry-run]");
}
