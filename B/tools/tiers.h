/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tiers by class of device: --foreground, --promote and --background name labels, as bcachefs' targets do, and become what larder has for that: the
 * mode of the volume, its class, and the roles of the SSDs of its cache.  Nothing else is kept of them: what `larder show` says of tiers is read from these.
 */
#ifndef LARDER_TIERS_H
#define LARDER_TIERS_H

#include "arguments.h"
#include "scan.h"
#include "stack.h"

#define TIER_TEXT 512 /* of all labels of one use */

struct tiers_request {
	const char *foreground, *promote, *background; /* NULL: not given */
	struct argument_list labels; /* of the SSDs: one for each, or one for all */
	const char *disks; /* label of the disks; NULL: none */
};

/* The SSDs of a set, by place. */
struct tier_set {
	uint32_t number; /* of places */
	bool there[LARDER_MAX_DEVICES]; /* a member, though it may be missing */
	char label[LARDER_MAX_DEVICES][DEVICE_LABEL_MAX];
	uint32_t role[LARDER_MAX_DEVICES];
};

bool tiers_wanted(const struct tiers_request *request); /* one of the three is given */
/* The labels of a set that is made of so many SSDs; all of them take everything.  Complains. */
int tiers_new_set(const struct argument_list *labels, int ssds, struct tier_set *set);
/* Of a set that is there: by its newest table, or by the superblocks of its SSDs, where nothing is to hang on it. */
void tiers_of_table(const struct larder_table *table, const struct stack_list *list, struct tier_set *set);
void tiers_of_members(const struct members *members, const uint8_t cache[16], struct tier_set *set);
/*
 * What the options mean for this set and this stack, whose disks' label is known: fills mode and class of the stack, and (own: the set is being made) the
 * roles; of a set that is there the roles must be those.  mode: as asked for, or NULL.  Complains, and says which combination can be had.
 */
int tiers_plan(const struct tiers_request *request, const char *mode, bool own, struct tier_set *set, struct stack *stack);

/* Of a stack, for show: the label that all SSDs of that use have and no others, or else all their labels; what has none is called ssdN. */
const char *tiers_foreground(const struct tier_set *set, const struct stack *stack, char text[static TIER_TEXT]);
const char *tiers_promote(const struct tier_set *set, const struct stack *stack, char text[static TIER_TEXT]);
const char *tiers_background(const struct stack *stack);
/*
 * The role that an SSD with this label has, if it is not said: that of the others with the label, or of the others of its first group; NULL: there are none.
 * Complains (and *result says so) where these have several.
 */
const char *tiers_role(const struct tier_set *set, const char *label, const char *path, int *result);

#endif
