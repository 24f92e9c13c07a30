// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Down to the volume, layer by layer (descent.h).
 *
 * dm-linear (LVM, kpartx: a dm device has no other partitions), dm-crypt (LUKS, each of its segments is a target) and the origin of snapshots keep sectors in a
 * row: a number is added.
 * Of all else, known or not, no sector is believed to be anywhere: striped, raid, thin, integrity (tags lie between the data), md, loop.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "descent.h"
#include "device.h"
#include "message.h"

#define DEPTH_MAX 16u

void level_free(struct level *level)
{
	for (size_t i = 0; i < level->pieces; i++)
		free(level->piece[i].refused);
	free(level->piece);
	*level = (struct level){ 0 };
}

/* The word number n of a table's parameters, up to the next blank.  NULL: there are not so many. */
static const char *word(const char *params, unsigned n)
{
	while (n--) {
		params = strchr(params, ' ');
		if (!params)
			return NULL;
		params++;
	}
	return params;
}

/* "8:16 2048 ..." */
static bool take_place(struct piece *piece, const char *text)
{
	unsigned int major, minor;
	uint64_t sector;

	if (!text || sscanf(text, "%u:%u %" SCNu64, &major, &minor, &sector) != 3)
		return false;
	piece->number = makedev(major, minor);
	piece->sector = sector;
	return true;
}

/* "8:16": all of it, from its first sector on */
static bool take_origin(struct piece *piece, const char *text)
{
	unsigned int major, minor;
	bool good = sscanf(text, "%u:%u", &major, &minor) == 2;

	if (good)
		piece->number = makedev(major, minor);
	return good && !piece->first;
}

void level_take_target(struct level *level, uint64_t first, uint64_t sectors, const char *type, const char *params)
{
	struct piece piece = { .first = first, .sectors = sectors };
	bool good = false;

	if (!strcmp(type, TARGET_VOLUME)) {
		level->kind = LEVEL_VOLUME;
		return;
	}
	if (!strcmp(type, "linear"))
		good = take_place(&piece, params);
	else if (!strcmp(type, "crypt"))
		good = take_place(&piece, word(params, 3)); /* behind cipher, key, offset of its IVs */
	else if (!strcmp(type, "snapshot-origin"))
		good = take_origin(&piece, params);
	if (!good || piece.sector > UINT64_MAX - sectors)
		piece.refused = must_print("a target '%s', below which sectors are not in the same order", type);
	level->piece = must_allocate(realloc(level->piece, (level->pieces + 1) * sizeof(piece)));
	level->piece[level->pieces++] = piece;
}

/* ------------------------------------------------------------------ this machine */

static void refuse_whole(struct level *level, const char *what)
{
	struct piece piece = { .sectors = UINT64_MAX, .refused = must_print("%s, below which sectors are not in the same order", what) };

	level->piece = must_allocate(malloc(sizeof(piece)));
	level->piece[0] = piece;
	level->pieces = 1;
}

static int look_at_dm(dev_t number, struct level *level)
{
	struct mapped_target *target;
	size_t targets;
	int result = mapped_targets(number, level->name, &target, &targets);

	for (size_t i = 0; !result && i < targets; i++)
		level_take_target(level, target[i].first, target[i].sectors, target[i].type, target[i].params);
	if (!result)
		mapped_targets_free(target, targets);
	return result;
}

int level_look_here(dev_t number, struct level *level)
{
	char text[16], node[256];

	*level = (struct level){ 0 };
	if (device_attribute(number, "dm/name", level->name, sizeof(level->name)))
		return look_at_dm(number, level);
	if (!device_node(number, node, sizeof(node)))
		snprintf(node, sizeof(node), "%u:%u", major(number), minor(number));
	snprintf(level->name, sizeof(level->name), "%.*s", (int)sizeof(level->name) - 1, node);
	if (device_attribute(number, "md/level", text, sizeof(text)) || device_attribute(number, "../md/level", text, sizeof(text)))
		refuse_whole(level, "an md array");
	else if (device_attribute(number, "loop/offset", text, sizeof(text)) || device_attribute(number, "../loop/offset", text, sizeof(text)))
		refuse_whole(level, "a loop device");
	else
		level->kind = LEVEL_DISK;
	return LARDER_DONE;
}

/* ------------------------------------------------------------------ down */

/* A device that was looked at: for a file of many extents once. */
struct seen {
	struct seen *next;
	dev_t number;
	struct level level;
};

struct descent {
	const char *what;
	level_look look;
	struct seen **seen;
	dev_t *volume;
	struct ranges *found;
};

static int refuse(const struct descent *d, enum larder_exit code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int refuse(const struct descent *d, enum larder_exit code, const char *format, ...)
{
	va_list args;
	char *why;

	if (!d->what)
		return code;
	va_start(args, format);
	why = must_vprint(format, args);
	va_end(args);
	complain(code, "%s: %s", d->what, why);
	free(why);
	return code;
}

static int arrive(const struct descent *d, dev_t number, struct range range)
{
	if (*d->volume && *d->volume != number)
		return refuse(d, LARDER_FAILED, "lies on more than one volume; what is pinned is to be on one");
	*d->volume = number;
	ranges_add(d->found, range.first, range.end);
	return LARDER_DONE;
}

static int down(const struct descent *d, dev_t number, struct range range, unsigned depth);

static int pass(const struct descent *d, const struct level *level, struct range range, unsigned depth)
{
	int result = LARDER_DONE;
	uint64_t passed = 0;

	for (size_t i = 0; !result && i < level->pieces; i++) {
		const struct piece *p = &level->piece[i];
		uint64_t from = range.first > p->first ? range.first : p->first, to = range.end;

		if (to > p->first && to - p->first > p->sectors)
			to = p->first + p->sectors;
		if (from >= to)
			continue;
		passed += to - from;
		if (p->refused)
			result = refuse(d, LARDER_FAILED, "cannot be followed down to a volume: %s is %s", level->name, p->refused);
		else
			result = down(d, p->number, (struct range){ p->sector + (from - p->first), p->sector + (to - p->first) }, depth + 1);
	}
	if (!result && passed != range.end - range.first)
		result = refuse(d, LARDER_FAILED, "%s: ends before sector %" PRIu64, level->name, range.end);
	return result;
}

static int look_once(const struct descent *d, dev_t number, const struct level **level)
{
	struct seen *s = *d->seen;
	int result;

	while (s && s->number != number)
		s = s->next;
	if (!s) {
		s = must_allocate(calloc(1, sizeof(*s)));
		result = d->look(number, &s->level);
		if (result) {
			free(s);
			return result;
		}
		s->number = number;
		s->next = *d->seen;
		*d->seen = s;
	}
	*level = &s->level;
	return LARDER_DONE;
}

static void seen_free(struct seen *seen)
{
	while (seen) {
		struct seen *next = seen->next;

		level_free(&seen->level);
		free(seen);
		seen = next;
	}
}

static int down(const struct descent *d, dev_t number, struct range range, unsigned depth)
{
	const struct level *level;
	int result;

	if (depth > DEPTH_MAX)
		return refuse(d, LARDER_FAILED, "lies on more than %u devices one below the other", DEPTH_MAX);
	result = look_once(d, number, &level);
	if (result)
		return result;
	if (level->kind == LEVEL_VOLUME)
		return arrive(d, number, range);
	if (level->kind == LEVEL_DISK)
		return refuse(d, LARDER_NOT_FOUND, "lies on %s, and not on a volume of larder that runs", level->name);
	return pass(d, level, range, depth);
}

int descend(const char *what, dev_t number, const struct ranges *ranges, level_look look, dev_t *volume, struct ranges *found)
{
	struct seen *seen = NULL;
	const struct descent d = { what, look, &seen, volume, found };
	int result = LARDER_DONE;

	for (size_t i = 0; !result && i < ranges->number; i++)
		result = down(&d, number, ranges->range[i], 0);
	seen_free(seen);
	return result;
}
