// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The devices that a new stack claims, before any of them is written to: disks, SSDs, spares of both.
 *
 * Each is opened as for a dry run (claim.h), judged, and closed again; who writes to it later claims it anew, and sees whether it
 * is the same.  What an array will have is an estimate before it is there.
 */
#include <inttypes.h>
#include <string.h>

#include "claim.h"
#include "create.h"
#include "integrity.h"
#include "layout.h"
#include "luks.h"
#include "message.h"
#include "size.h"
#include "stack_claims.h"

#define VOLUME_ENDS (LARDER_DEF_DATA_OFFSET + LARDER_DEF_TAIL_RESERVE) /* bytes in front of the data of a volume, and behind them */
#define TAGS_LEAST  (4u << 20) /* of dm-integrity's journal and tags on a small volume */

static const struct size_format human = { 'h', true };

/* ------------------------------------------------------------------ which they are */

/* Behind those that are in paths; returns how many are then. */
static int put_paths(const char **paths, int number, const struct argument_list *list)
{
	for (int i = 0; i < list->number; i++)
		paths[number++] = list->value[i];
	return number;
}

int claims_check_twice(const struct stack_request *request, const struct stack *stack)
{
	const char *paths[4 * ARGUMENT_LIST_MAX];
	int number = put_paths(paths, 0, &request->disks);

	number = put_paths(paths, number, &request->spares);
	number = put_paths(paths, number, &request->cache_spares);
	if (stack->own_cache)
		number = put_paths(paths, number, &request->caches);
	for (int i = 0; i < number; i++)
		for (int j = 0; j < i; j++) {
			if (create_is_same(paths[i], paths[j]))
				return complain(LARDER_USAGE, "%s: is given twice (also as %s)", paths[i], paths[j]);
			if (create_is_partition(paths[i], paths[j]) || create_is_partition(paths[j], paths[i]))
				return complain(LARDER_USAGE, "%s and %s: one is a partition of the other", paths[i], paths[j]);
		}
	return LARDER_DONE;
}

/* A spare is to be one of them. */
static int check_apart(const struct argument_list *members, const struct argument_list *spares, const char *what)
{
	const char *paths[2 * ARGUMENT_LIST_MAX];
	int number = put_paths(paths, 0, members);

	number = put_paths(paths, number, spares);
	return create_check_apart(paths, number, what);
}

/* ------------------------------------------------------------------ one of them */

static uint64_t volume_room(const struct device *device)
{
	struct volume_layout layout = { .tail_reserve = LARDER_DEF_TAIL_RESERVE };
	struct device_topology topology;

	device_topology(device, &topology);
	layout.data_offset = volume_data_offset(&topology, device->bytes);
	return volume_layout(&layout, device->bytes, device->logical_block) ? 0 : layout.sectors << LARDER_SECTOR_SHIFT;
}

static int check_device(const struct stack_request *request, const char *path, struct claim *claim)
{
	struct claim_request dry = { .path = path, .wipe = request->wipe, .discard_dirty = request->discard_dirty, .yes = true,
				     .dry_run = true };
	struct device device;
	int result = claim_open(&device, &dry);

	if (result)
		return result;
	*claim = (struct claim){ device.bytes, volume_room(&device), device.logical_block };
	if (!device.block && !request->dry_run)
		result = complain(LARDER_USAGE, "%s: is a regular file; make a block device of it with losetup", path);
	result = result ? result : claim_clear(&device, &dry);
	device_close(&device);
	return result;
}

/* ------------------------------------------------------------------ room for the volume */

/* Bytes of its data, at least. */
static uint64_t least_data(const struct stack *stack)
{
	uint64_t fs = !strcmp(stack->fs, "xfs") ? 300u << 20 : !strcmp(stack->fs, "btrfs") ? 128u << 20 : 4u << 20;

	return (stack->encrypted ? LUKS_HEADER : 0) + (*stack->aead ? TAGS_LEAST : 0) + fs;
}

static uint64_t least_volume(const struct stack *stack)
{
	return VOLUME_ENDS + least_data(stack);
}

/* Where the volume goes has that much room for it, at least. */
static int check_size(const struct stack *stack, const char *where, uint64_t room)
{
	char a[SIZE_TEXT], b[SIZE_TEXT];

	if (!stack->size)
		return LARDER_DONE;
	size_print(a, stack->size, &human);
	if (stack->size < least_data(stack))
		return complain(LARDER_USAGE, "--size: too small: it is %s, and this stack needs a volume of %s at least", a,
				size_print(b, least_data(stack), &human));
	if (stack->size <= room)
		return LARDER_DONE;
	return complain(LARDER_FAILED,
			"%s: --size: %s are more than it has room for, %s (%" PRIu64 " bytes); give no more, or leave it out: the volume takes all then",
			where, a, size_print(b, room, &human), room);
}

static int check_separate(const struct argument_list *disks, const struct stack *stack, const struct claims *claims)
{
	char a[SIZE_TEXT], b[SIZE_TEXT];
	int result = LARDER_DONE;

	for (int i = 0; !result && i < disks->number; i++) {
		if (claims->disk[i].bytes < least_volume(stack))
			return complain(LARDER_FAILED, "%s: size: too small: it has %s, and a volume of its own needs %s",
					disks->value[i], size_print(a, claims->disk[i].bytes, &human),
					size_print(b, least_volume(stack), &human));
		result = check_size(stack, disks->value[i], claims->disk[i].room);
	}
	return result;
}

/*
 * Of all the volume may have where it lies on an array, which is not there yet: its data begin behind a stripe, of chunks of 512
 * KiB, at most.  Not too much, or it would be refused when all disks have been overwritten.
 */
static uint64_t array_room(const struct stack *stack, uint64_t all)
{
	uint64_t taken = VOLUME_ENDS + stack->legs * (uint64_t)MD_CHUNK;

	return (all > taken ? all - taken : 0) & ~(uint64_t)(LARDER_SLOT_SIZE - 1);
}

/* Bytes for the volume, about. */
static uint64_t usable(const struct stack *stack, struct claims *claims)
{
	uint64_t bytes[MD_LEGS_MAX];

	for (uint32_t i = 0; i < stack->legs; i++)
		bytes[i] = *stack->integrity ? leg_capacity(claims->disk[i].bytes) : claims->disk[i].bytes;
	return *stack->raid ? md_capacity(stack->raid, bytes, stack->legs, &claims->unused) : bytes[0];
}

static int check_room(const struct argument_list *disks, const struct stack *stack, struct claims *claims)
{
	uint64_t all = usable(stack, claims);
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];

	if (all < least_volume(stack))
		return complain(LARDER_FAILED, "%s: size: too small: of %s about %s would be left, and this stack needs %s",
				disks->value[0], size_print(a, claims->least, &human), size_print(b, all, &human),
				size_print(c, least_volume(stack), &human));
	return *stack->raid ? check_size(stack, "--raid", array_room(stack, all)) :
			      check_size(stack, disks->value[0], claims->disk[0].room);
}

/* ------------------------------------------------------------------ all of them */

static int look_at_disks(const struct stack_request *request, const struct stack *stack, struct claims *claims)
{
	const struct argument_list *disks = &request->disks;
	bool redundant = *stack->raid && strcmp(stack->raid, "0");
	int result = redundant ? check_apart(disks, &request->spares, "disk") : LARDER_DONE;

	claims->least = UINT64_MAX;
	claims->block = *stack->integrity ? LEG_BLOCK : 0;
	for (int i = 0; !result && i < disks->number; i++) {
		struct claim *disk = &claims->disk[i];

		result = check_device(request, disks->value[i], disk);
		claims->least = disk->bytes < claims->least ? disk->bytes : claims->least;
		claims->block = disk->block > claims->block ? disk->block : claims->block;
	}
	if (result)
		return result;
	return request->separate ? check_separate(disks, stack, claims) : check_room(disks, stack, claims);
}

/* Each must be able to take the place of any disk: the array takes as much of each as the smallest has. */
static int look_at_spares(const struct stack_request *request, const struct claims *claims)
{
	char a[SIZE_TEXT], b[SIZE_TEXT];
	struct claim spare;
	int result = LARDER_DONE;

	for (int i = 0; !result && i < request->spares.number; i++) {
		const char *path = request->spares.value[i];

		result = check_device(request, path, &spare);
		result = result ? result : create_check_block(path, spare.block, claims->block);
		if (!result && spare.bytes < claims->least)
			result = complain(LARDER_FAILED,
					  "%s: size: too small for a spare: it has %s, and the array takes %s of each disk", path,
					  size_print(a, spare.bytes, &human), size_print(b, claims->least, &human));
	}
	return result;
}

/* layout: its size of segments, once chosen, is that of all.  behind: so many segments of others, of its cache. */
static int look_at_ssd(const struct stack_request *request, const char *path, struct cache_layout *layout, uint32_t behind)
{
	struct claim ssd;
	const char *why;
	int result = check_device(request, path, &ssd);

	if (result)
		return result;
	why = cache_layout(layout, ssd.bytes, ssd.block);
	why = why ? why : cache_layout_behind(layout, behind);
	return why ? complain(LARDER_FAILED, "%s: %s", path, why) : LARDER_DONE;
}

static int look_at_ssds(const struct stack_request *request)
{
	const struct argument_list *ssds = &request->caches, *spares = &request->cache_spares;
	struct cache_layout layout = { 0 };
	uint32_t least = UINT32_MAX, sum = 0;
	int result = check_apart(ssds, spares, "SSD");

	for (int i = 0; !result && i < ssds->number; i++) {
		result = look_at_ssd(request, ssds->value[i], &layout, sum);
		sum += layout.nr_segments;
		least = layout.nr_segments < least ? layout.nr_segments : least;
	}
	for (int i = 0; !result && i < spares->number; i++) {
		result = look_at_ssd(request, spares->value[i], &layout, 0);
		if (!result && layout.nr_segments < least)
			result = complain(LARDER_FAILED,
					  "%s: size: has room for %u segments, the smallest SSD of the cache has %u: it could replace none; give a larger one",
					  spares->value[i], layout.nr_segments, least);
	}
	return result;
}

int claims_look(const struct stack_request *request, const struct stack *stack, struct claims *claims)
{
	int result = look_at_disks(request, stack, claims);

	result = result ? result : look_at_spares(request, claims);
	return result || !stack->own_cache ? result : look_at_ssds(request);
}
