// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder create: a whole stack; larder create --resume.
 *
 * First all devices are opened for us alone, and judged, and what will be done is shown; nothing is changed by that.  Then come the
 * steps of enum stack_step, each noted in the description when it is done, so that what a kill, an error or a power cut leaves is
 * either without any trace of the stack, or has a description that says how far it came:
 *
 *  NONE		the SSDs are formatted as a cache, each with the description (a cache that was there gets it by message): the
 *		first write of all, before any disk is touched
 *  DISKS	old signatures go, and each disk gets a superblock of kind 4 with a UUID that follows from the stack's: the next steps
 *		find the disks by it, whatever they are called by then, and never take another one
 *  ARRAY	mdadm makes the array over them; its superblock overwrites the mark
 *  VOLUME	the superblock of the volume, with the description; from here on it lies in two places
 *  CRYPT	the LUKS2 header
 *  FILESYSTEM	mkfs: noted before anybody can mount it, so that no repetition ever meets data
 *  MOUNT	fstab, the mount
 *
 * A step that was cut short is repeated from its beginning.  The state `ready` is the end.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "create.h"
#include "fstab.h"
#include "program.h"
#include "set.h"
#include "stacks.h"
#include "verbs.h"

struct request {
	const char *name;
	struct argument_list disks, caches;
	const char *raid, *mode, *class, *encrypt, *label, *mkfs, *mkfs_options, *mount;
	uint64_t iteration_ms;
	bool wipe, dry_run, yes, resume;
	const char *discard_dirty;
};

/* What is being made. */
struct making {
	struct stack stack;
	const struct request *request;
	uint64_t disk_bytes[MD_LEGS_MAX], unused; /* of the disks */
	uint32_t ssds;
	char cache_label[LARDER_LABEL_SIZE + 1];
	struct secret secret;
};

static const struct size_format human = { 'h', true };

/* ------------------------------------------------------------------ the words */

static int parse_encrypt(const struct request *request, struct stack *stack)
{
	const char *how = request->encrypt;
	char *full;

	if (!how)
		return LARDER_DONE;
	if (strncmp(how, "luks2", 5) || (how[5] && how[5] != ':'))
		return complain(LARDER_USAGE, "--encrypt: '%s' is not luks2, luks2:passphrase or luks2:keyfile=FILE", how);
	stack->encrypted = true;
	if (!how[5] || !strcmp(how + 5, ":passphrase"))
		return LARDER_DONE;
	if (strncmp(how + 5, ":keyfile=", 9))
		return complain(LARDER_USAGE, "--encrypt: what follows luks2: is passphrase (it is asked for) or keyfile=FILE");
	full = realpath(how + 14, NULL);
	if (!full)
		return complain(LARDER_NOT_FOUND, "--encrypt: %s: no such key file", how + 14);
	if (!stack_text_valid(full, true)) {
		free(full);
		return complain(LARDER_USAGE, "--encrypt: the path of the key file is too long, or not printable");
	}
	strcpy(stack->keyfile, full);
	free(full);
	return LARDER_DONE;
}

static int parse_raid(const struct request *request, struct stack *stack)
{
	const char *raid = request->raid ? request->raid : request->disks.number > 1 ? "" : "none";
	unsigned least;

	if (!request->disks.number)
		return complain(LARDER_USAGE, "--backing: is missing; give the disk, or each of them");
	stack->legs = (uint32_t)request->disks.number;
	if (!strcmp(raid, "none"))
		return request->disks.number == 1 ? LARDER_DONE :
						    complain(LARDER_USAGE, "--raid: none is for one disk, %d are given",
							     request->disks.number);
	if (!*raid)
		return complain(LARDER_USAGE, "--raid: is missing: %d disks; say 1 (mirrors), 10, 5, 6 or 0 (no redundancy)",
				request->disks.number);
	if (!stack_raid_valid(raid))
		return complain(LARDER_USAGE, "--raid: '%s' is not one of none, 0, 1, 10, 5, 6", raid);
	least = md_legs_min(raid);
	if ((unsigned)request->disks.number < least)
		return complain(LARDER_USAGE, "--raid: %s needs at least %u disks, %d are given", raid, least, request->disks.number);
	strcpy(stack->raid, raid);
	return LARDER_DONE;
}

static int parse_filesystem(const struct request *request, struct stack *stack)
{
	static const struct {
		const char *fs;
		size_t label;
	} most[] = { { "ext4", 16 }, { "xfs", 12 }, { "btrfs", LARDER_LABEL_SIZE } };

	if (!request->mkfs && (request->mount || request->label || request->mkfs_options))
		return complain(LARDER_USAGE, "--mount, --label, --mkfs-options: are for a filesystem; say which by --mkfs");
	if (!request->mkfs)
		return LARDER_DONE;
	if (!stack_fs_valid(request->mkfs))
		return complain(LARDER_USAGE, "--mkfs: '%s' is not one of ext4, xfs, btrfs", request->mkfs);
	strcpy(stack->fs, request->mkfs);
	if (request->label) {
		for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++)
			if (!strcmp(most[i].fs, stack->fs) && (!label_valid(request->label) || strlen(request->label) > most[i].label))
				return complain(LARDER_USAGE, "--label: must be 1 to %zu bytes of UTF-8 for %s", most[i].label, stack->fs);
		strcpy(stack->label, request->label);
	}
	if (request->mkfs_options && (!stack_text_valid(request->mkfs_options, false) || !*request->mkfs_options))
		return complain(LARDER_USAGE, "--mkfs-options: is too long, empty, or not printable");
	if (request->mkfs_options)
		strcpy(stack->mkfs, request->mkfs_options);
	if (request->mount && !stack_text_valid(request->mount, true))
		return complain(LARDER_USAGE, "--mount: '%s' is not an absolute path, or too long", request->mount);
	if (request->mount)
		strcpy(stack->mount, request->mount);
	return LARDER_DONE;
}

static int parse(const struct request *request, struct stack *stack)
{
	int result;
	uint32_t mode;

	if (!name_valid(request->name))
		return complain(LARDER_USAGE,
				"%s: NAME: must be 1 to 64 of A-Z a-z 0-9 # + . : = @ _ - and not begin with - or a dot", request->name);
	strcpy(stack->name, request->name);
	uuid_generate_random(stack->uuid);
	stack_host(stack->host);
	stack->state = STACK_CREATING;
	result = parse_raid(request, stack);
	result = result ? result : parse_filesystem(request, stack);
	result = result ? result : parse_encrypt(request, stack);
	if (result)
		return result;
	if (!request->caches.number)
		return complain(LARDER_USAGE, "--cache: is missing; give each SSD, or the name of a cache that is there");
	if (request->caches.number > (int)LARDER_MAX_DEVICES)
		return complain(LARDER_USAGE, "--cache: given %d times; a cache has at most %u SSDs", request->caches.number,
				LARDER_MAX_DEVICES);
	if (request->mode && !mode_parse(request->mode, &mode))
		return complain(LARDER_USAGE, "--mode: '%s' is not one of writeback, writethrough, writearound", request->mode);
	if (request->class && (strlen(request->class) >= sizeof(stack->class) || strpbrk(request->class, " \t\n\\")))
		return complain(LARDER_USAGE, "--class: is not one word, or too long; see docs/interface.md");
	if (request->class)
		strcpy(stack->class, request->class);
	return LARDER_DONE;
}

/* ------------------------------------------------------------------ the devices, looked at */

static int check_programs(const struct stack *stack)
{
	char *mkfs = must_print("mkfs.%s", stack->fs);
	int result = LARDER_DONE;

	if (*stack->raid && !program_there("mdadm"))
		result = complain(LARDER_FAILED, "mdadm: is missing, and --raid needs it; apt install mdadm");
	else if (*stack->fs && !program_there(mkfs))
		result = complain(LARDER_FAILED, "%s: is missing; apt install %s", mkfs,
				  !strcmp(stack->fs, "ext4") ? "e2fsprogs" :
				  !strcmp(stack->fs, "xfs") ? "xfsprogs" :
							      "btrfs-progs");
	free(mkfs);
	return result;
}

static int check_mount(const struct stack *stack)
{
	struct stat here, above;
	char *parent;
	int result = LARDER_DONE;

	if (!*stack->mount)
		return LARDER_DONE;
	parent = must_print("%s/..", stack->mount);
	if (stat(stack->mount, &here))
		result = complain(LARDER_NOT_FOUND, "--mount: %s: no such directory; make it first", stack->mount);
	else if (!S_ISDIR(here.st_mode))
		result = complain(LARDER_USAGE, "--mount: %s: is not a directory", stack->mount);
	else if (stat(parent, &above) || above.st_dev != here.st_dev || above.st_ino == here.st_ino)
		result = complain(LARDER_BUSY, "--mount: %s: something is mounted there already", stack->mount);
	free(parent);
	return result;
}

/* The same device twice, also by another path, or one as a part of the other. */
static int check_twice(const char *const *paths, int number)
{
	for (int i = 0; i < number; i++)
		for (int j = 0; j < i; j++) {
			struct stat a, b;
			char text[64], other[64];

			if (stat(paths[i], &a) || stat(paths[j], &b))
				continue;
			if (S_ISBLK(a.st_mode) && S_ISBLK(b.st_mode) ? a.st_rdev == b.st_rdev :
								       a.st_dev == b.st_dev && a.st_ino == b.st_ino)
				return complain(LARDER_USAGE, "%s: is given twice (also as %s)", paths[i], paths[j]);
			if (!S_ISBLK(a.st_mode) || !S_ISBLK(b.st_mode))
				continue;
			for (int turn = 0; turn < 2; turn++) {
				dev_t part = turn ? a.st_rdev : b.st_rdev, whole = turn ? b.st_rdev : a.st_rdev;

				if (device_attribute(part, "partition", text, sizeof(text)) &&
				    device_attribute(part, "../dev", text, sizeof(text)) &&
				    device_attribute(whole, "dev", other, sizeof(other)) && !strcmp(text, other))
					return complain(LARDER_USAGE, "%s and %s: one is a partition of the other", paths[i], paths[j]);
			}
		}
	return LARDER_DONE;
}

/* One device: free, fit, without anything of value.  Changes nothing. */
static int check_device(const struct making *m, const char *path, uint64_t *bytes, unsigned *logical)
{
	struct claim_request claim = { .path = path, .wipe = m->request->wipe, .discard_dirty = m->request->discard_dirty, .yes = true,
				       .dry_run = true };
	struct device device;
	int result = claim_open(&device, &claim);

	if (result)
		return result;
	*bytes = device.bytes;
	*logical = device.logical_block;
	if (!device.block && !m->request->dry_run)
		result = complain(LARDER_USAGE, "%s: is a regular file; make a block device of it with losetup", path);
	result = result ? result : claim_clear(&device, &claim);
	device_close(&device);
	return result;
}

static int check_ssds(struct making *m)
{
	struct cache_layout layout = { 0 };
	int result = LARDER_DONE;

	for (int i = 0; !result && i < m->request->caches.number; i++) {
		const char *path = m->request->caches.value[i], *why;
		uint64_t bytes;
		unsigned logical;

		result = check_device(m, path, &bytes, &logical);
		why = result ? NULL : cache_layout(&layout, bytes, logical);
		if (why)
			result = complain(LARDER_FAILED, "%s: %s", path, why);
	}
	return result;
}

static uint64_t least_volume(const struct stack *stack)
{
	uint64_t fs = !strcmp(stack->fs, "xfs") ? 300u << 20 : !strcmp(stack->fs, "btrfs") ? 128u << 20 : 4u << 20;

	return LARDER_DEF_DATA_OFFSET + LARDER_DEF_TAIL_RESERVE + (stack->encrypted ? LUKS_HEADER : 0) + fs;
}

static int check_disks(struct making *m)
{
	const struct argument_list *disks = &m->request->disks;
	char a[SIZE_TEXT], b[SIZE_TEXT];
	uint64_t all;
	unsigned logical;
	int result = LARDER_DONE;

	for (int i = 0; !result && i < disks->number; i++)
		result = check_device(m, disks->value[i], &m->disk_bytes[i], &logical);
	if (result)
		return result;
	all = *m->stack.raid ? md_capacity(m->stack.raid, m->disk_bytes, m->stack.legs, &m->unused) : m->disk_bytes[0];
	if (all >= least_volume(&m->stack))
		return LARDER_DONE;
	for (int i = 1; i < disks->number; i++)
		if (m->disk_bytes[i] < m->disk_bytes[0])
			m->disk_bytes[0] = m->disk_bytes[i];
	return complain(LARDER_FAILED, "%s: size: too small: of %s about %s would be left, and this stack needs %s", disks->value[0],
			size_print(a, m->disk_bytes[0], &human), size_print(b, all, &human),
			size_print((char[SIZE_TEXT]){ 0 }, least_volume(&m->stack), &human));
}

/* A cache that is there: one word that is no path. */
static int find_cache(struct making *m, struct stacks *stacks)
{
	const struct member *member;
	const char *name = m->request->caches.value[0];
	int result = member_find(&stacks->members, name, LARDER_KIND_CACHE, &member);

	if (result)
		return result;
	memcpy(m->stack.cache, member->sb.cache.cache_uuid, 16);
	m->ssds = le32toh(member->sb.cache.nr_devices);
	label_text(member->sb.cache.label, m->cache_label);
	return LARDER_DONE;
}

static int check_names(const struct making *m, const struct stacks *stacks)
{
	char *names[3] = { must_print("%s", m->stack.name), crypt_name(&m->stack), must_print("%s%s", CACHE_PREFIX, m->stack.name) };
	int result = create_check_names(m->stack.name, m->stack.name, LARDER_KIND_VOLUME);

	if (!result && m->stack.own_cache)
		result = create_check_names(m->stack.name, m->stack.name, LARDER_KIND_CACHE);
	for (size_t i = 0; !result && i < stacks->number; i++)
		if (!strcmp(stacks->found[i].stack.name, m->stack.name))
			result = complain(LARDER_BUSY, "%s: a stack has this name already; see larder show %s", m->stack.name, m->stack.name);
	for (int i = 0; i < 3; i++) {
		if (!result && (i != 1 || m->stack.encrypted) && (i != 2 || m->stack.own_cache) && mapped_name_taken(names[i]))
			result = complain(LARDER_BUSY, "%s: another device is called %s; choose another name", m->stack.name, names[i]);
		free(names[i]);
	}
	return result;
}

/* Fits the longest that the description may become into both fields? */
static int check_room(const struct making *m)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	struct stack longest = m->stack;
	int result = LARDER_DONE;
	const char *why;

	longest.generation = 1000000;
	longest.step = STEP_MOUNT;
	longest.state = STACK_REMOVING;
	if (!m->stack.own_cache)
		result = stack_list_read(m->stack.cache, list);
	if (!result) {
		why = stack_list_put(list, &longest) ? stack_list_encode(list, field) : "its cache has the most stacks that it can have";
		if (why)
			result = complain(LARDER_FAILED, "%s: %s; shorter paths, or another cache", m->stack.name, why);
	}
	free(list);
	return result;
}

static void choose_mode(struct making *m)
{
	const char *asked = m->request->mode;
	const char *mode = asked ? asked : m->ssds > 1 ? "writeback" : "writethrough";

	strcpy(m->stack.mode, mode);
	if (!asked && m->ssds < 2)
		printf("mode writethrough: there is one SSD, and in writeback its loss would be that of the newest data\n");
	else if (asked && m->ssds < 2 && !strcmp(mode, "writeback"))
		printf("RISK: mode writeback on a single SSD: if it is lost, so is what was not yet written back\n");
}

static int plan(struct making *m)
{
	const struct request *r = m->request;
	const char *paths[2 * ARGUMENT_LIST_MAX];
	struct stacks stacks;
	int number = 0, result;

	result = stacks_scan(&stacks);
	m->stack.own_cache = r->caches.number > 1 || strchr(r->caches.value[0], '/');
	for (int i = 0; i < r->disks.number; i++)
		paths[number++] = r->disks.value[i];
	for (int i = 0; m->stack.own_cache && i < r->caches.number; i++)
		paths[number++] = r->caches.value[i];
	result = result ? result : check_names(m, &stacks);
	result = result ? result : check_twice(paths, number);
	if (!result && m->stack.own_cache) {
		uuid_generate_random(m->stack.cache);
		m->ssds = (uint32_t)r->caches.number;
		strcpy(m->cache_label, m->stack.name);
	} else if (!result) {
		result = find_cache(m, &stacks);
	}
	stacks_free(&stacks);
	result = result ? result : check_programs(&m->stack);
	result = result ? result : check_mount(&m->stack);
	result = result ? result : check_disks(m);
	if (!result && m->stack.own_cache)
		result = check_ssds(m);
	if (!result)
		choose_mode(m);
	return result ? result : check_room(m);
}

/* ------------------------------------------------------------------ what will be done */

static void show_list(const struct argument_list *list)
{
	for (int i = 0; i < list->number; i++)
		printf("%s%s", i ? ", " : " ", list->value[i]);
}

static void show_plan(const struct making *m)
{
	const struct stack *s = &m->stack;
	char a[SIZE_TEXT], uuid[UUID_TEXT];

	printf("stack %s, UUID %s:\n", s->name, uuid_text(s->uuid, uuid));
	printf("  cache:");
	if (s->own_cache)
		show_list(&m->request->caches);
	printf("%s %s, %u SSD%s%s\n", s->own_cache ? ", to be formatted as" : " that of the name", m->cache_label, m->ssds,
	       m->ssds == 1 ? "" : "s", m->ssds > 1 && !strcmp(s->mode, "writeback") ? ", dirty data on two of them" : "");
	printf("  disks:");
	show_list(&m->request->disks);
	printf(", to be overwritten\n");
	if (*s->raid)
		printf("  array: RAID %s of %u disks, metadata 1.2%s%s\n", s->raid, s->legs,
		       *md_consistency(s->raid) ? ", " : "", md_consistency(s->raid));
	if (m->unused)
		printf("  unused: %s, as the disks are of unequal size\n", size_print(a, m->unused, &human));
	printf("  volume: %s, mode %s%s%s\n", s->name, s->mode, *s->class ? ", class " : "", s->class);
	if (s->encrypted)
		printf("  encryption: LUKS2, opened by %s\n", *s->keyfile ? s->keyfile : "a passphrase");
	if (*s->fs)
		printf("  filesystem: %s%s%s%s%s\n", s->fs, *s->label ? ", label " : "", s->label, *s->mkfs ? ", mkfs with " : "", s->mkfs);
	if (*s->mount)
		printf("  mount: %s, with a line in fstab\n", s->mount);
}

static int confirm(const struct making *m)
{
	char answer[16];

	if (m->request->yes || !isatty(STDIN_FILENO))
		return LARDER_DONE;
	fflush(stdout);
	fprintf(stderr, "Make it?  All that is on these devices will be lost. [y/N] ");
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: nothing was done", m->stack.name);
}

/* ------------------------------------------------------------------ the steps */

static void disk_uuid(const struct stack *stack, uint32_t number, uint8_t uuid[16])
{
	char part[32];

	snprintf(part, sizeof(part), "disk %u", number);
	stack_part(stack, part, uuid);
}

static int make_cache(struct making *m)
{
	struct cache_request request = { .name = m->stack.name, .label = m->stack.name, .paths = m->request->caches,
					 .claim = { .wipe = m->request->wipe, .yes = true, .discard_dirty = m->request->discard_dirty },
					 .uuid = m->stack.cache };
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	int result;

	if (!m->stack.own_cache) {
		free(list);
		result = start_cache(&m->stack, 0);
		return result ? result : stack_store(&m->stack);
	}
	m->stack.generation = 1;
	stack_list_put(list, &m->stack);
	stack_list_encode(list, field); /* check_room() has seen that it fits */
	free(list);
	request.stack = field;
	return cache_format(&request);
}

static int mark_disk(const struct making *m, uint32_t number)
{
	struct claim_request claim = { .path = m->request->disks.value[number], .wipe = m->request->wipe,
				       .discard_dirty = m->request->discard_dirty, .yes = true };
	struct device device;
	union superblock *sb;
	int result = claim_open(&device, &claim);

	if (result)
		return result;
	result = claim_clear(&device, &claim);
	if (!result) {
		sb = device_buffer(LARDER_SB_SIZE);
		create_head(&sb->head, LARDER_KIND_OTHER, &device, 0);
		disk_uuid(&m->stack, number, sb->head.uuid);
		result = create_superblock(&device, sb, false);
		free(sb);
	}
	device_close(&device);
	return result;
}

/* Paths of the disks, by their marks or, where mdadm was cut short, by its superblocks.  The caller frees them. */
static int find_disks(const struct stack *stack, char *paths[MD_LEGS_MAX], unsigned *number)
{
	struct md_array array = { 0 };
	struct members members;
	uint8_t uuid[16];

	*number = 0;
	members_scan(&members);
	for (uint32_t i = 0; i < stack->legs; i++) {
		disk_uuid(stack, i, uuid);
		for (size_t j = 0; j < members.number; j++)
			if (!memcmp(members.member[j]->sb.head.uuid, uuid, 16) && *number < MD_LEGS_MAX)
				paths[(*number)++] = must_print("%s", members.member[j]->path);
	}
	members_free(&members);
	if (*stack->raid) {
		stack_part(stack, "md", uuid);
		md_find(uuid, &array);
	}
	for (size_t i = 0; i < array.number && *number < MD_LEGS_MAX; i++)
		paths[(*number)++] = must_print("%s", array.leg[i]);
	md_free(&array);
	if (*number == stack->legs)
		return LARDER_DONE;
	for (unsigned i = 0; i < *number; i++)
		free(paths[i]);
	return complain(LARDER_NOT_FOUND,
			"%s: %u of its %u disks are found with its mark; attach the others, or larder remove %s and create it anew",
			stack->name, *number, stack->legs, stack->name);
}

static int make_disks(struct making *m)
{
	int result = LARDER_DONE;

	if (m->request->resume) {
		char *paths[MD_LEGS_MAX];
		unsigned number;

		/* what was cut short may be the note alone; a disk without a mark could be any disk */
		result = find_disks(&m->stack, paths, &number);
		for (unsigned i = 0; !result && i < number; i++)
			free(paths[i]);
		return result;
	}
	for (uint32_t i = 0; !result && i < m->stack.legs; i++)
		result = mark_disk(m, i);
	return result;
}

static int make_array(struct making *m)
{
	char *paths[MD_LEGS_MAX];
	uint8_t uuid[16];
	unsigned number;
	int result;

	if (!*m->stack.raid)
		return LARDER_DONE;
	/* of an array that was cut short, or of which the note was */
	result = stop_array(&m->stack);
	result = result ? result : find_disks(&m->stack, paths, &number);
	if (result)
		return result;
	stack_part(&m->stack, "md", uuid);
	result = md_create(uuid, m->stack.raid, (const char *const *)paths, number);
	for (unsigned i = 0; i < number; i++)
		free(paths[i]);
	return result;
}

/* Node of the array, or of the one disk; the caller frees it.  NULL: it has complained. */
static char *backing_path(const struct stack *stack)
{
	char *paths[MD_LEGS_MAX], *path = NULL;
	struct md_array array;
	uint8_t uuid[16];
	unsigned number;

	if (!*stack->raid)
		return find_disks(stack, paths, &number) ? NULL : paths[0];
	stack_part(stack, "md", uuid);
	md_find(uuid, &array);
	if (*array.node)
		path = must_print("%s", array.node);
	else
		complain(LARDER_NOT_FOUND, "%s: its array does not run", stack->name);
	md_free(&array);
	return path;
}

static int make_volume(struct making *m)
{
	uint8_t uuid[16], field[LARDER_STACK_SIZE];
	struct stack noted = m->stack;
	struct stacks stacks;
	char cache[UUID_TEXT];
	struct volume_request request = {
		.name = m->stack.name,
		.label = m->stack.name,
		.cache = uuid_text(m->stack.cache, cache),
		.layout = { .data_offset = LARDER_DEF_DATA_OFFSET, .tail_reserve = LARDER_DEF_TAIL_RESERVE },
		.claim = { .wipe = true, .yes = true },
		.uuid = uuid,
		.stack = field,
	};
	bool there;
	int result = stacks_scan(&stacks);

	stack_part(&m->stack, "volume", uuid);
	there = !result && member_volume(&stacks.members, uuid);
	if (!result)
		stacks_free(&stacks);
	if (result || there) /* what was cut short is the note that it is there */
		return result;
	request.path = backing_path(&m->stack);
	if (!request.path)
		return LARDER_NOT_FOUND;
	mode_parse(m->stack.mode, &request.mode);
	noted.step = STEP_VOLUME;
	stack_encode(&noted, field);
	request.claim.path = request.path;
	result = volume_format(&request);
	free((char *)request.path);
	return result;
}

static int make_crypt(struct making *m)
{
	uint8_t uuid[16];
	char *node;
	int result;

	if (!m->stack.encrypted)
		return LARDER_DONE;
	/* of one that was cut short behind its end */
	result = stop_crypt(&m->stack);
	if (result)
		return result;
	stack_part(&m->stack, "crypt", uuid);
	node = mapper_path(m->stack.name);
	result = luks_make(node, uuid, (unsigned)m->request->iteration_ms, &m->secret);
	free(node);
	return result;
}

/* The words of mkfs, and those of --mkfs-options between them. */
static int run_mkfs(const struct stack *stack, const char *device)
{
	const char *words[STACK_PATH_MAX / 2 + 16];
	char uuid[UUID_TEXT], *program = must_print("mkfs.%s", stack->fs), *option, *further = must_print("%s", stack->mkfs), *rest = further,
	     *word, *said;
	uint8_t part[16];
	unsigned n = 0;
	int code;

	stack_part(stack, "fs", part);
	uuid_text(part, uuid);
	option = must_print("uuid=%s", uuid);
	words[n++] = program;
	words[n++] = "-q";
	words[n++] = strcmp(stack->fs, "ext4") ? "-f" : "-F";
	words[n++] = strcmp(stack->fs, "xfs") ? "-U" : "-m";
	words[n++] = strcmp(stack->fs, "xfs") ? uuid : option;
	if (*stack->label) {
		words[n++] = "-L";
		words[n++] = stack->label;
	}
	while ((word = strsep(&rest, " ")))
		if (*word)
			words[n++] = word;
	words[n++] = device;
	words[n] = NULL;
	code = program_run(words, &said);
	if (code)
		complain(LARDER_FAILED, "%s: %s failed: %s", device, program, said);
	free(said);
	free(further);
	free(option);
	free(program);
	return code ? LARDER_FAILED : LARDER_DONE;
}

static int make_filesystem(struct making *m)
{
	char *name, *node;
	int result = start_crypt(&m->stack, &m->secret);

	if (result || !*m->stack.fs)
		return result;
	name = m->stack.encrypted ? crypt_name(&m->stack) : must_print("%s", m->stack.name);
	node = mapper_path(name);
	result = run_mkfs(&m->stack, node);
	free(node);
	free(name);
	return result;
}

static int make_mount(struct making *m)
{
	char *name, *node;
	int result = start_crypt(&m->stack, &m->secret);

	if (result || !*m->stack.mount)
		return result;
	name = m->stack.encrypted ? crypt_name(&m->stack) : must_print("%s", m->stack.name);
	node = mapper_path(name);
	result = fstab_set(m->stack.uuid, node, m->stack.mount, m->stack.fs);
	free(node);
	free(name);
	return result ? result : start_mount(&m->stack);
}

/* Those that the next steps stand on; started by hand, or not, since the step before. */
static int start_below(struct making *m, enum stack_step next)
{
	int result = next > STEP_NONE ? start_cache(&m->stack, 0) : LARDER_DONE;

	if (!result && next > STEP_ARRAY)
		result = start_array(&m->stack, 0);
	if (!result && next > STEP_VOLUME)
		result = start_volume(&m->stack);
	return result;
}

static const struct {
	const char *text;
	int (*make)(struct making *m);
} steps[NR_STEPS] = {
	[STEP_NONE] = { "the cache, with the description", make_cache },
	[STEP_DISKS] = { "the disks are cleared and marked", make_disks },
	[STEP_ARRAY] = { "the array", make_array },
	[STEP_VOLUME] = { "the volume", make_volume },
	[STEP_CRYPT] = { "the encryption", make_crypt },
	[STEP_FILESYSTEM] = { "the filesystem", make_filesystem },
	[STEP_MOUNT] = { "the mount", make_mount },
};

static bool step_is_empty(const struct stack *stack, enum stack_step step)
{
	return (step == STEP_ARRAY && !*stack->raid) || (step == STEP_CRYPT && !stack->encrypted) ||
	       (step == STEP_FILESYSTEM && !*stack->fs) || (step == STEP_MOUNT && !*stack->mount);
}

static int make(struct making *m, enum stack_step from)
{
	int result = LARDER_DONE;

	for (enum stack_step step = from; !result && step < NR_STEPS; step++) {
		if (!step_is_empty(&m->stack, step)) {
			printf("%s: %s\n", m->stack.name, steps[step].text);
			fflush(stdout);
		}
		result = start_below(m, step);
		result = result ? result : steps[step].make(m);
		m->stack.step = result ? m->stack.step : step;
		if (!result && step > STEP_NONE && step < STEP_MOUNT)
			result = stack_store(&m->stack);
	}
	if (!result) {
		m->stack.state = STACK_READY;
		result = stack_store(&m->stack);
	}
	if (result)
		remark("%s: is half made; larder create --resume %s goes on, larder remove %s takes it away", m->stack.name, m->stack.name,
		       m->stack.name);
	else
		printf("%s: ready%s%s\n", m->stack.name, *m->stack.mount ? ", mounted on " : "", m->stack.mount);
	return result;
}

static int get_secret(struct making *m, bool twice)
{
	return m->stack.encrypted ? secret_read(m->stack.keyfile, m->stack.name, twice, &m->secret) : LARDER_DONE;
}

static int create_new(const struct request *request)
{
	struct making m = { .request = request };
	int result = parse(request, &m.stack);

	result = result ? result : plan(&m);
	if (result)
		return result;
	show_plan(&m);
	if (request->dry_run) {
		puts("dry run: nothing was written");
		return LARDER_DONE;
	}
	result = confirm(&m);
	result = result ? result : get_secret(&m, true);
	result = result ? result : make(&m, STEP_NONE);
	secret_free(&m.secret);
	return result;
}

static int resume(const struct request *request)
{
	struct making m = { .request = request };
	const struct found *found;
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	result = result ? result : stack_find(&stacks, request->name, &found);
	if (!result) {
		m.stack = found->stack;
		if (m.stack.state == STACK_REMOVING)
			result = complain(LARDER_UNSAFE, "%s: is being removed; larder remove %s", m.stack.name, m.stack.name);
		else if (m.stack.state == STACK_READY)
			result = complain(LARDER_UNSAFE, "%s: is ready; larder start %s", m.stack.name, m.stack.name);
	}
	stacks_free(&stacks);
	result = result ? result : get_secret(&m, m.stack.step < STEP_CRYPT);
	result = result ? result : make(&m, m.stack.step + 1);
	secret_free(&m.secret);
	return result;
}

int stack_create(int argc, char **argv)
{
	static const char usage[] =
		"larder create NAME --backing DISK... [--raid LEVEL] --cache SSD...|CACHE [--mode MODE] [--class CLASS] [--encrypt luks2[:KEY]] "
		"[--mkfs TYPE] [--label TEXT] [--mount DIR] [--wipe] [--dry-run] [--yes] | larder create --resume NAME";
	struct request request = { 0 };
	const struct argument arguments[] = {
		{ "backing", 'b', ARGUMENT_LIST, &request.disks, "DISK", "a disk; once for each" },
		{ "raid", 0, ARGUMENT_TEXT, &request.raid, "LEVEL", "none (one disk), 0, 1, 10, 5, 6: an md array of the disks" },
		{ "cache", 'c', ARGUMENT_LIST, &request.caches, "SSD|CACHE", "an SSD (its path), once for each; or the name of a cache" },
		{ "mode", 'm', ARGUMENT_TEXT, &request.mode, "MODE",
		  "writeback (default, with two SSDs), writethrough (with one), writearound" },
		{ "class", 0, ARGUMENT_TEXT, &request.class, "CLASS", "what is to be cached: a preset, see docs/interface.md" },
		{ "encrypt", 'e', ARGUMENT_TEXT, &request.encrypt, "HOW", "luks2, luks2:passphrase or luks2:keyfile=FILE" },
		{ "iter-time", 0, ARGUMENT_SIZE, &request.iteration_ms, "MS", "what a guess of the passphrase costs, as with cryptsetup" },
		{ "mkfs", 0, ARGUMENT_TEXT, &request.mkfs, "TYPE", "ext4, xfs or btrfs" },
		{ "mkfs-options", 0, ARGUMENT_TEXT, &request.mkfs_options, "WORDS", "further words for mkfs" },
		{ "label", 'L', ARGUMENT_TEXT, &request.label, "TEXT", "label of the filesystem" },
		{ "mount", 0, ARGUMENT_TEXT, &request.mount, "DIR", "mount it there, now and at every boot" },
		{ "wipe", 'W', ARGUMENT_FLAG, &request.wipe, NULL, "remove what is on the devices" },
		{ "discard-dirty", 0, ARGUMENT_TEXT, &request.discard_dirty, "UUID",
		  "also if this cache's or volume's dirty data is LOST" },
		{ "resume", 0, ARGUMENT_FLAG, &request.resume, NULL, "go on with a stack that is half made" },
		{ "dry-run", 'n', ARGUMENT_FLAG, &request.dry_run, NULL, "only say what would be done" },
		{ "yes", 'y', ARGUMENT_FLAG, &request.yes, NULL, "don't ask" },
		ARGUMENTS_END
	};
	int first, result;

	secrets_protect();
	if (!arguments_words(argc, argv, usage, arguments, 1, 1, &first, &result))
		return result;
	request.name = argv[first];
	mapped_init(false);
	if (!request.resume)
		return create_new(&request);
	if (request.disks.number || request.caches.number || request.dry_run)
		return complain(LARDER_USAGE, "--resume: takes the name alone; the rest is in the description");
	return resume(&request);
}
