// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How a stack is: what larder list, show and status call it, and larder doctor finds of it.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advice.h"
#include "cow.h"
#include "disks.h"
#include "format_features.h"
#include "hanging.h"
#include "integrity.h"
#include "message.h"
#include "stack_legs.h"
#include "stack_verdict.h"
#include "status.h"

/* Of what advice.h speaks of, too. */
static void say_in_short(struct verdict *v, enum health health, const char *what, const char *words)
{
	problem(&v->words, what, "%s", words);
	v->health = health > v->health ? health : v->health;
}

static void say(struct verdict *v, enum health health, const char *what, const char *words)
{
	say_in_short(v, health, what, words);
	problem(&v->wrong, what, "%s", words);
}

static void judge_array(struct view *view)
{
	const struct stack *s = &view->found->stack;
	const struct md_array *array = &view->layers.array;
	unsigned missing = 0;
	const char *state = *array->node ? md_state(array->device, &missing) : "";
	char words[64], cure[128] = "", *line;

	if (!*s->raid)
		return;
	snprintf(words, sizeof(words), "%u of %u disks missing, failed, or being rebuilt", missing, s->legs);
	for (unsigned i = 0; i < view->disks.places && view->disks.missing && !*cure; i++)
		if (!md_held(&view->disks, (int)i))
			snprintf(cure, sizeof(cure), "; larder replace %s disk%u NEW", s->name, i);
	line = missing ? must_print("%s%s", words, cure) :
			 must_print("has no log of its parity, and no bitmap (a reshape was cut off?); larder add %s --backing DISK --reshape, with any of its disks, gives it one",
				    s->name);
	if (!*array->node)
		say(&view->verdict, FAILED, "array", "does not run");
	else if (!strcmp(state, "failed"))
		say(&view->verdict, FAILED, "array", "has failed");
	else if (missing || (view->disks.idle && md_lacks_guard(s->raid, array->device)))
		say(&view->verdict, DEGRADED, "array", line);
	free(line);
}

/* larder doctor says it of the disk that holds the volume. */
static void judge_flush(struct view *view)
{
	char *directory = disk_directory("", "", true, view->layers.node_number);

	if (disks_flush_early(directory))
		say_in_short(&view->verdict, DEGRADED, "flush", "an array below answers it before its disks have written (PPL, with their write caches on); larder doctor says what helps");
	free(directory);
}

static void judge_leg(struct view *view, const struct md_disk *disk)
{
	struct leg_status status;
	uint8_t leg[16];
	char path[64];

	if (!*disk->node || !leg_of_device(disk->number, leg, path) || !leg_status(leg, &status))
		return;
	if (!*path)
		say(&view->verdict, DEGRADED, disk->name, "its disk is gone");
	if (status.mismatches)
		problem(&view->verdict.words, path, "%" PRIu64 " sectors were read wrong since it was started; the array repairs them from the other disks",
			status.mismatches);
	if (status.computed < status.sectors)
		problem(&view->verdict.words, path, "its sums are computed to %u %%; what is behind that is taken as it is",
			(unsigned)(status.computed * 100 / status.sectors));
}

static void judge_integrity(struct view *view)
{
	const char *integrity = view->found->stack.integrity;

	if (*integrity)
		problem(&view->verdict.words, "integrity", "%s", integrity);
	for (size_t i = 0; *integrity && i < view->disks.number; i++)
		judge_leg(view, &view->disks.disk[i]);
}

/* What the advice of a layer says, but for what was said in words of ours; what passes by itself, and harms nobody, is told and is no fault. */
static void take_advice(struct verdict *v, const char *what, const struct mapped *m, void (*advise)(const char *, const char *, struct problems *))
{
	static const char *const said[] = { "state:", "devices_failed:" }, passes[] = "congestion:";
	struct problems found = { 0 };

	advise(m->name, m->status, &found);
	for (size_t i = 0; i < found.number; i++) {
		bool ours = false;

		for (size_t n = 0; n < sizeof(said) / sizeof(said[0]); n++)
			ours |= !strncmp(found.text[i], said[n], strlen(said[n]));
		if (ours)
			continue;
		problem(&v->words, what, "%s", found.text[i]);
		if (strncmp(found.text[i], passes, strlen(passes)) && v->health < DEGRADED)
			v->health = DEGRADED;
	}
	problems_free(&found);
}

/* Does trouble have a word by which all writes fail? */
static bool trouble_stops(const struct mapped *m)
{
	return status_has(m->status, "trouble", "flush") || status_has(m->status, "trouble", "superblock") || status_has(m->status, "trouble", "full");
}

/* Nothing was in its cache alone, and it goes on without: whatever that cache is like. */
static bool is_passing(const struct mapped *volume)
{
	return status_is(volume->status, "state", "passing");
}

static void judge_cache(struct verdict *v, const struct mapped *volume, const struct mapped *cache)
{
	uint64_t failed;
	char words[64], *state;

	if (status_is(volume->status, "cache", "-")) {
		say(v, DEGRADED, "volume", "runs without its cache");
		return;
	}
	state = cache ? status_value(cache->status, "state") : NULL;
	failed = cache ? status_number(cache->status, "devices_failed") : 0;
	snprintf(words, sizeof(words), "%" PRIu64 " of its SSDs failed", failed);
	if (is_passing(volume))
		say_in_short(v, DEGRADED, "volume", "goes on without its cache, which has failed; nothing was in that alone");
	else if (!cache)
		say(v, FAILED, "cache", "does not run");
	else if (!state || strcmp(state, "running"))
		say_in_short(v, FAILED, "cache", state ? state : "tells no state");
	if (cache && failed)
		say_in_short(v, DEGRADED, "cache", words);
	if (cache && trouble_stops(cache) && !is_passing(volume))
		v->health = FAILED;
	if (cache)
		take_advice(v, "cache", cache, advise_cache);
	free(state);
}

static void judge_volume(struct verdict *v, const struct mapped *volume)
{
	char *state = status_value(volume->status, "state");

	/* these states are the cache's matter, or fine */
	if (!state || (strcmp(state, "running") && strcmp(state, "passthrough") && strcmp(state, "passing")))
		say_in_short(v, FAILED, "volume", state ? state : "tells no state");
	if (trouble_stops(volume))
		v->health = FAILED;
	take_advice(v, "volume", volume, advise_volume);
	free(state);
}

static void judge_snapshots(struct view *view)
{
	const struct stack *s = &view->found->stack;
	uint8_t volume[16], uuid[16];

	stack_part(s, "volume", volume);
	for (uint32_t i = 0; i < s->snapshots; i++) {
		const struct stack_snapshot *one = &s->snapshot[i];
		struct cow_status status;
		char *words = NULL;

		stack_snapshot_uuid(s, one, uuid);
		cow_status(volume, uuid, &status);
		if (one->state == SNAPSHOT_LOST)
			words = must_print("%s is LOST; larder snapshot remove %s@%s", one->name, s->name, one->name);
		else if (one->state != SNAPSHOT_READY)
			words = must_print("%s is half made, or half removed; larder snapshot remove %s@%s", one->name, s->name, one->name);
		else if (status.state == COW_INVALID)
			words = must_print("%s is LOST: its store was full, or failed; larder snapshot remove %s@%s", one->name, s->name, one->name);
		else if (status.state == COW_OVERFLOW)
			words = must_print("%s: its store is full, and a write to the snapshot has failed; larder snapshot remove %s@%s", one->name, s->name, one->name);
		else if (status.state == COW_GONE)
			words = must_print("%s is LOST: its device was removed, and what is overwritten is copied no more; larder snapshot remove %s@%s", one->name, s->name,
					   one->name);
		else if (cow_nearly_full(&status))
			words = must_print("%s: its store is full to %u %%, and it is LOST when that is full; larder snapshot remove %s@%s", one->name,
					   cow_percent(&status), s->name, one->name);
		if (words)
			say(&view->verdict, DEGRADED, "snapshot", words);
		free(words);
	}
}

/* What it lies on, or its filesystem does, answers nothing.  larder doctor says it of each volume and cache. */
static void judge_stalls(struct view *view)
{
	const struct layers *l = &view->layers;
	struct problems found = { 0 };

	if (l->open || l->linear)
		hanging_below_device(l->top_number, &found);
	if (l->volume)
		hanging_below(l->volume, &found);
	if (l->cache)
		hanging_below(l->cache, &found);
	for (size_t i = 0; i < found.number; i++) {
		const char *text = found.text[i] + strlen("stall: ");

		say_in_short(&view->verdict, DEGRADED, "stall", text);
		view->verdict.stalled = true;
	}
	problems_free(&found);
}

/* What runs of it; its superblocks are on devices that hang, but for the list on an SSD. */
static void judge_unread(struct view *view)
{
	problem(&view->verdict.words, "stack", "its description cannot be read: what else there is to say of it is not known");
	judge_volume(&view->verdict, view->layers.volume);
	judge_cache(&view->verdict, view->layers.volume, view->layers.cache);
}

/* Only its name is known: are disks of its array here, which nobody has started? */
static bool array_waits(const struct stack *stack)
{
	struct md_array array;
	uint8_t part[16];
	bool waits;

	stack_part(stack, "md", part);
	md_find(part, &array);
	waits = array.number && !*array.node;
	md_free(&array);
	return waits;
}

/* No harm is done by leaving it so. */
static void note_upgrade(struct view *view)
{
	const struct stack *s = &view->found->stack;
	const struct member *volume = view->found->volume;
	const struct feature *missing = volume ? feature_missing(&volume->sb.head, NULL) : NULL;

	for (size_t i = 0; !missing && i < view->stacks->members.number; i++) {
		const union superblock *sb = &view->stacks->members.member[i]->sb;

		if (le32toh(sb->head.kind) == LARDER_KIND_CACHE && !memcmp(sb->cache.cache_uuid, s->cache, 16))
			missing = feature_missing(&sb->head, NULL);
	}
	if (missing)
		problem(&view->verdict.words, "format", "an upgrade is possible (%s): larder upgrade %s, while it is stopped", missing->name, s->name);
}

static void judge(struct view *view)
{
	const struct stack *s = &view->found->stack;

	judge_stalls(view);
	if (!view->found->whole && view->layers.volume && view->verdict.stalled) {
		judge_unread(view);
	} else if (!view->found->whole && (array_waits(s) || stack_has_legs(&view->stacks->members, s->uuid))) {
		view->verdict.stopped = true;
	} else if (!view->found->whole) {
		say(&view->verdict, FAILED, "stack", "its disks are not here");
	} else if (s->state != STACK_READY) {
		say(&view->verdict, FAILED, "stack",
		    s->state == STACK_CREATING ? "is half made; larder create --resume, or larder remove" :
						 "is being removed; larder remove goes on");
	} else if (!*view->layers.node) {
		view->verdict.stopped = true;
		view->verdict.foreign = stack_is_foreign(s);
		if (view->verdict.foreign)
			problem(&view->verdict.words, "stack", "was made on another machine; if that does not use it any more: larder start --import %s",
				s->name);
	} else {
		judge_array(view);
		judge_flush(view);
		judge_integrity(view);
		if (view->layers.linear) {
			say(&view->verdict, DEGRADED, "volume", "runs without larder's module, and belongs to no cache");
		} else {
			judge_volume(&view->verdict, view->layers.volume);
			judge_cache(&view->verdict, view->layers.volume, view->layers.cache);
		}
		judge_snapshots(view);
		if (*s->aead)
			problem(&view->verdict.words, "encryption", "authenticated, %s", s->aead);
		if (*s->mount && !*view->layers.mounted && (!s->encrypted || view->layers.open))
			say(&view->verdict, DEGRADED, "filesystem", "is not mounted");
	}
}

const char *view_verdict(const struct view *view)
{
	static const char *const words[] = { "fine", "degraded", "failed" };

	if (view->found->stack.state != STACK_READY)
		return stack_state_text(view->found->stack.state);
	if (view->verdict.stopped)
		return view->verdict.foreign ? "foreign" : "stopped";
	if (!view->found->whole && !view->verdict.stalled)
		return "incomplete";
	if (view->verdict.health == FINE && view->found->stack.encrypted && !view->layers.open)
		return "locked";
	return words[view->verdict.health];
}

void view_open(struct view *view, const struct stacks *stacks, const struct found *found)
{
	*view = (struct view){ .stacks = stacks, .found = found };
	layers_find(stacks, &found->stack, &view->layers);
	if (*view->layers.array.node)
		md_disks(view->layers.array.device, &view->disks);
	judge(view);
	if (found->whole && found->stack.state == STACK_READY)
		note_upgrade(view);
}

void view_close(struct view *view)
{
	problems_free(&view->verdict.words);
	problems_free(&view->verdict.wrong);
	layers_free(&view->layers);
}
