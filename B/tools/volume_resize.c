// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder volume resize: a reload of the volume's table with more sectors, the volume in use or not.  The kernel does the rest, in an
 * order that stands a power cut (kernel/grow.c), and says by room_sectors how many there may be.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "create.h"
#include "resize.h"
#include "running.h"
#include "turn.h"
#include "verbs.h"

#define BLOCK_SECTORS 8 /* 4096 bytes, the largest block of what lies above: LUKS takes such sectors where the size of the volume has whole ones */

/* What has whole blocks keeps them: dm-crypt, and so LUKS, refuses a volume behind whose end a part of one of its sectors lies. */
static bool keeps_blocks(uint64_t now, uint64_t sectors) { return now % BLOCK_SECTORS || !(sectors % BLOCK_SECTORS); }

/* Sectors, or a complaint.  bytes 0: all that there is room for. */
static int wanted(const struct mapped *volume, uint64_t bytes, uint64_t *sectors)
{
	uint64_t room = status_number(volume->status, "room_sectors"), now = volume->sectors;
	char block[16] = "512", *backing = NULL, *params = NULL;
	int result = mapped_table(volume, &params);

	if (result)
		return result;
	backing = must_print("%.*s", (int)strcspn(params, " "), params);
	free(params);
	device_attribute(volume->number, "queue/logical_block_size", block, sizeof(block));
	*sectors = bytes ? bytes >> LARDER_SECTOR_SHIFT : keeps_blocks(now, room) ? room : room - room % BLOCK_SECTORS;
	if (strcmp(volume->name, volume->target))
		result = complain(LARDER_BUSY, "%s: has snapshots, which cannot grow with it; remove them first: larder snapshot list", volume->name);
	else if (room < now)
		result = complain(LARDER_UNSAFE,
				  "%s: its disk %s has become smaller than the volume (room for %" PRIu64 " sectors of %" PRIu64
				  "): make that as large as it was, at once",
				  volume->name, backing, room, now);
	else if (bytes % strtoul(block, NULL, 10))
		result = complain(LARDER_USAGE, "%s: --size: must be a multiple of the logical block size, %s bytes", volume->name, block);
	else if (!keeps_blocks(now, *sectors))
		result = complain(LARDER_USAGE, "%s: --size: must be a multiple of %u bytes, as it is now: what lies above may have such blocks", volume->name,
				  BLOCK_SECTORS << LARDER_SECTOR_SHIFT);
	else if (*sectors < now)
		result = complain(LARDER_UNSAFE,
				  "%s: --size: the volume has %" PRIu64 " bytes, and a volume cannot be made smaller: what lies behind "
				  "would be lost",
				  volume->name, now << LARDER_SECTOR_SHIFT);
	else if (*sectors > room)
		result = complain(LARDER_FAILED, "%s: --size: its disk %s has room for %" PRIu64 " bytes; make that larger first",
				  volume->name, backing, room << LARDER_SECTOR_SHIFT);
	free(backing);
	return result;
}

int volume_resize_running(struct mapped *volume, uint64_t bytes, bool dry_run)
{
	uint64_t sectors, now = volume->sectors;
	char *params = NULL;
	int result = wanted(volume, bytes, &sectors);

	if (result)
		return result;
	if (sectors == now) {
		printf("volume %s: has %" PRIu64 " bytes already, %s\n", volume->name, now << LARDER_SECTOR_SHIFT,
		       bytes ? "as asked for" : "all that there is room for");
		return LARDER_DONE;
	}
	result = mapped_table(volume, &params);
	result = result ? result : mapped_reload(volume->target, TARGET_VOLUME, sectors, params);
	free(params);
	if (!result && !dry_run)
		printf("volume %s: %" PRIu64 " bytes, %" PRIu64 " before\n", volume->name, sectors << LARDER_SECTOR_SHIFT,
		       now << LARDER_SECTOR_SHIFT);
	return result;
}

int volume_resize(int argc, char **argv)
{
	static const char usage[] = "larder volume resize NAME|UUID|DEVICE [--size SIZE] [--dry-run]";
	uint64_t size = VOLUME_SIZE_ALL;
	bool dry_run = false;
	const struct argument arguments[] = {
		{ "size", 's', ARGUMENT_SIZE, &size, "SIZE", "of the volume (default: all that there is room for)" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &dry_run, NULL, "only print the dmsetup commands" },
		ARGUMENTS_END
	};
	struct mapped *volume;
	struct mapped_list list;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	if (!size)
		return complain(LARDER_USAGE, "--size: is 0; give the size that the volume is to have, or leave it out");
	mapped_init(dry_run);
	if (!dry_run)
		turn_take(); /* a table that is read is loaded: nobody attaches or detaches it in between */
	result = mapped_scan(&list);
	result = result ? result : running_find(&list, argv[first], false, &volume);
	result = result ? result : volume_resize_running(volume, size == VOLUME_SIZE_ALL ? 0 : size, dry_run);
	mapped_list_free(&list);
	return result;
}
