/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The description of a stack, as the field `stack` of superblocks has it (docs/on-disk-format.md 3.4): text in, text out, no I/O.
 *
 * A volume has that of its own stack.  The SSDs of a cache have a list of all stacks that use it: of those being made or removed the
 * whole description, since there may be no volume to read it from, of the others the name.
 */
#ifndef LARDER_STACK_H
#define LARDER_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stored_options.h"
#include "superblock.h"

#define STACK_PATH_MAX 256 /* of a mount point, a key file, words for mkfs; with the final zero */
#define STACK_LIST_MAX 64 /* stacks of one cache */
#define STACK_CLASS_MAX 512 /* of a class list, as the kernel has it, with the final zero */
#define DEVICE_LABEL_MAX 32 /* of an SSD, or of the disks of a stack; with the final zero */
#define DEVICE_LABEL_WORDS "a label: 1 to 31 of A-Z a-z 0-9 . _ -, each group between dots beginning with a letter or digit, and not none or backing"

enum stack_state {
	STACK_READY,
	STACK_CREATING,
	STACK_REMOVING,
};

/* What has been done of a stack in the making; all before it is done too. */
enum stack_step {
	STEP_NONE, /* the cache has the description */
	STEP_DISKS, /* the disks are marked as the stack's */
	STEP_ARRAY, /* the md array is made */
	STEP_VOLUME, /* the volume is formatted, and has the description */
	STEP_CRYPT, /* the LUKS header is written */
	STEP_FILESYSTEM, /* the filesystem is made: from here on there may be data in it */
	STEP_MOUNT, /* fstab and the mount */
	NR_STEPS,
};

#define SNAPSHOTS_MAX 8 /* of one stack */
#define SPACE_NAME_MAX 128 /* of a volume group, with the final zero */
#define SPACE_NAME_WORDS "a volume group: 1 to 127 of A-Z a-z 0-9 + . _ -, not beginning with -, and not . or .."
#define SNAPSHOT_NAME_MAX 32 /* with the final zero */

/* Whoever starts the stack starts those that are ready with it, or refuses; the others count for nothing. */
enum snapshot_state {
	SNAPSHOT_READY,
	SNAPSHOT_CREATING, /* nobody was told yet that there is one */
	SNAPSHOT_REMOVING,
	SNAPSHOT_LOST, /* its store was full, or failed, or somebody gave it up: the stack may have run without it */
};

/* What the filesystem was at one moment; what has changed since is on a device of its own, the store (lib/cow.h). */
struct stack_snapshot {
	char name[SNAPSHOT_NAME_MAX];
	uint64_t serial; /* no other one of this stack has had it: the UUID of the store follows from it */
	enum snapshot_state state;
};

/* The cache of a stack. */
enum stack_own {
	OWN_NONE, /* it was there before */
	OWN_CACHE, /* made with the stack, has its name, and goes with it */
	OWN_TOGETHER, /* made with several stacks (create --separate), has a name of its own, and goes with the last of them */
};

struct stack {
	char name[LARDER_LABEL_SIZE + 1];
	uint8_t uuid[16];
	uint64_t generation; /* raised by each change: stack_raise() */
	uint8_t host[16]; /* stack_host() of who made it */
	enum stack_state state;
	enum stack_step step;
	char raid[8]; /* "" : none; "0", "1", "10", "5", "6" */
	uint32_t legs; /* disks of the array, or 1 */
	char integrity[16]; /* "": none; else by what dm-integrity below each disk of the array knows what it returns wrong: "crc32c" */
	uint32_t spares; /* while it is made: so many disks more, marked behind those, are spares of the array; then md knows */
	uint8_t cache[16];
	enum stack_own own_cache;
	uint32_t next; /* while it is made: so many are made behind it, by stack_next() */
	uint64_t size; /* while it is made: bytes of its volume; 0: all that there is room for */
	char mode[16], class[STACK_CLASS_MAX]; /* class: "" for the default */
	char options[STORED_OPTIONS_MAX]; /* others of its volume */
	bool encrypted;
	char aead[24]; /* "": the encryption does not authenticate; else by which cipher it does */
	uint64_t wiped; /* while that is made: so many bytes have their tags, durably; 0: the LUKS header may not be there yet */
	char keyfile[STACK_PATH_MAX]; /* "": a passphrase */
	char token[STACK_PATH_MAX]; /* while it is made: a further key, as token_parse() takes it; then the LUKS header has it.  "": none */
	char fs[8], label[LARDER_LABEL_SIZE + 1]; /* fs "": none */
	char mkfs[STACK_PATH_MAX]; /* further words for mkfs */
	char mount[STACK_PATH_MAX]; /* "": nowhere */
	struct stack_snapshot snapshot[SNAPSHOTS_MAX];
	uint32_t snapshots;
	char space[SPACE_NAME_MAX]; /* volume group whose free space is for stores of snapshots; "": none */
	char disks[DEVICE_LABEL_MAX]; /* label of its disks, as --background takes it; "": none */
};

/*
 * Of one cache: whole descriptions, or (brief) name and uuid of one that is ready, and the generation that its volume is known to have had, durably
 * (0: not known); and the machine whose the cache is.
 */
struct stack_list {
	uint8_t host[16]; /* zero: not known */
	struct stack stack[STACK_LIST_MAX];
	bool brief[STACK_LIST_MAX];
	size_t number;
	char label[LARDER_MAX_DEVICES][DEVICE_LABEL_MAX]; /* of each place of the set; "": none.  An SSD that takes a place has its label */
	char options[STORED_OPTIONS_MAX]; /* of the cache */
};

/*
 * So many changes behind this generation.  Anybody may have written the last one that there is: it is never gone beyond, and whatever is compared with
 * it stands; or the stack could be described no more.
 */
uint64_t stack_raise(uint64_t generation, uint64_t changes);

/* UUID of a part of a stack: "md", "volume", "crypt", "fs", "disk 0": the same each time (RFC 4122, version 5). */
void stack_part(const struct stack *stack, const char *part, uint8_t uuid[16]);
/*
 * Of several stacks that are made at once, NAME-1, NAME-2, ..., the one behind this, before its first step, its disk marked.  Its UUID follows from this
 * one's, so that each finds its disk, and one description of a chain tells all that is still to be made.  False: there is none.
 */
bool stack_next(const struct stack *stack, struct stack *next);
/* Is it one of those of that NAME? */
bool stack_is_one_of(const struct stack *stack, const char *name);
/* This machine, as descriptions name it: its machine-id, hashed; zero: it has none. */
void stack_host(uint8_t host[16]);
/* Another machine, as far as both are known; made on one. */
bool stack_host_is_foreign(const uint8_t host[16]);
bool stack_is_foreign(const struct stack *stack);
/* It names a machine, and this one does not know who it is: an initramfs without /etc/machine-id, say.  What starts by itself takes that for another one. */
bool stack_host_is_unknown(const uint8_t host[16]);

/*
 * Into a field of LARDER_STACK_SIZE bytes.  NULL: done; else what does not fit.  Of a list without stack, label and options: all zero.
 */
const char *stack_encode(const struct stack *stack, uint8_t field[static LARDER_STACK_SIZE]);
const char *stack_list_encode(const struct stack_list *list, uint8_t field[static LARDER_STACK_SIZE]);
/* NULL: done; else what is wrong with it.  *there: the field says something at all.  Nothing in it is believed before it is checked. */
const char *stack_decode(const uint8_t field[static LARDER_STACK_SIZE], struct stack *stack, bool *there);
const char *stack_list_decode(const uint8_t field[static LARDER_STACK_SIZE], struct stack_list *list, bool *there);

/*
 * As the list on the SSDs has it: of one that is being removed without what that does not need, its mount, say.  A list that has room for a stack in the
 * making has room to remove it, whatever its description has become.
 */
struct stack stack_listed(const struct stack *stack);
/* Puts it into the list in the place of the one with its UUID, or behind the others; the cache is its machine's then.  False: the list is full. */
bool stack_list_put(struct stack_list *list, const struct stack *stack);
void stack_list_drop(struct stack_list *list, const uint8_t uuid[16]);

/* NULL: it has none of that name. */
struct stack_snapshot *stack_snapshot_find(struct stack *stack, const char *name);
/* UUID of its store. */
void stack_snapshot_uuid(const struct stack *stack, const struct stack_snapshot *snapshot, uint8_t uuid[16]);
bool stack_snapshot_needed(const struct stack *stack); /* it has one that is ready */
void stack_snapshot_forget(struct stack *stack, const char *name);
const char *snapshot_state_text(enum snapshot_state state);
/* As of a dm device, up to 31 of [A-Za-z0-9#+.:=_-]: behind the last '@' of NAME@SNAPSHOT. */
bool snapshot_name_valid(const char *name);

/*
 * Labels of devices: groups divided by dots, as bcachefs has them: letters, digits, _ and -, each beginning with a letter or digit.  `none` and `backing`
 * are words, and no labels.  A target means the devices that have it as label, or as the first groups of theirs.
 */
bool device_label_valid(const char *label);
bool space_name_valid(const char *group);
bool device_label_in(const char *label, const char *target);

const char *stack_state_text(enum stack_state state);
bool stack_raid_valid(const char *raid); /* 0, 1, 10, 5, 6 */
bool stack_integrity_valid(const char *integrity); /* crc32c */
bool stack_fs_valid(const char *fs); /* ext4, xfs, btrfs */
bool stack_aead_valid(const char *aead); /* chacha20-poly1305, aes-gcm, aes-xts-hmac */
bool stack_text_valid(const char *text, bool path); /* of a path, or words: printable, no more than STACK_PATH_MAX */
bool stack_class_valid(const char *class); /* one word of a dm table, printable; what else it may be the kernel says */

#endif
