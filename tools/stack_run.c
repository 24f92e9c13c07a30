// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder start, stop, lock, unlock: the layers of a stack, from below, and from above.
 *
 * A stack is started as its description says.  What would risk data is refused, and the option that does it all the same is named:
 * --degraded (SSDs, all of the cache where the volume is clean, or disks of the array, are missing), --accept-write-hole (and the array was cut off while it was written to), --import (another
 * machine made the stack), --crashed (and did not stop it).
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "cow.h"
#include "crypt_layer.h"
#include "luks.h"
#include "running.h"
#include "stack_age.h"
#include "stack_devices.h"
#include "stack_legs.h"
#include "stack_snapshot.h"
#include "stack_steps.h"
#include "stack_store.h"
#include "turn.h"
#include "verbs.h"

struct run_request {
	const char *keyfile, *discard_newer, *write_hole, *take_back;
	struct argument_list drop; /* snapshots */
	bool degraded, import, crashed, locked, agent, without_module, note;
};

/* A copy of the description, which must be whole. */
static int load(const char *word, struct stack *stack)
{
	const struct found *found;
	struct stacks stacks;
	char text[UUID_TEXT];
	int result = stacks_scan(&stacks);

	result = result ? result : stack_find(&stacks, word, &found);
	if (!result && !found->whole)
		result = complain(LARDER_NOT_FOUND, "%s: its disks are not here; only its cache %s is", found->stack.name,
				  uuid_text(found->stack.cache, text));
	if (!result)
		*stack = found->stack;
	stacks_free(&stacks);
	return result;
}

static int refuse_foreign(const struct stack *stack)
{
	return complain(LARDER_UNSAFE, "%s: was made on another machine; if that does not use it any more: larder start --import %s", stack->name,
			stack->name);
}

/* Below the cache of today a disk of last month is neither the one nor the other. */
static int check_age(const struct stack *stack)
{
	const struct member *volume;
	struct members members;
	uint8_t part[16];
	int result;

	stack_part(stack, "volume", part);
	members_scan(&members);
	volume = member_volume(&members, part);
	result = volume ? volume_check_ages(&members, volume) : LARDER_DONE;
	members_free(&members);
	return result;
}

/* Of the newest set of SSDs here one was not stopped: the cache runs on the machine that made it, or ran when that went down. */
static bool may_run_elsewhere(const struct stack *stack)
{
	bool unstopped = false;
	struct stacks stacks;
	uint64_t newest = 0;

	if (stacks_scan(&stacks))
		return true;
	for (size_t i = 0; i < stacks.members.number; i++) {
		const struct larder_cache_sb *sb = &stacks.members.member[i]->sb.cache;
		uint64_t set = le64toh(sb->set_generation) >> 32;

		if (le32toh(sb->head.kind) != LARDER_KIND_CACHE || memcmp(sb->cache_uuid, stack->cache, 16) || set < newest)
			continue;
		unstopped = (set == newest && unstopped) || (le32toh(sb->epoch) && !(le32toh(sb->head.flags) & LARDER_CACHE_CLEAN_STOP));
		newest = set;
	}
	unstopped = unstopped && !running_by_uuid(&stacks.list, stack->cache, true);
	stacks_free(&stacks);
	return unstopped;
}

static int refuse_running(const struct stack *stack)
{
	return complain(LARDER_UNSAFE,
			"%s: its cache was not stopped on the machine that made it, and may run there: larder stop %s on that one; if it has crashed, or "
			"lost these disks: larder start --import --crashed %s",
			stack->name, stack->name, stack->name);
}

/* Whoever asked for a dry run has nothing started, nor does he hold the lock. */
static int refuse_dry_run(const struct stack *brief)
{
	return complain(LARDER_NOT_FOUND,
			"%s: its array is stopped, and what a dry run could tell of the stack is on that, and a dry run starts nothing; larder start --locked %s first",
			brief->name, brief->name);
}

/* Or it may run on another machine, which has its array. */
static bool may_take_apart(const struct stack *stack, unsigned flags)
{
	if (flags & (START_OLDER | START_DRY_RUN))
		return false;
	return !stack_is_foreign(stack) || (flags & START_IMPORT && (flags & START_CRASHED || !may_run_elsewhere(stack)));
}

/* Of a mirror each half of which was used without the other udev may have gathered the one that would be refused: the array is put together anew, of the other. */
static int leave_older_half(const struct stacks *stacks, const struct stack *stack, struct md_array *array, unsigned flags)
{
	char usage[PATH_MAX];
	struct md_disks disks;
	uint64_t behind;
	uint8_t part[16];
	bool wrong = false;
	int result;

	stack_part(stack, "volume", part);
	if (running_by_uuid(&stacks->list, part, false) || !may_take_apart(stack, flags) || !md_disks(array->device, &disks))
		return LARDER_DONE;
	behind = stack_disks_behind(&stacks->members, stack, array);
	for (size_t i = 0; i < array->number; i++)
		wrong |= behind >> i & 1 && md_has(&disks, array, i);
	if (!wrong)
		return LARDER_DONE;
	if (device_usage(array->device, usage, sizeof(usage)))
		return complain(LARDER_BUSY, "%s: its array %s was put together of a disk that is older than what its SSDs have seen, where another one is here, and is in use: %s; release it first",
				stack->name, array->node, usage);
	/* fails where somebody has opened it since */
	result = md_stop(array->node);
	md_free(array);
	stack_part(stack, "md", part);
	md_find(part, array);
	return result ? result : assemble_array(stacks, stack, array, flags);
}

/* Of one that is not whole the array, so far as it is found, is put together; *assembled: it was. */
static int assemble_found(const struct stacks *stacks, const struct found *found, unsigned flags, bool *assembled)
{
	struct md_array array;
	uint8_t part[16];
	int result;

	*assembled = false;
	stack_part(&found->stack, "md", part);
	md_find(part, &array);
	/* of a whole one start_array() asks for all disks; here mdadm knows how many there were */
	result = stack_check_copies(stacks, &found->stack, &array);
	if (!result && *array.node) {
		result = leave_older_half(stacks, &found->stack, &array, flags);
	} else if (!result && !found->whole && array.number) {
		result = flags & START_DRY_RUN ? refuse_dry_run(&found->stack) : assemble_array(stacks, &found->stack, &array, flags);
		*assembled = !result;
	}
	md_free(&array);
	return result;
}

/* What was started of it for nothing.  A brief description has its UUID alone. */
static void stop_assembled(const struct stack *brief, bool *assembled)
{
	struct md_array array;
	uint8_t part[16];

	if (!*assembled)
		return;
	stack_part(brief, "md", part);
	md_find(part, &array);
	if (*array.node)
		md_stop(array.node);
	md_free(&array);
	*assembled = false;
}

int stack_load_with_array(const char *word, struct stack *stack, unsigned flags, bool *assembled)
{
	struct stack brief = { 0 };
	const struct found *found;
	struct stacks stacks;
	char uuid[UUID_TEXT];
	int result = stacks_scan(&stacks);

	*assembled = false;
	result = result ? result : stack_find(&stacks, word, &found);
	if (!result)
		uuid_text(found->stack.uuid, uuid);
	if (!result && !found->whole && !(flags & START_IMPORT) && stack_is_foreign(&found->stack))
		result = refuse_foreign(&found->stack);
	if (!result && !found->whole && flags & START_DRY_RUN && stack_has_legs(&stacks.members, found->stack.uuid))
		result = refuse_dry_run(&found->stack);
	if (!result && !found->whole) {
		brief = found->stack;
		/* before its legs run here */
		if ((flags & START_IMPORT) && !(flags & START_CRASHED) && stack_is_foreign(&brief) && may_run_elsewhere(&brief))
			result = refuse_running(&brief);
		result = result ? result : start_legs(brief.name, brief.uuid, flags);
	}
	result = result ? result : assemble_found(&stacks, found, flags, assembled);
	stacks_free(&stacks);
	/* another half may have another name for it */
	result = result ? result : load(uuid, stack);
	if (!result && !(flags & START_OLDER))
		result = check_age(stack);
	if (result && *brief.name) {
		stop_assembled(&brief, assembled);
		release_legs(&brief);
	}
	return result;
}

/* From another machine.  What cannot be started is taken over as well: or nobody here could remove it, or go on with it. */
static int take_over(struct stack *stack, const struct run_request *request)
{
	int result;

	if (!request->import)
		return refuse_foreign(stack);
	if (!request->crashed && may_run_elsewhere(stack))
		return refuse_running(stack);
	stack_host(stack->host);
	if (stack->state == STACK_READY)
		return LARDER_DONE; /* durable when it has started */
	turn_take();
	result = stack_store(stack);
	return result || !*stack->integrity ? result : legs_take_over(stack, START_DEGRADED);
}

static int check_made(const struct stack *stack)
{
	if (stack->state == STACK_CREATING)
		return complain(LARDER_UNSAFE, "%s: is half made; larder create --resume %s, or larder remove %s", stack->name, stack->name,
				stack->name);
	if (stack->state == STACK_REMOVING)
		return complain(LARDER_UNSAFE, "%s: is being removed; larder remove %s goes on", stack->name, stack->name);
	return LARDER_DONE;
}

static int check_state(struct stack *stack, const struct run_request *request)
{
	bool elsewhere = stack_is_foreign(stack);
	int result = stack->state == STACK_READY ? LARDER_DONE : stack_elsewhere(stack, &elsewhere);

	if (!result && elsewhere)
		result = take_over(stack, request);
	return result ? result : check_made(stack);
}

static int open_crypt(const struct stack *stack, const char *keyfile)
{
	unsigned outcome = LUKS_NO_TOKEN;
	struct secret secret;
	int result = LARDER_DONE;

	if (!stack_locked(stack))
		return LARDER_DONE;
	turn_give(); /* who types takes his time, and so may a server */
	if (!keyfile)
		result = start_crypt_by_token(stack, 0, &outcome);
	if (result || outcome == LUKS_OPENED)
		return result;
	result = secret_read_old(keyfile, stack->keyfile, stack->name, &secret);
	if (result)
		return result;
	result = start_crypt(stack, &secret, 0, NULL);
	secret_free(&secret);
	return result;
}

static bool is_dirty(const struct member *volume)
{
	return volume && le32toh(volume->sb.head.flags) & LARDER_VOLUME_MAY_BE_DIRTY;
}

/*
 * Before the volume is shown without the module: nobody writes to the superblock of what runs so.  One that is dirty does not start, without the module or
 * without its cache, and is not taken over then, nor is a snapshot of it given up.
 */
static int store_first(struct stack *stack, bool module)
{
	const struct member *volume;
	struct stacks stacks;
	struct layers layers;
	uint8_t part[16];
	bool runs;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	stack_part(stack, "volume", part);
	layers_find(&stacks, stack, &layers);
	runs = *layers.node;
	volume = member_volume(&stacks.members, part);
	if (!runs && is_dirty(volume))
		result = volume_refuse_dirty(volume->path, &volume->sb.volume, module);
	layers_free(&layers);
	stacks_free(&stacks);
	return result || runs ? result : stack_store(stack);
}

/* The volume, with what it stands on.  Of a cache of which nothing is left only a volume that needs none starts, and only if asked to. */
static int start_below(struct stack *stack, unsigned flags, const struct argument_list *drop)
{
	bool module = !(flags & START_WITHOUT_MODULE), with = module, changed = flags & (START_IMPORT | START_OLDER), stored = false;
	int result = start_array(stack, flags);

	if (!result && with && !stack_cache_here(stack)) {
		if (!(flags & START_DEGRADED))
			return complain(LARDER_NOT_FOUND,
					"%s: no SSD of its cache is here; attach them; if they are gone: larder start --degraded %s starts it without, where nothing is lost by that, and larder replace %s cache SSD gives it another one",
					stack->name, stack->name, stack->name);
		flags |= START_WITHOUT_CACHE;
		with = false;
	}
	result = result ? result : snapshots_give_up(stack, drop, flags & START_OLDER);
	/* with a new incarnation in one write, or the next start would take an older disk for the newest */
	if (!result && (flags & START_OLDER))
		result = stack_take_older(stack, &stored);
	if (!result && with)
		result = start_cache(stack, flags);
	/* durable, behind all that is refused */
	if (!result && ((changed && !module) || (drop->number && !stored)))
		result = with ? stack_store(stack) : store_first(stack, module);
	result = result ? result : start_volume(stack, flags);
	if (!result && changed && module)
		result = stack_store(stack);
	return result || !(flags & START_IMPORT) || !*stack->integrity ? result : legs_take_over(stack, flags);
}

/* An option that gives something up names the stack of which it does. */
static int check_uuid(const struct stack *stack, const char *option, const char *given)
{
	char text[UUID_TEXT];
	uint8_t uuid[16];

	if (!given || (!uuid_parse(given, uuid) && !memcmp(uuid, stack->uuid, 16)))
		return LARDER_DONE;
	return complain(LARDER_UNSAFE, "%s: %s: the stack is %s, not %s; nothing was done", stack->name, option, uuid_text(stack->uuid, text), given);
}

/* Before its array is started: of what the SSDs say of it alone, if that is all that is here. */
static int check_uuids(const char *word, const struct run_request *request)
{
	const struct found *found;
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	result = result ? result : stack_find(&stacks, word, &found);
	result = result ? result : check_uuid(&found->stack, "--accept-write-hole", request->write_hole);
	result = result ? result : check_uuid(&found->stack, "--discard-newer", request->discard_newer);
	stacks_free(&stacks);
	return result;
}

/* A disk that the array lacks may be the only one here some day.  What cannot be noted now larderd tries again. */
static void note_lacks(const struct stack *stack)
{
	char text[UUID_TEXT];

	turn_take();
	devices_note(uuid_text(stack->uuid, text));
}

/* What is shown now would be as lost as one whose store is away. */
static int check_drop(const struct stack *stack, const struct argument_list *drop)
{
	uint8_t part[16];
	char *dm_uuid;
	bool shown;

	if (!drop->number)
		return LARDER_DONE;
	stack_part(stack, "volume", part);
	dm_uuid = cow_volume_uuid(part);
	shown = mapped_is_shown(dm_uuid);
	free(dm_uuid);
	if (!shown)
		return LARDER_DONE;
	return complain(LARDER_BUSY, "%s: --drop-snapshot: is for the start of a stack, and this one runs; larder snapshot remove %s@%s", stack->name, stack->name,
			drop->value[0]);
}

/* An import that failed ahead of its volume: nothing of another machine's runs on here, nor does its array write what it thinks is to be mended. */
static void stop_for_nothing(const struct stack *stack)
{
	struct stacks stacks;
	bool runs;

	if (stacks_scan(&stacks))
		return;
	runs = stack_volume(&stacks, stack);
	stacks_free(&stacks);
	if (!runs)
		stop_array(stack);
}

static int start_one(const char *word, const struct run_request *request)
{
	unsigned flags = (request->degraded ? START_DEGRADED : 0) | (request->import ? START_IMPORT : 0) | (request->crashed ? START_CRASHED : 0) |
			 (request->without_module ? START_WITHOUT_MODULE : 0) | (request->discard_newer ? START_OLDER | START_STALE : 0) |
			 (request->write_hole ? START_WRITE_HOLE : 0);
	struct stack stack;
	bool marked = false, assembled;
	int result, also;

	if (request->crashed && !request->import)
		return complain(LARDER_USAGE, "--crashed: goes with --import");
	if (request->write_hole && !request->degraded)
		return complain(LARDER_USAGE, "--accept-write-hole: goes with --degraded: of an array that has all of its disks md makes parity anew");
	if (request->take_back) {
		turn_take();
		return devices_take_back(word, request->take_back);
	}
	if (request->note) {
		turn_take();
		result = devices_note(word);
		/* whatever keeps the other one from being noted, unless nothing runs */
		also = result == LARDER_NOT_FOUND ? LARDER_DONE : snapshots_note_lost(word);
		return result ? result : also;
	}
	turn_take(); /* or larderd would take legs that have no table yet for what somebody left behind */
	result = request->write_hole || request->discard_newer ? check_uuids(word, request) : LARDER_DONE;
	result = result ? result : stack_load_with_array(word, &stack, flags, &assembled);
	result = result ? result : check_state(&stack, request);
	result = result ? result : check_drop(&stack, &request->drop);
	if (!result && stack.encrypted && !crypt_is_open(&stack)) {
		crypt_mark(&stack, true); /* before the volume is there, which larder-unlock@.service would ask for */
		marked = true;
	}
	result = result ? result : start_below(&stack, flags, &request->drop);
	if (result && marked)
		crypt_mark(&stack, false);
	if (result && request->import && assembled)
		stop_for_nothing(&stack);
	if (!result && *stack.raid && !request->without_module)
		note_lacks(&stack);
	if (result || request->locked)
		return result;
	result = open_crypt(&stack, request->keyfile);
	if (result && marked) { /* nobody locked it: an agent may ask for what was mistyped */
		crypt_mark(&stack, false);
		crypt_ask_again(&stack);
	}
	result = result ? result : start_mount(&stack, true);
	if (!result)
		printf("%s: started%s%s\n", stack.name, *stack.mount ? ", mounted on " : "", stack.mount);
	return result;
}

/* The volume on it may not have run, and larderd, and md's rules, would gather again what has just been stopped. */
static int stop_array_for_good(const struct stack *stack)
{
	uint8_t part[16];
	int result;
	bool marked;

	stack_part(stack, "volume", part);
	marked = *stack->raid && !stopped_is(part);
	if (marked)
		stopped_set(part);
	result = stop_array(stack);
	if (result && marked)
		stopped_clear(part);
	return result;
}

static int stop_one(const char *word)
{
	struct stack stack;
	int result;

	turn_take();
	result = load(word, &stack);
	result = result ? result : stop_check(&stack);
	result = result ? result : stop_mount(&stack);
	result = result ? result : stop_crypt(&stack);
	result = result ? result : snapshots_note_lost(word);
	result = result ? result : stop_volume(&stack);
	result = result ? result : stop_cache(&stack);
	result = result ? result : stop_array_for_good(&stack);
	if (!result)
		printf("%s: stopped\n", stack.name);
	return result;
}

static int lock_one(const char *word)
{
	struct stack stack;
	int result = load(word, &stack);
	bool marked;

	if (!result && !stack.encrypted)
		result = complain(LARDER_USAGE, "%s: is not encrypted", stack.name);
	if (!result)
		crypt_mark(&stack, true);
	marked = !result;
	result = result ? result : stop_mount(&stack);
	result = result ? result : stop_crypt(&stack);
	if (result && marked && crypt_is_open(&stack))
		crypt_mark(&stack, false); /* nobody has locked it */
	if (!result)
		printf("%s: locked\n", stack.name);
	return result;
}

static int unlock_one(const char *word, const struct run_request *request)
{
	struct stack stack;
	int result;

	if (request->agent)
		return stack_unlock_by_agent(word);
	result = load(word, &stack);
	result = result ? result : check_made(&stack); /* nobody is to keep in it what --resume formats, or remove erases, without a word */
	if (!result && !stack.encrypted)
		result = complain(LARDER_USAGE, "%s: is not encrypted", stack.name);
	result = result ? result : open_crypt(&stack, request->keyfile);
	result = result ? result : start_mount(&stack, true);
	if (!result)
		printf("%s: unlocked%s%s\n", stack.name, *stack.mount ? ", mounted on " : "", stack.mount);
	return result;
}

/* Options of start and unlock; words: the stacks.  Each is tried. */
static int run(int argc, char **argv, const char *usage, const struct argument *arguments, const struct run_request *request, char verb)
{
	int first, result, all = LARDER_DONE;

	secrets_protect();
	if (!arguments_words(argc, argv, usage, arguments, 1, -1, &first, &result))
		return result;
	mapped_init(false);
	for (int i = first; i < argc; i++) {
		switch (verb) {
		case 's':
			result = start_one(argv[i], request);
			break;
		case 'l':
			result = lock_one(argv[i]);
			break;
		default:
			result = unlock_one(argv[i], request);
		}
		all = all ? all : result;
	}
	return all;
}

int stack_start(int argc, char **argv)
{
	struct run_request request = { 0 };
	const struct argument arguments[] = {
		{ "keyfile", 0, ARGUMENT_TEXT, &request.keyfile, "FILE", "unlock with this file, or - to be asked (default: by TPM2 or tang, where it has such a key; then as it was created)" },
		{ "locked", 0, ARGUMENT_FLAG, &request.locked, NULL, "do not unlock it, nor mount it" },
		{ "degraded", 0, ARGUMENT_FLAG, &request.degraded, NULL, "also if SSDs or disks are missing: they leave the stack; if all SSDs are, without the cache" },
		{ "import", 0, ARGUMENT_FLAG, &request.import, NULL, "also if another machine made it: it is this one's from then on" },
		{ "discard-newer", 0, ARGUMENT_TEXT, &request.discard_newer, "UUID",
		  "also from disks that are older than the SSDs say: what was written since to the stack with this UUID is LOST" },
		{ "accept-write-hole", 0, ARGUMENT_TEXT, &request.write_hole, "UUID",
		  "with --degraded: also an array with parity that was cut off, and without a disk: what is computed in its place may be wrong in the stack with this UUID" },
		{ "drop-snapshot", 0, ARGUMENT_LIST, &request.drop, "SNAPSHOT", "also without this snapshot, whose store is not here, or fails: it is LOST then" },
		{ "crashed", 0, ARGUMENT_FLAG, &request.crashed, NULL, "with --import: also if that machine did not stop it" },
		{ "note", 0, ARGUMENT_FLAG, &request.note, NULL,
		  "start nothing: note what a stack that runs has lost, a disk of its array or a snapshot, where it counts at the next start (larderd does so)" },
		{ "take-back", 0, ARGUMENT_TEXT, &request.take_back, "DISK",
		  "start nothing: this disk, which is here again, joins the array of a stack that runs, as it was in that (larderd does so)" },
		{ "without-module", 0, ARGUMENT_FLAG, &request.without_module, NULL, "by a linear target; only if nothing is dirty: it leaves its cache" },
		ARGUMENTS_END
	};

	return run(argc, argv, "larder start NAME... [--keyfile FILE] [--locked] [--degraded] [--import [--crashed]] [--discard-newer UUID] [--accept-write-hole UUID] [--drop-snapshot SNAPSHOT]... [--without-module] [--note] [--take-back DISK]", arguments, &request, 's');
}

/* Each is tried. */
static int stop_all(char *const *word, size_t number)
{
	int result, all = LARDER_DONE;

	for (size_t i = 0; i < number; i++) {
		result = stop_one(word[i]);
		all = all ? all : result;
	}
	return all;
}

/* Each that runs, and that needs the network: until that is there again. */
static int stop_remote(void)
{
	uint8_t(*part)[2][16]; /* its volume, its cache */
	char text[UUID_TEXT], **uuid;
	struct stacks stacks;
	size_t number = 0;
	int result = stacks_scan(&stacks);

	began_forget();
	if (result)
		return result;
	uuid = must_allocate(calloc(stacks.number + 1, sizeof(*uuid)));
	part = must_allocate(calloc(stacks.number + 1, sizeof(*part)));
	for (size_t i = 0; i < stacks.number; i++) {
		const struct stack *stack = &stacks.found[i].stack;

		if (!stacks.found[i].whole || !stack_volume(&stacks, stack) || !stack_is_remote(stack))
			continue;
		stack_part(stack, "volume", part[number][0]);
		memcpy(part[number][1], stack->cache, 16);
		for (unsigned k = 0; k < 2; k++)
			stopped_for_shutdown(part[number][k]);
		uuid[number++] = must_print("%s", uuid_text(stack->uuid, text));
	}
	stacks_free(&stacks);
	result = stop_all(uuid, number);
	while (number) {
		free(uuid[--number]);
		for (unsigned k = 0; k < 2; k++)
			if (!stopped_is(part[number][k])) /* it could not be stopped, or others use it */
				stopped_clear(part[number][k]);
	}
	free(part);
	free(uuid);
	return result;
}

int stack_stop(int argc, char **argv)
{
	static const char usage[] = "larder stop NAME... | --network";
	bool network = false;
	const struct argument arguments[] = {
		{ "network", 0, ARGUMENT_FLAG, &network, NULL, "each stack with a disk, or the store of a snapshot, that comes by the network (larder-network.service does so at a shutdown)" },
		ARGUMENTS_END
	};
	int first, result;

	secrets_protect();
	if (!arguments_words(argc, argv, usage, arguments, 0, -1, &first, &result))
		return result;
	if (network && first < argc)
		return complain(LARDER_USAGE, "--network: stands for the names");
	if (!network && first == argc)
		return complain(LARDER_USAGE, "a word is missing; usage: %s", usage);
	mapped_init(false);
	return network ? stop_remote() : stop_all(argv + first, (size_t)(argc - first));
}

int stack_lock(int argc, char **argv)
{
	const struct argument arguments[] = { ARGUMENTS_END };

	return run(argc, argv, "larder lock NAME...", arguments, NULL, 'l');
}

int stack_unlock(int argc, char **argv)
{
	struct run_request request = { 0 };
	const struct argument arguments[] = {
		{ "keyfile", 0, ARGUMENT_TEXT, &request.keyfile, "FILE", "with this file, or - to be asked (default: by TPM2 or tang, where it has such a key; then as it was created)" },
		{ "agent", 0, ARGUMENT_FLAG, &request.agent, NULL, "for larder-unlock@.service: NAME is a volume's, and systemd's agents ask" },
		ARGUMENTS_END
	};

	return run(argc, argv, "larder unlock NAME... [--keyfile FILE] [--agent]", arguments, &request, 'u');
}
