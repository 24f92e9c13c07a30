// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder super show, check, wipe: superblocks as they lie on a device.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

#include "arguments.h"
#include "claim.h"
#include "snapshot_store.h"
#include "verbs.h"

/* The headings are what `super show` prints; cache_sectors and volume_sectors come first because tables need them. */
static const struct field super_fields[] = {
	{ "cache_sectors", VALUE_NUMBER, "cache sectors", "length of the cache's table, in sectors of 512 bytes" },
	{ "volume_sectors", VALUE_NUMBER, "volume sectors", "length of the volume's table, in sectors of 512 bytes" },
	{ "kind", VALUE_TEXT, "kind", "cache, volume, spare, other" },
	{ "label", VALUE_TEXT, "label", "label" },
	{ "uuid", VALUE_TEXT, "uuid", "UUID of this member: of the volume, of the SSD" },
	{ "cache_uuid", VALUE_TEXT, "cache uuid", "UUID of the cache" },
	{ "version", VALUE_NUMBER, "version", "version of the format" },
	{ "generation", VALUE_NUMBER, "generation", "generation of the superblock" },
	{ "flags", VALUE_TEXT, "flags", "clean_stop, drop_clean, joins; may_be_dirty, left, clean_void" },
	{ "features", VALUE_TEXT, "features", "compat, ro_compat, incompat" },
	{ "created", VALUE_TEXT, "created", "when it was made, UTC" },
	{ "device_size", VALUE_BYTES, "device size", "size of the device when it was made" },
	{ "copy_offset", VALUE_NUMBER, "copy offset", "where the second copy is, bytes; 0: none" },
	{ "device_number", VALUE_NUMBER, "device number", "place of this SSD in its set" },
	{ "nr_devices", VALUE_NUMBER, "devices", "number of SSDs of the set" },
	{ "set_generation", VALUE_NUMBER, "set generation", "generation of the set of SSDs" },
	{ "role", VALUE_TEXT, "role", "what segments of this SSD are for: both, write, read" },
	{ "segment_size", VALUE_BYTES, "segment size", "size of a segment" },
	{ "first_segment", VALUE_NUMBER, "first segment", "global number of this SSD's first segment" },
	{ "nr_segments", VALUE_NUMBER, "segments", "number of segments on this SSD" },
	{ "segments_offset", VALUE_NUMBER, "segments offset", "where the first segment is, bytes" },
	{ "table_generation", VALUE_NUMBER, "table generation", "generation of the table of volumes" },
	{ "all_generation", VALUE_NUMBER, "generation of all", "which one the superblocks of all SSDs of the set have had: one that has less is older" },
	{ "durable_sequence", VALUE_NUMBER, "durable record", "newest record of the log known durable when this was written" },
	{ "epoch", VALUE_NUMBER, "epoch", "newest epoch; 0: never started" },
	{ "checkpoint", VALUE_TEXT, "checkpoint", "sequence, size and first segment of the newest checkpoint" },
	{ "mode", VALUE_TEXT, "mode", "mode at start" },
	{ "data_offset", VALUE_NUMBER, "data offset", "where the volume's data begin, bytes" },
	{ "tail_reserve", VALUE_NUMBER, "tail reserve", "left free at the end, bytes" },
	{ "incarnation", VALUE_NUMBER, "incarnation", "raised when the volume ran without its cache" },
	{ "noted", VALUE_NUMBER, "noted generation", "which generation of this superblock its cache has seen: one that has seen less is older" },
};

#define FLAGS_TEXT 64

/* Their names, divided by commas. */
static const char *flags_text(uint32_t kind, uint32_t flags, char text[FLAGS_TEXT])
{
	static const struct {
		uint32_t kind, flag;
		const char *name;
	} names[] = {
		{ LARDER_KIND_CACHE, LARDER_CACHE_CLEAN_STOP, "clean_stop" },
		{ LARDER_KIND_CACHE, LARDER_CACHE_DROP_CLEAN, "drop_clean" },
		{ LARDER_KIND_CACHE, LARDER_CACHE_JOINS, "joins" },
		{ LARDER_KIND_VOLUME, LARDER_VOLUME_MAY_BE_DIRTY, "may_be_dirty" },
		{ LARDER_KIND_VOLUME, LARDER_VOLUME_LEFT, "left" },
		{ LARDER_KIND_VOLUME, LARDER_VOLUME_CLEAN_VOID, "clean_void" },
	};
	size_t i, n = 0;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (names[i].kind != kind || !(flags & names[i].flag))
			continue;
		n += (size_t)snprintf(text + n, FLAGS_TEXT - n, "%s%s", n ? "," : "", names[i].name);
		flags &= ~names[i].flag;
	}
	if (flags)
		n += (size_t)snprintf(text + n, FLAGS_TEXT - n, "%sunknown", n ? "," : "");
	return n ? text : "none";
}

static void set_head(struct report *r, struct row *row, const struct larder_sb_head *head)
{
	time_t created = (time_t)le64toh(head->created);
	uint32_t kind = le32toh(head->kind);
	char text[UUID_TEXT], flags[FLAGS_TEXT], when[64] = "?";
	struct tm tm;

	if (gmtime_r(&created, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	report_set(r, row, "kind", "%s", kind_text(kind));
	report_set(r, row, "uuid", "%s", uuid_text(head->uuid, text));
	report_set(r, row, "version", "%u", le32toh(head->version));
	report_set(r, row, "generation", "%" PRIu64, le64toh(head->generation));
	report_set(r, row, "flags", "%s", flags_text(kind, le32toh(head->flags), flags));
	report_set(r, row, "features", "%" PRIx64 " %" PRIx64 " %" PRIx64, le64toh(head->compat), le64toh(head->ro_compat),
		   le64toh(head->incompat));
	report_set(r, row, "created", "%s", when);
	report_set(r, row, "device_size", "%" PRIu64, le64toh(head->device_sectors) << LARDER_SECTOR_SHIFT);
	report_set(r, row, "copy_offset", "%" PRIu64, le64toh(head->copy_offset));
}

static void set_cache(struct report *r, struct row *row, const struct larder_cache_sb *sb)
{
	const struct larder_checkpoint_ptr *c = &sb->checkpoint[0];
	char text[LARDER_LABEL_SIZE + 1];

	report_set(r, row, "cache_sectors", "%" PRIu64,
		   (uint64_t)le32toh(sb->nr_segments) * (le32toh(sb->segment_size) >> LARDER_SECTOR_SHIFT));
	report_set(r, row, "label", "%s", label_text(sb->label, text));
	report_set(r, row, "cache_uuid", "%s", uuid_text(sb->cache_uuid, text));
	report_set(r, row, "device_number", "%u", le32toh(sb->device_number));
	report_set(r, row, "nr_devices", "%u", le32toh(sb->nr_devices));
	report_set(r, row, "set_generation", "%" PRIu64, le64toh(sb->set_generation));
	report_set(r, row, "role", "%s", role_text(le32toh(sb->role)));
	report_set(r, row, "segment_size", "%u", le32toh(sb->segment_size));
	report_set(r, row, "first_segment", "%u", le32toh(sb->first_segment));
	report_set(r, row, "nr_segments", "%u", le32toh(sb->nr_segments));
	report_set(r, row, "segments_offset", "%" PRIu64, le64toh(sb->segments_offset));
	report_set(r, row, "table_generation", "%" PRIu64, le64toh(sb->table_generation));
	report_set(r, row, "all_generation", "%" PRIu64, le64toh(sb->all_generation));
	report_set(r, row, "durable_sequence", "%" PRIu64, le64toh(sb->durable_sequence));
	report_set(r, row, "epoch", "%u", le32toh(sb->epoch));
	if (le32toh(c->first_segment) == LARDER_NO_SEGMENT || !c->sequence)
		report_set(r, row, "checkpoint", "none");
	else
		report_set(r, row, "checkpoint", "%" PRIu64 ", %" PRIu64 " bytes from segment %u", le64toh(c->sequence),
			   le64toh(c->bytes), le32toh(c->first_segment));
}

static void set_volume(struct report *r, struct row *row, const struct larder_volume_sb *sb)
{
	char text[LARDER_LABEL_SIZE + 1];

	report_set(r, row, "volume_sectors", "%" PRIu64, le64toh(sb->sectors));
	report_set(r, row, "label", "%s", label_text(sb->label, text));
	report_set(r, row, "cache_uuid", "%s", uuid_text(sb->cache_uuid, text));
	report_set(r, row, "mode", "%s", mode_text(le32toh(sb->mode)));
	report_set(r, row, "data_offset", "%" PRIu64, le64toh(sb->data_offset));
	report_set(r, row, "tail_reserve", "%" PRIu64, le64toh(sb->tail_reserve));
	report_set(r, row, "incarnation", "%" PRIu64, le64toh(sb->incarnation));
	report_set(r, row, "set_generation", "%" PRIu64, le64toh(sb->set_generation));
	report_set(r, row, "noted", "%" PRIu64, sb->noted_incarnation == sb->incarnation ? le64toh(sb->noted) : 0);
}

static void show_volumes(const struct device *device, const struct larder_cache_sb *sb)
{
	static const char *const states[] = { "none", "attached", "forgetting" };
	struct cache_tables tables;

	tables_read(device, sb, &tables);
	for (uint32_t i = 0; tables.chosen && i < le32toh(tables.chosen->head.nr_volumes); i++) {
		const struct larder_table_volume *v = &tables.chosen->volumes[i];
		char label[LARDER_LABEL_SIZE + 1], uuid[UUID_TEXT];

		if (le32toh(v->state) != LARDER_VOLUME_NONE)
			printf("volume %-13u %s, %s, %" PRIu64 " sectors, incarnation %" PRIu64 ", seen %" PRIu64 ", label %s\n", i,
			       uuid_text(v->uuid, uuid), states[le32toh(v->state)], le64toh(v->sectors), le64toh(v->incarnation), le64toh(v->seen),
			       label_text(v->label, label));
	}
	if (!tables.chosen)
		remark("%s: table: neither copy is valid; larder super check %s says more", device->path, device->path);
	tables_free(&tables);
}

static int show(const struct device *device, const union superblock *sb, const struct report_options *options)
{
	const struct field *sections[] = { super_fields };
	const size_t counts[] = { sizeof(super_fields) / sizeof(super_fields[0]) };
	struct row row = { 0 };
	struct report *r;
	int result;

	r = report_new("superblock", sections, counts, 1, "all", options, &result);
	if (!r)
		return result;
	set_head(r, &row, &sb->head);
	if (le32toh(sb->head.kind) == LARDER_KIND_CACHE)
		set_cache(r, &row, &sb->cache);
	else if (le32toh(sb->head.kind) == LARDER_KIND_VOLUME)
		set_volume(r, &row, &sb->volume);
	if (options->fields || options->format) {
		report_add(r, &row);
		return report_print(r);
	}
	report_show(r, &row);
	if (le32toh(sb->head.kind) == LARDER_KIND_CACHE)
		show_volumes(device, &sb->cache);
	report_discard(r);
	return LARDER_DONE;
}

int super_show(int argc, char **argv)
{
	static const char usage[] = "larder super show DEVICE [-o FIELD,...] [--units UNIT] [--noheadings] [--reportformat json]";
	struct report_options options = { .units = { 'h', true } };
	const struct argument arguments[] = { REPORT_ARGUMENTS(options), ARGUMENTS_END };
	const union superblock *sb;
	struct superblocks found;
	struct device device;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	result = device_open(&device, argv[first], DEVICE_READ);
	if (result)
		return result;
	superblocks_read(&device, &found, true);
	result = superblocks_choose(&device, &found, &sb);
	if (!result)
		result = show(&device, sb, &options);
	superblocks_free(&found);
	device_close(&device);
	return result;
}

/* One line per problem.  Returns how many. */
static size_t tell(const struct device *device, const char *what, uint64_t offset, const struct problems *problems)
{
	for (size_t i = 0; i < problems->number; i++)
		remark("%s: %s at byte %" PRIu64 ": %s", device->path, what, offset, problems->text[i]);
	return problems->number;
}

static size_t check_copies(const struct device *device, const struct superblocks *found)
{
	size_t bad = tell(device, "superblock", found->main.offset, &found->main.problems);

	if (found->copy.offset)
		bad += tell(device, "superblock copy", found->copy.offset, &found->copy.problems);
	else if (!found->chosen)
		bad += tell(device, "superblock copy", 0,
			    &(struct problems){ (char *[]){ "magic: none found where copies are kept" }, 1 });
	if (!found->chosen)
		return bad;
	printf("%s: %s superblock, generation %" PRIu64 ": the %s counts", device->path,
	       kind_text(le32toh(found->chosen->sb->head.kind)), le64toh(found->chosen->sb->head.generation),
	       found->chosen == &found->main ? "main one" : "copy");
	if (!found->copy.offset)
		printf("; it has no copy");
	else if (!found->main.problems.number && !found->copy.problems.number)
		printf("; both are good");
	else
		printf("; the other is damaged, and written anew when the device is next used");
	putchar('\n');
	return bad;
}

static size_t check_tables(const struct device *device, const struct larder_cache_sb *sb)
{
	static const uint64_t offset[2] = { LARDER_TABLE_OFFSET_A, LARDER_TABLE_OFFSET_B };
	struct cache_tables tables;
	size_t bad = 0;

	tables_read(device, sb, &tables);
	for (int i = 0; i < 2; i++)
		bad += tell(device, "table", offset[i], &tables.problems[i]);
	if (tables.chosen)
		printf("%s: table, generation %" PRIu64 ": copy %c counts, %u volumes\n", device->path,
		       le64toh(tables.chosen->head.generation), tables.chosen == tables.table[0] ? 'A' : 'B',
		       le32toh(tables.chosen->head.nr_volumes));
	tables_free(&tables);
	return bad;
}

static int check(const struct device *device)
{
	struct superblocks found;
	size_t bad;
	int result = LARDER_DONE;

	superblocks_read(device, &found, true);
	if (!found.main.error && !superblocks_any(&found)) {
		superblocks_free(&found);
		return complain(LARDER_NOT_FOUND, "%s: magic: no larder superblock; larder probe %s says what is on it",
				device->path, device->path);
	}
	bad = check_copies(device, &found);
	if (found.chosen && le32toh(found.chosen->sb->head.kind) == LARDER_KIND_CACHE)
		bad += check_tables(device, &found.chosen->sb->cache);
	if (bad)
		result = LARDER_FAILED;
	superblocks_free(&found);
	return result;
}

int super_check(int argc, char **argv)
{
	const struct argument arguments[] = { ARGUMENTS_END };
	struct device device;
	int first, result;

	if (!arguments_words(argc, argv, "larder super check DEVICE", arguments, 1, 1, &first, &result))
		return result;
	result = device_open(&device, argv[first], DEVICE_READ);
	if (result)
		return result;
	result = check(&device);
	device_close(&device);
	return result;
}

static int wipe(const struct device *device, const struct claim_request *request)
{
	struct superblocks found;
	int error, result;

	superblocks_read(device, &found, true);
	if (!superblocks_any(&found))
		result = complain(LARDER_NOT_FOUND, "%s: magic: no larder superblock; nothing to wipe", device->path);
	else
		result = claim_check_replica(device, &found);
	result = result ? result : claim_superblock(device, &found, request->discard_dirty);
	if (!result && !request->yes && !request->dry_run && !isatty(STDIN_FILENO))
		result = complain(LARDER_FAILED, "%s: left as it is; --yes does it", device->path);
	result = result ? result : claim_confirm(device, "its larder superblocks", request);
	if (!result && request->dry_run) {
		printf("wipe superblocks of %s\n", device->path);
	} else if (!result) {
		/* of a snapshot that was removed while this was away */
		if (found.chosen && le32toh(found.chosen->sb->head.kind) == LARDER_KIND_OTHER)
			snapshot_store_zero_keys(device);
		error = superblocks_erase(device, &found);
		if (error)
			result = complain(LARDER_FAILED, "%s: cannot overwrite the superblock: %s", device->path, strerror(-error));
	}
	superblocks_free(&found);
	return result;
}

int super_wipe(int argc, char **argv)
{
	static const char usage[] = "larder super wipe DEVICE [--discard-dirty UUID] [--dry-run] [--yes]";
	struct claim_request request = { .wipe = true };
	const struct argument arguments[] = { { "discard-dirty", 0, ARGUMENT_TEXT, &request.discard_dirty, "UUID",
						"also if this cache's or volume's dirty data is LOST" },
					      { "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL,
						"only say what would be done" },
					      { "yes", 'y', ARGUMENT_FLAG, &request.yes, NULL, "don't ask" },
					      ARGUMENTS_END };
	struct device device;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	request.path = argv[first];
	result = claim_open(&device, &request);
	if (result)
		return result;
	result = wipe(&device, &request);
	device_close(&device);
	return result;
}
