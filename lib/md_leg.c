// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The superblock of a disk of an md array, as linux/raid/md_p.h has it, and what follows from several.
 */
#include <endian.h>
#include <linux/types.h>
#include <linux/raid/md_p.h>
#include <stddef.h>
#include <string.h>

#include "md_leg.h"

#define ROLES ((MD_SUPER_BYTES - offsetof(struct mdp_superblock_1, dev_roles)) / sizeof(uint16_t))
#define IN_SYNC UINT64_MAX /* resync_offset: up to the end */
#define MARGIN 1u /* events by which a disk of one and the same state may be behind, as mdadm has it */

_Static_assert(sizeof(struct mdp_superblock_1) == 256, "as the kernel has it");

/* Of numbers of disks; none of one that is not kept. */
static uint64_t bit(uint32_t number)
{
	return number < MD_PLACES_MAX ? UINT64_C(1) << number : 0;
}

static int role(const struct mdp_superblock_1 *sb, uint32_t number)
{
	uint16_t value = number < ROLES && number < le32toh(sb->max_dev) ? le16toh(sb->dev_roles[number]) : MD_DISK_ROLE_FAULTY;

	return value == MD_DISK_ROLE_SPARE ? MD_ROLE_SPARE : value < MD_PLACES_MAX ? value : MD_ROLE_NONE;
}

bool md_leg_decode(const void *super, struct md_leg *leg)
{
	const struct mdp_superblock_1 *sb = super;
	uint32_t features = le32toh(sb->feature_map);

	if (le32toh(sb->magic) != MD_SB_MAGIC || le32toh(sb->major_version) != 1)
		return false;
	*leg = (struct md_leg){
		.events = le64toh(sb->events),
		.number = le32toh(sb->dev_number),
		.place = role(sb, le32toh(sb->dev_number)),
		.level = (int)le32toh(sb->level),
		.places = le32toh(sb->raid_disks),
		.layout = le32toh(sb->layout),
		.chunk = le32toh(sb->chunksize),
		.size = le64toh(sb->size),
		.start = le64toh(sb->data_offset),
		.room = le64toh(sb->data_size),
		.partial = features & (MD_FEATURE_RECOVERY_OFFSET | MD_FEATURE_REPLACEMENT),
		.dirty = le64toh(sb->resync_offset) != IN_SYNC,
		.logged = features & (MD_FEATURE_JOURNAL | MD_FEATURE_PPL | MD_FEATURE_MULTIPLE_PPLS),
		.journal = features & MD_FEATURE_JOURNAL,
		.reshaped = features & MD_FEATURE_RESHAPE_ACTIVE,
	};
	memcpy(leg->array, sb->set_uuid, 16);
	memcpy(leg->own, sb->device_uuid, 16);
	for (uint32_t i = 0; i < ROLES && i < le32toh(sb->max_dev); i++)
		if (role(sb, i) >= 0) {
			leg->holds |= UINT64_C(1) << role(sb, i);
			leg->numbers |= bit(i);
		}
	return true;
}

/* ------------------------------------------------------------------ a disk that returns */

static uint64_t all_places(uint32_t places)
{
	return places >= MD_PLACES_MAX ? UINT64_MAX : (UINT64_C(1) << places) - 1;
}

/* Where a mirror got another number of places its disks have the same as before, but maybe not in the same places. */
enum md_return md_return(const struct md_leg *leg, const struct md_now *now)
{
	bool moved = leg->places != now->places, mirror = leg->level == 1 && now->level == 1;
	uint64_t vacant = all_places(now->places) & ~now->held;

	if (leg->place == MD_ROLE_NONE)
		return MD_RETURN_NO_DISK;
	if (leg->place == MD_ROLE_SPARE || (moved && mirror) ? !vacant : !(vacant >> leg->place & 1))
		return MD_RETURN_UNNEEDED;
	if (leg->reshaped || leg->level != now->level || (moved && !mirror))
		return MD_RETURN_RESHAPED;
	if (leg->events > now->events)
		return MD_RETURN_NEWER;
	if (moved ? now->numbers & ~leg->numbers : now->whole & ~leg->holds)
		return MD_RETURN_APART;
	return MD_RETURN_TAKE;
}

const char *md_return_reason(enum md_return verdict)
{
	switch (verdict) {
	case MD_RETURN_NEWER:
		return "is newer than the array, which ran without it: what was written to it since is nowhere else";
	case MD_RETURN_APART:
		return "was written to without a disk that the array has now: nobody knows which of the two is right";
	case MD_RETURN_NO_DISK:
		return "is noted as failed, or as a journal, in its own superblock";
	case MD_RETURN_RESHAPED:
		return "is of another shape of the array: its level or number of disks was changed since, or is being changed";
	default:
		return NULL;
	}
}

bool md_return_by_bitmap(const struct md_leg *leg, bool volatile_cache)
{
	return !volatile_cache || (!leg->dirty && !leg->journal);
}

bool md_return_before(const struct md_leg *a, const struct md_leg *b)
{
	return a->events != b->events ? a->events > b->events : memcmp(a->own, b->own, 16) < 0;
}

/* ------------------------------------------------------------------ an array that does not run */

static uint32_t redundancy(int level)
{
	return level == 6 ? 2 : level == 5 || level == 4 ? 1 : 0;
}

/* Of these it can start without so many; of more it may. */
static uint32_t dispensable(const struct md_leg *leader)
{
	return leader->level == 1 ? leader->places - 1 : leader->level == 10 ? 1 : redundancy(leader->level);
}

static bool is_alike(const struct md_leg *a, const struct md_leg *b)
{
	return a->level == b->level && a->layout == b->layout && a->chunk == b->chunk && a->size == b->size && a->places == b->places;
}

/* Of the state of the newest. */
static bool is_recent(const struct md_leg *leg, const struct md_leg *newest)
{
	return newest->events - leg->events <= MARGIN;
}

/* And whole, as that knows it; where it is of another shape, by its number. */
static bool is_fresh(const struct md_leg *leg, const struct md_leg *newest)
{
	if (leg->place < 0 || leg->partial || !is_recent(leg, newest))
		return false;
	return is_alike(leg, newest) ? newest->holds >> leg->place & 1 : newest->numbers & bit(leg->number);
}

static void judge_shape(const struct md_leg *legs, size_t number, const struct md_leg *leader, const struct md_leg *newest, struct md_rest *rest)
{
	uint64_t here = 0, with = 0;
	size_t alike = 0;

	*rest = (struct md_rest){ .places = leader->places };
	for (size_t i = 0; i < number; i++) {
		if (!is_alike(&legs[i], leader))
			continue;
		alike++;
		rest->alike |= UINT64_C(1) << i;
		if (legs[i].place >= 0 && is_recent(&legs[i], newest))
			with |= UINT64_C(1) << legs[i].place;
		if (is_fresh(&legs[i], newest)) {
			rest->fresh |= UINT64_C(1) << i;
			here |= UINT64_C(1) << legs[i].place;
		}
	}
	here &= all_places(leader->places);
	rest->awaited = alike < number && leader->holds & all_places(leader->places) & ~with;
	rest->missing = leader->places - (uint32_t)__builtin_popcountll(here);
	rest->enough = rest->missing <= dispensable(leader);
	rest->write_hole = (newest->dirty || leader->dirty) && !leader->logged && rest->missing && rest->missing <= redundancy(leader->level);
}

static void find_torn(const struct md_leg *legs, size_t number, const struct md_leg *leader, const struct md_leg *newest, struct md_rest *rest)
{
	uint64_t here = 0;

	for (size_t i = 0; i < number; i++) {
		if (!is_recent(&legs[i], newest))
			continue;
		here |= bit(legs[i].number);
		if (leader->level == 1 && !(rest->alike >> i & 1) && (legs[i].place == MD_ROLE_SPARE || newest->numbers & bit(legs[i].number)))
			rest->torn |= UINT64_C(1) << i;
	}
	rest->mirror_torn = rest->torn && rest->fresh && !(leader->numbers & ~here);
}

void md_rest(const struct md_leg *legs, size_t number, struct md_rest *rest)
{
	const struct md_leg *newest = NULL, *before = NULL;

	*rest = (struct md_rest){ 0 };
	for (size_t i = 0; i < number; i++)
		if (!newest || legs[i].events > newest->events)
			newest = &legs[i];
	if (!newest)
		return;
	judge_shape(legs, number, newest, newest, rest);
	for (size_t i = 0; i < number; i++)
		if (!is_alike(&legs[i], newest) && is_fresh(&legs[i], newest) && (!before || legs[i].events > before->events))
			before = &legs[i];
	if (before && rest->missing > dispensable(newest)) {
		struct md_rest other;

		judge_shape(legs, number, before, newest, &other);
		if (other.missing <= dispensable(before))
			*rest = other;
		else
			before = NULL;
	} else {
		before = NULL;
	}
	find_torn(legs, number, before ? before : newest, newest, rest);
}

uint64_t md_behind(const struct md_leg *legs, const uint64_t *described, size_t number, uint64_t seen)
{
	uint64_t behind = 0;

	for (size_t i = 0; i < number && i < MD_PLACES_MAX; i++)
		for (size_t k = 0; k < number; k++) {
			const struct md_leg *old = &legs[i], *with = &legs[k];

			/* a disk that is being rebuilt has what it had where it is not yet */
			if (old->level != 1 || !is_alike(old, with) || old->place < 0 || old->partial || with->place < 0 || with->partial)
				continue;
			if (described[i] && described[i] < seen && described[k] >= seen && !(with->holds >> old->place & 1))
				behind |= UINT64_C(1) << i;
		}
	return behind;
}

uint64_t md_lost_due(const struct md_lost *lost)
{
	return lost->lacks & (~lost->noted | (lost->returned & ~lost->rebuilt));
}

void md_lost_seen(struct md_lost *lost)
{
	lost->noted &= lost->lacks;
	lost->returned = (lost->returned | lost->rebuilt) & lost->lacks;
}

void md_lost_noted(struct md_lost *lost)
{
	lost->noted = lost->lacks;
	lost->returned = lost->rebuilt & lost->lacks;
}
