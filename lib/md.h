/* SPDX-License-Identifier: GPL-2.0-or-later */
/* md arrays.  md.c is the only file that knows mdadm, and what lies on the disks of an array. */
#ifndef LARDER_MD_H
#define LARDER_MD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MD_LEGS_MAX 64

/* Disks with a superblock of one array, and the array, if it runs. */
struct md_array {
	char *leg[MD_LEGS_MAX]; /* their nodes */
	size_t number;
	char node[64]; /* "": it does not run */
	dev_t device;
};

/* Looks at all block devices for superblocks (metadata 1.2) with this UUID.  Says nothing; md_free() after it. */
void md_find(const uint8_t uuid[16], struct md_array *array);
void md_free(struct md_array *array);

/* The word to be shown for what is kept besides the data: "bitmap", "ppl", "". */
const char *md_consistency(const char *level);
unsigned md_legs_min(const char *level);
/* Bytes of an array of so many disks, the smallest with so many bytes, about; *unused: of all disks together. */
uint64_t md_capacity(const char *level, const uint64_t *bytes, unsigned number, uint64_t *unused);

/* These run mdadm, and complain. */
int md_create(const uint8_t uuid[16], const char *level, const char *const *legs, unsigned number);
int md_assemble(const uint8_t uuid[16], const struct md_array *array, bool degraded);
int md_stop(const char *node);
int md_erase(const char *leg);
int md_grow(const char *node); /* it takes all of its disks */

/* Bytes that it takes of each disk, and that the smallest of them has for it.  False: cannot be read. */
bool md_leg_room(dev_t device, uint64_t *now, uint64_t *room);

/* Of one that runs: "active", "degraded", "failed", "resyncing", "scrubbing"; *missing: disks that it lacks. */
const char *md_state(dev_t device, unsigned *missing);

#endif
