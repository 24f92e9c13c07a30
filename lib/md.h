/* SPDX-License-Identifier: GPL-2.0-or-later */
/* md arrays.  md.c is the only file that runs mdadm; what lies on the disks of an array md_leg.c knows. */
#ifndef LARDER_MD_H
#define LARDER_MD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "md_leg.h"
#include "superblock.h"

#define MD_CHUNK (512u << 10) /* bytes, of an array that is made */
#define MD_LEGS_MAX MD_PLACES_MAX

/* Disks with a superblock of one array, and the array, if it runs. */
struct md_array {
	char *leg[MD_LEGS_MAX]; /* their nodes */
	dev_t leg_number[MD_LEGS_MAX];
	struct md_leg super[MD_LEGS_MAX]; /* what they say */
	size_t number;
	char node[64]; /* "": it does not run */
	dev_t device;
	char inactive[64]; /* what holds them, and does not run, as udev leaves it while others are missing; "": nothing */
};

/* What a disk is to an array that runs. */
enum md_role {
	MD_MEMBER, /* in its place, with all that belongs there */
	MD_COPIED, /* the same, and another disk is taking its place */
	MD_REBUILT, /* in a place, and not yet whole; or taking that of one that is copied to it */
	MD_SPARE,
	MD_FAILED,
};

struct md_disk {
	char name[32]; /* as the kernel calls it, also when it is gone */
	char node[64]; /* "": it is gone */
	dev_t number;
	enum md_role role;
	int place; /* -1: none */
	bool whole; /* it has all that belongs there, whatever becomes of it */
	bool unwanted; /* a write error is noted, or another disk was to take its place: the next spare does */
};

/* The disks of an array that runs. */
struct md_disks {
	struct md_disk disk[MD_LEGS_MAX];
	size_t number;
	unsigned places, missing; /* places of the array; of these without a whole disk, or one that is being rebuilt */
	bool idle; /* nothing is resynced, rebuilt or checked */
	bool frozen; /* and nothing will be */
	unsigned percent; /* of that */
};

/* Looks at all block devices for superblocks (metadata 1.2) with this UUID.  Says nothing; md_free() after it. */
void md_find(const uint8_t uuid[16], struct md_array *array);
/* The same, of those devices that wanted() says yes to. */
void md_find_where(const uint8_t uuid[16], bool (*wanted)(dev_t number, const void *data), const void *data, struct md_array *array);
void md_free(struct md_array *array);
/* Has it a superblock of that array?  *readable: else that is not known.  Its own UUID, which stands there. */
bool md_is_leg(const char *path, const uint8_t uuid[16], bool *readable);
bool md_leg_uuid(const char *path, uint8_t uuid[16]);
/* What an array has of such a disk: that of its users, at its tail as well. */
void md_contents(const struct md_leg *leg, struct contents *contents);
/* The same of a disk that is not known; nothing where there is no superblock. */
void md_contents_of(const struct device *device, struct contents *contents);
/* Is it durable on the disk itself that it has all that belongs into its place of that array? */
bool md_leg_settled(const char *path, const uint8_t uuid[16]);

/* A device whose disk is gone leaves the array that has it, if that can do without; md may not have noticed.  Says nothing. */
void md_give_up(dev_t leg);
/* Of a device that is read-only, an array or not: which of its disks is, if so, and what to do for the stack; to be freed. */
char *md_why_read_only(dev_t device, const char *path, const char *stack);
/* The array takes so many read errors of a disk in an hour, each of which it repairs, before the disk fails.  Says nothing. */
void md_take_read_errors(dev_t device, unsigned number);
unsigned md_read_errors(dev_t device); /* so many */

bool md_disks(dev_t device, struct md_disks *disks);
/* By place in array->leg: does the array, which runs, have that disk, working or failed? */
bool md_has(const struct md_disks *disks, const struct md_array *array, size_t leg);
/* Of an array that runs, for md_return(). */
void md_now(const struct md_array *array, const struct md_disks *disks, struct md_now *now);
/* Is a disk in that place, whole or being rebuilt? */
bool md_held(const struct md_disks *disks, int place);

/*
 * The word to be shown for what md_create() has kept besides the data: "bitmap", "ppl", "".  RAID 5 has a log of its parity (PPL) only on disks that
 * keep nothing in a volatile cache: with one, md answers flushes too early (disks_flush_early()).
 */
const char *md_consistency(const char *level, bool volatile_cache);
bool md_has_volatile_cache(const char *const *legs, unsigned number); /* any of these nodes, or files */
bool md_is_logged(dev_t device); /* the log of its parity is on */
/* A disk that may return, by place in array->leg, would go by a bitmap of the array, which runs, and all is to be copied to it (md_return_by_bitmap()). */
bool md_returns_whole(const struct md_array *array, size_t leg);
bool md_lacks_guard(const char *level, dev_t device); /* RAID 5 with neither log nor bitmap, as a grow that was cut off leaves it */
bool md_reshapes(dev_t device); /* it is being moved, or would be if md went on */
bool md_has_write_hole(const char *level, bool volatile_cache); /* as md_create() makes it, without a log of its parity */
unsigned md_legs_min(const char *level);
/* Bytes of an array of so many disks, the smallest with so many bytes, about; *unused: of all disks together. */
uint64_t md_capacity(const char *level, const uint64_t *bytes, unsigned number, uint64_t *unused);

/* Takes legs out of the list, bit by bit. */
void md_leave_out(struct md_array *array, uint64_t legs);

/* These run mdadm, and complain. */
int md_create(const uint8_t uuid[16], const char *level, const char *const *legs, unsigned number, unsigned spares); /* these: the last of number */
/* Of one that does not run: disks that are read-only, as the array would be with them, leave the list (degraded), or are complained of. */
int md_leave_out_read_only(struct md_array *array, bool degraded);
/*
 * Of those disks of one shape of which there are enough (md_rest()): the others are to be taken back.  write_hole: with parity that may be wrong, of those
 * alone that are as new as the newest.
 */
int md_assemble(const uint8_t uuid[16], const struct md_array *array, bool degraded, bool write_hole);
int md_stop(const char *node);
int md_erase(const char *leg);
/* These change one that runs, or only (dry_run) print the command.  disk: a node, or the kernel's name of one that is gone. */
int md_grow(const char *node, bool dry_run); /* it takes all of its disks */
int md_add(const char *node, const char *disk, bool dry_run);
/* One that was in it: what it lacks by the bitmap is copied; all of it where *all says so, or none tells: then *all says so behind it. */
int md_take_back(const char *node, const char *disk, bool *all);
int md_replace(const char *node, const char *old, const char *with, bool dry_run); /* with: a spare of it */
int md_fail(const char *node, const char *disk, bool dry_run);
int md_remove(const char *node, const char *disk, bool dry_run);
/* Of RAID 5, 6 and 10 that moves all that is in it, and goes on behind this; for RAID 5 its log is to be off: md_stop_log(). */
int md_set_places(const char *node, unsigned places, bool dry_run);
int md_stop_log(const char *node, bool dry_run); /* of the parity of RAID 5 (PPL) */
int md_set_guard(const char *node, dev_t device, bool dry_run); /* of that, again: md_consistency() */
/* An mdadm that was killed in the middle may leave the array so that md rebuilds nothing: ends that. */
int md_thaw(const char *node);

/* Bytes that it takes of each disk, and that the smallest of them has for it, spares too.  False: cannot be read. */
bool md_leg_room(dev_t device, uint64_t *now, uint64_t *room);
/* Sectors in front of the data of its disks, of the one with the fewest.  UINT64_MAX: cannot be read. */
uint64_t md_leg_offset(dev_t device, const struct md_disks *disks);

/* The places of an array that have no whole disk, bit by bit; 0 of another device. */
uint64_t md_lacks(dev_t device);
/* The same, and those of them where one is being rebuilt, as it is now. */
void md_look_lost(dev_t device, struct md_lost *lost);
/* Of one that runs: "active", "degraded", "failed", "resyncing", "scrubbing"; *missing: disks that it lacks. */
const char *md_state(dev_t device, unsigned *missing);

#endif
