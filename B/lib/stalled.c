// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A line for each, in a file beside that of left.h: disk, second, "cache" or "volume", UUID, name, text, divided by tabs.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "message.h"
#include "run_file.h"
#include "stalled.h"

#define NAME "stalled"

void stalled_add(struct stalled_list *list, const struct stalled *stalled)
{
	list->stalled = must_allocate(realloc(list->stalled, (list->number + 1) * sizeof(*list->stalled)));
	list->stalled[list->number] = *stalled;
	text_clean(list->stalled[list->number].name);
	text_clean(list->stalled[list->number++].text);
}

void stalled_free(struct stalled_list *list)
{
	for (size_t i = 0; i < list->number; i++) {
		free(list->stalled[i].name);
		free(list->stalled[i].text);
	}
	free(list->stalled);
	*list = (struct stalled_list){ 0 };
}

const struct stalled *stalled_find(const struct stalled_list *list, const struct stalled *stalled)
{
	for (size_t i = 0; i < list->number; i++)
		if (!strcmp(list->stalled[i].disk, stalled->disk) && !strcmp(list->stalled[i].uuid, stalled->uuid) &&
		    list->stalled[i].cache == stalled->cache)
			return &list->stalled[i];
	return NULL;
}

static void print(FILE *file, const void *data)
{
	const struct stalled_list *list = data;

	for (size_t i = 0; i < list->number; i++) {
		const struct stalled *s = &list->stalled[i];

		fprintf(file, "%s\t%.0f\t%s\t%s\t%s\t%s\n", s->disk, s->since, s->cache ? "cache" : "volume", s->uuid, s->name, s->text);
	}
}

int stalled_write(const struct stalled_list *list)
{
	return run_file_replace(NAME, print, list);
}

static void take_line(char *line, void *data)
{
	struct stalled_list *list = data;
	struct stalled stalled = { 0 };
	char *field[6], *rest = line, *end;

	for (size_t i = 0; i < 5; i++)
		field[i] = strsep(&rest, "\t");
	field[5] = rest;
	if (!field[5] || strlen(field[0]) >= sizeof(stalled.disk) || strlen(field[3]) >= sizeof(stalled.uuid))
		return;
	stalled.since = strtod(field[1], &end);
	if (end == field[1] || *end || !(stalled.since >= 0))
		return;
	strcpy(stalled.disk, field[0]);
	strcpy(stalled.uuid, field[3]);
	stalled.cache = !strcmp(field[2], "cache");
	stalled.name = must_allocate(strdup(field[4]));
	stalled.text = must_allocate(strdup(field[5]));
	stalled_add(list, &stalled);
}

void stalled_read(struct stalled_list *list)
{
	*list = (struct stalled_list){ .now = clock_seconds() };
	run_file_lines(NAME, take_line, list);
}
