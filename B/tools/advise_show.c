// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder advise: the table, and what it comes to in words.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise.h"

#define NOTHING	    5 /* percent that are not worth an SSD */
#define FIRST_SHARE 0.2 /* of reads: so many that nothing could have served, and the time was too short */

static const struct field fields[] = {
	{ "size", VALUE_BYTES, "Size", "of cached data; the SSD has to be a few percent larger" },
	{ "hit_percent", VALUE_DECIMAL, "Hit%", "share of reads that a cache of this size serves: of requests, as in larder monitor; empty: none were seen" },
	{ "error_percent", VALUE_DECIMAL, "+-", "standard error of hit_percent, as sampling leaves it" },
	{ "byte_hit_percent", VALUE_DECIMAL, "Bytes%", "the same share of bytes" },
	{ "disk_read_bytes", VALUE_BYTES, "DiskRead", "what the disk still has to read of what was read" },
	{ "overwrite_percent", VALUE_DECIMAL, "Overwr%", "share of what was written that replaces what is in the cache: the disk may get it once, later" },
	{ "past_percent", VALUE_DECIMAL, "Past%", "share of requests, of long streams, that go past the cache" },
	{ "first_percent", VALUE_DECIMAL, "First%", "share of reads of what was not asked for before: no size serves them" },
	{ "knee", VALUE_NUMBER, "Knee", "1: the smallest that serves nine tenths of the reads that the largest does" },
	{ "reads", VALUE_NUMBER, "Reads", "reads seen" },
	{ "writes", VALUE_NUMBER, "Writes", "writes seen" },
	{ "read_bytes", VALUE_BYTES, "Read", "read, in blocks of 4 KiB" },
	{ "write_bytes", VALUE_BYTES, "Written", "written, in blocks of 4 KiB" },
	{ "lost", VALUE_NUMBER, "Lost", "requests that are missing in the trace" },
	{ "samples", VALUE_NUMBER, "Samples", "references that were followed" },
	{ "sampled_percent", VALUE_DECIMAL, "Sampled%", "share of blocks that are followed" },
	{ "working_set", VALUE_BYTES, "WorkingSet", "what was asked for, each block once" },
	{ "seconds", VALUE_DECIMAL, "Seconds", "how long" },
};

#define DEFAULT_FIELDS "size,hit_percent,error_percent,byte_hit_percent,disk_read_bytes,overwrite_percent"

static double reads_served(const struct advice_seen *seen, uint64_t bytes)
{
	return hit_curve_ratio(seen->curve, HIT_READ, HIT_REQUESTS, bytes, NULL);
}

/* Of reads: share of those that go past the cache, and of those that come first.  A read of a stream may still be served. */
static double past_share(const struct hit_totals *t, enum hit_access first, enum hit_access last)
{
	double past = 0, all = 0;

	for (int kind = (int)first; kind <= (int)last; kind++) {
		past += (double)t->past[kind];
		all += (double)t->requests[kind];
	}
	return all > 0 ? past / all : 0;
}

static double first_share(const struct advice_seen *seen)
{
	return fmax(0, 1 - reads_served(seen, HIT_ALL) - past_share(&seen->totals, HIT_READ, HIT_READ));
}

uint64_t advice_knee(const struct advice_seen *seen)
{
	uint64_t size = seen->smallest;

	while (size < seen->largest && reads_served(seen, size) < KNEE_SHARE * reads_served(seen, seen->largest))
		size *= 2;
	return size;
}

const char *advice_size(char text[static SIZE_TEXT], uint64_t bytes)
{
	const struct size_format human = { 'h', true };
	char *zeroes;

	size_print(text, bytes, &human);
	zeroes = strstr(text, ".00");
	if (zeroes)
		memmove(zeroes, zeroes + 3, strlen(zeroes + 3) + 1);
	return text;
}

static void set_percent(struct report *report, struct row *row, const char *field, double ratio)
{
	if (ratio >= 0)
		report_set(report, row, field, "%.1f", 100 * ratio);
}

static void add_size(struct report *report, const struct advice_seen *seen, uint64_t bytes)
{
	const struct hit_totals *t = &seen->totals;
	struct row row = { 0 };
	double error, hit = hit_curve_ratio(seen->curve, HIT_READ, HIT_REQUESTS, bytes, &error), of_bytes;

	of_bytes = hit_curve_ratio(seen->curve, HIT_READ, HIT_BLOCKS, bytes, NULL);
	report_set(report, &row, "size", "%" PRIu64, bytes);
	set_percent(report, &row, "hit_percent", hit);
	set_percent(report, &row, "error_percent", hit < 0 ? -1 : error);
	set_percent(report, &row, "byte_hit_percent", of_bytes);
	report_set(report, &row, "disk_read_bytes", "%.0f", of_bytes < 0 ? 0 : (1 - of_bytes) * ldexp((double)t->blocks[HIT_READ], HIT_BLOCK_SHIFT));
	set_percent(report, &row, "overwrite_percent", hit_curve_ratio(seen->curve, HIT_WRITE, HIT_BLOCKS, bytes, NULL));
	set_percent(report, &row, "past_percent", past_share(t, HIT_READ, HIT_WRITE));
	set_percent(report, &row, "first_percent", hit < 0 ? -1 : first_share(seen));
	report_set(report, &row, "knee", "%d", hit >= 0 && bytes == advice_knee(seen));
	report_set(report, &row, "reads", "%" PRIu64, t->requests[HIT_READ]);
	report_set(report, &row, "writes", "%" PRIu64, t->requests[HIT_WRITE]);
	report_set(report, &row, "read_bytes", "%" PRIu64, t->blocks[HIT_READ] << HIT_BLOCK_SHIFT);
	report_set(report, &row, "write_bytes", "%" PRIu64, t->blocks[HIT_WRITE] << HIT_BLOCK_SHIFT);
	report_set(report, &row, "lost", "%" PRIu64, seen->lost);
	report_set(report, &row, "samples", "%" PRIu64, t->samples);
	report_set(report, &row, "sampled_percent", "%.4f", 100 * t->rate);
	report_set(report, &row, "working_set", "%" PRIu64, t->working_set << HIT_BLOCK_SHIFT);
	report_set(report, &row, "seconds", "%.3f", seen->seconds);
	report_add(report, &row);
}

static struct report *new_report(const struct report_options *options, int *result)
{
	const struct field *sections[] = { fields };
	const size_t counts[] = { sizeof(fields) / sizeof(fields[0]) };
	struct report_options sorted = *options;

	if (!sorted.sort)
		sorted.sort = "size";
	return report_new("advise", sections, counts, 1, DEFAULT_FIELDS, &sorted, result);
}

int advice_check(const struct report_options *options, bool *go_on)
{
	struct report *report;
	int result;

	report = new_report(options, &result);
	*go_on = report;
	if (report)
		report_discard(report);
	return result;
}

/* ------------------------------------------------------------------ in words */

static void say_seen(const struct advice_seen *seen)
{
	const struct hit_totals *t = &seen->totals;
	char read[SIZE_TEXT], written[SIZE_TEXT], set[SIZE_TEXT];

	printf("\n%s, %.0f s: %" PRIu64 " reads of %s, %" PRIu64 " writes of %s, to %s different.", seen->what, seen->seconds, t->requests[HIT_READ],
	       advice_size(read, t->blocks[HIT_READ] << HIT_BLOCK_SHIFT), t->requests[HIT_WRITE],
	       advice_size(written, t->blocks[HIT_WRITE] << HIT_BLOCK_SHIFT), advice_size(set, t->working_set << HIT_BLOCK_SHIFT));
	if (t->past[HIT_READ] + t->past[HIT_WRITE])
		printf("  %.1f %% of the requests are of long streams, which go past the cache (--cutoff).", 100 * past_share(t, HIT_READ, HIT_WRITE));
	putchar('\n');
}

static void say_sure(const struct advice_seen *seen)
{
	const struct hit_totals *t = &seen->totals;

	if (t->rate < 1)
		printf("Sampled: %" PRIu64 " references, of one block in %.0f; +- is their standard error.\n", t->samples, 1 / t->rate);
	if (t->requests[HIT_READ] && first_share(seen) > FIRST_SHARE)
		printf("Too short: %.0f %% of reads were the first of their place in this time, and what serves those cannot be known: trace for longer.\n",
		       100 * first_share(seen));
	puts("Estimated for LRU; larder's own policy served 2 to 7 points more, in the mean of its traces (larder-advise(8)).");
}

static void say_knee(const struct advice_seen *seen)
{
	double best = 100 * reads_served(seen, seen->largest);
	uint64_t knee = advice_knee(seen);
	char text[SIZE_TEXT];

	if (!seen->totals.requests[HIT_READ])
		puts("No read was seen: for writes alone an SSD of any size that holds what is written between idle times will do.");
	else if (best < NOTHING)
		printf("No knee: no size serves more than %.1f %% of these reads; an SSD would make writes faster.\n", best);
	else
		printf("The knee: %s give %.1f %%, half of it %.1f %%, twice as much %.1f %%.\n", advice_size(text, knee), 100 * reads_served(seen, knee),
		       100 * reads_served(seen, knee / 2), 100 * reads_served(seen, 2 * knee));
}

int advice_show(const struct advice_seen *seen, const struct report_options *options, const struct argument_list *sizes)
{
	struct report *report;
	uint64_t bytes;
	int result;

	report = new_report(options, &result);
	if (!report)
		return result;
	for (bytes = seen->smallest; bytes <= seen->largest; bytes *= 2)
		add_size(report, seen, bytes);
	for (int i = 0; i < sizes->number; i++)
		if (size_parse(sizes->value[i], &bytes))
			add_size(report, seen, bytes);
	result = report_print(report);
	if (result || options->noheadings || (options->format && !strcmp(options->format, "json")))
		return result;
	chart_print(seen);
	say_seen(seen);
	say_sure(seen);
	say_knee(seen);
	return LARDER_DONE;
}
