// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tiers by class of device: labels, and what bcachefs' three targets are in larder.
 *
 *  foreground	where a write goes first: to SSDs is mode writeback, to the disks writearound, or writethrough where that is asked for
 *  promote	where what is read is copied to: SSDs, or with the class any:write-only nowhere
 *  background	where data comes to rest: always the disks
 *
 * Which SSDs take writes, and which copies, are their roles: they are of the cache, for all stacks that use it.  So an SSD that is of no use to the first
 * stack is refused, and a second stack may only ask for what the roles are already.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "superblock.h"
#include "tiers.h"

#define NO_COPIES "any:write-only"

enum use {
	USE_WRITE,
	USE_READ,
};

bool tiers_wanted(const struct tiers_request *request)
{
	return request->foreground || request->promote || request->background;
}

int tiers_new_set(const struct argument_list *labels, int ssds, struct tier_set *set)
{
	*set = (struct tier_set){ .number = (uint32_t)ssds };
	if (labels->number > 1 && labels->number != ssds)
		return complain(LARDER_USAGE, "--cache-label: given %d times for %d SSDs; give it once for each --cache, in their order, or once for all",
				labels->number, ssds);
	for (int i = 0; i < ssds; i++) {
		const char *label = labels->number ? labels->value[labels->number > 1 ? i : 0] : "";

		if (labels->number && !device_label_valid(label))
			return complain(LARDER_USAGE, "--cache-label: '%s' is not " DEVICE_LABEL_WORDS, label);
		set->there[i] = true;
		set->role[i] = LARDER_ROLE_BOTH;
		strcpy(set->label[i], label);
	}
	return LARDER_DONE;
}

void tiers_of_table(const struct larder_table *table, const struct stack_list *list, struct tier_set *set)
{
	*set = (struct tier_set){ 0 };
	for (uint32_t i = 0; i < LARDER_MAX_DEVICES; i++) {
		uint32_t state = le32toh(table->devices[i].state);

		set->there[i] = state == LARDER_DEVICE_ACTIVE || state == LARDER_DEVICE_FAILED;
		set->role[i] = le32toh(table->devices[i].role);
		strcpy(set->label[i], list->label[i]);
		if (set->there[i])
			set->number = i + 1;
	}
}

void tiers_of_members(const struct members *members, const uint8_t cache[16], struct tier_set *set)
{
	const struct member *any = member_cache(members, cache);
	struct stack_list *list;
	bool there;

	*set = (struct tier_set){ 0 };
	if (!any)
		return;
	list = must_allocate(calloc(1, sizeof(*list)));
	stack_list_decode(any->sb.cache.stack, list, &there); /* who uses it complains */
	for (uint32_t i = 0; i < LARDER_MAX_DEVICES; i++) {
		const struct member *m = member_of_set(members, cache, i);

		strcpy(set->label[i], list->label[i]);
		if (!m)
			continue;
		set->there[i] = true;
		set->role[i] = le32toh(m->sb.cache.role);
		set->number = i + 1;
	}
	free(list);
}

/* ------------------------------------------------------------------ what the roles say */

static bool used(const struct tier_set *set, uint32_t place, enum use use)
{
	return set->there[place] && set->role[place] != (use == USE_WRITE ? LARDER_ROLE_READ : LARDER_ROLE_WRITE);
}

/* Have those of this use this target, and no others? */
static bool is_target(const struct tier_set *set, enum use use, const char *target)
{
	bool any = false;

	for (uint32_t i = 0; i < set->number; i++) {
		if (set->there[i] && device_label_in(set->label[i], target) != used(set, i, use))
			return false;
		any |= used(set, i, use);
	}
	return any;
}

/* The longest that is the target of a use; false: there is none. */
static bool find_target(const struct tier_set *set, enum use use, char target[static DEVICE_LABEL_MAX])
{
	char *dot;

	for (uint32_t i = 0; i < set->number; i++)
		if (used(set, i, use)) {
			strcpy(target, set->label[i]);
			break;
		}
	while (*target && !is_target(set, use, target)) {
		dot = strrchr(target, '.');
		*(dot ? dot : target) = 0;
	}
	return *target;
}

static const char *use_text(const struct tier_set *set, enum use use, char text[static TIER_TEXT])
{
	char target[DEVICE_LABEL_MAX] = "";
	size_t length = 0;

	*text = 0;
	if (find_target(set, use, target))
		return strcpy(text, target);
	for (uint32_t i = 0; i < set->number; i++) {
		bool said = false;

		if (!used(set, i, use))
			continue;
		for (uint32_t j = 0; j < i && *set->label[i]; j++)
			said |= used(set, j, use) && !strcmp(set->label[i], set->label[j]);
		if (said || length >= TIER_TEXT)
			continue;
		length += (size_t)snprintf(text + length, TIER_TEXT - length, length ? "," : "");
		if (length < TIER_TEXT)
			length += (size_t)(*set->label[i] ? snprintf(text + length, TIER_TEXT - length, "%s", set->label[i]) :
							    snprintf(text + length, TIER_TEXT - length, "ssd%u", i));
	}
	return text;
}

static bool copies_nothing(const struct stack *stack)
{
	size_t length = strlen(stack->class), end = strlen(NO_COPIES);

	/* behind the rules of larder pin, if there are some */
	return length >= end && !strcmp(stack->class + length - end, NO_COPIES) && (length == end || stack->class[length - end - 1] == '/');
}

const char *tiers_background(const struct stack *stack)
{
	return *stack->disks ? stack->disks : "backing";
}

const char *tiers_foreground(const struct tier_set *set, const struct stack *stack, char text[static TIER_TEXT])
{
	return strcmp(stack->mode, "writeback") ? tiers_background(stack) : use_text(set, USE_WRITE, text);
}

const char *tiers_promote(const struct tier_set *set, const struct stack *stack, char text[static TIER_TEXT])
{
	return copies_nothing(stack) ? "none" : use_text(set, USE_READ, text);
}

const char *tiers_role(const struct tier_set *set, const char *label, const char *path, int *result)
{
	char target[DEVICE_LABEL_MAX];
	const char *role = NULL;

	snprintf(target, sizeof(target), "%s", label);
	*result = LARDER_DONE;
	for (;;) {
		for (uint32_t i = 0; i < set->number; i++) {
			if (!set->there[i] || !device_label_in(set->label[i], target))
				continue;
			if (role && strcmp(role, role_text(set->role[i])))
				*result = complain(LARDER_USAGE, "%s: --cache-label: SSDs with the label %s have several roles; say by --role which it is to have",
						   path, target);
			if (*result)
				return NULL;
			role = role_text(set->role[i]);
		}
		if (role || !strchr(target, '.'))
			return role;
		target[strcspn(target, ".")] = 0;
	}
}

/* ------------------------------------------------------------------ what the options ask for */

struct asked {
	const struct tiers_request *request;
	const struct tier_set *set;
	const struct stack *stack;
	bool foreground, promote; /* on SSDs */
};

static bool means_disks(const struct asked *a, const char *word)
{
	return !strcmp(word, "backing") || (*a->stack->disks && device_label_in(a->stack->disks, word));
}

static bool means_ssds(const struct asked *a, const char *word)
{
	for (uint32_t i = 0; i < a->set->number; i++)
		if (a->set->there[i] && device_label_in(a->set->label[i], word))
			return true;
	return false;
}

/* One of the two that are for SSDs; *ssds: it names some. */
static int parse_target(const struct asked *a, const char *option, const char *word, bool *ssds)
{
	bool disks = means_disks(a, word);

	*ssds = means_ssds(a, word);
	if (disks && *ssds)
		return complain(LARDER_USAGE, "%s: '%s' is the label of SSDs and of the disks; larder keeps them apart: give the disks another --backing-label",
				option, word);
	if (disks || *ssds || !strcmp(word, "none"))
		return LARDER_DONE;
	return complain(LARDER_USAGE, "%s: '%s' is not the label of an SSD (--cache-label), nor of the disks (--backing-label)%s", option, word,
			device_label_valid(word) ? "" : "; nor could it be one");
}

static int parse(struct asked *a)
{
	const struct tiers_request *r = a->request;
	int result;

	if (!r->foreground)
		return complain(LARDER_USAGE, "--foreground: is missing: the label of the SSDs to which writes go first, or backing; --promote and --background go with it");
	if (!r->promote)
		return complain(LARDER_USAGE, "--promote: is missing: the label of the SSDs to which what is read is copied, or none; it goes with --foreground");
	result = parse_target(a, "--foreground", r->foreground, &a->foreground);
	if (!result && means_disks(a, r->promote))
		result = complain(LARDER_USAGE, "--promote: '%s' is the disks, and copies are made on SSDs: give the label of some, or none", r->promote);
	result = result ? result : parse_target(a, "--promote", r->promote, &a->promote);
	if (result)
		return result;
	if (r->background && !means_disks(a, r->background))
		return complain(LARDER_USAGE, "--background: '%s': in larder data comes to rest on the disks%s%s; --background %s, or leave it out",
				r->background, means_ssds(a, r->background) ? ", and these are SSDs" : ", and it is not their label",
				*a->stack->disks ? "" : " (--backing-label gives them one)", tiers_background(a->stack));
	if (a->foreground || a->promote)
		return LARDER_DONE;
	return complain(LARDER_USAGE, "--foreground %s --promote %s: leaves nothing to the SSDs; --foreground LABEL is a writeback cache, --promote LABEL a writearound one",
			r->foreground, r->promote);
}

static int choose_mode(const struct asked *a, const char *mode, struct stack *stack)
{
	const struct tiers_request *r = a->request;

	if (mode && a->foreground && strcmp(mode, "writeback"))
		return complain(LARDER_USAGE, "--foreground %s: writes go to SSDs first, which is mode writeback; with --mode %s they go to the disks: --foreground backing",
				r->foreground, mode);
	if (mode && !a->foreground && !strcmp(mode, "writeback"))
		return complain(LARDER_USAGE, "--foreground %s: writes go to the disks first, which is mode writearound or writethrough; --mode writeback needs --foreground LABEL of SSDs",
				r->foreground);
	strcpy(stack->mode, a->foreground ? "writeback" : mode ? mode : "writearound");
	if (a->promote)
		return LARDER_DONE;
	if (*stack->class)
		return complain(LARDER_USAGE, "--promote none: is the class " NO_COPIES ", and --class %s is given; leave one of them out", stack->class);
	strcpy(stack->class, NO_COPIES);
	return LARDER_DONE;
}

/* The role that an SSD has by these options; with one target alone it takes everything. */
static int role_of(const struct asked *a, uint32_t place, uint32_t *role)
{
	const char *label = a->set->label[place];
	bool writes = a->foreground && device_label_in(label, a->request->foreground), reads = a->promote && device_label_in(label, a->request->promote);

	*role = writes == reads || !a->foreground || !a->promote ? LARDER_ROLE_BOTH : writes ? LARDER_ROLE_WRITE : LARDER_ROLE_READ;
	if (writes || reads)
		return LARDER_DONE;
	return complain(LARDER_USAGE, "--cache: SSD %u (%s%s): neither --foreground %s nor --promote %s is its label, so it would be of no use; leave it out, or label it so",
			place, *label ? "label " : "no label", label, a->request->foreground, a->request->promote);
}

static int check_use(const struct asked *a, enum use use, const char *option, const char *target)
{
	char fits[DEVICE_LABEL_MAX] = "";

	if (is_target(a->set, use, target))
		return LARDER_DONE;
	find_target(a->set, use, fits);
	for (uint32_t i = 0; i < a->set->number; i++)
		if (a->set->there[i] && device_label_in(a->set->label[i], target) != used(a->set, i, use))
			return complain(LARDER_USAGE, "%s %s: SSD %u (%s%s) has the role %s, for all stacks of this cache; %s%s%s", option, target, i,
					*a->set->label[i] ? "label " : "no label", a->set->label[i], role_text(a->set->role[i]),
					*fits ? option : "no label means those that fit: larder cache label gives them one", *fits ? " " : "",
					*fits ? fits : "");
	return complain(LARDER_USAGE, "%s %s: the cache has no SSD for that; make one of its own", option, target);
}

int tiers_plan(const struct tiers_request *request, const char *mode, bool own, struct tier_set *set, struct stack *stack)
{
	struct asked a = { .request = request, .set = set, .stack = stack };
	uint32_t role[LARDER_MAX_DEVICES];
	int result = parse(&a);

	result = result ? result : choose_mode(&a, mode, stack);
	for (uint32_t i = 0; !result && own && i < set->number; i++)
		result = role_of(&a, i, &role[i]);
	if (!result && own)
		memcpy(set->role, role, set->number * sizeof(role[0]));
	if (!result && !own && a.foreground)
		result = check_use(&a, USE_WRITE, "--foreground", request->foreground);
	if (!result && !own && a.promote)
		result = check_use(&a, USE_READ, "--promote", request->promote);
	return result;
}
