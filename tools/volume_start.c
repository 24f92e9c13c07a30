// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder volume start, larder volume stop.
 *
 * A volume is started with the cache that its superblock names, or not at all: without it only if the superblock says that no
 * cache holds anything newer, and only if asked to.
 *
 * --without-module: the kernel has no larder (an upgrade whose module did not build, a rescue system).  What the disk holds behind the
 * superblock is the volume, if nothing is dirty: a linear target shows it, by the same name.  Nobody notices then what is written, so the
 * volume is taken off its cache first, durably.
 */
#include <endian.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "claim.h"
#include "cow.h"
#include "running.h"
#include "stack_age.h"
#include "stack_snapshot.h"
#include "stack_store.h"
#include "turn.h"
#include "verbs.h"

struct start_request {
	const char *name, *cache;
	struct argument_list options, drop; /* drop: snapshots */
	bool without_cache, without_module, import, dry_run;
};

/* Which cache: the UUID that the superblock names, or that of --cache where it names none.  Zero: none.  *named: its SSD that --cache names by a path. */
static int wanted_cache(struct members *members, const struct member *volume, const struct start_request *request, uint8_t uuid[16],
			const struct member **named)
{
	const struct larder_volume_sb *sb = &volume->sb.volume;
	bool dirty = le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY;
	const struct member *cache;
	char text[UUID_TEXT];
	int result;

	memcpy(uuid, sb->cache_uuid, 16);
	uuid_text(uuid, text);
	if (request->without_cache && dirty)
		return volume_refuse_dirty(volume->path, sb, true);
	if (request->without_cache) {
		memset(uuid, 0, 16);
		return LARDER_DONE;
	}
	if (!request->cache)
		return LARDER_DONE;
	result = member_find(members, request->cache, LARDER_KIND_CACHE, &cache);
	if (!result && !uuid_is_zero(uuid) && memcmp(uuid, cache->sb.cache.cache_uuid, 16))
		return complain(LARDER_UNSAFE,
				"%s: cache_uuid: the volume belongs to the cache %s; start it with that one and detach it first",
				volume->path, text);
	result = result ? result : stack_check_cache(volume, cache->sb.cache.cache_uuid);
	if (!result)
		memcpy(uuid, cache->sb.cache.cache_uuid, 16);
	*named = !result && strchr(request->cache, '/') ? cache : NULL;
	return result;
}

/* Node of the cache with that UUID, started if need be. */
static int bring_cache(const struct members *members, const struct mapped_list *list, const struct member *volume,
		       const uint8_t uuid[16], const struct member *named, const struct start_request *request, char **path)
{
	static const struct argument_list no_options;
	const struct mapped *running = running_by_uuid(list, uuid, true);
	const struct member *member = named ? named : member_cache(members, uuid);
	bool dirty = le32toh(volume->sb.head.flags) & LARDER_VOLUME_MAY_BE_DIRTY;
	char text[UUID_TEXT], label[LARDER_LABEL_SIZE + 1];
	int result;

	uuid_text(uuid, text);
	if (running) {
		*path = mapper_path(running->name);
		return LARDER_DONE;
	}
	if (!member && dirty)
		return complain(LARDER_UNSAFE,
				"%s: cache_uuid: its cache %s is not here, and may hold newer data; bring that cache back",
				volume->path, text);
	if (!member)
		return complain(
			LARDER_UNSAFE,
			"%s: cache_uuid: its cache %s is not here; the volume is clean: --without-cache starts it alone, and makes "
			"that cache stale",
			volume->path, text);
	result = cache_bring_up(members, member, NULL, &no_options,
				(request->dry_run ? BRING_UP_DRY : 0) | (request->import ? BRING_UP_IMPORT : 0) | (named ? BRING_UP_BY_PATH : 0), path);
	if (!result && !request->dry_run)
		printf("cache %s: started as %s\n", label_text(member->sb.cache.label, label), *path);
	return result;
}

/* Not by the way what another machine may be using, unless that is the word; whatever the word, no disk that had left its stack. */
static int check_stack(const struct members *members, const struct member *volume, bool import)
{
	struct stack stack;
	bool there;
	char *old;
	int result;
	const char *why = stack_decode(volume->sb.volume.stack, &stack, &there);

	if (why && import)
		return LARDER_DONE;
	if (why)
		return complain(LARDER_UNSAFE,
				"%s: stack: is a newer larder's (%s), which knows whether this machine may start it; if it may: larder volume start --import",
				volume->path, why);
	old = there ? stack_too_old(members, &stack) : NULL;
	if (old) {
		result = complain(LARDER_UNSAFE, "%s: %s", volume->path, old);
		free(old);
		return result;
	}
	if (import || !there || !stack_is_foreign(&stack))
		return LARDER_DONE;
	return complain(LARDER_UNSAFE,
			"%s: stack: was made on another machine; if that does not use it any more: larder start --import %s, which takes it, or --import here",
			volume->path, stack.name);
}

/* Snapshots that it does not start without.  A description that cannot be read is a newer larder's, and came here by --import. */
static bool has_snapshots(const struct member *volume, const struct start_request *request, struct stack *stack)
{
	bool there;

	if (stack_decode(volume->sb.volume.stack, stack, &there) || !there)
		return false;
	for (int i = 0; i < request->drop.number; i++) {
		struct stack_snapshot *one = stack_snapshot_find(stack, request->drop.value[i]);

		if (one)
			one->state = SNAPSHOT_LOST;
	}
	return stack_snapshot_needed(stack);
}

/* What one of both has lost a snapshot shares: a part of it would be older than the rest. */
static int check_shared(const struct members *members, const struct member *volume, const struct start_request *request, const struct stack *stack)
{
	bool older = false;
	char *why;

	for (int i = 0; i < request->options.number; i++)
		older |= !strcmp(request->options.value[i], "stale=accept") || !strcmp(request->options.value[i], "stale=discard");
	if (!older)
		return LARDER_DONE;
	why = volume_too_old(members, volume, stack);
	why = why ? why : cache_too_old(members, volume, stack);
	older = why;
	free(why);
	for (uint32_t i = 0; older && i < stack->snapshots; i++)
		if (stack->snapshot[i].state == SNAPSHOT_READY)
			return complain(LARDER_UNSAFE, "%s: --option stale: its snapshot %s shares what is lost: give that up too, by --drop-snapshot %s", stack->name,
					stack->snapshot[i].name, stack->snapshot[i].name);
	return LARDER_DONE;
}

static int check_snapshots(const struct members *members, const struct member *volume, const struct start_request *request)
{
	struct stack stack;
	struct cow cow;
	int result;

	if (!has_snapshots(volume, request, &stack))
		return LARDER_DONE;
	result = check_shared(members, volume, request, &stack);
	cow_find(&cow, stack.name, &stack, members);
	return result ? result : cow_check_stores(&cow, stack.name);
}

/* Those that are to be given up are there. */
static int check_drop(const struct member *volume, const char *word, const struct start_request *request)
{
	struct stack stack;
	bool there;

	if (!request->drop.number)
		return LARDER_DONE;
	if (stack_decode(volume->sb.volume.stack, &stack, &there) || !there)
		return complain(LARDER_NOT_FOUND, "%s: --drop-snapshot: it is no stack's, or a newer larder's, and has no snapshots here", word);
	return snapshots_give_up(&stack, &request->drop, false);
}

static int drop(union superblock *sb, bool *write, void *data)
{
	const struct start_request *request = data;
	struct stack stack;
	const char *why;
	bool there;
	int result;

	*write = true;
	why = stack_decode(sb->volume.stack, &stack, &there);
	result = !why && there ? snapshots_give_up(&stack, &request->drop, false) : LARDER_DONE;
	if (!why && there && !result) {
		stack.generation = stack_raise(stack.generation, 1);
		why = stack_encode(&stack, sb->volume.stack);
	}
	return why || !there ? complain(LARDER_FAILED, "--drop-snapshot: the description of its stack cannot be changed: %s", why ? why : "it has none") : result;
}

/* Durable before it is started: a store that is here again would be believed.  Behind all that it is refused for. */
static int drop_snapshots(const struct member *volume, struct start_request *request)
{
	bool ours = true;
	int result = LARDER_DONE;

	if (request->drop.number && !request->dry_run)
		result = claim_change(volume->path, LARDER_KIND_VOLUME, volume->sb.head.uuid, drop, request, &ours);
	return result || ours ? result : LARDER_UNSAFE;
}

/* Its device; with all of its snapshots, or not at all. */
static int make_device(const struct members *members, const struct member *volume, const char *name, const char *target, const char *params,
		       const struct start_request *request)
{
	uint64_t sectors = le64toh(volume->sb.volume.sectors);
	char *dm_uuid = cow_volume_uuid(volume->sb.head.uuid);
	struct stack stack;
	struct cow cow;
	int result;

	if (has_snapshots(volume, request, &stack)) {
		cow_find(&cow, name, &stack, members);
		result = cow_start(&cow, target, sectors, params);
	} else {
		result = mapped_create(name, dm_uuid, target, sectors, params);
	}
	free(dm_uuid);
	return result;
}

/* As on its disk: the stored options of its stack, for none "", and class, with its pins, for none "".  What the request has goes before them. */
static int create_with(const struct members *members, const struct member *volume, const char *cache, const char *name,
		       const struct start_request *request, const char *stored, const char *class)
{
	struct argument_list options = request->options;
	char *classes = must_print("class=%s", class), *words, *params;
	bool given = !*class;
	int result;

	for (int i = 0; i < options.number; i++)
		given |= !strncmp(options.value[i], "class=", strlen("class="));
	if (!given && options.number < ARGUMENT_LIST_MAX)
		options.value[options.number++] = classes;
	words = table_options(&options, stored);
	free(classes);
	if (!words)
		return LARDER_USAGE;
	params = must_print("%s %s %s", volume->path, cache, words);
	result = make_device(members, volume, name, TARGET_VOLUME, params, request);
	free(params);
	free(words);
	return result;
}

static int create_volume(const struct members *members, const struct member *volume, const char *cache, struct start_request *request)
{
	const struct larder_volume_sb *sb = &volume->sb.volume;
	char label[LARDER_LABEL_SIZE + 1], *name;
	const char *stored = "", *class = "";
	int result = LARDER_DONE;
	struct stack stack;
	bool there;

	name = dm_name(request->name, sb->label, volume->path, false, &result);
	result = result ? result : drop_snapshots(volume, request);
	if (result) {
		free(name);
		return result;
	}
	if (!stack_decode(sb->stack, &stack, &there) && there) {
		stored = stack.options;
		class = stack.class;
	}
	result = create_with(members, volume, cache, name, request, stored, class);
	if (result == LARDER_FAILED && *stored) {
		stored_options_refused(name, stored, false);
		result = create_with(members, volume, cache, name, request, "", class);
	}
	if (!result && !request->dry_run)
		printf("volume %s: started as /dev/mapper/%s%s\n", label_text(sb->label, label), name,
		       strcmp(cache, "-") ? "" : ", without a cache");
	free(name);
	return result;
}

/* ------------------------------------------------------------------ without the module */

struct leaving {
	const char *path;
	bool equal; /* both copies of its superblock say the same: none is left from before it had left its cache */
};

static int leave_cache(union superblock *sb, bool *write, void *data)
{
	const struct leaving *leaving = data;

	if (le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY)
		return volume_refuse_dirty(leaving->path, &sb->volume, false);
	*write = !uuid_is_zero(sb->volume.cache_uuid) || !leaving->equal;
	return *write ? superblock_leave_cache(sb) : LARDER_DONE;
}

/* It has no cache any more, durably.  The superblock is read again, as nobody else has the disk now; or did by the time when it was looked at. */
static int take_off_cache(const struct member *volume)
{
	struct leaving leaving = { .path = volume->path };
	struct superblocks found;
	struct device device;
	bool ours;
	int result = claim_member(&device, &found, volume->path, LARDER_KIND_VOLUME, volume->sb.head.uuid, &ours);

	if (result || !ours)
		return result ? result : LARDER_UNSAFE;
	leaving.equal = superblocks_equal(&found);
	superblocks_free(&found);
	result = superblock_change(&device, leave_cache, &leaving);
	device_close(&device);
	return result;
}

/* What is older, or has older SSDs, the kernel would refuse. */
static int start_linear(const struct members *members, const struct member *volume, struct start_request *request)
{
	const struct larder_volume_sb *sb = &volume->sb.volume;
	char *name, *params;
	int result = volume_check_ages(members, volume);

	if (result)
		return result;
	if (le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY)
		return volume_refuse_dirty(volume->path, sb, false);
	name = dm_name(request->name, sb->label, volume->path, false, &result);
	if (!name)
		return result;
	if (mapped_name_taken(name))
		result = complain(LARDER_BUSY, "%s: there is a dm device of this name; --name gives it another one", name);
	else if (!request->dry_run)
		result = take_off_cache(volume);
	else
		result = claim_check(volume->path, LARDER_KIND_VOLUME, sb->head.uuid);
	result = result ? result : drop_snapshots(volume, request);
	if (!result && request->dry_run && !uuid_is_zero(sb->cache_uuid))
		printf("write superblock to %s: no cache, a new incarnation\n", volume->path);
	params = must_print("%s %llu", volume->path, (unsigned long long)le64toh(sb->data_offset) >> LARDER_SECTOR_SHIFT);
	if (!result)
		result = make_device(members, volume, name, "linear", params, request);
	if (!result && !request->dry_run)
		printf("volume %s: started as /dev/mapper/%s, without larder's module: it belongs to no cache now; larder volume attach "
		       "puts it behind one again\n",
		       name, name);
	free(params);
	free(name);
	return result;
}

/* Could it have snapshots that became unreadable while it ran?  The disks need not be looked at else. */
static int look_below(const uint8_t volume[16], bool *some)
{
	char *shown = cow_volume_uuid(volume);
	struct mapped_names names;
	int result = mapped_scan_below(shown, &names);

	*some = !result && names.nr_half;
	mapped_names_free(&names);
	free(shown);
	return result;
}

/* Is that the name of one that start_linear() has made?  Then it is stopped, *result says how. */
static bool stop_linear(const char *name, bool dry_run, int *result)
{
	static const char ours[] = "LARDER-";
	char uuid[DM_UUID_MAX], usage[PATH_MAX];
	uint8_t volume[16];
	dev_t number;
	bool some;

	if (!mapped_look(name, uuid, &number) || strncmp(uuid, ours, strlen(ours)) || strlen(uuid) != strlen(ours) + UUID_TEXT - 1 ||
	    !mapped_is_without_larder(name) || uuid_parse(uuid + strlen(ours), volume))
		return false;
	*result = cow_check_unused(volume);
	if (!*result && device_usage(number, usage, sizeof(usage)))
		*result = complain(LARDER_BUSY, "%s: in use: %s; release it first", name, usage);
	*result = *result ? *result : look_below(volume, &some);
	if (!*result)
		*result = some && !dry_run ? snapshots_stop_linear(name, volume) : mapped_remove(name);
	return true;
}

/* ------------------------------------------------------------------ start, stop */

/* By a linear target, by whatever name: its snapshots belong to that. */
static int check_not_shown(const uint8_t uuid[16], const char *word)
{
	char *shown = cow_volume_uuid(uuid), name[DM_NAME_MAX];
	bool is = mapped_name_of(shown, name);

	free(shown);
	return is ? complain(LARDER_BUSY, "%s: runs already, without larder's module: /dev/mapper/%s; larder volume stop %s ends that", word, name, name) :
		    LARDER_DONE;
}

/* It has data by now, dirty ones perhaps, and is started; nobody gives it that cache any more. */
static void warn_entangled(const struct mapped_list *list, const struct member *volume, const uint8_t cache[16])
{
	const struct mapped *other = running_entangled(list, volume->number, cache);

	if (other)
		remark("%s: lies on, or below, the volume %s, which has the same cache: each may wait for the other, for ever, when that is full; larder volume detach %s --flush, "
		       "and attach it to another one",
		       volume->path, other->name, other->name);
}

static int start_member(struct members *members, const char *word, const struct member *volume, struct start_request *request)
{
	const struct member *named = NULL;
	const struct mapped *running;
	struct mapped_list list;
	char *cache = NULL;
	uint8_t uuid[16];
	int result = LARDER_DONE;

	if (!request->dry_run && running_left_over(volume->sb.head.uuid))
		result = cow_clear(volume->sb.head.uuid);
	if (result)
		return result;
	result = mapped_scan(&list);
	running = result ? NULL : running_by_uuid(&list, volume->sb.head.uuid, false);
	if (running && request->drop.number)
		result = complain(LARDER_BUSY, "%s: --drop-snapshot: is for the start of a volume, and this one runs; larder snapshot remove", word);
	if (running && !result) {
		printf("volume %s runs already: /dev/mapper/%s\n", word, running->name);
		mapped_list_free(&list);
		return LARDER_DONE;
	}
	if (!result)
		result = check_not_shown(volume->sb.head.uuid, word);
	if (!result && !volume->block && !request->dry_run)
		result = complain(LARDER_USAGE, "%s: is a regular file; make a block device of it with losetup", volume->path);
	if (!result)
		result = check_stack(members, volume, request->import);
	if (!result && !request->without_module && !claim_may_start(volume->path, strchr(word, '/'), "volume start"))
		result = LARDER_UNSAFE;
	result = result ? result : check_drop(volume, word, request);
	result = result ? result : check_snapshots(members, volume, request);
	if (!result && request->without_module) {
		mapped_list_free(&list);
		return start_linear(members, volume, request);
	}
	result = result ? result : wanted_cache(members, volume, request, uuid, &named);
	if (!result && uuid_is_zero(uuid))
		cache = must_print("-");
	else if (!result)
		result = bring_cache(members, &list, volume, uuid, named, request, &cache);
	if (!result && volume->block && !uuid_is_zero(uuid))
		warn_entangled(&list, volume, uuid);
	result = result ? result : create_volume(members, volume, cache, request);
	free(cache);
	mapped_list_free(&list);
	return result;
}

/* One that was stopped stays so for larderd until it runs: it may find what did not start before or behind us. */
static int start_one(struct members *members, const char *word, struct start_request *request)
{
	const struct member *volume;
	int result = member_find(members, word, LARDER_KIND_VOLUME, &volume);

	result = result ? result : start_member(members, word, volume, request);
	if (!result && !request->dry_run)
		stopped_clear(volume->sb.head.uuid);
	return result;
}

int volume_start(int argc, char **argv)
{
	static const char usage[] =
		"larder volume start LABEL|UUID|DISK... [--name NAME] [--cache CACHE | --without-cache | --without-module] "
		"[--option KEY=VALUE]... [--drop-snapshot SNAPSHOT]... [--import] [--dry-run]";
	struct start_request request = { 0 };
	const struct argument arguments[] = {
		{ "name", 'N', ARGUMENT_TEXT, &request.name, "NAME", "/dev/mapper/NAME (default: the label)" },
		{ "cache", 'c', ARGUMENT_TEXT, &request.cache, "CACHE", "attach it to this cache, if it has none" },
		{ "without-cache", 0, ARGUMENT_FLAG, &request.without_cache, NULL, "alone; only if no cache holds anything newer" },
		{ "without-module", 0, ARGUMENT_FLAG, &request.without_module, NULL, "by a linear target; only if nothing is dirty: it leaves its cache" },
		{ "option", 0, ARGUMENT_LIST, &request.options, "KEY=VALUE", "option of the target, see docs/interface.md" },
		{ "drop-snapshot", 0, ARGUMENT_LIST, &request.drop, "SNAPSHOT", "also without this snapshot of its stack: it is LOST then" },
		{ "import", 0, ARGUMENT_FLAG, &request.import, NULL, "also if it, or its cache, is another machine's, this time" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only print the dmsetup commands" },
		ARGUMENTS_END
	};
	struct members members;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, -1, &first, &result))
		return result;
	if (request.name && argc - first > 1)
		return complain(LARDER_USAGE, "--name: is for one volume, %d are given", argc - first);
	if (request.cache && request.without_cache)
		return complain(LARDER_USAGE, "--cache and --without-cache exclude each other");
	if (request.without_module && (request.cache || request.without_cache || request.options.number))
		return complain(LARDER_USAGE, "--without-module excludes --cache, --without-cache and --option");
	mapped_init(request.dry_run);
	turn_take();
	members_scan(&members);
	for (int i = first; !result && i < argc; i++)
		result = start_one(&members, argv[i], &request);
	members_free(&members);
	return result;
}

static bool is_listed(const struct mapped_list *list, const char *name)
{
	for (size_t i = 0; i < list->number; i++)
		if (!strcmp(list->mapped[i].name, name))
			return true;
	return false;
}

static int stop_one(const struct mapped_list *list, const char *word, bool dry_run)
{
	char usage[PATH_MAX];
	struct mapped *volume;
	uint8_t uuid[16];
	bool some = false;
	int result;

	if (!is_listed(list, word) && stop_linear(word, dry_run, &result))
		return result;
	result = running_find(list, word, false, &volume);
	if (result)
		return result;
	if (volume->open_count && device_usage(volume->number, usage, sizeof(usage)))
		return complain(LARDER_BUSY, "%s: in use: %s; release it first", volume->name, usage);
	if (!dry_run && running_uuid(volume, uuid))
		result = look_below(uuid, &some);
	if (!result && some)
		result = snapshots_note_lost_of(uuid);
	return result ? result : stop_running(volume, dry_run);
}

int volume_stop(int argc, char **argv)
{
	static const char usage[] = "larder volume stop NAME|UUID|DEVICE... [--dry-run]";
	bool dry_run = false;
	const struct argument arguments[] = { { "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only print the dmsetup command" },
					      ARGUMENTS_END };
	struct mapped_list list;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, -1, &first, &result))
		return result;
	mapped_init(dry_run);
	turn_take();
	result = mapped_scan(&list);
	for (int i = first; !result && i < argc; i++)
		result = stop_one(&list, argv[i], dry_run);
	mapped_list_free(&list);
	return result;
}
