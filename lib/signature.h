/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What libblkid finds on a device, and its removal. */
#ifndef LARDER_SIGNATURE_H
#define LARDER_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "superblock.h"

/* Of a signature on a member; where there is none all lie outside. */
enum signature_place {
	SIGNATURE_OUTSIDE, /* before the data, or behind what the member takes of the device: another owner's */
	SIGNATURE_DATA, /* among the data, where libblkid looks from the beginning on: what a user has written */
	SIGNATURE_TAIL, /* likewise, where it looks from the end on */
	SIGNATURE_RESERVE, /* behind the data of a volume: nobody's data, and no sign that the disk is another one's */
};
#define SIGNATURES_ALL (~0u)

struct signature {
	char type[32]; /* as libblkid has it: "linux_raid_member", "swap", "dos" */
	char *text; /* "type: what it is at byte N" */
	uint64_t offset; /* bytes */
	enum signature_place place;
	bool nested; /* a partition table of what is no whole disk: wipefs leaves it, without an error, but with --force */
	char wipefs[64]; /* words for wipefs, before the device, that erase it alone */
};

struct signatures {
	struct signature *signature;
	size_t number;
};

/*
 * Adds every signature, damaged ones included, at head and tail.  Complains of I/O errors.  ours: it is a member (superblocks_stand()), with its data
 * there, and larder's own signature is none; NULL: a wipe asks for all of them.
 */
int signatures_find(const struct device *device, const struct contents *ours, struct signatures *found);
void signatures_free(struct signatures *found);
/* Those in these places (bit by bit) as one line, "" for none; the caller frees it. */
char *signatures_line(const struct signatures *found, unsigned places);
/*
 * Does it lie behind the device that the superblock was made on?  Then this device is longer, and carries that one: the leg of a mirror by md 1.0, the disk
 * below DRBD with internal metadata.  Both superblock and signature are in use, and what erases either destroys a replica.
 */
bool signature_is_behind(const union superblock *sb, const struct signature *signature);

struct signature_others {
	char type[32];
	char wipefs[64]; /* words for wipefs, before the device, that erase it, and nothing among the data */
	bool behind; /* as by signature_is_behind(), and no other */
};

/*
 * Is there any that is not ours?  Then the first.  Commands leave none on what they format, and what is among the data of a member, at its tail as well,
 * does not count: it is what a user has written.  Elsewhere it came later, with a new owner.  sb: by which it is a member; NULL: none.  Says nothing.
 */
bool signature_of_others(const struct device *device, const union superblock *sb, struct signature_others *others);
/* The same, where that of this type is ours: of a disk of an array, say. */
bool signature_besides(const struct device *device, const struct contents *ours, const char *mine, struct signature_others *others);
/* Of a member of which somebody says that it is of this type: is that because of its data, or of what is reserved behind them, alone?  Says nothing. */
bool signature_is_data(const struct device *device, const union superblock *sb, const char *type);
/* Is it of this type, and of no other?  May be mounted.  Complains of I/O errors. */
int signature_is(const struct device *device, const char *type, bool *is);
/* Overwrites each, flushes, and looks again: what is left is an error.  The device is open by DEVICE_CLAIM. */
int signatures_wipe(const struct device *device);

#endif
