/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Legs of an array with dm-integrity below them, so that md learns of what a disk returns wrong in silence, and repairs it.
 *
 * dm-integrity's own superblock names nobody.  So the first MiB of such a disk has a superblock of larder, of LARDER_KIND_OTHER with the flag below and the
 * leg's UUID, and a private linear target shows the rest to dm-integrity:
 *
 *	larder-disk-UUID	the disk behind its superblock; "LARDER-<leg>-leg-<stack>" for dm, so that what runs is found without the disk
 *	larder-leg-UUID		dm-integrity, of 4 KiB with a crc32c each, with its journal; "CRYPT-INTEGRITY-...", as libcryptsetup has it; md's member
 *
 * The names follow from the leg's UUID alone: whoever renames the stack has nothing to do here.
 */
#ifndef LARDER_INTEGRITY_H
#define LARDER_INTEGRITY_H

#include "scan.h"

#define LEG_PREFIX	    "larder-leg-"
#define INTEGRITY_ALGORITHM "crc32c"
#define LEG_FLAG	    1u /* in the head of LARDER_KIND_OTHER: a leg; behind the head is struct leg_fields */
#define LEG_OFFSET	    SUPERBLOCK_OTHER_OFFSET /* bytes; before it is the superblock */
#define LEG_BLOCK	    4096u /* bytes: a tag for each; the logical blocks that the array has then */
#define LEG_MIN		    (16u << 20) /* bytes of a disk that can be one */
#define MD_READ_ERRORS	    1000000u /* so many repairs an hour an array takes: they are of sectors, and no sign that the disk is about to die */

struct leg_fields {
	uint8_t stack[16]; /* UUID of the stack that the leg is of */
	uint8_t host[16]; /* whose machine's that is, as in its description; zero: not known */
};

/* Is it a leg?  *fields: what it says. */
bool leg_is(const union superblock *sb, struct leg_fields *fields);
bool leg_is_of(const union superblock *sb, const uint8_t stack[16]);
/* Makes a superblock of LARDER_KIND_OTHER, whose head is filled, that of a leg. */
void leg_fill(union superblock *sb, const struct leg_fields *fields);
/* It is that machine's from now on, whether it runs or not.  Complains. */
int leg_set_host(const char *disk, const uint8_t leg[16], const uint8_t host[16]);

/* Bytes that dm-integrity leaves of a disk of so many, about. */
uint64_t leg_capacity(uint64_t disk);
uint64_t leg_capacity_most(uint64_t disk); /* without a journal: no more than that */
/* Of such a disk, from LEG_OFFSET on: what dm-integrity's superblock and journal take, at most; there may be data in that. */
uint64_t leg_head(uint64_t disk);
/* Is the kernel's dm-integrity there, or can be loaded?  Complains. */
int leg_check_kernel(void);

/* The node for md; the caller frees it. */
char *leg_node(const uint8_t leg[16]);
/* Does dm-integrity run on that very disk? */
bool leg_runs(const uint8_t leg[16], dev_t disk);
/* Does a linear target of ours hold it, whether dm-integrity runs or not? */
bool leg_is_held(const uint8_t leg[16], dev_t disk);

/*
 * Makes dm-integrity's superblock on the disk, and nothing else: tags are computed by the kernel later, from what is there, while it is used; until then
 * a sector that was not written since is taken as it is.  Nothing that was in it is seen afterwards.  Complains.
 */
int leg_format(const char *disk, const uint8_t leg[16], const uint8_t stack[16]);
/*
 * Both devices, unless they are there.  What a disk that is gone has left of this leg goes first, out of its array, too.  Complains, also of a disk that
 * is somebody else's by now.
 */
int leg_start(const char *disk, const uint8_t leg[16], const uint8_t stack[16]);
/* All of a stack, also those whose disks are gone.  Complains of one that is in use. */
int legs_stop(const uint8_t stack[16]);

int leg_stop(const uint8_t leg[16]);
/* Stops it, and takes from its disk what makes it one: superblocks, and the journal.  Complains. */
int leg_erase(const char *disk, const uint8_t leg[16]);

/* The leg of that stack which runs on a disk, or as which its superblock has it. */
bool leg_of_disk(const char *disk, const uint8_t stack[16], uint8_t leg[16]);
/* Is dm-integrity's superblock there?  readable: false: nobody knows. */
bool leg_is_formatted(const char *disk, bool *readable);
/* Of a device that md has: the leg it is, and its disk ("" where that is gone).  False: it is none. */
bool leg_of_device(dev_t device, uint8_t leg[16], char disk[static 64]);

struct leg_status {
	uint64_t mismatches; /* sectors that were read wrong since it was started */
	uint64_t sectors, computed; /* of all: so many have tags */
};
bool leg_status(const uint8_t leg[16], struct leg_status *status);

#endif
