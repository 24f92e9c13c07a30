// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer entry point for what the command and the daemon read of a running target, and for sizes: lib/status.c, lib/size.c, and
 * lib/metrics.c, which makes of it what a monitoring system reads.  Input: a NUL ends the status of a cache, that of a volume, its name.
 * Aborts where a line of the metrics could be taken for another one.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "metrics.h"
#include "status.h"

struct seen {
	const char *status;
	size_t pairs;
};

static void see(const char *key, const char *value, void *data)
{
	struct seen *seen = data;
	char *first;

	must(!strpbrk(key, " \n=") && !strpbrk(value, " \n"), "a pair is a pair");
	if (seen->pairs++ % 16)
		return;
	first = status_value(seen->status, key);
	must(first && status_is(seen->status, key, first), "its key is found, and the value is itself");
	status_number(seen->status, key);
	free(first);
}

static void read_fields(const char *status, const struct field *fields, size_t n)
{
	static const struct size_format formats[] = { { 'b', false }, { 'h', true }, { 'g', true } };
	struct seen seen = { status, 0 };
	struct size_format format;
	char text[SIZE_TEXT];
	uint64_t sort, bytes;

	status_each(status, see, &seen);
	for (size_t i = 0; i < n; i++) {
		char *value = status_value(status, fields[i].name);

		for (size_t k = 0; value && k < sizeof(formats) / sizeof(formats[0]); k++)
			free(field_text(fields[i].kind, value, &formats[k], &sort));
		free(value);
	}
	if (size_format_parse(status, &format))
		must(size_print(text, 1ull << 40, &format) && strnlen(text, sizeof(text)) < sizeof(text), "a size has room");
	size_parse(status, &bytes);
}

/* name{key="value",...} number */
static void check_sample(const char *p)
{
	while (isalnum(*p) || *p == '_' || *p == ':')
		p++;
	if (*p == '{') {
		do {
			for (p++; isalnum(*p) || *p == '_'; p++)
				;
			must(p[0] == '=' && p[1] == '"', "a label has a quoted value");
			for (p += 2; *p && *p != '"'; p++) {
				must(*p != '\\' || strchr("\\\"n", p[1]), "an escape is one that there is");
				p += *p == '\\';
			}
			must(*p++ == '"', "a quote is closed");
		} while (*p == ',');
		must(*p++ == '}', "labels end");
	}
	must(*p++ == ' ', "a number follows");
	must(*p && !p[strspn(p, "0123456789.eE+-naNIif")], "it is a number");
}

static void write_metrics(const struct mapped_list *list, enum metrics_format format)
{
	char *text = NULL, *rest, *line;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	must(out, "memory");
	metrics_write(out, list, &(const struct stalled_list){ 0 }, format);
	must(!fclose(out), "memory");
	must(strlen(text) == size && (!size || text[size - 1] == '\n'), "lines, to the last one");
	rest = text;
	while ((line = strsep(&rest, "\n")))
		if (*line && *line != '#')
			check_sample(line);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char uuid[] = "LARDER-b4f84e56-0000-4000-8000-d6ee3ac71f26";
	struct mapped mapped[2] = { { .name = CACHE_PREFIX "fast", .cache = true, .sectors = 8 }, { .name = "v", .sectors = 8 } };
	struct mapped_list list = { mapped, 2 };
	char *all = malloc(size + 1), *part[3];

	must(all, "memory");
	memcpy(all, data, size);
	all[size] = 0;
	part[0] = all;
	for (int i = 1; i < 3; i++)
		part[i] = part[i - 1] + strlen(part[i - 1]) + (part[i - 1] + strlen(part[i - 1]) < all + size);
	snprintf(mapped[0].uuid, sizeof(mapped[0].uuid), "%s-cache", uuid);
	snprintf(mapped[1].uuid, sizeof(mapped[1].uuid), "%s", uuid);
	snprintf(mapped[1].name, sizeof(mapped[1].name), "%s", part[2]);
	mapped[0].status = part[0];
	mapped[1].status = part[1];
	read_fields(part[0], cache_status_fields, cache_status_count);
	read_fields(part[1], volume_status_fields, volume_status_count);
	write_metrics(&list, METRICS_OPENMETRICS);
	write_metrics(&list, METRICS_PROMETHEUS);
	free(all);
	return 0;
}
