// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disks and SSDs of a stack that runs: which is meant, and the steps by which one joins or leaves.
 *
 * Nothing notes how far a change has come: md and the set of SSDs know that themselves, on their own devices.  So each step looks anew at what
 * is there, and the command that was cut short, given once more, goes on where it was.  Two rules keep what is durable right:
 *
 *  - a disk that left loses its superblock last of all: behind that of the one in its place, which says, durably, that it has everything;
 *  - the description never counts more disks than the array does: it is raised after the array, and lowered before it.
 */
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "create.h"
#include "disks.h"
#include "fstab.h"
#include "integrity.h"
#include "program.h"
#include "root_image.h"
#include "stack_devices.h"
#include "stack_legs.h"
#include "stack_steps.h"
#include "stack_store.h"
#include "turn.h"
#include "verbs.h"

#define POLL_US 200000u
#define PATIENCE 100 /* polls that nothing happens in */
#define FROZEN_US 2000000u /* after which no mdadm is at work any more that froze the array */

static const struct size_format human = { 'h', true };

/* ------------------------------------------------------------------ look */

/* A cache that has failed keeps nobody from exchanging a disk. */
static void find_set(struct devices *d)
{
	if (d->layers.cache && set_read(&d->set, (struct mapped *)d->layers.cache))
		d->set.mapped = NULL;
}

int devices_look(const char *name, struct devices *d)
{
	const struct found *found;
	int result;

	*d = (struct devices){ 0 };
	result = stacks_scan(&d->stacks);
	result = result ? result : stack_find(&d->stacks, name, &found);
	if (!result && !found->whole)
		result = complain(LARDER_NOT_FOUND, "%s: is not started, or its disks are not here; larder start %s", name, name);
	result = result ? result : stack_check_ready(&d->stacks, &found->stack);
	if (!result) {
		d->stack = found->stack;
		layers_find(&d->stacks, &d->stack, &d->layers);
		if (!d->layers.volume)
			result = complain(LARDER_NOT_FOUND, "%s: is not started; larder start %s", name, name);
		if (*d->layers.array.node)
			stack_disks(&d->stack, d->layers.array.device, &d->disks);
		if (!result)
			find_set(d);
	}
	if (result)
		devices_free(d);
	return result;
}

void devices_free(struct devices *d)
{
	set_free(&d->set);
	layers_free(&d->layers);
	stacks_free(&d->stacks);
}

/* ------------------------------------------------------------------ which */

static bool block_number(const char *path, dev_t *number)
{
	struct stat status;

	if (!*path || stat(path, &status) || !S_ISBLK(status.st_mode))
		return false;
	*number = status.st_rdev;
	return true;
}

static bool same(const char *a, const char *b)
{
	dev_t x, y;

	return block_number(a, &x) && block_number(b, &y) && x == y;
}

bool part_is(const struct part *part, const char *path)
{
	return same(part->node, path);
}

int part_check_same(const struct devices *d, const struct part *now, const struct part *then, const char *word)
{
	if (!strcmp(now->name, then->name) && !strcmp(now->node, then->node) && now->sequence == then->sequence && !memcmp(now->uuid, then->uuid, 16))
		return LARDER_DONE;
	return complain(LARDER_BUSY, "%s: is another device, or gone, since it was looked at; begin anew: larder show %s", word, d->stack.name);
}

static bool take_disk(const struct md_disk *disk, struct part *part)
{
	*part = (struct part){ .place = disk->place, .disk = disk };
	snprintf(part->name, sizeof(part->name), "%s", *disk->node ? disk->node : disk->name);
	snprintf(part->node, sizeof(part->node), "%s", disk->node);
	return true;
}

/* It has left the set, and nothing is on it that the set lacks. */
static bool has_left(const struct devices *d, const struct member *m)
{
	return set_is_stale(&d->set, &m->sb) && set_knows(&d->set, m->path, &m->sb);
}

/* An SSD that this cache was made with, or of that place, and that left it; by its path a spare, too. */
static const struct member *left_ssd(const struct devices *d, int place, const char *path)
{
	for (size_t i = 0; i < d->stacks.members.number; i++) {
		const struct member *m = d->stacks.members.member[i];

		/* where only the copy is left, somebody else has it now */
		if (m->copy_only)
			continue;
		if (path ? same(m->path, path) && (set_is_spare(&d->set, &m->sb) || has_left(d, m)) :
			   le32toh(m->sb.cache.device_number) == (uint32_t)place && has_left(d, m))
			return m;
	}
	return NULL;
}

static bool take_ssd(const struct devices *d, int place, struct part *part)
{
	const struct member *left = NULL;

	if (place < 0)
		return false;
	*part = (struct part){ .ssd = true, .place = place };
	memcpy(part->uuid, d->set.table.devices[place].uuid, 16);
	snprintf(part->name, sizeof(part->name), "ssd%d", place);
	if (strcmp(d->set.ssd[place], "-"))
		snprintf(part->node, sizeof(part->node), "%s", d->set.ssd[place]);
	else
		left = left_ssd(d, place, NULL);
	if (left)
		snprintf(part->node, sizeof(part->node), "%s", left->path);
	return true;
}

/* "disk1": who is in that place; of two, the one that is to leave it. */
static bool find_place(const struct devices *d, const char *word, struct part *part)
{
	const struct md_disk *in = NULL;
	unsigned place;
	char rest;

	if (sscanf(word, "ssd%u%c", &place, &rest) == 1)
		return d->set.mapped && place < d->set.number && take_ssd(d, (int)place, part);
	if (sscanf(word, "disk%u%c", &place, &rest) != 1 || place >= d->disks.places)
		return false;
	for (size_t i = 0; i < d->disks.number; i++)
		if (d->disks.disk[i].place == (int)place && (!in || d->disks.disk[i].role != MD_REBUILT))
			in = &d->disks.disk[i];
	if (in)
		return take_disk(in, part);
	*part = (struct part){ .place = (int)place };
	snprintf(part->name, sizeof(part->name), "%s", word);
	return true;
}

static bool find_device(const struct devices *d, const char *path, struct part *part)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	dev_t number;
	bool here = block_number(path, &number);
	const struct member *left;
	uint8_t own[16];

	for (size_t i = 0; i < d->disks.number; i++) {
		const struct md_disk *disk = &d->disks.disk[i];

		/* one that is gone goes by its former name */
		if (here ? *disk->node && disk->number == number : !*disk->node && !strcmp(disk->name, name))
			return take_disk(disk, part);
	}
	if (!here)
		return false;
	*part = (struct part){ .place = -1 };
	snprintf(part->name, sizeof(part->name), "%s", path);
	snprintf(part->node, sizeof(part->node), "%s", path);
	for (size_t i = 0; i < d->layers.array.number; i++) {
		char *leg = stack_disk_for_md(&d->stack, path);
		bool is = same(d->layers.array.leg[i], leg);

		free(leg);
		if (is)
			return true;
	}
	/* as where it was to join, or to be erased, and that was cut short */
	part->marked = *d->stack.integrity && leg_of_disk(path, d->stack.uuid, own);
	if (part->marked)
		return true;
	if (!d->set.mapped)
		return false;
	if (set_find_device(&d->set, path) >= 0)
		return take_ssd(d, set_find_device(&d->set, path), part);
	left = left_ssd(d, -1, path);
	part->ssd = left;
	part->spare = left && set_is_spare(&d->set, &left->sb);
	return left;
}

static bool find_uuid(const struct devices *d, const char *word, struct part *part)
{
	uint8_t uuid[16], own[16];

	if (uuid_parse(word, uuid))
		return false;
	for (size_t i = 0; i < d->layers.array.number; i++)
		if (md_leg_uuid(d->layers.array.leg[i], own) && !memcmp(own, uuid, 16))
			return find_device(d, d->layers.array.leg[i], part);
	if (!d->set.mapped)
		return false;
	if (set_find_uuid(&d->set, word) >= 0)
		return take_ssd(d, set_find_uuid(&d->set, word), part);
	for (size_t i = 0; i < d->stacks.members.number; i++)
		if (!memcmp(d->stacks.members.member[i]->sb.head.uuid, uuid, 16))
			return find_device(d, d->stacks.members.member[i]->path, part);
	return false;
}

static uint64_t node_sequence(const char *node)
{
	dev_t number;

	return block_number(node, &number) ? disk_sequence(number) : 0;
}

bool part_find(const struct devices *d, const char *word, struct part *part)
{
	bool found = find_place(d, word, part) || find_device(d, word, part) || find_uuid(d, word, part);

	if (found)
		part->sequence = node_sequence(part->node);
	return found;
}

int part_get(const struct devices *d, const char *word, struct part *part)
{
	if (part_find(d, word, part))
		return LARDER_DONE;
	return complain(LARDER_NOT_FOUND,
			"%s: %s has no such disk or SSD: give its path, UUID, or number as disk1 or ssd0; larder show %s shows them", word,
			d->stack.name, d->stack.name);
}

const char *ssd_state(const struct devices *d, int place, char text[static 16])
{
	char *state = place >= 0 && d->set.mapped ? set_state(&d->set, (uint32_t)place) : NULL;

	snprintf(text, 16, "%s", state ? state : "");
	free(state);
	return text;
}

unsigned ssds_active(const struct devices *d)
{
	unsigned number = 0;
	char text[16];

	for (uint32_t i = 0; d->set.mapped && i < d->set.number; i++)
		number += !strcmp(ssd_state(d, (int)i, text), "active");
	return number;
}

/* In mode writethrough what was written before may still be; of others it is not known. */
int ssds_may_be_dirty(const struct devices *d, bool *may)
{
	char *mode = status_value(d->layers.volume->status, "mode");
	bool writeback = !mode || !strcmp(mode, "writeback");
	int result = cache_is_shared(&d->stack, may);

	free(mode);
	*may |= writeback || status_number(d->set.mapped->status, "dirty_sectors");
	return result;
}

int redundancy_check(const struct devices *d, const struct devices_request *request, const char *word, const char *lost)
{
	const char *given = request->discard_redundancy;
	char text[UUID_TEXT];
	uint8_t uuid[16];

	uuid_text(d->stack.uuid, text);
	if (!given)
		return complain(LARDER_UNSAFE, "%s: %s: the redundancy of %s is LOST with --discard-redundancy %s", word, lost, d->stack.name, text);
	if (uuid_parse(given, uuid) || memcmp(uuid, d->stack.uuid, 16))
		return complain(LARDER_UNSAFE, "%s: --discard-redundancy: the stack is %s, not %s; nothing was done", d->stack.name, text, given);
	return LARDER_DONE;
}

/* ------------------------------------------------------------------ the steps, of disks */

int array_check(const struct devices *d)
{
	const struct stack *stack = &d->stack;
	unsigned missing;

	if (!*stack->raid)
		return complain(LARDER_USAGE, "%s: it has one disk, and no array that another could join", stack->name);
	if (!strcmp(stack->raid, "0"))
		return complain(LARDER_USAGE, "%s: RAID 0 has no redundancy: none of its disks can be rebuilt, or do without", stack->name);
	if (!program_there("mdadm"))
		return complain(LARDER_FAILED, "mdadm: is missing; apt install mdadm");
	if (!*d->layers.array.node || !strcmp(md_state(d->layers.array.device, &missing), "failed"))
		return complain(LARDER_FAILED, "%s: its array does not run, or has failed; larder status %s", stack->name, stack->name);
	return LARDER_DONE;
}

int array_thaw(const struct md_array *array)
{
	struct md_disks disks;

	if (!md_disks(array->device, &disks) || !disks.frozen)
		return LARDER_DONE;
	usleep(FROZEN_US);
	return md_disks(array->device, &disks) && disks.frozen ? md_thaw(array->node) : LARDER_DONE;
}

/* Its disk may be gone, or fail: then its devices go at least. */
static void erase_leg(const struct devices *d, const char *node)
{
	uint8_t leg[16];
	char disk[64];
	dev_t number;
	int result;

	if (leg_of_disk(node, d->stack.uuid, leg))
		result = leg_erase(node, leg);
	else if (block_number(node, &number) && leg_of_device(number, leg, disk))
		result = leg_stop(leg);
	else
		return;
	if (result)
		remark("%s: may still look like a disk of %s, which it is not, and be taken back where it works again and that lacks one; larder super wipe %s ends that", node, d->stack.name, node);
}

int disk_change(const struct devices *d, int (*verb)(const char *node, const char *disk, bool dry_run), const char *disk, bool dry_run)
{
	bool joins = verb == md_add && !dry_run;
	uint64_t before = joins ? joins_soon(&d->stack, d->layers.array.device) : 0;
	char *word = stack_disk_for_md(&d->stack, disk);
	int result = verb(d->layers.array.node, word, dry_run);

	if (joins && result) {
		joins_no_more(&d->stack, before);
		if (*d->stack.integrity)
			erase_leg(d, disk); /* which disk_take() has made */
	}
	free(word);
	return result;
}

int disk_exchange(const struct devices *d, const char *old, const char *with, bool dry_run)
{
	char *a = stack_disk_for_md(&d->stack, old), *b = stack_disk_for_md(&d->stack, with);
	int result = md_replace(d->layers.array.node, a, b, dry_run);

	free(b);
	free(a);
	return result;
}

/* What md takes of each disk at least, what lies before it included: mdadm chooses that. */
static uint64_t disk_needs(const struct devices *d)
{
	uint64_t least, bytes, ignored;

	if (!md_leg_room(d->layers.array.device, &bytes, &ignored))
		return 0;
	least = md_leg_offset(d->layers.array.device, &d->disks);
	return least == UINT64_MAX ? 0 : (least << LARDER_SECTOR_SHIFT) + bytes;
}

/* What is left of a disk whose tags need no more room than that.  (How much the journal takes the kernel chooses: mdadm has the last word.) */
static uint64_t room_for_md(const struct devices *d, uint64_t bytes)
{
	return *d->stack.integrity ? leg_capacity_most(bytes) : bytes;
}

/* Could it hold what each disk of the array does?  Complains. */
static int disk_fits(const struct devices *d, const struct device *device)
{
	uint64_t needs = disk_needs(d);
	char a[SIZE_TEXT], b[SIZE_TEXT];
	unsigned block;

	if (!device->block)
		return complain(LARDER_USAGE, "%s: is a regular file; make a block device of it with losetup", device->path);
	if (!needs || !device_attribute(d->layers.array.device, "queue/logical_block_size", a, sizeof(a)) || sscanf(a, "%u", &block) != 1)
		return complain(LARDER_FAILED, "%s: the sizes of %s cannot be read", d->stack.name, d->layers.array.node);
	if (room_for_md(d, device->bytes) < needs)
		return complain(LARDER_FAILED, "%s: size: too small: it has %s, and the array takes %s of each disk", device->path,
				size_print(a, device->bytes, &human), size_print(b, needs, &human));
	return create_check_block(device->path, device->logical_block, block);
}

/* With a log of its parity md answers a flush before the disk has written.  Behind --reshape the array gets what suits its disks. */
static int check_write_cache(const struct devices *d, const struct devices_request *request)
{
	const char *path = request->claim.path, *node = d->layers.array.node;

	if (request->reshape || !md_is_logged(d->layers.array.device) || !md_has_volatile_cache(&path, 1))
		return LARDER_DONE;
	return complain(LARDER_UNSAFE,
			"%s: has a volatile write cache, and %s a log of its parity (PPL), with which md answers a flush before its disks have written: what fsync took for safe "
			"would be gone behind a power cut; hdparm -W 0 %s, at each boot; or give the array a bitmap instead: mdadm --grow %s "
			"--consistency-policy=resync, then mdadm --grow %s --bitmap=internal",
			path, node, path, node, node);
}

static int mark_leg(const struct devices *d, const struct device *device, uint8_t leg[16])
{
	union superblock *sb = device_buffer(LARDER_SB_SIZE);
	struct leg_fields fields;
	int result;

	create_head(&sb->head, LARDER_KIND_OTHER, device, 0);
	memcpy(leg, sb->head.uuid, 16);
	memcpy(fields.stack, d->stack.uuid, 16);
	memcpy(fields.host, d->stack.host, 16);
	leg_fill(sb, &fields);
	result = create_superblock(device, sb, false);
	free(sb);
	return result;
}

static int make_leg(const struct devices *d, const char *path, const uint8_t leg[16])
{
	int result = leg_format(path, leg, d->stack.uuid);

	return result ? result : leg_start(path, leg, d->stack.uuid);
}

/* It is a leg of this stack, and the array does not have it: a try that was cut short has left it so, or (*left) it was a disk of that once. */
static int take_again(const struct devices *d, const char *path, const uint8_t leg[16], bool *left)
{
	char *node = leg_node(leg);
	uint8_t part[16];
	bool readable;
	int result = LARDER_DONE;

	stack_part(&d->stack, "md", part);
	/* of what cannot be read nobody knows */
	if (leg_is_formatted(path, &readable)) {
		result = leg_start(path, leg, d->stack.uuid);
		*left = !result && (md_is_leg(node, part, &readable) || !readable);
		if (*left)
			result = leg_stop(leg);
	} else {
		*left = !readable;
	}
	if (!result && !*left)
		result = make_leg(d, path, leg);
	free(node);
	return result;
}

int disk_check_apart(const struct devices *d, const char *path, const struct md_disk *leaves)
{
	int result = LARDER_DONE;

	for (size_t i = 0; !result && i < d->disks.number; i++) {
		const struct md_disk *disk = &d->disks.disk[i];
		const char *node = disk->node;

		if (disk != leaves && disk->role != MD_FAILED && *node)
			result = create_check_joins(path, &node, 1, "disk");
	}
	return result;
}

int disk_take(const struct devices *d, const struct devices_request *request, bool dry_run)
{
	struct claim_request claim = request->claim;
	struct device device;
	uint8_t leg[16];
	bool left = true;
	int result;

	if (*d->stack.integrity && leg_of_disk(claim.path, d->stack.uuid, leg)) {
		result = dry_run ? LARDER_DONE : take_again(d, claim.path, leg, &left);
		if (dry_run || result || !left)
			return result;
	}
	claim.dry_run = dry_run;
	claim.yes = true; /* confirm() asks, for all of it */
	result = claim_open(&device, &claim);
	if (result)
		return result;
	result = disk_fits(d, &device);
	result = result ? result : running_check_entangled(NULL, device.path, device.number, d->stack.cache);
	result = result ? result : check_write_cache(d, request);
	result = result ? result : claim_clear(&device, &claim);
	if (!result && *d->stack.integrity && !dry_run)
		result = mark_leg(d, &device, leg);
	device_close(&device);
	return result || !*d->stack.integrity || dry_run ? result : make_leg(d, claim.path, leg);
}

static void show_progress(const char *path, const struct md_disks *disks, bool end)
{
	if (isatty(STDERR_FILENO) && (end || !disks->idle))
		fprintf(stderr, "\r%s: %u %% rebuilt%s", path, end ? 100 : disks->percent, end ? "\n" : " ");
}

enum rebuilt {
	STILL,
	WHOLE,
	NEVER,
};

/* A reshape is the array's, and may have taken another spare than the disk that was given. */
static bool is_settled(const struct stack *stack, dev_t array, const struct md_disk *disk, const char *path, bool reshape)
{
	uint8_t uuid[16];
	bool settled;
	char *word;

	if (reshape && md_reshapes(array))
		return false;
	if (disk->role != MD_MEMBER)
		return reshape && disk->role == MD_SPARE;
	stack_part(stack, "md", uuid);
	word = stack_disk_for_md(stack, path);
	settled = md_leg_settled(word, uuid);
	free(word);
	return settled;
}

/* By sysfs alone until the end: whoever waits for hours keeps no other disk awake. */
static enum rebuilt look_at_disk(const struct stack *stack, dev_t array, const char *path, bool reshape, int *quiet)
{
	const struct md_disk *disk = NULL;
	struct md_disks disks;
	dev_t number;

	if (!stack_disks(stack, array, &disks))
		return complain(LARDER_FAILED, "%s: the array does not run any more", path), NEVER;
	for (size_t i = 0; block_number(path, &number) && i < disks.number; i++)
		if (*disks.disk[i].node && disks.disk[i].number == number)
			disk = &disks.disk[i];
	*quiet = disks.idle ? *quiet + 1 : 0;
	if (!disk || disk->role == MD_FAILED || *quiet > PATIENCE) {
		complain(LARDER_FAILED, "%s: is not rebuilt: %s; the kernel's log says why", path,
			 !disk ? "the array has it no more" : disk->role == MD_FAILED ? "it has failed" : "the array does not go on with it");
		return NEVER;
	}
	if (!disks.idle || !is_settled(stack, array, disk, path, reshape)) {
		show_progress(path, &disks, false);
		return STILL;
	}
	show_progress(path, &disks, true);
	return WHOLE;
}

int disk_wait(const struct devices_request *request, const char *path, const char *verb, bool *settled)
{
	enum rebuilt state;
	struct stack stack;
	struct devices d;
	dev_t array;
	int quiet = 0, result = devices_look(request->name, &d);

	*settled = false;
	if (result)
		return result;
	stack = d.stack;
	array = d.layers.array.device;
	devices_free(&d);
	state = look_at_disk(&stack, array, path, request->reshape, &quiet);
	if (state == STILL && request->no_wait) {
		printf("%s: %s is being rebuilt; the same larder %s, once more, ends it\n", request->name, path, verb);
		return LARDER_DONE;
	}
	fflush(stdout);
	turn_give();
	while (state == STILL) {
		usleep(POLL_US);
		state = look_at_disk(&stack, array, path, request->reshape, &quiet);
	}
	turn_take();
	*settled = state == WHOLE;
	return *settled ? LARDER_DONE : LARDER_FAILED;
}

int disk_remove(const char *name, const struct part *then)
{
	for (int i = 0;; i++) {
		struct devices d;
		struct part part;
		bool there, busy;
		int result = devices_look(name, &d);

		if (result)
			return result;
		there = part_find(&d, then->name, &part) && part.disk && (!part.sequence || part.sequence == then->sequence);
		/* md takes one that has failed out of its place a moment later */
		busy = there && part.place >= 0 && part.place < (int)d.disks.places;
		if (there && (!busy || i == PATIENCE))
			result = disk_change(&d, md_remove, part.name, false);
		devices_free(&d);
		if (result || !busy || i == PATIENCE)
			return result;
		usleep(POLL_US);
	}
}

int disk_erase(const char *name, const struct part *then)
{
	const char *node = then->node;
	uint64_t sequence = node_sequence(node);
	struct devices d;
	uint8_t part[16];
	bool readable;
	int result = devices_look(name, &d);

	if (result)
		return result;
	stack_part(&d.stack, "md", part);
	if (sequence && sequence != then->sequence)
		remark("%s: is another device than before, or went and came: nothing was erased there; where it is the one that has left %s, %s %s ends that", node, d.stack.name,
		       *d.stack.integrity ? "larder super wipe" : "mdadm --zero-superblock", node);
	else if (*d.stack.integrity && *node)
		erase_leg(&d, node);
	else if (*node && (md_is_leg(node, part, &readable) ? claim_leg_is_ours(node, true) && md_erase(node) : !readable))
		remark("%s: may still look like a disk of %s, which it is not, and be taken back where it works again and that lacks one; mdadm --zero-superblock %s ends that", node,
		       d.stack.name, node);
	devices_free(&d);
	return LARDER_DONE;
}

/* ------------------------------------------------------------------ of SSDs */

#define WORDS_MAX 15

static int ssd_words(const struct devices *d, const struct devices_request *request, const char *verb, const char *first, const char *second,
		     char **words)
{
	const struct claim_request *claim = &request->claim;
	static char uuid[UUID_TEXT];
	int n = 0;

	uuid_text(d->stack.cache, uuid);
	words[n++] = (char *)verb;
	words[n++] = uuid;
	words[n++] = (char *)first;
	if (second)
		words[n++] = (char *)second;
	if (claim->dry_run)
		words[n++] = "--dry-run";
	if (request->no_wait)
		words[n++] = "--no-wait";
	if (!strcmp(verb, "remove")) { /* what that asks nobody has been asked */
		if (claim->yes)
			words[n++] = "--yes";
		return n;
	}
	words[n++] = "--yes";
	if (claim->wipe)
		words[n++] = "--wipe";
	if (claim->discard_dirty) {
		words[n++] = "--discard-dirty";
		words[n++] = (char *)claim->discard_dirty;
	}
	if (request->spare)
		words[n++] = "--spare";
	if (request->role) {
		words[n++] = "--role";
		words[n++] = (char *)request->role;
	}
	if (request->label) {
		words[n++] = "--cache-label";
		words[n++] = (char *)request->label;
	}
	return n;
}

int ssd_add(const struct devices *d, const struct devices_request *request)
{
	char *words[WORDS_MAX];

	return cache_add(ssd_words(d, request, "add", request->claim.path, NULL, words), words);
}

int ssd_replace(const struct devices *d, const struct devices_request *request, int place)
{
	char *words[WORDS_MAX], text[16];

	snprintf(text, sizeof(text), "%d", place);
	return cache_replace(ssd_words(d, request, "replace", text, request->claim.path, words), words);
}

int ssd_remove(const struct devices *d, const struct devices_request *request, int place)
{
	char *words[WORDS_MAX], text[16];

	snprintf(text, sizeof(text), "%d", place);
	return cache_remove(ssd_words(d, request, "remove", text, NULL, words), words);
}

int ssd_wait(struct devices *d, const struct devices_request *request, int place)
{
	int result = set_wait(&d->set, (uint32_t)place, "joining");

	return result ? result : set_say_joined(&d->set, (uint32_t)place, request->claim.path);
}

int ssd_erase(const char *name, const char *node)
{
	const struct member *left;
	struct devices d;
	int result = devices_look(name, &d);

	if (result)
		return result;
	left = *node && d.set.mapped ? left_ssd(&d, -1, node) : NULL;
	/* one that has left the set has left it anyway; a spare that keeps its superblock is one */
	if (left && !set_erase(node, le32toh(left->sb.head.kind), d.stack.cache) && le32toh(left->sb.head.kind) == LARDER_KIND_SPARE)
		result = complain(LARDER_UNSAFE, "%s: is still a spare of %s", node, name);
	devices_free(&d);
	return result;
}

/* ------------------------------------------------------------------ the description */

int devices_store(const char *name, unsigned places)
{
	struct devices d;
	int result = devices_look(name, &d);
	struct stack stack;

	if (result)
		return result;
	stack = d.stack;
	devices_free(&d);
	if (places)
		stack.legs = places;
	result = stack_store_note(&stack);
	return result ? result : mount_note_remote(&stack);
}

/* That it is so, in /run: or larderd would have it noted again and again.  Complains. */
static int keep_lost(const char *name, const uint8_t volume[16], const struct md_lost *lost)
{
	if (returned_set(volume, lost->returned) && lacks_set(volume, lost->noted))
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: /run/larder: %s: its disks have what the array lacks, but that this is so cannot be noted here: mend /run", name,
			strerror(errno));
}

int devices_note(const char *name)
{
	struct md_lost lost = { 0 }, now;
	struct stack stack;
	struct devices d;
	dev_t device;
	uint8_t part[16];
	int result = devices_look(name, &d);

	if (result)
		return result;
	stack = d.stack;
	stack_part(&stack, "volume", part);
	device = *d.layers.array.node ? d.layers.array.device : 0;
	if (device)
		md_look_lost(device, &lost);
	if (device && *stack.integrity)
		md_take_read_errors(device, MD_READ_ERRORS);
	devices_free(&d);
	lost.noted = lacks_noted(part);
	lost.returned = returned_since(part);
	if (md_lost_due(&lost)) {
		result = stack_store_note(&stack);
		/* one that has come meanwhile may have got it */
		md_look_lost(device, &now);
		lost.rebuilt |= now.rebuilt;
		md_lost_noted(&lost);
	} else {
		md_lost_seen(&lost);
	}
	return result ? result : keep_lost(name, part, &lost);
}

void devices_remark(const struct devices *d, const struct devices_request *request)
{
	uint8_t volume[16];

	stack_part(&d->stack, "volume", volume);
	remark_of_root(volume, request->name, request->claim.path);
}

int devices_take_back(const char *name, const char *disk)
{
	struct stack stack;
	struct devices d;
	int result = devices_look(name, &d);

	if (result)
		return result;
	stack = d.stack;
	result = array_check(&d);
	devices_free(&d);
	return result ? result : legs_take_back(&stack, disk);
}
