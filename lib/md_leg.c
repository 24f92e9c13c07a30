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
		.place = role(sb, le32toh(sb->dev_number)),
		.level = (int)le32toh(sb->level),
		.places = le32toh(sb->raid_disks),
		.partial = features & (MD_FEATURE_RECOVERY_OFFSET | MD_FEATURE_REPLACEMENT),
		.dirty = le64toh(sb->resync_offset) != IN_SYNC,
		.logged = features & (MD_FEATURE_JOURNAL | MD_FEATURE_PPL | MD_FEATURE_MULTIPLE_PPLS),
		.reshaped = features & MD_FEATURE_RESHAPE_ACTIVE,
	};
	memcpy(leg->array, sb->set_uuid, 16);
	memcpy(leg->own, sb->device_uuid, 16);
	for (uint32_t i = 0; i < ROLES && i < le32toh(sb->max_dev); i++)
		if (role(sb, i) >= 0)
			leg->holds |= UINT64_C(1) << role(sb, i);
	return true;
}

/* ------------------------------------------------------------------ a disk that returns */

static uint64_t all_places(uint32_t places)
{
	return places >= MD_PLACES_MAX ? UINT64_MAX : (UINT64_C(1) << places) - 1;
}

enum md_return md_return(const struct md_leg *leg, const struct md_now *now)
{
	uint64_t vacant = all_places(now->places) & ~now->held;

	if (leg->place >= 0 ? !(vacant >> leg->place & 1) : leg->place == MD_ROLE_SPARE && !vacant)
		return MD_RETURN_UNNEEDED;
	if (leg->place == MD_ROLE_NONE)
		return MD_RETURN_NO_DISK;
	if (leg->reshaped || leg->level != now->level || leg->places != now->places)
		return MD_RETURN_RESHAPED;
	if (leg->events > now->events)
		return MD_RETURN_NEWER;
	if (now->whole & ~leg->holds)
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

bool md_return_before(const struct md_leg *a, const struct md_leg *b)
{
	return a->events != b->events ? a->events > b->events : memcmp(a->own, b->own, 16) < 0;
}

/* ------------------------------------------------------------------ an array that does not run */

static uint32_t redundancy(int level)
{
	return level == 6 ? 2 : level == 5 || level == 4 ? 1 : 0;
}

void md_rest(const struct md_leg *legs, size_t number, struct md_rest *rest)
{
	const struct md_leg *newest = NULL;
	uint64_t here = 0;

	*rest = (struct md_rest){ 0 };
	for (size_t i = 0; i < number; i++)
		if (!newest || legs[i].events > newest->events)
			newest = &legs[i];
	if (!newest)
		return;
	for (size_t i = 0; i < number; i++)
		if (legs[i].place >= 0 && newest->holds >> legs[i].place & 1 && !legs[i].partial && newest->events - legs[i].events <= MARGIN) {
			rest->fresh |= UINT64_C(1) << i;
			here |= UINT64_C(1) << legs[i].place;
		}
	rest->places = newest->places;
	here &= all_places(newest->places);
	rest->missing = newest->places - (uint32_t)__builtin_popcountll(here);
	rest->write_hole = newest->dirty && !newest->logged && rest->missing && rest->missing <= redundancy(newest->level);
}
