// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * larder create, before the first write: the words, the devices, what will be done.
 *
 * Whatever can be refused is refused here, so that what fails later has failed for a reason that nobody could know.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "create.h"
#include "fstab.h"
#include "integrity.h"
#include "program.h"
#include "set.h"
#include "stack_names.h"
#include "stack_plan.h"
#include "stack_room.h"
#include "stack_store.h"
#include "stacks.h"
#include "turn.h"

#define STATE	   "/var/lib/larder"
#define TAGS_LEAST (4u << 20) /* of dm-integrity's journal and tags on a small volume */

static const struct size_format human = { 'h', true };

/* ------------------------------------------------------------------ the words */

#define ENCRYPT_WORDS "luks2 or luks2-aead, each alone or with :passphrase, :keyfile=FILE, :tpm2 or :tang=URL"

/* By which cipher.  ChaCha20-Poly1305, as a nonce that comes twice, by chance, gives away less with it: docs/design.md 11. */
static int parse_cipher(const struct stack_request *request, struct stack *stack, bool aead)
{
	const char *cipher = request->cipher ? request->cipher : aead ? "chacha20-poly1305" : "";

	if (request->cipher && !aead)
		return complain(LARDER_USAGE, "--cipher: is for --encrypt luks2-aead");
	if (*cipher && !stack_aead_valid(cipher))
		return complain(LARDER_USAGE, "--cipher: '%s' is not one of chacha20-poly1305, aes-gcm, aes-xts-hmac", cipher);
	strcpy(stack->aead, cipher);
	return LARDER_DONE;
}

/* It is a second key: a passphrase is asked for as well, or what is lost with the TPM2 or the server would be all. */
static int parse_token(const char *text, struct stack *stack)
{
	struct token token;
	const char *why = token_parse(text, &token);

	if (why)
		return complain(LARDER_USAGE, "--encrypt: '%s' %s", text, why);
	strcpy(stack->token, text);
	return LARDER_DONE;
}

int stack_parse_keyfile(struct stack *stack, const char *option, const char *path)
{
	char *full = realpath(path, NULL);

	if (!full)
		return complain(LARDER_NOT_FOUND, "%s: %s: no such key file", option, path);
	if (!stack_text_valid(full, true)) {
		free(full);
		return complain(LARDER_USAGE, "%s: the path of the key file is too long, or not printable", option);
	}
	strcpy(stack->keyfile, full);
	free(full);
	return LARDER_DONE;
}

int stack_check_keyfile(const struct stack *stack, const char *option)
{
	size_t length = strlen(stack->mount);

	if (!*stack->keyfile || !length || strncmp(stack->keyfile, stack->mount, length) ||
	    (stack->mount[length - 1] != '/' && stack->keyfile[length] != '/'))
		return LARDER_DONE;
	return complain(LARDER_USAGE, "%s: %s: the key file would lie behind the mount that it opens", option, stack->keyfile);
}

static int parse_encrypt(const struct stack_request *request, struct stack *stack)
{
	const char *how = request->encrypt, *by;
	bool aead;
	int result;

	if (!how)
		return parse_cipher(request, stack, false);
	by = how + strcspn(how, ":");
	aead = by - how == 10 && !strncmp(how, "luks2-aead", 10);
	if (!aead && (by - how != 5 || strncmp(how, "luks2", 5)))
		return complain(LARDER_USAGE, "--encrypt: '%s' is not " ENCRYPT_WORDS, how);
	stack->encrypted = true;
	if (parse_cipher(request, stack, aead))
		return LARDER_USAGE;
	if (!*by || !strcmp(by, ":passphrase"))
		return LARDER_DONE;
	if (!strncmp(by, ":tpm2", 5) || !strncmp(by, ":tang", 5))
		return parse_token(by + 1, stack);
	if (strncmp(by, ":keyfile=", 9))
		return complain(LARDER_USAGE, "--encrypt: what follows the : is passphrase (it is asked for), keyfile=FILE, " TOKEN_GRAMMAR);
	result = stack_parse_keyfile(stack, "--encrypt", by + 9);
	return result ? result : stack_check_keyfile(stack, "--encrypt");
}

char *stack_backup_path(const struct stack *stack, const char *word)
{
	char text[UUID_TEXT];

	if (!stack->encrypted || (word && !strcmp(word, "none")))
		return NULL;
	return word ? must_print("%s", word) : must_print(STATE "/%s.luks-header", uuid_text(stack->uuid, text));
}

int stack_check_backup_file(const struct stack *stack, const char *path)
{
	struct stat status;
	uint8_t part[16];

	stack_part(stack, "crypt", part);
	if (lstat(path, &status) || (!stat(path, &status) && S_ISREG(status.st_mode) && luks_backup_is_of(path, part)))
		return LARDER_DONE;
	return complain(LARDER_USAGE, "--header-backup: %s: is there already, and no backup of the LUKS header of %s; give another name",
			path, stack->name);
}

int stack_check_backup(const struct stack *stack, const char *word)
{
	char *path = stack_backup_path(stack, word), *parent = must_print("%s", word && strchr(word, '/') ? word : STATE "/");
	int result = LARDER_DONE;

	if (word && !stack->encrypted)
		result = complain(LARDER_USAGE, "--header-backup: is for --encrypt");
	else if (word && path && *word != '/')
		result = complain(LARDER_USAGE, "--header-backup: '%s' is not none, nor an absolute path", word);
	else if (path)
		result = stack_check_backup_file(stack, path);
	if (!word && path)
		mkdir(STATE, 0700);
	parent[strrchr(parent, '/') - parent + 1] = 0;
	if (!result && path && access(parent, W_OK))
		result = complain(LARDER_FAILED, "--header-backup: %s: %s; give another file, or none", parent, strerror(errno));
	free(parent);
	free(path);
	return result;
}

/* Each disk is a stack of its own, up to the encryption: one filesystem over them is made when they are there. */
static int parse_separate(const struct stack_request *request, struct stack *stack)
{
	int number = request->disks.number;
	char last[24];

	if (number < 2)
		return complain(LARDER_USAGE, "--separate: makes a volume of each disk, and %s given; leave it out", number ? "one is" : "none is");
	if (request->raid && strcmp(request->raid, "none"))
		return complain(LARDER_USAGE, "--separate: each disk is a volume of its own, and --raid %s makes one of all; leave one of them out", request->raid);
	if (request->mkfs || request->mount || request->label || request->mkfs_options)
		return complain(LARDER_USAGE,
				"--separate: goes without --mkfs, --mount and --label; make the filesystem over the volumes once they are there, as by mkfs.btrfs -d raid1 -m raid1");
	if (request->header_backup && strcmp(request->header_backup, "none"))
		return complain(LARDER_USAGE, "--header-backup: with --separate there is a header for each volume; leave it out (each has a file below " STATE
					      "), or none");
	if (strlen(request->name) + (size_t)snprintf(last, sizeof(last), "-%d", number) > LARDER_LABEL_SIZE)
		return complain(LARDER_USAGE, "%s: NAME: is too long: the last volume would be called %s%s", request->name, request->name, last);
	stack->legs = 1;
	stack->next = (uint32_t)number - 1;
	snprintf(stack->name, sizeof(stack->name), "%s-1", request->name);
	return LARDER_DONE;
}

int stack_parse_label(struct stack *stack, const char *text)
{
	if (!device_label_valid(text))
		return complain(LARDER_USAGE, "--backing-label: '%s' is not " DEVICE_LABEL_WORDS, text);
	strcpy(stack->disks, text);
	return LARDER_DONE;
}

static int parse_labels(const struct stack_request *request, struct stack *stack)
{
	const struct argument_list *caches = &request->caches;
	struct tier_set ignored;

	if (request->tiers.disks && stack_parse_label(stack, request->tiers.disks))
		return LARDER_USAGE;
	if (request->tiers.labels.number && caches->number == 1 && !strchr(caches->value[0], '/'))
		return complain(LARDER_USAGE, "--cache-label: is for a cache that is made; larder cache label %s SSD LABEL is for one that is there", caches->value[0]);
	return tiers_new_set(&request->tiers.labels, caches->number, &ignored);
}

static int parse_raid(const struct stack_request *request, struct stack *stack)
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
		return complain(LARDER_USAGE, "--raid: is missing: %d disks; say 1 (mirrors), 10, 5, 6 or 0 (no redundancy), or --separate (a volume of each)",
				request->disks.number);
	if (!stack_raid_valid(raid))
		return complain(LARDER_USAGE, "--raid: '%s' is not one of none, 0, 1, 10, 5, 6", raid);
	least = md_legs_min(raid);
	if ((unsigned)request->disks.number < least)
		return complain(LARDER_USAGE, "--raid: %s needs at least %u disks, %d are given", raid, least, request->disks.number);
	strcpy(stack->raid, raid);
	return LARDER_DONE;
}

static int parse_integrity(const struct stack_request *request, struct stack *stack)
{
	if (!request->integrity)
		return LARDER_DONE;
	if (request->separate || !*stack->raid || !strcmp(stack->raid, "0"))
		return complain(LARDER_USAGE,
				"--integrity: what a disk returns wrong can be repaired from the others alone, and there is no redundancy here; --raid 1, 10, 5 or 6 has it");
	strcpy(stack->integrity, INTEGRITY_ALGORITHM);
	return LARDER_DONE;
}

static int parse_spares(const struct stack_request *request, struct stack *stack)
{
	int number = request->spares.number;

	if (request->cache_spares.number && request->caches.number == 1 && !strchr(request->caches.value[0], '/'))
		return complain(LARDER_USAGE, "--cache-spare: is for a cache that is made; larder cache add %s %s --spare is for one that is there",
				request->caches.value[0], request->cache_spares.value[0]);
	if (!number)
		return LARDER_DONE;
	if (!*stack->raid || !strcmp(stack->raid, "0"))
		return complain(LARDER_USAGE, "--spare: %s: no array with redundancy is made that a spare could serve; --raid 1, 10, 5 or 6 makes one",
				request->spares.value[0]);
	if (request->disks.number + number > MD_LEGS_MAX)
		return complain(LARDER_USAGE, "--spare: with %d disks and %d spares the array has more than %d", request->disks.number, number, MD_LEGS_MAX);
	stack->spares = (uint32_t)number;
	return LARDER_DONE;
}

int stack_parse_mount(struct stack *stack, const char *text)
{
	if (!stack_text_valid(text, true))
		return complain(LARDER_USAGE, "--mount: '%s' is not an absolute path, or too long", text);
	strcpy(stack->mount, text);
	return LARDER_DONE;
}

static int parse_filesystem(const struct stack_request *request, struct stack *stack)
{
	static const struct {
		const char *fs;
		size_t label;
	} most[] = { { "ext4", 16 }, { "xfs", 12 }, { "btrfs", LARDER_LABEL_SIZE } };

	if (request->essential && !request->mount)
		return complain(LARDER_USAGE, "--essential: is for --mount");
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
	return request->mount ? stack_parse_mount(stack, request->mount) : LARDER_DONE;
}

int stack_check_iteration(uint64_t ms)
{
	/* what cryptsetup takes: 32 bits */
	return ms > UINT32_MAX ? complain(LARDER_USAGE, "--iter-time: is at most %u milliseconds", UINT32_MAX) : LARDER_DONE;
}

int stack_parse_class(struct stack *stack, const char *text)
{
	if (!*text || strlen(text) >= sizeof(stack->class) || strpbrk(text, " \t\n\\"))
		return complain(LARDER_USAGE, "--class: is not one word, or too long; see docs/interface.md");
	strcpy(stack->class, text);
	return LARDER_DONE;
}

int stack_parse_mode(const char *text)
{
	uint32_t mode;

	return mode_parse(text, &mode) ? LARDER_DONE : complain(LARDER_USAGE, "--mode: '%s' is not one of writeback, writethrough, writearound", text);
}

int stack_parse(const struct stack_request *request, struct stack *stack)
{
	int result;

	if (!name_valid(request->name))
		return complain(LARDER_USAGE,
				"%s: NAME: must be 1 to 64 of A-Z a-z 0-9 # + . : = @ _ - and not begin with - or a dot", request->name);
	strcpy(stack->name, request->name);
	uuid_generate_random(stack->uuid);
	stack_host(stack->host);
	stack->state = STACK_CREATING;
	if (request->size != VOLUME_SIZE_ALL) {
		if (!request->size || request->size % LARDER_SLOT_SIZE || request->size > INT64_MAX)
			return complain(LARDER_USAGE, "--size: must be a multiple of 4096 bytes, and not 0: 100G, say");
		stack->size = request->size;
	}
	result = request->separate ? parse_separate(request, stack) : parse_raid(request, stack);
	result = result ? result : parse_integrity(request, stack);
	result = result ? result : parse_spares(request, stack);
	result = result ? result : parse_filesystem(request, stack);
	result = result ? result : parse_encrypt(request, stack);
	if (result)
		return result;
	if (stack_check_iteration(request->iteration_ms))
		return LARDER_USAGE;
	if (!request->caches.number)
		return complain(LARDER_USAGE, "--cache: is missing; give each SSD, or the name of a cache that is there");
	if (request->caches.number > (int)LARDER_MAX_DEVICES)
		return complain(LARDER_USAGE, "--cache: given %d times; a cache has at most %u SSDs", request->caches.number,
				LARDER_MAX_DEVICES);
	if (parse_labels(request, stack))
		return LARDER_USAGE;
	if (request->mode && stack_parse_mode(request->mode))
		return LARDER_USAGE;
	return request->class ? stack_parse_class(stack, request->class) : LARDER_DONE;
}

/* ------------------------------------------------------------------ the devices, looked at */

static int check_programs(const struct stack *stack, bool dry_run)
{
	char *mkfs = must_print("mkfs.%s", stack->fs);
	int result = LARDER_DONE;

	if (*stack->raid && !program_there("mdadm"))
		result = complain(LARDER_FAILED, "mdadm: is missing, and --raid needs it; apt install mdadm");
	else if (*stack->integrity && !dry_run && leg_check_kernel())
		result = LARDER_FAILED;
	else if (*stack->fs && !program_there(mkfs))
		result = complain(LARDER_FAILED, "%s: is missing; apt install %s", mkfs,
				  !strcmp(stack->fs, "ext4") ? "e2fsprogs" :
				  !strcmp(stack->fs, "xfs") ? "xfsprogs" :
							      "btrfs-progs");
	free(mkfs);
	return result;
}

int stack_check_token(struct making *m)
{
	const char *why = *m->stack.token ? token_parse(m->stack.token, &m->token) : NULL;
	int result = why ? complain(LARDER_FAILED, "%s: the key '%s' that its description has %s", m->stack.name, m->stack.token, why) : LARDER_DONE;
	bool held;

	if (result || !*m->stack.token)
		return result;
	held = turn_pause(); /* a server may take its time */
	result = token_check(&m->token, m->request->yes || m->request->dry_run);
	turn_resume(held);
	if (!result) {
		token_text(&m->token, m->stack.token);
		result = *m->stack.token ? LARDER_DONE : complain(LARDER_USAGE, "--encrypt: tang: the URL and the thumbprint of its key are too long");
	}
	return result;
}

int stack_check_mount(const struct stack *stack)
{
	struct stat here, above;
	char *parent, *other;
	int result = LARDER_DONE;

	if (!*stack->mount)
		return LARDER_DONE;
	parent = must_print("%s/..", stack->mount);
	other = fstab_other(stack->uuid, stack->mount);
	if (stat(stack->mount, &here))
		result = complain(LARDER_NOT_FOUND, "--mount: %s: no such directory; make it first", stack->mount);
	else if (!S_ISDIR(here.st_mode))
		result = complain(LARDER_USAGE, "--mount: %s: is not a directory", stack->mount);
	else if (stat(parent, &above) || above.st_dev != here.st_dev || above.st_ino == here.st_ino)
		result = complain(LARDER_BUSY, "--mount: %s: something is mounted there already", stack->mount);
	else if (other)
		result = complain(LARDER_BUSY, "--mount: %s: has a line in fstab already, which a boot would mount there (%s); take that out, or give another directory",
				  stack->mount, other);
	free(other);
	free(parent);
	return result;
}

/* The same device twice, also by another path, or one as a part of the other. */
static int check_twice(const char *const *paths, int number)
{
	for (int i = 0; i < number; i++)
		for (int j = 0; j < i; j++) {
			if (create_is_same(paths[i], paths[j]))
				return complain(LARDER_USAGE, "%s: is given twice (also as %s)", paths[i], paths[j]);
			if (create_is_partition(paths[i], paths[j]) || create_is_partition(paths[j], paths[i]))
				return complain(LARDER_USAGE, "%s and %s: one is a partition of the other", paths[i], paths[j]);
		}
	return LARDER_DONE;
}

/* One device: free, fit, without anything of value.  Changes nothing. */
struct looked {
	uint64_t bytes, room; /* room: of a volume alone on it */
	unsigned logical;
};

static uint64_t volume_room(const struct device *device)
{
	struct volume_layout layout = { .tail_reserve = LARDER_DEF_TAIL_RESERVE };
	struct device_topology topology;

	device_topology(device, &topology);
	layout.data_offset = volume_data_offset(&topology, device->bytes);
	return volume_layout(&layout, device->bytes, device->logical_block) ? 0 : layout.sectors << LARDER_SECTOR_SHIFT;
}

static int check_device(const struct making *m, const char *path, struct looked *looked)
{
	struct claim_request claim = { .path = path, .wipe = m->request->wipe, .discard_dirty = m->request->discard_dirty, .yes = true,
				       .dry_run = true };
	struct device device;
	int result = claim_open(&device, &claim);

	if (result)
		return result;
	*looked = (struct looked){ device.bytes, volume_room(&device), device.logical_block };
	if (!device.block && !m->request->dry_run)
		result = complain(LARDER_USAGE, "%s: is a regular file; make a block device of it with losetup", path);
	result = result ? result : claim_clear(&device, &claim);
	device_close(&device);
	return result;
}

/* layout: its size of segments, once chosen, is that of all.  behind: so many segments of others, of its cache. */
static int check_ssd(const struct making *m, const char *path, struct cache_layout *layout, uint32_t behind)
{
	struct looked looked;
	const char *why;
	int result = check_device(m, path, &looked);

	if (result)
		return result;
	why = cache_layout(layout, looked.bytes, looked.logical);
	why = why ? why : cache_layout_behind(layout, behind);
	return why ? complain(LARDER_FAILED, "%s: %s", path, why) : LARDER_DONE;
}

/* A spare is to be one of them. */
static int check_apart(const struct argument_list *members, const struct argument_list *spares, const char *what)
{
	const char *paths[2 * ARGUMENT_LIST_MAX];
	int number = 0;

	for (int i = 0; i < members->number; i++)
		paths[number++] = members->value[i];
	for (int i = 0; i < spares->number; i++)
		paths[number++] = spares->value[i];
	return create_check_apart(paths, number, what);
}

static int check_ssds(struct making *m)
{
	const struct argument_list *spares = &m->request->cache_spares;
	struct cache_layout layout = { 0 };
	uint32_t least = UINT32_MAX, sum = 0;
	int result = check_apart(&m->request->caches, spares, "SSD");

	for (int i = 0; !result && i < m->request->caches.number; i++) {
		result = check_ssd(m, m->request->caches.value[i], &layout, sum);
		sum += layout.nr_segments;
		least = layout.nr_segments < least ? layout.nr_segments : least;
	}
	for (int i = 0; !result && i < spares->number; i++) {
		result = check_ssd(m, spares->value[i], &layout, 0);
		if (!result && layout.nr_segments < least)
			result = complain(LARDER_FAILED,
					  "%s: size: has room for %u segments, the smallest SSD of the cache has %u: it could replace none; give a larger one",
					  spares->value[i], layout.nr_segments, least);
	}
	return result;
}

static uint64_t least_volume(const struct stack *stack)
{
	uint64_t fs = !strcmp(stack->fs, "xfs") ? 300u << 20 : !strcmp(stack->fs, "btrfs") ? 128u << 20 : 4u << 20;

	return LARDER_DEF_DATA_OFFSET + LARDER_DEF_TAIL_RESERVE + (stack->encrypted ? LUKS_HEADER : 0) +
	       (*stack->aead ? TAGS_LEAST : 0) + fs;
}

/* Where the volume goes has that much room for it, at least. */
static int check_size(const struct making *m, const char *where, uint64_t room)
{
	uint64_t least = least_volume(&m->stack) - LARDER_DEF_DATA_OFFSET - LARDER_DEF_TAIL_RESERVE;
	char a[SIZE_TEXT], b[SIZE_TEXT];

	if (!m->stack.size)
		return LARDER_DONE;
	size_print(a, m->stack.size, &human);
	if (m->stack.size < least)
		return complain(LARDER_USAGE, "--size: too small: it is %s, and this stack needs a volume of %s at least", a, size_print(b, least, &human));
	if (m->stack.size <= room)
		return LARDER_DONE;
	return complain(LARDER_FAILED, "%s: --size: %s are more than it has room for, %s (%" PRIu64 " bytes); give no more, or leave it out: the volume takes all then",
			where, a, size_print(b, room, &human), room);
}

static int check_separate(const struct making *m)
{
	const struct argument_list *disks = &m->request->disks;
	char a[SIZE_TEXT], b[SIZE_TEXT];
	int result = LARDER_DONE;

	for (int i = 0; !result && i < disks->number; i++) {
		if (m->disk_bytes[i] < least_volume(&m->stack))
			return complain(LARDER_FAILED, "%s: size: too small: it has %s, and a volume of its own needs %s", disks->value[i],
					size_print(a, m->disk_bytes[i], &human), size_print(b, least_volume(&m->stack), &human));
		result = check_size(m, disks->value[i], m->disk_room[i]);
	}
	return result;
}

/*
 * Of all the volume may have where it lies on an array, which is not there yet: its data begin behind a stripe, of chunks of 512 KiB, at most.  Not too
 * much, or it would be refused when all disks have been overwritten.
 */
static uint64_t array_room(const struct making *m, uint64_t all)
{
	uint64_t taken = LARDER_DEF_DATA_OFFSET + LARDER_DEF_TAIL_RESERVE + m->stack.legs * (uint64_t)MD_CHUNK;

	return (all > taken ? all - taken : 0) & ~(uint64_t)(LARDER_SLOT_SIZE - 1);
}

/* Each must be able to take the place of any disk: the array takes as much of each as the smallest has. */
static int check_spares(const struct making *m)
{
	uint64_t least = UINT64_MAX;
	char a[SIZE_TEXT], b[SIZE_TEXT];
	struct looked looked;
	int result = LARDER_DONE;

	for (int i = 0; i < m->request->disks.number; i++)
		least = m->disk_bytes[i] < least ? m->disk_bytes[i] : least;
	for (int i = 0; !result && i < m->request->spares.number; i++) {
		const char *path = m->request->spares.value[i];

		result = check_device(m, path, &looked);
		result = result ? result : create_check_block(path, looked.logical, m->block);
		if (!result && looked.bytes < least)
			result = complain(LARDER_FAILED, "%s: size: too small for a spare: it has %s, and the array takes %s of each disk", path,
					  size_print(a, looked.bytes, &human), size_print(b, least, &human));
	}
	return result;
}

/* Bytes for the volume, about. */
static uint64_t usable(struct making *m)
{
	uint64_t bytes[MD_LEGS_MAX];

	for (uint32_t i = 0; i < m->stack.legs; i++)
		bytes[i] = *m->stack.integrity ? leg_capacity(m->disk_bytes[i]) : m->disk_bytes[i];
	return *m->stack.raid ? md_capacity(m->stack.raid, bytes, m->stack.legs, &m->unused) : bytes[0];
}

static int check_disks(struct making *m)
{
	const struct argument_list *disks = &m->request->disks;
	char a[SIZE_TEXT], b[SIZE_TEXT];
	struct looked looked = { 0 };
	uint64_t all;
	int result = *m->stack.raid && strcmp(m->stack.raid, "0") ? check_apart(disks, &m->request->spares, "disk") : LARDER_DONE;

	m->block = *m->stack.integrity ? LEG_BLOCK : 0;
	for (int i = 0; !result && i < disks->number; i++) {
		result = check_device(m, disks->value[i], &looked);
		m->disk_bytes[i] = looked.bytes;
		m->disk_room[i] = looked.room;
		m->block = looked.logical > m->block ? looked.logical : m->block;
	}
	if (result || m->request->separate)
		return result ? result : check_separate(m);
	all = usable(m);
	if (all >= least_volume(&m->stack))
		return *m->stack.raid ? check_size(m, "--raid", array_room(m, all)) : check_size(m, disks->value[0], m->disk_room[0]);
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
	int result = stack_named_cache(stacks, name, &member);

	if (result)
		return result;
	memcpy(m->stack.cache, member->sb.cache.cache_uuid, 16);
	m->ssds = le32toh(member->sb.cache.nr_devices);
	label_text(member->sb.cache.label, m->cache_label);
	return LARDER_DONE;
}

static int check_names(const struct making *m, const struct stacks *stacks)
{
	struct stack stack = m->stack;
	int result;

	do
		result = stack_check_names(stacks, &stack, stack.own_cache ? m->request->name : NULL, "NAME");
	while (!result && stack_next(&stack, &stack));
	return result;
}

/* What is known of the SSDs, and what is asked of them. */
static int check_tiers(struct making *m, const struct stacks *stacks)
{
	const struct tiers_request *asked = &m->request->tiers;
	struct larder_table *table = must_allocate(malloc(sizeof(*table)));
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	char uuid[UUID_TEXT];
	int result = LARDER_DONE;

	if (m->stack.own_cache) {
		result = tiers_new_set(&asked->labels, m->request->caches.number, &m->set);
	} else {
		result = stack_list_read(m->stack.cache, list);
		if (!result && !set_newest_table(&stacks->members, m->stack.cache, table))
			result = complain(LARDER_FAILED, "%s: table: none of its SSDs has one that can be read", uuid_text(m->stack.cache, uuid));
		if (!result)
			tiers_of_table(table, list, &m->set);
	}
	if (!result && tiers_wanted(asked))
		result = tiers_plan(asked, m->request->mode, m->stack.own_cache, &m->set, &m->stack);
	free(list);
	free(table);
	return result;
}

/* The others of a cache that is there are to have room to be removed, too, beside those that are made. */
static int check_room_of_others(const struct making *m, struct stack_list *list)
{
	struct stacks stacks;
	const char *whose;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	for (size_t i = 0; i < list->number; i++)
		if (!list->brief[i] && (stack_is_one_of(&list->stack[i], m->request->name) || !strcmp(list->stack[i].name, m->request->name)))
			list->stack[i].state = STACK_READY;
	whose = stack_list_lacks_room(&stacks, m->stack.cache, list);
	if (whose)
		result = complain(LARDER_FAILED, "%s: with it the list of stacks on the SSDs of its cache, of 2 KiB, has no room to remove %s some day; a shorter name, or another cache",
				  m->request->name, whose);
	stacks_free(&stacks);
	return result;
}

/* Fits the longest that the description may become into both fields? */
static int check_room(const struct making *m)
{
	struct stack_list *list = must_allocate(calloc(1, sizeof(*list)));
	uint8_t field[LARDER_STACK_SIZE];
	struct stack stack = m->stack, longest;
	int result = LARDER_DONE;
	const char *why = NULL;

	memcpy(list->label, m->set.label, sizeof(list->label));
	if (!m->stack.own_cache)
		result = stack_list_read(m->stack.cache, list);
	do {
		longest = stack;
		longest.generation = 1000000;
		longest.step = STEP_MOUNT;
		longest.wiped = *longest.aead ? INT64_MAX : 0;
		/* of those that are made one behind the other two are in the making at most */
		longest.state = stack.next > 1 ? STACK_READY : STACK_REMOVING;
		if (!result && !stack_list_put(list, &longest))
			why = "its cache has the most stacks that it can have";
	} while (stack_next(&stack, &stack));
	if (!result && !why)
		why = stack_list_encode(list, field);
	if (!result && why)
		result = complain(LARDER_FAILED, "%s: %s; %s, or another cache", m->request->name, why,
				  m->request->separate ? "fewer disks at once" : "shorter paths");
	if (!result && !m->stack.own_cache)
		result = check_room_of_others(m, list);
	free(list);
	return result;
}

static void choose_mode(struct making *m)
{
	const char *asked = *m->stack.mode ? m->stack.mode : m->request->mode; /* by --foreground, or in words */
	const char *mode = asked ? asked : m->ssds > 1 ? "writeback" : "writethrough";

	memmove(m->stack.mode, mode, strlen(mode) + 1);
	if (!asked && m->ssds < 2)
		printf("mode writethrough: there is one SSD, and in writeback its loss would be that of the newest data\n");
	else if (asked && m->ssds < 2 && !strcmp(mode, "writeback"))
		printf("RISK: mode writeback on a single SSD: if it is lost, so is what was not yet written back\n");
}

int stack_plan(struct making *m)
{
	const struct stack_request *r = m->request;
	const char *paths[4 * ARGUMENT_LIST_MAX];
	struct stacks stacks;
	int number = 0, result;

	result = stacks_scan(&stacks);
	if (r->caches.number > 1 || strchr(r->caches.value[0], '/'))
		m->stack.own_cache = r->separate ? OWN_TOGETHER : OWN_CACHE;
	for (int i = 0; i < r->disks.number; i++)
		paths[number++] = r->disks.value[i];
	for (int i = 0; i < r->spares.number; i++)
		paths[number++] = r->spares.value[i];
	for (int i = 0; i < r->cache_spares.number; i++)
		paths[number++] = r->cache_spares.value[i];
	for (int i = 0; m->stack.own_cache && i < r->caches.number; i++)
		paths[number++] = r->caches.value[i];
	result = result ? result : check_names(m, &stacks);
	result = result ? result : check_twice(paths, number);
	if (!result && m->stack.own_cache) {
		uuid_generate_random(m->stack.cache);
		m->ssds = (uint32_t)r->caches.number;
		strcpy(m->cache_label, r->name);
	} else if (!result) {
		result = find_cache(m, &stacks);
	}
	result = result ? result : check_tiers(m, &stacks);
	stacks_free(&stacks);
	result = result ? result : check_programs(&m->stack, r->dry_run);
	result = result ? result : stack_check_token(m);
	if (!result && !r->dry_run)
		result = stack_check_backup(&m->stack, r->header_backup);
	result = result ? result : stack_check_mount(&m->stack);
	result = result ? result : check_disks(m);
	result = result ? result : check_spares(m);
	if (!result && m->stack.own_cache)
		result = check_ssds(m);
	if (!result)
		choose_mode(m);
	return result ? result : check_room(m);
}

int stack_plan_again(const struct making *m)
{
	struct stacks stacks;
	int result = stacks_scan(&stacks);

	if (result)
		return result;
	result = check_names(m, &stacks);
	stacks_free(&stacks);
	result = result ? result : stack_check_backup(&m->stack, m->request->header_backup);
	result = result ? result : stack_check_mount(&m->stack);
	return result ? result : check_room(m);
}

/* ------------------------------------------------------------------ what will be done */

static void show_list(const struct argument_list *list)
{
	for (int i = 0; i < list->number; i++)
		printf("%s%s", i ? ", " : " ", list->value[i]);
}

static void show_disks(const char *what, const struct argument_list *disks)
{
	if (!disks->number)
		return;
	printf("  %s:", what);
	show_list(disks);
	printf(", to be overwritten\n");
}

static void show_tiers(const struct making *m)
{
	char text[TIER_TEXT];

	for (uint32_t i = 0; i < m->set.number; i++)
		if (m->set.there[i])
			printf("  SSD %u: label %s, role %s\n", i, *m->set.label[i] ? m->set.label[i] : "-", role_text(m->set.role[i]));
	printf("  foreground: %s\n", tiers_foreground(&m->set, &m->stack, text));
	printf("  promote: %s\n", tiers_promote(&m->set, &m->stack, text));
	printf("  background: %s\n", tiers_background(&m->stack));
}

/* Of the smallest disk, which the others follow. */
static void show_integrity(const struct making *m)
{
	uint64_t least = UINT64_MAX;
	char a[SIZE_TEXT], b[SIZE_TEXT];

	for (uint32_t i = 0; i < m->stack.legs; i++)
		least = m->disk_bytes[i] < least ? m->disk_bytes[i] : least;
	printf("  integrity: %s of each 4 KiB by dm-integrity below each disk of the array, with a journal: they take %s of %s; each write goes to a disk twice; "
	       "what was there before is checked once the kernel has computed its sums, in the background\n",
	       m->stack.integrity, size_print(a, least - leg_capacity(least), &human), size_print(b, least, &human));
}

static void show_array(const struct making *m)
{
	const struct stack *s = &m->stack;
	const struct stack_request *r = m->request;
	bool volatile_cache = *s->integrity || md_has_volatile_cache(r->disks.value, (unsigned)r->disks.number) ||
			      md_has_volatile_cache(r->spares.value, (unsigned)r->spares.number);
	const char *keeps = md_consistency(s->raid, volatile_cache);

	printf("  array: RAID %s of %u disks, metadata 1.2%s%s\n", s->raid, s->legs, *keeps ? ", " : "", keeps);
	if (md_has_write_hole(s->raid, volatile_cache))
		printf("  parity: has no log: cut off while it is written to, and short of a disk, the array may compute wrong data (start --accept-write-hole); RAID 1 "
		       "and 10 do not, nor 5 on disks whose write caches are off%s\n",
		       *s->integrity ? ", without dm-integrity" : "");
}

void stack_show_plan(const struct making *m)
{
	const struct stack *s = &m->stack;
	char a[SIZE_TEXT], uuid[UUID_TEXT], *backup = stack_backup_path(s, m->request->header_backup),
			*token = *s->token ? token_describe(&m->token) : must_print("%s", "");
	struct stack one = *s;
	int number = 0;

	if (m->request->separate)
		printf("%u stacks of one cache, each a disk:\n", s->next + 1);
	else
		printf("stack %s, UUID %s:\n", s->name, uuid_text(s->uuid, uuid));
	printf("  cache:");
	if (s->own_cache)
		show_list(&m->request->caches);
	printf("%s %s, %u SSD%s%s\n", s->own_cache ? ", to be formatted as" : " that of the name", m->cache_label, m->ssds,
	       m->ssds == 1 ? "" : "s", m->ssds > 1 && !strcmp(s->mode, "writeback") ? ", dirty data on two of them" : "");
	if (m->request->separate)
		do
			printf("  stack %s: %s, to be overwritten; UUID %s\n", one.name, m->request->disks.value[number++], uuid_text(one.uuid, uuid));
		while (stack_next(&one, &one));
	else
		show_disks("disks", &m->request->disks);
	show_disks("spares of the array", &m->request->spares);
	show_disks("spares of the cache", &m->request->cache_spares);
	if (*s->raid)
		show_array(m);
	if (*s->integrity)
		show_integrity(m);
	if (m->unused)
		printf("  unused: %s, as the disks are of unequal size\n", size_print(a, m->unused, &human));
	printf("  volume: %s%s%s, mode %s%s%s\n", m->request->separate ? "one on each" : s->name, s->size ? ", " : "",
	       s->size ? size_print(a, s->size, &human) : "", s->mode, *s->class ? ", class " : "", s->class);
	if (s->size)
		printf("  free: the rest of %s%s\n", *s->raid ? "the array" : m->request->separate ? "each disk" : "the disk",
		       *s->aead ? "; a stack with tags cannot grow into it" : "; larder resize takes it");
	if (tiers_wanted(&m->request->tiers) || m->request->tiers.labels.number)
		show_tiers(m);
	if (s->encrypted)
		printf("  encryption: LUKS2%s%s, opened by %s%s%s; backup of its header: %s\n", *s->aead ? ", authenticated by " : "", s->aead,
		       token, *token ? ", and where that fails by " : "", *s->keyfile ? s->keyfile : "a passphrase", !backup ? "none" : m->request->separate ? "a file for each in " STATE : backup);
	if (*s->aead)
		printf("  tags: all of the volume is written once before it can be used, at the speed of the disks (hours for each TB); "
		       "the stack cannot grow, and takes no discards\n");
	if (*s->fs)
		printf("  filesystem: %s%s%s%s%s\n", s->fs, *s->label ? ", label " : "", s->label, *s->mkfs ? ", mkfs with " : "", s->mkfs);
	if (*s->mount)
		printf("  mount: %s, with a line in fstab%s\n", s->mount, m->request->essential ? ", for which each boot waits" : "");
	free(token);
	free(backup);
}
