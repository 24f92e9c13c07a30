// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder monitor: what volumes do, a line for each and for each interval.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arguments.h"
#include "monitor.h"
#include "rates.h"
#include "running.h"
#include "snapshot.h"
#include "verbs.h"

static const struct field fields[] = {
	{ "time", VALUE_TEXT, "Time", "end of the interval" },
	{ "seconds", VALUE_DECIMAL, "Seconds", "length of the interval" },
	{ "name", VALUE_TEXT, "Name", "name of the volume" },
	{ "cache_name", VALUE_TEXT, "Cache", "name of its cache" },
	{ "state", VALUE_TEXT, "State", "running, passthrough, leaving, passing, cache-failed" },
	{ "mode", VALUE_TEXT, "Mode", "writeback, writethrough, writearound, passthrough" },
	{ "trouble", VALUE_TEXT, "Trouble", "what the disk refuses now: writeback, flush, superblock; full: and so the cache does; -: nothing" },
	{ "hit_percent", VALUE_DECIMAL, "Hit%", "share of reads that the cache served; empty: none were read" },
	{ "reads", VALUE_DECIMAL, "Rd/s", "reads, a second" },
	{ "read_bytes", VALUE_BYTES, "Read/s", "read, a second" },
	{ "writes", VALUE_DECIMAL, "Wr/s", "writes, a second" },
	{ "write_bytes", VALUE_BYTES, "Written/s", "written, a second" },
	{ "flushes", VALUE_DECIMAL, "Fl/s", "flushes, a second" },
	{ "fill_bytes", VALUE_BYTES, "Filled/s", "filled into the cache, a second" },
	{ "cached_bytes", VALUE_BYTES, "Cached", "cached data" },
	{ "dirty_bytes", VALUE_BYTES, "Dirty", "cached data newer than the backing" },
	{ "writeback_bytes", VALUE_BYTES, "Wb/s", "written back, a second" },
	{ "read_latency_us", VALUE_NUMBER, "SSDrd-us", "average latency of reads of the SSD, us" },
	{ "write_latency_us", VALUE_NUMBER, "SSDwr-us", "average latency of appends to the SSD, us" },
	{ "waits", VALUE_DECIMAL, "Waits/s", "attempts that found no space in the cache, a second" },
};

#define DEFAULT_FIELDS \
	"time,name,hit_percent,reads,read_bytes,writes,write_bytes,dirty_bytes,writeback_bytes,read_latency_us,write_latency_us,trouble"
#define HEADINGS_EVERY 20 /* lines, so that a screen has some */

struct monitor {
	struct report_options options;
	char *const *names;
	int nr_names;
	size_t lines; /* since the last headings */
	size_t volumes; /* in the last report */
};

bool interval_parse(const char *option, const char *text, double *seconds)
{
	char *end;

	if (!text)
		return true;
	*seconds = strtod(text, &end);
	/* not a number is in no range */
	if (end != text && !*end && *seconds >= 0.1 && *seconds <= 86400)
		return true;
	complain(LARDER_USAGE, "%s: '%s' is not a number of seconds between 0.1 and 86400", option, text);
	return false;
}

void interval_wait(const struct sample *since, double seconds)
{
	double whole, part = modf(since->at + seconds, &whole);
	struct timespec until = { (time_t)whole, (long)(part * 1e9) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

/* By its label in the superblock, or by the disk that it is on. */
static const struct mapped *find_by_member(const struct mapped_list *list, const char *name)
{
	const struct mapped *found = NULL;
	struct members members;

	members_scan(&members);
	for (size_t i = 0; !found && i < members.number; i++) {
		const struct member *m = members.member[i];

		if (!strcmp(m->path, name) ? le32toh(m->sb.head.kind) == LARDER_KIND_VOLUME : member_is(m, name, LARDER_KIND_VOLUME))
			found = running_by_uuid(list, m->sb.head.uuid, false);
	}
	members_free(&members);
	return found;
}

int volumes_known(const struct mapped_list *list, char *const *names, int number, char ***known)
{
	*known = must_allocate(calloc((size_t)number + 1, sizeof(**known)));
	for (int i = 0; i < number; i++) {
		const struct mapped *m = snapshot_find(list, names[i], false);

		m = m ? m : running_named(list, names[i], false);
		m = m ? m : find_by_member(list, names[i]);
		if (!m)
			return complain(LARDER_NOT_FOUND, "%s: no volume of that name runs; larder volume list shows them", names[i]);
		(*known)[i] = must_allocate(strdup(m->name));
	}
	return LARDER_DONE;
}

void volumes_forget(char **known)
{
	for (char **name = known; name && *name; name++)
		free(*name);
	free(known);
}

bool volume_wanted(const struct mapped *volume, char *const *names, int number)
{
	for (int i = 0; i < number; i++)
		if (!strcmp(volume->name, names[i]))
			return true;
	return !number;
}

static void set_text(struct report *report, struct row *row, const struct mapped *volume, const char *key)
{
	char *value = status_value(volume->status, key);

	report_set(report, row, key, "%s", value ? value : "");
	free(value);
}

static void add_volume(struct report *report, const struct sample *now, const struct mapped *volume, const struct volume_rates *rates)
{
	const struct mapped *cache = snapshot_cache(&now->list, volume);
	time_t clock = time(NULL);
	struct row row = { 0 };
	struct tm local;
	char text[16];

	strftime(text, sizeof(text), "%H:%M:%S", localtime_r(&clock, &local));
	report_set(report, &row, "time", "%s", text);
	report_set(report, &row, "seconds", "%.3f", rates->seconds);
	report_set(report, &row, "name", "%s", volume->name);
	report_set(report, &row, "cache_name", "%s", cache ? snapshot_name(&now->list, cache) : "");
	set_text(report, &row, volume, "state");
	set_text(report, &row, volume, "mode");
	set_text(report, &row, volume, "trouble");
	if (rates->hit_ratio >= 0)
		report_set(report, &row, "hit_percent", "%.1f", 100 * rates->hit_ratio);
	report_set(report, &row, "reads", "%.1f", rates->reads);
	report_set(report, &row, "read_bytes", "%.0f", rates->read_bytes);
	report_set(report, &row, "writes", "%.1f", rates->writes);
	report_set(report, &row, "write_bytes", "%.0f", rates->write_bytes);
	report_set(report, &row, "flushes", "%.1f", rates->flushes);
	report_set(report, &row, "fill_bytes", "%.0f", rates->fill_bytes);
	report_set(report, &row, "cached_bytes", "%" PRIu64, rates->cached_bytes);
	report_set(report, &row, "dirty_bytes", "%" PRIu64, rates->dirty_bytes);
	report_set(report, &row, "writeback_bytes", "%.0f", rates->writeback_bytes);
	if (rates->has_cache) {
		report_set(report, &row, "read_latency_us", "%" PRIu64, rates->read_latency_us);
		report_set(report, &row, "write_latency_us", "%" PRIu64, rates->write_latency_us);
		report_set(report, &row, "waits", "%.1f", rates->waits);
	}
	report_add(report, &row);
}

/* Headings come back when columns may change their width, and before they leave the screen. */
static struct report_options options_now(struct monitor *m, size_t volumes)
{
	struct report_options options = m->options;

	if (m->lines && volumes == m->volumes && m->lines < HEADINGS_EVERY)
		options.noheadings = true;
	else
		m->lines = 0;
	m->lines += volumes;
	m->volumes = volumes;
	return options;
}

static struct report *new_report(const struct report_options *options, int *result)
{
	const struct field *sections[] = { fields };
	const size_t counts[] = { sizeof(fields) / sizeof(fields[0]) };

	return report_new("monitor", sections, counts, 1, DEFAULT_FIELDS, options, result);
}

static int show(struct monitor *m, const struct sample *before, const struct sample *now)
{
	struct report_options options;
	struct volume_rates rates;
	struct report *report;
	size_t volumes = 0;
	int result;

	for (size_t i = 0; i < now->list.number; i++)
		volumes += !now->list.mapped[i].cache && volume_wanted(&now->list.mapped[i], m->names, m->nr_names);
	options = options_now(m, volumes);
	report = new_report(&options, &result);
	if (!report)
		return result;
	for (size_t i = 0; i < now->list.number; i++) {
		const struct mapped *v = &now->list.mapped[i];

		if (!v->cache && volume_wanted(v, m->names, m->nr_names) && rates_of_volume(before, now, v, &rates))
			add_volume(report, now, v, &rates);
	}
	result = report_print(report);
	if (!result && fflush(stdout))
		result = complain(LARDER_FAILED, "cannot write the output");
	return result;
}

static bool count_parse(const char *text, uint64_t *count)
{
	char *end;

	*count = UINT64_MAX;
	if (!text)
		return true;
	errno = 0;
	*count = strtoull(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && !errno && *count)
		return true;
	complain(LARDER_USAGE, "--count: '%s' is not a number from 1 on", text);
	return false;
}

static int run(struct monitor *m, double interval, uint64_t count)
{
	struct sample before, now;
	char **known = NULL;
	int result = sample_take(&before);

	if (!result)
		result = volumes_known(&before.list, m->names, m->nr_names, &known);
	m->names = known;
	for (uint64_t i = 0; !result && i < count; i++) {
		interval_wait(&before, interval);
		result = sample_take(&now);
		if (!result)
			result = show(m, &before, &now);
		sample_free(&before);
		before = now;
	}
	sample_free(&before);
	volumes_forget(known);
	return result;
}

int monitor(int argc, char **argv)
{
	struct monitor m = { .options = { .units = { 'h', true }, .steady = true } };
	const char *interval_text = NULL, *count_text = NULL;
	const struct argument arguments[] = {
		{ "interval", 'i', ARGUMENT_TEXT, &interval_text, "SECONDS", "length of an interval; default: 1" },
		{ "count", 'c', ARGUMENT_TEXT, &count_text, "N", "end after so many intervals; default: go on until interrupted" },
		REPORT_ARGUMENTS(m.options),
		ARGUMENTS_END
	};
	double interval = 1;
	struct report *report;
	uint64_t count;
	int first, result;

	if (!arguments_words(argc, argv, "larder monitor [--interval SECONDS] [--count N] [-o FIELD,...] [--reportformat json] [VOLUME...]",
			     arguments, 0, -1, &first, &result))
		return result;
	if (!interval_parse("--interval", interval_text, &interval) || !count_parse(count_text, &count))
		return LARDER_USAGE;
	/* -o help, and complaints, before anything is waited for */
	report = new_report(&m.options, &result);
	if (!report)
		return result;
	report_discard(report);
	mapped_init(false);
	m.names = argv + first;
	m.nr_names = argc - first;
	return run(&m, interval, count);
}
