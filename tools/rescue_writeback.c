// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder rescue writeback: dirty data of a volume to its disk, and the disk made to stand alone.
 *
 * All is read and verified before anything is written: damage is known, and refused or accepted, while nothing has changed.
 * A snapshot of the volume shares what is lost with it: it is noted as lost in the description of the stack, before the disk stands alone.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "arguments.h"
#include "claim.h"
#include "rescue_names.h"
#include "stack.h"
#include "verbs.h"

struct request {
	const char *name;
	struct argument_list ssds;
	struct cache_names cache;
	const char *skip_damaged;
	bool keep_cache, dry_run, yes;
};

static const char *label_of(const struct rescue_volume *volume, char text[static LARDER_LABEL_SIZE + 1])
{
	return label_text(volume->sb->label, text);
}

static bool names_volume(const char *text, const struct rescue_volume *volume)
{
	uint8_t uuid[16];

	return text && !uuid_parse(text, uuid) && !memcmp(uuid, volume->sb->head.uuid, sizeof(uuid));
}

/* What the log has lost of a volume, as the beginning of a sentence, "" if nothing; the caller frees it. */
static char *lost_line(const struct rescue_cache *cache, const struct rescue_volume *volume)
{
	static const struct problems nothing;
	char *what = problems_line(volume->lost ? &cache->image.lost : &nothing);
	char *line = must_print("%s%s", what, *what ? "; what is newer than what is found" : "");

	free(what);
	return line;
}

/* Is there damage that only --skip-damaged may pass over? */
static int judge_damage(const struct rescue_cache *cache, const struct rescue_volume *volume, const struct rescue_count *count,
			const struct request *request)
{
	const char *path = volume->device.path;
	char uuid[UUID_TEXT], *lost;
	int result;

	if (names_volume(request->skip_damaged, volume)) {
		if (!request->keep_cache || !volume->lost)
			return LARDER_DONE;
		lost = lost_line(cache, volume);
		result = complain(LARDER_UNSAFE,
				  "%s: --keep-cache: %s may be there again when the cache starts, and is hidden by what is written now: leave --keep-cache out", path,
				  lost);
		free(lost);
		return result;
	}
	if (request->skip_damaged)
		return complain(LARDER_USAGE, "--skip-damaged: '%s' is not the volume's UUID, which is %s", request->skip_damaged,
				uuid_text(volume->sb->head.uuid, uuid));
	if (!count->damaged && !volume->lost)
		return LARDER_DONE;
	uuid_text(volume->sb->head.uuid, uuid);
	lost = lost_line(cache, volume);
	if (!count->damaged)
		result = complain(LARDER_UNSAFE, "%s: %s is LOST by --skip-damaged %s", path, lost, uuid);
	else
		result = complain(LARDER_UNSAFE,
				  "%s: %" PRIu64 " of %" PRIu64 " dirty sectors are damaged: LOST, and as the disk has them%s%s%s, by --skip-damaged %s", path,
				  count->damaged, count->dirty, *lost ? "; " : "", lost, *lost ? " is LOST, too" : "", uuid);
	free(lost);
	return result;
}

/* Does the volume lose something, so that a snapshot which shares it would show what never was?  With its cache it keeps an error in the place of it. */
static bool loses(const struct rescue_volume *volume, const struct rescue_count *count, const struct request *request)
{
	return !request->keep_cache && (count->damaged || volume->lost);
}

/* The description of its stack; false: it has none that can be read. */
static bool read_stack(const struct larder_volume_sb *sb, struct stack *stack)
{
	bool there;

	return !stack_decode(sb->stack, stack, &there) && there;
}

static int note_lost(union superblock *sb, bool *write, void *data)
{
	const struct rescue_volume *const *volume = data;
	const char *why;
	struct stack stack;
	unsigned lost = 0;

	*write = false;
	if (!read_stack(&sb->volume, &stack))
		return LARDER_DONE;
	for (uint32_t i = 0; i < stack.snapshots; i++)
		if (stack.snapshot[i].state == SNAPSHOT_READY) {
			stack.snapshot[i].state = SNAPSHOT_LOST;
			lost++;
		}
	if (!lost)
		return LARDER_DONE;
	*write = true;
	stack.generation = stack_raise(stack.generation, 1);
	why = stack_encode(&stack, sb->volume.stack);
	return why ? complain(LARDER_FAILED, "%s: %s", (*volume)->device.path, why) : LARDER_DONE;
}

static int confirm_writeback(const struct rescue_volume *volume, const struct request *request)
{
	if (request->yes)
		return LARDER_DONE;
	if (!isatty(STDIN_FILENO))
		return complain(LARDER_FAILED, "%s: left as it is; --yes does it", volume->device.path);
	if (answer_is_yes("Do it?"))
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: left as it is", volume->device.path);
}

static void announce(const struct rescue_cache *cache, const struct rescue_volume *volume, const struct rescue_count *count,
		     const struct request *request)
{
	char label[LARDER_LABEL_SIZE + 1], *lost = lost_line(cache, volume);
	struct stack stack;

	printf("volume %s: %" PRIu64 " dirty sectors, %" PRIu64 " of them zeroes, %" PRIu64 " damaged, from %s to %s\n", label_of(volume, label),
	       count->dirty, count->zero, count->damaged, cache->set.name, volume->device.path);
	if (*lost)
		printf("volume %s: %s is LOST\n", label, lost);
	free(lost);
	if (loses(volume, count, request) && read_stack(volume->sb, &stack))
		for (uint32_t i = 0; i < stack.snapshots; i++)
			if (stack.snapshot[i].state == SNAPSHOT_READY)
				printf("volume %s: its snapshot %s shares what is LOST, and is lost with it\n", label, stack.snapshot[i].name);
	if (volume->lost)
		printf("volume %s: once this has begun it has to come to its end: do not start the cache before it has\n", label);
	if (!request->keep_cache)
		printf("volume %s: then it belongs to no cache; what %s holds of it is stale\n", label, cache->set.name);
}

static int write_back(struct rescue_cache *cache, const struct rescue_volume *volume, const struct rescue_count *count,
		      const struct rescue_damage *damage, const struct request *request)
{
	char label[LARDER_LABEL_SIZE + 1];
	uint64_t written, skipped;
	int result;

	rescue_settle(cache, volume);
	result = count->dirty ? rescue_begin(volume) : LARDER_DONE;
	result = result ? result : rescue_write(cache, volume, damage, &written, &skipped);
	if (!result && loses(volume, count, request))
		result = superblock_change(&volume->device, note_lost, &volume);
	if (!result && !request->keep_cache)
		result = rescue_release(volume);
	if (result)
		return result;
	printf("volume %s: %" PRIu64 " sectors written; %s\n", label_of(volume, label), written,
	       request->keep_cache ? "it still belongs to its cache" : "it belongs to no cache now");
	if (skipped || volume->lost)
		return complain(LARDER_FAILED, "%s: not all of it: %" PRIu64 " damaged sectors were not written%s", volume->device.path,
				skipped, volume->lost ? ", and newer records are lost" : "");
	return LARDER_DONE;
}

/* A run that was cut off may have come to one copy of the superblock only.  So looks a disk that somebody else has overwritten since. */
static int finish_detached(const struct rescue_volume *volume, const struct request *request)
{
	char label[LARDER_LABEL_SIZE + 1];
	int result = LARDER_DONE;

	printf("volume %s: belongs to no cache: nothing to write back\n", label_of(volume, label));
	if (superblocks_equal(&volume->super))
		return LARDER_DONE;
	if (claim_is_others(volume->device.path)) {
		printf("volume %s: %s is somebody else's by now: its superblock is written over what is there, and whole again\n", label,
		       volume->device.path);
		result = request->dry_run ? LARDER_DONE : confirm_writeback(volume, request);
	}
	return result || request->dry_run ? result : rescue_release(volume);
}

static int rescue(struct rescue_cache *cache, const struct rescue_volume *volume, void *data)
{
	const struct request *request = data;
	struct rescue_damage damage = { 0 };
	struct rescue_count count = { 0 };
	char label[LARDER_LABEL_SIZE + 1];
	int result;

	if (!claim_may_start(volume->device.path, strchr(request->name, '/'), "rescue writeback"))
		return LARDER_UNSAFE;
	if (volume->standing == STANDING_DETACHED)
		return finish_detached(volume, request);
	result = rescue_judge(cache, volume);
	if (result)
		return result;
	if (!volume->lost)
		rescue_tell_lost(cache, volume);
	if (volume->cached)
		count = rescue_verify(cache, volume->cached, label_of(volume, label), true, &damage);
	result = judge_damage(cache, volume, &count, request);
	if (!result)
		announce(cache, volume, &count, request);
	if (!result && !request->dry_run) {
		result = confirm_writeback(volume, request);
		result = result ? result : write_back(cache, volume, &count, &damage, request);
	}
	rescue_damage_free(&damage);
	return result;
}

int rescue_writeback(int argc, char **argv)
{
	static const char usage[] = "larder rescue writeback VOLUME [--cache CACHE|SSD]... [--degraded] [--skip-damaged UUID] [--keep-cache] "
				    "[--dry-run] [--yes]";
	struct request request = { 0 };
	const struct argument arguments[] = {
		{ "cache", 0, ARGUMENT_LIST, &request.ssds, "CACHE", "its cache, or each SSD of it, if it is not found by its UUID" },
		DEGRADED_ARGUMENT(request.cache.degraded),
		{ "skip-damaged", 0, ARGUMENT_TEXT, &request.skip_damaged, "UUID", "also if damaged dirty data of this volume is LOST" },
		{ "keep-cache", 0, ARGUMENT_FLAG, &request.keep_cache, NULL, "the volume goes on to belong to its cache" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only say what would be done" },
		{ "yes", 'y', ARGUMENT_FLAG, &request.yes, NULL, "don't ask" },
		ARGUMENTS_END
	};
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	request.name = argv[first];
	request.cache.name = request.ssds.value;
	request.cache.number = request.ssds.number;
	return rescue_with_volume(request.name, &request.cache, request.dry_run ? DEVICE_EXAMINE : DEVICE_CLAIM, rescue, &request);
}
