// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder resize: a stack takes what has become larger below it, layer by layer from below, mounted or not.
 *
 * array (only if asked to, as its disks may have been made larger for something else) -> volume -> LUKS -> filesystem.  Each layer is
 * grown to what is below it, by what that layer has for it, and has nothing to do when it is that large already: so whoever is cut
 * off runs it again, and a layer above one that could not grow stays as it is.  Nothing is written of how far it came.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "create.h"
#include "crypt_layer.h"
#include "luks.h"
#include "program.h"
#include "resize.h"
#include "stack_devices.h"
#include "stack_layers.h"
#include "stack_store.h"
#include "turn.h"
#include "verbs.h"

static const struct size_format human = { 'h', true };

struct resize_request {
	const char *name, *keyfile;
	uint64_t size; /* of the volume, bytes; 0: all that there is room for */
	bool array, dry_run, yes;
};

/* One stack as it runs. */
struct sight {
	struct stacks stacks;
	struct stack stack;
	struct layers layers;
};

static void look_away(struct sight *sight)
{
	layers_free(&sight->layers);
	stacks_free(&sight->stacks);
}

/* dm-integrity spreads the tags over the size that it was made with. */
static int refuse_tagged(struct sight *sight)
{
	int result = complain(LARDER_UNSAFE,
			      "%s: its encryption has a tag for each sector (luks2-aead, %s), and cannot grow; nothing was changed; make a larger stack, "
			      "and copy the data",
			      sight->stack.name, sight->stack.aead);

	stacks_free(&sight->stacks);
	return result;
}

/* Each step looks anew: what is below has grown meanwhile.  On success look_away() after it. */
static int look(const char *name, struct sight *sight)
{
	const struct found *found;
	int result;

	*sight = (struct sight){ 0 };
	result = stacks_scan(&sight->stacks);
	result = result ? result : stack_find(&sight->stacks, name, &found);
	if (!result && !found->whole)
		result = complain(LARDER_NOT_FOUND, "%s: is not started, or its disks are not here; larder start %s", name, name);
	result = result ? result : stack_check_ready(&sight->stacks, &found->stack);
	if (!result) {
		sight->stack = found->stack;
		if (*sight->stack.aead)
			return refuse_tagged(sight);
		layers_find(&sight->stacks, &sight->stack, &sight->layers);
		if (!sight->layers.volume)
			result = complain(LARDER_NOT_FOUND, "%s: is not started; larder start %s", name, name);
		else if (strcmp(sight->layers.volume->name, sight->layers.volume->target))
			result = complain(LARDER_BUSY, "%s: has snapshots, which cannot grow with it; remove them first: larder snapshot list %s", name, name);
		else if (sight->stack.encrypted && !sight->layers.open)
			result = complain(LARDER_NOT_FOUND, "%s: is locked; larder unlock %s", name, name);
		else if (*sight->stack.fs && !*sight->layers.mounted)
			result = complain(LARDER_NOT_FOUND, "%s: its %s grows while it is mounted, and it is not; mount %s first", name,
					  sight->stack.fs, sight->layers.top);
	}
	if (result)
		look_away(sight);
	return result;
}

static uint64_t device_bytes(dev_t number)
{
	char text[32];

	return device_attribute(number, "size", text, sizeof(text)) ? strtoull(text, NULL, 10) << LARDER_SECTOR_SHIFT : 0;
}

/* Can the LUKS layer have more than it has (*grows)?  Of a volume that is no whole number of its sectors it has nothing more once it is locked. */
static int look_at_crypt(const struct sight *sight, bool *grows)
{
	uint64_t below = device_bytes(sight->layers.volume->number), now = device_bytes(sight->layers.top_number), room;
	const char *name = sight->stack.name;
	char *crypt = crypt_name(&sight->stack);
	unsigned sector;
	int result = luks_room(crypt, below, &room, &sector);

	free(crypt);
	if (result)
		return result;
	*grows = room > now;
	return below % sector ? complain(LARDER_UNSAFE,
					 "%s: its volume has %" PRIu64 " bytes, and its encryption sectors of %u: it cannot be unlocked again; leave it open, "
					 "make its disks larger, then larder volume resize %s --size with a multiple of that, then larder resize %s",
					 name, below, sector, sight->layers.volume->name, name) :
				LARDER_DONE;
}

/* The command that grows the filesystem; words of at most 6. */
static void filesystem_command(const struct sight *sight, const char **words)
{
	const struct layers *layers = &sight->layers;

	if (!strcmp(sight->stack.fs, "ext4")) {
		words[0] = "resize2fs";
		words[1] = layers->top;
		words[2] = NULL;
	} else if (!strcmp(sight->stack.fs, "xfs")) {
		words[0] = "xfs_growfs";
		words[1] = layers->mounted;
		words[2] = NULL;
	} else {
		words[0] = "btrfs";
		words[1] = "filesystem";
		words[2] = "resize";
		words[3] = "max";
		words[4] = layers->mounted;
		words[5] = NULL;
	}
}

/* ------------------------------------------------------------------ the plan */

static void show_array(const struct sight *sight, bool asked)
{
	char a[SIZE_TEXT], b[SIZE_TEXT];
	const char *how = asked ? ": takes them" : "; --array takes them";
	uint64_t now, room;

	if (!*sight->layers.array.node || !md_leg_room(sight->layers.array.device, &now, &room))
		return;
	if (asked && md_lacks(sight->layers.array.device))
		how = ", which it cannot take while it lacks a disk";
	size_print(a, now, &human);
	size_print(b, room, &human);
	if (room <= now)
		printf("  array %s: takes all that the smallest of its disks has\n", sight->layers.array.node);
	else
		printf("  array %s: %s of each disk, %s are there%s%s\n", sight->layers.array.node, a, b, how,
		       asked && md_is_logged(sight->layers.array.device) ? "; for a moment it has no log of its parity" : "");
}

static void show_plan(const struct sight *sight, const struct resize_request *request)
{
	const struct mapped *volume = sight->layers.volume;
	uint64_t now = volume->sectors, room = status_number(volume->status, "room_sectors");
	char a[SIZE_TEXT], b[SIZE_TEXT];
	const char *words[6];

	printf("stack %s:\n", sight->stack.name);
	if (*sight->stack.raid)
		show_array(sight, request->array);
	printf("  volume %s: %s, there is room for %s%s", volume->name, size_print(a, now << LARDER_SECTOR_SHIFT, &human),
	       size_print(b, room << LARDER_SECTOR_SHIFT, &human), request->array ? ", and what the array adds" : "");
	printf("%s%s\n", request->size ? ": takes " : "", request->size ? size_print(a, request->size, &human) : "");
	if (sight->stack.encrypted)
		printf("  encryption: follows the volume\n");
	if (*sight->stack.fs) {
		filesystem_command(sight, words);
		printf("  filesystem: %s, follows what is below it, by", sight->stack.fs);
		for (int i = 0; words[i]; i++)
			printf(" %s", words[i]);
		putchar('\n');
	}
}

/* ------------------------------------------------------------------ the steps */

/* For that moment without the log of the parity of RAID 5 (PPL), with which md refuses it. */
static int grow_disks(const struct md_array *array, bool dry_run)
{
	bool logged = md_is_logged(array->device);
	int result = logged ? md_stop_log(array->node, dry_run) : LARDER_DONE, again;

	result = result ? result : md_grow(array->node, dry_run);
	again = logged && (dry_run || !md_is_logged(array->device)) ? md_set_guard(array->node, array->device, dry_run) : LARDER_DONE;
	return result ? result : again;
}

/* One that is away would be too small for it then, for good; one that is being rebuilt keeps it from growing.  Complains. */
static int check_whole(const struct sight *sight, const struct resize_request *request)
{
	const struct md_array *array = &sight->layers.array;
	const char *name = request->name;
	uint64_t now, room, lacks;

	if (!request->array || !*array->node || !md_leg_room(array->device, &now, &room) || room <= now)
		return LARDER_DONE;
	lacks = md_lacks(array->device);
	return lacks ? complain(LARDER_UNSAFE,
				"%s: --array: %s lacks %d of its disks, or rebuilds them: one that is away could never return to it once it is larger; nothing was changed; "
				"larder start %s --take-back DISK, or larder replace %s OLD NEW, and wait until it has all of them",
				name, array->node, __builtin_popcountll(lacks), name, name) :
		       LARDER_DONE;
}

static int grow_array(const struct sight *sight, const struct resize_request *request)
{
	const struct md_array *array = &sight->layers.array;
	uint64_t now, room, after;
	int result;

	if (!request->array)
		return LARDER_DONE;
	if (!*sight->stack.raid || !strcmp(sight->stack.raid, "0"))
		return complain(LARDER_USAGE, "%s: --array: %s", request->name,
				*sight->stack.raid ? "RAID 0 cannot take more of its disks" : "it has no array");
	if (*sight->stack.integrity)
		return complain(LARDER_USAGE, "%s: --array: below its array is dm-integrity, which stays as large as it was made; nothing was changed", request->name);
	if (!md_leg_room(array->device, &now, &room))
		return complain(LARDER_FAILED, "%s: --array: the sizes of %s cannot be read", request->name, array->node);
	if (md_reshapes(array->device))
		return complain(LARDER_BUSY, "%s: --array: its array is being reshaped; larder resize %s --array once that is done", request->name, request->name);
	/* a try that was killed may have left it frozen, or without */
	result = array_thaw(array);
	if (!result && md_lacks_guard(sight->stack.raid, array->device))
		result = md_set_guard(array->node, array->device, false);
	result = result ? result : check_whole(sight, request);
	if (result || room <= now)
		return result;
	result = grow_disks(array, false);
	if (!result && (!md_leg_room(array->device, &after, &room) || after <= now))
		return complain(LARDER_FAILED, "%s: --array: %s is as large as before: of a disk that is its spare, or has failed, there is no more; larder drop that, or make it larger",
				request->name, array->node);
	if (!result)
		printf("array %s: takes all of its disks now\n", array->node);
	return result;
}

static int grow_volume(const struct sight *sight, const struct resize_request *request)
{
	return volume_resize_running((struct mapped *)sight->layers.volume, request->size, false);
}

static int grow_crypt(const struct sight *sight, const struct resize_request *request)
{
	const struct stack *stack = &sight->stack;
	struct secret secret;
	struct sight now;
	char *name, *node;
	bool grows;
	int result;

	if (!stack->encrypted)
		return LARDER_DONE;
	result = look_at_crypt(sight, &grows);
	if (result || !grows)
		return result;
	turn_give(); /* who types takes his time */
	result = secret_read_old(request->keyfile, stack->keyfile, stack->name, &secret);
	turn_take();
	if (result)
		return result;
	result = look(request->name, &now);
	if (!result) {
		name = crypt_name(&now.stack);
		node = mapper_path(now.layers.volume->name);
		result = luks_resize(node, name, &secret);
		if (!result)
			printf("encryption %s: %" PRIu64 " bytes\n", name, device_bytes(now.layers.top_number));
		free(node);
		free(name);
		look_away(&now);
	}
	secret_free(&secret);
	return result;
}

static int grow_filesystem(const struct sight *sight, const struct resize_request *request)
{
	const char *words[6];
	int code, file;
	char *said;
	bool held;

	if (!*sight->stack.fs)
		return LARDER_DONE;
	filesystem_command(sight, words);
	/* others have their turn, but nobody unmounts it */
	file = open(sight->layers.mounted, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	held = file >= 0 && turn_pause();
	code = program_run(words, &said);
	turn_resume(held);
	if (file >= 0)
		close(file);
	if (code)
		complain(LARDER_FAILED, "%s: %s cannot make the %s on %s larger: %s; then larder resize %s once more", request->name,
			 words[0], sight->stack.fs, sight->layers.top, *said ? said : "no reason given", request->name);
	else
		printf("filesystem %s on %s: has all that is below it\n", sight->stack.fs, sight->layers.mounted);
	free(said);
	return code ? LARDER_FAILED : LARDER_DONE;
}

/* The commands of the whole, as far as they are known before it is begun. */
static int print_commands(const struct sight *sight, const struct resize_request *request)
{
	const char *words[6];
	char *name = crypt_name(&sight->stack);
	int result = LARDER_DONE;

	if (request->array)
		grow_disks(&sight->layers.array, true);
	mapped_init(true);
	result = volume_resize_running((struct mapped *)sight->layers.volume, request->size, true);
	if (sight->stack.encrypted)
		printf("cryptsetup resize %s\n", name);
	if (*sight->stack.fs) {
		filesystem_command(sight, words);
		for (int i = 0; words[i]; i++)
			printf("%s%s", i ? " " : "", words[i]);
		putchar('\n');
	}
	free(name);
	return result;
}

static int resize(const struct resize_request *request)
{
	static int (*const steps[])(const struct sight *sight, const struct resize_request *request) = { grow_array, grow_volume,
													 grow_crypt, grow_filesystem };
	struct sight sight;
	int result = look(request->name, &sight);

	if (result)
		return result;
	show_plan(&sight, request);
	fflush(stdout);
	result = check_whole(&sight, request);
	if (!result)
		result = request->dry_run ? print_commands(&sight, request) :
					    turn_confirm(request->name, request->yes, "Grow it?  Nothing of it can be made smaller again.");
	look_away(&sight);
	for (size_t i = 0; !result && !request->dry_run && i < sizeof(steps) / sizeof(steps[0]); i++) {
		result = look(request->name, &sight);
		if (result)
			break;
		result = steps[i](&sight, request);
		look_away(&sight);
	}
	return result;
}

int stack_resize(int argc, char **argv)
{
	static const char usage[] = "larder resize NAME [--array] [--size SIZE] [--keyfile FILE] [--dry-run] [--yes]";
	struct resize_request request = { .size = VOLUME_SIZE_ALL };
	const struct argument arguments[] = {
		{ "array", 0, ARGUMENT_FLAG, &request.array, NULL, "the array takes all of its disks, too" },
		{ "size", 's', ARGUMENT_SIZE, &request.size, "SIZE", "of the volume (default: all that there is room for)" },
		{ "keyfile", 0, ARGUMENT_TEXT, &request.keyfile, "FILE", "for LUKS, or - to be asked (default: as it was created)" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only say what would be done" },
		{ "yes", 'y', ARGUMENT_FLAG, &request.yes, NULL, "don't ask" },
		ARGUMENTS_END
	};
	int first, result;

	secrets_protect();
	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	if (!request.size)
		return complain(LARDER_USAGE, "--size: is 0; give the size that the volume is to have, or leave it out");
	if (request.size == VOLUME_SIZE_ALL)
		request.size = 0;
	request.name = argv[first];
	mapped_init(false);
	if (!request.dry_run)
		turn_take();
	return resize(&request);
}
