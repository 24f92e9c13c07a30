// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache create: format SSDs as a cache.
 *
 * All devices are opened, all sizes, and what lies on each, judged, and all questions asked, before the first byte is written.
 * The log needs no formatting: with epoch 0 and no checkpoint there is none, and the secret of the first epoch, which the kernel
 * draws at the first start, tells whatever lies in the segments from its records.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "arguments.h"
#include "create.h"
#include "layout.h"
#include "stack_names.h"
#include "tiers.h"
#include "verbs.h"

/* One SSD of the set being made. */
struct ssd {
	struct device device;
	struct cache_layout layout;
	uint32_t role;
	union superblock *sb;
};

/* before: the one that it lies behind in the cache, whose size of segments is that of the set; or NULL */
static int open_one(struct ssd *ssd, const char *path, const struct cache_request *request, const struct ssd *before)
{
	struct claim_request claim = request->claim;
	const char *why;
	int result;

	claim.path = path;
	result = claim_open(&ssd->device, &claim);
	if (result)
		return result;
	ssd->layout.segment_size = before ? before->layout.segment_size : (uint32_t)request->segment_size;
	why = cache_layout(&ssd->layout, ssd->device.bytes, ssd->device.logical_block);
	if (!why && before)
		why = cache_layout_behind(&ssd->layout, before->layout.first_segment + before->layout.nr_segments);
	if (!why)
		return LARDER_DONE;
	device_close(&ssd->device);
	return complain(LARDER_FAILED, "%s: %s", path, why);
}

static void fill_superblocks(struct ssd *ssds, int number, const struct cache_request *request)
{
	uint8_t cache_uuid[16];

	if (request->uuid)
		memcpy(cache_uuid, request->uuid, 16);
	else
		uuid_generate_random(cache_uuid);
	for (int i = 0; i < number; i++) {
		struct larder_cache_sb *sb;

		ssds[i].sb = device_buffer(LARDER_SB_SIZE);
		sb = &ssds[i].sb->cache;
		create_head(&sb->head, LARDER_KIND_CACHE, &ssds[i].device, ssds[i].layout.copy_offset);
		memcpy(sb->cache_uuid, cache_uuid, 16);
		memcpy(sb->label, request->label, strlen(request->label));
		sb->device_number = htole32((uint32_t)i);
		sb->nr_devices = htole32((uint32_t)number);
		sb->set_generation = htole64(1);
		sb->role = htole32(ssds[i].role);
		sb->segment_size = htole32(ssds[i].layout.segment_size);
		sb->first_segment = htole32(ssds[i].layout.first_segment);
		sb->nr_segments = htole32(ssds[i].layout.nr_segments);
		sb->segments_offset = htole64(ssds[i].layout.segments_offset);
		sb->table_generation = htole64(1);
		for (unsigned c = 0; c < LARDER_NR_CHECKPOINTS; c++)
			sb->checkpoint[c].first_segment = htole32(LARDER_NO_SEGMENT);
		if (request->stack)
			memcpy(sb->stack, request->stack, LARDER_STACK_SIZE);
	}
}

static void fill_table(struct larder_table *table, const struct ssd *ssds, int number)
{
	table->head.generation = htole64(1);
	table->head.set_generation = htole64(1);
	memcpy(table->head.cache_uuid, ssds[0].sb->cache.cache_uuid, 16);
	table->head.nr_devices = htole32((uint32_t)number);
	for (int i = 0; i < number; i++) {
		struct larder_table_device *d = &table->devices[i];

		memcpy(d->uuid, ssds[i].sb->head.uuid, 16);
		d->state = htole32(LARDER_DEVICE_ACTIVE);
		d->role = ssds[i].sb->cache.role;
		d->first_segment = ssds[i].sb->cache.first_segment;
		d->nr_segments = ssds[i].sb->cache.nr_segments;
		d->segments_offset = ssds[i].sb->cache.segments_offset;
	}
}

static int write_one(const struct ssd *ssd, struct larder_table *table, bool dry_run)
{
	const struct device *device = &ssd->device;
	int error, result;

	if (dry_run) {
		printf("write table to %s at byte %u and %u\n", device->path, LARDER_TABLE_OFFSET_A, LARDER_TABLE_OFFSET_B);
		return create_superblock(device, ssd->sb, true);
	}
	result = create_zero(device, LARDER_SB_OFFSET, LARDER_TABLE_OFFSET_A);
	result = result ? result : create_zero(device, LARDER_TABLE_OFFSET_B + LARDER_TABLE_SIZE, ssd->layout.segments_offset);
	if (result)
		return result;
	error = tables_write(device, table);
	if (error)
		return complain(LARDER_FAILED, "%s: cannot write the table: %s", device->path, strerror(-error));
	return create_superblock(device, ssd->sb, false);
}

static void report_made(const struct ssd *ssds, const struct cache_request *request)
{
	const struct size_format human = { 'h', true };
	char size[SIZE_TEXT], uuid[UUID_TEXT];

	printf("cache %s: UUID %s, %u segments of %s%s\n", request->label, uuid_text(ssds[0].sb->cache.cache_uuid, uuid),
	       ssds[0].layout.nr_segments, size_print(size, ssds[0].layout.segment_size, &human),
	       request->claim.dry_run ? " (dry run: nothing was written)" : "");
}

static int clear_set(const struct ssd *ssds, int number, const struct cache_request *request)
{
	struct claim_request claim = request->claim;
	int result = LARDER_DONE;

	for (int i = 0; !result && i < number; i++)
		result = claim_judge(&ssds[i].device, &claim);
	claim.judged = true;
	for (int i = 0; !result && i < number; i++)
		result = claim_clear(&ssds[i].device, &claim);
	return result;
}

static int format_set(struct ssd *ssds, int number, const struct cache_request *request)
{
	struct larder_table *table;
	int result = clear_set(ssds, number, request);

	if (result)
		return result;
	fill_superblocks(ssds, number, request);
	table = device_buffer(LARDER_TABLE_SIZE);
	fill_table(table, ssds, number);
	for (int i = 0; !result && i < number; i++)
		result = write_one(&ssds[i], table, request->claim.dry_run);
	free(table);
	if (!result)
		report_made(ssds, request);
	return result;
}

int cache_format(const struct cache_request *request)
{
	struct ssd ssds[LARDER_MAX_DEVICES] = { 0 };
	int number = 0, result = create_check_apart(request->paths.value, request->paths.number, "SSD");

	while (!result && number < request->paths.number) {
		if (request->roles.number && !role_parse(request->roles.value[number], &ssds[number].role))
			result = complain(LARDER_USAGE, "--role: '%s' is not one of both, write, read", request->roles.value[number]);
		else
			result = open_one(&ssds[number], request->paths.value[number], request, number ? &ssds[number - 1] : NULL);
		number += !result;
	}
	if (!result)
		result = format_set(ssds, number, request);
	for (int i = 0; i < number; i++) {
		device_close(&ssds[i].device);
		free(ssds[i].sb);
	}
	return result;
}

/* The labels of the SSDs lie where the stacks do that use the cache: there is none yet. */
static int put_labels(const struct argument_list *labels, struct cache_request *request, uint8_t field[static LARDER_STACK_SIZE])
{
	struct stack_list *list;
	struct tier_set set;
	int result = tiers_new_set(labels, request->paths.number, &set);

	if (result)
		return result;
	list = must_allocate(calloc(1, sizeof(*list)));
	memcpy(list->label, set.label, sizeof(list->label));
	stack_list_encode(list, field); /* 16 labels fit */
	request->stack = field;
	free(list);
	return LARDER_DONE;
}

int cache_create(int argc, char **argv)
{
	static const char usage[] =
		"larder cache create NAME --cache SSD... [--role ROLE...] [--cache-label LABEL...] [--label TEXT] [--segment-size SIZE] [--wipe] [--discard-dirty UUID] "
		"[--dry-run] [--yes]";
	struct cache_request request = { 0 };
	struct argument_list labels = { 0 };
	uint8_t field[LARDER_STACK_SIZE];
	const struct argument arguments[] = {
		{ "cache", 'c', ARGUMENT_LIST, &request.paths, "SSD", "the device to format; give it once for each SSD of the set" },
		{ "role", 'r', ARGUMENT_LIST, &request.roles, "ROLE", "of the SSD: both, write or read; once for each SSD, in their order" },
		{ "cache-label", 0, ARGUMENT_LIST, &labels, "LABEL", "of the SSDs, for --foreground and --promote: once for each, or once for all" },
		{ "label", 'L', ARGUMENT_TEXT, &request.label, "TEXT", "label to store (default: NAME)" },
		{ "segment-size", 's', ARGUMENT_SIZE, &request.segment_size, "SIZE",
		  "128K to 16M (default: by size, 2M from 1G on)" },
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
	if (!request.paths.number)
		return complain(LARDER_USAGE, "--cache: is missing; usage: %s", usage);
	if (request.paths.number > (int)LARDER_MAX_DEVICES)
		return complain(LARDER_USAGE, "--cache: given %d times; a cache has at most %u SSDs", request.paths.number,
				LARDER_MAX_DEVICES);
	if (request.roles.number && request.roles.number != request.paths.number)
		return complain(LARDER_USAGE, "--role: given %d times; give it once for each --cache, in their order, or not at all",
				request.roles.number);
	if (request.segment_size > LARDER_MAX_SEGMENT_SIZE)
		return complain(LARDER_USAGE, "--segment-size: must be a power of two from 128K to 16M");
	mapped_init(request.claim.dry_run);
	result = put_labels(&labels, &request, field);
	result = result ? result : create_check_names(request.name, request.label, LARDER_KIND_CACHE);
	result = result ? result : stack_check_label(request.label, LARDER_KIND_CACHE);
	return result ? result : cache_format(&request);
}
