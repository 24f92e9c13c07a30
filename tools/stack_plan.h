/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What `larder create` is asked for, and what will be made of it: nothing is written here. */
#ifndef LARDER_STACK_PLAN_H
#define LARDER_STACK_PLAN_H

#include "arguments.h"
#include "luks.h"
#include "md.h"
#include "stack.h"
#include "tiers.h"
#include "token.h"

struct stack_request {
	const char *name;
	struct argument_list disks, spares, caches, cache_spares;
	bool integrity; /* dm-integrity below each disk of the array */
	const char *raid, *mode, *class, *encrypt, *cipher, *label, *mkfs, *mkfs_options, *mount, *header_backup;
	struct tiers_request tiers;
	uint64_t iteration_ms, size; /* size: of its volume, bytes; VOLUME_SIZE_ALL */
	bool separate, essential, wipe, dry_run, yes, resume;
	const char *discard_dirty;
};

/* What is being made. */
struct making {
	struct stack stack; /* with --separate the first one, then the next ones in its place */
	const struct stack_request *request;
	uint64_t disk_bytes[MD_LEGS_MAX], unused; /* of the disks */
	uint64_t disk_room[MD_LEGS_MAX]; /* of a volume alone on each, bytes */
	unsigned block; /* bytes: the largest logical block of them, which is that of an array */
	uint32_t ssds;
	struct tier_set set; /* of its cache */
	char cache_label[LARDER_LABEL_SIZE + 1];
	struct secret secret;
	struct token token; /* where stack.token is given: as found to be usable */
};

/* Where the backup of its LUKS header goes, to be freed by the caller; NULL: nowhere. */
char *stack_backup_path(const struct stack *stack, const char *word);
int stack_check_iteration(uint64_t ms);
/* What is there by that name, if anything, may be replaced: it is a backup of the header of this stack.  Complains. */
int stack_check_backup_file(const struct stack *stack, const char *path);
/* May it be made there, as --header-backup has it?  Where that file is there it is one of this stack's, of a try that was cut short. */
int stack_check_backup(const struct stack *stack, const char *word);
/* One fact each, as create and set are told it: into the description.  Complain; option: what it is said by. */
int stack_parse_mount(struct stack *stack, const char *text);
int stack_parse_keyfile(struct stack *stack, const char *option, const char *path);
int stack_parse_class(struct stack *stack, const char *text);
int stack_parse_label(struct stack *stack, const char *text); /* of the disks */
int stack_parse_mode(const char *text); /* only whether it is one */
/* A key file that lies behind the mount would never be read.  Complains. */
int stack_check_keyfile(const struct stack *stack, const char *option);
/* Where it is to be mounted is a directory, nothing is mounted there, and no line in fstab but its own would be.  Complains. */
int stack_check_mount(const struct stack *stack);
/* The words, without a look at any device: fills the description.  All complain. */
int stack_parse(const struct stack_request *request, struct stack *stack);
/* The devices: free, fit, large enough, with nothing on them; the names are not taken.  Fills the rest. */
int stack_plan(struct making *m);
/* Behind a question: what others can have taken meanwhile.  The devices are claimed anew when they are cleared. */
int stack_plan_again(const struct making *m);
void stack_show_plan(const struct making *m);
/*
 * The key that a TPM2 or a server is to keep: can it be made?  Fills token, and stack.token with what was found out.  Without the lock meanwhile: what
 * was looked at before is to be looked at again.  Complains.
 */
int stack_check_token(struct making *m);

#endif
