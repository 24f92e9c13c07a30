/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the bits of the feature masks of superblocks are called, and how they come to be set (docs/on-disk-format.md 9): one table, for larder upgrade, for
 * show and status.  No I/O.
 */
#ifndef LARDER_FORMAT_FEATURES_H
#define LARDER_FORMAT_FEATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../kernel/larder_format.h"

enum feature_mask {
	MASK_COMPAT,
	MASK_RO_COMPAT,
	MASK_INCOMPAT,
};

struct feature {
	const char *name, *text;
	uint32_t kind; /* of superblock */
	enum feature_mask mask;
	uint64_t bit;
	bool by_use; /* the kernel sets it when it is first used, and takes it away when it is not; else larder upgrade sets it */
	uint32_t target[2]; /* major and minor of the first version of the dm target that knows it; 0, 0: it need not */
};

/* Of a superblock of this kind, in the order of the table; previous NULL: the first.  NULL: there are no more. */
const struct feature *feature_next(uint32_t kind, const struct feature *previous);
bool feature_is_set(const struct larder_sb_head *head, const struct feature *feature);
void feature_set(struct larder_sb_head *head, const struct feature *feature);
/* The next that larder upgrade would set. */
const struct feature *feature_missing(const struct larder_sb_head *head, const struct feature *previous);
/* Names of those that are set, "a,b", and what has no name as compat:0x8; "-": none.  The caller frees it. */
char *features_text(const struct larder_sb_head *head);

#endif
