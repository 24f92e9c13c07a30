// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder cache status, larder volume status: what a running one does, for a reader; with -o or --reportformat as a report.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advice.h"
#include "hanging.h"
#include "list.h"
#include "snapshot.h"
#include "verbs.h"

struct show {
	const char *status;
	struct size_format units;
};

static uint64_t number(const struct show *s, const char *key)
{
	return status_number(s->status, key);
}

static void text(const struct show *s, const char *title, const char *key)
{
	char *value = status_value(s->status, key);

	printf("  %-14s %s\n", title, value ? value : "?");
	free(value);
}

static const char *size(const struct show *s, const char *key, unsigned shift, char buffer[static SIZE_TEXT])
{
	return size_print(buffer, number(s, key) << shift, &s->units);
}

#define FULL_SPEED (1ull << 32) /* sectors a second: the kernel's bound of a rate, where nothing else bounds it */

/* ", at most 1.00MiB/s"; "" where nothing holds writeback back. */
static const char *pace(const struct show *s, char buffer[static SIZE_TEXT + 16])
{
	char rate[SIZE_TEXT];

	buffer[0] = 0;
	if (number(s, "writeback_rate") && number(s, "writeback_rate") < FULL_SPEED)
		snprintf(buffer, SIZE_TEXT + 16, ", at most %s/s", size(s, "writeback_rate", 9, rate));
	return buffer;
}

static void show_volume(const struct mapped *m, const struct show *s)
{
	char a[SIZE_TEXT], b[SIZE_TEXT + 16], *hits = hit_percent(s->status);

	printf("volume %s (/dev/mapper/%s)\n", m->name, m->name);
	text(s, "UUID", "uuid");
	text(s, "cache", "cache");
	text(s, "state", "state");
	text(s, "mode", "mode");
	printf("  %-14s %s\n", "size", size_print(a, m->sectors << 9, &s->units));
	printf("  %-14s %s, of it dirty %s%s\n", "cached", size(s, "cached_sectors", 9, a), size(s, "dirty_sectors", 9, b),
	       number(s, "flushing") ? ", being flushed" : "");
	printf("  %-14s %" PRIu64 " hits, %" PRIu64 " misses, %" PRIu64 " mixed, %" PRIu64 " bypassed%s%s%s\n", "reads",
	       number(s, "read_hits"), number(s, "read_misses"), number(s, "read_mixed"), number(s, "read_bypass"),
	       *hits ? ": " : "", hits, *hits ? " % hits" : "");
	printf("  %-14s %" PRIu64 " cached, %" PRIu64 " through, %" PRIu64 " around, %" PRIu64 " bypassed, %" PRIu64 " zeroes\n",
	       "writes", number(s, "write_cached"), number(s, "write_through"), number(s, "write_around"),
	       number(s, "write_bypass"), number(s, "write_zeroes"));
	printf("  %-14s %" PRIu64 " flushes, %" PRIu64 " FUA writes, %" PRIu64 " discards\n", "also", number(s, "flushes"),
	       number(s, "fuas"), number(s, "discards"));
	printf("  %-14s %" PRIu64 " (%s), dropped %" PRIu64 ", not begun %" PRIu64 "\n", "fills", number(s, "fills"),
	       size(s, "fill_sectors", 9, a), number(s, "fills_dropped"), number(s, "fills_denied"));
	printf("  %-14s %" PRIu64 " writes (%s)%s\n", "written back", number(s, "writeback_writes"),
	       size(s, "writeback_sectors", 9, a), pace(s, b));
	printf("  %-14s read %" PRIu64 ", write %" PRIu64 ", flush %" PRIu64 "\n", "backing errors", number(s, "errors_read"),
	       number(s, "errors_write"), number(s, "errors_flush"));
	free(hits);
}

static void show_scrub(const struct show *s)
{
	char *state = status_value(s->status, "scrub");

	printf("  %-14s %s, %" PRIu64 " of %" PRIu64 " segments, %" PRIu64 " errors: %" PRIu64 " repaired, %" PRIu64 " dropped, %" PRIu64
	       " unrepairable\n",
	       "scrub", state ? state : "-", number(s, "scrub_segments"), number(s, "segments"), number(s, "scrub_errors"),
	       number(s, "scrub_repaired"), number(s, "scrub_dropped"), number(s, "scrub_unrepairable"));
	free(state);
}

static void show_set(const struct show *s)
{
	char *mirror = status_value(s->status, "mirror"), *roles = status_value(s->status, "roles"), a[SIZE_TEXT];

	printf("  %-14s %" PRIu64 ", %" PRIu64 " of them failed\n", "SSDs", number(s, "devices"), number(s, "devices_failed"));
	printf("  %-14s %s%s, %s has fewer copies than that\n", "mirrored", mirror ? mirror : "-",
	       number(s, "mirrored") || !mirror || !strcmp(mirror, "none") ? "" : " (not now: too few SSDs)",
	       size(s, "below_sectors", 9, a));
	if (roles && (strstr(roles, "write") || strstr(roles, "read")))
		printf("  %-14s %s%s\n", "roles", roles,
		       number(s, "roles_honoured") ? "" : " (not honoured now: too few SSDs of a role, or too small ones)");
	free(mirror);
	free(roles);
}

static void show_cache(const struct mapped *m, const struct show *s)
{
	char a[SIZE_TEXT], b[SIZE_TEXT];
	uint64_t segment = number(s, "segment_sectors") << 9;

	printf("cache %s (/dev/mapper/%s)\n", m->name, m->name);
	text(s, "UUID", "uuid");
	text(s, "state", "state");
	if (number(s, "devices") > 1)
		show_set(s);
	printf("  %-14s %s, %" PRIu64 " segments of %s\n", "size", size_print(a, number(s, "segments") * segment, &s->units),
	       number(s, "segments"), size_print(b, segment, &s->units));
	printf("  %-14s %" PRIu64 " free, %" PRIu64 " write, %" PRIu64 " fill, %" PRIu64 " keep, %" PRIu64 " checkpoint, %" PRIu64
	       " opened, %" PRIu64 " waiting\n",
	       "segments", number(s, "segments_free"), number(s, "segments_write"), number(s, "segments_fill"),
	       number(s, "segments_keep"), number(s, "segments_checkpoint"), number(s, "segments_opened"),
	       number(s, "segments_waiting"));
	printf("  %-14s %s, of it dirty %s, of %" PRIu64 " volumes\n", "live", size(s, "live_sectors", 9, a),
	       size(s, "dirty_sectors", 9, b), number(s, "volumes"));
	printf("  %-14s %s", "memory", size(s, "memory_bytes", 0, a));
	printf(" of %s, indexes %s\n", size(s, "memory_limit_bytes", 0, a), size(s, "index_bytes", 0, b));
	printf("  %-14s %" PRIu64 " appends, %" PRIu64 " commit blocks (%" PRIu64 " with their data), %" PRIu64 " flushes\n", "log",
	       number(s, "appends"), number(s, "commits"), number(s, "commits_with_data"), number(s, "ssd_flushes"));
	printf("  %-14s %" PRIu64 " (%s)\n", "checkpoints", number(s, "checkpoints"), size(s, "checkpoint_bytes", 0, a));
	printf("  %-14s %" PRIu64 " segments, %" PRIu64 " slots kept, %" PRIu64 " dropped\n", "reclaimed", number(s, "reclaimed"),
	       number(s, "reclaim_kept_slots"), number(s, "reclaim_dropped_slots"));
	printf("  %-14s for space %" PRIu64 ", writeback %" PRIu64 ", memory %" PRIu64 ", buffers %" PRIu64 "\n", "waits",
	       number(s, "waits_space"), number(s, "waits_pace"), number(s, "waits_memory"), number(s, "waits_pool"));
	printf("  %-14s read %" PRIu64 ", write %" PRIu64 ", checksum %" PRIu64 "\n", "SSD errors", number(s, "errors_read"),
	       number(s, "errors_write"), number(s, "errors_checksum"));
	if (!status_is(s->status, "scrub", "idle"))
		show_scrub(s);
	printf("  %-14s %" PRIu64 " ms, %" PRIu64 " records replayed (%s)\n", "last start", number(s, "start_ms"),
	       number(s, "replayed_records"), size(s, "replayed_bytes", 0, a));
}

/* In words, and the command that mends it. */
static void show_trouble(const struct mapped *m)
{
	struct problems found = { 0 };

	(m->cache ? advise_cache : advise_volume)(m->name, m->status, &found);
	hanging_below(m, &found);
	for (size_t i = 0; i < found.number; i++)
		printf("  %-14s %s\n", i ? "" : "wrong", found.text[i]);
	problems_free(&found);
}

static void show_pair(const char *key, const char *value, void *data)
{
	(void)data;
	printf("  %s=%s\n", key, value);
}

static void show(const struct mapped *m, const struct size_format *units, bool all)
{
	const struct show s = { m->status, *units };

	if (all) {
		printf("%s %s (/dev/mapper/%s)\n", m->cache ? "cache" : "volume", m->name, m->name);
		status_each(m->status, show_pair, NULL);
	} else if (m->cache) {
		show_cache(m, &s);
		show_trouble(m);
	} else {
		show_volume(m, &s);
		show_trouble(m);
	}
}

static int status(bool cache, int argc, char **argv, const char *usage, const char *default_fields)
{
	struct report_options options = { .units = { 'h', true } };
	bool all = false;
	const struct argument arguments[] = { { "all", 'a', ARGUMENT_FLAG, &all, NULL, "every key=value that the kernel tells" },
					      REPORT_ARGUMENTS(options),
					      ARGUMENTS_END };
	struct mapped *only = NULL;
	struct mapped_list list;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, 0, 1, &first, &result))
		return result;
	mapped_init(false);
	result = snapshot_take(&list);
	if (!result && first < argc)
		result = running_find(&list, argv[first], cache, &only);
	options.units.suffix = !options.nosuffix;
	if (!result && (options.fields || options.format || options.sort)) {
		result = list_report(cache, &list, NULL, only, default_fields, &options);
	} else if (!result) {
		hanging_look(&list);
		for (size_t i = 0; i < list.number; i++)
			if (list.mapped[i].cache == cache && (!only || only == &list.mapped[i]))
				show(&list.mapped[i], &options.units, all);
	}
	mapped_list_free(&list);
	return result;
}

int cache_status(int argc, char **argv)
{
	return status(true, argc, argv,
		      "larder cache status [NAME|UUID|DEVICE] [--all] [-o FIELD,...] [--units UNIT] [--reportformat json]",
		      "name,state,segments_free,live_sectors,dirty_sectors,memory_bytes,appends,commits,ssd_flushes,reclaimed");
}

int volume_status(int argc, char **argv)
{
	return status(
		false, argc, argv,
		"larder volume status [NAME|UUID|DEVICE] [--all] [-o FIELD,...] [--units UNIT] [--reportformat json]",
		"name,state,mode,cached_sectors,dirty_sectors,read_hits,read_misses,write_cached,write_bypass,writeback_rate");
}
