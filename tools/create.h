/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What `cache create` and `volume create` share. */
#ifndef LARDER_CREATE_H
#define LARDER_CREATE_H

#include "claim.h"
#include "superblock.h"

/* The name may become a dm device, the label fits, and no other member of that kind has the label.  Complains. */
int create_check_names(const char *name, const char *label, uint32_t kind);
/* Fills the head of a new superblock: UUID, sizes, time, generation 1. */
void create_head(struct larder_sb_head *head, uint32_t kind, const struct device *device, uint64_t copy_offset);
/* Zeroes [from, to), which nothing may be left in.  Complains. */
int create_zero(const struct device *device, uint64_t from, uint64_t to);
/* The last step: copy and main superblock; or with dry_run the line that says so. */
int create_superblock(const struct device *device, union superblock *sb, bool dry_run);

#endif
