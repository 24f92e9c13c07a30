// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Metrics: the status of all that runs in OpenMetrics text, or in the format before it.  docs/metrics.md lists them, and says where the format is
 * defined.
 *
 * The name follows from the key of the status: larder_cache_ or larder_volume_, and its unit, in which OpenMetrics wants base units: sectors
 * become bytes, ms and us seconds, percent a ratio.  The tables below say of each key only what a program cannot know: whether it counts
 * or may fall.  Of the types of OpenMetrics only counters and gauges are used, as node_exporter refuses a whole file for another one: what
 * is a word becomes a gauge for each word there is, which is 1 or 0; and what changes rarely, labels of a gauge that is always 1.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "advice.h"
#include "message.h"
#include "metrics.h"
#include "snapshot.h"
#include "status.h"

enum metric_type {
	METRIC_COUNTER, /* never falls, but to 0 when the device is made anew */
	METRIC_GAUGE,
	METRIC_WORDS, /* words divided by '/', "-" for none: a gauge for each of `words` */
	METRIC_PLACES, /* a word for each SSD: a gauge for each of `words` and each SSD */
	METRIC_RULES, /* numbers divided by '/': a counter for each rule of class */
	METRIC_GIVEN, /* a number, or "-": 1 or 0 */
	METRIC_LABEL, /* part of larder_cache_info, larder_volume_info */
};

struct metric {
	const char *key;
	enum metric_type type;
	const char *help; /* NULL: that of the status field */
	const char *words; /* that there are, divided by '/' */
	const char *name; /* NULL: it follows from the key */
};

#define COUNTER(key)		{ #key, METRIC_COUNTER, NULL, NULL, NULL }
#define COUNTER_OF(key, help)	{ #key, METRIC_COUNTER, help, NULL, NULL }
#define GAUGE(key)		{ #key, METRIC_GAUGE, NULL, NULL, NULL }
#define GAUGE_OF(key, help)	{ #key, METRIC_GAUGE, help, NULL, NULL }
#define STREAM(key, help)	{ #key, METRIC_GAUGE, help, NULL, #key "_kib_rate" }

static const struct metric cache_metrics[] = {
	{ "uuid", METRIC_LABEL, NULL, NULL, NULL },
	{ "state", METRIC_WORDS, "1 for the state that the cache is in", "running/suspended/failed", NULL },
	GAUGE(devices),
	GAUGE_OF(devices_failed, "SSDs that have failed, are missing or stale"),
	GAUGE(mirrored),
	GAUGE_OF(below_sectors, "data that has fewer copies than the option mirror asks for"),
	GAUGE(set_generation),
	{ "joining", METRIC_GIVEN, "1: an SSD joins the set", NULL, NULL },
	GAUGE_OF(join_sectors, "copied so far to the SSD that joins"),
	GAUGE(drain_segments),
	{ "ssds", METRIC_PLACES, "1 for the state that the SSD in this place of the set is in", "active/draining/joining/failed/removed", "ssd_state" },
	GAUGE(roles_honoured), GAUGE(single_sectors),
	{ "resync", METRIC_WORDS, "1 for the state that making second copies of dirty data is in", "idle/running/waiting/failed", NULL },
	GAUGE_OF(resync_sectors, "copied since the last resync began"),
	GAUGE(lost_sectors),
	{ "trouble", METRIC_WORDS, "flush: 1 while the last flush of an SSD has failed; single: while dirty data has one copy", "flush/single", NULL },
	{ "scrub", METRIC_WORDS, "1 for the state that the last scrub is in", "idle/running/done/stopped/failed", NULL },
	GAUGE_OF(scrub_segments, "segments that the last scrub is done with"),
	GAUGE_OF(scrub_slots, "4 KiB slots that the last scrub has read"),
	GAUGE_OF(scrub_errors, "damaged copies of slots that the last scrub has found"),
	GAUGE_OF(scrub_repaired, "damaged copies that the last scrub has overwritten with another one"),
	GAUGE_OF(scrub_dropped, "slots that the last scrub has dropped, as their data is clean, or not needed"),
	GAUGE_OF(scrub_unrepairable, "dirty slots of which the last scrub found no whole copy, and copies that cannot be written"),
	COUNTER(mended_slots),
	GAUGE(segment_sectors), GAUGE(segments), GAUGE(segments_free), GAUGE(segments_opened), GAUGE(segments_write),
	GAUGE(segments_fill), GAUGE(segments_keep), GAUGE(segments_checkpoint), GAUGE(segments_waiting), GAUGE(segments_mirror),
	GAUGE(segments_lost), GAUGE(volumes), GAUGE(live_sectors), GAUGE(dirty_sectors), GAUGE(index_bytes),
	GAUGE_OF(memory_bytes, "memory of everything but buffers of I/O"),
	GAUGE_OF(memory_limit_bytes, "soft bound of larder_cache_memory_bytes"),
	GAUGE(epoch),
	COUNTER_OF(sequence, "sequence numbers given"),
	COUNTER(records_applied), COUNTER(records_durable), COUNTER(appends),
	COUNTER_OF(append_slots, "4 KiB slots in data appends to the SSD"),
	COUNTER(gathered_appends), COUNTER(commits), COUNTER(commits_full), COUNTER(commits_timer), COUNTER(commits_flush),
	COUNTER(commits_fua), COUNTER(commits_with_data), COUNTER(commits_asked), COUNTER(fill_records), COUNTER(keep_records),
	COUNTER(summaries), COUNTER(ssd_flushes), COUNTER(fua_appends), COUNTER(append_retries), COUNTER(checkpoints), COUNTER(checkpoint_bytes),
	COUNTER(superblock_writes), COUNTER(segment_opens), COUNTER(chunk_opens), COUNTER(reclaimed), COUNTER(reclaim_kept_slots),
	COUNTER(reclaim_moved_slots), COUNTER(reclaim_dropped_slots), COUNTER(reclaim_relinked), COUNTER(reclaim_discards), COUNTER(discards_skipped),
	COUNTER(checked_slots), COUNTER(unchecked_slots), COUNTER(sums_reads), COUNTER(waits_space), COUNTER(waits_pace), COUNTER(waits_memory),
	COUNTER(waits_pool), COUNTER(errors_read), COUNTER(errors_write), COUNTER(errors_checksum), COUNTER(errors_flush),
	GAUGE(replayed_records), GAUGE(replayed_bytes),
	GAUGE_OF(start_ms, "duration of the last start"),
	GAUGE_OF(read_latency_us, "moving average of the latency of reads of the SSD; 0: none timed yet"),
	GAUGE_OF(write_latency_us, "moving average of the latency of appends to the SSD; 0: none timed yet"),
	GAUGE(read_avoided_percent), GAUGE(write_avoided_percent), GAUGE(pinned_sectors),
};

static const struct metric volume_metrics[] = {
	{ "uuid", METRIC_LABEL, NULL, NULL, NULL },
	{ "cache", METRIC_LABEL, NULL, NULL, "cache_uuid" },
	{ "state", METRIC_WORDS, "1 for the state that the volume is in", "running/passthrough/leaving/passing/cache-failed", NULL },
	{ "mode", METRIC_WORDS, "1 for the mode that the volume is in", "writeback/writethrough/writearound/passthrough", NULL },
	GAUGE(room_sectors), GAUGE(cached_sectors), GAUGE(dirty_sectors), GAUGE(extents), GAUGE(index_bytes), GAUGE(may_be_dirty), GAUGE(incarnation),
	GAUGE(marks), GAUGE(flushing),
	{ "trouble", METRIC_WORDS, "1 for what the disk refuses now; full: and so the cache does", "writeback/flush/superblock/full", NULL },
	COUNTER(read_hits), COUNTER(read_misses), COUNTER(read_mixed), COUNTER(read_bypass), COUNTER(read_zeroes),
	COUNTER(read_congested), COUNTER(read_buffered), COUNTER(write_cached), COUNTER(write_buffered), COUNTER(write_through), COUNTER(write_around), COUNTER(write_bypass),
	COUNTER(write_zeroes), COUNTER(write_congested), COUNTER(write_stripes), COUNTER(write_over_share), COUNTER(discards),
	COUNTER(flushes), COUNTER(fuas), COUNTER(read_hit_sectors), COUNTER(read_miss_sectors), COUNTER(write_cached_sectors),
	COUNTER(write_backing_sectors), COUNTER(fills), COUNTER(fill_sectors), COUNTER(fills_dropped), COUNTER(fills_denied),
	COUNTER(fills_first), COUNTER(fills_over_share), COUNTER(readaheads), COUNTER(readahead_sectors), COUNTER(writeback_writes),
	COUNTER(writeback_sectors), COUNTER(writeback_superseded), GAUGE(writeback_rate), COUNTER(backing_flushes), COUNTER(marks_set),
	COUNTER(marks_cleared), COUNTER(deferred), COUNTER(errors_read), COUNTER(errors_write), COUNTER(errors_flush),
	COUNTER(errors_checksum),
	{ "class_reads", METRIC_RULES, NULL, NULL, NULL },
	{ "class_writes", METRIC_RULES, NULL, NULL, NULL },
	{ "class_read_sectors", METRIC_RULES, "read by rule of class", NULL, NULL },
	{ "class_write_sectors", METRIC_RULES, "written by rule of class", NULL, NULL },
	GAUGE(pinned_sectors),
	STREAM(stream_read_ssd, "sequential_cutoff=auto: what a read of a stream gets from the SSD; 0: not known"),
	STREAM(stream_read_backing, "the same from the backing"),
	STREAM(stream_write_ssd, "sequential_cutoff=auto: what a write of a stream gets on the SSD; 0: not known"),
	STREAM(stream_write_backing, "the same on the backing"),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* What caches and volumes differ in. */
static const struct kind {
	bool cache;
	const char *noun;
	const struct metric *metrics;
	size_t number;
	const struct field *fields;
	const size_t *nr_fields;
} kinds[] = {
	{ true, "cache", cache_metrics, COUNT(cache_metrics), cache_status_fields, &cache_status_count },
	{ false, "volume", volume_metrics, COUNT(volume_metrics), volume_status_fields, &volume_status_count },
};

/* How keys with such an end are shown: value * times / by. */
static const struct unit {
	const char *end, *name;
	uint64_t times;
	unsigned by, digits;
} units[] = {
	{ "_sectors", "bytes", 512, 1, 0 },
	{ "_bytes", "bytes", 1, 1, 0 },
	{ "_us", "seconds", 1, 1000000, 6 },
	{ "_ms", "seconds", 1, 1000, 3 },
	{ "_percent", "ratio", 1, 100, 2 },
	{ "_kib_rate", "bytes_per_second", 1024, 1, 0 }, /* of streams: KiB/s */
	{ "_rate", "bytes_per_second", 512, 1, 0 }, /* of writeback: sectors per second */
	{ "", NULL, 1, 1, 0 },
};

#define NAME_TEXT 96

/* A family of samples that is being written. */
struct family {
	FILE *out;
	const struct mapped_list *list;
	enum metrics_format format;
	const struct kind *kind;
	char name[NAME_TEXT]; /* of the samples */
	const struct unit *unit;
	const char **cache; /* by place in list: name of the cache that it is, or of its own; found once, as there are a hundred samples of each */
};

static const struct unit *unit_of(const char *key)
{
	const struct unit *u = units;
	size_t length = strlen(key);

	while (length < strlen(u->end) || strcmp(key + length - strlen(u->end), u->end))
		u++;
	return u;
}

static bool counts(enum metric_type type)
{
	return type == METRIC_COUNTER || type == METRIC_RULES;
}

/* The name of a metric's samples, and its unit. */
static void name_metric(struct family *f, const struct metric *m)
{
	const char *key = m->name ? m->name : m->key;
	int stem;

	f->unit = unit_of(key);
	stem = (int)(strlen(key) - strlen(f->unit->end));
	if (!strcmp(f->unit->end, "_rate")) /* the word stays */
		stem += (int)strlen("_rate");
	snprintf(f->name, sizeof(f->name), "larder_%s_%.*s%s%s%s", f->kind->noun, stem, key, f->unit->name ? "_" : "",
		 f->unit->name ? f->unit->name : "", counts(m->type) ? "_total" : "");
}

static const char *help_of(const struct kind *kind, const struct metric *m)
{
	if (m->help)
		return m->help;
	for (size_t i = 0; i < *kind->nr_fields; i++)
		if (!strcmp(kind->fields[i].name, m->key))
			return kind->fields[i].help;
	return "";
}

/* ------------------------------------------------------------------ text */

/* OpenMetrics names the family of a counter without _total; before it had only the name of its samples. */
static void head(const struct family *f, bool counter, const char *help)
{
	int length = (int)strlen(f->name);

	if (counter && f->format == METRICS_OPENMETRICS)
		length -= (int)strlen("_total");
	fprintf(f->out, "# HELP %.*s %s\n# TYPE %.*s %s\n", length, f->name, help, length, f->name, counter ? "counter" : "gauge");
	if (f->format == METRICS_OPENMETRICS && f->unit->name)
		fprintf(f->out, "# UNIT %.*s %s\n", length, f->name, f->unit->name);
}

static void put_label(FILE *out, const char *before, const char *name, const char *value)
{
	fprintf(out, "%s%s=\"", before, name);
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			putc('\\', out);
		if (*value == '\n')
			fputs("\\n", out);
		else
			putc(*value, out);
	}
	putc('"', out);
}

/* "name{volume="data",cache="fast"": more labels may follow, and then close_sample(). */
static void open_sample(const struct family *f, const struct mapped *m)
{
	fprintf(f->out, "%s{", f->name);
	if (!m->cache)
		put_label(f->out, "", "volume", m->name);
	put_label(f->out, m->cache ? "" : ",", "cache", f->cache[m - f->list->mapped]);
}

static void close_sample(const struct family *f, const char *value)
{
	fprintf(f->out, "} %s\n", value);
}

/* In base units; false: it is no number, or too large to be one of larder's. */
static bool in_units(const struct unit *unit, const char *text, char value[static SIZE_TEXT])
{
	uint64_t number;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *end || *text < '0' || *text > '9' || number > UINT64_MAX / unit->times)
		return false;
	number *= unit->times;
	if (unit->by == 1)
		snprintf(value, SIZE_TEXT, "%" PRIu64, number);
	else
		snprintf(value, SIZE_TEXT, "%" PRIu64 ".%0*" PRIu64, number / unit->by, (int)unit->digits, number % unit->by);
	return true;
}

/* ------------------------------------------------------------------ samples of one device */

static bool same_word(const char *word, size_t length, const char *other, size_t other_length)
{
	return length == other_length && !memcmp(word, other, length);
}

static bool has(const char *words, const char *word, size_t length)
{
	for (size_t n; *words; words += n + (words[n] == '/')) {
		n = strcspn(words, "/");
		if (same_word(words, n, word, length))
			return true;
	}
	return false;
}

static void word_sample(const struct family *f, const struct mapped *m, const char *place, const char *label, const char *word, size_t length,
			bool set)
{
	char text[NAME_TEXT];

	snprintf(text, sizeof(text), "%.*s", (int)length, word);
	open_sample(f, m);
	if (place)
		put_label(f->out, ",", "ssd", place);
	put_label(f->out, ",", label, text);
	close_sample(f, set ? "1" : "0");
}

/* One for each word that there is, and for those of a newer kernel. */
static void word_samples(const struct family *f, const struct mapped *m, const char *place, const char *label, const char *words,
			 const char *value)
{
	size_t n;

	for (const char *word = words; *word; word += n + (word[n] == '/')) {
		n = strcspn(word, "/");
		word_sample(f, m, place, label, word, n, has(value, word, n));
	}
	for (const char *word = value; *word; word += n + (word[n] == '/')) {
		n = strcspn(word, "/");
		if (n && !same_word(word, n, "-", 1) && !has(words, word, n))
			word_sample(f, m, place, label, word, n, true);
	}
}

static void place_samples(const struct family *f, const struct mapped *m, const char *words, char *value)
{
	unsigned place = 0;
	char *word, number[12];

	while ((word = strsep(&value, "/"))) {
		snprintf(number, sizeof(number), "%u", place++);
		word_samples(f, m, number, "state", words, word);
	}
}

/* The last is of what no rule matched. */
static void rule_samples(const struct family *f, const struct mapped *m, char *value)
{
	char *word, number[12], text[SIZE_TEXT];
	unsigned rule = 0;

	while ((word = strsep(&value, "/"))) {
		snprintf(number, sizeof(number), "%u", rule++);
		if (!in_units(f->unit, word, text))
			continue;
		open_sample(f, m);
		put_label(f->out, ",", "rule", value ? number : "none");
		close_sample(f, text);
	}
}

static void samples(const struct family *f, const struct mapped *m, const struct metric *metric)
{
	char *value = status_value(m->status, metric->key), text[SIZE_TEXT];

	if (!value)
		return;
	switch (metric->type) {
	case METRIC_COUNTER:
	case METRIC_GAUGE:
		if (!in_units(f->unit, value, text))
			break;
		open_sample(f, m);
		close_sample(f, text);
		break;
	case METRIC_GIVEN:
		open_sample(f, m);
		close_sample(f, strcmp(value, "-") ? "1" : "0");
		break;
	case METRIC_WORDS:
		word_samples(f, m, NULL, metric->key, metric->words, value);
		break;
	case METRIC_PLACES:
		place_samples(f, m, metric->words, value);
		break;
	case METRIC_RULES:
		rule_samples(f, m, value);
		break;
	case METRIC_LABEL:
		break;
	}
	free(value);
}

/* ------------------------------------------------------------------ families beside the keys */

static void info_samples(const struct family *f, const struct mapped *m)
{
	open_sample(f, m);
	for (size_t i = 0; i < f->kind->number; i++) {
		const struct metric *metric = &f->kind->metrics[i];
		char *value = metric->type == METRIC_LABEL ? status_value(m->status, metric->key) : NULL;

		if (value)
			put_label(f->out, ",", metric->name ? metric->name : metric->key, value);
		free(value);
	}
	close_sample(f, "1");
}

static void option_samples(const struct family *f, const struct mapped *m)
{
	open_sample(f, m);
	for (size_t i = 0; i < *f->kind->nr_fields; i++) {
		const struct field *field = &f->kind->fields[i];
		char *value = field->kind == VALUE_OPTION ? status_value(m->status, field->name) : NULL;

		if (value)
			put_label(f->out, ",", field->name, value);
		free(value);
	}
	close_sample(f, "1");
}

static void size_samples(const struct family *f, const struct mapped *m)
{
	open_sample(f, m);
	fprintf(f->out, "} %" PRIu64 "\n", m->sectors << 9);
}

static void problem_samples(const struct family *f, const struct mapped *m)
{
	struct problems found = { 0 };

	(m->cache ? advise_cache : advise_volume)(m->name, m->status, &found);
	open_sample(f, m);
	fprintf(f->out, "} %zu\n", found.number);
	problems_free(&found);
}

static const struct own {
	const char *name;
	void (*write)(const struct family *f, const struct mapped *m);
	bool of_cache, of_volume;
	const char *help;
} owns[] = {
	{ "info", info_samples, true, true, "always 1; its labels say which one it is" },
	{ "options_info", option_samples, true, true, "always 1; its labels are the options that are set" },
	{ "size_bytes", size_samples, false, true, "size of the volume" },
	{ "problems", problem_samples, true, true, "things that larder status finds wrong with it" },
};

static bool name_own(struct family *f, const struct own *own)
{
	f->unit = unit_of(own->name);
	snprintf(f->name, sizeof(f->name), "larder_%s_%s", f->kind->noun, own->name);
	return f->kind->cache ? own->of_cache : own->of_volume;
}

static bool has_kind(const struct family *f)
{
	for (size_t i = 0; i < f->list->number; i++)
		if (f->list->mapped[i].cache == f->kind->cache)
			return true;
	return false;
}

static void write_kind(struct family *f)
{
	const struct mapped *m = f->list->mapped, *end = m + f->list->number;

	for (size_t i = 0; i < COUNT(owns); i++) {
		if (!name_own(f, &owns[i]))
			continue;
		head(f, false, owns[i].help);
		for (m = f->list->mapped; m < end; m++)
			if (m->cache == f->kind->cache)
				owns[i].write(f, m);
	}
	for (size_t i = 0; i < f->kind->number; i++) {
		const struct metric *metric = &f->kind->metrics[i];

		if (metric->type == METRIC_LABEL)
			continue;
		name_metric(f, metric);
		head(f, counts(metric->type), help_of(f->kind, metric));
		for (m = f->list->mapped; m < end; m++)
			if (m->cache == f->kind->cache)
				samples(f, m, metric);
	}
}

static const char **find_caches(const struct mapped_list *list)
{
	const char **names = must_allocate(calloc(list->number + 1, sizeof(*names)));

	for (size_t i = 0; i < list->number; i++) {
		const struct mapped *m = &list->mapped[i], *cache = m->cache ? m : snapshot_cache(list, m);

		names[i] = cache ? snapshot_name(list, cache) : "";
	}
	return names;
}

static const char stalled_name[] = "larder_stalled_seconds", stalled_help[] = "for how long a device below it has answered nothing, as larderd has seen; only while one does so";

static void write_stalled(FILE *out, const struct stalled_list *list, enum metrics_format format)
{
	if (!list->number)
		return;
	fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n", stalled_name, stalled_help, stalled_name);
	if (format == METRICS_OPENMETRICS)
		fprintf(out, "# UNIT %s seconds\n", stalled_name);
	for (size_t i = 0; i < list->number; i++) {
		const struct stalled *s = &list->stalled[i];
		double seconds = list->now > s->since ? list->now - s->since : 0;

		fprintf(out, "%s{", stalled_name);
		put_label(out, "", "device", s->disk);
		put_label(out, ",", s->cache ? "cache" : "volume", s->name);
		fprintf(out, "} %.0f\n", seconds);
	}
}

void metrics_write(FILE *out, const struct mapped_list *list, const struct stalled_list *stalled, enum metrics_format format)
{
	const char **caches = find_caches(list);

	for (size_t k = 0; k < COUNT(kinds); k++) {
		struct family f = { .out = out, .list = list, .format = format, .kind = &kinds[k], .cache = caches };

		if (has_kind(&f))
			write_kind(&f);
	}
	free(caches);
	write_stalled(out, stalled, format);
	if (format == METRICS_OPENMETRICS)
		fputs("# EOF\n", out);
}

static void describe(const struct family *f, bool counter, const char *help)
{
	fprintf(f->out, "%-44s %-8s %-17s %s\n", f->name, counter ? "counter" : "gauge", f->unit->name ? f->unit->name : "-", help);
}

void metrics_describe(FILE *out)
{
	for (size_t k = 0; k < COUNT(kinds); k++) {
		struct family f = { .out = out, .kind = &kinds[k] };

		for (size_t i = 0; i < COUNT(owns); i++)
			if (name_own(&f, &owns[i]))
				describe(&f, false, owns[i].help);
		for (size_t i = 0; i < f.kind->number; i++) {
			if (f.kind->metrics[i].type == METRIC_LABEL)
				continue;
			name_metric(&f, &f.kind->metrics[i]);
			describe(&f, counts(f.kind->metrics[i].type), help_of(f.kind, &f.kind->metrics[i]));
		}
	}
	fprintf(out, "%-44s %-8s %-17s %s\n", stalled_name, "gauge", "seconds", stalled_help);
}
