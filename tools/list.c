// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache list, larder volume list: what runs, and what could be started.
 */
#include <endian.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <uuid/uuid.h>

#include "list.h"
#include "snapshot.h"
#include "verbs.h"

static const struct field cache_fields[] = {
	{ "name", VALUE_TEXT, "Name", "name of the cache: its dm name without larder-cache-, or its label" },
	{ "label", VALUE_TEXT, "Label", "label in the superblock" },
	{ "size", VALUE_BYTES, "Size", "size of all segments" },
	{ "node", VALUE_TEXT, "Node", "device node while it runs" },
	{ "devno", VALUE_TEXT, "Maj:Min", "number of that node" },
	{ "open", VALUE_NUMBER, "Open", "users of that node" },
	{ "ssd", VALUE_TEXT, "SSD", "its device" },
	{ "spares", VALUE_NUMBER, "Spares", "SSDs that wait to take the place of one that fails" },
	{ "dirty_percent", VALUE_DECIMAL, "Dirty%", "share of the cache that is dirty" },
};

static const struct field volume_fields[] = {
	{ "name", VALUE_TEXT, "Name", "name of the volume: its dm name, or its label" },
	{ "label", VALUE_TEXT, "Label", "label in the superblock" },
	{ "size", VALUE_BYTES, "Size", "size of the volume" },
	{ "node", VALUE_TEXT, "Node", "device node while it runs" },
	{ "devno", VALUE_TEXT, "Maj:Min", "number of that node" },
	{ "open", VALUE_NUMBER, "Open", "users of that node" },
	{ "backing", VALUE_TEXT, "Backing", "its device" },
	{ "cache_name", VALUE_TEXT, "Cache", "name of its cache, or its UUID if that does not run" },
	{ "hit_percent", VALUE_DECIMAL, "Hit%", "share of reads that the cache served" },
};

struct listing {
	struct report *report;
	struct row row;
	const struct mapped_list *list;
	const struct members *members;
};

char *hit_percent(const char *status)
{
	uint64_t hits = status_number(status, "read_hits") + status_number(status, "read_zeroes");
	uint64_t all = hits + status_number(status, "read_misses"); /* which has read_bypass; read_mixed counts requests, not pieces */

	return all ? must_print("%.1f", 100.0 * (double)hits / (double)all) : must_print("%s", "");
}

static void take_key(const char *key, const char *value, void *data)
{
	struct listing *l = data;
	int place = report_field(l->report, key);

	if (place >= 0 && !l->row.cell[place].value)
		report_set(l->report, &l->row, key, "%s", value);
}

static void set_cache_name(struct listing *l, const uint8_t uuid[16])
{
	const struct mapped *cache = running_by_uuid(l->list, uuid, true);
	const struct member *member = l->members ? member_cache(l->members, uuid) : NULL;
	char text[LARDER_LABEL_SIZE + 1];

	if (cache)
		report_set(l->report, &l->row, "cache_name", "%s", snapshot_name(l->list, cache));
	else if (member)
		report_set(l->report, &l->row, "cache_name", "%s", label_text(member->sb.cache.label, text));
	else
		report_set(l->report, &l->row, "cache_name", "%s", uuid_text(uuid, text));
}

/* First device in the table of a running target: "<backing> ..." or "<n> <ssd> ...". */
static void set_device(struct listing *l, const struct mapped *m)
{
	unsigned high, low;
	char *params, *word, node[PATH_MAX];

	if (!m->number || mapped_table(m, &params)) /* no number: it runs elsewhere, see snapshot_take() */
		return;
	word = params;
	if (m->cache && strchr(params, ' '))
		word = strchr(params, ' ') + 1;
	word[strcspn(word, " ")] = 0;
	if (sscanf(word, "%u:%u", &high, &low) == 2 && device_node(makedev(high, low), node, sizeof(node)))
		report_set(l->report, &l->row, m->cache ? "ssd" : "backing", "%s", node);
	else
		report_set(l->report, &l->row, m->cache ? "ssd" : "backing", "%s", word);
	free(params);
}

static void set_label(struct listing *l, const struct mapped *m)
{
	char text[LARDER_LABEL_SIZE + 1];
	const struct member *member;
	uint8_t uuid[16];

	if (!l->members || !running_uuid(m, uuid))
		return;
	member = m->cache ? member_cache(l->members, uuid) : member_volume(l->members, uuid);
	if (member)
		report_set(l->report, &l->row, "label", "%s", label_text(member->sb.cache.label, text));
}

/* A spare has the cache's UUID where an SSD of it has it. */
static void set_spares(struct listing *l, const uint8_t uuid[16])
{
	unsigned number = 0;

	for (size_t i = 0; l->members && i < l->members->number; i++) {
		const struct member *m = l->members->member[i];
		const union superblock *sb = &m->sb;

		number += !m->copy_only && le32toh(sb->head.kind) == LARDER_KIND_SPARE && !memcmp(sb->cache.cache_uuid, uuid, 16);
	}
	if (l->members)
		report_set(l->report, &l->row, "spares", "%u", number);
}

static void add_running(struct listing *l, const struct mapped *m)
{
	char *text;

	report_set(l->report, &l->row, "name", "%s", snapshot_name(l->list, m));
	report_set(l->report, &l->row, "node", "/dev/mapper/%s", m->name);
	report_set(l->report, &l->row, "devno", "%u:%u", major(m->number), minor(m->number));
	report_set(l->report, &l->row, "open", "%d", m->open_count);
	report_set(l->report, &l->row, "size", "%" PRIu64, m->sectors << LARDER_SECTOR_SHIFT);
	status_each(m->status, take_key, l);
	set_device(l, m);
	set_label(l, m);
	if (m->cache) {
		uint8_t uuid[16];
		uint64_t all = status_number(m->status, "segments") * status_number(m->status, "segment_sectors");

		if (running_uuid(m, uuid))
			set_spares(l, uuid);
		if (all)
			report_set(l->report, &l->row, "dirty_percent", "%.1f",
				   100.0 * (double)status_number(m->status, "dirty_sectors") / (double)all);
	} else {
		uint8_t uuid[16];

		text = status_value(m->status, "cache");
		if (text && !uuid_parse(text, uuid))
			set_cache_name(l, uuid);
		free(text);
		text = hit_percent(m->status);
		report_set(l->report, &l->row, "hit_percent", "%s", text);
		free(text);
	}
	report_add(l->report, &l->row);
}

static void add_stopped(struct listing *l, const struct member *m, bool cache)
{
	char text[LARDER_LABEL_SIZE + 1];

	label_text(m->sb.cache.label, text);
	report_set(l->report, &l->row, "name", "%s", text);
	report_set(l->report, &l->row, "label", "%s", text);
	report_set(l->report, &l->row, "state", "stopped");
	report_set(l->report, &l->row, cache ? "ssd" : "backing", "%s", m->path);
	if (cache) {
		const struct larder_cache_sb *sb = &m->sb.cache;

		report_set(l->report, &l->row, "uuid", "%s", uuid_text(sb->cache_uuid, text));
		report_set(l->report, &l->row, "size", "%" PRIu64, (uint64_t)le32toh(sb->nr_segments) * le32toh(sb->segment_size));
		report_set(l->report, &l->row, "devices", "%u", le32toh(sb->nr_devices));
		set_spares(l, sb->cache_uuid);
		report_set(l->report, &l->row, "segments", "%u", le32toh(sb->nr_segments));
		report_set(l->report, &l->row, "segment_sectors", "%u", le32toh(sb->segment_size) >> LARDER_SECTOR_SHIFT);
	} else {
		const struct larder_volume_sb *sb = &m->sb.volume;

		report_set(l->report, &l->row, "uuid", "%s", uuid_text(sb->head.uuid, text));
		report_set(l->report, &l->row, "cache", "%s", uuid_text(sb->cache_uuid, text));
		report_set(l->report, &l->row, "size", "%" PRIu64, le64toh(sb->sectors) << LARDER_SECTOR_SHIFT);
		report_set(l->report, &l->row, "mode", "%s", mode_text(le32toh(sb->mode)));
		report_set(l->report, &l->row, "may_be_dirty", "%d", !!(le32toh(sb->head.flags) & LARDER_VOLUME_MAY_BE_DIRTY));
		report_set(l->report, &l->row, "incarnation", "%" PRIu64, le64toh(sb->incarnation));
		if (!uuid_is_zero(sb->cache_uuid))
			set_cache_name(l, sb->cache_uuid);
	}
	report_add(l->report, &l->row);
}

int list_report(bool cache, const struct mapped_list *list, const struct members *members, const struct mapped *only,
		const char *default_fields, const struct report_options *options)
{
	const struct field *sections[] = { cache ? cache_fields : volume_fields,
					   cache ? cache_status_fields : volume_status_fields };
	const size_t counts[] = {
		cache ? sizeof(cache_fields) / sizeof(cache_fields[0]) : sizeof(volume_fields) / sizeof(volume_fields[0]),
		cache ? cache_status_count : volume_status_count,
	};
	struct listing l = { .list = list, .members = members };
	int result;

	l.report = report_new(cache ? "caches" : "volumes", sections, counts, 2, default_fields, options, &result);
	if (!l.report)
		return result;
	for (size_t i = 0; i < list->number; i++)
		if (list->mapped[i].cache == cache && (!only || only == &list->mapped[i]))
			add_running(&l, &list->mapped[i]);
	for (size_t i = 0; members && !only && i < members->number; i++) {
		const struct member *m = members->member[i];

		if (le32toh(m->sb.head.kind) == (cache ? LARDER_KIND_CACHE : LARDER_KIND_VOLUME) &&
		    !running_by_uuid(list, cache ? m->sb.cache.cache_uuid : m->sb.head.uuid, cache))
			add_stopped(&l, m, cache);
	}
	return report_print(l.report);
}

static int list_all(bool cache, int argc, char **argv, const char *usage, const char *default_fields)
{
	struct report_options options = { .units = { 'h', true } };
	const struct argument arguments[] = { REPORT_ARGUMENTS(options), ARGUMENTS_END };
	struct mapped_list list;
	struct members members;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 0, 0, &first, &result))
		return result;
	mapped_init(false);
	result = mapped_scan(&list);
	members_scan(&members);
	if (!result)
		result = list_report(cache, &list, &members, NULL, default_fields, &options);
	if (!result)
		members_remark_damaged();
	result = result ? result : members_check_seen();
	members_free(&members);
	mapped_list_free(&list);
	return result;
}

int cache_list(int argc, char **argv)
{
	return list_all(true, argc, argv,
			"larder cache list [-o FIELD,...] [--sort FIELD,...] [--units UNIT] [--noheadings] [--reportformat json]",
			"name,state,size,live_sectors,dirty_sectors,volumes,ssd,uuid");
}

int volume_list(int argc, char **argv)
{
	return list_all(false, argc, argv,
			"larder volume list [-o FIELD,...] [--sort FIELD,...] [--units UNIT] [--noheadings] [--reportformat json]",
			"name,state,mode,size,cached_sectors,dirty_sectors,hit_percent,cache_name,backing,uuid");
}
