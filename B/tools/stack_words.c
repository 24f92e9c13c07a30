// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The words of larder create, as facts of the stack: each option by itself, and which of them go together.
 *
 * No device is looked at here, and nothing of this machine but that a key file is there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include "create.h"
#include "integrity.h"
#include "md.h"
#include "message.h"
#include "stack_mkfs.h"
#include "stack_paths.h"
#include "stack_words.h"
#include "token.h"

#define ENCRYPT_WORDS "luks2 or luks2-aead, each alone or with :passphrase, :keyfile=FILE, :tpm2 or :tang=URL"

/* ------------------------------------------------------------------ facts that larder set is told as well */

int stack_parse_mount(struct stack *stack, const char *text)
{
	if (!stack_text_valid(text, true))
		return complain(LARDER_USAGE, "--mount: '%s' is not an absolute path, or too long", text);
	strcpy(stack->mount, text);
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

int stack_parse_class(struct stack *stack, const char *text)
{
	if (!stack_class_valid(text))
		return complain(LARDER_USAGE, "--class: is not one word, too long, or not printable; see docs/interface.md");
	strcpy(stack->class, text);
	return LARDER_DONE;
}

int stack_parse_label(struct stack *stack, const char *text)
{
	if (!device_label_valid(text))
		return complain(LARDER_USAGE, "--backing-label: '%s' is not " DEVICE_LABEL_WORDS, text);
	strcpy(stack->disks, text);
	return LARDER_DONE;
}

int stack_parse_mode(const char *text)
{
	uint32_t mode;

	if (!mode_parse(text, &mode))
		return complain(LARDER_USAGE, "--mode: '%s' is not one of writeback, writethrough, writearound", text);
	return LARDER_DONE;
}

int stack_check_iteration(uint64_t ms)
{
	/* what cryptsetup takes: 32 bits */
	return ms > UINT32_MAX ? complain(LARDER_USAGE, "--iter-time: is at most %u milliseconds", UINT32_MAX) : LARDER_DONE;
}

/* ------------------------------------------------------------------ disks, and the cache */

/* A cache that is there: one word that is no path. */
static bool names_cache(const struct stack_request *request)
{
	return request->caches.number == 1 && !strchr(request->caches.value[0], '/');
}

/* Each disk is a stack of its own, up to the encryption: one filesystem over them is made when they are there. */
static int parse_separate(const struct stack_request *request, struct stack *stack)
{
	int number = request->disks.number;
	char last[24];

	if (number < 2)
		return complain(LARDER_USAGE, "--separate: makes a volume of each disk, and %s given; leave it out",
				number ? "one is" : "none is");
	if (request->raid && strcmp(request->raid, "none"))
		return complain(LARDER_USAGE,
				"--separate: each disk is a volume of its own, and --raid %s makes one of all; leave one of them out",
				request->raid);
	if (request->mkfs || request->mount || request->label || request->mkfs_options)
		return complain(LARDER_USAGE,
				"--separate: goes without --mkfs, --mount and --label; make the filesystem over the volumes once they are there, as by mkfs.btrfs -d raid1 -m raid1");
	if (request->header_backup && strcmp(request->header_backup, "none"))
		return complain(LARDER_USAGE,
				"--header-backup: with --separate there is a header for each volume; leave it out (each has a file below "
				BACKUP_DIRECTORY "), or none");
	if (strlen(request->name) + (size_t)snprintf(last, sizeof(last), "-%d", number) > LARDER_LABEL_SIZE)
		return complain(LARDER_USAGE, "%s: NAME: is too long: the last volume would be called %s%s", request->name,
				request->name, last);
	stack->legs = 1;
	stack->next = (uint32_t)number - 1;
	snprintf(stack->name, sizeof(stack->name), "%s-1", request->name);
	return LARDER_DONE;
}

static int parse_raid(const struct stack_request *request, struct stack *stack)
{
	int number = request->disks.number;
	const char *raid = request->raid ? request->raid : number > 1 ? "" : "none";
	unsigned least;

	if (!number)
		return complain(LARDER_USAGE, "--backing: is missing; give the disk, or each of them");
	stack->legs = (uint32_t)number;
	if (!strcmp(raid, "none"))
		return number == 1 ? LARDER_DONE : complain(LARDER_USAGE, "--raid: none is for one disk, %d are given", number);
	if (!*raid)
		return complain(LARDER_USAGE,
				"--raid: is missing: %d disks; say 1 (mirrors), 10, 5, 6 or 0 (no redundancy), or --separate (a volume of each)",
				number);
	if (!stack_raid_valid(raid))
		return complain(LARDER_USAGE, "--raid: '%s' is not one of none, 0, 1, 10, 5, 6", raid);
	least = md_legs_min(raid);
	if ((unsigned)number < least)
		return complain(LARDER_USAGE, "--raid: %s needs at least %u disks, %d are given", raid, least, number);
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

	if (request->cache_spares.number && names_cache(request))
		return complain(LARDER_USAGE,
				"--cache-spare: is for a cache that is made; larder cache add %s %s --spare is for one that is there",
				request->caches.value[0], request->cache_spares.value[0]);
	if (!number)
		return LARDER_DONE;
	if (!*stack->raid || !strcmp(stack->raid, "0"))
		return complain(LARDER_USAGE,
				"--spare: %s: no array with redundancy is made that a spare could serve; --raid 1, 10, 5 or 6 makes one",
				request->spares.value[0]);
	if (request->disks.number + number > MD_LEGS_MAX)
		return complain(LARDER_USAGE, "--spare: with %d disks and %d spares the array has more than %d",
				request->disks.number, number, MD_LEGS_MAX);
	stack->spares = (uint32_t)number;
	return LARDER_DONE;
}

static int parse_cache_labels(const struct stack_request *request)
{
	const struct argument_list *labels = &request->tiers.labels;
	struct tier_set ignored;

	if (labels->number && names_cache(request))
		return complain(LARDER_USAGE,
				"--cache-label: is for a cache that is made; larder cache label %s SSD LABEL is for one that is there",
				request->caches.value[0]);
	return tiers_new_set(labels, request->caches.number, &ignored);
}

static int parse_cache(const struct stack_request *request, struct stack *stack)
{
	int number = request->caches.number;

	if (!number)
		return complain(LARDER_USAGE, "--cache: is missing; give each SSD, or the name of a cache that is there");
	if (number > (int)LARDER_MAX_DEVICES)
		return complain(LARDER_USAGE, "--cache: given %d times; a cache has at most %u SSDs", number, LARDER_MAX_DEVICES);
	if (!names_cache(request))
		stack->own_cache = request->separate ? OWN_TOGETHER : OWN_CACHE;
	if (request->tiers.disks && stack_parse_label(stack, request->tiers.disks))
		return LARDER_USAGE;
	return parse_cache_labels(request);
}

/* ------------------------------------------------------------------ filesystem */

/* Of the filesystem, whose kind is known. */
static int parse_label(const char *label, struct stack *stack)
{
	size_t most = !strcmp(stack->fs, "ext4") ? 16 : !strcmp(stack->fs, "xfs") ? 12 : LARDER_LABEL_SIZE;

	if (!label_valid(label) || strlen(label) > most)
		return complain(LARDER_USAGE, "--label: must be 1 to %zu bytes of UTF-8 for %s", most, stack->fs);
	strcpy(stack->label, label);
	return LARDER_DONE;
}

static int parse_filesystem(const struct stack_request *request, struct stack *stack)
{
	if (request->essential && !request->mount)
		return complain(LARDER_USAGE, "--essential: is for --mount");
	if (!request->mkfs && (request->mount || request->label || request->mkfs_options))
		return complain(LARDER_USAGE, "--mount, --label, --mkfs-options: are for a filesystem; say which by --mkfs");
	if (!request->mkfs)
		return LARDER_DONE;
	if (!stack_fs_valid(request->mkfs))
		return complain(LARDER_USAGE, "--mkfs: '%s' is not one of ext4, xfs, btrfs", request->mkfs);
	strcpy(stack->fs, request->mkfs);
	if (request->label && parse_label(request->label, stack))
		return LARDER_USAGE;
	if (request->mkfs_options && (!stack_text_valid(request->mkfs_options, false) || !*request->mkfs_options))
		return complain(LARDER_USAGE, "--mkfs-options: is too long, empty, or not printable");
	if (request->mkfs_options && stack_check_mkfs_words(request->mkfs_options))
		return LARDER_USAGE;
	if (request->mkfs_options)
		strcpy(stack->mkfs, request->mkfs_options);
	return request->mount ? stack_parse_mount(stack, request->mount) : LARDER_DONE;
}

/* ------------------------------------------------------------------ encryption */

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
		return complain(LARDER_USAGE,
				"--encrypt: what follows the : is passphrase (it is asked for), keyfile=FILE, " TOKEN_GRAMMAR);
	result = stack_parse_keyfile(stack, "--encrypt", by + 9);
	return result ? result : stack_check_keyfile(stack, "--encrypt");
}

/* ------------------------------------------------------------------ all of it */

static int parse_size(const struct stack_request *request, struct stack *stack)
{
	if (request->size == VOLUME_SIZE_ALL)
		return LARDER_DONE;
	if (!request->size || request->size % LARDER_SLOT_SIZE || request->size > INT64_MAX)
		return complain(LARDER_USAGE, "--size: must be a multiple of 4096 bytes, and not 0: 100G, say");
	stack->size = request->size;
	return LARDER_DONE;
}

int stack_parse(const struct stack_request *request, struct stack *stack)
{
	int result;

	if (!name_valid(request->name))
		return complain(LARDER_USAGE,
				"%s: NAME: must be 1 to 64 of A-Z a-z 0-9 # + . : = @ _ - and not begin with - or a dot",
				request->name);
	strcpy(stack->name, request->name);
	uuid_generate_random(stack->uuid);
	stack_host(stack->host);
	stack->state = STACK_CREATING;
	result = parse_size(request, stack);
	result = result ? result : request->separate ? parse_separate(request, stack) : parse_raid(request, stack);
	result = result ? result : parse_integrity(request, stack);
	result = result ? result : parse_spares(request, stack);
	result = result ? result : parse_filesystem(request, stack);
	result = result ? result : parse_encrypt(request, stack);
	result = result ? result : stack_check_iteration(request->iteration_ms);
	result = result ? result : parse_cache(request, stack);
	if (!result && request->mode)
		result = stack_parse_mode(request->mode);
	if (!result && request->class)
		result = stack_parse_class(stack, request->class);
	return result;
}
