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
#include "running.h"
#include "size.h"
#include "stack_claims.h"

#define TAGS_LEAST (4u << 20) /* bytes of dm-integrity's journal and tags on a small volume */

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

static uint64_t volume_room(const struct device *device, const struct device_topology *topology)
{
	struct volume_layout layout = { .tail_reserve = LARDER_DEF_TAIL_RESERVE };

	layout.data_offset = volume_data_offset(topology, device->bytes);
	return volume_layout(&layout, device->bytes, device->logical_block) ? 0 : layout.sectors << LARDER_SECTOR_SHIFT;
}

/* stack: it is a disk of that; NULL: an SSD. */
static int check_device(const struct stack_request *request, const char *path, const struct stack *stack, struct claim *claim)
{
	struct claim_request dry = { .path = path, .wipe = request->wipe, .discard_dirty = request->discard_dirty, .yes = true,
				     .dry_run = true };
	struct device device;
	int result = claim_open(&device, &dry);

	if (result)
		return result;
	*claim = (struct claim){ .bytes = device.bytes, .block = device.logical_block };
	device_topology(&device, &claim->topology);
	claim->room = volume_room(&device, &claim->topology);
	if (!device.block && !request->dry_run)
		result = complain(LARDER_USAGE, "%s: is a regular file; make a block device of it with losetup", path);
	if (!result && device.block && stack && !stack->own_cache) /* of a cache that is there it may lie on a volume */
		result = running_check_entangled(NULL, path, device.number, stack->cache);
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

/* Of so many bytes a volume has that much room for its data.  about: as far as that is known before there is one. */
static int check_least(const struct stack *stack, const char *where, uint64_t bytes, uint64_t room, const char *about)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];

	if (room >= least_data(stack))
		return LARDER_DONE;
	return complain(LARDER_FAILED,
			"%s: size: too small: of %s %s%s would be left for the data of its volume, and this stack needs %s; give a larger one",
			where, size_print(a, bytes, &human), about, size_print(b, room, &human),
			size_print(c, least_data(stack), &human));
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
	int result = LARDER_DONE;

	for (int i = 0; !result && i < disks->number; i++) {
		const struct claim *disk = &claims->disk[i];

		result = check_least(stack, disks->value[i], disk->bytes, disk->room, "");
		result = result ? result : check_size(stack, disks->value[i], disk->room);
	}
	return result;
}

/*
 * For the data of a volume on an array, which is not there yet: they begin with one of its stripes, of chunks of 512 KiB, at most,
 * or with what its disks want their requests to be.  Not too much, or it would be refused when all disks have been overwritten.
 */
static uint64_t array_room(const struct stack *stack, struct claims *claims)
{
	uint64_t stripe = strcmp(stack->raid, "1") ? stack->legs * (uint64_t)MD_CHUNK : 0;
	uint64_t bytes[MD_LEGS_MAX], all, together = 0, taken;
	struct device_topology topologies[MD_LEGS_MAX];

	for (uint32_t i = 0; i < stack->legs; i++) {
		bytes[i] = *stack->integrity ? leg_capacity(claims->disk[i].bytes) : claims->disk[i].bytes;
		together += bytes[i];
		topologies[i] = claims->disk[i].topology;
	}
	all = md_capacity(stack->raid, bytes, stack->legs, &claims->unused);
	taken = array_data_offset_most(topologies, stack->legs, stripe, together) + LARDER_DEF_TAIL_RESERVE;
	return (all > taken ? all - taken : 0) & ~(uint64_t)(LARDER_SLOT_SIZE - 1);
}

static int check_room(const struct argument_list *disks, const struct stack *stack, struct claims *claims)
{
	uint64_t room = *stack->raid ? array_room(stack, claims) : claims->disk[0].room;
	int result = check_least(stack, disks->value[0], claims->least, room, *stack->raid ? "about " : "");

	return result ? result : check_size(stack, *stack->raid ? "--raid" : disks->value[0], room);
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

		result = check_device(request, disks->value[i], stack, disk);
		claims->least = disk->bytes < claims->least ? disk->bytes : claims->least;
		claims->block = disk->block > claims->block ? disk->block : claims->block;
	}
	if (result)
		return result;
	return request->separate ? check_separate(disks, stack, claims) : check_room(disks, stack, claims);
}

/* Each must be able to take the place of any disk: the array takes as much of each as the smallest has. */
static int look_at_spares(const struct stack_request *request, const struct stack *stack, const struct claims *claims)
{
	char a[SIZE_TEXT], b[SIZE_TEXT];
	struct claim spare;
	int result = LARDER_DONE;

	for (int i = 0; !result && i < request->spares.number; i++) {
		const char *path = request->spares.value[i];

		result = check_device(request, path, stack, &spare);
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
	int result = check_device(request, path, NULL, &ssd);

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

	result = result ? result : look_at_spares(request, stack, claims);
	return result || !stack->own_cache ? result : look_at_ssds(request);
}
