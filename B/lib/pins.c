// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Ranges, and the rules that pin them (pins.h).
 *
 * A preset cannot stand behind other rules, so it is spelled out there, as docs/interface.md does.  What is empty behind the pins caches everything, as
 * the kernel has it for what no rule matches: that is the preset `everything`.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "pins.h"

static const struct preset {
	const char *name, *rules;
} presets[] = {
	{ "default", "sequential:bypass" },
	{ "special", "metadata:cache/size-32:cache/any:bypass" },
	{ "log", "sync:cache/any:bypass" },
	{ "everything", "any:cache" },
};

#define NR_PRESETS (sizeof(presets) / sizeof(presets[0]))

/* ------------------------------------------------------------------ ranges */

/* There is room for the next power of two. */
void ranges_add(struct ranges *ranges, uint64_t first, uint64_t end)
{
	size_t n = ranges->number;

	if (!(n & (n - 1)))
		ranges->range = must_allocate(realloc(ranges->range, (n ? 2 * n : 1) * sizeof(*ranges->range)));
	ranges->range[ranges->number++] = (struct range){ first, end };
}

static int by_first(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

void ranges_join(struct ranges *ranges)
{
	size_t kept = 0;

	if (!ranges->number)
		return;
	qsort(ranges->range, ranges->number, sizeof(*ranges->range), by_first);
	for (size_t i = 1; i < ranges->number; i++) {
		struct range *last = &ranges->range[kept], *next = &ranges->range[i];

		if (next->first > last->end)
			ranges->range[++kept] = *next;
		else if (next->end > last->end)
			last->end = next->end;
	}
	ranges->number = kept + 1;
}

struct gap {
	uint64_t sectors;
	size_t before; /* the range behind it */
};

static int by_sectors(const void *a, const void *b)
{
	const struct gap *x = a, *y = b;

	if (x->sectors != y->sectors)
		return x->sectors < y->sectors ? -1 : 1;
	return x->before < y->before ? -1 : x->before > y->before;
}

uint64_t ranges_close(struct ranges *ranges, size_t max)
{
	size_t number = ranges->number, closed, kept = 0;
	struct range *r = ranges->range;
	uint64_t sectors = 0;
	struct gap *gaps;
	bool *open;

	max = max ? max : 1;
	if (number <= max)
		return 0;
	closed = number - max;
	gaps = must_allocate(calloc(number, sizeof(*gaps)));
	open = must_allocate(calloc(number, sizeof(*open)));
	for (size_t i = 1; i < number; i++)
		gaps[i - 1] = (struct gap){ r[i].first - r[i - 1].end, i };
	qsort(gaps, number - 1, sizeof(*gaps), by_sectors);
	for (size_t i = 0; i < closed; i++)
		sectors += gaps[i].sectors;
	for (size_t i = closed; i < number - 1; i++)
		open[gaps[i].before] = true;
	for (size_t i = 1; i < number; i++) {
		if (open[i])
			r[++kept] = r[i];
		else
			r[kept].end = r[i].end;
	}
	ranges->number = kept + 1;
	free(gaps);
	free(open);
	return sectors;
}

uint64_t ranges_length(const struct ranges *ranges)
{
	uint64_t length = 0;

	for (size_t i = 0; i < ranges->number; i++)
		length += ranges->range[i].end - ranges->range[i].first;
	return length;
}

uint64_t ranges_common(const struct ranges *ranges, uint64_t first, uint64_t end)
{
	uint64_t common = 0;

	for (size_t i = 0; i < ranges->number; i++) {
		uint64_t from = ranges->range[i].first > first ? ranges->range[i].first : first,
			 to = ranges->range[i].end < end ? ranges->range[i].end : end;

		if (from < to)
			common += to - from;
	}
	return common;
}

void ranges_free(struct ranges *ranges)
{
	free(ranges->range);
	*ranges = (struct ranges){ 0 };
}

/* ------------------------------------------------------------------ lists */

const char *class_pins(const char *list, struct ranges *pins)
{
	*pins = (struct ranges){ 0 };
	for (;;) {
		uint64_t first, end;
		unsigned percent;
		int length = 0;

		if (sscanf(list, "lba-%" SCNu64 "-%" SCNu64 ":pin-%u%n", &first, &end, &percent, &length) != 3 || !length ||
		    percent != PIN_PERCENT || (list[length] && list[length] != '/') || first >= end)
			return list;
		ranges_add(pins, first, end);
		list += length;
		if (!*list)
			return list;
		list++;
	}
}

char *class_without_pins(const char *list)
{
	struct ranges pins;
	const char *rest = class_pins(list, &pins);
	bool pinned = pins.number;

	ranges_free(&pins);
	if (!*rest)
		return must_print("%s", pinned ? "everything" : "default");
	for (size_t i = 0; pinned && i < NR_PRESETS; i++)
		if (!strcmp(rest, presets[i].rules))
			return must_print("%s", presets[i].name);
	return must_print("%s", rest);
}

char *class_with_pins(const char *list, const struct ranges *pins)
{
	char *text = must_print("%s", ""), *rest = class_without_pins(list), *longer;
	const char *rules = rest;

	if (!pins->number) {
		free(text);
		return rest;
	}
	for (size_t i = 0; i < NR_PRESETS; i++)
		if (!strcmp(rest, presets[i].name))
			rules = presets[i].rules;
	for (size_t i = 0; i < pins->number; i++) {
		longer = must_print("%slba-%" PRIu64 "-%" PRIu64 ":pin-%u/", text, pins->range[i].first, pins->range[i].end, PIN_PERCENT);
		free(text);
		text = longer;
	}
	longer = must_print("%s%s", text, rules);
	free(text);
	free(rest);
	return longer;
}

unsigned class_rules(const char *list, unsigned *pinning)
{
	unsigned rules = *list ? 1 : 0;

	*pinning = 0;
	for (; *list; list++) {
		rules += *list == '/';
		*pinning += !strncmp(list, ":pin-", strlen(":pin-"));
	}
	return rules;
}
