/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What `larder create` is asked for, and how its words become facts of the stack; some of them `larder set` takes, each by itself.
 */
#ifndef LARDER_STACK_WORDS_H
#define LARDER_STACK_WORDS_H

#include "arguments.h"
#include "stack.h"
#include "tiers.h"

/* As given: NULL, 0 or false is not. */
struct stack_request {
	const char *name;
	struct argument_list disks, spares, caches, cache_spares; /* caches: paths of SSDs, or the name of one that is there */
	bool integrity; /* dm-integrity below each disk of the array */
	const char *raid, *mode, *class, *encrypt, *cipher, *label, *mkfs, *mkfs_options, *mount, *header_backup;
	struct tiers_request tiers;
	uint64_t iteration_ms, size; /* size: of its volume, bytes; VOLUME_SIZE_ALL: not given */
	bool separate, essential, wipe, dry_run, yes, resume;
	const char *discard_dirty;
};

/*
 * All of the words, and which go together: fills the description, which is zero before; with --separate that of the first stack.
 * Looks at no device, and leaves open what hangs on them: the UUID of the cache, the mode, what tiers mean.  Complains.
 */
int stack_parse(const struct stack_request *request, struct stack *stack);

/* One fact each, into the description.  They complain, and have changed nothing then.  option: what it is said by. */
int stack_parse_mount(struct stack *stack, const char *text);
int stack_parse_keyfile(struct stack *stack, const char *option, const char *path); /* it is there; links are followed now */
int stack_parse_class(struct stack *stack, const char *text); /* what else it may be the kernel says */
int stack_parse_label(struct stack *stack, const char *text); /* of the disks */
/* Is it one?  Nothing is kept of it.  Complain. */
int stack_parse_mode(const char *text);
int stack_check_iteration(uint64_t ms); /* --iter-time; 0: not given */

#endif
