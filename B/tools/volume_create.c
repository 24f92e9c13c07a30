// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder volume create: format a disk as the backing of a volume.
 *
 * What is reserved, [4096, data_offset) and the tail, is zeroed (the outer 16 MiB of it, where it is that large), so that no old
 * signature in it is ever found; the volume's own sectors, between them, are not touched.  With --cache the superblock names the
 * cache, and `volume start` starts both.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "create.h"
#include "layout.h"
#include "running.h"
#include "scan.h"
#include "stack_names.h"
#include "verbs.h"

#define CLEARED_MAX (16u << 20) /* bytes of a reserve that are zeroed: signatures lie at its outer end */

static int find_cache(const char *name, uint8_t uuid[16])
{
	const struct member *cache;
	struct members members;
	int result;

	members_scan(&members);
	result = member_find(&members, name, LARDER_KIND_CACHE, &cache);
	if (!result)
		memcpy(uuid, cache->sb.cache.cache_uuid, 16);
	members_free(&members);
	return result;
}

static void fill_superblock(union superblock *block, const struct device *device, const struct volume_request *request,
			    const uint8_t cache_uuid[16])
{
	struct larder_volume_sb *sb = &block->volume;

	create_head(&sb->head, LARDER_KIND_VOLUME, device, request->layout.copy_offset);
	if (request->uuid)
		memcpy(sb->head.uuid, request->uuid, 16);
	if (request->stack)
		memcpy(sb->stack, request->stack, LARDER_STACK_SIZE);
	memcpy(sb->cache_uuid, cache_uuid, 16);
	memcpy(sb->label, request->label, strlen(request->label));
	sb->mode = htole32(request->mode);
	sb->data_offset = htole64(request->layout.data_offset);
	sb->tail_reserve = htole64(request->layout.tail_reserve);
	sb->sectors = htole64(request->layout.sectors);
	sb->incarnation = htole64(1);
}

static int write_all(const struct device *device, union superblock *sb, const struct volume_request *request)
{
	uint64_t head = request->layout.data_offset, end = device->bytes & ~(uint64_t)(LARDER_SB_SIZE - 1),
		 tail = request->layout.tail_reserve;
	int result;

	if (request->claim.dry_run)
		return create_superblock(device, sb, true);
	tail = tail < CLEARED_MAX ? tail : CLEARED_MAX;
	result = create_zero(device, LARDER_SB_OFFSET, head < CLEARED_MAX ? head : CLEARED_MAX);
	/* on a device of odd size the reserve begins within 4 KiB of which the rest is the volume's: round inwards */
	if (!result && tail)
		result = create_zero(device, (device->bytes - tail + LARDER_SB_SIZE - 1) & ~(uint64_t)(LARDER_SB_SIZE - 1), end);
	return result ? result : create_superblock(device, sb, false);
}

static int format_device(const struct device *device, const struct volume_request *request, const uint8_t cache_uuid[16])
{
	const struct size_format human = { 'h', true };
	char size[SIZE_TEXT], uuid[UUID_TEXT];
	union superblock *sb;
	int result = claim_clear(device, &request->claim);

	if (result)
		return result;
	sb = device_buffer(LARDER_SB_SIZE);
	fill_superblock(sb, device, request, cache_uuid);
	result = write_all(device, sb, request);
	if (!result)
		printf("volume %s: UUID %s, %s%s\n", request->label, uuid_text(sb->head.uuid, uuid),
		       size_print(size, request->layout.sectors << LARDER_SECTOR_SHIFT, &human),
		       request->claim.dry_run ? " (dry run: nothing was written)" : "");
	free(sb);
	return result;
}

static void choose_data_offset(struct volume_request *request, const struct device *device)
{
	struct device_topology topology;

	if (request->layout.data_offset != DATA_OFFSET_CHOSEN)
		return;
	device_topology(device, &topology);
	request->layout.data_offset = volume_data_offset(&topology, device->bytes);
}

/* The rest of the device stays free. */
static int take_size(struct volume_request *request, const struct device *device)
{
	uint64_t room = request->layout.sectors << LARDER_SECTOR_SHIFT;

	if (request->size == VOLUME_SIZE_ALL)
		return LARDER_DONE;
	if (!request->size || request->size % LARDER_SLOT_SIZE || request->size % device->logical_block)
		return complain(LARDER_USAGE, "%s: --size: must be a multiple of 4096 bytes, and of the device's logical block size, %u; and not 0",
				device->path, device->logical_block);
	if (request->size > room)
		return complain(LARDER_FAILED, "%s: --size: is %" PRIu64 " bytes, and the device has room for a volume of %" PRIu64 "; give no more, or leave it out",
				device->path, request->size, room);
	request->layout.sectors = request->size >> LARDER_SECTOR_SHIFT;
	return LARDER_DONE;
}

int volume_format(struct volume_request *request)
{
	uint8_t cache_uuid[16] = { 0 };
	struct device device;
	const char *why;
	int result = create_check_names(request->name, request->label, LARDER_KIND_VOLUME);

	if (!result && request->cache)
		result = find_cache(request->cache, cache_uuid);
	result = result ? result : claim_open(&device, &request->claim);
	if (result)
		return result;
	if (request->cache && device.block)
		result = running_check_entangled(NULL, device.path, device.number, cache_uuid);
	choose_data_offset(request, &device);
	why = volume_layout(&request->layout, device.bytes, device.logical_block);
	if (!result && why)
		result = complain(LARDER_FAILED, "%s: %s", device.path, why);
	result = result ? result : take_size(request, &device);
	result = result ? result : format_device(&device, request, cache_uuid);
	device_close(&device);
	return result;
}

int volume_create(int argc, char **argv)
{
	static const char usage[] =
		"larder volume create NAME --backing DISK [--cache CACHE] [--mode MODE] [--data-offset SIZE] [--tail-reserve SIZE] "
		"[--size SIZE] [--label TEXT] [--wipe] [--discard-dirty UUID] [--dry-run] [--yes]";
	struct volume_request request = {
		.mode_name = "writeback",
		.layout = { .data_offset = DATA_OFFSET_CHOSEN, .tail_reserve = LARDER_DEF_TAIL_RESERVE },
		.size = VOLUME_SIZE_ALL,
	};
	const struct argument arguments[] = {
		{ "backing", 'b', ARGUMENT_TEXT, &request.path, "DISK", "the device to format" },
		{ "cache", 'c', ARGUMENT_TEXT, &request.cache, "CACHE", "cache to use: label, UUID or SSD (default: none yet)" },
		{ "mode", 'm', ARGUMENT_TEXT, &request.mode_name, "MODE", "writeback (default), writethrough, writearound" },
		{ "data-offset", 0, ARGUMENT_SIZE, &request.layout.data_offset, "SIZE",
		  "where the data begin (default: 1M, or with a stripe; at least 8K)" },
		{ "tail-reserve", 0, ARGUMENT_SIZE, &request.layout.tail_reserve, "SIZE",
		  "left free at the end (default: 1M; may be 0)" },
		{ "size", 's', ARGUMENT_SIZE, &request.size, "SIZE", "of the volume (default: all that there is room for); volume resize takes the rest" },
		{ "label", 'L', ARGUMENT_TEXT, &request.label, "TEXT", "label to store (default: NAME)" },
		{ "wipe", 'W', ARGUMENT_FLAG, &request.claim.wipe, NULL, "remove what is on the device" },
		{ "discard-dirty", 0, ARGUMENT_TEXT, &request.claim.discard_dirty, "UUID",
		  "also if this cache's or volume's dirty data is LOST" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.claim.dry_run, NULL, "only say what would be done" },
		{ "yes", 'y', ARGUMENT_FLAG, &request.claim.yes, NULL, "don't ask" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	request.name = argv[first];
	request.label = request.label ? request.label : request.name;
	if (!request.path)
		return complain(LARDER_USAGE, "--backing: is missing; usage: %s", usage);
	if (!mode_parse(request.mode_name, &request.mode))
		return complain(LARDER_USAGE, "--mode: '%s' is not one of writeback, writethrough, writearound", request.mode_name);
	request.claim.path = request.path;
	mapped_init(request.claim.dry_run);
	result = stack_check_label(request.label, LARDER_KIND_VOLUME);
	return result ? result : volume_format(&request);
}
