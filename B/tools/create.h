/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What `cache create`, `volume create` and `create` share. */
#ifndef LARDER_CREATE_H
#define LARDER_CREATE_H

#include "arguments.h"
#include "claim.h"
#include "layout.h"
#include "superblock.h"

struct cache_request {
	const char *name, *label;
	struct argument_list paths, roles;
	uint64_t segment_size;
	struct claim_request claim;
	const uint8_t *uuid; /* of the cache; NULL: a random one */
	const uint8_t *stack; /* LARDER_STACK_SIZE bytes for the field of that name, or NULL */
};

#define VOLUME_SIZE_ALL UINT64_MAX

struct volume_request {
	const char *name, *label, *path, *cache, *mode_name;
	uint32_t mode;
	struct volume_layout layout;
	uint64_t size; /* bytes; VOLUME_SIZE_ALL: all that there is room for */
	struct claim_request claim;
	const uint8_t *uuid, *stack; /* as above */
};

/* Opens and judges all devices, then formats them.  The names have been checked.  Complain. */
int cache_format(const struct cache_request *request);
int volume_format(struct volume_request *request);

/* The name may become a dm device of what is of that kind; word: what a complaint calls it. */
int create_check_name(const char *name, const char *word, uint32_t kind);
/* The name may become a dm device, the label fits, and no other member of that kind has the label.  Complains. */
int create_check_names(const char *name, const char *label, uint32_t kind);
/* Are both paths of one device, or file?  Is part a partition of whole?  Say nothing. */
bool create_is_same(const char *a, const char *b);
bool create_is_partition(const char *part, const char *whole);
/* SSDs of one set, or disks of one array, that are parts of one disk, which would be lost as one: refused.  what: "SSD", "disk".  Complains. */
int create_check_apart(const char *const *paths, int number, const char *what);
/* The same, of one that joins the others. */
int create_check_joins(const char *path, const char *const *others, int number, const char *what);
/* A disk with logical blocks of so many bytes takes the place of any disk of an array with such ones: no larger ones.  Complains. */
int create_check_block(const char *path, unsigned block, unsigned array);
/* Fills the head of a new superblock: UUID, sizes, time, generation 1. */
void create_head(struct larder_sb_head *head, uint32_t kind, const struct device *device, uint64_t copy_offset);
/* Zeroes [from, to), which nothing may be left in.  Complains. */
int create_zero(const struct device *device, uint64_t from, uint64_t to);
/* The last step: copy and main superblock; or with dry_run the line that says so. */
int create_superblock(const struct device *device, union superblock *sb, bool dry_run);

#endif
