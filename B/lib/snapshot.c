// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What runs at one moment.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "snapshot.h"
#include "status.h"

/* "start sectors target status" of one of our targets. */
static bool parse_target(char *text, struct mapped *mapped)
{
	char target[sizeof(TARGET_CACHE)] = "";
	uint64_t start;
	int length = 0;

	if (sscanf(text, "%" SCNu64 " %" SCNu64 " %12s%n", &start, &mapped->sectors, target, &length) != 3 || start)
		return false;
	mapped->cache = !strcmp(target, TARGET_CACHE);
	if ((!mapped->cache && strcmp(target, TARGET_VOLUME)) || !strchr(" \n", text[length]))
		return false;
	text += length + strspn(text + length, " ");
	text[strcspn(text, "\n")] = 0;
	mapped->status = must_allocate(strdup(text));
	return true;
}

/* "name: start sectors target status"; a name may hold anything, ": " too.  False: it is no such line, or of another target. */
static bool parse_line(char *line, struct mapped *mapped)
{
	for (char *colon = strstr(line, ": "); colon && colon - line < DM_NAME_MAX; colon = strstr(colon + 1, ": ")) {
		*mapped = (struct mapped){ 0 };
		if (colon == line || !parse_target(colon + 2, mapped))
			continue;
		snprintf(mapped->name, sizeof(mapped->name), "%.*s", (int)(colon - line), line);
		memcpy(mapped->target, mapped->name, sizeof(mapped->target));
		return true;
	}
	return false;
}

static int read_file(const char *path, struct mapped_list *list)
{
	FILE *file = fopen(path, "re");
	struct mapped one;
	char *line = NULL;
	size_t room = 0;
	bool good;

	if (!file)
		return complain(LARDER_NOT_FOUND, "%s: cannot open it: %s; LARDER_STATUS names it", path, strerror(errno));
	while (getline(&line, &room, file) >= 0) {
		if (!parse_line(line, &one))
			continue;
		list->mapped = must_allocate(realloc(list->mapped, (list->number + 1) * sizeof(one)));
		list->mapped[list->number++] = one;
	}
	good = !ferror(file);
	free(line);
	fclose(file);
	if (good)
		return LARDER_DONE;
	mapped_list_free(list);
	return complain(LARDER_FAILED, "%s: cannot read it; LARDER_STATUS names it", path);
}

int snapshot_take(struct mapped_list *list)
{
	const char *path = getenv("LARDER_STATUS");

	if (!path || !*path)
		return mapped_scan(list);
	*list = (struct mapped_list){ 0 };
	return read_file(path, list);
}

const char *snapshot_name(const struct mapped_list *list, const struct mapped *mapped)
{
	const char *name = mapped->name + strlen(CACHE_PREFIX);

	if (!mapped->cache || strncmp(mapped->name, CACHE_PREFIX, strlen(CACHE_PREFIX)) || !*name)
		return mapped->name;
	for (size_t i = 0; i < list->number; i++)
		if (list->mapped[i].cache && !strcmp(list->mapped[i].name, name))
			return mapped->name;
	return name;
}

const struct mapped *snapshot_cache(const struct mapped_list *list, const struct mapped *volume)
{
	char *uuid = status_value(volume->status, "cache");
	const struct mapped *found = NULL;

	for (size_t i = 0; uuid && !found && i < list->number; i++)
		if (list->mapped[i].cache && status_is(list->mapped[i].status, "uuid", uuid))
			found = &list->mapped[i];
	free(uuid);
	return found;
}

const struct mapped *snapshot_find(const struct mapped_list *list, const char *name, bool cache)
{
	for (size_t i = 0; i < list->number; i++) {
		const struct mapped *m = &list->mapped[i];

		if (m->cache == cache && (!strcmp(m->name, name) || !strcmp(snapshot_name(list, m), name)))
			return m;
	}
	return NULL;
}
