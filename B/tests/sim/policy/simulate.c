// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Replays a block trace through larder's policy (larder.c) and through others (policies.h).
 *
 *	simulate [-s PERCENT,...] [-b BLOCKS,...] [-l] [-v NAME[:KEY=VALUE,...]]... TRACE|-
 *
 * -s: cache sizes in percent of the footprint (1,5,10,20); -b: in blocks of 4 KiB instead; -l: larder only; -v: a larder of that name with
 * settings: small_percent, sequential_cutoff (KiB), second_miss (1: admit=second-miss), segments (at least so many), segment_slots (at most so many).  Requests are cut
 * into blocks of 4 KiB; a hit is a block found cached, read or written; what is not found is cached, read or written.
 *
 * Prints one object of JSON.  Exit code 1: the trace cannot be read; 2: the command line is wrong.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "larder.h"
#include "policies.h"

#define SIZES_MAX	16
#define VARIANTS_MAX	16
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

static const struct {
	const char *name;
	policy_fn hits;
} policies[] = {
	{ "LRU", lru }, { "FIFO", fifo }, { "CLOCK", clock1 }, { "CLOCK-2", clock2 }, { "2Q", twoq }, { "ARC", arc },
	{ "LIRS", lirs }, { "SIEVE", sieve }, { "S3-FIFO", s3fifo }, { "MIN", min_offline },
};

static const struct {
	const char *key;
	size_t offset;
	uint32_t least, most;
} settings[] = {
	{ "small_percent", offsetof(struct larder_options, small_percent), 5, 10 },
	{ "sequential_cutoff", offsetof(struct larder_options, cutoff), 0, 4194304 },
	{ "second_miss", offsetof(struct larder_options, second_miss), 0, 1 },
	{ "segments", offsetof(struct larder_options, segments), 1, 1 << 20 },
	{ "segment_slots", offsetof(struct larder_options, segment_slots), LARDER_LEAST_SLOTS, 4096 },
};

struct variant {
	const char *name;
	struct larder_options o;
};

struct job {
	double size[SIZES_MAX];
	unsigned int sizes, variants;
	bool in_blocks, larder_only;
	struct variant variant[VARIANTS_MAX];
};

static void __attribute__((__noreturn__)) usage(const char *what, const char *value)
{
	fprintf(stderr, "simulate: %s: '%s'\n"
			"usage: simulate [-s PERCENT,...] [-b BLOCKS,...] [-l] [-v NAME[:KEY=VALUE,...]]... TRACE|-\n", what, value);
	exit(2);
}

static void parse_sizes(struct job *j, char *list, bool in_blocks)
{
	char *word, *end;

	j->in_blocks = in_blocks;
	j->sizes = 0;
	for (word = strtok(list, ","); word; word = strtok(NULL, ",")) {
		double size = strtod(word, &end);

		if (*end || !(size > 0) || size > (in_blocks ? 1e9 : 100) || j->sizes == SIZES_MAX)
			usage("not a size", word);
		j->size[j->sizes++] = size;
	}
}

static void parse_setting(struct larder_options *o, char *word)
{
	char *value = strchr(word, '='), *end;
	unsigned long n;
	unsigned int i;

	if (!value)
		usage("not KEY=VALUE", word);
	*value++ = 0;
	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		if (strcmp(settings[i].key, word))
			continue;
		n = strtoul(value, &end, 10);
		if (!*value || *end || n < settings[i].least || n > settings[i].most)
			usage(settings[i].key, value);
		*(uint32_t *)((char *)o + settings[i].offset) = n;
		return;
	}
	usage("no such setting", word);
}

static void parse_variant(struct job *j, char *text)
{
	struct variant *v = &j->variant[j->variants];
	char *list = strchr(text, ':'), *word;

	if (j->variants == VARIANTS_MAX)
		usage("too many", text);
	j->variants++;
	*v = (struct variant){ .name = text, .o = { .segment_slots = 512, .segments = 256, .small_percent = 10 } };
	if (!list)
		return;
	*list++ = 0;
	for (word = strtok(list, ","); word; word = strtok(NULL, ","))
		parse_setting(&v->o, word);
	if (v->o.segment_slots & (v->o.segment_slots - 1))
		usage("not a power of two", "segment_slots");
}

static void print_size(const struct trace *t, const struct job *j, double size)
{
	uint32_t capacity = j->in_blocks ? size : t->blocks * size / 100;
	struct larder_result r;
	const char *comma = "";
	unsigned int i;

	capacity = capacity ? capacity : 1;
	printf("{\"size\": %g, \"blocks\": %" PRIu32 ", \"hits\": {", size, capacity);
	for (i = 0; i < ARRAY_SIZE(policies) && !j->larder_only; i++) {
		printf("%s\"%s\": %" PRIu64, comma, policies[i].name, policies[i].hits(t, capacity));
		comma = ", ";
	}
	printf("}, \"larder\": {");
	for (comma = "", i = 0; i < j->variants; i++) {
		if (!larder_replay(t, capacity, &j->variant[i].o, &r))
			continue;
		printf("%s\"%s\": {\"hits\": %" PRIu64 ", \"inserted\": %" PRIu64 ", \"written\": %" PRIu64 ", \"segments\": %" PRIu32
		       ", \"segment_slots\": %" PRIu32 "}", comma, j->variant[i].name, r.hits, r.inserted, r.written, r.segments,
		       r.segment_slots);
		comma = ", ";
	}
	printf("}}");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct job j = { .size = { 1, 5, 10, 20 }, .sizes = 4 };
	char plain[] = "larder";
	uint64_t writes = 0;
	struct trace t;
	unsigned int i;
	int opt;

	while ((opt = getopt(argc, argv, "s:b:lv:")) != -1) {
		switch (opt) {
		case 's':
		case 'b':
			parse_sizes(&j, optarg, opt == 'b');
			break;
		case 'l':
			j.larder_only = true;
			break;
		case 'v':
			parse_variant(&j, optarg);
			break;
		default:
			usage("no such option", argv[optind - 1]);
		}
	}
	if (optind + 1 != argc)
		usage("one trace is wanted", argc > optind ? argv[optind + 1] : "");
	if (!j.variants)
		parse_variant(&j, plain);
	trace_load(&t, argv[optind]);
	for (i = 0; i < t.requests; i++)
		writes += t.request[i].write ? t.request[i].n : 0;
	printf("{\"requests\": %" PRIu32 ", \"accesses\": %" PRIu32 ", \"blocks\": %" PRIu32 ", \"writes\": %" PRIu64 ", \"sizes\": [",
	       t.requests, t.accesses, t.blocks, writes);
	for (i = 0; i < j.sizes; i++) {
		printf(i ? ",\n" : "\n");
		print_size(&t, &j, j.size[i]);
	}
	printf("\n]}\n");
	trace_free(&t);
	return 0;
}
