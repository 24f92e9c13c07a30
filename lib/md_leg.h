/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the superblocks of an md array's disks (metadata 1.2) say, and what follows from it: pure, without a device.
 *
 * Who is newer than whom is said by the number of events, which md raises on all disks that an array has with each that it loses.  It does not say that
 * two disks are of one history: each half of a mirror may have run without the other.  So a disk counts only where none of those that the array has
 * now is one that it knew to be gone.
 */
#ifndef LARDER_MD_LEG_H
#define LARDER_MD_LEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD_SUPER_BYTES 4096
#define MD_PLACES_MAX 64 /* of which a bit is kept here */
#define MD_ROLE_SPARE (-1)
#define MD_ROLE_NONE (-2) /* failed, a journal, or beyond what is kept */

struct md_leg {
	uint8_t array[16], own[16]; /* UUIDs */
	uint64_t events;
	uint64_t holds; /* places that have a disk, as this one knows it; bit by bit */
	uint64_t numbers; /* and the numbers of these disks, which they keep where a mirror gets fewer places */
	uint64_t size; /* sectors that it gives to the array */
	uint64_t start; /* where they begin, sectors */
	uint64_t room; /* sectors from there on that are md's */
	uint32_t number; /* its own */
	int place; /* its own, or MD_ROLE_SPARE, MD_ROLE_NONE */
	int level;
	uint32_t places, layout, chunk;
	bool partial; /* it is being rebuilt, or takes the place of another one */
	bool dirty; /* the array was written to, or is not in sync yet: parity, or mirrors, may differ */
	bool logged; /* by a partial parity log, or a journal, which ends that at the start */
	bool journal; /* of those a journal: with it, dirty says nothing of writes */
	bool reshaped; /* its shape is being changed */
};

/* False: there is none. */
bool md_leg_decode(const void *super, struct md_leg *leg);

/*
 * Of the disks of a mirror that does not run: those that are behind seen, by a number that each has (described; 0: none can be read), where another one is
 * not, and ran without them; bit by bit.  Each half may have run without the other: the number of events does not say which is which then.
 */
uint64_t md_behind(const struct md_leg *legs, const uint64_t *described, size_t number, uint64_t seen);

/* An array that runs. */
struct md_now {
	uint64_t events;
	uint64_t whole, held; /* places with all that belongs there; with any disk */
	uint64_t numbers; /* of the disks that are whole */
	uint32_t places;
	int level;
};

/* May a disk that it does not have, with a superblock of it, become one of its disks? */
enum md_return {
	MD_RETURN_UNNEEDED, /* its place is held */
	MD_RETURN_TAKE, /* it has nothing that the array has not */
	MD_RETURN_NEWER,
	MD_RETURN_APART, /* it was in the array without a disk that this has now */
	MD_RETURN_NO_DISK, /* it failed as md itself notes on it, or is a journal */
	MD_RETURN_RESHAPED,
};

enum md_return md_return(const struct md_leg *leg, const struct md_now *now);
/*
 * Of an array that runs, bit by bit: places that have no whole disk, those of them where one is being rebuilt, and those that it was noted of that they lack
 * one; where one is, or was, rebuilt since.
 */
struct md_lost {
	uint64_t lacks, rebuilt, noted, returned;
};

/*
 * Those to be noted: what is noted while a disk is rebuilt is copied to it.  One that has failed again, or was whole between two looks, has it, and would
 * be as new as what has gone on without it.
 */
uint64_t md_lost_due(const struct md_lost *lost);
/* Behind a look, or (noted) a note, of that. */
void md_lost_seen(struct md_lost *lost);
void md_lost_noted(struct md_lost *lost);

/* Why it is left; NULL: it is taken, or not needed. */
const char *md_return_reason(enum md_return verdict);
/*
 * Of one that may return: do the bitmaps of the others show all that it lacks?  They do not show a write that it had answered out of a volatile cache, and lost
 * with its power: md took that for done.  md flushes a disk before it calls the array clean on it, and calls it dirty there before the next write: what is clean
 * by its own superblock has lost nothing, unless there is a journal, with which md always says so.  volatile_cache: it has one.
 */
bool md_return_by_bitmap(const struct md_leg *leg, bool volatile_cache);
/* Why not: "all is copied to it" "..." */
#define MD_RETURN_WHY_ALL ", as it left while the array was written to, and its volatile write cache may have lost what it had answered"
/* Of two that may return the first one is taken first: it knows of the other, and may not be known to that. */
bool md_return_before(const struct md_leg *a, const struct md_leg *b);

/* What is here of an array that does not run. */
struct md_rest {
	uint32_t places, missing; /* of these without a disk that is whole, and as new as the newest */
	bool enough; /* it can start without those; a RAID 10 may without more */
	/*
	 * Which of the legs given are of one shape: mdadm takes no others together.  A power cut while the number of disks is changed leaves two shapes: that of
	 * the newest, or the one before, where alone there are enough.  Bit by bit.
	 */
	uint64_t alike;
	uint64_t fresh; /* of these: such disks */
	uint64_t torn; /* of the others, in a mirror: of the same state, as far as they were told: they have nothing that these have not */
	bool awaited; /* these know of a disk that is not among them, nor were all disks given */
	bool mirror_torn; /* with them all that these know of are here: it can start without them */
	/*
	 * It can start, with parity that may be wrong: it was written to when it was cut off, or its disks, and a disk is missing whose content would be computed
	 * from that parity.
	 */
	bool write_hole;
};
/* Of at most 64 legs of one array. */
void md_rest(const struct md_leg *legs, size_t number, struct md_rest *rest);

#endif
