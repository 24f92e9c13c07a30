// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder list, larder show: stacks, their layers, and how they are.
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
#include "hanging.h"
#include "integrity.h"
#include "layout.h"
#include "running.h"
#include "stack_store.h"
#include "stack_verdict.h"
#include "tiers.h"
#include "verbs.h"

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
	{ "space", VALUE_TEXT, "Space", "of a volume: volume group from which stores of snapshots are taken; likewise" },
	{ "class", VALUE_TEXT, "Class", "of a volume: what is cached from each start on; likewise" },
	{ "options", VALUE_TEXT, "Options", "of a volume, or a cache: what volume set --persist, or cache set --persist, has stored for each start; likewise" },
	{ "label", VALUE_TEXT, "Label", "of an SSD, or of the disks, as --foreground, --promote and --background take it" },
	{ "foreground", VALUE_TEXT, "Foreground", "of a volume: label of the devices to which writes go first" },
	{ "promote", VALUE_TEXT, "Promote", "of a volume: label of those to which what is read is copied, or none" },
	{ "format", VALUE_TEXT, "Format", "of the superblock of a volume or SSD: version, and features" },
	{ "background", VALUE_TEXT, "Background", "of a volume: label of those on which data comes to rest" },
};

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

/* By what the array has, or what has its superblock. */
static bool is_listed(const struct view *view, const uint8_t leg[16])
{
	const struct md_array *array = &view->layers.array;
	char *node = leg_node(leg);
	bool listed = false;
	dev_t number;

	if (node_number(node, &number)) {
		for (size_t i = 0; i < view->disks.number; i++)
			listed |= view->disks.disk[i].number == number;
		for (size_t i = 0; i < array->number; i++)
			listed |= array->leg_number[i] == number;
	}
	free(node);
	return listed;
}

/* Those of which the array knows nothing: nobody has started them, or they never came to be in it, or are half erased. */
static void add_marked_legs(struct tree *t, int depth)
{
	const struct stack *s = &t->view->found->stack;
	const struct members *members = &t->view->stacks->members;

	for (size_t i = 0; i < members->number; i++) {
		const struct member *m = members->member[i];

		if (leg_is_of(&m->sb, s->uuid) && !(leg_runs(m->sb.head.uuid, m->number) && is_listed(t->view, m->sb.head.uuid)))
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
		uint8_t part[16], uuid[16];

		stack_part(s, "volume", part);
		stack_snapshot_uuid(s, one, uuid);
		cow_status(part, uuid, &status);
		add(t, depth, "snapshot", one->name, cow_state_text(one, &status), cow_is_there(&status) ? node : "", uuid);
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
	cell(t, "space", s->space);
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
	add(&t, 0, "stack", !found->whole || !found->stack.encrypted ? "" : *found->stack.aead ? "authenticated" : "encrypted", view_verdict(&view), view.layers.top,
	    found->stack.uuid);
	if (found->whole)
		add_layers(&t);
	view_close(&view);
}

struct table_request {
	struct report_options options;
	char *name; /* NULL: all */
};

static int look(const struct table_request *request)
{
	const struct field *sections[] = { fields };
	const size_t counts[] = { sizeof(fields) / sizeof(fields[0]) };
	const struct found *only = NULL;
	struct report *report = NULL;
	struct stacks stacks;
	int result;

	mapped_init(false);
	result = stacks_look(&stacks);
	if (!result && request->name)
		result = stack_find(&stacks, request->name, &only);
	if (!result)
		report = report_new("stacks", sections, counts, 1,
				    request->name ? "tree,number,type,state,size,free,device,mount,uuid" : "tree,type,state,size,device,mount",
				    &request->options, &result);
	for (size_t i = 0; report && i < stacks.number; i++)
		if (!only || only == &stacks.found[i])
			add_stack(report, &stacks, &stacks.found[i]);
	if (report)
		result = report_print(report);
	if (report && !result && !only)
		members_remark_damaged();
	if (report && !result && !only)
		result = members_check_seen();
	stacks_free(&stacks);
	return result;
}

static int table(int argc, char **argv, const char *usage, int words)
{
	struct table_request request = { .options = { .units = { 'h', true } } };
	const struct argument arguments[] = { REPORT_ARGUMENTS(request.options), ARGUMENTS_END };
	int first, result;

	if (!arguments_words(argc, argv, usage, arguments, words, words, &first, &result))
		return result;
	request.name = words ? argv[first] : NULL;
	return look(&request);
}

int stacks_list(int argc, char **argv)
{
	return table(argc, argv, "larder list [-o FIELD,...] [--sort FIELD,...] [--units UNIT] [--noheadings] [--reportformat json]", 0);
}

int stack_show(int argc, char **argv)
{
	return table(argc, argv, "larder show NAME [-o FIELD,...] [--sort FIELD,...] [--units UNIT] [--noheadings] [--reportformat json]", 1);
}
