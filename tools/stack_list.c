// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder list, larder show, larder status: stacks, their layers, and how they are.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uuid/uuid.h>

#include "cow.h"
#include "format_features.h"
#include "integrity.h"
#include "layout.h"
#include "stacks.h"
#include "tiers.h"
#include "verbs.h"

#define EXIT_DEGRADED 10
#define EXIT_FAILED   11

static const struct field fields[] = {
	{ "tree", VALUE_TEXT, "Stack", "the stack's name, and its layers below it, the lowest last" },
	{ "name", VALUE_TEXT, "Name", "of the stack" },
	{ "layer", VALUE_TEXT, "Layer", "stack, filesystem, luks, snapshot, volume, cache, ssd, array, disk or spare" },
	{ "number", VALUE_TEXT, "Number", "of a disk in its array, or an SSD in its cache: larder replace and drop take it" },
	{ "type", VALUE_TEXT, "Type", "of the layer: ext4, luks2, luks2-aead:CIPHER, writeback, raid1, ...; of a disk with dm-integrity crc32c; of a snapshot its name" },
	{ "state", VALUE_TEXT, "State", "of the layer" },
	{ "size", VALUE_BYTES, "Size", "of the layer's device" },
	{ "free", VALUE_BYTES, "Free", "of a volume: what its disk or array has room for besides, and larder resize takes" },
	{ "device", VALUE_TEXT, "Device", "its node" },
	{ "mount", VALUE_TEXT, "Mount", "where it is mounted" },
	{ "uuid", VALUE_TEXT, "UUID", "of the layer" },
	{ "mountpoint", VALUE_TEXT, "Mountpoint", "of a filesystem: where the stack is to be mounted, as larder set changes it" },
	{ "keyfile", VALUE_TEXT, "Keyfile", "of LUKS: what is to open it at a boot; likewise" },
	{ "class", VALUE_TEXT, "Class", "of a volume: what is cached from each start on; likewise" },
	{ "options", VALUE_TEXT, "Options", "of a volume, or a cache: what volume set --persist, or cache set --persist, has stored for each start; likewise" },
	{ "label", VALUE_TEXT, "Label", "of an SSD, or of the disks, as --foreground, --promote and --background take it" },
	{ "foreground", VALUE_TEXT, "Foreground", "of a volume: label of the devices to which writes go first" },
	{ "promote", VALUE_TEXT, "Promote", "of a volume: label of those to which what is read is copied, or none" },
	{ "format", VALUE_TEXT, "Format", "of the superblock of a volume or SSD: version, and features" },
	{ "background", VALUE_TEXT, "Background", "of a volume: label of those on which data comes to rest" },
};

/* How a stack is: the worst of what was found. */
enum health {
	FINE,
	DEGRADED,
	FAILED,
};

struct verdict {
	enum health health;
	bool stopped, foreign;
	struct problems words;
};

struct view {
	const struct stacks *stacks;
	const struct found *found;
	struct layers layers;
	struct md_disks disks; /* of an array that runs */
	struct verdict verdict;
};

/* ------------------------------------------------------------------ the verdict */

static void say(struct verdict *v, enum health health, const char *what, const char *words)
{
	problem(&v->words, what, "%s", words);
	v->health = health > v->health ? health : v->health;
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
			 must_print("has no log of its parity (a reshape was cut off?); larder add %s --backing DISK --reshape, with any of its disks, gives it back",
				    s->name);
	if (!*array->node)
		say(&view->verdict, FAILED, "array", "does not run");
	else if (!strcmp(state, "failed"))
		say(&view->verdict, FAILED, "array", "has failed");
	else if (missing || (view->disks.idle && md_lacks_log(s->raid, array->device)))
		say(&view->verdict, DEGRADED, "array", line);
	free(line);
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

static void judge_cache(struct view *view)
{
	const struct mapped *cache = view->layers.cache, *volume = view->layers.volume;
	uint64_t failed;
	char words[64], *state;

	if (status_is(volume->status, "cache", "-")) {
		say(&view->verdict, DEGRADED, "volume", "runs without its cache");
		return;
	}
	state = cache ? status_value(cache->status, "state") : NULL;
	failed = cache ? status_number(cache->status, "devices_failed") : 0;
	snprintf(words, sizeof(words), "%" PRIu64 " of its SSDs failed", failed);
	if (!cache)
		say(&view->verdict, FAILED, "cache", "does not run");
	else if (!state || strcmp(state, "running"))
		say(&view->verdict, FAILED, "cache", state ? state : "tells no state");
	else if (failed)
		say(&view->verdict, DEGRADED, "cache", words);
	free(state);
}

static void judge_volume(struct view *view)
{
	const struct mapped *volume = view->layers.volume;
	char *state = status_value(volume->status, "state");

	/* these states are the cache's matter, or fine */
	if (!state || (strcmp(state, "running") && strcmp(state, "passthrough")))
		say(&view->verdict, FAILED, "volume", state ? state : "tells no state");
	if (status_number(volume->status, "errors_write") || status_number(volume->status, "errors_flush"))
		say(&view->verdict, DEGRADED, "volume", "writes to its disks have failed");
	free(state);
}

static void judge_snapshots(struct view *view)
{
	const struct stack *s = &view->found->stack;
	const char *volume = view->layers.volume ? view->layers.volume->name : s->name;

	for (uint32_t i = 0; i < s->snapshots; i++) {
		const struct stack_snapshot *one = &s->snapshot[i];
		struct cow_status status;
		char *words = NULL;

		cow_status(volume, one->name, &status);
		if (one->state == SNAPSHOT_LOST)
			words = must_print("%s is LOST; larder snapshot remove %s@%s", one->name, s->name, one->name);
		else if (one->state != SNAPSHOT_READY)
			words = must_print("%s is half made, or half removed; larder snapshot remove %s@%s", one->name, s->name, one->name);
		else if (status.state == COW_INVALID)
			words = must_print("%s is LOST: its store was full, or failed; larder snapshot remove %s@%s", one->name, s->name, one->name);
		else if (status.state == COW_OVERFLOW)
			words = must_print("%s: its store is full, and a write to the snapshot has failed; larder snapshot remove %s@%s", one->name, s->name, one->name);
		else if (status.state == COW_ABSENT)
			words = must_print("%s is not started with it; larder stop %s, and larder start %s", one->name, s->name, s->name);
		else if (cow_nearly_full(&status))
			words = must_print("%s: its store is full to %u %%, and it is LOST when that is full; larder snapshot remove %s@%s", one->name,
					   cow_percent(&status), s->name, one->name);
		if (words)
			say(&view->verdict, DEGRADED, "snapshot", words);
		free(words);
	}
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

	if (!view->found->whole && (array_waits(s) || stack_has_legs(&view->stacks->members, s->uuid))) {
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
		judge_integrity(view);
		if (view->layers.linear) {
			say(&view->verdict, DEGRADED, "volume", "runs without larder's module, and belongs to no cache");
		} else {
			judge_volume(view);
			judge_cache(view);
		}
		judge_snapshots(view);
		if (*s->aead)
			problem(&view->verdict.words, "encryption", "authenticated, %s", s->aead);
		if (*s->mount && !*view->layers.mounted && (!s->encrypted || view->layers.open))
			say(&view->verdict, DEGRADED, "filesystem", "is not mounted");
	}
}

static const char *verdict_text(const struct view *view)
{
	static const char *const words[] = { "fine", "degraded", "failed" };

	if (view->found->stack.state != STACK_READY)
		return stack_state_text(view->found->stack.state);
	if (view->verdict.stopped)
		return view->verdict.foreign ? "foreign" : "stopped";
	if (!view->found->whole)
		return "incomplete";
	if (view->verdict.health == FINE && view->found->stack.encrypted && !view->layers.open)
		return "locked";
	return words[view->verdict.health];
}

static void view_open(struct view *view, const struct stacks *stacks, const struct found *found)
{
	*view = (struct view){ .stacks = stacks, .found = found };
	layers_find(stacks, &found->stack, &view->layers);
	if (*view->layers.array.node)
		md_disks(view->layers.array.device, &view->disks);
	judge(view);
	if (found->whole && found->stack.state == STACK_READY)
		note_upgrade(view);
}

static void view_close(struct view *view)
{
	problems_free(&view->verdict.words);
	layers_free(&view->layers);
}

static bool node_number(const char *node, dev_t *number)
{
	struct stat status;

	if (stat(node, &status) || !S_ISBLK(status.st_mode))
		return false;
	*number = status.st_rdev;
	return true;
}

/* ------------------------------------------------------------------ rows */

struct tree {
	struct report *report;
	struct row row;
	const struct view *view;
	struct tier_set set; /* of its cache */
};

static void cell(struct tree *t, const char *field, const char *text)
{
	if (text && *text)
		report_set(t->report, &t->row, field, "%s", text);
}

static void cell_cache_options(struct tree *t, const uint8_t cache[16])
{
	const struct member *newest = stack_newest_ssd(&t->view->stacks->members, cache);
	struct stack_list *list = must_allocate(malloc(sizeof(*list)));
	bool there;

	if (newest && !stack_list_decode(newest->sb.cache.stack, list, &there))
		cell(t, "options", list->options);
	free(list);
}

static void add(struct tree *t, int depth, const char *layer, const char *type, const char *state, const char *device,
		const uint8_t uuid[16])
{
	const char *name = depth ? layer : t->view->found->stack.name;
	struct device opened;
	char text[UUID_TEXT];

	report_set(t->report, &t->row, "tree", "%*s%s%s", depth ? 2 * (depth - 1) : 0, "", depth ? "- " : "", name);
	cell(t, "name", t->view->found->stack.name);
	cell(t, "layer", layer);
	cell(t, "type", type);
	cell(t, "state", state);
	cell(t, "device", device);
	if (device && *device && !device_try(&opened, device)) {
		report_set(t->report, &t->row, "size", "%" PRIu64, opened.bytes);
		device_close(&opened);
	}
	if (uuid)
		cell(t, "uuid", uuid_text(uuid, text));
	report_add(t->report, &t->row);
}

static void number(struct tree *t, const char *what, int place)
{
	if (place >= 0)
		report_set(t->report, &t->row, "number", "%s%d", what, place);
}

static void set_format(struct tree *t, const struct member *m)
{
	char *text = features_text(&m->sb.head);

	report_set(t->report, &t->row, "format", "%u %s", le32toh(m->sb.head.version), text);
	free(text);
}

static void add_ssd(struct tree *t, int depth, const struct member *m)
{
	number(t, "ssd", (int)le32toh(m->sb.cache.device_number));
	set_format(t, m);
	cell(t, "label", t->set.label[le32toh(m->sb.cache.device_number)]);
	add(t, depth, "ssd", role_text(le32toh(m->sb.cache.role)), "", m->path, m->sb.head.uuid);
}

static void add_ssds(struct tree *t, int depth)
{
	const struct stacks *stacks = t->view->stacks;

	for (size_t i = 0; i < stacks->members.number; i++) {
		const struct member *m = stacks->members.member[i];

		if (memcmp(m->sb.cache.cache_uuid, t->view->found->stack.cache, 16))
			continue;
		if (le32toh(m->sb.head.kind) == LARDER_KIND_CACHE)
			add_ssd(t, depth, m);
		else if (le32toh(m->sb.head.kind) == LARDER_KIND_SPARE && !m->copy_only)
			add(t, depth, "spare", "ssd", "spare", m->path, m->sb.head.uuid);
	}
}

/* The disk itself, not what dm-integrity shows of it. */
static void add_leg(struct tree *t, int depth, const char *layer, const char *state, const char *node)
{
	const char *integrity = t->view->found->stack.integrity;
	uint8_t uuid[16], leg[16];
	char disk[64] = "";
	dev_t number;
	bool below = *integrity && node_number(node, &number) && leg_of_device(number, leg, disk);

	cell(t, "label", t->view->found->stack.disks);
	add(t, depth, layer, integrity, state, below && *disk ? disk : node, md_leg_uuid(node, uuid) ? uuid : NULL);
}

/* Of an array that does not run: nobody has started these. */
static void add_marked_legs(struct tree *t, int depth)
{
	const struct stack *s = &t->view->found->stack;
	const struct members *members = &t->view->stacks->members;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (leg_is_of(&m->sb, s->uuid) && !leg_runs(m->sb.head.uuid, m->number))
			add(t, depth, "disk", s->integrity, *t->view->layers.array.node ? "left" : "", m->path, m->sb.head.uuid);
	}
}

/* Those that an array which runs has, and what has its superblock, but left it; or, of one that does not, whoever has that. */
static void add_disks(struct tree *t, int depth)
{
	static const char *const roles[] = {
		[MD_MEMBER] = "active", [MD_COPIED] = "copied", [MD_REBUILT] = "rebuilt", [MD_SPARE] = "spare", [MD_FAILED] = "failed",
	};
	const struct md_array *array = &t->view->layers.array;
	const struct md_disks *disks = &t->view->disks;

	for (int place = -1; place < (int)disks->places; place++) {
		for (size_t i = 0; i < disks->number; i++) {
			const struct md_disk *disk = &disks->disk[i];

			if (disk->place != place)
				continue;
			number(t, "disk", place);
			add_leg(t, depth, disk->role == MD_SPARE ? "spare" : "disk", roles[disk->role], *disk->node ? disk->node : disk->name);
		}
		if (place >= 0 && !md_held(disks, place)) {
			number(t, "disk", place);
			add_leg(t, depth, "disk", "missing", "");
		}
	}
	for (size_t i = 0; i < array->number; i++) {
		bool had = false;

		for (size_t j = 0; j < disks->number; j++)
			had |= !strcmp(disks->disk[j].node, array->leg[i]);
		if (!had)
			add_leg(t, depth, "disk", *array->node ? "left" : "", array->leg[i]);
	}
	add_marked_legs(t, depth);
}

static void add_below(struct tree *t, int depth)
{
	const struct stack *s = &t->view->found->stack;
	const struct layers *l = &t->view->layers;
	char *level = must_print("raid%s", s->raid);
	unsigned missing;
	uint8_t part[16];

	if (*s->raid) {
		stack_part(s, "md", part);
		add(t, depth, "array", level, *l->array.node ? md_state(l->array.device, &missing) : "stopped", l->array.node, part);
		add_disks(t, depth + 1);
	} else if (t->view->found->volume) {
		cell(t, "label", s->disks);
		add(t, depth, "disk", "", "", t->view->found->volume->path, NULL);
	}
	free(level);
}

static void add_snapshots(struct tree *t, int depth)
{
	const struct stack *s = &t->view->found->stack;
	const char *volume = t->view->layers.volume ? t->view->layers.volume->name : s->name;

	for (uint32_t i = 0; i < s->snapshots; i++) {
		const struct stack_snapshot *one = &s->snapshot[i];
		char *name = cow_snapshot_name(volume, one->name), *node = mapper_path(name);
		struct cow_status status;
		uint8_t uuid[16];

		cow_status(volume, one->name, &status);
		stack_snapshot_uuid(s, one, uuid);
		add(t, depth, "snapshot", one->name, cow_state_text(one, &status), status.state == COW_ABSENT ? "" : node, uuid);
		free(node);
		free(name);
	}
}

/* Room behind the volume, bytes; 0: none, or not known as neither volume nor disk is here. */
static uint64_t free_room(const struct view *view)
{
	const struct mapped *volume = view->layers.volume;
	const struct member *m = view->found->volume;
	struct volume_layout layout = { 0 };
	struct device device;
	uint64_t room = 0, now = 0;

	if (volume) {
		now = volume->sectors;
		room = status_number(volume->status, "room_sectors");
	} else if (m && !m->copy_only && !device_try(&device, m->path)) {
		layout.data_offset = le64toh(m->sb.volume.data_offset);
		layout.tail_reserve = le64toh(m->sb.volume.tail_reserve);
		now = le64toh(m->sb.volume.sectors);
		room = volume_layout(&layout, device.bytes, device.logical_block) ? 0 : layout.sectors;
		device_close(&device);
	}
	return room > now ? (room - now) << LARDER_SECTOR_SHIFT : 0;
}

static void add_layers(struct tree *t)
{
	const struct stack *s = &t->view->found->stack;
	const struct layers *l = &t->view->layers;
	char *cache = l->cache ? mapper_path(l->cache->name) : NULL,
	     *state = l->volume ? status_value(l->volume->status, "state") : NULL,
	     *cache_state = l->cache ? status_value(l->cache->status, "state") : NULL;
	char *aead = must_print("luks2-aead:%s", s->aead), tier[TIER_TEXT];
	uint8_t part[16];
	int depth = 1;

	tiers_of_members(&t->view->stacks->members, s->cache, &t->set);
	if (*s->fs) {
		stack_part(s, "fs", part);
		cell(t, "mount", l->mounted);
		cell(t, "mountpoint", s->mount);
		add(t, depth++, "filesystem", s->fs, *l->mounted ? "mounted" : "", l->top, part);
	}
	if (s->encrypted) {
		stack_part(s, "crypt", part);
		cell(t, "keyfile", s->keyfile);
		add(t, depth++, "luks", *s->aead ? aead : "luks2", l->open ? "open" : "locked", l->top, part);
	}
	stack_part(s, "volume", part);
	add_snapshots(t, depth);
	cell(t, "foreground", tiers_foreground(&t->set, s, tier));
	cell(t, "promote", tiers_promote(&t->set, s, tier));
	cell(t, "background", tiers_background(s));
	cell(t, "class", s->class);
	cell(t, "options", s->options);
	if (t->view->found->volume)
		set_format(t, t->view->found->volume);
	if (free_room(t->view))
		report_set(t->report, &t->row, "free", "%" PRIu64, free_room(t->view));
	add(t, depth, "volume", s->mode, l->linear ? "linear" : state ? state : "stopped", l->node, part);
	cell_cache_options(t, s->cache);
	add(t, depth + 1, "cache", "", cache_state ? cache_state : "stopped", cache, s->cache);
	add_ssds(t, depth + 2);
	add_below(t, depth + 1);
	free(cache);
	free(state);
	free(cache_state);
	free(aead);
}

static void add_stack(struct report *report, const struct stacks *stacks, const struct found *found)
{
	struct tree t = { .report = report };
	struct view view;

	view_open(&view, stacks, found);
	t.view = &view;
	cell(&t, "mount", view.layers.mounted);
	add(&t, 0, "stack", !found->whole || !found->stack.encrypted ? "" : *found->stack.aead ? "authenticated" : "encrypted", verdict_text(&view), view.layers.top,
	    found->stack.uuid);
	if (found->whole)
		add_layers(&t);
	view_close(&view);
}

static int table(int argc, char **argv, const char *usage, int words)
{
	struct report_options options = { .units = { 'h', true } };
	const struct argument arguments[] = { REPORT_ARGUMENTS(options), ARGUMENTS_END };
	const struct field *sections[] = { fields };
	const size_t counts[] = { sizeof(fields) / sizeof(fields[0]) };
	const struct found *only = NULL;
	struct report *report = NULL;
	struct stacks stacks;
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, words, words, &first, &result))
		return result;
	mapped_init(false);
	result = stacks_scan(&stacks);
	if (!result && words)
		result = stack_find(&stacks, argv[first], &only);
	if (!result)
		report = report_new("stacks", sections, counts, 1,
				    words ? "tree,number,type,state,size,free,device,mount,uuid" : "tree,type,state,size,device,mount", &options,
				    &result);
	for (size_t i = 0; report && i < stacks.number; i++)
		if (!only || only == &stacks.found[i])
			add_stack(report, &stacks, &stacks.found[i]);
	if (report)
		result = report_print(report);
	if (report && !result && !only)
		result = members_check_seen();
	stacks_free(&stacks);
	return result;
}

int stacks_list(int argc, char **argv)
{
	return table(argc, argv, "larder list [-o FIELD,...] [--sort FIELD,...] [--units UNIT] [--noheadings] [--reportformat json]", 0);
}

int stack_show(int argc, char **argv)
{
	return table(argc, argv, "larder show NAME [-o FIELD,...] [--sort FIELD,...] [--units UNIT] [--noheadings] [--reportformat json]", 1);
}

static const char *spares_text(const struct view *view, char text[static 64])
{
	unsigned disks = 0, ssds = 0;
	int length = 0;

	for (size_t i = 0; i < view->disks.number; i++)
		disks += view->disks.disk[i].role == MD_SPARE;
	for (size_t i = 0; i < view->stacks->members.number; i++) {
		const union superblock *sb = &view->stacks->members.member[i]->sb;

		ssds += le32toh(sb->head.kind) == LARDER_KIND_SPARE && !memcmp(sb->cache.cache_uuid, view->found->stack.cache, 16);
	}
	text[0] = 0;
	if (disks)
		length = snprintf(text, 64, "; %u spare disk%s", disks, disks == 1 ? "" : "s");
	if (ssds)
		snprintf(text + length, 64 - (size_t)length, "; %u spare SSD%s", ssds, ssds == 1 ? "" : "s");
	return text;
}

int stack_status(int argc, char **argv)
{
	static const char usage[] = "larder status NAME";
	const struct argument arguments[] = { ARGUMENTS_END };
	const struct found *found;
	struct stacks stacks;
	struct view view;
	int first, result;
	char *words, spares[64];

	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	mapped_init(false);
	result = stacks_scan(&stacks);
	result = result ? result : stack_find(&stacks, argv[first], &found);
	if (!result) {
		view_open(&view, &stacks, found);
		words = problems_line(&view.verdict.words);
		printf("%s: %s%s%s%s\n", found->stack.name, verdict_text(&view), *words ? ": " : "", words, spares_text(&view, spares));
		free(words);
		result = view.verdict.health == FAILED	 ? EXIT_FAILED :
			 view.verdict.health == DEGRADED ? EXIT_DEGRADED :
			 view.verdict.stopped		 ? LARDER_NOT_FOUND :
							   LARDER_DONE;
		view_close(&view);
	}
	stacks_free(&stacks);
	return result;
}
